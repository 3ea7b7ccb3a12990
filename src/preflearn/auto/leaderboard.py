"""What the automatic ranker has tried."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isnan, nan
from typing import Any

from ..plots import new_axes
from ..shown_tables import ShownTable, align_columns, shows_itself

# Why a candidate was left out that was not behind.
TIME_LIMIT = "time limit"


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
