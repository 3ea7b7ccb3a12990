"""Several kernels at once (text, graph, table ...): a sum whose weights are learned."""

from .learners.multiple_kernels.ranking import MultipleKernelRankRLS
from .learners.multiple_kernels.relation import MultipleKernelKroneckerRLS

__all__ = ["MultipleKernelKroneckerRLS", "MultipleKernelRankRLS"]
