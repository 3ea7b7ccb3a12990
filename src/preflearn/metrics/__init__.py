"""How good is a ranking? Measures of pairs and of lists, and scikit-learn scorers based on them.

Every metric is called as ``metric(y, scores, qid)``: a value per query, then the mean over the queries.
"""

from .by_query import PerQuery
from .calibration import PreferenceCalibration, calibration_of_preferences
from .listwise import average_precision, err, ndcg, precision_at, reciprocal_rank
from .pairwise import auc, concordance, disagreement_error, kendall_tau
from .scorers import (
    RankingScorer,
    auc_scorer,
    average_precision_scorer,
    concordance_scorer,
    disagreement_error_scorer,
    err_scorer,
    get_scorer,
    kendall_tau_scorer,
    ndcg_scorer,
    precision_at_scorer,
    reciprocal_rank_scorer,
)

__all__ = [
    "PerQuery",
    "PreferenceCalibration",
    "RankingScorer",
    "auc",
    "auc_scorer",
    "average_precision",
    "average_precision_scorer",
    "calibration_of_preferences",
    "concordance",
    "concordance_scorer",
    "disagreement_error",
    "disagreement_error_scorer",
    "err",
    "err_scorer",
    "get_scorer",
    "kendall_tau",
    "kendall_tau_scorer",
    "ndcg",
    "ndcg_scorer",
    "precision_at",
    "precision_at_scorer",
    "reciprocal_rank",
    "reciprocal_rank_scorer",
]
