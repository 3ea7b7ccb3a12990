"""Models for programs that do not run Python: the exported model computes what ``predict`` does."""

from __future__ import annotations

import json
import re
import shlex
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse as sp
from scipy.special import ndtri
from sklearn import config_context
from sklearn.decomposition import PCA
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    MaxAbsScaler,
    MinMaxScaler,
    RobustScaler,
    StandardScaler,
)
from tests.model_files import fitted_models

import preflearn as pl
from preflearn.auto import fitting, onnx_nodes
from preflearn.auto._loops import shares_below
from preflearn.auto.candidates import candidates
from preflearn.auto.tasks import Task
from preflearn.auto.trees import Bins
from preflearn.cli.app import run
from preflearn.comparisons import encode_queries
from preflearn.feature_selection import GreedySelector
from preflearn.io import save_model, to_elasticsearch, to_onnx, to_solr
from preflearn.kernels import NystromMap
from preflearn.metrics.by_query import predict_scores
from preflearn.model_selection._choice import read_scoring
from preflearn.numerics.onnx_graph import ExportError
from preflearn.preprocessing import QueryRelative, TableEncoder
from preflearn.tables.models.onnx import onnx_inputs
from preflearn.tables.models.search_engines import folded_weights
from strategies import examples

pytest.importorskip("onnx", reason="the extra onnx is not installed")
pytest.importorskip("skl2onnx", reason="the extra onnx is not installed")
onnxruntime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
pd = pytest.importorskip("pandas", reason="pandas is not installed")

TYPES = {"tensor(float)": np.float32, "tensor(double)": np.float64, "tensor(string)": object}
TOLERANCE = 1e-5


def call(exported: Any, X: Any) -> np.ndarray:
    """What onnxruntime computes, from a matrix or a table."""
    session = onnxruntime.InferenceSession(exported.SerializeToString())
    feeds = {}
    for one in session.get_inputs():
        values = np.asarray(X if one.name == "X" else X[one.name])
        feeds[one.name] = values.reshape(values.shape[0], -1).astype(TYPES[one.type])
    return session.run(None, feeds)[0]


def assert_same(model: Any, X: np.ndarray, scores: Any = None, **options: Any) -> None:
    """Equal to ``predict`` on the same numbers, for inputs of either type."""
    for dtype in ("float64", "float32"):
        rows = X.astype(dtype).astype(np.float64)
        want = (scores or model.predict)(rows)
        got = call(to_onnx(model, dtype=dtype, **options), rows)
        assert got.shape == want.shape
        assert np.abs(got - want).max() <= TOLERANCE * max(1.0, np.abs(want).max())


@pytest.fixture(scope="module")
def ranking() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 4)) * [1.0, 10.0, 0.1, 1.0] + [0.0, 50.0, 1.0, 0.0]
    return X, np.sin(X[:, 0]) + 0.1 * X[:, 1] + rng.normal(scale=0.1, size=60), np.repeat(np.arange(10), 6)


# What the model files hold and cannot be exported for what it was fitted on, with a word of the reason.
REFUSED = {
    "BradleyTerry of labels": "labels", "BradleyTerry labels": "labels", "BradleyTerry with offsets": "identify items",
    "BradleyTerry offsets": "identify items", "BradleyTerryCV": "identify items", "pipeline": "FunctionTransformer",
    "TableEncoder": "'text'", "TableEncoder words": "'text'", "TableEncoder pipeline": "'text'",
    "QueryRelative": "one_query=True",
}  # fmt: skip


def refusal(name: str, model: Any) -> str | None:
    """Why a model of the zoo is refused: its class cannot be recorded, or what it was fitted on."""
    for _, step in getattr(model, "steps", [("", model)]):
        if type(step).__module__.startswith(("preflearn.", "preflearn_")) and not hasattr(
            step, "_onnx_nodes"
        ):
            return type(step).__name__
    return REFUSED.get(name)


def test_every_kind_of_model_is_exported_or_refused_by_name() -> None:
    for name, (model, rows) in fitted_models().items():
        if name == "words":  # its tokeniser needs a locale of the machine
            continue
        reason = refusal(name, model)
        if reason is not None:
            with pytest.raises(ExportError, match=reason):
                to_onnx(model)
            continue
        X = rows.toarray() if sp.issparse(rows) else np.asarray(rows)
        if X.dtype == object:
            got, want = call(to_onnx(model, example=rows), X), model.predict(rows)
        else:
            got = call(to_onnx(model, dtype="float64"), X)
            want = model.predict(X) if hasattr(model, "predict") else model.transform(X)
        if name == "Ridge":  # skl2onnx keeps a column
            got = got[:, 0]
        assert got.shape == want.shape, name
        assert np.abs(got - want).max() <= TOLERANCE, name


