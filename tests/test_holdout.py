"""Held-out predictions equal refitting: every kernel, cost, ties, weighting, fold type and alpha."""

from __future__ import annotations

import warnings
from unittest import mock

import numpy as np
import pytest
import scipy.sparse as sp
import sklearn
from hypothesis import assume, given
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.model_selection import GridSearchCV, GroupKFold, LeaveOneOut, TimeSeriesSplit
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler

import oracles
from preflearn import RLS, RLSCV, RankRLS, RankRLSCV
from preflearn.model_selection import (
    HeldOut,
    QueryKFold,
    cross_val_predict,
    leave_pair_out_tally,
    permutation_test,
)
from preflearn.model_selection import _problem as choosing
from preflearn.squared import representations
from preflearn.squared.holdout.base import RemovedBasis, span_of_rows
from preflearn.squared.holdout.dual import DualHoldOut
from preflearn.squared.holdout.feature import FeatureHoldOut
from strategies import examples, ranking_problems

ALPHAS = st.sampled_from([2.0**-15, 2.0**-6, 1.0, 2.0**15])
REPRESENTATIONS = st.sampled_from(
    [
        {},
        {"solver": "dual"},
        {"kernel": "rbf"},
        {"kernel": "poly", "degree": 2},
        {"kernel": "rbf", "n_basis": 0.5, "random_state": 0},
    ]
)
RANKING = st.fixed_dictionaries(
    {
        "cost": st.sampled_from(["magnitude", "unit", "relative"]),
        "ties": st.sampled_from(["include", "exclude"]),
        "weighting": st.sampled_from(["pair", "item", "query"]),
    }
)


def tolerance(expected):
    return {"rtol": 1e-6, "atol": 1e-6 * max(1.0, np.nanmax(np.abs(expected)))}


def scaled(problem):
    """Features of unit size: the oracle refits at the smallest alpha too, and must itself be accurate there."""
    X = problem.X / max(1e-12, abs(problem.X).max())
    return X, problem.y / max(1.0, abs(problem.y).max())


@examples(120)
@given(ranking_problems(min_rows=8, max_rows=16, max_features=4), RANKING, REPRESENTATIONS, ALPHAS, st.data())
def test_whole_queries(problem, ranking, representation, alpha, data):
    X, y = scaled(problem)
    labels = np.unique(problem.qid)
    n_folds = data.draw(st.integers(2, max(2, len(labels))))
    folds = [np.flatnonzero(np.isin(problem.qid, labels[k::n_folds])) for k in range(n_folds)]
    folds = [fold for fold in folds if 0 < len(fold) < len(y)]
    assume(folds)
    check(RankRLS(alpha, **ranking, **representation), X, y, problem.qid, folds)


@examples(120)
@given(ranking_problems(min_rows=8, max_rows=14, max_features=4), RANKING, REPRESENTATIONS, ALPHAS, st.data())
def test_parts_of_queries_and_of_global_rankings(problem, ranking, representation, alpha, data):
    X, y = scaled(problem)
    qid = problem.qid if data.draw(st.booleans()) else np.zeros(len(y), int)
    if ranking["weighting"] == "query" and len(np.unique(qid)) > 1:
        ranking = {**ranking, "weighting": "item"}
    order = np.random.default_rng(data.draw(st.integers(0, 99))).permutation(len(y))
    folds = np.array_split(order, data.draw(st.sampled_from([3, 5, len(y)])))
    check(RankRLS(alpha, **ranking, **representation), X, y, qid, folds)


@examples(80)
@given(
    ranking_problems(min_rows=6, max_rows=14),
    st.booleans(),
    REPRESENTATIONS,
    ALPHAS,
    st.sampled_from([2, 4, None]),
)
def test_regression(problem, fit_intercept, representation, alpha, n_folds):
    X, y = scaled(problem)
    folds = np.array_split(np.arange(len(y)), n_folds or len(y))
    check(RLS(alpha, fit_intercept=fit_intercept, **representation), X, y, None, folds)


def refused_or_without_comparisons(error, shortcut):
    """Where refitting is impossible so is the shortcut, or it gives the limit of a model without comparisons.

    Without a basis vector nothing can be predicted; rows that compare nothing leave a model that is zero on the rest,
    whose predictions are finite.
    """
    if "basis" in str(error):
        with pytest.raises(ValueError, match="every basis vector"):
            shortcut()
        return
    assert "compared" in str(error) or "1 sample" in str(error)
    try:
        found = shortcut()
    except ValueError as refusal:
        reasons = ("compared", "1 sample", "every basis vector")
        assert any(reason in str(refusal) for reason in reasons)
    else:
        assert np.isfinite(found).all()


