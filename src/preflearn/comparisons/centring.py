"""Features less what the rows of a group have in common.

Comparisons inside groups do not see a constant that is added to a column. Squares do: a column of numbers near 1e9
that differ by 1 has squares whose last digit is worth more than the differences. So the means go first.
"""

from __future__ import annotations

import numpy as np

from .grouping import Groups


def centred(X: np.ndarray, groups: Groups) -> tuple[np.ndarray, np.ndarray]:
    """X less the mean row of each group, and those means.

    Parameters
    ----------
    X : ndarray of shape (m, n)
        Not modified.
    groups : Groups

    Returns
    -------
    Z : ndarray of shape (m, n)
    means : ndarray of shape (n_groups, n)

    Notes
    -----
    The mean is taken twice, the second time of what the first has left: a column that is constant inside a group
    becomes exactly zero there. O(m n).

    Examples
    --------
    >>> import numpy as np
    >>> from preflearn.comparisons import one_group
    >>> Z, means = centred(np.array([[0.1, 1.0], [0.1, 2.0], [0.1, 3.0]]), one_group(3))
    >>> Z.tolist()
    [[0.0, -1.0], [0.0, 0.0], [0.0, 1.0]]
    """
    if groups.n_groups == 1:
        means = X.mean(axis=0, keepdims=True, dtype=np.float64).astype(X.dtype, copy=False)
        Z = X - means
        rest = Z.mean(axis=0, keepdims=True)
        Z -= rest
        return Z, means + rest
    from .._engine.loops.segments import centre_rows, segment_sums

    X = np.ascontiguousarray(X)
    Z, unit, counts = np.empty_like(X), np.ones(X.shape[0]), groups.counts[:, None]
    means = segment_sums(X, groups.codes, groups.n_groups) / counts
    centre_rows(X, groups.codes, means, unit, Z)
    rest = segment_sums(Z, groups.codes, groups.n_groups) / counts
    centre_rows(Z, groups.codes, rest, unit, Z)
    return Z, means + rest


# Share of the squares of features that is left inside, below which what rows have in common costs digits.
_SMALL_SHARE = 1e-4


def offset_is_large(X: np.ndarray) -> bool:
    """Whether rows have so much in common that their squares lose digits to it. O(m n)."""
    mean = X.mean(axis=0)
    unit = np.abs(X).max(initial=0.0) or 1.0
    spread = np.square((X[: 1 << 14] - mean) / unit).sum(axis=1).mean()
    return bool(spread < _SMALL_SHARE * np.square(mean / unit).sum())
