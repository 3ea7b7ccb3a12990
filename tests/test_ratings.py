"""Ratings: every shortcut beside the slow, obvious version; bad input; what users see."""

from __future__ import annotations

import json
import re
import warnings
from types import SimpleNamespace

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import oracles
import preflearn
from preflearn import rate
from preflearn.cli.app import run
from preflearn.errors import InputError
from preflearn.ratings import BattleCounts, Ratings, count_battles, ranks
from preflearn.ratings.boards import category_boards, month_edges
from preflearn.ratings.diagnostics import strongest_circle, transitivity_test
from preflearn.ratings.held_out import (
    by_elo,
    by_model,
    by_win_rate,
    choose_alpha,
    choose_half_life,
    held_out_folds,
    leave_battle_out,
    log_losses,
)
from preflearn.ratings.judges import corrected, krippendorff_alpha, slopes_by_judge
from preflearn.ratings.planning import after_battles
from preflearn.ratings.ranks import (
    bonferroni_thresholds,
    group_letters,
    many_rank_bounds,
    rank_bounds,
    significant_signs,
    simultaneous_threshold,
)
from preflearn.ratings.reading import read_battles
from preflearn.ratings.strengths import (
    dense_covariance,
    drawn_errors,
    fit_strengths,
    many_standard_errors,
    variances_of_battles,
)
from preflearn.ratings.summary import verdict

POINTS = 400 / np.log(10)


def simulate(n=8, per_item=30, seed=0, ties=0.1, judges=0, covariate=0.0, spread=1.0):
    """Battles as a mapping, and the true strengths."""
    rng = np.random.default_rng(seed)
    f = spread * rng.normal(size=n)
    n_battles = n * per_item // 2
    a = rng.integers(0, n, n_battles)
    b = (a + rng.integers(1, n, n_battles)) % n
    z = rng.normal(size=(n_battles, 2))
    d = f[a] - f[b] + covariate * (z[:, 0] - z[:, 1])
    won = rng.random(n_battles) < 1 / (1 + np.exp(-d))
    winner = np.where(rng.random(n_battles) < ties, "tie", np.where(won, "model_a", "model_b"))
    names = np.array([f"m{k:02d}" for k in range(n)])
    battles = {"model_a": names[a].tolist(), "model_b": names[b].tolist(), "winner": winner.tolist()}
    if judges:
        battles["judge"] = rng.integers(0, judges, n_battles).tolist()
    if covariate:
        battles |= {"length_a": z[:, 0].tolist(), "length_b": z[:, 1].tolist()}
    return battles, f - f.mean()


def shares(battles):
    return np.array([{"model_a": 1.0, "model_b": 0.0, "tie": 0.5}[label] for label in battles["winner"]])


def dense(battles, items):
    place = {item: k for k, item in enumerate(items)}
    pairs = [(place[a], place[b]) for a, b in zip(battles["model_a"], battles["model_b"])]
    z = None
    if "length_a" in battles:
        z = (np.array(battles["length_a"]) - np.array(battles["length_b"]))[:, None]
    return oracles.rating_design(len(items), pairs, z)


# Strengths and covariances


@settings(max_examples=15, deadline=None)
@given(st.integers(2, 9), st.integers(2, 30), st.integers(0, 100), st.sampled_from([0.01, 0.3, 4.0]))
def test_strengths_are_those_of_the_dense_problem(n, per_item, seed, alpha):
    battles, _ = simulate(n, per_item, seed)
    if "model_a" not in battles["winner"] and "model_b" not in battles["winner"]:
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        found = rate(battles, alpha=alpha)
    X, y = dense(battles, found.items), shares(battles)
    m = len(found.items)
    theta, H = oracles.rating_mode(X, y, np.ones(len(y)), np.full(m, alpha))
    np.testing.assert_allclose(list(found.scores.values()), theta - theta.mean(), atol=1e-7)
    centre = np.eye(m) - 1 / m
    np.testing.assert_allclose(found.covariance, centre @ np.linalg.inv(H) @ centre, atol=1e-8)


def test_covariates_and_sandwich_are_those_of_the_dense_problem():
    battles, _ = simulate(6, 40, 1, judges=7, covariate=0.7)
    found = rate(battles, cluster="judge", covariates=["length"], alpha=0.2)
    X, y = dense(battles, found.items), shares(battles)
    scale = found.strengths.scale[0]
    penalty = np.r_[np.full(6, 0.2), 0.2 / scale**2]
    theta, H = oracles.rating_mode(X, y, np.ones(len(y)), penalty)
    np.testing.assert_allclose(found.strengths.scores, theta[:6] - theta[:6].mean(), atol=1e-7)
    np.testing.assert_allclose(found.strengths.coefficients, theta[6:], atol=1e-8)
    C = oracles.rating_sandwich(X, y, np.ones(len(y)), theta, H, penalty, battles["judge"])
    centre = np.eye(7)
    centre[:6, :6] -= 1 / 6
    unscale = np.diag(np.r_[np.ones(6), scale])
    np.testing.assert_allclose(unscale @ found.covariance @ unscale, centre @ C @ centre.T, atol=1e-8)
    board = found.covariates
    assert board["lower"][0] < 0.7 < board["upper"][0]
    typical = np.sqrt(np.mean(np.square(X[:, 6])))
    assert board["points"][0] == pytest.approx(POINTS * theta[6] * typical)


def test_many_items_take_no_matrix_and_say_the_same(monkeypatch):
    battles = read_battles(simulate(20, 20, 2, judges=9)[0], judge="judge")
    strengths = fit_strengths(battles, 0.3)
    exact = np.sqrt(np.diagonal(np.linalg.inv(np.linalg.inv(strengths.inverse_hessian))))
    wanted = np.arange(4)
    H = strengths.counted.hessian(strengths.curvatures).toarray() + 0.6 * np.eye(20)
    inverse = np.linalg.inv(H)
    assert exact.shape == (20,)
    found = many_standard_errors(strengths, None, wanted)
    np.testing.assert_allclose(found[:4], np.sqrt(np.diagonal(inverse))[:4], rtol=1e-6)
    np.testing.assert_allclose(found, np.sqrt(np.diagonal(inverse)), rtol=0.3)
    X = oracles.rating_design(20, battles.pairs)
    C = oracles.rating_sandwich(
        X, battles.share, battles.weight, strengths.theta, H, np.full(20, 0.3), battles.judge[0].tolist()
    )
    found = many_standard_errors(strengths, battles.judge[0], wanted)
    np.testing.assert_allclose(found[:4], np.sqrt(np.diagonal(C))[:4], rtol=1e-6)
    np.testing.assert_allclose(found, np.sqrt(np.diagonal(C)), rtol=0.5)
    monkeypatch.setattr("preflearn.ratings.strengths.MOST_FACTORED", 0)
    np.testing.assert_allclose(fit_strengths(battles, 0.3).theta, strengths.theta, atol=1e-7)


def test_answers_with_covariates_are_products_with_the_dense_design():
    battles = read_battles(simulate(5, 20, 16, covariate=0.5)[0], covariates=["length", "position"])
    answers, rng = battles.answers(), np.random.default_rng(0)
    X = oracles.rating_design(5, battles.pairs, battles.covariates)
    v, theta = rng.uniform(size=len(battles)), rng.normal(size=7)
    np.testing.assert_allclose(answers.differences(theta), X @ theta)
    np.testing.assert_allclose(answers.spread(v), X.T @ v)
    np.testing.assert_allclose(answers.spread_sizes(v), np.square(X).T @ v)
    H = (X * v[:, None]).T @ X
    np.testing.assert_allclose(answers.hessian(v).toarray(), H, atol=1e-10)
    np.testing.assert_allclose(answers.dense_hessian(v), H, atol=1e-10)
    some = answers.take(np.arange(7))
    np.testing.assert_allclose(some.differences(theta), X[:7] @ theta)
    plain = read_battles(simulate(5, 20, 16)[0]).counted()
    w = rng.uniform(size=plain.n_pairs)
    np.testing.assert_allclose(plain.hessian(w).toarray(), plain.dense_hessian(w), atol=1e-12)


def test_covariates_of_very_many_battles(monkeypatch):
    battles = simulate(6, 40, 1, covariate=0.7)[0]
    expected = rate(battles, covariates=["length"], alpha=0.2).strengths.theta
    monkeypatch.setattr("preflearn.losses.logistic._MANY", 10)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = rate(battles, covariates=["length"], alpha=0.2).strengths.theta
    np.testing.assert_allclose(found, expected, atol=1e-9)


def test_very_many_items_with_covariates_take_the_sparse_way(monkeypatch):
    battles, _ = simulate(12, 30, 17, covariate=0.5)
    exact = rate(battles, covariates=["length"], alpha=0.2)
    monkeypatch.setattr("preflearn.ratings.strengths.MOST_FACTORED", 0)
    monkeypatch.setattr("preflearn.ratings.strengths.MOST_DENSE", 0)
    sparse = rate(battles, covariates=["length"], alpha=0.2)
    assert sparse.scores == pytest.approx(exact.scores, abs=1e-6)
    assert not sparse.strengths.is_dense and np.isfinite(sparse.columns["lower"]).all()
    np.testing.assert_allclose(sparse.standard_errors, exact.standard_errors, rtol=0.35)


def test_variances_of_battles_with_covariates():
    battles = read_battles(simulate(5, 20, 3, covariate=0.5)[0], covariates=["length"])
    strengths = fit_strengths(battles, 0.3)
    X = oracles.rating_design(5, battles.pairs, battles.covariates * strengths.scale)
    expected = np.einsum("ij,jk,ik->i", X, strengths.inverse_hessian, X)
    np.testing.assert_allclose(variances_of_battles(strengths), expected, rtol=1e-9)


def test_leaving_a_battle_out_is_close_to_refitting():
    battles = read_battles(simulate(6, 40, 4)[0])
    formula = leave_battle_out(fit_strengths(battles, 0.3))
    for row in (0, 17, 60):
        rest = battles.take(np.delete(np.arange(len(battles)), row))
        strengths = fit_strengths(rest, 0.3)
        a, b = battles.pairs[row]
        d = strengths.scores[a] - strengths.scores[b]
        x = oracles.rating_design(6, [(a, b)])[0]
        v = x @ strengths.inverse_hessian @ x
        assert formula[row] == pytest.approx(1 / (1 + np.exp(-d / np.sqrt(1 + np.pi * v / 8))), abs=2e-3)


def test_maximum_likelihood_is_the_fixed_point_of_wins():
    battles, _ = simulate(6, 60, 5)
    found = rate(battles, alpha=0)
    read = read_battles(battles)
    p = 1 / (
        1 + np.exp(-(found.strengths.scores[read.pairs[:, 0]] - found.strengths.scores[read.pairs[:, 1]]))
    )
    expected = np.bincount(read.pairs[:, 0], p, 6) + np.bincount(read.pairs[:, 1], 1 - p, 6)
    np.testing.assert_allclose(expected, read.wins_of_items(), atol=1e-6)


# Ranks and groups


def test_threshold_of_one_difference_is_the_normal_quantile():
    C = np.array([[1.0, -1.0], [-1.0, 1.0]])
    assert simultaneous_threshold(C, 0.95) == pytest.approx(1.96, abs=0.06)
    assert bonferroni_thresholds(5.0, 2, 0.95) == pytest.approx(2.571, abs=0.001)


