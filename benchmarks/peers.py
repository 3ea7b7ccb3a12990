"""How do preflearn's learners compare with other rankers on the same data: quality, time, memory?

python benchmarks/peers.py --data FOLDER                        # every data set, every fold; hours
python benchmarks/peers.py --only generated                     # needs no data
python benchmarks/peers.py --data FOLDER --only ohsumed --fold 1 --contestant "CatBoost, QueryRMSE"
python benchmarks/peers.py --data FOLDER --jobs 16 --seconds 1500   # so many processes of one thread each, so long
python benchmarks/peers.py --record                             # the tables of what has been measured so far

Every contestant may use the training and the validation part as it likes: `rivals.py` says how those of other libraries
do; learners with cross-validation learn from both parts. Peers that are not installed are left out and named.

What has been measured is kept in a file (--cache, by default results/local/peers_cache.json) per data set, fold and
contestant, so that a run can be interrupted and continued; --again measures anew. The tables give the mean over folds
and its standard error, and the difference to AutoRanker with its standard error over all test queries.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np
from sklearn.preprocessing import StandardScaler

from _harness import RESULTS, machine, peak_memory, this_run, write_results
from preflearn import RLSCV, AutoRanker, RankRLSCV, RankSVMCV
from preflearn.metrics import average_precision, concordance, ndcg
from ranking_sets import DATA, Part
from rivals import RIVALS, Contestant, Trained, value

# KernelRidge keeps a full kernel matrix for every fold of its search.
_KERNEL_RIDGE_ROWS = 6000
_N_BASIS = 1000
_OURS = "preflearn AutoRanker"


# Contestants: functions of (train, validation) that give a predictor and the seconds of tuning and of training.


def _preflearn(search) -> Contestant:
    """A search of ours: tuned and trained by one call; training alone is timed again at the chosen alpha."""

    def train(part: Part, validation: Part) -> Trained:
        both = part + validation
        scaler = StandardScaler().fit(both.X)
        X = scaler.transform(both.X)
        model = search(X)
        extra = {"qid": both.qid} if not isinstance(model, RLSCV) else {"groups": both.qid}
        start = time.perf_counter()
        model.fit(X, both.y, **extra)
        whole = time.perf_counter() - start
        plain = _plain(model)
        start = time.perf_counter()
        plain.fit(X, both.y, **({"qid": both.qid} if "qid" in extra else {}))
        training = time.perf_counter() - start
        return Trained(
            lambda new: model.predict(scaler.transform(new.X)),
            whole - training,
            training,
            f"alpha {model.alpha_:.3g}",
        )

    return train


def _plain(model):
    """The learner of a search, at the alpha that it chose."""
    from preflearn import RLS, RankRLS, RankSVM

    learner = {RankRLSCV: RankRLS, RLSCV: RLS, RankSVMCV: RankSVM}[type(model)]
    names = learner().get_params(deep=False)
    params = {name: value for name, value in model.get_params(deep=False).items() if name in names}
    return learner(**{**params, "alpha": model.alpha_})


def _rankrls_rbf(X: np.ndarray) -> RankRLSCV:
    return RankRLSCV(
        kernel="rbf",
        gamma="median",
        n_basis=min(_N_BASIS, X.shape[0] // 2),
        random_state=0,
        scoring="ndcg",
    )


def auto_ranker(part: Part, validation: Part, preset: str | None = None) -> Trained:
    both = part + validation
    start = time.perf_counter()
    model = AutoRanker(preset=preset, random_state=0).fit(both.X, both.y, qid=both.qid)
    seconds = time.perf_counter() - start
    chosen = ", ".join(f"{one.name} {one.weight:.0%}" for one in model.leaderboard_ if one.weight >= 0.01)
    return Trained(lambda new: model.predict(new.X, qid=new.qid), seconds, 0.0, chosen)


def kernel_ridge(part: Part, validation: Part) -> Trained:
    from sklearn.kernel_ridge import KernelRidge

    rows = np.random.default_rng(0).permutation(part.X.shape[0])[:_KERNEL_RIDGE_ROWS]
    scaler = StandardScaler().fit(part.X)
    X, gamma = scaler.transform(part.X[rows]), 1.0 / part.X.shape[1]
    start = time.perf_counter()
    tried = []
    for alpha in 10.0 ** np.arange(-2, 4):
        model = KernelRidge(alpha=alpha, kernel="rbf", gamma=gamma).fit(X, part.centred[rows])
        tried.append((value(validation, model.predict(scaler.transform(validation.X))), alpha))
    tuning = time.perf_counter() - start
    model = KernelRidge(alpha=max(tried)[1], kernel="rbf", gamma=gamma)
    start = time.perf_counter()
    model.fit(X, part.centred[rows])
    return Trained(
        lambda new: model.predict(scaler.transform(new.X)),
        tuning,
        time.perf_counter() - start,
        f"alpha {max(tried)[1]:g}, {len(rows)} rows",
    )


CONTESTANTS: dict[str, Contestant] = {
    _OURS: auto_ranker,
    "preflearn AutoRanker, fast": partial(auto_ranker, preset="fast"),
    "preflearn RankRLS, linear": _preflearn(lambda X: RankRLSCV()),
    "preflearn RankRLS, RBF": _preflearn(_rankrls_rbf),
    **RIVALS,
    "scikit-learn KernelRidge": kernel_ridge,
    "preflearn RankSVM, linear": _preflearn(lambda X: RankSVMCV(cv=5)),
    "preflearn RLS, linear": _preflearn(lambda X: RLSCV()),
}


# Measuring: one data set, fold and contestant at a time, kept in a file.

_COLUMNS = {
    "concordance": ("concord.", 4),
    "ndcg_at_10": ("NDCG@10", 4),
    "map": ("MAP", 4),
    "cpu_s": ("CPU s", 1),
    "predict_us_a_row": ("µs a row", 2),
}


def measure(name: str, data: Path | None, fold: int, contestant: str, memory: bool) -> dict:
    """One training and its test."""
    train, validation, test = DATA[name][0](data, fold)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cpu = time.process_time()
        trained = CONTESTANTS[contestant](train, validation)
        cpu = time.process_time() - cpu
        start = time.perf_counter()
        scores = np.asarray(trained.predict(test), dtype=float)
        predicting = time.perf_counter() - start
    row = {
        "concordance": concordance(test.y, scores, test.qid),
        "ndcg_at_10": ndcg(test.y, scores, test.qid, k=10),
        "map": average_precision((test.y > 0).astype(float), scores, test.qid),
        "tuning_s": trained.tuning_seconds,
        "training_s": trained.training_seconds,
        "cpu_s": cpu,
        "predict_us_a_row": 1e6 * predicting / test.X.shape[0],
        "chosen": trained.chosen,
        "rows_train_validation_test": [part.X.shape[0] for part in (train, validation, test)],
        "of_queries": {
            "concordance": concordance(test.y, scores, test.qid, per_query=True).values.tolist(),
            "ndcg_at_10": ndcg(test.y, scores, test.qid, k=10, per_query=True).values.tolist(),
        },
        "measured": this_run(),
        "machine": machine(),
    }
    if memory:
        row["peak_mib"] = peak_memory(_prepare, _train_only, name, data, fold, contestant) / 2**20
    return row


def _prepare(name: str, data: Path | None, fold: int, contestant: str) -> tuple:
    train, validation, _ = DATA[name][0](data, fold)
    few = np.flatnonzero(train.qid < 4)
    small = Part(train.X[few], train.y[few], train.qid[few])
    try:
        CONTESTANTS[contestant](small, small)
    except ValueError:
        pass  # too few rows for its search; imports are done
    return contestant, train, validation


def _train_only(contestant: str, train: Part, validation: Part) -> None:
    CONTESTANTS[contestant](train, validation)


def _key(name: str, fold: int, contestant: str) -> str:
    return f"{name}/{fold}/{contestant}"


def measure_all(wanted: list[tuple[str, int, str]], options: argparse.Namespace) -> dict[str, dict]:
    """What the cache holds, and what it does not hold yet: each training in a process of its own."""
    cache: Path = options.cache
    known = json.loads(cache.read_text(encoding="utf-8")) if cache.exists() else {}
    missing = [one for one in wanted if options.again or _key(*one) not in known]
    for one, row in _measured(missing, options):
        if "error" in row:
            print(f"  {_key(*one)}: {row['error']}", flush=True)
            continue
        known[_key(*one)] = row
        cache.parent.mkdir(parents=True, exist_ok=True)
        cache.write_text(json.dumps(known) + "\n", encoding="utf-8")
        print(
            f"  {_key(*one)}: {row['concordance']:.4f} {row['ndcg_at_10']:.4f} {row['cpu_s']:.1f} s",
            flush=True,
        )
    return known


def _measured(
    missing: list[tuple[str, int, str]], options: argparse.Namespace
) -> Iterator[tuple[tuple, dict]]:
    environment = {**os.environ}
    if options.jobs > 1:
        environment.update(
            dict.fromkeys(("OMP_NUM_THREADS", "NUMBA_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
        )
    running: dict[tuple, subprocess.Popen] = {}
    waiting, end = list(missing), time.monotonic() + options.seconds
    while running or waiting:
        while waiting and len(running) < options.jobs and time.monotonic() < end:
            name, fold, contestant = one = waiting.pop(0)
            command = [sys.executable, sys.argv[0], "--one", name, str(fold), contestant]
            command += ["--data", str(options.data)] if options.data else []
            command += ["--memory"] if options.memory else []
            running[one] = subprocess.Popen(
                command, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
            )
        if time.monotonic() >= end:
            waiting = []
            for process in running.values():
                process.kill()
        for one in [one for one, process in running.items() if process.poll() is not None]:
            out, error = running.pop(one).communicate()
            last = (error.strip().splitlines() or ["stopped"])[-1]
            yield one, json.loads(out.splitlines()[-1]) if out.strip() else {"error": last}
        time.sleep(0.2)


# Tables


def table(name: str, known: dict[str, dict]) -> list[dict]:
    """Contestants, best first: their figures, how far AutoRanker is ahead, and who is first or as good."""
    measured = {}
    for contestant in CONTESTANTS:
        folds = [fold for fold in _folds(name, known) if _key(name, fold, contestant) in known]
        if folds:
            measured[contestant] = {fold: known[_key(name, fold, contestant)] for fold in folds}
    if not measured:
        return []
    rows = {contestant: _summary(list(found.values())) for contestant, found in measured.items()}
    most = max(map(len, measured.values()))
    complete = [contestant for contestant, found in measured.items() if len(found) == most]
    for column in ("concordance", "ndcg_at_10"):
        first = max(complete, key=lambda one: rows[one][column])
        for contestant, found in measured.items():
            row = rows[contestant]
            if contestant != _OURS and found.keys() <= measured.get(_OURS, {}).keys():
                ahead = _ahead(measured[_OURS], found, column)
                row[f"{column}_behind"], row[f"{column}_behind_error"] = ahead
            if contestant in complete:
                behind, error = _ahead(measured[first], found, column)
                row[f"{column}_first"], row[f"{column}_near"] = contestant == first, behind <= error
    named = [
        {"contestant": one, "folds": len(measured[one]), "complete": one in complete, **rows[one]}
        for one in measured
    ]
    return sorted(named, key=lambda row: (not row["complete"], -row["concordance"]))


def _folds(name: str, known: dict[str, dict]) -> list[int]:
    """Folds that at least half of the contestants finished of those that finished any."""
    finished = {
        fold: {one for one in CONTESTANTS if _key(name, fold, one) in known} for fold in range(DATA[name][1])
    }
    contestants = set().union(*finished.values())
    return [fold for fold, some in finished.items() if some and 2 * len(some) >= len(contestants)]


def _ahead(first: dict[int, dict], second: dict[int, dict], column: str) -> tuple[float, float]:
    """The mean difference over the test queries of the folds of ``second``, with its standard error."""
    values = [
        np.concatenate([some[fold]["of_queries"][column] for fold in second]) for some in (first, second)
    ]
    ahead = (values[0] - values[1])[~np.isnan(values[0] - values[1])]
    return float(ahead.mean()), float(ahead.std(ddof=1) / np.sqrt(ahead.size))


def _summary(found: list[dict]) -> dict:
    """Means over folds, and standard errors where there are several."""
    out: dict = {"chosen": [one["chosen"] for one in found], "measured": found[0]["measured"]}
    out["cpus"] = found[0]["machine"]["cpus"]
    out["test_queries"] = sum(len(one["of_queries"]["concordance"]) for one in found)
    for column in _COLUMNS:
        values = np.array([one[column] for one in found])
        out[column] = float(values.mean())
        if len(values) > 1:
            out[f"{column}_error"] = float(values.std(ddof=1) / np.sqrt(len(values)))
    return out


def since(names: list[str], known: dict[str, dict], earlier: dict[str, dict]) -> list[dict]:
    """What has become of AutoRanker since another measurement, over the same test queries."""
    rows = []
    for name in names:
        keys = [_key(name, fold, _OURS) for fold in range(DATA[name][1])]
        now, before = ({k: c[key] for k, key in enumerate(keys) if key in known} for c in (known, earlier))
        if now:
            row = {
                "data": name,
                "folds": len(now),
                "cpu_s": float(np.mean([one["cpu_s"] for one in now.values()])),
            }
            for column in ("concordance", "ndcg_at_10"):
                row[column], row[f"{column}_error"] = _ahead(now, before, column)
            rows.append(row)
    return rows


def _print_table(name: str, rows: list[dict]) -> None:
    titles = "".join(f"{title:>18}" for title, _ in _COLUMNS.values())
    print(f"\n{name}\n{'':38}folds{titles}{'AutoRanker ahead':>40}")
    for row in rows:
        cells = []
        for column, (_, digits) in _COLUMNS.items():
            error = row.get(f"{column}_error")
            cells.append(f"{row[column]:.{digits}f}" + ("" if error is None else f" ± {error:.{digits}f}"))
        if "concordance_behind" in row:
            cells += [
                f"{row[f'{column}_behind']:+.4f} ± {row[f'{column}_behind_error']:.4f}"
                for column in ("concordance", "ndcg_at_10")
            ]
        print(f"{row['contestant']:38}{row['folds']:5}" + "".join(f"{cell:>18}" for cell in cells))


def firsts(tables: dict[str, list[dict]]) -> list[dict]:
    """On how many sets each contestant is first, or at most a standard error of the paired difference behind it."""
    fields = [f"{column}_{what}" for column in ("concordance", "ndcg_at_10") for what in ("first", "near")]
    counts: dict[str, dict[str, int]] = {}
    for row in (row for rows in tables.values() for row in rows if row["complete"]):
        found = counts.setdefault(row["contestant"], dict.fromkeys(("sets", *fields), 0))
        found["sets"] += 1
        for field in fields:
            found[field] += row[field]
    order = sorted(
        counts, key=lambda name: (-counts[name]["concordance_near"], -counts[name]["ndcg_at_10_near"])
    )
    return [{"contestant": name, **counts[name]} for name in order]


def main(file: str = "peers") -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, help="the folder that holds the data")
    parser.add_argument("--only", choices=DATA, action="append")
    parser.add_argument("--contestant", choices=CONTESTANTS, action="append")
    parser.add_argument("--fold", type=int, action="append", help="from 0 on; all by default")
    parser.add_argument("--memory", action="store_true", help="also the peak memory of each")
    parser.add_argument(
        "--jobs", type=int, default=1, help="processes of one thread each; one uses all threads"
    )
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop what runs after so long")
    parser.add_argument("--cache", type=Path, default=RESULTS / "local" / "peers_cache.json")
    parser.add_argument("--again", action="store_true", help="measure what the cache holds, too")
    parser.add_argument("--record", action="store_true", help="measure nothing, write what the cache holds")
    parser.add_argument(
        "--since", type=Path, metavar="CACHE", help="an earlier one: how AutoRanker has changed"
    )
    parser.add_argument("--one", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        name, fold, contestant = options.one
        print(json.dumps(measure(name, options.data, int(fold), contestant, options.memory)))
        return
    names = options.only or (list(DATA) if options.data or options.record else ["generated"])
    wanted = [
        (name, fold, contestant)
        for name in names
        for fold in options.fold or range(DATA[name][1])
        for contestant in options.contestant or CONTESTANTS
    ]
    known = measure_all([] if options.record else wanted, options)
    if options.since:
        earlier = json.loads(options.since.read_text(encoding="utf-8"))
        rows = since(names, known, earlier)
        print("\n".join(map(str, rows)))
        write_results("peers_since", {"question": "AutoRanker, now minus before", "results": rows})
        return
    tables = {name: rows for name in names if (rows := table(name, known))}
    for name, rows in tables.items():
        _print_table(name, rows)
    if options.record:
        results = [{"question": f"rankers on {name}", "results": rows} for name, rows in tables.items()]
        write_results(file, *results, {"question": "first, or as good", "results": firsts(tables)})


if __name__ == "__main__":
    main()
