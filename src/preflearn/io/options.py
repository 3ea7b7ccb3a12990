"""What a caller may ask of a reader, checked once and shared by every format."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any, Literal

import numpy as np

from ..errors import InputError, Remedy
from .cells import CellError
from .compression import split_name
from .encodings import read_encoding

AUTO = "auto"

FORMATS = ("letor", "csv", "tsv", "jsonl", "parquet")
_SUFFIXES = {
    "letor": (".txt", ".letor", ".svm", ".svmlight", ".libsvm", ".dat", ".train", ".vali", ".test"),
    "csv": (".csv",),
    "tsv": (".tsv", ".tab"),
    "jsonl": (".jsonl", ".ndjson"),
    "parquet": (".parquet", ".pq"),
}


@dataclass(frozen=True)
class ReadOptions:
    """The arguments of :func:`preflearn.io.read_ranking`, which documents them."""

    format: str | None = None
    target: str | Sequence[str] | None = AUTO
    query: str | None = AUTO
    item: str | None = AUTO
    features: Sequence[str] | None = None
    drop: Sequence[str] | None = None
    columns: Sequence[str] | None = None
    delimiter: str | None = None
    missing: float | None = None
    allow_unknown: bool = False
    n_features: int | None = None
    sparse: bool | Literal["auto"] = "auto"
    dtype: Any = np.float64
    n_jobs: int | None = None
    verbose: bool = False
    encoding: str | None = None

    def __post_init__(self) -> None:
        if self.format is not None and self.format not in FORMATS:
            raise InputError(f"the format {self.format!r} is not known: expected one of {', '.join(FORMATS)}")
        for name in ("features", "drop", "columns"):
            value = getattr(self, name)
            if isinstance(value, str):
                raise TypeError(f"{name} must be a list of column names: found the text {value!r}.")
        if self.features is not None and self.drop is not None:
            raise InputError("give either features (the columns to take) or drop (the columns to leave out)")
        if self.sparse not in (True, False, "auto"):
            raise ValueError(f"sparse must be True, False or 'auto': found {self.sparse!r}.")
        if np.dtype(self.dtype) not in (np.dtype(np.float64), np.dtype(np.float32)):
            raise ValueError(f"dtype must be float64 or float32: found {self.dtype!r}.")
        if self.missing is not None and (not isinstance(self.missing, Real) or math.isinf(self.missing)):
            raise ValueError(
                f"missing must be the number that replaces a missing value (NaN included): found {self.missing!r}."
            )
        if self.n_features is not None and (
            isinstance(self.n_features, bool)
            or not isinstance(self.n_features, (int, np.integer))
            or self.n_features < 1
        ):
            raise ValueError(f"n_features must be a positive whole number: found {self.n_features!r}.")
        if self.delimiter is not None and (
            len(self.delimiter) != 1 or not self.delimiter.isascii() or self.delimiter in '"\r\n'
        ):
            raise ValueError(f"delimiter must be one ASCII character: found {self.delimiter!r}.")
        if self.encoding is not None:
            read_encoding(self.encoding)

    def format_of(self, path: str) -> str:
        """The format given, or the one that the name of the file tells."""
        if self.format is not None:
            return self.format
        suffix, _ = split_name(path)
        for name, suffixes in _SUFFIXES.items():
            if suffix in suffixes:
                return name
        known = ", ".join(suffix for suffixes in _SUFFIXES.values() for suffix in suffixes)
        raise InputError(
            f"{path}: the name does not determine the format (known: {known}, each also with .gz, .bz2, .xz, .zst)",
            Remedy("format", purpose=f"with one of {', '.join(FORMATS)}"),
        )

    def refuse_given(self, kind: str, why: str, *names: str) -> None:
        """Refuse options that a format would ignore."""
        defaults = {"target": AUTO, "query": AUTO, "item": AUTO}
        for name in names:
            if getattr(self, name) != defaults.get(name):
                raise InputError(
                    f"{{argument}} does not apply to {kind} files: {why}; leave it out", argument=name
                )

    def missing_feature(self) -> float:
        """What stands for a missing feature."""
        if self.missing is None:
            raise CellError(
                "a missing value",
                Remedy("missing", 0.0, "(or another number) to fill it in"),
                Remedy("missing", math.nan, "to keep it as not known"),
            )
        return float(self.missing)

    def missing_target(self) -> float:
        """What stands for a missing target."""
        if not self.allow_unknown and self.target is not None:
            raise CellError(
                "a missing target, expected a finite number: leave out rows whose target is not known",
                Remedy("allow_unknown", True, "to read it as NaN (not known)"),
            )
        return math.nan


def as_paths(path: Any) -> list[str]:
    """One path or a sequence of paths, as texts."""
    paths = [path] if isinstance(path, (str, os.PathLike)) else path
    if not isinstance(paths, Sequence) or not paths:
        raise TypeError(f"Expected the path of a file or a list of paths: found {type(path).__name__}.")
    found = []
    for one in paths:
        if not isinstance(one, (str, os.PathLike)):
            raise TypeError(f"Expected the path of a file: found {type(one).__name__}.")
        text = os.fspath(one)
        if isinstance(text, bytes):
            text = os.fsdecode(text)
        found.append(text)
        if not os.path.exists(text):
            raise FileNotFoundError(f"There is no file {text}.")
        if os.path.isdir(text):
            raise IsADirectoryError(f"{text} is a folder: give the name of a file, or a list of files.")
    return found
