"""Threads of our own, and those of BLAS, which rest meanwhile."""

from __future__ import annotations

import os
import re
import threading
from pathlib import Path

import numpy as np
import pytest
from threadpoolctl import threadpool_info

import preflearn
from preflearn import RankSVM
from preflearn.numerics.threads import blas_at_rest, in_turns, limit_blas


def blas_threads() -> set[int]:
    return {library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"}


@pytest.fixture
def two_blas_threads():
    lift = limit_blas(2)
    if blas_threads() != {2}:
        pytest.skip("this BLAS does not take a number of threads")
    yield
    lift()


def test_blas_has_its_threads_back_when_the_last_has_left(two_blas_threads):
    inside, leave = threading.Barrier(3), [threading.Event(), threading.Event()]

    def rest(event: threading.Event) -> None:
        with blas_at_rest(), blas_at_rest():
            inside.wait()
            event.wait()

    guests = [threading.Thread(target=rest, args=(event,), daemon=True) for event in leave]
    for guest in guests:
        guest.start()
    inside.wait()
    assert blas_threads() == {1}
    for guest, event in zip(guests, leave, strict=True):
        assert blas_threads() == {1}
        event.set()
        guest.join()
    assert blas_threads() == {2}
    with blas_at_rest(False):
        assert blas_threads() == {2}
    with pytest.raises(KeyError), blas_at_rest():
        raise KeyError
    assert blas_threads() == {2}


def test_learners_in_several_threads_leave_blas_as_it_was(two_blas_threads):
    X = np.random.default_rng(0).normal(size=(500, 5))
    fits = [threading.Thread(target=RankSVM().fit, args=(X, X.sum(axis=1))) for _ in range(3)]
    for fit in fits:
        fit.start()
    for fit in fits:
        fit.join()
    assert blas_threads() == {2}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_process_is_not_bound_by_threads_that_it_left_behind(two_blas_threads):
    inside, leave = threading.Event(), threading.Event()

    def rest() -> None:
        with blas_at_rest():
            inside.set()
            leave.wait()

    guest = threading.Thread(target=rest, daemon=True)
    guest.start()
    inside.wait()
    child = os.fork()
    if child == 0:
        os._exit(0 if blas_threads() == {2} else 1)
    _, status = os.waitpid(child, 0)
    leave.set()
    guest.join()
    assert os.waitstatus_to_exitcode(status) == 0


def test_nobody_takes_another_turn_after_an_error():
    begun = []

    def turn(number: int) -> int:
        begun.append(number)
        if number == 2:
            raise ArithmeticError("two")
        return number

    with pytest.raises(ArithmeticError, match="two"):
        in_turns(turn, [(number,) for number in range(10_000)])
    assert len(begun) < 10_000
    assert in_turns(turn, [(3,), (4,), (5,)], 7) == [3, 4, 5]
    assert in_turns(turn, []) == []


SOURCE = Path(preflearn.__file__).parent


def code_of(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def test_threads_are_decided_in_one_place():
    """Two places that set the threads of BLAS would undo each other's settings."""
    guilty = [
        path
        for path in SOURCE.rglob("*.py")
        if re.search(r"^\s*(from|import) threadpoolctl", code_of(path), re.M)
    ]
    assert [path.relative_to(SOURCE).as_posix() for path in guilty] == ["numerics/threads.py"]


def test_routines_that_crash_on_large_matrices_are_called_by_tiles_only():
    """OpenBLAS's threaded ``syrk``, and ``potrf`` and ``potri`` which call it, end the interpreter at 17,000 rows."""
    direct = re.compile(r"\b[sd]?(syrk|potrf|potri|lauum)\b\"?\s*[(,]")
    guilty = {
        path.relative_to(SOURCE).as_posix() for path in SOURCE.rglob("*.py") if direct.search(code_of(path))
    }
    assert guilty <= {"numerics/linalg.py", "numerics/tiles.py"}, guilty
