"""Right or refused: numbers at the ends of the range, against exact arithmetic.

Each test here once gave a wrong number without a word. The campaign that looks for more of them is in
test_campaign.py.
"""

from __future__ import annotations

import numpy as np
import pytest

from preflearn import RLS, RankRLS
from preflearn.model_selection import (
    cross_val_predict,
    estimate_auc,
    leave_pair_out,
)
from rationals import ExactLearner, relative_error

TOLERANCE = 1e-9


def short(values):
    """Numbers of few digits, with which exact arithmetic is quick."""
    return np.round(values * 64) / 64


def near(scale: float) -> float:
    """The next power of two."""
    return 2.0 ** np.round(np.log2(scale))


def two_classes(width: int):
    y = np.repeat([0, 1], 6)
    return short(np.random.default_rng(0).normal(size=(12, width)) + 0.6 * y[:, None]), y


def wide_queries():
    rng = np.random.default_rng(0)
    return short(rng.normal(size=(12, 15))), short(rng.normal(size=12)), np.repeat(np.arange(4), 3)


def pair_share(kind, X, y, alpha=1.0) -> float:
    """Leave-pair-out by refitting every pair, exactly."""
    learner = ExactLearner(kind, alpha)
    outcome = []
    for i in np.flatnonzero(y == 1):
        for j in np.flatnonzero(y == 0):
            above, below = learner.without(X, y, None, [i, j], [i, j])
            outcome.append(1.0 if above > below else 0.5 if above == below else 0.0)
    return float(np.mean(outcome))


@pytest.mark.parametrize("width", [3, 40], ids=["primal", "dual"])
@pytest.mark.parametrize("scale", [1e-100, 1e-30, 1e-7, 1.0, 1e7, 1e30, 1e100])
def test_auc_does_not_depend_on_an_absolute_tolerance(width, scale) -> None:
    X, y = two_classes(width)
    X = X * near(scale)
    exact = pair_share("rls-intercept", X, y)
    assert 0.5 < exact <= 1.0
    assert estimate_auc(RLS(), X, y, n_halvings=0).value == exact


@pytest.mark.parametrize("width", [3, 40], ids=["primal", "dual"])
@pytest.mark.parametrize("scale", [1e-12, 1e12])
def test_auc_does_not_depend_on_the_scale_of_y(width, scale) -> None:
    X, y = two_classes(width)
    expected = estimate_auc(RLS(), X * 1e-7, y, n_halvings=0).value
    assert estimate_auc(RLS(), X * 1e-7, y * scale, n_halvings=0).value == expected > 0.5


@pytest.mark.parametrize("method", ["leave-pair-out", "averaged", "pooled"])
@pytest.mark.parametrize("width", [3, 40], ids=["primal", "dual"])
@pytest.mark.parametrize("value", [0.1, 1e9 / 3, 1e-30])
def test_constant_features_order_nothing(method, width, value) -> None:
    y = np.repeat([0, 1], 12)
    splits = {} if method == "leave-pair-out" else {"n_splits": 4, "random_state": 0}
    options = {"n_halvings": 0} if method == "leave-pair-out" else splits
    found = estimate_auc(RLS(), np.full((24, width), value), y, method=method, **options).value
    # Pooling compares folds, whose intercepts differ: it is below one half, as it should be.
    assert found == 0.5 if method != "pooled" else found <= 0.5


@pytest.mark.parametrize("width", [3, 40], ids=["primal", "dual"])
@pytest.mark.parametrize("scale", [1e-7, 1.0, 16.0])
def test_equal_rows_are_tied_at_any_scale(width, scale) -> None:
    rng = np.random.default_rng(1)
    X, y = np.repeat(short(rng.normal(size=(4, width))), 3, axis=0) * near(scale), np.tile([0, 1], 6)
    assert estimate_auc(RLS(), X, y, n_halvings=0).value == pair_share("rls-intercept", X, y)


@pytest.mark.parametrize("scale", [1e-100, 1e-9, 1e-5, 1.0, 1e5, 1e6, 1e7, 1e9, 1e100])
def test_dual_hold_out_keeps_its_digits(scale) -> None:
    X, y, qid = wide_queries()
    X = X * near(scale)
    folds = [np.flatnonzero(qid == q) for q in range(4)]
    exact = ExactLearner("rank", 1.0).held_out(X, y, qid, folds)
    assert relative_error(cross_val_predict(RankRLS(), X, y, qid=qid), exact) < TOLERANCE


@pytest.mark.parametrize("scale", [1e-100, 1e-9, 1.0, 1e6, 1e9, 1e100])
def test_pairs_keep_their_digits(scale) -> None:
    X, y, _ = wide_queries()
    X = X * near(scale)
    pairs = np.array([[0, 5], [3, 9], [10, 2]])
    _, found = leave_pair_out(RankRLS(), X, y, pairs=pairs)
    learner = ExactLearner("rank", 1.0)
    exact = [f for pair in pairs for f in learner.without(X, y, None, pair, pair)]
    assert relative_error(found, exact) < TOLERANCE
