r"""The rounds of greedy selection: a state that features are added to, with the held-out error of each candidate.

The learner is ridge regression on transformed data, (S X, S y) with L = S S for a ranking, X and y themselves for a
regression (see `squared.problem`); with an unregularised intercept the centring of all rows replaces the identity.
`_loops` has the algebra of a round and defines the symbols.
"""

from __future__ import annotations

import numpy as np

from ...numerics.memory import require_memory
from ...numerics.threads import n_threads, transposed_product_in_threads


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
        self.X, self._alpha = X, alpha
        # No feature yet: G = I / alpha, or C / alpha with an intercept.
        self._means = transposed_product_in_threads(X, np.full(m, 1 / m)) if intercept else np.zeros(n)
        self.a = (y - y.mean() if intercept else y) / alpha
        self._vectors = np.ones((1, m)) if intercept else np.empty((0, m))
        self._shares = self._means[None] / alpha if intercept else np.empty((0, n))
        self._t = transposed_product_in_threads(X, self.a)
        self._form = (_SingleRows if len(folds) == m else _SeveralRows)(self, folds, alpha, intercept)
        self._s = self._form.squares / alpha

    def errors(self) -> np.ndarray:
        """Held-out squared error of every feature as the next one, shape (n,)."""
        scale = 1.0 / (1.0 + self._s)
        return self._form.errors(self, self._t * scale, scale)

    def residuals(self) -> np.ndarray:
        """Held-out residuals of every feature as the next one, shape (m, n)."""
        require_memory(3 * self.X.nbytes, f"held-out residuals of {self.X.shape[1]} candidates")
        C = self.X / self._alpha - self._vectors.T @ self._shares
        scale = 1.0 / (1.0 + self._s)
        return self._form.residuals(self, C, self._t * scale, scale)

    def error(self) -> float:
        """Held-out squared error of the features chosen so far."""
        residual = self._form.residual(self)
        return float(residual @ residual)

    def add(self, feature: int) -> None:
        """Choose a feature; if `errors` is used at all, it must be called once before each choice."""
        c = self.X[:, feature] / self._alpha - self._shares[:, feature] @ self._vectors
        size = 1.0 + float(self._s[feature])
        step = float(self._t[feature]) / size
        products = transposed_product_in_threads(self.X, c)
        self._form.before(self, c, size)
        self.a = self.a - c * step
        self._s = np.maximum(self._s - products * products / size, 0.0)
        self._t = self._t - products * step
        self._vectors = np.vstack([self._vectors, c])
        self._shares = np.vstack([self._shares, products / size])
        self._form.after(self, c, size)


class _SingleRows:
    """Folds of one row each: e = a / diag(G)."""

    def __init__(self, rounds: Rounds, folds: list[np.ndarray], alpha: float, intercept: bool):
        m, n = rounds.X.shape
        require_memory(8 * m * n, f"greedy selection from {n} features of {m} rows")
        self._d = np.full(m, (1 - 1 / m if intercept else 1.0) / alpha)
        self._base, self._unit, self._written = rounds.X, 1 / alpha, 0
        from ._loops import squares_of_folds

        blocks = np.linspace(0, m, min(m, n_threads()) + 1).astype(np.int64)  # one for each thread
        self.squares = squares_of_folds(rounds.X, rounds._means, np.arange(m), blocks)[0].sum(axis=0)

    def errors(self, rounds: Rounds, step: np.ndarray, scale: np.ndarray) -> np.ndarray:
        from ._loops import PENDING, score_single_rows

        m, n = rounds.X.shape
        pending = rounds._vectors.shape[0] - self._written
        store = None
        if pending == PENDING:
            store = np.empty((m, n)) if self._base is rounds.X else self._base
        vectors, shares = np.zeros((m, PENDING)), np.zeros((PENDING, n))
        vectors[:, :pending] = rounds._vectors[self._written :].T
        shares[:pending] = rounds._shares[self._written :]
        found = score_single_rows(
            self._base, self._unit, vectors, shares, rounds.a, self._d, step, scale, store
        )
        if store is not None:
            self._base, self._unit, self._written = store, 1.0, rounds._vectors.shape[0]
        return found

    def residuals(self, rounds: Rounds, C: np.ndarray, step: np.ndarray, scale: np.ndarray) -> np.ndarray:
        below = self._d[:, None] - C * C * scale
        C *= -step
        C += rounds.a[:, None]
        C /= below
        return C

    def residual(self, rounds: Rounds) -> np.ndarray:
        return rounds.a / self._d

    def before(self, rounds: Rounds, c: np.ndarray, size: float) -> None:
        pass

    def after(self, rounds: Rounds, c: np.ndarray, size: float) -> None:
        self._d = self._d - c * c / size


