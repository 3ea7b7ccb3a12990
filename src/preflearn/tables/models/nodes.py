"""The schema of a model file, read into a plan and then built.

The file is in the format of skops: ``schema.json`` is a tree of nodes, each with the name of its kind (``__loader__``),
of a class or function (``__module__``, ``__class__``) and its content. Here every node is judged by its kind *and* its
name, and by where it stands, before anything is built: functions only as attributes that hold functions, classes only
to be filled with values, each attribute by its name. There is no kind of node here that calls what the file names.

A node that stands in several places (the same ``__id__``) is planned and built once, so that the work grows with the
size of the file and not with the number of ways through it.
"""

from __future__ import annotations

import inspect
import json
import math
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, is_dataclass
from functools import cache
from importlib.util import find_spec
from typing import Any

import numpy as np
from scipy import sparse as sp
from sklearn.base import BaseEstimator

from ..._moved import MOVED, PACKAGE, missing
from .archive import ModelArchive, ModelRefusedError
from .fitted import check_arrays, check_foreign, check_parameters, refuse_incomplete
from .types import (
    FORMER_PARAMETERS,
    RECORDS,
    full_name,
    function_at,
    is_ours,
    loss_class,
    object_class,
    plain_type,
)

SCHEMA = "schema.json"
# The protocols of skops that this module reads: those that the supported versions write.
PROTOCOLS = (2,)
MAX_DEPTH = 100
MAX_NODES = 10_000_000

_UNLISTED = (
    "which is not on the list of what preflearn loads (its own estimators, and those of scikit-learn, NumPy and SciPy "
    "that are known to be safe)"
)
_KEY_TYPES: dict[type, Callable[[str], Any]] = {bool: lambda text: {"true": True, "false": False}[text]}
_RESPONSES = {"predict", "predict_proba", "decision_function"}


@dataclass(eq=False, slots=True)
class Plan:
    """A node that has been judged: what is made of which parts."""

    kind: str
    named: str
    parts: list[Plan] = field(default_factory=list)
    make: Callable[[list[Any]], Any] | None = None
    value: Any = None

    def build(self) -> Any:
        """The object; the same one each time."""
        if self.make is not None:
            self.value = self.make([part.build() for part in self.parts])
            self.make = None
        return self.value


def read_plan(archive: ModelArchive) -> Plan:
    """Judge the whole schema of a model file and read its arrays; no object is built.

    Raises
    ------
    ModelRefusedError
        If the file asks for anything that is not allowed.
    """
    schema = json.loads(archive.read(SCHEMA))
    protocol = schema.get("protocol")
    if protocol not in PROTOCOLS or isinstance(protocol, bool):
        raise ModelRefusedError(f"protocol {protocol!r} of skops, where this preflearn reads {PROTOCOLS[0]}")
    return _Reader(archive).read(schema, "model", 0)


