"""Is AutoRanker first at every size? Generated data of four kinds, from a thousand rows up, peers in the same run.

python benchmarks/sizes.py                                     # 1,000, 10,000 and 60,000 rows, all kinds, one seed
python benchmarks/sizes.py --rows 250000 1000000 --kinds interactions
python benchmarks/sizes.py --rows 12000 --kinds noisy --only AutoRanker "CatBoost, QueryRMSE"
python benchmarks/sizes.py --letor-like 600 10000 --only AutoRanker "LightGBM, 300 trees" --name sizes_letor_like

Seeds below 10 are for development; what is reported begins with 10 (--first-seed).

Trees are treated as `rivals.py` says, with four settings, a fifth of the training queries to validate on, and all rows
for the final training; AutoRanker takes the training rows as they are. Peers that are not installed are left out and
named. Concordance and NDCG@10 are means over 300 test queries (1,000 with --letor-like), with their standard errors;
CPU seconds are given beside wall-clock seconds, since they hardly depend on what else the machine does. Peak memory is
that of the process so far, generated data included.
"""

from __future__ import annotations

import argparse
import resource
import time
import warnings
from collections.abc import Callable
from functools import partial

import numpy as np

from _harness import in_processes, write_results
from preflearn import AutoRanker
from preflearn.metrics import concordance, ndcg
from ranking_sets import Part
from rivals import FOUR, LOSSES, Contestant, Setting, Trained, lightgbm_lambdarank, tuned, with_query_features

_FEATURES = 46
_PER_QUERY = {"noisy": 20}  # about 100 in other kinds
_TEST_QUERIES = 300
_LETOR_LIKE = "LETOR-like"
_SHARES = (0.52, 0.23, 0.15, 0.07, 0.03)  # of grades 0 to 4


# Data


