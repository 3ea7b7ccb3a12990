"""Nine newcomers, each from their first command to what they came for, without a stumble.

The README, a messy table, patients with several visits, a page of comparisons in a browser, chosen and rejected texts,
scikit-learn, a notebook, drugs and targets, the docs. ``pytest tests/test_newcomers.py -v`` plays them, with a browser
where Chromium is there.
"""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from preflearn.datasets import load_demo

ROOT = Path(__file__).resolve().parents[1]
FAST = ("--kernel", "linear")


@pytest.fixture(autouse=True)
def in_a_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def ok(call):
    """Run a command that must succeed; what it printed."""

    def ok(*arguments) -> str:
        status, out, err = call(*arguments)
        assert status == 0, err
        return out

    return ok


def test_from_the_readme(ok):
    """The commands of the README, as they are written there, but for the learner, which is fast here."""
    block = re.search(
        r"```bash\n(\. \.venv.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL
    )
    assert block is not None
    commands = [shlex.split(line) for line in block[1].splitlines() if line.startswith("preflearn ")]
    assert [words[1] for words in commands] == ["demo", "look", "train"]
    for words in commands:
        ok(*words[1:], *(FAST if words[1] == "train" else ()))
    assert Path("report.html").is_file() and Path("shop.preflearn").is_file()
    ok(*commands[-1][1:], *FAST)  # again, without being told that the model exists
    assert "concordance" in ok("evaluate", "shop.preflearn", "shop.csv")


def test_with_a_messy_table(ok, call):
    """A German spreadsheet: semicolons, Windows-1252, decimal commas, missing values, a leak, a typing mistake."""
    rng = np.random.default_rng(0)
    lines = ["Sitzung;Größe;Preis;Farbe;Verweildauer;note"]
    for k in range(120):
        size, grade = rng.normal(), rng.integers(0, 4)
        price = "" if k % 9 == 0 else f"{3 + grade + rng.normal():.2f}".replace(".", ",")
        lines.append(
            f"s{k // 8};{size:.2f};{price};{rng.choice(['grün', 'weiß'])};{10 * grade + rng.random():.2f};{grade}"
        )
    Path("liste.csv").write_bytes("\n".join(lines).encode("cp1252"))
    seen = ok("look", "liste.csv", "--target", "note", "--report", "look.html")
    assert "`Verweildauer` alone orders 100 %" in seen and "Windows-1252" in seen
    status, _, err = call("train", "liste.csv", "--target", "Note")
    assert status == 2 and "found 'Sitzung'" in err
    train = ("train", "liste.csv", "--target", "note", "--query", "Sitzung", *FAST, "--json")
    assert "Verweildauer" in json.loads(ok(*train, "--report", "r.html"))["verdict"]
    honest = json.loads(ok(*train, "--drop", "Verweildauer"))
    lines[5], lines[9] = lines[5][:-1], lines[9][:-1] + "n.b."
    Path("liste.csv").write_bytes("\n".join(lines).encode("cp1252"))
    status, _, err = call(*train)
    assert status == 2 and "line 6" in err and "line 10 ('n.b.')" in err and "--skip-bad" in err
    notes = " ".join(json.loads(ok(*train, "--skip-bad", "--report", "r.html"))["notes"])
    assert "2 rows were left out of 120" in notes and "line 6" in notes and "('n.b.')" in notes
    assert "2 rows were left out of 120" in Path("r.html").read_text()
    evaluated = ok("evaluate", "liste.preflearn", "liste.csv", "--skip-bad", "--json")
    assert "2 rows were left out" in evaluated
    ok("predict", "liste.preflearn", "liste.csv", "-o", "scores.csv")
    known = json.loads(evaluated)["metrics"]
    assert (
        json.loads(
            ok(
                "evaluate",
                "scores.csv",
                "liste.csv",
                "--target",
                "note",
                "--query",
                "Sitzung",
                "--skip-bad",
                "--json",
            )
        )["metrics"]
        == known
    )
    lines = Path("scores.csv").read_text().splitlines()
    Path("scores.csv").write_text("\n".join([*lines, lines[-1]]))
    status, _, err = call("evaluate", "scores.csv", "liste.csv", "--target", "note", "--skip-bad")
    assert status == 2 and "121 scores for 120 rows" in err
    assert honest["leaks"] == [] and honest["estimate"]["value"] < 0.95
    assert "Preis" in honest["influence"]["names"]


