"""Rows, pairs and preferences held out: by algebra for the squared-loss learners, by refitting for anything else."""

from __future__ import annotations

import numpy as np

from ..progress import Counter
from ._folds import read_folds
from ._held_out import HeldOut, read_problem
from ._tally import PairTally


def cross_val_predict(
    estimator, X, y, *, qid=None, cv="leave-query-out", groups=None, sample_weight=None, event=None, verbose=0
) -> np.ndarray:
    """For each row the prediction of the model trained without its fold.

    Identical to refitting: by algebra for `RLS` and `RankRLS` (full kernel, linear, reduced set: held-out basis vectors
    leave the model too); by refitting for any other estimator, pipelines included.

    Parameters
    ----------
    estimator : estimator
        Not modified.
    X : as in the estimator's fit
    y : array-like of shape (m,) or (m, v)
    qid : array-like of shape (m,), optional
        Query labels.
    cv : str, int, splitter or iterable, default="leave-query-out"
        ``"leave-one-out"``, ``"leave-query-out"``, ``"leave-group-out"``, a number of folds (of whole queries when qid
        is given), a splitter, the sets of test rows themselves, or (train, test) pairs that are complements. Sets may
        overlap: a row in several gets the mean of its predictions, a row in none NaN.
    groups : array-like of shape (m,), optional
        Labels of dependent rows (documents, patients): all rows that share a group with a test row leave the training
        with it.
    sample_weight : array-like of shape (m,), optional
        Weights of the rows in training, as in the fit of `RLS`, `RankRLS` and `RankSVM`.
    event : array-like of bool, shape (m,), optional
        Where y holds censored times, as in the fit of `RankRLS`. A structured y holds both.
    verbose : int, default=0
        Count the folds on standard error.

    Returns
    -------
    ndarray of shape (m,) or (m, v)

    See Also
    --------
    HeldOut : Several requests (alphas, folds, measures) from one factorisation.

    Notes
    -----
    One factorisation, then for a fold H O(|H|² m) with the full kernel and O(|H|² r) with r features.
    Reference: Pahikkala et al., Machine Learning 75 (2009), section 3; Airola, Pahikkala and Salakoski, "On learning
    and cross-validation with decomposed Nyström approximation of kernel matrix", Neural Processing Letters 33 (2011).

    Examples
    --------
    >>> import numpy as np
    >>> from preflearn import RankRLS
    >>> from preflearn.metrics import concordance
    >>> from preflearn.model_selection import cross_val_predict
    >>> rng = np.random.default_rng(0)
    >>> X, qid = rng.normal(size=(60, 3)), np.repeat(np.arange(6), 10)
    >>> y = X @ [1.0, -2.0, 0.5] + 5 * qid
    >>> round(concordance(y, cross_val_predict(RankRLS(), X, y, qid=qid), qid), 3)
    1.0
    """
    problem = read_problem(estimator, X, y, qid, sample_weight, groups, event)
    folds = read_folds(cv, X, y, problem.n_rows, qid=qid, groups=groups)
    counter = Counter("cross_val_predict", len(folds.tests), "folds", verbose)
    predictions = problem.predict_folds(folds, problem.read_alphas(None), counter)
    out = folds.collect(predictions, problem.n_rows)[0]
    return problem.at_home(out[:, 0] if problem.single else out)


def leave_pair_out(
    estimator, X, y, *, pairs=None, groups=None, event=None, verbose=0
) -> tuple[np.ndarray, np.ndarray]:
    """Predictions for both rows of each pair by the model trained without the two.

    Parameters
    ----------
    estimator : estimator
        `RLS` and `RankRLS` by algebra, anything else by refitting. A ranker treats the rows as one global ranking.
    X : as in the estimator's fit
    y : array-like of shape (m,) or (m, v)
    pairs : int array of shape (p, 2), optional
        By default all pairs i < j with different y; of several outputs, all that differ in at least one of them; with
        censored times, those of which one row outlived the other.
    groups : array-like of shape (m,), optional
        All rows that share a group with one of the two leave the training with them.
    event : as in cross_val_predict
    verbose : int, default=0
        Count the pairs on standard error.

    Returns
    -------
    pairs : ndarray of shape (p, 2)
    predictions : ndarray of shape (p, 2) or (p, 2, v)

    See Also
    --------
    HeldOut.pairs : For several alphas from one factorisation.

    Notes
    -----
    All pairs of v outputs cost O(m² v) after one factorisation, which the outputs share unless their comparisons
    differ (ties left out, costs "unit" and "relative"). For the score alone `leave_pair_out_tally` needs no array of
    pairs.
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
    held = HeldOut(estimator, X, y, groups=groups, event=event, verbose=verbose)
    pairs, predictions = held.pairs(pairs=pairs)
    return pairs, predictions[0, ...]  # the form that the array API allows


def leave_pair_out_tally(estimator, X, y, *, groups=None, event=None, verbose=0) -> PairTally:
    """For each row its held-out pairs and how many are ordered as y is: leave-pair-out without an array of pairs.

    Parameters
    ----------
    estimator, X, y, groups, event, verbose : as in leave_pair_out

    Returns
    -------
    PairTally
        ``share`` is the leave-pair-out concordance (AUC for two classes).
    """
    return HeldOut(estimator, X, y, groups=groups, event=event, verbose=verbose).tally()[0]


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
