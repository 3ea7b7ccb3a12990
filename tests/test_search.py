"""RLSCV, RankRLSCV and the permutation test."""

from __future__ import annotations

import itertools
import pickle
import warnings

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.linear_model import Ridge
from sklearn.metrics import r2_score
from sklearn.model_selection import KFold
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import parametrize_with_checks

import oracles
from preflearn import RLS, RLSCV, RankRLS, RankRLSCV
from preflearn.metrics import concordance, get_scorer, ndcg
from preflearn.model_selection import (
    ConformalRanker,
    cross_val_predict,
    leave_pair_out,
    leave_pair_out_tally,
    permutation_test,
)

ALPHAS = 2.0 ** np.arange(-8, 9, 4)


def make_data(m=60, n=4, queries=8, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(m, n))
    return X, np.sin(X[:, 0]) + 0.2 * rng.normal(size=m), rng.integers(0, queries, size=m)


@parametrize_with_checks(
    [
        RLSCV(alphas=[0.1, 1.0, 10.0]),
        RankRLSCV(alphas=[0.1, 1.0, 10.0]),
        RankRLSCV(),
        RankRLSCV(kernel="rbf", n_basis=0.5, random_state=0, alphas=[0.1, 1.0]),
    ],
    expected_failed_checks=lambda search: (
        {}
        if search.n_basis is None
        else {
            f"check_sample_weight_equivalence_on_{kind}_data": "the basis vectors are drawn from the rows"
            for kind in ("dense", "sparse")
        }
    ),
)
@pytest.mark.filterwarnings("ignore:The best alpha")
def test_scikit_learn_checks(estimator, check):
    check(estimator)


@pytest.mark.filterwarnings("ignore:The best alpha")
@pytest.mark.parametrize(
    "options",
    [{}, {"kernel": "rbf"}, {"kernel": "rbf", "n_basis": 20, "random_state": 0}, {"ties": "exclude"}],
)
def test_scores_of_the_grid_equal_refitting(options):
    X, y, qid = make_data()
    y = np.round(y, 1)
    model = RankRLSCV(ALPHAS, **options).fit(X, y, qid=qid)
    folds = [np.flatnonzero(qid == q) for q in np.unique(qid)]
    for alpha, score in zip(ALPHAS, model.cv_scores_, strict=True):
        held_out = oracles.refit_folds(RankRLS(alpha, **options), X, y, qid, folds)
        assert score == pytest.approx(concordance(y, held_out, qid))
    assert model.best_score_ == model.cv_scores_.max()
    assert model.alpha_ == ALPHAS[model.cv_scores_ == model.best_score_].max()
    plain = RankRLS(model.alpha_, **options).fit(X, y, qid=qid)
    np.testing.assert_allclose(model.predict(X), plain.predict(X))
    np.testing.assert_array_equal(model.rank(X, qid=qid), plain.rank(X, qid=qid))
    np.testing.assert_allclose(pickle.loads(pickle.dumps(model)).predict(X), model.predict(X))


@pytest.mark.filterwarnings("ignore:The best alpha")
def test_regression_is_scored_by_r2_of_leave_one_out():
    X, y, _ = make_data(25)
    model = RLSCV(ALPHAS, kernel="rbf").fit(X, y)
    folds = [[i] for i in range(25)]
    expected = [
        r2_score(y, oracles.refit_folds(RLS(alpha, kernel="rbf"), X, y, None, folds)) for alpha in ALPHAS
    ]
    np.testing.assert_allclose(model.cv_scores_, expected)
    np.testing.assert_allclose(model.predict(X), RLS(model.alpha_, kernel="rbf").fit(X, y).predict(X))
    assert hasattr(model, "intercept_")
    without = RLSCV(ALPHAS, fit_intercept=False).fit(X, y)
    assert not hasattr(without, "intercept_")


def outputs_of_their_own(m=60):
    """Outputs of different noise, which want different alphas."""
    X, y, qid = make_data(m)
    noise = np.random.default_rng(1).normal(size=(m, 3))
    return X, np.round(y[:, None] + noise * [0.0, 1.0, 4.0], 1), qid


