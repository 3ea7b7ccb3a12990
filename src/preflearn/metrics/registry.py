"""The registry of metrics: each is one entry, made where the metric is defined, and a scikit-learn scorer.

    with sklearn.config_context(enable_metadata_routing=True):
        cross_val_score(estimator, X, y, scoring=ndcg_scorer(k=10), params={"qid": qid})

A scorer requests ``qid`` by default, so users need not request it. Higher is better for all of them: errors are
negated, and named ``neg_...`` as in scikit-learn. Everything that takes ``scoring`` reads names here: the searches, the
held-out object, streams, reports, the command line. `register_metric` adds one that is defined for a single query.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from copy import copy
from dataclasses import dataclass
from functools import wraps
from typing import Any, TypeVar

import numpy as np
from sklearn import metrics as regression
from sklearn.base import is_classifier
from sklearn.utils.metadata_routing import MetadataRequest

from .by_query import PerQuery, check_options, check_rows, mean_or_refuse, predict_scores

_METADATA = ("qid", "sample_weight")
# Arguments of metrics that are data rather than options.
_DATA = {"y", "scores", "y_true", "y_pred", "event", "per_query", *_METADATA}


class RankingScorer:
    """A metric as a scorer: ``scorer(estimator, X, y, qid=qid)``, greater is better.

    Called without an estimator it returns a scorer with other options: ``ndcg_scorer(k=10)``.

    Parameters
    ----------
    metric : callable
        ``metric(y, scores, ..., **options)``.
    sign : {1, -1}
        -1 where smaller values of the metric are better.
    options : dict
        Arguments of the metric, k for example.
    compares_rows : bool
        Whether rows are compared with each other; a regression measure compares each with its own target.

    Notes
    -----
    The scores are ``estimator.predict(X)``; of an estimator with classes ``decision_function(X)``, or of a binary
    classifier without it the second column of ``predict_proba(X)``, since class labels do not define an order.

    Metadata is routed by scikit-learn only under ``enable_metadata_routing=True``. Otherwise the functions of
    scikit-learn call the scorer without ``qid``, and all rows of a test set are compared with each other; a direct
    call takes ``qid`` in either case.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.linear_model import Ridge
    >>> from preflearn.metrics import concordance_scorer, ndcg_scorer
    >>> X, y, qid = np.array([[1.0], [2.0], [9.0], [8.0]]), [0, 1, 0, 1], [1, 1, 2, 2]
    >>> model = Ridge().fit(X, y)
    >>> concordance_scorer(model, X, y, qid=qid)
    0.5
    >>> ndcg_scorer(k=1)
    ndcg_scorer(k=1)
    """

    def __init__(
        self,
        metric: Callable[..., float],
        sign: int = 1,
        options: dict[str, Any] | None = None,
        *,
        compares_rows: bool = True,
    ) -> None:
        self._metric = metric
        self._sign = sign
        self._options = options or {}
        self.compares_rows = compares_rows
        self._requests: dict[str, bool | str | None] = {
            name: name == "qid" or None for name in _METADATA if name in inspect.signature(metric).parameters
        }

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        """``scorer(estimator, X, y, *, qid=None, sample_weight=None)``, or ``scorer(**options)``."""
        if not arguments and "estimator" not in keywords:
            return self.with_options(**keywords)
        return self._score(*arguments, **keywords)

    def _score(self, estimator: Any, X: Any, y: Any, **metadata: Any) -> float:
        metadata = {name: value for name, value in metadata.items() if value is not None}
        unknown = sorted(set(metadata) - set(self._requests))
        if unknown:
            raise TypeError(
                f"{self!r} takes {', '.join(self._requests) or 'no metadata'} besides estimator, X and y: "
                f"found {', '.join(unknown)}."
            )
        return self.measure(y, _scores(estimator, X, metadata.get("qid")), **metadata)

    def measure(self, y: Any, scores: Any, qid: Any = None, sample_weight: Any = None) -> float:
        """The value of precomputed scores; the metric with its sign, so that greater is better."""
        given = {"qid": qid, "sample_weight": sample_weight}
        metadata = {name: value for name, value in given.items() if value is not None}
        return self._sign * self._metric(y, scores, **self._options, **metadata)

    @property
    def metric_name(self) -> str:
        """The name of the metric without its options."""
        return self._metric.__name__

    @property
    def options(self) -> dict[str, Any]:
        """Arguments of the metric."""
        return dict(self._options)

    def measure_within(self, y: np.ndarray, scores: np.ndarray, qid: Any) -> float:
        """The value of predictions of which only those with the same label may be compared.

        Parameters
        ----------
        y, scores : ndarray of shape (m, v)
            The value is the mean over the outputs.
        qid : array-like of shape (m,)
            A regression measure does not compare rows and ignores it.
        """
        if not self.compares_rows:
            return float(self.measure(y, scores))
        if "qid" in self._requests:
            return float(np.mean([self.measure(y[:, k], scores[:, k], qid) for k in range(y.shape[1])]))
        return float(np.mean([_auc_within(y[:, k], scores[:, k], qid) for k in range(y.shape[1])]))

    @property
    def has_per_query(self) -> bool:
        """Whether the value is a mean over queries."""
        return "per_query" in inspect.signature(self._metric).parameters

    def per_query(self, y: Any, scores: Any, qid: Any = None) -> PerQuery:
        """The value in each query of precomputed scores, with the sign, so that greater is better."""
        if not self.has_per_query:
            raise TypeError(
                f"{self._metric.__name__} has no value per query: use 'concordance', which takes qid."
            )
        found: Any = self._metric(y, scores, qid, per_query=True, **self._options)
        return PerQuery(found.labels, self._sign * found.values)

    def with_options(self, **options: Any) -> RankingScorer:
        """The same scorer with other options of its metric; an unknown option is an error."""
        known = set(inspect.signature(self._metric).parameters) - _DATA
        unknown = sorted(set(options) - known)
        if unknown:
            raise TypeError(
                f"{self._metric.__name__} has no option {', '.join(map(repr, unknown))}: "
                f"expected {', '.join(map(repr, sorted(known))) or 'none'}."
            )
        check_options(**{option: value for option, value in options.items() if option in _COMMON_OPTIONS})
        changed = copy(self)
        changed._options = {**self._options, **options}
        return changed

    def set_score_request(self, **requests: bool | str | None) -> RankingScorer:
        """A scorer that requests other metadata, with the meaning of scikit-learn's method of this name.

        Returns a new scorer; the shared ones of this module are not changed.
        """
        unknown = sorted(set(requests) - set(self._requests))
        if unknown:
            raise TypeError(
                f"{self!r} can ask for {', '.join(self._requests) or 'no metadata'}: found {', '.join(unknown)}."
            )
        changed = copy(self)
        changed._requests = {**self._requests, **requests}
        return changed

    def get_metadata_routing(self) -> MetadataRequest:
        """What the scorer requests from scikit-learn's metadata routing."""
        request = MetadataRequest(owner=self)
        for name, alias in self._requests.items():
            request.score.add_request(param=name, alias=alias)
        return request

    def _accept_sample_weight(self) -> bool:
        # Called by scikit-learn's scorer of several metrics where routing is off.
        return "sample_weight" in self._requests

    def __repr__(self) -> str:
        options = ", ".join(f"{name}={value!r}" for name, value in self._options.items())
        return f"{self._metric.__name__}_scorer" + (f"({options})" if options else "")


