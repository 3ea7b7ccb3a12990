"""Models on disk: a file that holds values, never code.

A model file is a skops archive (zip) with one more member, ``preflearn.json``: the version of this format, what wrote
the file, and what the caller wants to remember beside the model. skops writes; reading is done here, by a reader that
knows a short list of classes and functions (`types`), keeps within limits
(`archive`), judges every node before it builds any (`nodes`) and checks that the
arrays of a model fit together (`fitted`). Every member carries a checksum, so that damage is noticed.
"""

from __future__ import annotations

import io
import json
import os
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from copy import copy
from types import MappingProxyType
from typing import IO, Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.pipeline import Pipeline

from ...comparisons import encode_queries
from ...comparisons.grouping import positions_in_groups
from ...metrics.by_query import predict_scores, wants_qid
from ..atomic import write_whole
from ..data import NumberedNames
from ..options import as_paths
from .archive import ModelArchive, ModelRefusedError

FORMAT = "preflearn model"
VERSION = 1

_HEADER = "preflearn.json"


def save_model(
    model: Any, path: str | os.PathLike[str], *, metadata: Mapping[str, Any] | None = None
) -> None:
    """Write a fitted model to a file that :func:`load_model` reads.

    The file appears whole or not at all.

    Parameters
    ----------
    model : estimator
        A preflearn or scikit-learn estimator, or a pipeline of them. What was fitted on PyTorch tensors is saved as
        NumPy arrays.
    path : path
        The file; ``.preflearn`` is the usual suffix.
    metadata : dict, default=None
        Anything that JSON can hold and that belongs with the model, such as the names of its features;
        :func:`model_info` reads it back.

    Raises
    ------
    ValueError
        If the model holds something that could not be loaded again, such as a kernel that is a function of yours.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> from sklearn.linear_model import Ridge
    >>> path = pathlib.Path(tempfile.mkdtemp(), "model.preflearn")
    >>> save_model(Ridge().fit([[0.0], [1.0]], [0.0, 1.0]), path, metadata={"features": ["price"]})
    >>> load_model(path).predict([[0.5]])
    array([0.5])
    >>> model_info(path)["metadata"]
    {'features': ['price']}
    """
    write_whole(path, model_to_bytes(model, metadata))


def model_to_bytes(
    model: Any, metadata: Mapping[str, Any] | None = None, *, check: bool = True
) -> memoryview:
    """The content of a model file; ``check`` reads it back, and refuses what could not be loaded."""
    if isinstance(model, type) or not isinstance(model, BaseEstimator):
        raise TypeError(f"save_model expects a fitted estimator: found {type(model).__name__}.")
    header = _header(model, metadata)
    payload = _dump(_on_host(model))
    if check:
        _refuse_unloadable(payload, f"The {type(model).__name__} cannot be saved: it holds")
    with zipfile.ZipFile(payload, "a", zipfile.ZIP_STORED) as archive:
        archive.writestr(_HEADER, json.dumps(header, indent=2, allow_nan=False))
    return payload.getbuffer()


def _on_host(model: Any) -> Any:
    """The model with NumPy arrays in place of tensors, which it was fitted on; itself where there are none."""
    from ...numerics.namespace import to_host

    tensors = {name: to_host(value) for name, value in vars(model).items() if hasattr(value, "detach")}
    if not tensors:
        return model
    found = copy(model)
    vars(found).update(tensors)
    return found


def load_model(path: str | os.PathLike[str], *, max_bytes: int | None = None) -> Any:
    """Load a model that :func:`save_model` wrote.

    No code from the file runs, and nothing that the file names is called: it holds values and the names of classes to
    put them into, from a list of preflearn's and scikit-learn's estimators. See :doc:`/user_guide/model_files` for what
    a file from a stranger can and cannot do.

    Parameters
    ----------
    path : path
        The file.
    max_bytes : int, default=None
        The most bytes that the file may unpack to. None is 50 times the size of the file, and at least 64 MiB; raise it
        for a file that you trust and that is refused for this reason.

    Returns
    -------
    model : estimator
        A pipeline has the method ``rank`` besides those of scikit-learn's.

    Raises
    ------
    ValueError
        If the file is damaged, cut short, of a later format version, not a preflearn model, asks for something that is
        not allowed, or holds arrays that do not fit together.
    """
    if max_bytes is not None and (
        isinstance(max_bytes, bool) or not isinstance(max_bytes, int) or max_bytes < 1
    ):
        raise ValueError(f"max_bytes must be a positive whole number or None: found {max_bytes!r}.")
    (name,) = as_paths(path)
    with open(name, "rb") as file:
        return read_model(name, file, max_bytes)


def read_model(name: str, file: IO[bytes], max_bytes: int | None = None) -> Any:
    """The model in an open file, as `load_model` reads it; errors begin with the name."""
    from .nodes import read_plan

    with _refusing_damage(name), _open_archive(name, file, max_bytes) as archive:
        _read_header(name, archive)
        model = read_plan(archive).build()
    if not isinstance(model, BaseEstimator):
        raise ValueError(f"{name} is not a preflearn model: it holds a {type(model).__name__}.")
    return able_to_rank(model)


def model_info(path: str | os.PathLike[str]) -> Mapping[str, Any]:
    """What a model file says about itself, without building the model.

    Parameters
    ----------
    path : path
        The file.

    Returns
    -------
    info : mapping
        ``format``, ``version`` (of the format), ``model`` (its class), ``written_by`` (versions of the packages) and
        ``metadata``.
    """
    (name,) = as_paths(path)
    with open(name, "rb") as file, _refusing_damage(name), _open_archive(name, file) as archive:
        return MappingProxyType(_read_header(name, archive))


