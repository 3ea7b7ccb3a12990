r"""The rounds of greedy selection: a state that features are added to, with the held-out error of each candidate.

The learner is ridge regression on transformed data, (S X, S y) with L = S S for a ranking, X and y themselves for a
regression (see `core.problem`); with an unregularised intercept the centring of all rows takes the place of the
identity. `loops.greedy` has the algebra of a round.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..loops.threads import transposed_product_in_threads
from ..numerics.memory import require_memory


@dataclass(frozen=True)
class _Choice:
    """The feature chosen last, as it was before the update: c, c / (1 + s), c'x of all features, E, and shares."""

    change: np.ndarray
    products: np.ndarray
    weighted: np.ndarray
    shares: np.ndarray


class Rounds:
    """Greedy selection in progress.

    Parameters
    ----------
    X : ndarray of shape (m, n)
        Not modified.
    y : ndarray of shape (m,)
    folds : list of int arrays
        A partition of the rows.
    alpha : float
    intercept : bool
    """

    def __init__(
        self, X: np.ndarray, y: np.ndarray, folds: list[np.ndarray], alpha: float, *, intercept: bool
    ) -> None:
        m, n = X.shape
        self._rows = np.concatenate(folds)
        self._starts = np.append(0, np.cumsum([fold.shape[0] for fold in folds]))
        single = len(folds) == m
        require_memory(8 * m * n * (1 if single else 2), f"greedy selection from {n} features of {m} rows")
        self.X = X
        # No feature yet: G = I / alpha, or C / alpha with an intercept.
        means = X.mean(axis=0) if intercept else np.zeros(n)
        self._C = X - means if intercept else X.copy()
        self._C *= 1 / alpha
        self.a = (y - y.mean() if intercept else y) / alpha
        self._s = np.einsum("ij,ij->j", X, self._C)
        self._t = transposed_product_in_threads(X, self.a)
        self._d = np.full(m, (1 - 1 / m if intercept else 1.0) / alpha)
        self._E = None if single else self._over_folds(self._C, alpha, intercept)
        self._Na = self._over_folds(self.a[:, None], alpha, intercept)[:, 0]
        nothing = np.zeros(m)
        self._last = _Choice(nothing, np.zeros(n), nothing, np.zeros(len(folds) + 1))

    def _over_folds(self, values: np.ndarray, alpha: float, intercept: bool) -> np.ndarray:
        """(G_HH)⁻¹ values_H for every fold H, before any feature is chosen."""
        out = alpha * values
        if intercept:
            sizes = np.diff(self._starts)
            sums = np.add.reduceat(values[self._rows], self._starts[:-1], axis=0)
            sums *= (alpha / (values.shape[0] - sizes))[:, None]
            out[self._rows] += np.repeat(sums, sizes, axis=0)
        return out

    def errors(self, residual: np.ndarray | None = None) -> np.ndarray:
        """Held-out squared error of every feature as the next one, shape (n,); residuals into ``residual`` (m, n)."""
        from ..loops.greedy import score_folds, score_single_rows

        scale = 1.0 / (1.0 + self._s)
        step, last = self._t * scale, self._last
        if self._E is None:
            return score_single_rows(
                self._C, last.change, last.products, self.a, self._d, step, scale, residual=residual
            )
        return score_folds(
            self._C,
            self._E,
            last.change,
            last.weighted,
            last.shares,
            last.products,
            self._rows,
            self._starts,
            self._Na,
            step,
            scale,
            residual=residual,
        )

    def add(self, feature: int) -> None:
        """Choose a feature; `errors` has to be asked for once before each choice."""
        c = self._C[:, feature].copy()
        size = 1.0 + float(self._s[feature])
        step = float(self._t[feature]) / size
        products = transposed_product_in_threads(self.X, c)
        self.a = self.a - c * step
        self._d = self._d - c * c / size
        self._s = np.maximum(self._s - products * products / size, 0.0)
        self._t = self._t - products * step
        v, shares = c, np.zeros_like(self._last.shares)
        if self._E is not None:
            v = self._E[:, feature].copy()
            shares = 1.0 / (size - np.append(self._sums(c * v), 0.0))
            self._Na = self._Na - v * step
            inner = np.empty_like(v)
            inner[self._rows] = np.repeat(self._sums(v * self.a) * shares[:-1], np.diff(self._starts))
            self._Na += v * inner
        self._last = _Choice(c / size, products, v, shares)

    def _sums(self, values: np.ndarray) -> np.ndarray:
        """Over each fold."""
        return np.add.reduceat(values[self._rows], self._starts[:-1])
