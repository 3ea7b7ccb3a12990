"""Metrics of pairs and lists against every pair, every order of ties, scikit-learn, SciPy and trec_eval."""

from __future__ import annotations

import subprocess
import sys
from fractions import Fraction

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import kendalltau
from sklearn.metrics import accuracy_score, average_precision_score, f1_score, ndcg_score, roc_auc_score
from tests import oracles

from preflearn import RLS, RankRLS
from preflearn.comparisons.grouping import encode_queries
from preflearn.metrics import (
    PerQuery,
    auc,
    average_precision,
    by_query,
    class_accuracy,
    concordance,
    disagreement_error,
    err,
    f1,
    kendall_tau,
    mean_squared_pair_error,
    ndcg,
    pairwise,
    precision_at,
    reciprocal_rank,
)
from preflearn.metrics.single_columns import labels_alone
from preflearn.model_selection import HeldOut, cross_val_predict
from strategies import examples


@pytest.fixture(autouse=True, scope="module", params=["few pairs", "sorted rows"])
def every_way(request):
    """Few pairs are looked at by NumPy, more of them by the compiled loop: every test does both."""
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "sorted rows":
            patch.setattr(pairwise, "_FEW_PAIRS", -1)
        yield


LISTWISE = (ndcg, average_precision, reciprocal_rank, err, precision_at)
ALL_WITH_QID = (concordance, disagreement_error, kendall_tau, *LISTWISE)


