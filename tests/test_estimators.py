"""RLS and RankRLS against dense solves, over kernels, reduced sets, solvers, outputs, types and sparsity."""

from __future__ import annotations

import itertools
import pickle

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.linear_model import Ridge
from sklearn.metrics.pairwise import rbf_kernel

import oracles
from preflearn import RLS, RankRLS
from preflearn.kernels import NystromMap
from preflearn.squared import routes
from strategies import ranking_problems

OPTIONS = st.fixed_dictionaries(
    {
        "cost": st.sampled_from(["magnitude", "unit", "relative"]),
        "ties": st.sampled_from(["include", "exclude"]),
        "weighting": st.sampled_from(["pair", "item", "query"]),
    }
)
RNG = np.random.default_rng(0)


def make_data(m=40, n=4, queries=6, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(m, n))
    return X, X @ rng.normal(size=n) + 0.3 * rng.normal(size=m), rng.integers(0, queries, size=m)


@given(ranking_problems(), OPTIONS, st.sampled_from(["dual", "primal", "cg"]), st.booleans())
def test_linear_rankrls_equals_the_dense_solution(problem, options, solver, sparse):
    L, b = oracles.dense_comparisons(problem.y, problem.qid, **options)
    expected = oracles.feature_solution(problem.X, L, b, 0.5)
    X = sp.csr_array(problem.X) if sparse else problem.X
    model = RankRLS(0.5, solver=solver, **options).fit(X, problem.y, qid=problem.qid)
    tolerance = 1e-6 * max(1.0, abs(expected).max())
    np.testing.assert_allclose(model.coef_, expected, atol=tolerance)
    assert model.solver_ == solver
    np.testing.assert_allclose(
        model.predict(X), problem.X @ expected, atol=tolerance * (1 + abs(problem.X).max())
    )


@given(ranking_problems(), OPTIONS, st.sampled_from([2.0**-15, 0.1, 2.0**15]))
def test_kernel_rankrls_equals_the_dense_solution(problem, options, alpha):
    L, b = oracles.dense_comparisons(problem.y, problem.qid, **options)
    K = rbf_kernel(problem.X, gamma=0.5)
    model = RankRLS(alpha, kernel="rbf", gamma=0.5, **options).fit(problem.X, problem.y, qid=problem.qid)
    expected = K @ oracles.kernel_solution(K, L, b, alpha)
    size = max(1.0, abs(problem.y).max())
    difference = model.predict(problem.X) - expected
    np.testing.assert_allclose(L @ difference, 0, atol=1e-6 * size * max(1.0, abs(L).max()))
    if alpha > 1e-3:
        # At a tiny alpha the dense oracle itself loses the constant that the comparisons cannot see.
        np.testing.assert_allclose(difference, 0, atol=1e-6 * size)


@given(ranking_problems(min_rows=6), OPTIONS, st.integers(1, 6), st.booleans())
def test_reduced_set_equals_the_normal_equations(problem, options, n_basis, sparse):
    L, b = oracles.dense_comparisons(problem.y, problem.qid, **options)
    X = sp.csr_array(problem.X) if sparse else problem.X
    model = RankRLS(0.2, kernel="rbf", gamma=0.5, n_basis=n_basis, random_state=1, **options)
    model.fit(X, problem.y, qid=problem.qid)
    rows = model.basis_indices_
    K = rbf_kernel(problem.X, gamma=0.5)
    beta = oracles.reduced_set_solution(K[:, rows], K[np.ix_(rows, rows)], L, b, 0.2)
    np.testing.assert_allclose(
        model.predict(X), K[:, rows] @ beta, atol=1e-5 * max(1.0, abs(problem.y).max())
    )
    assert model.solver_ == "primal"


