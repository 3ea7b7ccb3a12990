"""What candidates learn from, and what they return."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..comparisons import Groups, encode_queries
from ..squared.devices.expansion import DeviceExpansions
from .combination import FoldScores
from .everything import Everything
from .features import Views


@dataclass(frozen=True)
class Task:
    """What all candidates learn from.

    Attributes
    ----------
    views : Views
    y : ndarray of shape (m,)
    queries : Groups
    folds : FoldScores
    n_jobs : int or None
    seed : int
    rivals : tuple of views
        Of learned kernels, of which those that are clearly behind are left out.
    device : DeviceExpansions or None
        Where kernels are evaluated; None for the processor.
    searches : dict
        The rounds of these views so far.
    is_sample : bool
        Whether the members will be trained again on more rows: here they only have to show which of them are good.
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

    @property
    def n_rows(self) -> int:
        return self.y.shape[0]


@dataclass(frozen=True)
class Extension:
    """Trains a member on more rows than it was chosen on.

    What that of a candidate needs beside the task are plain values, so that it can be written to a file and resumed
    from there.

    Attributes
    ----------
    train : callable
        From the task, the view, the settings and `Everything` to a fitted model, and what it predicts for the fold
        that is left out, with settings that these rows did not choose.
    task : Task
    view : tuple of str
    settings : mapping from names to numbers and arrays
    is_kernel : bool
        Whether the member is a kernel, which learns from fewer rows.
    """

    train: Callable[[Task, tuple[str, ...], Mapping[str, Any], Everything], tuple[Any, np.ndarray]]
    task: Task
    view: tuple[str, ...]
    settings: Mapping[str, Any]
    is_kernel: bool = False

    def __call__(self, everything: Everything) -> tuple[Any, np.ndarray]:
        return self.train(self.task, self.view, self.settings, everything)


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
    extend : Extension or None
        Trains the same on more rows than the choice was made on; None where more would hardly help.
    """

    model: Any
    held_out: np.ndarray
    unbiased: np.ndarray
    importances: np.ndarray
    detail: str
    extend: Extension | None = None


def halves_of(task: Task, rows: np.ndarray) -> FoldScores:
    """Two halves of some rows: every other query, or every other row of a single one."""
    queries = encode_queries(task.queries.codes[rows], rows.shape[0])
    place = queries.codes if queries.n_groups > 1 else np.arange(rows.shape[0])
    tests = [np.flatnonzero(place % 2 == half) for half in (0, 1)]
    return FoldScores.of_folds(tests, task.y[rows], queries, task.folds.scoring)
