"""Every option with every other: the public learners, their options, and what may not be combined.

A `Family` lists the values of each option of a learner. `pairwise.all_pairs` draws combinations in which every two
values of two options meet at least once. A combination that meets a rule of `REFUSED` must be refused with a message
that names what the rule says; any other must equal what plain refits predict.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.model_selection import GroupKFold, KFold, LeaveOneGroupOut
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from oracles import censored_pairs
from preflearn import RLS, CoRankRLS, OrderPreferenceRegressor, RankRLS, RankSVM
from preflearn.model_selection import QueryKFold

from .pairwise import all_pairs

M, SIZE = 24, 6
RANDOM = np.random.default_rng(5)
X = np.round(RANDOM.normal(size=(M, 3)), 3)
QUERIES = np.repeat(np.arange(M // SIZE), SIZE)[RANDOM.permutation(M)]
SCORES = np.round(2 * X @ [1.0, -0.5, 0.2] + RANDOM.normal(size=M), 3)
BASIS = np.array([0, 5, 9, 10, 14, 17, 20, 23])
BIG = 1_200_000_000_000_000_000  # as float64, neighbouring ids are one


def similarity(a, b):
    """A kernel of a user."""
    return np.exp(-0.3 * np.abs(np.subtract(a, b)).sum())


KERNELS: dict[str, dict[str, Any]] = {
    "linear": {"kernel": "linear"},
    "rbf": {"kernel": "rbf", "gamma": 0.4},
    "poly": {"kernel": "poly", "gamma": 0.5, "degree": 2, "coef0": 1.0},
    "precomputed": {"kernel": "precomputed"},
    "callable": {"kernel": similarity},
}
BASES: dict[str, dict[str, Any]] = {
    "every row": {},
    "count": {"n_basis": 8, "random_state": 0},
    "share": {"n_basis": 0.5, "random_state": 0},
    "rows": {"basis": BASIS},
    "rows as a list": {"basis": BASIS[::-1].tolist()},
}
TARGETS: dict[str, np.ndarray] = {
    "distinct": SCORES,
    "grades": np.clip(np.round(SCORES / 2 + 1.5), 0, 3),
    "classes": (SCORES > 0.0).astype(float),
    "two outputs": np.column_stack([SCORES, np.round(X[:, 1] - SCORES)]),
    "large": SCORES + 1e4,
}
QIDS: dict[str, Any] = {
    "none": None,
    "ints": QUERIES,
    "64 bits": BIG + QUERIES,
    "text": np.array(["one", "two", "three", "four"])[QUERIES],
    "list": [f"query {query}" for query in QUERIES],
}
GROUPS: dict[str, Any] = {
    "none": None,
    "whole queries": np.array(["x", "x", "y", "z"])[QUERIES],
    "across queries": BIG + np.where(np.arange(M) < 8, np.arange(M) // 2, np.arange(M)),
}
WEIGHTS: dict[str, Any] = {
    "none": None,
    "uneven": np.round(RANDOM.uniform(0.2, 3.0, size=M), 2),
    "equal": np.full(M, 2.0),
}
EVENTS: dict[str, Any] = {
    "booleans": RANDOM.random(M) < 0.7,
    "numbers": np.where(RANDOM.random(M) < 0.9, 1.0, 0.0).tolist(),
}


def _kernel_matrix(a, b):
    return np.exp(-0.4 * ((a[:, None] - b[None]) ** 2).sum(axis=2))


def _frame(library: str) -> Callable[[np.ndarray], Any]:
    def make(values):
        import importlib

        names = [f"f{column}" for column in range(values.shape[1])]
        return importlib.import_module(library).DataFrame(dict(zip(names, values.T.copy(), strict=True)))

    return make


FORMS: dict[str, Callable[[np.ndarray], Any]] = {
    "array": np.asarray,
    "float32": lambda values: values.astype(np.float32),
    "Fortran order": np.asfortranarray,
    "CSR": sparse.csr_array,
    "CSC matrix": sparse.csc_matrix,
    "pandas": _frame("pandas"),
    "polars": _frame("polars"),
    "list": np.ndarray.tolist,
}


def folds_of(cv: str, qid: Any, groups: Any) -> list[np.ndarray] | None:
    """The test sets that a form of ``cv`` means; None where the labels it needs are missing."""
    blank = np.empty((M, 0))
    by_label = (
        None
        if qid is None and groups is None
        else np.unique(qid if qid is not None else groups, return_inverse=True)[1]
    )
    if cv == "leave-one-out":
        return [np.array([row]) for row in range(M)]
    if cv in ("leave-query-out", "leave-group-out"):
        labels = qid if cv == "leave-query-out" else groups
        return (
            None
            if labels is None
            else [np.flatnonzero(np.asarray(labels) == one) for one in _in_order(labels)]
        )
    if cv == "int":
        splits = KFold(3).split(blank) if by_label is None else QueryKFold(2).split(blank, qid=by_label)
        return [test for _, test in splits]
    if cv == "KFold":
        return [test for _, test in KFold(4, shuffle=True, random_state=1).split(blank)]
    if cv in ("GroupKFold", "LeaveOneGroupOut"):
        labels = groups if groups is not None else qid
        if labels is None:
            return None
        splitter = GroupKFold(2) if cv == "GroupKFold" else LeaveOneGroupOut()
        return [test for _, test in splitter.split(blank, None, np.unique(labels, return_inverse=True)[1])]
    first, second = np.flatnonzero(QUERIES == 2), np.flatnonzero(QUERIES == 3)
    return [first[:3][::-1], first[2:4], np.append(second[:2], first[0])]  # overlapping, most rows in none


def _in_order(labels: Any) -> list[Any]:
    return list(dict.fromkeys(np.asarray(labels).tolist()))


def given_cv(cv: str, folds: list[np.ndarray] | None, qid: Any, groups: Any) -> Any:
    """What a user passes as ``cv``."""
    splitters = {
        "int": 3 if qid is None and groups is None else 2,
        "KFold": KFold(4, shuffle=True, random_state=1),
        "GroupKFold": GroupKFold(2),
        "LeaveOneGroupOut": LeaveOneGroupOut(),
    }
    if cv == "arrays":
        return folds
    if cv == "masks":
        return [np.isin(np.arange(M), fold) for fold in folds]
    return splitters.get(cv, cv)


CVS = [
    *("leave-one-out", "leave-query-out", "leave-group-out", "int"),
    *("KFold", "GroupKFold", "LeaveOneGroupOut", "arrays", "masks"),
]


Chosen = dict[str, Any]


def _needs_a_map(chosen: Chosen) -> bool:
    return chosen["kernel"] != "linear" and chosen["basis"] == "every row"


def _splits_queries(chosen: Chosen) -> bool:
    """Whether a fold holds out some rows of a query and keeps others (one query is always split)."""
    codes = np.zeros(M) if QIDS[chosen["qid"]] is None else QUERIES
    return any(
        0 < np.isin(np.flatnonzero(codes == code), left).sum() < (codes == code).sum()
        for left in _leaving(chosen)
        for code in np.unique(codes)
    )


def _holds_pairs(chosen: Chosen) -> bool:
    """Whether some fold holds two rows of a query with different targets."""
    codes = np.zeros(M) if QIDS[chosen["qid"]] is None else QUERIES
    y = TARGETS[chosen["y"]].reshape(M, -1)[:, 0]
    folds = folds_of(chosen["cv"], QIDS[chosen["qid"]], GROUPS[chosen["groups"]]) or []
    parts = [test[codes[test] == code] for test in folds for code in np.unique(codes)]
    if "event" in chosen:
        events = np.array(EVENTS[chosen["event"]])
        return any(censored_pairs(y[part], events[part], codes[part]) for part in parts)
    return any(np.unique(y[part]).size > 1 for part in parts)


def _leaving(chosen: Chosen) -> list[np.ndarray]:
    qid, groups = QIDS[chosen["qid"]], GROUPS[chosen["groups"]]
    return leaving_rows(folds_of(chosen["cv"], qid, groups) or [], groups)


@dataclass(frozen=True)
class Rule:
    """Options that may not meet: when they do, and what the message must say.

    With ``always=False`` some of these combinations are held out by refitting: refused or right.
    """

    when: Callable[[Chosen], bool]
    says: str
    always: bool = True


RULES = {
    "a query to leave needs queries": Rule(
        lambda c: c["cv"] == "leave-query-out" and c["qid"] == "none", r"leave-query-out.*qid="
    ),
    "a group to leave needs groups": Rule(
        lambda c: c["cv"] == "leave-group-out" and c["groups"] == "none", r"leave-group-out.*groups="
    ),
    "splitters of groups need labels": Rule(
        lambda c: c["cv"] in ("GroupKFold", "LeaveOneGroupOut") and c["qid"] == c["groups"] == "none",
        r"(GroupKFold|LeaveOneGroupOut).*groups",
    ),
    "something must stay": Rule(
        lambda c: any(len(left) == M for left in _leaving(c)), "shares a group with every row"
    ),
    "a precomputed kernel is dense": Rule(
        lambda c: c["kernel"] == "precomputed" and c["X"].startswith("CS"), r"precomputed.*sparse"
    ),
    "the dual form has no reduced set": Rule(
        lambda c: c.get("solver") == "dual" and c["basis"] != "every row", r"solver='dual'.*n_basis"
    ),
    "the primal form needs features": Rule(
        lambda c: c.get("solver") == "primal" and _needs_a_map(c), r"solver='primal'.*n_basis"
    ),
    "iterations need features": Rule(
        lambda c: c.get("solver") == "cg" and _needs_a_map(c), r"solver='cg'.*n_basis"
    ),
    "a path of hinge losses has one output": Rule(
        lambda c: c["learner"] == "RankSVM" and c["alphas"] == "search" and c["y"] == "two outputs",
        r"RankSVMCV.*one output.*2 columns",
    ),
    "a score of pairs needs pairs": Rule(
        lambda c: c["alphas"].startswith("search") and c["learner"] != "RLS" and not _holds_pairs(c),
        r"no two are held out together.*cv=|no query has two rows with different y|No row is known to have outlived",
    ),
    "times are not negative": Rule(
        lambda c: "event" in c and TARGETS[c["y"]].min() < 0 and TARGETS[c["y"]].ndim == 1,
        r"With event, y holds times, which are not negative",
    ),
    "a row has one time": Rule(
        lambda c: "event" in c and c["y"] == "two outputs",
        r"With event, y holds one time per row|one output.*2 columns",
    ),
    "how much longer is not known": Rule(
        lambda c: "event" in c and c.get("cost") == "relative", r"cost='relative'.*event"
    ),
    "queries of one weight leave whole": Rule(
        lambda c: "RankRLS" in c["learner"] and c["weighting"] == "query" and _splits_queries(c),
        r"(?s)part of a query.*weighting='query'",
        always=False,
    ),
}


@dataclass(frozen=True)
class Family:
    """A learner and the options that its contract crosses."""

    make: Callable[..., Any]
    options: dict[str, Any]


_COMMON = {
    "kernel": list(KERNELS),
    "basis": list(BASES),
    "y": list(TARGETS),
    "qid": list(QIDS),
    "groups": list(GROUPS),
    "weight": list(WEIGHTS),
    "cv": CVS,
    "X": list(FORMS),
    "alpha": [1e-3, 1.0, 100.0],
    "alphas": ["own", "two", "search"],
}
_UNWEIGHTED = {name: values for name, values in _COMMON.items() if name != "weight"}
_SOLVERS = ["auto", "dual", "primal", "cg"]
_WEIGHTINGS = ["pair", "item", "query"]
_ALPHAS = {"alphas": [*_COMMON["alphas"], "search per output"]}
FAMILIES: dict[str, Family] = {
    "RLS": Family(RLS, _COMMON | _ALPHAS | {"fit_intercept": [True, False], "solver": _SOLVERS}),
    "RankRLS": Family(
        RankRLS,
        _COMMON
        | _ALPHAS
        | {
            "cost": ["magnitude", "unit", "relative"],
            "ties": ["include", "exclude"],
            "weighting": _WEIGHTINGS,
            "solver": _SOLVERS,
        },
    ),
    "RankSVM": Family(
        RankSVM,
        _COMMON
        | {"loss": ["squared_hinge", "hinge"], "weighting": _WEIGHTINGS, "tol": [1e-9], "max_iter": [3000]},
    ),
    "OrderPreferenceRegressor": Family(
        OrderPreferenceRegressor,
        _UNWEIGHTED
        | {
            "y": [name for name in TARGETS if name != "two outputs"],
            "alphas": ["own", "two"],
            "epsilon": [0.0, 0.3],
            "order_weight": [1.0, 0.1],
        },
    ),
    "RankRLS of times": Family(
        RankRLS,
        _COMMON
        | {
            "event": list(EVENTS),
            "cost": ["magnitude", "unit", "relative"],
            "ties": ["include", "exclude"],
            "weighting": _WEIGHTINGS,
            "solver": _SOLVERS,
        },
    ),
    "RankSVM of times": Family(
        RankSVM,
        _COMMON
        | {"event": list(EVENTS), "loss": ["squared_hinge", "hinge"], "weighting": _WEIGHTINGS}
        | {"tol": [1e-12], "max_iter": [3000]},
    ),
    "CoRankRLS": Family(
        partial(CoRankRLS, views=[[0, 1], [2, 1]]),
        _UNWEIGHTED
        | {
            "kernel": [name for name in KERNELS if name != "precomputed"],
            "alphas": ["own", "two"],
            "cost": ["magnitude", "unit", "relative"],
            "weighting": _WEIGHTINGS,
        },
    ),
    "pipeline": Family(
        lambda **parameters: make_pipeline(StandardScaler(with_mean=False), RankRLS(**parameters)),
        _UNWEIGHTED
        | {
            "cost": ["magnitude", "unit"],
            "weighting": _WEIGHTINGS,
            "kernel": ["linear", "rbf"],
            "alphas": ["own"],
        },
    ),
}


@dataclass(frozen=True)
class Combination:
    """One combination: what a user passes, and the same in plain form for the refits."""

    estimator: Any
    X: Any
    plain: np.ndarray
    y: np.ndarray
    labels: dict[str, Any]
    cv: Any
    folds: list[np.ndarray]
    leaving: list[np.ndarray]


def leaving_rows(folds: list[np.ndarray], groups: Any) -> list[np.ndarray]:
    """The rows that leave with each fold: those of its groups, too."""
    if groups is None:
        return folds
    return [np.flatnonzero(np.isin(groups, groups[test])) for test in folds]


def build(name: str, chosen: Chosen) -> Combination:
    """The estimator and data of a combination."""
    own = {option: value for option, value in chosen.items() if option not in {*_COMMON, "event", "learner"}}
    estimator = FAMILIES[name].make(
        alpha=chosen["alpha"], **own, **KERNELS[chosen["kernel"]], **BASES[chosen["basis"]]
    )
    plain = _kernel_matrix(X, X) if chosen["kernel"] == "precomputed" else X
    given = FORMS[chosen["X"]](plain)
    if chosen["X"] == "float32":
        plain = plain.astype(np.float32).astype(float)
    qid, groups = QIDS[chosen["qid"]], GROUPS[chosen["groups"]]
    labels = {"qid": qid, "groups": groups, "sample_weight": WEIGHTS[chosen.get("weight", "none")]}
    labels["event"] = EVENTS[chosen["event"]] if "event" in chosen else None
    folds = folds_of(chosen["cv"], qid, groups)
    return Combination(
        estimator,
        given,
        plain,
        TARGETS[chosen["y"]],
        {name: value for name, value in labels.items() if value is not None},
        given_cv(chosen["cv"], folds, qid, groups),
        folds or [],
        leaving_rows(folds or [], groups),
    )


def rules_met(chosen: Chosen) -> list[str]:
    return [name for name, rule in RULES.items() if rule.when(chosen)]


def combinations(name: str) -> list[Chosen]:
    """The combinations of a learner that must work."""
    options = {"learner": [name]} | FAMILIES[name].options
    return all_pairs(
        options, allowed=lambda chosen: not any(RULES[rule].always for rule in rules_met(chosen))
    )


def refusals(name: str) -> list[tuple[str, Chosen]]:
    """Combinations that meet one rule and no other, at most three for each rule."""
    found: dict[str, list[Chosen]] = {}
    for chosen in all_pairs({"learner": [name]} | FAMILIES[name].options, seed=1):
        rules = rules_met(chosen)
        if len(rules) == 1 and RULES[rules[0]].always:
            found.setdefault(rules[0], []).append(chosen)
    return [(rule, chosen) for rule, several in found.items() for chosen in several[:3]]
