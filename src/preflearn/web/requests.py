"""What comes with a request: whom it is meant for, JSON of limited size in limited time, or a refusal that says why."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Collection
from typing import TYPE_CHECKING, Any

import msgspec
from starlette.responses import JSONResponse

if TYPE_CHECKING:
    from starlette.requests import Request

# What this machine is called from this machine.
LOOPBACK = frozenset({"127.0.0.1", "localhost", "[::1]"})
# Seconds that the body of a request may take to arrive.
ARRIVAL = 30.0


class RefusedError(ValueError):
    """A request that cannot be met; the message is for whoever sent it.

    Attributes
    ----------
    status : int
        Of the HTTP response.
    """

    def __init__(self, message: str, status: int = 400) -> None:
        # Half a character (a lone surrogate) cannot be sent back as it came.
        super().__init__(message.encode("utf-8", "backslashreplace").decode())
        self.status = status

    def response(self) -> JSONResponse:
        """What is sent back; a client that is too slow or sends too much is disconnected."""
        headers = {"Connection": "close"} if self.status in (408, 413) else None
        return JSONResponse({"error": str(self)}, self.status, headers)


def host_of(request: Request) -> str:
    """The name that a request was sent to, without the port."""
    host = request.headers.get("host", "")
    name, _, port = host.rpartition(":")
    return name if port.isdigit() else host


def check_host(request: Request, hosts: Collection[str] | None) -> None:
    """Refuse requests that were sent to another name: a page of another site may have made its own name point here.

    Parameters
    ----------
    request : Request
    hosts : collection of str or None
        Names that are meant; None for any.

    Raises
    ------
    RefusedError
        403.
    """
    name = host_of(request)
    if hosts is not None and name.lower() not in hosts:
        raise RefusedError(
            f"This server answers only as {' or '.join(sorted(hosts))}, not as {name[:80]!r}.", 403
        )


async def read_json(request: Request, most_bytes: int, within: float = ARRIVAL) -> dict[str, Any]:
    """The JSON object of a request.

    Raises
    ------
    RefusedError
        408 if the body does not arrive ``within`` this many seconds; 413 for more than ``most_bytes``, whatever the
        headers say; 415 and 400 for anything but a JSON object.
    """
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise RefusedError("Send JSON, with the content type application/json.", 415)
    try:
        async with asyncio.timeout(within):
            body = await _body(request, most_bytes)
    except TimeoutError:
        raise RefusedError(f"The request did not arrive within {within:g} seconds.", 408) from None
    return parse_object(body)


def parse_object(body: bytes | bytearray) -> dict[str, Any]:
    """The object that some bytes are the JSON of.

    Raises
    ------
    RefusedError
        400 for anything but a JSON object.
    """
    try:
        found = msgspec.json.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        found = _as_the_standard_library_reads(body)
    if not isinstance(found, dict):
        raise RefusedError(f"The request must be a JSON object: found {type(found).__name__}.")
    return found


def _as_the_standard_library_reads(body: bytes | bytearray) -> Any:
    """What msgspec refuses and JSON may hold, such as numbers beyond float64; or why not, with line and column."""
    try:
        return json.loads(body, parse_constant=_refuse_constant)
    except RecursionError:
        raise RefusedError("The request is not readable JSON: it is nested too deeply.") from None
    except ValueError as error:
        raise RefusedError(f"The request is not JSON: {error}.") from None


async def _body(request: Request, most_bytes: int) -> bytearray:
    too_large = RefusedError(f"The request is larger than {most_bytes} bytes.", 413)
    declared = request.headers.get("content-length", "0")
    if not declared.isdigit() or int(declared) > most_bytes:
        raise too_large
    body = bytearray()
    async for piece in request.stream():
        body += piece
        if len(body) > most_bytes:
            raise too_large
    return body


def described(value: Any) -> str:
    """A value of a request in an answer; the contents of objects and lists are left out."""
    if isinstance(value, (dict, list)):
        return "an object" if isinstance(value, dict) else "a list"
    return repr(value)[:60]


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not a JSON number")