class _SeveralRows:
    """Folds of any size, by numbers of each fold and candidate."""

    def __init__(self, rounds: Rounds, folds: list[np.ndarray], alpha: float, intercept: bool):
        from ._loops import squares_of_folds

        m, n = rounds.X.shape
        require_memory(2 * 8 * len(folds) * n, f"greedy selection from {n} features with {len(folds)} folds")
        self._alpha = alpha
        self._rows = np.concatenate(folds)
        sizes = np.array([fold.shape[0] for fold in folds])
        self._starts = np.append(0, np.cumsum(sizes))
        # N = alpha, or alpha (1 + 1 1ᵀ / (m - h)) with an intercept; then a term for each feature.
        self._terms = np.ones((1, m)) if intercept else np.empty((0, m))
        self._weights = alpha / (m - sizes)[None] if intercept else np.empty((0, len(folds)))
        squares, sums = squares_of_folds(rounds.X, rounds._means, self._rows, self._starts)
        self.squares = squares.sum(axis=0)
        self._own, self._square = squares / alpha, squares
        if intercept:
            along, of_ones = (alpha / (m - sizes))[:, None], (sums / alpha) ** 2
            self._own = self._own + along * of_ones
            self._square = self._square + along * (2 * alpha + along * sizes[:, None]) * of_ones
        self._Na = self._times(rounds.a)
        self._w = self._Nw = np.zeros(m)
        self._change = np.zeros((len(folds), 4))

    def _times(self, q: np.ndarray) -> np.ndarray:
        """N q."""
        from ._loops import times_folds

        return times_folds(self._alpha, self._terms, self._weights, self._rows, self._starts, q)

    def _sums(self, values: np.ndarray) -> np.ndarray:
        """Over each fold; the first axis is that of the rows."""
        return np.add.reduceat(values[self._rows], self._starts[:-1])

    def errors(self, rounds: Rounds, step: np.ndarray, scale: np.ndarray) -> np.ndarray:
        from ._loops import products_of_folds, score_folds

        queue = np.stack([self._w, self._Nw, self._Na, self._times(self._Na)], axis=1)
        vectors, shares = rounds._vectors, rounds._shares
        if not self._change[:, 2].any():  # no choice to catch up with: a dummy one that changes nothing
            vectors, shares = (
                np.vstack([vectors, np.zeros(len(queue))]),
                np.vstack([shares, np.zeros(len(step))]),
            )
        products = products_of_folds(vectors, queue, self._rows, self._starts)
        self._change[:, 3] = self._sums(self._Na**2)
        data = (rounds.X, 1 / self._alpha, self._rows, self._starts, queue, shares, products, self._change)
        found = score_folds(*data, self._own, self._square, np.stack([step, scale]))
        self._change[:, :3] = 0.0
        return found

    def residuals(self, rounds: Rounds, C: np.ndarray, step: np.ndarray, scale: np.ndarray) -> np.ndarray:
        for h in range(self._starts.shape[0] - 1):
            rows = self._rows[self._starts[h] : self._starts[h + 1]]
            c, terms, Na = C[rows], self._terms[:, rows], self._Na[rows]
            E = self._alpha * c + terms.T @ (self._weights[:, h, None] * (terms @ c))
            own = np.einsum("ij,ij->j", c, E)
            kappa = (Na @ c - own * step) * scale / (1.0 - own * scale) - step
            C[rows] = Na[:, None] + E * kappa
        return C

    def residual(self, rounds: Rounds) -> np.ndarray:
        return self._Na

    def before(self, rounds: Rounds, c: np.ndarray, size: float) -> None:
        self._w = self._times(c)
        self._Nw = self._times(self._w)

    def after(self, rounds: Rounds, c: np.ndarray, size: float) -> None:
        own = self._sums(c * self._w)
        weights = 1.0 / (size - own)
        self._change[:, :3] = np.stack([own, self._sums(self._w**2), weights], axis=1)
        self._terms = np.vstack([self._terms, self._w])
        self._weights = np.vstack([self._weights, weights])
        self._Na = self._times(rounds.a)
