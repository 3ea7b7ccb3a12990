"""The automatic ranker: candidates of different kinds, combined by what they predict for queries they have not seen.

``ranker`` is the estimator, ``features`` the preparations that candidates see, ``candidates`` the candidates with their
costs, ``trees`` boosted and random trees as plain arrays, ``combination`` the weights and the nested choice, and
``leaderboard`` the record of what was tried.
"""

from .leaderboard import Entry, Leaderboard
from .ranker import AutoRanker

__all__ = ["AutoRanker", "Entry", "Leaderboard"]
