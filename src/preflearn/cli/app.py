"""The list of commands, and what happens when one of them fails.

To add a command, write a module with one function of the same name and add its name to the list below; for a group of
commands the module has a ``typer.Typer`` called ``app`` instead. Other packages add theirs by an entry point of the
group ``preflearn.commands``: the name of the command, and such a module.
"""

from __future__ import annotations

import _thread
import io
import os
import signal
import sys
import threading
import warnings
from collections.abc import Sequence
from functools import cache, partial
from importlib import import_module
from types import FrameType
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from .._moved import MOVED_COMMANDS, missing
from ..errors import InputError
from .settings import as_option, option_name, spelled_out

COMMANDS = (
    "look", "train", "relate", "rate", "predict", "evaluate", "compare", "ask", "serve", "export", "demo",
)  # fmt: skip


@cache
def added_commands() -> dict[str, Any]:
    """The entry points of commands that other packages add, by the names of the commands."""
    from importlib.metadata import entry_points

    return {
        entry.name: entry for entry in entry_points(group="preflearn.commands") if entry.name not in COMMANDS
    }


class _Commands(TyperGroup):
    """Commands whose modules are imported when they are asked for."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.commands = dict.fromkeys(COMMANDS)  # type: ignore[assignment]

    def list_commands(self, ctx: Any) -> list[str]:
        return [*COMMANDS, *filter(_loads, added_commands())]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name in COMMANDS:
            module = import_module(f".{cmd_name}", __package__)
        elif cmd_name in added_commands():
            module = added_commands()[cmd_name].load()
        elif cmd_name in MOVED_COMMANDS:
            raise ModuleNotFoundError(missing(f"preflearn {cmd_name}"))
        else:
            return None
        group = getattr(module, "app", None)
        if group is None:
            group = typer.Typer(add_completion=False)
            group.command(cmd_name)(getattr(module, cmd_name))
        command = typer.main.get_command(group)
        command.name = cmd_name
        if cmd_name not in COMMANDS:
            command.rich_help_panel = "Commands of other packages"  # type: ignore[attr-defined]
        return command


def _loads(name: str) -> bool:
    """Whether the command of another package can be imported; a warning says why not."""
    try:
        added_commands()[name].load()
    except Exception as error:
        warnings.warn(f"the command {name} cannot be loaded: {error}", stacklevel=2)
        return False
    return True


app = typer.Typer(
    name="preflearn",
    cls=_Commands,
    context_settings={"help_option_names": ["-h", "--help"]},
)

# What a command raises when the caller gave it something it cannot use.
_BAD_INPUT = (ValueError, TypeError, OSError, MemoryError, ImportError)


# Seconds after which a callback is over that was interrupted; if it is not, it is interrupted again.
_CALLBACK_ENDS = 0.01
# Exit status after Ctrl-C; newer versions of Typer return it themselves.
_INTERRUPTED = 130


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


def main() -> None:
    """Run the command line and end the process: status 0, 2 after bad input, 1 after an error of the library."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # what a terminal cannot show gets a substitute
            stream.reconfigure(errors="replace" if stream is sys.stdout else "backslashreplace")
    sys.unraisablehook = _interrupt_again
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _interrupt)
    warnings.formatwarning = lambda message, *_, **__: f"preflearn: {message}\n"
    sys.exit(run(sys.argv[1:]))


def _interrupt(number: int, frame: FrameType | None) -> None:
    """Leave the work, but not a callback of LLVM: it would go on without what it was called for, and may crash."""
    inner = frame
    while inner is not None:
        if inner.f_code.co_name.startswith("_raw_object_cache_"):
            threading.Timer(_CALLBACK_ENDS, _press_ctrl_c).start()
            return
        inner = inner.f_back
    signal.default_int_handler(number, frame)


def _interrupt_again(unraisable: Any) -> None:
    """Interrupt the main flow where Ctrl-C came inside a callback that Python lets no error leave.

    Objects that are dropped, weak references to them and compiled code that calls back would print it, and the work
    would go on.
    """
    if issubclass(unraisable.exc_type, KeyboardInterrupt):
        threading.Timer(_CALLBACK_ENDS, _press_ctrl_c).start()
    else:
        sys.__unraisablehook__(unraisable)


def _press_ctrl_c() -> None:
    if hasattr(signal, "pthread_kill"):
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)  # ends a wait, too
    else:
        _thread.interrupt_main()


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
        status = _call(arguments)
        return _fail("interrupted", status) if status == _INTERRUPTED else status
    except (KeyboardInterrupt, typer.Abort):
        return _fail("interrupted", _INTERRUPTED)
    except InputError as error:
        command = arguments[0] if arguments else ""
        return _fail(
            error.worded(partial(as_option, command=command), partial(option_name, command=command)), 2
        )
    except _BAD_INPUT as error:
        return _fail(str(error) or type(error).__name__, 2)
    except Exception as error:
        # Wrong usage: Typer's errors share this method, whichever version raised them.
        if hasattr(error, "format_message"):
            return _fail(f"{error.format_message()} ({_hint(error, arguments)})", 2)
        return _fail(
            f"internal error: {type(error).__name__}: {error} (PREFLEARN_TRACEBACK=1 shows where; please report it)",
            1,
        )


def _hint(error: Any, arguments: Sequence[str]) -> str:
    """Where to look after wrong usage; an option that is spelled differently in this command is named."""
    option = getattr(error, "option_name", None)
    if option is None:
        return "see preflearn --help"
    command = arguments[0]
    typed = {one.partition("=")[0] for one in arguments}
    if command == "train" and typed & {"--rows", "--pairs", "--hold-out"}:
        return "relations are learned by preflearn relate --rows FILE --columns FILE --pairs FILE"
    spelled = option_name(option.removeprefix("--").replace("-", "_"))
    known = {name for one in error.ctx.command.params for name in one.opts}
    if " " in spelled and spelled.split()[0] in known:
        return f"write {spelled}=VALUE"
    return f"see preflearn {command} --help"


def _call(arguments: Sequence[str]) -> int:
    """Commands return None; a requested exit returns its status."""
    returned = app(spelled_out(arguments), prog_name="preflearn", standalone_mode=False)
    return returned if isinstance(returned, int) else 0


def _fail(message: str, status: int) -> int:
    """Print one line, whatever line breaks the message has."""
    print("preflearn: " + " ".join(message.split()), file=sys.stderr)
    return status
