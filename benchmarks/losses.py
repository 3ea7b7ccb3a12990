"""Which loss should boosted trees be grown on, if NDCG is what counts? LightGBM with three of them, on generated data.

python benchmarks/losses.py                       # 10,000 rows, three kinds, three seeds
python benchmarks/losses.py --rows 60000 --seeds 1

The losses are lambda weights for NDCG (lambdarank), the listwise cross-entropy (rank_xendcg), and squared errors of
grades minus their mean in the query, which trees of AutoRanker are grown on. Everything else is the same: 400 trees of
31 leaves at most, learning rate 0.05, and the number of trees with the best NDCG@10 on a fifth of the queries. Features
are given as they are and standardised inside their query. Results: benchmarks/results/losses.json.
"""

from __future__ import annotations

import argparse

import lightgbm
import numpy as np

from _harness import write_results
from preflearn.metrics import concordance, ndcg
from ranking_sets import Part
from rivals import widened
from sizes import make

KINDS = ("additive", "interactions", "heavy tails")
LOSSES = {
    "lambda weights": "lambdarank",
    "listwise cross-entropy": "rank_xendcg",
    "squared, centred grades": "regression",
}


def train(part: Part, validation: Part, objective: str) -> lightgbm.Booster:
    """400 trees, cut off where NDCG@10 of the validation queries is best."""
    y = part.y
    if objective == "regression":
        means = np.bincount(part.qid, y) / np.maximum(1, np.bincount(part.qid))
        y = y - means[part.qid]
    options = {
        "objective": objective,
        "num_leaves": 31,
        "learning_rate": 0.05,
        "verbosity": -1,
        "seed": 0,
    }
    model = lightgbm.train(options, lightgbm.Dataset(part.X, y, group=part.sizes), 400)
    stages = np.arange(20, 401, 20)
    values = [
        ndcg(validation.y, model.predict(validation.X, num_iteration=n), validation.qid, k=10) for n in stages
    ]
    model.best_iteration = int(stages[int(np.argmax(values))])
    return model


def measure(kind: str, n_rows: int, seed: int) -> list[dict]:
    whole, test = (widened(one) for one in make(kind, n_rows, seed))
    validates = np.isin(whole.qid, np.unique(whole.qid)[::5])
    rest, validation = (Part(whole.X[m], whole.y[m], whole.qid[m]) for m in (~validates, validates))
    rows = []
    for name, objective in LOSSES.items():
        model = train(rest, validation, objective)
        scores = model.predict(test.X, num_iteration=model.best_iteration)
        found = {
            "concordance": concordance(test.y, scores, test.qid),
            "ndcg_at_10": ndcg(test.y, scores, test.qid, k=10),
        }
        rows.append(
            {"kind": kind, "rows": n_rows, "seed": seed, "loss": name, **found, "trees": model.best_iteration}
        )
        print(
            f"{kind:13} {n_rows:8,} {seed:4}  {name:24} {found['concordance']:.4f} {found['ndcg_at_10']:.4f}",
            flush=True,
        )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, nargs="+", default=[10_000])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--first-seed", type=int, default=10)
    options = parser.parse_args()
    seeds = range(options.first_seed, options.first_seed + options.seeds)
    rows = [
        row
        for n_rows in options.rows
        for kind in KINDS
        for seed in seeds
        for row in measure(kind, n_rows, seed)
    ]
    for name in LOSSES:
        some = [(row["concordance"], row["ndcg_at_10"]) for row in rows if row["loss"] == name]
        print(f"{name:24} mean {np.mean(some, axis=0)[0]:.4f} {np.mean(some, axis=0)[1]:.4f}")
    write_results("losses", *rows)


if __name__ == "__main__":
    main()
