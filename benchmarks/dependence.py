"""Simulated patients with several visits: are they reported, and is what is said about new patients right?

Five features and an outcome that is 1 where the sum of an effect of the patient (its intraclass correlation), noise of
the visit and perhaps the first feature is positive. For each size and setting: how often the dependence is reported,
how often a permutation test of patients finds something at 5 %, and of each estimate for new patients, which hold out
whole patients, its mean error and how often its 95 % interval contains the AUC of the model for visits of new patients.

    python benchmarks/dependence.py [--sets 100] [--only PATTERN] [--jobs 16 --seconds 400]
"""

from __future__ import annotations

import contextlib
import re
import warnings
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import norm

from _harness import arguments, in_processes, write_results
from preflearn import RankRLS, RankRLSCV
from preflearn.errors import InputError
from preflearn.model_selection import estimate_auc, permutation_test
from preflearn.model_selection.dependence import find_dependence

SIZES = tuple((patients, visits) for visits in (2, 5, 10) for patients in (20, 60, 200))
# Intraclass correlation of the features, of the outcome, and the effect of the first feature.
SETTINGS = (
    (0, 0, 0),
    (0.9, 0, 0),
    (0, 0.5, 0),
    (0.9, 0.5, 0),
    (0.9, 0.9, 0),
    (0, 0, 3),
    (0.5, 0.5, 3),
    (0.9, 0.9, 3),
    (0.9, 0, 1),
)
EVERY = tuple((*size, *values) for values in SETTINGS for size in SIZES)
# Rows up to which every pair of patients is left out.
MOST_ROWS = 300


class Patients(NamedTuple):
    """One row of the table."""

    n_patients: int
    visits: int
    alike: float
    outcome: float
    effect: float

    def __str__(self) -> str:
        what = (
            f"correlation of features {self.alike:g}, of the outcome {self.outcome:g}, effect {self.effect:g}"
        )
        return f"{self.n_patients} patients, {self.visits} visits, {what}"

    def draw(self, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Features, outcomes and patients; both outcomes are there, in two patients at least."""
        patient = np.repeat(np.arange(self.n_patients), self.visits)

        def values(correlation: float) -> np.ndarray:
            own, noise = rng.normal(size=self.n_patients)[patient], rng.normal(size=patient.size)
            return np.sqrt(correlation) * own + np.sqrt(1 - correlation) * noise

        while True:
            X = np.column_stack([values(self.alike) for _ in range(5)])
            y = (values(self.outcome) + self.effect * X[:, 0] > 0) * 1.0
            if min(np.unique(patient[y == one]).size for one in (0, 1)) > 1:
                return X, y, patient

    def auc(self, coef: np.ndarray) -> float:
        """Of a linear model among visits of different patients: score and outcome are two normal variables, one cut."""
        r = float(coef[0] / np.linalg.norm(coef) * self.effect / np.sqrt(1 + self.effect**2))
        above = norm.ppf(0.5 + (np.arange(300) + 0.5) / 600)
        return float(norm.cdf(r * np.add.outer(above, above) / np.sqrt(2 * (1 - r**2))).mean())


def is_reported(rng: np.random.Generator, setting: Patients) -> bool:
    X, y, patient = setting.draw(rng)
    return find_dependence({"patient": patient, **{f"x{k}": X[:, k] for k in range(5)}}, y) is not None


def estimates(X: np.ndarray, y: np.ndarray, patient: np.ndarray) -> Iterator[tuple[str, Any, np.ndarray]]:
    """The name of an estimate, the estimate, and the coefficients of the model that it is about."""
    search = RankRLSCV().fit(X, y, groups=patient)
    yield "estimate_ of RankRLSCV", search.estimate_, search.coef_
    coef = RankRLS(10.0).fit(X, y).coef_
    for method in ("averaged", "leave-pair-out"):
        if method == "averaged" or y.size <= MOST_ROWS:
            options: dict[str, Any] = {} if method == "leave-pair-out" else {"n_splits": 5, "random_state": 0}
            yield method, estimate_auc(RankRLS(10.0), X, y, groups=patient, method=method, **options), coef


def measure(part: tuple[int, int]) -> dict[str, Any]:
    """What one data set of a setting shows."""
    rng, setting = np.random.default_rng(part), Patients(*EVERY[part[0]])
    X, y, patient = setting.draw(rng)
    found: dict[str, Any] = {"estimates": {}, "reported": is_reported(rng, setting)}
    for name, one, coef in estimates(X, y, patient):
        truth, (low, high) = setting.auc(coef), one.interval
        found["estimates"][name] = one.value - truth, low <= truth <= high, high - low
    with contextlib.suppress(InputError):  # too few permutations to find anything
        test = permutation_test(RankRLS(10.0), X, y, groups=patient, n_permutations=99, random_state=0)
        found["significant"] = test.pvalue <= 0.05
    return found


def summary(setting: Patients, found: list[dict[str, Any]]) -> dict[str, Any]:
    tested = [one["significant"] for one in found if "significant" in one]
    estimates = {}
    for name in found[-1]["estimates"]:
        errors, covered, widths = np.array([one["estimates"][name] for one in found], dtype=float).T
        estimates[name] = {
            "mean_error": float(errors.mean()),
            "standard_error": float(errors.std() / len(errors) ** 0.5),
            "coverage": float(covered.mean()),
            "mean_width": float(widths.mean()),
        }
    return {
        "name": str(setting),
        "sets": len(found),
        "reported": float(np.mean([one["reported"] for one in found])),
        "tested": len(tested),
        "significant": float(np.mean(tested)) if tested else None,
        "estimates": estimates,
    }


def main() -> None:
    warnings.simplefilter("ignore")
    options = arguments(__doc__, sets=100, jobs=1, seconds=float("inf"), only="")
    sets = 2 if options.quick else options.sets
    asked = [number for number, one in enumerate(EVERY) if re.search(options.only, str(Patients(*one)))]
    parts = [(number, k) for k in range(sets) for number in asked]
    found: dict[int, list[dict[str, Any]]] = {number: [] for number in asked}
    for (number, _), one in in_processes(measure, parts, jobs=options.jobs, seconds=options.seconds):
        found[number].append(one)
    results = [summary(Patients(*EVERY[number]), found[number]) for number in asked if found[number]]
    for one in results:
        test = f"{one['significant']:.0%} of {one['tested']}" if one["tested"] else "none tested"
        print(f"{one['name']}: reported in {one['reported']:.0%}, significant in {test}, {one['sets']} sets")
        for name, of in one["estimates"].items():
            print(
                f"    {name:<24} {of['mean_error']:+.3f} ({of['standard_error']:.3f}), covers {of['coverage']:.3f}, "
                f"width {of['mean_width']:.3f}"
            )
    for name in dict.fromkeys(name for one in results for name in one["estimates"]):
        shares = [one["estimates"][name]["coverage"] for one in results if name in one["estimates"]]
        print(f"{name}: {np.mean(shares):.3f} on average, {min(shares):.3f} to {max(shares):.3f}")
    if not (options.quick or options.only):
        write_results("dependence", *results)


if __name__ == "__main__":
    main()
