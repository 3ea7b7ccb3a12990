"""What searches say about themselves: settings chosen by the other folds, and intervals for new data."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import t as student
from sklearn.model_selection import KFold

import oracles
from preflearn import (
    RLS,
    RLSCV,
    AutoRanker,
    BradleyTerry,
    BradleyTerryCV,
    OrderPreferenceRegressor,
    OrderPreferenceRegressorCV,
    RankRFM,
    RankRLS,
    RankRLSCV,
    RankSVM,
    RankSVMCV,
)
from preflearn.metrics import concordance, ndcg
from preflearn.model_selection import HeldOut, cross_val_predict, leave_preference_out
from preflearn.model_selection._intervals import optimism, widening
from preflearn.relations import KroneckerRLS, KroneckerRLSCV, TwoStepRLSCV
from preflearn.relations import cross_val_predict as relation_predictions
from strategies import examples

pytestmark = pytest.mark.filterwarnings("ignore:The best alpha")

ALPHAS = [0.01, 1.0, 100.0, 1e4]


def drawn(seed, n_queries=13, n_rows=6, signal=0.3, features=3):
    """Queries of unequal sizes with graded labels, in random order of rows, one row twice."""
    rng = np.random.default_rng(seed)
    qid = rng.permutation(np.repeat(np.arange(n_queries), rng.integers(2, 2 * n_rows, size=n_queries)))
    X = rng.normal(size=(qid.shape[0], features))
    X[1] = X[0]
    y = np.round(signal * X[:, 0] + rng.normal(size=qid.shape[0]))
    y[:2], qid[:2] = (0.0, 1.0), 0
    return X, y, qid


def whole(labels):
    return [np.flatnonzero(labels == one) for one in np.unique(labels)]


@pytest.mark.parametrize("kind", ["linear", "rbf", "reduced", "svm"])
@given(st.integers(0, 10_000))
@examples(4)
def test_the_estimate_of_queries_is_that_of_a_choice_by_hand(kind, seed):
    X, y, qid = drawn(seed)
    options = {
        "rbf": {"kernel": "rbf"},
        "reduced": {"kernel": "rbf", "n_basis": 7, "random_state": 0},
        "svm": {"tol": 1e-10},
    }.get(kind, {})
    folds = whole(qid)
    search, learner = (RankSVMCV, RankSVM) if kind == "svm" else (RankRLSCV, RankRLS)
    model = search(ALPHAS, cv=folds, **options).fit(X, y, qid=qid)
    tables = [cross_val_predict(learner(a, **options), X, y, qid=qid, cv=folds) for a in ALPHAS]
    chosen = oracles.nested_choice(tables, folds, lambda rows, f: concordance(y[rows], f, qid[rows]))
    found = model.estimate_
    assert found.value == pytest.approx(concordance(y, chosen, qid))

    def score(rows, f):
        return concordance(y[rows], f, qid[rows])

    expected = oracles.query_interval(y, chosen, model.predict(X), qid)
    expected = oracles.with_the_choice(expected, found.value, tables, folds, score, chosen)
    np.testing.assert_allclose(found.interval, expected, atol=1e-7)
    assert found.counted == f"{len(folds)} queries, {len(y)} rows" and found.counted in str(found)
    assert model.best_score_ == model.cv_scores_.max()
    assert model.estimate_ is found


def test_the_kernel_is_chosen_by_the_other_folds_too():
    X, y, qid = drawn(1, n_queries=8)
    gammas, alphas = [0.01, 0.3, 5.0], [0.1, 10.0]
    model = RankRLSCV(alphas, kernel="rbf", kernel_grid={"gamma": gammas}).fit(X, y, qid=qid)
    # Of equal settings the first kernel is kept, and the larger alpha.
    tables = [
        cross_val_predict(RankRLS(a, kernel="rbf", gamma=g), X, y, qid=qid)
        for g in gammas[::-1]
        for a in alphas
    ]
    chosen = oracles.nested_choice(tables, whole(qid), lambda rows, f: concordance(y[rows], f, qid[rows]))
    assert model.estimate_.value == pytest.approx(concordance(y, chosen, qid))


@pytest.mark.parametrize("two_classes", [True, False])
def test_one_ranking_compares_rows_of_a_fold(two_classes):
    X, y, _ = drawn(2, signal=1.0)
    y = (y > 0).astype(float) if two_classes else y
    folds = [test for _, test in KFold(5, shuffle=True, random_state=0).split(X)]
    model = RankRLSCV(ALPHAS, cv=folds).fit(X, y)
    tables = [cross_val_predict(RankRLS(a), X, y, cv=folds) for a in ALPHAS]
    chosen = oracles.nested_choice(tables, folds, lambda rows, f: concordance(y[rows], f))
    right = [
        0.5 + 0.5 * np.sign(chosen[i] - chosen[j])
        for fold in folds
        for i in fold
        for j in fold
        if y[i] > y[j]
    ]
    found = model.estimate_
    assert found.value == pytest.approx(np.mean(right)) and found.n_pairs == len(right)
    assert found.interval[0] < found.value < found.interval[1]


@pytest.mark.parametrize("scoring", ["r2", "neg_mean_absolute_error", "ndcg@5"])
def test_other_measures_have_the_interval_of_a_jackknife(scoring):
    X, y, labels = drawn(3, n_queries=9, signal=1.0)
    y, units = np.clip(y, 0, 3), whole(labels)
    ranks = scoring == "ndcg@5"
    data = {"qid": labels} if ranks else {"groups": labels}
    model = (RankRLSCV if ranks else RLSCV)(ALPHAS, scoring=scoring).fit(X, y, **data)

    def measure(rows, f):
        if ranks:
            return ndcg(y[rows], f, labels[rows], k=5)
        if scoring == "r2":
            return 1 - np.sum((y[rows] - f) ** 2) / np.sum((y[rows] - y[rows].mean()) ** 2)
        return -np.mean(np.abs(y[rows] - f))

    def by(rows, f):
        return -np.mean((y[rows] - f) ** 2) / y.var() if scoring == "r2" else measure(rows, f)

    qid = {"qid": labels} if ranks else {}
    tables = [cross_val_predict((RankRLS if ranks else RLS)(a), X, y, cv=units, **qid) for a in ALPHAS]
    chosen, every = oracles.nested_choice(tables, units, by), np.arange(len(y))
    value, found = measure(every, chosen), model.estimate_
    assert found.value == pytest.approx(value)
    assert found.counted == f"9 {'queries' if ranks else 'groups'}, {len(y)} rows"
    left = [measure(rows, chosen[rows]) for rows in (np.setdiff1d(every, one) for one in units)]
    half = student.ppf(0.975, 8) * (8 / 9 * np.sum((left - np.mean(left)) ** 2)) ** 0.5
    if ranks:  # every query has the same weight in the widening: see test_estimates.py
        assert value - 2 * half < found.interval[0] <= value - half
        return
    i, j = np.triu_indices(len(y), 1)
    f = model.predict(X)
    half *= widening(optimism(y[i] - y[j], chosen[i] - chosen[j], f[i] - f[j])) ** 0.5
    limit = 1.0 if scoring == "r2" else 0.0
    limits, plain = (-np.inf, limit), (value - half, min(value + half, limit))
    expected = oracles.with_the_choice(plain, value, tables, units, by, chosen, limits)
    assert found.interval == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("groups", [None, np.arange(40) // 4])
def test_preferences_are_chosen_by_the_others(groups):
    rng = np.random.default_rng(0)
    X, pairs = rng.normal(size=(30, 4)), rng.integers(30, size=(40, 2))
    pairs[:, 1] = np.where(pairs[:, 1] == pairs[:, 0], (pairs[:, 1] + 1) % 30, pairs[:, 1])
    worse = X[pairs[:, 0], 0] + rng.normal(size=40) < X[pairs[:, 1], 0]
    pairs[worse] = pairs[worse, ::-1]
    model = RankRLSCV(ALPHAS).fit_pairs(X, pairs, groups=groups)
    folds = whole(np.arange(40) if groups is None else groups)
    tables = [HeldOut.of_pairs(RankRLS(a), X, pairs).preferences(folds)[0] for a in ALPHAS]
    if groups is None:
        np.testing.assert_allclose(tables[1], leave_preference_out(RankRLS(1.0), X, pairs), atol=1e-9)
    chosen = oracles.nested_choice(tables, folds, lambda rows, f: np.mean(0.5 + 0.5 * np.sign(f)))
    found = model.estimate_
    assert found.value == pytest.approx(np.mean(chosen > 0)) and found.n_pairs == 40
    assert found.interval[0] < found.value < found.interval[1]
    assert found.counted == ("" if groups is None else "10 groups, ") + "40 preferences"


def test_outputs_and_rows_in_several_folds_do_not_count_as_more_queries():
    X, y, qid = drawn(4, n_queries=12)
    once = RankRLSCV(ALPHAS).fit(X, y, qid=qid).estimate_
    twice = RankRLSCV(ALPHAS).fit(X, np.stack([y, y], axis=1), qid=qid).estimate_
    assert twice.value == pytest.approx(once.value)
    assert twice.standard_error > 0.9 * once.standard_error
    again = RankRLSCV(ALPHAS, cv=2 * whole(qid)).fit(X, y, qid=qid).estimate_
    assert again.standard_error > 0.9 * once.standard_error


def test_outputs_with_an_alpha_each_choose_for_themselves():
    X, y, qid = drawn(9, n_queries=8, signal=1.0)
    Y = np.stack([y, np.random.default_rng(1).normal(size=len(y))], axis=1)
    model = RankRLSCV(ALPHAS, alpha_per_output=True).fit(X, Y, qid=qid)
    tables = np.stack([cross_val_predict(RankRLS(a), X, Y, qid=qid) for a in ALPHAS])
    values = []
    for k in range(2):

        def score(rows, f, k=k):
            return concordance(Y[rows, k], f, qid[rows])

        chosen = oracles.nested_choice(tables[:, :, k], whole(qid), score)
        values.append(concordance(Y[:, k], chosen, qid))
    assert model.estimate_.value == pytest.approx(np.mean(values), abs=0.003)


def test_groups_that_share_queries_are_one():
    X, y, qid = drawn(10, n_queries=12)
    groups = np.where(
        np.arange(len(y)) % 2, qid // 3, 100 + qid
    )  # half of the rows tie three queries together
    found = RankRLSCV(ALPHAS).fit(X, y, qid=qid, groups=groups).estimate_
    assert "4 groups" in found.interval_method and found.counted.endswith(f"12 queries, {len(y)} rows")


def test_the_estimate_of_noise_is_one_half_and_the_best_score_is_not():
    values, best = [], []
    for seed in range(60):
        rng = np.random.default_rng(seed)
        X, qid = rng.normal(size=(60, 6)), np.repeat(np.arange(10), 6)
        model = RankRLSCV().fit(X, rng.normal(size=60), qid=qid)
        values.append(model.estimate_.value)
        best.append(model.best_score_)
    assert abs(np.mean(values) - 0.5) < 3 * np.std(values) / 60**0.5
    assert np.mean(best) > np.mean(values) + 0.005


@pytest.mark.parametrize("scoring", ["neg_log_loss", "accuracy"])
def test_answers_of_new_judges(scoring):
    rng = np.random.default_rng(0)
    X, pairs, judge = rng.normal(size=(20, 2)), rng.integers(20, size=(48, 2)), np.arange(48) % 6
    pairs[:, 1] = np.where(pairs[:, 1] == pairs[:, 0], (pairs[:, 1] + 1) % 20, pairs[:, 1])
    folds, alphas = whole(judge), [0.03, 1.0, 30.0]
    model = BradleyTerryCV(alphas, cv=folds, scoring=scoring).fit_pairs(X, pairs)
    tables = np.empty((3, 48))
    for k, alpha in enumerate(alphas):
        for fold in folds:
            rest = BradleyTerry(alpha).fit_pairs(X, pairs[judge != judge[fold[0]]])
            tables[k, fold] = rest.win_probability(X[pairs[fold, 0]], X[pairs[fold, 1]])

    def score(rows, p):
        return np.mean(np.log(p)) if scoring == "neg_log_loss" else np.mean(p > 0.5)

    chosen = oracles.nested_choice(tables, folds, score)
    found = model.estimate_
    assert found.value == pytest.approx(score(None, chosen), abs=1e-6)
    assert found.interval[0] < found.value < found.interval[1] and found.counted == "48 answers"
    by_judge = BradleyTerryCV(alphas, cv="leave-judge-out").fit_pairs(X, pairs, judge=judge).estimate_
    assert by_judge.counted == "6 judges, 48 answers" and "6 blocks of judges" in by_judge.interval_method
    assert not hasattr(BradleyTerryCV(scoring="log_evidence").fit_pairs(X, pairs), "estimate_")


@pytest.mark.parametrize("known", ["all", "most"])
@pytest.mark.parametrize("hold_out", ["entries", "rows", "columns", "both"])
def test_new_objects_of_a_relation(hold_out, known):
    rng = np.random.default_rng(1)
    U, V = rng.normal(size=(9, 3)), rng.normal(size=(7, 2))
    Y = U @ rng.normal(size=(3, 2)) @ V.T + rng.normal(size=(9, 7))
    if known == "most":
        Y[[0, 3, 8], [1, 5, 5]] = np.nan
    alphas = [0.1, 10.0, 1e3]
    model = KroneckerRLSCV(alphas, hold_out=hold_out, cv=3).fit(U, V, Y)
    tables = [relation_predictions(KroneckerRLS(a), U, V, Y, hold_out=hold_out, cv=3).ravel() for a in alphas]
    rows, columns = np.indices(Y.shape).reshape(2, -1)
    thirds = [np.array_split(np.arange(n), 3) for n in Y.shape]
    number = [
        np.searchsorted([one[-1] for one in third], where) for third, where in zip(thirds, (rows, columns))
    ]
    fold = {"rows": number[0], "columns": number[1], "both": 3 * number[0] + number[1]}.get(hold_out)
    found, y = model.estimate_, Y.ravel()
    scored = ~np.isnan(y) & ~np.isnan(tables[0])
    assert found.n_rows == scored.sum() and found.interval[0] < found.value < found.interval[1]
    objects = {"rows": "9 objects, ", "columns": "7 objects, ", "both": "9 objects, 7 objects, "}.get(
        hold_out, ""
    )
    assert found.counted == f"{objects}{scored.sum()} labels"
    if fold is None:
        return
    folds = [one[scored[one]] for one in whole(fold)]
    chosen = oracles.nested_choice(tables, folds, lambda some, f: -np.mean((y[some] - f) ** 2))
    residual, spread = y[scored] - chosen[scored], y[scored] - y[scored].mean()
    assert found.value == pytest.approx(1 - residual @ residual / (spread @ spread), abs=1e-6)


def test_two_alphas_and_compared_objects_of_a_relation():
    rng = np.random.default_rng(2)
    U, V, Y = rng.normal(size=(12, 3)), rng.normal(size=(8, 2)), rng.normal(size=(12, 8))
    found = TwoStepRLSCV([0.1, 10.0], [1.0], hold_out="both").fit(U, V, Y).estimate_
    assert found.interval[0] < found.value < found.interval[1]
    found = KroneckerRLSCV(hold_out="rows", compare="rows", cv=3).fit(U, V, Y, row_groups=np.arange(12) // 2)
    assert found.estimate_.measure == "concordance" and found.estimate_.counted == "6 objects, 96 labels"


def test_regression_with_order_preferences_chooses_alpha_and_gamma_by_other_folds():
    rng = np.random.default_rng(3)
    X, alphas, gammas = rng.normal(size=(24, 2)), [1e-3, 1e-1, 10.0], [0.1, 3.0]
    y = np.sin(X[:, 0]) + 0.3 * rng.normal(size=24)
    folds = [test for _, test in KFold(4).split(X)]
    model = OrderPreferenceRegressorCV(alphas, gammas=gammas, cv=folds).fit(X, y)
    tables = []
    for gamma in gammas[::-1]:  # of equal settings the first gamma is kept
        for alpha in alphas:
            f = np.empty(24)
            for test in folds:
                rest = np.setdiff1d(np.arange(24), test)
                f[test] = OrderPreferenceRegressor(alpha, gamma=gamma).fit(X[rest], y[rest]).predict(X[test])
            tables.append(f)
    chosen = oracles.nested_choice(tables, folds, lambda rows, f: -np.mean(np.abs(y[rows] - f)))
    assert model.estimate_.value == pytest.approx(-np.mean(np.abs(y - chosen)), abs=1e-4)


def test_the_automatic_ranker_estimates_what_it_reports():
    X, y, qid = drawn(8)
    model = AutoRanker(preset="fast", random_state=0).fit(X, y, qid=qid)
    known, found = ~np.isnan(model.cv_predictions_), model.estimate_
    held_out, fitted = model.cv_predictions_[known], model.predict(X, qid=qid)[known]
    assert found.value == pytest.approx(model.best_score_)
    expected = oracles.query_interval(y[known], held_out, fitted, qid[known])
    np.testing.assert_allclose(found.interval, expected, atol=1e-7)
    with pytest.warns(UserWarning, match="best_score_ is NaN"):
        AutoRanker(preset="fast", random_state=0).fit(X[:6], y[:6], qid=[0, 0, 0, 1, 1, 1])


@pytest.mark.parametrize(
    "model", [RankRLSCV(ALPHAS), RankSVMCV(ALPHAS), RLSCV(ALPHAS), RankRFM(ALPHAS, max_rounds=1)]
)
def test_it_is_there_after_fit_and_not_in_a_copy_on_disk(model):
    X, y, qid = drawn(5)
    assert not hasattr(model, "estimate_")
    first = model.fit(X, y, qid=qid).estimate_
    with pytest.raises(AttributeError, match="estimate_: it is there after fit"):
        _ = pickle.loads(pickle.dumps(model)).estimate_
    assert model.fit(X, -y, qid=qid).estimate_ is not first


def test_pairs_that_were_held_out_are_estimated_in_folds():
    X, y, _ = drawn(6, n_queries=6)
    found = RankRLSCV(ALPHAS, cv="leave-pair-out").fit(X, y).estimate_
    expected = RankRLSCV(ALPHAS).fit(X, y).estimate_
    assert found.value == pytest.approx(expected.value) and "10 folds of rows" in found.compared


def test_streams_have_none():
    X, y, qid = drawn(7)
    order = np.argsort(qid, kind="stable")
    model = RankRLSCV(ALPHAS).fit(X, y, qid=qid)
    model.fit_stream([(X[order], y[order], qid[order])])
    assert not hasattr(model, "estimate_")