def test_threshold_of_independent_items_is_the_studentised_range():
    from scipy.stats import studentized_range

    expected = studentized_range.ppf(0.95, 10, np.inf) / np.sqrt(2)
    assert simultaneous_threshold(np.eye(10), 0.95) == pytest.approx(expected, abs=0.07)


@settings(max_examples=30, deadline=None)
@given(st.integers(2, 8), st.integers(0, 1000))
def test_letters_are_shared_exactly_by_those_that_cannot_be_told_apart(n, seed):
    rng = np.random.default_rng(seed)
    scores = -np.sort(-2 * rng.normal(size=n))
    A = rng.normal(size=(n, n))
    apart = significant_signs(scores, A @ A.T / n, 1.0)
    letters = group_letters(apart)
    for i in range(n):
        for j in range(n):
            assert bool(set(letters[i]) & set(letters[j])) == (apart[i, j] == 0)
    low, high = rank_bounds(apart)
    for i in range(n):
        assert low[i] == 1 + sum(apart[i, j] < 0 for j in range(n))
        assert high[i] == n - sum(apart[i, j] > 0 for j in range(n))
        assert low[i] <= i + 1 <= high[i]


def test_rank_bounds_of_many_items_count_intervals_that_do_not_touch():
    rng = np.random.default_rng(0)
    scores, se = 5 * rng.normal(size=40), rng.uniform(0.1, 0.4, 40)
    from scipy.stats import norm

    width = norm.ppf(0.5 + 0.5 * 0.95 ** (1 / 40)) * se
    low, high = many_rank_bounds(scores, se, 0.95)
    for i in range(40):
        ahead = sum(scores[j] - width[j] > scores[i] + width[i] for j in range(40))
        behind = sum(scores[j] + width[j] < scores[i] - width[i] for j in range(40))
        assert (low[i], high[i]) == (1 + ahead, 40 - behind)


def test_drawn_ranks_are_those_of_the_posterior_with_and_without_a_matrix(monkeypatch):
    battles, _ = simulate(60, 12, 3, judges=12)
    for options in ({}, {"cluster": "judge"}):
        found = rate(battles, alpha=0.4, **options)
        n, rows = 60, np.argsort(-found.strengths.scores)[:10]
        sparse = ranks.drawn_ranks(
            found.strengths.scores, drawn_errors(found.strengths, ranks.RANK_DRAWS), rows
        )
        draws = ranks.drawn_normal(dense_covariance(found.strengths, None)[:n, :n], 4000)
        dense = ranks.drawn_ranks(found.strengths.scores, [draws], rows)
        # Ranks counted one by one.
        f = found.strengths.scores + draws[:, 7]
        assert dense[:, 7].tolist() == [1 + sum(f > f[row]) for row in rows]
        np.testing.assert_allclose(sparse.mean(axis=1), dense.mean(axis=1), atol=1.0)
        np.testing.assert_allclose(sparse.std(axis=1), dense.std(axis=1), rtol=0.15)
    low, high = ranks.drawn_rank_bounds(dense[:, :2000], n, 0.9)
    inside = (low[:, None] <= dense[:, 2000:]) & (dense[:, 2000:] <= high[:, None])
    assert 0.87 < inside.all(axis=0).mean() < 0.97


def test_the_best_of_very_many_items_have_ranks_that_are_of_use(monkeypatch):
    """A few good items have met often, many others once or twice: nobody is sure to be ahead of all of these."""
    rng = np.random.default_rng(0)
    f = np.r_[np.linspace(5, 3, 5), np.zeros(300)]
    a, b = rng.integers(0, 5, 600), rng.integers(0, 305, 600)
    a, b = a[a != b], b[a != b]
    won = rng.random(a.size) < 1 / (1 + np.exp(-(f[a] - f[b])))
    found = rate({"a": a, "b": b, "winner": won.astype(float)}, alpha=0.3)
    before = many_rank_bounds(found.strengths.scores, found.standard_errors, 0.95)[1]
    assert "rank" not in found.top(3)
    assert list(found.top(3, ranks=True)["rank_upper"]) == found.columns["rank_upper"][:3]
    monkeypatch.setattr("preflearn.ratings.result.MOST_COMPARED", 100)
    for most_dense in (3000, 100):
        monkeypatch.setattr("preflearn.ratings.strengths.MOST_DENSE", most_dense)
        large = rate({"a": a, "b": b, "winner": won.astype(float)}, alpha=0.3)
        best = large.columns["rank_upper"][0]
        assert best < 30 < before[large.items.index(large.columns["item"][0])]
        few = large.top(3, ranks=True)
        assert list(few["rank"]) == [1, 2, 3] and few["rank_upper"][0] <= best
        assert set(large.columns["item"][:3]) <= set(range(5))


def test_intervals_and_ranks_hold_the_truth():
    """40 seeds; `benchmarks/ratings.py` has more of them, sizes and judges."""
    covered, together = [], []
    for seed in range(40):
        battles, f = simulate(12, 40, seed, ties=0.0)
        found = rate(battles)
        board = found.columns
        place = [int(item[1:]) for item in board["item"]]
        truth = 1000 + POINTS * f[place]
        covered.append(np.mean((board["lower"] <= truth) & (truth <= board["upper"])))
        ranks = 1 + (f[place][:, None] < f[place][None, :]).sum(axis=1)
        together.append(((board["rank_lower"] <= ranks) & (ranks <= board["rank_upper"])).all())
    assert 0.91 <= np.mean(covered) <= 0.99
    assert np.mean(together) >= 0.93


def test_judges_with_tastes_need_the_sandwich():
    """Judges whose tastes differ make model-based intervals too short."""
    rng = np.random.default_rng(0)
    n, judges, per_judge = 6, 40, 40
    shorter = []
    for _ in range(3):
        a = rng.integers(0, n, judges * per_judge)
        b = (a + rng.integers(1, n, a.size)) % n
        judge = np.repeat(np.arange(judges), per_judge)
        taste = 1.5 * rng.normal(size=(judges, n))
        won = rng.random(a.size) < 1 / (1 + np.exp(-(taste[judge, a] - taste[judge, b])))
        table = {"a": a, "b": b, "winner": won.astype(float), "judge": judge}
        robust, model = rate(table, judge="judge"), rate(table, judge="judge", cluster=False)
        shorter.append(np.mean(model.standard_errors / robust.standard_errors))
    assert np.mean(shorter) < 0.7


# Held-out battles, judges, diagnostics


def test_baselines_are_those_of_their_definitions():
    battles = read_battles(simulate(5, 30, 6)[0])
    training, test = battles.take(np.arange(50)), battles.take(np.arange(50, 60))
    games = [(a, b, y) for (a, b), y in zip(training.pairs.tolist(), training.share)]
    r = oracles.elo_by_hand(games)
    expected = [1 / (1 + 10 ** ((r.get(b, 0) - r.get(a, 0)) / 400)) for a, b in test.pairs.tolist()]
    np.testing.assert_allclose(by_elo(training, test), expected)
    rates = {}
    for item in range(5):
        won = sum(y if a == item else 1 - y for a, b, y in games if item in (a, b))
        rates[item] = (won + 0.5) / (sum(item in game[:2] for game in games) + 1)
    odds = [rates[a] / (1 - rates[a]) / (rates[b] / (1 - rates[b])) for a, b in test.pairs.tolist()]
    np.testing.assert_allclose(by_win_rate(training, test), [one / (1 + one) for one in odds])


def test_held_out_table():
    battles, _ = simulate(8, 60, 7, judges=6, spread=1.5)
    battles["day"] = [f"2024-{1 + k % 12:02d}-{1 + k % 28:02d}" for k in range(len(battles["winner"]))]
    found = rate(pd.DataFrame(battles), judge="judge", time="day")
    table = found.held_out
    assert list(dict.fromkeys(table["held_out"])) == ["battle", "judge", "future"]
    ours = table[table["method"] == "Bradley-Terry"].set_index("held_out")["log_loss"]
    # Every fold refitted by the dense problem, with the alpha that is chosen without it.
    read, losses = found.raw, []
    for training, test in held_out_folds(read, "judge"):
        assert not set(read.judge[0][training]) & set(read.judge[0][test])
        X = oracles.rating_design(8, read.pairs)
        alpha = choose_alpha(read.take(training)).alpha
        theta, H = oracles.rating_mode(
            X[training], read.share[training], np.ones(len(training)), np.full(8, alpha)
        )
        variance = np.einsum("ij,jk,ik->i", X[test], np.linalg.inv(H), X[test])
        p = 1 / (1 + np.exp(-(X[test] @ theta) / np.sqrt(1 + np.pi * variance / 8)))
        y = read.share[test]
        losses += (-(y * np.log(p) + (1 - y) * np.log(1 - p))).tolist()
    assert len(losses) == len(read) and ours["judge"] == pytest.approx(np.mean(losses), abs=1e-8)
    assert (ours < np.log(2)).all()
    for training, test in held_out_folds(read, "future"):
        assert read.time[training].max() < read.time[test].min()
    assert found.calibration.n_pairs == len(battles["winner"])


def test_what_is_chosen_is_chosen_without_the_battles_that_are_held_out():
    battles, _ = simulate(6, 8, 3, spread=0.2, ties=0.0)
    found = rate(battles)
    alphas = {
        choose_alpha(found.raw.take(training)).alpha for training, _ in held_out_folds(found.raw, "battle")
    }
    assert len(alphas) > 1
    honest, flattered = (
        found.held_out["log_loss"][0],
        rate(battles, alpha=found.alpha).held_out["log_loss"][0],
    )
    assert honest > flattered
    # Later battles: the half-life, too.
    battles["day"] = list(range(len(battles["winner"])))
    timed = rate(battles, time="day", half_life="auto", alpha=0.5)
    losses = []
    for past, block in held_out_folds(timed.raw, "future"):
        training, test = timed.raw.take(past), timed.raw.take(block)
        half_life, alpha = choose_half_life(training, [0.5])
        losses += log_losses(by_model(alpha, half_life)(training, test), test.share).tolist()
    table = timed.held_out
    ours = table[(table["held_out"] == "future") & (table["method"] == "Bradley-Terry")]["log_loss"]
    assert ours.item() == pytest.approx(np.mean(losses), abs=1e-12)


def test_agreement_is_krippendorffs_alpha():
    rng = np.random.default_rng(1)
    a = rng.integers(0, 3, 60)
    b = (a + rng.integers(1, 3, 60)) % 3
    table = {"a": a, "b": b, "winner": rng.choice([0.0, 0.5, 1.0], 60), "judge": rng.integers(0, 4, 60)}
    read = read_battles(table, judge="judge")
    units = {}
    for (one, other), y in zip(read.pairs.tolist(), read.share):
        units.setdefault((min(one, other), max(one, other)), []).append(y if one < other else 1 - y)
    both_ways = [*units.values(), *([1 - y for y in unit] for unit in units.values())]
    assert krippendorff_alpha(read) == pytest.approx(oracles.krippendorff_by_pairs(both_ways))