def check(model, X, y, qid, folds):
    """Both ways agree: on the predictions, or on the refusal."""
    try:
        expected = oracles.refit_folds(model, X, y, qid, folds)
    except ValueError as error:
        refused_or_without_comparisons(error, lambda: cross_val_predict(model, X, y, qid=qid, cv=folds))
        return
    found = cross_val_predict(model, X, y, qid=qid, cv=folds)
    allowed = tolerance(expected)
    if getattr(model, "cost", None) == "relative":
        # The weights 1 / (s_i - s_j)² have no bound: training itself is no better than some roundings of L K / λ.
        L = oracles.dense_comparisons(y, qid, cost="relative", ties="exclude", weighting=model.weighting)[0]
        rounding = 50 * np.finfo(float).eps * np.linalg.norm(L, 2) * len(y) / model.alpha
        allowed["atol"] *= max(1.0, rounding / 1e-6)
    np.testing.assert_allclose(found, expected, **allowed)
    # Several alphas take other routines than one.
    path = HeldOut(model, X, y, qid=qid).predict(folds, [model.alpha, 8 * model.alpha])
    np.testing.assert_allclose(path[0], expected, **allowed)


@examples(60)
@given(st.integers(0, 10**6), ALPHAS, st.sampled_from(["linear", "rbf"]), st.sampled_from([3, 6, None]))
def test_copies_of_basis_vectors_leave_only_together(seed, alpha, kernel, n_folds):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(7, 8))[rng.integers(0, 7, 20)]  # every row occurs about three times
    y, qid = rng.normal(size=20), rng.integers(0, 6, 20)
    basis = rng.choice(20, 9, replace=False)
    queries = [np.flatnonzero(qid == label) for label in np.unique(qid)]
    folds = [np.concatenate(queries[k :: n_folds or 6]) for k in range(min(n_folds or 6, len(queries)))]
    model = RankRLS(alpha, kernel=kernel, basis=basis)
    try:
        expected = [oracles.refit_reduced(model, X, y, qid, basis, fold) for fold in folds]
    except ValueError as error:
        refused_or_without_comparisons(error, lambda: cross_val_predict(model, X, y, qid=qid, cv=folds))
        return
    expected = np.concatenate(expected)
    found = cross_val_predict(model, X, y, qid=qid, cv=folds)
    np.testing.assert_allclose(found[np.concatenate(folds)], expected, **tolerance(expected))


def make_data(m=40, n=4, queries=6, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(m, n))
    return X, X @ rng.normal(size=n) + 0.3 * rng.normal(size=m), rng.integers(0, queries, size=m)


@pytest.mark.parametrize(
    "representation", [{}, {"kernel": "rbf"}, {"kernel": "rbf", "n_basis": 12, "random_state": 0}]
)
def test_every_alpha_and_output_from_one_factorisation(representation):
    X, y, qid = make_data()
    Y = np.stack([y, y**2], axis=1)
    alphas = [2.0**-15, 1.0, 2.0**15]
    found = HeldOut(RankRLS(**representation), X, Y, qid=qid).predict("leave-query-out", alphas)
    folds = [np.flatnonzero(qid == q) for q in np.unique(qid)]
    for k, alpha in enumerate(alphas):
        expected = oracles.refit_folds(RankRLS(alpha, **representation), X, Y, qid, folds)
        np.testing.assert_allclose(found[k], expected, **tolerance(expected))


def test_overlapping_folds_are_averaged_and_missing_rows_are_nan():
    X, y, _ = make_data(10)
    found = cross_val_predict(RankRLS(kernel="rbf"), X, y, cv=[[0, 1, 2], [2, 3]])
    first = oracles.refit_without(RankRLS(kernel="rbf"), X, y, None, [0, 1, 2], [0, 1, 2])
    second = oracles.refit_without(RankRLS(kernel="rbf"), X, y, None, [2, 3], [2, 3])
    np.testing.assert_allclose(found[[0, 1]], first[:2])
    np.testing.assert_allclose(found[2], (first[2] + second[0]) / 2)
    np.testing.assert_allclose(found[3], second[1])
    assert np.isnan(found[4:]).all()


@pytest.mark.parametrize(
    "estimator", [RankRLS(kernel="rbf"), RLS(), make_pipeline(StandardScaler(), Ridge())]
)
def test_groups_leave_the_training_whole(estimator):
    X, y, _ = make_data(20)
    groups = np.arange(20) // 3
    found = cross_val_predict(estimator, X, y, cv="leave-one-out", groups=groups)
    for i in (0, 7, 19):
        expected = oracles.refit_without(estimator, X, y, None, np.flatnonzero(groups == groups[i]), [i])
        np.testing.assert_allclose(found[i], expected[0])
    whole = cross_val_predict(estimator, X, y, cv="leave-group-out", groups=groups)
    expected = oracles.refit_without(estimator, X, y, None, [3, 4, 5], [3, 4, 5])
    np.testing.assert_allclose(whole[3:6], expected)


