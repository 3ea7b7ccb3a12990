"""AUC and concordance estimates against refitting, their intervals against the definitions, and what they refuse."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import auc as area_under
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from tests import oracles

from preflearn import RLS, RankRLS
from preflearn.comparisons import encode_queries, one_group
from preflearn.metrics import auc, concordance
from preflearn.model_selection import _tally, cross_val_predict, leave_pair_out
from preflearn.model_selection._intervals import (
    check_mean_interval,
    freedom_of_clusters,
    mean_interval,
    most_effective,
    optimism,
    placement_variance,
    query_interval,
    variance_inside_folds,
    wilson_interval,
    worth_of_queries,
)
from preflearn.model_selection._tally import tally_meetings, tally_pairs, tally_scores
from preflearn.model_selection.estimates import _Data, _deal, estimate_auc, estimate_concordance
from strategies import examples


def two_classes(m=24, n_positive=10, n_features=4, shift=0.8, seed=0):
    rng = np.random.default_rng(seed)
    y = np.zeros(m)
    y[rng.choice(m, n_positive, replace=False)] = 1
    return rng.normal(size=(m, n_features)) + shift * y[:, None] * (np.arange(n_features) < 2), y


def refitted(model, X, y, digits=15):
    def fit_predict(train, test):
        fitted = clone(model).fit(X[train], y[train])
        if hasattr(fitted, "decision_function"):
            scores = fitted.decision_function(X[test])
        elif hasattr(fitted, "predict_proba"):
            scores = fitted.predict_proba(X[test])[:, 1]
        else:
            scores = fitted.predict(X[test])
        return np.round(scores, digits)

    return fit_predict


# ---------------------------------------------------------------------------------------------------- tally


@given(
    m=st.integers(1, 40),
    n_grades=st.integers(1, 12),
    n_places=st.integers(1, 12),
    n_owners=st.integers(1, 4),
    seed=st.integers(0, 2**32 - 1),
)
def test_tally_counts_every_pair(m, n_grades, n_places, n_owners, seed):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, n_grades, size=m) * 1.5
    scores = rng.integers(0, n_places, size=m) * 0.1
    owners = encode_queries(rng.integers(0, n_owners, size=m), m)
    tally = tally_scores(y, scores, owners)
    wins, pairs = oracles.row_wins(y, scores, owners.codes)
    np.testing.assert_array_equal(tally.wins, wins)
    np.testing.assert_array_equal(tally.pairs, pairs)
    assert tally.n_pairs == pairs.sum() / 2


def test_tally_of_listed_pairs_is_that_of_scores():
    rng = np.random.default_rng(0)
    y, scores = rng.integers(0, 4, size=20).astype(float), rng.integers(0, 6, size=20).astype(float)
    pairs = np.array([(i, j) for i in range(20) for j in range(i + 1, 20) if y[i] != y[j]])
    one, other = tally_pairs(y, pairs, scores[pairs]), tally_scores(y, scores, one_group(20))
    np.testing.assert_array_equal(one.wins, other.wins)
    np.testing.assert_array_equal(one.pairs, other.pairs)


# ------------------------------------------------------------------------------------------------ intervals


@given(
    n_positive=st.integers(2, 15),
    n_negative=st.integers(2, 15),
    levels=st.integers(2, 30),
    seed=st.integers(0, 2**31),
)
def test_placement_variance_is_delongs(n_positive, n_negative, levels, seed):
    rng = np.random.default_rng(seed)
    y = np.repeat([1, 0], [n_positive, n_negative])
    scores = rng.integers(0, levels, size=y.shape[0]).astype(float)
    found = placement_variance(tally_scores(y, scores, one_group(y.shape[0])), y)
    assert found == pytest.approx(oracles.delong_variance(y, scores), abs=1e-14)


# Three tests of 43 patients, of whom 31 profited from surgery (DeLong et al. 1988; the example of SAS's LOGISTIC
# procedure): albumin, total protein, Krebs-Goplerud score, outcome.
OVARIAN = """
3.0 5.8 10 0  3.2 6.3 5 1  3.9 6.8 3 1  2.8 4.8 6 0  3.2 5.8 3 1  0.9 4.0 5 0  2.5 5.7 8 0  1.6 5.6 5 1  3.8 5.7 5 1
3.7 6.7 6 1   3.2 5.4 4 1  3.8 6.6 6 1  4.1 6.6 5 1  3.6 5.7 5 1  4.3 7.0 4 1  3.6 6.7 4 0  2.3 4.4 6 1  4.2 7.6 4 0
4.0 6.6 6 0   3.5 5.8 6 1  3.8 6.8 7 1  3.0 4.7 8 0  4.5 7.4 5 1  3.7 7.4 5 1  3.1 6.6 6 1  4.1 8.2 6 1  4.3 7.0 5 1
4.3 6.5 4 1   3.2 5.1 5 1  2.6 4.7 6 1  3.3 6.8 6 0  1.7 4.0 7 0  3.7 6.1 5 1  3.3 6.3 7 1  4.2 7.7 6 1  3.5 6.2 5 1
2.9 5.7 9 0   2.1 4.8 7 1  2.8 6.2 8 0  4.0 7.0 7 1  3.3 5.7 6 1  3.7 6.9 5 1  3.6 6.6 5 1
"""


@pytest.mark.parametrize(
    ("test", "area", "error"), [(0, 0.7366, 0.0927), (1, 0.6478, 0.1), (2, 0.7258, 0.1028)]
)
def test_delongs_patients(test, area, error):
    """Areas and standard errors to the four digits that are published."""
    table = np.array(OVARIAN.split(), dtype=float).reshape(-1, 4)
    y, scores = table[:, 3].astype(int), table[:, test] * (-1 if test == 2 else 1)
    tally = tally_scores(y, scores, one_group(y.size))
    assert round(tally.share, 4) == area
    assert round(placement_variance(tally, y) ** 0.5, 4) == error
    single = placement_variance(tally, y, encode_queries(np.arange(y.size), y.size))
    assert single == pytest.approx(placement_variance(tally, y), rel=0.05)  # groups of one row


def test_the_variance_that_proc_prints():
    """WFNS grades of 113 patients by outcome (data aSAH of the R package pROC), and the variance in its tests."""
    counts = [[37, 20, 3, 8, 4], [2, 12, 1, 8, 18]]
    y = np.repeat([0, 1], [72, 41])
    grades = np.concatenate([np.repeat(np.arange(5.0), row) for row in counts])
    tally = tally_scores(y, grades, one_group(113))
    assert placement_variance(tally, y) == pytest.approx(0.00146991470882363, rel=1e-13)


def test_groups_of_copies_count_once():
    """Three copies of every row are not more data: the variance is that of one copy."""
    rng = np.random.default_rng(0)
    y, scores = np.repeat([1, 0], 30), rng.normal(size=60) + np.repeat([0.5, 0], 30)
    single = placement_variance(tally_scores(y, scores, one_group(60)), y)
    copies, owner = np.tile(y, 3), np.tile(np.arange(60), 3)
    tally = tally_scores(copies, np.tile(scores, 3), one_group(180))
    clustered = placement_variance(tally, copies, encode_queries(owner, 180))
    assert clustered == pytest.approx(single, rel=1e-12)
    assert placement_variance(tally, copies) < 0.4 * single


@given(seed=st.integers(0, 10_000), n_folds=st.integers(1, 4), n_groups=st.integers(1, 9))
@examples(20)
def test_rows_of_a_group_are_not_compared_where_others_are(seed, n_folds, n_groups):
    rng = np.random.default_rng(seed)
    y, f, fold = rng.integers(0, 3, 24), rng.integers(0, 5, 24).astype(float), rng.integers(0, n_folds, 24)
    group = rng.integers(0, n_groups, 24)
    pairs = [(i, j) for i in range(24) for j in range(24) if fold[i] == fold[j] and y[i] > y[j]]
    apart = [(i, j) for i, j in pairs if group[i] != group[j]] or pairs
    tally = tally_scores(y, f, encode_queries(fold, 24), encode_queries(group, 24))
    assert tally.n_pairs == len(apart)
    if apart:
        assert tally.share == pytest.approx(np.mean([0.5 + 0.5 * np.sign(f[i] - f[j]) for i, j in apart]))


def test_averaged_folds_of_groups_compare_rows_of_different_groups():
    X, y = two_classes(m=60, n_positive=30)
    groups = np.random.default_rng(0).permutation(np.arange(60) // 6)
    result = estimate_auc(RLS(), X, y, method="averaged", n_splits=5, groups=groups, random_state=0)
    assert "pairs of rows of different groups, within 5 folds" in result.compared
    assert result.counted == "10 groups, 60 rows"
    alone = estimate_auc(RLS(), X, y, method="pooled", n_splits=5, groups=groups, random_state=0)
    assert result.n_pairs < alone.n_pairs / 5


@pytest.mark.parametrize("constant", [True, False])
def test_the_variance_of_groups_is_that_of_resampled_groups(constant):
    """Of groups with one class each, or with both: the bootstrap over groups, with nothing of the formula in it."""
    rng = np.random.default_rng(1)
    group = np.repeat(np.arange(60), rng.integers(1, 8, size=60))
    y = (group < 30 if constant else rng.random(group.size) < 0.5).astype(int)
    f = y + rng.normal(size=60)[group] + 0.3 * rng.normal(size=group.size)
    tally = tally_scores(y, f, one_group(y.size))
    found = placement_variance(tally, y, encode_queries(group, y.size))
    members, shares = [np.flatnonzero(group == g) for g in range(60)], []
    for _ in range(600):
        if constant:
            drawn = np.r_[rng.integers(30, size=30), 30 + rng.integers(30, size=30)]
        else:
            drawn = rng.integers(60, size=60)
        rows = np.concatenate([members[g] for g in drawn])
        shares.append(tally_scores(y[rows], f[rows], one_group(rows.size)).share)
    assert found == pytest.approx(np.var(shares), rel=0.2)
    if constant:  # in a group with both classes, what rows have in common cancels
        assert found > 1.5 * placement_variance(tally, y)


@given(seed=st.integers(0, 10_000), n_folds=st.integers(1, 6), n_groups=st.integers(2, 24))
@examples(30)
def test_variance_inside_folds_is_that_of_pairs_with_a_cluster_in_common(seed, n_folds, n_groups):
    rng = np.random.default_rng(seed)
    y, f = rng.integers(0, 3, 24), rng.integers(0, 5, 24).astype(float)
    group, fold = rng.integers(0, n_groups, 24), rng.integers(0, n_folds, 24)
    fold = fold[group] if seed % 2 else fold  # whole groups, or not
    if not oracles.meetings(y, f, fold, group):
        return
    folds, groups = encode_queries(fold, 24), encode_queries(group, 24)
    tally = tally_scores(y, f, folds, groups)
    met = tally_meetings(y, f, folds, groups)
    found = sorted(one for one in zip(*met, strict=True) if one[1])
    assert found == sorted((*one, 1.0) for one in oracles.meetings(y, f, fold, group).values())
    expected = oracles.variance_inside_folds(y, f, fold, group)
    assert variance_inside_folds(tally, met, groups) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize(
    ("n_groups", "n_rows", "n_folds", "classes"),
    [(20, 2, 10, True), (20, 3, 5, True), (30, 1, 5, False), (20, 1, 1, False)],
)
def test_variance_inside_folds_is_that_of_the_share(n_groups, n_rows, n_folds, classes):
    """Over many data sets. Placement values, which count each pair at both ends, say up to twice as much."""
    rng, group = np.random.default_rng(0), np.repeat(np.arange(n_groups), n_rows)
    folds, groups = (encode_queries(of, group.size) for of in (group % n_folds, group))
    shares, found, doubled = [], [], []
    for _ in range(800):
        f, y = (rng.normal(size=n_groups)[group] + rng.normal(size=group.size) for _ in range(2))
        y = (y > 0) * 1 if classes else y
        tally = tally_scores(y, f, folds, groups)
        if tally.n_pairs:
            shares.append(tally.share)
            found.append(variance_inside_folds(tally, tally_meetings(y, f, folds, groups), groups))
            doubled.append(placement_variance(tally, np.zeros_like(group), groups))
    assert np.mean(found) == pytest.approx(np.var(shares), rel=0.12)
    assert np.mean(doubled) > np.var(shares) * (1.4 if n_folds == 10 else 0.9)


def test_of_many_meetings_some_are_drawn(monkeypatch):
    rng, fold = np.random.default_rng(0), np.arange(1200) // 2 % 4
    y, f, group = rng.normal(size=1200), rng.normal(size=1200), np.arange(1200) // 2
    folds, groups = encode_queries(fold, 1200), encode_queries(group, 1200)
    every = tally_meetings(y, f + y, folds, groups)
    for most in (20_000, 600):
        monkeypatch.setattr(_tally, "_MOST_ROWS", most)
        wins, pairs, times = tally_meetings(y, f + y, folds, groups)
        assert pairs.sum() < most and times @ pairs == pytest.approx(every[2] @ every[1])
        assert times @ wins**2 == pytest.approx(every[2] @ every[0] ** 2, rel=0.2)
    two = encode_queries(np.arange(1200) // 4, 1200)  # of two groups each: none is left out
    wins, pairs, times = tally_meetings(y, f + y, two, groups)
    assert pairs.size == 300 and set(times) == {1.0}


def test_degrees_of_freedom_of_groups_are_satterthwaites():
    y, equal = np.tile([0, 1], 30), np.repeat(np.arange(10), 6)
    tally = tally_scores(y, np.random.default_rng(0).normal(size=60), one_group(60))
    strata = np.zeros(60, dtype=np.int64)
    assert freedom_of_clusters(tally, encode_queries(equal, 60)) == pytest.approx(9)
    uneven = np.where(np.arange(60) < 40, 0, 1 + equal - 6)
    assert 1 <= freedom_of_clusters(tally, encode_queries(uneven, 60)) < 2
    # Few groups of the rarer class: theirs are the degrees of freedom.
    y, group = (np.arange(60) < 6).astype(int), np.arange(60) // 2
    tally = tally_scores(y, np.random.default_rng(0).normal(size=60), one_group(60))
    assert freedom_of_clusters(tally, encode_queries(group, 60)) < 4
    assert placement_variance(tally, strata, encode_queries(np.zeros(60, dtype=int), 60)) == 0


@given(share=st.floats(0, 1), variance=st.floats(0, 0.3), most=st.floats(1, 1e6))
def test_wilson_interval_holds_the_share_and_stays_inside(share, variance, most):
    low, high = wilson_interval(share, variance, most)
    assert 0 <= low <= share + 1e-12 and share - 1e-12 <= high <= 1
    assert high - low > 0


def test_wilson_interval_of_a_binomial_proportion():
    low, high = wilson_interval(0.7, 0.7 * 0.3 / 50, 1e9)
    from scipy.stats import binomtest

    expected = binomtest(35, 50).proportion_ci(method="wilson")
    assert (low, high) == pytest.approx((expected.low, expected.high), rel=1e-12)


def test_mean_interval_is_students():
    from scipy.stats import ttest_1samp

    values = np.random.default_rng(0).uniform(0.4, 0.8, size=12)
    _, interval = mean_interval(values)
    assert interval == pytest.approx(tuple(ttest_1samp(values, 0).confidence_interval()), rel=1e-12)


@pytest.mark.parametrize(("last", "covered"), [(4.0, 1.0), (5.0, 2.0 / 3.0)])
def test_halves_agree_where_welchs_interval_holds_zero(last, covered):
    """{0, 1} and {3, 4} differ by 4.24 standard errors, {0, 1} and {4, 5} by 5.66: Student allows 4.30."""
    found = check_mean_interval(10.0 * np.array([0.0, 1.0, last - 1.0, last]) + 100.0, random_state=0)
    assert found.coverage == pytest.approx(covered, abs=0.05)


def test_delong_interval_covers():
    """With one fixed scorer, the case DeLong's variance is for, about 95 % of the intervals hold the truth."""
    from scipy.stats import norm

    rng = np.random.default_rng(0)
    y, truth, held = np.repeat([1, 0], [25, 35]), norm.cdf(1 / np.sqrt(2)), 0
    for _ in range(400):
        tally = tally_scores(y, rng.normal(size=60) + y, one_group(60))
        low, high = wilson_interval(tally.share, placement_variance(tally, y), 4 * 25 * 35 / 60)
        held += low <= truth <= high
    assert 0.92 <= held / 400 <= 0.98


