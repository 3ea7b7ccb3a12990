r"""What a search may say about itself: held-out predictions at settings that other folds chose, and their score.

The best of many scores is too high, since it was chosen by the labels that it is scored on. Divide the folds into at
most ten parts P, with m_P rows, and let c_P(s) be the score of setting s (an alpha, a kernel) on part P. Then

    s_P = argmax over s of Σ_{Q ≠ P} m_Q c_Q(s)

is chosen without the labels of P, and what s_P predicts for P, held out, for all P together, is scored once. All of
this is in the matrix of held-out predictions that the search has anyway: nothing is trained again.

The interval (:mod:`._intervals`) is about new queries (new rows of a global ranking) and the model that was trained on
all rows: held-out predictions of different folds depend on each other through the training rows that they share, which
Student's interval over queries does not see. Its variance is multiplied by 1 + ρ, between 1 with a clear signal and 2
without any. ``benchmarks/coverage.py --only estimate_`` measures how often it contains the concordance of that model.

For the same reason the others' choice knows a little of P. Let the errors of c_P(s) be a common one of the shared rows,
with the variance ρ v / B for B parts, plus one of P's own rows, with the variance v. The best of all scores is too high
by some multiple of the sum of both, and what P shows at the others' choice by that of the common one alone: by at most
ρ times D, the best score minus the value. D is near 0 where the settings predict much the same, as with a linear
kernel, or where one is clearly the best; kernels from narrow to wide on noise are the other case (20 queries of ten
rows: the value is .01 too high, D is .026; ``benchmarks/choice.py``). The ends of the interval move away as if D were
one more normal error's standard deviation.

For measures that are not shares of pairs the variance is that of a jackknife: with the independent units (groups,
queries, else rows) dealt into B ≤ 50 blocks and θ_b the measure without block b, (B - 1) / B Σ (θ_b - θ̄)².

References
----------
C. Nadeau, Y. Bengio. Inference for the generalization error. Machine Learning 52 (2003), 239-281.
S. Bates, T. Hastie, R. Tibshirani. Cross-validation: what does it estimate and how well does it do it? Journal of the
American Statistical Association 119 (2024), 1434-1445.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from scipy.stats import t as student

from ..comparisons import Groups, encode_queries, one_group
from ..comparisons.censored import lived_longer
from ..metrics.registry import full_name, metric_title, named_metric
from ._choice import SAME_SCORE, Comparable, Scoring, choose, read_scoring
from ._folds import Folds, units_of
from ._intervals import (
    LEVEL,
    TRAINED_TOGETHER,
    groups_of_queries,
    interval_inside_folds,
    interval_over_queries,
    mean_interval,
    optimism,
    optimism_inside,
    placement_values,
    widening,
    wilson_interval,
)
from ._performance import C_INDEX, PerformanceEstimate
from ._tally import share_in_order, tally_scores

_MOST_PARTS = 10
_MOST_BLOCKS = 50
# Predictions (in numbers) that wait until somebody asks for the estimate; more are reduced to the chosen ones at once.
_MOST_WAITING = 5_000_000
METHOD = "nested cross-validation"
FOLDS = "{:,} folds of {}, each predicted by a model that was trained without {}, {}"
JACKKNIFE = f"by the jackknife over {{}} blocks of {{}}, with Student's t, {TRAINED_TOGETHER}"
OF_THE_CHOICE = "and for that of the choice, by how much the best score of all settings is above this value"
BY_OTHERS = "at the settings that the other folds choose"


class Judge(Protocol):
    """How held-out predictions of folds are scored.

    Attributes
    ----------
    tests : list of int arrays
        What each fold predicts.
    """

    @property
    def tests(self) -> list[np.ndarray]: ...

    @property
    def limits(self) -> tuple[float, float]:
        """The range of the measure."""
        ...

    def score_part(self, numbers: np.ndarray, predictions: list[np.ndarray]) -> np.ndarray:
        """The scores, shape (a,), of some folds from their numbers and predictions (a, n_test, v); NaN for none."""
        ...

    def estimate(self, predictions: list[np.ndarray], fitted: np.ndarray) -> PerformanceEstimate:
        """From one prediction of each fold, (1, n_test, v), and those of the model of all rows for its own rows."""
        ...


class NestedChoice:
    """Held-out predictions whose settings are chosen by the other folds; only the best so far is kept.

    Parameters
    ----------
    judge : Judge
    per_output : bool, default=False
        Whether each output has settings of its own; with a `RowJudge`.
    """

    def __init__(self, judge: Any, *, per_output: bool = False) -> None:
        self.judge: Judge = judge
        outputs = range(judge.y.shape[1]) if per_output else ()
        self._choosing: list[tuple[Any, Judge]] = [([k], judge.of_output(k)) for k in outputs]
        self._choosing = self._choosing or [(slice(None), judge)]
        n_folds = len(judge.tests)
        self._parts = np.array_split(np.arange(n_folds), min(_MOST_PARTS, n_folds))
        self._sizes = np.array(
            [sum(judge.tests[k].shape[0] for k in part) for part in self._parts], dtype=float
        )
        self._best = np.full((len(self._choosing), len(self._parts)), -np.inf)
        # The scores of the parts at their settings, and the best score of all parts at one setting.
        self._own = np.full(self._best.shape, np.nan)
        self._top = np.full(len(self._choosing), -np.inf)
        self._kept: list[np.ndarray | None] = [None] * n_folds
        self._waiting: tuple[np.ndarray, list[np.ndarray]] | None = None
        self._n_scored = 0

    def see(self, grid: np.ndarray, held_out: list[np.ndarray]) -> None:
        """Add the settings of a grid, with their predictions for each fold, of shape (a, n_test, v)."""
        self._settle()
        self._waiting = grid, held_out
        if sum(one.size for one in held_out) > _MOST_WAITING:
            self._settle()

    def _settle(self) -> None:
        """Choose among what is kept and the settings that were added last."""
        if self._waiting is None:
            return
        (grid, every), self._waiting = self._waiting, None
        for number in range(len(self._choosing)):
            self._choose(number, grid, every)

    def _choose(self, number: int, grid: np.ndarray, every: list[np.ndarray]) -> None:
        """For each part, from the scores of these outputs in the others."""
        (columns, judge), best = self._choosing[number], self._best[number]
        held_out = [one[:, :, columns] for one in every]
        scores = np.stack(
            [judge.score_part(part, [held_out[k] for k in part]) for part in self._parts], axis=1
        )
        weights = np.where(np.isnan(scores), 0.0, self._sizes)  # (a, parts)
        sums = np.nan_to_num(scores) * weights
        self._n_scored = int(np.count_nonzero(weights.any(axis=0)))
        total, weight = sums.sum(axis=1), weights.sum(axis=1)
        if weight.all():
            self._top[number] = max(self._top[number], float((total / weight).max()))
        for place, part in enumerate(self._parts):
            left = weight - weights[:, place]
            if not left.all():
                continue
            others = (total - sums[:, place]) / left
            choice = choose(others, grid)[0]
            if others[choice] > best[place] + SAME_SCORE:
                best[place], self._own[number, place] = others[choice], scores[choice, place]
                for k in part:
                    kept = self._kept[k]
                    self._kept[k] = kept = np.full(every[k][:1].shape, np.nan) if kept is None else kept
                    kept[:, :, columns] = held_out[k][choice]

    def predictions(self) -> list[np.ndarray] | None:
        """One prediction of each fold, (1, n_test, v); None where there are no other folds to choose by."""
        self._settle()
        kept = [one for one in self._kept if one is not None and not np.isnan(one).any()]
        return None if self._n_scored < 2 or len(kept) < len(self._kept) else kept

    def estimate(self, fitted: np.ndarray) -> PerformanceEstimate:
        """The estimate, from what the model trained on all rows predicts for its own rows, shape (m, v)."""
        predictions = self.predictions()
        if predictions is None:
            raise ValueError(
                "There is no estimate: fewer than two parts of the folds have rows to compare, and one is needed to "
                "choose by and one to score. Use more folds, or estimate_concordance at a fixed alpha."
            )
        found = self.judge.estimate(predictions, fitted)
        known = ~np.isnan(self._own)
        own = np.where(known, self._own, 0.0) @ self._sizes / np.maximum(known @ self._sizes, 1.0)
        gained = float(np.mean(self._top - own))
        if not gained > 0:
            return found
        (low, high), (least, most) = found.interval, self.judge.limits
        error = float(student.ppf(0.5 + LEVEL / 2, np.inf)) * gained
        return replace(
            found,
            interval=(
                max(least, found.value - float(np.hypot(found.value - low, error))),
                min(most, found.value + float(np.hypot(high - found.value, error))),
            ),
            standard_error=float(np.hypot(found.standard_error, gained)),
            interval_method=f"{found.interval_method}, {OF_THE_CHOICE}",
        )


@dataclass(frozen=True)
class RowJudge:
    """Scores predictions of rows.

    Attributes
    ----------
    scoring : Scoring
    folds : Folds
    queries : Groups
    y : ndarray of shape (m, v)
    pooled : bool
        As in `Comparable.of`.
    groups : Groups or None
        Rows of a group depend on each other.
    units : tuple of Groups
        Independent objects that rows belong to, where a row has several (the two of an entry of a relation).
    noun : str
        What a row is called.
    choices : str
        How the settings of a fold were chosen.
    """

    scoring: Scoring
    folds: Folds
    queries: Groups
    y: np.ndarray
    pooled: bool = False
    groups: Groups | None = None
    units: tuple[Groups, ...] = ()
    noun: str = "rows"
    choices: str = BY_OTHERS

    @property
    def tests(self) -> list[np.ndarray]:
        return self.folds.tests

    def score_part(self, numbers: np.ndarray, predictions: list[np.ndarray]) -> np.ndarray:
        part = Folds([self.folds.tests[k] for k in numbers], [self.folds.leaving[k] for k in numbers])
        # The R² of all rows is the largest where the squared error is the smallest, and that is a sum over parts.
        as_r2 = _name_of(self.scoring) == "r2"
        scoring = read_scoring("neg_mean_squared_error") if as_r2 else self.scoring
        try:
            scores = self._comparable(part, scoring).score(scoring, self.y, predictions)
            return scores / max(float(self.y.var()), np.finfo(float).tiny) if as_r2 else scores
        except ValueError:  # nothing to compare
            return np.full(predictions[0].shape[0], np.nan)

    @property
    def limits(self) -> tuple[float, float]:
        name = _name_of(self.scoring)
        return named_metric(name).limits if name else (-np.inf, np.inf)

    def of_output(self, number: int) -> RowJudge:
        """The same for one of the outputs."""
        return replace(self, y=self.y[:, [number]])

    def score(self, predictions: list[np.ndarray]) -> np.ndarray:
        """The score of all folds at every alpha, shape (a,)."""
        return self.comparable.score(self.scoring, self.y, predictions)

    @cached_property
    def comparable(self) -> Comparable:
        """Which predictions may be compared; refuses folds in which a measure of rankings would have no two rows."""
        return self._comparable(self.folds, self.scoring)

    def _comparable(self, folds: Folds, scoring: Scoring) -> Comparable:
        return Comparable.of(scoring, folds, self.queries, pooled=self.pooled)

    def estimate(self, predictions: list[np.ndarray], fitted: np.ndarray) -> PerformanceEstimate:
        comparable = self.comparable
        rows = comparable.rows[comparable.order]
        name, independent = self._independent()
        units = [encode_queries(one.codes[rows], rows.shape[0]) for one in independent]
        return estimate_of_rows(
            self.scoring,
            self.y[rows],
            np.concatenate(predictions, axis=1)[0][comparable.order],
            np.reshape(fitted, (self.y.shape[0], -1))[rows],
            comparable.within,
            units,
            in_queries=None if self.units else self.queries.n_groups > 1,
            unit=name,
            compared=self._compared(),
            counted=self._counted(),
        )

    def _independent(self) -> tuple[str, Sequence[Groups]]:
        """What rows belong to that is independent: groups, else queries, else the rows themselves."""
        if self.units:
            return "objects", self.units
        if self.groups is not None:
            with contextlib.suppress(ValueError):  # all rows depend on each other, through groups and queries
                return "groups", [
                    units_of(self.queries if self.queries.n_groups > 1 else None, self.groups, len(self.y))
                ]
        if self.queries.n_groups > 1:
            return "queries", [self.queries]
        return self.noun, [Groups(np.arange(self.y.shape[0]), self.y.shape[0])]

    def _compared(self) -> str:
        kinds = [("groups", self.groups), ("queries", self.queries if self.queries.n_groups > 1 else None)]
        tests = [np.unique(test) for test in self.tests]
        of = [
            f"whole {name}" for name, one in kinds if one is not None and all(map(one.are_whole, tests))
        ]  # fmt: skip
        without = "it" if self.groups is None else "the groups of its rows"
        return FOLDS.format(len(tests), " and ".join(of) or self.noun, without, self.choices)

    def _counted(self) -> str:
        counts = [(one.n_groups, "objects") for one in self.units]
        if self.groups is not None:
            counts.append((self.groups.n_groups, "groups"))
        if self.queries.n_groups > 1 and not self.units:
            counts.append((self.queries.n_groups, "queries"))
        return ", ".join(f"{n:,} {what}" for n, what in [*counts, (self.y.shape[0], self.noun)])


@dataclass(frozen=True)
class PreferenceJudge:
    """Scores predicted differences of preferences.

    Attributes
    ----------
    scoring : Scoring
    folds : Folds
        Of preferences.
    truth : ndarray of shape (l,)
        Magnitudes; ones without.
    groups : Groups or None
        Preferences of a group (a judge) depend on each other.
    off : float or None
        What is subtracted from the share in the right order; None for a measure that compares with the magnitudes.
    """

    scoring: Scoring
    folds: Folds
    truth: np.ndarray
    groups: Groups | None
    off: float | None

    @property
    def tests(self) -> list[np.ndarray]:
        return self.folds.tests

    @property
    def limits(self) -> tuple[float, float]:
        return (-np.inf, np.inf) if self.off is None else (-self.off, 1.0 - self.off)

    def score(self, predictions: list[np.ndarray]) -> np.ndarray:
        """The score of all folds at every alpha, shape (a,)."""
        return self.score_part(np.arange(len(self.tests)), predictions)

    def score_part(self, numbers: np.ndarray, predictions: list[np.ndarray]) -> np.ndarray:
        rows = np.concatenate([self.tests[k] for k in numbers])
        return self._scores(rows, np.concatenate(predictions, axis=1)[:, :, 0])

    def _scores(self, rows: np.ndarray, values: np.ndarray) -> np.ndarray:
        if self.off is not None:
            return np.array([share_in_order(f) for f in values]) - self.off
        everything = one_group(rows.shape[0])
        return np.array(
            [self.scoring.measure(self.truth[rows, None], f[:, None], everything) for f in values]
        )

    def estimate(self, predictions: list[np.ndarray], fitted: np.ndarray) -> PerformanceEstimate:
        rows = np.concatenate(self.tests)
        f, y, n = np.concatenate(predictions, axis=1)[0, :, 0], self.truth[rows], rows.shape[0]
        value = float(self._scores(rows, f[None])[0])
        lost = optimism(y, f, fitted[rows])
        owners = encode_queries(rows if self.groups is None else self.groups.codes[rows], n)
        of = "groups of preferences" if self.groups is not None else "preferences"
        right = 0.5 + 0.5 * np.sign(f)
        if self.off is None:
            variance, n_blocks = jackknife(
                lambda some: self.scoring.measure(y[some, None], f[some, None], one_group(some.size)), owners
            )
            variance *= widening(lost)
            interval = students_interval(value, variance, n_blocks)
            method = JACKKNIFE.format(n_blocks, of)
        else:
            share = value + self.off
            variance = mean_interval(right, owners)[0]
            # Where all are right (or wrong), nothing is known about how much those of a group resemble each other.
            most = owners.n_groups if share in (0.0, 1.0) else n
            low, high = wilson_interval(share, variance, most, optimism=lost, freedom=owners.n_groups - 1)
            variance *= widening(lost)
            interval = low - self.off, high - self.off
            method = f"Wilson's form for a share of independent {of}, {TRAINED_TOGETHER}"
        counted = f"{owners.n_groups:,} groups, " if self.groups is not None else ""
        name = _name_of(self.scoring)
        return PerformanceEstimate(
            value=value,
            interval=interval,
            method=METHOD,
            n_pairs=n,
            measure=metric_title(name) if name else "score",
            n_rows=n,
            standard_error=float(np.sqrt(variance)),
            compared=FOLDS.format(len(self.tests), "preferences", "it", BY_OTHERS),
            interval_method=method,
            per_row=right,
            counted=f"{counted}{n:,} preferences",
        )


def estimate_of_rows(
    scoring: Scoring,
    y: np.ndarray,
    held_out: np.ndarray,
    fitted: np.ndarray,
    within: Groups,
    units: Sequence[Groups],
    *,
    in_queries: bool | None,
    unit: str,
    compared: str,
    counted: str,
) -> PerformanceEstimate:
    """The score of held-out predictions, with an interval for new queries, or new rows.

    Parameters
    ----------
    scoring : Scoring
    y, held_out, fitted : ndarray of shape (m, v)
        Labels (or times and events), predictions by models trained without the row, and those of the model trained on
        all rows.
    within : Groups
        Rows that may be compared.
    units : sequence of Groups
        What is independent; the variances of several kinds of units are added.
    in_queries : bool or None
        Whether rows that may be compared are those of a query, which has a value of its own; None where neither
        queries nor rows are what is independent.
    unit, compared, counted : str
        What a unit is called, what was held out, and how much of it there was.
    """
    name, n_outputs = _name_of(scoring), held_out.shape[1]
    events = y[:, 1] > 0 if scoring.knows_events else None
    order = y if events is None else lived_longer(y[:, 0], events)[:, None] * 1.0
    inside = within if n_outputs == 1 else _of_outputs(within, n_outputs)
    columns = order.T.ravel(), held_out.T.ravel(), fitted.T.ravel()
    if name in ("concordance", "auc") and in_queries is not None and not _weights_pairs(scoring):
        owners = encode_queries(np.tile(units[0].codes, n_outputs), order.size)
        found = _share_of_pairs(
            columns, inside, owners, unit, events, in_queries=in_queries, n_outputs=n_outputs
        )
    else:
        value = float(scoring.measure(y, held_out, within))

        def measure(rows: np.ndarray) -> float:
            inside = encode_queries(within.codes[rows], rows.shape[0])
            return float(scoring.measure(y[rows], held_out[rows], inside))

        parts = [jackknife(measure, one) for one in units]
        n_blocks = min(blocks for _, blocks in parts)
        variance = widening(optimism_inside(*columns, inside.codes)) * sum(one for one, _ in parts)
        low, high = students_interval(value, variance, n_blocks)
        least, most = named_metric(name).limits if name else (-np.inf, np.inf)
        found = {
            "value": value,
            "interval": (max(low, least), min(high, most)),
            "standard_error": float(np.sqrt(variance)),
            "n_pairs": y.shape[0],
            "interval_method": JACKKNIFE.format(n_blocks, unit),
        }
    return PerformanceEstimate(
        **found,
        method=METHOD,
        measure=_title_of(scoring, name),
        n_rows=y.shape[0],
        compared=compared,
        counted=counted,
    )


def _share_of_pairs(
    columns: tuple[np.ndarray, np.ndarray, np.ndarray],
    inside: Groups,
    owners: Groups,
    unit: str,
    events: np.ndarray | None = None,
    *,
    in_queries: bool,
    n_outputs: int,
) -> dict[str, Any]:
    """What an estimate says of a concordance, from labels, held-out predictions and those of the model of all rows."""
    if in_queries:
        tally = tally_scores(columns[0], columns[1], inside, events=events)
        per_query = tally.share_per_group(inside)
        value, counted = float(np.nanmean(per_query)), np.flatnonzero(~np.isnan(per_query))
        clusters = groups_of_queries(owners, inside, counted)
        variance, interval = interval_over_queries(
            per_query, *columns, inside, clusters=clusters, events=events
        )
        over = f"{counted.size:,} queries" if clusters is None else f"{clusters.n_groups:,} {unit}"
        method = f"Student's t over the {over}, {TRAINED_TOGETHER}"
    else:
        tally, variance, interval = interval_inside_folds(
            *columns,
            inside,
            owners,
            events,
            rankings=_of_outputs(one_group(len(columns[0]) // n_outputs), n_outputs),
        )
        per_query = tally.share_per_group(inside)
        value, method = tally.share, placement_values(owners, inside_folds=True)
    return {
        "value": value,
        "interval": interval,
        "standard_error": float(np.sqrt(variance)),
        "n_pairs": tally.n_pairs,
        "interval_method": method,
        "per_fold": per_query,
        "per_row": tally.share_per_row,
    }


def _name_of(scoring: Scoring) -> str:
    """The name in the registry; empty for a measure that is not of it."""
    if scoring.scorer is None:
        return ""
    for name in (scoring.name.strip("'"), scoring.scorer.metric_name):
        with contextlib.suppress(ValueError):
            return full_name(name)
    return ""


def _weights_pairs(scoring: Scoring) -> bool:
    """Whether it is Uno's C, a weighted share of pairs."""
    return scoring.scorer is not None and scoring.scorer.options.get("weights") is not None


