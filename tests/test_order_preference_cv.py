"""OrderPreferenceRegressorCV: its scores are those of refitting, and what it fits afterwards."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose
from sklearn.metrics import mean_absolute_error, r2_score
from sklearn.model_selection import KFold
from sklearn.utils.estimator_checks import check_estimator

from preflearn.learners.order_preference import OrderPreferenceRegressor, OrderPreferenceRegressorCV
from preflearn.preferences import pairs_from_targets

ALPHAS, GAMMAS = [1e-3, 1e-1, 1e-2], [0.1, 1.0]


def data(seed=0, l=20, u=30, n=3):
    random = np.random.default_rng(seed)
    X = random.normal(size=(l + u, n))
    truth = np.sin(X[:, 0]) + X[:, 1]
    known = np.sort(random.permutation(l + u)[:l])
    y = np.full(l + u, np.nan)
    y[known] = truth[known]
    preferences = pairs_from_targets(truth, 60, rows=np.flatnonzero(np.isnan(y)), random_state=seed)
    return X, y, preferences, known


def refitted_scores(X, y, known, preferences, folds, score, **options):
    """Each fold and each point of the grid by an own fit on the other labelled rows."""
    scores = np.zeros((len(ALPHAS), len(GAMMAS)))
    for held_out in folds:
        rest = y.copy()
        rest[known[held_out]] = np.nan
        for a, alpha in enumerate(ALPHAS):
            for g, gamma in enumerate(GAMMAS):
                model = OrderPreferenceRegressor(alpha, gamma=gamma, **options).fit(
                    X, rest, pairs=preferences
                )
                scores[a, g] += score(y[known[held_out]], model.predict(X[known[held_out]])) / len(folds)
    return scores


@pytest.mark.parametrize("preferences_in_cv", [True, False])
def test_scores_equal_refitting(preferences_in_cv):
    X, y, preferences, known = data()
    cv = KFold(4, shuffle=True, random_state=1)
    model = OrderPreferenceRegressorCV(
        ALPHAS, gammas=GAMMAS, cv=cv, preferences_in_cv=preferences_in_cv, epsilon=0.01
    ).fit(X, y, pairs=preferences)
    truth = refitted_scores(
        X,
        y,
        known,
        preferences if preferences_in_cv else None,
        [test for _, test in cv.split(known)],
        lambda y, f: -mean_absolute_error(y, f),
        epsilon=0.01,
    )
    assert_allclose(model.cv_scores_, truth, rtol=1e-5)
    best = np.unravel_index(np.argmax(truth), truth.shape)
    assert (model.alpha_, model.gamma_) == (ALPHAS[best[0]], GAMMAS[best[1]])
    assert_allclose(model.best_score_, truth.max(), rtol=1e-5)
    alone = OrderPreferenceRegressor(model.alpha_, gamma=model.gamma_, epsilon=0.01).fit(
        X, y, pairs=preferences
    )
    assert_allclose(model.objective_, alone.objective_, rtol=1e-9)
    assert_allclose(model.predict(X), alone.predict(X), atol=1e-7)


def test_scoring_jobs_and_splits():
    X, y, preferences, known = data()
    folds = [(np.setdiff1d(np.arange(20), test), test) for test in (np.arange(7), np.arange(7, 20))]
    model = OrderPreferenceRegressorCV(ALPHAS, gammas=GAMMAS, cv=folds, scoring="r2", n_jobs=2)
    model.fit(X, y, pairs=preferences)
    for (a, alpha), (g, gamma) in itertools.product(enumerate(ALPHAS), enumerate(GAMMAS)):
        predicted = np.empty(20)
        for _, test in folds:
            rest = y.copy()
            rest[known[test]] = np.nan
            refitted = OrderPreferenceRegressor(alpha, gamma=gamma).fit(X, rest, pairs=preferences)
            predicted[test] = refitted.predict(X[known[test]])
        assert_allclose(model.cv_scores_[a, g], r2_score(y[known], predicted), rtol=1e-4, atol=1e-6)
    by_function = OrderPreferenceRegressorCV(ALPHAS, gammas=GAMMAS, cv=folds, scoring=r2_score)
    assert_allclose(by_function.fit(X, y, pairs=preferences).cv_scores_, model.cv_scores_, rtol=1e-9)


@pytest.mark.parametrize("container", [np.asarray, sp.csr_array])
def test_features_unmultiplied_fold_by_fold(container):
    """l = 60 and n = 3: the linear kernel is not multiplied out, and folds cut features instead of kernel values."""
    X, y, preferences, known = data(l=60)
    model = OrderPreferenceRegressorCV([1e-4, 1e-2], kernel="linear", cv=3).fit(
        container(X), y, pairs=preferences
    )
    for a, alpha in enumerate(model.alphas_):
        errors = []
        for _, test in KFold(3).split(known):
            rest = y.copy()
            rest[known[test]] = np.nan
            f = OrderPreferenceRegressor(alpha, kernel="linear").fit(X, rest, pairs=preferences).predict(X)
            errors.append(np.abs(f - y)[known[test]].mean())
        assert_allclose(model.cv_scores_[a, 0], -np.mean(errors), rtol=1e-5)
    assert model.gamma_ is None


def test_held_out_rows_leave_a_named_basis():
    X, y, preferences, known = data()
    basis = np.concatenate([known[:5], np.flatnonzero(np.isnan(y))[:10]])
    test = np.arange(3)  # three of the basis rows
    folds = [(np.arange(3, 20), test)]
    model = OrderPreferenceRegressorCV([1e-2], gammas=[0.5], basis=basis, cv=folds).fit(
        X, y, pairs=preferences
    )
    rest = y.copy()
    rest[known[test]] = np.nan
    without = np.setdiff1d(basis, known[test])
    f = OrderPreferenceRegressor(1e-2, gamma=0.5, basis=without).fit(X, rest, pairs=preferences).predict(X)
    assert_allclose(model.best_score_, -np.abs(f - y)[known[test]].mean(), rtol=1e-6)


def test_equal_scores_take_the_largest_alpha():
    X, y, _, _ = data()
    model = OrderPreferenceRegressorCV([1e2, 1e4, 1e3], gammas=[1.0]).fit(X, y)
    assert_allclose(model.cv_scores_, model.cv_scores_[0, 0])
    assert model.alpha_ == 1e4 and not model.support_.size


def test_published_grid_by_default():
    X, y, _, _ = data(l=10, u=5)
    model = OrderPreferenceRegressorCV(cv=2).fit(X, y)
    assert_allclose(model.alphas_, 10.0 ** np.arange(-4, 5))
    assert_allclose(model.gammas_, 10.0 ** np.arange(-4, 5))
    assert model.cv_scores_.shape == (9, 9)
    assert OrderPreferenceRegressorCV().cv == 5


@pytest.mark.parametrize(
    "parameters, message",
    [
        ({"alphas": []}, "alphas"),
        ({"alphas": "many"}, "alphas"),
        ({"alphas": [-1.0]}, "alphas"),
        ({"gammas": [np.nan]}, "gammas"),
        ({"gammas": [1.0], "kernel": "linear"}, "gamma"),
        ({"scoring": "accuracy"}, "scoring"),
        ({"cv": 30}, "n_splits"),
    ],
)
def test_refusals(parameters, message):
    X, y, _, _ = data()
    with pytest.raises(ValueError, match=message):
        OrderPreferenceRegressorCV(**parameters).fit(X, y)


def test_scikit_learn_conventions():
    check_estimator(OrderPreferenceRegressorCV([0.01, 1.0], gammas=[0.1, 1.0], cv=2))