def test_groups_of_judges_are_compared_judgement_by_judgement():
    rng = np.random.default_rng(8)
    a = rng.integers(0, 4, 80)
    b = (a + rng.integers(1, 4, 80)) % 4
    judge = rng.choice(["p", "q", "lm"], 80)
    table = {"a": a, "b": b, "winner": rng.choice([0.0, 0.5, 1.0], 80), "judge": judge}
    found = rate(table, judge="judge", cluster=False).compare_judges(["p", "q"], "lm")
    who = [("one" if j != "lm" else "other", (min(x, y), max(x, y)), w if x < y else 1 - w)
           for x, y, w, j in zip(a, b, table["winner"], judge)]  # fmt: skip
    shared = {unit for group, unit, _ in who if group == "one"} & {
        unit for group, unit, _ in who if group == "other"
    }
    between, inside = [], {"one": [], "other": []}
    for k, (group, unit, won) in enumerate(who):
        for j, (group_2, unit_2, won_2) in enumerate(who):
            if unit == unit_2 and unit in shared and j != k:
                (inside[group] if group == group_2 else between).append(won == won_2)
    assert found == pytest.approx(
        {"shared": len(shared), "agreement": np.mean(between), "within_one": np.mean(inside["one"]),
         "within_other": np.mean(inside["other"])}
    )  # fmt: skip
    with pytest.raises(ValueError, match="No judges of these names: nobody"):
        rate(table, judge="judge").compare_judges("nobody", "lm")
    with pytest.raises(ValueError, match="in both groups"):
        rate(table, judge="judge").compare_judges(["p", "lm"], "lm")


def test_corrected_pvalues_are_those_of_holm():
    p = np.array([0.01, np.nan, 0.04, 0.03, 0.2])
    found = corrected(p)
    np.testing.assert_allclose(found[[0, 2, 3, 4]], oracles.holm_by_steps(p[[0, 2, 3, 4]]))
    assert np.isnan(found[1])


def test_biased_judges_are_found():
    rng = np.random.default_rng(2)
    n, per_judge = 6, 300
    f = rng.normal(size=n)
    a = rng.integers(0, n, 6 * per_judge)
    b = (a + rng.integers(1, n, a.size)) % n
    judge = np.repeat(np.arange(6), per_judge)
    d = f[a] - f[b] + np.where(judge == 3, 1.5, 0.0)
    d = d + np.where(judge == 4, 2.0 * ((a == 4) * 1.0 - (b == 4)), 0.0)
    d = np.where(judge == 5, 0.0, d)
    won = rng.random(a.size) < 1 / (1 + np.exp(-d))
    names = np.array([f"m{k}" for k in range(n)])
    table = {"model_a": names[a], "model_b": names[b], "winner": won.astype(float), "judge": names[judge]}
    found = pd.DataFrame(rate(table, judge="judge").judges).set_index("judge")
    assert found["position_p"]["m3"] < 0.001 and found["position_bias"]["m3"] == pytest.approx(1.5, abs=0.6)
    assert (found["position_p"].drop("m3") > 0.01).all()
    assert found["self_p"]["m4"] < 0.01 and found["self_bias"]["m4"] > 0.8
    assert found["reliability"].idxmin() == "m5" and found["reliability"]["m5"] < 0.5


def test_slopes_are_those_of_a_penalised_regression():
    rng = np.random.default_rng(3)
    x, offset, y = rng.normal(size=50), rng.normal(size=50), rng.integers(0, 2, 50).astype(float)
    b, se = slopes_by_judge(np.zeros(50, dtype=int), x, offset, y, np.ones(50))
    p = 1 / (1 + np.exp(-(offset + b[0] * x)))
    assert np.sum(x * (y - p)) == pytest.approx(b[0], abs=1e-8)
    assert se[0] == pytest.approx((np.sum(x**2 * p * (1 - p)) + 1) ** -0.5)


def test_circles_are_noticed_and_transitive_results_are_not():
    fair = [
        transitivity_test(fit_strengths(read_battles(simulate(8, 60, s, ties=0)[0]), 0.03)) for s in range(20)
    ]
    p = np.array([one["pvalue"] for one in fair])
    assert 0.2 < p.mean() < 0.8 and (p < 0.01).sum() <= 2
    circle = {"winner": ["r"] * 20 + ["s"] * 20 + ["p"] * 20, "loser": ["s"] * 20 + ["p"] * 20 + ["r"] * 20}
    read = read_battles(circle)
    assert transitivity_test(fit_strengths(read, 0.03))["pvalue"] < 1e-6
    found = strongest_circle(read)
    assert found is not None and "".join(map(str, found)) in ("rsp", "spr", "prs")


# Parts, time, next battles


def test_boards_by_category_find_the_item_that_differs():
    rng = np.random.default_rng(4)
    n = 5
    f = np.linspace(1, -1, n)
    a = rng.integers(0, n, 1500)
    b = (a + rng.integers(1, n, a.size)) % n
    category = rng.choice(["code", "prose"], a.size)
    extra = np.where(category == "code", 1.5, -1.5)
    d = f[a] - f[b] + extra * ((a == 4) * 1.0 - (b == 4))
    table = {"a": a, "b": b, "winner": (rng.random(a.size) < 1 / (1 + np.exp(-d))).astype(float)}
    boards = pd.DataFrame(rate(table).by(category)).set_index(["category", "item"])
    assert boards.loc[("code", 4), "pvalue"] < 0.001
    assert boards.loc[("prose", 4), "difference"] == pytest.approx(-boards.loc[("code", 4), "difference"])
    # 1.5 more than the others is 1.2 more than the mean, from which the others are 0.3 away.
    truth = POINTS * np.where(np.arange(n) == 4, 1.2, -0.3)
    np.testing.assert_allclose(boards.loc["code"]["difference"].sort_index(), truth, atol=45)
    assert boards["battles"].groupby("category").sum().sum() == 3000
    quick = pd.DataFrame(rate(table).by(category, intervals=False)).set_index(["category", "item"])
    pd.testing.assert_series_equal(quick["rating"], boards["rating"], rtol=1e-6)


def test_boards_by_category_are_one_model_of_items_and_differences():
    battles = read_battles(simulate(4, 60, 14)[0])
    codes = np.arange(len(battles)) % 3
    found = category_boards(battles, codes, 3, 0.2, 0.5)
    X = np.zeros((len(battles), 4 + 12))
    for row, ((a, b), c) in enumerate(zip(battles.pairs, codes)):
        X[row, [a, b]] = 1, -1
        X[row, [4 + 3 * a + c, 4 + 3 * b + c]] = 0.5, -0.5
    w, H = oracles.rating_mode(X, battles.share, battles.weight, np.full(16, 0.2))
    rows = {(i, c): np.eye(16)[i] + 0.5 * np.eye(16)[4 + 3 * i + c] for i in range(4) for c in range(3)}
    for (i, c), x in rows.items():
        x = x - np.mean([rows[j, c] for j in range(4)], axis=0)
        assert found.scores[i, c] == pytest.approx(x @ w, abs=1e-6)
        assert found.errors[i, c] == pytest.approx(np.sqrt(x @ np.linalg.solve(H, x)), rel=1e-6)
        mean = np.mean(
            [rows[i, d] - np.mean([rows[j, d] for j in range(4)], axis=0) for d in range(3)], axis=0
        )
        assert found.differences[i, c] == pytest.approx((x - mean) @ w, abs=1e-6)


def test_boards_by_category_have_the_errors_of_the_dense_sandwich():
    table, _ = simulate(4, 60, 14, judges=4)
    battles = read_battles(table)
    codes, judge = np.arange(len(battles)) % 3, np.array(table["judge"])
    found = category_boards(battles, codes, 3, 0.2, 0.5, judge)
    X = np.zeros((len(battles), 16))
    for row, ((a, b), c) in enumerate(zip(battles.pairs, codes)):
        X[row, [a, b, 4 + 3 * a + c, 4 + 3 * b + c]] = 1, -1, 0.5, -0.5
    penalty = np.full(16, 0.2)
    w, H = oracles.rating_mode(X, battles.share, battles.weight, penalty)
    C = oracles.rating_sandwich(X, battles.share, battles.weight, w, H, penalty, judge)
    single = 0
    for i in range(4):
        for c in range(3):
            x = np.zeros(16)
            x[:4], x[4 + c :: 3] = np.eye(4)[i] - 0.25, 0.5 * (np.eye(4)[i] - 0.25)
            plain, clustered = np.sqrt(x @ np.linalg.solve(H, x)), np.sqrt(x @ C @ x)
            expected = clustered if found.freedom[i, c] >= 1 else max(plain, clustered)
            single += 1 <= found.freedom[i, c] < 2 and clustered < plain
            assert found.errors[i, c] == pytest.approx(expected, rel=1e-6)
    assert single  # where fewer than three clusters count, and more than one, theirs is the smaller error


def test_boards_by_category_predict_battles_to_come():
    rng = np.random.default_rng(2)
    n, k = 6, 900
    f = rng.normal(size=(n, 2))
    a = rng.integers(0, n, k)
    b, c = (a + rng.integers(1, n, k)) % n, rng.integers(0, 2, k)
    won = rng.random(k) < 1 / (1 + np.exp(-(f[a, c] - f[b, c])))
    names = np.array(list("pqrstu"))
    kinds = np.array(["code", "prose"])[c]
    table = pd.DataFrame({"a": names[a], "b": names[b], "winner": np.where(won, "a", "b")})
    old, new = table[:600], table[600:].drop(columns="winner")
    ratings = rate(old, alpha=0.3)
    boards = ratings.boards(kinds[:600])
    assert boards.ratio > 0 and boards.categories == list(dict.fromkeys(kinds[:600]))
    p = boards.predict(new, kinds[600:])
    one = boards.win_probability(*new.iloc[0], kinds[600])
    assert p[0] == pytest.approx(one) and 0 < one < 1
    plain = ratings.predict(new)
    assert plain[0] == pytest.approx(ratings.win_probability(*new.iloc[0]))
    y = won[600:].astype(float)
    assert log_losses(p, y).mean() < log_losses(plain, y).mean() - 0.01
    # One board for all is the board; the table is that of `by`; without intervals the strengths are the same.
    same = ratings.boards(kinds[:600], ratio=0)
    np.testing.assert_allclose(same.predict(new, kinds[600:]), plain, atol=1e-6)
    pd.testing.assert_frame_equal(boards.table, ratings.by(kinds[:600]))
    bare = ratings.boards(kinds[:600], ratio=boards.ratio, intervals=False)
    np.testing.assert_allclose(bare.strengths, boards.strengths, atol=1e-6)
    assert boards.scores("code")["p"] == pytest.approx(boards.strengths[0, boards.categories.index("code")])
    # What has not been seen is average.
    with pytest.warns(UserWarning, match="None of the items"):
        assert ratings.predict({"a": ["new"], "b": ["newer"]})[0] == 0.5
    mean = boards.strengths[0].mean() - boards.strengths[1].mean()
    assert boards.predict({"a": ["p"], "b": ["q"]}, ["verse"])[0] == pytest.approx(1 / (1 + np.exp(-mean)))
    with pytest.raises(ValueError, match="'verse' is not one of the categories: found"):
        boards.win_probability("p", "q", "verse")
    with pytest.raises(ValueError, match="one category for each of 300 battles: found 2"):
        boards.predict(new, ["code", "prose"])
    with pytest.raises(ValueError, match="1 battle has no category"):
        ratings.by([None, *kinds[1:600]])
    with pytest.raises(ValueError, match="ratio must be 'auto' or a number"):
        ratings.boards(kinds[:600], ratio=-1)


def test_predictions_control_for_covariates():
    battles, _ = simulate(5, 60, 4, covariate=1.0)
    found = rate(battles, covariates=["length", "position"])
    p = found.predict({name: battles[name] for name in battles if name != "winner"})
    np.testing.assert_allclose(p, 1 / (1 + np.exp(-found.strengths.differences())))
    with pytest.raises(InputError, match="covariates asks for 'length'"):
        found.predict({"model_a": ["m00"], "model_b": ["m01"]})


