"""Builders of preferences against loops over all pairs."""

from __future__ import annotations

import lzma

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from preflearn.preferences import Preferences, pairs_from_scores, pairs_from_targets, pairs_where

VALUES = st.integers(-4, 4).map(float)


def matrices(n_columns):
    return st.integers(1, 15).flatmap(
        lambda m: st.lists(st.tuples(*[VALUES] * n_columns), min_size=m, max_size=m).map(np.array)
    )


@given(
    X=matrices(4),
    tolerances=st.tuples(*[st.sampled_from([0.0, 1.0, 2.5])] * 2),
    more=st.sampled_from([0.0, 1.0]),
)
def test_where_equals_all_pairs(X, tolerances, more):
    found = pairs_where(X, similar={(0, 1): tolerances[0], 2: tolerances[1]}, ordered_by=3, by_more_than=more)
    expected = [
        (i, j)
        for i in range(len(X))
        for j in range(len(X))
        if np.hypot(*(X[i, :2] - X[j, :2])) <= tolerances[0]
        and abs(X[i, 2] - X[j, 2]) <= tolerances[1]
        and X[i, 3] - X[j, 3] > more
    ]
    assert [tuple(pair) for pair in found.pairs] == expected
    assert_array_equal(found.margin, 0.0)
    assert_array_equal(found.weight, 1.0)


def test_where_keeps_pairs_at_the_tolerance_itself():
    """0.3 - 0.2 <= 0.1 fails in floating point, 0.4 - 0.3 holds: the caller's own arithmetic decides."""
    X = np.array([[0.2, 0.0], [0.3, 1.0], [0.4, 2.0]])
    found = pairs_where(X, similar={0: 0.1}, ordered_by=1)
    expected = [[j, i] for i in range(3) for j in range(i + 1, 3) if abs(X[i, 0] - X[j, 0]) <= 0.1]
    assert sorted(found.pairs.tolist()) == sorted(expected)


def test_where_with_names_labels_numbers_and_weights():
    pandas = pytest.importorskip("pandas")
    random = np.random.default_rng(0)
    frame = pandas.DataFrame({"place": random.normal(size=80), "rooms": random.integers(1, 6, size=80)})
    all_pairs = pairs_where(frame, similar={"place": 0.5}, ordered_by="rooms", weight="gap")
    gap = frame["rooms"].to_numpy()[all_pairs.pairs] @ [1, -1]
    assert (gap > 0).all()
    assert_allclose(all_pairs.weight, gap / gap.mean())
    labelled = np.arange(80) < 20
    unlabelled = pairs_where(frame, similar={"place": 0.5}, ordered_by="rooms", labelled=labelled)
    assert len(unlabelled) == np.count_nonzero(~labelled[all_pairs.pairs].all(axis=1))
    assert not labelled[unlabelled.pairs].all(axis=1).any()
    some = pairs_where(frame, similar={"place": 0.5}, ordered_by=-frame["rooms"], n=30, random_state=3)
    again = pairs_where(frame, similar={"place": 0.5}, ordered_by=-frame["rooms"], n=30, random_state=3)
    other = pairs_where(frame, similar={"place": 0.5}, ordered_by=-frame["rooms"], n=30, random_state=4)
    assert_array_equal(some.pairs, again.pairs)
    assert len(some) == 30 and not np.array_equal(some.pairs, other.pairs)
    stated = set(map(tuple, all_pairs.pairs[:, ::-1]))
    assert {tuple(pair) for pair in some.pairs} <= stated and len({tuple(pair) for pair in some.pairs}) == 30


def test_where_takes_polars_and_sparse_rows():
    polars = pytest.importorskip("polars")
    sparse = pytest.importorskip("scipy.sparse")
    X = np.array([[0.0, 1.0], [0.0, 2.0], [5.0, 3.0]])
    for table, first, second in (
        (polars.DataFrame(X, schema=["a", "b"]), "a", "b"),
        (sparse.csr_array(X), 0, 1),
    ):
        assert pairs_where(table, similar={first: 1.0}, ordered_by=second).pairs.tolist() == [[1, 0]]


@given(
    scores=st.lists(VALUES, max_size=15).map(np.array),
    threshold=st.sampled_from([0.0, 0.5, 1.0, 3.0]),
    n=st.one_of(st.none(), st.integers(0, 40)),
    seed=st.integers(0, 5),
)
def test_scores_equal_all_pairs(scores, threshold, n, seed):
    expected = {
        (i, j) for i in range(len(scores)) for j in range(len(scores)) if scores[i] - scores[j] > threshold
    }
    found = pairs_from_scores(scores, threshold, n=n, random_state=seed, margin=0.25)
    pairs = [tuple(pair) for pair in found.pairs]
    assert len(pairs) == len(set(pairs)) == (len(expected) if n is None else min(n, len(expected)))
    assert set(pairs) <= expected
    assert_array_equal(found.margin, 0.25)


def test_scores_draw_evenly_and_from_given_rows():
    scores = np.arange(6.0)
    counts = np.zeros((6, 6))
    random = np.random.default_rng(0)
    for _ in range(600):
        for i, j in pairs_from_scores(scores, n=5, random_state=random).pairs:
            counts[i, j] += 1
    drawn = counts[np.tril_indices(6, -1)]  # 15 pairs, each in a third of the draws
    assert drawn.sum() == 3000 and np.abs(drawn - 200).max() < 5 * np.sqrt(200)
    some = pairs_from_scores(scores, rows=[5, 0, 2])
    assert some.pairs.tolist() == [[2, 0], [5, 0], [5, 2]]
    weighted = pairs_from_scores(scores, rows=[5, 0, 2], weight="gap")
    assert_allclose(weighted.weight, np.array([2, 5, 3]) * 3 / 10)