class _Reader:
    """Turns the nodes of one file into plans."""

    def __init__(self, archive: ModelArchive):
        self._archive = archive
        self._by_id: dict[Any, Plan | None] = {}
        self._n_nodes = 0
        self._kinds = {
            "DTypeNode": self._dtype,
            "DictNode": self._dict,
            "JsonNode": self._scalar,
            "ListNode": self._sequence,
            "LossNode": self._loss,
            "MaskedArrayNode": self._masked,
            "NdArrayNode": self._array,
            "ObjectNode": self._object,
            "RandomGeneratorNode": self._generator,
            "RandomStateNode": self._random_state,
            "SetNode": self._sequence,
            "SliceNode": self._slice,
            "SparseMatrixNode": self._sparse,
            "TupleNode": self._sequence,
            "TypeNode": self._type,
        }

    def read(self, state: Any, place: str, depth: int, owner: tuple[type, str] | None = None) -> Plan:
        """The plan of a node. ``owner`` is the class and the attribute whose value it is, if it is one."""
        self._n_nodes += 1
        if depth > MAX_DEPTH:
            raise ModelRefusedError(f"values nested deeper than {MAX_DEPTH} levels (at {place[:80]}...)")
        if self._n_nodes > MAX_NODES:
            raise ModelRefusedError(f"more than {MAX_NODES:,} values")
        kind, module, name = (_text(state, key) for key in ("__loader__", "__module__", "__class__"))
        identity = state.get("__id__")
        if isinstance(identity, int) and identity in self._by_id:
            plan = self._by_id[identity]
            if plan is None:
                raise ModelRefusedError(f"a value that contains itself (at {place})")
            if (plan.kind, plan.named) != (kind, f"{module}.{name}"):
                raise ModelRefusedError(f"two values under one identity (at {place})")
        else:
            if isinstance(identity, int):
                self._by_id[identity] = None
            plan = self._planned(kind, module, name, state, place, depth, owner)
            if isinstance(identity, int):
                self._by_id[identity] = plan
        if plan.kind == "FunctionNode":
            # Judged wherever it stands, even where it stands again.
            if owner is None or function_at(*owner, module, name) is None:
                raise _refused(kind, module, name, place)
        return plan

    def _planned(
        self,
        kind: str,
        module: str,
        name: str,
        state: dict[str, Any],
        place: str,
        depth: int,
        owner: tuple[type, str] | None,
    ) -> Plan:
        if kind == "FunctionNode":
            function = None if owner is None else function_at(*owner, module, name)
            return Plan(kind, f"{module}.{name}", value=function)
        plan_of = self._kinds.get(kind)
        if plan_of is None:
            raise _refused(kind, module, name, place)
        plan = plan_of(state, place, depth + 1)
        plan.kind, plan.named = kind, f"{module}.{name}"
        return plan

    # Plain values.

    def _scalar(self, state: dict[str, Any], place: str, depth: int) -> Plan:
        value = json.loads(_text(state, "content"))
        if value is not None and not isinstance(value, (bool, int, float, str)):
            raise ModelRefusedError(f"a {type(value).__name__} where a plain value is expected (at {place})")
        return Plan("", "", value=value)

    def _type(self, state: dict[str, Any], place: str, depth: int) -> Plan:
        found = plain_type(state["__module__"], state["__class__"])
        if found is None:
            raise _refused("TypeNode", state["__module__"], state["__class__"], place)
        return Plan("", "", value=found)

    def _slice(self, state: dict[str, Any], place: str, depth: int) -> Plan:
        _require_name(state, place, "builtins.slice")
        ends = [state["content"][key] for key in ("start", "stop", "step")]
        if any(end is not None and type(end) is not int for end in ends):
            raise ModelRefusedError(f"a slice whose ends are not whole numbers (at {place})")
        return Plan("", "", value=slice(*ends))

    # Containers.

    def _sequence(self, state: dict[str, Any], place: str, depth: int) -> Plan:
        makers = {"builtins.list": list, "builtins.tuple": tuple, "builtins.set": set}
        make = makers[_require_name(state, place, f"builtins.{state['__loader__'][:-4].lower()}")]
        return Plan("", "", self._parts(state["content"], place, depth), make)

    def _parts(self, states: Any, place: str, depth: int) -> list[Plan]:
        if not isinstance(states, list):
            raise ModelRefusedError(f"a {type(states).__name__} where a list is expected (at {place})")
        return [self.read(state, f"{place}[{k}]", depth) for k, state in enumerate(states)]

    def _dict(self, state: dict[str, Any], place: str, depth: int) -> Plan:
        named = _require_name(state, place, "builtins.dict", "collections.OrderedDict")
        keys = self._keys(state, place)
        parts = [
            self.read(value, f"{place}[{key!r}]", depth)
            for key, value in zip(keys, state["content"].values())
        ]
        make = dict if named == "builtins.dict" else OrderedDict
        return Plan("", "", parts, lambda values: make(zip(keys, values)))

    def _keys(self, state: dict[str, Any], place: str) -> list[Any]:
        """The keys of a dict: JSON keeps texts, the types stand beside them."""
        texts, types = list(state["content"]), state["key_types"]["content"]
        if len(types) != len(texts):
            raise ModelRefusedError(f"{len(types)} types for {len(texts)} keys (at {place})")
        self._n_nodes += len(types)
        return [_key(_text(one, "__module__"), _text(one, "__class__"), text, place)
                for one, text in zip(types, texts)]  # fmt: skip

    # Arrays.

    def _array(self, state: dict[str, Any], place: str, depth: int) -> Plan:
        if state["type"] == "json":
            return self._object_array(state, place, depth)
        if state["type"] != "numpy":
            raise ModelRefusedError(f"an array of kind {state['type']!r} (at {place})")
        member = _text(state, "file")
        named = f"{state['__module__']}.{state['__class__']}"
        if named == "numpy.ndarray":
            return Plan("", "", value=self._archive.array(member))
        scalar = plain_type(state["__module__"], state["__class__"])
        if scalar is None or not issubclass(scalar, np.generic):
            raise _refused("NdArrayNode", state["__module__"], state["__class__"], place)
        return Plan("", "", value=_as_scalar(self._archive.array(member), scalar, place))

    def _object_array(self, state: dict[str, Any], place: str, depth: int) -> Plan:
        _require_name(state, place, "numpy.ndarray")
        lengths = self.read(state["shape"], place, depth)
        shape = tuple(part.value for part in lengths.parts)
        if lengths.kind != "TupleNode" or not shape or not all(type(n) is int and n >= 0 for n in shape):
            raise ModelRefusedError(f"an array of shape {shape!r} (at {place})")
        states = state["content"]
        for _ in shape[1:]:
            states = [inner for one in states for inner in one["content"]]
        parts = self._parts(states, place, depth)
        if len(parts) != math.prod(shape):
            raise ModelRefusedError(f"an array of shape {shape} with {len(parts)} values (at {place})")
        return Plan("", "", parts, lambda values: _as_objects(values, shape))

    def _sparse(self, state: dict[str, Any], place: str, depth: int) -> Plan:
        forms = {f"scipy.sparse._{form}.{form}_{what}": (form, what)
                 for form in ("csr", "csc", "coo") for what in ("array", "matrix")}  # fmt: skip
        form, what = forms[_require_name(state, place, *forms)]
        member = _text(state, "file")
        return Plan("", "", value=_as_sparse(self._archive.sparse_parts(member), form, what, place))

    def _masked(self, state: dict[str, Any], place: str, depth: int) -> Plan:
        _require_name(state, place, "numpy.ma.MaskedArray", "numpy.ma.core.MaskedArray")
        parts = [self.read(state["content"][key], f"{place}.{key}", depth) for key in ("data", "mask")]
        return Plan("", "", parts, lambda values: _as_masked(values[0], values[1], place))

    def _dtype(self, state: dict[str, Any], place: str, depth: int) -> Plan:
        _require_name(state, place, "numpy.dtype")
        empty = self.read(state["content"], place, depth)
        if empty.kind != "NdArrayNode":
            raise ModelRefusedError(f"a type without an array (at {place})")
        return Plan("", "", [empty], lambda values: values[0].dtype)

    # Random generators.

    def _random_state(self, state: dict[str, Any], place: str, depth: int) -> Plan:
        _require_name(state, place, "numpy.random.mtrand.RandomState", "numpy.random.RandomState")
        content = self.read(state["content"], place, depth)
        return Plan("", "", [content], lambda values: _as_random_state(values[0], place))

    def _generator(self, state: dict[str, Any], place: str, depth: int) -> Plan:
        _require_name(state, place, "numpy.random._generator.Generator", "numpy.random.Generator")
        parts = [self.read(state["content"][key], place, depth) for key in ("bit_generator", "seed_seq")]
        return Plan("", "", parts, lambda values: _as_generator(values[0], values[1], place))

    # Objects.

    def _loss(self, state: dict[str, Any], place: str, depth: int) -> Plan:
        module, name = state["__module__"], state["__class__"]
        loss = loss_class(module, name)
        if loss is None:
            raise _refused("LossNode", module, name, place)
        arguments = self.read(state["__reduce__"]["args"], place, depth)
        rest = self.read(state["content"], place, depth)
        if arguments.kind != "TupleNode" or not all(part.kind == "JsonNode" for part in arguments.parts):
            raise ModelRefusedError(f"a loss with arguments that are not numbers (at {place})")
        if rest.parts:
            raise ModelRefusedError(f"a loss with attributes (at {place})")
        return Plan("", "", [arguments], lambda values: loss(*map(float, values[0])))

    def _object(self, state: dict[str, Any], place: str, depth: int) -> Plan:
        module, name = state["__module__"], state["__class__"]
        kind = object_class(module, name)
        if kind is None:
            raise _refused("ObjectNode", module, name, place)
        names, parts = self._attributes(kind, state.get("content"), place, depth)
        return Plan("", "", parts, lambda values: _as_object(kind, dict(zip(names, values)), place))

    def _attributes(self, kind: type, content: Any, place: str, depth: int) -> tuple[list[str], list[Plan]]:
        if content is None or content.get("__loader__") == "JsonNode":
            return [], []
        if content.get("__loader__") != "DictNode":
            raise ModelRefusedError(f"a {kind.__name__} whose attributes are not a dict (at {place})")
        former = FORMER_PARAMETERS.get(full_name(kind), set())
        values = {
            name: value
            for name, value in zip(self._keys(content, place), content["content"].values())
            if name not in former
        }
        for name in values:
            if not _may_have(kind, name):
                raise ModelRefusedError(
                    f"an attribute {name!r} that a {kind.__name__} does not have (at {place})"
                )
        parts = [self.read(value, f"{place}.{name}", depth, (kind, name)) for name, value in values.items()]
        for name, part in zip(values, parts):
            _refuse_value(kind, name, part, f"{place}.{name}")
        return list(values), parts


