"""The package as a whole: what importing it costs, what it declares, which part may know which."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import tomllib
from functools import cache
from importlib.metadata import version
from pathlib import Path

import pytest

import preflearn
from preflearn import _moved

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / "preflearn"
PAPERS = ROOT / "papers" / "src" / "preflearn_papers"
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))

# The rooms of the house in the order in which imports may point: each may import the rooms before it, at the top of a
# module or inside a function. "choosing" is the grammar that learners are made of, in modules of `model_selection` with
# an underscore; users call what is made of learners.
ROOMS = (
    "numerics", "comparisons", "metrics", "tables", "kernels", "squared", "losses", "report", "choosing", "relations",
    "learners", "model_selection", "auto", "ratings", "distributed", "web", "cli",
)  # fmt: skip
# What a room before it may nevertheless not know.
KNOWS_NOTHING_OF = {
    "kernels": {"metrics"},
    "squared": {"metrics", "tables"},
    "losses": {"metrics", "tables"},
    "report": {"kernels", "squared", "losses"},
    "choosing": {"tables", "report"},
    "relations": {"losses", "report"},
    "ratings": {"auto", "relations"},
    "distributed": {"ratings"},
    "web": {"distributed"},
}
# Files at the top that are public names of what lives in a room.
FRONTS = {
    "datasets", "feature_selection", "graphs", "inspection", "io", "multiple_kernels", "preferences", "preprocessing",
    "solvers",
}  # fmt: skip


def part_of(module: str) -> str | None:
    """The room that a module, given by its absolute name, belongs to; None for single files at the top."""
    first, *rest = module.split(".")[1:] or [""]
    if first == "model_selection" and rest and rest[0].startswith("_"):
        return "choosing"
    return first if first in ROOMS else None


def modules_of(part: str) -> list[Path]:
    """The files of a part."""
    return [path for path in sorted(SOURCE.rglob("*.py")) if part_of(module_name(path)) == part]


def module_name(path: Path) -> str:
    return ".".join(["preflearn", *path.relative_to(SOURCE).with_suffix("").parts]).removesuffix(".__init__")


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


@cache
def imported_modules(path: Path) -> set[str]:
    """Absolute names of all modules that a file imports, at the top or inside functions."""
    package = ["preflearn", *path.relative_to(SOURCE).parent.parts]
    names: set[str] = set()
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            names.add(module)
            names.update(f"{module}.{alias.name}" for alias in node.names)
    return names


def test_version_is_that_of_the_installed_package() -> None:
    assert preflearn.__version__ == version("preflearn")
    assert re.fullmatch(r"\d+\.\d+\.\d+(\.dev\d+|rc\d+)?", preflearn.__version__)


def test_import_is_light() -> None:
    """Neither the compiler nor anything optional is loaded before it is used."""
    heavy = (
        "numba",
        "torch",
        "dask",
        "distributed",
        "pyarrow",
        "pandas",
        "polars",
        "matplotlib",
        "typer",
        "rich",
        "msgspec",
        "starlette",
        "uvicorn",
        "onnx",
        "skl2onnx",
    )
    code = f"import preflearn, sys; print([name for name in {heavy!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_public_names_exist() -> None:
    assert {"RLS", "RankRLS"} <= set(preflearn.__all__)
    assert all(hasattr(preflearn, name) for name in preflearn.__all__)
    assert set(preflearn.__all__) <= set(dir(preflearn))


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'RankRSL'"):
        preflearn.RankRSL  # noqa: B018


@pytest.mark.parametrize("part", ROOMS)
def test_imports_go_one_way(part: str) -> None:
    may_import = set(ROOMS[: ROOMS.index(part)]) - KNOWS_NOTHING_OF.get(part, set())
    paths = modules_of(part)
    assert paths
    for path in paths:
        found = {part_of(name) for name in imported_modules(path) if name.startswith("preflearn.")}
        if part == "choosing":
            found -= {"model_selection"}  # the name of its folder
        assert found - {part, None} <= may_import, path.relative_to(ROOT)


def test_rooms_do_not_use_the_fronts() -> None:
    """A front is for users: in the library a name is imported from where it is defined."""
    guilty = [
        path.relative_to(SOURCE).as_posix()
        for path in SOURCE.glob("*/**/*.py")
        if {name.split(".")[1] for name in imported_modules(path) if name.startswith("preflearn.")} & FRONTS
    ]
    assert not guilty


@pytest.mark.parametrize(("part", "users"), [("cli", set()), ("web", {"cli"})])
def test_nothing_else_imports_the_top(part: str, users: set[str]) -> None:
    found = {
        path.relative_to(SOURCE).parts[0]
        for path in SOURCE.rglob("*.py")
        if any(name.split(".")[:2] == ["preflearn", part] for name in imported_modules(path))
    }
    assert found - {part, "__main__.py"} == users


def test_only_loops_import_numba() -> None:
    """They lie beside what they serve, in `_loops.py` or a folder `_loops`, and are compiled in one way."""
    guilty = [
        path.relative_to(SOURCE).as_posix()
        for path in SOURCE.rglob("*.py")
        if any(name.split(".")[0] == "numba" for name in imported_modules(path))
        and "_loops" not in path.relative_to(SOURCE).with_suffix("").parts
    ]
    assert guilty == ["numerics/compiling.py"]


def test_loops_are_compiled_in_one_way() -> None:
    """By `numerics.compiling`, which does without a cache where none can be written."""
    guilty = {
        path.name
        for path in SOURCE.rglob("*.py")
        if path.name != "compiling.py" and {"numba.njit", "numba.jit"} & imported_modules(path)
    }
    assert not guilty


# The modules that declare what learners supply to the rest of the library.
PROTOCOLS = ("model_selection/_learner.py", "relations/model.py")
# Of other libraries, for want of a public way.
FOREIGN = {
    "_default_to_infrequent_mappings", "_drop_idx_after_grouping", "_meta", "_n_features_outs", "_predictors",
    "_validate_params",
}  # fmt: skip
# What learners and transformers offer to the library, not to users: operators for ONNX (`numerics.onnx_graph`),
# training on rows that were kept to `distributed`, the model after its encoder, and features relative to a query, to
# `explain`.
HOOKS = {"_after_encoder", "_fit_kept", "_in_query", "_onnx_inputs", "_onnx_nodes", "_onnx_values"}


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__") and name != "_loops"


def own_names(tree: ast.Module) -> set[str]:
    """Names of functions, classes, and attributes that a module defines or sets."""
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            names.add(node.name)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            names.add(node.attr)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
    return names


def private_names_of_others(path: Path, declared: set[str]) -> list[str]:
    """Underscore names that a module reads or imports and that neither it nor ``declared`` defines."""
    tree = tree_of(path)
    allowed = own_names(tree) | declared | FOREIGN | HOOKS
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and is_private(node.attr) and node.attr not in allowed:
            owner = node.value
            inherited = isinstance(owner, ast.Name) and owner.id in ("self", "cls")
            if not inherited and not (isinstance(owner, ast.Call) and ast.unparse(owner) == "super()"):
                found.append(f"{os.path.relpath(path, SOURCE)}:{node.lineno}: {ast.unparse(node)}")
        elif isinstance(node, ast.ImportFrom) and (node.level or str(node.module).startswith("preflearn")):
            names = [alias.name for alias in node.names if is_private(alias.name)]
            found += [f"{os.path.relpath(path, SOURCE)}:{node.lineno}: import {name}" for name in names]
    return found


def test_no_module_reads_the_private_names_of_another() -> None:
    declared: set[str] = set()
    for name in PROTOCOLS:
        declared |= own_names(tree_of(SOURCE / name))
    paths = [*sorted(SOURCE.rglob("*.py")), *sorted(PAPERS.rglob("*.py"))]
    guilty = [line for path in paths for line in private_names_of_others(path, declared)]
    assert guilty == []


def test_private_names_of_another_module_are_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "module.py"
    path.write_text("from .other import _a\nself._b\nother._c\nother._d = 1\nother._d\nsuper()._e\n")
    monkeypatch.setitem(globals(), "SOURCE", tmp_path)
    assert private_names_of_others(path, set()) == ["module.py:1: import _a", "module.py:3: other._c"]


def test_contributing_knows_every_part() -> None:
    table = re.findall(r"^\| (`.+?) \|", (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"), re.MULTILINE)
    named = set(re.findall(r"`(\w+)/`", " ".join(table)))
    parts = {path.parent.name for path in SOURCE.glob("*/__init__.py")}
    assert parts == named
    assert parts | {"choosing"} == set(ROOMS)


def test_every_part_is_a_package_that_says_what_it_is() -> None:
    for folder in SOURCE.iterdir():
        if folder.is_dir() and any(folder.rglob("*.py")):
            assert ast.get_docstring(ast.parse((folder / "__init__.py").read_text(encoding="utf-8"))), (
                folder.name
            )


def lines_of_code(node: ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef, lines: list[str]) -> int:
    """Lines of a class or function that are neither blank, nor a comment, nor part of a docstring."""
    documented: set[int] = set()
    for one in ast.walk(node):
        if isinstance(one, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)) and ast.get_docstring(one):
            documented.update(range(one.body[0].lineno, (one.body[0].end_lineno or 0) + 1))
    numbers = range(node.lineno, (node.end_lineno or 0) + 1)
    code = (lines[k - 1].strip() for k in numbers if k not in documented)
    return sum(bool(line) and not line.startswith("#") for line in code)


def too_long(text: str) -> list[str]:
    """Classes and functions beyond the limits, but for those below a comment that begins with "Long:"."""
    lines, found = text.split("\n"), []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            first = min([node.lineno, *(one.lineno for one in node.decorator_list)])
            most = 350 if isinstance(node, ast.ClassDef) else 60
            if lines_of_code(node, lines) > most and not lines[first - 2].strip().startswith("# Long: "):
                found.append(node.name)
    return found


def test_classes_and_functions_are_short_or_say_why_not() -> None:
    guilty = {
        os.path.relpath(path, SOURCE): names
        for path in [*sorted(SOURCE.rglob("*.py")), *sorted(PAPERS.rglob("*.py"))]
        if (names := too_long(path.read_text(encoding="utf-8")))
    }
    assert guilty == {}


def test_long_functions_are_noticed() -> None:
    body = '    """Told.\n\n    Twice."""\n' + "    x = 1\n" * 59
    assert too_long("def f():\n" + body) == []
    assert too_long("def f():\n" + body + "    # why\n\n    x = 2\n") == ["f"]
    assert too_long("# Long: because.\n@cache\ndef f():\n" + body + "    x = 2\n") == []
    assert too_long("class C:\n" + "    x = 1\n" * 350) == ["C"]


def extra(name: str) -> set[str]:
    """Names of the packages that an extra brings, through extras of our own."""
    found: set[str] = set()
    for requirement in PYPROJECT["project"]["optional-dependencies"][name]:
        own = re.fullmatch(r"preflearn\[(.+)\]", requirement)
        if own:
            found.update(*(extra(part) for part in own[1].split(",")))
        else:
            match = re.match(r"[A-Za-z0-9._-]+", requirement)
            assert match
            found.add(match[0].lower())
    return found


def test_extras() -> None:
    extras = PYPROJECT["project"]["optional-dependencies"]
    assert {"gpu", "dask", "arrow", "plots", "web", "onnx", "docs", "test", "all"} <= set(extras)
    for_users = set(extras) - {"all", "docs", "test", "dev"}
    assert extra("all") == set().union(*map(extra, for_users))
    assert "torch" in extra("gpu") and "torch" not in extra("test")


def readme_command(name: str) -> str:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    found = re.findall(rf"<!-- command: {name} -->\n```bash\n(.+?)\n```", readme, flags=re.DOTALL)
    assert len(found) == 1 and "\n" not in found[0]
    return found[0]


def test_readme_commands_start_from_nothing() -> None:
    for name in ("demo", "test"):
        assert readme_command(name).startswith("python3 -m venv .venv && .venv/bin/pip install ")
    assert readme_command("demo").endswith("preflearn demo")
    assert ".venv/bin/pytest" in readme_command("test")


def test_continuous_integration_runs_the_readme_commands() -> None:
    """It reads them from the README, here with its own function, and has no copy that could differ."""
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    function = re.search(r"^readme_command\(\) \{.*?^\}", script, flags=re.DOTALL | re.MULTILINE)
    assert function
    for name in ("demo", "test"):
        assert f"\nrun_readme_command {name}\n" in script
        done = subprocess.run(
            ["bash", "-c", f"{function[0]}\nreadme_command {name}"],
            capture_output=True,
            text=True,
            check=True,
            cwd=ROOT,
        )
        assert done.stdout.strip() == readme_command(name)
    newest, marker, _ = script.partition("the oldest Python with the lowest versions")
    assert marker and "bin/pytest" not in newest


def test_changelog_knows_the_version() -> None:
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    headings = re.findall(r"^## \[(.+?)\]", changelog, flags=re.MULTILINE)
    assert headings and headings[0] in ("Unreleased", preflearn.__version__)
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert f"\nversion: {preflearn.__version__}\n" in citation


def test_changes_are_files_that_a_release_puts_together() -> None:
    kinds = [kind["directory"] for kind in PYPROJECT["tool"]["towncrier"]["type"]]
    for path in (ROOT / "changes").iterdir():
        if path.name != "README.md":
            assert re.fullmatch(rf"\+[a-z0-9-]+\.({'|'.join(kinds)})\.md", path.name), path.name
            assert not path.read_text(encoding="utf-8").startswith("-")
    marker = PYPROJECT["tool"]["towncrier"]["start_string"]
    assert (ROOT / "CHANGELOG.md").read_text(encoding="utf-8").count(marker) == 1


def test_what_reproduces_publications_is_a_distribution_of_its_own() -> None:
    """Of the same version; the library knows its name in one place, and none of its modules."""
    papers = tomllib.loads((ROOT / "papers" / "pyproject.toml").read_text(encoding="utf-8"))
    assert PYPROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"] == ["src/preflearn"]
    assert not {"ppi", "parses", "experiments"} & {path.stem for path in SOURCE.rglob("*")}
    assert papers["project"]["dependencies"] == [f"preflearn=={preflearn.__version__}"]
    assert papers["project"]["name"] == _moved.DISTRIBUTION
    assert set(papers["project"]["entry-points"]["preflearn.commands"]) == set(_moved.MOVED_COMMANDS)
    assert version("preflearn-papers") == preflearn.__version__
    guilty = [
        path.relative_to(SOURCE).as_posix()
        for path in SOURCE.rglob("*.py")
        if re.search("preflearn_(papers|experiments)", path.read_text(encoding="utf-8"))
    ]
    assert guilty == ["_moved.py"]
