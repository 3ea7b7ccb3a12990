"""Censored times: how long do a million rows take, and how well are patients ordered beside scikit-survival?

    python benchmarks/survival.py --only speed
    python benchmarks/survival.py --only accuracy [--sets veteran,Pbc3] [--contestants AutoRanker,Cox] [--repeats 10]
        [--jobs 16 --seconds 300]    # so many processes of one thread each, so long

A million rows of 20 features: the C-index, `RankRLS` linear and with a reduced set of 500; 100,000 rows with a reduced
set. C-index on data sets of `PREFLEARN_DATA` (survival): repeated five folds, and 80 patients drawn at random, the rest
to test; every setting is chosen inside the training part. Learners of scikit-survival are measured where it is
installed, each tuned by a grid over three inner folds. What is measured again replaces its results, others stay."""

from __future__ import annotations

import functools
import itertools
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
from sklearn.model_selection import GridSearchCV, KFold

from _harness import arguments, data_folder, in_processes, kept_results, peak_memory, write_results
from preflearn import AutoRanker, RankRLS, RankRLSCV, RankSVMCV
from preflearn.metrics import concordance

# Repeats of five folds; or draws of 80 patients.
SETS = {"veteran": 10, "Pbc3": 10, "NSBCD": 10, "rott2": 3, "80 of Pbc3": 20, "80 of rott2": 20}


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


