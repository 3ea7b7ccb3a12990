r"""Is one ranker better than another? Wilcoxon's signed-ranks test over queries, and beside it the paired t-test.

A query is one independent trial. With d_q the difference of a metric between two rankers in query q, and the
differences that are not zero ranked by size,

    W⁺ = Σ ranks of the positive d_q,    W⁻ = Σ ranks of the negative,    r = (W⁺ - W⁻) / (W⁺ + W⁻)

W⁺ tests whether the d_q are centred at zero without assuming that they are normal, and r, the matched-pairs
rank-biserial correlation, says how one-sided they are: 1 when the first ranker wins wherever they differ, -1 when the
second does. Several rankers need several tests, whose p-values are then corrected by Holm's method.

The paired t-test is about the mean of the d_q, with standard error s √(1/n + ρ). Trials whose models were trained on
overlapping rows depend on each other: ρ, the size of a test set over that of its training set, corrects for it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import combinations
from numbers import Integral, Real
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import rankdata, t, wilcoxon

from ..comparisons import encode_queries, one_group
from ..comparisons.censored import lived_longer
from ..comparisons.inputs import NOBODY_OUTLIVED, read_times, surv
from ..metrics import PerQuery, get_scorer
from ..metrics.by_query import check_rows
from ..metrics.registry import full_name
from ..plots import on_axes
from ..shown_tables import ShownTable, align_columns, shows_itself
from ._folds import units_of
from ._intervals import freedom_of, freedom_of_clusters, placement_variance, scarce_labels
from ._performance import C_INDEX
from ._tally import PairTally, tally_scores

# Differences smaller than this are rounding of equal values: shares of pairs from two orders of summation.
_ROUNDING = 1e-12
# Up to this many untied trials, the exact distribution of the statistic is computed.
_EXACT_TRIALS = 50
_ALTERNATIVES = ("two-sided", "greater", "less")


class SignedRanks(NamedTuple):
    """What :func:`signed_rank_test` found.

    Attributes
    ----------
    statistic : float
        W⁺, the sum of the ranks of the differences in favour of the first.
    effect_size : float
        Matched-pairs rank-biserial correlation, -1 .. 1; 0 where the two never differ.
    pvalue : float
        1 where the two never differ.
    n_wins, n_losses, n_ties : int
        Trials where the first is better than the second, worse, and equal to it.
    """

    statistic: float
    effect_size: float
    pvalue: float
    n_wins: int
    n_losses: int
    n_ties: int


def signed_rank_test(first: Any, second: Any, *, alternative: str = "two-sided") -> SignedRanks:
    """Wilcoxon's signed-ranks test of two columns of results of the same trials, queries or data sets.

    Parameters
    ----------
    first, second : array-like of shape (n,)
        Results of the two methods; greater is better. Differences below 1e-12 are rounding and count as ties.
    alternative : {"two-sided", "greater", "less"}, default="two-sided"
        "greater" tests whether the first is better.

    Returns
    -------
    SignedRanks

    Notes
    -----
    Ties are left out of the ranks, as in Wilcoxon's paper. With up to 50 other trials the p-value is exact, even where
    differences are of equal size; with more, the normal approximation is used. O(n log n).

    References
    ----------
    F. Wilcoxon. Individual comparisons by ranking methods. Biometrics Bulletin 1 (1945), 80-83.
    D. S. Kerby. The simple difference formula. Comprehensive Psychology 3 (2014).

    Examples
    --------
    >>> from preflearn.model_selection import signed_rank_test
    >>> found = signed_rank_test([0.8, 0.7, 0.9, 0.6], [0.7, 0.5, 0.6, 0.65])
    >>> found.statistic, found.n_wins, found.n_losses, round(found.pvalue, 3)
    (9.0, 3, 1, 0.25)
    """
    a, b = _read_columns(first, second, alternative)
    differences = a - b
    untied = differences[np.abs(differences) >= _ROUNDING]
    ranks = rankdata(np.abs(untied))
    up, down = float(ranks[untied > 0].sum()), float(ranks[untied < 0].sum())
    return SignedRanks(
        statistic=up,
        effect_size=(up - down) / (up + down) if untied.size else 0.0,
        pvalue=_pvalue(untied, ranks, up, alternative) if untied.size else 1.0,
        n_wins=int((untied > 0).sum()),
        n_losses=int((untied < 0).sum()),
        n_ties=a.shape[0] - untied.shape[0],
    )


def _read_columns(first: Any, second: Any, alternative: str) -> tuple[np.ndarray, np.ndarray]:
    if alternative not in _ALTERNATIVES:
        raise ValueError(f"alternative must be one of {', '.join(_ALTERNATIVES)}: found {alternative!r}.")
    a, b = np.asarray(first, dtype=float), np.asarray(second, dtype=float)
    if a.ndim != 1 or a.shape != b.shape:
        raise ValueError(
            f"first and second must be columns of equal length: found shapes {a.shape}, {b.shape}."
        )
    if np.isnan(a).any() or np.isnan(b).any():
        raise ValueError("first and second must not hold NaN: leave out trials without a result in both.")
    return a, b


def _pvalue(untied: np.ndarray, ranks: np.ndarray, up: float, alternative: str) -> float:
    """Of W⁺ = up, if each difference is as likely to be negative as positive."""
    if untied.size > _EXACT_TRIALS:
        return float(wilcoxon(untied, alternative=alternative, method="asymptotic").pvalue)
    # Mean ranks of equal differences are halves: W⁺ is counted in halves, one difference after the other.
    chances = np.zeros(int(np.rint(2 * ranks.sum())) + 1)
    chances[0] = 1.0
    for halves in np.rint(2 * ranks).astype(int):
        chances[halves:] = (chances[halves:] + chances[:-halves]) / 2
        chances[:halves] /= 2
    found = int(np.rint(2 * up))
    greater, less = float(chances[found:].sum()), float(chances[: found + 1].sum())
    return {"greater": greater, "less": less, "two-sided": min(1.0, 2 * min(greater, less))}[alternative]


class PairedT(NamedTuple):
    """What :func:`paired_t_test` found.

    Attributes
    ----------
    statistic : float
        The mean difference over its standard error; NaN where the two never differ.
    pvalue : float
        1 where the two never differ.
    mean_difference, standard_error : float
    """

    statistic: float
    pvalue: float
    mean_difference: float
    standard_error: float


def paired_t_test(
    first: Any, second: Any, *, overlap: float = 0.0, alternative: str = "two-sided"
) -> PairedT:
    r"""Student's paired t-test, with Nadeau and Bengio's correction for training sets that overlap.

    .. math::

        t = \frac{\bar d}{s \sqrt{1/n + \rho}}, \qquad n - 1 \text{ degrees of freedom}

    Parameters
    ----------
    first, second : array-like of shape (n,)
        Results of the two methods in the same trials; greater is better.
    overlap : float, default=0.0
        ρ, the number of rows of a test set over that of its training set: 1/9 for the results of ten folds, or of
        repeated splits into a tenth and the rest. 0 is for independent trials, such as the queries of a test set.
    alternative : {"two-sided", "greater", "less"}, default="two-sided"
        "greater" tests whether the first is better.

    Returns
    -------
    PairedT

    Notes
    -----
    Without the correction, results of folds or repeated splits look more certain than they are, the more so the more
    splits there are.

    References
    ----------
    C. Nadeau, Y. Bengio. Inference for the generalization error. Machine Learning 52 (2003), 239-281.

    Examples
    --------
    >>> from preflearn.model_selection import paired_t_test
    >>> first, second = [0.8, 0.7, 0.9, 0.6, 0.7], [0.7, 0.6, 0.7, 0.6, 0.6]
    >>> for overlap in (0.0, 0.25):
    ...     print(f"{paired_t_test(first, second, overlap=overlap).pvalue:.3f}")
    0.034
    0.103
    """
    if isinstance(overlap, bool) or not isinstance(overlap, Real) or not 0 <= float(overlap) < np.inf:
        raise ValueError(f"overlap must be a number, 0 or more: found {overlap!r}.")
    a, b = _read_columns(first, second, alternative)
    if a.shape[0] < 2:
        raise ValueError(f"a t-test needs two trials or more: found {a.shape[0]}.")
    differences = a - b
    differences[np.abs(differences) < _ROUNDING] = 0.0
    mean, n = float(differences.mean()), differences.shape[0]
    error = float(differences.std(ddof=1) * np.sqrt(1 / n + float(overlap)))
    statistic = mean / error if error else np.inf * mean
    return PairedT(statistic, _pvalue_of_t(mean, error, n - 1, alternative), mean, error)


def _pvalue_of_t(mean: float, error: float, freedom: float, alternative: str) -> float:
    if error == 0:
        certain = 0.0 if alternative == "two-sided" or (mean > 0) == (alternative == "greater") else 1.0
        return certain if mean else 1.0
    tails = {"greater": -mean, "less": mean, "two-sided": -abs(mean)}
    return float(t.cdf(tails[alternative] / error, freedom)) * (2 if alternative == "two-sided" else 1)


@shows_itself
@dataclass(frozen=True)
class RankerComparison:
    """Two rankers over the same queries; prints itself.

    Attributes
    ----------
    names : tuple of two str
    metric : str
    means : tuple of two float
        The metric of each, averaged over queries.
    n_queries : int
        Queries where the metric is defined.
    n_wins, n_losses, n_ties : int
        Queries where the first ranker is better than the second (wins), worse (losses), and equal to it (ties).
    mean_difference : float
        First minus second.
    effect_size : float
        Matched-pairs rank-biserial correlation, -1 .. 1.
    statistic : float
        W⁺, the sum of the ranks of the differences in favour of the first.
    pvalue : float
    alternative : str
    labels, differences : ndarrays of shape (n_queries,)
        The queries, and the difference in each.
    counted : str
        "queries", or with groups "groups of queries", which ``n_queries`` and all other numbers are then about; each is
        labelled by its first query.
    t_statistic, t_pvalue : float
        Of the paired t-test.
    n_folds : int or None
        The folds that it was corrected for.
    """

    names: tuple[str, str]
    metric: str
    means: tuple[float, float]
    n_queries: int
    n_wins: int
    n_losses: int
    n_ties: int
    mean_difference: float
    effect_size: float
    statistic: float
    pvalue: float
    alternative: str = "two-sided"
    labels: np.ndarray = field(default_factory=lambda: np.empty(0), repr=False)
    differences: np.ndarray = field(default_factory=lambda: np.empty(0), repr=False)
    counted: str = "queries"
    t_statistic: float = float("nan")
    t_pvalue: float = float("nan")
    n_folds: int | None = None

    def __str__(self) -> str:
        first, second = self.names
        width = max(len(first), len(second))
        corrected = "" if self.n_folds is None else f", corrected for {self.n_folds} folds"
        return "\n".join(
            [
                f"{self.metric}, mean over {self.n_queries} {self.counted}",
                f"  {first:<{width}}  {self.means[0]:.4f}",
                f"  {second:<{width}}  {self.means[1]:.4f}",
                f"{first} wins in {self.n_wins} {self.counted}, loses in {self.n_losses}, ties in {self.n_ties}",
                f"Wilcoxon signed ranks ({self.alternative}): p = {_p_text(self.pvalue)}, "
                f"effect size (rank-biserial) {self.effect_size:+.2f}",
                f"paired t ({self.alternative}): p = {_p_text(self.t_pvalue)}, "
                f"mean difference {self.mean_difference:+.4f}{corrected}",
            ]
        )

    def shown_tables(self) -> list[ShownTable]:
        head, *lines = str(self).split("\n")
        return [ShownTable(_mean_rows(dict(zip(self.names, self.means))), head, lines[2:])]

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers and lists, for JSON."""
        plain = asdict(self)
        plain["labels"], plain["differences"] = self.labels.tolist(), self.differences.tolist()
        return plain

    @on_axes
    def plot(self, ax: Any) -> None:
        """The difference in each query, in order of size."""
        values = np.sort(self.differences)
        colors = np.where(values > 0, "C0", np.where(values < 0, "C1", "0.7"))
        ax.bar(np.arange(values.shape[0]), values, width=1.0, color=colors)
        ax.axhline(0, color="0.3", linewidth=0.8)
        ax.set_xlabel(f"{self.counted}, in order of the difference")
        ax.set_ylabel(f"{self.metric}: {self.names[0]} - {self.names[1]}")
        ax.set_title(f"p = {_p_text(self.pvalue)}, effect size {self.effect_size:+.2f}")


