"""What commands say and where: results on stdout, progress on stderr and only at a terminal, JSON on request."""

from __future__ import annotations

import json
import re
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer

JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of tables.")]
QuietOption = Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors.")]
VerboseOption = Annotated[
    bool, typer.Option("--verbose", "-v", help="Tell on stderr what is being done, also without a terminal.")
]

Tell = Callable[[str], None]


def refuse_both(quiet: bool, other: bool, name: str) -> None:
    """--quiet and its opposite."""
    if quiet and other:
        raise ValueError(f"--quiet and {name} ask for opposite things: give one of them.")


@contextmanager
def progress(n_stages: int, *, quiet: bool = False, verbose: bool = False) -> Iterator[Tell]:
    """A function that names the stage that begins: a bar at a terminal, lines when verbose, silence in a pipe."""
    if quiet:
        yield lambda stage: None
    elif verbose:
        yield lambda stage: print(f"preflearn: {stage}", file=sys.stderr, flush=True)
    elif not sys.stderr.isatty():
        yield lambda stage: None
    else:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

        columns = (SpinnerColumn(), BarColumn(24), TimeElapsedColumn(), TextColumn("{task.description}"))
        with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
            task = bar.add_task("", total=n_stages)
            started = False

            def tell(stage: str) -> None:
                nonlocal started
                bar.update(task, description=stage, advance=1 if started else 0)
                started = True

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
        text = in_terms_of_options(" ".join(str(warning.message).split()))
        if text not in notes:
            notes.append(text)


def print_json(found: Any) -> None:
    """One object on stdout; NaN becomes null."""
    from preflearn.report.contents import plain

    print(json.dumps(plain(found), indent=2, ensure_ascii=False, allow_nan=False))


def print_notes(console: Any, notes: Any) -> None:
    from rich.text import Text

    for note in notes:
        console.print(Text("note: ", style="yellow").append(note, style="default"))


def new_console() -> Any:
    """Tables as wide as the terminal; in a pipe wide enough for whole lines."""
    from rich.console import Console

    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=120)


@contextmanager
def speaking_of_options() -> Iterator[None]:
    """Errors that name arguments of Python functions name the options of the command line instead."""
    try:
        yield
    except (ValueError, TypeError) as error:
        raise type(error)(in_terms_of_options(str(error))) from error


def in_terms_of_options(message: str) -> str:
    """What a message asks for, as it is typed on the command line.

    Examples
    --------
    >>> in_terms_of_options("Pass encode={'colour': 'onehot'} for categories, or drop=['colour'].")
    'Pass --encode colour=onehot for categories, or --drop colour.'
    """
    for pattern, replacement in _IN_OPTIONS:
        message = re.sub(pattern, replacement, message)
    return message


_ARGUMENTS = "target|query|item|features|drop|encode|missing|delimiter|format|columns"
_IN_OPTIONS = (
    (r"encode=\{'([^']*)': '([^']*)'\}", r"--encode \1=\2"),
    (r"drop=\['([^']*)'\]", r"--drop \1"),
    (r"missing=0\.0 \(or another number, float\('nan'\) included\)", "--missing 0 (or another number)"),
    (r"encode= names", "--encode names"),
    (r"pass target= one of (.*), or target=None for a file without targets", r"pass --target and one of \1"),
    (r"Pass allow_unknown=True to read it as NaN \(not known\)", "Leave such rows out"),
    (r"n_features=(\d+) was given", r"the model was trained with \1"),
    (r"Pass format= one of", "Pass --format and one of"),
    (r"Pass item= the column", "Pass --item and the column"),
    (r"format='([^']*)' is not known", r"--format \1 is not known"),
    (r"\bitem=None\b", "no --item"),
    (r"\bquery=None\b", "--no-query"),
    (r"Pass columns=\[\.\.\.\]", "Pass --columns"),
    (rf"\b({_ARGUMENTS})=(?=\s|$)", r"--\1"),
    (rf"\b({_ARGUMENTS})=(?=[^\s=])", r"--\1 "),
    (r"\(alphas=\.\.\.\)", "(--alphas)"),
    (r"\bn_basis=(\d+)", r"--n-basis \1"),
    (r", or n_basis=None for the full kernel", ""),
    (r"kernel='([^']*)' does not take", r"--kernel \1 does not take"),
)
