r"""Which route is taken for which purpose: one table, one cost model.

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

The same sizes take the same route on every machine: of the routes that fit in `MEMORY`, the one that is expected to be
fastest on `PROCESSORS`. Seconds are estimated from operations and passes over the data with the rates of `Rates`, which
``benchmarks/routes.py`` measures. Iterations are taken only
where a square matrix takes noticeable time and they are expected to be `HANDICAP` times as fast: how many are needed
depends on the spectrum, and a square matrix is exact at any alpha. With n_basis, "primal" sums the r × r matrix in one
pass over the rows, m r² operations, and "cg", which takes a pass of O(m r) per iteration, is for r above 5,000 where
K_MR does not fit in memory (preferences and cost "relative" cannot be summed: for them "primal" stores K_MR, and "cg"
is taken where it does not fit).
"""

from __future__ import annotations

import inspect
import math
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import scipy.sparse as sp

from .representations.iterated import HELD_OUT_TOLERANCE, TRAINING_TOLERANCE

PURPOSES = ("train", "path", "folds", "queries", "pairs", "preferences")
# Iterations are taken where a square matrix is expected to take this many times as long.
HANDICAP = 3.0
# A square matrix that takes no longer than this, in seconds, is always preferred to iterations.
MOMENT = 1.0
# A route that is expected to take longer than this, in seconds, says so before it starts.
LONG = 60.0
# Iterations for single queries, rows or pairs that are expected to take longer than this, in seconds, are refused.
REFUSED = 3600.0
# Up to this many sets count as folds, which are never refused.
FEW_SETS = 20
# Condition number of the system at the smallest alpha where it is not known.
TYPICAL_SPREAD = 1e6
# The machine for which routes are chosen, so that the choice does not depend on what happens to be free: a laptop.
PROCESSORS = 4
MEMORY = 8e9


@dataclass(frozen=True)
class Rates:
    """What one processor does in a second; measured by ``python benchmarks/routes.py --part rates``."""

    # Operations of a matrix product (2 n³), a Cholesky factorisation (n³ / 3) and an inverse by it (n³).
    product: float = 3.5e10
    cholesky: float = 3.0e10
    inverse: float = 3.0e10
    # n³ of a reduction to tridiagonal form with its orthogonal matrix, and of an eigendecomposition. Half of each is
    # bound by memory.
    tridiagonal: float = 7.5e9
    eigen: float = 5.0e9
    # Stored values of a sparse matrix times one column, and products of two of them in it times its transpose.
    values: float = 3e8
    sparse_products: float = 2.5e8
    # Numbers of an array that are read, changed and written.
    numbers: float = 1e9
    # Seconds that a fold costs at one alpha regardless of its size.
    call: float = 5e-5


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
    row_products, column_products : float
        Products that a sparse X Xᵀ and Xᵀ X take; estimated from `n_stored` where they are 0.
    n_alphas, n_folds : int
    largest_fold : int
        Rows, or preferences, of the largest fold; 0 stands for the mean.
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
    row_products: float = 0.0
    column_products: float = 0.0
    n_alphas: int = 1
    n_folds: int = 1
    largest_fold: int = 0
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
        if sp.issparse(X):
            X = X.tocsr()
            by_column = np.bincount(X.indices, minlength=X.shape[1]).astype(float)
            by_row = np.diff(X.indptr).astype(float)
            sizes |= {
                "n_stored": int(X.nnz),
                "row_products": float(by_column @ by_column),
                "column_products": float(by_row @ by_row),
            }
        n_rows = len(X) if shape is None else int(shape[0])
        return cls(purpose, n_rows, n_features, linear, **sizes)

    @property
    def holds_out(self) -> bool:
        return self.purpose in ("folds", "queries", "pairs", "preferences")

    @property
    def smaller_square(self) -> str:
        """The route of the smaller of the two square matrices: "primal" is n × n, "dual" m × m."""
        features = self.linear and self.n_features is not None and self.n_features <= self.n_rows
        return "primal" if features else "dual"

    @property
    def fold_rows(self) -> float:
        """Rows, or preferences, of a typical fold."""
        whole = self.n_pairs if self.purpose == "preferences" else self.n_rows
        return max(1.0, whole / max(1, self.n_folds))

    @property
    def stored(self) -> float:
        """Numbers that one pass over X reads."""
        assert self.n_features is not None
        return float(self.n_rows * self.n_features if self.n_stored is None else self.n_stored)


