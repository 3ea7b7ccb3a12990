"""Held-out predictions by iterations: identical to refitting up to the tolerance, for every alpha at once."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from sklearn.exceptions import ConvergenceWarning

import oracles
from preflearn import RLS, RankRLS, RankRLSCV
from preflearn.kernels._loops import products_of_rows, times_columns
from preflearn.model_selection import HeldOut, cross_val_predict, leave_preference_out
from preflearn.model_selection._problem import Problem
from preflearn.squared import routes
from preflearn.squared.holdout.dual import DualHoldOut
from preflearn.squared.holdout.krylov import KrylovHoldOut
from strategies import examples, ranking_problems

ALPHAS = [1e-2, 1.0, 30.0]
RNG = np.random.default_rng(11)


def has_untied_pair(rows, data):
    """Whether rows of a query have different scores: without, refitting refuses."""
    return any(np.ptp(data.y[rows][data.qid[rows] == q]) > 0 for q in np.unique(data.qid[rows]))


@examples(60)
@given(
    ranking_problems(min_rows=6, max_rows=24, max_features=8),
    st.sampled_from(["pair", "item", "query"]),
    st.sampled_from([{}, {"ties": "exclude"}, {"cost": "unit"}]),
    st.booleans(),
    st.booleans(),
    st.integers(1, 3),
)
def test_folds_of_queries_equal_refitting(data, weighting, options, sparse, double, n_outputs):
    X = data.X / abs(data.X).max()
    X = (sp.csr_array(X) if sparse else X).astype(np.float64 if double else np.float32)
    y = np.stack([data.y / abs(data.y).max()] * n_outputs, axis=1) * np.arange(1.0, n_outputs + 1)
    y = y[:, 0] if options or n_outputs == 1 else y
    names = np.unique(data.qid)
    folds = [np.flatnonzero(np.isin(data.qid, names[k::3])) for k in range(3)]
    folds = [
        fold for fold in folds if fold.size and has_untied_pair(np.delete(np.arange(len(y)), fold), data)
    ]
    if not folds:
        return
    model = RankRLS(weighting=weighting, solver="cg", **options)
    tight = HeldOut(RankRLS(weighting=weighting, solver="cg", tol=1e-13, **options), X, y, qid=data.qid)
    loose = HeldOut(model, X, y, qid=data.qid)
    exact = X.astype(np.float64).toarray() if sparse else X.astype(np.float64)
    for k, alpha in enumerate(ALPHAS):
        direct = RankRLS(alpha, weighting=weighting, solver="primal", **options)
        for found, limit in ((tight, 1e-8), (loose, 1e-4)):
            values = found.predict(folds, ALPHAS)[k]
            for fold in folds:
                wanted = oracles.refit_without(direct, exact, y, data.qid, fold, fold)
                np.testing.assert_allclose(values[fold], wanted, rtol=limit, atol=limit * abs(y).max())


@examples(40)
@given(
    ranking_problems(min_rows=8, max_rows=30, max_features=10),
    st.sampled_from([RankRLS(), RLS(), RLS(fit_intercept=False), RankRLS(weighting="item")]),
    st.booleans(),
    st.sampled_from([0.0, 1e5]),
)
def test_rows_of_one_ranking_and_of_a_regression_equal_refitting(data, model, sparse, offset):
    X = data.X / abs(data.X).max() + (0.0 if sparse else offset)
    y = data.y / abs(data.y).max()
    folds = [np.arange(k, len(y), 3) for k in range(3)]
    iterated = type(model)(**{**model.get_params(), "solver": "cg", "tol": 1e-13})
    found = HeldOut(iterated, sp.csr_array(X) if sparse else X, y).predict(folds, ALPHAS)
    wanted = HeldOut(type(model)(**{**model.get_params(), "solver": "primal"}), X, y).predict(folds, ALPHAS)
    if isinstance(model, RLS) and not model.fit_intercept and offset:
        return  # a regression on features of size 1e5 through the origin has no digits left at these alphas
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5 * max(1.0, abs(wanted).max()))


def text_ranking(m=700, n=1200, n_queries=35):
    X = sp.random_array((m, n), density=0.01, rng=3, format="csr")
    qid = np.repeat(np.arange(n_queries), m // n_queries)
    return X, X @ RNG.normal(size=n) + 0.1 * RNG.normal(size=m), qid


def test_a_search_by_iterations_chooses_as_a_square_matrix_does():
    X, y, qid = text_ranking()
    alphas = np.logspace(-3, 3, 9)
    exact = RankRLSCV(alphas, cv=5, solver="dual", keep_predictions=True).fit(X, y, qid=qid)
    found = RankRLSCV(alphas, cv=5, solver="cg", keep_predictions=True).fit(X, y, qid=qid)
    assert found.alpha_ == exact.alpha_
    np.testing.assert_allclose(found.cv_scores_, exact.cv_scores_, atol=1e-3)
    size = abs(exact.cv_predictions_).max(axis=1, keepdims=True)
    assert (abs(found.cv_predictions_ - exact.cv_predictions_) <= 1e-4 * size).all()


def test_all_alphas_share_one_sequence():
    X, y, qid = text_ranking()
    (task,) = Problem.read(RankRLS(), X, y, qid).tasks
    folds = [np.flatnonzero(qid % 5 == k) for k in range(5)]
    alone, together = KrylovHoldOut(X, task), KrylovHoldOut(X, task)
    alone.predict(folds, [0.01])
    together.predict(folds, [0.01, 0.1, 1.0, 10.0])
    assert alone.n_iter == together.n_iter
    assert alone.converged


def test_the_automatic_grid_of_iterations_is_placed_by_the_spectrum():
    X, y, qid = text_ranking()
    held = HeldOut(RankRLS(solver="cg"), X, y, qid=qid)
    grid = held.alphas("auto")
    whole = HeldOut(RankRLS(solver="dual"), X, y, qid=qid).alphas("auto")
    assert grid.shape == (19,)
    assert grid[-1] in (whole[-1] / 2, whole[-1])


def test_iterations_that_run_out_say_so():
    X, y, qid = text_ranking()
    with pytest.warns(ConvergenceWarning, match="stopped after 3 iterations before they reached tol=1e-06"):
        cross_val_predict(RankRLS(1e-4, solver="cg", max_iter=3), X, y, qid=qid, cv=5)


def test_what_is_asked_next_may_take_another_route(monkeypatch):
    """Folds by iterations where the square matrix does not fit; when it does, single queries by algebra."""
    X, y, qid = text_ranking()
    monkeypatch.setattr(routes, "MEMORY", 3.6e6)
    held = HeldOut(RankRLS(), X, y, qid=qid)
    folds = held.predict(5, [0.1, 1.0])
    ((_, routine),) = held.problem._kept["path"]
    assert isinstance(routine, KrylovHoldOut)
    monkeypatch.undo()
    found = held.predict("leave-query-out", [0.1, 1.0])
    ((_, routine),) = held.problem._kept["path"]
    assert isinstance(routine, DualHoldOut)
    whole = HeldOut(RankRLS(solver="dual"), X, y, qid=qid)
    np.testing.assert_allclose(found, whole.predict("leave-query-out", [0.1, 1.0]))
    np.testing.assert_allclose(folds, whole.predict(5, [0.1, 1.0]), atol=1e-4 * abs(folds).max())


@examples(60)
@given(
    st.sampled_from(
        [{}, {"solver": "dual"}, {"solver": "primal"}, {"solver": "cg", "tol": 1e-13}, {"kernel": "rbf"}]
    ),
    st.sampled_from([2.0**-15, 2.0**-6, 1.0, 2.0**15]),
    st.booleans(),
    st.sampled_from(["single", "groups", "all but one"]),
    st.sampled_from([1.0, 1e3]),
    st.sampled_from([(8, 3, 10), (20, 30, 6), (6, 40, 25)]),
    st.integers(0, 999),
)
def test_preferences_equal_refitting_in_every_space(options, alpha, sparse, sets, ratio, shape, seed):
    """The pairs, the rows, the features, and iterations; weights of every ratio; one alpha and several."""
    rng = np.random.default_rng(seed)
    m, n, n_pairs = shape
    X = rng.normal(size=(m, n)) * (rng.random((m, n)) < 0.5)
    pairs = np.array([rng.choice(m, size=2, replace=False) for _ in range(n_pairs)])
    magnitude = rng.uniform(0.5, 2, n_pairs)
    weight = np.where(rng.random(n_pairs) < 0.3, ratio, 1.0) * rng.uniform(0.1, 2, n_pairs)
    groups = {
        "single": np.arange(n_pairs),
        "groups": np.arange(n_pairs) % 3,
        "all but one": (np.arange(n_pairs) > 0) * 1,
    }[sets]
    leaving = [np.flatnonzero(groups == g) for g in np.unique(groups)]
    data = sp.csr_array(X) if sparse and options.get("kernel") != "rbf" else X
    model = RankRLS(alpha, **options)
    held = HeldOut.of_pairs(model, data, pairs, magnitude=magnitude, weight=weight, groups=groups)
    exact = RankRLS(alpha, **{k: v for k, v in options.items() if k == "kernel"})
    wanted = oracles.refit_without_preferences(exact, X, pairs, magnitude, weight, leaving)
    limits = {"rtol": 1e-5, "atol": 1e-5 * max(1.0, abs(wanted).max())}
    np.testing.assert_allclose(held.preferences()[0], wanted, **limits)
    np.testing.assert_allclose(held.preferences(alphas=[alpha, 4 * alpha])[0], wanted, **limits)


def test_iterations_are_refused_for_other_kernels():
    with pytest.raises(ValueError, match="solver='cg' is for the linear kernel"):
        leave_preference_out(RankRLS(kernel="rbf", solver="cg"), RNG.normal(size=(6, 2)), [[0, 1], [2, 3]])


def test_a_preference_of_weight_zero_changes_nothing():
    X = RNG.normal(size=(10, 40))
    pairs, weight = np.arange(10).reshape(5, 2), np.array([1.0, 0.0, 2.0, 1.0, 1.0])
    found = leave_preference_out(RankRLS(), X, pairs, weight=weight)
    f = RankRLS().fit_pairs(X, pairs, weight=weight).predict(X)
    assert found[1] == pytest.approx(f[2] - f[3])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_compiled_products_are_those_of_dense_arrays(dtype):
    A = sp.random_array((210, 60), density=0.1, rng=0, format="csr").astype(dtype)
    A = sp.vstack([A[:5], sp.csr_array((2, 60), dtype=dtype), A[5:]], format="csr")  # empty rows
    V = RNG.normal(size=(60, 3))
    np.testing.assert_allclose(times_columns(A, V), A.toarray() @ V, rtol=1e-6, atol=1e-6)
    found = products_of_rows(A)
    assert found.dtype == dtype
    np.testing.assert_allclose(found, A.toarray() @ A.toarray().T, rtol=1e-5, atol=1e-6)
