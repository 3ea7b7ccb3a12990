"""All rows, in chunks of whole queries, for members that learn from more than the rows that they were chosen on.

One fold of the sample that the choice was made on is left out: it tells how good the trained members are, and what
weights they should have.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from ..comparisons import Groups, encode_queries
from ..kernels.functions import Kernel
from ..squared.curves import Curves
from ..squared.devices.expansion import DeviceExpansions
from ..squared.expansion import Moments, kernel_moments
from ._loops.boosting import in_blocks
from .features import Features, Views
from .trees import Bins

# Rows that trees learn from at most, drawn as whole queries: they keep a byte of each number in memory. Kernels learn
# from fewer of them: their basis vectors limit what more rows could teach (benchmarks/rows_needed.py).
MOST_ROWS = 2_000_000
MOST_KERNEL_ROWS = 500_000
# Processor seconds of a pass over a row of 46 features, without what is done with those that are taken.
SECONDS_A_ROW_READ = 2e-6


def most_rows(*, is_kernel: bool = False) -> int:
    """Rows that a kernel, or another member, learns from at most."""
    return min(MOST_ROWS, MOST_KERNEL_ROWS) if is_kernel else MOST_ROWS


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


class Binned(NamedTuple):
    """What boosted trees learn from, the rows of a query side by side.

    Attributes
    ----------
    codes : uint8 array of shape (blocks, m, 16)
        Of the features (`in_blocks`).
    targets : ndarray of shape (m,)
    starts : ndarray of int of shape (q + 1,)
        The first row of each query.
    begun : ndarray of shape (m,)
        Scores that the trees add to.
    """

    codes: np.ndarray
    targets: np.ndarray
    starts: np.ndarray
    begun: np.ndarray


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

    def n_learned(self, *, is_kernel: bool = False) -> int:
        """About how many of the rows a member learns from."""
        return min(self.n_rows, most_rows(is_kernel=is_kernel))

    def kernel_moments(
        self, kernel: Kernel, basis: np.ndarray, curves: Curves | None, view: tuple[str, ...]
    ) -> Moments:
        """Sums of kernel values and curves (`squared.expansion`) in one pass; memory for one chunk.

        Of more than `MOST_KERNEL_ROWS` rows about that many are taken, among those that trees learn from.
        """
        for draw in self._draws(most_rows(is_kernel=True)):
            work = partial(_moments_of, self.features, kernel, basis, curves, view, self.device, draw)
            total = self._sum_up(work)
            if total is not None:
                break
        return total

    def _sum_up(self, work: Callable[[Chunk], Moments | None]) -> Any:
        """The sum over all chunks; None where nothing is taken from any."""
        total: Any
        total, n_chunks = self.sums.begin()
        for part in self.over(work, n_chunks):
            n_chunks += 1
            if part is None:  # nothing is taken from this chunk
                continue
            if total is None:
                total = part
            else:
                self.sums.changing()
                total.add(part)
            self.sums.note(total, n_chunks)
        return total

    def _draws(self, most: int) -> list[_Draw]:
        """What is taken, and what instead where that is nothing, as may be with a few large queries."""
        return [_Draw(share, self.is_global) for share in (min(1.0, most / max(1, self.n_rows)), 1.0)]

    def binned(
        self, bins: Bins, view: tuple[str, ...], scores: Callable[[Views], np.ndarray] | None = None
    ) -> Binned:
        """What trees learn from, a byte for each number.

        Of more than `MOST_ROWS` rows about that many are taken: whole queries, spread over all of them, whatever the
        chunks are.

        Parameters
        ----------
        bins : Bins
        view : tuple of str
        scores : callable, optional
            What trees are to correct, from views of some rows; nothing by default.
        """
        for draw in self._draws(most_rows()):
            work = partial(_binned, self.features, bins, view, scores, draw)
            parts = [part for part in self.over(work) if part is not None]
            if parts:
                break
        codes, targets, sizes, begun = (list(one) for one in zip(*parts, strict=True))
        del parts
        starts = np.concatenate([[0], np.cumsum(np.concatenate(sizes))])
        return Binned(np.concatenate(codes, axis=1), np.concatenate(targets), starts, np.concatenate(begun))


def _moments_of(
    features: Features,
    kernel: Kernel,
    basis: np.ndarray,
    curves: Curves | None,
    view: tuple[str, ...],
    device: DeviceExpansions | None,
    draw: _Draw,
    chunk: Chunk,
) -> Moments | None:
    taken = draw(chunk)
    if taken is None:
        return None
    X = features.views(taken.X, taken.queries)[view]
    sum_up = kernel_moments if device is None else device.kernel_moments
    rows = np.arange(X.shape[0])
    return sum_up(
        kernel, basis, X.__getitem__, taken.y, taken.queries, rows, is_global=draw.is_global, curves=curves
    )


def _binned(
    features: Features,
    bins: Bins,
    view: tuple[str, ...],
    scores: Callable[[Views], np.ndarray] | None,
    draw: _Draw,
    chunk: Chunk,
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray] | None:
    taken = draw(chunk)
    if taken is None:
        return None
    rows, views = taken.queries.order, features.views(taken.X, taken.queries)
    begun = np.zeros(rows.shape[0]) if scores is None else scores(views)[rows]
    return in_blocks(bins.codes_of(views[view][rows])), taken.y[rows], taken.queries.counts, begun


@dataclass(frozen=True)
class _Draw:
    """Takes a share of the rows, the same ones whatever the chunks are: by a hash of what they hold.

    Of equal rows, or queries, of a chunk the share is taken; which ones these are does not matter.

    Attributes
    ----------
    share : float
    is_global : bool
        Whether all rows are one ranking, of which any may be taken; otherwise whole queries are.
    """

    share: float
    is_global: bool

    def __call__(self, chunk: Chunk) -> Chunk | None:
        """None where nothing is taken."""
        if self.share >= 1.0:
            return chunk
        rows = np.flatnonzero(self._is_taken(chunk))
        if not rows.size:
            return None
        codes = chunk.queries.codes[rows]
        return Chunk(chunk.X[rows], chunk.y[rows], encode_queries(codes, rows.shape[0]))

    def _is_taken(self, chunk: Chunk) -> np.ndarray:
        odd = np.random.default_rng(0).integers(2**63, size=chunk.X.shape[1], dtype=np.uint64)
        odd = odd * np.uint64(2) + np.uint64(1)
        bits = np.ascontiguousarray(chunk.X, dtype=np.float64).view(np.uint64)
        # A product spreads bits upwards only: sign and exponent, all that tells 1 from -1 or 2, are put at the low end.
        keys = (bits.byteswap() * odd).sum(axis=1, dtype=np.uint64)
        if not self.is_global:  # the order of the rows of a query does not matter
            keys = np.add.reduceat(_mixed(keys)[chunk.queries.order], chunk.queries.starts[:-1])
        taken = _mixed(_told_apart(keys)) >> np.uint64(11) < np.uint64(self.share * 2.0**53)
        return taken if self.is_global else taken[chunk.queries.codes]


def _told_apart(keys: np.ndarray) -> np.ndarray:
    """The keys, with another one for the second, third, ... of those that are equal."""
    order = np.argsort(keys, kind="stable")
    places, ordered = np.arange(keys.shape[0]), keys[order]
    first = np.append(True, ordered[1:] != ordered[:-1])
    number = places - np.maximum.accumulate(np.where(first, places, 0))
    out = np.empty_like(keys)
    out[order] = ordered + number.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    return out


def _mixed(keys: np.ndarray) -> np.ndarray:
    """Bits that look random (the finaliser of splitmix64)."""
    keys = (keys ^ (keys >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    keys = (keys ^ (keys >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return keys ^ (keys >> np.uint64(31))
