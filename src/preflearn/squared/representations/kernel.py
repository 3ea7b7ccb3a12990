"""f = Σ a_i k(x_i, ·), a = S x with (S K S + λ I) x = t: an m × m matrix."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp

from ...comparisons import Comparisons, centred, one_group
from ...numerics.linalg import factor_kernel, in_row_span
from ...numerics.memory import require_memory
from ..holdout.base import HoldOut
from ..holdout.dual import DualHoldOut
from ..holdout.feature import FeatureHoldOut
from ..holdout.pair import PairSystem, dual_pair_system, path_pair_system
from ..problem import SquaredLossFit, dual_problem, refuse_indefinite, solve_primal_path, warn_if_collinear
from .base import Asked, Representation, column_means
from .linear import feature_hold_out, pairs_by_features


class FullKernel(Representation):
    """All rows are basis vectors. O(m³); without a symmetric half in closed form, through a factor K = F Fᵀ."""

    needs = "a kernel matrix that fits in memory"

    def solve(self, alpha: Any, *, with_mean: bool = True) -> SquaredLossFit:
        X, kernel, m = self.inputs.X, self.inputs.kernel, self.inputs.n_rows
        itemsize = 4 if getattr(X, "dtype", None) == np.float32 else 8
        # K itself; a second matrix where K is still needed after the first output; three where K is factored.
        several = len(self.tasks) > 1 or np.size(alpha) > 1
        n_matrices = 3 if not self.tasks[0].has_half else 1 + several
        require_memory(n_matrices * m * m * itemsize, f"training with the full kernel of {m} rows")
        rows = _without_offsets(X, self.tasks[0]) if kernel.is_linear else X
        with self.stages(f"kernel matrix {m} × {m}"):
            K = self._matrix(rows)
        means = column_means(K) if with_mean and not kernel.is_linear else None
        with self.stages("factorisation and solution"):
            coef = self._coefficients(K, rows, alpha)
        if coef is None:
            return self._solve_in_span(alpha, with_mean)
        if kernel.is_linear:
            return self.linear_fit("dual", np.asarray(rows.T @ coef), with_mean)
        return SquaredLossFit("dual", None, coef, np.arange(m), None if means is None else means @ coef)

    def hold_out(self, task: Comparisons, asked: Asked) -> HoldOut:
        m = self.inputs.n_rows
        # A tridiagonal form takes the memory of the kernel; a factor, or inverses for two sizes of fold, need two more.
        n_matrices = 1.25 if asked.many_alphas and task.has_half else 3.0
        require_memory(int(n_matrices * 8 * m**2), f"exact cross-validation with the full kernel of {m} rows")
        if not task.has_half:
            return self.by_features(task, asked)
        K, means = self._kernel_and_means(task, asked)
        return DualHoldOut(
            K,
            task,
            intercept=asked.intercept,
            many_alphas=asked.many_alphas,
            kernel_means=means,
            fallback=lambda comparisons: self.by_features(comparisons, asked),
        )

    def by_features(self, task: Comparisons, asked: Asked) -> FeatureHoldOut:
        """By features of the kernel, which stay accurate at any alpha: slower than the kernel itself."""
        if not self.inputs.is_dense_linear:
            F = np.ascontiguousarray(factor_kernel(self.inputs.kernel_matrix()).F)
            return FeatureHoldOut(F, task, intercept=asked.intercept)
        X = self.inputs.double()
        seen = centred(X, one_group(X.shape[0]))[0] if task.ignores_constants else X
        warn_if_collinear(np.linalg.svd(seen, compute_uv=False), np.sqrt(asked.least_alpha()))
        return feature_hold_out(X if X.shape[1] <= X.shape[0] else in_row_span(X)[0], task, asked)

    def pair_systems(
        self, task: Comparisons, alphas: Sequence[float], asked: Asked, routine: Callable[[bool], Any]
    ) -> Iterator[PairSystem | None]:
        """Factorised for one alpha, or (``asked.many_alphas``) once for all of them."""
        m = self.inputs.n_rows
        if asked.many_alphas:
            require_memory(int(3.25 * 8 * m**2), f"leave-pair-out with the full kernel of {m} rows")
        stable: FeatureHoldOut | None = None
        for alpha in alphas:
            try:
                if not asked.many_alphas:
                    K, means = self._kernel_and_means(task, asked)
                    yield dual_pair_system(K, task, alpha, means)
                    continue
                source = routine(True)
                dual = isinstance(source, DualHoldOut)
                yield path_pair_system(source, alpha) if dual else pairs_by_features(source, alpha)
            except np.linalg.LinAlgError:
                stable = stable or self.by_features(task, asked)
                yield pairs_by_features(stable, alpha)

    def coefficients(self, alphas: Sequence[float]) -> np.ndarray:
        """The dual coefficients of the only task at every alpha, shape (n_alphas, m, v), from a precomputed kernel."""
        K, (task,) = self.inputs.double(), self.tasks
        if task.has_half:
            found = [self._coefficients(K.copy(), K, alpha) for alpha in alphas]
            return np.stack(found)  # type: ignore[arg-type]
        factor = factor_kernel(K)
        F = np.ascontiguousarray(factor.F)
        return np.stack([factor.expand(w) for w in solve_primal_path(F, task, alphas)])

    def _matrix(self, rows: Any) -> np.ndarray:
        """A fresh kernel matrix in the type of the rows."""
        return rows.copy() if self.inputs.kernel.is_precomputed else self.inputs.kernel.matrix(rows)

    def _kernel_and_means(self, task: Comparisons, asked: Asked) -> tuple[np.ndarray, np.ndarray | None]:
        """K, and its means over the rows of each query where they do not follow from it.

        A linear kernel of dense features is formed from rows minus the mean of their query: S K S is the same, and no
        precision is lost to what the rows have in common.
        """
        anchors = task.anchors()
        if not self.inputs.is_dense_linear or anchors is None:
            return self.inputs.kernel_matrix(), None
        X, means = centred(self.inputs.double(), anchors)
        if asked.intercept or not asked.level:
            means[...] = 0.0
        return self.inputs.kernel.matrix(X), means @ X.T

    def _coefficients(self, K: np.ndarray, rows: Any, alpha: Any) -> np.ndarray | None:
        """The dual coefficients; None where K is not precise enough and the columns of X have to be used instead."""
        tasks, linear = self.tasks, self.inputs.kernel.is_linear
        if not tasks[0].has_half:
            if linear and not K.any():
                return np.zeros((K.shape[0], sum(task.n_outputs for task in tasks)), dtype=K.dtype)
            return self._through_factor(K, alpha)

        def solve(task: Comparisons, alphas: list[float]) -> list[np.ndarray]:
            last = [task is tasks[-1] and one == alphas[-1] for one in alphas]
            return [
                dual_problem(K if done else K.copy(), task, one).solve(one, strict=True)
                for one, done in zip(alphas, last, strict=True)
            ]

        try:
            return self.each(solve, alpha)
        except np.linalg.LinAlgError:
            if self.inputs.is_dense_linear:
                return None
            values = np.linalg.eigvalsh(self._matrix(rows))
            refuse_indefinite(float(values[0]), float(values[-1]))
            return self._through_factor(self._matrix(rows), alpha)

    def _through_factor(self, K: np.ndarray, alpha: Any) -> np.ndarray:
        """Without a symmetric half: K = F Fᵀ, the primal form on F, and a = C⁻ᵀ w on the pivots of the factor.

        The factor takes the memory of K.
        """
        factor = factor_kernel(K, overwrite=True)
        F = np.ascontiguousarray(factor.F)
        return factor.expand(self.each(lambda task, alphas: solve_primal_path(F, task, alphas), alpha))

    def _solve_in_span(self, alpha: Any, with_mean: bool) -> SquaredLossFit:
        """The linear kernel where K is not precise enough: in an orthonormal basis Q of the rows, w = Q v."""
        X = _without_offsets(self.inputs.X, self.tasks[0])
        warn_if_collinear(np.linalg.svd(X, compute_uv=False), np.sqrt(np.min(alpha)))
        rows, Q = in_row_span(X)
        weights = Q @ self.each(lambda task, alphas: solve_primal_path(rows, task, alphas), alpha)
        return self.linear_fit("dual", weights, with_mean)


def _without_offsets(X: Any, task: Comparisons) -> Any:
    """Dense rows minus what those of a query have in common, where the comparisons do not see it."""
    if sp.issparse(X) or not task.ignores_constants:
        return X
    return centred(X, task.queries or one_group(X.shape[0]))[0]
