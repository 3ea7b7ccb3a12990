"""preflearn learns to rank and to prefer.

The public names are imported on first use, so that ``import preflearn`` stays light.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

# Where each public name lives.
_HOMES = {
    "RLS": ".estimators.rls",
    "RLSCV": ".model_selection.search",
    "RankRLS": ".estimators.rankrls",
    "RankRLSCV": ".model_selection.search",
}
_MODULES = ("comparisons", "kernels", "metrics", "model_selection")

__all__ = ["__version__", *_HOMES, *_MODULES]

if TYPE_CHECKING:
    from .estimators.rankrls import RankRLS
    from .estimators.rls import RLS
    from .model_selection.search import RLSCV, RankRLSCV


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name], __name__), name)
    if name in _MODULES:
        return import_module(f".{name}", __name__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
