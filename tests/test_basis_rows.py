"""Rows given as ``basis`` are rows of the whole training set, wherever a part of the rows is held out."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.ensemble import StackingRegressor
from sklearn.linear_model import Ridge
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.model_selection import GridSearchCV, KFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import oracles
from preflearn import (
    RLS,
    RLSCV,
    BradleyTerry,
    OrderPreferenceRegressor,
    OrderPreferenceRegressorCV,
    RankRFM,
    RankRLS,
    RankRLSCV,
    RankSVM,
    RankSVMCV,
    TransductiveRankRLS,
)
from preflearn.errors import InputError
from preflearn.feature_selection import GreedySelector
from preflearn.kernels import NystromMap
from preflearn.metrics import concordance
from preflearn.model_selection import (
    ConformalRanker,
    HeldOut,
    RiskControlledRanker,
    cross_val_predict,
    estimate_auc,
    learning_curve,
    leave_pair_out,
    leave_preference_out,
    permutation_test,
)
from strategies import examples

pytestmark = pytest.mark.filterwarnings("ignore:The best alpha")

RANDOM = np.random.default_rng(7)
M = 48
X = RANDOM.normal(size=(M, 3))
QID = np.repeat(np.arange(6), 8)
Y = X[:, 0] + 0.5 * X[:, 1] ** 2 + 0.3 * RANDOM.normal(size=M)
# Not in ascending order, the last row among them, and in every query.
BASIS = RANDOM.permutation(np.append(np.arange(0, M, 5), M - 1))
GROUPS = RANDOM.permutation(M) // 2
FOLDS = [test for _, test in KFold(4, shuffle=True, random_state=0).split(X)]

RBF = {"kernel": "rbf", "gamma": 0.5, "basis": BASIS}
SVM = {"tol": 1e-10, **RBF}
RANKERS = {
    "RankRLS": RankRLS(0.1, **RBF),
    "RankRLS, unit": RankRLS(0.1, cost="unit", **RBF),
    "RankSVM": RankSVM(0.1, **SVM),
    "RankSVM, a pipeline": make_pipeline(StandardScaler(), RankSVM(0.1, **SVM)),
    "RankRLSCV": RankRLSCV([0.1, 10.0], **RBF),
    "RankSVMCV": RankSVMCV([0.1, 10.0], **SVM),
    "RankRFM": RankRFM([0.1], max_rounds=1, gamma=0.5, basis=BASIS, random_state=0),
    "TransductiveRankRLS": TransductiveRankRLS(0.1, **RBF),
}
REGRESSORS = {
    "RLS": RLS(0.1, **RBF),
    "RLSCV": RLSCV([0.1, 10.0], **RBF),
    "OrderPreferenceRegressor": OrderPreferenceRegressor(0.01, **RBF),
    "OrderPreferenceRegressorCV": OrderPreferenceRegressorCV([0.01, 0.1], gammas=[0.5], cv=2, basis=BASIS),
    "NystromMap, a pipeline": make_pipeline(NystromMap("rbf", gamma=0.5, basis=BASIS), Ridge()),
}
REFITTED = {**RANKERS, **REGRESSORS}


@pytest.mark.parametrize("name", REFITTED)
def test_the_hold_out_of_every_learner_is_training_without_the_fold(name):
    qid = QID if name in RANKERS else None
    folds = [QID == query for query in range(6)]
    tests = [np.flatnonzero(fold) for fold in folds]
    expected = oracles.naive_hold_out(REFITTED[name], X, Y, tests, qid=qid)
    found = cross_val_predict(REFITTED[name], X, Y, qid=qid, cv=folds)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def rows_with_copies(seed, dtype=float):
    """Nearly all different, a few equal."""
    rows = np.random.default_rng(seed).normal(size=(90, 3)).astype(dtype)
    rows[70:80] = rows[:10]
    return rows


@examples(40)
@given(
    st.integers(0, 999),
    st.integers(2, 80),
    st.sampled_from([{"kernel": "rbf"}, {"kernel": "laplacian"}, {"kernel": "linear"}, {"kernel": "poly"}]),
    st.sampled_from(["other rows", "every second", "all but one", "random"]),
    st.sampled_from([np.float64, np.float32]),
)
def test_a_map_without_rows_is_the_map_of_the_other_basis_vectors(seed, size, kernel, which, dtype):
    rng = np.random.default_rng(seed)
    rows = rows_with_copies(seed, dtype)
    basis = rng.permutation(90)[:size]
    left = {
        "other rows": np.setdiff1d(np.arange(90), basis),
        "every second": basis[::2] if size > 1 else basis[:0],
        "all but one": np.delete(basis, rng.integers(size)),
        "random": rng.permutation(90)[: rng.integers(90)],
    }[which]
    stays = basis[~np.isin(basis, left)]
    whole = NystromMap(basis=basis, **kernel).fit(rows)
    if not stays.size:
        with pytest.raises(ValueError, match=f"all {size} are among the rows"):
            whole.without(left)
        return
    part, features = whole.without(left, features=whole.transform(rows))
    anew = NystromMap(basis=stays, **kernel).fit(rows)
    np.testing.assert_array_equal(part.basis_indices_, stays)
    np.testing.assert_array_equal(part.basis_, rows[stays])
    assert part.rank_ == features.shape[1]
    assert part.rank_ == anew.rank_ or dtype is np.float32  # where rounding may decide
    assert features.dtype == anew.transform(rows).dtype
    np.testing.assert_array_equal(np.triu(part.factor_.C, 1), 0.0)
    expected = anew.transform(rows).astype(float)
    expected = expected @ expected.T
    near = {"rtol": 0, "atol": (2e-3 if dtype is np.float32 else 1e-6) * max(1.0, np.abs(expected).max())}
    for found in (features.astype(float), part.transform(rows).astype(float)):
        np.testing.assert_allclose(found @ found.T, expected, **near)
    np.testing.assert_allclose(features, part.transform(rows), **near)
    w = rng.normal(size=part.rank_).astype(dtype)
    beta = part.expand(w)
    np.testing.assert_allclose(part._read_kernel().matrix(rows, part.basis_) @ beta, features @ w, **near)
    assert whole.basis_indices_.shape == (size,)  # unchanged
    twice = whole.without(left[: left.size // 2]).without(left).transform(rows).astype(float)
    np.testing.assert_allclose(twice @ twice.T, expected, **near)


def test_a_map_of_a_precomputed_kernel_and_of_objects_without_rows():
    K = rbf_kernel(X, gamma=0.5)
    left = np.arange(20)
    expected = NystromMap("precomputed", basis=BASIS[BASIS >= 20]).fit(K).transform(K)
    part = NystromMap("precomputed", basis=BASIS).fit(K).without(left)
    np.testing.assert_allclose(part.transform(K), expected, atol=1e-9)
    words = [f"{'ab' * (k % 5)}c{'d' * (k // 5)}" for k in range(20)]
    kernel = lambda s, t: float(np.exp(-abs(len(s) - len(t)) - abs(s.count("a") - t.count("a"))))  # noqa: E731
    part = NystromMap(kernel, basis=[1, 5, 9, 12]).fit(words).without([5, 6])
    assert part.basis_ == [words[1], words[9], words[12]]
    expected = NystromMap(kernel, basis=[1, 9, 12]).fit(words).transform(words)
    np.testing.assert_allclose(part.transform(words), expected, atol=1e-12)


@pytest.mark.parametrize("rows", ["a", [0.5], [[1, 2]], np.ones(M, dtype=bool)])
def test_rows_to_leave_a_map_are_numbers(rows):
    with pytest.raises(ValueError, match="row numbers"):
        NystromMap(basis=BASIS).fit(X).without(rows)


def test_features_are_made_once_for_all_folds(monkeypatch):
    made = []
    real = NystromMap.fit_items
    monkeypatch.setattr(
        NystromMap, "fit_items", lambda self, *a: made.append(type(self).__name__) or real(self, *a)
    )
    for kernel in (RBF, {"kernel": "rbf", "n_basis": 9, "random_state": None}, {"kernel": "rbf"}):
        RankSVMCV([0.1, 10.0], cv=4, **kernel).fit(X, Y, qid=QID)
        leave_pair_out(RankSVM(0.1, **kernel), X, Y, pairs=[[0, 1], [2, 3]])
    assert len(made) == 6


@pytest.mark.parametrize("name", ["RankSVM", "RankSVM, a pipeline", "RankRLS", "OrderPreferenceRegressor"])
def test_rows_of_a_group_leave_with_their_basis_vectors(name):
    leaving = [np.flatnonzero(np.isin(GROUPS, GROUPS[test])) for test in FOLDS]
    assert all(left.size > test.size for left, test in zip(leaving, FOLDS, strict=True))
    expected = oracles.naive_hold_out(REFITTED[name], X, Y, FOLDS, leaving=leaving)
    found = HeldOut(REFITTED[name], X, Y, groups=GROUPS).predict(FOLDS)[0]
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_weights_of_rows_and_alphas_along_a_path():
    weights = RANDOM.uniform(0.5, 2.0, M)
    found = HeldOut(RANKERS["RankSVM"], X, Y, qid=QID, sample_weight=weights).predict(3, [0.1, 10.0])
    folds = [np.flatnonzero(np.isin(QID, pair)) for pair in ([0, 3], [1, 4], [2, 5])]
    for alpha, f in zip([0.1, 10.0], found, strict=True):
        model = RankSVM(alpha, **SVM)
        expected = oracles.naive_hold_out(model, X, Y, folds, qid=QID, sample_weight=weights)
        np.testing.assert_allclose(f, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["RankSVM", "RLS", "OrderPreferenceRegressor", "NystromMap, a pipeline"])
def test_pairs_of_basis_rows(name):
    pairs = np.array([[BASIS[0], BASIS[1]], [BASIS[2], 1], [1, 2], [M - 1, 3]])
    _, found = leave_pair_out(REFITTED[name], X, Y, pairs=pairs)
    for pair, f in zip(pairs, found, strict=True):
        rest = np.setdiff1d(np.arange(M), pair)
        expected = oracles.naive_predictions(REFITTED[name], X, Y, rest, pair)
        np.testing.assert_allclose(f, expected, rtol=1e-5, atol=1e-6)


def test_precomputed_kernels_and_several_outputs():
    K = rbf_kernel(X, gamma=0.5)
    both = np.stack([Y, -(Y**2)], axis=1)
    model = RankSVM(0.1, kernel="precomputed", basis=BASIS, tol=1e-10)
    expected = oracles.naive_hold_out(model, K, both, FOLDS)
    np.testing.assert_allclose(cross_val_predict(model, K, both, cv=FOLDS), expected, rtol=1e-5, atol=1e-6)
    inside = make_pipeline(model)
    np.testing.assert_allclose(cross_val_predict(inside, K, both, cv=FOLDS), expected, rtol=1e-5, atol=1e-6)


def test_a_search_scores_its_alphas_with_the_rows_that_were_given():
    folds = [np.flatnonzero(np.isin(QID, pair)) for pair in ([0, 3], [1, 4], [2, 5])]
    within = np.repeat([0, 1, 2], 16)[np.argsort(np.concatenate(folds))] * 6 + QID
    model = RankSVMCV([0.1, 10.0], cv=3, keep_predictions=True, **SVM).fit(X, Y, qid=QID)
    for alpha, score, f in zip(model.alphas_, model.cv_scores_, model.cv_predictions_, strict=True):
        expected = oracles.naive_hold_out(RankSVM(alpha, **SVM), X, Y, folds, qid=QID)
        np.testing.assert_allclose(f, expected, rtol=1e-5, atol=1e-6)
        assert score == pytest.approx(concordance(Y, expected, within))


def test_rows_without_labels_stay_in_the_count():
    y = Y.copy()
    y[::3] = np.nan  # basis rows among them
    known = np.flatnonzero(~np.isnan(y))
    model = OrderPreferenceRegressor(0.01, **RBF)
    tests = [known[:8], known[8:16]]
    expected = oracles.naive_hold_out(model, X, y, tests)
    found = cross_val_predict(model, X, y, cv=tests)
    np.testing.assert_allclose(found[known[:16]], expected[known[:16]], rtol=1e-6)


def test_preferences_leave_and_their_rows_stay():
    pairs = np.array([[i, j] if Y[i] > Y[j] else [j, i] for i, j in RANDOM.permutation(M).reshape(-1, 2)])
    model = RankSVM(0.1, **SVM)
    found = HeldOut.of_pairs(model, X, pairs).preferences(3)[0]
    for left in np.array_split(np.arange(len(pairs)), 3):
        f = model.fit_pairs(X, np.delete(pairs, left, axis=0)).predict(X)
        np.testing.assert_allclose(found[left], f[pairs[left, 0]] - f[pairs[left, 1]], atol=1e-5)
    posterior = BradleyTerry(0.1, **RBF)
    found = leave_preference_out(posterior, X, pairs)
    f = posterior.fit_pairs(X, pairs[1:]).predict(X)
    assert found[0] == pytest.approx(f[pairs[0, 0]] - f[pairs[0, 1]], rel=1e-5)


@pytest.mark.parametrize("by_rows", [ConformalRanker(RankSVM(0.1, **SVM), coverage=0.5),
                                     RiskControlledRanker(RankSVM(0.1, **SVM), risk=0.4)])  # fmt: skip
def test_what_calibrates_by_held_out_queries(by_rows):
    learner = by_rows.estimator
    found = by_rows.fit(X, Y, qid=QID).calibration_.scores
    expected = oracles.naive_hold_out(learner, X, Y, [np.flatnonzero(QID == q) for q in range(6)], qid=QID)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    inside = cross_val_predict(by_rows, X, Y, qid=QID, cv=[np.flatnonzero(QID == 1)])
    np.testing.assert_allclose(inside[QID == 1], expected[QID == 1], rtol=1e-5, atol=1e-6)


def test_estimates_permutations_and_learning_curves():
    few = np.r_[0:8, M - 8 : M]
    y = (Y[few] > np.median(Y[few])).astype(float)
    learner = RankSVM(0.1, kernel="rbf", gamma=0.5, basis=[0, 5, 10, 15], tol=1e-8)
    found = estimate_auc(learner, X[few], y)
    outcomes = oracles.leave_pair_out_outcomes(
        lambda train, test: oracles.naive_predictions(learner, X[few], y, train, test), y
    )
    assert found.value == pytest.approx(np.mean(list(outcomes.values())))
    folds = [np.flatnonzero(QID == query) for query in range(6)]
    tested = permutation_test(RANKERS["RankSVM"], X, Y, qid=QID, n_permutations=2, random_state=0)
    held_out = oracles.naive_hold_out(RANKERS["RankSVM"], X, Y, folds, qid=QID)
    assert tested.value == pytest.approx(concordance(Y, held_out, QID))
    curve = learning_curve(RANKERS["RankSVM"], X, Y, qid=QID, sizes=[2, 4], random_state=0)
    order = np.random.RandomState(0).permutation(6)
    for step, n in enumerate([2, 4]):
        for fold in (order[k::3] for k in range(3)):
            others = [query for query in order if query not in fold]
            train, test = np.isin(QID, others[:n]), np.isin(QID, fold)
            f = oracles.naive_predictions(
                RANKERS["RankSVM"], X, Y, np.flatnonzero(train), np.flatnonzero(test), qid=QID
            )
            for query in fold:
                expected = concordance(Y[QID == query], f[QID[test] == query])
                assert curve.values[step, query] == pytest.approx(expected)


def test_a_drawn_basis_is_drawn_once_from_all_rows():
    model = RankSVM(0.1, kernel="rbf", gamma=0.5, n_basis=9, random_state=1, tol=1e-10)
    drawn = clone(model).set_params(basis=clone(model).fit(X, Y).basis_indices_, n_basis=None)
    expected = oracles.naive_hold_out(drawn, X, Y, FOLDS)
    np.testing.assert_allclose(cross_val_predict(model, X, Y, cv=FOLDS), expected, rtol=1e-5, atol=1e-6)
    # The learners that are held out by algebra draw once, from all rows.
    model = RankRLS(0.1, kernel="rbf", gamma=0.5, n_basis=9, random_state=1)
    fixed = RankRLS(0.1, kernel="rbf", gamma=0.5, basis=model.fit(X, Y).basis_indices_)
    expected = oracles.naive_hold_out(fixed, X, Y, FOLDS)
    np.testing.assert_allclose(cross_val_predict(model, X, Y, cv=FOLDS), expected, rtol=1e-7)


@pytest.mark.parametrize("name", REFITTED)
def test_a_fold_with_the_whole_basis_is_refused_by_number(name):
    whole = [np.setdiff1d(np.arange(20), BASIS), np.union1d(BASIS, [1])]
    with pytest.raises(InputError, match=r"Fold 1 holds out every basis vector \(.*basis\)"):
        cross_val_predict(REFITTED[name], X, Y, cv=whole)


def test_searches_refuse_a_fold_with_the_whole_basis():
    folds = [np.arange(0, 24), np.arange(24, M)]
    basis = np.arange(24, 30)
    for search in (
        RankSVMCV([0.1], cv=folds, basis=basis),
        RankRLSCV([0.1], cv=folds, basis=basis),
        RankRFM([0.1], cv=folds, basis=basis),
        OrderPreferenceRegressorCV([0.1], cv=folds, gammas=[0.5], basis=basis),
    ):
        with pytest.raises(InputError, match="Fold 1 holds out every basis vector"):
            search.fit(X, Y)
    y = np.where(QID == 5, np.nan, Y)
    with pytest.raises(InputError, match="Fold 0 holds out every basis vector"):
        TransductiveRankRLS(basis=[0, 1]).fit(X, y, qid=QID)


@pytest.mark.parametrize("learner", [RLS(kernel="rbf", basis=[4, 9]), RankSVM(kernel="rbf", basis=[4, 9])])
def test_a_pair_that_is_the_whole_basis_is_refused(learner):
    with pytest.raises(InputError, match="[Pp]air .*holds out every basis vector"):
        leave_pair_out(learner, X, Y, pairs=[[1, 2], [9, 4]])


def test_row_numbers_that_are_not_rows_are_refused_in_every_hold_out():
    for model in (RankSVM(basis=[0, 99]), make_pipeline(RankSVM(basis=[0, 99])), RankRLS(basis=[0, 99])):
        with pytest.raises(ValueError, match="basis holds row 99: expected 0 to 47"):
            cross_val_predict(model, X, Y, cv=3)
    with pytest.raises(ValueError, match="n_basis=3 asks for another number"):
        cross_val_predict(RankSVM(basis=[0, 9], n_basis=3), X, Y, cv=3)


def test_learners_that_choose_their_own_rows_are_refused():
    search = GridSearchCV(RankSVM(basis=[0, 9]), {"alpha": [0.1, 1.0]})
    stack = StackingRegressor([("svm", RLS(basis=[0, 9]))])
    for model, name in (
        (search, "estimator__basis"),
        (stack, "svm__basis"),
        (make_pipeline(search), "basis"),
    ):
        with pytest.raises(InputError, match=f"may train its parts on some of the rows.*{name}"):
            cross_val_predict(model, X, Y, cv=3)
    candidates = GridSearchCV(RankSVM(), {"basis": [[0, 9], [1, 8]]})
    of_kernels = RankRLSCV([1.0], kernel="rbf", kernel_grid={"basis": [np.arange(9), np.arange(12)]})
    for model in (candidates, of_kernels):
        with pytest.raises(InputError, match="searches over row numbers"):
            cross_val_predict(model, X, Y, cv=3)
    drawn = GridSearchCV(RankRLS(kernel="rbf", n_basis=5), {"basis": ["uniform", "diverse"]}, cv=2)
    assert np.isfinite(cross_val_predict(drawn, X, Y, cv=2)).all()
    with pytest.raises(ValueError, match="without basis vectors"):
        GreedySelector(RankRLS(basis=[0, 9]), 2).fit(X, Y)


@pytest.mark.parametrize("seed", [0, 1])
def test_folds_that_are_shuffled_with_the_seed_of_the_basis_share_it(seed: int) -> None:
    """A basis drawn as the beginning of the permutation would leave as a whole with the first fold."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 3))
    y = X[:, 0] + rng.normal(size=400)
    folds = KFold(10, shuffle=True, random_state=seed)
    for n_basis in (20, 60):
        model = RankRLSCV([1.0], kernel="rbf", n_basis=n_basis, random_state=seed, cv=folds).fit(X, y)
        shares = [np.isin(model.basis_indices_, test).sum() for _, test in folds.split(X)]
        assert max(shares) - min(shares) <= 1
