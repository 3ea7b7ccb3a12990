"""AutoRanker on a Parquet file larger than its memory: time for each row, and the peak of the memory.

    python benchmarks/out_of_core.py                              # 1,000,000 rows x 46 features
    python benchmarks/out_of_core.py --rows 3000000 10000000
    python benchmarks/out_of_core.py --rows 10000000 --parts passes training --preset fast

The rows are generated block by block (the same for every run), written to a temporary folder and removed afterwards.
"passes" reads and keeps rows without training. Each part runs in a process of its own, whose peak memory
(resident set, imports included) is that of the whole run.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from _harness import write_blocks, write_results
from preflearn import AutoRanker
from preflearn.auto.sample import RowsInParts
from preflearn.io import iter_ranking
from preflearn.learners.streaming.stream import as_source
from preflearn.metrics import concordance, ndcg
from sizes import interactions

N_FEATURES = 46
_BLOCK, _PER_QUERY = 100_000, 100
# Blocks from here on are test rows.
_TEST = 1_000_000
_CUTS = (0.1, 0.8, 1.5, 2.3)


def rows_of(block: int, n_rows: int = _BLOCK) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Correlated features with an offset for each query of 100 rows, grades 0 to 4."""
    task, rng = np.random.default_rng(12345), np.random.default_rng([7, block])
    load = task.normal(size=(8, N_FEATURES)) * (task.random((8, N_FEATURES)) < 0.4)
    Z = rng.normal(size=(n_rows, 8)) @ load + 0.8 * rng.normal(size=(n_rows, N_FEATURES))
    Z /= np.sqrt((load**2).sum(axis=0) + 0.64)
    f = interactions(Z) / 1.7 + 0.6 * rng.normal(size=n_rows)
    qid = np.arange(n_rows) // _PER_QUERY
    X = Z + 0.5 * rng.normal(size=(int(qid[-1]) + 1, N_FEATURES))[qid]
    y = np.searchsorted(_CUTS, f).astype(np.float64)
    return (
        X.astype(np.float32),
        y,
        qid + block * (_BLOCK // _PER_QUERY),
    )  # blocks of any size have their own queries


def write_parquet(path: Path, n_rows: int) -> None:
    blocks = enumerate(range(0, n_rows, _BLOCK))
    write_blocks(path, (rows_of(block, min(_BLOCK, n_rows - first)) for block, first in blocks))


class Clock:
    """Wall-clock and processor seconds of steps by their names."""

    def __init__(self) -> None:
        self.steps: dict[str, dict[str, float]] = {}

    def __call__(self, name: str, function, *arguments):
        start, cpu = time.perf_counter(), time.process_time()
        result = function(*arguments)
        self.steps[name] = {"s": time.perf_counter() - start, "cpu_s": time.process_time() - cpu}
        print(
            f"  {name:60} {self.steps[name]['s']:8.1f} s {self.steps[name]['cpu_s']:8.1f} CPU s", flush=True
        )
        return result


def passes(path: str, clock: Clock) -> None:
    """What reading costs, without anything that learns."""
    clock("reading", lambda: sum(len(chunk) for chunk in iter_ranking(path)))
    clock("rows that are kept", RowsInParts(as_source(path, {}, verbose=False)).keep)


def training(path: str, clock: Clock, preset: str | None) -> dict:
    """A model of all rows, and how it orders rows that it has not seen."""
    folder = Path(path).parent
    model = AutoRanker(random_state=0, preset=preset)
    clock("training, everything", lambda: model.fit_stream(path, checkpoint=folder / "checkpoint"))
    X, y, qid = rows_of(_TEST, 30_000)
    scores = model.predict(X.astype(np.float64), qid=qid)
    return {
        "preset": preset,
        "best_score": model.best_score_,
        "concordance": concordance(y, scores, qid),
        "ndcg_at_10": ndcg(y, scores, qid, k=10),
        "training_rows": model.n_training_rows_,
        "members": dict(zip(model.member_names_, model.weights_.tolist())),
        "choice_s": sum(one.seconds for one in model.leaderboard_),
        "checkpoint_mb": (folder / "checkpoint").stat().st_size / 1e6,
    }


def peak_mb() -> float:
    """Peak memory of this process; Linux counts in units of 1,024 bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6


def measure(path: str, n_rows: int, part: str, preset: str | None) -> dict:
    clock = Clock()
    found = {"part": part, "rows": n_rows, "features": N_FEATURES, "file_mb": Path(path).stat().st_size / 1e6}
    if part == "passes":
        passes(path, clock)
    else:
        found |= training(path, clock, preset)
    found["peak_mb"] = peak_mb()
    found["steps"] = clock.steps
    found["us_a_row"] = {name: 1e6 * one["cpu_s"] / n_rows for name, one in clock.steps.items()}
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, nargs="+", default=[1_000_000])
    parser.add_argument("--parts", nargs="+", default=["training"], choices=["passes", "training"])
    parser.add_argument("--preset", default=None, help="of AutoRanker")
    parser.add_argument("--name", default="out_of_core", help="of the file of results")
    parser.add_argument("--measure", metavar="FILE", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        found = measure(options.measure, options.rows[0], options.parts[0], options.preset)
        Path(options.measure + ".json").write_text(json.dumps(found))
        return
    results = []
    for n_rows in options.rows:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "rows.parquet"
            write_parquet(path, n_rows)
            print(f"{n_rows:,} rows, {path.stat().st_size / 1e6:.0f} MB", flush=True)
            for part in options.parts:
                command = [
                    sys.executable,
                    __file__,
                    "--measure",
                    str(path),
                    "--rows",
                    str(n_rows),
                    "--parts",
                    part,
                ]
                subprocess.run(command + (["--preset", options.preset] if options.preset else []), check=True)
                results.append(json.loads(Path(f"{path}.json").read_text()))
                print(json.dumps(results[-1], indent=1), flush=True)
                write_results(options.name, *results)


if __name__ == "__main__":
    main()
