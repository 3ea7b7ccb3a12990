"""Model files for tests: a fitted model of every kind, and tools to forge and damage their files."""

from __future__ import annotations

import copy
import io
import json
import zipfile
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import skops.io
from scipy import sparse as sp
from sklearn.compose import make_column_transformer
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import Ridge
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, StandardScaler
from sklearn.tree import ExtraTreeRegressor

import preflearn as pl
from preflearn.auto.kernels import KernelAndCurves
from preflearn.auto.trees import TreeSum
from preflearn.comparisons import encode_queries
from preflearn.feature_selection import GreedySelector
from preflearn.graphs import AllPathsFeatures, LabeledGraph, WeisfeilerLehmanFeatures
from preflearn.kernels import EmpiricalKernelMap, NystromMap
from preflearn.kernels.functions import Kernel
from preflearn.model_selection import ConformalRanker, QueryKFold, RiskControlledRanker
from preflearn.multiple_kernels import MultipleKernelKroneckerRLS, MultipleKernelRankRLS
from preflearn.preprocessing import QueryRelative, TableEncoder
from preflearn.relations import KroneckerRLS, KroneckerRLSCV, TwoStepRLS, TwoStepRLSCV
from preflearn.relations.tables import TableRelation, prepared
from preflearn.squared.expansion import Curves
from preflearn_papers.parses import Link, Linkage, LinkFeatures, ParseRanker, Sentence, Token
from preflearn_papers.ppi.extractor import InteractionExtractor

Zoo = dict[str, tuple[Any, Any]]


def of_tables(rows: Any, columns: Any, Y: Any) -> TableRelation:
    """A relation of two tables."""
    steps = prepared(rows), prepared(columns)
    model = KroneckerRLS().fit(steps[0].transform(rows), steps[1].transform(columns), Y)
    return TableRelation(model, *steps)


