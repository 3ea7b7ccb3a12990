"""Turning knowledge into order preferences.

A `Preferences` holds statements f(x_i) - f(x_j) >= margin about pairs of rows; the builders make them from rules,
from the scores of a proxy, or from known targets.
"""

from .builders import pairs_from_scores, pairs_from_targets, pairs_where
from .statements import Preferences, read_statements

__all__ = [
    "Preferences",
    "pairs_from_scores",
    "pairs_from_targets",
    "pairs_where",
    "read_statements",
]
