"""Data files to learn from, what a model remembers of them, and files to write."""

from __future__ import annotations

import hashlib
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import shortened
from .settings import READING, read_settings

if TYPE_CHECKING:
    import numpy as np

    from ..model_selection.dependence import Dependence
    from ..report import DataFile
    from ..tables.data import PreferenceData, RankingData, TableData
    from ..tables.encoding.table import TableEncoder
    from ..tables.table import TableChunks

DataPaths = Annotated[
    list[Path],
    typer.Argument(
        metavar="DATA...",
        help="LETOR / svmlight, CSV, TSV, JSON lines or Parquet, each also compressed; several are read as one.",
    ),
]
ModelPath = Annotated[
    Path, typer.Argument(metavar="MODEL", help="A model file written by `preflearn train`.")
]
TargetOption = Annotated[
    str | None,
    typer.Option(
        "--target",
        metavar="COLUMN[=LABEL]",
        help="Column of the targets, higher is better. Default: target. COLUMN=LABEL: of two labels the one that is "
        "better.",
    ),
]
QueryOption = Annotated[
    str | None,
    typer.Option("--query", help="Column of the queries. Default: qid or query, if there is one."),
]
GroupOption = Annotated[
    str | None,
    typer.Option(
        "--group",
        help="Column of the patients, documents, ... whose rows depend on each other: they are held out together, and "
        "intervals count them.",
    ),
]
EventOption = Annotated[
    str | None,
    typer.Option(
        "--event",
        metavar="COLUMN[=LABEL]",
        help="Column that says whether the event was seen at the time in --target (1, true, yes) or the time is "
        "censored (0, false, no). COLUMN=LABEL: the label that means seen, of two.",
    ),
]
NoQueryOption = Annotated[
    bool, typer.Option("--no-query", help="Treat all rows as one ranking, even if there is a query column.")
]
FeaturesOption = Annotated[
    list[str] | None,
    typer.Option(
        "--features", help="Columns to learn from (repeat, or separate with commas). Default: all others."
    ),
]
DropOption = Annotated[
    list[str] | None, typer.Option("--drop", help="Columns to leave out (repeat, or separate with commas).")
]
EncodeOption = Annotated[
    list[str] | None,
    typer.Option(
        "--encode",
        metavar="COL=KIND",
        help="Kinds of columns (repeat, or separate with commas) where the detected kind is wrong: number, boolean, "
        "onehot, date, text, words, words:N, drop.",
    ),
]
TextOption = Annotated[
    str | None,
    typer.Option(
        "--text", help="Column of the texts to put in order, for a model of texts. Default: text, answer, ..."
    ),
]
ForceOption = Annotated[
    bool, typer.Option("--force", help="Replace existing files that preflearn did not write.")
]

_REPORTS = (".html", ".htm", ".md")
# How the leaderboards of `preflearn rate` begin: tables, with categories or without, Markdown and JSON.
_BOARD = re.compile(
    rb"item[,\t]rating[,\t]lower[,\t]upper[,\t]rank[,\t]|"
    rb"category[,\t]item[,\t]rating([,\t]lower[,\t]upper[,\t]difference|\r?\n)|"
    rb"\| rank \| item \| rating \| interval \||"
    rb'\{\s*"items": \d+,\s*"battles": \d+,\s*"outcomes":'
)
# What only CSV and TSV files have.
_OF_TABLES = ("delimiter", "encoding", "columns")
# Kinds that --encode takes.
_KINDS = ("number", "boolean", "onehot", "category", "date", "text", "words", "drop")