def _refused(kind: str, module: str, name: str, place: str) -> ModelRefusedError:
    named = f"{module}.{name}"
    if f"{named}.".startswith((f"{PACKAGE}.", *(f"{old}." for old in MOVED))) and find_spec(PACKAGE) is None:
        return ModelRefusedError(missing(f"{named}, which"))
    return ModelRefusedError(f"{named} ({kind} at {place}), {_UNLISTED}")


def _text(state: Any, key: str) -> str:
    value = state.get(key) if isinstance(state, dict) else None
    if not isinstance(value, str):
        raise ValueError(f"a value without {key}")
    return value


def _require_name(state: dict[str, Any], place: str, *names: str) -> str:
    named = f"{state['__module__']}.{state['__class__']}"
    if named not in names:
        raise _refused(state["__loader__"], state["__module__"], state["__class__"], place)
    return named


def _key(module: str, name: str, text: str, place: str) -> Any:
    kind = plain_type(module, name)
    if kind is None:
        raise _refused("TypeNode", module, name, f"a key of {place}")
    return _KEY_TYPES.get(kind, kind)(text)


@cache
def _parameters(kind: type) -> frozenset[str]:
    """The parameters of a class and of those it derives from, which it may set to values of its own."""
    found = (vars(base).get("__init__") for base in kind.__mro__[:-1])
    return frozenset(name for one in found if one is not None for name in inspect.signature(one).parameters)


