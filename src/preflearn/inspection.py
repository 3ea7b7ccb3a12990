"""What a fitted model bases its predictions on."""

from .report.inspection.explanation import Explanation, explain, explain_rows
from .report.inspection.influence import FeatureInfluence, feature_influence

__all__ = ["Explanation", "FeatureInfluence", "explain", "explain_rows", "feature_influence"]