@dataclass(frozen=True)
class Reading:
    """How a data file is to be read, as typed."""

    format: str | None = None
    target: str | None = "auto"
    query: str | None = "auto"
    item: str | None = "auto"
    features: tuple[str, ...] | None = None
    drop: tuple[str, ...] | None = None
    kinds: dict[str, str] | None = None
    missing: float | None = None
    delimiter: str | None = None
    encoding: str | None = None
    text: str | None = None
    columns: tuple[str, ...] | None = None
    weight: str | None = None
    prompt: str | None = None
    group: str | None = None
    event: str | None = None
    seen: str | None = None
    skip_bad: bool = False

    @classmethod
    def from_options(
        cls,
        read: Sequence[str] | None = None,
        *,
        target: str | None = None,
        query: str | None = None,
        no_query: bool = False,
        features: Sequence[str] | None = None,
        drop: Sequence[str] | None = None,
        encode: Sequence[str] | None = None,
        text: str | None = None,
        group: str | None = None,
        event: str | None = None,
        unused: Sequence[str] = (),
    ) -> Reading:
        """Check what was typed; settings that the command would ignore are ``unused``, and refused."""
        if no_query and query is not None:
            raise ValueError("--query and --no-query contradict each other: give only one of them.")
        if group is not None and group in (target, query, *(split_names(drop, "--drop") or ())):
            raise ValueError(
                f"--group {group} names a column that --target, --query or --drop names too (rows of a query are held "
                "out together without --group): name another column, or leave one of them out."
            )
        event, _, seen = (event or "").partition("=")
        if event and event in (target, query, group, *(split_names(drop, "--drop") or ())):
            raise ValueError(
                f"--event {event} names a column that --target, --query, --group or --drop names too: name another "
                "column, or leave one of them out."
            )
        names = [name for name in READING if name not in unused]
        _refuse_kinds_left_out(
            _kinds(encode), split_names(features, "--features"), split_names(drop, "--drop")
        )
        return cls(
            target=target or "auto",
            query=None if no_query else query or "auto",
            features=split_names(features, "--features"),
            drop=split_names(drop, "--drop"),
            kinds=_kinds(encode),
            text=text,
            group=group,
            event=event or None,
            seen=seen or None,
            **read_settings("--read", read, READING, names),
        )

    def refuse_labels(self, instead: str) -> None:
        """Groups and events are of rows; preferences have judges."""
        if self.event is not None:
            raise ValueError("--event is for rows with times, and preferences have none: leave it out.")
        if self.group is not None:
            raise ValueError(f"--group is for rows, and {instead}.")

    def check_labels(self, source: Path, names: Sequence[str]) -> None:
        """Refuse a --group or --event that is not among the columns."""
        for argument in ("group", "event"):
            if getattr(self, argument) is not None:
                _require_column(source, getattr(self, argument), names, argument)

    def is_table(self, path: Path) -> bool:
        """Whether a file has named columns; options that it would ignore are refused."""
        from ..tables.options import ReadOptions

        table = ReadOptions(format=self.format).format_of(str(path)) != "letor"
        if table and self.missing is not None:
            raise ValueError(
                f"{path}: --read missing is for LETOR files. Missing values of a table are replaced by the median of "
                "their column and marked: leave it out."
            )
        if not table and self.kinds:
            raise ValueError(f"{path}: --encode names columns, and LETOR files have none.")
        if not table and self.skip_bad:
            raise ValueError(
                f"{path}: --skip-bad is for tables; a LETOR file has a number in front of each row."
            )
        for option, column in (
            ("--read weight", self.weight),
            ("--group", self.group),
            ("--event", self.event),
        ):
            if not table and column is not None:
                raise ValueError(f"{path}: {option} names a column, and LETOR files have none.")
        return table

    def of_letor(self, **more: Any) -> dict[str, Any]:
        """Arguments of `preflearn.io.read_ranking`."""
        names = ("format", "target", "query", "item", "features", "drop", "missing", *_OF_TABLES)
        return {**{name: getattr(self, name) for name in names}, **more}

    def of_table(self, **more: Any) -> dict[str, Any]:
        """Arguments of `preflearn.io.read_table`."""
        names = ("format", "target", "query", "item", "features", "drop", "weight", *_OF_TABLES)
        texts = [] if self.kinds is None else [one for one, kind in self.kinds.items() if kind != "number"]
        found = {name: getattr(self, name) for name in names} | {"texts": texts, **more}
        labels = found["labels"] = [name for name in (self.group, self.event) if name is not None]
        if found["features"] is not None:
            labels = [name for name in labels if name != found["item"]]
            found["features"] = tuple(dict.fromkeys([*found["features"], *labels]))
        if self.skip_bad:
            found["on_bad"] = "skip"
        return found


