"""What a training comes to: a verdict, whether more queries would help, and columns that may give the target away.

A column that orders nearly every pair alone is questioned rather than praised.
"""

from __future__ import annotations

import shlex
import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from scipy import sparse as sp
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler

from ... import AutoRanker, RankRLS, RankRLSCV
from ...comparisons import encode_queries
from ...metrics.single_columns import SingleColumn, leak_question, order_alone, suspicious
from ...model_selection import learning_curve
from ...report.contents import BEST_FEATURE, Baseline, Curve, Estimate, TrainingReport
from ...report.look import columns_alone
from .preference import PreferenceProblem
from .problem import BASELINE_FEATURES, Problem
from .ranking import RankingProblem

# The curve trains fifteen models.
_CURVE_QUERIES, _CURVE_ROWS, _CURVE_FEATURES = 10, 2000, 500
_LEVEL = 0.05
# Nobody reads a long list of questions about leaks.
_MOST_LEAKS = 3
_TRIED_ROWS = 50_000


def conclude(report: TrainingReport, problem: Problem, learned: Any) -> TrainingReport:
    """Add the conclusions to a report.

    Parameters
    ----------
    report : TrainingReport
    problem : RankingProblem or PreferenceProblem
    learned : fitted estimator
        The model without the steps that make ``problem.X``.
    """
    report = _with_leaks(report, single_columns(problem))
    if isinstance(problem, RankingProblem) and problem.data.qid is not None:
        report = replace(report, curve=_curve(problem, learned))
    return replace(report, verdict=_verdict(report))


# ------------------------------------------------------------------------------------------------ the sentence


def _verdict(report: TrainingReport) -> str:
    parts = [_how_good(report.estimate, report.unit), _than_what(report), _what_next(report)]
    return "; ".join(part for part in parts if part) + "."


def _how_good(estimate: Estimate, unit: str) -> str:
    new = "a query it has not seen" if unit == "query" else "rows it has not seen"
    low, high = (100 * end for end in estimate.interval)
    share = f"{100 * estimate.value:.1f} % (95 % interval {low:.1f} to {high:.1f})"
    if unit == "preference":
        return f"Of preferences it has not seen, the model gets {share} right"
    return f"Of the pairs of {new}, the model puts {share} in the right order"


def _than_what(report: TrainingReport) -> str:
    """Compare with the best baseline, and with the best single feature where that is a different one."""
    others = [row for row in report.baselines if not row.is_model and row.name != "random order"]
    if not others:
        return "random order gets 50 %"
    best = max(others, key=lambda row: row.value)
    text = _against(best, report.estimate)
    single = next((row for row in others if row.name == BEST_FEATURE), None)
    if single is not None and single is not best:
        text += f"; the {single.label} gets {100 * single.value:.1f} %"
    return text


def _against(other: Baseline, estimate: Estimate) -> str:
    share = f"{other.label} ({100 * other.value:.1f} %)"
    if other.pvalue is not None:
        if other.pvalue > _LEVEL:
            return f"that is not significantly different from {share}"
        direction = "better" if estimate.value > other.value else "worse"
        return f"that is significantly {direction} than {share}"
    low, high = estimate.interval
    if other.value < low:
        return f"that is better than {share}, which lies below the interval"
    if other.value > high:
        return f"that is worse than {share}, which lies above the interval"
    return f"that is not clearly different from {share}, which lies within the interval"


def _what_next(report: TrainingReport) -> str:
    if report.leaks:
        return f"before anything else: {report.leaks[0].rstrip('.')}"
    curve = report.curve
    low, high = report.estimate.interval
    if high < 0.5 or low <= 0.5 <= high:
        return "what to do next: it is no better than chance, so look for other features first"
    if curve is not None:
        gain = curve.scores[-1] - curve.scores[-2] if curve.scores.size > 1 else 0.0
        if curve.rises:
            return f"what to do next: collect more queries (the last step up the learning curve added {gain:.3f})"
        return "what to do next: other features rather than more queries, since the learning curve is flat"
    if report.unit == "preference":
        return "what to do next: measure it on preferences of judges and items that were not used here"
    return "what to do next: measure it on data that was not used here"


# --------------------------------------------------------------------------------------------------- the curve


