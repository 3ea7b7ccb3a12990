"""Model files from strangers: they call nothing, ask for bounded work, and end no process.

The short campaign runs with the other tests; ``PREFLEARN_LONG_TESTS=1`` makes it some thirty times longer.
"""

from __future__ import annotations

import copy
import faulthandler
import importlib
import io
import json
import os
import pkgutil
import random
import subprocess
import sys
import threading
import time
import warnings
import zipfile
from contextlib import contextmanager
from pathlib import Path

import joblib
import numpy as np
import pytest
import skops.io
from scipy import sparse as sp
from sklearn.base import BaseEstimator
from sklearn.preprocessing import FunctionTransformer, StandardScaler
from tests.model_files import (
    as_npy,
    as_npz,
    every_member,
    every_node,
    every_slot,
    fitted_models,
    instance,
    mapping,
    node,
    pack,
    scalar,
    sequence,
    unpack,
    use,
    with_attribute,
)

import preflearn
from preflearn import AutoRanker, RankRLS
from preflearn.io import load_model, model_info, save_model

LONG = os.environ.get("PREFLEARN_LONG_TESTS") == "1"

# What skops 0.16 has nodes for; the list is written out so that it does not shrink with the version installed.
LOADERS = (
    "BytearrayNode", "BytesNode", "CachedNode", "ConstructorFromReduceNode", "DTypeNode", "DefaultDictNode", "DictNode",
    "FunctionNode", "JsonNode", "ListNode", "LossNode", "MaskedArrayNode", "MethodNode", "NdArrayNode", "ObjectNode",
    "OperatorFuncNode", "PartialNode", "RandomGeneratorNode", "RandomStateNode", "SetNode", "SliceNode",
    "SparseMatrixNode", "TreeNode", "TupleNode", "TypeNode",
)  # fmt: skip
# Calls that would show, calls that would not, and names that are harmless under the right kind of node only.
NAMES = (
    "os.mkdir", "os.system", "builtins.eval", "builtins.exec", "builtins.print", "builtins.map", "subprocess.Popen",
    "pathlib.Path", "functools.partial", "operator.methodcaller", "operator.attrgetter", "joblib.memory.Memory",
    "sklearn.metrics._scorer._cached_call", "sklearn.metrics._scorer.make_scorer",
    "sklearn.metrics._scorer.get_scorer", "sklearn.metrics._regression.r2_score",
    "sklearn.metrics._scorer._Scorer", "sklearn.pipeline.Pipeline", "sklearn.pipeline.make_pipeline",
    "sklearn.tree._tree.Tree", "sklearn.svm._classes.SVC", "sklearn.datasets._base.load_iris",
    "preflearn.metrics.pairwise.concordance", "preflearn.metrics.registry.get_scorer",
    "preflearn.learners.rankrls.RankRLS", "preflearn.comparisons.grouping.encode_queries",
    "preflearn.squared.moments.QueryMoments", "preflearn.tables.models.files.load_model",
    "numpy.tanh", "numpy.load", "numpy.mean",
    "numpy.ndarray", "numpy.float64", "numpy.random.seed", "numpy.lib._npyio_impl.load", "builtins.dict",
    "builtins.list", "builtins.slice", "builtins.type", "collections.defaultdict", "scipy.sparse._csr.csr_array",
    "scipy.io._mio.loadmat",
)  # fmt: skip


CALLS = {"fit", "fit_transform", "predict", "score", *(name.rpartition(".")[2] for name in NAMES)} - {
    "load_model"
}


# What must not happen while a file is loaded.

_watching = threading.local()
_FORBIDDEN_EVENTS = ("os.mkdir", "os.system", "os.remove", "os.rename", "os.exec", "os.posix_spawn", "subprocess.",
                     "shutil.", "socket.", "pickle.", "ctypes.", "webbrowser.")  # fmt: skip


def _hear(event, arguments):
    seen = getattr(_watching, "seen", None)
    if seen is None:
        return
    writes = event == "open" and isinstance(arguments[1], str) and set(arguments[1]) & set("wax+")
    if event.startswith(_FORBIDDEN_EVENTS) or (writes and "__pycache__" not in str(arguments[0])):
        seen.append((event, str(arguments)[:200]))


sys.addaudithook(_hear)


def _hear_calls(frame, event, _):
    """Calls of what files like to name: learners, pipelines and measures do not run while a file is loaded."""
    if event == "call":
        file, name = frame.f_code.co_filename, frame.f_code.co_name
        # Python 3.11 has a method of this name that groups entry points; it loads none.
        if name in CALLS and frame.f_code.co_qualname != "SelectableGroups.load":
            _watching.seen.append((file, name))


@contextmanager
def nothing_happens():
    """Fails where the block writes, starts or removes anything, unpickles, or calls a learner or a measure."""
    _watching.seen = seen = []
    sys.setprofile(_hear_calls)
    try:
        yield
    finally:
        sys.setprofile(None)
        _watching.seen = None
    assert seen == []


def refused(path, words="refused, the file asks for"):
    with nothing_happens(), pytest.raises(ValueError, match=words) as error:
        load_model(path)
    assert "\n" not in str(error.value)
    assert str(path) in str(error.value)
    return str(error.value)


@pytest.fixture(scope="module")
def zoo():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return fitted_models()


@pytest.fixture(scope="module")
def linear(zoo):
    """The schema and the members of a valid model."""
    return unpack(zoo["RankRLS linear"][0])


# 1. Nothing is called.


class Planted:
    def __reduce__(self):
        return (os.mkdir, ("exploded",))


def pipeline_that_reads_a_cache(folder):
    """A pipeline whose fit reads the pickles of a joblib cache."""
    scaler = instance("sklearn.preprocessing._data.StandardScaler", copy=scalar(True), with_mean=scalar(True),
                      with_std=scalar(True))  # fmt: skip
    ridge = instance("sklearn.linear_model._ridge.Ridge", alpha=scalar(1.0), fit_intercept=scalar(True))
    steps = sequence(sequence(scalar("a"), scaler), sequence(scalar("b"), ridge), kind="list")
    return instance("sklearn.pipeline.Pipeline", steps=steps, memory=scalar(str(folder)), verbose=scalar(False),
                    transform_input=scalar(None))  # fmt: skip


