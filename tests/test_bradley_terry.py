"""Bradley-Terry models: the solution, its posterior, updates, questions, judges, the choice of alpha, calibration."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy.optimize import minimize_scalar
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.metrics.pairwise import rbf_kernel

import oracles
from preflearn import BradleyTerry, BradleyTerryCV, RankRLS
from preflearn.comparisons.answers import Answers
from preflearn.io import load_model, save_model
from preflearn.losses.logistic import LogisticLoss, estimate_reliability
from preflearn.losses.questions import choose_pairs, information
from preflearn.metrics import calibration_of_preferences
from preflearn.model_selection import leave_preference_out


def simulated(m=24, n=4, n_pairs=80, seed=0, spread=2.0):
    """Items with features, and answers of a judge who follows the model."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(m, n))
    f = X @ rng.normal(size=n)
    f *= spread / f.std()
    pairs = np.array([rng.choice(m, 2, replace=False) for _ in range(n_pairs)])
    won = rng.random(n_pairs) < 1 / (1 + np.exp(f[pairs[:, 1]] - f[pairs[:, 0]]))
    return X, np.where(won[:, None], pairs, pairs[:, ::-1]), f


def kernel_of(options, X):
    """The kernel matrix that the options stand for."""
    if options.get("kernel") == "items":
        return np.eye(len(X))
    K = rbf_kernel(X) if options.get("kernel") == "rbf" else X @ X.T
    return K + options.get("item_offsets", 0.0) * np.mean(np.diagonal(K)) * np.eye(len(X))


KERNELS = [
    {},
    {"kernel": "rbf"},
    {"kernel": "items"},
    {"item_offsets": 0.5},
    {"kernel": "rbf", "item_offsets": 2.0},
]
EVERY_KERNEL = pytest.mark.parametrize("options", KERNELS, ids=str)


def items_of(options, X):
    return np.arange(len(X)) if options.get("kernel") == "items" else X


# The solution -------------------------------------------------------------------------------------------------------


@EVERY_KERNEL
@pytest.mark.parametrize("alpha", [0.05, 1.0])
def test_scores_minimise_the_objective(options, alpha):
    X, pairs, _ = simulated()
    rng = np.random.default_rng(1)
    weight, ties = rng.uniform(0.2, 3.0, size=len(pairs)), rng.random(len(pairs)) < 0.2
    model = BradleyTerry(alpha, **options).fit_pairs(items_of(options, X), pairs, weight=weight, ties=ties)
    f, value = oracles.bradley_terry_mode(kernel_of(options, X), pairs, alpha, weight, ties)
    # The objective is at its minimum to the last digits, the scores to half as many.
    assert_allclose(model.predict(items_of(options, X)), f, atol=1e-6)
    assert_allclose(model.objective_, value, rtol=1e-13)


def test_gradient_and_curvature_are_finite_differences():
    X, pairs, f = simulated()
    rng = np.random.default_rng(2)
    answers = Answers(24, pairs, rng.random(80), rng.choice([0.5, 1.0], 80), rng.uniform(0.3, 2, 80))
    loss, v = LogisticLoss(answers, f), rng.normal(size=24)
    step = 1e-5
    up, down = LogisticLoss(answers, f + step * v), LogisticLoss(answers, f - step * v)
    assert_allclose(loss.gradient @ v, (up.value - down.value) / (2 * step), rtol=1e-7)
    assert_allclose(loss.curvature(v), (up.gradient - down.gradient) / (2 * step), atol=1e-8)
    assert_allclose(loss.degrees, np.diagonal(np.array([loss.curvature(e) for e in np.eye(24)])), atol=1e-12)


def test_loss_does_not_overflow():
    loss = LogisticLoss(Answers.read(2, np.array([[0, 1]])), np.array([-1e6, 1e6]))
    assert loss.value == 2e6 and np.isfinite(loss.gradient).all()


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("n", [4, 40])
def test_sparse_and_dense_features_agree(dtype, n):
    X, pairs, _ = simulated(n=n)
    X = np.where(np.abs(X) > 0.5, X, 0.0).astype(dtype)
    dense = BradleyTerry(0.3).fit_pairs(X, pairs)
    sparse = BradleyTerry(0.3).fit_pairs(sp.csr_array(X), pairs)
    tolerance = 1e-7 if dtype is np.float64 else 1e-3
    assert_allclose(dense.coef_, sparse.coef_, atol=tolerance)
    assert_allclose(dense.posterior(X)[1], sparse.posterior(sp.csr_array(X))[1], atol=tolerance)
    assert_allclose(
        dense.win_probability(X[:5], X[5:10]),
        sparse.win_probability(sp.csr_array(X[:5]), sp.csr_array(X[5:10])),
        atol=tolerance,
    )


