"""The items that people compare: a table, a folder of texts or pictures, or a list with one item per line.

Every item gets a name, by which the answers file knows it, and a list of fields to show. Columns that a model can learn
from are kept as a table. Items with the same content are one item.
"""

from __future__ import annotations

import hashlib
import json
import re
import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ..errors import InputError
from ..tables.cells import clip, how_to_convert
from ..tables.encoding.kinds import TableWarning
from ..tables.formats import open_file
from ..tables.options import ReadOptions
from ..tables.streams import UTF8, detect_encoding, require_arrow, spoken
from ..tables.table import read_table

PICTURES = {
    ".png": "image/png",
    ".jpg": "image/jpeg",
    ".jpeg": "image/jpeg",
    ".gif": "image/gif",
    ".webp": "image/webp",
    ".avif": "image/avif",
    ".svg": "image/svg+xml",
}
_TEXTS = (".txt", ".md", ".markdown")
_TABLES = (".csv", ".tsv", ".jsonl", ".ndjson", ".parquet", ".pq")
# Columns that name the items, the first that fits is taken.
_NAMING = ("item", "name", "title", "label", "id", "key")
_LONGEST_NAME = 120
_HALF_CHARACTER = re.compile("[\ud800-\udfff]")
_MARKDOWN = re.compile(r"^(#{1,6} |[-*] |\d+\. |```|> )|\*\*[^*\n]+\*\*", re.MULTILINE)
_EXAMPLES = 3
_DEEPEST, _TOO_DEEP = 50, object()


@dataclass(frozen=True)
class Field:
    """One thing to show of an item.

    Attributes
    ----------
    label : str
        Name of the column, "" for what needs no name.
    kind : {"text", "markdown", "picture", "missing"}
        "missing" is a picture that is not there.
    value : str
        The text; for a picture its file name.
    path : Path or None
        Where the picture is.
    """

    label: str
    kind: str
    value: str
    path: Path | None = None


@dataclass(frozen=True)
class Items:
    """What is compared.

    Attributes
    ----------
    names : list of str
        Distinct; what the answers file calls the items.
    fields : list of list of Field
        What to show of each.
    table : dict of str to list
        Columns to learn from; empty where there are none.
    folder : Path
        No picture outside of it is served.
    source : str
    notes : list of str
        What the owner should know, such as duplicates and missing pictures.
    naming : str or None
        The column that names the items.

    Examples
    --------
    >>> items = from_records([{"name": "tea"}, {"name": "coffee"}, {"name": "tea"}], Path("."), "drinks")
    >>> items.names, items.notes
    (['tea', 'coffee'], ["1 item appears twice and is asked about once: 'tea'."])
    """

    names: list[str]
    fields: list[list[Field]]
    table: dict[str, list[Any]]
    folder: Path
    source: str
    notes: list[str] = field(default_factory=list)
    naming: str | None = None

    def __len__(self) -> int:
        return len(self.names)


def read_items(path: Path, name: str | None = None) -> Items:
    """Read a table, a folder, or a text file with one item per line.

    Parameters
    ----------
    path : Path
        A CSV, TSV, Parquet or JSON-lines table; a folder of texts or pictures; any other text file.
    name : str, optional
        The column of a table that names its items; found by name and content otherwise.

    Raises
    ------
    ValueError
        If there are fewer than two different items, or the file cannot be read.
    """
    if name is not None and (path.is_dir() or path.suffix.lower() not in _TABLES):
        raise ValueError(f"--name {name}: {path} has no columns; it is for tables.")
    if path.is_dir():
        return _require_two(_from_folder(path))
    if not path.exists():
        raise FileNotFoundError(f"There is no file or folder {path}.")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        records = _records(path)
    found = from_records(records, path.parent, _shown(path), name)
    told = dict.fromkeys(str(one.message) for one in caught if issubclass(one.category, TableWarning))
    return _require_two(replace(found, notes=[*told, *found.notes]))


def _records(path: Path) -> list[dict[str, Any]]:
    suffix = path.suffix.lower()
    if suffix in (".parquet", ".pq"):
        return _parquet(path)
    if suffix in _TABLES:
        return _json_lines(path, _decoded(path)) if suffix in (".jsonl", ".ndjson") else _delimited(path)
    return [{"": line.strip()} for line in _decoded(path).split("\n") if line.strip()]