# -------------------------------------------------------------------------------------------- AUC: the values


@pytest.mark.parametrize(
    "model",
    [
        RLS(0.5),
        RLS(0.3, kernel="rbf", gamma=0.2),
        RankRLS(2.0),
        RankRLS(0.5, kernel="rbf", gamma=0.2),
        Ridge(0.5),
        GaussianNB(),
        make_pipeline(StandardScaler(), LogisticRegression()),
    ],
    ids=lambda model: type(model).__name__ + str(getattr(model, "kernel", "")),
)
def test_leave_pair_out_is_refitting_every_pair(model):
    X, y = two_classes(m=14, n_positive=6)
    outcomes = oracles.leave_pair_out_outcomes(refitted(model, X, y), y)
    result = estimate_auc(model, X, y, random_state=0)
    assert result.value == pytest.approx(np.mean(list(outcomes.values())), abs=1e-12)
    assert (result.method, result.n_pairs, result.n_rows) == ("leave-pair-out", 48, 14)
    shares = [np.mean([h for pair, h in outcomes.items() if row in pair]) for row in range(14)]
    np.testing.assert_allclose(result.per_row, shares, atol=1e-12)


@pytest.mark.parametrize("model", [RLS(0.5), Ridge(0.5)], ids=["algebra", "refitting"])
def test_leave_pair_out_with_groups_leaves_them_whole(model):
    X, y = two_classes(m=18, n_positive=8, seed=1)
    groups = np.random.default_rng(2).integers(0, 8, size=18)
    outcomes = oracles.leave_pair_out_outcomes(refitted(model, X, y), y, groups)
    result = estimate_auc(model, X, y, groups=groups, random_state=0)
    assert result.value == pytest.approx(np.mean(list(outcomes.values())), abs=1e-12)


