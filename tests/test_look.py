"""`preflearn look`: what is in a table before training; and leaks, which training asks about."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import numpy as np
import pytest

from browser import Browser, find_browser
from oracles import concordance_of_query
from preflearn.comparisons import encode_queries
from preflearn.datasets import load_demo
from preflearn.metrics.single_columns import labels_alone, order_alone, suspicious
from preflearn.report import look


def shop_table(n_queries: int = 12, *, leak: bool = True) -> dict[str, list]:
    """The demo's shop with a brand, a title, missing values, and a column that is known only afterwards."""
    X, y, qid, names = load_demo()
    rows = np.isin(qid, np.unique(qid)[:n_queries])
    rng = np.random.default_rng(0)
    table: dict[str, list] = {"session": qid[rows].tolist(), "sku": [f"p{i}" for i in range(rows.sum())]}
    table["brand"] = rng.choice(["Acme", "Bolt", "Cord"], rows.sum()).tolist()
    table |= {name: X[rows, k].tolist() for k, name in enumerate(names)}
    table["rating"] = ["" if i % 4 == 0 else value for i, value in enumerate(table["rating"])]
    if leak:
        table["dwell_seconds"] = (10 * y[rows] + rng.random(rows.sum())).round(2).tolist()
    return {**table, "grade": y[rows].astype(int).tolist()}


def write_csv(path: Path, table: dict[str, list], mark: str = ",") -> Path:
    lines = [mark.join(table), *(mark.join(map(str, row)) for row in zip(*table.values()))]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


# ---------------------------------------------------------------------------------------------------- single columns


def test_a_single_column_is_measured_as_the_metric_does():
    rng = np.random.default_rng(1)
    y, qid = rng.integers(0, 3, 60).astype(float), rng.integers(0, 6, 60)
    values = rng.normal(size=60).round(1)
    values[::7] = np.nan
    groups = encode_queries(qid, 60)
    shares = []
    for end in (-99.0, 99.0):
        filled = np.where(np.isnan(values), end, values)
        up = np.nanmean([concordance_of_query(y[qid == q], filled[qid == q]) for q in range(6)])
        shares += [up, 1 - up]
    assert order_alone("x", values, y, groups).share == pytest.approx(max(shares))


def test_labels_are_ordered_by_the_other_queries():
    """Means of the same rows would order noise well."""
    rng = np.random.default_rng(2)
    y, qid = rng.normal(size=400), np.repeat(np.arange(40), 10)
    noise = labels_alone("noise", rng.integers(-1, 30, 400), y, encode_queries(qid, 400))
    assert noise.share < 0.6
    told = labels_alone(
        "told", np.searchsorted(np.quantile(y, [0.25, 0.5, 0.75]), y), y, encode_queries(qid, 400)
    )
    assert told.share > 0.85


def test_what_is_suspicious_depends_on_the_model():
    from preflearn.metrics.single_columns import SingleColumn as One

    columns = [One("a", 0.995), One("b", 0.93), One("c", 0.7)]
    assert [one.name for one in suspicious(columns)] == ["a", "b"]  # `look` asks before there is a model
    assert [one.name for one in suspicious(columns, 0.99)] == ["a"]
    assert [one.name for one in suspicious(columns, 0.935)] == ["a", "b"]
    assert suspicious([One("c", 0.7)], 0.7) == [] and suspicious([One("b", 0.93)], 0.93) == []


# -------------------------------------------------------------------------------------------------------------- look


def test_look_finds_roles_kinds_leaks_and_what_is_missing():
    found = look(shop_table())
    assert (found.target, found.query, found.item) == ("grade", "session", "sku")
    assert found["brand"].kind == "category" and found["brand"].n_distinct == 3
    rating = found["rating"]
    assert rating.kind == "number" and rating.n_missing == sum(v == "" for v in shop_table()["rating"])
    assert found.notes[0] == "`dwell_seconds` alone orders 100 % of the pairs: is it known before ranking?"
    assert sum(found["price_ratio"].bars) == found.n_rows
    assert "dwell_seconds" in str(found) and "<table" in found._repr_html_()


def test_look_counts_queries_that_teach_nothing():
    table = {
        "qid": ["a", "a", "b", "c", "c", "d", "d"],
        "x": [1, 2, 3, 4, 5, 6, 7],
        "grade": [0, 1, 1, 2, 2, 1, 0],
    }
    found = look(table)
    assert found.queries == {"queries": 4, "median_rows": 2, "one_row": 1, "without_pair": 2}
    assert any("1 of 4 queries has one row" in note for note in found.notes)
    assert any("targets are all equal" in note for note in found.notes)