def fitted_models() -> Zoo:
    """Small fitted models of every kind that differs on disk, each with rows to predict or transform."""
    rng = np.random.default_rng(5)
    X, y, qid = rng.normal(size=(24, 3)), rng.normal(size=24), np.repeat(np.arange(6), 4)
    K, thin = X @ X.T, sp.csr_array(np.where(np.abs(X) > 0.8, X, 0))
    both = np.column_stack([y, -y])
    new = X[:5] + 0.5
    texts = ["red tea", "green tea", "black milk", "red milk"] * 6
    colours = np.array([[text.split()[0]] for text in texts], dtype=object)
    graphs = [
        LabeledGraph([["a"], ["b"], [label]], [(0, 1, 0.5), (1, 2, 0.5)])
        for label in "abcabdacdbca"
    ]  # fmt: skip
    tokens = (Token("cells", "NNS"), Token("grow", "VBP"), Token("fast", "RB"))
    linkages = [Linkage(tokens, (Link(k, 2, "MV"), Link(0, 1, "S")), score=float(k)) for k in range(2)]
    sentences = [Sentence(f"s{k}", "", tokens, tuple(linkages)) for k in range(4)]
    extractor = InteractionExtractor(n_basis=4, alphas=(0.1, 1.0))
    pairs = [[0, 1], [2, 3]]
    answers = np.array([[0, 1], [2, 3], [1, 2], [0, 3], [4, 1], [2, 0]])
    judge = ["ann", "bo"] * 3
    U, V, Y = X[:6], X[6:11, :2], both[:6] @ rng.normal(size=(2, 5))
    new_pairs = (U[:2] + 0.5, V[:3])
    drugs, targets = {"kind": ["acid", "base"] * 3, "mass": U[:, 0]}, {"length": V[:, 0]}
    views = {"left": X[:, :2], "right": X}
    days = np.datetime_as_string(np.datetime64("2024-03-30") + np.arange(24)).tolist()
    table = {
        "price": X[:, 0].tolist(),
        "text": [f"{text} and {k} more cups" for k, text in enumerate(texts)],
        "colour": colours[:, 0].tolist(),
        "sold": days,
        "fresh": ["yes", "no", None] * 8,
    }
    kinds = {"text": "text"}
    return {
        "BradleyTerry of labels": (pl.BradleyTerry(kernel="items").fit_pairs(["a", "b", "c", "d"], pairs), ["a", "z"]),
        "BradleyTerry with offsets": (pl.BradleyTerry(item_offsets=0.5).fit_pairs(X, pairs, judge=["p", "q"]), new),
        "RankRLS linear": (pl.RankRLS().fit(X, y, qid=qid), new),
        "RankRLS rbf": (pl.RankRLS(kernel="rbf").fit(X, y, qid=qid), new),
        "RankRLS two outputs": (pl.RankRLS(kernel="rbf").fit(X, both, qid=qid), new),
        "RankRLS sparse": (pl.RankRLS(kernel="rbf").fit(thin, y, qid=qid), thin[:5]),
        "RankRLS reduced set": (pl.RankRLS(kernel="rbf", n_basis=5, random_state=0).fit(X, y, qid=qid), new),
        "RankRLS generator": (
            pl.RankRLS(kernel="rbf", n_basis=5, random_state=np.random.RandomState(3)).fit(X, y, qid=qid), new,
        ),
        "RankRLS precomputed": (pl.RankRLS(kernel="precomputed").fit(K, y, qid=qid), K[:5]),
        "RankRLS in chunks": (pl.RankRLS().partial_fit(X, y, qid=qid), new),
        "RankRLS in chunks, reduced set": (
            pl.RankRLS(kernel="rbf", n_basis=4, random_state=0).partial_fit(X, y, qid=qid), new,
        ),
        "RLS": (pl.RLS(kernel="poly").fit(X, y), new),
        "RLS linear, two outputs": (pl.RLS().fit(X, both), new),
        "RankRLSCV": (pl.RankRLSCV(kernel="rbf", alphas=[0.1, 1.0], cv=QueryKFold(3)).fit(X, y, qid=qid), new),
        "RLSCV": (pl.RLSCV(alphas=[0.1, 1.0]).fit(X, y), new),
        "ConformalRanker": (ConformalRanker(pl.RankRLS(), coverage=0.8).fit(X, y, qid=qid), new),
        "ConformalRanker of a search": (
            ConformalRanker(pl.RankRLSCV(alphas=[0.1, 1.0]), coverage=0.8, target="top-k", k=2).fit(X, y, qid=qid), new,
        ),
        "RiskControlledRanker": (
            RiskControlledRanker(pl.RankRLS(), risk=0.3).fit(X, (y > 0).astype(float), qid=qid), new,
        ),
        "CoRankRLS": (
            pl.CoRankRLS(views=[[0, 1], [2]], kernel="rbf", gamma="median")
            .fit(X, np.where(qid < 4, y, np.nan), qid=qid), new,
        ),
        "CoRankRLS linear": (pl.CoRankRLS(views=[[0, 1], [2, 0]]).fit(X, both, qid=qid), new),
        "OrdinalRanker": (pl.OrdinalRanker(cv=3).fit(X, np.digitize(y, [-0.5, 0.5])), new),
        "RankRFM": (pl.RankRFM([0.1, 1.0], max_rounds=1, cv=3).fit(X, y, qid=qid), new),
        "RankRFM full metric": (pl.RankRFM([0.1, 1.0], metric="full", max_rounds=1, cv=3).fit(X, y, qid=qid), new),
        "AutoRanker": (pl.AutoRanker(random_state=0).fit(X, y), new),
        "RankSVM": (pl.RankSVM().fit(X, y, qid=qid), new),
        "RankSVM rbf": (pl.RankSVM(kernel="rbf").fit(X, y, qid=qid), new),
        "RankSVMCV": (pl.RankSVMCV(alphas=[0.1, 1.0]).fit(X, y, qid=qid), new),
        "TransductiveRankRLS": (pl.TransductiveRankRLS(kernel="rbf").fit(X, y, qid=qid), new),
        "OrderPreferenceRegressor": (pl.OrderPreferenceRegressor(alpha=0.1).fit(X, y, pairs=pairs), new),
        "OrderPreferenceRegressor linear": (
            pl.OrderPreferenceRegressor(alpha=0.1, kernel="linear").fit(X, y, pairs=pairs), new,
        ),
        "OrderPreferenceRegressorCV": (
            pl.OrderPreferenceRegressorCV(alphas=[0.1, 1.0], gammas=[1.0]).fit(X, y, pairs=pairs), new,
        ),
        "NystromMap": (NystromMap("rbf", n_basis=5, random_state=0).fit(X), new),
        "NystromMap sparse": (NystromMap("rbf", n_basis=5, random_state=0).fit(thin), thin[:5]),
        "EmpiricalKernelMap": (EmpiricalKernelMap("rbf").fit(X), new),
        "pipeline": (make_pipeline(StandardScaler(), FunctionTransformer(np.tanh), pl.RLS()).fit(X, y), new),
        "pipeline of maps": (make_pipeline(NystromMap(n_basis=4, random_state=0), pl.RLS()).fit(X, y), new),
        "words": (make_pipeline(CountVectorizer(), pl.RLS()).fit(texts, y), texts[:5]),
        "categories": (make_pipeline(OneHotEncoder(drop="first"), pl.RLS()).fit(colours, y), colours[:5]),
        "columns": (
            make_pipeline(make_column_transformer((StandardScaler(), [0, 2]), remainder="passthrough"), pl.RLS())
            .fit(X, y), new,
        ),
        "search": (
            GridSearchCV(pl.RLS(), {"alpha": [0.1, 1.0]}, scoring="neg_mean_absolute_error", cv=QueryKFold(3))
            .fit(X, y, groups=qid), new,
        ),
        "Ridge": (Ridge().fit(X, y), new),
        "AllPathsFeatures": (AllPathsFeatures("sum").fit(graphs), graphs[:5]),
        "WeisfeilerLehmanFeatures": (WeisfeilerLehmanFeatures(depth=1).fit(graphs), graphs[:5]),
        "BradleyTerry": (pl.BradleyTerry().fit_pairs(X, answers), new),
        "BradleyTerry, judges": (pl.BradleyTerry(kernel="rbf").fit_pairs(X, answers, judge=judge), new),
        "BradleyTerry, median": (pl.BradleyTerry(kernel="rbf", gamma="median").fit_pairs(X, answers), new),
        "BradleyTerry sparse": (pl.BradleyTerry().fit_pairs(thin, answers), thin[:5]),
        "BradleyTerry labels": (pl.BradleyTerry(kernel="items").fit_pairs(list("abcde"), answers), ["b", "x"]),
        "BradleyTerry offsets": (pl.BradleyTerry(item_offsets=1.0).fit_pairs(X, answers, ties=answers[:, 0] > 2), new),
        "BradleyTerry precomputed": (pl.BradleyTerry(kernel="precomputed").fit_pairs(K, answers), K[:5]),
        "BradleyTerry reduced set": (
            pl.BradleyTerry(kernel="rbf", n_basis=5, random_state=0).fit_pairs(X, answers), new,
        ),
        "BradleyTerryCV": (
            pl.BradleyTerryCV([0.1, 1.0], kernel="rbf", gammas=[0.3, 1.0], item_offsets=[0.3, 1.0])
            .fit_pairs(X, answers), new,
        ),
        "KroneckerRLS": (KroneckerRLS(row_kernel="rbf").fit(U, V, Y), new_pairs),
        "TableRelation": (of_tables(drugs, targets, Y), (drugs, targets)),
        "KroneckerRLS incomplete": (KroneckerRLS().fit(U, V, np.where(Y > Y.max() - 0.1, np.nan, Y)), new_pairs),
        "KroneckerRLS of one kind": (
            KroneckerRLS(row_kernel="rbf", column_kernel="rbf", pairwise="symmetric").fit(U, None, Y[:, :1] + Y[:, 0]),
            (new_pairs[0],),
        ),
        "KroneckerRLS cartesian": (KroneckerRLS(pairwise="cartesian").fit(U, V, Y), new_pairs),
        "KroneckerRLS precomputed": (
            KroneckerRLS(row_kernel="precomputed", column_kernel=Kernel("rbf", gamma=0.5), pairwise="cartesian")
            .fit(U @ U.T, V, Y), (new_pairs[0] @ U.T, V),
        ),
        "KroneckerRLSCV": (KroneckerRLSCV([0.1, 1.0], hold_out="rows").fit(sp.csr_array(U), V, Y), new_pairs),
        "TwoStepRLS": (TwoStepRLS().fit(U, V, Y), new_pairs),
        "TwoStepRLSCV": (TwoStepRLSCV([0.1, 1.0], [1.0]).fit(U, V, Y), new_pairs),
        "MultipleKernelRankRLS": (
            MultipleKernelRankRLS({"left": "linear", "right": ("rbf", {"gamma": 0.5})}, [0.1, 1.0], weights="alignment")
            .fit(views, y, qid=qid), {name: view[:5] for name, view in views.items()},
        ),
        "MultipleKernelKroneckerRLS": (
            MultipleKernelKroneckerRLS(["linear", "rbf"], ["precomputed"], [0.1, 1.0], weights="equal")
            .fit([U, U], [V @ V.T], Y), ([U[:2], U[:2]], [V @ V.T]),
        ),
        "GreedySelector": (GreedySelector(pl.RankRLS(), 2).fit(X, y, qid=qid), new),
        "TableEncoder": (TableEncoder(kinds=kinds, text_features=2, max_categories=2).fit(table), table),
        "TableEncoder words": (TableEncoder(kinds={"text": "words:8"}).fit(table), table),
        "TableEncoder pipeline": (make_pipeline(TableEncoder(), pl.RLS()).fit(table, y), table),
        "QueryRelative": (QueryRelative().fit(X), new),
        "LinkFeatures": (LinkFeatures(min_count=1).fit(linkages), linkages),
        "ParseRanker": (ParseRanker(n_folds=2).fit(sentences), linkages),
        "InteractionExtractor": (extractor.fit(graphs, [0, 1] * 6, documents=np.repeat(range(4), 3)), graphs[:5]),
    }  # fmt: skip


