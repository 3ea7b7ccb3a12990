"""What comes with a request: JSON of a limited size, or a refusal that says why."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from starlette.requests import Request


class RefusedError(ValueError):
    """A request that cannot be met; the message is for whoever sent it.

    Attributes
    ----------
    status : int
        Of the HTTP response.
    """

    def __init__(self, message: str, status: int = 400):
        # Half a character (a lone surrogate) cannot be sent back as it came.
        super().__init__(message.encode("utf-8", "backslashreplace").decode())
        self.status = status


async def read_json(request: Request, most_bytes: int) -> dict[str, Any]:
    """The JSON object of a request.

    Raises
    ------
    RefusedError
        413 for more than ``most_bytes``, whatever the headers say; 415 and 400 for what is no JSON object.
    """
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise RefusedError("Send JSON, with the content type application/json.", 415)
    too_large = RefusedError(f"The request is larger than {most_bytes} bytes.", 413)
    declared = request.headers.get("content-length", "0")
    if not declared.isdigit() or int(declared) > most_bytes:
        raise too_large
    body = bytearray()
    async for piece in request.stream():
        body += piece
        if len(body) > most_bytes:
            raise too_large
    try:
        found = json.loads(body, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise RefusedError(f"The request is no JSON: {error}.") from None
    if not isinstance(found, dict):
        raise RefusedError(f"The request must be a JSON object: found {type(found).__name__}.")
    return found


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no number that JSON has")
