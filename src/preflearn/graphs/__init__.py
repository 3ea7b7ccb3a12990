"""Labelled graphs and features of them that every learner can use."""

from preflearn.graphs.all_paths import AllPathsFeatures
from preflearn.graphs.labeled_graph import LabeledGraph
from preflearn.graphs.products import gram
from preflearn.graphs.weisfeiler_lehman import WeisfeilerLehmanFeatures

__all__ = ["AllPathsFeatures", "LabeledGraph", "WeisfeilerLehmanFeatures", "gram"]