def make(kind: str, n_rows: int, seed: int) -> tuple[Part, Part]:
    """Training and test rows; correlated, partly skewed features with an offset for each query."""
    task, rng = np.random.default_rng(12345), np.random.default_rng(seed)
    per_query = _PER_QUERY.get(kind, 100)
    n_queries = max(10, n_rows // per_query)
    sizes = np.full(n_queries + _TEST_QUERIES, per_query)
    sizes = np.maximum(5, np.round(sizes * np.exp(0.5 * rng.normal(size=sizes.shape[0]) - 0.125))).astype(int)
    qid = np.repeat(np.arange(sizes.shape[0]), sizes)
    load = task.normal(size=(8, _FEATURES)) * (task.random((8, _FEATURES)) < 0.4)
    Z = rng.normal(size=(qid.shape[0], 8)) @ load + 0.8 * rng.normal(size=(qid.shape[0], _FEATURES))
    Z /= np.sqrt((load**2).sum(axis=0) + 0.64)
    f = UTILITIES[kind](Z)
    f = f / f.std() + (1.2 if kind == "noisy" else 0.6) * rng.normal(size=qid.shape[0])
    shares = (0.8, 0.13, 0.07) if kind == "noisy" else _SHARES  # as in MQ2008
    y = np.searchsorted(np.quantile(f, np.cumsum(shares)[:-1]), f).astype(float)
    X = Z + 0.5 * rng.normal(size=(sizes.shape[0], _FEATURES))[qid]
    if kind == "heavy tails":
        X = np.sign(X) * np.expm1(1.5 * np.abs(X))
        X[rng.random(X.shape) < 0.05] = np.nan
    train = qid < n_queries
    return Part(X[train], y[train], qid[train]), Part(X[~train], y[~train], qid[~train])


def letor_like(n_queries: int) -> tuple[Part, Part]:
    """The first queries of 11,000 with 1,100,000 rows in all, and the last 1,000 to test on.

    Sizes of queries are log-normal, every third feature is skewed, and features are scaled to [0, 1] inside their
    query, as LETOR's are.
    """
    n_rows, all_queries, n_train = 1_100_000, 11_000, 10_000
    if not 10 <= n_queries <= n_train:
        raise ValueError(f"--letor-like takes 10 to {n_train:,} training queries: found {n_queries:,}.")
    task, rng = np.random.default_rng(12345), np.random.default_rng(7)
    sizes = _letor_sizes(n_rows, all_queries, rng)
    qid = np.repeat(np.arange(all_queries), sizes)
    load = task.standard_normal((8, _FEATURES)) * (task.random((8, _FEATURES)) < 0.4)
    Z = rng.standard_normal((n_rows, 8)) @ load + 0.8 * rng.standard_normal((n_rows, _FEATURES))
    Z /= np.sqrt((load**2).sum(axis=0) + 0.64)
    skewed = np.arange(_FEATURES) % 3 == 0
    Z[:, skewed] = np.exp(0.7 * Z[:, skewed])
    f = _letor_utility((Z[:, :12] - Z[:, :12].mean(axis=0)) / Z[:, :12].std(axis=0))
    f = f / f.std() + 0.6 * rng.standard_normal(n_rows)
    y = np.searchsorted(np.quantile(f, np.cumsum(_SHARES)[:-1]), f).astype(float)
    X = Z + 0.5 * rng.standard_normal((all_queries, _FEATURES))[qid]
    starts = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    low, high = (one.reduceat(X, starts, axis=0) for one in (np.minimum, np.maximum))
    X = (X - low[qid]) / np.maximum(high - low, 1e-12)[qid]
    train, test = (Part(X[rows], y[rows], qid[rows]) for rows in (qid < n_queries, qid >= n_train))
    return train, test


def _letor_sizes(n_rows: int, n_queries: int, rng: np.random.Generator) -> np.ndarray:
    """Log-normal sizes of 5 and more that sum to the number of rows; the largest queries take up the difference."""
    shares = np.exp(0.6 * rng.standard_normal(n_queries))
    sizes = np.maximum(5, np.floor(shares / shares.sum() * n_rows)).astype(int)
    order, place = np.argsort(-sizes), 0
    while sizes.sum() != n_rows:
        step = 1 if sizes.sum() < n_rows else -1
        if sizes[order[place % n_queries]] + step >= 5:
            sizes[order[place % n_queries]] += step
        place += 1
    return sizes


def _letor_utility(U: np.ndarray) -> np.ndarray:
    return (
        1.2 * np.tanh(1.5 * U[:, 0])
        + 0.9 * U[:, 1] * U[:, 2]
        + 1.0 * np.maximum(U[:, 3], 0)
        - 0.7 * U[:, 4] ** 2
        + 0.8 * np.sin(2 * U[:, 5])
        + 0.6 * U[:, 6]
        + 0.5 * U[:, 7] * (U[:, 8] > 0)
        + 0.4 * np.abs(U[:, 9])
        + 0.3 * U[:, 10]
        - 0.3 * U[:, 11]
    )


def additive(Z: np.ndarray) -> np.ndarray:
    return (
        np.tanh(1.5 * Z[:, 0])
        + np.maximum(Z[:, 1], 0)
        - 0.7 * Z[:, 2] ** 2
        + np.sin(2 * Z[:, 3])
        + 0.6 * Z[:, 4]
    )


def interactions(Z: np.ndarray) -> np.ndarray:
    both = Z[:, 5] * Z[:, 6] + 0.7 * Z[:, 7] * (Z[:, 8] > 0) + 0.5 * np.abs(Z[:, 9] - Z[:, 10])
    return additive(Z) + both


UTILITIES: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "additive": additive,
    "interactions": interactions,
    "heavy tails": interactions,
    "noisy": additive,
}


# Contestants


def _rival(train: Contestant) -> Callable:
    """A contestant of `rivals.py`: a fifth of the training queries validates, and all rows train in the end."""

    def trained(part: Part, _: str) -> Callable[[Part], np.ndarray]:
        validates = np.isin(part.qid, np.unique(part.qid)[::5])
        rest, validation = (Part(part.X[m], part.y[m], part.qid[m]) for m in (~validates, validates))
        return train(rest, validation).predict

    return trained


def _lightgbm_300(part: Part, _: str) -> Callable[[Part], np.ndarray]:
    """300 trees on all rows: what the training time of `AutoRanker` is compared with."""
    setting = Setting(leaves=63, rate=0.1, least=20)

    def train(part: Part, _: Part) -> Trained:
        predict, _ = lightgbm_lambdarank(part, None, setting, 300)
        return Trained(lambda new: predict(new.X), 0.0, 0.0, "300 trees")

    return with_query_features(train)(part, part).predict


