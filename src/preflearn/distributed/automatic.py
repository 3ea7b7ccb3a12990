"""AutoRanker: a sample of whole queries from every partition, and sums over partitions for what was chosen."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from ..auto.everything import Chunk
from ..auto.streams import Preparation, QuerySample, read_chunk
from .parts import Parts, as_plain, in_part, require_dask


class PartitionedRows:
    """The rows of Dask partitions, for `AutoRanker`: work is sent to where they are.

    Parameters
    ----------
    parts : Parts
    at_a_time : int
        Results that are fetched together.
    """

    def __init__(self, parts: Parts, at_a_time: int):
        self._parts, self._at_a_time = parts, at_a_time

    def sample(self, most: int, tell: Callable[[int], None] = lambda n_rows: None) -> QuerySample:
        """Every partition sends the queries that may be in the sample."""
        found = QuerySample(most)
        for part in self._map(_sample, most):
            found.merge(part)
            tell(found.n_rows)
        return found

    def over(self, prepare: Preparation, function: Callable[[Chunk], Any], skip: int = 0) -> Iterator[Any]:
        """The function of every prepared partition, in order."""
        assert skip == 0, "partitions are not resumed"
        return (one for one in self._map(_apply, (prepare, function)) if one is not None)

    def _map(self, work: Callable[..., Any], shared: Any) -> Iterator[Any]:
        dask = require_dask()
        # One object in the graph, not one copy in every task.
        shared, task = dask.delayed(shared, traverse=False), dask.delayed(work)
        calls = [task(number, shared, *one) for number, one in enumerate(self._parts.triples())]
        for first in range(0, len(calls), self._at_a_time):
            yield from dask.compute(*calls[first : first + self._at_a_time])


def fit_automatic(model: Any, parts: Parts, split_every: int) -> None:
    """Train an AutoRanker."""
    if parts.qid is None:
        raise ValueError(
            "AutoRanker on partitions samples whole queries, and there is no qid: pass it, or train RankRLSCV, which "
            "accepts a global ranking in parts."
        )
    if model.device is not None:
        raise ValueError(
            f"device={model.device!r} is a device of this process, and partitions are on workers: leave it out, or use "
            "fit_stream here."
        )
    model._fit_parts(PartitionedRows(parts, split_every))
    for name in ("cv_predictions_", "cv_folds_"):  # of the sample
        del model.__dict__[name]


def _sample(number: int, most: int, X: Any, y: Any, qid: Any) -> QuerySample:
    found = QuerySample(most)
    rows = _read(number, X, y, qid)
    if rows[1].shape[0]:
        found.add(*rows)
        found.shrink()
    return found


def _apply(number: int, work: tuple[Preparation, Callable[[Chunk], Any]], X: Any, y: Any, qid: Any) -> Any:
    prepare, function = work
    rows = _read(number, X, y, qid)
    chunk = prepare(*rows) if rows[1].shape[0] else None
    return None if chunk is None else function(chunk)


def _read(number: int, X: Any, y: Any, qid: Any) -> tuple[Any, Any, Any]:
    X, y, qid = X if _is_table(X) else as_plain(X), as_plain(y), as_plain(qid)
    if X.shape[0] == 0:
        return X, y, qid
    try:
        return read_chunk(X, y, qid)
    except (TypeError, ValueError) as error:
        raise in_part(number, error) from error


def _is_table(X: Any) -> bool:
    """Whether a partition is a data frame with non-numeric columns, which the encoder of the sample reads."""
    return hasattr(X, "columns") and any(one.kind not in "fiub" for one in X.dtypes)
