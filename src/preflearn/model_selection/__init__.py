"""Exact cross-validation, honest performance estimates, and splitters that know of queries."""

from ..estimators.search import RLSCV, RankRLSCV
from ..selection.held_out import HeldOut, HeldOutPreferences
from ..selection.splitters import LeavePairOut, LeaveQueryOut, QueryKFold
from ..selection.tally import PairTally
from .cross_validation import cross_val_predict
from .estimates import estimate_auc, estimate_concordance
from .evaluation import Evaluation, MeasuredMetric, evaluate_preferences, evaluate_scores
from .pairs import leave_pair_out, leave_pair_out_tally, leave_preference_out
from .performance import PerformanceEstimate, RocCurve
from .permutation import PermutationTest, permutation_test
from .significance import (
    RankerComparison,
    RankerTable,
    SignedRanks,
    compare_rankers,
    compare_several_rankers,
    signed_rank_test,
)

__all__ = [
    "Evaluation",
    "HeldOut",
    "HeldOutPreferences",
    "LeavePairOut",
    "LeaveQueryOut",
    "MeasuredMetric",
    "PairTally",
    "PerformanceEstimate",
    "PermutationTest",
    "QueryKFold",
    "RLSCV",
    "RankerComparison",
    "RankerTable",
    "RankRLSCV",
    "RocCurve",
    "SignedRanks",
    "compare_several_rankers",
    "compare_rankers",
    "cross_val_predict",
    "estimate_auc",
    "estimate_concordance",
    "evaluate_preferences",
    "evaluate_scores",
    "leave_pair_out",
    "leave_pair_out_tally",
    "leave_preference_out",
    "permutation_test",
    "signed_rank_test",
]
