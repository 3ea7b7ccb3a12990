"""Functions of `model_selection`: every option with every other equals plain loops over refits, or is refused.

Each `Function` has the options that it takes, how a user calls it and a slow way that trains a clone for every pair,
query, preference or permutation.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, clone

import oracles
from preflearn import RLS, BradleyTerry, RankRLS, RankSVM
from preflearn import model_selection as selection
from preflearn.comparisons.inputs import surv

from . import options
from .pairwise import all_pairs

Chosen = dict[str, Any]
M = 16
X = options.X[:M]
SCORES, QUERIES = options.SCORES[:M], np.arange(M) % 4
TARGETS: dict[str, np.ndarray] = {name: options.TARGETS[name][:M] for name in options.TARGETS}
# Labels that differ in every half of a query: a permutation without a pair to learn from would be drawn again.
TARGETS |= {f"{number} in turn": ((np.arange(M) // 4 + np.arange(M)) % number) * 1.0 for number in (2, 3)}
EVENTS = np.arange(M) % 5 != 3  # censored where not
TARGETS |= {
    "times": surv(np.exp(SCORES), EVENTS),
    "tied times": surv(np.round(np.exp(SCORES / 3)), EVENTS),
    "times in turn": surv(TARGETS["3 in turn"], np.arange(M) % 4 != 3),
}
GROUPS: dict[str, Any] = {
    "none": None,
    "pairs of rows": np.arange(M) // 2,
    "some rows": np.array([*"aabbb", *(f"row {row}" for row in range(5, M))]),
    "64 bits": options.BIG + np.arange(1, M + 1) // 2,
    "quarters": np.arange(M) // 4,
}
RANDOM = np.random.default_rng(8)
PAIRS = np.array([(i, j) for i in range(M) for j in range(i) if (i * j + i) % 5 < 2])
MAGNITUDE, WEIGHT = RANDOM.uniform(0.5, 2.0, len(PAIRS)), RANDOM.uniform(0.5, 2.0, len(PAIRS))
JUDGES = np.array(["x", "y", "z"])[np.arange(len(PAIRS)) % 3]
SOME_PAIRS = np.array([(0, 3), (7, 2), (15, 1), (4, 9), (0, 15)])
LEARNERS: dict[str, Callable[..., Any]] = {
    "RLS": RLS,
    "RankRLS": RankRLS,
    "RankRLS of signs": lambda *alpha, **options: RankRLS(*alpha, cost="unit", weighting="item", **options),
    "RankRLS by features": lambda *alpha, **options: RankRLS(*alpha, solver="primal", **options),
    "RankSVM": lambda *alpha, **options: RankSVM(*alpha, tol=1e-9, max_iter=3000, **options),
    "BradleyTerry": BradleyTerry,
}
_OF_ROWS = ["RLS", "RankRLS", "RankRLS of signs", "RankRLS by features"]
_OF_TIMES = _OF_ROWS[1:]
BASES: dict[str, dict[str, Any]] = {
    "every row": {},
    "rows": {"basis": np.array([0, 3, 5, 8, 10, 15])},
    "drawn": {"n_basis": 6, "random_state": 0},
}
_COMMON: dict[str, list[Any]] = {
    "learner": _OF_ROWS,
    "kernel": ["linear", "rbf", "poly", "precomputed", "callable"],
    "basis": list(BASES),
    "alpha": [1e-2, 10.0],
    "y": ["distinct", "grades", "classes", "large"],
    "groups": [name for name in GROUPS if name != "quarters"],
    "X": [name for name in options.FORMS if name != "list"],
}


@dataclass(frozen=True)
class Case:
    """One combination: the estimator, rows as they are given and in plain form, and labels."""

    chosen: Chosen
    estimator: Any
    given: Any
    plain: np.ndarray
    y: np.ndarray
    groups: np.ndarray | None

    def leaving(self, rows: Any) -> np.ndarray:
        """The rows that leave with others: those of their groups."""
        rows = np.asarray(rows)
        return rows if self.groups is None else np.flatnonzero(np.isin(self.groups, self.groups[rows]))

    @property
    def labels(self) -> dict[str, Any]:
        return {} if self.groups is None else {"groups": self.groups}

    @property
    def refitted(self) -> Any:
        """The estimator with the basis vectors that it draws from all rows."""
        model = clone(self.estimator)
        if getattr(model, "n_basis", None) is None:
            return model
        drawn = clone(model).fit(self.plain, self.y).basis_indices_
        return model.set_params(n_basis=None, basis=drawn)

    def without(self, rows: Any, test: Any, y: np.ndarray | None = None, **labels: Any) -> np.ndarray:
        """Predictions of test rows by a model trained without these rows, their groups and the test rows."""
        rest = np.setdiff1d(np.arange(M), self.leaving(rows))
        return oracles.naive_predictions(
            self.refitted, self.plain, self.y if y is None else y, rest, np.asarray(test), **labels
        )


def build(chosen: Chosen) -> Case:
    kernel = options.KERNELS[chosen["kernel"]] if chosen["kernel"] in options.KERNELS else {}
    estimator = LEARNERS[chosen["learner"]](chosen["alpha"], **kernel, **BASES[chosen["basis"]])
    plain = X if chosen["kernel"] != "precomputed" else np.exp(-0.4 * ((X[:, None] - X) ** 2).sum(axis=2))
    given = options.FORMS[chosen["X"]](plain)
    if chosen["X"] == "float32":
        plain = plain.astype(np.float32).astype(float)
    return Case(chosen, estimator, given, plain, TARGETS[chosen["y"]], GROUPS.get(chosen["groups"]))


def possible(chosen: Chosen) -> bool:
    """Whether the learner can be trained at all; the contract of `options` is about that."""
    needs_features = chosen["learner"] == "RankRLS by features"
    return not (
        (chosen.get("method") == "pooled" and chosen["qid"] == "no")  # its folds are drawn
        or (
            "cv" in chosen and chosen["groups"] != "none" and chosen["qid"] == "yes"
        )  # a row for each of both
        or (chosen["kernel"] == "precomputed" and chosen["X"].startswith("CS"))
        or (needs_features and chosen["kernel"] != "linear" and chosen["basis"] == "every row")
    )


# ------------------------------------------------------------------------------------------------ the functions


def different(y: np.ndarray) -> np.ndarray:
    return np.array([(i, j) for i in range(M) for j in range(i + 1, M) if np.any(y[i] != y[j])])


def pairs_by_user(case: Case) -> dict[str, Any]:
    more = {} if case.chosen["pairs"] == "all" else {"pairs": SOME_PAIRS}
    pairs, predictions = selection.leave_pair_out(case.estimator, case.given, case.y, **more, **case.labels)
    return {"pairs": pairs, "predictions": predictions}


def pairs_by_loops(case: Case) -> dict[str, Any]:
    pairs = different(case.y) if case.chosen["pairs"] == "all" else SOME_PAIRS
    return {"pairs": pairs, "predictions": np.array([case.without(pair, pair) for pair in pairs])}


def _pairs_of_times(case: Case, qid: np.ndarray) -> list[tuple[int, int]]:
    return oracles.censored_pairs(case.y["time"], case.y["event"], qid)


def tally_of_times_by_loops(case: Case) -> dict[str, Any]:
    wins, pairs = np.zeros(M), np.zeros(M)
    for i, j in _pairs_of_times(case, np.zeros(M)):
        first, second = case.without([i, j], [i, j])
        wins[[i, j]] += 0.5 * (1 + np.sign(second - first))
        pairs[[i, j]] += 1
    return {"wins": wins, "pairs": pairs}


def _outcomes(case: Case) -> dict[tuple[int, int], float]:
    def fit_predict(train: np.ndarray, test: np.ndarray) -> np.ndarray:
        return oracles.naive_predictions(case.refitted, case.plain, case.y, train, test)

    return oracles.leave_pair_out_outcomes(fit_predict, case.y, case.groups)


def tally_by_user(case: Case) -> dict[str, Any]:
    found = selection.leave_pair_out_tally(case.estimator, case.given, case.y, **case.labels)
    return {"wins": found.wins, "pairs": found.pairs}


def tally_by_loops(case: Case) -> dict[str, Any]:
    wins, pairs = np.zeros(M), np.zeros(M)
    for (i, j), outcome in _outcomes(case).items():
        for row in (i, j):
            wins[row] += outcome
            pairs[row] += 1
    return {"wins": wins, "pairs": pairs}


def estimate_by_user(case: Case) -> dict[str, Any]:
    more = dict(case.labels)
    if case.chosen["qid"] == "yes":
        more["qid"] = QUERIES
    if case.chosen["method"] != "default":
        more["method"] = case.chosen["method"]
    if case.chosen["n_splits"] is not None:
        more["n_splits"] = case.chosen["n_splits"]
    found = selection.estimate_concordance(case.estimator, case.given, case.y, random_state=0, **more)
    return {"value": found.value, "pairs": found.n_pairs}


def estimate_by_loops(case: Case) -> dict[str, Any]:
    if case.chosen["qid"] == "no":
        outcomes = list(_outcomes(case).values())
        return {"value": np.mean(outcomes), "pairs": len(outcomes)}
    labels = {} if case.chosen["learner"] == "RLS" else {"qid": QUERIES}
    values, n_pairs = [], 0
    for query in np.unique(QUERIES):
        test = np.flatnonzero(QUERIES == query)
        values.append(oracles.concordance_of_query(case.y[test], case.without(test, test, **labels)))
        n_pairs += sum(case.y[i] != case.y[j] for i in test for j in test if i < j)
    return {"value": np.nanmean(values), "pairs": n_pairs}


def estimate_of_times_by_loops(case: Case) -> dict[str, Any]:
    if case.chosen["qid"] == "no":
        tally = tally_of_times_by_loops(case)
        return {"value": tally["wins"].sum() / tally["pairs"].sum(), "pairs": tally["pairs"].sum() / 2}
    tests = [np.flatnonzero(QUERIES == query) for query in np.unique(QUERIES)]
    value = np.mean([_measure("concordance", case.y[t], case.without(t, t, qid=QUERIES)) for t in tests])
    return {"value": value, "pairs": len(_pairs_of_times(case, QUERIES))}


def auc_by_user(case: Case) -> dict[str, Any]:
    words = np.array(["no", "yes"])[case.y.astype(int)] if case.chosen["words"] else case.y
    found = selection.estimate_auc(case.estimator, case.given, words, random_state=0, **case.labels)
    return {"value": found.value, "pairs": found.n_pairs}


def auc_by_loops(case: Case) -> dict[str, Any]:
    outcomes = list(_outcomes(case).values())
    return {"value": np.mean(outcomes), "pairs": len(outcomes)}


def preferences_by_user(case: Case) -> dict[str, Any]:
    given = {"magnitude": MAGNITUDE, "weight": WEIGHT, "groups": JUDGES}
    more = {name: values for name, values in given.items() if case.chosen[name] != "none"}
    return {"differences": selection.leave_preference_out(case.estimator, case.given, PAIRS, **more)}


def preferences_by_loops(case: Case) -> dict[str, Any]:
    chosen = case.chosen
    given = {"magnitude": MAGNITUDE, "weight": WEIGHT}
    given = {name: values for name, values in given.items() if chosen[name] != "none"}
    sets = [np.array([one]) for one in range(len(PAIRS))]
    if chosen["groups"] != "none":
        sets = [np.flatnonzero(JUDGES == judge) for judge in np.unique(JUDGES)]
    out = np.empty(len(PAIRS))
    for left in sets:
        rest = np.setdiff1d(np.arange(len(PAIRS)), left)
        model = clone(case.estimator)
        model.fit_pairs(case.plain, PAIRS[rest], **{name: values[rest] for name, values in given.items()})
        f = model.predict(case.plain)
        out[left] = f[PAIRS[left, 0]] - f[PAIRS[left, 1]]
    return {"differences": out}


class Refitted(BaseEstimator):
    """A learner without its algebra: what calls it has to train it again."""

    def __init__(self, model: Any = None) -> None:
        self.model = model

    def fit(self, X: Any, y: Any) -> Refitted:
        self.model_ = clone(self.model).fit(X, y)
        return self

    def predict(self, X: Any) -> np.ndarray:
        return self.model_.predict(X)

    def __sklearn_tags__(self) -> Any:
        return self.model.__sklearn_tags__()


class RefittedRanker(Refitted):
    """The same for a learner that compares inside queries."""

    def fit(self, X: Any, y: Any, qid: Any = None) -> RefittedRanker:
        self.model_ = clone(self.model).fit(X, y, qid=qid)
        return self


FOLDS = [np.arange(M // 2), np.arange(M // 2, M)]


def _permuted(case: Case, estimator: Any) -> Any:
    more = dict(case.labels)
    if case.chosen["qid"] == "yes":
        more["qid"] = QUERIES
    if case.chosen["cv"] == "folds":
        more["cv"] = FOLDS
    return selection.permutation_test(
        estimator, case.given, case.y, n_permutations=19, random_state=case.chosen["seed"], **more
    )


def permuted_by_user(case: Case) -> dict[str, Any]:
    found = _permuted(case, case.estimator)
    return {"value": found.value, "permuted": found.permuted, "p": found.pvalue}


def permuted_by_loops(case: Case) -> dict[str, Any]:
    """Each permutation refitted for each fold; the value itself by loops where the folds are known."""
    wrapper = Refitted if case.chosen["learner"] == "RLS" else RefittedRanker
    found = _permuted(case, wrapper(case.estimator))
    value = found.value
    if case.chosen["cv"] == "folds" or case.chosen["qid"] == "yes":
        value = _concordance_in_folds(case)
    return {"value": value, "permuted": found.permuted, "p": found.pvalue}


def _concordance_in_folds(case: Case) -> float:
    labels = {"qid": QUERIES} if case.chosen["qid"] == "yes" and case.chosen["learner"] != "RLS" else {}
    queries = QUERIES if case.chosen["qid"] == "yes" else np.zeros(M, dtype=int)
    folds = FOLDS if case.chosen["cv"] == "folds" else [np.flatnonzero(QUERIES == one) for one in range(4)]
    values = []
    for test in folds:
        f = case.without(test, test, **labels)
        for query in np.unique(queries[test]):
            rows = np.flatnonzero(queries[test] == query)
            values.append(_measure("concordance", case.y[test][rows], f[rows]))
    return float(np.nanmean(values))


def curve_by_user(case: Case) -> dict[str, Any]:
    qid = np.arange(M) // 2
    found = selection.learning_curve(
        case.estimator, case.given, case.y, qid=qid, sizes=[2, 4], n_splits=2,
        scoring=case.chosen["scoring"], random_state=case.chosen["seed"],
    )  # fmt: skip
    return {"scores": found.scores, "rows": found.n_rows}


def curve_by_loops(case: Case) -> dict[str, Any]:
    """The first queries of a random order that are not in the fold train, those of the fold are measured."""
    qid = np.arange(M) // 2
    order = np.random.RandomState(case.chosen["seed"]).permutation(8)
    values = np.full((2, 8), np.nan)
    for fold in (order[::2], order[1::2]):
        others = [query for query in order if query not in fold]
        for step, n in enumerate((2, 4)):
            rest = np.flatnonzero(np.isin(qid, others[:n]))
            for query in fold:
                test = np.flatnonzero(qid == query)
                labels = {} if case.chosen["learner"] == "RLS" else {"qid": qid}
                f = oracles.naive_predictions(case.estimator, case.plain, case.y, rest, test, **labels)
                values[step, query] = _measure(case.chosen["scoring"], case.y[test], f)
    known = ~np.isnan(values).any(axis=0)
    return {"scores": values[:, known].mean(axis=1), "rows": [4.0, 8.0]}


def _measure(scoring: str, y: np.ndarray, f: np.ndarray) -> float:
    if y.dtype.names:
        found = oracles.c_index(y["time"], y["event"], f, np.zeros(len(f)))
        return np.nan if found is None else found
    if scoring == "kendall_tau":
        return oracles.tau_b_of_query(y, f)
    return oracles.concordance_of_query(y, f) if np.unique(y).size > 1 else np.nan


@dataclass(frozen=True)
class Rule:
    """What is refused: when, and what the message says."""

    when: Callable[[Chosen], bool]
    says: str


@dataclass(frozen=True)
class Function:
    """A function of `model_selection`."""

    by_user: Callable[[Case], dict[str, Any]]
    by_loops: Callable[[Case], dict[str, Any]]
    options: dict[str, list[Any]]
    rules: dict[str, Rule] = field(default_factory=dict)


FUNCTIONS: dict[str, Function] = {
    "leave_pair_out": Function(
        pairs_by_user,
        pairs_by_loops,
        _COMMON
        | {
            "learner": [*_OF_ROWS, "RankSVM"],
            "pairs": ["all", "some"],
            "y": [*_COMMON["y"], "two outputs"],
        },
    ),
    "leave_pair_out_tally": Function(tally_by_user, tally_by_loops, _COMMON),
    "estimate_concordance": Function(
        estimate_by_user,
        estimate_by_loops,
        _COMMON
        | {
            "qid": ["no", "yes"],
            "method": ["default", "leave-pair-out", "leave-query-out", "pooled"],
            "n_splits": [None, 3],
        },
        {
            "queries to leave": Rule(
                lambda c: c["method"] == "leave-query-out" and c["qid"] == "no", r"leave-query-out.*qid="
            ),
            "a global ranking": Rule(
                lambda c: c["method"] == "leave-pair-out" and c["qid"] == "yes", r"leave-pair-out.*qid"
            ),
            "nothing to pool": Rule(lambda c: c["method"] == "pooled" and c["qid"] == "yes", r"pooled.*qid"),
            "no folds": Rule(
                lambda c: (
                    c["n_splits"] is not None
                    and c["qid"] == "yes"
                    and c["method"] in ("default", "leave-query-out")
                ),
                r"n_splits=3 would be ignored by method='leave-query-out'",
            ),
        },
    ),
    "leave_pair_out_tally of times": Function(
        tally_by_user,
        tally_of_times_by_loops,
        _COMMON | {"learner": [*_OF_TIMES, "RankSVM"], "y": ["times", "tied times"]},
    ),
    "estimate_concordance of times": Function(
        estimate_by_user,
        estimate_of_times_by_loops,
        _COMMON
        | {"learner": _OF_TIMES, "y": ["times", "tied times"], "qid": ["no", "yes"]}
        | {"method": ["default"], "n_splits": [None]},
    ),
    "estimate_auc": Function(auc_by_user, auc_by_loops, _COMMON | {"y": ["classes"], "words": [False, True]}),
    "leave_preference_out": Function(
        preferences_by_user,
        preferences_by_loops,
        {
            **_COMMON,
            "learner": ["RankRLS", "RankRLS by features", "RankSVM", "BradleyTerry"],
            "basis": list(BASES),
            "y": ["distinct"],
            "groups": ["none", "judges"],
            "magnitude": ["none", "given"],
            "weight": ["none", "given"],
        },
        {
            "magnitudes of squared losses": Rule(
                lambda c: c["learner"] in ("RankSVM", "BradleyTerry") and c["magnitude"] == "given",
                r"(RankSVM|BradleyTerry)\.fit_pairs does not take magnitude",
            )
        },
    ),
    "permutation_test": Function(
        permuted_by_user,
        permuted_by_loops,
        _COMMON
        | {
            "basis": ["every row"],
            "y": ["distinct", "large", "2 in turn", "3 in turn"],
            "groups": ["none", "quarters"],
            "qid": ["no", "yes"],
            "cv": ["default", "folds"],
            "seed": [0, 1],
        },
    ),
    "permutation_test of times": Function(
        permuted_by_user,
        permuted_by_loops,
        _COMMON
        | {
            "learner": _OF_TIMES,
            "basis": ["every row"],
            "y": ["times", "tied times", "times in turn"],
            "groups": ["none", "quarters"],
            "qid": ["no", "yes"],
            "cv": ["default", "folds"],
            "seed": [0, 1],
        },
    ),
    "learning_curve": Function(
        curve_by_user,
        curve_by_loops,
        _COMMON
        | {
            "basis": ["every row", "rows"],  # a basis that is drawn is drawn from the rows of each training
            "y": ["distinct", "grades", "large"],
            "groups": ["none"],
            "scoring": ["concordance", "kendall_tau"],
            "seed": [0, 5],
        },
    ),
}


def rules_met(name: str, chosen: Chosen) -> list[str]:
    return [rule for rule, one in FUNCTIONS[name].rules.items() if one.when(chosen)]


def working(name: str) -> list[Chosen]:
    return all_pairs(
        FUNCTIONS[name].options, allowed=lambda chosen: possible(chosen) and not rules_met(name, chosen)
    )


def refused(name: str) -> list[tuple[str, Chosen]]:
    found: dict[str, list[Chosen]] = {}
    for chosen in all_pairs(FUNCTIONS[name].options, seed=1, allowed=possible):
        met = rules_met(name, chosen)
        if len(met) == 1:
            found.setdefault(met[0], []).append(chosen)
    return [(rule, chosen) for rule, several in found.items() for chosen in several[:3]]
