"""Several kernels at once (text, graph, table ...): a sum whose weights are learned."""

from .ranking import MultipleKernelRankRLS
from .relation import MultipleKernelKroneckerRLS

__all__ = ["MultipleKernelKroneckerRLS", "MultipleKernelRankRLS"]
