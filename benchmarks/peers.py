"""How do preflearn's learners compare with other rankers on the same data: quality, time, memory?

python benchmarks/peers.py --data FOLDER                        # every data set, every fold; hours
python benchmarks/peers.py --only generated                     # needs no data
python benchmarks/peers.py --data FOLDER --only ohsumed --fold 1 --contestant CatBoost
python benchmarks/peers.py --only ohsumed --memory              # also the peak memory of each, in a process of its own
python benchmarks/peers.py --record                             # the tables of what has been measured so far

Every contestant may use the training and the validation part as it likes: trees stop early on the validation part and
choose among eight settings by it; learners with cross-validation learn from both parts. Features are standardised
inside the contestant where its method wants that; "with query features" are trees that are also given each feature
standardised inside its query. Peers that are not installed are left out and named.

What has been measured is kept in a file (--cache, by default results/local/peers_cache.json) per data set, fold and
contestant, so that a run can be interrupted and continued; --again measures anew. The tables give the mean over folds
and its standard error.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path

import numpy as np
from sklearn.preprocessing import StandardScaler

from _harness import RESULTS, peak_memory, write_results
from preflearn import RLSCV, AutoRanker, RankRLSCV, RankSVMCV
from preflearn.io import read_ranking
from preflearn.metrics import average_precision, concordance, ndcg
from preflearn.preprocessing import QueryRelative

# KernelRidge keeps a full kernel matrix for every fold of its search.
_KERNEL_RIDGE_ROWS = 6000
_N_BASIS = 1000


@dataclass(frozen=True)
class Part:
    """Rows of a data set, those of a query side by side."""

    X: np.ndarray
    y: np.ndarray
    qid: np.ndarray

    @property
    def sizes(self) -> np.ndarray:
        return np.unique(self.qid, return_counts=True)[1]

    def __add__(self, other: Part) -> Part:
        later = other.qid + self.qid.max() + 1
        return Part(np.r_[self.X, other.X], np.r_[self.y, other.y], np.r_[self.qid, later])


# Data


def generated(_: Path | None, fold: int) -> tuple[Part, Part, Part]:
    """A LETOR-like set: 46 correlated, skewed features, grades 0 to 4, queries of 20 to 150 rows."""
    rng = np.random.default_rng(fold)
    mixing = rng.normal(size=(12, 46))
    weights = rng.normal(size=12)

    def part(n_queries: int) -> Part:
        qid = np.repeat(np.arange(n_queries), rng.integers(20, 151, n_queries))
        hidden = rng.normal(size=(qid.shape[0], 12))
        utility = hidden @ weights / 2 + np.abs(hidden[:, 0]) * hidden[:, 1] + rng.normal(size=qid.shape[0])
        utility += 2 * rng.normal(size=n_queries)[qid]
        X = np.exp(0.3 * (hidden @ mixing + rng.normal(size=(qid.shape[0], 46))))
        return Part(X, np.digitize(utility, [1.0, 2.5, 4.0, 5.5]).astype(float), qid)

    return part(150), part(50), part(100)


def letor_parts(folder: str, pattern: str, missing: float | None = None) -> Callable:
    """Five parts: in fold k the parts k, k + 1, k + 2 train, k + 3 validates and k + 4 tests."""

    def read(data: Path | None, fold: int) -> tuple[Part, Part, Part]:
        names = [pattern.format(1 + (fold + step) % 5) for step in range(5)]
        return _read_parts(data, folder, (names[:3], names[3:4], names[4:]), missing)

    return read


def letor_files(folder: str, *names: str) -> Callable:
    """One file to train on, one to validate, one to test."""

    def read(data: Path | None, fold: int) -> tuple[Part, Part, Part]:
        return _read_parts(data, folder, tuple([name] for name in names))

    return read


def _read_parts(
    data: Path | None, folder: str, names: tuple[list[str], ...], missing: float | None = None
) -> tuple[Part, Part, Part]:
    if data is None:
        raise FileNotFoundError(f"{folder} lies in a folder that --data names")
    parts = [_read_part([data / folder / one for one in some], missing) for some in names]
    width = max(part.X.shape[1] for part in parts)
    first, second, third = (
        Part(np.pad(part.X, ((0, 0), (0, width - part.X.shape[1]))), part.y, part.qid) for part in parts
    )
    return first, second, third


def mslr_10k(data: Path | None, fold: int) -> tuple[Part, Part, Part]:
    """A training and a test file; a fifth of the training queries validates."""
    train, _, test = _read_parts(
        data,
        "mslr_sample",
        tuple([f"web10k_fold1_{part}_5k.txt.xz"] for part in ("train", "train", "test")),
    )
    return (*_split_off_validation(train, fold), test)


def _split_off_validation(whole: Part, fold: int) -> tuple[Part, Part]:
    queries = np.random.default_rng(fold).permutation(whole.qid.max() + 1)
    validates = np.isin(whole.qid, queries[: len(queries) // 5])
    first, second = (Part(whole.X[rows], whole.y[rows], whole.qid[rows]) for rows in (~validates, validates))
    return first, second


def lightgbm_example(data: Path | None, fold: int) -> tuple[Part, Part, Part]:
    """The example of LightGBM's own documentation; a fifth of its training queries validates."""
    import lzma

    from sklearn.datasets import load_svmlight_file

    if data is None:
        raise FileNotFoundError("lightgbm_lambdarank lies in a folder that --data names")
    found = []
    for part in ("train", "test"):
        with lzma.open(data / "lightgbm_lambdarank" / f"rank.{part}.xz") as file:
            X, y = load_svmlight_file(file, n_features=301)
        sizes = np.loadtxt(data / "lightgbm_lambdarank" / f"rank.{part}.query", dtype=int)
        found.append(Part(X.toarray()[:, 1:], y, np.repeat(np.arange(len(sizes)), sizes)))
    whole, test = found
    return (*_split_off_validation(whole, fold), test)


