"""Kernels, finite feature maps of kernels, and the choice of basis vectors."""

# isort: off
from . import products, distances  # noqa: F401 (they register the named kernels)

# isort: on
from .functions import Kernel
from .maps import EmpiricalKernelMap, NystromMap, choose_basis
from .registry import KernelFunction, register_kernel

__all__ = ["EmpiricalKernelMap", "Kernel", "KernelFunction", "NystromMap", "choose_basis", "register_kernel"]
