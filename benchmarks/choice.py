"""Why is `estimate_` a little too high on noise? The folds that choose were trained on what is scored.

Queries of ten rows of noise and a Gaussian kernel, whose 31 alphas predict very different things. Each of ten parts of
the queries is predicted at the alpha that the other folds choose (`estimate_`), and once more by a search that was
trained without the part, which costs ten times as much. Any prediction has a concordance of .5.

    python benchmarks/choice.py [--quick] [--sets 300] [--jobs 16 --seconds 400]
"""

from __future__ import annotations

import numpy as np

from _harness import arguments, in_processes, write_results
from preflearn import RankRLSCV
from preflearn.metrics import concordance

QUERIES = 20


def values(seed: int) -> tuple[float, float, float]:
    """At the best alpha, at the others' choice, and chosen without the part."""
    rng = np.random.default_rng([seed, 11])
    qid = np.repeat(np.arange(QUERIES), 10)
    X, y, apart = rng.normal(size=(qid.size, 5)), rng.normal(size=qid.size), np.empty(qid.size)
    search = RankRLSCV(kernel="rbf", gamma=0.1)
    for part in range(10):
        test = qid % 10 == part
        apart[test] = search.fit(X[~test], y[~test], qid=qid[~test]).predict(X[test])
    search.fit(X, y, qid=qid)
    return search.best_score_, search.estimate_.value, concordance(y, apart, qid)


def main() -> None:
    options = arguments(__doc__, sets=300, jobs=1, seconds=3600.0)
    sets = range(3 if options.quick else options.sets)
    found = np.array(
        [one for _, one in in_processes(values, sets, jobs=options.jobs, seconds=options.seconds)]
    )
    names = ("at the best alpha", "at the others' choice", "chosen without the part")
    result = {"question": f"noise, {QUERIES} queries of ten rows", "data_sets": len(found)}
    for name, column in (
        *zip(names, found.T, strict=True),
        ("others' minus without", found[:, 1] - found[:, 2]),
    ):
        error = float(column.std(ddof=1) / len(found) ** 0.5)
        print(f"{name:<24} {column.mean():.4f} +- {error:.4f}")
        result[name] = {"mean": float(column.mean()), "error": error}
    if not options.quick:
        write_results("choice", result)


if __name__ == "__main__":
    main()