def test_copies_of_basis_vectors_may_stay():
    X, y, qid = make_data(30)
    X[15:] = X[:15]  # every row twice: a copy may stay when its twin leaves
    model = RankRLS(kernel="rbf", basis=np.arange(20))
    folds = [np.flatnonzero(qid == q) for q in np.unique(qid)]
    expected = np.full(30, np.nan)
    for fold in folds:
        rest = np.setdiff1d(np.arange(30), fold)
        fresh = RankRLS(kernel="rbf", basis=np.flatnonzero(np.isin(rest, np.arange(20))))
        expected[fold] = fresh.fit(X[rest], y[rest], qid=qid[rest]).predict(X[fold])
    np.testing.assert_allclose(cross_val_predict(model, X, y, qid=qid), expected, **tolerance(expected))


def dependent_rows(rng, m, n_choices):
    """Rows of independent choices between two words: wherever two choices differ, four rows are dependent."""
    chosen = rng.integers(2, size=(m, n_choices))
    return np.concatenate([chosen, 1 - chosen], axis=1) * np.linspace(0.5, 2.0, 2 * n_choices)


@examples(60)
@given(
    st.integers(0, 10_000),
    st.integers(2, 6),
    st.sampled_from([{"kernel": "linear"}, {"kernel": "poly", "degree": 2, "gamma": 0.1}]),
    st.sampled_from([RankRLS(), RankRLS(weighting="query"), RLS(), RLS(fit_intercept=False)]),
    st.sampled_from([2.0**-6, 1.0, 2.0**6]),
    st.booleans(),
)
def test_basis_vectors_in_the_span_of_others(seed, n_choices, kernel, model, alpha, single):
    rng = np.random.default_rng(seed)
    X = dependent_rows(rng, 30, n_choices)
    y, qid = rng.normal(size=30), np.repeat(np.arange(6), 5)
    X = X.astype(np.float32) if single else X
    basis = np.sort(rng.choice(30, size=int(rng.integers(8, 29)), replace=False))
    model = sklearn.clone(model).set_params(alpha=alpha, basis=basis, **kernel)
    folds = [np.flatnonzero(qid == q) for q in range(6)]
    alphas, queries = [alpha, 4 * alpha], qid if isinstance(model, RankRLS) else None
    expected = np.full((2, 30), np.nan)
    for k, fold in ((k, fold) for k in range(2) for fold in folds):
        at_alpha = sklearn.clone(model).set_params(alpha=alphas[k])
        expected[k, fold] = oracles.refit_reduced(at_alpha, X, y, queries, basis, fold)
    # With single precision the basis vectors may be too near to each other for the algebra.
    refit = choosing.Problem._refit if single else mock.Mock(side_effect=AssertionError("refitted"))
    with mock.patch.object(choosing.Problem, "_refit", refit):
        found = HeldOut(model, X, y, qid=queries).predict(folds, alphas)
    precision = 2e-3 if single else 1e-7
    np.testing.assert_allclose(found, expected, rtol=precision, atol=precision * np.abs(expected).max())


def test_a_basis_vector_that_is_nearly_in_the_span_of_others():
    """At any distance from the span, on either side of what counts as none."""
    rng = np.random.default_rng(0)
    y, qid = rng.normal(size=24), np.repeat(np.arange(6), 4)
    for distance in 10.0 ** np.arange(-12.0, 0.0):
        X = rng.normal(size=(24, 8))
        X[:12, 4:] = 0.0
        X[5, 4] = distance  # the first twelve rows span four dimensions, and a little of a fifth
        model = RankRLS(1.0, basis=np.arange(12))
        folds = [np.flatnonzero(qid == q) for q in range(6)]
        expected = np.concatenate(
            [oracles.refit_reduced(model, X, y, qid, np.arange(12), fold) for fold in folds]
        )
        found = cross_val_predict(model, X, y, qid=qid)
        np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6, err_msg=f"distance {distance}")


@pytest.mark.parametrize("distance", [1e-2, 3e-4])
def test_basis_vectors_that_leave_together_may_be_near_each_other(distance):
    """What leaves with each of them is almost the same direction, and their span is known all the same."""
    rng = np.random.default_rng(0)
    y, qid = rng.normal(size=60), np.repeat(np.arange(12), 5)
    X = np.repeat(rng.normal(size=(12, 70)), 5, axis=0) + distance * rng.normal(size=(60, 70))
    basis = np.flatnonzero(np.arange(60) % 5 < 4)
    model = RankRLS(1e-3, basis=basis)
    folds = [np.flatnonzero(qid == q) for q in range(12)]
    expected = np.concatenate([oracles.refit_reduced(model, X, y, qid, basis, fold) for fold in folds])
    with mock.patch.object(FeatureHoldOut, "_retrain", side_effect=AssertionError("retrained")):
        found = HeldOut(model, X, y, qid=qid).predict(folds, [1e-3, 1.0])[0]
    np.testing.assert_allclose(found, expected, rtol=1e-7, atol=1e-7 * np.abs(expected).max())


