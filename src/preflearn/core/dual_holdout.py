r"""Hold-out for the full kernel, through R = (G + λ I)⁻¹ with G = S K S.

When comparisons leave, L' = S (I - Ñ diag(e) Ñᵀ) S and b' = S τ with τ = t - δ. The dual variables of the rest are
x = R (τ + Ñ u), where

    [(I - e) / e + λ Ñᵀ R Ñ] u = Ñᵀ (τ - λ R τ)

has no cancellation at small λ. The predictions are f' = K S x. From S K S = G follows S f' = G x, so f' is
S⁺ (I - λ R)(τ + Ñ u) plus one constant per query, which the means of K over the rows of a query supply: no product of
the size of K with another matrix is needed after the decomposition.

When whole queries leave, Ñ is the identity on their rows U and e = 1; then Ñ u - δ = -(R_UU)⁻¹ x_U, where x = R t
are the dual variables of the model trained on all rows. For rows of a global ranking the same holds with C R C in
place of R, C being the centring.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import scipy.linalg as la

from ..comparisons import Comparisons, HalfRemoval
from ..numerics.linalg import inverse_in_place
from .holdout import HoldOut
from .problem import RidgeProblem, Spectrum


class DualHoldOut(HoldOut):
    """Exact hold-out with the full kernel.

    Parameters
    ----------
    K : ndarray of shape (m, m), C-contiguous
        The kernel matrix; overwritten.
    comparisons : Comparisons
        With a symmetric half in closed form.
    intercept : bool
        Whether an unregularised intercept belongs to the predictions.
    many_alphas : bool
        Factorise by an eigen decomposition, which serves every alpha; otherwise by Cholesky for each alpha
        that is asked
        for first, which is about ten times cheaper.

    Notes
    -----
    O(m³) once, then O(|H|² m + |H|³) for a fold and an alpha. At most three m × m arrays, the decomposition's workspace
    included.
    """

    def __init__(
        self, K: np.ndarray, comparisons: Comparisons, *, intercept: bool = False, many_alphas: bool = True
    ):
        self.comparisons = comparisons
        self.intercept = intercept
        self.anchors = comparisons.anchors()
        self._t = comparisons.half_target
        # Means of K over the rows of each query, times S: what S loses of a prediction.
        self._pull = None if self.anchors is None else comparisons.half(_group_means(K, self.anchors).T).T
        G = comparisons.half_both_sides(K)
        self._spectrum: Spectrum | None = None
        if many_alphas:
            self._spectrum = RidgeProblem(G.T, self._t, comparisons.half).spectrum()
            V = self._spectrum.vectors
            self._pulled_vectors = np.empty((0, 0)) if self._pull is None else self._pull @ V
            self._vector_means = V.mean(axis=0)
        else:
            self._G = G
        self._centred = bool(getattr(comparisons, "is_one_block", False))

    @property
    def eigenvalues(self) -> np.ndarray:
        if self._spectrum is None:
            raise ValueError("No eigen decomposition was made: use many_alphas=True.")
        return self._spectrum.values

    def predict(
        self,
        folds: Sequence[np.ndarray],
        alphas: Sequence[float],
        *,
        on_fold: Callable[[int], None] | None = None,
    ) -> list[np.ndarray]:
        if self._centred and all(fold.shape[0] == 1 for fold in folds):
            return self._predict_singles(folds, alphas)
        removals = [self.comparisons.drop_half(fold) for fold in folds]
        lambdas = sorted({alpha / removal.scale for removal in removals for alpha in alphas})
        at = {value: self._resolvent(value) for value in lambdas}
        predictions = []
        for number, (fold, removal) in enumerate(zip(folds, removals, strict=True)):
            one = self._one_block if removal.centred else self._blocks
            predictions.append(one(fold, removal, [at[alpha / removal.scale] for alpha in alphas]))
            if on_fold is not None:
                on_fold(number + 1)
        return predictions

    def _resolvent(self, alpha: float) -> _Resolvent:
        if self._spectrum is not None:
            return _SpectralResolvent(alpha, self)
        return _ExplicitResolvent(alpha, self)

    def _blocks(self, fold: np.ndarray, removal: HalfRemoval, resolvents: list[_Resolvent]) -> np.ndarray:
        """Whole queries, parts of queries, or rows of a plain regression."""
        rows = removal.rows
        local = self.comparisons.take(rows)
        wanted = np.searchsorted(np.sort(rows), fold)
        wanted = np.argsort(rows)[wanted]
        anchor_of = None
        if self.anchors is not None:
            names, anchor_of = np.unique(self.anchors.codes[rows], return_inverse=True)
        t = self._t[rows]
        out = np.empty((len(resolvents), fold.shape[0], t.shape[1]))
        reader = resolvents[0].reader(rows)
        for k, at in enumerate(resolvents):
            R = at.block(rows, reader)
            if removal.columns is None:
                source = -la.solve(R, at.x[rows], assume_a="pos")
            else:
                assert removal.lost is not None and removal.change is not None
                g = t - removal.change - at.alpha * (at.x[rows] - R @ removal.change)
                system = at.alpha * (removal.columns.T @ R @ removal.columns)
                system[np.diag_indices_from(system)] += (1.0 - removal.lost) / removal.lost
                source = removal.columns @ la.solve(system, removal.columns.T @ g) - removal.change
            f = at.f[rows] + local.half_inverse(source - at.alpha * (R @ source))
            if anchor_of is not None:
                f = f + (at.pull(names, rows, reader) @ source)[anchor_of]
            out[k] = f[wanted]
        return out

    def _one_block(self, fold: np.ndarray, removal: HalfRemoval, resolvents: list[_Resolvent]) -> np.ndarray:
        """Rows of a global ranking: S is the centring times κ, and only the held-out block of C R C is needed."""
        m, h = self.comparisons.n_rows, fold.shape[0]
        kappa = np.sqrt(self.comparisons._outer[0])  # type: ignore[attr-defined]
        out = np.empty((len(resolvents), h, self._t.shape[1]))
        reader = resolvents[0].reader(fold, centred=True)
        for k, at in enumerate(resolvents):
            R = at.block(fold, reader, centred=True)
            source = -la.solve(R, at.x[fold], assume_a="pos")
            level = at.mean_f + at.pull_one(fold, reader) @ source
            f = level + (self._t[fold] + source - source.sum(axis=0) / m) / kappa
            out[k] = f + self._intercept_without(fold, f, level)
        return out

    def _intercept_without(self, fold: np.ndarray, f: np.ndarray, level: np.ndarray) -> np.ndarray | float:
        """Mean of y less mean of f' over the remaining rows; ``level`` is the mean of f' over all rows."""
        if not self.intercept:
            return 0.0
        y = self.comparisons.scores  # type: ignore[attr-defined]
        m, rest = y.shape[0], y.shape[0] - fold.shape[0]
        return (y.sum(axis=0) - y[fold].sum(axis=0)) / rest - (m * level - f.sum(axis=0)) / rest

    def _predict_singles(self, folds: Sequence[np.ndarray], alphas: Sequence[float]) -> list[np.ndarray]:
        """Leave-one-out of a global ranking, all rows at once."""
        m = self.comparisons.n_rows
        kappa = np.sqrt(self.comparisons._outer[0])  # type: ignore[attr-defined]
        scale = self.comparisons.drop_half(folds[0]).scale
        y = self.comparisons.scores  # type: ignore[attr-defined]
        everything = np.empty((len(alphas), m, self._t.shape[1]))
        for k, alpha in enumerate(alphas):
            at = self._resolvent(alpha / scale)
            source = -at.x / at.centred_diagonal()[:, None]
            level = at.mean_f + at.pull_all()[:, None] * source
            f = level + (self._t + source * (1.0 - 1.0 / m)) / kappa
            if self.intercept:
                f = f + (y.sum(axis=0) - y) / (m - 1) - (m * level - f) / (m - 1)
            everything[k] = f
        return [everything[:, fold] for fold in folds]


class _Resolvent:
    """R at one λ: x = R t, the predictions f = K S x, and blocks of R."""

    alpha: float
    x: np.ndarray

    def _finish(self, owner: DualHoldOut) -> None:
        residual = owner._t - self.alpha * self.x
        f = owner.comparisons.half_inverse(residual)
        self.mean_f = np.zeros(f.shape[1])
        if owner._pull is not None:
            assert owner.anchors is not None
            means = owner._pull @ self.x
            f = f + means[owner.anchors.codes]
            self.mean_f = means[0]
        self.f = f

    # What a fold reads of the decomposition is read once for all alphas.

    def reader(self, rows: np.ndarray, *, centred: bool = False):
        raise NotImplementedError

    def block(self, rows: np.ndarray, reader, *, centred: bool = False) -> np.ndarray:
        """R on the rows (C R C with ``centred``)."""
        raise NotImplementedError

    def pull(self, anchors: np.ndarray, rows: np.ndarray, reader) -> np.ndarray:
        """The rows ``anchors`` of (means of K) S R, on the columns ``rows``."""
        raise NotImplementedError

    def pull_one(self, rows: np.ndarray, reader) -> np.ndarray:
        """(mean of K) S R C on ``rows``, for a global ranking."""
        raise NotImplementedError

    def pull_all(self) -> np.ndarray:
        raise NotImplementedError

    def centred_diagonal(self) -> np.ndarray:
        """The diagonal of C R C."""
        raise NotImplementedError


class _SpectralResolvent(_Resolvent):
    def __init__(self, alpha: float, owner: DualHoldOut):
        spectrum = owner._spectrum
        assert spectrum is not None
        self.alpha = alpha
        self._rho = 1.0 / (spectrum.values + alpha)
        self._V = spectrum.vectors
        self._pulled, self._means = owner._pulled_vectors, owner._vector_means
        self.x = self._V @ (self._rho[:, None] * spectrum.projected)
        self._finish(owner)

    def reader(self, rows, *, centred=False):
        V = np.ascontiguousarray(self._V[rows])
        return V - self._means if centred else V

    def block(self, rows, reader, *, centred=False):
        return (reader * self._rho) @ reader.T

    def pull(self, anchors, rows, reader):
        return (self._pulled[anchors] * self._rho) @ reader.T

    def pull_one(self, rows, reader):
        return ((self._pulled * self._rho) @ reader.T)[0]

    def pull_all(self):
        return (self._V - self._means) @ (self._rho * self._pulled[0])

    def centred_diagonal(self):
        return (self._V - self._means) ** 2 @ self._rho


class _ExplicitResolvent(_Resolvent):
    def __init__(self, alpha: float, owner: DualHoldOut):
        self.alpha = alpha
        self._R = explicit_resolvent(owner._G, alpha)
        self._means = self._R.mean(axis=0)
        self.x = self._R @ owner._t
        self._pulled = np.empty((0, 0)) if owner._pull is None else owner._pull @ self._R
        self._finish(owner)

    def reader(self, rows, *, centred=False):
        return None

    def block(self, rows, reader, *, centred=False):
        block = self._R[np.ix_(rows, rows)]
        if centred:
            means = self._means[rows]
            block = block - means[:, None] - means[None, :] + self._means.mean()
        return block

    def pull(self, anchors, rows, reader):
        return self._pulled[np.ix_(anchors, rows)]

    def pull_one(self, rows, reader):
        return self._pulled[0, rows] - self._pulled[0].mean()

    def pull_all(self):
        return self._pulled[0] - self._pulled[0].mean()

    def centred_diagonal(self):
        return np.diagonal(self._R) - 2 * self._means + self._means.mean()


def explicit_resolvent(G: np.ndarray, alpha: float, *, overwrite: bool = False) -> np.ndarray:
    """(G + λ I)⁻¹ as a full symmetric matrix, by Cholesky: m³ operations.

    Falls back to the eigen decomposition when λ is lost in the rounding of G.
    """
    R = np.array(G.T, order="F") if not overwrite else G.T
    diagonal = np.diagonal(R).copy()
    np.fill_diagonal(R, diagonal + alpha)
    try:
        return inverse_in_place(R)
    except np.linalg.LinAlgError:
        if overwrite:
            raise
        values, vectors = np.linalg.eigh(G)
        return (vectors / (np.maximum(values, 0.0) + alpha)) @ vectors.T


def _group_means(K: np.ndarray, groups) -> np.ndarray:
    from ..loops.segments import segment_sums

    return segment_sums(K, groups.codes, groups.n_groups) / groups.counts[:, None]
