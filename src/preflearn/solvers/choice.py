"""The choice of solver: options that cannot be served are refused, the rest is the table in `routes`."""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any

from .routes import Workload, choose_route

SOLVERS = ("auto", "dual", "primal", "cg")
# Basis vectors up to which one pass of m r² operations is no more work than a dozen or two passes of O(m r).
BASIS_LIMIT = 5_000


def choose_solver(
    requested: str,
    *,
    linear: bool,
    reduced: bool,
    n_rows: int,
    n_features: int | None,
    n_basis: int = 0,
    fits: bool = True,
    one_pass: bool = True,
    workload: Workload | None = None,
) -> str:
    """Read the table, or check what was asked for against it.

    Parameters
    ----------
    requested : {"auto", "dual", "primal", "cg"}
    linear : bool
        Whether the kernel is the linear one.
    reduced : bool
        Whether a reduced set of basis vectors is used.
    n_rows, n_features : int
        m and n; n is None for objects.
    n_basis : int
        r, with a reduced set.
    fits, one_pass : bool
        With a reduced set: whether K_MR fits in memory, and whether its Gram matrix can be summed up in blocks instead.
    workload : Workload, optional
        What is to be done with the linear kernel; without it the smaller of the two square matrices is taken.

    Returns
    -------
    {"dual", "primal", "cg"}

    Raises
    ------
    ValueError
        If the solver asked for does not exist or cannot serve this kernel.
    """
    check_solver_options(requested, linear=linear, reduced=reduced)
    if reduced:
        if requested != "auto":
            return requested
        return "primal" if fits or (one_pass and n_basis <= BASIS_LIMIT) else "cg"
    if not linear:
        return "dual"
    if requested != "auto":
        return requested
    assert n_features is not None
    if workload is not None:
        found = choose_route(workload).chosen.solver
        return "dual" if found == "pairs" else found  # the kernel of the differences
    return "primal" if n_features <= n_rows else "dual"


def check_solver_options(
    requested: Any, *, linear: bool, reduced: bool, tol: Any = None, max_iter: Any = None
) -> None:
    """Refuse a solver that cannot serve this kernel, and options that it would ignore. Costs nothing: ask first.

    Parameters
    ----------
    requested, linear, reduced
        As in `choose_solver`.
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
