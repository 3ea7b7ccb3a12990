"""Cross-validated predictions of a relation in four settings."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import clone

from ..comparisons.inputs import read_alpha
from ..progress import Counter
from .grammar import read_hold_out
from .kronecker import KroneckerProblem, KroneckerRLS
from .two_step import TwoStepProblem, TwoStepRLS


def cross_val_predict(
    model,
    rows,
    columns,
    Y,
    *,
    hold_out="entries",
    cv="leave-one-out",
    row_groups=None,
    column_groups=None,
    verbose=0,
) -> np.ndarray:
    """For each pair the prediction of the model that was trained without it; identical to refitting.

    Parameters
    ----------
    model : KroneckerRLS or TwoStepRLS
        Not modified.
    rows, columns, Y : as in the model's fit
    hold_out : {"entries", "rows", "columns", "both"}, default="entries"
        What will be new in use: the pair alone, its row object, its column object, or both objects.
    cv : str, int, splitter, iterable of index arrays, or a pair of these, default="leave-one-out"
        One after the other, a number of folds, or the sets themselves: numbers of rows or columns; for entries,
        positions in the row-major matrix, pairs (row, column), or p × q masks. For ``"both"`` a tuple gives the folds
        of the rows and those of the columns. Folds of entries are drawn at random with a fixed seed.
    row_groups, column_groups : array-like of shape (p,) and (q,), optional
        Labels of objects that leave the training together (families of drugs, sessions of a user).
    verbose : int, default=0
        Count the folds on standard error.

    Returns
    -------
    ndarray of shape (p, q)
        NaN where an entry is in no fold: unknown labels with ``hold_out="entries"``.

    Notes
    -----
    In closed form for complete labels: single entries O(pq(p + q)), rows or columns by algebra or one decomposition per
    fold, both with one decomposition for each fold of the smaller side. Folds of several entries, incomplete labels and
    kernels without a closed form are refitted by conjugate gradients, with warm starts from alpha to alpha. For a
    symmetric or antisymmetric relation the mirror image of an entry leaves with it, and a held-out row is a held-out
    object: its column leaves as well. A two-step model has no entry-wise objective; the label left out is replaced by
    what the model then predicts for it, its fixed point.

    Examples
    --------
    >>> import numpy as np
    >>> from preflearn.relations import KroneckerRLS, cross_val_predict
    >>> rng = np.random.default_rng(0)
    >>> U, V = rng.normal(size=(12, 2)), rng.normal(size=(10, 3))
    >>> Y = U @ rng.normal(size=(2, 3)) @ V.T + rng.normal(size=(12, 10))
    >>> errors = {}
    >>> for setting in ("entries", "rows", "columns", "both"):
    ...     F = cross_val_predict(KroneckerRLS(), U, V, Y, hold_out=setting)
    ...     errors[setting] = np.mean((Y - F) ** 2)
    >>> errors["entries"] < errors["both"]
    np.True_
    """
    problem, alpha = read_problem(model, rows, columns, Y)
    known = ~np.isnan(problem.data.labels())
    folds = read_hold_out(hold_out, cv, known, row_groups=row_groups, column_groups=column_groups)
    counter = Counter("cross_val_predict", folds.n_folds, "folds", verbose)
    return problem.held_out(folds, [alpha], counter)[0]


def read_problem(model: Any, rows: Any, columns: Any, Y: Any) -> tuple[Any, Any]:
    """Validated data of a model with its factorisation, and the model's alpha."""
    if not isinstance(model, (KroneckerRLS, TwoStepRLS)):
        raise TypeError(
            f"Held-out predictions of a relation are those of KroneckerRLS or TwoStepRLS: found "
            f"{type(model).__name__}."
        )
    model = clone(model)
    if isinstance(model, TwoStepRLS):
        alphas = (read_alpha(model.alpha_rows), read_alpha(model.alpha_columns))
        return TwoStepProblem(model, model._read(rows, columns, Y)), alphas
    alpha = read_alpha(model.alpha)
    return KroneckerProblem(model, model._read(rows, columns, Y)), alpha
