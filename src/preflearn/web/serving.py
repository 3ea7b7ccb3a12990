"""A saved model behind HTTP: items in, scores and their order out.

    POST /rank     {"items": [{"price": 3.5, ...}, ...]}  ->  {"scores": [...], "order": [row numbers, best first]}
    GET  /schema   the features that an item has, with their types
    GET  /health   whether it is up, and what it serves
    GET  /metrics  counts and durations as Prometheus reads them

The items of one request are one list to rank. A malformed request is answered with what was found, where and what was
expected, and changes nothing.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from ..io.linear_weights import folded_weights
from ..metrics.predictions import predict_scores
from ..numerics.graph import ExportError
from .requests import RefusedError, read_json

_MOST_BYTES = 16 * 1024 * 1024
_MOST_ITEMS = 100_000
# Up to so many items are scored at once, without the detour of a thread.
_FEW = 200
# Seconds that a request may take to arrive.
_ARRIVAL = 30.0
_BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)


@dataclass(frozen=True)
class Feature:
    """One value of an item.

    Attributes
    ----------
    name : str
    type : {"number", "boolean", "category", "date", "text"}
    absent : object
        What an item without it counts as; ``...`` where every item must have it.
    """

    name: str
    type: str = "number"
    absent: Any = ...

    @property
    def required(self) -> bool:
        return self.absent is ...


@dataclass(frozen=True)
class Scorer:
    """How items become scores.

    Attributes
    ----------
    features : sequence of Feature
    score : function from a mapping of names to columns to an ndarray of scores
    name : str
        Of the model, for /health.
    ignored : frozenset of str
        Further names that an item may have, such as columns that the training set aside.
    """

    features: Sequence[Feature]
    score: Callable[[Mapping[str, list[Any]]], np.ndarray]
    name: str
    ignored: frozenset[str] = frozenset()

    def columns(self, items: Any) -> dict[str, list[Any]]:
        """The values of the items by feature.

        Raises
        ------
        RefusedError
            422, with the place of what is wrong.
        """
        if not isinstance(items, list) or not items:
            raise RefusedError(
                "items: expected a list of at least one item, each an object of features.", 422
            )
        if len(items) > _MOST_ITEMS:
            raise RefusedError(f"items: found {len(items)}, expected at most {_MOST_ITEMS} a request.", 413)
        known = {feature.name for feature in self.features} | self.ignored
        for row, item in enumerate(items):
            if not isinstance(item, dict):
                raise RefusedError(f"items[{row}]: found {_kind(item)}, expected an object of features.", 422)
            if not known.issuperset(item):
                strange = next(name for name in item if name not in known)[:80]
                raise RefusedError(
                    f"items[{row}].{strange}: no feature of the model has this name; GET /schema lists them.",
                    422,
                )
        return {feature.name: _column(feature, items) for feature in self.features}


def _column(feature: Feature, items: Sequence[Mapping[str, Any]]) -> list[Any]:
    name, absent = feature.name, feature.absent
    values = [item.get(name) for item in items]
    good = _TYPES[feature.type]
    for row, value in enumerate(values):
        if value is None:
            if absent is ...:
                raise RefusedError(f"items[{row}].{name}: missing, expected a {feature.type}.", 422)
            values[row] = absent
        elif type(value) not in good or (type(value) in (int, float) and not abs(value) <= _LARGEST):
            raise RefusedError(
                f"items[{row}].{name}: found {_kind(value)}, expected a {_WORDS[feature.type]}.", 422
            )
    return values


_LARGEST = float(np.finfo(float).max)
_TYPES: dict[str, set[type]] = {
    "number": {int, float},
    "boolean": {bool, int, float, str},
    "category": {str, int, float, bool},
    "date": {str, int, float},
    "text": {str},
}
_WORDS = {
    "number": "finite number",
    "boolean": "true or false",
    "category": "category, a text or a number",
    "date": "date, as text",
    "text": "text",
}


def _kind(value: Any) -> str:
    if isinstance(value, (dict, list)):
        return "an object" if isinstance(value, dict) else "a list"
    return repr(value)[:60]


class Metrics:
    """Counts of requests and items, and how long requests took."""

    def __init__(self) -> None:
        self.requests: Counter[tuple[str, int]] = Counter()
        self.items = 0
        self.seconds = 0.0
        self.buckets = [0] * (len(_BOUNDS) + 1)

    def note(self, path: str, status: int, seconds: float) -> None:
        self.requests[path, status] += 1
        if path == "/rank":
            self.seconds += seconds
            self.buckets[sum(seconds > bound for bound in _BOUNDS)] += 1

    def text(self) -> str:
        """The exposition format of Prometheus."""
        lines = [
            "# HELP preflearn_requests_total Requests by path and status.",
            "# TYPE preflearn_requests_total counter",
        ]
        for (path, status), count in sorted(self.requests.items()):
            lines.append(f'preflearn_requests_total{{path="{path}",status="{status}"}} {count}')
        lines += [
            "# HELP preflearn_items_total Items scored.",
            "# TYPE preflearn_items_total counter",
            f"preflearn_items_total {self.items}",
            "# HELP preflearn_rank_seconds Seconds from request to response of /rank.",
            "# TYPE preflearn_rank_seconds histogram",
        ]
        total = 0
        for bound, count in zip((*_BOUNDS, "+Inf"), self.buckets):
            total += count
            lines.append(f'preflearn_rank_seconds_bucket{{le="{bound}"}} {total}')
        lines += [f"preflearn_rank_seconds_sum {self.seconds:.6f}", f"preflearn_rank_seconds_count {total}"]
        return "\n".join(lines) + "\n"


def serve_app(scorer: Scorer) -> Starlette:
    """The application of a model.

    Parameters
    ----------
    scorer : Scorer

    Returns
    -------
    Starlette
    """
    metrics = Metrics()

    async def rank(request: Request) -> Response:
        try:
            async with asyncio.timeout(_ARRIVAL):
                body = await read_json(request, _MOST_BYTES)
        except TimeoutError:
            raise RefusedError(f"The request did not arrive within {_ARRIVAL:g} seconds.", 408) from None
        unknown = [name for name in body if name != "items"]
        if unknown:
            raise RefusedError(f"{unknown[0][:80]}: unknown, expected 'items' alone.", 422)
        columns = scorer.columns(body.get("items"))
        n = len(body["items"])
        try:
            scores = scorer.score(columns) if n <= _FEW else await run_in_threadpool(scorer.score, columns)
        except ValueError as error:
            raise RefusedError(f"items: {error}", 422) from None
        metrics.items += n
        order = np.argsort(-scores, kind="stable")
        return JSONResponse({"scores": scores.tolist(), "order": order.tolist()})

    async def health(request: Request) -> Response:
        return JSONResponse({"status": "ok", "model": scorer.name, "features": len(scorer.features)})

    async def schema(request: Request) -> Response:
        features = [{"name": one.name, "type": one.type, "required": one.required} for one in scorer.features]
        return JSONResponse({"features": features})

    async def exposed(request: Request) -> Response:
        return PlainTextResponse(metrics.text(), media_type="text/plain; version=0.0.4")

    def measured(path: str, handler: Callable[[Request], Any]) -> Callable[[Request], Any]:
        async def endpoint(request: Request) -> Response:
            start = time.perf_counter()
            try:
                response = await handler(request)
            except RefusedError as error:
                response = JSONResponse({"error": str(error)}, error.status)
            metrics.note(path, response.status_code, time.perf_counter() - start)
            return response

        return endpoint

    async def lost(request: Request, error: Exception) -> Response:
        status = error.status_code if isinstance(error, HTTPException) else 500
        return JSONResponse({"error": "There are POST /rank and GET /health, /schema and /metrics."}, status)

    async def failed(request: Request, error: Exception) -> Response:
        return JSONResponse({"error": f"internal error: {type(error).__name__}"}, 500)

    return Starlette(
        routes=[
            Route("/rank", measured("/rank", rank), methods=["POST"]),
            Route("/health", measured("/health", health)),
            Route("/schema", measured("/schema", schema)),
            Route("/metrics", exposed),
        ],
        exception_handlers={404: lost, 405: lost, 500: failed},
    )


# Models ---------------------------------------------------------------------------------------------------------------


def table_scorer(model: Any, encoder: Any, ignored: Iterable[str] = ()) -> Scorer:
    """A model of tables, by way of its `preflearn.preprocessing.TableEncoder`; items may bring what is ignored."""
    used = [Feature(name, _as_type(encoder.kinds_[name]), None) for name in encoder.encoders_]
    aside = frozenset({*encoder.kinds_, *ignored} - {*encoder.encoders_})

    def score(columns: Mapping[str, list[Any]]) -> np.ndarray:
        return _predict(model, columns, len(next(iter(columns.values()))))

    return Scorer(used, score, _name(model), aside)


def matrix_scorer(
    model: Any,
    names: Sequence[str],
    *,
    absent: Any = ...,
    ignored: frozenset[str] = frozenset(),
) -> Scorer:
    """A model of a matrix: numbers by name.

    Parameters
    ----------
    model : estimator
    names : sequence of str
        Of the numbers, in the order of the columns.
    absent : float or None
        What a missing number counts as; every item must have all of them by default.
    ignored : frozenset of str
    """
    linear = _weights(model)

    def score(columns: Mapping[str, list[Any]]) -> np.ndarray:
        X = np.array([columns[name] for name in names], dtype=np.float64).T
        if linear is not None:
            return X @ linear[0] + linear[1]
        return _predict(model, X, X.shape[0])

    features = [Feature(name, "number", absent) for name in names]
    return Scorer(features, score, _name(model), ignored)


def _predict(model: Any, X: Any, n_items: int) -> np.ndarray:
    """Scores of the items of a request, which are one query to a model with features relative to their query."""
    return _one_score(predict_scores(model, X, np.zeros(n_items, dtype=np.int64)))


def _weights(model: Any) -> tuple[np.ndarray, float] | None:
    """Weights and intercept of a linear model, scaling before it folded in: a tenth of the time of a pipeline."""
    try:
        return folded_weights(model)
    except ExportError:
        return None


def feature_names(model: Any) -> list[str]:
    """Names of the features of a fitted model; x0, x1, ... where it was trained without names.

    Raises
    ------
    ValueError
        If the model does not take features.
    """
    if hasattr(model, "feature_names_in_"):
        return [str(name) for name in model.feature_names_in_]
    n_features = getattr(model, "n_features_in_", None)
    if n_features is None or getattr(model, "kernel", None) in ("precomputed", "items"):
        raise ValueError(
            f"{_name(model)} does not predict from features, which is what a request brings: serve a model with a "
            "named kernel."
        )
    return [f"x{number}" for number in range(n_features)]


def _one_score(scores: np.ndarray) -> np.ndarray:
    if scores.ndim != 1:
        raise ValueError(f"the model gives {scores.shape[1]} scores to each item, and an order needs one")
    return scores


def _as_type(kind: str) -> str:
    return "text" if kind == "words" else kind


def _name(model: Any) -> str:
    return type(model[-1] if hasattr(model, "steps") else model).__name__
