"""The command line: what it prints, where, and with which exit status."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from preflearn import __version__
from preflearn.cli import app
from preflearn.cli import demo as demo_module
from preflearn.cli.app import run


def call(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "preflearn", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


@pytest.fixture(scope="module")
def demo_json() -> dict:
    done = call("demo", "--json")
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return json.loads(done.stdout)


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--version"]) == 0
    assert capsys.readouterr().out == f"preflearn {__version__}\n"


@pytest.mark.parametrize("arguments", [["--help"], ["-h"], []])
def test_help_names_the_commands(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(arguments) == 0
    out = capsys.readouterr().out
    assert "demo" in out and "--version" in out


def test_help_loads_nothing_heavy() -> None:
    code = (
        "import sys; from preflearn.cli.app import run; run(['--help']);"
        "print([name for name in ('numpy', 'scipy', 'sklearn', 'numba') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nonsense"], "nonsense"),
        (["trian"], "Did you mean 'train'"),
        (["train"], "Missing argument 'DATA..."),
        (["demo", "--nonsense"], "--nonsense"),
        (["demo", "--seed", "-1"], "seed"),
        (["demo", "--seed", "many"], "seed"),
    ],
)
def test_wrong_usage_is_one_line_and_status_2(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("preflearn: ") and message in err
    assert err.count("\n") == 1


def test_wrong_usage_ends_the_process_with_status_2() -> None:
    done = call("nonsense")
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)


@pytest.mark.parametrize(
    ("error", "status", "says"),
    [
        (ValueError("found this,\nexpected that"), 2, "found this, expected that"),
        (FileNotFoundError(2, "No such file or directory", "data.txt"), 2, "data.txt"),
        (RuntimeError("broken"), 1, "internal error: RuntimeError: broken"),
        (KeyboardInterrupt(), 130, ""),
    ],
)
def test_errors_of_a_command(
    error: BaseException,
    status: int,
    says: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fail(seed: int) -> None:
        raise error

    monkeypatch.delenv("PREFLEARN_TRACEBACK", raising=False)
    monkeypatch.setattr(demo_module, "_learn", fail)
    assert run(["demo", "--json"]) == status
    err = capsys.readouterr().err
    assert says in err and "Traceback" not in err
    assert err.count("\n") <= 1


def test_traceback_on_request(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(seed: int) -> None:
        raise RuntimeError("broken")

    monkeypatch.setenv("PREFLEARN_TRACEBACK", "1")
    monkeypatch.setattr(demo_module, "_learn", fail)
    with pytest.raises(RuntimeError, match="broken"):
        run(["demo", "--json"])


def test_demo_learns(demo_json: dict) -> None:
    """Comparing within queries beats regression on the same kernel, and both beat one feature."""
    quality = {row["model"]: row["concordance"] for row in demo_json["results"]}
    ranker, linear, regression, feature = quality.values()
    assert list(quality)[0] == "RankRLS, RBF kernel"
    assert ranker > linear > feature > 0.5
    assert ranker > regression > feature
    assert all(0 < row["ndcg_at_10"] <= 1 for row in demo_json["results"])


def test_demo_shows_a_query_best_first(demo_json: dict) -> None:
    scores = [item["score"] for item in demo_json["example"]["items"]]
    assert len(scores) >= 2
    assert scores == sorted(scores, reverse=True)


def test_demo_tables(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["demo", "--seed", "1"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    for text in ("RankRLS, RBF kernel", "concordance", "NDCG@10", "Held-out query", "To try next"):
        assert text in out


def test_the_advertised_snippet_scales_and_ranks_well(capsys):
    """The last lines of the demo are a program that runs, and it holds out better than raw features do."""
    from preflearn import RankRLSCV
    from preflearn.datasets import load_demo

    assert run(["demo"]) == 0
    lines = capsys.readouterr().out.split("In Python")[1].strip().splitlines()
    names: dict = {}
    *program, last = [line.strip() for line in lines if line.strip()]
    exec("\n".join(program), names)
    score, predictions = eval(last, names)
    X, y, qid, _ = load_demo()
    assert predictions.shape == y.shape
    assert score > 0.83 > RankRLSCV(kernel="rbf").fit(X, y, qid=qid).best_score_


def test_no_command_has_more_than_twenty_options():
    def commands(command, name):
        if hasattr(command, "commands") and not isinstance(command, app._Commands):
            return [
                found for part, one in command.commands.items() for found in commands(one, f"{name} {part}")
            ]
        return [(name, command)]

    group = app._Commands(name="preflearn")
    names = group.list_commands(None)
    found = [one for name in names for one in commands(group.get_command(None, name), name)]
    assert len(found) > len(names) > len(app.COMMANDS)
    for name, command in found:
        options = [one for one in command.params if one.param_type_name == "option" and one.name != "help"]
        assert len(options) <= 20, name


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_what_a_terminal_cannot_show_gets_a_substitute(encoding, tmp_path) -> None:
    environment = {**os.environ, "PYTHONIOENCODING": encoding, "LANG": "C"}
    table = tmp_path / "preise.csv"
    rows = "".join(f"{k % 5},{k // 5},{k * 7 % 11},Zażółć {k}\n" for k in range(60))
    table.write_text("target,qid,größe,name→\n" + rows, encoding="utf-8")
    for arguments in (
        ["demo"],
        ["look", str(table)],
        ["train", str(table), "-o", str(tmp_path / "m.preflearn"), "--kernel", "linear", "--drop", "żółć"],
        ["train", str(table), "-o", str(tmp_path / "m.preflearn"), "--kernel", "linear"],
        ["predict", str(tmp_path / "m.preflearn"), str(table)],
        ["evaluate", str(tmp_path / "m.preflearn"), str(table)],
    ):
        done = subprocess.run(
            [sys.executable, "-m", "preflearn", *arguments], capture_output=True, env=environment, timeout=120
        )
        said = done.stdout.decode(encoding) + done.stderr.decode(encoding)
        assert done.returncode == (2 if "żółć" in arguments else 0), said
        assert "Error" not in said and "Traceback" not in said
