"""preflearn learns rankings and preferences.

The public names are imported on first use, so that ``import preflearn`` stays light.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ._moved import MOVED, moved_module

__version__ = "0.3.0"

# Where each public name lives.
_HOMES = {
    "AutoRanker": ".auto",
    "BradleyTerry": ".learners.bradley_terry",
    "BradleyTerryCV": ".learners.bradley_terry_cv",
    "CoRankRLS": ".learners.corankrls",
    "OrderPreferenceRegressor": ".learners.order_preference",
    "OrderPreferenceRegressorCV": ".learners.order_preference",
    "OrdinalRanker": ".model_selection.ordinal",
    "RLS": ".learners.rls",
    "RLSCV": ".learners.search",
    "RankRFM": ".learners.rankrfm",
    "RankRLS": ".learners.rankrls",
    "RankRLSCV": ".learners.search",
    "RankSVM": ".learners.ranksvm",
    "RankSVMCV": ".learners.ranksvm",
    "Ratings": ".ratings.result",
    "TransductiveRankRLS": ".learners.transductive",
    "leaderboard": ".ratings.score_board",
    "rate": ".ratings.rating",
}
_MODULES = (
    "comparisons",
    "datasets",
    "distributed",
    "feature_selection",
    "graphs",
    "inspection",
    "io",
    "kernels",
    "metrics",
    "model_selection",
    "multiple_kernels",
    "preferences",
    "preprocessing",
    "ratings",
    "relations",
    "report",
    "solvers",
    "testing",
)

__all__ = [
    "AutoRanker",
    "BradleyTerry",
    "BradleyTerryCV",
    "CoRankRLS",
    "OrderPreferenceRegressor",
    "OrderPreferenceRegressorCV",
    "OrdinalRanker",
    "RLS",
    "RLSCV",
    "RankRFM",
    "RankRLS",
    "RankRLSCV",
    "RankSVM",
    "RankSVMCV",
    "TransductiveRankRLS",
    "__version__",
    "leaderboard",
    "rate",
]

if TYPE_CHECKING:
    from .auto import AutoRanker
    from .learners.bradley_terry import BradleyTerry
    from .learners.bradley_terry_cv import BradleyTerryCV
    from .learners.corankrls import CoRankRLS
    from .learners.order_preference import OrderPreferenceRegressor, OrderPreferenceRegressorCV
    from .learners.rankrfm import RankRFM
    from .learners.rankrls import RankRLS
    from .learners.ranksvm import RankSVM, RankSVMCV
    from .learners.rls import RLS
    from .learners.search import RLSCV, RankRLSCV
    from .learners.transductive import TransductiveRankRLS
    from .model_selection.ordinal import OrdinalRanker
    from .ratings.rating import rate
    from .ratings.result import Ratings as Ratings
    from .ratings.score_board import leaderboard


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name], __name__), name)
    if name in _MODULES:
        return import_module(f".{name}", __name__)
    if f"{__name__}.{name}" in MOVED:
        return moved_module(f"{__name__}.{name}", stacklevel=2)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted((*__all__, *_MODULES))
