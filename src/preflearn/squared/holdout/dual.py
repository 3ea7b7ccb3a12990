r"""Hold-out for the full kernel, through R = (G + λ I)⁻¹ with G = S K S.

When comparisons leave, L' = S (I - Ñ diag(e) Ñᵀ) S and b' = S τ with τ = t - δ. The dual variables of the rest are
x = R (τ + Ñ u), where

    [(I - e) / e + λ Ñᵀ R Ñ] u = Ñᵀ (τ - λ R τ)

suffers no cancellation at small λ. The predictions are f' = K S x. From S K S = G follows S f' = G x, so f' is
S⁺ (I - λ R)(τ + Ñ u) plus one constant per query, which the means of K over the rows of a query supply: no product of
the size of K with another matrix is needed after the decomposition.

When whole queries leave, Ñ is the identity on their rows U and e = 1; then Ñ u - δ = -(R_UU)⁻¹ x_U, where x = R t
are the dual variables of the model trained on all rows. For rows of a global ranking the same holds with C R C in
place of R, C being the centring.

Two extremes need care. Where λ is far above the spectrum of G, I - λ R would leave nothing but rounding: the hat matrix
G R is formed instead. Where λ is far below it, the directions N that S does not see contribute 1 / λ to R, which would
swamp the rest of R: σ N Nᵀ is added to G, which changes no prediction. If G is singular apart from N, R has no
precision left at such a λ, and `fallback` (features of the kernel) takes over.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import scipy.linalg as la

from ...comparisons import Comparisons, HalfRemoval
from ...numerics.linalg import LEAST_CONDITION, inverse_in_place, one_norm, solve_positive
from ..centred_kernel import centred_form, fill_null_space, half_of_means, refuse_small_alpha
from ..tridiagonal import TridiagonalForm
from .base import HoldOut, each_fold, intercept_of_rest

# Columns that are solved for at once where all are needed.
_BLOCK = 512
# From this share of the trace of G on, λ is so large that I - λ R loses precision: G R is formed instead.
LARGE_ALPHA = 0.25


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
        Reduce to tridiagonal form, which serves every alpha; otherwise factorise by Cholesky for each alpha that is
        asked for, which is several times cheaper for one.
    kernel_means : ndarray of shape (n_anchors, m), optional
        Means of K over the rows of each query, where K itself is that of centred features and does not contain them.
    fallback : callable, optional
        Makes the routine to use for these comparisons at an alpha for which R is not precise enough.

    Notes
    -----
    O(m³) once, then O(|H|² m + |H|³) for a fold and an alpha. One additional m × m array for one alpha, none for many.
    """

    def __init__(
        self,
        K: np.ndarray,
        comparisons: Comparisons,
        *,
        intercept: bool = False,
        many_alphas: bool = True,
        kernel_means: np.ndarray | None = None,
        fallback: Callable[[Comparisons], HoldOut] | None = None,
    ):
        self.comparisons = comparisons
        self.intercept = intercept
        self.anchors = comparisons.anchors()
        self._fallback = fallback
        self._instead: HoldOut | None = None
        self._t = comparisons.half_target
        self._half_means = half_of_means(K, comparisons, kernel_means)
        self._unit, G = centred_form(K, comparisons)
        if self._half_means is not None:
            self._half_means /= self._unit
        self._trace = float(np.trace(G))
        self._form: TridiagonalForm | None = None
        if many_alphas:
            fill_null_space(G, self.anchors, self._trace)
            self._form = TridiagonalForm(G.T)
            Qt = self._form.transposed
            self._projected = Qt @ self._t
            self._projected_means = (
                np.empty((0, Qt.shape[0])) if self._half_means is None else self._half_means @ Qt.T
            )
            self._means = Qt.mean(axis=1)
        else:
            self._G = G
            self._inverses: dict[float, np.ndarray] = {}
        self._centred = comparisons.is_one_block

    def with_targets(self, comparisons: Comparisons) -> DualHoldOut:
        other = copy(self)
        other.comparisons, other._t = comparisons, comparisons.half_target
        other._instead = None
        if self._form is not None:
            other._projected = self._form.transposed @ other._t
        return other

    @property
    def largest_eigenvalue(self) -> float:
        if self._form is None:
            raise ValueError("The spectrum is known only to the form for many alphas: use many_alphas=True.")
        return self._form.largest * self._unit

    @property
    def size(self) -> float:
        return self._trace * self._unit

    @property
    def unit(self) -> float:
        """The power of two that was factored out of the kernel."""
        return self._unit

    @property
    def trace(self) -> float:
        """Of G, in the unit of the kernel."""
        return self._trace

    @property
    def mean_kernel(self) -> np.ndarray | None:
        """(Mean of K over all rows) S of a global ranking, in the unit of the kernel; None for a regression."""
        return None if self._half_means is None else self._half_means[0]

    def explicit_resolvent(self, alpha: float) -> np.ndarray:
        """R as a full symmetric matrix in memory of its own; for the form that serves many alphas.

        ``alpha`` is in the unit of the kernel. The directions that S does not see carry no meaning.
        """
        assert self._form is not None
        return self._form.explicit_inverse(alpha)

    def explicit_hat(self, alpha: float) -> np.ndarray:
        """The same for G R."""
        assert self._form is not None
        Qt = self._form.transposed
        return Qt.T @ self._form.multiply(self._form.inverse(alpha)(Qt))

    def predict(self, folds, alphas, *, on_fold=None) -> list[np.ndarray]:
        singles = len(folds) > 1 and all(fold.shape[0] == 1 for fold in folds)
        without_anchors = singles and self.anchors is None and not self.intercept
        removals = [self.comparisons.drop_half(fold) for fold in folds]
        scales = sorted({removal.scale for removal in removals})
        unstable = np.array([not all(self.is_stable(alpha / scale) for scale in scales) for alpha in alphas])
        if unstable.any():
            return self._with_fallback(folds, np.asarray(alphas), unstable, on_fold)
        if self._centred and all(fold.shape[0] == 1 for fold in folds):
            return self._predict_singles(folds, alphas)
        if without_anchors:
            return self._predict_single_targets(folds, alphas)
        predictions: dict[int, np.ndarray] = {}
        # Folds of one scale share their λ; the inverses of another scale are not kept.
        for scale in scales:
            resolvents = self._resolvents([alpha / scale for alpha in alphas])
            mine = [number for number, removal in enumerate(removals) if removal.scale == scale]
            found = self._with_resolvents(
                resolvents, [folds[k] for k in mine], [removals[k] for k in mine], on_fold
            )
            predictions.update(zip(mine, found, strict=True))
            del resolvents
        return [predictions[number] for number in range(len(folds))]

    def _with_resolvents(self, resolvents, folds, removals, on_fold) -> list[np.ndarray]:
        one = self._one_block if removals[0].centred else self._blocks
        for at in resolvents:
            _ = at.f  # made once, before threads ask for it
        sizes = [removal.rows.shape[0] for removal in removals]
        return each_fold(
            lambda k: one(folds[k], removals[k], resolvents),
            sizes,
            self.comparisons.n_rows,
            on_fold,
        )

    def _with_fallback(self, folds, alphas: np.ndarray, unstable: np.ndarray, on_fold) -> list[np.ndarray]:
        """Predictions at several alphas, at some of which R has no precision left."""
        if self._instead is None:
            if self._fallback is None:
                refuse_small_alpha(float(alphas[unstable].min()), self.size)
            self._instead = self._fallback(self.comparisons)  # type: ignore[misc]
        found = self._instead.predict(folds, alphas[unstable].tolist(), on_fold=on_fold)
        if unstable.all():
            return found
        out = []
        for other, mine in zip(found, self.predict(folds, alphas[~unstable].tolist()), strict=True):
            both = np.empty((alphas.shape[0], *mine.shape[1:]))
            both[unstable], both[~unstable] = other, mine
            out.append(both)
        return out

    def is_stable(self, alpha: float) -> bool:
        """Whether R is precise enough at this alpha."""
        if self._form is not None:
            return self._form.reciprocal_condition(alpha / self._unit) >= LEAST_CONDITION
        try:
            self._inverse_at(alpha / self._unit)
        except np.linalg.LinAlgError:
            return False
        return True

    def _resolvents(self, alphas: Sequence[float]) -> list[_Resolvent]:
        """R at every λ; one pass over Q for all of them."""
        if self._form is None:
            return [self._resolvent(alpha) for alpha in alphas]
        alphas = [alpha / self._unit for alpha in alphas]
        inverses = [self._form.inverse(alpha) for alpha in alphas]
        x = self._form.transposed.T @ np.hstack([inverse(self._projected) for inverse in inverses])
        return [
            _TridiagonalResolvent(alpha, self, inverse, part)
            for alpha, inverse, part in zip(alphas, inverses, np.hsplit(x, len(alphas)), strict=True)
        ]

    def _resolvent(self, alpha: float) -> _Resolvent:
        if self._form is not None:
            return self._resolvents([alpha])[0]
        return _ExplicitResolvent(alpha / self._unit, self)

    def _inverse_at(self, alpha: float) -> np.ndarray:
        """(G + λ I)⁻¹; two are kept for other targets: the folds of a global ranking usually have one or two sizes."""
        if alpha not in self._inverses:
            if len(self._inverses) == 2:
                self._inverses.pop(next(iter(self._inverses)))
            self._inverses[alpha] = explicit_resolvent(self._G, alpha, self.anchors, self._trace)
        return self._inverses[alpha]

    def _is_large(self, alpha: float) -> bool:
        return alpha > LARGE_ALPHA * self._trace

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
        read = resolvents[0].read(rows)
        for k, at in enumerate(resolvents):
            part = at.part(rows, read)
            R = part.block
            if removal.columns is None:
                source = -solve_positive(R, at.x[rows])
            else:
                assert removal.lost is not None and removal.change is not None
                g = at.fitted[rows] - part.hat(removal.change)
                system = at.alpha * (removal.columns.T @ R @ removal.columns)
                system[np.diag_indices_from(system)] += (1.0 - removal.lost) / removal.lost
                source = removal.columns @ la.solve(system, removal.columns.T @ g) - removal.change
            f = at.f[rows] + local.half_inverse(part.hat(source))
            if anchor_of is not None:
                f = f + (part.mean_response(names) @ source)[anchor_of]
            out[k] = f[wanted]
        return out

    def _one_block(self, fold: np.ndarray, removal: HalfRemoval, resolvents: list[_Resolvent]) -> np.ndarray:
        """Rows of a global ranking: S is the centring times κ, and only the held-out block of C R C is needed."""
        m, h = self.comparisons.n_rows, fold.shape[0]
        kappa = self.comparisons.block_scale
        out = np.empty((len(resolvents), h, self._t.shape[1]))
        read = resolvents[0].read(fold, centred=True)
        for k, at in enumerate(resolvents):
            part = at.part(fold, read, centred=True)
            source = solve_positive(part.block, at.x[fold], overwrite_b=True)
            source *= -1.0
            level = at.mean_f + part.mean_response(slice(0, 1))[0] @ source
            f = out[k]
            if at.large:
                f[...] = (at.fitted[fold] + part.hat(source)) / kappa + level
            else:
                # level + (t + source - mean of source over all rows) / κ, in place: there may be a thousand outputs.
                np.take(self._t, fold, axis=0, out=f, mode="clip")
                f += source
                f += kappa * level - source.sum(axis=0) / m
                f /= kappa
            if self.intercept:
                y = self.comparisons.scores
                f += intercept_of_rest(m, y.sum(axis=0) - y[fold].sum(axis=0), level, f.sum(axis=0), h)
        return out

    def _predict_singles(self, folds: Sequence[np.ndarray], alphas: Sequence[float]) -> list[np.ndarray]:
        """Leave-one-out of a global ranking, all rows at once."""
        m = self.comparisons.n_rows
        kappa = self.comparisons.block_scale
        scale = self.comparisons.drop_half(folds[0]).scale
        y = self.comparisons.scores
        everything = np.empty((len(alphas), m, self._t.shape[1]))
        for k, alpha in enumerate(alphas):
            at = self._resolvent(alpha / scale)
            source = -at.x / at.centred_diagonal()[:, None]
            level = at.mean_f + at.mean_response_of_all()[:, None] * source
            seen = (
                at.fitted + at.hat_diagonal()[:, None] * source
                if at.large
                else self._t + source * (1.0 - 1.0 / m)
            )
            f = level + seen / kappa
            if self.intercept:
                f = f + intercept_of_rest(m, y.sum(axis=0) - y, level, f, 1)
            everything[k] = f
        return [everything[:, fold] for fold in folds]

    def _predict_single_targets(
        self, folds: Sequence[np.ndarray], alphas: Sequence[float]
    ) -> list[np.ndarray]:
        """Leave-one-out of a regression without an intercept, all rows at once: only the diagonal of R is needed."""
        everything = np.empty((len(alphas), *self._t.shape))
        for k, alpha in enumerate(alphas):
            at = self._resolvent(alpha)
            source = -at.x / at.diagonal()[:, None]
            everything[k] = (
                at.fitted + at.plain_hat_diagonal()[:, None] * source if at.large else self._t + source
            )
        return [everything[:, fold] for fold in folds]


