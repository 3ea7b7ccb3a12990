"""What a model file stores about its held-out queries, so that sets of new ones can be made at any coverage."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..comparisons import encode_queries
from ._calibration import DISTANCES, Cutoff, SetChoice, least_cutoff
from .calibrated import DriftTest, compare_figures, query_figures, read_share, refuse_too_few, shown_rows
from .conformal import ConformalRanker

# Maximum number of queries that are stored.
_MOST_QUERIES = 2000
# With fewer new queries drift cannot be tested.
LEAST_FOR_DRIFT = 30


@dataclass(frozen=True, eq=False)
class StoredSets:
    """Sets that hold what they must (the best item for those of `preflearn train`), from what held-out queries needed.

    Attributes
    ----------
    distance : str
        What is cut off; see `ConformalRanker`.
    needs : ndarray of shape (q,)
        The cut-off that each held-out query needed, ascending.
    figures : ndarray of shape (n, 3)
        What is known about each held-out query without labels, for `drift`.
    with_scale : bool
        Whether held-out scores are on the scale of the model.
    """

    distance: str
    needs: np.ndarray
    figures: np.ndarray
    with_scale: bool = True

    def shown(self, scores: np.ndarray, qid: Any, coverage: float) -> np.ndarray:
        """The rows in the set of their query, shape (m,).

        Raises
        ------
        ValueError
            If there were too few held-out queries for the coverage.
        """
        refuse_too_few(self.needs.shape[0], read_share(coverage, "coverage"))
        n = self.needs.shape[0]
        cutoff = Cutoff(self.distance, least_cutoff(self.needs, np.ones(n), n, 1.0 - coverage))
        return shown_rows(scores, encode_queries(qid, scores.shape[0]), cutoff)

    def drift(self, figures: np.ndarray) -> DriftTest:
        """New queries, given by their figures, against the held-out ones."""
        return compare_figures(self.figures, figures, with_scale=self.with_scale)

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers and texts, for the metadata of a model file."""
        return {
            "target": "best",
            "distance": self.distance,
            "needs": self.needs.tolist(),
            "figures": self.figures.tolist(),
            "with_scale": self.with_scale,
        }

    @classmethod
    def from_dict(cls, found: Any) -> StoredSets | None:
        """What `to_dict` wrote; None for anything else."""
        if not isinstance(found, Mapping) or found.get("distance") not in DISTANCES:
            return None
        try:
            needs = np.asarray(found["needs"], dtype=float)
            figures = np.asarray(found["figures"], dtype=float)
        except (KeyError, TypeError, ValueError):
            return None
        fits = needs.ndim == 1 and needs.size and figures.ndim == 2 and figures.shape[1] == 3
        if not fits or not np.isfinite(needs).all() or not np.isfinite(figures).all():
            return None
        return cls(found["distance"], np.sort(needs), figures, bool(found.get("with_scale", True)))

    @classmethod
    def of_choice(cls, choice: SetChoice, kind: str, scores: np.ndarray, *, with_scale: bool) -> StoredSets:
        """Those of held-out queries with one of the distances."""
        figures = query_figures(scores, choice.queries)
        needs = np.sort(choice.needs[kind])
        return cls(kind, needs[_some(needs.shape[0])], figures[_some(figures.shape[0])], with_scale)

    @classmethod
    def of(cls, ranker: ConformalRanker) -> StoredSets:
        """The sets of a fitted ranker, for any target."""
        held_out = ranker.calibration_
        choice = SetChoice(held_out, ranker.target, ranker.k, [ranker.distance_])
        return cls.of_choice(choice, ranker.distance_, held_out.scores, with_scale=ranker.has_one_scale)


def _some(n: int) -> np.ndarray:
    """Positions of at most `_MOST_QUERIES` of n sorted values, rounded up so that a cut-off is never too low."""
    if n <= _MOST_QUERIES:
        return np.arange(n)
    return np.ceil(np.arange(1, _MOST_QUERIES + 1) * (n / _MOST_QUERIES)).astype(np.int64) - 1
