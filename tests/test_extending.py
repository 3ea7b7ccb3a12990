"""Another package adds a kernel and a metric, each by one entry, and checks them with `preflearn.testing`."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from sklearn.metrics.pairwise import euclidean_distances

from preflearn import RankRFM, RankRLS, RankRLSCV, RankSVM
from preflearn.io import load_model, save_model, to_onnx
from preflearn.kernels import KernelFunction, NystromMap, register_kernel
from preflearn.kernels import registry as kernels
from preflearn.kernels.registry import kernel_names
from preflearn.metrics import get_scorer, ndcg, register_metric
from preflearn.metrics import registry as metrics
from preflearn.metrics.registry import scorer_names
from preflearn.model_selection import cross_val_predict, evaluate_scores
from preflearn.testing import check_kernel, check_metric, check_ranker

RANDOM = np.random.default_rng(0)
X, QID = RANDOM.normal(size=(60, 3)), np.repeat(np.arange(12), 5)
Y = np.round(np.sin(X[:, 0]) + X[:, 1] + 0.1 * RANDOM.normal(size=60), 1)


class Cauchy(KernelFunction):
    """1 / (1 + γ ‖x - z‖²)."""

    names = ("test-cauchy",)
    parameters = {"gamma": None}
    distance = "squared"

    def matrix(self, kernel, X, Z=None):
        return 1.0 / (1.0 + kernel.width(X.shape[1]) * euclidean_distances(X, Z, squared=True))

    def gradient(self, kernel, X, Z, K, beta):
        W = (-2.0 * kernel.width(X.shape[1])) * K**2 * beta
        return X * W.sum(axis=1)[:, None] - W @ Z


def best_on_top(grades: np.ndarray, k: int = 1) -> float:
    return float(grades[:k].max() == grades.max())


def regret(grades: np.ndarray) -> float:
    return float(grades.max() - grades[0])


@pytest.fixture(autouse=True, scope="module")
def registered() -> Iterator[None]:
    """The kernel and the metrics, known in the tests of this module alone."""
    global best_on_top, regret
    tables = (kernels._FUNCTIONS, metrics._ENTRIES, metrics._ALIASES)
    before = [dict(table) for table in tables]
    register_kernel(Cauchy)
    best_on_top = register_metric("test_best_on_top", limits=(0.0, 1.0))(best_on_top)
    regret = register_metric("test_regret", higher_is_better=False)(regret)
    yield
    for table, entries in zip(tables, before, strict=True):
        table.clear()
        table.update(entries)


def cauchy(x: np.ndarray, z: np.ndarray, gamma: float) -> float:
    return 1.0 / (1.0 + gamma * float((x - z) @ (x - z)))


@pytest.mark.parametrize("learner", [RankRLS, RankSVM])
def test_learners_take_the_kernel_like_any_other(learner) -> None:
    named = learner(kernel="test-cauchy", gamma=0.4).fit(X, Y, qid=QID)
    called = learner(kernel=cauchy, kernel_params={"gamma": 0.4}).fit(X, Y, qid=QID)
    np.testing.assert_allclose(named.predict(X), called.predict(X), atol=1e-6)


def test_kernel_is_checked_held_out_searched_and_learns_its_metric(tmp_path) -> None:
    check_kernel("test-cauchy", gamma=0.4)
    check_ranker(RankRLS(kernel="test-cauchy", gamma=0.4, alpha=0.1))
    search = RankRLSCV(kernel="test-cauchy", gamma="median", alphas=[0.1, 1.0]).fit(X, Y, qid=QID)
    save_model(search, tmp_path / "model")
    np.testing.assert_array_equal(load_model(tmp_path / "model").predict(X), search.predict(X))
    assert RankRFM(kernel="test-cauchy", max_rounds=1).fit(X, Y, qid=QID).metric_.shape == (3,)
    assert NystromMap("test-cauchy", n_basis=5).fit_transform(X).shape == (60, 5)


def test_what_the_kernel_lacks_is_refused_by_name() -> None:
    model = RankRLS(kernel="test-cauchy").fit(X, Y, qid=QID)
    with pytest.raises(ValueError, match="'test-cauchy' has no counterpart in ONNX"):
        to_onnx(model)
    with pytest.raises(ValueError, match="does not take degree"):
        RankRLS(kernel="test-cauchy", degree=2).fit(X, Y)
    with pytest.raises(ValueError, match="named 'rbf' already"):
        register_kernel(type("Again", (KernelFunction,), {"names": ("rbf",)}))
    with pytest.raises(ValueError, match="has no names"):
        register_kernel(type("Nameless", (KernelFunction,), {}))


@pytest.mark.parametrize(
    "kernel", [name for name in kernel_names() if "chi2" not in name and name != "sigmoid"]
)
def test_every_kernel_of_the_library_passes_the_check(kernel: str) -> None:
    check_kernel(kernel, **({} if kernel in ("linear", "cosine") else {"gamma": 0.3}))


@pytest.mark.parametrize("kernel", ["additive_chi2", "chi2"])
def test_check_of_a_kernel_notices_negative_eigenvalues(kernel: str) -> None:
    rows = np.random.default_rng(0).random((12, 3))
    if kernel == "chi2":
        return check_kernel(kernel, X=rows)
    with pytest.raises(AssertionError, match="negative eigenvalue"):
        check_kernel(kernel, X=rows)


def test_metric_is_known_wherever_metrics_are_named() -> None:
    expected = [
        float(Y[QID == q][np.argsort(-X[QID == q, 0])[:2]].max() == Y[QID == q].max()) for q in range(12)
    ]
    assert best_on_top(Y, X[:, 0], QID, k=2) == pytest.approx(np.mean(expected))
    np.testing.assert_array_equal(best_on_top(Y, X[:, 0], QID, k=2, per_query=True).values, expected)
    assert get_scorer("test_best_on_top@2").measure(Y, X[:, 0], QID) == pytest.approx(np.mean(expected))
    found = evaluate_scores(Y, X[:, 0], QID, metrics=["test_best_on_top@2", "test_regret"])
    assert [one.value for one in found.metrics] == pytest.approx(
        [np.mean(expected), -regret(Y, X[:, 0], QID)]
    )
    assert "test best on top@2" in str(found)
    search = RankRLSCV(scoring="test_regret", alphas=[0.1, 10.0]).fit(X, Y, qid=QID)
    held_out = cross_val_predict(RankRLS(search.alpha_), X, Y, qid=QID, cv="leave-query-out")
    assert search.best_score_ == pytest.approx(-regret(Y, held_out, QID))
    check_metric("test_best_on_top")
    check_metric("test_regret")


def test_metric_of_tied_scores_is_the_mean_over_random_orders() -> None:
    values = [best_on_top([1, 0, 0, 0], np.zeros(4)), best_on_top([1, 1, 1, 0], np.zeros(4))]
    np.testing.assert_allclose(values, [0.25, 0.75], atol=0.25)
    assert 0 < values[0] < values[1] < 1


def test_metric_of_undefined_queries_is_left_out_and_refused_where_none_is_left() -> None:
    @register_metric("test_undefined")
    def undefined(grades):
        return np.nan if grades.max() == 0 else 1.0

    assert undefined([0, 0, 1, 0], [1, 2, 3, 4], [1, 1, 2, 2]) == 1.0
    with pytest.raises(ValueError, match="test_undefined is not defined"):
        undefined([0, 0], [1, 2])


def test_names_of_metrics_that_are_taken_or_no_names_are_refused() -> None:
    for name in ("ndcg", "map", "r2"):
        with pytest.raises(ValueError, match="already"):
            register_metric(name)(lambda grades: 0.0)
    with pytest.raises(ValueError, match="small letters"):
        register_metric("Not A Name")(lambda grades: 0.0)
    with pytest.raises(TypeError, match="no option 'j'"):
        get_scorer("test_best_on_top", j=1)


@pytest.mark.parametrize(
    "metric", [name for name in scorer_names() if not name.startswith(("neg_m", "neg_r", "test"))]
)
def test_every_metric_of_the_library_passes_the_check(metric: str) -> None:
    if metric not in ("r2", "explained_variance", "mean_squared_pair_error"):  # of values, not of their order
        check_metric(metric)


def test_check_of_a_metric_notices_one_that_depends_on_the_values() -> None:
    assert ndcg([1, 0], [1, 0]) == 1.0
    with pytest.raises(AssertionError):
        check_metric("neg_mean_squared_error")


def test_check_of_a_ranker_notices_one_that_depends_on_the_order_of_rows() -> None:
    class FirstRow(RankRLS):
        def fit(self, X, y, **fit):
            return super().fit(X, y + 10 * (X == X[0]).all(axis=1), **fit)

    with pytest.raises(AssertionError):
        check_ranker(FirstRow())
