"""Weights of rows: comparisons and models by their definition, hold-outs by refitting, integers by copies of rows."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
import sklearn
from hypothesis import given
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.linear_model import Ridge
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import oracles
from preflearn import RLS, RLSCV, RankRLS, RankRLSCV, RankSVM, RankSVMCV
from preflearn.comparisons import WeightedRows, compare_scores, encode_queries
from preflearn.model_selection import HeldOut, cross_val_predict, leave_pair_out
from strategies import examples, ranking_problems

OPTIONS = st.fixed_dictionaries(
    {
        "cost": st.sampled_from(["magnitude", "unit", "relative"]),
        "ties": st.sampled_from(["include", "exclude"]),
        "weighting": st.sampled_from(["pair", "item", "query"]),
    }
)


@st.composite
def weighted_problems(draw, zeros=True, **sizes):
    """A ranking problem with weights of its rows; two rows that can be compared have one."""
    problem = draw(ranking_problems(**sizes))
    rng = np.random.default_rng(draw(st.integers(0, 999)))
    w = rng.uniform(0.2, 3.0, problem.y.shape[0])
    if zeros and draw(st.booleans()):
        w[rng.integers(w.shape[0])] = 0.0
    w[[np.flatnonzero(problem.y == 1.5)[0], np.flatnonzero(problem.y == 0.5)[0]]] = 1.7
    return problem, w


@given(weighted_problems(), OPTIONS)
def test_comparisons_are_sums_over_pairs(data, options):
    problem, w = data
    comparisons = compare_scores(
        problem.y[:, None], encode_queries(problem.qid, len(w)), **options, row_weights=w
    )
    L, b = oracles.dense_comparisons(problem.y, problem.qid, **options, row_weights=w)
    close = {"rtol": 1e-9, "atol": 1e-11 * max(1.0, abs(L).max()) * max(1.0, abs(problem.y).max())}
    np.testing.assert_allclose(comparisons.to_dense(), L, **close)
    np.testing.assert_allclose(comparisons.laplacian(problem.y), L @ problem.y, **close)
    np.testing.assert_allclose(comparisons.target[:, 0], b, **close)
    np.testing.assert_allclose(comparisons.diagonal(), np.diagonal(L), **close)
    summed = sum((E * c) @ E.T for E, c in ((E.toarray(), c) for E, c in comparisons.indicators()))
    np.testing.assert_allclose(summed, L, **close)
    counted = oracles.counted_pairs(problem.y, problem.qid, cost=options["cost"], ties=options["ties"])
    assert comparisons.n_comparisons == sum(w[i] * w[j] > 0 for i, j in counted)


@given(weighted_problems(min_rows=5), OPTIONS, st.data())
def test_rows_that_leave_change_the_comparisons_as_removal_says(data, options, draw):
    problem, w = data
    qid = np.zeros(len(w), dtype=int) if draw.draw(st.booleans()) else problem.qid
    comparisons = compare_scores(problem.y[:, None], encode_queries(qid, len(w)), **options, row_weights=w)
    left = np.array(draw.draw(st.sets(st.integers(0, len(w) - 1), min_size=1, max_size=3)), dtype=object)
    left = np.array(sorted(left.item()), dtype=np.int64)
    if options["weighting"] == "query" and len(np.unique(qid)) > 1:
        left = np.flatnonzero(np.isin(qid, qid[left]))
    rest = np.setdiff1d(np.arange(len(w)), left)
    try:
        removal = comparisons.drop(left)
    except ValueError as error:
        assert "nothing is left" in str(error)
        return
    N, d = np.zeros((len(w), removal.columns.shape[1])), np.zeros((len(w), 1))
    N[removal.rows], d[removal.rows] = removal.columns, removal.change
    found = removal.scale * (comparisons.to_dense() - (N * removal.signs) @ N.T)
    L, b = np.zeros_like(found), np.zeros(len(w))
    L[np.ix_(rest, rest)], b[rest] = oracles.dense_comparisons(
        problem.y[rest], qid[rest], **options, row_weights=w[rest]
    )
    size = max(1.0, abs(comparisons.to_dense()).max()) * removal.scale
    np.testing.assert_allclose(found, L, atol=1e-9 * size)
    changed = removal.scale * (comparisons.target - d)[:, 0]
    np.testing.assert_allclose(changed, b, atol=1e-9 * size * max(1.0, abs(problem.y).max()))


@given(
    weighted_problems(),
    OPTIONS,
    st.sampled_from([{}, {"solver": "primal"}, {"solver": "dual"}, {"kernel": "rbf", "gamma": 0.3}]),
    st.booleans(),
)
def test_ranking_is_the_weighted_sum_over_pairs(data, options, representation, sparse):
    problem, w = data
    X = problem.X / abs(problem.X).max()
    L, b = oracles.dense_comparisons(problem.y, problem.qid, **options, row_weights=w)
    given_X = sp.csr_array(X) if sparse and representation.get("solver") != "dual" else X
    model = RankRLS(0.5, **options, **representation).fit(
        given_X, problem.y, qid=problem.qid, sample_weight=w
    )
    if "kernel" in representation:
        K = rbf_kernel(X, gamma=0.3)
        expected = K @ oracles.kernel_solution(K, L, b, 0.5)
    else:
        expected = X @ oracles.feature_solution(X, L, b, 0.5)
    np.testing.assert_allclose(
        model.predict(given_X), expected, rtol=1e-6, atol=1e-8 * max(1, abs(expected).max())
    )


@given(
    weighted_problems(zeros=False, min_rows=4, max_rows=12),
    st.sampled_from(
        [
            RLS(0.5),
            RLS(0.5, fit_intercept=False),
            RLS(0.5, kernel="rbf"),
            RankRLS(0.5),
            RankRLS(0.5, kernel="rbf", weighting="item"),
            RankRLS(0.5, cost="unit"),
            RankRLS(0.5, solver="cg", tol=1e-12),
            RankSVM(0.5, tol=1e-12),
            RankSVM(0.5, tol=1e-12, weighting="item", kernel="rbf"),
            RankSVM(0.5, tol=1e-12, weighting="query"),
        ]
    ),
)
def test_integer_weights_are_copies_of_rows(data, model):
    problem, w = data
    X, counts = problem.X / abs(problem.X).max(), np.ceil(w).astype(int) - 1
    counts[w == 1.7] = 2
    extra = {} if isinstance(model, RLS) else {"qid": problem.qid}
    repeated = {name: np.repeat(values, counts) for name, values in extra.items()}
    expected = model.fit(np.repeat(X, counts, axis=0), np.repeat(problem.y, counts), **repeated).predict(X)
    found = model.fit(X, problem.y, **extra, sample_weight=counts).predict(X)
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-7 * max(1, abs(expected).max()))


@examples(40)
@given(
    weighted_problems(max_rows=16),
    st.sampled_from(["squared_hinge", "hinge"]),
    st.sampled_from(["pair", "item", "query"]),
    st.sampled_from([1e-2, 1.0, 100.0]),
    st.booleans(),
)
def test_ranksvm_reaches_the_minimum_of_the_weighted_sum_over_pairs(data, loss, weighting, alpha, sparse):
    problem, w = data
    pairs = oracles.untied_pairs(problem.y, problem.qid, weighting, w)
    model = RankSVM(alpha, loss=loss, weighting=weighting, max_iter=1000).fit(
        sp.csr_array(problem.X) if sparse else problem.X, problem.y, qid=problem.qid, sample_weight=w
    )
    found = oracles.ranksvm_objective(problem.X, model.coef_, pairs, alpha, loss)
    assert model.objective_ == pytest.approx(found, rel=1e-7)
    assert model.n_comparisons_ == len(pairs[0])
    upper, lower = oracles.ranksvm_minimum(problem.X, pairs, alpha, loss)
    assert lower * (1 - 1e-9) <= found <= upper * (1 + 2e-4) + 1e-12


@pytest.mark.filterwarnings("ignore:The best alpha")
@pytest.mark.parametrize("loss", ["squared_hinge", "hinge"])
def test_ranksvm_is_held_out_with_the_weights_of_the_rest(loss):
    rng = np.random.default_rng(0)
    X, qid, w = rng.normal(size=(40, 3)), np.repeat(np.arange(8), 5), rng.uniform(0.1, 3.0, 40)
    y, alphas, tight = np.round(X[:, 0] + rng.normal(size=40), 1), [0.5, 5.0], {"loss": loss, "tol": 1e-8}
    w[7] = 0.0
    folds = [np.flatnonzero(qid % 4 == k) for k in range(4)]
    options = {"cv": folds, "keep_predictions": True, **tight}
    search = RankSVMCV(alphas, **options).fit(X, y, qid=qid, sample_weight=w)
    for alpha, found in zip(alphas, search.cv_predictions_, strict=True):
        expected = oracles.refit_folds(RankSVM(alpha, **tight), X, y, qid, folds, w)
        np.testing.assert_allclose(found, expected, atol=1e-3)
        assert abs(found - oracles.refit_folds(RankSVM(alpha, **tight), X, y, qid, folds)).max() > 1e-2
    chosen = RankSVM(search.alpha_, **tight).fit(X, y, qid=qid, sample_weight=w)
    np.testing.assert_array_equal(search.predict(X), chosen.predict(X))
    pairs = [[0, 1], [5, 30]]
    _, found = HeldOut(RankSVM(**tight), X, y, sample_weight=w).pairs([0.5], pairs=pairs)
    expected = [oracles.refit_without(RankSVM(0.5, **tight), X, y, None, pair, pair, w) for pair in pairs]
    np.testing.assert_array_equal(found[0], expected)
    automatic = RankSVMCV(cv=folds).fit(X, y, qid=qid, sample_weight=2 * w)
    np.testing.assert_allclose(
        automatic.alphas_, 4 * RankSVMCV(cv=folds).fit(X, y, qid=qid, sample_weight=w).alphas_
    )


LEARNERS = [
    RLS(0.5),
    RLS(0.5, fit_intercept=False),
    RankRLS(0.5),
    RankRLS(0.5, weighting="item"),
    RankRLS(0.5, ties="exclude"),
    RankRLS(0.5, cost="unit"),
    RankRLS(0.5, cost="relative", weighting="query"),
]
REPRESENTATIONS = [
    {},
    {"solver": "dual"},
    {"solver": "cg", "tol": 1e-12},
    {"kernel": "rbf"},
    {"kernel": "rbf", "basis": np.arange(0, 24, 3)},
]


@pytest.mark.parametrize("representation", REPRESENTATIONS, ids=str)
@pytest.mark.parametrize("learner", LEARNERS, ids=str)
def test_hold_outs_are_refits_with_the_weights_of_the_rest(learner, representation):
    rng = np.random.default_rng(0)
    X, qid = rng.normal(size=(24, 3)), np.repeat(np.arange(6), 4)
    y = np.round(X[:, 0] + rng.normal(size=24), 1)
    w = rng.uniform(0.1, 3.0, 24)
    w[5] = 0.0
    model = clone(learner).set_params(**representation)
    ranks, whole = isinstance(model, RankRLS), getattr(model, "weighting", None) == "query"
    reduced = "basis" in representation
    cases = [(qid, "leave-query-out", [np.flatnonzero(qid == q) for q in range(6)])]
    if not whole:
        folds = [np.arange(k, 24, 5) for k in range(5)]
        cases += [(None, folds, folds), (None, "leave-one-out", [np.array([i]) for i in range(24)])]
        cases += [(qid, folds, folds)] if ranks else []
    for labels, cv, folds in cases:
        found = HeldOut(model, X, y, qid=labels, sample_weight=w).predict(cv, [0.5, 5.0])
        one = cross_val_predict(model, X, y, qid=labels, cv=cv, sample_weight=w)
        np.testing.assert_allclose(one, found[0], rtol=1e-6, atol=1e-7)
        for alpha, f in zip([0.5, 5.0], found, strict=True):
            fresh = clone(model).set_params(alpha=alpha)
            expected = np.empty(24)
            for fold in folds:
                if reduced:
                    rest = np.setdiff1d(np.arange(24), fold)
                    fresh.set_params(basis=np.flatnonzero(np.isin(rest, representation["basis"])))
                expected[fold] = oracles.refit_without(fresh, X, y, labels if ranks else None, fold, fold, w)
            np.testing.assert_allclose(f, expected, rtol=1e-6, atol=1e-6)


def test_pairs_are_held_out_with_the_weights_of_the_rest():
    rng = np.random.default_rng(0)
    X, w = rng.normal(size=(8, 2)), rng.uniform(0.5, 2.0, 8)
    y = X[:, 0] + rng.normal(size=8)
    for model in (RLS(0.5, kernel="rbf"), RankRLS(0.5, kernel="rbf"), RankRLS(0.5)):
        pairs, found = HeldOut(model, X, y, sample_weight=w).pairs([0.5])
        expected = [oracles.refit_without(model, X, y, None, pair, pair, w) for pair in pairs]
        np.testing.assert_allclose(found[0], expected, rtol=1e-6, atol=1e-8)
        assert not np.allclose(found[0], leave_pair_out(model, X, y)[1])


@pytest.mark.parametrize(
    "model",
    [
        RLS(),
        RankRLS(kernel="rbf"),
        RankRLS(cost="relative"),
        RankSVM(),
        RankSVM(loss="hinge"),
        RLSCV(),
        RankRLSCV(),
        RankSVMCV(),
    ],
)
@pytest.mark.filterwarnings("ignore:The best alpha")
def test_weights_of_one_are_none(model):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(40, 3)), rng.normal(size=40)
    plain = model.fit(X, y).predict(X)
    np.testing.assert_array_equal(model.fit(X, y, sample_weight=np.ones(40)).predict(X), plain)
    assert not np.allclose(model.fit(X, y, sample_weight=rng.uniform(0, 2, 40)).predict(X), plain)


@examples(20)
@given(st.integers(0, 999), st.sampled_from([RLSCV, RankRLSCV]), st.sampled_from([None, 4, "leave-one-out"]))
def test_searches_hold_out_with_weights(seed, search, cv):
    rng = np.random.default_rng(seed)
    X, y, w = rng.normal(size=(30, 3)), rng.normal(size=30), rng.uniform(0.1, 3, 30)
    y += X[:, 0]
    alphas = [0.1, 1.0, 10.0]
    scoring = "neg_mean_squared_error" if search is RLSCV else None
    if search is RankRLSCV and cv == "leave-one-out":
        cv = 5
    model = search(alphas, cv=cv, scoring=scoring, keep_predictions=True).fit(X, y, sample_weight=w)
    learner = RLS if search is RLSCV else RankRLS
    expected = HeldOut(learner(), X, y, sample_weight=w).predict(cv, alphas)
    np.testing.assert_allclose(model.cv_predictions_, expected)
    chosen = learner(model.alpha_).fit(X, y, sample_weight=w)
    np.testing.assert_allclose(model.predict(X), chosen.predict(X))


def test_weights_of_queries_and_several_outputs():
    rng = np.random.default_rng(0)
    X, qid = rng.normal(size=(30, 3)), np.repeat(np.arange(5), 6)
    Y = rng.normal(size=(30, 2))
    w = np.array([1.0, 0.0, 2.0, 0.5, 1.0])[qid]
    for learner in (RankRLS(0.5), RankSVM(0.5, tol=1e-12)):
        both = clone(learner).fit(X, Y, qid=qid, sample_weight=w)
        for k in range(2):
            rest = {"qid": qid[qid != 1], "sample_weight": w[qid != 1]}
            one = clone(learner).fit(X[qid != 1], Y[qid != 1, k], **rest)
            np.testing.assert_allclose(both.coef_[k], one.coef_)
    plain = RLS(0.5).fit(X, Y, sample_weight=w)
    np.testing.assert_allclose(plain.intercept_[1], RLS(0.5).fit(X, Y[:, 1], sample_weight=w).intercept_)
    assert isinstance(RLS(fit_intercept=False)._compare(Y, None, w)[0], WeightedRows)


@pytest.mark.parametrize("ranker", [RankRLS, RankSVM])
def test_scikit_learn_routes_the_weights(ranker):
    rng = np.random.default_rng(0)
    X, y, w = rng.normal(size=(40, 3)), rng.normal(size=40), rng.uniform(0.1, 3, 40)
    with sklearn.config_context(enable_metadata_routing=True):
        learner = ranker().set_fit_request(sample_weight=True).set_score_request(sample_weight=False)
        pipeline = make_pipeline(StandardScaler().set_fit_request(sample_weight=False), learner)
        found = pipeline.fit(X, y, sample_weight=w).predict(X)
        expected = ranker().fit(StandardScaler().fit_transform(X), y, sample_weight=w)
        np.testing.assert_allclose(found, expected.predict(StandardScaler().fit_transform(X)))
        search = GridSearchCV(learner, {"alpha": [0.1, 1.0]}, cv=3).fit(X, y, sample_weight=w)
        np.testing.assert_allclose(
            search.predict(X), ranker(**search.best_params_).fit(X, y, sample_weight=w).predict(X)
        )


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        (np.ones(3), "one number for each of the 4 rows"),
        (np.ones((4, 1)), "one number for each of the 4 rows"),
        ([1, 2, -1, 1], "must not be negative: row 2 has -1"),
        ([1, 2, np.nan, 1], "contains NaN"),
        (np.zeros(4), "zero for every row"),
    ],
)
@pytest.mark.parametrize(
    "model",
    [RLS(), RankRLS(), RankSVM(), RLSCV([1.0, 2.0]), RankRLSCV([1.0, 2.0]), RankSVMCV([1.0, 2.0])],
)
def test_bad_weights(model, weights, message):
    with pytest.raises(ValueError, match=message):
        model.fit(np.eye(4), np.arange(4.0), sample_weight=weights)


def test_weights_where_they_would_be_ignored():
    X, y = np.eye(4), np.arange(4.0)
    for model in (RLS(), RankRLS()):
        with pytest.raises(ValueError, match="not supported together with pairs"):
            model.fit(X, y, pairs=[[0, 1]], sample_weight=np.ones(4))
    with pytest.raises(ValueError, match="found Ridge"):
        HeldOut(Ridge(), X, y, sample_weight=np.ones(4))
    only_one = np.array([0.0, 0.0, 1.0, 0.0])
    with pytest.raises(ValueError, match="No pair can be compared"):
        RankRLS().fit(X, y, sample_weight=only_one)
    with pytest.raises(ValueError, match="No two rows with a weight above 0"):
        RankSVM().fit(X, y, sample_weight=only_one)
