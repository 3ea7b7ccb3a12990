"""Gradients of fitted models against finite differences; kernels with a metric and with a rule for gamma."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from preflearn import RLS, RankRLS, RankSVM
from preflearn.kernels.blocks import KernelBlocks, expansion_gradient
from preflearn.kernels.functions import Kernel
from preflearn.kernels.registry import kernel_names

KERNELS = {
    "linear": {},
    "poly": {"gamma": 0.3, "degree": 3, "coef0": 1.0},
    "sigmoid": {"gamma": 0.2, "coef0": 0.1},
    "cosine": {},
    "rbf": {"gamma": 0.4},
    "laplacian": {"gamma": 0.3},
    "matern": {"gamma": 0.5},
}


def finite_differences(function, X: np.ndarray, step: float = 1e-5) -> np.ndarray:
    columns = []
    for feature in range(X.shape[1]):
        shift = np.zeros(X.shape[1])
        shift[feature] = step
        columns.append((function(X + shift) - function(X - shift)) / (2 * step))
    return np.stack(columns, axis=1)


def data(seed: int, m: int = 30, n: int = 4):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(m, n))
    return X, np.sin(X[:, 0]) + X[:, 1] * X[:, 2], np.repeat(np.arange(m // 5), 5)


def test_every_differentiable_kernel_is_tested() -> None:
    assert set(kernel_names(lambda entry: entry.gradient)) - {"polynomial"} == set(KERNELS)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("n_basis", [None, 12])
@pytest.mark.parametrize("learner", [RankRLS, RankSVM])
def test_gradient_is_the_limit_of_differences(kernel: str, n_basis, learner) -> None:
    X, y, qid = data(1)
    model = learner(0.5, kernel=kernel, n_basis=n_basis, random_state=0, **KERNELS[kernel])
    try:
        model.fit(X, y, qid=qid)
    except ValueError as error:  # tanh is not positive semidefinite
        assert kernel == "sigmoid" and "positive semidefinite" in str(error)
        return
    new = data(2)[0]
    assert np.allclose(model.gradient(new), finite_differences(model.predict, new), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kernel", KERNELS)
def test_sparse_rows_have_the_gradients_of_dense_ones(kernel: str) -> None:
    X, _, _ = data(3)
    X[np.abs(X) < 0.7] = 0.0
    Z, beta = X[:7], np.random.default_rng(0).normal(size=(7, 2))
    found = expansion_gradient(Kernel(kernel, **KERNELS[kernel]), X, Z, beta)
    sparse = expansion_gradient(Kernel(kernel, **KERNELS[kernel]), sp.csr_array(X), sp.csr_array(Z), beta)
    assert found.shape == (30, 4, 2)
    assert np.allclose(sparse, found, atol=1e-12)


@pytest.mark.parametrize("fit_intercept", [True, False])
def test_several_outputs(fit_intercept: bool) -> None:
    X, y, _ = data(4)
    model = RLS(0.1, kernel="rbf", gamma=0.2, fit_intercept=fit_intercept).fit(X, np.c_[y, X[:, 3], -y])
    gradient = model.gradient(X[:6])
    assert gradient.shape == (6, 4, 3)
    assert np.allclose(gradient, finite_differences(model.predict, X[:6]), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("nu", [0.5, 1.5, 2.5])
def test_matern_kernels_are_scikit_learns(nu: float) -> None:
    from sklearn.gaussian_process.kernels import Matern

    X, _, _ = data(3)
    X[3] = X[2]
    kernel = Kernel("matern", gamma=0.7, kernel_params={"nu": nu})
    np.testing.assert_allclose(kernel.matrix(X), Matern(1 / 0.7, nu=nu)(X), atol=1e-12)
    np.testing.assert_allclose(kernel.matrix(X, X[:5]), Matern(1 / 0.7, nu=nu)(X, X[:5]), atol=1e-12)
    beta = np.random.default_rng(0).normal(size=5)
    found = expansion_gradient(kernel, X[10:], X[:5], beta)
    expected = finite_differences(lambda rows: kernel.matrix(rows, X[:5]) @ beta, X[10:])
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-7)


def test_a_matern_kernel_without_a_closed_form_is_refused() -> None:
    with pytest.raises(ValueError, match=r"nu of kernel='matern' must be one of 0.5, 1.5, 2.5: found 1"):
        Kernel("matern", kernel_params={"nu": 1})
    with pytest.raises(ValueError, match="does not take degree"):
        Kernel("matern", degree=2)


@given(seed=st.integers(0, 1000), full=st.booleans(), name=st.sampled_from(["rbf", "laplacian", "matern"]))
def test_metric_is_a_change_of_the_features(seed: int, full: bool, name: str) -> None:
    rng = np.random.default_rng(seed)
    X, Z = rng.normal(size=(9, 5)), rng.normal(size=(4, 5))
    S = rng.normal(size=(5, 3)) if full else rng.uniform(0, 2, 5)
    kernel = Kernel(name, gamma=0.3, kernel_params={"metric": S})
    seen, seen_Z = (X @ S, Z @ S) if full else (X * S, Z * S)
    expected = Kernel(name, gamma=0.3).matrix(seen, seen_Z)
    assert np.allclose(kernel.matrix(X, Z), expected, atol=1e-12)
    assert np.allclose(kernel.matrix(sp.csr_array(X), sp.csr_array(Z)), expected, atol=1e-12)
    assert np.allclose(KernelBlocks(kernel, Z)(X), expected, atol=1e-12)
    beta = rng.normal(size=4)
    assert np.allclose(
        expansion_gradient(kernel, X, Z, beta),
        finite_differences(lambda rows: kernel.matrix(rows, Z) @ beta, X),
        rtol=1e-4,
        atol=1e-5,
    )


def test_kernels_without_gradients_are_refused() -> None:
    X, y, qid = data(5)
    model = RankRLS(kernel="chi2").fit(np.abs(X), y, qid=qid)
    with pytest.raises(ValueError, match=r"kernel='chi2' has no gradient here: use one of 'linear', .*'rbf'"):
        model.gradient(np.abs(X))
    with pytest.raises(ValueError, match="'precomputed' has no gradient"):
        RankRLS(kernel="precomputed").fit(X @ X.T, y, qid=qid).gradient(X @ X.T)


def test_metric_of_other_features_is_refused() -> None:
    with pytest.raises(ValueError, match="metric of the kernel is for 3 features: found X with 4"):
        Kernel("rbf", kernel_params={"metric": np.ones(3)}).matrix(np.ones((2, 4)))
    with pytest.raises(ValueError, match="does not take metric"):
        Kernel("poly", kernel_params={"metric": np.ones(3)})
    with pytest.raises(ValueError, match="one finite factor per feature"):
        Kernel("rbf", kernel_params={"metric": [1.0, np.nan]})


def squared_distances(X: np.ndarray) -> np.ndarray:
    return ((X[:, None] - X[None, :]) ** 2).sum(axis=2)[np.triu_indices(len(X), 1)]


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e4])
def test_gamma_by_the_median_distance(scale: float) -> None:
    X, y, qid = data(6, m=100)
    model = RankRLS(kernel="rbf", gamma="median").fit(X * scale, y, qid=qid)
    assert model.gamma_ == pytest.approx(1 / np.median(squared_distances(X * scale)), rel=0.1)
    fixed = RankRLS(kernel="rbf", gamma=model.gamma_).fit(X * scale, y, qid=qid)
    assert np.allclose(model.predict(X * scale), fixed.predict(X * scale))
    sparse = RankRLS(kernel="rbf", gamma="median").fit(sp.csr_array(X * scale), y, qid=qid)
    assert sparse.gamma_ == pytest.approx(model.gamma_)


def test_gamma_by_scale_is_that_of_support_vector_machines() -> None:
    X, y, qid = data(7)
    model = RankRLS(kernel="rbf", gamma="scale").fit(X, y, qid=qid)
    assert model.gamma_ == pytest.approx(1 / (X.shape[1] * X.var()))
    assert RankRLS(kernel="poly", gamma="scale").fit(X, y, qid=qid).gamma_ == pytest.approx(model.gamma_)


def test_every_learner_understands_a_rule_for_gamma() -> None:
    from preflearn import RLSCV, OrderPreferenceRegressor, RankRLSCV, RankSVMCV, TransductiveRankRLS
    from preflearn.kernels import NystromMap
    from preflearn.model_selection import cross_val_predict

    X, y, qid = data(8)
    rule, number = ({"kernel": "rbf", "gamma": g} for g in ("median", Kernel("rbf", "median").fit_width(X)))
    for learner in (RankRLS, RankSVM, RankRLSCV, RankSVMCV):
        found, expected = (learner(**kernel).fit(X, y, qid=qid).predict(X) for kernel in (rule, number))
        assert np.allclose(found, expected)
    for learner in (RLS, RLSCV, OrderPreferenceRegressor):
        found, expected = (learner(**kernel).fit(X, y).predict(X) for kernel in (rule, number))
        assert np.allclose(found, expected)
    some = np.where(qid < 4, y, np.nan)
    found, expected = (
        TransductiveRankRLS(**kernel).fit(X, some, qid=qid).predict(X) for kernel in (rule, number)
    )
    assert np.allclose(found, expected)
    assert np.allclose(NystromMap(**rule).fit_transform(X), NystromMap(**number).fit_transform(X))
    found, expected = (cross_val_predict(RankRLS(**kernel), X, y, qid=qid) for kernel in (rule, number))
    assert np.allclose(found, expected)


def test_a_second_fit_works_out_gamma_again() -> None:
    X, y, qid = data(9)
    model = RankRLS(kernel="rbf", gamma="median").fit(X, y, qid=qid)
    first = model.gamma_
    assert model.fit(10 * X, y, qid=qid).gamma_ == pytest.approx(first / 100)


def test_rules_for_gamma_that_mean_nothing_are_refused() -> None:
    X, y, qid = data(10)
    with pytest.raises(ValueError, match="gamma of kernel='poly' must be a number, None or 'scale'"):
        RankRLS(kernel="poly", gamma="median").fit(X, y, qid=qid)
    with pytest.raises(ValueError, match="gamma of kernel='rbf' must be .* found 'medium'"):
        RankRLS(kernel="rbf", gamma="medium").fit(X, y, qid=qid)
    with pytest.raises(ValueError, match="computed from all rows together"):
        RankRLS(kernel="rbf", gamma="median", n_basis=5).fit_stream([(X, y, qid)])
    assert RankRLS(kernel="rbf", gamma="median").fit(np.ones((4, 2)), [0, 1, 0, 1]).gamma_ == 0.5


@pytest.mark.parametrize("params", [{"degree": 2}, {"coef0": 2.0}])
def test_parameters_of_a_polynomial_may_stand_in_kernel_params(params) -> None:
    X, _, _ = data(11)
    kernel, beta = Kernel("poly", kernel_params=params), np.ones(5)
    found = expansion_gradient(kernel, X, X[:5], beta)
    assert np.allclose(
        found, finite_differences(lambda rows: kernel.matrix(rows, X[:5]) @ beta, X), atol=1e-5
    )


def test_the_width_of_a_rule_survives_pickling_and_goes_with_the_rule() -> None:
    import copy
    import pickle

    from preflearn.model_selection import HeldOut

    X, y, _ = data(12)
    held = HeldOut(RankRLS(kernel="rbf", gamma="median"), X, y)
    for other in (pickle.loads(pickle.dumps(held)), copy.deepcopy(held)):
        assert np.allclose(other.predict(3), held.predict(3))
    model = RankRLS(kernel="rbf", gamma="median").fit(X, y)
    assert not hasattr(model.set_params(gamma=0.1).fit(X, y), "gamma_")


def test_widths_that_are_none_are_refused() -> None:
    X, y, _ = data(13)
    for gamma in (-1.0, np.nan, np.inf):
        with pytest.raises(ValueError, match="must be a finite number that is not negative"):
            RankRLS(kernel="rbf", gamma=gamma).fit(X, y)
    with pytest.raises(ValueError, match="given as the argument gamma, not in kernel_params"):
        RankRLS(kernel="rbf", kernel_params={"gamma": "median"}).fit(X, y)
    with pytest.raises(ValueError, match="so small that the kernel is constant"):
        RankRLS(kernel="rbf", gamma=1e-14).fit(sp.csr_array(X), y)
    assert RankRLS(kernel="rbf", gamma="median").fit(sp.csr_matrix(X), y).gamma_ == pytest.approx(
        RankRLS(kernel="rbf", gamma="median").fit(X, y).gamma_
    )


@pytest.mark.parametrize("degree", [0, 1, 2])
def test_gradients_of_polynomials_of_low_degree_are_those_of_their_formula(degree: int) -> None:
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(12, 3)), rng.normal(size=12)
    model = RLS(0.5, kernel="poly", degree=degree, gamma=0.4, coef0=0.7).fit(X, y)
    Z, beta = model.basis_, model.dual_coef_
    weights = degree * 0.4 * (0.4 * X @ Z.T + 0.7) ** max(degree - 1, 0) * beta
    np.testing.assert_allclose(model.gradient(X), weights @ Z, atol=1e-12)
