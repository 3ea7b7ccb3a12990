"""How good is a ranking? Measures of pairs and of lists, and scikit-learn scorers based on them.

Every metric is called as ``metric(y, scores, qid)``: a value per query, then the mean over the queries.
"""

from .by_query import PerQuery
from .calibration import PreferenceCalibration, calibration_of_preferences

from .pairwise import auc, concordance, disagreement_error, kendall_tau  # isort: skip (their names come first)
from .pairwise import mean_squared_pair_error, time_dependent_auc  # isort: skip
from .classes import class_accuracy, f1, volume_under_surface
from .listwise import average_precision, err, ndcg, precision_at, reciprocal_rank
from .registry import RankingScorer, get_scorer, register_metric
from .survival import LogRank, logrank_test

concordance_scorer = get_scorer("concordance")
disagreement_error_scorer = get_scorer("neg_disagreement_error")
auc_scorer = get_scorer("auc")
kendall_tau_scorer = get_scorer("kendall_tau")
ndcg_scorer = get_scorer("ndcg")
average_precision_scorer = get_scorer("average_precision")
reciprocal_rank_scorer = get_scorer("reciprocal_rank")
err_scorer = get_scorer("err")
precision_at_scorer = get_scorer("precision")

__all__ = [
    "LogRank",
    "PerQuery",
    "PreferenceCalibration",
    "RankingScorer",
    "auc",
    "average_precision",
    "calibration_of_preferences",
    "class_accuracy",
    "concordance",
    "concordance_scorer",
    "disagreement_error",
    "disagreement_error_scorer",
    "err",
    "f1",
    "get_scorer",
    "kendall_tau",
    "logrank_test",
    "mean_squared_pair_error",
    "ndcg",
    "ndcg_scorer",
    "precision_at",
    "reciprocal_rank",
    "register_metric",
    "time_dependent_auc",
    "volume_under_surface",
]
