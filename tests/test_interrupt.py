"""Ctrl-C at any moment: the call is left, and the process ends."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import textwrap
import time

import pytest

pytestmark = pytest.mark.skipif(os.name == "nt", reason="signals of POSIX")

# Seconds after which a process that should have ended is taken to hang.
HANGS = 120
N_MOMENTS = 200 if os.environ.get("PREFLEARN_LONG_TESTS") == "1" else 6

# Threads, pools and BLAS are in use when the signal comes; the exception is caught, so that the process ends in the
# ordinary way, through every shutdown of its libraries. Both calls take longer than the longest delay.
CHILD = """
import os, signal, sys, threading, time
import numpy as np
from preflearn import RankRLS
from preflearn.model_selection import cross_val_predict

X = np.random.default_rng(0).normal(size=(2600, 5))
qid = np.arange(2600) // 10
model = RankRLS(kernel="rbf")
calls = {{
    "fit": lambda: model.fit(X, X[:, 0], qid=qid),
    "cross_val_predict": lambda: cross_val_predict(model, X, X[:, 0], qid=qid, cv="leave-query-out"),
}}
model.fit(X[:600], X[:600, 0], qid=qid[:600])  # everything is loaded

def press():
    time.sleep({delay})
    os.kill(os.getpid(), signal.SIGINT)

threading.Thread(target=press, daemon=True).start()
try:
    while True:
        calls["{call}"]()
except KeyboardInterrupt:
    print("left", flush=True)
"""


@pytest.mark.parametrize("call", ["fit", "cross_val_predict"])
def test_ctrl_c_at_any_moment_ends_the_process(call):
    rng = random.Random(call)
    for moment in range(N_MOMENTS // 2):
        delay = rng.uniform(0.0, 3.0)
        child = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(CHILD).format(delay=delay, call=call)],
            capture_output=True,
            text=True,
            timeout=HANGS,
        )
        assert (child.returncode, child.stdout.strip()) == (0, "left"), (moment, delay, child.stderr)


SWALLOWING = """
import signal, time, weakref
from preflearn.cli import app

class Thing:
    {method}

def call(arguments):
    thing = Thing()
    kept = weakref.ref(thing, {callback})
    del thing
    time.sleep(20)
    return 0

app._call = call
app.main()
"""
PRESS = "lambda _: signal.raise_signal(signal.SIGINT)"


@pytest.mark.parametrize(
    ("method", "callback"), [("pass", PRESS), (f"__del__ = {PRESS}", "None"), (f"__del__ = {PRESS}", PRESS)]
)
def test_ctrl_c_inside_of_a_callback_that_swallows_it_ends_the_command_line(method, callback):
    code = SWALLOWING.format(method=method, callback=callback)
    start = time.monotonic()
    child = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=HANGS)
    assert (child.returncode, child.stderr) == (130, "preflearn: interrupted\n")
    assert time.monotonic() - start < 15


COMPILING = """
import ctypes, signal, time
from preflearn.cli import app

def _raw_object_cache_notify():
    signal.raise_signal(signal.SIGINT)
    print("told", flush=True)

def call(arguments):
    ctypes.CFUNCTYPE(None)(_raw_object_cache_notify)()
    time.sleep(20)
    return 0

app._call = call
app.main()
"""


def test_ctrl_c_while_llvm_hands_over_a_compiled_loop_waits_for_it():
    start = time.monotonic()
    child = subprocess.run([sys.executable, "-c", COMPILING], capture_output=True, text=True, timeout=HANGS)
    assert (child.returncode, child.stdout, child.stderr) == (130, "told\n", "preflearn: interrupted\n")
    assert time.monotonic() - start < 15


def test_ctrl_c_at_any_moment_ends_a_training(tmp_path):
    command = [sys.executable, "-m", "preflearn"]
    subprocess.run([*command, "demo", "--write", "shop.csv"], cwd=tmp_path, check=True, capture_output=True)
    rng = random.Random(0)
    for _ in range(N_MOMENTS // 2):
        delay = rng.uniform(2.0, 8.0)
        child = subprocess.Popen(
            [*command, "train", "shop.csv", "--target", "grade", "--query", "session", "--report", "r.html"],
            cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        time.sleep(delay)
        child.send_signal(signal.SIGINT)
        said, errors = child.communicate(timeout=HANGS)
        # A signal during the start, or one that comes when all is done.
        assert child.returncode in (130, -signal.SIGINT) or "Wrote shop.preflearn" in said, (
            delay,
            said,
            errors,
        )
        if child.returncode == 130:
            assert errors.endswith("preflearn: interrupted\n"), (delay, errors)


def test_ctrl_c_that_nobody_catches_ends_the_process_by_the_signal():
    code = textwrap.dedent(CHILD).format(delay=0.5, call="fit") + "    raise\n"
    child = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=HANGS)
    assert child.stdout.strip() == "left", child.stderr
    assert child.returncode == -signal.SIGINT
