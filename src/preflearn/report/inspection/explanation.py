r"""Why does an item have its rank? What each feature adds to its score, compared with the others of its query.

Take the item x and another row z of its query, and change z into x one feature after the other, in a random order: each
step adds a little to the score, and the steps add up to f(x) - f(z). The mean over all rows z of the query and over
orders is the contribution of each feature,

    φ_k = mean over z and orders of [f(z with the features up to k from x) - f(z with those before k from x)],
    Σ_k φ_k = f(x) - mean over z of f(z),

an estimate of the Shapley value that sums to the difference exactly, whatever the number of orders. For a linear model
every order gives φ_k = w_k (x_k - mean of z_k).

A model of tables finds its columns by name, as ``predict`` does: additional columns are ignored, and those that were
set aside in training (identifiers, constants) may be missing. Its `TableEncoder` handles one column at a time, so that
exchanging or shuffling the encoded columns of a feature is the same as doing so with the feature itself (`ModelRows`).

Reference: Štrumbelj and Kononenko, "An efficient explanation of individual classifications using game theory", Journal
of Machine Learning Research 11 (2010).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from numbers import Integral
from typing import Any

import numpy as np
from scipy import sparse as sp
from sklearn.base import OneToOneFeatureMixin
from sklearn.preprocessing import Normalizer
from sklearn.utils import _safe_indexing, check_random_state

from ...comparisons import encode_queries
from ...metrics.by_query import predict_scores, wants_qid
from ...plots import new_axes
from ...shown_tables import ShownTable, align_columns, shows_itself
from ...tables.encoding.query_relative import QueryRelative
from ...tables.encoding.table import TableEncoder, table_encoder

# Numbers of the rows that are scored together.
_NUMBERS = 1 << 20


@shows_itself
@dataclass(frozen=True, eq=False)
class Explanation:
    """Contributions of the features to the place of one item; prints itself, the largest first.

    Attributes
    ----------
    names : list of str
    values : list
        The item's own feature values.
    contributions : ndarray of shape (n,)
        They sum to ``score - query_mean``.
    score : float
        Of the item.
    query_mean : float
        Mean score of its query.
    rank, n_rows : int
        Position of the item, and rows of its query.
    """

    names: list[str]
    values: list[Any]
    contributions: np.ndarray
    score: float
    query_mean: float
    rank: int
    n_rows: int

    @property
    def order(self) -> np.ndarray:
        """Features, the largest contribution first, regardless of its sign."""
        return np.argsort(-np.abs(self.contributions), kind="stable")

    def __str__(self) -> str:
        return "\n".join([self._head(), *align_columns(self.table())])

    def shown_tables(self) -> list[ShownTable]:
        return [ShownTable(self.table(), self._head())]

    def _head(self) -> str:
        difference = self.score - self.query_mean
        return f"rank {self.rank} of {self.n_rows}: score {self.score:.4g}, {difference:+.4g} from the query's mean"

    def table(self) -> list[tuple[str, ...]]:
        """Rows of text: heading, one per feature, the sum."""
        rows: list[tuple[str, ...]] = [("feature", "value", "contribution")]
        for k in self.order:
            rows.append((self.names[k], _shown(self.values[k]), f"{self.contributions[k]:+.4g}"))
        rows.append(("sum", "", f"{self.contributions.sum():+.4g}"))
        return rows

    def plot(self, ax: Any = None, *, n_features: int = 15) -> Any:
        """Bars of the largest contributions.

        Parameters
        ----------
        ax : matplotlib axes, optional
        n_features : int, default=15

        Returns
        -------
        matplotlib axes
        """
        shown = self.order[:n_features][::-1]
        ax = new_axes((6, 0.3 * len(shown) + 1)) if ax is None else ax
        sizes = self.contributions[shown]
        labels = [f"{self.names[k]} = {_shown(self.values[k])}" for k in shown]
        ax.barh(labels, sizes, color=np.where(sizes >= 0, "C0", "C3"))
        ax.axvline(0.0, color="0.5", linewidth=0.8)
        ax.set_xlabel("contribution to the score, compared with the query's mean")
        return ax


def explain(
    model: Any,
    X: Any,
    *,
    qid: Any = None,
    row: int,
    feature_names: Sequence[str] | None = None,
    n_orders: int = 2,
    random_state: Any = 0,
) -> Explanation:
    """Contributions of the features to the difference between an item's score and the mean of its query.

    Parameters
    ----------
    model : fitted estimator
        Anything with ``predict``, such as what `preflearn.io.load_model` returns; a model with features relative to
        their query receives all rows of the query together.
    X : array-like or data frame of shape (m, n)
        At least all items of the query, as ``predict`` takes them: a model of tables finds its columns by name.
    qid : array-like of shape (m,), optional
        The query of each row; without it all rows are one ranking.
    row : int
        The item, a row of X.
    feature_names : sequence of n str, optional
        By default the names that the table or the model has, otherwise "x0", "x1", ....
    n_orders : int, default=2
        Orders of the features for every other row of the query; each is followed by its reverse.
    random_state : int, RandomState or None, default=0

    Returns
    -------
    Explanation

    Notes
    -----
    2 · n_orders · n predictions for each row of the query. An item that is alone in its query has no contributions.
    Columns of a table that the model does not use (identifiers, constants) are left out.

    Steps of a pipeline that come before one that depends on the query must act on one column at a time, as scalers do;
    others (a PCA, for example) are refused there.

    Examples
    --------
    >>> import numpy as np
    >>> from preflearn import RankRLS
    >>> from preflearn.inspection import explain
    >>> X = np.array([[1.0, 5.0], [2.0, 5.0], [3.0, 2.0]])
    >>> model = RankRLS().fit(X, [0, 1, 2])
    >>> found = explain(model, X, row=2, feature_names=["size", "price"])
    >>> np.allclose(found.contributions, model.coef_ * (X[2] - X.mean(axis=0)))
    True
    >>> print(found)
    rank 1 of 3: score 1.558, +0.9808 from the query's mean
      feature  value  contribution
      size         3       +0.6346
      price        2       +0.3462
      sum                  +0.9808
    """
    rows, place = _query_of(X, qid, row)
    if isinstance(n_orders, bool) or not isinstance(n_orders, Integral) or n_orders < 1:
        raise ValueError(f"n_orders must be a positive whole number: found {n_orders!r}.")
    few = take_rows(X, rows)
    found = model_rows(model, few, feature_names)
    Z, score, owners = rowwise(found)
    scores = score(Z)
    if scores.ndim != 1:
        raise ValueError(f"explain is for one score per row: this model predicts {scores.shape[1]} outputs.")
    n = len(found.names)
    contributions = _contributions(
        Z, place, score, owners, n, int(n_orders), check_random_state(random_state)
    )
    position = 1 + int((scores > scores[place]).sum())
    return Explanation(
        found.names,
        found.values(few, place),
        contributions,
        float(scores[place]),
        float(scores.mean()),
        position,
        len(rows),
    )


def explain_rows(
    model: Any,
    X: Any,
    rows: Sequence[int] | int | None = None,
    *,
    qid: Any = None,
    feature_names: Sequence[str] | None = None,
    n_orders: int = 2,
    random_state: Any = 0,
) -> Any:
    """`explain` for several items, as a data frame with a row for each.

    Parameters
    ----------
    model, X, qid, feature_names, n_orders, random_state
        As in `explain`.
    rows : int or sequence of int, optional
        The items, rows of X; all of them by default.

    Returns
    -------
    data frame
        A polars one where X is; else a pandas one, or a mapping from names to columns where pandas is not installed.
        ``row``, ``rank``, ``score``, ``query_mean``, and the contribution of each feature.

    Examples
    --------
    >>> import numpy as np
    >>> from preflearn import RankRLS
    >>> from preflearn.inspection import explain_rows
    >>> X = np.array([[1.0, 5.0], [2.0, 5.0], [3.0, 2.0]])
    >>> found = explain_rows(RankRLS().fit(X, [0, 1, 2]), X, [2, 0], feature_names=["size", "price"])
    >>> list(found["rank"]), [round(float(one), 3) for one in found["size"]]
    ([1, 3], [0.635, -0.635])
    """
    chosen: list[Any] = list(range(count_rows(X)))
    if rows is not None:
        chosen = list(rows) if isinstance(rows, Sequence | np.ndarray) else [rows]
    options: dict[str, Any] = {
        "qid": qid, "feature_names": feature_names, "n_orders": n_orders, "random_state": random_state
    }  # fmt: skip
    found = [explain(model, X, row=row, **options) for row in chosen]
    if not found:
        raise ValueError("rows is empty: name the items to explain.")
    columns: dict[str, Any] = {
        "row": [int(row) for row in chosen],
        "rank": [one.rank for one in found],
        "score": [one.score for one in found],
        "query_mean": [one.query_mean for one in found],
    }
    names = [name if name not in columns else f"{name} (feature)" for name in found[0].names]
    columns |= {name: [float(one.contributions[k]) for one in found] for k, name in enumerate(names)}
    return _frame_like(X, columns)


def _frame_like(X: Any, columns: dict[str, Any]) -> Any:
    """A polars frame where X is one, else a pandas frame, else the columns."""
    if type(X).__module__.startswith("polars"):
        import polars

        return polars.DataFrame(columns)
    try:
        import pandas
    except ImportError:
        return columns
    return pandas.DataFrame(columns)


def _contributions(
    Z: np.ndarray,
    place: int,
    score: Callable[[np.ndarray], np.ndarray],
    owners: np.ndarray,
    n: int,
    n_orders: int,
    random: np.random.RandomState,
) -> np.ndarray:
    total = np.zeros(n)
    orders = [
        (Z[other], one)
        for other in range(Z.shape[0])
        if other != place
        for order in [random.permutation(n) for _ in range(n_orders)]
        for one in (order, order[::-1])
    ]
    at_once = max(1, _NUMBERS // ((n + 1) * Z.shape[1]))
    for first in range(0, len(orders), at_once):
        some = orders[first : first + at_once]
        scores = score(np.concatenate([_steps(start, Z[place], owners, order) for start, order in some]))
        for (_, order), change in zip(some, np.diff(scores.reshape(len(some), n + 1), axis=1)):
            total[order] += change
    return total / (2 * n_orders * Z.shape[0])


def _steps(start: np.ndarray, end: np.ndarray, owners: np.ndarray, order: np.ndarray) -> np.ndarray:
    """The rows from start to end, with the columns of one more feature changed in each; shape (n + 1, columns)."""
    turn = np.empty(order.shape[0], dtype=np.int64)
    turn[order] = np.arange(1, order.shape[0] + 1)
    changed = np.arange(order.shape[0] + 1)[:, None] >= turn[owners][None, :]
    return np.where(changed, end, start)


def _query_of(X: Any, qid: Any, row: int) -> tuple[np.ndarray, int]:
    """The rows of the item's query, and the item's place among them."""
    n_rows = count_rows(X)
    if isinstance(row, bool) or not isinstance(row, Integral) or not 0 <= row < n_rows:
        raise ValueError(f"row must be the number of a row of X, from 0 to {n_rows - 1}: found {row!r}.")
    queries = encode_queries(qid, n_rows)
    rows = np.flatnonzero(queries.codes == queries.codes[row])
    return rows, int(np.searchsorted(rows, row))


def _shown(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, (float, np.floating)) else str(value)


# The rows of a table as a model sees them -----------------------------------------------------------------------------


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
