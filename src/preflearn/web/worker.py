"""The model in a process of its own, where it is large.

Linear algebra of thousands of items takes a second or so, and SciPy's calls hold the interpreter's lock meanwhile: in a
thread they would keep pages waiting. The process is this module run as a program; requests and results are pickled
through its standard streams, and it ends when they are closed.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np

from .answers import Answer
from .items import Items
from .learner import Learner, Standing

# Up to so many items the model is fast enough for a thread.
_FEW_ITEMS = 150


def start_learner(items: Items, goal: str | None) -> Learner | RemoteLearner:
    """The model here for few items, in a process of its own for many."""
    return Learner(items, goal) if len(items) <= _FEW_ITEMS else RemoteLearner(items, goal)


class RemoteLearner:
    """A `Learner` in another process, with the same methods."""

    def __init__(self, items: Items, goal: str | None = None):
        self._arguments = (items, goal)
        self._process: subprocess.Popen[bytes] | None = None
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
        """As `Learner.learn`; what the other process knows is not sent again."""
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
        if self._process is not None:
            assert self._process.stdin is not None and self._process.stdout is not None
            self._process.stdin.close()
            self._process.stdout.close()
            self._process.wait()
            self._process = None

    def _start_if_dead(self) -> None:
        if self._process is not None and self._process.poll() is None:
            return
        if self._process is not None:
            self.close()
        package = str(Path(__file__).resolve().parents[2])
        environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, [package, os.environ.get("PYTHONPATH")]))
        # In a session of its own: Ctrl-C in the terminal is for the server, which ends this process when it is done.
        self._process = subprocess.Popen(
            [sys.executable, "-m", "preflearn.web.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
            start_new_session=True,
        )
        self._sent = []
        self._ask("start", *self._arguments)

    def _ask(self, name: str, *arguments: Any) -> Any:
        self._start_if_dead()
        assert self._process is not None
        assert self._process.stdin is not None and self._process.stdout is not None
        try:
            pickle.dump((name, arguments), self._process.stdin)
            self._process.stdin.flush()
            error, value = pickle.load(self._process.stdout)
        except (EOFError, BrokenPipeError):
            raise RuntimeError("the process of the model ended unexpectedly; it is started again") from None
        if error is not None:
            raise error
        return value


class _Worker:
    """What runs in the other process."""

    def __init__(self) -> None:
        self.answers: list[Answer] = []

    def start(self, items: Items, goal: str | None) -> None:
        self.learner = Learner(items, goal)

    def columns(self) -> list[str] | None:
        return self.learner.columns

    def learn(self, n_same: int, answers: list[Answer]) -> None:
        self.answers = [*self.answers[:n_same], *answers]
        self.learner.learn(self.answers)

    def questions(self, n: int, closed: np.ndarray) -> np.ndarray:
        return self.learner.questions(n, closed)

    def standing(self) -> Standing:
        return self.learner.standing()

    def saved(self, metadata: Mapping[str, Any]) -> bytes:
        return self.learner.saved(metadata)


def _work(requests: IO[bytes], results: IO[bytes]) -> None:
    worker = _Worker()
    while True:
        try:
            name, arguments = pickle.load(requests)
        except EOFError:
            return
        try:
            result: tuple[Exception | None, Any] = (None, getattr(worker, name)(*arguments))
        except Exception as error:
            result = (error, None)
        try:
            pickle.dump(result, results)
            results.flush()
        except BrokenPipeError:  # nobody is left to tell
            os._exit(0)


if __name__ == "__main__":
    # Results have the standard output for themselves: whatever is printed goes to stderr.
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    _work(sys.stdin.buffer, out)