def from_records(
    records: Sequence[Mapping[str, Any]], folder: Path, source: str, name: str | None = None
) -> Items:
    """Items from rows of a table."""
    columns = list(dict.fromkeys(name for record in records for name in record))
    rows, notes = _distinct([tuple(record.get(name) for name in columns) for record in records])
    table = {name: [row[place] for row in rows] for place, name in enumerate(columns)}
    pictures = [name for name in columns if _holds_pictures(table[name])]
    if name is not None and name not in columns:
        raise ValueError(f"{source}: --name {name} is not a column: found {', '.join(map(repr, columns))}.")
    naming = name or _naming_column(table, [one for one in columns if one not in pictures])
    markdown = {one for one in columns if one not in pictures and _holds_markdown(one, table[one])}
    if naming is None:
        names = [f"{place}:{_digest(row)}" for place, row in enumerate(rows)]
    else:
        names, more = _short_and_distinct([_as_text(value) for value in table[naming]])
        notes += more
    fields: list[list[Field]] = []
    for place in range(len(rows)):
        shown = [_picture(name, table[name][place], folder) for name in pictures]
        first = [naming] if naming is not None else []
        for name in [*first, *(one for one in columns if one not in pictures and one != naming)]:
            text = _as_text(table[name][place])
            if text:
                label = "" if name == naming or len(columns) == 1 else name
                shown.append(Field(label, "markdown" if name in markdown else "text", text))
        fields.append([one for one in shown if one is not None])
    notes += _picture_notes(fields)
    learned = {name: [_plain(v) for v in table[name]] for name in columns if name not in pictures}
    return Items(names, fields, learned, folder.resolve(), source, notes, naming)


def _short_and_distinct(texts: Sequence[str]) -> tuple[list[str], list[str]]:
    """Names that a line can hold and that differ: long ones are shortened, further ones of the same name numbered."""
    names: dict[str, None] = {}
    n_long = n_same = n_empty = 0
    for place, text in enumerate(texts):
        base = text if len(text) <= _LONGEST_NAME else text[: _LONGEST_NAME - 1] + "…"
        n_long, n_empty = n_long + (base != text), n_empty + (not text)
        base = base or f"item {place + 1}"
        found, number = base, 1
        while found in names:
            number += 1
            found = f"{base} ({number})"
        n_same += found != base
        names[found] = None
    counted = (
        (n_long, "shortened"),
        (n_same, "numbered: others are the same"),
        (n_empty, "made up: none was given"),
    )
    notes = [f"{n} {'name was' if n == 1 else 'names were'} {what}." for n, what in counted if n]
    return list(names), notes


def _from_folder(folder: Path) -> Items:
    """One item for each text or picture of a folder, named by its file."""
    paths = sorted(path for path in folder.iterdir() if path.is_file() and not path.name.startswith("."))
    strange = [path.name for path in paths if _HALF_CHARACTER.search(path.name)]
    if strange:
        raise ValueError(
            f"{_shown(folder)} contains a file whose name is not UTF-8, {strange[0]!r}: rename it."
        )
    pictures = [path for path in paths if path.suffix.lower() in PICTURES]
    texts = [path for path in paths if path.suffix.lower() in _TEXTS]
    others = len(paths) - len(pictures) - len(texts)
    if not pictures and not texts:
        kinds = ", ".join([*_TEXTS, *PICTURES])
        raise ValueError(f"{folder} holds no texts or pictures ({kinds}): found {others} other files.")
    chosen = pictures or texts
    contents = [path.read_bytes() for path in chosen]
    rows, notes = _distinct([(content,) for content in contents], [path.name for path in chosen])
    kept = [chosen[contents.index(row[0])] for row in rows]
    if pictures and texts:
        notes.append(f"{len(texts)} texts beside {len(pictures)} pictures are left out.")
    if others:
        notes.append(f"{others} files that are neither text nor picture are left out.")
    root = folder.resolve()
    if pictures:
        fields = [[_picture("", path.name, root)] for path in kept]
        table: dict[str, list[Any]] = {}
    else:
        read = [_decoded(path) for path in kept]
        fields = [
            [Field("", "text" if path.suffix.lower() == ".txt" else "markdown", text)]
            for path, text in zip(kept, read)
        ]
        table = {"text": read}
    shown = [[one for one in item if one is not None] for item in fields]
    return Items(
        [path.name for path in kept], shown, table, root, _shown(folder), notes + _picture_notes(shown)
    )


