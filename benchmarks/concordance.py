"""How long does `concordance` take on a million rows, measured in sorts of the scores?

    python benchmarks/concordance.py

One million rows in ten thousand queries in random row order: at most 3 times one ``np.argsort`` of the scores. The
other metrics, one global ranking and the peers of scikit-learn and SciPy are measured in the same run.
"""

from __future__ import annotations

import numpy as np
from scipy.stats import kendalltau
from sklearn.metrics import roc_auc_score

from _harness import arguments, best_of, report, write_results
from preflearn.metrics import average_precision, concordance, err, kendall_tau, ndcg


def main() -> None:
    options = arguments(__doc__)
    m, n_queries = (20_000, 200) if options.quick else (1_000_000, 10_000)
    rng = np.random.default_rng(0)
    qid = rng.integers(0, n_queries, m)
    scores = rng.normal(size=m)
    grades = rng.integers(0, 5, m)
    real = rng.normal(size=m)
    weight = rng.uniform(0.1, 2.0, m)

    seconds = best_of(
        {
            "np.argsort(scores)": lambda: np.argsort(scores),
            "concordance, grades 0 to 4": lambda: concordance(grades, scores, qid),
            "concordance, real y": lambda: concordance(real, scores, qid),
            "concordance, weighted rows": lambda: concordance(grades, scores, qid, sample_weight=weight),
            "kendall_tau": lambda: kendall_tau(grades, scores, qid),
            "ndcg, k = 10": lambda: ndcg(grades, scores, qid, k=10),
            "average_precision": lambda: average_precision(grades, scores, qid),
            "err": lambda: err(grades, scores, qid),
        },
        repeats=options.repeats,
    )
    queries = report(
        "The metrics against one sort of the scores",
        seconds,
        baseline="np.argsort(scores)",
        limits=None if options.quick else {"concordance, grades 0 to 4": 3.0, "concordance, real y": 3.0},
        note=f"{m:,} rows in {n_queries:,} queries, random row order",
    )

    binary = real > 0
    seconds = best_of(
        {
            "np.argsort(scores)": lambda: np.argsort(scores),
            "concordance": lambda: concordance(real, scores),
            "concordance, binary y": lambda: concordance(binary, scores),
            "sklearn roc_auc_score": lambda: roc_auc_score(binary, scores),
            "scipy kendalltau": lambda: kendalltau(real, scores),
        },
        repeats=max(1, options.repeats // 2),
    )
    ranking = report("One global ranking", seconds, baseline="np.argsort(scores)", note=f"{m:,} rows")

    if not options.quick:
        write_results("concordance", queries, ranking)


if __name__ == "__main__":
    main()
