"""The quadratic problem: factorisation, path, conjugate gradients and additive statistics, against dense solves."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

import oracles
from preflearn.comparisons import compare_scores, encode_queries, one_group
from preflearn.kernels import Kernel
from preflearn.numerics import memory
from preflearn.numerics.linalg import (
    factor_kernel,
    first_equal_items,
    first_equal_rows,
    independent_items,
    mirror_lower,
)
from preflearn.squared import problem as problem_of_squares
from preflearn.squared.conjugate_gradients import solve_conjugate_gradients
from preflearn.squared.moments import GlobalMoments, QueryMoments
from preflearn.squared.problem import dual_problem, feature_gram, feature_gram_diagonal, primal_problem
from preflearn.squared.reduced_set import solve_on_basis
from strategies import ranking_problems

OPTIONS = st.fixed_dictionaries(
    {
        "cost": st.sampled_from(["magnitude", "unit", "relative"]),
        "ties": st.sampled_from(["include", "exclude"]),
        "weighting": st.sampled_from(["pair", "item", "query"]),
    }
)
ALPHAS = st.sampled_from([2.0**-15, 1e-2, 1.0, 2.0**15])


def build(problem, options):
    comparisons = compare_scores(problem.y[:, None], encode_queries(problem.qid, len(problem.y)), **options)
    return comparisons, *oracles.dense_comparisons(problem.y, problem.qid, **options)


def rounding_of(matrix, alpha):
    """What a backward stable solution of (A + alpha I) x = c loses over its size: eps times the condition number.

    The eigenvalues lie between alpha and alpha + ‖A‖: features of size 30 with alpha = 2^-15 have a condition number of
    1e11 and more, which leaves five digits.
    """
    return np.finfo(float).eps * (1 + np.linalg.norm(matrix, 2) / alpha)


@given(ranking_problems(), OPTIONS, st.booleans())
def test_gram_of_dense_and_sparse_features(problem, options, sparse):
    comparisons, L, _ = build(problem, options)
    features = sp.csr_array(problem.X) if sparse else problem.X
    expected = problem.X.T @ L @ problem.X
    size = abs(problem.X).max() ** 2 * max(1.0, abs(L).max()) * len(problem.y) ** 2
    np.testing.assert_allclose(feature_gram(features, comparisons), expected, atol=1e-12 * size)
    np.testing.assert_allclose(
        feature_gram_diagonal(features, comparisons), np.diagonal(expected), atol=1e-12 * size
    )


def test_small_alphas_share_one_decomposition(monkeypatch):
    """Near ties under cost "relative": squares of features would hide what light pairs compare."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(30, 12)), np.round(rng.normal(size=30), 2)
    comparisons = compare_scores(y[:, None], one_group(30), cost="relative")
    made = []
    svd = problem_of_squares.la.svd
    monkeypatch.setattr(problem_of_squares.la, "svd", lambda *args, **kw: made.append(1) or svd(*args, **kw))
    alphas = [2.0**-20, 2.0**-14, 2.0**-8]
    path = problem_of_squares.solve_primal_path(X, comparisons, alphas)
    assert len(made) == 1
    for alpha, w in zip(alphas, path, strict=True):
        alone = problem_of_squares.solve_primal(X, comparisons, alpha)
        np.testing.assert_allclose(w, alone, rtol=1e-10, atol=1e-12)
        L, b = oracles.dense_comparisons(y, np.zeros(30), cost="relative", ties="exclude")
        expected = oracles.feature_solution(X, L, b, alpha)
        np.testing.assert_allclose(w[:, 0], expected, rtol=1e-6, atol=1e-8)


@given(ranking_problems(), OPTIONS, ALPHAS)
def test_primal_solution_and_path(problem, options, alpha):
    comparisons, L, b = build(problem, options)
    expected = oracles.feature_solution(problem.X, L, b, alpha)
    rounding = rounding_of(problem.X.T @ L @ problem.X, alpha)
    tolerance = {"rtol": 1e-6, "atol": max(1e-8, rounding) * max(1.0, abs(expected).max())}
    np.testing.assert_allclose(
        primal_problem(problem.X, comparisons).solve(alpha)[:, 0], expected, **tolerance
    )
    path = primal_problem(problem.X, comparisons).spectrum().path([alpha, 3 * alpha])
    np.testing.assert_allclose(path[0, :, 0], expected, **tolerance)
    np.testing.assert_allclose(
        path[1, :, 0], oracles.feature_solution(problem.X, L, b, 3 * alpha), **tolerance
    )


