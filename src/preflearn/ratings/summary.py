"""Ratings in words, as plain values and as a page."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import numpy as np

from ..report.ratings import (
    RatingsPage,
    markdown_board,
    markdown_categories,
    render_ratings,
    rows_of,
    shows_groups,
)
from ..shown_tables import ShownTable, markdown_text, visible
from . import tables
from .judges import judge_table
from .ranks import MOST_COMPARED

if TYPE_CHECKING:
    from .boards import CategoryRatings
    from .result import Ratings

# Battles up to which everything is shown without being asked for, of items all pairs of which are compared.
MOST_BATTLES = 300_000
_WORST = 3
_NEXT = 10
_INTERVALS = (("lower", "upper"), ("rank_lower", "rank_upper"))


def is_moderate(ratings: Ratings) -> bool:
    """Whether held-out battles, judges and next battles take seconds rather than minutes."""
    return len(ratings.items) <= MOST_COMPARED and len(ratings.raw) <= MOST_BATTLES


def verdict(ratings: Ratings) -> str:
    """Which neighbours can be told apart, in a sentence or two."""
    board = ratings.columns
    if len(ratings.items) > MOST_COMPARED:
        best = visible(board["item"][0])
        return f"{best} leads; its rank is between {board['rank_lower'][0]} and {board['rank_upper'][0]}."
    return tables.verdict(board, len(ratings.neighbours()))


def about_fragility(ratings: Ratings) -> list[str]:
    """How few battles decide the first place, in a line."""
    return [str(ratings.fragility())] if is_moderate(ratings) else []


def sentences(ratings: Ratings) -> list[str]:
    """What looks wrong, and what to know."""
    notes = list(ratings.notes)
    if not is_moderate(ratings):
        return notes
    # What no battle connects is among the notes already.
    notes += [text for defect, text, _ in ratings.findings if defect != "disconnected part"]
    if ratings.raw.judge is not None and np.isfinite(ratings.agreement):
        notes.append(f"Krippendorff's alpha of the judges is {ratings.agreement:.2f}.")
    if ratings.raw.judge is not None and len(ratings.raw.judge[1]) > _WORST:
        table = judge_table(ratings.strengths)
        worst = np.argsort(table["reliability"], kind="stable")[:_WORST]
        named = [f"{visible(table['judge'][k])} ({table['reliability'][k]:.2f})" for k in worst]
        notes.append(f"The least reliable judges (1 is average, 0 answers at random): {', '.join(named)}.")
    return notes


def settings(ratings: Ratings) -> dict[str, str]:
    """What was chosen, in words."""
    options = ratings.options
    of_rankings = ratings.raw.rankings is not None
    found = {"Model": "Plackett-Luce" if of_rankings else "Bradley-Terry; a tie is half a win each way"}
    if ratings.raw.margin is not None:
        found["Model"] = f"least squares on margins ({options['margin']}), on the scale of Bradley-Terry"
    if ratings.raw.ties == "davidson":
        found["Model"] = "Davidson: Bradley-Terry with a probability of ties"
    if options["ties"] == "auto":
        found["Model"] += " (by held-out battles)"
    found["Shrinkage (alpha)"] = f"{ratings.alpha:.4g}" + (
        " (by held-out battles)" if options["alpha"] == "auto" else ""
    )
    if ratings.half_life is not None:
        found["Half-life"] = f"{ratings.half_life:g} days"
    elif options["half_life"] == "auto":
        found["Half-life"] = "none: the past counts as much as today"
    if ratings.cluster is None:
        found["Standard errors"] = "of the model"
    else:
        by = options["cluster"] or options["judge"]
        found["Standard errors"] = f"sandwich, {int(ratings.cluster.max()) + 1:,} clusters by {by}"
    if ratings.shift:
        found["Anchor"] = ", ".join(f"{k} = {v}" for k, v in dict(_anchor(options["anchor"])).items())
    return found


def _anchor(anchor: Any) -> Any:
    return anchor if hasattr(anchor, "items") else [tuple(anchor)]


def summary_of(ratings: Ratings) -> dict[str, Any]:
    """Everything as plain values, for JSON."""
    out: dict[str, Any] = {
        "items": len(ratings.items),
        "battles": ratings.raw.n_battles,
        "outcomes": ratings.raw.outcomes,
        "alpha": ratings.alpha,
        "half_life": ratings.half_life,
        "level": ratings.level,
        "ties": ratings.raw.ties,
        "verdict": verdict(ratings),
        "fragility": " ".join(about_fragility(ratings)),
        "notes": sentences(ratings),
        "table": rows_of(ratings.columns),
    }
    for name, columns in _parts(ratings).items():
        out[name] = None if columns is None else rows_of(columns)
    return out


def _parts(ratings: Ratings) -> dict[str, Any]:
    """Tables beside the board; those that take long are left out of large boards."""
    names = ["covariates"]
    if is_moderate(ratings):
        names += ["held_out", "judges", "surprises"]
    parts = {
        name: None if (frame := getattr(ratings, name)) is None else tables.columns_of(frame)
        for name in names
    }
    if is_moderate(ratings):
        parts["next_battles"] = tables.columns_of(ratings.next_battles(_NEXT))
    return parts


def text_board(ratings: Ratings, n: int) -> str:
    """The board as text, the first n rows."""
    table = shown_board(ratings, n)
    width = min(40, max(len(row[1]) for row in table.rows))
    lines = [
        f"{rank:>5}  {name[:width]:<{width}} {rating:>7} {interval:>15} {ranks:>12}"
        + "".join(f"  {letters}" for letters in group)
        for rank, name, rating, interval, ranks, *group in table.rows
    ]
    return "\n".join([table.caption, *lines, *table.notes])


def shown_board(ratings: Ratings, n: int) -> ShownTable:
    """The board for a notebook, the first n rows."""
    board = ratings.columns
    groups = shows_groups(board)
    rows = [("rank", "item", "rating", "interval", "ranks", *(("group",) if groups else ()))]
    for row in rows_of(board, n):
        interval, ranks = (f"{row[low]:.0f} to {row[high]:.0f}" for low, high in _INTERVALS)
        letters = (row["group"],) if groups else ()
        rows.append(
            (str(row["rank"]), visible(row["item"]), f"{row['rating']:.0f}", interval, ranks, *letters)
        )
    left = len(board["item"]) - n
    caption = f"Ratings of {len(ratings.items):,} items by {ratings.raw.n_battles:,} battles"
    return ShownTable(rows, caption, [
        *([f"... and {left:,} more"] if left > 0 else []), verdict(ratings), *about_fragility(ratings)
    ])  # fmt: skip


def page_of(
    ratings: Ratings, title: str | None = None, command: str = "", boards: CategoryRatings | None = None
) -> RatingsPage:
    """What the page shows."""
    parts = _parts(ratings)
    judges = parts.get("judges")
    if judges is not None:
        # Those first whose judgements are least to be relied on.
        order = np.argsort(judges["reliability"], kind="stable")
        parts["judges"] = {name: [values[k] for k in order] for name, values in judges.items()}
    counts = {
        "Items": f"{len(ratings.items):,}",
        "Battles": f"{ratings.raw.n_battles:,}",
        "Ties": f"{100 * float(np.average(ratings.raw.share == 0.5, weights=ratings.raw.weight)):.0f} %",
    }
    months = None
    if is_moderate(ratings):
        counts["Held-out log loss"] = f"{parts['held_out']['log_loss'][0]:.3f}"
        months = _months(ratings)
    judged = "" if ratings.raw.judge is None else f", judged by {len(ratings.raw.judge[1]):,}"
    return RatingsPage(
        title or "Leaderboard",
        f"{ratings.raw.n_battles:,} battles of {len(ratings.items):,} items{judged}.",
        verdict(ratings),
        ratings.columns,
        ratings.level,
        counts,
        calibration=ratings.calibration if is_moderate(ratings) else None,
        months=months,
        categories=_category_columns(boards),
        battles_of_pairs=_meetings(ratings),
        notes=[*about_fragility(ratings), *sentences(ratings)],
        settings=settings(ratings),
        command=command,
        **parts,
    )


def _category_columns(boards: CategoryRatings | None) -> dict[str, list[Any]] | None:
    return None if boards is None else tables.columns_of(boards.table)


def _months(ratings: Ratings) -> Any:
    from .boards import month_edges

    if ratings.raw.time is None or not 2 <= len(month_edges(ratings.raw.time)) <= 120:
        return None
    return tables.columns_of(ratings.by_month())


def _meetings(ratings: Ratings) -> np.ndarray | None:
    """How often items met, in the order of the board."""
    n = len(ratings.items)
    if n > MOST_COMPARED:
        return None
    order = np.argsort(np.argsort(-ratings.strengths.scores, kind="stable"))
    (a, b), counts = order[ratings.raw.pairs].T, np.zeros((n, n))
    np.add.at(counts, (a, b), ratings.raw.weight)
    return counts + counts.T


def write_page(
    ratings: Ratings, path: str | os.PathLike[str], title: str | None = None, command: str = ""
) -> None:
    """HTML, or Markdown by the suffix ``.md``; the file appears whole or not at all."""
    from ..tables.atomic import write_whole

    text = page_text(ratings, path, title, command)
    write_whole(path, text)


def page_text(
    ratings: Ratings,
    path: str | os.PathLike[str],
    title: str | None = None,
    command: str = "",
    boards: CategoryRatings | None = None,
) -> str:
    """What `write_page` writes, with the boards by category where there are some."""
    from .. import __version__

    if os.fspath(path).lower().endswith(".md"):
        notes = "".join(
            f"- {markdown_text(note)}\n" for note in [*about_fragility(ratings), *sentences(ratings)]
        )
        generator = f'<!-- name="generator" content="preflearn {__version__}" -->'
        board = board_text(ratings, ".md", boards)
        head = f"# {markdown_text(title or 'Leaderboard')}\n\n{markdown_text(verdict(ratings))}"
        return f"{generator}\n\n{head}\n\n{board}\n{notes}"
    return render_ratings(page_of(ratings, title, command, boards))


def board_text(ratings: Ratings, suffix: str, boards: CategoryRatings | None = None) -> str:
    """The board as a file: ``.csv``, ``.tsv``, ``.json`` or ``.md``.

    With boards by category, a table (``.csv``, ``.tsv``) is that of the categories; the others have both.
    """
    import csv
    import io
    import json

    categories = _category_columns(boards)
    if suffix == ".md":
        return markdown_board(ratings.columns) + (
            "" if categories is None else markdown_categories(categories)
        )
    if suffix == ".json":
        from ..report.contents import plain

        found = summary_of(ratings)
        if categories is not None:
            found["categories"] = rows_of(categories)
        return json.dumps(plain(found), indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    buffer = io.StringIO(newline="")
    writer = csv.writer(buffer, delimiter="\t" if suffix == ".tsv" else ",", lineterminator="\n")
    columns = ratings.columns if categories is None else categories
    writer.writerow(columns)
    writer.writerows(
        [f"{value:.4f}" if isinstance(value, float) else value for value in row.values()]
        for row in rows_of(columns)
    )
    return buffer.getvalue()
