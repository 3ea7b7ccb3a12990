"""CoRankRLS against the minimum of its objective, and against independent rankers."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator

import oracles
from preflearn import CoRankRLS, RankRLS
from preflearn.kernels import NystromMap
from preflearn.learners.corankrls import read_views
from preflearn.model_selection import cross_val_predict
from strategies import examples

VIEWS = [[0, 1], [2, 3], [1, 4, 0]]


def similarity(a, b):
    return np.exp(-0.3 * np.abs(np.subtract(a, b)).sum())


KERNELS = {
    "linear": {},
    "rbf": {"kernel": "rbf", "gamma": 0.3},
    "median": {"kernel": "rbf", "gamma": "median"},
    "callable": {"kernel": similarity},
    "reduced": {"kernel": "rbf", "gamma": 0.3, "basis": [7, 0, 11, 4]},
    "drawn": {"kernel": "laplacian", "n_basis": 0.5, "random_state": 1},
}


def make_rows(seed, unscored=0.5, m=18):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(m, 5))
    X[3] = X[5]
    y = np.round(X @ [1.0, 1.0, -1.0, 0.5, 0.2], 1)
    y[rng.random(m) < unscored] = np.nan
    y[:2] = 0.0, 1.0
    qid = rng.integers(0, 3, m)
    qid[:2] = 0
    return X, y, qid


def features_of(kernel, part):
    """Features of a view whose inner products are its kernel (of the reduced set its approximation)."""
    if kernel == "linear":
        return part
    return NystromMap(**{"kernel": "rbf"} | KERNELS[kernel]).fit_transform(part)


@given(
    st.integers(0, 10**6),
    st.sampled_from(list(KERNELS)),
    st.sampled_from([2, 3]),
    st.sampled_from([0.0, 1e-2, 1.0, 100.0]),
    st.sampled_from([0.0, 0.5]),
    st.fixed_dictionaries(
        {
            "cost": st.sampled_from(["magnitude", "unit", "relative"]),
            "ties": st.sampled_from(["include", "exclude"]),
            "weighting": st.sampled_from(["pair", "item", "query"]),
        }
    ),
    st.sampled_from(["auto", "dual", "primal", "cg"]),
    st.booleans(),
)
@examples(120)
def test_equals_direct_minimisation(seed, kernel, n_views, agreement, unscored, options, solver, sparse):
    X, y, qid = make_rows(seed, unscored)
    views = VIEWS[:n_views]
    model = CoRankRLS(0.4, agreement=agreement, views=views, solver=solver, **KERNELS[kernel], **options)
    rows = sp.csr_array(X) if sparse and kernel != "callable" else X
    model.fit(rows, y, qid=qid)
    features = [features_of(kernel, X[:, view]) for view in views]
    expected = oracles.co_regularised(features, y, qid, 0.4, agreement, **options)
    size = max(1.0, np.abs(expected).max())
    atol = (1e-4 if solver == "cg" else 1e-7) * size
    for ranker, view, f in zip(model.rankers_, views, expected, strict=True):
        np.testing.assert_allclose(ranker.predict(X[:, view]), f, atol=atol)
    np.testing.assert_allclose(model.predict(rows), expected.mean(axis=0), atol=atol)
    assert model.n_unscored_ == np.isnan(y).sum()


@pytest.mark.parametrize("kernel", ["linear", "rbf", "callable"])
def test_without_agreement_the_views_are_independent(kernel):
    X, y, qid = make_rows(0)
    known = ~np.isnan(y)
    both = [
        RankRLS(0.7, **KERNELS[kernel]).fit(X[known][:, view], y[known], qid=qid[known]) for view in VIEWS[:2]
    ]
    model = CoRankRLS(0.7, agreement=0.0, views=VIEWS[:2], **KERNELS[kernel]).fit(X, y, qid=qid)
    mean = np.mean([one.predict(X[:, view]) for one, view in zip(both, VIEWS[:2], strict=True)], axis=0)
    np.testing.assert_allclose(model.predict(X), mean, atol=1e-8)


def test_many_outputs_equal_one_by_one():
    X, y, qid = make_rows(1)
    Y = np.column_stack([y, -y, y**2])
    model = CoRankRLS(views=VIEWS[:2], kernel="rbf").fit(X, Y, qid=qid)
    for k in range(3):
        one = CoRankRLS(views=VIEWS[:2], kernel="rbf").fit(X, Y[:, k], qid=qid)
        np.testing.assert_allclose(model.predict(X)[:, k], one.predict(X), atol=1e-8)


def test_agreement_grows_with_its_weight_and_helps_where_scores_are_few():
    """Two descriptions of one hidden quality, each with nine columns of noise; 20 sets."""
    gaps, right = [], []
    weights = [0.0, 0.1, 10.0]
    for seed in range(20):
        rng = np.random.default_rng(seed)
        quality = rng.normal(size=400)
        X = rng.normal(size=(400, 20))
        X[:, [0, 10]] += quality[:, None]
        y = np.where(np.arange(400) < 10, quality, np.nan)
        models = [CoRankRLS(agreement=nu, views=[range(10), range(10, 20)]).fit(X, y) for nu in weights]
        sides = [
            [one.predict(X[:, c]) for one, c in zip(m.rankers_, m.columns_, strict=True)] for m in models
        ]
        gaps.append([np.mean((u - v)[10:] ** 2) for u, v in sides])
        right.append([model.score(X[10:], quality[10:]) for model in models])
    gaps, right = np.mean(gaps, axis=0), np.mean(right, axis=0)
    assert gaps[0] > gaps[1] > gaps[2]
    assert right[1] > right[0] + 0.02


def test_frames_pipelines_clones_and_hold_outs():
    X, y, qid = make_rows(2, m=40)
    frame = pd.DataFrame(X, columns=list("abcde"))
    by_name = CoRankRLS(views=[["a", "b"], ["c", "d"]], kernel="rbf").fit(frame, y, qid=qid)
    by_number = CoRankRLS(views=VIEWS[:2], kernel="rbf").fit(X, y, qid=qid)
    np.testing.assert_allclose(by_name.predict(frame), by_number.predict(X))
    assert clone(by_name).get_params() == by_name.get_params()
    piped = make_pipeline(StandardScaler(), CoRankRLS(views=VIEWS[:2])).fit(X, y)
    assert piped.predict(X).shape == (40,)
    scored = np.nan_to_num(y)
    folds = [np.arange(k, 40, 4) for k in range(4)]
    model = CoRankRLS(views=VIEWS[:2], kernel="rbf", basis=np.arange(0, 40, 3))
    held_out = cross_val_predict(model, X, scored, qid=qid, cv=folds)
    np.testing.assert_allclose(held_out, oracles.naive_hold_out(model, X, scored, folds, qid=qid), atol=1e-8)


@pytest.mark.parametrize(
    "options", [{}, {"kernel": "rbf"}, {"kernel": "rbf", "n_basis": 0.5, "random_state": 0}]
)
def test_scikit_learn_checks(options):
    check_estimator(CoRankRLS(views=[[0], [0]], **options))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"views": None}, r"two or more lists of columns, such as \[\[0, 1\], \[2, 3, 4\]\].*found None"),
        ({"views": [[0, 1]]}, "two or more"),
        ({"views": [[0], []]}, "View 1 of views must be a list of columns, at least one"),
        ({"views": [[0], [5]]}, "View 1 of views names the column 5.*n_features = 5"),
        ({"views": [[0], ["a"]]}, "names the column 'a'"),
        ({"views": [[True], [1]]}, "names the column True"),
        ({"views": VIEWS, "agreement": -1}, "agreement must be a number, 0 or more: found -1"),
        ({"views": VIEWS, "kernel": "precomputed"}, "kernel of each view.*precomputed"),
        ({"views": VIEWS, "alpha": 0}, "alpha"),
        ({"views": VIEWS, "cost": "square"}, "cost"),
        ({"views": VIEWS, "kernel": "linear", "gamma": 2.0}, "does not take gamma"),
    ],
)
def test_refusals(options, message):
    X, y, qid = make_rows(0)
    with pytest.raises(ValueError, match=message):
        CoRankRLS(**options).fit(X, y, qid=qid)
    assert [one.tolist() for one in read_views([[0], (1, 2)], 3)] == [[0], [1, 2]]
    with pytest.raises(ValueError, match="takes one table, and views=.*found 2 tables"):
        CoRankRLS(views=VIEWS).fit([X[:, :1], X[:, 1:]], y, qid=qid)


def test_what_is_refused_about_targets_names_the_learner():
    X, y, qid = make_rows(0)
    with pytest.raises(ValueError, match="All targets are NaN, and CoRankRLS needs"):
        CoRankRLS(views=VIEWS).fit(X, np.full_like(y, np.nan))
    with pytest.raises(ValueError, match="at least two rows to compare: found 1 sample"):
        CoRankRLS(views=VIEWS).fit(X, np.where(np.arange(len(y)) < 1, y, np.nan))
