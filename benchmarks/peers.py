"""How do preflearn's learners compare with other rankers on the same data: quality, time, memory?

python benchmarks/peers.py --data FOLDER             # letor_ohsumed_v2, letor_mq2007, mslr_sample, generated
python benchmarks/peers.py --only generated          # needs no data
python benchmarks/peers.py --only ohsumed --memory   # also the peak memory of each, in a process of its own

Every contestant may use the training and the validation part as it likes: trees stop early on the validation part and
choose among a few settings by it; learners with exact cross-validation learn from both parts. Features are
standardised inside the contestant where its method wants that. Peers that are not installed are left out and named.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import numpy as np
from sklearn.preprocessing import StandardScaler

from _harness import peak_memory, write_results
from preflearn import RLSCV, RankRLSCV, RankSVMCV
from preflearn.io import read_ranking
from preflearn.metrics import average_precision, concordance, ndcg

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


def generated(_: Path | None) -> tuple[Part, Part, Part]:
    """A LETOR-like set: 46 correlated, skewed features, grades 0 to 4, queries of 20 to 150 rows."""
    rng = np.random.default_rng(0)
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


def letor(folder: str, train: list[str], validation: list[str], test: list[str]) -> Callable:
    def read(data: Path | None) -> tuple[Part, Part, Part]:
        if data is None:
            raise FileNotFoundError(f"{folder} lies in a folder that --data names")
        return tuple(
            _read_part([data / folder / name for name in names]) for names in (train, validation, test)
        )

    return read


def _read_part(paths: list[Path]) -> Part:
    parts = []
    for path in paths:
        data = read_ranking(path)
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


DATA = {
    "ohsumed": letor(
        "letor_ohsumed_v2", ["S1.txt.xz", "S2.txt.xz", "S3.txt.xz"], ["S4.txt.xz"], ["S5.txt.xz"]
    ),
    "mq2007": letor(
        "letor_mq2007",
        [f"partial46_S{k}.txt.xz" for k in (1, 2, 3)],
        ["partial46_S4.txt.xz"],
        ["partial46_S5.txt.xz"],
    ),
    "mslr": letor(
        "mslr_sample",
        ["web30k_fold1_train_sample.txt.xz"],
        ["web30k_fold1_vali_sample.txt.xz"],
        ["web30k_fold1_test_sample.txt.xz"],
    ),
    "generated": generated,
}


# Contestants: functions of (train, validation) that give a predictor and the seconds of tuning and of training.


@dataclass
class Trained:
    predict: Callable[[np.ndarray], np.ndarray]
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
            lambda new: model.predict(scaler.transform(new)),
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
        lambda new: model.predict(scaler.transform(new)),
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
        return Trained(predict, whole - seconds, seconds, ", ".join(f"{k} {v}" for k, v in setting.items()))

    return train


TREE_GRID = [{"leaves": leaves, "rate": rate} for leaves, rate in product((15, 63), (0.03, 0.1))]


def lightgbm(part: Part, validation: Part, leaves: int, rate: float):
    import lightgbm

    model = lightgbm.LGBMRanker(
        n_estimators=400, num_leaves=leaves, learning_rate=rate, random_state=0, verbosity=-1
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


def xgboost(part: Part, validation: Part, leaves: int, rate: float):
    import xgboost

    model = xgboost.XGBRanker(
        n_estimators=400,
        max_leaves=leaves,
        grow_policy="lossguide",
        learning_rate=rate,
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


def catboost(part: Part, validation: Part, leaves: int, rate: float):
    from catboost import CatBoostRanker, Pool

    model = CatBoostRanker(
        iterations=400,
        depth=4 if leaves == 15 else 6,
        learning_rate=rate,
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
        lambda new: learner.predict(scaler.transform(new)), tuning, training, f"regparam {best[1]:g}, linear"
    )


def rankrls_rbf(X):
    return RankRLSCV(
        kernel="rbf", gamma=_width(X), n_basis=min(_N_BASIS, X.shape[0] // 2), random_state=0, scoring="ndcg"
    )


CONTESTANTS: dict[str, Callable[[Part, Part], Trained]] = {
    "preflearn RankRLS, linear": _preflearn(lambda X: RankRLSCV()),
    "preflearn RankRLS, RBF": _preflearn(rankrls_rbf),
    "preflearn RankSVM, linear": _preflearn(lambda X: RankSVMCV(cv=5)),
    "preflearn RLS, linear": _preflearn(lambda X: RLSCV()),
    "RLScore QueryRankRLS": rlscore,
    "scikit-learn KernelRidge": kernel_ridge,
    "LightGBM": _tuned(lightgbm, TREE_GRID),
    "XGBoost": _tuned(xgboost, TREE_GRID),
    "CatBoost": _tuned(catboost, TREE_GRID),
}


def run(name: str, data: Path | None, contestants: list[str], memory: bool) -> list[dict]:
    train, validation, test = DATA[name](data)
    n_rows = [part.X.shape[0] for part in (train, validation, test)]
    print(
        f"\n{name}: {n_rows[0]} + {n_rows[1]} rows to learn from, {n_rows[2]} to test, {train.X.shape[1]} features"
    )
    print(
        f"{'':28}{'concord.':>9}{'NDCG@10':>9}{'MAP':>8}{'tuning':>10}{'training':>10}{'predict':>12}{'memory':>9}"
    )
    rows = []
    for contestant in contestants:
        try:
            trained = CONTESTANTS[contestant](train, validation)
        except ImportError as error:
            print(f"{contestant:28} not installed ({error.name})")
            continue
        start = time.perf_counter()
        scores = np.asarray(trained.predict(test.X), dtype=float)
        predicting = time.perf_counter() - start
        relevant = (test.y > 0).astype(float)
        row = {
            "contestant": contestant,
            "concordance": concordance(test.y, scores, test.qid),
            "ndcg_at_10": ndcg(test.y, scores, test.qid, k=10),
            "map": average_precision(relevant, scores, test.qid),
            "tuning_s": trained.tuning_seconds,
            "training_s": trained.training_seconds,
            "predict_us_a_row": 1e6 * predicting / n_rows[2],
            "chosen": trained.chosen,
        }
        if memory:
            row["peak_mib"] = peak_memory(_prepare, _train_only, name, data, contestant) / 2**20
        rows.append(row)
        shown = f"{row['peak_mib']:5.0f} MiB" if memory else ""
        print(
            f"{contestant:28}{row['concordance']:9.4f}{row['ndcg_at_10']:9.4f}{row['map']:8.4f}{row['tuning_s']:8.2f} s"
            f"{row['training_s']:8.2f} s{row['predict_us_a_row']:9.2f} µs{shown:>9}",
            flush=True,
        )
    return [{"question": f"rankers on {name}", "rows_train_validation_test": n_rows, "results": rows}]


def _prepare(name: str, data: Path | None, contestant: str) -> tuple:
    train, validation, _ = DATA[name](data)
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
    parser.add_argument("--memory", action="store_true")
    options = parser.parse_args()
    names = options.only or (list(DATA) if options.data else ["generated"])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = []
        for name in names:
            found += run(name, options.data, options.contestant or list(CONTESTANTS), options.memory)
            if not options.contestant:
                write_results("peers", *found)
