"""Pairs of rows, and preferences, held out one at a time."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..comparisons import PreferenceComparisons, encode_queries
from ..core.feature_holdout import FeatureHoldOut
from ..core.holdout import intercept_of_rest, rows_outside
from ..core.pair_holdout import (
    dual_pair_system,
    feature_pair_system,
    has_pair_form,
    reduced_pair_predictions,
    tie_twins,
)
from ..estimators.validation import read_alpha, read_pairs, read_per_pair
from ..kernels.functions import n_items
from ..numerics.namespace import Home, as_host, is_device_array
from ..solvers.progress import Counter
from .cross_validation import LearningProblem, has_closed_form, refit_and_predict
from .tally import PairTally, rounding_of, tally_pairs


def leave_pair_out(estimator, X, y, *, pairs=None, groups=None, verbose=0):
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

    Notes
    -----
    All pairs cost O(m²) after one factorisation; for the score alone `leave_pair_out_tally` needs no array of pairs.
    Reference: Airola et al., "An experimental comparison of cross-validation techniques for estimating the
    area under the
    ROC curve", Computational Statistics and Data Analysis 55 (2011).

    Examples
    --------
    >>> import numpy as np
    >>> from preflearn import RLS
    >>> X = np.array([[0.0], [1.0], [2.0], [3.0], [4.0]])
    >>> pairs, predictions = leave_pair_out(RLS(0.1), X, [0, 0, 1, 1, 1], pairs=[[0, 4]])
    >>> bool(predictions[0, 1] > predictions[0, 0])
    True
    """
    return _leave_pair_out(estimator, X, y, pairs, groups, verbose)


def pairs_to_compare(estimator, X, y, *, pairs=None, groups=None, verbose=0):
    """`leave_pair_out` for the order of the two predictions of a pair: they may lack a common constant.

    Where only rounding tells the two apart they are equal.
    """
    pairs, predictions = _leave_pair_out(estimator, X, y, pairs, groups, verbose, to_compare=True)
    return as_host(pairs), as_host(predictions)


def _leave_pair_out(estimator, X, y, pairs, groups, verbose, to_compare=False):
    y = _one_score(y, n_items(X))
    pairs = _all_pairs(y) if pairs is None else read_pairs(as_host(pairs), y.shape[0])
    if has_closed_form(estimator):
        problem = LearningProblem.read(estimator, X, y, None)
        problem.to_compare = to_compare
        predictions = _predict_pairs(problem, pairs, read_alpha(estimator.alpha), groups, verbose)
        if is_device_array(problem.X):
            pairs = Home.of(problem.X).put_as_is(pairs)
        return pairs, problem.at_home(predictions)
    leaving = _leaving(pairs, y.shape[0], groups)
    counter = Counter("leave_pair_out", pairs.shape[0], "pairs", verbose)
    out = np.empty((pairs.shape[0], 2))
    for k, (pair, left) in enumerate(zip(pairs, leaving, strict=True)):
        out[k] = refit_and_predict(estimator, X, y, None, rows_outside(y.shape[0], left), pair)
        counter(k + 1)
    return pairs, out


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
    y = _one_score(y, n_items(X))
    if has_closed_form(estimator) and groups is None:
        problem = LearningProblem.read(estimator, X, y, None)
        problem.to_compare = True
        task, alpha = problem.tasks()[0], read_alpha(estimator.alpha)
        system = _pair_system(problem, task, alpha) if has_pair_form(task) else None
        if system is not None:
            counts = system.counts(
                y,
                rounding_of(y, system.size, system.alpha),
                problem.twins,
                lambda pairs: _hold_out_each(problem, pairs, alpha, None, 0),
            )
            return PairTally(
                counts[:, 0] + counts[:, 3] + 0.5 * (counts[:, 1] + counts[:, 4]),
                (counts[:, 2] + counts[:, 5]) * 1.0,
            )
    return tally_pairs(y, *pairs_to_compare(estimator, X, y, groups=groups, verbose=verbose))


