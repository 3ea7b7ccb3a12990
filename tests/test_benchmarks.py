"""The growth campaign runs on small data, and what pages say of benchmarks can be found."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

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
    assert "0 files that pages name are missing" in done.stdout
