r"""Which route is taken for which purpose: seven rules on sizes, the same on every machine.

The purpose is one of six: *train* once; a *path* of alphas; *folds* × alphas; every *query* held out by itself; every
*pair* of rows; every *preference*. With m rows, n features, r basis vectors and l preferences the routes are

=========  =================================  ====================================================  ==================
route      data                               what is done                                          square matrix
=========  =================================  ====================================================  ==================
primal     linear kernel, n <= m; n_basis     Φᵀ L Φ: Cholesky for one alpha, its spectrum for      n × n, r × r
                                              several and for every hold-out
dual       linear kernel, m < n; any kernel   S K S: Cholesky for one alpha, tridiagonal form for   m × m
                                              several, inverse for a hold-out at one alpha
pairs      preferences                        D K Dᵀ of the l differences: Cholesky for training,   l × l
                                              inverse or tridiagonal form for a hold-out
cg         linear kernel; n_basis             conjugate gradients: training once; every alpha of    none (r × r)
                                              every fold from one Krylov sequence per fold
=========  =================================  ====================================================  ==================

1. A solver that is asked for is taken.
2. The square matrix is the smallest that represents f: n × n or m × m; with a kernel m × m; of preferences l × l too.
3. Where it does not fit in `MEMORY`, the next one that fits is taken; where none does, iterations (``cg``).
4. Where it would take more than `LONG_MATRIX` seconds, iterations that are expected to take a third of that are taken.
5. With n_basis, "primal" sums the r × r matrix in one pass over the rows, m r² operations. "cg", which takes a pass of
   O(m r) per iteration, is for r above 5,000 where K_MR does not fit in memory (preferences and cost "relative" cannot
   be summed: for them "primal" stores K_MR, and "cg" is taken where it does not fit).
6. Iterations for more than 20 sets that would take hours are refused.
7. Sets of rows are held out by training on the others where that is expected to cost less: for two or three large
   folds, and where rows leave parts of queries that the algebra has to take apart densely (a global ranking without
   its ties, or under cost "unit" or "relative"). Sets of such a ranking that take equally many rows from every group of
   ties share one inverse of the kernel's size (`holdout.alike`) where that costs less than training on each.

Seconds follow from a count of operations and one rate, that of an ordinary laptop: they are right to a factor of a few,
enough for a warning and for the last three rules.
"""

from __future__ import annotations

import inspect
import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from numbers import Integral, Real
from typing import Any

import scipy.sparse as sp

PURPOSES = ("train", "path", "folds", "queries", "pairs", "preferences")
SOLVERS = ("auto", "dual", "primal", "cg")
# Bytes that a route may take, so that the choice does not depend on what happens to be free: a laptop.
MEMORY = 8e9
# Multiplications a second, of a factorisation on a few processors.
RATE = 3e10
# Multiplications that take as long as what a training does besides them.
_TRAINING = 1e7
# Multiplications that take as long as one with a stored value of a sparse matrix, and of a dense one that is only read.
_SPARSE, _READ = 100, 7
# A square matrix that takes no longer than this, in seconds, is always preferred to iterations.
LONG_MATRIX = 10.0
# A route that is expected to take longer than this, in seconds, says so before it starts.
LONG = 60.0
# Iterations for single queries, rows or pairs that are expected to take longer than this, in seconds, are refused.
REFUSED = 3600.0
# Up to this many sets count as folds, which are never refused.
FEW_SETS = 20
# Condition number of the system at the smallest alpha where it is not known.
TYPICAL_SPREAD = 1e6
# Default relative errors at which iterations stop: for a training, and for held-out predictions.
TRAINING_TOLERANCE, HELD_OUT_TOLERANCE = 1e-8, 1e-6
# Number of basis vectors up to which one pass of m r² operations is no more work than a dozen or two passes of O(m r).
BASIS_LIMIT = 5_000


