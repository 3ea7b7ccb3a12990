"""One self-contained HTML page about a training: no network, light and dark, for screens, phones and paper."""

from __future__ import annotations

import io
import os
import re
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from ..errors import missing_extra
from ..shown_tables import visible
from . import displays
from .contents import SHOWN_FEATURES, AlphaPath, Baseline, Curve, Estimate, Survival, TrainingReport

_ESCAPED = {"|": r"\|", "<": "&lt;", ">": "&gt;", "&": "&amp;"}

# Colours that stand in for variables of the page's style: what Matplotlib draws in them follows light and dark.
_COLOURS = {
    "#0a0b01": "var(--plot-main)",
    "#0a0b02": "var(--plot-accent)",
    "#0a0b03": "var(--plot-muted)",
    "#0a0b04": "var(--text)",
    "#0a0b05": "var(--line)",
    "#0a0b06": "var(--surface)",
}
_MAIN, _ACCENT, _MUTED, _TEXT, _LINE, _SURFACE = _COLOURS
# Narrow enough to be read on a phone without scaling much; wide screens show two beside each other.
_SIZE = (4.8, 3.2)


def write_report(report: TrainingReport, path: str | os.PathLike[str]) -> None:
    """Write a report as one file, which appears whole or not at all.

    Parameters
    ----------
    report : TrainingReport
    path : path
        With the suffix ``.md`` a model card in Markdown (`model_card`), otherwise an HTML page.
    """
    from ..tables.atomic import write_whole

    write_whole(path, render_for(path, report))


def render_for(path: str | os.PathLike[str], report: TrainingReport) -> str:
    """What is written to a file of this name: a model card for ``.md``, else the HTML page."""
    return render_model_card(report) if os.fspath(path).lower().endswith(".md") else render_report(report)


def require_parts() -> None:
    """Raise ImportError if the packages that a report needs are not installed."""
    try:
        import jinja2  # noqa: F401
        import matplotlib  # noqa: F401
    except ImportError:
        raise missing_extra("A report", "Matplotlib and Jinja2", "plots") from None


