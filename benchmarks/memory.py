"""How much memory does a full kernel matrix take, in bytes for each of its m² entries, to train and to hold out?

python benchmarks/memory.py [--rows 2500]

The peak of a fresh process above its inputs. Results: benchmarks/results/memory.json.
"""

from __future__ import annotations

import numpy as np

from _harness import arguments, peak_memory, write_results
from preflearn import RankRLS, RankRLSCV
from preflearn.model_selection import estimate_auc, estimate_concordance

WORK = {
    "RankRLS.fit": lambda X, y, qid: RankRLS(kernel="rbf", gamma=0.1).fit(X, y, qid=qid),
    "RankRLSCV, leave-query-out": lambda X, y, qid: RankRLSCV(kernel="rbf", gamma=0.1).fit(X, y, qid=qid),
    "RankRLSCV, five folds": lambda X, y, qid: RankRLSCV(kernel="rbf", gamma=0.1, cv=5).fit(X, y, qid=qid),
    "estimate_concordance": lambda X, y, qid: estimate_concordance(
        RankRLS(kernel="rbf", gamma=0.1), X, y, qid=qid
    ),
    "estimate_auc, leave-pair-out": lambda X, y, qid: estimate_auc(
        RankRLS(kernel="rbf", gamma=0.1), X, y > 0
    ),
}


def inputs(rows: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(rows, 10))
    return X, X[:, 0] + rng.normal(size=rows), np.repeat(np.arange(rows // 10 + 1), 10)[:rows]


def prepare(name: str, rows: int) -> tuple:
    WORK[name](*inputs(100))  # imports and compiled loops do not count
    return name, *inputs(rows)


def work(name: str, X: np.ndarray, y: np.ndarray, qid: np.ndarray) -> None:
    WORK[name](X, y, qid)


if __name__ == "__main__":
    options = arguments(__doc__, rows=2500)
    rows = 400 if options.quick else options.rows
    found = {name: peak_memory(prepare, work, name, rows) / rows**2 for name in WORK}
    for name, value in found.items():
        print(f"{name:30} {value:6.1f} m² bytes")
    if not options.quick:
        write_results(
            "memory", {"question": "bytes for each entry of the kernel matrix", "rows": rows, **found}
        )
