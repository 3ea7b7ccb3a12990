"""The list of commands, and what happens when one of them fails.

To add a command, write a module with one function and add it to the list below; to add a group of commands
(``preflearn ppi ...``), give the module a ``typer.Typer`` of its own and use ``app.add_typer``.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from ..errors import InputError
from .ask import ask
from .compare import compare
from .demo import demo
from .evaluate import evaluate
from .export import export
from .output import as_option, option_name
from .parses import app as parses
from .ppi import app as ppi
from .predict import predict
from .reproduce import reproduce
from .serve import serve
from .train import train

app = typer.Typer(
    name="preflearn",
    context_settings={"help_option_names": ["-h", "--help"]},
)

app.command()(train)
app.command()(predict)
app.command()(evaluate)
app.command()(compare)
app.command()(ask)
app.command()(serve)
app.command()(export)
app.command()(demo)
app.command()(reproduce)
app.add_typer(ppi)
app.add_typer(parses)

# What a command raises when the caller gave it something it cannot use.
_BAD_INPUT = (ValueError, TypeError, OSError, MemoryError, ImportError)


def _print_version(asked: bool) -> None:
    if asked:
        from .. import __version__

        typer.echo(f"preflearn {__version__}")
        raise typer.Exit()


@app.callback(invoke_without_command=True)
def preflearn(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Learn rankings and preferences: kernel methods with exact cross-validation."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


def run(arguments: Sequence[str]) -> int:
    """Run a command line and return its exit status.

    Bad input gives status 2 and one line on stderr. An error that is not the caller's gives status 1 and one line
    that says how to see more: with ``PREFLEARN_TRACEBACK=1`` in the environment every error is shown in full.

    Examples
    --------
    >>> run(["--version"])
    preflearn ...
    0
    """
    if os.environ.get("PREFLEARN_TRACEBACK"):
        return _call(arguments)
    try:
        return _call(arguments)
    except (KeyboardInterrupt, typer.Abort):
        return _fail("interrupted", 130)
    except InputError as error:
        return _fail(error.worded(as_option, option_name), 2)
    except _BAD_INPUT as error:
        return _fail(str(error) or type(error).__name__, 2)
    except Exception as error:
        # Wrong usage: Typer's errors share this method, whichever version raised them.
        if hasattr(error, "format_message"):
            return _fail(f"{error.format_message()} (preflearn --help tells more)", 2)
        return _fail(
            f"internal error: {type(error).__name__}: {error} (PREFLEARN_TRACEBACK=1 shows where; please report it)",
            1,
        )


def _call(arguments: Sequence[str]) -> int:
    """Commands return None; a requested exit returns its status."""
    returned = app(list(arguments), prog_name="preflearn", standalone_mode=False)
    return returned if isinstance(returned, int) else 0


def _fail(message: str, status: int) -> int:
    """Print one line, whatever line breaks the message has."""
    print("preflearn: " + " ".join(message.split()), file=sys.stderr)
    return status
