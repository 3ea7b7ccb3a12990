"""Model cards: what the report knows, as Markdown."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from preflearn.cli.app import run
from preflearn.io import write_ranking
from preflearn.report import (
    Baseline,
    Choice,
    DataFile,
    Influence,
    TrainingReport,
    model_card,
    write_model_card,
)
from preflearn.report.contents import AlphaPath, Estimate


def report(**changes) -> TrainingReport:
    given: dict[str, Any] = {
        "title": "Ranking",
        "summary": "12 rows in 3 queries",
        "counts": {"rows": 1200, "queries": 3},
        "data": {"target": "grade"},
        "choices": (Choice("learner", "RankRLS", "least squares"), Choice("kernel", "a | b", "two\nlines")),
        "alpha_path": AlphaPath(np.array([1.0]), np.array([0.8]), 1.0),
        "estimate": Estimate(
            "concordance", 0.8125, (0.75, 0.875), "Each query was held out.", "Normal over queries."
        ),
        "unit": "query",
        "labels": np.array(["a"]),
        "values": np.array([0.8]),
        "sizes": np.array([4]),
        "baselines": (Baseline("this model", 0.8125, is_model=True), Baseline("price", 0.6, 9, 2, 1, 0.0123)),
        "seed": 0,
        "version": "0.0",
        "influence": Influence(
            [f"x{k}" for k in range(20)], np.linspace(-2, 1, 20), "coefficient", "A weighted sum."
        ),
        "notes": ("Few queries.",),
        "files": (DataFile("results.csv", 4096, "ab12"),),
        "command": "preflearn train results.csv",
        "model_file": "shop.preflearn",
    }
    return TrainingReport(**{**given, **changes})


def test_a_card_says_what_the_report_holds(tmp_path: Path) -> None:
    write_model_card(report(), tmp_path / "card.md")
    text = (tmp_path / "card.md").read_text()
    for expected in (
        "# Model", "# Intended use", "# Training data", "# Evaluation", "# Limitations", "# How to use it",
        "**Held-out concordance: 0.812**, 95 % interval 0.750 to 0.875.", "| rows | 1,200 |", "`ab12`",
        "| price | 0.600 | 9 / 2 / 1 | 0.012 |", "- Few queries.", "preflearn predict shop.preflearn new.csv",
        r"| kernel | a \| b | two lines |", "| x0 | -2 |", "preflearn train results.csv",
    ):  # fmt: skip
        assert expected in text, expected
    assert text.count("| x") == 10  # the features with the largest influence
    assert "Traceback" not in text and "None" not in text


def test_sections_without_content_are_left_out_and_others_can_be_added() -> None:
    card = model_card(report(notes=(), influence=None, files=(), command=""))
    card.add(**{"Contact": "us@example.org"})
    text = card.render()
    assert "Limitations" not in text and "What the model uses" not in text and "SHA-256" not in text
    assert "us@example.org" in text


def test_the_command_writes_a_card_for_markdown(tmp_path: Path) -> None:
    pytest.importorskip("jinja2")
    pytest.importorskip("matplotlib")
    rng = np.random.default_rng(0)
    X, qid = rng.normal(size=(60, 3)), np.repeat(np.arange(12), 5)
    data = tmp_path / "data.txt"
    write_ranking(data, X, np.round(X[:, 0] + 2).clip(0), qid=qid)
    options = [
        "--kernel",
        "linear",
        "-o",
        str(tmp_path / "m.preflearn"),
        "--report",
        str(tmp_path / "card.md"),
        "-q",
    ]
    assert run(["train", str(data), *options]) == 0
    text = (tmp_path / "card.md").read_text()
    assert "Held-out concordance" in text and "m.preflearn" in text and "data.txt" in text
    assert run(["train", str(data), *options]) == 0  # a card of ours is replaced
