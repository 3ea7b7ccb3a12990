"""Groups (patients, documents) are never on both sides of a split: every function, every search, all of AutoRanker."""

import json
import warnings

import numpy as np
import pytest
from sklearn.base import BaseEstimator, clone
from sklearn.model_selection import GridSearchCV, GroupKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import oracles
from preflearn import (
    RLS,
    RLSCV,
    AutoRanker,
    OrderPreferenceRegressor,
    OrderPreferenceRegressorCV,
    OrdinalRanker,
    RankRFM,
    RankRLS,
    RankRLSCV,
    RankSVMCV,
    TransductiveRankRLS,
)
from preflearn.auto import combination, fitting
from preflearn.auto.tasks import Task
from preflearn.errors import InputError
from preflearn.feature_selection import GreedySelector
from preflearn.metrics import concordance
from preflearn.model_selection import (
    ConformalRanker,
    HeldOut,
    RiskControlledRanker,
    cross_val_predict,
    estimate_auc,
    estimate_concordance,
    evaluate_scores,
    learning_curve,
    leave_pair_out,
    leave_pair_out_tally,
    permutation_test,
)
from preflearn.model_selection._folds import units_of
from preflearn.model_selection._intervals import mean_interval
from preflearn.multiple_kernels import MultipleKernelKroneckerRLS, MultipleKernelRankRLS
from preflearn.relations import KroneckerRLSCV

RANDOM = np.random.default_rng(0)
# Two queries of a group are in different places, and every group has two or three queries of four rows.
N_GROUPS = 14
QUERY_OF_GROUP = np.r_[np.arange(N_GROUPS), RANDOM.permutation(N_GROUPS), RANDOM.permutation(N_GROUPS)[:6]]
QID = np.repeat(np.arange(QUERY_OF_GROUP.size), 4)
GROUPS = QUERY_OF_GROUP[QID]
M = QID.size
# Every row names its group: whoever is trained and asked can be seen from the rows alone.
X = np.column_stack([GROUPS, RANDOM.normal(size=(M, 2))]).astype(float)
Y = RANDOM.permutation(M) * 1.0
CLASSES = (Y > np.median(Y)) * 1.0


class Spy(BaseEstimator):
    """Predicts something, and refuses rows of a group that it was trained on."""

    seen: list[int] = []

    def fit(self, X, y):
        self.known_, self.n_rows_ = set(X[:, 0]), len(X)
        return self

    def predict(self, X):
        asked = set(X[:, 0])
        Spy.seen.append(len(asked))
        if self.n_rows_ < M:  # all rows: an optimism, or the model that is kept
            assert not asked & self.known_
        return X[:, 1]


class SplittingSpy(Spy):
    """One that holds rows out itself, for which it needs their groups."""

    def fit(self, X, y, *, groups):
        np.testing.assert_array_equal(np.asarray(groups), X[:, 0])
        return super().fit(X, y)


class QuerySpy(Spy):
    def fit(self, X, y, *, qid=None, groups=None):
        assert groups is None or np.array_equal(groups, X[:, 0])
        return super().fit(X, y)


