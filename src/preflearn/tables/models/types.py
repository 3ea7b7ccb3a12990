"""What a model file may name: classes to fill with values, a few functions, a few plain types.

A name alone permits nothing. Each kind of node in a file has its own list: the classes whose instances hold values
(`object_class`), the functions that a scorer or a transformer may refer to (`function_at`), the types that a parameter
may be set to (`plain_type`). Everything else is refused before anything is built.

To let models hold a new estimator, put its package into `OUR_PACKAGES`; a new record (a dataclass inside a model) goes
into `RECORDS` with the shapes of its arrays. Estimators of another distribution are listed one by one, by its entry
points of the group ``preflearn.models`` (``MyRanker = "my_package.rankers:MyRanker"``). See `fitted` for
what is checked.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Mapping
from functools import cache
from types import FunctionType
from typing import Any

import numpy as np

from ..._moved import MOVED

# The packages of preflearn whose estimators and splitters a model may hold. Naming a class imports its module, so this
# list leaves out whatever does something on import, such as the command line.
OUR_PACKAGES = (
    "auto", "kernels", "learners", "model_selection", "relations", "tables.encoding",
)  # fmt: skip

# Where classes that models hold were at home when versions 0.2 and 0.3 wrote files, and where they are now.
_FORMER_HOMES = {
    "preflearn.automatic.curves": "preflearn.auto.kernels",
    "preflearn.core.": "preflearn.squared.",
    "preflearn.feature_selection.greedy": "preflearn.learners.greedy",
    "preflearn.graphs.": "preflearn.kernels.graphs.",
    "preflearn.metrics.scorers": "preflearn.metrics.registry",
    "preflearn.preprocessing.": "preflearn.tables.encoding.",
    "preflearn.selection.": "preflearn.model_selection._",
    "preflearn.learners.greedy.greedy": "preflearn.learners.greedy",
    "preflearn.model_selection._order_probability": "preflearn.model_selection._calibration",
    "preflearn.tables.encoding.summary": "preflearn.tables.encoding.kinds",
    **{
        f"preflearn.{room}multiple_kernels.{module}": "preflearn.learners.multiple_kernels"
        for room in ("", "learners.")
        for module in ("ranking", "relation", "weights")
    },
    **{f"{old}.": f"{new}." for old, new in MOVED.items()},
}
# Parameters that version 0.2 wrote and that no longer exist, since they had one possible value: left out when read.
FORMER_PARAMETERS = {
    "preflearn.learners.bradley_terry.BradleyTerry": {"link"},
    "preflearn.learners.bradley_terry_cv.BradleyTerryCV": {"link"},
}

# Records that models hold, and the shapes of their arrays (the grammar is that of `fitted`); a record may
# also have a method ``_fitted_arrays`` as a learner has, whose shapes join these.
RECORDS: Mapping[str, Mapping[str, str]] = {
    "preflearn.auto.leaderboard.Entry": {},
    "preflearn.auto.leaderboard.Leaderboard": {},
    "preflearn.comparisons.answers.Answers": {},
    "preflearn.squared.moments.GlobalMoments": {
        "scatter": "n n", "cross": "n v", "mean": "n", "score_mean": "v", "score_scatter": "v",
    },
    "preflearn.squared.moments.QueryMoments": {"gram": "n n", "cross": "n v", "squares": "v"},
    "preflearn.learners.incremental.IncrementalState": {},
    "preflearn.learners.rankrfm.Round": {},
    "preflearn.learners.rankrfm.Rounds": {},
    "preflearn.kernels.functions.Kernel": {},
    "preflearn.metrics.registry.RankingScorer": {},
    "preflearn.numerics.linalg.KernelFactor": {"F": "r k", "pivots": "k < r", "C": "k k"},
    "preflearn.model_selection._calibration.Calibration": {"scores": "m", "y": "m", "codes": "m <"},
    "preflearn.model_selection._calibration.OrderProbability": {"difference": "b", "probability": "b"},
    "preflearn.learners.multiple_kernels.KernelSum": {"names": "texts"},
    "preflearn.tables.encoding.columns.CategoryColumn": {
        "categories": "texts", "rare": "texts", "has_missing": "truth",
    },
    "preflearn.tables.encoding.columns.DateColumn": {},
    "preflearn.tables.encoding.columns.NumberColumn": {
        "style": "a str", "median": "", "low": "", "high": "", "constant": "truth", "has_missing": "truth",
    },
    "preflearn.tables.encoding.columns.TextColumn": {},
    "preflearn.tables.encoding.kinds.ColumnSummary": {"name": "a str", "kind": "a str", "notes": "texts"},
    "preflearn.tables.encoding.kinds.TableSummary": {"n_rows": "a int"},
    "preflearn.relations.inputs.ObjectKernel": {},
}  # fmt: skip

# The packages of scikit-learn whose estimators a model may hold: those that predict in NumPy. Trees and neighbours are
# out, since they follow stored indices in compiled code that does not look where they lead.
_SKLEARN_PACKAGES = (
    "cluster", "compose", "covariance", "cross_decomposition", "decomposition", "discriminant_analysis", "dummy",
    "feature_extraction", "feature_selection", "impute", "isotonic", "kernel_approximation", "kernel_ridge",
    "linear_model", "manifold", "mixture", "model_selection", "multiclass", "multioutput", "naive_bayes", "neighbors",
    "neural_network", "pipeline", "preprocessing", "random_projection", "semi_supervised", "svm",
)  # fmt: skip
# Estimators of these packages that hand stored arrays to compiled code unchecked.
_SKLEARN_UNSAFE = {
    "sklearn.cluster._kmeans.KMeans",
    "sklearn.cluster._kmeans.MiniBatchKMeans",
    *(f"sklearn.svm._classes.{name}" for name in ("SVC", "SVR", "NuSVC", "NuSVR", "OneClassSVM")),
}
_SKLEARN_OBJECTS = {
    "sklearn.metrics._scorer._PassthroughScorer",
    "sklearn.metrics._scorer._Scorer",
    *(
        f"sklearn._loss.link.{name}"
        for name in ("HalfLogitLink", "IdentityLink", "Interval", "LogitLink", "LogLink", "MultinomialLogit")
    ),
    *(
        f"sklearn._loss.loss.{name}"
        for name in ("HalfBinomialLoss", "HalfGammaLoss", "HalfPoissonLoss", "HalfSquaredError")
    ),
    *(
        f"sklearn.model_selection._split.{name}"
        for name in (
            "GroupKFold", "GroupShuffleSplit", "KFold", "LeaveOneGroupOut", "LeaveOneOut", "RepeatedKFold",
            "RepeatedStratifiedKFold", "ShuffleSplit", "StratifiedGroupKFold", "StratifiedKFold",
            "StratifiedShuffleSplit",
        )
    ),
}  # fmt: skip
# Losses without attributes, made by a call with numbers.
_LOSSES = {
    *(
        f"sklearn.linear_model._sgd_fast.{name}"
        for name in ("EpsilonInsensitive", "Hinge", "ModifiedHuber", "SquaredEpsilonInsensitive", "SquaredHinge")
    ),
    *(
        f"sklearn._loss._loss.{name}"
        for name in (
            "CyAbsoluteError", "CyExponentialLoss", "CyHalfBinomialLoss", "CyHalfGammaLoss", "CyHalfPoissonLoss",
            "CyHalfSquaredError", "CyHuberLoss", "CyPinballLoss",
        )
    ),
}  # fmt: skip

# The measures that a scorer may call: functions of labels and scores, which return a number.
_SKLEARN_MEASURES = {
    "accuracy_score", "average_precision_score", "balanced_accuracy_score", "brier_score_loss",
    "d2_absolute_error_score", "explained_variance_score", "f1_score", "jaccard_score", "log_loss", "matthews_corrcoef",
    "max_error", "mean_absolute_error", "mean_absolute_percentage_error", "mean_gamma_deviance",
    "mean_pinball_loss", "mean_poisson_deviance", "mean_squared_error", "mean_squared_log_error",
    "median_absolute_error", "ndcg_score", "precision_score", "r2_score", "recall_score", "roc_auc_score",
    "root_mean_squared_error", "root_mean_squared_log_error", "top_k_accuracy_score",
}  # fmt: skip
# Where a function may stand in a model, and which kind.
_FUNCTION_PLACES = {
    ("sklearn.metrics._scorer._Scorer", "_score_func"): "measure",
    ("preflearn.metrics.registry.RankingScorer", "_metric"): "measure",
    ("sklearn.preprocessing._function_transformer.FunctionTransformer", "func"): "elementwise",
    ("sklearn.preprocessing._function_transformer.FunctionTransformer", "inverse_func"): "elementwise",
    ("sklearn.compose._target.TransformedTargetRegressor", "func"): "elementwise",
    ("sklearn.compose._target.TransformedTargetRegressor", "inverse_func"): "elementwise",
}
_MODULE = re.compile(r"[a-z_][a-z0-9_]*(\.[a-z0-9_]+)*")


def full_name(kind: Any) -> str:
    """Module and name of a class, as model files write it."""
    return f"{kind.__module__}.{kind.__name__}"


def object_class(module: str, name: str) -> type | None:
    """The class whose instances a file may fill with values, or None."""
    if not _MODULE.fullmatch(module) or not name.isidentifier():
        return None
    module = _present_home(module)
    full, parts = f"{module}.{name}", module.split(".")
    listed = full in RECORDS or full in _SKLEARN_OBJECTS
    in_packages = len(parts) > 1 and (
        module.startswith(tuple(f"preflearn.{package}." for package in OUR_PACKAGES))
        or (parts[0] == "sklearn" and parts[1] in _SKLEARN_PACKAGES and "tests" not in parts)
    )
    private = parts[0] == "preflearn" and name.startswith("_")
    if full in _SKLEARN_UNSAFE or private or not (listed or in_packages or full in _added_classes()):
        return None
    found = _import(module, name)
    # What a module merely imports is not its own.
    if not isinstance(found, type) or found.__module__ != module or found.__name__ != name:
        return None
    return found if listed or _is_estimator(found) else None


def _present_home(module: str) -> str:
    for former, present in _FORMER_HOMES.items():  # those of version 0.2 first, which moved again
        if module.startswith(former):
            module = present + module.removeprefix(former)
    return module


def is_ours(kind: type) -> bool:
    """Whether a class is preflearn's own, or one that another distribution adds."""
    return kind.__module__.startswith("preflearn.") or full_name(kind) in _added_classes()