def test_half_life_is_found_where_strengths_drift():
    rng = np.random.default_rng(5)
    n, days = 10, 900
    walk = np.cumsum(rng.normal(size=(days, n)) * 0.15, axis=0)
    day = np.sort(rng.integers(0, days, 4000))
    a = rng.integers(0, n, 4000)
    b = (a + rng.integers(1, n, 4000)) % n
    d = walk[day, a] - walk[day, b]
    won = rng.random(4000) < 1 / (1 + np.exp(-d))
    table = {"a": a, "b": b, "winner": won.astype(float), "day": day.astype(float)}
    found = rate(table, time="day", half_life="auto")
    assert found.half_life is not None and found.half_life <= 240
    months = pd.DataFrame(found.by_month())
    assert months["month"].nunique() >= 29 and {"rating", "lower", "upper"} <= set(months.columns)
    weighted = np.exp2(-(day.max() - day) / 100.0)
    by_hand = rate({**table, "w": weighted}, weight="w", alpha=0.1)
    np.testing.assert_allclose(
        list(rate(table, time="day", half_life=100, alpha=0.1).scores.values()), list(by_hand.scores.values())
    )


def test_next_battles_are_about_the_goal():
    battles, _ = simulate(12, 20, 8)
    found = rate(battles)
    asked = found.next_battles(6, goal="top-3")
    order = list(found.table["item"])
    assert len(asked) == 6
    near = set(order[:7])
    assert sum(a in near and b in near for a, b in zip(asked["item_a"], asked["item_b"])) >= 4
    pair = found.next_battles(2, goal=f"{order[0]} vs {order[1]}")
    assert [set(row) for row in zip(pair["item_a"], pair["item_b"])] == [{order[0], order[1]}] * 2
    assert len(found.next_battles(100)) == 100
    with pytest.raises(ValueError, match="goal must be"):
        found.next_battles(3, goal="best")
    with pytest.raises(ValueError, match="between top-1 and top-11"):
        found.next_battles(3, goal="top-12")


def test_the_number_of_battles_needed_settles_the_question():
    battles, _ = simulate(6, 30, 9, ties=0)
    found = rate(battles, alpha=0.1)
    gaps = -np.diff(found.columns["rating"])
    place = int(np.argmax(np.where(gaps < 60, gaps, 0)))  # neighbours that are neither equal nor told apart
    first, second = list(found.table["item"])[place : place + 2]
    needed = found.battles_needed(f"{first} vs {second}")
    assert needed is not None and needed > 0
    a, b = found.items.index(first), found.items.index(second)
    for n, settled in ((0.8 * needed, False), (needed, True)):
        C = after_battles(found.strengths.scores, found.covariance, a, b, n)
        gap = found.strengths.scores[a] - found.strengths.scores[b]
        assert (gap >= found.threshold * np.sqrt(C[a, a] + C[b, b] - 2 * C[a, b])) == settled


# Input


@pytest.mark.parametrize("kind", [pd.DataFrame, pl.DataFrame])
def test_frames_in_and_out(kind):
    battles, _ = simulate()
    found = rate(kind(battles))
    assert isinstance(found, Ratings) and isinstance(found.table, kind)
    assert list(found.table.columns) == [
        "item", "rating", "lower", "upper", "rank", "rank_lower", "rank_upper", "group", "battles",
    ]  # fmt: skip
    assert sum(found.table["battles"]) == 2 * len(battles["winner"])
    assert found.scores == rate(battles).scores
    assert np.mean(list(found.scores.values())) == pytest.approx(0, abs=1e-12)
    assert np.mean(found.columns["rating"]) == pytest.approx(1000)
    assert found.win_probability("m00", "m01") + found.win_probability("m01", "m00") == pytest.approx(1)


def test_ways_to_say_who_won():
    sides = {"model_a": ["x", "y", "z", "x"], "model_b": ["y", "z", "x", "z"]}
    expected = rate({**sides, "winner": ["model_a", "model_b", "tie", "model_a"]}).scores
    for winner in (
        ["a", "b", "draw", "a"], ["x", "z", "both bad", "x"],
        [1, 0, 0.5, 1], ["left", "right", "tie (bothbad)", "left"],
    ):  # fmt: skip
        assert rate({**sides, "winner": winner}).scores == expected
    assert rate(
        {"model_b": sides["model_a"], "model_a": sides["model_b"], "winner": ["b", "a", "tie", "b"]}
    ).scores == (pytest.approx(expected))
    listed = {
        "winner": ["x", "z", "z", "x"],
        "loser": ["y", "y", "x", "z"],
        "tie": [False, False, True, False],
    }
    assert rate(listed).scores == pytest.approx(expected)
    renamed = {"w": listed["winner"], "l": listed["loser"]}
    assert rate(renamed, winner="w", loser="l").scores == rate({**listed, "tie": [False] * 4}).scores


def test_counts_are_as_good_as_battles():
    battles, _ = simulate(6, 50, 10)
    frame = pd.DataFrame(battles)
    counts = count_battles(frame.iloc[k : k + 40] for k in range(0, len(frame), 40))
    assert len(counts["count"]) <= 3 * 15 and sum(counts["count"]) == len(frame)
    few, all_of_them = rate(counts, weight="count", alpha=0.2), rate(frame, alpha=0.2)
    assert few.scores == pytest.approx(all_of_them.scores)
    np.testing.assert_allclose(few.columns["lower"], all_of_them.columns["lower"])
    assert few.columns["battles"] == all_of_them.columns["battles"]


def test_more_battles_give_the_ratings_of_all():
    battles, _ = simulate(6, 50, 11, judges=4)
    frame = pd.DataFrame(battles)
    found = rate(frame.iloc[:100], judge="judge", alpha=0.2).update(frame.iloc[100:])
    expected = rate(frame, judge="judge", alpha=0.2)
    assert found.scores == pytest.approx(expected.scores, abs=1e-9)
    np.testing.assert_allclose(found.columns["upper"], expected.columns["upper"])


def test_columns_that_were_not_used_are_named(tmp_path, capsys):
    battles, _ = simulate(judges=3)
    assert (
        rate(battles)
        .notes[0]
        .startswith(
            "The column judge was not used. Pass judge='judge' to estimate judges' biases and, with ten judges or more,"
        )
    )
    rows = np.arange(len(battles["winner"]))
    dated = {**battles, "prompt": rows, "date": rows}
    told = rate(dated).notes
    assert "cluster='prompt'" in told[1] and "time='date'" in told[2]
    path = tmp_path / "battles.csv"
    pd.DataFrame(dated).to_csv(path, index=False)
    assert run(["rate", str(path), "--alpha", "0.1", "--json"]) == 0
    notes = json.loads(capsys.readouterr().out)["notes"]
    assert "Pass --judge judge to estimate" in notes[0] and "Pass --time date" in notes[2]
    assert run(["rate", str(path), "--alpha", "0.1", "--report", str(tmp_path / "r.html"), "-q"]) == 0
    assert "Pass --judge judge to" in (page := (tmp_path / "r.html").read_text()) and "judge=" not in page
    few = rate(battles, judge="judge")
    assert few.notes[0].startswith("3 judges are too few") and few.cluster is None
    asked = rate(battles, judge="judge", cluster="judge")
    assert [note for note in asked.notes if "Ranks of 8 items rest on 3 clusters" in note] == asked.notes
    assert (asked.degrees_of_freedom <= 2).all() and (asked.degrees_of_freedom > 1.5).all()
    assert not rate(battles, judge="judge", cluster=False).notes


def test_covariates_of_winners_and_losers():
    battles, _ = simulate(5, 40, 15, ties=0.0, covariate=0.6)
    first = np.array(battles["winner"]) == "model_a"
    listed = {}
    for name, (a, b) in {"": ("model_a", "model_b"), "_length": ("length_a", "length_b")}.items():
        one, other = np.array(battles[a]), np.array(battles[b])
        listed["winner" + name], listed["loser" + name] = (
            np.where(first, one, other),
            np.where(first, other, one),
        )
    found, expected = rate(listed, covariates=["length"]), rate(battles, covariates=["length"])
    assert found.scores == pytest.approx(expected.scores, abs=1e-8)
    assert found.covariates["coefficient"][0] == pytest.approx(expected.covariates["coefficient"][0])


def test_an_anchor_moves_every_rating():
    battles, _ = simulate()
    plain, moved = rate(battles), rate(battles, anchor={"m03": 1200})
    assert dict(zip(moved.columns["item"], moved.columns["rating"]))["m03"] == pytest.approx(1200)
    shift = np.array(moved.columns["lower"]) - plain.columns["lower"]
    np.testing.assert_allclose(shift, shift[0])
    with pytest.raises(ValueError, match="has not played"):
        rate(battles, anchor={"nobody": 1})
    with pytest.raises(ValueError, match="one item its rating"):
        rate(battles, anchor="m03")


def test_an_item_that_won_everything_is_finite_and_uncertain():
    battles = {"winner": ["x"] * 5 + ["y", "z"] * 10, "loser": ["y"] * 5 + ["z", "y"] * 10}
    found = rate(battles)
    board = pd.DataFrame(found.columns).set_index("item")
    assert board.index[0] == "x" and np.isfinite(board["rating"]).all()
    assert board["upper"]["x"] - board["lower"]["x"] > 1.5 * (board["upper"]["y"] - board["lower"]["y"])


GOOD = {"model_a": ["x", "y", "x"], "model_b": ["y", "z", "z"], "winner": ["model_a", "model_b", "tie"]}


@pytest.mark.parametrize(
    ("change", "options", "message"),
    [
        ({"winner": ["model_a", "?!", "?!"]}, {}, r"'\?!' \(2\)"),
        ({"winner": ["model_a", None, "tie"]}, {}, r"missing \(1\)"),
        ({"winner": ["x", "x", "z"]}, {}, r"'x' \(1\)"),
        ({"model_b": ["y", "y", "z"]}, {}, "item against itself"),
        ({"model_a": ["x"] * 3, "model_b": ["x"] * 3}, {}, "against itself"),
        ({"winner": ["tie"] * 3}, {}, "No battle was won"),
        ({"model_a": ["x", None, "y"]}, {}, "values are missing"),
        ({"day": ["2024-01-01", None, "2024-01-02"]}, {"time": "day"}, "1 of 3 dates are missing"),
        ({"day": ["2024-01-01", "soon", "2024-01-02"]}, {"time": "day"}, "cannot be read"),
        ({"long": [1.0, 1.0, 1.0]}, {"covariates": ["long"]}, "is constant"),
        ({"long": [1.0, -1.0, 0.5]}, {"covariates": ["long"]}, "alone predicts every one"),
        ({"long": [1.0, np.nan, 0.5]}, {"covariates": ["long"]}, "missing or infinite"),
        ({}, {"covariates": ["long"]}, "neither long_a and long_b nor long"),
        ({}, {"judge": "judge"}, "judge asks for the column 'judge'"),
        ({}, {"half_life": 30}, "needs the time"),
        ({}, {"half_life": -1, "time": "winner"}, "positive number of days"),
        ({}, {"level": 1.2}, "level is the probability"),
        ({}, {"alpha": -1}, "alpha"),
        ({}, {"a": "model_a"}, "both sides"),
        ({"w": [1, -1, 1]}, {"weight": "w"}, "must not be negative"),
        ({"c": ["k"] * 3}, {"cluster": "c"}, "one value only"),
    ],
)  # fmt: skip
def test_bad_input_gets_one_clear_message(change, options, message):
    with pytest.raises(ValueError, match=message):
        rate({**GOOD, **change}, **options)


