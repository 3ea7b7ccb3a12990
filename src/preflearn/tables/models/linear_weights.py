"""A linear pipeline as one weighted sum of its inputs.

With a scaling z = (x - μ) / σ before it, w · z + c is the function (w / σ) · x + c - (w / σ) · μ of the features as
they come: scaling, and selection of features, are folded into the weights.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.preprocessing import MaxAbsScaler, MinMaxScaler, RobustScaler, StandardScaler

from ...numerics.onnx_graph import ExportError
from .types import is_ours


def folded_weights(model: Any) -> tuple[np.ndarray, float]:
    """Weights and intercept of a linear model on its inputs, the steps before it folded in.

    Parameters
    ----------
    model : fitted estimator or Pipeline
        Scalers (standard, min-max, max-abs, robust), selectors of features, and a `TableEncoder` of numbers without
        missing values may come before a learner of preflearn with a linear kernel.

    Returns
    -------
    weights : ndarray of shape (n,)
    intercept : float

    Raises
    ------
    ExportError
        Naming the step that is not linear, or the columns of a table that are not numbers.

    Examples
    --------
    >>> from preflearn import RankRLS
    >>> from sklearn.pipeline import make_pipeline
    >>> X = np.array([[1.0, 100.0], [2.0, 300.0], [3.0, 200.0]])
    >>> model = make_pipeline(StandardScaler(), RankRLS()).fit(X, [1.0, 3.0, 2.0])
    >>> weights, intercept = folded_weights(model)
    >>> bool(np.allclose(X @ weights + intercept, model.predict(X)))
    True
    """
    *before, last = [step for _, step in model.steps] if hasattr(model, "steps") else [model]
    weights, intercept = _of_learner(last)
    for place, step in reversed(list(enumerate(before))):
        weights, constant = _fold(step, weights, is_first=place == 0)
        intercept += constant
    return weights, intercept


def _of_learner(learner: Any) -> tuple[np.ndarray, float]:
    coef, intercept = getattr(learner, "coef_", None), getattr(learner, "intercept_", 0.0)
    name = type(learner).__name__
    if not is_ours(type(learner)) or coef is None:
        raise ExportError(
            f"{name} is not a linear learner of preflearn with weights (coef_): fit RankRLS, RLS, RankSVM or "
            "BradleyTerry with kernel='linear' and without a reduced set."
        )
    if np.ndim(coef) != 1 or np.ndim(intercept) != 0:
        raise ExportError(f"{name} has {np.shape(coef)[0]} outputs, and an order needs one: fit one of them.")
    return np.array(coef, dtype=np.float64), float(intercept)


def _fold(step: Any, weights: np.ndarray, *, is_first: bool) -> tuple[np.ndarray, float]:
    """Weights on the inputs of a step, and what is added to the intercept."""
    if step is None or step == "passthrough":
        return weights, 0.0
    if hasattr(step, "get_support"):  # a selector of features
        support = step.get_support()
        out = np.zeros(support.shape[0])
        out[support] = weights
        return out, 0.0
    if is_first and hasattr(step, "encoders_"):
        _refuse_unless_numbers(step)
        return weights, 0.0
    centre, scale = _centre_and_scale(step)
    weights = weights / scale
    return weights, -float(weights @ centre)


def _refuse_unless_numbers(encoder: Any) -> None:
    """A table whose columns are encoded as themselves."""
    unlike = [name for name, one in encoder.encoders_.items() if one.names(name) != [name]]
    if unlike:
        raise ExportError(
            f"Column(s) {', '.join(map(repr, unlike))} of the table are not single numbers without missing values "
            "(categories, dates and texts become several features): train without them, or on numeric features."
        )


def _centre_and_scale(step: Any) -> tuple[np.ndarray, np.ndarray]:
    """μ and σ of z = (x - μ) / σ."""
    n = getattr(step, "n_features_in_", 0)
    centre, scale = np.zeros(n), np.ones(n)
    if type(step) is StandardScaler:
        centre = step.mean_ if step.with_mean else centre
        scale = step.scale_ if step.with_std else scale
    elif type(step) is RobustScaler:
        centre = step.center_ if step.with_centering else centre
        scale = step.scale_ if step.with_scaling else scale
    elif type(step) is MaxAbsScaler and not getattr(step, "clip", False):
        scale = step.scale_
    elif type(step) is MinMaxScaler and not step.clip:
        scale = 1.0 / step.scale_
        centre = -step.min_ * scale
    else:
        raise ExportError(
            f"{type(step).__name__} cannot be folded into the weights of a linear model: StandardScaler, MinMaxScaler, "
            "MaxAbsScaler and RobustScaler without clipping, and selectors of features can; what depends on the other "
            "items of the query cannot."
        )
    return np.asarray(centre, dtype=np.float64), np.asarray(scale, dtype=np.float64)
