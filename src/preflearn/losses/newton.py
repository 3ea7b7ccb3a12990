"""Truncated Newton for losses over pairs: minimise  J(w) = ℓ(Φ w) + alpha ‖w‖².

Each step solves  (Φᵀ A Φ + 2 alpha I) s = -∇J,  A = ∇²ℓ(p) at p = Φ w, by conjugate gradients that see A only through
products (O(m log m) for scored pairs) and Φ through Φ v and Φᵀ u, and goes along s by a line search that needs no
further product with Φ. For the squared hinge A = 2 L, with L the Laplacian of the pairs inside the margin: each step
is a RankRLS problem of those pairs.

**Preconditioner.** A graph with the same degrees d but partners drawn at random inside each query q has the Laplacian
diag(d) - d_q d_qᵀ / Σ d_q, so that Φᵀ A Φ is close to a weighted covariance of the features within queries, which a
sample of rows gives at the speed of a matrix product. At w = 0, where every pair is inside the margin, it is exact
for scores without ties, and the first step is the direct solution. It is built as soon as the products spent on
conjugate gradients would have paid for it: at once for narrow data.

**No direct step, even for narrow data.** Φᵀ A Φ itself takes one product with A for each of the n features, while
conjugate gradients are done after at most n of them; with the preconditioner they need 1 to 3 a step (20,000 rows of 2
to 200 features, accuracy 1e-3 and 1e-6), in the first step, the RankRLS problem, one.

**Accuracy of the result.** With u = ∇ℓ(p), the dual objective at u gives the duality gap  ‖∇J‖² / 4 alpha.

The hinge is not smooth. It is minimised in a form smoothed over a width ε that is lowered step by step; at any p, the
slopes β of the smoothed hinge are feasible for the dual of the hinge itself, which gives a duality gap at each iterate:
iteration stops when that gap, not a heuristic, is small enough. With many pairs the gap falls like ε².
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from numbers import Integral, Real
from typing import Any, Protocol

import numpy as np
import scipy.sparse as sp
from scipy.sparse.linalg import norm as sparse_norm

from ..comparisons.answers import Answers
from ..comparisons.grouping import Groups
from ..numerics.linalg import add_gram, cholesky_in_place, cholesky_solve, dot_without_blas
from ..numerics.threads import product_in_threads, transposed_product_in_threads
from .logistic import LogisticLoss
from .pairs import PairSet, RoundedHinge, SquaredHinge

# Rows of the sample for the preconditioner: at least this many, and this many per feature.
_SAMPLE_ROWS, _SAMPLE_PER_FEATURE = 10_000, 5
# Wider features get a diagonal preconditioner only.
_WIDEST_DENSE = 6_000
# How many times faster a matrix product runs per operation than a matrix-vector product.
_PRODUCT_SPEED = 8
_MAX_CG = 500
_ARMIJO = 1e-4
# Steps after the one that promised little, to let the duality gap confirm it.
_STEPS_FOR_GAP = 5
# The narrowest smoothing of the hinge: below it, differences of two squared hinges lose their precision.
_NARROWEST = 1e-7

_OVERFLOW = "The objective overflows: the features are too large for this loss. Scale them to about 1."

Report = Callable[[int, float], None]


class SmoothLoss(Protocol):
    """A loss of the predictions, as its quadratic model at one point."""

    gradient: np.ndarray
    degrees: np.ndarray

    def curvature(self, v: np.ndarray) -> np.ndarray: ...


@dataclass
class PairLossFit:
    """A minimiser.

    Attributes
    ----------
    weights : ndarray of shape (n,)
    objective : float
        J at the weights.
    gap : float
        Duality gap: the objective is at most this much above the minimum.
    gradient_norm : float
        ‖∇J‖, of the smoothed objective for the hinge.
    n_iter : int
        Newton steps.
    n_evaluations : int
        Evaluations of the loss with its gradient, and products with its Hessian.
    converged : bool
    """

    weights: np.ndarray
    objective: float
    gap: float
    gradient_norm: float
    n_iter: int
    n_evaluations: int
    converged: bool


class Features:
    """Φ and its products, in float64 to the outside; sparse and float32 features are stored as they are."""

    def __init__(self, matrix: Any):
        self.matrix = matrix
        self.n_rows, self.n_features = matrix.shape
        self.size = matrix.nnz if sp.issparse(matrix) else matrix.size
        # The transpose of a CSR matrix is a CSC matrix on the same memory.
        self._transpose = matrix.T
        self._squares: Any = None
        self._unit = 1.0
        self._lengths: np.ndarray | None = None

    def forward(self, w: np.ndarray) -> np.ndarray:
        """Φ w."""
        w = w.astype(self.matrix.dtype, copy=False)
        if sp.issparse(self.matrix):
            return np.asarray(self.matrix @ w, dtype=np.float64)
        return product_in_threads(self.matrix, w).astype(np.float64, copy=False)

    def backward(self, u: np.ndarray) -> np.ndarray:
        """Φᵀ u."""
        u = u.astype(self.matrix.dtype, copy=False)
        if sp.issparse(self.matrix) or not self.matrix.flags.c_contiguous or self.n_rows == 0:
            return np.asarray(self._transpose @ u, dtype=np.float64)
        return transposed_product_in_threads(self.matrix, u).astype(np.float64, copy=False)

    def rows(self, rows: np.ndarray) -> np.ndarray:
        """Some rows as a dense float64 array."""
        block = self.matrix[rows]
        return np.ascontiguousarray(block.toarray() if sp.issparse(block) else block, dtype=np.float64)

    def row_lengths(self) -> np.ndarray:
        """‖Φ_i‖ of each row."""
        if self._lengths is None:
            if sp.issparse(self.matrix):
                self._lengths = np.asarray(sparse_norm(self.matrix, axis=1), dtype=np.float64)
            else:
                squares = np.einsum("ij,ij->i", self.matrix, self.matrix, dtype=np.float64)
                self._lengths = np.sqrt(squares)
        return self._lengths

    def squared_sums(self, u: np.ndarray) -> np.ndarray:
        """Σ_i u_i Φ_ij² for each feature j, approximately."""
        if sp.issparse(self.matrix):
            # Single precision: the sums only scale a preconditioner, and the squares are kept.
            if self._squares is None:
                X = self.matrix
                self._unit = float(np.abs(X.data).max(initial=0.0)) or 1.0
                squares = np.square((X.data / self._unit).astype(np.float32))
                self._squares = sp.csr_matrix((squares, X.indices, X.indptr), shape=X.shape, copy=False).T
            scale = max(float(np.abs(u).max(initial=0.0)), np.finfo(float).tiny)
            sums = np.asarray(self._squares @ (u / scale).astype(np.float32), dtype=np.float64)
            return scale * self._unit**2 * sums
        sums = np.zeros(self.n_features)
        step = max(1, (1 << 20) // max(1, self.n_features))
        for start in range(0, self.n_rows, step):
            block = np.square(self.matrix[start : start + step], dtype=np.float64)
            sums += block.T @ u[start : start + step]
        return sums


class Preconditioner:
    """An approximate inverse of Φᵀ A Φ + 2 alpha I from the degrees of A alone.

    Diagonal until the products spent on conjugate gradients would have paid for the dense form, then the weighted
    covariance within queries on a sample of rows, factored.

    Parameters
    ----------
    shape : tuple
        Of Φ.
    size : int
        Stored entries of Φ.
    alpha : float
    """

    def __init__(self, shape: tuple[int, int], size: int, alpha: float):
        n_rows, n = shape
        self._alpha = alpha
        self._sample_size = min(n_rows, max(_SAMPLE_ROWS, _SAMPLE_PER_FEATURE * n))
        dense_work = self._sample_size * n * n + n**3 / 3
        product_work = 4.0 * max(size, 1) * _PRODUCT_SPEED
        self._patience = dense_work / product_work if n <= _WIDEST_DENSE else np.inf
        self._factor: np.ndarray | None = None
        self._diagonal: np.ndarray | None = None
        self._spent = 0

    def covariance(self, degrees: Any) -> np.ndarray:
        """Σ_q Σ_i d_i (φ_i - φ̄_q)(φ_i - φ̄_q)ᵀ over a sample, scaled up to all rows; the lower triangle suffices."""
        raise NotImplementedError

    def diagonal(self, degrees: Any) -> np.ndarray:
        """An estimate of the diagonal of Φᵀ A Φ."""
        raise NotImplementedError

    def spend(self, n_products: int) -> None:
        """Record products that were made, which decide when the dense form pays off."""
        self._spent += n_products

    def prepare(self, loss: SmoothLoss) -> None:
        """Adapt to the quadratic model of a loss."""
        self.update(loss.degrees)

    def update(self, degrees: Any) -> None:
        """Adapt to new degrees of A."""
        if self._spent + 1 >= self._patience:
            self._factor = self._factorise(self.covariance(degrees))
            self._spent = 0
        elif self._factor is None:
            self._diagonal = self.diagonal(degrees) + 2.0 * self._alpha

    def solve(self, r: np.ndarray) -> np.ndarray:
        """The approximate inverse times r."""
        if self._factor is not None:
            return cholesky_solve(self._factor, r)
        assert self._diagonal is not None
        return r / self._diagonal

    def _factorise(self, matrix: np.ndarray) -> np.ndarray:
        diagonal = np.einsum("ii->i", matrix)
        if not np.isfinite(diagonal).all():
            raise ValueError(_OVERFLOW)
        # The small term keeps rounding from making a singular covariance indefinite.
        n = diagonal.shape[0]
        diagonal += 2.0 * self._alpha + (1e-12 + 1e-14 * n) * float(diagonal.max(initial=0.0))
        return cholesky_in_place(matrix)


class _LocalPreconditioner(Preconditioner):
    def __init__(self, features: Features, groups: Groups, alpha: float):
        super().__init__((features.n_rows, features.n_features), features.size, alpha)
        self._features = features
        self._groups = groups
        self._sample: RowSample | None = None

    def covariance(self, degrees: np.ndarray) -> np.ndarray:
        if self._sample is None:
            self._sample = RowSample(self._features, self._groups, self._sample_size)
        return self._sample.covariance(degrees)

    def diagonal(self, degrees: np.ndarray) -> np.ndarray:
        total = max(float(degrees.sum()), np.finfo(float).tiny)
        centre = self._features.backward(degrees) ** 2 / total if self._groups.n_groups == 1 else 0.0
        squares = self._features.squared_sums(degrees)
        return np.maximum(squares - centre, 1e-3 * squares)


class RowSample:
    """Some rows in whole queries, to estimate the weighted covariance within queries of all rows."""

    def __init__(self, features: Features, groups: Groups, size: int):
        self._rows, self._starts = _sample_rows(groups, size)
        self._block = features.rows(self._rows)

    def covariance(self, degrees: np.ndarray) -> np.ndarray:
        """Σ_q Σ_i d_i (φ_i - φ̄_q)(φ_i - φ̄_q)ᵀ over the sample, scaled up to all rows; its lower triangle."""
        rows, starts, block = self._rows, self._starts, self._block
        d = degrees[rows]
        sums = np.maximum(np.add.reduceat(d, starts), np.finfo(float).tiny)
        means = np.add.reduceat(block * d[:, None], starts) / sums[:, None]
        centred = block - np.repeat(means, np.diff(np.append(starts, rows.shape[0])), axis=0)
        centred *= np.sqrt(d * (degrees.sum() / max(d.sum(), np.finfo(float).tiny)))[:, None]
        n = block.shape[1]
        return add_gram(np.zeros((n, n), order="F"), centred, centred)


def _sample_rows(groups: Groups, size: int) -> tuple[np.ndarray, np.ndarray]:
    """About ``size`` rows in whole queries drawn at random, and where each query starts among them."""
    rng = np.random.default_rng(0)
    if groups.n_groups == 1:
        drawn = np.arange(groups.n_rows)
        if size < groups.n_rows:
            drawn = np.sort(rng.choice(groups.n_rows, size, replace=False))
        return drawn, np.zeros(1, dtype=np.int64)
    queries = rng.permutation(groups.n_groups)
    sizes = groups.counts[queries]
    n_queries = int(np.searchsorted(np.cumsum(sizes), size)) + 1
    queries = queries[:n_queries]
    blocks = [groups.rows(q) for q in queries]
    # A long query is represented by some of its rows.
    blocks = [rng.choice(rows, size, replace=False) if rows.shape[0] > size else rows for rows in blocks]
    starts = np.cumsum([0] + [rows.shape[0] for rows in blocks[:-1]])
    return np.concatenate(blocks), starts


class PairObjective:
    """The loss over pairs of one data set, as Newton's method sees it.

    Predictions p = Φ w, their changes Φ s and gradients ∇ℓ(p) appear in the method only in sums, in products with
    numbers and with each other, and through `forward` and `backward`: a subclass may represent them as it likes, as
    long as gradient · change is ∇ℓ(p)ᵀ Φ s. `preflearn.distributed` leaves the rows where they are and represents
    Φ w by w and ∇ℓ by Φᵀ∇ℓ.

    Parameters
    ----------
    matrix : ndarray or CSR matrix of shape (m, n), or Features
        Φ.
    pairs : PairSet, or Answers for the logistic loss
    """

    def __init__(self, matrix: Any, pairs: PairSet | Answers):
        self._features = matrix if isinstance(matrix, Features) else Features(matrix)
        self._pairs = pairs
        self.n_features = self._features.n_features

    def zeros(self) -> np.ndarray:
        """The predictions of w = 0."""
        return np.zeros(self._features.n_rows)

    def forward(self, w: np.ndarray) -> np.ndarray:
        """Φ w."""
        return self._features.forward(w)

    def backward(self, u: np.ndarray) -> np.ndarray:
        """Φᵀ u."""
        return self._features.backward(u)

    def squared_hinge(self, p: np.ndarray) -> Any:
        """The sum of squared hinges at p."""
        assert not isinstance(self._pairs, Answers)
        return SquaredHinge(self._pairs, p)

    def rounded_hinge(self, p: np.ndarray, width: float) -> Any:
        """The sum of hinges smoothed over a width, at p."""
        assert not isinstance(self._pairs, Answers)
        return RoundedHinge(self._pairs, p, width)

    def logistic(self, p: np.ndarray) -> Any:
        """The logistic loss at p; the pairs must be `Answers`."""
        assert isinstance(self._pairs, Answers)
        return LogisticLoss(self._pairs, p)

    def rounding(self, weights: np.ndarray, loss: LogisticLoss, alpha: float) -> np.ndarray:
        """How far rounding may shift each entry of ∇J at these weights, shape (n,). O(m n)."""
        lengths = self._features.row_lengths()
        sizes = loss.rounding(lengths * float(np.linalg.norm(weights)))
        sums = np.sqrt(np.maximum(self._features.squared_sums(sizes), 0.0) * float(sizes.sum()))
        return np.finfo(float).eps * (sums + 2.0 * alpha * np.abs(weights))

    def longest_row(self) -> float:
        """max ‖Φ_i‖."""
        return float(self._features.row_lengths().max(initial=0.0))

    def preconditioner(self, alpha: float) -> Preconditioner:
        return _LocalPreconditioner(self._features, self._pairs.groups, alpha)


@dataclass
class _Point:
    """Weights, their predictions, and the smooth objective there."""

    weights: np.ndarray
    predictions: np.ndarray
    loss: SmoothLoss
    objective: float
    gradient: np.ndarray


class _Newton:
    """Newton steps on J; counts what it spends."""

    def __init__(
        self,
        objective: PairObjective,
        alpha: float,
        *,
        superlinear: bool,
        preconditioner: Preconditioner | None = None,
    ):
        self.objective = objective
        self.alpha = alpha
        self.superlinear = superlinear
        self.preconditioner = objective.preconditioner(alpha) if preconditioner is None else preconditioner
        self.n_evaluations = 0
        self._first_norm: float | None = None
        self._change: Any = None

    @property
    def last_change(self) -> float:
        """The largest change of a prediction in the last step; for predictions that are arrays."""
        return float(np.abs(self._change).max(initial=0.0))

    def point(self, weights: np.ndarray, predictions: np.ndarray, loss: Any) -> _Point:
        objective = loss.value + self.alpha * dot_without_blas(weights, weights)
        gradient = self.objective.backward(loss.gradient) + 2.0 * self.alpha * weights
        if not (np.isfinite(objective) and np.isfinite(gradient).all()):
            raise ValueError(_OVERFLOW)
        return _Point(weights, predictions, loss, objective, gradient)

    def step(self, at: _Point, loss_at: Callable[[np.ndarray], Any]) -> tuple[_Point, float]:
        """The next point and the decrease that the quadratic model predicted; the same point if nothing is gained."""
        self.preconditioner.prepare(at.loss)
        norm = float(np.linalg.norm(at.gradient))
        self._first_norm = norm if self._first_norm is None else max(norm, self._first_norm)
        # A tenth of the residual is a hundredth of the objective's distance to the minimum. More accuracy pays only
        # where the gradient itself has to vanish, as for a duality gap at a small alpha.
        accuracy = min(0.1, np.sqrt(norm / self._first_norm)) if self.superlinear else 0.1
        direction, change, promised = self._solve(at, accuracy)
        slope = dot_without_blas(at.gradient, direction)
        if not slope < 0:
            return at, 0.0
        length = 1.0
        for trial in range(30):
            weights = at.weights + length * direction
            predictions = at.predictions + (change if length == 1.0 else length * change)
            loss = loss_at(predictions)
            self.n_evaluations += 1
            objective = loss.value + self.alpha * dot_without_blas(weights, weights)
            new_slope = dot_without_blas(loss.gradient, change) + 2.0 * self.alpha * dot_without_blas(
                weights, direction
            )
            # The objective is convex: if it still decreases here, it has decreased all the way.
            if new_slope <= 0 or objective <= at.objective + _ARMIJO * length * slope:
                self._change = change if length == 1.0 else length * change
                return self.point(weights, predictions, loss), promised
            # The secant first; far away, where the slope hardly changes, by powers of ten.
            length *= 0.1 if trial > 2 else min(0.8, max(0.1, slope / (slope - new_slope)))
        return at, promised

    def step_to_width(self, at: _Point, loss_at: Callable[[np.ndarray], Any], width: float) -> _Point:
        """The point for a smaller width of the smoothed hinge: where its active pairs predict it, if that is better."""
        rounded: Any = at.loss
        model = rounded.narrowed(width)
        self.preconditioner.prepare(model)
        gradient = self.objective.backward(model.gradient) + 2.0 * self.alpha * at.weights
        direction, change, _ = self._solve(_Point(at.weights, at.predictions, model, np.nan, gradient), 0.01)
        here = self.point(at.weights, at.predictions, loss_at(at.predictions))
        predictions = at.predictions + change
        there = self.point(at.weights + direction, predictions, loss_at(predictions))
        self.n_evaluations += 2
        return there if there.objective < here.objective else here

    def _solve(self, at: _Point, accuracy: float) -> tuple[np.ndarray, np.ndarray, float]:
        """Preconditioned conjugate gradients: s, Φ s and the predicted decrease -(∇Jᵀs + sᵀHs / 2)."""
        objective, loss, precondition = self.objective, at.loss, self.preconditioner.solve
        s, change = np.zeros_like(at.weights), np.zeros_like(at.predictions)
        scaled = np.empty_like(change)
        residual = -at.gradient
        z = precondition(residual)
        direction = z.copy()
        rz = first = dot_without_blas(residual, z)
        n_products = 0
        while n_products < _MAX_CG and rz > accuracy**2 * first and rz > 0:
            along = objective.forward(direction)
            product = objective.backward(loss.curvature(along)) + 2.0 * self.alpha * direction
            n_products += 1
            curvature = dot_without_blas(direction, product)
            if not curvature > 0:  # only because of rounding
                break
            length = rz / curvature
            s += length * direction
            change += np.multiply(along, length, out=scaled)
            residual -= length * product
            z = precondition(residual)
            rz, last = dot_without_blas(residual, z), rz
            direction = z + (rz / last) * direction
        self.n_evaluations += n_products
        self.preconditioner.spend(n_products)
        return s, change, 0.5 * dot_without_blas(s, residual - at.gradient)


def check_newton_options(tol: Any, max_iter: Any) -> None:
    """Refuse a ``tol`` that is not an accuracy of the objective, or a ``max_iter`` that is not a number of steps."""
    if isinstance(tol, bool) or not isinstance(tol, Real) or not 0 < float(tol) < 1:
        raise ValueError(f"tol is the relative accuracy of the objective, between 0 and 1: found {tol!r}.")
    if isinstance(max_iter, bool) or not isinstance(max_iter, Integral) or max_iter < 1:
        raise ValueError(f"max_iter must be an int of at least 1: found {max_iter!r}.")


def minimise_squared_hinge(
    objective: PairObjective, alpha: float, *, tol: float = 1e-4, max_iter: int = 200,
    start: np.ndarray | None = None, report: Report | None = None,
) -> PairLossFit:  # fmt: skip
    """Minimise the sum of squared hinges over pairs + alpha ‖w‖² to a relative accuracy of the objective.

    Parameters
    ----------
    objective : PairObjective
        Features and pairs.
    alpha : float
    tol : float
        Stop when the duality gap is below this share of the objective; or five steps after one that was predicted to
        lower the objective by less than this share, when only rounding keeps the gap up.
    max_iter : int
        Newton steps.
    start : ndarray of shape (n,), optional
        Weights to start from.
    report : callable of (step, relative promised decrease), optional
    """
    newton = _Newton(objective, alpha, superlinear=False)
    return _minimise_smooth(newton, objective.squared_hinge, tol, max_iter, start, report)


def minimise_logistic(
    objective: PairObjective, alpha: float, *, tol: float = 1e-14, max_iter: int = 100,
    start: np.ndarray | None = None, report: Report | None = None, preconditioner: Preconditioner | None = None,
) -> PairLossFit:  # fmt: skip
    """Minimise the logistic loss of answers + alpha ‖w‖² to a relative accuracy of the objective.

    Parameters
    ----------
    objective : PairObjective
        Features and `Answers`.
    alpha, tol, max_iter, start, report
        As in `minimise_squared_hinge`. The last step changes no prediction by more than the square root of ``tol``,
        relative to the largest, and Newton's method squares that.
    preconditioner : Preconditioner, optional
        Replaces that of the objective: what is already known about the Hessian.
    """
    newton = _Newton(objective, alpha, superlinear=True, preconditioner=preconditioner)
    return _minimise_smooth(newton, objective.logistic, tol, max_iter, start, report, float(np.sqrt(tol)))


def _minimise_smooth(
    newton: _Newton,
    loss_at: Callable[[np.ndarray], Any],
    tol: float,
    max_iter: int,
    start: np.ndarray | None,
    report: Report | None,
    last_change: float | None = None,
) -> PairLossFit:
    """Newton steps until the duality gap is small; with ``last_change``, until a step predicts and changes little."""
    alpha = newton.alpha
    at = _starting_point(newton, newton.objective, loss_at, start)

    def at_rest(at: _Point) -> bool:
        gap = _gap(at, alpha)
        return gap == 0 or (last_change is None and gap <= tol * at.objective)

    converged, n_iter, last = False, 0, max_iter
    while not (converged or at_rest(at)) and n_iter < last:
        n_iter += 1
        new, promised = newton.step(at, loss_at)
        if new is at:  # rounding leaves nothing to gain
            converged = last_change is not None and promised <= tol * at.objective
            break
        at = new
        if report is not None:
            report(n_iter, promised / at.objective)
        if last_change is None:
            converged = _gap(at, alpha) <= tol * at.objective
            if promised <= tol * at.objective and not newton.superlinear:
                # The minimum is near enough; for the gap to show it, the gradient would have to vanish.
                newton.superlinear, last = True, min(max_iter, n_iter + _STEPS_FOR_GAP)
        else:
            near = promised <= tol * at.objective or _gap(at, alpha) <= tol * at.objective
            size = float(np.abs(at.predictions).max(initial=0.0))
            # Of what has next to no curvature, such as the mean of all strengths, steps are rounding errors.
            no_gain = promised <= last_change**3 * at.objective
            converged = near and (newton.last_change <= last_change * size or no_gain)
    norm = float(np.linalg.norm(at.gradient))
    return PairLossFit(
        at.weights,
        at.objective,
        _gap(at, alpha),
        norm,
        n_iter,
        newton.n_evaluations,
        bool(converged or at_rest(at)),
    )


def minimise_hinge(
    objective: PairObjective, alpha: float, *, tol: float = 1e-4, max_iter: int = 200,
    start: np.ndarray | None = None, report: Report | None = None,
) -> PairLossFit:  # fmt: skip
    """Minimise the sum of hinges over pairs + alpha ‖w‖² to a relative duality gap.

    Parameters
    ----------
    objective, alpha, max_iter, start
        As in `minimise_squared_hinge`.
    tol : float
        Stop when the duality gap is below this share of the objective.
    report : callable of (step, relative duality gap), optional
    """
    newton = _Newton(objective, alpha, superlinear=True)
    width = 1.0
    at = _starting_point(newton, objective, partial(objective.rounded_hinge, width=width), start)
    best, best_weights, bound, n_iter = np.inf, at.weights, -np.inf, 0
    while True:
        rounded: Any = at.loss
        norm_squared = dot_without_blas(at.weights, at.weights)
        primal = rounded.hinge + alpha * norm_squared
        dual_direction = at.gradient - 2.0 * alpha * at.weights  # Φᵀu
        bound = max(bound, rounded.slopes - dot_without_blas(dual_direction, dual_direction) / (4.0 * alpha))
        if primal < best:
            best, best_weights = primal, at.weights
        gap = max(best - bound, 0.0)
        if gap <= tol * best or n_iter == max_iter or width < _NARROWEST:
            break
        # The gap here has two parts: ‖∇J‖² / 4 alpha remains to be minimised, the rest comes from smoothing.
        rounding = rounded.hinge - rounded.slopes - dot_without_blas(rounded.gradient, at.predictions)
        if _gap(at, alpha) <= 0.5 * rounding:
            wanted = float(np.sqrt(0.3 * tol * best / rounding)) if rounding > 0 else 0.5
            width *= min(0.5, max(0.1, wanted))
            at = newton.step_to_width(at, partial(objective.rounded_hinge, width=width), width)
            continue
        n_iter += 1
        new, _ = newton.step(at, partial(objective.rounded_hinge, width=width))
        if new is at:
            break
        at = new
        if report is not None:
            report(n_iter, gap / best)
    norm = float(np.linalg.norm(at.gradient))
    converged = gap <= tol * best
    return PairLossFit(best_weights, best, gap, norm, n_iter, newton.n_evaluations, converged)


MINIMISERS: dict[str, Callable[..., PairLossFit]] = {
    "hinge": minimise_hinge,
    "squared_hinge": minimise_squared_hinge,
}


def _starting_point(
    newton: _Newton, objective: PairObjective, loss_at: Callable[[np.ndarray], Any], start: np.ndarray | None
) -> _Point:
    newton.n_evaluations += 1
    if start is None:
        predictions = objective.zeros()
        return newton.point(np.zeros(objective.n_features), predictions, loss_at(predictions))
    predictions = objective.forward(start)
    return newton.point(start.astype(np.float64), predictions, loss_at(predictions))


def _gap(at: _Point, alpha: float) -> float:
    """Duality gap of a smooth objective, ‖∇J‖² / 4 alpha."""
    return dot_without_blas(at.gradient, at.gradient) / (4.0 * alpha)


class ExactHessian(Preconditioner):
    """Factorises the Hessian at every step.

    Parameters
    ----------
    hessian : function
        From a loss to its dense, Fortran-ordered Hessian, which is overwritten.
    alpha : float
    """

    def __init__(self, hessian: Callable[[Any], np.ndarray], alpha: float):
        self._hessian, self._ridge = hessian, 2.0 * alpha
        self._exact: np.ndarray | None = None

    def prepare(self, loss: Any) -> None:
        H = self._hessian(loss)
        # Rounding must not make the direction in which nothing is known look negative.
        H[np.diag_indices_from(H)] += self._ridge + 1e-13 * float(H.diagonal().max(initial=0.0))
        self._exact = cholesky_in_place(H)

    def spend(self, n_products: int) -> None:
        pass

    def solve(self, r: np.ndarray) -> np.ndarray:
        assert self._exact is not None
        return cholesky_solve(self._exact, r)
