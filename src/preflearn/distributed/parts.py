"""Dask arrays and data frames as a list of parts, each the rows of one partition; the rows of them all that are basis
vectors.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.base import clone

from ..comparisons import encode_queries
from ..comparisons.inputs import read_scores
from ..errors import missing_extra
from ..kernels.functions import n_items, take_items
from ..kernels.inputs import read_items
from ..kernels.maps import choose_basis
from ..learners.streaming.basis import Basis, refuse_basis
from ..squared.statistics import label_keys


def require_dask() -> Any:
    """The module dask, or an error that says how to install it."""
    try:
        import dask
    except ImportError as error:
        raise missing_extra("preflearn.distributed", "Dask", "dask") from error
    return dask


@dataclass
class Parts:
    """Rows in partitions.

    Attributes
    ----------
    X, y, qid : list of Delayed (qid may be None)
        The partitions.
    n_outputs : int
    single : bool
        Whether y is one column.
    feature_names : list of str or None
        For a data frame.
    """

    X: list[Any]
    y: list[Any]
    qid: list[Any] | None
    n_outputs: int
    single: bool
    feature_names: list[str] | None
    _lengths: list[int] | None = field(default=None, repr=False)

    def __len__(self) -> int:
        return len(self.X)

    def triples(self) -> list[tuple[Any, Any, Any]]:
        qid = [None] * len(self) if self.qid is None else self.qid
        return list(zip(self.X, self.y, qid, strict=True))

    def lengths(self) -> list[int]:
        """The number of rows of each partition; computed where the collection does not know it."""
        if self._lengths is None:
            dask = require_dask()
            n_rows = dask.delayed(_n_rows)
            self._lengths = list(dask.compute(*(n_rows(y) for y in self.y)))
        return self._lengths


def read_parts(X: Any, y: Any, qid: Any) -> Parts:
    """Recognise collections, or columns of a data frame given by name.

    Raises
    ------
    TypeError
        If something is not a Dask collection.
    ValueError
        If the collections are not partitioned in the same way.
    """
    require_dask()
    if y is None:
        raise ValueError("distributed.fit requires y: a Dask collection, or the name of a column of X.")
    if is_frame(X):
        X, y, qid = _columns(X, y, qid)
    elif isinstance(y, str) or isinstance(qid, str):
        raise TypeError("y and qid can only be names of columns where X is a Dask data frame.")
    for name, collection in (("X", X), ("y", y), ("qid", qid)):
        if not (is_array(collection) or is_frame(collection) or (name == "qid" and collection is None)):
            raise TypeError(
                f"{name} must be a Dask array or data frame: found {type(collection).__name__}. For arrays in "
                "memory use the estimator's own fit."
            )
    y, qid = _like(X, y), None if qid is None else _like(X, qid)
    if len(X.shape) != 2:
        raise ValueError(f"X must have rows and columns: found {len(X.shape)} dimensions.")
    n_outputs = int(y.shape[1]) if len(y.shape) == 2 else 1
    blocks = {"X": _blocks(X), "y": _blocks(y)} | ({} if qid is None else {"qid": _blocks(qid)})
    counts = {name: len(parts) for name, parts in blocks.items()}
    if len(set(counts.values())) > 1:
        raise ValueError(
            f"X, y and qid must be partitioned in the same way: found {counts} partitions. Repartition them together, "
            "for example as columns of one data frame."
        )
    names = [str(name) for name in X.columns] if is_frame(X) else None
    lengths = None
    if is_array(X) and not np.isnan(X.chunks[0]).any():
        lengths = [int(n) for n in X.chunks[0]]
    return Parts(blocks["X"], blocks["y"], blocks.get("qid"), n_outputs, n_outputs == 1, names, lengths)


def is_array(collection: Any) -> bool:
    """Whether this is a Dask array."""
    return hasattr(collection, "dask") and hasattr(collection, "chunks") and hasattr(collection, "rechunk")


def is_frame(collection: Any) -> bool:
    """Whether this is a Dask data frame or series."""
    return (
        hasattr(collection, "dask")
        and hasattr(collection, "npartitions")
        and hasattr(collection, "divisions")
    )


def _columns(frame: Any, y: Any, qid: Any) -> tuple[Any, Any, Any]:
    """Columns given by name are removed from the features."""
    named = [name for name in (y, qid) if isinstance(name, str)]
    missing = [name for name in named if name not in frame.columns]
    if missing:
        raise ValueError(
            f"There is no column {missing[0]!r} in X: found {', '.join(map(str, frame.columns))}."
        )
    features = [name for name in frame.columns if name not in named]
    return (
        frame[features] if named else frame,
        frame[y] if isinstance(y, str) else y,
        frame[qid] if isinstance(qid, str) else qid,
    )


def _like(X: Any, other: Any) -> Any:
    """Another array cut into the same rows as X, where both know theirs."""
    if not (is_array(X) and is_array(other)):
        return other
    if other.shape[0] != X.shape[0] and not np.isnan([other.shape[0], X.shape[0]]).any():
        raise ValueError(
            f"X has {X.shape[0]} rows, and another collection {other.shape[0]}: they must have the same rows."
        )
    if other.chunks[0] == X.chunks[0] or np.isnan([*other.chunks[0], *X.chunks[0]]).any():
        return other
    return other.rechunk({0: X.chunks[0]})


def _blocks(collection: Any) -> list[Any]:
    if is_array(collection) and collection.ndim == 2 and collection.numblocks[1] > 1:
        collection = collection.rechunk({1: -1})
    return list(np.ravel(collection.to_delayed()))


def _n_rows(part: Any) -> int:
    return int(part.shape[0])


def as_plain(part: Any) -> Any:
    """A partition of a data frame as an array; anything else unchanged."""
    return part.to_numpy() if hasattr(part, "to_numpy") else part


def tree_reduce(items: list[Any], combine: Any, split_every: int) -> Any:
    """Delayed items combined a few at a time by the delayed function ``combine(list)``, down to one."""
    while len(items) > 1:
        items = [combine(items[k : k + split_every]) for k in range(0, len(items), split_every)]
    return items[0]


def in_part(number: int, error: Exception) -> Exception:
    """The same error with the number of the partition."""
    return ValueError(f"Partition {number}: {error}")


def read_part(number: int, model: Any, X: Any, y: Any, qid: Any) -> tuple[Any, np.ndarray, Any] | None:
    """Checked rows of one partition, on its worker; None where it is empty."""
    X, y, qid = as_plain(X), as_plain(y), None if qid is None else as_plain(qid)
    if n_items(X) == 0:
        return None
    try:
        X = read_items(model, X, model._read_kernel(), reset=True)
        scores, _ = read_scores(y, n_items(X), estimator=model)
    except (TypeError, ValueError) as error:
        raise in_part(number, error) from error
    return X, scores, qid


def choose_shared_basis(model: Any, parts: Parts) -> Basis:
    """The rows that `fit` would choose, fetched from where they are."""
    dask = require_dask()
    refuse_basis(model)
    lengths = parts.lengths()
    ends = np.cumsum(lengths)
    chosen = choose_basis(int(ends[-1]), model.n_basis, model.basis, model.random_state)
    assert chosen is not None
    owner = np.searchsorted(ends, chosen, side="right")
    fetch = dask.delayed(_fetch)
    tasks, places = [], []
    for number in np.unique(owner):
        mine = np.flatnonzero(owner == number)
        places.append(mine)
        X, y, qid = parts.triples()[number]
        rows = chosen[mine] - (ends[number] - lengths[number])
        tasks.append(fetch(int(number), clone(model), X, y, qid, rows))
    fetched = dask.compute(*tasks)
    order = np.argsort(np.concatenate(places))
    items = [item for item, _ in fetched]
    stacked = sp.vstack(items, format="csr") if sp.issparse(items[0]) else np.concatenate(items)
    keys = chosen
    if parts.qid is not None:
        keys = np.concatenate([key for _, key in fetched])[order]
    given = not isinstance(model.basis, str)
    source = "the rows given" if given else f"uniform sample of all {int(ends[-1])} rows"
    return Basis(stacked[order], chosen, keys, source)


def _fetch(number: int, model: Any, X: Any, y: Any, qid: Any, rows: np.ndarray) -> tuple[Any, Any]:
    part = read_part(number, model, X, y, qid)
    assert part is not None
    if part[2] is None:
        return take_items(part[0], rows), None
    queries = encode_queries(part[2], part[1].shape[0])
    assert queries.labels is not None
    return take_items(part[0], rows), label_keys(queries.labels[queries.codes[rows]])
