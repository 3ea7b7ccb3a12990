"""Is the figure that AutoRanker reports honest? Many small data sets, with and without anything to learn.

python benchmarks/automatic_coverage.py                # 40 sets of each kind
python benchmarks/automatic_coverage.py --sets 10

For every set the reported held-out concordance, and its 95 % interval over queries, are compared with the concordance
of many new queries.
"""

from __future__ import annotations

import argparse
import warnings

import numpy as np

from _harness import write_results
from preflearn import AutoRanker
from preflearn.metrics import concordance
from preflearn.model_selection.intervals import mean_interval


def one(seed: int, signal: float) -> tuple[float, float, float, float]:
    """The reported figure, the ends of its 95 % interval over queries, and the concordance of new queries."""
    rng = np.random.default_rng(seed)
    X, qid = rng.normal(size=(200, 10)), np.repeat(np.arange(20), 10)
    new, new_qid = rng.normal(size=(4000, 10)), np.repeat(np.arange(400), 10)

    def targets(rows: np.ndarray) -> np.ndarray:
        return signal * (np.sin(2 * rows[:, 0]) + (rows[:, 1] > 0)) + rng.normal(size=len(rows))

    y = targets(X)
    model = AutoRanker(random_state=seed).fit(X, y, qid=qid)
    by_query = concordance(y, model.cv_predictions_, qid, per_query=True).values
    low, high = mean_interval(by_query)[1]
    return model.best_score_, low, high, concordance(targets(new), model.predict(new, qid=new_qid), new_qid)


def run(n_sets: int, signal: float) -> dict:
    found = np.array([one(seed, signal) for seed in range(n_sets)])
    reported, low, high, true = found.T
    error = (reported - true).std(ddof=1) / np.sqrt(n_sets)
    covered = float(np.mean((low <= true) & (true <= high)))
    print(
        f"signal {signal:g}: reported {reported.mean():.4f}, new queries {true.mean():.4f}, "
        f"difference {np.mean(reported - true):+.4f} ± {error:.4f}, interval covers {covered:.0%} of {n_sets} sets",
        flush=True,
    )
    return {
        "question": f"reported and true concordance, signal {signal:g}",
        "reported": reported.mean(),
        "new_queries": true.mean(),
        "difference": float(np.mean(reported - true)),
        "standard_error": float(error),
        "covered": covered,
        "sets": n_sets,
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sets", type=int, default=40)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    write_results("automatic_coverage", *(run(options.sets, signal) for signal in (0.0, 0.5)))
