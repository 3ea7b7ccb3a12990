"""What several plots share: new axes, colours, a legend that hides nothing, the reliability diagram."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .errors import missing_extra

# The first, second and eighth of Matplotlib's cycle, so that a style changes them all.
MAIN, ACCENT, MUTED = "C0", "C1", "C7"

# The rest of the docstring of what `on_axes` makes.
_AXES = """

        Parameters
        ----------
        ax : matplotlib Axes, optional

        Returns
        -------
        matplotlib Axes
        """


def new_axes(size: tuple[float, float] = (5.0, 3.8)) -> Any:
    """One pair of axes in a figure of its own."""
    try:
        import matplotlib.pyplot as plt
    except ImportError:
        raise missing_extra("A plot", "Matplotlib", "plots") from None
    return plt.subplots(figsize=size, layout="constrained")[1]


def on_axes(draw: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    """Make a method that draws on given axes one that draws on new ones where none are given, and returns them.

    Examples
    --------
    >>> class Score:
    ...     @on_axes
    ...     def plot(self, ax):
    ...         'A point.'
    >>> Score().plot("axes"), Score.plot.__doc__.split()[:4]
    ('axes', ['A', 'point.', 'Parameters', '----------'])
    """

    def plot(self: Any, ax: Any = None) -> Any:
        own = new_axes() if ax is None else None
        try:
            draw(self, ax if own is None else own)
        except Exception:
            if own is not None:  # nothing was drawn: no empty figure stays behind
                import matplotlib.pyplot as plt

                plt.close(own.figure)
            raise
        return ax if own is None else own

    plot.__name__, plot.__qualname__, plot.__module__ = draw.__name__, draw.__qualname__, draw.__module__
    plot.__doc__ = f"{draw.__doc__}{_AXES}"
    return plot


def legend_above(ax: Any, n_columns: int) -> None:
    """Put the legend above the axes: no corner inside is free of every curve."""
    ax.legend(
        loc="lower center",
        bbox_to_anchor=(0.5, 1.0),
        ncols=n_columns,
        frameon=False,
        columnspacing=1.0,
        handlelength=1.4,
        handletextpad=0.5,
    )


def draw_reliability(
    ax: Any, confidence: np.ndarray, won: np.ndarray, weight: np.ndarray, error: float
) -> Any:
    """How often the favourite wins, over how sure the model is."""
    ax.plot([0.5, 1.0], [0.5, 1.0], linestyle="--", color=MUTED, label="as sure as it should be")
    ax.plot(confidence, won, color=MAIN, label=f"calibration error {error:.3f}")
    ax.scatter(confidence, won, s=80.0 * weight / weight.max(), color=MAIN)
    ax.set(xlabel="predicted probability of the favourite", ylabel="share of wins of the favourite")
    legend_above(ax, 2)
    return ax
