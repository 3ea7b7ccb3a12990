"""The automatic choice of solver, as one table.

=====================  =========================================  ==========  ====================================
kernel, n_basis        data                                       solver      square matrix that is factorised
=====================  =========================================  ==========  ====================================
any, with n_basis      r <= 5,000, or K_MR fits in memory         primal      r × r (features of the reduced set)
any, with n_basis      otherwise                                  cg          r × r (of a sample: a preconditioner)
other than linear      any                                        dual        m × m
linear                 n <= m, and n <= limit                     primal      n × n
linear                 m < n, and m <= limit                      dual        m × m
linear                 both above the limit                       cg          none
=====================  =========================================  ==========  ====================================

The limit is 20,000 for dense and 3,000 for sparse data, where an iteration is cheap next to filling a square matrix.
With n_basis neither solver stores the m × r block K_MR once it is large; "primal" sums up the r × r matrix in one
pass over the rows, m r² operations, and "cg" takes a pass of O(m r) an iteration, which is less work from some
thousands of basis vectors on. Preferences and cost "relative" cannot be summed up in one pass: for them "primal"
stores K_MR, and "cg" is taken where it does not fit.
"""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any

SOLVERS = ("auto", "dual", "primal", "cg")
DENSE_LIMIT = 20_000
SPARSE_LIMIT = 3_000
# Basis vectors up to which one pass of m r² operations is no more work than a dozen or two passes of O(m r).
BASIS_LIMIT = 5_000


def choose_solver(
    requested: str,
    *,
    linear: bool,
    reduced: bool,
    sparse: bool,
    n_rows: int,
    n_features: int | None,
    n_basis: int = 0,
    fits: bool = True,
    one_pass: bool = True,
) -> str:
    """Read the table, or check what was asked for against it.

    Parameters
    ----------
    requested : {"auto", "dual", "primal", "cg"}
    linear : bool
        Whether the kernel is the linear one.
    reduced : bool
        Whether a reduced set of basis vectors is used.
    sparse : bool
        Whether X is sparse.
    n_rows, n_features : int
        m and n; n is None for objects.
    n_basis : int
        r, with a reduced set.
    fits, one_pass : bool
        With a reduced set: whether K_MR fits in memory, and whether its Gram matrix can be summed up in blocks instead.

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
    if min(n_rows, n_features) > (SPARSE_LIMIT if sparse else DENSE_LIMIT):
        return "cg"
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
