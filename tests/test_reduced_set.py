"""Reduced sets without K_MR in memory: in blocks, by conjugate gradients, and the choice of basis vectors."""

from __future__ import annotations

from unittest.mock import patch

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics.pairwise import rbf_kernel

import oracles
from preflearn import RLS, RankRLS
from preflearn.comparisons import compare_scores, encode_queries
from preflearn.kernels import NystromMap
from preflearn.kernels.blocks import KernelBlocks
from preflearn.kernels.functions import Kernel
from preflearn.model_selection import cross_val_predict
from preflearn.numerics.linalg import cholesky_in_place, factor_kernel
from preflearn.squared import reduced_set, representations, routes
from preflearn.squared.problem import feature_gram, gram_times, solve_primal, target_moment
from preflearn.squared.reduced_set import BasisEquation, sample_rows, solve_on_basis
from preflearn.squared.routes import Workload, plan
from preflearn.squared.row_blocks import HalfBlocks
from strategies import ranking_problems

COMPARISONS = [
    {},
    {"ties": "exclude"},
    {"weighting": "item"},
    {"weighting": "query", "ties": "exclude"},
    {"cost": "unit", "weighting": "query"},
]
RNG = np.random.default_rng(0)
M = 400
X = RNG.normal(size=(M, 5))
QID = RNG.integers(40, size=M)
Y = np.round(np.sin(X[:, 0]) + X[:, 1] * X[:, 2] + 0.1 * RNG.normal(size=M), 1)


def never_stored(block_rows: int = 7):
    """Every reduced set is formed in blocks of this many rows."""
    return (
        patch.object(representations, "_STORED_BYTES", -1),
        patch.object(reduced_set, "block_rows", lambda width: block_rows),
    )


@given(ranking_problems(), st.sampled_from(COMPARISONS), st.integers(1, 9), st.integers(1, 3))
def test_the_half_in_blocks_is_the_half(problem, options, block_rows, n_columns):
    queries = encode_queries(problem.qid, problem.y.shape[0])
    task = compare_scores(problem.y[:, None], queries, **options)
    V = np.random.default_rng(0).normal(size=(task.n_rows, n_columns))
    halves = HalfBlocks(task, block_rows)
    parts = [P for _, P in halves.halves(lambda block: V[block.rows].copy())]
    np.testing.assert_allclose(np.concatenate(parts), halves.sort(task.half(V)), atol=1e-10)
    back = halves.separately(lambda block: halves.sort(V)[block.start : block.stop].copy(), inverse=True)
    np.testing.assert_allclose(back, halves.sort(task.half_inverse(V)), atol=1e-10)


@given(
    ranking_problems(min_rows=4),
    st.sampled_from(COMPARISONS),
    st.sampled_from(["rbf", "poly"]),
    st.booleans(),
)
def test_blocks_and_iterations_give_the_stored_solution(problem, options, kernel, sparse):
    inputs = sp.csr_array(problem.X) if sparse else problem.X
    model = RankRLS(0.5, kernel=kernel, gamma=0.1, n_basis=0.6, random_state=0, **options)
    wanted = model.fit(inputs, problem.y, qid=problem.qid).predict(inputs)
    first, second = never_stored()
    with first, second:
        streamed = model.fit(inputs, problem.y, qid=problem.qid).predict(inputs)
        model.set_params(solver="cg", tol=1e-11).fit(inputs, problem.y, qid=problem.qid)
    scale = 1 + np.abs(wanted).max()
    # Six digits are what the sums promise: their condition is the square of that of the stored kernel values.
    np.testing.assert_allclose(streamed, wanted, atol=1e-6 * scale)
    np.testing.assert_allclose(model.predict(inputs), wanted, atol=2e-6 * scale)
    assert model.solver_ == "cg"


@pytest.mark.parametrize("learner", [RLS, RankRLS])
@pytest.mark.parametrize("alpha", [1e-3, 10.0])
def test_iterations_equal_the_exact_solution_to_the_tolerance(learner, alpha):
    extra = {"qid": QID} if learner is RankRLS else {}
    y = np.stack([Y, X[:, 3]], axis=1)
    options = {"kernel": "rbf", "n_basis": 80, "random_state": 0}
    exact = learner(alpha, **options).fit(X, y, **extra)
    for tol in (1e-3, 1e-6, 1e-9):
        model = learner(alpha, solver="cg", tol=tol, **options).fit(X, y, **extra)
        assert model.residual_ <= tol
        difference = np.linalg.norm(model.predict(X) - exact.predict(X)) / np.linalg.norm(exact.predict(X))
        assert difference <= 10 * tol
        assert model.n_iter_ <= 60


