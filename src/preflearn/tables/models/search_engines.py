"""Linear models for search engines: what the learning-to-rank modules of Solr and Elasticsearch take.

Both compute Σ w_j x_j over stored features, without an intercept: it adds the same to every item, so the order of the
items is that of ``predict``. Scaling is folded into the weights (`linear_weights`). Each feature is read
from the numeric field of its name; definitions of features that you have already take its place.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

from ...numerics.onnx_graph import ExportError
from .linear_weights import folded_weights

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
