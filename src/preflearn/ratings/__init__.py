"""Ratings: from battles ("a against b, a won") to a leaderboard with intervals that hold.

`rate` reads and fits, `Ratings` is what it gives; ``reading`` reads ``battles``, ``counts`` counts them as they arrive,
``strengths`` (``margins`` where scores say by how much) fits and says how certain the strengths are, ``ranks`` which
differences are certain, ``choice`` and ``held_out`` are about held-out battles, ``judges``, ``diagnostics``, ``boards``
with ``categories``, and ``planning`` answer what one asks next.
"""

from .categories import CategoryRatings
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
