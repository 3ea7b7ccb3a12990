"""The candidates of an automatic training, as a report and the terminal show them."""

from __future__ import annotations

from dataclasses import dataclass
from math import isnan
from typing import Any

# The baseline that every ranker is compared with.
BEST_FEATURE = "best single feature"


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
        return f"{self.name} ({self.detail})" if self.name == BEST_FEATURE and self.detail else self.name


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
