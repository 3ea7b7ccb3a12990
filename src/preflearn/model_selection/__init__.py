"""Exact cross-validation, unbiased performance estimates, and splitters that respect queries.

Choosing by held-out predictions has one grammar for everything that takes ``cv``, ``scoring`` or ``alphas``:

    cv ──► folds (_folds.py) ─────┐
    alphas ──► grid (_choice.py) ─┼─► held-out predictions (_held_out.py) ─► score and choice (_choice.py)
    estimator ──► problem ────────┘        one factorisation

The learners are built from the modules with a leading underscore, and the public functions are built from the learners;
hence the public names are imported on first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

# Where each public name lives.
_HOMES = {
    name: home
    for home, names in (
        ("..learners.search", "RLSCV RankRLSCV"),
        ("._held_out", "HeldOut HeldOutPreferences"),
        ("._splitters", "LeavePairOut LeaveQueryOut QueryKFold"),
        ("._tally", "PairTally"),
        (".calibrated", "DriftTest RiskControlledRanker"),
        (".conformal", "ConformalRanker"),
        (".cross_validation", "cross_val_predict leave_pair_out leave_pair_out_tally leave_preference_out"),
        (".estimates", "estimate_auc estimate_concordance"),
        (".evaluation", "Evaluation MeasuredMetric evaluate_preference_scores evaluate_scores"),
        (".learning_curves", "LearningCurve learning_curve"),
        ("._performance", "PerformanceEstimate RocCurve"),
        (".permutation", "PermutationTest permutation_test"),
        (".preference_evaluation", "LengthBias PreferenceEvaluation ShareRight evaluate_preferences"),
        (".preference_evaluation", "length_bias"),
        (
            ".significance",
            "CIndexComparison PairedT RankerComparison RankerTable SignedRanks compare_rankers",
        ),
        (".significance", "compare_several_rankers paired_t_test signed_rank_test"),
    )
    for name in names.split()
}

__all__ = [
    "ConformalRanker",
    "DriftTest",
    "Evaluation",
    "HeldOut",
    "HeldOutPreferences",
    "LeavePairOut",
    "LeaveQueryOut",
    "LearningCurve",
    "LengthBias",
    "MeasuredMetric",
    "PairTally",
    "PairedT",
    "PerformanceEstimate",
    "PermutationTest",
    "PreferenceEvaluation",
    "QueryKFold",
    "RLSCV",
    "CIndexComparison",
    "RankerComparison",
    "RankerTable",
    "RankRLSCV",
    "RiskControlledRanker",
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
    "paired_t_test",
    "permutation_test",
    "signed_rank_test",
]

if TYPE_CHECKING:
    from ..learners.search import RLSCV, RankRLSCV
    from ._held_out import HeldOut, HeldOutPreferences
    from ._performance import PerformanceEstimate
    from ._splitters import LeavePairOut, LeaveQueryOut, QueryKFold
    from ._tally import PairTally
    from .calibrated import DriftTest, RiskControlledRanker
    from .conformal import ConformalRanker
    from .cross_validation import (
        cross_val_predict,
        leave_pair_out,
        leave_pair_out_tally,
        leave_preference_out,
    )
    from .estimates import estimate_auc, estimate_concordance
    from .evaluation import Evaluation, MeasuredMetric, evaluate_preference_scores, evaluate_scores
    from .learning_curves import LearningCurve, learning_curve
    from .permutation import PermutationTest, permutation_test
    from .preference_evaluation import (
        LengthBias,
        PreferenceEvaluation,
        ShareRight,
        evaluate_preferences,
        length_bias,
    )
    from .significance import (
        CIndexComparison,
        PairedT,
        RankerComparison,
        RankerTable,
        SignedRanks,
        compare_rankers,
        compare_several_rankers,
        paired_t_test,
        signed_rank_test,
    )


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name], __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