def test_with_patients_who_came_several_times(ok, call):
    """A researcher: sixty patients, a coin toss for each, features that tell patients apart, and a paper to write."""
    from preflearn import AutoRanker
    from preflearn.errors import DependenceWarning
    from preflearn.io import read_table
    from preflearn.model_selection import permutation_test

    rng = np.random.default_rng(0)
    for name, n in (("patients", 60), ("later", 40)):
        visits = np.repeat(np.arange(n), rng.integers(3, 7, size=n))
        profile, ill = rng.normal(size=(n, 4)), rng.permutation(n) % 2
        blood = profile[visits] + 0.1 * rng.normal(size=(visits.size, 4))
        lines = [
            ",".join([f"{name}{patient}", *(f"{value:.3f}" for value in row), str(ill[patient])])
            for patient, row in zip(visits, blood, strict=True)
        ]
        Path(f"{name}.csv").write_text("\n".join(["patient,a,b,c,d,outcome", *rng.permutation(lines)]))
    seen = ok("look", "patients.csv", "--target", "outcome")
    assert seen.startswith("Rows with the same `patient` depend on each other (60 groups")
    assert "--group patient" in seen.split("Columns")[0]
    train = ("train", "patients.csv", "--target", "outcome", "--kernel", "rbf")
    naive = json.loads(ok(*train, "--drop", "patient", "--json", "-o", "naive.preflearn"))["estimate"]
    honest = json.loads(ok(*train, "--group", "patient", "--json", "--report", "paper.html"))
    assert naive["value"] > 0.85  # that would have been published
    low, high = honest["estimate"]["interval"]
    assert low < 0.5 < high and honest["estimate"]["value"] < 0.65 and honest["counts"]["groups"] == 60
    assert "60 groups" in Path("paper.html").read_text()
    evaluated = json.loads(
        ok(
            "evaluate",
            "patients.preflearn",
            "later.csv",
            "--group",
            "patient",
            "--metric",
            "auc",
            "--no-query",
            "--json",
        )
    )
    low, high = evaluated["metrics"][0]["interval"]
    assert evaluated["groups"] == 40 and low < 0.5 < high
    measured = ok("evaluate", "patients.preflearn", "later.csv", "--group", "patient")
    assert "40 groups" in measured and ok("evaluate", "patients.preflearn", "later.csv") == measured
    assert "groups" not in ok("evaluate", "patients.preflearn", "later.csv", "--drop", "patient")
    status, _, err = call("evaluate", "patients.preflearn", "later.csv", "--group", "person")
    assert status == 2 and "--group asks for column 'person'" in err
    # the same in Python
    table = read_table("patients.csv", target="outcome")
    frame = {name: column for name, column in table.columns.items() if name != "patient"}
    rows, y, patient = np.column_stack([*frame.values()]).astype(float), table.y, table.columns["patient"]
    pandas = pytest.importorskip("pandas")
    model = AutoRanker(preset="fast", random_state=0)
    with pytest.warns(DependenceWarning, match="60 groups"):
        model.fit(pandas.DataFrame({"patient": patient, **frame}), y)
    found = model.fit(rows, y, groups=patient).estimate_
    assert found.interval[0] < 0.5 < found.interval[1]
    text = found.describe()
    assert "Methods." in text and "60 groups" in text and "References." in text
    test = permutation_test(
        model.set_params(preset="fast"), rows, y, groups=patient, n_permutations=19, random_state=0
    )
    assert test.pvalue > 0.05


def test_at_a_page_of_comparisons(ok, tmp_path):
    pytest.importorskip("uvicorn", reason="the extra 'web' is not installed")
    from tests.browser import Browser, find_browser
    from tests.web_server import Running

    if find_browser() is None:
        pytest.skip("no Chromium on this machine")
    rows = [f"flat {k},{20 + 10 * k},https://example.org/{k}" for k in range(5)]
    Path("flats.csv").write_text("\n".join(["name,size,url", *rows]) + "\n")
    options = ("--answers", "said.jsonl", "--no-open", "--judge", "ann", "--port", "0")
    asked = ("--question", "Which flat would you rent?", "--note")
    with (
        Running("ask", "flats.csv", *options, *asked, cwd=tmp_path) as server,
        Browser(tmp_path / "b") as page,
    ):
        page.open(server.address, width=390, scheme="dark")
        for _ in range(6):
            page.wait_for("document.body.dataset.question")
            before = page.evaluate("document.body.dataset.question")
            name = "document.querySelector('#{}-content .name').innerText"
            sides = [page.evaluate(name.format(side)) for side in ("left", "right")]
            time.sleep(0.15)
            page.click("#choose-left" if sides[0] > sides[1] else "#choose-right")
            page.wait_for(f"document.body.dataset.question !== '{before}'")
        assert page.complaints == []
        server.stop()
    found = json.loads(
        ok("train", "flats.csv", "--preferences", "said.jsonl", "--features", "size", "--json")
    )
    assert found["counts"]["preferences"] == 6
    ok("ask", "flats.csv", "--answers", "said.jsonl", "--export", "dpo.jsonl")
    assert json.loads(Path("dpo.jsonl").read_text().splitlines()[0])["chosen"].startswith("flat ")
    scores = ok("predict", "flats.preflearn", "flats.csv").splitlines()
    assert scores[0].startswith("name,score,rank") and scores[-1].endswith(",1")


