"""preflearn learns rankings and preferences.

The public names are imported on first use, so that ``import preflearn`` stays light.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ._moved import MOVED, moved_module

__version__ = "0.2.0"

# Where each public name lives.
_HOMES = {
    "AutoRanker": ".automatic",
    "BradleyTerry": ".estimators.bradley_terry",
    "BradleyTerryCV": ".estimators.bradley_terry_cv",
    "OrderPreferenceRegressor": ".estimators.order_preference",
    "OrderPreferenceRegressorCV": ".estimators.order_preference",
    "RLS": ".estimators.rls",
    "RLSCV": ".estimators.search",
    "RankRFM": ".estimators.rankrfm",
    "RankRLS": ".estimators.rankrls",
    "RankRLSCV": ".estimators.search",
    "RankSVM": ".estimators.ranksvm",
    "RankSVMCV": ".estimators.ranksvm",
    "TransductiveRankRLS": ".estimators.transductive",
    "rate": ".ratings.rating",
}
_MODULES = (
    "automatic",
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
    "OrderPreferenceRegressor",
    "OrderPreferenceRegressorCV",
    "RLS",
    "RLSCV",
    "RankRFM",
    "RankRLS",
    "RankRLSCV",
    "RankSVM",
    "RankSVMCV",
    "TransductiveRankRLS",
    "__version__",
    "rate",
]

if TYPE_CHECKING:
    from .automatic import AutoRanker
    from .estimators.bradley_terry import BradleyTerry
    from .estimators.bradley_terry_cv import BradleyTerryCV
    from .estimators.order_preference import OrderPreferenceRegressor, OrderPreferenceRegressorCV
    from .estimators.rankrfm import RankRFM
    from .estimators.rankrls import RankRLS
    from .estimators.ranksvm import RankSVM, RankSVMCV
    from .estimators.rls import RLS
    from .estimators.search import RLSCV, RankRLSCV
    from .estimators.transductive import TransductiveRankRLS
    from .ratings.rating import rate


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