def test_dates_in_many_forms():
    expected = [-33774.0, 0.0, 19723.0]
    for days in (
        [18770713, 19700101, 20240101], ["1877-07-13", "1970-01-01", "2024-01-01"], expected,
        np.array(["1877-07-13", "1970-01-01", "2024-01-01"], dtype="datetime64[D]"),
    ):  # fmt: skip
        np.testing.assert_allclose(read_battles({**GOOD, "day": days}, time="day").time, expected)


def test_more_bad_input():
    with pytest.raises(ValueError, match="No columns of two sides"):
        rate({"x": [1], "y": [2]})
    with pytest.raises(ValueError, match="none says who won"):
        rate({"model_a": ["x"], "model_b": ["y"]})
    with pytest.raises(ValueError, match="position of winners and losers"):
        rate({"winner": ["x"], "loser": ["y"]}, covariates=["position"])
    with pytest.raises(ValueError, match="items as well as shares"):
        rate({"a": [0, 1, 0], "b": [1, 0, 1], "winner": [1, 1, 0]})
    assert (
        rate({"a": [0, 2, 1], "b": [1, 0, 2], "winner": [1, 1, 0]}).scores[1] < 0
    )  # 1 has not played in row 2
    with pytest.raises(ValueError, match="Several pairs of columns"):
        rate({"model_a": ["x"], "model_b": ["y"], "left": ["x"], "right": ["y"], "winner": ["x"]})
    with pytest.raises(ValueError, match="won or lost everything"):
        rate({"winner": ["x", "y"], "loser": ["y", "z"]}, alpha=0)


def test_components_are_named_and_shrunk_or_refused():
    battles = {"winner": ["x", "y", "p", "q"] * 3, "loser": ["y", "x", "q", "p"] * 3}
    with pytest.warns(UserWarning, match="2 components that no battle connects: p, q; x, y"):
        found = rate(battles)
    assert found.notes and np.isfinite(found.columns["rating"]).all()
    with pytest.raises(ValueError, match="maximum likelihood has none"):
        rate(battles, alpha=0)


def test_covariates_that_decide_together_are_refused():
    rng = np.random.default_rng(6)
    u, v = rng.normal(size=(2, 60))
    a = rng.integers(0, 4, 60)
    table = {
        "a": a,
        "b": (a + rng.integers(1, 4, 60)) % 4,
        "winner": (u + v > 0).astype(float),
        "u": u,
        "v": v,
    }
    with pytest.raises(ValueError, match="together predict every one"):
        rate(table, covariates=["u", "v"])


# What users see


def test_the_name_is_public():
    assert preflearn.rate is rate and "rate" in preflearn.__all__


def test_text_markdown_and_page(tmp_path):
    battles, _ = simulate(6, 60, 12, judges=5, covariate=0.5)
    battles["day"] = [f"2024-{1 + k % 6:02d}-10" for k in range(len(battles["winner"]))]
    found = rate(battles, judge="judge", covariates=["length", "position"], time="day")
    best = found.columns["item"][0]
    assert best in repr(found) and "neighbours" in repr(found)
    assert found.to_markdown(2).splitlines()[2].startswith(f"| 1 | {best} |")
    found.report(tmp_path / "board.html", title="Six <models>")
    page = (tmp_path / "board.html").read_text(encoding="utf-8")
    assert (
        "Six &lt;models&gt;" in page
        and page.count("<svg") > 6
        and "http://" not in page.replace("http://www.w3.org", "")
    )
    for heading in ("Leaderboard", "What was controlled for", "Judges", "Battles to run next", "by month"):
        assert heading in page
    found.report(tmp_path / "board.md")
    assert "| rank | item |" in (tmp_path / "board.md").read_text(encoding="utf-8")
    import matplotlib.pyplot as plt

    for kind in ("ratings", "ranks", "wins"):
        found.plot(kind)
    plt.close("all")
    with pytest.raises(ValueError, match="kind must be"):
        found.plot("pie")


def test_command(tmp_path, capsys):
    battles, _ = simulate(6, 60, 13)
    path = tmp_path / "battles.csv"
    pd.DataFrame(battles).to_csv(path, index=False)
    assert (
        run(["rate", str(path), "--goal", "top-2", "--anchor", "m00=1100", "-o", str(tmp_path / "b.csv")])
        == 0
    )
    said = capsys.readouterr().out
    assert "Ratings of 6 items by 180 battles" in said and "held-out battle" in said and "top-2" in said
    board = pd.read_csv(tmp_path / "b.csv").set_index("item")
    assert board["rating"]["m00"] == 1100
    assert run(["rate", str(path), "--json", "--report", str(tmp_path / "b.html"), "--alpha", "0.1"]) == 0
    found = json.loads(capsys.readouterr().out)
    expected = rate(battles, alpha=0.1).columns
    assert [row["item"] for row in found["table"]] == expected["item"]
    np.testing.assert_allclose([row["rating"] for row in found["table"]], expected["rating"])
    assert (tmp_path / "b.html").stat().st_size > 10_000
    path_of_rankings = tmp_path / "rankings.csv"
    path_of_rankings.write_text('r\n"x > y > z"\n"y > x, z"\n"x > z"\n"z > y"\n')
    assert run(["rate", str(path_of_rankings), "--ranking", "r"]) == 0
    assert "Plackett-Luce" in capsys.readouterr().out
    said = [
        {"winner": "x", "loser": "y", "judge": "ann", "question": "1"},
        {"winner": "y", "loser": "z", "judge": "ann", "question": "2", "tie": True},
        {"winner": "z", "loser": "x", "judge": "ann", "question": "3"},
        {"undo": "3", "judge": "ann"},
    ]
    answers = tmp_path / "answers.jsonl"
    answers.write_text("".join(json.dumps(entry) + "\n" for entry in said))
    assert run(["rate", str(answers), "--alpha", "0.1", "--json"]) == 0
    found = {row["item"]: row["rating"] for row in json.loads(capsys.readouterr().out)["table"]}
    expected = rate({"winner": ["x", "y"], "loser": ["y", "z"], "tie": [False, True]}, alpha=0.1).columns
    assert found == pytest.approx(dict(zip(expected["item"], expected["rating"])))
    assert run(["rate", str(path), "--winner", "nobody"]) == 2
    assert "--winner asks for the column 'nobody'" in capsys.readouterr().err
    assert run(["rate", str(path), "--anchor", "m00"]) == 2
    assert (
        "--set anchor gives one item its rating, such as gpt-4=1000: found 'm00'." in capsys.readouterr().err
    )
    assert run(["rate", str(path), "--set", "alpha=some"]) == 2
    assert "--set alpha must be auto or a number: found 'some'." in capsys.readouterr().err
    assert run(["rate", str(path), "-o", str(tmp_path / "b.pdf")]) == 2


# Features of the items, scores


def test_features_are_the_prior_of_bradley_terry():
    from preflearn import BradleyTerry

    rng = np.random.default_rng(7)
    X = rng.normal(size=(12, 2))
    f = 1.5 * X[:, 0]
    a = rng.integers(0, 9, 150)
    b = (a + rng.integers(1, 9, 150)) % 9
    won = rng.random(150) < 1 / (1 + np.exp(-(f[a] - f[b])))
    table = {"a": a, "b": b, "winner": won.astype(float)}
    features = {"item": np.arange(12), "u": X[:, 0], "v": 100 + 7 * X[:, 1]}
    found = rate(table, features=features, kernel="rbf", item_offsets=0.5, alpha=0.3)
    Z = np.stack([features["u"], features["v"]], axis=1)
    Z = (Z - Z.mean(axis=0)) / Z.std(axis=0)
    model = BradleyTerry(0.3, kernel="rbf", item_offsets=0.5)
    pairs = np.where(won[:, None], np.stack([a, b], axis=1), np.stack([b, a], axis=1))
    mean, C = model.fit_pairs(Z, pairs).posterior(Z)
    np.testing.assert_allclose(found.strengths.scores, mean - mean.mean(), atol=1e-6)
    centre = np.eye(12) - 1 / 12
    np.testing.assert_allclose(found.covariance, centre @ C @ centre, atol=1e-6)
    plain = rate(table, features=features)
    assert np.corrcoef(plain.strengths.scores[9:], f[9:])[0, 1] > 0.9  # these have not played
    assert dict(zip(found.columns["item"], found.columns["battles"]))[11] == 0 and not found.notes
    auto = rate(table, features=features, covariates=["position"])
    assert set(auto.scores) == set(range(12)) and len(auto.held_out) == 3
    with pytest.raises(ValueError, match="items have battles and no features"):
        rate(table, features={"item": [0, 1], "u": [1.0, 2.0]})
    with pytest.raises(ValueError, match="holds texts"):
        rate(table, features={"item": np.arange(12), "u": ["x"] * 12})
    with pytest.raises(ValueError, match="there are none"):
        rate(table, kernel="rbf")


def test_scores_say_who_won():
    table = {"home": ["x", "y", "z"], "away": ["y", "z", "x"], "score_a": [3, 1, 2], "score_b": [1, 1, 4]}
    assert (
        rate(table).scores
        == rate({"home": table["home"], "away": table["away"], "winner": ["home", "tie", "away"]}).scores
    )


# Rankings of more than two


def draw_rankings(n_rankings=80, seed=0):
    """Rankings of 3 to 5 of 7 items, a third of them choices of one among all; and the strengths."""
    rng = np.random.default_rng(seed)
    f = rng.normal(size=7)
    rankings = []
    for number in range(n_rankings):
        some = rng.choice(7, rng.integers(3, 6), replace=False)
        order = some[np.argsort(-(f[some] + rng.gumbel(size=some.size)))].tolist()
        rankings.append([[order[0]], order[1:]] if number % 3 == 0 else [[one] for one in order])
    return rankings, f - f.mean()


def as_lists(rankings):
    return [
        [*(tier[0] for tier in one[:-1]), one[-1] if len(one[-1]) > 1 else one[-1][0]] for one in rankings
    ]


def test_rankings_are_fitted_by_plackett_and_luces_likelihood():
    from scipy.optimize import approx_fprime, minimize

    rankings, truth = draw_rankings()
    judges = np.arange(80) % 11
    found = rate(
        {"ranking": as_lists(rankings), "judge": judges}, ranking="ranking", judge="judge", alpha=0.2
    )

    def objective(f, some=rankings, alpha=0.2):
        return oracles.plackett_luce_loss(f, some) + alpha * f @ f

    best = minimize(objective, np.zeros(7), tol=1e-12).x
    np.testing.assert_allclose(found.strengths.scores, best, atol=1e-4)
    f, loss = found.strengths.scores, found.strengths.loss
    np.testing.assert_allclose(loss.value, oracles.plackett_luce_loss(f, rankings))
    numeric = approx_fprime(f, lambda f: oracles.plackett_luce_loss(f, rankings), 1e-7)
    np.testing.assert_allclose(loss.gradient, numeric, atol=1e-4)
    H = loss.hessian()
    np.testing.assert_allclose(np.stack([loss.curvature(e) for e in np.eye(7)]), H, atol=1e-12)
    step = 1e-5
    for k in range(7):
        e = step * np.eye(7)[k]
        ahead, back = (type(loss)(found.raw.rankings, np.ones(80), f + s * e).gradient for s in (1, -1))
        np.testing.assert_allclose((ahead - back) / (2 * step), H[k], atol=1e-6)
    meat = 0.4 * np.eye(7)
    for judge in range(11):
        some = [one for one, who in zip(rankings, judges) if who == judge]
        g = approx_fprime(f, lambda f, some=some: oracles.plackett_luce_loss(f, some), 1e-7)
        meat += 11 / 10 * np.outer(g, g)
    inverse, centre = np.linalg.inv(H + 0.4 * np.eye(7)), np.eye(7) - 1 / 7
    np.testing.assert_allclose(found.covariance, centre @ inverse @ meat @ inverse @ centre, atol=1e-4)
    assert np.corrcoef(f, truth)[0, 1] > 0.8


