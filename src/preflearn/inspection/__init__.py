"""What a fitted model bases its predictions on."""

from .explanation import Explanation, explain, explain_rows
from .influence import FeatureInfluence, feature_influence

__all__ = ["Explanation", "FeatureInfluence", "explain", "explain_rows", "feature_influence"]