def _scores(estimator: Any, X: Any, qid: Any = None) -> np.ndarray:
    """The scores by which an estimator ranks."""
    if hasattr(estimator, "decision_function"):
        scores = np.asarray(estimator.decision_function(X))
    elif not is_classifier(estimator):
        return predict_scores(estimator, X, qid)
    elif hasattr(estimator, "predict_proba"):
        scores = np.asarray(estimator.predict_proba(X))
        scores = scores[:, 1] if scores.ndim == 2 and scores.shape[1] == 2 else scores
    else:
        raise TypeError(
            f"{type(estimator).__name__} is a classifier with neither decision_function nor predict_proba: "
            "its class labels do not define an order."
        )
    if scores.ndim != 1:
        raise ValueError(
            f"{type(estimator).__name__} gives {scores.shape[1]} scores per row, one per class: a ranking needs a "
            "binary classifier or a regressor."
        )
    return scores


def _auc_within(y: np.ndarray, scores: np.ndarray, qid: Any) -> float:
    """The AUC inside queries (or folds), averaged over those that hold both classes."""
    if np.unique(y).shape[0] != 2:
        raise ValueError("scoring='auc' needs y with two values: use scoring='concordance'.")
    return _ENTRIES["concordance"].scorer.measure(y, scores, qid)


@dataclass(frozen=True)
class Metric:
    """What is known of a metric by its name.

    Attributes
    ----------
    scorer : RankingScorer
    title : str
        As reports call it.
    limits : tuple of two float
        The smallest and the largest value of the scorer.
    chance : float or None
        The value of random scores, where it does not depend on the data.
    """

    scorer: RankingScorer
    title: str
    limits: tuple[float, float] = (0.0, 1.0)
    chance: float | None = None


