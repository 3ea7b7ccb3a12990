"""Scorers inside scikit-learn's searches and cross-validation, with and without metadata routing."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
import sklearn
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import GridSearchCV, GroupKFold, cross_val_score, cross_validate
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from preflearn import RankRLS, RankRLSCV, metrics
from preflearn.metrics import (
    RankingScorer,
    auc_scorer,
    average_precision_scorer,
    concordance,
    concordance_scorer,
    disagreement_error_scorer,
    get_scorer,
    ndcg,
    ndcg_scorer,
    precision_at_scorer,
)

METRICS = (
    "concordance",
    "disagreement_error",
    "auc",
    "kendall_tau",
    "ndcg",
    "average_precision",
    "reciprocal_rank",
)
SCORERS = {name: getattr(metrics, f"{name}_scorer") for name in (*METRICS, "err", "precision_at")}


@pytest.fixture
def data():
    """Rows whose queries have very different levels: without qid the scores would say something else."""
    rng = np.random.default_rng(0)
    qid = np.repeat(np.arange(12), 10)
    X = np.column_stack([rng.normal(size=120), rng.normal(size=12)[qid]])
    y = np.digitize(X[:, 0] - 2 * X[:, 1] + 0.5 * rng.normal(size=120), [-1, 0, 1])
    order = rng.permutation(120)
    return X[order], y[order], qid[order]


@pytest.fixture
def routing():
    with sklearn.config_context(enable_metadata_routing=True):
        yield


def folds(qid):
    return list(GroupKFold(4).split(qid, groups=qid))


def by_hand(metric, estimator, X, y, qid, **options):
    values = []
    for train, test in folds(qid):
        scores = clone(estimator).fit(X[train], y[train]).predict(X[test])
        values.append(metric(y[test], scores, qid[test], **options))
    return values


def test_cross_val_score_routes_qid(data, routing):
    X, y, qid = data
    for scorer, metric, options in [
        (concordance_scorer, concordance, {}),
        (ndcg_scorer(k=3), ndcg, {"k": 3}),
    ]:
        found = cross_val_score(Ridge(), X, y, scoring=scorer, cv=folds(qid), params={"qid": qid})
        np.testing.assert_allclose(found, by_hand(metric, Ridge(), X, y, qid, **options))
        assert not np.allclose(found, cross_val_score(Ridge(), X, y, scoring=scorer, cv=folds(qid)))


def test_grid_search_of_a_pipeline_routes_qid(data, routing):
    X, y, qid = data
    pipeline = make_pipeline(StandardScaler(), Ridge())
    grid = {"ridge__alpha": [0.01, 1e4]}
    search = GridSearchCV(pipeline, grid, scoring=concordance_scorer, cv=folds(qid), n_jobs=2)
    search.fit(X, y, qid=qid)
    for alpha, mean in zip(grid["ridge__alpha"], search.cv_results_["mean_test_score"], strict=True):
        expected = by_hand(concordance, make_pipeline(StandardScaler(), Ridge(alpha)), X, y, qid)
        assert mean == pytest.approx(np.mean(expected))
    assert search.score(X, y, qid=qid) == concordance(y, search.predict(X), qid)
    assert clone(search).scoring(search, X, y, qid=qid) == concordance(y, search.predict(X), qid)


def test_several_metrics_at_once(data, routing):
    X, y, qid = data
    scoring = {
        "pairs": concordance_scorer,
        "list": ndcg_scorer(k=5),
        "error": disagreement_error_scorer,
        "r2": "r2",
    }
    found = cross_validate(Ridge(), X, y, scoring=scoring, cv=folds(qid), params={"qid": qid})
    np.testing.assert_allclose(found["test_pairs"], by_hand(concordance, Ridge(), X, y, qid))
    np.testing.assert_allclose(found["test_list"], by_hand(ndcg, Ridge(), X, y, qid, k=5))
    np.testing.assert_allclose(found["test_error"], found["test_pairs"] - 1.0)


def test_metadata_under_another_name(data, routing):
    X, y, qid = data
    weight = np.random.default_rng(1).uniform(0.1, 2.0, len(y))
    scorer = concordance_scorer.set_score_request(qid="query", sample_weight=True)
    given = {"query": qid, "sample_weight": weight}
    found = cross_val_score(
        Ridge().set_fit_request(sample_weight=False),
        X,
        y,
        scoring=scorer,
        cv=[folds(qid)[0]] * 2,
        params=given,
    )
    train, test = folds(qid)[0]
    scores = Ridge().fit(X[train], y[train]).predict(X[test])
    assert found[0] == pytest.approx(concordance(y[test], scores, qid[test], sample_weight=weight[test]))
    assert concordance_scorer.get_metadata_routing().score.requests == {"qid": True, "sample_weight": None}


def test_weights_nobody_asked_for_are_an_error(data, routing):
    X, y, qid = data
    with pytest.raises(sklearn.exceptions.UnsetMetadataPassedError, match="sample_weight"):
        cross_val_score(
            Ridge(), X, y, scoring=concordance_scorer, params={"qid": qid, "sample_weight": np.ones(len(y))}
        )


@pytest.mark.parametrize("name", SCORERS)
def test_without_routing(data, name):
    X, y, qid = data
    y = y > 1
    scorer = SCORERS[name]
    model = Ridge().fit(X, y)
    sign = -1.0 if name == "disagreement_error" else 1.0
    metric = getattr(metrics, name)
    assert scorer(model, X, y) == sign * metric(y, model.predict(X))
    assert cross_val_score(Ridge(), X, y, scoring=scorer, cv=3).shape == (3,)
    assert cross_validate(Ridge(), X, y, scoring={"one": scorer, "two": "r2"}, cv=3)["test_one"].shape == (3,)
    if name != "auc":
        value = sign * metric(y, model.predict(X), qid)
        assert scorer(model, X, y, qid=qid) == scorer(estimator=model, X=X, y=y, qid=qid) == value
        assert scorer.measure(y, model.predict(X), qid) == value


def test_classifiers_are_ranked_by_their_confidence(data):
    X, y, _ = data
    y = y > 1
    by_decision = LogisticRegression().fit(X, y)
    assert auc_scorer(by_decision, X, y) == metrics.auc(y, by_decision.decision_function(X))
    by_probability = KNeighborsClassifier().fit(X, y)
    assert auc_scorer(by_probability, X, y) == metrics.auc(y, by_probability.predict_proba(X)[:, 1])


def test_classifiers_that_cannot_rank_are_refused(data):
    X, y, qid = data
    with pytest.raises(ValueError, match="LogisticRegression gives 4 scores per row"):
        concordance_scorer(LogisticRegression().fit(X, y), X, y, qid=qid)

    class Labels(ClassifierMixin, BaseEstimator):
        pass

    with pytest.raises(TypeError, match="Labels is a classifier with neither"):
        concordance_scorer(Labels(), X, y, qid=qid)


def test_names():
    assert get_scorer("ndcg@10", gain="linear").measure([1, 0, 2], [3, 2, 1]) == ndcg(
        [1, 0, 2], [3, 2, 1], k=10, gain="linear"
    )
    assert repr(get_scorer("precision@5")) == "precision_at_scorer(k=5)"
    assert repr(get_scorer("concordance")) == "concordance_scorer"
    assert get_scorer("neg_disagreement_error").measure([1, 0], [1, 2]) == -1.0
    assert get_scorer(concordance_scorer) is concordance_scorer
    for name in ("concordance", "auc", "kendall_tau", "ndcg", "average_precision", "reciprocal_rank", "err"):
        assert isinstance(get_scorer(name), RankingScorer)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: get_scorer("DCG"), ValueError, "unknown metric 'DCG': expected one of 'concordance'"),
        (lambda: get_scorer("ndcg@"), ValueError, "unknown metric"),
        (lambda: get_scorer(3), ValueError, "unknown metric 3"),
        (lambda: get_scorer("ndcg@0"), ValueError, "k must be a number of positions"),
        (lambda: get_scorer("ndcg@3", k=5), ValueError, "3 and 5"),
        (lambda: get_scorer("concordance@3"), TypeError, "concordance has no option 'k': expected 'weights'"),
        (lambda: get_scorer(concordance_scorer, k=3), TypeError, "not with a callable"),
        (lambda: ndcg_scorer(gain="log"), ValueError, "gain must be one of"),
        (lambda: ndcg_scorer(per_query=True), TypeError, "no option 'per_query'"),
        (lambda: average_precision_scorer(k=3), TypeError, "expected 'no_relevant', 'relevant_above'"),
        (lambda: precision_at_scorer(k=0), ValueError, "found 0"),
        (
            lambda: concordance_scorer.set_score_request(query=True),
            TypeError,
            "can ask for qid, sample_weight: found query",
        ),
        (
            lambda: ndcg_scorer(None, [], [], sample_weight=[]),
            TypeError,
            "takes qid besides .* found sample_weight",
        ),
        (lambda: auc_scorer(None, [], [], qid=[]), TypeError, "takes sample_weight besides .* found qid"),
    ],
)
def test_mistakes_are_told(call, error, message):
    with pytest.raises(error, match=message):
        call()


def test_options_do_not_leak():
    before = repr(ndcg_scorer)
    changed = ndcg_scorer(k=10)
    assert repr(changed(gain="linear")) == "ndcg_scorer(k=10, gain='linear')"
    assert repr(ndcg_scorer) == before == "ndcg_scorer"


@pytest.mark.parametrize("name", SCORERS)
def test_scorers_pickle(name):
    assert repr(pickle.loads(pickle.dumps(SCORERS[name]))) == repr(SCORERS[name])


@pytest.mark.parametrize("name", [name for name in SCORERS if name != "auc"])
@pytest.mark.parametrize("n_outputs", [1, 2])
def test_several_outputs_are_measured_one_by_one(name, n_outputs):
    """Tied predictions and queries without a pair included."""
    rng = np.random.default_rng(0)
    qid = np.repeat(np.arange(12), 5)
    y = rng.integers(0, 3, size=(60, n_outputs)).astype(float)
    y[:5] = 1.0
    scorer = SCORERS[name]
    for f in np.round(rng.normal(size=(7, 60, n_outputs)), 1):
        expected = np.mean([scorer.measure(y[:, k], f[:, k], qid) for k in range(n_outputs)])
        assert scorer.measure_within(y, f, qid) == pytest.approx(expected, rel=1e-14)


def test_outputs_that_are_equal_everywhere_are_refused():
    with pytest.raises(ValueError, match="no query has two rows with different y"):
        concordance_scorer.measure_within(np.ones((6, 2)), np.zeros((6, 2)), [0, 0, 0, 1, 1, 1])


def test_the_auc_of_a_search_is_that_of_rows_of_one_fold_and_needs_two_values():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(24, 3)), np.arange(24) % 2
    folds = np.array_split(rng.permutation(24), 3)
    found = RankRLSCV([1.0], cv=folds, scoring="auc").fit(X, y).cv_scores_[0]
    values = []
    for fold in folds:
        rest = np.setdiff1d(np.arange(24), fold)
        values.append(metrics.auc(y[fold], RankRLS(1.0).fit(X[rest], y[rest]).predict(X[fold])))
    assert found == pytest.approx(np.mean(values))
    with pytest.raises(ValueError, match="needs y with two values"):
        RankRLSCV([1.0], cv=folds, scoring="auc").fit(X, np.arange(24) % 3)
