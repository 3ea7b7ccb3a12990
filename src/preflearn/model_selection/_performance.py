"""A performance estimate that prints an explanation of itself."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from ..plots import on_axes
from ..shown_tables import ShownTable, in_notebooks

_POOLED = (
    "Pooling compares scores from different models. A model trained without some of the positive (higher) rows scores "
    "everything slightly lower, and those held-out rows are scored by exactly this model, so they lose to rows scored "
    "by other models. Pooled estimates are therefore too low, and below 0.5 if there is no signal."
)
_WIDTH = 100
# What the concordance of censored times is called.
C_INDEX = "C-index"
# What to cite for words of ``method`` and ``interval_method``.
_REFERENCES = {
    "leave-pair-out": "A. Airola et al. An experimental comparison of cross-validation techniques for estimating the "
    "area under the ROC curve. Computational Statistics & Data Analysis 55 (2011), 1828-1844.",
    "nested": "S. Varma, R. Simon. Bias in error estimation when using cross-validation for model selection. BMC "
    "Bioinformatics 7 (2006), 91.",
    "DeLong": "E. R. DeLong, D. M. DeLong, D. L. Clarke-Pearson. Comparing the areas under two or more correlated "
    "receiver operating characteristic curves. Biometrics 44 (1988), 837-845.",
    "Obuchowski": "N. A. Obuchowski. Nonparametric analysis of clustered ROC curve data. Biometrics 53 (1997), "
    "567-578.",
    "Aronow": "P. M. Aronow, C. Samii, V. A. Assenova. Cluster-robust variance estimation for dyadic data. Political "
    "Analysis 23 (2015), 564-577.",
    "Wilson": "E. B. Wilson. Probable inference, the law of succession, and statistical inference. Journal of the "
    "American Statistical Association 22 (1927), 209-212.",
    "jackknife": "B. Efron, C. Stein. The jackknife estimate of variance. Annals of Statistics 9 (1981), 586-596.",
    "training rows": "C. Nadeau, Y. Bengio. Inference for the generalization error. Machine Learning 52 (2003), "
    "239-281.",
}


class RocCurve(NamedTuple):
    """Points of an ROC curve, from (0, 0) to (1, 1).

    Attributes
    ----------
    fpr, tpr : ndarray of shape (k,)
        False and true positive rates.
    """

    fpr: np.ndarray
    tpr: np.ndarray


@in_notebooks
@dataclass(frozen=True)
class PerformanceEstimate:
    """An AUC, concordance or other measure of rows that the models had not seen; it can be printed or plotted.

    Attributes
    ----------
    value : float
    interval : tuple of two float
        95 %.
    method : str
        "leave-pair-out", "leave-query-out", "averaged" or "pooled"; "nested cross-validation" for the ``estimate_`` of
        a search.
    n_pairs : int
        Pairs that were compared; rows of a measure that compares none.
    measure : str
        "AUC", "concordance" or another measure.
    n_rows : int
    standard_error : float
    compared : str
        What was compared with what.
    interval_method : str
        How the interval is computed and what it covers.
    per_fold : ndarray of shape (n_folds,) or None
        The value in each fold, or in each query where there are queries; NaN where there is no pair.
    per_row : ndarray of shape (m,)
        The share of each row's pairs that are ordered correctly (its placement value); NaN where it has none.
    roc : RocCurve or None
        AUC: of the pooled scores, or of a tournament of all pairs for leave-pair-out. Averaged folds have none.
    tournament : ndarray of shape (m,) or None
        Pairs that each row wins, rows of its own class included: the scores behind ``roc``.
    pooled, pooled_folds : float or None, int
        The pooled estimate of the same data, for comparison, and its number of folds.
    counted : str
        How many groups, queries and rows there were.
    """

    value: float
    interval: tuple[float, float]
    method: str
    n_pairs: int
    measure: str
    n_rows: int
    standard_error: float
    compared: str
    interval_method: str
    per_fold: np.ndarray | None = field(default=None, repr=False)
    per_row: np.ndarray | None = field(default=None, repr=False)
    roc: RocCurve | None = field(default=None, repr=False)
    tournament: np.ndarray | None = field(default=None, repr=False)
    pooled: float | None = None
    pooled_folds: int = 10
    counted: str = ""

    def __repr__(self) -> str:
        low, high = self.interval
        return (
            f"PerformanceEstimate({self.measure} {self.value:.3f}, interval ({low:.3f}, {high:.3f}), "
            f"method={self.method!r}, n_pairs={self.n_pairs})"
        )

    def __str__(self) -> str:
        low, high = self.interval
        first = f"{self.measure} {self.value:.3f}, 95 % interval {low:.3f} to {high:.3f}"
        first += f" ({self.counted})" if self.counted else ""
        return "\n".join([first, *(_item(*remark) for remark in self._remarks())])

    def shown_tables(self) -> list[ShownTable]:
        low, high = self.interval
        rows = [
            (self.measure, "95 % interval", "pairs"),
            (f"{self.value:.3f}", f"{low:.3f} to {high:.3f}", f"{self.n_pairs:,}"),
        ]
        return [ShownTable(rows, self.counted), ShownTable([("", ""), *self._remarks()])]

    def _remarks(self) -> list[tuple[str, str]]:
        """What was done, what the interval is, and what to be careful about: a word and a text each."""
        remarks = [("method", f"{self.method}: {self.compared}"), ("interval", self.interval_method)]
        if self.method == "pooled":
            remarks.append(
                ("careful", f"{_POOLED} Use method='leave-pair-out', or 'averaged' on large data.")
            )
        elif self.pooled is not None:
            folds = "Ten" if self.pooled_folds == 10 else str(self.pooled_folds)
            remarks.append(
                (
                    "pooled",
                    f"{folds}-fold cross-validation with pooled scores gives {self.pooled:.3f}. {_POOLED}",
                )
            )
        return remarks

    def describe(self) -> str:
        """Methods and results for a paper: what was held out, how much of it, the interval, and what to cite.

        Examples
        --------
        >>> import numpy as np
        >>> from preflearn import RLS
        >>> from preflearn.model_selection import estimate_auc
        >>> rng = np.random.default_rng(0)
        >>> ill, patient = np.tile([0, 0, 1, 1], 10), np.repeat(np.arange(20), 2)
        >>> visits = rng.normal(size=(40, 3)) + ill[:, None]
        >>> found = estimate_auc(RLS(), visits, ill, groups=patient, method="averaged", n_splits=4, random_state=0)
        >>> print(found.describe())
        Methods. AUC was estimated on data that the models had not been trained on (20 groups, 40 rows), by
        averaged: ...
        Results. The AUC was 0.9... (95 % confidence interval 0.8... to 0.9...; 20 groups, 40 rows).
        References. ...
        """
        from .. import __version__

        low, high = self.interval
        counted = self.counted or f"{self.n_rows:,} rows"
        used = f"{self.method} {self.interval_method}"
        parts = [
            f"Methods. {self.measure[0].upper()}{self.measure[1:]} was estimated on data that the models had not been "
            f"trained on ({counted}), by {self.method}: {self.compared}. The 95 % confidence interval is "
            f"{self.interval_method}. Computed with preflearn {__version__}.",
            f"Results. The {self.measure} was {self.value:.3f} (95 % confidence interval {low:.3f} to {high:.3f}; "
            f"{counted}).",
        ]
        cited = [text for word, text in _REFERENCES.items() if word in used]
        parts += [f"References. {' '.join(cited)}"] if cited else []
        return "\n\n".join(textwrap.fill(part, width=_WIDTH, break_on_hyphens=False) for part in parts)

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, text and lists, for JSON."""
        plain: dict[str, Any] = {
            name: getattr(self, name)
            for name in (
                "measure",
                "value",
                "method",
                "n_pairs",
                "n_rows",
                "counted",
                "standard_error",
                "pooled",
            )
        }
        plain["interval"] = list(self.interval)
        plain["compared"], plain["interval_method"] = self.compared, self.interval_method
        for name in ("per_fold", "per_row", "tournament"):
            array = getattr(self, name)
            plain[name] = None if array is None else [None if np.isnan(v) else float(v) for v in array]
        plain["roc"] = (
            None if self.roc is None else {"fpr": self.roc.fpr.tolist(), "tpr": self.roc.tpr.tolist()}
        )
        return plain

    @on_axes
    def plot(self, ax: Any) -> None:
        """The ROC curve where there is one, else the spread over folds, queries or rows."""
        if self.roc is not None:
            ax.plot([0, 1], [0, 1], color="0.7", linewidth=0.8, linestyle="--")
            ax.plot(self.roc.fpr, self.roc.tpr, color="C0", drawstyle="default")
            ax.set_aspect("equal")
            ax.set_xlabel("false positive rate")
            ax.set_ylabel("true positive rate")
        else:
            self._plot_spread(ax)
        low, high = self.interval
        ax.set_title(
            f"{self.measure} {self.value:.3f} ({low:.3f} to {high:.3f}), {self.method}", fontsize="medium"
        )

    def _plot_spread(self, ax: Any) -> None:
        found = self.per_row if self.per_fold is None else self.per_fold
        values = np.empty(0) if found is None else np.sort(found[~np.isnan(found)])
        ax.axhspan(*self.interval, color="C0", alpha=0.15, linewidth=0)
        ax.axhline(self.value, color="C0")
        ax.axhline(0.5, color="0.7", linewidth=0.8, linestyle="--")
        ax.plot(np.arange(1, values.shape[0] + 1), values, "o", color="C1", markersize=3)
        if found is not None:
            ax.set_ylim(-0.03, 1.03)
        queries = self.method == "leave-query-out" or "queries" in self.counted
        what = "rows" if self.per_fold is None else "queries" if queries else "folds"
        ax.set_xlabel(f"{what}, in order of their value")
        ax.set_ylabel(self.measure)


def _item(name: str, text: str) -> str:
    return textwrap.fill(
        text, width=_WIDTH, initial_indent=f"  {name:<10}", subsequent_indent=" " * 12, break_on_hyphens=False
    )
