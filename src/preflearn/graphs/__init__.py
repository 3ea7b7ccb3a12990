"""Labelled graphs and features of them that every learner can use."""

from .all_paths import AllPathsFeatures
from .labeled_graph import LabeledGraph
from .products import gram
from .weisfeiler_lehman import WeisfeilerLehmanFeatures

__all__ = ["AllPathsFeatures", "LabeledGraph", "WeisfeilerLehmanFeatures", "gram"]
