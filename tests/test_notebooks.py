"""The notebooks of the users run, cell by cell, and were saved with what they printed."""

from __future__ import annotations

import json
import os
import warnings
from pathlib import Path

import pytest

pytest.importorskip("pandas")
NOTEBOOKS = sorted((Path(__file__).resolve().parents[1] / "examples" / "notebooks").glob("*.ipynb"))


def code_cells(path: Path) -> list[dict]:
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return [cell for cell in cells if cell["cell_type"] == "code"]


def test_there_is_one_for_each_user() -> None:
    assert [path.stem for path in NOTEBOOKS] == ["biologist", "clinician", "llm_evaluator", "search_engineer"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebooks_run(path: Path, monkeypatch) -> None:
    if path.stem == "clinician":
        data = os.environ.get("PREFLEARN_DATA", "")
        if not Path(data, "survival", "rott2.csv.xz").is_file():
            pytest.skip("the data are in the folder that PREFLEARN_DATA names")
    monkeypatch.setenv("MPLBACKEND", "Agg")
    names: dict[str, object] = {"__name__": "__main__"}
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        for number, cell in enumerate(code_cells(path)):
            exec(compile("".join(cell["source"]), f"{path.name}, cell {number}", "exec"), names)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebooks_are_saved_with_their_output(path: Path) -> None:
    outputs = [cell["outputs"] for cell in code_cells(path)]
    assert sum(bool(one) for one in outputs) >= 4
    assert not any(
        one["output_type"] == "error" or one.get("name") == "stderr" for cell in outputs for one in cell
    )
