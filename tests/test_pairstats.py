"""Statistics over violating pairs against adding the pairs up one by one."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oracles import untied_pairs, violation_statistics
from preflearn.comparisons.grouping import encode_queries, one_group
from preflearn.losses import pairs as losses
from preflearn.losses.pairs import ListedPairs, RoundedHinge, ScoredPairs, SquaredHinge, hinge, squared_hinge


def check_statistics(pairs, listed, p, v, margin=1.0):
    found = pairs.violations(p, margin=margin)
    c, d, product = violation_statistics(listed, p, v, margin)
    if pairs.__class__ is ScoredPairs and pairs._weight.size == 0:
        np.testing.assert_array_equal(found.worse, c)
        np.testing.assert_array_equal(found.better, d)
    # With weights of rows the counts are running sums, and what leaves one again leaves a rounding error.
    of_rows = getattr(pairs, "_row_weights", None) is not None
    atol = 1e-14 * p.shape[0] * listed[2].max(initial=0.0) if of_rows else 0.0
    np.testing.assert_allclose(found.worse, c, rtol=1e-12, atol=atol)
    np.testing.assert_allclose(found.better, d, rtol=1e-12, atol=atol)
    assert (found.worse >= 0).all() and (found.better >= 0).all()
    size = 1e-12 * max(1.0, listed[2].max(initial=0.0))
    scale = size * (1.0 + np.abs(v).sum() + p.shape[0] * np.abs(v).max(initial=0.0))
    np.testing.assert_allclose(found.laplacian(v), product, rtol=1e-12, atol=scale)
    scale = size * (1.0 + np.abs(p).sum() + p.shape[0] * np.abs(p).max(initial=0.0))
    expected = violation_statistics(listed, p, p, margin)[2]
    np.testing.assert_allclose(found.laplacian(p), expected, rtol=1e-12, atol=scale)
    # A copy of p is another vector: the sums of v are taken, not the product made along with the counts.
    np.testing.assert_allclose(found.laplacian(p.copy()), expected, rtol=1e-12, atol=scale)


@st.composite
def scored_problems(draw, max_rows):
    m = draw(st.integers(1, max_rows))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    n_scores = draw(st.sampled_from([1, 2, 3, 7, 50, 10**6]))
    y = rng.integers(0, n_scores, m).astype(float)
    if draw(st.booleans()):
        y[rng.random(m) < 0.6] = 0.0  # one large tie among many scores
    spread = draw(st.sampled_from([0.0, 0.5, 3.0, 100.0, 1e18]))
    p = spread * rng.standard_normal(m)
    if draw(st.booleans()):
        p = np.round(p)  # ties in the predictions, also at exactly the margin
    if draw(st.booleans()):
        p = p + draw(st.sampled_from([1e-13, 1e9])) * rng.standard_normal(m)
    qid = rng.integers(0, draw(st.integers(1, max(1, m))), m)
    return y, qid, p, rng.standard_normal(m)


@st.composite
def row_weights(draw):
    """None, or a function that draws weights for a number of rows, some of them 0."""
    if draw(st.booleans()):
        return lambda m: None
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    zeros = draw(st.sampled_from([0.0, 0.3, 1.0]))
    return lambda m: rng.uniform(0.1, 4.0, m) * (rng.random(m) >= zeros)


@given(
    scored_problems(120),
    st.sampled_from(["pair", "item", "query"]),
    st.sampled_from([1.0, 0.3, 0.0]),
    row_weights(),
)
def test_statistics_of_scored_pairs(problem, weighting, margin, weights_of):
    y, qid, p, v = problem
    w = weights_of(len(y))
    pairs = ScoredPairs(y, encode_queries(qid, len(y)), weighting, row_weights=w)
    listed = untied_pairs(y, qid, weighting, w)
    assert pairs.n_pairs == len(listed[0])
    check_statistics(pairs, listed, p, v, margin)


@given(
    scored_problems(600),
    row_weights(),
    st.integers(1, 3),
    st.sampled_from([6, 7, 31, 32, 33, 64, 1024]),
    st.sampled_from([16, 300]),
)
def test_trees_of_any_fanout_shared_by_threads(problem, weights_of, n_threads, fanout, piece):
    """Few children make deep trees; small pieces make the threads share queries and subtrees."""
    y, qid, p, v = problem
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(losses, "_FANOUT", fanout)
        patch.setattr(losses, "_PIECE", piece)
        w = weights_of(len(y))
        pairs = ScoredPairs(y, encode_queries(qid, len(y)), n_threads=n_threads, row_weights=w)
        check_statistics(pairs, untied_pairs(y, qid, row_weights=w), p, v)
        counts = pairs.counts(p)
        np.testing.assert_array_equal(counts[0], pairs.violations(p).worse)
        np.testing.assert_array_equal(counts[1], pairs.violations(p).better)


@pytest.mark.parametrize("n_scores", [1023, 1024, 1025, 3000])
@pytest.mark.parametrize("n_threads", [1, 2])
def test_around_the_widest_node(n_scores, n_threads):
    """Up to 1024 distinct scores are the children of one leaf; one more makes a second level."""
    rng = np.random.default_rng(n_scores)
    m = 3000
    y = rng.permutation(np.arange(m) % n_scores).astype(float)
    p, v = np.round(1e-3 * y + rng.standard_normal(m), 2), rng.standard_normal(m)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(losses, "_PIECE", 100)
        pairs = ScoredPairs(y, one_group(m), n_threads=n_threads)
        assert pairs._children.shape[0] == (1 if n_scores <= 1024 else 2)
        violated = (y[:, None] < y) & (p[None, :] < p[:, None] + 1.0)
        found = pairs.violations(p)
        np.testing.assert_array_equal(found.worse, violated.sum(axis=1))
        np.testing.assert_array_equal(found.better, violated.sum(axis=0))
        expected = (found.worse + found.better) * v - violated @ v - violated.T @ v
        np.testing.assert_allclose(found.laplacian(v), expected, rtol=1e-10, atol=1e-8)


def test_predictions_that_differ_only_in_their_last_bits():
    rng = np.random.default_rng(1)
    m = 300
    y = rng.standard_normal(m)
    p = 1e9 * (1.0 + np.finfo(float).eps * rng.integers(0, 2**18, m))
    pairs = ScoredPairs(y, one_group(m))
    check_statistics(pairs, untied_pairs(y, np.zeros(m)), p, rng.standard_normal(m), margin=1e-4)


def test_signed_zeros_are_tied():
    y, p = np.array([0.0, 1.0, 2.0]), np.array([0.0, -0.0, 0.0])
    found = ScoredPairs(y, one_group(3)).violations(p, margin=0.0)
    assert found.worse.sum() == 0


def test_an_older_point_can_still_be_asked():
    rng = np.random.default_rng(2)
    y, p, other, v = rng.standard_normal((4, 50))
    pairs = ScoredPairs(y, one_group(50))
    first = pairs.violations(p)
    expected = first.laplacian(v)
    pairs.violations(other).laplacian(v)
    np.testing.assert_allclose(first.laplacian(v), expected, rtol=1e-12)


@given(st.integers(0, 2**32 - 1), st.booleans())
def test_statistics_of_listed_pairs(seed, weighted):
    rng = np.random.default_rng(seed)
    m, n_pairs = rng.integers(2, 12), rng.integers(1, 40)
    better = rng.integers(0, m, n_pairs)
    worse = (better + rng.integers(1, m, n_pairs)) % m
    weight = rng.random(n_pairs) if weighted else None
    pairs = ListedPairs(m, np.stack([better, worse], axis=1), weight)
    p, v = rng.standard_normal((2, m))
    check_statistics(pairs, (worse, better, np.ones(n_pairs) if weight is None else weight), p, v)


@given(scored_problems(40), row_weights())
def test_losses_and_gradients(problem, weights_of):
    y, qid, p, _ = problem
    p, w = np.clip(p, -1e4, 1e4), weights_of(len(y))
    pairs = ScoredPairs(y, encode_queries(qid, len(y)), "item", row_weights=w)
    worse, better, weight = untied_pairs(y, qid, "item", w)
    slack = np.maximum(1.0 - p[better] + p[worse], 0.0)
    scale = 1e-12 * (1.0 + weight @ (1.0 + np.abs(p[better]) + np.abs(p[worse])) ** 2)
    value, _ = hinge(pairs.violations(p))
    assert value == pytest.approx(weight @ slack, rel=1e-9, abs=scale)
    value, gradient = squared_hinge(pairs.violations(p))
    assert value == pytest.approx(weight @ slack**2, rel=1e-9, abs=scale)
    expected = np.bincount(worse, 2 * weight * slack, len(y)) - np.bincount(
        better, 2 * weight * slack, len(y)
    )
    np.testing.assert_allclose(gradient, expected, rtol=1e-9, atol=scale)


@given(scored_problems(40), row_weights(), st.sampled_from([1.0, 0.2, 1e-3]))
def test_rounded_hinge(problem, weights_of, width):
    y, qid, p, v = problem
    p, w = np.clip(p, -100, 100), weights_of(len(y))
    pairs = ScoredPairs(y, encode_queries(qid, len(y)), row_weights=w)
    worse, better, weight = untied_pairs(y, qid, row_weights=w)
    slack = 1.0 - p[better] + p[worse]
    slope = np.clip(slack / width, 0.0, 1.0)
    rounded = np.where(slack < width, slope * slack / 2, slack - width / 2)
    found = RoundedHinge(pairs, p, width)
    atol = 1e-9 * (1.0 + weight @ np.abs(slack)) / width
    assert found.value == pytest.approx(weight @ rounded, rel=1e-9, abs=atol)
    assert found.hinge == pytest.approx(weight @ np.maximum(slack, 0), rel=1e-9, abs=atol)
    assert found.slopes == pytest.approx(weight @ slope, rel=1e-9, abs=atol)
    expected = np.bincount(worse, weight * slope, len(y)) - np.bincount(better, weight * slope, len(y))
    np.testing.assert_allclose(found.gradient, expected, rtol=1e-8, atol=atol)
    outer = violation_statistics((worse, better, weight), p, v)[2]
    inner = violation_statistics((worse, better, weight), p, v, 1.0 - width)[2]
    np.testing.assert_allclose(found.curvature(v), (outer - inner) / width, rtol=1e-8, atol=atol)


def test_curvature_is_the_derivative_of_the_gradient():
    rng = np.random.default_rng(3)
    y, p, v = rng.standard_normal((3, 30))
    pairs = ScoredPairs(y, one_group(30))
    step = 1e-6
    for loss_at in (lambda q: SquaredHinge(pairs, q), lambda q: RoundedHinge(pairs, q, 0.5)):
        change = (loss_at(p + step * v).gradient - loss_at(p - step * v).gradient) / (2 * step)
        loss = loss_at(p)
        np.testing.assert_allclose(loss.curvature(v), change, rtol=1e-5, atol=1e-5)
        diagonal = [loss.curvature(one)[k] for k, one in enumerate(np.eye(30))]
        np.testing.assert_allclose(loss.degrees, diagonal, rtol=1e-12, atol=1e-12)


def test_rows_that_make_no_pair():
    """Queries of one row or of tied scores count nothing, between others and when there is nothing else."""
    y, qid = np.array([1.0, 2.0, 2.0, 7.0, 0.0]), np.array([0, 1, 1, 2, 0])
    found = ScoredPairs(y, encode_queries(qid, 5)).violations(np.arange(5.0))
    np.testing.assert_array_equal(found.worse, [0, 0, 0, 0, 1])
    np.testing.assert_array_equal(found.laplacian(np.ones(5)), np.zeros(5))
    for groups in (one_group(3), encode_queries([0, 1, 2], 3)):
        pairs = ScoredPairs(np.ones(3), groups)
        assert pairs.n_pairs == 0
        assert not pairs.violations(np.arange(3.0)).worse.any()


def test_unknown_weighting_is_refused():
    with pytest.raises(ValueError, match="weighting must be"):
        ScoredPairs(np.arange(3.0), one_group(3), "rows")


@given(st.integers(1, 1024), st.sampled_from([np.int32, np.float64]), st.integers(0, 2**32 - 1))
def test_lanes_are_sums_over_the_children_before_and_after(n_children, dtype, seed):
    from preflearn.losses import _loops as lanes

    rng = np.random.default_rng(seed)
    totals = rng.integers(-50, 50, n_children).astype(dtype)
    before, after, zero = (lanes.new_lanes(totals) for _ in range(3))
    for array in (before, after, zero):
        array[:] = 99  # left over from another node
        assert array.ctypes.data % 64 == 0
    lanes.fill_before(before, totals, n_children)
    lanes.clear(zero, n_children)
    lanes.clear(after, n_children)
    for child, total in enumerate(totals):
        lanes.add_before(after, child, n_children, total)
    for child in rng.integers(0, n_children, 20).astype(np.uint32):
        value = totals.dtype.type(rng.integers(1, 9))
        lanes.add_after(before, child, n_children, value)
        lanes.add_before(after, child, n_children, value)
        totals[child] += value

    def read(array):
        return [lanes.look_up(array, np.uint32(child)) for child in range(n_children)]

    np.testing.assert_array_equal(read(before), np.cumsum(totals) - totals)
    np.testing.assert_array_equal(read(after), np.cumsum(totals[::-1])[::-1] - totals)
    assert not np.any(read(zero))