class _Resolvent:
    """R at one λ: x = R t, the predictions f = K S x, and blocks of R."""

    alpha: float
    x: np.ndarray

    def _finish(self, owner: DualHoldOut) -> None:
        self._owner = owner
        self.large = owner._is_large(self.alpha)
        self._anchor_means = None if owner._half_means is None else owner._half_means @ self.x

    @property
    def mean_f(self) -> np.ndarray:
        """The mean prediction of a global ranking."""
        return np.zeros(self.x.shape[1]) if self._anchor_means is None else self._anchor_means[0]

    @cached_property
    def f(self) -> np.ndarray:
        """The predictions of the model trained on all rows."""
        f = self._owner.comparisons.half_inverse(self.fitted)
        if self._anchor_means is None:
            return f
        assert self._owner.anchors is not None
        return f + self._anchor_means[self._owner.anchors.codes]

    @cached_property
    def fitted(self) -> np.ndarray:
        """S f = G R t."""
        return self._hat_target() if self.large else self._owner._t - self.alpha * self.x

    def _hat_target(self) -> np.ndarray:
        raise NotImplementedError

    # What a fold reads from the decomposition is read once for all alphas.

    def read(self, rows: np.ndarray, *, centred: bool = False) -> np.ndarray | None:
        raise NotImplementedError

    def part(self, rows: np.ndarray, read: np.ndarray | None, *, centred: bool = False) -> _Part:
        """R on the rows (C R C with ``centred``)."""
        raise NotImplementedError

    def mean_response_of_all(self) -> np.ndarray:
        """(mean of K) S R C, for a global ranking."""
        raise NotImplementedError

    def diagonal(self) -> np.ndarray:
        """The diagonal of R."""
        raise NotImplementedError

    def plain_hat_diagonal(self) -> np.ndarray:
        """The diagonal of G R, at a large λ."""
        raise NotImplementedError

    def centred_diagonal(self) -> np.ndarray:
        """The diagonal of C R C."""
        raise NotImplementedError

    def hat_diagonal(self) -> np.ndarray:
        """The diagonal of C G R C, at a large λ."""
        raise NotImplementedError


