"""Sums of kernels: weights against a dense search, predictions against RankRLS and KroneckerRLS on the sum."""

from __future__ import annotations

import numpy as np
import pytest

from preflearn import RankRLS, RankRLSCV
from preflearn.io import load_model, save_model
from preflearn.learners.multiple_kernels import aligned_weights
from preflearn.multiple_kernels import MultipleKernelKroneckerRLS, MultipleKernelRankRLS
from preflearn.relations import KroneckerRLS

ALPHAS = [0.1, 1.0, 10.0]


def two_views(m=60):
    rng = np.random.default_rng(0)
    table, text, qid = rng.normal(size=(m, 3)), rng.normal(size=(m, 4)), np.repeat(np.arange(m // 10), 10)
    y = table @ [1.0, -1.0, 0.5] + 0.3 * np.sin(text[:, 0]) + 0.2 * rng.normal(size=m) + qid
    return {"table": table, "text": text}, y, qid


def scaled(K):
    n = K.shape[0]
    return K / ((np.trace(K) - K.sum() / n) / n)


@pytest.mark.parametrize("method", ["cv", "alignment", "equal"])
def test_the_model_is_rankrls_on_the_sum(method, tmp_path) -> None:
    X, y, qid = two_views()
    kernels = {"table": "linear", "text": ("rbf", {"gamma": 0.2})}
    model = MultipleKernelRankRLS(kernels, ALPHAS, weights=method).fit(X, y, qid=qid)
    assert sum(model.weights_.values()) == pytest.approx(1) and sum(model.shares_.values()) == pytest.approx(
        1
    )
    squares = ((X["text"][:, None] - X["text"][None]) ** 2).sum(axis=2)
    K = model.weights_["table"] * scaled(X["table"] @ X["table"].T)
    K = K + model.weights_["text"] * scaled(np.exp(-0.2 * squares))
    plain = RankRLS(model.alpha_, kernel="precomputed").fit(K, y, qid=qid)
    np.testing.assert_allclose(model.predict(X), plain.predict(K), atol=1e-8)
    assert model.shares_["table"] > model.shares_["text"]
    save_model(model, tmp_path / "model")
    np.testing.assert_allclose(load_model(tmp_path / "model").predict(X), model.predict(X))


def test_cross_validated_weights_are_not_worse_than_a_grid() -> None:
    X, y, qid = two_views()
    alphas = 10.0 ** np.arange(-2, 4)

    def pair_error(y, f, label):
        """A smooth measure: the squared error inside queries, apart from their level."""
        return -np.mean([np.var((y - f)[label == one]) for one in np.unique(label)])

    options = {"scoring": pair_error}
    model = MultipleKernelRankRLS({"table": "linear", "text": "linear"}, alphas, **options).fit(X, y, qid=qid)
    K, G = (scaled(view @ view.T) for view in X.values())
    grid = [
        RankRLSCV(alphas, kernel="precomputed", **options).fit(w * K + (1 - w) * G, y, qid=qid).best_score_
        for w in np.linspace(0, 1, 11)
    ]
    assert model.best_score_ >= max(grid) * (1 + 0.01)
    assert model.best_score_ >= max(grid[0], grid[5], grid[10])


def test_alignment_has_the_largest_cosine() -> None:
    rng = np.random.default_rng(3)
    centre = np.eye(12) - 1 / 12
    kernels = []
    for _ in range(3):
        Z = centre @ rng.normal(size=(12, 4))
        kernels.append(Z @ Z.T)
    F = centre @ rng.normal(size=(12, 2))
    stack = np.stack(kernels)

    def cosine(w):
        K = np.tensordot(w, stack, 1)
        return np.sum(K * (F @ F.T)) / np.linalg.norm(K)

    found = cosine(aligned_weights(stack, F))
    assert found >= max(cosine(w) for w in rng.dirichlet(np.ones(3), size=500)) - 1e-12


def test_sides_of_a_relation() -> None:
    rng = np.random.default_rng(0)
    shape, noise, targets = rng.normal(size=(20, 2)), rng.normal(size=(20, 3)), rng.normal(size=(15, 2))
    Y = shape @ rng.normal(size=(2, 2)) @ targets.T + 0.1 * rng.normal(size=(20, 15))
    for method in ("cv", "alignment"):
        model = MultipleKernelKroneckerRLS(
            ["linear", "linear"], ["linear"], ALPHAS, hold_out="rows", weights=method
        )
        model.fit([shape, noise], [targets], Y)
        assert model.row_weights_["0"] > 0.8 and model.column_weights_ == {"0": 1.0}
        K = model.row_weights_["0"] * scaled(shape @ shape.T) + model.row_weights_["1"] * scaled(
            noise @ noise.T
        )
        G = scaled(targets @ targets.T)
        plain = KroneckerRLS(model.alpha_, row_kernel="precomputed", column_kernel="precomputed").fit(K, G, Y)
        np.testing.assert_allclose(model.predict([shape, noise], [targets]), plain.predict(K, G), atol=1e-8)


def test_bad_input() -> None:
    X, y, qid = two_views()
    with pytest.raises(ValueError, match="weights must be one of"):
        MultipleKernelRankRLS({"table": "linear", "text": "linear"}, weights="best").fit(X, y, qid=qid)
    with pytest.raises(ValueError, match="Each kernel needs objects of its own"):
        MultipleKernelRankRLS({"table": "linear"}).fit(X, y, qid=qid)
    with pytest.raises(TypeError, match="must be a list or a dict"):
        MultipleKernelRankRLS(["linear"]).fit(X["table"], y, qid=qid)
    with pytest.raises(ValueError, match="the same for all objects"):
        MultipleKernelRankRLS(["linear"]).fit([np.ones((60, 1))], y, qid=qid)
    model = MultipleKernelRankRLS({"table": "linear", "text": "linear"}, ALPHAS, weights="equal").fit(
        X, y, qid=qid
    )
    with pytest.raises(ValueError, match="Expected objects for the kernels"):
        model.predict([X["table"], X["text"]])
