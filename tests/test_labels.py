"""Bradley-Terry models of very many labels: the sparse posterior is the dense one."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.exceptions import ConvergenceWarning

import oracles
from preflearn import BradleyTerry, BradleyTerryCV
from preflearn.comparisons.answers import Answers
from preflearn.learners import bradley_terry, bradley_terry_cv, latent
from preflearn.losses import labels, laplace


def matches(m=40, n_pairs=150, seed=0):
    """Pairs of labels, the last of them not compared."""
    rng = np.random.default_rng(seed)
    f = rng.normal(size=m)
    pairs = np.array([rng.choice(m - 1, 2, replace=False) for _ in range(n_pairs)])
    won = rng.random(n_pairs) < 1 / (1 + np.exp(f[pairs[:, 1]] - f[pairs[:, 0]]))
    return np.arange(m), np.where(won[:, None], pairs, pairs[:, ::-1])


@pytest.fixture
def sparse(monkeypatch):
    """Few labels count as many."""
    for module in (laplace, bradley_terry, latent, bradley_terry_cv):
        monkeypatch.setattr(module, "MOST_DENSE_LABELS", 5)


@pytest.fixture
def estimated(sparse, monkeypatch):
    """And few variances as too many to solve for."""
    for module in (labels, latent):
        monkeypatch.setattr(module, "MOST_SOLVED", 3)
        monkeypatch.setattr(module, "N_DRAWS", 4000)


@pytest.mark.parametrize("alpha", [1e-3, 0.3, 10.0])
def test_solved_covariances_are_the_dense_formula(sparse, alpha):
    items, pairs = matches()
    model = BradleyTerry(alpha, kernel="items").fit_pairs(items, pairs)
    mean, covariance = model.posterior(items)
    expected = oracles.laplace_covariance(np.eye(40), mean, pairs, alpha)
    assert_allclose(mean, oracles.bradley_terry_mode(np.eye(40), pairs, alpha)[0], atol=1e-6)
    assert_allclose(covariance, expected, rtol=1e-6, atol=1e-7 * expected.max())
    assert_allclose(model.posterior(items, variances_only=True)[1], np.diagonal(expected), rtol=1e-6)
    asked = [7, 3, 7]
    assert_allclose(model.posterior(asked)[1], expected[np.ix_(asked, asked)], rtol=1e-6, atol=1e-9)
    h, j = np.array([0, 1, 2]), np.array([5, 5, 2])
    variance = expected[h, h] + expected[j, j] - 2 * expected[h, j]
    p = 1 / (1 + np.exp(-(mean[h] - mean[j]) / np.sqrt(1 + np.pi * variance / 8)))
    assert_allclose(model.win_probability(h, j), p, atol=1e-7)


def test_unknown_labels_have_their_prior(sparse):
    items, pairs = matches()
    model = BradleyTerry(0.5, kernel="items").fit_pairs(items, pairs)
    mean, covariance = model.posterior([100, 3, 100, 200])
    assert_array_equal(mean[[0, 2, 3]], 0.0)
    assert_allclose(covariance[np.ix_([0, 2, 3], [0, 2, 3])], [[1, 1, 0], [1, 1, 0], [0, 0, 1]])
    assert_allclose(covariance[1, [0, 2, 3]], 0.0)
    assert model.win_probability([100], [100])[0] == 0.5
    assert_allclose(model.posterior([100, 3], variances_only=True)[1], np.diagonal(covariance)[:2])


@pytest.mark.parametrize("alpha", [1e-2, 0.3])
def test_estimated_variances_are_near_and_say_so(estimated, alpha):
    items, pairs = matches()
    model = BradleyTerry(alpha, kernel="items").fit_pairs(items, pairs)
    expected = oracles.laplace_covariance(np.eye(40), model.predict(items), pairs, alpha)
    with pytest.warns(UserWarning, match="estimated from 4000 draws"):
        variances = model.posterior(items, variances_only=True)[1]
    assert_allclose(variances, np.diagonal(expected), rtol=5 * np.sqrt(2 / 4000))
    h, j = pairs.T
    found = model._posterior().variances_of_differences(pairs)
    assert_allclose(found, expected[h, h] + expected[j, j] - 2 * expected[h, j], rtol=5 * np.sqrt(2 / 4000))


def test_a_search_among_many_labels_finds_what_the_dense_one_does(monkeypatch):
    items, pairs = matches(n_pairs=300)
    dense = BradleyTerryCV(kernel="items", keep_predictions=True).fit_pairs(items, pairs)
    for module in (laplace, bradley_terry, latent, bradley_terry_cv):
        monkeypatch.setattr(module, "MOST_DENSE_LABELS", 5)
    found = BradleyTerryCV(kernel="items", keep_predictions=True).fit_pairs(items, pairs)
    assert_allclose(found.cv_predictions_, dense.cv_predictions_, atol=1e-5)
    assert found.alpha_ == dense.alpha_
    with pytest.raises(ValueError, match="needs a determinant"):
        BradleyTerryCV(kernel="items", scoring="log_evidence").fit_pairs(items, pairs)


def test_without_draws_held_out_probabilities_are_closer_to_refitting(monkeypatch):
    """Why the posterior of up to 3,000 labels is a dense matrix although draws take a fifth of the time."""
    rng = np.random.default_rng(0)
    items, strength = np.arange(300), rng.normal(size=300)
    pairs = rng.integers(300, size=(2_500, 2))
    pairs = pairs[pairs[:, 0] != pairs[:, 1]]
    better = rng.random(len(pairs)) < 1 / (1 + np.exp(strength[pairs[:, 1]] - strength[pairs[:, 0]]))
    pairs = np.where(better[:, None], pairs, pairs[:, ::-1])

    def held_out():
        model = BradleyTerryCV([0.5], kernel="items", keep_predictions=True).fit_pairs(items, pairs)
        return model.cv_predictions_[0, :60]

    refitted = np.empty(60)
    for k in range(60):
        model = BradleyTerry(0.5, kernel="items").fit_pairs(items, np.delete(pairs, k, axis=0))
        refitted[k] = model.win_probability(pairs[k, :1], pairs[k, 1:])[0]
    dense = np.abs(held_out() - refitted)
    for module in (laplace, bradley_terry, latent, bradley_terry_cv):
        monkeypatch.setattr(module, "MOST_DENSE_LABELS", 5)
    drawn = np.abs(held_out() - refitted)
    assert dense.max() < 2e-3 and drawn.max() < 2e-2
    assert np.sqrt(np.mean(dense**2)) < np.sqrt(np.mean(drawn**2)) / 1.5


def test_more_answers_and_new_labels(sparse):
    items, pairs = matches()
    model = BradleyTerry(0.2, kernel="items").fit_pairs(items[:30], pairs[(pairs < 30).all(axis=1)])
    late = pairs[~(pairs < 30).all(axis=1)]
    model.partial_fit_pairs(items, late)
    whole = BradleyTerry(0.2, kernel="items").fit_pairs(items, np.concatenate([model.answers_.pairs]))
    assert_allclose(model.predict(items[:39]), whole.predict(items[:39]), atol=1e-7)


@pytest.mark.parametrize("goal", [None, "top:5", (3, 8)])
def test_questions_among_many_labels(sparse, goal):
    items, pairs = matches()
    model = BradleyTerry(0.2, kernel="items").fit_pairs(items, pairs)
    asked = model.next_pairs(items, 6, answered=pairs, goal=goal)
    seen = {frozenset(pair) for pair in asked.tolist()}
    assert len(seen) == 6 and not seen & {frozenset(pair) for pair in pairs.tolist()}


def test_random_questions_among_many_labels(sparse):
    items, pairs = matches()
    model = BradleyTerry(kernel="items", random_state=0).fit_pairs(items, pairs)
    asked = model.next_pairs(items, 1000, answered=pairs, strategy="random")
    taken = {frozenset(pair) for pair in pairs.tolist()}
    assert len(asked) == 40 * 39 // 2 - len(taken)
    assert not {frozenset(pair) for pair in asked.tolist()} & taken


def test_a_covariance_that_does_not_fit_is_refused(sparse, monkeypatch):
    items, pairs = matches()
    model = BradleyTerry(kernel="items").fit_pairs(items, pairs)
    monkeypatch.setattr("preflearn.numerics.memory.fits_in_memory", lambda n_bytes: n_bytes < 1000)
    with pytest.raises(MemoryError, match="variances_only=True"):
        model.posterior(items)


def test_many_answers_raise_no_false_alarm():
    rng = np.random.default_rng(0)
    pairs = rng.integers(4000, size=(200_000, 2))
    with warnings.catch_warnings():
        warnings.simplefilter("error", ConvergenceWarning)
        model = BradleyTerry(1e-3, kernel="items").fit_pairs(
            np.arange(4000), pairs[pairs[:, 0] != pairs[:, 1]]
        )
    assert abs(model.predict(np.arange(4000)).sum()) < 1e-9


@pytest.mark.parametrize("n_answers", [0, 5, 300_000])  # none, one thread, several
def test_compiled_sums_over_answers(n_answers):
    from preflearn.losses._loops import curvature_product, variances_by_draws

    rng = np.random.default_rng(0)
    m = 7
    pairs = rng.integers(0, m, size=(n_answers, 2))
    curvatures, v = rng.random(n_answers), rng.normal(size=m)
    answers = Answers.read(m, pairs)
    expected = answers.spread(curvatures * answers.differences(v))
    assert_allclose(curvature_product(pairs, curvatures, v), expected, rtol=1e-10, atol=1e-10)
    F, HF = rng.normal(size=(2, m, 4))
    left, right = rng.normal(size=(2, n_answers))
    out = np.ones(n_answers)
    variances_by_draws(pairs, left, right, F, HF, out)
    h, j = pairs.T
    mean = F[h] - F[j] - left[:, None] * HF[h] - right[:, None] * HF[j]
    assert_allclose(out, 1.0 + np.where(h == j, 0.0, np.mean(mean**2, axis=1)), rtol=1e-12)


def test_labels_may_stand_in_a_column():
    items, pairs = matches()
    flat = BradleyTerry(0.5, kernel="items").fit_pairs(items, pairs)
    column = BradleyTerry(0.5, kernel="items").fit_pairs(np.asarray(items)[:, None], pairs)
    assert_allclose(column.predict(np.asarray(items)[:, None]), flat.predict(items))
    with pytest.raises(ValueError, match="one number or label"):
        BradleyTerry(kernel="items").fit_pairs(np.stack([items, items], axis=1), pairs)
