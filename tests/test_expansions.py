"""What a combination predicts: against the sum of its members, one kernel value after the other."""

from __future__ import annotations

import numpy as np
import pytest

from preflearn import AutoRanker, RankRFM, RankRLS
from preflearn.auto.features import combined_scores, scores_by_query
from preflearn.auto.kernels import KernelAndCurves
from preflearn.comparisons import encode_queries
from preflearn.io import load_model, save_model, to_onnx
from preflearn.kernels.functions import Kernel
from preflearn.learners.rankrfm import of_expansion

# Relative to the standard deviation of the scores: coefficients of a kernel cancel each other.
ROUNDING = 1e-9


def slowly(kernel: Kernel, rows: np.ndarray, basis: np.ndarray, beta: np.ndarray) -> np.ndarray:
    """Σ_j β_j exp(-γ |(x - z_j) S|²), difference by difference."""
    S = np.ones(rows.shape[1]) if kernel.metric is None else kernel.metric
    out = np.empty(rows.shape[0])
    for i, x in enumerate(rows):
        seen = (x - basis) * S if S.ndim == 1 else (x - basis) @ S
        out[i] = np.exp(-kernel.width(seen.shape[1]) * (seen**2).sum(axis=1)) @ beta
    return out


def learned(r: int, n: int, seed: int = 0, offset: float = 0.0) -> tuple[Kernel, np.ndarray, np.ndarray]:
    """An expansion whose coefficients are large and cancel each other, as training makes them."""
    rng = np.random.default_rng(seed)
    basis = rng.normal(size=(r, 6)) @ rng.normal(size=(6, n)) + 0.5 * rng.normal(size=(r, n)) + offset
    metric = np.sort(rng.uniform(0.05, 1.0, n))[::-1].copy()
    metric[-3:] = 0.0
    kernel = Kernel("rbf", "median", kernel_params={"metric": metric}).fitted_to(basis)
    y = np.tanh(basis[:, 0] - offset) + rng.normal(size=r)
    return kernel, basis, np.linalg.solve(kernel.matrix(basis) + 0.03 * np.eye(r), y)


def test_members_are_added_up_and_may_change():
    kernel, basis, beta = learned(1100, 70)
    member = of_expansion(kernel, basis, beta, alpha=1.0, best_round=1, n_queries=3)
    rows = np.tile(basis[:500], (3, 1)) + 0.01
    weights = np.array([0.5, 2.0])
    expected = 2.5 * member.predict(rows)
    for n in (1, 15, 17, 64, 100, 1500):
        found = combined_scores([member, member], [rows[:n], rows[:n]], weights)
        np.testing.assert_allclose(found, expected[:n], atol=ROUNDING * expected.std(), rtol=0)
    member.dual_coef_ = 2 * beta
    again = combined_scores([member], [rows[:50]], np.ones(1))
    np.testing.assert_allclose(again, member.predict(rows[:50]), atol=ROUNDING * expected.std(), rtol=0)


def test_other_kernels_are_evaluated_as_they_are():
    rng = np.random.default_rng(0)
    X, qid = rng.normal(size=(60, 4)), np.repeat(np.arange(6), 10)
    for options in ({"kernel": "laplacian"}, {"metric": "full"}):
        member = RankRFM(max_rounds=1, random_state=0, **options).fit(X, X[:, 0] * X[:, 1], qid=qid)
        np.testing.assert_allclose(combined_scores([member], [X], np.ones(1)), member.predict(X), atol=1e-9)


