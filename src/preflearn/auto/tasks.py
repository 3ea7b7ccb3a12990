"""What candidates learn from, and what they return."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from ..comparisons import CensoredComparisons, Groups, encode_queries
from ..model_selection._folds import part_of
from ..squared.devices.expansion import DeviceExpansions
from .combination import FoldScores
from .features import Views

if TYPE_CHECKING:
    from .extension import MoreRows


# From this number of rows on, less is tried: random trees and a second learned kernel are left out, and boosted trees
# have one number of leaves.
LARGE_TABLE = 10_000


class UnitScale:
    """Takes targets to 0 to about 1, so that no square of them overflows or vanishes; their order is what is learned.

    Parameters
    ----------
    y : ndarray
        The targets that this is made for.

    Examples
    --------
    >>> import numpy as np
    >>> UnitScale(np.array([2.0, 5.0]))(np.array([2.0, 3.5, 5.0]))
    array([0.   , 0.375, 0.75 ])
    """

    def __init__(self, y: np.ndarray):
        self._first = -int(np.frexp(np.abs(y).max())[1])
        scaled = np.ldexp(y, self._first)
        self._least = float(scaled.min())
        self._second = -int(np.frexp(scaled.max() - self._least)[1])

    def __call__(self, y: np.ndarray) -> np.ndarray:
        return np.ldexp(np.ldexp(y, self._first) - self._least, self._second)


def targets_of(y: np.ndarray, queries: Groups) -> np.ndarray:
    """What members learn: y itself; of censored times (`comparisons.inputs.surv`) a number for each row, in [-1, 1].

    That is the share of the rows of its query that a row outlived, minus the share of those that outlived it. It is b
    of `CensoredComparisons` over the number of rows (Gehan's score): a squared loss over all pairs of such targets has
    the b of the censored pairs, and members that learn from a number for each row can all be used.
    """
    if y.dtype.names is None:
        return y
    pairs = CensoredComparisons(y["time"][:, None], y["event"], queries)
    return pairs.target[:, 0] / queries.counts[queries.codes]


@dataclass(frozen=True)
class Task:
    """What all candidates learn from.

    Attributes
    ----------
    views : Views
    y : ndarray of shape (m,)
        Targets: `targets_of` on the scale of `UnitScale`.
    queries : Groups
    folds : FoldScores
    n_jobs : int or None
    seed : int
    rivals : tuple of views
        Of learned kernels, of which those that are ahead go on.
    device : DeviceExpansions or None
        Where kernels are evaluated; None for the processor.
    searches : dict
        The rounds of these views so far.
    is_sample : bool
        Whether the members will be trained again on more rows: here they only have to show which of them are good.
    units : Groups or None
        Rows that are held out together; None where these are the queries, or single rows.
    """

    views: Views
    y: np.ndarray
    queries: Groups
    folds: FoldScores
    n_jobs: int | None
    seed: int
    rivals: tuple[tuple[str, ...], ...] = ()
    device: DeviceExpansions | None = None
    searches: dict[tuple[str, ...], Any] = field(default_factory=dict)
    is_sample: bool = False
    units: Groups | None = None

    @property
    def n_rows(self) -> int:
        return self.y.shape[0]


@dataclass(frozen=True)
class Member:
    """A trained candidate.

    Attributes
    ----------
    model : fitted estimator
        On a view of the features.
    held_out : ndarray of shape (m,)
        Held-out predictions at the chosen setting.
    unbiased : ndarray of shape (m,)
        With the setting chosen by the other folds.
    importances : ndarray
        Of the columns of the view; they sum to 1.
    detail : str
        What was chosen.
    work : float or None
        Operations that its training came to; None for what was expected.
    extend : callable or None
        Trains the same on `MoreRows`: a fitted model, and what it predicts for the fold that stays out, with settings
        that these rows did not choose. None where more rows would hardly help.
    """

    model: Any
    held_out: np.ndarray
    unbiased: np.ndarray
    importances: np.ndarray
    detail: str
    work: float | None = None
    extend: Callable[[MoreRows], tuple[Any, np.ndarray]] | None = None


def halves_of(task: Task, rows: np.ndarray) -> FoldScores:
    """Two halves of some rows: every other query, or every other row of a single one; with groups whole ones."""
    queries = encode_queries(task.queries.codes[rows], rows.shape[0])
    together = part_of(task.units, rows) or queries
    place = together.codes if task.units or queries.n_groups > 1 else np.arange(rows.shape[0])
    tests = [np.flatnonzero(place % 2 == half) for half in (0, 1)]
    return FoldScores.of_folds(tests, task.folds.y[rows], queries, task.folds.scoring)
