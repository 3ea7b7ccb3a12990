"""TwoStepRLS: ridge regression over the rows, then over the columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import numpy as np

from ..comparisons.inputs import read_alpha
from .complete import TwoStepRelation
from .grammar import RelationFolds
from .kronecker import closed_hold_out
from .model import RelationData, RelationModel


class TwoStepRLS(RelationModel):
    r"""Learn a function of pairs in two steps, each with its own regularisation.

    A = (K + alpha_rows)⁻¹ Y (G + alpha_columns)⁻¹ and f = K A G: a ridge regression for new rows whose labels are
    those of a ridge regression for new columns. Labels must be complete.

    Parameters
    ----------
    alpha_rows, alpha_columns : float, default=1.0
        Regularisation of the two steps.
    row_kernel, column_kernel, row_params, column_params, compare : as in KroneckerRLS

    Attributes
    ----------
    dual_coef_ : ndarray of shape (p, q)
    shape_ : tuple of int
    n_pairs_ : int

    Notes
    -----
    Two eigendecompositions; all hold-outs are products of two maps, one for each side.
    Reference: Pahikkala, Stock, Airola, Aittokallio, De Baets and Waegeman, "A two-step learning approach for
    solving full and almost full cold start problems in dyadic prediction", ECML PKDD 2014.

    Examples
    --------
    >>> import numpy as np
    >>> from preflearn.relations import TwoStepRLS
    >>> rng = np.random.default_rng(0)
    >>> users, items = rng.normal(size=(20, 3)), rng.normal(size=(25, 3))
    >>> model = TwoStepRLS(0.1, 0.1).fit(users, items, users @ items.T)
    >>> model.predict(users[:2], items).shape
    (2, 25)
    """

    def __init__(
        self, alpha_rows=1.0, alpha_columns=1.0, *, row_kernel="linear", column_kernel="linear",
        row_params=None, column_params=None, compare=None,
    ) -> None:  # fmt: skip
        super().__init__(row_kernel, column_kernel, row_params, column_params, compare)
        self.alpha_rows, self.alpha_columns = alpha_rows, alpha_columns

    def fit(self, rows, columns, Y) -> Self:
        """Learn from a complete matrix of labels.

        Parameters
        ----------
        rows, columns, Y : as in KroneckerRLS.fit, without NaN

        Returns
        -------
        self
        """
        alpha = (read_alpha(self.alpha_rows), read_alpha(self.alpha_columns))
        problem = TwoStepProblem(self, self._read(rows, columns, Y))
        self._adopt(problem.data, problem.complete.coefficients(alpha))
        return self


class TwoStepProblem:
    """The data of a `TwoStepRLS` with its two decompositions: solutions and hold-outs at any pair of alphas."""

    def __init__(self, model: TwoStepRLS, data: RelationData) -> None:
        if not data.is_complete:
            missing = int(np.isnan(data.labels()).sum())
            raise ValueError(
                f"TwoStepRLS needs the labels of all pairs: {missing} are NaN. Use KroneckerRLS, which "
                "learns from the known ones."
            )
        self.data = data
        self.complete = TwoStepRelation(*data.sides(), data.labels())

    def held_out(
        self, hold_out: RelationFolds, alphas: Sequence[tuple[float, float]], on_fold: Any = None
    ) -> np.ndarray:
        """Predictions of what was left out, for each pair of alphas; shape (n_alphas, p, q)."""
        if hold_out.setting == "entries" and hold_out.entries is not None:
            return self.complete.entry_folds_out(hold_out.entries, alphas, on_fold)
        return closed_hold_out(self.complete, hold_out, alphas, on_fold)