@pytest.mark.filterwarnings("ignore:The best alpha")
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"solver": "dual"},
        {"solver": "cg"},
        {"kernel": "rbf"},
        {"kernel": "rbf", "cost": "relative"},
        {"kernel": "rbf", "ties": "exclude", "weighting": "query"},
        {"kernel": "rbf", "basis": np.arange(0, 60, 3)},
        {"kernel": "rbf", "basis": np.arange(0, 60, 3), "solver": "cg"},
    ],
    ids=str,
)
@pytest.mark.parametrize("learner", [RankRLSCV, RLSCV])
def test_an_alpha_for_each_output_is_what_it_would_choose_alone(learner, options, monkeypatch):
    monkeypatch.setattr("preflearn.squared.representations._STORED_BYTES", len(options) << 9)
    X, Y, qid = outputs_of_their_own()
    if learner is RLSCV:
        options = {
            name: value for name, value in options.items() if name not in ("cost", "ties", "weighting")
        }
    model = learner(ALPHAS, alpha_per_output=True, keep_predictions=True, cv=5, **options).fit(X, Y, qid=qid)
    assert model.cv_scores_.shape == (5, 3) and model.cv_predictions_.shape == (5, 60, 3)
    near = {"rtol": 1e-3, "atol": 1e-3} if options.get("solver") == "cg" else {"rtol": 1e-6, "atol": 1e-8}
    for k, y in enumerate(Y.T):
        alone = learner(ALPHAS, cv=5, **options).fit(X, y, qid=qid)
        assert model.alpha_[k] == alone.alpha_
        np.testing.assert_allclose(model.cv_scores_[:, k], alone.cv_scores_, atol=1e-6)
        np.testing.assert_allclose(model.predict(X)[:, k], alone.predict(X), **near)
    best = model.cv_scores_.max(axis=0)
    assert model.best_score_ == pytest.approx(best.mean()) and len(set(model.alpha_)) > 1


@pytest.mark.filterwarnings("ignore:The best alpha")
def test_a_kernel_grid_with_an_alpha_for_each_output():
    X, Y, qid = outputs_of_their_own()
    grid = {"gamma": [0.01, 0.3, 3.0]}
    model = RankRLSCV(ALPHAS, kernel="rbf", kernel_grid=grid, alpha_per_output=True).fit(X, Y, qid=qid)
    tried = [
        RankRLSCV(ALPHAS, kernel="rbf", gamma=gamma, alpha_per_output=True).fit(X, Y, qid=qid)
        for gamma in grid["gamma"]
    ]
    best = max(tried, key=lambda one: one.best_score_)
    assert model.best_kernel_ == {"gamma": best.gamma} and model.best_score_ == best.best_score_
    np.testing.assert_allclose(model.predict(X), best.predict(X))


@pytest.mark.filterwarnings("ignore:The best alpha")
def test_outputs_with_alphas_of_their_own_share_one_factorisation(monkeypatch):
    from preflearn.squared.holdout import dual

    made = []
    monkeypatch.setattr(
        dual, "TridiagonalForm", lambda *a, real=dual.TridiagonalForm: made.append(1) or real(*a)
    )
    X, Y, qid = outputs_of_their_own()
    RankRLSCV(kernel="rbf", alpha_per_output=True).fit(X, Y, qid=qid)
    assert len(made) == 1


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda model, X, Y, qid: model.fit_pairs(X, [[0, 1], [2, 3]]), "Preferences.*alpha_per_output=True"),
        (lambda model, X, Y, qid: model.fit_stream([(X, Y, qid)]), "fit_stream.*alpha_per_output=False"),
        (
            lambda model, X, Y, qid: model.set_params(cv="leave-pair-out").fit(X, Y),
            "leave-pair-out.*alpha_per_output=False",
        ),
        (
            lambda model, X, Y, qid: model.fit(X, Y, qid=qid).predict(X, return_std=True),
            "Standard deviations.*alpha_per_output",
        ),
        (lambda model, X, Y, qid: model.fit(X, Y, qid=qid).plot_cv_scores(), r"cv_scores_\[:, k\]"),
        (
            lambda model, X, Y, qid: ConformalRanker(model, coverage=0.5).fit(X, Y[:, 0], qid=qid),
            "alpha_per_output=False",
        ),
    ],
)
@pytest.mark.filterwarnings("ignore:The best alpha")
def test_what_takes_one_alpha_refuses_one_for_each_output(call, message):
    with pytest.raises(ValueError, match=message):
        call(RankRLSCV(ALPHAS, alpha_per_output=True), *outputs_of_their_own())