@given(
    ranking_problems(),
    st.sampled_from(["magnitude", "unit"]),
    st.sampled_from(["include", "exclude"]),
    st.sampled_from(["pair", "item", "query"]),
    ALPHAS,
)
def test_dual_solution_and_path(problem, cost, ties, weighting, alpha):
    comparisons, L, b = build(problem, {"cost": cost, "ties": ties, "weighting": weighting})
    K = Kernel("rbf", gamma=0.5).matrix(problem.X)
    expected = K @ oracles.kernel_solution(K, L, b, alpha)
    tolerance = {"rtol": 1e-6, "atol": 1e-7 * max(1.0, abs(problem.y).max())}
    centre = comparisons.half  # predictions are compared up to what the comparisons can see
    for coefficients in (
        dual_problem(K.copy(), comparisons).solve(alpha),
        dual_problem(K.copy(), comparisons).spectrum().path([alpha])[0],
    ):
        np.testing.assert_allclose(centre(K @ coefficients)[:, 0], centre(expected), **tolerance)


def test_a_problem_is_used_up_by_its_solution():
    comparisons = compare_scores(np.arange(4.0)[:, None], one_group(4))
    problem = primal_problem(np.eye(4), comparisons)
    problem.solve(1.0)
    with pytest.raises(RuntimeError, match="used up"):
        problem.solve(1.0)


def test_alpha_below_rounding_falls_back_to_the_eigen_decomposition():
    rng = np.random.default_rng(0)
    X = 1e6 * rng.normal(size=(20, 3)) @ rng.normal(size=(3, 6))  # rank 3: Cholesky of the Gram must fail
    y = rng.normal(size=20)
    comparisons = compare_scores(y[:, None], one_group(20))
    solution = primal_problem(X, comparisons).solve(1e-9)[:, 0]
    centred = X - X.mean(axis=0)
    expected = np.linalg.lstsq(centred, y - y.mean(), rcond=1e-10)[0]
    np.testing.assert_allclose(centred @ solution, centred @ expected, atol=1e-6)


def test_an_indefinite_kernel_is_refused():
    comparisons = compare_scores(np.array([[1.0], [2.0]]), one_group(2))
    with pytest.raises(ValueError, match="not positive semidefinite"):
        dual_problem(np.array([[-5.0, 0.0], [0.0, -5.0]]), comparisons).solve(0.1)


@given(ranking_problems(max_rows=40), OPTIONS, st.sampled_from([1e-2, 1.0, 100.0]), st.booleans())
def test_conjugate_gradients_reach_the_dense_solution(problem, options, alpha, sparse):
    comparisons, L, b = build(problem, options)
    features = sp.csr_array(problem.X) if sparse else problem.X
    result = solve_conjugate_gradients(features, comparisons, alpha, tol=1e-12)
    expected = oracles.feature_solution(problem.X, L, b, alpha)
    assert result.converged
    assert result.residual <= 1e-12
    np.testing.assert_allclose(
        result.weights[:, 0], expected, rtol=1e-5, atol=1e-7 * max(1.0, abs(expected).max())
    )


def test_conjugate_gradients_solve_many_outputs_and_report():
    rng = np.random.default_rng(0)
    X, Y = rng.normal(size=(50, 8)), rng.normal(size=(50, 3))
    Y[:, 2] = 4.0  # nothing to learn: its right-hand side is zero
    comparisons = compare_scores(Y, encode_queries(rng.integers(0, 5, 50), 50))
    seen = []
    result = solve_conjugate_gradients(X, comparisons, 0.5, on_iteration=lambda i, r: seen.append((i, r)))
    exact = primal_problem(X, comparisons).solve(0.5)
    np.testing.assert_allclose(result.weights, exact, atol=1e-7)
    np.testing.assert_allclose(result.weights[:, 2], 0, atol=1e-12)
    assert [i for i, _ in seen] == list(range(1, result.n_iter + 1))
    assert result.n_iter <= 20
    short = solve_conjugate_gradients(X, comparisons, 0.5, max_iter=2)
    assert not short.converged
    assert short.n_iter == 2


