"""The permutation test of dependent rows: what is permuted, against every permutation tried, and on noise."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
from sklearn.linear_model import Ridge
from sklearn.model_selection import GroupKFold, LeaveOneGroupOut, StratifiedGroupKFold

import oracles
from preflearn import RankRLS, RankSVM
from preflearn.comparisons import encode_queries
from preflearn.errors import InputError
from preflearn.model_selection import permutation_test
from preflearn.model_selection.permutation import Exchange

PATIENT = np.repeat(np.arange(20), 5)


def visits(rng, patient=PATIENT):
    """Features with an effect of the patient as large as their noise."""
    n_patients = patient.max() + 1
    return rng.normal(size=(n_patients, 5))[patient] + rng.normal(size=(patient.shape[0], 5))


def statistic(model, X, y, folds, qid=None):
    """The mean over folds and queries of the concordance of predictions by a model trained without the fold."""
    f = oracles.naive_hold_out(model, X, y, folds, qid=qid)
    qid = np.zeros(len(y)) if qid is None else qid
    cells = [fold[qid[fold] == query] for fold in folds for query in np.unique(qid[fold])]
    return np.nanmean([oracles.concordance_of_query(y[rows], f[rows]) for rows in cells])


def share_significant(labels, n_sets=100, n=39, **options):
    found = 0
    for number in range(n_sets):
        rng = np.random.default_rng(number)
        X, y = visits(rng), labels(rng)
        result = permutation_test(
            RankRLS(), X, y, groups=PATIENT, n_permutations=n, random_state=number, **options
        )
        assert np.isfinite(result.permuted).all()
        found += result.pvalue <= 0.05
    return found / n_sets


NOISE = {
    "two classes": lambda rng: rng.permutation(np.arange(20) % 2)[PATIENT],
    "numbers": lambda rng: rng.normal(size=20)[PATIENT],
    "labels that vary": lambda rng: 3 * rng.normal(size=20)[PATIENT] + rng.normal(size=100),
    "labels of which some vary": lambda rng: np.where(
        PATIENT < 10, rng.normal(size=20)[PATIENT], 3 * rng.normal(size=20)[PATIENT] + rng.normal(size=100)
    ),
}


@pytest.mark.parametrize("name", NOISE)
@pytest.mark.parametrize("cv", [None, GroupKFold(5)], ids=["default", "GroupKFold"])
def test_noise_in_repeated_measurements_is_rarely_significant(name, cv):
    # More than 11 of 100 have a probability below 0.005 at 5 %. With single rows permuted it was 14 to 25 in folds of
    # several patients, and all of 100 where each fold is one patient with one label.
    assert share_significant(NOISE[name], cv=cv) <= 0.11


@pytest.mark.parametrize("name", ["two classes", "labels that vary"])
def test_a_signal_is_found(name):
    rng = np.random.default_rng(0)
    X, y = visits(rng), NOISE[name](rng)
    X[:, 0] += 1.5 * y
    found = permutation_test(RankRLS(), X, y, groups=PATIENT, n_permutations=199, random_state=0)
    assert found.pvalue == found.smallest_pvalue == 1 / 200


def test_every_permutation_of_groups_is_as_likely_as_the_others():
    rng = np.random.default_rng(2)
    patient = rng.permutation(np.repeat(np.arange(7), [1, 2, 3, 4, 2, 3, 5]))
    X, label = visits(rng, patient), np.array([1, 0, 1, 0, 0, 1, 0])
    X[:, 0] += label[patient]
    folds = [np.flatnonzero(np.isin(patient, some)) for some in ([0, 1, 2], [3, 4], [5, 6])]
    every = set(permutations(label))
    values = {p: statistic(RankRLS(), X, np.array(p)[patient], folds) for p in every}
    of_these = np.array([value for value in values.values() if np.isfinite(value)])
    found = permutation_test(
        RankRLS(), X, label[patient], groups=patient, cv=folds, n_permutations=4000, random_state=0
    )
    assert found.value == pytest.approx(values[tuple(label)])
    assert np.min(np.abs(found.permuted[:, None] - of_these), axis=1).max() < 1e-9
    exact = np.mean(of_these >= found.value - 1e-9)
    assert found.pvalue == pytest.approx(exact, abs=4 * np.sqrt(exact / 4000))
    for value in np.unique(of_these.round(9)):
        share = np.mean(np.abs(of_these - value) < 1e-8)
        assert np.mean(np.abs(found.permuted - value) < 1e-8) == pytest.approx(share, abs=0.04)
    assert found.smallest_pvalue == pytest.approx(1 / 35)
    assert "permutations of the labels of 7 groups" in str(found)
    assert "p cannot be below 0.029" in str(found)


@pytest.mark.parametrize(
    "model", [RankRLS(), RankSVM(0.1, tol=1e-10), Ridge()], ids=["RankRLS", "RankSVM", "Ridge"]
)
def test_the_statistic_of_groups_in_default_folds(model):
    rng = np.random.default_rng(3)
    patient = np.repeat(np.arange(8), 3)
    X, y = visits(rng, patient), rng.normal(size=8)[patient]
    found = permutation_test(model, X, y, groups=patient, n_permutations=3, random_state=0)
    first, second = Exchange.of(y, encode_queries(None, 24), encode_queries(patient, 24)).default_cv(
        None, patient
    )
    assert sorted([*np.unique(patient[first]), *np.unique(patient[second])]) == list(range(8))
    assert found.value == pytest.approx(statistic(model, X, y, [first, second]))


def drawn(y, qid, groups):
    n = y.shape[0]
    exchange = Exchange.of(y, encode_queries(qid, n), None if groups is None else encode_queries(groups, n))
    return exchange.draw(300, np.random.default_rng(0))[:, 1:], exchange


def test_labels_stay_in_their_groups_and_queries():
    rng = np.random.default_rng(4)
    query, group = rng.integers(0, 3, 60), rng.integers(0, 4, 60)
    y = rng.normal(size=60)
    Y, exchange = drawn(y, query, group)
    for q in range(3):
        for g in range(4):
            cell = (query == q) & (group == g)
            np.testing.assert_array_equal(np.sort(Y[cell], axis=0), np.sort(y[cell])[:, None] + np.zeros(300))
    assert ((Y != y[:, None]).any(axis=1) == (np.bincount(query * 4 + group)[query * 4 + group] > 1)).all()
    assert exchange.words == "labels inside 4 groups"


def test_groups_keep_one_label_and_stay_in_their_query():
    rng = np.random.default_rng(5)
    sizes = rng.integers(1, 5, 12)
    group = rng.permutation(np.repeat(np.arange(12), sizes))
    label = rng.permutation(np.arange(12.0))
    query = group % 2
    Y, exchange = drawn(label[group], query, group)
    for g in range(12):
        assert (Y[group == g] == Y[group == g][0]).all()
    first = np.array([np.flatnonzero(group == g)[0] for g in range(12)])
    for q in range(2):
        mine = np.arange(12) % 2 == q
        assert (np.sort(Y[first[mine]], axis=0) == np.sort(label[mine])[:, None]).all()
        # Whatever their sizes, every group gets every label of its query.
        assert all(np.unique(Y[row]).size == 6 for row in first[mine])
    assert exchange.words == "the labels of 12 groups"


def test_groups_without_variation_stay_as_they_are():
    group = np.repeat(np.arange(5), 6)
    y = np.where(group < 2, np.random.default_rng(6).normal(size=30), group)
    Y, exchange = drawn(y, None, group)
    assert (Y[group >= 2] == y[group >= 2, None]).all()
    assert exchange.words == "labels inside 2 of 5 groups"


def test_groups_inside_queries_are_compared_inside_them():
    rng = np.random.default_rng(8)
    hospital, patient = np.repeat(np.arange(4), 12), np.repeat(np.arange(16), 3)
    X, y = visits(rng, patient), rng.permutation(np.arange(16) % 2)[patient]
    found = permutation_test(RankRLS(), X, y, qid=hospital, groups=patient, n_permutations=9, random_state=0)
    folds = [np.flatnonzero(hospital == one) for one in range(4)]
    assert found.value == pytest.approx(statistic(RankRLS(), X, y, folds, hospital))


def test_an_undefined_statistic_is_refused():
    X, y = visits(np.random.default_rng(0)), (PATIENT % 2).astype(float)
    for cv in ("leave-group-out", LeaveOneGroupOut(), [np.flatnonzero(y == 0), np.flatnonzero(y == 1)]):
        with pytest.raises(
            InputError, match="statistic is not defined.*Pass cv=... with fewer, larger folds"
        ):
            permutation_test(RankRLS(), X, y, groups=PATIENT, cv=cv)
    with pytest.raises(InputError, match="not defined"):
        permutation_test(RankRLS(), X, np.ones(100))


def test_permutations_without_a_pair_are_drawn_again():
    rng = np.random.default_rng(9)
    patient = np.repeat(np.arange(24), 3)
    label = np.arange(24) == 5
    X, y = visits(rng, patient), label[patient].astype(float)
    folds = [np.flatnonzero(np.isin(patient, some)) for some in (range(4, 8), range(12, 20))]
    found = permutation_test(RankRLS(), X, y, groups=patient, cv=folds, n_permutations=99, random_state=0)
    assert np.isfinite(found.permuted).all()
    # Only the statistics with the one patient in a fold are compared.
    allowed = []
    for one in (*range(4, 8), *range(12, 20)):
        allowed.append(statistic(RankRLS(), X, (patient == one).astype(float), folds))
    assert np.min(np.abs(found.permuted[:, None] - np.array(allowed)), axis=1).max() < 1e-9
    # A learner of pairs cannot be trained on one label either.
    y = np.isin(patient, [5, 14, 15]).astype(float)
    found = permutation_test(RankSVM(), X, y, groups=patient, cv=folds, n_permutations=50, random_state=0)
    assert np.isfinite(found.permuted).all()


def test_too_few_permutations_are_refused():
    rng = np.random.default_rng(0)
    patient = np.repeat(np.arange(6), 5)
    X = visits(rng, patient)
    with pytest.raises(InputError, match=r"labels of 6 groups differ: the p-value could not be below 0.1,"):
        permutation_test(RankRLS(), X, (patient % 2).astype(float), groups=patient)
    y = (patient % 2).astype(float)
    y[0] = 1.0  # inside one patient of five visits
    with pytest.raises(InputError, match="labels inside 1 of 6 groups differ.*below 0.2,"):
        permutation_test(RankRLS(), X, y, groups=patient)
    with pytest.raises(InputError, match="Too few permutations of rows inside queries"):
        permutation_test(RankRLS(), X[:4], [0.0, 1.0, 0.0, 1.0], cv=2)


def test_folds_that_overlap_are_refused():
    X = visits(np.random.default_rng(0))
    for folds in ([np.arange(30), np.arange(29, 60)], [np.arange(60, 90), np.arange(30), np.arange(20, 50)]):
        with pytest.raises(ValueError, match="overlap"):
            permutation_test(RankRLS(), X, X[:, 0], cv=folds)


def test_groups_in_several_queries():
    rng = np.random.default_rng(1)
    X, query = visits(rng), np.arange(100) % 4
    with pytest.raises(InputError, match="some groups have rows in several queries"):
        permutation_test(RankRLS(), X, PATIENT % 2, qid=query, groups=PATIENT)
    y = rng.normal(size=100)
    cells = np.unique(np.stack([PATIENT, query], axis=1), axis=0, return_counts=True)[1]
    assert cells.max() == 2
    folds = [np.flatnonzero(PATIENT // 5 == part) for part in range(4)]
    found = permutation_test(
        RankRLS(), X, y, qid=query, groups=PATIENT, cv=folds, n_permutations=9, random_state=0
    )
    assert found.value == pytest.approx(statistic(RankRLS(), X, y, folds, query))


@pytest.mark.parametrize("cv", [GroupKFold(5), LeaveOneGroupOut(), StratifiedGroupKFold(3)])
def test_splitters_of_groups_need_groups(cv):
    X, y = visits(np.random.default_rng(0)), PATIENT % 2
    with pytest.raises(InputError, match="folds of whole groups.*Pass groups=..."):
        permutation_test(RankRLS(), X, y, cv=cv)
