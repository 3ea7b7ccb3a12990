"""How fast are files read, against scikit-learn's svmlight reader and against merely reading the bytes?

A generated file shaped like MSLR-WEB (136 features, 120 documents a query) and, where the data are at hand, the OHSUMED
files; and the memory of a stream.

    python benchmarks/reading.py
    python benchmarks/reading.py --quick
"""

from __future__ import annotations

import lzma
import os
import tempfile
from pathlib import Path

import numpy as np
from sklearn.datasets import load_svmlight_file

from _harness import arguments, best_of, peak_memory, report, write_results
from preflearn.io import iter_ranking, read_ranking, write_ranking

DATA = Path(os.environ.get("PREFLEARN_DATA", Path(__file__).resolve().parents[2] / "shared" / "data"))


def make_rows(
    n_rows: int, n_features: int, per_query: int = 120
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Counts, ratios and real values with few and many digits, a third of them zero, as in web search data."""
    rng = np.random.default_rng(0)
    X = rng.lognormal(1, 2, size=(n_rows, n_features))
    X[:, ::3] = np.round(X[:, ::3])
    X[:, 1::3] = np.round(X[:, 1::3], 6)
    X[:, 2::3] = np.where(rng.random(X[:, 2::3].shape) < 0.6, 0, np.round(X[:, 2::3], 2))
    return X, rng.integers(0, 5, n_rows).astype(float), np.arange(n_rows) // per_query


def drain(path: Path, **options) -> int:
    return sum(len(chunk) for chunk in iter_ranking(path, **options))


def letor(folder: Path, n_rows: int, repeats: int) -> dict:
    path = folder / "web.txt"
    X, y, qid = make_rows(n_rows, 136)
    write_ranking(path, X, y, qid=qid)
    found, (Z, targets, queries) = read_ranking(path), load_svmlight_file(str(path), query_id=True)
    assert np.array_equal(found.X, X) and np.array_equal(Z.toarray(), X)
    assert np.array_equal(found.y, targets) and np.array_equal(found.qid, queries)
    seconds = best_of(
        {
            "load_svmlight_file": lambda: load_svmlight_file(str(path), query_id=True),
            "read_ranking": lambda: read_ranking(path),
            "read_ranking, one thread": lambda: read_ranking(path, n_jobs=1),
            "iter_ranking": lambda: drain(path),
            "bytes only": path.read_bytes,
        },
        repeats=repeats,
    )
    return report(
        "LETOR text, all rows",
        seconds,
        baseline="load_svmlight_file",
        limits={"read_ranking": 0.2, "iter_ranking": 0.2},
        note=f"{n_rows:,} rows x 136 features, {path.stat().st_size / 1e6:.0f} MB",
        extra={"rows_per_second": {name: n_rows / value for name, value in seconds.items()}},
    )


def ohsumed(folder: Path, repeats: int) -> dict | None:
    source = DATA / "letor_ohsumed_v2"
    if not source.is_dir():
        print("\nOHSUMED: not found, left out (set PREFLEARN_DATA)")
        return None
    path = folder / "ohsumed.txt"
    path.write_bytes(b"".join(lzma.open(source / f"S{k}.txt.xz").read() for k in range(1, 6)))
    return report(
        "OHSUMED",
        best_of(
            {
                "load_svmlight_file": lambda: load_svmlight_file(str(path), query_id=True),
                "read_ranking": lambda: read_ranking(path),
                "read_ranking, no item names": lambda: read_ranking(path, item=None),
            },
            repeats=repeats,
        ),
        baseline="load_svmlight_file",
        limits={"read_ranking": 0.2},
        note="16,140 rows x 25 features, comments kept as item names",
    )


def prepare_stream(path: str) -> tuple:
    drain(Path(path), rows=2000)
    return (path,)


def stream(path: str) -> None:
    drain(Path(path), rows=8192)


def prepare_read(path: str) -> tuple:
    return prepare_stream(path)


def read_all(path: str) -> None:
    read_ranking(path)


def memory(path: Path, n_rows: int) -> dict:
    return report(
        "memory",
        {
            "X alone": n_rows * 136 * 8,
            "read_ranking": peak_memory(prepare_read, read_all, str(path)),
            "iter_ranking, 8192 rows": peak_memory(prepare_stream, stream, str(path)),
        },
        baseline="X alone",
        unit="bytes",
    )


def main() -> None:
    options = arguments(__doc__, repeats=5)
    n_rows = 2_400 if options.quick else 60_000
    repeats = 1 if options.quick else options.repeats
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        results = [
            letor(folder, n_rows, repeats),
            ohsumed(folder, repeats),
            memory(folder / "web.txt", n_rows),
        ]
    if not options.quick:
        write_results(Path(__file__).stem, *(result for result in results if result is not None))


if __name__ == "__main__":
    main()
