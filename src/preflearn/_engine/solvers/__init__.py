"""How a learner's problem is solved: the choice of a route, and what each one does with data and comparisons."""

from .routes import explain

__all__ = ["explain"]
