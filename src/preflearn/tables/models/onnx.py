"""Fitted models as ONNX, for programs that do not run Python.

Steps of scikit-learn are converted by skl2onnx; those of preflearn record what they compute
(`numerics.onnx_graph`), and converters that replay the records are registered with skl2onnx. Everything is
computed in float64, so that scores are those of ``predict``. Inputs are float64 as well unless float32 is asked for:
4.1 is not the same number in float32, and a model that has learned what happens at 4.1 would not recognise it. Where
inputs are float32, what they are compared with is rounded in the same way (`Graph.to_recognise`).

The records are not skl2onnx's own operator algebra (`skl2onnx.algebra`): that package is an extra, which kernels and
encoders must not import, and its operators take the version of the operator set at every call, where a record reads
as the formula (`(X - centre) @ weights`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.utils.validation import check_is_fitted

from ...comparisons import Groups, encode_queries
from ...errors import missing_extra
from ...metrics.by_query import predict_scores
from ...numerics.namespace import refuse_repeated_columns
from ...numerics.onnx_graph import ExportError, Graph, Value
from ..encoding.table import table_encoder
from .files import as_plain
from .types import is_ours

if TYPE_CHECKING:
    from onnx import ModelProto

PRODUCER = "preflearn"
# Reductions take their axes as an input from 18 on, which is what the recorded nodes assume.
_OPSET = {"": 18, "ai.onnx.ml": 3}
_OPERATOR_VERSIONS = {"LabelEncoder": 2, "TreeEnsembleRegressor": 3}
# A file of ONNX holds less than 2 GiB.
_MOST_BYTES = (1 << 31) - (1 << 20)
_PARTS = ("steps", "transformers_", "transformer_list")


def to_onnx(
    model: Any,
    *,
    dtype: str = "float64",
    one_query: bool = False,
    example: Any = None,
    feature_names: Any = None,
    check: Any = None,
    qid: Any = None,
) -> ModelProto:
    """A fitted model or pipeline as an ONNX model.

    Parameters
    ----------
    model : fitted estimator or Pipeline
        Learners with a named or precomputed kernel, their searches, `AutoRanker`, `NystromMap`, `QueryRelative`,
        `TableEncoder` without free text, and what skl2onnx converts itself.
    dtype : {"float64", "float32"}, default="float64"
        Type of the numbers that the exported model takes. Scores are float64. Numbers are rounded on their way into
        float32: whole numbers above 2²⁴ and time stamps in seconds lose precision, and rows that differ
        only beyond it may come out in another order. Pass ``check`` to be sure.
    one_query : bool, default=False
        Needed for models with features relative to their query: all rows of a call are then the items of one query.
        Refused for other models, which it would not change.
    example : array-like or data frame, optional
        Rows as ``predict`` takes them, where the first step of scikit-learn takes texts or columns of several types.
    feature_names : sequence of str, optional
        Names to note in the file, for a model that was fitted without names.
    check : array-like or data frame, optional
        Rows as ``predict`` takes them: the exported model is run on them, and refused where it orders the rows of a
        query differently from ``predict``. Needs onnxruntime.
    qid : array-like of shape (m,), optional
        The query of each row of ``check``; without it all rows are one query.

    Returns
    -------
    onnx.ModelProto
        With one input ``X`` of shape (m, n), or one of shape (m, 1) for each column of a table, and the output
        ``scores`` in the shape of ``predict`` (m × 1 from a learner of scikit-learn; ``features`` of a transformer).

    Raises
    ------
    ExportError
        Naming the part that has no counterpart in ONNX; or if the order of the rows of ``check`` differs.
    ImportError
        Without the extra ``onnx``, or without onnxruntime for ``check``.

    Notes
    -----
    Columns of a table: numbers and truth values are numbers, NaN if missing; categories are texts, "" if missing, and
    numbers that are categories are written without a decimal point; dates are seconds since 1970-01-01.

    Examples
    --------
    >>> from preflearn import RankRLS
    >>> from preflearn.io import to_onnx
    >>> exported = to_onnx(RankRLS(kernel="rbf").fit([[0.0], [1.0], [2.0]], [0, 2, 1]))
    >>> [one.name for one in (*exported.graph.input, *exported.graph.output)]
    ['X', 'scores']
    """
    if dtype not in ("float32", "float64"):
        raise ValueError(f"dtype must be 'float32' or 'float64': found {dtype!r}.")
    if check is None and qid is not None:
        raise ValueError("qid would be ignored without check, the rows that it belongs to. Leave it out.")
    if hasattr(model, "fit"):  # what is made of fitted parts has none
        check_is_fitted(model)
    given, model = model, _unwrapped(model)
    if check is not None and not hasattr(model, "predict"):
        raise ValueError("check compares scores, and this model has no predict. Leave it out.")
    parts = list(_parts(model))
    _check_parts(parts)
    _check_query(model, one_query)
    from ... import __version__

    try:
        import onnx
        from skl2onnx import convert_sklearn
    except ImportError as error:
        raise missing_extra("to_onnx", str(error.name), "onnx") from None
    rounded = _rounded_at(model) if dtype == "float32" else None
    for part in parts:
        if hasattr(part, "_onnx_nodes"):
            _register(type(part), rounded)
    inputs = _inputs(model, example)
    try:
        exported = convert_sklearn(model, "preflearn", initial_types=inputs, target_opset=_OPSET)
    except ExportError:
        raise
    except Exception as error:  # skl2onnx raises whatever its converters meet
        raise ExportError(_reason(parts, error)) from error
    _rename(exported, [name for name, _ in inputs], "scores" if hasattr(model, "predict") else "features")
    if dtype == "float32":
        _take_float32(exported, _moments(model))
    exported.producer_name, exported.producer_version = PRODUCER, __version__
    named = feature_names if feature_names is not None else getattr(model, "feature_names_in_", None)
    properties = {"rows": "the items of one query" if one_query else "independent of each other"}
    if named is not None:
        properties["features"] = json.dumps([str(name) for name in named], ensure_ascii=False)
    onnx.helper.set_model_props(exported, properties)
    onnx.checker.check_model(exported)
    if check is not None:
        refuse_other_order(exported, given, check, qid, one_query=one_query)
    return exported


def _unwrapped(model: Any) -> Any:
    """The estimator that a search has chosen; a selector that predicts as selection, then prediction."""
    if hasattr(model, "best_estimator_"):
        return _unwrapped(model.best_estimator_)
    model = as_plain(model)  # skl2onnx knows scikit-learn's own class
    if isinstance(model, Pipeline):
        last = _unwrapped(model.steps[-1][1])
        return Pipeline([*model.steps[:-1], ("last", last)]) if last is not model.steps[-1][1] else model
    if hasattr(model, "get_support") and hasattr(model, "estimator_"):
        return make_pipeline(model, model.estimator_)
    return model


def _parts(model: Any) -> Iterator[Any]:
    """The model and the fitted estimators inside it, outer ones first."""
    if isinstance(model, str) or model is None:
        return
    yield model
    for attribute in _PARTS:
        for entry in getattr(model, attribute, ()):
            yield from _parts(entry[1])
    if hasattr(model, "best_estimator_"):
        yield from _parts(model.best_estimator_)


def _check_parts(parts: list[Any]) -> None:
    """Refuse learners of ours that cannot be recorded, and those that know items by labels or objects."""
    for part in parts:
        name = type(part).__name__
        if is_ours(type(part)) and not hasattr(part, "_onnx_nodes"):
            raise ExportError(
                f"{name} has no counterpart in ONNX: learners on rows of features have, and TableEncoder, "
                "QueryRelative and NystromMap before them."
            )
        if is_ours(type(part)) and not hasattr(part, "n_features_in_"):
            raise ExportError(
                f"{name} was fitted on labels or objects rather than rows of features, which ONNX does not know."
            )


def looks_at_query(model: Any) -> list[str]:
    """Names of the parts whose output depends on the other items of the query."""
    return [
        type(part).__name__ for part in _parts(_unwrapped(model)) if getattr(part, "_looks_at_query", False)
    ]


def _check_query(model: Any, one_query: bool) -> None:
    relative = looks_at_query(model)
    if relative and not one_query:
        raise ExportError(
            f"{relative[0]} looks at the other items of the query, and an exported model is called with rows alone. "
            "Pass one_query=True (--one-query): all rows of a call are then the items of one query."
        )
    if one_query and not relative:
        raise ValueError(
            "one_query=True (--one-query) would be ignored: no feature of this model is relative to its query. "
            "Leave it out."
        )


def _inputs(model: Any, example: Any) -> list[tuple[str, Any]]:
    """Names and types of the inputs, all numbers in float64."""
    from skl2onnx.common.data_types import DoubleTensorType, StringTensorType

    first, table = _first(model), _table(_first(model))
    if table is not None:
        if example is not None:
            raise ValueError(
                "example would be ignored: the model knows the columns of its table. Leave it out."
            )
        kinds = {"number": DoubleTensorType, "moment": DoubleTensorType, "text": StringTensorType}
        return [(name, kinds[kind]([None, 1])) for name, kind in table.items()]
    if example is not None:
        return _inputs_like(example, DoubleTensorType, StringTensorType)
    n_features = getattr(model, "n_features_in_", None)
    if n_features is None:
        raise ExportError(
            f"{type(first).__name__} does not take a matrix of numbers: pass example=, some rows as predict takes them."
        )
    return [("X", DoubleTensorType([None, int(n_features)]))]


def _moments(model: Any) -> frozenset[str]:
    """The inputs that are dates."""
    table = _table(_first(model)) or {}
    return frozenset(name for name, kind in table.items() if kind == "moment")


def _table(first: Any) -> dict[str, str] | None:
    """The columns that a first step takes, None for a matrix."""
    return first._onnx_inputs() if hasattr(first, "_onnx_inputs") else None


def _inputs_like(example: Any, number: Any, text: Any) -> list[tuple[str, Any]]:
    refuse_repeated_columns(example)
    if hasattr(example, "columns"):
        return [
            (str(name), (number if np.asarray(example[name]).dtype.kind in "fiub" else text)([None, 1]))
            for name in example.columns
        ]
    values = np.asarray(example)
    kind = number if values.dtype.kind in "fiub" else text
    return [("X", kind([None, 1 if values.ndim == 1 else values.shape[1]]))]


def _first(model: Any) -> Any:
    return _first(model.steps[0][1]) if isinstance(model, Pipeline) else model


def _rounded_at(model: Any) -> set[int]:
    """The parts, by identity, that see the numbers of the input as they are: first ones, and after these selections."""
    if not isinstance(model, Pipeline):
        return {id(model)}
    found = set[int]()
    for _, step in model.steps:
        found.add(id(step))
        if not (_table(step) is not None or hasattr(step, "get_support")):
            break
    return found


def _register(kind: type, rounded: set[int] | None) -> None:
    """Tell skl2onnx how models of this class are converted; ``rounded`` where inputs are float32."""
    from skl2onnx import update_registered_converter

    def convert(scope: Any, operator: Any, container: Any) -> None:
        how = "inputs" if rounded and id(operator.raw_operator) in rounded else "results"
        _convert(scope, operator, container, Graph(rounded="" if rounded is None else how))

    update_registered_converter(kind, f"Preflearn{kind.__name__}", _set_output_type, convert, overwrite=True)


def _set_output_type(operator: Any) -> None:
    from skl2onnx.common.data_types import DoubleTensorType

    model = operator.raw_operator
    learned = getattr(model, "dual_coef_", getattr(model, "coef_", None))
    single = not hasattr(model, "transform") and (learned is None or np.ndim(learned) == 1)
    operator.outputs[0].type = DoubleTensorType([None] if single else [None, None])


def _convert(scope: Any, operator: Any, container: Any, graph: Graph) -> None:
    """Replay what the model records."""
    names = {"input_" + str(place): variable.onnx_name for place, variable in enumerate(operator.inputs)}
    values = [_as_float64(graph.input(name), one) for name, one in zip(names, operator.inputs, strict=True)]
    model = operator.raw_operator
    table = _table(model)
    X: Value | Mapping[str, Value] = (
        graph.concatenate(values) if table is None else dict(zip(table, values, strict=True))
    )
    output = model._onnx_nodes(graph, X)
    _replay(graph, names, output, operator.outputs[0].onnx_name, scope, container)


def _as_float64(value: Value, variable: Any) -> Value:
    """Some converters of scikit-learn's steps return float32 or whole numbers."""
    from skl2onnx.common.data_types import DoubleTensorType, StringTensorType

    return value if isinstance(variable.type, (DoubleTensorType, StringTensorType)) else value.as_numbers()


