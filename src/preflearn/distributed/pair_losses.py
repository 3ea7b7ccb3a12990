"""RankSVM: Newton's method of one machine on an objective whose rows stay on the workers.

In `losses.newton`, predictions Φ w and gradients ∇ℓ appear only in sums, in products with each other and
through Φ and Φᵀ. Here Φ w is represented by w and ∇ℓ by Φᵀ∇ℓ, n numbers each, so that ∇ℓᵀ Φ s = (Φᵀ∇ℓ)ᵀ s and nothing
of the length of the data leaves a worker. An evaluation sends w to the partitions and sums what comes back.

A partition keeps the sorted pairs of the last points that it evaluated. That is only a cache: every request names its
point by w, so that a worker that has just replaced a dead one gives the same answer.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from sklearn.base import clone

from ..comparisons import encode_queries
from ..comparisons.inputs import read_alpha
from ..errors import SplitQueryError
from ..kernels.maps import NystromMap
from ..learners.streaming.stream import basis_map
from ..losses.newton import MINIMISERS, Features, PairObjective, Preconditioner, RowSample
from ..losses.pairs import RoundedHinge, ScoredPairs, SquaredHinge
from ..squared.statistics import KeySet, label_keys
from .parts import Parts, choose_shared_basis, in_part, read_part, require_dask, tree_reduce

# Points whose sorted pairs a partition keeps: the line search evaluates one besides the present one.
_POINTS_KEPT = 2


@dataclass(frozen=True)
class At:
    """A point of the objective.

    Attributes
    ----------
    weights : ndarray of shape (n,)
    width : float or None
        Width over which the hinge is smoothed; None for the squared hinge.
    narrowed : float or None
        The smaller width of `NarrowedHinge`, where that is meant.
    """

    weights: np.ndarray
    width: float | None = None
    narrowed: float | None = None

    @property
    def key(self) -> tuple[bytes, float | None, float | None]:
        return self.weights.tobytes(), self.width, self.narrowed


class PartObjective:
    """The pairs of one partition, on its worker.

    Parameters
    ----------
    features : ndarray or CSR matrix of shape (m, n)
    scores : ndarray of shape (m,)
    codes : ndarray of shape (m,)
        Query of each row.
    weighting : str
    """

    def __init__(self, features: Any, scores: np.ndarray, codes: np.ndarray, weighting: str) -> None:
        self._arguments = (features, scores, codes, weighting)
        self.features = Features(features)
        # Partitions are the units of parallel work: one thread each.
        groups = encode_queries(codes, scores.shape[0])
        self.pairs = ScoredPairs(np.ascontiguousarray(scores), groups, weighting, n_threads=1)
        self._points: OrderedDict[Any, Any] = OrderedDict()
        self._sample: RowSample | None = None
        self._lock = threading.RLock()  # the pairs share one workspace

    def __reduce__(self) -> Any:
        return PartObjective, self._arguments

    def __sizeof__(self) -> int:
        # 150 bytes of workspace per row in addition to the features; Dask uses this to decide on moving objects.
        return int(self.features.size * 8 + self.features.n_rows * 200)

    def loss(self, at: At) -> Any:
        """The loss at a point, from the cache where possible."""
        if at.key not in self._points:
            if at.narrowed is not None:
                found: Any = self.loss(replace(at, narrowed=None)).narrowed(at.narrowed)
            else:
                p = self.features.forward(at.weights)
                found = (
                    SquaredHinge(self.pairs, p) if at.width is None else RoundedHinge(self.pairs, p, at.width)
                )
            self._points[at.key] = found
        self._points.move_to_end(at.key)
        while len(self._points) > _POINTS_KEPT:
            self._points.popitem(last=False)
        return self._points[at.key]

    def evaluate(self, at: At) -> np.ndarray:
        """Φᵀ∇ℓ, followed by the value, the plain hinge and the slopes where they exist."""
        with self._lock:
            loss = self.loss(at)
            numbers = [getattr(loss, name, 0.0) for name in ("value", "hinge", "slopes")]
            return np.concatenate([self.features.backward(loss.gradient), numbers])

    def product(self, at: At, v: np.ndarray) -> np.ndarray:
        """Φᵀ A Φ v."""
        with self._lock:
            return self.features.backward(self.loss(at).curvature(self.features.forward(v)))

    def covariance(self, at: At, share: float) -> np.ndarray:
        """This partition's part of the preconditioner, from a share of the rows."""
        with self._lock:
            if self._sample is None:
                size = max(1, int(np.ceil(share * self.features.n_rows)))
                self._sample = RowSample(self.features, self.pairs.groups, size)
            return self._sample.covariance(self.loss(at).degrees)

    def diagonal(self, at: At) -> np.ndarray:
        with self._lock:
            return self.features.squared_sums(self.loss(at).degrees)