@given(m=st.integers(24, 40), n_splits=st.integers(2, 6), seed=st.integers(0, 2**31))
@settings(max_examples=10)
def test_folds_are_stratified_and_averages_are_over_pairs(m, n_splits, seed):
    X, y = two_classes(m=m, n_positive=m // 3, seed=seed)
    data = _Data(RLS(), X, y, y, "AUC", None, 0)
    folds = _deal(data, n_splits, np.random.RandomState(seed))
    for value in (0, 1):
        sizes = np.bincount(folds.codes[y == value], minlength=n_splits)
        assert sizes.max() - sizes.min() <= 1
    scores = cross_val_predict(RLS(), X, y, cv=[folds.rows(fold) for fold in range(n_splits)])
    result = estimate_auc(
        RLS(), X, y, method="averaged", n_splits=n_splits, random_state=np.random.RandomState(seed)
    )
    inside = [auc(y[folds.rows(fold)], scores[folds.rows(fold)]) for fold in range(n_splits)]
    pairs = [(y[folds.rows(fold)] == 1).sum() * (y[folds.rows(fold)] == 0).sum() for fold in range(n_splits)]
    np.testing.assert_allclose(result.per_fold, inside, atol=1e-12)
    assert result.value == pytest.approx(np.average(inside, weights=pairs), abs=1e-12)
    assert result.n_pairs == sum(pairs)
    pooled = estimate_auc(
        RLS(), X, y, method="pooled", n_splits=n_splits, random_state=np.random.RandomState(seed)
    )
    assert pooled.value == pytest.approx(auc(y, scores), abs=1e-12)
    assert pooled.n_pairs == (y == 1).sum() * (y == 0).sum()


@pytest.mark.parametrize("groups", [None, np.arange(40) // 4])
def test_pairs_inside_averaged_folds_are_like_all_pairs(groups):
    """A given score has the same concordance inside of folds as everywhere: folds that are balanced in y would keep
    rows of similar y apart, and groups of one class together with those of the other, which are easier pairs."""
    shares = []
    for seed in range(300):
        rng = np.random.RandomState(seed)
        if groups is None:
            y = rng.normal(size=40)
            f = y + 0.5 * rng.normal(size=40)
        else:
            profile = rng.normal(size=10)[groups]
            y = (2 * profile + rng.normal(size=40) > 0) * 1.0
            f = profile + 0.2 * rng.normal(size=40)
        measure = "concordance" if groups is None else "AUC"
        folds = _deal(_Data(RLS(), np.zeros((40, 1)), y, y, measure, groups, 0), 5, rng)
        apart = None if groups is None else encode_queries(groups, 40)
        inside, every = (tally_scores(y, f, one, apart) for one in (folds, one_group(40)))
        if inside.n_pairs:
            shares.append((inside.share, every.share))
    inside, every = np.mean(shares, axis=0)
    assert inside == pytest.approx(every, abs=0.012)


def test_pooled_leave_one_out_is_allowed_and_known():
    X, y = two_classes()
    result = estimate_auc(RLS(), X, y, method="pooled", n_splits=24, random_state=0)
    assert result.value == pytest.approx(
        auc(y, cross_val_predict(RLS(), X, y, cv="leave-one-out")), abs=1e-12
    )


def test_pooling_is_wrong_where_nothing_can_be_learned():
    """With nothing but a constant, the model predicts the mean of the other rows: lower just for positive rows."""
    X, y = np.ones((20, 1)), np.repeat([0, 1], 10)
    assert estimate_auc(RLS(), X, y, method="pooled", n_splits=20).value == 0.0
    assert estimate_auc(RLS(), X, y).value == pytest.approx(0.5, abs=1e-12)
    assert estimate_auc(RLS(), X, y).pooled is not None


@given(m=st.integers(10, 16), levels=st.integers(1, 3), seed=st.integers(0, 2**31))
@settings(max_examples=10)
def test_equal_rows_are_tied_though_algebra_rounds(m, levels, seed):
    rng = np.random.default_rng(seed)
    X, y = rng.integers(0, levels, size=(m, 2)).astype(float), np.arange(m) % 2
    for model in (RLS(), RankRLS(kernel="rbf")):
        # Eight digits: ties of what differs in the last bits only.
        outcomes = oracles.leave_pair_out_outcomes(refitted(model, X, y, digits=8), y)
        found = estimate_auc(model, X, y).value
        assert found == pytest.approx(np.mean(list(outcomes.values())), abs=1e-12)


def test_groups_are_never_split_over_folds():
    X, y = two_classes(m=40, n_positive=16)
    groups = np.random.default_rng(1).integers(0, 15, size=40)
    for measure in ("AUC", "concordance"):
        order = y if measure == "AUC" else X[:, 0]
        data = _Data(RLS(), X, y, order, measure, groups, 0)
        folds = _deal(data, 4, np.random.RandomState(0))
        assert all(np.unique(folds.codes[groups == group]).shape[0] == 1 for group in np.unique(groups))
    result = estimate_auc(RLS(), X, y, method="pooled", n_splits=4, groups=groups, random_state=0)
    data = _Data(RLS(), X, y, y, "AUC", groups, 0)
    folds = _deal(data, 4, np.random.RandomState(0))
    scores = cross_val_predict(RLS(), X, y, cv=[folds.rows(fold) for fold in range(4)])
    assert result.value == pytest.approx(auc(y, scores), abs=1e-12)


def test_labels_may_be_text_and_the_larger_is_positive():
    X, y = two_classes()
    names = np.where(y == 1, "sick", "healthy")
    by_name = estimate_auc(LogisticRegression(), X, names, random_state=0)
    by_number = estimate_auc(LogisticRegression(), X, y, random_state=0)
    assert by_name.value == by_number.value
    turned = estimate_auc(RLS(), X, -y).value
    assert turned == pytest.approx(estimate_auc(RLS(), X, y).value, abs=1e-12)


def test_sparse_precomputed_and_reduced_set():
    X, y = two_classes()
    dense = estimate_auc(RLS(), X, y, random_state=0)
    thin = estimate_auc(RLS(), sparse.csr_array(X), y, random_state=0)
    kernel = estimate_auc(RLS(kernel="precomputed"), X @ X.T, y, random_state=0)
    for other in (thin, kernel):
        assert other.value == dense.value
        assert other.interval == pytest.approx(dense.interval, abs=1e-12)
    basis = estimate_auc(RLS(kernel="rbf", basis=np.arange(0, 24, 2)), X, y, random_state=0)
    drawn = estimate_auc(RLS(kernel="rbf", n_basis=20, random_state=0), X, y, random_state=0)
    assert 0 < basis.value < 1 and 0 < drawn.value < 1


def test_inputs_are_left_alone_and_the_seed_decides():
    X, y = two_classes()
    before, model = (X.copy(), y.copy()), RLS()
    one, other = (estimate_auc(model, X, y, random_state=3) for _ in range(2))
    assert one.interval == other.interval and one.pooled == other.pooled
    np.testing.assert_array_equal(X, before[0])
    np.testing.assert_array_equal(y, before[1])
    assert not hasattr(model, "coef_")


# ----------------------------------------------------------------------------------- intervals of the estimates


@pytest.mark.parametrize("kernel", ["linear", "rbf"])
@pytest.mark.parametrize("real", [False, True])
def test_interval_is_wilsons_of_placements_and_optimism(kernel, real):
    X, y = two_classes(m=30, n_positive=12, seed=4)
    y = y + X[:, 0] if real else y
    model = RankRLS(kernel=kernel)
    fit_predict, fitted = refitted(model, X, y), model.fit(X, y).predict(X)
    pairs = np.array([(i, j) for i in range(30) for j in range(i + 1, 30) if y[i] != y[j]])
    held_out = np.array([fit_predict(np.setdiff1d(np.arange(30), pair), pair) for pair in pairs])
    lost = optimism(
        y[pairs[:, 0]] - y[pairs[:, 1]],
        held_out[:, 0] - held_out[:, 1],
        fitted[pairs[:, 0]] - fitted[pairs[:, 1]],
    )
    tally = tally_pairs(y, pairs, held_out)
    variance = placement_variance(tally, np.zeros(30, dtype=int) if real else y.astype(int))
    most = 6 * 435 / 31 if real else 4 * 12 * 18 / 30 * 12 / 13
    result = estimate_concordance(model, X, y, random_state=0)
    assert 0 < lost < 2
    freedom = np.inf if real else 3 * 12  # three times the rows of the smaller class
    assert result.interval == pytest.approx(
        wilson_interval(tally.share, variance, most, optimism=lost, freedom=freedom), abs=1e-9
    )
    assert result.standard_error**2 == pytest.approx(variance * (1 + lost), rel=1e-9)


@given(
    n=st.integers(2, 30),
    scale=st.sampled_from([1e-200, 1e-9, 1.0, 1e200]),
    seed=st.integers(0, 2**31),
)
def test_optimism_is_the_loss_of_standardised_margins(n, scale, seed):
    """For two classes: mean over standard deviation of the margins, whatever their unit."""
    rng = np.random.default_rng(seed)
    held_out, fitted = rng.normal(size=n), rng.normal(size=n) + 3
    z, z0 = held_out.mean() / held_out.std(), fitted.mean() / fitted.std()
    expected = max(0.0, 1 - z / z0) if z0 > 0 else 1.0 if z >= 0 else np.inf
    found = optimism(np.ones(n), held_out * scale, fitted * scale)
    assert found == pytest.approx(expected, rel=1e-6, abs=1e-9)


def test_optimism_at_its_ends():
    ones = np.ones(3)
    assert optimism(ones, ones, ones) == 0  # perfect on both
    assert optimism(ones, np.array([1.0, 2, 3]), ones) == 1  # perfect on the training rows only
    assert optimism(ones, 0 * ones, 0 * ones) == 1  # nothing learned
    assert optimism(ones, -ones, 0 * ones) == np.inf  # wrong as a whole
    assert wilson_interval(0.0, 0.0, 40, optimism=np.inf)[1] > 0.75


@pytest.mark.parametrize(("n_features", "least"), [(1, 93), (10, 90)])
def test_interval_covers_where_there_is_no_signal(n_features, least):
    """Models differ from sample to sample, and the interval knows it; the one that takes models as given does not."""
    rng = np.random.default_rng(0)
    y, held, held_as_given = np.repeat([0.0, 1.0], 15), 0, 0
    for _ in range(100):
        X = rng.normal(size=(30, n_features))
        result = estimate_concordance(RLS(), X, y, n_splits=2, random_state=0)
        held += result.interval[0] <= 0.5 <= result.interval[1]
        pairs, held_out = leave_pair_out(RLS(), X, y)
        tally = tally_pairs(y, pairs, held_out)
        low, high = wilson_interval(tally.share, placement_variance(tally, y.astype(int)), most_effective(y))
        held_as_given += low <= 0.5 <= high
    # About 96 % of many.
    assert held >= least
    assert held >= held_as_given + 5


def test_perfect_separation_still_has_an_interval():
    y = np.repeat([0, 1], 10)
    X = (10.0 * y + np.random.default_rng(0).normal(size=20))[:, None]
    result = estimate_auc(RLS(), X, y, random_state=0)
    assert result.value == 1 and result.interval[1] == 1 and 0.7 < result.interval[0] < 0.9


# --------------------------------------------------------------------------------------- ROC and the tournament


def test_tournament_counts_the_wins_of_all_pairs():
    X, y = two_classes(m=12, n_positive=5, seed=3)
    wins = np.zeros(12)
    for i in range(12):
        for j in range(12):
            if i != j:
                train = np.setdiff1d(np.arange(12), [i, j])
                f_i, f_j = RLS().fit(X[train], y[train]).predict(X[[i, j]])
                wins[i] += 1.0 if f_i > f_j else 0.5 if f_i == f_j else 0.0
    result = estimate_auc(RLS(), X, y)
    np.testing.assert_allclose(result.tournament, wins, atol=1e-12)
    assert area_under(result.roc.fpr, result.roc.tpr) == pytest.approx(auc(y, wins), abs=1e-12)


def test_roc_of_the_methods():
    X, y = two_classes()
    pooled = estimate_auc(RLS(), X, y, method="pooled", random_state=0)
    assert area_under(pooled.roc.fpr, pooled.roc.tpr) == pytest.approx(pooled.value, abs=1e-12)
    assert estimate_auc(RLS(), X, y, method="averaged", n_splits=5, random_state=0).roc is None
    assert estimate_concordance(RLS(), X, y, random_state=0).roc is None


# ----------------------------------------------------------------------------------------------- concordance


def test_concordance_of_two_classes_is_the_auc():
    X, y = two_classes()
    one, other = estimate_concordance(RLS(), X, y, random_state=0), estimate_auc(RLS(), X, y, random_state=0)
    assert one.value == pytest.approx(other.value, abs=1e-12)
    assert one.interval == pytest.approx(other.interval, abs=1e-12)


@pytest.mark.parametrize(
    "model", [RLS(0.5), RankRLS(0.5), Ridge(0.5)], ids=lambda model: type(model).__name__
)
def test_concordance_of_real_scores_is_refitting(model):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(13, 3))
    y = np.round(X[:, 0] + rng.normal(size=13), 1)
    outcomes = oracles.leave_pair_out_outcomes(refitted(model, X, y), y)
    result = estimate_concordance(model, X, y, random_state=0)
    assert result.value == pytest.approx(np.mean(list(outcomes.values())), abs=1e-12)
    assert result.n_pairs == len(outcomes)


@pytest.mark.parametrize(
    "model", [RankRLS(0.5), RLS(0.5), Ridge(0.5)], ids=lambda model: type(model).__name__
)
def test_concordance_with_queries(model):
    rng = np.random.default_rng(0)
    qid = rng.permutation(np.repeat(["a", "b", "c", "d", "e", "f"], 6))
    X = rng.normal(size=(36, 3))
    y = np.round(X[:, 0] + rng.normal(size=36))
    y[qid == "d"] = 1.0  # a query without an untied pair
    scores = np.empty(36)
    for label in np.unique(qid):
        test = qid == label
        extra = {"qid": qid[~test]} if isinstance(model, RankRLS) else {}
        scores[test] = clone(model).fit(X[~test], y[~test], **extra).predict(X[test])
    result = estimate_concordance(model, X, y, qid=qid)
    assert result.value == pytest.approx(concordance(y, scores, qid), abs=1e-9)
    assert result.method == "leave-query-out"
    per_query = concordance(y, scores, qid, per_query=True).values
    np.testing.assert_allclose(result.per_fold, per_query, atol=1e-9)
    extra = {"qid": qid} if isinstance(model, RankRLS) else {}
    fitted = clone(model).fit(X, y, **extra).predict(X)
    interval = oracles.query_interval(y, scores, fitted, qid)
    assert result.interval == pytest.approx(interval, abs=1e-6)
    folds = estimate_concordance(model, X, y, qid=qid, method="averaged", n_splits=3, random_state=0)
    assert folds.method == "averaged" and folds.n_pairs == result.n_pairs


@pytest.mark.parametrize(("n_queries", "n_rows"), [(20, 5), (10, 20)])
def test_query_interval_covers_where_there_is_no_signal(n_queries, n_rows):
    """Models that leave out one query each share the luck of the others; Student's interval does not know it."""
    rng = np.random.default_rng(0)
    qid = np.repeat(np.arange(n_queries), n_rows)
    held, held_by_student = 0, 0
    for _ in range(200):
        X, y = rng.normal(size=(qid.size, 5)), rng.normal(size=qid.size)
        result = estimate_concordance(RankRLS(), X, y, qid=qid)
        held += result.interval[0] <= 0.5 <= result.interval[1]
        low, high = mean_interval(result.per_fold)[1]
        held_by_student += low <= 0.5 <= high
    assert held >= 184  # 92 %; about 95 % of many
    assert held_by_student <= 178


@given(data=st.data())
@examples(60)
def test_query_interval_stays_inside_and_has_a_width(data):
    """Also where all queries have the same value, and with one pair in each."""
    n = data.draw(st.integers(2, 30))
    rng = np.random.default_rng(data.draw(st.integers(0, 999)))
    sizes = rng.integers(2, 6, n)
    queries = encode_queries(np.repeat(np.arange(n), sizes), int(sizes.sum()))
    y = rng.normal(size=queries.n_rows)
    values = np.full(n, data.draw(st.sampled_from([0.0, 0.5, 1.0])))
    rho = data.draw(st.sampled_from([0.0, 0.3, 1.0, np.inf]))
    variance, (low, high) = query_interval(values, worth_of_queries(y, queries), optimism=rho)
    assert 0 <= low <= values[0] <= high <= 1 and low < high and 0 < variance < 0.5
    _, (low_more, high_more) = query_interval(values, worth_of_queries(y, queries), optimism=5.0)
    assert low_more <= low and high_more >= high


@pytest.mark.parametrize("n_groups", [2, 3])
@pytest.mark.parametrize("event", [None, np.arange(40) % 3 > 0])
def test_too_few_groups_to_leave_out_pairs_are_folds(n_groups, event):
    """With two of them only rows of the same group can be compared: then nearly nothing is known."""
    rng = np.random.default_rng(0)
    X, y, groups = rng.normal(size=(40, 3)), rng.exponential(size=40), np.arange(40) % n_groups
    found = estimate_concordance(RankRLS(), X, y, event=event, groups=groups)
    assert "within 2 folds, of whole groups" in found.compared
    assert f"{n_groups} groups are too few" in found.compared
    assert found.method == "averaged" and found.interval[1] - found.interval[0] > 0.6
    if n_groups == 2:
        with pytest.raises(ValueError, match="method='averaged'"):
            estimate_concordance(RankRLS(), X, y, event=event, groups=groups, method="leave-pair-out")


def test_groups_of_queries_widen_the_interval():
    rng = np.random.default_rng(0)
    qid, X = np.repeat(np.arange(12), 8), rng.normal(size=(96, 3))
    y = X[:, 0] + rng.normal(size=96)
    groups = qid // 3
    result = estimate_concordance(RankRLS(), X, y, qid=qid, groups=groups)
    assert "4 groups of queries" in result.interval_method
    scores = np.empty(96)
    for group in range(4):
        test = groups == group
        scores[test] = RankRLS().fit(X[~test], y[~test], qid=qid[~test]).predict(X[test])
    assert result.value == pytest.approx(concordance(y, scores, qid), abs=1e-9)


# ------------------------------------------------------------------------------------------- how they print


def test_it_prints_what_it_did_and_why_pooling_misleads():
    X, y = two_classes()
    pair_out = str(estimate_auc(RLS(), X, y, random_state=0))
    assert pair_out.startswith("AUC 0.") and "95 % interval" in pair_out
    assert (
        "140 pairs (10 positive × 14 negative rows)" in pair_out
        and "Ten-fold cross-validation with pooled scores" in pair_out
    )
    pooled = str(estimate_auc(RLS(), X, y, method="pooled", random_state=0))
    assert "scores from different models" in pooled and "leave-pair-out" in pooled
    averaged = estimate_auc(RLS(), X, y, method="averaged", n_splits=5, random_state=0)
    assert "scores from different models" not in str(averaged)
    assert repr(averaged).startswith("PerformanceEstimate(AUC 0.") and "\n" not in repr(averaged)
    assert all(len(line) <= 100 for line in pair_out.splitlines())


def test_it_goes_to_json():
    X, y = two_classes()
    for result in (
        estimate_auc(RLS(), X, y, random_state=0),
        estimate_concordance(RankRLS(), X, X[:, 0], qid=np.repeat([1, 2, 3], 8)),
    ):
        again = json.loads(json.dumps(result.to_dict(), allow_nan=False))
        assert again["value"] == result.value and tuple(again["interval"]) == result.interval


@pytest.mark.parametrize("method", ["leave-pair-out", "averaged", "pooled"])
def test_it_plots(method):
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    X, y = two_classes()
    n_splits = {} if method == "leave-pair-out" else {"n_splits": 5}
    for estimate in (estimate_auc, estimate_concordance):
        ax = estimate(RLS(), X, y, method=method, random_state=0, **n_splits).plot()
        assert "95 %" not in ax.get_title() and method in ax.get_title()
        plt.close(ax.figure)


def test_verbose_reports(capsys):
    X, y = two_classes(m=12, n_positive=5)
    estimate_auc(Ridge(), X, y, random_state=0, verbose=1)
    assert "66 of 66 pairs" in capsys.readouterr().err


# -------------------------------------------------------------------------------------------- what they refuse


@pytest.mark.parametrize(
    ("y", "options", "message"),
    [
        ([0, 1, 2] * 4, {}, "y holds 3 different values.*estimate_concordance"),
        ([1] * 12, {}, "y holds 1 different values"),
        ([1] + [0] * 11, {}, "found 11 of .* and 1 of"),
        ([0, 1] * 5, {}, "shape .*10.* for 12 rows"),
        ([0, np.nan] * 6, {}, "NaN"),
        ([0, 1] * 6, {"method": "bootstrap"}, "method must be one of 'leave-pair-out'"),
        ([0, 1] * 6, {"method": "averaged"}, "smaller class has 6 rows for 10 folds.*n_splits=6"),
        ([0, 1] * 6, {"method": "pooled", "n_splits": 13}, "more than the 12 rows"),
        ([0, 1] * 6, {"method": "pooled", "n_splits": 1}, "at least 2"),
        ([0, 1] * 6, {"method": "pooled", "n_splits": 2.5}, "n_splits must be an int"),
        (
            [0, 1] * 6,
            {"method": "leave-pair-out", "groups": [1, 1, 2] * 4},
            "each class must be found outside any two groups.*method='averaged'",
        ),
        (
            [0, 1] * 6,
            {"method": "pooled", "n_splits": 4, "groups": [1, 2, 3] * 4},
            "at least 4 groups: found 3",
        ),
    ],
)
def test_auc_refuses(y, options, message):
    X = np.random.default_rng(0).normal(size=(12, 2))
    with pytest.raises(ValueError, match=message):
        estimate_auc(RLS(), X, y, **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"method": "leave-query-out"}, "needs the query of each row"),
        ({"method": "twofold"}, "method must be one of"),
        ({"qid": [1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6], "method": "pooled"}, "the same as 'averaged'"),
        ({"qid": [1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6], "method": "leave-pair-out"}, "global ranking"),
        ({"qid": [1] * 12}, "qid names one query"),
        ({"qid": [1, 2] * 6, "n_splits": 3}, "n_splits=3 would be ignored"),
        ({"method": "averaged"}, "12 rows for 10 folds"),
    ],
)
def test_concordance_refuses(options, message):
    rng = np.random.default_rng(0)
    with pytest.raises(ValueError, match=message):
        estimate_concordance(RLS(), rng.normal(size=(12, 2)), rng.normal(size=12), **options)