@dataclass(frozen=True)
class _Part:
    """What a fold needs of R: its block, and rows of (means of K) S R on the columns of the fold.

    ``hat`` takes V to the block of G R times V.
    """

    block: np.ndarray
    mean_response: Callable[[Any], np.ndarray]
    hat: Callable[[np.ndarray], np.ndarray]


class _TridiagonalResolvent(_Resolvent):
    """R = Q (T + λ I)⁻¹ Qᵀ."""

    def __init__(self, alpha: float, owner: DualHoldOut, inverse: Callable, x: np.ndarray):
        assert owner._form is not None
        self.alpha, self.x = alpha, x
        self._inverse, self._multiply = inverse, owner._form.multiply
        self._Qt, self._means, self._projected_means = (
            owner._form.transposed,
            owner._means,
            owner._projected_means,
        )
        self._finish(owner)

    def read(self, rows, *, centred=False):
        Qt = np.take(self._Qt, rows, axis=1)
        return Qt - self._means[:, None] if centred else Qt

    def part(self, rows, read, *, centred=False):
        W = self._inverse(read)
        block = read.T @ W
        hat = read.T @ self._multiply(W) if self.large else None
        return _Part(block, lambda anchors: self._projected_means[anchors] @ W, _hat(self.alpha, block, hat))

    def _hat_target(self):
        return self._Qt.T @ self._multiply(self._inverse(self._owner._projected))

    def mean_response_of_all(self):
        along = self._inverse(self._projected_means[:1].T)[:, 0]
        return self._Qt.T @ along - self._means @ along

    def diagonal(self):
        form = self._owner._form
        assert form is not None
        return form.inverse_diagonal(self.alpha)

    def plain_hat_diagonal(self):
        return self._diagonal(self._hat, centred=False)

    def centred_diagonal(self):
        return self._diagonal(self._inverse)

    def hat_diagonal(self):
        return self._diagonal(self._hat)

    def _hat(self, V: np.ndarray) -> np.ndarray:
        return self._multiply(self._inverse(V))

    def _diagonal(self, function: Callable[[np.ndarray], np.ndarray], *, centred: bool = True) -> np.ndarray:
        m = self._Qt.shape[0]
        diagonal = np.empty(m)
        for start in range(0, m, _BLOCK):
            rows = np.arange(start, min(start + _BLOCK, m))
            read = self.read(rows, centred=centred)
            diagonal[rows] = np.einsum("ij,ij->j", read, function(read))
        return diagonal


