"""Clicks: propensities of positions, preferences from them, and what they repair."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from preflearn import RankRLS
from preflearn.metrics import concordance
from preflearn.preferences import Propensities, click_preferences, position_propensities
from strategies import examples


def slow_pairs(session, clicked, weights, against):
    """Every pair of rows of a list, looked at one by one."""
    found = {}
    for i, j in product(range(len(session)), repeat=2):
        if i != j and session[i] == session[j] and clicked[i] and (against == "all" or not clicked[j]):
            found[i, j] = weights[i]
    return found


@examples(60)
@given(
    rows=st.lists(
        st.tuples(st.sampled_from("abc"), st.booleans(), st.integers(1, 4)), min_size=2, max_size=15
    ),
    against=st.sampled_from(["unclicked", "all"]),
    clip=st.sampled_from([0.01, 0.3, 1.0]),
)
def test_pairs_are_those_of_the_slow_version(rows, against, clip) -> None:
    session, clicked, position = map(list, zip(*rows, strict=True))
    theta = np.array([1.0, 0.5, 0.25, 0.125])
    propensities = Propensities(np.arange(1, 5), theta, np.ones(4, dtype=int))
    weights = [1 / max(theta[k - 1], clip) for k in position]
    expected = slow_pairs(session, clicked, weights, against)
    if not expected:
        with pytest.raises(ValueError, match="No list has both a row with a click and one without"):
            click_preferences(
                session, clicked, position, propensities=propensities, clip=clip, against=against
            )
        return
    found = click_preferences(
        session, clicked, position, propensities=propensities, clip=clip, against=against
    )
    assert {tuple(pair): weight for pair, weight in zip(found.pairs.tolist(), found.weight)} == expected
    assert len(found) == len(expected)


def slow_propensities(position, clicked, key):
    """Every position gets the clicks that its items are expected to give it, over and over until nothing changes."""
    places, items = np.unique(position), [one for one in np.unique(key) if clicked[key == one].any()]
    n = np.array([[((key == one) & (position == k)).sum() for k in places] for one in items], dtype=float)
    c = np.array([clicked[key == one].sum() for one in items])
    at = np.array([clicked[position == k].sum() for k in places])
    theta = np.ones(len(places))
    for _ in range(20_000):
        new = at / (n * (c / (n @ theta))[:, None]).sum(axis=0)
        theta, before = new / new[0], theta
        if np.abs(theta - before).max() < 1e-13:
            break
    return theta


@pytest.mark.filterwarnings("ignore:The clicks do not tell")
@examples(25)
@given(seed=st.integers(0, 10_000), n_positions=st.integers(2, 5), n_items=st.integers(1, 12))
def test_propensities_are_those_of_the_slow_version(seed, n_positions, n_items) -> None:
    rng = np.random.default_rng(seed)
    key, position = rng.integers(0, n_items, 200), rng.integers(2, 2 + n_positions, 200)
    clicked = rng.random(200) < 0.9 / position
    if not all(clicked[position == k].any() for k in np.unique(position)):
        with pytest.raises(ValueError, match="cannot be compared with"):
            position_propensities(position, clicked, query=key % 3, item=key // 3)
        return
    found = position_propensities(position, clicked, query=key % 3, item=key // 3)
    assert found.positions.tolist() == np.unique(position).tolist()
    assert found.values == pytest.approx(slow_propensities(position, clicked, key), rel=1e-6)
    assert found.n_clicks.sum() == clicked.sum()


def few_sessions(rng, theta, n_sessions=300, n_queries=100):
    """Lists of some ranker that puts twelve items in a different order each time; items are seldom liked."""
    relevance = 1 / (1 + np.exp(2.5 - 1.5 * rng.normal(size=(n_queries, 12))))
    old, query = rng.normal(size=(n_queries, 12)), rng.integers(n_queries, size=n_sessions)
    order = np.argsort(-2 * old[query] + 2 * rng.normal(size=(n_sessions, 12)), axis=1)[:, : len(theta)]
    likes = np.take_along_axis(relevance[query], order, axis=1)
    clicked = (rng.random(order.shape) < theta) & (rng.random(order.shape) < likes)
    position = np.tile(np.arange(1, len(theta) + 1), n_sessions)
    return position, clicked.ravel(), np.repeat(query, len(theta)), order.ravel()


@pytest.mark.filterwarnings("ignore:The clicks do not tell")
def test_few_sessions_do_not_raise_low_positions() -> None:
    """300 sessions give position 8 five clicks: uncertain, but right on average, and the interval knows it."""
    rng, theta = np.random.default_rng(0), 1 / np.arange(1, 9)
    values, held = [], []
    for _ in range(120):
        position, clicked, query, item = few_sessions(rng, theta)
        try:
            found = position_propensities(position, clicked, query=query, item=item)
        except ValueError:  # a position without a click
            continue
        values.append(found.values)
        held.append((found.intervals[:, 0] <= theta) & (theta <= found.intervals[:, 1]))
    assert len(values) > 100
    assert np.abs(np.mean(values, axis=0) / theta - 1).max() < 0.25
    assert np.mean(held, axis=0)[1:].min() > 0.87


def test_positions_that_the_clicks_do_not_tell_are_named() -> None:
    position, clicked, query, item = few_sessions(np.random.default_rng(1), 1 / np.arange(1, 9))
    with pytest.warns(
        UserWarning, match=r"do not determine the propensity of position\(s\) .*8.*times the estimate"
    ):
        found = position_propensities(position, clicked, query=query, item=item)
    assert "95 % interval" in str(found).splitlines()[0]
    with pytest.warns(UserWarning, match="do not determine"):
        position_propensities(np.repeat([1, 2], 50), np.r_[np.ones(50), 1, np.zeros(49)], randomised=True)


class World:
    """Ten results a list; users look at position k with probability 1 / k; the old ranker liked feature 3 alone."""

    def __init__(self, seed: int, n_queries: int = 200, n_sessions: int = 20, spread: float = 0.7):
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(n_queries, 12, 4))
        self.utility = X @ [1.0, -1.0, 0.5, 0.0]
        self.X = X.reshape(-1, 4)
        self.query_of_item = np.repeat(np.arange(n_queries), 12)
        relevance = 1 / (1 + np.exp(2 - 1.5 * self.utility))
        self.theta = 1 / np.arange(1, 11)
        old = 2 * X[None, :, :, 3] + spread * rng.normal(size=(n_sessions, n_queries, 12))
        shown = np.argsort(-old, axis=2)[:, :, :10]
        likes = np.take_along_axis(np.broadcast_to(relevance, old.shape), shown, axis=2)
        clicked = (rng.random(shown.shape) < self.theta) & (rng.random(shown.shape) < likes)
        query = np.broadcast_to(np.arange(n_queries)[None, :, None], shown.shape)
        self.query, self.item, self.clicked = query.ravel(), shown.ravel(), clicked.ravel()
        self.position = np.broadcast_to(np.arange(1, 11), shown.shape).ravel()
        self.session = np.repeat(np.arange(n_sessions * n_queries), 10)
        self.row = self.query * 12 + self.item

    def quality(self, preferences, new: World) -> float:
        model = RankRLS().fit_pairs(self.X[self.row], preferences.pairs, weight=preferences.weight)
        return concordance(new.utility.ravel(), model.predict(new.X), new.query_of_item)


def test_propensities_are_found_and_repair_the_order() -> None:
    logs, new = World(0), World(1, n_sessions=1)
    found = position_propensities(logs.position, logs.clicked, query=logs.query, item=logs.item)
    assert np.abs(np.log(found.values / logs.theta)).max() < 0.5
    assert np.abs(np.log(found.values[:4] / logs.theta[:4])).max() < 0.25
    naive = logs.quality(click_preferences(logs.session, logs.clicked), new)
    weighted = logs.quality(
        click_preferences(logs.session, logs.clicked, logs.position, propensities=found), new
    )
    unbiased = logs.quality(
        click_preferences(logs.session, logs.clicked, logs.position, propensities=found, against="all"), new
    )
    assert naive < 0.85
    assert weighted > naive + 0.08
    assert unbiased > 0.93


@pytest.mark.filterwarnings("ignore:The clicks do not tell")
def test_click_rates_are_not_propensities() -> None:
    """The old ranker puts what it likes first: the rate of clicks says more about it than about positions."""
    logs = World(2)
    right = position_propensities(logs.position, logs.clicked, query=logs.query, item=logs.item)
    # Make the old ranker good: what is at the top is clicked more for being better as well.
    order = np.argsort(-logs.utility, axis=1)[:, :10]
    rng = np.random.default_rng(3)
    likes = 1 / (1 + np.exp(2 - 1.5 * np.take_along_axis(logs.utility, order, axis=1)))
    clicked = (rng.random(order.shape) < logs.theta) & (rng.random(order.shape) < likes)
    position = np.broadcast_to(np.arange(1, 11), order.shape)
    rates = position_propensities(position.ravel()[: 200 * 10], clicked.ravel(), randomised=True)
    assert rates.values[4] < 0.8 * logs.theta[4] < 1.6 * right.values[4]


def test_randomised_lists_need_no_items() -> None:
    rng = np.random.default_rng(0)
    position = rng.integers(1, 4, 30_000)
    clicked = rng.random(30_000) < np.array([0.4, 0.2, 0.1])[position - 1]
    found = position_propensities(position, clicked, randomised=True)
    assert found.values == pytest.approx([1, 0.5, 0.25], rel=0.1)
    assert str(found).splitlines()[0] == "position  propensity  clicks  95 % interval"
    assert len(str(found).splitlines()) == 4
    assert ((found.intervals[:, 0] <= [1, 0.5, 0.25]) & ([1, 0.5, 0.25] <= found.intervals[:, 1])).all()
    by_hand = Propensities(found.positions, found.values, found.n_clicks)
    assert (
        str(by_hand).splitlines()[0] == "position  propensity  clicks" and np.isnan(by_hand.intervals).all()
    )


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        (([1, 2], [1, 0]), {}, "Pass query= and item="),
        (([1, 2], [1, 1]), {"query": [0, 0], "item": ["a", "b"]}, "2 cannot be compared with position 1"),
        (([1, 2, 1], [1, 0, 1]), {"query": [0, 0, 0], "item": ["a", "a", "b"]}, "cannot be compared"),
        (([1, 2], [1, 0]), {"randomised": True}, "Position 2 has no click"),
        (([1, 2], [1, 0]), {"randomised": True, "query": [0, 0]}, "would be ignored"),
        (([0, 1], [1, 0]), {"randomised": True}, "whole numbers from 1 on"),
        (([1.5, 1], [1, 0]), {"randomised": True}, "whole numbers from 1 on"),
        (([1, 2], [1, 2]), {"randomised": True}, "True or False"),
        (([1, 2, 3], [1, 0]), {"randomised": True}, "position has 3, clicked has 2"),
    ],
)
def test_what_cannot_be_estimated(arguments, options, message) -> None:
    with pytest.raises(ValueError, match=message):
        position_propensities(*arguments, **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"against": "some"}, "against must be"),
        ({"position": [1, 2]}, "would be ignored without propensities"),
        ({"propensities": 1}, "pass position="),
        ({"propensities": 1, "position": [1, 2], "clip": 0.0}, "clip must be"),
        ({"propensities": 1, "position": [2, 9]}, "no propensity for position 9"),
    ],
)
def test_preferences_that_cannot_be_made(options, message) -> None:
    options = dict(options)
    if "propensities" in options:
        options["propensities"] = Propensities(np.array([1, 2]), np.array([1.0, 0.5]), np.array([3, 2]))
    with pytest.raises(ValueError, match=message):
        click_preferences([0, 0], [0, 1], **options)
