"""f(x) = wᵀ x with (Xᵀ L X + λ I) w = Xᵀ b: an n × n matrix."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import scipy.sparse as sp

from ...comparisons import Comparisons, centred, offset_is_large, one_group
from ..holdout.feature import FeatureHoldOut
from ..holdout.pair import PairSystem, feature_pair_system
from ..problem import SquaredLossFit, solve_primal
from .base import Asked, Representation


class Linear(Representation):
    """The features themselves, dense or sparse. O(m n² + n³) for a training, a path and a hold-out."""

    needs = "the linear kernel"

    def solve(self, alpha: float, *, with_mean: bool = True) -> SquaredLossFit:
        X = self.inputs.X
        with self.stages(f"primal system {X.shape[1]} × {X.shape[1]}"):
            weights = self.each(lambda task: solve_primal(X, task, alpha))
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