@dataclass(frozen=True)
class Workload:
    """What is asked for, and the shape of the data.

    Attributes
    ----------
    purpose : {"train", "path", "folds", "queries", "pairs", "preferences"}
    n_rows : int
    n_features : int or None
        None for objects, 0 for a kernel matrix.
    linear : bool
        Whether the kernel is the linear one.
    n_stored : int or None
        Stored values of a sparse X; None for a dense one.
    n_alphas, n_folds : int
    n_pairs : int
        Preferences.
    closed_half : bool
        Whether L = S S has a closed form.
    spread : float
        Largest eigenvalue relative to the smallest alpha, for the number of iterations.
    tol : float or None
        Tolerance at which iterations stop.
    pair_space : bool
        Whether one matrix can hold the differences of the preferences.
    n_basis : int or None
        Basis vectors of a reduced set; None without one.
    block_fits : bool
        With a reduced set, whether K_MR fits in memory.
    on_device : bool
    """

    purpose: str
    n_rows: int
    n_features: int | None
    linear: bool = True
    n_stored: int | None = None
    n_alphas: int = 1
    n_folds: int = 1
    n_pairs: int = 0
    closed_half: bool = True
    spread: float = TYPICAL_SPREAD
    tol: float | None = None
    pair_space: bool = True
    n_basis: int | None = None
    block_fits: bool = True
    on_device: bool = False

    @classmethod
    def of(cls, X: Any, purpose: str, *, linear: bool = True, **sizes: Any) -> Workload:
        """For this X; the other attributes as keywords."""
        shape = getattr(X, "shape", None)
        n_features = None if shape is None or len(shape) < 2 else int(shape[1])
        n_stored = int(X.nnz) if sp.issparse(X) else None
        n_rows = len(X) if shape is None else int(shape[0])
        return cls(purpose, n_rows, n_features, linear, n_stored, **sizes)

    @property
    def in_features(self) -> bool:
        """Whether f is linear in features that are known."""
        return self.linear and self.n_features is not None

    @property
    def smaller_square(self) -> str:
        """The route of the smaller of the two square matrices: "primal" is n × n, "dual" m × m."""
        return "primal" if self.in_features and self.n_features <= self.n_rows else "dual"  # type: ignore[operator]

    @property
    def n_sets(self) -> float:
        """How often something is held out; 0 where nothing is."""
        if self.purpose in ("train", "path"):
            return 0
        return self.n_rows * (self.n_rows - 1) / 2 if self.purpose == "pairs" else self.n_folds

    @property
    def stored(self) -> int:
        """Numbers that one pass over X reads."""
        assert self.n_features is not None
        return self.n_rows * self.n_features if self.n_stored is None else self.n_stored

    @property
    def reading(self) -> float:
        """Operations of a product of X with a vector."""
        return float((_READ if self.n_stored is None else _SPARSE) * self.stored)

    def __str__(self) -> str:
        alphas = f" × {self.n_alphas} alphas" if self.n_alphas > 1 else ""
        what = {
            "train": "training",
            "path": "path",
            "folds": f"{self.n_folds} folds",
            "queries": f"{self.n_folds} sets of rows held out one by one",
            "pairs": "every pair of rows held out",
            "preferences": f"{self.n_pairs} preferences held out in {self.n_folds} sets",
        }[self.purpose]
        kind = "dense" if self.n_stored is None else f"sparse, {self.n_stored} values"
        columns = "" if self.n_features is None else f" × {self.n_features}"
        return f"{what}{alphas}, {self.n_rows}{columns} ({kind})"


@dataclass(frozen=True)
class Route:
    """One way to do what is asked for.

    Attributes
    ----------
    solver : {"dual", "primal", "pairs", "cg"}
    matrix : str
        The square matrix that is factorised, or what is iterated.
    seconds : float
        Roughly.
    n_bytes : float
        Memory in addition to X.
    exact : bool
        Whether the result is exact up to rounding; otherwise up to a tolerance.
    """

    solver: str
    matrix: str
    seconds: float
    n_bytes: float
    exact: bool = True

    def __str__(self) -> str:
        return f"{self.solver} ({self.matrix}), {in_words(self.seconds)}, {self.n_bytes / 1e9:.1f} GB"


