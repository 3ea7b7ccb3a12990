"""Names of items, judges and prompts: long numbers, words for sides and ties, spaces, upper and lower case."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import polars as pl
import pytest

from preflearn import rate
from preflearn.cli.app import run
from preflearn.errors import InputError
from preflearn.ratings import BattleCounts
from preflearn.ratings.reading import factorised
from preflearn.tables.encoding.frames import read_table

pa = pytest.importorskip("pyarrow")

LONG = 1_200_000_000_000_000_000
A, B = [0, 0, 0, 1, 1, 2] * 3, [1, 2, 3, 2, 3, 3] * 3
WINNER = [0, 0, 3, 1, 1, 2] * 3


def frame_of(kind, columns):
    if kind == "dict":
        return columns
    if kind == "arrays":
        return {name: np.array(values) for name, values in columns.items()}
    if kind == "rows":
        return [dict(zip(columns, row)) for row in zip(*columns.values())]
    if kind == "polars":
        return pl.DataFrame(columns)
    if kind == "pyarrow":
        return pa.table({name: pa.array(values, pa.uint64()) for name, values in columns.items()})
    frame = pd.DataFrame(columns)
    if kind == "nullable":
        return frame.astype("Int64" if frame.iloc[0, 0] < 2**63 else "UInt64")
    return frame.astype({"objects": object, "category": "category"}.get(kind, frame.dtypes.to_dict()))


KINDS = ("dict", "arrays", "rows", "pandas", "nullable", "objects", "category", "polars", "pyarrow")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("start", [LONG, 2**63 + 7])
def test_ids_of_64_bits_stay_apart(kind, start):
    plain = {"a": A, "b": B, "winner": WINNER, "judge": [k % 4 for k in range(18)]}
    expected = rate(plain, cluster="judge", judge="judge", alpha=0.1)
    table = frame_of(kind, {name: [start + k for k in values] for name, values in plain.items()})
    found = rate(table, cluster="judge", judge="judge", alpha=0.1)
    assert found.items == [start + k for k in range(4)]
    assert found.raw.judge[1] == found.raw.cluster[1] == found.items
    np.testing.assert_array_equal(list(found.scores.values()), list(expected.scores.values()))
    np.testing.assert_array_equal(found.standard_errors, expected.standard_errors)
    counts = BattleCounts().add(table)
    assert counts.rate(alpha=0.1).items == found.items and counts.n_battles == 18
    np.testing.assert_allclose(found.predict(table), expected.predict(plain))


@pytest.mark.parametrize(
    "make",
    [
        lambda v: v,
        lambda v: pd.Series(v, dtype="Int64"),
        lambda v: pl.Series("x", v),
        lambda v: pa.array(v),
        lambda v: pd.Series(v, dtype=object),
    ],
)
def test_missing_values_do_not_round_the_others(make):
    values = make([LONG, None, LONG + 1, LONG])
    native = values if isinstance(values, list) else None
    if isinstance(values, pd.Series):
        native = values.to_frame("x")
    elif isinstance(values, pl.Series):
        native = values.to_frame()
    elif isinstance(values, pa.Array):
        native = pa.table({"x": values})
    column = read_table({"x": values} if native is values else native).columns[0]
    codes, labels = factorised(column)
    assert codes.tolist() == [0, -1, 1, 0] and labels == [LONG, LONG + 1]
    assert np.isnan(column.array).tolist() == [False, True, False, False]


def test_ids_that_were_rounded_before_are_refused():
    table = pd.DataFrame({"a": [LONG, LONG + 1.0], "b": [5, 6], "winner": ["a", "b"]})
    with pytest.raises(InputError, match="Column 'a' names things by floating-point numbers"):
        rate(table)


def test_ids_in_files_are_texts(tmp_path, capsys):
    rows = {"left": A, "right": B, "who": WINNER}
    table = pd.DataFrame({name: [LONG + k for k in values] for name, values in rows.items()})
    table.to_csv(tmp_path / "b.csv", index=False)
    table.to_parquet(tmp_path / "b.parquet")
    table.to_json(tmp_path / "b.jsonl", orient="records", lines=True)
    boards = []
    for name in ("b.csv", "b.parquet", "b.jsonl"):
        options = ["--a", "left", "--b", "right", "--winner", "who", "--alpha", "0.1", "--json"]
        assert run(["rate", str(tmp_path / name), *options]) == 0
        boards.append([row["item"] for row in json.loads(capsys.readouterr().out)["table"]])
    assert boards[0] == boards[1] == boards[2] and sorted(boards[0]) == [str(LONG + k) for k in range(4)]


def test_an_item_called_like_a_tie_wins_when_winners_are_named():
    names = ["draw", "x", "y"]
    a, b = ["draw", "draw", "x"] * 4, ["x", "y", "y"] * 4
    found = rate({"a": a, "b": b, "winner": ["draw", "draw", "x"] * 4}, alpha=0.1)
    plain = rate({"a": a, "b": b, "winner": ["a"] * 12}, alpha=0.1)
    assert found.scores == plain.scores and found.items == sorted(names)
    assert found.raw.outcomes["tie"] == 0
    # All battles are of that item: its name alone is in the column.
    alone = rate({"a": ["draw"] * 4, "b": ["x", "y", "x", "y"], "winner": ["draw"] * 4}, alpha=0.1)
    assert next(iter(alone.table["item"])) == "draw"


@pytest.mark.parametrize("name", ["a", "left", "tie", "neither", "home", "win", "1"])
def test_words_are_names_where_the_column_names_winners(name):
    a, b = ["x", name, "y"] * 4, [name, "y", "x"] * 4
    found = rate({"one": a, "two": b, "winner": [name, name, "x"] * 4}, a="one", b="two", alpha=0.1)
    plain = rate({"one": a, "two": b, "winner": [0.0, 1.0, 0.0] * 4}, a="one", b="two", alpha=0.1)
    assert found.scores == plain.scores and found.raw.outcomes["both bad"] == 0


def test_words_are_sides_and_ties_where_the_column_names_sides():
    a, b = ["tie", "b", "b"] * 4, ["b", "a", "tie"] * 4
    words = {"model_a": a, "model_b": b, "winner": ["model_a", "tie", "model_b"] * 4}
    plain = {**words, "winner": [1.0, 0.5, 0.0] * 4}
    assert rate(words, alpha=0.1).scores == rate(plain, alpha=0.1).scores
    # An item that does not take part in some battle with its label cannot be meant.
    a, b = ["a", "b", "c", "c"] * 3, ["c", "c", "b", "a"] * 3
    found = rate({"model_a": a, "model_b": b, "winner": ["b", "a", "a", "b"] * 3}, alpha=0.1)
    plain = rate({"model_a": a, "model_b": b, "winner": [0.0, 1.0, 1.0, 0.0] * 3}, alpha=0.1)
    assert found.scores == plain.scores


def test_words_that_may_be_either_are_refused():
    sides = {"model_a": ["a", "b", "a"], "model_b": ["b", "a", "b"]}
    with pytest.raises(
        InputError, match="'a' is the name of an item and a word for side a.*'model_a' and 'model_b'"
    ):
        rate({**sides, "winner": ["a", "a", "b"]})
    # Where both readings agree there is nothing to ask.
    agreed = {"model_a": ["a", "a", "a"], "model_b": ["b", "b", "c"], "winner": ["a", "b", "a"]}
    assert rate(agreed).raw.share.tolist() == [1.0, 0.0, 1.0]
    mixed = {"a": ["draw", "x", "x"], "b": ["x", "y", "y"], "winner": ["draw", "draw", "x"]}
    with pytest.raises(InputError, match="'draw' is the name of an item and a word for a tie"):
        rate(mixed)


def test_spaces_around_names_are_removed_and_said():
    clean = {
        "winner": ["gpt", "gpt", "x", "y"] * 3,
        "loser": ["x", "y", "y", "gpt"] * 3,
        "who": list("uv") * 6,
    }
    spaced = {
        "winner": [" gpt", "gpt ", "x", "\u00a0y"] * 3, "loser": ["x\t", "y", "y", "gpt"] * 3, "who": ["u ", "v"] * 6
    }  # fmt: skip
    options = {"judge": "who", "cluster": "who", "alpha": 0.1}
    found, plain = (
        rate(spaced, anchor={" gpt ": 1200}, **options),
        rate(clean, anchor={"gpt": 1200}, **options),
    )
    assert found.items == plain.items == ["gpt", "x", "y"] and found.columns == plain.columns
    assert any(note.startswith("Spaces around names were removed, such as in ' gpt'") for note in found.notes)
    assert not any("Spaces" in note for note in plain.notes)
    with pytest.warns(UserWarning, match="Spaces around names were removed"):
        rate(spaced)
    counts = BattleCounts().add(spaced).add(clean).remove(spaced)
    assert counts.rate(alpha=0.1).scores == rate(clean, alpha=0.1).scores
    assert any("Spaces around names" in note for note in counts.rate(alpha=0.1).notes)
    parts = BattleCounts().add({"winner": ["x"], "loser": ["GPT"]}).add({"winner": ["gpt"], "loser": ["x"]})
    with pytest.warns(UserWarning, match="of items differ"):
        parts.rate(alpha=0.1)
    assert found.update(clean).items == plain.items
    np.testing.assert_allclose(found.predict({"winner": ["gpt "], "loser": [" x"]}), plain.predict(
        {"winner": ["gpt"], "loser": ["x"]}))  # fmt: skip
    ranked = rate({"r": [[" gpt", "x "], ["x", "gpt"], ["gpt", "y"]]}, ranking="r")
    assert ranked.items == ["gpt", "x", "y"]
    boards = found.boards(["code", " code"] * 6)
    assert boards.categories == ["code"]


def test_names_that_differ_by_case_alone_are_asked_about_and_kept():
    battles = {"winner": ["gpt", "GPT", "x"], "loser": ["x", "x", "gpt"], "judge": ["Al", "al", "Al"]}
    with (
        pytest.warns(UserWarning, match="of items differ"),
        pytest.warns(UserWarning, match="of judges differ"),
    ):
        found = rate(battles, judge="judge")
    assert found.items == ["GPT", "gpt", "x"]
    told = [note for note in found.notes if "hyphens alone" in note]
    assert "Names of items" in told[0] and "'GPT' and 'gpt'" in told[0] and "Names of judges" in told[1]
    with pytest.warns(UserWarning, match="'GPT 4' and 'gpt-4'"):
        rate({"winner": ["gpt-4", "GPT 4", "-"], "loser": ["x", "x", "_"]})


def test_counts_are_taken_out_pair_by_pair():
    counts = BattleCounts(weight="n").add({"winner": ["x", "p"], "loser": ["y", "q"], "n": [1e12, 1.0]})
    for table in (
        {"winner": ["p"], "loser": ["q"], "n": [2.0]},
        {"winner": ["p"], "loser": ["x"], "n": [1.0]},
        {"winner": ["q"], "loser": ["p"], "n": [1.0]},
    ):
        with pytest.raises(InputError, match="have not been counted"):
            counts.remove(table)
    assert counts.n_battles == 1e12 + 1
    counts.remove({"winner": ["x"], "loser": ["y"], "n": [1e12 - 1]})
    assert sorted(counts.table["count"]) == [1.0, 1.0]
    assert counts.remove({"winner": ["x", "p"], "loser": ["y", "q"], "n": [1.0, 1.0]}).n_battles == 0


def test_fractions_of_weights_can_be_taken_out_again_and_small_ones_stay():
    rng = np.random.default_rng(0)
    w = rng.random(50)
    one = {"winner": ["x"] * 50, "loser": ["y"] * 50, "n": w}
    counts = BattleCounts(weight="n").add(one).add({"winner": ["y"], "loser": ["x"], "n": [1e-13]})
    counts.remove({**one, "n": w[::-1]})
    assert counts.table["count"] == [1e-13]
    small = {"winner": ["x", "y", "x"], "loser": ["y", "z", "z"], "n": [1e-13, 2e-13, 1e-13]}
    found = BattleCounts(weight="n").add(small).rate(alpha=1e-13)
    expected = rate(small, weight="n", alpha=1e-13)
    np.testing.assert_allclose(list(found.scores.values()), list(expected.scores.values()), rtol=1e-6)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"judge": "judge", "cluster": "prompt"},
        {"ties": "davidson", "first_side": True, "covariates": ["tempo"], "tie_covariates": ["tempo"]},
        {"time": "day", "half_life": 9.0},
        {"margin": "size", "weight": "count"},
        {"judge": "judge", "trusted": ["j1", "j2", "j3"], "cluster": "prompt"},
    ],
)
def test_labels_that_say_nothing_are_listed_or_skipped(options):
    rng = np.random.default_rng(0)
    a = rng.integers(5, size=200)
    b = (a + rng.integers(1, 5, 200)) % 5
    size = rng.normal(size=200)
    table = {
        "a": [f"m{k}" for k in a], "b": [f"m{k}" for k in b], "winner": np.where(size > 0, "a", "b").astype(object),
        "judge": [f"j{k}" for k in rng.integers(12, size=200)], "prompt": rng.integers(30, size=200),
        "size": np.where(rng.random(200) < 0.1, 0.0, size), "count": rng.integers(1, 4, 200), "day": np.arange(200.0),
        "tempo": rng.normal(size=200),
    }  # fmt: skip
    table["winner"][table["size"] == 0.0] = "tie"
    bad = np.zeros(200, dtype=bool)
    bad[[3, 50, 51, 120]] = True
    table["winner"][[3, 50]], table["winner"][[51, 120]] = "??", [None, "m9"]
    # An item of which nothing is left.
    table["a"][3] = "only here"
    with pytest.raises(ValueError, match=r"4 of 200 battles.*'\?\?' \(2\).*missing \(1\).*on_bad='skip'"):
        rate(table, **options)
    with pytest.warns(UserWarning, match="4 of 200 battles .* They were skipped"):
        found = rate(table, **options, on_bad="skip")
    rest = {name: [value for value, wrong in zip(values, bad) if not wrong] for name, values in table.items()}
    expected = rate(rest, **options)
    assert found.items == expected.items
    np.testing.assert_allclose(found.strengths.scores, expected.strengths.scores, atol=1e-9)
    np.testing.assert_allclose(found.standard_errors, expected.standard_errors, atol=1e-9)
    assert any("'??' (2)" in note for note in found.notes)
    kept = np.flatnonzero(~bad)
    np.testing.assert_array_equal(found.fragility().battles, kept[expected.fragility().battles])
    assert list(found.surprises["row"]) == kept[list(expected.surprises["row"])].tolist()
    if not options:
        labels = np.where(np.arange(200) % 2, "x", "y")
        left, right = found.by(labels), expected.by(labels[kept])
        np.testing.assert_allclose(left["rating"], right["rating"])
        with pytest.warns(UserWarning):
            more = found.update(table)
        assert len(more.raw) == 392 and more.raw.rows[196 + 3] == 200 + kept[3]
        with pytest.warns(UserWarning, match="skipped"):
            counted = BattleCounts(on_bad="skip").add(table).rate()
        np.testing.assert_allclose(counted.strengths.scores, found.strengths.scores, atol=1e-6)


def test_bad_labels_on_the_command_line(tmp_path, capsys):
    path = tmp_path / "b.csv"
    path.write_text("a,b,winner\nx,y,a\ny,x,b\nx,y,oops\nx,y,b\n")
    assert run(["rate", str(path)]) == 2
    assert "'oops' (1)" in (said := capsys.readouterr().err) and "--skip-bad" in said
    assert run(["rate", str(path), "--skip-bad"]) == 0
    assert "3 battles" in (out := capsys.readouterr().out) and "skipped" in out
    for wrong in ("drop", None):
        with pytest.raises(ValueError, match="on_bad must be 'raise' or 'skip'"):
            rate({"winner": ["x"], "loser": ["y"]}, on_bad=wrong)
