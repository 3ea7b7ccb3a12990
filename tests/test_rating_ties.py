"""Ties with a probability of their own, and the advantage of the first side."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize

from preflearn import rate
from preflearn.ratings import BattleCounts
from preflearn.ratings.held_out import choose_half_life, leave_battle_out
from preflearn.ratings.strengths import fit_strengths, variances_of_battles
from preflearn.ratings.tables import columns_of
from preflearn.ratings.ties import outcome_probabilities
from strategies import examples


def simulate(n=8, battles=600, seed=0, nu=-0.3, home=0.4, spread=0.7, **more):
    """Battles by Davidson's model, and the strengths behind them."""
    rng = np.random.default_rng(seed)
    f = spread * rng.normal(size=n)
    a = rng.integers(n, size=battles)
    b = (a + rng.integers(1, n, battles)) % n
    P = outcome_probabilities(f[a] - f[b] + home, np.full(battles, nu) if np.isscalar(nu) else nu)
    outcome = (rng.random(battles)[:, None] > P.cumsum(axis=1)).sum(axis=1)
    names = np.array([f"i{k}" for k in range(n)])
    table = {"a": names[a], "b": names[b], "winner": np.array(["a", "tie", "b"])[outcome], **more}
    return table, f - f.mean(), outcome


@given(seed=st.integers(0, 10**6), n=st.integers(2, 6), home=st.booleans())
@examples(12)
def test_davidson_is_the_minimum_of_its_own_loss(seed, n, home):
    table, _, outcome = simulate(n, 60, seed, 0.2)
    pairs = np.array([[int(name[1:]) for name in table[side]] for side in ("a", "b")])

    def loss(theta):
        d = theta[pairs[0]] - theta[pairs[1]] + home * theta[n]
        logits = np.stack([d / 2, np.full(d.size, theta[n + 1]), -d / 2], axis=1)
        each = np.log(np.exp(logits).sum(axis=1)) - logits[np.arange(d.size), outcome]
        return each.sum() + 0.3 * (theta[:n] ** 2).sum()

    truth = minimize(loss, np.zeros(n + 2), method="BFGS", options={"gtol": 1e-8}).x
    found = rate(table, ties="davidson", first_side=home, alpha=0.3)
    played = [int(item[1:]) for item in found.items]
    rest = truth[played]
    np.testing.assert_allclose(found.strengths.scores, rest - rest.mean(), atol=2e-6)
    np.testing.assert_allclose(found.strengths.gamma, truth[n + 1], atol=2e-6)
    np.testing.assert_allclose(found.strengths.coefficients, truth[[n]] if home else [], atol=2e-6)


def test_without_ties_it_is_bradley_and_terry():
    table, _, _ = simulate(nu=-np.inf)
    found, plain = rate(table, ties="davidson", alpha=0.4), rate(table, alpha=0.4)
    np.testing.assert_array_equal(found.strengths.scores, plain.strengths.scores)
    assert found.tie_probability("i0", "i1") == 0
    assert found.win_probability("i0", "i1") == pytest.approx(plain.win_probability("i0", "i1"), abs=1e-15)
    assert rate(table, ties="auto").raw.ties == "half"


def test_probabilities_are_those_of_the_parameters_and_sum_to_one():
    table, f, _ = simulate(battles=20000)
    found = rate(table, ties="davidson", first_side=True)
    truth = outcome_probabilities(np.array([f[0] - f[3] + 0.4, f[0] - f[3]]), np.full(2, -0.3))
    for row, first in ((0, True), (1, False)):
        p = (
            found.win_probability("i0", "i3", first_side=first),
            found.tie_probability("i0", "i3", first_side=first),
        )
        np.testing.assert_allclose(p, truth[row, :2], atol=0.02)
    parts = (
        found.win_probability("i0", "i3"),
        found.tie_probability("i0", "i3"),
        found.win_probability("i3", "i0"),
    )
    assert sum(parts) == pytest.approx(1)
    assert found.tie_probability("i0", "i3") == found.tie_probability("i3", "i0")
    P = found.predict_outcomes({"a": ["i0", "new"], "b": ["i3", "i1"]})
    assert P[0, 1] == pytest.approx(found.tie_probability("i0", "i3", first_side=True))
    np.testing.assert_allclose(P.sum(axis=1), 1)
    np.testing.assert_array_equal(found.predict({"a": ["i0"], "b": ["i3"]}), P[:1, 0])
    row = {name: values[0] for name, values in columns_of(found.covariates).items()}
    assert row["covariate"] == "first side"
    assert row["points_lower"] < 0.4 * 400 / np.log(10) < row["points_upper"]


def test_intervals_of_strengths_and_of_the_first_side_hold():
    inside, of_home = [], []
    for seed in range(150):
        table, f, _ = simulate(5, 300, seed)
        found = rate(table, ties="davidson", first_side=True, alpha=0)
        board = columns_of(found.table)
        truth = {f"i{k}": 1000 + 400 / np.log(10) * one for k, one in enumerate(f)}
        for item, low, high in zip(board["item"], board["lower"], board["upper"], strict=True):
            inside.append(low < truth[item] < high)
        effect = columns_of(found.covariates)
        of_home.append(effect["lower"][0] < 0.4 < effect["upper"][0])
    assert 0.93 < np.mean(inside) < 0.97
    assert np.mean(of_home) > 0.9