def _title_of(scoring: Scoring, name: str) -> str:
    if scoring.knows_events and name == "concordance":
        return C_INDEX
    return metric_title(name) if name else "score"


def _of_outputs(within: Groups, n_outputs: int) -> Groups:
    """The same groups for each output, one output after the other."""
    shifts = np.repeat(within.n_groups * np.arange(n_outputs), within.n_rows)
    return Groups(np.tile(within.codes, n_outputs) + shifts, within.n_groups * n_outputs)


def jackknife(measure: Callable[[np.ndarray], float], units: Groups) -> tuple[float, int]:
    """The variance of a measure of rows from leaving out blocks of their units, and the number of blocks."""
    n_blocks = min(units.n_groups, _MOST_BLOCKS)
    block = (np.random.default_rng(0).permutation(units.n_groups) % n_blocks)[units.codes]
    values = []
    for left in range(n_blocks):
        with contextlib.suppress(ValueError):  # nothing is left to compare
            values.append(measure(np.flatnonzero(block != left)))
    n = len(values)
    return (float(np.var(values)) * (n - 1) if n > 1 else float("nan")), n


def students_interval(value: float, variance: float, n_blocks: int) -> tuple[float, float]:
    """95 % interval of a value whose variance comes from this number of blocks."""
    if n_blocks < 2:
        return -np.inf, np.inf
    half = float(student.ppf(0.5 + LEVEL / 2, n_blocks - 1) * np.sqrt(variance))
    return value - half, value + half