@dataclass(frozen=True)
class RouteMap:
    """The routes of one purpose, the chosen one first; prints itself.

    Attributes
    ----------
    workload : Workload
    chosen : Route
    others : tuple of Route
    memory : float
        Bytes that a route may take.
    """

    workload: Workload
    chosen: Route
    others: tuple[Route, ...] = ()
    memory: float = MEMORY

    def __str__(self) -> str:
        lines = [f"{self.workload}:"]
        for mark, route in [("->", self.chosen), *(("  ", other) for other in self.others)]:
            fits = "" if route.n_bytes <= self.memory else ", does not fit in memory"
            lines.append(f"{mark} {route}{fits}")
        return "\n".join(lines)

    __repr__ = __str__


@dataclass(frozen=True)
class Explanation:
    """The maps of several purposes; what `explain` returns. Prints itself.

    Attributes
    ----------
    maps : dict from purpose to RouteMap
    """

    maps: dict[str, RouteMap] = field(default_factory=dict)

    def __getitem__(self, purpose: str) -> RouteMap:
        return self.maps[purpose]

    def __iter__(self) -> Iterator[RouteMap]:
        return iter(self.maps.values())

    def __str__(self) -> str:
        return "\n".join(map(str, self))

    __repr__ = __str__


def choose_route(workload: Workload, *, memory: float | None = None) -> RouteMap:
    """The route by rules 2 to 4.

    Parameters
    ----------
    workload : Workload
        Without a reduced set.
    memory : float, optional
        Bytes that a route may take; by default `MEMORY`.

    Returns
    -------
    RouteMap
        Where nothing fits, the route that needs the least memory is named first.

    Examples
    --------
    >>> text = Workload("queries", 4000, 60_000, n_stored=160_000, n_alphas=15, n_folds=200)
    >>> choose_route(text, memory=8e9).chosen.solver
    'dual'
    """
    memory = MEMORY if memory is None else memory
    routes = _square_routes(workload)
    fitting = [route for route in routes if route.n_bytes <= memory]
    if workload.in_features:
        iterations = _iterations(workload)
        routes.append(iterations)
        square = fitting[0].seconds if fitting else math.inf
        if square > LONG_MATRIX and iterations.seconds < square / 3 and iterations.n_bytes <= memory:
            fitting = [iterations]
    chosen = fitting[0] if fitting else min(routes, key=lambda route: route.n_bytes)
    return RouteMap(workload, chosen, tuple(route for route in routes if route is not chosen), memory)


