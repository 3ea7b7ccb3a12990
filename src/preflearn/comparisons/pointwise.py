"""Each row compared with its own target: plain regularised least squares, L = I and b = y."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import scipy.sparse as sp

from .base import Comparisons, HalfRemoval, Removal
from .grouping import Groups


class PointwiseComparisons(Comparisons):
    """J(f) = ‖y - f‖² + λ ‖f‖².

    Parameters
    ----------
    scores : ndarray of shape (m, v)
        The targets y.
    """

    has_half = True
    ignores_constants = False

    def __init__(self, scores: np.ndarray):
        self.n_rows = scores.shape[0]
        self.n_comparisons = self.n_rows
        self.target = scores

    def laplacian(self, V: np.ndarray) -> np.ndarray:
        return V

    def diagonal(self) -> np.ndarray:
        return np.ones(self.n_rows)

    def indicators(self) -> list[tuple[sp.csr_array, np.ndarray]]:
        return [(sp.eye_array(self.n_rows, format="csr"), np.ones(self.n_rows))]

    def half(self, V: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
        if out is None or out is V:
            return V
        out[...] = V
        return out

    def half_inverse(self, V: np.ndarray) -> np.ndarray:
        return V

    def anchors(self) -> None:
        return None

    def drop_half(self, rows: np.ndarray) -> HalfRemoval:
        return HalfRemoval(rows)

    @property
    def half_target(self) -> np.ndarray:
        return self.target

    def half_levels(self) -> list[Groups]:
        return []

    def half_factors(self) -> tuple[np.ndarray, np.ndarray]:
        return np.ones(self.n_rows), np.ones(self.n_rows)

    def half_both_sides(self, K: np.ndarray) -> np.ndarray:
        return K

    def blocks(self, V: np.ndarray, n_rows: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        for start in range(0, self.n_rows, n_rows):
            block = V[start : start + n_rows]
            yield block, block

    def take(self, rows: np.ndarray) -> PointwiseComparisons:
        return PointwiseComparisons(self.target[rows])

    def drop(self, rows: np.ndarray) -> Removal:
        return Removal(rows, np.eye(rows.shape[0]), np.ones(rows.shape[0]), self.target[rows])

    def squared_targets(self) -> np.ndarray:
        return np.einsum("ij,ij->j", self.target, self.target)

    def total_weight(self) -> float:
        return float(self.n_rows)
