"""Data files, and the model files that remember how their data were read."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    import numpy as np

    from ..io import RankingData
    from ..report import DataFile

DataPaths = Annotated[
    list[Path],
    typer.Argument(
        metavar="DATA...",
        help="LETOR / svmlight, CSV, TSV, JSON lines or Parquet, each also compressed; several are read as one.",
    ),
]
OptionalDataPaths = Annotated[list[Path] | None, *DataPaths.__metadata__]
ModelPath = Annotated[Path, typer.Argument(metavar="MODEL", help="A file that `preflearn train` wrote.")]
FormatOption = Annotated[
    str | None, typer.Option("--format", help="letor, csv, tsv, jsonl or parquet; by the name otherwise.")
]
TargetOption = Annotated[
    str | None, typer.Option("--target", help="Column of the targets, higher is better. [default: target]")
]
QueryOption = Annotated[
    str | None,
    typer.Option("--query", help="Column of the queries. [default: qid or query, if there is one]"),
]
NoQueryOption = Annotated[
    bool, typer.Option("--no-query", help="All rows form one ranking, whatever the columns.")
]
ItemOption = Annotated[
    str | None, typer.Option("--item", help="Column that names the rows. [default: item, if there is one]")
]
FeaturesOption = Annotated[
    list[str] | None,
    typer.Option("--features", help="Columns to learn from (repeat, or commas). [default: all others]"),
]
DropOption = Annotated[
    list[str] | None, typer.Option("--drop", help="Columns to leave out (repeat, or commas).")
]
EncodeOption = Annotated[
    list[str] | None,
    typer.Option(
        "--encode", metavar="COL=HOW", help="Text into numbers: onehot, words, or words:N features."
    ),
]
MissingOption = Annotated[
    float | None, typer.Option("--missing", help="Number that stands for a missing feature.")
]
DelimiterOption = Annotated[
    str | None, typer.Option("--delimiter", help="Separator of the cells of a table.")
]

ColumnsOption = Annotated[
    list[str] | None,
    typer.Option("--columns", help="Names of the columns of a table without a header (repeat, or commas)."),
]

_FEW = 8


@dataclass(frozen=True)
class Reading:
    """How a data file is to be read: the options of the command line, as `preflearn.io.read_ranking` takes them."""

    format: str | None = None
    target: str | None = "auto"
    query: str | None = "auto"
    item: str | None = "auto"
    features: tuple[str, ...] | None = None
    drop: tuple[str, ...] | None = None
    encode: dict[str, Any] | None = None
    missing: float | None = None
    delimiter: str | None = None
    columns: tuple[str, ...] | None = None
    n_features: int | None = None
    allow_unknown: bool = False

    @classmethod
    def from_options(
        cls,
        *,
        format: str | None = None,
        target: str | None = None,
        query: str | None = None,
        no_query: bool = False,
        item: str | None = None,
        features: Sequence[str] | None = None,
        drop: Sequence[str] | None = None,
        encode: Sequence[str] | None = None,
        missing: float | None = None,
        delimiter: str | None = None,
        columns: Sequence[str] | None = None,
    ) -> Reading:
        """Check what was typed."""
        if no_query and query is not None:
            raise ValueError("--query names a column and --no-query does without: give one of them.")
        if missing is not None and missing - missing != 0:
            raise ValueError(f"--missing must be a finite number: found {missing}.")
        return cls(
            format=format,
            target=target or "auto",
            query=None if no_query else query or "auto",
            item=item or "auto",
            features=_names(features, "--features"),
            drop=_names(drop, "--drop"),
            encode=_encoders(encode),
            missing=missing,
            delimiter="\t" if delimiter == r"\t" else delimiter,
            columns=_names(columns, "--columns"),
        )

    def arguments(self) -> dict[str, Any]:
        from dataclasses import fields

        return {one.name: getattr(self, one.name) for one in fields(self)}


def read(paths: Sequence[Path], reading: Reading) -> RankingData:
    """Read files as one."""
    from ..io import read_ranking

    return read_ranking([str(path) for path in paths], **reading.arguments())


def read_columns(path: Path, reading: Reading) -> list[str] | None:
    """The columns of a table, None for a LETOR file."""
    from ..io.formats import open_file
    from ..io.options import ReadOptions, as_paths

    (name,) = as_paths(str(path))
    return open_file(name, ReadOptions(**reading.arguments())).names


def describe_files(paths: Sequence[Path]) -> tuple[DataFile, ...]:
    """Name, size and hash of each file."""
    from ..report import DataFile

    found = []
    for path in paths:
        with open(path, "rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        found.append(DataFile(path.name, path.stat().st_size, digest))
    return tuple(found)


def remember(path: Path, reading: Reading, data: Any) -> dict[str, Any]:
    """What a model must know to read new data as its training data were read; plain values for its file."""
    from ..io.options import ReadOptions
    from ..io.roles import choose_columns

    kept: dict[str, Any] = {"features": data.feature_names, "missing": reading.missing}
    names = read_columns(path, reading)
    if names is None:
        return {**kept, "kind": "letor"}
    roles = choose_columns(str(path), names, ReadOptions(**reading.arguments()))
    used = {*roles.numbers, *roles.words, *roles.targets, roles.query, roles.item}
    return {
        **kept,
        "kind": "table",
        "target": roles.targets[0] if roles.targets else None,
        "query": roles.query,
        "item": roles.item,
        "numbers": list(roles.numbers),
        "encoding": {column: _encoder_as_json(encoder) for column, encoder in data.encoding.items()},
        "others": [name for name in names if name not in used],
    }


def read_for(
    model_file: Path, memory: dict[str, Any], paths: Sequence[Path], reading: Reading, *, with_target: bool
) -> RankingData:
    """Read new data as the training data of a model were read.

    Raises
    ------
    ValueError
        If a column of the training is not there, or there is one that the training did not have.
    """
    names = read_columns(paths[0], reading)
    table = names is not None
    if table != (memory["kind"] == "table"):
        trained_on = (
            "a table with named columns"
            if memory["kind"] == "table"
            else "a LETOR file with numbered features"
        )
        raise ValueError(
            f"{paths[0]}: {model_file} was trained on {trained_on}, and this is the other kind: give a file "
            "like the one it was trained on."
        )
    wanted = (
        _letor(memory, reading) if names is None else _table(paths[0], names, model_file, memory, reading)
    )
    if not with_target:
        wanted["target"] = None
    _require_queries(paths[0], names, memory, wanted, reading, with_target)
    return read(paths, Reading(**{**reading.arguments(), **wanted}))


def _require_queries(
    path: Path,
    names: list[str] | None,
    memory: dict[str, Any],
    wanted: dict[str, Any],
    reading: Reading,
    with_target: bool,
) -> None:
    """Figures over queries, and features standardised within them, need to know the queries."""
    if names is None or memory["query"] is None or reading.query != "auto" or wanted["query"] != "auto":
        return
    if with_target and not {"qid", "query"} & set(names):
        raise ValueError(
            f"{path}: the model was trained with the queries of column {memory['query']!r}, which is not there; found "
            f"{_listed(names)}. Pass --query and a column, or --no-query for one ranking of all rows."
        )


def _letor(memory: dict[str, Any], reading: Reading) -> dict[str, Any]:
    return {"n_features": len(memory["features"])}


def _table(
    path: Path, names: list[str], model_file: Path, memory: dict[str, Any], reading: Reading
) -> dict[str, Any]:
    encode = encoders_of(memory)
    needed = [*memory["numbers"], *encode]
    missing = [name for name in needed if name not in names]
    if missing:
        raise ValueError(
            f"{path}: columns of the training are missing: {_listed(missing)}; found {_listed(names)}. Rename or "
            f"add them, or train {model_file} again without them."
        )
    labels = {}
    for role in ("target", "query", "item"):
        asked = getattr(reading, role)
        if asked == "auto" and memory[role] is not None:
            labels[role] = memory[role] if memory[role] in names else "auto"
        elif asked == "auto":
            labels[role] = None if role == "query" else "auto"
        else:
            labels[role] = asked
    expected = {*needed, *memory["others"], *(reading.drop or ())}
    expected |= {memory["target"], memory["query"], memory["item"], *labels.values()}
    expected |= {"target", "qid", "query", "item"}
    unknown = [name for name in names if name not in expected]
    if unknown:
        raise ValueError(
            f"{path}: column {_listed(unknown)} was not there in the training of {model_file}. Pass "
            f"{' '.join(f'--drop {name}' for name in unknown[:_FEW])} to leave it out."
        )
    for name in reading.drop or ():
        if name not in names:
            raise ValueError(f"{path}: --drop asks for column {name!r}, found {_listed(names)}.")
    missing_value = memory["missing"] if reading.missing is None else reading.missing
    return {**labels, "features": tuple(needed), "drop": None, "encode": encode, "missing": missing_value}


def load(path: Path, commands: Sequence[str] = ("train",)) -> tuple[Any, dict[str, Any]]:
    """A model of `preflearn train`, or of other commands that the caller can use, and what it remembers."""
    from ..io import load_model, model_info

    model = load_model(path)
    metadata = model_info(path)["metadata"]
    if metadata.get("command") not in commands:
        raise ValueError(
            f"{path} holds a model that `preflearn train` did not write ({type(model).__name__}): how to read "
            "data for it is not known. Use it from Python with preflearn.io.load_model."
        )
    return model, dict(metadata)


def check_outputs(outputs: Sequence[Path | None], inputs: Sequence[Path]) -> None:
    """Refuse before any work what could not be written in the end, or would overwrite what is read."""
    taken = {path.resolve(): path for path in inputs}
    for path in outputs:
        if path is None:
            continue
        if path.resolve() in taken:
            raise ValueError(
                f"{path} is named twice, as a file to write and another one: give it another name."
            )
        taken[path.resolve()] = path
        if path.is_dir():
            raise IsADirectoryError(f"{path} is a folder: give the name of a file to write.")
        if not path.resolve().parent.is_dir():
            raise FileNotFoundError(
                f"There is no folder {path.parent} to write {path.name} to: create it first."
            )


def same_as_training(metadata: dict[str, Any], paths: Sequence[Path]) -> str | None:
    """A note where rows are those that a model was trained on."""
    trained = {one["sha256"] for one in metadata["files"]}
    found = [one.name for one in describe_files(paths) if one.sha256 in trained]
    if not found:
        return None
    return (
        f"{', '.join(found)} is what the model was trained on: these figures are too good. The held-out "
        f"{metadata['estimate']['measure']} of the training is {metadata['estimate']['value']:.4f}."
    )


def scores_of_ranker(
    path: Path, data_paths: Sequence[Path], reading: Reading, n_rows: int | None = None
) -> tuple[np.ndarray, str | None]:
    """Scores by a model, or read from a file of scores; and a note."""
    from ..io import read_scores

    if is_model(path):
        model, metadata = load(path)
        data = read_for(path, metadata["reading"], data_paths, reading, with_target=False)
        return scores_of(model, data, metadata), same_as_training(metadata, data_paths)
    scores = read_scores(path)
    if n_rows is not None and scores.shape[0] != n_rows:
        raise ValueError(
            f"{path} has {scores.shape[0]:,} scores for {n_rows:,} rows of data: expected one each."
        )
    return scores, None


def scores_of(model: Any, data: RankingData, metadata: dict[str, Any]) -> Any:
    """Scores by a model of `preflearn train`, which may look at the queries."""
    from ..metrics.predictions import predict_scores

    return predict_scores(model, prepared(data.X, data.qid, metadata), data.qid)


def prepared(X: Any, qid: Any, metadata: dict[str, Any]) -> Any:
    """Features as the model's pipeline expects them."""
    if not metadata.get("within_queries"):
        return X
    from ..training.preparation import standardise_within_queries

    return standardise_within_queries(X, qid)


