"""What `preflearn ask` wrote, for the other commands: its names, without undone, skipped and tied answers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .model_files import TEXT_NAMES

if TYPE_CHECKING:
    from ..tables.data import PreferenceData
    from ..web.answers import Answer
    from . import files


def is_answers(path: Path) -> bool:
    """Whether a file has the lines that `preflearn ask` writes."""
    if path.suffix not in (".jsonl", ".ndjson") or not path.is_file():
        return False
    with open(path, encoding="utf-8-sig", errors="replace") as file:
        first = next((line for line in file if line.strip()), "")
    try:
        entry = json.loads(first)
    except ValueError:
        return False
    return isinstance(entry, dict) and (
        {"winner", "loser", "question"} <= {*entry} or "undo" in entry or "skip" in entry
    )


def read_answers(path: Path) -> tuple[list[Answer], list[str]]:
    """The answers that were not undone and are not ties, and notes about the others."""
    from ..web.answers import standing_answers

    entries = []
    with open(path, encoding="utf-8-sig") as file:
        for number, line in enumerate(file, start=1):
            if line.strip():
                try:
                    entries.append(json.loads(line))
                except ValueError as error:
                    raise ValueError(f"{path}, line {number}: not JSON ({error}).") from None
    standing = list(standing_answers(entries))
    decided = [one for one in standing if not one.tie]
    counts = (
        (len(standing) - len(decided), "tie was", "ties were"),
        (sum("undo" in entry for entry in entries), "undone answer was", "undone answers were"),
        (sum("skip" in entry for entry in entries), "skipped question was", "skipped questions were"),
    )
    notes = [f"{path.name}: {n:,} {one if n == 1 else many} left out." for n, one, many in counts if n]
    if not decided:
        raise ValueError(f"{path}: no answer prefers one item to another: there is nothing to learn from.")
    return decided, notes


def read_problem_data(
    items_path: Path, answers: Path, reading: files.Reading, encoder: Any = None
) -> tuple[PreferenceData, str | None, list[str]]:
    """Items and preferences for ``fit_pairs``, the column that names the items, and notes."""
    import numpy as np

    from ..tables.data import PreferenceData
    from ..tables.encoding.table import TableEncoder
    from ..tables.options import ReadOptions, choose_columns
    from ..web.items import check_names, read_items

    decided, notes = read_answers(answers)
    items = read_items(items_path, None if reading.item == "auto" else reading.item)
    check_names(items, [name for one in decided for name in (one.winner, one.loser)], answers)
    asked = ReadOptions(
        target=None, query=None, item=items.naming, features=reading.features, drop=reading.drop
    )
    columns = {
        name: items.table[name] for name in choose_columns(str(items_path), list(items.table), asked).numbers
    }
    if not columns:
        raise ValueError(f"{items_path}: the items have no columns to learn from besides their names.")
    if encoder is None:
        encoder = TableEncoder(kinds=reading.kinds).fit(columns)
    X = encoder.transform(columns)
    place = {name: row for row, name in enumerate(items.names)}
    pairs = np.array([[place[one.winner], place[one.loser]] for one in decided], dtype=np.int64)
    judges = np.array([one.judge for one in decided], dtype=object)
    names = np.array(items.names, dtype=object)
    found = PreferenceData(
        X, pairs, names, [str(one) for one in encoder.get_feature_names_out()],
        judge=judges if len({*judges.tolist()}) > 1 else None, encoder=encoder,
    )  # fmt: skip
    return found, items.naming, notes


def export_preferences(items_path: Path, answers: Path, output: Path, name: str | None = None) -> int:
    """Write answers as chosen and rejected texts, JSON lines, as trainers of language models take them; how many."""
    from ..tables.atomic import write_whole
    from ..web.items import check_names, read_items

    decided, _ = read_answers(answers)
    items = read_items(items_path, name)
    check_names(items, [one for answer in decided for one in (answer.winner, answer.loser)], answers)
    place = {one: row for row, one in enumerate(items.names)}
    text = next((one for one in TEXT_NAMES if one in items.table), None)
    shown = [str(value) for value in items.table[text]] if text is not None else items.names
    prompts = items.table.get("prompt")
    lines = []
    for one in decided:
        winner, loser = place[one.winner], place[one.loser]
        record = (
            {"prompt": str(prompts[winner])}
            if prompts is not None and prompts[winner] == prompts[loser]
            else {}
        )
        record |= {"chosen": shown[winner], "rejected": shown[loser], "judge": one.judge}
        lines.append(json.dumps(record, ensure_ascii=False) + "\n")
    write_whole(output, "".join(lines))
    return len(lines)
