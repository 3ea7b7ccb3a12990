r"""How good are given scores? Metrics of a ranking, each with a 95 % interval.

With queries, a query is one independent trial: the interval is that of the mean over queries, by Student's t. Without,
a share of pairs (concordance, AUC) has an interval from the placement values of its rows (:mod:`._intervals`); no other
metric has one. The scores are taken as given: the intervals cover the randomness of the test rows, not that of the
training rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from scipy.stats import t as student

from ..comparisons import Groups, encode_queries, one_group
from ..comparisons.inputs import order_of, read_pairs, read_times, surv
from ..metrics import PerQuery, get_scorer
from ..metrics.by_query import check_rows
from ..metrics.registry import full_name, metric_title, named_metric, scorer_names
from ..plots import on_axes
from ..shown_tables import ShownTable, align_columns, shows_itself
from ._folds import encode_groups, units_of
from ._intervals import (
    TRAINED_TOGETHER,
    freedom_of,
    interval_of_one_ranking,
    mean_interval,
    most_effective,
    optimism,
    optimism_inside,
    placement_variance,
    scarce_labels,
    widening,
    wilson_interval,
)
from ._performance import C_INDEX
from ._tally import tally_scores
from .significance import units_of_queries

DEFAULT_METRICS = ("concordance", "kendall_tau", "ndcg@10", "average_precision", "reciprocal_rank")
_SHARES_OF_PAIRS = ("concordance", "auc", C_INDEX)


@dataclass(frozen=True)
class MeasuredMetric:
    """A metric of given scores.

    Attributes
    ----------
    metric : str
        Its name, "ndcg@10" for example.
    value : float
        The mean over queries where there are queries.
    interval : tuple of two float, or None
        95 %; None where it cannot be determined.
    n_queries : int or None
        Queries where the metric is defined; None without queries.
    interval_method : str or None
    """

    metric: str
    value: float
    interval: tuple[float, float] | None = None
    n_queries: int | None = None
    interval_method: str | None = None

    @property
    def title(self) -> str:
        """The metric as it is usually written.

        Examples
        --------
        >>> MeasuredMetric("ndcg@10", 0.5).title
        'NDCG@10'
        """
        return metric_title(self.metric)


@shows_itself
@dataclass(frozen=True)
class Evaluation:
    """What :func:`evaluate_scores` measured; prints itself.

    Attributes
    ----------
    metrics : tuple of MeasuredMetric
    n_rows : int
    n_queries : int or None
    notes : tuple of str
        Metrics that are not defined for these rows, and why.
    n_groups : int or None
        Groups of dependent rows, which the intervals count; None without.
    """

    metrics: tuple[MeasuredMetric, ...]
    n_rows: int
    n_queries: int | None
    notes: tuple[str, ...] = ()
    n_groups: int | None = None

    @property
    def interval_methods(self) -> list[str]:
        """Where the intervals come from."""
        return sorted({one.interval_method for one in self.metrics if one.interval_method})

    def table(self) -> list[tuple[str, ...]]:
        """Rows of text: heading, then one per metric."""
        rows: list[tuple[str, ...]] = [("metric", "value", "95 % interval", "queries")]
        for one in self.metrics:
            interval = "" if one.interval is None else "{:.4f} to {:.4f}".format(*one.interval)
            queries = "" if one.n_queries is None else str(one.n_queries)
            rows.append((one.title, f"{one.value:.4f}", interval, queries))
        return rows

    def __str__(self) -> str:
        lines = align_columns(self.table())
        if self.interval_methods:
            lines.append(f"Intervals: {', '.join(self.interval_methods)}.")
        return "\n".join([*lines, *self.notes])

    def shown_tables(self) -> list[ShownTable]:
        how = [f"Intervals: {', '.join(self.interval_methods)}."] if self.interval_methods else []
        return [ShownTable(self.table(), f"{self.n_rows:,} rows", [*how, *self.notes])]

    @on_axes
    def plot(self, ax: Any) -> None:
        """A point for each metric, with its interval."""
        for place, one in enumerate(reversed(self.metrics)):
            ax.plot([one.value], [place], "o", color="C0")
            if one.interval is not None:
                ax.plot(one.interval, [place, place], color="C0")
        ax.set_yticks(range(len(self.metrics)), [one.title for one in reversed(self.metrics)])
        ax.set_xlabel("value and 95 % interval")

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, text and lists, for JSON."""
        return {
            "rows": self.n_rows,
            "queries": self.n_queries,
            "groups": self.n_groups,
            "metrics": [asdict(one) for one in self.metrics],
            "notes": list(self.notes),
        }