def _pair_system(problem: LearningProblem, task, alpha: float):
    """The closed form of all pairs; None when basis vectors may have to leave with them, or it has too few digits."""
    if is_device_array(problem.X):
        from ..arrays.pairs import dual_device_pairs, feature_device_pairs

        if problem.feature_map() is not None:
            return None
        if not _has_features(problem):
            return dual_device_pairs(problem.X, problem.kernel, task, alpha)
        return feature_device_pairs(problem.hold_out(task, many_alphas=False), alpha)  # type: ignore[arg-type]
    if problem.feature_map() is None and not _has_features(problem):
        K, pull = problem.kernel_and_pull(task)
        try:
            return dual_pair_system(K, task, alpha, pull)
        except np.linalg.LinAlgError:
            source: Any = problem.stable_hold_out(task)
    else:
        source = problem.hold_out(task, many_alphas=False)
    if not isinstance(source, FeatureHoldOut) or problem.feature_map() is not None:
        return None
    return feature_pair_system(source, alpha) if source.is_firm(alpha) else None


def _has_features(problem: LearningProblem) -> bool:
    """The linear kernel with fewer features than rows; conjugate gradients are refitted."""
    if not problem.kernel.is_linear:
        return False
    return problem.estimator.solver == "cg" or problem.X.shape[1] <= problem.n_rows


def _predict_pairs(problem: LearningProblem, pairs, alpha: float, groups, verbose) -> np.ndarray:
    task = problem.tasks()[0]
    if groups is None and has_pair_form(task):
        system = _pair_system(problem, task, alpha)
        if system is not None:
            f = _with_intercept(problem, pairs, system.predictions(pairs))
            bad = system.unstable(pairs)
            if bad.any():
                f[bad] = _hold_out_each(problem, pairs[bad], alpha, None, 0)
            return _compared(problem, f, pairs, system.size, system.alpha)
        source = problem.hold_out(task, many_alphas=False)
        if isinstance(source, FeatureHoldOut) and source._leaving_basis is not None and source.is_firm(alpha):
            f = _with_intercept(problem, pairs, reduced_pair_predictions(source, pairs, alpha))
            return _compared(problem, f, pairs, source.size, alpha)
    return _hold_out_each(problem, pairs, alpha, groups, verbose)


def _compared(problem: LearningProblem, f: np.ndarray, pairs, size: float, alpha: float) -> np.ndarray:
    """Predictions of pairs, those that only rounding tells apart made equal where they are to be compared."""
    if not problem.to_compare:
        return f
    f = tie_twins(f, problem.twins[pairs])
    close = np.abs(f[:, 0] - f[:, 1]) <= rounding_of(problem.scores, size, alpha)
    f[close] = f[close].mean(axis=1, keepdims=True)
    return f


def _with_intercept(problem: LearningProblem, pairs: np.ndarray, found: np.ndarray) -> np.ndarray:
    f = found[:, :2]
    if not problem.intercept:
        return f - found[:, 2:] if problem.to_compare else f
    y = problem.scores[:, 0]
    return f + intercept_of_rest(y, y[pairs].sum(axis=1), found[:, 2], f.sum(axis=1), 2)[:, None]


def _hold_out_each(problem: LearningProblem, pairs, alpha, groups, verbose) -> np.ndarray:
    """Pair by pair through the general hold-out; pairs of the same two groups share a training set."""
    leaving = _leaving(pairs, problem.n_rows, groups)
    distinct: dict[bytes, int] = {}
    which = np.array([distinct.setdefault(left.tobytes(), len(distinct)) for left in leaving])
    folds = [np.frombuffer(key, dtype=np.int64) for key in distinct]
    counter = Counter("leave_pair_out", len(folds), "training sets", verbose)
    task = problem.tasks()[0]
    machine = problem.hold_out(task, many_alphas=False)
    predictions = problem.predict_folds(task, machine, folds, [alpha], counter)
    out = np.empty((pairs.shape[0], 2))
    place = np.empty(problem.n_rows, dtype=np.int64)
    for number, fold in enumerate(folds):
        mine = np.flatnonzero(which == number)
        place[fold] = np.arange(fold.shape[0])
        out[mine] = predictions[number][0, :, 0][place[pairs[mine]]]
    return out if machine is None else _compared(problem, out, pairs, machine.size, alpha)