@shows_itself
@dataclass(frozen=True)
class CIndexComparison:
    """Two C-indices of the same patients; prints itself.

    Attributes
    ----------
    names : tuple of two str
    values : tuple of two float
        The C-index of each.
    difference : float
        First minus second.
    interval : tuple of two float
        95 %, of the difference.
    standard_error, pvalue : float
    alternative : str
    counted : str
        How many groups, rows and events there were.
    """

    names: tuple[str, str]
    values: tuple[float, float]
    difference: float
    interval: tuple[float, float]
    standard_error: float
    pvalue: float
    alternative: str
    counted: str

    def __str__(self) -> str:
        width = max(map(len, self.names))
        return "\n".join(
            [
                f"C-index of {self.counted}",
                *(
                    f"  {name:<{width}}  {value:.4f}"
                    for name, value in zip(self.names, self.values, strict=True)
                ),
                f"difference {self.difference:+.4f}, 95 % interval {self.interval[0]:+.4f} to {self.interval[1]:+.4f}",
                f"DeLong's test over the placement values ({self.alternative}): p = {_p_text(self.pvalue)}",
            ]
        )

    def shown_tables(self) -> list[ShownTable]:
        head, *lines = str(self).split("\n")
        return [ShownTable(_mean_rows(dict(zip(self.names, self.values, strict=True))), head, lines[2:])]

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers and text, for JSON."""
        return asdict(self)


@shows_itself
@dataclass(frozen=True)
class RankerTable:
    """Several rankers compared with each other, or with one of them; prints itself as a table.

    Attributes
    ----------
    metric : str
    means : dict of str to float
        The metric of each ranker, averaged over queries, best first.
    comparisons : tuple of RankerComparison
    corrected : ndarray of shape (n_comparisons,)
        p-values after Holm's correction, in the order of ``comparisons``.
    """

    metric: str
    means: dict[str, float]
    comparisons: tuple[RankerComparison, ...]
    corrected: np.ndarray

    def __str__(self) -> str:
        means, pairs = self.shown_tables()
        return "\n".join([means.caption, *align_columns(means.rows), *align_columns(pairs.rows)])

    def shown_tables(self) -> list[ShownTable]:
        first = self.comparisons[0]
        caption = f"{self.metric}, mean over {first.n_queries} {first.counted}"
        return [ShownTable(_mean_rows(self.means), caption), ShownTable(self.table())]

    def table(self) -> list[tuple[str, ...]]:
        """Rows of text: heading, then one per pair of rankers."""
        head = ("", "wins", "losses", "ties", "effect", "p", "p (Holm)")
        rows = [
            (
                f"{one.names[0]} - {one.names[1]}",
                str(one.n_wins),
                str(one.n_losses),
                str(one.n_ties),
                f"{one.effect_size:+.2f}",
                _p_text(one.pvalue),
                _p_text(p),
            )
            for one, p in zip(self.comparisons, self.corrected, strict=True)
        ]
        return [head, *rows]

    def to_markdown(self) -> str:
        """Both tables in Markdown."""
        return (
            "\n\n".join([self.shown_tables()[0].caption, *(one.to_markdown() for one in self.shown_tables())])
            + "\n"
        )

    def to_latex(self) -> str:
        """Both tables in LaTeX, for the package booktabs."""
        caption = f"% {self.shown_tables()[0].caption}"
        return "\n".join([caption, *(one.to_latex() for one in self.shown_tables())]) + "\n"

    @on_axes
    def plot(self, ax: Any) -> None:
        """The mean of each ranker as a bar."""
        names = list(self.means)[::-1]
        ax.barh(names, [self.means[name] for name in names], color="C0", height=0.7)
        ax.set_xlabel(f"{self.metric}, mean over {self.comparisons[0].n_queries} queries")

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers and lists, for JSON."""
        return {
            "metric": self.metric,
            "means": dict(self.means),
            "comparisons": [one.to_dict() for one in self.comparisons],
            "corrected": self.corrected.tolist(),
        }


