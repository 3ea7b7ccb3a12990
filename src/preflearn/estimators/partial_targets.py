"""Reading targets of which some are not known."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils.validation import check_array, column_or_1d


def read_partial_targets(
    estimator: Any, y: Any, n_rows: int, *, when_none_known: str
) -> tuple[np.ndarray, bool]:
    """Targets as an (m, v) array of float64 with rows of NaN where they are not known, and whether y was one column.

    Parameters
    ----------
    estimator : object
        Named in the error.
    y : array-like of shape (m,) or (m, v)
    n_rows : int
    when_none_known : str
        What to try when every target is NaN.

    Raises
    ------
    ValueError
        If y is missing, of another length, infinite, known for some outputs of a row only, or not known at all.
    """
    name = type(estimator).__name__
    if y is None:
        raise ValueError(
            f"This {name} estimator requires y to be passed, but the target y is None. "
            "Pass one target per row, NaN where it is not known."
        )
    y = check_array(
        y, ensure_2d=False, dtype=np.float64, ensure_all_finite="allow-nan", input_name="y", allow_nd=True
    )
    if y.ndim == 0 or y.ndim > 2:
        raise ValueError(f"y must hold one target per row, or one row of targets: found {y.ndim} dimensions.")
    if y.shape[0] != n_rows:
        raise ValueError(
            f"Found input variables with inconsistent numbers of samples: X has {n_rows} rows, y has {y.shape[0]}."
        )
    single = y.ndim == 1 or y.shape[1] == 1
    targets = column_or_1d(y, warn=True)[:, None] if single else y
    missing = np.isnan(targets)
    if (missing.any(axis=1) != missing.all(axis=1)).any():
        row = int(np.flatnonzero(missing.any(axis=1) != missing.all(axis=1))[0])
        raise ValueError(
            f"Row {row} of y is known for some outputs only: NaN must stand for a whole row. "
            "Fit such outputs separately."
        )
    if missing.all():
        raise ValueError(f"All targets are NaN, and {name} needs some that are known. {when_none_known}")
    return targets, single