@given(ranking_problems(), st.booleans(), st.sampled_from(["dual", "primal", "cg"]), st.booleans())
def test_linear_rls_is_ridge_regression(problem, fit_intercept, solver, sparse):
    X = sp.csr_array(problem.X) if sparse else problem.X
    model = RLS(0.5, fit_intercept=fit_intercept, solver=solver).fit(X, problem.y)
    ridge = Ridge(0.5, fit_intercept=fit_intercept, solver="cholesky").fit(problem.X, problem.y)
    tolerance = 1e-6 * max(1.0, abs(ridge.coef_).max(), abs(problem.y).max())
    np.testing.assert_allclose(model.coef_, ridge.coef_, atol=tolerance)
    np.testing.assert_allclose(model.predict(X), ridge.predict(problem.X), atol=tolerance * 30)
    assert hasattr(model, "intercept_") == fit_intercept


@given(ranking_problems(min_rows=3), st.sampled_from([None, 3]))
def test_kernel_rls_with_intercept_equals_the_bordered_system(problem, n_basis):
    K = rbf_kernel(problem.X, gamma=0.5)
    model = RLS(0.1, kernel="rbf", gamma=0.5, n_basis=n_basis, random_state=0).fit(problem.X, problem.y)
    rows = model.basis_indices_
    centre, target = oracles.dense_intercept(problem.y)
    beta = oracles.reduced_set_solution(K[:, rows], K[np.ix_(rows, rows)], centre, target, 0.1)
    f = K[:, rows] @ beta
    np.testing.assert_allclose(
        model.predict(problem.X), f + (problem.y - f).mean(), atol=1e-5 * max(1.0, abs(problem.y).max())
    )


@given(st.integers(3, 12), st.sampled_from(["linear", "rbf"]), st.sampled_from([None, 3]), st.data())
def test_fit_pairs_equals_the_dense_solution(m, kernel, n_basis, data):
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    X = rng.normal(size=(m, 3))
    pairs = np.array([rng.choice(m, size=2, replace=False) for _ in range(data.draw(st.integers(1, 15)))])
    magnitude, weight = rng.uniform(0.5, 2, len(pairs)), rng.uniform(0.1, 2, len(pairs))
    model = RankRLS(0.3, kernel=kernel, n_basis=n_basis, random_state=0)
    model.fit_pairs(X, pairs, magnitude=magnitude, weight=weight)
    L, b = oracles.dense_preferences(m, pairs, magnitude, weight)
    K = rbf_kernel(X) if kernel == "rbf" else X @ X.T
    rows = np.arange(m) if n_basis is None else model.basis_indices_
    beta = oracles.reduced_set_solution(K[:, rows], K[np.ix_(rows, rows)], L, b, 0.3)
    np.testing.assert_allclose(model.predict(X), K[:, rows] @ beta, atol=1e-6)
    assert model.n_comparisons_ == len(pairs)


def single(X):
    return X.astype(np.float32)


@pytest.mark.parametrize(
    ("kernel", "form"),
    [
        *itertools.product(["linear", "rbf"], [np.asarray, sp.csr_array, single]),
        ("precomputed", np.asarray),
        ("precomputed", single),
    ],
)
@pytest.mark.parametrize("n_pairs", [8, 60])
def test_rows_without_preferences_have_no_part_in_the_model(kernel, form, n_pairs):
    """Fewer or more preferences than rows, both smaller than the number of features."""
    rng = np.random.default_rng(n_pairs)
    X = rng.normal(size=(50, 80))
    pairs = np.array([rng.choice(20, size=2, replace=False) for _ in range(n_pairs)])
    magnitude, weight = rng.uniform(0.5, 2, n_pairs), rng.uniform(0.1, 2, n_pairs)
    K = rbf_kernel(X, gamma=0.01) if kernel != "linear" else X @ X.T
    L, b = oracles.dense_preferences(50, pairs, magnitude, weight)
    beta = oracles.reduced_set_solution(K, K, L, b, 0.3)
    options = {"gamma": 0.01} if kernel == "rbf" else {}
    items = form(K if kernel == "precomputed" else X)
    model = RankRLS(0.3, kernel=kernel, **options).fit_pairs(items, pairs, magnitude=magnitude, weight=weight)
    precision = 1e-4 if items.dtype == np.float32 else 1e-8
    np.testing.assert_allclose(model.predict(items), K @ beta, atol=precision)
    if kernel != "linear":
        assert model.dual_coef_.shape == (50,)
        assert not model.dual_coef_[20:].any()
    else:
        assert model.solver_ == "dual"
        assert model.coef_.dtype == items.dtype


