"""What every metric shares: checked input and options, the scores of a model, rows grouped by query,
threads over queries, the mean over queries.

A metric here is a number per query; the metric of a data set is the mean over its queries.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from numbers import Integral, Real
from typing import Any, NamedTuple

import numpy as np
from sklearn import config_context

from ..comparisons.grouping import Groups, encode_queries
from ..numerics.threads import in_threads, n_threads

GAINS = ("exponential", "linear")
NO_RELEVANT = ("zero", "skip")
# A thread that gets fewer rows than this costs more than it saves.
_ROWS_PER_THREAD = 25_000


class PerQuery(NamedTuple):
    """A metric query by query, as the metrics return it for ``per_query=True``.

    Attributes
    ----------
    labels : ndarray of shape (n_queries,)
        The query labels; a single None where no ``qid`` was given.
    values : ndarray of shape (n_queries,), or (n_queries, v) for v outputs
        The value in each query, NaN where it is not defined.
    """

    labels: np.ndarray
    values: np.ndarray

    @property
    def means(self) -> np.ndarray:
        """For each output the mean over the queries where the metric is defined; NaN where it never is. Shape (v,)."""
        columns = self.values.reshape(self.values.shape[0], -1)
        defined = ~np.isnan(columns)
        with np.errstate(invalid="ignore"):
            return np.where(defined, columns, 0.0).sum(axis=0) / defined.sum(axis=0)

    @property
    def mean(self) -> float:
        """The mean of `means`; NaN where one of them is."""
        return float(np.mean(self.means))


@dataclass(frozen=True)
class Rows:
    """Checked labels and scores with the query of each row.

    Attributes
    ----------
    y, scores : ndarray of shape (m, v), float64
    queries : Groups
    """

    y: np.ndarray
    scores: np.ndarray
    queries: Groups

    def grouped(self, *columns: np.ndarray) -> list[np.ndarray]:
        """Copies of some columns with the rows of each query side by side."""
        return [one[self.queries.order] for one in columns]

    def per_query(self, values: np.ndarray) -> PerQuery:
        labels = self.queries.labels
        return PerQuery(np.array([None], dtype=object) if labels is None else labels, values)


def check_rows(y: Any, scores: Any, qid: Any, *, many_outputs: bool = False) -> Rows:
    """Labels, scores and query labels as arrays of matching shapes, or one error that says what is wrong."""
    y = _numbers(y, "y", many_outputs)
    scores = _numbers(scores, "scores", many_outputs)
    if y.shape[0] != scores.shape[0]:
        raise ValueError(
            f"y and scores must have one entry per row: found {y.shape[0]} in y and {scores.shape[0]} in scores."
        )
    if y.shape != scores.shape:
        raise ValueError(
            f"y and scores must have the same outputs: found {y.shape[1]} columns in y and "
            f"{scores.shape[1]} in scores."
        )
    if y.shape[0] == 0:
        raise ValueError("there is nothing to measure: y and scores have no rows.")
    queries = qid if isinstance(qid, Groups) else encode_queries(qid, y.shape[0])
    if queries.n_rows != y.shape[0]:
        raise ValueError(f"qid groups {queries.n_rows} rows, but y has {y.shape[0]}.")
    return Rows(y, scores, queries)


def check_weights(sample_weight: Any, n_rows: int) -> np.ndarray:
    """One weight per row; an empty array where none were given, which stands for 1 everywhere."""
    if sample_weight is None:
        return np.empty(0)
    weights = _numbers(sample_weight, "sample_weight", False)[:, 0]
    if weights.shape[0] != n_rows:
        raise ValueError(
            f"sample_weight must have one entry per row: found {weights.shape[0]} for {n_rows} rows."
        )
    if weights.min(initial=0.0) < 0.0:
        raise ValueError(f"sample_weight must not be negative: found {weights.min():g}.")
    return weights


def over_queries(loop: Callable[..., None], queries: Groups, *arguments: Any) -> None:
    """Run ``loop(*arguments, starts, first, last)`` over all queries, shared out by rows."""
    starts = queries.starts
    n_parts = max(1, min(queries.n_groups, queries.n_rows // _ROWS_PER_THREAD, n_threads()))
    edges = [0, queries.n_groups]
    if n_parts > 1:
        edges = np.searchsorted(starts, np.linspace(0, queries.n_rows, n_parts + 1)).tolist()
    in_threads(
        [partial(loop, *arguments, starts, first, last) for first, last in pairwise(edges) if first < last]
    )


def mean_or_refuse(values: PerQuery, *, metric: str, reason: str) -> float:
    """The mean over queries; an error where it is defined in none."""
    mean = values.mean
    if np.isnan(mean):
        raise ValueError(f"{metric} is not defined: {reason}")
    return mean


def _numbers(values: Any, name: str, many_outputs: bool) -> np.ndarray:
    """Finite float64 of shape (m, v), v = 1 unless there may be many outputs."""
    found = np.asarray(values)
    if found.dtype.kind not in "biuf":
        found = _converted(found, name)
    array = found.astype(np.float64, copy=False)
    if array.ndim == 1:
        array = array[:, np.newaxis]
    if array.ndim != 2 or (array.shape[1] != 1 and not many_outputs):
        expected = "one number per row, or one column per output" if many_outputs else "one number per row"
        raise ValueError(f"{name} must hold {expected}: found an array of shape {found.shape}.")
    finite = np.isfinite(array)
    if not finite.all():
        row = int(np.flatnonzero(~finite.all(axis=1))[0])
        raise ValueError(
            f"{name} must be finite: row {row} holds {array[row][~finite[row]][0]}. "
            "Leave out the rows whose value is unknown."
        )
    return array


def _converted(found: np.ndarray, name: str) -> np.ndarray:
    """Refuse text and complex numbers; numbers stored as objects (decimals, mixed lists) are accepted."""
    message = f"{name} must hold numbers: found {found.dtype} of shape {found.shape}."
    if found.dtype.kind != "O" or found.ndim == 0:
        raise TypeError(message)
    try:
        return found.astype(np.float64)
    except (TypeError, ValueError) as error:
        raise TypeError(f"{message} ({error})") from error


def check_options(
    *,
    k: int | None = None,
    gain: str = "exponential",
    relevant_above: float = 0.0,
    max_grade: float | None = None,
    no_relevant: str = "zero",
) -> None:
    """Refuse option values that no metric can use."""
    if k is not None and (not isinstance(k, Integral) or isinstance(k, bool) or k < 1):
        raise ValueError(f"k must be a number of positions, 1 or more: found {k!r}.")
    for name, value, known in (("gain", gain, GAINS), ("no_relevant", no_relevant, NO_RELEVANT)):
        if value not in known:
            raise ValueError(f"{name} must be one of {', '.join(map(repr, known))}: found {value!r}.")
    if not isinstance(relevant_above, Real) or not np.isfinite(relevant_above):
        raise ValueError(f"relevant_above must be a finite number: found {relevant_above!r}.")
    if max_grade is not None and (not isinstance(max_grade, Real) or not 0.0 < max_grade < np.inf):
        raise ValueError(f"max_grade must be a positive number: found {max_grade!r}.")


def predict_scores(model: Any, X: Any, qid: Any = None) -> Any:
    """``model.predict(X)``, with ``qid`` where the model, or a step of a pipeline, needs it.

    Parameters
    ----------
    model : fitted estimator
    X : its data
    qid : array-like of shape (m,), optional

    Returns
    -------
    ndarray
        As ``predict`` gives it.

    Examples
    --------
    >>> import numpy as np
    >>> from preflearn import RankRLS
    >>> predict_scores(RankRLS().fit([[0.0], [1.0]], [0, 1]), [[0.0], [2.0]], qid=[0, 0]).shape
    (2,)
    """
    if qid is None or not wants_qid(model):
        return model.predict(X)
    with config_context(enable_metadata_routing=True):
        return model.predict(X, qid=qid)


def wants_qid(model: Any) -> bool:
    """Whether predictions depend on the queries, as those from features relative to their query do."""
    routing = getattr(model, "get_metadata_routing", None)
    return routing is not None and bool(routing().consumes("predict", ["qid"]))