@pytest.fixture(scope="module")
def large():
    """An `AutoRanker` whose only member is a kernel with many basis vectors."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1100, 6)) @ rng.normal(size=(6, 35)) + 0.5 * rng.normal(size=(1100, 35))
    y, qid = np.tanh(X[:, 0]) * X[:, 1] + 0.1 * rng.normal(size=1100), np.arange(1100) // 11
    model = AutoRanker(time_limit=1e-6, random_state=0).fit(X, y, qid=qid)
    view = ("standardised", "relative")
    seen = model.features_.views(X, encode_queries(qid, 1100))[view]
    member = RankRLS(0.1, kernel="rbf", gamma="median", n_basis=1100, random_state=0).fit(seen, y, qid=qid)
    kernel = Kernel("rbf", member.gamma_)
    model.members_ = [of_expansion(kernel, seen, member.dual_coef_, alpha=0.1, best_round=0, n_queries=100)]
    model.views_, model.weights_, model.member_names_ = [view], np.array([1.0]), ["kernel"]
    return model, X, qid


def test_an_answer_does_not_depend_on_what_else_is_asked(large):
    model, X, qid = large
    scores = model.predict(X, qid=qid)
    spread = scores.std()
    seen = model.features_.views(X, encode_queries(qid, 1100))[model.views_[0]]
    exact = slowly(
        model.members_[0]._read_kernel(), seen, model.members_[0].basis_, model.members_[0].dual_coef_
    )
    np.testing.assert_allclose(scores, exact, atol=ROUNDING * spread, rtol=0)
    # Query by query, in another order, a query of one item, and numbers that come as float32 or in a list.
    alone = np.concatenate([model.predict(X[qid == q], qid=qid[qid == q]) for q in range(100)])
    order = np.random.default_rng(1).permutation(1100)
    for found in (alone, model.predict(X[order], qid=qid[order])[np.argsort(order)]):
        np.testing.assert_allclose(found, scores, atol=ROUNDING * spread, rtol=0)
    assert model.predict(X[:1], qid=[0]).shape == (1,)
    narrow = X.astype(np.float32)
    expected = model.predict(narrow.astype(np.float64), qid=qid)
    np.testing.assert_array_equal(model.predict(narrow, qid=qid), expected)
    np.testing.assert_array_equal(model.predict(np.asfortranarray(X), qid=qid), scores)
    np.testing.assert_array_equal(
        model.predict(X[:30].tolist(), qid=qid[:30]), model.predict(X[:30], qid=qid[:30])
    )
    for wrong in (
        X[:5, :-1],
        np.where(np.arange(35) == 3, np.nan, X[:5]),
        np.where(np.arange(35) == 3, np.inf, X[:5]),
    ):
        with pytest.raises(ValueError, match=r"features|NaN|infinity"):
            model.predict(wrong, qid=np.zeros(5))


@pytest.mark.parametrize("sizes", [[1] * 900, [3, 800, 1, 1, 600, 7] * 2, [2000, 1, 2], [513, 511, 1024]])
def test_many_rows_are_scored_by_whole_queries(sizes):
    """Each query once and as a whole, whatever the order of the rows; each in one call unless it is most of them."""
    qid = np.random.default_rng(0).permutation(np.repeat(np.arange(len(sizes)), sizes))
    rows = np.random.default_rng(1).normal(size=(qid.size, 2))

    def scores(X, queries):
        assert queries.n_groups == np.unique(queries.codes).size == queries.codes.max() + 1
        sums = np.bincount(queries.codes, weights=X[:, 0])
        return X[:, 1] + sums[queries.codes]

    for labels in (qid, np.sort(qid)):
        queries = encode_queries(labels, labels.size)
        np.testing.assert_allclose(scores_by_query(scores, rows, queries), scores(rows, queries), rtol=1e-9)


@pytest.mark.parametrize("m", [0, 1, 511, 512, 1200])
@pytest.mark.parametrize("shift", [0.0, 1e6])
def test_bumps_are_added_up_as_one_by_one(m, shift):
    rng = np.random.default_rng(m)
    X, features = rng.normal(size=(m, 5)), np.array([3, 0])
    X[:1, 3] = 1e30
    knots, widths, heights = rng.normal(size=(2, 4)), np.array([0.3, 2.0]), rng.normal(size=(2, 4))
    model = KernelAndCurves()
    model.feature_, model.knots_, model.widths_, model.coef_ = features, knots + shift, widths, heights
    expected = np.zeros(m)
    for j, k in np.ndindex(2, 4):
        u = (X[:, features[j]] + shift - model.knots_[j, k]) / widths[j]
        expected += heights[j, k] * np.exp(-0.5 * u * u)
    np.testing.assert_allclose(model.curve_scores(X + shift), expected, rtol=1e-9, atol=1e-9)


def test_saved_and_exported_models_answer_the_same(large, tmp_path):
    model, X, qid = large
    save_model(model, tmp_path / "large.preflearn")
    again = load_model(tmp_path / "large.preflearn")
    np.testing.assert_array_equal(again.predict(X, qid=qid), model.predict(X, qid=qid))
    runtime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    pytest.importorskip("skl2onnx", reason="the extra onnx is not installed")
    session = runtime.InferenceSession(to_onnx(model, one_query=True, check=X, qid=qid).SerializeToString())
    for query in range(5):
        rows = qid == query
        expected = model.predict(X[rows], qid=qid[rows])
        (found,) = session.run(None, {"X": X[rows]})
        np.testing.assert_allclose(found, expected, atol=ROUNDING * model.predict(X, qid=qid).std(), rtol=0)
