"""What a model uses, and what a training comes to: a verdict, example queries, and whether more data would help."""

from __future__ import annotations

import warnings
from dataclasses import replace
from numbers import Real
from typing import Any

import numpy as np
from scipy import sparse as sp
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler

from .. import AutoRanker, RankRLS, RankRLSCV
from ..comparisons import one_group
from ..comparisons.grouping import positions_in_groups
from ..inspection import Explanation, explain, feature_influence
from ..metrics.by_query import predict_scores
from ..model_selection import learning_curve
from ..report.contents import (
    Baseline,
    Curve,
    Estimate,
    Influence,
    ShownItem,
    ShownQuery,
    TrainingReport,
)
from ..report.leaderboard import BEST_FEATURE
from .input_columns import InputColumns, words_of_texts
from .preparation import Preparation
from .problem import Problem
from .ranking import RankingProblem

# An explanation takes predictions of every row of the query for every feature.
_EXPLAINED_FEATURES, _EXPLAINED_ROWS = 100, 40
_SHOWN_ITEMS, _REASONS, _LONGEST_VALUE = 4, 3, 32
# The curve trains fifteen models.
_CURVE_QUERIES, _CURVE_ROWS, _CURVE_FEATURES = 10, 2000, 500
_LEVEL = 0.05
# Each of these features takes as many predictions of the sampled rows as there are shuffles.
_SHUFFLED_FEATURES, _SHUFFLES = 100, 5
SHOWN_FEATURES = 15


def conclude(report: TrainingReport, problem: Problem, learned: Any) -> TrainingReport:
    """Add the conclusions to a report.

    Parameters
    ----------
    report : TrainingReport
    problem : RankingProblem or PreferenceProblem
    learned : fitted estimator
        The model without the steps that make ``problem.X``.
    """
    if isinstance(problem, RankingProblem) and problem.data.qid is not None:
        curve, queries = _curve(problem, learned), _queries(problem, learned, report)
        report = replace(report, curve=curve, queries=queries)
    words = words_of_texts(problem, fitted_scores(problem, learned)) if _has_texts(problem) else []
    note = " ".join([*([report.influence_note] if report.influence_note else []), *words])
    return replace(report, influence_note=note, verdict=_verdict(report))


def _has_texts(problem: Problem) -> bool:
    if not isinstance(problem, RankingProblem) or problem.data.encoder is None:
        return False
    return bool({"text", "words"} & {*problem.data.encoder.kinds_.values()})


