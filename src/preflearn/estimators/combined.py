"""Labels and preferences together for the squared-loss learners: the loss over scores, summed with

Σ_k weight_k (magnitude_k - (f(x_h) - f(x_j)))²        over the pairs k = (h, j) of any rows, labelled or not.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..comparisons import Comparisons, PreferenceComparisons
from ..comparisons.combined import SumComparisons
from ..comparisons.inputs import read_pairs, read_per_pair
from .partial_targets import read_partial_targets

_NO_SCORES = "To learn from pairs alone use RankRLS.fit_pairs."


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
    """Validate ``y`` with NaN where it is not known, and ``pairs, magnitude, weight`` as in ``fit_pairs``."""
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