_ENTRIES: dict[str, Metric] = {}
_ALIASES: dict[str, str] = {}
# Options whose values are checked when a scorer is made.
_COMMON_OPTIONS = frozenset(inspect.signature(check_options).parameters)
_Function = TypeVar("_Function", bound=Callable[..., Any])


def metric_entry(
    name: str,
    *,
    title: str | None = None,
    aliases: tuple[str, ...] = (),
    higher_is_better: bool = True,
    limits: tuple[float, float] = (0.0, 1.0),
    chance: float | None = None,
    compares_rows: bool = True,
) -> Callable[[_Function], _Function]:
    """Register ``metric(y, scores, qid, ...)``, whole as it is, under its names; a decorator.

    Raises
    ------
    ValueError
        If a name is taken.
    """

    def register(metric: _Function) -> _Function:
        sign, prefix = (1, "") if higher_is_better else (-1, "neg_")
        full, others = prefix + name, (*aliases, *([name] if prefix else []))
        taken = sorted({full, *others} & (set(_ENTRIES) | set(_ALIASES)))
        if taken:
            raise ValueError(
                f"There is a metric named {', '.join(map(repr, taken))} already: choose another name."
            )
        if not all(re.fullmatch(r"[a-z]\w*", one) for one in (full, *others)):
            raise ValueError(f"A metric has a name in small letters, digits and underscores: found {name!r}.")
        scorer = RankingScorer(metric, sign, compares_rows=compares_rows)
        _ENTRIES[full] = Metric(scorer, title or full.replace("_", " "), limits, chance)
        _ALIASES.update(dict.fromkeys(others, full))
        return metric

    return register


def register_metric(
    name: str,
    *,
    higher_is_better: bool = True,
    title: str | None = None,
    limits: tuple[float, float] = (-np.inf, np.inf),
    chance: float | None = None,
) -> Callable[[Callable[..., float]], Callable[..., Any]]:
    """Add a metric that is defined for one query; a decorator.

    Queries, checks of the input, ties, the mean over queries, intervals, the scorer, and the name in ``scoring``, in
    reports and on the command line are supplied.

    Parameters
    ----------
    name : str
        For ``scoring``; an error (``higher_is_better=False``) is negated there, and its name begins with ``neg_``.
    higher_is_better : bool, default=True
    title : str, optional
        For reports; the name by default.
    limits : tuple of two float, optional
        The smallest and the largest value, to which intervals are confined; of an error those of the negated value.
    chance : float, optional
        The value of random scores, drawn as a line in plots.

    Returns
    -------
    decorator
        Takes ``measure(grades, **options)``: grades of the rows of one query as an array, in the order of their scores,
        best first. It returns a number, NaN where the metric is not defined (such queries are left out of the mean);
        its options are keyword arguments with defaults. The result is a function ``metric(y, scores, qid=None, *,
        per_query=False, **options)``.

    Raises
    ------
    ValueError
        If the name is taken.

    Notes
    -----
    Rows with equal scores are taken in random order: the value is the mean over 16 fixed random orders where a query
    has such rows.

    Examples
    --------
    >>> from preflearn.metrics import get_scorer, register_metric
    >>> @register_metric("best_on_top")
    ... def best_on_top(grades):
    ...     return float(grades[0] == grades.max())
    >>> best_on_top([1, 2, 0, 0], [0.1, 0.9, 0.3, 0.2], qid=["a", "a", "b", "b"])
    1.0
    >>> get_scorer("best_on_top")
    best_on_top_scorer
    """

    def register(measure: Callable[..., float]) -> Callable[..., Any]:
        options = list(inspect.signature(measure).parameters.values())[1:]

        @wraps(measure)
        def metric(y: Any, scores: Any, qid: Any = None, *, per_query: bool = False, **given: Any) -> Any:
            rows = check_rows(y, scores, qid)
            values = np.array(
                [
                    _over_ties(measure, rows.y[mine, 0], rows.scores[mine, 0], given)
                    for mine in map(rows.queries.rows, range(rows.queries.n_groups))
                ]
            )
            found = rows.per_query(values)
            reason = "it is NaN in every query."
            return found if per_query else mean_or_refuse(found, metric=name, reason=reason)

        named = list(inspect.signature(metric, follow_wrapped=False).parameters.values())[:-1]
        keywords = [one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in options]
        metric.__signature__ = inspect.Signature([*named, *keywords])  # type: ignore[attr-defined]
        entry = metric_entry(
            name, title=title, higher_is_better=higher_is_better, limits=limits, chance=chance
        )
        return entry(metric)

    return register


