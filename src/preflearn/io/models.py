"""Models on disk: a file that holds values, never code.

A model file is a skops archive (zip) with one more member, ``preflearn.json``: the version of this format, what wrote
the file, and what the caller wants to remember beside the model. Loading builds objects only of types that are known
beforehand (preflearn's own estimators, scikit-learn's, NumPy's and SciPy's arrays), from the values in the file. Every
member carries a checksum, so that damage is noticed.
"""

from __future__ import annotations

import importlib
import io
import json
import os
import re
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import is_dataclass
from types import FunctionType, MappingProxyType
from typing import Any

from preflearn.io.atomic import atomic_write
from preflearn.io.options import as_paths

FORMAT = "preflearn model"
VERSION = 1

_HEADER = "preflearn.json"
_SCHEMA = "schema.json"
# The parts of preflearn whose classes a model may hold. Naming a class imports its module, so this list leaves out
# whatever does something on import, such as the command line.
_OUR_PARTS = (
    "comparisons", "core", "estimators", "feature_selection", "graphs", "kernels", "metrics", "model_selection",
    "multiple_kernels", "numerics", "ppi", "relations",
)  # fmt: skip
# What skops does not trust by itself, and is harmless: sparse matrices, and the scorers of a search.
_OTHER_TYPES = {
    *(
        f"scipy.sparse._{kind}.{kind}_{form}"
        for kind in ("csr", "csc", "coo")
        for form in ("array", "matrix")
    ),
    "sklearn.metrics._scorer._PassthroughScorer",
    "sklearn.metrics._scorer._Scorer",
}
_MEASURE = re.compile(r"(sklearn\.metrics(?:\._[a-z]+)?)\.(\w+)")
_OUR_TYPE = re.compile(rf"(preflearn\.(?:{'|'.join(_OUR_PARTS)})(?:\.[a-z0-9_]+)*)\.(\w+)")