@pytest.mark.filterwarnings("ignore:The best alpha")
def test_measures_folds_and_callables():
    X, y, qid = make_data()
    grades = np.clip(np.round(y + 1), 0, 3)
    by_name = RankRLSCV(ALPHAS, scoring="ndcg").fit(X, grades, qid=qid)
    by_function = RankRLSCV(ALPHAS, scoring=lambda y, s, q: ndcg(y, s, q)).fit(X, grades, qid=qid)
    np.testing.assert_allclose(by_name.cv_scores_, by_function.cv_scores_)
    error = RankRLSCV(ALPHAS, scoring="disagreement_error").fit(X, y, qid=qid)
    right = RankRLSCV(ALPHAS).fit(X, y, qid=qid)
    np.testing.assert_allclose(error.cv_scores_, right.cv_scores_ - 1)
    assert error.alpha_ == right.alpha_
    folded = RankRLSCV(ALPHAS, cv=4).fit(X, y, qid=qid)
    assert not np.allclose(folded.cv_scores_, right.cv_scores_)
    grouped = RankRLSCV(ALPHAS, cv="leave-group-out").fit(X, y, groups=np.arange(60) // 6)
    assert grouped.best_score_ > 0.6


@pytest.mark.filterwarnings("ignore:The best alpha")
@pytest.mark.parametrize(
    "options", [{}, {"kernel": "rbf"}, {"kernel": "rbf", "n_basis": 8, "random_state": 0}]
)
def test_leave_pair_out_as_the_measure(options):
    X, y, _ = make_data(24)
    model = RankRLSCV([0.1, 10.0], cv="leave-pair-out", **options).fit(X, y)
    expected = [leave_pair_out_tally(RankRLS(alpha, **options), X, y).share for alpha in (0.1, 10.0)]
    np.testing.assert_allclose(model.cv_scores_, expected)


def test_a_global_ranking_is_not_pooled_over_folds():
    """Rows are compared inside a fold only: ten folds of a global ranking are averaged, not pooled."""
    X, y, _ = make_data(40)
    seen = []

    def spy(y, scores, qid):
        seen.append(len(np.unique(qid)))
        return concordance(y, scores, qid)

    RankRLSCV([1.0], scoring=spy).fit(X, y)
    assert seen == [10]


def test_automatic_grid_is_placed_by_the_spectrum():
    X, y, qid = make_data()
    small, large = RankRLSCV().fit(X, y, qid=qid), RankRLSCV().fit(100 * X, y, qid=qid)
    assert len(small.alphas_) == 31
    assert large.alphas_[0] / small.alphas_[0] == pytest.approx(100**2, rel=1)
    np.testing.assert_allclose(small.best_score_, large.best_score_, atol=0.02)


def test_kernel_parameters_are_searched_too():
    X, _, qid = make_data(80)
    y = np.cos(2 * X[:, 0])  # neither a line nor a spike at each row
    grid = {"gamma": [1e-4, 0.3, 1e3]}
    model = RankRLSCV(kernel="rbf", kernel_grid=grid).fit(X, y, qid=qid)
    assert model.best_kernel_ == {"gamma": 0.3}
    assert len(model.kernel_scores_) == 3
    assert model.best_score_ == max(entry["cv_scores"].max() for entry in model.kernel_scores_)
    plain = RankRLS(model.alpha_, kernel="rbf", gamma=0.3).fit(X, y, qid=qid)
    np.testing.assert_allclose(model.predict(X), plain.predict(X))


@pytest.mark.parametrize("measure", ["concordance", "ndcg@3"])
def test_a_kernel_grid_chooses_the_best_of_all_refits(measure):
    """Every kernel with every alpha, trained without each query in turn: the choice, its score and its model."""
    rng = np.random.default_rng(3)
    X, qid = rng.normal(size=(48, 3)), np.repeat(np.arange(8), 6)
    y = np.digitize(np.sin(2 * X[:, 0]) + 0.3 * rng.normal(size=48), [-0.5, 0.3, 0.8]).astype(float)
    grid, alphas = {"gamma": [0.05, 0.5, 3.0]}, [0.01, 1.0, 100.0]
    folds = [np.flatnonzero(qid == q) for q in range(8)]
    scorer, found = get_scorer(measure), {}
    for gamma, alpha in itertools.product(grid["gamma"], alphas):
        model = RankRLS(alpha, kernel="rbf", gamma=gamma)
        held_out = oracles.naive_hold_out(model, X, y, folds, qid=qid)
        found[gamma, alpha] = scorer.measure(y, held_out, qid)
    search = RankRLSCV(alphas, kernel="rbf", kernel_grid=grid, scoring=measure).fit(X, y, qid=qid)
    best = max(found, key=found.__getitem__)
    assert (search.best_kernel_["gamma"], search.alpha_) == best
    np.testing.assert_allclose(search.best_score_, found[best])
    for one in search.kernel_scores_:
        expected = [found[one["kernel"]["gamma"], alpha] for alpha in alphas]
        np.testing.assert_allclose(one["cv_scores"], expected, atol=1e-9)
    plain = RankRLS(best[1], kernel="rbf", gamma=best[0]).fit(X, y, qid=qid)
    np.testing.assert_allclose(search.predict(X), plain.predict(X), atol=1e-8)


def test_ties_go_to_the_stronger_regularisation():
    X = np.arange(12.0)[:, None]  # one feature: every alpha orders alike
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # all alike: no edge to warn of
        assert RankRLSCV([0.1, 5.0, 1.0]).fit(X, X.ravel()).alpha_ == 5.0


def test_the_edge_of_the_grid_warns():
    X, y, _ = make_data()
    with pytest.warns(UserWarning, match="smallest of the grid: try smaller ones"):
        RLSCV([1e4, 1e5]).fit(X, y)
    with pytest.warns(UserWarning, match="largest of the grid: try larger ones"):
        RLSCV([1e-9, 1e-8]).fit(X, np.random.default_rng(3).normal(size=60))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"alphas": []}, "non-empty sequence"),
        ({"alphas": [1.0, -1.0]}, "positive numbers"),
        ({"alphas": "many"}, "'auto' or a sequence"),
        ({"scoring": "accuracy"}, "scoring must be one of .*'accuracy'"),
        ({"cv": "leave-pair-out", "scoring": "ndcg"}, "another measure: leave scoring out"),
    ],
)
def test_bad_searches_are_refused(options, message):
    X, y, _ = make_data()
    with pytest.raises(ValueError, match=message):
        RankRLSCV(**options).fit(X, y)


