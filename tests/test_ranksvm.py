"""RankSVM against explicit pairs: the dual with one variable per pair, and refitting."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.utils.estimator_checks import parametrize_with_checks

from oracles import ranksvm_minimum, ranksvm_objective, untied_pairs
from preflearn import RankSVM, RankSVMCV
from preflearn.metrics import concordance
from preflearn.model_selection import QueryKFold
from strategies import examples, ranking_problems

LOSSES = ["squared_hinge", "hinge"]


@parametrize_with_checks(
    [RankSVM(), RankSVM(loss="hinge"), RankSVM(kernel="rbf"), RankSVMCV(alphas=[1.0, 10.0])]
)
def test_scikit_learn_conventions(estimator, check):
    check(estimator)


def make_data(m=60, n=4, n_queries=5, seed=0, levels=None):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(m, n))
    y = X @ rng.normal(size=n) + rng.normal(size=m)
    if levels is not None:
        y = np.digitize(y, np.quantile(y, np.linspace(0, 1, levels + 1)[1:-1])).astype(float)
    return X, y, rng.permutation(np.arange(m) % n_queries)


def assert_minimal(features, weights, pairs, alpha, loss, rtol=2e-4):
    upper, lower = ranksvm_minimum(features, pairs, alpha, loss)
    found = ranksvm_objective(features, weights, pairs, alpha, loss)
    assert found >= lower - 1e-9 * abs(lower)
    assert found <= upper * (1 + rtol) + 1e-12


@examples(25)
@given(
    ranking_problems(max_rows=16),
    st.sampled_from(LOSSES),
    st.sampled_from(["pair", "item", "query"]),
    st.sampled_from([1e-2, 1.0, 100.0]),
)
def test_reaches_the_minimum_over_explicit_pairs(problem, loss, weighting, alpha):
    model = RankSVM(alpha, loss=loss, weighting=weighting, max_iter=1000).fit(
        problem.X, problem.y, qid=problem.qid
    )
    pairs = untied_pairs(problem.y, problem.qid, weighting)
    found = ranksvm_objective(problem.X, model.coef_, pairs, alpha, loss)
    assert model.objective_ == pytest.approx(found, rel=1e-7)
    assert model.n_comparisons_ == len(pairs[0])
    assert_minimal(problem.X, model.coef_, pairs, alpha, loss)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("levels", [None, 2, 5])
@pytest.mark.parametrize("alpha", [1e-2, 1e2])
def test_gap_bounds_the_distance_to_the_minimum(loss, levels, alpha):
    X, y, qid = make_data(m=40, levels=levels)
    model = RankSVM(alpha, loss=loss).fit(X, y, qid=qid)
    upper, lower = ranksvm_minimum(X, untied_pairs(y, qid), alpha, loss)
    assert lower - 1e-9 <= model.objective_ <= upper * (1 + 2e-4)
    assert model.objective_ - model.duality_gap_ <= upper + 1e-9


@pytest.mark.parametrize("weighting", ["item", "query"])
def test_hinge_with_fractional_weights_to_a_narrow_rounding(weighting):
    X, y, qid = make_data(m=300, n_queries=30)
    for alpha in (1e-4, 1e-1):
        model = RankSVM(alpha, loss="hinge", weighting=weighting, tol=1e-6).fit(X, y, qid=qid)
        assert model.duality_gap_ <= 1e-6 * model.objective_


def test_a_smaller_tol_is_a_smaller_gap():
    X, y, qid = make_data(m=200)
    for loss in LOSSES:
        gaps = [RankSVM(1.0, loss=loss, tol=tol).fit(X, y, qid=qid).duality_gap_ for tol in (1e-1, 1e-7)]
        assert gaps[1] <= gaps[0]
    tight = RankSVM(1.0, loss="hinge", tol=1e-7).fit(X, y, qid=qid)
    assert tight.duality_gap_ <= 1e-7 * tight.objective_
    smooth = RankSVM(1.0, tol=1e-12).fit(X, y, qid=qid)
    first = RankSVM(1.0, tol=0.9, max_iter=1).fit(X, y, qid=qid)
    assert smooth.gradient_norm_ < 1e-6 * max(first.gradient_norm_, 1.0)


@pytest.mark.parametrize("loss", LOSSES)
def test_order_of_rows_and_labels_of_queries_do_not_matter(loss):
    X, y, qid = make_data(m=90)
    model = RankSVM(0.1, loss=loss, tol=1e-8).fit(X, y, qid=qid)
    order = np.random.default_rng(1).permutation(90)
    names = np.array([f"query {q}" for q in qid])
    other = RankSVM(0.1, loss=loss, tol=1e-8).fit(X[order], y[order], qid=names[order])
    np.testing.assert_allclose(other.coef_, model.coef_, rtol=1e-3, atol=1e-3)
    # Only the order of the scores counts.
    other = RankSVM(0.1, loss=loss, tol=1e-8).fit(X, np.exp(y), qid=qid)
    np.testing.assert_allclose(other.coef_, model.coef_, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("loss", LOSSES)
def test_sparse_and_single_precision_features(loss):
    X, y, qid = make_data(m=200, n=8)
    X[np.random.default_rng(0).random(X.shape) < 0.7] = 0.0
    dense = RankSVM(loss=loss, tol=1e-6).fit(X, y, qid=qid)
    sparse = RankSVM(loss=loss, tol=1e-6).fit(sp.csr_matrix(X), y, qid=qid)
    single = RankSVM(loss=loss, tol=1e-5).fit(X.astype(np.float32), y, qid=qid)
    assert sparse.objective_ == pytest.approx(dense.objective_, rel=1e-5)
    assert single.objective_ == pytest.approx(dense.objective_, rel=1e-4)
    # The objective is alpha-strongly convex: with gaps g and g' two solutions are no farther apart than this.
    apart = np.sqrt(dense.duality_gap_) + np.sqrt(sparse.duality_gap_)
    assert np.linalg.norm(sparse.coef_ - dense.coef_) <= apart
    np.testing.assert_allclose(sparse.predict(sp.csr_array(X)), X @ sparse.coef_)


def test_wide_sparse_features_take_the_diagonal_preconditioner():
    rng = np.random.default_rng(0)
    X = sp.random_array((300, 7000), density=0.01, rng=rng, format="csr")
    y = X @ rng.normal(size=7000) + 0.1 * rng.normal(size=300)
    model = RankSVM(1.0).fit(X, y)
    K = (X @ X.T).toarray()
    kernel = RankSVM(1.0, kernel="precomputed").fit(K, y)
    assert model.objective_ == pytest.approx(kernel.objective_, rel=1e-4)
    np.testing.assert_allclose(model.predict(X), kernel.predict(K), rtol=1e-2, atol=2e-2)


@pytest.mark.parametrize("loss", LOSSES)
def test_fit_pairs_equals_fit_on_the_pairs_of_the_scores(loss):
    X, y, qid = make_data()
    worse, better, _ = untied_pairs(y, qid)
    scored = RankSVM(loss=loss, tol=1e-6).fit(X, y, qid=qid)
    listed = RankSVM(loss=loss, tol=1e-6).fit_pairs(X, np.stack([better, worse], axis=1))
    assert listed.objective_ == pytest.approx(scored.objective_, rel=3e-6)
    assert listed.n_comparisons_ == len(worse)


@examples(20)
@given(st.integers(0, 2**32 - 1), st.sampled_from(LOSSES))
def test_weighted_preferences(seed, loss):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(10, 3))
    better = rng.integers(0, 10, 25)
    worse = (better + rng.integers(1, 10, 25)) % 10
    weight = rng.choice([0.5, 1.0, 3.0], 25)
    model = RankSVM(0.3, loss=loss, max_iter=1000).fit_pairs(
        X, np.stack([better, worse], axis=1), weight=weight
    )
    assert_minimal(X, model.coef_, (worse, better, weight), 0.3, loss)
    # A weight of two is the pair twice.
    pairs = np.stack([better, worse], axis=1)
    twice = RankSVM(0.3, loss=loss).fit_pairs(X, np.concatenate([pairs, pairs]))
    weighted = RankSVM(0.3, loss=loss).fit_pairs(X, pairs, weight=2.0)
    assert twice.objective_ == pytest.approx(weighted.objective_, rel=2e-4)


@pytest.mark.parametrize("loss", LOSSES)
def test_full_kernel_is_the_kernel_machine(loss):
    X, y, qid = make_data(m=40, levels=4)
    model = RankSVM(0.1, kernel="rbf", gamma=0.3, loss=loss).fit(X, y, qid=qid)
    K = rbf_kernel(X, gamma=0.3)
    values, vectors = np.linalg.eigh(K)
    features = vectors * np.sqrt(np.maximum(values, 0.0))
    pairs = untied_pairs(y, qid)
    upper, lower = ranksvm_minimum(features, pairs, 0.1, loss)
    f = model.predict(X)
    slack = np.maximum(1.0 - f[pairs[1]] + f[pairs[0]], 0.0)
    norm = model.dual_coef_ @ K @ model.dual_coef_
    found = (slack if loss == "hinge" else slack**2).sum() + 0.1 * norm
    assert model.objective_ == pytest.approx(found, rel=1e-6)
    assert lower * (1 - 1e-6) <= found <= upper * (1 + 2e-4)
    precomputed = RankSVM(0.1, kernel="precomputed", loss=loss).fit(K, y, qid=qid)
    np.testing.assert_allclose(precomputed.predict(K), f, atol=1e-6)
    callable_kernel = RankSVM(0.1, kernel=lambda a, b: np.exp(-0.3 * ((a - b) ** 2).sum()), loss=loss)
    np.testing.assert_allclose(callable_kernel.fit(X, y, qid=qid).predict(X), f, atol=1e-4)


@pytest.mark.parametrize("loss", LOSSES)
def test_reduced_set(loss):
    X, y, qid = make_data(m=80, n_queries=10)
    options = {"kernel": "rbf", "gamma": 0.3, "loss": loss}
    basis = np.arange(0, 80, 4)
    model = RankSVM(0.1, basis=basis, **options).fit(X, y, qid=qid)
    assert model.dual_coef_.shape == (20,)
    np.testing.assert_array_equal(model.basis_indices_, basis)
    K = rbf_kernel(X, X[basis], gamma=0.3)
    np.testing.assert_allclose(model.predict(X), K @ model.dual_coef_, rtol=1e-9)
    values, vectors = np.linalg.eigh(rbf_kernel(X[basis], gamma=0.3))
    features = K @ (vectors / np.sqrt(values))
    upper, lower = ranksvm_minimum(features, untied_pairs(y, qid), 0.1, loss)
    assert lower * (1 - 1e-6) <= model.objective_ <= upper * (1 + 2e-4)
    whole = RankSVM(0.1, n_basis=80, random_state=0, **options).fit(X, y, qid=qid)
    full = RankSVM(0.1, **options).fit(X, y, qid=qid)
    assert whole.objective_ == pytest.approx(full.objective_, rel=2e-4)


def test_many_outputs_are_many_fits():
    X, y, qid = make_data()
    Y = np.stack([y, -y, np.round(y)], axis=1)
    model = RankSVM().fit(X, Y, qid=qid)
    assert model.coef_.shape == (3, 4) and model.objective_.shape == (3,)
    for k in range(3):
        one = RankSVM().fit(X, Y[:, k], qid=qid)
        np.testing.assert_allclose(model.coef_[k], one.coef_)
        assert model.objective_[k] == one.objective_


def test_predict_rank_and_score_agree():
    X, y, qid = make_data()
    model = RankSVM().fit(X, y, qid=qid)
    scores = model.predict(X)
    assert model.score(X, y, qid=qid) == concordance(y, scores, qid)
    positions = model.rank(X, qid=qid)
    for q in np.unique(qid):
        np.testing.assert_array_equal(positions[qid == q].argsort(), (-scores[qid == q]).argsort())


def test_inputs_are_not_modified():
    X, y, qid = make_data()
    for data in (X, sp.csr_matrix(X)):
        before = data.copy(), y.copy(), qid.copy()
        RankSVM(loss="hinge").fit(data, y, qid=qid)
        assert abs(data - before[0]).max() == 0
        np.testing.assert_array_equal(y, before[1])
        np.testing.assert_array_equal(qid, before[2])


def test_warning_says_what_to_do():
    X, y, qid = make_data()
    for loss in LOSSES:
        with pytest.warns(
            ConvergenceWarning, match="raise max_iter .* or tol .* scale the features.* larger alpha"
        ):
            RankSVM(1e-6, loss=loss, max_iter=1, tol=1e-12).fit(X, y, qid=qid)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        RankSVM(1e-6).fit(X, y, qid=qid)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"loss": "logistic"}, "loss must be"),
        ({"weighting": "row"}, "weighting must be"),
        ({"tol": 0.0}, "tol is the relative accuracy"),
        ({"max_iter": 0}, "max_iter must be"),
        ({"alpha": 0.0}, "alpha must be"),
        ({"gamma": 2.0}, "does not take gamma"),
        ({"kernel": "rbf", "n_basis": 1000}, "larger than the number of rows"),
    ],
)
def test_refusals(options, message):
    X, y, qid = make_data()
    with pytest.raises(ValueError, match=message):
        RankSVM(**options).fit(X, y, qid=qid)


def test_refuses_data_without_pairs_and_ignored_options():
    X, y, qid = make_data()
    with pytest.raises(ValueError, match="no pair to learn from"):
        RankSVM().fit(X, qid.astype(float), qid=qid)
    with pytest.raises(ValueError, match="weighting='item' would be ignored"):
        RankSVM(weighting="item").fit_pairs(X, [[0, 1]])
    with pytest.raises(ValueError, match="prefers row 0 to itself"):
        RankSVM().fit_pairs(X, [[0, 0]])
    with pytest.raises(ValueError, match="must not be negative"):
        RankSVM().fit_pairs(X, [[0, 1]], weight=[-1.0])
    with pytest.raises(ValueError, match="overflow"), np.errstate(all="ignore"):
        RankSVM().fit(1e200 * X, y, qid=qid)


def test_verbose_says_what_is_going_on(capfd):
    X, y, qid = make_data()
    RankSVM(verbose=1).fit(X, y, qid=qid)
    assert "[RankSVM] squared_hinge over" in capfd.readouterr().err
    RankSVM().fit(X, y, qid=qid)
    assert capfd.readouterr().err == ""


# ------------------------------------------------------------------------------------------------ cross-validation


@pytest.mark.filterwarnings("ignore:The best alpha")
@pytest.mark.parametrize("options", [{}, {"kernel": "rbf", "gamma": 0.2}, {"loss": "hinge"}])
def test_cross_validation_equals_refitting(options):
    X, y, qid = make_data(m=90, n_queries=9)
    alphas, tight = [0.1, 10.0, 1000.0], {"tol": 1e-8, "max_iter": 2000, **options}
    model = RankSVMCV(alphas, cv=3, keep_predictions=True, **tight).fit(X, y, qid=qid)
    for k, alpha in enumerate(alphas):
        held_out = model.cv_predictions_[k]
        for fold, (train, test) in enumerate(QueryKFold(3).split(X, qid=qid)):
            one = RankSVM(alpha, **tight).fit(X[train], y[train], qid=qid[train])
            # Two solutions with gaps up to g are at most 2 sqrt(g / alpha) apart in the norm of the kernel.
            gap = one.tol * one.objective_
            reach = 1.0 if "kernel" in options else np.linalg.norm(X[test], axis=1)
            apart = 2 * np.sqrt(gap / alpha) * reach
            assert (np.abs(held_out[test] - one.predict(X[test])) <= apart).all()
            assert model.fold_scores_[k, fold] == concordance(y[test], held_out[test], qid[test])
        assert model.cv_scores_[k] == pytest.approx(concordance(y, held_out, qid))
    assert model.best_score_ == model.cv_scores_.max()
    best = np.isclose(model.cv_scores_, model.best_score_, rtol=0, atol=1e-12)
    assert model.alpha_ == max(np.array(alphas)[best])
    final = RankSVM(model.alpha_, **tight).fit(X, y, qid=qid)
    np.testing.assert_allclose(model.predict(X), final.predict(X), rtol=1e-6, atol=1e-6)


def test_precomputed_kernel_and_scoring_by_name():
    X, y, qid = make_data(m=90, n_queries=9, levels=3)
    K = rbf_kernel(X, gamma=0.2)
    named = RankSVMCV([1.0, 10.0], cv=3, kernel="precomputed", scoring="ndcg@5").fit(K, y, qid=qid)
    items = RankSVMCV([1.0, 10.0], cv=3, kernel="rbf", gamma=0.2, scoring="ndcg@5").fit(X, y, qid=qid)
    np.testing.assert_allclose(named.cv_scores_, items.cv_scores_, atol=1e-6)
    own = RankSVMCV([1.0, 10.0], cv=3, kernel="rbf", gamma=0.2, scoring=lambda y, p, qid: 1.0).fit(
        X, y, qid=qid
    )
    assert own.alpha_ == 10.0  # the largest of equally good ones


def test_automatic_candidates_follow_the_scale_of_the_data():
    X, y, qid = make_data(m=90, n_queries=9)
    small, large = (RankSVMCV(cv=3).fit(scale * X, y, qid=qid) for scale in (1.0, 1000.0))
    np.testing.assert_allclose(large.alphas_, 1e6 * small.alphas_)
    np.testing.assert_allclose(large.cv_scores_, small.cv_scores_, atol=1e-6)
    assert small.alphas_.shape == (9,)


def test_folds_of_rows_without_queries():
    X, y, _ = make_data(m=90)
    model = RankSVMCV([1.0], cv=3).fit(X, y)
    assert model.fold_scores_.shape == (1, 3)
    given = [(np.arange(60), np.arange(60, 90))]
    assert RankSVMCV([1.0], cv=given).fit(X, y).fold_scores_.shape == (1, 1)
    with pytest.raises(ValueError, match="no two are held out together"):
        RankSVMCV([1.0], cv="leave-one-out").fit(X, y)
    with pytest.raises(ValueError, match="alphas must be"):
        RankSVMCV("grid").fit(X, y)
    with pytest.raises(ValueError, match="one output"):
        RankSVMCV([1.0]).fit(X, np.stack([y, y], axis=1))


def test_clone_keeps_the_parameters():
    model = RankSVMCV([1.0], loss="hinge", cv=3)
    assert clone(model).get_params() == model.get_params()


@pytest.mark.parametrize("loss", ["hinge", "squared_hinge"])
def test_the_duality_gap_is_within_tol_or_warned_of(loss):
    """Small alphas, other scales and tied scores: the gap is what `tol` says whenever no warning says otherwise."""
    rng, n_silent = np.random.default_rng(0), 0
    for _ in range(60):
        m, n = rng.integers(5, 40), rng.integers(1, 8)
        X = rng.normal(size=(m, n)) * 10.0 ** rng.integers(-3, 4)
        y = rng.integers(0, 4, size=m).astype(float) if rng.random() < 0.5 else rng.normal(size=m)
        alpha, tol = 10.0 ** rng.uniform(-8, 2), 10.0 ** float(rng.choice([-4, -6, -8]))
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            model = RankSVM(alpha, loss=loss, tol=tol).fit(X, y)
        if not any(issubclass(one.category, ConvergenceWarning) for one in caught):
            n_silent += 1
            assert model.duality_gap_ <= tol * model.objective_
    assert n_silent > 50