def compare_rankers(
    y: Any,
    scores_a: Any,
    scores_b: Any,
    qid: Any = None,
    *,
    event: Any = None,
    metric: str | Callable[..., PerQuery] = "concordance",
    groups: Any = None,
    alternative: str = "two-sided",
    names: tuple[str, str] = ("a", "b"),
    n_folds: int | None = None,
) -> RankerComparison | CIndexComparison:
    """Test whether two rankers differ, by Wilcoxon's signed ranks over queries and by the paired t-test.

    Two C-indices of the same patients, without queries, are compared by DeLong's test.

    Parameters
    ----------
    y : array-like of shape (m,)
        What is known about each row, higher is better.
    scores_a, scores_b : array-like of shape (m,)
        Scores of the two rankers, of rows that neither was trained on.
    qid : array-like of shape (m,)
        The query of each row: queries, not rows, are the independent trials.
    event : array-like of bool, shape (m,), optional
        Where y holds censored times: True where the event was seen. Without qid the rows are the independent trials.
    metric : str or callable, default="concordance"
        A name of :func:`preflearn.metrics.get_scorer` such as "ndcg@10", or a metric of that module; a callable is
        called as ``metric(y, scores, qid, per_query=True)``.
    groups : array-like of shape (m,), optional
        Labels of dependent rows (patients, documents): queries that share one, directly or through others, are one
        trial, the mean over them.
    alternative : {"two-sided", "greater", "less"}, default="two-sided"
        "greater" tests whether the first is better.
    names : tuple of two str, default=("a", "b")
        Their names in the output.
    n_folds : int, optional
        The number of folds of whole queries (that of the queries for leave-query-out) where the scores are held-out
        ones: the variance of the t-test then grows by the factor 1 + K / (K - 1). Wilcoxon's test has no such
        correction. None is for the queries of a test set.

    Returns
    -------
    RankerComparison, or CIndexComparison of one ranking of censored times

    Raises
    ------
    ValueError
        If ``qid`` is None (without event) or names only one query, or the metric is defined in fewer than two queries.

    Notes
    -----
    The tests are :func:`signed_rank_test` and :func:`paired_t_test`. With K folds of n queries, the means of the folds
    have n / K times the variance of a query over n, and ρ = 1 / (K - 1). O(m log m).

    Examples
    --------
    >>> import numpy as np
    >>> from preflearn.model_selection import compare_rankers
    >>> rng = np.random.default_rng(0)
    >>> qid = np.repeat(np.arange(30), 10)
    >>> y = rng.normal(size=300)
    >>> good, poor = y + rng.normal(size=300), y + 3 * rng.normal(size=300)
    >>> print(compare_rankers(y, good, poor, qid, names=("good", "poor")))
    concordance, mean over 30 queries
      good  0.7637
      poor  0.6452
    good wins in 22 queries, loses in 6, ties in 2
    Wilcoxon signed ranks (two-sided): p = 1.5e-05, effect size (rank-biserial) +0.85
    paired t (two-sided): p = 1.1e-05, mean difference +0.1185
    """
    if alternative not in _ALTERNATIVES:
        raise ValueError(f"alternative must be one of {', '.join(_ALTERNATIVES)}: found {alternative!r}.")
    if n_folds is not None and (
        isinstance(n_folds, bool) or not isinstance(n_folds, Integral) or n_folds < 2
    ):
        raise ValueError(f"n_folds must be a number of folds, 2 or more, or None: found {n_folds!r}.")
    if len(names) != 2:
        raise ValueError(f"names must hold one name for each of the two rankers: found {names!r}.")
    named = (str(names[0]), str(names[1]))
    y, events = read_times(y, event)
    if events is not None:
        if qid is None:
            if metric != "concordance" or n_folds is not None:
                raise ValueError(
                    "Without qid two C-indices of a test set are compared: leave metric and n_folds out, or pass qid."
                )
            return _compare_c_indices(y, events, (scores_a, scores_b), groups, named, alternative)
        y = surv(y, events)
    values_a = _per_query(y, scores_a, qid, metric)
    values_b = _per_query(y, scores_b, qid, metric)
    units = units_of_queries(values_a.labels, qid, groups)
    measure = C_INDEX if events is not None and metric == "concordance" else _metric_name(metric)
    return _compare(values_a, values_b, named, measure, alternative, units, n_folds)


