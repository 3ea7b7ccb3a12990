"""How many rows does a learned kernel of 2,000 basis vectors need? Held-out scores of its sums over more and more rows.

    python benchmarks/rows_needed.py                                     # interactions, up to 3,000,000 rows
    python benchmarks/rows_needed.py --kind noisy --rows 2000000 --seed 2

The metric is learned on the first 60,000 rows, as `AutoRanker` does; then sums are formed in one pass, and at some
numbers of rows the model is solved for and tested on 2,000 queries (6,000 of the smaller, noisy ones), at the best of
seven alphas. Gains are differences to the number of rows before, query by query, with their standard errors.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator

import numpy as np

import sizes
from _harness import write_results
from preflearn import AutoRanker
from preflearn.auto import kernels
from preflearn.auto.features import Features
from preflearn.auto.tasks import Task, UnitScale
from preflearn.comparisons import encode_queries
from preflearn.metrics import concordance, ndcg
from preflearn.model_selection._choice import read_scoring
from preflearn.squared.expansion import kernel_moments, solve_expansion
from ranking_sets import Part

_VIEW = ("quantiles", "relative")
_SAMPLE, _CHUNK, _BASIS = 60_000, 50_000, 2000
_STOPS = (60_000, 125_000, 250_000, 500_000, 1_000_000, 2_000_000, 3_000_000)
_BESIDE = 4.0 ** np.arange(-3, 4)


def chunks(part: Part, stops: tuple[int, ...]) -> Iterator[slice]:
    """Whole queries, with a chunk that ends at each of the stops."""
    ends = np.flatnonzero(np.append(np.diff(part.qid) != 0, True)) + 1
    first = 0
    for stop in (*stops, part.y.shape[0]):
        while first < min(stop, ends[-1]):
            wanted = min(first + _CHUNK, stop)
            last = int(ends[min(np.searchsorted(ends, wanted), ends.shape[0] - 1)])
            yield slice(first, last)
            first = last


def learned(part: Part, features: Features) -> tuple[kernels.Search, int]:
    """The rounds of a metric on a sample, and the best of them."""
    queries = encode_queries(part.qid, part.y.shape[0])
    folds = AutoRanker()._folds(part.y, queries, read_scoring("concordance"), 0)
    search = kernels.Search(Task(features.views(part.X, queries), part.y, queries, folds, None, 0), _VIEW)
    search.advance(6)
    return search, folds.best(np.array(search.scores))


def measure(kind: str, n_rows: int, seed: int) -> Iterator[dict]:
    sizes._TEST_QUERIES = 6000 if kind == "noisy" else 2000
    train, test = (Part(np.nan_to_num(one.X), one.y, one.qid) for one in sizes.make(kind, n_rows, seed))
    train = Part(train.X, UnitScale(train.y)(train.y), train.qid)
    sample = slice(int(np.searchsorted(train.qid, train.qid[min(_SAMPLE, train.y.shape[0] - 1)])))
    features = Features().fit(train.X[sample])
    search, best = learned(Part(train.X[sample], train.y[sample], train.qid[sample]), features)
    functions = kernels._functions(
        search.X, np.arange(search.task.n_rows), search.mean_metric(best), _BASIS, search.has_curves, 0
    )
    kernel, basis, curves = functions
    rows_of_test = features.views(test.X, encode_queries(test.qid, test.y.shape[0]))[_VIEW]
    total, before = None, None
    stops = tuple(one for one in _STOPS if one < n_rows)
    for part in chunks(train, stops):
        queries = encode_queries(train.qid[part], part.stop - part.start)
        X = features.views(train.X[part], queries)[_VIEW]
        rows = np.arange(X.shape[0])
        more = kernel_moments(kernel, basis, X.__getitem__, train.y[part], queries, rows, curves=curves)
        if total is None:
            total = more
        else:
            total.add(more)
        if part.stop < train.y.shape[0] and not any(part.start < stop <= part.stop for stop in stops):
            continue
        model = solve_expansion(kernel, basis, total, search.alphas[best] * _BESIDE, curves)
        predictions = model.predict(rows_of_test)
        values = [concordance(test.y, one, test.qid, per_query=True).values for one in predictions]
        k = int(np.argmax([np.nanmean(one) for one in values]))
        row = {"kind": kind, "seed": seed, "view": "+".join(_VIEW), "rows": part.stop, "alpha": _BESIDE[k]}
        row |= {"con": np.nanmean(values[k]), "se": np.nanstd(values[k]) / np.sqrt(values[k].size)}
        row["ndcg"] = np.nanmean(ndcg(test.y, predictions[k], test.qid, k=10, per_query=True).values)
        if before is not None:
            gains = values[k] - before
            row |= {"gain": np.nanmean(gains), "gain_se": np.nanstd(gains) / np.sqrt(gains.size)}
        before = values[k]
        yield {name: float(one) if isinstance(one, np.floating) else one for name, one in row.items()}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kind", default="interactions", choices=list(sizes.UTILITIES))
    parser.add_argument("--rows", type=int, default=3_000_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--name", default="rows_needed", help="of the file of results")
    options = parser.parse_args()
    rows = []
    for row in measure(options.kind, options.rows, options.seed):
        rows.append(row)
        print(row, flush=True)
        write_results(options.name, *rows)


if __name__ == "__main__":
    main()
