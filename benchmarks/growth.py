"""How does the time of each call grow with the size of its data?

Every public learner, search, estimate and hold-out is timed while one size at a time is doubled: rows, features, rows
of a query, basis vectors, items, answers, stored values or alphas. The exponent that fits the largest sizes stands
beside the documented one; a call that grows faster by more than 0.3 is a defect.

    python growth.py
    python growth.py --only linear         # cases whose name contains this
    python growth.py --smoke               # small sizes: does every case run?
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from _harness import write_results

# Beyond its documented exponent.
TOLERANCE = 0.3
# Times below this many seconds are those of Python, not of the method.
_LEAST_SECONDS = 0.02


@dataclass(frozen=True)
class Case:
    """One call: what prepares it for given sizes, the smallest sizes, and the exponent documented for each."""

    prepare: Callable[..., Callable[[], Any]]  # takes the sizes as keywords; returns the call to be timed
    sizes: dict[str, int]
    exponents: dict[str, float]  # of the sizes that are doubled
    doublings: int = 3


def table(rows: int, features: int, query: int, seed: int = 0):
    """Features, grades 0 to 4 and queries."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(rows, features))
    y = np.clip(np.round(X[:, :5].sum(axis=1) + 2 * rng.normal(size=rows)), -2, 2) + 2
    return X, y, np.arange(rows) // query


def fit(make: Callable[[], Any], **sizes: int) -> Callable[[], Any]:
    X, y, qid = table(sizes["rows"], sizes.get("features", 20), sizes.get("query", 20))
    return lambda: make().fit(X, y, qid=qid)


def ranker(name: str, **options: Any) -> Callable[..., Callable[[], Any]]:
    """A learner by name; the sizes ``alphas`` and ``basis`` are options of it."""

    def prepare(**sizes: int) -> Callable[[], Any]:
        import preflearn

        given = dict(options)
        if "alphas" in sizes:
            given["alphas"] = 2.0 ** np.linspace(-10, 10, sizes["alphas"])
        if "basis" in sizes:
            given["n_basis"] = sizes["basis"]
        return fit(lambda: getattr(preflearn, name)(**given), **sizes)

    return prepare


def estimate(name: str, **options: Any) -> Callable[..., Callable[[], Any]]:
    """A function of `preflearn.model_selection` that takes a learner and data."""

    def prepare(**sizes: int) -> Callable[[], Any]:
        from preflearn import RankRLS, model_selection

        X, y, qid = table(sizes["rows"], sizes.get("features", 20), sizes.get("query", 20))
        return lambda: getattr(model_selection, name)(RankRLS(), X, y, qid=qid, **options)

    return prepare


def leave_pairs_out(**sizes: int) -> Callable[[], Any]:
    from preflearn import RLS
    from preflearn.model_selection import estimate_auc

    X, y, _ = table(sizes["rows"], 10, 1)
    return lambda: estimate_auc(RLS(kernel="rbf"), X, y > 2, random_state=0)


def regression(**sizes: int) -> Callable[[], Any]:
    from preflearn import RLSCV

    X, y, _ = table(sizes["rows"], sizes["features"], 1)
    return lambda: RLSCV(cv="leave-one-out").fit(X, y)


def sparse_rows(**sizes: int) -> Callable[[], Any]:
    import scipy.sparse as sp

    from preflearn import RankRLS

    rng = np.random.default_rng(0)
    m, n, stored = sizes["rows"], 20_000, sizes["stored"]
    columns = rng.integers(n, size=m * stored)
    starts = np.arange(0, m * stored + 1, stored)
    X = sp.csr_array((rng.random(m * stored), columns, starts), shape=(m, n))
    X.sum_duplicates()
    y, qid = rng.integers(5, size=m), np.arange(m) // 20
    return lambda: RankRLS(solver="cg", alpha=10.0).fit(X, y, qid=qid)


def answers_of(items: int, answers: int):
    rng = np.random.default_rng(0)
    strength = rng.normal(size=items)
    a = rng.integers(items, size=answers)
    b = (a + rng.integers(1, items, size=answers)) % items
    a_wins = rng.random(answers) < 1 / (1 + np.exp(strength[b] - strength[a]))
    return np.where(a_wins[:, None], np.column_stack([a, b]), np.column_stack([b, a]))


