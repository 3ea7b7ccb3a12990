"""How long until it starts: importing, the first call that compiles, and later processes with the cache filled.

Each measurement is a fresh Python process. The compiled loops are cached in a temporary folder, empty at first, so that
"first" really compiles and "cached" only loads. The limits are for an idle machine; the processor time beside the wall
clock tells how much of the wait was other people's work.

    python benchmarks/cold_start.py
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from _harness import arguments, best_of, report, write_results

IMPORTS = {
    "import sklearn.linear_model": "import sklearn.linear_model",
    "import preflearn": "import preflearn",
    "from preflearn import RankRLS": "from preflearn import RankRLS",
}

# Calls that compile something, each with what must be ready before its clock starts.
DATA = """
import numpy as np
from preflearn import RankRLS
from preflearn.datasets import load_demo
from preflearn.metrics import concordance, ndcg
X, y, qid, _ = load_demo()
scores = X[:, 0].copy()
"""
CALLS = {
    "RankRLS, RBF": "RankRLS(kernel='rbf').fit(X, y, qid=qid).predict(X)",
    "RankRLS, ties left out": "RankRLS(kernel='rbf', ties='exclude').fit(X, y, qid=qid)",
    "RankRLS, linear": "RankRLS().fit(X, y, qid=qid)",
    "concordance": "concordance(y, scores, qid)",
    "ndcg": "ndcg(y, scores, qid)",
}
CALL_LIMITS = {"first": 10.0, "cached": 1.0}
DEMO_LIMITS = {"first": 15.0, "cached": 4.0}


def run_python(code: str, cache: str | None = None) -> str:
    environment = os.environ | ({"NUMBA_CACHE_DIR": cache} if cache else {})
    # The question is compiling and loading; threads of BLAS that wait for a busy core would drown the answer.
    environment["OPENBLAS_NUM_THREADS"] = "1"
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    return done.stdout


def import_times(repeats: int) -> dict[str, float]:
    """Seconds of a whole process that imports, less those of a process that does nothing."""
    seconds = best_of(
        {"nothing": lambda: run_python("pass"), **{name: _importer(code) for name, code in IMPORTS.items()}},
        repeats=repeats,
    )
    nothing = seconds.pop("nothing")
    return {name: value - nothing for name, value in seconds.items()}


def _importer(code: str):
    return lambda: run_python(code)


def call_times(code: str, repeats: int) -> dict[str, dict[str, float]]:
    """Seconds of a call in the first process, which compiles, and in a later one (best of ``repeats``)."""
    timed = (
        f"{DATA}\nimport time\nwall, cpu = time.perf_counter(), time.process_time()\n{code}\n"
        "print(time.perf_counter() - wall, time.process_time() - cpu)"
    )

    def once(cache: str) -> tuple[float, ...]:
        return tuple(map(float, run_python(timed, cache).split()))

    with tempfile.TemporaryDirectory() as cache:
        first = once(cache)
        later = min(once(cache) for _ in range(repeats))
    return {
        key: dict(zip(("wall", "cpu"), value, strict=True))
        for key, value in (("first", first), ("cached", later))
    }


def whole_demo(repeats: int) -> dict[str, dict[str, float]]:
    """Seconds of a process that runs ``preflearn demo``, from an empty cache and with the cache filled."""

    def once(cache: str) -> tuple[float, float]:
        start, before = time.perf_counter(), os.times()
        run_python("from preflearn.cli.app import run; assert run(['demo', '--json']) == 0", cache)
        after = os.times()
        cpu = after.children_user + after.children_system - before.children_user - before.children_system
        return time.perf_counter() - start, cpu

    with tempfile.TemporaryDirectory() as cache:
        first = once(cache)
        later = min(once(cache) for _ in range(repeats))
    return {
        key: dict(zip(("wall", "cpu"), value, strict=True))
        for key, value in (("first", first), ("cached", later))
    }


def line(name: str, times: dict[str, dict[str, float]], limits: dict[str, float]) -> str:
    parts = [
        f"{key} {times[key]['wall']:6.2f} s, processor {times[key]['cpu']:5.2f} s "
        f"(at most {limit:g} s: {'met' if times[key]['wall'] <= limit else 'MISSED'})"
        for key, limit in limits.items()
    ]
    return f"{name:<24}" + "   ".join(parts)


def main() -> None:
    options = arguments(__doc__)
    repeats = 1 if options.quick else options.repeats
    imports = report(
        "importing",
        import_times(repeats),
        baseline="import sklearn.linear_model",
        limits={"import preflearn": 1.2},
        note="less the start of Python itself",
    )
    busy = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
    print(f"\nfirst call in the first process, and in later ones (load of the machine {busy:.1f})")
    calls = {}
    for name, code in CALLS.items():
        calls[name] = call_times(code, repeats)
        print(line(name, calls[name], CALL_LIMITS))
    demo = whole_demo(repeats)
    print(line("preflearn demo", demo, DEMO_LIMITS))
    if not options.quick:
        write_results(
            Path(__file__).stem,
            imports,
            {"question": "first call", "unit": "s", "values": calls, "limits": CALL_LIMITS, "load": busy},
            {"question": "preflearn demo", "unit": "s", "values": demo, "limits": DEMO_LIMITS, "load": busy},
        )


if __name__ == "__main__":
    main()