def test_few_preferences_among_many_rows_are_solved_among_themselves(capsys):
    X = sp.random_array((3000, 5000), density=0.01, rng=0, format="csr")
    pairs = np.arange(2400).reshape(1200, 2)
    model = RankRLS(alpha=1e-3, verbose=1).fit_pairs(X, pairs)
    said = capsys.readouterr().err
    assert "pairs (kernel of differences 1200 × 1200)" in said and "3000" not in said
    D = X[pairs[:, 0]] - X[pairs[:, 1]]
    exact = np.linalg.solve((D @ D.T).toarray() + 1e-3 * np.eye(1200), np.ones(1200))
    np.testing.assert_allclose(model.coef_, D.T @ exact, atol=1e-9)


@pytest.mark.parametrize("light", [0.0, 1e-7])
def test_preferences_of_very_different_weight(light, monkeypatch):
    """One matrix of differences cannot hold them: another route is taken, and chosen beforehand."""
    X = sp.random_array((2400, 3000), density=0.01, rng=0, format="csr")
    pairs, weight = np.arange(2400).reshape(1200, 2), np.ones(1200)
    weight[0] = light
    monkeypatch.setattr(routes, "MEMORY", 45e6)
    model = RankRLS().fit_pairs(X, pairs, weight=weight)
    expected = RankRLS(tol=1e-12).set_params(solver="cg").fit_pairs(X, pairs, weight=weight)
    np.testing.assert_allclose(model.coef_, expected.coef_, atol=1e-6)


def test_an_indefinite_kernel_matrix_is_refused_for_few_preferences_too():
    A = RNG.normal(size=(20, 20))
    with pytest.raises(ValueError, match="not positive semidefinite"):
        RankRLS(100.0, kernel="precomputed").fit_pairs(A + A.T, [[0, 1], [2, 3], [4, 5]])


def test_weight_multiplies_the_squared_error_of_a_pair():
    X, pairs = RNG.normal(size=(6, 3)), np.array([[0, 1], [2, 3], [0, 1]])
    once = RankRLS().fit_pairs(X, pairs[:2], weight=[2.0, 1.0])
    twice = RankRLS().fit_pairs(X, pairs)
    np.testing.assert_allclose(once.coef_, twice.coef_)


@pytest.mark.parametrize("solver", ["dual", "primal", "cg"])
@pytest.mark.parametrize("options", [{}, {"ties": "exclude"}, {"cost": "unit"}, {"cost": "relative"}])
def test_many_outputs_equal_one_by_one(solver, options):
    X, y, qid = make_data()
    Y = np.stack([y, np.round(y), -y], axis=1)
    model = RankRLS(solver=solver, **options).fit(X, Y, qid=qid)
    assert model.coef_.shape == (3, 4)
    for k in range(3):
        one = RankRLS(solver=solver, **options).fit(X, Y[:, k], qid=qid)
        np.testing.assert_allclose(model.coef_[k], one.coef_, atol=1e-6)
    assert model.predict(X).shape == (40, 3)


@pytest.mark.parametrize(
    "options", [{}, {"ties": "exclude"}, {"cost": "relative"}, {"n_basis": 10, "random_state": 0}]
)
def test_many_outputs_of_a_kernel_equal_one_by_one(options):
    X, y, qid = make_data()
    Y = np.stack([y, np.round(y)], axis=1)
    model = RankRLS(kernel="rbf", **options).fit(X, Y, qid=qid)
    for k in range(2):
        one = RankRLS(kernel="rbf", **options).fit(X, Y[:, k], qid=qid)
        np.testing.assert_allclose(model.predict(X)[:, k], one.predict(X), atol=1e-8)