def labels(call: str) -> Callable[..., Callable[[], Any]]:
    """`BradleyTerry` on labels alone: fitting, or a question to the fitted model."""

    def prepare(**sizes: int) -> Callable[[], Any]:
        from preflearn import BradleyTerry, BradleyTerryCV

        pairs, names = answers_of(sizes["items"], sizes["answers"]), np.arange(sizes["items"])
        if call == "search":
            return lambda: BradleyTerryCV(kernel="items", alphas=[0.1, 1.0, 10.0], cv=3).fit_pairs(
                names, pairs
            )
        model = BradleyTerry(kernel="items")
        if call == "fit":
            return lambda: model.fit_pairs(names, pairs)
        model.fit_pairs(names, pairs)
        some = names[:10]
        return {
            "predict": lambda: model.predict(names),
            "posterior": lambda: model.posterior(some),
            "win_probability": lambda: model.win_probability(some[:-1], some[1:]),
        }[call]

    return prepare


def comparisons(name: str, **options: Any) -> Callable[..., Callable[[], Any]]:
    def prepare(**sizes: int) -> Callable[[], Any]:
        import preflearn

        X, _, _ = table(sizes["items"], 20, 1)
        pairs = answers_of(sizes["items"], sizes["answers"])
        return lambda: getattr(preflearn, name)(**options).fit_pairs(X, pairs)

    return prepare


def relation(**sizes: int) -> Callable[[], Any]:
    from preflearn.relations import KroneckerRLS

    rng = np.random.default_rng(0)
    U, V = rng.normal(size=(sizes["rows"], 30)), rng.normal(size=(300, 30))
    Y = rng.normal(size=(sizes["rows"], 300))
    return lambda: KroneckerRLS(row_kernel="rbf", column_kernel="rbf").fit(U, V, Y)


def greedy(**sizes: int) -> Callable[[], Any]:
    from preflearn import RankRLS
    from preflearn.feature_selection import GreedySelector

    X, y, qid = table(sizes["rows"], sizes["features"], 20)
    return lambda: GreedySelector(RankRLS(), 5).fit(X, y, qid=qid)


QUERIES = {"rows": 4000, "features": 23, "query": 25}
CASES = {
    "RankRLS, linear": Case(ranker("RankRLS"), {"rows": 50_000, "features": 40}, {"rows": 1, "features": 2}),
    "RankRLSCV, linear, leave-query-out": Case(
        ranker("RankRLSCV"), QUERIES, {"rows": 1, "features": 2, "query": 1}, 4
    ),
    "RankRLSCV, linear, number of alphas": Case(ranker("RankRLSCV"), {**QUERIES, "alphas": 4}, {"alphas": 1}),
    "RankRLSCV, linear, cost='unit'": Case(
        ranker("RankRLSCV", cost="unit"), QUERIES, {"rows": 1, "query": 1}
    ),
    "RankRLSCV, linear, ties='exclude'": Case(
        ranker("RankRLSCV", ties="exclude"), QUERIES, {"rows": 1, "query": 1}
    ),
    "RankRLSCV, RBF, leave-query-out": Case(ranker("RankRLSCV", kernel="rbf"), {"rows": 500}, {"rows": 3}, 2),
    "RankRLSCV, RBF, basis vectors, five folds": Case(
        ranker("RankRLSCV", kernel="rbf", cv=5, random_state=0),
        {"rows": 5000, "basis": 100},
        {"rows": 1, "basis": 2},
    ),
    "RankRLSCV, RBF, basis vectors, leave-query-out": Case(
        ranker("RankRLSCV", kernel="rbf", random_state=0),
        {"rows": 2000, "basis": 100, "query": 20},
        {"rows": 1, "basis": 2, "query": 1},
    ),
    "RLSCV, linear, leave-one-out": Case(
        regression, {"rows": 20_000, "features": 20}, {"rows": 1, "features": 2}
    ),
    "RankSVM, linear": Case(ranker("RankSVM"), {"rows": 10_000, "features": 20}, {"rows": 1, "features": 2}),
    "RankRFM": Case(
        ranker("RankRFM", n_basis=100, max_rounds=2, random_state=0), {"rows": 2000}, {"rows": 1}, 2
    ),
    "AutoRanker": Case(ranker("AutoRanker", random_state=0), {"rows": 1000}, {"rows": 1}, 2),
    "estimate_concordance, linear": Case(estimate("estimate_concordance"), QUERIES, {"rows": 1, "query": 1}),
    "permutation_test, linear": Case(
        estimate("permutation_test", n_permutations=10, random_state=0), QUERIES, {"rows": 1, "query": 1}
    ),
    "estimate_auc, RBF, leave-pair-out": Case(leave_pairs_out, {"rows": 500}, {"rows": 3}, 2),
    "RankRLS, sparse, conjugate gradients": Case(
        sparse_rows, {"rows": 20_000, "stored": 20}, {"rows": 1, "stored": 1}
    ),
    "RankRLS, preferences": Case(
        comparisons("RankRLS"), {"items": 2000, "answers": 20_000}, {"items": 1, "answers": 1}
    ),
    "BradleyTerry, features": Case(
        comparisons("BradleyTerry"), {"items": 2000, "answers": 20_000}, {"items": 1, "answers": 1}
    ),
    **{
        f"BradleyTerry, labels, {call}": Case(
            labels(call), {"items": 2000, "answers": 50_000}, {"items": 1, "answers": 1}
        )
        for call in ("fit", "predict", "posterior", "win_probability", "search")
    },
    "KroneckerRLS": Case(relation, {"rows": 300}, {"rows": 3}, 2),
    "GreedySelector": Case(greedy, {"rows": 4000, "features": 40}, {"rows": 1, "features": 1}, 2),
}


