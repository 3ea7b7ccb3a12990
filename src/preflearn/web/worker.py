"""The model in a process of its own, where it is large.

Linear algebra of thousands of items takes about a second, and SciPy's calls hold the interpreter's lock meanwhile: in a
thread they would keep pages waiting. Requests and results travel through one pipe. A `ProcessPoolExecutor` would do the
same work, but its worker outlives a server that is killed; here the end of the pipe ends the process.
"""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Mapping, Sequence
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any

import numpy as np

from ..numerics.threads import blas_at_rest
from .answers import Answer
from .items import Items
from .learner import Learner, Standing

# Up to this many items the model is fast enough for a thread.
_FEW_ITEMS = 150


def start_learner(items: Items, goal: str | None) -> Learner | RemoteLearner:
    """Build the model here for few items, in a process of its own for many."""
    return Learner(items, goal) if len(items) <= _FEW_ITEMS else RemoteLearner(items, goal)


class RemoteLearner:
    """A `Learner` in another process, with the same methods."""

    def __init__(self, items: Items, goal: str | None = None):
        self._arguments = (items, goal)
        self._process: BaseProcess | None = None
        self._pipe: Connection | None = None
        self._sent: list[Answer] = []
        try:
            self.columns: list[str] | None = self._ask("columns")
        except BaseException:
            self.close()
            raise

    @property
    def has_features(self) -> bool:
        return self.columns is not None

    def learn(self, answers: Sequence[Answer]) -> None:
        """As `Learner.learn`; answers that the other process has are not sent again."""
        self._start_if_dead()
        n_same = 0
        for known, answer in zip(self._sent, answers):
            if known is not answer:
                break
            n_same += 1
        self._ask("learn", n_same, list(answers[n_same:]))
        self._sent = list(answers)

    def questions(self, n: int, closed: np.ndarray) -> np.ndarray:
        """As `Learner.questions`."""
        return self._ask("questions", n, closed)

    def standing(self) -> Standing:
        """As `Learner.standing`."""
        return self._ask("standing")

    def saved(self, metadata: Mapping[str, Any]) -> bytes:
        """As `Learner.saved`."""
        return self._ask("saved", metadata)

    def close(self) -> None:
        """End the process."""
        if self._process is not None and self._pipe is not None:
            self._pipe.close()
            self._process.join()
            self._process = self._pipe = None

    def _start_if_dead(self) -> None:
        if self._process is not None and self._process.is_alive():
            return
        self.close()
        # Not a fork of this process, whose threads may hold locks.
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_work, args=(theirs,), daemon=True)
        self._process.start()
        theirs.close()
        self._sent = []
        self._ask("start", *self._arguments)

    def _ask(self, name: str, *arguments: Any) -> Any:
        self._start_if_dead()
        assert self._pipe is not None
        try:
            self._pipe.send((name, arguments))
            error, value = self._pipe.recv()
        except (EOFError, OSError):
            raise RuntimeError("the process of the model ended unexpectedly; it is started again") from None
        if error is not None:
            raise error
        return value


class _Worker:
    """The other side of `RemoteLearner`."""

    def __init__(self) -> None:
        self.answers: list[Answer] = []

    def start(self, items: Items, goal: str | None) -> None:
        self.learner = Learner(items, goal)

    def columns(self) -> list[str] | None:
        return self.learner.columns

    def learn(self, n_same: int, answers: list[Answer]) -> None:
        self.answers = [*self.answers[:n_same], *answers]
        self.learner.learn(self.answers)

    def answer(self, name: str, arguments: tuple[Any, ...]) -> Any:
        """Call a method of this class or, where it has none of the name, of the learner."""
        return getattr(self if hasattr(self, name) else self.learner, name)(*arguments)


def _work(pipe: Connection) -> None:
    # Ctrl-C in the terminal is for the server, which ends this process when it is done.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    worker = _Worker()
    with blas_at_rest():
        while True:
            try:
                name, arguments = pipe.recv()
            except EOFError:
                return
            try:
                result: tuple[Exception | None, Any] = (None, worker.answer(name, arguments))
            except Exception as error:
                result = (error, None)
            try:
                pipe.send(result)
            except BrokenPipeError:  # nobody is left to tell
                return
