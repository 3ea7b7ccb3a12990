"""Linear models for search engines: what the learning-to-rank modules of Solr and Elasticsearch take.

Both compute Σ w_j x_j over stored features, without an intercept: it adds the same to every item, so the order of the
items is that of ``predict``. With a scaling z = (x - μ) / σ before it, w · z + c is the function
(w / σ) · x + c - (w / σ) · μ of the features as they come: scaling, and selection of features, are folded into the
weights. Each feature is read from the numeric field of its name; definitions of features that you have already take
its place.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from sklearn.preprocessing import MaxAbsScaler, MinMaxScaler, RobustScaler, StandardScaler

from ...numerics.onnx_graph import ExportError
from .types import is_ours

SOLR_LINEAR = "org.apache.solr.ltr.model.LinearModel"
_SOLR_FIELD = "org.apache.solr.ltr.feature.FieldValueFeature"
ELASTICSEARCH_LINEAR = "model/linear"


class Definitions(NamedTuple):
    """What is uploaded, as it is written in JSON.

    Attributes
    ----------
    features : list or dict
        First: the features.
    model : dict
        Then: the model that refers to them.
    """

    features: Any
    model: dict[str, Any]


def to_solr(
    model: Any, *, name: str = "preflearn", feature_names: Sequence[str] | None = None
) -> Definitions:
    """A linear model for the learning-to-rank module of Apache Solr.

    Parameters
    ----------
    model : fitted linear learner, or Pipeline of scalers and one
    name : str, default="preflearn"
        Of the model and of its feature store.
    feature_names : sequence of str, optional
        Fields of the documents; by default the names that the model was fitted with, or x0, x1, ...

    Returns
    -------
    Definitions
        ``features`` for ``/schema/feature-store``, ``model`` for ``/schema/model-store``.

    Raises
    ------
    ExportError
        If the model is not linear in its inputs.

    Examples
    --------
    >>> from preflearn import RankRLS
    >>> from preflearn.io import to_solr
    >>> features, model = to_solr(RankRLS().fit([[0.0], [2.0]], [0, 1]), feature_names=["price"])
    >>> features[0]["params"], sorted(model["params"]["weights"])
    ({'field': 'price'}, ['price'])
    """
    weights = _named_weights(model, feature_names)
    features = [
        {"store": name, "name": field, "class": _SOLR_FIELD, "params": {"field": field}} for field in weights
    ]
    definition = {
        "store": name,
        "name": name,
        "class": SOLR_LINEAR,
        "features": [{"name": field} for field in weights],
        "params": {"weights": weights},
    }
    return Definitions(features, definition)


def to_elasticsearch(
    model: Any, *, name: str = "preflearn", feature_names: Sequence[str] | None = None
) -> Definitions:
    """A linear model for the learning-to-rank plugin of Elasticsearch (and OpenSearch).

    Parameters
    ----------
    model, name, feature_names
        As in `to_solr`; ``name`` is that of the feature set and of the model.

    Returns
    -------
    Definitions
        ``features`` for ``_ltr/_featureset/NAME``, ``model`` for ``_ltr/_featureset/NAME/_createmodel``.

    Raises
    ------
    ExportError
        If the model is not linear in its inputs.

    Notes
    -----
    Scores of Elasticsearch queries are not negative, so that a field with negative values cannot be read by the
    ``field_value_factor`` that is written here: index such a field shifted, which does not change the order.

    Examples
    --------
    >>> from preflearn import RankRLS
    >>> from preflearn.io import to_elasticsearch
    >>> features, model = to_elasticsearch(RankRLS().fit([[0.0], [2.0]], [0, 1]), feature_names=["price"])
    >>> model["model"]["model"]["type"]
    'model/linear'
    """
    weights = _named_weights(model, feature_names)
    features = [
        {
            "name": field,
            "params": [],
            "template_language": "mustache",
            "template": {
                "function_score": {
                    "query": {"match_all": {}},
                    "field_value_factor": {"field": field, "missing": 0},
                    "boost_mode": "replace",
                }
            },
        }
        for field in weights
    ]
    definition = {"type": ELASTICSEARCH_LINEAR, "definition": json.dumps(weights, ensure_ascii=False)}
    return Definitions(
        {"featureset": {"name": name, "features": features}}, {"model": {"name": name, "model": definition}}
    )


def _named_weights(model: Any, feature_names: Sequence[str] | None) -> dict[str, float]:
    """The weights that are not zero, by the name of their feature."""
    weights, _ = folded_weights(model)
    names = _names(model, feature_names, weights.shape[0])
    found = {
        name: float(weight) for name, weight in zip(names, weights.tolist(), strict=True) if weight != 0.0
    }
    if not found:
        raise ExportError("All weights of the model are zero: there is no order to export.")
    return found


def _names(model: Any, given: Sequence[str] | None, n_features: int) -> list[str]:
    first = model.steps[0][1] if hasattr(model, "steps") else model
    if given is None and hasattr(first, "encoders_"):
        given = list(first.encoders_)
    if given is None:
        given = getattr(model, "feature_names_in_", [f"x{place}" for place in range(n_features)])
    names = [str(name) for name in given]
    if len(names) != n_features:
        raise ValueError(f"feature_names has {len(names)} names, and the model {n_features} features.")
    if len(set(names)) != len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"feature_names has {twice!r} twice: a search engine knows features by their names.")
    return names


def folded_weights(model: Any) -> tuple[np.ndarray, float]:
    """Weights and intercept of a linear model on its inputs, the steps before it folded in.

    Parameters
    ----------
    model : fitted estimator or Pipeline
        Scalers (standard, min-max, max-abs, robust), selectors of features, and a `TableEncoder` of numbers without
        missing values may come before a learner of preflearn with a linear kernel.

    Returns
    -------
    weights : ndarray of shape (n,)
    intercept : float

    Raises
    ------
    ExportError
        Naming the step that is not linear, or the columns of a table that are not numbers.

    Examples
    --------
    >>> from preflearn import RankRLS
    >>> from sklearn.pipeline import make_pipeline
    >>> X = np.array([[1.0, 100.0], [2.0, 300.0], [3.0, 200.0]])
    >>> model = make_pipeline(StandardScaler(), RankRLS()).fit(X, [1.0, 3.0, 2.0])
    >>> weights, intercept = folded_weights(model)
    >>> bool(np.allclose(X @ weights + intercept, model.predict(X)))
    True
    """
    *before, last = [step for _, step in model.steps] if hasattr(model, "steps") else [model]
    weights, intercept = _of_learner(last)
    for place, step in reversed(list(enumerate(before))):
        weights, constant = _fold(step, weights, is_first=place == 0)
        intercept += constant
    return weights, intercept


def _of_learner(learner: Any) -> tuple[np.ndarray, float]:
    coef, intercept = getattr(learner, "coef_", None), getattr(learner, "intercept_", 0.0)
    name = type(learner).__name__
    if not is_ours(type(learner)) or coef is None:
        raise ExportError(
            f"{name} is not a linear learner of preflearn with weights (coef_): fit RankRLS, RLS, RankSVM or "
            "BradleyTerry with kernel='linear' and without a reduced set."
        )
    if np.ndim(coef) != 1 or np.ndim(intercept) != 0:
        raise ExportError(f"{name} has {np.shape(coef)[0]} outputs, and an order needs one: fit one of them.")
    return np.array(coef, dtype=np.float64), float(intercept)


def _fold(step: Any, weights: np.ndarray, *, is_first: bool) -> tuple[np.ndarray, float]:
    """Weights on the inputs of a step, and what is added to the intercept."""
    if step is None or step == "passthrough":
        return weights, 0.0
    if hasattr(step, "get_support"):  # a selector of features
        support = step.get_support()
        out = np.zeros(support.shape[0])
        out[support] = weights
        return out, 0.0
    if is_first and hasattr(step, "encoders_"):
        _refuse_unless_numbers(step)
        return weights, 0.0
    centre, scale = _centre_and_scale(step)
    weights = weights / scale
    return weights, -float(weights @ centre)


def _refuse_unless_numbers(encoder: Any) -> None:
    """A table whose columns are encoded as themselves."""
    unlike = [name for name, one in encoder.encoders_.items() if one.names(name) != [name]]
    if unlike:
        raise ExportError(
            f"Column(s) {', '.join(map(repr, unlike))} of the table are not single numbers without missing values "
            "(categories, dates and texts become several features): train without them, or on numeric features."
        )


def _centre_and_scale(step: Any) -> tuple[np.ndarray, np.ndarray]:
    """μ and σ of z = (x - μ) / σ."""
    n = getattr(step, "n_features_in_", 0)
    centre, scale = np.zeros(n), np.ones(n)
    if type(step) is StandardScaler:
        centre = step.mean_ if step.with_mean else centre
        scale = step.scale_ if step.with_std else scale
    elif type(step) is RobustScaler:
        centre = step.center_ if step.with_centering else centre
        scale = step.scale_ if step.with_scaling else scale
    elif type(step) is MaxAbsScaler and not getattr(step, "clip", False):
        scale = step.scale_
    elif type(step) is MinMaxScaler and not step.clip:
        scale = 1.0 / step.scale_
        centre = -step.min_ * scale
    else:
        raise ExportError(
            f"{type(step).__name__} cannot be folded into the weights of a linear model: StandardScaler, MinMaxScaler, "
            "MaxAbsScaler and RobustScaler without clipping, and selectors of features can; what depends on the other "
            "items of the query cannot."
        )
    return np.asarray(centre, dtype=np.float64), np.asarray(scale, dtype=np.float64)
