"""Kernels, feature maps and the choice of basis vectors."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics.pairwise import pairwise_kernels
from sklearn.utils.estimator_checks import parametrize_with_checks

import rationals
from preflearn.kernels import EmpiricalKernelMap, Kernel, NystromMap, choose_basis
from preflearn.kernels.blocks import KernelBlocks
from preflearn.numerics.linalg import factor_kernel
from rationals import rational
from strategies import ranking_problems

RNG = np.random.default_rng(0)
X = RNG.normal(size=(12, 3))


def shared_letters(a: str, b: str, power: int = 1) -> float:
    return float(len(set(a) & set(b)) ** power)


@pytest.mark.parametrize(
    ("kernel", "params"),
    [
        ("linear", {}),
        ("rbf", {"gamma": 0.3}),
        ("poly", {"gamma": 0.5, "degree": 2, "coef0": 2}),
        ("sigmoid", {"gamma": 0.1, "coef0": 0.5}),
        ("laplacian", {"gamma": 0.2}),
        ("cosine", {}),
    ],
)
def test_named_kernels_are_scikit_learns(kernel, params):
    np.testing.assert_allclose(
        Kernel(kernel, **params).matrix(X, X[:5]), pairwise_kernels(X, X[:5], metric=kernel, **params)
    )


def test_kernel_params_reach_the_kernel():
    np.testing.assert_allclose(
        Kernel("rbf", kernel_params={"gamma": 0.7}).matrix(X), pairwise_kernels(X, metric="rbf", gamma=0.7)
    )


def test_callables_take_any_objects():
    words = ["apple", "plea", "xyz"]
    kernel = Kernel(shared_letters, kernel_params={"power": 2})
    np.testing.assert_array_equal(kernel.matrix(words, ["ale"]), [[9], [9], [0]])
    square = kernel.matrix(words)
    np.testing.assert_array_equal(square, kernel.matrix(words, words))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"kernel": "rfb"}, "kernel must be one of .*'rfb'"),
        ({"kernel": "rbf", "kernel_params": {"gama": 1}}, "does not take gama .its parameters: gamma"),
        ({"kernel": "linear", "gamma": 0.1}, "does not take gamma"),
        ({"kernel": "rbf", "degree": 2}, "does not take degree"),
        ({"kernel": "precomputed", "gamma": 1.0}, "does not take gamma"),
        ({"kernel": shared_letters, "gamma": 1.0}, "gamma would be ignored by a callable"),
        ({"kernel": "rbf", "gamma": 1.0, "kernel_params": {"gamma": 2.0}}, "gamma is given twice"),
    ],
)
def test_parameters_that_would_be_ignored_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        Kernel(**arguments)


@given(ranking_problems(max_features=3), st.sampled_from(["rbf", "linear", "poly"]), st.integers(1, 20))
def test_nystrom_features_give_the_nystrom_kernel(problem, kernel, n_basis):
    """ΦΦᵀ = K_MR K_RR⁻¹ K_RM over the basis vectors that the map keeps, in rational arithmetic on the same K.

    Over all basis vectors this is not defined where they are nearly dependent: any pseudo-inverse depends on where it
    cuts off. Those that the map sets aside must depend on the others to rounding instead. With G = K_MR A⁻¹ K_RM and
    A + E = C Cᵀ, the change of G is W E W'ᵀ with the interpolation weights W = K_MR A⁻¹ and W' = K_MR (A + E)⁻¹:
    rounding is allowed that and no more.
    """
    K = Kernel(kernel).matrix(problem.X)
    K = (K + K.T) / 2  # to the last digit
    feature_map = NystromMap("precomputed", n_basis=min(n_basis, len(K)), random_state=0)
    features = feature_map.fit_transform(K)
    assert features.shape == (len(K), feature_map.rank_)
    every, C = feature_map.basis_indices_, feature_map.factor_.C
    kept = every[feature_map.factor_.pivots]
    size = K.diagonal()[every].max()
    unit = (len(every) + 2) * np.finfo(float).eps * size
    K_RR, K_RM = rational(K[np.ix_(kept, kept)]), rational(K[kept])
    of_factor = rational(C) * rational(C).transpose()
    assert abs(to_floats(of_factor - K_RR)).max() <= 2 * unit

    exact = to_floats(rationals.nystrom(K_RM.transpose(), K_RR))
    weights = np.maximum(*(abs(to_floats(A.solve(K_RM))).sum(axis=0) for A in (K_RR, of_factor)))
    norms = np.linalg.norm(features, axis=1)
    allowed = 8 * unit * (np.outer(weights, weights) + np.outer(norms, norms) / size) + 1e-300  # underflow
    assert (abs(features @ features.T - exact) <= allowed).all()
    if np.linalg.cond(K[np.ix_(kept, kept)]) < 1e4:  # the comparison says something
        assert allowed.max() < 1e-5 * abs(K).max()

    aside = np.setdiff1d(every, kept)
    if aside.size:
        K_AR = rational(K[np.ix_(aside, kept)])
        left = K.diagonal()[aside] - to_floats(rationals.nystrom(K_AR, K_RR)).diagonal()
        weights = abs(to_floats(K_RR.solve(K_AR.transpose()))).sum(axis=0)
        assert (left <= 8 * unit * (1 + weights) ** 2).all()


@given(ranking_problems(max_features=3), st.sampled_from(["rbf", "linear", "poly"]), st.integers(1, 20))
def test_nystrom_features_of_a_named_kernel_are_those_of_its_matrix(problem, kernel, n_basis):
    """Where basis vectors are not nearly dependent: there the rounding of each kernel value decides."""
    options = {"n_basis": min(n_basis, len(problem.X)), "random_state": 0}
    K = Kernel(kernel).matrix(problem.X)
    named = NystromMap(kernel, **options).fit(problem.X)
    basis = named.basis_indices_
    features = named.transform(problem.X)
    np.testing.assert_array_equal(basis, NystromMap("precomputed", **options).fit(K).basis_indices_)
    assert features.shape == (len(problem.X), named.rank_)
    if np.linalg.cond(K[np.ix_(basis, basis)]) < 1e6:
        expected = NystromMap("precomputed", **options).fit_transform(K)
        np.testing.assert_allclose(features @ features.T, expected @ expected.T, atol=1e-6 * abs(K).max())


def to_floats(matrix):
    """A rational matrix as an array."""
    return np.array([[rationals.to_float(x) for x in row] for row in matrix.tolist()])


@given(ranking_problems(), st.sampled_from(["rbf", "linear"]))
def test_empirical_map_is_exact(problem, kernel):
    features = EmpiricalKernelMap(kernel).fit_transform(problem.X)
    K = Kernel(kernel).matrix(problem.X)
    np.testing.assert_allclose(features @ features.T, K, atol=1e-7 * abs(K).max())


def test_expansion_on_basis_vectors_is_the_linear_model_on_the_features():
    feature_map = NystromMap("rbf", n_basis=5, random_state=0).fit(X)
    w = RNG.normal(size=(5, 2))
    beta = feature_map.expand(w)
    K = Kernel("rbf").matrix(X, feature_map.basis_)
    np.testing.assert_allclose(K @ beta, feature_map.transform(X) @ w, atol=1e-10)
    K_RR = Kernel("rbf").matrix(feature_map.basis_)
    np.testing.assert_allclose(np.einsum("iv,ij,jv->v", beta, K_RR, beta), (w**2).sum(axis=0))


def test_dependent_basis_vectors_are_set_aside_and_reported():
    doubled = np.repeat(X[:4], 3, axis=0)
    feature_map = NystromMap("rbf").fit(doubled)
    assert feature_map.rank_ == 4
    assert len(feature_map.basis_indices_) == 12
    assert np.isfinite(feature_map.transform(X)).all()
    beta = feature_map.expand(np.ones(4))
    np.testing.assert_allclose(Kernel("rbf").matrix(X, doubled) @ beta, feature_map.transform(X) @ np.ones(4))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_maps_keep_the_type_and_take_sparse_rows(dtype):
    dense = NystromMap("rbf", n_basis=4, random_state=0).fit(X.astype(dtype))
    sparse = NystromMap("rbf", n_basis=4, random_state=0).fit(sp.csr_array(X.astype(dtype)))
    assert dense.transform(X.astype(dtype)).dtype == dtype
    np.testing.assert_allclose(
        sparse.transform(sp.csr_array(X.astype(dtype))), dense.transform(X.astype(dtype)), atol=1e-5
    )


def test_a_map_of_a_precomputed_kernel_equals_the_map_of_the_kernel():
    K = Kernel("rbf").matrix(X)
    rows = np.array([7, 1, 3])
    from_matrix = NystromMap("precomputed", basis=rows).fit(K)
    from_rows = NystromMap("rbf", basis=rows).fit(X)
    np.testing.assert_allclose(from_matrix.transform(K), from_rows.transform(X))
    assert from_matrix.basis_ is None


def test_basis_is_drawn_without_replacement_and_repeatably():
    drawn = choose_basis(50, 20, "uniform", 3)
    assert len(set(drawn.tolist())) == 20
    np.testing.assert_array_equal(drawn, choose_basis(50, 20, "uniform", 3))
    assert len(choose_basis(50, 0.11, "uniform", 3)) == 6
    assert choose_basis(50, None, "uniform", 3) is None
    assert choose_basis(50, None, [7], 3).tolist() == [7]


@pytest.mark.parametrize(
    ("n_basis", "basis", "message"),
    [
        (11, "uniform", "larger than the number of rows, 10"),
        (0, "uniform", "at least 1"),
        (1.5, "uniform", "fraction of the rows"),
        ("many", "uniform", "None, an int or a float"),
        (True, "uniform", "None, an int or a float"),
        (3, "leverage", "'uniform' or an array"),
        (None, [0, 10], "row 10: expected 0 to 9"),
        (None, [-1, 2], "row -1"),
        (None, [1, 1], "twice"),
        (None, [0.5], "row numbers"),
        (None, [], "row numbers"),
        (None, [[0, 1]], "one-dimensional"),
        (3, [1, 2], "another number than the 2 rows"),
    ],
)
def test_bad_bases_are_refused(n_basis, basis, message):
    with pytest.raises(ValueError, match=message):
        choose_basis(10, n_basis, basis, 0)


def test_an_indefinite_matrix_is_refused():
    with pytest.raises(ValueError, match="not positive semidefinite"):
        factor_kernel(np.array([[1.0, 2.0], [2.0, 1.0]]))


def test_a_zero_kernel_is_refused():
    with pytest.raises(ValueError, match="no positive diagonal"):
        factor_kernel(np.zeros((3, 3)))


def test_a_callable_that_returns_no_number_is_refused():
    with pytest.raises(ValueError, match="returned nan for items 0 and 1"):
        Kernel(lambda a, b: np.nan if a != b else 1.0).matrix(["x", "y"])


def test_the_laplacian_kernel_takes_sparse_rows_with_long_indices():
    rows = sp.csr_array(X)
    rows.indices, rows.indptr = rows.indices.astype(np.int64), rows.indptr.astype(np.int64)
    np.testing.assert_allclose(Kernel("laplacian").matrix(rows), Kernel("laplacian").matrix(X))
    assert rows.indices.dtype == np.int64


@parametrize_with_checks(
    [NystromMap(), NystromMap("linear", n_basis=0.5, random_state=0), EmpiricalKernelMap()]
)
def test_scikit_learn_checks(estimator, check):
    check(estimator)


def test_wildly_different_scales_are_told_where_distances_count():
    from preflearn import RankRLS

    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(20, 3)) * [1.0, 5000.0, 0.0], rng.normal(size=20)
    with pytest.warns(UserWarning, match="StandardScaler"):
        RankRLS(kernel="rbf").fit(X, y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        RankRLS(kernel="linear").fit(X, y)  # alpha is about scales too, but every feature has its say
        RankRLS(kernel="rbf").fit(X * [1.0, 0.01, 1.0], y)
        RankRLS(kernel="rbf", kernel_params={"metric": np.array([1.0, 2e-4, 1.0])}).fit(X, y)


def test_features_that_a_metric_has_forgotten_are_not_looked_at():
    rng = np.random.default_rng(0)
    rows, basis = rng.normal(size=(30, 6)), rng.normal(size=(7, 6))
    kernel = Kernel("rbf", 0.4, kernel_params={"metric": np.array([0.0, 1.0, 0.0, 0.0, 0.3, 0.0])})
    expected = kernel.matrix(rows, basis)
    np.testing.assert_allclose(KernelBlocks(kernel, basis)(rows), expected, atol=1e-12)
    rows[:, 0] += 100.0
    np.testing.assert_allclose(KernelBlocks(kernel, basis)(rows), expected, atol=1e-12)
    nothing = Kernel("rbf", 0.4, kernel_params={"metric": np.zeros(6)})
    np.testing.assert_allclose(KernelBlocks(nothing, basis)(rows), 1.0)


def test_rbf_products_equal_scikit_learns_kernel_also_far_from_zero():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(700, 5)) + 1e6
    expected = pairwise_kernels(X - 1e6, metric="rbf", gamma=0.3)
    found = Kernel("rbf", gamma=0.3).matrix(X)  # large enough to be formed block by block
    np.testing.assert_allclose(found, expected, atol=1e-8)
    assert (found == found.T).all() and (np.diagonal(found) == 1).all()
    np.testing.assert_allclose(Kernel("rbf", gamma=0.3).matrix(X, X[:400]), expected[:, :400], atol=1e-8)


@pytest.mark.parametrize("n_rows", [8, 300])
def test_the_laplacian_kernel_of_learned_features_keeps_its_digits_far_from_zero(n_rows):
    rng = np.random.default_rng(0)
    X, S = rng.integers(-8, 9, size=(n_rows, 3)) / 8, rng.normal(size=(3, 3))
    kernel = Kernel("laplacian", gamma=0.3, kernel_params={"metric": S})
    expected = pairwise_kernels(X @ S, metric="laplacian", gamma=0.3)
    np.testing.assert_allclose(kernel.matrix(X), expected, rtol=1e-12)
    np.testing.assert_allclose(kernel.matrix(X + 2.0**40), expected, rtol=1e-12)  # exact sums
    np.testing.assert_allclose(
        KernelBlocks(kernel, X[:8] + 2.0**40)(X + 2.0**40), expected[:, :8], rtol=1e-12
    )


def test_the_median_distance_of_mostly_equal_rows_is_that_of_the_others():
    rows = np.zeros((40, 2))
    rows[7] = [3.0, 4.0]  # of all distances but 0, each is 5
    assert Kernel("rbf", "median").fitted_to(rows).gamma == pytest.approx(1 / 25)
    assert Kernel("laplacian", "median").fitted_to(rows).gamma == pytest.approx(1 / 7)


@pytest.mark.parametrize("kernel", ["rbf", "linear", "poly", "laplacian"])
@pytest.mark.parametrize("n_rows", [1, 5, 400])  # the last ones in several blocks
@pytest.mark.parametrize("sparse", [False, True])
def test_blocks_are_formed_in_the_memory_of_a_wider_array(kernel, n_rows, sparse):
    rng = np.random.default_rng(0)
    rows, basis = rng.normal(size=(n_rows, 3)), rng.normal(size=(200, 3))
    k = Kernel(kernel) if kernel == "linear" else Kernel(kernel, 0.4)
    wide = np.full((n_rows, 203), np.nan)
    found = KernelBlocks(k, basis)(sp.csr_array(rows) if sparse else rows, out=wide[:, :200])
    assert np.shares_memory(found, wide) and np.isnan(wide[:, 200:]).all()
    np.testing.assert_allclose(found, k.matrix(rows, basis), atol=1e-12)
