"""Rankers of other libraries, each treated as someone who likes it would.

Boosted trees are trained at eight settings, stopped early on the validation part by the measure of their own loss. The
sum of concordance and NDCG@10 of the validation queries chooses among the settings, and the choice is trained again on
both parts together with the number of trees that was best. Each library has a loss for rankings and the squared error
of grades that are centred in their query, which is a loss for rankings too, and cheaper. Nothing else of a query
reaches the trees, unless they are also given each feature standardised inside its query ("query features").

Neural networks and xRFM are regressions of centred grades. They look at the validation part to stop and, in the case of
xRFM, to choose among six settings; how long to train on both parts together they cannot know, so that they do not.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import product

import numpy as np
from sklearn.preprocessing import StandardScaler

from preflearn.metrics import concordance, ndcg
from preflearn.preprocessing import QueryRelative
from ranking_sets import Part

Predict = Callable[[np.ndarray], np.ndarray]
_MOST_TREES = 800
_PATIENCE = 50


@dataclass
class Trained:
    predict: Callable[[Part], np.ndarray]
    tuning_seconds: float
    training_seconds: float
    chosen: str


Contestant = Callable[[Part, Part], Trained]


@dataclass(frozen=True)
class Setting:
    """Of boosted trees: leaves of a tree, learning rate, least number of rows in a leaf."""

    leaves: int
    rate: float
    least: int


EIGHT = [Setting(*one) for one in product((15, 63), (0.03, 0.1), (20, 80))]
FOUR = [one for one in EIGHT if one.least == 20]


def value(validation: Part, scores: np.ndarray) -> float:
    """What settings are chosen by: the sum of the two measures of the tables."""
    return concordance(validation.y, scores, validation.qid) + ndcg(
        validation.y, scores, validation.qid, k=10
    )


# Boosted trees: functions that train on a part, stop on another or after a number of trees, and say after how many.

Grow = Callable[[Part, Part | None, Setting, int], tuple[Predict, int]]


def lightgbm_lambdarank(
    part: Part, stop_on: Part | None, setting: Setting, trees: int
) -> tuple[Predict, int]:
    import lightgbm

    model = lightgbm.LGBMRanker(n_estimators=trees, **_of_lightgbm(setting))
    stopping = {} if stop_on is None else {
        "eval_set": [(stop_on.X, stop_on.y.astype(int))],
        "eval_group": [stop_on.sizes],
        "eval_at": [10],
        "callbacks": [lightgbm.early_stopping(_PATIENCE, verbose=False)],
    }  # fmt: skip
    model.fit(part.X, part.y.astype(int), group=part.sizes, **stopping)
    return model.predict, model.best_iteration_ or trees


def lightgbm_squares(part: Part, stop_on: Part | None, setting: Setting, trees: int) -> tuple[Predict, int]:
    import lightgbm

    model = lightgbm.LGBMRegressor(n_estimators=trees, **_of_lightgbm(setting))
    stopping = {} if stop_on is None else {
        "eval_set": [(stop_on.X, stop_on.centred)],
        "callbacks": [lightgbm.early_stopping(_PATIENCE, verbose=False)],
    }  # fmt: skip
    model.fit(part.X, part.centred, **stopping)
    return model.predict, model.best_iteration_ or trees


def _of_lightgbm(setting: Setting) -> dict:
    return {
        "num_leaves": setting.leaves,
        "learning_rate": setting.rate,
        "min_child_samples": setting.least,
        "random_state": 0,
        "verbosity": -1,
        "n_jobs": _threads(),
    }


def xgboost_ndcg(part: Part, stop_on: Part | None, setting: Setting, trees: int) -> tuple[Predict, int]:
    import xgboost

    stopping = {} if stop_on is None else {
        "eval_set": [(stop_on.X, stop_on.y.astype(int))], "eval_qid": [stop_on.qid]
    }  # fmt: skip
    model = xgboost.XGBRanker(
        n_estimators=trees,
        objective="rank:ndcg",
        eval_metric="ndcg@10",
        early_stopping_rounds=_PATIENCE if stopping else None,
        min_child_weight=setting.least / 4,
        **_of_xgboost(setting),
    )
    model.fit(part.X, part.y.astype(int), qid=part.qid, verbose=False, **stopping)
    return model.predict, model.best_iteration + 1 if stopping else trees


def xgboost_squares(part: Part, stop_on: Part | None, setting: Setting, trees: int) -> tuple[Predict, int]:
    import xgboost

    stopping = {} if stop_on is None else {"eval_set": [(stop_on.X, stop_on.centred)]}
    model = xgboost.XGBRegressor(
        n_estimators=trees,
        early_stopping_rounds=_PATIENCE if stopping else None,
        min_child_weight=setting.least,
        **_of_xgboost(setting),
    )
    model.fit(part.X, part.centred, verbose=False, **stopping)
    return model.predict, model.best_iteration + 1 if stopping else trees


def _of_xgboost(setting: Setting) -> dict:
    return {
        "max_leaves": setting.leaves,
        "max_depth": 0,
        "grow_policy": "lossguide",
        "learning_rate": setting.rate,
        "tree_method": "hist",
        "random_state": 0,
        "n_jobs": _threads(),
    }


def catboost_loss(loss: str, stopping_measure: str) -> Grow:
    def grow(part: Part, stop_on: Part | None, setting: Setting, trees: int) -> tuple[Predict, int]:
        from catboost import CatBoostRanker, Pool

        model = CatBoostRanker(
            iterations=trees,
            depth=4 if setting.leaves == 15 else 6,
            learning_rate=setting.rate,
            l2_leaf_reg=3 if setting.least == 20 else 10,
            loss_function=loss,
            eval_metric=stopping_measure,
            early_stopping_rounds=_PATIENCE,
            thread_count=_threads(),
            random_seed=0,
            verbose=False,
            allow_writing_files=False,
        )
        pool = None if stop_on is None else Pool(stop_on.X, stop_on.y, group_id=stop_on.qid)
        model.fit(Pool(part.X, part.y, group_id=part.qid), eval_set=pool)
        return model.predict, trees if pool is None else model.get_best_iteration() + 1

    return grow


LOSSES: dict[str, Grow] = {
    "LightGBM, lambdarank": lightgbm_lambdarank,
    "LightGBM, squares": lightgbm_squares,
    "XGBoost, rank:ndcg": xgboost_ndcg,
    "XGBoost, squares": xgboost_squares,
    "CatBoost, YetiRank": catboost_loss("YetiRank", "NDCG:top=10"),
    "CatBoost, QueryRMSE": catboost_loss("QueryRMSE", "QueryRMSE"),
}


def tuned(grow: Grow, settings: list[Setting]) -> Contestant:
    """The best of some settings, trained again on both parts."""

    def train(part: Part, validation: Part) -> Trained:
        start = time.perf_counter()
        tried = []
        for setting in settings:
            predict, trees = grow(part, validation, setting, _MOST_TREES)
            tried.append((value(validation, predict(validation.X)), trees, setting))
        tuning = time.perf_counter() - start
        _, trees, setting = max(tried, key=lambda one: one[0])
        start = time.perf_counter()
        predict, _ = grow(part + validation, None, setting, trees)
        chosen = f"{trees} trees of {setting.leaves} leaves, rate {setting.rate}, least {setting.least}"
        return Trained(lambda new: predict(new.X), tuning, time.perf_counter() - start, chosen)

    return train


def widened(part: Part) -> Part:
    """Each feature standardised inside its query beside the features as they are."""
    return Part(QueryRelative().fit_transform(part.X, qid=part.qid), part.y, part.qid)


def with_query_features(train: Contestant) -> Contestant:
    """The same contestant, given each feature standardised inside its query as well."""

    def train_widened(part: Part, validation: Part) -> Trained:
        found = train(widened(part), widened(validation))
        return replace(found, predict=lambda new: found.predict(widened(new)))

    return train_widened


# Regressions of centred grades


def _standardised(part: Part) -> Callable[[np.ndarray], np.ndarray]:
    """Features as networks and kernels want them, missing values at the mean."""
    scaler = StandardScaler().fit(part.X)
    return lambda X: np.nan_to_num(scaler.transform(X)).astype(np.float32)


XRFM_GRID = [
    {"bandwidth": bandwidth, "ridge": ridge} for bandwidth, ridge in product((5.0, 20.0), (1e-2, 1.0, 30.0))
]


def xrfm(part: Part, validation: Part) -> Trained:
    """A kernel with a learned metric."""
    from xrfm import xRFM

    seen, tried, start = _standardised(part), [], time.perf_counter()
    for setting in XRFM_GRID:
        begun = time.perf_counter()
        kernel = {
            "kernel": "l2",
            "bandwidth": setting["bandwidth"],
            "exponent": 1.0,
            "diag": True,
            "bandwidth_mode": "constant",
        }
        fitting = {"reg": setting["ridge"], "iters": 3, "verbose": False, "early_stop_rfm": True}
        model = xRFM(
            {"model": kernel, "fit": fitting},
            device=_device(),
            tuning_metric="mse",
            random_state=0,
            verbose=False,
        )
        targets = (one.centred[:, None].astype(np.float32) for one in (part, validation))
        model.fit(seen(part.X), next(targets), seen(validation.X), next(targets))
        scores = np.asarray(model.predict(seen(validation.X)), dtype=float).ravel()
        tried.append((value(validation, scores), time.perf_counter() - begun, setting, model))
    _, seconds, setting, model = max(tried, key=lambda one: one[0])
    return Trained(
        lambda new: np.asarray(model.predict(seen(new.X)), dtype=float).ravel(),
        time.perf_counter() - start - seconds,
        seconds,
        ", ".join(f"{name} {one:g}" for name, one in setting.items()),
    )


def network(name: str) -> Contestant:
    """A network of pytabkit at its authors' settings, tuned on other data; the validation part chooses the epoch."""

    def train(part: Part, validation: Part) -> Trained:
        import pytabkit

        seen, start = _standardised(part), time.perf_counter()
        model = getattr(pytabkit, name)(device=_device(), random_state=0, n_threads=_threads())
        model.fit(
            seen(part.X),
            part.centred.astype(np.float32),
            seen(validation.X),
            validation.centred.astype(np.float32),
        )
        return Trained(
            lambda new: np.asarray(model.predict(seen(new.X)), dtype=float).ravel(),
            0.0,
            time.perf_counter() - start,
            "its defaults",
        )

    return train


