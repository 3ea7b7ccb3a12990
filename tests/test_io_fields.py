"""Model files with one field changed: refused when they are loaded, or as useful as before.

A short campaign runs with the other tests; ``PREFLEARN_LONG_TESTS=1`` tries every change of every field.
"""

from __future__ import annotations

import copy
import io
import os
import random
import warnings

import numpy as np
import pytest
from scipy import sparse as sp
from tests.model_files import (
    as_npy,
    every_member,
    every_node,
    fitted_models,
    mapping,
    node,
    pack,
    scalar,
    sequence,
    unpack,
    use,
)

from preflearn.tables.models.files import read_model

SHARE = 1.0 if os.environ.get("PREFLEARN_LONG_TESTS") == "1" else 0.02
# Of scikit-learn alone: its own transformers are checked for what could do harm.
FOREIGN = {"words", "categories", "columns", "search", "Ridge", "pipeline"}
# Values that make another valid model: of another width, or with numbers that some rows refuse.
OTHER_MODELS = {
    "AllPathsFeatures.n_features", "BradleyTerry.gamma", "BradleyTerry.gamma_", "BradleyTerry.items_",
    "BradleyTerryCV.gamma_", "CategoryColumn.categories", "CategoryColumn.has_missing", "CategoryColumn.rare",
    "DateColumn.constant", "DateColumn.has_missing", "DateColumn.parts", "NumberColumn.constant",
    "NumberColumn.has_missing", "RLS.degree", "QueryRelative.keep", "QueryRelative.needs_qid_", "RankRFM.dual_coef_",
    "TextColumn.directions", "TextColumn.has_missing", "TextColumn.idf", "TextColumn.n_buckets",
}  # fmt: skip
VALUES = (None, True, -1, 0, 3, 0.5, float("nan"), "x", "")


def owners(schema):
    """The nodes of objects with attributes."""
    return [
        one
        for one in every_node(schema)
        if one["__loader__"] == "ObjectNode" and (one.get("content") or {}).get("__loader__") == "DictNode"
    ]


def changed_arrays(array):
    yield from (array[..., None], array.reshape(-1), np.concatenate([np.atleast_1d(array)] * 2))
    if array.ndim:
        yield from (array[:-1], array[:0], array.T.copy())
    if array.dtype.kind in "iuf":
        yield from (array.astype(kind) for kind in ("f4", "f2", "i4", "U3", "c16", "?"))
    if array.dtype.kind == "f" and array.size:
        for value in (np.nan, np.inf):
            other = array.copy()
            other.reshape(-1)[0] = value
            yield other


def changes(rng, schema, members):
    """For each field its name, and files in which it is missing, of another type, shape or value."""
    nodes = [one for one in every_node(schema) if one["__loader__"] != "TypeNode"]
    for place, owner in enumerate(owners(schema)):
        for name, value in owner["content"]["content"].items():
            others = [scalar(one) for one in VALUES]
            others += [sequence(kind="list"), sequence(), mapping(), mapping(a=scalar(1)), ...]
            others += [copy.deepcopy(rng.choice(nodes)) for _ in range(3)]
            is_array = value["__loader__"] == "NdArrayNode" and value.get("type") == "numpy"
            array = np.load(io.BytesIO(members[value["file"]])) if is_array else np.ones(3)
            others += [*changed_arrays(array)]
            for other in others:
                if rng.random() < SHARE:
                    yield f"{owner['__class__']}.{name}", *with_other(schema, members, place, name, other)


def with_other(schema, members, place, name, other):
    changed, members = copy.deepcopy(schema), dict(members)
    attributes = owners(changed)[place]["content"]
    if other is ...:
        del attributes["key_types"]["content"][list(attributes["content"]).index(name)]
        del attributes["content"][name]
        return changed, members
    if isinstance(other, np.ndarray):
        members["other.npy"] = as_npy(other)
        other = node("NdArrayNode", "numpy.ndarray", type="numpy", file="other.npy")
    attributes["content"][name] = other
    return changed, members


def size_of(found):
    return found.shape if hasattr(found, "shape") else len(found)


def is_finite(found):
    values = np.asarray(found.data if sp.issparse(found) else found)
    return values.dtype.kind not in "fc" or bool(np.isfinite(values).all())


def wrong_after(model, X, good):
    """What is wrong with what a loaded model gives; None for what it should be."""
    try:
        found = use(model, X)
    except Exception as error:
        return repr(error)[:160]
    several = np.ndim(good) == 1 and np.shape(found)[:-1] == np.shape(good)  # a model of several outputs
    if size_of(found) != size_of(good) and not several:
        return f"shape {size_of(found)}, expected {size_of(good)}"
    return None if is_finite(found) else "not finite"


def test_a_changed_field_is_refused_on_loading_or_does_no_harm():
    rng = random.Random(0)
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        zoo = fitted_models()
        every, rows, _ = every_member()
        counts, wrong = {"refused": 0, "used": 0}, []
        for kind, (model, X) in {**zoo, "every member": (every, rows[:5])}.items():
            if kind in FOREIGN:
                continue
            good = use(model, X)
            for field, schema, members in changes(rng, *unpack(model)):
                try:
                    loaded = read_model("file", io.BytesIO(pack(schema, members)))
                except ValueError as error:
                    assert "\n" not in str(error)
                    counts["refused"] += 1
                    continue
                counts["used"] += 1
                problem = wrong_after(loaded, X, good)
                if problem is not None and field not in OTHER_MODELS:
                    wrong.append((kind, field, problem))
    assert wrong == []
    assert min(counts.values()) > 100


@pytest.mark.parametrize("name", ["verbose", "solver"])
def test_a_parameter_that_a_file_lacks_gets_its_default(name):
    model, X = fitted_models()["RankRLS linear"]
    schema, members = unpack(model)
    changed = with_other(schema, members, 0, name, ...)
    loaded = read_model("file", io.BytesIO(pack(*changed)))
    assert getattr(loaded, name) == getattr(type(model)(), name)
    np.testing.assert_array_equal(loaded.predict(X), model.predict(X))
