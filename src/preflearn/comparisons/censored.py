r"""Times of which some are only known to be longer: i is compared with those who outlived it.

Row i has a time t_i and e_i = 1 if its event was seen then, 0 if it was still to come (a censored time). Row j outlived
row i if e_i = 1 and t_i < t_j, or t_i = t_j and j is censored. Let R_i be the rows of the query (stratum) that outlived
row i, w the weights of the rows (1), κ the factor of the query, ω_i the weight of an event (1, or Uno's 1 / G(t_i)²)
and o_i = κ e_i ω_i w_i. A pair counts o_i w_j, and f_j - f_i should be 1.

**A factor of L in O(m).** With W_i and μ_i the weight and the mean of f over R_i,

    Σ_{j in R_i} w_j (f_j - f_i - 1)² = W_i (f_i - μ_i + 1)² + Σ_{j in R_i} w_j (f_j - μ_i)²,

and a sum of squares about a mean grows with each row p that joins the rows after it (weight W⁺_p, mean μ⁺_p) by
w_p W⁺_p / (w_p + W⁺_p) (f_p - μ⁺_p)². The sets R_i are nested: sorted by time, events before the censored rows of the
same time, each is a tail of its query. So

    loss = Σ_p o_p W_p (f_p - μ_p + 1)² + Σ_p E_p w_p W⁺_p / (w_p + W⁺_p) (f_p - μ⁺_p)² + const,

with E_p the sum of o over the rows that p outlived. For a row without an event of the same time behind it μ_p = μ⁺_p,
and the two squares are one. L = F Fᵀ with a row √c (f_p - mean) of Fᵀ f for each square: one pass from the last row to
the first, in blocks if need be, without a difference of large sums.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import scipy.sparse as sp

from .base import Comparisons, Removal, drop_from_blocks, parts_change_weight
from .grouping import Groups, centred, query_weights


class CensoredComparisons(Comparisons):
    """Each row whose event was seen, compared with every row of its query that outlived it.

    Parameters
    ----------
    scores : ndarray of shape (m, 1)
        Times.
    events : ndarray of bool, shape (m,)
        Whether the event was seen at that time; otherwise it was still to come.
    queries : Groups
        Strata: rows are compared inside them.
    weighting : {"pair", "item", "query"}
    weights : None or "ipcw"
        With "ipcw" the pairs of an event at time t count 1 / G(t)², G being the Kaplan-Meier estimate in the query of
        the probability that a row is not censored by then (Uno's weights).
    row_weights : ndarray of shape (m,), optional
        A pair counts with the product of the weights of its rows.

    Notes
    -----
    O(m log m) once, then O(m) for each column of L @ V; no pair is formed. References: Harrell et al., "Evaluating the
    yield of medical tests", JAMA 247 (1982), for the pairs; Uno et al., Statistics in Medicine 30 (2011), for the
    weights.

    Examples
    --------
    >>> import numpy as np
    >>> from preflearn.comparisons import CensoredComparisons, one_group
    >>> died = np.array([True, False, True])
    >>> CensoredComparisons(np.array([[2.0], [3.0], [5.0]]), died, one_group(3)).target.ravel()
    array([-2.,  1.,  1.])
    """

    has_factor = True
    factors_in_blocks = True
    drops_densely = True

    queries: Groups

    def __init__(
        self,
        scores: np.ndarray,
        events: np.ndarray,
        queries: Groups,
        *,
        weighting: str = "pair",
        weights: str | None = None,
        row_weights: np.ndarray | None = None,
    ):
        self.n_rows, self.scores, self.events = scores.shape[0], scores, events
        self.queries, self.row_weights, self.weighting, self.weights = (
            queries,
            row_weights,
            weighting,
            weights,
        )
        self._order, self._first, self._last = sorted_times(scores[:, 0], events, queries)
        m, codes = self.n_rows, queries.codes[self._order]
        self._start, self._stop = queries.starts[codes], queries.starts[codes + 1]
        self._is_last = np.arange(1, m + 1) == self._stop
        self._w = w = np.ones(m) if row_weights is None else row_weights[self._order].astype(float)
        event = w * events[self._order]
        if weights is not None:
            event *= censoring_weights(scores[:, 0], events, queries)[self._order] ** 2
        outlived_by = self._later(w)
        n_pairs = np.bincount(codes, (event > 0) * self._later(1.0 * (w > 0)), queries.n_groups)
        self.n_comparisons = int(n_pairs.sum())
        of_queries = np.bincount(codes, event * outlived_by, queries.n_groups)
        factors = query_weights(weighting, np.bincount(codes, w, queries.n_groups), of_queries)
        self._total_weight = float(factors @ of_queries)
        self._event = event = event * factors[codes]
        outlived = self._earlier(event)
        self._degree = event * outlived_by + w * outlived
        self.target = self._by_row(w * outlived - event * outlived_by)[:, None]
        # The squares about means: those of a row among the rows behind it, and those of events with others of the same
        # time behind them.
        sums = _sums_before(w)
        self._after = sums[self._stop] - sums[1:]
        own, total = event * outlived_by, w + self._after
        joins = np.divide(outlived * w * self._after, total, out=np.zeros(m), where=total > 0)
        self._apart = self._last > np.arange(m) + 1
        together = np.where(self._apart, 0.0, own)
        self._main, self._extra = np.sqrt(joins + together), np.sqrt(own - together)
        self._main_target = -np.divide(together, self._main, out=np.zeros(m), where=self._main > 0)

    @property
    def event_weights(self) -> np.ndarray:
        """o: what a pair of an event counts, apart from the weight of the other row; 0 for censored rows. Shape "
        "(m,)."""
        return self._by_row(self._event)

    def laplacian(self, V: np.ndarray) -> np.ndarray:
        # Sums over rows of one time and later ones; what a query has in common is subtracted before, so that its size
        # does not matter.
        Z = centred(V.reshape(self.n_rows, -1).astype(np.float64, copy=False), self.queries)[0][self._order]
        out = self._degree[:, None] * Z
        out -= self._event[:, None] * self._later(self._w[:, None] * Z)
        out -= self._w[:, None] * self._earlier(self._event[:, None] * Z)
        return self._by_row(out).astype(V.dtype, copy=False).reshape(V.shape)

    def _later(self, x: np.ndarray) -> np.ndarray:
        """Sums of x over the rows that outlived an event, all in sorted order."""
        sums = _sums_before(x)
        return sums[self._stop] - sums[self._last]

    def _earlier(self, x: np.ndarray) -> np.ndarray:
        """Sums of x, which is 0 without an event, over the rows that each row outlived."""
        sums = _sums_before(x)
        return sums[self._first] - sums[self._start]

    def _by_row(self, values: np.ndarray) -> np.ndarray:
        """Values in sorted order, in the order of the rows."""
        out = np.empty_like(values)
        out[self._order] = values
        return out

    def factor_blocks(
        self, form: Callable[[np.ndarray], np.ndarray], n_rows: int
    ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        from ._loops import about_later_means

        state = None
        for stop in range(self.n_rows, 0, -n_rows):
            here = slice(max(stop - n_rows, 0), stop)
            V = np.ascontiguousarray(form(self._order[here]))
            state = np.zeros((2, V.shape[1])) if state is None else state
            extra = np.flatnonzero(self._extra[here])
            T = np.empty((V.shape[0] + extra.shape[0], V.shape[1]), dtype=V.dtype)
            t = np.concatenate([self._main_target[here], -self._extra[here][extra]])
            about_later_means(
                V,
                self._w[here],
                self._after[here],
                self._main[here],
                self._extra[here],
                self._apart[here],
                self._is_last[here],
                state,
                T,
            )
            yield T, t[:, None]

    def blocks(self, V: np.ndarray, n_rows: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        for T, _ in self.factor_blocks(V.__getitem__, n_rows):
            yield T, T

    def least_squares(self, V: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        T, t = zip(*self.factor_blocks(V.__getitem__, max(self.n_rows, 1)), strict=True)
        return T[0], t[0]

    def squared_targets(self) -> np.ndarray:
        return np.array([self._total_weight])

    def total_weight(self) -> float:
        return self._total_weight

    def diagonal(self) -> np.ndarray:
        return self._by_row(self._degree)

    def indicators(self) -> list[tuple[sp.csr_array, np.ndarray]]:
        # With a over events of one half of a run of times and c over the rows of the other, later half, the pairs
        # between the halves are -(a cᵀ + c aᵀ) = a aᵀ + c cᵀ - (a + c)(a + c)ᵀ. Halving the runs covers every pair
        # once.
        m, codes = self.n_rows, self.queries.codes[self._order]
        unit = np.arange(m) - self._start
        unit = unit[self._first]  # events of the same time stay together
        rows, columns, values, signs, n_columns = [], [], [], [], 0
        for level in range(int(unit.max(initial=0)).bit_length()):
            half = (unit >> level) & 1 == 1
            node = np.unique(codes * m + (unit >> (level + 1)), return_inverse=True)[1]
            width = int(node.max()) + 1
            sides = np.where(half, self._w, self._event)
            for part, sign in ((~half, 1.0), (half, 1.0), (np.ones(m, dtype=bool), -1.0)):
                here = np.flatnonzero(part & (sides > 0))
                rows.append(self._order[here])
                columns.append(node[here] + n_columns)
                values.append(sides[here])
                signs.append(np.full(width, sign))
                n_columns += width
        degrees = sp.eye_array(m, format="csr"), self.diagonal()
        if not rows:
            return [degrees]
        at = (np.concatenate(rows), np.concatenate(columns))
        E = sp.csr_array((np.concatenate(values), at), shape=(m, n_columns))
        return [degrees, (E, np.concatenate(signs))]

    def take(self, rows: np.ndarray) -> CensoredComparisons:
        kept, codes = np.unique(self.queries.codes[rows], return_inverse=True)
        return CensoredComparisons(
            self.scores[rows],
            self.events[rows],
            Groups(codes.astype(np.int64), kept.shape[0]),
            weighting=self.weighting,
            weights=self.weights,
            row_weights=None if self.row_weights is None else self.row_weights[rows],
        )

    @property
    def whole_queries_only(self) -> bool:
        return parts_change_weight(self.queries, self.weighting)

    def drop(self, rows: np.ndarray) -> Removal:
        return drop_from_blocks(self, rows, self.queries)


def _sums_before(x: np.ndarray) -> np.ndarray:
    """Sums of the first 0, 1, ..., m rows, shape (m + 1, ...)."""
    sums = np.zeros((x.shape[0] + 1, *x.shape[1:]))
    np.cumsum(x, axis=0, out=sums[1:])
    return sums


def sorted_times(
    times: np.ndarray, events: np.ndarray, queries: Groups
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The rows by query, then time, events before the censored rows of a time; and who outlived whom in this order.

    Returns
    -------
    order : ndarray of shape (m,)
    first, last : ndarrays of shape (m,)
        For each place: it outlived the events of its query before ``first``, and an event was outlived by the rows of
        its query from ``last`` on. Between them are events of the same time.
    """
    keys = lived_longer(times, events)
    keys += queries.codes * (2 * times.shape[0])
    order = np.argsort(keys)
    keys, e = keys[order], events[order]
    new = np.ones(order.shape[0], dtype=bool)
    new[1:] = (keys[1:] != keys[:-1]) | ~e[1:]
    starts = np.flatnonzero(new)
    run = np.cumsum(new) - 1
    return order, starts[run], np.append(starts[1:], order.shape[0])[run]


def lived_longer(times: np.ndarray, events: np.ndarray) -> np.ndarray:
    """Whole numbers, the larger the longer a row is known to have lived: of a time first its events, then the rest.

    Shape (m,), int64, below 2 m; events of the same time are equal. O(m log m).
    """
    return 2 * levels_of(times) + ~events


def levels_of(values: np.ndarray) -> np.ndarray:
    """For each value the number of different ones below it, shape (m,), int64. O(m log m)."""
    order = np.argsort(values)
    ascending = values[order]
    new = np.zeros(order.shape[0], dtype=np.int64)
    new[1:] = ascending[1:] != ascending[:-1]
    out = np.empty_like(new)
    out[order] = np.cumsum(new)
    return out


def censoring_weights(times: np.ndarray, events: np.ndarray, queries: Groups) -> np.ndarray:
    """1 / G(t) for each event and 0 for censored rows, G the Kaplan-Meier estimate of the censoring in each query.

    A row with an event at some time was not at risk of being censored then.

    Raises
    ------
    ValueError
        If G is zero at the time of an event that other rows outlived.
    """
    order = sorted_times(times, events, queries)[0]
    e, codes, t = events[order], queries.codes[order], times[order]
    m, stop = t.shape[0], queries.starts[codes + 1]
    # Each censored row leaves those at risk, itself and the rows behind it, so that d of n rows of one time leave
    # together with the factor (n - 1) / n · (n - 2) / (n - 1) · ... = (n - d) / n.
    left = stop - np.arange(m) - 1
    sums = _sums_before(np.where(e | (left == 0), 0.0, np.log(np.maximum(left, 1) / (left + 1))))
    new = np.ones(m, dtype=bool)
    new[1:] = (t[1:] != t[:-1]) | (codes[1:] != codes[:-1])
    ends = np.append(np.flatnonzero(new)[1:], m)[np.cumsum(new) - 1]
    zero = e & (ends == stop) & ~e[stop - 1]
    if zero.any():
        raise ValueError(
            f"Weights 'ipcw' are not defined: every row that lived to the time {t[zero][0]:g} of an event was "
            "censored at that time. Leave out rows censored at the last time, or use no weights."
        )
    out = np.zeros(m)
    out[order[e]] = np.exp((sums[queries.starts[codes]] - sums[ends])[e])
    return out
