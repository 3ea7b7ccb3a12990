"""Ctrl-C inside a long factorisation, and the factorisations that can be left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap

import numpy as np
import pytest

from preflearn.numerics import linalg


@pytest.fixture
def every_size_is_long(monkeypatch):
    monkeypatch.setattr(linalg, "LONG", 2)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n", [2, 7, 40])
def test_factorisations_without_the_interpreter_lock(every_size_is_long, n, dtype):
    rng = np.random.default_rng(n)
    A = rng.normal(size=(n, n))
    A = np.asfortranarray(A @ A.T + n * np.eye(n), dtype=dtype)
    size = {"atol": 200 * np.finfo(dtype).eps * np.abs(A).max()}
    values, vectors = linalg.eigh_in_place(A.copy(order="F"))
    np.testing.assert_allclose((vectors * values) @ vectors.T, A, **size)
    C = linalg.cholesky_in_place(A.copy(order="F"), clean=True)
    np.testing.assert_allclose(C @ C.T, A, **size)
    assert not np.triu(C, 1).any()
    kept = linalg.cholesky_in_place(A.copy(order="F"))
    np.testing.assert_array_equal(np.triu(kept, 1), np.triu(A, 1))
    inverse = linalg.inverse_in_place(A.copy(order="F"))
    np.testing.assert_allclose(inverse @ A, np.eye(n), atol=1e3 * np.finfo(dtype).eps)
    Q, diagonal, off_diagonal = linalg.tridiagonalise_in_place(A.copy(order="F"))
    T = np.diag(diagonal) + np.diag(off_diagonal, 1) + np.diag(off_diagonal, -1)
    np.testing.assert_allclose(Q @ T @ Q.T, A, **size)


def test_an_indefinite_matrix_is_still_told(every_size_is_long):
    with pytest.raises(np.linalg.LinAlgError, match="leading minor 2"):
        linalg.cholesky_in_place(np.asfortranarray([[1.0, 2.0], [2.0, 1.0]]))


CHILD = """
import os, signal, sys, threading, time
import numpy as np
from preflearn import RankRLSCV

def at_work():
    return any(thread.name == "LAPACK" and thread.is_alive() for thread in threading.enumerate())

def press():
    while not at_work():
        time.sleep(0.001)
    os.kill(os.getpid(), signal.SIGINT)

X = np.random.default_rng(0).normal(size=(1500, 5))
threading.Thread(target=press, daemon=True).start()
try:
    RankRLSCV(kernel="rbf").fit(X, X[:, 0], qid=np.arange(1500) // 10)
except KeyboardInterrupt:
    print("left while LAPACK was at work:", at_work(), flush=True)
    raise
print("not left")
"""


@pytest.mark.skipif(os.name == "nt", reason="signals of POSIX")
def test_ctrl_c_leaves_a_factorisation_at_once():
    """No clock: the routine is still running when the exception arrives, and the process ends by the signal."""
    child = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(CHILD)], capture_output=True, text=True, timeout=300
    )
    assert child.stdout.strip() == "left while LAPACK was at work: True", child.stderr
    assert child.returncode == -signal.SIGINT
