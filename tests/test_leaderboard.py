"""Ranks from tables of scores."""

from __future__ import annotations

import copy
import json
import pickle
import re

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import t as student

from preflearn import leaderboard
from preflearn.cli.app import run
from preflearn.ratings.tables import columns_of
from strategies import examples


def draw(n=4, t=8, seed=0, missing=0.0, gaps=1.0):
    rng = np.random.default_rng(seed)
    values = gaps * np.arange(n)[::-1, None] + 2 * rng.normal(size=t) + rng.normal(size=(n, t))
    values[rng.random(values.shape) < missing] = np.nan
    values[0, np.isnan(values).all(axis=0)] = 1.0
    values[np.isnan(values).all(axis=1), 0] = 1.0
    return values


def wide(values):
    n, t = values.shape
    return pd.DataFrame(values, columns=[f"t{k}" for k in range(t)], index=[f"m{k}" for k in range(n)])


def long(values, rng=None):
    rows = [(f"m{i}", f"t{k}", values[i, k]) for i, k in np.argwhere(~np.isnan(values))]
    return pd.DataFrame(rows, columns=["model", "task", "score"])


def by_hand(values, family, level):
    """Differences, thresholds and signs, pair by pair and task by task; the means by least squares."""
    n, t = values.shape
    apart, needed = np.zeros((n, n)), {}
    for i in range(n):
        for j in range(n):
            found = {}
            for k in range(t):
                d = values[i, k] - values[j, k]
                if not np.isnan(d):
                    found.setdefault(family[k], []).append(d)
            d = np.array([np.mean(one) for one in found.values()])
            if i == j or d.size < 2:
                continue
            q = student.isf((1 - level) / (n * (n - 1)), d.size - 1)
            se = d.std(ddof=1) / np.sqrt(d.size)
            apart[i, j] = np.sign(d.mean()) * (abs(d.mean()) > q * se)
            needed[i, j] = (d.mean(), d.mean() - q * se, d.mean() + q * se)
    rows = [(i, k) for i, k in np.argwhere(~np.isnan(values))]
    X = np.zeros((len(rows), n + t))
    sizes = np.array([sum(1 for one in family if one == family[k]) for k in range(t)])
    for row, (i, k) in enumerate(rows):
        X[row, i] = X[row, n + k] = np.sqrt(1 / sizes[k])
    y = np.array([values[i, k] * np.sqrt(1 / sizes[k]) for i, k in rows])
    fit = np.linalg.lstsq(X, y, rcond=None)[0]
    return apart, needed, fit[:n] + np.average(fit[n:], weights=1 / sizes)