def _replay(
    graph: Graph, names: dict[str, str], output: Value, output_name: str, scope: Any, container: Any
) -> None:
    from onnx import numpy_helper

    n_bytes = sum(array.nbytes for array in graph.constants.values())
    if n_bytes > _MOST_BYTES:
        raise ExportError(
            f"The model holds {n_bytes / 2**30:.1f} GiB of numbers, and an ONNX file at most 2: fit with a reduced set "
            "(n_basis) to export."
        )
    for name, array in graph.constants.items():
        names[name] = scope.get_unique_variable_name(name)
        container.add_initializer(
            names[name], None, None, numpy_helper.from_array(np.ascontiguousarray(array))
        )
    for node in graph.nodes:
        for name in node.outputs:
            names[name] = scope.get_unique_variable_name(name)
        container.add_node(
            node.operator,
            [names[name] for name in node.inputs],
            [names[name] for name in node.outputs],
            op_domain=node.domain,
            op_version=_OPERATOR_VERSIONS.get(node.operator, _OPSET[""]),
            name=scope.get_unique_operator_name(node.operator),
            **{key: _attribute(value) for key, value in node.attributes.items()},
        )
    container.add_node("Identity", [names[output.name]], [output_name], op_version=_OPSET[""])


def _attribute(value: Any) -> Any:
    from onnx import TensorProto, numpy_helper

    if isinstance(value, np.ndarray):
        return numpy_helper.from_array(value)
    if value in ("float64", "float32", "int64"):
        return {"float64": TensorProto.DOUBLE, "float32": TensorProto.FLOAT, "int64": TensorProto.INT64}[
            value
        ]
    return value


