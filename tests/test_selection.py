"""One grammar of cv, scoring and alphas, understood alike by everything that takes them; and the held-out object."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import get_scorer as sklearn_scorer
from sklearn.metrics import make_scorer, mean_absolute_error, r2_score, roc_auc_score
from sklearn.model_selection import KFold, RepeatedKFold

import oracles
from contracts import selection as contract
from contracts.selection import ALPHAS, FOLDS, QID, Case, M, X, Y
from preflearn import (
    RLS,
    RLSCV,
    OrderPreferenceRegressorCV,
    RankRLS,
    RankRLSCV,
    RankSVM,
    RankSVMCV,
    TransductiveRankRLS,
    metrics,
)
from preflearn.metrics import concordance
from preflearn.model_selection import (
    HeldOut,
    cross_val_predict,
    leave_pair_out,
    leave_pair_out_tally,
    leave_preference_out,
    permutation_test,
)
from preflearn.model_selection._choice import choose, read_grid
from preflearn.squared.holdout.dual import DualHoldOut
from preflearn.squared.holdout.feature import FeatureHoldOut
from strategies import examples

pytestmark = pytest.mark.filterwarnings("ignore:The best alpha")


def search(kind, **options):
    def select(cv, scoring=None, alphas=ALPHAS):
        return kind(alphas, cv=cv, scoring=scoring, **options).fit(X, Y, qid=QID).cv_scores_

    return select


def held_out(estimator):
    def select(cv, scoring=None, alphas=ALPHAS):
        return HeldOut(estimator, X, Y, qid=QID).score(scoring, cv, alphas)

    return select


def predict_and_score(estimator):
    """cross_val_predict takes cv alone: the measure is that of the contract."""

    def select(cv, scoring=None, alphas=ALPHAS):
        cv = list(cv) if hasattr(cv, "__next__") else cv
        found = [
            cross_val_predict(clone(estimator).set_params(alpha=alpha), X, Y, qid=QID, cv=cv)
            for alpha in alphas
        ]
        return np.array([concordance(Y, f, QID) for f in found])

    return select


def transduction(cv, scoring=None, alphas=ALPHAS):
    """The rows of two queries lack their scores; whole queries of the others are hidden in turn."""
    options = {"alphas": alphas, "fidelities": [1e6], "hide": cv, "scoring": scoring}
    return TransductiveRankRLS().select(X, Y, qid=QID, **options).cv_scores_[:, 0]


def order_preferences(cv, scoring=None, alphas=ALPHAS):
    return (
        OrderPreferenceRegressorCV(alphas, kernel="linear", cv=cv, scoring=scoring).fit(X, Y).cv_scores_[:, 0]
    )


RANKERS = [
    Case("RankRLSCV", search(RankRLSCV), RankRLS, pooled=False),
    Case("RankRLSCV, RBF", search(RankRLSCV, kernel="rbf"), lambda a: RankRLS(a, kernel="rbf"), pooled=False),
    Case("RankSVMCV", search(RankSVMCV, tol=1e-9), lambda a: RankSVM(a, tol=1e-9), pooled=False),
    Case("HeldOut of RankRLS", held_out(RankRLS()), RankRLS, pooled=False),
    Case("HeldOut of RankSVM", held_out(RankSVM(tol=1e-9)), lambda a: RankSVM(a, tol=1e-9), pooled=False),
]
REGRESSORS = [
    Case("RLSCV", search(RLSCV), RLS, pooled=True),
    Case("HeldOut of RLS", held_out(RLS()), RLS, pooled=True),
    Case("HeldOut of Ridge", held_out(Ridge()), Ridge, pooled=True),
]
HIDING = Case("TransductiveRankRLS.select", transduction, None, pooled=False)
ORDERING = Case("OrderPreferenceRegressorCV", order_preferences, None, pooled=True, with_queries=False)
PREDICTING = Case("cross_val_predict", predict_and_score(RankRLS()), RankRLS, pooled=False)


# A path of warm starts and a fresh training stop at different points within tol; the algebra differs by rounding.
ACCURACY = {RankRLS: 1e-7, RLS: 1e-7, Ridge: 1e-7, RankSVM: 1e-3}


def ids(cases):
    return [case.name for case in cases]


def measure_of(name):
    return contract.SAME_MEASURES[name][0]


# ------------------------------------------------------------------------------------------------------------ cv


@pytest.mark.parametrize(
    "case", [*RANKERS, *REGRESSORS, PREDICTING], ids=ids([*RANKERS, *REGRESSORS, PREDICTING])
)
def test_every_way_to_leave_queries_out_is_refitting_without_them(case):
    expected = [concordance(Y, case.held_out(FOLDS, alpha), QID) for alpha in ALPHAS]
    for name, cv in contract.LEAVE_QUERY_OUT.items():
        found = case.scores(cv=contract.cv_of(name, cv), scoring="concordance")
        np.testing.assert_allclose(found, expected, atol=1e-9, err_msg=name)


def test_hiding_queries_understands_every_way():
    expected = HIDING.scores(cv="leave-query-out", scoring="concordance")
    for name, cv in contract.LEAVE_QUERY_OUT.items():
        found = HIDING.scores(cv=contract.cv_of(name, cv), scoring="concordance")
        np.testing.assert_allclose(found, expected, err_msg=name)
    # At a large fidelity the transduced scores are those of RankRLS without the hidden queries.
    refitted = [concordance(Y, RANKERS[0].held_out(FOLDS, alpha), QID) for alpha in ALPHAS]
    np.testing.assert_allclose(expected, refitted, atol=1e-9)


@pytest.mark.parametrize("case", REGRESSORS, ids=ids(REGRESSORS))
def test_every_way_to_leave_rows_out(case):
    expected = [r2_score(Y, case.held_out([[row] for row in range(M)], alpha)) for alpha in ALPHAS]
    for name, cv in contract.LEAVE_ONE_OUT.items():
        np.testing.assert_allclose(case.scores(cv=cv), expected, atol=1e-9, err_msg=name)


def test_folds_of_rows_with_order_preferences():
    for ways in (contract.THREE_FOLDS, contract.LEAVE_ONE_OUT):
        found = [ORDERING.scores(cv=cv, scoring="neg_mean_absolute_error") for cv in ways.values()]
        for other in found[1:]:
            np.testing.assert_allclose(other, found[0])
    for name in ("leave-query-out", "leave-group-out", "leave-pair-out"):
        with pytest.raises(ValueError, match=f"cv='{name}' needs"):
            ORDERING.scores(cv=name)


@pytest.mark.parametrize("case", [*RANKERS, *REGRESSORS, PREDICTING, HIDING, ORDERING],
                         ids=ids([*RANKERS, *REGRESSORS, PREDICTING, HIDING, ORDERING]))  # fmt: skip
@pytest.mark.parametrize("name", contract.REFUSED)
def test_what_cannot_be_meant_is_refused(case, name):
    cv, message = contract.REFUSED[name]
    if case is HIDING and name in ("an unknown name",):
        message = "hide holds out whole queries"
    with pytest.raises(ValueError, match=message):
        case.scores(cv=cv, scoring="neg_mean_absolute_error")


def test_the_permutation_test_reads_the_same_folds():
    options = {"qid": QID, "n_permutations": 3, "random_state": 0}
    expected = permutation_test(RankRLS(), X, Y, cv="leave-query-out", **options)
    for name, cv in contract.LEAVE_QUERY_OUT.items():
        found = permutation_test(RankRLS(), X, Y, cv=contract.cv_of(name, cv), **options)
        np.testing.assert_allclose(found.permuted, expected.permuted, err_msg=name)
    for cv, message in contract.REFUSED.values():
        with pytest.raises(ValueError, match=message):
            permutation_test(RankRLS(), X, Y, cv=cv, **options)


def test_overlapping_folds_are_scored_fold_by_fold():
    cv = RepeatedKFold(n_splits=3, n_repeats=2, random_state=0)
    y = X[:, 0] + np.random.default_rng(0).normal(size=M)
    for kind, learner in ((RankRLSCV, RankRLS), (RankSVMCV, RankSVM)):
        model = kind(ALPHAS, cv=cv).fit(X, y)
        for k, alpha in enumerate(ALPHAS):
            shares = []
            for train, test in cv.split(X):
                f = learner(alpha).fit(X[train], y[train]).predict(X[test])
                shares.append(concordance(y[test], f))
            assert model.cv_scores_[k] == pytest.approx(np.mean(shares))


@pytest.mark.parametrize("kind", [RankRLSCV, RankSVMCV, RLSCV])
def test_groups_leave_whole(kind):
    groups = np.arange(M) // 3
    model = kind(ALPHAS, cv=KFold(4), scoring="neg_mean_squared_error", keep_predictions=True)
    model.fit(X, Y, qid=QID, groups=groups)
    plain = {RankRLSCV: RankRLS, RankSVMCV: RankSVM, RLSCV: RLS}[kind](ALPHAS[0])
    for _, test in KFold(4).split(X):
        rest = np.flatnonzero(~np.isin(groups, groups[test]))
        labels = {} if kind is RLSCV else {"qid": QID[rest]}
        f = clone(plain).fit(X[rest], Y[rest], **labels).predict(X[test])
        np.testing.assert_allclose(model.cv_predictions_[0, test], f, atol=ACCURACY[type(plain)])


# ------------------------------------------------------------------------------------------------------- scoring


@pytest.mark.parametrize("case", [*RANKERS, HIDING], ids=ids([*RANKERS, HIDING]))
@pytest.mark.parametrize("name", contract.SAME_MEASURES)
def test_one_measure_by_all_its_names(case, name):
    first, *others = contract.SAME_MEASURES[name]
    expected = case.scores(cv="leave-query-out", scoring=first)
    for scoring in others:
        found = case.scores(cv="leave-query-out", scoring=scoring)
        np.testing.assert_allclose(found, expected, err_msg=repr(scoring))
    if case.model is not None:
        scorer = metrics.get_scorer(first)
        labels = (QID,) if scorer.compares_rows else ()
        refitted = [scorer.measure(Y, case.held_out(FOLDS, alpha), *labels) for alpha in ALPHAS]
        np.testing.assert_allclose(expected, refitted, atol=1e-5)


@pytest.mark.parametrize("case", [*REGRESSORS, ORDERING], ids=ids([*REGRESSORS, ORDERING]))
@pytest.mark.parametrize("name", ["concordance", "absolute error", "squared error", "r2", "kendall"])
def test_regressions_by_all_names(case, name):
    first, *others = contract.SAME_MEASURES[name]
    expected = case.scores(cv=contract.THREE_FOLDS["splitter"], scoring=first)
    for scoring in others:
        found = case.scores(cv=contract.THREE_FOLDS["splitter"], scoring=scoring)
        np.testing.assert_allclose(found, expected, err_msg=repr(scoring))


@pytest.mark.parametrize("case", [*RANKERS, *REGRESSORS, HIDING, ORDERING],
                         ids=ids([*RANKERS, *REGRESSORS, HIDING, ORDERING]))  # fmt: skip
def test_unknown_measures_are_refused(case):
    for scoring in ("accuracy", "ndcg@0", "concordance@3", 3.0):
        with pytest.raises(ValueError, match="scoring|k must be"):
            case.scores(cv=[FOLDS[0]], scoring=scoring)


def test_a_scorer_of_scikit_learn_sees_what_may_be_compared():
    """Of a regression all predictions together; of a ranking those of each query, averaged."""
    scorer = make_scorer(mean_absolute_error, greater_is_better=False)
    found = REGRESSORS[0].scores(cv=contract.THREE_FOLDS["arrays"], scoring=scorer)
    model = RLSCV(ALPHAS, cv=contract.THREE_FOLDS["arrays"], scoring=scorer).fit(X, Y)
    for k, alpha in enumerate(ALPHAS):
        f = REGRESSORS[0].held_out(contract.THREE_FOLDS["arrays"], alpha)
        by_query = [mean_absolute_error(Y[QID == q], f[QID == q]) for q in np.unique(QID)]
        assert found[k] == pytest.approx(-np.mean(by_query))  # with qid, the sets are the queries
        assert model.cv_scores_[k] == pytest.approx(-mean_absolute_error(Y, f))
    by_ranking = RANKERS[0].scores(cv="leave-query-out", scoring=scorer)
    f = RANKERS[0].held_out(FOLDS, ALPHAS[0])
    expected = -np.mean([mean_absolute_error(Y[fold], f[fold]) for fold in FOLDS])
    assert by_ranking[0] == pytest.approx(expected)


def test_a_scorer_of_decision_values_and_one_that_asks_for_queries():
    y = (Y > np.median(Y)).astype(float)
    found = HeldOut(RLS(), X, y).score(sklearn_scorer("roc_auc"), 3, ALPHAS)
    for k, alpha in enumerate(ALPHAS):
        assert found[k] == pytest.approx(roc_auc_score(y, cross_val_predict(RLS(alpha), X, y, cv=3)))
    import sklearn

    with sklearn.config_context(enable_metadata_routing=True):
        scorer = make_scorer(concordance).set_score_request(qid=True)
        found = RANKERS[0].scores(cv="leave-query-out", scoring=scorer)
    np.testing.assert_allclose(found, RANKERS[0].scores(cv="leave-query-out"))


# -------------------------------------------------------------------------------------------- alphas and choice


@pytest.mark.parametrize("case", [*RANKERS, *REGRESSORS, HIDING, ORDERING],
                         ids=ids([*RANKERS, *REGRESSORS, HIDING, ORDERING]))  # fmt: skip
def test_alphas_are_read_alike(case):
    options = {"cv": 2, "scoring": "neg_mean_absolute_error"}
    assert case.scores(alphas=(1.0, 10.0), **options).shape == (2,)
    assert case.scores(alphas=np.array([3.0], dtype=np.float32), **options).shape == (1,)
    assert case.scores(alphas="auto", **options).shape[0] >= 9
    for alphas in ([], [-1.0], [np.nan], "grid", [[1.0, 2.0]], ["one"]):
        with pytest.raises(ValueError, match="alphas must be 'auto' or a"):
            case.scores(alphas=alphas, **options)


def test_ties_go_to_the_stronger_regularisation_in_every_axis():
    scores = np.array([[0.5, 0.9], [0.9, 0.9 - 1e-14], [0.1, 0.9]])
    assert choose(scores, np.array([1.0, 10.0, 5.0]), np.array([1.0, 2.0])) == (1, 1)
    assert choose(np.array([np.nan, 0.2]), np.array([9.0, 1.0])) == (1,)
    with pytest.raises(ValueError, match="No alpha could be scored"):
        choose(np.full(3, np.nan), np.arange(3.0))
    with pytest.raises(ValueError, match="gammas must be"):
        read_grid("many", np.ones(1), name="gammas")


@pytest.mark.parametrize(
    "fit",
    [
        lambda alphas: RankRLSCV(alphas).fit(X, Y, qid=QID),
        lambda alphas: RankSVMCV(alphas, cv=3).fit(X, Y, qid=QID),
        lambda alphas: RLSCV(alphas).fit(X, Y),
        lambda alphas: OrderPreferenceRegressorCV(alphas, gammas=[0.1]).fit(X, Y),
        lambda alphas: TransductiveRankRLS().select(X, Y, qid=QID, alphas=alphas),
        lambda alphas: RankRLSCV(alphas).fit_pairs(X, PAIRS),
    ],
    ids=["RankRLSCV", "RankSVMCV", "RLSCV", "OrderPreferenceRegressorCV", "TransductiveRankRLS", "fit_pairs"],
)
def test_the_edge_of_the_grid_warns_and_the_middle_does_not(fit):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model = fit([1e-8, 1.0, 1e8])
    edge = model.alpha_ != 1.0
    scores = np.asarray(model.cv_scores_).reshape(3, -1)
    at_edge = [w for w in caught if "of the grid" in str(w.message)]
    end = "smallest of the grid: try smaller" if model.alpha_ < 1.0 else "largest of the grid: try larger"
    assert all(end in str(w.message) for w in at_edge)
    assert len(at_edge) == int(edge and np.ptp(scores) > 0)
    assert all(w.filename == __file__ for w in at_edge)


# ------------------------------------------------------------------------------- attributes and kept predictions


@pytest.mark.parametrize("kind", [RankRLSCV, RankSVMCV, RLSCV, OrderPreferenceRegressorCV])
def test_every_search_has_the_same_attributes(kind):
    options = {"qid": QID} if kind is not OrderPreferenceRegressorCV else {}
    folds = FOLDS
    model = kind(ALPHAS, cv=folds, scoring="neg_mean_absolute_error", keep_predictions=True)
    if kind is OrderPreferenceRegressorCV:
        model.set_params(gammas=[0.3])
    model.fit(X, Y, **options)
    assert model.alpha_ in ALPHAS
    np.testing.assert_array_equal(model.alphas_, ALPHAS)
    assert model.best_score_ == np.max(model.cv_scores_)
    assert model.cv_predictions_.shape == (3, M)
    scores = [-mean_absolute_error(Y, f) for f in model.cv_predictions_]
    np.testing.assert_allclose(np.reshape(model.cv_scores_, 3), scores, rtol=1e-9)
    assert not hasattr(
        clone(model).set_params(keep_predictions=False).fit(X, Y, **options), "cv_predictions_"
    )


def test_kept_predictions_of_several_outputs_and_of_pairs():
    both = np.stack([Y, -Y], axis=1)
    model = RankRLSCV(ALPHAS, keep_predictions=True).fit(X, both, qid=QID)
    assert model.cv_predictions_.shape == (3, M, 2)
    np.testing.assert_allclose(model.cv_predictions_[1], cross_val_predict(RankRLS(10.0), X, both, qid=QID))
    with pytest.raises(ValueError, match=r"HeldOut\(...\).pairs"):
        RankRLSCV(ALPHAS, cv="leave-pair-out", keep_predictions=True).fit(X, Y)
    with pytest.raises(ValueError, match="keep_predictions=True would be ignored"):
        RankRLSCV(ALPHAS, keep_predictions=True).fit_stream([(X, Y, QID)])


# --------------------------------------------------------------------------------------------- the held-out object

LEARNERS = [
    RankRLS(),
    RankRLS(kernel="rbf"),
    RankRLS(kernel="rbf", n_basis=9, random_state=0),
    RankRLS(kernel="rbf", cost="unit"),
    RLS(kernel="rbf"),
    RLS(fit_intercept=False),
    RankSVM(tol=1e-9),
    Ridge(),
]


def names(learners):
    return [repr(learner) for learner in learners]


@pytest.mark.parametrize(
    ("options", "weights"),
    [
        ({"basis": np.arange(0, M, 3), "gamma": 1e-4}, None),  # basis vectors too similar to take one away
        ({"basis": np.arange(0, M, 3)}, 1e-8 ** (np.arange(M) % 2)),
        ({}, 1e-8 ** (np.arange(M) % 2)),
    ],
    ids=["similar basis vectors", "basis vectors and weights", "weights"],
)
def test_regressions_that_are_refitted_are_held_out_with_the_intercept_of_the_rest(options, weights):
    y, folds = Y + 5.0, np.array_split(np.random.default_rng(0).permutation(M), 3)

    def held_out(alphas):
        learner = RLS(alphas[0], kernel="rbf", **options)
        return HeldOut(learner, X, y, sample_weight=weights).predict(folds, alphas)

    expected = np.empty((len(ALPHAS), M))
    for k, alpha in enumerate(ALPHAS):
        for fold in folds:
            rest = np.setdiff1d(np.arange(M), fold)
            basis = {"basis": np.flatnonzero(np.isin(rest, options["basis"]))} if options else {}
            model = RLS(alpha, kernel="rbf", **{**options, **basis})
            model.fit(X[rest], y[rest], sample_weight=None if weights is None else weights[rest])
            expected[k, fold] = model.predict(X[fold])
    np.testing.assert_allclose(held_out(ALPHAS), expected, rtol=1e-9)
    np.testing.assert_allclose(np.concatenate([held_out([alpha]) for alpha in ALPHAS]), expected, rtol=1e-9)


@pytest.mark.parametrize("learner", LEARNERS, ids=names(LEARNERS))
def test_any_question_in_any_order_is_refitting(learner):
    held = HeldOut(learner, X, Y, qid=QID)

    def refitted(folds, alpha):
        one = clone(learner).set_params(alpha=alpha)
        if getattr(learner, "n_basis", None) is not None:
            return cross_val_predict(one, X, Y, qid=QID, cv=folds)  # itself tested against refitting
        return Case("", lambda: np.empty(0), lambda _: one, pooled=False).held_out(folds, alpha)

    halves, accuracy = [np.arange(0, M, 2), np.arange(1, M, 2)], {"atol": ACCURACY[type(learner)]}
    single = held.predict(FOLDS)
    assert single.shape == (1, M)
    np.testing.assert_allclose(single[0], refitted(FOLDS, learner.alpha), **accuracy)
    for _ in range(2):  # the second time from what is there
        for folds in (FOLDS, halves):
            found = held.predict(folds, ALPHAS)
            for k, alpha in enumerate(ALPHAS):
                np.testing.assert_allclose(found[k], refitted(folds, alpha), **accuracy)
    np.testing.assert_allclose(held.predict(FOLDS, 5.0)[0], refitted(FOLDS, 5.0), **accuracy)


@pytest.mark.parametrize("learner", LEARNERS, ids=names(LEARNERS))
def test_other_targets_on_the_same_factorisation(learner):
    held = HeldOut(learner, X, Y, qid=QID)
    held.predict("leave-query-out", ALPHAS)
    other = held.with_targets(Y[::-1])
    expected = HeldOut(learner, X, Y[::-1], qid=QID).predict("leave-query-out", ALPHAS)
    np.testing.assert_allclose(other.predict("leave-query-out", ALPHAS), expected, atol=1e-6)
    np.testing.assert_allclose(held.predict("leave-query-out", ALPHAS)[0, :3],
                               HeldOut(learner, X, Y, qid=QID).predict("leave-query-out", ALPHAS)[0, :3],
                               atol=1e-6)  # fmt: skip
    with pytest.raises(ValueError):
        held.with_targets(Y[:-1]).predict("leave-query-out", ALPHAS)


def count_calls(monkeypatch, *kinds):
    made = []
    for kind in kinds:
        original = kind.__init__

        def counting(self, *arguments, _original=original, **keywords):
            made.append(type(self).__name__)
            _original(self, *arguments, **keywords)

        monkeypatch.setattr(kind, "__init__", counting)
    return made


@pytest.mark.parametrize(
    "learner",
    [RankRLS(), RankRLS(kernel="rbf"), RankRLS(kernel="rbf", n_basis=9, random_state=0), RLS(kernel="rbf")],
    ids=str,
)
def test_one_factorisation_serves_every_question(learner, monkeypatch):
    made = count_calls(monkeypatch, DualHoldOut, FeatureHoldOut)
    held = HeldOut(learner, X, Y)
    assert "not factorised yet" in repr(held)
    held.score("neg_mean_squared_error", 4, ALPHAS)
    held.predict("leave-one-out", ALPHAS)
    held.predict(3)
    held.alphas("auto")
    held.with_targets(Y**2).predict(5, ALPHAS)
    held.tally(ALPHAS)
    pairs, found = held.pairs(ALPHAS)
    assert len(made) == 1 and "factorised)" in repr(held)
    for alpha, f in zip(ALPHAS, found, strict=True):
        expected = leave_pair_out(clone(learner).set_params(alpha=alpha), X, Y)[1]
        np.testing.assert_allclose(f, expected, atol=1e-7)


@examples(25)
@given(
    st.integers(0, 10**6),
    st.sampled_from([{}, {"kernel": "rbf"}, {"kernel": "rbf", "n_basis": 6, "random_state": 0}]),
    st.sampled_from([RankRLS, RLS]),
    st.booleans(),
)
def test_pairs_over_several_alphas_equal_refitting(seed, representation, learner, rounded):
    rng = np.random.default_rng(seed)
    m = int(rng.integers(8, 14))
    X = rng.normal(size=(m, 3))
    y = np.round(rng.normal(size=m)) if rounded else rng.normal(size=m)
    if np.unique(y).shape[0] < 2:
        y[0] += 1.0
    alphas = [1e-3, 0.7, 50.0]
    held = HeldOut(learner(**representation), X, y)
    pairs, found = held.pairs(alphas)
    tallies = held.tally(alphas)
    scores = held.score(cv="leave-pair-out", alphas=alphas)
    for k, alpha in enumerate(alphas):
        one = learner(alpha, **representation)
        if "n_basis" in representation:
            expected = leave_pair_out(one, X, y)[1]  # itself tested against refitting
        else:
            expected = np.stack([oracles.refit_without(one, X, y, None, pair, pair) for pair in pairs])
        np.testing.assert_allclose(found[k], expected, rtol=1e-6, atol=1e-6 * max(1.0, abs(y).max()))
        assert tallies[k].share == pytest.approx(leave_pair_out_tally(one, X, y).share)
        assert scores[k] == pytest.approx(tallies[k].share)
    np.testing.assert_allclose(held.score("neg_disagreement_error", "leave-pair-out", alphas), scores - 1)


def test_pairs_with_groups_and_by_refitting():
    groups = np.arange(M) // 2
    pairs = [[0, 5], [3, 9], [10, 2]]
    for learner in (RankRLS(kernel="rbf"), RankSVM(tol=1e-12)):
        _, found = HeldOut(learner, X, Y, groups=groups).pairs([0.5, 5.0], pairs=pairs)
        for k, alpha in enumerate([0.5, 5.0]):
            for pair, f in zip(pairs, found[k], strict=True):
                rest = np.flatnonzero(~np.isin(groups, groups[pair]))
                model = clone(learner).set_params(alpha=alpha).fit(X[rest], Y[rest])
                np.testing.assert_allclose(f, model.predict(X[pair]), atol=1e-6)


def test_bad_questions_are_refused():
    held = HeldOut(RankRLS(), X, Y, qid=QID)
    with pytest.raises(ValueError, match="global ranking"):
        held.score(cv="leave-pair-out")
    with pytest.raises(ValueError, match="another measure"):
        HeldOut(RankRLS(), X, Y).score("ndcg", "leave-pair-out")
    with pytest.raises(ValueError, match="Ridge|LogisticRegression has no parameter alpha"):
        HeldOut(LogisticRegression(), X, Y > 1).predict(3, [1.0])
    with pytest.raises(ValueError, match="at least two queries"):
        HeldOut(RankRLS(), X, Y, qid=np.zeros(M)).predict("leave-query-out")


# --------------------------------------------------------------------------------------------------- preferences

PAIRS = np.array([(i, j) for i in range(M) for j in range(i) if (i * 7 + j) % 11 == 0 and X[i, 0] != X[j, 0]])
PAIRS = np.where((X[PAIRS[:, 0], 0] > X[PAIRS[:, 1], 0])[:, None], PAIRS, PAIRS[:, ::-1])
JUDGES = np.arange(len(PAIRS)) % 4


def refitted_differences(learner, left, **extra):
    rest = np.setdiff1d(np.arange(len(PAIRS)), left)
    extra = {name: values[rest] for name, values in extra.items()}
    f = clone(learner).fit_pairs(X, PAIRS[rest], **extra).predict(X)
    return f[PAIRS[left, 0]] - f[PAIRS[left, 1]]


@pytest.mark.parametrize("search", [RankRLSCV, RankSVMCV])
@pytest.mark.parametrize(
    "representation", [{}, {"kernel": "rbf"}, {"kernel": "rbf", "n_basis": 10, "random_state": 0}]
)
@pytest.mark.parametrize("cv", [4, "leave-group-out", None])
def test_alpha_by_held_out_preferences(search, representation, cv):
    if search is RankSVMCV:
        representation = {**representation, "tol": 1e-9}
        if cv is None:
            cv = KFold(3)
    groups = JUDGES if cv == "leave-group-out" else None
    model = search(ALPHAS, cv=cv, keep_predictions=True, **representation)
    model.fit_pairs(X, PAIRS, groups=groups)
    if cv == "leave-group-out":
        sets = [np.flatnonzero(JUDGES == judge) for judge in range(4)]
    elif cv is None:
        sets = [[k] for k in range(len(PAIRS))]
    else:
        sets = [test for _, test in (KFold(4) if cv == 4 else cv).split(PAIRS)]
    learner = {RankRLSCV: RankRLS, RankSVMCV: RankSVM}[search]
    for k, alpha in enumerate(ALPHAS):
        expected = np.empty(len(PAIRS))
        for left in sets:
            expected[left] = refitted_differences(learner(alpha, **representation), left)
        np.testing.assert_allclose(model.cv_predictions_[k], expected, rtol=1e-7, atol=ACCURACY[learner])
        assert model.cv_scores_[k] == pytest.approx(np.mean(expected > 0) + 0.5 * np.mean(expected == 0))
    final = learner(model.alpha_, **representation).fit_pairs(X, PAIRS)
    np.testing.assert_allclose(model.predict(X), final.predict(X), rtol=1e-6, atol=1e-8)
    assert model.best_score_ == model.cv_scores_.max()


def test_preferences_with_magnitudes_and_weights():
    rng = np.random.default_rng(0)
    extra = {"magnitude": rng.uniform(0.5, 2, len(PAIRS)), "weight": rng.uniform(0.1, 3, len(PAIRS))}
    held = HeldOut.of_pairs(RankRLS(kernel="rbf"), X, PAIRS, **extra)
    found = held.preferences(alphas=ALPHAS)
    for k, alpha in enumerate(ALPHAS):
        model = RankRLS(alpha, kernel="rbf")
        np.testing.assert_allclose(found[k], leave_preference_out(model, X, PAIRS, **extra))
        np.testing.assert_allclose(
            found[k, :3], [refitted_differences(model, [i], **extra)[0] for i in range(3)]
        )
    errors = held.score("neg_mean_squared_error", alphas=ALPHAS)
    np.testing.assert_allclose(errors, -((extra["magnitude"] - found) ** 2).mean(axis=1))
    shares = held.score(alphas=ALPHAS)
    np.testing.assert_allclose(held.score("disagreement_error", alphas=ALPHAS), shares - 1)
    model = RankRLSCV(ALPHAS, kernel="rbf").fit_pairs(X, PAIRS, **extra)
    np.testing.assert_allclose(model.cv_scores_, shares)
    assert "preferences)" in repr(held)


def test_overlapping_sets_of_preferences():
    sets = [np.arange(5), np.arange(3, 9)]
    held = HeldOut.of_pairs(RankRLS(), X, PAIRS)
    found = held.preferences(sets)[0]
    first, second = (refitted_differences(RankRLS(), left) for left in sets)
    np.testing.assert_allclose(found[:3], first[:3])
    np.testing.assert_allclose(found[3:5], (first[3:] + second[:2]) / 2)
    assert np.isnan(found[9:]).all()


def test_bad_preferences_are_refused():
    with pytest.raises(ValueError, match="another measure"):
        RankRLSCV(ALPHAS, scoring="ndcg").fit_pairs(X, PAIRS)
    with pytest.raises(ValueError, match="preferences are held out here"):
        RankRLSCV(ALPHAS, cv="leave-query-out").fit_pairs(X, PAIRS)
    with pytest.raises(ValueError, match="weighting='query'.* would be ignored"):
        RankRLSCV(ALPHAS, weighting="query").fit_pairs(X, PAIRS)
    with pytest.raises(ValueError, match="weighting='query' would be ignored"):
        RankSVMCV(ALPHAS, weighting="query", cv=3).fit_pairs(X, PAIRS)
    with pytest.raises(ValueError, match="does not use magnitude"):
        RankSVMCV(ALPHAS).fit_pairs(X, PAIRS, magnitude=np.ones(len(PAIRS)))
    with pytest.raises(ValueError, match="at least two preferences"):
        RankRLSCV(ALPHAS).fit_pairs(X, PAIRS[:1])


@pytest.mark.parametrize(
    "model",
    [RankRLS(), RankRLSCV(ALPHAS), RankSVM(), RankSVMCV(ALPHAS, cv=3), TransductiveRankRLS()],
    ids=str,
)
def test_share_of_pairs_in_the_right_order(model):
    model.fit(X, Y, qid=QID)
    f = model.predict(X)
    expected = np.mean((f[PAIRS[:, 0]] > f[PAIRS[:, 1]]) + 0.5 * (f[PAIRS[:, 0]] == f[PAIRS[:, 1]]))
    assert model.score_pairs(X, PAIRS) == pytest.approx(expected)
    assert model.score_pairs(X[[0, 0]], [[0, 1]]) == 0.5
    with pytest.raises(ValueError, match="out of range"):
        model.score_pairs(X, [[0, M]])


# What a held-out object shares with the one that it was made from -------------------------------------------------


def test_one_draw_of_basis_vectors_serves_every_tally():
    held = HeldOut(RankRLS(kernel="rbf", n_basis=4), X, Y)
    assert len({held.tally()[0].share for _ in range(4)}) == 1


def test_predictions_to_compare_across_folds_have_their_intercepts():
    held = HeldOut(RLS(kernel="rbf"), X, Y + 100)
    complete = held.for_order().for_order(across_folds=True).predict(4)
    np.testing.assert_allclose(complete, held.predict(4), atol=1e-6)


def test_predictions_without_intercepts_are_not_pooled():
    held = HeldOut(RLS(1e10, kernel="rbf"), X, Y)
    folds = [np.arange(M)[k::4] for k in range(4)]
    f = held.predict(folds)[0]
    shares = [concordance(Y[fold], f[fold]) for fold in folds]
    assert held.for_order().score("concordance", folds)[0] == pytest.approx(np.mean(shares))


def test_outputs_of_very_different_size_keep_their_digits():
    outputs = np.stack([Y, 1e13 * np.random.default_rng(0).normal(size=M)], axis=1)
    held = HeldOut(RankRLS(kernel="rbf"), X, outputs, qid=QID)
    alone = HeldOut(RankRLS(kernel="rbf"), X, Y, qid=QID).for_order().predict(FOLDS)
    np.testing.assert_allclose(held.for_order().predict(FOLDS)[:, :, 0], alone, atol=1e-9)


@pytest.mark.parametrize("solver", ["primal", "dual"])
def test_pairs_over_several_alphas_of_more_features_than_rows(solver):
    wide = np.random.default_rng(0).normal(size=(12, 20))
    y = wide[:, 0]
    _, found = HeldOut(RankRLS(solver=solver), wide, y).pairs([0.1, 1.0])
    expected = [leave_pair_out(RankRLS(alpha, solver="dual"), wide, y)[1] for alpha in (0.1, 1.0)]
    np.testing.assert_allclose(found, expected, atol=1e-8)
