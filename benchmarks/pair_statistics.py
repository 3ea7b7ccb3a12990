"""What do the statistics of all margin-violating pairs cost, next to one sort of the predictions?

One query of a million real-valued scores: counts of violating pairs (hinge), counts and sums (gradient of the squared
hinge), and sums of another vector at the same predictions (product with the Hessian), each as a ratio to
``np.argsort`` of the predictions. The order of the scores is computed once and not counted. Each evaluation gets
predictions it has not seen; every product uses the order that the evaluation at its point left behind, unless another
point was evaluated in between ("at an older point"), when it sorts again. Then the same for fewer distinct scores, and
for many queries.

    python benchmarks/pair_statistics.py
"""

from __future__ import annotations

import numpy as np

from _harness import arguments, best_of, report, write_results
from preflearn.comparisons import encode_queries
from preflearn.losses.pairs import ScoredPairs


def evaluate(name: str, y: np.ndarray, qid: np.ndarray | None, repeats: int, limit: float | None) -> dict:
    rng = np.random.default_rng(1)
    p, v = y / y.std() + rng.standard_normal(y.shape[0]), rng.standard_normal(y.shape[0])
    pairs = ScoredPairs(y, encode_queries(qid, y.shape[0]))
    # Predictions alternate between two arrays: one that is sorted already would not be sorted again.
    others = [p.copy(), p.copy()]

    def fresh() -> np.ndarray:
        others.reverse()
        return others[0]

    seconds = best_of(
        {
            "np.argsort": lambda: np.argsort(p),
            "counts": lambda: pairs.counts(fresh()),
            "counts and sums": lambda: pairs.violations(fresh()),
        },
        repeats=repeats,
    )
    at, older = pairs.violations(p), [pairs.violations(others[0]), pairs.violations(others[1])]

    def at_older_point() -> np.ndarray:
        older.reverse()
        return older[0].laplacian(v)

    # One after the other: the points of the two would otherwise take each other's order away.
    seconds |= best_of({"Hessian product": lambda: at.laplacian(v)}, repeats=repeats)
    seconds |= best_of({"Hessian product at an older point": at_older_point}, repeats=repeats)
    limits = {} if limit is None else dict.fromkeys(("counts", "counts and sums", "Hessian product"), limit)
    return report(name, seconds, baseline="np.argsort", limits=limits)


def main() -> None:
    options = arguments(__doc__, repeats=15)
    m = 20_000 if options.quick else 1_000_000
    rng = np.random.default_rng(0)
    y = rng.standard_normal(m)
    levels = rng.integers(0, 5, m).astype(float)
    results = [
        evaluate(f"m = {m}, one query, real-valued scores", y, None, options.repeats, 2.5),
        evaluate(f"m = {m}, one query, five distinct scores", levels, None, options.repeats, None),
        evaluate(f"m = {m}, queries of 100 rows", y, np.arange(m) // 100, options.repeats, None),
    ]
    if not options.quick:
        write_results("pair_statistics", *results)


if __name__ == "__main__":
    main()