def test_rankings_of_two_are_battles():
    battles = {"winner": ["x", "y", "z", "x", "x"], "loser": ["y", "z", "x", "z", "y"]}
    texts = [f"{a} > {b}" for a, b in zip(battles["winner"], battles["loser"])]
    found, expected = rate({"r": texts}, ranking="r", alpha=0.3), rate(battles, alpha=0.3)
    assert found.scores == pytest.approx(expected.scores, abs=1e-8)
    np.testing.assert_allclose(found.covariance, expected.covariance, atol=1e-8)


def test_rankings_are_held_out_as_a_whole(tmp_path):
    rankings, _ = draw_rankings(60, 1)
    found = rate(pd.DataFrame({"ranking": as_lists(rankings)}), ranking="ranking")
    assert list(found.held_out["held_out"]) == ["ranking"] * 3 and "Plackett-Luce" in list(
        found.held_out["method"]
    )
    for training, test in held_out_folds(found.raw, "battle"):
        of_pair = found.raw.rankings.of_pair
        assert not set(of_pair[training]) & set(of_pair[test])
        part = found.raw.take(test).rankings
        expected = [rankings[k] for k in np.unique(of_pair[test])]
        f = np.arange(7) / 3
        loss = type(found.strengths.loss)(part, np.ones(part.n_rankings), f)
        assert loss.value == pytest.approx(oracles.plackett_luce_loss(f, expected))
    found.report(tmp_path / "r.html")
    assert "Plackett-Luce" in (tmp_path / "r.html").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("ranking", "message"),
    [
        ("a > b > a", "twice"),
        ("a", "not a ranking"),
        ("a, b > c", "not a ranking"),
        ("a > ", "not a ranking"),
        (3, "no ranking"),
    ],
)
def test_bad_rankings(ranking, message):
    with pytest.raises(ValueError, match=message):
        rate({"r": ["a > b", ranking]}, ranking="r")
    with pytest.raises(ValueError, match="would be ignored"):
        rate({"r": ["a > b"]}, ranking="r", winner="r")


@pytest.mark.parametrize(
    "marks", [["yes", "no"], ["True", "False"], ["1", "0"], ["tie", ""], [1, 0], [True, None]]
)
def test_a_column_of_ties_is_understood_however_it_is_written(marks):
    battles = {"winner": ["x", "x", "y", "z"], "loser": ["y", "z", "z", "x"], "tie": marks * 2}
    assert read_battles(battles).share.tolist() == [0.5, 1.0, 0.5, 1.0]


@pytest.mark.parametrize("marks", [["perhaps", "no"], [2, 0]])
def test_marks_of_ties_that_are_not_understood_are_refused(marks):
    battles = {"winner": ["x", "x", "y", "z"], "loser": ["y", "z", "z", "x"], "tie": marks * 2}
    with pytest.raises(ValueError, match="'tie' marks ties, and holds"):
        rate(battles)


def test_shares_that_were_read_as_texts_are_shares(tmp_path):
    """The command reads the column of winners as names, which 1, 0.5 and 0 are not."""
    sides = {"model_a": list("xyxz"), "model_b": list("yzzx")}
    assert read_battles({**sides, "winner": ["1", "0", "0.5", "1"]}).share.tolist() == [1.0, 0.0, 0.5, 1.0]
    file = tmp_path / "battles.csv"
    pd.DataFrame({**sides, "winner": [1, 0, 0.5, 1]}).to_csv(file, index=False)
    assert run(["rate", str(file), "--quiet"]) == 0
    with pytest.raises(ValueError, match="items as well as shares"):
        rate({"model_a": ["1", "0"], "model_b": ["0", "1"], "winner": ["1", "1"]})


def test_an_update_may_be_a_single_battle_with_covariates():
    battles, _ = simulate(5, 30, 3, covariate=0.5)
    first, last = (
        {name: values[part] for name, values in battles.items()} for part in (slice(-1), slice(-1, None))
    )
    found = rate(first, covariates=["length"], alpha=0.3).update(last)
    expected = rate(battles, covariates=["length"], alpha=0.3)
    assert found.scores == pytest.approx(expected.scores, abs=1e-6)
    with pytest.raises(ValueError, match="'length' is constant"):
        rate({**battles, "length_a": [1.0] * 75, "length_b": [0.5] * 75}, covariates=["length"])


def test_covariates_that_do_not_differ_in_a_part_of_the_battles():
    """Of a month or a fold in which no battle has the covariate, the effect is not known and stays 0."""
    battles, _ = simulate(5, 30, 3, covariate=0.5)
    n = len(battles["winner"])
    early = np.arange(n) < n // 2
    for name in ("length_a", "length_b"):
        battles[name] = np.where(early, 0.0, battles[name]).tolist()
    battles["date"] = np.where(early, "2024-01-05", "2024-02-05").tolist()
    found = rate(battles, covariates=["length"], time="date", alpha=0.3).by_month()
    january = {name: np.array(values)[early].tolist() for name, values in battles.items()}
    expected = rate(january, alpha=0.3).scores
    in_january = {
        item: (rating - 1000) / POINTS
        for month, item, rating in zip(found["month"], found["item"], found["rating"], strict=True)
        if month == "2024-01"
    }
    assert in_january == pytest.approx(expected, abs=1e-6)


def test_held_out_rankings_are_predicted_with_the_variances_of_the_training():
    rankings, _ = draw_rankings(60, 1)
    battles = rate({"r": as_lists(rankings)}, ranking="r", alpha=0.3).raw
    training, test = held_out_folds(battles, "battle")[0]
    strengths = fit_strengths(battles.take(training), 0.3)
    C, (a, b) = strengths.inverse_hessian, battles.pairs[test].T
    d = strengths.scores[a] - strengths.scores[b]
    variance = C[a, a] + C[b, b] - 2 * C[a, b]
    expected = 1 / (1 + np.exp(-d / np.sqrt(1 + np.pi / 8 * variance)))
    found = by_model(0.3, None)(battles.take(training), battles.take(test))
    np.testing.assert_allclose(found, expected, atol=0.01)


@pytest.mark.parametrize("seed", range(3))
def test_counts_are_held_out_as_the_battles_that_they_count(seed):
    battles, _ = simulate(8, 60, seed)
    found, expected = rate(count_battles([battles]), weight="count"), rate(battles)
    assert found.alpha == expected.alpha and found.scores == pytest.approx(expected.scores, abs=1e-6)
    assert list(found.held_out["battles"]) == list(expected.held_out["battles"])
    np.testing.assert_allclose(found.held_out["log_loss"], expected.held_out["log_loss"], atol=0.05)


def test_very_many_counts_are_divided_into_ten(monkeypatch):
    monkeypatch.setattr(preflearn.ratings.battles, "_MOST_SINGLE", 100)
    counted = read_battles(count_battles([simulate(8, 60, 0)[0]]), weight="count")
    parts = counted.one_by_one()
    assert parts.weight.sum() == pytest.approx(counted.weight.sum()) and len(parts) > len(counted)
    np.testing.assert_allclose(parts.wins_of_items(), counted.wins_of_items())


def test_boards_of_parts_allow_for_clusters():
    """Every battle eight times over, all of one prompt: that is no more than once."""
    once, _ = simulate(6, 100, 0)
    n = len(once["winner"])
    battles = {name: np.repeat(values, 8).tolist() for name, values in once.items()}
    battles |= {"prompt": np.repeat(np.arange(n), 8).tolist(), "date": ["2024-01-05"] * (8 * n)}
    ratings = rate(battles, cluster="prompt", time="date", alpha=0.3)
    expected = (ratings.table["upper"] - ratings.table["lower"]).tolist()
    for board in (ratings.by(["all"] * (8 * n)), ratings.by_month()):
        np.testing.assert_allclose(board["upper"] - board["lower"], expected, rtol=1e-6)


def test_what_counts_and_updates_would_lose_is_refused():
    battles = {"winner": [1, 2, 3, 1], "loser": [2, 3, 1, 3], "judge": list("uuvv")}
    with pytest.raises(ValueError, match="judge would be lost"):
        count_battles([battles], judge="judge")
    with pytest.raises(ValueError, match="new battles are texts and those of the old ones numbers"):
        rate(battles).update({"winner": ["1", "x"], "loser": ["2", "1"]})


def test_months_before_1970_are_those_of_the_day():
    last_noon_of_1969 = -0.5
    assert month_edges(np.array([last_noon_of_1969, 20.0])).tolist() == [0.0, 31.0]


def test_the_verdict_names_no_rivals_where_there_are_none():
    """The first is surely ahead of the second, the second of the third: the third is no rival of the first."""
    apart = np.array([[0, 1, 0], [-1, 0, 1], [0, -1, 0]])
    lower, upper = rank_bounds(apart)
    board = {"item": list("xyz"), "rank_lower": lower.tolist(), "rank_upper": upper.tolist()}
    ratings = SimpleNamespace(columns=board, items=list("xyz"), neighbours=lambda: [])
    assert verdict(ratings).startswith("x is clearly the best")


def test_one_battle_has_everything_that_many_have():
    found = rate({"winner": ["x"], "loser": ["y"]}).to_dict()
    assert found["held_out"][0]["log_loss"] == pytest.approx(np.log(2))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"anchor": 5}, "anchor gives one item"),
        ({"anchor": {"x": True}}, "anchor gives one item"),
        (
            {"features": {"item": ["x", "y", "z"], "s": [1, 2, 4]}, "item_offsets": "a"},
            "item_offsets is the variance",
        ),
        ({"covariates": ["position", "position"]}, "names a column twice"),
    ],
)
def test_options_that_mean_nothing_are_refused(options, message):
    sides = {"model_a": list("xyxz"), "model_b": list("yzzx"), "winner": ["model_a", "model_b"] * 2}
    with pytest.raises(ValueError, match=message):
        rate(sides, **options)
    for n in (-1, 1.5):
        with pytest.raises(ValueError, match="whole number of rows"):
            rate(sides).top(n)


def test_columns_of_rankings_that_are_not_there():
    table = {"r": ["a > b", "b > a"], "judge": ["u", "v"]}
    for one in (table, pd.DataFrame(table)):
        with pytest.raises(ValueError, match="weight asks for the column 'w', found r, judge"):
            rate(one, ranking="r", judge="judge", weight="w")
    with pytest.raises(ValueError, match="Row 1 is not a ranking"):
        rate({"r": [["a", float("nan")], ["a", "b"]]}, ranking="r")


def test_few_clusters_widen_the_ranks_of_very_many_items():
    scores, se = np.linspace(0, 50, 40), np.full(40, 0.5)
    (low, high), (low_t, high_t) = (many_rank_bounds(scores, se, 0.95, df) for df in (np.inf, 3.0))
    assert (low_t <= low).all() and (high_t >= high).all() and (high_t - low_t).sum() > (high - low).sum()


