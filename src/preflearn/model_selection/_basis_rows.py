"""Row numbers given as ``basis``, where a learner is trained on some of the rows.

They are numbers of the whole training set, in every fold of every hold-out: basis vectors that are held out leave the
model, and the others are counted anew among the rows that stay. What is refitted on rows that this library does not
choose (the inner folds of scikit-learn's searches) cannot be served, and is refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from ..errors import InputError, Remedy
from ..kernels.maps import NystromMap, choose_basis
from ..numerics.namespace import as_host
from ._learner import KernelLearner

# Estimators of scikit-learn that pass on every row that they receive, in the same order.
_PASSES_ROWS_ON = (
    "Pipeline",
    "FeatureUnion",
    "ColumnTransformer",
    "TransformedTargetRegressor",
    "MultiOutputRegressor",
)
_GRIDS = ("kernel_grid", "param_grid", "param_distributions")


def basis_among(estimator: Any, n_rows: int, rows: np.ndarray, held_out: str) -> dict[str, Any]:
    """The parameters of an estimator, or of its parts, that name basis rows, for a training on some of the rows.

    Parameters
    ----------
    estimator : estimator
    n_rows : int
        m, the rows that given basis rows refer to.
    rows : ndarray of int
        Those that the estimator will see, in that order.
    held_out : str
        What leaves the training, for the message: "Fold 2".

    Returns
    -------
    dict of str to value
        For ``set_params``; empty where no basis rows are given.

    Examples
    --------
    >>> import numpy as np
    >>> from preflearn import RankSVM
    >>> basis_among(RankSVM(basis=[0, 5, 7]), 10, np.array([5, 6, 7]), "Fold 0")
    {'basis': array([0, 2]), 'n_basis': None}
    """
    # Other estimators may have no parameters to look into: they are called with data only.
    params = estimator.get_params() if hasattr(estimator, "get_params") else {}
    changed: dict[str, Any] = {}
    for name, value in params.items():
        path, _, last = name.rpartition("__")
        holders = [estimator, *(params[part] for part in _prefixes(path))]
        if last in _GRIDS:
            _refuse_grid(name, value)
        if last != "basis" or isinstance(value, str) or not _chooses_basis(holders[-1]):
            continue
        for holder in holders[:-1]:
            _refuse_unless_rows_pass(holder, name)
        given = choose_basis(n_rows, holders[-1].n_basis, as_host(value), None)
        assert given is not None
        place = np.full(n_rows, -1)
        place[rows] = np.arange(rows.shape[0])
        kept = place[given]
        kept = kept[kept >= 0]
        refuse_whole_basis(kept.size, held_out, name)
        changed |= {name: kept, f"{name.removesuffix('basis')}n_basis": None}
    return changed


def refuse_folds_of_whole_basis(basis: Any, folds: Sequence[np.ndarray], what: str = "Fold") -> None:
    """Refuse, before any training, a fold that holds out all rows of the basis.

    Parameters
    ----------
    basis : ndarray of shape (r,)
    folds : sequence of ndarray
        The rows that leave.
    what : str, default="Fold"
        What one of them is called in the message.
    """
    basis = as_host(basis)
    for number, left in enumerate(folds):
        if left.shape[0] >= basis.shape[0]:  # of thousands of small folds none has to be looked at
            refuse_whole_basis(int(np.count_nonzero(~np.isin(basis, left))), f"{what} {number}")


def refuse_whole_basis(n_left: int, held_out: str, name: str = "basis") -> None:
    """Refuse a training in which no basis vector is left."""
    if n_left == 0:
        raise InputError(
            f"{held_out} holds out every basis vector ({name}): basis vectors are rows, which leave the model with "
            "their fold, and none is left to learn with",
            Remedy("basis", purpose="with rows of several folds"),
            Remedy("n_basis", purpose="with more basis vectors"),
            Remedy("cv", purpose="with smaller folds"),
        )


def _prefixes(path: str) -> list[str]:
    """ "a__b" to ["a", "a__b"]."""
    parts = path.split("__") if path else []
    return ["__".join(parts[: k + 1]) for k in range(len(parts))]


def _chooses_basis(estimator: Any) -> bool:
    """Whether its basis is the one of this library."""
    return isinstance(estimator, (KernelLearner, NystromMap))


def _refuse_unless_rows_pass(holder: Any, name: str) -> None:
    """Refuse an estimator that trains its parts on rows of its own choice."""
    kind = type(holder)
    if kind.__module__.startswith("preflearn."):
        return
    if kind.__module__.startswith("sklearn.") and kind.__name__ in _PASSES_ROWS_ON:
        return
    raise InputError(
        f"{kind.__name__} may train its parts on some of the rows, where the row numbers given as {name} would name "
        "other rows",
        Remedy("n_basis", purpose="to draw basis vectors from the rows of each training"),
        in_python="and only a pipeline or a learner of this library passes on all rows",
    )


def _refuse_grid(name: str, grid: Any) -> None:
    """Refuse candidates of a search that are row numbers: they would name other rows in each fold."""
    settings = [grid] if isinstance(grid, Mapping) else grid if isinstance(grid, (list, tuple)) else []
    for one in settings:
        for parameter, candidates in one.items():
            drawn = isinstance(candidates, Iterable) and all(isinstance(value, str) for value in candidates)
            if parameter.rpartition("__")[2] == "basis" and not drawn:
                raise InputError(
                    f"{name} searches over row numbers ({parameter}), which would name other rows where rows are held "
                    "out of the search itself",
                    Remedy("basis", purpose="as a parameter of the learner"),
                )
