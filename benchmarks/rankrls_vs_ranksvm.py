"""RankRLS or RankSVM: which ranks better, and which is faster?

Linear learners on learning-to-rank data (training, validation and test parts) and on generated data. Features are
scaled to 0..1 inside each query, all queries have equal weight, alpha is chosen by the concordance on the validation
part. Printed: concordance and NDCG@10 on the test part, averaged over folds, and seconds of one training at the
chosen alpha.

    python benchmarks/rankrls_vs_ranksvm.py --data FOLDER    # holds letor_ohsumed_v2, letor_mq2007, mslr_sample

FOLDER defaults to $PREFLEARN_DATA; data sets that are not there are left out, the generated ones need no folder.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from sklearn.base import clone

from _harness import best_of, write_results
from preflearn import RankRLS, RankSVM
from preflearn.io import read_ranking
from preflearn.metrics import concordance, ndcg

Part = tuple[np.ndarray, np.ndarray, np.ndarray]

ALPHAS = np.logspace(-4, 3, 8)
LEARNERS = {
    "RankRLS": lambda alpha: RankRLS(alpha, weighting="query"),
    "RankRLS, unit cost": lambda alpha: RankRLS(alpha, cost="unit", weighting="query"),
    "RankSVM, squared hinge": lambda alpha: RankSVM(alpha, weighting="query"),
    "RankSVM, hinge": lambda alpha: RankSVM(alpha, loss="hinge", weighting="query", tol=1e-3),
}


def scaled_in_queries(X: np.ndarray, qid: np.ndarray) -> np.ndarray:
    """Each feature to 0..1 inside each query; constant ones to 0."""
    X = X.astype(float)
    for query in np.unique(qid):
        rows = qid == query
        low, high = X[rows].min(axis=0), X[rows].max(axis=0)
        X[rows] = (X[rows] - low) / np.where(high > low, high - low, 1.0)
    return X


def read(paths: list[Path]) -> Part:
    data = read_ranking(paths, sparse=False)
    return scaled_in_queries(data.X, data.qid), data.y, data.qid


def rotations(folder: Path, pattern: str, n_folds: int) -> Iterator[tuple[Part, Part, Part]]:
    """The official folds: three parts for training, one for validation, one for testing."""
    parts = [folder / pattern.format(k) for k in range(1, 6)]
    for fold in range(n_folds):
        turned = parts[fold:] + parts[:fold]
        yield read(turned[:3]), read(turned[3:4]), read(turned[4:])


def generated(noise: str, seed: int) -> tuple[Part, Part, Part]:
    """Real-valued scores in 100 queries, linear in 20 features up to noise."""
    rng = np.random.default_rng(seed)
    weights = rng.standard_normal(20)

    def part(n_queries: int) -> Part:
        qid = np.repeat(np.arange(n_queries), 100)
        X = rng.standard_normal((qid.shape[0], 20))
        error = rng.standard_cauchy(qid.shape[0]) if noise == "heavy" else rng.standard_normal(qid.shape[0])
        return X, X @ weights + 3.0 * error, qid

    return part(100), part(30), part(100)


def data_sets(folder: Path | None, n_folds: int) -> dict[str, list[tuple[Part, Part, Part]]]:
    found = {
        "generated, Gaussian noise": [generated("gaussian", seed) for seed in range(n_folds)],
        "generated, Cauchy noise": [generated("heavy", seed) for seed in range(n_folds)],
    }
    if folder is None:
        return found
    if (folder / "letor_ohsumed_v2").is_dir():
        found["OHSUMED (LETOR 2)"] = list(rotations(folder / "letor_ohsumed_v2", "S{}.txt.xz", n_folds))
    if (folder / "letor_mq2007").is_dir():
        found["MQ2007 (85 % of its rows)"] = list(
            rotations(folder / "letor_mq2007", "partial46_S{}.txt.xz", n_folds)
        )
    if (folder / "mslr_sample").is_dir():
        names = [
            folder / "mslr_sample" / f"web30k_fold1_{part}_sample.txt.xz"
            for part in ("train", "vali", "test")
        ]
        found["MSLR-WEB30K (a sample)"] = [tuple(read([name]) for name in names)]
    return found


def evaluate(make, parts: tuple[Part, Part, Part]) -> tuple[float, float, float]:
    (X, y, qid), (X_valid, y_valid, qid_valid), (X_test, y_test, qid_test) = parts
    best, chosen = -np.inf, None
    for alpha in ALPHAS:
        model = make(float(alpha)).fit(X, y, qid=qid)
        score = concordance(y_valid, model.predict(X_valid), qid_valid)
        if score > best:
            best, chosen = score, model
    model = chosen
    seconds = best_of({"fit": lambda: clone(model).fit(X, y, qid=qid)}, repeats=5, warm_up=False)["fit"]
    predictions = model.predict(X_test)
    gain = "exponential" if np.all(y_test == np.round(y_test)) and y_test.min() >= 0 else None
    quality = ndcg(y_test, predictions, qid_test, k=10) if gain else np.nan
    return concordance(y_test, predictions, qid_test), quality, seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=os.environ.get("PREFLEARN_DATA"))
    parser.add_argument("--folds", type=int, default=5)
    options = parser.parse_args()
    for make in LEARNERS.values():  # compilation is not training
        make(1.0).fit(np.eye(4), np.arange(4.0))
    results = []
    for name, folds in data_sets(Path(options.data) if options.data else None, options.folds).items():
        rows, queries = folds[0][0][1].shape[0], len(np.unique(folds[0][0][2]))
        print(f"\n{name}: {rows} training rows, {queries} queries, {folds[0][0][0].shape[1]} features")
        print(f"{'':<24}{'concordance':>12}{'NDCG@10':>10}{'seconds':>10}")
        for learner, make in LEARNERS.items():
            values = np.array([evaluate(make, parts) for parts in folds])
            means = values.mean(axis=0)
            print(f"{learner:<24}{means[0]:>12.4f}{means[1]:>10.4f}{values[:, 2].min():>10.3f}")
            results.append(
                {
                    "data": name,
                    "learner": learner,
                    "concordance": means[0],
                    "concordance_of_folds": values[:, 0].tolist(),
                    "ndcg@10": None if np.isnan(means[1]) else means[1],
                    "seconds": values[:, 2].min(),
                }
            )
    write_results("rankrls_vs_ranksvm", *results)


if __name__ == "__main__":
    main()
