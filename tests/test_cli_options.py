"""Every two options of a command: they work and none is ignored, or are refused; see `contracts.cli_options`."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from contracts import cli_options as contract

WORKING = [
    (name, number, chosen)
    for name, command in contract.COMMANDS.items()
    for number, chosen in enumerate(contract.working(command))
]
REFUSED = [(name, *case) for name, command in contract.COMMANDS.items() for case in contract.refused(command)]


@pytest.fixture(scope="session")
def folder(tmp_path_factory) -> Path:
    found = tmp_path_factory.mktemp("typed")
    contract.make_files(found)
    return found


class Runs:
    """Runs command lines, each with a folder of its own."""

    def __init__(self, call, folder: Path, out: Path) -> None:
        self.call, self.folder, self.out, self.count = call, folder, out, 0

    @property
    def last(self) -> Path:
        """The folder of the last run."""
        return self.out / str(self.count)

    def __call__(self, typed: str) -> tuple[int, str, str, Path]:
        self.count += 1
        out = self.last
        out.mkdir()
        words = [
            word.replace("{in}", str(self.folder)).replace("{out}", str(out)) for word in shlex.split(typed)
        ]
        status, shown, errors = self.call(*words)
        assert "Traceback" not in errors and "internal error" not in errors, errors
        assert status in (0, 2), errors
        return status, shown, errors, out

    def seen(self, typed: str) -> tuple[object, ...]:
        """What a command says and writes, apart from names and times."""
        status, shown, errors, out = self(typed)
        for what, instead in ((str(out), "OUT"), (r"in \d+\.\d s", ""), (r'"(seconds|command)": .*', "")):
            shown = re.sub(what, instead, shown)
        pages = ("r.html", "r.md")  # they show the command line
        files = [
            (path.name, "" if path.name in pages else path.read_bytes()) for path in sorted(out.iterdir())
        ]
        return status, shown, errors, *files


@pytest.fixture
def runs(call, folder, tmp_path) -> Runs:
    return Runs(call, folder, tmp_path)


def _id(case: tuple) -> str:
    return f"{case[0]} {' '.join(value for value in case[-1].values() if value)}".replace("{in}/", "")


@pytest.mark.parametrize(("name", "number", "chosen"), WORKING, ids=map(_id, WORKING))
def test_options_work_together_and_none_is_ignored(name, number, chosen, runs):
    command = contract.COMMANDS[name]
    typed = command.typed(chosen)
    whole = runs.seen(typed)
    status, _, errors, *_ = whole
    assert status == 0, errors
    for asked in re.findall(r"\{out\}/(\S+)", typed):
        assert (runs.last / asked).stat().st_size > 0
    for option in contract.to_leave_out(command, chosen, number):
        assert runs.seen(command.typed(chosen, without=option)) != whole, f"{chosen[option]} is ignored"


@pytest.mark.parametrize(("name", "rule", "chosen"), REFUSED, ids=[f"{n} {rule}" for n, rule, _ in REFUSED])
def test_what_is_refused_says_so_and_writes_nothing(name, rule, chosen, runs):
    command = contract.COMMANDS[name]
    status, shown, errors, out = runs(command.typed(chosen))
    *stages, said = errors.splitlines()
    assert (status, shown) == (2, "") and (not stages or "--verbose" in chosen.values()), errors
    assert re.search(command.rules[rule].says, said), errors
    assert not list(out.iterdir())