@pytest.mark.parametrize("gamma", [0.1, 0.01, 1e-4])
@pytest.mark.parametrize("alpha", [1.0, 1e-4])
def test_ill_conditioned_basis_vectors_in_blocks(gamma, alpha):
    """The sums are corrected, or features are formed: either way the stored solution."""
    model = RankRLS(alpha, kernel="rbf", gamma=gamma, n_basis=150, random_state=0)
    wanted = model.fit(X, Y, qid=QID).predict(X)
    first, second = never_stored(50)
    with first, second:
        found = model.fit(X, Y, qid=QID).predict(X)
    np.testing.assert_allclose(found, wanted, atol=1e-6 * np.abs(wanted).max())


@given(
    ranking_problems(min_rows=8, max_rows=12, max_features=3),
    st.sampled_from(COMPARISONS),
    st.sampled_from([1.0, 0.1, 1e-2, 1e-3]),
    st.sampled_from([1e-6, 1e-2, 1.0, 1e3]),
    st.integers(2, 6),
)
def test_sums_of_kernel_values_are_as_accurate_as_features_or_refused(problem, options, gamma, alpha, r):
    """Against rational arithmetic, for basis vectors that are nearly dependent."""
    m = len(problem.y)
    rows = problem.X / np.abs(problem.X).max() + 0.3 * np.arange(m)[:, None]
    K = rbf_kernel(rows, rows[:r], gamma=gamma)
    task = compare_scores(problem.y[:, None], encode_queries(problem.qid, m), **options)
    factor = factor_kernel(K[:r])
    if factor.rank < r:
        return
    L, b = oracles.dense_comparisons(problem.y, problem.qid, **options)
    exact = oracles.exact_reduced_set_predictions(K, K[:r], L, b, alpha)
    size = np.sqrt(exact @ L @ exact) + 1e-3 * np.abs(problem.y).max()

    def error(beta):
        """In the loss: what only alpha holds, such as the level of a ranking, may be off by more."""
        difference = K @ beta[:, 0] - exact
        return np.sqrt(max(0.0, difference @ L @ difference))

    features = np.linalg.solve(factor.C, K.T).T
    by_features = error(factor.expand(solve_primal(features, task, alpha)))
    try:
        assert error(solve_on_basis(K, factor, K[:r], task, alpha)) <= 10 * by_features + 1e-7 * size
        # With the correction, whatever the condition.
        equation = BasisEquation(
            lambda v: gram_times(K, task, v), factor.C, alpha, factor.reciprocal_condition
        )
        system = cholesky_in_place(np.asfortranarray(feature_gram(K, task) + alpha * K[:r]))
        corrected = equation.correct(system, target_moment(K, task))
    except np.linalg.LinAlgError:
        return
    assert error(corrected) <= 30 * by_features + 1e-10 * size


def ill_conditioned_sums() -> tuple[RankRLS, np.ndarray]:
    """A reduced set whose summed-up system keeps fewer than half of the digits, while K_RR keeps more."""
    basis = np.arange(60)
    model = RankRLS(1e-3, kernel="rbf", gamma=0.03, basis=basis)
    K = rbf_kernel(X, X[basis], gamma=0.03)
    system = feature_gram(K, compare_scores(Y[:, None], encode_queries(QID, M))) + 1e-3 * K[basis]
    assert np.linalg.cond(K[basis]) < 6e7 and np.linalg.cond(system) > 1e9
    return model, basis


def refuse(*args, **kwargs):
    raise AssertionError("features were formed")


def test_an_ill_conditioned_system_is_corrected_not_repeated_by_features(monkeypatch):
    model, basis = ill_conditioned_sums()
    with patch.object(representations, "sums_may_do", lambda *args: False):
        wanted = model.fit(X, Y, qid=QID).predict(X)
    monkeypatch.setattr(representations, "solve_primal_path", refuse)
    found = model.fit(X, Y, qid=QID).predict(X)
    np.testing.assert_allclose(found, wanted, atol=1e-10 * np.abs(wanted).max())


def test_folds_of_an_ill_conditioned_system_equal_refitting():
    model, basis = ill_conditioned_sums()
    fold_of = QID % 4
    folds = [np.flatnonzero(fold_of == fold) for fold in range(4)]
    found = cross_val_predict(model, X, Y, qid=QID, cv=folds)
    for fold in folds:
        wanted = oracles.refit_reduced(model, X, Y, QID, basis, fold)
        np.testing.assert_allclose(found[fold], wanted, atol=1e-8 * np.abs(wanted).max())


