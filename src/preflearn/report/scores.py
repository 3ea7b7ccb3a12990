"""The page about a table of scores: who leads, who cannot be told apart, and which tasks decide.

A board here is a `preflearn.ratings.Leaderboard`.
"""

from __future__ import annotations

import os
from typing import Any

from ..shown_tables import markdown_text, visible
from .ratings import draw_board, rows_of

_MOST_TASKS = 20


def shown_rows(board: Any) -> list[tuple[str, ...]]:
    """Rows of the board as texts: rank, item, mean, interval, ranks, group."""
    rows = rows_of(board.columns_of_table)
    digits = _digits(rows)
    return [
        (
            str(row["rank"]),
            visible(row["item"]),
            f"{row['mean']:.{digits}f}",
            f"{row['lower']:.{digits}f} to {row['upper']:.{digits}f}",
            f"{row['rank_lower']} to {row['rank_upper']}",
            row["group"],
        )
        for row in rows
    ]


def _digits(rows: list[dict[str, Any]]) -> int:
    """Of means, so that three figures are seen of the largest."""
    largest = max(abs(row["mean"]) for row in rows)
    return 3 if largest < 2 else 2 if largest < 20 else 1


def markdown_scores(board: Any) -> str:
    """The board as a table for GitHub."""
    lines = [
        "| rank | item | mean | interval | rank interval | group | tasks |",
        "|--:|:--|--:|:-:|:-:|:--|--:|",
    ]
    for row, tasks in zip(shown_rows(board), board.columns_of_table["tasks"], strict=True):
        cells = [row[0], markdown_text(row[1]), *row[2:], f"{tasks:,}"]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def page_of_scores(
    board: Any, path: str | os.PathLike[str], title: str | None = None, command: str = ""
) -> str:
    """HTML, or Markdown by the suffix ``.md``."""
    from .. import __version__

    if os.fspath(path).lower().endswith(".md"):
        notes = "".join(f"- {markdown_text(note)}\n" for note in board.notes)
        head = f"# {markdown_text(title or 'Leaderboard')}\n\n{markdown_text(board.verdict)}"
        return f"{head}\n\n{markdown_scores(board)}\n{notes}"
    from markupsafe import Markup

    from .html import environment, svg_of

    rows, table = shown_rows(board), board.columns_of_table
    text = f"Intervals of ranks. The best is {visible(table['item'][0])}."
    size = (4.8, 1.0 + 0.2 * min(len(rows), 30))
    plot = Markup(svg_of("ranks", lambda ax: draw_board(table, ax, "ranks", board.level), text, size))
    return environment().get_template("scores.html.j2").render(
        board=board, rows=[(*row, tasks) for row, tasks in zip(rows, table["tasks"], strict=True)],
        title=title or "Leaderboard", version=__version__, plot=plot, percent=f"{100 * board.level:g}",
        neighbours=rows_of(board.parts["neighbours"]), borda=rows_of(board.parts["borda"]),
        tasks=rows_of(board.parts["without_tasks"], _MOST_TASKS), command=command,
    )  # fmt: skip