def every_member() -> tuple[pl.AutoRanker, np.ndarray, np.ndarray]:
    """An AutoRanker with a member of each kind, some rows, and their queries.

    Trees of up to 32 leaves, of up to 64 and of more are evaluated by different loops.
    """
    rng = np.random.default_rng(0)
    X, qid = rng.normal(size=(300, 3)), np.repeat(np.arange(30), 10)
    y = np.sin(2 * X[:, 0]) + X[:, 1] ** 2 + 0.1 * rng.normal(size=300)
    model = pl.AutoRanker(random_state=0, preset="fast").fit(X, y, qid=qid)
    views = model.features_.views(X, encode_queries(qid, 300))
    of_query, quantiles = ("standardised", "relative"), ("quantiles",)
    Q, S = views[quantiles], views[of_query]
    kernel = pl.RankRFM([0.1, 1.0], max_rounds=1, cv=3, n_basis=20, random_state=0).fit(Q, y, qid=qid)
    curves = Curves.along(Q, kernel.metric_)
    heights = rng.normal(size=curves.knots.size)
    members = [
        (pl.RankRLS().fit(S, y, qid=qid), of_query),
        (kernel, quantiles),
        (pl.RankRFM([0.1, 1.0], metric="full", max_rounds=1, cv=3).fit(Q, y, qid=qid), quantiles),
        (KernelAndCurves.of(kernel, curves, heights), quantiles),
    ]
    for leaf in (2, 5, 20):
        trees = [ExtraTreeRegressor(min_samples_leaf=leaf, random_state=k).fit(S, y) for k in range(3)]
        members.append((TreeSum.of_mean(trees), of_query))
    model.members_, model.views_ = (list(one) for one in zip(*members, strict=True))
    model.weights_ = np.full(len(members), 1 / len(members))
    return model, X, qid