def automatic(part: Part, scoring: str, preset: str | None = None) -> Callable[[Part], np.ndarray]:
    model = AutoRanker(random_state=0, scoring=scoring, preset=preset).fit(part.X, part.y, qid=part.qid)
    return lambda test: model.predict(test.X, qid=test.qid)


CONTESTANTS = {
    "AutoRanker": automatic,
    "AutoRanker, fast": partial(automatic, preset="fast"),
    **{name: _rival(tuned(grow, FOUR)) for name, grow in LOSSES.items()},
    **{
        f"{name}, query features": _rival(with_query_features(tuned(grow, FOUR)))
        for name, grow in LOSSES.items()
    },
    "LightGBM, 300 trees": _lightgbm_300,
}


def measure(kind: str, n_rows: int, seed: int, name: str, scoring: str) -> dict:
    """Train and test one contestant; of LETOR-like data ``n_rows`` are queries."""
    train, test = letor_like(n_rows) if kind == _LETOR_LIKE else make(kind, n_rows, seed)
    start, cpu = time.perf_counter(), time.process_time()
    predict = CONTESTANTS[name](train, scoring)
    seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
    start = time.perf_counter()
    scores = predict(test)
    microseconds = 1e6 * (time.perf_counter() - start) / test.y.shape[0]
    found = {
        "concordance": concordance(test.y, scores, test.qid, per_query=True).values,
        "ndcg_at_10": ndcg(test.y, scores, test.qid, k=10, per_query=True).values,
    }
    row = {"kind": kind, "rows": int(train.y.shape[0]), "seed": seed, "contestant": name}
    for measure_name, values in found.items():
        values = values[~np.isnan(values)]
        row[measure_name] = float(values.mean())
        row[f"{measure_name}_error"] = float(values.std(ddof=1) / np.sqrt(values.size))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    return {**row, "seconds": seconds, "cpu_s": cpu, "predict_us_a_row": microseconds, "peak_gib": peak}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, nargs="+", default=[1_000, 10_000, 60_000])
    parser.add_argument(
        "--letor-like", type=int, nargs="+", metavar="QUERIES", help="these data instead, with fixed queries"
    )
    parser.add_argument("--kinds", nargs="+", default=list(UTILITIES), choices=list(UTILITIES))
    parser.add_argument("--only", nargs="+", default=list(CONTESTANTS), choices=list(CONTESTANTS))
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--first-seed", type=int, default=10)
    parser.add_argument("--scoring", default="concordance", help="what AutoRanker chooses by")
    parser.add_argument("--name", default="sizes", help="of the file of results")
    parser.add_argument(
        "--jobs", type=int, default=1, help="processes of one thread each; one uses all threads"
    )
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop what runs after so long")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    for name in options.only:  # compilation and the start of libraries do not count
        try:
            measure("additive", 1_000, 99, name, options.scoring)
        except ImportError:
            print(f"{name} is not installed and left out")
            options.only = [one for one in options.only if one != name]
    print(
        f"{'kind':14} {'rows':>9} seed  {'contestant':23} {'concordance':>15}  {'NDCG@10':>15} {'s':>7} {'CPU s':>7}"
    )
    seeds = range(options.first_seed, options.first_seed + options.seeds)
    if options.letor_like:
        options.rows, options.kinds, seeds = options.letor_like, [_LETOR_LIKE], range(7, 8)
    cells = [
        (kind, n_rows, seed, name, options.scoring)
        for n_rows in options.rows
        for seed in seeds
        for kind in options.kinds
        for name in options.only
    ]
    found = {}
    for cell, row in in_processes(_measure, cells, jobs=options.jobs, seconds=options.seconds):
        found[cell] = row
        print(
            f"{row['kind']:14} {row['rows']:9,} {row['seed']:4}  {row['contestant']:23} "
            f"{row['concordance']:.4f} ± {row['concordance_error']:.4f}  "
            f"{row['ndcg_at_10']:.4f} ± {row['ndcg_at_10_error']:.4f} "
            f"{row['seconds']:7.1f} {row['cpu_s']:7.1f}  {row['predict_us_a_row']:.1f} µs a row  "
            f"{row['peak_gib']:.2f} GiB",
            flush=True,
        )
    write_results(options.name, *(found[cell] for cell in cells if cell in found))


def _measure(cell: tuple[str, int, int, str, str]) -> dict:
    return measure(*cell)


if __name__ == "__main__":
    main()
