"""The checkpoint of a stream: what has been summed, and over which rows.

A file in NumPy's npz form: arrays and one JSON header, no pickled object. It is written under another name and renamed
(`tables.atomic`), so that whoever opens it finds the last whole checkpoint, and every member carries a checksum.
A checkpoint records the parameters and the rows it belongs to (a hash over every byte of X, y and qid, chained from
chunk to chunk) and is refused with others.

The bytes of each array go through CRC-32, and the checksums, shapes and types through BLAKE2. CRC-32 detects any change
within four adjacent bytes, and misses any other with a probability of 2^-32. On one core it hashed 3.6 GB/s, compared
with 0.8 for BLAKE2b and 1.5 for SHA-256 in hardware, while chunks are read from Parquet at 0.5 GB/s;
``benchmarks/streaming.py`` measures the cost of reading with and without it.
"""

from __future__ import annotations

import dataclasses
import errno
import json
import os
import pickle
import time
import warnings
import zipfile
import zlib
from collections.abc import Mapping
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from ...kernels.functions import n_items
from ...squared.moments import GlobalMoments, QueryMoments
from ...squared.statistics import KeySet, Moments, Statistics
from ...tables.atomic import atomic_write
from .basis import Basis

FORMAT = "preflearn stream checkpoint"
VERSION = 2
_KINDS: dict[str, type] = {"QueryMoments": QueryMoments, "GlobalMoments": GlobalMoments}


class CheckpointError(ValueError):
    """A file that is not a checkpoint, is damaged, or belongs to other data or parameters.

    Attributes
    ----------
    found : str
        What is wrong with it. The command line has its own advice, since it names the file itself.
    """

    def __init__(self, found: str, advice: str = ""):
        super().__init__(f"{found}. {advice}" if advice else found)
        self.found, self._advice = found, advice

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.found, self._advice)


@dataclasses.dataclass
class Progress:
    """How far a stream has been read.

    Attributes
    ----------
    statistics : Statistics
    digest : bytes
        Hash of every row read, chained over the chunks.
    first_digest : bytes
        The same after the first chunk, so that other data are noticed at once.
    n_outputs : int
    single : bool
        Whether y came as one column.
    with_queries : bool
    basis : Basis or None
        Of a reduced set.
    """

    statistics: Statistics
    digest: bytes
    first_digest: bytes
    n_outputs: int
    single: bool
    with_queries: bool
    basis: Basis | None = None


def extend_digest(digest: bytes, X: Any, y: np.ndarray, qid: Any) -> bytes:
    """The hash of the rows so far and of one more chunk: every byte of X, y and qid."""
    found = blake2b(digest, digest_size=16)
    found.update(repr((type(X).__name__, n_items(X))).encode())
    if sp.issparse(X):
        parts = [X.data, X.indices, X.indptr]
    else:
        parts = [X if hasattr(X, "shape") else _as_objects(X)]
    for part in (*parts, y, np.empty(0) if qid is None else qid):
        array = np.asarray(part)
        found.update(repr((array.dtype.str, array.shape, _checksum(array))).encode())
    return found.digest()


def _as_objects(items: Any) -> np.ndarray:
    """A sequence of objects as an array of them, whatever they hold."""
    array = np.empty(n_items(items), dtype=object)
    for place, item in enumerate(items):
        array[place] = item
    return array