def rlscore(part: Part, validation: Part) -> Trained:
    from rlscore.learner import QueryRankRLS

    scaler = StandardScaler().fit(part.X)
    X = scaler.transform(part.X)
    start = time.perf_counter()
    learner = QueryRankRLS(X, part.y, part.qid, regparam=1.0)
    tried = []
    for power in range(-5, 16, 2):
        learner.solve(2.0**power)
        tried.append((value(validation, learner.predict(scaler.transform(validation.X))), 2.0**power))
    tuning = time.perf_counter() - start
    start = time.perf_counter()
    both = part + validation
    learner = QueryRankRLS(scaler.transform(both.X), both.y, both.qid, regparam=max(tried)[1])
    return Trained(
        lambda new: learner.predict(scaler.transform(new.X)),
        tuning,
        time.perf_counter() - start,
        f"regparam {max(tried)[1]:g}, linear",
    )


def _device() -> str:
    """Networks and xRFM may use a GPU; trees, which hardly gain from one at these sizes, and preflearn do not."""
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


def _threads() -> int:
    """As many as OMP_NUM_THREADS allows, or all processors."""
    return int(os.environ.get("OMP_NUM_THREADS", 0)) or os.cpu_count() or 1


RIVALS: dict[str, Contestant] = {
    **{name: tuned(grow, EIGHT) for name, grow in LOSSES.items()},
    **{f"{name}, query features": with_query_features(tuned(grow, EIGHT)) for name, grow in LOSSES.items()},
    "xRFM": xrfm,
    "RealMLP": network("RealMLP_TD_Regressor"),
    "TabM": network("TabM_D_Regressor"),
    "RLScore QueryRankRLS": rlscore,
}
