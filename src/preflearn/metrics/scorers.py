"""The registry: every measure under its name, as a scikit-learn scorer that receives ``qid`` by metadata routing.

    with sklearn.config_context(enable_metadata_routing=True):
        cross_val_score(estimator, X, y, scoring=ndcg_scorer(k=10), params={"qid": qid})

A scorer requests ``qid`` by default, so users need not request it. Higher is better for all of them: errors are
negated, and named ``neg_...`` as in scikit-learn. Everything that takes ``scoring`` reads names here: the searches, the
held-out object, streams, the command line. A new metric is one line of ``_SCORERS``.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from copy import copy
from typing import Any

import numpy as np
from sklearn import metrics as regression
from sklearn.base import is_classifier
from sklearn.utils.metadata_routing import MetadataRequest

from .by_query import PerQuery, check_options, predict_scores
from .listwise import average_precision, err, ndcg, precision_at, reciprocal_rank
from .pairwise import auc, concordance, disagreement_error, kendall_tau

_METADATA = ("qid", "sample_weight")
# Arguments of metrics that are data rather than options.
_DATA = {"y", "scores", "y_true", "y_pred", "per_query", *_METADATA}


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
    The scores are ``estimator.predict(X)``; of a binary classifier ``decision_function(X)`` or, where it has none,
    the second column of ``predict_proba(X)``, since class labels do not define an order.

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

    def measure_each(self, y: np.ndarray, predictions: np.ndarray, qid: Any) -> np.ndarray:
        """`measure_within` of several predictions of the same y, shape (a, m, v) to (a,)."""
        if y.shape[1] == 1 < predictions.shape[0] and self._metric in _METRICS_OF_OUTPUTS:
            # One check of y and qid for all of them: each is an output.
            columns = np.ascontiguousarray(predictions[:, :, 0].T)
            values = self.per_query(np.broadcast_to(y, columns.shape), columns, qid).means
            if not np.isnan(values).any():
                return values
        return np.array([self.measure_within(y, scores, qid) for scores in predictions])

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
        check_options(**options)
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
    if not is_classifier(estimator):
        return predict_scores(estimator, X, qid)
    if hasattr(estimator, "decision_function"):
        scores = np.asarray(estimator.decision_function(X))
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
    return concordance(y, scores, qid)


concordance_scorer = RankingScorer(concordance)
disagreement_error_scorer = RankingScorer(disagreement_error, sign=-1)
auc_scorer = RankingScorer(auc)
kendall_tau_scorer = RankingScorer(kendall_tau)
ndcg_scorer = RankingScorer(ndcg)
average_precision_scorer = RankingScorer(average_precision)
reciprocal_rank_scorer = RankingScorer(reciprocal_rank)
err_scorer = RankingScorer(err)
precision_at_scorer = RankingScorer(precision_at)


# Those that measure several outputs in one call.
_METRICS_OF_OUTPUTS = (concordance, disagreement_error)


def _regression_scorer(metric: Callable[..., float], sign: int = 1) -> RankingScorer:
    return RankingScorer(metric, sign, compares_rows=False)


_SCORERS: dict[str, RankingScorer] = {
    "concordance": concordance_scorer,
    "neg_disagreement_error": disagreement_error_scorer,
    "auc": auc_scorer,
    "kendall_tau": kendall_tau_scorer,
    "ndcg": ndcg_scorer,
    "average_precision": average_precision_scorer,
    "reciprocal_rank": reciprocal_rank_scorer,
    "err": err_scorer,
    "precision": precision_at_scorer,
    "r2": _regression_scorer(regression.r2_score),
    "explained_variance": _regression_scorer(regression.explained_variance_score),
    "neg_mean_squared_error": _regression_scorer(regression.mean_squared_error, -1),
    "neg_root_mean_squared_error": _regression_scorer(regression.root_mean_squared_error, -1),
    "neg_mean_absolute_error": _regression_scorer(regression.mean_absolute_error, -1),
    "neg_median_absolute_error": _regression_scorer(regression.median_absolute_error, -1),
}
_ALIASES = {
    "map": "average_precision",
    "mrr": "reciprocal_rank",
    "p": "precision",
    "precision_at": "precision",
    "roc_auc": "auc",
    "tau": "kendall_tau",
    "disagreement_error": "neg_disagreement_error",
}


def scorer_names() -> tuple[str, ...]:
    """The names of the registry, short ones included."""
    return (*_SCORERS, *_ALIASES)


def get_scorer(name: str | Callable[..., Any], **options: Any) -> Any:
    """A scorer by its name.

    Parameters
    ----------
    name : str or callable
        "concordance", "neg_disagreement_error", "auc", "kendall_tau", "ndcg", "average_precision" (or "map"),
        "reciprocal_rank" (or "mrr"), "err" or "precision"; of a regression "r2", "explained_variance",
        "neg_mean_squared_error", "neg_root_mean_squared_error", "neg_mean_absolute_error" or
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
    return _SCORERS[base].with_options(**options)


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
    if match is None or base not in _SCORERS:
        raise ValueError(
            f"unknown metric {name!r}: expected one of {', '.join(map(repr, scorer_names()))}, or one with a number "
            "of positions such as 'ndcg@10'."
        )
    return base + (match[2] or "")
