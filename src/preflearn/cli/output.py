"""What commands say and where: results on stdout, progress on stderr and only at a terminal, JSON on request."""

from __future__ import annotations

import json
import os
import shlex
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import typer

Tell = Callable[[str], None]


def refuse_both(quiet: bool, other: bool, name: str) -> None:
    """Refuse --quiet together with an option that prints more."""
    if quiet and other:
        raise ValueError(f"--quiet and {name} contradict each other: give only one of them.")


@contextmanager
def progress(n_stages: int, *, quiet: bool = False, verbose: bool = False) -> Iterator[Tell]:
    """A function that reports the stage that begins: a bar at a terminal, lines when verbose, silence in a pipe."""
    if quiet:
        yield lambda stage: None
    elif verbose:
        yield lambda stage: print(f"preflearn: {stage}", file=sys.stderr, flush=True)
    elif not sys.stderr.isatty():
        yield lambda stage: None
    else:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

        columns = (BarColumn(24), TimeElapsedColumn(), TextColumn("{task.description}"))
        # Once a second: a log that records a terminal keeps every frame.
        shown = Progress(*columns, console=Console(stderr=True), transient=True, refresh_per_second=1)
        with shown as bar:
            task = bar.add_task("", total=n_stages)
            begun: set[str] = set()

            def tell(stage: str) -> None:
                begun.add(stage.partition(":")[0])  # what follows is about the same stage
                bar.update(task, description=stage, completed=len(begun) - 1, refresh=True)

            yield tell


@contextmanager
def collected_warnings() -> Iterator[list[str]]:
    """Warnings as sentences in a list instead of lines on stderr; each once."""
    notes: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield notes
    for warning in caught:
        # Deprecations are for developers.
        if issubclass(warning.category, (DeprecationWarning, PendingDeprecationWarning, FutureWarning)):
            continue
        text = " ".join(str(warning.message).split())
        if text not in notes:
            notes.append(text)


def print_json(found: Any) -> None:
    """One object on stdout; NaN becomes null."""
    from ..report.contents import plain

    print(json.dumps(plain(found), indent=2, ensure_ascii=False, allow_nan=False))


def write_stdout(text: str) -> None:
    """Write to stdout, whose reader may leave early."""
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader, `head` for example, has seen enough. What is still buffered must not be tried again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def print_notes(console: Any, notes: Any) -> None:
    from rich.text import Text

    for note in notes:
        console.print(Text("note: ", style="yellow").append(note, style="default"))


def tell_notes(notes: Any) -> None:
    """Notes on stderr, for commands whose results go to stdout."""
    for note in notes:
        print(f"note: {note}", file=sys.stderr)


def new_console() -> Any:
    """Tables as wide as the terminal; in a pipe wide enough for whole lines."""
    from rich.console import Console

    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=120)


def print_table(
    console: Any,
    head: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    title: str = "",
    left: int = 1,
    cyan: int | None = None,
    bold: Sequence[int] = (),
) -> None:
    """Print a table of texts, the first columns to the left and the others to the right.

    One column may be cyan, some rows bold.
    """
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE, title=title or None, title_justify="left", title_style="bold")
    for k, name in enumerate(head):
        table.add_column(name, justify="left" if k < left else "right", style="cyan" if k == cyan else None)
    for k, row in enumerate(rows):
        table.add_row(*map(Text, row), style="bold" if k in bold else "")
    console.print(table)


def refuse_others(context: typer.Context, used: Sequence[str], beside: str) -> None:
    """Refuse options that were typed and would be ignored beside something: all but the parameters ``used``."""
    for parameter in context.command.params:
        name = str(parameter.name)
        if parameter.param_type_name == "option" and name not in used and was_typed(context, name):
            raise ValueError(f"{parameter.opts[0]} would be ignored with {beside}: leave it out.")


def was_typed(context: typer.Context, name: str) -> bool:
    """Whether a parameter came from the command line rather than by default."""
    return getattr(context.get_parameter_source(name), "name", "") == "COMMANDLINE"


def typed(context: typer.Context) -> str:
    """The command line that was typed, from what the parser made of it."""
    words = ["preflearn", str(context.info_name)]
    for parameter in context.command.params:
        name = str(parameter.name)
        if not was_typed(context, name):
            continue
        value = context.params[name]
        values = value if isinstance(value, (list, tuple)) else [value]
        for one in values:
            if parameter.param_type_name == "option":
                words.append(parameter.opts[0])
            if not isinstance(one, bool):
                words.append(str(getattr(one, "value", one)))
    return shlex.join(words)