@pytest.mark.parametrize(
    "options", [{}, {"kernel": "rbf"}, {"kernel": "rbf", "n_basis": 15}, {"solver": "cg"}]
)
@pytest.mark.parametrize("learner", [RLS, RankRLS])
def test_single_precision_is_kept_and_close(learner, options):
    X, y, _ = make_data()
    options = {"random_state": 0, **options}
    exact = learner(**options).fit(X, y)
    if options.get("solver") == "cg":
        options["tol"] = 1e-6
    model = learner(**options).fit(X.astype(np.float32), y)
    single = model.predict(X.astype(np.float32))
    assert single.dtype == np.float32
    np.testing.assert_allclose(single, exact.predict(X), atol=2e-3 * abs(y).max())


def test_a_precomputed_kernel_equals_the_kernel():
    X, y, qid = make_data()
    K = rbf_kernel(X)
    before = K.copy()
    for options in ({}, {"basis": np.array([5, 1, 30])}):
        by_matrix = RankRLS(kernel="precomputed", **options).fit(K, y, qid=qid)
        by_rows = RankRLS(kernel="rbf", **options).fit(X, y, qid=qid)
        np.testing.assert_allclose(by_matrix.predict(K[:7]), by_rows.predict(X[:7]), atol=1e-10)
        assert by_matrix.basis_ is None
    np.testing.assert_array_equal(K, before)


def test_a_callable_kernel_on_strings():
    def overlap(a, b):
        return float(sum(a.count(c) * b.count(c) for c in set(a)))

    words = ["aab", "abb", "bbb", "aaa", "ab"]
    y = [word.count("a") for word in words]
    model = RankRLS(0.01, kernel=overlap).fit(words, y)
    assert model.rank(["aaaa", "bb", "aab"]).tolist() == [1, 3, 2]
    assert model.score(words, y) > 0.9
    with pytest.raises(TypeError, match="sequence of items"):
        model.predict("aab")


def test_kernel_predictions_in_blocks_equal_one_block(monkeypatch):
    X, y, _ = make_data()
    model = RLS(kernel="rbf").fit(X, y)
    whole = model.predict(X)
    monkeypatch.setattr("preflearn.learners.base._PREDICTION_BLOCK_BYTES", 8 * 40 * 7)
    np.testing.assert_allclose(model.predict(X), whole)


@given(ranking_problems(max_rows=15))
def test_rank_counts_better_rows_of_the_query(problem):
    y = problem.y
    model = RankRLS(kernel="precomputed").fit(np.eye(len(y)), y, qid=problem.qid)
    model.dual_coef_ = np.round(y)  # scores with ties
    assert model.rank(np.eye(len(y)), qid=problem.qid).tolist() == oracles.positions(np.round(y), problem.qid)


def test_rank_of_many_outputs():
    X, y, _ = make_data()
    model = RankRLS().fit(X, np.stack([y, -y], axis=1))
    ranks = model.rank(X)
    assert ranks.shape == (40, 2)
    np.testing.assert_array_equal(ranks[:, 0] + ranks[:, 1], 41)


@pytest.mark.parametrize(
    "options", [{}, {"kernel": "rbf", "basis": np.arange(8)}, {"weighting": "query"}, {"cost": "unit"}]
)
def test_chunks_of_queries_equal_fit_on_everything(options):
    X, y, qid = make_data(60, queries=9)
    whole = RankRLS(0.5, **options).fit(X, y, qid=qid)
    model = RankRLS(0.5, **options)
    chunks = [np.flatnonzero(np.isin(qid, qid[:8])), np.flatnonzero(~np.isin(qid, qid[:8]))]
    assert len(chunks[1])
    for rows in chunks:
        model.partial_fit(X[rows], y[rows], qid=qid[rows])
    np.testing.assert_allclose(model.predict(X), whole.predict(X), atol=1e-7)
    assert (model.n_queries_, model.n_comparisons_) == (whole.n_queries_, whole.n_comparisons_)