def _require_two(items: Items) -> Items:
    if len(items) < 2:
        found = "no items" if not len(items) else f"one item, {items.names[0]!r}"
        raise ValueError(f"{items.source} holds {found}: a comparison needs at least two different ones.")
    return items


# Reading files --------------------------------------------------------------------------------------------------------


def _shown(path: Path) -> str:
    """A path as text that can be written, whatever bytes it is made of."""
    return str(path).encode("utf-8", "backslashreplace").decode()


def _decoded(path: Path) -> str:
    data = path.read_bytes()
    encoding = detect_encoding(data)
    if encoding != UTF8:
        warnings.warn(
            f"{path}: the text is {spoken(encoding)}, not UTF-8, and is read as such.",
            TableWarning,
            stacklevel=2,
        )
    try:
        return data.decode("utf-8-sig" if encoding == UTF8 else encoding).removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{path} is not UTF-8 text (byte {error.start}). {how_to_convert(error.object[:4096])}."
        ) from None


def _delimited(path: Path) -> list[dict[str, Any]]:
    """The rows of a CSV or TSV table, every cell as its text."""
    with path.open("rb") as file:
        first = file.readline()
    if not first.strip():
        return []
    kind = "tsv" if path.suffix.lower() == ".tsv" else "csv"
    names = open_file(str(path), ReadOptions(format=kind)).names or []
    table = read_table(path, format=kind, target=None, query=None, item=None, texts=names)
    return [dict(zip(names, row)) for row in zip(*(table.columns[name].tolist() for name in names))]


def _json_lines(path: Path, text: str) -> list[dict[str, Any]]:
    """Values to be shown: unlike the rows of `read_table` they may be nested, plain texts, or have further keys."""
    records = []
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
        except ValueError as error:
            raise ValueError(f"{path}, line {number}: not JSON ({error}).") from None
        except RecursionError:
            record = _TOO_DEEP
        if record is _TOO_DEEP or _is_deeper(record, _DEEPEST):
            raise ValueError(
                f"{path}, line {number}: values are nested more than {_DEEPEST} levels deep, which no page can show."
            )
        if _HALF_CHARACTER.search(json.dumps(record, ensure_ascii=False)):
            raise ValueError(f"{path}, line {number}: contains a lone surrogate: save it as UTF-8.")
        if isinstance(record, str):
            record = {"": record}
        if not isinstance(record, dict):
            raise ValueError(f"{path}, line {number}: found {line[:40]!r}, expected a JSON object or a text.")
        records.append(record)
    return records


def _is_deeper(value: Any, most: int) -> bool:
    """Whether objects and lists are nested more than ``most`` levels deep."""
    if not isinstance(value, (dict, list)):
        return False
    inner = value.values() if isinstance(value, dict) else value
    return most == 0 or any(_is_deeper(one, most - 1) for one in inner)


def _parquet(path: Path) -> list[dict[str, Any]]:
    require_arrow(f"{path}: reading Parquet")
    import pyarrow.parquet as pq

    return pq.read_table(path).to_pylist()


# Understanding columns ------------------------------------------------------------------------------------------------


def _distinct(
    rows: list[tuple[Any, ...]], labels: list[str] | None = None
) -> tuple[list[tuple[Any, ...]], list[str]]:
    """Each row once, and a note about those that came again."""
    keys = [row if isinstance(row[0], bytes) else json.dumps(row, default=str) for row in rows if row]
    counts = Counter(keys)
    first = {key: place for place, key in reversed(list(enumerate(keys)))}
    kept = [rows[place] for place in sorted(first.values())]
    again = [place for key, place in first.items() if counts[key] > 1]
    if not again:
        return kept, []
    shown = [clip(labels[place] if labels else _first_text(rows[place])) for place in sorted(again)]
    listed = ", ".join(shown[:_EXAMPLES]) + (", ..." if len(shown) > _EXAMPLES else "")
    times = "twice" if max(counts.values()) == 2 else "several times"
    many = f"{len(again)} items appear" if len(again) > 1 else "1 item appears"
    verb = "are" if len(again) > 1 else "is"
    return kept, [f"{many} {times} and {verb} asked about once: {listed}."]


