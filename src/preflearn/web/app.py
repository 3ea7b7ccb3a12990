"""HTTP for a session of asking: routes, the token, and what a browser may do.

Every request needs the token, which is in the address that the command prints. A page of another site can neither read
it nor post without it; besides, requests with a foreign ``Origin`` are refused, and on the loopback interface those
with a foreign ``Host`` (a name of somebody else that was made to point here). The page is one response: style and
script are in it, allowed by a nonce, and nothing else may run or be loaded.
"""

from __future__ import annotations

import hmac
import json
import secrets
from collections.abc import Callable
from importlib.resources import files
from typing import Any

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from .items import PICTURES, inside
from .requests import LOOPBACK, RefusedError, check_host, read_json
from .results import answers_lines, board_or_reason, model_file, order_csv, report_page
from .session import Session

_MOST_BYTES = 64 * 1024
_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


# Long: one small handler for each route; they share the session and the key.
def ask_app(
    session: Session,
    token: str,
    *,
    judge: str,
    loopback: bool = True,
    question_text: str = "",
    with_notes: bool = False,
) -> Starlette:
    """The application of a session.

    Parameters
    ----------
    session : Session
    token : str
        What every request must bring, as ``?token=`` or in the header ``X-Preflearn-Token``.
    judge : str
        The name of whoever opens the address without ``judge=``.
    loopback : bool, default=True
        Bound to this machine only, so that the ``Host`` of a request must be this machine.
    question_text : str, default=""
        What the page asks; "Which one is better?" where empty.
    with_notes : bool, default=False
        Whether judges may comment on their answers.

    Returns
    -------
    Starlette
    """

    def guarded(handler: Callable[..., Any]) -> Callable[..., Any]:
        async def endpoint(request: Request) -> Response:
            refusal = _refusal(request, token, loopback)
            if refusal is not None:
                return refusal
            try:
                response = await handler(request)
            except RefusedError as error:
                response = error.response()
            except OSError as error:
                response = JSONResponse({"error": f"The answer could not be kept: {error}."}, 507)
            response.headers.update(_HEADERS)
            return response

        return endpoint

    async def page(request: Request) -> Response:
        name = request.query_params.get("judge", judge)
        return _page(name, session, question_text, with_notes)

    async def question(request: Request) -> Response:
        query = request.query_params
        found = await run_in_threadpool(
            session.question, query.get("judge", judge), query.get("client", "")[:64]
        )
        return JSONResponse(found)

    async def answer(request: Request) -> Response:
        body = await read_json(request, _MOST_BYTES)
        found = await run_in_threadpool(
            session.answer,
            body.get("judge", judge),
            body.get("question"),
            body.get("left"),
            body.get("right"),
            body.get("verdict"),
            _client(body),
            body.get("note", "") if with_notes else "",
        )
        return JSONResponse(found)

    async def leave(request: Request) -> Response:
        query = request.query_params
        await run_in_threadpool(session.leave, query.get("judge", judge), query.get("client", "")[:64])
        return JSONResponse({})

    async def undo(request: Request) -> Response:
        body = await read_json(request, _MOST_BYTES)
        found = await run_in_threadpool(session.undo, body.get("judge", judge), _client(body))
        return JSONResponse(found)

    async def panel(request: Request) -> Response:
        found = await run_in_threadpool(session.panel, request.query_params.get("judge", judge))
        return JSONResponse(found)

    async def picture(request: Request) -> Response:
        return _picture(session, request.path_params["row"], request.path_params["number"])

    async def board(request: Request) -> Response:
        # A page without scripts, whose style is its own.
        policy = {
            "Content-Security-Policy": "default-src 'none'; img-src data:; style-src 'unsafe-inline'; sandbox"
        }
        return Response(
            await run_in_threadpool(board_or_reason, session), media_type="text/html", headers=policy
        )

    async def download(request: Request) -> Response:
        return await run_in_threadpool(_download, session, request.path_params["name"])

    async def lost(request: Request, error: Exception) -> Response:
        status = error.status_code if isinstance(error, HTTPException) else 500
        return PlainTextResponse("Nothing here.", status, _HEADERS)

    routes = [
        Route("/", guarded(page)),
        Route("/api/question", guarded(question)),
        Route("/api/answer", guarded(answer), methods=["POST"]),
        Route("/api/leave", guarded(leave), methods=["POST"]),
        Route("/api/undo", guarded(undo), methods=["POST"]),
        Route("/api/panel", guarded(panel)),
        Route("/picture/{row:int}/{number:int}", guarded(picture)),
        Route("/board", guarded(board)),
        Route("/download/{name}", guarded(download)),
    ]
    return Starlette(routes=routes, exception_handlers={404: lost, 405: lost})