def _over_ties(
    measure: Callable[..., float],
    y: np.ndarray,
    scores: np.ndarray,
    options: dict[str, Any],
    n_orders: int = 16,
) -> float:
    """The value of one query, averaged over random orders of rows with equal scores."""
    if np.unique(scores).shape[0] == scores.shape[0]:
        return float(measure(y[np.argsort(-scores)], **options))
    rng = np.random.default_rng(0)
    orders = [np.lexsort((rng.random(y.shape), -scores)) for _ in range(n_orders)]
    return float(np.mean([measure(y[order], **options) for order in orders]))


def _register_regression(metric: Callable[..., float], name: str, sign: int, least: float) -> None:
    limits = (least, 1.0 if sign > 0 else 0.0)
    scorer = RankingScorer(metric, sign, compares_rows=False)
    _ENTRIES[name] = Metric(scorer, name.replace("_", " "), limits)


_register_regression(regression.r2_score, "r2", 1, -np.inf)
_register_regression(regression.explained_variance_score, "explained_variance", 1, -np.inf)
_register_regression(regression.mean_squared_error, "neg_mean_squared_error", -1, -np.inf)
_register_regression(regression.root_mean_squared_error, "neg_root_mean_squared_error", -1, -np.inf)
_register_regression(regression.mean_absolute_error, "neg_mean_absolute_error", -1, -np.inf)
_register_regression(regression.median_absolute_error, "neg_median_absolute_error", -1, -np.inf)


def scorer_names() -> tuple[str, ...]:
    """The names of the registry, those of rankings first, short ones last."""
    return (*sorted(_ENTRIES, key=lambda name: not _ENTRIES[name].scorer.compares_rows), *_ALIASES)


def named_metric(name: str) -> Metric:
    """The entry of a name that `full_name` has read, with or without a number of positions."""
    return _ENTRIES[name.partition("@")[0]]


def metric_title(name: str) -> str:
    """A metric as it is usually written; what is no metric of a ranking keeps its name.

    Examples
    --------
    >>> metric_title("ndcg@10"), metric_title("accuracy over judges")
    ('NDCG@10', 'accuracy over judges')
    """
    base, at, k = name.partition("@")
    return _ENTRIES[base].title + at + k if base in _ENTRIES else name


def metric_functions() -> set[Callable[..., Any]]:
    """The functions of labels and scores behind the names: what a scorer of a model file may call."""
    return {entry.scorer._metric for entry in _ENTRIES.values()}


def get_scorer(name: str | Callable[..., Any], **options: Any) -> Any:
    """A scorer by its name.

    Parameters
    ----------
    name : str or callable
        "concordance", "neg_disagreement_error", "auc", "kendall_tau", "volume_under_surface" (or "vus"), "ndcg",
        "average_precision" (or "map"), "reciprocal_rank" (or "mrr"), "err" or "precision"; a name of `register_metric`;
        of two classes "f1" and "class_accuracy"; of differences "neg_mean_squared_pair_error"; of a regression "r2",
        "explained_variance", "neg_mean_squared_error", "neg_root_mean_squared_error", "neg_mean_absolute_error" or
        "neg_median_absolute_error". A number of positions may follow an at sign: "ndcg@10", "precision@5". A callable
        is returned unchanged.
    **options
        Options of the metric, ``gain="linear"`` for example.

    Returns
    -------
    RankingScorer

    Examples
    --------
    >>> from preflearn.metrics import get_scorer
    >>> get_scorer("ndcg@10", gain="linear")
    ndcg_scorer(k=10, gain='linear')
    """
    if callable(name):
        if options:
            raise TypeError(
                f"options ({', '.join(options)}) go with the name of a metric, not with a callable."
            )
        return name
    base, at, k = full_name(name).partition("@")
    if at:
        if "k" in options:
            raise ValueError(f"the number of positions is given twice: {k} and {options['k']}.")
        options = {"k": int(k), **options}
    return _ENTRIES[base].scorer.with_options(**options)


def full_name(name: str) -> str:
    """The name in the registry for what users type, with its number of positions.

    Raises
    ------
    ValueError
        If there is no such metric.

    Examples
    --------
    >>> full_name("MAP"), full_name("NDCG@5"), full_name("p@3")
    ('average_precision', 'ndcg@5', 'precision@3')
    """
    match = re.fullmatch(r"(\w+?)(@\d+)?", name.strip().lower()) if isinstance(name, str) else None
    base = "" if match is None else _ALIASES.get(match[1], match[1])
    if match is None or base not in _ENTRIES:
        raise ValueError(
            f"unknown metric {name!r}: expected one of {', '.join(map(repr, scorer_names()))}, or one with a number "
            "of positions such as 'ndcg@10'."
        )
    return base + (match[2] or "")
