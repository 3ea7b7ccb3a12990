"""Pairs of rows, and preferences, held out one at a time."""

from __future__ import annotations

import numpy as np

from ._held_out import HeldOut
from ._tally import PairTally


def leave_pair_out(estimator, X, y, *, pairs=None, groups=None, verbose=0) -> tuple[np.ndarray, np.ndarray]:
    """Predictions for both rows of each pair by the model trained without the two.

    Parameters
    ----------
    estimator : estimator
        `RLS` and `RankRLS` by algebra, anything else by refitting. A ranker treats the rows as one global ranking.
    X : as in the estimator's fit
    y : array-like of shape (m,)
    pairs : int array of shape (p, 2), optional
        All pairs i < j with different y by default.
    groups : array-like of shape (m,), optional
        All rows that share a group with one of the two leave the training with them.
    verbose : int, default=0
        Count the pairs on standard error.

    Returns
    -------
    pairs : ndarray of shape (p, 2)
    predictions : ndarray of shape (p, 2)

    See Also
    --------
    HeldOut.pairs : For several alphas from one factorisation.

    Notes
    -----
    All pairs cost O(m²) after one factorisation; for the score alone `leave_pair_out_tally` needs no array of pairs.
    Reference: Airola et al., "An experimental comparison of cross-validation techniques for estimating the area under
    the ROC curve", Computational Statistics and Data Analysis 55 (2011).

    Examples
    --------
    >>> import numpy as np
    >>> from preflearn import RLS
    >>> X = np.array([[0.0], [1.0], [2.0], [3.0], [4.0]])
    >>> pairs, predictions = leave_pair_out(RLS(0.1), X, [0, 0, 1, 1, 1], pairs=[[0, 4]])
    >>> bool(predictions[0, 1] > predictions[0, 0])
    True
    """
    pairs, predictions = HeldOut(estimator, X, y, groups=groups, verbose=verbose).pairs(pairs=pairs)
    return pairs, predictions[0, ...]  # the form that the array API allows


def leave_pair_out_tally(estimator, X, y, *, groups=None, verbose=0) -> PairTally:
    """For each row its held-out pairs and how many are ordered as y is: leave-pair-out without an array of pairs.

    Parameters
    ----------
    estimator, X, y, groups, verbose : as in leave_pair_out

    Returns
    -------
    PairTally
        ``share`` is the leave-pair-out concordance (AUC for two classes).
    """
    return HeldOut(estimator, X, y, groups=groups, verbose=verbose).tally()[0]


def leave_preference_out(
    estimator, X, pairs, *, magnitude=None, weight=None, groups=None, verbose=0
) -> np.ndarray:
    """For each preference the predicted difference by the model trained without it.

    Parameters
    ----------
    estimator : RankRLS, or any estimator with ``fit_pairs``
        `RankRLS` by algebra, others by refitting.
    X : as in fit_pairs
    pairs : int array of shape (l, 2)
    magnitude, weight : array-like of shape (l,), optional
        As in fit_pairs.
    groups : array-like of shape (l,), optional
        Label of each preference (a judge, a session): all preferences of a group are held out together.
    verbose : int, default=0

    Returns
    -------
    ndarray of shape (l,)
        f(better) - f(worse): positive when the held-out preference is predicted correctly.

    See Also
    --------
    HeldOut.of_pairs : For several alphas from one factorisation, and any sets of preferences.

    Examples
    --------
    >>> from preflearn import RankRLS
    >>> pairs = [[1, 0], [2, 1], [3, 2]]
    >>> bool((leave_preference_out(RankRLS(), [[0.0], [1.0], [2.0], [3.0]], pairs) > 0).all())
    True
    """
    options = {"magnitude": magnitude, "weight": weight, "groups": groups, "verbose": verbose}
    return HeldOut.of_pairs(estimator, X, pairs, **options).preferences()[0]
