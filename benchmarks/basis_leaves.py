"""What does it cost to take held-out basis vectors out of a map, and what does a search over RankSVM gain by it?

    python benchmarks/basis_leaves.py

- features: those of all rows in every fold, by `NystromMap.without` or anew, in processor seconds for all folds (timed
  on two of them and multiplied out); the sizes are those of tables 1 and 2 of Airola, Pahikkala and Salakoski (2011);
- search: `RankSVM` held out at three alphas, features made once for all folds, next to refitting every fold.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from _harness import report, run_questions
from preflearn import RankSVM
from preflearn.kernels import NystromMap
from preflearn.model_selection import HeldOut
from preflearn.model_selection._folds import read_folds


def processor_seconds(candidates: dict[str, Callable[[], object]], repeats: int) -> dict[str, float]:
    """The least of several repeats, whatever else the machine does."""
    best = dict.fromkeys(candidates, float("inf"))
    for _ in range(repeats):
        for name, function in candidates.items():
            start = time.process_time()
            function()
            best[name] = min(best[name], time.process_time() - start)
    return best


def random_data(m: int, n: int, n_queries: int):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(m, n))
    return X, X @ rng.normal(size=n) + rng.normal(size=m), np.arange(m) % n_queries


def features(repeats: int) -> list[dict]:
    m, n_groups = 9856, 598
    X, y, group = random_data(m, 50, n_groups)
    rng, results = np.random.default_rng(0), []
    for per_group in (1, 2, 3, 4):
        chosen = np.concatenate([np.flatnonzero(group == one)[:per_group] for one in range(n_groups)])
        whole = NystromMap("rbf", basis=chosen).fit(X)
        known = whole.transform(X)
        for name, cv in (("leave-group-out", "leave-query-out"), ("ten-fold", 10)):
            folds = read_folds(cv, X, y, m, qid=group).tests
            some = [folds[k] for k in rng.choice(len(folds), size=2, replace=False)]

            def update(whole=whole, some=some, known=known):
                for left in some:
                    whole.without(left, features=known)

            def anew(chosen=chosen, some=some):
                for left in some:
                    NystromMap("rbf", basis=chosen[~np.isin(chosen, left)]).fit_transform(X)

            seconds = processor_seconds({"without": update, "anew": anew}, repeats)
            results.append(
                report(
                    f"features without held-out basis vectors, m = {m}, r = {chosen.size}: {name}",
                    {way: value / len(some) * len(folds) for way, value in seconds.items()},
                    baseline="anew",
                    limits={"without": 1.0},
                )
            )
    return results


def search(repeats: int) -> list[dict]:
    results = []
    for m, options in ((5000, {"n_basis": 1000, "random_state": 0}), (1500, {})):
        X, y, qid = random_data(m, 20, m // 20)
        alphas, folds = np.array([1.0, 10.0, 100.0]), read_folds(10, X, y, m, qid=qid).tests
        drawn = np.arange(m)
        if options:
            drawn = NystromMap("rbf", **options).fit(X).basis_indices_

        def refit(X=X, y=y, qid=qid, drawn=drawn, folds=folds, alphas=alphas, m=m):
            for test in folds:
                rest = np.setdiff1d(np.arange(m), test)
                model = RankSVM(kernel="rbf", basis=np.flatnonzero(np.isin(rest, drawn)))
                for alpha in alphas:
                    model.set_params(alpha=alpha).fit(X[rest], y[rest], qid=qid[rest]).predict(X[test])

        def hold_out(X=X, y=y, qid=qid, alphas=alphas, options=options):
            HeldOut(RankSVM(kernel="rbf", **options), X, y, qid=qid).predict(10, alphas)

        kind = f"r = {drawn.size}" if options else "every row a basis vector"
        results.append(
            report(
                f"RankSVM, ten folds of queries, 3 alphas, m = {m}, {kind}",
                processor_seconds({"held out": hold_out, "refitting": refit}, max(1, repeats // 3)),
                baseline="refitting",
                limits={"held out": 1.0},
            )
        )
    return results


if __name__ == "__main__":
    run_questions("basis_leaves", __doc__, {"features": features, "search": search}, repeats=3)
