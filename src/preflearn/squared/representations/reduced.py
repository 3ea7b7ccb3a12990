"""f = Σ β_r k(x_r, ·) over basis vectors R: (K_RM L K_MR + λ K_RR) β = K_RM b, an r × r matrix."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import clone

from ...comparisons import Comparisons
from ...numerics.linalg import solve_triangular_in_place
from ..conjugate_gradients import ConjugateGradientResult
from ..holdout.base import HoldOut
from ..holdout.feature import FeatureHoldOut
from ..problem import SquaredLossFit, solve_primal_path
from ..reduced_set import ReducedRows, solve_iteratively, solve_on_basis, solve_streamed, sums_may_do
from .base import Asked, Inputs, Representation, column_means
from .linear import what_was_reached

# Up to this size, a block K_MR is stored and used for every output; a larger one is formed again block by block.
_STORED_BYTES = 1 << 28


class ReducedSet(Representation):
    """The basis vectors of a `NystromMap`. O(m r² + r³); held-out basis vectors leave the model too."""

    needs = "basis vectors"

    def solve(self, alpha: Any, *, with_mean: bool = True) -> SquaredLossFit:
        factor = self.inputs.feature_map.factor_
        if factor.C.dtype == np.float32 and not factor.well_conditioned:
            return self._solve_in_double(alpha, with_mean)
        if self.inputs.block_bytes > _STORED_BYTES and all(
            task.has_half or task.factors_in_blocks for task in self.tasks
        ):
            return self._solve_in_blocks(alpha, with_mean)
        return self._solve_stored(alpha, with_mean)

    def features(self) -> np.ndarray:
        """Φ = K_MR C⁻ᵀ of all rows in double precision."""
        X, kernel = self.inputs.X, self.inputs.kernel
        return self.inputs.feature_map.map_items(X, kernel).astype(np.float64, copy=False)

    def hold_out(self, task: Comparisons, asked: Asked) -> HoldOut | None:
        return self.by_features(task, asked)

    def by_features(self, task: Comparisons, asked: Asked) -> FeatureHoldOut:
        """Any number of folds, at any alpha."""
        feature_map, leaves = self.inputs.feature_map, not self.inputs.basis_is_refitted
        return FeatureHoldOut(
            self.features(),
            task,
            intercept=asked.intercept,
            factor=feature_map.factor_ if leaves else None,
            basis_indices=feature_map.basis_indices_ if leaves else None,
        )

    def _solve_stored(self, alpha: Any, with_mean: bool) -> SquaredLossFit:
        feature_map, m = self.inputs.feature_map, self.inputs.n_rows
        r = feature_map.rank_
        with self.stages(f"kernel block {m} × {r}"):
            block = feature_map.kernel_with_basis(self.inputs.X, self.inputs.kernel)
        means = column_means(block) if with_mean else None
        with self.stages(f"primal system {r} × {r}"):
            coef = self._coefficients(block, alpha)
        return self._fit("primal", coef, None if means is None else means @ coef[feature_map.factor_.pivots])

    def _coefficients(self, block: np.ndarray, alpha: Any) -> np.ndarray:
        """β of all outputs: on sums of kernel values where rounding allows it, otherwise on the features.

        The features serve several alphas from one sum.

        The features take the memory of the block.
        """
        feature_map = self.inputs.feature_map
        factor = feature_map.factor_
        if np.size(alpha) == 1 and all(sums_may_do(factor, task, np.max(alpha)) for task in self.tasks):
            K_RR = block[feature_map.basis_indices_[factor.pivots]]  # basis vectors are training rows
            try:
                return factor.place(
                    self.each(lambda task, at: [solve_on_basis(block, factor, K_RR, task, *at)], alpha)
                )
            except np.linalg.LinAlgError:
                del K_RR
        features = solve_triangular_in_place(factor.C, block)
        return factor.expand(self.each(lambda task, alphas: solve_primal_path(features, task, alphas), alpha))

    def _solve_in_double(self, alpha: Any, with_mean: bool) -> SquaredLossFit:
        """Where single precision is not enough for the basis vectors; β is returned in single precision."""
        X, kernel, feature_map = self.inputs.X.astype(np.float64), self.inputs.kernel, self.inputs.feature_map
        double = clone(feature_map).set_params(basis=feature_map.basis_indices_, n_basis=None)
        inputs = Inputs(X, kernel, double.fit_items(X, kernel))
        fit = ReducedSet(inputs, self.tasks, self.stages).solve(alpha, with_mean=with_mean)
        assert fit.dual_coef is not None
        fit.dual_coef = fit.dual_coef.astype(np.float32)
        return fit

    def _solve_in_blocks(self, alpha: Any, with_mean: bool) -> SquaredLossFit:
        rows = self._rows()
        with self.stages(f"primal system {rows.width} × {rows.width} over {rows.n_rows} rows"):
            beta = self.each(lambda task, alphas: solve_streamed(rows, task, alphas), alpha)
        return self._on_all_basis_vectors("primal", rows, beta, with_mean)

    def _rows(self) -> ReducedRows:
        return ReducedRows(self.inputs.X, self.inputs.kernel, self.inputs.feature_map)

    def _on_all_basis_vectors(
        self, solver: str, rows: ReducedRows, beta: np.ndarray, with_mean: bool, **iterations: Any
    ) -> SquaredLossFit:
        """From the coefficients of the independent ones."""
        n_basis = self.inputs.feature_map.basis_indices_.shape[0]
        coef = np.zeros((n_basis, beta.shape[1]), dtype=beta.dtype)
        coef[rows.factor.pivots] = beta
        return self._fit(solver, coef, rows.mean() @ beta if with_mean else None, **iterations)

    def _fit(
        self, solver: str, coef: np.ndarray, means: np.ndarray | None, **iterations: Any
    ) -> SquaredLossFit:
        return SquaredLossFit(solver, None, coef, self.inputs.feature_map.basis_indices_, means, **iterations)


class IteratedReducedSet(ReducedSet):
    """The same by conjugate gradients, with K_MR formed again in every iteration; rows are held out by refitting."""

    def solve(self, alpha: Any, *, with_mean: bool = True) -> SquaredLossFit:
        rows = self._rows()
        name = f"conjugate gradients over {rows.n_rows} rows, {rows.width} basis vectors"
        with self.stages(name) as stage:
            tol = 1e-6 if self.tol is None else self.tol
            options: dict[str, Any] = {"tol": tol, "max_iter": self.max_iter}
            results: list[ConjugateGradientResult] = []

            def solve(task: Comparisons, alphas: list[float]) -> list[np.ndarray]:
                on = {"on_iteration": stage.iteration, **options}
                found = [solve_iteratively(rows, task, one, **on) for one in alphas]
                results.extend(found)
                return [result.weights for result in found]

            beta = self.each(solve, alpha)
        return self._on_all_basis_vectors("cg", rows, beta, with_mean, **what_was_reached(results))

    def hold_out(self, task: Comparisons, asked: Asked) -> None:
        return None
