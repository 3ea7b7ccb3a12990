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

`squared.devices.representation` has the same for arrays on devices; `squared.choice.plan` decides which one is used.
"""

from .base import Asked, Inputs, Representation
from .iterated import Iterated
from .kernel import FullKernel
from .linear import Linear
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
]
