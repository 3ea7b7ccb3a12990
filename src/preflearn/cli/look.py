"""``preflearn look``: what is in a table, before anything is trained."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from . import files
from .output import collected_warnings, new_console, print_json, print_notes
from .settings import JsonOption, ReadOption

if TYPE_CHECKING:
    from ..model_selection.dependence import Dependence
    from ..report.look import TableLook


def look(
    data: files.DataPaths,
    report: Annotated[Path | None, typer.Option("--report", help="Write an HTML page to this file.")] = None,
    target: files.TargetOption = None,
    query: files.QueryOption = None,
    no_query: files.NoQueryOption = False,
    event: files.EventOption = None,
    drop: files.DropOption = None,
    read: ReadOption = None,
    force: files.ForceOption = False,
    as_json: JsonOption = False,
) -> None:
    """Look at a table before training: kinds, missing values, outliers, likely target and queries, leaks."""
    reading = files.Reading.from_options(
        read,
        target=target,
        query=query,
        no_query=no_query,
        drop=drop,
        event=event,
        unused=["weight", "prompt", "skip_bad"],
    )
    files.check_outputs([report], data, force)
    if report is not None:
        from ..report.html import require_parts

        require_parts()
    with collected_warnings() as warned:
        found, dependence, trainable = _look_at(data, reading)
    about, notes = [], _with_options(found)
    if dependence is not None:
        about = [files.say_dependence(dependence)]
        notes = [note for note in notes if not note.startswith(f"`{dependence.column}` alone")]
    command = _command(data, found, dependence, _target(reading, found)) if trainable else ""
    found = replace(found, notes=(*about, *notes, *warned), command=command)
    if report is not None:
        found.write(report)
    if as_json:
        print_json({**found.to_dict(), "report": None if report is None else str(report)})
        return
    _show(found, report, *about)


def _look_at(paths: list[Path], reading: files.Reading) -> tuple[TableLook, Dependence | None, bool]:
    """Every column of the files, whatever its role; the one that divides dependent rows, if one does.

    And whether there is a target that `train` takes.
    """
    from ..errors import InputError
    from ..model_selection.dependence import find_dependence
    from ..report.look import look as look_at
    from ..report.look import target_of
    from ..tables.ranking import read_ranking
    from ..tables.table import read_table

    names, title = [str(path) for path in paths], files.together(paths)
    if not reading.is_table(paths[0]):
        found = read_ranking(names, **reading.of_letor())
        X = found.X if not hasattr(found.X, "toarray") else found.X.toarray()
        columns: dict[str, Any] = {} if found.qid is None else {"qid": found.qid.astype(str).astype(object)}
        columns |= {f"feature {name}": X[:, k] for k, name in enumerate(found.feature_names)}
        return look_at({**columns, "target": found.y}, target="target", title=title), None, True
    table = read_table(names, **reading.of_table(target=None, query=None, item=None))
    event = "=".join(filter(None, (reading.event, reading.seen))) or "auto"
    asked = {"target": reading.target, "query": reading.query, "item": reading.item, "event": event}
    try:
        seen = look_at(table.columns, title=title, **asked)
        y = None if seen.target is None else target_of(table.columns, _target(reading, seen), seen.event)
    except InputError:
        raise
    except ValueError as error:
        raise ValueError(f"{paths[0]}: {error}") from error
    # A query column that was only guessed may be one of patients.
    if y is None or reading.query not in ("auto", None) or seen.query in ("qid", "query"):
        return seen, None, y is not None
    used = {seen.target, (seen.event or "").partition("=")[0]}
    others = {name: values for name, values in table.columns.items() if name not in used}
    found_in = find_dependence(others, y)
    if found_in is not None and found_in.column == seen.query:
        seen = look_at(table.columns, title=title, **{**asked, "query": None})
    return seen, found_in, True


def _with_options(found: TableLook) -> list[str]:
    """The notes, with the option that leaves a suspicious column out."""
    names = {one.name for one in found.columns}
    out = []
    for note in found.notes:
        name = note.split("`")[1] if note.startswith("`") and "known before ranking?" in note else None
        out.append(f"{note} --drop {shlex.quote(name)}" if name in names and name is not None else note)
        if note.startswith("The target `") and "has two labels" in note:
            out[-1] = note.replace(", as ", ": --target ").replace(" or ", " or --target ")
    return out


def _target(reading: files.Reading, found: TableLook) -> str:
    """The target as it was asked for, with its label, or as it was found."""
    return str(found.target if reading.target == "auto" else reading.target)


def _command(paths: list[Path], found: TableLook, dependence: Dependence | None, target: str) -> str:
    """What to type to train on this table; nothing where `train` would find nothing to learn."""
    kinds = {one.name: one.kind for one in found.columns}
    queries, features = found.queries, {one.name for one in found.columns if one.role == "feature"}
    no_pair = queries and queries.get("without_pair") == queries["queries"]
    nothing = no_pair or not features or found.n_rows < 4  # which `train` refuses
    if found.target is None or kinds[found.target] in ("empty", "constant") or nothing:
        return ""
    words = ["preflearn", "train", *map(str, paths)]
    words += [] if target == "target" else ["--target", target]
    words += [] if found.event is None else ["--event", found.event]
    words += [] if found.query in (None, "qid", "query") else ["--query", str(found.query)]
    words += [] if dependence is None or found.query is not None else ["--group", dependence.column]
    from ..metrics.single_columns import LEAK_SHARE

    leaks = [one.name for one in found.columns if one.alone is not None and one.alone >= LEAK_SHARE]
    leaks = [name for name in leaks if dependence is None or name != dependence.column]
    words += ["--drop", ",".join(leaks)] if leaks and features - {*leaks} else []
    event, group = (found.event or "").partition("=")[0], dependence and dependence.column
    needed = [name for name in (found.target, found.query, event, group) if name]
    words += ["--skip-bad"] if any(found[name].n_missing for name in needed) else []
    return shlex.join(words)


def _show(found: TableLook, report: Path | None, *first: str) -> None:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    console = new_console()
    for line in first:
        console.print(Text(line, style="bold red"))
    console.print(Text(found.title, style="bold").append(f": {found.summary}", style="not bold"))
    table = Table(box=box.SIMPLE)
    for heading, side in zip(("column", "kind", "role", "missing", "distinct", "alone", "found"), "lllrrrl"):
        table.add_column(
            heading,
            justify="right" if side == "r" else "left",
            overflow="fold",
            no_wrap=heading != "found" and side == "r",
        )
    for row in found.rows():
        style = {"target": "green", "feature": "", "set aside": "dim"}.get(row[2], "cyan")
        table.add_row(*map(Text, row), style=style)
    console.print(table)
    if found.target is not None:
        console.print(
            Text("alone: share of the pairs that the column puts in the right order alone; 50 % is chance.")
        )
    print_notes(console, found.notes[len(first) :])
    if found.command:
        console.print(Text("To train on it: ").append(found.command, style="bold"), soft_wrap=True)
    if report is not None:
        console.print(Text(f"Wrote {report}."))