def test_a_measure_under_the_loader_of_constructors_is_not_called(linear, tmp_path):
    schema, members = linear
    cache = tmp_path / "cache"
    rows = node("NdArrayNode", "numpy.ndarray", type="numpy", file="rows.npy")
    arguments = sequence(scalar(None), pipeline_that_reads_a_cache(cache), scalar("fit"), rows)
    call = node("ConstructorFromReduceNode", "sklearn.metrics._scorer._cached_call", content=arguments)
    path = tmp_path / "model"
    path.write_bytes(pack(with_attribute(schema, "extra_", call), {**members, "rows.npy": as_npy(np.eye(3))}))
    message = refused(path)
    assert not cache.exists()
    assert "sklearn.metrics._scorer._cached_call (ConstructorFromReduceNode at model.extra_)" in message


@pytest.mark.parametrize("named", ["os.system", "numpy.load", "builtins.int"])
def test_an_array_is_not_read_as_what_is_no_scalar_of_numpy(linear, tmp_path, named):
    schema, members = linear
    path = tmp_path / "model"
    one = node("NdArrayNode", named, type="numpy", file="one.npy")
    path.write_bytes(pack(with_attribute(schema, "extra_", one), {**members, "one.npy": as_npy(np.array(1))}))
    assert f"{named} (NdArrayNode at model.extra_)" in refused(path)


def test_a_pipeline_with_a_cache_is_neither_loaded_nor_saved(linear, tmp_path, zoo):
    path = tmp_path / "model"
    path.write_bytes(pack({**pipeline_that_reads_a_cache(tmp_path), "protocol": 2}, {}))
    refused(path, "Pipeline.memory")
    pipeline = copy.deepcopy(zoo["pipeline"][0]).set_params(memory=joblib.Memory(tmp_path / "cache"))
    with pytest.raises(ValueError, match="cannot be saved: it holds"):
        save_model(pipeline, tmp_path / "other")
    with pytest.raises(ValueError, match="Pipeline.memory"):
        save_model(pipeline.set_params(memory=str(tmp_path / "cache")), tmp_path / "other")


def contents(rng):
    """Contents of a node that one or the other loader takes."""
    path = scalar("exploded")
    rows = node("NdArrayNode", "numpy.ndarray", type="numpy", file="rows.npy")
    return rng.choice(
        [
            {"content": sequence(path)},
            {"content": [path]},
            {"content": mapping(bit_generator=scalar("seed"), state=scalar(1))},
            {"content": {"func": node("FunctionNode", "os.mkdir"), "args": sequence(path), "kwds": mapping(),
                         "namespace": scalar(None)}},
            {"content": {"obj": instance("sklearn.pipeline.Pipeline"), "func": "fit"}},
            {"content": {"main": mapping(), "default_factory": node("TypeNode", "os.mkdir")}},
            {"content": {"data": rows, "mask": rows}},
            {"content": {"bit_generator": mapping(bit_generator=scalar("seed")), "seed_seq": mapping(entropy=path)}},
            {"content": mapping(), "key_types": sequence(kind="list")},
            {"content": "\"os\"", "is_json": True},
            {"attrs": sequence(path), "content": None},
            {"content": rows, "__reduce__": {"args": sequence(path)}},
            {"content": mapping(), "__reduce__": {"args": sequence(path)}},
            {"type": "numpy", "file": "rows.npy"},
            {"type": "json", "content": [path], "shape": sequence(scalar(1))},
            {"type": "scipy", "file": "rows.npy"},
            {"file": "rows.npy"},
            {},
        ]
    )  # fmt: skip


# Under these kinds of node, these names are plain values.
HARMLESS = {
    ("DictNode", "builtins.dict"), ("ListNode", "builtins.list"), ("NdArrayNode", "numpy.float64"),
    ("NdArrayNode", "numpy.ndarray"), ("ObjectNode", "preflearn.learners.rankrls.RankRLS"),
    ("ObjectNode", "sklearn.metrics._scorer._Scorer"), ("ObjectNode", "sklearn.pipeline.Pipeline"),
    ("SliceNode", "builtins.slice"), ("SparseMatrixNode", "scipy.sparse._csr.csr_array"), ("TypeNode", "numpy.float64"),
}  # fmt: skip


FUNCTIONS_AT = {
    "function": ("numpy.tanh",),
    "measure": ("sklearn.metrics._regression.r2_score", "preflearn.metrics.pairwise.concordance"),
}


@pytest.mark.parametrize("loader", LOADERS)
def test_no_name_under_any_loader_is_called(linear, tmp_path, monkeypatch, loader):
    monkeypatch.chdir(tmp_path)
    schema, members = linear
    members = {**members, "rows.npy": as_npy(np.eye(3))}
    rng = random.Random(loader)
    path = tmp_path / "model"
    for named in NAMES:
        for _ in range(60 if LONG else 1):
            forged = node(loader, named, **contents(rng))
            slot = rng.choice(["attribute", "element", "kernel", "step", "key", "function", "measure"])
            path.write_bytes(pack(placed(schema, forged, slot), members))
            with nothing_happens():
                try:
                    model = load_model(path)
                except ValueError as error:
                    assert "\n" not in str(error)
                    continue
            allowed = HARMLESS | {("FunctionNode", function) for function in FUNCTIONS_AT.get(slot, ())}
            # A JSON node holds a plain value, whatever it calls itself.
            assert loader == "JsonNode" or (loader, named) in allowed, (named, slot, model)
    assert os.listdir(tmp_path) == ["model"]