@pytest.mark.parametrize(
    ("typed", "options", "expected"),
    [
        (["--judge", "who"], {"judge": "who"}, "{judge} asks for the column 'who', found model_a"),
        (["--weight", "who"], {"weight": "who"}, "{weight} asks for the column 'who'"),
        (["--a", "model_a"], {"a": "model_a"}, "found {a} alone. Pass {b}"),
        (["--half-life", "30"], {"half_life": 30}, "Pass {time}"),
        (["--half-life", "-3", "--time", "day"], {"half_life": -3, "time": "day"}, "{half_life} must be a positive"),
        (["--level", "2"], {"level": 2}, "{level} is the probability"),
        (["--alpha", "-1"], {"alpha": -1}, "{alpha} must be 'auto' or a number"),
        (["--anchor", "q=5"], {"anchor": {"q": 5}}, "{anchor} names 'q', which has not played"),
        (["--covariate", "size"], {"covariates": ["size"]}, "{covariates} asks for 'size'"),
        (["--covariate", "one"], {"covariates": ["one"]}, "Pass {covariates}"),
        (["--cluster", "one"], {"cluster": "one"}, "{cluster}: the column 'one' has one value only"),
        (["--loser", "model_b", "--a", "model_a", "--b", "model_b"],
         {"loser": "model_b", "a": "model_a", "b": "model_b"}, "{a} would be ignored"),
        (["--ranking", "winner", "--cluster", "one"], {"ranking": "winner", "cluster": "one"},
         "{cluster} would be ignored"),
    ],
)  # fmt: skip
def test_messages_name_options_on_the_command_line_and_arguments_in_python(
    typed, options, expected, tmp_path, capsys
):
    table = {"model_a": list("xyx"), "model_b": list("yzz"), "winner": list("xzx"), "one": [1] * 3}
    table["day"] = ["2024-01-01", "2024-01-02", "2024-01-03"]
    path = tmp_path / "battles.csv"
    pd.DataFrame(table).to_csv(path, index=False)
    names = set(re.findall(r"{(\w+)}", expected))
    with pytest.raises(InputError) as caught:
        rate(table, **options)
    assert expected.format(**{name: name for name in names}) in str(caught.value)
    assert run(["rate", str(path), *typed]) == 2
    spelled = {name: "--" + name.replace("_", "-").replace("covariates", "covariate") for name in names}
    assert expected.format(**spelled) in capsys.readouterr().err


def test_a_goal_that_cannot_be_planned_for_is_refused_before_anything_is_written(tmp_path, capsys):
    path, board = tmp_path / "battles.csv", tmp_path / "board.md"
    pd.DataFrame(GOOD).to_csv(path, index=False)
    assert run(["rate", str(path), "--goal", "top-9", "-o", str(board)]) == 2
    shown = capsys.readouterr()
    assert "--goal 'top-9': choose between top-1 and top-2" in shown.err and not shown.out
    assert not board.exists()


# Battles that arrive, and files that are larger than memory


def test_counts_of_battles_that_arrive_rate_as_all_battles_do():
    battles, _ = simulate(12, 40, 5, ties=0.2)
    parts = [{name: column[k::4] for name, column in battles.items()} for k in range(4)]
    whole = {"alpha": 0.2}, {"alpha": "auto"}, {"alpha": 0}
    for options in whole:
        counts = preflearn.ratings.BattleCounts()
        for part in parts:
            counts.add(part)
            if len(counts.table["count"]) > 60:
                last = counts.rate(**options)
        expected = rate(battles, **options)
        assert last.alpha == pytest.approx(expected.alpha)
        np.testing.assert_allclose(last.strengths.scores, expected.strengths.scores, atol=1e-8)
        board = pd.DataFrame(last.columns)
        pd.testing.assert_frame_equal(board, pd.DataFrame(expected.columns), rtol=1e-8)
    assert "240 battles of" in str(counts) and "by 240 battles" in str(last)
    # What is taken out again has never been there; what was never there cannot be taken out.
    more = {"model_a": ["m01", "new"], "model_b": ["new", "m02"], "winner": ["tie", "new"]}
    before = counts.table
    assert counts.add(more).rate(alpha=0.2).items[-1] == "new" and counts.remove(more).table == before
    with pytest.raises(ValueError, match="have not been counted"):
        counts.remove(more)
    with pytest.raises(ValueError, match="texts in one table and numbers in another"):
        counts.add({"winner": [1], "loser": [2]})
    with pytest.raises(TypeError, match="judge"):
        counts.rate(judge="judge")


@settings(max_examples=15, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 4), st.integers(1, 4), st.sampled_from([0, 0.5, 1])), min_size=2),
    st.data(),
)
def test_counts_are_those_of_a_counter(rows, data):
    battles = [(a, (a + step) % 5, y) for a, step, y in rows]
    cut = data.draw(st.integers(1, len(battles) - 1))
    counts = preflearn.ratings.BattleCounts()
    expected = {}
    words = {0: "b", 0.5: "tie", 1: "a"}
    for part in (battles[:cut], battles[cut:]):
        counts.add({"a": [f"i{a}" for a, _, _ in part], "b": [f"i{b}" for _, b, _ in part],
                    "winner": [words[y] for _, _, y in part]})  # fmt: skip
        for a, b, y in part:
            key = (
                f"i{min(a, b)}",
                f"i{max(a, b)}",
                f"model_{words[y if a < b else 1 - y]}".replace("model_tie", "tie"),
            )
            expected[key] = expected.get(key, 0) + 1
    table = counts.table
    found = dict(zip(zip(table["model_a"], table["model_b"], table["winner"]), table["count"]))
    assert found == expected


def test_large_files_are_counted_while_they_are_read(tmp_path, capsys, monkeypatch):
    battles, _ = simulate(6, 60, 8, ties=0.2, judges=3)
    frame = pd.DataFrame(battles)
    paths = [tmp_path / "one.csv", tmp_path / "two.csv"]
    frame[:100].to_csv(paths[0], index=False)
    frame[100:].to_csv(paths[1], index=False)
    names = [str(path) for path in paths]
    assert run(["rate", *names, "--json"]) == 0
    plain = json.loads(capsys.readouterr().out)
    monkeypatch.setattr("preflearn.cli.rate._LARGE", 10)
    read_rows = []
    original = preflearn.tables.table.iter_columns
    monkeypatch.setattr(
        "preflearn.tables.table.iter_columns",
        lambda *given: (read_rows.append(len(part["winner"])) or part for part in original(*given, rows=50)),
    )
    assert run(["rate", *names, "--json"]) == 0
    counted = json.loads(capsys.readouterr().out)
    assert len(read_rows) > 1 and sum(read_rows) == len(frame)
    assert counted["table"] == [pytest.approx(row) for row in plain["table"]]
    assert counted["battles"] == plain["battles"] == len(frame)
    assert any("counted by pairs while they were read" in note for note in counted["notes"])
    broken = frame[100:].reset_index(drop=True)
    broken.loc[69, "model_a"] = broken.loc[69, "model_b"]
    broken.to_csv(paths[1], index=False)
    assert run(["rate", *names]) == 2
    assert "of an item against itself (row 70 of two.csv: " in capsys.readouterr().err
    frame[100:].to_csv(paths[1], index=False)
    # Judges need the rows, which are read if they fit, and refused otherwise.
    assert run(["rate", *names, "--judge", "judge", "-q"]) == 0
    monkeypatch.setattr("preflearn.numerics.memory.available_bytes", lambda: 10)
    monkeypatch.setattr("preflearn.cli.rate._IN_MEMORY", 10**6)
    assert run(["rate", *names, "--judge", "judge"]) == 2
    assert "do not fit into memory, and --judge needs every battle" in capsys.readouterr().err