def _rename(exported: ModelProto, inputs: list[str], output: str) -> None:
    """Names of inputs as they are in the table, where skl2onnx has made identifiers of them, and of the output."""
    graph = exported.graph
    if output in inputs:
        output = f"predicted {output}"
    names = dict(zip((one.name for one in graph.input), inputs, strict=True)) | {graph.output[0].name: output}
    for one in (*graph.input, *graph.output):
        one.name = names[one.name]
    for node in graph.node:
        for used in (node.input, node.output):
            for place, name in enumerate(used):
                used[place] = names.get(name, name)


def _take_float32(exported: ModelProto, keep: frozenset[str]) -> None:
    """Let the inputs that are numbers be float32, cast before anything is computed; dates stay float64."""
    from onnx import TensorProto, helper

    graph, casts = exported.graph, []
    for one in graph.input:
        if one.type.tensor_type.elem_type != TensorProto.DOUBLE or one.name in keep:
            continue
        wide = f"{one.name} as float64"
        for node in graph.node:
            for place, name in enumerate(node.input):
                if name == one.name:
                    node.input[place] = wide
        one.type.tensor_type.elem_type = TensorProto.FLOAT
        casts.append(helper.make_node("Cast", [one.name], [wide], to=TensorProto.DOUBLE))
    nodes = [*casts, *graph.node]
    del graph.node[:]
    graph.node.extend(nodes)