def test_preferences_and_cost_relative_are_iterated_over_in_two_passes():
    pairs = RNG.integers(M, size=(500, 2))
    pairs = pairs[pairs[:, 0] != pairs[:, 1]]
    options = {"kernel": "rbf", "n_basis": 50, "random_state": 0}
    exact = RankRLS(0.1, **options).fit_pairs(X, pairs)
    model = RankRLS(0.1, solver="cg", tol=1e-10, **options).fit_pairs(X, pairs)
    np.testing.assert_allclose(model.predict(X), exact.predict(X), atol=1e-6)
    exact = RankRLS(0.1, cost="relative", **options).fit(X, Y, qid=QID)
    model = RankRLS(0.1, cost="relative", solver="cg", tol=1e-10, **options).fit(X, Y, qid=QID)
    np.testing.assert_allclose(model.predict(X), exact.predict(X), atol=1e-6)


def test_precomputed_kernels_objects_and_single_precision():
    K = rbf_kernel(X)
    options = {"n_basis": 60, "random_state": 0, "solver": "cg", "tol": 1e-9}
    wanted = RankRLS(kernel="rbf", n_basis=60, random_state=0).fit(X, Y, qid=QID).predict(X)
    by_matrix = RankRLS(kernel="precomputed", **options).fit(K, Y, qid=QID)
    np.testing.assert_allclose(by_matrix.predict(K), wanted, atol=1e-6)
    single = RankRLS(kernel="rbf", **{**options, "tol": 1e-5}).fit(X.astype(np.float32), Y, qid=QID)
    assert single.dual_coef_.dtype == np.float32
    np.testing.assert_allclose(single.predict(X.astype(np.float32)), wanted, atol=2e-3)
    words = ["pear", "apple", "plum", "grape", "banana", "melon", "fig", "kiwi"]
    by_function = {"kernel": lambda a, b: len(set(a) & set(b)), "n_basis": 4, "random_state": 0}
    exact = RankRLS(**by_function).fit(words, np.arange(8))
    model = RankRLS(solver="cg", tol=1e-10, **by_function).fit(words, np.arange(8))
    np.testing.assert_allclose(model.predict(words), exact.predict(words), atol=1e-7)


def test_no_array_of_the_size_of_the_block_is_made(monkeypatch):
    """With room for a few blocks only, both solvers train, and the rows of the kernel are never together."""
    largest = 0
    form = reduced_set.ReducedRows.kernel

    def watched(self, rows):
        nonlocal largest
        block = form(self, rows)
        largest = max(largest, block.shape[0])
        return block

    monkeypatch.setattr(reduced_set.ReducedRows, "kernel", watched)
    first, second = never_stored(32)
    with first, second:
        for solver in ("primal", "cg"):
            RankRLS(kernel="rbf", n_basis=20, random_state=0, solver=solver).fit(X, Y, qid=QID)
    assert largest <= 32