@dataclass(frozen=True)
class Route:
    """One way to do what is asked for.

    Attributes
    ----------
    solver : {"dual", "primal", "pairs", "cg"}
    matrix : str
        The square matrix that is factorised, or what is iterated.
    seconds : float
        Expected.
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
        Fastest first.
    memory : float
        Bytes that a route may take.
    """

    workload: Workload
    chosen: Route
    others: tuple[Route, ...] = ()
    memory: float = MEMORY

    def __str__(self) -> str:
        lines = [f"{describe(self.workload)}:"]
        for mark, route in [("->", self.chosen), *(("  ", other) for other in self.others)]:
            fits = "" if _fits(route, self.memory) else ", does not fit in memory"
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


def choose_route(workload: Workload, *, memory: float | None = None, rates: Rates | None = None) -> RouteMap:
    """The route that is expected to be fastest among those that fit in memory.

    Parameters
    ----------
    workload : Workload
        Without a reduced set.
    memory : float, optional
        Bytes that a route may take; by default `MEMORY`.
    rates : Rates, optional

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
    routes = _routes(workload, rates or Rates())
    fitting = [route for route in routes if _fits(route, memory)]
    if not fitting:
        chosen = min(routes, key=lambda route: route.n_bytes)
    else:
        chosen = min(fitting, key=_preference)
    others = sorted((route for route in routes if route is not chosen), key=lambda route: route.seconds)
    return RouteMap(workload, chosen, tuple(others), memory)


def _preference(route: Route) -> float:
    """Seconds, with a handicap for iterations; a square matrix that takes hardly any time is preferred to them."""
    return route.seconds if route.exact else max(HANDICAP * route.seconds, MOMENT)


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
    """Print which route would be taken for which purpose, and its expected time.

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


def describe(workload: Workload) -> str:
    """What is asked for, in words."""
    alphas = f" × {workload.n_alphas} alphas" if workload.n_alphas > 1 else ""
    what = {
        "train": "training",
        "path": "path",
        "folds": f"{workload.n_folds} folds",
        "queries": f"{workload.n_folds} sets of rows held out one by one",
        "pairs": "every pair of rows held out",
        "preferences": f"{workload.n_pairs} preferences held out in {workload.n_folds} sets",
    }[workload.purpose]
    kind = "dense" if workload.n_stored is None else f"sparse, {workload.n_stored} values"
    columns = "" if workload.n_features is None else f" × {workload.n_features}"
    return f"{what}{alphas}, {workload.n_rows}{columns} ({kind})"


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
        f"{describe(found.workload)} is expected to take {in_words(found.chosen.seconds)} "
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
    workload, rates = found.workload, Rates()
    options: list[tuple[str, float]] = []
    if workload.purpose in ("queries", "preferences") or workload.n_folds > 5:
        fewer = replace(workload, purpose="folds", n_folds=5, largest_fold=0)
        if workload.purpose == "preferences":
            fewer = replace(workload, n_folds=5, largest_fold=0)
        options.append(("cv=5", choose_route(fewer, memory=found.memory).chosen.seconds))
    r = 1000
    if workload.n_features is not None and workload.n_rows > 2 * r:
        seconds = _eigen(r, rates) + 3 * workload.n_rows * r**2 / (rates.product * PROCESSORS)
        options.append((f"n_basis={r}", seconds + workload.stored * r / rates.values))
    if found.chosen.solver == "cg":
        looser = replace(workload, tol=100 * _tolerance(workload))
        options.append((f"tol={looser.tol:.0e}", _iterations_route(looser, rates).seconds))
    return [(name, seconds) for name, seconds in options if seconds < 0.7 * found.chosen.seconds]


def refuse_if_hopeless(found: RouteMap) -> None:
    """Refuse hours of iterations for single queries, rows or pairs.

    Raises
    ------
    ValueError
        With what to ask for instead.
    """
    if found.chosen.solver != "cg" or found.chosen.seconds <= REFUSED:
        return
    if found.workload.purpose != "pairs" and found.workload.n_folds <= FEW_SETS:
        return
    advice = [f"{name} ({in_words(seconds)})" for name, seconds in alternatives(found)]
    squares = [f"{other.matrix} needs {other.n_bytes / 1e9:.0f} GB" for other in found.others if other.exact]
    raise ValueError(
        f"{describe(found.workload)} would have to be refitted by iterations, "
        f"{in_words(found.chosen.seconds)}: exact algebra needs a square matrix, and {', '.join(squares)}. "
        f"Use {' or '.join(advice) or 'cv=5'}; solver='cg' iterates all the same."
    )


