"""What all tests share: hypothesis settings, threads, and where real data may lie."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

# With `pytest -n 2` every worker would start one BLAS thread per core, and they would get in each other's way.
# Set before NumPy is imported, and left alone where the caller has chosen.
if "PYTEST_XDIST_WORKER" in os.environ:
    for variable in ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS"):
        os.environ.setdefault(variable, "1")

import pytest
from hypothesis import HealthCheck, settings

ROOT = Path(__file__).resolve().parents[1]

# No deadline: the first example of a test may compile a loop. In continuous integration the examples are the
# same each time, so that a red run can be repeated, and fewer, so that it ends in time; elsewhere they differ, so
# that more of them are seen.
settings.register_profile(
    "preflearn",
    deadline=None,
    max_examples=25 if os.environ.get("CI") else 50,
    derandomize=bool(os.environ.get("CI")),
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("preflearn")


@pytest.fixture(scope="session")
def real_data() -> Callable[[str], Path]:
    """A function from the name of a data folder to its path; the test is skipped where it is absent.

    Folders are looked for in ``$PREFLEARN_DATA``, then in ``../shared/data`` next to the checkout.
    """

    def folder(name: str) -> Path:
        root = Path(os.environ.get("PREFLEARN_DATA", ROOT.parent / "shared" / "data"))
        if not (root / name).is_dir():
            pytest.skip(f"real data: no folder {name!r} (set PREFLEARN_DATA to the folder that holds it)")
        return root / name

    return folder


@pytest.fixture
def call(capsys, monkeypatch):
    """Run a command line; its status, output and errors."""
    from preflearn.cli.app import run

    monkeypatch.delenv("PREFLEARN_TRACEBACK", raising=False)

    def call(*arguments) -> tuple[int, str, str]:
        status = run([str(one) for one in arguments])
        captured = capsys.readouterr()
        return status, captured.out, captured.err

    return call
