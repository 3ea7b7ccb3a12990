"""Do new queries look like the held-out ones? A guarantee for exchangeable queries ends where they do not.

Three figures of a query are known without labels: its number of rows, the standard deviation of its scores, and how far
the first row is ahead of the mean in these units. Each is compared with the held-out queries by the test of Kolmogorov
and Smirnov; the smallest p-value is multiplied by the number of figures (Bonferroni).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.stats import ks_2samp

from ..comparisons import Groups
from ._calibration import in_units_of, largest, spreads

FIGURES = ("rows", "spread of scores", "lead of the first")


@dataclass(frozen=True)
class DriftTest:
    """Whether new queries resemble the held-out ones.

    Attributes
    ----------
    pvalue : float
        Of the hypothesis that they are, corrected for the number of figures.
    figure : str
        The figure that differs most: "rows", "spread of scores" or "lead of the first".
    pvalues : dict of float
        Of each figure.
    n_new, n_held_out : int
        Queries.
    """

    pvalue: float
    figure: str
    pvalues: dict[str, float]
    n_new: int
    n_held_out: int

    @property
    def drifted(self) -> bool:
        """Whether the p-value is below 0.01."""
        return self.pvalue < 0.01

    def __str__(self) -> str:
        what = f"{self.n_new} new queries against {self.n_held_out} held-out ones: "
        if not self.drifted:
            return what + f"no sign of drift (p = {self.pvalue:.3g})."
        return (
            what
            + f"they differ in the {self.figure} (p = {self.pvalue:.2g}). Coverage is not guaranteed for them: "
            "calibrate on recent queries."
        )


def query_figures(scores: np.ndarray, queries: Groups) -> np.ndarray:
    """What is known about each query without labels, shape (n_groups, 3)."""
    top, spread = largest(scores, queries), spreads(scores, queries)
    means = np.bincount(queries.codes, weights=scores) / queries.counts
    return np.column_stack([queries.counts, spread, (top - means) / in_units_of(spread)])


def compare_figures(held_out: np.ndarray, new: np.ndarray, *, with_scale: bool = True) -> DriftTest:
    """Kolmogorov and Smirnov's test for each figure.

    Parameters
    ----------
    held_out, new : ndarray of shape (n, 3)
        Of `query_figures`.
    with_scale : bool, default=True
        Whether the scores of both are on the same scale, so that their spread can be compared.
    """
    figures = zip(FIGURES, held_out.T, new.T, strict=True)
    found = {name: float(ks_2samp(a, b).pvalue) for name, a, b in figures if with_scale or name != FIGURES[1]}
    figure = min(found, key=lambda name: found[name])
    return DriftTest(min(1.0, len(found) * found[figure]), figure, found, new.shape[0], held_out.shape[0])
