"""How much faster are two worker processes of Dask than one?

Each worker has one thread (Dask also gives BLAS one in its workers). The rows are made on the workers, partition by
partition, as a file would be read: RankRLS in one pass of statistics, RankSVM with partitions kept in memory and a
handful of Newton steps.

    python benchmarks/dask_scaling.py
    python benchmarks/dask_scaling.py --quick
    python benchmarks/dask_scaling.py --automatic --rows 100000     # AutoRanker on two workers and as a stream
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import dask.array as da
import numpy as np
from distributed import Client, LocalCluster

from _harness import arguments, report, write_results
from out_of_core import rows_of
from preflearn import AutoRanker, RankRLS, RankSVM
from preflearn.automatic import ranker
from preflearn.distributed import fit

_QUERY = 20


def make_block(numbers: np.ndarray, n_features: int) -> np.ndarray:
    """Features of the rows with these numbers; the block is seeded by its first row."""
    return np.random.default_rng(int(numbers[0])).normal(size=(numbers.shape[0], n_features))


def make_scores(numbers: np.ndarray) -> np.ndarray:
    return np.random.default_rng(int(numbers[0]) + 1).integers(0, 5, numbers.shape[0]).astype(float)


def collections(n_rows: int, n_features: int, n_partitions: int) -> tuple:
    rows = n_rows // n_partitions // _QUERY * _QUERY
    numbers = da.arange(rows * n_partitions, chunks=rows)
    X = numbers.map_blocks(
        make_block, n_features, dtype=float, new_axis=1, chunks=(numbers.chunks[0], (n_features,))
    )
    return X, numbers.map_blocks(make_scores, dtype=float), numbers // _QUERY


def seconds_of(n_workers: int, model, sizes: tuple[int, int, int], repeats: int) -> tuple[float, np.ndarray]:
    """Best time of a fit on a fresh cluster, and the coefficients."""
    with (
        LocalCluster(
            n_workers=n_workers, threads_per_worker=1, dashboard_address=":0", memory_limit=0
        ) as cluster,
        Client(cluster),
    ):
        fit(
            model, *collections(2_000 * n_workers, sizes[1], 2 * n_workers)
        )  # imports and compiles on every worker
        best = np.inf
        for _ in range(repeats):
            start = time.perf_counter()
            fit(model, *collections(*sizes))
            best = min(best, time.perf_counter() - start)
    return best, model.coef_


def compare(name: str, model, sizes: tuple[int, int, int], repeats: int) -> dict:
    two, coef_two = seconds_of(2, model, sizes, repeats)
    one, coef_one = seconds_of(1, model, sizes, repeats)
    assert np.allclose(coef_one, coef_two, rtol=1e-6, atol=1e-12)
    note = f"{sizes[0]:,} rows x {sizes[1]} features in {sizes[2]} partitions"
    seconds = {"one worker": one, "two workers": two}
    return report(name, seconds, baseline="one worker", limits={"two workers": 1 / 1.6}, note=note)


def automatic(n_rows: int, sample: int) -> dict:
    """AutoRanker, all candidates, chosen on a small sample: two workers against one stream of the same rows."""
    ranker._MOST_ROWS = sample
    blocks = [rows_of(block, 20_000) for block in range(n_rows // 20_000)]
    X, y, qid = (np.concatenate(one) for one in zip(*blocks, strict=True))
    X = X.astype(np.float64)
    seconds = {}
    start = time.perf_counter()
    streamed = AutoRanker(random_state=0).fit_stream([(a.astype(np.float64), b, c) for a, b, c in blocks])
    seconds["fit_stream"] = time.perf_counter() - start
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0", memory_limit=0) as cluster,
        Client(cluster),
    ):
        arrays = [da.from_array(one, chunks=(20_000, *one.shape[1:])) for one in (X, y, qid)]
        start = time.perf_counter()
        found = fit(AutoRanker(random_state=0), *arrays)
        seconds["two workers"] = time.perf_counter() - start
    scores = [model.predict(X[:20_000], qid=qid[:20_000]) for model in (streamed, found)]
    difference = float(np.abs(scores[0] - scores[1]).max() / np.abs(scores[0]).max())
    print(f"largest difference of scores, relative to the largest: {difference:.1e}; {found.member_names_}")
    note = f"{n_rows:,} rows x {X.shape[1]} features, sample of {sample:,} rows"
    extra = {"difference": difference, "members": found.member_names_}
    return report("AutoRanker", seconds, baseline="fit_stream", note=note, extra=extra)


def main() -> None:
    if "--automatic" in sys.argv:
        sys.argv.remove("--automatic")
        rows = arguments(__doc__, repeats=1, rows=100_000).rows
        write_results("dask_automatic", automatic(rows, 8_000))
        return
    options = arguments(__doc__, repeats=1, rows=4_500_000)
    n_rows = 40_000 if options.quick else options.rows
    results = [
        compare("RankRLS", RankRLS(), (n_rows, 40 if options.quick else 400, 60), options.repeats),
        compare("RankSVM", RankSVM(), (n_rows, 40, 12), options.repeats),
    ]
    if not options.quick:
        write_results(Path(__file__).stem, *results)


if __name__ == "__main__":
    main()