def test_with_chosen_and_rejected_texts(ok):
    rng = np.random.default_rng(0)
    records = [
        {
            "prompt": f"question {k // 3}",
            "chosen": "clear " + " ".join(rng.choice(["exact", "kind", "short"], 3)),
            "rejected": "" if k == 5 else "vague " + " ".join(rng.choice(["wrong", "rude", "long"], 3)),
        }
        for k in range(30)
    ]
    Path("prefs.jsonl").write_text("".join(json.dumps(one) + "\n" for one in records))
    assert "chosen" in ok("look", "prefs.jsonl")
    trained = " ".join(ok("train", "prefs.jsonl", "--report", "report.html").split())
    assert "1 row with an empty text was left out" in trained and "prompt" in trained
    Path("candidates.csv").write_text("prompt,text\nq,vague rude\nq,clear exact\n")
    lines = [line.split(",") for line in ok("predict", "prefs.preflearn", "candidates.csv").splitlines()]
    assert [(line[1], line[-1]) for line in lines] == [
        ("text", "rank"),
        ("vague rude", "2"),
        ("clear exact", "1"),
    ]
    assert ok("predict", "prefs.preflearn", "prefs.jsonl").startswith("prompt,chosen,rejected,score,prefers")


def test_from_scikit_learn():
    import sklearn
    from sklearn.model_selection import GridSearchCV
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    from preflearn import RankRLS
    from preflearn.io import load_model, save_model
    from preflearn.model_selection import QueryKFold

    X, y, qid, _ = load_demo()
    sizes = np.unique(qid, return_counts=True)[1]
    with pytest.raises(ValueError, match="np.repeat"):
        RankRLS().fit(X, y, qid=sizes)
    with sklearn.config_context(enable_metadata_routing=True):
        search = GridSearchCV(
            make_pipeline(StandardScaler(), RankRLS()), {"rankrls__alpha": [1.0, 100.0]}, cv=QueryKFold(3)
        ).fit(X, y, qid=qid)
    save_model(search.best_estimator_, "model.preflearn")
    ranks = load_model("model.preflearn").rank(X, qid=qid)
    assert (ranks[qid == qid[0]] == 1).sum() == 1
    for name in ("group", "eval_set"):  # as LightGBM and XGBoost take them
        with pytest.raises(TypeError, match="qid=np.repeat" if name == "group" else "cross-validation"):
            RankRLS().fit(X, y, **{name: sizes})
    polars = pytest.importorskip("polars")
    with pytest.raises(TypeError, match=r"pass X.collect\(\)"):
        RankRLS().fit(polars.DataFrame(X).lazy(), y, qid=qid)
    broken = X.copy()
    broken[0, 0] = np.nan
    with pytest.raises(ValueError, match="AutoRanker accepts missing values"):
        RankRLS().fit(broken, y, qid=qid)


def test_a_first_figure_compiles_nothing():
    """Compiling took most of the time of the first concordance and of the demo."""
    code = (
        "import sys, numpy as np; from preflearn.metrics import concordance, kendall_tau; "
        "from preflearn.datasets import load_demo; data = load_demo(); "
        "print(concordance(data.y, data.X[:, 0], data.qid), kendall_tau([3, 2, 1], [1, 3, 2]), 'numba' in sys.modules)"
    )
    out = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    assert out[2] == "False" and 0.5 < float(out[0]) < 0.7