@given(
    n=st.integers(2, 6), t=st.integers(3, 12), seed=st.integers(0, 10**6), missing=st.sampled_from([0.0, 0.2]),
    families=st.booleans(),
)  # fmt: skip
@examples(30)
def test_the_board_is_that_of_every_pair_by_hand(n, t, seed, missing, families):
    values = draw(n, t, seed, missing)
    family = [k // 2 for k in range(t)] if families else list(range(t))
    if len(set(family)) < 2:
        return
    given_family = {f"t{k}": f"f{one}" for k, one in enumerate(family)} if families else None
    board = leaderboard(wide(values), family=given_family, level=0.9)
    apart, needed, means = by_hand(values, family, 0.9)
    items = [int(item[1:]) for item in board["item"]]
    np.testing.assert_allclose(board["mean"], means[items], atol=1e-8)
    assert (np.diff(board["mean"]) <= 1e-12).all()
    rank = 1 + (means[None, :] > means[:, None] + 1e-9).sum(axis=1)
    np.testing.assert_array_equal(board["rank"], rank[items])
    np.testing.assert_array_equal(board["rank_lower"], np.minimum(1 + (apart < 0).sum(axis=1), rank)[items])
    np.testing.assert_array_equal(board["rank_upper"], np.maximum(n - (apart > 0).sum(axis=1), rank)[items])
    for row in board.differences.itertuples():
        i, j = int(row.item_a[1:]), int(row.item_b[1:])
        if (i, j) in needed:
            np.testing.assert_allclose((row.difference, row.lower, row.upper), needed[i, j], atol=1e-9)
            assert row.significant == (apart[i, j] != 0)
            enough = row.tasks_needed is not None and row.tasks_needed <= row.tasks
            assert enough == row.significant or row.difference <= 0
    same = {(a, b) for a in range(n) for b in range(n) if set(board["group"][a]) & set(board["group"][b])}
    order = np.array(items)
    assert same == {(a, b) for a in range(n) for b in range(n) if apart[order[a], order[b]] == 0}


def test_an_interval_of_a_mean_is_students_over_tasks():
    values = draw(3, 6)
    board = leaderboard(wide(values)).table
    for row in board.itertuples():
        own = values[int(row.item[1:])]
        half = student.ppf(0.975, 5) * own.std(ddof=1) / np.sqrt(6)
        np.testing.assert_allclose((row.lower, row.upper), (own.mean() - half, own.mean() + half))
        assert row.tasks == 6


def test_wide_and_long_tables_of_any_kind_say_the_same():
    values = draw(5, 9, 3, 0.15)
    expected = leaderboard(wide(values)).columns_of_table
    frame = wide(values).reset_index(names="system")
    shuffled = long(values).sample(frac=1.0, random_state=0)
    named = shuffled.rename(columns={"model": "who", "task": "on", "score": "points"})
    tables = [
        (frame, {}),
        (pl.from_pandas(frame.assign(system=frame["system"].astype(str))), {}),
        ({name: list(values) for name, values in frame.items()}, {}),
        (shuffled, {}),
        (named, {"item": "who", "task": "on", "score": "points"}),
        (frame.assign(t2=frame["t2"].map(lambda x: "" if np.isnan(x) else repr(x))), {"item": "system"}),
    ]
    for table, options in tables:
        board = leaderboard(table, **options)
        found = columns_of(board.table)
        assert found["item"] == expected["item"] and found["group"] == expected["group"]
        for name in ("mean", "lower", "upper", "rank", "rank_lower", "rank_upper", "tasks"):
            np.testing.assert_allclose(found[name], expected[name], atol=1e-9)
    assert isinstance(leaderboard(tables[1][0]).table, pl.DataFrame)


def test_repeats_are_averaged_and_families_may_be_a_column():
    values = draw(4, 6)
    once = long(values)
    twice = pd.concat([once.assign(score=once["score"] - 1), once.assign(score=once["score"] + 1)])
    board = leaderboard(twice)
    np.testing.assert_allclose(board["mean"], leaderboard(once)["mean"])
    assert "Up to 2 scores of an item on a task were averaged." in board.notes
    once["kind"] = [f"f{task[1] in '01'}" for task in once["task"]]
    family = {f"t{k}": f"f{k < 2}" for k in range(6)}
    found, other = leaderboard(once, family="kind"), leaderboard(wide(values), family=family)
    np.testing.assert_array_equal(found["rank_upper"], other["rank_upper"])
    means = 0.5 * (values[:, :2].mean(axis=1) + values[:, 2:].mean(axis=1))
    np.testing.assert_allclose(found["mean"], np.sort(means)[::-1])


def test_lower_may_be_better():
    values = draw(4, 8)
    up, down = leaderboard(wide(values)), leaderboard(wide(-values), higher_is_better=False)
    assert list(up["item"]) == list(down["item"]) and list(up["rank_upper"]) == list(down["rank_upper"])
    np.testing.assert_allclose(up["mean"], -down["mean"])
    np.testing.assert_allclose(up["lower"], -down["upper"])
    turned = wide(values)
    turned["t1"] *= -1
    np.testing.assert_allclose(leaderboard(turned, higher_is_better={"t1": False})["mean"], up["mean"])


@pytest.mark.parametrize("kind", ["normal", "correlated", "heavy tails", "missing"])
@pytest.mark.parametrize(("n", "t"), [(3, 5), (12, 8), (12, 40)])
def test_ranks_hold_together(kind, n, t):
    """Items are equal, so that every significant difference is an error."""
    rng = np.random.default_rng(0)
    wrong = 0
    for _ in range(200):
        S = rng.standard_t(3, size=(n, t)) if kind == "heavy tails" else rng.normal(size=(n, t))
        if kind == "correlated":
            S = S + 2 * rng.normal(size=(n, 2)) @ rng.normal(size=(2, t))
        S = S + 3 * rng.normal(size=t)
        if kind == "missing":
            S[:, 2:][rng.random((n, t - 2)) < 0.3] = np.nan
        board = leaderboard(wide(S))
        wrong += board.apart.any()
    assert 0.91 < 1 - wrong / 200 <= 1.0


def test_what_decides_is_named():
    values = np.zeros((3, 6))
    values[0], values[1], values[2] = (
        [3, 1, 1, 1, 1, 1.5],
        [0, 1.3, 1.2, 1.3, 1.2, 1.6],
        [-2, 0, 0, 0.1, 0, 0],
    )
    board = leaderboard(wide(values))
    assert board["item"][0] == "m0"
    without = columns_of(board.without_tasks)
    assert (without["task"][0], without["leader"][0]) == ("t0", "m1")
    assert columns_of(board.borda)["borda_rank"] == [2, 1, 3]
    text = str(board)
    assert "By Borda's count" in text and "Without one task another item leads: t0." in text
    assert "neighbours on the board cannot be told apart" in text


def test_the_board_is_used_as_its_table_and_kept(tmp_path):
    board = leaderboard(wide(draw(3, 7)))
    assert list(board.columns) == list(board.table.columns)
    assert board.set_index("item").loc["m0", "rank"] == 1
    assert len(board) == 3 and pl.DataFrame(board).height == 3
    for kept in (pickle.loads(pickle.dumps(board)), copy.deepcopy(board)):
        assert type(kept) is type(board) and str(kept) == str(board)
    with pytest.raises(AttributeError):
        _ = board.nothing
    assert "<table" in board._repr_html_()
    for name in ("b.html", "b.md"):
        board.report(tmp_path / name, title="Mine & yours")
        assert "m0" in (tmp_path / name).read_text(encoding="utf-8")
    page = (tmp_path / "b.html").read_text(encoding="utf-8")
    assert (
        "<svg" in page and "Mine &amp; yours" in page and "http" not in page.replace("http://www.w3.org", "")
    )


def test_a_task_that_decides_the_means_is_named():
    values = draw(4, 6) * np.array([1, 1, 1, 1, 1, 90])
    assert any("further apart on t5 than on most tasks" in note for note in leaderboard(wide(values)).notes)


def test_few_tasks_and_scores_without_noise():
    found = leaderboard({"model": ["x", "y", "z"], "a": [3, 2, 1], "b": [3, 2, 1]})
    assert list(found["rank_upper"]) == [3, 3, 3] or list(found["rank_upper"]) == [1, 2, 3]
    assert any("2 tasks tell only" in note for note in found.notes)
    apart = leaderboard({"model": ["x", "y"], "a": [1.0, None], "b": [None, 1.0], "c": [2.0, 1.5]})
    assert list(apart["rank_upper"]) == [2, 2]


BAD = {"model": ["x", "y", "z"], "a": [0.5, 0.6, 0.7], "b": [0.4, 0.7, 0.9]}


@pytest.mark.parametrize(
    ("change", "options", "message"),
    [
        ({"model": ["x"], "a": [0.5], "b": [0.4]}, {}, "only 'x'"),
        ({"model": ["x", "y"], "a": [0.5, 0.6]}, {}, "one task only, 'a'"),
        ({"model": ["x", "y"], "a": [0.5, 0.5], "b": [0.5, 0.5]}, {}, "Every score is 0.5"),
        ({**BAD, "b": ["0.4", "n/a", "0.9"]}, {}, "'b' must hold scores, and holds texts such as 'n/a'"),
        ({**BAD, "model": ["x", "y", "x"]}, {}, "names 'x' in 2 rows"),
        (
            {**BAD, "b": [40.0, 55.0, 90.0]},
            {},
            "different scales: scores go up to 0.7 on 'a' and up to 90 on 'b'",
        ),
        ({**BAD, "b": [np.inf, 0.1, 0.2]}, {}, "infinite"),
        ({**BAD, "b": [None, None, None]}, {}, "one task only, 'a'"),
        ({**BAD, "a": [None, 1, 2], "b": [None, 2, 1]}, {}, "item 'x' has no scores"),
        ({**BAD, "model": ["x", "", "z"]}, {}, "row 2 is empty"),
        (BAD, {"item": "who"}, "item asks for the column 'who'"),
        (BAD, {"task": "a"}, "task alone|Pass score"),
        (BAD, {"higher_is_better": {"c": False}}, "higher_is_better names the task 'c'"),
        (BAD, {"higher_is_better": "yes"}, "must be True, False or a mapping"),
        (BAD, {"family": {"a": 1, "b": 1}}, "all tasks are of one"),
        (BAD, {"family": "kind"}, "family is a column of a long table"),
        (BAD, {"level": 2}, "level is the probability"),
        ({"a": [1.0, 2.0], "b": [2.0, 1.0]}, {}, "No column of items"),
    ],
)
def test_bad_tables_get_one_message(change, options, message):
    with pytest.raises(ValueError, match=message):
        leaderboard(change, **options)


def test_the_command(tmp_path, capsys):
    path, stacked = tmp_path / "scores.csv", tmp_path / "long.csv"
    frame = wide(draw(4, 8, missing=0.1)).reset_index(names="model")
    frame.to_csv(path, index=False)
    long(draw(4, 8, missing=0.1)).assign(kind="k").to_csv(stacked, index=False)
    assert (
        run(
            [
                "rate",
                str(path),
                "--table",
                "--report",
                str(tmp_path / "r.html"),
                "-o",
                str(tmp_path / "b.csv"),
            ]
        )
        == 0
    )
    shown = capsys.readouterr().out
    assert "Scores of 4 items on 8 tasks" in shown and "scores are missing" in shown
    assert list(pd.read_csv(tmp_path / "b.csv").columns) == list(leaderboard(frame).columns)
    assert "Neighbours" in (tmp_path / "r.html").read_text(encoding="utf-8")
    assert run(["rate", str(stacked), "--table", "--json", "--level", "0.8", "--lower-is-better=t1,t2"]) == 0
    found = json.loads(capsys.readouterr().out)
    expected = leaderboard(frame, level=0.8, higher_is_better={"t1": False, "t2": False})
    assert [row["item"] for row in found["table"]] == list(expected["item"]) and found["level"] == 0.8
    for options, message in (
        (["--table", "--judge", "model"], "--judge is about battles"),
        (["--task", "t1"], "--task is about a table of scores.*--table"),
        (["--table", "--alpha", "1"], "--alpha is about battles"),
        (["--table", "--item", "nobody"], "--item asks for the column 'nobody'"),
        (["--table", "--lower-is-better=t9"], "--lower-is-better names the task 't9'"),
    ):
        assert run(["rate", str(path), *options]) == 2
        assert re.search(message, capsys.readouterr().err)