class DistributedObjective(PairObjective):
    """The pairs of all partitions.

    Parameters
    ----------
    parts : list of Delayed PartObjective
        Kept in the memory of the workers.
    shape : tuple of int
        Rows and features altogether.
    size : int
        Stored entries of the features.
    split_every : int
    """

    def __init__(self, parts: list[Any], shape: tuple[int, int], size: int, split_every: int) -> None:
        self._parts = parts
        self.shape, self.size = shape, size
        self.n_features = shape[1]
        self._split_every = split_every

    def total(self, method: str, *arguments: Any) -> np.ndarray:
        """The sum of what a method of the partitions returns."""
        dask = require_dask()
        call, add = dask.delayed(_call), dask.delayed(_add)
        shared = dask.delayed(arguments, traverse=False)
        results = [call(part, method, shared) for part in self._parts]
        return dask.compute(tree_reduce(results, add, self._split_every))[0]

    def zeros(self) -> np.ndarray:
        return np.zeros(self.n_features)

    def forward(self, w: np.ndarray) -> np.ndarray:
        return w

    def backward(self, u: np.ndarray) -> np.ndarray:
        return u

    def squared_hinge(self, p: np.ndarray) -> DistributedLoss:
        return DistributedLoss(self, At(p))

    def rounded_hinge(self, p: np.ndarray, width: float) -> DistributedLoss:
        return DistributedLoss(self, At(p, width))

    def preconditioner(self, alpha: float) -> Preconditioner:
        return _DistributedPreconditioner(self, alpha)


class DistributedLoss:
    """The loss at one point: as `SquaredHinge` and `RoundedHinge`, with Φᵀ∇ℓ in place of ∇ℓ."""

    def __init__(self, objective: DistributedObjective, at: At) -> None:
        self._objective = objective
        self._at = at
        found = objective.total("evaluate", at)
        self.gradient = found[:-3]
        self.value, self.hinge, self.slopes = (float(number) for number in found[-3:])
        self.degrees: Any = at  # the preconditioner gets them from the partitions

    def curvature(self, v: np.ndarray) -> np.ndarray:
        return self._objective.total("product", self._at, v)

    def narrowed(self, width: float) -> DistributedLoss:
        return DistributedLoss(self._objective, replace(self._at, narrowed=width))


class _DistributedPreconditioner(Preconditioner):
    def __init__(self, objective: DistributedObjective, alpha: float) -> None:
        super().__init__(objective.shape, objective.size, alpha)
        self._objective = objective

    def covariance(self, degrees: At) -> np.ndarray:
        share = self._sample_size / max(1, self._objective.shape[0])
        return np.array(self._objective.total("covariance", degrees, share), order="F")

    def diagonal(self, degrees: At) -> np.ndarray:
        return self._objective.total("diagonal", degrees)


def _call(part: PartObjective | None, method: str, arguments: tuple[Any, ...]) -> Any:
    return None if part is None else getattr(part, method)(*arguments)


def _add(values: list[Any]) -> Any:
    known = [value for value in values if value is not None]
    return sum(known[1:], known[0].copy()) if known else None


# ---------------------------------------------------------------------- training


@dataclass(frozen=True)
class _Summary:
    """What must be known about the partitions before training."""

    queries: KeySet
    n_rows: int
    n_features: int
    size: int
    n_pairs: int


