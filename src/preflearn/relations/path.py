"""Every alpha of a relation from one factorisation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.base import clone

from ..comparisons.inputs import read_alpha
from ..progress import Counter
from .grammar import RelationFolds, read_hold_out
from .kronecker import KroneckerProblem, KroneckerRLS


class RelationPath:
    """A `KroneckerRLS` at any alpha: the kernels are evaluated and decomposed once.

    Parameters
    ----------
    model : KroneckerRLS
        Its alpha is not used; not modified.
    rows, columns, Y : as in KroneckerRLS.fit

    Attributes
    ----------
    largest_eigenvalue : float
        Of the pairwise kernel of the known pairs: it shows which alphas matter.

    Notes
    -----
    Complete labels: two eigendecompositions, and then O(pq) for the solution at another alpha in their basis.
    Incomplete labels: conjugate gradients, each alpha started at the solution of the next larger one.

    Examples
    --------
    >>> import numpy as np
    >>> from preflearn.relations import KroneckerRLS, RelationPath
    >>> rng = np.random.default_rng(0)
    >>> U, V = rng.normal(size=(9, 2)), rng.normal(size=(8, 3))
    >>> path = RelationPath(KroneckerRLS(), U, V, rng.normal(size=(9, 8)))
    >>> path.predict(U[:2], V, alphas=[0.1, 1.0, 10.0]).shape
    (3, 2, 8)
    >>> path.held_out("rows", alphas=[0.1, 1.0]).shape
    (2, 9, 8)
    """

    def __init__(self, model: KroneckerRLS, rows: Any, columns: Any, Y: Any) -> None:
        self._model = clone(model)
        self._problem = KroneckerProblem(self._model, self._model._read(rows, columns, Y))

    @property
    def largest_eigenvalue(self) -> float:
        return self._problem.largest_eigenvalue

    def model(self, alpha: float) -> KroneckerRLS:
        """The fitted model at one alpha."""
        fitted = clone(self._model).set_params(alpha=alpha)
        self._problem.set_solution(fitted, read_alpha(alpha))
        return fitted

    def mode_coefficients(self, alpha: float) -> np.ndarray:
        """The solution in the basis of the eigenvectors of the kernels, shape (p, q): complete labels only. O(pq)."""
        if self._problem.complete is None:
            raise ValueError("Modes are those of a complete relation: some labels are unknown here.")
        return self._problem.complete.mode_coefficients(read_alpha(alpha))

    def predict(self, rows: Any, columns: Any = None, *, alphas: Sequence[float]) -> np.ndarray:
        """Predictions at each alpha, shape (n_alphas, p', q').

        Parameters
        ----------
        rows, columns : as in KroneckerRLS.predict
        alphas : sequence of float
        """
        grid = [read_alpha(alpha) for alpha in alphas]
        found: list[Any] = [None] * len(grid)
        for number, coefficients in self._problem.solve_path(grid):
            fitted = clone(self._model)
            fitted._adopt(self._problem.data, coefficients)
            found[number] = fitted.predict(rows, columns)
        return np.stack(found)

    def held_out(
        self,
        hold_out: str = "entries",
        cv: Any = "leave-one-out",
        *,
        alphas: Sequence[float],
        row_groups: Any = None,
        column_groups: Any = None,
        verbose: int = 0,
    ) -> np.ndarray:
        """Held-out predictions at each alpha, shape (n_alphas, p, q); the arguments of `cross_val_predict`."""
        folds = self.read_folds(hold_out, cv, row_groups, column_groups)
        counter = Counter("RelationPath", folds.n_folds, "folds", verbose)
        return self._problem.held_out(folds, [read_alpha(alpha) for alpha in alphas], counter)

    def read_folds(
        self, hold_out: str, cv: Any, row_groups: Any = None, column_groups: Any = None
    ) -> RelationFolds:
        """The folds of a setting on these data."""
        known = ~np.isnan(self._problem.data.labels())
        return read_hold_out(hold_out, cv, known, row_groups=row_groups, column_groups=column_groups)