def _read_part(paths: list[Path], missing: float | None = None) -> Part:
    parts = []
    for path in paths:
        data = read_ranking(path, missing=missing)
        X = data.X.toarray() if hasattr(data.X, "toarray") else np.asarray(data.X)
        codes = np.unique(data.qid, return_inverse=True)[1]
        order = np.argsort(codes, kind="stable")
        parts.append(Part(X[order].astype(np.float64), data.y[order].astype(float), codes[order]))
    width = max(part.X.shape[1] for part in parts)
    total = None
    for part in parts:
        part = Part(np.pad(part.X, ((0, 0), (0, width - part.X.shape[1]))), part.y, part.qid)
        total = part if total is None else total + part
    return total


# Each with the number of its folds.
DATA: dict[str, tuple[Callable, int]] = {
    "ohsumed": (letor_parts("letor_ohsumed_v2", "S{}.txt.xz"), 5),
    "ohsumed3": (letor_parts("letor_ohsumed_v3", "QueryLevelNorm/S{}.txt.xz"), 5),
    "mq2007": (letor_parts("letor_mq2007", "partial46_S{}.txt.xz"), 5),
    # Ranks in 21 lists; a document that a list does not name has none. Trees and AutoRanker take missing values.
    "mq2007agg": (letor_parts("letor_mq2007", "agg_S{}.txt.xz", missing=np.nan), 5),
    "mslr": (
        letor_files(
            "mslr_sample", *(f"web30k_fold1_{part}_sample.txt.xz" for part in ("train", "vali", "test"))
        ),
        1,
    ),
    "mslr10k": (mslr_10k, 1),
    "lightgbm": (lightgbm_example, 1),
    "generated": (generated, 5),
}


# Contestants: functions of (train, validation) that give a predictor and the seconds of tuning and of training.


@dataclass
class Trained:
    predict: Callable[[Part], np.ndarray]
    tuning_seconds: float
    training_seconds: float
    chosen: str


def _preflearn(search, **fit_with_qid) -> Callable[[Part, Part], Trained]:
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


def _width(X: np.ndarray) -> float:
    """gamma: one over the median squared distance of some rows."""
    rng = np.random.default_rng(0)
    first, second = (X[rng.integers(0, X.shape[0], 2000)] for _ in range(2))
    return 1.0 / float(np.median(((first - second) ** 2).sum(axis=1)))


