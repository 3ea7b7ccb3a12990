"""Exact cross-validation, honest performance estimates, and splitters that know of queries."""

from ..estimators.search import RLSCV, RankRLSCV
from ..selection.held_out import HeldOut, HeldOutPreferences
from ..selection.splitters import LeavePairOut, LeaveQueryOut, QueryKFold
from ..selection.tally import PairTally
from .cross_validation import cross_val_predict
from .estimates import estimate_auc, estimate_concordance
from .evaluation import Evaluation, MeasuredMetric, evaluate_preference_scores, evaluate_scores
from .learning_curves import LearningCurve, learning_curve
from .pairs import leave_pair_out, leave_pair_out_tally, leave_preference_out
from .performance import PerformanceEstimate, RocCurve
from .permutation import PermutationTest, permutation_test
from .preference_evaluation import (
    LengthBias,
    PreferenceEvaluation,
    ShareRight,
    evaluate_preferences,
    length_bias,
)
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
    "LearningCurve",
    "LengthBias",
    "MeasuredMetric",
    "PairTally",
    "PerformanceEstimate",
    "PermutationTest",
    "PreferenceEvaluation",
    "QueryKFold",
    "RLSCV",
    "RankerComparison",
    "RankerTable",
    "RankRLSCV",
    "RocCurve",
    "ShareRight",
    "SignedRanks",
    "compare_several_rankers",
    "compare_rankers",
    "cross_val_predict",
    "estimate_auc",
    "estimate_concordance",
    "evaluate_preference_scores",
    "evaluate_preferences",
    "evaluate_scores",
    "learning_curve",
    "leave_pair_out",
    "leave_pair_out_tally",
    "leave_preference_out",
    "length_bias",
    "permutation_test",
    "signed_rank_test",
]