def leave_preference_out(estimator, X, pairs, *, magnitude=None, weight=None, groups=None, verbose=0):
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
        Label of each preference (a judge, a session): all preferences of a group leave together.
    verbose : int, default=0

    Returns
    -------
    ndarray of shape (l,)
        f(better) - f(worse): positive when the held-out preference is predicted rightly.

    Examples
    --------
    >>> from preflearn import RankRLS
    >>> pairs = [[1, 0], [2, 1], [3, 2]]
    >>> bool((leave_preference_out(RankRLS(), [[0.0], [1.0], [2.0], [3.0]], pairs) > 0).all())
    True
    """
    if not hasattr(estimator, "fit_pairs"):
        raise TypeError(
            f"leave_preference_out needs an estimator with fit_pairs: found {type(estimator).__name__}."
        )
    n_rows = n_items(X)
    pairs = read_pairs(pairs, n_rows)
    magnitude = read_per_pair(magnitude, pairs.shape[0], "magnitude")
    weight = read_per_pair(weight, pairs.shape[0], "weight", positive=True)
    sets = _preference_sets(groups, pairs.shape[0])
    counter = Counter("leave_preference_out", len(sets), "training sets", verbose)
    if has_closed_form(estimator):
        return _preferences_by_algebra(estimator, X, pairs, magnitude, weight, sets, counter)
    return _preferences_by_refitting(estimator, X, pairs, magnitude, weight, sets, counter)


def _preference_sets(groups: Any, n_pairs: int) -> list[np.ndarray]:
    if n_pairs < 2:
        raise ValueError(
            "leave_preference_out needs at least two preferences: nothing would be left to train on."
        )
    if groups is None:
        return list(np.arange(n_pairs)[:, None])
    owners = encode_queries(groups, n_pairs)
    if owners.n_groups < 2:
        raise ValueError("All preferences are in one group: nothing would be left to train on.")
    return [owners.rows(group) for group in range(owners.n_groups)]


def _preferences_by_algebra(estimator, X, pairs, magnitude, weight, sets, counter) -> np.ndarray:
    alpha = read_alpha(estimator.alpha)
    estimator._refuse_score_options()
    problem = LearningProblem.read(estimator, X, np.zeros(n_items(X)), None)
    task = PreferenceComparisons(problem.n_rows, pairs, magnitude, weight)
    machine = problem.hold_out(task, many_alphas=False)
    if not isinstance(machine, FeatureHoldOut):
        return _preferences_by_refitting(estimator, X, pairs, magnitude, weight, sets, counter)
    return machine.predict_without_preferences(sets, alpha, on_fold=counter)


def _preferences_by_refitting(estimator, X, pairs, magnitude, weight, sets, counter) -> np.ndarray:
    from sklearn.base import clone

    out = np.empty(pairs.shape[0])
    for number, left in enumerate(sets):
        rest = rows_outside(pairs.shape[0], left)
        extra = {
            name: values[rest]
            for name, values in (("magnitude", magnitude), ("weight", weight))
            if values is not None
        }
        f = clone(estimator).fit_pairs(X, pairs[rest], **extra).predict(X)
        out[left] = f[pairs[left, 0]] - f[pairs[left, 1]]
        counter(number + 1)
    return out


def _one_score(y: Any, n_rows: int) -> np.ndarray:
    y = np.asarray(as_host(y), dtype=float)
    if y.shape != (n_rows,):
        raise ValueError(
            f"Pairs are held out by one score per row: found y of shape {y.shape} for {n_rows} rows."
        )
    if not np.isfinite(y).all():
        raise ValueError("y contains NaN or infinity.")
    if n_rows < 4:
        raise ValueError(
            f"leave_pair_out needs at least four rows, two to hold out and two to train on: found {n_rows}."
        )
    return y


def _all_pairs(y: np.ndarray) -> np.ndarray:
    i, j = np.nonzero(np.triu(y[:, None] != y[None, :], 1))
    if i.size == 0:
        raise ValueError("All y are equal: there is no pair with different scores to hold out.")
    return np.stack([i, j], axis=1)


def _leaving(pairs: np.ndarray, n_rows: int, groups: Any) -> list[np.ndarray]:
    """The rows that leave with each pair, ascending."""
    if groups is None:
        return list(np.sort(pairs, axis=1))
    owners = encode_queries(groups, n_rows)
    sets = []
    for pair in pairs:
        sets.append(np.flatnonzero(np.isin(owners.codes, owners.codes[pair])))
        if sets[-1].shape[0] >= n_rows - 1:
            raise ValueError(
                f"The groups of the pair {pair.tolist()} hold all rows but one: nothing is left to train on."
            )
    return sets