def test_the_solver_is_chosen_by_memory_and_number_of_basis_vectors(monkeypatch):
    def chosen(requested="auto", **size):
        return plan(Workload("train", 10**7, 10, linear=False, **size), requested).solver

    assert chosen(n_basis=8000, block_fits=True) == "primal"
    assert chosen(n_basis=5000, block_fits=False) == "primal"
    assert chosen(n_basis=5001, block_fits=False) == "cg"
    assert chosen(n_basis=100, block_fits=False, closed_half=False) == "cg"
    assert chosen("cg", n_basis=10) == "cg"
    monkeypatch.setattr(routes, "MEMORY", 10e6)
    big = RNG.normal(size=(20_000, 2))
    options = {"kernel": "rbf", "n_basis": 100, "random_state": 0}
    monkeypatch.setattr(representations, "_STORED_BYTES", 1_000_000)
    assert RankRLS(**options).fit(big, big[:, 0], qid=np.arange(20_000) // 20).solver_ == "primal"
    assert RankRLS(**options).fit_pairs(big, np.arange(2000).reshape(-1, 2)).solver_ == "cg"


def test_the_sample_holds_whole_queries_and_about_so_many_rows():
    task = compare_scores(Y[:, None], encode_queries(QID, M))
    rows = sample_rows(task, 100, np.random.default_rng(0))
    assert 100 <= rows.shape[0] <= 120
    counts = np.bincount(QID)
    for query in np.unique(QID[rows]):
        assert (QID[rows] == query).sum() == counts[query]
    alone = compare_scores(Y[:, None], encode_queries(None, M))
    assert sample_rows(alone, 100, np.random.default_rng(0)).shape == (100,)
    np.testing.assert_array_equal(sample_rows(alone, 1000, np.random.default_rng(0)), np.arange(M))


# Kernel blocks ------------------------------------------------------------------------------------------------------


@given(
    st.sampled_from(
        [
            Kernel("linear"),
            Kernel("rbf", gamma=0.2),
            Kernel("rbf"),
            Kernel("poly", degree=2, coef0=0.5),
            Kernel("poly", gamma=0.3),
            Kernel("poly", degree=5),
            Kernel("laplacian"),
            Kernel("cosine"),
        ]
    ),
    st.sampled_from([0.0, 1e3]),
    st.booleans(),
)
def test_blocks_are_those_of_scikit_learn(kernel, shift, sparse):
    rng = np.random.default_rng(1)
    rows, basis = rng.normal(size=(9, 3)) + shift, rng.normal(size=(4, 3)) + shift
    if sparse:
        rows, basis = sp.csr_array(rows), sp.csr_array(basis)
    wanted = kernel.matrix(rows, basis)
    found = KernelBlocks(kernel, basis)(rows)
    np.testing.assert_allclose(found, wanted, rtol=1e-9, atol=1e-9 * np.abs(wanted).max())


# Choice of basis vectors --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kernel", ["rbf", "linear", "poly", "precomputed"])
def test_diverse_basis_vectors_span_more_than_uniform_ones(kernel):
    rng = np.random.default_rng(0)
    centres = 5 * rng.normal(size=(30, 2))
    crowded = np.concatenate(
        [centres[0] + 0.1 * rng.normal(size=(470, 2)), centres + 0.1 * rng.normal(size=(30, 2))]
    )
    inputs = rbf_kernel(crowded, gamma=1.0) if kernel == "precomputed" else crowded
    K = inputs if kernel == "precomputed" else Kernel(kernel).matrix(crowded)
    lost = {}
    for basis in ("uniform", "diverse"):
        features = NystromMap(kernel, n_basis=20, basis=basis, random_state=0).fit(inputs)
        F = features.transform(inputs)
        lost[basis] = np.trace(K - F @ F.T)
        assert np.unique(features.basis_indices_).shape == features.basis_indices_.shape
    if kernel in ("rbf", "precomputed"):
        assert lost["diverse"] < 0.5 * lost["uniform"]
        assert features.basis_indices_.shape == (20,)
    else:
        assert lost["diverse"] <= lost["uniform"] + 1e-6 * np.trace(K)
        assert features.basis_indices_.shape[0] <= 20  # no more than the kernel has dimensions


def test_diverse_basis_vectors_are_drawn_again_by_the_same_seed_and_need_a_number():
    first = RankRLS(kernel="rbf", n_basis=30, basis="diverse", random_state=3).fit(X, Y, qid=QID)
    again = RankRLS(kernel="rbf", n_basis=30, basis="diverse", random_state=3).fit(X, Y, qid=QID)
    np.testing.assert_array_equal(first.basis_indices_, again.basis_indices_)
    with pytest.raises(ValueError, match="basis='diverse' needs the number of basis vectors"):
        RankRLS(kernel="rbf", basis="diverse").fit(X, Y)
    with pytest.raises(
        ValueError, match="basis must be 'uniform' or an array of row numbers.*found 'leverage'"
    ):
        RankRLS(kernel="rbf", n_basis=3, basis="leverage").fit(X, Y)


def test_proposals_are_accepted_as_if_drawn_one_by_one():
    """The first two of three rows, drawn many times: their frequencies are those of randomly pivoted Cholesky."""
    from preflearn.kernels.maps import _draw_diverse

    rows = np.array([[0.0], [0.3], [3.0]])
    kernel = Kernel("rbf", gamma=1.0)
    K = kernel.matrix(rows)
    wanted = {}
    for first in range(3):
        left = 1 - K[:, first] ** 2
        for second in range(3):
            key = frozenset((first, second))
            wanted[key] = wanted.get(key, 0) + left[second] / left.sum() / 3
    rng = np.random.RandomState(0)
    n_draws, found = 1200, {}
    for _ in range(n_draws):
        key = frozenset(_draw_diverse(rows, kernel, np.arange(3), 2, rng).tolist())
        found[key] = found.get(key, 0) + 1 / n_draws
    for key, share in found.items():
        assert share == pytest.approx(wanted[key], abs=0.05)