def test_precomputed_kernel_is_the_kernel():
    X, pairs, _ = simulated()
    K = rbf_kernel(X)
    model, same = (
        BradleyTerry(kernel="precomputed").fit_pairs(K, pairs),
        BradleyTerry(kernel="rbf", gamma=0.25),
    )
    same.fit_pairs(X, pairs)
    assert_allclose(model.predict(K), same.predict(X), atol=1e-7)
    assert_allclose(model.posterior(K[:4])[1], same.posterior(X[:4])[1], atol=1e-7)
    with pytest.raises(ValueError, match="not a row of the kernel matrix"):
        model.posterior(K[:1] + 0.5)


def test_reduced_set_of_every_row_is_the_full_kernel():
    X, pairs, _ = simulated()
    full = BradleyTerry(kernel="rbf").fit_pairs(X, pairs)
    reduced = BradleyTerry(kernel="rbf", basis=np.arange(24)).fit_pairs(X, pairs)
    new = X[:3] + 0.1
    assert_allclose(full.predict(new), reduced.predict(new), atol=1e-6)
    assert_allclose(full.posterior(X)[1], reduced.posterior(X)[1], atol=1e-6)


def test_callable_kernel_on_objects():
    words = ["a", "ab", "abc", "b"]
    model = BradleyTerry(kernel=lambda s, t: float(len(set(s) & set(t)))).fit_pairs(words, [[2, 3], [1, 0]])
    assert model.predict(["abc", "b"])[0] > model.predict(["abc", "b"])[1]
    assert model.posterior(words)[1].shape == (4, 4)


@pytest.mark.parametrize("rule", ["median", "scale"])
@pytest.mark.parametrize("options", [{}, {"item_offsets": 0.5}, {"n_basis": 6, "random_state": 0}], ids=str)
@pytest.mark.parametrize("learner", [BradleyTerry, BradleyTerryCV])
def test_gamma_may_be_a_rule(learner, options, rule):
    X, pairs, _ = simulated()
    found = learner(kernel="rbf", gamma=rule, **options).fit_pairs(X, pairs)
    assert found.gamma_ == RankRLS(kernel="rbf", gamma=rule).fit(X, X[:, 0]).gamma_
    same = learner(kernel="rbf", gamma=found.gamma_, **options).fit_pairs(X, pairs)
    new = X[:3] + 0.1
    assert_allclose(found.predict(new), same.predict(new), rtol=1e-12)
    assert_allclose(found.posterior(new)[1], same.posterior(new)[1], rtol=1e-12)
    # Another fit asks its own rows.
    assert found.fit_pairs(2 * X, pairs).gamma_ == pytest.approx(same.gamma / 4)


def test_a_rule_for_gamma_that_the_kernel_does_not_take_is_refused():
    X, pairs, _ = simulated()
    with pytest.raises(ValueError, match="does not take gamma"):
        BradleyTerry(gamma="median").fit_pairs(X, pairs)
    with pytest.raises(ValueError, match="gamma of kernel='rbf' must be"):
        BradleyTerry(kernel="rbf", gamma="mean").fit_pairs(X, pairs)
    with pytest.raises(ValueError, match="not both"):
        BradleyTerryCV(kernel="rbf", gamma="median", gammas=[1.0]).fit_pairs(X, pairs)


def test_no_answers_leave_the_prior():
    X, _, _ = simulated()
    mean, covariance = BradleyTerry(0.5, kernel="rbf").fit_pairs(X, np.empty((0, 2), int)).posterior(X)
    assert_array_equal(mean, 0.0)
    assert_allclose(covariance, rbf_kernel(X), atol=1e-10)


def test_labels_of_any_kind_and_unknown_ones():
    pairs = [[0, 1], [1, 2]]
    words = BradleyTerry(kernel="items").fit_pairs(["x", "y", "z"], pairs)
    numbers = BradleyTerry(kernel="items").fit_pairs([[7], [9], [11]], pairs)
    assert_allclose(words.predict(["z", "x"]), numbers.predict([11, 7]))
    assert words.predict(["never seen"]) == 0.0
    assert_allclose(words.win_probability(["never seen"], ["never seen either"]), 0.5)


def test_equal_rows_are_one_item():
    X = np.array([[1.0], [2.0], [1.0]])
    model = BradleyTerry(item_offsets=1.0).fit_pairs(X, [[1, 0], [2, 1], [1, 2]])
    assert model.predict(X)[0] == model.predict(X)[2]
    assert model.items_.shape == (2, 1)


# The posterior ------------------------------------------------------------------------------------------------------


@EVERY_KERNEL
def test_posterior_is_the_dense_formula(options):
    X, pairs, _ = simulated()
    items, K = items_of(options, X), kernel_of(options, X)
    model = BradleyTerry(0.3, **options).fit_pairs(items, pairs)
    mean, covariance = model.posterior(items)
    assert_allclose(mean, model.predict(items), atol=1e-6)
    expected = oracles.laplace_covariance(K, mean, pairs, 0.3)
    assert_allclose(covariance, expected, atol=1e-12, rtol=1e-11)
    assert_allclose(model.posterior(items, variances_only=True)[1], np.diagonal(expected), rtol=1e-11)
    h, j = np.array([0, 1, 2]), np.array([5, 5, 2])
    variance = expected[h, h] + expected[j, j] - 2 * expected[h, j]
    p = 1 / (1 + np.exp(-(mean[h] - mean[j]) / np.sqrt(1 + np.pi * variance / 8)))
    assert_allclose(model.win_probability(items[h], items[j]), p, atol=1e-6)


