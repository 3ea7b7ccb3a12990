r"""Hold-out of folds with more comparisons than features: their moments are subtracted from those of all rows.

With A = Φᵀ L Φ and c = Φᵀ b, and the part Y diag(σ) Yᵀ of A and g of c that leaves with a fold,

    (A - Y diag(σ) Yᵀ + λ I) w' = c - g.

One eigendecomposition of the n × n matrix serves every λ that its rounding allows. Below, where columns of very
different scales make the matrix ill conditioned, each row and column is divided by the root of its diagonal entry,
which removes the scales from the condition, and the system is solved for each λ. What remains, such as a fold that
holds nearly all of the trace, has to be trained on the remaining rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ...comparisons import Comparisons
from ...numerics.linalg import (
    cholesky_in_place,
    cholesky_solve,
    eigh_in_place,
    mirror_lower,
    reciprocal_condition,
    subtract_gram,
)
from ..problem import feature_moments
from .base import LEAST_CONDITION, RemovedRows, leave_with_their_queries


@dataclass(frozen=True)
class Moments:
    """Features with their moments, in the coordinates in which the weights are wanted.

    Attributes
    ----------
    features : ndarray of shape (m, n)
        Φ.
    A : ndarray of shape (n, n)
        Φᵀ L Φ, both triangles filled.
    c : ndarray of shape (n, v)
        Φᵀ b.
    removed_rows : RemovedRows
        Of Φ.
    rotation : ndarray of shape (n, n) or None
        U where the rows of Φ are still to be rotated into those of Z = Φ U; None for Z itself.
    size : float
        The largest eigenvalue of A, or an upper bound of it.
    """

    features: np.ndarray
    A: np.ndarray
    c: np.ndarray
    removed_rows: RemovedRows
    rotation: np.ndarray | None
    size: float

    @property
    def comparisons(self) -> Comparisons:
        return self.removed_rows.comparisons

    def without(self, fold: np.ndarray) -> tuple[np.ndarray, np.ndarray, float]:
        """A and c of the rows outside a fold, and the scale that λ is divided by. O(k n²)."""
        if self.comparisons.is_one_block:
            return self._without_ranked(fold)
        if leave_with_their_queries(self.comparisons, fold) and not self.comparisons.has_half:
            # No columns N: those of a whole query would be the eigenvectors of its Laplacian.
            lost, g = self._of_rows(fold)
            return self.A - lost, self.c - g, 1.0
        if self.comparisons.drops_densely:
            return self._without_parts(fold)
        Y, signs, change, scale = self.removed_rows.removal(fold)
        lost = subtract_gram(np.array(self.A, order="F"), Y.astype(np.float64, copy=False), signs)
        return mirror_lower(lost), self.c - change, scale

    def _without_parts(self, fold: np.ndarray) -> tuple[np.ndarray, np.ndarray, float]:
        """The same from the moments of what remains of the queries that lose rows, and of those that lose none."""
        queries, every = self.comparisons.queries, np.arange(self.comparisons.n_rows)
        assert queries is not None
        touched = np.isin(queries.codes, queries.codes[fold])
        A, c = np.zeros_like(self.A), np.zeros_like(self.c)
        if not touched.all():
            lost, g = self._of_rows(np.flatnonzero(touched))
            A, c = self.A - lost, self.c - g
        rest = np.setdiff1d(every[touched], fold)
        if rest.size:
            kept, g = self._of_rows(rest)
            A, c = A + kept, c + g
        return A, c, 1.0

    def _of_rows(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """A and c of some rows, as if there were no others."""
        features = np.ascontiguousarray(self.features[rows], dtype=np.float64)
        return feature_moments(features, self.comparisons.take(rows))

    def _without_ranked(self, fold: np.ndarray) -> tuple[np.ndarray, np.ndarray, float]:
        """The same for a global ranking, where A = κ² Σ (φ - μ)(φ - μ)ᵀ, and likewise c.

        Without the h rows of a fold the mean moves by Σ_H (φ - μ) / (m - h).
        """
        comparisons = self.comparisons
        n_left = comparisons.n_rows - fold.shape[0]
        rows = self.removed_rows.centred_rows(fold).astype(np.float64, copy=False)
        targets = comparisons.scores[fold] - comparisons.scores.mean(axis=0)
        moved = rows.sum(axis=0) / n_left
        factor = comparisons.block_scale**2
        lost = rows.T @ rows + n_left * np.outer(moved, moved)
        g = rows.T @ targets + np.outer(moved, targets.sum(axis=0))
        return self.A - factor * lost, self.c - factor * g, comparisons.drop_half(fold).scale


def weights_without(
    moments: Moments,
    fold: np.ndarray,
    alphas: Sequence[float],
    *,
    span: np.ndarray | None = None,
    outside: np.ndarray | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """The weights of a model trained without a fold, for each alpha.

    Parameters
    ----------
    span : ndarray of shape (n, p), optional
        Orthonormal columns: the weights are a combination of these.
    outside : ndarray of shape (n, h), optional
        Orthonormal columns: the weights are orthogonal to these. In place of ``span``.

    Returns
    -------
    weights : ndarray of shape (len(alphas), n, v)
    settled : ndarray of bool, shape (len(alphas),)
        False where rounding leaves too little of the answer: these weights are not to be used.
    """
    A, c, scale = moments.without(fold)
    before = np.diagonal(moments.A)
    if span is not None:
        A, c, before = span.T @ A @ span, span.T @ c, np.einsum("ij,ij->j", span, moments.A @ span)
    elif outside is not None and outside.shape[1]:
        A, c = _projected(A, c, outside)
    ridges = np.asarray(alphas) / scale
    values, vectors = eigh_in_place(np.array(A, order="F"))
    # Rounding of the sums before anything was subtracted, compared with the least that is left.
    settled = ridges + max(values[0], 0.0) >= LEAST_CONDITION * moments.size
    projected = vectors.T @ c
    shrunk = np.zeros((ridges.shape[0], *projected.shape))
    shrunk[settled] = projected / (np.maximum(values, 0.0) + ridges[settled, None])[:, :, None]
    weights = vectors @ shrunk
    if outside is None:
        for k in np.flatnonzero(~settled):
            found = _solve_scaled(A, c, float(ridges[k]), before)
            if found is not None:
                weights[k], settled[k] = found, True
    return (weights if span is None else span @ weights), settled


def _projected(A: np.ndarray, c: np.ndarray, E: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """P A P and P c with P = I - E Eᵀ: nothing is left along E, and so no weight at any λ. O(n² h)."""
    AE = A @ E
    A = A - E @ AE.T
    A -= (AE - E @ (E.T @ AE)) @ E.T
    return A, c - E @ (E.T @ c)


def _solve_scaled(A: np.ndarray, c: np.ndarray, alpha: float, before: np.ndarray) -> np.ndarray | None:
    """(A + λ I)⁻¹ c, each row and column divided by the root of its diagonal entry; None where rounding hides it."""
    diagonal = np.diagonal(A) + alpha
    if not (diagonal > 0).all():
        return None
    root = 1.0 / np.sqrt(diagonal)
    S = np.asfortranarray(A * root * root[:, None])
    np.fill_diagonal(S, 1.0)
    norm = float(np.abs(S).sum(axis=0).max())
    try:
        factor = cholesky_in_place(S)
    except np.linalg.LinAlgError:
        return None
    kept = float((diagonal / np.maximum(before, diagonal)).min())
    if kept * reciprocal_condition(factor, norm) < LEAST_CONDITION:
        return None
    return root[:, None] * cholesky_solve(factor, root[:, None] * c)
