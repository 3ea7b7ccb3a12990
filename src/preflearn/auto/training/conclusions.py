"""What a training comes to, and what only the page and the JSON object show.

The verdict, whether more queries would help, columns that may give the target away: one that orders nearly every pair
alone is questioned rather than praised. What the model uses, example queries, the words of a text by name: the
influence of features is a coefficient, or the loss of concordance when a feature is shuffled, and a column of a table
has one bar, however many features it became.
"""

from __future__ import annotations

import shlex
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any

import numpy as np
from scipy import sparse as sp
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler

from ... import AutoRanker, RankRLS, RankRLSCV
from ...comparisons import encode_queries, one_group
from ...comparisons.grouping import positions_in_groups
from ...metrics.by_query import predict_scores
from ...metrics.single_columns import SingleColumn, leak_question, order_alone, suspicious
from ...model_selection import learning_curve
from ...model_selection._performance import C_INDEX
from ...report.contents import (
    BEST_FEATURE,
    LONGEST_NAME,
    SHOWN_FEATURES,
    Baseline,
    Curve,
    Estimate,
    Influence,
    ShownItem,
    ShownQuery,
    TrainingReport,
)
from ...report.inspection.explanation import Explanation, explain
from ...report.inspection.influence import feature_influence
from ...report.look import TRIED_ROWS, columns_alone
from ...shown_tables import clipped
from .preference import PreferenceProblem
from .preparation import BASELINE_FEATURES, Preparation
from .ranking import RankingProblem

# What can be learned; both answer the questions of `train`.
Problem = RankingProblem | PreferenceProblem

# The curve trains fifteen models.
_CURVE_QUERIES, _CURVE_ROWS, _CURVE_FEATURES = 10, 2000, 500
# Differences with a larger p-value may be due to chance.
LEVEL = 0.05
# Nobody reads a long list of questions about leaks.
_MOST_LEAKS = 3


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
    known = " of which it is known who lived longer" if estimate.measure == C_INDEX else ""
    return f"Of the pairs of {new}{known}, the model puts {share} in the right order"


def _than_what(report: TrainingReport) -> str:
    """Compare with the best baseline, and with the best single feature where that is a different one."""
    others = [row for row in report.baselines if not row.is_model and row.name != "random order"]
    if not others:
        return "random order gets 50 %"
    best = max(others, key=lambda row: row.value)
    text = _against(best, report.estimate)
    single = next((row for row in others if row.name == BEST_FEATURE), None)
    if single is not None and single is not best:
        text += (
            f"; the {single.label}, chosen without the rows that it orders, gets {100 * single.value:.1f} %"
        )
    return text


def _against(other: Baseline, estimate: Estimate) -> str:
    share = f"{other.label} ({100 * other.value:.1f} %)"
    if other.pvalue is not None:
        if other.pvalue > LEVEL:
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
        if curve.level:
            return (
                "what to do next: other features rather than more queries, since the learning curve is flat"
            )
        return (
            "what to do next: other features; the learning curve leaves open whether more queries would help"
        )
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
    said = "is level at its end" if found.is_level else "leaves open whether more queries would help"
    said = "still rises: more queries would help" if found.still_rises else said
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
    return Curve(
        found.n_queries, found.scores, found.errors, found.still_rises, text, extension, found.is_level
    )


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
    rows = groups.sample(TRIED_ROWS)
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


# ----------------------------------------------------------------------------------------------------- the details

# Each feature takes one prediction of the sampled rows per shuffle.
_SHUFFLED_FEATURES, _SHUFFLES = 100, 5
# An explanation takes predictions of every row of the query for every feature.
_EXPLAINED_FEATURES, _EXPLAINED_ROWS = 100, 40
_SHOWN_ITEMS, _REASONS, _LONGEST_VALUE = 4, 3, 32
# Words that are named for each direction, and the rows that a word must be in.
_WORDS, _LEAST_ROWS = 5, 5
# Standard errors above which a word is statistically significant, given how many words are tested.
_CLEAR = 3.5
_MOST_TEXTS = 20_000


def with_details(report: TrainingReport, problem: Problem, learned: Any) -> TrainingReport:
    """Add example queries and the words of texts; arguments as in `preflearn.auto.training.conclusions.conclude`."""
    if isinstance(problem, RankingProblem) and problem.data.qid is not None:
        report = replace(report, queries=_queries(problem, learned, report))
    words = words_of_texts(problem, fitted_scores(problem, learned)) if _has_texts(problem) else []
    note = " ".join([*([report.influence_note] if report.influence_note else []), *words])
    return replace(report, influence_note=note)


def _has_texts(problem: Problem) -> bool:
    if not isinstance(problem, RankingProblem) or problem.data.encoder is None:
        return False
    return bool({"text", "words"} & {*problem.data.encoder.kinds_.values()})


def fitted_scores(problem: Problem, learned: Any) -> np.ndarray:
    """Scores of the rows that the model was trained on."""
    assert isinstance(problem, RankingProblem)
    last = learned[-1] if isinstance(learned, Pipeline) and len(learned) == 1 else learned
    qid = np.zeros(len(problem.data), dtype=np.int64) if problem.data.qid is None else problem.data.qid
    return np.asarray(predict_scores(last, problem.X, qid))


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
            "take a long time. A linear kernel shows coefficients."
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
        "the model uses, not what is worth collecting. Features that can replace each other both look small."
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


# ------------------------------------------------------------------------------------------------- the queries


def _queries(problem: RankingProblem, learned: Any, report: TrainingReport) -> tuple[ShownQuery, ...]:
    """The query in the middle and the worst one, each with its first items and the reasons for their positions."""
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
            label = clipped(str(report.labels[unit]), LONGEST_NAME)
            found.append(_shown(problem, learned, rows, label, which, report.values[unit]))
    return tuple(found)


