"""The candidates of an automatic training at the terminal, and what to do next."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

    from ..report.leaderboard import LeaderboardRow, LeaderboardTable


def print_leaderboard(console: Console, board: LeaderboardTable) -> None:
    """The candidates, best first, with the model above them."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE, title="What was tried", title_justify="left", title_style="bold")
    table.add_column("candidate")
    for title in (
        board.scoring,
        f"against {board.simplest}",
        *(["p (Holm)"] if board.is_tested else []),
        "share",
    ):
        table.add_column(title, justify="right")
    for row in board.rows:
        name, *cells = _cells(row, board.is_tested)
        table.add_row(Text(name), *cells, style="bold" if row.is_model else "")
    console.print(table)
    console.print(Text(board.note))


def print_next_steps(console: Console, steps: Sequence[str]) -> None:
    """What to do next, a line each."""
    from rich.text import Text

    if steps:
        console.print(Text("What to do next", style="bold"))
    for step in steps:
        console.print(Text(f"  - {step}"))


def _cells(row: LeaderboardRow, tested: bool) -> list[str]:
    share = "" if row.is_model or row.share == 0 else f"{100 * row.share:.0f} %"
    return [
        f"{row.name} (this model)" if row.is_model else row.name,
        "no time" if row.score is None else f"{row.score:.4f}",
        "" if row.difference is None else f"{row.difference:+.4f}",
        *(["" if row.pvalue is None else f"{row.pvalue:.2g}"] if tested else []),
        share,
    ]