class _ExplicitResolvent(_Resolvent):
    def __init__(self, alpha: float, owner: DualHoldOut):
        self.alpha = alpha
        self._R = owner._inverse_at(alpha)
        self._means = self._R.mean(axis=0)
        self.x = self._R @ owner._t
        self._projected_means = np.empty((0, 0)) if owner._half_means is None else owner._half_means @ self._R
        self._finish(owner)

    def read(self, rows, *, centred=False):
        return None

    @cached_property
    def _H(self) -> np.ndarray:
        return self._owner._G @ self._R

    def _hat_target(self):
        return self._H @ self._owner._t

    def part(self, rows, read, *, centred=False):
        block = self._R[np.ix_(rows, rows)]
        hat = _hat(self.alpha, block, self._H[np.ix_(rows, rows)] if self.large else None)
        if not centred:
            return _Part(block, lambda anchors: self._projected_means[np.ix_(anchors, rows)], hat)
        means = self._means[rows]
        block = block - means[:, None] - means[None, :] + self._means.mean()
        return _Part(
            block,
            lambda anchors: (
                self._projected_means[anchors][:, rows]
                - self._projected_means[anchors].mean(axis=1, keepdims=True)
            ),
            hat,
        )

    def mean_response_of_all(self):
        return self._projected_means[0] - self._projected_means[0].mean()

    def diagonal(self):
        return np.diagonal(self._R)

    def plain_hat_diagonal(self):
        return np.diagonal(self._H)

    def centred_diagonal(self):
        return np.diagonal(self._R) - 2 * self._means + self._means.mean()

    def hat_diagonal(self):
        return np.diagonal(self._H)


