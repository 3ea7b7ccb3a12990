"""Censored times: how long do a million rows take, and how well are patients ordered beside scikit-survival?

    python benchmarks/survival.py --python /path/to/an/environment/with/scikit-survival/bin/python

A million rows of 20 features: the C-index, `RankRLS` linear and with a reduced set of 500; 100,000 rows with a reduced
set. C-index on data sets of `PREFLEARN_DATA` (survival), two times five folds, each alpha and kernel width chosen
inside the training part, beside Cox regression with a ridge and gradient boosting of scikit-survival in the other
environment."""

from __future__ import annotations

import json
import subprocess
import time
import warnings
from typing import Any

import numpy as np
import pandas as pd
from sklearn.model_selection import KFold

from _harness import arguments, data_folder, peak_memory, write_results
from preflearn import RankRLS, RankRLSCV, RankSVMCV
from preflearn.metrics import concordance

# Runs where scikit-survival is installed: reads sets with their folds, prints the C-index of each fold.
THEIRS = """
import json, sys, warnings
import numpy as np
from sklearn.model_selection import GridSearchCV
from sksurv.ensemble import GradientBoostingSurvivalAnalysis
from sksurv.linear_model import CoxPHSurvivalAnalysis
from sksurv.metrics import concordance_index_censored
from sksurv.util import Surv
warnings.simplefilter("ignore")
data = json.load(sys.stdin)
X, t, e = np.array(data["X"]), np.array(data["times"]), np.array(data["events"])
found = {"Cox, ridge": [], "gradient boosting": []}
for test in data["folds"]:
    rest = np.setdiff1d(np.arange(len(t)), test)
    models = {
        "Cox, ridge": GridSearchCV(CoxPHSurvivalAnalysis(), {"alpha": [0.01, 1.0, 100.0, 1e4]}, cv=3),
        "gradient boosting": GradientBoostingSurvivalAnalysis(n_estimators=100, subsample=0.5, random_state=0),
    }
    for name, model in models.items():
        risk = model.fit(X[rest], Surv.from_arrays(e[rest], t[rest])).predict(X[test])
        found[name].append(concordance_index_censored(e[test], t[test], risk)[0])
print(json.dumps(found))
"""


def study(m: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(m, 20))
    lived = np.exp(X[:, :5].sum(axis=1) / 2) * rng.exponential(size=m)
    censored = 2 * rng.exponential(size=m)
    return X, np.minimum(lived, censored), lived <= censored


def fit(X: np.ndarray, times: np.ndarray, events: np.ndarray, options: dict[str, Any]) -> RankRLS:
    return RankRLS(**options).fit(X, times, event=events)


def speed(m: int) -> dict[str, Any]:
    X, times, events = study(m)
    part = m // 10
    basis = {"kernel": "rbf", "gamma": 0.02, "n_basis": 500, "random_state": 0}
    tasks = {
        f"C-index, {m:,} rows": lambda: concordance(times, X[:, 0], event=events),
        f"linear, {m:,} x 20": lambda: fit(X, times, events, {}),
        f"reduced set of 500, {m:,} x 20": lambda: fit(X, times, events, basis),
        f"reduced set of 500, {part:,} x 20": lambda: fit(X[:part], times[:part], events[:part], basis),
    }
    fit(X[:2000], times[:2000], events[:2000], basis)
    concordance(times[:2000], X[:2000, 0], event=events[:2000])
    seconds = {}
    for name, task in tasks.items():
        start = time.perf_counter()
        task()
        seconds[name] = round(time.perf_counter() - start, 2)
        print(f"{seconds[name]:8.2f} s  {name}", flush=True)
    peak = peak_memory(study, fit_part, part)
    print(f"{peak / 1e9:8.2f} GB more for the reduced set of {part:,} rows", flush=True)
    return {"question": "seconds", "seconds": seconds, "peak_bytes_of_part": peak}


def fit_part(X: np.ndarray, times: np.ndarray, events: np.ndarray) -> None:
    fit(X, times, events, {"kernel": "rbf", "gamma": 0.02, "n_basis": 500, "random_state": 0})


def read(name: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    folder = data_folder("survival")
    assert folder is not None
    table = pd.read_csv(folder / f"{name}.csv.xz")
    X = pd.get_dummies(table.drop(columns=["pid", "time", "event"]), dtype=float)
    X = X.fillna(X.median())
    X = ((X - X.mean()) / X.std().replace(0.0, 1.0)).to_numpy()
    return X, table["time"].to_numpy(float), table["event"].to_numpy() == 1


def accuracy(name: str, python: str | None) -> dict[str, Any]:
    X, times, events = read(name)
    folds = []
    for repeat in range(2):
        order = np.random.default_rng(repeat).permutation(len(times))
        folds += [order[k::5] for k in range(5)]
    found: dict[str, list[float]] = {"RankRLS, linear": [], "RankSVM, linear": [], "RankRLS, RBF": []}
    rbf = {"kernel": "rbf", "gamma": "median", "n_basis": min(400, len(times) // 2), "random_state": 0}
    inner = KFold(5, shuffle=True, random_state=0)
    for test in folds:
        rest = np.setdiff1d(np.arange(len(times)), test)
        models = {
            "RankRLS, linear": RankRLSCV(cv=inner),
            "RankSVM, linear": RankSVMCV(cv=3),
            "RankRLS, RBF": RankRLSCV(cv=inner, **rbf),
        }
        for kind, model in models.items():
            model.fit(X[rest], times[rest], event=events[rest])
            found[kind].append(model.score(X[test], times[test], event=events[test]))
    if python:
        told = {"X": X.tolist(), "times": times.tolist(), "events": events.tolist()}
        told["folds"] = [test.tolist() for test in folds]
        done = subprocess.run(
            [python, "-c", THEIRS], input=json.dumps(told), capture_output=True, text=True, check=True
        )
        found |= json.loads(done.stdout)
    for kind, values in found.items():
        print(f"{name:8}  {np.mean(values):.3f}  {kind}", flush=True)
    return {"question": name, "c_index": found}


def main() -> None:
    warnings.simplefilter("ignore")
    options = arguments(__doc__, python="", sets="veteran,Pbc3,rott2")
    results = [speed(20_000 if options.quick else 1_000_000)]
    if data_folder("survival") is None:
        print("PREFLEARN_DATA does not name a folder with survival: the C-indices are left out.")
    else:
        if not options.python:
            print("Without --python (an environment with scikit-survival) its learners are left out.")
        results += [accuracy(name, options.python) for name in options.sets.split(",")]
    write_results("survival", *results)


if __name__ == "__main__":
    main()
