"""How often does a 95 % interval hold the true value? Concordance in unseen queries, by ``estimate_concordance(qid=)``.

Normal rows, of which the first feature adds to y; queries of 3, 5 or 20 rows, or of unequal sizes. The truth is the
concordance, in new queries, of the model trained on all rows: by formula for the linear kernel, on fresh queries for
the RBF kernel. Beside the interval stands Student's over the queries alone, as if their models were independent.

    python benchmarks/interval_coverage.py [--quick] [--repeats DATA_SETS]
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from _harness import arguments, coverage_of, write_results
from preflearn import RankRLS
from preflearn.metrics import concordance
from preflearn.model_selection import estimate_concordance
from preflearn.model_selection.intervals import mean_interval

STRENGTH = {"none": 0.0, "medium": 0.4, "strong": 1.5}
UNEQUAL = (2, 3, 5, 10, 30)
NEW_QUERIES = 400


class Setting(NamedTuple):
    kernel: str
    features: int
    signal: str
    queries: int
    rows: int | str

    def sizes(self, rng: np.random.Generator) -> np.ndarray:
        if isinstance(self.rows, str):
            return rng.choice(UNEQUAL, size=self.queries)
        return np.full(self.queries, self.rows)

    def draw(self, rng: np.random.Generator, qid: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        X = rng.normal(size=(qid.shape[0], self.features))
        return X, STRENGTH[self.signal] * X[:, 0] + rng.normal(size=qid.shape[0])

    def model(self) -> RankRLS:
        return RankRLS() if self.kernel == "linear" else RankRLS(kernel="rbf", gamma=0.5 / self.features)

    def truth(self, rng: np.random.Generator, model: Any) -> float:
        if self.kernel == "linear":
            share = model.coef_[0] / np.linalg.norm(model.coef_)  # of the first feature in the prediction
            strength = STRENGTH[self.signal]
            return float(0.5 + np.arcsin(share * strength / np.sqrt(strength**2 + 1)) / np.pi)
        qid = np.repeat(np.arange(NEW_QUERIES), 10)
        X, y = self.draw(rng, qid)
        return concordance(y, model.predict(X), qid)


def settings() -> Iterator[Setting]:
    sizes = (3, 5, 20, "unequal")
    for signal, queries, rows in itertools.product(STRENGTH, (10, 20, 50, 200), sizes):
        yield Setting("linear", 5, signal, queries, rows)
    for features, signal, rows in itertools.product((1, 20), STRENGTH, sizes):
        yield Setting("linear", features, signal, 20, rows)
    for signal, rows in itertools.product(STRENGTH, (5, "unequal")):
        yield Setting("rbf", 5, signal, 20, rows)


def coverage(setting: Setting, data_sets: int, seed: int) -> dict:
    rng = np.random.default_rng(seed)
    found = []
    for _ in range(data_sets):
        qid = np.repeat(np.arange(setting.queries), setting.sizes(rng))
        X, y = setting.draw(rng, qid)
        estimate = estimate_concordance(setting.model(), X, y, qid=qid)
        truth = setting.truth(rng, setting.model().fit(X, y, qid=qid))
        found.append((estimate.value, truth, *estimate.interval, *mean_interval(estimate.per_fold)[1]))
    return setting._asdict() | coverage_of(found, "student")


def main() -> None:
    options = arguments(__doc__, repeats=600)
    results = []
    print("kernel  features  signal  queries  rows     truth  estimate  covers (width)   Student's alone")
    for number, setting in enumerate(settings()):
        found = coverage(setting, 3 if options.quick else options.repeats, seed=number)
        results.append(found)
        print(
            f"{setting.kernel:<6}  {setting.features:8d}  {setting.signal:<6}  {setting.queries:7d}  "
            f"{setting.rows!s:<7}  {found['true_value']:.3f}  {found['mean_estimate']:8.3f}  "
            f"{found['coverage']:.3f} ({found['mean_width']:.2f})     "
            f"{found['coverage_student']:.3f} ({found['mean_width_student']:.2f})",
            flush=True,
        )
    for name, key in (("interval", "coverage"), ("Student's alone", "coverage_student")):
        shares = np.array([found[key] for found in results])
        print(
            f"{name}: covers {shares.mean():.3f} on average, {shares.min():.3f} to {shares.max():.3f}; "
            f"{np.mean((shares >= 0.93) & (shares <= 0.97)):.0%} of the settings between 0.93 and 0.97"
        )
    if not options.quick:
        write_results("interval_coverage", *results)


if __name__ == "__main__":
    main()
