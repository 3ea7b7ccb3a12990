r"""Clicks as preferences, with the position bias removed.

A click needs two things: the item is looked at, which depends on its position, and it is liked. The position-based
model says

    P(click | item i of query q at position k) = θ_k ρ_qi,

θ_k the propensity of the position, ρ_qi the relevance. An item i of a query that was shown n_ik times at position k and
clicked c_i times in all is expected to have been clicked at k

    c_i p_ik times,        p_ik = n_ik θ_k / Σ_l n_il θ_l,

whatever its relevance. θ is the solution of Σ_i c_ik = Σ_i c_i p_ik for all k, with θ = 1 for the first position: it
maximises the conditional likelihood, which is concave in log θ. The equations hold on average however few times each
item was shown. (Ratios of click rates for each pair of positions, weighted by their clicks, would be biased: pairs that
happen to have many clicks at the lower position would count more, and those with none not at all. With few sessions
that makes low positions look too good, by a factor of two.) The inverse of the second derivatives, with
Σ_i c_i (diag p_i - p_i p_iᵀ) in place of counts, gives the standard error of log θ.

A click at a position that is rarely looked at stands for many that did not happen: with weight 1 / θ_k on the pairs
"clicked over not clicked" the expected loss is that of a list in which every item is looked at.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from ...comparisons import encode_queries
from ...numerics.memory import require_memory
from ...plots import on_axes
from ...shown_tables import ShownTable, shows_itself
from .statements import Preferences

_AGAINST = ("unclicked", "all")
_NORMAL_95 = 1.96


@shows_itself
@dataclass(frozen=True, eq=False)
class Propensities:
    """How often each position is looked at, relative to the first.

    Attributes
    ----------
    positions : ndarray of int of shape (p,)
    values : ndarray of shape (p,)
        θ; 1 for the first position.
    n_clicks : ndarray of int of shape (p,)
        Clicks at each position on which the estimate is based.
    errors : ndarray of shape (p,) or None
        Standard errors of log θ; 0 for the first position. None where they are not known.
    """

    positions: np.ndarray
    values: np.ndarray
    n_clicks: np.ndarray
    errors: np.ndarray | None = None

    @property
    def intervals(self) -> np.ndarray:
        """95 % intervals of the values, shape (p, 2); NaN where errors are not known."""
        errors = np.full(self.values.shape, np.nan) if self.errors is None else self.errors
        return self.values[:, None] * np.exp(_NORMAL_95 * errors[:, None] * [-1.0, 1.0])

    def of(self, position: Any) -> np.ndarray:
        """The propensity of each of these positions.

        Raises
        ------
        ValueError
            For a position that was not estimated.
        """
        position = _positions(position)
        place = np.searchsorted(self.positions, position)
        known = self.positions[np.minimum(place, self.positions.shape[0] - 1)] == position
        if not known.all():
            wrong = int(position[~known][0])
            raise ValueError(
                f"There is no propensity for position {wrong}: estimated were positions {self.positions[0]} to "
                f"{self.positions[-1]}. Cut the lists off there."
            )
        return self.values[place]

    def __str__(self) -> str:
        lines = ["position  propensity  clicks" + ("" if self.errors is None else "  95 % interval")]
        rows = zip(self.positions, self.values, self.n_clicks, self.intervals, strict=True)
        for k, value, n, (low, high) in rows:
            interval = "" if self.errors is None else f"  {low:.3f} to {high:.3f}"
            lines.append(f"{k:8d}  {value:10.3f}  {n:6d}{interval}")
        return "\n".join(lines)

    def shown_tables(self) -> list[ShownTable]:
        known = self.errors is not None
        rows = [("position", "propensity", "clicks", *(["95 % interval"] if known else []))]
        for k, value, n, (low, high) in zip(
            self.positions, self.values, self.n_clicks, self.intervals, strict=True
        ):
            interval = [f"{low:.3f} to {high:.3f}"] if known else []
            rows.append((str(k), f"{value:.3f}", str(n), *interval))
        return [ShownTable(rows)]

    @on_axes
    def plot(self, ax: Any) -> None:
        """The propensity of each position, with its interval."""
        ax.plot(self.positions, self.values, "o-", color="C0", markersize=4)
        if self.errors is not None:
            ax.fill_between(self.positions, *self.intervals.T, color="C0", alpha=0.18, linewidth=0)
        ax.set(xlabel="position", ylabel="looked at, relative to the first", ylim=(0, None))


def position_propensities(
    position: Any, clicked: Any, *, query: Any = None, item: Any = None, randomised: bool = False
) -> Propensities:
    """Estimate how often each position is looked at.

    Parameters
    ----------
    position : array-like of int of shape (m,)
        Where each item was shown, 1 for the first.
    clicked : array-like of bool of shape (m,)
    query, item : array-like of shape (m,)
        What was asked, and what was shown. The same item of the same query at different positions allows positions to
        be compared; pass impressions of many sessions together.
    randomised : bool, default=False
        The order of the lists was drawn at random. Click rates of the positions are then the propensities, and `query`
        and `item` are not needed.

    Returns
    -------
    Propensities
        With standard errors and intervals.

    Raises
    ------
    ValueError
        If positions cannot be compared: no item was shown at both, or it was never clicked there.

    Warns
    -----
    UserWarning
        If the interval of a position exceeds 2.7 times its value: the clicks do not determine its propensity.

    Notes
    -----
    Valid where items change places for reasons unrelated to what this user would click: several rankers in turn, a
    re-trained ranker, deliberate swaps. Not valid where the order is personal, where users trust the first results
    without looking at them, or where a click ends the search (looking further down then depends on the items above).
    With one fixed order per query nothing can be estimated, by this or any other method that does not use features:
    randomise a small share of the lists, or swap neighbours in them.

    O(m log m), and about ten Newton steps of O(m + p³) operations.

    References
    ----------
    A. Agarwal et al., "Estimating position bias without intrusive interventions", WSDM 2019.

    Examples
    --------
    >>> import numpy as np
    >>> from preflearn.preferences import position_propensities
    >>> rng = np.random.default_rng(0)
    >>> item = rng.integers(0, 50, 20_000)
    >>> position = rng.integers(1, 4, 20_000)
    >>> looked_at = rng.random(20_000) < np.array([1.0, 0.5, 0.25])[position - 1]
    >>> clicked = looked_at & (rng.random(20_000) < item / 50)
    >>> position_propensities(position, clicked, query=np.zeros(20_000), item=item).values.round(1)
    array([1. , 0.5, 0.2])
    """
    position, clicked = _positions(position), _clicks(clicked)
    _same_length(position=position, clicked=clicked)
    positions, place = np.unique(position, return_inverse=True)
    if randomised:
        if query is not None or item is not None:
            raise ValueError("query and item would be ignored with randomised=True: leave them out.")
        return _from_rates(positions, place, clicked)
    if query is None or item is None:
        raise ValueError(
            "Which items were shown at several positions? Pass query= and item=, or randomised=True for lists in "
            "random order."
        )
    return _from_moves(positions, place, clicked, _keys(query, item, position.shape[0]))


def click_preferences(
    session: Any,
    clicked: Any,
    position: Any = None,
    *,
    propensities: Propensities | None = None,
    clip: float = 0.1,
    against: str = "unclicked",
) -> Preferences:
    """ "Clicked over not clicked" for each result list, weighted by one over the propensity of the clicked position.

    Parameters
    ----------
    session : array-like of shape (m,)
        The list that each row was shown in: one label for each time that a query was answered.
    clicked : array-like of bool of shape (m,)
    position : array-like of int of shape (m,), optional
        Needed with `propensities`.
    propensities : Propensities, optional
        From `position_propensities`. Without them all weights are 1, and the position bias remains.
    clip : float, default=0.1
        Lower bound of the propensities, which bounds the weights by 1 / clip at the price of some bias.
    against : {"unclicked", "all"}, default="unclicked"
        What a clicked row is preferred to: the rows of its list without a click, or all others. ``"all"`` is the
        estimator that is unbiased for any loss over pairs.

    Returns
    -------
    Preferences
        For ``fit_pairs(X, preferences.pairs, weight=preferences.weight)``.

    Raises
    ------
    ValueError
        If no list has both a row with and one without a click.

    Notes
    -----
    A list with c clicks among n rows gives c (n - c) pairs. Rows so far below the last click that nobody can have
    seen them are better left out of the data.

    References
    ----------
    T. Joachims, A. Swaminathan, T. Schnabel, "Unbiased learning-to-rank with biased feedback", WSDM 2017.

    Examples
    --------
    >>> import numpy as np
    >>> from preflearn.preferences import Propensities, click_preferences
    >>> seen = Propensities(np.array([1, 2, 3]), np.array([1.0, 0.5, 0.25]), np.array([9, 9, 9]))
    >>> found = click_preferences(["a", "a", "a"], [0, 1, 0], [1, 2, 3], propensities=seen)
    >>> found.pairs.tolist(), found.weight.tolist()
    ([[1, 0], [1, 2]], [2.0, 2.0])
    """
    clicked = _clicks(clicked)
    if against not in _AGAINST:
        raise ValueError(f"against must be 'unclicked' or 'all': found {against!r}.")
    lists = encode_queries(session, clicked.shape[0])
    weights = _weights(clicked, position, propensities, clip)
    winners = np.flatnonzero(clicked)
    sizes = lists.counts[lists.codes[winners]]
    require_memory(40 * int(sizes.sum()), f"{int(sizes.sum()):,} pairs of clicked rows and others")
    # Each winner meets every row of its list, which is contiguous in the order of the lists.
    first = np.repeat(lists.starts[lists.codes[winners]], sizes)
    step = np.arange(first.shape[0]) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    loser = lists.order[first + step]
    winner = np.repeat(winners, sizes)
    kept = winner != loser if against == "all" else ~clicked[loser]
    if not kept.any():
        raise ValueError(
            "No list has both a row with a click and one without: then clicks say nothing about the order."
        )
    return Preferences(np.column_stack([winner[kept], loser[kept]]), weight=weights[winner[kept]])


def _from_rates(positions: np.ndarray, place: np.ndarray, clicked: np.ndarray) -> Propensities:
    n_clicks = np.bincount(place, weights=clicked).astype(np.int64)
    if not n_clicks.all():
        silent = int(positions[n_clicks == 0][0])
        raise ValueError(
            f"Position {silent} has no click: its propensity cannot be estimated. Cut the lists off."
        )
    shown = np.bincount(place)
    rates = n_clicks / shown
    variances = 1.0 / n_clicks - 1.0 / shown  # of the log of a rate
    errors = np.sqrt(variances + variances[0])
    errors[0] = 0.0
    return _warn_if_uncertain(Propensities(positions, rates / rates[0], n_clicks, errors))


def _from_moves(
    positions: np.ndarray, place: np.ndarray, clicked: np.ndarray, key: np.ndarray
) -> Propensities:
    """θ from items that were shown at several positions."""
    n_positions = positions.shape[0]
    shape = (int(key.max()) + 1, n_positions)
    n_clicks = np.bincount(place, weights=clicked, minlength=n_positions)
    clicks_of_item = np.bincount(key, weights=clicked, minlength=shape[0])
    used = clicks_of_item[key] > 0  # items without a click carry no information
    shown = coo_array((np.ones(int(used.sum())), (key[used], place[used])), shape=shape).tocsr()
    clicks = coo_array((clicked[used].astype(float), (key[used], place[used])), shape=shape).tocsr()
    # Position k is compared with l by a click at k on an item that was shown at l; needed for all, in both directions.
    n_parts, part = connected_components((clicks.T @ shown) > 0, directed=True, connection="strong")
    if n_parts > 1:
        apart = positions[part != part[0]]
        raise ValueError(
            f"Position(s) {', '.join(map(str, apart[:8].tolist()))} cannot be compared with position {positions[0]}: "
            "no item of a query was shown, and clicked, at both. Swap some results on purpose, pass randomised=True "
            "for lists in random order, or cut the lists off."
        )
    values, errors = _solve(shown, clicks_of_item, n_clicks)
    return _warn_if_uncertain(Propensities(positions, values, n_clicks.astype(np.int64), errors))


def _solve(shown: Any, clicks_of_item: np.ndarray, n_clicks: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The maximum of Σ_ik c_ik log p_ik over log θ, and the standard errors of log θ, by Newton's method.

    Parameters
    ----------
    shown : sparse array of shape (items, p)
        n_ik; only rows of items with a click matter.
    clicks_of_item : ndarray of shape (items,)
    n_clicks : ndarray of shape (p,)
    """
    rows = np.flatnonzero(clicks_of_item)
    shown, c = shown[rows], clicks_of_item[rows]
    log_theta = np.zeros(n_clicks.shape[0])

    def likelihood(x: np.ndarray) -> float:
        return float(n_clicks @ x - c @ np.log(shown @ np.exp(x)))

    for _ in range(100):
        theta = np.exp(log_theta)
        P = shown.multiply(theta).multiply((1.0 / (shown @ theta))[:, None]).tocsr()
        expected = P.T @ c
        curvature = np.diag(expected) - (P.T @ P.multiply(c[:, None]).tocsr()).toarray()
        inverse = np.linalg.pinv(curvature[1:, 1:], hermitian=True)  # the first position stays at 1
        gradient = n_clicks - expected
        if np.abs(gradient).max() <= 1e-9 * n_clicks.sum():
            break
        step = np.concatenate([[0.0], inverse @ gradient[1:]])
        reached = likelihood(log_theta)
        while likelihood(log_theta + step) < reached and np.abs(step).max() > 1e-12:
            step /= 2
        log_theta = log_theta + step
    return np.exp(log_theta), np.concatenate([[0.0], np.sqrt(np.maximum(np.diag(inverse), 0.0))])


