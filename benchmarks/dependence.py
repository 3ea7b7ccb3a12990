"""Simulated patients with several visits: are they reported, and is what is said about new patients right?

Five features and an outcome that is 1 where the sum of an effect of the patient (its intraclass correlation), noise of
the visit and perhaps the first feature is positive. For each size and setting: how often the dependence is reported,
how often a permutation test of patients finds something at 5 %, and of each estimate for new patients, which hold out
whole patients, its mean error and how often its 95 % interval contains the AUC of the model for visits of new patients.

    python benchmarks/dependence.py [--sets 30] [--reported 30] [--only PATTERN]

``--sets 0`` counts reports alone.
"""

from __future__ import annotations

import contextlib
import re
import warnings
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import norm

from _harness import arguments, write_results
from preflearn import RankRLS, RankRLSCV
from preflearn.errors import InputError
from preflearn.model_selection import estimate_auc, permutation_test
from preflearn.model_selection.dependence import find_dependence

SIZES = ((20, 2), (20, 10), (60, 3), (200, 2))
# Intraclass correlation of the features, of the outcome, and the effect of the first feature.
SETTINGS = (
    (0, 0, 0),
    (0.9, 0, 0),
    (0, 0, 1),
    (0, 0.5, 0),
    (0.9, 0.5, 0),
    (0.9, 0.9, 0),
    (0.9, 0, 1),
    (0.5, 0.5, 3),
)


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
        options: dict[str, Any] = {} if method == "leave-pair-out" else {"n_splits": 5, "random_state": 0}
        yield method, estimate_auc(RankRLS(10.0), X, y, groups=patient, method=method, **options), coef


def measure(setting: Patients, sets: int, seed: int) -> dict[str, Any]:
    rng, errors, covered, significant = np.random.default_rng(seed), {}, {}, []
    for _ in range(sets):
        X, y, patient = setting.draw(rng)
        for name, found, coef in estimates(X, y, patient):
            truth = setting.auc(coef)
            errors.setdefault(name, []).append(found.value - truth)
            covered.setdefault(name, []).append(found.interval[0] <= truth <= found.interval[1])
        with contextlib.suppress(InputError):  # too few permutations to find anything
            test = permutation_test(RankRLS(10.0), X, y, groups=patient, n_permutations=99, random_state=0)
            significant.append(test.pvalue <= 0.05)
    return {
        "sets": sets,
        "tested": len(significant),
        "significant": float(np.mean(significant)) if significant else None,
        "estimates": {
            name: {
                "mean_error": float(np.mean(found)),
                "standard_error": float(np.std(found) / len(found) ** 0.5),
                "coverage": float(np.mean(covered[name])),
            }
            for name, found in errors.items()
        },
    }


def main() -> None:
    warnings.simplefilter("ignore")
    options = arguments(__doc__, sets=30, reported=30, only="")
    sets, reported = (2, 2) if options.quick else (options.sets, options.reported)
    rng, results = np.random.default_rng(1), []
    for number, (size, values) in enumerate((size, values) for size in SIZES for values in SETTINGS):
        setting = Patients(*size, *values)
        if not re.search(options.only, str(setting)):
            continue
        share = float(np.mean([is_reported(rng, setting) for _ in range(reported)]))
        result = {"name": str(setting), "reported": share, "reported_of": reported}
        print(f"{setting}: reported in {share:.0%}", end="", flush=True)
        if sets:
            result |= measure(setting, sets, number)
            found = (
                f"{result['significant']:.0%} of {result['tested']}" if result["tested"] else "none tested"
            )
            print(f", significant in {found}")
            for name, one in result["estimates"].items():
                print(
                    f"    {name:<24} {one['mean_error']:+.3f} ({one['standard_error']:.3f}), {one['coverage']:.3f}"
                )
        else:
            print()
        results.append(result)
        if not options.quick:
            write_results("dependence", *results)


if __name__ == "__main__":
    main()
