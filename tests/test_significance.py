"""Comparing rankers: Wilcoxon's test and Holm's correction against their definitions."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import ttest_rel
from tests import oracles

from preflearn.metrics import concordance, ndcg
from preflearn.model_selection.significance import (
    compare_rankers,
    compare_several_rankers,
    holm,
    paired_t_test,
    signed_rank_test,
)
from strategies import examples


def rankings(n_queries=12, items=8, noise=(1.0, 2.0), seed=0):
    rng = np.random.default_rng(seed)
    qid = rng.permutation(np.repeat(np.arange(n_queries), items))
    y = rng.integers(0, 4, size=qid.shape[0]).astype(float)
    return y, [y + level * rng.normal(size=y.shape[0]) for level in noise], qid


def per_query(metric, y, scores, qid):
    return np.array([metric(y[qid == q], scores[qid == q]) for q in np.unique(qid)])


@given(n_queries=st.integers(3, 9), seed=st.integers(0, 2**31))
@examples(20)
def test_pvalue_is_that_of_all_signs(n_queries, seed):
    y, (a, b), qid = rankings(n_queries, seed=seed)
    result = compare_rankers(y, a, b, qid)
    differences = per_query(oracles.concordance_of_query, y, a, qid) - per_query(
        oracles.concordance_of_query, y, b, qid
    )
    np.testing.assert_allclose(result.differences, differences, atol=1e-12)
    sizes = np.round(np.abs(differences), 12)
    if (sizes > 0).all() and np.unique(sizes).shape[0] == n_queries:
        assert result.pvalue == pytest.approx(oracles.signed_ranks_pvalue(differences), abs=1e-12)
        ranks = np.argsort(np.argsort(sizes)) + 1
        up, down = ranks[differences > 0].sum(), ranks[differences < 0].sum()
        assert result.statistic == up
        assert result.effect_size == pytest.approx((up - down) / (up + down))


@given(
    differences=st.lists(st.integers(-40, 40), min_size=1, max_size=9, unique_by=abs).filter(
        lambda d: 0 not in d
    ),
    shift=st.floats(-3, 3),
)
def test_signed_ranks_of_columns_against_all_signs(differences, shift):
    first = shift + np.array(differences) / 64
    found = signed_rank_test(first, np.full(len(differences), shift))
    assert found.pvalue == pytest.approx(oracles.signed_ranks_pvalue(np.array(differences, float)), abs=1e-12)
    assert found.n_wins == sum(d > 0 for d in differences) and found.n_ties == 0


def test_signed_ranks_leave_out_rounding():
    found = signed_rank_test([0.1 + 0.2, 1.0], [0.3, 1.0])
    assert (found.pvalue, found.effect_size, found.n_ties) == (1.0, 0.0, 2)


@pytest.mark.parametrize(
    ("first", "second", "said"),
    [
        ([1.0, 2.0], [1.0], "equal length"),
        ([1.0, np.nan], [1.0, 2.0], "NaN"),
        ([[1.0]], [[2.0]], "equal length"),
    ],
)
def test_signed_ranks_refuse(first, second, said):
    with pytest.raises(ValueError, match=said):
        signed_rank_test(first, second)


def test_counts_and_means():
    y, (a, b), qid = rankings(30)
    result = compare_rankers(y, a, b, qid, names=("fine", "coarse"))
    assert result.means == pytest.approx((concordance(y, a, qid), concordance(y, b, qid)))
    assert result.n_wins + result.n_losses + result.n_ties == result.n_queries == 30
    assert result.mean_difference == pytest.approx(result.means[0] - result.means[1])
    assert result.pvalue < 0.05 and result.effect_size > 0.4
    turned = compare_rankers(y, b, a, qid)
    assert turned.pvalue == result.pvalue and turned.effect_size == -result.effect_size
    assert compare_rankers(y, a, b, qid, alternative="greater").pvalue < result.pvalue
    assert compare_rankers(y, a, b, qid, alternative="less").pvalue > 0.9


def test_no_difference_at_all():
    y, (a, _), qid = rankings()
    result = compare_rankers(y, a, 2 * a + 1, qid)
    assert (result.pvalue, result.effect_size, result.n_ties) == (1.0, 0.0, 12)


def test_false_alarms_are_as_rare_as_promised():
    alarms = 0
    for seed in range(200):
        y, (a, b), qid = rankings(20, noise=(1.5, 1.5), seed=seed)
        alarms += compare_rankers(y, a, b, qid).pvalue < 0.05
    assert alarms <= 20


def test_metric_by_name_function_and_with_options():
    y, (a, b), qid = rankings()
    by_name = compare_rankers(y, a, b, qid, metric="ndcg@3")
    assert by_name.means[0] == pytest.approx(ndcg(y, a, qid, k=3))
    by_function = compare_rankers(y, a, b, qid, metric=ndcg)
    assert by_function.means[1] == pytest.approx(ndcg(y, b, qid)) and by_function.metric == "ndcg"
    error = compare_rankers(y, a, b, qid, metric="neg_disagreement_error")
    assert compare_rankers(y, a, b, qid, metric="disagreement_error").metric == error.metric
    plain = compare_rankers(y, a, b, qid)
    assert error.pvalue == plain.pvalue and error.n_wins == plain.n_wins
    with pytest.raises(ValueError, match="unknown metric"):
        compare_rankers(y, a, b, qid, metric="accuracy")
    with pytest.raises(TypeError, match="one value per query"):
        compare_rankers(y, a, b, qid, metric=lambda y, scores, qid, per_query: 1.0)


def test_queries_where_the_metric_is_undefined_are_left_out():
    y, (a, b), qid = rankings()
    y = y.copy()
    y[qid == 3] = 2.0
    result = compare_rankers(y, a, b, qid)
    assert result.n_queries == 11 and 3 not in result.labels
    # tau-b is not defined where one ranker gives equal scores
    a = a.copy()
    a[qid == 5] = 0.0
    assert compare_rankers(y, a, b, qid, metric="kendall_tau").n_queries == 10


@given(st.lists(st.floats(0, 1), min_size=1, max_size=12))
def test_holm(pvalues):
    np.testing.assert_allclose(holm(pvalues), oracles.holm_by_steps(pvalues), rtol=1e-12)


@given(st.integers(0, 10**6), st.sampled_from(["two-sided", "greater", "less"]))
def test_paired_t_is_that_of_scipy_and_overlap_widens_it(seed, alternative):
    a, b = np.random.default_rng(seed).normal(size=(2, 12))
    found = paired_t_test(a, b, alternative=alternative)
    expected = ttest_rel(a, b, alternative=alternative)
    np.testing.assert_allclose([found.statistic, found.pvalue], [expected.statistic, expected.pvalue])
    corrected = paired_t_test(a, b, overlap=1 / 9, alternative=alternative)
    np.testing.assert_allclose(corrected.standard_error, np.std(a - b, ddof=1) * np.sqrt(1 / 12 + 1 / 9))
    np.testing.assert_allclose(corrected.statistic * corrected.standard_error, np.mean(a - b))


def test_paired_t_of_equal_and_of_constant_differences():
    assert paired_t_test([1.0, 2.0], [1.0, 2.0])[1:] == (1.0, 0.0, 0.0)
    assert paired_t_test([2.0, 3.0], [1.0, 2.0]).pvalue == 0.0
    assert paired_t_test([2.0, 3.0], [1.0, 2.0], alternative="less").pvalue == 1.0
    for wrong, message in (({"overlap": -1}, "overlap"), ({"alternative": "x"}, "alternative")):
        with pytest.raises(ValueError, match=message):
            paired_t_test([1.0, 2.0], [2.0, 1.0], **wrong)
    with pytest.raises(ValueError, match="two trials or more: found 1"):
        paired_t_test([1.0], [2.0])


def test_folds_of_compared_rankers_are_corrected_for():
    y, (a, b), qid = rankings()
    plain, folds = compare_rankers(y, a, b, qid), compare_rankers(y, a, b, qid, n_folds=4)
    values = [concordance(y, s, qid, per_query=True).values for s in (a, b)]
    np.testing.assert_allclose(plain.t_pvalue, ttest_rel(*values).pvalue)
    np.testing.assert_allclose(folds.t_statistic, plain.t_statistic / np.sqrt(1 + 4 / 3))
    assert folds.pvalue == plain.pvalue and "corrected for 4 folds" in str(folds)
    assert "paired t (two-sided): p = " in str(plain) and "corrected" not in str(plain)
    for wrong in (1, True, 2.5):
        with pytest.raises(ValueError, match="n_folds must be a number of folds"):
            compare_rankers(y, a, b, qid, n_folds=wrong)


def test_correction_keeps_the_level_of_repeated_splits():
    """Two rules that are equally good, compared on 15 random splits of the same 60 rows, 200 times."""
    rejected = np.zeros(2)
    for seed in range(200):
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(60, 4))
        y = X.sum(axis=1) + rng.normal(size=60)
        results = []
        for _ in range(15):
            test = rng.permutation(60)[:20]
            train = np.setdiff1d(np.arange(60), test)
            errors = []
            for columns in ([0, 1], [2, 3]):
                w = np.linalg.lstsq(X[train][:, columns], y[train], rcond=None)[0]
                errors.append(-np.mean((y[test] - X[test][:, columns] @ w) ** 2))
            results.append(errors)
        first, second = np.array(results).T
        rejected += [paired_t_test(first, second, overlap=rho).pvalue < 0.05 for rho in (0.0, 0.5)]
    assert rejected[0] / 200 > 0.3  # far above its level of 0.05
    assert rejected[1] / 200 < 0.2


def test_several_rankers():
    y, scores, qid = rankings(40, noise=(1.0, 1.05, 3.0))
    named = dict(zip(["one", "two", "three"], scores, strict=True))
    table = compare_several_rankers(y, named, qid)
    assert list(table.means.values()) == sorted(table.means.values(), reverse=True)
    assert len(table.comparisons) == 3
    raw = [one.pvalue for one in table.comparisons]
    np.testing.assert_allclose(table.corrected, oracles.holm_by_steps(raw))
    for one in table.comparisons:
        first, second = one.names
        alone = compare_rankers(y, named[first], named[second], qid)
        assert alone.pvalue == one.pvalue
    text = str(table)
    assert "p (Holm)" in text and all(name in text for name in named)
    assert len({len(line) for line in text.splitlines()[-4:]}) == 1
    against = compare_several_rankers(y, named, qid, baseline="three")
    assert [one.names[1] for one in against.comparisons] == ["three", "three"]
    assert json.loads(json.dumps(against.to_dict()))["means"].keys() == named.keys()


def test_it_prints_and_plots():
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    y, (a, b), qid = rankings()
    result = compare_rankers(y, a, b, qid, names=("fine", "coarse"))
    text = str(result)
    assert (
        "mean over 12 queries" in text and "p = " in text and "effect size" in text and "fine wins in" in text
    )
    assert json.loads(json.dumps(result.to_dict()))["n_queries"] == 12
    ax = result.plot()
    assert len(ax.patches) == 12
    plt.close(ax.figure)


def test_refusals():
    y, (a, b), qid = rankings()
    with pytest.raises(ValueError, match="needs qid"):
        compare_rankers(y, a, b, None)
    with pytest.raises(ValueError, match="at least two queries"):
        compare_rankers(y, a, b, np.zeros(y.shape[0]))
    with pytest.raises(ValueError, match="alternative must be one of"):
        compare_rankers(y, a, b, qid, alternative="better")
    with pytest.raises(ValueError, match="defined for both rankers in 0 queries"):
        compare_rankers(np.ones(y.shape[0]), a, b, qid)
    with pytest.raises(ValueError, match="one entry per row"):
        compare_rankers(y, a[:-1], b, qid)
    with pytest.raises(ValueError, match="at least two rankers"):
        compare_several_rankers(y, {"one": a}, qid)
    with pytest.raises(ValueError, match="baseline must be one of"):
        compare_several_rankers(y, {"one": a, "two": b}, qid, baseline="three")
    with pytest.raises(ValueError, match="one name for each"):
        compare_rankers(y, a, b, qid, names=("a", "b", "c"))
