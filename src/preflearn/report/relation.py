"""The report about a relation: four settings side by side, and a heat map of labels and predictions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

# Objects of a side that a heat map shows; more are averaged.
_MOST = 200
# Objects of a side that are named, and pairs without a label that are listed.
_NAMED, _SHOWN_PAIRS = 40, 10


@dataclass(frozen=True)
class SettingRow:
    """One setting."""

    new: str  # what is new in it, in words
    how: str  # what was held out
    concordance: float  # of the held-out predictions, over all known labels
    error: float  # likewise
    alpha: float  # the best one for this setting
    chosen: bool  # whether the model was chosen for it
    interval: tuple[float, float]  # 95 %, of the concordance
    baseline: float  # concordance of the means of the labels that remain of the row and of the column


def render_relation_report(
    title: str,
    summary: str,
    settings: Sequence[SettingRow],
    Y: np.ndarray,
    F: np.ndarray,
    *,
    command: str,
    names: tuple[Sequence[str], Sequence[str]],
    label: str = "label",
) -> str:
    """Render the page, without references to other files.

    Parameters
    ----------
    title, summary : str
    settings : sequence of SettingRow
    Y, F : ndarray of shape (p, q)
        Labels, NaN where not known, and predictions.
    command : str
    names : tuple of two sequences of str
        Of the row and of the column objects.
    label : str, default="label"
        What the labels are called.
    """
    from markupsafe import Markup

    from .. import __version__
    from .html import environment, svg_of

    pages = environment()
    figures = []
    low, high = float(np.nanmin(Y)), float(np.nanmax(Y))
    for name, values, text in (
        ("labels", Y, "Known labels"),
        ("predictions", F, "Predictions of the trained model for every pair"),
    ):
        size = (4.8, min(7.0, max(3.0, 1.2 + 0.16 * min(Y.shape[0], _NAMED))))
        drawing = svg_of(
            name, partial(_heat_map, values, names, (low, high)), f"{text}, as a heat map.", size
        )
        figures.append({"svg": Markup(drawing), "caption": text})
    return pages.get_template("relation.html.j2").render(
        title=title, summary=summary, settings=settings, figures=figures, command=command, version=__version__,
        note=_caption(Y), highest=_highest_unknown(Y, F, names), label=label,
    )  # fmt: skip


def _caption(Y: np.ndarray) -> str:
    if max(Y.shape) <= _MOST:
        return "Empty cells have no label."
    return f"Neighbouring objects are averaged to at most {_MOST} on a side."


def _highest_unknown(
    Y: np.ndarray, F: np.ndarray, names: tuple[Sequence[str], Sequence[str]]
) -> list[tuple[str, str, float]]:
    """Pairs without a label, the highest predictions first."""
    unknown = np.argwhere(np.isnan(Y))
    order = np.argsort(-F[unknown[:, 0], unknown[:, 1]], kind="stable")[:_SHOWN_PAIRS]
    return [(str(names[0][i]), str(names[1][j]), float(F[i, j])) for i, j in unknown[order].tolist()]


def _heat_map(
    values: np.ndarray, names: tuple[Sequence[str], Sequence[str]], limits: tuple[float, float], ax: Any
) -> None:
    image = ax.imshow(_shrunk(values), vmin=limits[0], vmax=limits[1], aspect="auto", cmap="viridis")
    ax.grid(False)
    for set_ticks, side in ((ax.set_yticks, names[0]), (ax.set_xticks, names[1])):
        if len(side) <= _NAMED:
            turned = {"rotation": 90} if set_ticks == ax.set_xticks else {}
            labels = [str(one) if len(str(one)) <= 18 else str(one)[:17] + "…" for one in side]
            set_ticks(range(len(side)), [text.replace("$", r"\$") for text in labels], fontsize=9, **turned)
    ax.set(xlabel=f"{len(names[1]):,} columns", ylabel=f"{len(names[0]):,} rows")
    ax.figure.colorbar(image, ax=ax)


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