@pytest.mark.parametrize("frame", ["pandas", "polars"])
def test_look_takes_any_frame(frame):
    library = pytest.importorskip(frame)
    found = look(
        library.DataFrame({"qid": ["a", "a", "b", "b"], "x": [1.0, None, 3.0, 4.0], "grade": [1, 0, 0, 1]})
    )
    assert found["x"].n_missing == 1 and found.query == "qid" and found.target == "grade"


def test_look_counts_outliers():
    assert look({"x": [*range(20), 1000]})["x"].n_outliers == 1
    assert look({"x": list(range(21))})["x"].n_outliers == 0


def test_look_recognises_preferences():
    found = look({"prompt": ["p", "q"], "chosen": ["a b", "c d"], "rejected": ["e", "f"]})
    assert any("--chosen chosen --rejected rejected" in note for note in found.notes)


def test_the_command_looks_and_writes_a_page(call, tmp_path):
    pytest.importorskip("jinja2")
    pytest.importorskip("matplotlib")
    data = write_csv(tmp_path / "shop.csv", shop_table())
    status, out, err = call("look", data, "--report", tmp_path / "look.html")
    assert (status, err) == (0, "")
    assert "--drop dwell_seconds" in out and "preflearn train" in out and "--query session" in out
    page = (tmp_path / "look.html").read_text()
    assert "<h3>dwell_seconds</h3>" in page and "http" not in page.replace("http-equiv", "")
    status, out, _ = call("look", data, "--json")
    assert json.loads(out)["target"] == "grade"
    assert call("look", data, "--target", "graed")[0] == 2


def test_the_command_looks_at_letor(call, tmp_path):
    path = tmp_path / "data.letor"
    path.write_text("".join(f"{k % 3} qid:{k // 5} 1:{k * 7 % 11} 2:{k % 3}.5\n" for k in range(20)))
    status, out, _ = call("look", path)
    assert status == 0 and "`feature 2` alone orders 100 %" in out


@pytest.mark.skipif(find_browser() is None, reason="needs Chromium")
def test_the_page_fits_phones_and_desktops(tmp_path):
    pytest.importorskip("matplotlib")
    look(shop_table(), title="shop.csv").write(tmp_path / "look.html")
    with tempfile.TemporaryDirectory() as folder, Browser(Path(folder)) as browser:
        for width in (390, 1280):
            for scheme in ("light", "dark"):
                browser.open(tmp_path / "look.html", width=width, scheme=scheme)
                assert browser.complaints == []
                assert browser.evaluate("document.documentElement.scrollWidth") <= width


# ----------------------------------------------------------------------------------------------------------- training


LINEAR = ("--target", "grade", "--query", "session", "--learner", "rankrls", "--kernel", "linear")


def test_a_leak_is_asked_about_and_not_celebrated(call, tmp_path):
    data = write_csv(tmp_path / "shop.csv", shop_table())
    status, out, _ = call("train", data, *LINEAR, "-o", tmp_path / "m.preflearn", "--json")
    found = json.loads(out)
    assert status == 0
    question = (
        "`dwell_seconds` alone orders 100 % of the pairs: is it known before ranking? --drop dwell_seconds"
    )
    assert found["leaks"][0].startswith(question) and found["notes"][0].startswith(question)
    assert question in found["verdict"]
    assert ("best single feature", "dwell_seconds") in [
        (row["name"], row["detail"]) for row in found["baselines"]
    ]


def test_without_a_leak_nothing_is_asked(call, tmp_path):
    data = write_csv(tmp_path / "shop.csv", shop_table(leak=False))
    found = json.loads(call("train", data, *LINEAR, "-o", tmp_path / "m.preflearn", "--json")[1])
    assert found["leaks"] == [] and "known before" not in found["verdict"]
    assert any(row["name"] == "best single feature" and row["detail"] for row in found["baselines"])


def test_infinite_values_are_said_and_a_column_has_one_role():
    table = {"qid": ["a"] * 4, "y": [1, 2, 3, 4], "x": [np.inf, 1.0, 2.0, -np.inf]}
    assert look(table)["x"].notes == ("2 infinite",)
    with pytest.raises(ValueError, match="A column has one role"):
        look(table, target="y", query="y")