@given(
    ranking_problems(min_rows=8), st.sampled_from(["pair", "item", "query"]), st.integers(1, 4), st.booleans()
)
def test_chunks_of_a_global_ranking_equal_fit_whatever_the_chunks(problem, weighting, size, sparse):
    X = sp.csr_array(problem.X) if sparse else problem.X
    whole = RankRLS(0.5, weighting=weighting).fit(X, problem.y)
    model = RankRLS(0.5, weighting=weighting)
    for start in range(0, len(problem.y), size):
        model.partial_fit(X[start : start + size], problem.y[start : start + size])
    np.testing.assert_allclose(model.coef_, whole.coef_, atol=1e-6 * max(1.0, abs(whole.coef_).max()))
    seen = model.coef_
    model.partial_fit(X[:3], problem.y[:3]).forget(X[:3], problem.y[:3])
    np.testing.assert_allclose(model.coef_, seen, atol=1e-5 * max(1.0, abs(seen).max()))


def test_forgetting_queries_leaves_fit_on_the_rest():
    X, y, qid = make_data(60, queries=9)
    model = RankRLS(kernel="rbf", basis=np.arange(5)).partial_fit(X, y, qid=qid)
    out = qid < 3
    model.forget(X[out], y[out], qid=qid[out])
    rest = RankRLS(kernel="precomputed")
    rest.fit(rbf_kernel(X[~out]), y[~out], qid=qid[~out])  # only to count its queries
    np.testing.assert_equal(model.n_queries_, rest.n_queries_)
    fresh = RankRLS(kernel="rbf", basis=np.arange(5)).partial_fit(X[:5], y[:5], qid=["a"] * 5)
    fresh.partial_fit(X[~out], y[~out], qid=qid[~out]).forget(X[:5], y[:5], qid=["a"] * 5)
    np.testing.assert_allclose(model.predict(X), fresh.predict(X), atol=1e-7)


def test_many_outputs_in_chunks():
    X, y, qid = make_data()
    Y = np.stack([y, -2 * y], axis=1)
    model = RankRLS().partial_fit(X[qid < 3], Y[qid < 3], qid=qid[qid < 3])
    model.partial_fit(X[qid >= 3], Y[qid >= 3], qid=qid[qid >= 3])
    np.testing.assert_allclose(model.coef_, RankRLS().fit(X, Y, qid=qid).coef_, atol=1e-9)


@pytest.mark.parametrize(
    ("model", "calls", "message"),
    [
        (RankRLS(), [{"qid": [1, 1, 2, 2]}, {"qid": [2, 2, 3, 3]}], "Query 2 has been seen"),
        (RankRLS(), [{"qid": [1, 1, 2, 2]}, {}], "came with qid"),
        (RankRLS(), [{}, {"qid": [1, 1, 2, 2]}], "came without qid"),
        (RankRLS(kernel="rbf"), [{}], "fixed width"),
        (RankRLS(solver="dual"), [{}], "primal form"),
        (RankRLS(tol=1e-3), [{}], "tol and max_iter belong to solver='cg'"),
        (RankRLS(kernel="precomputed"), [{}], "precomputed kernel"),
        (RankRLS(ties="exclude"), [{}, {}], "second chunk without qid needs cost='magnitude'"),
    ],
)
def test_chunks_that_cannot_be_added_are_refused(model, calls, message):
    X, y = np.arange(8.0).reshape(4, 2), np.arange(4.0)
    for call in calls[:-1]:
        model.partial_fit(X, y, **call)
    before = pickle.dumps(model)
    with pytest.raises(ValueError, match=message):
        model.partial_fit(X, y, **calls[-1])
    if len(calls) > 1:
        assert pickle.dumps(model) == before  # nothing is lost or half-done


def test_forgetting_what_was_not_seen_is_refused():
    X, y = np.arange(12.0).reshape(6, 2) ** 2, np.arange(6.0)
    model = RankRLS().partial_fit(X, y, qid=[1, 1, 1, 2, 2, 2])
    with pytest.raises(ValueError, match="query 7 has not been seen"):
        model.forget(X[:2], y[:2], qid=[7, 7])
    with pytest.raises(ValueError, match="seen with 3 rows and is given with 2"):
        model.forget(X[:2], y[:2], qid=[1, 1])
    with pytest.raises(ValueError, match="no query"):
        model.forget(X, y, qid=[1, 1, 1, 2, 2, 2])
    with pytest.raises(ValueError, match="not trained by partial_fit"):
        RankRLS().fit(X, y).forget(X, y)
    with pytest.raises(ValueError, match="fewer than two"):
        RankRLS().partial_fit(X, y).forget(X[:5], y[:5])


