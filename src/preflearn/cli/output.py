"""What commands say and where: results on stdout, progress on stderr and only at a terminal, JSON on request."""

from __future__ import annotations

import json
import os
import shlex
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .settings import LEARNING, READING

if TYPE_CHECKING:
    from ..errors import Remedy

JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of tables.")]
QuietOption = Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors.")]
VerboseOption = Annotated[
    bool, typer.Option("--verbose", "-v", help="Log progress to stderr, even without a terminal.")
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


def typed(context: typer.Context) -> str:
    """The command line that was typed, from what the parser made of it."""
    words = ["preflearn", str(context.info_name)]
    for parameter in context.command.params:
        name = str(parameter.name)
        if getattr(context.get_parameter_source(name), "name", "") != "COMMANDLINE":
            continue
        value = context.params[name]
        values = value if isinstance(value, (list, tuple)) else [value]
        for one in values:
            if parameter.param_type_name == "option":
                words.append(parameter.opts[0])
            if not isinstance(one, bool):
                words.append(str(getattr(one, "value", one)))
    return shlex.join(words)


def as_option(remedy: Remedy, command: str = "") -> str | None:
    """A remedy as it is typed on the command line; None where there is no option for it.

    Options of a command's own go before those that commands share.

    Examples
    --------
    >>> from preflearn.errors import Remedy
    >>> as_option(Remedy("encode", {"colour": "onehot"}, "for categories"))
    '--encode colour=onehot for categories'
    >>> as_option(Remedy("query", None)), as_option(Remedy("allow_unknown", True))
    ('--no-query', None)
    """
    if remedy.argument == "query" and remedy.has_value and remedy.value is None:
        return f"--no-query {remedy.purpose}".rstrip()
    value = remedy.value if remedy.has_value else ""
    own = _OWN_OPTIONS.get(command, {})
    known = own if own else _OPTIONS
    if remedy.argument not in known or value is None or value != value:
        return None
    if isinstance(value, dict):
        value = ",".join(f"{column}={how}" for column, how in value.items())
    elif isinstance(value, (list, tuple)):
        value = ",".join(map(str, value))
    elif isinstance(value, float):
        value = f"{value:g}"
    name, text = option_name(remedy.argument, command), shlex.quote(str(value)) if value != "" else ""
    if not own and remedy.argument in _SETTINGS:
        return f"{name}={text or '...'} {remedy.purpose}".rstrip()
    return " ".join(word for word in (name, text, remedy.purpose) if word)


def option_name(argument: str, command: str = "") -> str:
    """The option for an argument of the library; its name where there is none.

    Examples
    --------
    >>> option_name("target"), option_name("n_basis"), option_name("allow_unknown")
    ('--target', '--set n_basis', 'allow_unknown')
    >>> option_name("weight"), option_name("weight", "rate"), option_name("covariates", "rate")
    ('--read weight', '--weight', '--covariate')
    """
    if command in _OWN_OPTIONS:
        return _OWN_OPTIONS[command].get(argument, argument)
    if argument in _SETTINGS:
        return f"{_SETTINGS[argument]} {argument}"
    return "--" + argument.replace("_", "-") if argument in _OPTIONS else argument


# Arguments of the library that have an option or a setting of the same name.
_SETTINGS = {**dict.fromkeys(LEARNING, "--set"), **dict.fromkeys(READING, "--read")}
# Of commands whose options are not those of `train`.
_RATING = ("a", "b", "winner", "loser", "judge", "time", "weight", "cluster", "category", "margin", "ranking",
           "half_life", "anchor", "alpha", "level", "goal")  # fmt: skip
_OWN_OPTIONS = {
    "rate": {**{name: "--" + name.replace("_", "-") for name in _RATING}, "covariates": "--covariate"}
}
_OPTIONS = {"drop", "encode", "features", "kernel", "learner", "query", "target", *_SETTINGS}
