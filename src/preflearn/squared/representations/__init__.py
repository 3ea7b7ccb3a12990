"""Ways to represent f: each is built once from items and comparisons, then solved and held out at any alpha.

============  ==============================  ==============================  ===============================
class         f                               needs                           square matrix
============  ==============================  ==============================  ===============================
Linear        wᵀ x                            linear kernel                   n × n
FullKernel    Σ a_i k(x_i, ·)                 any kernel                      m × m
ReducedSet    Σ β_r k(x_r, ·)                 basis vectors                   r × r
PairSpace     Σ c_k (k(x_h, ·) - k(x_j, ·))   preferences                     l × l
Iterated      wᵀ x                            linear kernel                   none: conjugate gradients
============  ==============================  ==============================  ===============================

`squared.devices.representation` has the same for arrays on devices; `squared.routes.plan` decides which one is used.
"""

from collections.abc import Sequence
from typing import Any

from ...comparisons import Comparisons
from ...numerics.namespace import is_device_array
from ...progress import Stages
from .base import Asked, Inputs, Representation
from .kernel import FullKernel
from .linear import Iterated, Linear
from .pairs import PairSpace
from .reduced import IteratedReducedSet, ReducedSet

__all__ = [
    "Asked",
    "FullKernel",
    "Inputs",
    "Iterated",
    "IteratedReducedSet",
    "Linear",
    "PairSpace",
    "ReducedSet",
    "Representation",
    "represent",
]


def represent(
    inputs: Inputs,
    tasks: Sequence[Comparisons],
    route: str,
    *,
    stages: Stages,
    solver: str,
    **iterations: Any,
) -> Representation:
    """The representation of a route of `squared.routes`.

    Parameters
    ----------
    route : {"primal", "dual", "pairs", "cg"}
        What `plan` has chosen.
    solver : str
        What was asked for.
    **iterations
        ``tol`` and ``max_iter``.
    """
    if is_device_array(inputs.X):
        from ..devices.representation import DeviceRows

        return DeviceRows(inputs, tasks, stages, solver=solver, in_features=route == "primal", **iterations)
    if inputs.feature_map is not None:
        return (IteratedReducedSet if route == "cg" else ReducedSet)(inputs, tasks, stages, **iterations)
    if route == "cg":
        return Iterated(inputs, tasks, stages, **iterations)
    in_features = route == "primal"
    if route == "pairs":
        in_features = solver != "dual" and inputs.workload(tasks, "train").smaller_square == "primal"
    by_rows = (Linear if in_features else FullKernel)(inputs, tasks, stages)
    return PairSpace(inputs, tasks, stages, by_rows=by_rows) if route == "pairs" else by_rows
