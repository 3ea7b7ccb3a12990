"""A squared-loss problem: validated items and comparisons, represented as `plan` says, then solved and held out.

The representation is chosen only here: by the table in `routes`, or by the solver that was asked for. A solver that
does not suit the data is refused before any work.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from numbers import Integral, Real
from typing import Any

import numpy as np

from ..comparisons import Comparisons, PreferenceComparisons
from ..kernels.functions import take_training_items
from ..numerics.namespace import is_device_array
from ..progress import Stages
from . import routes
from .conjugate_gradients import largest_eigenvalue
from .holdout.preference import suits_pair_space
from .problem import SquaredLossFit
from .representations import (
    FullKernel,
    Inputs,
    Iterated,
    IteratedReducedSet,
    Linear,
    PairSpace,
    ReducedSet,
    Representation,
)
from .representations.reduced import block_bytes
from .routes import RouteMap, Workload, choose_route, refuse_if_hopeless, warn_if_long

SOLVERS = ("auto", "dual", "primal", "cg")
# Number of basis vectors up to which one pass of m r² operations is no more work than a dozen or two passes of O(m r).
BASIS_LIMIT = 5_000
# Up to this size a square matrix is factorised almost instantly.
_QUICKLY_FACTORISED = 1000
# Up to this many rows any square matrix is factorised and held out almost instantly, and the smaller one is taken.
_QUICK_ROWS = 500


class SquaredLossProblem:
    """Minimise Σ over comparisons + alpha ‖f‖².

    Parameters
    ----------
    inputs : Inputs
        Validated items, on the host or on a device, their kernel, and the reduced set.
    tasks : sequence of Comparisons
        One that all outputs share, or one per output where L depends on the scores.
    solver : {"auto", "dual", "primal", "cg"}
    tol, max_iter : optional
        Of conjugate gradients (1e-8; 10 n and at least 1000; with a reduced set 1e-6 and 500).
    stages : Stages, optional
        Reports the stages of a training.
    """

    def __init__(
        self,
        inputs: Inputs,
        tasks: Sequence[Comparisons],
        *,
        solver: str = "auto",
        tol: float | None = None,
        max_iter: int | None = None,
        stages: Stages | None = None,
    ):
        self.inputs, self.tasks, self.solver = inputs, tasks, solver
        self.stages = stages or Stages(None)
        self._iterations: dict[str, Any] = {"tol": tol, "max_iter": max_iter}

    def solve(self, alpha: float, *, with_mean: bool = True) -> SquaredLossFit:
        """The coefficients at one alpha; ``with_mean`` says whether `mean_prediction` is needed."""
        if not is_device_array(self.inputs.X):
            self.tasks = _that_count(self.tasks)
            rows = _compared_rows(self.tasks)
            if rows is not None and self.inputs.feature_map is None and not with_mean:
                return self._solve_compared_rows(rows, alpha)
        return self._represent_training(alpha, with_mean).solve(alpha, with_mean=with_mean)

    def path(self, alphas: Sequence[float], *, with_mean: bool = True) -> list[SquaredLossFit]:
        """The coefficients at every alpha."""
        return self._represent_training(min(alphas), with_mean).path(alphas, with_mean=with_mean)

    def workload(self, purpose: str, **sizes: Any) -> Workload:
        """What is asked for, and the shape of these data; ``sizes`` are attributes of `Workload`."""
        X, kernel, feature_map = self.inputs.X, self.inputs.kernel, self.inputs.feature_map
        sizes |= {
            "closed_half": all(task.has_half for task in self.tasks),
            "tol": self._iterations["tol"],
            "linear": kernel.is_linear,
            "on_device": is_device_array(X),
        }
        if feature_map is not None:
            sizes["n_basis"] = feature_map.basis_indices_.shape[0]
            if not sizes["on_device"]:
                sizes |= {
                    "n_basis": feature_map.rank_,
                    "block_fits": block_bytes(self.inputs) <= routes.MEMORY,
                }
        if kernel.is_precomputed:
            return Workload(purpose, self.inputs.n_rows, 0, **sizes)
        return Workload.of(X, purpose, **sizes)

    def plan(self, purpose: str, *, spread: Callable[[], float] | None = None, **sizes: Any) -> Plan:
        """The route for what is asked for."""
        sizes["pair_space"] = self._has_pair_space
        return plan(self.workload(purpose, **sizes), self.solver, spread=spread)

    def represent(self, chosen: Plan) -> Representation:
        """The representation of a route."""
        arguments = (self.inputs, self.tasks, self.stages)
        if is_device_array(self.inputs.X):
            from .devices.representation import DeviceRows

            in_features = chosen.solver == "primal"
            return DeviceRows(*arguments, solver=self.solver, in_features=in_features, **self._iterations)
        reduced = self.inputs.feature_map is not None
        if chosen.solver == "cg":
            return (IteratedReducedSet if reduced else Iterated)(*arguments, **self._iterations)
        if reduced:
            return ReducedSet(*arguments)
        if chosen.solver == "pairs":
            in_features = self.solver != "dual" and self.workload("train").smaller_square == "primal"
            return PairSpace(*arguments, by_rows=(Linear if in_features else FullKernel)(*arguments))
        return (Linear if chosen.solver == "primal" else FullKernel)(*arguments)

    @property
    def _has_pair_space(self) -> bool:
        """Whether these are preferences whose weights suit one matrix."""
        task = self.tasks[0]
        return isinstance(task, PreferenceComparisons) and suits_pair_space(task)

    def _represent_training(self, alpha: float, with_mean: bool) -> Representation:
        kernel = self.inputs.kernel
        # Another kernel may not be positive definite, which a matrix of some differences does not reveal.
        known = kernel.has_blocks
        in_pairs = known and not with_mean and self._has_pair_space
        chosen = self.plan(
            "train",
            n_pairs=self.tasks[0].n_comparisons if in_pairs else 0,
            spread=lambda: 1.0 + max(largest_eigenvalue(self.inputs.X, task) for task in self.tasks) / alpha,
        )
        if chosen.found is not None:
            self.stages.note(str(chosen.found.chosen))
            warn_if_long(chosen.found)
        return self.represent(chosen)

    def _solve_compared_rows(self, rows: np.ndarray, alpha: float) -> SquaredLossFit:
        """Rows that are not compared have no part in the model: their coefficients are zero."""
        task, kernel = self.tasks[0], self.inputs.kernel
        part = Inputs(take_training_items(self.inputs.X, rows, kernel), kernel)
        options = {"solver": self.solver, "stages": self.stages, **self._iterations}
        fit = SquaredLossProblem(part, [task.take(rows)], **options).solve(alpha, with_mean=False)
        if fit.dual_coef is not None:
            coef = np.zeros((task.n_rows, fit.dual_coef.shape[1]), dtype=fit.dual_coef.dtype)
            coef[rows] = fit.dual_coef
            fit.dual_coef, fit.basis_indices = coef, np.arange(task.n_rows)
        return fit


def _that_count(tasks: Sequence[Comparisons]) -> Sequence[Comparisons]:
    """Drop preferences of weight zero, which carry no information."""
    task = tasks[0]
    if not isinstance(task, PreferenceComparisons) or not 0 < task.n_comparisons < task.pairs.shape[0]:
        return tasks
    return [task.without(np.flatnonzero(task.weight == 0))]


def _compared_rows(tasks: Sequence[Comparisons]) -> np.ndarray | None:
    """The rows that preferences name, ascending; None where these are all of them."""
    task = tasks[0]
    if not isinstance(task, PreferenceComparisons):
        return None
    rows = np.unique(task.pairs)
    return rows if rows.shape[0] < task.n_rows else None


@dataclass(frozen=True)
class Plan:
    """What `plan` has chosen.

    Attributes
    ----------
    solver : {"primal", "dual", "pairs", "cg"}
        The route, as in the table of `routes`; with a reduced set "primal" or "cg".
    found : RouteMap or None
        The route with its cost and the others, where the table decided.
    """

    solver: str
    found: RouteMap | None = None


def plan(workload: Workload, solver: str = "auto", *, spread: Callable[[], float] | None = None) -> Plan:
    """The route that a workload takes.

    Parameters
    ----------
    workload : Workload
    solver : {"auto", "dual", "primal", "cg"}
        The solver that was asked for.
    spread : callable, optional
        Measures the spread of the spectrum, which determines the number of iterations. It takes a few passes over the
        data and is called only where it may decide.

    Returns
    -------
    Plan

    Raises
    ------
    ValueError
        If the solver does not exist or does not suit this kernel, or if only hours of iterations would be left.

    Examples
    --------
    >>> plan(Workload("train", 3000, 50)).solver, plan(Workload("train", 3000, 50), "dual").solver
    ('primal', 'dual')
    """
    if workload.on_device or workload.n_basis is not None:
        square = square_form(workload, solver)
        return Plan("cg" if not workload.on_device and _must_iterate(workload, solver) else square)
    check_solver_options(solver, linear=workload.linear, reduced=False)
    if workload.purpose == "train":
        return _plan_training(workload, solver, spread)
    if workload.purpose == "preferences" and workload.pair_space:
        return _plan_preferences(workload, solver, spread)
    if solver != "auto" or workload.n_rows <= _QUICK_ROWS:
        return Plan(_asked_for(workload, solver))
    found = find_route(workload, spread)
    refuse_if_hopeless(found)
    return Plan(found.chosen.solver, found)


def square_form(workload: Workload, solver: str = "auto") -> str:
    """Which of the square matrices is taken where there is nothing else to choose: "primal" or "dual"."""
    reduced = workload.n_basis is not None
    check_solver_options(solver, linear=workload.linear, reduced=reduced)
    return "primal" if reduced else _asked_for(workload, solver)


def find_route(workload: Workload, spread: Callable[[], float] | None = None) -> RouteMap:
    """The cheapest route; the number of iterations is measured where they are chosen."""
    found = choose_route(workload)
    if found.chosen.solver == "cg" and spread is not None:
        found = choose_route(replace(workload, spread=spread()))
    return found


def _asked_for(workload: Workload, solver: str) -> str:
    return solver if workload.linear and solver != "auto" else workload.smaller_square


def _must_iterate(workload: Workload, solver: str) -> bool:
    """With a reduced set: K_MR fits, or its Gram matrix is summed in blocks, or the problem is solved by iterations."""
    assert workload.n_basis is not None
    in_blocks = workload.closed_half and workload.n_basis <= BASIS_LIMIT
    return solver == "cg" or (solver == "auto" and not workload.block_fits and not in_blocks)


def _plan_training(workload: Workload, solver: str, spread: Callable[[], float] | None) -> Plan:
    chosen, found = _asked_for(workload, solver), None
    if workload.linear and solver == "auto" and workload.n_rows > _QUICK_ROWS:
        m, n = workload.n_rows, workload.n_features
        assert n is not None
        if min(m, n) <= _QUICKLY_FACTORISED:
            chosen = choose_route(Workload("train", m, n, tol=workload.tol)).chosen.solver
        else:
            found = choose_route(workload if spread is None else replace(workload, spread=spread()))
            chosen = found.chosen.solver
    # The smaller of the two kernel matrices.
    by_differences = chosen == "dual" and workload.pair_space and 0 < workload.n_pairs <= workload.n_rows
    return Plan("pairs" if by_differences else chosen, found)


def _plan_preferences(workload: Workload, solver: str, spread: Callable[[], float] | None) -> Plan:
    """The space of the pairs belongs to the kernel as well: solver "dual" uses it where it is the cheapest."""
    found = find_route(workload, spread)
    if solver == "auto":
        refuse_if_hopeless(found)
        return Plan(found.chosen.solver, found)
    if solver == "dual" and found.chosen.solver == "pairs":
        return Plan("pairs", found)
    return Plan(_asked_for(workload, solver))


def check_solver_options(
    requested: Any, *, linear: bool, reduced: bool, tol: Any = None, max_iter: Any = None
) -> None:
    """Refuse a solver that does not suit this kernel, and options that it would ignore; cheap, to be called first.

    Parameters
    ----------
    requested, linear, reduced
        The solver that was asked for, whether the kernel is the linear one, and whether there are basis vectors.
    tol, max_iter : optional
        Of conjugate gradients; refused for any other solver that was asked for by name.
    """
    if requested not in SOLVERS:
        raise ValueError(f"solver must be one of {', '.join(map(repr, SOLVERS))}: found {requested!r}.")
    if reduced and requested == "dual":
        raise ValueError(
            "solver='dual' does not take a reduced set: with n_basis the problem is solved in primal form. "
            "Use solver='auto', 'primal' or 'cg', or n_basis=None."
        )
    if not linear and not reduced and requested == "primal":
        raise ValueError(
            "solver='primal' with a non-linear kernel needs a reduced set: pass n_basis, or use solver='dual'."
        )
    if not linear and not reduced and requested == "cg":
        raise ValueError(
            "solver='cg' is for the linear kernel, or for a reduced set: use solver='dual', or n_basis=... for "
            "large data."
        )
    if requested in ("dual", "primal") and (tol is not None or max_iter is not None):
        raise ValueError(
            f"tol and max_iter belong to solver='cg' and would be ignored by solver={requested!r}: leave them out."
        )
    _check_iteration_options(tol, max_iter)


def _check_iteration_options(tol: Any, max_iter: Any) -> None:
    if tol is not None and (not _is_number(tol, Real) or not 0 < float(tol) < 1):
        raise ValueError(
            f"tol is a relative residual, between 0 and 1: found {tol!r}. Leave it out for 1e-8."
        )
    if max_iter is not None and (not _is_number(max_iter, Integral) or int(max_iter) < 1):
        raise ValueError(
            f"max_iter must be a positive int: found {max_iter!r}. Leave it out for the default."
        )


def _is_number(value: Any, kind: type) -> bool:
    return isinstance(value, kind) and not isinstance(value, bool)
