"""How good held-out predictions of a relation are: an interval of their concordance, and what the means would reach.

Labels of one row object depend on each other, and so do those of one column object, so that e labels are not e
independent observations.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..comparisons import encode_queries, one_group
from ._intervals import most_effective, optimism, placement_variance, wilson_interval
from ._tally import tally_scores

# Pairs of labels that a baseline is measured on: its share has a standard error of about .001.
_MOST_PAIRS = 200_000


def relation_interval(
    row: np.ndarray, column: np.ndarray, y: np.ndarray, scores: np.ndarray, fitted: np.ndarray | None = None
) -> tuple[float, float]:
    """95 % interval of the concordance of held-out scores of labels.

    se² = se²(rows as clusters) + se²(columns as clusters) - se²(independent labels), in Wilson's form, with Student's
    quantile for the smaller number of objects.

    Parameters
    ----------
    row, column : int arrays of shape (e,)
        The objects of each label.
    y, scores : arrays of shape (e,)
    fitted : array of shape (e,), optional
        Scores by the model of all labels, where the others are held out from models of the same labels: the interval is
        widened for the luck of the training by ρ of `preflearn.model_selection._intervals`.

    Notes
    -----
    O(e log e).

    References
    ----------
    A. C. Cameron, J. B. Gelbach, D. L. Miller. Robust inference with multiway clustering. Journal of Business &
    Economic Statistics 29 (2011), 238-249.

    Examples
    --------
    >>> row, column = np.indices((6, 5)).reshape(2, -1)
    >>> low, high = relation_interval(row, column, 1.0 * row + column, 1.0 * row)
    >>> round(low, 2), round(high, 2)
    (0.66, 0.9)
    """
    n = y.shape[0]
    tally, strata = tally_scores(y, scores, one_group(n)), np.zeros(n, dtype=np.int64)
    sides = [encode_queries(index, n) for index in (row, column)]
    by_side = [placement_variance(tally, strata, side) for side in sides]
    variance = max(sum(by_side) - placement_variance(tally, strata), *by_side)
    fewest = min(side.n_groups for side in sides)
    luck = 0.0
    if fitted is not None:
        a, b = _some_pairs(n)
        luck = optimism(*(values[a] - values[b] for values in (y, scores, fitted)))
    return wilson_interval(
        tally.share, variance, most_effective(y), optimism=luck, freedom=max(fewest - 1, 1)
    )


def means_in_order(row: np.ndarray, column: np.ndarray, Y: np.ndarray, hold_out: str) -> float:
    """The concordance of a baseline: the mean of the other labels of the row plus that of the column.

    Each pair of labels is compared by means without both of them; in the settings "rows" and "columns" without all
    labels of their two objects, and the mean of a new object is that of all labels. Both new: one half.

    Parameters
    ----------
    row, column : int arrays of shape (e,)
        Where Y is known.
    Y : ndarray of shape (p, q)
        NaN where not known.
    hold_out : {"entries", "rows", "columns", "both"}

    Examples
    --------
    >>> Y = np.add.outer(np.arange(6.0), np.arange(5.0))
    >>> row, column = np.indices(Y.shape).reshape(2, -1)
    >>> [means_in_order(row, column, Y, setting) for setting in ("entries", "both")]
    [1.0, 0.5]
    """
    a, b = _some_pairs(row.shape[0])
    y = Y[row, column]
    untied = y[a] != y[b]
    a, b = a[untied], b[untied]
    difference = np.zeros(a.shape[0])
    for side, other, labels, new in ((row, column, Y, "rows"), (column, row, Y.T, "columns")):
        if hold_out not in (new, "both"):
            gone = hold_out != "entries"  # the other object of b has left with all of its labels
            difference += _mean_without(side, other, labels, a, b, gone)
            difference -= _mean_without(side, other, labels, b, a, gone)
    difference[np.abs(difference) <= 1e-12 * np.abs(y).max(initial=0.0)] = 0.0  # equal but for rounding
    return float(np.mean(0.5 + 0.5 * np.sign(difference) * np.sign(y[a] - y[b])))


def _some_pairs(n: int) -> Any:
    """All pairs of n labels, or a random sample of them."""
    if n * (n - 1) // 2 <= _MOST_PAIRS:
        return np.triu_indices(n, 1)
    return np.random.default_rng(0).integers(0, n, (2, _MOST_PAIRS))


def _mean_without(
    side: np.ndarray, other: np.ndarray, Y: np.ndarray, a: np.ndarray, b: np.ndarray, gone: bool
) -> np.ndarray:
    """Means of the labels of the objects of a, without a, and without b or all labels of the other object of b."""
    known = ~np.isnan(Y)
    filled = np.where(known, Y, 0.0)
    mine, its = (side[a], other[a]), (side[a], other[b])
    leaves = (other[a] != other[b]) & (gone | (side[a] == side[b])) & known[its]
    n = known.sum(axis=1)[side[a]] - 1 - leaves
    total = filled.sum(axis=1)[side[a]] - filled[mine] - np.where(leaves, filled[its], 0.0)
    return np.where(n > 0, total / np.maximum(n, 1), filled.sum() / known.sum())
