r"""Kernel expansions from sums of kernel values: quick trainings for the rounds of a learned metric.

With R the basis vectors, the sums over whole queries

    A = K_RM L K_MR,    c = K_RM b

add up block by block, and f(x) = k(x, R) β with

    (A + λ K_RR + ν I) β = c

costs m r² operations for all λ together and r³/3 for each, without features Φ = K_MR C⁻ᵀ and their eigendecomposition.
The price is the nugget ν, a small multiple of the rounding of A: directions of R that are lost in rounding are left out
instead of being amplified. Directions that are only weak, with an eigenvalue σ, are shrunk by ν / (σ + ν), which s
steps of refinement reduce to its power of s + 1, while rounding is amplified by s + 1 at most. On 40 rows with 15 basis
vectors predictions differ from those of `RankRLS` by less than 1e-6 · max(1, 1/λ) of the largest. Where a single model
is asked for, `basis_system` corrects that to full precision; here the score of held-out rows decides which of many is
kept.

Curves of single features (`curves`) are further columns of K_MR beside the kernel values, with a diagonal block in
K_RR.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from scipy.linalg import block_diag

from ..comparisons import Comparisons, Groups, encode_queries
from ..comparisons.queries import QueryComparisons
from ..kernels.blocks import KernelBlocks, expansion_gradient
from ..kernels.functions import Kernel, take_items
from ..kernels.maps import NystromMap
from ..numerics.linalg import cholesky_in_place, cholesky_solve
from ..numerics.threads import blas_at_rest, in_turns
from .moments import GlobalMoments, QueryMoments
from .problem import Spectrum, block_rows, primal_problem

# ν relative to the trace of A and to K_RR: the first that Cholesky accepts.
NUGGETS = (3e-11, 1e-9, 1e-7)
_REFINEMENTS = 3

Moments = QueryMoments | GlobalMoments


@dataclass(frozen=True)
class Expansion:
    """f(x) = k(x, R) β at several λ, with curves where there are any.

    Attributes
    ----------
    kernel : Kernel
        With its metric and its width as a number.
    basis : ndarray of shape (r, n)
        R.
    alphas : ndarray of shape (a,)
    betas : ndarray of shape (r + c, a)
        Those of the basis vectors before those of the curves.
    curves : Curves or None
    """

    kernel: Kernel
    basis: np.ndarray
    alphas: np.ndarray
    betas: np.ndarray
    curves: Curves | None = None

    def predict(self, X: np.ndarray) -> np.ndarray:
        """Scores at every λ, shape (a, m)."""
        out = np.empty((self.alphas.shape[0], X.shape[0]))
        step, values = block_rows(self.betas.shape[0]), _columns(self.kernel, self.basis, self.curves)

        def fill(start: int) -> None:
            out[:, start : start + step] = (values(X[start : start + step]) @ self.betas).T

        with blas_at_rest():
            in_turns(fill, [(start,) for start in range(0, X.shape[0], step)])
        return out

    def gradients(self, X: np.ndarray, place: int) -> np.ndarray:
        """∇f at one of the λ, shape (m, n)."""
        of_kernel, of_curves = np.split(self.betas[:, place], [self.basis.shape[0]])
        out = expansion_gradient(self.kernel, X, self.basis, of_kernel)
        return out if self.curves is None else out + self.curves.gradients(X, of_curves)


def kernel_moments(
    kernel: Kernel,
    basis: np.ndarray,
    read: Callable[[np.ndarray], np.ndarray],
    scores: np.ndarray,
    queries: Groups,
    rows: np.ndarray,
    *,
    is_global: bool = False,
    curves: Curves | None = None,
) -> Moments:
    """(K_RM L K_MR, K_RM b) over some rows, every query weighted by 1 / n_q; O(m r²) with blocks of memory.

    Parameters
    ----------
    kernel : Kernel
    basis : ndarray of shape (r, n)
    read : callable
        From row numbers, those of a query together, to the rows themselves.
    scores : ndarray of shape (m,)
    queries : Groups
        Of all rows.
    rows : ndarray of int
        Whole queries; any rows of a global ranking.
    is_global : bool, default=False
        Whether all rows, those of other calls included, form one ranking. A single query alone does not tell.
    curves : Curves or None
        Further columns of K_MR.
    """
    values = _columns(kernel, basis, curves)
    width = basis.shape[0] + (0 if curves is None else curves.size)
    blocks = _blocks_of_rows(rows, queries, block_rows(width), is_global)

    def moments(block: np.ndarray) -> Moments:
        columns, of_block = values(read(block)), scores[block, None]
        if is_global:
            return GlobalMoments.of(columns, of_block, "item")
        within = encode_queries(queries.codes[block], block.shape[0])
        return QueryMoments.of(columns, QueryComparisons(of_block, within, weighting="item"))

    total: Any = moments(blocks[0])
    for block in blocks[1:]:
        total.add(moments(block))
    return total


def solve_expansion(
    kernel: Kernel, basis: np.ndarray, moments: Moments, alphas: np.ndarray, curves: Curves | None = None
) -> Expansion:
    """β at every λ; the moments stay as they are. O(r³) for each."""
    A, c = _sums(moments)
    K_RR = kernel.matrix(basis)
    if curves is not None:
        K_RR = block_diag(K_RR, STIFFNESS * np.eye(curves.size))
    betas = [_solve(A, K_RR, c, float(alpha)) for alpha in alphas]
    return Expansion(kernel, basis, alphas, np.column_stack(betas), curves)


def _columns(kernel: Kernel, basis: np.ndarray, curves: Curves | None) -> Callable[[np.ndarray], np.ndarray]:
    """From rows to their kernel values, and beside them their curves."""
    values, r = KernelBlocks(kernel, basis), basis.shape[0]
    if curves is None:
        return values

    def both(rows: np.ndarray) -> np.ndarray:
        out = np.empty((rows.shape[0], r + curves.size))
        values(rows, out=out[:, :r])
        out[:, r:] = curves.values(rows)
        return out

    return both


def _sums(moments: Moments) -> tuple[np.ndarray, np.ndarray]:
    gram = moments.gram if isinstance(moments, QueryMoments) else moments.scatter
    return gram, moments.cross[:, 0]


def _solve(A: np.ndarray, K_RR: np.ndarray, c: np.ndarray, alpha: float) -> np.ndarray:
    M = A + alpha * K_RR
    size = float(np.trace(M))
    for nugget in NUGGETS:
        B = np.array(M, order="F")
        B[np.diag_indices_from(B)] += nugget * size
        try:
            factor = cholesky_in_place(B)
        except np.linalg.LinAlgError:
            continue
        return refined(partial(cholesky_solve, factor), M.__matmul__, c[:, None])[:, 0]
    return np.zeros(c.shape)  # only rounding is left: a constant


def refined(solve: Callable[[Any], Any], apply: Callable[[Any], Any], c: Any) -> Any:
    """B⁻¹ c from solutions of a system that is B plus a nugget; arrays of the host or of a device."""
    found = solve(c)
    for _ in range(_REFINEMENTS):
        found = found + solve(c - apply(found))
    return found


def _blocks_of_rows(rows: np.ndarray, queries: Groups, step: int, is_global: bool) -> list[np.ndarray]:
    """The rows in blocks of whole queries of about ``step`` rows; of a global ranking any rows."""
    if is_global:
        return [rows[start : start + step] for start in range(0, rows.shape[0], step)]
    rows = rows[np.argsort(queries.codes[rows], kind="stable")]
    starts = np.flatnonzero(np.r_[True, np.diff(queries.codes[rows]) != 0])
    ends = np.append(starts[1:], rows.shape[0])
    blocks, first = [], 0
    for start, end in zip(starts, ends, strict=True):
        if end - first > step and start > first:
            blocks.append(rows[first:start])
            first = int(start)
    blocks.append(rows[first:])
    return blocks


# ----------------------------------------------------------------
# A curve for each of some features, beside a kernel on all of them: f(x) = k(x, R) β + Σ_j g_j(x_j).
#
# A kernel on distances has to learn what a single feature does again for every combination of the others. Curves take
# that over, so that the kernel is left with what features do together:
#
#     g_j(x) = s_j Σ_k γ_jk exp(-(x - z_jk)² / 2 h_j²)
#
# with knots z_jk at quantiles of the feature. The factors s_j are those of the learned metric: a feature that matters
# little has a flat curve, and one that was forgotten has none. The penalty of γ is `STIFFNESS` times that of the
# kernel.


# Knots of a curve, at these shares of the rows, and the width of a bump in distances between knots.
_SHARES = np.linspace(0.01, 0.99, 10)
_WIDTH = 1.5
# A bump is at least this wide, relative to the range of the knots over their number: values may be tied.
_LEAST_WIDTH = 0.5
# Features that have a curve, at most: those with the largest factors.
_MOST = 30
# Penalty of a squared coefficient of a curve, where that of a basis vector is its kernel value.
STIFFNESS = 40.0


@dataclass(frozen=True)
class Curves:
    """Bumps along p features.

    Attributes
    ----------
    features : ndarray of int of shape (p,)
    knots : ndarray of shape (p, k)
        z.
    widths : ndarray of shape (p,)
        h.
    factors : ndarray of shape (p,)
        s.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.random.default_rng(0).normal(size=(100, 3))
    >>> curves = Curves.along(X, np.array([1.0, 0.0, 0.5]))
    >>> curves.features
    array([0, 2])
    >>> curves.values(X).shape
    (100, 20)
    """

    features: np.ndarray
    knots: np.ndarray
    widths: np.ndarray
    factors: np.ndarray

    @classmethod
    def along(cls, X: np.ndarray, factors: np.ndarray) -> Curves:
        """Curves of the features with the largest factors, knots at the quantiles of some rows.

        Parameters
        ----------
        X : ndarray of shape (m, n)
        factors : ndarray of shape (n,)
            Not negative; 0 where a feature is to have no curve.
        """
        features = np.sort(np.argsort(-factors, kind="stable")[:_MOST])
        features = features[factors[features] > 0]
        knots = np.quantile(X[:, features], _SHARES, axis=0).T.reshape(features.shape[0], _SHARES.shape[0])
        spans = knots[:, -1] - knots[:, 0]
        varies = spans > 0  # a feature with one value for nearly all rows has no curve
        features, knots, spans = features[varies], knots[varies], spans[varies]
        widths = np.maximum(
            _WIDTH * np.median(np.diff(knots, axis=1), axis=1), _LEAST_WIDTH * spans / _SHARES.shape[0]
        )
        return cls(features, knots, widths, factors[features])

    @property
    def size(self) -> int:
        """The number of bumps, p k."""
        return self.knots.size

    def values(self, X: np.ndarray) -> np.ndarray:
        """The bumps at some rows, shape (m, p k)."""
        u = self._distances(X)
        u *= u
        u *= -0.5
        np.exp(u, out=u)
        u *= self.factors[:, None]
        return u.reshape(X.shape[0], self.size)

    def gradients(self, X: np.ndarray, coefficients: np.ndarray) -> np.ndarray:
        """∇ Σ_j g_j at some rows, shape (m, n)."""
        u = self._distances(X)
        slopes = np.exp(-0.5 * u * u) * u * coefficients.reshape(self.knots.shape)
        out = np.zeros(X.shape)
        out[:, self.features] = slopes.sum(axis=2) * (-self.factors / self.widths)
        return out

    def _distances(self, X: np.ndarray) -> np.ndarray:
        return (X[:, self.features, None] - self.knots) / self.widths[:, None]


# ----------------------------------------------------------------
# A kernel that learns its metric: train, average the gradients of f, train again with the metric that they give.
#
# For a kernel on distances, k(x, z) = φ(‖(x - z) S‖), the average gradient outer product of the trained f,
#
#     M = mean over rows of ∇f(x) ∇f(x)ᵀ,    S ← M^(1/2) (diagonal: S_j ← root mean square of ∂f/∂x_j),
#
# stretches the directions that f uses and shrinks those that it ignores. Gradients of a ranker do not see what is
# constant inside a query, so features that only tell queries apart are forgotten.
#
# The metric is learned from labels. A model that is to predict held-out rows must not have seen theirs, so every fold
# has a metric of its own: `TrainingSet` carries it from round to round.
#
# Reference: Radhakrishnan, Beaglehole, Pandit and Belkin, "Mechanism for feature learning in neural networks and
# backpropagation-free machine learning models", Science 383 (2024), for regression and classification.


# Gradients are averaged over at most this many rows.
GRADIENT_ROWS = 2000
# Directions of a full metric that are shorter than this, relative to the longest, are left out.
_SHORTEST_DIRECTION = 1e-4


@dataclass(frozen=True)
class MetricModel:
    """A reduced set trained at every alpha with one metric.

    Attributes
    ----------
    kernel : Kernel
        With its metric and its width as a number.
    features : NystromMap
    spectrum : Spectrum
    """

    kernel: Kernel
    features: NystromMap
    spectrum: Spectrum

    @property
    def basis(self) -> Any:
        """The basis vectors."""
        return self.features.basis_

    @property
    def largest_eigenvalue(self) -> float:
        return float(self.spectrum.values[-1])

    def predict(self, X: Any, alphas: Iterable[float]) -> np.ndarray:
        """Scores of validated items at every alpha, shape (a, m, v)."""
        weights = self.spectrum.path([float(alpha) for alpha in alphas])
        n_alphas, rank, v = weights.shape
        columns = weights.transpose(1, 0, 2).reshape(rank, n_alphas * v)  # one product for all of them
        scores = self.features.map_items(X, self.kernel) @ columns
        return scores.reshape(-1, n_alphas, v).transpose(1, 0, 2)

    def coefficients(self, alpha: float) -> np.ndarray:
        """Of the basis vectors, shape (r, v)."""
        return self.features.expand(self.spectrum.path([alpha])[0])

    def gradients(self, X: Any, alpha: float) -> np.ndarray:
        """∇f at validated items, shape (m, n, v)."""
        return expansion_gradient(self.kernel, X, self.basis, self.coefficients(alpha))


@dataclass
class TrainingSet:
    """Rows to train on, and the metric learned on them so far.

    Attributes
    ----------
    rows : ndarray of shape (m,)
        Row numbers of the training items.
    basis : ndarray of shape (r,)
        Row numbers of the basis vectors.
    task : Comparisons
        Of the rows, in their order.
    metric : ndarray of shape (n,) or (n, k), or None
        None before the first round: the features as they are.
    """

    rows: np.ndarray
    basis: np.ndarray
    task: Comparisons
    metric: np.ndarray | None = None

    def train(self, X: Any, kernel: Kernel) -> MetricModel:
        """One training with the present metric; all alphas follow from it. O(m r²)."""
        mine = take_items(X, self.rows)
        seen = kernel.with_metric(self.metric).fitted_to(mine)
        features = NystromMap().fit_items(take_items(X, self.basis), seen)
        Phi = features.map_items(mine, seen).astype(np.float64, copy=False)
        return MetricModel(seen, features, primal_problem(Phi, self.task).spectrum())

    def update_metric(self, X: Any, model: MetricModel, alpha: float, *, full: bool) -> bool:
        """Take the metric from the gradients of a model; False where they are all zero and it stays as it is."""
        rows = self.rows
        if rows.shape[0] > GRADIENT_ROWS:
            rows = np.sort(np.random.default_rng(0).choice(rows, GRADIENT_ROWS, replace=False))
        metric = average_gradient_metric(model.gradients(take_items(X, rows), alpha), full=full)
        if metric is not None:
            self.metric = metric
        return metric is not None


def average_gradient_metric(gradients: np.ndarray, *, full: bool) -> np.ndarray | None:
    """S with S Sᵀ = mean ∇f ∇fᵀ, scaled to a largest entry of 1; None where all gradients are zero.

    Parameters
    ----------
    gradients : ndarray of shape (m, n, v)
        The mean is taken over rows and outputs.
    full : bool
        A matrix of shape (n, k), its columns the k longest principal directions, instead of one factor per feature.

    Examples
    --------
    >>> import numpy as np
    >>> average_gradient_metric(np.array([[[3.0], [0.0]], [[3.0], [4.0]]]), full=False).round(3)
    array([1.   , 0.943])
    """
    m, n, v = gradients.shape
    rows = gradients.transpose(0, 2, 1).reshape(m * v, n)
    largest = float(np.abs(rows).max(initial=0.0))
    if largest == 0.0 or not np.isfinite(largest):
        return None
    rows = rows / largest  # squares of tiny gradients must not underflow
    if not full:
        S = np.sqrt(np.einsum("ij,ij->j", rows, rows) / rows.shape[0])
        return S / S.max()
    _, lengths, directions = np.linalg.svd(rows, full_matrices=False) if m * v < n else _principal(rows)
    kept = lengths > _SHORTEST_DIRECTION * lengths[0]
    S = (directions[kept] * lengths[kept, None]).T
    return S / np.abs(S).max()


def _principal(rows: np.ndarray) -> tuple[None, np.ndarray, np.ndarray]:
    """Lengths and directions of the singular vectors, longest first, from the n × n product."""
    values, vectors = np.linalg.eigh(rows.T @ rows)
    return None, np.sqrt(np.maximum(values[::-1], 0.0)), vectors[:, ::-1].T
