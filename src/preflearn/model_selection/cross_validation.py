"""Cross-validated predictions: by algebra for the squared-loss learners, by refitting for anything else."""

from __future__ import annotations

import numpy as np

from ..progress import Counter
from ._folds import read_folds
from ._held_out import read_problem


def cross_val_predict(
    estimator, X, y, *, qid=None, cv="leave-query-out", groups=None, sample_weight=None, verbose=0
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
    problem = read_problem(estimator, X, y, qid, sample_weight)
    folds = read_folds(cv, X, y, problem.n_rows, qid=qid, groups=groups)
    counter = Counter("cross_val_predict", len(folds.tests), "folds", verbose)
    predictions = problem.predict_folds(folds, problem.read_alphas(None), counter)
    out = folds.collect(predictions, problem.n_rows)[0]
    return problem.at_home(out[:, 0] if problem.single else out)
