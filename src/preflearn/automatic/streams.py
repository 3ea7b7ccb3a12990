"""A sample of whole queries from a stream, and the other rows chunk by chunk, with memory for the sample and a chunk.

A query is in the sample when the hash of its label is among the smallest: the sample depends neither on the order of
the rows nor on the size of the chunks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from .._engine.core.query_keys import KeySet, folds_of, label_keys
from .._engine.streaming.sources import Source, unpack
from ..comparisons import encode_queries
from .everything import Chunk

# Hashes of labels are numbers below this.
_PLACES = 2**62


class QuerySample:
    """Whole queries of a stream, at most about so many rows.

    Parameters
    ----------
    most : int

    Attributes
    ----------
    n_rows, n_queries : int
        Of the whole stream.

    Examples
    --------
    >>> import numpy as np
    >>> sample = QuerySample(4)
    >>> sample.add(np.arange(6.0)[:, None], np.arange(6.0), np.array([1, 1, 2, 2, 3, 3]))
    >>> sample.n_rows, sample.table()[0].shape
    (6, (4, 1))
    """

    def __init__(self, most: int):
        self._most = most
        self._parts: dict[int, tuple[int, Any, np.ndarray]] = {}  # by key: place, rows, targets
        self._held = 0
        self._seen = KeySet()
        self.n_rows = 0

    @property
    def n_queries(self) -> int:
        return len(self._seen)

    @property
    def is_everything(self) -> bool:
        """Whether no query had to be left out."""
        return self._held == self.n_rows

    def add(self, X: Any, y: np.ndarray, qid: Any) -> None:
        """The next rows, whole queries."""
        queries = encode_queries(qid, y.shape[0])
        assert queries.labels is not None
        keys = label_keys(queries.labels)
        known = self._seen.add(keys)
        if known is not None:
            label = queries.labels[np.flatnonzero(keys == known)[0]]
            raise ValueError(
                f"query {label!r} is in an earlier chunk already, and its rows are compared with each other: chunks "
                "must hold whole queries (iter_ranking cuts files that way)."
            )
        self.n_rows += y.shape[0]
        for group, (key, place) in enumerate(
            zip(keys.tolist(), folds_of(keys, _PLACES).tolist(), strict=True)
        ):
            rows = queries.rows(group)
            self._parts[key] = (place, X[rows], y[rows])
            self._held += rows.shape[0]
        self._shrink()

    def _shrink(self) -> None:
        for key in sorted(self._parts, key=lambda one: -self._parts[one][0]):
            size = self._parts[key][2].shape[0]
            if self._held <= self._most or len(self._parts) <= 2:
                return
            del self._parts[key]
            self._held -= size

    def table(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Rows, targets and the key of the query of each row."""
        kept = sorted(self._parts.items(), key=lambda one: one[1][0])
        sizes = [part[2].shape[0] for _, part in kept]
        return (
            np.concatenate([part[1] for _, part in kept]),
            np.concatenate([part[2] for _, part in kept]),
            np.repeat([key for key, _ in kept], sizes),
        )


def read_chunks(
    source: Source, read: Callable[[Any, Any], tuple[np.ndarray, np.ndarray]]
) -> Iterator[tuple[np.ndarray, np.ndarray, Any]]:
    """Rows, targets and query labels of each chunk; an error says where it is."""
    n_rows = 0
    for number, chunk in enumerate(source.open()):
        try:
            X, y, qid = unpack(chunk)
            if qid is None:
                raise ValueError(
                    "AutoRanker.fit_stream samples whole queries, and there is no qid: pass (X, y, qid), or use "
                    "RankRLSCV.fit_stream, which takes a global ranking."
                )
            rows, targets = read(X, y)
        except (TypeError, ValueError) as error:
            raise type(error)(f"Chunk {number + 1} (from row {n_rows}): {error}") from error
        n_rows += targets.shape[0]
        if n_rows:
            yield rows, targets, qid


def chunks_without_keys(
    chunks: Callable[[], Iterator[tuple[np.ndarray, np.ndarray, Any]]],
    keys: np.ndarray,
    scale: Callable[[np.ndarray], np.ndarray],
) -> Callable[[], Iterator[Chunk]]:
    """The rows of all other queries; ``scale`` is applied to the targets."""

    def start() -> Iterator[Chunk]:
        for X, y, qid in chunks():
            queries = encode_queries(qid, y.shape[0])
            assert queries.labels is not None
            kept = ~np.isin(label_keys(queries.labels), keys)[queries.codes]
            if kept.any():
                codes = queries.codes[kept]
                yield Chunk(X[kept], scale(y[kept]), encode_queries(codes, codes.shape[0]))

    return start