@dataclass(frozen=True, eq=False)
class Training:
    """Data to learn from, and what a model must know to read new data in the same way: plain values for its file."""

    data: RankingData
    memory: dict[str, Any]
    notes: list[str]
    dependence: Dependence | None = None


def read_training(paths: Sequence[Path], reading: Reading) -> Training:
    """Read files as one, to learn from."""
    from ..tables.encoding.frames import say_copies
    from ..tables.ranking import read_ranking
    from ..tables.table import read_table

    names = [str(path) for path in paths]
    if not reading.is_table(paths[0]):
        data = read_ranking(names, **reading.of_letor())
        return Training(data, _letor_memory(data), [])
    known = column_names(paths[0], reading)
    reading.check_labels(paths[0], known)
    table = read_table(names, **reading.of_table())
    others = (one for one in (table.y, table.weight, table.qid, table.item_names) if one is not None)
    copies = say_copies([*table.columns.values(), *others], table.qid is not None)
    table, clusters = without_labels(table, reading)
    data = replace(encoded(table, reading.kinds), clusters=clusters, cluster=reading.group)
    memory = table_memory(table, data.encoder, known)
    if reading.target != "auto":
        memory["target"] = reading.target
    if reading.group is not None:
        memory["group"] = reading.group
    if reading.event is not None:
        memory["event"] = reading.event if reading.seen is None else f"{reading.event}={reading.seen}"
    if table.item is None and memory["item"] is not None:
        data = replace(data, item_names=table.columns[memory["item"]])
    found = None
    if table.query is None and table.y is not None and reading.group is None:
        from ..comparisons.inputs import surv
        from ..model_selection.dependence import find_dependence

        y = table.y if table.events is None else surv(table.y, table.events)
        found = find_dependence(table.columns, y)
    notes = _query_note(table, reading) if found is None else []
    return Training(data, memory, [*copies, *_event_note(table, reading), *notes], found)


def _event_note(table: TableData, reading: Reading) -> list[str]:
    if reading.event is not None or table.target is None:
        return []
    from ..report.look import suggest_event

    found = suggest_event({**table.columns, table.target: table.y}, table.target)
    if found is None:
        return []
    return [
        f"Column {found.partition('=')[0]!r} looks as if it said whether an event was seen at the times in "
        f"{table.target!r}: --event {shlex.quote(found)} takes the other times as censored."
    ]


def say_dependence(found: Dependence | None) -> str:
    """The sentence with the options; empty where there is none."""
    if found is None:
        return ""
    name = shlex.quote(found.column)
    inside = f"--query {name}, where rows are to be ordered inside of a group"
    return f"{found} --group {name} holds out whole groups ({inside})."


def without_labels(table: TableData, reading: Reading) -> tuple[TableData, np.ndarray | None]:
    """The table without the columns of --group and --event, with its events; and the labels of the groups."""
    clusters = None if reading.group is None else _labels(table, reading.group, "group")
    events = None if reading.event is None else _events(table, reading)
    columns = {
        name: values for name, values in table.columns.items() if name not in (reading.group, reading.event)
    }
    return replace(table, columns=columns, events=events), clusters


def _require_column(source: Path | str, name: str, names: Sequence[str], argument: str) -> None:
    from ..errors import InputError

    if name not in names:
        raise InputError(
            f"{source}: {{argument}} asks for column {name!r}, found {listed(list(names))}", argument=argument
        )


