"""Does an exported model order rows as ``predict`` does? Both are asked, and a difference is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ...comparisons import Groups, encode_queries
from ...metrics.by_query import predict_scores
from ...numerics.onnx_graph import ExportError
from ..encoding.table import table_encoder

if TYPE_CHECKING:
    from onnx import ModelProto

_TYPES = {"tensor(float)": np.float32, "tensor(double)": np.float64, "tensor(string)": object}
# Sums over trees are float32 where they leave their operator: scores this near to each other count as tied.
_TIED = 1e-6


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
        raise ImportError(
            "Checking an export needs onnxruntime, which runs it: pip install onnxruntime."
        ) from None
    session = InferenceSession(exported.SerializeToString(), providers=["CPUExecutionProvider"])
    inputs = onnx_inputs(model, X)
    given = {one.name: inputs[one.name].astype(_TYPES[one.type]) for one in session.get_inputs()}
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
    tied = _TIED * max(1.0, float(np.abs(wanted).max()))
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
