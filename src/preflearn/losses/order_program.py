"""The linear program of regression with order preferences.

With rows k_i = K(x_i, basis) of the kernel matrix, f(x_i) = k_i α + β, the program (6)-(7) is

    min  1/l Σ_i |y_i - f(x_i)|_ε  +  λ₁ ‖α‖₁  +  Σ_q c_q max(d_q - (D α)_q - σ_q β, 0)
    α, β

where statement q is a pair (D_q = k_i - k_j, σ_q = 0), a lower bound (D_q = k_i, σ_q = 1) or an upper bound
(D_q = -k_i, σ_q = -1) and c_q = λ₂ w_q / p. Written out as in (7) it has 2r + 1 + l + p columns and about as many rows.
Its dual

    max  yᵀu - ε‖u‖₁ + dᵀv     |u_i| <= 1/l,   0 <= v_q <= c_q,   |Kᵀu + Dᵀv| <= λ₁,   1ᵀu + σᵀv = 0
    u, v

has only r + 1 rows, contains K and D once, and its multipliers are α and β. This dual is what is passed to HiGHS. Three
facts follow from it.

* u = 0, v = 0 is feasible and the box is bounded: the program always has a solution. Contradictory statements pay
  slack, and nothing that the caller can ask for makes it infeasible or unbounded.
* Another λ₁ changes the row bounds alone, so a path of λ₁ is a sequence of warm starts.
* A statement that is satisfied with slack has v_q = 0: it costs one column and no row.

For the linear kernel K = X Bᵀ the product need not be formed: with z = Xᵀu + X_Dᵀv the row block reads |B z| <= λ₁,
which stores the features as they are (O(nnz)); see `OrderProgram.factor`.

Reference: X. Zhu and A. B. Goldberg, Kernel Regression with Order Preferences, AAAI 2007.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np
import scipy.sparse as sp

from ..kernels.functions import Kernel, take_items
from ..numerics.memory import require_memory
from ..squared.holdout.base import rows_outside

# Features are kept unmultiplied when they have this many times fewer entries than the kernel values. Their program has
# one more row per feature, so a small saving does not pay; see benchmarks/order_program.py.
_WORTH_FEATURES = 8
# A kernel value is stored in the design, in the program together with its row number, and once more in HiGHS.
_BYTES_PER_VALUE = 48

# HiGHS works with absolute tolerances; the program is scaled so that targets, kernel values and box are of size one.
_FEASIBILITY = 1e-9
# The multipliers are accepted when primal and dual objective agree to this, relative to the objective of f = median(y).
_GAP = 1e-7

# Ways to solve, tried in turn. Presolve finds nothing in a dense matrix and costs more than the solution, and now and
# then it declares a program with tiny bounds infeasible; with features it removes the free columns.
_WITHOUT_PRESOLVE = {"presolve": False, "solver": "simplex"}
_WITH_PRESOLVE = {"presolve": True, "solver": "choose"}
_INTERIOR_POINT = {"presolve": False, "solver": "ipm"}

_PLAIN_WORDS = {
    "infeasible": "the solver reports it as infeasible, which its structure rules out",
    "unbounded": "the solver reports it as unbounded, which its structure rules out",
    "limit": "the solver stopped at a time or iteration limit",
    "numerical": "the solver ran into numerical difficulties",
}


@dataclass(frozen=True)
class OrderProgram:
    """Data of the program, without λ₁.

    Attributes
    ----------
    fit_rows : array or CSR matrix of shape (l, r), or (l, n) with a factor
        Kernel values of the labelled rows with the basis, or their features.
    targets : ndarray of shape (l,)
    statement_rows : array or CSR matrix of shape (p, r), or (p, n) with a factor
        D: one row per statement.
    margins : ndarray of shape (p,)
        d: the value that D α + σ β should reach.
    costs : ndarray of shape (p,)
        c = λ₂ w / p, nonnegative.
    bias_signs : ndarray of shape (p,)
        σ: 0 for a pair, 1 for a lower bound, -1 for an upper bound.
    epsilon : float
        Half width of the zone without loss.
    factor : array or CSR matrix of shape (r, n), optional
        B, the features of the basis rows: then K = fit_rows Bᵀ is never formed.
    """

    fit_rows: Any
    targets: np.ndarray
    statement_rows: Any
    margins: np.ndarray
    costs: np.ndarray
    bias_signs: np.ndarray
    epsilon: float = 0.0
    factor: Any = None

    @property
    def n_basis(self) -> int:
        return self.fit_rows.shape[1] if self.factor is None else self.factor.shape[0]

    def evaluate(self, alpha: float, coef: np.ndarray, bias: float) -> tuple[dict[str, float], np.ndarray]:
        """The three parts of the objective at (coef, bias), and the slack of each statement."""
        weights = coef if self.factor is None else self.factor.T @ coef
        residuals = np.abs(self.targets - self.fit_rows @ weights - bias)
        slack = np.maximum(self.margins - self.statement_rows @ weights - self.bias_signs * bias, 0.0)
        parts = {
            "loss": float(np.maximum(residuals - self.epsilon, 0.0).mean()),
            "norm": float(alpha * np.abs(coef).sum()),
            "preferences": float(self.costs @ slack),
        }
        return parts, slack


@dataclass(frozen=True)
class OrderSolution:
    """Minimiser of the program for one λ₁.

    Attributes
    ----------
    coef : ndarray of shape (r,)
        α; exact zeros outside the support.
    bias : float
        β.
    parts : dict
        ``loss``, ``norm`` and ``preferences``: the weighted parts that sum to the objective.
    slack : ndarray of shape (p,)
        How far each statement is from being satisfied, 0 where it holds.
    lower_bound : float
        The dual objective: no (α, β) has a smaller objective.
    n_iter : int
        Iterations of the simplex method, presolve and warm start taken into account.
    """

    coef: np.ndarray
    bias: float
    parts: dict[str, float]
    slack: np.ndarray
    lower_bound: float
    n_iter: int

    @property
    def objective(self) -> float:
        return sum(self.parts.values())


def solve_order_program(program: OrderProgram, alpha: float, *, verbose: bool = False) -> OrderSolution:
    """Solve the program for one λ₁ (see the top of the module).

    Examples
    --------
    Two labelled points and one statement that contradicts them: it pays slack.

    >>> import numpy as np
    >>> K = np.eye(2)
    >>> program = OrderProgram(K, np.array([0.0, 1.0]), K[:1] - K[1:], np.array([0.0]), np.array([0.1]), np.zeros(1))
    >>> solution = solve_order_program(program, alpha=0.0)
    >>> solution.slack.round(6).tolist(), round(solution.objective, 6)
    ([1.0], 0.1)
    """
    return next(order_program_path(program, [alpha], verbose=verbose))


def order_program_path(
    program: OrderProgram, alphas: Iterable[float], *, verbose: bool = False
) -> Iterator[OrderSolution]:
    """Solve the program for each λ₁ in turn, each solution being the start of the next.

    Warm starts need the optional package ``highspy``; without it each λ₁ is solved from scratch through
    `scipy.optimize.linprog`, with the same result. Descending λ₁ makes the shortest path.
    """
    scaled = _ScaledDual(program)
    engine = _engine(scaled, verbose)
    for alpha in alphas:
        yield scaled.unscale(alpha, engine.solve(scaled.row_bound(alpha)))


@dataclass(frozen=True)
class _Multipliers:
    """What an engine returns: row multipliers of min costᵀx, its objective and the iterations."""

    rows: np.ndarray
    objective: float
    n_iter: int


class _Engine(Protocol):
    def solve(self, row_bound: float) -> _Multipliers:
        """Minimise costᵀx with the kernel rows inside ±row_bound."""


@dataclass
class _ScaledDual:
    """The dual in units where targets, kernel values and the box of u are of size one.

    min costᵀx,  lower <= x <= upper,  (A x)[kernel rows] in ±row_bound,  (A x)[other rows] = 0
    """

    program: OrderProgram
    matrix: sp.csc_array = field(init=False)
    cost: np.ndarray = field(init=False)
    lower: np.ndarray = field(init=False)
    upper: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        program = self.program
        n_labelled = program.targets.shape[0]
        self.centre = float(np.median(program.targets))
        targets = program.targets - self.centre
        margins = program.margins - program.bias_signs * self.centre
        self.unit = float(max(np.abs(targets).max(), np.abs(margins).max(initial=0.0))) or 1.0
        self.kernel_unit = _largest(program)
        targets, margins = targets / self.unit, margins / self.unit
        costs = n_labelled * program.costs
        epsilon = program.epsilon / self.unit
        fit_columns = _transposed(program.fit_rows, np.ones(n_labelled), self.kernel_unit)
        statement_columns = _transposed(program.statement_rows, program.bias_signs, self.kernel_unit)
        box = np.ones(n_labelled)
        if epsilon > 0:
            # u = u⁺ - u⁻, since its cost is y u - ε|u|
            blocks = [fit_columns, -fit_columns, statement_columns]
            self.cost = np.concatenate([epsilon - targets, epsilon + targets, -margins])
            self.lower = np.zeros(2 * n_labelled + margins.shape[0])
            self.upper = np.concatenate([box, box, costs])
        else:
            blocks = [fit_columns, statement_columns]
            self.cost = np.concatenate([-targets, -margins])
            self.lower = np.concatenate([-box, np.zeros_like(margins)])
            self.upper = np.concatenate([box, costs])
        self.matrix = _beside(blocks)
        if program.factor is not None:
            self._add_factor(program.factor)

    def _add_factor(self, factor: Any) -> None:
        """Rows (Xᵀu + X_Dᵀv - z = 0, bias, B z) and free columns z in place of the product with B."""
        n_features = factor.shape[1]
        identity = sp.identity(n_features, format="csr")
        empty_bias = sp.csr_matrix((1, n_features))
        z_columns = sp.vstack([-identity, empty_bias, sp.csr_matrix(factor)])
        padding = sp.csr_matrix((factor.shape[0], self.matrix.shape[1]))
        self.matrix = sp.csc_array(sp.hstack([sp.vstack([self.matrix, padding]), z_columns]))
        free = np.full(n_features, np.inf)
        self.cost = np.concatenate([self.cost, np.zeros(n_features)])
        self.lower = np.concatenate([self.lower, -free])
        self.upper = np.concatenate([self.upper, free])

    @property
    def kernel_rows(self) -> slice:
        """The rows whose multipliers are α."""
        n_basis, n_rows = self.program.n_basis, self.matrix.shape[0]
        return slice(0, n_basis) if self.program.factor is None else slice(n_rows - n_basis, n_rows)

    @property
    def bias_row(self) -> int:
        return self.program.fit_rows.shape[1]

    @property
    def attempts(self) -> tuple[dict[str, Any], ...]:
        if self.program.factor is None:
            return _WITHOUT_PRESOLVE, _WITH_PRESOLVE, _INTERIOR_POINT
        return _WITH_PRESOLVE, _WITHOUT_PRESOLVE, _INTERIOR_POINT

    def row_bound(self, alpha: float) -> float:
        return alpha * self.program.targets.shape[0] / self.kernel_unit

    def row_bounds(self, row_bound: float) -> np.ndarray:
        upper = np.zeros(self.matrix.shape[0])
        upper[self.kernel_rows] = row_bound
        return upper

    def unscale(self, alpha: float, multipliers: _Multipliers) -> OrderSolution:
        coef = -multipliers.rows[self.kernel_rows] * (self.unit / self.kernel_unit)
        bias = -float(multipliers.rows[self.bias_row]) * self.unit + self.centre
        coef = coef + 0.0  # no negative zeros
        parts, slack = self.program.evaluate(alpha, coef, bias)
        lower_bound = -multipliers.objective * self.unit / self.program.targets.shape[0]
        solution = OrderSolution(coef, bias, parts, slack, lower_bound, multipliers.n_iter)
        gap = solution.objective - lower_bound
        if not gap <= _GAP * self.unit + 1e-6 * abs(lower_bound):
            raise _unsolved(
                "numerical", f"objective {solution.objective:.6g} against lower bound {lower_bound:.6g}"
            )
        return solution


def _largest(program: OrderProgram) -> float:
    """A typical size of the kernel values (of the features where the product with the factor is not formed)."""
    largest = max(_absolute_max(program.fit_rows), _absolute_max(program.statement_rows))
    return largest or 1.0


def _absolute_max(matrix: Any) -> float:
    values = matrix.data if sp.issparse(matrix) else np.asarray(matrix)
    return float(np.abs(values).max(initial=0.0))


def _transposed(rows: Any, bias_signs: np.ndarray, unit: float) -> Any:
    """Columns of the dual: the rows divided by `unit`, and below them their coefficient of the bias."""
    if sp.issparse(rows):
        return sp.vstack([sp.csr_matrix(rows).T / unit, sp.csr_matrix(bias_signs[np.newaxis])], format="csc")
    return np.vstack([np.asarray(rows, dtype=np.float64).T / unit, bias_signs])


def _beside(blocks: list[Any]) -> sp.csc_array:
    if any(sp.issparse(block) for block in blocks):
        return sp.csc_array(sp.hstack(blocks, format="csc"))
    # A kernel matrix is dense: writing the index arrays directly is faster than searching for zeros.
    dense = np.concatenate([block.T for block in blocks])
    n_columns, n_rows = dense.shape
    indices = np.tile(np.arange(n_rows, dtype=np.int32), n_columns)
    starts = np.arange(0, dense.size + 1, n_rows, dtype=np.int32 if dense.size < 2**31 else np.int64)
    return sp.csc_array((dense.ravel(), indices, starts), shape=(n_rows, n_columns))


def _engine(scaled: _ScaledDual, verbose: bool) -> _Engine:
    if importlib.util.find_spec("highspy") is not None:
        return _WarmEngine(scaled, verbose)
    return _PlainEngine(scaled, verbose)


_SCIPY_NAMES = {"choose": "highs", "simplex": "highs-ds", "ipm": "highs-ipm"}


class _PlainEngine:
    """HiGHS through SciPy; every solve starts from scratch."""

    def __init__(self, scaled: _ScaledDual, verbose: bool) -> None:
        self._scaled = scaled
        self._verbose = verbose

    def solve(self, row_bound: float) -> _Multipliers:
        from scipy.optimize import linprog

        scaled = self._scaled
        # linprog has no two-sided rows: a bounded slack for each kernel row makes it an equation.
        n_rows = scaled.matrix.shape[0]
        slack_bounds = scaled.row_bounds(row_bound)
        with_slack = np.flatnonzero(slack_bounds)
        slack = sp.csc_array(
            (-np.ones(with_slack.shape[0]), (with_slack, np.arange(with_slack.shape[0]))),
            shape=(n_rows, with_slack.shape[0]),
        )
        slack_bounds = slack_bounds[with_slack]
        lower = np.concatenate([scaled.lower, -slack_bounds])
        upper = np.concatenate([scaled.upper, slack_bounds])
        program = {
            "c": np.concatenate([scaled.cost, np.zeros_like(slack_bounds)]),
            "A_eq": sp.hstack([scaled.matrix, slack], format="csc"),
            "b_eq": np.zeros(n_rows),
            "bounds": np.column_stack([lower, upper]),
        }
        for attempt in scaled.attempts:
            result = linprog(
                **program, method=_SCIPY_NAMES[attempt["solver"]], options=self._options(attempt)
            )
            if result.status == 0:
                return _Multipliers(result.eqlin.marginals, float(result.fun), int(result.nit))
        kind = {1: "limit", 2: "infeasible", 3: "unbounded"}.get(result.status, "numerical")
        raise _unsolved(kind, result.message)

    def _options(self, attempt: dict[str, Any]) -> dict[str, Any]:
        return {
            "disp": self._verbose,
            "presolve": attempt["presolve"],
            "primal_feasibility_tolerance": _FEASIBILITY,
            "dual_feasibility_tolerance": _FEASIBILITY,
        }


class _WarmEngine:
    """HiGHS through highspy: the basis of one solve starts the next."""

    def __init__(self, scaled: _ScaledDual, verbose: bool) -> None:
        import highspy

        self._highspy = highspy
        self._scaled = scaled
        self._highs: Any = highspy.Highs()
        self._highs.setOptionValue("output_flag", verbose)
        self._highs.setOptionValue("primal_feasibility_tolerance", _FEASIBILITY)
        self._highs.setOptionValue("dual_feasibility_tolerance", _FEASIBILITY)
        self._passed = False

    def solve(self, row_bound: float) -> _Multipliers:
        if not self._passed:
            self._pass_model(row_bound)
        else:
            self._change_row_bounds(row_bound)
        status = self._run()
        if status != self._highspy.HighsModelStatus.kOptimal:
            raise _unsolved(self._kind(status), self._highs.modelStatusToString(status))
        info = self._highs.getInfo()
        rows = np.array(self._highs.getSolution().row_dual)
        iterations = info.simplex_iteration_count + info.ipm_iteration_count + info.crossover_iteration_count
        return _Multipliers(rows, float(info.objective_function_value), max(int(iterations), 0))

    def _run(self) -> Any:
        for attempt in self._scaled.attempts:
            self._highs.setOptionValue("presolve", "choose" if attempt["presolve"] else "off")
            self._highs.setOptionValue("solver", attempt["solver"])
            self._highs.run()
            status = self._highs.getModelStatus()
            if status == self._highspy.HighsModelStatus.kOptimal:
                break
            self._highs.clearSolver()
        return status

    def _pass_model(self, row_bound: float) -> None:
        scaled, matrix = self._scaled, self._scaled.matrix
        model = self._highspy.HighsLp()
        model.num_row_, model.num_col_ = matrix.shape
        model.col_cost_, model.col_lower_, model.col_upper_ = scaled.cost, scaled.lower, scaled.upper
        bounds = scaled.row_bounds(row_bound)
        model.row_lower_, model.row_upper_ = -bounds, bounds
        model.a_matrix_.format_ = self._highspy.MatrixFormat.kColwise
        model.a_matrix_.start_ = matrix.indptr
        model.a_matrix_.index_ = matrix.indices
        model.a_matrix_.value_ = matrix.data
        self._highs.passModel(model)
        self._passed = True

    def _change_row_bounds(self, row_bound: float) -> None:
        rows = self._scaled.kernel_rows
        indices = np.arange(rows.start, rows.stop, dtype=np.int32)
        bounds = np.full(indices.shape[0], row_bound)
        self._highs.changeRowsBounds(indices.shape[0], indices, -bounds, bounds)

    def _kind(self, status: Any) -> str:
        known = self._highspy.HighsModelStatus
        if status == known.kInfeasible:
            return "infeasible"
        if status in (known.kUnbounded, known.kUnboundedOrInfeasible):
            return "unbounded"
        if status in (known.kTimeLimit, known.kIterationLimit):
            return "limit"
        return "numerical"


def _unsolved(kind: str, detail: str) -> RuntimeError:
    return RuntimeError(
        f"The linear program was not solved: {_PLAIN_WORDS[kind]} ({detail}). The program always has a solution "
        "(slack 0 <= 1, no cost below 0), so look at the scale of the data: kernel values, margins or weights that "
        "differ by many orders of magnitude. Standardise the features or use a larger alpha."
    )


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