@cache
def _added_classes() -> frozenset[str]:
    """Full names of the classes of their own that installed distributions let models hold."""
    from importlib.metadata import entry_points

    names = {f"{entry.module}.{entry.attr}" for entry in entry_points(group="preflearn.models")}
    return frozenset(name for name in names if not name.startswith(("preflearn.", "sklearn.")))


def function_at(owner: type, attribute: str, module: str, name: str) -> Any:
    """The function that a file may name as this attribute of this class, or None."""
    place = _FUNCTION_PLACES.get((full_name(owner), attribute))
    if place == "measure":
        return _measure(module, name)
    if place == "elementwise":
        return _elementwise(module, name)
    return None


def loss_class(module: str, name: str) -> type | None:
    """A loss of scikit-learn that is made by a call with numbers, or None."""
    return _import(module, name) if f"{module}.{name}" in _LOSSES else None


def plain_type(module: str, name: str) -> type | None:
    """A type that a parameter may be set to: a number, a text or a truth value of Python or NumPy."""
    if module == "builtins":
        return {"bool": bool, "float": float, "int": int, "str": str}.get(name)
    if module == "numpy" and name.isidentifier():
        found = getattr(np, name, None)
        if isinstance(found, type) and issubclass(found, (np.number, np.bool_, np.str_)):
            return found
    return None


def _is_estimator(kind: type) -> bool:
    from sklearn.base import BaseEstimator

    return issubclass(kind, BaseEstimator) or (is_ours(kind) and hasattr(kind, "get_n_splits"))


def _measure(module: str, name: str) -> Any:
    if module.startswith("sklearn.metrics.") and name in _SKLEARN_MEASURES:
        import sklearn.metrics

        found = getattr(sklearn.metrics, name, None)
    else:
        from ...metrics.registry import metric_functions

        found = next(
            (one for one in metric_functions() if (one.__module__, one.__name__) == (module, name)), None
        )
    return found if isinstance(found, FunctionType) and found.__module__ == module else None


def _elementwise(module: str, name: str) -> Any:
    """A ufunc of NumPy or `scipy.special`: compiled, and free of side effects."""
    found = None
    if module == "numpy" or module.startswith("numpy._core."):
        found = getattr(np, name, None)
    elif module.startswith("scipy.special"):
        from scipy import special

        found = getattr(special, name, None)
    return found if isinstance(found, np.ufunc) else None


def _import(module: str, name: str) -> Any:
    try:
        return getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError):
        return None