def test_partial_fit_after_fit_is_refused():
    X, y, qid = make_data()
    with pytest.raises(ValueError, match="cannot continue from fit"):
        RankRLS().fit(X, y, qid=qid).partial_fit(X, y, qid=qid)


def test_fitted_models_hold_no_square_matrix_and_pickle_small():
    X, y, qid = make_data(400)
    for model in (
        RankRLS(kernel="rbf").fit(X, y, qid=qid),
        RankRLS(kernel="rbf", n_basis=20).fit(X, y, qid=qid),
        RankRLS(solver="dual").fit(X, y, qid=qid),
        RLS(kernel="rbf").fit(X, y),
    ):
        stored = pickle.dumps(model)
        assert len(stored) < 3 * X.nbytes + 5000  # a 400 × 400 matrix has 1,280,000 bytes
        np.testing.assert_allclose(pickle.loads(stored).predict(X), model.predict(X), rtol=1e-9)


def test_inputs_are_not_modified():
    X, y, qid = make_data()
    copies = X.copy(), y.copy(), qid.copy()
    for options in (
        {},
        {"kernel": "rbf"},
        {"solver": "cg"},
        {"kernel": "rbf", "n_basis": 5},
        {"cost": "relative"},
    ):
        RankRLS(**options).fit(X, y, qid=qid).predict(X)
    for now, before in zip((X, y, qid), copies, strict=True):
        np.testing.assert_array_equal(now, before)


def test_iterations_that_run_out_warn_and_say_what_to_do():
    X, y, _ = make_data(m=200, n=60)
    with pytest.warns(ConvergenceWarning, match="raise max_iter or tol"):
        model = RankRLS(1e-6, solver="cg", max_iter=2).fit(X, y)
    assert (model.n_iter_, model.residual_ > 1e-8) == (2, True)


@pytest.mark.parametrize(
    ("shape", "sparse", "options", "solver"),
    [
        ((30, 5), False, {}, "primal"),
        ((5, 30), False, {}, "dual"),
        ((30, 5), False, {"kernel": "rbf"}, "dual"),
        ((30, 5), False, {"kernel": "rbf", "n_basis": 5}, "primal"),
        ((30, 5), True, {}, "primal"),
        ((3100, 3050), True, {}, "primal"),
        ((12_000, 10_000), True, {"alpha": 1e4}, "cg"),
    ],
)
def test_the_automatic_choice_is_the_documented_table(shape, sparse, options, solver):
    density = min(0.01, 10 / shape[1])
    X = sp.random_array(shape, density=density, rng=0, format="csr") if sparse else RNG.normal(size=shape)
    assert RankRLS(**options).fit(X, RNG.normal(size=shape[0])).solver_ == solver


def test_unfitted_models_say_so():
    with pytest.raises(NotFittedError):
        RankRLS().predict([[1.0]])


def test_verbose_tells_the_stages(capsys):
    X, y, qid = make_data()
    RankRLS(kernel="rbf", verbose=1).fit(X, y, qid=qid)
    told = capsys.readouterr().err
    assert "[RankRLS] kernel matrix 40 × 40" in told
    assert "factorisation" in told
    RankRLS(kernel="rbf").fit(X, y, qid=qid)
    assert capsys.readouterr().err == ""


def test_a_basis_of_all_rows_in_another_order():
    X, y, qid = make_data()
    order = np.random.default_rng(1).permutation(40)
    by_rows = RankRLS(kernel="rbf", basis=order).fit(X, y, qid=qid)
    by_matrix = RankRLS(kernel="precomputed", basis=order).fit(rbf_kernel(X), y, qid=qid)
    np.testing.assert_allclose(by_matrix.predict(rbf_kernel(X)), by_rows.predict(X), atol=1e-8)
    np.testing.assert_array_equal(by_matrix.basis_indices_, order)


