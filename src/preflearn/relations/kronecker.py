"""KroneckerRLS: regularised least squares over pairs of objects of two kinds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Self

import numpy as np

from ..comparisons.inputs import read_alpha
from ..numerics.memory import require_memory
from ..squared.conjugate_gradients import ConjugateGradientResult
from .complete import CompleteRelation, TwoStepRelation
from .grammar import RelationFolds
from .incomplete import KnownPairs, warn_unless_converged
from .model import RelationData, RelationModel


class KroneckerRLS(RelationModel):
    r"""Learn a function of pairs (u, v) from labels of some or all pairs.

    Minimises Σ (y_uv - f(u, v))² + alpha ‖f‖² over the known labels, f in the space of the pairwise kernel
    k(u, u') g(v, v'), or another one of `pairwise`. With `compare`, only differences inside a column (or row)
    count: Σ_v ‖C (y_v - f_v)‖², C the centring, which is conditional ranking.

    Parameters
    ----------
    alpha : float, default=1.0
        Regularisation.
    row_kernel, column_kernel : str, callable or Kernel, default="linear"
        Kernel of the row objects and of the column objects, as `kernel` of `RLS`; ``"precomputed"`` takes kernel
        matrices in place of the objects.
    row_params, column_params : dict, optional
        Parameters of these kernels, for example ``{"gamma": 0.1}``.
    compare : {None, "rows", "columns"}, default=None
        None is regression; ``"rows"`` ranks the rows for each column, ``"columns"`` the columns for each row.
    pairwise : str or dict, default="kronecker"
        ``"kronecker"``, ``"symmetric"``, ``"antisymmetric"``, ``"cartesian"``, ``"sum"``, or a dict from these
        names to weights, for a weighted sum.
    tol : float, default=1e-8
        Relative residual at which conjugate gradients stop (incomplete labels).
    max_iter : int, optional
        Maximum number of iterations; 1000 by default.
    verbose : int, default=0
        Report stages and iterations on standard error.

    Attributes
    ----------
    dual_coef_ : ndarray or sparse array of shape (p, q)
        A in f = K A G; sparse where few pairs are known.
    shape_ : tuple of int
        (p, q).
    n_pairs_ : int
        Known labels.
    solver_ : {"closed", "cg"}
    n_iter_ : int
        Iterations of conjugate gradients; 1 in closed form.
    residual_ : float or None
        Relative residual that they reached.

    Notes
    -----
    Complete labels: two eigendecompositions and O(pq(p + q)). Incomplete labels, and kernels without a closed form
    (``"sum"``): conjugate gradients, O(e (p + q)) for e known pairs in each iteration, and no matrix larger than
    the two kernels. Reference: Stock, Pahikkala, Airola, De Baets and Waegeman, "A comparative study of pairwise
    learning methods based on kernel ridge regression", Neural Computation 30 (2018).

    Examples
    --------
    >>> import numpy as np
    >>> from preflearn.relations import KroneckerRLS
    >>> rng = np.random.default_rng(0)
    >>> drugs, targets = rng.normal(size=(30, 4)), rng.normal(size=(40, 5))
    >>> Y = drugs @ rng.normal(size=(4, 5)) @ targets.T
    >>> model = KroneckerRLS(alpha=0.01).fit(drugs, targets, Y)
    >>> new = rng.normal(size=(2, 4))
    >>> model.predict(new, targets).shape
    (2, 40)
    """

    def __init__(
        self, alpha=1.0, *, row_kernel="linear", column_kernel="linear", row_params=None, column_params=None,
        compare=None, pairwise="kronecker", tol=1e-8, max_iter=None, verbose=0,
    ) -> None:  # fmt: skip
        super().__init__(row_kernel, column_kernel, row_params, column_params, compare)
        self.alpha, self.pairwise, self.tol, self.max_iter = alpha, pairwise, tol, max_iter
        self.verbose = verbose

    def fit(self, rows, columns, Y) -> Self:
        """Learn from a matrix of labels.

        Parameters
        ----------
        rows : array-like or sparse of shape (p, n), kernel matrix (p, p), or sequence of p objects
        columns : the same for q objects
            None where both are of one kind.
        Y : array-like of shape (p, q)
            NaN where unknown.

        Returns
        -------
        self
        """
        alpha = read_alpha(self.alpha)
        return self._fit(self._read(rows, columns, Y), alpha)

    def fit_pairs_of(self, rows, columns, row_index, column_index, y, *, duplicates="refuse") -> Self:
        """Learn from a list of pairs.

        Parameters
        ----------
        rows, columns : as in fit
        row_index, column_index : int array-like of shape (e,)
            The objects of each pair, as positions in `rows` and `columns`.
        y : array-like of shape (e,)
        duplicates : {"refuse", "mean"}, default="refuse"
            What to do with a pair that is listed more than once: raise an error, or use the mean of its labels.

        Returns
        -------
        self
        """
        alpha = read_alpha(self.alpha)
        data = RelationData(self, rows, columns, None, (row_index, column_index, y, duplicates))
        return self._fit(data, alpha)

    def _fit(self, data: RelationData, alpha: float) -> KroneckerRLS:
        KroneckerProblem(self, data).set_solution(self, alpha)
        return self


class KroneckerProblem:
    """The data of a `KroneckerRLS` with what is factorised once: solutions and hold-outs at any alpha."""

    def __init__(self, model: KroneckerRLS, data: RelationData) -> None:
        self.data = data
        self._options: dict[str, Any] = {"max_iter": model.max_iter, "verbose": model.verbose}
        self._tol = model.tol
        self.complete: CompleteRelation | None = None
        self.pairs: KnownPairs | None = None
        if data.has_closed_form:
            self.complete = CompleteRelation(*data.sides(), data.labels(), data.pairwise)

    @property
    def known(self) -> KnownPairs:
        """The problem of the known pairs, for conjugate gradients."""
        if self.pairs is None:
            data = self.data
            sides = None
            if self.complete is not None and data.compare is None:
                sides = (self.complete.rows, self.complete.columns)
            self.pairs = KnownPairs(
                data.K, data.G, data.row, data.column, data.y, data.pairwise, data.compare, sides
            )
        return self.pairs

    @property
    def largest_eigenvalue(self) -> float:
        if self.complete is not None:
            return self.complete.largest_eigenvalue
        return self.known.largest_eigenvalue()

    def solve(self, alpha: float) -> tuple[Any, ConjugateGradientResult | None]:
        """Dual coefficients, and how conjugate gradients found them."""
        if self.complete is not None:
            return self.complete.coefficients(alpha), None
        result = self.known.solve(alpha, tol=self._tol, **self._options)
        warn_unless_converged(result, self._tol)
        return self.known.coefficients(result), result

    def set_solution(self, model: RelationModel, alpha: float) -> None:
        """Solve at one alpha, and set what `fit` sets."""
        coefficients, result = self.solve(alpha)
        model._adopt(self.data, coefficients)
        model.solver_ = "closed" if result is None else "cg"
        model.n_iter_ = 1 if result is None else result.n_iter
        model.residual_ = None if result is None else result.residual

    def solve_path(self, alphas: Sequence[float]) -> Iterator[tuple[int, Any]]:
        """Dual coefficients at every alpha, with the position of that alpha in ``alphas``."""
        if self.complete is not None:
            yield from ((number, self.complete.coefficients(alpha)) for number, alpha in enumerate(alphas))
            return
        for number, result in self.known.path(alphas, tol=self._tol, **self._options):
            warn_unless_converged(result, self._tol)
            yield number, self.known.coefficients(result)

    def held_out(
        self,
        hold_out: RelationFolds,
        alphas: Sequence[float],
        on_fold: Any = None,
        *,
        tol: float = 1e-11,  # agrees with refitting to a far higher precision than is ever displayed
    ) -> np.ndarray:
        """Predictions of what was left out, for each alpha, shape (n_alphas, p, q); ``tol`` for conjugate gradients."""
        p, q = self.data.shape
        require_memory(8 * len(alphas) * p * q, f"held-out predictions of {p} × {q} × {len(alphas)}")
        by_folds_of_entries = hold_out.setting == "entries" and hold_out.entries is not None
        if self.complete is None or by_folds_of_entries:
            max_iter = self._options["max_iter"]
            return self.known.held_out(hold_out, alphas, tol=tol, max_iter=max_iter, on_fold=on_fold)
        return closed_hold_out(self.complete, hold_out, alphas, on_fold)


def closed_hold_out(
    relation: Any, hold_out: RelationFolds, alphas: Sequence[Any], on_fold: Any
) -> np.ndarray:
    """One of the four settings of a complete relation, by algebra."""
    if hold_out.setting == "entries":
        return relation.entries_out(alphas, on_fold)
    if hold_out.setting == "rows":
        return relation.rows_out(hold_out.rows, alphas)
    if hold_out.setting == "columns":
        return relation.columns_out(hold_out.columns, alphas)
    return relation.both_out(hold_out.rows, hold_out.columns, alphas, on_fold)


# ----------------------------------------------------------------
# TwoStepRLS: ridge regression over the rows, then over the columns.


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
