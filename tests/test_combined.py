"""Preferences in addition to scores: sums of comparisons, and RLS and RankRLS with pairs, against dense systems."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from sklearn.metrics.pairwise import pairwise_kernels
from tests.oracles import dense_comparisons, dense_intercept, dense_preferences, kernel_solution

from preflearn.comparisons import (
    PointwiseComparisons,
    PreferenceComparisons,
    QueryComparisons,
    encode_queries,
)
from preflearn.comparisons.preferences import SumComparisons
from preflearn.learners.rankrls import RankRLS
from preflearn.learners.rls import RLS
from preflearn.testing import check_comparisons, check_drop
from strategies import examples


@st.composite
def problems(draw):
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    m = draw(st.integers(4, 14))
    qid = random.integers(3, size=m)
    y = np.round(random.normal(size=m), 1)
    labelled = np.sort(random.permutation(m)[: draw(st.integers(2, m))])
    qid[labelled[:2]] = 0
    y[labelled[:2]] = [0.3, -1.2]  # something to compare, whatever the cost
    p = draw(st.integers(1, 10))
    first = random.integers(m, size=p)
    pairs = np.column_stack([first, (first + random.integers(1, m, size=p)) % m])
    return m, qid, y, labelled, pairs, random.normal(size=p), random.uniform(0.1, 2.0, size=p)


def embedded(L, b, rows, m):
    wide, target = np.zeros((m, m)), np.zeros(m)
    wide[np.ix_(rows, rows)] = L
    target[rows] = b
    return wide, target


@given(problem=problems(), kind=st.sampled_from(["pointwise", "pair", "item", "query"]))
def test_sum_is_the_sum(problem, kind):
    m, qid, y, labelled, pairs, magnitude, weight = problem
    scores = y[labelled, None]
    if kind == "pointwise":
        term, dense = PointwiseComparisons(scores), (np.eye(len(labelled)), y[labelled])
    else:
        queries = encode_queries(qid[labelled], len(labelled))
        term = QueryComparisons(scores, queries, weighting=kind)
        dense = dense_comparisons(y[labelled], qid[labelled], weighting=kind)
    total = SumComparisons(m, [(term, labelled), (PreferenceComparisons(m, pairs, magnitude, weight), None)])
    L1, b1 = embedded(*dense, labelled, m)
    L2, b2 = dense_preferences(m, pairs, magnitude, weight)
    check_comparisons(total, L1 + L2, b1 + b2)
    assert total.n_comparisons == term.n_comparisons + len(pairs)
    rows = np.flatnonzero(qid == qid[m - 1])
    if kind != "query" and (kind == "pointwise" or term.queries.n_groups > 1):
        check_drop(total, rows)


def test_what_cannot_be_dropped_is_refused():
    ranking = QueryComparisons(np.arange(4.0)[:, None], encode_queries(None, 4))
    total = SumComparisons(4, [(ranking, None), (PreferenceComparisons(4, np.array([[0, 1]])), None)])
    with pytest.raises(ValueError, match="weighting='item'"):
        total.drop(np.array([0]))
    centred = QueryComparisons(np.arange(4.0)[:, None], encode_queries(None, 4), weighting="item")
    check_drop(
        SumComparisons(4, [(centred, None), (PreferenceComparisons(4, np.array([[0, 1]])), None)]),
        np.array([0]),
    )


@examples(40)
@given(
    problem=problems(),
    kernel=st.sampled_from(["linear", "rbf"]),
    solver=st.sampled_from(["auto", "dual"]),
    fit_intercept=st.booleans(),
    container=st.sampled_from([np.asarray, sp.csr_array]),
)
def test_rls_with_pairs_equals_the_dense_solution(problem, kernel, solver, fit_intercept, container):
    m, _, y, labelled, pairs, magnitude, weight = problem
    X = np.random.default_rng(m).normal(size=(m, 3))
    K = pairwise_kernels(X, metric=kernel)
    of_labels = dense_intercept(y[labelled]) if fit_intercept else (np.eye(len(labelled)), y[labelled])
    L1, b1 = embedded(*of_labels, labelled, m)
    L2, b2 = dense_preferences(m, pairs, magnitude, weight)
    f = K @ kernel_solution(K, L1 + L2, b1 + b2, 0.7)
    if fit_intercept:
        f += (y - f)[labelled].mean()
    known = np.full(m, np.nan)
    known[labelled] = y[labelled]
    model = RLS(0.7, kernel=kernel, solver=solver, fit_intercept=fit_intercept)
    model.fit(container(X), known, pairs=pairs, magnitude=magnitude, weight=weight)
    assert_allclose(model.predict(container(X)), f, rtol=1e-6, atol=1e-7)


@examples(40)
@given(
    problem=problems(),
    kernel=st.sampled_from(["linear", "rbf"]),
    weighting=st.sampled_from(["pair", "item", "query"]),
    cost=st.sampled_from(["magnitude", "unit", "relative"]),
)
def test_rankrls_with_pairs_equals_the_dense_solution(problem, kernel, weighting, cost):
    m, qid, y, labelled, pairs, magnitude, weight = problem
    X = np.random.default_rng(m).normal(size=(m, 3))
    K = pairwise_kernels(X, metric=kernel)
    scores = dense_comparisons(y[labelled], qid[labelled], weighting=weighting, cost=cost)
    L1, b1 = embedded(*scores, labelled, m)
    L2, b2 = dense_preferences(m, pairs, magnitude, weight)
    f = K @ kernel_solution(K, L1 + L2, b1 + b2, 0.7)
    known = np.full(m, np.nan)
    known[labelled] = y[labelled]
    model = RankRLS(0.7, kernel=kernel, weighting=weighting, cost=cost)
    model.fit(X, known, qid=qid, pairs=pairs, magnitude=magnitude, weight=weight)
    assert_allclose(model.predict(X), f, rtol=1e-6, atol=1e-7)


def test_several_outputs_share_the_preferences():
    random = np.random.default_rng(0)
    X, Y = random.normal(size=(12, 3)), random.normal(size=(12, 2))
    Y[8:] = np.nan
    pairs = np.array([[9, 10], [11, 0]])
    both = RLS(kernel="rbf").fit(X, Y, pairs=pairs).predict(X)
    for k in range(2):
        assert_allclose(RLS(kernel="rbf").fit(X, Y[:, k], pairs=pairs).predict(X), both[:, k], rtol=1e-8)


def test_conjugate_gradients_and_reduced_set_with_pairs():
    random = np.random.default_rng(0)
    X, y = random.normal(size=(40, 5)), random.normal(size=40)
    y[25:] = np.nan
    pairs = random.permutation(40).reshape(20, 2)
    exact = RLS(kernel="linear").fit(X, y, pairs=pairs)
    iterated = RLS(kernel="linear", solver="cg", tol=1e-12).fit(sp.csr_array(X), y, pairs=pairs)
    assert_allclose(iterated.coef_, exact.coef_, rtol=1e-6, atol=1e-8)
    whole = RLS(kernel="rbf").fit(X, y, pairs=pairs)
    reduced = RLS(kernel="rbf", basis=np.arange(40)).fit(X, y, pairs=pairs)
    assert_allclose(reduced.predict(X), whole.predict(X), rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("learner", [RLS, RankRLS])
@pytest.mark.parametrize(
    "y, arguments, message",
    [
        ([1.0, 2.0, np.nan], {}, "NaN"),
        ([1.0, 2.0, 3.0], {"magnitude": 1.0}, "would be ignored"),
        ([1.0, 2.0, 3.0], {"weight": 1.0}, "would be ignored"),
        ([np.nan] * 3, {"pairs": [[0, 1]]}, "All targets are NaN"),
        ([1.0, 2.0, np.nan], {"pairs": [[2, 2]]}, "itself"),
        ([1.0, 2.0, np.nan], {"pairs": [[2, 3]]}, "out of range"),
        ([1.0, 2.0, np.nan], {"pairs": [[2, 1]], "weight": -1.0}, "negative"),
    ],
)
def test_refusals(learner, y, arguments, message):
    with pytest.raises(ValueError, match=message):
        learner().fit(np.eye(3), y, **arguments)
