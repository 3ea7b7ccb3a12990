"""uvicorn with a socket that is bound beforehand, a word when it is ready, and a stop that lets the caller tidy up."""

from __future__ import annotations

import errno
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn

_TRIES = 20


def bind(host: str, port: int | None, first: int) -> socket.socket:
    """A listening socket: on this port, or where None is given on ``first`` or the next one that is free.

    Raises
    ------
    OSError
        If the port is in use, with what to do.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    wanted = range(first, first + _TRIES) if port is None else [port]
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
        else f"Ports {first} to {first + _TRIES - 1} of {host} are in use: choose another one with --port."
    )


def address_of(listener: socket.socket) -> str:
    """``http://HOST:PORT``."""
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


class Server(uvicorn.Server):
    """A server that says when it is ready and ends without raising the signal that stopped it again."""

    def __init__(self, app: Any, ready: Callable[[], None]):
        super().__init__(
            uvicorn.Config(
                app,
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
