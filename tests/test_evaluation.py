"""Metrics of given scores with their intervals, against the definitions."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest
from scipy.stats import t as student

from preflearn import RankRLS
from preflearn.metrics import auc, get_scorer
from preflearn.model_selection import cross_val_predict, evaluate_scores
from preflearn.model_selection._intervals import optimism

METRICS = [
    "concordance",
    "kendall_tau",
    "ndcg@3",
    "average_precision",
    "reciprocal_rank",
    "precision@2",
    "err",
]


def rankings(n_queries=12, items=8, seed=0):
    rng = np.random.default_rng(seed)
    qid = rng.permutation(np.repeat(np.arange(n_queries), items))
    y = rng.integers(0, 2, size=qid.shape[0]).astype(float)
    return y, np.round(y + rng.normal(size=y.shape[0]), 1), qid


@given(n_queries=st.integers(2, 8), seed=st.integers(0, 2**31))
def test_values_are_those_of_the_scorers_and_intervals_students(n_queries, seed):
    y, scores, qid = rankings(n_queries, seed=seed)
    for one in evaluate_scores(y, scores, qid, metrics=METRICS).metrics:
        found = get_scorer(one.metric).per_query(y, scores, qid)
        values = found.values[~np.isnan(found.values)]
        assert one.value == pytest.approx(found.mean) and one.n_queries == values.shape[0]
        if values.shape[0] < 2:
            assert one.interval is None
            continue
        half = student.ppf(0.975, values.shape[0] - 1) * values.std(ddof=1) / np.sqrt(values.shape[0])
        least = -1.0 if one.metric == "kendall_tau" else 0.0
        width = 1.0 - least
        ends = [values.mean() - half, values.mean() + half]
        # Values at an end of the range: others may be elsewhere, as often as the share of those that were not allows.
        for place, deficits in enumerate(((1.0 - values) / width, (values - least) / width)):
            k, n = int((deficits > 0).sum()), values.shape[0]
            if k == n:
                continue
            share = binomtest(k, n).proportion_ci(method="exact").high
            most = width * share * (deficits.sum() + 0.5) / (k + 1)
            ends[place] = min(ends[0], 1.0 - most) if place == 0 else max(ends[1], least + most)
        expected = np.clip(ends, least, 1.0)
        np.testing.assert_allclose(one.interval, expected, atol=1e-12)


def test_the_interval_of_an_auc_is_wilsons_with_delongs_variance():
    y, scores, _ = rankings(20)
    found = evaluate_scores(y, scores, metrics=["auc"]).metrics[0]
    wins = np.sign(scores[y == 1][:, None] - scores[y == 0]) / 2 + 0.5
    variance = wins.mean(axis=1).var(ddof=1) / wins.shape[0] + wins.mean(axis=0).var(ddof=1) / wins.shape[1]
    c, z = wins.mean(), student.ppf(0.975, 3 * min(wins.shape))
    n = min(c * (1 - c) / variance, 4 * wins.size / y.shape[0])
    centre, half = c + z**2 / (2 * n), z * np.sqrt(c * (1 - c) / n + (z / (2 * n)) ** 2)
    assert found.value == pytest.approx(auc(y, scores), rel=1e-12) == pytest.approx(c, rel=1e-12)
    np.testing.assert_allclose(found.interval, (np.array([centre - half, centre + half])) / (1 + z**2 / n))
    same = evaluate_scores(y, scores, metrics=["concordance"]).metrics[0]
    assert same.interval == found.interval and same.value == pytest.approx(found.value)


def test_metrics_that_are_not_defined_become_notes_unless_asked_for():
    y, scores, qid = [0.5, -1.0, 2.0, 1.0], [1.0, 2.0, 3.0, 4.0], [1, 1, 2, 2]
    found = evaluate_scores(y, scores, qid)
    assert [one.metric for one in found.metrics] == [
        "concordance", "kendall_tau", "average_precision", "reciprocal_rank",
    ]  # fmt: skip
    assert len(found.notes) == 1 and found.notes[0].startswith("NDCG@10 is left out: ")
    with pytest.raises(ValueError, match="ndcg|gain|grade"):
        evaluate_scores(y, scores, qid, metrics=["ndcg@10"])


def test_what_is_refused():
    with pytest.raises(ValueError, match="3"):
        evaluate_scores([0, 1, 2], [1, 2])
    with pytest.raises(ValueError, match="scores must be finite"):
        evaluate_scores([0, 1], [1, np.nan])
    with pytest.raises(TypeError, match=r"pass \['concordance'\]"):
        evaluate_scores([0, 1], [1, 2], metrics="concordance")
    with pytest.raises(ValueError, match="takes no queries"):
        evaluate_scores([0, 1], [1, 2], [1, 1], metrics=["auc"])
    with pytest.raises(ValueError, match="unknown metric 'accuracy'"):
        evaluate_scores([0, 1], [1, 2], metrics=["accuracy"])


def test_it_prints_itself_and_goes_to_json():
    y, scores, qid = rankings()
    found = evaluate_scores(y, scores, qid)
    assert "Kendall tau-b" in str(found) and "Student's t over queries" in str(found)
    plain = json.loads(json.dumps(found.to_dict()))
    assert plain["rows"] == 96 and plain["queries"] == 12 and plain["metrics"][0]["metric"] == "concordance"
    alone = evaluate_scores(y, scores)
    assert alone.n_queries is None and [one.interval is None for one in alone.metrics] == [False] + [True] * 4


def test_perfect_scores_of_few_queries_do_not_get_an_interval_of_no_width():
    qid = np.repeat(np.arange(20), 5)
    y = np.tile([1.0, 0, 0, 0, 0], 20)
    (found,) = evaluate_scores(y, y, qid, metrics=["reciprocal_rank"]).metrics
    assert found.value == 1.0
    assert 0.85 < found.interval[0] < 0.95
    assert found.interval[1] == 1.0


def test_held_out_predictions_have_wider_intervals():
    rng = np.random.default_rng(0)
    X, qid = rng.normal(size=(240, 20)), np.repeat(np.arange(24), 10)
    y = 0.2 * X[:, 0] + rng.normal(size=240)
    model = RankRLS(0.1).fit(X, y, qid=qid)
    held_out, fitted = cross_val_predict(RankRLS(0.1), X, y, qid=qid), model.predict(X)
    rows = np.array([(i, j) for i in range(240) for j in range(i) if qid[i] == qid[j]])
    weights = np.concatenate([[1 / np.var(y[qid == q])] for q in range(24)])[qid[rows[:, 0]]] ** 0.5
    differences = [values[rows[:, 0]] - values[rows[:, 1]] for values in (y, held_out, fitted)]
    lost = optimism(differences[0] * weights, *differences[1:])  # equal weights of queries
    wider = (1 + min(lost, 3)) ** 0.5
    assert wider > 1.1
    names = ["concordance", "kendall_tau"]
    plain = evaluate_scores(y, held_out, qid, metrics=names)
    found = evaluate_scores(y, held_out, qid, metrics=names, fitted=fitted)
    for one, other in zip(plain.metrics, found.metrics, strict=True):
        assert one.value == other.value and "widened" in other.interval_method
        for end, wide in zip(one.interval, other.interval, strict=True):
            assert wide - one.value == pytest.approx(wider * (end - one.value), rel=1e-6)
    one, other = (
        evaluate_scores(y > 0, held_out, metrics=["auc"], **given).metrics[0]
        for given in ({}, {"fitted": fitted})
    )
    assert other.interval[0] < one.interval[0] and one.interval[1] < other.interval[1]
    # The same predictions on the training rows: nothing was lost.
    assert (
        evaluate_scores(y, fitted, qid, fitted=fitted).metrics[0].interval
        == evaluate_scores(y, fitted, qid).metrics[0].interval
    )
