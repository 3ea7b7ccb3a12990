"""What is settled before fitting: learner, scaling, kernel, width, reduced set, each with the reason for the choice."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse as sp
from sklearn.metrics import pairwise_distances
from sklearn.metrics.pairwise import euclidean_distances
from sklearn.preprocessing import StandardScaler

from ...errors import InputError, Remedy
from ...kernels import NystromMap
from ...report.contents import Choice
from ...tables.data import RankingData
from ...tables.encoding.query_relative import QueryRelative
from .options import KernelName, Learner, TrainingOptions

# Shuffling a feature costs a prediction of the sampled rows.
SHUFFLED_ROWS = 1000
# With more features the search for the best single one is left out.
BASELINE_FEATURES = 2000
# The full kernel of this many rows takes seconds; beyond, time grows with the cube and memory with the square.
FULL_KERNEL_ROWS = 2000
# 500 basis vectors order OHSUMED (16,140 rows) as well as 1,000 do, in a third of the time.
BASIS_SIZE = 500
# With this many features a linear function is flexible enough, and distances carry little information.
LINEAR_FEATURES = 1000
# Rows that the median distance is taken over.
_SAMPLE = 1000
# With fewer, too little is held out to tell candidates apart.
_LEAST_ROWS = 50
_LEAST_QUERIES = 5


_LEARNERS = {
    Learner.rankrls: ("RankRLS", "least squares over the pairs of a ranking: only differences are learned"),
    Learner.rls: ("RLS", "as asked: regression on the targets themselves"),
    Learner.ranksvm: ("RankSVM", "as asked: squared hinge over the pairs of a ranking"),
}
_TITLES = {"rbf": "RBF", "poly": "polynomial"}
# Kernels that take an argument; others would ignore it.
_KERNELS_WITH = {
    "gamma": ("rbf", "laplacian", "poly"),
    "degree": ("poly",),
    "n_basis": ("rbf", "laplacian", "poly"),
}


@dataclass(frozen=True, eq=False)
class Preparation:
    """The features that the learner gets, its kernel, and the choices for the report.

    Attributes
    ----------
    steps : list of (name, fitted transformer)
    scaled : array of shape (m, n)
        The scaled features.
    X : array of shape (m, n) or (m, r)
        The output of all steps: the same, or the features of the reduced set.
    kernel : dict
        Kernel arguments of the learner.
    title : str
        The kernel, for tables.
    is_linear : bool
        Whether the learned function is linear in the features of the file.
    choices : tuple of Choice
    """

    steps: list[tuple[str, Any]]
    scaled: Any
    X: Any
    kernel: dict[str, Any]
    title: str
    is_linear: bool
    choices: tuple[Choice, ...]


class Chosen(NamedTuple):
    """A learner fitted with the best alpha, and its held-out predictions.

    Attributes
    ----------
    learner : fitted estimator or None
    path : AlphaPath or None
    held_out : object
        What the problem needs for its estimate and its baselines.
    """

    learner: Any
    path: Any
    held_out: Any


def choose_learner(options: TrainingOptions, data: RankingData | None = None) -> tuple[TrainingOptions, str]:
    """Settle ``learner="auto"`` before anything is fitted.

    Parameters
    ----------
    options : TrainingOptions
    data : RankingData or None
        None for preferences, which only RankRLS learns from.

    Returns
    -------
    options : TrainingOptions
        With ``learner="auto"`` only where candidates of different kinds can be compared.
    reason : str
        Why there are no candidates; empty where that goes without saying.
    """
    if options.learner is Learner.rls and data is not None and data.events is not None:
        raise InputError(
            f"{data.source}: RLS is regression on the targets, and {{argument}} says only who outlived whom",
            Remedy("learner", "rankrls"),
            Remedy("learner", "ranksvm"),
            argument="event",
        )
    if options.learner is not Learner.auto:
        return options, ""
    single = replace(options, learner=Learner.rankrls, time_limit=None)
    if data is None or options.asks_for_a_kernel:
        if options.time_limit is not None:
            raise ValueError("a time limit would be ignored by a single learner: leave it out")
        return single, ""
    reason = _reason_against_candidates(data)
    return (options, "") if reason is None else (single, reason)


def _reason_against_candidates(data: RankingData) -> str | None:
    n_rows, n_features = data.X.shape
    if data.weight is not None:
        return "the candidates of auto do not take row weights"
    if n_rows < _LEAST_ROWS:
        return f"{n_rows} rows are too few to choose among candidates of different kinds"
    if data.qid is not None and data.n_queries < _LEAST_QUERIES:
        return f"{data.n_queries} queries are too few to choose among candidates of different kinds"
    if n_features > LINEAR_FEATURES:
        return f"with {n_features:,} features a linear function is flexible enough, and fast"
    if sp.issparse(data.X) and data.X.nnz < 0.1 * n_rows * n_features:
        return "the data are sparse: a linear function of many features is flexible enough, and fast"
    return None


def prepare(
    X: Any, options: TrainingOptions, *, rows_leave: bool, ready: Choice | None = None
) -> Preparation:
    """Scale the features, settle the kernel, and make the reduced set.

    None of it uses the targets, so that cross-validation after it is unbiased. Where rows are held out
    (``rows_leave``), the learner draws the reduced set itself, and held-out basis vectors leave the model too; where
    only preferences are held out all rows stay, and the features of the reduced set are made once. Features that are
    ``ready`` are not scaled; it says why.
    """
    name, why = _choose_kernel(X, options)
    steps, scaled, about_features = _scale(X, ready)
    kernel, text, why_width = _settle_kernel(name, scaled, options)
    choices = [
        Choice("learner", *_LEARNERS[options.learner]),
        about_features,
        Choice("kernel", text, "; ".join(filter(None, [why, why_width]))),
    ]
    mapped = scaled
    if name != "linear":
        size, why = _basis_size(X.shape[0], options.n_basis)
        value = "none, the full kernel" if size is None else f"{size:,} of {X.shape[0]:,} rows"
        choices.append(Choice("reduced set", value, why))
        if size is not None:
            kernel |= {"n_basis": size, "random_state": options.seed}
        if size is not None and not rows_leave:
            # A linear model of the features of the reduced set is the kernel model on it.
            features = NystromMap(**kernel)
            mapped, kernel = features.fit_transform(scaled), {"kernel": "linear"}
            steps = [*steps, ("basis", features)]
    title = f"{_TITLES.get(name, name)} kernel"
    return Preparation(steps, scaled, mapped, kernel, title, name == "linear", tuple(choices))


def relative_to_query(X: Any, qid: Any) -> tuple[QueryRelative, np.ndarray]:
    """The step that standardises each feature inside its query, and what it makes of the rows."""
    if sp.issparse(X):
        raise InputError(
            "standardising within queries needs dense features, and these are sparse: leave it out"
        )
    if qid is None:
        raise InputError(
            "standardising within queries needs queries, and the data have none",
            Remedy("query", purpose="and the column of the queries"),
        )
    step = QueryRelative(keep=False)
    return step, step.fit_transform(X, qid=qid)


def _choose_kernel(X: Any, options: TrainingOptions) -> tuple[str, str]:
    """The name of the kernel, and why."""
    asked = options.kernel
    if asked is not KernelName.auto:
        name, why = asked.value, "as asked"
    elif sp.issparse(X):
        name, why = (
            "linear",
            "the data are sparse: a linear function of many features is flexible enough, and fast",
        )
    elif X.shape[1] > LINEAR_FEATURES:
        name, why = (
            "linear",
            f"{X.shape[1]:,} features: a linear function of them is flexible enough, and fast",
        )
    else:
        name, why = "rbf", "also learns what is not linear"
    for argument, kernels in _KERNELS_WITH.items():
        if getattr(options, argument) is not None and name not in kernels:
            chosen = " (chosen for these data)" if asked is KernelName.auto else ""
            raise InputError(
                f"{{argument}} would be ignored by the {name} kernel{chosen}: leave it out",
                Remedy("kernel", kernels[0]),
                argument=argument,
            )
    return name, why


def _scale(X: Any, ready: Choice | None) -> tuple[list[tuple[str, Any]], Any, Choice]:
    """Steps that scale, their output, and what the report says about it."""
    if ready is not None:
        return [], X, ready
    if sp.issparse(X):
        scaler = StandardScaler(with_mean=False)
        why = "variance 1; centring would fill in the zeros of sparse data"
        choice = Choice("features", "scaled, not centred", why)
    else:
        scaler = StandardScaler()
        choice = Choice("features", "standardised", "mean 0 and variance 1, so that units do not matter")
    return [("scale", scaler)], scaler.fit_transform(X), choice


def _settle_kernel(name: str, X: Any, options: TrainingOptions) -> tuple[dict[str, Any], str, str]:
    """Arguments of the kernel, the kernel in words, and why its width is what it is."""
    title = _TITLES.get(name, name)
    if name in ("rbf", "laplacian"):
        distance = "squared distance" if name == "rbf" else "city-block distance"
        gamma = _median_width(X, name, options.seed) if options.gamma is None else options.gamma
        why = (
            f"gamma is 1 / the median {distance} between rows" if options.gamma is None else "gamma as asked"
        )
        return {"kernel": name, "gamma": gamma}, f"{title}, gamma {gamma:.4g}", why
    if name == "poly":
        degree = 3 if options.degree is None else options.degree
        return {"kernel": name, "gamma": options.gamma, "degree": degree}, f"{title} of degree {degree}", ""
    return {"kernel": name}, title, ""


def _median_width(X: Any, kernel: str, seed: int) -> float:
    """1 / the median distance between different rows of a sample."""
    rows = np.arange(X.shape[0])
    if rows.shape[0] > _SAMPLE:
        rows = np.sort(np.random.default_rng(seed).choice(rows.shape[0], _SAMPLE, replace=False))
    if kernel == "rbf" and sp.issparse(X):  # SciPy's squared distance takes dense rows only
        distances = euclidean_distances(X[rows], squared=True)
    else:
        distances = pairwise_distances(X[rows], metric="sqeuclidean" if kernel == "rbf" else "manhattan")
    distances = distances[np.triu_indices(rows.shape[0], 1)]
    distances = distances[distances > 1e-12]
    return float(1.0 / np.median(distances)) if distances.size else 1.0


def _basis_size(n_rows: int, asked: int | None) -> tuple[int | None, str]:
    if asked is not None:
        if asked > n_rows:
            raise InputError(
                f"{asked} basis vectors are more than the {n_rows} rows",
                Remedy("n_basis", n_rows, "or fewer"),
            )
        return asked, "as asked; drawn at random"
    if n_rows <= FULL_KERNEL_ROWS:
        return None, f"{n_rows:,} rows are few enough (up to {FULL_KERNEL_ROWS:,})"
    gigabytes = 8 * n_rows**2 / 1e9
    return (
        min(BASIS_SIZE, n_rows),
        f"the full kernel of {n_rows:,} rows would hold {gigabytes:.1f} GB and its time grows with the cube "
        f"of the rows; above {FULL_KERNEL_ROWS:,} rows the model is built on basis vectors drawn at random",
    )