@settings(max_examples=16, deadline=None)
@given(
    kernel=st.sampled_from(
        ["linear", "rbf", "poly", "laplacian", "matern", "sigmoid", "cosine", "chi2", "additive_chi2"]
    ),
    shape=st.tuples(st.integers(2, 12), st.integers(1, 5)),
    outputs=st.sampled_from([None, 1, 3]),
    n_basis=st.sampled_from([None, 2]),
    offset=st.sampled_from([0.0, 1000.0]),
    seed=st.integers(0, 2**16),
)
def test_kernels(kernel, shape, outputs, n_basis, offset, seed) -> None:
    rng = np.random.default_rng(seed)
    X = np.abs(rng.normal(size=shape)) + (offset if kernel in ("rbf", "laplacian") else 0.0)
    X[-1] = X[0]
    y = rng.normal(size=shape[0] if outputs is None else (shape[0], outputs))
    model = pl.RLS(kernel=kernel, n_basis=n_basis, basis="uniform", random_state=0)
    try:
        model.fit(X, y)
    except (ValueError, np.linalg.LinAlgError):  # sigmoid and additive_chi2 are not positive semidefinite
        return
    assert_same(model, X[: shape[0] // 2 + 1])


@pytest.mark.parametrize(
    "options",
    [
        *({"kernel": "matern", "gamma": 0.7, "kernel_params": {"nu": nu}} for nu in (0.5, 1.5, 2.5)),
        {"kernel": "chi2", "gamma": 0.3},
        {"kernel": "poly", "gamma": 0.3, "degree": 2, "coef0": 0.5},
        {"kernel": "laplacian", "gamma": 0.2},
    ],
    ids=str,
)
def test_kernels_with_their_own_parameters(options, ranking) -> None:
    X, y = np.abs(ranking[0]) / 10, ranking[1]
    assert_same(pl.RLS(**options).fit(X, y), X[:9])


@pytest.mark.parametrize("scaler", [StandardScaler(), MinMaxScaler(), RobustScaler(), PCA(2)])
def test_pipelines_with_scalers(scaler, ranking) -> None:
    X, y, qid = ranking
    for learner in (pl.RankRLS(kernel="rbf"), pl.RankSVM(), pl.RankRLSCV(kernel="rbf", alphas=[0.01, 1.0])):
        model = make_pipeline(scaler, learner)
        model.fit(X, y, **{f"{type(learner).__name__.lower()}__qid": qid})
        assert_same(model, X[:7])


def test_small_alpha_keeps_its_digits_with_float32_inputs(ranking) -> None:
    """Coefficients of thousands that cancel: float32 arithmetic inside would show in the third digit."""
    X, y, qid = ranking
    model = make_pipeline(StandardScaler(), pl.RankRLS(1e-9, kernel="rbf", gamma=0.05))
    model.fit(X, y, rankrls__qid=qid)
    assert np.abs(model[-1].dual_coef_).sum() > 1e3
    assert_same(model, X)


def test_nystrom_features_and_selection(ranking) -> None:
    X, y, qid = ranking
    assert_same(make_pipeline(NystromMap(n_basis=12, random_state=0), pl.RLS(1e-3)).fit(X, y), X)
    assert_same(GreedySelector(pl.RankRLS(), 2).fit(X, y, qid=qid), X)


@pytest.mark.parametrize("method", ["standardise", "rank"])
def test_features_relative_to_the_query(method, ranking) -> None:
    """All rows of a call are one query; constant columns, ties and single rows give zeros."""
    X, y, _ = ranking
    X = X.round(1)
    X[:, 3] = 7.0
    model = make_pipeline(QueryRelative(method), pl.RLS()).fit(X, y)
    assert_same(model, X[:9], one_query=True)
    assert_same(model, X[:1], one_query=True)
    with pytest.raises(ExportError, match="QueryRelative looks at the other items"):
        to_onnx(model)
    with pytest.raises(ValueError, match="would be ignored"):
        to_onnx(model[-1], one_query=True)


@pytest.mark.parametrize("with_queries", [False, True])
def test_each_member_of_the_automatic_ranker(with_queries, ranking) -> None:
    """Linear and learned kernels, boosted and random trees, on each view of the features."""
    X, y, qid = ranking
    X = X.copy()
    X[:, 2] = X[:, 2].round(1).clip(0.9)  # repeated quantiles, also at the end
    queries = encode_queries(qid if with_queries else None, X.shape[0])
    model = pl.AutoRanker(time_limit=1e-6, random_state=0).fit(X, y, qid=queries.codes)
    folds = fitting._folds(y, queries, fitting.Settings(read_scoring("concordance")))
    task = Task(model.features_.views(X, queries), y, queries, folds, None, 0)
    trained = [
        (one.train(task, one.view).model, one.view) for one in candidates(X.shape[0], queries.n_groups)
    ]
    far = np.vstack([X[:6] + 0.03, X.min(axis=0) - 1, X.max(axis=0) + 1])

    def scores(rows: np.ndarray) -> np.ndarray:
        return model.predict(rows, qid=np.zeros(len(rows)))

    for kept in (*([one] for one in trained), trained):
        model.members_, model.views_ = [one for one, _ in kept], [view for _, view in kept]
        model.weights_ = np.full(len(kept), 0.5)
        relative = any("relative" in name for view in model.views_ for name in view)
        if relative:
            with pytest.raises(ExportError, match="AutoRanker looks at the other items"):
                to_onnx(model)
        assert_same(model, far, scores, one_query=relative)


@pytest.fixture(scope="module")
def table() -> pd.DataFrame:
    rng = np.random.default_rng(3)
    moments = pd.Timestamp("1999-12-30") + pd.to_timedelta(rng.integers(0, 3000 * 24, 80), unit="h")
    return pd.DataFrame(
        {
            "price": np.where(rng.random(80) < 0.1, np.nan, rng.normal(100, 20, 80)),
            "colour": rng.choice(["red", "green", "blue", "mauve", None], 80, p=[0.4, 0.3, 0.15, 0.05, 0.1]),
            "sold on": moments,
            "region": rng.integers(1, 4, 80),
            "fresh": rng.random(80) < 0.5,
        }
    )


def as_inputs(frame: pd.DataFrame) -> dict[str, np.ndarray]:
    """A table as the exported model takes it."""
    seconds = (frame["sold on"] - pd.Timestamp("1970-01-01")).dt.total_seconds()
    return {
        "price": frame["price"].to_numpy(dtype=float),
        "colour": frame["colour"].fillna("").to_numpy(dtype=object),
        "sold on": seconds.to_numpy(dtype=float),
        "region": frame["region"].astype(str).to_numpy(dtype=object),
        "fresh": frame["fresh"].to_numpy(dtype=float),
    }


@pytest.mark.parametrize("learner", [pl.RLS(), pl.RLS(kernel="rbf")])
def test_tables(table, learner) -> None:
    """Numbers with missing values, categories (rare, new and missing ones) and dates, across leap years."""
    y = table["price"].fillna(0).to_numpy() + (table["colour"] == "red") + table["sold on"].dt.day
    model = make_pipeline(TableEncoder(max_categories=3), StandardScaler(), learner).fit(table, y)
    assert set(model[0].kinds_.values()) == {"number", "category", "date", "boolean"}
    new = table.copy()
    new.loc[0, "colour"], new.loc[1, "price"], new.loc[2, "price"] = "puce", np.inf, -np.inf
    new.loc[3:6, "sold on"] = pd.to_datetime(
        ["2000-02-29 00:00", "1900-03-01 23:59", "2100-02-28 00:00", "1968-12-31 05:00"]
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the category that is new
        want = model.predict(new)
    for dtype in ("float64", "float32"):
        inputs = as_inputs(new)
        inputs["price"] = inputs["price"].astype(dtype)
        got = call(to_onnx(model, dtype=dtype), inputs)
        tolerance = {"float64": 1e-9, "float32": TOLERANCE}[dtype]  # the prices themselves are rounded
        assert np.abs(got - want).max() <= tolerance * np.abs(want).max()


def test_automatic_ranker_of_a_table(table) -> None:
    y = table["price"].fillna(80) + 30.0 * (table["colour"] == "red")
    model = pl.AutoRanker(time_limit=1e-6, random_state=0).fit(table, y)
    want = model.predict(table)
    got = call(to_onnx(model, dtype="float64"), as_inputs(table))
    assert np.abs(got - want).max() <= TOLERANCE * np.abs(want).max()


# Values that no float32 holds ----------------------------------------------------------------------------------------


def awkward(kind: str, n_queries: int = 40, size: int = 15, seed: int = 0) -> tuple[Any, ...]:
    """Rows whose values repeat and have no short binary form; whole numbers above 2^24; time stamps."""
    rng = np.random.default_rng(seed)
    m = n_queries * size
    price = rng.choice([4.1, 0.1, 3.3, 7.7, 5.2, 9.9, 1.1], m)
    stars = rng.integers(0, 5, m) / 10 + 0.1
    age = rng.normal(size=m).round(2)
    qid = np.repeat(np.arange(n_queries), size)
    if kind == "large integers":
        price = 2.0**24 + rng.integers(0, 9, m)
    elif kind == "time stamps":
        price = 1.7e9 + rng.integers(0, 100, m)
    spread = (price - price.mean()) / price.std()
    y = np.round(np.sin(2 * spread) + stars + age / 2 + rng.normal(scale=0.2, size=m), 1)
    return np.column_stack([price, stars, age, -price]), y, qid


def refuses_or_keeps_the_order(model: Any, X: Any, qid: Any, **options: Any) -> bool:
    """An export whose own scores order every query as ``predict`` does, or a refusal; whether it was exported.

    The check of the library is checked: every pair of rows is compared by hand.
    """
    try:
        exported = to_onnx(model, check=X, qid=qid, **options)
    except ExportError as error:
        assert "differently from predict" in str(error) or "recognises values" in str(error)
        return False
    want, got = predict_scores(model, X, qid), np.empty(len(qid))
    session = onnxruntime.InferenceSession(exported.SerializeToString())
    types = {one.name: TYPES[one.type] for one in session.get_inputs()}
    inputs = {
        name: values.astype(types[name]) for name, values in onnx_inputs(model, X).items() if name in types
    }
    for query in np.unique(qid):
        rows = np.flatnonzero(qid == query)
        got[rows] = session.run(None, {name: values[rows] for name, values in inputs.items()})[0]
        above = want[rows][:, None] > want[rows] + 1e-6 * max(1.0, np.abs(want).max())
        assert (got[rows][:, None] > got[rows])[above].all()
    if options.get("dtype") != "float32":
        assert np.abs(got - want).max() <= 1e-6 * max(1.0, np.abs(want).max())
    return True


@pytest.mark.parametrize("kind", ["repeated", "large integers", "time stamps"])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_every_member_keeps_the_order_of_awkward_values(kind, dtype) -> None:
    """Thresholds and quantiles that lie on 4.1 itself would not know the 4.1 of another program."""
    X, y, qid = awkward(kind)
    queries = encode_queries(qid, X.shape[0])
    model = pl.AutoRanker(time_limit=1e-6, random_state=0).fit(X, y, qid=qid)
    folds = fitting._folds(y, queries, fitting.Settings(read_scoring("concordance")))
    task = Task(model.features_.views(X, queries), y, queries, folds, None, 0)
    for one in candidates(X.shape[0], queries.n_groups):
        model.members_, model.views_ = [one.train(task, one.view).model], [one.view]
        model.weights_ = np.array([1.0])
        relative = model._looks_at_query
        kept = refuses_or_keeps_the_order(model, X, qid, dtype=dtype, one_query=relative)
        # What float32 cannot hold at all may be refused; nothing else may.
        assert kept or (dtype == "float32" and kind != "repeated"), one.name


@pytest.mark.parametrize("kind", ["repeated", "large integers", "time stamps"])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_learners_and_pipelines_keep_the_order_of_awkward_values(kind, dtype) -> None:
    X, y, qid = awkward(kind, 12, 10)
    for steps in (
        [StandardScaler(), pl.RankRLS()],
        [StandardScaler(), pl.RankRLS(kernel="rbf")],
        [QueryRelative(), StandardScaler(), pl.RankRLS(kernel="laplacian")],
        [QueryRelative("rank"), pl.RankRLS()],
        [MinMaxScaler(), pl.RankSVM()],
        [StandardScaler(), NystromMap(n_basis=12, random_state=0), pl.RankRLS()],
        [StandardScaler(), pl.AutoRanker(time_limit=1e-6, random_state=0)],
        [TableEncoder(kinds=dict.fromkeys(["x0", "x3"], "number")), StandardScaler(), pl.RankRLS(kernel="rbf")],
    ):  # fmt: skip
        with config_context(enable_metadata_routing=True):
            model = make_pipeline(*steps).fit(X, y, qid=qid)
        relative = any(getattr(step, "_looks_at_query", False) for step in model)
        kept = refuses_or_keeps_the_order(model, X, qid, dtype=dtype, one_query=relative)
        assert kept or dtype == "float32", steps


def test_a_trained_table_is_exported_as_it_predicts(tmp_path, capsys) -> None:
    """By the commands: float64 by default, float32 keeps the order, and a check that refuses."""
    X, y, qid = awkward("repeated", 20, 10)
    table = pd.DataFrame(X[:, :3], columns=["price", "stars", "age"]).assign(query=qid, grade=y)
    table["seen"] = 1.7e9 + np.random.default_rng(0).permutation(len(table))
    table["colour"] = np.where(np.arange(len(table)) % 3, "red", None)
    table["since"] = pd.to_datetime("2024-01-01") + pd.to_timedelta(np.arange(len(table)) * 7, unit="h")
    data, model, out = tmp_path / "shop.csv", tmp_path / "m.preflearn", tmp_path / "m.onnx"
    # What order there is inside a query is told by seconds that float32 does not have.
    table.assign(grade=table["seen"] % 200).to_csv(data, index=False)
    common = ["train", str(data), "--target", "grade", "--query", "query", "-q", "-o", str(model)]
    assert run([*common, "--kernel", "linear"]) == 0
    export = ["export", str(model), "--to", "onnx", "-o", str(out), "--check", str(data)]
    assert run(export) == 0
    assert "orders the rows of the check as predict does" in capsys.readouterr().out
    out.unlink()
    assert run([*export, "--dtype", "float32"]) == 2
    said = capsys.readouterr().err
    assert "of 20 queries differently" in said and "--dtype float64" in said and not out.exists()


def test_a_check_needs_its_rows(ranking) -> None:
    X, y, qid = ranking
    model = pl.RankRLS().fit(X, y, qid=qid)
    with pytest.raises(ValueError, match="qid would be ignored without check"):
        to_onnx(model, qid=qid)
    with pytest.raises(ValueError, match="has no predict"):
        to_onnx(StandardScaler().fit(X), check=X)
    to_onnx(pl.RankRLS().fit(X, np.column_stack([y, -y]), qid=qid), check=X, qid=qid)


def from_pieces(limits: np.ndarray, table: np.ndarray, x: np.ndarray) -> np.ndarray:
    """What the exported operators compute."""
    start, per_width, before, *coefficients = table[np.searchsorted(limits, x)].T
    v = (x - start) * per_width + before
    return sum(one * v**power for power, one in enumerate(coefficients))


@pytest.mark.parametrize("n_steps", [1, 2, 3, 5, 8, 100])
@pytest.mark.parametrize("value", [-105.9, -0.3, 0.1, 11.7])
def test_pieces_between_knots_that_differ_by_rounding(n_steps, value) -> None:
    """Quantiles between equal values are the value up to rounding: the piece before it is very narrow."""
    beside = value - n_steps * np.spacing(abs(value))
    knots = np.sort([value - 2.0, value - 1.0, beside, value, value + 1.0, value + 3.0])
    heights = np.linspace(0.0, 1.0, knots.size)
    limits, table = onnx_nodes._pieces(knots, heights, 3.0)
    expected = np.clip(ndtri(shares_below(knots[:, None], knots[:, None], heights)[:, 0]), -3.0, 3.0)
    np.testing.assert_allclose(from_pieces(limits, table, knots), expected, atol=1e-11, rtol=0)


def test_an_example_with_two_columns_of_one_name_is_refused(ranking) -> None:
    X, y, *_ = ranking
    example = pd.DataFrame(X[:3, :2], columns=["a", "a"])
    with pytest.raises(ValueError, match="2 columns with the name 'a': rename all but one"):
        to_onnx(pl.RankRLS().fit(X[:, :2], y), example=example)


@examples(30)
@given(
    seed=st.integers(0, 2**16),
    size=st.integers(2, 300),
    decimals=st.integers(0, 9),
    scale=st.sampled_from([2.0**-120, 1.0, 2.0**120]),
)
def test_pieces_of_normal_quantiles_are_those_of_predict(seed, size, decimals, scale) -> None:
    """At knots, repeated ones too, beside and between them, and beyond the ends."""
    rng = np.random.default_rng(seed)
    knots = np.sort(np.round(rng.normal(size=size), decimals)) * scale
    heights = np.linspace(0.0, 1.0, size)
    limits, table = onnx_nodes._pieces(knots, heights, 3.0)
    assert (np.diff(limits) >= 0).all() and table.shape[0] == limits.shape[0] + 1
    x = np.concatenate([knots, limits, knots[0] + rng.random(200) * np.ptp(knots), [-10 * scale, 10 * scale]])
    x = np.concatenate([x, np.nextafter(x, np.inf), np.nextafter(x, -np.inf)])
    found = from_pieces(limits, table, x)
    expected = np.clip(ndtri(shares_below(x[:, None], knots[:, None], heights)[:, 0]), -3.0, 3.0)
    # Beside a knot whose neighbour is not far in units of rounding, shares are rounded themselves.
    steps = np.diff(np.unique(knots)).min(initial=scale) / np.abs(knots).max(initial=1e-300)
    np.testing.assert_allclose(found, expected, atol=1e-11 + 1e-14 / steps, rtol=0)
    # The tree leads to the same pieces.
    nodes = onnx_nodes._search_tree(limits)
    for value in x[:: max(1, x.size // 50)]:
        node = nodes[0]
        while node[0] < node[1]:
            node = nodes[node[3] if value <= limits[node[2]] else node[4]]
        assert node[0] == np.searchsorted(limits, value)


@examples(30)
@given(seed=st.integers(0, 2**16), n_bins=st.integers(2, 9), scale=st.sampled_from([1e-20, 1.0, 1e20]))
def test_edges_lie_between_values(seed, n_bins, scale) -> None:
    """Rounding a value to float32, or what is left of one that cancelled, moves it past no edge."""
    rng = np.random.default_rng(seed)
    base = rng.choice(np.append(rng.normal(size=6).round(1), 0.0), 200) * scale
    signed = base - base.mean() if seed % 2 else np.abs(base)
    bins = Bins(signed[:, None], n_bins)
    noise = np.abs(signed).max() * 1e-15 * rng.choice([-1.0, 0.0, 1.0], 200) if signed.min() < 0 else 0.0
    for other in (signed, signed.astype(np.float32).astype(float), signed + noise):
        np.testing.assert_array_equal(
            np.searchsorted(bins.edges[0], other), bins.codes_of(signed[:, None])[:, 0]
        )


def test_an_exported_model_says_what_it_is(ranking) -> None:
    X, y, qid = ranking
    frame = pd.DataFrame(X, columns=list("abcd"))
    exported = to_onnx(pl.RankRLS().fit(frame, y, qid=qid))
    noted = {one.key: one.value for one in exported.metadata_props}
    assert json.loads(noted["features"]) == list("abcd")
    assert exported.producer_name == "preflearn" and exported.producer_version == pl.__version__
    assert [one.name for one in exported.graph.output] == ["scores"]


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (pl.RankRLS(kernel=lambda a, b: float(a @ b)), "callable kernel"),
        (make_pipeline(FunctionTransformer(np.tanh), pl.RLS()), "FunctionTransformer"),
    ],
)
def test_what_cannot_be_exported(model, message, ranking) -> None:
    X, y, _ = ranking
    with pytest.raises(ExportError, match=message):
        to_onnx(model.fit(X, y))
    with pytest.raises(ValueError, match="dtype must be"):
        to_onnx(pl.RLS().fit(X, y), dtype="float16")


# Search engines -------------------------------------------------------------------------------------------------------

LINEAR = [pl.RankRLS(), pl.RLS(), pl.RankSVM(), pl.RankRLSCV(alphas=[0.1, 1.0])]


@pytest.mark.parametrize(
    "before",
    [
        (), (StandardScaler(),), (StandardScaler(with_mean=False),), (RobustScaler(), MinMaxScaler()),
        (MaxAbsScaler(), "passthrough"), (GreedySelector(pl.RLS(), 2, cv=3), StandardScaler()),
    ],
)  # fmt: skip
def test_scaling_is_folded_into_the_weights(before, ranking) -> None:
    X, y, _ = ranking
    for learner in LINEAR:
        model = make_pipeline(*before, learner).fit(X, y)
        weights, intercept = folded_weights(model)
        assert np.allclose(X @ weights + intercept, model.predict(X), rtol=1e-9, atol=1e-9)


def check_solr(features: Any, model: Any) -> None:
    """The forms that Solr's guide documents for ``feature-store`` and ``model-store``."""
    assert isinstance(features, list) and features
    for one in features:
        assert set(one) == {"store", "name", "class", "params"}
        assert one["class"] == "org.apache.solr.ltr.feature.FieldValueFeature"
        assert set(one["params"]) == {"field"} and isinstance(one["params"]["field"], str)
    assert set(model) == {"store", "name", "class", "features", "params"}
    assert model["class"] == "org.apache.solr.ltr.model.LinearModel"
    assert [set(one) for one in model["features"]] == [{"name"}] * len(features)
    # Solr refuses a model unless each of its features has a weight and is in its store.
    assert {one["name"] for one in model["features"]} == set(model["params"]["weights"])
    assert {one["name"] for one in features} == set(model["params"]["weights"])
    assert {one["store"] for one in features} == {model["store"]}
    assert all(type(weight) is float for weight in model["params"]["weights"].values())


def check_elasticsearch(features: Any, model: Any) -> dict[str, float]:
    """The forms that the plugin documents for ``_featureset`` and ``_createmodel``; the weights."""
    assert set(features) == {"featureset"} and set(features["featureset"]) == {"name", "features"}
    for one in features["featureset"]["features"]:
        assert set(one) == {"name", "params", "template_language", "template"}
        assert one["params"] == [] and one["template_language"] == "mustache"
        assert one["template"]["function_score"]["field_value_factor"]["field"] == one["name"]
    assert set(model) == {"model"} and set(model["model"]) == {"name", "model"}
    inner = model["model"]["model"]
    assert set(inner) == {"type", "definition"} and inner["type"] == "model/linear"
    weights = json.loads(inner["definition"])
    assert set(weights) == {one["name"] for one in features["featureset"]["features"]}
    return weights


def test_definitions_for_search_engines_order_as_predict(ranking) -> None:
    X, y, qid = ranking
    model = make_pipeline(StandardScaler(), pl.RankRLS()).fit(X, y, rankrls__qid=qid)
    names = ["bm25", "price", "age", "stars"]
    features, definition = to_solr(model, name="shop", feature_names=names)
    check_solr(features, definition)
    weights = definition["params"]["weights"]
    assert check_elasticsearch(*to_elasticsearch(model, name="shop", feature_names=names)) == weights
    sums = X @ [weights[name] for name in names]
    assert np.array_equal(np.argsort(sums), np.argsort(model.predict(X)))


def test_unselected_features_are_left_out(ranking) -> None:
    X, y, _ = ranking
    model = make_pipeline(GreedySelector(pl.RLS(), 1, cv=3), pl.RLS()).fit(
        pd.DataFrame(X, columns=list("abcd")), y
    )
    features, _ = to_solr(model)
    assert len(features) == 1 and features[0]["name"] in "abcd"


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (pl.RankRLS(kernel="rbf"), "kernel='linear'"),
        (Ridge(), "Ridge is not a linear learner of preflearn"),
        (make_pipeline(PCA(2), pl.RLS()), "PCA cannot be folded"),
        (make_pipeline(MinMaxScaler(clip=True), pl.RLS()), "MinMaxScaler cannot be folded"),
    ],
)
def test_what_is_not_linear_is_refused_for_search_engines(model, message, ranking) -> None:
    X, y, _ = ranking
    for convert in (to_solr, to_elasticsearch):
        with pytest.raises(ExportError, match=message):
            convert(model.fit(X, y))


def test_other_refusals_for_search_engines(ranking, table) -> None:
    X, y, _ = ranking
    with pytest.raises(ExportError, match="2 outputs"):
        to_solr(pl.RLS().fit(X, np.column_stack([y, y])))
    with pytest.raises(ValueError, match="3 names, and the model 4 features"):
        to_solr(pl.RLS().fit(X, y), feature_names=list("abc"))
    with pytest.raises(ValueError, match="'a' twice"):
        to_solr(pl.RLS().fit(X, y), feature_names=list("abac"))
    with pytest.raises(ExportError, match="All weights of the model are zero"):
        to_solr(pl.RLS().fit(np.zeros((4, 1)), [1.0, 2.0, 3.0, 4.0]))
    encoded = make_pipeline(TableEncoder(), pl.RLS()).fit(table, np.arange(80.0))
    with pytest.raises(ExportError, match="'price', 'colour', 'sold on', 'region'"):
        to_elasticsearch(encoded)
    numbers = make_pipeline(TableEncoder(), pl.RLS()).fit(pd.DataFrame(X, columns=list("abcd")), y)
    assert [one["name"] for one in to_solr(numbers).features] == list("abcd")


# The command ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def model_file(tmp_path: Path, ranking) -> Path:
    X, y, qid = ranking
    model = make_pipeline(StandardScaler(), pl.RankRLS())
    model.fit(pd.DataFrame(X, columns=["bm25", "price", "age", "stars"]), y, rankrls__qid=qid)
    save_model(model, tmp_path / "model.preflearn")
    return tmp_path / "model.preflearn"


def test_export_command_for_search_engines(model_file: Path, capsys) -> None:
    for to, check in (("solr", check_solr), ("elasticsearch", check_elasticsearch)):
        target = model_file.with_name(f"{to}.json")
        assert run(["export", str(model_file), "--to", to, "-o", str(target)]) == 0
        features, model = (
            json.loads(path.read_text()) for path in (target.with_suffix(".features.json"), target)
        )
        check(features, model)
        out = capsys.readouterr().out
        assert "upload first" in out and "intercept" in out
        assert run(["export", str(model_file), "--to", to, "-o", str(target), "--name", "other", "-q"]) == 0
        assert "other" in target.read_text() and capsys.readouterr().out == ""


def test_export_command_for_onnx(model_file: Path, ranking, capsys) -> None:
    from preflearn.io import load_model

    target = model_file.with_suffix(".onnx")
    assert run(["export", str(model_file), "--to", "onnx", "-o", str(target)]) == 0
    assert "takes X (float64)" in capsys.readouterr().out
    for dtype in ("float64", "float32"):
        command = ["export", str(model_file), "--to", "onnx", "-o", str(target), "--dtype", dtype]
        assert run(command) == 0
        assert f"takes X ({dtype})" in capsys.readouterr().out
        session = onnxruntime.InferenceSession(target.read_bytes())
        X = ranking[0].astype(dtype)
        want = load_model(model_file).predict(
            pd.DataFrame(X.astype(float), columns=["bm25", "price", "age", "stars"])
        )
        assert np.abs(session.run(None, {"X": X})[0] - want).max() <= TOLERANCE


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--to", "onnx", "-o", "{dir}/model.preflearn"], "is the model itself"),
        (["--to", "onnx", "-o", "{dir}"], "is a folder"),
        (["--to", "onnx", "-o", "{dir}/no/m.onnx"], "no folder"),
        (["--to", "onnx", "-o", "{dir}/notes.txt"], "is not an export for onnx"),
        (["--to", "solr", "-o", "{dir}/notes.txt"], "is not an export for solr"),
        (["--to", "solr", "-o", "{dir}/other.json"], "is not an export for solr"),
        (["--to", "elasticsearch", "-o", "{dir}/other.json"], "is not an export for elasticsearch"),
        (["--to", "onnx", "-o", "{dir}/m.onnx", "--name", "x"], "--name would be ignored"),
        (["--to", "onnx", "-o", "{dir}/m.onnx", "--one-query"], "would be ignored"),
        (["--to", "solr", "-o", "{dir}/m.json", "--dtype", "float64"], "--dtype would be ignored"),
        (["--to", "solr", "-o", "{dir}/m.json", "--check", "{dir}/d.csv"], "--check would be ignored"),
        (["--to", "pmml", "-o", "{dir}/m.json"], "pmml"),
    ],
)
def test_export_command_refuses(model_file: Path, options, message, capsys) -> None:
    folder = model_file.parent
    (folder / "notes.txt").write_text("mine")
    (folder / "other.json").write_text('{"mine": 1}')
    assert run(["export", str(model_file), *(one.format(dir=folder) for one in options)]) == 2
    captured = capsys.readouterr()
    assert message in captured.err and captured.err.count("\n") == 1
    assert (folder / "notes.txt").read_text() == "mine"
    assert {path.name for path in folder.iterdir()} == {"model.preflearn", "notes.txt", "other.json"}


