"""The automatic ranker: candidates of different kinds, combined by what they predict for queries they have not seen.

``ranker`` is the estimator, ``fitting`` its procedure: the ``candidates`` learn from views of the ``features``, the
``combination`` weighs what they predict for held-out rows, the ``leaderboard`` records what was tried, and
``extension`` trains the members of a sample on more rows. ``kernels`` and ``trees`` are members, ``sample`` keeps rows
that come in parts, and ``training`` is the procedure of ``preflearn train``.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

_HOMES = {"AutoRanker": ".ranker", "Entry": ".leaderboard", "Leaderboard": ".leaderboard"}

__all__ = ["AutoRanker", "Entry", "Leaderboard"]

if TYPE_CHECKING:
    from .leaderboard import Entry, Leaderboard
    from .ranker import AutoRanker


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name], __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
