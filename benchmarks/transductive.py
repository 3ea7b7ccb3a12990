"""What does transduction cost, against one eigen decomposition of the same size?

    python benchmarks/transductive.py [--quick]

Three questions: a given alpha with the full kernel, m = 2000 rows in 100 queries (at most 3 times one ``dsyevd`` of
that size); a grid of alphas and fidelities against as many single fits; and the growth with m for a reduced set.
"""

from __future__ import annotations

import numpy as np

from _harness import arguments, best_of, report, write_results
from preflearn.learners.rankrls import RankRLS
from preflearn.learners.transductive import TransductiveRankRLS
from preflearn.numerics.linalg import eigh_in_place


def problem(m: int, n_queries: int, unscored: float = 0.5, n: int = 20):
    random = np.random.default_rng(0)
    X, qid = random.normal(size=(m, n)), np.arange(m) % n_queries
    y = np.sin(X[:, 0]) + X[:, 1] * X[:, 2] + random.normal(size=n_queries)[qid]
    return X, np.where(qid < unscored * n_queries, np.nan, y), qid


def full_kernel(m: int, n_queries: int, repeats: int, unscored: float):
    X, y, qid = problem(m, n_queries, unscored)
    half = np.random.default_rng(0).normal(size=(m, m))
    G = half @ half.T / m
    known = ~np.isnan(y)
    seconds = best_of(
        {
            "dsyevd": lambda: eigh_in_place(np.array(G, order="F")),
            "RankRLS on the scored rows": lambda: RankRLS(kernel="rbf").fit(
                X[known], y[known], qid=qid[known]
            ),
            "TransductiveRankRLS": lambda: TransductiveRankRLS(kernel="rbf").fit(X, y, qid=qid),
        },
        repeats=repeats,
    )
    return report(
        f"transduction at one alpha, m = {m} in {n_queries} queries",
        seconds,
        baseline="dsyevd",
        limits={"TransductiveRankRLS": 3.0},
        note=f"rbf, {unscored:.0%} of the queries without scores",
    )


def grid(m: int, n_queries: int, repeats: int):
    X, y, qid = problem(m, n_queries)
    alphas, fidelities, hide = np.logspace(-3, 3, 7), [0.1, 1.0, 10.0], 5
    model = TransductiveRankRLS(kernel="rbf")
    seconds = best_of(
        {
            "one fit": lambda: model.fit(X, y, qid=qid),
            "grid": lambda: model.select(X, y, qid=qid, alphas=alphas, fidelities=fidelities, hide=hide),
        },
        repeats=repeats,
    )
    n_fits = len(alphas) * len(fidelities) * hide
    return report(
        "selection of alpha and fidelity",
        {
            f"{n_fits} single fits": n_fits * seconds["one fit"],
            "select": seconds["grid"],
            "one fit": seconds["one fit"],
        },
        baseline=f"{n_fits} single fits",
        note=f"m = {m}, 7 alphas × 3 fidelities × {hide} hidden folds; the single fits are one fit times {n_fits}",
    )


def reduced_set(sizes: list[int], n_basis: int, repeats: int):
    seconds = {}
    for m in sizes:
        X, y, qid = problem(m, m // 20)
        model = TransductiveRankRLS(kernel="rbf", n_basis=n_basis, random_state=0)
        seconds[f"m = {m}"] = best_of(
            {"fit": lambda m=model, d=(X, y, qid): m.fit(d[0], d[1], qid=d[2])}, repeats=repeats
        )["fit"]
    return report(
        "reduced set, growth with m",
        seconds,
        baseline=f"m = {sizes[0]}",
        note=f"r = {n_basis}, queries of 20 rows",
    )


def main() -> None:
    options = arguments(__doc__, repeats=3)
    if options.quick:
        full_kernel(300, 15, 1, 0.5)
        grid(200, 10, 1)
        reduced_set([500, 1000], 50, 1)
        return
    results = [full_kernel(2000, 100, options.repeats, unscored) for unscored in (0.1, 0.5, 0.9)]
    results += [grid(1000, 50, 1), reduced_set([5000, 10000, 20000], 300, 2)]
    write_results("transductive", *results)


if __name__ == "__main__":
    main()
