"""f = Σ c_k (k(x_h, ·) - k(x_j, ·)) over l preferences: a regression with an l × l matrix."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from ...comparisons import PreferenceComparisons
from ...numerics.memory import require_memory
from ..holdout.dual import DualHoldOut
from ..holdout.pair import (
    PairsByRows,
    PreferenceHoldOut,
    kernel_of_differences,
    kernel_of_rows,
    linear_kernel_of_differences,
    regression_over_pairs,
    weighted_differences,
)
from ..problem import SquaredLossFit, dual_problem
from .base import Asked, Inputs, Representation
from .kernel import FullKernel
from .linear import Linear


class PairSpace(Representation):
    """Preferences whose weights suit one matrix. O(l³), regardless of the number of rows.

    Parameters
    ----------
    tasks : the preferences
    by_rows : Linear or FullKernel
        The same problem in the space of the rows, for an alpha at which the differences are not precise enough.
    """

    needs = "preferences whose weights are of one order of magnitude"

    def __init__(self, inputs: Inputs, tasks: Any, stages: Any, *, by_rows: Linear | FullKernel):
        super().__init__(inputs, tasks, stages)
        self.by_rows = by_rows

    def solve(self, alpha: float, *, with_mean: bool = True) -> SquaredLossFit:
        if not with_mean:  # which would need the kernel of all rows
            try:
                return self._solve_differences(alpha)
            except np.linalg.LinAlgError:
                self.stages.note(
                    "not precise enough at this alpha: using the rows instead of their differences"
                )
        return self.by_rows.solve(alpha, with_mean=with_mean)

    def hold_out_preferences(self, task: PreferenceComparisons, asked: Asked) -> PreferenceHoldOut:
        n_pairs = task.pairs.shape[0]
        require_memory(2 * 8 * n_pairs**2, f"held-out preferences of {n_pairs} pairs")
        if self.inputs.kernel.is_linear:
            K = linear_kernel_of_differences(self.inputs.X, task)
        else:
            K = kernel_of_differences(self.inputs.kernel_matrix(), task)
        regression = DualHoldOut(
            K,
            regression_over_pairs(task),
            many_alphas=asked.many_alphas,
            fallback=lambda _: PairsByRows(self.by_rows.by_features(task, asked)),
        )
        return PreferenceHoldOut(regression, task)

    def _solve_differences(self, alpha: float) -> SquaredLossFit:
        """A regression over the preferences.

        Raises
        ------
        numpy.linalg.LinAlgError
            If the differences would have fewer than six correct digits.
        """
        X, kernel, (task,) = self.inputs.X, self.inputs.kernel, self.tasks
        assert isinstance(task, PreferenceComparisons)
        n_pairs, m = task.pairs.shape[0], task.n_rows
        dtype = np.float32 if getattr(X, "dtype", None) == np.float32 else np.float64
        beside = m * (m + n_pairs)
        if kernel.is_linear:
            beside = 0 if sp.issparse(X) else n_pairs * X.shape[1]
        require_memory(8 * (n_pairs**2 + beside), f"training on {n_pairs} preferences")
        differences = None
        with self.stages(f"kernel of differences {n_pairs} × {n_pairs}"):
            if kernel.is_linear:
                differences = weighted_differences(X, task)
                K = kernel_of_rows(differences)
            else:
                K = kernel_of_differences(kernel.matrix(X).astype(np.float64, copy=False), task)
        with self.stages("factorisation and solution"):
            c = dual_problem(K, regression_over_pairs(task), alpha).solve(alpha, strict=True)
        if differences is not None:
            return self.linear_fit("dual", np.asarray(differences.T @ c, dtype=dtype), with_mean=False)
        coef = np.asarray(task.incidence() @ c, dtype=dtype)
        return SquaredLossFit("dual", None, coef, np.arange(m), None)