def _labels(table: TableData, name: str, argument: str) -> np.ndarray:
    """A column that every row has a label in."""
    if name == table.item:
        assert table.item_names is not None
        return table.item_names
    if name in (table.target, table.query):
        what = (
            "of the targets or of the queries, whose rows are held out together already"
            if argument == "group"
            else "of the times or of the strata"
        )
        raise ValueError(f"{table.source}: --{argument} names {name!r}, the column {what}: leave it out.")
    _require_column(table.source, name, [*table.columns], argument)
    return table.columns[name]


def _events(table: TableData, reading: Reading) -> np.ndarray:
    """Whether the event of each row was seen; times that are negative are refused with it."""
    import numpy as np

    from ..errors import InputError, Remedy
    from ..tables.cells import truth_values

    name = str(reading.event)
    texts = np.char.strip(_labels(table, name, "event").astype(str))
    if table.y is not None and np.nanmin(table.y) < 0:
        row = int(np.nanargmin(table.y))
        raise ValueError(
            f"{table.place(row)}: the time is {table.y[row]:g}, and with --event column {table.target!r} holds times "
            "from the start, which are not negative: leave such rows out."
        )
    labels = np.unique(texts).tolist()
    if reading.seen is not None and reading.seen in labels and len(labels) <= 2:
        return texts == reading.seen
    values = truth_values([text.removesuffix(".0") for text in texts.tolist()])
    if reading.seen is None and not np.isnan(values).any() and not _means_censored(texts, table, name):
        return values > 0
    found = f"{table.source}: column {name!r} of {{argument}} holds {listed(labels)}"
    if len(labels) > 2:
        raise InputError(
            f"{found}, {len(labels)} different values: expected two, whether the event was seen or the time is "
            "censored (competing events are not supported; a column that is 1 for one of them takes the others as "
            "censored)",
            argument="event",
        )
    if reading.seen is None and np.isnan(values).any():
        said = "expected 0 and 1, true and false, or yes and no"
    else:
        said = "by its name 1 means censored" if reading.seen is None else "expected one of these"
    remedies = [Remedy("event", f"{name}={one}", f"if {one!r} means that it was seen") for one in labels]
    raise InputError(f"{found}: {said}", *remedies, argument="event")


def _means_censored(texts: np.ndarray, table: TableData, name: str) -> bool:
    """Whether 1 means the opposite by the name of the column, such as "censored" or "alive"."""
    from ..report.look import suggest_event

    target = str(table.target)
    return "=" in (suggest_event({name: texts, target: table.y}, target) or "")


def encoded(table: TableData, kinds: dict[str, str] | None) -> RankingData:
    """The table as numbers; what cannot be used is refused with the name of the file."""
    from ..errors import InputError

    absent = [name for name in kinds or () if name not in table.columns]
    if absent:
        raise InputError(
            f"{table.source}: {{argument}} names {listed(absent)}, found {listed(list(table.columns))}",
            argument="encode",
        )
    try:
        return table.encode(kinds)
    except ValueError as error:
        raise ValueError(f"{table.source}: {error}") from error


def table_memory(
    table: TableData | TableChunks, encoder: TableEncoder, names: Sequence[str]
) -> dict[str, Any]:
    """What a model remembers of a table; a column that looks like an item's name is one."""
    item = table.item
    if item is None:
        ids = (name for name, kind in encoder.kinds_.items() if kind == "identifier")
        item = next((name for name in ids if name != encoder.summary_.query), None)
    return {
        "kind": "table",
        "target": table.target,
        "query": table.query,
        "item": item,
        "columns": list(names),
    }


def _letor_memory(data: RankingData | PreferenceData) -> dict[str, Any]:
    """What a model remembers of a LETOR file; a sparse matrix of new rows does not suit a model of a dense one."""
    return {"kind": "letor", "features": data.feature_names, "sparse": hasattr(data.X, "toarray")}


def item_memory(path: Path, reading: Reading, pairs: PreferenceData) -> dict[str, Any]:
    """What a model of preferences remembers of its table of items."""
    if pairs.encoder is None:
        return _letor_memory(pairs)
    names = column_names(path, reading)
    item = "item" if reading.item == "auto" else reading.item
    return {"kind": "table", "target": None, "query": None, "item": item, "columns": names}


