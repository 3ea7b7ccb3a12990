"""`preflearn train` on files that do not fit into memory: announced, in parts, resumed, reported honestly."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from preflearn.auto import candidates, fitting, kernels, sample, trees
from preflearn.cli import train as train_command
from preflearn.io import load_model, model_info, read_table, write_ranking
from preflearn.tables.ranking import TableSize, size_of

N_ROWS, SAMPLE = 1000, 400


def make_table() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(2, N_ROWS))
    brand = np.array(["ash", "birch", "cedar"])[rng.integers(0, 3, N_ROWS)]
    y = np.round(np.sin(2 * a) + 1.5 * (brand == "ash") - b + 0.3 * rng.normal(size=N_ROWS))
    days = pd.Timestamp("2024-01-01") + pd.to_timedelta(rng.integers(0, 300, N_ROWS), "D")
    return pd.DataFrame(
        {
            "target": y,
            "qid": [f"q{k}" for k in np.arange(N_ROWS) // 20],
            "item": [f"i{k}" for k in range(N_ROWS)],
            "a": a,
            "brand": brand,
            "b": np.where(rng.random(N_ROWS) < 0.05, np.nan, b),
            "day": days,
        }
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("large")
    table = make_table()
    table.to_parquet(folder / "big.parquet")
    table[:500].to_csv(folder / "first.csv", index=False)
    table[500:].to_csv(folder / "second.csv.gz", index=False)
    numbers = table[["a", "b"]].fillna(0.0).to_numpy()
    write_ranking(folder / "big.txt", numbers, table.target.to_numpy(), qid=np.arange(N_ROWS) // 20)
    return folder


@pytest.fixture
def little_memory(monkeypatch):
    """No table fits; small samples, few trees."""
    monkeypatch.setattr(train_command, "_COPIES", 10**12)
    monkeypatch.setattr(train_command, "_EXPANDED", 10**12)
    monkeypatch.setattr(fitting, "_MOST_ROWS", SAMPLE)
    monkeypatch.setattr(trees, "_STAGES", (5, 10))
    monkeypatch.setattr(candidates, "_RANDOM", 8)
    monkeypatch.setattr(kernels, "_ROUNDS", 1)


def test_a_table_of_every_kind(call, little_memory, folder, tmp_path):
    model_file, page = tmp_path / "model.preflearn", tmp_path / "page.html"
    data = folder / "big.parquet"
    status, out, err = call("train", str(data), "-o", str(model_file), "--report", str(page), "--json")
    assert status == 0, err
    assert "1,000 rows x 7 columns; training in memory would take about" in err and "GB are available" in err
    assert "It is read in parts; with the training that takes" in err and f"{model_file}.checkpoint" in err
    found = json.loads(out)
    assert found["counts"] == {"rows": 1000, "queries": 50, "features": found["counts"]["features"]}
    assert found["summary"].startswith("1,000 rows in 50 queries") and found["estimate"]["value"] > 0.8
    assert any("Candidates were chosen on a sample of the 1,000 rows" in note for note in found["notes"])
    assert any("then trained on all rows but 80" in note for note in found["notes"])
    assert "The table has 1,000 rows and was read in parts." in found["notes"]
    part = (
        "A fifth of the sample's queries (4) was held out and ordered by members that were trained without it"
    )
    assert found["estimate"]["held_out"].startswith(part)
    assert (
        part.replace("'", "&#39;") in page.read_text() and "Every query was ordered" not in page.read_text()
    )
    assert "was read in parts" in page.read_text() and not list(tmp_path.glob("*.checkpoint"))
    memory = model_info(model_file)["metadata"]["reading"]
    assert (memory["target"], memory["query"], memory["item"]) == ("target", "qid", "item")
    model, table = load_model(model_file), read_table(data)
    assert model[0].kinds_ == {"a": "number", "brand": "category", "b": "number", "day": "date"}
    assert model.predict(table.columns, qid=table.qid).shape == (N_ROWS,)
    scores = tmp_path / "scores.csv"
    assert call("predict", str(model_file), str(folder / "first.csv"), "-o", str(scores))[0] == 0
    assert len(scores.read_text().splitlines()) == 501


def test_rows_that_are_drawn_are_announced_and_reported(call, little_memory, folder, tmp_path, monkeypatch):
    monkeypatch.setattr(sample, "MOST_ROWS", 500)
    arguments = ("train", str(folder / "big.parquet"), "-o", str(tmp_path / "model.preflearn"), "--json")
    status, out, err = call(*arguments)
    assert status == 0, err
    assert "About 500 rows are learned from, whole queries drawn from all of them. " in err
    found = json.loads(out)
    expected = (
        "The table has 1,000 rows and was read in parts. 500 rows were kept, whole queries drawn from all"
    )
    assert any(expected in note for note in found["notes"])
    assert found["counts"]["rows"] == 500


def test_stopped_and_continued_by_the_same_command(call, little_memory, folder, tmp_path, monkeypatch):
    data = folder / "big.parquet"
    whole, stopped = tmp_path / "whole.preflearn", tmp_path / "stopped.preflearn"
    assert call("train", str(data), "-o", str(whole), "--quiet") == (0, "", "")

    def interrupted(*_, **__):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(fitting, "choose", interrupted)
        status = call("train", str(data), "-o", str(stopped), "--quiet")[0]
    checkpoint = tmp_path / "stopped.preflearn.checkpoint"
    assert status != 0 and checkpoint.exists() and not stopped.exists()
    status, _, err = call("train", str(data), "-o", str(stopped), "--encode", "brand=drop")
    assert status == 2 and "kinds was" in err and "remove the file to start over" in err
    status, _, err = call("train", str(data), "-o", str(stopped))
    assert status == 0 and "starts from the rows that were kept there" in err and not checkpoint.exists()
    table = read_table(data)
    first, second = (load_model(one).predict(table.columns, qid=table.qid) for one in (whole, stopped))
    np.testing.assert_array_equal(first, second)


def test_several_files_and_a_column_whose_numbers_end(call, little_memory, folder, tmp_path):
    """The last row of the second file holds a word where all others are numbers."""
    table = make_table()
    table["b"] = table["b"].astype(object)
    table.loc[N_ROWS - 1, "b"] = "none at all"
    odd = tmp_path / "odd.csv"
    table[500:].to_csv(odd, index=False)
    model_file = tmp_path / "model.preflearn"
    status, out, err = call("train", str(folder / "first.csv"), str(odd), "-o", str(model_file), "--json")
    assert status == 0, err
    assert "first.csv and 1 more: about 1,0" in err and json.loads(out)["counts"]["rows"] == 1000
    assert load_model(model_file)[0].kinds_["b"] == "number"  # texts that read as numbers


def test_letor(call, little_memory, folder, tmp_path):
    model_file = tmp_path / "model.preflearn"
    status, out, err = call("train", str(folder / "big.txt"), "-o", str(model_file), "--json")
    assert status == 0, err
    found = json.loads(out)
    assert found["counts"] == {"rows": 1000, "queries": 50, "features": 2}
    status, out, _ = call("evaluate", str(model_file), str(folder / "big.txt"), "--json")
    assert status == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--no-query"], "one ranking of all rows is not learned in parts"),
        (["--learner", "rankrls"], "a single learner reads all rows at once. Pass --learner auto"),
        (["--kernel", "linear"], "a single learner reads all rows at once"),
        (["--read", "weight=b"], "rows with weights are not learned in parts"),
        (["--encode", "brand=words:2000"], "does not suit it: with 2,0"),
        (["--target", "brand"], "expected a target: a number, or yes or no"),
        (["--query", "nothing"], "'nothing'"),
    ],
)
def test_what_is_not_learned_in_parts_is_refused(call, little_memory, folder, tmp_path, options, message):
    data = str(folder / "big.parquet")
    status, out, err = call("train", data, "-o", str(tmp_path / "model.preflearn"), *options)
    assert (status, out) == (2, "") and message in err
    assert "It is read in parts" not in err or "--encode" in options  # kinds become known with the sample
    assert not list(tmp_path.iterdir())


def test_advice_is_that_of_the_command_line(call, little_memory, folder, tmp_path):
    model_file, split = tmp_path / "model.preflearn", tmp_path / "split.csv"
    table = make_table()
    pd.concat([table[10:], table[:10]]).to_csv(split, index=False)
    status, _, err = call("train", str(split), "-o", str(model_file), "--quiet")
    assert status == 2 and "sort the file by query." in err and "read_ranking" not in err
    assert not model_file.exists()
    checkpoint = tmp_path / "model.preflearn.checkpoint"
    np.save(tmp_path / "other.npy", np.array([{}], dtype=object), allow_pickle=True)
    for content in (b"not a checkpoint", (tmp_path / "other.npy").read_bytes()):
        checkpoint.write_bytes(content)
        status, _, err = call("train", str(folder / "big.parquet"), "-o", str(model_file), "--quiet")
        assert status == 2 and "pickle" not in err and checkpoint.read_bytes() == content
        advice = "remove the file to start over, or write the model elsewhere with -o."
        assert err == f"preflearn: {checkpoint}: not a whole checkpoint of preflearn: {advice}\n"


def test_a_single_learner_is_not_advised(call, little_memory, tmp_path):
    """A linear model is as good as any here, and cannot be trained in parts by itself."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(600, 3))
    y = np.round(X @ [1.0, -2.0, 0.5] + 0.5 * rng.normal(size=600), 2)
    write_ranking(tmp_path / "linear.txt", X, y, qid=np.arange(600) // 20)
    status, out, err = call("train", tmp_path / "linear.txt", "-o", tmp_path / "m.preflearn", "--json")
    assert status == 0, err
    steps = json.loads(out)["next_steps"]
    assert any("linear model is as good as anything that was tried" in one for one in steps)
    assert not any("--learner" in one for one in steps)


def test_sizes_in_words():
    assert train_command._size(TableSize(1, 1, 8, is_exact=False)).startswith("about 1 row x 1 column; ")


def test_files_that_fit_are_read_at_once(call, folder, tmp_path):
    _, _, err = call("train", str(folder / "big.parquet"), "-o", str(tmp_path / "m"), "--kernel", "linear")
    assert "in parts" not in err


def test_sizes_are_estimated_without_reading_all(folder, tmp_path):
    found = size_of(folder / "big.parquet")
    assert (found.n_rows, found.n_columns, found.is_exact) == (1000, 7, True)
    assert found.n_bytes == 1000 * (3 * 8 + 4 * 100)
    several = size_of([folder / "first.csv", folder / "second.csv.gz"])
    assert several.n_rows == pytest.approx(1000, rel=0.01) and not several.is_exact
    letor = size_of(folder / "big.txt")
    assert letor.n_rows == pytest.approx(1000, rel=0.01) and letor.n_columns == 2
    path = tmp_path / "long.csv"  # more than the first block
    path.write_text("target,qid,x\n" + "".join(f"{k % 3},{k // 10},{k % 97}.25\n" for k in range(600_000)))
    assert size_of(path).n_rows == pytest.approx(600_000, rel=0.05)