def use(model: Any, X: Any) -> Any:
    """What a model is for."""
    if hasattr(model, "posterior"):
        return np.concatenate(model.posterior(X, variances_only=True))
    if isinstance(X, tuple):
        return model.predict(*X)
    return model.predict(X) if hasattr(model, "predict") else model.transform(X)


# Files in parts.


def unpack(model: Any) -> tuple[dict[str, Any], dict[str, bytes]]:
    """The schema of a model and the other members of its file."""
    with zipfile.ZipFile(io.BytesIO(skops.io.dumps(model))) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    return json.loads(members.pop("schema.json")), members


def pack(schema: Any, members: dict[str, bytes], *, method: int = zipfile.ZIP_STORED, **header: Any) -> bytes:
    """A model file with these parts, as anybody can write it."""
    head = {
        "format": "preflearn model",
        "version": 1,
        "model": "x",
        "written_by": {},
        "metadata": {},
        **header,
    }
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", method) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
        archive.writestr("schema.json", json.dumps(schema))
        archive.writestr("preflearn.json", json.dumps(head))
    return target.getvalue()


def as_npy(array: np.ndarray, *, allow_pickle: bool = False) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=allow_pickle)
    return buffer.getvalue()


def as_npz(method: int = zipfile.ZIP_DEFLATED, **arrays: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as archive:
        for name, array in arrays.items():
            archive.writestr(f"{name}.npy", as_npy(array))
    return buffer.getvalue()


# Nodes as skops writes them.

_ids = iter(range(10**9, 10**18))


def node(loader: str, named: str, **content: Any) -> dict[str, Any]:
    module, _, name = named.rpartition(".")
    return {
        "__class__": name, "__module__": module, "__loader__": loader, "__id__": next(_ids), **content,
    }  # fmt: skip


def scalar(value: Any) -> dict[str, Any]:
    return node("JsonNode", "builtins.str", content=json.dumps(value), is_json=True)


def sequence(*values: Any, kind: str = "tuple") -> dict[str, Any]:
    return node(f"{kind.capitalize()}Node", f"builtins.{kind}", content=list(values))


def mapping(**values: Any) -> dict[str, Any]:
    types = [node("TypeNode", "builtins.str") for _ in values]
    return node("DictNode", "builtins.dict", content=values, key_types=sequence(*types, kind="list"))


def instance(named: str, **attributes: Any) -> dict[str, Any]:
    return node("ObjectNode", named, content=mapping(**attributes))


def with_attribute(schema: dict[str, Any], name: str, value: Any) -> dict[str, Any]:
    """The schema of an object with one more attribute, or another value of one."""
    changed = copy.deepcopy(schema)
    attributes = changed["content"]
    if name not in attributes["content"]:
        attributes["key_types"]["content"].append(node("TypeNode", "builtins.str"))
    attributes["content"][name] = value
    return changed


def every_node(schema: Any) -> Iterator[dict[str, Any]]:
    """All nodes of a schema, the outer ones first."""
    if isinstance(schema, dict):
        if "__loader__" in schema:
            yield schema
        for value in schema.values():
            yield from every_node(value)
    elif isinstance(schema, list):
        for value in schema:
            yield from every_node(value)


def every_slot(schema: Any) -> Iterator[Callable[[Any], None]]:
    """For each place of a schema where a node stands, a function that puts another one there."""
    places = (
        schema.items() if isinstance(schema, dict) else enumerate(schema) if isinstance(schema, list) else ()
    )
    for key, value in list(places):
        if isinstance(value, dict) and "__loader__" in value:
            yield lambda other, key=key: schema.__setitem__(key, other)
        yield from every_slot(value)
