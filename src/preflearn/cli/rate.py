"""``preflearn rate``: from a file of battles, or with ``--table`` of scores, to a leaderboard."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from . import files
from .output import collected_warnings, new_console, print_json, print_notes, progress, refuse_both, typed
from .settings import RATING, JsonOption, QuietOption, read_settings

if TYPE_CHECKING:
    from ..ratings import Leaderboard, Ratings

BattlesPaths = Annotated[
    list[Path],
    typer.Argument(metavar="BATTLES...", help="Files of battles: CSV, TSV, JSON lines or Parquet."),
]


def _column(option: str, text: str) -> Any:
    return typer.Option(option, metavar="COLUMN", help=text)


SideA = Annotated[
    str | None, _column("--a", "Column of one side; found by a usual name (model_a, left, ...).")
]
SideB = Annotated[str | None, _column("--b", "Column of the other side.")]
Winner = Annotated[str | None, _column("--winner", "Column that says who won.")]
Loser = Annotated[str | None, _column("--loser", "Column of losers, where --winner holds the winners.")]
Judge = Annotated[str | None, _column("--judge", "Column that says who judged.")]
Time = Annotated[str | None, _column("--time", "Column of dates.")]
Weight = Annotated[str | None, _column("--weight", "Column of weights: how often each battle counts.")]
Covariates = Annotated[
    list[str] | None,
    typer.Option(
        "--covariate",
        help="Effects to control for: X uses the columns X_a and X_b; position is the advantage of side a. "
        "Repeat the option or separate names with commas.",
    ),
]
Cluster = Annotated[
    str | None, _column("--cluster", "Column that groups dependent battles, such as prompts.")
]
Ranking = Annotated[
    str | None, _column("--ranking", "Column of rankings such as 'a > b > c', in place of battles.")
]
Margin = Annotated[
    str | None,
    _column("--margin", "Margin of victory: X for the columns X_a and X_b, or a column of differences."),
]
Category = Annotated[
    str | None, _column("--category", "Column of categories: a board for each, sharing strength.")
]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="NAME=VALUE",
        help="How to rate (repeat; `--alpha VALUE` works too): half_life, the days after which a battle counts half, "
        "or auto; alpha, the shrinkage, auto or a number, where 0 is maximum likelihood; level, the probability of the "
        "intervals (0.95); anchor=ITEM=RATING gives this item this rating; ties, half (a win each way), davidson (an "
        "outcome of its own) or auto; first_side (`--first-side` or `--first-side=COLUMN`), the advantage of side a; "
        "tie_covariates=COLUMN,... make ties likely; trusted=JUDGE,... are believed, and the others help; skip_bad "
        "(`--skip-bad`) leaves out battles whose label is neither a side nor a tie. With "
        "--table: level, item, task, score and family name columns; lower_is_better is yes or names of tasks.",
    ),
]
TableOption = Annotated[
    bool,
    typer.Option(
        "--table", help="The file is a table of scores, items x tasks or a score in each row, not battles."
    ),
]
Goal = Annotated[
    str | None,
    typer.Option(
        "--goal", help="What the next battles should settle: order, top-5, 'A vs B'. [default: order]"
    ),
]
ReportOption = Annotated[
    Path | None, typer.Option("--report", help="Write a page about the board: HTML, or Markdown for .md.")
]
OutputOption = Annotated[
    Path | None, typer.Option("--output", "-o", help="Write the board: .csv, .tsv, .json or .md.")
]
_SUFFIXES = (".csv", ".tsv", ".json", ".md")
# Files of more bytes are counted by pairs while they are read; and how much more memory their rows take.
_LARGE, _IN_MEMORY = 100_000_000, 10
_COUNTED = (
    "The battles were counted by pairs while they were read, since the file is large: held-out battles are sampled "
    "from these counts, and no diagnostics of individual battles are available."
)


# Long: a parameter for each option.
def rate(
    context: typer.Context,
    battles: BattlesPaths,
    a: SideA = None,
    b: SideB = None,
    winner: Winner = None,
    loser: Loser = None,
    judge: Judge = None,
    time: Time = None,
    weight: Weight = None,
    covariate: Covariates = None,
    cluster: Cluster = None,
    ranking: Ranking = None,
    margin: Margin = None,
    category: Category = None,
    table: TableOption = False,
    settings: Settings = None,
    goal: Goal = None,
    report: ReportOption = None,
    output: OutputOption = None,
    force: files.ForceOption = False,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Rate items from battles, or from scores: intervals, simultaneous rank intervals, and what to run next."""
    refuse_both(quiet, as_json, "--json")
    if output is not None and output.suffix.lower() not in _SUFFIXES:
        raise ValueError(
            f"{output}: the board is written as {', '.join(_SUFFIXES)}: give one of these suffixes."
        )
    files.check_report(report)
    files.check_outputs([output, report], battles, force)
    options: dict[str, Any] = {
        "a": a, "b": b, "winner": winner, "loser": loser, "judge": judge, "time": time, "weight": weight,
        "covariates": tuple(files.split_names(covariate, "--covariate") or ()), "cluster": cluster, "ranking": ranking,
        "margin": margin, **read_settings("--set", settings, RATING),
    }  # fmt: skip
    if options.pop("skip_bad", False):
        options["on_bad"] = "skip"
    if table:
        return _rate_scores(
            battles,
            {**options, "category": category, "goal": goal},
            report,
            output,
            as_json,
            quiet,
            typed(context),
        )
    _refuse_settings_of_scores(options)
    with progress(3, quiet=quiet) as tell, collected_warnings() as warned:
        tell(f"reading {battles[0].name}")
        streamed = _is_large(battles) and not _needs_rows(options, category, battles)
        read = _count(battles, options) if streamed else _read(battles, options, category)
        tell("rating")
        from ..ratings import rate as rate_battles

        found = rate_battles(read, **options)
        _check_goal(found, goal)
        said = [*found.notes]
        found.notes[:] = _with_options(said)  # the page speaks as the command does
        boards = None if category is None else found.boards(_labels(read, category))
        tell("held-out battles and next battles")
        _write(found, boards, battles[0], report, output, typed(context))
        if as_json:
            out = {"source": str(battles[0]), **found.to_dict()}
            out["next_battles"] = _next(found, goal)
            out["categories"] = _category_rows(boards)
    notes = [note for note in warned if note not in said]
    if streamed:
        notes.append(_COUNTED)
    if as_json:
        print_json({**out, "notes": _with_options([*out["notes"], *notes])})
    elif not quiet:
        _show(found, goal, notes, report, output, boards)


