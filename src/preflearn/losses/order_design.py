"""From rows, labels and statements to the matrices of the linear program.

`OrderDesign` holds the kernel values (or, for the linear kernel, the features) that the program needs, for one kernel;
leaving labelled rows out for cross-validation only selects rows and columns of them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse as sp

from ..kernels.functions import Kernel, take_items
from ..numerics.memory import require_memory
from ..squared.holdout.base import rows_outside
from .order_program import OrderProgram

# Features are kept unmultiplied when they have this many times fewer entries than the kernel values. Their program has
# one more row per feature, so a small saving does not pay; see benchmarks/order_program.py.
_WORTH_FEATURES = 8
# A kernel value is stored in the design, in the program together with its row number, and once more in HiGHS.
_BYTES_PER_VALUE = 48


@dataclass(frozen=True, eq=False)
class Statements:
    """All statements about m rows as Q f(X) >= d with weights: pairs first, then lower, then upper bounds.

    Attributes
    ----------
    incidence : csr_array of shape (p, m)
        Q.
    margin, weight : ndarray of shape (p,)
        d and w.
    n_pairs : int
        The first rows of Q are the pairs, in the caller's order.
    bounded : ndarray of shape (p - n_pairs,)
        For each further row of Q the position in the caller's bounds.
    n_bounds : int
        Number of rows the caller bounded.
    """

    incidence: sp.csr_array
    margin: np.ndarray
    weight: np.ndarray
    n_pairs: int
    bounded: np.ndarray
    n_bounds: int

    def __len__(self) -> int:
        return self.margin.shape[0]

    @property
    def bias_signs(self) -> np.ndarray:
        """Coefficient of a constant added to f: 0 for a pair, 1 for a lower, -1 for an upper bound."""
        return np.asarray(self.incidence.sum(axis=1)).ravel()

    @property
    def rows(self) -> np.ndarray:
        """The rows that appear in a statement, ascending."""
        return np.unique(self.incidence.indices)

    def split(self, slack: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Slack of the pairs, and of the bounded rows (violated above or below)."""
        return slack[: self.n_pairs], np.bincount(
            self.bounded, slack[self.n_pairs :], minlength=self.n_bounds
        )


@dataclass(frozen=True, eq=False)
class OrderDesign:
    """Matrices of the program for given labelled rows, basis and statements.

    Attributes
    ----------
    labelled, basis : ndarray of int
        Rows of X that have a target (l), and that carry a coefficient (r).
    targets : ndarray of shape (l,)
    fit_rows : array or CSR of shape (l, r), or (l, n) with `factor`
    statement_rows : array or CSR of shape (p, r), or (p, n) with `factor`
    factor : array or CSR of shape (r, n), or None
        Features of the basis rows, when the linear kernel is not multiplied out.
    statements : Statements
    """

    labelled: np.ndarray
    basis: np.ndarray
    targets: np.ndarray
    fit_rows: Any
    statement_rows: Any
    factor: Any
    statements: Statements

    @classmethod
    def of(
        cls,
        kernel: Kernel,
        X: Any,
        targets: np.ndarray,
        labelled: np.ndarray,
        basis: np.ndarray,
        statements: Statements,
    ) -> OrderDesign:
        """Evaluate the kernel between the rows that matter and the basis. (l + u) r values, u rows in statements."""
        if kernel.is_linear and features_are_smaller(X, labelled, basis, statements):
            X = sp.csr_array(X) if sp.issparse(X) else X
            fit_rows, factor = X[labelled], X[basis]
            statement_rows = statements.incidence @ X
        else:
            n_values = (labelled.shape[0] + len(statements)) * basis.shape[0]
            require_memory(
                n_values * _BYTES_PER_VALUE,
                f"a linear program of {n_values} kernel values",
                "Use fewer basis vectors (n_basis).",
            )
            rows = np.union1d(labelled, statements.rows)
            K = kernel_block(kernel, X, rows, basis).astype(np.float64, copy=False)
            fit_rows, factor = K[np.searchsorted(rows, labelled)], None
            statement_rows = statements.incidence[:, rows] @ K
        return cls(labelled, basis, targets, fit_rows, statement_rows, factor, statements)

    def program(self, order_weight: float, epsilon: float) -> OrderProgram:
        """The program (6) with λ₂ = order_weight; the weights are divided by the number of statements."""
        statements = self.statements
        return OrderProgram(
            fit_rows=self.fit_rows,
            targets=self.targets,
            statement_rows=self.statement_rows,
            margins=statements.margin,
            costs=order_weight * statements.weight / max(len(statements), 1),
            bias_signs=statements.bias_signs,
            epsilon=epsilon,
            factor=self.factor,
        )

    def without(self, held_out: np.ndarray) -> tuple[OrderDesign, np.ndarray]:
        """The design without some labelled rows (positions in `labelled`), and the positions of the basis that is left.

        A held-out row leaves the basis too; statements about it stay, since they do not reveal its target.
        """
        kept = rows_outside(self.labelled.shape[0], held_out)
        basis_kept = np.flatnonzero(~np.isin(self.basis, self.labelled[held_out]))
        smaller = replace(
            self, labelled=self.labelled[kept], basis=self.basis[basis_kept], targets=self.targets[kept]
        )
        if self.factor is not None:
            return replace(smaller, fit_rows=self.fit_rows[kept], factor=self.factor[basis_kept]), basis_kept
        return (
            replace(
                smaller,
                fit_rows=self.fit_rows[np.ix_(kept, basis_kept)],
                statement_rows=self.statement_rows[:, basis_kept],
            ),
            basis_kept,
        )

    def values(self, positions: np.ndarray, basis_kept: np.ndarray, coef: np.ndarray) -> np.ndarray:
        """k(x, basis[basis_kept]) coef for some of the labelled rows."""
        rows = self.fit_rows[positions]
        if self.factor is not None:
            return rows @ (self.factor[basis_kept].T @ coef)
        return rows[:, basis_kept] @ coef


def features_are_smaller(X: Any, labelled: np.ndarray, basis: np.ndarray, statements: Statements) -> bool:
    """Whether the features of the rows involved are far fewer numbers than their kernel values."""
    per_row = np.diff(X.indptr) if sp.issparse(X) else np.full(X.shape[0], X.shape[1])
    in_statements = per_row[statements.incidence.indices].sum()
    n_features = per_row[labelled].sum() + per_row[basis].sum() + in_statements
    n_values = (labelled.shape[0] + len(statements)) * basis.shape[0]
    return bool(_WORTH_FEATURES * n_features < n_values)


def kernel_block(kernel: Kernel, X: Any, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """K[rows, columns] of the training rows."""
    if kernel.is_precomputed:
        return X[np.ix_(rows, columns)]
    return kernel.matrix(take_items(X, rows), take_items(X, columns))