def seconds(case: Case, sizes: dict[str, int], repeats: int) -> float:
    """The least of several calls, after one that is not counted."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        call = case.prepare(**sizes)
        call()
        times = []
        for _ in range(repeats):
            start = time.perf_counter()
            call()
            times.append(time.perf_counter() - start)
    return min(times)


def walk(case: Case, axis: str, *, smoke: bool) -> dict[str, Any]:
    """Seconds along one axis, and the exponent over its last doublings."""
    sizes = small(case) if smoke else case.sizes
    values = [sizes[axis] * 2**k for k in range(2 if smoke else case.doublings + 1)]
    found = [seconds(case, {**sizes, axis: value}, 1 if smoke else 2) for value in values]
    return {"values": values, "seconds": found, "exponent": exponent(values, found)}


def exponent(values: list[int], found: list[float]) -> float | None:
    """The slope of log(seconds) over log(size), over the sizes that take long enough; None below two of them."""
    kept = [(v, s) for v, s in zip(values, found, strict=True) if s >= _LEAST_SECONDS][-3:]
    if len(kept) < 2:
        return None
    x, t = np.log([v for v, _ in kept]), np.log([s for _, s in kept])
    return float(np.polyfit(x, t, 1)[0])


def small(case: Case) -> dict[str, int]:
    return {name: max(8, size // 20) for name, size in case.sizes.items()}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default="", metavar="TEXT", help="cases whose name contains this")
    parser.add_argument("--smoke", action="store_true", help="small sizes: does every case run?")
    options = parser.parse_args()
    results = [
        measure(name, case, smoke=options.smoke) for name, case in CASES.items() if options.only in name
    ]
    if not options.smoke and not options.only:
        write_results("growth", *results)


def measure(name: str, case: Case, *, smoke: bool) -> dict[str, Any]:
    """Print and return one row of the table."""
    axes = {}
    for axis, documented in case.exponents.items():
        found = walk(case, axis, smoke=smoke)
        grown = found["exponent"]
        verdict = "  FAST" if grown is not None and grown > documented + TOLERANCE else ""
        shown = "  -  " if grown is None else f"{grown:5.2f}"
        print(
            f"{name:<48} {axis:<9} {shown} (documented {documented:g})  "
            + " ".join(f"{s:.3f}" for s in found["seconds"])
            + verdict.replace("FAST", "GROWS TOO FAST"),
            flush=True,
        )
        axes[axis] = {**found, "documented": documented}
    return {"question": name, "axes": axes}


if __name__ == "__main__":
    main()