def evaluate_scores(
    y: Any,
    scores: Any,
    qid: Any = None,
    *,
    event: Any = None,
    metrics: Sequence[str] | None = None,
    fitted: Any = None,
    groups: Any = None,
) -> Evaluation:
    """Measure the scores of rows whose targets are known, with 95 % intervals.

    Parameters
    ----------
    y : array-like of shape (m,)
        What is known about each row, higher is better.
    scores : array-like of shape (m,)
        Scores by a model that was not trained on these rows.
    qid : array-like of shape (m,), optional
        The query of each row; without it all rows are one ranking.
    event : array-like of bool, shape (m,), optional
        Where y holds censored times, as in `concordance`: the metrics are Harrell's C-index, with its interval, and
        Uno's. With ``qid`` rows are compared inside their stratum.
    metrics : sequence of str, optional
        Names of :func:`preflearn.metrics.get_scorer`, such as "ndcg@10". By default concordance, Kendall's tau-b,
        NDCG@10, average precision and reciprocal rank, as far as they are defined for ``y``.
    fitted : array-like of shape (m,), optional
        Where ``scores`` are held-out predictions of cross-validation (``cv_predictions_``): the predictions of the
        model trained on all rows for these rows. The intervals are then wider, since the models of the folds share
        training rows; without it they take the scores for those of one model on a test set.
    groups : array-like of shape (m,), optional
        Labels of dependent rows (patients, documents), which the intervals then count; queries that share a group count
        as one.

    Returns
    -------
    Evaluation

    Raises
    ------
    ValueError
        If y and scores do not match, or a requested metric is not defined for these rows.

    Notes
    -----
    O(m log m) for each metric.

    References
    ----------
    E. R. DeLong, D. M. DeLong, D. L. Clarke-Pearson. Comparing the areas under two or more correlated receiver
    operating characteristic curves: a nonparametric approach. Biometrics 44 (1988), 837-845.

    Examples
    --------
    >>> import numpy as np
    >>> from preflearn.model_selection import evaluate_scores
    >>> rng = np.random.default_rng(0)
    >>> qid = np.repeat(np.arange(40), 10)
    >>> y = rng.normal(size=400)
    >>> print(evaluate_scores(y, y + rng.normal(size=400), qid, metrics=["concordance", "kendall_tau"]))
      metric          value     95 % interval  queries
      concordance    0.7...  0.7... to 0.7...       40
      Kendall tau-b  0.5...  0.4... to 0.5...       40
    Intervals: Student's t over queries, no end beyond the range of the metric.
    """
    if isinstance(metrics, str):
        raise TypeError(f"metrics must be a sequence of names: found {metrics!r}, pass [{metrics!r}].")
    times, events = read_times(y, event)
    rows = check_rows(times, scores, qid)
    lost = 0.0
    if events is not None:
        y = surv(times, events)
    if fitted is not None:
        given = check_rows(times, fitted, qid).scores[:, 0]
        lost = optimism_inside(order_of(y), rows.scores[:, 0], given, rows.queries.codes)
    scorers = {full_name(name): get_scorer(name) for name in metrics or DEFAULT_METRICS}
    if events is not None:
        scorers = _of_times(metrics)
    units = None if groups is None else units_of(qid, groups, rows.y.shape[0])
    found, notes = [], []
    for name, scorer in scorers.items():
        try:
            found.append(_measure(name, scorer, y, scores, qid, lost, units, held_out=fitted is not None))
        except ValueError as error:
            if metrics:
                raise
            notes.append(f"{MeasuredMetric(name, np.nan).title} is left out: {error}")
    n_queries = None if qid is None else rows.queries.n_groups
    n_groups = None if groups is None else encode_groups(groups, rows.y.shape[0]).n_groups
    return Evaluation(tuple(found), rows.y.shape[0], n_queries, tuple(notes), n_groups)


def evaluate_preference_scores(scores: Any, pairs: Any, *, judge: Any = None) -> Evaluation:
    """The share of preferences that scores put in the right order, with a 95 % interval; ties count as half.

    Parameters
    ----------
    scores : array-like of shape (m,)
        Of each item, by a model that was not trained on these preferences.
    pairs : int array-like of shape (l, 2)
        Item ``pairs[k, 0]`` is preferred to item ``pairs[k, 1]``.
    judge : array-like of shape (l,), optional
        Who said so. The mean over judges, with its interval, is reported second where there are several.

    Returns
    -------
    Evaluation

    Examples
    --------
    >>> from preflearn.model_selection import evaluate_preference_scores
    >>> found = evaluate_preference_scores([3.0, 2.0, 1.0], [[0, 1], [0, 2], [2, 1]])
    >>> round(found.metrics[0].value, 3)
    0.667
    """
    f = np.asarray(scores, dtype=np.float64)
    found = read_pairs(pairs, f.shape[0])
    right = 0.5 + 0.5 * np.sign(f[found[:, 0]] - f[found[:, 1]])
    n, share = right.size, float(right.mean())
    interval = wilson_interval(share, share * (1 - share) / n, n)
    method = f"Wilson's form for a share of {n:,} preferences, taken as independent"
    metrics = [MeasuredMetric("accuracy", share, interval, None, method)]
    if judge is not None:
        if np.shape(judge) != (n,):
            raise ValueError(
                f"judge must hold one label per preference: found shape {np.shape(judge)} for {n}."
            )
        judges = encode_queries(judge, n)
        if judges.n_groups > 1:
            each = np.bincount(judges.codes, weights=right) / judges.counts
            metrics.append(
                MeasuredMetric(
                    "accuracy over judges", float(each.mean()), mean_interval(each)[1], judges.n_groups,
                    "Student's t over judges",
                )
            )  # fmt: skip
    return Evaluation(tuple(metrics), f.shape[0], None)