@pytest.mark.parametrize("options", [KERNELS[0], KERNELS[1], KERNELS[3]], ids=str)
def test_posterior_of_new_items_is_that_of_items_without_answers(options):
    X, pairs, _ = simulated()
    everything = np.concatenate([X, X[:5] + 0.3])
    K = kernel_of({**options, "item_offsets": 0.0}, everything)
    known = kernel_of({**options, "item_offsets": 0.0}, X)
    K += options.get("item_offsets", 0.0) * np.mean(np.diagonal(known)) * np.eye(len(K))
    model = BradleyTerry(0.3, **options).fit_pairs(X, pairs)
    mean, covariance = model.posterior(everything)
    expected = oracles.laplace_covariance(K, mean, pairs, 0.3)
    assert_allclose(covariance, expected, atol=1e-6)
    assert_allclose(model.posterior(everything, variances_only=True)[1], np.diagonal(expected), atol=1e-6)
    a, b = everything[24:], everything[:5]
    d = np.eye(29)[24:] - np.eye(29)[:5]
    variance = np.einsum("ij,jk,ik->i", d, expected, d)
    p = 1 / (1 + np.exp(-(d @ mean) / np.sqrt(1 + np.pi * variance / 8)))
    assert_allclose(model.win_probability(a, b), p, atol=1e-6)


@pytest.mark.parametrize("alpha", [0.3, 1e-10])  # a tiny alpha takes the span of what the answers see
@pytest.mark.parametrize("known", [True, False])
def test_a_new_item_against_another(alpha, known):
    X, pairs, _ = simulated()
    model, new = BradleyTerry(alpha, kernel="rbf").fit_pairs(X, pairs), X[:3] + 0.3
    other = X[5:8] if known else X[:3] + 0.8
    mean, covariance = model.posterior(np.concatenate([new, other]))
    d = np.eye(6)[:3] - np.eye(6)[3:]
    variance = np.einsum("ij,jk,ik->i", d, covariance, d)
    p = 1 / (1 + np.exp(-(d @ mean) / np.sqrt(1 + np.pi * variance / 8)))
    assert_allclose(model.win_probability(new, other), p, rtol=1e-6)
    assert_allclose(model.win_probability(other, new), 1 - p, rtol=1e-6)


def test_one_item_against_many():
    X, pairs, _ = simulated()
    model = BradleyTerry().fit_pairs(X, pairs)
    assert_allclose(model.win_probability(X[[3]], X), 1 - model.win_probability(X, X[[3]]))
    with pytest.raises(ValueError, match="X_a has 2 items, X_b has 3"):
        model.win_probability(X[:2], X[:3])


# One more answer ----------------------------------------------------------------------------------------------------


@settings(max_examples=15)
@given(st.integers(0, 10_000), st.sampled_from(KERNELS), st.sampled_from([0.02, 0.5, 5.0]), st.integers(1, 7))
def test_more_answers_equal_all_at_once(seed, options, alpha, chunk):
    X, pairs, _ = simulated(m=12, n_pairs=40, seed=seed)
    items = items_of(options, X)
    ties = np.random.default_rng(seed).random(40) < 0.1
    whole = BradleyTerry(alpha, **options).fit_pairs(items, pairs, ties=ties)
    parts = BradleyTerry(alpha, **options).fit_pairs(items, pairs[:3], ties=ties[:3])
    for start in range(3, 40, chunk):
        some = slice(start, start + chunk)
        parts.partial_fit_pairs(items, pairs[some], ties=ties[some])
    assert_allclose(
        parts.predict(items), whole.predict(items), atol=1e-6 * max(1, np.abs(whole.predict(items)).max())
    )
    assert_allclose(parts.objective_, whole.objective_, rtol=1e-10)
    # The curvatures may be 0.2 % off, and the covariance with them.
    size = np.abs(whole.posterior(items)[1]).max()
    assert_allclose(parts.posterior(items)[1], whole.posterior(items)[1], atol=0.002 * size)


@pytest.mark.parametrize(
    "options",
    [{}, {"kernel": "rbf"}, {"item_offsets": 1.0}, {"kernel": "rbf", "basis": np.arange(8)}],
    ids=str,
)
def test_new_items_arrive_with_their_answers(options):
    X, pairs, _ = simulated()
    early = pairs[(pairs < 20).all(axis=1)]
    late = pairs[~(pairs < 20).all(axis=1)]
    model = BradleyTerry(0.3, **options).fit_pairs(X[:20], early).partial_fit_pairs(X, late)
    if "item_offsets" in options:
        # The scale of the offsets stays that of the first items.
        ratio = model.offset_variance_ / np.mean(np.sum(X**2, axis=1))
        options = {"item_offsets": ratio}
    whole = BradleyTerry(0.3, **options).fit_pairs(X, np.concatenate([early, late]))
    assert_allclose(model.predict(X), whole.predict(X), atol=1e-6)
    # Curvatures that are 0.2 % off, as above.
    covariance = whole.posterior(X)[1]
    assert_allclose(model.posterior(X)[1], covariance, atol=0.001 * covariance.max())


