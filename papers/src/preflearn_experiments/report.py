"""What an experiment found, beside what was published."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from textwrap import fill
from typing import Any

_WIDTH = 120


@dataclass(frozen=True)
class ReportTable:
    """A further table of a report: heading, columns in order, rows."""

    title: str
    columns: tuple[str, ...]
    rows: list[dict[str, Any]]


@dataclass(frozen=True)
class ExperimentReport:
    """The measured rows of an experiment; prints as Markdown.

    Attributes
    ----------
    name : str
        As in ``preflearn reproduce NAME``.
    title : str
    protocol : str
        What was done, and where it differs from the publication.
    published : str
        What the publication reports.
    columns : tuple of str
        Keys of the rows, in the order of the table.
    rows : list of dict
        Numbers and text; None where there is no value.
    findings : list of str
        What the rows say, in words made from the numbers.
    seconds : float
    settings : dict
        The arguments of the run.
    more : list of ReportTable
        Tables after the first.
    """

    name: str
    title: str
    protocol: str
    published: str
    columns: tuple[str, ...]
    rows: list[dict[str, Any]]
    findings: list[str] = field(default_factory=list)
    seconds: float = 0.0
    settings: dict[str, Any] = field(default_factory=dict)
    more: list[ReportTable] = field(default_factory=list)
    draw: Callable[[ExperimentReport, Any], Any] | None = field(default=None, repr=False, compare=False)

    def __str__(self) -> str:
        parts = [
            f"# {self.title}",
            fill(self.protocol, _WIDTH, break_on_hyphens=False),
            fill(f"Published: {self.published}", _WIDTH, break_on_hyphens=False),
            _table(self.columns, self.rows),
        ]
        for table in self.more:
            parts += [f"**{table.title}**", _table(table.columns, table.rows)]
        if self.findings:
            parts.append("\n".join(_bullet(finding) for finding in self.findings))
        parts.append(self._origin())
        return "\n\n".join(parts)

    def _origin(self) -> str:
        """Where the numbers come from: command, seed, time."""
        seed = f", seed {self.settings['seed']}" if "seed" in self.settings else ""
        took = f"{self.seconds:.0f} s" if self.seconds < 600 else f"{self.seconds / 60:.0f} min"
        return f"`preflearn reproduce {self.name}`{seed}, {took}."

    def to_dict(self) -> dict[str, Any]:
        """Everything but the figure."""
        return {key: value for key, value in asdict(self).items() if key != "draw"}

    def to_json(self) -> str:
        """The report as one JSON object."""
        return json.dumps(self.to_dict(), indent=1)

    def plot(self, axes: Any = None) -> Any:
        """Draw the figure of the experiment.

        Parameters
        ----------
        axes : matplotlib Axes or array of them, optional

        Returns
        -------
        matplotlib Figure
        """
        if self.draw is None:
            raise ValueError(f"{self.name} has no figure: print the report for its table.")
        return self.draw(self, axes)

    def save_figure(self, path: str | Path) -> None:
        """Write the figure to a file; the same report gives the same SVG, byte for byte."""
        import matplotlib.pyplot as plt

        undated = {"Date": None} if Path(path).suffix == ".svg" else None
        with plt.rc_context({"svg.hashsalt": self.name}):
            figure = self.plot()
            figure.savefig(path, metadata=undated, dpi=120)
            plt.close(figure)


def _bullet(text: str) -> str:
    return fill(text, _WIDTH, initial_indent="- ", subsequent_indent="  ", break_on_hyphens=False)


def _table(columns: Sequence[str], rows: Sequence[dict[str, Any]]) -> str:
    lines = ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    lines += ["| " + " | ".join(_cell(row.get(column)) for column in columns) + " |" for row in rows]
    return "\n".join(lines)


def _cell(value: Any) -> str:
    if value is None:
        return "–"
    if not isinstance(value, float):
        return str(value)
    # Shares and errors line up in a column; anything else keeps three significant digits.
    return f"{value:.3f}" if 0.01 <= abs(value) < 1 else f"{value:.3g}"
