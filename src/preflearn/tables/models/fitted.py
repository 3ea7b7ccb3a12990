"""Whether the arrays of a loaded model fit together.

A learner says what it holds by a method ``_fitted_arrays``, which maps attributes to shapes:

    {"dual_coef_": "r v?", "basis_": "r n", "basis_indices_": "r < n", "rank_": "= k"}

Letters are lengths: the same letter is the same number wherever it stands, and ``n`` is ``n_features_in_``. ``v?`` is
an axis that is there for several outputs only, for all attributes or for none. ``r < n`` are r whole numbers from 0 to
n - 1 (``r <``: 0 or more; ``r < 12``: below 12), ``= k`` is the number k itself, an empty shape one number. Every
attribute that is named must be there, as an array of numbers that compiled loops take; those that are not whole are
finite. A model that is not fitted names none.

Values that are not numbers: ``labels m`` is an array of m labels of any type, ``texts`` a list of texts, ``truth`` True
or False, ``a RankRLS`` an object of that class or one derived from it. A dot reaches into a record. What the grammar
cannot say, ``_fitted_arrays`` checks itself: whatever it raises is the reason of the refusal.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from itertools import pairwise
from numbers import Integral
from operator import attrgetter
from typing import Any

import numpy as np
from scipy import sparse as sp
from sklearn.pipeline import Pipeline

_OTHER_VALUES = ("labels", "texts", "truth", "a ")
# Floating-point numbers that compiled loops take: neither float16 nor long double.
_FLOATS = (np.float32, np.float64)
# Parameters whose default is a number and whose values need not be.
_NUMBERS_OR_OTHERS = {"cv", "item_offsets", "random_state"}
# Of scikit-learn's classes and those derived from them, where they are not None.
_FOREIGN_ARRAYS = {
    "StandardScaler": {"mean_": "n", "scale_": "n"},
    "MinMaxScaler": {"min_": "n", "scale_": "n"},
    "MaxAbsScaler": {"scale_": "n"},
    "RobustScaler": {"center_": "n", "scale_": "n"},
    "LinearModel": {"coef_": "v? n"},
}


def check_arrays(instance: Any, shapes: Mapping[str, str]) -> None:
    """Refuse an object whose arrays do not have these shapes.

    Raises
    ------
    ValueError

    Examples
    --------
    >>> from types import SimpleNamespace
    >>> model = SimpleNamespace(n_features_in_=3, coef_=np.zeros(2))
    >>> check_arrays(model, {"coef_": "n"})
    Traceback (most recent call last):
        ...
    ValueError: coef_ has shape (2,), expected (n,) with n = 3
    """
    lengths: dict[str, int | None] = {}
    if hasattr(instance, "n_features_in_"):
        lengths["n"] = _whole_number("n_features_in_", instance.n_features_in_)
    if hasattr(instance, "feature_names_in_"):
        shapes = {**shapes, "feature_names_in_": "n"}
    found = {name: _attribute(instance, name) for name in shapes}
    ranges, sizes = {}, {}
    for name, shape in shapes.items():
        if shape.startswith(_OTHER_VALUES):
            _check_other(name, found[name], shape, lengths)
            continue
        axes, is_range, bound = shape.partition("<")
        if axes.startswith("="):
            sizes[name] = axes.removeprefix("=").strip()
            continue
        _check_shape(name, found[name], axes.split(), lengths)
        _check_values(name, found[name], whole=bool(is_range))
        if is_range:
            ranges[name] = bound.strip()
    for name, letter in sizes.items():
        if _whole_number(name, found[name]) != lengths.get(letter):
            raise ValueError(f"{name} is {found[name]!r}, expected {letter} = {lengths.get(letter)}")
    for name, letter in ranges.items():
        _check_range(name, found[name], int(letter) if letter.isdigit() else lengths.get(letter))


def check_parameters(learner: Any) -> None:
    """Refuse parameters that a learner of ours does not take; those that its file lacks get their defaults.

    A parameter whose default is a number is a number or None. What the learner itself says about the others it says
    here: by `_check_parameters`, where it has one, and by its tags, which depend on them.

    Raises
    ------
    ValueError
    """
    for name, parameter in inspect.signature(type(learner)).parameters.items():
        default = parameter.default
        if name not in vars(learner):
            if default is parameter.empty:
                raise ValueError(f"{name} is missing")
            setattr(learner, name, default)
        value = getattr(learner, name)
        if name == "n_jobs" and value is not None and (not isinstance(value, Integral) or value == 0):
            raise ValueError(f"n_jobs is {_shown(value)}, expected None or a whole number other than 0")
        if isinstance(default, (bool, int, float)) and name not in _NUMBERS_OR_OTHERS:
            if value is not None and not _is_number(value):
                raise ValueError(f"{name} is {_shown(value)}, expected a number")
    getattr(learner, "_check_parameters", lambda: None)()
    learner.__sklearn_tags__()


def refuse_incomplete(learner: Any) -> None:
    """Refuse a learner that is not fitted, by what it declares, and has something that was fitted.

    Raises
    ------
    ValueError
    """
    fitted = [name for name in vars(learner) if name.endswith("_") and not name.startswith("_")]
    if fitted:
        raise ValueError(f"{fitted[0]} is there, and what it was fitted with is not")


def check_foreign(estimator: Any) -> None:
    """Refuse an estimator of scikit-learn whose values lead its compiled code, or what follows it, out of bounds.

    Its parameters must be ones that ``fit`` takes, encoders must write to columns that they have, and the arrays of
    scalers and linear models must be those of their number of features.

    Raises
    ------
    ValueError
    """
    if hasattr(estimator, "_parameter_constraints"):
        estimator._validate_params()
    if hasattr(estimator, "vocabulary_"):
        columns = list(estimator.vocabulary_.values())
        if set(columns) != set(range(len(columns))):
            raise ValueError("vocabulary_ does not number its terms consecutively from 0")
    if hasattr(estimator, "_n_features_outs"):
        _check_one_hot(estimator)
    if isinstance(estimator, Pipeline):
        _check_steps(estimator)
    if hasattr(estimator, "n_features_in_"):
        names = {base.__name__ for base in type(estimator).__mro__}
        declared = [shapes for name, shapes in _FOREIGN_ARRAYS.items() if name in names]
        check_arrays(estimator, {name: shape for shapes in declared for name, shape in shapes.items()
                                 if getattr(estimator, name, ...) is not None})  # fmt: skip
        if declared and np.size(scale := getattr(estimator, "scale_", 1)) and not np.all(scale):
            raise ValueError("scale_ has zeros")


def _check_steps(pipeline: Pipeline) -> None:
    """Steps that are there, and take as many columns as the table encoder before them gives."""
    if not pipeline.steps:
        raise ValueError("a pipeline without steps")
    for (_, step), (_, after) in pairwise(pipeline.steps):
        width = getattr(after, "n_features_in_", None)
        if hasattr(step, "encoders_") and width is not None and len(step.get_feature_names_out()) != width:
            raise ValueError(f"{len(step.get_feature_names_out())} columns for a step that takes {width}")


def _check_one_hot(encoder: Any) -> None:
    """The columns of a OneHotEncoder: its categories, some of them merged, one of them dropped."""
    n_columns = [len(categories) for categories in encoder.categories_]
    if getattr(encoder, "_infrequent_enabled", False):
        for place, mapping in enumerate(encoder._default_to_infrequent_mappings):
            if mapping is not None:
                _check_range("_default_to_infrequent_mappings", mapping, n_columns[place])
                n_columns[place] = int(mapping.max()) + 1
    dropped = encoder._drop_idx_after_grouping
    for place, drop in enumerate([] if dropped is None else dropped):
        if drop is not None:
            _check_range("_drop_idx_after_grouping", np.asarray(drop), n_columns[place])
            n_columns[place] -= 1
    if list(encoder._n_features_outs) != n_columns:
        raise ValueError(f"_n_features_outs is {encoder._n_features_outs!r}, expected {n_columns}")


def _check_other(name: str, value: Any, kind: str, lengths: dict[str, int | None]) -> None:
    """Check values that are not numbers."""
    if kind.startswith("labels"):
        if not isinstance(value, np.ndarray):
            raise ValueError(f"{name} is {_shown(value)}, expected an array of labels")
        _check_shape(name, value, kind.split()[1:], lengths)
        return
    if kind == "texts":
        fits = isinstance(value, list) and all(isinstance(one, str) for one in value)
    elif kind == "truth":
        fits = isinstance(value, bool)
    else:
        fits = kind.removeprefix("a ") in (base.__name__ for base in type(value).__mro__)
    if not fits:
        what = {"texts": "a list of texts", "truth": "True or False"}.get(kind, kind)
        raise ValueError(f"{name} is {_shown(value)}, expected {what}")


def _attribute(instance: Any, name: str) -> Any:
    try:
        return attrgetter(name)(instance)
    except AttributeError:
        raise ValueError(f"{name} is missing") from None


def _whole_number(name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, Integral) or value < 0:
        raise ValueError(f"{name} is {_shown(value)}, expected a whole number of at least 0")
    return int(value)


def _check_shape(name: str, value: Any, axes: list[str], lengths: dict[str, int | None]) -> None:
    if not sp.issparse(value) and not isinstance(value, (np.ndarray, np.generic, float, int)):
        raise ValueError(f"{name} is {_shown(value)}, expected an array")
    shape = np.shape(value) if not sp.issparse(value) else value.shape
    optional = [axis for axis in axes if axis.endswith("?")]
    if len(shape) == len(axes) - len(optional):
        lengths_here: list[int | None] = list(shape)
        for place, axis in enumerate(axes):
            if axis.endswith("?"):
                lengths_here.insert(place, None)
    else:
        lengths_here = list(shape)
    expected = [int(a) if a.isdigit() else lengths.get(a.rstrip("?"), "free") for a in axes]
    fits = len(lengths_here) == len(axes)
    for axis, length, known in zip(axes, lengths_here, expected):
        fits = fits and known in ("free", length)
        if fits and not axis.isdigit():
            # A letter that stands twice in one shape binds at its first place.
            if lengths.setdefault(axis.rstrip("?"), length) != length:
                fits = False
    if not fits:
        letters = ", ".join(axes) + ("," if len(axes) == 1 else "")
        known_lengths = ", ".join(
            f"{axis} = {length}" for axis, length in zip(axes, expected) if isinstance(length, int)
        )
        given = f" with {known_lengths}" if known_lengths else ""
        raise ValueError(f"{name} has shape {shape}, expected ({letters}){given}")


def _check_values(name: str, value: Any, whole: bool) -> None:
    values = np.asarray(value.data if sp.issparse(value) else value)
    if name == "feature_names_in_":
        return
    if values.dtype.kind not in ("iu" if whole else "fiu"):
        what = "whole numbers" if whole else "numbers"
        raise ValueError(f"{name} has values of type {values.dtype}, expected {what}")
    if values.dtype.kind == "f" and values.dtype not in _FLOATS:
        raise ValueError(f"{name} has values of type {values.dtype}, expected float64 or float32")
    if values.dtype.kind == "f" and not np.isfinite(values).all():
        raise ValueError(f"{name} has values that are not finite")


def _check_range(name: str, values: np.ndarray, bound: int | None) -> None:
    if values.size and (values.min() < 0 or (bound is not None and values.max() >= bound)):
        limit = "" if bound is None else f" to {bound - 1}"
        raise ValueError(
            f"{name} has values from {values.min()} to {values.max()}, expected numbers from 0{limit or ' on'}"
        )


def _is_number(value: Any) -> bool:
    return np.ndim(value) == 0 and isinstance(np.asarray(value)[()], (np.bool_, np.number))


def _shown(value: Any) -> str:
    return repr(value) if value is None or isinstance(value, (bool, int, float)) else type(value).__name__