def environment() -> Any:
    """What renders the templates of this folder; refuses where Jinja2 or Matplotlib are not installed."""
    require_parts()
    from jinja2 import Environment, PackageLoader, StrictUndefined

    found = Environment(
        loader=PackageLoader("preflearn.report", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    found.filters["number"] = _number
    found.filters["p"] = _p
    found.filters["code"] = _code
    return found


def render_report(report: TrainingReport) -> str:
    """The page as text.

    Parameters
    ----------
    report : TrainingReport

    Returns
    -------
    str
        HTML without references to other files.
    """
    from markupsafe import Markup

    pages = environment()
    best, worst = report.extremes()
    plots = {name: Markup(svg) for name, svg in _plots(report).items()}
    return pages.get_template("page.html.j2").render(
        report=report, plots=plots, best=best, worst=worst, units=_plural(report.unit)
    )


def _plots(report: TrainingReport) -> dict[str, str]:
    compared = _compared(report)
    drawings: dict[str, tuple[Callable[[Any], Any], str, tuple[float, float]]] = {
        "estimate": (
            lambda ax: _draw_estimate(ax, report.estimate, compared),
            _say_estimate(report.estimate, compared),
            (4.8, 0.7 + 0.34 * len(compared)),
        )
    }
    path, estimate = report.alpha_path, report.estimate
    if path is not None and len(path.alphas) > 1:
        display = displays.AlphaPathDisplay(
            path.alphas,
            path.scores,
            path.chosen,
            errors=path.errors,
            score_name=f"held-out {estimate.measure}",
        )
        drawings["alpha"] = (display.plot, _say_alpha(path, estimate.measure), _SIZE)
    if report.has_units:
        spread = displays.QueryScoresDisplay(
            report.labels, report.values, metric_name=estimate.measure, interval=estimate.interval,
            unit=_plural(report.unit),
        )  # fmt: skip
        drawings["units"] = (spread.plot, _say_units(report), _SIZE)
    if report.roc is not None:
        roc = displays.QueryRocDisplay(report.roc.fpr, report.roc.tpr, report.roc.auc, report.roc.n_queries)
        text = f"ROC curve, from (0, 0) to (1, 1); the area under it is {report.roc.auc:.3f}."
        drawings["roc"] = (roc.plot, text, (4.8, 4.4))
    if report.curve is not None:
        curve = report.curve
        drawn = displays.LearningCurveDisplay(
            curve.n_queries, curve.scores, curve.errors, extension=curve.extension
        )
        drawings["curve"] = (drawn.plot, _say_curve(curve), _SIZE)
    if report.sets is not None:
        sets = report.sets
        shown = displays.SetSizeDisplay(
            sets.coverages, sets.sizes, coverage=sets.coverage, size=sets.size, items=sets.items
        )
        size = f"{round(sets.size, 1):g} of {round(sets.items, 1):g}"
        text = f"Mean size of the sets over their coverage: {size} at {sets.coverage:g}."
        drawings["sets"] = (shown.plot, text, _SIZE)
    if report.calibration is not None:
        found = report.calibration
        certain = displays.CalibrationDisplay(found.confidence, found.won, found.weight, found.error)
        text = f"Reliability diagram of held-out preferences; expected calibration error {found.error:.3f}."
        drawings["calibration"] = (certain.plot, text, (4.8, 4.4))
    if report.survival is not None:
        drawings["survival"] = (*_curves_of_thirds(report.survival), _SIZE)
    for name, one in (("influence", report.influence), ("importance", report.importance)):
        if one is not None:
            bars = displays.CoefficientsDisplay(one.names, one.values, xlabel=one.meaning, errors=one.errors)
            n_bars = min(SHOWN_FEATURES, len(one.names))
            draw = partial(bars.plot, n_features=SHOWN_FEATURES)
            drawings[name] = (draw, _say_influence(bars), (4.8, 0.7 + 0.26 * n_bars))
    return {name: svg_of(name, *drawing) for name, drawing in drawings.items()}


def _compared(report: TrainingReport) -> list[Baseline]:
    """The model, and the baselines from the best to the worst."""
    estimate = report.estimate
    others = sorted((one for one in report.baselines if not one.is_model), key=lambda one: -one.value)
    return [Baseline("this model", estimate.value, is_model=True), *others]


def _draw_estimate(ax: Any, estimate: Estimate, compared: list[Baseline]) -> None:
    """The estimate with its interval, above the values of baselines."""
    for place, one in enumerate(reversed(compared)):
        if one.is_model:
            ax.axvspan(*estimate.interval, color=_MAIN, alpha=0.12, linewidth=0)
            ax.plot(estimate.interval, (place, place), color=_MAIN, linewidth=5, solid_capstyle="round")
        ax.plot(one.value, place, "o", color=_SURFACE if one.is_model else _MUTED, markeredgecolor=_MAIN
                if one.is_model else _MUTED, markersize=8)  # fmt: skip
        ax.annotate(f"{one.value:.3f}", (one.value, place), (0, 7), textcoords="offset points", ha="center")
    names = [
        displays.short(one.name) + (f"\n({displays.short(one.detail)})" if one.detail else "")
        for one in compared
    ]
    ax.set_yticks(range(len(compared)), names[::-1])
    ax.set(ylim=(-0.5, len(compared) - 0.2), xlabel=f"held-out {estimate.measure}")
    ax.margins(x=0.08)
    ax.grid(False, axis="y")


def _curves_of_thirds(found: Survival) -> tuple[Callable[[Any], Any], str]:
    display = displays.SurvivalDisplay(found.names, found.counts, found.events, found.times, found.survival)
    medians = ", ".join(f"{name} {median}" for name, _, _, median in found.rows())
    return display.plot, f"Kaplan-Meier curves of thirds by held-out score; median times: {medians}."


def svg_of(name: str, draw: Callable[[Any], Any], text: str, size: tuple[float, float]) -> str:
    """A drawing as inline SVG that takes its colours from the page and says in words what it shows."""
    from cycler import cycler
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure
    from matplotlib.style import context

    settings = {
        "axes.prop_cycle": cycler(
            color=[_MAIN, _ACCENT, _MUTED, _MUTED, _MUTED, _MUTED, _MUTED, _MUTED]
        ),
        "axes.edgecolor": _LINE, "axes.labelcolor": _TEXT, "text.color": _TEXT, "xtick.color": _LINE,
        "ytick.color": _LINE, "xtick.labelcolor": _TEXT, "ytick.labelcolor": _TEXT, "grid.color": _LINE,
        "axes.facecolor": "none", "figure.facecolor": "none", "legend.frameon": False, "axes.grid": True,
        "grid.linewidth": 0.5, "axes.axisbelow": True, "axes.spines.top": False, "axes.spines.right": False,
        "font.size": 10.0, "legend.fontsize": 9.0, "svg.fonttype": "path", "svg.hashsalt": f"preflearn-{name}",
    }  # fmt: skip
    with context(["default", settings]):
        figure = Figure(figsize=size, layout="constrained")
        FigureCanvasSVG(figure)
        draw(figure.add_subplot())
        buffer = io.StringIO()
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    return _inline(buffer.getvalue(), name, text)


def _inline(svg: str, name: str, text: str) -> str:
    """The SVG element alone, with its own ids, the page's colours and a description."""
    from markupsafe import escape

    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r'\bid="', f'id="{name}-', svg)
    svg = re.sub(r'href="#', f'href="#{name}-', svg)
    svg = re.sub(r"url\(#", f"url(#{name}-", svg)
    for colour, variable in _COLOURS.items():
        svg = svg.replace(colour, variable)
    head, rest = svg.split(">", 1)
    head = re.sub(r'\s(width|height)="[^"]*"', "", head)
    label = escape(text)
    return f'{head} role="img" aria-label="{label}" class="plot"><title>{label}</title>{rest}'


def _say_estimate(estimate: Estimate, compared: list[Baseline]) -> str:
    low, high = estimate.interval
    others = "".join(f"; {one.label}: {one.value:.3f}" for one in compared[1:])
    return f"Held-out {estimate.measure} {estimate.value:.3f}, 95 % interval {low:.3f} to {high:.3f}{others}."


def _say_alpha(path: AlphaPath, measure: str) -> str:
    best = float(np.nanmax(path.scores))
    return (
        f"Held-out {measure} over {len(path.alphas)} values of alpha from "
        f"{path.alphas.min():.3g} to {path.alphas.max():.3g}: between {np.nanmin(path.scores):.3f} and "
        f"{best:.3f}, best at the chosen alpha, {path.chosen:.3g}."
    )


def _say_units(report: TrainingReport) -> str:
    values = report.values[~np.isnan(report.values)]
    low, middle, high = np.quantile(values, [0.25, 0.5, 0.75])
    return (
        f"{report.estimate.measure.capitalize()} in each of {values.size} held-out {_plural(report.unit)}, "
        f"from {values.min():.3f} to {values.max():.3f}; the middle half lies between {low:.3f} and "
        f"{high:.3f}, the median is {middle:.3f}."
    )


def _say_curve(curve: Curve) -> str:
    points = ", ".join(f"{score:.3f} at {n}" for n, score in zip(curve.n_queries.tolist(), curve.scores))
    more = curve.extension
    further = (
        "" if more is None else f" Extended by a power law: {more.scores[-1]:.3f} at {more.n_queries[-1]}."
    )
    return f"Held-out concordance over the number of training queries: {points}.{further}"


def _say_influence(bars: displays.CoefficientsDisplay) -> str:
    shown = ", ".join(f"{name} {value:+.3g}" for name, value in zip(bars.names[:5], bars.values[:5]))
    return f"Bars of {bars.xlabel} by feature. The largest: {shown}."


def _plural(unit: str) -> str:
    return "queries" if unit == "query" else f"{unit}s"


def _code(text: str) -> Any:
    """A text in which `names` between backticks are set as code."""
    from markupsafe import Markup, escape

    return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape(text))))


