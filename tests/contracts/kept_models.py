"""Models that are kept: every learner with every kernel, basis, target and form of its rows.

A model that was saved and loaded, exported to ONNX or served over HTTP scores as ``predict`` did, or is refused with a
message that a `Rule` describes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, StandardScaler

from preflearn import (
    RLS,
    RLSCV,
    AutoRanker,
    BradleyTerry,
    OrderPreferenceRegressor,
    RankRFM,
    RankRLS,
    RankRLSCV,
    RankSVM,
    RankSVMCV,
)
from preflearn.preprocessing import QueryRelative, TableEncoder

from . import options
from .pairwise import all_pairs

Chosen = dict[str, Any]
ALPHAS = [0.1, 10.0]
M = options.M
PAIRS = np.array([(i, j) for i in range(M) for j in range(M) if options.SCORES[i] > options.SCORES[j] + 1.0])
RANDOM = np.random.default_rng(9)
NEW = np.round(1024 * RANDOM.normal(size=(11, 3))) / 1024  # float32 holds them, far from 0 as well
COLOURS = np.array(["red", "blue", "green"])


def _searched(search: Any) -> Callable[..., Any]:
    return lambda **options: search(ALPHAS, cv=2, **options)


def _piped(*steps: Any) -> Callable[..., Any]:
    return lambda **options: make_pipeline(*steps, RankRLS(**options))


LEARNERS: dict[str, Callable[..., Any]] = {
    "RLS": RLS,
    "RankRLS": RankRLS,
    "RankSVM": lambda **options: RankSVM(max_iter=2000, **options),
    "RLSCV": _searched(RLSCV),
    "RankRLSCV": _searched(RankRLSCV),
    "RankSVMCV": _searched(RankSVMCV),
    "OrderPreferenceRegressor": OrderPreferenceRegressor,
    "BradleyTerry": BradleyTerry,
    "RankRFM": lambda **options: RankRFM(ALPHAS, max_rounds=2, **options),
    "AutoRanker": lambda **options: AutoRanker(preset="fast", random_state=0),
    "scaled": _piped(StandardScaler(with_mean=False)),
    "scaled twice": _piped(MinMaxScaler(), StandardScaler()),
    "relative": _piped(QueryRelative()),
    "table": _piped(TableEncoder(), StandardScaler()),
}
KERNELS = options.KERNELS | {"laplacian": {"kernel": "laplacian", "gamma": 0.3}}
FORMS = {
    name: options.FORMS[name] for name in ("array", "float32", "Fortran order", "CSR", "pandas", "polars")
}
OPTIONS: dict[str, list[Any]] = {
    "learner": list(LEARNERS),
    "kernel": list(KERNELS),
    "basis": ["every row", "rows", "count"],
    "y": ["distinct", "grades", "classes", "two outputs", "large"],
    "qid": ["none", "ints", "text"],
    "X": list(FORMS),
    "offset": [0.0, 1000.0],
    "inputs": ["float64", "float32"],
}


def possible(chosen: Chosen) -> bool:
    """Whether there is such a model; what cannot be fitted is for the contract of `options`."""
    name, kernel = chosen["learner"], chosen["kernel"]
    frame = chosen["X"] in ("pandas", "polars")
    own = {
        "AutoRanker": kernel == "linear" and chosen["basis"] == "every row" and chosen["y"] != "two outputs",
        "RankRFM": kernel in ("rbf", "laplacian")
        and chosen["y"] != "two outputs"
        and chosen["qid"] != "none",
        "OrderPreferenceRegressor": chosen["y"] != "two outputs",
        "BradleyTerry": chosen["y"] == "distinct" and chosen["qid"] == "none",  # learns from pairs
        "RankSVMCV": chosen["y"] != "two outputs",
        "relative": chosen["qid"] != "none",
        "table": frame,
        "scaled twice": chosen["X"] != "CSR",
    }
    if not own.get(name, True) or (kernel == "precomputed" and (chosen["X"] == "CSR" or name not in _PLAIN)):
        return False
    if chosen["X"] == "CSR" and name in ("AutoRanker", "RankRFM", "relative"):
        return False
    # Rows far from 0 in single precision, and a reduced set of the linear kernel on them, are refused in training.
    return not (
        chosen["offset"] and (chosen["X"] in ("float32", "CSR") or kernel in ("linear", "poly", "callable"))
    )


_PLAIN = (
    "RLS",
    "RankRLS",
    "RankSVM",
    "RLSCV",
    "RankRLSCV",
    "RankSVMCV",
    "OrderPreferenceRegressor",
    "BradleyTerry",
)


@dataclass(frozen=True)
class Rule:
    """What is refused: when, and what the message says."""

    when: Callable[[Chosen], bool]
    says: str


SAVED = [Rule(lambda c: c["kernel"] == "callable", r"cannot be saved: it holds .*similarity .*kernel")]
EXPORTED = [
    Rule(lambda c: c["kernel"] == "callable" and not looks_at_queries(c), r"callable|function"),
    Rule(lambda c: looks_at_queries(c), r"one_query=True"),
]
SERVED = [
    Rule(lambda c: c["kernel"] == "precomputed", r"does not predict from features.*named kernel"),
    Rule(lambda c: c["y"] == "two outputs", r"2 scores to each item"),
]


def combinations() -> list[Chosen]:
    return all_pairs(OPTIONS, allowed=possible)


@dataclass(frozen=True)
class Kept:
    """A fitted model, rows as its user has them, and the same as numbers or columns."""

    model: Any
    rows: Any
    qid: Any
    plain: Any


def _matrix(chosen: Chosen, X: np.ndarray) -> np.ndarray:
    if chosen["kernel"] != "precomputed":
        return X + chosen["offset"]
    squared = ((X[:, None] - options.X[None]) ** 2).sum(axis=2)
    return np.exp(-0.4 * squared).astype(np.float32).astype(float)


def _rows(chosen: Chosen, X: np.ndarray) -> Any:
    """The rows in the form of the combination; a table with categories has a column of them."""
    rows = FORMS[chosen["X"]](_matrix(chosen, X))
    if chosen["learner"] != "table":
        return rows
    colour = COLOURS[(np.abs(X[:, 0]) * 10).astype(int) % 3]
    if chosen["X"] == "pandas":
        return rows.assign(colour=colour)
    import polars as pl

    return rows.with_columns(pl.Series("colour", colour))


def fitted(chosen: Chosen) -> Kept:
    """The model of a combination, fitted on its data."""
    name = chosen["learner"]
    given = KERNELS[chosen["kernel"]] | options.BASES[chosen["basis"]]
    if name == "RankRFM":
        given = {key: value for key, value in given.items() if key != "gamma"}
    model = LEARNERS[name](**given)
    X, y, qid = _rows(chosen, options.X), options.TARGETS[chosen["y"]], options.QIDS[chosen["qid"]]
    if name == "BradleyTerry":
        model.fit_pairs(X, PAIRS)
    elif name in ("RLS", "RLSCV", "OrderPreferenceRegressor"):
        model.fit(X, y)
    elif qid is None:
        model.fit(X, y)
    else:
        with_queries = [
            step for step in getattr(model, "named_steps", ()) if step in ("queryrelative", "rankrls")
        ]
        model.fit(X, y, **{f"{step}__qid": qid for step in with_queries} if with_queries else {"qid": qid})
    plain = _matrix(chosen, NEW)
    rows = _rows(chosen, NEW)
    return Kept(model, rows, np.zeros(len(NEW), dtype=int) if looks_at_queries(chosen) else None, plain)


def looks_at_queries(chosen: Chosen) -> bool:
    """Whether a score depends on the other rows of the query."""
    return chosen["learner"] == "relative" or (chosen["learner"] == "AutoRanker" and chosen["qid"] != "none")
