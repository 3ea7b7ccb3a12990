"""Ratings: from battles ("a against b, a won") to a leaderboard with intervals that hold.

`rate` reads and fits, `Ratings` is what it gives; ``reading`` reads ``battles``, ``counts`` counts them as they arrive,
``strengths`` fits and says how certain the strengths are (``ties`` where ties have a probability of their own),
``ranks`` which differences are certain, ``held_out`` is about held-out battles. ``judges`` (all, and those that are
trusted), ``diagnostics``, ``fragility``, ``boards`` of parts and ``planning`` answer what one asks next. `leaderboard`
ranks items by a table of scores instead (``scores`` reads it).
"""

from .boards import CategoryRatings
from .counts import BattleCounts, count_battles
from .rating import rate
from .result import Ratings
from .score_board import Leaderboard, leaderboard

__all__ = [
    "BattleCounts",
    "CategoryRatings",
    "Leaderboard",
    "Ratings",
    "count_battles",
    "leaderboard",
    "rate",
]