def _number(value: float | None, digits: int = 3) -> str:
    return "–" if value is None or not np.isfinite(value) else f"{value:.{digits}f}"


def _p(value: float | None) -> str:
    if value is None or value != value:
        return "–"
    return f"{value:.3f}" if value >= 0.001 else f"{value:.0e}"


def model_card(report: TrainingReport) -> Any:
    """A report as a `skops.card.Card`.

    Parameters
    ----------
    report : TrainingReport

    Returns
    -------
    skops.card.Card
        ``card.add(**{"Intended use/People": "..."})`` adds to it, ``card.render()`` is its text.
    """
    from skops.card import Card

    card = Card(report.model_file, template=None, model_diagram=False)
    sections = {
        "Model": _model(report),
        "Model/Choices": _table(
            ("what", "value", "why"), [(one.name, one.value, one.why) for one in report.choices]
        ),
        "Intended use": (
            "The model orders items that are compared with each other as those of the training data were. Its scores "
            "have no unit: compare them within one list. It reflects only what its features express, and says nothing "
            "about people or items unlike those it was trained on."
        ),
        "Training data": _data(report),
        "Evaluation": _evaluation(report),
        "Evaluation/Comparison with simple baselines": _baselines(report),
        "What the model uses": _influence(report),
        "Limitations": _bullets([*filter(None, [report.dependence]), *report.notes]),
        "How to use it": _use(report),
    }
    for name, text in sections.items():
        if text:
            card.add(**{name: text})
    return card


