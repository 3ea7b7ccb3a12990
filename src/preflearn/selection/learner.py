"""What a learner supplies so that its rows can be held out without refitting it each time.

The learners of `preflearn.estimators` inherit from these classes; the hold-out asks for nothing else of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..comparisons import Comparisons, Groups
from ..core.problem import SquaredLossFit
from ..kernels.functions import Kernel
from ..losses.pairs import PairSet


class SquaredLossLearner:
    """A learner whose loss is a sum of squares over comparisons: held out by algebra."""

    solver: Any

    def _read_kernel(self) -> Kernel:
        """The kernel with its parameters, checked."""
        raise NotImplementedError

    def _reduced_set(self, X: Any, kernel: Kernel) -> Any:
        """The feature map of the reduced set, or None for the full kernel."""
        raise NotImplementedError

    def _compare(self, scores: np.ndarray, queries: Groups) -> list[Comparisons]:
        """One set of comparisons for all outputs, or one per output where they depend on the scores."""
        raise NotImplementedError

    def _comparisons_depend_on_scores(self) -> bool:
        """Whether other scores of the same rows are other comparisons, and not only other targets."""
        return False

    def _fit_tasks(
        self,
        X: Any,
        kernel: Kernel,
        tasks: list[Comparisons],
        alpha: float,
        single: bool,
        with_mean: bool = True,
    ) -> SquaredLossFit:
        """Train on validated items and comparisons, and keep the function that was learned."""
        raise NotImplementedError

    def _evaluate(self, X: Any, kernel: Kernel) -> Any:
        """The learned function on validated items, without an intercept."""
        raise NotImplementedError

    def _refuse_score_options(self) -> None:
        """Refuse options that learning from preferences alone would ignore."""
        raise NotImplementedError


class PathLearner:
    """A learner that trains faster along a path of alphas, each solution the start of the next."""

    def _read_options(self) -> None:
        """Refuse what is no option."""
        raise NotImplementedError

    def _read_kernel(self) -> Kernel:
        """The kernel with its parameters, checked."""
        raise NotImplementedError

    def _represent(self, X: Any, kernel: Kernel) -> Any:
        """Features of validated items, made once for all alphas."""
        raise NotImplementedError

    def _score_pairs(self, scores: np.ndarray, queries: Groups) -> list[PairSet]:
        """The pairs of each output."""
        raise NotImplementedError

    def _automatic_alphas(self, representation: Any, pairs: Sequence[PairSet]) -> np.ndarray:
        """The grid that "auto" stands for."""
        raise NotImplementedError

    def _predict_path(
        self, X: Any, kernel: Kernel, scores: np.ndarray, queries: Groups, new: Any, alphas: np.ndarray
    ) -> np.ndarray:
        """Predictions for new items by models trained on X at every alpha, shape (n_alphas, n_new, v)."""
        raise NotImplementedError

    def _function_path(self, representation: Any, pairs: PairSet, alphas: np.ndarray) -> np.ndarray:
        """Predictions for the represented items by models trained on pairs of them, shape (n_alphas, m)."""
        raise NotImplementedError