def save_model(
    model: Any, path: str | os.PathLike[str], *, metadata: Mapping[str, Any] | None = None
) -> None:
    """Write a fitted model to a file that :func:`load_model` reads.

    The file appears whole or not at all.

    Parameters
    ----------
    model : estimator
        A preflearn or scikit-learn estimator, or a pipeline of them.
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
    from sklearn.base import BaseEstimator

    if isinstance(model, type) or not isinstance(model, BaseEstimator):
        raise TypeError(f"save_model expects a fitted estimator: found {type(model).__name__}.")
    header = _header(model, metadata)
    payload = _dump(model)
    _refuse_unknown_types(payload, f"The {type(model).__name__} cannot be saved: it holds")
    with zipfile.ZipFile(payload, "a", zipfile.ZIP_STORED) as archive:
        archive.writestr(_HEADER, json.dumps(header, indent=2, allow_nan=False))
    with atomic_write(path) as file:
        file.write(payload.getbuffer())


def load_model(path: str | os.PathLike[str]) -> Any:
    """Load a model that :func:`save_model` wrote.

    No code from the file runs: it only holds values and the names of types, and any type that is not preflearn's,
    scikit-learn's, NumPy's or SciPy's own is refused.

    Parameters
    ----------
    path : path
        The file.

    Returns
    -------
    model : estimator

    Raises
    ------
    ValueError
        If the file is damaged, cut short, of a later format version, or no model of preflearn.
    """
    from skops.io import loads

    (name,) = as_paths(path)
    with open(name, "rb") as file:
        data = file.read()
    _read_header(name, data)
    with _refusing_damage(name):
        trusted = _refuse_unknown_types(io.BytesIO(data), f"{name}: refused, the file asks for")
        model = loads(data, trusted=trusted)
    return _checked(name, model)


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
    with open(name, "rb") as file:
        return MappingProxyType(_read_header(name, file.read()))


def _header(model: Any, metadata: Mapping[str, Any] | None) -> dict[str, Any]:
    import numpy
    import scipy
    import sklearn

    from preflearn import __version__

    try:
        kept = json.loads(json.dumps(dict(metadata or {}), allow_nan=False))
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


def _dump(model: Any) -> io.BytesIO:
    from skops.io import dumps

    try:
        return io.BytesIO(dumps(model))
    except Exception as error:
        raise ValueError(f"The {type(model).__name__} cannot be saved: {_one_line(error)}.") from error


def _read_header(name: str, data: bytes) -> dict[str, Any]:
    """The header of a model file that this version can load."""
    if not data.startswith(b"PK\x03\x04"):
        what = "it is empty" if not data else "it is another kind of file"
        raise ValueError(f"{name} is not a preflearn model: {what}.")
    with _refusing_damage(name), zipfile.ZipFile(io.BytesIO(data)) as archive:
        members = set(archive.namelist())
        header = json.loads(archive.read(_HEADER)) if _HEADER in members else None
    if not isinstance(header, dict) or header.get("format") != FORMAT or _SCHEMA not in members:
        raise ValueError(f"{name} is not a preflearn model: it is an archive of another kind.")
    version = header.get("version")
    if isinstance(version, bool) or not isinstance(version, int) or version < 1:
        raise ValueError(f"{name} is a damaged preflearn model: its format version is {version!r}.")
    if version > VERSION:
        raise ValueError(
            f"{name} has format version {version}, this preflearn reads up to {VERSION}: install a newer preflearn."
        )
    return header


@contextmanager
def _refusing_damage(name: str) -> Iterator[None]:
    """Turn whatever a damaged file makes the libraries below raise into one sentence."""
    try:
        yield
    except ModelRefusedError:
        raise
    except Exception as error:
        raise ValueError(
            f"{name} is a damaged or truncated preflearn model ({_one_line(error)}): save it again."
        ) from error


class ModelRefusedError(ValueError):
    """A file that is whole, but asks for something that is not allowed."""


def _refuse_unknown_types(payload: io.BytesIO, reason: str) -> list[str]:
    """The types of ours that a model holds; any other that skops does not know as safe is refused."""
    from skops.io import get_untrusted_types

    names = get_untrusted_types(data=payload.getvalue())
    unknown = [name for name in names if name not in _OTHER_TYPES and not _is_known(name)]
    if unknown:
        shown = ", ".join(unknown[:3]) + (f" and {len(unknown) - 3} more" if len(unknown) > 3 else "")
        raise ModelRefusedError(
            f"{reason} {shown}, which is not on the list of types that preflearn loads (its own, and the usual ones of "
            "scikit-learn, NumPy and SciPy)."
        )
    return names


def _is_known(name: str) -> bool:
    """Whether a type is one that preflearn itself defines, under its own name, to be a part of a model.

    The measures of scikit-learn count as well.
    """
    found = _OUR_TYPE.fullmatch(name) or _MEASURE.fullmatch(name)
    if found is None:
        return False
    module_name, class_name = found.groups()
    try:
        kind = getattr(importlib.import_module(module_name), class_name)
    except (ImportError, AttributeError):
        return False
    # What a module merely imports is not its own.
    return getattr(kind, "__module__", None) == module_name and _is_part_of_models(kind)


def _is_part_of_models(kind: Any) -> bool:
    """Estimators, plain records, splitters, and measures (functions that are only named, not called)."""
    from sklearn.base import BaseEstimator

    if isinstance(kind, type):
        return issubclass(kind, BaseEstimator) or is_dataclass(kind) or hasattr(kind, "get_n_splits")
    return isinstance(kind, FunctionType) and kind.__module__.startswith(
        ("preflearn.metrics", "sklearn.metrics")
    )


def _checked(name: str, model: Any) -> Any:
    from sklearn.base import BaseEstimator

    if not isinstance(model, BaseEstimator):
        raise ValueError(f"{name} is not a preflearn model: it holds a {type(model).__name__}.")
    return model


def _one_line(error: BaseException) -> str:
    text = " ".join(str(error).split()).rstrip(".") or type(error).__name__
    return text if len(text) <= 160 else text[:157] + "..."
