"""What a fitted model looks at."""

from .explanation import Explanation, explain, explain_rows
from .influence import FeatureInfluence, feature_influence

__all__ = ["Explanation", "FeatureInfluence", "explain", "explain_rows", "feature_influence"]