def _warn_if_uncertain(found: Propensities) -> Propensities:
    """Warn about positions whose propensity the clicks do not determine."""
    assert found.errors is not None
    # Half the width of the interval of log θ is above 1, a factor of 2.7.
    wide = np.flatnonzero(_NORMAL_95 * found.errors > 1.0)
    if wide.size:
        names = ", ".join(map(str, found.positions[wide][:8].tolist())) + (" ..." if wide.size > 8 else "")
        warnings.warn(
            f"The clicks do not determine the propensity of position(s) {names}: the 95 % interval reaches "
            f"{np.exp(_NORMAL_95 * found.errors[wide].max()):.1f} times the estimate. Use more sessions, cut the lists "
            "off, or raise clip in click_preferences.",
            UserWarning,
            stacklevel=4,
        )
    return found


def _weights(clicked: np.ndarray, position: Any, propensities: Propensities | None, clip: Any) -> np.ndarray:
    if propensities is None:
        if position is not None:
            raise ValueError("position would be ignored without propensities: pass both or none.")
        return np.ones(clicked.shape[0])
    if position is None:
        raise ValueError("propensities are those of positions: pass position= as well.")
    if not isinstance(clip, Real) or isinstance(clip, bool) or not 0 < float(clip) <= 1:
        raise ValueError(f"clip must be a number above 0 and at most 1: found {clip!r}.")
    position = _positions(position)
    _same_length(position=position, clicked=clicked)
    out = np.zeros(clicked.shape[0])
    if clicked.any():
        out[clicked] = 1.0 / np.maximum(propensities.of(position[clicked]), float(clip))
    return out


