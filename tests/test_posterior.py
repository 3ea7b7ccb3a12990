"""Standard deviations of scores and of their differences, against a Gaussian process with dense matrices."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
from scipy import sparse as sp

import oracles
from preflearn import RLS, RLSCV, RankRLS, RankRLSCV
from preflearn.model_selection import cross_val_predict


def problem(seed: int = 0, n_queries: int = 8, d: int = 3):
    rng = np.random.default_rng(seed)
    qid = np.repeat(np.arange(n_queries), rng.integers(3, 8, size=n_queries))
    X = rng.normal(size=(qid.shape[0], d))
    return X, X @ np.linspace(1, 0.2, d) + rng.normal(size=qid.shape[0]), qid, rng.normal(size=(6, d))


def dense_laplacian(qid, weighting="pair"):
    L = np.zeros((len(qid), len(qid)))
    for q in np.unique(qid):
        rows = np.flatnonzero(qid == q)
        block = len(rows) * np.eye(len(rows)) - 1.0
        L[np.ix_(rows, rows)] = block / (len(rows) if weighting == "item" else 1)
    return L


def noise_by_refitting(model, X, y, qid):
    residuals = y - cross_val_predict(model, X, y, qid=qid)
    spread = sum(((residuals[qid == q] - residuals[qid == q].mean()) ** 2).sum() for q in np.unique(qid))
    return spread / (len(y) - len(np.unique(qid)))


@pytest.mark.parametrize("weighting", ["pair", "item"])
@pytest.mark.parametrize("kernel", ["rbf", "linear", "laplacian"])
def test_deviations_are_those_of_a_gaussian_process(kernel, weighting) -> None:
    X, y, qid, new = problem(
        d=3 if kernel != "linear" else 60
    )  # more columns than rows: a regular linear kernel
    model = RankRLS(alpha=0.7, kernel=kernel, weighting=weighting)
    L = dense_laplacian(qid, weighting)
    every = np.concatenate([X, new])
    K = every @ every.T if kernel == "linear" else None
    if kernel == "rbf":
        K = oracles.rbf(every, every, 1 / 3)
    elif kernel == "laplacian":
        K = np.exp(-np.abs(every[:, None] - every[None]).sum(axis=2) / 3)
    cov = oracles.gaussian_process_variances(K, L, 0.7, len(X))[len(X) :, len(X) :]
    sigma2 = noise_by_refitting(model, X, y, qid) * np.trace(L @ L) / np.trace(L)
    scores, std = model.fit(X, y, qid=qid).predict(new, return_std=True)
    np.testing.assert_array_equal(scores, model.predict(new))
    np.testing.assert_allclose(std, np.sqrt(sigma2 * np.diag(cov)), rtol=0.15)  # tr L² is estimated
    np.testing.assert_allclose(std / std[0], np.sqrt(np.diag(cov) / cov[0, 0]), rtol=1e-6)
    found = model.difference_std(new[:3], new[3:])
    wanted = [cov[i, i] + cov[i + 3, i + 3] - 2 * cov[i, i + 3] for i in range(3)]
    np.testing.assert_allclose(found / std[0], np.sqrt(np.array(wanted) / cov[0, 0]), rtol=1e-6)


def test_linear_features_sparse_and_dense() -> None:
    X, y, qid, new = problem()
    model = RankRLS(alpha=2.0).fit(X, y, qid=qid)
    cov = np.linalg.inv(X.T @ dense_laplacian(qid) @ X + 2.0 * np.eye(3))
    _, std = model.predict(new, return_std=True)
    wanted = np.sqrt(np.einsum("ij,jk,ik->i", new, cov, new))
    np.testing.assert_allclose(std / std[0], wanted / wanted[0], rtol=1e-9)
    thin = RankRLS(alpha=2.0).fit(sp.csr_array(X), y, qid=qid)
    np.testing.assert_allclose(thin.predict(sp.csr_array(new), return_std=True)[1], std, rtol=1e-6)
    np.testing.assert_allclose(
        thin.difference_std(sp.csr_array(new[:3]), sp.csr_array(new[3:])),
        model.difference_std(new[:3], new[3:]), rtol=1e-6,
    )  # fmt: skip


def test_intercepts_searches_reduced_sets_and_outputs() -> None:
    X, y, qid, new = problem(n_queries=20)
    both = np.column_stack([y, 10 * y])
    model = RLS(alpha=0.5).fit(X, y)
    centred = X - X.mean(axis=0)
    cov = np.linalg.inv(centred.T @ centred + 0.5 * np.eye(3))
    d = new - X.mean(axis=0)
    wanted = np.sqrt(np.einsum("ij,jk,ik->i", d, cov, d) + 1 / len(X))
    std = model.predict(new, return_std=True)[1]
    np.testing.assert_allclose(std / std[0], wanted / wanted[0], rtol=1e-9)
    std = RLS(alpha=0.5).fit(X, both).predict(new, return_std=True)[1]
    np.testing.assert_allclose(std[:, 1], 10 * std[:, 0], rtol=1e-6)
    search = RankRLSCV(scoring="neg_mean_squared_error").fit(X, y, qid=qid)
    fixed = RankRLS(alpha=search.alpha_).fit(X, y, qid=qid)
    np.testing.assert_allclose(search.difference_std(new, X[:6]), fixed.difference_std(new, X[:6]), rtol=1e-9)
    with pytest.warns(UserWarning, match="chosen by the order of rows"):
        RankRLSCV().fit(X, y, qid=qid).difference_std(new, X[:6])
    whole = RankRLS(kernel="rbf").fit(X, y, qid=qid).predict(new, return_std=True)[1]
    reduced = (
        RankRLS(kernel="rbf", basis=np.arange(len(X))).fit(X, y, qid=qid).predict(new, return_std=True)[1]
    )
    np.testing.assert_allclose(reduced, whole, rtol=1e-6)
    assert RLSCV().fit(X, y).predict(new, return_std=True)[1].shape == (6,)


@pytest.mark.parametrize(("n_queries", "noise"), [(20, 1.0), (60, 3.0)])
def test_true_differences_are_covered(n_queries, noise) -> None:
    covered = []
    for seed in range(60):
        rng = np.random.default_rng(seed)
        qid = np.repeat(np.arange(n_queries), rng.choice([3, 5, 10], size=n_queries))
        X, w = rng.normal(size=(len(qid), 4)), rng.normal(size=4)
        model = RankRLS().fit(X, X @ w + noise * rng.normal(size=len(qid)), qid=qid)
        a, b = rng.normal(size=(2, 50, 4))
        error = model.predict(a) - model.predict(b) - (a - b) @ w
        covered.append(np.mean(np.abs(error) < 1.96 * model.difference_std(a, b)))
    assert 0.9 < np.mean(covered) < 0.985


def test_refusals() -> None:
    X, y, qid, new = problem()
    model = RankRLS().fit(X, y, qid=qid)
    for other in (pickle.loads(pickle.dumps(model)), copy.deepcopy(model)):
        np.testing.assert_array_equal(other.predict(new), model.predict(new))
        with pytest.raises(ValueError, match="Call fit on rows in memory"):
            other.predict(new, return_std=True)
    with pytest.raises(ValueError, match="Call fit on rows in memory"):
        RankRLS().partial_fit(X, y, qid=qid).predict(new, return_std=True)
    again = RankRLS().fit(X, y, qid=qid)
    again.predict(new, return_std=True)
    with pytest.raises(
        ValueError, match="Call fit on rows in memory"
    ):  # those of fit are not those of the stream
        again.fit_stream([(X, y, qid)]).predict(new, return_std=True)
    with pytest.raises(ValueError, match="cost='magnitude'"):
        RankRLS(cost="unit").fit(X, y, qid=qid).predict(new, return_std=True)
    with pytest.raises(ValueError, match="learned from preferences"):
        RankRLS().fit_pairs(X, [[0, 1], [2, 3]]).predict(new, return_std=True)
    with pytest.raises(ValueError, match="pass a kernel instead"):
        RankRLS(kernel="precomputed").fit(X @ X.T, y, qid=qid).predict(new @ X.T, return_std=True)
    with pytest.raises(ValueError, match="X_a has 6 rows and X_b 5"):
        model.difference_std(new, X[:5])
    X[0] += 1
    with pytest.raises(ValueError, match="changed since fit"):
        model.predict(new, return_std=True)


def test_rows_without_weight_do_not_count() -> None:
    """Weights of 0 and 1 are the rows with weight 1, whatever the others hold."""
    X, y, qid = problem(n_queries=16)[:3]
    kept = qid < 8
    wild = np.where(kept, y, 1000 * y)
    new = np.random.default_rng(1).normal(size=(4, X.shape[1]))
    found = RankRLS().fit(X, wild, qid=qid, sample_weight=kept.astype(float)).difference_std(new, X[:4])
    expected = RankRLS().fit(X[kept], y[kept], qid=qid[kept]).difference_std(new, X[:4])
    np.testing.assert_allclose(found, expected, rtol=0.05)  # the trace of L² is estimated
    _, found = RLS().fit(X, wild, sample_weight=kept.astype(float)).predict(new, return_std=True)
    _, expected = RLS().fit(X[kept], y[kept]).predict(new, return_std=True)
    np.testing.assert_allclose(found, expected, rtol=0.25)  # other folds tell the noise


def test_equal_weights_are_another_alpha() -> None:
    X, y = problem()[:2]
    new = np.random.default_rng(1).normal(size=(4, X.shape[1]))
    found = RLS(alpha=1.0).fit(X, y, sample_weight=np.full(len(y), 4.0)).predict(new, return_std=True)
    expected = RLS(alpha=0.25).fit(X, y).predict(new, return_std=True)
    np.testing.assert_allclose(found, expected, rtol=1e-6)


@pytest.mark.parametrize("n", [2, 5])
def test_a_few_rows_are_enough(n) -> None:
    X, y = problem()[:2]
    assert (RLS().fit(X[:n], y[:n]).predict(X[:3], return_std=True)[1] > 0).all()
    assert (RankRLS().fit(X[:n], y[:n]).difference_std(X[:1], X[1:2]) > 0).all()
    with pytest.raises(ValueError, match="trained on one row"):
        RLS().fit(X[:1], y[:1]).predict(X[:3], return_std=True)


@pytest.mark.parametrize("changed", ["X", "y", "qid", "sample_weight"])
def test_what_was_changed_since_fit_is_noticed(changed) -> None:
    X, y, qid = problem()[:3]
    given = {"X": X, "y": y, "qid": qid, "sample_weight": np.ones(len(y))}
    model = RankRLS().fit(**given)
    before = given[changed].copy()
    given[changed][:] = 7
    try:
        found = model.difference_std(np.ones((1, 3)), np.zeros((1, 3)))
    except ValueError as error:
        assert "changed since fit" in str(error)
    else:
        given[changed][:] = before  # copied by fit, which is as good
        expected = RankRLS().fit(**given).difference_std(np.ones((1, 3)), np.zeros((1, 3)))
        np.testing.assert_allclose(found, expected)
