"""What does exact cross-validation cost next to one eigen decomposition, one product, or refitting?

python benchmarks/holdout.py
python benchmarks/holdout.py --only pairs
"""

from __future__ import annotations

import time

import numpy as np
import scipy.linalg as la
from sklearn.metrics.pairwise import rbf_kernel

from _harness import best_of, peak_memory, report, run_questions
from preflearn import RankRLS, RankRLSCV
from preflearn.model_selection import (
    HeldOut,
    cross_val_predict,
    estimate_concordance,
    leave_pair_out_tally,
    permutation_test,
)
from preflearn.model_selection._folds import read_folds
from preflearn.squared.holdout.pair import dual_pair_system


def random_data(m: int, n: int, n_queries: int):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(m, n))
    return X, X @ rng.normal(size=n) + rng.normal(size=m), np.arange(m) % n_queries


def dsyevd(K: np.ndarray) -> None:
    la.lapack.dsyevd(K.copy().T, lower=1, overwrite_a=1)


def pairs(repeats: int) -> list[dict]:
    results = []
    for m, limit in ((2000, 2.0), (4000, 1.2)):
        X, y, _ = random_data(m, 20, 1)
        K = rbf_kernel(X)
        seconds = best_of(
            {
                "leave-pair-out": lambda X=X, y=y: leave_pair_out_tally(RankRLS(kernel="rbf"), X, y),
                "dsyevd": lambda K=K: dsyevd(K),
            },
            repeats=repeats if m == 2000 else max(1, repeats // 2),
        )
        results.append(
            report(
                f"leave-pair-out over all {m * (m - 1) // 2:,} pairs, m = {m}, RBF, training included",
                seconds,
                baseline="dsyevd",
                limits={"leave-pair-out": limit},
            )
        )
    return results


def pairs_over_alphas(repeats: int) -> list[dict]:
    """The limit is two decompositions and, for each alpha, what the pairs cost when the matrices are there."""
    m, alphas = 2000, 2.0 ** np.arange(-7, 8)
    X, y, _ = random_data(m, 20, 1)
    K = rbf_kernel(X)
    problem = HeldOut(RankRLS(kernel="rbf"), X, y).problem
    system = dual_pair_system(K.copy(), problem.tasks[0], 1.0)  # with the matrix R itself
    seconds = best_of(
        {
            "RankRLSCV": lambda: RankRLSCV(alphas, kernel="rbf", cv="leave-pair-out").fit(X, y),
            "dsyevd": lambda: dsyevd(K),
            "pairs alone": lambda: system.counts(y, 1e-10, problem.twins),
        },
        repeats=max(1, repeats // 2),
    )
    seconds["2 dsyevd + 15 pairs"] = 2 * seconds["dsyevd"] + len(alphas) * seconds["pairs alone"]
    return [
        report(
            f"leave-pair-out over {len(alphas)} alphas, m = {m}, RBF, training included",
            seconds,
            baseline="2 dsyevd + 15 pairs",
            limits={"RankRLSCV": 1.0},
        )
    ]


def estimate(repeats: int) -> list[dict]:
    m = 2000
    X, y, _ = random_data(m, 20, 1)
    K = rbf_kernel(X)
    seconds = best_of(
        {
            "estimate_concordance": lambda: estimate_concordance(RankRLS(kernel="rbf"), X, y, random_state=0),
            "dsyevd": lambda: dsyevd(K),
        },
        repeats=repeats,
    )
    return [
        report(
            "leave-pair-out estimate with its interval and the pooled number beside it, m = 2000, RBF",
            seconds,
            baseline="dsyevd",
            limits={"estimate_concordance": 1.0},
        )
    ]


def prepare_queries(m: int, n: int, n_queries: int):
    X, y, qid = random_data(m, n, n_queries)
    choose_alpha(X[:60], y[:60], qid[:60] % 3)
    return X, y, qid


def choose_alpha(X, y, qid):
    RankRLSCV(2.0 ** np.arange(-7, 8), kernel="rbf").fit(X, y, qid=qid)


def queries(repeats: int) -> list[dict]:
    m, n, n_queries, alphas = 5000, 50, 250, 2.0 ** np.arange(-7, 8)
    X, y, qid = random_data(m, n, n_queries)
    K = rbf_kernel(X)
    seconds = best_of(
        {"RankRLSCV": lambda: choose_alpha(X, y, qid), "dsyevd": lambda: dsyevd(K)},
        repeats=max(1, repeats // 2),
    )
    kernel = report(
        "leave-query-out over 15 alphas, m = 5000 in 250 queries, RBF",
        seconds,
        baseline="dsyevd",
        limits={"RankRLSCV": 1.4},
    )
    arrays = peak_memory(prepare_queries, choose_alpha, m, n, n_queries) / (8 * m * m)
    print(f"  peak memory: {arrays:.2f} m × m arrays (at most 3)")

    def linear():
        HeldOut(RankRLS(), X, y, qid=qid).predict("leave-query-out", alphas)

    seconds = best_of({"held-out scores": linear, "X.T @ X": lambda: X.T @ X}, repeats=10 * repeats)
    narrow = report(
        "leave-query-out over 15 alphas, m = 5000 in 250 queries, linear with 50 features",
        seconds,
        baseline="X.T @ X",
        limits={"held-out scores": 20.0},
    )
    return [kernel | {"peak_square_arrays": arrays}, narrow]


def groups(repeats: int) -> list[dict]:
    """Refitting is timed on a few folds and multiplied out."""
    m, r, n_groups = 10_000, 2300, 500
    X, y, group = random_data(m, 50, n_groups)
    model = RankRLS(kernel="rbf", basis=np.arange(r))
    results = []
    for name, cv, limit in (
        (f"leave-group-out, {n_groups} groups", "leave-query-out", 1 / 25),
        ("ten-fold", 10, 1 / 2.5),
    ):
        folds = read_folds(cv, X, y, m, qid=group)
        start = time.perf_counter()
        cross_val_predict(model, X, y, qid=group, cv=cv)
        ours = time.perf_counter() - start
        start = time.perf_counter()
        for test in folds.tests[:2]:
            rest = np.setdiff1d(np.arange(m), test)
            kept = np.flatnonzero(np.isin(rest, np.arange(r)))
            RankRLS(kernel="rbf", basis=kept).fit(X[rest], y[rest], qid=group[rest]).predict(X[test])
        refitting = (time.perf_counter() - start) / 2 * len(folds.tests)
        results.append(
            report(
                f"reduced set, m = 10,000, r = {r}: {name}",
                {"by algebra": ours, "refitting every fold": refitting},
                baseline="refitting every fold",
                limits={"by algebra": limit},
            )
        )
    return results


def permutations(repeats: int) -> list[dict]:
    m = 1000
    X, y, _ = random_data(m, 20, 1)
    model = RankRLS(kernel="rbf")
    seconds = best_of(
        {
            "1000 permutations": lambda: permutation_test(model, X, y, random_state=0),
            "one training": lambda: model.fit(X, y),
        },
        repeats=repeats,
    )
    return [
        report(
            "permutation test, m = 1000, RBF",
            seconds,
            baseline="one training",
            limits={"1000 permutations": 5.0},
        )
    ]


QUESTIONS = {
    "pairs": pairs,
    "pairs-over-alphas": pairs_over_alphas,
    "estimate": estimate,
    "queries": queries,
    "groups": groups,
    "permutations": permutations,
}

if __name__ == "__main__":
    run_questions("holdout", __doc__, QUESTIONS, repeats=4)