def test_one_refusal_names_the_commands_that_work(tmp_path: Path, call) -> None:
    """A model that looks at its queries and takes free text: both at once, and what is said works when it is typed."""
    rng = np.random.default_rng(0)
    words = [" ".join(rng.choice(["warm", "cold", "fine", "old", "odd"], 4)) + f" n{k}" for k in range(120)]
    frame = pd.DataFrame({"title": words, "place": rng.choice(["x", "y"], 120), "size": rng.normal(size=120)})
    frame["day"] = [f"2024-{1 + k % 9:02d}-{1 + k % 7:02d}" for k in range(120)]
    frame["q"], frame["grade"] = np.arange(120) // 10, rng.integers(0, 3, 120)
    data, model, out = tmp_path / "d.csv", tmp_path / "m.preflearn", tmp_path / "m.onnx"
    frame.to_csv(data, index=False)
    common = ("--learner", "rankrls", "--kernel", "linear", "--set", "within_queries=yes", "-q")
    assert call("train", data, "--target", "grade", "--query", "q", *common, "-o", model)[0] == 0
    export = ("export", model, "--to", "onnx", "-o", out)
    status, _, err = call(*export)
    assert status == 2 and err.count("\n") == 1
    assert "column 'title' is free text" in err and "looks at the other items of the query" in err
    said = re.search(
        r"with the other options of its training, preflearn (.*) && preflearn (.*)\. preflearn serve", err
    )
    assert said is not None
    train, again = (shlex.split(one) for one in said.groups())
    assert call(*[str(data) if word == "d.csv" else word for word in train], *common)[0] == 0
    frame.assign(place="z").to_csv(tmp_path / "semi.csv", index=False, sep=";")
    status, written, err = call(*again, "--check", tmp_path / "semi.csv")
    assert status == 0, err
    assert "takes place (text), size (float64), day (seconds since 1970, float64), gives scores" in written
    notes = err.splitlines()
    assert all(line.startswith("note: ") for line in notes) and "'z'" in err and "delimiter=';'" in err
    status, _, err = call(*export)
    assert status == 2 and f"Run preflearn export {model} --to onnx --output {out} --one-query" in err