def _with_options(notes: list[str]) -> list[str]:
    """Notes that speak of options in place of arguments."""
    named = [re.sub(r"\bPass (\w+)='(\w+)'", r"Pass --\1 \2", note) for note in notes]
    return [note.replace("first_side=True", "--first-side") for note in named]


def _is_large(paths: list[Path]) -> bool:
    return sum(path.stat().st_size * _expansion(path) for path in paths if path.exists()) > _LARGE


def _expansion(path: Path) -> int:
    """How much larger a file is when it is read as text, roughly."""
    return 1 if path.suffix in (".csv", ".tsv", ".jsonl", ".ndjson", ".txt") else 5


def _needs_rows(options: dict[str, Any], category: str | None, paths: list[Path]) -> bool:
    """Whether more is asked for than counts of pairs can tell; refused where the rows do not fit into memory."""
    from ..numerics.memory import fits_in_memory
    from ..ratings.counts import OF_ROWS

    asked = {**{name: options.get(name) for name in OF_ROWS}, "category": category}
    given = [name for name, value in asked.items() if value]
    size = sum(path.stat().st_size * _expansion(path) for path in paths)
    if given and not fits_in_memory(_IN_MEMORY * size):
        from ..errors import InputError

        raise InputError(
            f"{paths[0]}: battles of {size / 1e9:.1f} GB do not fit into memory, and {{argument}} needs every battle. "
            "Without it battles are counted by pairs while they are read: leave it out, or rate a sample",
            argument=given[0],
        )
    return bool(given)


def _count(paths: list[Path], options: dict[str, Any]) -> dict[str, Any]:
    """Counts of distinct pairs and outcomes, read part by part; the options are then about these."""
    from ..ratings import BattleCounts
    from ..ratings.reading import RowError, columns_of_sides
    from ..tables.table import iter_columns

    given = {name: options[name] for name in ("a", "b", "winner", "loser", "weight")}
    texts, numbers = columns_of_sides(files.column_names(paths[0], files.Reading()), **given)
    counts = BattleCounts(**given, on_bad=options.pop("on_bad", "raise"))
    for path in paths:
        before = 0
        for part in iter_columns([path], texts, numbers):
            try:
                counts.add(part)
            except RowError as error:
                raise error.moved(before, path.name) from None
            before += len(part[texts[0]])
    options |= {"a": None, "b": None, "winner": None, "loser": None, "weight": "count"}
    return counts.table


def _labels(table: dict[str, Any], category: str) -> list[Any]:
    from ..errors import InputError

    if category not in table:
        found = ", ".join(list(table)[:10])
        raise InputError(f"{{argument}} asks for the column {category!r}, found {found}", argument="category")
    return [None if label == "" else label for label in list(table[category])]


def _category_rows(boards: Any) -> list[dict[str, Any]] | None:
    from ..ratings.tables import columns_of
    from ..report.ratings import rows_of

    return None if boards is None else rows_of(columns_of(boards.table))


