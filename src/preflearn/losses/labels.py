r"""Laplace's posterior of thousands of labels, without any array of m × m numbers.

For items that are labels (`kernel="items"`) the Hessian is a sparse Laplacian plus a diagonal,

    H = Σ_k v_k (e_h - e_j)(e_h - e_j)ᵀ + 2 alpha I,

with two entries for each distinct pair. Covariances of requested items are columns of H⁻¹, by conjugate gradients with
the diagonal as preconditioner. Variances of very many items or differences are estimated from draws f ~ N(0, H⁻¹),
which cost a solve each: f = H⁻¹ (Σ √v_k ξ_k (e_h - e_j) + √(2 alpha) η). The variance of an item given all others is
used exactly,

    var f_i = 1 / H_ii + var u_i,        u = f - (H f) / diag H,

(and likewise with the 2 × 2 block of a pair), so that only the second part is estimated; the standard error of the
whole is at most √(2 / draws) of it.

References
----------
Sidén, Lindgren, Bolin and Villani, "Efficient covariance approximations for large sparse precision matrices", Journal
of Computational and Graphical Statistics 27 (2018).
"""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from ..comparisons.answers import Answers
from ._loops import variances_by_draws
from .logistic import LogisticLoss

# Up to this many items or pairs, variances are solved for; for more they are estimated from draws.
MOST_SOLVED = 256
N_DRAWS = 64
# Right-hand sides that are solved at a time: one pass over H serves all of them.
_BLOCK = 32
_MAX_ITERATIONS = 2000
_EXACT, _GOOD_ENOUGH = 1e-10, 1e-4