CALLS = {
    "folds": lambda spy: cross_val_predict(spy, X, Y, cv=4, groups=GROUPS),
    "rows": lambda spy: cross_val_predict(spy, X, Y, cv="leave-one-out", groups=GROUPS),
    "groups": lambda spy: cross_val_predict(spy, X, Y, cv="leave-group-out", groups=GROUPS),
    "queries": lambda spy: cross_val_predict(spy, X, Y, qid=QID, groups=GROUPS),
    "folds of queries": lambda spy: cross_val_predict(spy, X, Y, qid=QID, cv=3, groups=GROUPS),
    "GroupKFold": lambda spy: cross_val_predict(spy, X, Y, cv=GroupKFold(3), groups=GROUPS),
    "sets": lambda spy: cross_val_predict(spy, X, Y, cv=[np.arange(5), np.arange(9, 30)], groups=GROUPS),
    "HeldOut": lambda spy: HeldOut(spy, X, Y, groups=GROUPS).score("concordance"),
    "HeldOut of queries": lambda spy: HeldOut(spy, X, Y, qid=QID, groups=GROUPS).predict(),
    "other targets": lambda spy: HeldOut(spy, X, Y, groups=GROUPS).with_targets(-Y).predict(),
    "pairs": lambda spy: leave_pair_out(spy, X, Y, pairs=[[0, 50], [4, 5]], groups=GROUPS),
    "tally": lambda spy: leave_pair_out_tally(spy, X[:24], Y[:24], groups=GROUPS[:24]),
    "auc": lambda spy: estimate_auc(
        spy, X, CLASSES, method="averaged", n_splits=3, groups=GROUPS, random_state=0
    ),
    "auc, pooled": lambda spy: estimate_auc(
        spy, X, CLASSES, method="pooled", n_splits=3, groups=GROUPS, random_state=0
    ),
    "concordance": lambda spy: estimate_concordance(
        spy, X, Y, method="averaged", n_splits=3, groups=GROUPS, random_state=0
    ),
    "classes": lambda spy: OrdinalRanker(spy, cv=3).fit(X, CLASSES, groups=GROUPS),
    "permutation": lambda spy: permutation_test(
        spy, X, Y, n_permutations=3, groups=GROUPS, cv=3, random_state=0
    ),
}
OF_QUERIES = {
    "concordance": lambda spy: estimate_concordance(spy, X, Y, qid=QID, groups=GROUPS),
    "concordance, folds": lambda spy: estimate_concordance(
        spy, X, Y, qid=QID, method="averaged", n_splits=3, groups=GROUPS, random_state=0
    ),
    "learning curve": lambda spy: learning_curve(spy, X, Y, qid=QID, groups=GROUPS),
    "sets": lambda spy: ConformalRanker(spy, coverage=0.8).fit(X, Y, qid=QID, groups=GROUPS),
    "sets by folds": lambda spy: ConformalRanker(spy, coverage=0.8, cv=3).fit(X, Y, qid=QID, groups=GROUPS),
    "sets of one ranking": lambda spy: ConformalRanker(spy, coverage=0.8, cv=7).fit(X, Y, groups=GROUPS),
    "risk": lambda spy: RiskControlledRanker(spy, risk=0.4).fit(X, CLASSES, qid=QID, groups=GROUPS),
}


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("spy", [Spy, SplittingSpy])
def test_no_function_trains_on_a_group_that_it_asks_about(name, spy):
    Spy.seen.clear()
    CALLS[name](spy())
    assert Spy.seen


@pytest.mark.parametrize("name", OF_QUERIES)
def test_whole_queries_leave_with_the_groups_of_their_rows(name):
    Spy.seen.clear()
    OF_QUERIES[name](QuerySpy())
    assert Spy.seen


def test_the_spy_sees_rows_of_a_group_that_stay():
    with pytest.raises(AssertionError):
        cross_val_predict(Spy(), X, Y, cv=4)


@pytest.mark.parametrize(
    "search",
    [RankRLSCV([1.0, 10.0]), RLSCV([1.0, 10.0]), RankSVMCV([1.0]), RankRFM(max_rounds=1, n_basis=20)],
    ids=lambda search: type(search).__name__,
)
@pytest.mark.parametrize("qid", [None, QID])
def test_a_search_inside_of_a_fold_divides_no_group_either(search, qid, monkeypatch):
    from preflearn.learners import rankrfm
    from preflearn.model_selection import _folds, _held_out

    inner = []

    def read_folds(cv, rows, y, n_rows, *, qid=None, groups=None):
        found = _folds.read_folds(cv, rows, y, n_rows, qid=qid, groups=groups)
        inner.append(n_rows)
        assert groups is not None
        labels = np.asarray(getattr(groups, "codes", groups))
        for left in found.leaving:
            assert not np.isin(np.delete(labels, left), labels[left]).any()
        return found

    monkeypatch.setattr(_held_out, "read_folds", read_folds)
    monkeypatch.setattr(rankrfm, "read_folds", read_folds)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = cross_val_predict(search, X, Y, qid=qid, cv=[QID < 2, QID > 31], groups=GROUPS)
    assert np.isfinite(found).sum() == 16 and len(inner) == 2 and max(inner) < M


