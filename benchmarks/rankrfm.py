"""What does learning the metric cost? One round of RankRFM beside one RankRLSCV, and one prediction.

python benchmarks/rankrfm.py           # 12,000 rows, 46 features, 1,000 basis vectors
python benchmarks/rankrfm.py --small
python benchmarks/rankrfm.py --rounds --data FOLDER    # where does a learned metric help? Data sets as in peers.py
python benchmarks/rankrfm.py --large   # a million rows with RankRFM, 60,000 with AutoRanker: seconds and memory

A round of RankRFM trains every fold with a metric of its own, which RankRLSCV with one kernel need not: five folds and
all rows are six trainings, where the shared kernel needs one and a solution for each fold.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np
from sklearn.preprocessing import StandardScaler

from _harness import best_of, peak_memory, report, write_results
from preflearn import AutoRanker, RankRFM, RankRLSCV
from preflearn.comparisons import compare_scores, encode_queries
from preflearn.kernels.functions import Kernel
from preflearn.squared.expansion import TrainingSet


def data(n_rows: int, n_features: int = 46) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X, qid = rng.normal(size=(n_rows, n_features)), np.arange(n_rows) // 50
    return X, np.round(np.sin(X[:, 0]) + X[:, 1] ** 2 + rng.normal(size=n_rows)), qid


def run(n_rows: int, n_basis: int, repeats: int) -> list[dict]:
    X, y, qid = data(n_rows)
    basis = np.sort(np.random.default_rng(0).choice(n_rows, n_basis, replace=False))
    kernel = Kernel("rbf", 0.01)
    task = compare_scores(
        y[:, None], encode_queries(qid, n_rows), cost="magnitude", ties="include", weighting="item"
    )
    training = TrainingSet(np.arange(n_rows), basis, task)
    options = {"kernel": "rbf", "gamma": 0.01, "basis": basis, "weighting": "item", "cv": 5}
    found = best_of(
        {
            "RankRLSCV, 5 folds": lambda: RankRLSCV(**options).fit(X, y, qid=qid),
            "one training": lambda: training.train(X, kernel),
            "one training and its gradients": lambda: training.update_metric(
                X, training.train(X, kernel), 1.0, full=False
            ),
            "RankRFM, one round of 5 folds": lambda: RankRFM(
                kernel="rbf", gamma=0.01, basis=basis, cv=5, max_rounds=0
            ).fit(X, y, qid=qid),
        },
        repeats=repeats,
    )
    results = [
        report("gradients beside a training", {k: found[k] for k in list(found)[1:3]}, baseline="one training",
               limits={"one training and its gradients": 1.6}),
        report("a round with a metric for every fold", {k: found[k] for k in (list(found)[0], list(found)[3])},
               baseline="RankRLSCV, 5 folds", limits={"RankRFM, one round of 5 folds": 1.6}),
    ]  # fmt: skip
    return results


def prediction(n_basis: int) -> dict:
    X, y, qid = data(4 * n_basis)
    model = RankRFM([1.0], n_basis=n_basis, max_rounds=1, cv=2, random_state=0).fit(X, y, qid=qid)
    model.predict(X)
    start = time.perf_counter()
    model.predict(X)
    microseconds = 1e6 * (time.perf_counter() - start) / X.shape[0]
    print(f"prediction with {n_basis} basis vectors: {microseconds:.1f} µs a row (limit 20)")
    return {"question": "prediction", "n_basis": n_basis, "microseconds_a_row": microseconds}


def _large_data(name: str, n_rows: int) -> tuple:
    """Also a training on few rows, which compiles."""
    X, y, qid = data(n_rows)
    few = slice(2000)
    _train_large(name, X[few], y[few], qid[few])
    return name, X, y, qid // 2


def _train_large(name: str, X: np.ndarray, y: np.ndarray, qid: np.ndarray) -> None:
    model = AutoRanker(random_state=0) if name == "AutoRanker" else RankRFM(n_basis=2000, random_state=0)
    start = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the edge of the grid of alphas; fewer rows than basis vectors
        model.fit(X, y, qid=qid)
    Path(os.environ["SECONDS_FILE"]).write_text(str(time.perf_counter() - start))


def large(name: str, n_rows: int, most_seconds: float, most_gb: float) -> dict:
    """Seconds, and the memory beside X, of a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        os.environ["SECONDS_FILE"] = str(Path(folder) / "seconds")
        beside = peak_memory(_large_data, _train_large, name, n_rows) / 1e9
        seconds = float(Path(os.environ["SECONDS_FILE"]).read_text())
    print(
        f"{name} on {n_rows:,} rows × 46, queries of 100: {seconds:.0f} s (limit {most_seconds:.0f}), "
        f"{beside:.2f} GB beside X (limit {most_gb})",
        flush=True,
    )
    limits = {"seconds": most_seconds, "GB_beside_X": most_gb}
    return {
        "question": f"{name} on {n_rows} rows",
        "seconds": seconds,
        "GB_beside_X": beside,
        "limits": limits,
    }


def rounds(folder: Path | None) -> list[dict]:
    """Held-out concordance of every round, on the training and validation part of the first fold of each set."""
    from ranking_sets import DATA

    found = []
    for name in ("generated", *(("lightgbm", "mslr10k", "ohsumed") if folder else ())):
        train, validation, _ = DATA[name][0](folder, 0)
        both = train + validation
        X = StandardScaler().fit_transform(both.X)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the edge of the grid of alphas
            model = RankRFM(n_basis=600, max_rounds=3, random_state=0).fit(X, both.y, qid=both.qid)
        scores = [float(one.score) for one in model.rounds_]
        print(f"{name:12}" + "".join(f"{score:9.4f}" for score in scores), flush=True)
        found.append({"question": f"held-out concordance of each round on {name}", "scores": scores})
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--rounds", action="store_true")
    parser.add_argument("--large", action="store_true")
    parser.add_argument("--data", type=Path, help="the folder that holds letor_ohsumed_v2 and the others")
    options = parser.parse_args()
    if options.rounds:
        write_results("rankrfm_rounds", *rounds(options.data))
    elif options.large:
        write_results(
            "rankrfm_large",
            large("AutoRanker", 60_000, 300.0, 1.5),
            large("RankRFM", 1_000_000, 300.0, 2.0),
        )
    elif options.small:
        run(3000, 300, 2)
        prediction(300)
    else:
        write_results("rankrfm", *run(12_000, 1000, 3), prediction(2000))
