"""RankRFM: the learned metric against a slow version, honest held-out predictions, grammar and refusals."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.utils.estimator_checks import parametrize_with_checks

import oracles
from preflearn import RankRFM, RankRLS
from preflearn.metrics import concordance
from preflearn.model_selection import QueryKFold
from preflearn.model_selection._choice import read_scoring
from preflearn.squared.expansion import average_gradient_metric

pytestmark = pytest.mark.filterwarnings("ignore:The best alpha")


def make_data(m=60, n=4, queries=6, seed=0):
    rng = np.random.default_rng(seed)
    X, qid = rng.normal(size=(m, n)), rng.integers(0, queries, size=m)
    y = np.sin(2 * X[:, 0]) + 0.5 * X[:, 1] ** 2 + 0.1 * rng.normal(size=m) + qid
    return X, np.round(y, 1), qid


@parametrize_with_checks(
    [
        RankRFM([0.1, 1.0], max_rounds=1),
        RankRFM([0.1, 1.0], metric="full", max_rounds=1, n_basis=0.5, random_state=0),
    ]
)
@pytest.mark.filterwarnings("ignore:All gradients")
def test_scikit_learn_checks(estimator, check):
    check(estimator)


def rounds_of(model):
    return [one.alpha for one in model.rounds_[: model.best_round_ + 1]]


@settings(max_examples=15)
@given(
    seed=st.integers(0, 1000),
    n=st.integers(2, 5),
    queries=st.integers(2, 5),
    full=st.booleans(),
    scale=st.sampled_from([1e-3, 1.0, 1e3]),
)
def test_metric_and_predictions_equal_the_slow_version(seed, n, queries, full, scale):
    X, y, qid = make_data(24, n, queries, seed)
    X[3] = X[4]  # duplicates
    basis = np.arange(0, 24, 3)
    gamma = 0.3
    model = RankRFM(
        [0.5],
        gamma=gamma,
        metric="full" if full else "diagonal",
        basis=basis,
        max_rounds=2,
        cv=[np.arange(6)],
    )
    model.fit(X, scale * y, qid=qid)
    S, beta = oracles.learned_metric(X, scale * y, qid, basis, gamma, rounds_of(model), full=full)
    learned = model.metric_ if model.metric_.ndim == 2 else np.diag(model.metric_)
    # S Sᵀ is the metric; directions may have either sign. The full metric leaves out the shortest directions.
    np.testing.assert_allclose(learned @ learned.T, S @ S.T, atol=1e-6)
    expected = oracles.rbf(X @ S, X[basis] @ S, gamma) @ beta
    np.testing.assert_allclose(model.predict(X), expected, atol=1e-5 * scale)


@pytest.mark.parametrize("options", [{}, {"metric": "full"}, {"n_basis": 20, "random_state": 0}])
def test_held_out_predictions_are_those_of_refitting_without_the_fold(options):
    """At the alphas and the round that were chosen: metric, width and coefficients of each fold know nothing of it."""
    X, y, qid = make_data()
    folds = [test for _, test in QueryKFold(3).split(X, qid=qid)]
    model = RankRFM([0.01, 0.1, 1.0], cv=folds, max_rounds=2, keep_predictions=True, **options).fit(
        X, y, qid=qid
    )
    for test in folds:
        rest = np.setdiff1d(np.arange(len(y)), test)
        place = np.full(len(y), -1)
        place[rest] = np.arange(len(rest))
        basis = place[model.basis_indices_[~np.isin(model.basis_indices_, test)]]
        expected = _at_fixed_alphas(X[rest], y[rest], qid[rest], basis, rounds_of(model), options, X[test])
        np.testing.assert_allclose(model.cv_predictions_[test], expected, atol=1e-8)
    by_choice = max(one.score for one in model.rounds_)
    assert by_choice == pytest.approx(concordance(y, model.cv_predictions_, qid)) == model.cv_scores_.max()


@pytest.mark.parametrize("scoring", [None, "ndcg@3"])
def test_the_score_is_that_of_choices_by_the_other_folds(scoring):
    """Round by round at single alphas, what each fold predicts; then the choice without it."""
    X, y, qid = make_data(80, queries=8)
    y = np.clip(np.round(y - qid + 1), 0, 4)
    folds, alphas = [test for _, test in QueryKFold(4).split(X, qid=qid)], [0.01, 0.1, 1.0]
    model = RankRFM(alphas, cv=folds, max_rounds=2, scoring=scoring).fit(X, y, qid=qid)
    measure = read_scoring(scoring)
    tables = []
    for number in range(len(model.rounds_)):
        for alpha in alphas:
            # The metric of a round comes from the alphas that the rounds before it chose.
            again = RankRFM(alphas, cv=folds, max_rounds=number, scoring=scoring)
            kernel, _ = again._read(X)
            search = again._search_rows(X, y[:, None], qid, None, has_queries=True)
            *_, last = again._walk(search, kernel, patience=99)
            tables.append(np.concatenate([one[alphas.index(alpha)] for one in last.held_out]))
    rows = np.concatenate(folds)
    fold_of = np.repeat(np.arange(4), [len(one) for one in folds])

    def score(predictions, keep):
        return measure(y[rows[keep], None], predictions[keep], qid[rows[keep]])

    chosen = np.empty((len(rows), 1))
    for fold in range(4):
        each = np.array([[score(one, fold_of == k) for k in range(4) if k != fold] for one in tables])
        weights = [np.sum(fold_of == k) for k in range(4) if k != fold]
        # Ties go to the earlier round and to the larger alpha.
        means = np.round(each @ weights / sum(weights), 12)
        best = max(range(len(tables)), key=lambda k: (means[k], -(k // 3), k % 3))
        chosen[fold_of == fold] = tables[best][fold_of == fold]
    assert model.best_score_ == pytest.approx(score(chosen, slice(None)))


def test_the_score_is_not_flattered_by_the_choice():
    """Noise: the best of rounds and alphas is far above one half, the reported figure is not."""
    reported, best = [], []
    for seed in range(20):
        rng = np.random.default_rng(seed)
        X, y, qid = rng.normal(size=(60, 5)), rng.normal(size=60), np.repeat(np.arange(10), 6)
        model = RankRFM(random_state=seed).fit(X, y, qid=qid)
        reported.append(model.best_score_)
        best.append(model.cv_scores_.max())
    assert np.mean(best) > 0.55
    assert np.mean(reported) == pytest.approx(0.5, abs=0.045)


def test_one_fold_to_compare_gives_no_figure():
    rng = np.random.default_rng(0)
    X, qid = rng.normal(size=(40, 3)), np.repeat(np.arange(8), 5)
    y = np.where(qid == 0, rng.normal(size=40), 0.0)
    with pytest.warns(UserWarning, match="best_score_ is NaN"):
        model = RankRFM([1.0], max_rounds=0).fit(X, y, qid=qid)
    assert np.isnan(model.best_score_) and np.isfinite(model.cv_scores_).all()


@pytest.mark.parametrize("cv", [None, 3])
@pytest.mark.parametrize("with_queries", [True, False])
def test_the_order_of_the_rows_and_the_names_of_queries_do_not_matter(cv, with_queries):
    X, y, qid = make_data(80, queries=8)
    X, y = X.round(1), np.round(y - qid)
    X[1], y[1] = X[0], y[0]
    rng = np.random.default_rng(0)
    options = {"max_rounds": 2, "n_basis": 25, "random_state": 5, "cv": cv, "keep_predictions": True}
    model = RankRFM(**options).fit(X, y, qid=qid if with_queries else None)
    for rows in (X, sp.csr_array(X)):
        order = rng.permutation(80)
        names = np.array([f"query {k}" for k in rng.permutation(8)])[qid]
        other = RankRFM(**options).fit(rows[order], y[order], qid=names[order] if with_queries else None)
        np.testing.assert_allclose(
            other.predict(X), model.predict(X), atol=1e-6 * np.abs(model.predict(X)).max()
        )
        single = order > 1  # two equal rows may change places
        np.testing.assert_allclose(
            other.cv_predictions_[single], model.cv_predictions_[order][single], atol=1e-6
        )
        np.testing.assert_array_equal(X[order][other.basis_indices_], X[model.basis_indices_])
        assert other.best_score_ == pytest.approx(model.best_score_, abs=1e-9)


def _at_fixed_alphas(X, y, qid, basis, alphas, options, new):
    """Rounds of RankRLS with the public kernel parameters, the metric from the public gradient."""
    metric = None
    for number, alpha in enumerate(alphas):
        params = None if metric is None else {"metric": metric}
        model = RankRLS(
            alpha, kernel="rbf", gamma="median", kernel_params=params, basis=basis, weighting="item"
        )
        model.fit(X, y, qid=qid)
        if number + 1 < len(alphas):
            gradients = model.gradient(X)[:, :, None]
            metric = average_gradient_metric(gradients, full=options.get("metric") == "full")
    return model.predict(new)


def test_a_metric_learned_on_random_labels_does_not_flatter():
    """Shuffled labels: the held-out score stays near one half, though each round has fitted its metric to them."""
    scores = []
    for seed in range(6):
        rng = np.random.default_rng(seed)
        X, qid = rng.normal(size=(200, 20)), np.repeat(np.arange(20), 10)
        model = RankRFM([0.1, 10.0], max_rounds=3).fit(X, rng.normal(size=200), qid=qid)
        scores += [one.score for one in model.rounds_]
    # 900 pairs a set; the mean of some 20 scores has a standard error below 0.01.
    assert np.mean(scores) == pytest.approx(0.5, abs=0.03)


def test_features_that_matter_are_found():
    rng = np.random.default_rng(0)
    X, qid = rng.normal(size=(400, 12)), np.repeat(np.arange(20), 20)
    y = np.sin(2 * X[:, 3]) + X[:, 7] ** 2 + 10 * qid
    model = RankRFM(max_rounds=3).fit(X, y, qid=qid)
    assert set(np.argsort(model.feature_importances_)[-2:]) == {3, 7}
    assert model.feature_importances_.sum() == pytest.approx(1.0)
    assert model.best_round_ > 0
    plain = RankRLS(kernel="rbf", gamma="median").fit(X[:200], y[:200], qid=qid[:200])
    learned = RankRFM(max_rounds=3).fit(X[:200], y[:200], qid=qid[:200])
    assert (
        learned.score(X[200:], y[200:], qid=qid[200:]) > plain.score(X[200:], y[200:], qid=qid[200:]) + 0.05
    )
    assert "held out" in str(model.rounds_) and len(str(model.rounds_).splitlines()) == len(model.rounds_) + 1


def test_full_metric_finds_a_direction():
    rng = np.random.default_rng(1)
    X, qid = rng.normal(size=(300, 6)), np.repeat(np.arange(15), 20)
    direction = np.array([1.0, 1.0, 0.0, 0.0, 0.0, 0.0]) / np.sqrt(2)
    model = RankRFM(metric="full", max_rounds=3).fit(X, np.sin(2 * X @ direction), qid=qid)
    leading = np.linalg.svd(model.metric_)[0][:, 0]
    assert abs(leading @ direction) > 0.95


@pytest.mark.parametrize("metric", ["diagonal", "full"])
@pytest.mark.parametrize("kernel", ["rbf", "laplacian", "matern"])
def test_sparse_and_dense_agree(kernel, metric):
    X, y, qid = make_data(50)
    X[np.abs(X) < 0.7] = 0.0
    options = {"kernel": kernel, "metric": metric, "max_rounds": 1, "alphas": [0.1, 1.0]}
    dense = RankRFM(**options).fit(X, y, qid=qid)
    sparse = RankRFM(**options).fit(sp.csr_array(X), y, qid=qid)
    np.testing.assert_allclose(sparse.predict(sp.csr_array(X)), dense.predict(X), atol=1e-8)
    np.testing.assert_allclose(sparse.feature_importances_, dense.feature_importances_, atol=1e-8)
    np.testing.assert_allclose(sparse.gradient(sp.csr_array(X)), dense.gradient(X), atol=1e-8)


def test_float32_stays_close():
    X, y, qid = make_data()
    options = {"alphas": [0.1, 1.0], "max_rounds": 1}
    single = RankRFM(**options).fit(X.astype(np.float32), y, qid=qid)
    np.testing.assert_allclose(
        single.predict(X.astype(np.float32)), RankRFM(**options).fit(X, y, qid=qid).predict(X), atol=1e-2
    )


def test_two_outputs():
    X, y, qid = make_data()
    model = RankRFM([0.1, 1.0], max_rounds=1, keep_predictions=True).fit(X, np.c_[y, -y], qid=qid)
    assert model.predict(X).shape == model.cv_predictions_.shape == (60, 2)
    np.testing.assert_allclose(model.predict(X)[:, 0], -model.predict(X)[:, 1], atol=1e-8)


def test_preferences():
    X, y, _ = make_data(40)
    rng = np.random.default_rng(0)
    pairs = rng.integers(0, 40, (150, 2))
    pairs = pairs[y[pairs[:, 0]] != y[pairs[:, 1]]]
    pairs = np.where((y[pairs[:, 0]] > y[pairs[:, 1]])[:, None], pairs, pairs[:, ::-1])
    model = RankRFM([0.1, 1.0], max_rounds=2, keep_predictions=True, cv=4).fit_pairs(X, pairs)
    assert model.cv_predictions_.shape == (len(pairs),)
    assert model.cv_scores_.max() == pytest.approx((model.cv_predictions_ > 0).mean())
    assert 0.5 < model.best_score_ <= model.cv_scores_.max()
    assert model.score_pairs(X, pairs) > 0.8
    same = RankRLS(model.alpha_, kernel="rbf", gamma=model.gamma_, kernel_params={"metric": model.metric_})
    same.fit_pairs(X, pairs)
    np.testing.assert_allclose(np.diff(model.predict(X)), np.diff(same.predict(X)), atol=1e-6)
    by_judge = RankRFM([1.0], max_rounds=0).fit_pairs(X, pairs, groups=np.arange(len(pairs)) % 5)
    assert 0.5 < by_judge.best_score_ <= 1.0
    with pytest.raises(ValueError, match="leave scoring out"):
        RankRFM(scoring="ndcg").fit_pairs(X, pairs)


def test_the_learned_kernel_is_a_kernel_like_any_other():
    """to_rankrls: the same model by way of RankRLS, also from a stream of blocks."""
    X, y, qid = make_data(80)
    order = np.argsort(qid, kind="stable")
    X, y, qid = X[order], y[order], qid[order]
    model = RankRFM([0.1], max_rounds=2, n_basis=30, random_state=0).fit(X, y, qid=qid)
    again = model.to_rankrls().fit(X, y, qid=qid)
    np.testing.assert_allclose(again.predict(X), model.predict(X), atol=1e-6)
    cut = int(np.flatnonzero(qid == qid[40])[0])
    blocks = [(X[:cut], y[:cut], qid[:cut]), (X[cut:], y[cut:], qid[cut:])]
    streamed = model.to_rankrls().fit_stream(blocks)
    np.testing.assert_allclose(streamed.predict(X), model.predict(X), atol=1e-5)
    assert model.to_rankrls(n_basis=5, random_state=1).fit(X, y, qid=qid).dual_coef_.shape == (5,)


def test_more_rows_than_the_search_looks_at(monkeypatch):
    monkeypatch.setattr("preflearn.learners.rankrfm._SEARCH_ROWS", 40)
    X, y, qid = make_data(100, queries=10)
    model = RankRFM([0.1, 1.0], max_rounds=1, n_basis=15, random_state=0, keep_predictions=True).fit(
        X, y, qid=qid
    )
    looked_at = ~np.isnan(model.cv_predictions_)
    assert 0 < looked_at.sum() <= 40
    assert set(qid[looked_at]).isdisjoint(qid[~looked_at])
    np.testing.assert_array_equal(model.basis_, X[model.basis_indices_])
    np.testing.assert_allclose(model.predict(X), model.to_rankrls().fit(X, y, qid=qid).predict(X), atol=1e-8)


def test_pickle_clone_and_reproducibility():
    X, y, qid = make_data()
    model = RankRFM(n_basis=20, max_rounds=1, random_state=3).fit(X, y, qid=qid)
    again = clone(model).fit(X, y, qid=qid)
    np.testing.assert_array_equal(again.predict(X), model.predict(X))
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(model)).predict(X), model.predict(X))
    assert model.plot_importances().patches


def test_plot_of_the_longest_directions():
    rng = np.random.default_rng(0)
    X, qid = rng.normal(size=(200, 5)), np.repeat(np.arange(20), 10)
    y = np.sin(2 * (X[:, 1] + X[:, 3]))  # one direction, two features
    # Depends on the draw: with other seeds, or more basis vectors, the first direction may hold one feature alone.
    model = RankRFM(n_basis=80, max_rounds=1, metric="full", random_state=1).fit(X, y, qid=qid)
    assert model.best_round_ == 1
    ax = model.plot_directions(n_directions=2, n_features=2, names=list("abcde"))
    assert {label.get_text() for label in ax.get_yticklabels()} == {"b", "d"}
    shown = ax.images[0].get_array()
    assert shown.shape == (2, 2)
    assert shown[0, 0] == pytest.approx(shown[1, 0], rel=0.2)  # both features, with the same sign
    with pytest.raises(ValueError, match="Only a full metric has directions"):
        RankRFM(n_basis=20, max_rounds=1, random_state=0).fit(X, y, qid=qid).plot_directions()


# Bad input ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kernel": "linear"}, "one of 'rbf', 'laplacian', 'matern': found 'linear'"),
        ({"kernel": "precomputed"}, "one of 'rbf', 'laplacian', 'matern': found 'precomputed'"),
        ({"kernel": np.dot}, "one of 'rbf', 'laplacian', 'matern'"),
        ({"metric": "low"}, "metric must be 'diagonal' or 'full': found 'low'"),
        ({"max_rounds": -1}, "max_rounds must be an int of at least 0: found -1"),
        ({"max_rounds": True}, "max_rounds must be an int"),
        ({"gamma": "wide"}, "gamma of kernel='rbf' must be a number, None or 'median' or 'scale'"),
        ({"alphas": [0.0]}, "positive numbers"),
        ({"scoring": "best"}, "scoring must be one of"),
        ({"basis": "diverse"}, "basis must be 'uniform' or an array"),
    ],
)
def test_parameters_are_refused(options, message):
    X, y, qid = make_data()
    with pytest.raises(ValueError, match=message):
        RankRFM(**options).fit(X, y, qid=qid)


def test_constant_features_get_no_weight():
    X, y, qid = make_data()
    X = np.c_[X, np.full(60, 7.0)]
    model = RankRFM(max_rounds=1).fit(X, y, qid=qid)
    assert model.feature_importances_[-1] == 0.0
    np.testing.assert_allclose(
        model.predict(X), RankRFM(max_rounds=1).fit(X[:, :-1], y, qid=qid).predict(X[:, :-1])
    )


def test_all_gradients_zero_keeps_the_metric_and_warns():
    X, y, qid = make_data()
    with pytest.warns(UserWarning, match="All gradients of the model are zero"):
        model = RankRFM([1.0]).fit(np.ones_like(X), y, qid=qid)
    np.testing.assert_array_equal(model.metric_, 1.0)
    assert len(model.rounds_) == 1


def test_few_queries_and_one_query():
    X, y, qid = make_data(40, queries=2)
    assert RankRFM([0.1, 1.0], max_rounds=0, keep_predictions=True).fit(X, y, qid=qid).n_queries_ == 2
    model = RankRFM([0.1, 1.0, 10.0], max_rounds=0).fit(X, y)
    assert model.n_queries_ == 1 and model.best_score_ > 0.5
    one = RankRFM([0.1, 1.0], max_rounds=0).fit(X, y, qid=np.zeros(40))
    assert one.best_score_ > 0.5


def test_a_fold_with_every_basis_vector_is_refused():
    X, y, qid = make_data()
    with pytest.raises(ValueError, match="holds out every basis vector"):
        RankRFM([1.0], basis=[0, 1], cv=[np.arange(30), np.arange(30, 60)]).fit(X, y, qid=qid)
