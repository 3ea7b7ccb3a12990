"""Preferences on the command line and in files: texts and items, judges, calibration, length."""

from __future__ import annotations

import json

import numpy as np
import pytest

from preflearn import RankRLS
from preflearn.cli.app import run
from preflearn.io import load_model, read_text_preferences
from preflearn.model_selection import HeldOut, evaluate_preference_scores

GOOD, BAD = "clear precise helpful sourced".split(), "rude wrong vague guess".split()


def pairs_of_texts(n: int = 120, seed: int = 0) -> list[dict[str, str]]:
    rng = np.random.default_rng(seed)

    def text(good: bool) -> str:
        words = [f"w{k}" for k in rng.integers(0, 60, rng.integers(6, 20))]
        words += rng.choice(GOOD if good else BAD, 2).tolist()
        return " ".join(rng.permutation(words).tolist())

    rows = []
    for k in range(n):
        right = rng.random() < 0.9
        rows.append({"chosen": text(right), "rejected": text(not right), "judge": f"judge {k % 4}"})
    return rows


def write_lines(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


TEXTS = ("--chosen", "chosen", "--rejected", "rejected")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("texts")
    write_lines(folder / "prefs.jsonl", pairs_of_texts())
    write_lines(folder / "new.jsonl", pairs_of_texts(40, seed=1))
    status = run(
        ["train", str(folder / "prefs.jsonl"), *TEXTS, "--judge", "judge", "-o", str(folder / "m"), "-q"]
    )
    assert status == 0
    return folder


def test_texts_are_distinct_rows(tmp_path):
    rows = [
        {"a": "x y", "b": "z"}, {"a": "z", "b": "q"}, {"a": "z", "b": "z"},
        {"a": [{"role": "user", "content": "x"}, {"role": "assistant", "content": "y"}], "b": "q"},
    ]  # fmt: skip
    found = read_text_preferences(write_lines(tmp_path / "p.jsonl", rows), chosen="a", rejected="b")
    assert found.texts.tolist() == ["x y", "z", "q", "x\ny"] and found.n_equal == 1
    assert found.pairs.tolist() == [[0, 1], [1, 2], [3, 2]] and found.lengths.tolist() == [3, 1, 1, 3]


def test_csv_of_texts(tmp_path):
    path = tmp_path / "p.csv"
    path.write_text('chosen,rejected,w\n"one, two",three,1\nfour,three,2\n')
    found = read_text_preferences(path, weight="w")
    assert found.texts.tolist() == ["one, two", "three", "four"] and found.weight.tolist() == [1.0, 2.0]


@pytest.mark.parametrize(
    ("rows", "options", "says"),
    [
        ([{"chosen": "a", "rejected": ""}, {"chosen": " ", "rejected": "b"}], {}, "empty in every row"),
        ([{"chosen": "a", "other": "b"}], {}, "'rejected'"),
        ([{"chosen": "a", "rejected": "a"}], {}, "the same text in every row"),
        ([{"chosen": "a", "rejected": "b"}], {"judge": "chosen"}, "two roles"),
        ([{"chosen": {"x": 1}, "rejected": "b"}], {}, "expected a text"),
    ],
)
def test_faults_of_texts(tmp_path, rows, options, says):
    with pytest.raises(ValueError, match=says):
        read_text_preferences(write_lines(tmp_path / "p.jsonl", rows), **options)


def test_held_out_figures_are_those_of_the_library(folder, call, tmp_path):
    status, out, _ = call(
        "train", folder / "prefs.jsonl", *TEXTS, "--judge", "judge", "-o", tmp_path / "m", "--json",
        "--report", tmp_path / "r.html",
    )  # fmt: skip
    found = json.loads(out)
    assert status == 0
    texts = read_text_preferences(folder / "prefs.jsonl", judge="judge")
    data = texts.encode()
    learner = RankRLS(found["alpha_path"]["chosen"])
    share = HeldOut.of_pairs(learner, data.X, data.pairs).score()
    assert found["estimate"]["value"] == pytest.approx(float(np.ravel(share)[0]))
    by_judge = HeldOut.of_pairs(learner, data.X, data.pairs, groups=texts.judge).score()
    checks = {one["name"]: one["value"] for one in found["estimate"]["checks"]}
    assert float(checks["leave-judge-out"]) == pytest.approx(float(np.ravel(by_judge)[0]), abs=1e-4)
    rows = {one["name"]: one["value"] for one in found["baselines"]}
    longer = texts.lengths[data.pairs[:, 0]] - texts.lengths[data.pairs[:, 1]]
    assert rows["the longer text"] == pytest.approx(np.mean(0.5 + 0.5 * np.sign(longer)))
    assert found["calibration"]["error"] < 0.15 and sum(found["calibration"]["weight"]) == 120
    page = (tmp_path / "r.html").read_text()
    assert "Can its certainty be trusted?" in page and "leave-judge-out" in page


def test_the_saved_model_takes_texts(folder, call):
    model = load_model(folder / "m")
    good, bad = model.predict(["clear and precise", "rude and vague"])
    assert good > bad
    status, out, _ = call("predict", folder / "m", folder / "new.jsonl", *TEXTS, "--json")
    rows = [json.loads(line) for line in out.splitlines()]
    assert status == 0 and len(rows) == 40
    texts = [rows[0]["chosen"], rows[0]["rejected"]]
    difference = float(np.subtract(*model.predict(texts)))
    assert rows[0]["score"] == pytest.approx(difference)
    assert rows[0]["prefers"] == ("chosen" if difference > 0 else "rejected")


def test_evaluate_and_compare(folder, call, tmp_path):
    status, out, _ = call(
        "evaluate", folder / "m", folder / "new.jsonl", *TEXTS, "--judge", "judge", "--json"
    )
    found = json.loads(out)
    texts = read_text_preferences(folder / "new.jsonl")
    expected = evaluate_preference_scores(load_model(folder / "m").predict(texts.texts), texts.pairs)
    assert status == 0 and found["metrics"][0]["value"] == pytest.approx(expected.metrics[0].value)
    assert found["metrics"][1]["n_queries"] == 4 and "longer text" in found["notes"][-1]
    small = tmp_path / "small"
    write_lines(tmp_path / "few.jsonl", pairs_of_texts(30, seed=5))
    assert call("train", tmp_path / "few.jsonl", *TEXTS, "-o", small, "-q")[0] == 0
    status, out, _ = call("compare", folder / "new.jsonl", folder / "m", small, *TEXTS, "--json")
    found = json.loads(out)
    assert status == 0 and found["means"]["m"] == pytest.approx(expected.metrics[0].value)


def test_items_and_pairs_with_columns_of_any_kind(call, tmp_path):
    rng = np.random.default_rng(0)
    colours, sizes = rng.choice(["red", "blue", "green"], 40), rng.normal(size=40).round(2)
    worth = 2.0 * (colours == "red") + sizes
    pairs = rng.integers(0, 40, (150, 2))
    pairs = pairs[pairs[:, 0] != pairs[:, 1]]
    pairs = np.where((worth[pairs[:, 0]] > worth[pairs[:, 1]])[:, None], pairs, pairs[:, ::-1])
    items = tmp_path / "items.csv"
    items.write_text("item,colour,size\n" + "".join(f"i{k},{colours[k]},{sizes[k]}\n" for k in range(40)))
    table = tmp_path / "pairs.csv"
    table.write_text(
        "judge,loser,winner\n" + "".join(f"j{k % 3},i{b},i{a}\n" for k, (a, b) in enumerate(pairs))
    )
    model = tmp_path / "m"
    options = ("--preferences", table)
    assert call("train", items, *options, "--judge", "judge", "-o", model, "-q", "--kernel", "linear")[0] == 0
    status, out, _ = call("evaluate", model, items, *options, "--json")
    assert status == 0 and json.loads(out)["metrics"][0]["value"] > 0.95
    status, out, _ = call("predict", model, items, *options)
    assert (
        status == 0
        and out.splitlines()[0] == "winner,loser,score,prefers"
        and len(out.splitlines()) == 1 + len(pairs)
    )
    status, out, _ = call("predict", model, items)
    assert status == 0 and out.splitlines()[0] == "item,score,rank"
    scores = [float(line.split(",")[1]) for line in out.splitlines()[1:]]
    assert np.corrcoef(scores, worth)[0, 1] > 0.9


def test_options_that_would_be_ignored(folder, call, tmp_path):
    prefs = folder / "prefs.jsonl"
    for arguments, says in [
        (("train", prefs, "--chosen", "chosen", "-o", tmp_path / "x"), "--rejected"),
        (("train", prefs, *TEXTS, "--target", "judge", "-o", tmp_path / "x"), "--target"),
        (("train", prefs, *TEXTS, "--encode", "a=text", "-o", tmp_path / "x"), "--encode"),
        (("train", prefs, *TEXTS, "--learner", "rls", "-o", tmp_path / "x"), "--learner"),
        (("train", prefs, "--target", "chosen", "--judge", "judge", "-o", tmp_path / "x"), "--judge"),
        (("train", prefs, *TEXTS, "--preferences", prefs, "-o", tmp_path / "x"), "one of them"),
        (("predict", folder / "m", prefs, "--no-query"), "--chosen"),
        (("evaluate", folder / "m", prefs, *TEXTS, "--metric", "map"), "--metric"),
    ]:
        status, out, err = call(*arguments)
        assert (status, out, err.count("\n")) == (2, "", 1) and says in err, err


def test_evaluate_preference_scores_counts_ties_half():
    found = evaluate_preference_scores([1.0, 1.0, 0.0], [[0, 1], [0, 2]], judge=["a", "b"])
    assert found.metrics[0].value == 0.75 and found.metrics[1].value == 0.75
    with pytest.raises(ValueError, match="one label per preference"):
        evaluate_preference_scores([1.0, 0.0], [[0, 1]], judge=["a", "b"])
