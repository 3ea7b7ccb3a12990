"""What was found in a table: the kind of each column, its missing values, and what is set aside and why."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

_LONGEST_NAME = 28


class TableWarning(UserWarning):
    """Something in a table that does not prevent a prediction, but that its owner should know."""


@dataclass
class ColumnSummary:
    """One column of a table.

    Attributes
    ----------
    name : str
    kind : str
        ``"number"``, ``"boolean"``, ``"category"``, ``"date"``, ``"text"``, ``"words"``; or why the column is set
        aside: ``"constant"``, ``"empty"``, ``"identifier"``, ``"drop"``.
    n_features : int
        Columns of the output that it became.
    n_missing : int
        Rows without a value.
    detail : str
        Categories, range or the like.
    notes : list of str
        What a reader should know.
    """

    name: str
    kind: str
    n_features: int = 0
    n_missing: int = 0
    detail: str = ""
    notes: list[str] = field(default_factory=list)


@dataclass
class TableSummary:
    """The columns of a table; prints itself.

    Attributes
    ----------
    columns : list of ColumnSummary
    n_rows : int
    query : str or None
        The column that looks like the query column, if one does.
    """

    columns: list[ColumnSummary]
    n_rows: int
    query: str | None = None

    def _fitted_arrays(self) -> dict[str, str]:
        """What a loaded summary is checked for (`preflearn.tables.models.fitted`)."""
        if not all(isinstance(column, ColumnSummary) for column in self.columns):
            raise ValueError("columns are not summaries of columns")
        return {"columns": "a list"}

    def __getitem__(self, name: str) -> ColumnSummary:
        for column in self.columns:
            if column.name == name:
                return column
        raise KeyError(name)

    def __iter__(self) -> Iterator[ColumnSummary]:
        return iter(self.columns)

    def __len__(self) -> int:
        return len(self.columns)

    @property
    def kinds(self) -> dict[str, str]:
        """Kind of each column by name."""
        return {column.name: column.kind for column in self.columns}

    def by_kind(self) -> list[tuple[str, list[str], int, list[str]]]:
        """Kind, names of its columns, number of their features, and what to know about them, in few lines."""
        found = []
        for kind in dict.fromkeys(self.kinds.values()):
            columns = [column for column in self.columns if column.kind == kind]
            notes = [f"{column.name}: {note}" for column in columns for note in column.notes]
            missing = [column.name for column in columns if column.n_missing and column.n_features]
            if missing:
                notes.append(
                    f"missing values in {', '.join(missing[:6])}{', ...' if len(missing) > 6 else ''}"
                )
            names = [column.name for column in columns]
            found.append((kind, names, sum(column.n_features for column in columns), notes))
        return found

    def __str__(self) -> str:
        n_features = sum(column.n_features for column in self.columns)
        heading = ("column", "kind", "features", "missing", "found")
        rows = [
            (
                _clip(column.name),
                column.kind,
                str(column.n_features or "-"),
                _share(column.n_missing, self.n_rows),
                "; ".join([*([column.detail] if column.detail else []), *column.notes]),
            )
            for column in self.columns
        ]
        widths = [max(len(row[k]) for row in [heading, *rows]) for k in range(4)]
        lines = [f"{self.n_rows:,} rows, {len(self.columns)} columns, {n_features} features"]
        for row in [heading, *rows]:
            cells = [
                row[0].ljust(widths[0]),
                row[1].ljust(widths[1]),
                row[2].rjust(widths[2]),
                row[3].rjust(widths[3]),
            ]
            lines.append("  ".join([*cells, row[4]]).rstrip())
        if self.query is not None:
            lines.append(f"{self.query!r} looks like the query column: pass it as qid, not as a feature.")
        return "\n".join(lines)

    __repr__ = __str__


def _clip(name: str) -> str:
    return name if len(name) <= _LONGEST_NAME else name[: _LONGEST_NAME - 3] + "..."


def _share(count: int, total: int) -> str:
    if count == 0:
        return "-"
    share = 100 * count / total
    return "<1%" if share < 1 else f"{share:.0f}%"
