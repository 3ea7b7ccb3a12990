"""All rows, in chunks of whole queries, for members that learn from more than the rows that they were chosen on.

One fold of the sample that the choice was made on is left out: it tells how good the trained members are, and what
weights they should have.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from .._engine.arrays.expansion import DeviceExpansions
from .._engine.core.expansion import Moments, kernel_moments
from ..comparisons import Groups
from ..kernels.functions import Kernel
from .features import Features
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
    """

    features: Features
    over: Callable[..., Iterator[Any]]
    n_rows: int
    fold: int
    sums: Sums = Sums()
    device: DeviceExpansions | None = None

    def kernel_moments(self, kernel: Kernel, basis: np.ndarray, view: tuple[str, ...]) -> Moments:
        """Sums of kernel values (`core.expansion`) in one pass; memory for one chunk."""
        work = partial(_moments_of, self.features, kernel, basis, view, self.device)
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
        """Codes of the features (m, n), targets (m,) and the first row of each query (q + 1,).

        Of at most about so many rows; a byte for each number.
        """
        codes, targets, sizes, n_rows = [], [], [], 0
        for part in self.over(partial(_binned, self.features, bins, view)):
            codes.append(part[0])
            targets.append(part[1])
            sizes.append(part[2])
            n_rows += part[1].shape[0]
            if n_rows >= most:
                break
        starts = np.concatenate([[0], np.cumsum(np.concatenate(sizes))])
        return np.concatenate(codes), np.concatenate(targets), starts


def _moments_of(
    features: Features,
    kernel: Kernel,
    basis: np.ndarray,
    view: tuple[str, ...],
    device: DeviceExpansions | None,
    chunk: Chunk,
) -> Moments:
    X = features.views(chunk.X, chunk.queries)[view]
    sum_up = kernel_moments if device is None else device.kernel_moments
    return sum_up(kernel, basis, X.__getitem__, chunk.y, chunk.queries, np.arange(X.shape[0]))


def _binned(
    features: Features, bins: Bins, view: tuple[str, ...], chunk: Chunk
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    order = chunk.queries.order
    X = features.views(chunk.X, chunk.queries)[view]
    return bins.codes_of(X[order]), chunk.y[order], chunk.queries.counts