def _positions(position: Any) -> np.ndarray:
    array = np.asarray(position)
    if array.dtype.kind == "f" and np.isfinite(array).all() and (array == np.round(array)).all():
        array = array.astype(np.int64)
    if array.ndim != 1 or array.size == 0 or array.dtype.kind not in "iu" or array.min() < 1:
        smallest = f", smallest {array.min()}" if array.dtype.kind in "iuf" and array.size else ""
        raise ValueError(
            "position must hold whole numbers from 1 on, one for each row: found "
            f"type {array.dtype}, shape {array.shape}{smallest}."
        )
    return array.astype(np.int64)


def _clicks(clicked: Any) -> np.ndarray:
    array = np.asarray(clicked)
    if array.ndim != 1 or array.size == 0 or not np.isin(array, (0, 1)).all():
        raise ValueError("clicked must hold True or False (1 or 0), one for each row.")
    return array.astype(bool)


def _same_length(**arrays: np.ndarray) -> None:
    lengths = {name: array.shape[0] for name, array in arrays.items()}
    if len(set(lengths.values())) > 1:
        raise ValueError(
            "One value for each row is expected: "
            + ", ".join(f"{name} has {n}" for name, n in lengths.items())
            + "."
        )


def _keys(query: Any, item: Any, n_rows: int) -> np.ndarray:
    """A number for each item of each query."""
    queries, items = encode_queries(query, n_rows), encode_queries(item, n_rows)
    return np.unique(queries.codes * items.n_groups + items.codes, return_inverse=True)[1]