def test_force_replaces_a_foreign_file(model_file: Path) -> None:
    target = model_file.with_name("notes.txt")
    target.write_text("mine")
    assert run(["export", str(model_file), "--to", "onnx", "-o", str(target), "--force", "-q"]) == 0
    assert target.read_bytes() != b"mine"


def test_models_of_the_command_line_are_exported(tmp_path: Path, ranking, capsys) -> None:
    """Trained from a table, with the names of its columns; features relative to their query need --one-query."""
    X, y, qid = ranking
    frame = pd.DataFrame(X, columns=["bm25", "price", "age", "stars"]).assign(grade=y, query=qid)
    data = tmp_path / "data.csv"
    frame.to_csv(data, index=False)
    common = ["train", str(data), "--target", "grade", "--query", "query", "--kernel", "linear", "-q"]
    assert run([*common, "-o", str(tmp_path / "a.preflearn")]) == 0
    assert (
        run(["export", str(tmp_path / "a.preflearn"), "--to", "solr", "-o", str(tmp_path / "a.json"), "-q"])
        == 0
    )
    weights = json.loads((tmp_path / "a.json").read_text())["params"]["weights"]
    assert set(weights) == {"bm25", "price", "age", "stars"}
    assert run([*common, "--set", "within_queries=yes", "-o", str(tmp_path / "b.preflearn")]) == 0
    capsys.readouterr()
    for to, message in (("onnx", "--one-query"), ("solr", "QueryRelative cannot be folded")):
        command = ["export", str(tmp_path / "b.preflearn"), "--to", to, "-o", str(tmp_path / "b"), "-q"]
        assert run(command) == 2
        assert message in capsys.readouterr().err
    out = tmp_path / "b.onnx"
    command = ["export", str(tmp_path / "b.preflearn"), "--to", "onnx", "-o", str(out), "--one-query", "-q"]
    assert run(command) == 0
    one, scores = tmp_path / "one.csv", tmp_path / "scores.csv"
    frame[frame["query"] == 3].to_csv(one, index=False)
    assert run(["predict", str(tmp_path / "b.preflearn"), str(one), "-o", str(scores)]) == 0
    session = onnxruntime.InferenceSession(out.read_bytes())
    columns = {name: frame.loc[frame["query"] == 3, name].to_numpy()[:, None] for name in weights}
    got = session.run(None, {name: values.astype(np.float64) for name, values in columns.items()})[0]
    assert np.abs(got - pd.read_csv(scores)["score"].to_numpy()).max() <= TOLERANCE
