"""Plots with a scikit-learn API: ``from_...`` makes an object that holds what is drawn, and draws it.

``plot`` draws it again, on other axes; it returns the display, with the axes in ``ax_`` and the figure in ``figure_``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import numpy as np

from ..plots import ACCENT, MAIN, MUTED, draw_reliability, legend_above, new_axes
from ..shown_tables import clipped


class _Display:
    """What every display shares: `plot`, and the axes that it has drawn on."""

    ax_: Any
    figure_: Any

    def plot(self, ax: Any = None) -> Self:
        """Draw the display.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            New axes by default.

        Returns
        -------
        self
        """
        self._draw(self._axes(ax))
        return self

    def _draw(self, ax: Any) -> None:
        raise NotImplementedError

    def _axes(self, ax: Any) -> Any:
        if ax is None:
            ax = new_axes((6, 4))
        self.ax_, self.figure_ = ax, ax.figure
        return ax


class AlphaPathDisplay(_Display):
    """The cross-validated score over alpha, with the chosen one marked.

    Parameters
    ----------
    alphas, scores : array-like of shape (n_alphas,)
    chosen : float
        The alpha that was taken.
    errors : array-like of shape (n_alphas,), optional
        Standard error of each score, drawn as a band.
    score_name : str, default="concordance"

    Attributes
    ----------
    ax_, figure_
        Where it was drawn last.

    Examples
    --------
    >>> from preflearn import RankRLSCV
    >>> from preflearn.datasets import load_demo
    >>> from preflearn.report import AlphaPathDisplay
    >>> X, y, qid, _ = load_demo()
    >>> display = AlphaPathDisplay.from_estimator(RankRLSCV().fit(X, y, qid=qid))
    >>> display.alphas.shape == display.scores.shape
    True
    """

    def __init__(
        self, alphas: Any, scores: Any, chosen: Any, *, errors: Any = None, score_name: Any = "concordance"
    ) -> None:
        order = np.argsort(np.asarray(alphas, dtype=float))
        self.alphas = np.asarray(alphas, dtype=float)[order]
        self.scores = np.asarray(scores, dtype=float)[order]
        self.errors = None if errors is None else np.asarray(errors, dtype=float)[order]
        self.chosen = float(chosen)
        self.score_name = score_name

    @classmethod
    def from_estimator(cls, estimator: Any, *, ax: Any = None, **options: Any) -> AlphaPathDisplay:
        """Draw the path of a fitted search (`RankRLSCV`, `RLSCV`, `RankSVMCV`), or a pipeline that ends with one.

        Parameters
        ----------
        estimator : fitted search
        ax : matplotlib Axes, optional
            Where to draw; new axes by default.
        **options
            ``errors`` and ``score_name``.

        Returns
        -------
        AlphaPathDisplay
        """
        search = _last_step(estimator)
        if not hasattr(search, "cv_scores_"):
            raise TypeError(
                "AlphaPathDisplay draws a fitted search over alpha (RankRLSCV, RLSCV, RankSVMCV): found "
                f"{type(search).__name__} without cv_scores_."
            )
        if np.ndim(search.cv_scores_) > 1:
            raise ValueError(
                "AlphaPathDisplay draws one path, and alpha_per_output=True has one for each output: draw output k by "
                "AlphaPathDisplay(model.alphas_, model.cv_scores_[:, k], model.alpha_[k]).plot()."
            )
        scoring = getattr(search, "scoring_", getattr(search, "scoring", None))
        default = getattr(search, "_default_scoring", "concordance") if scoring is None else str(scoring)
        found = cls(search.alphas_, search.cv_scores_, search.alpha_, **{"score_name": default, **options})
        return found.plot(ax)

    def _draw(self, ax: Any) -> None:
        ax.plot(self.alphas, self.scores, marker=".", color=MAIN, label="cross-validated")
        ax.axvline(self.chosen, linestyle="--", color=ACCENT, label=f"chosen: {self.chosen:.4g}")
        if self.errors is not None:
            low, high = self.scores - self.errors, self.scores + self.errors
            ax.fill_between(
                self.alphas, low, high, color=MAIN, alpha=0.18, linewidth=0, label="± standard error"
            )
        ax.set(xscale="log", xlabel="alpha", ylabel=self.score_name)
        legend_above(ax, 3)


class SetSizeDisplay(_Display):
    """How many items to show over the share of queries whose set holds what it must.

    Parameters
    ----------
    coverages, sizes : array-like of shape (n,)
    coverage, size : float
        The coverage that was asked for, and the mean size of the sets at it.
    items : float
        Mean number of items of a query.

    Attributes
    ----------
    ax_, figure_
        Where it was drawn last.

    Examples
    --------
    >>> from preflearn import RankRLS
    >>> from preflearn.datasets import load_demo
    >>> from preflearn.model_selection import ConformalRanker
    >>> from preflearn.report import SetSizeDisplay
    >>> X, y, qid, _ = load_demo()
    >>> display = SetSizeDisplay.from_estimator(ConformalRanker(RankRLS(), coverage=0.8).fit(X, y, qid=qid))
    >>> bool(display.size <= display.items)
    True
    """

    def __init__(self, coverages: Any, sizes: Any, *, coverage: Any, size: Any, items: Any) -> None:
        self.coverages, self.sizes = np.asarray(coverages, dtype=float), np.asarray(sizes, dtype=float)
        self.coverage, self.size, self.items = float(coverage), float(size), float(items)

    @classmethod
    def from_estimator(cls, estimator: Any, *, ax: Any = None) -> SetSizeDisplay:
        """Of a fitted `preflearn.model_selection.ConformalRanker`.

        Parameters
        ----------
        estimator : fitted ConformalRanker
        ax : matplotlib Axes, optional
            New axes by default.

        Returns
        -------
        SetSizeDisplay
        """
        coverages, sizes = estimator.size_curve()
        items = estimator.calibration_.codes.shape[0] / estimator.set_sizes_.shape[0]
        return cls(
            coverages, sizes, coverage=estimator.coverage, size=estimator.set_sizes_.mean(), items=items
        ).plot(ax)

    def _draw(self, ax: Any) -> None:
        ax.plot(self.coverages, self.sizes, drawstyle="steps-pre", color=MAIN, label="held-out queries")
        ax.plot(
            self.coverage, self.size, "o", color=ACCENT, label=f"{self.coverage:g}: {self.size:.2g} items"
        )
        ax.axhline(self.items, linestyle=":", color="gray", label="all items")
        ax.set(xlim=(0, 1), ylim=(0, None), xlabel="coverage", ylabel="items shown, mean")
        legend_above(ax, 3)


class LearningCurveDisplay(_Display):
    """Held-out score over the number of training queries, and what more of them would bring.

    Parameters
    ----------
    n_queries, scores : array-like of shape (s,)
    errors : array-like of shape (s,), optional
        Half the 95 % interval of each score.
    score_name : str, default="held-out concordance"
    extension : Extension, optional
        Scores of more queries by a power law (`preflearn.model_selection.LearningCurve.extend`), drawn dashed.

    Attributes
    ----------
    ax_, figure_
        Where it was drawn last.

    Examples
    --------
    >>> from preflearn.report import LearningCurveDisplay
    >>> display = LearningCurveDisplay([10, 20, 40], [0.7, 0.75, 0.77])
    >>> display.scores.shape  # display.plot() draws it
    (3,)
    """

    def __init__(
        self,
        n_queries: Any,
        scores: Any,
        errors: Any = None,
        *,
        score_name: Any = "held-out concordance",
        extension: Any = None,
    ) -> None:
        self.n_queries = np.asarray(n_queries)
        self.scores = np.asarray(scores, dtype=float)
        self.errors = None if errors is None else np.asarray(errors, dtype=float)
        self.score_name = score_name
        self.extension = extension

    @classmethod
    def from_curve(cls, curve: Any, *, ax: Any = None) -> LearningCurveDisplay:
        """Draw what `preflearn.model_selection.learning_curve` measured, and what ten times as many queries would give.

        Parameters
        ----------
        curve : LearningCurve
        ax : matplotlib Axes, optional
            Where to draw; new axes by default.

        Returns
        -------
        LearningCurveDisplay
        """
        found = cls(
            curve.n_queries,
            curve.scores,
            curve.errors,
            score_name=f"held-out {curve.scoring}",
            extension=curve.extended_to_ten_times,
        )
        return found.plot(ax)

    def _draw(self, ax: Any) -> None:
        ax.plot(self.n_queries, self.scores, marker="o", markersize=4, color=MAIN)
        if self.errors is not None:
            low, high = self.scores - self.errors, self.scores + self.errors
            ax.fill_between(self.n_queries, low, high, color=MAIN, alpha=0.18, linewidth=0)
        ax.set(xlabel="training queries", ylabel=self.score_name)
        if self.extension is None:
            ax.set_xlim(0, None)
            return
        more = self.extension
        ax.plot(more.n_queries, more.scores, color=ACCENT, linestyle="--", label="power law, extended")
        ax.fill_between(more.n_queries, more.low, more.high, color=ACCENT, alpha=0.15, linewidth=0)
        ax.set_xscale("log")
        legend_above(ax, 1)


class CalibrationDisplay(_Display):
    """Reliability diagram of predicted preferences: how often the favourite wins, over how sure the model is.

    Parameters
    ----------
    confidence, won : array-like of shape (b,)
        Mean predicted probability and observed share of wins of the favourite in each bin.
    weight : array-like of shape (b,)
        Pairs in each bin; the area of its mark.
    error : float
        Expected calibration error.

    Attributes
    ----------
    ax_, figure_
        Where it was drawn last.

    Examples
    --------
    >>> from preflearn.report import CalibrationDisplay
    >>> display = CalibrationDisplay.from_predictions([0.9, 0.8, 0.3, 0.6], n_bins=2)
    >>> round(display.error, 3)
    0.15
    """

    def __init__(self, confidence: Any, won: Any, weight: Any, error: Any) -> None:
        self.confidence = np.asarray(confidence, dtype=float)
        self.won = np.asarray(won, dtype=float)
        self.weight = np.asarray(weight, dtype=float)
        self.error = float(error)

    @classmethod
    def from_calibration(cls, calibration: Any, *, ax: Any = None) -> CalibrationDisplay:
        """Draw what `preflearn.metrics.calibration_of_preferences` found.

        Parameters
        ----------
        calibration : PreferenceCalibration
        ax : matplotlib Axes, optional
            Where to draw; new axes by default.

        Returns
        -------
        CalibrationDisplay
        """
        return cls(
            calibration.confidence,
            calibration.won,
            calibration.weight,
            calibration.expected_calibration_error,
        ).plot(ax)

    @classmethod
    def from_predictions(
        cls, probability: Any, outcome: Any = None, *, ax: Any = None, **options: Any
    ) -> CalibrationDisplay:
        """Draw the diagram of predicted probabilities.

        Parameters
        ----------
        probability, outcome
            As in `preflearn.metrics.calibration_of_preferences`.
        ax : matplotlib Axes, optional
            Where to draw; new axes by default.
        **options
            ``weight`` and ``n_bins``.

        Returns
        -------
        CalibrationDisplay
        """
        from ..metrics import calibration_of_preferences

        return cls.from_calibration(calibration_of_preferences(probability, outcome, **options), ax=ax)

    def _draw(self, ax: Any) -> None:
        draw_reliability(ax, self.confidence, self.won, self.weight, self.error)


class QueryScoresDisplay(_Display):
    """A metric in each query, in order of size, with its mean; the ends are named.

    Parameters
    ----------
    labels : array-like of shape (n_queries,)
    values : array-like of shape (n_queries,)
        NaN where the metric is not defined; such queries are left out.
    metric_name : str, default="concordance"
    chance : float or None, default=0.5
        What a random order gets, as a line.
    interval : tuple of two float, optional
        Of the mean, as a band.
    unit : str, default="queries"

    Attributes
    ----------
    labels, values : ndarrays
        Of the queries where the metric is defined, worst first.
    ax_, figure_
        Where it was drawn last.

    Examples
    --------
    >>> from preflearn.report import QueryScoresDisplay
    >>> display = QueryScoresDisplay.from_predictions([1, 0, 1, 0], [2, 1, 1, 2], ["a", "a", "b", "b"])
    >>> display.labels.tolist(), display.values.tolist()
    (['b', 'a'], [0.0, 1.0])
    """

    def __init__(
        self,
        labels: Any,
        values: Any,
        *,
        metric_name: Any = "concordance",
        chance: Any = 0.5,
        interval: Any = None,
        unit: Any = "queries",
    ) -> None:
        values = np.asarray(values, dtype=float)
        defined = np.flatnonzero(~np.isnan(values))
        if not defined.size:
            raise ValueError(f"{metric_name} is defined in none of the {unit}: there is nothing to draw.")
        order = defined[np.argsort(values[defined], kind="stable")]
        self.labels, self.values = np.asarray(labels)[order], values[order]
        self.metric_name = metric_name
        self.chance = chance
        self.interval = interval
        self.unit = unit

    @classmethod
    def from_predictions(
        cls, y: Any, scores: Any, qid: Any, *, metric: Any = "concordance", ax: Any = None, **options: Any
    ) -> QueryScoresDisplay:
        """Draw the metric of scores and what is known about the rows.

        Parameters
        ----------
        y, scores, qid : array-like of shape (m,)
        metric : str, default="concordance"
            A name of `preflearn.metrics.get_scorer`, "ndcg@10" for example.
        ax : matplotlib Axes, optional
            Where to draw; new axes by default.
        **options
            ``chance``, ``interval`` and ``unit``.

        Returns
        -------
        QueryScoresDisplay
        """
        from ..metrics import get_scorer
        from ..metrics.registry import full_name, named_metric

        found = get_scorer(metric).per_query(y, scores, qid)
        chance = named_metric(full_name(metric)).chance
        return cls(found.labels, found.values, metric_name=metric, **{"chance": chance, **options}).plot(ax)

    @classmethod
    def from_estimator(cls, estimator: Any, X: Any, y: Any, qid: Any, **options: Any) -> QueryScoresDisplay:
        """Draw the metric of a fitted ranker on rows that it was not trained on.

        Parameters
        ----------
        estimator : fitted estimator
        X, y, qid : its data
        **options
            As in `from_predictions`.

        Returns
        -------
        QueryScoresDisplay
        """
        from ..metrics.by_query import predict_scores

        return cls.from_predictions(y, predict_scores(estimator, X, qid), qid, **options)

    def plot(self, ax: Any = None, *, n_named: Any = 1) -> Self:
        """Draw the display.

        Parameters
        ----------
        ax : matplotlib Axes, optional
        n_named : int, default=1
            How many queries to name at each end.

        Returns
        -------
        self
        """
        ax = self._axes(ax)
        n = self.values.shape[0]
        place = np.arange(1, n + 1)
        if self.interval is not None:
            ax.axhspan(*self.interval, color=ACCENT, alpha=0.25, linewidth=0)
        mean = float(self.values.mean())
        ax.axhline(mean, color=ACCENT, label=f"mean {mean:.3f}")
        if self.chance is not None:
            ax.axhline(self.chance, color=MUTED, linewidth=0.9, linestyle="--", label="random order")
        ax.plot(place, self.values, "o", color=MAIN, markersize=4 if n < 60 else 2.5)
        for k in range(min(n_named, n // 2)):
            _name(ax, place[k], self.values[k], self.labels[k], "left")
            _name(ax, place[n - 1 - k], self.values[n - 1 - k], self.labels[n - 1 - k], "right")
        ax.set(xlabel=f"{self.unit}, in order of their value", ylabel=self.metric_name)
        ax.margins(y=0.14)
        legend_above(ax, 2)
        return self


class QueryRocDisplay(_Display):
    """The ROC curve of a query, averaged over queries: the area under it is their mean AUC.

    Scores of different queries are not on one scale, so the curve of all rows together would mix them; here the true
    positive rates of the queries are averaged at each false positive rate.

    Parameters
    ----------
    fpr, tpr : array-like
        The mean curve.
    auc : float
    n_queries : int
        Queries with rows of both classes.

    Examples
    --------
    >>> from preflearn.report import QueryRocDisplay
    >>> display = QueryRocDisplay.from_predictions([1, 0, 1, 0], [2, 1, 1, 2], ["a", "a", "b", "b"])
    >>> float(display.auc), display.n_queries
    (0.5, 2)
    """

    def __init__(self, fpr: Any, tpr: Any, auc: Any, n_queries: Any = 1) -> None:
        self.fpr, self.tpr = np.asarray(fpr, dtype=float), np.asarray(tpr, dtype=float)
        self.auc, self.n_queries = float(auc), int(n_queries)

    @classmethod
    def from_predictions(cls, y: Any, scores: Any, qid: Any = None, *, ax: Any = None) -> QueryRocDisplay:
        """Draw the curve of scores and classes.

        Parameters
        ----------
        y, scores, qid
            As in `of_predictions`.
        ax : matplotlib Axes, optional
            Where to draw; new axes by default.

        Returns
        -------
        QueryRocDisplay
        """
        return cls.of_predictions(y, scores, qid).plot(ax)

    @classmethod
    def of_predictions(cls, y: Any, scores: Any, qid: Any = None) -> QueryRocDisplay:
        """The curve of scores and classes, not drawn yet.

        Parameters
        ----------
        y : array-like of shape (m,)
            Two different values; the larger marks the positive rows.
        scores : array-like of shape (m,)
        qid : array-like of shape (m,), optional

        Returns
        -------
        QueryRocDisplay

        Notes
        -----
        The mean is taken at every false positive rate that occurs in a query, on both sides of a jump, so that
        the area is exactly the mean of the queries' areas. O(m n_queries).
        """
        from sklearn.metrics import roc_curve

        from ..comparisons import encode_queries

        y, scores = np.asarray(y), np.asarray(scores, dtype=float)
        values = np.unique(y)
        if values.shape[0] != 2:
            raise ValueError(f"A ROC curve needs two classes: y holds {values.shape[0]} different values.")
        groups = encode_queries(qid, y.shape[0])
        curves = []
        for query in range(groups.n_groups):
            rows = groups.rows(query)
            positive = y[rows] == values[1]
            if positive.any() and not positive.all():
                curves.append(roc_curve(positive, scores[rows], drop_intermediate=True)[:2])
        if not curves:
            raise ValueError("No query has rows of both classes: there is no ROC curve.")
        grid = np.unique(np.concatenate([fpr for fpr, _ in curves]))
        low = np.mean([_at(fpr, tpr, grid, "left") for fpr, tpr in curves], axis=0)
        high = np.mean([_at(fpr, tpr, grid, "right") for fpr, tpr in curves], axis=0)
        fpr, tpr = np.repeat(grid, 2), np.stack([low, high], axis=1).ravel()
        return cls(fpr, tpr, np.trapezoid(tpr, fpr), len(curves))

    def _draw(self, ax: Any) -> None:
        ax.plot([0, 1], [0, 1], color=MUTED, linewidth=0.9, linestyle="--", label="random order")
        label = f"AUC {self.auc:.3f}" + (f", mean of {self.n_queries} queries" if self.n_queries > 1 else "")
        ax.plot(self.fpr, self.tpr, color=MAIN, label=label)
        ax.set(xlabel="false positive rate", ylabel="true positive rate", aspect="equal")
        ax.legend(loc="lower right")


class SurvivalDisplay(_Display):
    """Kaplan-Meier curves of rows with low, middle and high scores: the share still without the event over time.

    Parameters
    ----------
    names : sequence of str
        Of the groups, those of the lowest scores first.
    counts, events : sequence of int
        Rows of each group, and those whose event was seen.
    times, survival : sequence of ndarray
        The curve of each group: from each time on, this share is still without the event.
    pvalue : float, optional
        Of the log-rank test of equally long lives in all groups; right for scores of one model that knew none of the
        rows. Of scores from several folds it is too small (9 to 14 % below .05 in noise): go by the C-index's interval.

    Examples
    --------
    >>> from preflearn.report import SurvivalDisplay
    >>> display = SurvivalDisplay.from_predictions([1, 2, 3, 4, 5, 6], [1, 2, 3, 4, 5, 6], event=[1, 1, 0, 1, 1, 0])
    >>> display.medians
    [1.0, 4.0, 5.0]
    """

    def __init__(
        self, names: Any, counts: Any, events: Any, times: Any, survival: Any, pvalue: Any = np.nan
    ) -> None:
        self.names, self.counts, self.events = list(names), list(counts), list(events)
        self.times, self.survival, self.pvalue = list(times), list(survival), float(pvalue)

    @classmethod
    def from_predictions(
        cls, y: Any, scores: Any, qid: Any = None, *, event: Any = None, ax: Any = None
    ) -> SurvivalDisplay:
        """Draw the curves of the thirds by score.

        Parameters
        ----------
        y, scores, qid, event
            As in `of_predictions`.
        ax : matplotlib Axes, optional
            Where to draw; new axes by default.

        Returns
        -------
        SurvivalDisplay
        """
        return cls.of_predictions(y, scores, qid, event=event).plot(ax)

    @classmethod
    def of_predictions(cls, y: Any, scores: Any, qid: Any = None, *, event: Any = None) -> SurvivalDisplay:
        """The curves of the thirds by score, not drawn yet.

        Parameters
        ----------
        y : array-like of shape (m,)
            Times, or times and events as one structured array.
        scores : array-like of shape (m,)
            Predictions, higher lives longer.
        qid : array-like of shape (m,), optional
            Rows whose scores can be compared, a stratum or a fold: each is divided into thirds by itself.
        event : array-like of bool, shape (m,), optional

        Returns
        -------
        SurvivalDisplay
        """
        from scipy.stats import CensoredData, ecdf

        from ..comparisons import encode_queries
        from ..comparisons.grouping import positions_in_groups
        from ..comparisons.inputs import read_times
        from ..metrics import logrank_test

        times, events = read_times(y, event)
        if events is None:
            raise ValueError("SurvivalDisplay needs events: pass event=..., True where the event was seen.")
        queries = encode_queries(qid, times.shape[0])
        place = positions_in_groups(-np.asarray(scores, dtype=float), queries) - 1
        third = 3 * place // queries.counts[queries.codes]
        curves: list[tuple[np.ndarray, np.ndarray]] = []
        for k in range(int(third.max()) + 1):  # two in strata of two rows
            own, seen = times[third == k], events[third == k]
            found = ecdf(CensoredData(own[seen], right=own[~seen])).sf
            curves.append((np.r_[0.0, found.quantiles], np.r_[1.0, found.probabilities]))
        return cls(
            ("lowest scores", "middle scores", "highest scores")[: len(curves)],
            np.bincount(third).tolist(),
            np.bincount(third, events).astype(int).tolist(),
            [times for times, _ in curves],
            [survival for _, survival in curves],
            logrank_test(times, third, event=events).pvalue,
        )

    @property
    def medians(self) -> list[float]:
        """The time by which half of each group had the event; infinite where the curve stays above."""
        below = [np.flatnonzero(survival < 0.5 + 1e-9) for survival in self.survival]
        return [
            float(times[at[0]]) if at.size else np.inf for times, at in zip(self.times, below, strict=True)
        ]

    def _draw(self, ax: Any) -> None:
        for name, times, survival, color in zip(
            self.names, self.times, self.survival, (ACCENT, MUTED, MAIN), strict=False
        ):
            ax.step(times, survival, where="post", color=color, label=name)
        ax.set(xlabel="time", ylabel="share without the event", ylim=(0, 1.02))
        legend_above(ax, 3)


class CoefficientsDisplay(_Display):
    """The features with the largest influence, as bars to both sides.

    Parameters
    ----------
    names : sequence of n str
    values : array-like of shape (n,)
    xlabel : str, default="coefficient"
    errors : array-like of shape (n,), optional
        Drawn as lines at the ends of the bars.

    Attributes
    ----------
    names, values : the features, the largest first
    ax_, figure_
        Where it was drawn last.

    Examples
    --------
    >>> from preflearn import RankRLS
    >>> from preflearn.report import CoefficientsDisplay
    >>> model = RankRLS().fit([[0.0, 1.0], [1.0, 1.5], [2.0, 1.0]], [0, 1, 2])
    >>> CoefficientsDisplay.from_estimator(model, feature_names=["price", "rating"]).names
    ['price', 'rating']
    """

    def __init__(
        self, names: Sequence[str], values: Any, *, xlabel: Any = "coefficient", errors: Any = None
    ) -> None:
        values = np.asarray(values, dtype=float)
        if values.shape != (len(names),):
            raise ValueError(
                f"values must hold one number per name: found shape {values.shape} for {len(names)} names."
            )
        order = np.argsort(-np.abs(values), kind="stable")
        self.names = [str(names[k]) for k in order]
        self.values = values[order]
        self.errors = None if errors is None else np.asarray(errors, dtype=float)[order]
        self.xlabel = xlabel

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        *,
        feature_names: Any = None,
        ax: Any = None,
        n_features: Any = 15,
        **options: Any,
    ) -> CoefficientsDisplay:
        """Draw the coefficients of a fitted linear model, or a pipeline of scalers that ends with one.

        Parameters
        ----------
        estimator : fitted estimator with ``coef_``
        feature_names : sequence of str, optional
            By default the names that the model was fitted with, or the numbers of the features from 0.
        ax : matplotlib Axes, optional
            Where to draw; new axes by default.
        n_features : int, default=15
            How many to draw, the largest first.
        **options
            ``xlabel``.

        Returns
        -------
        CoefficientsDisplay
        """
        model = _last_step(estimator)
        coef = getattr(model, "coef_", None)
        if coef is None or np.ndim(coef) != 1:
            raise TypeError(
                f"CoefficientsDisplay draws a fitted linear model of one output: {type(model).__name__} has "
                "no such coef_. For other kernels use sklearn.inspection.permutation_importance."
            )
        if feature_names is None:
            feature_names = getattr(estimator, "feature_names_in_", np.arange(len(coef)))
        return cls([str(name) for name in feature_names], coef, **options).plot(ax, n_features=n_features)

    def plot(self, ax: Any = None, *, n_features: Any = 15) -> Self:
        """Draw the display.

        Parameters
        ----------
        ax : matplotlib Axes, optional
        n_features : int, default=15
            How many, the largest first.

        Returns
        -------
        self
        """
        ax = self._axes(ax)
        names, values = self.names[:n_features], self.values[:n_features]
        place = np.arange(len(names))[::-1]
        colors = [MAIN if value >= 0 else ACCENT for value in values]
        errors = None if self.errors is None else self.errors[:n_features]
        ax.barh(place, values, color=colors, xerr=errors, ecolor=MUTED, height=0.7)
        ax.axvline(0, color=MUTED, linewidth=0.9)
        ax.set_yticks(place, [short(name) for name in names])
        ax.set_xlabel(self.xlabel)
        return self


def _last_step(estimator: Any) -> Any:
    """The learner itself: the last step of a pipeline."""
    from sklearn.pipeline import Pipeline

    return estimator.steps[-1][1] if isinstance(estimator, Pipeline) else estimator


def _name(ax: Any, x: float, value: float, label: Any, side: str) -> None:
    """Beside the first point and under it, or above the last one: the others are on the other side."""
    shift = (4, -4) if side == "left" else (2, 5)
    ax.annotate(
        short(str(label)),
        (x, value),
        xytext=shift,
        textcoords="offset points",
        ha=side,
        va="top" if side == "left" else "bottom",
        fontsize="small",
    )


def short(name: str, most: int = 24) -> str:
    """A name as Matplotlib can show it: clipped, and without a dollar sign that would start a formula."""
    return clipped(name, most).replace("$", r"\$")


def _at(fpr: np.ndarray, tpr: np.ndarray, grid: np.ndarray, side: str) -> np.ndarray:
    """The height of a curve at each grid point: where it jumps, before the jump (left) or after it (right)."""
    places, first = np.unique(fpr, return_index=True)
    last = np.concatenate([first[1:], [fpr.shape[0]]]) - 1
    before, after = tpr[first], tpr[last]
    # Between two points the curve runs from the upper end of the left one to the lower end of the right one.
    k = np.clip(np.searchsorted(places, grid, side="right") - 1, 0, places.shape[0] - 1)
    exact = places[k] == grid
    nxt = np.minimum(k + 1, places.shape[0] - 1)
    width = np.where(nxt > k, places[nxt] - places[k], 1.0)
    between = after[k] + (before[nxt] - after[k]) * (grid - places[k]) / width
    return np.where(exact, before[k] if side == "left" else after[k], between)
