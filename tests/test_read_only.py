"""What cannot be written to: the installation and the home, and where results are to go."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import preflearn
from preflearn.tables.atomic import require_writable

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
        "import preflearn.comparisons._loops\n"
        "print(concordance([*range(200)] * 2, [*range(200)] * 2))"  # more pairs than are looked at without a loop
    )
    done = run_read_only("-c", measure)
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) == 1.0
    # Said once, though several loops were compiled in two modules.
    assert done.stderr.count("NUMBA_CACHE_DIR") == 1


def test_the_folder_that_the_warning_names_is_used(run_read_only, tmp_path):
    measure = "from preflearn.metrics import concordance; print(concordance([*range(200)], [*range(200)]))"
    done = run_read_only("-c", measure, NUMBA_CACHE_DIR=str(tmp_path))
    assert (done.returncode, done.stderr) == (0, "")
    assert list(tmp_path.rglob("*.nbi"))


def test_the_command_line_works_without_a_cache(run_read_only):
    done = run_read_only("-m", "preflearn", "demo")
    assert done.returncode == 0, done.stderr
    assert "Held-out queries" in done.stdout
    (line,) = done.stderr.splitlines()
    assert line.startswith("preflearn: ") and "NUMBA_CACHE_DIR" in line


# Data that would be refused as soon as they are read.
NONSENSE = "\0\1 this is no data"
OUT = "{locked}/out"
COMMANDS = {
    "train": ["train", "data.csv", "-o", f"{OUT}.preflearn"],
    "train, report": ["train", "data.csv", "-o", "m.preflearn", "--report", f"{OUT}.html"],
    "train, name of the data": ["train", "data.csv"],
    "look": ["look", "data.csv", "--report", f"{OUT}.html"],
    "relate": [
        "relate",
        "--rows",
        "data.csv",
        "--columns",
        "b.csv",
        "--pairs",
        "c.csv",
        "-o",
        f"{OUT}.preflearn",
    ],
    "rate": ["rate", "data.csv", "-o", f"{OUT}.csv"],
    "rate, report": ["rate", "data.csv", "--report", f"{OUT}.html"],
    "predict": ["predict", "model.preflearn", "data.csv", "-o", f"{OUT}.csv"],
    "compare": ["compare", "data.csv", "b.csv", "c.csv", "-o", f"{OUT}.md"],
    "export": ["export", "model.preflearn", "--to", "onnx", "-o", f"{OUT}.onnx"],
    "ask": ["ask", "data.csv", "--no-open", "-o", OUT],
    "ask, new folders": ["ask", "data.csv", "--no-open", "-o", f"{OUT}/a/b"],
    "ask, answers": ["ask", "items.csv", "--no-open", "--answers", f"{OUT}.jsonl"],
    "ask, export": ["ask", "data.csv", "--answers", "b.csv", "--export", f"{OUT}.jsonl"],
    "demo": ["demo", "--write", f"{OUT}.csv"],
    "reproduce": ["reproduce", "auc-estimation", "--output", OUT],
    "ppi train": ["ppi", "train", "data.xml", "-o", f"{OUT}.preflearn"],
    "ppi evaluate": ["ppi", "evaluate", "data.xml", "--json", f"{OUT}.json"],
    "parses train": ["parses", "train", "data.jsonl", "-o", f"{OUT}.preflearn"],
}


@pytest.fixture(scope="module")
def said_of_locked(run_read_only, tmp_path_factory):
    """Status and message of each command, called where it may not write."""
    folder = tmp_path_factory.mktemp("locked")
    for name in ("data.csv", "b.csv", "c.csv", "data.xml", "data.jsonl", "model.preflearn"):
        (folder / name).write_text(NONSENSE)
    (folder / "items.csv").write_text("name\na\nb\n")
    locked = folder / "locked"
    locked.mkdir()
    (locked / "data.csv").write_text(NONSENSE)
    locked.chmod(0o555)
    calls = {name: [word.format(locked=locked) for word in command] for name, command in COMMANDS.items()}
    program = (
        "import contextlib, io, json, os, sys\n"
        "from preflearn.cli.app import run\n"
        "said = {}\n"
        "for name, command in json.loads(sys.argv[1]).items():\n"
        f"    os.chdir({str(locked)!r} if name == 'train, name of the data' else {str(folder)!r})\n"
        "    with contextlib.redirect_stderr(io.StringIO()) as heard, contextlib.redirect_stdout(io.StringIO()):\n"
        "        status = run(command)\n"
        "    said[name] = status, heard.getvalue()\n"
        "print(json.dumps(said))"
    )
    done = run_read_only("-c", program, json.dumps(calls))
    assert done.returncode == 0, done.stderr
    left = {one.name for one in folder.iterdir()}
    assert left == {*"data.csv b.csv c.csv data.xml data.jsonl model.preflearn items.csv locked".split()}
    return json.loads(done.stdout)


@pytest.mark.parametrize("command", COMMANDS)
def test_what_could_not_be_written_is_refused_before_the_data_are_read(said_of_locked, command):
    status, said = said_of_locked[command]
    assert status == 2, said
    assert "cannot be written (Permission denied)" in said.splitlines()[-1]


def test_a_pipe_is_not_opened_to_see_whether_it_can_be_written(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    require_writable(pipe)  # opening it would wait for a reader