def _read(paths: list[Path], options: dict[str, Any], category: str | None = None) -> dict[str, Any]:
    """The columns of the files; names are read as texts even if they look like numbers."""
    from ..ratings.reading import NAME_COLUMNS
    from ..tables.table import read_table

    asked = _read_answers(paths) if options["winner"] is None and options["a"] is None else None
    if asked is not None:
        return asked
    names = files.column_names(paths[0], files.Reading())
    given = [options[name] for name in ("a", "b", "winner", "loser", "judge", "cluster", "ranking")] + [
        category
    ]
    texts = [name for name in (*given, "winner", *NAME_COLUMNS) if name in names]
    found = read_table(
        [str(path) for path in paths], target=None, query=None, item=None, texts=list(dict.fromkeys(texts))
    )
    return dict(found.columns)


def _read_answers(paths: list[Path]) -> dict[str, Any] | None:
    """The answers of `preflearn ask` that were not undone; None for other files."""
    if any(path.suffix not in (".jsonl", ".ndjson") for path in paths):
        return None
    from ..web.answers import answers_table, parse_entry, standing_answers

    entries = [parse_entry(line) for path in paths for line in path.read_bytes().splitlines() if line.strip()]
    known = [entry for entry in entries if entry is not None]
    if len(known) < len(entries) or not any("question" in entry for entry in known):
        return None
    return answers_table(standing_answers(known))


def _check_goal(found: Ratings, goal: str | None) -> None:
    """Refuse a goal that nothing could be planned for, before anything is written."""
    from ..errors import InputError
    from ..ratings.planning import read_goal
    from ..ratings.ranks import MOST_COMPARED
    from ..ratings.summary import MOST_BATTLES, is_moderate

    if goal is not None and not is_moderate(found):
        raise InputError(
            f"Battles are planned for at most {MOST_COMPARED:,} items and {MOST_BATTLES:,} battles, so that "
            f"{{argument}} would be ignored: found {len(found.items):,} items and {len(found.raw):,} battles",
            argument="goal",
        )
    read_goal(goal, found.items)


def _next(found: Ratings, goal: str | None) -> list[dict[str, Any]] | None:
    from ..ratings.summary import is_moderate
    from ..ratings.tables import columns_of
    from ..report.ratings import rows_of

    return rows_of(columns_of(found.next_battles(5, goal=goal))) if is_moderate(found) else None


def _write(
    found: Ratings, boards: Any, source: Path, report: Path | None, output: Path | None, command: str
) -> None:
    """All texts are made before anything is written, so that a failure leaves nothing behind."""
    from ..ratings.summary import board_text, page_text
    from ..tables.atomic import write_whole

    texts: list[tuple[Path, str]] = []
    if report is not None:
        title = f"Leaderboard of {source.name}"
        texts.append((report, page_text(found, report, title, command, boards)))
    if output is not None:
        texts.append((output, board_text(found, output.suffix.lower(), boards)))
    for path, text in texts:
        write_whole(path, text)


def _show(
    found: Ratings,
    goal: str | None,
    notes: list[str],
    report: Path | None,
    output: Path | None,
    boards: Any = None,
) -> None:
    from ..ratings.summary import is_moderate, sentences, settings, text_board

    console = new_console()
    console.print(text_board(found, 30), markup=False, soft_wrap=True)
    console.print()
    for name, value in settings(found).items():
        console.print(f"{name}: {value}", markup=False)
    for line in (*_covariate_lines(found), *(_extras(found, goal) if is_moderate(found) else ())):
        console.print(line, markup=False, soft_wrap=True)
    for line in _category_lines(boards):
        console.print(line, markup=False, soft_wrap=True)
    print_notes(console, _with_options([*sentences(found), *notes]))
    for path in (report, output):
        if path is not None:
            console.print(f"wrote {path}", markup=False)


def _category_lines(boards: Any) -> list[str]:
    """The first three of each board, and the differences between categories that are significant."""
    from ..shown_tables import visible

    if boards is None:
        return []
    lines, rows = ["", str(boards)], _category_rows(boards) or []
    for category in boards.categories:
        best = [row for row in rows if row["category"] == category][:3]
        shown = ", ".join(f"{visible(row['item'])} {row['rating']:.0f}" for row in best)
        lines.append(f"  {visible(category)}: {shown}")
    sure = [row for row in rows if row.get("pvalue", 1.0) < 0.05]
    for row in sorted(sure, key=lambda row: row["pvalue"])[:10]:
        lines.append(
            f"  {visible(row['item'])} is {abs(row['difference']):.0f} points "
            f"{'better' if row['difference'] > 0 else 'worse'} in {visible(row['category'])} than on average "
            f"(p = {row['pvalue']:.2g}, corrected)"
        )
    if rows and "pvalue" in rows[0] and not sure:
        lines.append("  No item differs significantly between categories.")
    return lines