def test_columns_make_ties_likely_and_say_where_the_first_side_has_its_advantage():
    rng = np.random.default_rng(3)
    slow, ground = rng.normal(size=4000), rng.random(4000) < 0.5
    table, _, _ = simulate(battles=4000, nu=-0.5 + 0.8 * slow, home=0.7 * ground, slow=slow, ground=ground)
    found = rate(table, ties="davidson", tie_covariates=["slow"], first_side="ground")
    np.testing.assert_allclose(found.strengths.gamma, [-0.5, 0.8], atol=0.12)
    np.testing.assert_allclose(found.strengths.coefficients, 0.7, atol=0.12)
    asked = {"a": ["i0"] * 2, "b": ["i1"] * 2, "slow": [2.0, -2.0], "ground": [True, False]}
    P = found.predict_outcomes(asked)
    assert P[0, 1] > 0.5 > P[1, 1]
    assert P[1, 0] / P[1, 2] == pytest.approx(np.exp(found.scores["i0"] - found.scores["i1"]))


def test_a_battle_left_out_is_close_to_a_refit():
    table, _, outcome = simulate(5, 80)
    raw = rate(table, ties="davidson", alpha=0.5, first_side=True).raw
    strengths = fit_strengths(raw, 0.5)
    P = leave_battle_out(strengths)
    for k in range(0, 80, 7):
        other = fit_strengths(raw.take(np.delete(np.arange(80), k)), 0.5)
        mean = replace(other, battles=raw.take(np.array([k])))
        exact = mean.probabilities(variances_of_battles(other, raw.take(np.array([k]))))
        np.testing.assert_allclose(P[k], exact[0], atol=0.012)


def test_counts_streams_and_updates_are_all_battles(monkeypatch):
    table, _, _ = simulate()
    whole = rate(table, ties="davidson", alpha=0.4)
    counts = BattleCounts()
    for part in (slice(0, 250), slice(250, 600)):
        counts.add({name: values[part] for name, values in table.items()})
    np.testing.assert_allclose(
        counts.rate(ties="davidson", alpha=0.4).strengths.scores, whole.strengths.scores, atol=1e-8
    )
    first = rate({name: values[:250] for name, values in table.items()}, ties="davidson", alpha=0.4)
    both = first.update({name: values[250:] for name, values in table.items()})
    np.testing.assert_allclose(both.strengths.scores, whole.strengths.scores, atol=1e-8)
    with pytest.raises(ValueError, match="first_side would be lost"):
        BattleCounts(first_side=True)
    # Very many items: standard errors that take the frequency of ties as known.
    exact = whole.standard_errors
    monkeypatch.setattr("preflearn.ratings.strengths.MOST_DENSE", 4)
    monkeypatch.setattr("preflearn.ratings.strengths.MOST_FACTORED", 4)
    many = rate(table, ties="davidson", alpha=0.4)
    np.testing.assert_allclose(many.strengths.scores, whole.strengths.scores, atol=1e-6)
    # Without a matrix strengths are not relative to their mean, whose variance is that of the prior.
    np.testing.assert_allclose(np.sqrt(many.standard_errors**2 - 1 / (2 * 0.4 * 8)), exact, rtol=0.02)


def test_held_out_outcomes_and_the_choice():
    table, _, _ = simulate(battles=1500, spread=2.0, nu=1.0, judge=np.arange(1500) % 3)
    found = rate(table, ties="auto", first_side=True, judge="judge", cluster=False)
    assert found.raw.ties == "davidson"
    held = columns_of(found.held_out)
    loss = {m: x for m, x, h in zip(held["method"], held["log_loss"], held["held_out"]) if h == "battle"}
    assert loss["Davidson"] < loss["Bradley-Terry"] - 0.02
    assert min(held["calibration_error"][:1]) < 0.03
    assert max(found.judges["position_p"]) > 0.05
    assert "Davidson" in str(found.to_dict()["held_out"])
    assert len(found.surprises["row"]) > 0
    more = found.update({name: values[:30] for name, values in table.items()})
    assert more.raw.ties == "davidson"


def test_a_half_life_is_chosen_by_three_outcomes():
    table, _, _ = simulate(day=np.arange(600.0))
    raw = rate(table, ties="davidson", time="day").raw
    half_life, alpha = choose_half_life(raw, [0.1, 1.0], [50.0, np.inf])
    assert half_life in (50.0, None) and alpha in (0.1, 1.0)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"ties": "bradley"}, "'half', 'davidson' or 'auto'"),
        ({"first_side": 1}, "first_side must be True, False or a column"),
        ({"first_side": "winner"}, "first_side|numbers"),
        ({"tie_covariates": ["x"]}, "tie_covariates would be ignored"),
        ({"first_side": True, "covariates": ["position"]}, "first_side and the covariate 'position'"),
        ({"ties": "davidson", "tie_covariates": ["nothing"]}, "tie_covariates asks for the column 'nothing'"),
    ],
)
def test_bad_options_of_ties(options, message):
    with pytest.raises(ValueError, match=message):
        rate(simulate()[0], **options)


def test_what_was_not_estimated_is_refused():
    found = rate(simulate()[0])
    with pytest.raises(ValueError, match="half a win each way.*ties='davidson'"):
        found.tie_probability("i0", "i1")
    with pytest.raises(ValueError, match="first_side=True"):
        found.win_probability("i0", "i1", first_side=True)
    with pytest.raises(ValueError, match="ties='davidson'"):
        found.predict_outcomes({"a": ["i0"], "b": ["i1"]})
    with pytest.raises(ValueError, match="ties"):
        rate(simulate()[0], ties="davidson").by(["x"] * 600)
