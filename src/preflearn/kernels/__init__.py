"""Kernels, finite feature maps of kernels, and the choice of basis vectors."""

from .basis import choose_basis
from .functions import Kernel
from .maps import EmpiricalKernelMap, NystromMap

__all__ = ["EmpiricalKernelMap", "Kernel", "NystromMap", "choose_basis"]
