"""Targets some of which are unknown, together with preferences: the loss over scores, summed with

Σ_k weight_k (magnitude_k - (f(x_h) - f(x_j)))²        over the pairs k = (h, j) of any rows, labelled or not.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.utils.validation import check_array, column_or_1d

from ..comparisons import Comparisons, PreferenceComparisons
from ..comparisons.inputs import read_pairs, read_per_pair
from ..comparisons.preferences import SumComparisons

_NO_SCORES = "To learn from pairs alone use RankRLS.fit_pairs."


def read_partial_targets(
    estimator: Any, y: Any, n_rows: int, *, when_none_known: str
) -> tuple[np.ndarray, bool]:
    """Targets as an (m, v) array of float64 with rows of NaN where they are unknown, and whether y was one column.

    Parameters
    ----------
    estimator : object
        Named in the error.
    y : array-like of shape (m,) or (m, v)
    n_rows : int
    when_none_known : str
        What to try when every target is NaN.

    Raises
    ------
    ValueError
        If y is missing, of another length, infinite, known only for some outputs of a row, or not known at all.
    """
    name = type(estimator).__name__
    if y is None:
        raise ValueError(
            f"This {name} estimator requires y to be passed, but the target y is None. "
            "Pass one target per row, NaN where it is unknown."
        )
    y = check_array(
        y, ensure_2d=False, dtype=np.float64, ensure_all_finite="allow-nan", input_name="y", allow_nd=True
    )
    if y.ndim == 0 or y.ndim > 2:
        raise ValueError(f"y must hold one target per row, or one row of targets: found {y.ndim} dimensions.")
    if y.shape[0] != n_rows:
        raise ValueError(
            f"Found input variables with inconsistent numbers of samples: X has {n_rows} rows, y has {y.shape[0]}."
        )
    single = y.ndim == 1 or y.shape[1] == 1
    targets = column_or_1d(y, warn=True)[:, None] if single else y
    missing = np.isnan(targets)
    if (missing.any(axis=1) != missing.all(axis=1)).any():
        row = int(np.flatnonzero(missing.any(axis=1) != missing.all(axis=1))[0])
        raise ValueError(
            f"Row {row} of y is known only for some outputs: NaN must fill a whole row. "
            "Fit such outputs separately."
        )
    if missing.all():
        raise ValueError(f"All targets are NaN, and {name} needs some known ones. {when_none_known}")
    return targets, single


@dataclass(frozen=True)
class ScoresAndPairs:
    """Scores of some rows and preferences between any rows.

    Attributes
    ----------
    scores : ndarray of shape (l, v)
        Of the labelled rows.
    labelled : ndarray of shape (l,)
        Their row numbers.
    single : bool
        Whether y came as one column.
    preferences : PreferenceComparisons
    """

    scores: np.ndarray
    labelled: np.ndarray
    single: bool
    preferences: PreferenceComparisons

    def add_to(self, task: Comparisons) -> SumComparisons:
        """Comparisons of the labelled rows and the preferences, as comparisons of all rows."""
        return SumComparisons(self.preferences.n_rows, [(task, self.labelled), (self.preferences, None)])


def read_scores_and_pairs(
    estimator: Any, y: Any, pairs: Any, magnitude: Any, weight: Any, n_rows: int
) -> ScoresAndPairs:
    """Validate ``y``, NaN where unknown, and ``pairs, magnitude, weight`` as in ``fit_pairs``."""
    scores, single = read_partial_targets(estimator, y, n_rows, when_none_known=_NO_SCORES)
    pairs = read_pairs(pairs, n_rows)
    preferences = PreferenceComparisons(
        n_rows,
        pairs,
        read_per_pair(magnitude, pairs.shape[0], "magnitude"),
        read_per_pair(weight, pairs.shape[0], "weight", positive=True),
    )
    labelled = np.flatnonzero(~np.isnan(scores[:, 0]))
    return ScoresAndPairs(scores[labelled], labelled, single, preferences)
