"""f(x) = wᵀ x: by (Xᵀ L X + λ I) w = Xᵀ b, an n × n matrix, or by conjugate gradients, which only multiply by X."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp

from ...comparisons import Comparisons, PreferenceComparisons, centred, offset_is_large, one_group
from ..conjugate_gradients import ConjugateGradientResult, solve_conjugate_gradients
from ..holdout.feature import FeatureHoldOut
from ..holdout.krylov import KrylovHoldOut
from ..holdout.pair import (
    PairSystem,
    PreferenceHoldOut,
    feature_pair_system,
    regression_over_pairs,
    suits_pair_space,
    weighted_differences,
)
from ..problem import SquaredLossFit, solve_primal_path
from ..routes import HELD_OUT_TOLERANCE, TRAINING_TOLERANCE
from .base import Asked, Representation


class Linear(Representation):
    """The features themselves, dense or sparse. O(m n² + n³) for a training, a path and a hold-out."""

    needs = "the linear kernel"

    def solve(self, alpha: Any, *, with_mean: bool = True) -> SquaredLossFit:
        X = self.inputs.X
        with self.stages(f"primal system {X.shape[1]} × {X.shape[1]}"):
            weights = self.each(lambda task, alphas: solve_primal_path(X, task, alphas), alpha)
        return self.linear_fit("primal", weights, with_mean)

    def hold_out(self, task: Comparisons, asked: Asked) -> FeatureHoldOut:
        return feature_hold_out(self.inputs.double(), task, asked)

    by_features = hold_out

    def pair_systems(
        self, task: Comparisons, alphas: Sequence[float], asked: Asked, routine: Callable[[bool], Any]
    ) -> Iterator[PairSystem | None]:
        source = routine(False)
        for alpha in alphas:
            yield pairs_by_features(source, alpha)


def less_offsets(X: Any, task: Comparisons, asked: Asked) -> tuple[Any, dict[str, Any]]:
    """The features minus what all rows have in common, where that is large or has no effect, and hold-out options."""
    options: dict[str, Any] = {"intercept": asked.intercept}
    if task.ignores_constants and not sp.issparse(X):
        level = asked.level and not asked.intercept
        if not level or offset_is_large(X):
            X, means = centred(X, one_group(X.shape[0]))
            options["offset"] = means[0] if level else None
    return X, options


def feature_hold_out(X: Any, task: Comparisons, asked: Asked) -> FeatureHoldOut:
    """Rows held out by these features, in double precision."""
    X, options = less_offsets(X, task, asked)
    return FeatureHoldOut(X, task, **options)


def pairs_by_features(source: Any, alpha: float) -> PairSystem | None:
    """The closed form of all pairs; None where the source has none, or is not precise enough at this alpha."""
    if not isinstance(source, FeatureHoldOut) or not source.is_well_determined(alpha):
        return None
    return feature_pair_system(source, alpha)


class Iterated(Representation):
    """O(stored values of X) for an iteration; every alpha of a fold from one Krylov sequence."""

    needs = "the linear kernel"

    def solve(self, alpha: Any, *, with_mean: bool = True) -> SquaredLossFit:
        X, tol = self.inputs.X, TRAINING_TOLERANCE if self.tol is None else self.tol
        if not sp.issparse(X) and all(task.ignores_constants for task in self.tasks) and offset_is_large(X):
            X = centred(X, one_group(X.shape[0]))[0]
        with self.stages("conjugate gradients") as stage:
            options = {"tol": tol, "max_iter": self.max_iter, "on_iteration": stage.iteration}
            results: list[ConjugateGradientResult] = []

            def solve(task: Comparisons, alphas: list[float]) -> list[np.ndarray]:
                found = [solve_conjugate_gradients(X, task, one, **options) for one in alphas]
                results.extend(found)
                return [result.weights for result in found]

            weights = self.each(solve, alpha)
        return self.linear_fit("cg", weights, with_mean, **what_was_reached(results))

    def hold_out(self, task: Comparisons, asked: Asked) -> KrylovHoldOut:
        return self._iterate(self.inputs.double(), task, asked)

    def hold_out_preferences(self, task: PreferenceComparisons, asked: Asked) -> PreferenceHoldOut | None:
        """As a regression over the differences; None where their weights differ too much for one tolerance."""
        if not suits_pair_space(task):
            return None
        differences = weighted_differences(self.inputs.X, task)
        return PreferenceHoldOut(self._iterate(differences, regression_over_pairs(task), asked), task)

    def _iterate(self, X: Any, task: Comparisons, asked: Asked) -> KrylovHoldOut:
        X, options = less_offsets(X, task, asked)
        tol = self.tol or HELD_OUT_TOLERANCE
        return KrylovHoldOut(X, task, tol=tol, max_iter=self.max_iter, **options)


def what_was_reached(results: Sequence[ConjugateGradientResult]) -> dict[str, Any]:
    """Of the slowest of several outputs, as attributes of `SquaredLossFit`."""
    return {
        "n_iter": max(result.n_iter for result in results),
        "residual": max(result.residual for result in results),
        "converged": all(result.converged for result in results),
    }
