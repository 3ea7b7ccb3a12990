"""Tables of scores, items × tasks, read from wide or long data frames."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import InputError, Remedy, shortened
from ..tables.encoding.frames import TEXT, Column, read_table, refuse_repeated_columns
from .reading import factorised

ITEMS = ("item", "model", "system", "method", "algorithm", "name")
_TASKS = ("task", "dataset", "benchmark", "scenario", "problem")
_SCORES = ("score", "value", "result", "accuracy")
# Scores above this are not on the scale of shares; nor are those of a task on which items are this many times as far
# apart as on most.
_OTHER_SCALE = 20.0


@dataclass(frozen=True)
class Scores:
    """Scores of n items on t tasks.

    Attributes
    ----------
    items, tasks : list
    values : ndarray of shape (n, t)
        Higher is better; NaN where there is none; means over repeats.
    turned : bool
        Whether lower is better on every task, so that all scores have changed their signs.
    family : ndarray of shape (t,)
        The number of each task's family; each task is its own where none are given.
    families : list
    repeats : int
        The most scores of one item on one task.
    """

    items: list[Hashable]
    tasks: list[Hashable]
    values: np.ndarray
    family: np.ndarray
    families: list[Hashable]
    turned: bool
    repeats: int


def read_scores(
    table: Any, item: str | None, task: str | None, score: str | None, family: Any, higher_is_better: Any
) -> Scores:
    """Read a wide table, items × tasks, or a long one with a column of tasks and one of scores."""
    if item is None and hasattr(table, "reset_index") and not _is_numbered(table):
        table = table.reset_index()
    refuse_repeated_columns(table)
    columns = {column.name: column for column in read_table(table, "The table of scores").columns}
    for name, value in (("item", item), ("task", task), ("score", score)):
        if value is not None and value not in columns:
            raise InputError(
                f"{{argument}} asks for the column {value!r}, found {shortened(list(columns))}", argument=name
            )
    if (task is None) != (score is None) and _usual(columns, _SCORES if score is None else _TASKS) is None:
        given, missing = ("task", "score") if score is None else ("score", "task")
        raise InputError(
            "A long table has a column of tasks and one of scores: found {argument} alone",
            Remedy(missing),
            argument=given,
        )
    long = task or _usual(columns, _TASKS), score or _usual(columns, _SCORES)
    if long[0] is not None and long[1] is not None:
        read = _read_long(columns, _item_column(columns, item), long[0], long[1])
    else:
        read = _read_wide(columns, _item_column(columns, item))
    items, tasks, values, repeats = read
    _refuse_hopeless(items, tasks, values)
    some = ~np.isnan(values).all(axis=0)
    tasks, values = [name for name, there in zip(tasks, some, strict=True) if there], values[:, some]
    signs = _signs(tasks, higher_is_better)
    codes, families = _families(tasks, family, columns, long[0])
    found = Scores(items, tasks, values * signs, codes, families, bool((signs < 0).all()), repeats)
    _refuse_scales(found)
    return found


def _is_numbered(frame: Any) -> bool:
    return frame.index.dtype.kind in "iu" and frame.index.name is None


def _usual(columns: Mapping[str, Any], names: tuple[str, ...]) -> str | None:
    return next((name for name in columns if str(name).strip().lower() in names), None)


def _item_column(columns: dict[str, Column], item: str | None) -> str:
    texts = [name for name, column in columns.items() if column.form == TEXT]
    found = item or _usual(columns, ITEMS) or (texts[0] if texts else None)
    if found is None:
        raise InputError(
            f"No column of items was found among {shortened(list(columns))}",
            Remedy("item", purpose="and the column that names them"),
        )
    return found


def _read_numbers(column: Column, name: str) -> np.ndarray:
    if column.form == TEXT:
        codes, labels = factorised(column)
        numbers = [_as_number(label) for label in labels]
        bad = [label for label, value in zip(labels, numbers, strict=True) if value is None]
        if bad:
            raise InputError(
                f"Column {name!r} must hold scores, and holds texts such as "
                f"{shortened([repr(label) for label in bad[:3]])}: leave missing scores empty, and a column that is "
                "not a task out of the table"
            )
        return np.array([*numbers, np.nan], dtype=float)[codes]
    values = np.asarray(column.array, dtype=np.float64)
    if column.form == "time" or np.isinf(values).any():
        what = "times" if column.form == "time" else "infinite values"
        raise InputError(f"Column {name!r} must hold scores, and holds {what}: leave missing scores empty")
    return values


def _as_number(label: Hashable) -> float | None:
    try:
        value = float(str(label))
    except ValueError:
        return None
    return value if np.isfinite(value) else None


def _read_labels(column: Column, what: str) -> tuple[np.ndarray, list[Hashable]]:
    codes, labels = factorised(column)
    missing = np.flatnonzero(codes < 0)
    if missing.size:
        raise InputError(
            f"Column {column.name!r} names {what}, and row {missing[0] + 1:,} is empty: fill it in"
        )
    return codes, labels


def _read_wide(
    columns: dict[str, Column], item: str
) -> tuple[list[Hashable], list[Hashable], np.ndarray, int]:
    codes, labels = _read_labels(columns[item], "items")
    counts = np.bincount(codes)
    if counts.max() > 1:
        twice = labels[int(np.argmax(counts))]
        raise InputError(
            f"Column {item!r} names {twice!r} in {counts.max():,} rows: a wide table has one row for each item. If "
            "these are repeats, such as seeds, give a long table with one score in each row",
            Remedy("task"),
            Remedy("score"),
            together=True,
        )
    tasks = [name for name in columns if name != item]
    if not tasks:
        raise InputError(f"The table has no scores beside the items ({item})")
    values = np.stack([_read_numbers(columns[name], name) for name in tasks], axis=1)
    return [labels[code] for code in codes], list(tasks), values, 1


def _read_long(
    columns: dict[str, Column], item: str, task: str, score: str
) -> tuple[list[Hashable], list[Hashable], np.ndarray, int]:
    (rows, items), (places, tasks) = (
        _read_labels(columns[item], "items"),
        _read_labels(columns[task], "tasks"),
    )
    numbers = _read_numbers(columns[score], score)
    known = ~np.isnan(numbers)
    at = rows[known] * len(tasks) + places[known]
    counts = np.bincount(at, minlength=len(items) * len(tasks))
    sums = np.bincount(at, numbers[known], len(items) * len(tasks))
    values = np.where(counts > 0, sums / np.maximum(counts, 1), np.nan).reshape(len(items), len(tasks))
    return items, tasks, values, int(counts.max(initial=0))


def _refuse_hopeless(items: list[Hashable], tasks: list[Hashable], values: np.ndarray) -> None:
    if len(items) < 2:
        raise InputError(f"A leaderboard compares items: found only {items[0]!r}")
    nothing = [name for name, row in zip(items, values, strict=True) if np.isnan(row).all()]
    if nothing:
        raise InputError(f"The item {nothing[0]!r} has no scores at all: leave it out")
    known = [name for name, column in zip(tasks, values.T, strict=True) if not np.isnan(column).all()]
    if len(known) < 2:
        raise InputError(
            f"Found one task only, {known[0]!r}: how far items differ by chance is told from several tasks, at least 2"
        )
    if np.nanmax(values) == np.nanmin(values):
        raise InputError(f"Every score is {np.nanmax(values):g}: there is nothing to compare")


def _signs(tasks: list[Hashable], higher_is_better: Any) -> np.ndarray:
    if isinstance(higher_is_better, bool):
        return np.full(len(tasks), 1.0 if higher_is_better else -1.0)
    if not isinstance(higher_is_better, Mapping) or not all(
        isinstance(value, (bool, np.bool_)) for value in higher_is_better.values()
    ):
        raise InputError(
            f"{{argument}} must be True, False or a mapping from task to one of them: found {higher_is_better!r}",
            argument="higher_is_better",
        )
    _refuse_unknown(tasks, higher_is_better, "higher_is_better")
    return np.array([1.0 if higher_is_better.get(task, True) else -1.0 for task in tasks])


def _refuse_unknown(tasks: list[Hashable], given: Mapping[Any, Any], argument: str) -> None:
    unknown = [name for name in given if name not in tasks]
    if unknown:
        raise InputError(
            f"{{argument}} names the task {unknown[0]!r}, found {shortened(list(map(str, tasks)))}",
            argument=argument,
        )


def _families(
    tasks: list[Hashable], family: Any, columns: dict[str, Column], task: str | None
) -> tuple[np.ndarray, list[Hashable]]:
    if family is None:
        return np.arange(len(tasks)), tasks
    if isinstance(family, str):
        if task is None or family not in columns:
            raise InputError(
                f"{{argument}} is a column of a long table, found {shortened(list(columns))}: give a mapping from task "
                "to family",
                argument="family",
            )
        (places, _), (codes, labels) = (
            _read_labels(columns[task], "tasks"),
            _read_labels(columns[family], "families"),
        )
        pairs = set(zip(places.tolist(), codes.tolist(), strict=True))
        if len(pairs) > len(tasks):
            raise InputError(f"{{argument}}: a task of the column {family!r} has several", argument="family")
        family = {tasks[place]: labels[code] for place, code in pairs}
    if not isinstance(family, Mapping):
        raise InputError(
            f"{{argument}} must be a mapping from task to family, or a column: found {family!r}",
            argument="family",
        )
    _refuse_unknown(tasks, family, "family")
    named = [family.get(one, one) for one in tasks]
    families = list(dict.fromkeys(named))
    if len(families) < 2:
        raise InputError(
            f"{{argument}}: all tasks are of one, {families[0]!r}, and how far items differ by chance is told from "
            "several, at least 2. Leave it out if tasks are independent",
            argument="family",
        )
    return np.array([families.index(name) for name in named]), families


def _refuse_scales(scores: Scores) -> None:
    """Refuse shares beside percentages, of which the percentages alone would decide the means."""
    values = scores.values[~np.isnan(scores.values)]
    if not ((values >= 0).all() or (values <= 0).all()):
        return
    size = np.nanmax(np.abs(scores.values), axis=0)
    large, small = int(np.argmax(size)), int(np.argmin(size))
    if size[large] > _OTHER_SCALE and 0 < size[small] <= 1.0:
        raise InputError(
            f"Tasks are on different scales: scores go up to {size[small]:g} on {scores.tasks[small]!r} and up to "
            f"{size[large]:g} on {scores.tasks[large]!r}, which would decide the means. Put them on one scale, such as "
            "shares of the best score on each task"
        )


def dominant_task(scores: Scores) -> Hashable | None:
    """A task on which items are so much further apart than on most that it decides the means."""
    spread = np.nanstd(scores.values, axis=0)
    largest = int(np.argmax(spread))
    return scores.tasks[largest] if spread[largest] > _OTHER_SCALE * np.median(spread) > 0 else None
