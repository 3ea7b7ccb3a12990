"""`preflearn ask` and `serve` as users start them: a process of its own, spoken to over HTTP."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

httpx = pytest.importorskip("httpx")

_PATIENCE = 120.0


class Running:
    """A command that prints its address when it is ready.

    Attributes
    ----------
    address : str
        The line that it printed.
    base, token : str
        Its parts.
    """

    def __init__(self, *arguments: str | Path, cwd: Path | None = None):
        environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "preflearn", *map(str, arguments)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
            cwd=cwd,
        )
        ready, _, _ = select.select([self.process.stdout], [], [], _PATIENCE)
        assert self.process.stdout is not None
        self.address = self.process.stdout.readline().strip() if ready else ""
        if not self.address.startswith("http"):
            self.process.kill()
            raise RuntimeError(f"not ready: {self.address} {self.process.communicate()[1]}")
        parts = urlsplit(self.address)
        self.base = f"{parts.scheme}://{parts.netloc}"
        self.token = parse_qs(parts.query).get("token", [""])[0]

    def client(self, **options: Any) -> httpx.Client:
        return httpx.Client(
            base_url=self.base, headers={"X-Preflearn-Token": self.token}, timeout=60.0, **options
        )

    def kill(self) -> None:
        """As by a power cut."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(_PATIENCE)

    def stop(self) -> tuple[int, str]:
        """As by Ctrl-C: the exit status and what was said on stderr."""
        self.process.send_signal(signal.SIGINT)
        _, errors = self.process.communicate(timeout=_PATIENCE)
        return self.process.returncode, errors

    def __enter__(self) -> Running:
        return self

    def __exit__(self, *error: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()


@contextmanager
def serving(app: Any, connection: type | None = None) -> Iterator[httpx.Client]:
    """The application behind a real server in a thread, and a client of it; with other limits for connections."""
    from preflearn.web.server import Connection, Server, address_of, bind

    listener = bind("127.0.0.1", 0, 0)
    ready = threading.Event()
    server = Server(app, ready.set, connection or Connection)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    try:
        assert ready.wait(_PATIENCE)
        with httpx.Client(base_url=address_of(listener), timeout=60.0) as client:
            yield client
    finally:
        server.should_exit = True
        thread.join(_PATIENCE)


def wait_until(condition: Any, patience: float = _PATIENCE) -> Any:
    """The first true value of a function, asked again and again."""
    end = time.monotonic() + patience
    while not (found := condition()):
        if time.monotonic() > end:
            raise TimeoutError("it did not happen")
        time.sleep(0.05)
    return found
