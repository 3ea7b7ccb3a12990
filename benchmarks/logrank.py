"""How often does the log-rank test of thirds by held-out score find something in noise?

Patients whose features say nothing about their times, two fifths of these censored. `RankRLS` in ten folds, thirds of
each fold by its predictions (`SurvivalDisplay`): the share of ``--sets`` data sets with p ≤ 0.05. A valid test has .05.

    python benchmarks/logrank.py [--quick] [--sets 500]
"""

from __future__ import annotations

import numpy as np

from _harness import arguments, write_results
from preflearn import RankRLS
from preflearn.model_selection import cross_val_predict
from preflearn.report import SurvivalDisplay


def level(n: int, n_features: int, n_sets: int) -> float:
    found = 0
    for seed in range(n_sets):
        rng = np.random.default_rng([n, n_features, seed])
        X, lived, left = (
            rng.normal(size=(n, n_features)),
            rng.exponential(size=n),
            1.5 * rng.exponential(size=n),
        )
        times, died, fold = np.minimum(lived, left), lived <= left, rng.permutation(n) % 10
        cv = [np.flatnonzero(fold == k) for k in range(10)]
        scores = cross_val_predict(RankRLS(), X, times, event=died, cv=cv)
        found += SurvivalDisplay.of_predictions(times, scores, fold, event=died).pvalue <= 0.05
    return found / n_sets


def main() -> None:
    options = arguments(__doc__, sets=500)
    sizes = ((60, 5),) if options.quick else ((60, 5), (200, 5), (100, 50))
    n_sets = 10 if options.quick else options.sets
    results = []
    for n, n_features in sizes:
        share = level(n, n_features, n_sets)
        print(f"{n} patients, {n_features} features: p <= .05 in {share:.3f} of {n_sets} sets", flush=True)
        question = f"level of the log-rank test, {n} patients, {n_features} features"
        results.append({"question": question, "data_sets": n_sets, "level": share})
    if not options.quick:
        write_results("logrank", *results)


if __name__ == "__main__":
    main()