class LabelPosterior:
    """Covariances of the scores of labels at the mode, given answers.

    Parameters
    ----------
    answers : Answers
    alpha : float
    weights : ndarray of shape (m,)
        The scores at the mode.
    curvatures : ndarray of shape (l,), optional
        v; those of the logistic loss by default.

    Attributes
    ----------
    n_draws : int
        Draws from which very many variances are estimated.

    Notes
    -----
    O(l) memory, and O(nnz(H)) for each iteration of each solve: about 20 to 30 iterations for sports results.
    """

    def __init__(
        self, answers: Answers, alpha: float, weights: np.ndarray, curvatures: np.ndarray | None = None
    ):
        self.scores = self.mean = self.weights = weights
        self._answers, self._alpha = answers, alpha
        self._curvatures = LogisticLoss(answers, weights).curvatures if curvatures is None else curvatures
        L = answers.hessian(self._curvatures)
        self._H = sp.csr_array(L + 2.0 * alpha * sp.eye_array(weights.shape[0], format="csr"))
        self._diagonal = self._H.diagonal()
        self.n_draws = N_DRAWS
        self._draws: tuple[np.ndarray, np.ndarray] | None = None

    def solve(self, B: np.ndarray, accuracy: float = _EXACT) -> np.ndarray:
        """H⁻¹ B for columns B, by preconditioned conjugate gradients to a relative residual."""
        out = np.empty(B.shape)
        for start in range(0, B.shape[1], _BLOCK):
            out[:, start : start + _BLOCK] = self._solve_block(B[:, start : start + _BLOCK], accuracy)
        return out

    def _solve_block(self, B: np.ndarray, accuracy: float) -> np.ndarray:
        X, residual = np.zeros(B.shape), np.array(B, dtype=np.float64)
        weight = 1.0 / self._diagonal[:, None]
        z = weight * residual
        direction = z.copy()
        rz = np.einsum("ij,ij->j", residual, z)
        enough = accuracy**2 * rz
        for _ in range(_MAX_ITERATIONS):
            if (rz <= enough).all():
                break
            product = self._H @ direction
            curvature = np.einsum("ij,ij->j", direction, product)
            length = np.divide(rz, curvature, out=np.zeros_like(rz), where=curvature > 0)
            X += length * direction
            residual -= length * product
            z = weight * residual
            rz, last = np.einsum("ij,ij->j", residual, z), rz
            direction = z + np.divide(rz, last, out=np.zeros_like(rz), where=last > 0) * direction
        return X

    def covariance_of(self, items: np.ndarray) -> np.ndarray:
        """Covariances of some items, shape (k, k): k solves."""
        distinct, position = np.unique(items, return_inverse=True)
        C = np.empty((distinct.shape[0], distinct.shape[0]))
        for start in range(0, distinct.shape[0], _BLOCK):
            some = distinct[start : start + _BLOCK]
            B = np.zeros((self._diagonal.shape[0], some.shape[0]))
            B[some, np.arange(some.shape[0])] = 1.0
            C[:, start : start + _BLOCK] = self._solve_block(B, _EXACT)[distinct]
        C = 0.5 * (C + C.T)
        return C[np.ix_(position, position)]

    def variances(self, items: np.ndarray) -> np.ndarray:
        """Variances of some items; estimated where there are more than `MOST_SOLVED` of them."""
        distinct, position = np.unique(items, return_inverse=True)
        if distinct.shape[0] <= MOST_SOLVED:
            return np.diagonal(self.covariance_of(distinct))[position]
        F, HF = self._drawn()
        known = 1.0 / self._diagonal[:, None]
        return (known[:, 0] + np.mean(np.square(F - HF * known), axis=1))[items]

    def variances_of_differences(self, pairs: np.ndarray) -> np.ndarray:
        """Variance of f_h - f_j for each pair; estimated where there are more than `MOST_SOLVED` distinct pairs."""
        asked = Answers.read(self._diagonal.shape[0], pairs)
        distinct, which, _ = asked.distinct_pairs()
        if distinct.shape[0] <= MOST_SOLVED:
            return self._solved_differences(distinct)[which]
        return self._estimated_differences(distinct)[which]

    def _solved_differences(self, pairs: np.ndarray) -> np.ndarray:
        column = np.arange(pairs.shape[0])
        B = np.zeros((self._diagonal.shape[0], pairs.shape[0]))
        np.add.at(B, (pairs[:, 0], column), 1.0)
        np.subtract.at(B, (pairs[:, 1], column), 1.0)
        return np.maximum(np.einsum("ij,ij->j", B, self.solve(B)), 0.0)

    def _estimated_differences(self, pairs: np.ndarray) -> np.ndarray:
        """From the exact variance given all other items, and draws of the mean given these."""
        (h, j), (F, HF) = pairs.T, self._drawn()
        a, b = self._diagonal[h], self._diagonal[j]
        c = np.asarray(self._H[h, j]).ravel()
        determinant = a * b - c * c
        variance = np.where(h == j, 0.0, (a + b + 2.0 * c) / np.where(determinant > 0, determinant, 1.0))
        # (1, -1) times the inverse of the 2 × 2 block.
        left, right = (b + c) / determinant, -(a + c) / determinant
        variances_by_draws(pairs, left, right, np.ascontiguousarray(F), np.ascontiguousarray(HF), variance)
        # An answer's own curvature, -c for these two, and the prior bound it.
        return np.minimum(variance, 1.0 / (self._alpha - c))

    def _drawn(self) -> tuple[np.ndarray, np.ndarray]:
        """Draws f of the posterior and H f, each of shape (m, ``n_draws``); the same draws each time."""
        if self._draws is None:
            rng, m = np.random.default_rng(0), self._diagonal.shape[0]
            root, prior = np.sqrt(self._curvatures), np.sqrt(2.0 * self._alpha)
            columns = [
                self._answers.spread(root * rng.standard_normal(root.shape[0]))
                + prior * rng.standard_normal(m)
                for _ in range(self.n_draws)
            ]
            HF = np.stack(columns, axis=1)
            self._draws = self.solve(HF, _GOOD_ENOUGH), HF
        return self._draws
