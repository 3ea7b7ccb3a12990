"""Does the table of routes choose well, and without a jump? Six figures.

python benchmarks/routes.py --part queries      leave-query-out over 15 alphas on sparse rows, beside one dsyevd
python benchmarks/routes.py --part preferences  leave-preference-out on sparse text, beside logistic regression
python benchmarks/routes.py --part few          600 preferences among more and more rows: training and searches
python benchmarks/routes.py --part large        5 folds × 15 alphas by iterations, beside one training
python benchmarks/routes.py --part walk         processor seconds over the number of rows, and their plot
python benchmarks/routes.py --part parses --data DIR
                                                leave-query-out on 8,365 parses, beside one dsyevd of that size
"""

from __future__ import annotations

import argparse
import math
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import scipy.sparse as sp

from _harness import RESULTS, best_of, report, write_results
from preflearn import BradleyTerryCV, RankRLS, RankRLSCV
from preflearn.kernels.functions import sparse_products
from preflearn.model_selection import HeldOut, leave_preference_out
from preflearn.model_selection._problem import Problem
from preflearn.numerics.linalg import (
    eigh_in_place,
)
from preflearn.squared.routes import Workload, choose_route

PARTS = ("queries", "preferences", "few", "large", "walk")
# Columns that the features of parses are hashed to.
HASHED = 65_536


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
    return _beside_dsyevd(
        "leave-query-out over 15 alphas on sparse rows",
        lambda: eigh_in_place(K.copy(order="F")),
        lambda: RankRLSCV(alphas).fit(X, y, qid=qid),
        m,
        repeats,
        lambda: f"{m} × {15 * m}, 40 values a row, queries of 20",
    )


def _beside_dsyevd(
    question: str,
    decompose: Callable[[], object],
    search: Callable[[], object],
    m: int,
    repeats: int,
    note: Callable[[], str],
) -> dict:
    """A search over alphas beside one decomposition of a matrix of its size; the note may tell what was found."""
    name = f"dsyevd({m})"
    seconds = best_of({name: decompose, "RankRLSCV": search}, repeats=repeats, warm_up=False)
    return report(question, seconds, baseline=name, limits={"RankRLSCV": 1.5}, note=note())


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


