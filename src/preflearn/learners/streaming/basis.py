"""Basis vectors of a reduced set from a stream of unknown length.

A source that can be read twice is sampled uniformly in a first pass (reservoir sampling: every row has the same chance,
whatever the length); for one that cannot, they come from its first chunks, which is only as good as the shuffling of
the rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from numbers import Integral
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.utils import check_random_state

from ...comparisons import encode_queries
from ...kernels.functions import n_items, take_items
from ...kernels.maps import choose_basis
from ...squared.statistics import label_keys


def refuse_basis(model: Any) -> None:
    """Rows that are not all in memory can only be drawn uniformly, or named."""
    if isinstance(model.basis, str) and model.basis != "uniform":
        raise ValueError(
            f"basis={model.basis!r} needs all rows in memory: rows in chunks or partitions are drawn with "
            "basis='uniform', or named by an array of row numbers."
        )


def read_n_basis(model: Any) -> int | np.ndarray:
    """How many basis vectors, or the rows that are given to be them."""
    refuse_basis(model)
    if not isinstance(model.basis, str):
        rows = np.asarray(model.basis)
        return choose_basis(int(rows.max(initial=0)) + 1, model.n_basis, rows, None)  # type: ignore[return-value]
    if isinstance(model.n_basis, bool) or not isinstance(model.n_basis, Integral) or model.n_basis < 1:
        raise ValueError(
            f"n_basis={model.n_basis!r}: the length of a stream is not known before its end, so give the "
            "number of basis vectors as an int of at least 1."
        )
    return int(model.n_basis)


@dataclass(frozen=True)
class Basis:
    """Basis vectors.

    Attributes
    ----------
    items : array, sparse matrix or list
    indices : ndarray of shape (r,)
        Their row numbers in the stream.
    keys : ndarray of shape (r,)
        The keys of their queries (their row numbers, without queries): they leave the model with their fold.
    source : str
        How they were chosen.
    """

    items: Any
    indices: np.ndarray
    keys: np.ndarray
    source: str


class Sampler:
    """Slots for basis vectors, filled from a stream."""

    def __init__(self, size: int):
        self.size = size
        self.n_seen = 0
        self._rows: list[Any] = [None] * size
        self._indices = np.full(size, -1)
        self._keys = np.zeros(size, np.int64)

    def add(self, X: Any, qid: Any) -> None:
        """Offer the next rows."""
        slots, places = self._arriving(n_items(X))
        if slots.size:
            rows = take_items(X, places)
            for k, slot in enumerate(slots):
                self._rows[slot] = rows[[k]] if sp.issparse(rows) else rows[k]
            self._indices[slots] = self._keys[slots] = self.n_seen + places
            if qid is not None:
                queries = encode_queries(qid, n_items(X))
                assert queries.labels is not None
                self._keys[slots] = label_keys(queries.labels[queries.codes[places]])
        self.n_seen += n_items(X)

    def _arriving(self, m: int) -> tuple[np.ndarray, np.ndarray]:
        """Which slots are taken, once each, by which of the next m rows."""
        raise NotImplementedError

    def result(self, how: str) -> Basis:
        """The basis vectors, once enough rows have been offered."""
        raise NotImplementedError


class Reservoir(Sampler):
    """A uniform sample of r rows without replacement of a stream of any length.

    The draw does not depend on how the rows are cut into chunks.

    Parameters
    ----------
    size : int
    random_state : int, RandomState or None
    """

    def __init__(self, size: int, random_state: Any):
        super().__init__(size)
        self._random = check_random_state(random_state)

    def _arriving(self, m: int) -> tuple[np.ndarray, np.ndarray]:
        filling = min(m, max(0, self.size - self.n_seen))
        slots = np.concatenate([np.arange(self.n_seen, self.n_seen + filling), self._draw(filling, m)])
        places = np.flatnonzero(slots < self.size)
        # A later row takes the place of an earlier one: only the last to arrive in a slot is fetched.
        taken, last = np.unique(slots[places][::-1], return_index=True)
        return taken, places[::-1][last]

    def _draw(self, first: int, m: int) -> np.ndarray:
        """The slot that each further row would take; none where it is past the last."""
        position = self.n_seen + np.arange(first, m) + 1
        return np.floor(self._random.random_sample(position.shape[0]) * position).astype(np.int64)

    def result(self, how: str) -> Basis:
        if self.n_seen < self.size:
            raise ValueError(
                f"n_basis={self.size} is larger than the number of rows, {self.n_seen}: use at most {self.n_seen}."
            )
        order = np.argsort(self._indices)
        return Basis(_stack([self._rows[k] for k in order]), self._indices[order], self._keys[order], how)


class GivenRows(Sampler):
    """Rows named beforehand by their numbers in the stream."""

    def __init__(self, indices: np.ndarray):
        super().__init__(indices.shape[0])
        self.wanted = indices

    def _arriving(self, m: int) -> tuple[np.ndarray, np.ndarray]:
        slots = np.flatnonzero((self.wanted >= self.n_seen) & (self.wanted < self.n_seen + m))
        return slots, self.wanted[slots] - self.n_seen

    def result(self, how: str) -> Basis:
        if (self._indices < 0).any():
            raise ValueError(
                f"basis names row {self.wanted.max()}, and only rows 0 to {self.n_seen - 1} were available"
                ": the stream is shorter, or it can be read only once and the row is not in its first chunks."
            )
        return Basis(_stack(self._rows), self._indices, self._keys, "the rows given")


def sampler(wanted: int | np.ndarray, random_state: Any) -> Sampler:
    """The object that picks the basis vectors from the stream."""
    return GivenRows(wanted) if isinstance(wanted, np.ndarray) else Reservoir(wanted, random_state)


def first_chunks(chunks: Iterable[Any], wanted: int | np.ndarray) -> tuple[list[Any], Iterator[Any]]:
    """The chunks to choose from where there is only one pass, and all of them again."""
    # Ten times more rows than are drawn, if the stream has them.
    enough = 10 * wanted if isinstance(wanted, int) else int(wanted.max()) + 1
    stream, held, n_rows = iter(chunks), [], 0
    for chunk in stream:
        held.append(chunk)
        n_rows += n_items(chunk[0])
        if n_rows >= enough:
            break
    return held, chain(held, stream)


def _stack(rows: list[Any]) -> Any:
    if sp.issparse(rows[0]):
        return sp.vstack(rows, format="csr")
    return np.stack(rows) if isinstance(rows[0], np.ndarray) else rows