@pytest.mark.parametrize("alphas", [[1.0], [1e-12, 1.0]])
def test_a_zero_vector_is_no_basis(alphas):
    X, y, _ = make_data(12)
    X[5] = 0.0
    held_out = HeldOut(RankRLS(basis=[1, 5]), X, y)
    with pytest.raises(ValueError, match="every basis vector"):
        held_out.predict([np.arange(4), np.arange(4, 12)], alphas)


def test_most_of_a_nearly_dependent_basis_leaves():
    # Six of seven basis vectors that are close to each other leave: their directions can hardly be told apart.
    x = np.array(
        [0.90535587, 0.34558419, -0.73645409, 0.3645724, 0.33043708, 0.2941325, 0.44637457, 0.54671299]
    )
    x = np.append(x, [0.5811181, -1.30315723, 0.02842224, -0.53695324, 0.82161814])
    y = np.array(
        [-0.29245675, 1.5, -1.88901325, -0.27560291, 0.59884621, 1.29406381, -0.78190846, -2.71116248]
    )
    y = np.append(y, [0.00814218, 0.03972211, 1.00672432, -0.25719224, 0.5])
    X, y = x[:, None] / abs(x).max(), y / abs(y).max()
    qid = np.array([2, 0, 1, 1, 2, 1, 0, 0, 2, 0, 0, 0, 0])
    folds = [np.flatnonzero(qid != 1), np.flatnonzero(qid == 1)]
    check(RankRLS(2.0**-15, kernel="rbf", n_basis=0.5, random_state=0), X, y, qid, folds)


def test_held_out_basis_vectors_do_not_stay_in_the_model():
    X, y, qid = make_data(60, queries=12)
    model = RankRLS(2.0**-15, kernel="rbf", gamma=2.0, n_basis=0.8, random_state=0)
    fixed = model.fit(X, y, qid=qid)
    left_in = np.full(60, np.nan)
    for q in np.unique(qid):
        rest, fold = np.flatnonzero(qid != q), np.flatnonzero(qid == q)
        K = rbf_kernel(X, X[fixed.basis_indices_], gamma=2.0)
        L, b = oracles.dense_comparisons(y[rest], qid[rest])
        K_RR = K[fixed.basis_indices_]
        left_in[fold] = K[fold] @ oracles.reduced_set_solution(K[rest], K_RR, L, b, 2.0**-15)
    taken_out = cross_val_predict(model, X, y, qid=qid)
    assert abs(taken_out - left_in).max() > 0.1  # the two really differ, and ours is the refit
    folds = [np.flatnonzero(qid == q) for q in np.unique(qid)]
    expected = oracles.refit_folds(model, X, y, qid, folds)
    np.testing.assert_allclose(taken_out, expected, **tolerance(expected))


def test_precomputed_kernels_objects_and_sparse_rows():
    X, y, qid = make_data()
    expected = cross_val_predict(RankRLS(kernel="rbf"), X, y, qid=qid)
    np.testing.assert_allclose(
        cross_val_predict(RankRLS(kernel="precomputed"), rbf_kernel(X), y, qid=qid), expected
    )
    as_objects = RankRLS(kernel=lambda a, b: float(np.exp(-0.25 * np.sum((a - b) ** 2))))
    np.testing.assert_allclose(cross_val_predict(as_objects, list(X), y, qid=qid), expected)
    linear = cross_val_predict(RankRLS(), X, y, qid=qid)
    np.testing.assert_allclose(cross_val_predict(RankRLS(), sp.csr_array(X), y, qid=qid), linear)
    by_cg = cross_val_predict(RankRLS(solver="cg", tol=1e-12), X, y, qid=qid)
    np.testing.assert_allclose(by_cg, linear, atol=1e-6)


@pytest.mark.parametrize(
    "representation", [{"kernel": "rbf"}, {"kernel": "rbf", "n_basis": 10, "random_state": 0}]
)
def test_a_precomputed_kernel_is_not_modified(representation):
    X, y, qid = make_data()
    K = rbf_kernel(X)
    before = K.copy()
    options = {**representation, "kernel": "precomputed"}
    cross_val_predict(RankRLS(**options), K, y, qid=qid)
    np.testing.assert_array_equal(K, before)


