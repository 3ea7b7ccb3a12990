"""What every representation of f offers, and what it is built from."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp

from ..comparisons import Comparisons, PreferenceComparisons, centred, one_group
from ..kernels.functions import Kernel, n_items
from ..kernels.maps import NystromMap
from ..numerics.namespace import is_device_array
from . import routes
from .holdout.base import LOST_IN_ROUNDING, HoldOut
from .holdout.feature import FeatureHoldOut
from .holdout.pair import PreferenceHoldOut
from .problem import SquaredLossFit
from .routes import Workload

# Singular values with a smaller share of the largest lose half or more of their precision when they are squared.
_HIDDEN = 2.0**-12

# A routine that holds preferences out.
PreferenceRoutine = PreferenceHoldOut | FeatureHoldOut


@dataclass
class Inputs:
    """Validated items with their kernel.

    Attributes
    ----------
    X : array, CSR matrix, kernel matrix, list of objects, or array on a device
    kernel : Kernel
    feature_map : NystromMap or DeviceBasis, optional
        Fitted on X: the reduced set.
    """

    X: Any
    kernel: Kernel
    feature_map: Any = None

    @property
    def n_rows(self) -> int:
        return n_items(self.X)

    @property
    def is_dense_linear(self) -> bool:
        """Whether f is linear in the columns of a dense array."""
        return self.kernel.is_linear and self.feature_map is None and not sp.issparse(self.X)

    def double(self) -> Any:
        """X in double precision; X itself where it is already."""
        return self.X if self.X.dtype == np.float64 else self.X.astype(np.float64)

    def kernel_matrix(self) -> np.ndarray:
        """A fresh kernel matrix in double precision.

        From rows in double precision: rounded to single precision, a matrix of lower rank has negative eigenvalues.
        """
        if self.kernel.is_precomputed:
            return np.array(self.X, dtype=np.float64, order="C")
        X = self.double() if self.kernel.has_blocks else self.X
        return self.kernel.matrix(X).astype(np.float64, copy=False)

    @property
    def block_bytes(self) -> int:
        """Of K_MR, the kernel values between all rows and the basis vectors."""
        return self.n_rows * self.feature_map.rank_ * self.feature_map.factor_.C.itemsize

    def workload(self, tasks: Sequence[Comparisons], purpose: str, **sizes: Any) -> Workload:
        """What is asked for, and the shape of these data; ``sizes`` are attributes of `Workload`."""
        on_device = is_device_array(self.X)
        sizes |= {
            "closed_half": all(task.has_half for task in tasks),
            "linear": self.kernel.is_linear,
            "on_device": on_device,
        }
        if self.feature_map is not None:
            sizes["n_basis"] = self.feature_map.basis_indices_.shape[0]
            if not on_device:
                sizes |= {
                    "n_basis": self.feature_map.rank_,
                    "block_fits": self.block_bytes <= routes.MEMORY
                    or all(task.factors_in_blocks for task in tasks),
                }
        if self.kernel.is_precomputed:
            return Workload(purpose, self.n_rows, 0, **sizes)
        return Workload.of(self.X, purpose, **sizes)

    @cached_property
    def basis_is_refitted(self) -> bool:
        """Whether K_RR of the independent basis vectors is too close to singular to resolve what leaves with one."""
        if self.feature_map is None:
            return False
        if not isinstance(self.feature_map, NystromMap):  # on a device
            return not self.feature_map.well_conditioned
        factor = self.feature_map.factor_
        return bool(factor.condition_of_pivots() < LOST_IN_ROUNDING * np.finfo(factor.C.dtype).eps)

    @cached_property
    def has_hidden_directions(self) -> bool:
        """Whether dense features, each in its own unit, are so close to collinear that their squares hide it."""
        X = centred(self.double(), one_group(self.n_rows))[0]
        sizes = np.abs(X).max(axis=0, initial=0.0)
        sigma = np.linalg.svd(X[:, sizes > 0] / sizes[sizes > 0], compute_uv=False)
        shares = sigma / sigma.max(initial=np.finfo(float).tiny)
        return bool(((shares > 4 * np.finfo(float).eps) & (shares < _HIDDEN)).any())


@dataclass(frozen=True)
class Asked:
    """What is required of held-out predictions.

    Attributes
    ----------
    intercept : bool
        Whether an unregularised intercept is added.
    level : bool
        Whether the level that predictions of a fold share matters, and not only their differences.
    many_alphas : bool
        Whether one factorisation has to serve every alpha.
    least_alpha : callable
        The smallest alpha that will be asked for, for a warning.
    """

    intercept: bool = False
    level: bool = True
    many_alphas: bool = True
    least_alpha: Callable[[], float] = lambda: math.inf


class Representation(ABC):
    """One way to represent f, with the comparisons that it is learned from.

    Parameters
    ----------
    inputs : Inputs
    tasks : sequence of Comparisons
        One that all outputs share, or one per output where L depends on the scores.
    stages : Stages
        Reports the stages of a training.
    tol, max_iter : optional
        The relative error at which iterations stop, and their maximum number; for representations that iterate.

    Attributes
    ----------
    needs : str
        What the data must have.
    """

    needs: ClassVar[str]

    def __init__(
        self, inputs: Inputs, tasks: Sequence[Comparisons], stages: Any, tol: Any = None, max_iter: Any = None
    ):
        self.inputs, self.tasks, self.stages = inputs, tasks, stages
        self.tol, self.max_iter = tol, max_iter

    @abstractmethod
    def solve(self, alpha: Any, *, with_mean: bool = True) -> SquaredLossFit:
        """The coefficients of all outputs at one alpha, or of each at its own; the mean prediction if asked for."""

    def hold_out(self, task: Comparisons, asked: Asked) -> HoldOut | None:
        """The routine that holds rows out without refitting; None where only refitting is exact."""
        return None

    def hold_out_preferences(self, task: PreferenceComparisons, asked: Asked) -> PreferenceRoutine | None:
        """The routine that holds preferences out; None where the estimator has to be refitted."""
        routine = self.hold_out(task, asked)
        return routine if isinstance(routine, FeatureHoldOut) else None

    def pair_systems(
        self, task: Comparisons, alphas: Sequence[float], asked: Asked, routine: Callable[[bool], Any]
    ) -> Iterator[Any]:
        """The closed form of all held-out pairs of rows at each alpha; None where there is none.

        ``routine`` gives the routine that holds rows out, for one alpha or (True) for many; an existing one is reused.
        """
        yield from [None] * len(alphas)

    def each(
        self, solve: Callable[[Comparisons, list[float]], Sequence[np.ndarray]], alpha: Any
    ) -> np.ndarray:
        """The solutions of all tasks side by side; ``alpha`` is a number, or an array of one for each output.

        ``solve`` takes a task and several alphas to the solutions of all its outputs at each of them.
        """
        columns, done = [], 0
        for task in self.tasks:
            own = np.broadcast_to(alpha, sum(one.n_outputs for one in self.tasks))[
                done : done + task.n_outputs
            ]
            alphas, place = np.unique(own, return_inverse=True)
            found = solve(task, alphas.tolist())
            columns.append(found[0] if len(found) == 1 else np.stack(found)[place, :, np.arange(own.size)].T)
            done += task.n_outputs
        return np.concatenate(columns, axis=1)

    def linear_fit(
        self, solver: str, weights: np.ndarray, with_mean: bool, **iterations: Any
    ) -> SquaredLossFit:
        """Weights of the columns of X as the result of a training."""
        means = column_means(self.inputs.X) @ weights if with_mean else None
        return SquaredLossFit(solver, weights, None, None, means, **iterations)


def column_means(X: Any) -> np.ndarray:
    """In float64: a sum of many rows would lose the precision of float32."""
    return np.asarray(X.mean(axis=0, dtype=np.float64)).ravel()