def _reason(parts: list[Any], error: Exception) -> str:
    first_line = (str(error).strip() or type(error).__name__).splitlines()[0]
    named = [type(part).__name__ for part in parts if type(part).__name__ in str(error)]
    what = named[-1] if named else type(parts[-1]).__name__
    return f"{what} cannot be exported to ONNX: {first_line}"


def onnx_inputs(model: Any, X: Any) -> dict[str, np.ndarray]:
    """Rows as ``predict`` takes them, as the inputs of the exported model, of shape (m, n) or (m, 1) each.

    Parameters
    ----------
    model : fitted estimator
    X : array-like or data frame

    Returns
    -------
    dict
        Numbers are float64, texts objects.
    """
    encoder = table_encoder(model)
    if encoder is not None:
        return encoder._onnx_values(X)
    if hasattr(X, "columns") and not hasattr(model, "n_features_in_"):
        return {str(name): np.asarray(X[name])[:, None] for name in X.columns}
    rows = np.asarray(X.toarray() if hasattr(X, "toarray") else X)
    return {"X": rows[:, None] if rows.ndim == 1 else rows}


def refuse_other_order(exported: ModelProto, model: Any, X: Any, qid: Any, *, one_query: bool) -> None:
    """Compare the order of the rows of each query.

    Parameters
    ----------
    exported : ModelProto
    model : fitted estimator
    X, qid : as in ``predict``
        Without ``qid`` all rows are one query.
    one_query : bool
        Whether the exported model takes the rows of one query at a time.

    Raises
    ------
    ExportError
        Saying how many queries come out in another order.
    ImportError
        Without onnxruntime.
    """
    try:
        from onnxruntime import InferenceSession
    except ImportError:
        raise missing_extra("Checking an export", "onnxruntime", "onnx") from None
    session = InferenceSession(exported.SerializeToString(), providers=["CPUExecutionProvider"])
    inputs = onnx_inputs(model, X)
    types = {"tensor(float)": np.float32, "tensor(double)": np.float64, "tensor(string)": object}
    given = {one.name: inputs[one.name].astype(types[one.type]) for one in session.get_inputs()}
    n_rows = next(iter(given.values())).shape[0]
    queries = encode_queries(qid, n_rows)
    parts = [queries.rows(k) for k in range(queries.n_groups)] if one_query else [np.arange(n_rows)]
    wanted = np.asarray(predict_scores(model, X, queries.codes)).reshape(n_rows, -1)
    found = np.empty_like(wanted)
    for rows in parts:
        (scores,) = session.run(None, {name: values[rows] for name, values in given.items()})
        found[rows] = np.reshape(scores, (rows.size, -1))
    n_other = _n_reordered(wanted, found, queries)
    if n_other:
        raise ExportError(
            f"The exported model orders {n_other} of {queries.n_groups} queries differently from predict, whose scores "
            f"it misses by up to {np.abs(found - wanted).max():.2g}: float32 inputs round values that this model tells "
            "apart. Export with dtype='float64' (--dtype float64)."
        )


def _n_reordered(wanted: np.ndarray, found: np.ndarray, queries: Groups) -> int:
    """Queries with two rows that are clearly in one order by ``wanted``, and tied or in the other by ``found``."""
    # Sums over trees are float32 where they leave their operator: scores this near to each other count as tied.
    tied = 1e-6 * max(1.0, float(np.abs(wanted).max()))
    return sum(
        any(_is_reordered(wanted[rows, k], found[rows, k], tied) for k in range(wanted.shape[1]))
        for rows in map(queries.rows, range(queries.n_groups))
    )


def _is_reordered(wanted: np.ndarray, found: np.ndarray, tied: float) -> bool:
    order = np.argsort(wanted, kind="stable")
    wanted, found = wanted[order], found[order]
    highest = np.maximum.accumulate(found)
    n_below = np.searchsorted(wanted, wanted - tied)
    return bool((found[n_below > 0] <= highest[n_below[n_below > 0] - 1]).any())
