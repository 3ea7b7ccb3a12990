"""What every representation of f must satisfy: solutions, paths and hold-outs are those of the dense equations.

A case builds a representation of some rows; the suite solves the same problem on the rows that stay, with L and b
written out, by the slow, obvious way.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

import oracles
from preflearn.comparisons import (
    Comparisons,
    PointwiseComparisons,
    PreferenceComparisons,
    QueryComparisons,
    compare_scores,
    encode_queries,
    one_group,
)
from preflearn.kernels.functions import Kernel
from preflearn.numerics.namespace import as_host
from preflearn.squared.base import Asked, Inputs, Representation
from preflearn.squared.holdout.pair import has_pair_form
from preflearn.squared.problem import SquaredLossFit

M = 24
RANDOM = np.random.default_rng(5)
QID = np.repeat(np.arange(6), 4)
SCORES = np.round(2 * RANDOM.normal(size=(M, 2)))
PAIRS = np.array([(i, j) for i in range(0, M, 2) for j in ((i + 3) % M, (i + 7) % M)])
ALPHAS = [0.3, 3.0]
# Sets of rows that leave together: whole queries, parts of several, one row.
QUERIES = [np.flatnonzero(QID == query) for query in (0, 3)]
ROWS = [*QUERIES, np.array([1, 6, 7, 20]), np.array([5])]


def tasks(name: str) -> list[Comparisons]:
    """The comparisons of one kind."""
    queries, y = encode_queries(QID, M), SCORES[:, :1]
    if name == "several outputs":
        return [compare_scores(SCORES, queries)]
    if name == "an L for each output":
        return [compare_scores(SCORES[:, [k]], queries, cost="unit") for k in range(2)]
    if name == "regression":
        return [PointwiseComparisons(y)]
    if name == "intercept":
        return [QueryComparisons(y, one_group(M), weighting="item")]
    if name == "preferences":
        magnitude, weight = RANDOM.uniform(0.5, 2, len(PAIRS)), RANDOM.uniform(0.5, 2, len(PAIRS))
        return [PreferenceComparisons(M, PAIRS, magnitude, weight)]
    options: dict[str, Any] = {
        "magnitude": {},
        "unit": {"cost": "unit"},
        "relative": {"cost": "relative"},
        "global": {},
    }[name]
    return [compare_scores(y, one_group(M) if name == "global" else queries, **options)]


KINDS = [
    "magnitude",
    "unit",
    "relative",
    "global",
    "regression",
    "intercept",
    "several outputs",
    "an L for each output",
    "preferences",
]


@dataclass(frozen=True)
class Case:
    """A representation of rows.

    Attributes
    ----------
    make : callable
        Takes inputs and tasks.
    inputs : Inputs
    tolerance : float
        Of what is compared, relative to the largest prediction.
    """

    make: Callable[[Inputs, list[Comparisons]], Representation]
    inputs: Inputs
    tolerance: float

    @property
    def X(self) -> np.ndarray:
        X = as_host(self.inputs.X)
        return (X.toarray() if sp.issparse(X) else X).astype(np.float64)

    @property
    def K(self) -> np.ndarray:
        """The kernel matrix of all rows, in double precision."""
        X, kernel = self.X, self.inputs.kernel
        return X if kernel.is_precomputed else Kernel(kernel.kernel, gamma=kernel.gamma).matrix(X)

    @property
    def basis(self) -> np.ndarray | None:
        feature_map = self.inputs.feature_map
        return None if feature_map is None else feature_map.basis_indices_

    def close(self, found: Any, expected: np.ndarray) -> None:
        atol = self.tolerance * max(1.0, np.abs(expected).max())
        np.testing.assert_allclose(np.asarray(as_host(found), dtype=float), expected, rtol=0, atol=atol)


def function(case: Case, task: Comparisons, rest: np.ndarray, alpha: float) -> np.ndarray:
    """f on all rows, trained on ``rest`` with these comparisons of it, by the equations."""
    K, L, b = case.K, task.to_dense(), task.target
    if case.basis is None and case.inputs.kernel.is_linear:  # keeps the digits of rows with a large offset
        return case.X @ oracles.feature_solution(case.X[rest], L, b, alpha)
    if case.basis is None:
        return K[:, rest] @ oracles.kernel_solution(K[np.ix_(rest, rest)], L, b, alpha)
    R = case.basis[np.isin(case.basis, rest)]
    return K[:, R] @ oracles.reduced_set_solution(K[np.ix_(rest, R)], K[np.ix_(R, R)], L, b, alpha)


def predicted(case: Case, fit: SquaredLossFit) -> np.ndarray:
    """f on all rows from what training returns."""
    if fit.weights is not None:
        X = as_host(case.inputs.X)
        return np.asarray(X @ as_host(fit.weights))
    return case.K[:, fit.basis_indices] @ as_host(fit.dual_coef)


def check_solution(case: Case, kind: str, *, with_mean: bool) -> None:
    """`solve` at every alpha, and the mean."""
    own = tasks(kind)
    every = np.arange(M)
    for alpha in ALPHAS:
        expected = np.concatenate([function(case, task, every, alpha) for task in own], axis=1)
        fit = case.make(case.inputs, own).solve(alpha, with_mean=with_mean)
        case.close(predicted(case, fit), expected)
        assert fit.converged
        if with_mean:
            assert fit.mean_prediction is not None
            case.close(fit.mean_prediction, expected.mean(axis=0))


def check_rows_held_out(case: Case, kind: str, *, whole_queries: bool = False) -> None:
    """Sets of rows leave: any, or whole queries; from one factorisation for all alphas, and for one alpha alone."""
    for task in tasks(kind):
        intercept = kind == "intercept"
        folds = QUERIES if whole_queries or task.whole_queries_only else ROWS
        for alphas in (ALPHAS, ALPHAS[:1]):
            asked = Asked(intercept=intercept, many_alphas=len(alphas) > 1)
            routine = case.make(case.inputs, [task]).hold_out(task, asked)
            assert routine is not None
            for fold, found in zip(folds, routine.predict(folds, alphas), strict=True):
                rest = np.setdiff1d(np.arange(M), fold)
                for alpha, f in zip(alphas, found, strict=True):
                    expected = function(case, task.take(rest), rest, alpha)
                    if intercept:
                        expected = expected + (SCORES[rest, :1] - expected[rest]).mean(axis=0)
                    case.close(f, expected[fold])


def check_pairs_held_out(case: Case, kind: str) -> None:
    """Every pair of rows, in closed form."""
    (task,) = tasks(kind)
    assert has_pair_form(task)
    pairs = np.array([(0, 1), (3, 17), (22, 4)])
    for alphas in (ALPHAS, ALPHAS[:1]):
        asked = Asked(many_alphas=len(alphas) > 1)
        representation = case.make(case.inputs, [task])

        def routine(many_alphas: bool, representation=representation) -> Any:
            return representation.hold_out(task, Asked(many_alphas=many_alphas))

        systems = representation.pair_systems(task, alphas, asked, routine)
        for alpha, system in zip(alphas, systems, strict=True):
            assert system is not None
            found = system.predictions(pairs)[:, :2, 0]
            for pair, f in zip(pairs, found, strict=True):
                rest = np.setdiff1d(np.arange(M), pair)
                case.close(f, function(case, task.take(rest), rest, alpha)[pair, 0])


def check_preferences_held_out(case: Case) -> None:
    """Sets of preferences leave, rows and basis vectors stay."""
    (task,) = tasks("preferences")
    assert isinstance(task, PreferenceComparisons)
    sets = [np.array([0]), np.array([2, 5, 11])]
    for alphas in (ALPHAS, ALPHAS[:1]):
        routine = case.make(case.inputs, [task]).hold_out_preferences(
            task, Asked(many_alphas=len(alphas) > 1)
        )
        assert routine is not None
        for left, found in zip(sets, routine.predict_without_preferences(sets, alphas), strict=True):
            for alpha, differences in zip(alphas, found, strict=True):
                f = function(case, task.without(left), np.arange(M), alpha)[:, 0]
                better, worse = PAIRS[left].T
                case.close(differences, f[better] - f[worse])
