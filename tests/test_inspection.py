"""The influence of features: shuffles that stay where they belong, sparse as dense, intervals by their definition."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy import sparse as sp
from scipy.stats import t as student
from sklearn import config_context
from sklearn.compose import make_column_transformer
from sklearn.decomposition import PCA
from sklearn.feature_selection import VarianceThreshold
from sklearn.linear_model import Ridge
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, OneHotEncoder, StandardScaler

import oracles
from preflearn import AutoRanker, RankRLS
from preflearn.cli.app import run
from preflearn.comparisons import encode_queries
from preflearn.inspection import explain, feature_influence
from preflearn.io import load_model
from preflearn.metrics import concordance
from preflearn.metrics.by_query import predict_scores
from preflearn.preprocessing import QueryRelative, TableEncoder
from preflearn.report.inspection.influence import _shuffles


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
        Z.toarray() if sparse else Z.copy()
        for Z in _shuffles(given, np.array([1]), groups, 20, np.random.RandomState(0))
    ]
    for Z in seen:
        np.testing.assert_array_equal(Z[:, [0, 2]], X[:, [0, 2]])
        for query in range(6):
            np.testing.assert_array_equal(np.sort(Z[qid == query, 1]), np.sort(X[qid == query, 1]))
    assert all((Z[:, 1] != X[:, 1]).any() for Z in seen) and (seen[0][:, 1] != seen[1][:, 1]).any()


@pytest.mark.parametrize("labels", ["queries", "none", "groups", "queries and groups"])
def test_values_and_intervals_are_those_of_the_predictions(labels):
    X, y, queries = data()
    qid = queries if "queries" in labels else None
    groups = np.random.default_rng(1).integers(9, size=48) if "groups" in labels else None
    model = Linear(1, 0.5, 0.2)
    found = feature_influence(model, X, y, qid=qid, groups=groups, n_repeats=4, random_state=3)

    def lost(rows=slice(None)):
        within = None if qid is None else qid[rows]
        whole, *shuffled = [
            concordance(y[rows], (Z @ model.weights)[rows], within, per_query=True).values
            for Z in model.asked
        ]
        return (whole - np.reshape(shuffled, (3, 4, -1))).mean(axis=1)

    if labels == "queries":
        trials = lost()
        assert found.over == "queries"
    else:  # pseudo-values: each block of units left out
        owner = np.arange(48) if groups is None else np.unique(groups, return_inverse=True)[1]
        n_units, n = owner.max() + 1, min(30, owner.max() + 1)
        block = (np.random.default_rng(0).permutation(n_units) % n)[owner]
        left = np.column_stack([lost(np.flatnonzero(block != k)).mean(axis=1) for k in range(n)])
        trials = n * lost().mean(axis=1, keepdims=True) - (n - 1) * left
        assert found.over == f"{n_units} {'rows' if groups is None else 'groups'} in {n} blocks"
    np.testing.assert_allclose(found.values, lost().mean(axis=1))
    half = student.ppf(0.975, trials.shape[1] - 1) * trials.std(axis=1, ddof=1) / np.sqrt(trials.shape[1])
    np.testing.assert_allclose(found.intervals, np.column_stack([found.values - half, found.values + half]))
    assert found.concordance == pytest.approx(concordance(y, X @ model.weights, qid))
    assert found.over in str(found)


def test_the_interval_counts_groups():
    """Rows of a patient that are copies of each other say no more than one of them."""
    X, y, _ = data()
    once = feature_influence(Linear(1, 0.5, 0), X, y, n_repeats=20, random_state=0).intervals
    copies, patient = np.repeat(X, 5, axis=0), np.repeat(np.arange(48), 5)
    wide, narrow = (
        feature_influence(
            Linear(1, 0.5, 0), copies, np.repeat(y, 5), groups=groups, n_repeats=20, random_state=0
        ).intervals
        for groups in (patient, None)
    )
    assert np.diff(wide[0]) > 0.7 * np.diff(once[0]) and np.diff(narrow[0]) < 0.6 * np.diff(once[0])
    with pytest.raises(ValueError, match="one label per row|query label"):
        feature_influence(Linear(1, 0.5, 0), X, y, groups=[1, 2])


def test_the_interval_counts_judges():
    X, y, _ = data()
    pairs = np.array([(i, j) for i in range(48) for j in range(0, 48, 5) if y[i] > y[j]])
    judge = np.arange(len(pairs)) % 7
    found = feature_influence(Linear(1, 0.5, 0), X, pairs=pairs, groups=judge, random_state=0)
    assert found.over == "7 groups in 7 blocks" and np.isfinite(found.intervals).all()


def test_the_interval_of_a_useless_feature_of_one_ranking_holds_nothing_lost():
    """Over shuffles, which all see the same rows, it held 0 in half of the samples."""
    held, rng = 0, np.random.default_rng(0)
    for _ in range(100):
        X = rng.normal(size=(120, 2))
        y = X[:, 0] + rng.normal(size=120)
        low, high = feature_influence(Linear(1, 0.3), X, y, n_repeats=4, random_state=0).intervals[1]
        held += low <= 0 <= high
    assert held >= 90


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


# Saved models of tables ---------------------------------------------------------------------------------------------


def shop(seed=0, n_queries=30, size=8):
    """A table as it comes: an identifier, a query column, numbers with missing values, a category, a date, a target."""
    rng = np.random.default_rng(seed)
    m = n_queries * size
    frame = pd.DataFrame(
        {
            "sku": [f"D{k:04}" for k in range(m)],
            "price": rng.choice([4.1, 0.1, 3.3, 7.7, 9.9], m),
            "query": np.repeat([f"search {k}" for k in range(n_queries)], size),
            "colour": rng.choice(["red", "blue", "green"], m),
            "age": rng.normal(size=m).round(3),
            "since": pd.to_datetime("2024-01-01") + pd.to_timedelta(rng.integers(0, 300, m), unit="D"),
        }
    )
    frame.loc[rng.random(m) < 0.1, "age"] = np.nan
    cheaper = -frame.groupby("query")["price"].transform(lambda one: one - one.mean())
    noisy = cheaper + 3 * (frame["colour"] == "red") + rng.normal(size=m)
    return frame.assign(grade=noisy.rank(pct=True).mul(4).astype(int))


WAYS_TO_TRAIN = {
    "automatic": ["--set", "time_limit=8"],
    "linear": ["--kernel", "linear"],
    "relative": ["--kernel", "rbf", "--set", "within_queries=yes"],
    "words": ["--kernel", "linear", "--encode", "colour=words:8"],
}


@pytest.fixture(scope="module", params=WAYS_TO_TRAIN)
def trained(request, tmp_path_factory):
    """What `preflearn train` saves, and the table it was trained on, as another program reads it."""
    folder = tmp_path_factory.mktemp(request.param)
    shop().to_csv(folder / "shop.csv", index=False)
    command = ["train", str(folder / "shop.csv"), "--target", "grade", "--query", "query", "--quiet"]
    assert run([*command, *WAYS_TO_TRAIN[request.param], "-o", str(folder / "model.preflearn")]) == 0
    return load_model(folder / "model.preflearn"), pd.read_csv(folder / "shop.csv")


def variants(frame):
    """The same rows as users have them: more columns, fewer, another order, another library."""
    used = ["price", "colour", "age", "since"]
    yield "as it was trained on", frame
    yield "without query and target", frame.drop(columns=["grade", "query"])
    yield "without what was set aside", frame[used]
    yield "in another order", frame[used[::-1]]
    yield "with another column", frame.assign(extra=1.0)[["extra", *used]]
    yield "a mapping", {name: frame[name].to_numpy() for name in used}
    yield "rows as mappings", frame.to_dict("records")
    polars = pytest.importorskip("polars")
    yield "polars", polars.from_pandas(frame)
    yield "pyarrow", pytest.importorskip("pyarrow").Table.from_pandas(frame)


@pytest.mark.filterwarnings("ignore::preflearn.preprocessing.TableWarning")
def test_contributions_of_a_saved_model_add_up_whatever_the_table_holds(trained):
    model, frame = trained
    scores = np.asarray(predict_scores(model, frame, frame["query"]))
    first = None
    for what, X in variants(frame):
        found = explain(model, X, qid=frame["query"], row=21)
        assert found.names == ["price", "colour", "age", "since"], what
        assert found.score == pytest.approx(scores[21], abs=1e-12), what
        assert found.contributions.sum() == pytest.approx(scores[21] - scores[16:24].mean(), abs=1e-9), what
        assert found.values[:2] == [frame["price"][21], frame["colour"][21]], what
        first = found if first is None else first
        np.testing.assert_allclose(found.contributions, first.contributions, atol=1e-9, err_msg=what)
    for row in (0, 100, 239):  # more rows, in queries of their own
        found = explain(model, frame, qid=frame["query"], row=row)
        mean = scores[row - row % 8 : row - row % 8 + 8].mean()
        assert found.contributions.sum() == pytest.approx(scores[row] - mean, abs=1e-9)
        assert found.score - found.query_mean == pytest.approx(scores[row] - mean, abs=1e-9)


@pytest.mark.filterwarnings("ignore::preflearn.preprocessing.TableWarning")
def test_the_influence_of_columns_of_a_saved_model(trained):
    model, frame = trained
    options = {"qid": frame["query"], "n_repeats": 2, "random_state": 0}
    whole = concordance(frame["grade"], predict_scores(model, frame, frame["query"]), frame["query"])
    first = None
    for what, X in variants(frame):
        found = feature_influence(model, X, frame["grade"], **options)
        assert found.names == ["price", "colour", "age", "since"], what
        assert found.concordance == pytest.approx(whole, abs=1e-12), what
        assert set(found.order[:2]) == {0, 1}, what
        first = found if first is None else first
        np.testing.assert_allclose(found.values, first.values, atol=1e-12, err_msg=what)
    some = feature_influence(model, frame, frame["grade"], features=["colour", 0], **options)
    assert some.names == ["colour", "price"]
    with pytest.raises(
        ValueError, match="features must be names or numbers of columns, from 0 to 3: found \\['sku'\\]"
    ):
        feature_influence(model, frame, frame["grade"], features=["sku"], **options)
    named = feature_influence(model, frame, frame["grade"], feature_names=list("abcd"), **options)
    assert named.names == list("abcd")


def test_shuffling_a_column_of_a_table_is_shuffling_it_before_it_is_encoded():
    """The slow way: the table itself is shuffled, and read again."""
    frame = shop().drop(columns=["sku"])
    y, qid = frame.pop("grade"), frame.pop("query")
    model = make_pipeline(TableEncoder(), RankRLS()).fit(frame, y, rankrls__qid=qid)
    found = feature_influence(model, frame, y, qid=qid, n_repeats=3, random_state=5)
    random, groups = np.random.RandomState(5), encode_queries(qid, len(frame))
    whole = concordance(y, model.predict(frame), qid)
    for k, name in enumerate(frame.columns):
        lost = []
        for _ in range(3):
            place = np.lexsort((random.random_sample(len(frame)), groups.codes))
            shuffled = frame.copy()
            column = frame[name].to_numpy().copy()
            column[groups.order] = frame[name].to_numpy()[place]
            lost.append(whole - concordance(y, model.predict(shuffled.assign(**{name: column})), qid))
        assert found.values[k] == pytest.approx(np.mean(lost), abs=1e-12)


def test_columns_that_the_model_needs_are_named():
    frame = shop().drop(columns=["sku"])
    y, qid = frame.pop("grade"), frame.pop("query")
    model = make_pipeline(TableEncoder(), RankRLS()).fit(frame, y, rankrls__qid=qid)
    for ask in (
        lambda X: explain(model, X, qid=qid, row=0),
        lambda X: feature_influence(model, X, y, qid=qid),
    ):
        with pytest.raises(ValueError, match="column 'price' of the training data is missing"):
            ask(frame.drop(columns="price"))


def test_steps_before_a_look_at_the_query():
    """Scalers and selections keep columns apart; a PCA mixes them, and what cannot be told is refused."""
    rng = np.random.default_rng(0)
    X, qid = rng.normal(size=(60, 4)) * [1, 10, 100, 1], np.repeat(np.arange(6), 10)
    y = X[:, 0] - X[:, 1] / 10

    def fitted(*steps):
        with config_context(enable_metadata_routing=True):
            return make_pipeline(*steps).fit(X, y, qid=qid)

    for steps in (
        (StandardScaler(), QueryRelative(), RankRLS(kernel="rbf")),
        (VarianceThreshold(), QueryRelative("rank", keep=False), StandardScaler(), RankRLS(kernel="rbf")),
        (MinMaxScaler(), AutoRanker(time_limit=2, random_state=0)),
        (QueryRelative(), PCA(3), RankRLS()),
    ):
        model = fitted(*steps)
        scores = predict_scores(model, X, qid)
        found = explain(model, X, qid=qid, row=33)
        assert len(found.names) == 4
        assert found.contributions.sum() == pytest.approx(scores[33] - scores[30:40].mean(), abs=1e-9)
    with pytest.raises(ValueError, match="cannot attribute features after PCA"):
        explain(fitted(PCA(3), QueryRelative(), RankRLS()), X, qid=qid, row=0)


def test_a_search_of_scikit_learn_and_frames_of_mixed_types():
    frame = shop()[["price", "colour"]]
    columns = make_column_transformer((OneHotEncoder(), ["colour"]), (StandardScaler(), ["price"]))
    search = GridSearchCV(make_pipeline(columns, Ridge()), {"ridge__alpha": [0.1, 1.0]}, cv=2)
    model = search.fit(frame, shop()["grade"])
    found = explain(model, frame, row=3)
    scores = model.predict(frame)
    assert found.names == ["price", "colour"]
    assert found.contributions.sum() == pytest.approx(scores[3] - scores.mean(), abs=1e-9)
    assert feature_influence(model, frame, shop()["grade"], n_repeats=1).names == ["price", "colour"]
