"""Columns of tables and features relative to their query as recorded operators, for `preflearn.io.to_onnx`.

An exported table has one input for each column that the encoder uses, of shape (m, 1):

    number, boolean   a number; NaN if missing
    category          a text; "" if missing
    date              seconds since 1970-01-01, a number; NaN if missing

What the encoder reads off texts on its own ("1,234", "yes", "31.1.2024") is up to the program that fills the inputs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ...numerics.onnx_graph import ExportError, Graph, Value
from ..cells import DAY, SPELLED_MISSING
from .columns import CategoryColumn, DateColumn, NumberColumn


def free_texts(encoders: Mapping[str, Any]) -> list[str]:
    """The columns whose words are hashed."""
    return [
        name
        for name, one in encoders.items()
        if not isinstance(one, (NumberColumn, CategoryColumn, DateColumn))
    ]


def table_inputs(encoders: Mapping[str, Any]) -> dict[str, str]:
    """The inputs of an exported table: ``"number"``, ``"moment"`` (a number in float64) or ``"text"`` for each column.

    Raises
    ------
    ExportError
        Naming all columns of free text: hashed words have no counterpart in ONNX.
    """
    texts = free_texts(encoders)
    if texts:
        raise ExportError(
            f"Free text cannot be exported to ONNX, which has no operator that hashes words: column(s) "
            f"{', '.join(map(repr, texts))}. Train without them, TableEncoder(kinds={{{texts[0]!r}: 'drop'}}), or use "
            "`preflearn serve`."
        )
    kinds = {CategoryColumn: "text", DateColumn: "moment"}
    return {name: kinds.get(type(one), "number") for name, one in encoders.items()}


def table_nodes(graph: Graph, encoders: Mapping[str, Any], columns: Mapping[str, Value]) -> Value:
    """The encoded table, shape (m, n)."""
    parts = [part for name, one in encoders.items() for part in _column(graph, one, columns[name])]
    return graph.concatenate(parts)


def _column(graph: Graph, encoder: Any, column: Value) -> list[Value]:
    if isinstance(encoder, NumberColumn):
        return _number(graph, encoder, column)
    if isinstance(encoder, CategoryColumn):
        return _category(graph, encoder, column)
    return _date(graph, encoder, column)


def _number(graph: Graph, encoder: NumberColumn, column: Value) -> list[Value]:
    missing = graph.apply("IsNaN", column)
    parts = []
    if not encoder.constant:
        filled = graph.where(missing, encoder.median, column)
        infinite = graph.apply("IsInf", filled)
        nearest = graph.where(filled.less(0.0), encoder.low, encoder.high)
        parts.append(graph.where(infinite, nearest, filled))
    return [*parts, missing.as_numbers()] if encoder.has_missing else parts


def _category(graph: Graph, encoder: CategoryColumn, column: Value) -> list[Value]:
    """The place of each label among the features, compared with the places."""
    width = len(encoder.names(""))
    places = {label: place for place, label in enumerate(encoder.categories)}
    missing = width - 1 if encoder.has_missing else width
    places |= dict.fromkeys(sorted(SPELLED_MISSING), missing)
    code = graph.apply(
        "LabelEncoder",
        column,
        domain="ai.onnx.ml",
        keys_strings=list(places),
        values_int64s=list(places.values()),
        default_int64=len(encoder.categories) if encoder.rare else width,
    )
    return [code.equal(np.arange(width)[None]).as_numbers()] if width else []


def _date(graph: Graph, encoder: DateColumn, column: Value) -> list[Value]:
    missing = graph.apply("IsNaN", column)
    seconds = graph.where(missing, encoder.median, column)
    calendar = _calendar(seconds)
    parts = {"days": (seconds - encoder.oldest) / DAY, **calendar}
    found = [parts[name] for name in encoder.parts]
    return [*found, missing.as_numbers()] if encoder.has_missing else found


def _calendar(seconds: Value) -> dict[str, Value]:
    """Parts of the Gregorian date. Years are counted from March, so that the leap day is the last of its year.

    An era is 400 years, 146097 days; 719468 days lead from the March that begins era 0 to 1970.
    """
    days = (seconds / DAY).floor()
    shifted = days + 719468.0
    era = (shifted / 146097.0).floor()
    day_of_era = shifted - era * 146097.0
    leaps = (day_of_era / 1460.0).floor() - (day_of_era / 36524.0).floor() + (day_of_era / 146096.0).floor()
    year_of_era = ((day_of_era - leaps) / 365.0).floor()
    before = year_of_era * 365.0 + (year_of_era / 4.0).floor() - (year_of_era / 100.0).floor()
    day_of_year = day_of_era - before
    # From March, months repeat the pattern of 31, 30, 31, 30, 31 days: 153 in five of them.
    month_from_march = ((day_of_year * 5.0 + 2.0) / 153.0).floor()
    day = day_of_year - ((month_from_march * 153.0 + 2.0) / 5.0).floor() + 1.0
    late = month_from_march.less(9.5)  # March to December
    graph = seconds.graph
    month = month_from_march + graph.where(late, 3.0, -9.0)
    year = era * 400.0 + year_of_era + graph.where(late, 0.0, 1.0)
    since_thursday = days + 3.0  # 1970 began on a Thursday
    return {
        "year": year,
        "month": month,
        "day": day,
        "weekday": since_thursday - (since_thursday / 7.0).floor() * 7.0,
        "hour": ((seconds - days * DAY) / 3600.0).floor(),
    }


def standardised_nodes(graph: Graph, X: Value, rounding: float) -> Value:
    """(x - μ) / σ over the rows of the call, as `QueryRelative` does it; 0 where a column is constant."""
    low, high = X.reduce("Min", 0), X.reduce("Max", 0)
    spread = high - low
    largest = low.abs().at_least(high.abs())
    alike = graph.apply("LessOrEqual", spread, largest * rounding)
    unit = graph.where(alike, 1.0, spread)
    V = (X - low) / unit
    V = V - V.reduce("Mean", 0)
    deviation = (V * V).reduce("Mean", 0).sqrt()
    return graph.where(alike, 0.0, V / graph.where(alike, 1.0, deviation))


def ranked_nodes(graph: Graph, X: Value) -> Value:
    """Ranks over the rows of the call from -1 to 1, ties averaged: (Σ [x_j < x_i] - [x_j > x_i]) / (m - 1).

    Forms an array of m × m × n truth values.
    """
    rows, others = X.with_axis(1), X.with_axis(0)
    above = others.less(rows).as_numbers() - rows.less(others).as_numbers()
    n_rows = graph.apply("Shape", X, start=0, end=1).as_numbers()
    return above.reduce("Sum", 1, keep=False) / (n_rows - 1.0).at_least(1.0)
