"""How much longer than merely reading a file does training on it take?

A generated Parquet file (46 features, queries of about 20 rows) is read in chunks and thrown away, trained on, and
trained on with five-fold cross-validation over 31 alphas in the same pass; and the memory that takes. Then LETOR text
against scikit-learn's svmlight reader, which only reads.

    python benchmarks/streaming.py
    python benchmarks/streaming.py --rows 1000000
    python benchmarks/streaming.py --quick
"""

from __future__ import annotations

import tempfile
import time
import warnings
from pathlib import Path

import numpy as np
from sklearn.datasets import load_svmlight_file

from _harness import arguments, best_of, peak_memory, report, write_blocks, write_results
from preflearn import RankRLS, RankRLSCV
from preflearn.io import iter_ranking, write_ranking
from preflearn.learners.streaming.checkpoint import extend_digest

N_FEATURES = 46
_GROUP = 100_000


def rows_of(first: int, n_rows: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Features with six significant digits, grades that depend on some of them, queries of 20 rows."""
    rng = np.random.default_rng(first)
    X = rng.random((n_rows, N_FEATURES), dtype=np.float32).round(6)
    y = np.floor(2 * X[:, 0] + X[:, 1] + rng.random(n_rows)).astype(np.float64)
    return X, y, np.arange(first, first + n_rows) // 20


def write_parquet(path: Path, n_rows: int) -> None:
    starts = range(0, n_rows, _GROUP)
    write_blocks(path, (rows_of(first, min(_GROUP, n_rows - first)) for first in starts))


def read(path: str) -> int:
    return sum(len(chunk) for chunk in iter_ranking(path))


def train(path: str) -> RankRLS:
    return RankRLS().fit_stream(path)


def read_and_hash(path: str) -> bytes:
    """What a checkpoint costs each chunk: the hash over every byte of it."""
    digest = b""
    for chunk in iter_ranking(path):
        digest = extend_digest(digest, chunk.X, chunk.y, chunk.qid)
    return digest


def search(path: str) -> RankRLSCV:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the best alpha of generated data may lie at the edge
        return RankRLSCV(cv=5).fit_stream(path)


def parquet(path: Path, n_rows: int, repeats: int) -> list[dict]:
    note = (
        f"{n_rows:,} rows x {N_FEATURES} features, {path.stat().st_size / 1e6:.0f} MB, chunks of 65,536 rows"
    )
    name = str(path)
    small = path.with_name("small.parquet")
    write_parquet(small, 40_000)
    for function in (read, train, search):
        function(str(small))  # compiles
    candidates = {
        "reading": read,
        "reading and hashing": read_and_hash,
        "training": train,
        "training and search": search,
    }
    seconds, processor = best_times(candidates, name, repeats)
    rates = {key: n_rows / value for key, value in seconds.items()}
    pair = {key: seconds[key] for key in ("training", "training and search")}
    return [
        report(
            "Parquet: training against reading",
            seconds,
            baseline="reading",
            limits={"training": 1.5},
            note=note,
            extra={"rows_per_second": rates},
        ),
        report(
            "Parquet: five folds and 31 alphas in the same pass",
            pair,
            baseline="training",
            limits={"training and search": 1.3},
            note=note,
        ),
        report("Parquet: processor time of all threads", processor, baseline="reading", note=note),
    ]


def best_times(candidates: dict, path: str, repeats: int) -> tuple[dict[str, float], dict[str, float]]:
    """Least wall-clock and processor seconds of each candidate; the latter hardly depend on who else is working."""
    seconds, processor = dict.fromkeys(candidates, np.inf), dict.fromkeys(candidates, np.inf)
    for _ in range(repeats):
        for name, function in candidates.items():
            start, start_processor = time.perf_counter(), time.process_time()
            function(path)
            seconds[name] = min(seconds[name], time.perf_counter() - start)
            processor[name] = min(processor[name], time.process_time() - start_processor)
    return seconds, processor


def prepare_small(path: str) -> tuple:
    search(str(Path(path).with_name("small.parquet")))
    return (path,)


def memory(path: Path) -> dict:
    used = {
        "1 GB": 1e9,
        "reading": peak_memory(prepare_small, read, str(path)),
        "training": peak_memory(prepare_small, train, str(path)),
        "training and search": peak_memory(prepare_small, search, str(path)),
    }
    limits = dict.fromkeys(("training", "training and search"), 1.0)
    return report("peak memory beyond imports", used, baseline="1 GB", limits=limits, unit="bytes")


def letor(folder: Path, n_rows: int, repeats: int) -> dict:
    path = folder / "rows.txt"
    X, y, qid = rows_of(0, n_rows)
    write_ranking(path, X.astype(np.float64).round(6), y, qid=qid)
    seconds = best_of(
        {
            "load_svmlight_file": lambda: load_svmlight_file(str(path), query_id=True),
            "training": lambda: RankRLS().fit_stream(path),
            "training and search": lambda: search(str(path)),
        },
        repeats=repeats,
    )
    return report(
        "LETOR text: training against scikit-learn merely reading",
        seconds,
        baseline="load_svmlight_file",
        limits={"training": 0.2},
        note=f"{n_rows:,} rows x {N_FEATURES} features, {path.stat().st_size / 1e6:.0f} MB",
        extra={"rows_per_second": {name: n_rows / value for name, value in seconds.items()}},
    )


def main() -> None:
    options = arguments(__doc__, repeats=3, rows=10_000_000)
    n_rows = 200_000 if options.quick else options.rows
    repeats = 1 if options.quick else options.repeats
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        path = folder / "rows.parquet"
        write_parquet(path, n_rows)
        results = [
            *parquet(path, n_rows, repeats),
            memory(path),
            letor(folder, 20_000 if options.quick else 100_000, repeats),
        ]
    if not options.quick:
        write_results(Path(__file__).stem, *results)


if __name__ == "__main__":
    main()