def _naming_column(table: Mapping[str, list[Any]], columns: Sequence[str]) -> str | None:
    """A column whose texts are short, all there and all different."""
    known = [name for wanted in _NAMING for name in columns if name.lower() == wanted]
    for name in known:  # by its name: a few long or equal names do not disqualify it
        texts = [_as_text(value) for value in table[name]]
        if len({text for text in texts if text}) > len(texts) / 2:
            return name
    for name in columns:
        texts = [_as_text(value) for value in table[name]]
        is_text = any(isinstance(v, str) and not _is_number(v) for v in table[name])
        short = all(text and len(text) <= _LONGEST_NAME and not is_link(text) for text in texts)
        if is_text and short and len(set(texts)) == len(texts):
            return name
    return None


def is_link(text: str) -> bool:
    """Whether a text is an address of the web and nothing else."""
    return re.fullmatch(r"https?://[^\s<>\"]+", text) is not None


def _holds_pictures(values: Sequence[Any]) -> bool:
    texts = [value for value in values if isinstance(value, str) and value]
    return bool(texts) and all(Path(text).suffix.lower() in PICTURES and "\n" not in text for text in texts)


def _holds_markdown(name: str, values: Sequence[Any]) -> bool:
    """Said by the column's name, or seen in a good part of its texts."""
    if re.search(r"(^|_)(md|markdown)$", name.lower()):
        return True
    texts = [value for value in values if isinstance(value, str) and value]
    return bool(texts) and 5 * sum(bool(_MARKDOWN.search(text)) for text in texts) >= len(texts)


def _picture(label: str, value: Any, folder: Path) -> Field | None:
    """A picture inside the folder, or the note that it is not there."""
    if not value:
        return None
    path = inside(folder, str(value))
    return Field(label, "picture" if path else "missing", str(value), path)


def inside(folder: Path, name: str) -> Path | None:
    """The file of this name if it is a picture inside the folder, wherever links lead; None otherwise."""
    root = folder.resolve()
    try:
        path = (root / name).resolve()
        within = path.is_relative_to(root) and path.suffix.lower() in PICTURES
        return path if within and path.is_file() else None
    except (OSError, ValueError, RuntimeError):
        return None


def _picture_notes(fields: Sequence[Sequence[Field]]) -> list[str]:
    missing = [one.value for item in fields for one in item if one.kind == "missing"]
    if not missing:
        return []
    listed = ", ".join(map(repr, missing[:_EXAMPLES])) + (", ..." if len(missing) > _EXAMPLES else "")
    many = f"{len(missing)} pictures are" if len(missing) > 1 else "1 picture is"
    return [f"{many} not in the items' folder, the page shows the name instead: {listed}."]


def check_names(items: Items, names: Sequence[str], path: Path) -> None:
    """Refuse answers about other items.

    Raises
    ------
    InputError
    """
    known = set(items.names)
    strange = [name for name in dict.fromkeys(names) if name not in known]
    if strange:
        listed = ", ".join(clip(name) for name in strange[:_EXAMPLES])
        raise InputError(
            f"{path} holds answers about other items: {listed}{', ...' if len(strange) > _EXAMPLES else ''} "
            f"{'are' if len(strange) > 1 else 'is'} not in {items.source}. Give the items it was written for, or name "
            "another file with --answers"
        )


def _plain(value: Any) -> Any:
    return json.dumps(value, default=str) if isinstance(value, (dict, list)) else value


def _as_text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return str(int(value))
    return value.strip() if isinstance(value, str) else str(_plain(value))


def _first_text(row: Sequence[Any]) -> str:
    return next((text for text in map(_as_text, row) if text), "")


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _digest(row: Sequence[Any]) -> str:
    return hashlib.sha256(json.dumps(row, default=str).encode()).hexdigest()[:8]
