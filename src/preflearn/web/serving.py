"""A saved model behind HTTP: items in, scores and their order out.

    POST /rank     {"items": [{"price": 3.5, ...}, ...]}  ->  {"scores": [...], "order": [row numbers, best first]}
                   with "set": 0.9 also {"set": [row numbers among which the best is with this probability]}
    GET  /schema   the features that an item has, with their types
    GET  /health   whether it is up, and what it serves
    GET  /metrics  counts and durations as Prometheus reads them

The items of one request are one list to rank. A malformed request is answered with what was found, where and what was
expected, and changes nothing: values of another type, dates and truth values that cannot be read, numbers so large that
the score is not finite. A category that training did not have is accepted: the model has a place for it.

When it listens only on this machine, it answers only requests to this machine's own names, so that no page of another
site can reach it by making a name of its own point here.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from sklearn import config_context
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from ..auto import AutoRanker
from ..comparisons import one_group
from ..metrics.by_query import wants_qid
from ..model_selection.calibrated import query_figures
from ..model_selection.conformal import LEAST_FOR_DRIFT, StoredSets
from ..numerics.onnx_graph import ExportError
from ..tables.cells import is_missing
from ..tables.encoding.frames import read_table
from ..tables.models.search_engines import folded_weights
from .requests import LOOPBACK, RefusedError, check_host, described, read_json

Endpoint = Callable[[Request], Awaitable[Response]]

_MOST_BYTES = 16 * 1024 * 1024
_MOST_ITEMS = 100_000
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
    unreadable : function from a list of distinct values to those that cannot be read, or None
    texts : mapping
        How its texts are read, as /schema tells: the ``decimal`` "point" or "comma" of numbers, whether dates are
        ``day_first``. Empty where a number as text is refused.
    """

    name: str
    type: str = "number"
    absent: Any = ...
    unreadable: Callable[[list[Any]], list[Any]] | None = None
    texts: Mapping[str, Any] = field(default_factory=dict)

    @property
    def required(self) -> bool:
        return self.absent is ...


@dataclass(frozen=True)
class Scorer:
    """How items become scores.

    Attributes
    ----------
    features : sequence of Feature
    score : function from a mapping of names to columns, lists or arrays of numbers, to an ndarray of scores
    name : str
        Of the model, for /health.
    ignored : frozenset of str
        Further names that an item may have, such as columns that the training set aside.
    sets : StoredSets or None
        What held-out queries needed; None where the model holds no sets.
    """

    features: Sequence[Feature]
    score: Callable[[Mapping[str, list[Any]]], np.ndarray]
    name: str
    ignored: frozenset[str] = frozenset()
    sets: StoredSets | None = None

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
        _refuse_many(len(items))
        known = {feature.name for feature in self.features} | self.ignored
        for row, item in enumerate(items):
            if not isinstance(item, dict):
                raise RefusedError(
                    f"items[{row}]: found {described(item)}, expected an object of features.", 422
                )
            if not known.issuperset(item):
                strange = next(name for name in item if name not in known)[:80]
                raise RefusedError(
                    f"items[{row}].{strange}: no feature of the model has this name; GET /schema lists them.",
                    422,
                )
        return {feature.name: _column(feature, items) for feature in self.features}


def _refuse_many(n_items: int) -> None:
    if n_items > _MOST_ITEMS:
        raise RefusedError(f"items: found {n_items}, expected at most {_MOST_ITEMS} per request.", 413)


def _column(feature: Feature, items: Sequence[Mapping[str, Any]]) -> list[Any]:
    name, absent = feature.name, feature.absent
    values: list[Any] = [item.get(name) for item in items]
    good = _TYPES[feature.type] | ({str} if feature.texts else set())
    for row, value in enumerate(values):
        if value is None:
            if absent is ...:
                raise RefusedError(f"items[{row}].{name}: missing, expected a {feature.type}.", 422)
            values[row] = absent
        elif type(value) not in good or (type(value) in (int, float) and not abs(value) <= _LARGEST):
            raise _unexpected(feature, row, value)
    if feature.type == "number" and str not in set(map(type, values)):
        return values
    _check_texts(feature, values)
    labels = _alike(values)
    if feature.unreadable is not None:
        bad = feature.unreadable(list(dict.fromkeys(label for label in labels if label is not None)))
        if bad:
            row = min(map(labels.index, bad))
            raise _unexpected(feature, row, values[row])
    return labels


