"""Standard errors and ranks from few clusters: how many clusters each rests on, and that all ranks hold together."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from scipy.stats import t as student

import oracles
from preflearn import rate
from preflearn.ratings import ranks
from preflearn.ratings.ranks import effective_clusters, effective_clusters_of_differences
from preflearn.ratings.strengths import cluster_information

POINTS = 400 / np.log(10)


def judged(n, battles, judges, seed, taste=0.0, skewed=False):
    """Battles of equal items; a judge may have tastes, and the k-th a share of battles proportional to 1 / k."""
    rng = np.random.default_rng(seed)
    share = 1.0 / np.arange(1, judges + 1) if skewed else np.ones(judges)
    judge = rng.choice(judges, battles, p=share / share.sum())
    a = rng.integers(n, size=battles)
    b = (a + rng.integers(1, n, battles)) % n
    likes = taste * rng.normal(size=(judges, n))
    d = likes[judge, a] - likes[judge, b]
    won = rng.random(battles) < 1 / (1 + np.exp(-d))
    z = rng.normal(size=battles)
    table = {"a": a, "b": b, "winner": np.where(won, "a", "b"), "judge": judge, "size": z, "by": d + z}
    return table, rng


@pytest.mark.parametrize("kind", ["plain", "covariate", "margin", "weights"])
def test_effective_clusters_are_those_of_their_definition(kind):
    table, rng = judged(6, 150, 5, 0, taste=1.0, skewed=True)
    options = {"covariate": {"covariates": ["size"]}, "weights": {"weight": "w"}}.get(kind, {})
    w = rng.integers(1, 4, 150).astype(float) if kind == "weights" else np.ones(150)
    table["w"] = w
    if kind == "margin":
        table = {name: values for name, values in table.items() if name != "winner"}
        options = {"margin": "by"}
    found = rate(table, cluster="judge", alpha=0.3, **options)
    Z = table["size"][:, None] if kind == "covariate" else None
    X = oracles.rating_design(6, list(zip(table["a"], table["b"])), Z)
    penalty = np.full(X.shape[1], 0.3)
    theta = np.r_[found.strengths.scores, found.strengths.coefficients]
    p = 1 / (1 + np.exp(-X @ theta))
    v = w * p * (1 - p)
    if kind == "margin":
        v = np.full(150, 1 / 1.702**2)
    if kind == "covariate":
        penalty[6] /= found.strengths.scale[0] ** 2
    H = (X * v[:, None]).T @ X + 2 * np.diag(penalty)
    contrasts = np.eye(X.shape[1])
    contrasts[:6, :6] -= 1 / 6
    expected = [oracles.effective_clusters(X, v, H, contrast, table["judge"]) for contrast in contrasts]
    np.testing.assert_allclose(found.degrees_of_freedom, np.array(expected[:6]) - 1, rtol=1e-6)
    s = cluster_information(found.strengths, found.cluster)
    np.testing.assert_allclose(effective_clusters(s), expected, rtol=1e-6)
    total, squares = s.sum(axis=0), s.T @ s
    both = (total[1] + total[4]) ** 2 / (squares[1, 1] + squares[4, 4] + 2 * squares[1, 4])
    assert effective_clusters_of_differences(s)[1, 4] == pytest.approx(both)
    width = student.ppf(0.975, found.degrees_of_freedom) * found.standard_errors
    board = {item: found.columns["upper"][k] for k, item in enumerate(found.columns["item"])}
    np.testing.assert_allclose([board[k] for k in range(6)], found.points(found.strengths.scores + width))
    if kind == "covariate":
        one = found.covariates
        wide = np.sqrt(found.covariance[6, 6]) * found.strengths.scale[0]
        upper = one["coefficient"][0] + student.ppf(0.975, expected[6] - 1) * wide
        assert one["upper"][0] == pytest.approx(upper)


def test_effective_clusters_of_rankings_of_two_are_those_of_battles():
    table, _ = judged(5, 200, 12, 3)
    won = np.where(table["winner"] == "a", table["a"], table["b"])
    lost = table["a"] + table["b"] - won
    battles = rate({"winner": won, "loser": lost, "judge": table["judge"]}, judge="judge", alpha=0.2)
    lists = {"r": [[w, x] for w, x in zip(won, lost)], "judge": table["judge"]}
    ranked = rate(lists, ranking="r", judge="judge", alpha=0.2)
    np.testing.assert_allclose(ranked.degrees_of_freedom, battles.degrees_of_freedom, rtol=1e-5)
    assert ranked.columns["rank_upper"] == battles.columns["rank_upper"]


def test_without_products_the_information_is_that_of_a_diagonal_hessian(monkeypatch):
    table, _ = judged(20, 4000, 12, 1, skewed=True)
    exact = rate(table, judge="judge", alpha=0.1)
    dense = effective_clusters_of_differences(cluster_information(exact.strengths, exact.cluster))
    monkeypatch.setattr("preflearn.ratings.strengths.MOST_INFORMATION", 10)
    rough = effective_clusters_of_differences(cluster_information(exact.strengths, exact.cluster))
    off = ~np.eye(20, dtype=bool)
    np.testing.assert_allclose(rough[off], dense[off], rtol=0.05)
    found = rate(table, judge="judge", alpha=0.1)
    np.testing.assert_allclose(found.columns["upper"], exact.columns["upper"], rtol=0.01)
    assert found.columns["rank_upper"] == exact.columns["rank_upper"]


@pytest.mark.parametrize(
    ("n", "battles", "judges", "taste", "skewed"),
    [
        (20, 1000, 10, 0.0, False),
        (20, 1000, 5, 1.0, False),
        (20, 600, 10, 1.0, True),
        (50, 1500, 3, 0.0, False),
    ],
)
def test_ranks_hold_together_with_few_clusters(n, battles, judges, taste, skewed):
    """Of equal items every significant difference is an error; `benchmarks/rank_coverage.py` has more."""
    held, single = [], []
    for seed in range(40):
        table, _ = judged(n, battles, judges, seed, taste, skewed)
        found = rate(table, cluster="judge", alpha=1 / 32)
        held.append(not found.apart.any())
        board = found.columns
        single.append(np.mean((np.array(board["lower"]) <= 1000) & (1000 <= np.array(board["upper"]))))
    # The rule before, one chi-square for all differences, held in .00 to .73 of these.
    assert np.mean(held) >= 0.9
    assert np.mean(single) >= 0.9


def test_two_clusters_of_fair_coins_order_nothing():
    table, _ = judged(8, 400, 2, 0)
    found = rate(table, cluster="judge")
    assert found.columns["rank_lower"] == [1] * 8 and found.columns["rank_upper"] == [8] * 8
    assert set(found.columns["group"]) == {"a"} and found.battles_needed() is None
    note = next(note for note in found.notes if "rest on 2 clusters" in note)
    assert "no two items can be told apart" in note and "At least 6 clusters" in note


def test_clusters_that_differ_in_size_count_for_fewer():
    table, _ = judged(20, 2000, 12, 0, skewed=True)
    note = next(note for note in rate(table, judge="judge").notes if "rest on 12 clusters" in note)
    assert "differ in size and are worth" in note
    table, _ = judged(20, 2000, 12, 0)
    assert not any("clusters" in note for note in rate(table, judge="judge").notes)


def test_many_clusters_keep_ranks_that_are_of_use():
    """Thousands of clusters of one battle each are next to no clusters."""
    rng = np.random.default_rng(0)
    f = np.linspace(-2, 2, 12)
    a = rng.integers(12, size=6000)
    b = (a + rng.integers(1, 12, 6000)) % 12
    won = rng.random(6000) < 1 / (1 + np.exp(-(f[a] - f[b])))
    table = {"a": a, "b": b, "winner": won.astype(float), "prompt": np.arange(6000)}
    single, clustered = rate(table, alpha=0.05), rate(table, alpha=0.05, cluster="prompt")
    assert clustered.columns["rank_upper"] == single.columns["rank_upper"]
    assert clustered.threshold[0, 1] < 1.1 * single.threshold


def test_an_item_of_one_judge_has_a_wide_interval():
    """Its scores sum to 0 in the one cluster that knows it, so that the sandwich alone would call it certain."""
    table, rng = judged(6, 900, 12, 0)
    met = rng.integers(6, size=40)
    more = {"a": np.full(40, 6), "b": met, "winner": np.where(rng.random(40) < 0.5, "a", "b")}
    more |= {"judge": np.zeros(40, dtype=int)}
    both = {name: np.concatenate([table[name], more[name]]) for name in more}
    found = rate(both, judge="judge", alpha=1 / 32)
    own = rate(both, judge="judge", alpha=1 / 32, cluster=False)
    assert found.degrees_of_freedom[6] < 1 and found.standard_errors[6] == own.standard_errors[6]
    assert np.sqrt(found.covariance[6, 6]) < 0.5 * own.standard_errors[6]
    row = found.columns["item"].index(6)
    assert found.columns["upper"][row] - found.columns["lower"][row] > 1000
    assert (found.columns["rank_lower"][row], found.columns["rank_upper"][row]) == (1, 7)
    boards = found.boards(["all"] * len(both["a"]))
    assert boards.table["upper"].max() - boards.table["lower"].min() > 1000


def test_ranks_of_very_many_items_allow_for_few_clusters(monkeypatch):
    """Errors of different items are divided by draws of their own for the standard errors."""
    monkeypatch.setattr("preflearn.ratings.result.MOST_COMPARED", 10)
    table, _ = judged(40, 2000, 12, 0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        few, none = (
            rate(table, judge="judge", alpha=0.1),
            rate(table, judge="judge", cluster=False, alpha=0.1),
        )
    assert few.apart is None

    def width(board):
        return np.mean(np.array(board["rank_upper"]) - np.array(board["rank_lower"]))

    assert width(few.columns) >= width(none.columns)
    errors = np.random.default_rng(0).normal(size=(40, 512))
    scores, rows = np.linspace(0, 10, 40), np.arange(40)
    spread = [
        ranks.drawn_ranks(scores, [errors], rows, df).std(axis=1).mean() for df in (np.inf, np.full(40, 2.0))
    ]
    assert spread[1] > spread[0]
