"""Exact cross-validation, honest performance estimates, and splitters that know of queries."""

from .cross_validation import cross_val_predict
from .pairs import leave_pair_out, leave_pair_out_tally, leave_preference_out
from .permutation import PermutationTest, permutation_test
from .search import RankRLSCV, RLSCV
from .splitters import LeavePairOut, LeaveQueryOut, QueryKFold

__all__ = [
    "LeavePairOut",
    "LeaveQueryOut",
    "PermutationTest",
    "QueryKFold",
    "RLSCV",
    "RankRLSCV",
    "cross_val_predict",
    "leave_pair_out",
    "leave_pair_out_tally",
    "leave_preference_out",
    "permutation_test",
]
