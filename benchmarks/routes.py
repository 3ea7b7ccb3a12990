"""Does the table of routes choose well on sparse rows? Three figures.

python benchmarks/routes.py --part queries      leave-query-out over 15 alphas, beside one dsyevd
python benchmarks/routes.py --part preferences  leave-preference-out on text, beside logistic regression
python benchmarks/routes.py --part few          600 preferences among more and more rows: training and searches
"""

from __future__ import annotations

import argparse
import warnings

import numpy as np
import scipy.sparse as sp

from _harness import best_of, report, write_results
from preflearn import BradleyTerryCV, RankRLS, RankRLSCV
from preflearn.kernels.functions import sparse_products
from preflearn.model_selection import HeldOut, leave_preference_out
from preflearn.numerics.linalg import eigh_in_place

PARTS = ("queries", "preferences", "few")


def sparse_rows(m: int, n: int, per_row: int, *, text: bool = False, seed: int = 0) -> sp.csr_array:
    """Random rows; with ``text`` columns are as unevenly frequent as words, and rows have unit length."""
    rng = np.random.default_rng(seed)
    columns = (rng.zipf(1.25, size=m * per_row) - 1) % n if text else rng.integers(n, size=m * per_row)
    values = np.ones(m * per_row) if text else rng.random(m * per_row)
    X = sp.csr_array((values, (np.repeat(np.arange(m), per_row), columns)), shape=(m, n))
    X.sum_duplicates()
    if text:
        X = sp.csr_array(X.multiply(np.log(m / (1.0 + np.bincount(X.indices, minlength=n)))[None, :] + 1.0))
        X = sp.csr_array(sp.diags_array(1.0 / np.sqrt(X.multiply(X).sum(axis=1))) @ X)
    return X


def ranking(X, n_queries: int, seed: int = 1):
    rng = np.random.default_rng(seed)
    m, n = X.shape
    qid = np.sort(np.arange(m) % n_queries)
    return X @ rng.normal(size=n) + 0.1 * rng.normal(size=m), qid


def queries(m: int, repeats: int) -> dict:
    X = sparse_rows(m, 15 * m, 40)
    y, qid = ranking(X, m // 20)
    alphas = np.logspace(-3, 3, 15)
    K = np.asfortranarray(sparse_products(X))
    _compile()
    name = f"dsyevd({m})"
    seconds = best_of(
        {
            name: lambda: eigh_in_place(K.copy(order="F")),
            "RankRLSCV": lambda: RankRLSCV(alphas).fit(X, y, qid=qid),
        },
        repeats=repeats,
        warm_up=False,
    )
    note = f"{m} × {15 * m}, 40 values a row, queries of 20"
    question = "leave-query-out over 15 alphas on sparse rows"
    return report(question, seconds, baseline=name, limits={"RankRLSCV": 1.5}, note=note)


def preferences(n_pairs: int, repeats: int) -> list[dict]:
    from sklearn.linear_model import LogisticRegression

    rng = np.random.default_rng(0)
    results = []
    _compile()
    for name, text in (("tf-idf rows of unit length", True), ("counts", False)):
        X = sparse_rows(2 * n_pairs, 50_000, 120, text=text)
        if not text:
            X.data = np.ceil(3 * X.data)
        s = X @ rng.normal(size=X.shape[1])
        pairs = rng.permutation(2 * n_pairs).reshape(n_pairs, 2)
        pairs = np.where((s[pairs[:, 0]] > s[pairs[:, 1]])[:, None], pairs, pairs[:, ::-1])
        sign = np.where(rng.random(n_pairs) < 0.5, 1.0, -1.0)
        D = sp.csr_array((X[pairs[:, 0]] - X[pairs[:, 1]]).multiply(sign[:, None]))
        alphas = np.logspace(-2, 3, 15)
        seconds = best_of(
            {
                "LogisticRegression": lambda: LogisticRegression(max_iter=10_000).fit(D, sign),  # noqa: B023
                "leave_preference_out": lambda: leave_preference_out(RankRLS(), X, pairs),  # noqa: B023
                "15 alphas": lambda: HeldOut.of_pairs(RankRLS(), X, pairs).preferences(alphas=alphas),  # noqa: B023
            },
            repeats=repeats,
        )
        results.append(
            report(
                f"held-out preferences on sparse text, {name}",
                seconds,
                baseline="LogisticRegression",
                limits={"leave_preference_out": 3.0, "15 alphas": 6.0},
                note=f"{n_pairs} pairs, 50000 features, 120 words a row",
            )
        )
    return results


def few(n_pairs: int, repeats: int) -> list[dict]:
    """Rows that no preference names should cost next to nothing: beside training on the compared rows alone."""
    every = sparse_rows(50 * n_pairs, 30_000, 100, text=True)
    pairs = np.arange(2 * n_pairs).reshape(n_pairs, 2)
    alphas = np.logspace(-2, 2, 5)
    _compile()
    results = []
    for name, fit in (
        ("RankRLS.fit_pairs", lambda X: RankRLS().fit_pairs(X, pairs)),
        ("RankRLSCV.fit_pairs", lambda X: RankRLSCV(alphas).fit_pairs(X, pairs)),
        ("BradleyTerryCV.fit_pairs", lambda X: BradleyTerryCV(alphas).fit_pairs(X, pairs)),
    ):
        sizes = (2 * n_pairs, 5 * n_pairs, 50 * n_pairs)
        seconds = best_of(
            {f"{m} rows": lambda m=m, fit=fit: fit(every[:m]) for m in sizes}, repeats=repeats, warm_up=False
        )
        baseline = f"{sizes[0]} rows"
        results.append(report(f"{name}, {n_pairs} preferences of sparse text", seconds, baseline=baseline))
    return results


def _compile() -> None:
    X = sparse_rows(600, 900, 10)
    y, qid = ranking(X, 30)
    for solver in ("dual", "cg"):
        RankRLSCV([0.1, 1.0], cv=5, solver=solver).fit(X, y, qid=qid)
    RankRLSCV([0.1, 1.0]).fit(X, y, qid=qid)
    HeldOut.of_pairs(RankRLS(), X, np.arange(600).reshape(300, 2)).preferences(alphas=[0.1, 1.0])


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--part", choices=PARTS, action="append")
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--quick", action="store_true", help="small sizes, nothing written")
    options = parser.parse_args()
    warnings.simplefilter("ignore", UserWarning)
    quick = options.quick
    parts = {
        "queries": lambda: [queries(400 if quick else 4000, options.repeats)],
        "preferences": lambda: preferences(200 if quick else 2500, options.repeats),
        "few": lambda: few(60 if quick else 600, options.repeats),
    }
    for name in options.part or PARTS:
        results = parts[name]()
        if not quick:
            write_results(f"routes_{name}", *results)


if __name__ == "__main__":
    main()
