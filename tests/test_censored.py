"""Censored times against explicit lists of pairs and plain refits."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import assume, given
from hypothesis import strategies as st
from sklearn.linear_model import Ridge
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import oracles
from preflearn import RLS, AutoRanker, BradleyTerry, RankRFM, RankRLS, RankRLSCV, RankSVM, RankSVMCV
from preflearn.auto import fitting
from preflearn.auto.combination import FoldScores
from preflearn.auto.tasks import targets_of
from preflearn.comparisons import CensoredComparisons, encode_queries
from preflearn.comparisons.censored import lived_longer
from preflearn.comparisons.inputs import surv
from preflearn.losses.pairs import CensoredPairs
from preflearn.metrics import concordance, disagreement_error, get_scorer, time_dependent_auc
from preflearn.model_selection import (
    HeldOut,
    compare_rankers,
    cross_val_predict,
    estimate_concordance,
    learning_curve,
    leave_pair_out,
    leave_pair_out_tally,
    permutation_test,
)
from preflearn.model_selection._choice import read_scoring
from preflearn.model_selection._intervals import worth_of_queries
from preflearn.model_selection._tally import tally_scores
from preflearn.preferences import pairs_from_scores
from preflearn.testing import check_comparisons, check_drop
from strategies import examples

WEIGHTINGS = st.sampled_from(["pair", "item", "query"])


@dataclass
class Study:
    X: np.ndarray
    times: np.ndarray
    events: np.ndarray
    qid: np.ndarray
    row_weights: np.ndarray | None

    def comparisons(self, **options):
        queries = encode_queries(self.qid, len(self.times))
        options["row_weights"] = self.row_weights
        return CensoredComparisons(self.times[:, None], self.events, queries, **options)


@st.composite
def studies(draw, min_rows=3, max_rows=24, weighted=True):
    """Censored times in strata, with ties, equal rows and strata without an event."""
    m = draw(st.integers(min_rows, max_rows))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    times = rng.exponential(size=m) * draw(st.sampled_from([1.0, 1e4]))
    if draw(st.booleans()):
        times = rng.integers(0, draw(st.integers(2, m + 1)), size=m).astype(float)
    events = rng.random(m) < draw(st.sampled_from([0.2, 0.5, 0.9, 1.0]))
    qid = rng.integers(0, draw(st.integers(1, max(1, m // 3))), size=m)
    times[0], times[1], events[0], qid[0] = times.min(), times.max() + 1, True, qid[1]
    weights = None
    if weighted and draw(st.booleans()):
        weights = rng.choice([0.0, 0.3, 1.0, 2.5], size=m)
        weights[:2] = 1.0
    X = rng.normal(size=(m, 3)) + draw(st.sampled_from([0.0, 100.0]))
    order = rng.permutation(m)
    weights = None if weights is None else weights[order]
    return Study(X[order], times[order], events[order], qid[order], weights)


def weights_are_defined(study):
    """Whether no event has only rows behind it that are censored at its time."""
    pairs = oracles.censored_pairs(study.times, study.events, study.qid)
    return all(oracles.probability_uncensored(study.times, study.events, study.qid, i) > 0 for i, _ in pairs)


@examples(300)
@given(studies(), WEIGHTINGS, st.sampled_from([None, "ipcw"]))
def test_equal_to_the_sum_over_pairs(study, weighting, weights):
    assume(weights is None or weights_are_defined(study))
    comparisons = study.comparisons(weighting=weighting, weights=weights)
    options = {"weighting": weighting, "weights": weights, "row_weights": study.row_weights}
    L, b = oracles.dense_censored(study.times, study.events, study.qid, **options)
    check_comparisons(comparisons, L, b)
    w = np.ones(len(b)) if study.row_weights is None else study.row_weights
    pairs = oracles.censored_pairs(study.times, study.events, study.qid)
    assert comparisons.n_comparisons == sum(w[i] * w[j] > 0 for i, j in pairs)
    np.testing.assert_allclose(comparisons.total_weight(), np.trace(L) / 2, rtol=1e-12)


@examples(200)
@given(studies(), st.integers(1, 9), st.sampled_from([np.float32, np.float64]))
def test_the_factor_has_the_loss_of_the_pairs(study, n_rows, dtype):
    comparisons = study.comparisons()
    V = study.X.astype(dtype)
    T, t = comparisons.least_squares(V)
    parts = list(comparisons.factor_blocks(V.__getitem__, n_rows))
    L, b = comparisons.to_dense(), comparisons.target
    V = V - V.mean(axis=0)
    size = 1e-9 if dtype == np.float64 else 1e-3
    tolerance = {"rtol": 0, "atol": size * max(1.0, np.trace(L))}
    np.testing.assert_allclose(T.T @ T, V.T @ L @ V, **tolerance)
    np.testing.assert_allclose(T.T @ t, V.T @ b, **tolerance)
    np.testing.assert_allclose(sum(part.T @ part for part, _ in parts), T.T @ T, **tolerance)
    np.testing.assert_allclose(sum(part.T @ target for part, target in parts), T.T @ t, **tolerance)
    assert T.dtype == dtype
    assert comparisons.squared_targets()[0] >= (t**2).sum() - 1e-9


@examples(100)
@given(studies(min_rows=5), st.sampled_from(["pair", "item"]), st.data())
def test_dropping_rows_equals_training_on_the_rest(study, weighting, data):
    m = len(study.times)
    rows = data.draw(st.lists(st.integers(0, m - 1), min_size=1, max_size=m - 1, unique=True))
    check_drop(study.comparisons(weighting=weighting), np.array(rows))


def test_part_of_a_stratum_under_query_weighting_is_refused():
    queries = encode_queries([0, 0, 0, 1, 1], 5)
    comparisons = CensoredComparisons(np.arange(5.0)[:, None], np.ones(5, bool), queries, weighting="query")
    with pytest.raises(ValueError, match="whole queries together"):
        comparisons.drop(np.array([0]))


def test_weights_that_would_be_infinite_are_refused():
    queries = encode_queries(None, 3)
    with pytest.raises(ValueError, match=r"every row that lived to the time 2 .* censored"):
        CensoredComparisons(
            np.array([[1.0], [2.0], [2.0]]), np.array([True, True, False]), queries, weights="ipcw"
        )


# ------------------------------------------------------------------------------------------------------- measures


@examples(300)
@given(studies(min_rows=2), st.booleans(), st.sampled_from([None, "ipcw"]), st.integers(0, 2**32 - 1))
def test_the_concordance_is_the_share_of_the_pairs(study, ties, weights, seed):
    assume(weights is None or weights_are_defined(study))
    rng = np.random.default_rng(seed)
    scores = rng.integers(0, 4, len(study.times)).astype(float) if ties else rng.normal(size=len(study.times))
    data = (study.times, scores, study.qid)
    options = {"event": study.events, "weights": weights, "sample_weight": study.row_weights}
    of_pairs = {"weights": weights, "row_weights": study.row_weights}
    expected = oracles.c_index(study.times, study.events, scores, study.qid, **of_pairs)
    found = concordance(*data, **options)
    np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(disagreement_error(*data, **options), 1 - found)
    options.pop("event")
    structured = surv(study.times, study.events)
    assert concordance(structured, scores, study.qid, **options) == found
    assert get_scorer("concordance", weights=weights).measure(
        structured, scores, study.qid, study.row_weights
    ) == pytest.approx(found)


def test_figures_of_scikit_survival():
    """Printed by scikit-survival 0.28 (concordance_index_censored, concordance_index_ipcw, cumulative_dynamic_auc)."""
    rng = np.random.default_rng(7)
    times, events = np.round(rng.exponential(10, size=200)), rng.random(200) < 0.6
    times[np.argmax(times)] += 1
    scores = np.round(np.log1p(times) + rng.normal(size=200), 1)
    assert concordance(times, scores, event=events) == pytest.approx(0.7227174500270124, abs=1e-10)
    assert concordance(times, scores, event=events, weights="ipcw") == pytest.approx(
        0.6835661330308382, abs=1e-10
    )
    expected = [0.869612232520846, 0.8039922792067696, 0.7998374185043114]
    np.testing.assert_allclose(
        time_dependent_auc(times, scores, [3, 8, 15], event=events), expected, atol=1e-10
    )


def test_a_time_without_both_sides_has_no_auc():
    found = time_dependent_auc([1, 2, 3], [1, 2, 3], [0.5, 1.5, 3.5], event=[True, True, True])
    np.testing.assert_array_equal(found, [np.nan, 1.0, np.nan])


# ------------------------------------------------------------------------------------------------------- learners


@examples(60)
@given(studies(), WEIGHTINGS, st.sampled_from([1e-2, 1.0]))
def test_rankrls_solves_the_dense_system(study, weighting, alpha):
    options = {"weighting": weighting, "row_weights": study.row_weights}
    L, b = oracles.dense_censored(study.times, study.events, study.qid, **options)
    assume(np.count_nonzero(b) > 0 and study.events.sum() > 1)
    fit = {"qid": study.qid, "event": study.events, "sample_weight": study.row_weights}
    X = study.X
    linear = X @ oracles.feature_solution(X, L, b, alpha)
    K = rbf_kernel(X, gamma=0.3)
    kernel = K @ oracles.kernel_solution(K, L, b, alpha)
    basis = np.arange(0, len(b), 2)
    reduced = K[:, basis] @ oracles.reduced_set_solution(K[:, basis], K[np.ix_(basis, basis)], L, b, alpha)
    rbf = {"kernel": "rbf", "gamma": 0.3}
    for expected, items, parameters in (
        (linear, X, {}),
        (linear, X, {"solver": "dual"}),
        (linear, sp.csr_array(X), {"solver": "primal"}),
        (kernel, X, rbf),
        (kernel, K, {"kernel": "precomputed"}),
        (reduced, X, {**rbf, "basis": basis}),
        (reduced, X, {**rbf, "basis": basis, "solver": "cg"}),
    ):
        found = (
            RankRLS(alpha, weighting=weighting, **parameters).fit(items, study.times, **fit).predict(items)
        )
        found, expected = found - found.mean(), expected - expected.mean()
        size = 1e-3 if parameters.get("solver") == "cg" else 1e-6
        np.testing.assert_allclose(found, expected, rtol=0, atol=size * max(1.0, abs(expected).max()))


@examples(40)
@given(
    studies(max_rows=14),
    WEIGHTINGS,
    st.sampled_from(["hinge", "squared_hinge"]),
    st.sampled_from([1e-1, 10.0]),
)
def test_ranksvm_reaches_the_minimum_over_explicit_pairs(study, weighting, loss, alpha):
    options = {"weighting": weighting, "row_weights": study.row_weights}
    pairs = oracles.weighted_censored_pairs(study.times, study.events, study.qid, **options)
    assume(len(pairs[0]) > 0 and study.events.sum() > 1)
    X = study.X - study.X.mean(axis=0)
    model = RankSVM(alpha, loss=loss, weighting=weighting, max_iter=1000)
    model.fit(X, study.times, qid=study.qid, event=study.events, sample_weight=study.row_weights)
    upper, lower = oracles.ranksvm_minimum(X, pairs, alpha, loss)
    found = oracles.ranksvm_objective(X, model.coef_, pairs, alpha, loss)
    assert lower - 1e-9 * abs(lower) <= found <= upper * (1 + 2e-4) + 1e-12
    assert model.objective_ == pytest.approx(found, rel=1e-9)
    assert model.n_comparisons_ == len(pairs[0])


@examples(150)
@given(studies(), WEIGHTINGS, st.sampled_from([0.0, 0.4, 1.0]), st.integers(0, 2**32 - 1))
def test_violations_of_censored_pairs(study, weighting, margin, seed):
    options = {"weighting": weighting, "row_weights": study.row_weights}
    pairs = oracles.weighted_censored_pairs(study.times, study.events, study.qid, **options)
    p, v = np.round(np.random.default_rng(seed).normal(size=(2, len(study.times))), 1)
    found = CensoredPairs(study.comparisons(weighting=weighting)).violations(p, margin=margin)
    c, d, product = oracles.violation_statistics(pairs, p, v, margin)
    for one, expected in ((found.worse, c), (found.better, d), (found.laplacian(v), product)):
        np.testing.assert_allclose(one, expected, atol=1e-10)
    np.testing.assert_allclose(
        found.laplacian(p), oracles.violation_statistics(pairs, p, p, margin)[2], atol=1e-10
    )


# ------------------------------------------------------------------------------------------------------- hold-outs


def a_study(m=40, n_strata=4, seed=0, share=0.7):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(m, 3))
    times = np.round(np.exp(X[:, 0] - 0.5 * X[:, 1] + 0.5 * rng.normal(size=m)) * 5, 0) + 1
    return X, times, rng.random(m) < share, rng.permutation(np.arange(m) % n_strata)


LEARNERS = [
    RankRLS(0.5),
    RankRLS(0.5, kernel="rbf", gamma=0.3),
    RankRLS(0.5, kernel="rbf", gamma=0.3, basis=np.arange(0, 40, 3)),
    RankRLS(0.5, kernel="poly", gamma=0.3, weighting="item"),
    RankRLS(0.5, solver="cg"),
    RankSVM(0.5, tol=1e-9, max_iter=2000),
    RankSVM(0.5, kernel="rbf", gamma=0.3, loss="hinge", tol=1e-6, max_iter=2000),
    make_pipeline(StandardScaler(), RankRLS(0.5)),
]


@pytest.mark.parametrize("learner", LEARNERS, ids=str)
@pytest.mark.parametrize("cv", ["leave-query-out", "leave-one-out", 5, "mixed"])
@pytest.mark.parametrize("weighted", [False, True])
def test_held_out_equals_refitted(learner, cv, weighted):
    X, times, events, qid = a_study()
    is_pipeline = hasattr(learner, "steps")
    if weighted and is_pipeline:
        pytest.skip("row weights are for the learners themselves")
    weights = {"sample_weight": np.linspace(0.5, 2, 40)} if weighted else {}
    given_qid = None if cv in ("leave-one-out", 5) else qid
    folds = {
        "leave-query-out": [np.flatnonzero(qid == q) for q in range(4)],
        "leave-one-out": [np.array([row]) for row in range(40)],
        5: [np.arange(40)[k::5] for k in range(5)],
        "mixed": [
            np.append(np.flatnonzero(qid == 1), np.flatnonzero(qid == 2)[:3]),
            np.flatnonzero(qid == 0),
        ],
    }[cv]
    given_cv = cv if isinstance(cv, str) and cv != "mixed" else folds
    options = {} if given_qid is None else {"qid": given_qid}
    found = cross_val_predict(learner, X, times, cv=given_cv, event=events, **options, **weights)
    data = (surv(times, events), {}) if is_pipeline else (times, {"event": events})
    expected = oracles.naive_hold_out(learner, X, times, folds, **options, **weights, **data[1])
    if is_pipeline:
        expected = np.full(40, np.nan)
        for fold in folds:
            expected[fold] = oracles.naive_predictions(
                learner, X, data[0], np.setdiff1d(np.arange(40), fold), fold, **options
            )
    np.testing.assert_allclose(found, expected, rtol=0, atol=2e-5 if "RankRLS" in str(learner) else 2e-3)


@pytest.mark.parametrize("learner", [RankRLS(0.5), RankSVM(0.5, tol=1e-9, max_iter=2000)], ids=str)
def test_pairs_held_out_are_those_that_can_be_compared(learner):
    X, times, events, _ = a_study(m=14)
    pairs, predictions = leave_pair_out(learner, X, times, event=events)
    expected = {tuple(sorted(pair)) for pair in oracles.censored_pairs(times, events, np.zeros(14))}
    assert set(map(tuple, pairs.tolist())) == expected
    right = []
    for (i, j), f in zip(pairs, predictions, strict=True):
        rest = np.setdiff1d(np.arange(14), [i, j])
        refitted = learner.fit(X[rest], times[rest], event=events[rest]).predict(X[[i, j]])
        np.testing.assert_allclose(f, refitted, atol=1e-3)
        longer = (times[i], not events[i]) > (times[j], not events[j])
        right.append(float(np.sign(f[0] - f[1]) * (1 if longer else -1)) / 2 + 0.5)
    tally = leave_pair_out_tally(learner, X, times, event=events)
    assert tally.n_pairs == len(expected)
    assert tally.share == pytest.approx(np.mean(right))


@examples(60)
@given(studies(weighted=False), st.integers(0, 2**32 - 1))
def test_a_tally_counts_the_pairs_of_each_row(study, seed):
    scores = np.random.default_rng(seed).integers(0, 5, len(study.times)).astype(float)
    order, owners = lived_longer(study.times, study.events) * 1.0, encode_queries(study.qid, len(scores))
    tally = tally_scores(order, scores, owners, events=study.events)
    wins, pairs = np.zeros((2, len(scores)))
    for i, j in oracles.censored_pairs(study.times, study.events, study.qid):
        right = 0.5 * (1 + np.sign(scores[j] - scores[i]))
        wins[[i, j]] += right
        pairs[[i, j]] += 1
    np.testing.assert_allclose(tally.wins, wins)
    np.testing.assert_allclose(tally.pairs, pairs)


@pytest.mark.parametrize("learner", [RankRLS(0.5), RankRLSCV([0.1, 1.0], cv=3)], ids=str)
def test_estimates_of_the_c_index(learner):
    X, times, events, _ = a_study(m=16)
    found = estimate_concordance(learner, X, times, event=events)
    tally = leave_pair_out_tally(learner, X, times, event=events)
    assert (found.value, found.n_pairs, found.method) == (tally.share, tally.n_pairs, "leave-pair-out")
    assert found.interval[0] < found.value <= found.interval[1]
    assert estimate_concordance(learner, X, surv(times, events)).value == found.value


@pytest.mark.parametrize("method", ["averaged", "pooled"])
def test_estimates_over_folds(method):
    X, times, events, _ = a_study(m=60)
    found = estimate_concordance(RankRLS(), X, times, event=events, method=method, n_splits=3, random_state=0)
    assert found.n_pairs <= len(oracles.censored_pairs(times, events, np.zeros(60)))
    assert 0.6 < found.value < 1
    assert found.interval[0] < found.value < found.interval[1]


@pytest.mark.parametrize("search", [RankRLSCV, RankSVMCV])
@pytest.mark.parametrize("cv", [4, "leave-query-out", "leave-pair-out"])
def test_searches_choose_by_the_c_index(search, cv):
    X, times, events, qid = a_study()
    options = {"qid": qid} if cv == "leave-query-out" else {}
    alphas = [1e-3, 1.0, 1e4]
    model = search(alphas, cv=cv).fit(X, times, event=events, **options)
    learner = search._learner()
    for alpha, score in zip(alphas, model.cv_scores_, strict=True):
        held = HeldOut(learner.set_params(alpha=alpha), X, times, event=events, **options)
        if cv == "leave-pair-out":
            expected = held.tally()[0].share
        else:
            f = held.predict(cv)[0]
            folds = [np.arange(40)[k::4] for k in range(4)] if cv == 4 else None
            within = qid
            if folds is not None:
                found = HeldOut(learner, X, times, event=events).evaluate(None, model.cv, None).folds
                within = np.zeros(40, int)
                for number, fold in enumerate(found.tests):
                    within[fold] = number
            expected = oracles.c_index(times, events, f, within)
        assert score == pytest.approx(expected, abs=1e-6)
    plain = learner.set_params(alpha=model.alpha_).fit(X, times, event=events, **options)
    np.testing.assert_allclose(model.coef_, plain.coef_, rtol=1e-3, atol=1e-6)
    again = search(alphas, cv=cv).fit(X, surv(times, events), **options)
    np.testing.assert_allclose(again.coef_, model.coef_)


@pytest.mark.parametrize("search", [RankRLSCV, RankSVMCV])
def test_searches_estimate_the_c_index(search):
    X, times, events, qid = a_study(m=80)
    model = search([1e-3, 1.0, 1e4], cv=4).fit(X, times, event=events)
    assert model.estimate_.measure == "C-index"
    assert model.estimate_.interval[0] < model.estimate_.value < model.estimate_.interval[1]
    assert model.estimate_.value == pytest.approx(model.best_score_, abs=0.05)
    again = search([1e-3, 1.0, 1e4], cv=4).fit(X, surv(times, events))
    assert again.estimate_.interval == model.estimate_.interval
    strata = search([1.0], cv="leave-query-out").fit(X, times, event=events, qid=qid)
    f = HeldOut(search._learner(alpha=1.0), X, times, event=events, qid=qid).predict("leave-query-out")[0]
    assert strata.estimate_.value == pytest.approx(oracles.c_index(times, events, f, qid))
    found = estimate_concordance(search._learner(alpha=1.0), X, times, event=events, qid=qid)
    assert (found.value, *found.interval) == pytest.approx(
        (strata.estimate_.value, *strata.estimate_.interval)
    )
    assert "C-index" in str(found)


@pytest.mark.parametrize("strata", [False, True])
def test_rankrfm_holds_out_and_trains_as_rankrls_does(strata):
    X, times, events, qid = a_study(m=60)
    labels = {"qid": qid} if strata else {}
    folds = [np.flatnonzero(qid == k) for k in range(4)]
    model = RankRFM([0.1, 1.0], gamma=0.3, max_rounds=1, cv=folds, keep_predictions=True, random_state=0)
    model.fit(X, times, event=events, **labels)
    plain = model.to_rankrls().fit(X, times, event=events, **labels)
    np.testing.assert_allclose(model.predict(X), plain.predict(X), atol=1e-6)
    expected = oracles.c_index(times, events, model.cv_predictions_, qid)
    assert max(model.cv_scores_) == pytest.approx(expected)
    assert model.estimate_.measure == "C-index"
    first = RankRFM([0.1], gamma=0.3, max_rounds=0, cv=folds, weighting="pair", keep_predictions=True)
    first.fit(X, times, event=events, **labels)
    f = cross_val_predict(RankRLS(0.1, kernel="rbf", gamma=0.3), X, times, event=events, cv=folds, **labels)
    np.testing.assert_allclose(first.cv_predictions_, f, atol=1e-6)


@pytest.mark.parametrize(
    "learner", [RankRLS(0.5), RankSVM(0.5), AutoRanker(preset="fast", random_state=0)], ids=str
)
def test_permutations_take_times_and_events_together(learner):
    X, times, events, _ = a_study(m=30)
    folds = [np.arange(30)[k::3] for k in range(3)]
    found = permutation_test(learner, X, times, event=events, n_permutations=9, cv=folds, random_state=0)
    held_out = cross_val_predict(learner, X, times, event=events, cv=folds)
    assert found.value == pytest.approx(oracles.c_index(times, events, held_out, np.arange(30) % 3))
    assert found.pvalue == 0.1
    assert "held-out C-index" in str(found)
    assert found.permuted.max() < found.value


def test_the_permutation_test_keeps_its_level():
    rejected = 0
    for seed in range(40):
        X, times, events, qid = a_study(m=24, n_strata=2, seed=seed)
        order = np.random.default_rng(seed).permutation(24)
        found = permutation_test(
            RankRLS(), X[order], times, event=events, n_permutations=19, cv=3, random_state=seed
        )
        rejected += found.pvalue <= 0.1
    assert rejected <= 9  # 4 expected; more in 1 of 100 runs


def test_permutations_of_groups_and_strata_of_times():
    X, times, events, qid = a_study(m=48, n_strata=4)
    patients = np.arange(48) // 4
    of_patient = {"y": times[patients], "event": events[patients]}
    found = permutation_test(RankRLS(), X, **of_patient, groups=patients, n_permutations=19, random_state=0)
    assert found.exchanged == "the labels of 12 groups"
    inside = permutation_test(RankRLS(), X, times, event=events, qid=qid, n_permutations=19, random_state=0)
    f = cross_val_predict(RankRLS(), X, times, event=events, qid=qid)
    assert inside.value == pytest.approx(oracles.c_index(times, events, f, qid))
    with pytest.raises(ValueError, match="Too few permutations"):
        permutation_test(RankRLS(), X[:4], [1, 2, 3, 3], event=[1, 1, 0, 0], cv=[[0, 1], [2, 3]])


@examples(60)
@given(studies(weighted=False, min_rows=6), st.integers(0, 2**32 - 1))
def test_two_c_indices_of_the_same_patients(study, seed):
    a, b = np.random.default_rng(seed).integers(0, 9, (2, len(study.times))).astype(float)
    found = compare_rankers(study.times, a, b, event=study.events)
    nobody = np.zeros(len(a))
    expected = [oracles.c_index(study.times, study.events, one, nobody) for one in (a, b)]
    np.testing.assert_allclose(found.values, expected)
    pairs = oracles.censored_pairs(study.times, study.events, nobody)
    u = np.zeros(len(a))
    for i, j in pairs:
        right = [(s[j] > s[i]) + 0.5 * (s[j] == s[i]) for s in (a, b)]
        u[[i, j]] += right[0] - right[1] - found.difference
    m = len(a)
    assert found.standard_error == pytest.approx(np.sqrt(m / (m - 1) * (u @ u)) / len(pairs))
    turned = compare_rankers(study.times, b, a, event=study.events)
    assert (turned.pvalue, turned.difference) == pytest.approx((found.pvalue, -found.difference))
    one_sided = compare_rankers(study.times, a, b, event=study.events, alternative="greater").pvalue
    assert min(one_sided, 1 - one_sided) * 2 == pytest.approx(found.pvalue) or found.standard_error == 0


def test_two_c_indices_over_strata_and_groups():
    X, times, events, qid = a_study(m=80, n_strata=8)
    a, b = X[:, 0], X[:, 0] + 2 * X[:, 2]
    found = compare_rankers(times, a, b, qid, event=events)
    assert found.means[0] == pytest.approx(oracles.c_index(times, events, a, qid))
    assert (found.n_queries, found.metric) == (8, "C-index")
    patients = np.arange(80) // 2
    twice = compare_rankers(times, a, b, event=events, groups=patients)
    assert "40 groups, 80 rows" in twice.counted
    assert "DeLong" in str(twice)
    assert twice.values[0] > twice.values[1]
    with pytest.raises(ValueError, match="leave metric and n_folds out"):
        compare_rankers(times, a, b, event=events, metric="kendall_tau")


def test_learning_curve_of_strata():
    X, times, events, qid = a_study(m=120, n_strata=12)
    curve = learning_curve(RankRLS(), X, times, qid=qid, event=events, sizes=[4, 8])
    again = learning_curve(RankRLS(), X, surv(times, events), qid=qid, sizes=[4, 8])
    np.testing.assert_allclose(curve.scores, again.scores)
    assert curve.scores.min() > 0.6


@examples(60)
@given(studies(weighted=False))
def test_pairs_of_censored_times_for_learners_from_preferences(study):
    found = pairs_from_scores(study.times, event=study.events).pairs
    expected = oracles.censored_pairs(study.times, study.events, np.zeros(len(study.times)))
    assert sorted(map(tuple, found.tolist())) == sorted((j, i) for i, j in expected)
    some = pairs_from_scores(study.times, event=study.events, n=3, random_state=0).pairs.tolist()
    assert {tuple(one) for one in some} <= {(j, i) for i, j in expected}


def test_bradley_terry_learns_from_censored_pairs():
    X, times, events, _ = a_study()
    model = BradleyTerry().fit_pairs(X, pairs_from_scores(times, event=events).pairs)
    assert concordance(times, model.predict(X), event=events) > 0.75


def test_a_search_by_unos_c_is_estimated_by_it():
    X, times, events, _ = a_study(m=60)
    times[~events] -= 0.5  # nobody is censored at the time of the last event
    scoring = get_scorer("concordance", weights="ipcw")
    model = RankRLSCV([1.0], cv=[np.arange(60)[k::3] for k in range(3)], scoring=scoring)
    model.fit(X, times, event=events)
    assert model.estimate_.value == pytest.approx(model.best_score_)
    assert "jackknife" in model.estimate_.interval_method


@examples(60)
@given(st.integers(2, 6), st.integers(0, 2**32 - 1))
def test_the_worth_of_a_stratum_is_that_of_all_orders(m, seed):
    rng = np.random.default_rng(seed)
    times, events = rng.integers(0, m, m) * 1.0, rng.random(m) < 0.7
    pairs = oracles.censored_pairs(times, events, np.zeros(m))
    signs = [
        sum(np.sign(f[j] - f[i]) for i, j in pairs) for f in map(np.array, itertools.permutations(range(m)))
    ]
    order = lived_longer(times, events) * 1.0
    found = worth_of_queries(order, encode_queries(None, m), events)
    expected = len(pairs) ** 2 / np.var(signs) if pairs else 0.0
    np.testing.assert_allclose(np.ravel(found), [len(pairs), expected])


def test_scikit_learn_passes_structured_times():
    X, times, events, _ = a_study()
    y = surv(times, events)
    assert cross_val_score(RankRLS(), X, y, cv=3).min() > 0.5
    found = GridSearchCV(RankSVM(), {"alpha": [0.1, 10.0]}, cv=3).fit(X, y)
    assert found.score(X, y) == concordance(times, found.predict(X), event=events)
    assert RankRLS().fit(X, y).score(X, times, event=events) == RankRLS().fit(X, y).score(X, y)


def test_scikit_survivals_stacking_takes_our_learners():
    meta = pytest.importorskip("sksurv.meta")
    X, times, events, _ = a_study(m=60)
    final = pytest.importorskip("sksurv.linear_model").CoxPHSurvivalAnalysis(alpha=0.1)
    model = meta.Stacking(final, [("a", RankRLS()), ("b", RankSVM())], probabilities=False)
    assert model.fit(X, surv(times, events)).score(X, surv(times, events)) > 0.75


# ----------------------------------------------------------------------------------------------------- AutoRanker


@examples(100)
@given(studies(weighted=False))
def test_targets_are_shares_of_those_outlived(study):
    m = len(study.times)
    expected = np.zeros(m)
    for i, j in oracles.censored_pairs(study.times, study.events, study.qid):
        expected[[i, j]] += np.array([-1, 1]) / np.count_nonzero(study.qid == study.qid[i])
    y, queries = surv(study.times, study.events), encode_queries(study.qid, m)
    np.testing.assert_allclose(targets_of(y, queries), expected, atol=1e-12)
    folds = [np.arange(m)[k::2] for k in (0, 1)]
    found = FoldScores.of_folds(folds, y, queries, read_scoring("concordance"))
    f = np.random.default_rng(0).normal(size=(3, m))
    for fold, (rows, size) in enumerate(zip(folds, found.sizes, strict=True)):
        assert size == sum(
            bool(oracles.censored_pairs(study.times[own], study.events[own], study.qid[own]))
            for own in (rows[study.qid[rows] == query] for query in np.unique(study.qid))
        )
        if size:
            expected = [
                oracles.c_index(study.times[rows], study.events[rows], one[rows], study.qid[rows])
                for one in f
            ]
            np.testing.assert_allclose(found.of(f)[:, fold], expected)


def test_auto_ranker_learns_from_censored_times():
    X, times, events, qid = a_study(m=120, seed=3)
    patients = np.arange(120) // 2
    model = AutoRanker(preset="fast", random_state=0).fit(X, times, event=events, groups=patients)
    assert "C-index" in str(model.leaderboard_)
    assert model.best_score_ > 0.7
    assert np.unique(model.cv_folds_[::2] == model.cv_folds_[1::2]).tolist() == [True]
    by_fold = [
        oracles.c_index(times[rows], events[rows], model.cv_predictions_[rows], np.zeros(len(rows)))
        for rows in (np.flatnonzero(model.cv_folds_ == fold) for fold in range(5))
    ]
    assert model.best_score_ == pytest.approx(np.mean(by_fold))
    assert (model.estimate_.measure, "60 groups" in model.estimate_.counted) == ("C-index", True)
    assert model.estimate_.interval[0] < model.best_score_ < model.estimate_.interval[1]
    assert model.score(X, times, event=events) == concordance(times, model.predict(X), event=events)
    on_new = model.leaderboard(X, surv(times, events))
    assert on_new.model.score == pytest.approx(model.score(X, times, event=events))

    again = AutoRanker(preset="fast", random_state=0).fit(X, surv(times, events), groups=patients)
    np.testing.assert_array_equal(again.predict(X), model.predict(X))
    order = np.random.default_rng(0).permutation(120)
    again.fit(X[order], times[order], event=events[order], groups=patients[order])
    np.testing.assert_allclose(again.predict(X), model.predict(X))


@pytest.mark.filterwarnings("ignore:best_score_ is NaN")
def test_few_events_are_enough_for_one_run(monkeypatch):
    """Other folds of few rows may have no event to compare: the runs that are averaged are those that were possible."""
    random, seeds, choose = np.random.default_rng(0), [], fitting.choose

    def remember(rows, y, queries, settings, *arguments, **options):
        found = choose(rows, y, queries, settings, *arguments, **options)
        if rows.shape[0] == 9:
            seeds.append(settings.seed)
        return found

    monkeypatch.setattr(fitting, "choose", remember)
    runs = set()
    for _ in range(20):
        X, times, events = random.normal(size=(9, 2)), random.exponential(size=9), np.arange(9) < 2
        seeds.clear()
        try:
            model = AutoRanker(random_state=0).fit(X, times, event=random.permutation(events))
        except ValueError:
            continue  # not even the first folds had something to compare
        runs.add(len(seeds))
        assert np.isfinite(model.predict(X)).all()
    assert runs >= {1, 3}


def test_auto_ranker_compares_inside_strata_only():
    X, times, events, qid = a_study(m=160, n_strata=8, seed=3)
    model = AutoRanker(preset="fast", random_state=0).fit(X, times, event=events, qid=qid)
    expected = oracles.c_index(times, events, model.cv_predictions_, qid)
    assert model.best_score_ == pytest.approx(expected)
    assert model.estimate_.value == pytest.approx(expected)
    assert all(len(set(model.cv_folds_[qid == one])) == 1 for one in range(8))


def test_events_at_all_times_are_an_ordinary_ranking():
    X, times, _, _ = a_study(m=100)
    every = np.ones(100, dtype=bool)
    model = AutoRanker(preset="fast", random_state=0).fit(X, times, event=every)
    plain = AutoRanker(preset="fast", random_state=0).fit(
        X, targets_of(surv(times, every), encode_queries(None, 100))
    )
    np.testing.assert_allclose(model.predict(X), plain.predict(X))
    assert model.best_score_ == pytest.approx(plain.best_score_)


def test_noise_has_a_c_index_of_a_half():
    found = []
    for seed in range(12):
        X, times, events, _ = a_study(m=60, seed=seed)
        order = np.random.default_rng(seed).permutation(60)
        model = AutoRanker(preset="fast", random_state=0).fit(X, times[order], event=events[order])
        found.append(model.best_score_)
    assert abs(np.mean(found) - 0.5) < 3 * np.std(found) / np.sqrt(12)


def test_more_rows_of_censored_times_than_are_chosen_by(monkeypatch):
    monkeypatch.setattr(fitting, "_MOST_ROWS", 200)
    rng = np.random.default_rng(0)
    X = rng.normal(size=(600, 3))
    times, events = np.exp(2 * np.abs(X[:, 0]) + 0.3 * rng.normal(size=600)), rng.random(600) < 0.7
    model = AutoRanker(preset="fast", random_state=0).fit(X, times, event=events)
    assert model.n_training_rows_ > 500
    known = model.cv_folds_ >= 0
    assert model.score(X[~known], times[~known], event=events[~known]) > 0.75
    assert abs(model.best_score_ - concordance(times, model.predict(X), event=events)) < 0.15


# ------------------------------------------------------------------------------------------------------- refusals


X4, T4, E4 = np.arange(8.0).reshape(4, 2) ** 1.5, np.array([1.0, 2.0, 3.0, 4.0]), np.array([1, 1, 0, 1])
DATES = np.array(["2020-01-01", "2020-02-01", "2020-03-01", "2020-04-01"], dtype="datetime64[D]")


MISSING = pytest.importorskip("pandas").NA


@pytest.mark.parametrize(
    ("y", "event", "message"),
    [
        (T4, [0, 0, 0, 0], "event marks no row"),
        (T4, [0, 1, 0, 0], "event marks a single row"),
        (T4, [0, 1, 2, 1], r"event must be True \(or 1\).*row 2 has 2"),
        (T4, ["yes", "no", "no", "yes"], "event must be True.*row 0 has 'yes'"),
        (T4, [1, 1, np.nan, 0], "event must be True.*row 2 has nan"),
        (T4, np.array([1, 1, 0, MISSING], object), "event must be True.*row 3 has <NA>.*leave out rows"),
        (T4, [1, 1, 0], r"event must hold one value for each of the 4 rows: found an array of shape \(3,\)"),
        (-T4, E4, "times, which are not negative: row 3 has -4"),
        ([1, 2, np.nan, 3], E4, "NaN"),
        (DATES, E4, "dates, durations or texts.*numbers"),
        (DATES - DATES[0], E4, "dates, durations or texts.*numbers"),
        (DATES.astype(object), E4, "dates, durations or texts.*numbers"),
        (np.array([3.0, 3.0, 1.0, 2.0]), [1, 1, 0, 0], "No row is known to have outlived another"),
        (np.stack([T4, T4], axis=1), E4, "one time per row|one output"),
        (surv(T4, E4 > 0), E4, "holds the events itself"),
        (np.zeros(4, [("a", float), ("b", float)]), None, "one boolean field"),
    ],
)
@pytest.mark.parametrize(
    "learner",
    [RankRLS(), RankSVM(), RankRLSCV([1.0], cv=2), RankSVMCV([1.0], cv=2), AutoRanker(), RankRFM()],
    ids=str,
)
def test_times_that_cannot_be_used(learner, y, event, message):
    with pytest.raises(ValueError, match=message):
        learner.fit(X4, y, event=event)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: RankRLS(cost="relative").fit(X4, T4, event=E4), "cost='relative'.*event"),
        (
            lambda: RankRLS().fit(X4, T4, event=E4, pairs=[[1, 0]]),
            "event and pairs are not supported together",
        ),
        (lambda: cross_val_predict(RLS(), X4, T4, event=E4, cv=2), "RLS does not learn from censored times"),
        (
            lambda: cross_val_predict(Ridge(), X4, T4, event=E4, cv=2),
            "Ridge does not learn from censored times",
        ),
        (lambda: RLS().fit(X4, surv(T4, E4 > 0)), "fields event, time|RLS does not learn from censored"),
        (lambda: RankRLS().partial_fit(X4, surv(T4, E4 > 0)), "fields event, time"),
        (lambda: RankRLSCV([1.0], scoring="ndcg", cv=2).fit(X4, T4, event=E4), "scoring='ndcg'.*event"),
        (
            lambda: RankRLSCV([1.0], alpha_per_output=True, cv=2).fit(X4, T4, event=E4),
            "alpha_per_output=True.*event",
        ),
        (lambda: RankRLS().fit(X4, T4, event=E4).predict(X4, return_std=True), "censored times"),
        (lambda: AutoRanker(scoring="ndcg").fit(X4, T4, event=E4), "scoring='ndcg'.*event"),
        (lambda: AutoRanker().fit_stream([(X4, surv(T4, E4 > 0), [1, 1, 2, 2])]), "fields event, time"),
        (lambda: pairs_from_scores(T4, 1.0, event=E4), "by how much one row outlived another"),
        (lambda: pairs_from_scores(T4, event=E4, weight="gap"), "by how much one row outlived another"),
        (lambda: RankRFM(scoring="ndcg").fit(X4, T4, event=E4), "scoring='ndcg'.*event"),
        (lambda: permutation_test(RLS(), X4, T4, event=E4, cv=2), "RLS does not learn from censored times"),
        (lambda: concordance(T4, T4, weights="ipcw"), "with event, 'ipcw'"),
        (lambda: disagreement_error(T4, T4, event=E4, definition="all"), "event is for definition='half'"),
        (lambda: concordance(T4, T4, event=E4, weights="uno"), "with event, 'ipcw'"),
        (lambda: concordance([3, 3, 1], [1, 2, 3], event=[1, 1, 0]), "No row is known to have outlived"),
        (lambda: time_dependent_auc(T4, T4, [2.0]), "needs events"),
    ],
)
def test_what_cannot_be_combined(call, message):
    with pytest.raises(ValueError, match=message):
        call()
