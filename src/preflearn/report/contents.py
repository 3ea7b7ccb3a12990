"""What a report of a training holds: plain records, made once, shown as text, JSON or HTML."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from math import isnan
from typing import TYPE_CHECKING, Any

import numpy as np

from ..shown_tables import clipped

if TYPE_CHECKING:
    from ..tables.encoding.kinds import TableSummary

# The baseline that every ranker is compared with.
BEST_FEATURE = "best single feature"
# Characters of a label or a name that stands in a sentence or a table: texts can be both.
LONGEST_NAME = 60
# Features that are shown, the most influential ones.
SHOWN_FEATURES = 10


@dataclass(frozen=True)
class LeaderboardRow:
    """A candidate, or the model made of the candidates.

    Attributes
    ----------
    name : str
    score : float or None
        Held out; None where the candidate was given up.
    difference : float or None
        To the simplest candidate; None for that one.
    pvalue : float or None
        Wilcoxon's signed ranks over queries, corrected by Holm's method; None without queries.
    share : float
        In the model.
    seconds : float
    detail : str
    is_model : bool
    out_of_time : bool
        Whether it was given up for want of time, and not because it was behind.
    """

    name: str
    score: float | None
    difference: float | None
    pvalue: float | None
    share: float
    seconds: float
    detail: str
    is_model: bool = False
    out_of_time: bool = False

    @property
    def shown_score(self) -> str:
        """The score, or why there is none."""
        if self.score is None:
            return "no time" if self.out_of_time else "behind"
        return f"{self.score:.4f}"

    @property
    def label(self) -> str:
        """The name as it is shown; a single feature is named."""
        has_detail = self.name == BEST_FEATURE and self.detail
        return f"{self.name} ({clipped(self.detail, LONGEST_NAME)})" if has_detail else self.name


@dataclass(frozen=True)
class LeaderboardTable:
    """Candidates, best first, and the model.

    Attributes
    ----------
    scoring : str
    simplest : str
        The candidate that the others are compared with.
    rows : tuple of LeaderboardRow
        The model first.
    note : str
        How to read it.
    """

    scoring: str
    simplest: str
    rows: tuple[LeaderboardRow, ...]
    note: str

    @classmethod
    def of(cls, leaderboard: Any, note: str) -> LeaderboardTable:
        """From the `leaderboard_` of an `AutoRanker`."""
        rows = [_row(leaderboard.model, is_model=True), *(_row(one) for one in leaderboard)]
        return cls(leaderboard.scoring, leaderboard.simplest, tuple(rows), note)

    @property
    def is_tested(self) -> bool:
        """Whether differences were tested."""
        return any(row.pvalue is not None for row in self.rows)

    @property
    def model(self) -> LeaderboardRow:
        return self.rows[0]


def _row(entry: Any, *, is_model: bool = False) -> LeaderboardRow:
    score, difference, pvalue = (
        None if isnan(one) else float(one) for one in (entry.score, entry.difference, entry.pvalue)
    )
    return LeaderboardRow(
        entry.name,
        score,
        difference,
        pvalue,
        entry.weight,
        entry.seconds,
        entry.detail,
        is_model,
        entry.out_of_time,
    )


@dataclass(frozen=True)
class DataFile:
    """A file that was learned from, so that it can be recognised again."""

    name: str
    n_bytes: int
    sha256: str


@dataclass(frozen=True)
class Choice:
    """Something that was decided, and why."""

    name: str
    value: str
    why: str


@dataclass(frozen=True)
class AlphaPath:
    """The cross-validated score of every alpha.

    Attributes
    ----------
    alphas, scores : ndarray of shape (n_alphas,)
    chosen : float
    errors : ndarray of shape (n_alphas,) or None
        Standard errors over the held-out units.
    """

    alphas: np.ndarray
    scores: np.ndarray
    chosen: float
    errors: np.ndarray | None = None


@dataclass(frozen=True)
class Estimate:
    """How well new data would be ordered.

    Attributes
    ----------
    measure : str
    value : float
    interval : tuple of two float
        95 %.
    held_out : str
        What was held out, as a sentence.
    interval_method : str
        How the interval was made, as a sentence.
    without_choice : float or None
        The same with alpha chosen for each unit by the others alone.
    checks : tuple of Choice
        How the interval was checked on these data: what, result, meaning.
    """

    measure: str
    value: float
    interval: tuple[float, float]
    held_out: str
    interval_method: str
    without_choice: float | None = None
    checks: tuple[Choice, ...] = ()


@dataclass(frozen=True)
class Baseline:
    """A simpler way to order the same held-out data.

    Attributes
    ----------
    name : str
    value : float
    wins, losses, ties : int or None
        Queries where the learned model is better than this, worse, and equal to it.
    pvalue : float or None
        Wilcoxon signed ranks over queries, corrected by Holm's method.
    is_model : bool
        Whether this is the learned model itself.
    detail : str
        Which one, of the best single feature.
    """

    name: str
    value: float
    wins: int | None = None
    losses: int | None = None
    ties: int | None = None
    pvalue: float | None = None
    is_model: bool = False
    detail: str = ""

    @property
    def label(self) -> str:
        """The name as it is shown."""
        return f"{self.name} ({clipped(self.detail, LONGEST_NAME)})" if self.detail else self.name


@dataclass(frozen=True)
class Influence:
    """What each feature contributes.

    Attributes
    ----------
    names : list of str
    values : ndarray of shape (n,)
    meaning : str
        What the values are, for the axis.
    explanation : str
        How to read them, as a sentence or two.
    errors : ndarray of shape (n,) or None
    """

    names: list[str]
    values: np.ndarray
    meaning: str
    explanation: str
    errors: np.ndarray | None = None


@dataclass(frozen=True)
class Roc:
    """A ROC curve and what it is made of."""

    fpr: np.ndarray
    tpr: np.ndarray
    auc: float
    explanation: str
    n_queries: int = 1


@dataclass(frozen=True)
class Calibration:
    """Whether predicted probabilities of preferences can be trusted, by bins of confidence.

    Attributes
    ----------
    confidence, won, weight : ndarray of shape (b,)
        Mean predicted probability, observed share of wins and number of the favourites of each bin.
    error : float
        Expected calibration error.
    explanation : str
    """

    confidence: np.ndarray
    won: np.ndarray
    weight: np.ndarray
    error: float
    explanation: str


@dataclass(frozen=True)
class Curve:
    """Held-out score over the number of training queries.

    Attributes
    ----------
    n_queries, scores, errors : ndarray of shape (s,)
    rises : bool
        Whether its last step up is statistically significant.
    explanation : str
    extension : Extension or None
        What up to ten times as many queries would bring.
    level : bool
        Whether its last step is small, as far as its interval reaches.
    """

    n_queries: np.ndarray
    scores: np.ndarray
    errors: np.ndarray
    rises: bool
    explanation: str
    extension: Any = None
    level: bool = False


@dataclass(frozen=True)
class ShownItem:
    """An item of a query that is shown.

    Attributes
    ----------
    rank : int
    name : str
    target, score : float
    reasons : tuple of str
        The features that put it there, the largest contribution first.
    """

    rank: int
    name: str
    target: float
    score: float
    reasons: tuple[str, ...]


@dataclass(frozen=True)
class ShownQuery:
    """A query with its items in the order of the model.

    Attributes
    ----------
    label : str
    which : str
        Why this one is shown: "typical", "worst".
    value : float
        Its held-out measure.
    items : tuple of ShownItem
        The first of them.
    n_items : int
        All of them.
    """

    label: str
    which: str
    value: float
    items: tuple[ShownItem, ...]
    n_items: int


@dataclass(frozen=True, eq=False)
class SetSizes:
    """How many items to show so that the best one is among them.

    Attributes
    ----------
    coverage : float
        The share of new queries whose set holds the best item.
    size, items : float
        Mean number of items in a set, and in a query.
    measured : float
        The coverage of held-out queries, their sets made by others.
    interval : tuple of two float
        Its 95 % interval.
    coverages, sizes : ndarray of shape (q,)
        The mean size at every coverage that the queries allow.
    sentence : str
    stored : dict
        What the model file remembers, to make sets of new queries.
    """

    coverage: float
    size: float
    items: float
    measured: float
    interval: tuple[float, float]
    coverages: np.ndarray
    sizes: np.ndarray
    sentence: str
    stored: dict[str, Any]


@dataclass(frozen=True)
class Survival:
    """How long rows with low, middle and high held-out scores lived.

    Attributes
    ----------
    names : list of str
        Of the groups, those of the lowest scores first.
    counts, events : list of int
        Rows of each group, and those whose event was seen.
    medians : list of float
        The time by which half of a group had the event; infinite where less than half had it.
    times, survival : list of ndarray
        Kaplan-Meier curves.
    explanation : str
    """

    names: list[str]
    counts: list[int]
    events: list[int]
    medians: list[float]
    times: list[np.ndarray]
    survival: list[np.ndarray]
    explanation: str

    def rows(self) -> list[tuple[str, ...]]:
        """Group, rows, events and median time, as texts for a table."""
        medians = ["not reached" if one == float("inf") else f"{one:g}" for one in self.medians]
        return [
            (name, f"{n:,}", f"{seen:,}", median)
            for name, n, seen, median in zip(self.names, self.counts, self.events, medians, strict=True)
        ]


@dataclass(frozen=True, repr=False)
class TrainingReport:
    """Everything that is said about one training: in a notebook the page, as text the verdict.

    Attributes
    ----------
    title : str
    summary : str
        The data in one line.
    counts : dict of str to int
        Rows, queries, features, ...
    data : dict of str to str
        What the data are, by name.
    choices : tuple of Choice
    alpha_path : AlphaPath or None
        None where candidates of different kinds were tried.
    estimate : Estimate
    unit : str
        What is held out as one: "query", "fold" or "preference".
    labels, values : ndarrays of shape (n_units,)
        The measure in each held-out unit; NaN where it is not defined.
    sizes : ndarray of shape (n_units,)
        Rows of each unit.
    baselines : tuple of Baseline
        The learned model among them.
    baselines_note : str
    leaks : tuple of str
        Questions about columns that may give the target away.
    influence : Influence or None
    influence_note : str
        Why there is none, or what was left out.
    roc : Roc or None
    calibration : Calibration or None
        Of preferences.
    survival : Survival or None
        Of censored times.
    sets : SetSizes or None
        How many items to show so that the best one is among them, by held-out queries.
    dependence : str
        Where rows depend on each other and were treated as independent: two figures, and what to do.
    verdict : str
        How good, how sure, better than what, and what to do next, in one sentence.
    ndcg : tuple of three float, or None
        Held-out NDCG@10, and the ends of its 95 % interval.
    curve : Curve or None
        Would more queries help?
    queries : tuple of ShownQuery
        A few queries with their items in order.
    leaderboard : LeaderboardTable or None
        The candidates of an automatic training.
    importance : Influence or None
        Where the learned metric and the splits of the trees put their weight.
    next_steps : tuple of str
        What to do with all this.
    seed : int
    version : str
    notes : tuple of str
        What the user should know.
    files : tuple of DataFile
        What was read.
    columns : TableSummary or None
        The kinds that were found of the columns of a table.
    command : str
        What was typed.
    seconds : float
    model_file : str
    """

    title: str
    summary: str
    counts: dict[str, int]
    data: dict[str, str]
    choices: tuple[Choice, ...]
    alpha_path: AlphaPath | None
    estimate: Estimate
    unit: str
    labels: np.ndarray
    values: np.ndarray
    sizes: np.ndarray
    baselines: tuple[Baseline, ...]
    seed: int
    version: str
    baselines_note: str = ""
    leaks: tuple[str, ...] = ()
    influence: Influence | None = None
    influence_note: str = ""
    roc: Roc | None = None
    calibration: Calibration | None = None
    survival: Survival | None = None
    sets: SetSizes | None = None
    dependence: str = ""
    verdict: str = ""
    ndcg: tuple[float, float, float] | None = None
    curve: Curve | None = None
    queries: tuple[ShownQuery, ...] = ()
    leaderboard: LeaderboardTable | None = None
    importance: Influence | None = None
    next_steps: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    files: tuple[DataFile, ...] = ()
    columns: TableSummary | None = None
    command: str = ""
    seconds: float = 0.0
    model_file: str = ""

    def __repr__(self) -> str:
        return f"{self.title}: {self.summary}\n{self.verdict}\nAttributes hold the rest; write_report writes the page."

    def _repr_html_(self) -> str:
        from html import escape

        from .html import render_report

        page, title = escape(render_report(self)), escape(self.title)
        return f'<iframe srcdoc="{page}" title="{title}" style="width:100%;height:45rem;border:0"></iframe>'

    @property
    def has_units(self) -> bool:
        """Whether the measure is spread over several held-out units."""
        return int((~np.isnan(self.values)).sum()) >= 2

    def extremes(self, n: int = 5) -> tuple[list[tuple[str, float, int]], list[tuple[str, float, int]]]:
        """The best and the worst units: label, value and rows of each; no unit is in both lists."""
        defined = np.flatnonzero(~np.isnan(self.values))
        order = defined[np.argsort(self.values[defined], kind="stable")]
        n = min(n, order.size // 2)

        def rows(places: Sequence[int]) -> list[tuple[str, float, int]]:
            return [
                (clipped(str(self.labels[k]), LONGEST_NAME), float(self.values[k]), int(self.sizes[k]))
                for k in places
            ]

        return rows(order[::-1][:n].tolist()), rows(order[:n].tolist())

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, texts and lists, for JSON."""
        found = asdict(self)
        if found["sets"] is not None:
            found["sets"] = {
                k: v for k, v in found["sets"].items() if k not in ("stored", "coverages", "sizes")
            }
        return plain(found)


def plain(value: Any) -> Any:
    """Convert arrays, NumPy numbers and NaN to JSON values."""
    if isinstance(value, dict):
        return {str(key): plain(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(one) for one in value]
    if isinstance(value, np.ndarray):
        return plain(value.tolist())
    if isinstance(value, np.generic):
        return plain(value.item())
    if isinstance(value, float) and not np.isfinite(value):
        return None
    return value