def placed(schema, forged, slot):
    """A model with a forged node somewhere in it."""
    if slot == "attribute":
        return with_attribute(schema, "extra_", forged)
    if slot == "element":
        return with_attribute(schema, "extra_", sequence(scalar(1), forged, kind="list"))
    if slot == "kernel":
        return with_attribute(schema, "kernel", forged)
    if slot == "key":
        table = node(
            "DictNode", "builtins.dict", content={"a": scalar(1)}, key_types=sequence(forged, kind="list")
        )
        return with_attribute(schema, "extra_", table)
    if slot == "step":
        steps = sequence(sequence(scalar("a"), forged), kind="list")
        return with_attribute(
            schema, "extra_", instance("sklearn.pipeline.Pipeline", steps=steps, memory=scalar(None))
        )
    if slot == "function":
        transformer = "sklearn.preprocessing._function_transformer.FunctionTransformer"
        return with_attribute(schema, "extra_", instance(transformer, func=forged))
    scorer = instance("sklearn.metrics._scorer._Scorer", _score_func=forged, _sign=scalar(1), _kwargs=mapping(),
                      _response_method=scalar("predict"))  # fmt: skip
    return with_attribute(schema, "extra_", scorer)


@pytest.mark.parametrize(
    ("attribute", "value"),
    [
        ("predict", scalar(1)),
        ("fit", scalar(1)),
        ("_read_kernel", scalar(1)),
        ("__class__", scalar("os")),
        ("__dict__", scalar("os")),
        ("_repr_html_", scalar("<script>")),
        ("surprise", scalar(1)),
        ("kernel", node("FunctionNode", "numpy.tanh")),
        ("kernel", node("FunctionNode", "sklearn.metrics._regression.r2_score")),
        ("extra_", node("TypeNode", "builtins.type")),
    ],
)
def test_attributes_that_a_class_does_not_have_are_refused(linear, tmp_path, attribute, value):
    schema, members = linear
    path = tmp_path / "model"
    path.write_bytes(pack(with_attribute(schema, attribute, value), members))
    refused(path)


def test_a_scorer_asks_for_predictions_only(linear, tmp_path):
    schema, members = linear
    measure = node("FunctionNode", "sklearn.metrics._regression.r2_score")
    path = tmp_path / "model"
    for response, good in (("predict", True), ("fit", False), ("__reduce__", False)):
        scorer = instance("sklearn.metrics._scorer._Scorer", _score_func=measure, _sign=scalar(1), _kwargs=mapping(),
                          _response_method=scalar(response))  # fmt: skip
        path.write_bytes(pack(with_attribute(schema, "extra_", scorer), members))
        if good:
            load_model(path)
        else:
            refused(path)


def test_a_function_does_not_reach_another_place_under_its_identity(zoo, tmp_path):
    schema, members = unpack(FunctionTransformer(np.tanh))
    (function,) = [one for one in every_node(schema) if one["__loader__"] == "FunctionNode"]
    path = tmp_path / "model"
    path.write_bytes(pack(with_attribute(schema, "extra_", function), members))
    refused(path, "numpy.tanh")
    path.write_bytes(
        pack(with_attribute(schema, "extra_", {**scalar(1), "__id__": function["__id__"]}), members)
    )
    refused(path, "two values under one identity")