def _stored_fields(kind: Any) -> set[str]:
    """The fields of a record that a file holds; the others are computed from these."""
    return {one.name for one in fields(kind) if one.init}


def _may_have(kind: type, name: Any) -> bool:
    """Whether a file may set this attribute: a field, a parameter or something fitted, never a method."""
    if is_dataclass(kind):
        return name in _stored_fields(kind)
    if not isinstance(name, str) or not name.isidentifier() or name.startswith("__"):
        return False
    of_class = next((vars(base)[name] for base in kind.__mro__ if name in vars(base)), None)
    if callable(of_class) or hasattr(type(of_class), "__get__"):
        return False
    fitted = name.startswith("_") or name.endswith("_") or not issubclass(kind, BaseEstimator)
    return fitted or name in _parameters(kind)


def _refuse_value(kind: type, name: str, part: Plan, place: str) -> None:
    """Values that are harmless in themselves but not where they stand."""
    if name == "memory" and not (part.kind == "JsonNode" and part.value is None):
        raise ModelRefusedError(
            f"{kind.__name__}.memory (at {place}), a folder of pickles that fit would read: only memory=None is kept"
        )
    if full_name(kind) == "sklearn.metrics._scorer._Scorer" and name == "_response_method":
        named = [part] if part.kind == "JsonNode" else part.parts
        if not all(one.kind == "JsonNode" and one.value in _RESPONSES for one in named):
            raise ModelRefusedError(f"a scorer that calls something other than predictions (at {place})")


def _as_object(kind: Any, attributes: dict[str, Any], place: str) -> Any:
    instance = kind.__new__(kind)
    if is_dataclass(instance) and set(attributes) != _stored_fields(kind):
        raise ModelRefusedError(f"a {type(instance).__name__} that is not complete (at {place})")
    with _refusing_misfits(kind, place):
        restore = getattr(instance, "__setstate__", None)
        if restore is not None and attributes:
            restore(attributes)
        else:
            instance.__dict__.update(attributes)
        if is_ours(kind):
            if isinstance(instance, BaseEstimator):
                check_parameters(instance)
            declared: dict[str, str] = getattr(instance, "_fitted_arrays", dict)()
            if declared == {} and hasattr(instance, "_fitted_arrays"):
                refuse_incomplete(instance)
            check_arrays(instance, {**RECORDS.get(full_name(kind), {}), **declared})
        elif isinstance(instance, BaseEstimator):
            check_foreign(instance)
    return instance