def _shown(
    problem: RankingProblem, learned: Any, rows: np.ndarray, label: str, which: str, value: float
) -> ShownQuery:
    X, codes = problem.X[rows], np.zeros(rows.size, dtype=np.int64)
    last = learned[-1] if isinstance(learned, Pipeline) and len(learned) == 1 else learned
    scores = np.asarray(predict_scores(last, X, codes))
    ranks = positions_in_groups(scores, one_group(rows.size))
    names, targets = problem.data.item_names, problem.data.y
    assert targets is not None
    items = []
    for place in np.argsort(-scores, kind="stable")[:_SHOWN_ITEMS].tolist():
        why = explain(last, X, qid=codes, row=place, feature_names=problem.feature_names)
        reasons = _reasons(problem, why, int(rows[place]))
        row = int(rows[place])
        name = f"row {row + 1}" if names is None else str(names[row])
        items.append(ShownItem(int(ranks[place]), name, float(targets[row]), float(scores[place]), reasons))
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
            text = "(missing)" if text in ("", "nan") else clipped(text, _LONGEST_VALUE)
            shown.append((f"{column} = {text}", float(why.contributions[first:last].sum())))
            first = last
    shown.sort(key=lambda pair: -abs(pair[1]))
    return tuple(f"{text} ({one:+.3g})" for text, one in shown[:_REASONS] if one != 0)


# ------------------------------------------------------------------------------------------ the input columns


@dataclass(frozen=True, eq=False)
class InputColumns:
    """The columns of the table that features were made from.

    Attributes
    ----------
    names : list of str
    owners : ndarray of int of shape (n,)
        The column of each feature.
    table : dict of str to ndarray
        The columns as they were read.
    """

    names: list[str]
    owners: np.ndarray
    table: dict[str, np.ndarray]

    @classmethod
    def of(cls, problem: Problem) -> InputColumns | None:
        """None where features are columns, one by one."""
        if not isinstance(problem, RankingProblem) or problem.data.columns is None:
            return None
        encoder = problem.data.encoder
        widths = (
            [len(one.names(name)) for name, one in encoder.encoders_.items()] if encoder is not None else []
        )
        if not widths or sum(widths) != problem.X.shape[1] or max(widths) == 1:
            return None
        return cls(list(encoder.encoders_), np.repeat(np.arange(len(widths)), widths), problem.data.columns)

    def sums(self, values: np.ndarray) -> np.ndarray:
        """The sum of the values of each column's features."""
        return np.bincount(self.owners, weights=values, minlength=len(self.names))

    def spreads(self, Z: Any, coef: np.ndarray) -> np.ndarray:
        """The standard deviation of what each column contributes to a weighted sum; of one feature with its sign."""
        out = np.empty(len(self.names))
        for k in range(len(self.names)):
            own = np.flatnonzero(self.owners == k)
            part = np.asarray(Z[:, own] @ coef[own]).ravel()
            sign = np.sign(coef[own[0]]) if own.size == 1 else 1.0
            out[k] = sign * part.std()
        return out


def words_of_texts(problem: Problem, scores: np.ndarray) -> list[str]:
    """A sentence for each column of texts: the words that go with high and with low scores inside a query."""
    if (
        not isinstance(problem, RankingProblem)
        or problem.data.columns is None
        or problem.data.encoder is None
    ):
        return []
    groups = encode_queries(problem.data.qid, scores.shape[0])
    means = np.bincount(groups.codes, weights=scores, minlength=groups.n_groups) / np.maximum(
        groups.counts, 1
    )
    centred = scores - means[groups.codes]
    found = []
    for name, kind in problem.data.encoder.kinds_.items():
        if kind in ("text", "words") and name in problem.data.columns:
            high, low = telling_words(problem.data.columns[name][:_MOST_TEXTS], centred[:_MOST_TEXTS])
            parts = [f"high: {', '.join(high)}"] * bool(high) + [f"low: {', '.join(low)}"] * bool(low)
            if parts:
                found.append(f"Words of `{name}` that go with scores that are {'; '.join(parts)}.")
    return found


def telling_words(texts: np.ndarray, scores: np.ndarray) -> tuple[list[str], list[str]]:
    """The words whose rows have the highest and the lowest scores, by a statistically clear margin.

    Examples
    --------
    >>> texts = np.array(["red lamp", "blue lamp"] * 20, dtype=object)
    >>> telling_words(texts, np.tile([1.0, -1.0], 20) + 0.1 * np.sin(np.arange(40)))
    (['red'], ['blue'])
    """
    m, n_most = scores.shape[0], scores.shape[0] - _LEAST_ROWS
    if n_most < _LEAST_ROWS:
        return [], []
    counter = CountVectorizer(binary=True, token_pattern=r"\w+", min_df=_LEAST_ROWS, max_df=n_most)
    try:
        seen = counter.fit_transform(map(str, texts))
    except ValueError:  # no word is in as many rows
        return [], []
    known = counter.get_feature_names_out().tolist()
    n = np.asarray(seen.sum(axis=0)).ravel()
    spread = scores.std()
    if spread == 0:
        return [], []
    # The difference of the means of rows with and without the word, in standard errors.
    total = scores.sum()
    sums = seen.T @ scores
    z = (sums / n - (total - sums) / (m - n)) / (spread * np.sqrt(1 / n + 1 / (m - n)))
    order = np.argsort(-z, kind="stable")
    high = [known[k] for k in order[:_WORDS] if z[k] > _CLEAR]
    low = [known[k] for k in order[::-1][:_WORDS] if z[k] < -_CLEAR]
    return high, low
