"""The report about a relation: four settings side by side, and a heat map of labels and predictions."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

# Objects of a side that a heat map shows; more are averaged.
_MOST = 200


@dataclass(frozen=True)
class SettingRow:
    """One setting."""

    new: str  # what is new in it, in words
    how: str  # what was held out
    concordance: float  # of the held-out predictions, over all known labels
    error: float  # likewise
    alpha: float  # the best one for this setting
    chosen: bool  # whether the model was chosen for it


def render_relation_report(
    title: str, summary: str, settings: Sequence[SettingRow], Y: np.ndarray, F: np.ndarray, *, command: str
) -> str:
    """Render the page, without references to other files.

    Parameters
    ----------
    title, summary : str
    settings : sequence of SettingRow
    Y, F : ndarray of shape (p, q)
        Labels, NaN where not known, and predictions.
    command : str
    """
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup

    from .. import __version__
    from .html import require_parts

    require_parts()
    environment = Environment(
        loader=PackageLoader("preflearn.report", "."), autoescape=True, undefined=StrictUndefined
    )
    figures = [{"svg": Markup(_heat_maps(Y, F)), "caption": _caption(Y)}]
    return environment.get_template("relation.html.j2").render(
        title=title, summary=summary, settings=settings, figures=figures, command=command, version=__version__
    )


def _caption(Y: np.ndarray) -> str:
    text = "Left: the known labels. Right: the predictions of the trained model for every pair."
    if max(Y.shape) > _MOST:
        text += f" Neighbouring objects are averaged to at most {_MOST} on a side."
    return text


def _heat_maps(Y: np.ndarray, F: np.ndarray) -> str:
    import matplotlib.pyplot as plt

    low, high = float(np.nanmin(Y)), float(np.nanmax(Y))
    with plt.rc_context({"svg.hashsalt": "preflearn", "svg.fonttype": "none"}):
        figure, axes = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained", sharey=True)
        for ax, values, name in zip(axes, (Y, F), ("labels", "predictions"), strict=True):
            image = ax.imshow(_shrunk(values), vmin=low, vmax=high, aspect="auto", cmap="viridis")
            ax.set(title=name, xlabel="columns")
        axes[0].set_ylabel("rows")
        figure.colorbar(image, ax=axes)
        text = io.StringIO()
        figure.savefig(text, format="svg")
        plt.close(figure)
    # Neither the XML header nor the metadata, which contain addresses, belong in the page.
    return re.sub(r"^.*?(?=<svg)|<metadata>.*?</metadata>", "", text.getvalue(), flags=re.DOTALL)


def _shrunk(values: np.ndarray) -> np.ndarray:
    """Average neighbouring rows and columns down to at most ``most`` of each; NaN where no label is known."""
    for axis in (0, 1):
        n = values.shape[axis]
        if n > _MOST:
            starts = np.linspace(0, n, _MOST, endpoint=False).astype(int)
            known = np.add.reduceat(~np.isnan(values), starts, axis=axis, dtype=float)
            total = np.add.reduceat(np.nan_to_num(values), starts, axis=axis)
            values = np.divide(total, known, out=np.full_like(total, np.nan), where=known > 0)
    return values


def to_dict(row: SettingRow) -> dict[str, Any]:
    """For JSON."""
    return dict(vars(row))
