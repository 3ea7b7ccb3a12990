"""How long until it starts: importing, the first call that compiles, and later processes with the cache filled.

Each measurement is a fresh Python process. The compiled loops are cached in a temporary folder, empty at first, so that
"first" really compiles and "cached" only loads. A saved model is loaded and predicts in a process that does nothing
else; the import of scikit-learn, which every model needs, stands beside it. The limits are for an idle machine; the
processor time beside the wall clock tells how much of the wait was other people's work.

    python benchmarks/cold_start.py
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
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
# What is saved, and what a fresh process predicts with it.
SAVE_MODELS = """
import sys
import numpy as np
import pandas as pd
from sklearn.pipeline import make_pipeline
from preflearn import AutoRanker, RankRLS
from preflearn.datasets import load_demo
from preflearn.io import save_model
from preflearn.preprocessing import TableEncoder
X, y, qid, _ = load_demo()
X, y, qid = X[:400], y[:400], qid[:400]
table = {f"column{j}": X[:, j] for j in range(X.shape[1])}
table["colour"] = np.array(["red", "blue", "green", "white"], dtype=object)[np.arange(400) % 4]
table["day"] = (np.datetime64("2024-01-01") + np.arange(400) % 90).astype(str).astype(object)
table = pd.DataFrame(table)
models = {
    "linear": RankRLS().fit(X, y, qid=qid),
    "rbf": RankRLS(kernel="rbf").fit(X, y, qid=qid),
    "table": make_pipeline(TableEncoder(), RankRLS()),
    "automatic": AutoRanker(time_limit=20, random_state=0),
}
models["table"].fit(table, y, rankrls__qid=qid)
models["automatic"].fit(table, y, qid=qid)
for name, model in models.items():
    save_model(model, f"{sys.argv[1]}/{name}.preflearn")
"""
NEW_ROWS = "X = np.zeros((20, 8))"
NEW_TABLE = """
import pandas as pd
X = pd.DataFrame({**{f"column{j}": np.zeros(20) for j in range(8)}, "colour": ["red"] * 20, "day": ["2024-02-01"] * 20})
"""
PREDICTIONS = {
    "linear": NEW_ROWS,
    "rbf": NEW_ROWS,
    "table": NEW_TABLE,
    "automatic": NEW_TABLE,
}
START_LIMIT = 1.5
CALL_LIMITS = {"first": 10.0, "cached": 1.0}
DEMO_LIMITS = {"first": 15.0, "cached": 4.0}


def run_python(code: str, cache: str | None = None, *arguments: str) -> str:
    environment = os.environ | ({"NUMBA_CACHE_DIR": cache} if cache else {})
    # The question is compiling and loading; threads of BLAS that wait for a busy core would drown the answer.
    environment["OPENBLAS_NUM_THREADS"] = "1"
    # A checkout whose modules are compiled again in every process would be compared with an installed scikit-learn.
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], env=environment, capture_output=True, text=True, check=True
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

    return _first_and_cached(once, repeats)


def _first_and_cached(once: Callable[[str], tuple[float, ...]], repeats: int) -> dict[str, dict[str, float]]:
    """Wall and processor seconds with an empty cache, and the best with a filled one."""
    with tempfile.TemporaryDirectory() as cache:
        first = once(cache)
        later = min(once(cache) for _ in range(repeats))
    return {
        key: dict(zip(("wall", "cpu"), value, strict=True))
        for key, value in (("first", first), ("cached", later))
    }


def prediction_times(repeats: int) -> dict[str, dict[str, float | int]]:
    """Seconds of a process that loads a model and predicts with an empty and a filled cache, and loops compiled."""
    found = {}
    with tempfile.TemporaryDirectory() as models, tempfile.TemporaryDirectory() as caches:
        run_python(SAVE_MODELS, None, models)
        for name, rows in PREDICTIONS.items():
            code = (
                f"import numpy as np\nfrom preflearn.io import load_model\n{rows}\n"
                f"load_model({models!r} + '/{name}.preflearn').predict(X)"
            )
            cache = Path(caches, name)
            first = _process_time(code, str(cache))
            found[name] = {
                "first": first,
                "cached": min(_process_time(code, str(cache)) for _ in range(repeats)),
                "compiled": len(list(cache.rglob("*.nbc"))),
            }
    found["import sklearn.linear_model"] = {
        "cached": min(_process_time("import sklearn.linear_model") for _ in range(repeats))
    }
    return found


def _process_time(code: str, cache: str | None = None) -> float:
    start = time.perf_counter()
    run_python(code, cache)
    return time.perf_counter() - start


def whole_demo(repeats: int) -> dict[str, dict[str, float]]:
    """Seconds of a process that runs ``preflearn demo``, from an empty cache and with the cache filled."""

    def once(cache: str) -> tuple[float, float]:
        start, before = time.perf_counter(), os.times()
        run_python("from preflearn.cli.app import run; assert run(['demo', '--json']) == 0", cache)
        after = os.times()
        cpu = after.children_user + after.children_system - before.children_user - before.children_system
        return time.perf_counter() - start, cpu

    return _first_and_cached(once, repeats)


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
    print("\nload_model and predict in a fresh process")
    predictions = prediction_times(repeats)
    for name, times in predictions.items():
        first = (
            f"first {times['first']:6.2f} s, {times['compiled']} loops compiled   "
            if "first" in times
            else ""
        )
        met = f" (at most {START_LIMIT:g} s: {'met' if times['cached'] <= START_LIMIT else 'MISSED'})"
        print(f"{name:<28}{first}cached {times['cached']:6.2f} s{met if first else ''}")
    demo = whole_demo(repeats)
    print(line("preflearn demo", demo, DEMO_LIMITS))
    if not options.quick:
        write_results(
            Path(__file__).stem,
            imports,
            {"question": "first call", "unit": "s", "values": calls, "limits": CALL_LIMITS, "load": busy},
            {
                "question": "load_model and predict in a fresh process",
                "unit": "s",
                "values": predictions,
                "limits": {"cached": START_LIMIT},
                "load": busy,
            },
            {"question": "preflearn demo", "unit": "s", "values": demo, "limits": DEMO_LIMITS, "load": busy},
        )


if __name__ == "__main__":
    main()
