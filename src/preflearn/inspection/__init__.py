"""What a fitted model looks at."""

from .explanation import Explanation, explain
from .influence import FeatureInfluence, feature_influence

__all__ = ["Explanation", "FeatureInfluence", "explain", "feature_influence"]