@pytest.mark.parametrize("gamma", [1e-9, 1e-5, 1e-2, 1.0])
@pytest.mark.parametrize("alpha", [1e-12, 1e-3, 10.0])
def test_nearly_dependent_basis_vectors(gamma, alpha):
    """Duplicates, and a kernel so wide that all basis vectors look alike: compared by augmented least squares."""
    X, y, _ = make_data(60)
    X[30:35] = X[:5]
    model = RankRLS(alpha, kernel="rbf", gamma=gamma, basis=np.r_[0:20, 30:35]).fit(X, y)
    features = NystromMap("rbf", gamma=gamma, basis=np.r_[0:20, 30:35]).fit(X)
    Phi = features.transform(X)
    centred, target = np.sqrt(60) * (Phi - Phi.mean(axis=0)), np.sqrt(60) * (y - y.mean())
    stacked = np.vstack([centred, np.sqrt(alpha) * np.eye(Phi.shape[1])])
    w = np.linalg.lstsq(stacked, np.r_[target, np.zeros(Phi.shape[1])], rcond=None)[0]
    difference = model.predict(X) - Phi @ w
    # Coefficients of nearly dependent basis vectors are large and cancel: that much rounding is theirs.
    rounding = 20 * np.finfo(float).eps * abs(model.dual_coef_).sum()
    np.testing.assert_allclose(difference - difference.mean(), 0, atol=1e-7 * abs(y).max() + rounding)


def test_a_basis_of_all_rows_at_a_tiny_alpha():
    X = np.arange(10.0)[:, None]
    y = np.random.default_rng(0).normal(size=10)
    for basis in ("uniform", np.arange(10)):
        model = RankRLS(1e-14, kernel="rbf", gamma=0.5, basis=basis).fit(X, y)
        f = model.predict(X)
        np.testing.assert_allclose(f - f.mean(), y - y.mean(), atol=1e-6)


def test_an_intercept_of_many_rows_in_single_precision():
    rng = np.random.default_rng(0)
    X = (rng.normal(size=(200_000, 1)) + 100.0).astype(np.float32)
    y = 2.0 * X[:, 0].astype(np.float64)
    exact = RLS(1e-3).fit(X.astype(np.float64), y)
    single = RLS(1e-3).fit(X, y)
    np.testing.assert_allclose(single.predict(X[:100]), exact.predict(X[:100]), rtol=1e-4)


@pytest.mark.parametrize(
    "options", [{}, {"kernel": "rbf"}, {"kernel": "rbf", "n_basis": 9, "random_state": 0}]
)
def test_several_outputs_in_single_precision_stay_single(options):
    X, y, _ = make_data()
    model = RLS(**options).fit(X.astype(np.float32), np.stack([y, -y], axis=1))
    assert model.predict(X.astype(np.float32)).dtype == np.float32


@pytest.mark.parametrize(
    "change", [{"weighting": "query"}, {"cost": "unit"}, {"gamma": 0.3}, {"basis": np.arange(3)}]
)
def test_options_that_change_between_chunks_are_refused(change):
    X, y, qid = make_data()
    first = qid < 3
    model = RankRLS(kernel="rbf", basis=np.arange(4)).partial_fit(X[first], y[first], qid=qid[first])
    model.set_params(**change)
    with pytest.raises(ValueError, match=f"{next(iter(change))} has changed since the first partial_fit"):
        model.partial_fit(X[~first], y[~first], qid=qid[~first])
    model.set_params(**{name: getattr(RankRLS(basis=np.arange(4)), name) for name in change})
    model.set_params(alpha=2.0).partial_fit(X[~first], y[~first], qid=qid[~first])
    assert model.n_queries_ == 6


