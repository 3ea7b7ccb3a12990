"""What preflearn-papers adds to the library, what is said without it, and the old names of its modules."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from sklearn.base import BaseEstimator
from tests.model_files import pack, unpack

from preflearn.cli import app
from preflearn.io import load_model, save_model
from preflearn.tables.models import types as model_types
from preflearn_papers.parses import LinkFeatures

# Run first, this makes a process one in which preflearn-papers is not installed.
WITHOUT = """
import importlib.metadata, sys
from importlib.machinery import PathFinder
find = PathFinder.find_spec
PathFinder.find_spec = lambda name, *rest: None if name.startswith("preflearn_papers") else find(name, *rest)
importlib.metadata.entry_points = lambda **named: ()
"""
INSTALL = "is part of preflearn-papers. Install it with: pip install preflearn-papers"


def python(program: str, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *options, "-c", program], capture_output=True, text=True)


def test_old_names_are_the_same_modules_and_warn_once() -> None:
    done = python(
        "import preflearn.ppi.corpus, preflearn_papers.ppi.corpus as present\n"
        "from preflearn.ppi import read_corpus\n"
        "import preflearn.parses.linkages\n"
        "assert preflearn.ppi.corpus is present and read_corpus is present.read_corpus\n"
        "assert present.__spec__.name == present.__name__ == 'preflearn_papers.ppi.corpus'\n"
        "import preflearn.ppi.nothing",
        "-Wignore:::importlib",
    )
    warned = [line for line in done.stderr.splitlines() if "DeprecationWarning" in line]
    assert [line.partition(": ")[0] for line in warned] == ["<string>:1", "<string>:3"]
    assert "preflearn.ppi is now preflearn_papers.ppi, of preflearn-papers" in warned[0]
    assert done.stderr.endswith("No module named 'preflearn_papers.ppi.nothing'\n")


def test_old_names_are_attributes_of_the_library() -> None:
    done = python("import preflearn\npreflearn.parses.Link\nfrom preflearn import ppi\nppi.Corpus")
    assert done.returncode == 0
    warned = [line for line in done.stderr.splitlines() if "DeprecationWarning" in line]
    assert [line.partition(" is now ")[0] for line in warned] == [
        "<string>:2: DeprecationWarning: preflearn.parses",
        "<string>:3: DeprecationWarning: preflearn.ppi",
    ]


@pytest.mark.parametrize(
    "statement",
    ["import preflearn.ppi.corpus", "from preflearn.ppi import Corpus", "from preflearn import ppi"],
)
def test_old_names_say_what_to_install(statement: str) -> None:
    done = python(f"{WITHOUT}\n{statement}")
    assert done.stderr.splitlines()[-1] == f"ModuleNotFoundError: preflearn.ppi {INSTALL}"


@pytest.mark.parametrize("arguments", [["ppi", "--help"], ["parses"], ["reproduce", "jester", "--json"]])
def test_commands_say_what_to_install(arguments: list[str]) -> None:
    done = python(f"{WITHOUT}\nfrom preflearn.cli.app import run\nsys.exit(run({arguments}))")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"preflearn: preflearn {arguments[0]} {INSTALL}\n"


def test_help_lists_the_commands_that_are_there() -> None:
    program = "from preflearn.cli.app import run\nrun(['--help'])\nprint('numpy' in sys.modules)"
    without, present = python(f"{WITHOUT}\n{program}"), python(f"import sys\n{program}")
    assert "demo" in without.stdout and "ppi" not in without.stdout
    assert all(f" {name} " in present.stdout for name in ("demo", "reproduce", "ppi", "parses"))
    assert {done.stdout.splitlines()[-1] for done in (without, present)} == {"False"}
    assert without.stderr == present.stderr == ""


def test_own_commands_do_not_look_for_others() -> None:
    done = python(
        "from preflearn.cli.app import added_commands, run\n"
        "run(['demo', '--help'])\nprint(added_commands.cache_info().misses)"
    )
    assert done.stdout.endswith("\n0\n")


def test_a_command_that_cannot_be_loaded_leaves_the_others(call, monkeypatch: pytest.MonkeyPatch) -> None:
    def load() -> None:
        raise ImportError("no module named wrong")

    monkeypatch.setattr(app, "added_commands", lambda: {"broken": SimpleNamespace(load=load)})
    with pytest.warns(UserWarning, match="the command broken cannot be loaded: no module named wrong"):
        status, out, _ = call("--help")
    assert status == 0 and "train" in out and "broken" not in out
    assert call("broken")[::2] == (2, "preflearn: no module named wrong\n")


def test_model_files_with_the_old_names_load(tmp_path: Path) -> None:
    schema, members = unpack(LinkFeatures(min_count=3))
    old = json.loads(json.dumps(schema).replace("preflearn_papers.parses", "preflearn.parses"))
    assert old != schema
    (tmp_path / "model").write_bytes(pack(old, members))
    assert load_model(tmp_path / "model").get_params() == LinkFeatures(min_count=3).get_params()


@pytest.mark.parametrize("package", ["preflearn_papers.parses", "preflearn.parses"])
def test_model_files_say_what_to_install(package: str, tmp_path: Path) -> None:
    schema, members = unpack(LinkFeatures())
    named = json.loads(json.dumps(schema).replace("preflearn_papers.parses", package))
    (tmp_path / "model").write_bytes(pack(named, members))
    done = python(f"{WITHOUT}\nfrom preflearn.io import load_model\nload_model({str(tmp_path / 'model')!r})")
    said = done.stderr.splitlines()[-1]
    assert said.endswith(f"asks for {package}.features.LinkFeatures, which {INSTALL}.")


class Listed(BaseEstimator):
    """An estimator of another distribution."""


class Unlisted(BaseEstimator):
    """One that the distribution does not list."""


def test_models_hold_the_classes_that_entry_points_list(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed = {f"{__name__}.Listed", f"{__name__}.python", "os.mkdir", "subprocess.Popen"}
    monkeypatch.setattr(model_types, "_added_classes", lambda: listed)
    save_model(Listed(), tmp_path / "model")
    assert isinstance(load_model(tmp_path / "model"), Listed)
    with pytest.raises(ValueError, match="Unlisted .* not on the list"):
        save_model(Unlisted(), tmp_path / "model")
    # Functions, and classes that are not estimators.
    for full_name in [*listed - {f"{__name__}.Listed"}, f"{__name__}.Unlisted"]:
        assert model_types.object_class(*full_name.rsplit(".", 1)) is None


def test_entry_points_do_not_widen_what_is_loaded_of_scikit_learn(monkeypatch: pytest.MonkeyPatch) -> None:
    from importlib import metadata

    wide = metadata.EntryPoint("SVC", "sklearn.svm._classes:SVC", "preflearn.models")
    monkeypatch.setattr(metadata, "entry_points", lambda **named: [wide])
    assert model_types._added_classes.__wrapped__() == frozenset()
    assert model_types.object_class("preflearn_papers.ppi.corpus", "Corpus") is None