def test_leave_pair_out_with_queries_is_refused():
    X, y, qid = make_data()
    with pytest.raises(ValueError, match="global ranking"):
        RankRLSCV(cv="leave-pair-out").fit(X, y, qid=qid)


@pytest.mark.filterwarnings("ignore:The best alpha")
def test_the_plot_marks_the_chosen_alpha():
    pytest.importorskip("matplotlib").use("Agg")
    X, y, qid = make_data()
    model = RankRLSCV(ALPHAS).fit(X, y, qid=qid)
    ax = model.plot_cv_scores()
    np.testing.assert_allclose(ax.lines[0].get_ydata(), model.cv_scores_)
    assert ax.lines[1].get_xdata()[0] == model.alpha_


@pytest.mark.parametrize("with_queries", [True, False])
@pytest.mark.parametrize(
    "options",
    [{}, {"kernel": "rbf"}, {"cost": "unit"}, {"kernel": "rbf", "n_basis": 15, "random_state": 0}],
)
def test_permutations_as_outputs_equal_one_model_each(with_queries, options, monkeypatch):
    monkeypatch.setattr("preflearn.model_selection.permutation._NUMBERS", 2 * 40)
    X, y, qid = make_data(40, queries=4)
    qid = qid if with_queries else None
    cv = None if with_queries else [np.arange(0, 20), np.arange(20, 40)]
    result = permutation_test(RankRLS(**options), X, y, qid=qid, n_permutations=5, random_state=0, cv=cv)
    from preflearn.comparisons import encode_queries
    from preflearn.model_selection.permutation import _permuted

    queries = encode_queries(qid, 40)
    generator = np.random.default_rng(np.random.RandomState(0).randint(np.iinfo(np.int32).max))
    Y = _permuted(y, queries, 5, generator)
    folds = [queries.rows(q) for q in range(queries.n_groups)] if with_queries else cv
    within = queries.codes if with_queries else np.arange(40) // 20
    for k, value in enumerate([result.value, *result.permuted]):
        held_out = oracles.refit_folds(RankRLS(**options), X, Y[:, k], qid, folds)
        assert value == pytest.approx(concordance(Y[:, k], held_out, within))
        np.testing.assert_allclose(np.sort(Y[queries.codes == 0, k]), np.sort(y[queries.codes == 0]))