@pytest.mark.parametrize(
    "cv",
    ["leave-query-out", 3, QueryKFold(3), GroupKFold(3)],
    ids=["name", "int", "query splitter", "group splitter"],
)
def test_folds_of_whole_queries_by_any_name(cv):
    X, y, qid = make_data()
    found = cross_val_predict(RankRLS(), X, y, qid=qid, cv=cv)
    n_folds = len(np.unique(qid)) if cv == "leave-query-out" else 3
    assert np.isfinite(found).all()
    if n_folds == 3:
        splitter = GroupKFold(3) if isinstance(cv, GroupKFold) else QueryKFold(3)
        key = {"groups": qid} if isinstance(cv, GroupKFold) else {"qid": qid}
        folds = [test for _, test in splitter.split(X, y, **key)]
    else:
        folds = [np.flatnonzero(qid == q) for q in np.unique(qid)]
    np.testing.assert_allclose(found, oracles.refit_folds(RankRLS(), X, y, qid, folds))


def test_a_regression_is_held_out_by_query():
    X, y, qid = make_data()
    folds = [np.flatnonzero(qid == q) for q in np.unique(qid)]
    found = cross_val_predict(RLS(kernel="rbf"), X, y, qid=qid)
    np.testing.assert_allclose(found, oracles.refit_folds(RLS(kernel="rbf"), X, y, None, folds))