def compare_several_rankers(
    y: Any,
    scores: Mapping[str, Any],
    qid: Any,
    *,
    metric: str | Callable[..., PerQuery] = "concordance",
    groups: Any = None,
    baseline: str | None = None,
) -> RankerTable:
    """Compare several rankers with each other, or all with one, with Holm's correction for the number of tests.

    Parameters
    ----------
    y, qid, metric, groups
        As in :func:`compare_rankers`.
    scores : dict of str to array-like of shape (m,)
        Scores of each ranker by its name; at least two.
    baseline : str, optional
        Compare only with this one; by default every pair of rankers. Fewer tests leave each more power.

    Returns
    -------
    RankerTable

    References
    ----------
    S. Holm. A simple sequentially rejective multiple test procedure. Scandinavian Journal of Statistics 6 (1979).

    Examples
    --------
    >>> import numpy as np
    >>> from preflearn.model_selection import compare_several_rankers
    >>> rng = np.random.default_rng(0)
    >>> qid = np.repeat(np.arange(40), 10)
    >>> y = rng.normal(size=400)
    >>> scores = {name: y + noise * rng.normal(size=400) for name, noise in [("A", 1), ("B", 1.1), ("C", 3)]}
    >>> print(compare_several_rankers(y, scores, qid))
    concordance, mean over 40 queries
      ...
    """
    if not isinstance(scores, Mapping) or len(scores) < 2:
        raise ValueError("scores must be a dict of at least two rankers, {name: scores of its rows}.")
    if baseline is not None and baseline not in scores:
        raise ValueError(f"baseline must be one of {', '.join(map(repr, scores))}: found {baseline!r}.")
    values = {str(name): _per_query(y, one, qid, metric) for name, one in scores.items()}
    best_first = sorted(values, key=lambda name: -values[name].mean)
    pairs = (
        list(combinations(best_first, 2))
        if baseline is None
        else [(name, str(baseline)) for name in best_first if name != str(baseline)]
    )
    of_times = metric == "concordance" and read_times(y, None)[1] is not None
    name_of_metric = C_INDEX if of_times else _metric_name(metric)
    units = units_of_queries(values[best_first[0]].labels, qid, groups)
    comparisons = tuple(
        _compare(values[a], values[b], (a, b), name_of_metric, "two-sided", units) for a, b in pairs
    )
    means = {name: values[name].mean for name in best_first}
    return RankerTable(name_of_metric, means, comparisons, holm([one.pvalue for one in comparisons]))


