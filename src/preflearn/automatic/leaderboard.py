"""What the automatic ranker has tried."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isnan, nan
from typing import Any


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
    """

    entries: list[Entry]
    scoring: str
    model: Entry
    simplest: str

    def __len__(self) -> int:
        return len(self.entries)

    def __getitem__(self, place: Any) -> Any:
        return self.entries[place]

    def __str__(self) -> str:
        rows: list[tuple[str, ...]] = [
            ("candidate", "score", f"- {self.simplest}", "p", "share", "seconds", "")
        ]
        rows += [self._row(one) for one in self.entries]
        rows.append(self._row(self.model))
        widths = [max(len(row[k]) for row in rows) for k in range(6)]
        lines = [f"held-out {self.scoring}, choices made by other folds"]
        for name, *cells, detail in rows:
            middle = "  ".join(f"{cell:>{width}}" for cell, width in zip(cells, widths[1:], strict=True))
            lines.append(f"  {name:{widths[0]}}  {middle}  {detail}".rstrip())
        return "\n".join(lines)

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
