"""Every pair of rows held out separately, for several alphas from one factorisation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..comparisons import Comparisons, encode_queries
from ..comparisons.censored import lived_longer
from ..comparisons.inputs import NOBODY_OUTLIVED
from ..progress import Counter
from ..squared.holdout.base import HoldOut, intercept_of_rest
from ..squared.holdout.feature import FeatureHoldOut
from ..squared.holdout.pair import PairSystem, has_pair_form, reduced_pair_predictions, tie_twins
from ._basis_rows import refuse_folds_of_whole_basis
from ._choice import relative_rounding, rounding_of
from ._tally import PairTally, tally_pairs

if TYPE_CHECKING:
    from ._problem import Problem


def predict_pairs(
    problem: Problem, pairs: np.ndarray, alphas: Sequence[float], groups: Any = None, verbose: int = 0
) -> np.ndarray:
    """Predictions for both rows of each pair by the model trained without the two, shape (n_alphas, p, 2, v).

    Parameters
    ----------
    problem : Problem
        Rows are one global ranking, or a regression.
    pairs : int array of shape (p, 2)
    alphas : sequence of float
    groups : array-like of shape (m,), optional
        All rows that share a group with one of the two leave the training with them.
    verbose : int, default=0
        Count the training sets where they are held out one by one.
    """
    if len(problem.tasks) > 1:  # comparisons of their own
        outputs = [problem.with_targets(y) for y in problem.scores.T]
        return np.concatenate([predict_pairs(one, pairs, alphas, groups, verbose) for one in outputs], axis=3)
    systems = _closed_forms(problem, alphas, groups)
    return np.stack(
        [
            _predictions(problem, pairs, alpha, system, groups, verbose)
            for alpha, system in zip(alphas, systems, strict=True)
        ]
    )


def tally_all_pairs(
    problem: Problem, alphas: Sequence[float], groups: Any = None, verbose: int = 0
) -> list[PairTally]:
    """For each alpha the held-out pairs of rows with different y, and how many are ordered as y is.

    ``problem`` predicts what is to be compared.
    """
    y = order_of_rows(problem)
    tallies = []
    for alpha, system in zip(alphas, _closed_forms(problem, alphas, groups), strict=True):
        if system is None:
            pairs = pairs_to_order(problem)
            f = _predictions(problem, pairs, alpha, None, groups, verbose)[:, :, 0]
            tallies.append(tally_pairs(y, pairs, f))
            continue

        def repair(pairs: np.ndarray, alpha: float = alpha) -> np.ndarray:
            return _hold_out_each(problem, pairs, alpha)[:, :, 0]

        counts = system.counts(
            y,
            rounding_of(y, system.size, system.alpha),
            problem.twins,
            repair,
        )
        tallies.append(_tally(counts))
    return tallies


def order_of_rows(problem: Any) -> np.ndarray:
    """Numbers that say which of two compared rows is the better one, shape (m,): y, or who lived longer."""
    scores, events = problem.scores[:, 0], problem.events
    return scores if events is None else lived_longer(scores, events).astype(float)


def pairs_to_order(problem: Any) -> np.ndarray:
    """All pairs i < j of rows of which it is known which one is better, shape (p, 2)."""
    events = problem.events
    if events is None:
        return untied_pairs(problem.scores)
    order = order_of_rows(problem)
    pairs = untied_pairs(order)
    first = np.where(order[pairs[:, 0]] < order[pairs[:, 1]], pairs[:, 0], pairs[:, 1])
    if not events[first].any():
        raise ValueError(NOBODY_OUTLIVED)
    return pairs[events[first]]


def untied_pairs(y: np.ndarray) -> np.ndarray:
    """All pairs i < j of rows that differ in y, of shape (m,), or in a column of it; shape (p, 2)."""
    differ = np.zeros((y.shape[0], y.shape[0]), dtype=bool)
    for column in y.reshape(y.shape[0], -1).T:
        differ |= column[:, None] != column
    i, j = np.nonzero(np.triu(differ, 1))
    if i.size == 0:
        raise ValueError("All y are equal: there is no pair with different scores to hold out.")
    return np.stack([i, j], axis=1)


def sets_leaving(pairs: np.ndarray, n_rows: int, groups: Any) -> tuple[list[np.ndarray], np.ndarray]:
    """The distinct sets of rows that leave with pairs, and the number of the set of each pair."""
    if groups is None:
        return rows_leaving(pairs, n_rows, None), np.arange(pairs.shape[0])
    owners = np.sort(encode_queries(groups, n_rows).codes[pairs], axis=1)
    _, first, number = np.unique(owners, axis=0, return_index=True, return_inverse=True)
    return rows_leaving(pairs[first], n_rows, groups), np.ravel(number)


def rows_leaving(pairs: np.ndarray, n_rows: int, groups: Any) -> list[np.ndarray]:
    """The rows that leave with each pair, ascending."""
    if groups is None:
        return list(np.sort(pairs, axis=1))
    owners = encode_queries(groups, n_rows)
    sets = []
    for pair in pairs:
        sets.append(np.flatnonzero(np.isin(owners.codes, owners.codes[pair])))
        if sets[-1].shape[0] >= n_rows - 1:
            raise ValueError(
                f"The groups of the pair {pair.tolist()} contain all rows but one: nothing is left to train on. "
                "Hold out one group at a time (in estimates method='averaged'), or name smaller groups."
            )
    return sets


def _predictions(
    problem: Problem,
    pairs: np.ndarray,
    alpha: float,
    system: PairSystem | None,
    groups: Any,
    verbose: int,
) -> np.ndarray:
    """The predictions at one alpha, shape (p, 2, v)."""
    if system is not None:
        f = _with_intercept(problem, pairs, system.predictions(pairs))
        bad = system.unstable(pairs) | np.isnan(f).any(axis=(1, 2))
        if bad.any():
            f[bad] = _hold_out_each(problem, pairs[bad], alpha)
        return _tied(problem, f, pairs, system.size, system.alpha)
    if groups is None:
        task, source = _routine(problem)
        reduced = isinstance(source, FeatureHoldOut) and source.basis_leaves
        if has_pair_form(task) and reduced and source.is_well_determined(alpha):  # type: ignore[union-attr]
            _refuse_pairs_of_whole_basis(problem, list(pairs))
            f = _with_intercept(problem, pairs, reduced_pair_predictions(source, pairs, alpha))  # type: ignore[arg-type]
            return _tied(problem, f, pairs, source.size, alpha)  # type: ignore[union-attr]
    return _hold_out_each(problem, pairs, alpha, groups, verbose)


def _refuse_pairs_of_whole_basis(problem: Problem, leaving: list[np.ndarray]) -> None:
    if problem.feature_map is not None:
        refuse_folds_of_whole_basis(problem.feature_map.basis_indices_, leaving, "Pair")


def _routine(problem: Problem, *, many_alphas: bool = False) -> tuple[Comparisons, HoldOut | None]:
    (found,) = problem.routines(many_alphas=many_alphas)
    return found


def _closed_forms(problem: Problem, alphas: Sequence[float], groups: Any) -> Iterator[PairSystem | None]:
    """The closed form of all pairs at each alpha; None where basis vectors or groups may have to leave with them, or
    where it is not precise enough."""
    (task,) = problem.tasks
    if groups is not None or problem.feature_map is not None or not has_pair_form(task):
        return iter([None] * len(alphas))
    asked = problem.asked(many_alphas=len(alphas) > 1 or problem.has_path)

    def routine(many_alphas: bool) -> HoldOut | None:
        return _routine(problem, many_alphas=many_alphas)[1]

    return problem.representation(task).pair_systems(task, alphas, asked, routine)


def _with_intercept(problem: Problem, pairs: np.ndarray, found: np.ndarray) -> np.ndarray:
    f = found[:, :2]
    if not problem.intercept:
        return f - found[:, 2:] if problem.to_compare else f
    y = problem.scores
    y_rest = y.sum(axis=0) - y[pairs].sum(axis=1)
    return f + intercept_of_rest(y.shape[0], y_rest, found[:, 2], f.sum(axis=1), 2)[:, None]


def _tied(problem: Problem, f: np.ndarray, pairs: np.ndarray, size: float, alpha: float) -> np.ndarray:
    """Predictions of pairs, made equal where they differ only by rounding and are to be compared."""
    if not problem.to_compare:
        return f
    f = tie_twins(f, problem.twins[pairs])
    spread = np.ptp(problem.scores, axis=0) if problem.events is None else 1.0
    close = np.abs(f[:, 0] - f[:, 1]) <= spread * relative_rounding(size, alpha)
    return np.where(close[:, None], f.mean(axis=1, keepdims=True), f)


def _tally(counts: np.ndarray) -> PairTally:
    """Of right, tied and all pairs with lower y, and the same with higher y."""
    return PairTally(
        counts[:, 0] + counts[:, 3] + 0.5 * (counts[:, 1] + counts[:, 4]),
        (counts[:, 2] + counts[:, 5]) * 1.0,
    )


def _hold_out_each(
    problem: Problem, pairs: np.ndarray, alpha: float, groups: Any = None, verbose: int = 0
) -> np.ndarray:
    """Pair by pair through the general hold-out; pairs of the same two groups share a training set."""
    leaving = rows_leaving(pairs, problem.n_rows, groups)
    _refuse_pairs_of_whole_basis(problem, leaving)
    distinct: dict[bytes, int] = {}
    which = np.array([distinct.setdefault(left.tobytes(), len(distinct)) for left in leaving])
    folds = [np.frombuffer(key, dtype=np.int64) for key in distinct]
    refitted = len(problem.tasks) == 1 and problem.is_refitted(folds, [alpha])
    task, routine = (problem.tasks[0], None) if refitted else _routine(problem)
    counter = Counter("leave_pair_out", len(folds), "training sets", verbose)
    predictions = problem.predict_task(task, routine, folds, [alpha], counter)
    out = np.empty((pairs.shape[0], 2, problem.scores.shape[1]))
    place = np.empty(problem.n_rows, dtype=np.int64)
    for number, fold in enumerate(folds):
        mine = np.flatnonzero(which == number)
        place[fold] = np.arange(fold.shape[0])
        out[mine] = predictions[number][0][place[pairs[mine]]]
    return out if routine is None else _tied(problem, out, pairs, routine.size, alpha)