@pytest.mark.parametrize("model", [RankRLS(2.0), RLS(2.0)])
def test_half_of_a_long_ranking_leaves_without_a_matrix_of_its_size(model):
    """A global ranking, or the rows behind an intercept: 12,000 × 12,000 numbers would take minutes and a gigabyte."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(24_000, 3)) + 5.0
    y = X @ [1.0, -1.0, 0.5] + rng.normal(size=24_000)
    folds = np.split(rng.permutation(24_000), 2)
    found = cross_val_predict(model, X, y, cv=folds)
    for left, rest in (folds, folds[::-1]):
        np.testing.assert_allclose(
            found[left], clone(model).fit(X[rest], y[rest]).predict(X[left]), rtol=1e-9
        )


def test_any_other_estimator_is_refitted():
    X, y, _ = make_data(12)
    found = cross_val_predict(Ridge(), X, y, cv=LeaveOneOut())
    np.testing.assert_allclose(found, oracles.refit_folds(Ridge(), X, y, None, [[i] for i in range(12)]))
    scores = cross_val_predict(LogisticRegression(), X, y > 0, cv=3)
    assert len(np.unique(scores)) > 2  # decision values, not classes


@pytest.mark.parametrize("n_alphas", [1, 8, 15])
@pytest.mark.parametrize("order", ["C", "F"])
def test_small_queries_at_many_alphas_equal_refitting(n_alphas, order):
    X, y, qid = make_data(200, n=8, queries=40)
    alphas, y = 2.0 ** np.arange(-n_alphas, n_alphas, 2), np.round(y)
    held = HeldOut(RankRLS(ties="exclude"), np.array(X, order=order), y, qid=qid)
    first = held.predict("leave-query-out", alphas)
    held.predict([np.arange(7)], alphas)  # part of the queries
    np.testing.assert_allclose(held.predict("leave-query-out", alphas), first, rtol=1e-9, atol=1e-9)
    folds = [np.flatnonzero(qid == query) for query in np.unique(qid)]
    for alpha, f in zip(alphas, first, strict=True):
        expected = oracles.refit_folds(RankRLS(alpha, ties="exclude"), X, y, qid, folds)
        np.testing.assert_allclose(f, expected, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize(
    "model",
    [
        RLS(),
        RLS(fit_intercept=False),
        RLS(fit_intercept=False, kernel="rbf", n_basis=9, random_state=0),
        RankRLS(),
        RankRLS(ties="exclude"),
        RankRLS(kernel="rbf"),
        RankRLS(kernel="rbf", n_basis=9, random_state=0),
    ],
    ids=str,
)
def test_what_belongs_to_the_caller_is_not_modified(model):
    X, y, qid = make_data(40, queries=8)
    y = np.round(y)
    mine = [X.copy(), y.copy(), qid.copy()]
    for cv in ("leave-one-out", 5, "leave-query-out"):
        keys = {"qid": qid} if cv == "leave-query-out" else {}
        cross_val_predict(model, X, y, cv=cv, **keys)
    leave_pair_out_tally(model, X, y)
    permutation_test(model, X, y, n_permutations=9, random_state=0)
    search = RLSCV if isinstance(model, RLS) else RankRLSCV
    options = {name: value for name, value in model.get_params().items() if name in search().get_params()}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        search(**options).fit(X, y)
    for before, after in zip(mine, (X, y, qid), strict=True):
        np.testing.assert_array_equal(after, before)


def test_unstable_folds_are_refitted(monkeypatch):
    rng = np.random.default_rng(0)
    X, y, qid = 100 * rng.normal(size=(24, 20)), rng.normal(size=24), np.repeat(np.arange(6), 4)
    model = RankRLS(2.0**-15, solver="primal")  # leverages of one up to 1e-11: nothing left of 1 - h
    calls = []
    retrain = FeatureHoldOut._retrain
    monkeypatch.setattr(FeatureHoldOut, "_retrain", lambda self, *a: calls.append(a) or retrain(self, *a))
    found = cross_val_predict(model, X, y, qid=qid)
    assert calls
    folds = [np.flatnonzero(qid == q) for q in range(6)]
    expected = oracles.refit_folds(model, X, y, qid, folds)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5 * abs(expected).max())


def test_progress_is_told_on_request(capsys):
    X, y, qid = make_data()
    cross_val_predict(RankRLS(kernel="rbf"), X, y, qid=qid, verbose=1)
    assert "6 of 6 folds" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "needs their labels: pass qid"),
        ({"cv": "leave-group-out"}, "pass groups"),
        ({"cv": "leave-two-out"}, "cv must be one of .*'leave-two-out'"),
        ({"cv": []}, "no fold"),
        ({"cv": [[0, 0]]}, "names a row twice"),
        ({"cv": [[0, 40]]}, "row 40: expected rows 0 to 39"),
        ({"cv": [[]]}, "non-empty"),
        ({"cv": [np.arange(40)]}, "nothing is left"),
        (
            {"cv": [(np.arange(19), np.arange(20, 40))]},
            "trains on 19 rows, and 20 of the 40 rows do not leave",
        ),
        ({"cv": [(np.arange(21), np.arange(20, 40))]}, "trains on 21 rows"),
        ({"cv": [(np.arange(20), np.arange(20, 40)), np.arange(20)]}, "mixes"),
        ({"cv": TimeSeriesSplit(3)}, "complements of its test sets"),
        ({"cv": "leave-pair-out"}, "use leave_pair_out"),
        ({"cv": 3.5}, "cv must be"),
        ({"cv": 3, "groups": [1, 2]}, "groups must hold one group label per row"),
        ({"cv": [[0, 1]], "groups": np.zeros(40)}, "shares a group with every row"),
    ],
)
def test_bad_folds_are_refused(arguments, message):
    X, y, _ = make_data()
    with pytest.raises(ValueError, match=message):
        cross_val_predict(RankRLS(), X, y, **arguments)


@pytest.mark.parametrize("representation", [{}, {"kernel": "rbf"}, {"kernel": "rbf", "n_basis": 10}])
def test_parts_of_queries_under_query_weighting_are_refused(representation):
    X, y, qid = make_data()
    with pytest.raises(ValueError, match="weighting='query'.*whole queries together"):
        cross_val_predict(RankRLS(weighting="query", **representation), X, y, qid=qid, cv=[[0, 1], [2]])


def test_no_warning_escapes():
    X, y, qid = make_data()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for options in ({}, {"kernel": "rbf"}, {"ties": "exclude", "kernel": "rbf"}):
            cross_val_predict(RankRLS(**options), X, np.round(y), qid=qid)


@pytest.mark.filterwarnings("ignore:This model was fitted with")
@pytest.mark.parametrize("routing", [False, True])
@pytest.mark.parametrize("wrap", ["pipeline", "search", "both"])
def test_wrapped_rankers_learn_inside_queries(wrap, routing):
    rng = np.random.default_rng(0)
    X, qid = rng.normal(size=(24, 3)), np.repeat(list("abcd"), 6)
    y = X[:, 0] + 10 * rng.permutation(4).repeat(6) + rng.normal(size=24)
    with sklearn.config_context(enable_metadata_routing=routing):
        ranker = RankRLS(0.5)
        if routing:
            ranker.set_fit_request(qid=True).set_score_request(qid=False)
        wrapped = ranker if wrap == "search" else make_pipeline(StandardScaler(), ranker)
        name = "alpha" if wrap == "search" else "rankrls__alpha"
        if wrap != "pipeline":
            wrapped = GridSearchCV(wrapped, {name: [0.5]}, cv=2)
        found = cross_val_predict(wrapped, X, y, qid=qid)
    for query in "abcd":
        test = qid == query
        scale = StandardScaler().fit(X[~test]) if wrap != "search" else FunctionTransformer()
        model = RankRLS(0.5).fit(scale.transform(X[~test]), y[~test], qid=qid[~test])
        np.testing.assert_allclose(found[test], model.predict(scale.transform(X[test])))


def test_unsorted_folds_that_are_whole_groups():
    X, y, _ = make_data(12)
    folds = [[2, 0, 1], [3, 4, 5], [8, 7, 6], [9, 10, 11]]
    found = cross_val_predict(RankRLS(), X, y, cv=folds, groups=np.repeat(np.arange(4), 3))
    np.testing.assert_allclose(found, cross_val_predict(RankRLS(), X, y, cv=folds))


def test_folds_of_two_sizes_in_a_global_ranking():
    X, y, _ = make_data(23)
    folds = [np.arange(k, 23, 4) for k in range(4)]
    model = RankRLS(0.5, kernel="rbf")
    found = cross_val_predict(model, X, y, cv=folds)
    np.testing.assert_allclose(found, oracles.refit_folds(model, X, y, None, folds))


@given(st.data(), st.integers(2, 12), st.integers(1, 4))
def test_basis_vectors_leave_with_the_last_of_their_copies(data, m, h):
    """One fold, and many folds of one size at once, against counting."""
    r = data.draw(st.integers(1, m))
    basis = np.array(data.draw(st.permutations(range(m))))[:r]
    pivot_of = np.array(data.draw(st.lists(st.integers(0, r - 1), min_size=r, max_size=r)))
    pivot_of = np.unique(pivot_of, return_inverse=True)[1]
    removed = RemovedBasis(pivot_of, basis, m)
    folds = np.array([data.draw(st.permutations(range(m)))[: min(h, m)] for _ in range(3)])
    together = removed.numbers_of_folds(folds)
    assert together.shape == folds.shape
    for fold, found in zip(folds, together, strict=True):
        wanted = [
            pivot
            for pivot in range(pivot_of.max() + 1)
            if set(basis[pivot_of == pivot]) <= set(fold.tolist())
        ]
        assert removed.numbers(fold).tolist() == wanted
        assert found.tolist() == wanted + [-1] * (fold.shape[0] - len(wanted))


@given(st.integers(1, 6), st.integers(1, 6), st.integers(0, 3))
def test_weights_of_the_basis_vectors_that_stay_span_their_rows(n, width, n_copies):
    F = np.random.default_rng(n + 10 * width).normal(size=(n, width))
    F = np.concatenate([F, F[: min(n, n_copies)]])
    Q = span_of_rows(F)
    assert Q.shape[1] == np.linalg.matrix_rank(F)
    np.testing.assert_allclose(Q.T @ Q, np.eye(Q.shape[1]), atol=1e-12)
    np.testing.assert_allclose(F @ Q @ Q.T, F, atol=1e-12)


LARGE_FOLDS = {
    "whole queries": ({}, 5),
    "parts of queries": ({"weighting": "pair"}, None),
    "unit cost": ({"cost": "unit"}, 5),
    "ties left out": ({"ties": "exclude"}, 5),
    "query weighting": ({"weighting": "query"}, 5),
    "reduced set": ({"kernel": "rbf", "n_basis": 9, "random_state": 0}, 5),
}


@pytest.mark.parametrize("name", LARGE_FOLDS)
@pytest.mark.parametrize("scales", ["alike", "graded"])
def test_folds_larger_than_the_features_are_subtracted_and_not_refitted(monkeypatch, name, scales):
    """A refit costs as much as training, and there may be a fold for every query: the search would be quadratic."""
    options, n_folds = LARGE_FOLDS[name]
    X, y, qid = make_data(m=120, n=3, queries=10)
    if scales == "graded" and "kernel" not in options:
        X = X * [1.0, 1e-4, 1e4]
    alphas = [2.0**-12, 1.0, 2.0**12]
    if n_folds is None:
        folds = [np.arange(start, 120, 4) for start in range(4)]
    else:
        folds = [np.flatnonzero(qid % n_folds == number) for number in range(n_folds)]
    model = RankRLS(**options)
    expected = [
        oracles.refit_folds(sklearn.base.clone(model).set_params(alpha=alpha), X, y, qid, folds)
        for alpha in alphas
    ]

    def refuse(self, fold, alphas):
        raise AssertionError("refitted")

    monkeypatch.setattr(FeatureHoldOut, "_retrain", refuse)
    found = HeldOut(model, X, y, qid=qid).predict(folds, alphas)
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6 * np.abs(expected).max())


def test_a_fold_that_holds_nearly_all_of_the_trace_is_refitted():
    X, y, qid = make_data(m=60, n=3, queries=6)
    X[qid == 0] *= 1e7
    model = RankRLS(1e-3)
    folds = [np.flatnonzero(qid == number) for number in np.unique(qid)]
    expected = oracles.refit_folds(model, X, y, qid, folds)
    found = HeldOut(model, X, y, qid=qid).predict(folds)[0]
    for fold in folds:
        np.testing.assert_allclose(
            found[fold], expected[fold], rtol=1e-6, atol=1e-6 * np.abs(expected[fold]).max()
        )


@pytest.mark.parametrize(
    "representation", [{}, {"kernel": "rbf"}, {"kernel": "rbf", "n_basis": 20, "random_state": 0}]
)
@pytest.mark.parametrize("weighting", ["pair", "item", "query"])
def test_rows_of_a_ranking_under_cost_unit_leave_by_algebra(monkeypatch, representation, weighting):
    X, y, _ = make_data(50)
    model = RankRLS(cost="unit", weighting=weighting, **representation)
    alphas, folds = [2.0**-8, 1.0, 2.0**12], [np.arange(k, 50, 10) for k in range(10)]
    expected = [
        oracles.refit_folds(clone(model).set_params(alpha=alpha), X, y, None, folds) for alpha in alphas
    ]

    def refuse(*args, **options):
        raise AssertionError("refitted")

    monkeypatch.setattr(choosing.Problem, "_refit", refuse)
    found = HeldOut(model, X, y).predict(folds, alphas)
    np.testing.assert_allclose(found, expected, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("shape", [(20, 3), (20, 40)], ids=["tall", "wide"])
@pytest.mark.parametrize("solver", ["dual", "primal"])
@pytest.mark.parametrize("many_alphas", [False, True])
def test_hold_outs_take_the_solver_that_is_asked_for(shape, solver, many_alphas, monkeypatch):
    """Rows, queries, pairs and searches; the route that ran is the one that was asked for."""
    made = []
    for kind in (FeatureHoldOut, DualHoldOut):
        start = kind.__init__

        def record(self, *args, _start=start, **options):
            made.append(type(self).__name__)
            _start(self, *args, **options)

        monkeypatch.setattr(kind, "__init__", record)
    expected = {"dual": "DualHoldOut", "primal": "FeatureHoldOut"}[solver]
    rng = np.random.default_rng(0)
    X, y, qid = rng.normal(size=shape), rng.normal(size=20), np.repeat(np.arange(5), 4)
    alphas = [0.5, 2.0] if many_alphas else [0.5]
    for model, labels in ((RankRLS(0.5), qid), (RankRLS(0.5), None), (RLS(0.5), None)):
        model.set_params(solver=solver)
        found = HeldOut(model, X, y, qid=labels).predict(5 if labels is None else "leave-query-out", alphas)
        other = clone(model).set_params(solver="auto")
        usual = HeldOut(other, X, y, qid=labels).predict(5 if labels is None else "leave-query-out", alphas)
        np.testing.assert_allclose(found, usual, rtol=1e-7, atol=1e-9)
        assert made[0] == expected
        made.clear()
    for search in (RankRLSCV, RLSCV):
        search([0.5, 2.0], solver=solver, cv=4).fit(X, y)
        assert set(made) == {expected}
        made.clear()
    used = []
    for name in ("feature_pair_system", "dual_pair_system", "path_pair_system"):
        call = getattr(representations, name)
        monkeypatch.setattr(
            representations, name, lambda *args, _call=call, _name=name: used.append(_name) or _call(*args)
        )
    HeldOut(RankRLS(solver=solver), X, y).pairs(alphas)
    assert {name == "feature_pair_system" for name in used} == {solver == "primal"}


@pytest.mark.parametrize("solver", ["primal", "dual"])
@pytest.mark.parametrize("options", [{}, {"cost": "unit", "ties": "exclude"}, {"weighting": "item"}])
@pytest.mark.parametrize("cv", [3, "leave-one-out"])
def test_columns_that_are_constant_inside_queries_say_nothing(solver, options, cv):
    """Parts of queries at a small alpha, which makes much of a rounding error of a column that is not compared."""
    rng = np.random.default_rng(1)
    qid = np.repeat(np.arange(4), 12)
    X = np.column_stack([1e4 + 0.1 * qid, rng.normal(size=(48, 2))])
    y = rng.integers(0, 3, size=48).astype(float)
    model = RankRLS(2.0**-27, solver=solver, **options)
    order = rng.permutation(48)
    folds = np.array_split(order, 3) if cv == 3 else [np.array([row]) for row in order]
    found = cross_val_predict(
        model, X, y, qid=qid, cv=[(np.setdiff1d(order, fold), fold) for fold in map(np.sort, folds)]
    )
    expected = oracles.refit_folds(model, X, y, qid, map(np.sort, folds))
    np.testing.assert_allclose(found, expected, atol=1e-6 * np.abs(expected).max())


def test_two_folds_of_cost_relative_never_compare_all_rows(monkeypatch):
    from preflearn.comparisons import relative

    sizes, block = [], relative._relative_block
    monkeypatch.setattr(
        relative, "_relative_block", lambda scores, w: sizes.append(len(scores)) or block(scores, w)
    )
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(200, 5)), rng.normal(size=200)
    cross_val_predict(RankRLS(cost="relative"), X, y, cv=2)
    assert sizes and max(sizes) <= 100
