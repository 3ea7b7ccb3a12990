"""The influence of features: shuffles that stay where they belong, sparse as dense, intervals by their definition."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy import sparse as sp
from scipy.stats import t as student

import oracles
from preflearn import AutoRanker, RankRLS
from preflearn.comparisons import encode_queries
from preflearn.inspection import explain, feature_influence
from preflearn.inspection.influence import _shuffles
from preflearn.metrics import concordance


class Linear:
    """A model with given weights, which keeps what it was asked."""

    def __init__(self, *weights):
        self.weights, self.asked = np.array(weights, dtype=float), []

    def predict(self, X):
        self.asked.append(X.toarray() if sp.issparse(X) else X.copy())
        return X @ self.weights


def data(m=48, n_queries=6, seed=0):
    rng = np.random.default_rng(seed)
    qid = rng.permutation(np.repeat(np.arange(n_queries), m // n_queries))
    X = rng.normal(size=(m, 3))
    return X, X @ [1.0, 0.5, 0.0] + 0.1 * rng.normal(size=m), qid


def test_a_feature_that_is_constant_in_each_query_loses_nothing():
    """However much the model uses it."""
    X, y, qid = data()
    X[:, 1] = qid
    found = feature_influence(Linear(1, 100, 0), X, y + 100 * qid, qid=qid, random_state=0)
    assert found.values[1] == found.values[2] == 0 and found.values[0] > 0.2
    assert found.n_rows == 48 and found.over == "queries" and found.order[0] == 0


@pytest.mark.parametrize("sparse", [False, True])
def test_every_shuffle_permutes_one_column_inside_the_queries(sparse):
    X, _, qid = data()
    X[np.abs(X) < 0.7] = 0
    groups = encode_queries(qid, X.shape[0])
    given = sp.csr_array(X) if sparse else X
    seen = [
        Z.toarray() if sparse else Z.copy() for Z in _shuffles(given, 1, groups, 20, np.random.RandomState(0))
    ]
    for Z in seen:
        np.testing.assert_array_equal(Z[:, [0, 2]], X[:, [0, 2]])
        for query in range(6):
            np.testing.assert_array_equal(np.sort(Z[qid == query, 1]), np.sort(X[qid == query, 1]))
    assert all((Z[:, 1] != X[:, 1]).any() for Z in seen) and (seen[0][:, 1] != seen[1][:, 1]).any()


@pytest.mark.parametrize("with_queries", [True, False])
def test_values_and_intervals_are_those_of_the_predictions(with_queries):
    X, y, qid = data()
    qid = qid if with_queries else None
    model = Linear(1, 0.5, 0.2)
    found = feature_influence(model, X, y, qid=qid, n_repeats=4, random_state=3)
    whole, *shuffled = [concordance(y, Z @ model.weights, qid, per_query=True).values for Z in model.asked]
    losses = whole - np.reshape(shuffled, (3, 4, -1))
    np.testing.assert_allclose(found.values, losses.mean(axis=(1, 2)))
    trials = losses.mean(axis=1) if with_queries else losses.mean(axis=2)
    half = student.ppf(0.975, trials.shape[1] - 1) * trials.std(axis=1, ddof=1) / np.sqrt(trials.shape[1])
    np.testing.assert_allclose(found.intervals, np.column_stack([found.values - half, found.values + half]))
    assert found.concordance == pytest.approx(concordance(y, X @ model.weights, qid))


def test_preferences():
    X, y, _ = data()
    pairs = np.array([(i, j) for i in range(48) for j in range(48) if y[i] > y[j] + 0.3])
    found = feature_influence(Linear(1, 0.5, 0), X, pairs=pairs, random_state=0)
    assert found.over == "preferences" and found.values[2] == 0 and found.values[0] > found.values[1] > 0.05
    difference = (X[pairs[:, 0]] - X[pairs[:, 1]]) @ [1, 0.5, 0]
    assert found.concordance == pytest.approx(np.mean(difference > 0))


def test_a_sample_keeps_as_many_queries_as_it_can():
    rng = np.random.default_rng(0)
    qid = np.repeat(np.arange(40), 10)
    X = rng.normal(size=(400, 3))
    model = Linear(1, 0, 0)
    found = feature_influence(model, X, X[:, 0], qid=qid, n_repeats=1, max_rows=60, random_state=0)
    assert found.n_rows == 60
    places = [int(np.flatnonzero((X == row).all(axis=1))[0]) for row in model.asked[0]]
    assert np.unique(qid[places]).size == 30


def test_a_fitted_model_and_its_text():
    X, y, qid = data(120, 12)
    model = RankRLS().fit(X[:60], y[:60], qid=qid[:60])
    found = feature_influence(
        model, X[60:], y[60:], qid=qid[60:], feature_names=["a", "b", "c"], random_state=0
    )
    lines = str(found).splitlines()
    assert lines[2].split()[0] == "a" and "12 queries" not in lines[-1] and "over queries" in lines[-1]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "y or pairs"),
        ({"y": [1, 2, 3], "pairs": [[0, 1]]}, "y or pairs"),
        ({"pairs": [[0, 1]], "qid": [1, 1, 1]}, "leave out qid"),
        ({"y": [1, 1, 1]}, "constant"),
        ({"y": [1, 2, 3], "n_repeats": 0}, "n_repeats"),
        ({"y": [1, 2, 3], "feature_names": ["a", "b"]}, "one name for each of 1"),
    ],
)
def test_what_is_refused(options, said):
    with pytest.raises(ValueError, match=said):
        feature_influence(Linear(1), np.eye(3)[:, :1], **options)


# One prediction -----------------------------------------------------------------------------------------------------


def test_contributions_of_a_linear_model_are_exact():
    rng = np.random.default_rng(0)
    X, qid = rng.normal(size=(40, 4)), np.repeat(np.arange(4), 10)
    model = RankRLS().fit(X, rng.normal(size=40), qid=qid)
    found = explain(model, X, qid=qid, row=13)
    expected = model.coef_ * (X[13] - X[10:20].mean(axis=0))
    np.testing.assert_allclose(found.contributions, expected, atol=1e-12)
    assert found.rank == model.rank(X, qid=qid)[13] and found.n_rows == 10


@pytest.mark.parametrize("n_orders", [1, 3])
def test_contributions_add_up_and_are_near_the_shapley_value(n_orders):
    rng = np.random.default_rng(1)
    X = rng.normal(size=(8, 3))
    model = RankRLS(0.01, kernel="rbf").fit(X, np.sin(X[:, 0]) * X[:, 1])
    found = explain(model, X, row=2, n_orders=n_orders)
    f = model.predict(X)
    assert found.contributions.sum() == pytest.approx(f[2] - f.mean(), abs=1e-9)
    every = explain(model, X, row=2, n_orders=400).contributions
    np.testing.assert_allclose(every, oracles.shapley_values(model.predict, X, 2), atol=0.02)


def test_an_automatic_ranker_is_explained_inside_its_query():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"price": rng.normal(size=120), "noise": rng.normal(size=120)})
    frame["colour"] = np.where(rng.normal(size=120) > 0, "red", "blue")
    qid = np.repeat(np.arange(12), 10)
    y = -frame["price"] + (frame["colour"] == "red")
    model = AutoRanker(random_state=0, time_limit=5).fit(frame, y, qid=qid)
    scores = model.predict(frame, qid=qid)
    found = explain(model, frame, qid=qid, row=25)
    assert found.names == ["price", "noise", "colour"]
    assert found.contributions.sum() == pytest.approx(scores[25] - scores[20:30].mean(), abs=1e-9)
    assert np.sign(found.contributions[0]) == np.sign(frame["price"][20:30].mean() - frame["price"][25])
    assert "contribution" in str(found) and found.plot().patches


def test_what_cannot_be_explained_is_refused():
    X = np.arange(12.0).reshape(6, 2)
    model = RankRLS().fit(X, np.arange(6))
    for row in (6, -1, 1.5, True):
        with pytest.raises(ValueError, match="row must be the number of a row of X, from 0 to 5"):
            explain(model, X, row=row)
    with pytest.raises(ValueError, match="one name for each of 2 features: found 1"):
        explain(model, X, row=0, feature_names=["a"])
    with pytest.raises(ValueError, match="n_orders must be"):
        explain(model, X, row=0, n_orders=0)
    with pytest.raises(ValueError, match="predicts 2 outputs"):
        explain(RankRLS().fit(X, X), X, row=0)
    alone = explain(model, X, qid=np.arange(6), row=3)
    np.testing.assert_array_equal(alone.contributions, 0.0)