def test_an_array_of_pickles_is_refused_wherever_it_lies(zoo, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    pickled = as_npy(np.array([Planted()], dtype=object), allow_pickle=True)
    path = tmp_path / "model"
    for model, _ in zoo.values():
        schema, members = unpack(model)
        for name in members:
            content = pickled
            if name.endswith(".npz"):
                content = as_npz(
                    data=np.ones(1), indices=np.zeros(1, int), indptr=np.array([0, 1]), shape=np.array([1, 1])
                )
                with zipfile.ZipFile(tmp_path / "inner", "w") as archive:
                    archive.writestr("data.npy", pickled)
                content = (tmp_path / "inner").read_bytes()
                (tmp_path / "inner").unlink()
            path.write_bytes(pack(schema, {**members, name: content}))
            refused(path, "damaged or truncated")
    assert os.listdir(tmp_path) == ["model"]


def test_plain_types_and_scorers_of_ours_come_back(tmp_path):
    from sklearn.impute import SimpleImputer
    from sklearn.model_selection import GridSearchCV, GroupKFold

    from preflearn.metrics import ndcg_scorer

    rng = np.random.default_rng(0)
    X, y, groups = rng.normal(size=(12, 2)), rng.integers(0, 3, 12), np.repeat(range(4), 3)
    search = GridSearchCV(RankRLS(), {"alpha": [1.0]}, scoring=ndcg_scorer(k=2), cv=GroupKFold(2))
    search.fit(X, y, groups=groups)
    save_model(search, tmp_path / "model")
    assert load_model(tmp_path / "model").score(X, y) == search.score(X, y)
    imputer = SimpleImputer().fit(X)
    save_model(imputer, tmp_path / "model")
    np.testing.assert_array_equal(load_model(tmp_path / "model").transform(X), imputer.transform(X))


# 2. Work and memory are bounded before anything is read.


def shared_nesting(depth):
    """Lists in lists, each with the next one twice, the second time by reference: 2^depth ways through them."""
    inner = scalar(1)
    for _ in range(depth):
        again = {key: inner[key] for key in ("__class__", "__module__", "__loader__", "__id__")}
        inner = sequence(inner, {**again, "content": []}, kind="list")
    return inner


def test_shared_references_are_followed_once(linear, tmp_path):
    schema, members = linear
    for depth in (20, 40, 80):
        forged = with_attribute(schema, "extra_", shared_nesting(depth))
        (tmp_path / f"nested {depth}").write_bytes(pack(forged, members))
    code = "import sys; from preflearn.io import load_model; [load_model(path) for path in sys.argv[1:]]"
    subprocess.run([sys.executable, "-c", code, *tmp_path.iterdir()], check=True, timeout=100)


def test_deep_nesting_and_values_inside_themselves_are_refused(linear, tmp_path, monkeypatch):
    schema, members = linear
    path = tmp_path / "model"
    inner = scalar(1)
    for depth in range(400):
        inner = sequence(inner, kind="list")
        if depth in (150, 399):
            path.write_bytes(pack(with_attribute(schema, "extra_", inner), members))
            refused(path, "nested deeper|damaged or truncated")
    path.write_bytes(pack(schema, members).replace(b'"__class__"', b"[" * 11))
    refused(path, "damaged or truncated")
    loop = sequence(scalar(1), kind="list")
    loop["content"].append({**loop, "content": []})
    path.write_bytes(pack(with_attribute(schema, "extra_", loop), members))
    refused(path, "contains itself")
    monkeypatch.setattr("preflearn.tables.models.nodes.MAX_NODES", 100)
    values = sequence(*[scalar(1)] * 200, kind="list")
    path.write_bytes(pack(with_attribute(schema, "extra_", values), members))
    refused(path, "more than 100 values")


def sparse_bomb(n_bytes):
    zeros = np.zeros(n_bytes // 8)
    return as_npz(format=np.array(b"csr"), shape=np.array([1, 1]), data=zeros, indices=np.zeros(1, int),
                  indptr=np.array([0, 1]))  # fmt: skip


def test_files_that_unpack_to_more_than_they_are_get_refused_before_they_do(linear, tmp_path):
    schema, members = linear
    path = tmp_path / "model"
    matrix = node("SparseMatrixNode", "scipy.sparse._csr.csr_array", type="scipy", file="bomb.npz")
    content = pack(with_attribute(schema, "extra_", matrix), {**members, "bomb.npz": sparse_bomb(80 << 20)})
    assert len(content) < 1 << 20
    path.write_bytes(content)
    refused(path, "more memory than its size allows")
    refused_within(path, 48 << 20)
    path.write_bytes(pack(schema, {**members, "zeros": bytes(1 << 24)}, method=zipfile.ZIP_DEFLATED))
    refused(path, "compressed or encrypted")
    # An array that says it is larger than it is.
    header = as_npy(np.zeros(1)).replace(b"(1,)", b"(9999999999,)").replace(b" " * 9 + b"\n", b"\n")
    for name in members:
        path.write_bytes(pack(schema, {**members, name: header}))
        refused(path, "damaged or truncated")
    path.write_bytes(pack(schema, {**members, **{f"m{k}": b"" for k in range(10_000)}}))
    refused(path, "members, more than")
    with pytest.raises(ValueError, match="raise max_bytes"):
        load_model(save(tmp_path, schema, members), max_bytes=100)
    with pytest.raises(ValueError, match="max_bytes must be"):
        load_model(path, max_bytes=-1)
    assert load_model(save(tmp_path, schema, members), max_bytes=1 << 20) is not None


def save(folder, schema, members):
    path = folder / "saved"
    path.write_bytes(pack(schema, members))
    return path


def refused_within(path, n_bytes):
    """The file is refused by a process that may take only so much memory more than it has."""
    code = (
        "import resource, preflearn.io, preflearn.tables.models.nodes as _, sys\n"
        "size = int(open('/proc/self/statm').read().split()[0]) * resource.getpagesize()\n"
        f"resource.setrlimit(resource.RLIMIT_AS, (size + {n_bytes},) * 2)\n"
        "try: preflearn.io.load_model(sys.argv[1])\n"
        "except ValueError as error: print(error)\n"
    )
    if not Path("/proc/self/statm").exists():
        return
    found = subprocess.run([sys.executable, "-c", code, path], capture_output=True, text=True, timeout=100)
    assert "more memory than its size allows" in found.stdout, found.stderr


def test_overlapping_members_are_refused(linear, tmp_path):
    schema, members = linear
    path = save(tmp_path, schema, {**members, **{f"m{k}.npy": as_npy(np.zeros(2000)) for k in range(3)}})
    content = bytearray(path.read_bytes())
    with zipfile.ZipFile(path) as archive:
        first, last = archive.getinfo("m0.npy"), archive.getinfo("preflearn.json")
    # In the directory, the size of a small member becomes that of the whole file.
    start = content.rindex(b"PK\x01\x02")
    assert content[start + 46 :].startswith(b"preflearn.json")
    content[start + 24 : start + 28] = (len(content)).to_bytes(4, "little")
    path.write_bytes(content)
    assert first.file_size > last.file_size
    refused(path, "overlap")


def test_one_member_under_many_names_is_read_once(linear, tmp_path):
    schema, members = linear
    arrays = [node("NdArrayNode", "numpy.ndarray", type="numpy", file="big.npy") for _ in range(50)]
    path = tmp_path / "model"
    path.write_bytes(
        pack(with_attribute(schema, "extra_", sequence(*arrays, kind="list")),
             {**members, "big.npy": as_npy(np.zeros(1000))})
    )  # fmt: skip
    found = load_model(path).extra_
    assert all(one is found[0] for one in found)


def test_a_header_is_read_without_the_model(linear, tmp_path):
    schema, members = linear
    path = tmp_path / "model"
    path.write_bytes(
        pack(with_attribute(schema, "extra_", node("ObjectNode", "os.system")), members, model="RankRLS")
    )
    assert model_info(path)["model"] == "RankRLS"


# 3. What is loaded does not end the process.


def test_a_sparse_basis_with_indices_out_of_range_is_refused(zoo, tmp_path):
    model, X = zoo["RankRLS sparse"]
    schema, members = unpack(model)
    (name,) = [name for name in members if name.endswith(".npz")]
    basis = model.basis_
    valid = {"format": np.array(b"csr"), "shape": np.array(basis.shape), "data": basis.data, "indices": basis.indices,
             "indptr": basis.indptr}  # fmt: skip
    wrong = {
        "indices": [basis.indices + 10**6, basis.indices - 10, basis.indices[:-1], basis.indices * 1.0],
        "indptr": [basis.indptr * 1000, basis.indptr[::-1].copy(), basis.indptr[:-1], basis.indptr - 1],
        "shape": [np.array([24, 2]), np.array([23, 3]), np.array([24, -3]), np.array([24, 3, 1])],
        "data": [basis.data[:-1], basis.data * np.nan, basis.data.astype(str)],
        "format": [np.array(b"csc"), np.array(b"xyz")],
    }
    path = tmp_path / "model"
    path.write_bytes(pack(schema, {**members, name: as_npz(**valid)}))
    np.testing.assert_allclose(load_model(path).predict(X), model.predict(X))
    for part, others in wrong.items():
        for other in others:
            path.write_bytes(pack(schema, {**members, name: as_npz(**{**valid, part: other})}))
            refused(path)


@pytest.mark.parametrize("change", ["longer", "shorter", "deeper", "not finite", "text", "scalar"])
def test_arrays_that_do_not_fit_are_refused_for_every_learner(zoo, tmp_path, change):
    """Whatever array of a learner predictions depend on, and is changed in form, is noticed when loading."""
    path = tmp_path / "model"
    changed = 0
    for name, (model, _) in zoo.items():
        if not type(model).__module__.startswith("preflearn."):
            continue
        schema, members = unpack(model)
        for attribute in sorted(declared(model)):
            value = getattr(model, attribute, None)
            if not isinstance(value, np.ndarray):
                continue
            # The other axis of weights is that of the outputs, of which there may be any number.
            other = misfit(value, change, axis=-1 if attribute == "coef_" else 0)
            if other is None:
                continue
            array = node("NdArrayNode", "numpy.ndarray", type="numpy", file="other.npy")
            path.write_bytes(
                pack(with_attribute(schema, attribute, array), {**members, "other.npy": as_npy(other)})
            )
            message = refused(path)
            assert "do not fit together" in message, (name, attribute)
            changed += 1
    assert changed > 15


def declared(model):
    return set(model._fitted_arrays())


def misfit(value, change, axis):
    if change == "longer":
        return np.concatenate([value, value], axis=axis)
    if change == "shorter":
        return np.delete(value, 0, axis=axis)
    if change == "deeper":
        return value[None, None]
    if change == "scalar":
        return np.asarray(1.0)
    if change == "text":
        return None if value.dtype.kind == "U" else value.astype(str)
    return np.full(value.shape, np.nan) if value.dtype.kind == "f" else None


@pytest.mark.parametrize(
    ("kind", "record", "field", "value"),
    [
        ("BradleyTerry", "Answers", "n_rows", scalar(3)),
        ("BradleyTerry", "Answers", "pairs", np.array([[0, -1]])),
        ("BradleyTerry", "Answers", "pairs", np.array([[0, 24]] * 6)),
        ("BradleyTerry", "Answers", "pairs", np.array([[0.5, 1.0]] * 6)),
        ("BradleyTerry", "Answers", "weight", np.full(6, np.inf)),
        ("BradleyTerry", "Answers", "scale", np.ones(5)),
        ("BradleyTerry, judges", "Answers", "judges", np.full(6, 2)),
        ("BradleyTerry, judges", "Answers", "judges", np.zeros(4, dtype=int)),
        ("BradleyTerry reduced set", "NystromMap", "rank_", scalar(4)),
        ("KroneckerRLS", "ObjectKernel", "n", scalar(7)),
        ("KroneckerRLS", "ObjectKernel", "objects", np.ones((4, 3))),
        ("KroneckerRLS", "ObjectKernel", "objects", scalar(None)),
        ("KroneckerRLS", "ObjectKernel", "kernel", scalar("linear")),
        ("KroneckerRLS", "Kernel", "gamma", scalar("wide")),
        ("KroneckerRLS", "Kernel", "kernel", scalar("os.system")),
        ("KroneckerRLS", "Kernel", "kernel_params", mapping(n_jobs=scalar(100))),
        ("KroneckerRLS precomputed", "ObjectKernel", "objects", scalar(None)),
        ("MultipleKernelRankRLS", "KernelSum", "scales", sequence(scalar(1.0), kind="list")),
        ("MultipleKernelRankRLS", "KernelSum", "scales", sequence(scalar(0.0), scalar(1.0), kind="list")),
        ("MultipleKernelRankRLS", "KernelSum", "names", sequence(scalar("a"), scalar("b"), kind="list")),
        ("MultipleKernelRankRLS", "MultipleKernelRankRLS", "weights_", mapping(left=scalar(1.0))),
        ("GreedySelector", "GreedySelector", "selected_", np.array([0, 3])),
        ("GreedySelector", "GreedySelector", "selected_", np.array([0, 1, 2])),
        ("GreedySelector", "RankRLS", "n_features_in_", scalar(3)),
        ("TableEncoder", "TextColumn", "idf", np.ones(0)),
        ("TableEncoder", "TextColumn", "directions", np.ones((3, 2))),
        # A calendar of all days between the dates is written down.
        ("TableEncoder", "DateColumn", "median", scalar(1e15)),
        ("TableEncoder", "DateColumn", "parts", sequence(scalar("second"), kind="list")),
        ("TableEncoder", "NumberColumn", "median", scalar("x")),
        ("TableEncoder", "CategoryColumn", "categories", sequence(scalar(1), kind="list")),
        ("TableEncoder", "TableEncoder", "unseen_", mapping(price=scalar(0))),
        ("TableEncoder", "TableEncoder", "n_features_in_", scalar(2)),
        ("QueryRelative", "QueryRelative", "needs_qid_", scalar(None)),
    ],
)  # fmt: skip
def test_records_inside_of_learners_are_checked(zoo, tmp_path, kind, record, field, value):
    schema, members = unpack(zoo[kind][0])
    if isinstance(value, np.ndarray):
        members["other.npy"] = as_npy(value)
        value = node("NdArrayNode", "numpy.ndarray", type="numpy", file="other.npy")
    changed = 0
    for one in every_node(schema):
        if one["__loader__"] == "ObjectNode" and one["__class__"] == record:
            if field in one["content"]["content"]:
                one["content"]["content"][field] = value
                changed += 1
    assert changed
    path = tmp_path / "model"
    path.write_bytes(pack(schema, members))
    refused(path, "do not fit together")


def test_members_of_an_automatic_ranker_are_models_of_its_features(tmp_path):
    """A file whose members cannot score rows is refused when it is loaded, not when it is asked."""
    rng = np.random.default_rng(0)
    X, qid = rng.normal(size=(60, 3)), np.repeat(np.arange(12), 5)
    model = AutoRanker(time_limit=1e-6, random_state=0).fit(X, X[:, 0] - X[:, 1], qid=qid)
    width = len(model.views_[0]) * 3
    rows = rng.normal(size=(20, width))
    several = RankRLS().fit(rows, rng.normal(size=(20, 2)))
    narrow = RankRLS().fit(rows[:, 1:], rows[:, 0])
    for wrong, words in (
        (3.5, "a float, expected a model"),
        ({"coef_": 1}, "a dict, expected a model"),
        (StandardScaler().fit(rows), "a StandardScaler, expected a model"),
        (RankRLS(), "not fitted"),
        (several, "several scores"),
        (narrow, f"takes {width - 1} features, and its view has {width}"),
    ):
        other = copy.copy(model)
        other.members_ = [wrong] * len(model.members_)
        save_model(other, tmp_path / "model")
        message = refused(tmp_path / "model", "AutoRanker whose values do not fit together")
        assert "members_[0]" in message and words in message
    for attribute, words in (("features_", "not a fitted preparation"), ("encoder_", "neither None nor")):
        other = copy.copy(model)
        setattr(other, attribute, StandardScaler().fit(rows))
        save_model(other, tmp_path / "model")
        assert words in refused(tmp_path / "model", "do not fit together")


@pytest.fixture(scope="module")
def automatic():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return every_member()


def without_knots(features):
    features.quantiles_.quantiles_ = np.empty((0, 3))
    features.quantiles_.references_ = np.empty(0)


def with_knots_in_disorder(features):
    features.quantiles_.quantiles_ = features.quantiles_.quantiles_[::-1].copy()


def with_shares_beyond_one(features):
    features.quantiles_.references_ = features.quantiles_.references_ * 2


def setting(name, change):
    """Put another value in the place of an attribute, which may lie in a part."""
    *parts, attribute = name.split(".")

    def damage(owner):
        for part in parts:
            owner = getattr(owner, part)
        setattr(owner, attribute, change(getattr(owner, attribute)))

    return damage


DAMAGED_FEATURES = [
    (without_knots, "no knots, expected at least one"),
    (with_knots_in_disorder, "knots that are not in ascending order"),
    (with_shares_beyond_one, "ascending shares between 0 and 1"),
    (setting("quantiles_.quantiles_", lambda knots: knots.astype(np.float16)), "expected float64 or float32"),
    (setting("quantiles_.quantiles_", lambda knots: knots.astype(bool)), "type bool, expected numbers"),
    (setting("kept_", lambda kept: kept[::-1].copy()), "in ascending order"),
    (setting("kept_", lambda kept: kept[:0]), "at least one feature"),
    (setting("n_features_in_", lambda n: n + 1), "features_ takes 4 features, expected 3"),
    (setting("scaler_.mean_", lambda mean: mean[:1]), "mean_ has shape"),
    (setting("scaler_.mean_", lambda mean: mean * np.nan), "not finite"),
    (setting("scaler_.scale_", lambda scale: 0 * scale), "scale_ has zeros"),
    (setting("scaler_.scale_", lambda scale: -scale), "not positive"),
]


@pytest.mark.parametrize(("damage", "words"), DAMAGED_FEATURES)
def test_a_damaged_preparation_of_an_automatic_ranker_is_refused(automatic, tmp_path, damage, words):
    model = copy.deepcopy(automatic[0])
    damage(model.features_)
    save_model(model, tmp_path / "model")
    assert words in refused(tmp_path / "model", "do not fit together")


def first_inner(change):
    """Another child of the first node that is not a leaf."""

    def changed(children):
        children = children.copy()
        children[np.flatnonzero(children)[0]] = change(children)
        return children

    return changed


DAMAGED_TREES = [
    (setting("roots_", lambda roots: roots[:0]), "first node of each tree"),
    (setting("roots_", lambda roots: roots[::-1].copy()), "first node of each tree"),
    (setting("roots_", lambda roots: roots * 0), "first node of each tree"),
    (setting("roots_", lambda roots: roots + 10**6), "first node of each tree"),
    (setting("left_", first_inner(lambda left: left.shape[0] - 1)), "outside of its tree"),
    (setting("left_", first_inner(lambda left: 2**62)), "outside of its tree"),
    (setting("right_", first_inner(lambda right: -1)), "does not come after its parent"),
    (setting("right_", first_inner(lambda right: 0)), "does not come after its parent"),
    (setting("right_", first_inner(lambda right: right.max(initial=0, where=right < 20))), "exactly once"),
    (setting("left_", lambda left: left * 0), "exactly once"),
]


@pytest.mark.parametrize(("damage", "words"), DAMAGED_TREES)
@pytest.mark.parametrize("place", [-1, -2, -3])
def test_nodes_that_are_not_trees_are_refused(automatic, tmp_path, damage, words, place):
    """One row walks, many go down level by level or by bits: where these could differ, the file is damaged."""
    model = copy.deepcopy(automatic[0])
    damage(model.members_[place])
    save_model(model, tmp_path / "model")
    assert words in refused(tmp_path / "model", "do not fit together")


def test_a_learned_kernel_with_a_width_that_is_none_is_refused(automatic, tmp_path):
    for wrong in (None, 0.0, -1.0, float("nan"), "x"):
        model = copy.deepcopy(automatic[0])
        model.members_[1].gamma_ = wrong
        save_model(model, tmp_path / "model")
        assert "gamma" in refused(tmp_path / "model", "do not fit together")


def changed_arrays(array):
    """An array in the forms that damage, or another program, may give it."""
    yield from (
        array[:0],
        array[1:],
        array[::-1].copy(),
        np.concatenate([array, array]),
        array[None],
        array[..., None],
    )
    for kind in ("f2", "f4", ">f8", ">i8", "i1", "u1", "u8", "i4", "c16", "U5", "?", "g", "M8[s]"):
        yield array.astype(kind)
    for value in (np.nan, np.inf, -1, 0, 255, 2**31 - 1, 2**62):
        for place in (0, -1, slice(None)):
            if array.dtype.kind == "f" or np.isfinite(value):
                other = array.copy()
                other.reshape(-1)[place] = value
                yield other


def test_each_array_of_an_automatic_ranker_is_refused_or_used_alike(automatic, tmp_path):
    """Whatever one array becomes, the file is refused, or scores are finite and those of a query the same alone."""
    model, X, qid = automatic
    schema, members = unpack(model)
    path, counts = tmp_path / "model", {"refused": 0, "used": 0}
    for number, name in enumerate(sorted(members)):
        array = np.load(io.BytesIO(members[name]))
        changed = list(changed_arrays(array)) if array.ndim else []
        for other in changed if LONG else changed[number % 4 :: 4]:
            path.write_bytes(pack(schema, {**members, name: as_npy(other)}))
            try:
                with np.errstate(all="ignore"), warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    found = load_model(path)
            except ValueError as error:
                assert "\n" not in str(error)
                counts["refused"] += 1
                continue
            scores = found.predict(X, qid=qid)
            assert np.isfinite(scores).all()
            tolerance = 1e-5 * np.abs(scores).max()
            np.testing.assert_allclose(found.predict(X[:10], qid=qid[:10]), scores[:10], atol=tolerance)
            counts["used"] += 1
    assert min(counts.values()) > 100


def test_a_file_of_the_other_byte_order_is_read(automatic, tmp_path):
    model, X, qid = automatic
    schema, members = unpack(model)
    swapped = {}
    for name, content in members.items():
        array = np.load(io.BytesIO(content))
        swapped[name] = as_npy(array.astype(array.dtype.newbyteorder()))
    (tmp_path / "model").write_bytes(pack(schema, swapped))
    np.testing.assert_array_equal(
        load_model(tmp_path / "model").predict(X, qid=qid), model.predict(X, qid=qid)
    )


def our_estimators():
    """Every estimator of ours that a file may name."""
    from preflearn.tables.models.types import OUR_PACKAGES, object_class

    packages = [f"preflearn.{package}" for package in OUR_PACKAGES]
    for package in [*packages, "preflearn_papers.parses", "preflearn_papers.ppi"]:
        parent = importlib.import_module(package)
        for module in pkgutil.walk_packages(parent.__path__, parent.__name__ + "."):
            for kind in vars(importlib.import_module(module.name)).values():
                if (
                    isinstance(kind, type)
                    and kind.__module__ == module.name
                    and issubclass(kind, BaseEstimator)
                ):
                    private = kind.__name__.startswith("_")
                    assert object_class(kind.__module__, kind.__name__) is (None if private else kind)
                    if not private:
                        yield kind


def test_every_learner_says_what_its_arrays_are(zoo):
    """A learner whose arrays nobody checks could end a process that loads a file of a stranger."""
    kinds = list(our_estimators())
    assert {getattr(preflearn, name) for name in preflearn.__all__ if name[0].isupper()} <= set(kinds)
    for kind in kinds:
        assert hasattr(kind, "_fitted_arrays"), f"{kind.__name__} needs _fitted_arrays, see CONTRIBUTING.md"
    for name, (model, _) in zoo.items():
        if hasattr(model, "_fitted_arrays"):
            assert model._fitted_arrays(), f"{name} is fitted and declares no array"


def random_state(position, length=624):
    key = node("NdArrayNode", "numpy.ndarray", type="numpy", file="key.npy")
    state = mapping(bit_generator=scalar("MT19937"), state=mapping(key=key, pos=scalar(position)), has_gauss=scalar(0),
                    gauss=scalar(0.0))  # fmt: skip
    return node("RandomStateNode", "numpy.random.mtrand.RandomState", content=state), {
        "key.npy": as_npy(np.arange(length, dtype=np.uint32))
    }


@pytest.mark.parametrize(("position", "length", "good"), [(3, 624, True), (10**6, 624, False), (-9, 624, False),
                                                          (3, 600, False)])  # fmt: skip
def test_a_random_generator_reads_inside_of_its_key(linear, tmp_path, position, length, good):
    schema, members = linear
    state, key = random_state(position, length)
    path = tmp_path / "model"
    path.write_bytes(pack(with_attribute(schema, "random_state", state), {**members, **key}))
    if good:
        load_model(path).random_state.uniform(size=2000)
    else:
        refused(path, "an invalid random generator")


def test_generators_come_back_and_strange_ones_do_not(linear, tmp_path):
    model = RankRLS(random_state=np.random.default_rng(3))
    save_model(model, tmp_path / "model")
    expected = model.random_state.uniform(size=3)
    np.testing.assert_array_equal(load_model(tmp_path / "model").random_state.uniform(size=3), expected)
    schema, members = unpack(model)
    for change in ({"bit_generator": scalar("seed")}, {"pool_size": scalar(10**7)}):
        forged = copy.deepcopy(schema)
        for one in every_node(forged):
            if one["__loader__"] == "DictNode" and set(change) <= set(one["content"]):
                one["content"].update(change)
        (tmp_path / "model").write_bytes(pack(forged, members))
        refused(tmp_path / "model", "an invalid random generator")


@pytest.mark.parametrize(
    ("kind", "attribute", "value"),
    [
        ("words", "vocabulary_", mapping(red=scalar(10**6), tea=scalar(1))),
        ("categories", "_n_features_outs", sequence(scalar(1), kind="list")),
        ("Ridge", "alpha", scalar("x")),
    ],
)
def test_parts_of_scikit_learn_that_would_leave_their_columns_are_refused(
    zoo, tmp_path, kind, attribute, value
):
    model, _ = zoo[kind]
    schema, members = unpack(model)
    for one in every_node(schema):
        attributes = one.get("content") if one["__loader__"] == "ObjectNode" else None
        if attributes and attribute in attributes["content"] and one["__module__"].startswith("sklearn"):
            attributes["content"][attribute] = value
    path = tmp_path / "model"
    path.write_bytes(pack(schema, members))
    refused(path, "do not fit together")


def test_a_hasher_without_columns_is_refused(tmp_path):
    """``FeatureHasher(n_features=0)`` divides by zero in compiled code, which ends the process."""
    from sklearn.feature_extraction import FeatureHasher

    save_path = tmp_path / "model"
    schema, members = unpack(FeatureHasher())
    save_path.write_bytes(pack(with_attribute(schema, "n_features", scalar(0)), members))
    refused(save_path, "do not fit together")


# The campaign: files changed at random, loaded and used in a process of their own.


def mutations(rng, schema, members):
    """A file with one to three changes at random: values, arrays, nodes, names."""
    schema, members = copy.deepcopy(schema), dict(members)
    for _ in range(rng.randint(1, 3)):
        kind = rng.choice(["array", "array", "scalar", "swap", "name", "drop"])
        nodes = list(every_node(schema))
        scalars = [one for one in nodes if one["__loader__"] == "JsonNode"]
        if kind == "array" and members:
            name = rng.choice(sorted(members))
            members[name] = mutated_member(rng, name, members[name])
        elif kind == "scalar" and scalars:
            one = rng.choice(scalars)
            one["content"] = json.dumps(
                rng.choice([None, True, -1, 0, 1, 3, 7, 0.5, 1e308, -0.0, "", "rbf", "x"])
            )
        elif kind == "swap":
            rng.choice(list(every_slot(schema)))(copy.deepcopy(rng.choice(nodes)))
        elif kind == "name":
            one = rng.choice(nodes)
            one["__loader__"] = rng.choice([one["__loader__"], rng.choice(LOADERS)])
            one["__module__"], _, one["__class__"] = rng.choice(NAMES).rpartition(".")
        elif kind == "drop":
            one = rng.choice(nodes)
            if isinstance(one.get("content"), (dict, list)) and one["content"]:
                key = rng.choice(list(one["content"]) if isinstance(one["content"], dict) else [-1])
                del one["content"][key]
    return pack(schema, members)


def mutated_member(rng, name, content):
    if name.endswith(".npz"):
        with np.load(io.BytesIO(content)) as archive:
            parts = {part: archive[part] for part in archive.files}
        part = rng.choice([part for part in parts if part not in ("format", "_is_array")])
        parts[part] = mutated_array(rng, parts[part])
        return as_npz(**parts)
    return as_npy(mutated_array(rng, np.load(io.BytesIO(content))))


def mutated_array(rng, array):
    array = np.array(array)
    how = rng.choice(["value", "value", "cut", "double", "axis", "type", "order", "empty"])
    if how == "value" and array.size and array.dtype.kind in "iuf":
        place = rng.randrange(array.size)
        value = rng.choice([-1, 0, 1, 2**31 - 1, 10**6, -(10**9), 255])
        array.reshape(-1)[place] = np.array(value).astype(array.dtype)
    elif how == "cut" and array.ndim:
        array = array[: rng.randrange(array.shape[0] + 1)]
    elif how == "double" and array.ndim:
        array = np.concatenate([array, array], axis=rng.randrange(array.ndim))
    elif how == "axis":
        array = array[..., None] if rng.random() < 0.5 else array.reshape(-1)
    elif how == "type" and array.dtype.kind in "iuf":
        array = array.astype(rng.choice(["f4", "i4", "i8", "u1", "U3", "c16"]))
    elif how == "order" and array.ndim:
        array = np.asfortranarray(array[::-1].T)
    elif how == "empty":
        array = array[:0] if array.ndim else array
    return array


def campaign(seed, n_files, folder):
    """Load changed files, and use what loads; prints how many did. Runs in a process that may die of it."""
    faulthandler.enable()
    warnings.simplefilter("ignore")
    np.seterr(all="ignore")
    rng = random.Random(seed)
    models = [(unpack(model), X) for model, X in fitted_models().values()]
    path = Path(folder) / "model"
    os.chdir(folder)
    counts = {"loaded": 0, "used": 0, "refused": 0}
    for _ in range(n_files):
        parts, X = rng.choice(models)
        path.write_bytes(mutations(rng, *parts))
        faulthandler.dump_traceback_later(60, exit=True)
        try:
            with nothing_happens():
                model = load_model(path)
        except ValueError as error:
            assert "\n" not in str(error)
            counts["refused"] += 1
            continue
        finally:
            faulthandler.cancel_dump_traceback_later()
        counts["loaded"] += 1
        faulthandler.dump_traceback_later(60, exit=True)
        try:
            found = use(model, X)
            found.sum() if sp.issparse(found) else np.asarray(found).sum()
            counts["used"] += 1
        except Exception:  # values of a stranger may make no sense; they must not end the process
            pass
        finally:
            faulthandler.cancel_dump_traceback_later()
    assert os.listdir(folder) == ["model"]
    print(json.dumps(counts))


@pytest.mark.parametrize("seed", range(4) if LONG else [0])
def test_changed_files_are_refused_or_harmless(tmp_path, seed):
    n_files = 6000 if LONG else 200
    code = f"from tests.test_io_hostile import campaign; campaign({seed}, {n_files}, {str(tmp_path)!r})"
    started = time.monotonic()
    found = subprocess.run(
        [sys.executable, "-c", code], cwd=Path(__file__).parents[1], capture_output=True, text=True
    )
    assert found.returncode == 0, found.stderr[-3000:]
    counts = json.loads(found.stdout.splitlines()[-1])
    # Both sides of the line are met.
    assert counts["refused"] > n_files / 4, (counts, time.monotonic() - started)
    assert counts["used"] > n_files / 20, counts


def test_the_list_of_loaders_is_that_of_skops():
    """A kind of node that a later skops brings is refused like the others; the campaign should know it, though."""
    from skops.io._audit import NODE_TYPE_MAPPING

    assert skops.io.dumps is not None
    strange = {loader for loader, _ in NODE_TYPE_MAPPING} - set(LOADERS)
    assert {name for name in strange if "Forest" not in name} <= {"_DictWithDeprecatedKeysNode"}
