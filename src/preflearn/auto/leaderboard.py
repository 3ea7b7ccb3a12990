"""What the automatic ranker has tried: the candidates with what became of them, how well it predicts, and the table.

Differences to the simplest model are tested over queries, which are independent trials: Wilcoxon's signed ranks,
corrected by Holm's method for the number of candidates.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import isnan, nan
from typing import TYPE_CHECKING, Any

import numpy as np

from ..comparisons import Groups, encode_queries
from ..model_selection._choice import Scoring
from ..model_selection.significance import holm, signed_rank_test
from ..plots import new_axes
from ..shown_tables import ShownTable, align_columns, shows_itself
from .combination import FoldScores, choose_combination
from .tasks import Member

if TYPE_CHECKING:
    from .candidates import Candidate

# In the detail of the model, before the figures by which the combination was chosen.
_AHEAD = "; best candidate minus combination "
# Why a candidate was left out.
TIME_LIMIT, BEHIND = "time limit", "behind after the first rounds"


@dataclass(frozen=True)
class Entry:
    """One candidate.

    Attributes
    ----------
    name : str
    score : float
        Held out, its settings chosen by the other folds; NaN where it was left out.
    weight : float
        Its share in the model.
    seconds : float
    detail : str
        The chosen settings, or why it was left out.
    difference : float
        Its score minus that of the simplest model; NaN for that model itself.
    pvalue : float
        Of this difference: Wilcoxon's signed ranks over queries, corrected by Holm's method. NaN where there are no
        queries to test by.
    """

    name: str
    score: float
    weight: float
    seconds: float
    detail: str
    difference: float = nan
    pvalue: float = nan

    @property
    def out_of_time(self) -> bool:
        """Whether it was left out for want of time, and not because it was behind."""
        return self.detail == f"left out: {TIME_LIMIT}"


@shows_itself
@dataclass(frozen=True)
class Leaderboard(Sequence):
    """The candidates, best first; prints itself as a table.

    Attributes
    ----------
    entries : list of Entry
    scoring : str
    model : Entry
        What became of them, with the held-out score of the whole procedure.
    simplest : str
        The name of the candidate that differences are taken to.
    title : str
        What the scores are.
    """

    entries: list[Entry]
    scoring: str
    model: Entry
    simplest: str
    title: str = ""

    @property
    def ahead(self) -> str:
        """How far the best candidate was ahead of the combination where that was decided; empty where none was made."""
        return self.model.detail.partition(_AHEAD)[2]

    @property
    def _caption(self) -> str:
        return self.title or f"held-out {self.scoring}, all choices made on the other folds"

    def __len__(self) -> int:
        return len(self.entries)

    def __getitem__(self, place: Any) -> Any:
        return self.entries[place]

    def table(self) -> list[tuple[str, ...]]:
        """Rows of text: heading, one per candidate, the model."""
        head = ("candidate", "score", f"- {self.simplest}", "p", "share", "seconds", "")
        return [head, *(self._row(one) for one in self.entries), self._row(self.model)]

    def __str__(self) -> str:
        return "\n".join([self._caption, *(line.rstrip() for line in align_columns(self.table(), "lrrrrrl"))])

    def shown_tables(self) -> list[ShownTable]:
        return [ShownTable(self.table(), self._caption, bold=[len(self.entries)])]

    def plot(self, ax: Any = None) -> Any:
        """The score of each candidate and of the model as bars.

        Parameters
        ----------
        ax : matplotlib Axes, optional

        Returns
        -------
        matplotlib Axes
        """
        shown = [one for one in (self.model, *self.entries) if not isnan(one.score)][::-1]
        ax = new_axes((6, 0.35 * len(shown) + 1)) if ax is None else ax
        names = [f"{one.name} (the model)" if one is self.model else one.name for one in shown]
        ax.barh(
            names, [one.score for one in shown], color=["C1" if one is self.model else "C0" for one in shown]
        )
        ax.set_xlabel(f"held-out {self.scoring}")
        return ax

    def _row(self, one: Entry) -> tuple[str, ...]:
        return (
            one.name,
            _number(one.score, ".4f"),
            _number(one.difference, "+.4f"),
            _number(one.pvalue, ".2g"),
            f"{one.weight:.0%}" if one.weight > 0 else "-",
            f"{one.seconds:.1f}",
            one.detail,
        )


def _number(value: float, style: str) -> str:
    return "-" if isnan(value) else format(value, style)


# From attempts to the table -----------------------------------------------------------------------------------------

# Members with a smaller share are not worth the time that they take in prediction.
LEAST_SHARE = 0.01
# Two folds that choose for each other need this number of rows, unless the procedure is repeated without each.
_ROWS_FOR_TWO_FOLDS = 50


@dataclass
class Attempt:
    """A candidate, and what became of it.

    Attributes
    ----------
    candidate : Candidate
    member : Member or None
        None where it was left out.
    seconds : float
    share : float
        In the model.
    factor : float
        Of its predictions.
    reason : str
        Why it was left out.
    """

    candidate: Candidate
    member: Member | None = None
    seconds: float = 0.0
    share: float = 0.0
    factor: float = 0.0
    reason: str = TIME_LIMIT


@dataclass(frozen=True)
class Trial:
    """All attempts, and the model that they led to.

    Attributes
    ----------
    attempts : list of Attempt
    folds : FoldScores
        By the measure that is reported.
    held_out : ndarray of shape (m,)
        Predictions of the whole procedure for held-out rows.
    name : str
        Of the model: "combination", or that of the candidate that it is.
    scored : bool array of shape (f,)
        The folds that held-out scores are given for: those with rows to compare whose predictions no choice flatters.
    ahead : str
        How far the best candidate was ahead of the combination where that was decided.
    """

    attempts: list[Attempt]
    folds: FoldScores
    held_out: np.ndarray
    name: str
    scored: np.ndarray
    ahead: str = ""

    @property
    def score(self) -> float:
        """Held-out score of the model; NaN where no honest one can be given."""
        return self._figure(self.held_out)

    @property
    def kept(self) -> list[tuple[Attempt, Member]]:
        """The members of the model: those with a share that is worth the time that they take in prediction."""
        return [(one, one.member) for one in self.attempts if one.member and one.share >= LEAST_SHARE]

    @property
    def with_share(self) -> list[tuple[Attempt, Member]]:
        """The members that have a share."""
        return [(one, one.member) for one in self.attempts if one.share > 0 and one.member is not None]

    def score_of(self, attempt: Attempt) -> float:
        """Held-out score of a candidate, its settings chosen by the other folds."""
        if attempt.member is None:
            return float("nan")
        return self._figure(attempt.member.unbiased)

    def _figure(self, predictions: np.ndarray) -> float:
        if np.count_nonzero(self.scored) < 2:
            return float("nan")
        return float(self.folds.mean(np.where(self.scored, self.folds.of(predictions), np.nan)))

    @property
    def scored_rows(self) -> np.ndarray:
        """Whether the fold of each row is scored, shape (m,)."""
        out = np.zeros(self.held_out.shape[0], dtype=bool)
        for test, is_scored in zip(self.folds.tests, self.scored, strict=True):
            out[test] = is_scored
        return out

    def leaderboard(
        self,
        y: np.ndarray,
        queries: Groups,
        scoring: Scoring,
        name_of: Callable[[int], str],
        units: Groups | None = None,
    ) -> Leaderboard:
        """The table of the candidates, best first, each compared with the first and simplest of them.

        Queries of one of the units, where there are any, are one trial of the comparison.
        """
        first, *others = [one for one in self.attempts if one.member is not None]
        assert first.member is not None
        predictions = [one.member.unbiased for one in others if one.member is not None] + [self.held_out]
        pvalues = _test(y, first.member.unbiased, predictions, queries, units, scoring, self.scored_rows)
        least = self.score_of(first)
        tested = {id(one): p for one, p in zip(others, pvalues)}
        entries = []
        for one in self.attempts:
            score = self.score_of(one)
            entries.append(
                Entry(
                    one.candidate.name,
                    score,
                    float(one.share),
                    one.seconds,
                    f"left out: {one.reason}" if one.member is None else _detail(one.member, name_of),
                    float("nan") if one is first else score - least,
                    tested.get(id(one), float("nan")),
                )
            )
        entries.sort(key=lambda one: -one.score if one.score == one.score else np.inf)
        seconds = sum(one.seconds for one in self.attempts)
        model = Entry(
            self.name,
            self.score,
            1.0,
            seconds,
            f"the model, all choices included{self.ahead}",
            *((nan, nan) if self.name == first.candidate.name else (self.score - least, pvalues[-1])),
        )
        of_times = y.dtype.names is not None and scoring.name == "'concordance'"
        title = "held-out C-index, all choices made on the other folds" if of_times else ""
        return Leaderboard(entries, scoring.name.strip("'"), model, first.candidate.name, title)


def weigh(
    attempts: list[Attempt], joining: list[Attempt], y: np.ndarray, queries: Groups, folds: FoldScores
) -> Trial:
    """The trial in which the attempts that join get their shares by what they predict for held-out rows."""
    members = [one.member for one in joining if one.member is not None]
    held_out, unbiased = (
        np.column_stack([getattr(member, name) for member in members]) for name in ("held_out", "unbiased")
    )
    chosen = choose_combination(held_out, unbiased, y, queries, folds.choosing)
    for one, weight, spread in zip(joining, chosen.weights, chosen.spreads, strict=True):
        one.share, one.factor = weight / chosen.weights.sum(), weight / spread
    alone = [one.candidate.name for one in joining if one.share >= 1 - LEAST_SHARE]
    # With two folds of few rows, what one of them chooses is what the other would.
    scored = (folds.sizes > 0) & (folds.n_scored > (2 if y.shape[0] < _ROWS_FOR_TWO_FOLDS else 1))
    ahead = (
        f"{_AHEAD}{chosen.ahead:+.4f}, standard error {chosen.ahead_error:.4f}" if len(members) > 1 else ""
    )
    return Trial(attempts, folds, chosen.nested, alone[0] if alone else "combination", scored, ahead)


def _detail(member: Member, name_of: Callable[[int], str]) -> str:
    """The settings of a candidate; of a single feature its name and direction."""
    if member.detail or not hasattr(member.model, "coef_"):
        return member.detail
    feature = int(np.flatnonzero(member.model.coef_)[0])
    return name_of(feature) + ("" if member.model.coef_[feature] > 0 else ", lowest first")


def _test(
    y: np.ndarray,
    first: np.ndarray,
    others: list[np.ndarray],
    queries: Groups,
    units: Groups | None,
    scoring: Scoring,
    rows: np.ndarray,
) -> list[float]:
    """Corrected p-values of the differences between the other predictions and the first, in the queries of rows."""
    unknown = [float("nan")] * len(others)
    if scoring.scorer is None or queries.n_groups < 2:
        return unknown
    values = np.stack([scoring.scorer.per_query(y, one, queries).values for one in (first, *others)])
    representative = queries.order[queries.starts[:-1]]
    defined = ~np.isnan(values).any(axis=0) & rows[representative]
    values = values[:, defined]
    if units is not None:
        trials = encode_queries(units.codes[representative[defined]], values.shape[1])
        values = np.stack([np.bincount(trials.codes, one) for one in values]) / trials.counts
    if values.shape[1] < 2:
        return unknown
    return holm([signed_rank_test(one, values[0]).pvalue for one in values[1:]]).tolist()