def test_searches_of_scikit_learn_and_pipelines_are_given_groups():
    for model in (
        GridSearchCV(Spy(), {}, cv=GroupKFold(2), scoring="r2"),
        make_pipeline(StandardScaler(with_mean=False, with_std=False), SplittingSpy()),
    ):
        assert np.isfinite(cross_val_predict(model, X, Y, cv=2, groups=GROUPS)).all()


def test_units_are_connected_components():
    rng = np.random.default_rng(1)
    for _ in range(20):
        n = int(rng.integers(4, 30))
        qid, groups = rng.integers(n, size=n), rng.integers(n, size=n)
        unit = np.arange(n)  # joined until nothing changes
        while True:
            before = unit.copy()
            for labels in (qid, groups):
                for label in labels:
                    unit[labels == label] = unit[labels == label].min()
            if np.array_equal(before, unit):
                break
        if np.unique(unit).size < 2:
            with pytest.raises(ValueError, match="shares a group"):
                units_of(qid, groups, n)
            continue
        found = units_of(qid, groups, n).codes
        np.testing.assert_array_equal(found[:, None] == found, unit[:, None] == unit)


# Learners that hold rows out while they learn ------------------------------------------------------------------------


def whole(labels):
    return [np.flatnonzero(labels == one) for one in np.unique(labels)]


@pytest.mark.parametrize("learner", [RLS(2.0), RankRLS(2.0)])
@pytest.mark.parametrize("cv", ["leave-query-out", "leave-group-out", 3])
def test_features_are_selected_by_errors_on_whole_groups(learner, cv):
    qid = None if isinstance(learner, RLS) else QID
    rows, y = RANDOM.normal(size=(M, 5)), Y / M
    model = GreedySelector(learner, 2, cv=cv).fit(rows, y, qid=qid, groups=GROUPS)
    folds = whole(GROUPS)
    if cv == 3:
        folds = model_folds(3, qid)
    for k in (1, 2):
        columns, f = model.selected_[:k], np.empty(M)
        for test in folds:
            rest = np.setdiff1d(np.arange(M), test)
            options = {} if qid is None else {"qid": qid[rest]}
            f[test] = learner.fit(rows[rest][:, columns], y[rest], **options).predict(rows[test][:, columns])
        lost = y - f
        if qid is not None:  # the squared error of pairs inside a query, by its Laplacian
            lost = np.concatenate([2 * (lost[q] - lost[q].mean()) for q in whole(qid)])
        assert model.cv_scores_[k - 1] == pytest.approx(-(lost @ lost) / M)


def model_folds(n, qid):
    from preflearn.model_selection._folds import read_partition

    found = read_partition(n, np.empty((M, 0)), None, M, qid=qid, groups=GROUPS)
    for test in found:
        assert not np.isin(np.delete(GROUPS, test), GROUPS[test]).any()
    assert sorted(np.concatenate(found)) == list(range(M)) and len(found) == n
    return found


def test_parts_of_groups_are_not_held_out_by_algebra():
    for model in (GreedySelector(RLS(), 1, cv="leave-one-out"), GreedySelector(RLS(), 1, cv=whole(QID))):
        with pytest.raises(ValueError, match="holds out a part of a group.*leave-group-out"):
            model.fit(X, Y, groups=GROUPS)
    judged = np.where(GROUPS < 9, Y, np.nan)
    with pytest.raises(ValueError, match="holds out a part of a group"):
        TransductiveRankRLS(cv=whole(QID)).fit(X, judged, qid=QID, groups=GROUPS)
    with pytest.raises(ValueError, match="All rows are in one group"):
        TransductiveRankRLS().fit(X, Y, qid=QID, groups=np.zeros(M))


def test_scores_are_found_by_whole_groups():
    judged = np.where(GROUPS < 9, Y, np.nan)
    found = TransductiveRankRLS().fit(X, judged, qid=QID, groups=GROUPS)
    by_hand = TransductiveRankRLS(cv=whole(GROUPS)).fit(X, judged, qid=QID)
    np.testing.assert_allclose(found.transduction_, by_hand.transduction_)
    by_query = TransductiveRankRLS().fit(X, judged, qid=QID)
    assert not np.allclose(found.transduction_, by_query.transduction_)


