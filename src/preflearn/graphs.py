"""Labelled graphs and features of them that every learner can use."""

from .kernels.graphs.all_paths import AllPathsFeatures
from .kernels.graphs.labeled_graph import LabeledGraph, gram
from .kernels.graphs.weisfeiler_lehman import WeisfeilerLehmanFeatures

__all__ = ["AllPathsFeatures", "LabeledGraph", "WeisfeilerLehmanFeatures", "gram"]
