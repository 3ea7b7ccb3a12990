r"""The grid of alphas, and the choice of one: ties go to the stronger regularisation, the edge of a grid warns.

The automatic grid of a squared loss is placed by the spectrum: with Λ the largest eigenvalue of what alpha is added to,
alpha = 2⁻²⁷ Λ, ..., 2³ Λ. Below it nothing is regularised beyond rounding, above it nothing is learned.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from .._engine.numerics.namespace import as_host

_AUTO_POWERS = np.arange(-27, 4)
# Iterations go with the square root of Λ / alpha: what is below takes thousands, and is seldom best for this many rows.
_ITERATED_POWERS = np.arange(-15, 4)
# Where only refitting is possible the spectrum is not known.
BLIND_GRID = 2.0 ** np.arange(-15, 16, 3)
# Scores that differ by no more are equal.
_SAME_SCORE = 1e-12


def auto_grid(largest: float, *, iterated: bool = False) -> np.ndarray:
    """The automatic alphas for this largest eigenvalue of what alpha is added to; fewer where solved by iterations."""
    if not largest > 0:
        return BLIND_GRID
    return 2.0 ** (np.round(np.log2(largest)) + (_ITERATED_POWERS if iterated else _AUTO_POWERS))


def count_alphas(values: Any) -> int:
    """How many alphas these are, before the grid is placed."""
    if values is None:
        return 1
    return _AUTO_POWERS.shape[0] if isinstance(values, str) else int(np.size(as_host(values)))


def spread_of(values: Any, own: Any, largest: float) -> float:
    """The largest eigenvalue beside the smallest of these alphas, before the grid is read; ``own`` stands for None."""
    if isinstance(values, str):
        return float(2.0 ** -_ITERATED_POWERS[0])
    least = np.min(np.asarray(as_host(own if values is None else values), dtype=float), initial=np.inf)
    return 1.0 + largest / float(least) if least > 0 else np.inf


def read_grid(
    values: Any, automatic: np.ndarray | Callable[[], np.ndarray], *, name: str = "alphas", zero: bool = False
) -> np.ndarray:
    """Read ``alphas``, or the grid of another parameter.

    Parameters
    ----------
    values : "auto", a number or a sequence of numbers
    automatic : ndarray, or callable that returns one
        What "auto" stands for.
    name : str
        For messages.
    zero : bool
        Whether 0 is allowed.

    Returns
    -------
    ndarray of shape (a,)

    Raises
    ------
    ValueError
        If a value is not a positive number, or there is none.
    """
    allowed = "numbers >= 0" if zero else "positive numbers"
    if isinstance(values, str):
        if values != "auto":
            raise ValueError(f"{name} must be 'auto' or a sequence of {allowed}: found {values!r}.")
        return automatic() if callable(automatic) else automatic
    try:
        grid = np.atleast_1d(np.asarray(as_host(values), dtype=np.float64))
    except (TypeError, ValueError):
        grid = np.empty(0)
    fine = grid.ndim == 1 and grid.size > 0 and np.isfinite(grid).all()
    if not fine or (grid < 0).any() or (not zero and (grid == 0).any()):
        raise ValueError(f"{name} must be 'auto' or a non-empty sequence of {allowed}: found {values!r}.")
    return grid


def choose(scores: np.ndarray, *grids: np.ndarray) -> tuple[int, ...]:
    """The place of the best score; of equally good ones that with the largest alpha, then the largest next parameter.

    Parameters
    ----------
    scores : ndarray of shape (a, ...)
    *grids : ndarray
        The values along the axes, alphas first. Axes without a grid break no tie.

    Raises
    ------
    ValueError
        If no score is defined.

    Examples
    --------
    >>> import numpy as np
    >>> choose(np.array([0.8, 0.9, 0.9]), np.array([1.0, 10.0, 100.0]))
    (2,)
    """
    if np.isnan(scores).all():
        raise ValueError(
            "No alpha could be scored: every held-out measure is undefined. Check qid, y and cv."
        )
    best = np.argwhere(scores >= np.nanmax(scores) - _SAME_SCORE)
    place = max(best.tolist(), key=lambda at: tuple(grid[k] for grid, k in zip(grids, at, strict=False)))
    return tuple(place)


def warn_at_edge(alphas: np.ndarray, scores: np.ndarray, choice: int, *, stacklevel: int = 2) -> None:
    """Warn when the chosen alpha is the smallest or largest of several, unless all are equally good.

    Parameters
    ----------
    alphas, scores : ndarray of shape (a,)
    choice : int
    stacklevel : int
        As in ``warnings.warn``, seen from the caller.
    """
    n = alphas.shape[0]
    place = int(np.flatnonzero(np.argsort(alphas) == choice)[0])
    if n < 2 or 0 < place < n - 1 or np.ptp(scores) == 0:
        return
    end, direction = ("smallest", "smaller") if place == 0 else ("largest", "larger")
    warnings.warn(
        f"The best alpha, {alphas[choice]:.3g}, is the {end} of the grid: try {direction} ones "
        "(alphas=...) to be sure.",
        UserWarning,
        stacklevel=stacklevel + 1,
    )