@contextmanager
def _refusing_misfits(kind: type, place: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:  # whatever values of a stranger lead to
        raise ModelRefusedError(
            f"a {kind.__name__} whose values do not fit together: {error} (at {place})"
        ) from None


def _as_scalar(array: np.ndarray, kind: type, place: str) -> Any:
    if array.shape != () or array.dtype.type is not kind:
        raise ModelRefusedError(f"an array of type {array.dtype} as one {kind.__name__} (at {place})")
    return array[()]


def _as_objects(values: list[Any], shape: tuple[int, ...]) -> np.ndarray:
    array = np.empty(len(values), dtype=object)
    for place, value in enumerate(values):
        array[place] = value
    return array.reshape(shape)


def _as_masked(data: Any, mask: Any, place: str) -> Any:
    fits = isinstance(data, np.ndarray) and np.shape(mask) in ((), np.shape(data))
    if not fits or np.asarray(mask).dtype != bool:
        raise ModelRefusedError(f"a mask that does not fit its array (at {place})")
    return np.ma.MaskedArray(data, mask)


def _as_sparse(parts: dict[str, np.ndarray], form: str, what: str, place: str) -> Any:
    """Build a sparse array whose indices are all within its shape."""
    data, shape = parts["data"], parts["shape"]
    if shape.shape != (2,) or shape.dtype.kind not in "iu" or (shape < 0).any():
        raise ModelRefusedError(f"a sparse array of shape {shape!r} (at {place})")
    if data.ndim != 1 or data.dtype.kind not in "biufc" or parts["format"].item() != form.encode():
        raise ModelRefusedError(f"a sparse array that is not a {form} array of numbers (at {place})")
    n_rows, n_columns = map(int, shape)
    make = getattr(sp, f"{form}_{what}")
    if form == "coo":
        rows, columns = (parts["row"], parts["col"]) if "row" in parts else parts["coords"]
        _refuse_indices(rows, data, n_rows, place)
        _refuse_indices(columns, data, n_columns, place)
        return make((data, (rows, columns)), shape=(n_rows, n_columns))
    major, minor = (n_rows, n_columns) if form == "csr" else (n_columns, n_rows)
    indices, starts = parts["indices"], parts["indptr"]
    _refuse_indices(indices, data, minor, place)
    if starts.shape != (major + 1,) or starts.dtype.kind not in "iu" or starts[0] != 0:
        raise ModelRefusedError(f"a sparse array with {starts.shape} starts of {major} rows (at {place})")
    if starts[-1] != data.shape[0] or (starts[1:] < starts[:-1]).any():
        raise ModelRefusedError(f"a sparse array whose rows are out of order (at {place})")
    return make((data, indices, starts), shape=(n_rows, n_columns))


def _refuse_indices(indices: np.ndarray, data: np.ndarray, bound: int, place: str) -> None:
    if indices.shape != data.shape or indices.dtype.kind not in "iu":
        raise ModelRefusedError(
            f"a sparse array with {indices.shape} indices of {data.shape} values (at {place})"
        )
    if indices.size and (indices.min() < 0 or indices.max() >= bound):
        raise ModelRefusedError(f"a sparse array with indices outside 0 to {bound - 1} (at {place})")


def _as_random_state(state: Any, place: str) -> np.random.RandomState:
    try:
        _refuse_position(state, place)
        if state["bit_generator"] != "MT19937" or state["has_gauss"] not in (0, 1):
            raise ValueError("not the state of a RandomState")
        generator = np.random.RandomState(0)
        generator.set_state(state)
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise ModelRefusedError(f"an invalid random generator: {error} (at {place})") from None
    return generator


def _as_generator(state: Any, seed: Any, place: str) -> np.random.Generator:
    makers = {"PCG64": np.random.PCG64, "PCG64DXSM": np.random.PCG64DXSM, "MT19937": np.random.MT19937}
    try:
        bits = makers[state["bit_generator"]](0)
        if state["bit_generator"] == "MT19937":
            _refuse_position(state, place)
        if set(seed) - {"entropy", "spawn_key", "pool_size", "n_children_spawned"} or seed["pool_size"] != 4:
            raise ValueError("not the state of a seed")
        bits = type(bits)(np.random.SeedSequence(**seed))
        bits.state = state
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise ModelRefusedError(f"an invalid random generator: {error} (at {place})") from None
    return np.random.Generator(bits)


def _refuse_position(state: Any, place: str) -> None:
    """The Mersenne twister reads at a position that NumPy does not check."""
    key, position = state["state"]["key"], state["state"]["pos"]
    if not isinstance(key, np.ndarray) or key.shape != (624,) or key.dtype != np.uint32:
        raise ValueError("the key is not 624 words")
    if isinstance(position, bool) or not isinstance(position, int) or not 0 <= position <= 624:
        raise ValueError(f"position {position!r} is not within the key")