def _header(model: Any, metadata: Mapping[str, Any] | None) -> dict[str, Any]:
    import numpy
    import scipy
    import sklearn

    from ... import __version__

    try:
        kept = json.loads(json.dumps(dict(metadata or {}), allow_nan=False, default=_as_list))
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"metadata must be plain JSON values (texts, numbers, lists, dicts): {error}."
        ) from error
    return {
        "format": FORMAT,
        "version": VERSION,
        "model": type(model).__name__,
        "written_by": {
            "preflearn": __version__,
            "scikit-learn": sklearn.__version__,
            "numpy": numpy.__version__,
            "scipy": scipy.__version__,
        },
        "metadata": kept,
    }


def _as_list(value: Any) -> list[str]:
    """Names of features that are made when they are asked for, as JSON keeps them."""
    if not isinstance(value, NumberedNames):
        raise TypeError(f"found a {type(value).__name__}")
    return list(value)


def _dump(model: Any) -> io.BytesIO:
    from skops.io import dumps

    try:
        return io.BytesIO(dumps(as_plain(model)))
    except Exception as error:
        raise ValueError(f"The {type(model).__name__} cannot be saved: {_one_line(error)}.") from error


def _open_archive(name: str, file: IO[bytes], max_bytes: int | None = None) -> ModelArchive:
    start = file.read(4)
    if start != b"PK\x03\x04":
        what = "it is empty" if not start else "it is another kind of file"
        raise _NoModelError(f"{name} is not a preflearn model: {what}.")
    return ModelArchive(file, max_bytes)


def _read_header(name: str, archive: ModelArchive) -> dict[str, Any]:
    """The header of a model file that this version can load."""
    from .nodes import SCHEMA

    header = json.loads(archive.read(_HEADER)) if _HEADER in archive else None
    if not isinstance(header, dict) or header.get("format") != FORMAT or SCHEMA not in archive:
        raise _NoModelError(f"{name} is not a preflearn model: it is an archive of another kind.")
    version = header.get("version")
    if isinstance(version, bool) or not isinstance(version, int) or version < 1:
        raise _NoModelError(f"{name} is a damaged preflearn model: its format version is {version!r}.")
    if version > VERSION:
        raise _NoModelError(
            f"{name} has format version {version}, this preflearn reads up to {VERSION}: install a newer preflearn."
        )
    return header


class _NoModelError(ValueError):
    """A file of another kind, with a message that is complete."""


@contextmanager
def _refusing_damage(name: str) -> Iterator[None]:
    """Turn whatever a damaged file makes the libraries below raise into one sentence."""
    try:
        yield
    except _NoModelError:
        raise
    except ModelRefusedError as error:
        raise ModelRefusedError(f"{name}: refused, the file asks for {_one_line(error, 400)}.") from None
    except Exception as error:
        raise ValueError(
            f"{name} is a damaged or truncated preflearn model ({_one_line(error)}): save it again."
        ) from error


def _refuse_unloadable(payload: IO[bytes], reason: str) -> None:
    """Refuse to write what `load_model` would refuse to read."""
    from .nodes import read_plan

    try:
        with ModelArchive(payload, max_bytes=1 << 62) as archive:
            read_plan(archive)
    except ValueError as error:
        raise ModelRefusedError(f"{reason} {_one_line(error, 400)}.") from None


def _one_line(error: BaseException, most: int = 160) -> str:
    text = " ".join(str(error).split()).rstrip(".") or type(error).__name__
    return text if len(text) <= most else text[: most - 3] + "..."


# ------------------------------------------------------------------------------------------------ pipelines


class RankingPipeline(Pipeline):
    """A scikit-learn pipeline with `rank`; `preflearn.io.load_model` returns pipelines as this.

    Examples
    --------
    >>> from preflearn import RankRLS
    >>> from sklearn.preprocessing import StandardScaler
    >>> model = RankingPipeline([("scale", StandardScaler()), ("learn", RankRLS())])
    >>> model.fit([[0.0], [1.0], [2.0]], [0, 1, 2]).rank([[0.5], [3.0]])
    array([2, 1])
    """

    def rank(self, X: Any, *, qid: Any = None) -> np.ndarray:
        """Positions inside the query: 1 is the best, ties share the best position.

        Parameters
        ----------
        X : as in predict
        qid : array-like of shape (m,), optional
            Query labels; one query without.

        Returns
        -------
        ndarray of int of shape (m,)
        """
        scores = None if qid is not None or wants_qid(self) else np.asarray(self.predict(X))
        if scores is None:
            n_rows = (
                X.shape[0]
                if hasattr(X, "shape")
                else len(next(iter(X.values())) if isinstance(X, dict) else X)
            )
            labels = np.zeros(n_rows, dtype=np.int64) if qid is None else qid
            scores = np.asarray(predict_scores(self, X, labels))
        return positions_in_groups(scores, encode_queries(qid, scores.shape[0]))


def able_to_rank(model: Any) -> Any:
    """A plain pipeline as one that can rank; anything else as it is."""
    return _as(RankingPipeline, model) if type(model) is Pipeline else model


def as_plain(model: Any) -> Any:
    """The same the other way round: what is saved is scikit-learn's."""
    return _as(Pipeline, model) if type(model) is RankingPipeline else model


def _as(kind: type[Pipeline], model: Pipeline) -> Pipeline:
    found = copy(model)
    found.__class__ = kind
    return found