def fitted_scores(problem: Problem, learned: Any) -> np.ndarray:
    """What the model says of the rows that it was trained on."""
    assert isinstance(problem, RankingProblem)
    last = learned[-1] if isinstance(learned, Pipeline) and len(learned) == 1 else learned
    qid = np.zeros(len(problem.data), dtype=np.int64) if problem.data.qid is None else problem.data.qid
    return np.asarray(predict_scores(last, problem.X, qid))


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
    """Against the best of the simple ways, and the best single feature where that is another one."""
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
        f"{name}, trained on more and more of the queries and measured on the same held-out ones (three folds; band: "
        f"95 % interval of the mean). The last step, from {found.n_queries[-2]} to {found.n_queries[-1]} queries, "
        f"changed {found.scoring} by {found.gain:+.4f} ({low:+.4f} to {high:+.4f}): the curve {said}."
    )
    extension = found.extended_to_ten_times
    if extension is not None:
        text += (
            f" If it goes on as a power law (dashed), {extension.n_queries[-1]:,} queries, ten times as many, would "
            f"give {extension.scores[-1]:.3f} ({extension.low[-1]:.3f} to {extension.high[-1]:.3f}). The interval "
            "reflects the chance in the held-out queries, not whether a power law holds."
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


# ------------------------------------------------------------------------------------------------- the queries


def _queries(problem: RankingProblem, learned: Any, report: TrainingReport) -> tuple[ShownQuery, ...]:
    """The query in the middle and the worst one, each with its first items and what put them there."""
    known = np.flatnonzero(~np.isnan(report.values))
    if problem.X.shape[1] > _EXPLAINED_FEATURES or sp.issparse(problem.X) or known.size < 2:
        return ()
    order = known[np.argsort(report.values[known], kind="stable")]
    chosen = {"typical": int(order[order.size // 2]), "worst": int(order[0])}
    units = problem.division.units
    found = []
    for which, unit in chosen.items():
        rows = units.rows(unit)
        if rows.size <= _EXPLAINED_ROWS:
            found.append(_shown(problem, learned, rows, str(report.labels[unit]), which, report.values[unit]))
    return tuple(found)


def _shown(
    problem: RankingProblem, learned: Any, rows: np.ndarray, label: str, which: str, value: float
) -> ShownQuery:
    X, codes = problem.X[rows], np.zeros(rows.size, dtype=np.int64)
    last = learned[-1] if isinstance(learned, Pipeline) and len(learned) == 1 else learned
    scores = np.asarray(predict_scores(last, X, codes))
    ranks = positions_in_groups(scores, one_group(rows.size))
    names = problem.data.item_names
    items = []
    for place in np.argsort(-scores, kind="stable")[:_SHOWN_ITEMS].tolist():
        why = explain(last, X, qid=codes, row=place, feature_names=problem.feature_names)
        reasons = _reasons(problem, why, int(rows[place]))
        row = int(rows[place])
        name = f"row {row + 1}" if names is None else str(names[row])
        items.append(ShownItem(int(ranks[place]), name, float(problem.y[row]), float(scores[place]), reasons))
    return ShownQuery(label, which, float(value), tuple(items), rows.size)


def _reasons(problem: RankingProblem, why: Explanation, row: int) -> tuple[str, ...]:
    """The largest contributions; features of one column of a table are summed and shown with its value."""
    data = problem.data
    if data.encoder is None or data.columns is None:
        shown = [
            (f"{name} = {value:.4g}", one)
            for name, value, one in zip(why.names, why.values, why.contributions)
        ]
    else:
        shown, first = [], 0
        for column, encoder in data.encoder.encoders_.items():
            last = first + len(encoder.names(column))
            value = data.columns[column][row]
            text = f"{value:.4g}" if isinstance(value, Real) else str(value)
            text = text if len(text) <= _LONGEST_VALUE else text[: _LONGEST_VALUE - 1] + "…"
            shown.append((f"{column} = {text or '(missing)'}", float(why.contributions[first:last].sum())))
            first = last
    shown.sort(key=lambda pair: -abs(pair[1]))
    return tuple(f"{text} ({one:+.3g})" for text, one in shown[:_REASONS] if one != 0)


# ----------------------------------------------------------------------------------------------- the influence


def influence_of(model: Pipeline, prepared: Preparation, problem: Problem) -> tuple[Influence | None, str]:
    """Coefficients of a linear model; for other kernels the loss of concordance when a feature is shuffled."""
    columns = InputColumns.of(problem)
    names = problem.feature_names if columns is None else columns.names
    shown = (
        f"The {SHOWN_FEATURES} largest of {len(names):,} features are shown."
        if len(names) > SHOWN_FEATURES
        else ""
    )
    coef = getattr(model[-1], "coef_", None)
    if prepared.is_linear and coef is not None:
        if columns is not None:
            return _of_columns(columns, prepared.scaled, np.asarray(coef)), shown
        return _coefficients(list(names), np.asarray(coef), scaled=bool(prepared.steps)), shown
    if len(names) > _SHUFFLED_FEATURES:
        return None, (
            f"Left out: the kernel is not linear, and shuffling each of {len(names):,} features in turn would "
            "take long. A linear kernel shows coefficients."
        )
    return shuffled_influence(model, problem, "The kernel is not linear"), shown


def shuffled_influence(
    model: Any, problem: Problem, because: str, *, features: list[int] | None = None
) -> Influence:
    """Measure how much concordance falls when a feature is shuffled.

    Parameters
    ----------
    because : str
        Why there are no coefficients, as the beginning of a sentence.
    features : list of int or None
        Only these columns; of a table its columns, and not the features that they became.
    """
    columns = InputColumns.of(problem)
    X: Any = problem.X
    names: list[str] | None = list(problem.feature_names)
    if columns is not None:  # features of one column are shuffled together
        steps = model.steps if isinstance(model, Pipeline) else [("learn", model)]
        model, X, names = Pipeline([*problem.steps, *steps]), columns.table, None
    found = feature_influence(
        model,
        X,
        n_repeats=_SHUFFLES,
        features=features,
        feature_names=names,
        random_state=problem.options.seed,
        **problem.comparisons(),
    )
    among = "rows of a query" if found.over == "queries" else "rows"
    text = (
        f"{because}, so there are no coefficients. A bar shows how much concordance falls when the "
        f"values of that feature are shuffled among the {among} (mean of {found.n_repeats} shuffles; line: 95 % "
        f"interval over {found.over}). It is measured on {found.n_rows:,} rows of the training data: it says what "
        "the model uses, not what is worth collecting. Features that stand in for each other both look small."
    )
    errors = found.intervals[:, 1] - found.values
    return Influence(found.names, found.values, "loss of concordance when shuffled", text, errors)


def _of_columns(columns: InputColumns, Z: Any, coef: np.ndarray) -> Influence:
    text = (
        "The score is a sum of what the columns contribute. A bar is the standard deviation of the contribution of a "
        "column over the rows: of a number to the right where higher values rank higher, to the left where lower ones "
        "do; of categories, dates and texts, which are several features each, always to the right."
    )
    return Influence(columns.names, columns.spreads(Z, coef), "spread of the contribution", text)


def _coefficients(names: list[str], coef: np.ndarray, scaled: bool) -> Influence:
    if scaled:
        text = (
            "The score is a weighted sum of the scaled features: a bar to the right means that higher values "
            "rank higher. Bars can be compared with each other, since every feature has variance 1; "
            "correlated features share their influence."
        )
        return Influence(names, coef, "coefficient of the scaled feature", text)
    text = (
        "The score is a weighted sum of the features: a bar to the right means that higher values rank higher. "
        "Features that occur together share their influence."
    )
    return Influence(names, coef, "coefficient of the feature", text)