def render_model_card(report: TrainingReport) -> str:
    """The card as Markdown.

    Parameters
    ----------
    report : TrainingReport

    Returns
    -------
    str
    """
    generator = f'<!-- name="generator" content="preflearn {report.version}" -->'
    return f"{generator}\n\n{model_card(report).render().strip()}\n"


def write_model_card(report: TrainingReport, path: str | os.PathLike[str]) -> None:
    """Write a report as a model card, which appears whole or not at all.

    Parameters
    ----------
    report : TrainingReport
    path : path
    """
    from ..tables.atomic import write_whole

    write_whole(path, render_model_card(report))


def _model(report: TrainingReport) -> str:
    learner = next((one.value for one in report.choices if one.name == "learner"), "A ranker")
    return f"{report.title}: {learner}, trained by preflearn {report.version}.\n\n{report.summary}"


def _data(report: TrainingReport) -> str:
    facts = [(name, f"{value:,}") for name, value in report.counts.items()]
    facts += [(name, value) for name, value in report.data.items()]
    files = [(one.name, f"{one.n_bytes:,}", f"`{one.sha256}`") for one in report.files]
    parts = [_table(("", ""), facts), _table(("file", "bytes", "SHA-256"), files)]
    return "\n\n".join(part for part in parts if part)


def _evaluation(report: TrainingReport) -> str:
    found = report.estimate
    low, high = found.interval
    lines = [
        f"**Held-out {found.measure}: {found.value:.3f}**, 95 % interval {low:.3f} to {high:.3f}.",
        found.held_out,
    ]
    return "\n\n".join([*lines, found.interval_method])


def _baselines(report: TrainingReport) -> str:
    rows = []
    for one in report.baselines:
        counts = "" if one.wins is None else f"{one.wins} / {one.losses} / {one.ties}"
        name = f"**{one.name}**" if one.is_model else one.label
        rows.append((name, f"{one.value:.3f}", counts, "" if one.pvalue is None else f"{one.pvalue:.2g}"))
    return _table(("", report.estimate.measure, "wins / losses / ties", "p"), rows)


def _influence(report: TrainingReport) -> str:
    found = report.influence
    if found is None:
        return report.influence_note
    order = sorted(range(len(found.names)), key=lambda k: -abs(float(found.values[k])))[:SHOWN_FEATURES]
    rows = [(found.names[k], f"{float(found.values[k]):.3g}") for k in order]
    return f"{found.explanation}\n\n{_table(('feature', found.meaning), rows)}"


def _use(report: TrainingReport) -> str:
    name = report.model_file or "model.preflearn"
    made = f"\n\nIt was made by\n\n```bash\n{report.command}\n```" if report.command else ""
    return (
        f"```bash\npreflearn predict {name} new.csv -o scores.csv\n```\n\nor, from Python, "
        f'`preflearn.io.load_model("{name}").predict(X)`.{made}'
    )


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table in Markdown; nothing where there are no rows."""
    if not rows:
        return ""
    lines = [head, ["---"] * len(head), *([_cell(one) for one in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _cell(text: str) -> str:
    """Code keeps its marks, everything else that Markdown or HTML would read is escaped."""
    return re.sub(r"[|<>&]", lambda found: _ESCAPED[found[0]], visible(text))


def _bullets(notes: Sequence[str]) -> str:
    return "\n".join(f"- {_cell(note)}" for note in notes)
