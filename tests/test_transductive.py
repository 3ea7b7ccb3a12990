"""TransductiveRankRLS against the objective (11) with every fold refitted."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from sklearn.metrics.pairwise import pairwise_kernels
from sklearn.utils.estimator_checks import check_estimator
from tests.oracles import (
    dense_comparisons,
    kernel_solution,
    reduced_set_solution,
    transduce,
)

from preflearn.comparisons import QueryComparisons, encode_queries
from preflearn.errors import InputError
from preflearn.learners.rankrls import RankRLS
from preflearn.learners.transductive import TransductiveRankRLS
from preflearn.metrics import concordance
from preflearn.model_selection import QueryKFold
from preflearn.squared.transduction import DualTransduction, PrimalTransduction
from strategies import examples


@st.composite
def problems(draw):
    """Queries of one to five rows in any order, some without scores, some scored in part, duplicates."""
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    sizes = draw(st.lists(st.integers(1, 5), min_size=2, max_size=6)) + [3]
    qid = random.permutation(np.repeat(np.arange(len(sizes)), sizes))
    X = random.normal(size=(len(qid), 3))
    if draw(st.booleans()):
        X[random.integers(len(qid), size=3)] = X[0]
    y = np.round(random.normal(size=len(qid)), draw(st.integers(0, 3))) * draw(
        st.sampled_from([1.0, 1e-2, 1e3])
    )
    scored = [len(sizes) - 1, *random.permutation(len(sizes) - 1)[: draw(st.integers(0, 2))]]
    unknown = ~np.isin(qid, scored)
    if draw(st.booleans()):
        unknown[random.integers(len(qid), size=2)] ^= True
    # two known rows of one query, so that there is a pair to learn from
    unknown[np.flatnonzero(qid == len(sizes) - 1)[:2]] = False
    if not unknown.any():
        unknown[np.flatnonzero(qid == 0)] = True
    return X, y, qid, unknown


@st.composite
def folds_of(draw, qid):
    """Leave-query-out, or a random partition of the queries into two or three folds."""
    queries = np.unique(qid)
    if draw(st.booleans()):
        return [np.flatnonzero(qid == query) for query in queries]
    n_folds = draw(st.integers(2, min(3, len(queries))))
    fold_of = np.random.default_rng(draw(st.integers(0, 100))).permutation(len(queries)) % n_folds
    return [np.flatnonzero(np.isin(qid, queries[fold_of == k])) for k in range(n_folds)]


def laplacian(qid, weighting):
    """L of all rows; scores do not matter while ties are included."""
    return dense_comparisons(np.zeros(len(qid)), qid, weighting=weighting)[0]


def kernel_trainer(K, qid, weighting, alpha):
    @cached_by_rows
    def hat(rows):
        L = laplacian(qid[rows], weighting)
        return K[:, rows] @ kernel_solution(K[np.ix_(rows, rows)], L, L, alpha)

    return lambda rows, scores: hat(rows) @ scores


def cached_by_rows(function):
    """Training is linear in the scores: one matrix for each set of rows."""
    known = {}

    def cached(rows):
        if (key := tuple(rows)) not in known:
            known[key] = function(rows)
        return known[key]

    return cached


@examples(40)
@given(
    data=st.data(),
    problem=problems(),
    weighting=st.sampled_from(["pair", "item", "query"]),
    alpha=st.sampled_from([1e-2, 1.0, 30.0]),
    fidelity=st.sampled_from([1e-2, 1.0, 50.0]),
    kernel=st.sampled_from(["linear", "rbf"]),
    solver=st.sampled_from(["auto", "dual"]),
    container=st.sampled_from([np.asarray, sp.csr_array]),
)
def test_equals_refitted_minimisation(data, problem, weighting, alpha, fidelity, kernel, solver, container):
    X, y, qid, unknown = problem
    folds = data.draw(folds_of(qid))
    K = pairwise_kernels(X, metric=kernel)
    train = kernel_trainer(K, qid, weighting, alpha)
    truth = transduce(train, laplacian(qid, weighting), folds, y, unknown, fidelity)
    model = TransductiveRankRLS(
        alpha, fidelity=fidelity, kernel=kernel, weighting=weighting, cv=folds, solver=solver
    )
    model.fit(container(X), np.where(unknown, np.nan, y), qid=qid)
    size = np.abs(y).max() + np.abs(truth).max()
    assert_allclose(model.transduction_[unknown], truth, rtol=1e-6, atol=1e-7 * size)
    assert_allclose(model.transduction_[~unknown], y[~unknown])
    # The model is RankRLS trained on the transduced scores.
    final = train(np.arange(len(y)), model.transduction_)
    assert_allclose(model.predict(container(X)), final, rtol=1e-6, atol=1e-7 * size)
    assert model.solver_ == ("dual" if kernel == "rbf" or solver == "dual" or len(y) < 3 else "primal")


@examples(40)
@given(
    data=st.data(),
    problem=problems(),
    weighting=st.sampled_from(["pair", "item", "query"]),
    alpha=st.sampled_from([1e-1, 1.0, 30.0]),
    n_basis=st.integers(1, 6),
)
def test_reduced_set_without_the_basis_vectors_of_each_fold(data, problem, weighting, alpha, n_basis):
    X, y, qid, unknown = problem
    X = np.random.default_rng(0).normal(size=X.shape)  # distinct basis vectors
    folds = data.draw(folds_of(qid))
    basis = np.random.default_rng(n_basis).permutation(len(y))[:n_basis]
    K = pairwise_kernels(X, metric="rbf")

    @cached_by_rows
    def hat(rows):
        # f₀ keeps basis vectors among the unscored rows.
        left = basis if known_rows(rows) else np.intersect1d(basis, rows)
        L = laplacian(qid[rows], weighting)
        return K[:, left] @ reduced_set_solution(K[np.ix_(rows, left)], K[np.ix_(left, left)], L, L, alpha)

    def known_rows(rows):
        return np.array_equal(rows, np.flatnonzero(~unknown))

    def train(rows, scores):
        return hat(rows) @ scores

    if any(known_rows(np.setdiff1d(np.arange(len(y)), fold)) for fold in folds):
        return  # a fold that is just the unscored rows: the oracle could not tell the two models apart
    model = TransductiveRankRLS(alpha, fidelity=0.5, kernel="rbf", basis=basis, weighting=weighting, cv=folds)
    if unknown.any() and any(np.isin(basis, fold).all() for fold in folds):
        with pytest.raises(InputError, match="holds out every basis vector"):
            model.fit(X, np.where(unknown, np.nan, y), qid=qid)
        return
    truth = transduce(train, laplacian(qid, weighting), folds, y, unknown, 0.5)
    model.fit(X, np.where(unknown, np.nan, y), qid=qid)
    size = np.abs(y).max() + np.abs(truth).max()
    assert model.solver_ == "primal"
    assert_allclose(model.transduction_[unknown], truth, rtol=1e-6, atol=1e-7 * size)
    L, b = dense_comparisons(model.transduction_, qid, weighting=weighting)
    beta = reduced_set_solution(K[:, basis], K[np.ix_(basis, basis)], L, b, alpha)
    assert_allclose(model.predict(X), K[:, basis] @ beta, rtol=1e-6, atol=1e-7 * size)


def test_dependent_basis_vectors():
    """Two equal basis vectors in different folds: while one is held out the other still spans the same function."""
    random = np.random.default_rng(0)
    qid = np.repeat(np.arange(5), 4)
    X = random.normal(size=(20, 2))
    X[9] = X[0]
    y = random.normal(size=20)
    unknown = qid >= 3
    basis = np.array([0, 5, 9, 13])
    K = pairwise_kernels(X, metric="rbf")
    folds = [np.flatnonzero(qid == q) for q in range(5)]

    def train(rows, scores):
        left = basis if len(rows) == 12 else np.intersect1d(basis, rows)
        L, b = dense_comparisons(scores, qid[rows])
        beta = reduced_set_solution(K[np.ix_(rows, left)], K[np.ix_(left, left)], L, b, 0.5)
        return K[:, left] @ beta

    truth = transduce(train, laplacian(qid, "pair"), folds, y, unknown, 1.0)
    model = TransductiveRankRLS(0.5, kernel="rbf", basis=basis).fit(X, np.where(unknown, np.nan, y), qid=qid)
    assert_allclose(model.transduction_[unknown], truth, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("n_features", [2, 30])
def test_wide_and_narrow_folds_agree_with_the_dual(n_features):
    """Folds wider than the features take the low-rank form of their block, narrow ones the dense form."""
    random = np.random.default_rng(1)
    qid = random.permutation(np.repeat(np.arange(12), 10))
    features = random.normal(size=(120, n_features))
    y = random.normal(size=(120, 2))
    unknown = (qid % 3 == 1) | (random.random(120) < 0.1)
    comparisons = QueryComparisons(np.zeros((120, 1)), encode_queries(qid, 120), weighting="item")
    for n_folds in (2, 12):
        folds = [np.flatnonzero(qid % n_folds == k) for k in range(n_folds)]
        dual = DualTransduction(features @ features.T, comparisons, folds, path=True)
        primal = PrimalTransduction(features, comparisons, folds)
        for alpha in (0.1, 10.0):
            expected = dual.at(alpha).transduce(y, unknown, [0.1, 10.0])
            assert_allclose(
                primal.at(alpha).transduce(y, unknown, [0.1, 10.0]), expected, rtol=1e-7, atol=1e-9
            )


def data(seed=0, n_queries=12, size=6, scored=5, n=4):
    random = np.random.default_rng(seed)
    qid = np.repeat([f"query {q}" for q in range(n_queries)], size)
    X = random.normal(size=(n_queries * size, n))
    y = X @ random.normal(size=n) + 3 * np.repeat(random.normal(size=n_queries), size)
    judged = y.copy()
    judged[scored * size :] = np.nan
    order = random.permutation(len(y))
    return X[order], y[order], judged[order], qid[order]


def test_large_fidelity_is_rankrls_and_small_alpha_path_agrees():
    X, y, judged, qid = data()
    known = ~np.isnan(judged)
    plain = RankRLS(2.0, kernel="rbf").fit(X[known], y[known], qid=qid[known]).predict(X[~known])
    model = TransductiveRankRLS(2.0, fidelity=1e12, kernel="rbf").fit(X, judged, qid=qid)
    assert_allclose(model.transduction_[~known], plain, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize(
    "options, hide",
    [
        ({"kernel": "rbf"}, 3),
        ({"kernel": "rbf"}, "leave-query-out"),
        ({}, 50),
        ({"kernel": "rbf", "n_basis": 20, "random_state": 0}, 3),
    ],
)
def test_selection_equals_hiding_and_refitting(options, hide):
    X, y, judged, qid = data()
    known = np.flatnonzero(~np.isnan(judged))
    alphas, fidelities = [0.1, 5.0], [0.01, 1.0, 100.0]
    model = TransductiveRankRLS(**options)
    model.select(X, judged, qid=qid, alphas=alphas, fidelities=fidelities, hide=hide)
    scored = np.unique(qid[known])
    if hide == 3:
        folds = [
            known[test]
            for _, test in QueryKFold(3).split(known, qid=np.unique(qid[known], return_inverse=True)[1])
        ]
    else:
        folds = [known[qid[known] == query] for query in scored]
    truth = np.empty((2, 3))
    for a, alpha in enumerate(alphas):
        for g, fidelity in enumerate(fidelities):
            found = np.empty(len(y))
            for fold in folds:
                hidden = judged.copy()
                hidden[fold] = np.nan
                refitted = TransductiveRankRLS(alpha, fidelity=fidelity, **options).fit(X, hidden, qid=qid)
                found[fold] = refitted.transduction_[fold]
            truth[a, g] = concordance(y[known], found[known], qid[known])
    assert_allclose(model.cv_scores_, truth, atol=1e-12)
    assert model.best_score_ == pytest.approx(model.cv_scores_.max(), abs=1e-12)
    equally_good = np.argwhere(model.cv_scores_ >= model.cv_scores_.max() - 1e-12).tolist()
    best = max(equally_good, key=lambda at: (alphas[at[0]], fidelities[at[1]]))
    assert (model.alpha_, model.fidelity_) == (alphas[best[0]], fidelities[best[1]])
    alone = TransductiveRankRLS(model.alpha_, fidelity=model.fidelity_, **options).fit(X, judged, qid=qid)
    assert_allclose(model.transduction_, alone.transduction_, rtol=1e-6, atol=1e-8)
    assert_allclose(model.predict(X), alone.predict(X), rtol=1e-6, atol=1e-8)
    assert model.get_params()["alpha"] == 1.0 and not hasattr(alone, "cv_scores_")


def test_selection_with_an_own_measure():
    X, y, judged, qid = data()
    model = TransductiveRankRLS().select(
        X,
        judged,
        qid=qid,
        alphas=[1e-3, 1e5],
        scoring=lambda y, f, qid: -np.abs(y - f).mean(),
        fidelities=[1.0],
    )
    assert (model.cv_scores_ < 0).all()


def test_several_outputs_at_once():
    X, y, judged, qid = data()
    both = np.column_stack([judged, judged**2])
    together = TransductiveRankRLS(kernel="rbf").fit(X, both, qid=qid)
    for k in range(2):
        alone = TransductiveRankRLS(kernel="rbf").fit(X, both[:, k], qid=qid)
        assert_allclose(together.transduction_[:, k], alone.transduction_, rtol=1e-8)
        assert_allclose(together.predict(X)[:, k], alone.predict(X), rtol=1e-6, atol=1e-9)


def test_precomputed_and_new_rows():
    X, y, judged, qid = data()
    new = np.random.default_rng(5).normal(size=(7, 4))
    K = pairwise_kernels(X, metric="rbf", gamma=0.2)
    named = TransductiveRankRLS(kernel="rbf", gamma=0.2).fit(X, judged, qid=qid)
    given_matrix = TransductiveRankRLS(kernel="precomputed").fit(K, judged, qid=qid)
    assert_allclose(given_matrix.transduction_, named.transduction_, rtol=1e-8)
    on_new = given_matrix.predict(pairwise_kernels(new, X, metric="rbf", gamma=0.2))
    assert_allclose(on_new, named.predict(new), rtol=1e-6, atol=1e-9)
    all_rows = RankRLS(kernel="rbf", gamma=0.2).fit(X, named.transduction_, qid=qid)
    assert_allclose(named.predict(new), all_rows.predict(new), rtol=1e-6, atol=1e-9)


def test_nothing_missing_is_rankrls():
    X, y, _, qid = data()
    for options in ({}, {"kernel": "rbf"}, {"kernel": "rbf", "n_basis": 15, "random_state": 0}):
        model = TransductiveRankRLS(weighting="query", **options).fit(X, y, qid=qid)
        plain = RankRLS(weighting="query", **options).fit(X, y, qid=qid)
        assert_allclose(model.predict(X), plain.predict(X), rtol=1e-6, atol=1e-9)
        assert_allclose(model.transduction_, y)


def test_inputs_are_left_alone():
    X, _, judged, qid = data()
    K = pairwise_kernels(X)
    copies = K.copy(), judged.copy(), qid.copy()
    TransductiveRankRLS(kernel="precomputed").fit(K, judged, qid=qid)
    for before, after in zip(copies, (K, judged, qid)):
        np.testing.assert_array_equal(before, after)


X0, QID0 = np.arange(12.0).reshape(6, 2), np.array([0, 0, 1, 1, 2, 2])
Y0 = np.array([1.0, 2.0, np.nan, np.nan, 3.0, 1.0])


@pytest.mark.parametrize(
    "parameters, y, qid, message",
    [
        ({}, np.full(6, np.nan), QID0, "All targets are NaN"),
        ({}, None, QID0, "requires y"),
        ({}, Y0, None, "qid was not given"),
        ({}, np.where(np.arange(6) == 0, np.inf, Y0), QID0, "infinity"),
        ({}, [1.0, np.nan, 1.0, np.nan, 1.0, np.nan], QID0, "only one row"),
        ({}, Y0, QID0[:5], "qid must hold"),
        ({}, Y0, np.zeros(6), "only one query"),
        ({}, np.column_stack([Y0, np.ones(6)]), QID0, "only for some outputs"),
        ({"alpha": 0.0}, Y0, QID0, "alpha"),
        ({"fidelity": 0.0}, Y0, QID0, "fidelity"),
        ({"fidelity": np.inf}, Y0, QID0, "fidelity"),
        ({"weighting": "row"}, Y0, QID0, "weighting"),
        ({"solver": "cg"}, Y0, QID0, "cg"),
        ({"solver": "primal", "kernel": "rbf"}, Y0, QID0, "primal"),
        ({"cv": "leave-one-out"}, Y0, QID0, "leave-query-out"),
        ({"cv": 4}, Y0, QID0, "at least 4 queries"),
        ({"cv": [[0, 1], [2, 3]]}, Y0, QID0, "every row exactly once"),
        ({"cv": [[0, 1, 2], [3, 4, 5]]}, Y0, QID0, "part of a query"),
        ({"cv": [[0, 1, 2, 3, 4, 5]]}, Y0, QID0, "holds out every row.*nothing is left"),
        ({"cv": [[0, 1], []]}, Y0, QID0, "empty"),
        ({"cv": [[0, 1], [2, 3], [4, 6]]}, Y0, QID0, "names row 6: expected rows 0 to 5"),
    ],
)
def test_refusals(parameters, y, qid, message):
    with pytest.raises(ValueError, match=message):
        TransductiveRankRLS(**parameters).fit(X0, y, qid=qid)


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"alphas": []}, "alphas"),
        ({"alphas": [0.0]}, "alpha"),
        ({"alphas": "some"}, "alphas"),
        ({"fidelities": [-1.0]}, "fidelities must be"),
        ({"scoring": "auc"}, "scoring='auc' needs y with two values"),
        ({"hide": "some"}, "hide"),
        ({"hide": [[0, 1], [2]]}, "exactly once"),
        ({"qid": None}, "qid"),
        ({"y": [1.0, 2.0, np.nan, np.nan, np.nan, np.nan]}, "at least two must be scored"),
    ],
)
def test_refusals_of_select(arguments, message):
    with pytest.raises(ValueError, match=message):
        TransductiveRankRLS().select(X0, **{"y": Y0, "qid": QID0, **arguments})


@pytest.mark.parametrize(
    "options", [{}, {"kernel": "rbf"}, {"kernel": "rbf", "n_basis": 0.5, "random_state": 0}]
)
def test_scikit_learn_conventions(options):
    check_estimator(TransductiveRankRLS(**options))
