r"""S V in blocks of rows, where V itself is formed block by block and never stored.

S is the symmetric half of the Laplacian (`comparisons.queries`): it subtracts the means of queries and of tie groups.
With the rows in the order of their queries, a block that ends where a query ends needs nothing from outside. A query
that is larger than a block is cut; its mean is computed beforehand in a separate pass, so that one block of memory is
enough even for a global ranking of any size.

The operations are those of the array API standard: NumPy arrays, and arrays of other libraries on other devices.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..comparisons import Comparisons

Form = Callable[["RowBlock"], Any]


@dataclass(frozen=True)
class Segments:
    """The groups of one kind (queries, or tie groups) that a block touches.

    Attributes
    ----------
    lengths : ndarray
        Rows of each group inside the block; the rows of a group lie side by side.
    cut : list of (int, int)
        Groups that continue outside the block, by their place here and in the table of means computed beforehand.
    """

    lengths: np.ndarray
    cut: list[tuple[int, int]]


@dataclass(frozen=True)
class RowBlock:
    """Rows ``start`` to ``stop`` in sorted order.

    Attributes
    ----------
    rows : slice or ndarray of int
        The same rows in the caller's order.
    levels : list of Segments
        Queries, then tie groups; empty for plain regression.
    """

    start: int
    stop: int
    rows: Any
    levels: list[Segments]


class HalfBlocks:
    """The blocks of rows, and S on each of them.

    Parameters
    ----------
    comparisons : Comparisons
        With a symmetric half in closed form: plain regression, or all pairs within queries.
    block_rows : int
        Maximum number of rows of a block.
    xp : module
        NumPy or an array API namespace.
    put : callable
        Takes a NumPy array to an array of ``xp`` in the type of V and on its device.
    put_index : callable
        The same for integers.
    """

    def __init__(
        self,
        comparisons: Comparisons,
        block_rows: int,
        xp: Any = np,
        put: Callable[[np.ndarray], Any] = np.asarray,
        put_index: Callable[[np.ndarray], Any] = np.asarray,
    ):
        self._xp, self._put_index = xp, put_index
        groups = comparisons.half_levels()
        outer, inner = comparisons.half_factors()
        self.order = None
        if groups and np.any(groups[-1].codes[1:] < groups[-1].codes[:-1]):
            self.order = groups[-1].order
        starts = [group.starts for group in groups]
        self.blocks = self._cut(comparisons.n_rows, block_rows, starts)
        self._tables: list[Any] = []
        self._with_ties = len(groups) == 2
        self._plain = not groups
        self._inner = {power: put(self.sort(_power(inner, power))) for power in (0.5, -0.5)} if groups else {}
        self._outer = {power: put(self.sort(_power(outer, power))) for power in (0.5, -0.5)} if groups else {}
        self.target = put(self.sort(comparisons.half_target))

    def sort(self, values: np.ndarray) -> np.ndarray:
        """Values of the rows in sorted order."""
        return values if self.order is None else values[self.order]

    def _cut(self, n_rows: int, block_rows: int, starts: list[np.ndarray]) -> list[RowBlock]:
        blocks = []
        numbers: list[dict[int, int]] = [{} for _ in starts]
        self._cut_counts: list[list[int]] = [[] for _ in starts]
        start = 0
        while start < n_rows:
            stop = _last_boundary(start, min(start + block_rows, n_rows), n_rows, starts)
            levels = [
                self._segments(start, stop, ends, number, counts)
                for ends, number, counts in zip(starts, numbers, self._cut_counts, strict=True)
            ]
            rows = slice(start, stop) if self.order is None else self.order[start:stop]
            blocks.append(RowBlock(start, stop, rows, levels))
            start = stop
        return blocks

    @staticmethod
    def _segments(
        start: int, stop: int, starts: np.ndarray, numbers: dict[int, int], counts: list[int]
    ) -> Segments:
        first = int(np.searchsorted(starts, start, side="right")) - 1
        last = int(np.searchsorted(starts, stop, side="left"))
        ends = np.clip(starts[first : last + 1], start, stop)
        cut = []
        for group in sorted({first, last - 1}):
            if starts[group] < start or starts[group + 1] > stop:
                if group not in numbers:
                    numbers[group] = len(numbers)
                    counts.append(int(starts[group + 1] - starts[group]))
                cut.append((group - first, numbers[group]))
        return Segments(np.diff(ends), cut)

    def prepare(self, form: Form) -> None:
        """Sum the means of groups that no block contains whole: one pass, or none where there are no such groups."""
        self._tables = [None for _ in self._cut_counts]
        if not any(self._cut_counts):
            return
        sums: list[list[Any]] = [[None] * len(counts) for counts in self._cut_counts]
        for block in self.blocks:
            if not any(level.cut for level in block.levels):
                continue
            V = form(block)
            for level, segments in enumerate(block.levels):
                ends = np.concatenate([[0], np.cumsum(segments.lengths)])
                for place, number in segments.cut:
                    part = self._xp.sum(V[int(ends[place]) : int(ends[place + 1]), :], axis=0)
                    known = sums[level][number]
                    sums[level][number] = part if known is None else known + part
        self._tables = [
            [total / count for total, count in zip(totals, counts, strict=True)]
            for totals, counts in zip(sums, self._cut_counts, strict=True)
        ]

    def half(self, V: Any, block: RowBlock) -> Any:
        """S V on the rows of a block, V being formed there; V is overwritten. Needs `prepare` first."""
        return self._apply(V, block, 0.5)

    def _apply(self, V: Any, block: RowBlock, power: float) -> Any:
        if self._plain:
            return V
        rows = slice(block.start, block.stop)
        outer = self._outer[power][rows][:, None]
        queries = block.levels[0]
        if not self._with_ties:
            V -= self._row_means(V, queries, 0)
            V *= outer
            return V
        inner = self._inner[power][rows][:, None]
        tie_means = self._row_means(V, block.levels[1], 1)
        means = self._row_means(V, queries, 0)
        return inner * (V - tie_means) + outer * (tie_means - means)

    def _row_means(self, V: Any, segments: Segments, level: int) -> Any:
        """For each row the mean of its group."""
        if segments.lengths.shape[0] == 1:
            if segments.cut:
                return self._tables[level][segments.cut[0][1]][None, :]
            return self._xp.mean(V, axis=0, keepdims=True)
        codes = np.repeat(np.arange(segments.lengths.shape[0]), segments.lengths)
        means = segment_sums(V, segments.lengths, codes, self._xp, self._put_index)
        means /= self._xp.astype(self._put_index(segments.lengths), V.dtype)[:, None]
        for place, number in segments.cut:
            means[place, :] = self._tables[level][number]
        return self._xp.take(means, self._put_index(codes), axis=0)

    def separately(self, form: Form, *, inverse: bool = False) -> Any:
        """S V (or S⁺ V) as one array, for a V other than the one that `prepare` has summed."""
        kept = self._tables
        try:
            self.prepare(form)
            parts = [self._apply(form(block), block, -0.5 if inverse else 0.5) for block in self.blocks]
        finally:
            self._tables = kept
        return parts[0] if len(parts) == 1 else self._xp.concat(parts, axis=0)

    def halves(self, form: Form) -> Iterator[tuple[RowBlock, Any]]:
        """Each block with S V on its rows."""
        self.prepare(form)
        for block in self.blocks:
            yield block, self.half(form(block), block)


def segment_sums(V: Any, lengths: np.ndarray, codes: np.ndarray, xp: Any, put_index: Any) -> Any:
    """Sums over runs of rows, shape (len(lengths), k)."""
    if xp is np:
        return np.add.reduceat(V, np.concatenate([[0], np.cumsum(lengths)[:-1]]), axis=0)
    if hasattr(V, "index_add"):  # PyTorch
        zeros = xp.zeros((lengths.shape[0], V.shape[1]), dtype=V.dtype, device=V.device)
        return zeros.index_add_(0, put_index(codes), V)
    # The standard has no sum over segments; a product with the indicator matrix of the groups is one.
    members = xp.arange(lengths.shape[0], device=V.device)[:, None] == put_index(codes)[None, :]
    return xp.astype(members, V.dtype) @ V


def _power(values: np.ndarray, power: float) -> np.ndarray:
    """values**power; zero where nothing is compared."""
    return np.power(values, power, out=np.zeros_like(values), where=values > 0)


def _last_boundary(start: int, stop: int, n_rows: int, levels: list[np.ndarray]) -> int:
    """The last end of a query (or else of a tie group) up to ``stop``; ``stop`` where one group fills the block."""
    if stop == n_rows:
        return stop
    for starts in levels:
        last = int(starts[np.searchsorted(starts, stop, side="right") - 1])
        if last > start:
            return last
    return stop
