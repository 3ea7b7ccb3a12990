"""A report as a model card: one Markdown file that goes where the model goes.

The sections are those that model cards have (what it is, what it is for, data, evaluation, how to use it); what they
say is what the report holds. The card itself is one of skops, which can be added to before it is saved.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import Any

from ..shown_tables import visible
from .contents import TrainingReport

_SHOWN_FEATURES = 15
_ESCAPED = {"|": r"\|", "<": "&lt;", ">": "&gt;", "&": "&amp;"}


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
        "Limitations": _bullets(report.notes),
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
    order = sorted(range(len(found.names)), key=lambda k: -abs(float(found.values[k])))[:_SHOWN_FEATURES]
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