def holm(pvalues: Sequence[float]) -> np.ndarray:
    """p-values corrected so that the chance of any false alarm among them is bounded (Holm, 1979).

    Parameters
    ----------
    pvalues : sequence of n floats

    Returns
    -------
    ndarray of shape (n,)
        In the given order: the k-th smallest times (n - k + 1), made monotone and at most 1.

    Examples
    --------
    >>> holm([0.01, 0.04, 0.03])
    array([0.03, 0.06, 0.06])
    """
    p = np.asarray(pvalues, dtype=float)
    order = np.argsort(p, kind="stable")
    factors = p.shape[0] - np.arange(p.shape[0])
    corrected = np.empty_like(p)
    corrected[order] = np.minimum(np.maximum.accumulate(p[order] * factors), 1.0)
    return corrected


def _per_query(y: Any, scores: Any, qid: Any, metric: str | Callable[..., PerQuery]) -> PerQuery:
    if qid is None:
        raise ValueError(
            "comparing rankers needs qid: queries are the independent trials of the test. For one global ranking, "
            "compare the intervals of estimate_concordance, or use permutation_test."
        )
    if callable(metric):
        found = metric(y, scores, qid, per_query=True)
    else:
        found = get_scorer(metric).per_query(y, scores, qid)
    if not isinstance(found, PerQuery) or found.values.ndim != 1:
        raise TypeError(
            f"{_metric_name(metric)} must give one value per query when called as "
            "metric(y, scores, qid, per_query=True)."
        )
    if found.values.shape[0] < 2:
        raise ValueError("comparing rankers needs at least two queries: qid names one.")
    return found