def test_concordance_refuses_constant_and_unknown_scores():
    X = np.zeros((6, 1))
    with pytest.raises(ValueError, match="all y are equal"):
        estimate_concordance(RLS(), X, np.ones(6))
    with pytest.raises(ValueError, match="NaN"):
        estimate_concordance(RLS(), X, [1, 2, 3, np.nan, 5, 6])


def test_with_leave_pair_out_the_folds_are_those_of_the_pooled_number_beside_it():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(30, 3)), np.repeat([0, 1], 15)
    five = estimate_auc(RLS(), X, y, n_splits=5, random_state=0)
    pooled = estimate_auc(RLS(), X, y, method="pooled", n_splits=5, random_state=0)
    assert five.pooled == pytest.approx(pooled.value)
    assert "5-fold cross-validation with pooled scores gives" in " ".join(str(five).split())


def test_an_interval_from_a_handful_of_positive_rows_says_so():
    X, y = two_classes(m=30, n_positive=3, seed=0)
    found = estimate_auc(RankRLS(), X, y, random_state=0)
    assert "with 3 rows of a class it is a rough guide" in " ".join(str(found).split())
    X, y = two_classes(m=30, n_positive=10, seed=0)
    assert "rough guide" not in str(estimate_auc(RankRLS(), X, y, random_state=0))


@pytest.mark.parametrize("method", ["leave-pair-out", "averaged", "pooled"])
@pytest.mark.parametrize("groups", [None, np.repeat(np.arange(20), 2)])
def test_an_estimate_describes_itself_for_a_paper(method, groups):
    rng = np.random.default_rng(0)
    y = np.tile([0, 0, 1, 1], 10)
    X = rng.normal(size=(40, 2)) + 0.5 * y[:, None]
    found = estimate_auc(RLS(), X, y, method=method, groups=groups, n_splits=4, random_state=0)
    methods, results, references = found.describe().split("\n\n")
    flat = " ".join(methods.split())
    assert found.compared in flat and found.interval_method in flat and method in flat
    low, high = found.interval
    assert (
        f"AUC was {found.value:.3f} (95 % confidence interval {low:.3f} to {high:.3f}; {found.counted})"
        in " ".join(results.split())
    )
    for word, author in {
        "leave-pair-out": "Airola",
        "DeLong": "E. R. DeLong",
        "Obuchowski": "N. A. Obuchowski",
    }.items():
        assert (author in references) == (word in f"{method} {found.interval_method}")
    assert ("20 groups" in results) == (groups is not None)
