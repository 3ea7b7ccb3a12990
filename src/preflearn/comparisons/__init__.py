"""What is compared with what.

A squared loss over comparisons is fᵀ L f - 2 bᵀ f + const: L says what is compared, b which way and how far. Each
class of this package knows its L and b, and nothing about kernels or estimators.
"""

from .base import Comparisons, HalfRemoval, Removal
from .censored import CensoredComparisons
from .grouping import Groups, centred, encode_queries, offset_is_large, one_group
from .inputs import compare_scores
from .pointwise import PointwiseComparisons
from .preferences import PreferenceComparisons
from .queries import QueryComparisons
from .relative import RelativeComparisons
from .weighted import WeightedPairs, WeightedRows

__all__ = [
    "CensoredComparisons",
    "Comparisons",
    "Groups",
    "HalfRemoval",
    "PointwiseComparisons",
    "PreferenceComparisons",
    "QueryComparisons",
    "RelativeComparisons",
    "Removal",
    "WeightedPairs",
    "WeightedRows",
    "centred",
    "compare_scores",
    "encode_queries",
    "offset_is_large",
    "one_group",
]