@functools.cache
def read(name: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    folder = data_folder("survival")
    assert folder is not None
    table = pd.read_csv(folder / f"{name.removeprefix('80 of ')}.csv.xz")
    X = pd.get_dummies(table.drop(columns=["pid", "time", "event"]), dtype=float)
    X = X.fillna(X.median())
    X = ((X - X.mean()) / X.std().replace(0.0, 1.0)).to_numpy()
    return X, table["time"].to_numpy(float), table["event"].to_numpy() == 1


def parts(name: str, number: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows to train on and to test: of a fold, or of a draw."""
    m = len(read(name)[0])
    if name.startswith("80 of"):
        order = np.random.default_rng(number).permutation(m)
        return order[:80], order[80:]
    repeat, fold = divmod(number, 5)
    test = np.random.default_rng(repeat).permutation(m)[fold::5]
    return np.setdiff1d(np.arange(m), test), test


OURS = ("AutoRanker", "linear RankRLS", "linear RankSVM", "RBF RankRLS")
# The share of the test parts that a slow contestant is measured on.
SHARE = {"kernel SVM": 0.3}

# Contestants: functions of (rows, times, events) that give a function from rows to scores, higher ones live longer.


def ours(make: Callable[[int], Any]) -> Callable:
    return lambda X, times, events: make(len(X)).fit(X, times, event=events).predict


def theirs(learner: Any, grid: dict | Callable) -> Callable:
    """The learner of scikit-survival, which predicts risks, with the best setting of a grid."""
    from sksurv.util import Surv

    def train(X: np.ndarray, times: np.ndarray, events: np.ndarray) -> Callable:
        y = Surv.from_arrays(events, times)
        settings = grid(X, y) if callable(grid) else grid
        model = GridSearchCV(learner, settings, cv=3).fit(X, y)
        return lambda new: -model.predict(new)

    return train


def contestants() -> dict[str, Callable]:
    inner, rbf = (
        KFold(5, shuffle=True, random_state=0),
        {"kernel": "rbf", "gamma": "median", "random_state": 0},
    )
    found = {
        "AutoRanker": ours(lambda m: AutoRanker(random_state=0)),
        "linear RankRLS": ours(lambda m: RankRLSCV(cv=inner)),
        "linear RankSVM": ours(lambda m: RankSVMCV(cv=3)),
        "RBF RankRLS": ours(lambda m: RankRLSCV(cv=inner, n_basis=min(400, m // 2), **rbf)),
    }
    try:
        from sksurv.ensemble import GradientBoostingSurvivalAnalysis, RandomSurvivalForest
        from sksurv.linear_model import CoxnetSurvivalAnalysis, CoxPHSurvivalAnalysis
        from sksurv.svm import FastKernelSurvivalSVM
    except ImportError:
        return found
    coxnet = CoxnetSurvivalAnalysis(l1_ratio=0.5, alpha_min_ratio=0.05)

    def penalties(X: np.ndarray, y: np.ndarray) -> dict:
        return {"alphas": [[one] for one in coxnet.fit(X, y).alphas_[::5]]}

    def widths(X: np.ndarray, y: np.ndarray) -> dict:
        return {"alpha": [0.01, 1.0, 100.0], "gamma": [0.1 / X.shape[1], 1 / X.shape[1]]}

    forest = RandomSurvivalForest(200, random_state=0)
    boosting = GradientBoostingSurvivalAnalysis(subsample=0.5, random_state=0)
    svm = FastKernelSurvivalSVM(kernel="rbf", random_state=0, max_iter=50)
    return found | {
        "Cox": theirs(CoxPHSurvivalAnalysis(), {"alpha": [0.01, 1.0, 100.0, 1e4]}),
        "Coxnet": theirs(coxnet, penalties),
        "forest": theirs(forest, {"min_samples_leaf": [3, 10, 30]}),
        "boosting": theirs(boosting, {"n_estimators": [50, 150], "max_depth": [1, 3]}),
        "kernel SVM": theirs(svm, widths),
    }


def measure(cell: tuple[str, int, str]) -> tuple[float, float]:
    """The C-index of the test part, and processor seconds of training with tuning."""
    name, number, contestant = cell
    X, times, events = read(name)
    rest, test = parts(name, number)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        start = time.process_time()
        predict = contestants()[contestant](X[rest], times[rest], events[rest])
        seconds = time.process_time() - start
        return round(concordance(times[test], predict(X[test]), event=events[test]), 5), round(seconds, 3)


def accuracy(names: list[str], wanted: list[str], repeats: int, jobs: int, seconds: float) -> list[dict]:
    """A result for each set and contestant, with None for test parts that there was no time for.

    What the results hold of learners of scikit-survival is not measured again.
    """
    sizes = {name: min(repeats, SETS[name]) * (1 if name.startswith("80 of") else 5) for name in names}
    known = {
        (name, number, one["contestant"]): (c_index, one["seconds"][number])
        for one in kept_results("survival", [])
        for name in [one.get("set")]
        if one.get("contestant") not in (None, *OURS)
        for number, c_index in enumerate(one["c_index"])
        if c_index is not None
    }
    cells = [
        (name, number, one)
        for name, one in itertools.product(names, wanted)
        for number in range(round(SHARE.get(one, 1) * sizes[name]))
    ]
    cells.sort(key=lambda cell: cell[1] / sizes[cell[0]])  # all sets and contestants advance together
    missing = [cell for cell in cells if cell not in known]
    found = known | dict(in_processes(measure, missing, jobs=jobs, seconds=seconds))
    results = []
    for name, one in itertools.product(names, wanted):
        c_index, taken = zip(
            *(found.get((name, k, one), (None, None)) for k in range(sizes[name])), strict=True
        )
        if any(value is not None for value in c_index):
            question = {"question": f"{name}: {one}", "set": name, "contestant": one}
            results.append(question | {"c_index": c_index, "seconds": taken})
    return results


def compare(results: list[dict]) -> None:
    """Add to each result its mean, and how far AutoRanker is ahead in the test parts that both have; print them."""
    for name in SETS:
        rows = [one for one in results if one.get("set") == name]
        values = {one["contestant"]: np.array(one["c_index"], float) for one in rows}
        for one in sorted(rows, key=lambda one: -np.nanmean(values[one["contestant"]])):
            c, auto = values[one["contestant"]], values.get("AutoRanker", np.array([]))
            size = min(len(c), len(auto))
            d = (auto[:size] - c[:size])[~np.isnan(auto[:size] - c[:size])]
            one["mean"], one["shown"] = float(np.nanmean(c)), f"{np.nanmean(c):.4f}"
            if one["contestant"] != "AutoRanker" and d.size > 1:
                # Test parts share training rows, so that the error of the difference is rather too small.
                one["shown"] += f" ({d.mean():+.4f} ± {d.std(ddof=1) / np.sqrt(d.size):.4f})"
            print(f"{name:12}  {one['shown']:25} {d.size:2} parts  {one['contestant']}")


def main() -> None:
    warnings.simplefilter("ignore")
    sets, everyone = ",".join(SETS), ",".join(contestants())
    options = arguments(__doc__, repeats=10, only="", sets=sets, contestants=everyone, jobs=1, seconds=1e6)
    results = [] if options.only == "accuracy" else [speed(20_000 if options.quick else 1_000_000)]
    if options.only != "speed" and data_folder("survival") is None:
        print("PREFLEARN_DATA does not name a folder with survival: the C-indices are left out.")
    elif options.only != "speed":
        repeats = 1 if options.quick else options.repeats
        names, wanted = options.sets.split(","), options.contestants.split(",")
        results += accuracy(names, wanted, repeats, options.jobs, options.seconds)
    if not options.quick:
        results = [*kept_results("survival", results), *results]
    compare(results)
    if not options.quick:
        write_results("survival", *results)


if __name__ == "__main__":
    main()
