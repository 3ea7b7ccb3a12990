"""Which features to keep: greedy selection by exact held-out predictions."""

from .learners.greedy import GreedySelector

__all__ = ["GreedySelector"]