def kernel_ridge(part: Part, validation: Part) -> Trained:
    from sklearn.kernel_ridge import KernelRidge

    rows = np.random.default_rng(0).permutation(part.X.shape[0])[:_KERNEL_RIDGE_ROWS]
    scaler = StandardScaler().fit(part.X)
    X, gamma = scaler.transform(part.X[rows]), _width(scaler.transform(part.X))
    start = time.perf_counter()
    best = (-np.inf, 0.0)
    for alpha in 10.0 ** np.arange(-2, 4):
        model = KernelRidge(alpha=alpha, kernel="rbf", gamma=gamma).fit(X, part.y[rows])
        value = ndcg(validation.y, model.predict(scaler.transform(validation.X)), validation.qid, k=10)
        best = max(best, (value, alpha))
    tuning = time.perf_counter() - start
    model = KernelRidge(alpha=best[1], kernel="rbf", gamma=gamma)
    start = time.perf_counter()
    model.fit(X, part.y[rows])
    training = time.perf_counter() - start
    return Trained(
        lambda new: model.predict(scaler.transform(new.X)),
        tuning,
        training,
        f"alpha {best[1]:g}, {len(rows)} rows",
    )


def _tuned(make: Callable, grid: list[dict]) -> Callable[[Part, Part], Trained]:
    """Trees: every setting stops early on the validation part, the best there is kept."""

    def train(part: Part, validation: Part) -> Trained:
        tried = []
        start = time.perf_counter()
        for setting in grid:
            begun = time.perf_counter()
            predict = make(part, validation, **setting)
            seconds = time.perf_counter() - begun
            value = ndcg(validation.y, predict(validation.X), validation.qid, k=10)
            tried.append((value, seconds, setting, predict))
        whole = time.perf_counter() - start
        _, seconds, setting, predict = max(tried, key=lambda one: one[0])
        chosen = ", ".join(f"{k} {v}" for k, v in setting.items())
        return Trained(lambda new: predict(new.X), whole - seconds, seconds, chosen)

    return train


def _with_query_features(train: Callable[[Part, Part], Trained]) -> Callable[[Part, Part], Trained]:
    """The same contestant, given each feature standardised inside its query as well."""

    def widened(part: Part) -> Part:
        return Part(QueryRelative().fit_transform(part.X, qid=part.qid), part.y, part.qid)

    def train_widened(part: Part, validation: Part) -> Trained:
        found = train(widened(part), widened(validation))
        predict = found.predict
        found.predict = lambda new: predict(widened(new))
        return found

    return train_widened


def _ndcg_at_10(y: np.ndarray, scores: np.ndarray, qid: np.ndarray) -> float:
    """As a function, by which members are combined; by name it is only reported."""
    return ndcg(y, scores, qid, k=10)


def auto_ranker(part: Part, validation: Part, scoring: str | Callable = "concordance") -> Trained:
    both = part + validation
    start = time.perf_counter()
    model = AutoRanker(scoring=scoring, random_state=0).fit(both.X, both.y, qid=both.qid)
    seconds = time.perf_counter() - start
    chosen = ", ".join(f"{one.name} {one.weight:.0%}" for one in model.leaderboard_ if one.weight >= 0.01)
    return Trained(lambda new: model.predict(new.X, qid=new.qid), seconds, 0.0, chosen)


TREE_GRID = [
    {"leaves": leaves, "rate": rate, "least": least}
    for leaves, rate, least in product((15, 63), (0.03, 0.1), (20, 80))
]


def lightgbm(part: Part, validation: Part, leaves: int, rate: float, least: int):
    import lightgbm

    model = lightgbm.LGBMRanker(
        n_estimators=400,
        num_leaves=leaves,
        learning_rate=rate,
        min_child_samples=least,
        random_state=0,
        verbosity=-1,
    )
    model.fit(
        part.X,
        part.y.astype(int),
        group=part.sizes,
        eval_set=[(validation.X, validation.y.astype(int))],
        eval_group=[validation.sizes],
        eval_at=[10],
        callbacks=[lightgbm.early_stopping(30, verbose=False)],
    )
    return model.predict


def xgboost(part: Part, validation: Part, leaves: int, rate: float, least: int):
    import xgboost

    model = xgboost.XGBRanker(
        n_estimators=400,
        max_leaves=leaves,
        grow_policy="lossguide",
        learning_rate=rate,
        min_child_weight=least / 4,
        tree_method="hist",
        objective="rank:ndcg",
        eval_metric="ndcg@10",
        early_stopping_rounds=30,
        random_state=0,
    )
    model.fit(
        part.X,
        part.y.astype(int),
        qid=part.qid,
        eval_set=[(validation.X, validation.y.astype(int))],
        eval_qid=[validation.qid],
        verbose=False,
    )
    return model.predict


