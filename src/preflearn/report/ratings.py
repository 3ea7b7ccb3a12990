"""The pages about ratings and about tables of scores: who leads, what it rests on, which battles to run next."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..shown_tables import clipped, markdown_text, visible

# Rows of the board that are drawn, and items of the matrix of win probabilities.
_MOST_DRAWN, _MOST_IN_MATRIX = 30, 20
# Rows of the board on the page.
_MOST_ROWS = 1000
# Group letters longer than this are not shown, since nobody could read them at a glance.
_MOST_LETTERS = 8

Columns = Mapping[str, Sequence[Any]]


@dataclass(frozen=True)
class RatingsPage:
    """What the page shows, as plain values.

    Attributes
    ----------
    title, summary, verdict : str
    board : mapping of columns
        As `preflearn.ratings.Ratings.table`.
    level : float
    counts : dict
        Figures for the head of the page, by name.
    held_out, covariates, judges, next_battles, surprises : mapping of columns or None
    calibration : preflearn.metrics.PreferenceCalibration or None
    months : mapping of columns or None
        Boards by month.
    categories : mapping of columns or None
        Boards by category.
    battles_of_pairs : ndarray of shape (m, m) or None
        How often items met, in the order of the board.
    notes : list of str
    settings : dict
        What was chosen, by name.
    command : str
    """

    title: str
    summary: str
    verdict: str
    board: Columns
    level: float
    counts: dict[str, str]
    held_out: Columns | None = None
    covariates: Columns | None = None
    judges: Columns | None = None
    next_battles: Columns | None = None
    surprises: Columns | None = None
    calibration: Any = None
    months: Columns | None = None
    categories: Columns | None = None
    battles_of_pairs: np.ndarray | None = None
    notes: list[str] = field(default_factory=list)
    settings: dict[str, str] = field(default_factory=dict)
    command: str = ""


def shows_groups(board: Columns) -> bool:
    """Whether the letters of groups are few enough to be read."""
    letters = board["group"]
    return any(letters) and max(map(len, letters)) <= _MOST_LETTERS


def markdown_board(board: Columns, n: int | None = None) -> str:
    """The leaderboard as a table for GitHub."""
    groups = shows_groups(board)
    head = ["rank", "item", "rating", "interval", "rank interval", *(["group"] if groups else []), "battles"]
    lines = ["| " + " | ".join(head) + " |", "|--:|:--|--:|:-:|:-:|" + (":--|" if groups else "") + "--:|"]
    for row in rows_of(board, n):
        item = markdown_text(row["item"])
        cells = [str(row["rank"]), item, f"{row['rating']:.0f}", f"{row['lower']:.0f} to {row['upper']:.0f}"]
        cells += [f"{row['rank_lower']} to {row['rank_upper']}", *([row["group"]] if groups else [])]
        lines.append("| " + " | ".join([*cells, f"{row['battles']:,}"]) + " |")
    return "\n".join(lines) + "\n"


def markdown_categories(categories: Columns) -> str:
    """Boards by category as tables for GitHub."""
    lines: list[str] = []
    for category, rows in by_category(categories):
        whole = "lower" in rows[0]
        head = ["item", "rating", *(["interval", "difference", "battles"] if whole else [])]
        lines += [
            "",
            f"## {markdown_text(category)}",
            "",
            f"| {' | '.join(head)} |",
            "|:--|--:|" + (":-:|--:|--:|" if whole else ""),
        ]
        for row in rows:
            cells = [markdown_text(row["item"]), f"{row['rating']:.0f}"]
            if whole:
                interval = f"{row['lower']:.0f} to {row['upper']:.0f}"
                cells += [interval, f"{row['difference']:+.0f}", f"{row['battles']:,}"]
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def by_category(categories: Columns) -> list[tuple[Any, list[dict[str, Any]]]]:
    """The rows of each category, in the order in which they come."""
    found: dict[Any, list[dict[str, Any]]] = {}
    for row in rows_of(categories):
        found.setdefault(row["category"], []).append(row)
    return list(found.items())


def rows_of(columns: Columns, n: int | None = None) -> list[dict[str, Any]]:
    """Rows as mappings, the first n."""
    rows = [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
    return rows if n is None else rows[:n]


def draw_board(board: Columns, ax: Any, kind: str = "ratings", level: float = 0.95) -> Any:
    """Ratings, or ranks, with their intervals; the best on top."""
    ax = _axes(ax, len(board["item"]))
    shown = slice(0, _MOST_DRAWN)
    names = ("rank", "rank_lower", "rank_upper") if kind == "ranks" else ("rating", "lower", "upper")
    middle, low, high = (np.asarray(board[name][shown], dtype=float) for name in names)
    y = np.arange(middle.size)
    ax.errorbar(
        middle, y, xerr=[np.maximum(middle - low, 0), np.maximum(high - middle, 0)], fmt="o", ms=4, lw=1.6
    )
    ax.set_yticks(y, [_short(item) for item in board["item"][shown]])
    ax.invert_yaxis()
    ax.margins(y=0.5 / max(middle.size, 1))
    together = "all ranks hold together" if kind == "ranks" else "each interval"
    ax.set_xlabel(f"{'rank' if kind == 'ranks' else 'rating'} ({100 * level:g} %, {together})")
    return ax


def draw_wins(board: Columns, ax: Any) -> Any:
    """The probability that the item of a row wins against that of a column."""
    ratings = np.asarray(board["rating"][:_MOST_IN_MATRIX], dtype=float)
    P = 1.0 / (1.0 + 10.0 ** ((ratings[None, :] - ratings[:, None]) / 400.0))
    return _draw_matrix(P, board, ax, "probability that the row wins", cmap="coolwarm", vmin=0.0, vmax=1.0)


def draw_coverage(counts: np.ndarray, board: Columns, ax: Any) -> Any:
    """How often the items of a row and of a column met."""
    some = counts[:_MOST_IN_MATRIX, :_MOST_IN_MATRIX]
    return _draw_matrix(np.where(some > 0, some, np.nan), board, ax, "battles", cmap="viridis")


def _draw_matrix(values: np.ndarray, board: Columns, ax: Any, label: str, **options: Any) -> Any:
    """One cell for each pair of the best items."""
    ax = _axes(ax, values.shape[0])
    picture = ax.imshow(values, **options)
    n = values.shape[0]
    names = [f"{_short(item, 18)} {k}" for k, item in enumerate(board["item"][:n], start=1)]
    ax.set_yticks(range(n), names, fontsize=10)
    ax.set_xticks(range(n), range(1, n + 1), fontsize=10, rotation=90 if n > 12 else 0)
    ax.xaxis.tick_top()
    ax.grid(False)
    ax.figure.colorbar(picture, ax=ax, label=label, location="bottom", shrink=0.8)
    return ax


def draw_months(months: Columns, board: Columns, ax: Any) -> Any:
    """The ratings of the best five at the end of each month."""
    ax = _axes(ax, 8)
    labels = list(dict.fromkeys(months["month"]))
    place = {label: k for k, label in enumerate(labels)}
    for item in board["item"][:5]:
        points = [
            (place[month], rating)
            for month, name, rating in zip(months["month"], months["item"], months["rating"], strict=True)
            if name == item
        ]
        ax.plot(*zip(*points, strict=True), marker="o", ms=3, label=_short(item))
    step = max(1, len(labels) // 8)
    ax.set_xticks(range(0, len(labels), step), labels[::step], rotation=45, ha="right")
    ax.set_ylabel("rating")
    ax.legend()
    return ax


def _axes(ax: Any, n_rows: int) -> Any:
    if ax is not None:
        return ax
    import matplotlib.pyplot as plt

    return plt.subplots(figsize=(6.0, 1.2 + 0.26 * min(n_rows, _MOST_DRAWN)), layout="constrained")[1]


def _short(item: Any, most: int = 26) -> str:
    return clipped(visible(item), most)


def render_ratings(page: RatingsPage) -> str:
    """The page as text, without references to other files."""
    from markupsafe import Markup

    from .. import __version__
    from .html import environment, svg_of

    pages = environment()
    pages.filters["whole"] = lambda value: f"{value:,.0f}"
    plots = {name: Markup(svg_of(name, *drawing)) for name, drawing in _drawings(page).items()}
    tables = {
        name: None if (columns := getattr(page, name)) is None else rows_of(columns)
        for name in ("held_out", "covariates", "judges", "next_battles", "surprises")
    }
    judges = tables["judges"] or []
    if judges:
        tables["judges"] = judges[:_MOST_ROWS]
    boards = [] if page.categories is None else by_category(page.categories)
    tables["board"] = rows_of(page.board, _MOST_ROWS)
    span = _span(page.board)
    return pages.get_template("ratings.html.j2").render(
        page=page, tables=tables, plots=plots, version=__version__, groups=shows_groups(page.board), bar=span,
        categories=[(category, rows[:_MOST_ROWS]) for category, rows in boards],
        more=max(len(page.board["item"]) - _MOST_ROWS, 0),
        more_judges=max(len(judges) - _MOST_ROWS, 0), percent=f"{100 * page.level:g}",
    )  # fmt: skip


def _span(board: Columns) -> Any:
    """From a rating to its place in a bar 200 units wide."""
    low, high = min(board["lower"]), max(board["upper"])
    return lambda value: f"{200.0 * (value - low) / max(high - low, 1e-12):.1f}"


def _drawings(page: RatingsPage) -> dict[str, tuple[Any, str, tuple[float, float]]]:
    board = page.board
    n = len(board["item"])
    best = f"The best is {board['item'][0]} with {board['rating'][0]:.0f}."
    size = (4.8, 1.0 + 0.2 * min(n, _MOST_DRAWN))
    square = (4.8, 1.6 + 0.17 * min(n, _MOST_IN_MATRIX))
    found: dict[str, tuple[Any, str, tuple[float, float]]] = {
        "ranks": (lambda ax: draw_board(board, ax, "ranks", page.level), f"Intervals of ranks. {best}", size),
        "wins": (lambda ax: draw_wins(board, ax), f"Matrix of win probabilities, best first. {best}", square),
    }
    counts = page.battles_of_pairs
    if counts is not None:
        met = f"{int((np.triu(counts, 1) > 0).sum()):,} of {n * (n - 1) // 2:,} pairs met."
        found["coverage"] = (
            lambda ax: draw_coverage(counts, board, ax),
            f"How often items met. {met}",
            square,
        )
    if page.calibration is not None:
        from .displays import CalibrationDisplay

        one = page.calibration
        error = one.expected_calibration_error
        shown = CalibrationDisplay(one.confidence, one.won, one.weight, error)
        text = f"Reliability diagram of held-out battles; expected calibration error {error:.3f}."
        found["calibration"] = (shown.plot, text, (4.8, 4.4))
    months = page.months
    if months is not None:
        text = "Ratings of the best five by month."
        found["months"] = (lambda ax: draw_months(months, board, ax), text, (4.8, 3.2))
    return found


# Tables of scores: a board is a `preflearn.ratings.Leaderboard` -------------------------------------------------------


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
