"""The one quadratic problem behind every squared-loss learner: build it, factorise it, solve it for every alpha."""

from .basis_system import solve_on_basis
from .conjugate_gradients import ConjugateGradientResult, solve_conjugate_gradients
from .moments import GlobalMoments, QueryMoments
from .problem import (
    RidgeSystem,
    Spectrum,
    dual_problem,
    feature_gram,
    feature_gram_diagonal,
    feature_moment,
    feature_moments,
    primal_problem,
)

__all__ = [
    "ConjugateGradientResult",
    "GlobalMoments",
    "QueryMoments",
    "RidgeSystem",
    "Spectrum",
    "dual_problem",
    "feature_gram",
    "feature_gram_diagonal",
    "feature_moment",
    "feature_moments",
    "primal_problem",
    "solve_conjugate_gradients",
    "solve_on_basis",
]
