"""How long until it starts: importing, the first call that compiles, and later processes with the cache filled.

Each measurement is a fresh Python process. The compiled loops are cached in a temporary folder, empty at first, so that
"first" really compiles and "cached" only loads.

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
FIRST_LIMIT, CACHED_LIMIT = 10.0, 1.0


def run_python(code: str, cache: str | None = None) -> str:
    environment = os.environ | ({"NUMBA_CACHE_DIR": cache} if cache else {})
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


def call_times(code: str, repeats: int) -> tuple[float, float]:
    """Seconds of a call in the first process (compiles) and in a later one (best of ``repeats``)."""
    timed = f"{DATA}\nimport time\nstart = time.perf_counter()\n{code}\nprint(time.perf_counter() - start)"
    with tempfile.TemporaryDirectory() as cache:
        first = float(run_python(timed, cache))
        cached = min(float(run_python(timed, cache)) for _ in range(repeats))
    return first, cached


def whole_demo(repeats: int) -> tuple[float, float]:
    """Seconds of ``preflearn demo`` from an empty cache, and with the cache filled."""

    def once(cache: str) -> float:
        start = time.perf_counter()
        run_python("from preflearn.cli.app import run; assert run(['demo', '--json']) == 0", cache)
        return time.perf_counter() - start

    with tempfile.TemporaryDirectory() as cache:
        return once(cache), min(once(cache) for _ in range(repeats))


def verdict(value: float, limit: float) -> str:
    return f"{value:8.2f} s (at most {limit:g} s: {'met' if value <= limit else 'MISSED'})"


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
    print("\nfirst call in the first process, and in later ones")
    calls = {}
    for name, code in CALLS.items():
        first, cached = call_times(code, repeats)
        calls[name] = {"first": first, "cached": cached}
        print(f"{name:<24}{verdict(first, FIRST_LIMIT)}{verdict(cached, CACHED_LIMIT)}")
    first, cached = whole_demo(repeats)
    print(f"{'preflearn demo':<24}{verdict(first, 15)}{verdict(cached, 4)}   whole process")
    if not options.quick:
        limits = {"first": FIRST_LIMIT, "cached": CACHED_LIMIT}
        write_results(
            Path(__file__).stem,
            imports,
            {"question": "first call", "unit": "s", "values": calls, "limits": limits},
            {"question": "preflearn demo", "unit": "s", "values": {"first": first, "cached": cached}},
        )


if __name__ == "__main__":
    main()