def catboost(part: Part, validation: Part, leaves: int, rate: float, least: int):
    from catboost import CatBoostRanker, Pool

    model = CatBoostRanker(
        iterations=400,
        depth=4 if leaves == 15 else 6,
        learning_rate=rate,
        l2_leaf_reg=3 if least == 20 else 10,
        loss_function="YetiRank",
        eval_metric="NDCG:top=10",
        early_stopping_rounds=30,
        random_seed=0,
        verbose=False,
        allow_writing_files=False,
    )
    model.fit(
        Pool(part.X, part.y, group_id=part.qid),
        eval_set=Pool(validation.X, validation.y, group_id=validation.qid),
    )
    return model.predict


XRFM_GRID = [
    {"bandwidth": bandwidth, "ridge": ridge} for bandwidth, ridge in product((5.0, 20.0), (1e-2, 1.0, 30.0))
]


def xrfm(part: Part, validation: Part, bandwidth: float, ridge: float):
    """Regression by a kernel with a learned metric, on standardised features and targets centred inside queries."""
    from xrfm import xRFM

    scaler = StandardScaler().fit(part.X)

    def centred(one: Part) -> np.ndarray:
        means = np.bincount(one.qid, one.y) / np.bincount(one.qid)
        return (one.y - means[one.qid])[:, None].astype(np.float32)

    def seen(X: np.ndarray) -> np.ndarray:
        return scaler.transform(X).astype(np.float32)

    kernel = {
        "kernel": "l2",
        "bandwidth": bandwidth,
        "exponent": 1.0,
        "diag": True,
        "bandwidth_mode": "constant",
    }
    fitting = {"reg": ridge, "iters": 3, "verbose": False, "early_stop_rfm": True}
    model = xRFM(
        {"model": kernel, "fit": fitting}, device="cpu", tuning_metric="mse", random_state=0, verbose=False
    )
    model.fit(seen(part.X), centred(part), seen(validation.X), centred(validation))
    return lambda X: np.asarray(model.predict(seen(X)), dtype=float).ravel()


def rlscore(part: Part, validation: Part) -> Trained:
    from rlscore.learner import QueryRankRLS

    scaler = StandardScaler().fit(part.X)
    X = scaler.transform(part.X)
    start = time.perf_counter()
    learner = QueryRankRLS(X, part.y, part.qid, regparam=1.0)
    best = (-np.inf, 0.0)
    for power in range(-5, 16, 2):
        learner.solve(2.0**power)
        value = ndcg(validation.y, learner.predict(scaler.transform(validation.X)), validation.qid, k=10)
        best = max(best, (value, 2.0**power))
    tuning = time.perf_counter() - start
    start = time.perf_counter()
    learner = QueryRankRLS(X, part.y, part.qid, regparam=best[1])
    training = time.perf_counter() - start
    return Trained(
        lambda new: learner.predict(scaler.transform(new.X)),
        tuning,
        training,
        f"regparam {best[1]:g}, linear",
    )


def rankrls_rbf(X):
    return RankRLSCV(
        kernel="rbf", gamma=_width(X), n_basis=min(_N_BASIS, X.shape[0] // 2), random_state=0, scoring="ndcg"
    )


CONTESTANTS: dict[str, Callable[[Part, Part], Trained]] = {
    "preflearn AutoRanker": auto_ranker,
    "preflearn AutoRanker, choices by NDCG@10": partial(auto_ranker, scoring=_ndcg_at_10),
    "preflearn RankRLS, linear": _preflearn(lambda X: RankRLSCV()),
    "preflearn RankRLS, RBF": _preflearn(rankrls_rbf),
    "preflearn RankSVM, linear": _preflearn(lambda X: RankSVMCV(cv=5)),
    "preflearn RLS, linear": _preflearn(lambda X: RLSCV()),
    "RLScore QueryRankRLS": rlscore,
    "scikit-learn KernelRidge": kernel_ridge,
    "LightGBM": _tuned(lightgbm, TREE_GRID),
    "XGBoost": _tuned(xgboost, TREE_GRID),
    "CatBoost": _tuned(catboost, TREE_GRID),
    "xRFM": _tuned(xrfm, XRFM_GRID),
    "LightGBM, query features": _with_query_features(_tuned(lightgbm, TREE_GRID)),
    "XGBoost, query features": _with_query_features(_tuned(xgboost, TREE_GRID)),
    "CatBoost, query features": _with_query_features(_tuned(catboost, TREE_GRID)),
}


# Measuring: one data set, fold and contestant at a time, kept in a file.

_COLUMNS = {
    "concordance": ("concord.", 4),
    "ndcg_at_10": ("NDCG@10", 4),
    "map": ("MAP", 4),
    "total_s": ("seconds", 1),
    "cpu_s": ("CPU s", 1),
    "predict_us_a_row": ("µs a row", 2),
}


def measure(name: str, data: Path | None, fold: int, contestant: str, memory: bool) -> dict:
    """One training and its test."""
    train, validation, test = DATA[name][0](data, fold)
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
        "total_s": trained.tuning_seconds + trained.training_seconds,
        "cpu_s": cpu,
        "predict_us_a_row": 1e6 * predicting / test.X.shape[0],
        "chosen": trained.chosen,
        "rows_train_validation_test": [part.X.shape[0] for part in (train, validation, test)],
    }
    if memory:
        row["peak_mib"] = peak_memory(_prepare, _train_only, name, data, fold, contestant) / 2**20
    return row


