"""Do sets with a guarantee hold what they must as often as asked, how large are they, and what do they cost?

**Generated data**: queries of 8 to 29 rows, graded labels from a noisy linear function; 30, 100 and 500 queries, every
target; the share of 200 new queries whose set holds what it must, over many data sets.

**Real data** (the folder that PREFLEARN_DATA names): five folds, the share of new queries and the size of their sets,
beside three simple rivals that get the same held-out scores and the same coverage: the first k, with k chosen on the
training queries; a fixed score; a fixed share of Σ exp f.

**Time**: `ConformalRanker(RankRLSCV())` against `RankRLSCV()`.

    python benchmarks/sets.py [--quick] [--repeats DATA_SETS] [--only generated | real | time]
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from _harness import arguments, best_of, write_results
from preflearn import RankRLS, RankRLSCV
from preflearn.comparisons import encode_queries
from preflearn.io import read_ranking
from preflearn.model_selection import ConformalRanker
from preflearn.model_selection._calibration import SetChoice, distances, least_cutoff, required_rows

TARGETS = (("best", 1), ("top-k", 3), ("any-relevant", 1), ("all-relevant", 1))
COVERAGES = (0.8, 0.9, 0.95)
REAL = {
    "OHSUMED (LETOR 2)": "letor_ohsumed_v2/S{}.txt.xz",
    "OHSUMED (LETOR 3)": "letor_ohsumed_v3/QueryLevelNorm/S{}.txt.xz",
    "MQ2007 (85 % of rows)": "letor_mq2007/partial46_S{}.txt.xz",
}


def draw(rng: np.random.Generator, n_queries: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    qid = np.repeat(np.arange(n_queries), rng.integers(8, 30, size=n_queries))
    X = rng.normal(size=(qid.shape[0], 5))
    latent = X @ np.linspace(1, 0.2, 5) + 2 * rng.normal(size=qid.shape[0])
    y = np.digitize(latent, [1.0, 2.5, 4.0]).astype(float)
    y[np.r_[True, np.diff(qid) > 0]] = 1.0  # every query has a relevant row, and counts
    return X, y, qid


def held(
    y: np.ndarray, scores: np.ndarray, shown: np.ndarray, qid: np.ndarray, target: tuple[str, int]
) -> np.ndarray:
    """Whether the set of each query that counts holds what it must."""
    queries = encode_queries(qid, y.shape[0])
    required = required_rows(y, scores, queries, *target)
    missed = np.bincount(queries.codes, weights=required & ~shown, minlength=queries.n_groups) > 0
    counts = np.bincount(queries.codes, weights=required, minlength=queries.n_groups) > 0
    return ~missed[counts]


def generated(data_sets: int) -> Iterator[dict]:
    for n_queries in (30, 100, 500):
        covered: dict[str, list] = {target: [] for target, _ in TARGETS}
        sizes: dict[str, list] = {target: [] for target, _ in TARGETS}
        for seed in range(data_sets):
            rng = np.random.default_rng(seed)
            X, y, qid = draw(rng, n_queries)
            X_new, y_new, qid_new = draw(rng, 200)
            for target, k in TARGETS:
                sure = ConformalRanker(RankRLS(), coverage=0.9, target=target, k=k).fit(X, y, qid=qid)
                shown = sure.predict_set(X_new, qid=qid_new)
                covered[target].append(held(y_new, sure.predict(X_new), shown, qid_new, (target, k)).mean())
                sizes[target].append(shown.sum() / 200)
        for target, _ in TARGETS:
            found = np.array(covered[target])
            yield {
                "question": f"coverage of new queries, {n_queries} queries, target {target}, asked 0.9",
                "coverage": found.mean(),
                "standard_error": found.std() / np.sqrt(found.size),
                "size": np.mean(sizes[target]),
                "data_sets": data_sets,
            }


def rival_distance(name: str, scores: np.ndarray, codes: np.ndarray) -> np.ndarray:
    if name == "fixed score":
        return -scores
    exp = np.exp(scores - scores.max())
    return -exp / np.bincount(codes, weights=exp)[codes]


def real(folder: Path, name: str) -> Iterator[dict]:
    parts = [read_ranking(folder / REAL[name].format(k)) for k in range(1, 6)]
    found: dict[tuple, list] = {}
    for fold, new in enumerate(parts):
        others = [part for k, part in enumerate(parts) if k != fold]
        X = np.concatenate([np.asarray(part.X) for part in others])
        y = np.concatenate([part.y for part in others])
        qid = np.concatenate([part.qid for part in others])
        X_new = np.asarray(new.X)
        for target in TARGETS:
            sure = ConformalRanker(RankRLSCV(), target=target[0], k=target[1]).fit(X, y, qid=qid)
            scores = sure.predict(X_new)
            for coverage in COVERAGES:
                shown = {"sets": sure.predict_set(X_new, qid=new.qid, coverage=coverage)}
                queries = encode_queries(new.qid, scores.shape[0])
                k = SetChoice(sure.calibration_, *target, ["rank"]).cutoff(coverage, "rank").value
                shown["first k"] = distances("rank", scores, queries) <= k
                for rival in ("fixed score", "share of exp"):
                    shown[rival] = by_rival(rival, sure, target, scores, queries.codes, coverage)
                for method, one in shown.items():
                    inside = held(new.y, scores, one, new.qid, target)
                    row = inside.sum(), inside.size, one.sum(), queries.n_groups
                    found.setdefault((target[0], coverage, method), []).append(row)
    for (target, coverage, method), rows in found.items():
        right, n, items, n_queries = np.sum(rows, axis=0)
        yield {
            "question": f"{name}, target {target}, asked {coverage}, {method}",
            "coverage": right / n,
            "size": items / n_queries,
            "queries": int(n),
        }


def by_rival(
    rival: str,
    sure: ConformalRanker,
    target: tuple[str, int],
    scores: np.ndarray,
    codes: np.ndarray,
    coverage: float,
) -> np.ndarray:
    """The rows that a rival shows, its cut-off by the same held-out scores."""
    held_out = sure.calibration_
    queries = held_out.queries
    far = rival_distance(rival, held_out.scores, queries.codes)
    required = required_rows(held_out.y, held_out.scores, queries, *target)
    needs = np.full(queries.n_groups, -np.inf)
    np.maximum.at(needs, queries.codes[required], far[required])
    needs = needs[needs > -np.inf]
    t = least_cutoff(needs, np.ones(needs.size), needs.size, 1 - coverage)
    return rival_distance(rival, scores, codes) <= t


def times(repeats: int) -> Iterator[dict]:
    shapes = ((500, 20, 46, {}), (1000, 40, 46, {}), (200, 10, 20, {"kernel": "rbf"}))
    for n_queries, rows, columns, kernel in shapes:
        rng = np.random.default_rng(0)
        qid = np.repeat(np.arange(n_queries), rows)
        X = rng.normal(size=(qid.shape[0], columns))
        y = np.round(X[:, 0] + X[:, 1] + rng.normal(size=qid.shape[0]))
        seconds = best_of(
            {
                "RankRLSCV": lambda: RankRLSCV(**kernel).fit(X, y, qid=qid),  # noqa: B023
                "sets": lambda: ConformalRanker(RankRLSCV(**kernel)).fit(X, y, qid=qid),  # noqa: B023
            },
            repeats=repeats,
        )
        ratio = seconds["sets"] / seconds["RankRLSCV"]
        name = kernel.get("kernel", "linear")
        yield {
            "question": f"time, {n_queries} queries of {rows}, {columns} columns, {name}",
            "ratio": ratio,
        } | seconds


def main() -> None:
    warnings.simplefilter("ignore")
    options = arguments(__doc__, repeats=200, only="")
    results = []

    def show(rows: Iterator[dict]) -> None:
        for row in rows:
            results.append(row)
            figures = ", ".join(f"{k} {v:.4g}" for k, v in row.items() if k != "question")
            print(f"{row['question']:<70} {figures}", flush=True)

    if options.only in ("", "time"):
        show(times(2 if options.quick else 5))
    if options.only in ("", "generated"):
        show(generated(2 if options.quick else options.repeats))
    folder = os.environ.get("PREFLEARN_DATA")
    if options.only in ("", "real") and folder and not options.quick:
        for name in REAL:
            show(real(Path(folder), name))
    if not options.quick and not options.only:
        write_results("sets", *results)


if __name__ == "__main__":
    main()