def _of_times(metrics: Sequence[str] | None) -> dict[str, Any]:
    """The measures of censored times by their names."""
    unknown = [name for name in metrics or () if full_name(name) != "concordance"]
    if unknown:
        raise ValueError(
            f"{unknown[0]} does not know censored times: with event the metric is 'concordance', the C-index."
        )
    harrell = get_scorer("concordance")
    return {
        C_INDEX: harrell,
        **({} if metrics else {"Uno's C-index": harrell.with_options(weights="ipcw")}),
    }


def _measure(
    name: str,
    scorer: Any,
    y: Any,
    scores: Any,
    qid: Any,
    lost: float,
    units: Groups | None,
    *,
    held_out: bool,
) -> MeasuredMetric:
    if name == "auc":  # one ranking of all rows, which concordance of two classes is
        if qid is not None:
            raise ValueError("auc compares all rows with each other and takes no queries: use concordance.")
        scorer.measure(y, scores)  # refuses more than two classes
        per_query = get_scorer("concordance").per_query(y, scores)
    else:
        per_query = scorer.per_query(y, scores, qid)
    if np.isnan(per_query.mean):
        raise ValueError(f"{name} is defined in no query: targets or scores are all tied.")
    if qid is not None:
        defined = ~np.isnan(per_query.values)
        of_query = units_of_queries(per_query.labels[defined], qid, units)
        clusters = None if of_query is None else encode_queries(of_query, of_query.size)
        limits = (0.0, 1.0) if name not in scorer_names() else named_metric(name).limits
        wider = widening(lost) ** 0.5
        interval = _interval_over_queries(per_query, limits, wider, clusters)
        of = "queries" if clusters is None else f"{clusters.n_groups:,} groups of queries"
        method = f"Student's t over {of}, no end beyond the range of the metric"
        n_queries = int(defined.sum())
    else:
        interval = _interval_over_rows(y, scores, lost, units) if name in _SHARES_OF_PAIRS else None
        of = "rows" if units is None else f"{units.n_groups:,} groups"
        method, n_queries = f"placement values of the {of}, in Wilson's form", None
    method += f", {TRAINED_TOGETHER}" if held_out else ""
    return MeasuredMetric(name, per_query.mean, interval, n_queries, None if interval is None else method)


def _interval_over_queries(
    per_query: PerQuery, bounds: tuple[float, float], wider: float, clusters: Groups | None
) -> tuple[float, float] | None:
    values = per_query.values[~np.isnan(per_query.values)]
    n = values.size if clusters is None else clusters.n_groups
    if n < 2:
        return None
    if not np.isfinite(bounds).all():
        half = wider * float(student.ppf(0.975, n - 1)) * mean_interval(values, clusters)[0] ** 0.5
        return max(bounds[0], values.mean() - half), min(bounds[1], values.mean() + half)
    least, width = bounds[0], bounds[1] - bounds[0]
    low, high = mean_interval((values - least) / width, clusters)[1]
    mean = float(values.mean() - least) / width
    low, high = max(0.0, mean - wider * (mean - low)), min(1.0, mean + wider * (high - mean))
    return least + width * low, least + width * high


def _interval_over_rows(y: Any, scores: Any, lost: float, groups: Groups | None) -> tuple[float, float]:
    labels, events = read_times(y, None)
    labels, m = np.asarray(labels), int(np.shape(y)[0])
    if events is not None:
        order = order_of(y)
        tally = tally_scores(order, np.asarray(scores), one_group(m), events=events)
        return interval_of_one_ranking(tally, scarce_labels(order, events), lost, groups)[1]
    tally = tally_scores(labels, np.asarray(scores), one_group(m))
    if groups is not None:
        return interval_of_one_ranking(tally, labels, lost, groups)[1]
    levels, codes = np.unique(labels, return_inverse=True)
    strata = codes if levels.size == 2 else np.zeros(m, dtype=np.int64)
    return wilson_interval(
        tally.share,
        placement_variance(tally, strata),
        4 * tally.n_pairs / m,
        optimism=lost,
        freedom=freedom_of(labels),
    )


def relation_interval(
    row: np.ndarray, column: np.ndarray, y: np.ndarray, scores: np.ndarray, fitted: np.ndarray | None = None
) -> tuple[float, float]:
    """95 % interval of the concordance of held-out scores of labels.

    Labels of one row object depend on each other, and so do those of one column object, so that e labels are not e
    independent observations. se² = se²(rows as clusters) + se²(columns as clusters) - se²(independent labels), in
    Wilson's form, with Student's quantile for the smaller number of objects.

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


def _some_pairs(n: int, most: int = 200_000) -> Any:
    """All pairs of n labels, or a random sample of them, of which a share has a standard error of about .001."""
    if n * (n - 1) // 2 <= most:
        return np.triu_indices(n, 1)
    return np.random.default_rng(0).integers(0, n, (2, most))


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
