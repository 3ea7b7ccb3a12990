"""The choice of a representation, made here alone: the table in `routes`, or the solver that was asked for.

A solver that cannot serve the data is refused before any work.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from numbers import Integral, Real
from typing import Any

from .routes import RouteMap, Workload, choose_route, refuse_if_hopeless

SOLVERS = ("auto", "dual", "primal", "cg")
# Basis vectors up to which one pass of m r² operations is no more work than a dozen or two passes of O(m r).
BASIS_LIMIT = 5_000
# A square matrix up to this size is factorised in a moment.
_QUICKLY_FACTORISED = 1000
# So few rows are held out in a moment by any square matrix.
_QUICK_ROWS = 500


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
        What was asked for.
    spread : callable, optional
        Measures the spread of the spectrum, which says how many iterations it takes. A few passes over the data: asked
        only where it may decide.

    Returns
    -------
    Plan

    Raises
    ------
    ValueError
        If the solver does not exist or cannot serve this kernel, or if nothing but hours of iterations is left.

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
    """The cheapest route; how many iterations it will be is measured where they are chosen."""
    found = choose_route(workload)
    if found.chosen.solver == "cg" and spread is not None:
        found = choose_route(replace(workload, spread=spread()))
    return found


def _asked_for(workload: Workload, solver: str) -> str:
    return solver if workload.linear and solver != "auto" else workload.smaller_square


def _must_iterate(workload: Workload, solver: str) -> bool:
    """With a reduced set: K_MR fits, or its Gram matrix is summed up in blocks, or it is iterated."""
    assert workload.n_basis is not None
    in_blocks = workload.closed_half and workload.n_basis <= BASIS_LIMIT
    return solver == "cg" or (solver == "auto" and not workload.block_fits and not in_blocks)


def _plan_training(workload: Workload, solver: str, spread: Callable[[], float] | None) -> Plan:
    chosen, found = _asked_for(workload, solver), None
    if workload.linear and solver == "auto":
        m, n = workload.n_rows, workload.n_features
        assert n is not None
        if min(m, n) <= _QUICKLY_FACTORISED:
            chosen = choose_route(Workload("train", m, n, tol=workload.tol)).chosen.solver
        else:
            found = choose_route(workload if spread is None else replace(workload, spread=spread()))
            chosen = found.chosen.solver
    # Of two kernel matrices the smaller one.
    by_differences = chosen == "dual" and workload.pair_space and 0 < workload.n_pairs <= workload.n_rows
    return Plan("pairs" if by_differences else chosen, found)


def _plan_preferences(workload: Workload, solver: str, spread: Callable[[], float] | None) -> Plan:
    """The space of the pairs is the kernel's as well: for solver "dual" it is taken where it is the cheapest."""
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
    """Refuse a solver that cannot serve this kernel, and options that it would ignore. Costs nothing: ask first.

    Parameters
    ----------
    requested, linear, reduced
        As in `plan`, and whether the kernel is the linear one, and whether there are basis vectors.
    tol, max_iter : optional
        Of conjugate gradients; refused for another solver that was asked for by name.
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
