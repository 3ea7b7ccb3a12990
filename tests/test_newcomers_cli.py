"""What made newcomers stop on the command line, each with its remedy."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import numpy as np
import pytest

from preflearn.auto.training.conclusions import telling_words
from test_look import shop_table, write_csv

LINEAR = ("--target", "grade", "--query", "session", "--learner", "rankrls", "--kernel", "linear")


@pytest.fixture(scope="module")
def shop(tmp_path_factory) -> Path:
    """A table with a brand and a title, one word of which is good."""
    table = shop_table(leak=False)
    rng = np.random.default_rng(3)
    words = rng.choice(["red", "blue", "large", "small", "chair", "lamp"], (len(table["grade"]), 4))
    titles = [" ".join(row) + (" genuine" if grade >= 3 else "") for row, grade in zip(words, table["grade"])]
    return write_csv(tmp_path_factory.mktemp("shop") / "shop.csv", {"title": titles, **table})


def test_influence_is_shown_by_input_column(shop, call, tmp_path):
    command = ("train", shop, *LINEAR, "--encode", "title=words:64", "-o", tmp_path / "m.preflearn", "--json")
    found = json.loads(call(*command)[1])
    names = found["influence"]["names"]
    assert {"brand", "title", "rating"} <= {*names} and not any("#" in name or "=" in name for name in names)
    assert "Words of `title` that go with scores that are high: genuine" in found["influence_note"]
    by_name = dict(zip(names, found["influence"]["values"]))
    assert by_name["title"] == max(by_name.values()) > 0


def test_influence_of_columns_when_shuffled(shop, call, tmp_path):
    command = (
        "train",
        shop,
        *LINEAR[:-1],
        "rbf",
        "--drop",
        "title",
        "-o",
        tmp_path / "m.preflearn",
        "--json",
    )
    found = json.loads(call(*command)[1])
    assert "brand" in found["influence"]["names"] and "rating" in found["influence"]["names"]


def test_the_spread_of_a_column_is_that_of_its_contribution():
    from preflearn.auto.training.conclusions import InputColumns

    rng = np.random.default_rng(0)
    Z, coef = rng.normal(size=(50, 4)), np.array([1.0, -2.0, 0.5, -1.0])
    columns = InputColumns(["a", "b"], np.array([0, 1, 1, 1]), {})
    assert columns.spreads(Z, coef) == pytest.approx([Z[:, 0].std(), (Z[:, 1:] @ coef[1:]).std()])
    assert InputColumns(["a"], np.array([0]), {}).spreads(-Z[:, :1], -coef[:1]) == pytest.approx(
        [-Z[:, 0].std()]
    )
    assert columns.sums(np.array([1.0, 2.0, 3.0, 4.0])).tolist() == [1, 9]


def test_words_of_noise_are_not_named():
    rng = np.random.default_rng(1)
    texts = np.array([" ".join(rng.choice(list("abcdefghij"), 3)) for _ in range(300)], dtype=object)
    assert telling_words(texts, rng.normal(size=300)) == ([], [])


def test_words_say_that_they_replace_the_candidates(shop, call, tmp_path):
    roles = ("--target", "grade", "--query", "session", "--encode", "title=words:2000")
    found = json.loads(call("train", shop, *roles, "-o", tmp_path / "m.preflearn", "--json")[1])
    assert any(
        "instead of the candidates" in note and "--encode title=text" in note for note in found["notes"]
    )
    assert not any("constant" in note and "title#" in note for note in found["notes"])


def test_columns_are_checked_before_files(shop, call, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "shop.preflearn").write_bytes(b"something else")
    status, _, err = call("train", shop, "--target", "graed")
    assert status == 2 and "--target asks for column 'graed'" in err


def test_compare_takes_models_and_data_in_either_order(shop, call, tmp_path):
    for name, learner in (("a", "rankrls"), ("b", "rls")):
        command = ("train", shop, *LINEAR[:4], "--learner", learner, "--kernel", "linear", "--drop", "title")
        assert call(*command, "-o", tmp_path / f"{name}.preflearn", "-q")[0] == 0
    a, b, scores = tmp_path / "a.preflearn", tmp_path / "b.preflearn", tmp_path / "scores.csv"
    assert call("predict", b, shop, "-o", scores, "-q")[0] == 0
    usual = json.loads(call("compare", shop, a, b, "--json")[1])
    for order in ((a, shop, b), (a, b, shop)):
        assert json.loads(call("compare", *order, "--json")[1]) == usual
    assert json.loads(call("compare", a, scores, shop, "--json")[1])["means"].keys() == {
        "a.preflearn",
        "scores.csv",
    }


def test_evaluate_names_the_target_of_the_training(shop, call, tmp_path):
    model = tmp_path / "m.preflearn"
    assert call("train", shop, *LINEAR, "--drop", "title", "-o", model, "-q")[0] == 0
    assert call("evaluate", model, shop)[0] == 0  # without --target
    table = shop_table(leak=False)
    del table["grade"]
    status, _, err = call(
        "evaluate", model, write_csv(tmp_path / "new.csv", {"title": table["brand"], **table})
    )
    assert status == 2 and "was trained on the target 'grade', which is not there" in err


def test_demo_writes_a_table_for_the_other_commands(call, tmp_path):
    path = tmp_path / "shop.csv"
    status, out, _ = call("demo", "--write", path)
    assert status == 0 and "--target grade --query session" in out
    assert call("demo", "--write", path)[0] == 0
    status, out, _ = call("look", path, "--json")
    found = json.loads(out)
    assert (found["target"], found["query"], found["item"], found["n_rows"]) == (
        "grade",
        "session",
        "item",
        719,
    )
    path.write_text("mine\n1\n")
    assert call("demo", "--write", path)[0] == 2 and path.read_text() == "mine\n1\n"
    assert call("demo", "--write", path, "--json")[0] == 2


def test_missing_extras_are_named_with_the_line_that_installs_them(call, tmp_path, monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "jinja2", None)
    path = write_csv(tmp_path / "shop.csv", shop_table())
    status, _, err = call("look", path, "--report", tmp_path / "look.html")
    assert status == 2 and "pip install 'preflearn[plots]'" in err


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"rows": 1}, "1 sample(s), and a row alone shows no differences: expected two rows or more"),
        ({"grade": lambda k: 10**30 + k}, "all targets are 1e+30 in the 16 digits that are read"),
        ({"grade": lambda k: 10**400 + k}, "numbers that are too large"),
    ],
)
def test_targets_that_cannot_be_told_apart(call, tmp_path, change, words):
    """One line that says what was found, also for numbers that no float64 holds."""
    table = shop_table(leak=False)
    if "rows" in change:
        table = {name: values[: change["rows"]] for name, values in table.items()}
    else:
        table["grade"] = [change["grade"](k) for k in range(len(table["grade"]))]
    path = write_csv(tmp_path / "shop.csv", table)
    status, _, error = call("train", path, "--target", "grade", "--query", "session")
    assert status == 2 and words in error and error.count("\n") == 1


@pytest.mark.parametrize(
    ("grade", "note"),
    [("", "The target 'grade' has no values"), ("2", "All targets are 2: there is no order to learn")],
)
def test_look_recommends_no_command_that_is_refused(call, tmp_path, grade, note):
    table = shop_table(leak=False)
    path = write_csv(tmp_path / "shop.csv", {**table, "grade": [grade] * len(table["grade"])})
    _, shown, _ = call("look", path, "--target", "grade")
    text = " ".join(shown.split())
    assert note in text and "To train on it" not in text and "`grade` has one value" not in text


def test_look_proposes_what_train_takes(call, tmp_path, monkeypatch):
    """Missing targets are left out, copies are named by both; labels as targets get words instead of a command."""
    monkeypatch.chdir(tmp_path)
    table = shop_table(leak=False)
    rows = [list(row) for row in zip(*table.values())]
    rows += [list(rows[k]) for k in range(30)]
    rows[3][list(table).index("grade")] = ""
    path = write_csv(tmp_path / "shop.csv", dict(zip(table, map(list, zip(*rows)))))
    found = json.loads(call("look", path, "--json")[1])
    notes = " ".join(found["notes"])
    # The row without a target is no longer a copy.
    assert "1 row has no target that can be read" in notes and "29 rows are copies of earlier ones" in notes
    words = shlex.split(found["command"])
    assert words[-1] == "--skip-bad"
    status, out, err = call(*words[1:], "--kernel", "linear", "--json")
    assert status == 0, err
    assert "29 rows are copies of earlier ones" in " ".join(json.loads(out)["notes"])
    table["grade"] = ["good" if grade > 1 else "bad" for grade in table["grade"]]
    path = write_csv(tmp_path / "labels.csv", table)
    found = json.loads(call("look", path, "--target", "grade", "--json")[1])
    asked = "--target grade=bad or --target grade=good"
    assert found["command"] == "" and asked in " ".join(found["notes"])
    found = json.loads(call("look", path, "--target", "grade=good", "--json")[1])
    words = shlex.split(found["command"])
    assert words[3:5] == ["--target", "grade=good"]
    good, bad = (
        json.loads(call(*words[1:4], f"grade={label}", *words[5:], *LINEAR[4:], "--json")[1])["estimate"][
            "value"
        ]
        for label in ("good", "bad")
    )
    assert good == pytest.approx(bad) and good > 0.6  # the same order, read from the other end
    assert (
        "concordance  " in (told := call("evaluate", "labels.preflearn", path)[1])
        and "targets 0 to 1" in told
    )
    status, _, err = call("train", path, "--target", "grade")
    assert (
        status == 2 and "Pass --target grade=bad where 'bad' is to come first, or --target grade=good" in err
    )
    status, _, err = call("train", path, "--target", "grade=best")
    assert status == 2 and "--target asks for 'best'" in err and "which holds 'bad', 'good'" in err
    assert call("train", path, "--target", "grade")[0] == 2


def small_table(folder: Path, name: str = "small.csv", **changed) -> Path:
    """Ten queries of six rows with two features, and what a test changes or adds (None leaves out)."""
    rng = np.random.default_rng(0)
    columns = {
        "qid": [f"q{k // 6}" for k in range(60)],
        "a": rng.normal(size=60).round(3),
        "b": rng.normal(size=60).round(3),
        "target": rng.integers(0, 4, 60),
    }
    return write_csv(folder / name, {k: v for k, v in (columns | changed).items() if v is not None})


@pytest.mark.parametrize("frame", ["file", "pandas"])
def test_ids_of_64_bits_are_counted_as_they_are(call, tmp_path, frame):
    """float64 makes one query of ten, one document of two, and features of both."""
    ids = {
        "qid": [1_200_000_000_000_000_000 + k // 6 for k in range(60)],
        "doc_id": [2**53 + k for k in range(60)],
    }
    path = small_table(tmp_path, **ids)
    if frame == "pandas":
        pandas = pytest.importorskip("pandas")
        from preflearn.report import look

        found = look(pandas.read_csv(path)).to_dict()
    else:
        found = json.loads(call("look", path, "--json")[1])
    columns = {one["name"]: one for one in found["columns"]}
    assert found["queries"]["queries"] == 10 and columns["qid"]["n_distinct"] == 10
    assert columns["doc_id"]["n_distinct"] == 60 and columns["doc_id"]["kind"] == "identifier"
    assert not any("one value" in note for note in found["notes"])
    model = tmp_path / "m.preflearn"
    trained = json.loads(call("train", path, "--kernel", "linear", "--json", "-o", model)[1])
    assert trained["counts"]["queries"] == 10 and trained["influence"]["names"] == ["a", "b"]
    assert call("predict", model, path)[1].splitlines()[-1].startswith("1200000000000000009,")


@pytest.mark.parametrize("filled", [30, 1])
def test_new_letor_files_may_be_sparser_or_denser_than_the_training(call, tmp_path, filled):
    """A file that is mostly zeros is read as a sparse matrix, which a model of dense ones refused."""
    rng = np.random.default_rng(0)

    def letor(name: str, filled: int) -> Path:
        cells = [sorted(rng.choice(np.arange(1, 31), filled, replace=False)) for _ in range(60)]
        rows = [
            f"{k % 3} qid:{k // 6} " + " ".join(f"{j}:{rng.random():.3f}" for j in on)
            for k, on in enumerate(cells)
        ]
        (tmp_path / name).write_text("\n".join([*rows, "1 qid:10 30:1", "0 qid:10 1:1"]) + "\n")
        return tmp_path / name

    model = tmp_path / "m.preflearn"
    assert call("train", letor("train.txt", filled), "--kernel", "linear", "-o", model, "-q")[0] == 0
    new = letor("new.txt", 31 - filled)
    status, out, err = call("predict", model, new)
    assert status == 0 and err == ""
    from preflearn.io import load_model, read_ranking

    X = read_ranking(new, n_features=30, sparse=filled == 1).X
    scores = [float(line.split(",")[1]) for line in out.splitlines()[1:]]
    np.testing.assert_allclose(scores, load_model(model).predict(X), rtol=1e-9, atol=1e-12)
    table = small_table(tmp_path)
    assert (
        "expected files of one kind" in (said := call("train", table, new)[2]) and "read_ranking" not in said
    )


def test_look_recognises_battles(call, tmp_path):
    """It took "model_y" for a target, as the word y was in it."""
    battles = {
        "model_y": [1, 2] * 5,
        "left": ["x", "y"] * 5,
        "right": ["y", "x"] * 5,
        "winner": ["left", "tie"] * 5,
    }
    path = write_csv(tmp_path / "battles.csv", battles)
    found = json.loads(call("look", path, "--json")[1])
    assert found["target"] is None and found["command"] == "" and "preflearn rate" in found["notes"][0]
    assert call("rate", path)[0] == 0


def test_rows_without_a_query_are_left_out_where_asked(call, tmp_path):
    path = small_table(tmp_path, qid=["" if k % 10 == 0 else f"q{k // 6}" for k in range(60)])
    found = json.loads(call("look", path, "--json")[1])
    assert "6 rows have no query" in " ".join(found["notes"]) and found["queries"]["queries"] == 10
    status, _, err = call("train", path)
    assert status == 2 and "6 missing queries (line 2, line 12" in err and "Pass --skip-bad" in err
    words = [
        *shlex.split(found["command"])[1:],
        "--kernel",
        "linear",
        "-o",
        tmp_path / "m.preflearn",
        "--json",
    ]
    trained = json.loads(call(*words)[1])
    assert trained["counts"]["rows"] == 54 and "6 rows were left out of 60" in " ".join(trained["notes"])
    options = (tmp_path / "m.preflearn", path, "--skip-bad", "--json")
    measured = json.loads(call("evaluate", *options)[1])
    clean = small_table(tmp_path, "clean.csv", qid=[f"q{k // 6}" for k in range(60)]).read_text().splitlines()
    (tmp_path / "clean.csv").write_text(
        "\n".join([clean[0], *(row for k, row in enumerate(clean[1:]) if k % 10)])
    )
    same = json.loads(call("evaluate", options[0], tmp_path / "clean.csv", "--json")[1])
    assert measured["metrics"] == same["metrics"]
    assert sum("left out of 60" in note for note in measured["notes"]) == 1


@pytest.mark.parametrize("label", ["event", "group"])
def test_rows_without_an_event_or_a_group_are_left_out_where_asked(call, tmp_path, label):
    """`look` proposed a command that `train` refused, with or without --skip-bad."""
    rng = np.random.default_rng(1)
    gaps = {"event": ["" if k % 20 == 3 else str(k % 2) for k in range(60)]}
    if label == "group":
        gaps = {"patient": ["" if k % 20 == 3 else f"p{k // 4}" for k in range(60)]}
    changed = {"qid": None, "target": None, "time": rng.integers(1, 400, 60), **gaps}
    path = small_table(tmp_path, **changed)
    if label == "event":
        found = json.loads(call("look", path, "--json")[1])
        assert "3 rows have no `event`" in " ".join(found["notes"])
        words = shlex.split(found["command"])[1:]
        assert "--skip-bad" in words
    else:
        words = ["train", path, "--target", "time", "--group", "patient", "--skip-bad"]
    words += ["--kernel", "linear", "-o", tmp_path / "m.preflearn", "--json"]
    status, _, err = call(*[word for word in words if word != "--skip-bad"])
    assert (
        status == 2 and "3 missing labels (line 5, line 25, line 45)" in err and "--skip-bad to leave" in err
    )
    trained = json.loads(call(*words)[1])
    assert trained["counts"]["rows"] == 57 and "3 rows were left out of 60" in " ".join(trained["notes"])
    measured = json.loads(call("evaluate", tmp_path / "m.preflearn", path, "--skip-bad", "--json")[1])
    header, *rows = path.read_text().splitlines()
    (tmp_path / "clean.csv").write_text(
        "\n".join([header, *(row for k, row in enumerate(rows) if k % 20 != 3)])
    )
    same = json.loads(call("evaluate", tmp_path / "m.preflearn", tmp_path / "clean.csv", "--json")[1])
    assert measured["metrics"] == same["metrics"] and measured["groups"] == same["groups"]


@pytest.mark.parametrize(
    ("changed", "note"),
    [
        ({"a": [1] * 60, "b": [""] * 60}, "No column is left to learn from"),
        ({"a": None, "b": None}, "No column is left to learn from"),
        ({"qid": [f"q{k}" for k in range(60)]}, "60 of 60 queries have one row"),
        ({"target": [1] * 60}, "All targets are 1"),
        ({"target": ["NaN"] * 60}, "has no values"),
        ({"target": ["good"] * 60}, "All targets are good"),
    ],
)
def test_look_proposes_nothing_that_train_refuses(call, tmp_path, changed, note):
    path = small_table(tmp_path, **changed)
    found = json.loads(call("look", path, "--json")[1])
    assert found["command"] == "" and note in " ".join(found["notes"])
    assert call("train", path, "-o", tmp_path / "m.preflearn")[0] == 2


def test_what_spreadsheets_write(call, tmp_path):
    """The line that says what separates the cells, and files that are no tables of text."""
    text = small_table(tmp_path).read_text().replace(",", ";")
    for name, encoding in (("plain.csv", "utf-8-sig"), ("wide.csv", "utf-16")):
        (tmp_path / name).write_bytes(f"sep=;\r\n{text}".encode(encoding))
        found = json.loads(call("look", tmp_path / name, "--json")[1])
        assert found["n_rows"] == 60 and [one["name"] for one in found["columns"]] == [
            "qid",
            "a",
            "b",
            "target",
        ]
    (tmp_path / "plain.csv").write_text("sep=;\nqid;target\na;1;2\n")
    assert "line 3: found 3 cells, expected 2" in call("look", tmp_path / "plain.csv")[2]
    for name, words in (("book.xlsx", "is a spreadsheet: save its sheet as CSV"), ("folder", "is a folder")):
        if name == "folder":
            (tmp_path / name).mkdir()
        else:
            (tmp_path / name).write_bytes(b"PK")
        status, _, err = call("look", tmp_path / name)
        assert status == 2 and words in err and "--read" not in err


def test_look_asks_about_a_leak_before_there_is_a_model(call, tmp_path):
    table = shop_table(leak=False)
    rng = np.random.default_rng(0)
    table["clicks_after"] = [10 * grade + float(rng.normal(0, 5)) for grade in table["grade"]]
    found = json.loads(call("look", write_csv(tmp_path / "shop.csv", table), "--json")[1])
    (column,) = [one for one in found["columns"] if one["name"] == "clicks_after"]
    assert 0.9 < column["alone"] < 0.99
    assert found["notes"][0].startswith("`clicks_after` alone orders") and "--drop" in found["notes"][0]
    assert "--drop" not in found["command"]


def test_long_texts_are_texts_and_shown_in_short(call, tmp_path):
    """Prompts of a benchmark repeat: they are no categories, and none fills a verdict with its 200 characters."""
    rng = np.random.default_rng(0)
    words = "lamp chair wood good light room house city lake quick brown every".split()
    prompts = [" ".join(rng.choice(words, 35)) for _ in range(12)]
    quality = rng.normal(size=12)
    k = np.arange(240) // 20
    table = {"prompt": [prompts[one] for one in k], "length": rng.normal(size=240).round(3).tolist(),
             "target": (quality[k] + 0.3 * rng.normal(size=240)).round(3).tolist()}  # fmt: skip
    path = write_csv(tmp_path / "prompts.csv", table)
    found = json.loads(call("look", path, "--json")[1])
    assert next(one["kind"] for one in found["columns"] if one["name"] == "prompt") == "text"
    command = (
        "train",
        path,
        "--learner",
        "rankrls",
        "--kernel",
        "linear",
        "--report",
        tmp_path / "r.html",
        "-o",
    )
    for option in (("--no-query",), ("--query", "prompt")):
        status, out, err = call(*command, tmp_path / "m.preflearn", *option, "--force")
        assert status == 0, err
        page = (tmp_path / "r.html").read_text(encoding="utf-8")
        for one in prompts:
            assert one[:100] not in out and one[:100] not in page


CUT = """[...document.querySelectorAll('.wide')].filter(e => e.scrollWidth > e.clientWidth + 1)
  .map(e => e.getAttribute('aria-label'))"""


def test_no_table_of_a_page_is_cut_on_a_phone(call, tmp_path):
    from tests.browser import Browser, find_browser

    if find_browser() is None:
        pytest.skip("no Chromium on this machine")
    rng = np.random.default_rng(0)
    names = ["a-large-model-of-2024-04-09", "another-one-instruct-70b", "small", "medium"]
    lines = ["model_a,model_b,winner,topic"]
    for k in range(200):
        a, b = rng.choice(4, 2, replace=False)
        lines.append(f"{names[a]},{names[b]},{'model_a' if rng.random() < 0.6 else 'model_b'},{'xy'[k % 2]}")
    (tmp_path / "battles.csv").write_text("\n".join(lines) + "\n")
    shop = write_csv(tmp_path / "shop.csv", shop_table())
    trained = ("train", shop, "--target", "grade", "--query", "session", "--set", "time_limit=1", "-o")
    objects, pairs = (
        {"name": [f"object {k}" for k in range(8)], "x": rng.normal(size=8)},
        np.argwhere(np.eye(8) < 1),
    )
    sides = write_csv(tmp_path / "objects.csv", objects)
    labels = {"row": pairs[:, 0], "column": pairs[:, 1], "label": rng.normal(size=len(pairs))}
    labels |= {side: [f"object {k}" for k in labels[side]] for side in ("row", "column")}
    related = (
        "relate",
        "--rows",
        sides,
        "--columns",
        sides,
        "--pairs",
        write_csv(tmp_path / "pairs.csv", labels),
    )
    commands = [
        (*related, "-o", tmp_path / "r.preflearn"),
        ("look", shop),
        ("rate", tmp_path / "battles.csv", "--category", "topic"),
        (*trained, tmp_path / "m.preflearn"),
    ]
    with Browser(tmp_path / "b") as browser:
        for command in commands:
            page = tmp_path / f"{command[0]}.html"
            status, _, err = call(*command, "--report", page)
            assert status == 0, err
            browser.open(page, width=390, scheme="light")
            assert browser.evaluate(CUT) == [], command[0]