def _query_note(table: TableData, reading: Reading) -> list[str]:
    if table.query is not None or reading.query is None:
        return []
    from ..tables.encoding.kinds import suggest_query_column

    target = {} if table.y is None else {"(target)": table.y}
    found = suggest_query_column({**table.columns, **target}, target="(target)" if target else None)
    if found is None:
        return []
    return [
        f"Column {found!r} looks like the query column: --query {shlex.quote(found)} compares rows within it "
        "(--no-query: one ranking of all rows, without this note)."
    ]


def together(paths: Sequence[Path]) -> str:
    """The name of one file, or of the first of several."""
    return shortened([path.name for path in paths], 1)


def column_names(path: Path, reading: Reading) -> list[str]:
    """The columns of a table."""
    from ..tables.formats import open_file
    from ..tables.options import ReadOptions, as_paths

    (name,) = as_paths(str(path))
    options = ReadOptions(
        format=reading.format, delimiter=reading.delimiter, columns=reading.columns, encoding=reading.encoding
    )
    return open_file(name, options).names or []


def describe_files(paths: Sequence[Path]) -> tuple[DataFile, ...]:
    """Name, size and hash of each file."""
    from ..report import DataFile

    found = []
    for path in paths:
        with open(path, "rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        found.append(DataFile(path.name, path.stat().st_size, digest))
    return tuple(found)


def default_output(data: Path, inputs: Sequence[Path], force: bool = False) -> Path:
    """The file for a model that was given no name: that of the data with .preflearn, in the current folder.

    Examples
    --------
    >>> default_output(Path("data/results.csv.gz"), []).name
    'results.preflearn'
    """
    from ..tables.streams import split_name

    name = data.name if split_name(data)[1] is None else data.stem
    found = Path(Path(name).stem + ".preflearn")
    if any(found.resolve() == path.resolve() for path in inputs):
        raise ValueError(f"{found} is a file to learn from: name the model with -o.")
    # A file that cannot be read is reported first.
    if found.is_file() and not force and all(path.is_file() for path in inputs) and not _is_of(found, data):
        raise FileExistsError(
            f"{found} already exists and was not trained on {data.name}: -o {found} replaces it, or give another name."
        )
    return found


def _is_of(model: Path, data: Path) -> bool:
    """Whether a file is a model that `preflearn train` made of a file of this name: the same command replaces it."""
    from ..tables.models.files import model_info

    try:
        metadata = model_info(model)["metadata"]
    except (ValueError, OSError):
        return False
    return metadata.get("command") == "train" and data.name in [
        one["name"] for one in metadata.get("files", ())
    ]


def check_columns(paths: Sequence[Path], reading: Reading) -> None:
    """Refuse names of columns that a table does not have, before anything else is looked at."""
    from ..tables.options import ReadOptions, choose_columns

    if not paths[0].is_file() or not reading.is_table(paths[0]):
        return
    asked = {name: getattr(reading, name) for name in ("target", "query", "item", "features", "drop")}
    choose_columns(str(paths[0]), column_names(paths[0], reading), ReadOptions(**asked))


def check_outputs(outputs: Sequence[Path | None], inputs: Sequence[Path], force: bool = False) -> None:
    """Refuse before any work what could not be written in the end, or would overwrite what is not ours."""
    from ..tables.atomic import require_writable

    if force and not any(outputs):
        raise ValueError(
            "--force replaces a file that is written, and none was asked for: leave --force out."
        )
    taken = {path.resolve(): path for path in inputs}
    for path in outputs:
        if path is None:
            continue
        if path.resolve() in taken:
            raise ValueError(
                f"{path} is named twice, as a file to write and another one: give it another name."
            )
        taken[path.resolve()] = path
        require_writable(path)
        if path.is_file() and not force and not _is_ours(path):
            raise FileExistsError(
                f"{path} exists and was not written by preflearn: give another name, or --force to replace it."
            )


def check_report(report: Path | None) -> None:
    """Refuse a report that is neither a page nor Markdown by its name, or that could not be drawn."""
    if report is None:
        return
    if report.suffix.lower() not in _REPORTS:
        raise ValueError(
            f"{report}: reports are written as {', '.join(_REPORTS)}: give one of these suffixes."
        )
    from ..report.html import require_parts

    require_parts()


def _is_ours(path: Path) -> bool:
    """Whether an existing file is a model, a report, a leaderboard or scores that preflearn wrote, or empty."""
    from ..tables.streams import open_plain, split_name

    with open(path, "rb") as file:
        start = file.read(1 << 12)
    if not start:
        return True
    if start.startswith(b"PK"):
        from ..tables.models.files import model_info

        try:
            model_info(path)
        except (ValueError, OSError):
            return False
        return True
    if b'name="generator" content="preflearn' in start or b"trained by preflearn" in start:
        return True
    if _BOARD.match(start):
        return True
    suffix, compression = split_name(path)
    if suffix in (".parquet", ".pq"):
        return _has_scores(path)
    try:
        if compression is not None:
            with open_plain(str(path), compression) as (_, stream):
                start = stream.read(1 << 12)
        first = start.decode("utf-8", "replace").splitlines()[0]
    except Exception:  # damaged, or not what its name says
        return False
    if suffix in (".trec", ".run"):
        return len(first.split()) == 6 and first.split()[1] == "Q0"
    if suffix in (".jsonl", ".ndjson"):
        return '"score":' in first and first.startswith("{")
    if {"score", "rank"} <= {*first.replace("\t", ",").split(",")} or first in ("row,column,score", "score"):
        return True
    try:
        float(first)
    except ValueError:
        return False
    return True


def _has_scores(path: Path) -> bool:
    from ..tables.formats import open_file
    from ..tables.options import ReadOptions

    try:
        return "score" in (open_file(str(path), ReadOptions()).names or [])
    except ValueError:
        return False


def split_names(given: Sequence[str] | None, option: str) -> tuple[str, ...] | None:
    """Names that were given one by one or with commas between them."""
    if not given:
        return None
    names = tuple(name.strip() for one in given for name in one.split(","))
    if not all(names):
        raise ValueError(f"{option} has an empty name in it: found {','.join(given)!r}.")
    return names


def _kinds(given: Sequence[str] | None) -> dict[str, str] | None:
    """COLUMN=KIND, one by one or with commas between them; a column's name may hold commas itself."""
    found: dict[str, str] = {}
    for one in given or ():
        begun: list[str] = []
        for part in one.split(","):
            begun.append(part)
            if "=" not in part:
                continue
            column, _, kind = ",".join(begun).rpartition("=")
            column, begun = column.strip(), []
            if column in found:
                raise ValueError(f"--encode names column {column!r} twice.")
            hashed = kind.startswith("words:") and kind[6:].isdecimal() and int(kind[6:]) > 0
            if not column or not (kind in _KINDS or hashed):
                raise ValueError(
                    f"--encode takes COLUMN=KIND with a kind of {', '.join(_KINDS)} or words:N: found {one!r}."
                )
            found[column] = kind
        if begun:
            raise ValueError(f"--encode takes COLUMN=KIND: found {','.join(begun)!r} in {one!r}.")
    return found or None


def _refuse_kinds_left_out(
    kinds: dict[str, str] | None, features: tuple[str, ...] | None, drop: tuple[str, ...] | None
) -> None:
    """Raise ValueError for kinds of columns that other options leave out."""
    for name in kinds or ():
        if name in (drop or ()):
            raise ValueError(f"--encode names column {name!r}, and --drop leaves it out: give one of them.")
        if features is not None and name not in features:
            raise ValueError(
                f"--encode names column {name!r}, which is not among --features: name it there, too."
            )


def listed(names: Sequence[str]) -> str:
    """A few names in one line."""
    return shortened([repr(name) for name in names], 8)