def is_model(path: Path) -> bool:
    """Whether a file is a model rather than a table of scores; models are archives."""
    if not path.exists():
        raise FileNotFoundError(f"There is no file {path}.")
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder: give the name of a model or of a file of scores.")
    with open(path, "rb") as file:
        return file.read(4) == b"PK\x03\x04" or path.suffix == ".preflearn"


def _names(given: Sequence[str] | None, option: str) -> tuple[str, ...] | None:
    if not given:
        return None
    names = tuple(name.strip() for one in given for name in one.split(","))
    if not all(names):
        raise ValueError(f"{option} has an empty name in it: found {','.join(given)!r}.")
    return names


def _encoders(given: Sequence[str] | None) -> dict[str, Any] | None:
    if not given:
        return None
    from ..io import HashedWords

    found: dict[str, Any] = {}
    for one in given:
        column, _, how = one.rpartition("=")
        if column in found:
            raise ValueError(f"--encode names column {column!r} twice.")
        if column and how in ("onehot", "words"):
            found[column] = how
        elif column and how.startswith("words:") and how[6:].isdigit():
            found[column] = HashedWords(int(how[6:]))
        else:
            raise ValueError(f"--encode takes COLUMN=onehot, COLUMN=words or COLUMN=words:N: found {one!r}.")
    return found


def _encoder_as_json(encoder: Any) -> dict[str, Any]:
    from ..io import OneHot

    if isinstance(encoder, OneHot):
        return {"onehot": list(encoder.categories or ())}
    return {"words": encoder.n_features}


def encoders_of(memory: dict[str, Any]) -> dict[str, Any]:
    """The encoders of the text columns of the training, by column."""
    return {column: _encoder_from_json(one) for column, one in memory["encoding"].items()}


def _encoder_from_json(kept: dict[str, Any]) -> Any:
    from ..io import HashedWords, OneHot

    return OneHot(kept["onehot"]) if "onehot" in kept else HashedWords(kept["words"])


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(repr(name) for name in names[:_FEW])
    return shown if len(names) <= _FEW else f"{shown} and {len(names) - _FEW} more"