def test_scores_are_hidden_by_whole_groups_and_the_estimate_is_nested():
    judged, grid = np.where(GROUPS < 9, Y, np.nan), {"alphas": [0.1, 100.0], "fidelities": [0.1, 10.0]}
    known = np.flatnonzero(GROUPS < 9)
    hidden = whole(GROUPS[known])
    model = TransductiveRankRLS(cv=whole(GROUPS)).select(
        X, judged, qid=QID, groups=GROUPS, hide="leave-query-out", **grid
    )
    tables = []
    for alpha in grid["alphas"]:
        for fidelity in grid["fidelities"]:
            f = np.empty(known.size)
            for test in hidden:
                y = judged.copy()
                y[known[test]] = np.nan
                one = TransductiveRankRLS(alpha, fidelity=fidelity, cv=whole(GROUPS)).fit(X, y, qid=QID)
                f[test] = one.transduction_[known[test]]
            tables.append(f)

    def score(rows, f):
        return concordance(Y[known[rows]], f, QID[known[rows]])

    every = np.arange(known.size)
    assert model.best_score_ == pytest.approx(max(score(every, f) for f in tables))
    chosen = oracles.nested_choice(tables, hidden, score)
    assert model.estimate_.value == pytest.approx(score(every, chosen))
    assert model.estimate_.counted.startswith("9 groups, ") and "whole groups" in model.estimate_.compared
    assert not hasattr(model.fit(X, judged, qid=QID), "estimate_")


def test_regression_with_order_preferences_holds_out_whole_groups():
    y = np.where(np.arange(M) % 3 == 0, np.nan, Y / M)
    labelled = np.flatnonzero(~np.isnan(y))
    options = {"cv": "leave-group-out", "keep_predictions": True}
    model = OrderPreferenceRegressorCV([0.01, 0.1], gammas=[0.5], **options).fit(X, y, groups=GROUPS)
    for k, alpha in enumerate(model.alphas_):
        for group in np.unique(GROUPS[labelled]):
            test = labelled[GROUPS[labelled] == group]
            rest = np.setdiff1d(labelled, test)
            refit = OrderPreferenceRegressor(alpha, gamma=0.5).fit(X[rest], y[rest])
            np.testing.assert_allclose(model.cv_predictions_[k, test], refit.predict(X[test]), atol=1e-5)
    assert model.estimate_.counted == f"{np.unique(GROUPS[labelled]).size} groups, {labelled.size} rows"
    with pytest.raises(ValueError, match="pass groups="):
        OrderPreferenceRegressorCV(**options).fit(X, y)


def test_weights_of_kernels_are_learned_without_the_groups_that_are_asked():
    """The first view names the group."""
    from preflearn.model_selection import QueryKFold

    views = {"group": X[:, :1], "rest": X[:, 1:]}
    model = MultipleKernelRankRLS(dict.fromkeys(views, "linear"), [0.1, 1.0, 10.0], cv=3, weights="alignment")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(views, Y, qid=QID, groups=GROUPS)
        K = sum(
            weight * M * rows @ rows.T / np.trace(rows @ rows.T - (rows @ rows.T).mean(axis=0))
            for weight, rows in zip(model.weights_.values(), views.values(), strict=True)
        )
        alone = RankRLSCV([0.1, 1.0, 10.0], cv=3, kernel="precomputed").fit(K, Y, qid=QID, groups=GROUPS)
        np.testing.assert_allclose(model.cv_scores_, alone.cv_scores_)
        f, again = np.empty(M), clone(model)
        for _, test in QueryKFold(5).split(X, qid=QID):
            rest = ~np.isin(GROUPS, GROUPS[test])
            again.fit(
                {name: rows[rest] for name, rows in views.items()},
                Y[rest],
                qid=QID[rest],
                groups=GROUPS[rest],
            )
            f[test] = again.predict({name: rows[test] for name, rows in views.items()})
        found = model.estimate_
    assert found.value == pytest.approx(concordance(Y, f, QID))
    assert found.counted.startswith("14 groups, 34 queries") and "chosen without it as well" in found.compared
    equal = clone(model).set_params(weights="equal").fit(views, Y, groups=GROUPS)
    assert "that the other folds choose" in equal.estimate_.compared
    with pytest.raises(ValueError, match="cv lists row numbers"):
        _ = model.set_params(cv=whole(GROUPS)).fit(views, Y, qid=QID).estimate_