# The cost of each route.


def _routes(workload: Workload, rates: Rates) -> list[Route]:
    if workload.purpose == "preferences" or workload.n_pairs:
        routes = [_pair_route(workload, rates), _dual_route(workload, rates)]
        if not workload.pair_space:
            routes = routes[1:]
        elif workload.purpose == "train":  # the smaller of the two square kernel matrices
            routes = routes[:1] if workload.n_pairs <= workload.n_rows else routes[1:]
        if workload.linear and workload.n_features is not None:
            routes += [_primal_route(workload, rates), _iterations_route(workload, rates)]
        return routes
    if not workload.linear or workload.n_features is None:
        return [_dual_route(workload, rates)]
    square = _primal_route if workload.smaller_square == "primal" else _dual_route
    return [square(workload, rates), _iterations_route(workload, rates)]


def _fits(route: Route, memory: float) -> bool:
    return route.n_bytes <= memory


def _dual_route(workload: Workload, rates: Rates) -> Route:
    m = workload.n_rows
    seconds = _kernel_seconds(workload, rates)
    if not workload.closed_half:  # K = F Fᵀ, then Fᵀ L F and its factorisation
        seconds += _cholesky(m, rates)
        if workload.holds_out:
            seconds += _eigen(m, rates) + _fold_seconds(workload, m, rates)
        else:
            seconds += m**3 / (rates.product * PROCESSORS) + _cholesky(m, rates)
        return Route("dual", f"kernel matrix {m} × {m}", seconds, 3 * 8.0 * m**2)
    seconds += _square_seconds(workload, m, rates)
    n_matrices = 1.25 if workload.n_alphas > 1 or workload.purpose in ("train", "path") else 3.0
    if workload.purpose == "pairs":
        n_matrices = 3.25
    return Route("dual", f"kernel matrix {m} × {m}", seconds, n_matrices * 8.0 * m**2)


def _pair_route(workload: Workload, rates: Rates) -> Route:
    pairs, m = workload.n_pairs, workload.n_rows
    n_bytes = 2 * 8.0 * pairs**2
    if workload.linear and workload.n_features is not None:
        # A difference has the stored values of two rows.
        doubled = replace(
            workload,
            n_rows=pairs,
            n_stored=None if workload.n_stored is None else 2 * pairs * workload.n_stored // max(1, m),
            row_products=4 * (pairs / max(1, m)) ** 2 * workload.row_products,
        )
        seconds = _kernel_seconds(doubled, rates)
        n_bytes += 0 if workload.n_stored is not None else 8.0 * pairs * workload.n_features
    else:
        seconds = _kernel_seconds(workload, rates) + 3 * pairs * (pairs + m) / rates.numbers
        n_bytes += 8.0 * m * (m + pairs)
    seconds += _square_seconds(workload, pairs, rates)
    return Route("pairs", f"kernel of differences {pairs} × {pairs}", seconds, n_bytes)


def _primal_route(workload: Workload, rates: Rates) -> Route:
    m, n = workload.n_rows, workload.n_features
    assert n is not None
    if workload.n_stored is None:
        seconds = m * n**2 / (rates.product * PROCESSORS)
    else:
        seconds = _products(workload, workload.column_products, n) / rates.sparse_products
    matrix = f"features {n} × {n}"
    if workload.purpose == "train":
        return Route("primal", matrix, seconds + _cholesky(n, rates), 2 * 8.0 * n**2)
    seconds += _eigen(n, rates)
    if workload.purpose == "path":
        return Route("primal", matrix, seconds, 3 * 8.0 * n**2)
    rotation = (
        2 * m * n**2 / (rates.product * PROCESSORS)
        if workload.n_stored is None
        else workload.stored * n / rates.values
    )
    seconds += rotation + _fold_seconds(workload, n, rates)
    return Route("primal", matrix, seconds, 3 * 8.0 * n**2 + 2 * 8.0 * m * n)