def _alike(values: list[Any]) -> list[Any]:
    """Numbers among texts as the texts of them: a column is read by one rule, and a value by itself as among others."""
    types = set(map(type, values))
    if str not in types or not types & {int, float}:
        return values
    return [_as_label(value) if type(value) in (int, float) else value for value in values]


def _as_label(value: float) -> str:
    return str(int(value)) if float(value).is_integer() else repr(value)


def _check_texts(feature: Feature, values: Sequence[Any]) -> None:
    """Refuse lone surrogates, which are not text."""
    try:
        "".join([value for value in values if type(value) is str]).encode()
    except UnicodeEncodeError:
        halves = (
            row
            for row, value in enumerate(values)
            if type(value) is str and any("\ud800" <= one <= "\udfff" for one in value)
        )
        row = next(halves)
        raise _unexpected(feature, row, values[row]) from None


def _unexpected(feature: Feature, row: int, value: Any) -> RefusedError:
    decimal = feature.texts.get("decimal")
    hint = f" (a text has a decimal {decimal})" if decimal else ""
    return RefusedError(
        f"items[{row}].{feature.name}: found {described(value)}, expected a {_WORDS[feature.type]}{hint}.",
        422,
    )


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
    "boolean": "truth value, true or false",
    "category": "category, a text or a number",
    "date": "date, as text such as 2024-01-31",
    "text": "text",
}


class Metrics:
    """Counts of requests and items, how long requests took, and whether their queries are like those of the training.

    Parameters
    ----------
    sets : StoredSets or None
        What the queries of requests are compared with.
    """

    def __init__(self, sets: StoredSets | None = None) -> None:
        self.sets = sets
        self.figures: deque[np.ndarray] = deque(maxlen=500)  # the last queries, in which drift is looked for
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
        lines += self._drift()
        return "\n".join(lines) + "\n"

    def note_query(self, scores: np.ndarray) -> None:
        """Remember what is known of the query of a request without labels."""
        if self.sets is not None:
            self.figures.append(query_figures(scores, one_group(scores.shape[0]))[0])

    def _drift(self) -> list[str]:
        """Recent queries against those that were held out in training, once there are enough."""
        if self.sets is None or len(self.figures) < LEAST_FOR_DRIFT:
            return []
        found = self.sets.drift(np.array(self.figures))
        return [
            "# HELP preflearn_drift Whether recent queries differ from those of the training (p below 0.01), so that "
            "sets need not hold what they should.",
            "# TYPE preflearn_drift gauge",
            f"preflearn_drift {int(found.drifted)}",
            "# HELP preflearn_drift_pvalue Of the hypothesis that recent queries are like those of the training.",
            "# TYPE preflearn_drift_pvalue gauge",
            f"preflearn_drift_pvalue {found.pvalue:.6g}",
            "# HELP preflearn_drift_queries Recent queries that were compared.",
            "# TYPE preflearn_drift_queries gauge",
            f"preflearn_drift_queries {found.n_new}",
        ]


def serve_app(scorer: Scorer, *, hosts: Collection[str] | None = LOOPBACK) -> ASGIApp:
    """The application of a model.

    Parameters
    ----------
    scorer : Scorer
    hosts : collection of str or None
        Names that a request may be sent to, by default those of this machine on this machine; None for any.

    Returns
    -------
    ASGI application
    """
    metrics = Metrics(scorer.sets)

    async def rank(request: Request) -> Response:
        columns, coverage = _read(scorer, await read_json(request, _MOST_BYTES))
        n = len(next(iter(columns.values())))
        try:
            scores = await run_in_threadpool(scorer.score, columns)
        except (ValueError, ArithmeticError) as error:
            raise RefusedError(f"items: {error}", 422) from None
        _check_scores(scores, columns)
        found = _ranked(scorer, scores, coverage)
        metrics.items += n
        metrics.note_query(scores)
        return JSONResponse(found)

    async def health(request: Request) -> Response:
        return JSONResponse({"status": "ok", "model": scorer.name, "features": len(scorer.features)})

    async def schema(request: Request) -> Response:
        features = [
            {"name": one.name, "type": one.type, "required": one.required, **one.texts}
            for one in scorer.features
        ]
        return JSONResponse({"features": features})

    async def exposed(request: Request) -> Response:
        try:
            check_host(request, hosts)
        except RefusedError as error:
            return error.response()
        return PlainTextResponse(metrics.text(), media_type="text/plain; version=0.0.4")

    def measured(path: str, handler: Endpoint) -> Endpoint:
        async def endpoint(request: Request) -> Response:
            start = time.perf_counter()
            try:
                check_host(request, hosts)
                response = await handler(request)
            except RefusedError as error:
                response = error.response()
            metrics.note(path, response.status_code, time.perf_counter() - start)
            return response

        return endpoint

    async def lost(request: Request, error: Exception) -> Response:
        status = error.status_code if isinstance(error, HTTPException) else 500
        return JSONResponse(
            {"error": "Available are POST /rank and GET /health, /schema and /metrics."}, status
        )

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