def test_several_kernels_of_a_relation_hold_out_groups_of_objects():
    rng = np.random.default_rng(0)
    U, V, labels, families = (
        rng.normal(size=(9, 3)),
        rng.normal(size=(6, 2)),
        rng.normal(size=(9, 6)),
        np.arange(9) // 3,
    )
    model = MultipleKernelKroneckerRLS(["linear"], ["linear"], [1.0, 10.0], hold_out="rows")
    model.fit([U], [V], labels, row_groups=families)
    scaled = [K @ K.T * len(K) / np.trace(K @ K.T - (K @ K.T).mean(axis=0)) for K in (U, V)]
    alone = KroneckerRLSCV(
        [1.0, 10.0], row_kernel="precomputed", column_kernel="precomputed", hold_out="rows"
    )
    alone.fit(*scaled, labels, row_groups=families)
    np.testing.assert_allclose(model.cv_scores_, alone.cv_scores_)
    assert model.estimate_.interval == pytest.approx(alone.estimate_.interval)
    learned = MultipleKernelKroneckerRLS(["linear", "rbf"], ["linear"], [1.0], weights="alignment")
    with pytest.raises(AttributeError, match="weights='equal'"):
        _ = learned.fit([U, U], [V], labels).estimate_


@pytest.mark.parametrize("model", [RankRLS(), RankRLSCV(), AutoRanker()])
def test_parts_of_data_do_not_know_all_groups(model):
    for chunks in ([(X, Y, QID)], "rows.csv"):
        with pytest.raises(ValueError, match="make the groups the queries"):
            model.fit_stream(chunks, groups=GROUPS)


def test_the_errors_of_a_learning_curve_count_groups():
    """Copies of a query, under names of their own, are no further queries."""
    from preflearn import RankRLS

    rows, y, n = RANDOM.normal(size=(M, 3)), Y / M, int(QID.max()) + 1
    once = learning_curve(RankRLS(), rows, y, qid=QID, sizes=[4, 8, 16])
    again = [np.tile(values, (4, *np.ones(np.ndim(values) - 1, dtype=int))) for values in (rows, y, QID)]
    copies = again[2] + np.repeat(np.arange(4) * n, M)
    data, options = (RankRLS(), *again[:2]), {"qid": copies, "sizes": [16, 32, 64]}
    grouped = learning_curve(*data, **options, groups=again[2])
    assert grouped.units.max() == n - 1 and once.units is None
    np.testing.assert_allclose(grouped.errors, once.errors, rtol=0.25)
    plain = learning_curve(*data, **options)
    assert (plain.errors < 0.7 * grouped.errors).all()
    width = [np.diff([one.extend().low, one.extend().high], axis=0)[0, 0] for one in (plain, grouped)]
    assert width[0] < 0.8 * width[1]


# Scores that are given -----------------------------------------------------------------------------------------------


def test_intervals_of_given_scores_count_groups_of_queries():
    scores = Y + M * RANDOM.normal(size=M) / 4
    found = evaluate_scores(
        Y, scores, QID, metrics=["concordance", "neg_mean_squared_pair_error"], groups=GROUPS
    )
    values = concordance(Y, scores, QID, per_query=True).values
    sums = np.bincount(QUERY_OF_GROUP, weights=values - values.mean())
    error = (N_GROUPS / (N_GROUPS - 1) * np.sum(sums**2)) ** 0.5 / values.size
    assert mean_interval(values)[0] ** 0.5 != pytest.approx(error)
    from scipy.stats import t as student

    half = student.ppf(0.975, N_GROUPS - 1) * error
    first = found.metrics[0]
    assert first.interval == pytest.approx((values.mean() - half, values.mean() + half))
    assert (
        "14 groups of queries" in first.interval_method and found.n_groups == found.to_dict()["groups"] == 14
    )
    plain = evaluate_scores(Y, scores, QID, metrics=["neg_mean_squared_pair_error"]).metrics[0]
    assert found.metrics[1].value == plain.value and found.metrics[1].interval != plain.interval


