"""The growth campaign runs on small data, and what pages say of benchmarks can be found."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

BENCHMARKS = Path(__file__).resolve().parents[1] / "benchmarks"


def test_every_case_of_the_growth_campaign_runs():
    done = subprocess.run(
        [sys.executable, "growth.py", "--smoke"], cwd=BENCHMARKS, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    measured = [line for line in done.stdout.splitlines() if "(documented" in line]
    assert len(measured) >= 40


def test_pages_name_benchmarks_and_results_that_are_there():
    done = subprocess.run(
        [sys.executable, "audit.py"], cwd=BENCHMARKS, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout
    assert "0 files that pages name are missing, 0 sections have figures and name no source" in done.stdout


def test_figures_of_pages_are_those_of_the_results():
    done = subprocess.run(
        [sys.executable, "figures.py", "--check"], cwd=BENCHMARKS, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout


@pytest.fixture
def figures(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import figures

    return figures


def test_a_figure_is_written_from_the_results(figures, monkeypatch):
    results = [{"question": "rankers on x", "results": [{"contestant": "A", "concordance": 0.71234}]}]
    monkeypatch.setattr(figures, "_results", lambda name: {"peers": results}[name])
    comment = "<!--= peers / rankers on x / A / concordance:.3f -->"
    assert figures.written(f"it has 0.9{comment}, says 5") == f"it has 0.712{comment}, says 5"
    with pytest.raises(LookupError, match="has nothing at 'peers / rankers on y"):
        figures.written("0.9<!--= peers / rankers on y / A / concordance:.3f -->")


def test_a_table_is_written_from_the_results(figures, monkeypatch):
    row = {
        "contestant": "A",
        "folds": 2,
        "concordance": 0.7,
        "concordance_error": 0.01,
        "ndcg_at_10": 0.5,
        "cpu_s": 3,
    }
    monkeypatch.setattr(figures, "_results", lambda name: [{"question": "x", "results": [row]}])
    page = "<!-- table: peers / x -->\nstale\n<!-- /table -->\n"
    written = figures.written(page)
    assert "| A | 2 | 0.7000 ± 0.0100 | 0.5000 |" in written and "stale" not in written
    assert figures.written(written) == written


@pytest.mark.parametrize("names", ["Fold1/{}.txt", "set1.{}.txt", "{}.txt"])
def test_a_public_set_is_read_from_its_standard_files(names, tmp_path):
    rng = np.random.default_rng(0)
    for part in ("train", "vali", "test"):
        path = tmp_path / "Set" / names.format("valid" if part == "vali" and "set1" in names else part)
        path.parent.mkdir(parents=True, exist_ok=True)
        rows = [
            f"{rng.integers(3)} qid:{k // 6} 1:{rng.normal():.3f} 2:{rng.normal():.3f}" for k in range(60)
        ]
        path.write_text("\n".join(rows) + "\n")
    command = [
        sys.executable,
        "public.py",
        "--data",
        str(tmp_path / "Set"),
        "--cache",
        str(tmp_path / "cache"),
    ]
    command += ["--contestant", "preflearn RankRLS, linear"]
    done = subprocess.run(command, cwd=BENCHMARKS, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "Set/0/preflearn RankRLS, linear: 0." in done.stdout


def test_a_public_set_without_its_files_is_refused(tmp_path):
    command = [sys.executable, "public.py", "--data", str(tmp_path)]
    done = subprocess.run(command, cwd=BENCHMARKS, capture_output=True, text=True, check=False)
    assert "expected Fold1/train.txt, set1.train.txt or train.txt" in done.stderr


def test_a_release_shows_no_results_of_a_version_before_the_last(monkeypatch):
    if list((BENCHMARKS.parent / "changes").glob("+*.md")):
        pytest.skip("changes wait for the next release")
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import audit

    assert not audit.outdated(), "run the commands that `python benchmarks/audit.py` prints"


def test_results_of_earlier_versions_are_found(monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import audit

    (tmp_path / "old.json").write_text('{"results": [{"measured": {"version": "0.0.1", "command": "x"}}]}')
    page = tmp_path / "page.md"
    page.write_text("Measured in `benchmarks/results/old.json`.")
    monkeypatch.setattr(audit, "RESULTS", tmp_path)
    monkeypatch.setattr(audit, "pages", lambda: [page])
    assert audit.outdated() == {tmp_path / "old.json": [page]}