def test_first_answers_may_come_one_by_one():
    model = BradleyTerry(kernel="items")
    model.partial_fit_pairs(["a", "b"], [[0, 1]]).partial_fit_pairs(["b", "c"], [[0, 1]])
    whole = BradleyTerry(kernel="items").fit_pairs(["a", "b", "c"], [[0, 1], [1, 2]])
    assert_allclose(model.predict(["a", "b", "c"]), whole.predict(["a", "b", "c"]), atol=1e-8)


# Questions ----------------------------------------------------------------------------------------------------------


def test_information_is_close_to_quadrature():
    mean, variance = (
        grid.ravel() for grid in np.meshgrid([0.0, 0.5, 1.0, 3.0, 6.0], [0.0, 0.1, 0.5, 1.0, 4.0, 9.0, 25.0])
    )
    exact = [oracles.answer_information(m, v) for m, v in zip(mean, variance, strict=True)]
    assert_allclose(information(mean, variance), exact, atol=0.004)
    # Far too little to matter where nothing can be learned, exact where much can.
    telling = np.array(exact) > 0.05
    assert_allclose(information(mean, variance)[telling], np.array(exact)[telling], rtol=0.03)


@given(st.integers(0, 1000), st.integers(2, 9))
def test_the_best_pair_is_the_best_of_all(seed, m):
    rng = np.random.default_rng(seed)
    A = rng.normal(size=(m, m))
    C, mean = A @ A.T, rng.normal(size=m)
    closed = np.eye(m, dtype=bool)
    (pair,) = choose_pairs(mean, C, 1, closed=closed)
    values = {
        (h, j): float(information(mean[h] - mean[j], C[h, h] + C[j, j] - 2 * C[h, j]))
        for h in range(m)
        for j in range(h + 1, m)
    }
    assert values[tuple(pair.tolist())] == pytest.approx(max(values.values()), abs=1e-12)


@pytest.mark.parametrize("goal", [None, "everything", "top:3", (0, 5)])
def test_a_batch_asks_nothing_twice(goal):
    X, pairs, _ = simulated(m=8, n_pairs=10)
    model = BradleyTerry(kernel="rbf", item_offsets=1.0).fit_pairs(X, pairs)
    asked = model.next_pairs(X, 15, answered=pairs, goal=goal)
    seen = {frozenset(pair) for pair in asked.tolist()}
    assert len(seen) == len(asked) and not seen & {frozenset(pair) for pair in pairs.tolist()}
    left = model.next_pairs(X, 100, answered=pairs, goal=goal)
    assert len(left) == 28 - len({frozenset(pair) for pair in pairs.tolist()})


def test_a_goal_changes_the_question():
    rng = np.random.default_rng(0)
    labels = np.arange(40)
    f = np.linspace(4, -4, 40)
    pairs = np.array([rng.choice(40, 2, replace=False) for _ in range(200)])
    won = rng.random(200) < 1 / (1 + np.exp(f[pairs[:, 1]] - f[pairs[:, 0]]))
    model = BradleyTerry(0.1, kernel="items").fit_pairs(labels, np.where(won[:, None], pairs, pairs[:, ::-1]))
    position = model.rank(labels)
    top = model.next_pairs(labels, 10, goal="top:5")
    assert np.abs(position[top] - 5.5).mean() < np.abs(position[model.next_pairs(labels, 10)] - 5.5).mean()
    # Two items with nothing in common but their answers: the best question is about them.
    assert_array_equal(np.sort(model.next_pairs(labels, goal=(20, 21))), [[20, 21]])


def test_random_questions_are_repeatable_and_open():
    X, pairs, _ = simulated(m=6, n_pairs=5)
    model = BradleyTerry(random_state=0).fit_pairs(X, pairs)
    asked = model.next_pairs(X, 4, answered=pairs, strategy="random")
    assert_array_equal(asked, model.next_pairs(X, 4, answered=pairs, strategy="random"))
    assert not {frozenset(p) for p in asked.tolist()} & {frozenset(p) for p in pairs.tolist()}


# Judges -------------------------------------------------------------------------------------------------------------


