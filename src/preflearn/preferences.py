"""Turning knowledge into order preferences.

A `Preferences` holds statements f(x_i) - f(x_j) >= margin about pairs of rows; the builders make them from rules,
from the scores of a proxy, from known targets, or from clicks, with the position bias removed.
"""

from .learners.preferences.clicks import Propensities, click_preferences, position_propensities
from .learners.preferences.statements import (
    Preferences,
    pairs_from_scores,
    pairs_from_targets,
    pairs_where,
    read_statements,
)

__all__ = [
    "Preferences",
    "Propensities",
    "click_preferences",
    "pairs_from_scores",
    "pairs_from_targets",
    "pairs_where",
    "position_propensities",
    "read_statements",
]
