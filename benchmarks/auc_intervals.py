"""How often does the 95 % interval of a leave-pair-out estimate hold the true value of the model?

Normal rows, of which the first feature tells the classes apart, or adds to y. The truth is the AUC or concordance, on
unseen rows, of the model trained on all rows: by formula for the linear kernel, on 2000 fresh rows for the RBF kernel.
Beside the interval of ``estimate_auc`` and ``estimate_concordance`` stands the one that takes the models as given
(DeLong's variance alone). Tens of thousands of data sets are held out by the routines behind the estimators, without
the checks of the input; the first data set of each setting is also given to ``estimate_concordance``, which must agree.

    python benchmarks/auc_intervals.py [--quick] [--repeats DATA_SETS] [--jobs 16 --seconds 600]
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

import numpy as np
from scipy.spatial.distance import cdist
from scipy.stats import norm

from _harness import arguments, coverage_of, in_processes, write_results
from preflearn import RankRLS
from preflearn.comparisons import compare_scores, one_group
from preflearn.model_selection import estimate_concordance
from preflearn.model_selection._intervals import (
    freedom_of,
    most_effective,
    optimism,
    placement_variance,
    wilson_interval,
)
from preflearn.model_selection._tally import tally_pairs, tally_scores
from preflearn.squared.holdout.pair import dual_pair_system
from preflearn.squared.problem import dual_problem

ALPHA = 1.0
TEST_ROWS = 2000
STRENGTH = {
    "AUC": {"none": 0.0, "weak": 0.7, "strong": 2.0},
    "concordance": {"none": 0.0, "weak": 0.4, "strong": 1.5},
}


class Setting(NamedTuple):
    measure: str
    kernel: str
    rows: int
    positive: float | None
    features: int
    signal: str

    @property
    def strength(self) -> float:
        return STRENGTH[self.measure][self.signal]

    def draw(self, rng: np.random.Generator, rows: int, positive: float | None):
        X = rng.normal(size=(rows, self.features))
        if self.measure == "concordance":
            return X, self.strength * X[:, 0] + rng.normal(size=rows)
        y = (np.arange(rows) < round((positive or 0.5) * rows)).astype(float)
        X[:, 0] += self.strength * y
        return X, y

    def gram(self, A: np.ndarray, B: np.ndarray) -> np.ndarray:
        return A @ B.T if self.kernel == "linear" else np.exp(-cdist(A, B, "sqeuclidean") / self.features)

    def truth(self, rng: np.random.Generator, X: np.ndarray, coef: np.ndarray) -> float:
        if self.kernel == "linear":
            w = X.T @ coef
            share = w[0] / np.linalg.norm(w)  # of the first feature in the prediction
            if self.measure == "AUC":
                return float(norm.cdf(self.strength * share / np.sqrt(2)))
            correlation = share * self.strength / np.sqrt(self.strength**2 + 1)
            return float(0.5 + np.arcsin(correlation) / np.pi)
        X_new, y_new = self.draw(rng, TEST_ROWS, None)
        return tally_scores(y_new, self.gram(X_new, X) @ coef, one_group(TEST_ROWS)).share


def settings() -> Iterator[Setting]:
    for rows, kernel, features in itertools.product((30, 200), ("linear", "rbf"), (1, 2, 10, 50)):
        for signal in ("none", "weak", "strong"):
            for positive in (0.5, 0.1):
                yield Setting("AUC", kernel, rows, positive, features, signal)
            yield Setting("concordance", kernel, rows, None, features, signal)


def intervals(setting: Setting, X: np.ndarray, y: np.ndarray):
    """The estimate, its interval, the interval that takes the models as given, and the coefficients of the model."""
    K = setting.gram(X, X)
    task = compare_scores(y[:, None], one_group(y.shape[0]))
    pairs = np.argwhere(np.triu(y[:, None] != y))
    held_out = dual_pair_system(K.copy(), task, ALPHA).predictions(pairs)[:, :2, 0]
    coef = dual_problem(K.copy(), task).solve(ALPHA)[:, 0]
    fitted = (K @ coef)[pairs]
    tally = tally_pairs(y, pairs, held_out)
    strata = y.astype(int) if setting.measure == "AUC" else np.zeros(y.shape[0], dtype=int)
    lost = optimism(y[pairs] @ [1, -1], held_out @ [1, -1], fitted @ [1, -1])
    basis = tally.share, placement_variance(tally, strata), most_effective(y)
    interval = wilson_interval(*basis, optimism=lost, freedom=freedom_of(y))
    return tally.share, interval, wilson_interval(*basis), coef


def check(setting: Setting, X: np.ndarray, y: np.ndarray) -> None:
    gamma = 1.0 / setting.features if setting.kernel == "rbf" else None
    found = estimate_concordance(RankRLS(ALPHA, kernel=setting.kernel, gamma=gamma), X, y, random_state=0)
    value, interval, *_ = intervals(setting, X, y)
    np.testing.assert_allclose([value, *interval], [found.value, *found.interval], atol=1e-6)


def coverage(data_sets: int, setting: Setting) -> dict:
    rng = np.random.default_rng(list(settings()).index(setting))
    found = []
    for number in range(data_sets):
        X, y = setting.draw(rng, setting.rows, setting.positive)
        if number == 0:
            check(setting, X, y)
        value, interval, as_given, coef = intervals(setting, X, y)
        found.append((value, setting.truth(rng, X, coef), *interval, *as_given))
    return setting._asdict() | coverage_of(found, "models_as_given")


def main() -> None:
    options = arguments(__doc__, repeats=400, jobs=1, seconds=3600.0)
    cells = sorted(settings(), key=lambda setting: -setting.rows)
    work = partial(coverage, 3 if options.quick else options.repeats)
    found_of = dict(in_processes(work, cells, jobs=options.jobs, seconds=options.seconds))
    results = [found_of[setting] for setting in settings() if setting in found_of]
    print("measure      kernel  rows  positive  features  signal   truth   covers (width)   models as given")
    for found in results:
        positive = "" if found["positive"] is None else f"{found['positive']:.0%}"
        print(
            f"{found['measure']:<11}  {found['kernel']:<6}  {found['rows']:4d}  {positive:>8}  "
            f"{found['features']:8d}  {found['signal']:<6}  {found['true_value']:6.3f}   "
            f"{found['coverage']:.3f} ({found['mean_width']:.2f})     "
            f"{found['coverage_models_as_given']:.3f} ({found['mean_width_models_as_given']:.2f})"
        )
    summary = over_settings(results)
    print(summary)
    if not options.quick:
        write_results("auc_intervals", *results, summary)


def over_settings(results: list[dict]) -> dict:
    """The shares in per cent over the settings of the documentation's table, which leaves out 200 rows with RBF."""
    shown = [one for one in results if (one["rows"], one["kernel"]) != (200, "rbf")]
    summary: dict = {"question": "over the settings", "settings": len(shown)}
    for name in ("coverage", "coverage_models_as_given"):
        share = 100 * np.array([one[name] for one in shown])
        summary[name] = {"mean": share.mean(), "least": share.min(), "most": share.max()}
        summary[name] |= {"below 93": int((share < 93).sum()), "above 97": int((share > 97).sum())}
    return summary


if __name__ == "__main__":
    main()
