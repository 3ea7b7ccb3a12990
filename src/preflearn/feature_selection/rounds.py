r"""The rounds of greedy selection: a state that a chosen feature is added to, with the held-out error of every
candidate.

The learner is ridge regression on transformed data, (S X, S y) with L = S S for a ranking, X and y themselves for a
regression (see `core.problem`); an unregularised intercept takes the place of the identity by the centring of all
rows. `loops.greedy` has the algebra of a round.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..numerics.memory import require_memory


@dataclass
class Rounds:
    """Greedy selection in progress.

    Attributes
    ----------
    X : ndarray of shape (n, m)
        One row per feature, rows of the data in the order of the folds.
    a : ndarray of shape (m,)
        Dual vector of the features chosen so far.
    starts : ndarray of shape (n_folds + 1,)
        First row of each fold, and m.
    """

    X: np.ndarray
    a: np.ndarray
    starts: np.ndarray
    _C: np.ndarray
    _E: np.ndarray | None
    _d: np.ndarray
    _Na: np.ndarray
    _chosen: np.ndarray
    _change: np.ndarray
    _weighted: np.ndarray
    _shares: np.ndarray

    @classmethod
    def begin(
        cls, X: np.ndarray, y: np.ndarray, starts: np.ndarray, alpha: float, *, intercept: bool
    ) -> Rounds:
        """No feature chosen yet: G = I / alpha, or C / alpha with an intercept.

        Parameters
        ----------
        X : ndarray of shape (n, m)
            Not modified.
        y : ndarray of shape (m,)
        """
        n, m = X.shape
        single = starts.shape[0] == m + 1
        require_memory(8 * n * m * (1 if single else 2), f"greedy selection from {n} features of {m} rows")
        C = X / alpha
        a = y / alpha
        if intercept:
            C -= C.mean(axis=1, keepdims=True)
            a = a - a.mean()
        zeros = np.zeros(m)
        E, Na = None, zeros
        if not single:
            E, Na = _over_folds(C, starts, alpha, intercept), _over_folds(a, starts, alpha, intercept)
        d = np.full(m, (1 - 1 / m if intercept else 1.0) / alpha)
        return cls(X, a, starts, C, E, d, Na, zeros, zeros, zeros, np.zeros(starts.shape[0]))

    def errors(self, residual: np.ndarray | None = None) -> np.ndarray:
        """Held-out squared error of every feature as the next one, shape (n,); residuals into ``residual`` (n, m)."""
        from ..loops.greedy import score_folds, score_single_rows

        found = np.empty(self.X.shape[0])
        if self._E is None:
            score_single_rows(
                self.X, self._C, self._chosen, self._change, self.a, self._d, found, residual=residual
            )
        else:
            score_folds(
                self.X,
                self._C,
                self._E,
                self._chosen,
                self._change,
                self._weighted,
                self._shares,
                self.starts,
                self.a,
                self._Na,
                found,
                residual=residual,
            )
        # The update of C and E is done.
        self._chosen = self._change = self._weighted = np.zeros_like(self.a)
        self._shares = np.zeros_like(self._shares)
        return found

    def add(self, feature: int) -> None:
        """Choose a feature; call `errors` first."""
        x, c = self.X[feature], self._C[feature].copy()
        size = 1.0 + float(x @ c)
        step = float(x @ self.a) / size
        self.a = self.a - c * step
        self._chosen, self._change = c, c / size
        if self._E is None:
            self._d = self._d - c * c / size
            return
        v = self._E[feature].copy()
        own = np.add.reduceat(c * v, self.starts[:-1])
        shares = 1.0 / (size - own)
        Na = self._Na - v * step
        inner = np.add.reduceat(v * self.a, self.starts[:-1]) * shares
        self._Na = Na + v * np.repeat(inner, np.diff(self.starts))
        self._weighted, self._shares = v, np.append(shares, 1.0 / size)


def _over_folds(values: np.ndarray, starts: np.ndarray, alpha: float, intercept: bool) -> np.ndarray:
    """(G_HH)⁻¹ values_H for every fold H, before any feature is chosen."""
    if not intercept:
        return alpha * values
    sizes = np.diff(starts)
    sums = np.add.reduceat(values, starts[:-1], axis=-1) / (starts[-1] - sizes)
    return alpha * (values + np.repeat(sums, sizes, axis=-1))
