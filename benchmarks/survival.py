"""Censored times: how long do a million rows take, and how well are patients ordered beside scikit-survival?

    python benchmarks/survival.py [--sets veteran,Pbc3,NSBCD,rott2] [--repeats 10] [--only speed | accuracy]
        [--python /path/to/an/environment/with/scikit-survival/bin/python] [--theirs Cox,Coxnet,...]

A million rows of 20 features: the C-index, `RankRLS` linear and with a reduced set of 500; 100,000 rows with a reduced
set. C-index on data sets of `PREFLEARN_DATA` (survival), ten times five folds, every setting chosen inside the training
part, beside learners of scikit-survival in the other environment, each tuned by a grid over three inner folds. A set
that is measured again replaces its results, others stay."""

from __future__ import annotations

import json
import subprocess
import time
import warnings
from typing import Any

import numpy as np
import pandas as pd
from sklearn.model_selection import KFold

from _harness import arguments, data_folder, kept_results, peak_memory, write_results
from preflearn import AutoRanker, RankRLS, RankRLSCV, RankSVMCV
from preflearn.metrics import concordance

# Runs where scikit-survival is installed: reads a set with its folds, prints the C-index and CPU seconds of each fold.
THEIRS = """
import json, sys, time, warnings
import numpy as np
from sklearn.model_selection import GridSearchCV
from sksurv.ensemble import GradientBoostingSurvivalAnalysis, RandomSurvivalForest
from sksurv.linear_model import CoxnetSurvivalAnalysis, CoxPHSurvivalAnalysis
from sksurv.metrics import concordance_index_censored
from sksurv.svm import FastKernelSurvivalSVM
from sksurv.util import Surv
warnings.simplefilter("ignore")
data = json.load(sys.stdin)
X, t, e = np.array(data["X"]), np.array(data["times"]), np.array(data["events"])

def coxnet(X, y):
    path = CoxnetSurvivalAnalysis(l1_ratio=0.5, alpha_min_ratio=0.01).fit(X, y).alphas_
    return GridSearchCV(CoxnetSurvivalAnalysis(l1_ratio=0.5), {"alphas": [[one] for one in path[::5]]}, cv=3)

def kernel(X, y):
    gammas = [0.1 / X.shape[1], 1 / X.shape[1]]
    learner = FastKernelSurvivalSVM(kernel="rbf", random_state=0, max_iter=50)
    return GridSearchCV(learner, {"alpha": [0.01, 1.0, 100.0], "gamma": gammas}, cv=3)

boosting = GradientBoostingSurvivalAnalysis(subsample=0.5, random_state=0)
forest = RandomSurvivalForest(200, random_state=0)
learners = {
    "Cox": lambda X, y: GridSearchCV(CoxPHSurvivalAnalysis(), {"alpha": [0.01, 1.0, 100.0, 1e4]}, cv=3),
    "Coxnet": coxnet,
    "forest": lambda X, y: GridSearchCV(forest, {"min_samples_leaf": [3, 10, 30]}, cv=3),
    "boosting": lambda X, y: GridSearchCV(boosting, {"n_estimators": [50, 150], "max_depth": [1, 3]}, cv=3),
    "kernel SVM": kernel,
}
found, seconds = {}, {}
for name in data["learners"]:
    for test in data["folds"]:
        rest = np.setdiff1d(np.arange(len(t)), test)
        y, start = Surv.from_arrays(e[rest], t[rest]), time.process_time()
        risk = learners[name](X[rest], y).fit(X[rest], y).predict(X[test])
        seconds.setdefault(name, []).append(time.process_time() - start)
        found.setdefault(name, []).append(concordance_index_censored(e[test], t[test], risk)[0])
print(json.dumps([found, seconds]))
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
    seconds, of_processors = {}, {}
    for name, task in tasks.items():
        start, of_start = time.perf_counter(), time.process_time()
        task()
        seconds[name] = round(time.perf_counter() - start, 2)
        of_processors[name] = round(time.process_time() - of_start, 2)
        print(f"{seconds[name]:8.2f} s, of processors {of_processors[name]:8.2f} s  {name}", flush=True)
    peak = peak_memory(study, fit_part, part)
    print(f"{peak / 1e9:8.2f} GB more for the reduced set of {part:,} rows", flush=True)
    return {
        "question": "seconds",
        "seconds": seconds,
        "processor_seconds": of_processors,
        "peak_bytes_of_part": peak,
    }


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


def ours(m: int) -> dict[str, Any]:
    rbf = {"kernel": "rbf", "gamma": "median", "n_basis": min(400, m // 2), "random_state": 0}
    inner = KFold(5, shuffle=True, random_state=0)
    return {
        "RankRLS, linear": RankRLSCV(cv=inner),
        "RankSVM, linear": RankSVMCV(cv=3),
        "RankRLS, RBF": RankRLSCV(cv=inner, **rbf),
        "AutoRanker": AutoRanker(random_state=0),
    }


def accuracy(name: str, repeats: int, python: str, theirs: list[str]) -> dict[str, Any]:
    X, times, events = read(name)
    orders = [np.random.default_rng(repeat).permutation(len(times)) for repeat in range(repeats)]
    folds = [order[k::5] for order in orders for k in range(5)]
    found: dict[str, list[float]] = {}
    seconds: dict[str, list[float]] = {}
    for test in folds:
        rest = np.setdiff1d(np.arange(len(times)), test)
        for kind, model in ours(len(times)).items():
            start = time.process_time()
            model.fit(X[rest], times[rest], event=events[rest])
            seconds.setdefault(kind, []).append(time.process_time() - start)
            found.setdefault(kind, []).append(model.score(X[test], times[test], event=events[test]))
    if python:
        given = {"X": X.tolist(), "times": times.tolist(), "events": events.tolist(), "learners": theirs}
        given["folds"] = [test.tolist() for test in folds]
        done = subprocess.run(
            [python, "-c", THEIRS], input=json.dumps(given), capture_output=True, text=True, check=True
        )
        for mine, other in zip((found, seconds), json.loads(done.stdout), strict=True):
            mine |= other
    table = {kind: np.reshape(values, (repeats, 5)).mean(axis=1) for kind, values in found.items()}
    best = max(table, key=lambda kind: table[kind].mean())
    for kind, values in table.items():
        # Of the difference to the best in the same folds; folds share rows, so that it is rather too small.
        d = np.array(found[kind]) - found[best]
        spread = d.std(ddof=1) / np.sqrt(d.size)
        print(
            f"{name:8}  {values.mean():.4f}  {d.mean():+.4f} ± {spread:.4f}  {np.mean(seconds[kind]):7.1f} s  {kind}",
            flush=True,
        )
    return {
        "question": name,
        "c_index": found,
        "seconds": {kind: float(np.mean(v)) for kind, v in seconds.items()},
    }


def main() -> None:
    warnings.simplefilter("ignore")
    theirs = "Cox,Coxnet,forest,boosting,kernel SVM"
    options = arguments(
        __doc__, repeats=10, only="", python="", sets="veteran,Pbc3,NSBCD,rott2", theirs=theirs
    )
    results = [] if options.only == "accuracy" else [speed(20_000 if options.quick else 1_000_000)]
    if options.only == "speed":
        pass
    elif data_folder("survival") is None:
        print("PREFLEARN_DATA does not name a folder with survival: the C-indices are left out.")
    else:
        if not options.python:
            print("Without --python (an environment with scikit-survival) its learners are left out.")
        repeats = 1 if options.quick else options.repeats
        for name in options.sets.split(","):
            results.append(accuracy(name, repeats, options.python, options.theirs.split(",")))
    if not options.quick:
        write_results("survival", *kept_results("survival", results), *results)


if __name__ == "__main__":
    main()
