"""uvicorn with a socket bound beforehand, a callback when it is ready, and a stop after which the caller can clean up.

uvicorn waits forever for a request that has begun. Here its headers have to arrive in time, and where too many
connections are open, the one that has waited longest without a request makes room for a new one. An answer that comes
before the whole request has arrived is followed by the rest of the request: a connection that is closed with unread
bytes is reset, and clients that send first and read later would not see the answer.
"""

from __future__ import annotations

import asyncio
import errno
import os
import re
import secrets
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

_TOKEN = re.compile(r"[A-Za-z0-9_-]{16,64}")
# Seconds for the headers of a request to arrive, and connections that may be open at once.
HEADERS_WITHIN, MOST_CONNECTIONS = 20.0, 400
_EVERYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1"}
# Also where httptools is installed, which would keep headers of any length.
_Protocol: Any = H11Protocol


def bind(host: str, port: int | None, first: int, tries: int = 20) -> socket.socket:
    """A listening socket: on this port, or where None is given on ``first`` or the next one that is free.

    Raises
    ------
    OSError
        If the port is in use, with what to do.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    wanted = range(first, first + tries) if port is None else [port]
    for number in wanted:
        # Named as TCP, which asyncio wants to see before it turns off the wait for fuller packets.
        listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((host, number))
            return listener
        except OSError as error:
            listener.close()
            if error.errno != errno.EADDRINUSE:
                raise OSError(f"Cannot listen on {host}, port {number}: {error.strerror}.") from None
        except OverflowError:
            listener.close()
            raise ValueError(f"--port must be between 0 and 65535: found {number}.") from None
    raise OSError(
        f"Port {wanted[0]} of {host} is in use: choose another one with --port, or leave it out to get a free one."
        if port is not None
        else f"Ports {first} to {first + tries - 1} of {host} are in use: choose another one with --port."
    )


def address_of(listener: socket.socket) -> str:
    """``http://HOST:PORT``."""
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach this address."""
    return host in ("127.0.0.1", "::1", "localhost")


def addresses(listener: socket.socket) -> tuple[str, str | None]:
    """The address for this machine, and the one for others where it listens on all interfaces and they are known."""
    host, port = listener.getsockname()[:2]
    if host not in _EVERYWHERE:
        return address_of(listener), None
    here, outside = _EVERYWHERE[host], _outside(listener.family)
    at = "http://[{}]:{}" if ":" in here else "http://{}:{}"
    return at.format(here, port), None if outside is None else at.format(outside, port)


def _outside(family: int) -> str | None:
    """The address of this machine in its network. Nothing is sent: the system only says which way it would go."""
    far = ("2001:db8::1", 9) if family == socket.AF_INET6 else ("192.0.2.1", 9)
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect(far)
            return str(probe.getsockname()[0])
    except OSError:
        return None


class _Transport:
    """A transport that asks its connection when it is told to close."""

    def __init__(self, transport: Any, closing: Callable[[Any], None]) -> None:
        self._transport, self._closing = transport, closing

    def close(self) -> None:
        self._closing(self._transport)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


class Connection(_Protocol):
    """A connection whose requests have to begin in time, and whose answers arrive."""

    within = HEADERS_WITHIN
    most = MOST_CONNECTIONS

    def connection_made(self, transport: Any) -> None:
        super().connection_made(_Transport(transport, self._close))
        self._discards = False
        self._timer: asyncio.TimerHandle | None = None
        self._watch()
        if len(self.connections) > self.most:
            idle = [one for one in self.connections if one is not self and one.is_idle]
            (min(idle, key=lambda one: one.idle_since) if idle else self).transport.abort()

    @property
    def is_idle(self) -> bool:
        """Whether every request that has arrived is answered."""
        return self.cycle is None or self.cycle.response_complete

    def _close(self, transport: Any) -> None:
        """Close; where a request is still arriving, end the answer, and drop what comes until the other side closes."""
        if self._discards or self.conn.their_state is not h11.SEND_BODY:
            transport.close()
            return
        self._discards = True
        transport.write_eof()
        self.flow.resume_reading()
        self._watch()

    def data_received(self, data: bytes) -> None:
        if self._discards:
            return
        super().data_received(data)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        self._forget()
        super().connection_lost(exc)

    def _watch(self) -> None:
        """Start the clock when part of a request arrives; leave it running where it has started."""
        if not self.is_idle:
            self._forget()
        elif self._timer is None and not self.transport.is_closing():
            self.idle_since = self.loop.time()
            self._timer = self.loop.call_later(self.within, self._expire)

    def _expire(self) -> None:
        self._timer = None
        if self.is_idle:
            self.transport.abort()

    def _forget(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class Server(uvicorn.Server):
    """A server that says when it is ready and ends without raising the signal that stopped it again.

    Parameters
    ----------
    app : ASGI application
    ready : function
        Called when requests can come.
    connection : type, default=Connection
        With its limits as class attributes.
    """

    def __init__(self, app: Any, ready: Callable[[], None], connection: type = Connection) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                http=connection,
                ws="none",
                log_level="warning",
                access_log=False,
                lifespan="off",
                timeout_keep_alive=30,
                timeout_graceful_shutdown=5,
                server_header=False,
            )
        )
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets=sockets)
        if self.started:
            self._ready()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        stopping = (signal.SIGINT, signal.SIGTERM)
        before = {number: signal.signal(number, self.handle_exit) for number in stopping}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def serve(app: Any, listener: socket.socket, ready: Callable[[], None]) -> None:
    """Serve until SIGINT or SIGTERM; what is being answered is finished first."""
    Server(app, ready).run(sockets=[listener])


def kept_token(answers: Path) -> str:
    """The key of an answers file: that of before, or a new one in a file that only its owner can read.

    Parameters
    ----------
    answers : Path
        Its key is in a file of the same name with ``.token``.
    """
    path = answers.with_name(answers.name + ".token")
    try:
        found = path.read_text(encoding="ascii").strip()
        private = os.name == "nt" or not path.stat().st_mode & 0o077
    except (OSError, ValueError):
        found, private = "", False
    # A key that others could read is not one.
    if private and not path.is_symlink() and _TOKEN.fullmatch(found):
        return found
    token = secrets.token_urlsafe(16)
    path.unlink(missing_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="ascii") as file:
        file.write(token + "\n")
    return token
