"""RBF expansions that are prepared once: against the sum of kernel values, in double and partly in single precision."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from preflearn import AutoRanker, RankRFM, RankRLS
from preflearn.auto.prediction import TOLERANCE, combined_scores, scores_by_query
from preflearn.comparisons import encode_queries
from preflearn.io import load_model, save_model, to_onnx
from preflearn.kernels._loops.expansions import PackedExpansion, add_up_bumps, packed
from preflearn.kernels.expansions import RbfExpansion
from preflearn.kernels.functions import Kernel
from preflearn.learners.rankrfm import of_expansion
from preflearn.squared.curves import Curves
from strategies import examples


def slowly(kernel: Kernel, rows: np.ndarray, basis: np.ndarray, beta: np.ndarray) -> np.ndarray:
    """Σ_j β_j exp(-γ |(x - z_j) S|²), difference by difference."""
    S = np.ones(rows.shape[1]) if kernel.metric is None else kernel.metric
    out = np.empty(rows.shape[0])
    for i, x in enumerate(rows):
        seen = (x - basis) * S if S.ndim == 1 else (x - basis) @ S
        out[i] = np.exp(-kernel.width(seen.shape[1]) * (seen**2).sum(axis=1)) @ beta
    return out


def test_exponentials_are_those_of_numpy():
    t = np.concatenate(
        [np.linspace(-60.0, 0.0, 40_001), np.linspace(-1e-3, 0.0, 101), [-699.0, -1e300, -np.inf]]
    )
    for n_single, error in ((0, 1e-14), (1, 6e-11)):
        exponential = of_first_coordinate(n_single)
        found = exponential(np.stack([t, np.zeros(t.size)][: 1 + n_single], axis=1))
        np.testing.assert_allclose(found, np.exp(t), rtol=error, atol=1e-300)
        # Rounding must not make a kernel value of more than 1.
        assert exponential(np.full((1, 2), 1e-3))[0] == exponential(np.zeros((1, 2)))[0]
    assert of_first_coordinate(0)(np.full((1, 1), 1e-3))[0] == 1.0


def of_first_coordinate(n_single: int) -> PackedExpansion:
    """exp(min(0, x)) of the first coordinate x of a row, with others in single precision that do not count."""
    n, rest = 1 + n_single, np.zeros((n_single, 1), np.float32)
    leading = np.array([[1.0], [0.0], [0.0]])
    columns = (np.arange(n), np.zeros(n), np.ones(n), None, n)
    return PackedExpansion(*columns, packed(leading), packed(rest), packed(np.ones((1, 1)))[:, 0], 1e10)


@examples(40)
@given(
    seed=st.integers(0, 2**32 - 1),
    m=st.integers(1, 90),
    r=st.integers(1, 70),
    n=st.integers(1, 12),
    metric=st.sampled_from(["none", "diagonal", "some zero", "full"]),
    scale=st.sampled_from([1e-150, 1e-9, 1.0, 1e12, 1e150]),
    offset=st.sampled_from([0.0, 1e4]),
)
def test_double_precision_is_that_of_the_sum(seed, m, r, n, metric, scale, offset):
    rng = np.random.default_rng(seed)
    S = {
        "none": None,
        "diagonal": rng.uniform(0.1, 1.0, n),
        "some zero": np.where(rng.random(n) < 0.5, 0.0, 1.0) if n > 1 else np.ones(1),
        "full": rng.normal(size=(n, max(1, n - 1))),
    }[metric]
    if S is not None and not S.any():
        S[0] = 1.0
    basis, rows = (rng.normal(size=(size, n)) + offset for size in (r, m))
    rows[0] = basis[0]
    kernel = Kernel("rbf", 0.3 / scale**2, kernel_params=None if S is None else {"metric": S})
    beta = rng.normal(size=r)
    found = RbfExpansion(kernel, scale * basis, beta)(scale * rows)
    plain = Kernel("rbf", 0.3, kernel_params=kernel.kernel_params)
    bound = 1e-11 * np.abs(beta).sum() * max(1.0, offset * 1e-1)
    np.testing.assert_allclose(found, slowly(plain, rows, basis, beta), atol=bound, rtol=0)


def learned(r: int, n: int, seed: int = 0, offset: float = 0.0) -> tuple[Kernel, np.ndarray, np.ndarray]:
    """An expansion whose coefficients are large and cancel each other, as training makes them."""
    rng = np.random.default_rng(seed)
    basis = rng.normal(size=(r, 6)) @ rng.normal(size=(6, n)) + 0.5 * rng.normal(size=(r, n)) + offset
    metric = np.sort(rng.uniform(0.05, 1.0, n))[::-1].copy()
    metric[-3:] = 0.0
    kernel = Kernel("rbf", "median", kernel_params={"metric": metric}).fitted_to(basis)
    y = np.tanh(basis[:, 0] - offset) + rng.normal(size=r)
    return kernel, basis, np.linalg.solve(kernel.matrix(basis) + 0.03 * np.eye(r), y)


@pytest.mark.parametrize("offset", [0.0, 1e3])
@pytest.mark.parametrize("shape", [(1100, 70), (2000, 40)])
def test_single_precision_is_used_where_it_keeps_the_tolerance(shape, offset):
    kernel, basis, beta = learned(*shape, offset=offset)
    rows = np.concatenate(
        [basis[:300], basis[:300] + 0.3 * np.random.default_rng(1).normal(size=(300, shape[1]))]
    )
    exact = slowly(kernel, rows, basis, beta)
    # Otherwise there would be nothing to cancel.
    assert np.linalg.norm(beta) > 20 * exact.std()
    exact_to_rounding = RbfExpansion(kernel, basis, beta)
    assert exact_to_rounding.n_leading is None
    np.testing.assert_allclose(exact_to_rounding(rows), exact, atol=1e-10 * exact.std(), rtol=0)
    numbers = []
    for tolerance in (1e-5, TOLERANCE, 5e-7):
        mixed = RbfExpansion(kernel, basis, beta, tolerance)
        assert mixed.n_leading is not None
        numbers.append(mixed.n_leading)
        error = np.abs(mixed(rows) - exact).max()
        assert error < 2 * tolerance * exact.std()
    assert 1 <= numbers[0] < numbers[1] < numbers[2] < shape[1]


def test_all_is_in_double_precision_where_single_precision_loses_too_much_or_gains_little():
    kernel, basis, beta = learned(1100, 70)
    assert RbfExpansion(kernel, basis, beta, 1e-12).n_leading is None
    # Coefficients that leave next to nothing of each other: rows and their slightly moved copies.
    twice = np.concatenate([basis[:550], basis[:550] + 1e-7])
    opposed = np.concatenate([beta[:550], -beta[:550]])
    assert RbfExpansion(kernel, twice, opposed, TOLERANCE).n_leading is None
    assert (RbfExpansion(kernel, basis, np.zeros(1100), TOLERANCE)(basis[:9]) == 0).all()
    for few in ((200, 70), (1100, 40)):
        assert RbfExpansion(*learned(*few), 1e-3).n_leading is None


def test_quick_exponentials_are_not_used_where_coefficients_cancel():
    """Each is off by up to 6e-11, which a sum of terms 10⁷ times its own spread blows up."""
    rng = np.random.default_rng(0)
    basis = rng.normal(size=(1100, 70)) * np.r_[np.ones(2), np.full(68, 1e-9)]
    kernel = Kernel("rbf", gamma=0.1)
    beta = np.linalg.solve(kernel.matrix(basis) + 1e-9 * np.eye(1100), np.sin(3 * basis[:, 0] * basis[:, 1]))
    in_double = RbfExpansion(kernel, basis, beta)(basis)
    assert np.abs(beta).sum() > 1e6 * in_double.std()
    found = RbfExpansion(kernel, basis, beta, TOLERANCE)(basis)
    assert np.abs(found - in_double).max() < 2 * TOLERANCE * in_double.std()


@pytest.mark.parametrize("tolerance", [0.0, 1e-5])
def test_rows_far_away_score_nothing_and_disturb_nobody(tolerance):
    kernel, basis, beta = learned(1100, 70)
    f = RbfExpansion(kernel, basis, beta, tolerance)
    rows = basis[:40].copy()
    alone = f(rows)
    rows[3], rows[5, 2], rows[7] = 1e37, -1e300, np.where(np.arange(70) % 2, 1e308, -1e308)
    with np.errstate(all="raise"):
        found = f(rows)
    assert (found[[3, 5, 7]] == 0).all()
    others = np.setdiff1d(np.arange(40), [3, 5, 7])
    np.testing.assert_allclose(found[others], alone[others], atol=1e-9 * np.abs(alone).max(), rtol=0)


@pytest.mark.parametrize("tolerance", [0.0, 1e-5])
def test_rows_score_the_same_whatever_else_is_asked(tolerance):
    kernel, basis, beta = learned(1100, 70)
    f, rows = RbfExpansion(kernel, basis, beta, tolerance), basis[:333]
    expected = f(rows)
    for n in (1, 5, 6, 7, 95, 96, 97, 200):
        parts = [f(rows[k : k + n]) for k in range(0, 333, n)]
        np.testing.assert_array_equal(np.concatenate(parts), expected)
    np.testing.assert_array_equal(f(np.asfortranarray(rows)), expected)
    assert f(rows[:0]).shape == (0,)


def test_members_are_added_up_in_threads_and_prepared_again_when_they_change():
    kernel, basis, beta = learned(1100, 70)
    member = of_expansion(kernel, basis, beta, alpha=1.0, best_round=1, n_queries=3)
    rows = np.tile(basis[:500], (3, 1)) + 0.01
    weights = np.array([0.5, 2.0])
    expected = 2.5 * member.predict(rows)
    for n in (1, 15, 17, 64, 100, 1500):
        found = combined_scores([member, member], [rows[:n], rows[:n]], weights)
        np.testing.assert_allclose(found, expected[:n], atol=2.5 * TOLERANCE * expected.std(), rtol=0)
    member.dual_coef_ = 2 * beta
    again = combined_scores([member], [rows[:50]], np.ones(1))
    np.testing.assert_allclose(again, member.predict(rows[:50]), atol=3 * TOLERANCE * expected.std(), rtol=0)


def test_other_kernels_are_evaluated_as_they_are():
    rng = np.random.default_rng(0)
    X, qid = rng.normal(size=(60, 4)), np.repeat(np.arange(6), 10)
    for options in ({"kernel": "laplacian"}, {"metric": "full"}):
        member = RankRFM(max_rounds=1, random_state=0, **options).fit(X, X[:, 0] * X[:, 1], qid=qid)
        np.testing.assert_allclose(combined_scores([member], [X], np.ones(1)), member.predict(X), atol=1e-9)


@pytest.fixture(scope="module")
def large():
    """An `AutoRanker` whose only member is a kernel that is evaluated partly in single precision."""
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
    prepared = RbfExpansion(kernel, seen, member.dual_coef_, TOLERANCE)
    assert prepared.n_leading is not None
    return model, X, qid


def test_an_answer_does_not_depend_on_what_else_is_asked(large):
    model, X, qid = large
    scores = model.predict(X, qid=qid)
    spread = scores.std()
    seen = model.features_.views(X, encode_queries(qid, 1100))[model.views_[0]]
    exact = slowly(
        model.members_[0]._read_kernel(), seen, model.members_[0].basis_, model.members_[0].dual_coef_
    )
    np.testing.assert_allclose(scores, exact, atol=2 * TOLERANCE * spread, rtol=0)
    # Query by query, in another order, a query of one item, and numbers that come as float32 or in a list.
    alone = np.concatenate([model.predict(X[qid == q], qid=qid[qid == q]) for q in range(100)])
    order = np.random.default_rng(1).permutation(1100)
    for found in (alone, model.predict(X[order], qid=qid[order])[np.argsort(order)]):
        np.testing.assert_allclose(found, scores, atol=2 * TOLERANCE * spread, rtol=0)
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


@pytest.mark.parametrize("m", [1, 63, 64, 65, 200])
@pytest.mark.parametrize("shift", [0.0, 1e6])
def test_bumps_are_added_up_as_one_by_one(m, shift):
    rng = np.random.default_rng(m)
    X, features = rng.normal(size=(m, 5)), np.array([3, 0])
    X[0, 3] = 1e30
    knots, widths, heights = rng.normal(size=(2, 4)), np.array([0.3, 2.0]), rng.normal(size=(2, 4))
    curves = Curves(features, knots + shift, widths, np.ones(2))
    found = add_up_bumps(X + shift, features, knots + shift, widths, heights)
    np.testing.assert_allclose(found, curves.values(X + shift) @ heights.ravel(), rtol=1e-12, atol=1e-13)


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
        np.testing.assert_allclose(
            found, expected, atol=2 * TOLERANCE * model.predict(X, qid=qid).std(), rtol=0
        )


def test_basis_vectors_far_out_count_in_the_error():
    """Rows on rare outliers, which a sample of the basis vectors would miss, are as exact as the others."""
    rng = np.random.default_rng(0)
    basis = rng.normal(size=(1500, 60))
    basis[rng.random(basis.shape) < 0.0005] *= 1000.0
    kernel, beta = Kernel("rbf", 1 / 120), rng.normal(size=1500)
    exact, found = (RbfExpansion(kernel, basis, beta, tolerance)(basis) for tolerance in (0.0, TOLERANCE))
    assert np.abs(found - exact).max() < 5 * TOLERANCE * exact.std()