def _covariate_lines(found: Ratings) -> list[str]:
    from ..ratings.battles import FIRST_SIDE
    from ..ratings.tables import columns_of
    from ..report.ratings import rows_of

    return [
        f"{row['covariate']} is worth {row['points']:.0f} points ({row['points_lower']:.0f} to "
        f"{row['points_upper']:.0f})"
        + ("" if row["covariate"] == FIRST_SIDE else " for a typical difference")
        for row in ([] if found.covariates is None else rows_of(columns_of(found.covariates)))
    ]


def _extras(found: Ratings, goal: str | None) -> list[str]:
    """Held-out battles and next battles in lines."""
    from ..ratings.tables import columns_of
    from ..report.ratings import rows_of
    from ..shown_tables import visible

    lines = [""]
    for row in rows_of(columns_of(found.held_out)):
        lines.append(
            f"held-out {row['held_out']}: {row['method']:<14} log loss {row['log_loss']:.4f}, accuracy "
            f"{row['accuracy']:.3f}, "
            f"calibration error {row['calibration_error']:.3f}"
        )
    needed = found.battles_needed(goal)
    count = "more than a million" if needed is None else f"about {needed:,}"
    settled = (
        f"{goal or 'order'}: settled."
        if needed == 0
        else f"{goal or 'order'}: {count} more battles, well chosen, would settle it. Next:"
    )
    lines += ["", settled]
    if needed != 0:
        lines += [
            f"  {visible(row['item_a'])} against {visible(row['item_b'])}" for row in _next(found, goal) or ()
        ]
    return lines


# ------------------------------------------------------------------------------------- tables of scores

# Settings of scores as arguments of `preflearn.leaderboard`.
_OF_SCORES = {
    "item": "item", "task": "task", "score": "score", "family": "family", "lower_is_better": "higher_is_better",
}  # fmt: skip


def _refuse_settings_of_scores(options: dict[str, Any]) -> None:
    """Settings that mean nothing for battles."""
    from ..errors import InputError

    for name in _OF_SCORES:
        if name in options:
            option = f"--{name.replace('_', '-')}"
            raise InputError(f"{option} is about a table of scores: give --table, or leave it out")


def _rate_scores(
    paths: list[Path],
    options: dict[str, Any],
    report: Path | None,
    output: Path | None,
    as_json: bool,
    quiet: bool,
    command: str,
) -> None:
    """Rank the items of a table of scores, print the board and write what was asked for."""
    from ..errors import InputError
    from ..report.ratings import page_of_scores
    from ..tables.atomic import write_whole

    given = {_OF_SCORES[name]: options[name] for name in _OF_SCORES if name in options}
    ignored = [name for name, value in options.items() if value and name not in (*_OF_SCORES, "level")]
    if ignored:
        raise InputError(
            "{argument} is about battles, not about a table of scores (--table)", argument=ignored[0]
        )
    if "level" in options:
        given["level"] = options["level"]
    with progress(2, quiet=quiet) as tell, collected_warnings() as warned:
        tell(f"reading {paths[0].name}")
        columns = _read_scores(paths, given)
        tell("comparing")
        from ..ratings import leaderboard

        found = leaderboard(columns, **given)
        texts = []
        if report is not None:
            texts.append((report, page_of_scores(found, report, f"Leaderboard of {paths[0].name}", command)))
        if output is not None:
            texts.append((output, _as_file(found, output.suffix.lower())))
        for path, text in texts:
            write_whole(path, text)
    if as_json:
        print_json({"source": str(paths[0]), **found.to_dict()})
    elif not quiet:
        console = new_console()
        console.print(str(found), markup=False, soft_wrap=True)
        print_notes(console, warned)
        for path, _ in texts:
            console.print(f"wrote {path}", markup=False)


def _read_scores(paths: list[Path], given: dict[str, Any]) -> dict[str, Any]:
    """The columns of the files; names are read as texts even if they look like numbers."""
    from ..ratings.scores import ITEMS
    from ..tables.table import read_table

    names = files.column_names(paths[0], files.Reading())
    asked = [given.get(name) for name in ("item", "task", "family")]
    texts = [name for name in names if name in asked or name.lower() in ITEMS]
    found = read_table([str(path) for path in paths], target=None, query=None, item=None, texts=texts)
    return dict(found.columns)


def _as_file(found: Leaderboard, suffix: str) -> str:
    import json

    from ..report.ratings import rows_of
    from ..tables.writing import csv_text

    if suffix == ".md":
        return found.to_markdown()
    if suffix == ".json":
        return json.dumps(found.to_dict(), indent=2, ensure_ascii=False) + "\n"
    rows = (row.values() for row in rows_of(found.columns_of_table))
    return csv_text(found.columns_of_table, rows, "\t" if suffix == ".tsv" else ",")
