"""An installation on a read-only disk, used without a home that can be written to, and folders that cannot be written to."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import preflearn

pytestmark = pytest.mark.skipif(os.name == "nt", reason="permissions of POSIX")

# Root writes where it may not, unless it gives this capability up.
AS_ANYBODY = ["setpriv", "--bounding-set", "-dac_override,-dac_read_search", "--"]


def as_anybody() -> list[str]:
    """What to put in front of a command so that permissions count; the test is skipped where there is no way."""
    if os.geteuid() != 0:
        return []
    if shutil.which("setpriv") is None:
        pytest.skip("root is not bound by permissions, and there is no setpriv to change that")
    return AS_ANYBODY


def make_read_only(folder: Path) -> None:
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o555 if path.is_dir() else 0o444)


@pytest.fixture(scope="module")
def run_read_only(tmp_path_factory):
    """Run a command with a copy of the library and a home, neither of which can be written to."""
    folder = tmp_path_factory.mktemp("read_only")
    installed, home = folder / "installed", folder / "home"
    shutil.copytree(
        Path(preflearn.__file__).parent, installed / "preflearn", ignore=shutil.ignore_patterns("__pycache__")
    )
    home.mkdir()
    make_read_only(installed)
    make_read_only(home)

    def run(*command: str, **more: str) -> subprocess.CompletedProcess[str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("NUMBA", "XDG"))}
        environment = {**kept, "HOME": str(home), "PYTHONPATH": str(installed), **more}
        return subprocess.run(
            [*as_anybody(), sys.executable, *command], env=environment, capture_output=True, text=True, timeout=600
        )  # fmt: skip

    probe = run("-c", f"import pathlib; pathlib.Path({str(home)!r}, 'a').touch()")
    if "PermissionError" not in probe.stderr:
        pytest.skip(f"permissions do not bind this user: {probe.stderr}")
    where = run("-c", "import preflearn; print(preflearn.__file__)")
    assert where.stdout.startswith(str(installed)), where.stderr
    yield run
    for path in (folder, *folder.rglob("*")):
        if path.is_dir():
            path.chmod(0o755)


def test_loops_are_compiled_without_a_cache_where_none_can_be_written(run_read_only):
    measure = (
        "from preflearn.metrics import concordance\n"
        "import preflearn._engine.loops.segments\n"
        "print(concordance([1, 2, 3], [1, 3, 2], [0, 0, 0]))"
    )
    done = run_read_only("-c", measure)
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) == pytest.approx(2 / 3)
    # Said once, though several loops were compiled in two modules.
    assert done.stderr.count("NUMBA_CACHE_DIR") == 1


def test_the_folder_that_the_warning_names_is_used(run_read_only, tmp_path):
    measure = "from preflearn.metrics import concordance; print(concordance([1, 2, 3], [1, 3, 2], [0, 0, 0]))"
    done = run_read_only("-c", measure, NUMBA_CACHE_DIR=str(tmp_path))
    assert (done.returncode, done.stderr) == (0, "")
    assert list(tmp_path.rglob("*.nbi"))


def test_the_command_line_works_without_a_cache(run_read_only):
    done = run_read_only("-m", "preflearn", "demo")
    assert done.returncode == 0, done.stderr
    assert "Held-out queries" in done.stdout
    (line,) = done.stderr.splitlines()
    assert line.startswith("preflearn: ") and "NUMBA_CACHE_DIR" in line
