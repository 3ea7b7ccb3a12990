"""How often does the permutation test find something in noise, where rows depend on each other?

Patients with several visits: the features of a patient's visits share an effect as large as their own noise, and the
label is noise. Of ``--sets`` data sets the share with p ≤ 0.05, for labels permuted as ``groups=`` asks, and for single
rows permuted with the same folds of whole patients, which is what a test without groups does. Then the same with a
signal: the share that is found.

    one label, ...        each patient is healthy or ill, or has one number; of 5 visits, or 1 to 10
    labels vary, ...      each visit has its own label, and the patient's labels have a level of their own
    some vary             every second patient has one label
    hospitals             patients with one number, compared inside five hospitals (qid)

    python benchmarks/permutation.py [--quick] [--sets 500] [--permutations 199]
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from sklearn.model_selection import GroupKFold

from _harness import arguments, write_results
from preflearn import RankRLS
from preflearn.model_selection import permutation_test

PATIENTS, VISITS, FEATURES = 20, 5, 5
LEVEL = 0.05


class Setting(NamedTuple):
    """One row of the table: labels from the patient of each row, and the options of the test."""

    name: str
    labels: Callable[[np.random.Generator, np.ndarray], np.ndarray]
    sizes: Callable[[np.random.Generator], np.ndarray] = lambda rng: np.full(PATIENTS, VISITS)
    cv: Any = None
    hospitals: int = 1

    def draw(self, rng: np.random.Generator, signal: float) -> tuple[np.ndarray, ...]:
        patient = np.repeat(np.arange(PATIENTS), self.sizes(rng))
        X = rng.normal(size=(PATIENTS, FEATURES))[patient] + rng.normal(size=(patient.shape[0], FEATURES))
        y = self.labels(rng, patient)
        X[:, 0] += signal * (y - y.mean()) / y.std()
        return X, y, patient, patient % self.hospitals

    def folds(self, patient: np.ndarray, hospital: np.ndarray, *, one_label: bool) -> list[np.ndarray]:
        """Whole patients, for a test that does not know of them."""
        if self.hospitals > 1:
            return [np.flatnonzero(hospital == one) for one in range(self.hospitals)]
        n_folds = 5 if one_label or self.cv is not None else PATIENTS
        return [test for _, test in GroupKFold(n_folds).split(patient, groups=patient)]

    def pvalues(self, rng: np.random.Generator, signal: float, n: int) -> tuple[float, float]:
        """By groups, and by rows."""
        X, y, patient, hospital = self.draw(rng, signal)
        options = {"n_permutations": n, "random_state": int(rng.integers(1 << 30))}
        if self.hospitals > 1:
            options["qid"] = hospital
        by_groups = permutation_test(RankRLS(), X, y, groups=patient, cv=self.cv, **options)
        one_label = all(np.ptp(y[patient == one]) == 0 for one in range(PATIENTS))
        folds = self.folds(patient, hospital, one_label=one_label)
        return by_groups.pvalue, permutation_test(RankRLS(), X, y, cv=folds, **options).pvalue


def ill(rng: np.random.Generator, patient: np.ndarray) -> np.ndarray:
    return rng.permutation(np.arange(PATIENTS) % 2)[patient].astype(float)


def number(rng: np.random.Generator, patient: np.ndarray) -> np.ndarray:
    return rng.normal(size=PATIENTS)[patient]


def varying(rng: np.random.Generator, patient: np.ndarray) -> np.ndarray:
    return 2 * rng.normal(size=PATIENTS)[patient] + rng.normal(size=patient.shape[0])


def varying_classes(rng: np.random.Generator, patient: np.ndarray) -> np.ndarray:
    return (varying(rng, patient) > 0).astype(float)


def some_varying(rng: np.random.Generator, patient: np.ndarray) -> np.ndarray:
    y, one = varying(rng, patient), number(rng, patient)
    return np.where(patient % 2 == 0, y, one)


def unequal(rng: np.random.Generator) -> np.ndarray:
    return rng.integers(1, 11, PATIENTS)


SETTINGS = (
    Setting("one label, two classes", ill),
    Setting("one label, two classes, unequal visits", ill, unequal),
    Setting("one label, two classes, GroupKFold(5)", ill, cv=GroupKFold(5)),
    Setting("one label, a number", number),
    Setting("labels vary, numbers", varying),
    Setting("labels vary, two classes", varying_classes),
    Setting("labels vary, numbers, GroupKFold(5)", varying, cv=GroupKFold(5)),
    Setting("some vary", some_varying),
    Setting("hospitals, a number", number, hospitals=5),
)


def answers(sets: int, n: int) -> Iterator[dict[str, Any]]:
    for row, setting in enumerate(SETTINGS):
        found = {}
        for name, signal, repeats in (("noise", 0.0, sets), ("signal", 1.0, max(2, sets // 5))):
            rng = np.random.default_rng((row, int(signal)))
            p = np.array([setting.pvalues(rng, signal, n) for _ in range(repeats)])
            found[name] = {
                "sets": repeats,
                "significant": float((p[:, 0] <= LEVEL).mean()),
                "significant_by_rows": float((p[:, 1] <= LEVEL).mean()),
            }
        yield {"question": setting.name, **found}


def main() -> None:
    warnings.simplefilter("ignore")
    options = arguments(__doc__, sets=500, permutations=199)
    results = []
    head = ("noise", "by rows", "signal", "by rows")
    print(f"{'significant at 5 %':<42}" + "".join(f"{name:>9}" for name in head))
    for row in answers(10 if options.quick else options.sets, 19 if options.quick else options.permutations):
        results.append(row)
        shares = [row[name][which] for name in ("noise", "signal") for which in list(row[name])[1:]]
        print(f"{row['question']:<42}" + "".join(f"{share:>9.1%}" for share in shares), flush=True)
    if not options.quick:
        write_results("permutation", *results)


if __name__ == "__main__":
    main()
