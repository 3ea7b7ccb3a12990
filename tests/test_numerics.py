"""Right or refused: numbers at the ends of the range, against exact arithmetic.

Each test here once gave a wrong number without a word. The campaign that looks for more of them is in
test_campaign.py.
"""

from __future__ import annotations

import numpy as np
import pytest

from preflearn import RLS, RankRLS, RankRLSCV
from preflearn.metrics import concordance
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
    assert estimate_auc(RLS(), X, y).value == exact


@pytest.mark.parametrize("width", [3, 40], ids=["primal", "dual"])
@pytest.mark.parametrize("scale", [1e-12, 1e12])
def test_auc_does_not_depend_on_the_scale_of_y(width, scale) -> None:
    X, y = two_classes(width)
    expected = estimate_auc(RLS(), X * 1e-7, y).value
    assert estimate_auc(RLS(), X * 1e-7, y * scale).value == expected > 0.5


@pytest.mark.parametrize("method", ["leave-pair-out", "averaged", "pooled"])
@pytest.mark.parametrize("width", [3, 40], ids=["primal", "dual"])
@pytest.mark.parametrize("value", [0.1, 1e9 / 3, 1e-30])
def test_constant_features_order_nothing(method, width, value) -> None:
    y = np.repeat([0, 1], 12)
    splits = {} if method == "leave-pair-out" else {"n_splits": 4, "random_state": 0}
    options = {} if method == "leave-pair-out" else splits
    found = estimate_auc(RLS(), np.full((24, width), value), y, method=method, **options).value
    # Pooling compares folds, whose intercepts differ: it is below one half, as it should be.
    assert found == 0.5 if method != "pooled" else found <= 0.5


@pytest.mark.parametrize("width", [3, 40], ids=["primal", "dual"])
@pytest.mark.parametrize("scale", [1e-7, 1.0, 16.0])
def test_equal_rows_are_tied_at_any_scale(width, scale) -> None:
    rng = np.random.default_rng(1)
    X, y = np.repeat(short(rng.normal(size=(4, width))), 3, axis=0) * near(scale), np.tile([0, 1], 6)
    assert estimate_auc(RLS(), X, y).value == pair_share("rls-intercept", X, y)


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


# Offsets: what all rows have in common


@pytest.mark.parametrize("solver", ["dual", "primal"])
@pytest.mark.parametrize("shape", ["time stamp", "every column"])
@pytest.mark.parametrize("kind", ["rank", "rls-intercept"])
def test_offsets_do_not_cost_digits(solver, shape, kind) -> None:
    rng = np.random.default_rng(0)
    X, y, qid = short(rng.normal(size=(9, 12))), short(rng.normal(size=9)), np.repeat(np.arange(3), 3)
    offset = np.zeros(12)
    offset[0 if shape == "time stamp" else slice(None)] = 1.7e9 if shape == "time stamp" else 1e6
    model = RankRLS(solver=solver) if kind == "rank" else RLS(solver=solver)
    q = {"qid": qid} if kind == "rank" else {}
    expected = model.fit(X, y, **q).coef_.copy()
    np.testing.assert_allclose(model.fit(X + offset, y, **q).coef_, expected, rtol=0, atol=1e-10)
    held_out = cross_val_predict(model, X + offset, y, qid=qid)
    exact = ExactLearner(kind, 1.0).held_out(
        X + offset, y, qid if q else None, [np.flatnonzero(qid == k) for k in range(3)]
    )
    assert relative_error(held_out, exact) < 1e-6


@pytest.mark.parametrize("learner", [RankRLS, RLS])
@pytest.mark.parametrize("offset", [1e6, 1e8])
def test_offsets_do_not_cost_conjugate_gradients_their_digits(learner, offset) -> None:
    rng = np.random.default_rng(0)
    X, y = short(rng.normal(size=(60, 5))), short(rng.normal(size=60))
    model = learner(solver="cg", tol=1e-12)
    expected = model.fit(X, y).coef_.copy()
    found = model.fit(X + offset, y)
    np.testing.assert_allclose(found.coef_, expected, rtol=0, atol=1e-8)
    if learner is RLS:
        assert found.predict(X + offset).mean() == pytest.approx(y.mean(), abs=1e-6)


def test_a_huge_constant_feature_does_no_harm() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(100, 3))
    y = X @ [1.0, 2.0, 3.0]
    X = np.column_stack([X, np.full(100, 1.7e15)])
    assert concordance(y, RankRLS().fit(X, y).predict(X)) == 1.0
    assert concordance(y, cross_val_predict(RankRLS(), X, y, cv=5)) > 0.99


def test_predictions_are_finite_or_refused_where_y_over_alpha_overflows() -> None:
    X, y, qid = wide_queries()
    model = RankRLS(1e-200, solver="dual").fit(X, y * 1e150, qid=qid)
    exact = ExactLearner("rank", 1e-200).fitted(X, y * 1e150, qid)
    assert relative_error(model.predict(X), exact) < TOLERANCE


def test_a_width_that_makes_rows_look_equal_is_refused_for_that_reason() -> None:
    X, y, qid = wide_queries()
    for learner in (RankRLSCV(kernel="rbf", gamma=1e-18), RankRLS(kernel="rbf", gamma=1e-18)):
        with pytest.raises(ValueError, match="gamma = 1e-18 is so small"):
            learner.fit(X, y, qid=qid)


def test_a_kernel_that_hardly_tells_rows_apart_is_refused() -> None:
    X, y, qid = wide_queries()
    with pytest.raises(ValueError, match="hardly distinguishes the items of a query"):
        cross_val_predict(RankRLS(kernel="precomputed"), 1e11 + X @ X.T, y, qid=qid)


def test_an_overflowing_kernel_is_refused() -> None:
    X, y, qid = wide_queries()
    with pytest.raises(ValueError, match="overflow"):
        cross_val_predict(RankRLS(), X * 1e200, y, qid=qid)