@given(
    y=st.lists(VALUES, min_size=2, max_size=10), n=st.integers(0, 30), factor=st.sampled_from([0.0, 0.5, 2.0])
)
def test_targets(y, n, factor):
    y = np.array([*y, np.nan])
    found = pairs_from_targets(y, n, factor, random_state=1)
    gap = y[found.pairs[:, 0]] - y[found.pairs[:, 1]]
    assert len(found) == n and (gap >= 0).all()
    assert (found.pairs[:, 0] != found.pairs[:, 1]).all()
    assert_allclose(found.margin, factor * gap)
    assert_array_equal(pairs_from_targets(y, n, factor, random_state=1).pairs, found.pairs)


def test_random_states_of_all_kinds():
    y = np.arange(10.0)
    for state in (3, np.random.default_rng(3), np.random.RandomState(3), None):
        assert len(pairs_from_targets(y, 5, random_state=state)) == 5


def test_preferences_print_and_combine():
    preferences = Preferences([[0, 1], [2, 1]], margin=[0.0, 0.5])
    assert repr(preferences) == "Preferences(2 pairs over 3 rows, margin 0 to 0.5, weight 1)"
    pairs, margin, weight = preferences + Preferences([[3, 0]], weight=2.0)
    assert pairs.tolist() == [[0, 1], [2, 1], [3, 0]]
    assert margin.tolist() == [0.0, 0.5, 0.0] and weight.tolist() == [1.0, 1.0, 2.0]
    assert preferences.reversed().pairs.tolist() == [[1, 0], [1, 2]]
    assert len(Preferences(np.empty((0, 2)))) == 0
    assert Preferences.between([[0, 1]], 1.0, 2.0).margin.tolist() == [1.0, -2.0]


def test_the_published_housing_rule(real_data):
    """Similar neighbourhoods with more bedrooms per resident: published as about 1200 pairs, 70 % of them true."""
    with lzma.open(real_data("regression_benchmarks") / "cal.housing.arff.xz", "rt") as file:
        table = np.array([row.split(",") for row in file.read().split("@data")[-1].split()], dtype=float)
    longitude, latitude, age, _, bedrooms, population, _, income, value = table.T
    miles_east = 69.17 * np.cos(np.radians(37)) * longitude
    near = np.column_stack([miles_east, 69.17 * latitude, age, income])
    counts, shares = [], []
    for seed in range(5):
        rows = np.random.default_rng(seed).permutation(len(value))[:1060]
        found = pairs_where(
            near[rows],
            similar={(0, 1): 25.0, 2: 10.0, 3: 0.1},
            ordered_by=(bedrooms / population)[rows],
            labelled=np.arange(1060) < 60,
        )
        better, worse = value[rows][found.pairs.T]
        counts.append(len(found))
        shares.append(np.mean(better > worse))
    assert 1100 < np.mean(counts) < 1500
    assert 0.68 < np.mean(shares) < 0.72


@pytest.mark.parametrize(
    "build, message",
    [
        (lambda: pairs_where(np.eye(3), similar={}, ordered_by=0), "empty"),
        (lambda: pairs_where(np.eye(3), similar={5: 1.0}, ordered_by=0), "no column 5"),
        (lambda: pairs_where(np.eye(3), similar={"a": 1.0}, ordered_by=0), "column names"),
        (lambda: pairs_where(np.eye(3), similar={0: -1.0}, ordered_by=0), "tolerance"),
        (lambda: pairs_where(np.full((3, 2), np.nan), similar={0: 1.0}, ordered_by=1), "NaN"),
        (lambda: pairs_where(np.eye(3), similar={0: 1.0}, ordered_by=[1.0, 2.0]), "ordered_by"),
        (lambda: pairs_where(np.eye(3), similar={0: 1.0}, ordered_by=1, labelled=[0, 1, 0]), "labelled"),
        (lambda: pairs_where(np.eye(3), similar={0: 1.0}, ordered_by=1, weight="big"), "weight"),
        (lambda: pairs_from_scores([[1.0]]), "one-dimensional"),
        (lambda: pairs_from_scores([1.0, np.nan]), "nan"),
        (lambda: pairs_from_scores([1.0, 2.0], -1.0), "threshold"),
        (lambda: pairs_from_scores([1.0, 2.0], n=-1), "n must"),
        (lambda: pairs_from_scores([1.0, 2.0], rows=[7]), "rows"),
        (lambda: pairs_from_targets([1.0, np.nan]), "two rows"),
        (lambda: pairs_from_targets([1.0, 2.0], margin_factor=np.inf), "margin_factor"),
        (lambda: Preferences([[0, 0]]), "itself"),
        (lambda: Preferences([[0, 1]], weight=-1.0), "negative"),
        (lambda: Preferences.between([[0, 1]], 2.0, 1.0), "empty"),
    ],
)
def test_refusals(build, message):
    with pytest.raises(ValueError, match=message):
        build()
