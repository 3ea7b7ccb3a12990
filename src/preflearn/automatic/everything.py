"""All rows, in chunks of whole queries, for members that learn from more than the rows that they were chosen on.

One fold of the sample that the choice was made on is left out: it tells how good the trained members are, and what
weights they should have.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from .._engine.arrays.expansion import DeviceExpansions
from .._engine.core.curves import Curves
from .._engine.core.expansion import Moments, kernel_moments
from .._engine.loops.boosting import in_blocks
from ..comparisons import Groups
from ..kernels.functions import Kernel
from .features import OF_QUERY, Features
from .trees import Bins


class Sums:
    """Where sums over chunks begin, and what hears of them: here at nothing, and nobody."""

    def begin(self) -> tuple[Moments | None, int]:
        """Sums of the first chunks, and how many these are."""
        return None, 0

    def changing(self) -> None:
        """Sums are between two states until the next note."""

    def note(self, total: Moments, n_chunks: int) -> None:
        """Another chunk has been added."""


@dataclass(frozen=True)
class Chunk:
    """Rows of whole queries.

    Attributes
    ----------
    X : ndarray of shape (m, n)
        As `Features` was fitted on.
    y : ndarray of shape (m,)
    queries : Groups
    """

    X: np.ndarray
    y: np.ndarray
    queries: Groups


@dataclass(frozen=True)
class Everything:
    """The rows outside of one fold.

    Attributes
    ----------
    features : Features
    over : callable
        Applies a function to every chunk, one pass over the rows, wherever they are; yields the results in order. A
        second argument is the number of chunks that are left out, the first ones.
    n_rows : int
        About how many there are.
    fold : int
        The fold of the sample that is left out.
    sums : Sums
    device : DeviceExpansions or None
        Where kernels are evaluated; None for the processor.
    is_global : bool
        Whether all rows are one ranking.
    """

    features: Features
    over: Callable[..., Iterator[Any]]
    n_rows: int
    fold: int
    sums: Sums = Sums()
    device: DeviceExpansions | None = None
    is_global: bool = False

    def with_targets(self, retarget: Callable[[np.ndarray], np.ndarray]) -> Everything:
        """The same rows with other targets."""
        return replace(self, over=partial(_over, self.over, retarget))

    def kernel_moments(
        self, kernel: Kernel, basis: np.ndarray, curves: Curves | None, view: tuple[str, ...]
    ) -> Moments:
        """Sums of kernel values and curves (`core.expansion`) in one pass; memory for one chunk."""
        work = partial(_moments_of, self.features, kernel, basis, curves, view, self.device, self.is_global)
        total: Any
        total, n_chunks = self.sums.begin()
        for part in self.over(work, n_chunks):
            if total is None:
                total = part
            else:
                self.sums.changing()
                total.add(part)
            n_chunks += 1
            self.sums.note(total, n_chunks)
        return total

    def binned(
        self, bins: Bins, view: tuple[str, ...], most: int
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Codes of the features in blocks (`in_blocks`), targets (m,) and the first row of each query (q + 1,).

        A byte for each number. Of more than ``most`` rows about that many are taken: whole queries, spread over all of
        them, whatever the chunks are.
        """
        share = min(1.0, most / max(1, self.n_rows))
        parts = list(self.over(partial(_binned, self.features, bins, view, share)))
        codes, targets, sizes = (list(one) for one in zip(*parts, strict=True))
        del parts
        starts = np.concatenate([[0], np.cumsum(np.concatenate(sizes))])
        return np.concatenate(codes, axis=1), np.concatenate(targets), starts


def _over(
    over: Callable[..., Iterator[Any]],
    retarget: Callable[[np.ndarray], np.ndarray],
    work: Callable[[Chunk], Any],
    *left_out: int,
) -> Iterator[Any]:
    return over(partial(_with_targets, work, retarget), *left_out)


def _with_targets(
    work: Callable[[Chunk], Any], retarget: Callable[[np.ndarray], np.ndarray], chunk: Chunk
) -> Any:
    return work(replace(chunk, y=retarget(chunk.y)))


def _moments_of(
    features: Features,
    kernel: Kernel,
    basis: np.ndarray,
    curves: Curves | None,
    view: tuple[str, ...],
    device: DeviceExpansions | None,
    is_global: bool,
    chunk: Chunk,
) -> Moments:
    X = features.views(chunk.X, chunk.queries)[view]
    sum_up = kernel_moments if device is None else device.kernel_moments
    rows = np.arange(X.shape[0])
    return sum_up(
        kernel, basis, X.__getitem__, chunk.y, chunk.queries, rows, is_global=is_global, curves=curves
    )


def _binned(
    features: Features, bins: Bins, view: tuple[str, ...], share: float, chunk: Chunk
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rows, queries = chunk.queries.order, chunk.queries
    # Without queries, the rows are those of a single one, of which any may be taken.
    taken = _drawn(chunk, share, whole=any(name in OF_QUERY for name in view))[rows]
    X = features.views(chunk.X, queries)[view]
    counts = np.add.reduceat(taken, queries.starts[:-1], dtype=np.int64)
    rows = rows[taken]
    return in_blocks(bins.codes_of(X[rows])), chunk.y[rows], counts[counts > 0]


def _drawn(chunk: Chunk, share: float, *, whole: bool) -> np.ndarray:
    """Which rows are taken, shape (m,): whole queries or single rows, by a hash of what they hold."""
    m, n = chunk.X.shape
    if share >= 1.0:
        return np.ones(m, dtype=bool)
    odd = np.random.default_rng(0).integers(2**63, size=n, dtype=np.uint64) * np.uint64(2) + np.uint64(1)
    keys = (np.ascontiguousarray(chunk.X, dtype=np.float64).view(np.uint64) * odd).sum(
        axis=1, dtype=np.uint64
    )
    if whole:  # the order of the rows of a query does not matter
        sums = np.add.reduceat(_mixed(keys)[chunk.queries.order], chunk.queries.starts[:-1])
        keys = sums[chunk.queries.codes]
    return _mixed(keys) >> np.uint64(11) < np.uint64(share * 2.0**53)


def _mixed(keys: np.ndarray) -> np.ndarray:
    """Bits that look random (the finaliser of splitmix64)."""
    keys = (keys ^ (keys >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    keys = (keys ^ (keys >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return keys ^ (keys >> np.uint64(31))
