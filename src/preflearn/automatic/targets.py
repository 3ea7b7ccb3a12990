r"""More members for measures of the top of a list: they learn targets between grades and gains.

The squared error of pairs, (y_i - y_j - f_i + f_j)², takes all differences of grades as equally important. NDCG counts
a grade y with the gain 2^y - 1, so that the best items matter most. Members that are trained on

    2^(y/2) - 1

beside those that are trained on y let held-out queries decide how much the top counts. Gains themselves spend
everything on a few items: such members lose more of the order of the rest than they win.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ..model_selection._choice import Scoring
from .candidates import Candidate, random_trees

# Exponential gains of scores that spread further than this tell nothing but the best one.
_WIDEST = 30.0


@dataclass(frozen=True)
class HalfGains:
    """From targets on a scale of their own to (2^(y/2) - 1), which is 1 for the best.

    Attributes
    ----------
    unit : float
        The difference of y that 1 is on this scale.
    span : float
        The largest difference of y.

    Examples
    --------
    >>> import numpy as np
    >>> HalfGains(unit=8.0, span=4.0)(np.array([0.0, 0.25, 0.5]))
    array([0.        , 0.33333333, 1.        ])
    """

    unit: float
    span: float

    def __call__(self, targets: np.ndarray) -> np.ndarray:
        # Rows outside of the sample that this was made for may have larger targets.
        grades = np.minimum(self.unit * targets, self.span)
        return np.expm1(np.log(2.0) / 2 * grades) / np.expm1(np.log(2.0) / 2 * self.span)


def half_gains(y: np.ndarray, targets: np.ndarray, scoring: Scoring) -> HalfGains | None:
    """What members learn beside the targets, which are y on another scale; None where the measure counts no gains."""
    scorer, span = scoring.scorer, float(np.ptp(y))
    if scorer is None or scorer.metric_name != "ndcg" or not 0 < span <= _WIDEST:
        return None
    if scorer.options.get("gain", "exponential") != "exponential":
        return None
    return HalfGains(span / float(np.ptp(targets)), span)


def for_the_top(candidates: list[Candidate]) -> list[Candidate]:
    """The candidates to train on half gains as well; without simple ones and random trees, which seldom help."""
    return [
        replace(one, name=f"{one.name}, gains")
        for one in candidates
        if not one.is_simple and one.train is not random_trees
    ]