def test_intervals_of_one_ranking_count_groups():
    """Copies of a row say no more than the row."""
    scores = CLASSES + RANDOM.normal(size=M)
    once = evaluate_scores(CLASSES, scores, metrics=["auc"]).metrics[0]
    copies = [np.repeat(values, 6) for values in (CLASSES, scores, np.arange(M))]
    as_rows = evaluate_scores(*copies[:2], metrics=["auc"]).metrics[0]
    grouped = evaluate_scores(*copies[:2], metrics=["auc"], groups=copies[2]).metrics[0]
    width = [one.interval[1] - one.interval[0] for one in (once, as_rows, grouped)]
    assert width[1] < 0.5 * width[0] and 0.95 < width[2] / width[0] < 1.1
    assert f"{M} groups" in grouped.interval_method
    with pytest.raises(ValueError, match="one group label per row"):
        evaluate_scores(CLASSES, scores, groups=GROUPS[1:])


# AutoRanker ---------------------------------------------------------------------------------------------------------


def patients(seed=0, n_patients=40, n_queries=0):
    """Rows that name their patient, whose outcome is a coin toss: nothing can be known about a new patient."""
    rng = np.random.default_rng(seed)
    patient = np.repeat(np.arange(n_patients), rng.integers(3, 8, size=n_patients))
    profile = rng.normal(size=(n_patients, 5))
    rows = profile[patient] + 0.05 * rng.normal(size=(patient.size, 5))
    y = (rng.random(n_patients) < 0.5)[patient] * 1.0
    qid = None
    if n_queries:  # whole patients in each query
        qid = (np.arange(n_patients) % n_queries)[patient]
    order = rng.permutation(patient.size)
    return rows[order], y[order], patient[order], None if qid is None else qid[order]


class Watched(Task):
    """Checks the folds of all candidates, and the halves by which members of more rows are chosen."""

    n_seen = 0

    def __init__(self, *values, **options):
        super().__init__(*values, **options)
        owner = _owner_of(self)
        Watched.n_seen += 1
        self._check(self.folds.tests, owner)

    @staticmethod
    def _check(tests, owner):
        assert sum(map(len, tests)) == owner.size
        for test in tests:
            assert not np.isin(np.delete(owner, test), owner[test]).any()


def _owner_of(task):
    """The patient of each row: the first feature."""
    return task.views[("plain",)][:, 0]


@pytest.fixture
def watched(monkeypatch):
    Watched.n_seen = 0
    monkeypatch.setattr(fitting, "Task", Watched)
    halves = []
    from preflearn.auto import kernels, tasks, trees

    def halves_of(task, rows):
        found = tasks.halves_of(task, rows)
        Watched._check(found.tests, _owner_of(task)[rows])
        halves.append(len(rows))
        return found

    monkeypatch.setattr(kernels, "halves_of", halves_of)
    monkeypatch.setattr(trees, "halves_of", halves_of)
    return halves


def fit(rows, y, **options):
    names = {key: options.pop(key) for key in ("qid", "groups") if key in options}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return AutoRanker(random_state=0, **options).fit(rows, y, **names)


@pytest.mark.parametrize("n_queries", [0, 8])
@pytest.mark.parametrize("preset", [None, "fast"])
def test_no_split_of_the_candidates_divides_a_patient(watched, n_queries, preset):
    rows, y, patient, qid = patients(n_queries=n_queries)
    rows = np.column_stack([patient, rows])
    model = fit(rows, y, qid=qid, groups=patient, preset=preset)
    assert Watched.n_seen == (1 if preset == "fast" else 6)  # all rows, and without each fold
    for fold in range(5):
        assert not np.isin(patient[model.cv_folds_ == fold], patient[model.cv_folds_ != fold]).any()


