r"""Hold-out by iterations, without any square matrix: every alpha of a fold from one Krylov sequence.

The model of a fold solves (A + λ I) w = c with A = Φᵀ L' Φ and c = Φᵀ b', L' and b' being the comparisons of the rows
that stay. The Lanczos vectors v_1 = c / ‖c‖, v_2, ... of A and c, with A V = V T up to the last column, do not depend
on λ: with T + λ I = L D Lᵀ, ℓ_j = β_j / d_{j-1},

    d_j = α_j + λ - ℓ_j β_j,   p_j = v_j - ℓ_j p_{j-1},   ζ_j = -ℓ_j ζ_{j-1},   w ← w + (ζ_j / d_j) p_j

are conjugate gradients for that λ, and one product with Φ and Φᵀ serves them all. Only predictions of the rows that
leave are asked for, so p_j and w are never formed: the same recurrence runs on Φ_H v_j, which the product supplies.

The error of w in the norm (wᵀ (A + λ I) w)^½ of the problem is the square root of Σ_{i > j} ζ_i² / d_i: an alpha is
done when what is to come, extrapolated from the last terms, is below the tolerance. A preconditioner other than the
identity would make the sequence depend on λ, and so would starting from the model of all rows: either would cost a
sequence for each alpha.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from copy import copy
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.exceptions import ConvergenceWarning

from ...comparisons import Comparisons
from ..conjugate_gradients import largest_eigenvalue
from ..routes import callers_level
from .base import HoldOut, are_whole, rows_outside

# Folds and outputs that are iterated together: a product with this many columns reads the data once.
_LANES = 8
# Terms of the error that are summed to see how fast it falls.
_WINDOW = 8


class KrylovHoldOut(HoldOut):
    """Hold-out within a tolerance, by Lanczos sequences that all alphas share.

    Parameters
    ----------
    features : ndarray or CSR array of shape (m, n)
        Φ.
    comparisons : Comparisons
    intercept : bool
    tol : float
        Error of a fold's model relative to the model, in the norm of the problem.
    max_iter : int, optional
        10 min(m, n), and at least 1000, by default.
    offset : ndarray of shape (n,), optional
        What has been subtracted from every row of Φ; it is added to the predictions again.

    Attributes
    ----------
    n_iter : int
        The most iterations that a fold took in the last prediction.
    converged : bool
        Whether all its alphas and folds reached the tolerance.

    Notes
    -----
    An iteration costs a product with Φ and one with Φᵀ for each fold, and O(|H|) for each alpha. Memory: m numbers for
    each alpha, and a transposed copy of a sparse Φ.
    """

    iterates = True

    def __init__(
        self,
        features,
        comparisons: Comparisons,
        *,
        intercept: bool = False,
        tol: float = 1e-6,
        max_iter: int | None = None,
        offset: np.ndarray | None = None,
    ):
        self.comparisons, self.intercept, self.tol = comparisons, intercept, tol
        self.max_iter = max(1000, 10 * min(features.shape)) if max_iter is None else max_iter
        self.n_iter, self.converged = 0, True
        self._features = sp.csr_array(features) if sp.issparse(features) else features
        self._transposed = sp.csr_array(self._features.T) if sp.issparse(features) else features.T
        self._offset = offset
        self._largest: float | None = None

    def with_targets(self, comparisons: Comparisons) -> KrylovHoldOut:
        other = copy(self)
        other.comparisons = comparisons
        return other

    def warn_unless_converged(self) -> None:
        if not self.converged:
            warnings.warn(
                f"Held-out predictions stopped after {self.n_iter} iterations before they reached tol={self.tol:g}: "
                "raise max_iter or tol, scale the features, or use larger alphas.",
                ConvergenceWarning,
                stacklevel=callers_level(),
            )

    @property
    def largest_eigenvalue(self) -> float:
        if self._largest is None:
            self._largest = largest_eigenvalue(self._features, self.comparisons)
        return self._largest

    def predict(self, folds, alphas, *, on_fold=None) -> list[np.ndarray]:
        self.n_iter, self.converged = 0, True
        v = self.comparisons.n_outputs
        together = max(1, _LANES // v)
        predictions: list[np.ndarray] = []
        for start in range(0, len(folds), together):
            predictions += self._predict_together(folds[start : start + together], np.asarray(alphas))
            if on_fold is not None:
                on_fold(len(predictions))
        return predictions

    def _predict_together(self, folds: Sequence[np.ndarray], alphas: np.ndarray) -> list[np.ndarray]:
        system = _FoldSystems(self._features, self._transposed, self.comparisons, folds)
        v = self.comparisons.n_outputs
        lanes = [
            _Lane(system, number, output, alphas, self._offset)
            for number in range(len(folds))
            for output in range(v)
        ]
        V = system.start()
        before = np.zeros_like(V)
        norms = np.linalg.norm(V, axis=0)
        for lane, norm in zip(lanes, norms, strict=True):
            lane.begin(float(norm), self.tol)
        active = np.flatnonzero(norms > 0)
        V = V[:, active] / norms[active]
        before = before[:, active]
        beta = np.zeros(active.shape[0])
        n_iter = 0
        while active.size and n_iter < self.max_iter:
            n_iter += 1
            U = system.images(V)
            W = system.back(U, active)
            alpha = np.einsum("ij,ij->j", V, W)
            W -= alpha * V
            W -= beta * before
            for place, number in enumerate(active):
                lanes[number].step(U[:, place], V[:, place], float(alpha[place]), float(beta[place]))
            beta = np.sqrt(np.einsum("ij,ij->j", W, W))
            for place, number in enumerate(active):
                lanes[number].check(float(beta[place]))
            going = np.array([lanes[number].going for number in active])
            before, V = V[:, going], W[:, going] / beta[going]
            active, beta = active[going], beta[going]
        self.n_iter = max(self.n_iter, n_iter)
        self.converged &= not active.size
        return [
            np.stack([lanes[number * v + output].predictions(self.intercept) for output in range(v)], axis=2)
            for number in range(len(folds))
        ]


class _FoldSystems:
    """The products of several folds: lane k is output k mod v of fold k div v."""

    def __init__(self, features, transposed, comparisons: Comparisons, folds: Sequence[np.ndarray]):
        self.features, self._transposed = features, transposed
        self.comparisons, self.folds = comparisons, folds
        self._v = comparisons.n_outputs
        # Whole queries leave with everything that they compare: their rows of L are left out.
        self._whole = are_whole(comparisons, folds)
        self._rest = [] if self._whole else [rows_outside(comparisons.n_rows, fold) for fold in folds]
        self._kept = [comparisons.take(rest) for rest in self._rest]

    def start(self) -> np.ndarray:
        """Φᵀ b' of every lane, shape (n, lanes)."""
        b = np.empty((self.comparisons.n_rows, len(self.folds) * self._v))
        for number, fold in enumerate(self.folds):
            mine = slice(number * self._v, (number + 1) * self._v)
            if self._whole:
                b[:, mine] = self.comparisons.target
                b[fold, mine] = 0.0
            else:
                b[:, mine] = 0.0
                b[self._rest[number], mine] = self._kept[number].target
        return self._back(b)

    def images(self, V: np.ndarray) -> np.ndarray:
        """Φ V."""
        return _product(self.features, V)

    def back(self, U: np.ndarray, lanes: np.ndarray) -> np.ndarray:
        """Φᵀ L' U."""
        if self._whole:
            # A regression returns U itself, which the held-out rows are still read from.
            image = np.array(self.comparisons.laplacian(U))
            for place, lane in enumerate(lanes):
                image[self.folds[lane // self._v], place] = 0.0
        else:
            image = np.zeros(U.shape)
            for place, lane in enumerate(lanes):
                rest = self._rest[lane // self._v]
                image[rest, place] = self._kept[lane // self._v].laplacian(U[rest, place][:, None])[:, 0]
        return self._back(image)

    def _back(self, U: np.ndarray) -> np.ndarray:
        return _product(self._transposed, U)


def _product(A: Any, V: np.ndarray) -> np.ndarray:
    if not sp.issparse(A):
        return np.asarray(A @ V, dtype=np.float64)
    from ...kernels._loops import times_columns

    return times_columns(A, np.ascontiguousarray(V, dtype=np.float64))


class _Lane:
    """One fold and output: the recurrence of every alpha on the predictions of the rows that leave."""

    def __init__(self, system: _FoldSystems, number: int, output: int, alphas: np.ndarray, offset: Any):
        self._fold = system.folds[number]
        self._alphas = alphas
        self._offset = offset
        self._system, self._output = system, output
        # Next to the rows that leave: the mean over those that stay.
        self._row_weights = system.comparisons.row_weights
        shape = (alphas.shape[0], self._fold.shape[0] + 1)
        self._p, self._f = np.zeros(shape), np.zeros(shape)
        self._d = np.ones(alphas.shape[0])
        self._terms: list[np.ndarray] = []
        self.going = True

    def begin(self, norm: float, tol: float) -> None:
        self._zeta = np.full(self._alphas.shape[0], norm)
        self._energy = np.zeros(self._alphas.shape[0])
        self._open = np.arange(self._alphas.shape[0])
        self._tol, self._first = tol, True
        self.going = norm > 0

    def step(self, u: np.ndarray, v: np.ndarray, alpha: float, beta: float) -> None:
        """One Lanczos vector: ``u`` is Φ v, ``alpha`` and ``beta`` its row of T."""
        seen = np.empty(self._fold.shape[0] + 1)
        np.take(u, self._fold, out=seen[:-1])
        seen[-1] = self._mean_of_rest(u)
        if self._offset is not None:
            seen += self._offset @ v
        at = self._open
        ratio = np.zeros(at.shape[0]) if self._first else beta / self._d[at]
        d = alpha + self._alphas[at] - ratio * beta
        zeta = self._zeta[at] if self._first else -ratio * self._zeta[at]
        self._first = False
        # Rounding may leave a pivot that is not positive where alpha is negligible compared with the spectrum.
        d = np.maximum(d, np.finfo(float).eps * (abs(alpha) + self._alphas[at]))
        p = self._p
        p *= -ratio[:, None]
        p += seen
        self._f[at] += (zeta / d)[:, None] * p
        self._d[at], self._zeta[at] = d, zeta
        term = np.zeros(self._alphas.shape[0])
        term[at] = zeta**2 / d
        self._energy += term
        self._terms = [*self._terms[-2 * _WINDOW + 1 :], term]

    def check(self, beta: float) -> None:
        """Close the alphas that are done; ``beta`` is the length of the next Lanczos vector before it is scaled."""
        at = self._open
        if beta <= np.finfo(float).eps * float(np.max(self._d[at] + self._alphas[at])):
            self._close(np.ones(at.shape[0], dtype=bool))  # the sequence has ended: the solution is exact
            return
        if len(self._terms) < 2 * _WINDOW:
            return
        earlier = np.sum(self._terms[:_WINDOW], axis=0)[at]
        later = np.sum(self._terms[_WINDOW:], axis=0)[at]
        falls = later < 0.99 * earlier
        quotient = np.where(falls, later / np.where(earlier > 0, earlier, 1.0), 0.99)
        to_come = later * quotient / (1.0 - quotient)
        self._close((to_come <= self._tol**2 * self._energy[at]) & (falls | (later == 0)))

    def _close(self, done: np.ndarray) -> None:
        if done.any():
            self._open, self._p = self._open[~done], self._p[~done]
            self.going = bool(self._open.size)

    def predictions(self, intercept: bool) -> np.ndarray:
        """Shape (n_alphas, n_left)."""
        f = self._f[:, :-1]
        if not intercept:
            return f
        y = self._system.comparisons.scores[:, self._output]
        return f + (self._mean_of_rest(y) - self._f[:, [-1]])

    def _mean_of_rest(self, values: np.ndarray) -> float:
        """The mean over the rows that stay, by their weights."""
        w, fold = self._row_weights, self._fold
        if w is None:
            return float(values.sum() - values[fold].sum()) / (values.shape[0] - fold.shape[0])
        return float(w @ values - w[fold] @ values[fold]) / float(w.sum() - w[fold].sum())