def fit_pair_losses(model: Any, parts: Parts, split_every: int) -> None:
    """Train a RankSVM."""
    alpha = read_alpha(model.alpha)
    model._read_options()
    kernel = model._read_kernel()
    kernel.refuse_without_width()
    if parts.qid is None:
        raise ValueError(
            "RankSVM on partitions needs qid: without it, rows of different partitions would have to be compared."
        )
    if not kernel.is_linear and not model._wants_reduced_set():
        raise ValueError(
            "training in parts needs a model of fixed width: the linear kernel, or n_basis=... (or "
            f"basis=...) for kernel={model.kernel!r}."
        )
    feature_map, width = None, None
    if model._wants_reduced_set():
        basis = choose_shared_basis(model, parts)
        feature_map, width = basis_map(model, kernel, basis), basis.items.shape[1]
    fits, n_pairs = [], 0
    for output in range(parts.n_outputs):
        objective, summary = _objective(model, parts, feature_map, output, split_every)
        n_pairs += summary.n_pairs
        name = f"{model.loss} over {summary.n_pairs} pairs in {len(parts)} partitions, alpha = {alpha:g}"
        with model._more_stages()(name) as stage:
            fits.append(
                MINIMISERS[model.loss](
                    objective, alpha, tol=model.tol, max_iter=model.max_iter, report=stage.iteration
                )
            )
    model.n_features_in_ = summary.n_features if width is None else width
    model._set_fits(fits, feature_map, alpha, parts.single)
    model.n_queries_, model.n_comparisons_ = len(summary.queries), n_pairs


def _objective(
    model: Any, parts: Parts, feature_map: NystromMap | None, output: int, split_every: int
) -> tuple[DistributedObjective, _Summary]:
    """The partitions in the memory of the workers, and their totals."""
    dask = require_dask()
    shared = dask.delayed((clone(model), feature_map), traverse=False)
    build, look, merge = dask.delayed(_build), dask.delayed(_summary), dask.delayed(_merge)
    rows = [build(number, shared, *triple, output) for number, triple in enumerate(parts.triples())]
    rows = list(dask.persist(*rows))
    summaries = [look(part) for part in rows]
    summary: _Summary = dask.compute(tree_reduce(summaries, merge, split_every))[0]
    if summary.n_pairs == 0:
        raise ValueError(
            "No two rows of the same query have different scores, so there is no pair to learn from "
            f"(n_samples={summary.n_rows}, {len(summary.queries)} queries): check y and qid."
        )
    objectives = list(dask.persist(*(dask.delayed(_part_of)(part) for part in rows)))
    shape = (summary.n_rows, summary.n_features)
    return DistributedObjective(objectives, shape, summary.size, split_every), summary


def _build(number: int, shared: tuple[Any, NystromMap | None], X: Any, y: Any, qid: Any, output: int) -> Any:
    """The objective of a partition and the keys of its queries; None for an empty one."""
    model, feature_map = shared
    rows = read_part(number, clone(model), X, y, qid)
    if rows is None:
        return None
    X, scores, labels = rows
    try:
        queries = encode_queries(labels, scores.shape[0])
    except ValueError as error:
        raise in_part(number, error) from error
    assert queries.labels is not None
    features = X if feature_map is None else feature_map.map_items(X, model._read_kernel())
    return PartObjective(features, scores[:, output], queries.codes, model.weighting), label_keys(
        queries.labels
    )


def _part_of(built: Any) -> PartObjective | None:
    return None if built is None else built[0]


def _summary(built: Any) -> _Summary:
    seen = KeySet()
    if built is None:
        return _Summary(seen, 0, 0, 0, 0)
    part, keys = built
    seen.add(keys)
    features = part.features
    return _Summary(seen, features.n_rows, features.n_features, features.size, part.pairs.n_pairs)


def _merge(parts: list[_Summary]) -> _Summary:
    seen = KeySet()
    for part in parts:
        again = seen.merge(part.queries)
        if again is not None:
            raise SplitQueryError(again)
    return _Summary(
        seen,
        sum(part.n_rows for part in parts),
        max(part.n_features for part in parts),
        sum(part.size for part in parts),
        sum(part.n_pairs for part in parts),
    )
