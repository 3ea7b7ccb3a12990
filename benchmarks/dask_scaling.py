"""How much faster are two worker processes of Dask than one?

Each worker has one thread (Dask also gives BLAS one in its workers). The rows are made on the workers, partition by
partition, as a file would be read: RankRLS in one pass of statistics, RankSVM with partitions kept in memory and a
handful of Newton steps.

    python benchmarks/dask_scaling.py
    python benchmarks/dask_scaling.py --quick
    python benchmarks/dask_scaling.py --automatic --rows 1000000    # AutoRanker, and as a stream
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import dask
import dask.array as da
import numpy as np
from distributed import Client, LocalCluster

from _harness import arguments, report, write_results
from out_of_core import _TEST, N_FEATURES, peak_mb, rows_of
from preflearn import AutoRanker, RankRLS, RankSVM
from preflearn.auto import fitting
from preflearn.distributed import fit

_QUERY = 20
# Rows of a partition of generated rows for AutoRanker, and memory of a worker.
_PARTITION, _WORKER_MEMORY = 50_000, "2GB"


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


def partition(number: int, n_rows: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows of a partition, made where it is worked on; two of them are one chunk of the stream."""
    X, y, qid = rows_of(number // 2, 2 * n_rows)
    rows = slice(number % 2 * n_rows, (number % 2 + 1) * n_rows)
    return X[rows], y[rows], qid[rows]


def partitions(n_rows: int) -> list[da.Array]:
    """X, y and qid, which no process holds."""
    parts = [dask.delayed(partition, nout=3)(k, _PARTITION) for k in range(n_rows // _PARTITION)]
    shapes = [((_PARTITION, N_FEATURES), np.float32), ((_PARTITION,), float), ((_PARTITION,), int)]
    return [
        da.concatenate([da.from_delayed(part[k], shape, dtype) for part in parts])
        for k, (shape, dtype) in enumerate(shapes)
    ]


def automatic(n_rows: int, sample: int) -> dict:
    """AutoRanker, all candidates: two workers against a stream of the same rows in chunks of twice the size."""
    fitting._MOST_ROWS = sample
    chunks = n_rows // (2 * _PARTITION)
    seconds = {}
    start, cpu = time.perf_counter(), time.process_time()
    streamed = AutoRanker(random_state=0).fit_stream(
        lambda: (rows_of(chunk, 2 * _PARTITION) for chunk in range(chunks))
    )
    seconds["fit_stream"] = time.perf_counter() - start
    extra = {"fit_stream_cpu_s": time.process_time() - cpu}
    print(f"fit_stream: {seconds['fit_stream']:.0f} s, {extra['fit_stream_cpu_s']:.0f} CPU s", flush=True)
    limits = {"threads_per_worker": 1, "memory_limit": _WORKER_MEMORY}
    with LocalCluster(n_workers=2, dashboard_address=":0", **limits) as cluster, Client(cluster) as client:
        start = time.perf_counter()
        found = fit(AutoRanker(random_state=0), *partitions(2 * _PARTITION * chunks))
        seconds["two workers"] = time.perf_counter() - start
        extra["worker_peak_mb"] = max(client.run(peak_mb).values())
    X, _, qid = rows_of(_TEST, 30_000)
    scores = [model.predict(X.astype(np.float64), qid=qid) for model in (streamed, found)]
    extra["difference"] = float(np.abs(scores[0] - scores[1]).max() / scores[0].std())
    extra |= {"members": found.member_names_, "best_score": found.best_score_}
    print(f"largest difference of scores, in standard deviations: {extra['difference']:.1e}; {extra}")
    assert extra["difference"] < 1e-6
    note = f"{2 * _PARTITION * chunks:,} rows x {N_FEATURES} features, sample of {sample:,} rows"
    return report("AutoRanker", seconds, baseline="fit_stream", note=note, extra=extra)


def main() -> None:
    if "--automatic" in sys.argv:
        parser = argparse.ArgumentParser()
        parser.add_argument("--automatic", action="store_true")
        parser.add_argument("--rows", type=int, default=200_000)
        parser.add_argument("--sample", type=int, default=8_000)
        options = parser.parse_args()
        write_results("dask_automatic", automatic(options.rows, options.sample))
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