def judged(careless, seed=0, n_each=150):
    """Four judges, the last one answering by ``careless(rng, pairs)`` (whether the first was preferred)."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(30, 4))
    f = X @ rng.normal(size=4) * 1.5
    pairs = np.array([rng.choice(30, 2, replace=False) for _ in range(4 * n_each)])
    judge = np.repeat(["ann", "bob", "cy", "dee"], n_each)
    won = rng.random(len(pairs)) < 1 / (1 + np.exp(f[pairs[:, 1]] - f[pairs[:, 0]]))
    won = np.where(judge == "dee", careless(rng, pairs), won)
    return X, np.where(won[:, None], pairs, pairs[:, ::-1]), judge, f


@pytest.mark.parametrize("kernel", ["linear", "items"])
@pytest.mark.parametrize(
    "careless",
    [lambda rng, pairs: rng.random(len(pairs)) < 0.5, lambda rng, pairs: np.ones(len(pairs), bool)],
    ids=["at random", "always left"],
)
def test_a_careless_judge_is_found_and_discounted(careless, kernel):
    gains = []
    for seed in range(4):
        X, pairs, judge, f = judged(careless, seed)
        items = X if kernel == "linear" else np.arange(30)
        model = BradleyTerry(0.2, kernel=kernel).fit_pairs(items, pairs, judge=judge)
        assert set(model.reliability_) == {"ann", "bob", "cy", "dee"}
        assert model.reliability_["dee"] < 0.25 * min(
            model.reliability_[name] for name in ("ann", "bob", "cy")
        )
        deaf = BradleyTerry(0.2, kernel=kernel).fit_pairs(items, pairs)
        correlation = [np.corrcoef(m.predict(items), f)[0, 1] for m in (model, deaf)]
        gains.append(correlation[0] - correlation[1])
    # In a single draw, 150 answers at random may happen to help a little.
    assert np.mean(gains) > 0 and min(gains) > -0.004


def test_reliabilities_minimise_the_surprise_of_held_out_answers():
    rng = np.random.default_rng(0)
    judges, mean, variance = np.repeat(range(3), 40), rng.normal(size=120), rng.uniform(0.5, 8.0, size=120)
    share, weight = rng.choice([0.0, 0.5, 1.0], size=120), rng.uniform(0.5, 2.0, size=120)
    share[:40] = mean[:40] > 0
    pairs = np.tile([0, 1], (120, 1))
    answers = Answers(2, pairs, weight, share, np.ones(120), judges)

    def surprise(log_r, rows):
        d = np.exp(log_r) * mean[rows] / np.sqrt(1 + np.pi * np.exp(2 * log_r) * variance[rows] / 8)
        p = 1 / (1 + np.exp(-d))
        return -weight[rows] @ (share[rows] * np.log(p) + (1 - share[rows]) * np.log(1 - p)) + log_r**2 / 2

    r = np.array([np.exp(minimize_scalar(surprise, args=(judges == k,), bounds=(-4, 3)).x) for k in range(3)])
    total = np.bincount(judges, weight)
    assert_allclose(estimate_reliability(answers, mean, variance), r * total.sum() / (total @ r), rtol=1e-3)


def test_one_judge_has_reliability_one():
    X, pairs, _ = simulated()
    model = BradleyTerry().fit_pairs(X, pairs, judge=["me"] * len(pairs))
    assert model.reliability_ == {"me": pytest.approx(1.0)}
    assert_allclose(model.predict(X), BradleyTerry().fit_pairs(X, pairs).predict(X), atol=1e-6)


def test_judges_join_one_answer_at_a_time():
    X, pairs, judge, _ = judged(lambda rng, pairs: rng.random(len(pairs)) < 0.5, n_each=60)
    order = np.random.default_rng(0).permutation(len(pairs))
    pairs, judge = pairs[order], judge[order]
    whole = BradleyTerry().fit_pairs(X, pairs, judge=judge)
    parts = BradleyTerry().fit_pairs(X, pairs[:200], judge=judge[:200])
    for k in range(200, 240):
        parts.partial_fit_pairs(X, pairs[k : k + 1], judge=judge[k : k + 1])
    for name, value in whole.reliability_.items():
        assert parts.reliability_[name] == pytest.approx(value, rel=0.001)
    # Reliabilities and scores alternate until a reliability changes by 0.1 % at most.
    assert_allclose(parts.predict(X), whole.predict(X), atol=0.001)


# Choosing -----------------------------------------------------------------------------------------------------------


@EVERY_KERNEL
def test_held_out_preferences_are_close_to_refitting(options):
    X, pairs, _ = simulated(n_pairs=60)
    items = items_of(options, X)
    search = BradleyTerryCV([0.5], keep_predictions=True, **options).fit_pairs(items, pairs)
    expected = np.empty(60)
    for k in range(60):
        model = BradleyTerry(0.5, **options).fit_pairs(items, np.delete(pairs, k, axis=0))
        h, j = pairs[k]
        expected[k] = model.win_probability(items[[h]], items[[j]])[0]
    assert search.cv_predictions_.shape == (1, 60)
    assert_allclose(search.cv_predictions_[0], expected, atol=0.03)
    assert search.best_score_ == pytest.approx(np.log(expected).mean(), abs=0.01)


def test_library_leave_preference_out_serves_this_model():
    X, pairs, _ = simulated(n_pairs=12)
    found = leave_preference_out(BradleyTerry(), X, pairs)
    model = BradleyTerry().fit_pairs(X, pairs[1:])
    assert found[0] == pytest.approx(float(model.predict(X)[pairs[0]] @ [1, -1]), abs=1e-8)


@pytest.mark.parametrize("cv", ["leave-judge-out", "sets"])
def test_held_out_sets_equal_refitting(cv):
    X, pairs, _ = simulated(n_pairs=60)
    groups = np.arange(60) % 4
    sets = [np.flatnonzero(groups == k) for k in range(4)]
    search = BradleyTerryCV([0.1, 1.0], cv=sets, keep_predictions=True).fit_pairs(X, pairs)
    for k, alpha in enumerate([0.1, 1.0]):
        for left in sets:
            model = BradleyTerry(alpha).fit_pairs(X, np.delete(pairs, left, axis=0))
            p = model.win_probability(X[pairs[left, 0]], X[pairs[left, 1]])
            assert_allclose(search.cv_predictions_[k, left], p, atol=1e-7)
    if cv == "leave-judge-out":
        judges = BradleyTerryCV([0.1, 1.0], cv=cv, keep_predictions=True)
        judges.fit_pairs(X, pairs, judge=groups)
        assert np.abs(judges.cv_predictions_ - search.cv_predictions_).max() < 0.2
        assert set(judges.reliability_) == {0, 1, 2, 3}


@pytest.mark.parametrize(
    "options", [{}, {"kernel": "rbf"}, {"kernel": "rbf", "basis": np.arange(24)}], ids=str
)
@pytest.mark.parametrize("scoring", ["neg_log_loss", "log_evidence"])
def test_items_that_are_not_compared_do_not_change_the_search(options, scoring):
    X, pairs, _ = simulated()
    few = BradleyTerryCV([0.1, 1.0], scoring=scoring, **options).fit_pairs(X, pairs)
    many = BradleyTerryCV([0.1, 1.0], scoring=scoring, **options)
    many.fit_pairs(np.tile(X, (5, 1)), pairs)
    assert_allclose(many.cv_scores_, few.cv_scores_, rtol=1e-7)


def test_compared_items_without_features():
    X = np.zeros((10, 30))
    X[5:] = np.random.default_rng(0).normal(size=(5, 30))
    search = BradleyTerryCV([0.1, 1.0]).fit_pairs(X, [[0, 1], [1, 2], [0, 2]])
    assert_allclose(search.cv_scores_, np.log(0.5))


@pytest.mark.parametrize("sparse", [False, True])
def test_more_features_and_rows_than_compared_items(sparse):
    rng = np.random.default_rng(1)
    X, pairs = rng.normal(size=(60, 90)), rng.permuted(np.tile(np.arange(12), (20, 1)), axis=1)[:, :2]
    sets = np.array_split(np.arange(20), 4)
    search = BradleyTerryCV([0.5], cv=sets, keep_predictions=True).fit_pairs(
        sp.csr_array(X) if sparse else X, pairs
    )
    for left in sets:
        model = BradleyTerry(0.5).fit_pairs(X, np.delete(pairs, left, axis=0))
        expected = model.win_probability(X[pairs[left, 0]], X[pairs[left, 1]])
        assert_allclose(search.cv_predictions_[0, left], expected, atol=1e-7)


@EVERY_KERNEL
def test_automatic_alphas_are_those_of_prior_variances_of_an_average_item(options):
    X, pairs, _ = simulated()
    search = BradleyTerryCV(cv=3, **options).fit_pairs(items_of(options, X), pairs)
    variances = np.mean(np.diagonal(kernel_of(options, X))) / (2 * search.alphas_)
    assert_allclose([variances.max(), variances.min()], [10**2.5, 0.01])


def test_search_chooses_and_fits():
    X, pairs, _ = simulated(n_pairs=200)
    search = BradleyTerryCV(kernel="rbf", gammas="auto", item_offsets="auto").fit_pairs(X, pairs)
    assert search.alpha_ in search.alphas_ and len(search.cv_scores_) == len(search.alphas_) == 10
    assert search.best_score_ == search.cv_scores_.max() == max(one["score"] for one in search.kernel_scores_)
    assert len(search.kernel_scores_) == 21 and search.best_score_ > -np.log(2)
    plain = BradleyTerry(search.alpha_, kernel="rbf", gamma=search.gamma_, item_offsets=search.item_offsets_)
    assert_allclose(search.predict(X), plain.fit_pairs(X, pairs).predict(X), atol=1e-6)
    assert not hasattr(search, "cv_predictions_")
    more = search.partial_fit_pairs(X, pairs[:1])
    assert more.n_comparisons_ == 201


def test_evidence_is_that_of_the_dense_formula():
    X, pairs, _ = simulated()
    K, alpha = kernel_of({"item_offsets": 0.5}, X), 0.5
    search = BradleyTerryCV([alpha], item_offsets=0.5, scoring="log_evidence").fit_pairs(X, pairs)
    f, objective = oracles.bradley_terry_mode(K, pairs, alpha)
    C = oracles.laplace_covariance(K, f, pairs, alpha)
    log_det = np.linalg.slogdet(K / (2 * alpha))[1] - np.linalg.slogdet(C)[1]
    # Log-normal priors of the average variance and of the offsets.
    prior = (
        -0.5 * np.log(np.mean(np.diagonal(K)) / (2 * alpha) / 8.0) ** 2 - 0.5 * (np.log(0.5 / 0.3) / 1.5) ** 2
    )
    assert search.best_score_ * len(pairs) == pytest.approx(-objective - 0.5 * log_det + prior, abs=1e-9)


# Calibration --------------------------------------------------------------------------------------------------------


def test_calibration_by_hand():
    found = calibration_of_preferences([0.9, 0.9, 0.9, 0.2, 0.4, 0.5], [1, 1, 0, 1, 0.5, 1], n_bins=1)
    confidence = (0.9 * 3 + 0.8 + 0.6 + 0.5) / 6
    won = (1 + 1 + 0 + 0 + 0.5 + 0.5) / 6
    assert found.expected_calibration_error == pytest.approx(abs(confidence - won))
    assert found.accuracy == pytest.approx(won)
    assert found.brier_score == pytest.approx(np.mean([0.01, 0.01, 0.81, 0.64, 0.01, 0.25]))
    assert "6 preferences" in str(found)


def test_calibration_does_not_depend_on_which_item_is_first():
    rng = np.random.default_rng(0)
    p, y = rng.random(500), rng.choice([0, 0.5, 1], 500)
    flipped = rng.random(500) < 0.5
    a = calibration_of_preferences(p, y)
    b = calibration_of_preferences(np.where(flipped, 1 - p, p), np.where(flipped, 1 - y, y))
    assert_allclose(a.won, b.won)
    assert a.log_loss == pytest.approx(b.log_loss)


def test_right_probabilities_are_calibrated():
    rng = np.random.default_rng(0)
    p = rng.random(50_000)
    assert calibration_of_preferences(p, rng.random(50_000) < p).expected_calibration_error < 0.01
    assert calibration_of_preferences(p**3, rng.random(50_000) < p).expected_calibration_error > 0.05


def test_calibration_is_drawn():
    pytest.importorskip("matplotlib")
    from preflearn.report import CalibrationDisplay

    display = CalibrationDisplay.from_predictions([0.9, 0.8, 0.3, 0.6], n_bins=2).plot()
    assert len(display.ax_.lines) == 2 and display.error == pytest.approx(0.15)


@pytest.mark.parametrize(
    ("probability", "options", "message"),
    [
        ([1.2], {}, "between 0 and 1"),
        ([], {}, "at least one"),
        ([0.5], {"outcome": [0.3]}, "must be 1"),
        ([0.5], {"outcome": [1, 0]}, "one number per pair"),
        ([0.5], {"weight": [0.0]}, "nor zero"),
        ([0.5], {"n_bins": 0}, "at least 1"),
    ],
)
def test_calibration_refuses(probability, options, message):
    with pytest.raises(ValueError, match=message):
        calibration_of_preferences(probability, **options)


# Habits -------------------------------------------------------------------------------------------------------------


@EVERY_KERNEL
@pytest.mark.parametrize("learner", [BradleyTerry, BradleyTerryCV])
def test_models_survive_a_file_and_a_pickle(learner, options, tmp_path):
    X, pairs, _ = simulated()
    items = items_of(options, X)
    judge = ["a", "b"] * 40
    model = learner(**options).fit_pairs(items, pairs, judge=judge)
    save_model(model, tmp_path / "model.preflearn")
    for again in (load_model(tmp_path / "model.preflearn"), pickle.loads(pickle.dumps(model))):
        assert_allclose(again.predict(items), model.predict(items))
        assert_allclose(again.posterior(items)[1], model.posterior(items)[1], rtol=1e-9, atol=1e-12)
        assert again.reliability_ == model.reliability_
        again.partial_fit_pairs(items, pairs[:1], judge=judge[:1])
        assert again.n_comparisons_ == 81
    assert "reliability_" not in clone(model).__dict__


def test_reduced_models_survive_a_file(tmp_path):
    X, pairs, _ = simulated()
    model = BradleyTerry(kernel="rbf", n_basis=6, random_state=0).fit_pairs(X, pairs)
    save_model(model, tmp_path / "model.preflearn")
    again = load_model(tmp_path / "model.preflearn")
    assert_allclose(again.posterior(X)[1], model.posterior(X)[1], atol=1e-9)


def test_inputs_are_not_modified_nor_kept():
    X, pairs, _ = simulated()
    for options in KERNELS:
        items, answers = items_of(options, X).copy(), pairs.copy()
        model = BradleyTerry(**options).fit_pairs(items, answers)
        assert_array_equal(items, items_of(options, X))
        assert_array_equal(answers, pairs)
        before = model.posterior(items_of(options, X))[1]
        items[...] = 0
        answers[...] = 0
        model.__dict__.pop("_laplace")
        model.__dict__.pop("_space")
        assert_allclose(model.posterior(items_of(options, X))[1], before, atol=1e-9)


def test_scores_of_pairs():
    model = BradleyTerry().fit_pairs([[0.0], [1.0], [1.0]], [[1, 0]])
    assert model.score_pairs([[0.0], [1.0], [1.0]], [[1, 0], [0, 1], [1, 2], [2, 0]]) == pytest.approx(
        2.5 / 4
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"alpha": 0.0}, "alpha must be a positive number"),
        ({"tol": 2.0}, "tol is the relative accuracy"),
        ({"max_iter": 0}, "max_iter must be"),
        ({"item_offsets": -1.0}, "item_offsets is a variance ratio"),
        ({"kernel": "items", "item_offsets": 1.0}, "would be ignored"),
        ({"kernel": "items", "n_basis": 3}, "no reduced set"),
        ({"kernel": "items", "gamma": 3.0}, "does not take gamma"),
        ({"n_basis": 3, "item_offsets": 1.0}, "reduced set"),
        ({"kernel": "rfb"}, "kernel must be one of"),
    ],
)
def test_bad_options_are_refused(options, message):
    X, pairs, _ = simulated()
    items = np.arange(24) if options.get("kernel") == "items" else X
    with pytest.raises(ValueError, match=message):
        BradleyTerry(**options).fit_pairs(items, pairs)


@pytest.mark.parametrize(
    ("pairs", "options", "message"),
    [
        ([[0, 24]], {}, "out of range"),
        ([[1, 1]], {}, "prefers row 1 to itself"),
        ([[0.5, 1.0]], {}, "type int"),
        ([[0, 1]], {"weight": [-1.0]}, "must not be negative"),
        ([[0, 1]], {"weight": [np.nan]}, "NaN or infinity"),
        ([[0, 1]], {"ties": [1]}, "as booleans"),
        ([[0, 1]], {"ties": [True, False]}, "as booleans"),
        ([[0, 1]], {"judge": ["a", "b"]}, "one judge per pair"),
    ],
)
def test_bad_answers_are_refused(pairs, options, message):
    X, _, _ = simulated()
    with pytest.raises(ValueError, match=message):
        BradleyTerry().fit_pairs(X, pairs, **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"alphas": "all"}, "alphas must be"),
        ({"alphas": [-1.0]}, "alpha must be a positive"),
        ({"gammas": "auto"}, "'rbf' and 'laplacian'"),
        ({"gammas": [1.0], "gamma": 1.0, "kernel": "rbf"}, "not both"),
        ({"cv": "leave-judge-out"}, "needs judges"),
        ({"cv": "leave-one-out"}, "cv must be"),
        ({"cv": 1}, "between 2 and"),
        ({"cv": [[0], [1]]}, "every one of the 80"),
        ({"scoring": "ndcg"}, "scoring must be"),
        ({"scoring": "log_evidence", "cv": 5}, "would be ignored"),
        ({"item_offsets": "some"}, "item_offsets must be"),
    ],
)
def test_bad_searches_are_refused(options, message):
    X, pairs, _ = simulated()
    with pytest.raises(ValueError, match=message):
        BradleyTerryCV(**options).fit_pairs(X, pairs)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n": 0}, "at least 1"),
        ({"strategy": "best"}, "strategy must be"),
        ({"goal": "top:24"}, "between top:1 and top:23"),
        ({"goal": "best"}, "goal must be"),
        ({"goal": (1, 1)}, "different row numbers"),
        ({"goal": (1, 99)}, "different row numbers"),
        ({"goal": "top:3", "strategy": "random"}, "ignores the goal"),
        ({"answered": [[0, 99]]}, "out of range"),
    ],
)
def test_bad_questions_are_refused(options, message):
    X, pairs, _ = simulated()
    model = BradleyTerry().fit_pairs(X, pairs)
    with pytest.raises(ValueError, match=message):
        model.next_pairs(X, **options)


def test_other_bad_input_is_refused():
    X, pairs, _ = simulated()
    with pytest.raises(NotFittedError, match="fit_pairs first"):
        BradleyTerry().predict(X)
    with pytest.raises(ValueError, match="one number or label"):
        BradleyTerry(kernel="items").fit_pairs(X, pairs)
    with pytest.raises(ValueError, match="X is empty"):
        BradleyTerry(kernel="items").fit_pairs([], pairs)
    with pytest.raises(ValueError, match="question needs two"):
        BradleyTerry().fit_pairs(X, pairs).next_pairs(X[:1])
    with pytest.raises(ValueError, match="every answer or of none"):
        BradleyTerry().fit_pairs(X, pairs).partial_fit_pairs(X, pairs[:1], judge=["a"])
    with pytest.raises(ValueError, match="features"):
        BradleyTerry().fit_pairs(X, pairs).predict(X[:, :2])
