"""Sets, ranks and cut-offs with a guarantee, against refitting without every query."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.base import BaseEstimator
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import oracles
from preflearn import RLS, AutoRanker, RankRLS, RankRLSCV, RankSVM
from preflearn.comparisons import encode_queries
from preflearn.metrics import ndcg
from preflearn.metrics.calibration import calibration_of_preferences
from preflearn.model_selection import ConformalRanker, HeldOut, RiskControlledRanker
from preflearn.model_selection._calibration import (
    DISTANCES,
    Calibration,
    SetChoice,
    distances,
    ndcg_gains,
    rank_bounds,
    rank_needs,
    share_interval,
)
from strategies import examples

TARGETS = (("best", 1), ("top-k", 3), ("any-relevant", 1), ("all-relevant", 1))


def draw(rng: np.random.Generator, n_queries: int, *, noise: float = 2.0, graded: bool = True):
    sizes = rng.integers(8, 20, size=n_queries)
    qid = np.repeat(np.arange(n_queries), sizes)
    X = rng.normal(size=(qid.shape[0], 4))
    u = X @ [1.0, 0.8, 0.5, 0.2] + noise * rng.normal(size=qid.shape[0])
    return X, (np.digitize(u, [1.0, 2.5, 4.0]).astype(float) if graded else u), qid


def small_problem(seed: int):
    rng = np.random.default_rng(seed)
    return draw(rng, 14)


@pytest.mark.parametrize(("target", "k"), TARGETS)
@pytest.mark.parametrize("estimator", [RankRLS(alpha=0.3), RankRLS(kernel="rbf"), RLS(alpha=0.3)], ids=str)
def test_cutoff_is_that_of_refitting_without_every_query(estimator, target, k) -> None:
    X, y, qid = small_problem(0)

    def refitted(train, test):
        extra = {} if isinstance(estimator, RLS) else {"qid": qid[train]}
        return estimator.fit(X[train], y[train], **extra).predict(X[test])

    found = ConformalRanker(estimator, coverage=0.8, target=target, k=k, distance="gap").fit(X, y, qid=qid)
    assert found.threshold_ == pytest.approx(
        oracles.conformal_threshold(refitted, y, qid, 0.8, target, k), rel=1e-8
    )
    assert found.n_calibration_queries_ == sum(
        oracles.can_be_held(y[qid == q], target) for q in np.unique(qid)
    )
    scores = found.predict(X)
    wanted = np.concatenate(
        [scores[qid == q].max() - scores[qid == q] <= found.threshold_ for q in np.unique(qid)]
    )
    np.testing.assert_array_equal(found.predict_set(X, qid=qid), wanted)


@given(seed=st.integers(0, 10**6), target=st.sampled_from(TARGETS), kind=st.sampled_from(DISTANCES))
@examples(40)
def test_needs_are_where_sets_begin_to_hold(seed, target, kind) -> None:
    rng = np.random.default_rng(seed)
    qid = np.sort(rng.integers(0, 4, size=20))
    y = rng.integers(-1, 3, size=20).astype(float)
    scores = rng.normal(size=20).round(1)  # ties
    choice = SetChoice(Calibration(scores, y, qid), *target, [kind])
    queries = encode_queries(qid, 20)
    far = distances(kind, scores, queries)
    wanted = []
    for query in range(queries.n_groups):
        rows = queries.rows(query)
        if oracles.can_be_held(y[rows], target[0]):
            wanted.append(min(t for t in far[rows] if oracles.set_holds(y[rows], far[rows] <= t, *target)))
        # Whatever is shown is the top of the list.
        order = np.argsort(-scores[rows])
        assert (np.diff(far[rows][order]) >= 0).all()
    np.testing.assert_array_equal(choice.needs[kind], wanted)


@given(seed=st.integers(0, 10**6))
@examples(40)
def test_needed_widths_of_ranks(seed) -> None:
    rng = np.random.default_rng(seed)
    qid = np.sort(rng.integers(0, 3, size=16))
    y, scores = rng.integers(0, 4, size=16).astype(float), rng.normal(size=16).round(1)
    queries = encode_queries(qid, 16)
    needs, bounds = (
        rank_needs(y, scores, queries),
        rank_bounds(scores, np.full(queries.n_groups, 0.7500001), queries),
    )
    for query in range(queries.n_groups):
        rows = queries.rows(query)
        for place, row in enumerate(rows):
            assert needs[row] == pytest.approx(
                oracles.needed_rank_width(y[rows], scores[rows], place), abs=1e-9
            )
            assert tuple(bounds[row]) == oracles.rank_interval(scores[rows], place, 0.7500001)


@pytest.mark.parametrize(("loss", "k"), [("recall", None), ("recall", 2), ("ndcg", None)])
def test_risk_is_that_of_the_lists_shown(loss, k) -> None:
    rng = np.random.default_rng(3)
    X, y, qid = draw(rng, 60, noise=0.5)
    sure = RiskControlledRanker(RankRLS(), risk=0.15, loss=loss, k=k).fit(X, y, qid=qid)
    scores = HeldOut(RankRLS(), X, y, qid=qid).predict("leave-query-out")[0]

    def total(threshold: float) -> float:
        losses = []
        for q in np.unique(qid[y > 0]):
            rows = qid == q
            gaps = scores[rows].max() - scores[rows]
            losses.append(oracles.loss_of_shown(y[rows], scores[rows], gaps <= threshold, loss, k))
        return (sum(losses) + 1) / (len(losses) + 1)

    gaps = np.concatenate([scores[qid == q].max() - scores[qid == q] for q in np.unique(qid)])
    assert total(sure.threshold_) <= 0.15 + 1e-9
    assert total(max(gaps[gaps < sure.threshold_ * (1 - 1e-9)])) > 0.15
    n = sure.n_calibration_queries_
    assert n == len(np.unique(qid[y > 0]))
    assert sure.risk_ == pytest.approx((total(sure.threshold_) * (n + 1) - 1) / n, abs=1e-9)
    assert 0 < sure.predict_set(X, qid=qid).mean() < 1


@pytest.mark.parametrize("cv", ["leave-query-out", "prefit"])
def test_new_queries_are_covered_as_often_as_asked(cv) -> None:
    covered, ranks = {target: [] for target, _ in TARGETS}, []
    for seed in range(40):
        rng = np.random.default_rng(seed)
        X, y, qid = draw(rng, 60)
        X_new, y_new, qid_new = draw(rng, 60)
        estimator = RankRLS()
        if cv == "prefit":
            estimator = estimator.fit(*draw(rng, 30)[:2])
        for target, k in TARGETS:
            sure = ConformalRanker(estimator, coverage=0.9, target=target, k=k, cv=cv).fit(X, y, qid=qid)
            shown = sure.predict_set(X_new, qid=qid_new)
            for q in np.unique(qid_new):
                rows = qid_new == q
                if oracles.can_be_held(y_new[rows], target):
                    covered[target].append(oracles.set_holds(y_new[rows], shown[rows], target, k))
        intervals = sure.predict_rank_interval(X_new, qid=qid_new)
        for q in np.unique(qid_new)[:20]:
            values, found = y_new[qid_new == q], intervals[qid_new == q]
            first = np.array([1 + np.sum(values > value) for value in values])
            last = np.array([np.sum(values >= value) for value in values])
            ranks.append(np.mean((found[:, 0] <= last) & (found[:, 1] >= first)))
    for target, found in covered.items():
        assert 0.875 < np.mean(found) < 0.93, target  # a standard error of 0.008
    assert 0.89 < np.mean(ranks) < 0.95  # 1 / 61 more than asked is kept for the new query


def test_choice_of_distance_and_measured_coverage() -> None:
    rng = np.random.default_rng(0)
    X, y, qid = draw(rng, 80, graded=False)
    scale = np.exp(rng.normal(size=80))[
        qid
    ]  # queries whose scores differ in scale: gaps alone make large sets
    sure = ConformalRanker(RankRLS(), coverage=0.9).fit(X * scale[:, None], y * scale, qid=qid)
    by_gap = ConformalRanker(RankRLS(), coverage=0.9, distance="gap").fit(
        X * scale[:, None], y * scale, qid=qid
    )
    assert sure.distance_ != "gap"
    assert sure.set_sizes_.mean() < 0.8 * by_gap.set_sizes_.mean()
    low, high = sure.coverage_interval_
    assert low < sure.coverage_ < high
    assert low < 0.9 < high
    assert sure.set_sizes_.shape == (80,)
    assert sure.set_sizes_.min() >= 1


@given(seed=st.integers(0, 10**6), coverage=st.sampled_from([0.6, 0.75, 0.9]))
@examples(40)
def test_the_distance_with_the_smallest_sets_over_high_coverages_is_chosen(seed, coverage) -> None:
    rng = np.random.default_rng(seed)
    qid = np.repeat(np.arange(19), 6)
    y = rng.normal(size=114)
    scores = (y + rng.normal(size=114)) * np.exp(rng.normal(size=19))[qid]
    choice = SetChoice(Calibration(scores, y, qid), "best", 1)
    queries = encode_queries(qid, 114)
    sizes = {}
    for kind in DISTANCES:
        far, needs = distances(kind, scores, queries), np.sort(choice.needs[kind])
        shown = [(far <= needs[k]).sum() for k in range(19) if (k + 1) / 20 >= 1 - 2 * (1 - coverage) - 1e-9]
        sizes[kind] = np.mean(np.log(shown)) - (kind == "softmax") / np.sqrt(19)
    assert sizes[choice.choose(coverage)] == pytest.approx(min(sizes.values()))


def test_share_interval_is_exact() -> None:
    from scipy.stats import binomtest

    for right, n in ((0, 5), (5, 5), (7, 30)):
        wanted = binomtest(right, n).proportion_ci(method="exact")
        assert share_interval(right, n) == pytest.approx((wanted.low, wanted.high))


def test_another_coverage_without_refitting() -> None:
    X, y, qid = draw(np.random.default_rng(1), 60)
    sure = ConformalRanker(RankRLS()).fit(X, y, qid=qid)
    other = ConformalRanker(RankRLS(), coverage=0.7).fit(X, y, qid=qid)
    np.testing.assert_array_equal(sure.predict_set(X, qid=qid, coverage=0.7), other.predict_set(X, qid=qid))
    np.testing.assert_array_equal(
        sure.predict_rank_interval(X, qid=qid, coverage=0.7), other.predict_rank_interval(X, qid=qid)
    )
    with pytest.raises(ValueError, match="at least 100 queries"):
        sure.predict_set(X, qid=qid, coverage=0.99)
    coverages, sizes = sure.size_curve()
    assert (np.diff(sizes) >= 0).all()
    assert sizes[np.searchsorted(coverages, 0.9)] == pytest.approx(sure.set_sizes_.mean())
    assert sure.plot_set_sizes().get_xlabel() == "coverage"
    assert "9 of 10 new queries" in sure.summary()
    assert (
        f"show {sure.set_sizes_.mean():.1f} of {len(qid) / 60:.1f} items".replace(".0 ", " ")
        in sure.summary()
    )


def test_probabilities_of_an_order() -> None:
    rng = np.random.default_rng(2)
    X, y, qid = draw(rng, 200, graded=False)
    sure = ConformalRanker(RankRLS()).fit(X, y, qid=qid)
    X_new, y_new, _ = draw(rng, 200, graded=False)
    a, b = rng.integers(X_new.shape[0], size=(2, 5000))
    a, b = a[a != b], b[a != b]
    p = sure.order_probability(X_new[a], X_new[b])
    np.testing.assert_allclose(p + sure.order_probability(X_new[b], X_new[a]), 1.0)
    assert (
        calibration_of_preferences(p, (y_new[a] > y_new[b]).astype(float)).expected_calibration_error < 0.03
    )
    assert p.max() > 0.9


def test_nothing_is_known_of_an_order_where_no_two_items_of_a_query_differ() -> None:
    X, y, qid = small_problem(0)
    sure = ConformalRanker(RLS(), target="any-relevant", coverage=0.8, distance="gap").fit(
        X, qid % 2, qid=qid
    )
    np.testing.assert_array_equal(sure.order_probability(X[:5], X[5:10]), 0.5)


# Estimators -----------------------------------------------------------------------------------------------------------


class OfGroups(BaseEstimator):
    """A ranker of another library: group sizes, and rows of a query together."""

    def fit(self, X, y, group=None):
        assert group.sum() == len(y)
        self.group_ = group
        qid = np.repeat(np.arange(len(group)), group)
        self.coef_ = RankRLS().fit(X, y, qid=qid).coef_
        return self

    def predict(self, X):
        return X @ self.coef_


class OfSortedQueries(OfGroups):
    """One that wants the labels of queries sorted."""

    def fit(self, X, y, qid=None):
        codes = np.unique(qid, return_inverse=True)[1]
        assert (np.diff(codes) >= 0).all()
        return super().fit(X, y, np.bincount(codes))


@pytest.mark.parametrize("estimator", [OfGroups(), OfSortedQueries()], ids=["group", "qid"])
def test_estimators_of_other_libraries(estimator) -> None:
    X, y, qid = small_problem(1)
    mixed = np.random.default_rng(0).permutation(len(y))
    X, y, qid = X[mixed], y[mixed], qid[mixed]
    wanted = ConformalRanker(RankRLS(), coverage=0.8).fit(X, y, qid=qid)
    found = ConformalRanker(estimator, coverage=0.8).fit(X, y, qid=qid)
    assert found.threshold_ == pytest.approx(wanted.threshold_, rel=1e-8)
    np.testing.assert_allclose(found.estimator_.coef_, wanted.estimator_.coef_, rtol=1e-8)


def test_searches_pipelines_and_refitted_learners() -> None:
    X, y, qid = small_problem(2)
    search = ConformalRanker(RankRLSCV(), coverage=0.8).fit(X, y, qid=qid)
    fixed = ConformalRanker(RankRLS(alpha=search.estimator_.alpha_), coverage=0.8).fit(X, y, qid=qid)
    assert search.threshold_ == pytest.approx(fixed.threshold_, rel=1e-8)
    kept = ConformalRanker(RankRLSCV(keep_predictions=True), coverage=0.8).fit(X, y, qid=qid)
    assert kept.threshold_ == pytest.approx(fixed.threshold_, rel=1e-8)
    assert kept.estimator_.keep_predictions and kept.estimator_.cv_predictions_.shape[1:] == y.shape
    assert not search.estimator_.keep_predictions and not hasattr(search.estimator_, "cv_predictions_")
    for estimator in (
        RankSVM(),
        make_pipeline(StandardScaler(), Ridge()),
        make_pipeline(StandardScaler(), RankRLS()),
    ):
        sure = ConformalRanker(estimator, coverage=0.8, cv=5).fit(X, y, qid=qid)
        assert sure.predict_set(X, qid=qid).any()
        assert sure.rank(X, qid=qid).min() == 1


def test_an_automatic_ranker_brings_its_folds() -> None:
    X, y, qid = draw(np.random.default_rng(0), 20)
    sure = ConformalRanker(AutoRanker(random_state=0), coverage=0.8).fit(X, y, qid=qid)
    known = np.isfinite(sure.estimator_.cv_predictions_)
    np.testing.assert_array_equal(sure.calibration_.scores, sure.estimator_.cv_predictions_[known])
    assert sure.predict_set(X, qid=qid).shape == y.shape


def test_a_global_ranking_by_folds() -> None:
    X, y, _ = draw(np.random.default_rng(0), 30, graded=False)
    sure = ConformalRanker(RankRLS(), cv=20).fit(X, y)
    assert sure.n_calibration_queries_ == 20
    intervals = sure.predict_rank_interval(X[:20])
    assert (intervals[:, 0] >= 1).all()
    assert (intervals[:, 1] <= 20).all()


def test_a_calibration_part_does_not_train() -> None:
    X, y, qid = draw(np.random.default_rng(0), 40)
    model = RankRLS().fit(X[qid < 20], y[qid < 20], qid=qid[qid < 20])
    before = model.coef_.copy()
    part = qid >= 20
    sure = ConformalRanker(model, cv="prefit").fit(X[part], y[part], qid=qid[part])
    assert sure.estimator_ is model
    np.testing.assert_array_equal(model.coef_, before)
    assert sure.distance_ == "softmax"


# Drift ----------------------------------------------------------------------------------------------------------------


def test_drift_is_noticed_and_not_imagined() -> None:
    found = []
    for seed in range(40):
        rng = np.random.default_rng(seed)
        X, y, qid = draw(rng, 60)
        sure = ConformalRanker(RankRLS()).fit(X, y, qid=qid)
        X_new, _, qid_new = draw(rng, 60)
        same = sure.drift_test(X_new, qid=qid_new)
        found.append(same.pvalue)
    assert np.mean(np.array(found) < 0.05) < 0.15
    assert not same.drifted
    assert "no sign of drift" in str(same)
    wider = sure.drift_test(3 * X_new, qid=qid_new)
    assert wider.drifted
    assert wider.figure == "spread of scores"
    assert "calibrate on recent queries" in str(wider)
    halved = np.arange(len(qid_new)) % 2 == 0
    assert sure.drift_test(X_new[halved], qid=qid_new[halved]).figure == "rows"


def test_drift_of_scores_without_a_common_scale_leaves_their_spread_out() -> None:
    rng = np.random.default_rng(0)
    X, y, qid = draw(rng, 60)
    X_new, _, qid_new = draw(rng, 60)
    sure = ConformalRanker(RankRLS(), cv=5).fit(X, y, qid=qid)  # scores of folds
    found = sure.drift_test(3 * X_new, qid=qid_new)
    assert "spread of scores" not in found.pvalues and len(found.pvalues) == 2 and not found.drifted


# Refusals -------------------------------------------------------------------------------------------------------------


class NotAnEstimator:
    def predict(self, X):
        return np.zeros(len(X))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"coverage": 0.95}, "at least 20 queries.*found 14.*at most 0.929"),
        ({"coverage": 1.0}, "between 0 and 1"),
        ({"coverage": 0}, "between 0 and 1"),
        ({"coverage": "most"}, "between 0 and 1"),
        ({"target": "worst"}, "expected one of 'best'"),
        ({"target": "top-k", "k": 0}, "at least 1"),
        ({"k": 2}, "k=2 is for target='top-k'"),
        ({"distance": "far"}, "expected one of 'auto'"),
        ({"cv": "leave-one-out"}, "expected 'leave-query-out'"),
        ({"estimator": NotAnEstimator()}, "cannot be refitted.*cv='prefit'"),
        ({"estimator": StandardScaler()}, "has no predict"),
    ],
)
def test_refusals(options, said) -> None:
    X, y, qid = small_problem(0)
    with pytest.raises(ValueError, match=said):
        ConformalRanker(**{"estimator": RankRLS(), "coverage": 0.8, **options}).fit(X, y, qid=qid)


def test_refusals_of_data() -> None:
    X, y, qid = small_problem(0)
    with pytest.raises(ValueError, match="pass qid=..., or for a global ranking cv="):
        ConformalRanker(RankRLS(), coverage=0.8).fit(X, y)
    with pytest.raises(ValueError, match="No query has rows with different y"):
        ConformalRanker(RLS(), coverage=0.8).fit(X, np.ones(len(y)), qid=qid)
    with pytest.raises(ValueError, match="No query has a relevant row"):
        ConformalRanker(RankRLS(), coverage=0.8, target="any-relevant").fit(X, y - 5, qid=qid)
    with pytest.raises(ValueError, match="Every row has y > 0"):
        ConformalRanker(RankRLS(), coverage=0.8, target="any-relevant").fit(X, y + 5, qid=qid)
    few = np.where(qid < 3, y, 0.0)
    with pytest.raises(ValueError, match="at least 5 queries that count.*found 3"):
        ConformalRanker(RankRLS(), coverage=0.8, target="any-relevant").fit(X, few, qid=qid)
    with pytest.raises(ValueError, match="one score per row"):
        ConformalRanker(RankRLS(), coverage=0.8).fit(X, np.column_stack([y, y]), qid=qid)
    with pytest.raises(ValueError, match="NaN"):
        ConformalRanker(RankRLS(), coverage=0.8).fit(X, np.where(qid == 0, np.nan, y), qid=qid)
    with pytest.raises(ValueError, match="loss of .* on average"):
        RiskControlledRanker(RankRLS(), risk=0.08, loss="ndcg").fit(X, np.abs(X[::-1, 0]), qid=qid)
    with pytest.raises(ValueError, match="k=2 is for loss='recall'"):
        RiskControlledRanker(RankRLS(), loss="ndcg", k=2).fit(X, y, qid=qid)


@pytest.mark.parametrize("best_first", [True, False])
def test_the_ndcg_of_tied_scores_does_not_depend_on_the_order_of_the_rows(best_first) -> None:
    """A file in the order of y must not make a model that knows nothing look perfect."""
    rng = np.random.default_rng(5)
    qid = np.repeat(np.arange(30), 6)
    y = rng.integers(0, 3, size=180).astype(float)
    order = np.lexsort((-y if best_first else y, qid))
    y, scores = y[order], rng.integers(0, 2, size=180).astype(float)
    found = np.bincount(qid, weights=ndcg_gains(y, scores, encode_queries(qid, 180)))
    np.testing.assert_allclose(found, ndcg(y, scores, qid, per_query=True).values, atol=1e-12)


def test_ranks_and_orders_that_cannot_be_told_are_refused() -> None:
    rng = np.random.default_rng(0)
    X, qid = rng.normal(size=(200, 3)), np.repeat(np.arange(20), 10)
    sure = ConformalRanker(RLS(), target="all-relevant", coverage=0.8).fit(
        X, (qid % 2).astype(float), qid=qid
    )
    with pytest.raises(ValueError, match="no ranks to calibrate"):
        sure.predict_rank_interval(X[:10], qid=qid[:10])
    with pytest.raises(ValueError, match="X_a has 3 rows and X_b 1"):
        sure.order_probability(X[:3], X[:1])


def test_targets_that_are_no_grades_are_refused() -> None:
    """Gains of a few queries that overflow must not leave these queries out."""
    X, y, qid = draw(np.random.default_rng(0), 40)
    with pytest.raises(ValueError, match="which is not a grade"):
        RiskControlledRanker(RankRLS(), risk=0.3, loss="ndcg").fit(X, np.where(qid < 3, 2000 * y, y), qid=qid)
