"""What a fitted model looks at."""

from .influence import FeatureInfluence, feature_influence

__all__ = ["FeatureInfluence", "feature_influence"]
