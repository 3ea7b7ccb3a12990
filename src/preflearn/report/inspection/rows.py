"""The rows of a table as a model sees them: numbers, the feature that each comes from, and the rest of the model.

A model of tables finds its columns by name, as ``predict`` does: additional columns are ignored, and those that were
set aside in training (identifiers, constants) may be missing. Its `TableEncoder` handles one column at a time, so that
exchanging or shuffling the encoded columns of a feature is the same as doing so with the feature itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy import sparse as sp
from sklearn.base import OneToOneFeatureMixin
from sklearn.preprocessing import Normalizer
from sklearn.utils import _safe_indexing

from ...metrics.by_query import predict_scores, wants_qid
from ...tables.encoding.query_relative import QueryRelative
from ...tables.encoding.table import TableEncoder, table_encoder


@dataclass(frozen=True, eq=False)
class ModelRows:
    """Rows as numbers, and the rest of the model.

    Attributes
    ----------
    Z : ndarray or sparse matrix of shape (m, p)
    owners : ndarray of int of shape (p,)
        The feature that each column of Z comes from.
    names : list of str
        Of the n features.
    model : estimator
        The part of the model that predicts from Z.
    keys : list of str or int
        Where the features are in the table: names of columns, or their numbers where either side has no names.
    frame : callable
        Z as ``model`` takes it.
    """

    Z: Any
    owners: np.ndarray
    names: list[str]
    model: Any
    keys: list[Any]
    frame: Callable[[Any], Any] = lambda rows: rows

    def predict(self, Z: Any, qid: Any) -> np.ndarray:
        """Scores of rows like Z."""
        return np.asarray(predict_scores(self.model, self.frame(Z), qid))

    def values(self, X: Any, row: int) -> list[Any]:
        """The features of one row of the table in their original form."""
        if sp.issparse(X):
            return list(X[[row]].toarray()[0])
        if isinstance(X, Sequence):
            return [X[row].get(key) if isinstance(X[row], Mapping) else X[row][key] for key in self.keys]
        if hasattr(X, "iloc") and not any(isinstance(key, str) for key in self.keys):
            return [X.iloc[row, key] for key in self.keys]
        if isinstance(X, Mapping) or hasattr(X, "columns"):
            names = list(map(str, X if isinstance(X, Mapping) else getattr(X, "column_names", X.columns)))
            cells = [X[key if isinstance(key, str) else names[key]] for key in self.keys]
            return [_plain_value(list(column)[row]) for column in cells]
        return [X[row, key] for key in self.keys]


def count_rows(X: Any) -> int:
    """Rows of a table of any kind."""
    if isinstance(X, Mapping):
        return len(next(iter(X.values()))) if X else 0
    return X.shape[0] if hasattr(X, "shape") else len(X)


def take_rows(X: Any, rows: np.ndarray) -> Any:
    """Some rows of a table of any kind."""
    if isinstance(X, Mapping):
        return {name: _safe_indexing(values, rows) for name, values in X.items()}
    return _safe_indexing(X.tocsr() if sp.issparse(X) else X, rows)


def model_rows(model: Any, X: Any, feature_names: Sequence[str] | None = None) -> ModelRows:
    """The rows of X as the model sees them.

    Parameters
    ----------
    model : fitted estimator
    X : table as ``predict`` takes it
    feature_names : sequence of str, optional
        Instead of the names that the model or the table has.

    Raises
    ------
    ValueError
        If columns that the model uses are missing.
    """
    while hasattr(model, "best_estimator_"):
        model = model.best_estimator_
    encoder = table_encoder(model)
    found = _plain_rows(model, X) if encoder is None else _table_rows(model, encoder, X)
    if feature_names is None:
        return found
    every = found.names if encoder is None else list(encoder.kinds_)
    if len(feature_names) not in (len(every), len(found.names)):
        raise ValueError(
            f"feature_names must hold one name for each of {len(every)} features: found {len(feature_names)}."
        )
    given = list(map(str, feature_names))
    if len(given) == len(every):
        given = [given[every.index(name)] for name in found.names] if encoder is not None else given
    return replace(found, names=given)


def _plain_rows(model: Any, X: Any) -> ModelRows:
    Z = X.tocsr() if sp.issparse(X) else np.asarray(X)
    if Z.ndim != 2:
        raise ValueError(f"X must have two dimensions, rows and features: found shape {Z.shape}.")
    n = Z.shape[1]
    unnamed = [f"x{k}" for k in range(n)]
    names = list(map(str, getattr(X, "columns", getattr(model, "feature_names_in_", unnamed))))
    found = ModelRows(Z, np.arange(n), names if len(names) == n else unnamed, model, list(range(n)))
    if not hasattr(X, "iloc"):
        return found
    kind, columns, types = type(X), X.columns, X.dtypes.to_dict()
    return replace(found, frame=lambda rows: kind(rows, columns=columns).astype(types))


def _table_rows(model: Any, encoder: TableEncoder, X: Any) -> ModelRows:
    Z = encoder.transform(X)
    widths = [len(one.names(name)) for name, one in encoder.encoders_.items()]
    owners = np.repeat(np.arange(len(widths)), widths)
    first = model[0] if hasattr(model, "steps") else model
    rest = model[1:] if first is encoder else first._after_encoder()
    names = list(encoder.encoders_)
    keys: list[Any] = names
    if not hasattr(encoder, "feature_names_in_") or not _has_names(X):
        keys = [list(encoder.kinds_).index(name) for name in names]
    return ModelRows(Z, owners, names, rest, keys)


def _has_names(X: Any) -> bool:
    first = X[0] if isinstance(X, Sequence) and len(X) else X
    return isinstance(first, Mapping) or hasattr(first, "columns")


def _plain_value(value: Any) -> Any:
    """What a cell of pyarrow holds."""
    return value.as_py() if hasattr(value, "as_py") else value


def rowwise(
    found: ModelRows,
) -> tuple[np.ndarray, Callable[[np.ndarray], np.ndarray], np.ndarray]:
    """The rows of one query, prepared until scores depend on each row alone, the score of such rows, and the owners.

    Steps that depend on the query (`QueryRelative`, a model with a method ``_in_query``) are applied once, to the
    original rows: mixtures of prepared rows are items that the query might contain, and the score of a row itself is
    that of ``predict``.

    Raises
    ------
    ValueError
        If columns are mixed before a step that depends on the query.
    """
    model, Z, owners, frame = found.model, found.Z, found.owners, found.frame
    while hasattr(model, "steps") and (len(model.steps) == 1 or wants_qid(model)):
        if len(model.steps) == 1:
            model = model[0]
            continue
        Z, owners = _through(model[0], frame(Z), owners)
        model, frame = model[1:], lambda rows: rows
    if hasattr(model, "_in_query"):
        Z, score, inner, _ = model._in_query(frame(Z))
        return Z, score, owners[inner]
    if wants_qid(model):
        raise ValueError(
            f"{type(model).__name__} depends on the query in a way that explain does not support."
        )
    dense = Z.toarray() if sp.issparse(Z) else np.asarray(Z)
    return dense, lambda rows: np.asarray(model.predict(frame(rows))), owners


def _through(step: Any, Z: Any, owners: np.ndarray) -> tuple[Any, np.ndarray]:
    """What a step turns the rows of one query into, and the owners of its columns."""
    if step is None or isinstance(step, str):
        return Z, owners
    if isinstance(step, QueryRelative):
        one_query = {"qid": np.zeros(Z.shape[0], dtype=np.int64)} if step.needs_qid_ else {}
        return step.transform(Z, **one_query), np.tile(owners, 2) if step.keep else owners
    if isinstance(step, OneToOneFeatureMixin) and not isinstance(step, Normalizer):
        return step.transform(Z), owners
    if hasattr(step, "get_support"):
        return step.transform(Z), owners[step.get_support()]
    raise ValueError(
        f"explain cannot attribute features after {type(step).__name__}, which mixes them before a later step that "
        "depends on the query: explain the steps after it, explain(model[k:], model[:k].transform(X), ...)."
    )
