"""The best single feature as a baseline, held out as a model is: the feature is chosen without what it then orders."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse as sp

from ..comparisons import Groups
from ..metrics.single_columns import column_of, column_shares


def best_feature_scores(X: Any, y: np.ndarray, units: Groups) -> np.ndarray:
    """In each unit the feature, up or down, that orders the *other* units best.

    Parameters
    ----------
    X : ndarray or sparse matrix of shape (m, n)
    y : ndarray of shape (m,)
    units : Groups
        What is held out as one: queries or folds.

    Returns
    -------
    ndarray of shape (m,)
        Scores; they are comparable inside a unit only.

    Notes
    -----
    O(n m log m).

    Examples
    --------
    >>> from preflearn.comparisons import encode_queries
    >>> X = np.array([[1.0, 5.0], [2.0, 4.0], [7.0, 0.0], [6.0, 1.0]])
    >>> best_feature_scores(X, np.array([0, 1, 0, 1]), encode_queries([1, 1, 2, 2], 4))
    array([-1., -2.,  7.,  6.])
    """
    columns = X.tocsc() if sp.issparse(X) else X
    up = np.nan_to_num(column_shares(X, y, units) - 0.5)  # (n, n_units); a unit without pairs says nothing
    others = up.sum(axis=1, keepdims=True) - up
    best = np.abs(others).argmax(axis=0)
    sign = np.where(others >= 0, 1.0, -1.0)
    scores = np.empty(y.shape[0])
    for unit, k in enumerate(best):
        rows = units.rows(unit)
        scores[rows] = sign[k, unit] * column_of(columns, k)[rows]
    return scores


def best_feature_of_preferences(X: Any, pairs: np.ndarray) -> float:
    """Share of preferences in the right order, each by the feature, up or down, that orders the others best.

    Parameters
    ----------
    X : ndarray or sparse matrix of shape (m, n)
    pairs : int array of shape (l, 2)
        Row ``pairs[k, 0]`` is preferred to row ``pairs[k, 1]``; a tie counts half.

    Notes
    -----
    O(l n), which is also the memory.

    Examples
    --------
    >>> best_feature_of_preferences(np.array([[3.0, 0.0], [2.0, 5.0], [1.0, 1.0]]), np.array([[0, 1], [1, 2], [0, 2]]))
    1.0
    """
    X = X.toarray() if sp.issparse(X) else X
    won = 0.5 * np.sign(X[pairs[:, 0]] - X[pairs[:, 1]])  # (l, n): 1/2 right, -1/2 wrong, 0 tied
    others = won.sum(axis=0) - won
    best = np.abs(others).argmax(axis=1)
    each = np.arange(won.shape[0])
    sign = np.where(others[each, best] >= 0, 1.0, -1.0)
    return float(np.mean(0.5 + sign * won[each, best]))
