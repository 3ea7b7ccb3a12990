"""How few battles decide the first places."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from preflearn import rate
from preflearn.ratings import BattleCounts
from preflearn.ratings.strengths import fit_strengths
from strategies import examples


def draw(n, battles, seed, ties=0.15, spread=0.6):
    rng = np.random.default_rng(seed)
    f = spread * rng.normal(size=n)
    a = rng.integers(n, size=battles)
    b = (a + rng.integers(1, n, battles)) % n
    won = rng.random(battles) < 1 / (1 + np.exp(f[b] - f[a]))
    names = np.array([f"i{k}" for k in range(n)])
    tied = rng.random(battles) < ties
    tied[0] = False
    return {"a": names[a], "b": names[b], "winner": np.where(tied, "tie", np.where(won, "a", "b"))}


def changes(found, k, removed):
    """Whether others are among the first k without these rows."""
    before = found.strengths
    weight = before.battles.weight.copy()
    weight[list(removed)] = 0
    left = replace(before.battles, weight=weight)
    f = fit_strengths(left, before.alpha).scores
    top = np.argsort(-before.scores, kind="stable")[:k]
    if (left.battles_of_items()[top] == 0).any():  # no longer on the board
        return True
    f = np.where(left.battles_of_items() > 0, f, -np.inf)
    return f[top].min() < np.delete(f, top).max() - 1e-9


@given(
    seed=st.integers(0, 10**6),
    n=st.integers(3, 5),
    battles=st.integers(8, 15),
    k=st.integers(1, 2),
    ties=st.booleans(),
)
@examples(25)
def test_no_smaller_set_changes_the_first_places(seed, n, battles, k, ties):
    table = draw(n, battles, seed)
    found = rate(table, alpha=0.2, ties="davidson" if ties else "half", first_side=seed % 2 == 0)
    if len(found.items) <= k:
        return
    fragile = found.fragility(k)
    assert fragile.n_battles == len(set(fragile.battles.tolist()))
    assert changes(found, k, fragile.battles)
    for size in range(1, min(fragile.n_battles, 4)):
        assert not any(changes(found, k, some) for some in combinations(range(battles), size))


@pytest.mark.parametrize(
    "options",
    [
        {"time": "day", "half_life": 50.0},
        {"margin": "goals"},
        {"covariates": ["size"]},
        {"judge": "judge"},
        {"weight": "weight"},
        {"features": {"item": [f"i{k}" for k in range(6)], "x": [0.0, 1, 2, 3, 4, 5]}},
    ],
)
def test_what_is_removed_changes_the_first_place_whatever_the_options(options):
    rng = np.random.default_rng(1)
    table = draw(6, 150, 5, ties=0.0)
    goals = np.where(table["winner"] == "a", 1.0, -1.0) * rng.integers(1, 4, 150)
    more = {
        "day": np.arange(150.0),
        "goals": goals,
        "size": rng.normal(size=150),
        "weight": rng.random(150) + 0.1,
    }
    found = rate({**table, **more, "judge": rng.integers(12, size=150)}, alpha=0.3, **options)
    fragile = found.fragility()
    assert 0 < fragile.n_battles < 60
    assert changes(found, 1, fragile.battles)
    assert str(fragile) in str(found)
    assert found.fragility() is fragile


def test_counted_battles_and_whole_rankings_are_removed():
    table = draw(5, 400, 3)
    whole = rate(table, alpha=0.3).fragility()
    counted = BattleCounts().add(table).rate(alpha=0.3)
    fragile = counted.fragility()
    assert fragile.n_battles == whole.n_battles and fragile.total == 400
    weight = counted.raw.weight - np.bincount(fragile.battles, minlength=len(counted.raw))
    assert (weight >= 0).all()
    left = fit_strengths(replace(counted.raw, weight=weight), counted.alpha)
    assert np.argmax(left.scores) != np.argmax(counted.strengths.scores)
    rankings = {"order": ["x > y > z", "x > z > y", "y > x > z", "x > y > z", "z > y > x"] * 2}
    found = rate(rankings, ranking="order", alpha=0.3)
    fragile = found.fragility()
    kept = [row for row in range(10) if row not in fragile.battles]
    again = rate({"order": [rankings["order"][row] for row in kept]}, ranking="order", alpha=0.3)
    assert found.table["item"][0] == "x" and again.table["item"][0] == fragile.enters
    assert fragile.leaves == "x" and fragile.total == 10


def test_very_many_items_are_solved_for(monkeypatch):
    table = draw(8, 300, 2)
    exact = rate(table, alpha=0.3).fragility(2)
    monkeypatch.setattr("preflearn.ratings.strengths.MOST_DENSE", 4)
    many = rate(table, alpha=0.3)
    assert many.fragility(2).n_battles == exact.n_battles
    assert changes(many, 2, many.fragility(2).battles)


def test_one_battle_and_too_few_items():
    only = rate({"winner": ["x"], "loser": ["y"]}).fragility()
    assert str(only) == "Removing 1 battle of 1 would change the first place (y for x): row 1."
    for k in (0, 2, True, 1.0):
        with pytest.raises(ValueError, match="k must be a whole number of first places"):
            rate({"winner": ["x"], "loser": ["y"]}).fragility(k)