def _client(body: dict[str, Any]) -> str:
    """Which window it is."""
    client = body.get("client", "")
    return client[:64] if isinstance(client, str) else ""


def _refusal(request: Request, token: str, loopback: bool) -> Response | None:
    try:
        check_host(request, LOOPBACK if loopback else None)
    except RefusedError as error:
        return _refuse(str(error))
    origin = request.headers.get("origin")
    if origin is not None and origin.partition("://")[2] != request.headers.get("host", ""):
        return _refuse("Requests from other sites are refused.")
    given = request.headers.get("x-preflearn-token") or request.query_params.get("token") or ""
    if not hmac.compare_digest(given.encode(), token.encode()):
        return _refuse("The token is missing or wrong: open the address that `preflearn ask` printed last.")
    return None


def _refuse(reason: str) -> Response:
    return PlainTextResponse(reason, 403, _HEADERS)


def _page(judge: str, session: Session, question: str, with_notes: bool) -> Response:
    nonce = secrets.token_urlsafe(16)
    static = files("preflearn.web") / "static"
    # As JSON inside a script element: no text of a user may end it.
    settings = json.dumps(
        {
            "judge": judge,
            "source": session.items.source,
            "file": session.journal.path.name,
            "question": question,
            "note": with_notes,
        }
    )
    text = (static / "ask.html").read_text(encoding="utf-8")
    for mark, value in {
        "{{nonce}}": nonce,
        "{{style}}": (static / "ask.css").read_text(encoding="utf-8"),
        "{{script}}": (static / "ask.js").read_text(encoding="utf-8"),
        "{{settings}}": settings.replace("<", "\\u003c"),
    }.items():
        text = text.replace(mark, value)
    policy = (
        f"default-src 'none'; img-src 'self' data:; style-src 'nonce-{nonce}'; script-src 'nonce-{nonce}'; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    return Response(text, media_type="text/html", headers={"Content-Security-Policy": policy})


def _picture(session: Session, row: int, number: int) -> Response:
    """A picture of the list; looked up again, since what a link points to may have changed."""
    try:
        field = session.items.fields[row][number]
    except IndexError:
        return PlainTextResponse("There is no such picture.", 404)
    path = inside(session.items.folder, field.value) if field.kind == "picture" else None
    if path is None or path.stat().st_size > 100 * 1024 * 1024:
        return PlainTextResponse("The picture is not there.", 404)
    # A drawing could hold a script, which must not run when it is opened by itself.
    policy = {"Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; sandbox"}
    return FileResponse(path, media_type=PICTURES[path.suffix.lower()], headers=policy)


def _download(session: Session, name: str) -> Response:
    makers: dict[str, tuple[Callable[[Session], bytes], str]] = {
        "order.csv": (order_csv, "text/csv; charset=utf-8"),
        "answers.jsonl": (answers_lines, "application/jsonl; charset=utf-8"),
        "board.html": (board_or_reason, "text/html; charset=utf-8"),
        "report.html": (report_page, "text/html; charset=utf-8"),
        "model.preflearn": (model_file, "application/octet-stream"),
    }
    if name not in makers:
        return PlainTextResponse(f"There is no {name[:80]!r}: choose one of {', '.join(makers)}.", 404)
    make, kind = makers[name]
    headers = {"Content-Disposition": f'attachment; filename="{name}"', "Content-Security-Policy": "sandbox"}
    return Response(make(session), media_type=kind, headers=headers)