def _read(scorer: Scorer, found: dict[str, Any]) -> tuple[Mapping[str, Any], Any]:
    """The columns of the items of a request, and the probability with which its set is to hold the best one."""
    unknown = [name for name in found if name not in ("items", "set")]
    if unknown:
        raise RefusedError(
            f"{unknown[0][:80]}: unknown, expected 'items', and 'set' where sets are asked for.", 422
        )
    return scorer.columns(found.get("items")), found.get("set")


def _ranked(scorer: Scorer, scores: np.ndarray, coverage: Any) -> dict[str, list[Any]]:
    """What /rank answers: scores, their order, and the set where one is asked for."""
    found = {"scores": scores.tolist(), "order": np.argsort(-scores, kind="stable").tolist()}
    if coverage is not None:
        found["set"] = np.flatnonzero(_items_in_set(scorer, scores, coverage)).tolist()
    return found


def _items_in_set(scorer: Scorer, scores: np.ndarray, coverage: Any) -> np.ndarray:
    """The items of a request that are in its set."""
    if scorer.sets is None:
        raise RefusedError(
            "set: this model holds no sets; it was trained without queries, or with too few.", 422
        )
    try:
        return scorer.sets.shown(scores, None, coverage)
    except ValueError as error:
        raise RefusedError(f"set: {error}", 422) from None


def _check_scores(scores: np.ndarray, columns: Mapping[str, list[Any]]) -> None:
    """Refuse numbers so large that their score is infinite or NaN."""
    finite = np.isfinite(scores)
    if finite.all():
        return
    wrong = np.flatnonzero(~finite)
    sizes = {
        (abs(values[row]), row, name)
        for name, values in columns.items()
        for row in wrong.tolist()
        if type(values[row]) in (int, float)
    }
    if not sizes:
        raise RefusedError(f"items[{int(wrong[0])}]: the score is not finite.", 422)
    _, row, name = max(sizes)
    raise RefusedError(
        f"items[{row}].{name}: found {described(columns[name][row])}, so large that the score is not finite.",
        422,
    )


# Models ---------------------------------------------------------------------------------------------------------------


def table_scorer(
    model: Any, encoder: Any, ignored: Iterable[str] = (), *, unreadable_as_missing: bool = False
) -> Scorer:
    """A model of tables, by way of its `preflearn.preprocessing.TableEncoder`; items may bring what is ignored.

    Parameters
    ----------
    model : estimator
    encoder : TableEncoder
    ignored : iterable of str
        Further columns that items may have.
    unreadable_as_missing : bool, default=False
        Treat numbers, dates and booleans that cannot be read as missing values instead of refusing them.
    """
    used = table_features(encoder, unreadable_as_missing)
    aside = frozenset({*encoder.kinds_, *ignored} - {*encoder.encoders_})
    predict = _predictor(model)

    def score(columns: Mapping[str, list[Any]]) -> np.ndarray:
        return predict(columns, len(next(iter(columns.values()))))

    return Scorer(used, score, _name(model), aside)


def table_features(encoder: Any, unreadable_as_missing: bool = False) -> list[Feature]:
    """What an encoder reads of an item."""
    used = []
    for name, column in encoder.encoders_.items():
        kind = "text" if encoder.kinds_[name] == "words" else encoder.kinds_[name]
        readable = kind not in ("number", "date", "boolean") or unreadable_as_missing
        check = None if readable else _unreadable(kind, column)
        used.append(Feature(name, kind, None, check, _texts(kind, column)))
    return used


def _texts(kind: str, column: Any) -> dict[str, Any]:
    """How the encoder of a column reads texts, where one text alone could be read in two ways."""
    if kind == "number":
        return {"decimal": column.style}
    return {"day_first": column.day_first} if kind == "date" else {}


