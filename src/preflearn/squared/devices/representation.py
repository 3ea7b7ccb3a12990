"""f on an array of a device: by its columns, a reduced set, or the full kernel (see `squared.representations`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from ...comparisons import Comparisons
from ...numerics.namespace import Home, as_host
from ..base import Asked, Inputs, Representation
from ..holdout.base import HoldOut
from ..holdout.pair import PairSystem
from ..problem import SquaredLossFit
from ..representations import Linear
from .holdout import DualDeviceHoldOut, FeatureDeviceHoldOut
from .kernels import refuse_unless_served
from .squared_loss import fit_features, fit_full_kernel, fit_reduced


class DeviceRows(Representation):
    """Parameters as in `Representation`; what is not supported on devices is refused before any work.

    Parameters
    ----------
    solver : str
        The solver that was asked for.
    in_features : bool
        Whether the columns of X are used, and not the kernel of its rows.
    """

    needs = "a kernel that devices evaluate, comparisons with a symmetric half in closed form"

    def __init__(
        self, inputs: Inputs, tasks: Any, stages: Any, *, solver: str, in_features: bool, **options: Any
    ):
        refuse_unless_served(inputs.kernel, solver, tasks)
        super().__init__(inputs, tasks, stages, **options)
        self.home, self.in_features = Home.of(inputs.X), in_features

    def solve(self, alpha: float, *, with_mean: bool = True) -> SquaredLossFit:
        """The coefficients that come back are arrays of the device."""
        X, kernel, basis = self.inputs.X, self.inputs.kernel, self.inputs.feature_map
        options: dict[str, Any] = {"with_mean": with_mean, "stages": self.stages, "home": self.home}
        if basis is not None:
            return fit_reduced(X, basis, self.tasks, alpha, **options)
        if self.in_features:
            return fit_features(X, self.tasks, alpha, **options)
        return fit_full_kernel(X, kernel, self.tasks, alpha, tol=self.tol, max_iter=self.max_iter, **options)

    def hold_out(self, task: Comparisons, asked: Asked) -> HoldOut:
        X, kernel, basis = self.inputs.X, self.inputs.kernel, self.inputs.feature_map
        if basis is not None or self.in_features:
            return FeatureDeviceHoldOut(X, kernel, task, basis, asked.intercept, self.home)
        return DualDeviceHoldOut(X, kernel, task, asked.intercept, asked.many_alphas, self.home)

    def pair_systems(
        self, task: Comparisons, alphas: Sequence[float], asked: Asked, routine: Callable[[bool], Any]
    ) -> Iterator[PairSystem | None]:
        """The factorisation on the device; the pairs, small next to it, on the host."""
        X, kernel = self.inputs.X, self.inputs.kernel
        if self.inputs.feature_map is not None:
            yield from super().pair_systems(task, alphas, asked, routine)
        elif self.in_features:
            host = Linear(Inputs(as_host(X), kernel), self.tasks, self.stages)
            yield from host.pair_systems(task, alphas, asked, lambda many_alphas: host.hold_out(task, asked))
        else:
            source = DualDeviceHoldOut(X, kernel, task, False, False, self.home)
            for alpha in alphas:
                yield source.pair_system(float(alpha))
