"""Ways to represent f: each is built once from items and comparisons, then solved and held out at any alpha.

============  ==============================  ==============================  ===============================
class         f                               needs                           square matrix
============  ==============================  ==============================  ===============================
Linear        wᵀ x                            linear kernel                   n × n
FullKernel    Σ a_i k(x_i, ·)                 any kernel                      m × m
ReducedSet    Σ β_r k(x_r, ·)                 basis vectors                   r × r
PairSpace     Σ c_k (k(x_h, ·) - k(x_j, ·))   preferences                     l × l
Iterated      wᵀ x                            linear kernel                   none: conjugate gradients
============  ==============================  ==============================  ===============================

`squared.devices.representation` has the same for arrays on devices; `squared.routes.plan` decides which one is used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.base import clone

from ..comparisons import Comparisons, PreferenceComparisons, centred, offset_is_large, one_group
from ..numerics.linalg import factor_kernel, in_row_span, solve_triangular_in_place
from ..numerics.memory import require_memory
from ..numerics.namespace import is_device_array
from ..progress import Stages
from .base import Asked, Inputs, Representation, column_means
from .conjugate_gradients import ConjugateGradientResult, solve_conjugate_gradients
from .holdout.base import HoldOut
from .holdout.dual import DualHoldOut
from .holdout.feature import FeatureHoldOut
from .holdout.krylov import KrylovHoldOut
from .holdout.pair import (
    PairsByRows,
    PairSystem,
    PreferenceHoldOut,
    dual_pair_system,
    feature_pair_system,
    kernel_of_differences,
    kernel_of_rows,
    linear_kernel_of_differences,
    path_pair_system,
    regression_over_pairs,
    suits_pair_space,
    weighted_differences,
)
from .problem import SquaredLossFit, dual_problem, refuse_indefinite, solve_primal_path, warn_if_collinear
from .reduced_set import ReducedRows, solve_iteratively, solve_on_basis, solve_streamed, sums_may_do
from .routes import HELD_OUT_TOLERANCE, TRAINING_TOLERANCE


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
        return self.linear_fit("cg", weights, with_mean, **slowest_of(results))

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


def slowest_of(results: Sequence[ConjugateGradientResult]) -> dict[str, Any]:
    """Of the slowest of several outputs, as attributes of `SquaredLossFit`."""
    return {
        "n_iter": max(result.n_iter for result in results),
        "residual": max(result.residual for result in results),
        "converged": all(result.converged for result in results),
    }


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
        return self._on_all_basis_vectors("cg", rows, beta, with_mean, **slowest_of(results))

    def hold_out(self, task: Comparisons, asked: Asked) -> None:
        return None


class PairSpace(Representation):
    """Preferences whose weights suit one matrix. O(l³), regardless of the number of rows.

    Parameters
    ----------
    tasks : the preferences
    by_rows : Linear or FullKernel
        The same problem in the space of the rows, for an alpha at which the differences are not precise enough.
    """

    needs = "preferences whose weights are of one order of magnitude"

    def __init__(self, inputs: Inputs, tasks: Any, stages: Any, *, by_rows: Linear | FullKernel):
        super().__init__(inputs, tasks, stages)
        self.by_rows = by_rows

    def solve(self, alpha: float, *, with_mean: bool = True) -> SquaredLossFit:
        if not with_mean:  # which would need the kernel of all rows
            try:
                return self._solve_differences(alpha)
            except np.linalg.LinAlgError:
                self.stages.note(
                    "not precise enough at this alpha: using the rows instead of their differences"
                )
        return self.by_rows.solve(alpha, with_mean=with_mean)

    def hold_out_preferences(self, task: PreferenceComparisons, asked: Asked) -> PreferenceHoldOut:
        n_pairs = task.pairs.shape[0]
        require_memory(2 * 8 * n_pairs**2, f"held-out preferences of {n_pairs} pairs")
        if self.inputs.kernel.is_linear:
            K = linear_kernel_of_differences(self.inputs.X, task)
        else:
            K = kernel_of_differences(self.inputs.kernel_matrix(), task)
        regression = DualHoldOut(
            K,
            regression_over_pairs(task),
            many_alphas=asked.many_alphas,
            fallback=lambda _: PairsByRows(self.by_rows.by_features(task, asked)),
        )
        return PreferenceHoldOut(regression, task)

    def _solve_differences(self, alpha: float) -> SquaredLossFit:
        """A regression over the preferences.

        Raises
        ------
        numpy.linalg.LinAlgError
            If the differences would have fewer than six correct digits.
        """
        X, kernel, (task,) = self.inputs.X, self.inputs.kernel, self.tasks
        assert isinstance(task, PreferenceComparisons)
        n_pairs, m = task.pairs.shape[0], task.n_rows
        dtype = np.float32 if getattr(X, "dtype", None) == np.float32 else np.float64
        beside = m * (m + n_pairs)
        if kernel.is_linear:
            beside = 0 if sp.issparse(X) else n_pairs * X.shape[1]
        require_memory(8 * (n_pairs**2 + beside), f"training on {n_pairs} preferences")
        differences = None
        with self.stages(f"kernel of differences {n_pairs} × {n_pairs}"):
            if kernel.is_linear:
                differences = weighted_differences(X, task)
                K = kernel_of_rows(differences)
            else:
                K = kernel_of_differences(kernel.matrix(X).astype(np.float64, copy=False), task)
        with self.stages("factorisation and solution"):
            c = dual_problem(K, regression_over_pairs(task), alpha).solve(alpha, strict=True)
        if differences is not None:
            return self.linear_fit("dual", np.asarray(differences.T @ c, dtype=dtype), with_mean=False)
        coef = np.asarray(task.incidence() @ c, dtype=dtype)
        return SquaredLossFit("dual", None, coef, np.arange(m), None)


def represent(
    inputs: Inputs,
    tasks: Sequence[Comparisons],
    route: str,
    *,
    stages: Stages,
    solver: str,
    **iterations: Any,
) -> Representation:
    """The representation of a route of `squared.routes`.

    Parameters
    ----------
    route : {"primal", "dual", "pairs", "cg"}
        What `plan` has chosen.
    solver : str
        What was asked for.
    **iterations
        ``tol`` and ``max_iter``.
    """
    if is_device_array(inputs.X):
        from .devices.representation import DeviceRows

        return DeviceRows(inputs, tasks, stages, solver=solver, in_features=route == "primal", **iterations)
    if inputs.feature_map is not None:
        return (IteratedReducedSet if route == "cg" else ReducedSet)(inputs, tasks, stages, **iterations)
    if route == "cg":
        return Iterated(inputs, tasks, stages, **iterations)
    in_features = route == "primal"
    if route == "pairs":
        in_features = solver != "dual" and inputs.workload(tasks, "train").smaller_square == "primal"
    by_rows = (Linear if in_features else FullKernel)(inputs, tasks, stages)
    return PairSpace(inputs, tasks, stages, by_rows=by_rows) if route == "pairs" else by_rows