def _unreadable(kind: str, column: Any) -> Callable[[list[Any]], list[Any]]:
    """Which of some values the encoder of a column takes as missing though they do not say that they are."""

    def find(values: list[Any]) -> list[Any]:
        known, odd = values, []
        if kind == "boolean":
            known = [one for one in values if isinstance(one, str)]
            odd = [one for one in values if not isinstance(one, str) and one not in (0, 1)]
        if not known:
            return odd
        read = column.values(read_table({"value": known}).columns[0])
        unread = [known[place] for place in np.flatnonzero(np.isnan(read)).tolist()]
        return odd + [
            one for one in unread if not (isinstance(one, str) and is_missing(one, among_values=True))
        ]

    return find


def text_scorer(model: Any) -> Scorer:
    """Of a model that puts texts in order: an item is ``{"text": ...}``.

    Parameters
    ----------
    model : fitted estimator of texts
    """

    def score(columns: Mapping[str, list[Any]]) -> np.ndarray:
        texts = np.empty(len(columns["text"]), dtype=object)
        texts[:] = columns["text"]
        return np.asarray(model.predict(texts))

    return Scorer([Feature("text", "text")], score, _name(model))


def matrix_scorer(model: Any, names: Sequence[str], *, absent: Any = ...) -> Scorer:
    """A model of a matrix: numbers by name.

    Parameters
    ----------
    model : estimator
    names : sequence of str
        Of the numbers, in the order of the columns.
    absent : float or None
        What a missing number counts as; every item must have all of them by default.
    """
    linear, predict = _weights(model), _predictor(model)

    def score(columns: Mapping[str, list[Any]]) -> np.ndarray:
        X = np.array([columns[name] for name in names], dtype=np.float64).T
        if linear is not None:
            return X @ linear[0] + linear[1]
        return predict(X, X.shape[0])

    features = [Feature(name, "number", absent) for name in names]
    return Scorer(features, score, _name(model))


def relation_scorer(
    model: Any, sides: Sequence[Sequence[Feature]], prepare: Sequence[Callable[[dict[str, list[Any]]], Any]]
) -> Scorer:
    """A model of pairs of objects: an item has the features of both, ``row.NAME`` and ``column.NAME``.

    Parameters
    ----------
    model : fitted relation model
    sides : two sequences of Feature
        Of row objects and of column objects.
    prepare : two functions
        From a table of such objects to what the model takes.
    """
    named = [[f"{kind}.{one.name}" for one in side] for kind, side in zip(("row", "column"), sides)]

    def score(columns: Mapping[str, list[Any]]) -> np.ndarray:
        objects, places = [], []
        for names, side, prepared in zip(named, sides, prepare):
            cells = list(zip(*(columns[name] for name in names)))
            distinct = {cell: place for place, cell in enumerate(dict.fromkeys(cells))}  # items share objects
            places.append([distinct[cell] for cell in cells])
            objects.append(prepared({one.name: list(values) for one, values in zip(side, zip(*distinct))}))
        return model.predict_pairs_of(*objects, *places)

    features = [
        replace(one, name=name) for names, side in zip(named, sides) for name, one in zip(names, side)
    ]
    return Scorer(features, score, _name(model))


def _predictor(model: Any) -> Callable[[Any, int], np.ndarray]:
    """From the items of a request and their number to scores; they are one query to a model that looks at queries."""
    if not wants_qid(model):  # asked once: the answer takes a tenth of the time of a request
        return lambda X, n_items: _one_score(model.predict(X))

    def predict(X: Any, n_items: int) -> np.ndarray:
        return _one_score(model.predict(X, qid=one_group(n_items)))

    def predict_routed(X: Any, n_items: int) -> np.ndarray:
        with config_context(enable_metadata_routing=True):
            return _one_score(model.predict(X, qid=np.zeros(n_items, dtype=np.int64)))

    # A pipeline, or what may hold one, passes queries on where scikit-learn is told to.
    return predict if isinstance(model, AutoRanker) else predict_routed


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
    without = getattr(model, "kernel", None) in ("precomputed", "items")
    if hasattr(model, "feature_names_in_") and not without:
        return [str(name) for name in model.feature_names_in_]
    n_features = getattr(model, "n_features_in_", None)
    if n_features is None or without:
        raise ValueError(
            f"{_name(model)} does not predict from features, which is what a request brings: serve a model with a "
            "named kernel, or one of preflearn relate."
        )
    return [f"x{number}" for number in range(n_features)]


def _one_score(scores: np.ndarray) -> np.ndarray:
    if scores.ndim != 1:
        raise ValueError(f"the model gives {scores.shape[1]} scores to each item, and an order needs one")
    return scores


def _name(model: Any) -> str:
    return type(model[-1] if hasattr(model, "steps") else model).__name__
