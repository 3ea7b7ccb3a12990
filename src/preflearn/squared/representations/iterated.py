"""f(x) = wᵀ x by conjugate gradients: products with X only, no square matrix."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp

from ...comparisons import Comparisons, PreferenceComparisons, centred, offset_is_large, one_group
from ..conjugate_gradients import ConjugateGradientResult, solve_conjugate_gradients
from ..holdout.krylov import KrylovHoldOut
from ..holdout.preference import (
    PreferenceHoldOut,
    regression_over_pairs,
    suits_pair_space,
    weighted_differences,
)
from ..problem import SquaredLossFit
from ..routes import HELD_OUT_TOLERANCE, TRAINING_TOLERANCE
from .base import Asked, Representation
from .linear import less_offsets


class Iterated(Representation):
    """O(stored values of X) for an iteration; every alpha of a fold from one Krylov sequence."""

    needs = "the linear kernel"

    def solve(self, alpha: float, *, with_mean: bool = True) -> SquaredLossFit:
        X, tol = self.inputs.X, TRAINING_TOLERANCE if self.tol is None else self.tol
        if not sp.issparse(X) and all(task.ignores_constants for task in self.tasks) and offset_is_large(X):
            X = centred(X, one_group(X.shape[0]))[0]
        with self.stages("conjugate gradients") as stage:
            options = {"tol": tol, "max_iter": self.max_iter, "on_iteration": stage.iteration}
            results = [solve_conjugate_gradients(X, task, alpha, **options) for task in self.tasks]
        return self.linear_fit("cg", side_by_side(results), with_mean, **what_was_reached(results))

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


def side_by_side(results: Sequence[ConjugateGradientResult]) -> np.ndarray:
    return np.concatenate([result.weights for result in results], axis=1)


def what_was_reached(results: Sequence[ConjugateGradientResult]) -> dict[str, Any]:
    """Of the slowest of several outputs, as attributes of `SquaredLossFit`."""
    return {
        "n_iter": max(result.n_iter for result in results),
        "residual": max(result.residual for result in results),
        "converged": all(result.converged for result in results),
    }
