"""Precision, recall, F and AUC of scored candidates, and three ways to choose the threshold.

F = 2 p r / (p + r) = 2 TP / (predicted + positive). A candidate is predicted to be an interaction when its score is
above the threshold.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from preflearn.metrics import auc


@dataclass(frozen=True)
class Measures:
    """The measures of one set of scored candidates; fractions, not per cent. AUC is NaN where a class is absent."""

    precision: float
    recall: float
    f: float
    auc: float


def measure(y: np.ndarray, scores: np.ndarray, threshold: float) -> Measures:
    """Measures of scores against labels (1 for an interaction) at a threshold."""
    positive, called = y == 1, scores > threshold
    hits = np.count_nonzero(positive & called)
    n_positive, n_called = np.count_nonzero(positive), np.count_nonzero(called)
    return Measures(
        precision=hits / n_called if n_called else 0.0,
        recall=hits / n_positive if n_positive else 0.0,
        f=2 * hits / (n_called + n_positive) if n_called + n_positive else 0.0,
        auc=area_under_curve(y, scores) if 0 < n_positive < y.shape[0] else np.nan,
    )


def area_under_curve(y: np.ndarray, scores: np.ndarray) -> float:
    """AUC for labels where 1 is an interaction."""
    return auc((y == 1).astype(float), scores)


def best_threshold(y: np.ndarray, scores: np.ndarray) -> tuple[float, float]:
    """The threshold with the largest F, and that F: halfway between the scores on its two sides. O(m log m)."""
    order = np.argsort(-scores, kind="stable")
    ordered = scores[order]
    hits = np.cumsum(y[order] == 1)
    n_called = np.arange(1, ordered.shape[0] + 1)
    f = 2 * hits / (n_called + hits[-1])
    # Equal scores are predicted together: only the last of a run of ties can be a cut.
    cuts = np.flatnonzero(np.append(ordered[1:] != ordered[:-1], True))
    last = int(cuts[np.argmax(f[cuts])])
    if last + 1 == ordered.shape[0]:
        return float(np.nextafter(ordered[last], -np.inf)), float(f[last])
    return _between(ordered[last + 1], ordered[last]), float(f[last])


def ratio_threshold(scores: np.ndarray, fraction: float) -> float:
    """The threshold that predicts this fraction of the candidates to interact (rounded to whole candidates)."""
    ordered = np.sort(scores)[::-1]
    n_called = round(fraction * ordered.shape[0])
    if n_called == 0:
        return float(ordered[0])
    if n_called == ordered.shape[0]:
        return float(np.nextafter(ordered[-1], -np.inf))
    return _between(ordered[n_called], ordered[n_called - 1])


def _between(low: float, high: float) -> float:
    """A number t with low <= t < high, the middle where possible."""
    middle = low + (high - low) / 2
    return float(middle if middle < high else low)