def _checksum(array: np.ndarray) -> int:
    """CRC-32 of the values in C order."""
    found = 0
    if array.dtype == object:
        for item in array.ravel():
            found = zlib.crc32(_object_as_bytes(item), found)
    elif array.size:
        found = zlib.crc32(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    return found


def _object_as_bytes(item: Any) -> bytes:
    if item is None or isinstance(item, (bool, int, float, str, bytes)):
        return repr(item).encode() + b"\0"
    if isinstance(item, np.ndarray) and item.dtype != object:
        return repr((item.dtype.str, item.shape)).encode() + np.ascontiguousarray(item).tobytes()
    try:
        return pickle.dumps(item, protocol=5)
    except Exception as error:
        raise ValueError(
            f"A checkpoint must recognise its rows: an item of type {type(item).__name__} cannot be serialised "
            f"({error}). Leave checkpoint out."
        ) from error


def fingerprint(learner: str, parameters: Mapping[str, Any], n_folds: int) -> dict[str, str]:
    """The parameters that the statistics depend on, each as text."""
    values = {"learner": learner, "folds": str(n_folds)}
    for name, value in parameters.items():
        values[name] = _as_text(value)
    return values


def _as_text(value: Any) -> str:
    """A description of a parameter that can be compared with its value in another process."""
    if isinstance(value, (np.random.RandomState, np.random.Generator)):
        raise ValueError(
            "A checkpoint must record how the basis was drawn: random_state is a generator, whose state cannot "
            "be compared with that of another run. Use an int, or leave checkpoint out."
        )
    if callable(value):
        return _function_as_text(value)
    if isinstance(value, Mapping):
        return repr(sorted((str(key), _as_text(one)) for key, one in value.items()))
    if isinstance(value, (list, tuple, np.ndarray)):
        array = np.asarray(value)
        return f"{array.dtype} {array.shape} {blake2b(array.tobytes(), digest_size=16).hexdigest()}"
    return repr(value.item() if isinstance(value, np.generic) else value)


def _function_as_text(function: Any) -> str:
    name = getattr(function, "__qualname__", "")
    if not name or "<" in name:
        raise ValueError(
            f"A checkpoint must recognise the functions among its parameters: {function!r} is not defined at the top "
            "level of a module. Define it there (a kernel takes parameters in kernel_params), or leave checkpoint out."
        )
    code = getattr(function, "__code__", None)
    body = b"" if code is None else code.co_code + repr(code.co_consts).encode()
    return f"{function.__module__}.{name} {blake2b(body, digest_size=8).hexdigest()}"


class CheckpointFile:
    """A file of arrays and plain values, and how often it is written.

    Parameters
    ----------
    path : path-like
    every : int, float or None
        Chunks (int) or seconds (float) between two checkpoints; None is 60 seconds.
    parameters : dict of str
        As `fingerprint` gives them: a file with others is refused.
    """

    format, version = FORMAT, VERSION
    # What may change between two runs, for the error message.
    may_change = "alpha and alphas may change."

    def __init__(self, path: str | os.PathLike[str], every: int | float | None, parameters: dict[str, str]):
        self.path = Path(path)
        self._parameters = parameters
        self._chunks, self._seconds = _read_every(every)
        self._last_time, self._last_chunk = time.monotonic(), 0
        self._warned = False
        self._refuse_unwritable()

    def _refuse_unwritable(self) -> None:
        folder = Path(os.path.realpath(self.path)).parent
        if self.path.is_dir():
            raise IsADirectoryError(f"checkpoint={str(self.path)!r} is a folder: give the name of a file.")
        if not folder.is_dir():
            raise FileNotFoundError(f"There is no folder {folder} for the checkpoint: create it first.")
        if not os.access(folder, os.W_OK):
            raise PermissionError(f"The folder {folder} of the checkpoint cannot be written to.")

    def read(self) -> tuple[dict[str, Any], dict[str, np.ndarray]] | None:
        """Header and arrays of the file; None where there is no file yet.

        Raises
        ------
        CheckpointError
            If the file is not a complete checkpoint, or belongs to other parameters.
        """
        if not self.path.exists():
            return None
        try:
            with np.load(self.path, allow_pickle=False) as archive:
                header = json.loads(archive["header"].tobytes())
                arrays = {name: archive[name] for name in archive.files if name != "header"}
        except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile, zlib.error) as error:
            raise CheckpointError(
                f"{self.path}: not a whole checkpoint of preflearn",
                "Give another name, or remove the file to start over.",
            ) from error
        if not isinstance(header, dict) or header.get("format") != self.format:
            raise CheckpointError(f"{self.path}: not a checkpoint of preflearn", "Give another name.")
        if header["version"] != self.version:
            raise CheckpointError(
                f"{self.path}: written in version {header['version']} of the format, this preflearn reads "
                f"{self.version}",
                "Remove the file to start over.",
            )
        self._refuse_other_parameters(header["parameters"])
        return header, arrays

    def _refuse_other_parameters(self, found: dict[str, str]) -> None:
        names = sorted(set(found) | set(self._parameters))
        changed = [name for name in names if found.get(name) != self._parameters.get(name)]
        if changed:
            differences = ", ".join(
                f"{name} was {found.get(name)} and is {self._parameters.get(name)}" for name in changed
            )
            raise CheckpointError(
                f"{self.path}: the checkpoint belongs to other parameters ({differences})",
                "Set them back, give another checkpoint, or remove the file to start over. "
                + self.may_change,
            )

    def is_due(self, n_chunks: int) -> bool:
        """Whether it is time to write."""
        if self._chunks is not None:
            return n_chunks - self._last_chunk >= self._chunks
        return time.monotonic() - self._last_time >= self._seconds

    def written_at(self, n_chunks: int) -> None:
        """Restart the count of time and chunks until the next checkpoint."""
        self._last_time, self._last_chunk = time.monotonic(), n_chunks

    def write(self, header: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
        """Write, or warn once and leave the last checkpoint as it is where the disk is full."""
        header = {
            "format": self.format,
            "version": self.version,
            "parameters": self._parameters,
            **header,
        }
        try:
            with atomic_write(self.path) as file:
                as_bytes = np.frombuffer(json.dumps(header).encode(), np.uint8)
                np.savez(file, allow_pickle=False, header=as_bytes, **arrays)
        except OSError as error:
            if self._warned:
                return
            self._warned = True
            why = "the disk is full" if error.errno in (errno.ENOSPC, errno.EDQUOT) else str(error)
            kept = "the previous one stays" if self.path.exists() else "there is none yet"
            warnings.warn(
                f"The checkpoint {self.path} could not be written ({why}); {kept}. Training continues, and the "
                "next checkpoint will be written as usual.",
                RuntimeWarning,
                stacklevel=2,
            )
        else:
            self._warned = False


class Checkpoint(CheckpointFile):
    """The checkpoint of one pass."""

    def load(self) -> Progress | None:
        """The progress in the file; None where there is no file yet."""
        found = self.read()
        if found is None:
            return None
        progress = _unpack(*found)
        self._last_chunk = progress.statistics.n_chunks
        return progress

    def save(self, progress: Progress) -> None:
        """Write, or warn once and leave the last checkpoint as it is where the disk is full."""
        self.written_at(progress.statistics.n_chunks)
        self.write(*_pack(progress))


def _read_every(every: int | float | None) -> tuple[int | None, float]:
    if every is None:
        return None, 60.0
    if isinstance(every, bool) or not isinstance(every, (int, float)) or not every > 0:
        raise ValueError(
            "checkpoint_every must be a number of chunks (int) or of seconds (float), above zero: found "
            f"{every!r}."
        )
    return (every, 0.0) if isinstance(every, int) else (None, every)


def pack_moments(moments: Moments, prefix: str) -> dict[str, np.ndarray]:
    """The parts of some sums as arrays, with names that begin with a prefix."""
    return {
        f"{prefix}{part.name}": np.asarray(getattr(moments, part.name))
        for part in dataclasses.fields(moments)
    }


def unpack_moments(kind: str, arrays: Mapping[str, np.ndarray], prefix: str) -> Moments:
    """The sums that `pack_moments` took apart; ``kind`` is the name of their class."""
    names = [part.name for part in dataclasses.fields(_KINDS[kind])]
    values = {name: arrays[f"{prefix}{name}"] for name in names}
    # Counts, weights and words were plain values.
    return _KINDS[kind](**{k: v.item() if v.ndim == 0 else v for k, v in values.items()})


def _pack(progress: Progress) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    statistics = progress.statistics
    header = {
        "n_rows": statistics.n_rows,
        "n_chunks": statistics.n_chunks,
        "digest": progress.digest.hex(),
        "first_digest": progress.first_digest.hex(),
        "n_outputs": progress.n_outputs,
        "single": progress.single,
        "with_queries": progress.with_queries,
        "basis": None if progress.basis is None else progress.basis.source,
        "folds": [None if fold is None else type(fold).__name__ for fold in statistics.folds],
    }
    arrays: dict[str, np.ndarray] = {}
    arrays["query_low"], arrays["query_high"] = statistics.queries.runs()
    for number, fold in enumerate(statistics.folds):
        if fold is not None:
            arrays |= pack_moments(fold, f"fold{number}_")
    if progress.basis is not None:
        items = progress.basis.items
        arrays["basis_indices"], arrays["basis_keys"] = progress.basis.indices, progress.basis.keys
        if sp.issparse(items):
            items = items.tocsr()
            arrays |= {f"basis_csr_{name}": getattr(items, name) for name in ("data", "indices", "indptr")}
            arrays["basis_shape"] = np.array(items.shape)
        else:
            arrays["basis_items"] = np.asarray(items)
    return header, arrays


def _unpack(header: dict[str, Any], arrays: dict[str, np.ndarray]) -> Progress:
    folds: list[Moments | None] = []
    for number, kind in enumerate(header["folds"]):
        if kind is None:
            folds.append(None)
            continue
        folds.append(unpack_moments(kind, arrays, f"fold{number}_"))
    basis = None
    if header["basis"] is not None:
        if "basis_shape" in arrays:
            parts = tuple(arrays[f"basis_csr_{name}"] for name in ("data", "indices", "indptr"))
            items: Any = sp.csr_array(parts, shape=tuple(arrays["basis_shape"]))
        else:
            items = arrays["basis_items"]
        basis = Basis(items, arrays["basis_indices"], arrays["basis_keys"], header["basis"])
    return Progress(
        Statistics(
            folds,
            KeySet.from_runs(arrays["query_low"], arrays["query_high"]),
            header["n_rows"],
            header["n_chunks"],
        ),
        bytes.fromhex(header["digest"]),
        bytes.fromhex(header["first_digest"]),
        header["n_outputs"],
        header["single"],
        header["with_queries"],
        basis,
    )