@given(ranking_problems(min_rows=6), st.sampled_from(["pair", "item", "query"]), st.integers(1, 5))
def test_global_moments_merge_and_split(problem, weighting, cut):
    X, Y = problem.X, np.stack([problem.y, problem.y**2], axis=1)
    whole = GlobalMoments.of(X, Y, weighting)
    first, rest = GlobalMoments.of(X[:cut], Y[:cut], weighting), GlobalMoments.of(X[cut:], Y[cut:], weighting)
    merged = GlobalMoments.of(X[:cut], Y[:cut], weighting)
    merged.add(rest)
    for name in ("scatter", "cross", "mean", "score_mean"):
        size = max(1.0, abs(getattr(whole, name)).max())
        np.testing.assert_allclose(getattr(merged, name), getattr(whole, name), atol=1e-10 * size)
    merged.subtract(rest)
    for name in ("scatter", "cross", "mean", "score_mean"):
        size = max(1.0, abs(getattr(whole, name)).max())
        np.testing.assert_allclose(getattr(merged, name), getattr(first, name), atol=1e-9 * size)
    comparisons = compare_scores(Y, one_group(len(Y)), weighting=weighting)
    expected = primal_problem(X, comparisons).solve(0.7)
    np.testing.assert_allclose(
        whole.problem().solve(0.7), expected, rtol=1e-6, atol=1e-8 * max(1, abs(expected).max())
    )


def test_query_moments_add_and_subtract():
    rng = np.random.default_rng(0)
    X, y, qid = rng.normal(size=(30, 4)), rng.normal(size=30), np.repeat(np.arange(6), 5)

    def moments(rows):
        return QueryMoments.of(X[rows], compare_scores(y[rows, None], encode_queries(qid[rows], len(rows))))

    whole, merged = moments(np.arange(30)), moments(np.arange(10))
    merged.add(moments(np.arange(10, 30)))
    np.testing.assert_allclose(merged.gram, whole.gram)
    np.testing.assert_allclose(merged.cross, whole.cross)
    assert (merged.n_rows, merged.n_comparisons) == (30, 60)
    merged.subtract(moments(np.arange(10)))
    np.testing.assert_allclose(merged.gram, moments(np.arange(10, 30)).gram, atol=1e-10)


@pytest.mark.parametrize("n", [1, 5, 511, 513])
def test_mirroring_fills_the_upper_triangle(n):
    A = np.asfortranarray(np.tril(np.random.default_rng(0).normal(size=(n, n))))
    expected = np.tril(A) + np.tril(A, -1).T
    np.testing.assert_array_equal(mirror_lower(A), expected)


def test_what_does_not_fit_is_refused_before_allocation(monkeypatch):
    monkeypatch.setattr(memory, "available_bytes", lambda: 10_000_000)
    memory.require_memory(8_000_000, "a small thing")
    with pytest.raises(MemoryError, match="A large thing needs 0.1 GB, and 0.0 GB .* n_basis.*solver='cg'"):
        memory.require_memory(100_000_000, "a large thing")


def test_available_memory_is_told_here():
    available = memory.available_bytes()
    assert available is None or available > 1 << 20


@given(ranking_problems(min_rows=8), OPTIONS, st.sampled_from([1e-3, 1.0]), st.integers(2, 6))
def test_the_system_on_basis_vectors_equals_the_one_on_features(problem, options, alpha, r):
    comparisons, _, _ = build(problem, options)
    X = problem.X + 5 * np.arange(len(problem.y))[:, None]  # no two rows alike: K_RR is well conditioned
    K_MR = Kernel("rbf", gamma=0.5).matrix(X, X[:r])
    factor = factor_kernel(K_MR[:r])
    assert factor.well_conditioned
    beta = solve_on_basis(K_MR, factor, K_MR[:r], comparisons, alpha)
    features = np.linalg.solve(factor.C, K_MR.T).T
    by_features = factor.expand(primal_problem(features, comparisons).solve(alpha))
    np.testing.assert_allclose(K_MR @ beta, K_MR @ by_features, atol=1e-7 * max(1.0, abs(problem.y).max()))


def test_an_ill_conditioned_system_on_basis_vectors_is_refused():
    X = np.arange(10.0)[:, None]
    K = Kernel("rbf", gamma=0.5).matrix(X)
    comparisons = compare_scores(X**2, one_group(10))
    # K β = 1 is invisible to a ranking: only alpha holds that direction.
    with pytest.raises(np.linalg.LinAlgError):
        solve_on_basis(K, factor_kernel(K), K, comparisons, 1e-14)


def test_directions_that_nothing_holds_get_no_weight():
    rng = np.random.default_rng(0)
    X = np.repeat(rng.normal(size=(30, 3)), 2, axis=1)  # each column twice
    y = rng.normal(size=30)
    comparisons = compare_scores(y[:, None], one_group(30))
    expected = np.linalg.lstsq(X - X.mean(axis=0), y - y.mean(), rcond=1e-10)[0]  # least norm
    for alpha in (1e-13, 1e-30, 1e-300):
        np.testing.assert_allclose(primal_problem(X, comparisons).solve(alpha)[:, 0], expected, atol=1e-8)
        path = primal_problem(X, comparisons).spectrum().path([alpha])
        np.testing.assert_allclose(path[0, :, 0], expected, atol=1e-8)