def run(
    name: str,
    data: Path | None,
    contestants: list[str],
    folds: list[int],
    memory: bool,
    cache: Path,
    again: bool,
    record: bool,
) -> dict:
    """All folds of a data set; what the cache holds is not measured again, and with ``record`` nothing else is."""
    known = json.loads(cache.read_text(encoding="utf-8")) if cache.exists() else {}
    rows = []
    for contestant in contestants:
        found = []
        for fold in folds:
            key = f"{name}/{fold}/{contestant}"
            if record and key not in known:
                continue
            if again or key not in known:
                try:
                    known[key] = measure(name, data, fold, contestant, memory)
                except ImportError as error:
                    print(f"{contestant:28} not installed ({error.name})")
                    break
                cache.parent.mkdir(parents=True, exist_ok=True)
                cache.write_text(json.dumps(known, indent=1) + "\n", encoding="utf-8")
            found.append(known[key])
            print(f"  {key}: {found[-1]['concordance']:.4f} {found[-1]['ndcg_at_10']:.4f}", flush=True)
        if found:
            rows.append({"contestant": contestant, "folds": len(found), **_summary(found)})
    if rows:
        _print_table(name, rows)
    return {"question": f"rankers on {name}", "results": rows}


def _summary(found: list[dict]) -> dict:
    """Means over folds, and standard errors where there are several."""
    out: dict = {}
    for column in _COLUMNS:
        values = np.array([one[column] for one in found])
        out[column] = float(values.mean())
        if len(values) > 1:
            out[f"{column}_error"] = float(values.std(ddof=1) / np.sqrt(len(values)))
    return out


def _print_table(name: str, rows: list[dict]) -> None:
    print(f"\n{name}\n{'':28}" + "".join(f"{title:>18}" for title, _ in _COLUMNS.values()))
    for row in sorted(rows, key=lambda one: -one["concordance"]):
        cells = []
        for column, (_, digits) in _COLUMNS.items():
            error = row.get(f"{column}_error")
            cells.append(f"{row[column]:.{digits}f}" + ("" if error is None else f" ± {error:.{digits}f}"))
        print(f"{row['contestant']:28}" + "".join(f"{cell:>18}" for cell in cells))


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


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, help="the folder that holds letor_ohsumed_v2 and the others")
    parser.add_argument("--only", choices=DATA, action="append")
    parser.add_argument("--contestant", choices=CONTESTANTS, action="append")
    parser.add_argument("--fold", type=int, action="append", help="from 0 on; all by default")
    parser.add_argument("--memory", action="store_true")
    parser.add_argument("--cache", type=Path, default=RESULTS / "local" / "peers_cache.json")
    parser.add_argument("--again", action="store_true", help="measure what the cache holds, too")
    parser.add_argument("--record", action="store_true", help="measure nothing, write what the cache holds")
    options = parser.parse_args()
    names = options.only or (list(DATA) if options.data or options.record else ["generated"])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = []
        for name in names:
            folds = options.fold or list(range(DATA[name][1]))
            wanted = options.contestant or list(CONTESTANTS)
            found.append(
                run(
                    name,
                    options.data,
                    wanted,
                    folds,
                    options.memory,
                    options.cache,
                    options.again,
                    options.record,
                )
            )
        if not options.contestant and not options.fold:
            write_results("peers", *found)