def test_permutation_test_tells_signal_from_none():
    X, y, _ = make_data()
    found = permutation_test(RankRLS(), X, y, n_permutations=199, random_state=0)
    assert found.pvalue == pytest.approx(1 / 200)
    assert "p = 0.005 over 199 permutations" in str(found)
    noise = np.random.default_rng(5).normal(size=60)
    assert permutation_test(RankRLS(), X, noise, n_permutations=199, random_state=0).pvalue > 0.05
    refitted = permutation_test(Ridge(), X, y, n_permutations=9, random_state=0)
    assert refitted.pvalue == pytest.approx(0.1)


def test_bad_permutation_tests_are_refused():
    X, y, _ = make_data()
    with pytest.raises(ValueError, match="n_permutations"):
        permutation_test(RankRLS(), X, y, n_permutations=0)
    with pytest.raises(ValueError, match="one score per row"):
        permutation_test(RankRLS(), X, np.stack([y, y], axis=1))


def test_a_search_is_searched_again_in_every_fold():
    X, y, qid = make_data(m=24, queries=3)
    search = RankRLSCV([0.1, 1.0, 10.0, 1000.0])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = cross_val_predict(search, X, y, qid=qid)
        for query in range(3):
            test = qid == query
            model = clone(search).fit(X[~test], y[~test], qid=qid[~test])
            np.testing.assert_allclose(found[test], model.predict(X[test]))
        _, pair = leave_pair_out(RLSCV([0.1, 10.0]), X, y, pairs=[[3, 5]])
        rest = np.delete(np.arange(24), [3, 5])
        model = RLSCV([0.1, 10.0]).fit(X[rest], y[rest])
        np.testing.assert_allclose(pair[0], model.predict(X[[3, 5]]))
        assert permutation_test(search, X, y, qid=qid, n_permutations=2).permuted.shape == (2,)


@pytest.mark.parametrize("scoring", [None, "ndcg"])
def test_ranking_measures_of_single_rows_are_refused(scoring):
    X, y, qid = make_data(m=24, queries=3)
    with pytest.raises(ValueError, match="no two are held out together"):
        RankRLSCV([0.1, 1.0], cv="leave-one-out", scoring=scoring).fit(X, np.abs(y), qid=qid)


def test_permutations_of_refitted_models_keep_groups_out():
    X, y, _ = make_data(m=24)
    folds = [test for _, test in KFold(4, shuffle=True, random_state=0).split(X)]
    options = {"groups": np.arange(24) // 3, "cv": folds, "n_permutations": 3, "random_state": 0}
    by_algebra = permutation_test(RLS(1.0), X, y, **options)
    by_refitting = permutation_test(make_pipeline(RLS(1.0)), X, y, **options)
    np.testing.assert_allclose(by_refitting.permuted, by_algebra.permuted)
    assert by_refitting.value == pytest.approx(by_algebra.value)


def test_permutations_go_on_where_the_kernel_values_have_too_few_digits(monkeypatch):
    monkeypatch.setattr("preflearn.model_selection.permutation._NUMBERS", 8 * 60)
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(60, 3)), rng.normal(size=60)
    model = RankRLS(1e-9, kernel="rbf", gamma=0.05, n_basis=15, random_state=0)
    result = permutation_test(model, X, y, n_permutations=20, cv=5, random_state=0)
    assert 0 < result.pvalue <= 1 and np.isfinite(result.permuted).all()