def test_categories_on_the_command_line(tmp_path, capsys):
    battles, _ = simulate(4, 80, 9, ties=0.0)
    flipped = np.arange(160) % 2 == 1
    first = [{"model_a", "model_b"} ^ {w} for w in battles["winner"]]
    winner = [w if not f else other.pop() for w, f, other in zip(battles["winner"], flipped, first)]
    frame = pd.DataFrame({**battles, "winner": winner, "kind": np.where(flipped, "code", "prose")})
    path = tmp_path / "battles.csv"
    frame.to_csv(path, index=False)
    assert run(["rate", str(path), "--category", "kind"]) == 0
    shown = capsys.readouterr().out
    assert "4 items in 2 categories: prose, code" in shown and "points worse in code than on average" in shown
    assert run(["rate", str(path), "--category", "kind", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["categories"]
    assert len(rows) == 8 and {row["category"] for row in rows} == {"prose", "code"}
    assert run(["rate", str(path), "--category", "sort"]) == 2
    assert "--category asks for the column 'sort', found model_a" in capsys.readouterr().err
    for name in ("b.csv", "b.md", "b.json", "r.html", "r.md"):
        option = "--report" if name.startswith("r") else "-o"
        # Twice: what the command wrote before it writes again.
        for _ in range(2):
            assert run(["rate", str(path), "--category", "kind", option, str(tmp_path / name), "-q"]) == 0
    written = pd.read_csv(tmp_path / "b.csv")
    assert list(written["category"]) == [row["category"] for row in rows]
    np.testing.assert_allclose(written["rating"], [row["rating"] for row in rows], atol=1e-4)
    assert json.loads((tmp_path / "b.json").read_text(encoding="utf-8"))["categories"] == rows
    assert "<h3><bdi>code</bdi></h3>" in (tmp_path / "r.html").read_text(encoding="utf-8")
    for name in ("b.md", "r.md"):
        assert "\n## code\n\n| item | rating |" in (tmp_path / name).read_text(encoding="utf-8")


def test_files_that_rate_did_not_write_are_kept(tmp_path, capsys):
    path, mine = tmp_path / "battles.csv", tmp_path / "mine.csv"
    pd.DataFrame(GOOD).to_csv(path, index=False)
    mine.write_text("item,rating\nx,3\n")
    before = path.read_bytes()
    page, board = tmp_path / "page.html", tmp_path / "board.md"
    for asked, message in (
        (["-o", str(path)], "named twice"),
        (["--report", str(tmp_path / "a.md"), "-o", str(tmp_path / "a.md")], "named twice"),
        (["--report", str(page), "-o", str(tmp_path / "none" / "b.csv")], "There is no folder"),
        (["--report", str(page), "-o", str(mine)], "was not written by preflearn"),
        (["--report", str(tmp_path / "x.pdf")], "reports are written as .html, .htm, .md"),
    ):
        assert run(["rate", str(path), *asked]) == 2
        assert message in capsys.readouterr().err
    assert path.read_bytes() == before and mine.read_text() == "item,rating\nx,3\n"
    assert sorted(one.name for one in tmp_path.iterdir()) == ["battles.csv", "mine.csv"]
    for _ in range(2):
        assert run(["rate", str(path), "--report", str(page), "-o", str(board), "-q"]) == 0
    assert run(["rate", str(path), "-o", str(mine), "--force", "-q"]) == 0
    assert mine.read_text().startswith("item,rating,lower")


# Margins


def draw_margins(n=8, l=600, seed=0, noise=7.0):
    """Scores of two sides whose differences are normal, and the strengths in log odds."""
    rng = np.random.default_rng(seed)
    f = rng.normal(size=n)
    f -= f.mean()
    a = rng.integers(0, n, l)
    b = (a + rng.integers(1, n, l)) % n
    d = noise * ((f[a] - f[b]) / 1.702 + rng.normal(size=l))
    other = rng.normal(50, 10, l)
    return {"a": a, "b": b, "score_a": other + d, "score_b": other}, f


@pytest.mark.parametrize("most", [3000, 5])
def test_margins_are_fitted_by_least_squares(most, monkeypatch):
    monkeypatch.setattr("preflearn.ratings.strengths.MOST_FACTORED", most)
    table, f = draw_margins()
    found = rate(table, margin="score", alpha=0.2)
    d = table["score_a"] - table["score_b"]
    X = oracles.rating_design(8, np.stack([table["a"], table["b"]], axis=1))
    H = X.T @ X / 1.702**2 + 0.4 * np.eye(8)
    in_margins = np.linalg.solve(H, X.T @ d / 1.702**2)
    noise = np.sqrt(np.sum((d - X @ in_margins) ** 2) / (600 - 7))
    np.testing.assert_allclose(found.strengths.scores, 1.702 * in_margins / noise, atol=1e-8)
    centre = np.eye(8) - 1 / 8
    np.testing.assert_allclose(found.covariance, centre @ np.linalg.inv(H) @ centre, atol=1e-8)
    assert noise == pytest.approx(7.0, rel=0.1)
    by_judge = rate(
        {**table, "judge": table["a"] + 8 * (np.arange(600) % 3)}, margin="score", alpha=0.2, judge="judge"
    )
    z = 1.702 * d / noise
    g = np.zeros((24, 8))
    np.add.at(
        g, table["a"] + 8 * (np.arange(600) % 3), X * ((z - X @ found.strengths.scores) / 1.702**2)[:, None]
    )
    C = np.linalg.inv(H) @ (24 / 23 * g.T @ g + 0.4 * np.eye(8)) @ np.linalg.inv(H)
    np.testing.assert_allclose(by_judge.covariance, centre @ C @ centre, atol=1e-7)


def test_margins_say_more_than_who_won_and_as_much_about_winning():
    errors, covered = [], []
    for seed in range(12):
        table, f = draw_margins(10, 200, seed)
        margins, signs = rate(table, margin="score"), rate(table)
        errors.append([np.mean((one.strengths.scores - f) ** 2) for one in (margins, signs)])
        board = pd.DataFrame(margins.columns).set_index("item").sort_index()
        truth = 1000 + POINTS * f
        covered.append(np.mean((board["lower"] < truth) & (truth < board["upper"])))
    better, plain = np.mean(errors, axis=0)
    assert better < 0.75 * plain and 0.88 < np.mean(covered) < 0.99
    table = margins.held_out
    assert list(table["method"])[0] == "margins" and table["log_loss"][0] < np.log(2)
    assert "least squares on margins (score)" in str(preflearn.ratings.summary.settings(margins))
    margins.surprises, margins.diagnostics, margins.next_battles(2), margins.to_dict()
    np.testing.assert_allclose(
        rate(draw_margins(5, 80)[0], margin="score", alpha=0.3).strengths.scores,
        rate({k: v[:40] for k, v in draw_margins(5, 80)[0].items()}, margin="score", alpha=0.3)
        .update({k: v[40:] for k, v in draw_margins(5, 80)[0].items()})
        .strengths.scores,
        atol=1e-8,
    )  # fmt: skip


def test_ambiguous_margins_are_refused(tmp_path, capsys):
    table = {"winner": list("xyx"), "loser": list("yzz"), "by": [3.0, 1.0, -2.0]}
    with pytest.raises(
        InputError, match="1 of 3 battles were won by one side and have a margin in favour of the other"
    ):
        rate(table, margin="by")
    good = {**table, "by": [3.0, 1.0, 2.0]}
    assert rate(good, margin="by").scores["x"] > 0
    for change, options, message in (
        ({}, {"margin": "goals"}, "margin asks for 'goals'"),
        ({"by": [2.0, 2.0, 2.0]}, {"margin": "by"}, "every battle has the margin 2"),
        ({"by": [2.0, np.nan, 2.0]}, {"margin": "by"}, "a margin is needed for every battle"),
        ({"r": ["x > y"] * 3}, {"margin": "by", "ranking": "r"}, "margin would be ignored"),
    ):
        with pytest.raises(ValueError, match=message):
            rate({**good, **change}, **options)
    with pytest.raises(ValueError, match="who won, not by how much"):
        rate(good, margin="by").by(["k"] * 3)
    path = tmp_path / "battles.csv"
    pd.DataFrame(good).to_csv(path, index=False)
    assert run(["rate", str(path), "--margin", "goals"]) == 2
    assert "--margin asks for 'goals'" in capsys.readouterr().err
    assert run(["rate", str(path), "--margin", "by"]) == 0
    assert "least squares on margins (by)" in capsys.readouterr().out


@given(st.integers(0, 10**6), st.floats(1e-3, 1e3))
@settings(max_examples=10, deadline=None)
def test_the_scale_of_weights_of_margins_does_not_matter(seed, alpha):
    table, _ = draw_margins(6, 40, seed)
    n = len(table["score_a"])
    expected = rate(table, margin="score", alpha=alpha).scores
    found = rate({**table, "w": [1 / 600] * n}, margin="score", weight="w", alpha=alpha / 600).scores
    assert found == pytest.approx(expected, rel=1e-6, abs=1e-9)
    # Without shrinkage alpha is 1e-10, which weighs more beside small weights.
    found = rate({**table, "w": [1 / 600] * n}, margin="score", weight="w", alpha=0).scores
    assert found == pytest.approx(rate(table, margin="score", alpha=0).scores, abs=1e-6)


def test_margins_of_the_winner_between_two_sides_are_warned_about():
    table = {"home": list("xyx"), "away": list("yzz"), "by": [3.0, 1.0, 2.0]}
    with pytest.warns(UserWarning, match="No margin is negative") as caught:
        found = rate(table, margin="by", alpha=0.1)
    assert str(caught[0].message) in found.notes
    for good in (
        {**table, "by": [3.0, 1.0, -2.0]},
        {**table, "by_a": [3.0, 1.0, 2.0], "by_b": [0.0, 0.0, 0.0]},
        {"winner": list("xyx"), "loser": list("yzz"), "by": [3.0, 1.0, 2.0]},
        {**table, "winner": ["home"] * 3},
    ):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            rate(good, margin="by", alpha=0.1)


def test_outcomes_are_those_of_battles_where_weights_are_counts():
    table = {**GOOD, "winner": ["model_a", "tie", "both bad"], "n": [3, 2, 1]}
    found = rate(table, weight="n")
    assert found.raw.outcomes == {"a won": 3, "b won": 0, "tie": 2, "both bad": 1}
    assert "1 battle ended with both bad and counts as a tie." in found.notes
    assert rate({**table, "n": [0.3, 2, 1]}, weight="n").raw.outcomes["a won"] == 1
    counted = {"winner": list("xyx"), "loser": list("yzz"), "tie": [0, 1, 0], "n": [3, 2, 1]}
    assert rate(counted, weight="n").raw.outcomes == {"won": 4, "tie": 2}
    with pytest.raises(ValueError, match="all 6 are ties"):
        rate({**table, "winner": ["tie"] * 3}, weight="n")


def test_battles_of_unknown_items_are_not_predicted_in_silence():
    ratings = rate({"winner": [1, 2, 1], "loser": [2, 3, 3]}, alpha=0.1)
    for known in (ratings.predict, lambda table: ratings.boards(["k"] * 3).predict(table, ["k"])):
        with pytest.raises(ValueError, match="are texts and those that were rated numbers"):
            known({"a": ["1"], "b": ["2"]})
        with pytest.warns(UserWarning, match="None of the items"):
            assert known({"a": [8], "b": [9]}).tolist() == [0.5]
    assert ratings.predict({"a": [1, 9], "b": [3, 1]})[0] > 0.5
    strengths = dict(zip(ratings.items, ratings.strengths.scores))  # with mean 0
    expected = [1 / (1 + np.exp(-strengths[item])) for item in (1, 2, 3)]
    np.testing.assert_allclose(ratings.predict({"a": [1, 2, 3], "b": [9, 9, 9]}), expected)


@pytest.mark.parametrize("cluster", [None, "judge"])
def test_effects_of_covariates_do_not_depend_on_the_number_of_items(cluster, monkeypatch, tmp_path, capsys):
    battles, _ = simulate(8, 60, 5, judges=20)
    battles["length"] = np.random.default_rng(0).normal(size=len(battles["winner"])).tolist()
    options = {"covariates": ["length", "position"], "cluster": cluster, "alpha": 0.2}
    expected = rate(battles, **options).covariates
    monkeypatch.setattr("preflearn.ratings.strengths.MOST_DENSE", 4)
    found = rate(battles, **options).covariates
    np.testing.assert_allclose(found.iloc[:, 1:], expected.iloc[:, 1:], rtol=1e-5)
    monkeypatch.undo()
    monkeypatch.setattr("preflearn.ratings.summary.MOST_COMPARED", 4)
    path = tmp_path / "battles.csv"
    pd.DataFrame(battles).to_csv(path, index=False)
    assert run(["rate", str(path), "--covariate", "length", "--alpha", "0.2"]) == 0
    assert "length is worth" in capsys.readouterr().out


def test_counts_of_nothing_and_of_unknown_arguments():
    counts = BattleCounts()
    with pytest.raises(InputError, match="No battles have been counted"):
        counts.rate()
    for empty in ({}, {"winner": [], "loser": []}, pd.DataFrame({"winner": [], "loser": []})):
        assert counts.add(empty) is counts and counts.n_battles == 0
    counts.add({"winner": ["x", "x"], "loser": ["y", "z"]}).remove({"winner": ["x"], "loser": ["z"]})
    assert repr(counts) == "BattleCounts: 1 battle of 1 distinct pair of 2 items"
    with pytest.raises(
        InputError, match="winnr is not an argument here: expected a, b, winner, loser, weight"
    ):
        BattleCounts(winnr="x")
    with pytest.raises(ValueError, match="against itself .row 2 of table 2: 'y'"):
        count_battles([{"winner": ["x"], "loser": ["y"]}, {"winner": ["x", "y"], "loser": ["y", "y"]}])


def test_what_boards_by_category_cannot_do_is_named(tmp_path, capsys):
    path = tmp_path / "rankings.csv"
    path.write_text('r,k\n"x > y > z",1\n"y > x",1\n"z > y",2\n')
    assert run(["rate", str(path), "--ranking", "r", "--category", "k"]) == 2
    assert "are of battles, not of rankings: rate without --ranking" in capsys.readouterr().err
    battles, _ = simulate(4, 40, 2)
    n = len(battles["winner"])
    with pytest.raises(InputError, match="do not control for covariates: rate without covariates"):
        rate(battles, covariates=["position"]).boards(["k"] * n)
    with pytest.raises(InputError, match="ratio must be 'auto' or a number, at least 0: found None"):
        rate(battles).boards(["k"] * n, ratio=None)
    with pytest.raises(ValueError, match="1 battle has no category"):
        rate(battles).boards([None] + ["k"] * (n - 1))
    assert "in 1 category: k" in repr(rate(battles).boards(["k"] * n, ratio=0.1))


def test_short_names_are_aligned_with_their_heading():
    head, *rows = str(rate(GOOD, alpha=0.1)).splitlines()[1:4]
    assert [head.index("rating") + len("rating")] * 2 == [
        re.search(r"\d+ +\S+ +\d+", row).end() for row in rows
    ]
