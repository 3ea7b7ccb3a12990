"""Are predicted preferences as reliable as they claim? Reliability diagram and expected calibration error.

Of the pairs for which a model says "the first wins with probability p", a share p should be won by the first. Which
item of a pair comes first is arbitrary, so each pair is seen from its favourite: confidence max(p, 1 - p), and whether
the favourite won. With n_b of n pairs in bin b, the expected calibration error is Σ_b n_b / n |confidence_b - won_b|.
"""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Integral
from typing import Any

import numpy as np

from ..plots import draw_reliability, on_axes
from ..shown_tables import ShownTable, shows_itself


@shows_itself
@dataclass(frozen=True)
class PreferenceCalibration:
    """Predicted and observed shares of wins of the favourite, by bins of confidence.

    Attributes
    ----------
    confidence, won : ndarrays of shape (b,)
        Mean predicted probability and observed share of wins of the favourite in each bin.
    weight : ndarray of shape (b,)
        Weight (number) of the pairs in each bin.
    expected_calibration_error : float
    log_loss, brier_score : float
        Means over pairs.
    accuracy : float
        Share of wins of the favourite.
    n_pairs : int
    """

    confidence: np.ndarray
    won: np.ndarray
    weight: np.ndarray
    expected_calibration_error: float
    log_loss: float
    brier_score: float
    accuracy: float
    n_pairs: int

    def __str__(self) -> str:
        lines = [
            f"{self.n_pairs} preferences: expected calibration error {self.expected_calibration_error:.3f}, log loss "
            f"{self.log_loss:.3f}, accuracy {self.accuracy:.3f}",
            "predicted  observed   pairs",
        ]
        lines += [
            f"{p:9.3f} {won:9.3f} {weight:7g}"
            for p, won, weight in zip(self.confidence, self.won, self.weight, strict=True)
        ]
        return "\n".join(lines)

    def shown_tables(self) -> list[ShownTable]:
        rows = [("predicted", "observed", "pairs")]
        rows += [
            (f"{p:.3f}", f"{w:.3f}", f"{n:g}") for p, w, n in zip(self.confidence, self.won, self.weight)
        ]
        return [ShownTable(rows, str(self).split("\n")[0])]

    @on_axes
    def plot(self, ax: Any) -> None:
        """Reliability diagram."""
        draw_reliability(ax, self.confidence, self.won, self.weight, self.expected_calibration_error)


def calibration_of_preferences(
    probability: Any, outcome: Any = None, *, weight: Any = None, n_bins: int = 10
) -> PreferenceCalibration:
    """How far predicted probabilities of preferences can be trusted.

    Parameters
    ----------
    probability : array-like of shape (l,)
        Predicted probability that the first item of each pair is preferred, on pairs that were not used in training.
    outcome : array-like of shape (l,), optional
        1 where the first item was preferred, 0 where the second was, 0.5 for a tie; all 1 by default, as for ``pairs``
        with the preferred row first.
    weight : array-like of shape (l,), optional
    n_bins : int, default=10
        Number of bins, with about the same number of pairs in each.

    Returns
    -------
    PreferenceCalibration
        Prints itself; `preflearn.report.CalibrationDisplay` draws it.

    Examples
    --------
    >>> from preflearn.metrics import calibration_of_preferences
    >>> found = calibration_of_preferences([0.9, 0.8, 0.3, 0.6], n_bins=2)
    >>> round(found.expected_calibration_error, 3), found.accuracy
    (0.15, 0.75)
    """
    p = np.asarray(probability, dtype=np.float64)
    if p.ndim != 1 or p.size == 0:
        raise ValueError(f"probability must hold one number per pair, at least one: found shape {p.shape}.")
    if not ((p >= 0) & (p <= 1)).all():
        raise ValueError(f"probability must lie between 0 and 1: found {p.min():g} to {p.max():g}.")
    y = np.ones(p.shape[0]) if outcome is None else np.asarray(outcome, dtype=np.float64)
    w = np.ones(p.shape[0]) if weight is None else np.asarray(weight, dtype=np.float64)
    for name, values in (("outcome", y), ("weight", w)):
        if values.shape != p.shape:
            raise ValueError(
                f"{name} must hold one number per pair: found shape {values.shape} for {p.size} pairs."
            )
    if not np.isin(y, (0.0, 0.5, 1.0)).all():
        raise ValueError("outcome must be 1 (the first was preferred), 0 (the second was) or 0.5 (a tie).")
    if not (np.isfinite(w) & (w >= 0)).all() or not w.any():
        raise ValueError("weight must not be negative, NaN or infinite, nor zero for every pair.")
    if isinstance(n_bins, bool) or not isinstance(n_bins, Integral) or n_bins < 1:
        raise ValueError(f"n_bins must be an int of at least 1: found {n_bins!r}.")
    confidence = np.maximum(p, 1.0 - p)
    won = np.where(p == 0.5, 0.5, np.where(p > 0.5, y, 1.0 - y))
    bins = _equal_bins(confidence, int(n_bins))
    totals = np.bincount(bins, w)
    kept = totals > 0
    mean_confidence = np.bincount(bins, w * confidence)[kept] / totals[kept]
    mean_won = np.bincount(bins, w * won)[kept] / totals[kept]
    clipped = np.clip(p, 1e-15, 1.0 - 1e-15)
    return PreferenceCalibration(
        confidence=mean_confidence,
        won=mean_won,
        weight=totals[kept],
        expected_calibration_error=float(
            np.average(np.abs(mean_confidence - mean_won), weights=totals[kept])
        ),
        log_loss=float(-np.average(y * np.log(clipped) + (1.0 - y) * np.log1p(-clipped), weights=w)),
        brier_score=float(np.average((p - y) ** 2, weights=w)),
        accuracy=float(np.average(won, weights=w)),
        n_pairs=p.shape[0],
    )


def _equal_bins(values: np.ndarray, n_bins: int) -> np.ndarray:
    """Bins with about the same number of values in each; equal values share a bin."""
    edges = np.quantile(values, np.linspace(0, 1, n_bins + 1)[1:-1])
    return np.searchsorted(np.unique(edges), values, side="right")