def test_nor_does_any_split_of_a_sample_and_of_the_rows_beyond(watched, monkeypatch):
    monkeypatch.setattr(fitting, "_MOST_ROWS", 300)
    rng = np.random.default_rng(0)
    rows, y, patient, _ = patients(n_patients=160)
    rows, y = (
        np.column_stack([patient, rows]),
        np.sin(3 * rows[:, 1]) * rows[:, 2] + 0.1 * rng.normal(size=y.size),
    )
    extended = []
    without = fitting.MoreRows.without.__func__

    def watch(cls, places, features, X, targets, order, *rest):
        found = without(cls, places, features, X, targets, order, *rest)
        held = order[places]
        assert not np.isin(patient[held], patient[np.setdiff1d(np.arange(y.size), held)]).any()
        assert found.order.size == y.size - held.size
        extended.append(held)
        return found

    monkeypatch.setattr(fitting.MoreRows, "without", classmethod(watch))
    model = fit(rows, y, groups=patient)
    assert model.n_training_rows_ > 400 and len(extended) == 1 and watched
    (held,) = extended
    seen = np.flatnonzero(model.cv_folds_ >= 0)
    np.testing.assert_array_equal(seen, np.sort(held))
    for fold in np.unique(model.cv_folds_[seen]):
        assert not np.isin(
            patient[model.cv_folds_ == fold], patient[seen][model.cv_folds_[seen] != fold]
        ).any()


def test_a_fold_that_is_one_group_is_not_divided_for_the_weights(monkeypatch):
    monkeypatch.setattr(fitting, "_MOST_ROWS", 200)
    rng = np.random.default_rng(0)
    site = np.repeat(np.arange(4), 100)
    rows = rng.normal(size=(400, 3))
    model = fit(rows, rows[:, 0] + rng.normal(size=400), groups=site)
    assert model.n_training_rows_ == 200 and np.unique(model.cv_folds_).tolist() == [-1, 0, 1]


def test_every_member_is_fooled_by_rows_and_none_by_patients():
    rows, y, patient, _ = patients(n_patients=60)
    free, whole = fit(rows, y), fit(rows, y, groups=patient)
    assert free.best_score_ > 0.95
    scores = {one.name: one.score for one in whole.leaderboard_}
    assert 0.3 < whole.best_score_ < 0.7
    assert set(scores) == {one.name for one in free.leaderboard_}
    assert max(scores.values()) < 0.75, scores
    fooled = [one.score for one in free.leaderboard_ if not one.name.startswith(("linear", "best"))]
    assert min(fooled) > 0.95


def test_the_model_depends_on_neither_the_order_of_the_rows_nor_the_names_of_the_groups():
    rows, y, patient, qid = patients(n_queries=8)
    rows = np.round(rows)  # rows of different patients are equal
    order = np.random.default_rng(3).permutation(y.size)
    for queries in (None, qid):
        first = fit(rows, y, qid=queries, groups=patient, preset="fast")
        names = [f"patient {(7 * one) % 41}" for one in patient[order]]
        again = fit(
            rows[order],
            y[order],
            qid=None if queries is None else queries[order],
            groups=names,
            preset="fast",
        )
        assert first.best_score_ == again.best_score_
        np.testing.assert_array_equal(
            first.predict(rows, qid=queries if queries is not None else np.zeros(y.size)),
            again.predict(rows, qid=queries if queries is not None else np.zeros(y.size)),
        )


def test_groups_that_leave_nothing_are_refused_before_any_work(monkeypatch):
    rows, y, patient, qid = patients(n_queries=8)
    monkeypatch.setattr(combination, "choose_combination", None)
    with pytest.raises(ValueError, match="All rows are in one group"):
        AutoRanker().fit(rows, y, groups=np.zeros(y.size))
    with pytest.raises(ValueError, match="shares a group"):
        AutoRanker().fit(rows, y, qid=qid, groups=np.random.default_rng(0).integers(3, size=y.size))
    with pytest.raises(ValueError, match="groups must hold one group label per row"):
        AutoRanker().fit(rows, y, groups=patient[1:])
    with pytest.raises(InputError, match="prefit"):
        ConformalRanker(RankRLS().fit(X, Y, qid=QID), cv="prefit").fit(X, Y, qid=QID, groups=GROUPS)
    with pytest.raises(InputError, match="3 folds of whole queries and groups"):
        learning_curve(RankRLS(), X, Y, qid=QID, groups=GROUPS % 2)