@dataclass(frozen=True)
class Plan:
    """What `plan` has chosen.

    Attributes
    ----------
    solver : {"primal", "dual", "pairs", "cg"}
        The route, as in the table; with a reduced set "primal" or "cg".
    found : RouteMap or None
        The route with its cost and the others, where the rules decided.
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
    if solver == "dual" and workload.pair_space and 0 < workload.n_pairs <= workload.n_rows:
        return Plan("pairs")  # the smaller of the two kernel matrices
    if solver != "auto":
        return Plan(_asked_for(workload, solver))
    found = choose_route(workload)
    may_decide = found.chosen.solver == "cg" or found.chosen.seconds > LONG_MATRIX
    if spread is not None and workload.in_features and may_decide:
        found = choose_route(replace(workload, spread=spread()))
    _refuse_if_hopeless(found)
    return Plan(found.chosen.solver, found)


@dataclass(frozen=True)
class Removed:
    """A set of rows that is held out.

    Attributes
    ----------
    n_rows : int
        h, the rows that leave.
    n_columns : int
        Columns of the change of L.
    operations : float
        Multiplications that it takes to find them.
    """

    n_rows: int
    n_columns: int
    operations: float = 0.0


def refitting_is_cheaper(
    workload: Workload, solver: str, sets: Sequence[Removed], n_outputs: int = 1, *, factorised: bool = False
) -> bool:
    """Rule 7: whether training on the other rows, set by set, costs less than holding the sets out by algebra.

    Parameters
    ----------
    workload : Workload
        Its ``n_folds`` says how many sets there are; ``sets`` may be a sample of them.
    solver : {"primal", "dual"}
        The route of `plan`.
    n_outputs : int
        v, learned together.
    factorised : bool
        Whether the factorisation that all sets share is there already.

    Examples
    --------
    >>> rows = Workload("folds", 600, None, linear=False, n_folds=2)
    >>> refitting_is_cheaper(rows, "dual", [Removed(300, 300)])
    True
    >>> refitting_is_cheaper(replace(rows, n_alphas=15, n_folds=10), "dual", [Removed(60, 60)])
    False
    """
    m, a, v = workload.n_rows, workload.n_alphas, n_outputs
    one_alpha = a == 1 and not factorised
    width = m if solver == "dual" else workload.n_basis or workload.n_features or 0
    refits = algebra = 0.0
    for one in sets:
        c = one.n_columns
        refits += _operations_of_refit(workload, solver, width, m - one.n_rows, v)
        if solver == "dual":
            small = c**3 + c**2 * v if one_alpha and workload.closed_half else m * c * (c + 20 + v) + c**3
            algebra += a * small
        else:
            apart = a * (2.0 * width * c**2 + 0.7 * c**3)
            algebra += min(apart, width**2 * c + 9.0 * width**3) + a * width * c * v
        algebra += one.operations + a * 1e6
    scale = workload.n_folds / len(sets)
    if solver == "dual":
        refits = _kernel(workload) + scale * refits
        shared = _kernel(workload) + (m**3 if one_alpha else _spectrum(m)) + a * m**2 * v
        shared += 0.0 if workload.closed_half else 3.0 * m**3
    else:
        refits, shared = scale * refits, _gram(workload, width) + 2 * m * width**2 + _spectrum(width)
    return refits < scale * algebra + (0.0 if factorised else shared)


def one_inverse_is_cheaper(workload: Workload, solver: str, n_sets: int, n_left: int) -> bool:
    """Whether sets of ``n_left`` rows, which all leave alike, are held out from one m × m inverse for each alpha.

    Examples
    --------
    >>> rows = Workload("pairs", 200, None, linear=False)
    >>> one_inverse_is_cheaper(rows, "dual", 2, 2), one_inverse_is_cheaper(rows, "dual", 1000, 2)
    (False, True)
    """
    m, a = workload.n_rows, workload.n_alphas
    width = m if solver == "dual" else workload.n_features or 0
    small = 1e4 + (2.0 * n_left) ** 3
    refit = _operations_of_refit(workload, solver, width, m - n_left, 1)
    return _kernel(workload) + a * (5.0 * m**3 + _TRAINING + n_sets * small) < n_sets * refit


def _operations_of_refit(workload: Workload, solver: str, width: int, rest: int, n_outputs: int) -> float:
    """Operations of training on ``rest`` rows at every alpha."""
    m, a, v = workload.n_rows, workload.n_alphas, n_outputs
    operations = _TRAINING + a * _TRAINING / 3
    if solver == "dual":
        once = 0.0 if workload.closed_half else 2.5 * rest**3
        return operations + once + a * (rest**3 / 3 + rest**2 * (2 * v + 10))
    operations += _gram(workload, width) * rest / m + a * (width**3 / 3 + 2 * width**2 * v)
    return operations + (3.0 * m * width**2 if workload.n_basis else 0.0)


def _gram(workload: Workload, width: int) -> float:
    """Operations of Φᵀ L Φ."""
    m, stored = workload.n_rows, workload.n_stored
    dense = stored is None or workload.n_basis is not None
    return float(m * width**2 if dense else _SPARSE * stored**2 / max(1, m))  # type: ignore[operator]


def square_form(workload: Workload, solver: str = "auto") -> str:
    """Which of the square matrices is taken where there is nothing else to choose: "primal" or "dual"."""
    reduced = workload.n_basis is not None
    check_solver_options(solver, linear=workload.linear, reduced=reduced)
    return "primal" if reduced else _asked_for(workload, solver)


def _asked_for(workload: Workload, solver: str) -> str:
    return solver if workload.linear and solver != "auto" else workload.smaller_square


def _must_iterate(workload: Workload, solver: str) -> bool:
    """With a reduced set: K_MR fits, or its Gram matrix is summed in blocks, or the problem is solved by iterations."""
    assert workload.n_basis is not None
    in_blocks = workload.closed_half and workload.n_basis <= BASIS_LIMIT
    return solver == "cg" or (solver == "auto" and not workload.block_fits and not in_blocks)


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


def explain(
    X,
    *,
    purpose=None,
    kernel="linear",
    n_alphas=15,
    n_folds=5,
    n_queries=None,
    n_pairs=None,
    memory=None,
) -> Explanation:
    """Print which route would be taken for which purpose, with a rough time and the memory that it needs.

    Parameters
    ----------
    X : array, sparse matrix, or (m, n)
        The rows, or their shape if they are dense.
    purpose : str, optional
        One of "train", "path", "folds", "queries", "pairs", "preferences"; all of them by default ("queries" with
        `n_queries`, "preferences" with `n_pairs`).
    kernel : str, default="linear"
    n_alphas : int, default=15
    n_folds : int, default=5
    n_queries, n_pairs : int, optional
    memory : float, optional
        Bytes that a route may take; by default 8 GB.

    Returns
    -------
    Explanation
        Prints itself; ``[purpose]`` is the map of one purpose, with ``chosen`` and ``others``.

    Examples
    --------
    >>> from preflearn.solvers import explain
    >>> explain((3000, 50), purpose="train")["train"].chosen.solver
    'primal'
    >>> explain((3000, 50), kernel="rbf", n_queries=100)["queries"].chosen.solver
    'dual'
    """
    wanted = [purpose] if purpose is not None else list(PURPOSES)
    for name in wanted:
        if name not in PURPOSES:
            raise ValueError(f"purpose must be one of {', '.join(map(repr, PURPOSES))}: found {purpose!r}.")
    needed = {"queries": ("n_queries", n_queries), "preferences": ("n_pairs", n_pairs)}
    maps = {}
    for name in wanted:
        argument, count = needed.get(name, ("", 1))
        if count is None:
            if purpose is not None:
                raise ValueError(f"purpose={name!r} needs {argument}: pass {argument}=...")
            continue
        sizes: dict[str, Any] = {
            "train": {},
            "path": {"n_alphas": n_alphas},
            "folds": {"n_alphas": n_alphas, "n_folds": n_folds},
            "queries": {"n_alphas": n_alphas, "n_folds": n_queries},
            "pairs": {"n_alphas": n_alphas},
            "preferences": {
                "n_alphas": n_alphas,
                "n_pairs": n_pairs,
                "n_folds": n_pairs,
                "closed_half": False,
            },
        }[name]
        linear = kernel == "linear"
        if isinstance(X, tuple):
            workload = Workload(name, int(X[0]), int(X[1]), linear, **sizes)
        else:
            workload = Workload.of(X, name, linear=linear, **sizes)
        maps[name] = choose_route(workload, memory=memory)
    return Explanation(maps)


def in_words(seconds: float) -> str:
    """A time in ordinary words.

    Examples
    --------
    >>> in_words(0.2), in_words(75.0), in_words(5 * 3600.0)
    ('under a second', 'about 75 s', 'about 5 hours')
    """
    if seconds < 1:
        return "under a second"
    if seconds < 120:
        return f"about {seconds:.0f} s"
    return f"about {seconds / 60:.0f} minutes" if seconds < 7200 else f"about {seconds / 3600:.0f} hours"


def warn_if_long(found: RouteMap) -> None:
    """Warn, before it starts, that a route is expected to take more than a minute, and say what would take less.

    Parameters
    ----------
    found : RouteMap
    """
    if found.chosen.seconds <= LONG:
        return
    advice = "; ".join(f"{name} {in_words(seconds)}" for name, seconds in alternatives(found))
    warnings.warn(
        f"{found.workload} is expected to take {in_words(found.chosen.seconds)} "
        f"({found.chosen.solver}, {found.chosen.matrix})." + (f" Less: {advice}." if advice else ""),
        UserWarning,
        stacklevel=callers_level(),
    )


def callers_level() -> int:
    """The ``stacklevel`` with which the calling function warns at the line outside this package."""
    here = inspect.currentframe()
    level, frame = 1, None if here is None else here.f_back
    package = __name__.partition(".")[0]
    while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] == package:
        level, frame = level + 1, frame.f_back
    return level


def alternatives(found: RouteMap) -> list[tuple[str, float]]:
    """What a caller may ask for instead, with its expected seconds; only what is faster."""
    workload = found.workload
    options: list[tuple[str, float]] = []
    if workload.n_sets > 5:
        purpose = "preferences" if workload.purpose == "preferences" else "folds"
        fewer = replace(workload, purpose=purpose, n_folds=5)
        options.append(("cv=5", choose_route(fewer, memory=found.memory).chosen.seconds))
    r = 1000
    if workload.n_features is not None and workload.n_rows > 2 * r:
        seconds = (_spectrum(r) + 3 * workload.n_rows * r**2 + workload.reading * r) / RATE
        options.append((f"n_basis={r}", seconds))
    if found.chosen.solver == "cg":
        looser = replace(workload, tol=100 * _tolerance(workload))
        options.append((f"tol={looser.tol:.0e}", _iterations(looser).seconds))
    return [(name, seconds) for name, seconds in options if seconds < 0.7 * found.chosen.seconds]


def _refuse_if_hopeless(found: RouteMap) -> None:
    """Rule 6, with what to ask for instead."""
    if found.chosen.solver != "cg" or found.chosen.seconds <= REFUSED or found.workload.n_sets <= FEW_SETS:
        return
    advice = [f"{name} ({in_words(seconds)})" for name, seconds in alternatives(found)]
    squares = [f"{other.matrix} needs {other.n_bytes / 1e9:.0f} GB" for other in found.others if other.exact]
    raise ValueError(
        f"{found.workload} would have to be refitted by iterations, "
        f"{in_words(found.chosen.seconds)}: exact algebra needs a square matrix, and {', '.join(squares)}. "
        f"Use {' or '.join(advice) or 'cv=5'}; solver='cg' iterates all the same."
    )


# What each route costs.


def _square_routes(workload: Workload) -> list[Route]:
    """The exact routes, the smallest matrix first."""
    m, n, n_pairs = workload.n_rows, workload.n_features, workload.n_pairs
    smaller = _primal(workload) if workload.smaller_square == "primal" else _dual(workload)
    if not n_pairs:
        return [smaller]
    held_out = workload.purpose == "preferences"
    sided = (
        [(m, _dual(workload)), (n, _primal(workload))]
        if workload.in_features and held_out
        else [(m, smaller)]
    )
    if workload.pair_space and (held_out or smaller.solver == "dual"):
        sided.insert(0, (n_pairs, _pairs(workload)))
    return [route for _, route in sorted(sided, key=lambda one: one[0])]  # type: ignore[arg-type, return-value]


def _dual(workload: Workload) -> Route:
    m = workload.n_rows
    several = workload.n_alphas > 1 or workload.purpose == "path"
    if not workload.closed_half:  # K = F Fᵀ, then Fᵀ L F and its factorisation
        operations, n_matrices = 2 * m**3 + _factorisation(workload, m, several=True), 3.0
    else:
        operations = _factorisation(workload, m, several=several)
        n_matrices = 1.25 if workload.purpose == "train" else 2.5
        n_matrices = 3.25 if workload.purpose == "pairs" else n_matrices
    operations += _kernel(workload) + _hold_outs(workload, m)
    return Route("dual", f"kernel matrix {m} × {m}", operations / RATE, n_matrices * 8.0 * m**2)


def _pairs(workload: Workload) -> Route:
    n_pairs, m = workload.n_pairs, workload.n_rows
    beside = 0.0 if workload.n_stored is not None else 8.0 * n_pairs * (workload.n_features or 0)
    if not workload.in_features:
        beside = 8.0 * m * (m + n_pairs)
    operations = _kernel(workload) * max(1.0, (n_pairs / max(1, m)) ** 2)
    operations += _factorisation(workload, n_pairs, several=workload.n_alphas > 1) + _hold_outs(
        workload, n_pairs
    )
    matrix = f"kernel of differences {n_pairs} × {n_pairs}"
    return Route("pairs", matrix, operations / RATE, 2 * 8.0 * n_pairs**2 + beside)


def _primal(workload: Workload) -> Route:
    m, n = workload.n_rows, workload.n_features
    assert n is not None
    operations = m * n**2 if workload.n_stored is None else _SPARSE * workload.n_stored**2 / max(1, m)
    n_bytes = 2 * 8.0 * n**2
    if workload.purpose != "train":
        n_bytes += 8.0 * n**2
    if workload.n_sets:
        operations += 2 * m * n**2 if workload.n_stored is None else workload.reading * n
        n_bytes += 2 * 8.0 * m * n
    operations += _factorisation(workload, n, several=True) + _hold_outs(workload, n)
    return Route("primal", f"features {n} × {n}", operations / RATE, n_bytes)


def _iterations(workload: Workload) -> Route:
    m, n = workload.n_rows, workload.n_features
    assert n is not None
    passes = expected_iterations(workload.spread, _tolerance(workload), min(m, n))
    one = 2 * workload.reading + 50 * (m + n)
    if not workload.n_sets:
        seconds = passes * one / RATE
        return Route("cg", f"about {passes} iterations", seconds, 8 * 8.0 * (m + n), exact=False)
    # The alphas share the products, and processors the folds.
    seconds = workload.n_sets * passes * one / (2 * RATE)
    n_bytes = 12.0 * workload.stored + 8.0 * (2 * workload.n_alphas + 4) * m + 8 * 8.0 * n
    return Route("cg", f"about {passes} iterations for a fold", seconds, n_bytes, exact=False)


def expected_iterations(spread: float, tol: float, size: int) -> int:
    """Iterations of conjugate gradients for a condition number and a relative error; O(√spread), at most 3 size."""
    if not spread < math.inf:
        return 3 * size
    bound = 0.5 * math.sqrt(max(spread, 1.0)) * math.log(2.0 / tol)
    return int(min(max(bound, 10.0), 3.0 * size))


def _tolerance(workload: Workload) -> float:
    if workload.tol is not None:
        return workload.tol
    return HELD_OUT_TOLERANCE if workload.n_sets else TRAINING_TOLERANCE


def _kernel(workload: Workload) -> float:
    """Operations of a kernel matrix."""
    m, n = workload.n_rows, workload.n_features
    if n is None:
        return 3e4 * m**2  # a function of two objects
    dense = workload.n_stored is None
    return 30 * m**2 + (m**2 * n if dense else _SPARSE * workload.n_stored**2 / max(1, n))  # type: ignore[operator]


def _factorisation(workload: Workload, size: int, *, several: bool) -> float:
    """Cholesky for a training; an inverse for a hold-out at one alpha; a spectrum for several."""
    if workload.purpose == "train":
        return size**3 / 3
    return _spectrum(size) if several else size**3


def _spectrum(size: int) -> float:
    """Half of the work is bound by memory."""
    return 4.0 * size**3


def _hold_outs(workload: Workload, width: int) -> float:
    """All folds at all alphas: their columns of a resolvent of this width, and their small systems."""
    if not workload.n_sets:
        return 0.0
    if workload.purpose == "pairs":
        return workload.n_alphas * workload.n_rows**2 * width
    whole = workload.n_pairs or workload.n_rows
    h = min(max(1.0, whole / workload.n_folds), float(width))
    return workload.n_alphas * workload.n_folds * (1e6 + width * h * (2 * h + 20) if h > 1 else 20.0 * width)
