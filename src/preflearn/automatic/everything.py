"""All rows, in chunks of whole queries, for members that learn from more than the rows that they were chosen on.

One fold of the sample that the choice was made on is left out: it tells how good the trained members are, and what
weights they should have.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from .._engine.core.expansion import Moments, kernel_moments
from ..comparisons import Groups
from ..kernels.functions import Kernel
from .features import Features
from .trees import Bins


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
    chunks : callable
        Starts a pass over the rows.
    n_rows : int
        About how many there are.
    fold : int
        The fold of the sample that is left out.
    """

    features: Features
    chunks: Callable[[], Iterator[Chunk]]
    n_rows: int
    fold: int

    def kernel_moments(self, kernel: Kernel, basis: np.ndarray, view: tuple[str, ...]) -> Moments:
        """Sums of kernel values (`core.expansion`) in one pass; memory for one chunk."""
        total: Moments | None = None
        for chunk in self.chunks():
            X = self.features.views(chunk.X, chunk.queries)[view]
            rows = np.arange(X.shape[0])
            part = kernel_moments(kernel, basis, X.__getitem__, chunk.y, chunk.queries, rows)
            if total is None:
                total = part
            else:
                total.add(part)  # type: ignore[arg-type]
        assert total is not None
        return total

    def binned(
        self, bins: Bins, view: tuple[str, ...], most: int
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Codes of the features (m, n), targets (m,) and the first row of each query (q + 1,), of at most about so
        many rows; a byte for each number."""
        codes, targets, sizes, n_rows = [], [], [], 0
        for chunk in self.chunks():
            X = self.features.views(chunk.X, chunk.queries)[view]
            order = chunk.queries.order
            codes.append(bins.codes_of(X[order]))
            targets.append(chunk.y[order])
            sizes.append(chunk.queries.counts)
            n_rows += X.shape[0]
            if n_rows >= most:
                break
        starts = np.concatenate([[0], np.cumsum(np.concatenate(sizes))])
        return np.concatenate(codes), np.concatenate(targets), starts