def units_of_queries(labels: np.ndarray, qid: Any, groups: Any) -> np.ndarray | None:
    """The number of the unit of each query, in the order of the labels; None without groups."""
    if groups is None:
        return None
    queries = encode_queries(qid, np.shape(qid)[0])
    units = units_of(queries, groups, queries.n_rows).codes[queries.order[queries.starts[:-1]]]
    assert queries.labels is not None
    of_label = dict(zip(queries.labels.tolist(), units.tolist(), strict=True))
    return np.array([of_label[label] for label in np.asarray(labels).tolist()])


def _compare(
    a: PerQuery,
    b: PerQuery,
    names: tuple[str, str],
    metric: str,
    alternative: str,
    units: np.ndarray | None,
    n_folds: int | None = None,
) -> RankerComparison:
    # A metric may be defined for only one ranker (tau-b of constant scores): only common queries are compared.
    defined = ~(np.isnan(a.values) | np.isnan(b.values))
    if defined.sum() < 2:
        raise ValueError(
            f"{metric} is defined for both rankers in {int(defined.sum())} queries: comparing needs at least two. "
            "Check that y is not constant inside the queries."
        )
    first, second, labels = a.values[defined], b.values[defined], a.labels[defined]
    if units is not None:
        trials = encode_queries(units[defined], labels.shape[0])
        if trials.n_groups < 2:
            raise ValueError(
                f"{metric} is defined for both rankers in queries of one group: comparing needs at least two groups."
            )
        first, second = (np.bincount(trials.codes, one) / trials.counts for one in (first, second))
        labels = labels[trials.order[trials.starts[:-1]]]
    differences = first - second
    differences[np.abs(differences) < _ROUNDING] = 0.0
    found = signed_rank_test(first, second, alternative=alternative)
    overlap = 0.0 if n_folds is None else n_folds / ((n_folds - 1) * first.shape[0])
    by_t = paired_t_test(first, second, overlap=overlap, alternative=alternative)
    return RankerComparison(
        names=names,
        metric=metric,
        means=(float(first.mean()), float(second.mean())),
        n_queries=first.shape[0],
        n_wins=found.n_wins,
        n_losses=found.n_losses,
        n_ties=found.n_ties,
        mean_difference=float(differences.mean()),
        effect_size=found.effect_size,
        statistic=found.statistic,
        pvalue=found.pvalue,
        alternative=alternative,
        labels=labels,
        differences=differences,
        t_statistic=by_t.statistic,
        t_pvalue=by_t.pvalue,
        n_folds=n_folds,
        counted="queries" if units is None else "groups of queries",
    )


