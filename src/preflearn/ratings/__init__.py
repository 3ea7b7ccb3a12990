"""Ratings: from battles ("a against b, a won") to a leaderboard with intervals that hold.

`rate` reads and fits, `Ratings` is what it gives; ``battles`` reads and counts, ``strengths`` fits and says how
certain the strengths are, ``ranks`` which differences are certain, ``choice`` and ``held_out`` are about held-out
battles, ``judges``, ``diagnostics``, ``boards`` and ``planning`` answer what one asks next.
"""

from .battles import count_battles
from .rating import rate
from .result import Ratings

__all__ = ["Ratings", "count_battles", "rate"]
