"""How well single columns order the rows on their own: the simplest baseline, and a way to detect leaks.

A column that alone orders nearly every pair is usually not a good feature but one that is known only afterwards: the
seconds that a visitor stayed, the date of the purchase. As a baseline it is held out as a model is: the column is
chosen without the rows that it then orders.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse as sp

from ..comparisons import Groups
from ..comparisons.inputs import order_of
from .pairwise import concordance

# A column that alone orders this share of the pairs is left out of the command that `look` proposes ...
LEAK_SHARE = 0.99
# ... and one that orders at least this share, and hardly less than the model where there is one, is questioned.
_NEARLY_LEAK, _OF_THE_MODEL = 0.9, 0.98


@dataclass(frozen=True)
class SingleColumn:
    """A column and how well it orders the rows alone.

    Attributes
    ----------
    name : str
    share : float
        Mean concordance over queries, in the better direction.
    highest_first : bool
        The better direction.
    """

    name: str
    share: float
    highest_first: bool = True

    def __str__(self) -> str:
        return self.name if self.highest_first else f"{self.name}, lowest first"


def column_shares(X: Any, y: np.ndarray, units: Groups) -> np.ndarray:
    """Concordance of every column, in ascending direction, in every unit.

    Parameters
    ----------
    X : ndarray or sparse matrix of shape (m, n)
    y : ndarray of shape (m,)
    units : Groups

    Returns
    -------
    ndarray of shape (n, n_units)
        NaN in units without a pair. O(n m log m).
    """
    columns = X.tocsc() if sp.issparse(X) else X
    return np.array(
        [concordance(y, column_of(columns, k), units, per_query=True).values for k in range(X.shape[1])]
    )


def column_of(columns: Any, k: int) -> np.ndarray:
    """Column k as a vector."""
    return columns[:, [k]].toarray()[:, 0] if sp.issparse(columns) else columns[:, k]


def order_alone(name: str, values: np.ndarray, y: np.ndarray, units: Groups) -> SingleColumn:
    """One column of numbers, in its better direction; missing values come first or last, whichever is better.

    Examples
    --------
    >>> from preflearn.comparisons import one_group
    >>> str(order_alone("price", np.array([3.0, 1.0, np.nan]), np.array([0, 1, 2]), one_group(3)))
    'price, lowest first'
    """
    missing = np.isnan(values)
    ends = (-np.inf, np.inf) if missing.any() else (0.0,)
    best = SingleColumn(name, 0.0)
    for end in ends:
        ranks = np.unique(np.where(missing, end, values), return_inverse=True)[1].astype(np.float64)
        up = float(concordance(y, ranks, units))
        if max(up, 1.0 - up) > best.share:
            best = SingleColumn(name, max(up, 1.0 - up), up >= 0.5)
    return best


def labels_alone(name: str, codes: np.ndarray, y: np.ndarray, units: Groups) -> SingleColumn:
    """One column of labels (codes from -1 on), ordered by their mean targets in the other half of the queries.

    Without queries, in the other half of the rows.
    """
    values = order_of(y)
    values = values - values.mean()
    half = units.codes % 2 if units.n_groups > 1 else np.arange(y.shape[0]) % 2
    scores = np.zeros(y.shape[0])
    for side in (0, 1):
        learn, use = half != side, half == side
        n = np.bincount(codes[learn] + 1, minlength=int(codes.max()) + 2)
        total = np.bincount(codes[learn] + 1, weights=values[learn], minlength=n.shape[0])
        scores[use] = (total / np.maximum(n, 1))[codes[use] + 1]
    return SingleColumn(name, float(concordance(y, scores, units)))


def best_feature_scores(X: Any, y: np.ndarray, units: Groups) -> np.ndarray:
    """In each unit the feature, up or down, that orders the *other* units best.

    Parameters
    ----------
    X : ndarray or sparse matrix of shape (m, n)
    y : ndarray of shape (m,)
    units : Groups
        What is held out together: queries or folds.

    Returns
    -------
    ndarray of shape (m,)
        Scores; they can be compared only inside a unit.

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
    up = np.nan_to_num(column_shares(X, y, units) - 0.5)  # (n, n_units); a unit without pairs does not count
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
        Row ``pairs[k, 0]`` is preferred to row ``pairs[k, 1]``; a tie counts as half.

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


def suspicious(columns: Sequence[SingleColumn], model_share: float | None = None) -> list[SingleColumn]:
    """The columns that alone order so well that they may give the target away, best first.

    Parameters
    ----------
    columns : sequence of SingleColumn
    model_share : float, optional
        The share that the whole model orders when held out: then only columns that are nearly as good are suspicious.
        One of several columns is from 90 % on, a single one from 99 % on.
    """
    least = LEAK_SHARE if len(columns) == 1 else _NEARLY_LEAK
    if model_share is not None and len(columns) > 1:
        least = min(LEAK_SHARE, max(least, 0.5 + _OF_THE_MODEL * (model_share - 0.5)))
    return sorted((one for one in columns if one.share >= least), key=lambda one: -one.share)


def leak_question(column: SingleColumn, model_share: float | None = None, *, option: str = "") -> str:
    """The sentence about a suspicious column; ``option`` is how to leave it out."""
    text = f"`{column.name}` alone orders {_percent(column.share)} of the pairs"
    if model_share is not None and column.share < LEAK_SHARE:
        text += f", the whole model {_percent(model_share)}"
    return f"{text}: is it known before ranking? {option}".rstrip()


def _percent(share: float) -> str:
    """A share in per cent; only 1 is 100 %."""
    shown = 100 * share
    return (
        f"{shown:.0f} %"
        if share in (0.0, 1.0)
        else f"{min(shown, 99.99):.2f} %"
        if shown > 99.9
        else f"{shown:.1f} %"
    )