@pytest.mark.parametrize("options", [{}, {"ties": "exclude"}, {"cost": "relative"}])
def test_chunks_without_a_pair_change_nothing(options):
    X, y, _ = make_data(12)
    y = np.round(y)
    y[8:] = 1.0
    qid = np.array([0, 1, 2, 3, 4, 4, 4, 4, 5, 5, 5, 5])
    y[4], y[5] = 3.0, 1.0
    whole = RankRLS(**options).fit(X, y, qid=qid)
    model = RankRLS(**options)
    for rows in (np.arange(4), np.arange(4, 8), np.arange(8, 12)):  # the first chunk has no pair at all
        model.partial_fit(X[rows], y[rows], qid=qid[rows])
    np.testing.assert_allclose(model.coef_, whole.coef_, atol=1e-10)
    assert (model.n_queries_, model.n_comparisons_) == (6, whole.n_comparisons_)


def test_a_model_that_cannot_be_trained_in_chunks_has_no_partial_fit():
    X, y, qid = make_data()
    assert not hasattr(RankRLS(kernel="rbf"), "partial_fit")
    assert not hasattr(RankRLS().fit(X, y), "partial_fit")
    assert hasattr(RankRLS(kernel="rbf", n_basis=3), "partial_fit")
    assert hasattr(RankRLS().partial_fit(X, y, qid=qid), "partial_fit")
    one_call = RankRLS(ties="exclude").partial_fit(X, np.round(y))
    np.testing.assert_allclose(one_call.coef_, RankRLS(ties="exclude").fit(X, np.round(y)).coef_, atol=1e-9)


def test_threads_may_train_at_the_same_time():
    from concurrent.futures import ThreadPoolExecutor

    X, y, qid = make_data(300, n=8)
    expected = RankRLS().fit(X, y, qid=qid).coef_
    with ThreadPoolExecutor(4) as pool:
        for model in pool.map(lambda _: RankRLS().fit(X, y, qid=qid), range(16)):
            np.testing.assert_allclose(model.coef_, expected)


def test_memory_mapped_rows(tmp_path):
    X, y, qid = make_data(n=8)
    np.save(tmp_path / "X.npy", X)
    mapped = np.load(tmp_path / "X.npy", mmap_mode="r")
    for options in (
        {},
        {"kernel": "rbf"},
        {"kernel": "rbf", "n_basis": 5, "random_state": 0},
        {"solver": "cg"},
    ):
        model = RankRLS(**options).fit(mapped, y, qid=qid)
        np.testing.assert_allclose(model.predict(mapped), RankRLS(**options).fit(X, y, qid=qid).predict(X))


def test_two_rows_are_enough_and_one_feature():
    model = RankRLS(1e-6).fit([[0.0], [2.0]], [0.0, 1.0])
    np.testing.assert_allclose(model.coef_, [0.5], rtol=1e-5)
    assert RLS().fit([[1.0]], [3.0]).predict([[5.0]]).tolist() == [3.0]


def test_a_reduced_set_is_as_accurate_as_its_features():
    """Basis vectors that are only fairly independent, a small alpha: the cheaper system must not be trusted."""
    X = np.array([[-0.218], [0.1], [0.327], [-0.349], [0.179], [-0.096], [0.384], [0.543], [1.262], [-0.307]])
    y = np.array([1.0, 1.0, 0.0, 1.0, 0.0, 2.0, 1.5, 0.0, 0.0, 0.5])
    qid = np.array([1, 1, 1, 0, 0, 1, 0, 1, 0, 0])
    options = {"cost": "relative", "weighting": "item"}
    kernel = {"kernel": "rbf", "gamma": 1.0, "basis": np.arange(5)}
    model = RankRLS(2.0**-15, **kernel, **options).fit(X, y, qid=qid)
    L, b = oracles.dense_comparisons(y, qid, **options)
    values, vectors = np.linalg.eigh(L)
    half = vectors * np.sqrt(np.maximum(values, 0))  # L = half halfᵀ
    feature_map = NystromMap(**kernel).fit(X)
    stacked = np.vstack([half.T @ feature_map.transform(X), 2.0**-7.5 * np.eye(5)])
    target = np.concatenate([np.linalg.lstsq(half, b, rcond=1e-10)[0], np.zeros(5)])
    w = np.linalg.lstsq(stacked, target, rcond=None)[0]
    new = np.array([[-0.743]])
    np.testing.assert_allclose(model.predict(new), feature_map.transform(new) @ w, atol=1e-7)
