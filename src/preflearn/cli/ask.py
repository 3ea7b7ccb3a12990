"""``preflearn ask``: put items in order by answering which of two is better, in the browser."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..errors import missing_extra
from .output import Tell, refuse_others
from .settings import HostOption, QuietOption, port_option

if TYPE_CHECKING:
    from socket import socket

    from ..web.session import Session

_FIRST_PORT = 8765


# Long: most of it declares the options of the command.
def ask(
    context: typer.Context,
    items: Annotated[
        Path,
        typer.Argument(
            metavar="ITEMS",
            help="CSV, TSV, Parquet or JSON lines; a folder of texts or pictures; a text file with one item per line.",
        ),
    ],
    answers: Annotated[
        Path | None,
        typer.Option("--answers", help="File to append the answers to. Default: ITEMS.answers.jsonl."),
    ] = None,
    judge: Annotated[
        list[str] | None,
        typer.Option(
            "--judge", help="Name of the judge; repeat to print a link for each. Default: your user name."
        ),
    ] = None,
    goal: Annotated[
        str | None,
        typer.Option("--goal", help="everything, top:K for the K best, or 'A > B' for two items by name."),
    ] = None,
    question: Annotated[
        str | None, typer.Option("--question", help="What the page asks. Default: Which one is better?")
    ] = None,
    note: Annotated[bool, typer.Option("--note", help="A box for a comment on each answer.")] = False,
    name: Annotated[
        str | None,
        typer.Option(
            "--name",
            help="Column that names the items. Default: item, name, title, … or one that fits.",
        ),
    ] = None,
    export: Annotated[
        Path | None,
        typer.Option(
            "--export",
            help="Write the answers so far as chosen and rejected texts (JSON lines) to this file, and ask nothing.",
        ),
    ] = None,
    text: Annotated[
        str | None,
        typer.Option(
            "--text",
            help="With --export: column of the texts. Default: text, answer, response, … or the one of most words.",
        ),
    ] = None,
    port: Annotated[int | None, port_option(_FIRST_PORT)] = None,
    host: HostOption = "127.0.0.1",
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            help="Folder for order.csv, model.preflearn, report.html and board.html at the end.",
        ),
    ] = None,
    open_page: Annotated[bool, typer.Option("--open/--no-open", help="Open the page in the browser.")] = True,
    quiet: QuietOption = False,
) -> None:
    """Compare items two at a time in the browser; the order builds up with its uncertainty."""
    try:
        from ..web.server import bind, is_loopback, serve
    except ImportError as error:
        raise missing_extra("`preflearn ask`", str(error.name), "web") from None
    from ..tables.atomic import require_writable, require_writable_folder
    from ..web.answers import Journal
    from ..web.app import ask_app
    from ..web.items import read_items
    from ..web.server import kept_token
    from ..web.session import Session, read_judge

    if export is not None:
        refuse_others(
            context,
            ["answers", "export", "name", "text", "open_page", "quiet"],
            "--export, which asks nothing",
        )
    elif text is not None:
        raise ValueError("--text would be ignored without --export, which writes the texts: leave it out.")
    if output is not None and output.exists() and not output.is_dir():
        raise ValueError(f"--output names a folder, and {output} is a file.")
    judges = list(dict.fromkeys(map(read_judge, judge or [_user_name()])))
    place = items if items.name else items.resolve()  # a folder may be given as "."
    path = answers or place.with_name(place.name + ".answers.jsonl")
    if output is not None:
        require_writable_folder(output)
    if export is None and not path.exists():
        require_writable(path)

    def tell(text: str) -> None:
        if not quiet:
            typer.echo(text, err=True)

    if export is not None:
        _export(items, path, export, name, text, tell)
        return
    found = read_items(items, name)
    with Journal(path) as journal:
        for text in (*found.notes, *journal.notes):
            tell(f"Note: {text}")
        listener = bind(host, port, _FIRST_PORT)
        session = Session(found, journal, goal=goal)
        token = kept_token(path)
        app = ask_app(
            session,
            token,
            judge=judges[0],
            loopback=is_loopback(host),
            question_text=" ".join((question or "").split()),
            with_notes=note,
        )
        try:
            serve(app, listener, lambda: _welcome(session, listener, token, judges, open_page, tell))
            _conclude(session, output, tell)
        finally:
            session.close()


def _export(items: Path, answers: Path, output: Path, name: str | None, text: str | None, tell: Tell) -> None:
    """Write the answers as pairs of texts."""
    from ..tables.atomic import require_writable
    from .files import check_outputs
    from .preferences import export_preferences

    if not answers.is_file():
        raise FileNotFoundError(f"There is no file {answers} of answers: --answers names it.")
    if not (output.is_file() and '"chosen":' in output.read_text(encoding="utf-8", errors="replace")[:4096]):
        check_outputs([output], [items, answers])
    require_writable(output)
    found = export_preferences(items, answers, output, name, text)
    tell(f"Wrote {found.n:,} preferences to {output}. {found.sources}")


def _welcome(
    session: Session, listener: socket, token: str, judges: list[str], open_page: bool, tell: Tell
) -> None:
    """Print the address, the links of further judges and where the answers go; open the page."""
    import webbrowser
    from urllib.parse import urlencode

    from ..web.server import addresses, is_loopback

    here, outside = (f"{one}/?{urlencode({'token': token})}" if one else "" for one in addresses(listener))
    print(here, flush=True)
    if not is_loopback(listener.getsockname()[0]):
        _warn_of_others(outside)
    for name in judges[1:]:
        tell(f"{name}: {outside or here}&{urlencode({'judge': name})}")
    tell(
        f"{len(session.items):,} items, {len(session.answers()):,} answers so far in {session.journal.path}. Every "
        "answer is kept as it is given. Ctrl-C stops; the same command resumes."
    )
    if open_page:
        webbrowser.open(here)


def _conclude(session: Session, output: Path | None, tell: Tell) -> None:
    """Say where the answers are, and write the results if a folder was given."""
    from ..web.results import write_results

    tell(_where_answers_are(session))
    if output is None:
        tell("With -o FOLDER, the order, a model for unseen items and a report are written when it stops.")
    else:
        tell("Wrote " + ", ".join(str(one) for one in write_results(session, output)) + ".")


def _warn_of_others(outside: str) -> None:
    told = f" For others: {outside}" if outside else ""
    typer.echo(
        "Warning: every machine that can reach this one can open the page with its address, which contains the key; "
        f"traffic is not encrypted.{told}",
        err=True,
    )


def _where_answers_are(session: Session) -> str:
    """Where to find the answers; if the file was removed, they are written beside it."""
    path, n_answers = session.journal.path, len(session.answers())
    if session.journal.is_there:
        return f"{n_answers:,} answers are in {path}. The same command resumes from there."
    from ..tables.atomic import write_whole
    from ..web.results import answers_lines

    rescued = path.with_name(path.name + ".rescued")
    write_whole(rescued, answers_lines(session))
    return (
        f"{path} was removed, replaced or truncated while it was in use. The {n_answers:,} answers saved until then "
        f"are in {rescued}: resume with --answers {rescued}."
    )


def _user_name() -> str:
    import getpass

    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError):
        return "judge"
