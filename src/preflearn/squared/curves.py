r"""A curve for each of some features, beside a kernel on all of them: f(x) = k(x, R) β + Σ_j g_j(x_j).

A kernel on distances has to learn what a single feature does again for every combination of the others. Curves take
that over, so that the kernel is left with what features do together:

    g_j(x) = s_j Σ_k γ_jk exp(-(x - z_jk)² / 2 h_j²)

with knots z_jk at quantiles of the feature. The factors s_j are those of the learned metric: a feature that matters
little has a flat curve, and one that was forgotten has none. The penalty of γ is `STIFFNESS` times that of the kernel.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

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