def large(m: int) -> dict:
    """5 folds × 15 alphas from 2⁻¹⁴ of the largest eigenvalue on, beside one training at the smallest."""
    X = sparse_rows(m, m // 2, 50)
    y, qid = ranking(X, m // 100)
    _compile()
    problem = Problem.read(RankRLS(solver="cg"), X, y, qid)
    (task,) = problem.tasks
    routine = problem.hold_out(task, many_alphas=True)
    assert routine is not None
    alphas = routine.largest_eigenvalue * 2.0 ** np.arange(-14, 1)
    fits: list[RankRLS] = []
    seconds = best_of(
        {
            "training": lambda: fits.append(RankRLS(alphas[0], solver="cg").fit(X, y, qid=qid)),
            "5 folds × 15 alphas": lambda: HeldOut(RankRLS(solver="cg"), X, y, qid=qid).predict(5, alphas),
        },
        repeats=1,
        warm_up=False,
    )
    return report(
        "5 folds × 15 alphas by iterations",
        seconds,
        baseline="training",
        limits={"5 folds × 15 alphas": 12.0},
        note=f"sparse {m} × {m // 2}, 50 values a row, {m // 100} queries; training {fits[0].n_iter_} iterations",
    )


def parses(data: Path, n_rows: int) -> dict:
    """The first sentences of the corpus, their links and words hashed to 65,536 columns; both measured once."""
    from preflearn_papers.parses import LinkFeatures, as_ranking, read_linkages

    linkages, y, qid = as_ranking(read_linkages(data / "parse_ranking" / "bioinfer_linkages.jsonl.xz"))
    ends = np.cumsum(np.bincount(qid))
    whole = int(ends[ends <= n_rows][-1])
    X = LinkFeatures("context", min_count=1).fit_transform(linkages[:whole])
    bucket = np.random.default_rng(0).integers(HASHED, size=X.shape[1])
    X = sp.csr_array((X.data, bucket[X.indices], X.indptr), shape=(whole, HASHED))
    X.sum_duplicates()
    K = np.asfortranarray(sparse_products(X))
    alphas = np.logspace(-3, 1, 9)
    _compile()
    found: list[RankRLSCV] = []
    return _beside_dsyevd(
        "leave-query-out over 9 alphas on the parses of sentences",
        lambda: eigh_in_place(K),
        lambda: found.append(RankRLSCV(alphas).fit(X, y[:whole], qid=qid[:whole])),
        whole,
        1,
        lambda: (
            f"{whole} × {HASHED}, {X.nnz / whole:.0f} values a row, {len(set(qid[:whole].tolist()))} sentences; "
            f"final training by {found[0].solver_}, alpha {found[0].alpha_:g}, concordance {found[0].best_score_:.3f}"
        ),
    )


def walk(largest: int, longest: float) -> dict:
    """Processor seconds of a search and of a training over m; n = 1000 dense, n = 2 m sparse with 20 values a row.

    With one thread (OPENBLAS_NUM_THREADS=1 NUMBA_NUM_THREADS=1) other users of the machine disturb it little. Measured
    where the route expects to take no more than ``longest`` seconds, the training always.
    """
    steps = (500, 700, 1000, 1400, 2000, 2800, 4000, 5600, 8000, 11_000, 16_000, 22_000, 30_000)
    rows = []
    _compile()
    print("\n     m  kind     purpose   route    seconds  expected  exponent")
    before: dict[tuple[str, str], tuple[int, float]] = {}
    for m in (step for step in steps if step <= largest):
        kinds = {
            "dense": np.random.default_rng(0).normal(size=(m, 1000)),
            "sparse": sparse_rows(m, 2 * m, 20),
        }
        for kind, X in kinds.items():
            y, qid = ranking(X, m // 20)
            for purpose, n_folds in (("train", 1), ("folds", 5), ("queries", m // 20)):
                sizes = {} if purpose == "train" else {"n_alphas": 7, "n_folds": n_folds}
                route = choose_route(Workload.of(X, purpose, **sizes)).chosen
                name, seconds = route.solver, None
                # A training knows its alpha, and where iterations do sooner than expected here.
                if purpose == "train" or route.seconds <= longest:
                    start = time.process_time()
                    if purpose == "train":
                        name = RankRLS(1.0).fit(X, y, qid=qid).solver_
                    else:
                        cv = 5 if purpose == "folds" else "leave-query-out"
                        HeldOut(RankRLS(), X, y, qid=qid).predict(cv, np.logspace(-1, 4, 7))
                    seconds = time.process_time() - start
                rows.append([m, kind, purpose, name, seconds, route.seconds])
                growth = ""
                if seconds is not None:
                    if (kind, purpose) in before:
                        last, took = before[kind, purpose]
                        growth = f"{math.log(seconds / took) / math.log(m / last):.1f}"
                    before[kind, purpose] = m, seconds
                shown = "" if seconds is None else f"{seconds:.2f}"
                what = f"{m:6d}  {kind:<7}  {purpose:<8}  {name:<7}"
                print(f"{what}  {shown:>7}  {route.seconds:8.2f}  {growth:>8}", flush=True)
    return {
        "question": "processor seconds over the number of rows",
        "columns": ["m", "kind", "purpose", "route", "seconds", "expected"],
        "note": "n = 1000 dense, n = 2 m sparse with 20 values a row; 7 alphas, 5 folds or queries of 20 rows; "
        f"measured once where at most {longest:g} s were expected",
        "rows": rows,
    }


def draw_walk(rows: list[list]) -> None:
    """benchmarks/results/routes_walk.svg, where Matplotlib is installed."""
    try:
        import matplotlib

        matplotlib.use("svg")
        import matplotlib.pyplot as plt
    except ImportError:
        print("no plot: Matplotlib is not installed")
        return
    plt.rcParams["svg.hashsalt"] = "routes_walk"
    figure, axes = plt.subplots(1, 2, figsize=(9, 3.8), sharey=True, layout="constrained")
    names = {"train": "training", "folds": "5 folds × 7 alphas", "queries": "every query × 7 alphas"}
    markers = {"primal": "o", "dual": "s", "cg": "^"}
    for ax, kind in zip(axes, ("dense", "sparse"), strict=True):
        for colour, (purpose, name) in zip(("C0", "C1", "C2"), names.items(), strict=True):
            of = [row for row in rows if row[1] == kind and row[2] == purpose]
            if purpose != "train":  # which knows its alpha, as the expectation does not
                ax.loglog([row[0] for row in of], [row[5] for row in of], ":", color=colour, lw=1)
            measured = [row for row in of if row[4] is not None]
            ax.loglog(
                [row[0] for row in measured], [row[4] for row in measured], "-", color=colour, label=name
            )
            for row in measured:
                ax.loglog(row[0], row[4], markers[row[3]], color=colour, ms=4)
        ax.set_title(
            "dense, 1,000 columns" if kind == "dense" else "sparse, 2 m columns, 20 values a row", fontsize=10
        )
        ax.set_xlabel("rows m")
        ax.set_xticks(
            [500, 1000, 2000, 5000, 10_000, 30_000], ["500", "1,000", "2,000", "5,000", "10,000", "30,000"]
        )
        ax.minorticks_off()
        ax.grid(alpha=0.3)
    for route, marker in markers.items():
        axes[0].plot([], [], marker, color="grey", ms=4, label=route)
    axes[0].plot([], [], "k:", lw=1, label="expected")
    axes[0].set_ylabel("processor seconds")
    axes[0].legend(fontsize=7, ncols=2)
    figure.savefig(RESULTS / "routes_walk.svg", metadata={"Date": None})


def _compile() -> None:
    X = sparse_rows(600, 900, 10)
    y, qid = ranking(X, 30)
    for solver in ("dual", "cg"):
        RankRLSCV([0.1, 1.0], cv=5, solver=solver).fit(X, y, qid=qid)
    RankRLSCV([0.1, 1.0]).fit(X, y, qid=qid)
    HeldOut.of_pairs(RankRLS(), X, np.arange(600).reshape(300, 2)).preferences(alphas=[0.1, 1.0])


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--part", choices=[*PARTS, "parses", "all"], default="all")
    parser.add_argument("--rows", type=int, default=0, help="another size than that of the figure")
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--data", type=Path, help="the folder that holds parse_ranking, for --part parses")
    parser.add_argument("--longest", type=float, default=20.0, help="seconds of one step of the walk")
    parser.add_argument("--quick", action="store_true", help="small sizes, nothing written")
    options = parser.parse_args()
    warnings.simplefilter("ignore", UserWarning)
    quick, chosen = options.quick, options.part
    parts = {
        "queries": lambda: [queries(options.rows or (400 if quick else 4000), options.repeats)],
        "preferences": lambda: preferences(options.rows or (200 if quick else 2500), options.repeats),
        "few": lambda: few(options.rows or (60 if quick else 600), options.repeats),
        "large": lambda: [large(options.rows or (2000 if quick else 200_000))],
        "walk": lambda: [walk(options.rows or (1000 if quick else 30_000), options.longest)],
    }
    if options.data is not None:
        parts["parses"] = lambda: [parses(options.data, options.rows or (800 if quick else 8365))]
    if chosen not in parts and chosen != "all":
        parser.error(f"--part {chosen} needs --data DIR")
    for name in parts if chosen == "all" else [chosen]:
        results = parts[name]()
        if not quick:
            write_results(f"routes_{name}", *results)
            if name == "walk":
                draw_walk(results[0]["rows"])


if __name__ == "__main__":
    main()
