"""Comparisons against explicit lists of pairs."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import oracles
from preflearn.comparisons import (
    PointwiseComparisons,
    PreferenceComparisons,
    QueryComparisons,
    compare_scores,
    encode_queries,
    one_group,
)
from preflearn.testing import check_comparisons, check_drop
from strategies import ranking_problems

COSTS = st.sampled_from(["magnitude", "unit", "relative"])
TIES = st.sampled_from(["include", "exclude"])
WEIGHTINGS = st.sampled_from(["pair", "item", "query"])


def build(problem, cost, ties, weighting):
    queries = encode_queries(problem.qid, len(problem.y))
    return compare_scores(problem.y[:, None], queries, cost=cost, ties=ties, weighting=weighting)


@given(ranking_problems(), COSTS, TIES, WEIGHTINGS)
def test_scores_in_queries_equal_the_sum_over_pairs(problem, cost, ties, weighting):
    comparisons = build(problem, cost, ties, weighting)
    L, b = oracles.dense_comparisons(problem.y, problem.qid, cost=cost, ties=ties, weighting=weighting)
    check_comparisons(comparisons, L, b)
    assert comparisons.n_comparisons == len(
        oracles.counted_pairs(problem.y, problem.qid, cost=cost, ties=ties)
    )


@given(ranking_problems(min_rows=4), COSTS, TIES, st.sampled_from(["pair", "item"]), st.data())
def test_dropping_rows_equals_training_on_the_rest(problem, cost, ties, weighting, data):
    comparisons = build(problem, cost, ties, weighting)
    m = len(problem.y)
    rows = data.draw(st.lists(st.integers(0, m - 1), min_size=1, max_size=m - 1, unique=True))
    check_drop(comparisons, np.array(rows))


@given(ranking_problems(min_rows=4), COSTS, TIES)
def test_dropping_whole_queries_under_query_weighting(problem, cost, ties):
    comparisons = build(problem, cost, ties, "query")
    queries = encode_queries(problem.qid, len(problem.y))
    if queries.n_groups > 1:
        check_drop(comparisons, queries.rows(1))


@given(ranking_problems(min_rows=5), st.sampled_from(["pair", "item", "query"]), st.data())
def test_dropping_rows_of_a_global_ranking(problem, weighting, data):
    m = len(problem.y)
    scores = np.stack([problem.y, problem.y**2], axis=1)
    comparisons = QueryComparisons(scores, one_group(m), weighting=weighting)
    rows = data.draw(st.lists(st.integers(0, m - 1), min_size=1, max_size=m - 3, unique=True))
    check_drop(comparisons, np.array(rows))


def test_part_of_a_query_under_query_weighting_is_refused():
    queries = encode_queries([0, 0, 0, 1, 1], 5)
    comparisons = compare_scores(np.arange(5.0)[:, None], queries, weighting="query")
    with pytest.raises(ValueError, match="whole queries together"):
        comparisons.drop(np.array([0]))


def test_everything_out_of_a_global_ranking_is_refused():
    with pytest.raises(ValueError, match="nothing is left"):
        compare_scores(np.arange(3.0)[:, None], one_group(3)).drop(np.arange(3))


@given(st.integers(2, 12), st.data())
def test_preferences_equal_the_sum_over_edges(m, data):
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    pairs = np.array([rng.choice(m, size=2, replace=False) for _ in range(data.draw(st.integers(1, 20)))])
    magnitude, weight = rng.normal(size=len(pairs)), rng.uniform(0, 2, size=len(pairs))
    comparisons = PreferenceComparisons(m, pairs, magnitude, weight)
    check_comparisons(comparisons, *oracles.dense_preferences(m, pairs, magnitude, weight))
    M = comparisons.incidence().toarray()
    np.testing.assert_allclose(M @ M.T, comparisons.to_dense(), atol=1e-12)
    check_drop(comparisons, np.array([int(rng.integers(m))]))


def test_dropping_preferences_takes_their_edges_away():
    pairs = np.array([[0, 1], [1, 2], [0, 2], [0, 1]])
    everything = PreferenceComparisons(
        3, pairs, np.array([1.0, 2.0, 3.0, 4.0]), np.array([1.0, 2.0, 0.5, 3.0])
    )
    removal = everything.drop_preferences(np.array([1, 3]))
    rest = PreferenceComparisons(3, pairs[[0, 2]], np.array([1.0, 3.0]), np.array([1.0, 0.5]))
    N = np.zeros((3, 2))
    N[removal.rows] = removal.columns
    np.testing.assert_allclose(everything.to_dense() - N @ N.T, rest.to_dense(), atol=1e-12)
    np.testing.assert_allclose((everything.target - rest.target)[removal.rows], removal.change, atol=1e-12)


@given(ranking_problems())
def test_pointwise_is_the_identity(problem):
    comparisons = PointwiseComparisons(problem.y[:, None])
    check_comparisons(comparisons, np.eye(len(problem.y)), problem.y)
    check_drop(comparisons, np.array([0]))


def test_an_intercept_is_the_item_weighted_global_ranking():
    y = np.array([1.0, 4.0, 2.0])
    comparisons = QueryComparisons(y[:, None], one_group(3), weighting="item")
    check_comparisons(comparisons, *oracles.dense_intercept(y))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_type_of_the_features_is_kept(dtype):
    comparisons = compare_scores(
        np.arange(6.0)[:, None], encode_queries([0, 0, 0, 1, 1, 1], 6), ties="exclude"
    )
    for width in (1, 9):
        V = np.ones((6, width), dtype=dtype)
        assert comparisons.laplacian(V).dtype == dtype
        assert comparisons.half(V).dtype == dtype


def test_unit_cost_counts_lower_minus_higher_without_pairs():
    y = np.array([3.0, 1.0, 2.0, 2.0])
    target = compare_scores(y[:, None], one_group(4), cost="unit").target.ravel()
    np.testing.assert_array_equal(target, [3, -3, 0, 0])


def test_unit_cost_of_a_large_query_needs_no_pairs():
    m = 200_000  # 2e10 pairs: only a sort can do this
    y = np.random.default_rng(0).permutation(m).astype(float)
    target = compare_scores(y[:, None], one_group(m), cost="unit").target.ravel()
    np.testing.assert_array_equal(target, 2 * y - (m - 1))


@pytest.mark.parametrize(
    "qid",
    [
        [3, 1, 3, 1],
        ["b", "a", "b", "a"],
        [("x", 1), ("y", 1), ("x", 1), ("y", 1)],
        [2.5, -1.0, 2.5, -1.0],
        ["b", 1, "b", 1],
        np.array(["2020-01-01", "2020-01-02"] * 2, dtype="datetime64[D]"),
        np.array([10**15, 7, 10**15, 7]),
        np.array([[5], [6], [5], [6]]),
        [True, False, True, False],
        np.array([2, 200, 2, 200], dtype=np.uint8),
    ],
)
def test_query_labels_of_any_type(qid):
    groups = encode_queries(qid, 4)
    assert groups.n_groups == 2
    assert groups.codes[0] == groups.codes[2] != groups.codes[1] == groups.codes[3]
    assert [groups.rows(groups.codes[0]).tolist(), groups.rows(groups.codes[1]).tolist()] == [[0, 2], [1, 3]]
    flat = qid.ravel().tolist() if isinstance(qid, np.ndarray) else list(qid)
    assert groups.labels.tolist()[groups.codes[0]] == flat[0]


@given(st.lists(st.integers(-50, 50), min_size=1, max_size=60))
def test_integer_labels_are_grouped_as_by_unique(labels):
    groups = encode_queries(np.array(labels), len(labels))
    expected_labels, expected = np.unique(labels, return_inverse=True)
    np.testing.assert_array_equal(groups.codes, expected)
    np.testing.assert_array_equal(groups.labels, expected_labels)


@pytest.mark.parametrize(
    ("qid", "message"),
    [
        ([1, 2, 3], "3 labels for 4 rows"),
        ([1.0, np.nan, 2.0, 2.0], "missing label .row 1"),
        (["a", None, "b", "b"], "missing label .row 1"),
        (np.array([1, 2, 3, "NaT"], dtype="datetime64[D]"), "missing label .row 3"),
        ([[1], [2], [1], {}], "hashable"),
        (np.zeros((4, 2)), "shape .4, 2."),
    ],
)
def test_bad_query_labels_are_refused(qid, message):
    with pytest.raises(ValueError, match=message):
        encode_queries(qid, 4)


@pytest.mark.parametrize("option", ["cost", "ties", "weighting"])
def test_unknown_options_are_refused(option):
    with pytest.raises(ValueError, match=f"{option} must be one of"):
        compare_scores(np.arange(3.0)[:, None], one_group(3), **{option: "magnitud"})


@pytest.mark.parametrize("width", [1, 9])
@pytest.mark.parametrize(
    ("cost", "ties"), [("magnitude", "include"), ("magnitude", "exclude"), ("relative", "include")]
)
def test_single_precision_operators_are_close_to_double(cost, ties, width):
    rng = np.random.default_rng(0)
    y, queries = rng.integers(0, 4, size=200).astype(float), encode_queries(rng.integers(0, 7, 200), 200)
    comparisons = compare_scores(y[:, None], queries, cost=cost, ties=ties)
    V = rng.normal(size=(200, width)) + 100.0  # the mean that the operators take away is large
    single = V.astype(np.float32)
    exact = comparisons.laplacian(single.astype(np.float64))
    np.testing.assert_allclose(comparisons.laplacian(single), exact, atol=1e-5 * abs(exact).max())
    if comparisons.has_half:
        exact = comparisons.half(single.astype(np.float64))
        np.testing.assert_allclose(comparisons.half(single), exact, atol=1e-5 * abs(exact).max())
        K = rng.normal(size=(200, 5))
        K = (K @ K.T).astype(np.float32)
        exact = comparisons.half_both_sides(K.astype(np.float64))
        np.testing.assert_allclose(comparisons.half_both_sides(K.copy()), exact, atol=1e-5 * abs(exact).max())


def test_preferences_keep_the_type_of_the_features():
    comparisons = PreferenceComparisons(4, np.array([[0, 1], [2, 3]]))
    V = np.ones((4, 6), dtype=np.float32)
    assert comparisons.laplacian(V).dtype == np.float32
    assert all(right.dtype == np.float32 for _, right in comparisons.blocks(V, 2))


@pytest.mark.parametrize("shape", [(6,), (6, 2), (6, 9)])
def test_the_half_is_written_where_it_is_asked_for(shape):
    comparisons = compare_scores(np.arange(6.0)[:, None], encode_queries([0, 0, 0, 1, 1, 1], 6))
    V = np.random.default_rng(0).normal(size=shape)
    expected = comparisons.half(V)
    out = np.empty(shape)
    assert comparisons.half(V, out=out) is out
    np.testing.assert_array_equal(out, expected)
    assert comparisons.half(V, out=V) is V
    np.testing.assert_array_equal(V, expected)


def test_small_queries_of_cost_relative_are_summed_together():
    rng = np.random.default_rng(0)
    comparisons = compare_scores(
        rng.normal(size=(100, 1)), encode_queries(np.arange(100) // 5, 100), cost="relative"
    )
    V = rng.normal(size=(100, 3))
    blocks = list(comparisons.blocks(V, 50))
    assert len(blocks) <= 3  # 20 queries
    np.testing.assert_allclose(sum(a.T @ b for a, b in blocks), V.T @ comparisons.to_dense() @ V)


def test_labels_beyond_signed_integers_and_missing_values_of_pandas():
    import pandas as pd

    big = np.array([2**63 + 5, 2**63 + 6, 2**63 + 5], dtype=np.uint64)
    assert encode_queries(big, 3).codes.tolist() == [0, 1, 0]
    with pytest.raises(ValueError, match="missing label .row 1"):
        encode_queries(pd.Series(["a", pd.NA, "b"], dtype=object), 3)