def test_sparse_gram_in_single_precision_survives_a_large_mean():
    rng = np.random.default_rng(0)
    X = (rng.normal(size=(500, 2)) + 300.0).astype(np.float32)
    comparisons = compare_scores(rng.normal(size=(500, 1)), one_group(500))
    exact = feature_gram(X.astype(np.float64), comparisons)
    gram = feature_gram(sp.csr_array(X), comparisons)
    assert gram.dtype == np.float32
    np.testing.assert_allclose(gram, exact, atol=1e-4 * abs(exact).max())


def test_means_of_many_rows_in_single_precision():
    X = np.full((300_000, 1), 100.1, dtype=np.float32)
    moments = GlobalMoments.of(X, np.zeros((300_000, 1)), "item")
    np.testing.assert_allclose(moments.mean, float(X[0, 0]), rtol=1e-9)


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize("rank", [3, 9])
def test_a_kernel_is_factored_in_its_own_memory_only_when_allowed(rank, overwrite):
    A = np.random.default_rng(0).normal(size=(9, rank))
    K = A @ A.T
    before = K.copy()
    factor = factor_kernel(K, overwrite=overwrite)
    assert factor.rank == rank
    np.testing.assert_allclose(factor.F @ factor.F.T, before, atol=1e-10)
    np.testing.assert_allclose(factor.F[factor.pivots], factor.C)
    np.testing.assert_array_equal(np.triu(factor.C, 1), 0)
    if not overwrite:
        np.testing.assert_array_equal(K, before)
    elif rank == 9:
        assert np.shares_memory(factor.C, K)


@given(st.integers(1, 6), st.integers(0, 6), st.integers(0, 999))
def test_independent_items_span_the_others(rank, n_more, seed):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(rank, 8))
    X = rng.permutation(np.concatenate([X, rng.normal(size=(n_more, rank)) @ X]))
    kept = independent_items(X @ X.T, 1e-10)
    assert kept.tolist() == sorted(set(kept.tolist()))
    assert len(kept) == rank
    assert np.linalg.matrix_rank(X[kept]) == rank


@given(
    st.lists(
        st.lists(st.sampled_from([0.0, -0.0, 1.0, -1.0, 0.5, 1e-300, 3.0]), min_size=3, max_size=3),
        min_size=1,
    ),
    st.sampled_from([np.float32, np.float64]),
)
def test_equal_rows_are_found(rows, dtype):
    """Zeros have no sign, may be stored or not, and columns stand in any order."""
    X = np.array(rows, dtype=dtype)
    first = [next(i for i in range(len(X)) if (X[i] == X[j]).all()) for j in range(len(X))]
    assert first_equal_rows(X).tolist() == first
    stored = sp.csr_array(
        (X[:, [2, 0, 1]].ravel(), np.tile([2, 0, 1], len(X)), 3 * np.arange(len(X) + 1)), shape=X.shape
    )
    for form in (stored, sp.csr_array(X)):
        before = form.indices.copy()
        assert first_equal_rows(form).tolist() == first
        np.testing.assert_array_equal(form.indices, before)


@given(st.lists(st.integers(0, 5), min_size=1, max_size=12), st.integers(0, 10**6))
def test_equal_items_are_found_and_share_a_pivot(numbers, seed):
    X = np.random.default_rng(seed).normal(size=(6, 8))[numbers]
    first = [numbers.index(number) for number in numbers]
    assert first_equal_items(X @ X.T).tolist() == first
    factor = factor_kernel(X @ X.T)
    np.testing.assert_allclose(factor.F @ factor.F.T, X @ X.T, atol=1e-12)
    assert factor.pivots[factor.pivot_of].tolist() == first


def test_items_close_to_each_other_are_not_one():
    times = 1.7e9 + 60.0 * np.arange(200)[:, None]
    factor = factor_kernel(times @ times.T)
    np.testing.assert_allclose(factor.F @ factor.F.T, times @ times.T, rtol=1e-12)
    assert len(np.unique(factor.F[:, 0])) > 100
    points = np.linspace(0, 1, 1000, dtype=np.float32)[:, None]
    K = Kernel("rbf", 1.0).matrix(points)
    factor = factor_kernel(K)
    np.testing.assert_allclose(factor.F @ factor.F.T, K, atol=2e-4)
