"""What the automatic ranker has tried."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
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
    """

    name: str
    score: float
    weight: float
    seconds: float
    detail: str


@dataclass(frozen=True)
class Leaderboard(Sequence):
    """The candidates, best first; prints itself as a table.

    Attributes
    ----------
    entries : list of Entry
    scoring : str
    final : str
        What became of them.
    final_score : float
    """

    entries: list[Entry]
    scoring: str
    final: str
    final_score: float

    def __len__(self) -> int:
        return len(self.entries)

    def __getitem__(self, place: Any) -> Any:
        return self.entries[place]

    def __str__(self) -> str:
        width = max(len(one.name) for one in self.entries + [Entry(self.final, 0.0, 0.0, 0.0, "")])
        lines = [f"held-out {self.scoring}, choices made by other folds", self._line("candidate", width)]
        for one in self.entries:
            score = f"{one.score:.4f}" if one.score == one.score else "-"
            share = f"{one.weight:.0%}" if one.weight > 0 else "-"
            lines.append(self._line(one.name, width, score, share, f"{one.seconds:.1f}", one.detail))
        seconds = sum(one.seconds for one in self.entries)
        lines.append(
            self._line(self.final, width, f"{self.final_score:.4f}", "", f"{seconds:.1f}", "the model")
        )
        return "\n".join(lines)

    def _line(self, name: str, width: int, *cells: str) -> str:
        score, share, seconds, detail = cells or ("score", "share", "seconds", "")
        return f"  {name:{width}}  {score:>6}  {share:>5}  {seconds:>7}  {detail}".rstrip()
