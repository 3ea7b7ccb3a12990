"""What `preflearn train` chooses where the user does not, and why: scaling, kernel, width, reduced set."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

# The full kernel of this many rows takes seconds; beyond, time grows with the cube and memory with the square.
FULL_KERNEL_ROWS = 2000
# 500 basis vectors order OHSUMED (16,140 rows) as well as 1,000 do, in a third of the time.
BASIS_SIZE = 500
# With this many features a linear function is rich enough, and distances tell little.
LINEAR_FEATURES = 1000
# Rows that the median distance is taken over.
_SAMPLE = 1000


class Learner(StrEnum):
    rankrls = "rankrls"
    rls = "rls"
    ranksvm = "ranksvm"


class KernelName(StrEnum):
    auto = "auto"
    rbf = "rbf"
    linear = "linear"
    laplacian = "laplacian"
    poly = "poly"


_LEARNERS = {
    Learner.rankrls: ("RankRLS", "least squares over the pairs of a ranking: only differences are learned"),
    Learner.rls: ("RLS", "as asked: regression on the targets themselves"),
    Learner.ranksvm: ("RankSVM", "as asked: squared hinge over the pairs of a ranking"),
}


@dataclass
class Recipe:
    """How to learn: the steps before the learner, its kernel, and what to say about them.

    Attributes
    ----------
    steps : list of (name, fitted transformer)
    scaled : array of shape (m, n)
        The scaled features.
    X : array of shape (m, n) or (m, r)
        The output of all steps: the same, or the features of the reduced set.
    kernel : dict
        Kernel arguments of the learner.
    is_linear : bool
        Whether the learned function is linear in the features of the file.
    choices : list of Choice
    """

    steps: list[tuple[str, Any]]
    scaled: Any
    X: Any
    kernel: dict[str, Any]
    is_linear: bool
    choices: list[Any] = field(default_factory=list)


def choose(
    X: Any,
    *,
    learner: Learner,
    kernel: KernelName,
    gamma: float | None,
    degree: int | None,
    n_basis: int | None,
    seed: int,
    within_queries: bool,
    rows_leave: bool = True,
) -> Recipe:
    """Scale the features, settle the kernel, and make the reduced set.

    None of it looks at the targets, so that cross-validation after it is fair to them. Where rows are held out
    (``rows_leave``), the learner draws the reduced set itself, and held-out basis vectors leave the model too; where
    only preferences are held out all rows stay, and the features of the reduced set are made once.
    """
    from preflearn.report import Choice

    steps: list[tuple[str, Any]] = []
    choices = [Choice("learner", *_LEARNERS[learner])]
    name, why_kernel = _kernel(X, kernel)
    _refuse_ignored(name, kernel, gamma, degree, n_basis)
    if within_queries:
        scaled = Choice(
            "features", "standardised within queries", "as asked: mean 0 and variance 1 in each query"
        )
        scaled_X = X
    else:
        steps, scaled_X, scaled = _scale(X)
    choices += [scaled]
    arguments: dict[str, Any] = {"kernel": name}
    text = {"rbf": "RBF", "poly": "polynomial"}.get(name, name)
    if name in ("rbf", "laplacian"):
        width = _median_width(scaled_X, name, seed) if gamma is None else gamma
        arguments["gamma"] = width
        text += f", gamma {width:.4g}"
        distance = "squared distance" if name == "rbf" else "city-block distance"
        why_kernel += (
            f"; gamma is 1 / the median {distance} between rows" if gamma is None else "; gamma as asked"
        )
    elif name == "poly":
        arguments.update({"gamma": gamma, "degree": 3 if degree is None else degree})
        text += f" of degree {arguments['degree']}"
    choices.append(Choice("kernel", text, why_kernel))
    if name == "linear":
        return Recipe(steps, scaled_X, scaled_X, arguments, True, choices)
    size, why = _basis_size(X.shape[0], n_basis)
    if size is None:
        choices.append(Choice("reduced set", "none, the full kernel", why))
        return Recipe(steps, scaled_X, scaled_X, arguments, False, choices)
    choices.append(Choice("reduced set", f"{size:,} of {X.shape[0]:,} rows", why))
    arguments |= {"n_basis": size, "random_state": seed}
    if rows_leave:
        return Recipe(steps, scaled_X, scaled_X, arguments, False, choices)
    from preflearn.kernels import NystromMap

    reduced = NystromMap(**arguments)
    mapped = reduced.fit_transform(scaled_X)
    # A linear model of these features is the kernel model on the reduced set.
    return Recipe([*steps, ("basis", reduced)], scaled_X, mapped, {"kernel": "linear"}, False, choices)


def standardise_within_queries(X: Any, qid: Any) -> Any:
    """Each feature with mean 0 and variance 1 inside each query; one that is constant there becomes 0."""
    import numpy as np
    from scipy import sparse as sp

    from preflearn.comparisons import encode_queries

    if sp.issparse(X):
        raise ValueError("--within-queries needs dense features, and these are sparse: leave it out.")
    if qid is None:
        raise ValueError("--within-queries needs queries, and there are none: pass --query and a column.")
    groups = encode_queries(qid, X.shape[0])
    mean = (
        np.stack([np.bincount(groups.codes, weights=column) for column in X.T], axis=1)
        / groups.counts[:, None]
    )
    centred = X - mean[groups.codes]
    squares = np.stack([np.bincount(groups.codes, weights=column**2) for column in centred.T], axis=1)
    deviation = np.sqrt(squares / groups.counts[:, None])
    flat = deviation <= 1e-12 * np.abs(mean)
    scale = np.where(flat, 0.0, 1.0 / np.where(flat, 1.0, deviation))
    return centred * scale[groups.codes]


def _kernel(X: Any, asked: KernelName) -> tuple[str, str]:
    from scipy import sparse as sp

    if asked is not KernelName.auto:
        return asked.value, "as asked"
    if sp.issparse(X):
        return "linear", "the data are sparse: a linear function of many features is rich enough, and fast"
    if X.shape[1] > LINEAR_FEATURES:
        return "linear", f"{X.shape[1]:,} features: a linear function of them is rich enough, and fast"
    return "rbf", "learns what is not linear as well"


def _refuse_ignored(
    name: str, asked: KernelName, gamma: float | None, degree: int | None, n_basis: int | None
) -> None:
    for option, value, kernels in (
        ("--gamma", gamma, ("rbf", "laplacian", "poly")),
        ("--degree", degree, ("poly",)),
        ("--n-basis", n_basis, ("rbf", "laplacian", "poly")),
    ):
        if value is not None and name not in kernels:
            chosen = " (chosen for these data)" if asked is KernelName.auto else ""
            raise ValueError(
                f"{option} would be ignored by the {name} kernel{chosen}: leave it out, or pass --kernel {kernels[0]}."
            )


def _scale(X: Any) -> tuple[list[tuple[str, Any]], Any, Any]:
    from scipy import sparse as sp
    from sklearn.preprocessing import StandardScaler

    from preflearn.report import Choice

    if sp.issparse(X):
        scaler = StandardScaler(with_mean=False)
        choice = Choice(
            "features", "scaled, not centred", "variance 1; centring would fill in the zeros of sparse data"
        )
    else:
        scaler = StandardScaler()
        choice = Choice("features", "standardised", "mean 0 and variance 1, so that units do not matter")
    return [("scale", scaler)], scaler.fit_transform(X), choice


def _median_width(X: Any, kernel: str, seed: int) -> float:
    """1 / the median distance between different rows of a sample."""
    import numpy as np
    from sklearn.metrics import pairwise_distances

    rows = np.arange(X.shape[0])
    if rows.shape[0] > _SAMPLE:
        rows = np.sort(np.random.default_rng(seed).choice(rows.shape[0], _SAMPLE, replace=False))
    metric = "sqeuclidean" if kernel == "rbf" else "manhattan"
    distances = pairwise_distances(X[rows], metric=metric)[np.triu_indices(rows.shape[0], 1)]
    distances = distances[distances > 1e-12]
    return float(1.0 / np.median(distances)) if distances.size else 1.0


def _basis_size(n_rows: int, asked: int | None) -> tuple[int | None, str]:
    if asked is not None:
        if asked > n_rows:
            raise ValueError(f"--n-basis {asked} is more than the {n_rows} rows: use at most {n_rows}.")
        return asked, "as asked; drawn at random"
    if n_rows <= FULL_KERNEL_ROWS:
        return None, f"{n_rows:,} rows are few enough (up to {FULL_KERNEL_ROWS:,})"
    gigabytes = 8 * n_rows**2 / 1e9
    return (
        min(BASIS_SIZE, n_rows),
        f"the full kernel of {n_rows:,} rows would hold {gigabytes:.1f} GB and its time grows with the cube of the "
        "rows; "
        f"over {FULL_KERNEL_ROWS:,} rows the model is built on basis vectors drawn at random",
    )
