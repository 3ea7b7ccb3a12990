"""Greedy selection of 20 of 1000 features from 10,000 rows, against 20 passes over X.

A pass is one product of X with a vector, which reads every number once.

    python benchmarks/greedy_selection.py [--repeats 3] [--quick]
"""

from __future__ import annotations

import numpy as np

from _harness import arguments, best_of, report, write_results
from preflearn import RLS, RankRLS
from preflearn.feature_selection import GreedySelector


def main() -> None:
    options = arguments(__doc__, repeats=3)
    m, n, k = (500, 50, 5) if options.quick else (10_000, 1000, 20)
    rng = np.random.default_rng(0)
    X = rng.normal(size=(m, n))
    y = X[:, :k] @ rng.normal(size=k) + rng.normal(size=m)
    qid = np.repeat(np.arange(m // 20), 20)
    v = rng.normal(size=n)

    def passes() -> None:
        for _ in range(k):
            X @ v

    seconds = best_of(
        {
            f"{k} passes over X": passes,
            "RLS, leave-one-out": lambda: GreedySelector(RLS(), k, cv="leave-one-out").fit(X, y),
            "RankRLS, leave-query-out": lambda: GreedySelector(RankRLS(), k).fit(X, y, qid=qid),
        },
        repeats=options.repeats,
    )
    limits = {"RLS, leave-one-out": 3.0, "RankRLS, leave-query-out": 3.0}
    note = f"{k} of {n} features, {m} rows"
    result = report("Greedy selection", seconds, baseline=f"{k} passes over X", limits=limits, note=note)
    if not options.quick:
        write_results("greedy_selection", result)


if __name__ == "__main__":
    main()