def _hat(alpha: float, R: np.ndarray, H: np.ndarray | None) -> Callable[[np.ndarray], np.ndarray]:
    """V to (I - λ R) V, or to H V where the hat matrix had to be formed."""
    return (lambda V: V - alpha * (R @ V)) if H is None else (lambda V: H @ V)


def explicit_resolvent(
    G: np.ndarray, alpha: float, anchors=None, trace: float = 0.0, *, overwrite: bool = False
) -> np.ndarray:
    """(G + λ I)⁻¹ as a full symmetric matrix, by Cholesky: m³ operations.

    With ``anchors`` and the trace of G, what S does not see is moved out of the way of a small λ.

    Raises
    ------
    numpy.linalg.LinAlgError
        If the inverse is not precise enough.
    """
    R = np.array(G.T, order="F") if not overwrite else G.T
    if alpha < trace:
        fill_null_space(R.T, anchors, trace)
    np.fill_diagonal(R, np.diagonal(R) + alpha)
    # Both are positive definite: traces bound norms. The norms themselves are computed only where the traces leave
    # doubt.
    size = float(np.trace(R))
    norm = size if size < alpha * R.shape[0] / LEAST_CONDITION else one_norm(R.T)
    R = inverse_in_place(R)
    if size * float(np.trace(R)) * LEAST_CONDITION > 1.0 and norm * one_norm(R.T) * LEAST_CONDITION > 1.0:
        raise np.linalg.LinAlgError("the kernel is too ill-conditioned for this alpha")
    return R