def _curve(problem: RankingProblem, learned: Any) -> Curve | None:
    X, data = problem.X, problem.data
    m, n = X.shape
    if data.n_queries < _CURVE_QUERIES or m > _CURVE_ROWS or n > _CURVE_FEATURES or sp.issparse(X):
        return None
    learner, Z, name = _to_refit(problem, learned)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="best_score_ is NaN")  # of a few queries
            found = learning_curve(learner, Z, problem.y, qid=data.qid, random_state=problem.options.seed)
    except ValueError:  # too few queries with pairs to order
        return None
    low, high = found.gain_interval
    said = "still rises: more queries would help" if found.still_rises else "is level at its end"
    text = (
        f"{name}, trained on increasing numbers of queries and measured on the same held-out ones (three folds; band: "
        f"95 % interval of the mean). The last step, from {found.n_queries[-2]} to {found.n_queries[-1]} queries, "
        f"changed {found.scoring} by {found.gain:+.4f} ({low:+.4f} to {high:+.4f}): the curve {said}."
    )
    extension = found.extended_to_ten_times
    if extension is not None:
        text += (
            f" If it continues as a power law (dashed), {extension.n_queries[-1]:,} queries, ten times as many, would "
            f"give {extension.scores[-1]:.3f} ({extension.low[-1]:.3f} to {extension.high[-1]:.3f}). The interval "
            "reflects the sampling error of the held-out queries, not whether a power law holds."
        )
    return Curve(found.n_queries, found.scores, found.errors, found.still_rises, text, extension)


def _to_refit(problem: RankingProblem, learned: Any) -> tuple[Any, Any, str]:
    """A learner with the chosen alpha and kernel, its features, and its name; trees and a linear one for candidates."""
    last = learned[-1] if isinstance(learned, Pipeline) else learned
    if isinstance(last, RankRLSCV):
        given = last.get_params()
        same = {name: given[name] for name in RankRLS().get_params() if name in given}
        Z = learned[:-1].transform(problem.X) if len(learned) > 1 else problem.X
        return RankRLS(**same).set_params(alpha=last.alpha_), Z, "This learner with its alpha"
    if isinstance(last, AutoRanker) and "boosted trees" in last.member_names_:
        quick = AutoRanker(preset="fast", random_state=problem.options.seed)
        return (
            quick,
            np.asarray(problem.X),
            'Boosted trees and a linear ranker (AutoRanker with preset="fast")',
        )
    Z = StandardScaler().fit_transform(problem.X)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # the edge of the grid does not matter here
        alpha = RankRLSCV().fit(Z, problem.y, qid=problem.data.qid).alpha_
    return RankRLS(alpha), Z, "A linear RankRLS"


# --------------------------------------------------------------------------------------------------- the leaks


def single_columns(problem: Problem) -> list[SingleColumn]:
    """How well each input column orders the rows, or the preferences, alone; none where there are too many."""
    too_many = problem.X.shape[1] > BASELINE_FEATURES or sp.issparse(problem.X)
    if isinstance(problem, PreferenceProblem):
        return [] if too_many else _of_preferences(problem)
    assert isinstance(problem, RankingProblem)
    data = problem.data
    if data.columns is not None and data.encoder is not None:
        return columns_alone(data.columns, problem.y, data.qid, list(data.encoder.encoders_))
    if too_many:
        return []
    groups = encode_queries(data.qid, len(data))
    rows = groups.sample(_TRIED_ROWS)
    part = encode_queries(groups.codes[rows], rows.size)
    return [
        order_alone(name, data.X[rows, k], problem.y[rows], part) for k, name in enumerate(data.feature_names)
    ]


def _of_preferences(problem: PreferenceProblem) -> list[SingleColumn]:
    """Features of items; a single feature of texts means nothing by itself."""
    if problem.lengths is not None:
        return []
    pairs, X = problem.data.pairs, np.asarray(problem.X)
    up = 0.5 + 0.5 * np.sign(X[pairs[:, 0]] - X[pairs[:, 1]]).mean(axis=0)
    return [
        SingleColumn(name, float(max(share, 1 - share)), bool(share >= 0.5))
        for name, share in zip(problem.feature_names, up)
    ]


def _with_leaks(report: TrainingReport, columns: Sequence[SingleColumn]) -> TrainingReport:
    """The report with the best single feature named wherever it is shown, and with questions about leaks first."""
    if not columns:
        return report
    best = str(max(columns, key=lambda one: one.share))
    leaks = leak_notes(columns, report.estimate.value)

    def named(rows: Sequence[Any]) -> tuple[Any, ...]:
        return tuple(replace(row, detail=best) if row.name == BEST_FEATURE else row for row in rows)

    board = report.leaderboard
    steps = report.next_steps
    if leaks:
        steps = tuple(step for step in steps if not step.startswith("Look at the queries"))
    return replace(
        report,
        baselines=named(report.baselines),
        leaderboard=None if board is None else replace(board, rows=named(board.rows)),
        leaks=tuple(leaks),
        notes=(*leaks, *report.notes),
        next_steps=steps,
    )


def leak_notes(columns: Sequence[SingleColumn], model_share: float) -> list[str]:
    """A question for each suspicious column, the best first."""
    found = suspicious(columns, model_share)
    notes = [
        leak_question(one, model_share, option=f"--drop {shlex.quote(one.name)} leaves it out.")
        for one in found[:_MOST_LEAKS]
    ]
    if len(found) > _MOST_LEAKS:
        more = ", ".join(f"`{one.name}`" for one in found[_MOST_LEAKS : _MOST_LEAKS + 5])
        notes.append(f"So do {more}{' and others' if len(found) > _MOST_LEAKS + 5 else ''}.")
    return notes