def test_from_choix():
    """A list of pairs, the winner first, is a list of battles."""
    from preflearn import rate

    pairs = [(0, 1), (1, 2), (0, 2), (2, 1), (0, 1)]
    named = rate({"winner": [a for a, _ in pairs], "loser": [b for _, b in pairs]})
    for given in (pairs, np.array(pairs)):
        assert rate(given).scores == named.scores
    assert rate([("tea", "milk"), ("milk", "tea"), ("tea", "rum")]).table["item"][0] == "tea"


def test_in_a_notebook():
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("matplotlib").use("Agg")
    from preflearn import AutoRanker
    from preflearn.report import look

    X, y, qid, names = load_demo()
    few = np.isin(qid, np.unique(qid)[:12])
    table = pandas.DataFrame(X[few], columns=list(names))
    assert "<table" in look(table.assign(session=qid[few], grade=y[few]))._repr_html_()
    with pytest.warns(UserWarning, match="Column 'grade' of X equals y"):  # the whole frame, as one does
        AutoRanker(preset="fast", random_state=0, time_limit=0.1).fit(
            table.assign(grade=y[few]), y[few], qid=qid[few]
        )
    model = AutoRanker(preset="fast", random_state=0).fit(table, y[few], qid=qid[few])
    assert "<table" in model.leaderboard_._repr_html_() and model.leaderboard_.plot().has_data()
    assert model.explain(table, [0, 1], qid=qid[few]).shape == (2, 4 + len(names))
    report = model.report("report.html")
    assert "What was tried" in Path("report.html").read_text()
    assert len(repr(report)) < 1500 and report.verdict in repr(report)
    assert report._repr_html_().startswith("<iframe srcdoc=") and "What was tried" in report._repr_html_()


def test_with_drugs_and_targets(ok, call):
    rng = np.random.default_rng(0)
    kinds, u = rng.choice(["acid", "base"], 12), rng.normal(size=8).round(3)
    Path("drugs.csv").write_text("drug,class\n" + "".join(f"d{i},{kind}\n" for i, kind in enumerate(kinds)))
    Path("targets.csv").write_text("target,u\n" + "".join(f"t{j},{one}\n" for j, one in enumerate(u)))
    known = [(i, j) for i in range(12) for j in range(8) if (i + j) % 4]
    lines = [f"d{i},t{j},{(1 if kinds[i] == 'acid' else -1) * u[j]:.3f}\n" for i, j in known]
    Path("measured.csv").write_text("drug,target,affinity\n" + "".join([*lines, lines[0]]))
    tables = ("--rows", "drugs.csv", "--columns", "targets.csv", "--pairs", "measured.csv")
    status, _, err = call("relate", *tables)
    assert status == 2 and "'d0' and 't1'" in err and "--duplicates mean" in err
    shown = ok(
        "relate", *tables, "--duplicates", "mean", "--report", "page.html", "--set", "alphas=0.01,0.1,1"
    )
    assert "95 % interval" in shown and "bold" not in shown and "row, column means" in shown
    Path("wanted.csv").write_text("drug,target\nd3,t2\n")
    wanted = ok("predict", "measured.preflearn", "drugs.csv", "targets.csv", "wanted.csv")
    assert len(wanted.splitlines()) == 2
    assert "Pairs without a label" in Path("page.html").read_text()
    assert len(ok("predict", "measured.preflearn", "drugs.csv", "targets.csv").splitlines()) == 97
    assert "concordance" in ok("evaluate", "measured.preflearn", "drugs.csv", "targets.csv", "measured.csv")


def test_in_the_docs():
    """Pictures that pages show are there, and every command that they show exists."""
    from preflearn.cli.app import COMMANDS, MOVED_COMMANDS

    pages = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    for page in pages:
        text = page.read_text(encoding="utf-8")
        for target in re.findall(r"!\[[^\]]*\]\(([^)]+)\)", text):
            if not target.startswith("http"):
                assert (page.parent / target).is_file(), f"{page.name}: {target}"
        for command in re.findall(r"^\$ preflearn ([a-z]+)", text, re.MULTILINE):
            assert command in (*COMMANDS, *MOVED_COMMANDS), f"{page.name}: preflearn {command}"
    for name in (
        "automatic",
        "performance_estimation",
    ):  # a page that answers; what is measured stands on another one
        text = (ROOT / f"docs/user_guide/{name}.md").read_text(encoding="utf-8")
        assert len(text.split()) < 800 and "](../_static/" in text
        assert (
            ROOT / f"docs/user_guide/{name}_in_detail.md"
        ).is_file() and f"{{doc}}`{name}_in_detail`" in text
