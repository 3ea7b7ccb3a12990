"""A few trusted judgements, and many cheap ones that help."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import oracles
from preflearn import rate
from preflearn.ratings import BattleCounts
from preflearn.ratings.tables import columns_of
from strategies import examples


def simulate(seed=0, n=6, shared=150, others=1500, luck=0.8, bias=0.6):
    """Judgements of people, and of a model that has tastes of its own and sees the same luck in a share of battles."""
    rng = np.random.default_rng(seed)
    f, taste = 0.6 * rng.normal(size=n), bias * rng.normal(size=n)
    f -= f.mean()
    a = rng.integers(n, size=others)
    b = (a + rng.integers(1, n, others)) % n
    u = rng.random(others)
    seen = np.where(rng.random(others) < luck, u, rng.random(others))
    people = u < 1 / (1 + np.exp(f[b] - f[a]))
    model = seen < 1 / (1 + np.exp((f + taste)[b] - (f + taste)[a]))
    asked = rng.permutation(others)[:shared]
    rows = np.concatenate([np.arange(others), asked])
    # People may see the sides the other way round.
    turned = np.concatenate([np.zeros(others, bool), rng.random(shared) < 0.5])
    names = np.array([f"m{k}" for k in range(n)])
    won = np.concatenate([model, people[asked]]) ^ turned
    order = rng.permutation(rows.size)
    table = {
        "model_a": names[np.where(turned, b[rows], a[rows])], "model_b": names[np.where(turned, a[rows], b[rows])],
        "winner": np.where(won, "model_a", "model_b"), "prompt": rows,
        "judge": np.concatenate([np.full(others, "gpt"), np.full(shared, "ann")]),
    }  # fmt: skip
    return {name: values[order] for name, values in table.items()}, f


@given(
    seed=st.integers(0, 10**6), shared=st.integers(20, 80), others=st.integers(80, 200), luck=st.floats(0, 1)
)
@examples(20)
def test_ratings_are_those_of_the_definition(seed, shared, others, luck):
    table, _ = simulate(seed, 4, shared, others, luck)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        found = rate(table, judge="judge", trusted="ann", alpha=0.3)
    items = found.items
    pairs = [(items.index(a), items.index(b)) for a, b in zip(table["model_a"], table["model_b"])]
    share, trusted = (table["winner"] == "model_a").astype(float), table["judge"] == "ann"
    P = 0.6 * np.eye(len(items))
    truth = oracles.trusted_by_newton(pairs, share, table["prompt"], trusted, P, None, len(items))
    np.testing.assert_allclose(found.strengths.scores, truth["theta"], atol=1e-6)
    assert found.trusted.kappa == pytest.approx(truth["kappa"], abs=1e-8)
    np.testing.assert_allclose(found.covariance, truth["covariance"], atol=1e-6)


def test_intervals_hold_and_are_narrower_and_nobody_is_favoured():
    inside, ratio, off = [], [], []
    for seed in range(80):
        table, f = simulate(seed)
        found = rate(table, judge="judge", trusted=["ann"], alpha=0.03)
        people = table["judge"] == "ann"
        alone = rate({name: values[people] for name, values in table.items()}, alpha=0.03)
        error = np.array([found.scores[f"m{k}"] for k in range(6)]) - f
        inside.append(np.abs(error) < 1.96 * found.standard_errors)
        ratio.append(found.standard_errors / alone.standard_errors)
        off.append(error)
        assert found.trusted.worth > 5
    assert 0.92 < np.mean(inside) < 0.98
    assert np.mean(ratio) < 0.9 and np.max(ratio) < 1.02
    # The model's tastes have a standard deviation of .6.
    assert np.abs(np.mean(off, axis=0)).max() < 0.12


def test_a_judge_that_only_guesses_is_worth_nothing_and_said_so():
    table, _ = simulate(luck=0.0)
    with pytest.warns(UserWarning, match="worth nothing"):
        found = rate(table, judge="judge", trusted=["ann"], alpha=0.1)
    people = table["judge"] == "ann"
    alone = rate({name: values[people] for name, values in table.items()}, alpha=0.1)
    np.testing.assert_allclose(found.standard_errors, alone.standard_errors, rtol=0.03)
    contrary = {**table, "winner": np.where(people, table["winner"], table["winner"][::-1])}
    del contrary["prompt"]
    with pytest.warns(UserWarning, match="No battle was judged by trusted"):
        plain = rate(contrary, judge="judge", trusted=["ann"], alpha=0.1)
    np.testing.assert_allclose(plain.strengths.scores, alone.strengths.scores, atol=1e-7)


def test_clusters_of_people_and_everything_next_to_ratings(tmp_path):
    table, _ = simulate(shared=400)
    rng = np.random.default_rng(0)
    people = np.flatnonzero(table["judge"] == "ann")
    judge = table["judge"].astype(object)
    judge[people] = [f"p{k}" for k in rng.integers(12, size=people.size)]
    found = rate({**table, "judge": judge}, judge="judge", trusted=[f"p{k}" for k in range(12)], alpha=0.1)
    assert found.cluster is not None and len(columns_of(found.judges)["judge"]) == 12
    model = rate(
        {**table, "judge": judge},
        judge="judge",
        trusted=[f"p{k}" for k in range(12)],
        alpha=0.1,
        cluster=False,
    )
    np.testing.assert_allclose(found.standard_errors, model.standard_errors, rtol=0.6)
    assert set(found.fragility().battles) <= set(people) and set(found.surprises["row"]) <= set(people)
    assert 0 < columns_of(found.held_out)["log_loss"][0] < 0.7
    assert "worth" in str(found.trusted) and str(found.trusted) in found.notes
    found.report(tmp_path / "b.html")
    assert rate(table, judge="judge", trusted="ann").alpha > 0


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"judge": None}, "trusted names judges.*judge="),
        ({"trusted": ["nobody"]}, "trusted names 'nobody', who has judged nothing.*'ann'"),
        ({"trusted": []}, "trusted names nobody"),
        ({"trusted": ["ann", "gpt"]}, "trusted names every judge"),
        ({"ties": "davidson"}, r"\(trusted\).*leave ties out"),
        ({"margin": "goals"}, r"\(trusted\).*leave margin out"),
        ({"covariates": ["position"]}, r"\(trusted\).*leave covariates out"),
        ({"first_side": True}, r"\(trusted\).*leave first_side out"),
        ({"weight": "goals"}, r"\(trusted\).*leave weight out"),
        ({"half_life": 3.0, "time": "prompt"}, r"\(trusted\).*leave half_life out"),
        ({"alpha": 0}, r"alpha=0.*\(trusted\)"),
    ],
)
def test_what_does_not_go_with_trusted_judges_is_refused(options, words):
    table, _ = simulate()
    with pytest.raises(ValueError, match=words):
        rate({**table, "goals": np.ones(1650)}, **{"judge": "judge", "trusted": ["ann"], **options})


def test_what_would_forget_the_others_is_refused():
    table, _ = simulate()
    found = rate(table, judge="judge", trusted=["ann"])
    for call in (
        lambda: found.update(table),
        lambda: found.by(["x"] * 150),
        lambda: BattleCounts(trusted=["ann"]),
    ):
        with pytest.raises(ValueError, match="trusted"):
            call()
