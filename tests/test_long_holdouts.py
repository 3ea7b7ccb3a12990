"""Estimators that are refitted: pipelines of fixed steps by algebra, long hold-outs shared by threads and announced."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from sklearn import config_context, get_config
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, Normalizer, PolynomialFeatures, StandardScaler

from preflearn import RLS, RankRLS, RankSVM
from preflearn.model_selection import (
    HeldOut,
    _refitting,
    cross_val_predict,
    estimate_auc,
    estimate_concordance,
    estimates,
    leave_pair_out,
)
from preflearn.model_selection._problem import Problem
from preflearn.model_selection._refitting import PathProblem, RefittedProblem

RANDOM = np.random.default_rng(0)
M = 24
X, QID = RANDOM.normal(size=(M, 3)), np.repeat(np.arange(6), 4)
Y = X @ [1.0, -2.0, 0.5] + RANDOM.normal(size=M)


def centred(X):
    return X - X.mean(axis=0)


def refitted(pipeline, folds, qid):
    out = np.empty(M)
    name = f"{pipeline.steps[-1][0]}__qid"
    for test in folds:
        rest = np.setdiff1d(np.arange(M), test)
        labels = {} if qid is None else {name: qid[rest]}
        out[test] = pipeline.fit(X[rest], Y[rest], **labels).predict(X[test])
    return out


@pytest.mark.parametrize(
    ("steps", "learner", "kind"),
    [
        ((PolynomialFeatures(2),), RankRLS(0.1), Problem),
        ((Normalizer(), FunctionTransformer(np.tanh), "passthrough"), RankRLS(kernel="rbf"), Problem),
        ((FunctionTransformer(np.tanh),), RankSVM(tol=1e-10), PathProblem),
        ((FunctionTransformer(centred),), RankRLS(kernel="rbf"), RefittedProblem),
        ((StandardScaler(),), RankRLS(), RefittedProblem),
        ((PolynomialFeatures(2),), Ridge(), RefittedProblem),
    ],
)
def test_fixed_steps_leave_the_algebra_as_it_is(steps, learner, kind):
    pipeline = make_pipeline(*steps, learner)
    qid = None if isinstance(learner, Ridge) else QID
    folds = [np.flatnonzero(QID == query) for query in range(6)]
    assert isinstance(HeldOut(pipeline, X, Y, qid=qid).problem, kind)
    found = cross_val_predict(pipeline, X, Y, qid=qid, cv=folds)
    expected = refitted(pipeline, folds, qid)
    # A ranker is known up to a constant for each fold.
    centre = (
        (lambda f: f - np.array([f[QID == q].mean() for q in range(6)])[QID])
        if qid is not None
        else np.asarray
    )
    np.testing.assert_allclose(centre(found), centre(expected), atol=1e-6)


def test_fixed_steps_of_data_frames_and_sparse_matrices():
    pandas, sparse = pytest.importorskip("pandas"), pytest.importorskip("scipy.sparse")
    pipeline = make_pipeline(Normalizer(), RLS())
    expected = cross_val_predict(pipeline, X, Y, cv=4)
    for given in (pandas.DataFrame(X), sparse.csr_array(X)):
        assert isinstance(HeldOut(pipeline, given, Y).problem, Problem)
        np.testing.assert_allclose(cross_val_predict(pipeline, given, Y, cv=4), expected)


def test_pairs_of_the_same_groups_are_one_training(monkeypatch):
    n_trained = []

    class Counting(RegressorMixin, BaseEstimator):
        def fit(self, X, y):
            n_trained.append(len(y))
            self.w_ = np.linalg.lstsq(X, y, rcond=None)[0]
            return self

        def predict(self, X):
            return X @ self.w_

    groups = np.arange(M) // 3
    pairs, found = leave_pair_out(Counting(), X, Y, groups=groups)
    assert len(n_trained) == 8 * 7 / 2 + 8 < len(pairs)
    for (i, j), f in list(zip(pairs.tolist(), found, strict=True))[::17]:
        rest = np.flatnonzero((groups != groups[i]) & (groups != groups[j]))
        w = np.linalg.lstsq(X[rest], Y[rest], rcond=None)[0]
        np.testing.assert_allclose(f, X[[i, j]] @ w)


class Configured(Ridge):
    """Notes the configuration that it is fitted under."""

    seen: list = []

    def fit(self, X, y):
        self.seen.append(get_config()["assume_finite"])
        return super().fit(X, y)


def test_a_long_holdout_is_shared_by_threads_and_announced(monkeypatch):
    expected = cross_val_predict(Ridge(), X, Y, cv=8)
    monkeypatch.setattr(_refitting, "_SHARED", 0.0)
    monkeypatch.setattr(_refitting, "LONG", 0.0)
    with (
        config_context(assume_finite=True),
        pytest.warns(UserWarning, match="by 8 trainings is expected to take"),
    ):
        found = cross_val_predict(Configured(), X, Y, cv=8)
    np.testing.assert_array_equal(found, expected)
    assert Configured.seen == [True] * 8
    monkeypatch.setattr(_refitting, "LONG", 1e9)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        np.testing.assert_array_equal(cross_val_predict(Ridge(), X, Y, cv=8), expected)


def test_an_error_in_a_shared_training_is_raised(monkeypatch):
    class Failing(Ridge):
        def fit(self, X, y):
            if len(y) == M - 2:
                raise RuntimeError("two rows are missing")
            return super().fit(X, y)

    monkeypatch.setattr(_refitting, "_SHARED", 0.0)
    folds = [np.arange(0, 4), np.arange(4, 8), np.arange(8, 12), np.arange(12, 22), np.arange(22, 24)]
    with pytest.raises(RuntimeError, match="two rows are missing"):
        cross_val_predict(Failing(), X, Y, cv=folds)


@pytest.mark.parametrize("groups", [None, np.arange(M) // 2])
def test_folds_replace_pairs_that_would_take_minutes(monkeypatch, groups):
    y = (Y > np.median(Y)).astype(int)
    pipeline = make_pipeline(StandardScaler(), RLS())
    usual = estimate_auc(pipeline, X, y, groups=groups, random_state=0)
    assert usual.method == "leave-pair-out"
    monkeypatch.setattr(estimates, "LONG", 0.0)
    found = estimate_auc(pipeline, X, y, groups=groups, random_state=0)
    units = M if groups is None else 12
    assert found.method == "averaged" and f"{units * (units - 1) // 2:,} trainings" in str(found).replace(
        "\n", " "
    )
    assert estimate_auc(pipeline, X, y, method="leave-pair-out", groups=groups).value == usual.value
    assert estimate_concordance(pipeline, X, Y, groups=groups).method == "averaged"
    # What is held out by algebra takes no trainings.
    assert estimate_auc(RLS(), X, y, groups=groups).method == "leave-pair-out"
    assert estimate_auc(make_pipeline(Normalizer(), RLS()), X, y, groups=groups).method == "leave-pair-out"
