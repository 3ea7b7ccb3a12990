"""How a learner's problem would be solved: the route that is taken for data of any shape, and what it costs."""

from .squared.routes import explain

__all__ = ["explain"]