def _compare_c_indices(
    times: np.ndarray,
    events: np.ndarray,
    scores: tuple[Any, Any],
    groups: Any,
    names: tuple[str, str],
    alternative: str,
) -> CIndexComparison:
    """The difference of two shares of the same pairs, and the placement values of this difference."""
    m = times.shape[0]
    columns = [check_rows(times, one, None).scores[:, 0] for one in scores]
    owners = None if groups is None else encode_queries(groups, m)
    order, everything = lived_longer(times, events) * 1.0, one_group(m)
    a, b = (tally_scores(order, one, everything, owners, events) for one in columns)
    if a.n_pairs == 0:
        raise ValueError(NOBODY_OUTLIVED)
    difference = PairTally(a.wins - b.wins, a.pairs)
    variance = placement_variance(difference, np.zeros(m, dtype=np.int64), owners)
    freedom = freedom_of(scarce_labels(order, events))
    if owners is not None:
        freedom = min(freedom, freedom_of_clusters(difference, owners))
    error = float(np.sqrt(variance))
    half = float(t.ppf(0.975, freedom)) * error
    d = difference.share
    counted = f"{m:,} rows, {int(events.sum()):,} events"
    return CIndexComparison(
        names,
        (a.share, b.share),
        d,
        (d - half, d + half),
        error,
        _pvalue_of_t(d, error, freedom, alternative),
        alternative,
        counted if owners is None else f"{owners.n_groups:,} groups, {counted}",
    )


def _metric_name(metric: str | Callable[..., Any]) -> str:
    """The name as values are shown: that of an error says that it is negated."""
    return getattr(metric, "__name__", repr(metric)) if callable(metric) else full_name(metric)


def _p_text(p: float) -> str:
    return f"{p:.3f}" if p >= 0.001 else f"{p:.1e}"


def _mean_rows(means: Mapping[str, float]) -> list[tuple[str, ...]]:
    return [(name, f"{mean:.4f}") for name, mean in means.items()]
