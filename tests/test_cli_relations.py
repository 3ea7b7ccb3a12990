"""Relations in the command line: three tables in, a model, four settings and a report out."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest

from preflearn.cli.app import run
from preflearn.io import load_model
from preflearn.metrics import concordance
from preflearn.relations import KroneckerRLS, cross_val_predict
from preflearn.tables.preferences import read_relation


def write(path: Path, header: list[str], rows) -> Path:
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([header, *rows])
    return path


@pytest.fixture
def tables(tmp_path: Path) -> dict[str, Path]:
    rng = np.random.default_rng(0)
    drugs, targets = rng.normal(size=(12, 2)), rng.normal(size=(10, 3))
    Y = drugs @ rng.normal(size=(2, 3)) @ targets.T + 0.1 * rng.normal(size=(12, 10))
    measured = [
        (f"d{i}", f"t{j}", repr(float(Y[i, j]))) for i in range(12) for j in range(10) if (i + j) % 7 != 3
    ]
    return {
        "rows": write(
            tmp_path / "drugs.csv", ["drug", "a", "b"], [(f"d{i}", *x) for i, x in enumerate(drugs)]
        ),
        "columns": write(
            tmp_path / "targets.csv",
            ["target", "u", "v", "w"],
            [(f"t{j}", *x) for j, x in enumerate(targets)],
        ),
        "pairs": write(tmp_path / "measured.csv", ["drug", "target", "affinity"], measured),
    }


def arguments(tables: dict[str, Path]) -> list[str]:
    return [word for name, path in tables.items() for word in (f"--{name}", str(path))]


def test_progress_names_what_is_held_out_and_the_time_that_is_left(tables, tmp_path, capsys) -> None:
    options = ["-o", str(tmp_path / "model.preflearn"), "--set", "alphas=0.1,1", "--verbose"]
    assert run(["relate", *arguments(tables), *options]) == 0
    told = capsys.readouterr().err.splitlines()
    for how in ("single labels", "all labels of a row", "all labels of a column", "a row and a column"):
        first = f"preflearn: predictions with {how} held out"
        assert told.count(first) == 1
        left = [line for line in told if line.startswith(f"{first}: folds, about ")]
        assert left
        assert left[-1].endswith(" 0 s left")  # the last solution is counted


def test_train_predict_and_report(tables, tmp_path, capsys) -> None:
    model, page = tmp_path / "model.preflearn", tmp_path / "page.html"
    options = [
        "-o",
        str(model),
        "--report",
        str(page),
        "--kernel",
        "linear",
        "--set",
        "alphas=0.1,1",
        "--json",
    ]
    assert run(["relate", *arguments(tables), *options]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [row["new"] for row in found["settings"]] == [
        "the pair",
        "the row object",
        "the column object",
        "both objects",
    ]
    assert found["settings"][0]["chosen"] and found["settings"][0]["concordance"] > 0.75
    text = page.read_text()
    assert (
        "<svg" in text and "both objects" in text and "http://" not in text.replace("http://www.w3.org", "")
    )
    assert 'src="' not in text and "https://" not in text
    data = read_relation(*tables.values())
    rows, columns = ((X - X.mean(axis=0)) / X.std(axis=0) for X in (data.rows.X, data.columns.X))
    plain = KroneckerRLS(found["alpha"]).fit_pairs_of(
        rows, columns, data.row_index, data.column_index, data.y
    )
    np.testing.assert_allclose(
        load_model(model).predict(rows, columns), plain.predict(rows, columns), rtol=1e-6
    )
    Y = np.full((12, 10), np.nan)
    Y[data.row_index, data.column_index] = data.y
    alpha = found["settings"][1]["alpha"]
    F = cross_val_predict(KroneckerRLS(alpha), rows, columns, Y, hold_out="rows", cv=5)
    known = ~np.isnan(Y)
    assert found["settings"][1]["concordance"] == pytest.approx(concordance(Y[known], F[known]), abs=1e-3)

    out = tmp_path / "scores.csv"
    assert run(["predict", str(model), str(tables["rows"]), str(tables["columns"]), "-o", str(out)]) == 0
    with out.open() as file:
        scores = list(csv.DictReader(file))
    assert len(scores) == 120 and (scores[13]["row"], scores[13]["column"]) == ("d1", "t3")
    assert float(scores[13]["score"]) == pytest.approx(plain.predict(rows, columns)[1, 3], rel=1e-6)


def test_the_setting_is_chosen(tables, tmp_path, capsys) -> None:
    options = ["-o", str(tmp_path / "model"), "--hold-out", "both", "--set", "alphas=1,10"]
    assert run(["relate", *arguments(tables), *options]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "The model was chosen for what is new: both objects" in shown and "95 % interval" in shown


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (["--hold-out", "cells"], "'cells' is not one of 'entries'"),
        (["--learner", "rls"], "No such option: --learner"),
        (["--set", "n_basis=5"], "NAME is gamma or alphas"),
        (["--kernel", "linear", "--set", "gamma=1"], "--set gamma would be ignored"),
    ],
)
def test_options_that_make_no_sense(change, message, tables, tmp_path, capsys) -> None:
    assert run(["relate", *arguments(tables), "-o", str(tmp_path / "model"), *change]) == 2
    assert message in capsys.readouterr().err


def test_tables_that_do_not_match(tables, tmp_path, capsys) -> None:
    output = ["-o", str(tmp_path / "model")]
    assert run(["relate", "--rows", str(tables["rows"]), "--pairs", str(tables["pairs"]), *output]) == 2
    assert "Missing option '--columns'" in capsys.readouterr().err
    write(tables["pairs"], ["drug", "target", "affinity"], [("d1", "t1", 1.0), ("d99", "t1", 2.0)])
    assert run(["relate", *arguments(tables), *output]) == 2
    assert "'d99' (line 3) is not an object of" in capsys.readouterr().err
    write(tables["pairs"], ["drug", "target"], [("d1", "t1")])
    assert run(["relate", *arguments(tables), *output]) == 2
    assert "expected three: row object, column object, label" in capsys.readouterr().err


def test_train_names_the_command_for_relations(tables, tmp_path, capsys) -> None:
    typed = arguments(tables)
    for words in (typed, typed[2:] + typed[:2], [*typed, "--hold-out", "both"]):
        assert run(["train", *words, "-o", str(tmp_path / "model")]) == 2
        err = capsys.readouterr().err
        assert "preflearn relate --rows FILE --columns FILE --pairs FILE" in err and err.count("\n") == 1
    assert not (tmp_path / "model").exists()


# ------------------------------------------------------------------------------------------ tables as people have them


@pytest.fixture
def mixed(tmp_path: Path) -> dict[str, Path]:
    """Drugs with a class and a missing value; one pair measured twice."""
    rng = np.random.default_rng(1)
    kinds = rng.choice(["acid", "base"], 14)
    drugs, targets = rng.normal(size=14).round(3), rng.normal(size=(9, 2)).round(3)
    Y = np.where(kinds == "acid", 1.0, -1.0)[:, None] * targets[:, 0] + 0.3 * drugs[:, None] * targets[:, 1]
    rows = [(f"d{i}", kinds[i], "" if i == 3 else drugs[i], f"note {i}") for i in range(14)]
    measured = [
        (f"d{i}", f"t{j}", round(Y[i, j], 4)) for i in range(14) for j in range(9) if (i + j) % 5 != 3
    ]
    objects = [(f"t{j}", *x) for j, x in enumerate(targets)]
    return {
        "rows": write(tmp_path / "drugs.csv", ["drug", "class", "mass", "lab_note"], rows),
        "columns": write(tmp_path / "targets.csv", ["target", "u", "v"], objects),
        "pairs": write(tmp_path / "measured.csv", ["drug", "target", "affinity"], [*measured, measured[0]]),
    }


def test_categories_missing_values_and_duplicates(mixed, tmp_path, call) -> None:
    model, page = tmp_path / "m.preflearn", tmp_path / "page.html"
    command = ["relate", *arguments(mixed), "-o", model, "--report", page, "--set", "alphas=0.1,1", "--json"]
    status, _, err = call(*command, "--drop", "lab_note")
    assert status == 2 and "'d0' and 't0'" in err
    assert "Pass --duplicates mean to learn from the mean of its labels." in err
    status, out, err = call(*command, "--drop", "lab_note", "--duplicates", "mean")
    assert (status, err) == (0, "")
    assert json.loads(out)["settings"][0]["concordance"] > 0.8
    text = page.read_text()
    assert (
        "Pairs without a label" in text
        and '<th scope="row" class="name">d' in text
        and 'class="tiles"' in text
    )
    scores = tmp_path / "scores.csv"
    assert call("predict", model, mixed["rows"], mixed["columns"], "-o", scores)[0] == 0
    assert len(scores.read_text().splitlines()) == 1 + 14 * 9
    found = json.loads(call("evaluate", model, *mixed.values(), "--json")[1])
    assert found["metrics"][0]["metric"] == "concordance" and found["metrics"][0]["value"] > 0.8
    listed = write(
        tmp_path / "wanted.csv", ["drug", "target", "note"], [("d3", "t2", "x"), ("d1", "t8", "y")]
    )
    chosen = call("predict", model, mixed["rows"], mixed["columns"], listed)[1].splitlines()
    assert chosen[0] == "row,column,score" and [line.split(",")[:2] for line in chosen[1:]] == [
        ["d3", "t2"],
        ["d1", "t8"],
    ]
    every = [line.rsplit(",", 1) for line in scores.read_text().splitlines()[1:]]
    for line in chosen[1:]:
        pair, score = line.rsplit(",", 1)
        assert float(score) == pytest.approx(float(dict(every)[pair]))
    write(listed, ["drug", "target"], [("d3", "t99")])
    assert "'t99' (line 2)" in call("predict", model, mixed["rows"], mixed["columns"], listed)[2]
    status, _, err = call("predict", model, mixed["rows"])
    assert status == 2 and "ROWS COLUMNS PAIRS" in err
    alone = write(tmp_path / "more.csv", ["drug", "class", "mass", "lab_note"], [("d99", "acid", 1.0, "n")])
    alone.write_text(mixed["rows"].read_text() + alone.read_text().splitlines()[1] + "\n")
    status, _, err = call("relate", *arguments({**mixed, "rows": alone}), "-o", model, "--duplicates", "mean")
    assert status == 2 and "'d99' has no label in" in err
    status, _, err = call("evaluate", model, mixed["rows"])
    assert status == 2 and "ROWS COLUMNS PAIRS" in err
    status, _, err = call(*command, "--drop", "colour")
    assert status == 2 and "--drop asks for 'colour', in neither table" in err


@pytest.mark.parametrize("kind", ["numbers", "tables"])
def test_a_relation_is_served_as_it_predicts(kind, request, tmp_path, call) -> None:
    """An item is a pair: the features of both objects; several may share one of them."""
    pytest.importorskip("starlette", reason="the extra 'web' is not installed")
    from preflearn.cli.serve import _scorer
    from preflearn.web.requests import RefusedError

    files = request.getfixturevalue("tables" if kind == "numbers" else "mixed")
    model = tmp_path / "m.preflearn"
    options = ("--duplicates", "mean", "--drop", "lab_note") if kind == "tables" else ()
    assert call("relate", *arguments(files), "-o", model, "--set", "alphas=0.1,1", "-q", *options)[0] == 0
    predicted = list(csv.reader(call("predict", model, files["rows"], files["columns"])[1].splitlines()))[1:]
    sides = [list(csv.DictReader(files[side].read_text().splitlines())) for side in ("rows", "columns")]
    names = [{row[key]: row for row in side} for side, key in zip(sides, ("drug", "target"))]

    def value(name: str, text: str) -> object:
        return text if name == "class" else None if text == "" else float(text)

    items = [
        {
            f"{prefix}.{name}": value(name, text)
            for prefix, row in (("row", names[0][drug]), ("column", names[1][target]))
            for name, text in row.items()
            if name not in ("drug", "target", "lab_note")
        }
        for drug, target, _ in predicted[::-1]
    ]
    scorer = _scorer(model)
    scores = scorer.score(scorer.columns(items))
    assert scores == pytest.approx([float(score) for *_, score in predicted[::-1]], rel=1e-9, abs=1e-12)
    assert [feature.name for feature in scorer.features] == list(items[0])
    last = list(items[0])[-1]
    for broken, found in (
        ({**items[0], last: "high"}, "found 'high'"),
        ({**items[0], "row.smell": 1}, "row.smell: no"),
    ):
        with pytest.raises(RefusedError, match=rf"items\[0\]\.{last if 'high' in found else ''}.*{found}"):
            scorer.columns([broken])
    refusal = call("serve", model, "--unreadable-as-missing", "--port", "-1")[2]
    assert ("this model takes numbers" in refusal) == (kind == "numbers")


def test_labels_as_spreadsheets_write_them(tables, tmp_path, call) -> None:
    """Decimal commas and yes/no are read as `train` reads them; the error says what is missing, and where."""
    model, pairs = tmp_path / "m.preflearn", list(csv.reader(tables["pairs"].open()))
    command = [
        "relate",
        *arguments({**tables, "pairs": tmp_path / "p.csv"}),
        "-o",
        model,
        "--set",
        "alphas=1",
        "--json",
    ]

    def learned(write_label, mark: str = ",") -> str:
        lines = [pairs[0], *([*names, write_label(float(label))] for *names, label in pairs[1:])]
        (tmp_path / "p.csv").write_text("\n".join(mark.join(line) for line in lines))
        status, out, err = call(*command)
        return json.loads(out)["settings"] if status == 0 else err

    assert learned(lambda y: f"{y:.6f}".replace(".", ","), ";") == learned(lambda y: f"{y:.6f}")
    assert learned(lambda y: "yes" if y > 0 else "no") == learned(lambda y: f"{y > 0:d}")
    count = iter(range(1000))
    missing = learned(lambda y: "" if next(count) in (0, 4) else "1")
    assert "found nothing in line 2, and no number in 1 more rows" in missing
    assert "all labels of column 'affinity' are 3: there is no order" in learned(lambda y: "3")


def test_means_of_row_and_column_are_those_without_the_pair() -> None:
    """Each pair of labels by refitting the means without it, and one half where there is nothing but noise."""
    from preflearn.model_selection.evaluation import means_in_order

    rng = np.random.default_rng(0)
    Y = np.where(rng.random((6, 5)) < 0.8, rng.integers(0, 4, (6, 5)).astype(float), np.nan)
    row, column = np.nonzero(~np.isnan(Y))
    places = list(zip(row.tolist(), column.tolist()))

    def predicted(i: int, j: int, left: np.ndarray, setting: str) -> float:
        mine, its = left[i], left[:, j]
        level = np.nanmean(Y)
        found = 0.0
        if setting in ("entries", "columns"):
            found += np.nanmean(mine) if not np.isnan(mine).all() else level
        if setting in ("entries", "rows"):
            found += np.nanmean(its) if not np.isnan(its).all() else level
        return found

    for setting in ("entries", "rows", "columns", "both"):
        right = []
        for a, (i, j) in enumerate(places):
            for k, m in places[a + 1 :]:
                if Y[i, j] != Y[k, m]:
                    left = Y.copy()
                    if setting == "entries":
                        left[[i, k], [j, m]] = np.nan
                    if setting in ("rows", "both"):
                        left[[i, k]] = np.nan
                    if setting in ("columns", "both"):
                        left[:, [j, m]] = np.nan
                    difference = predicted(i, j, left, setting) - predicted(k, m, left, setting)
                    right.append(0.5 + 0.5 * np.sign(round(difference, 12)) * np.sign(Y[i, j] - Y[k, m]))
        assert means_in_order(row, column, Y, setting) == pytest.approx(np.mean(right), abs=1e-12), setting
    noise, places = rng.normal(size=(30, 20)), np.indices((30, 20)).reshape(2, -1)
    assert means_in_order(*places, noise, "rows") == pytest.approx(0.5, abs=0.05)


def test_the_interval_of_a_relation_knows_that_labels_of_a_row_depend_on_each_other() -> None:
    """A label repeated in ten columns is one observation, not ten."""
    from preflearn.model_selection import evaluate_scores
    from preflearn.model_selection.evaluation import relation_interval

    rng = np.random.default_rng(0)
    level, score = rng.normal(size=(2, 40))
    y, scores = np.repeat(level, 10), np.repeat(level + score, 10)
    row, column = np.indices((40, 10)).reshape(2, -1)
    low, high = relation_interval(row, column, y, scores)
    single = evaluate_scores(level, level + score, metrics=["concordance"]).metrics[0].interval
    naive = evaluate_scores(y, scores, metrics=["concordance"]).metrics[0].interval
    assert high - low > 0.9 * (single[1] - single[0]) > 1.8 * (naive[1] - naive[0])
    wider = relation_interval(row, column, y, scores, fitted=y)
    assert wider[0] < low and high < wider[1]


def test_few_labels_are_held_out_without_iterations(monkeypatch) -> None:
    from preflearn.relations import KroneckerRLSCV, incomplete

    rng = np.random.default_rng(0)
    R, C = rng.normal(size=(12, 3)), rng.normal(size=(9, 2))
    pick = rng.choice(108, 60, replace=False)
    i, j = np.divmod(pick, 9)
    y = np.tanh(R[i, 0] * C[j, 0]) + 0.1 * rng.normal(size=60)
    for pairwise, compare in (("kronecker", None), ("cartesian", None), ("sum", None), ("kronecker", "rows")):
        for setting in ("entries", "rows", "both"):
            found = []
            for few in (1500, 0):
                monkeypatch.setattr(incomplete, "_FEW_PAIRS", few)
                options = {
                    "hold_out": setting,
                    "keep_predictions": True,
                    "pairwise": pairwise,
                    "compare": compare,
                }
                model = KroneckerRLSCV(
                    [0.1, 1.0, 10.0], row_kernel="rbf", column_kernel="rbf", tol=1e-10, **options
                )
                found.append(model.fit_pairs_of(R, C, i, j, y).cv_predictions_)
            np.testing.assert_allclose(found[0], found[1], atol=1e-6, equal_nan=True)