@st.composite
def ranked_rows(draw, max_rows=80, max_query=None):
    """(y, scores, qid): grades or real values, few or many ties, queries of all sizes in any row order."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    m = draw(st.integers(1, max_rows))
    y = rng.integers(0, draw(st.sampled_from([1, 2, 5])), m).astype(float)
    if draw(st.booleans()):
        y = np.abs(rng.normal(size=m))
    scores = rng.normal(size=m) * draw(st.sampled_from([1.0, 1e-300, 1e300]))
    if draw(st.booleans()):
        scores = rng.integers(0, draw(st.sampled_from([1, 3, 10])), m).astype(float)
    if max_query is None:
        qid = rng.integers(0, draw(st.sampled_from([1, 3, 20])), m)
    else:
        qid = rng.permutation(np.arange(m) // max_query)
    return y, scores, qid


def by_each_query(of_query, y, scores, qid):
    """An oracle query by query, in the order of the sorted labels."""
    return np.array([of_query(y[qid == q], scores[qid == q]) for q in np.unique(qid)])


def check(metric, expected, y, scores, qid, **options):
    labels, values = metric(y, scores, qid, per_query=True, **options)
    np.testing.assert_array_equal(labels, np.unique(qid))
    np.testing.assert_allclose(values, expected, rtol=1e-12, atol=1e-14)
    if np.isnan(expected).all():
        with pytest.raises(ValueError, match="not defined"):
            metric(y, scores, qid, **options)
    else:
        mean = metric(y, scores, qid, **options)
        np.testing.assert_allclose(mean, np.nanmean(expected), rtol=1e-12, atol=1e-14)


# Pairs ----------------------------------------------------------------------------------------------------------


@given(ranked_rows(max_rows=40))
@examples(80)
def test_definitions_of_the_disagreement_error(rows):
    """The formulas of the publications, pair by pair."""
    y, scores, qid = rows
    outcomes = []
    for q in np.unique(qid):
        u, s = y[qid == q], scores[qid == q]
        i, j = np.triu_indices(len(u), 1)
        outcomes.append((np.sign(u[i] - u[j]), np.sign(s[i] - s[j])))

    def per_query(of_query):
        return np.array([of_query(*one) for one in outcomes])

    def mean_of(wrong, counted):
        return wrong[counted].mean() if counted.any() else np.nan

    half = per_query(lambda up, p: mean_of(np.abs(up - p) / 2, up != 0))
    expected = {
        "half": half,
        "strict": per_query(lambda up, p: mean_of((up != p).astype(float), up != 0)),
        "all": per_query(lambda up, p: mean_of(np.abs(up - p) / 2, np.full(up.shape, True))),
    }
    for definition, values in expected.items():
        if np.isnan(values).all():
            with pytest.raises(ValueError, match="disagreement_error|concordance"):
                disagreement_error(y, scores, qid, definition=definition)
            continue
        found = disagreement_error(y, scores, qid, definition=definition, per_query=True)
        np.testing.assert_allclose(found.values, values, atol=1e-12)
        mean = disagreement_error(y, scores, qid, definition=definition)
        np.testing.assert_allclose(mean, np.nanmean(values), atol=1e-12)
    up, p = (np.concatenate(one) for one in zip(*outcomes, strict=True))
    if (up != 0).any():
        pooled = mean_of(np.abs(up - p) / 2, up != 0)
        np.testing.assert_allclose(
            disagreement_error(y, scores, qid, definition="pooled"), pooled, atol=1e-12
        )
        two = disagreement_error(
            np.stack([y, y], 1), np.stack([scores, scores], 1), qid, definition="pooled", per_query=True
        )
        np.testing.assert_allclose(two.means, pooled, atol=1e-12)


def test_definitions_of_the_disagreement_error_are_checked():
    with pytest.raises(ValueError, match="definition must be one of 'half', 'strict', 'all', 'pooled'"):
        disagreement_error([0, 1], [0, 1], definition="thesis")
    with pytest.raises(ValueError, match="sample_weight is for definition='half'.*definition='all'"):
        disagreement_error([0, 1], [0, 1], sample_weight=[1, 2], definition="all")


@given(ranked_rows(max_rows=40))
def test_magnitude_preserving_error_is_the_mean_over_pairs(rows):
    y, _, qid = rows
    scores = np.random.default_rng(len(y)).normal(size=len(y))
    r = y - scores
    expected = np.full(np.unique(qid).shape, np.nan)
    for place, q in enumerate(np.unique(qid)):
        i, j = np.triu_indices((qid == q).sum(), 1)
        if i.size:
            expected[place] = np.mean((r[qid == q][i] - r[qid == q][j]) ** 2)
    if np.isnan(expected).all():
        with pytest.raises(ValueError, match="every query has one row"):
            mean_squared_pair_error(y, scores, qid)
        return
    found = mean_squared_pair_error(y, scores, qid, per_query=True).values
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)


@given(st.integers(0, 10**6), st.integers(2, 60), st.sampled_from([2, 10, 10**6]))
@examples(80)
def test_f1_and_accuracy_at_a_threshold_of_other_rows(seed, m, levels):
    rng = np.random.default_rng(seed)
    y = np.where(rng.random(m) < 0.4, 3.0, 1.0)
    y[:2] = 1.0, 3.0
    scores = rng.integers(0, levels, m) / 4
    order = np.lexsort((y, -scores))
    for measure, of in ((f1, f1_score), (class_accuracy, accuracy_score)):
        called = np.empty(m, dtype=bool)
        for part in range(10):
            mine = np.isin(np.arange(m), order[part::10])
            cuts = [np.inf, *np.unique(scores[~mine])[::-1]]
            zero = {"zero_division": 0.0} if of is f1_score else {}
            values = (
                [of(y[~mine] == 3, scores[~mine] >= cut, **zero) for cut in cuts] if (~mine).any() else [0]
            )
            best = np.flatnonzero(np.isclose(values, max(values), atol=1e-12))[0]
            called[mine] = scores[mine] >= cuts[best]
        np.testing.assert_allclose(measure(y, scores), of(y == 3, called))
        np.testing.assert_allclose(measure(y, scores, threshold=0.3), of(y == 3, scores > 0.3))
        shuffled = rng.permutation(m)
        np.testing.assert_allclose(measure(y[shuffled], scores[shuffled]), measure(y, scores))
        with pytest.raises(ValueError, match="need two classes: y holds 1 different"):
            measure(np.ones(m), scores)


@pytest.mark.parametrize(("name", "measure"), [("f1", f1), ("class_accuracy", class_accuracy)])
@pytest.mark.parametrize("learner", [RankRLS, RLS])
def test_searches_choose_by_classes_on_one_scale(learner, name, measure):
    """The predictions of all folds are compared with one threshold: nothing of them may be left out."""
    rng = np.random.default_rng(0)
    X, qid = rng.normal(size=(60, 4)) + 2.0, np.repeat(np.arange(6), 10)
    y = (X[:, 0] + rng.normal(size=60) > 2).astype(float)
    folds, alphas = [np.arange(k, 60, 5) for k in range(5)], [0.1, 1.0, 100.0]
    held_out = HeldOut(learner(kernel="rbf"), X, y, qid=qid)
    found = held_out.score(name, folds, alphas)
    by_hand = [
        measure(y, cross_val_predict(learner(alpha, kernel="rbf"), X, y, qid=qid, cv=folds))
        for alpha in alphas
    ]
    np.testing.assert_allclose(found, by_hand, atol=1e-12)


def test_f1_is_not_flattered_by_noise():
    """Random scores, rare positives: the best threshold for all rows looks better than it is; 200 sets."""
    chosen, best = [], []
    for seed in range(200):
        rng = np.random.default_rng(seed)
        y, scores = (rng.random(60) < 0.3).astype(float), rng.normal(size=60)
        y[0] = 1.0
        chosen.append(f1(y, scores))
        best.append(max(f1(y, scores, threshold=t) for t in scores))
    assert np.mean(chosen) < 0.47 < np.mean(best)  # calling all positive earns 0.46


@given(ranked_rows())
def test_concordance_counts_every_pair(rows):
    check(concordance, by_each_query(oracles.concordance_of_query, *rows), *rows)


@given(ranked_rows())
def test_disagreement_error_is_the_rest(rows):
    check(disagreement_error, 1.0 - by_each_query(oracles.concordance_of_query, *rows), *rows)


@given(ranked_rows())
def test_kendall_tau_counts_every_pair(rows):
    check(kendall_tau, by_each_query(oracles.tau_b_of_query, *rows), *rows)


@given(ranked_rows(), st.integers(0, 2**32 - 1), st.sampled_from([0.0, 1.0, 30.0]))
def test_weight_of_a_pair_is_the_product(rows, seed, spread):
    y, scores, qid = rows
    weight = 10.0 ** (spread * np.random.default_rng(seed).uniform(-1, 1, len(y)))
    expected = [
        oracles.concordance_of_query(y[qid == q], scores[qid == q], weight[qid == q]) for q in np.unique(qid)
    ]
    found = concordance(y, scores, qid, sample_weight=weight, per_query=True).values
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-14)


@given(ranked_rows(max_rows=30), st.integers(0, 2**32 - 1))
def test_integer_weights_are_repeated_rows(rows, seed):
    weight = np.random.default_rng(seed).integers(0, 4, len(rows[0]))
    repeated = [np.repeat(column, weight) for column in rows]
    found = concordance(*rows, sample_weight=weight, per_query=True)
    kept = np.isin(found.labels, repeated[2])
    assert np.isnan(found.values[~kept]).all()
    if kept.any():
        expected = concordance(*repeated, per_query=True)
        np.testing.assert_allclose(found.values[kept], expected.values, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("scale", [1e-200, 1.0, 1e200])
def test_scale_of_weights_does_not_matter(scale):
    y, scores, weight = [0, 1, 2, 1], [0.1, 0.3, 0.2, 0.3], np.array([1.0, 2.0, 3.0, 0.5])
    expected = oracles.concordance_of_query(y, scores, weight)
    assert concordance(y, scores, sample_weight=scale * weight) == pytest.approx(expected, rel=1e-14)


def test_a_heavy_row_does_not_swallow_a_light_pair():
    y, scores, weight = [0.0, 1.0, 0.0], [1.0, 2.0, 3.0], [1e16, 1.0, 1e16]
    assert concordance(y, scores, sample_weight=weight) == 0.5


@given(ranked_rows(), st.integers(0, 2**32 - 1))
def test_auc_is_that_of_scikit_learn(rows, seed):
    _, scores, _ = rows
    rng = np.random.default_rng(seed)
    y, weight = rng.integers(0, 2, len(scores)), rng.uniform(0.1, 2.0, len(scores))
    if y.min() == y.max():
        return
    assert auc(y, scores) == pytest.approx(roc_auc_score(y, scores), abs=1e-12)
    assert auc(y, scores) == concordance(y, scores)
    assert auc(2 * y - 1, scores) == auc(y == 1, scores) == auc(y, scores)
    expected = roc_auc_score(y, scores, sample_weight=weight)
    assert auc(y, scores, sample_weight=weight) == pytest.approx(expected, abs=1e-12)


def test_one_long_query_is_that_of_scipy_and_scikit_learn():
    rng = np.random.default_rng(0)
    y, scores = rng.integers(0, 1000, 30_001), rng.integers(0, 3000, 30_001)
    scores[::2] += y[::2]
    assert kendall_tau(y, scores) == pytest.approx(kendalltau(y, scores).statistic, abs=1e-12)
    assert concordance(y > 500, scores) == pytest.approx(roc_auc_score(y > 500, scores), abs=1e-12)


def test_extremes_are_exact():
    y = np.arange(1000.0)
    assert concordance(y, np.exp(y / 1000)) == 1.0
    assert concordance(y, -y) == 0.0
    assert concordance(y, np.zeros(1000)) == 0.5
    assert kendall_tau(y, y) == 1.0
    assert kendall_tau(y, -y) == -1.0


def test_mean_is_over_queries_with_an_untied_pair():
    y, scores, qid = [1, 0, 1, 1, 0, 1, 5], [2, 1, 2, 1, 5, 4, 0], list("aabbccd")
    labels, values = concordance(y, scores, qid, per_query=True)
    assert labels.tolist() == ["a", "b", "c", "d"]
    np.testing.assert_array_equal(values, [1.0, np.nan, 0.0, np.nan])
    assert concordance(y, scores, qid) == 0.5


def test_many_outputs_are_averaged():
    rng = np.random.default_rng(1)
    Y, P, qid = rng.integers(0, 3, (60, 3)), rng.normal(size=(60, 3)), rng.integers(0, 8, 60)
    columns = [concordance(Y[:, j], P[:, j], qid) for j in range(3)]
    assert concordance(Y, P, qid) == pytest.approx(np.mean(columns))
    assert disagreement_error(Y, P, qid) == pytest.approx(1 - np.mean(columns))
    found = concordance(Y, P, qid, per_query=True)
    assert found.values.shape == (8, 3)
    assert found.mean == pytest.approx(np.mean(columns))
    np.testing.assert_array_equal(
        found.values[:, 1], concordance(Y[:, 1], P[:, 1], qid, per_query=True).values
    )


# Lists ----------------------------------------------------------------------------------------------------------

positions = st.sampled_from([None, 1, 2, 3, 5, 10])


def expected_by_query(value_of_list, y, scores, qid):
    return by_each_query(lambda a, b: oracles.mean_over_tie_orders(value_of_list, a, b), y, scores, qid)


@given(ranked_rows(max_rows=16, max_query=5), positions, st.sampled_from(["exponential", "linear"]))
def test_ndcg_is_the_mean_over_tie_orders(rows, k, gain):
    expected = expected_by_query(lambda y: oracles.ndcg_of_list(y, k, gain), *rows)
    check(ndcg, expected, *rows, k=k, gain=gain, no_relevant="skip")
    check(ndcg, np.nan_to_num(expected), *rows, k=k, gain=gain)


@given(ranked_rows(max_rows=16, max_query=5))
def test_average_precision_is_the_mean_over_tie_orders(rows):
    expected = expected_by_query(oracles.average_precision_of_list, *rows)
    check(average_precision, expected, *rows, no_relevant="skip")
    check(average_precision, np.nan_to_num(expected), *rows)


@given(ranked_rows(max_rows=16, max_query=5), positions)
def test_reciprocal_rank_is_the_mean_over_tie_orders(rows, k):
    expected = expected_by_query(lambda y: oracles.reciprocal_rank_of_list(y, k), *rows)
    check(reciprocal_rank, expected, *rows, k=k, no_relevant="skip")
    check(reciprocal_rank, np.nan_to_num(expected), *rows, k=k)


@given(ranked_rows(max_rows=16, max_query=5), st.sampled_from([1, 2, 3, 5, 10]))
def test_precision_is_the_mean_over_tie_orders(rows, k):
    expected = expected_by_query(lambda y: oracles.precision_of_list(y, k), *rows)
    check(precision_at, expected, *rows, k=k, no_relevant="skip")
    check(precision_at, np.nan_to_num(expected), *rows, k=k)
    assert precision_at(k)(*rows) == precision_at(*rows, k=k)


@given(ranked_rows(max_rows=16, max_query=5), positions, st.sampled_from([None, 6.0]))
def test_err_is_the_mean_over_tie_orders(rows, k, max_grade):
    top = rows[0].max() if max_grade is None else max_grade
    expected = expected_by_query(lambda y: oracles.err_of_list(y, top, k), *rows)
    check(err, expected, *rows, k=k, max_grade=max_grade, no_relevant="skip")
    check(err, np.nan_to_num(expected), *rows, k=k, max_grade=max_grade)


@given(st.integers(0, 2**32 - 1), positions)
def test_long_lists_without_ties(seed, k):
    rng = np.random.default_rng(seed)
    y, scores = rng.integers(0, 4, 300), rng.permutation(300)
    y[0] = 3
    listed = y[np.argsort(-scores)].tolist()
    assert ndcg(y, scores, k=k) == pytest.approx(oracles.ndcg_of_list(listed, k), rel=1e-12)
    assert average_precision(y, scores) == pytest.approx(oracles.average_precision_of_list(listed), rel=1e-12)
    assert reciprocal_rank(y, scores, k=k) == pytest.approx(
        oracles.reciprocal_rank_of_list(listed, k), rel=1e-12
    )
    assert err(y, scores, k=k) == pytest.approx(oracles.err_of_list(listed, 3, k), rel=1e-12)
    assert precision_at(y, scores, k=k or 7) == oracles.precision_of_list(listed, k or 7)


@pytest.mark.parametrize("grades", [(3, 4), (0, 1, 4), (0, 0, 0, 0, 0, 1)])
def test_err_of_a_long_tie(grades):
    """The means of products over all subsets, as exact fractions; for the high grades the loop ends early."""
    y = np.random.default_rng(0).choice(grades, 150)
    survival = [Fraction(1)] + [Fraction(0)] * 150
    for t, grade in enumerate(y, start=1):
        reads_on = 1 - Fraction(2 ** int(grade) - 1, 16)
        for j in range(t, 0, -1):
            survival[j] = ((t - j) * survival[j] + j * reads_on * survival[j - 1]) / t
    expected = float(sum((survival[j - 1] - survival[j]) / j for j in range(1, 151)))
    assert err(y, np.zeros(150), max_grade=4) == pytest.approx(expected, rel=1e-12)


def test_long_ties_agree_with_random_orders():
    rng = np.random.default_rng(3)
    y, scores = rng.integers(0, 3, 60) * (rng.random(60) < 0.2), rng.integers(0, 3, 60)
    shuffled = [scores + rng.permutation(60) * 1e-6 for _ in range(1500)]
    for metric in (*LISTWISE, lambda y, s: ndcg(y, s, k=10), lambda y, s: reciprocal_rank(y, s, k=4)):
        values = np.array([metric(y, one) for one in shuffled])
        assert abs(values.mean() - metric(y, scores)) < 5 * values.std() / np.sqrt(len(values))


@given(ranked_rows(max_rows=40), positions)
def test_linear_ndcg_is_that_of_scikit_learn(rows, k):
    y, scores, qid = rows
    found = ndcg(y, scores, qid, k=k, gain="linear", per_query=True)
    for label, value in zip(*found, strict=True):
        if (qid == label).sum() > 1:
            expected = ndcg_score(y[None, qid == label], scores[None, qid == label], k=k)
            assert value == pytest.approx(expected, rel=1e-10)


@given(st.integers(0, 2**32 - 1))
def test_average_precision_without_ties_is_that_of_scikit_learn(seed):
    rng = np.random.default_rng(seed)
    y, scores = rng.integers(0, 2, 40), rng.permutation(40)
    y[0] = 1
    assert average_precision(y, scores) == pytest.approx(average_precision_score(y, scores), rel=1e-12)


def test_lists_without_ties_are_those_of_trec_eval():
    rng = np.random.default_rng(7)
    qid = rng.permutation(np.repeat(np.arange(30), rng.integers(1, 25, 30)))
    y, scores = rng.integers(0, 4, qid.size), rng.permutation(qid.size).astype(float)
    y[qid < 5] = 0  # nothing relevant there
    truth = {str(q): {} for q in range(30)}
    run = {str(q): {} for q in range(30)}
    for row, q in enumerate(qid):
        truth[str(q)][f"row{row}"] = int(y[row])
        run[str(q)][f"row{row}"] = float(scores[row])
    wanted = {"map", "recip_rank", "P.1,5,10", "ndcg", "ndcg_cut.3,10"}
    pytrec_eval = pytest.importorskip("pytrec_eval")
    results = pytrec_eval.RelevanceEvaluator(truth, wanted).evaluate(run)

    def trec(name):
        return [results[str(q)][name] for q in range(30)]

    for metric, options, name in [
        (average_precision, {}, "map"),
        (reciprocal_rank, {}, "recip_rank"),
        (precision_at, {"k": 1}, "P_1"),
        (precision_at, {"k": 5}, "P_5"),
        (precision_at, {}, "P_10"),
        (ndcg, {"gain": "linear"}, "ndcg"),
        (ndcg, {"gain": "linear", "k": 3}, "ndcg_cut_3"),
        (ndcg, {"gain": "linear", "k": 10}, "ndcg_cut_10"),
    ]:
        found = metric(y, scores, qid, per_query=True, **options)
        np.testing.assert_allclose(found.values, trec(name), rtol=1e-10, err_msg=name)
        assert metric(y, scores, qid, **options) == pytest.approx(np.mean(trec(name)))


@given(ranked_rows(max_rows=40), st.sampled_from([0.5, 1.0, 3.0]))
def test_relevance_threshold(rows, threshold):
    y, scores, qid = rows
    for metric in (average_precision, reciprocal_rank, precision_at):
        found = metric(y, scores, qid, relevant_above=threshold)
        assert found == metric((y > threshold).astype(int), scores, qid)
        assert found == metric(y - threshold, scores, qid)


# All metrics ----------------------------------------------------------------------------------------------------


def sample(seed=0, m=90):
    rng = np.random.default_rng(seed)
    return rng.integers(0, 4, m).astype(float), rng.integers(0, 30, m).astype(float), rng.integers(0, 12, m)


@pytest.mark.parametrize("metric", ALL_WITH_QID)
def test_order_of_rows_does_not_matter(metric):
    y, scores, qid = sample()
    order = np.random.default_rng(1).permutation(len(y))
    assert metric(y[order], scores[order], qid[order]) == pytest.approx(metric(y, scores, qid), rel=1e-14)
    assert metric(y, np.exp(scores / 7), qid) == metric(y, scores, qid)


@pytest.mark.parametrize("metric", ALL_WITH_QID)
def test_inputs_of_many_kinds(metric):
    y, scores, qid = sample()
    expected = metric(y, scores, qid)
    names = np.array([f"query {q}" for q in qid])
    frozen = [array.copy() for array in (y, scores, qid)]
    for array in frozen:
        array.flags.writeable = False
    for given_rows in [
        (y.astype(int).tolist(), scores.tolist(), qid.tolist()),
        (y.astype(np.float32), scores.astype(np.float32), names),
        (pd.Series(y, index=names), pd.Series(scores), pd.Series(names)),
        (pl.Series(y), pl.Series(scores), pl.Series(names.tolist())),
        (y[:, None], scores[:, None], qid[:, None]),
        (y.astype(object), np.asfortranarray(scores), list(zip(qid.tolist(), names.tolist(), strict=True))),
        (np.repeat(y, 2)[::2], scores.astype(">f8"), qid.astype(np.uint16)),
        (y, scores, encode_queries(qid, len(y))),
        frozen,
    ]:
        assert metric(*given_rows) == pytest.approx(expected, rel=1e-14)
    for array, before in zip((y, scores, qid), frozen, strict=True):
        np.testing.assert_array_equal(array, before)


@pytest.mark.parametrize("metric", ALL_WITH_QID)
def test_threads_share_out_the_queries(metric, monkeypatch):
    y, scores, qid = sample(m=500)
    qid[:200] = 3  # one query longer than a share
    alone = metric(y, scores, qid, per_query=True)
    monkeypatch.setattr(by_query, "_ROWS_PER_THREAD", 1)
    for n_threads in (2, 5, 64):
        monkeypatch.setattr(by_query, "n_threads", lambda n=n_threads: n)
        np.testing.assert_array_equal(metric(y, scores, qid, per_query=True).values, alone.values)


@pytest.mark.parametrize("metric", ALL_WITH_QID)
def test_no_qid_is_one_query(metric):
    y, scores, _ = sample()
    found = metric(y, scores, per_query=True)
    assert isinstance(found, PerQuery)
    assert found.labels.tolist() == [None]
    assert metric(y, scores) == found.values[0] == metric(y, scores, np.zeros(len(y))) == found.mean


@pytest.mark.parametrize("metric", ALL_WITH_QID)
@pytest.mark.parametrize(
    ("y", "scores", "qid", "message"),
    [
        ([], [], None, "no rows"),
        ([1, 0], [1, 2, 3], None, "2 in y and 3 in scores"),
        ([1, 0], [1, 2], [1], "1 labels for 2 rows"),
        ([1, 0], [1, 2], encode_queries([1], 1), "groups 1 rows"),
        ([1, 0], [1, 2], [1, np.nan], "missing label"),
        ([1, np.nan], [1, 2], None, "y must be finite: row 1 holds nan"),
        ([1, 0], [-np.inf, 2], None, "scores must be finite: row 0 holds -inf"),
        (np.ones((2, 2, 2)), [1, 2], None, "one number per row"),
        (1.0, [1.0], None, "one number per row"),
    ],
)
def test_bad_rows_are_refused(metric, y, scores, qid, message):
    with pytest.raises(ValueError, match=message):
        metric(y, scores, qid)


@pytest.mark.parametrize("metric", [*ALL_WITH_QID, auc])
@pytest.mark.parametrize("y", [["a", "b"], [1j, 2.0], [None, "a"], np.array([{}, 1], dtype=object)])
def test_things_that_are_no_numbers_are_refused(metric, y):
    with pytest.raises(TypeError, match="y must hold numbers"):
        metric(y, [1.0, 2.0])


@pytest.mark.parametrize("metric", [kendall_tau, *LISTWISE, auc])
def test_many_outputs_are_refused_elsewhere(metric):
    with pytest.raises(ValueError, match=r"one number per row: found an array of shape \(2, 2\)"):
        metric(np.eye(2), np.eye(2))


def test_outputs_must_match():
    with pytest.raises(ValueError, match="2 columns in y and 1 in scores"):
        concordance(np.eye(2), [1.0, 2.0])
    with pytest.raises(ValueError, match="in one of the outputs"):
        concordance([[1, 1], [1, 0]], [[1, 1], [1, 0]])


@pytest.mark.parametrize("metric", [concordance, disagreement_error])
def test_nothing_to_compare(metric):
    with pytest.raises(ValueError, match="there are no two rows with different y"):
        metric([1, 1], [1, 2])
    with pytest.raises(ValueError, match="no query has two rows with different y"):
        metric([1, 2], [1, 2], ["a", "b"])
    with pytest.raises(ValueError, match="weight above zero"):
        metric([1, 2], [1, 2], sample_weight=[0, 1])
    assert np.isnan(metric([1, 2], [1, 2], ["a", "b"], per_query=True).values).all()
    assert np.isnan(metric([1, 2], [1, 2], ["a", "b"], per_query=True).mean)


def test_tau_needs_scores_that_differ():
    with pytest.raises(ValueError, match="kendall_tau is not defined"):
        kendall_tau([1, 2], [1, 1])


@pytest.mark.parametrize(
    ("weight", "message"), [([1], "1 for 2 rows"), ([1, -1], "negative: found -1"), ([1, np.nan], "finite")]
)
@pytest.mark.parametrize("metric", [concordance, disagreement_error, auc])
def test_bad_weights_are_refused(metric, weight, message):
    with pytest.raises(ValueError, match=message):
        metric([1, 0], [1, 2], sample_weight=weight)


def test_auc_needs_two_classes():
    with pytest.raises(ValueError, match="every y is 1"):
        auc([1, 1], [1, 2])
    with pytest.raises(ValueError, match="3 different values.*concordance"):
        auc([0, 1, 2], [1, 2, 3])


@pytest.mark.parametrize("metric", [ndcg, reciprocal_rank, err, precision_at])
@pytest.mark.parametrize("k", [0, -1, 2.0, "3", True])
def test_k_must_be_a_number_of_positions(metric, k):
    with pytest.raises(ValueError, match="k must be a number of positions"):
        metric([1, 0], [1, 2], k=k)


@pytest.mark.parametrize(
    ("metric", "options", "message"),
    [
        (ndcg, {"gain": "log"}, "gain must be one of 'exponential', 'linear': found 'log'"),
        (ndcg, {"no_relevant": "one"}, "no_relevant must be one of"),
        (average_precision, {"relevant_above": np.nan}, "relevant_above must be a finite number"),
        (reciprocal_rank, {"relevant_above": "1"}, "relevant_above must be a finite number"),
        (err, {"max_grade": 0}, "max_grade must be a positive number"),
        (err, {"max_grade": 0.5}, "at least the largest grade"),
        (precision_at, {"k": None}, "found None"),
    ],
)
def test_bad_options_are_refused(metric, options, message):
    with pytest.raises(ValueError, match=message):
        metric([1, 0], [1, 2], **options)


def test_grades_that_cannot_be_are_refused():
    for metric in (ndcg, err):
        with pytest.raises(ValueError, match="found y = -1"):
            metric([1, -1], [1, 2])
    with pytest.raises(ValueError, match="not a grade"):
        ndcg([1000, 0], [1, 2])
    assert ndcg([1e308, 1e308, 1e307], [3, 2, 1], gain="linear") == 1.0


def test_precision_at_needs_scores_or_k():
    with pytest.raises(TypeError, match="a single integer k"):
        precision_at([1, 0])
    with pytest.raises(ValueError, match="found 0"):
        precision_at(0)


@pytest.mark.parametrize("metric", LISTWISE)
def test_nothing_relevant(metric):
    y, scores, qid = [1, 0, 0, 0], [2, 1, 2, 1], [1, 1, 2, 2]
    counted, skipped = metric(y, scores, qid), metric(y, scores, qid, no_relevant="skip")
    assert counted == skipped / 2 > 0
    assert metric([0, 0], [1, 2]) == 0.0
    np.testing.assert_array_equal(
        metric(y, scores, qid, no_relevant="skip", per_query=True).values[1], np.nan
    )
    with pytest.raises(ValueError, match="no query has a relevant row"):
        metric([0, 0], [1, 2], no_relevant="skip")


def test_importing_the_metrics_does_not_import_numba():
    program = "import sys, preflearn.metrics; sys.exit('numba' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


@pytest.mark.parametrize("with_queries", [True, False])
def test_labels_alone_are_ordered_by_their_mean_targets_in_the_other_half(with_queries):
    rng = np.random.default_rng(0)
    qid, codes = np.repeat(np.arange(8), 6), rng.integers(-1, 14, size=48)
    y = rng.normal(size=48) + 3.0
    half = (qid if with_queries else np.arange(48)) % 2
    scores = np.full(48, y.mean())  # of labels that the other half does not have
    for row in range(48):
        alike = (codes == codes[row]) & (half != half[row])
        if alike.any():
            scores[row] = y[alike].mean()
    units = encode_queries(qid if with_queries else None, 48)
    expected = concordance(y, scores, qid if with_queries else None)
    assert labels_alone("colour", codes, y, units).share == pytest.approx(expected)
