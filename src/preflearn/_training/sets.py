"""How many items of a new query to show, by what held-out queries needed."""

from __future__ import annotations

import numpy as np

from ..comparisons import Groups
from ..model_selection._calibration import Calibration, SetChoice, share_interval
from ..model_selection.conformal import as_odds
from ..model_selection.stored_sets import StoredSets
from ..report.contents import SetSizes

# Coverages that are tried, the first that the number of queries allows.
_COVERAGES = (0.9, 0.8, 0.5)


def set_sizes(scores: np.ndarray, y: np.ndarray, queries: Groups, *, with_scale: bool) -> SetSizes | None:
    """Sets that hold the best item; None where too few queries have one.

    Parameters
    ----------
    scores : ndarray of shape (m,)
        Of held-out rows; NaN for rows that were not held out.
    y : ndarray of shape (m,)
    queries : Groups
    with_scale : bool
        Whether held-out scores are on the scale of the model.
    """
    known = np.isfinite(scores)
    choice = SetChoice(Calibration(scores[known], y[known], queries.codes[known]), "best", 1)
    possible = [one for one in _COVERAGES if choice.n_counted >= 1 / (1 - one) - 1e-9]
    if not possible:
        return None
    coverage = possible[0]
    kind = choice.choose(coverage)
    size = float(choice.sizes(choice.cutoff(coverage, kind)).mean())
    items = float(known.sum()) / choice.queries.n_groups
    covered = choice.covered(coverage)
    sentence = (
        f"To have the best item among those shown for {as_odds(coverage)} new queries, show {size:.2g} of {items:.3g} "
        "items on average."
    )
    stored = StoredSets.of_choice(choice, kind, scores[known], with_scale=with_scale).to_dict()
    interval = share_interval(int(covered.sum()), covered.shape[0])
    curve = choice.sizes_by_coverage(kind)
    return SetSizes(coverage, size, items, float(covered.mean()), interval, *curve, sentence, stored)