def _iterations_route(workload: Workload, rates: Rates) -> Route:
    m, n = workload.n_rows, workload.n_features
    assert n is not None
    passes = expected_iterations(workload.spread, _tolerance(workload), min(m, n))
    speed = rates.values if workload.n_stored is not None else rates.product / 8
    one = rates.call + 2 * workload.stored / speed + 6 * (m + n) / rates.numbers
    if workload.purpose in ("train", "path"):
        return Route("cg", f"about {passes} iterations", one * passes, 8 * 8.0 * (m + n), exact=False)
    n_folds = _n_folds(workload)
    # The alphas share the products; larger ones converge after fewer iterations.
    along = 0.5 * workload.n_alphas * workload.fold_rows / rates.numbers
    seconds = n_folds * passes * (one + along) / PROCESSORS
    n_bytes = 12.0 * workload.stored + 8.0 * (2 * workload.n_alphas + 4) * m + 8 * 8.0 * n
    return Route("cg", f"about {passes} iterations for a fold", seconds, n_bytes, exact=False)


def expected_iterations(spread: float, tol: float, size: int) -> int:
    """Iterations of conjugate gradients for a condition number and a relative error; O(√spread), at most 3 size."""
    if not spread < math.inf:
        return 3 * size
    bound = 0.5 * math.sqrt(max(spread, 1.0)) * math.log(2.0 / tol)
    return int(min(max(bound, 10.0), 3.0 * size))


def _n_folds(workload: Workload) -> float:
    if workload.purpose == "pairs":
        return workload.n_rows * (workload.n_rows - 1) / 2
    return workload.n_folds


def _tolerance(workload: Workload) -> float:
    if workload.tol is not None:
        return workload.tol
    return HELD_OUT_TOLERANCE if workload.holds_out else TRAINING_TOLERANCE


def _kernel_seconds(workload: Workload, rates: Rates) -> float:
    m, n = workload.n_rows, workload.n_features
    if n is None:
        return 1e-6 * m**2  # a function of two objects
    if workload.n_stored is None:
        return m**2 * n / (rates.product * PROCESSORS) + m**2 / rates.numbers
    return _products(workload, workload.row_products, m) / rates.sparse_products + m**2 / rates.numbers


def _products(workload: Workload, known: float, side: int) -> float:
    """Products of stored values, assuming an even spread where nothing is known."""
    if known > 0:
        return known
    other = workload.n_features if side == workload.n_rows else workload.n_rows
    return workload.stored**2 / max(1, other or 1)


def _square_seconds(workload: Workload, size: int, rates: Rates) -> float:
    """What is done with a kernel matrix."""
    if workload.purpose == "train":
        return _cholesky(size, rates)
    if workload.n_alphas == 1 and workload.purpose != "path":
        return _inverse(size, rates) + _folds_of_inverse(workload, size, rates)
    seconds = _tridiagonal(size, rates)
    return seconds + (_fold_seconds(workload, size, rates) if workload.holds_out else 0.0)


def _folds_of_inverse(workload: Workload, size: int, rates: Rates) -> float:
    if workload.purpose == "pairs":
        return size**2 / (rates.numbers * PROCESSORS)
    h = workload.fold_rows
    if h == 1:  # all at once
        return workload.n_folds / rates.numbers
    return workload.n_folds * (rates.call + h**3 / (rates.product * PROCESSORS))


def _fold_seconds(workload: Workload, width: int, rates: Rates) -> float:
    """All folds at all alphas: their columns of a resolvent of this width, and their small systems."""
    product = rates.product * PROCESSORS
    if workload.purpose == "pairs":
        one = workload.n_rows**2 * (width / product + 1 / (rates.numbers * PROCESSORS))
        return workload.n_alphas * one
    h = min(max(workload.fold_rows, workload.largest_fold), float(width))
    if h == 1:
        return workload.n_alphas * workload.n_folds * width / (rates.numbers * PROCESSORS)
    one = rates.call + 2 * width * h / (rates.numbers * PROCESSORS) + (2 * width * h**2 + h**3) / product
    return workload.n_alphas * workload.n_folds * one


def _cholesky(size: float, rates: Rates) -> float:
    return size**3 / 3 / (rates.cholesky * PROCESSORS)


def _inverse(size: float, rates: Rates) -> float:
    return size**3 / (rates.inverse * PROCESSORS)


# Half of the work of these two is products that all processors share, the other half is bound by memory.


def _tridiagonal(size: float, rates: Rates) -> float:
    return size**3 / rates.tridiagonal * _half_shared()


def _eigen(size: float, rates: Rates) -> float:
    return size**3 / rates.eigen * _half_shared()


def _half_shared() -> float:
    return 0.5 + 0.5 / PROCESSORS
