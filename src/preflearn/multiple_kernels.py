"""Several kernels at once (text, graph, table ...): a sum whose weights are learned."""

from .learners.multiple_kernels import MultipleKernelKroneckerRLS, MultipleKernelRankRLS

__all__ = ["MultipleKernelKroneckerRLS", "MultipleKernelRankRLS"]