def test_the_curve_and_sets_of_an_auto_ranker_keep_groups(watched):
    rows, y, patient, qid = patients(n_patients=48, n_queries=12)
    rows, y = np.column_stack([patient, rows]), y + np.random.default_rng(0).normal(size=y.size)
    model = fit(rows, y, qid=qid, groups=patient, preset="fast")
    before = Watched.n_seen
    model.learning_curve()
    assert Watched.n_seen > before
    sets = ConformalRanker(AutoRanker(random_state=0, preset="fast"), coverage=0.8)
    sets.fit(rows, y, qid=qid, groups=patient)
    np.testing.assert_array_equal(sets.calibration_.scores, sets.estimator_.cv_predictions_)


def test_coverage_is_measured_on_queries_of_other_groups():
    from preflearn.model_selection._calibration import Calibration, SetChoice

    rng = np.random.default_rng(0)
    codes = np.repeat(np.arange(40), 5)
    held_out = Calibration(rng.normal(size=200), rng.normal(size=200), codes)
    choice, unit = SetChoice(held_out, "best", 1, ["gap"]), rng.integers(8, size=40)
    expected = np.empty(40, dtype=bool)
    for query in range(40):
        others = unit != unit[query]
        needs = np.sort(choice.needs["gap"][others])
        cutoff = needs[int(np.ceil(0.8 * (needs.size + 1))) - 1]
        expected[query] = choice.needs["gap"][query] <= cutoff
    np.testing.assert_array_equal(choice.covered(0.8, unit), expected)


# `preflearn train --group` ------------------------------------------------------------------------------------------


@pytest.fixture
def visits(tmp_path):
    rows, y, patient, qid = patients(n_patients=40, n_queries=8)
    lines = ["patient,clinic,a,b,c,d,e,outcome"]
    lines += [
        f"p{one},c{query}," + ",".join(f"{value:.4f}" for value in row) + f",{int(label)}"
        for one, query, row, label in zip(patient, qid, rows, y, strict=True)
    ]
    path = tmp_path / "visits.csv"
    path.write_text("\n".join(lines) + "\n")
    return path, rows, y, patient, qid


@pytest.mark.parametrize(
    "learner", [["--set", "time_limit=5"], ["--learner", "rankrls"], ["--learner", "ranksvm"]]
)
@pytest.mark.parametrize("query", [["--no-query", "--drop", "clinic"], ["--query", "clinic"]])
def test_train_holds_out_whole_groups(visits, learner, query, call):
    path, _, y, *_ = visits
    status, out, err = call(
        "train",
        path,
        "--target",
        "outcome",
        "--group",
        "patient",
        *query,
        *learner,
        "-o",
        path.with_suffix(".preflearn"),
        "--json",
    )
    assert status == 0, err
    found = json.loads(out)
    assert found["counts"]["groups"] == 40 and found["counts"]["rows"] == y.size
    assert "40 groups (patient)" in found["summary"]
    assert 0.2 < found["estimate"]["value"] < 0.75
    assert "group" in found["estimate"]["held_out"]
    assert "patient" not in found["data"]["names"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--group", "nobody"], "--group asks for column 'nobody'"),
        (["--group", "outcome"], "--group outcome names a column that --target"),
        (["--group", "patient", "--drop", "patient"], "--group patient names a column"),
        (["--group", "item", "--no-query"], "--group asks for column 'item'"),
    ],
)
def test_a_group_that_cannot_be_is_refused(visits, options, message, call):
    status, _, err = call("train", visits[0], "--target", "outcome", *options)
    assert status == 2 and message in " ".join(err.split())


@pytest.mark.parametrize("search", [RankRLSCV, RankSVMCV, RLSCV])
def test_searches_choose_where_every_group_has_one_label(search) -> None:
    """Rows of one group cannot be compared with each other: several groups are held out together."""
    rng = np.random.default_rng(0)
    groups = np.repeat(np.arange(30), 4)
    X = rng.normal(size=(30, 3))[groups] + 0.1 * rng.normal(size=(120, 3))
    y = (X @ [1.0, -1.0, 0.5])[::4].round(1)[groups]
    model = search(alphas=[0.1, 10.0]).fit(X, y, groups=groups)
    assert np.isfinite(model.cv_scores_).all() and model.best_score_ > 0.9
