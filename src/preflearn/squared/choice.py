"""A squared-loss problem: validated items and comparisons, represented as `plan` says, then solved and held out.

The representation is chosen only here: by the table in `routes`, or by the solver that was asked for. A solver that
does not suit the data is refused before any work.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
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
from .routes import Plan, Workload, plan, warn_if_long


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
