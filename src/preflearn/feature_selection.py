"""Which features to keep: greedy selection by exact held-out predictions."""

from .learners.greedy.greedy import GreedySelector

__all__ = ["GreedySelector"]
