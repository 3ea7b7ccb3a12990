"""Tables as they come, from the file to predictions: no option about types, and every fault told once."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest
from sklearn.base import clone

from preflearn import RankRLS, RankSVM
from preflearn.cli.app import run
from preflearn.io import load_model, model_info, read_table

COLOURS = ("red", "blue", "green")
WORDS = "cheap solid poor broken lovely plain tiny large soft loud dull warm".split()


def messy(n_queries: int = 24, seed: int = 0) -> dict[str, list]:
    """Numbers, yes/no, a category, dates, text and missing values; sessions of eight."""
    rng = np.random.default_rng(seed)
    n = 8 * n_queries
    stars, member = rng.integers(1, 6, n), rng.random(n) < 0.5
    colour = rng.choice(COLOURS, n)
    title = [" ".join(rng.choice(WORDS, 5)) for _ in range(n)]
    score = stars + member + 2 * (colour == "red") + rng.normal(size=n)
    days = np.datetime64("2024-01-01") + rng.integers(0, 300, n)
    price = [("" if rng.random() < 0.1 else f"{value:.2f}") for value in rng.lognormal(3, 1, n)]
    return {
        "product_id": [f"P{k:04d}" for k in range(n)],
        "session": [f"s{k // 8}" for k in range(n)],
        "grade": np.clip(score // 2, 0, 4).astype(int).tolist(),
        "price": price,
        "stars": stars.tolist(),
        "member": np.where(member, "yes", "no").tolist(),
        "colour": [("" if rng.random() < 0.05 else value) for value in colour.tolist()],
        "added": days.astype(str).tolist(),
        "title": title,
    }


def write(path, columns: dict[str, list]):
    names = list(columns)
    if path.suffix == ".jsonl":
        rows = (dict(zip(names, row)) for row in zip(*columns.values()))
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    elif path.suffix == ".parquet":
        pa = pytest.importorskip("pyarrow")
        from pyarrow.parquet import write_table

        write_table(pa.table(columns), path)
    else:
        lines = [",".join(names), *(",".join(map(str, row)) for row in zip(*columns.values()))]
        path.write_text("\n".join(lines) + "\n")
    return path


ROLES = ("--target", "grade", "--query", "session", "--kernel", "linear")
SHARE = ("--read", "weight=share")


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("messy")
    write(folder / "visits.csv", messy())
    write(folder / "new.csv", messy(5, seed=1))
    assert run(["train", str(folder / "visits.csv"), *ROLES, "-o", str(folder / "m.preflearn"), "-q"]) == 0
    return folder


KINDS = {
    "product_id": "identifier", "price": "number", "stars": "number", "member": "boolean", "colour": "category",
    "added": "date", "title": "text",
}  # fmt: skip


@pytest.mark.parametrize("name", ["visits.csv", "visits.jsonl", "visits.parquet"])
def test_types_are_found_and_told_once(call, tmp_path, name):
    path = write(tmp_path / name, messy())
    status, out, err = call("train", path, *ROLES, "-o", tmp_path / "m.preflearn")
    assert (status, err) == (0, "")
    model = load_model(tmp_path / "m.preflearn")
    assert model[0].kinds_ == KINDS
    assert out.count("Columns") == 1 and "set aside" in out and "missing values in price" in out


def test_the_saved_model_takes_a_data_frame(trained, call):
    pandas = pytest.importorskip("pandas")
    frame = pandas.read_csv(trained / "new.csv").drop(columns=["session", "grade"])
    status, out, _ = call("predict", trained / "m.preflearn", trained / "new.csv")
    rows = [line.split(",") for line in out.splitlines()]
    assert status == 0 and rows[0] == ["session", "product_id", "score", "rank"]
    assert [row[0] for row in rows[1:9]] == ["s0"] * 8 and rows[1][1] == "P0000"
    scores = load_model(trained / "m.preflearn").predict(frame)
    np.testing.assert_allclose([float(row[2]) for row in rows[1:]], scores, atol=1e-9)
    ranks = [int(row[3]) for row in rows[1:9]]
    np.testing.assert_array_equal(ranks, [1 + (scores[:8] > one).sum() for one in scores[:8]])


def test_a_category_never_seen_is_counted_and_told(trained, call, tmp_path):
    columns = messy(5, seed=1)
    columns["colour"][:3] = ["violet", "violet", "grey"]
    status, out, err = call("predict", trained / "m.preflearn", write(tmp_path / "n.csv", columns))
    assert status == 0 and len(out.splitlines()) == 41
    assert err.count("\n") == 1 and "3 rows with a category not seen in training ('violet', 'grey')" in err
    assert call("predict", trained / "m.preflearn", tmp_path / "n.csv", "-q")[2] == ""


def test_kinds_can_be_overridden_by_lists(call, tmp_path):
    path = write(tmp_path / "v.csv", messy())
    model = tmp_path / "m.preflearn"
    options = ("--encode", "stars=onehot,title=words:32", "--drop", "price,added")
    assert call("train", path, *ROLES, *options, "-o", model, "-q")[0] == 0
    kinds = load_model(model)[0].kinds_
    assert kinds["stars"] == "category" and kinds["title"] == "words" and "price" not in kinds


def test_the_query_column_is_suggested(call, tmp_path):
    path = write(tmp_path / "v.csv", messy())
    arguments = ("train", path, "--target", "grade", "--kernel", "linear", "-o", tmp_path / "m.preflearn")
    _, out, _ = call(*arguments)
    assert "'session' looks like the query column: --query session" in " ".join(out.split())
    assert "session" not in load_model(tmp_path / "m.preflearn")[0].encoders_  # and never one-hot
    _, out, _ = call(*arguments, "--no-query")
    assert "looks like the queries" not in " ".join(out.split())


def test_yes_and_no_are_targets(call, tmp_path):
    columns = messy()
    columns["grade"] = ["yes" if grade > 1 else "no" for grade in columns["grade"]]
    path = write(tmp_path / "v.csv", columns)
    assert call("train", path, *ROLES, "-o", tmp_path / "m.preflearn", "-q")[0] == 0
    assert set(read_table(path, target="grade", query="session").y) == {0.0, 1.0}


def test_all_faults_of_a_file_in_one_line(call, tmp_path):
    columns = messy()
    columns["grade"][:2] = ["good", ""]
    columns["session"][4] = ""
    path = write(tmp_path / "v.csv", columns)
    status, out, err = call("train", path, *ROLES, "-o", tmp_path / "m.preflearn", "--drop", "colours")
    assert (status, out, err.count("\n")) == (2, "", 1)
    for said in ("4 problems", "--drop asks for column 'colours'", "(line 2 ('good'))", "1 missing target (line 3)",
                 "1 missing query (line 6)"):  # fmt: skip
        assert said in err
    assert [one.name for one in tmp_path.iterdir()] == ["v.csv"]


def test_uneven_rows_are_told_together(call, tmp_path):
    lines = write(tmp_path / "v.csv", messy()).read_text().splitlines()
    lines[3] += ",more"
    lines[9] = "1,2"
    (tmp_path / "v.csv").write_text("\n".join(lines))
    status, _, err = call("train", tmp_path / "v.csv", *ROLES, "-o", tmp_path / "m.preflearn")
    assert status == 2 and "2 problems" in err
    assert "line 4: found 10 cells, expected 9" in err and "line 10: found 2 cells, expected 9" in err


def test_a_word_far_down_a_column_of_numbers_is_read(tmp_path):
    path = tmp_path / "long.csv"
    rows = [f"{k % 5},{k}.5,{k % 7}" for k in range(3000)]
    rows[2900] = "1,about 7,3"
    path.write_text("target,size,weekday\n" + "\n".join(rows))
    table = read_table(path)
    assert table.columns["size"].dtype == object and table.columns["weekday"].dtype == float
    encoder = table.encode().encoder
    assert encoder.kinds_["size"] == "number" and "about 7" in str(encoder.summary_)


def test_weights_of_rows_are_a_column(tmp_path):
    path = tmp_path / "w.csv"
    path.write_text("target,x,w\n1,2,0.5\n0,3,2\n")
    table = read_table(path, weight="w")
    assert table.weight.tolist() == [0.5, 2.0] and list(table.columns) == ["x"]
    path.write_text("target,x,w\n1,2,-1\n0,3,\n")
    with pytest.raises(ValueError, match="2 values that are not weights .line 2, line 3."):
        read_table(path, weight="w")
    with pytest.raises(ValueError, match="weight asks for column 'v'"):
        read_table(path, weight="v")


def weighted(path):
    columns = messy()
    columns["share"] = np.random.default_rng(5).integers(1, 4, len(columns["grade"])).tolist()
    return write(path, columns)


@pytest.mark.parametrize(("name", "learner"), [("rankrls", RankRLS(1.0)), ("ranksvm", RankSVM(1.0))])
def test_a_column_of_weights_reaches_the_learner(call, tmp_path, name, learner):
    path = weighted(tmp_path / "visits.csv")
    told = (*ROLES, *SHARE, "--learner", name, "--set", "alphas=1", "-o", tmp_path / "m.preflearn")
    assert call("train", path, *told, "-q")[0] == 0
    model = load_model(tmp_path / "m.preflearn")
    table = read_table(path, target="grade", query="session", weight="share")
    prepared = model[:-1].transform(table.columns)
    expected = clone(learner).fit(prepared, table.y, qid=table.qid, sample_weight=table.weight)
    np.testing.assert_allclose(model[-1].predict(prepared), expected.predict(prepared), rtol=1e-8)
    without = clone(learner).fit(prepared, table.y, qid=table.qid).predict(prepared)
    assert np.abs(model[-1].predict(prepared) - without).max() > 1e-3
    assert "share" not in model[0].kinds_


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--target", "grade", "--no-query", *SHARE), "weights of rows are for rows in queries.*--query"),
        (("--preferences", "pairs.csv", *SHARE), "preferences have weights of their own"),
        ((*ROLES, "--read", "weight=colour"), "values that are not weights"),
    ],
)
def test_weights_that_would_be_ignored_are_refused(call, tmp_path, options, message):
    path = weighted(tmp_path / "visits.csv")
    (tmp_path / "pairs.csv").write_text("winner,loser\nP0000,P0001\n")
    options = [str(tmp_path / one) if one.endswith(".csv") else one for one in options]
    status, _, err = call("train", path, *options, "-o", tmp_path / "m.preflearn")
    assert status == 2 and re.search(message, err), err
    assert not (tmp_path / "m.preflearn").exists()


def test_a_letor_file_has_no_column_of_weights(call, tmp_path):
    (tmp_path / "a.letor").write_text("1 qid:1 1:0.5\n0 qid:1 1:0.1\n")
    status, _, err = call("train", tmp_path / "a.letor", *SHARE, "-o", tmp_path / "m.preflearn")
    assert status == 2 and "LETOR files have none" in err


def test_labels_with_leading_zeros_stay_labels(trained, tmp_path):
    path = tmp_path / "codes.csv"
    path.write_text("target,zip\n" + "".join(f"{k % 3},{('007', '042', '110')[k % 3]}\n" for k in range(60)))
    table = read_table(path)
    assert table.columns["zip"][0] == "007" and table.encode().encoder.kinds_["zip"] == "category"


def test_columns_are_texts_again_where_training_had_texts(call, tmp_path):
    """A category whose new values all look like numbers is still looked up by its texts."""
    columns = messy()
    columns["colour"] = [{"red": "1a", "blue": "02", "green": "3", "": "3"}[c] for c in columns["colour"]]
    path = write(tmp_path / "v.csv", columns)
    assert call("train", path, *ROLES, "-o", tmp_path / "m.preflearn", "-q")[0] == 0
    columns["colour"] = ["3"] * len(columns["colour"])
    status, _, err = call("predict", tmp_path / "m.preflearn", write(tmp_path / "n.csv", columns))
    assert (status, err) == (0, "")


@pytest.mark.parametrize("name", ["m.preflearn", "r.html"])
def test_files_of_others_are_not_replaced(trained, call, tmp_path, name):
    if name == "r.html":
        pytest.importorskip("jinja2")
        pytest.importorskip("matplotlib")
    (tmp_path / name).write_text("my thesis")
    outputs = {
        "m.preflearn": ("-o", tmp_path / name),
        "r.html": ("-o", tmp_path / "o", "--report", tmp_path / name),
    }
    arguments = ("train", trained / "visits.csv", *ROLES, *outputs[name], "-q")
    status, _, err = call(*arguments)
    assert status == 2 and "--force" in err and (tmp_path / name).read_text() == "my thesis"
    assert call(*arguments, "--force")[0] == 0
    assert call(*arguments)[0] == 0  # now it is ours


@pytest.mark.parametrize("name", ["s.csv", "s.tsv.gz", "s.jsonl", "s.txt", "s.parquet"])
def test_scores_replace_scores_alone(trained, call, tmp_path, name):
    if name.endswith("parquet"):
        pytest.importorskip("pyarrow")
    (tmp_path / name).write_bytes(b"name,shoe size\nEve,38\n")
    arguments = ("predict", trained / "m.preflearn", trained / "new.csv", "-o", tmp_path / name)
    assert call(*arguments)[0] == 2
    assert call(*arguments, "--force")[0] == 0 and call(*arguments)[0] == 0


def test_several_files_are_one_table(call, tmp_path, trained):
    whole = messy()
    parts = [
        {name: values[:96] for name, values in whole.items()},
        {name: values[96:] for name, values in whole.items()},
    ]
    paths = [write(tmp_path / f"{k}.csv", part) for k, part in enumerate(parts)]
    assert call("train", *paths, *ROLES, "-o", tmp_path / "m.preflearn", "-q")[0] == 0
    one, two = load_model(trained / "m.preflearn"), load_model(tmp_path / "m.preflearn")
    np.testing.assert_allclose(one[-1].coef_, two[-1].coef_)
    del parts[1]["stars"]
    write(tmp_path / "1.csv", parts[1])
    assert "'stars' in one of them only" in call("train", *paths, *ROLES, "-o", tmp_path / "m.preflearn")[2]


def test_compare_reads_several_data_files(trained, call, tmp_path):
    assert (
        call("train", trained / "visits.csv", *ROLES, "--features", "price", "-o", tmp_path / "a", "-q")[0]
        == 0
    )
    more = write(tmp_path / "more.csv", {**messy(6, seed=3), "session": [f"t{k // 8}" for k in range(48)]})
    status, out, _ = call(
        "compare", trained / "new.csv", trained / "m.preflearn", tmp_path / "a", "--data", more, "--json"
    )
    assert status == 0 and json.loads(out)["comparisons"][0]["n_queries"] == 11


def test_a_model_of_ask_predicts(call, tmp_path):
    pytest.importorskip("starlette", reason="the extra 'web' is not installed")
    from preflearn.web.answers import Journal
    from preflearn.web.items import read_items
    from preflearn.web.results import write_results
    from preflearn.web.session import Session

    items = write(tmp_path / "items.csv", {"name": list("abcdef"), "size": [3, 1, 4, 1.5, 9, 2.6]})
    with Journal(tmp_path / "answers.jsonl") as journal:
        session = Session(read_items(items), journal)
        write_results(session, tmp_path / "out")
        session.close()
    new = write(tmp_path / "new.csv", {"name": ["x", "y"], "size": [2, 8]})
    status, out, err = call("predict", tmp_path / "out" / "model.preflearn", new)
    assert (status, err) == (0, "") and len(out.splitlines()) == 3
    assert model_info(tmp_path / "out" / "model.preflearn")["metadata"]["command"] == "ask"


def test_a_model_of_items_without_features_says_so(call, tmp_path):
    pytest.importorskip("starlette", reason="the extra 'web' is not installed")
    from preflearn.web.answers import Journal
    from preflearn.web.items import read_items
    from preflearn.web.results import write_results
    from preflearn.web.session import Session

    (tmp_path / "items.txt").write_text("tea\ncoffee\nmilk\n")
    with Journal(tmp_path / "answers.jsonl") as journal:
        session = Session(read_items(tmp_path / "items.txt"), journal)
        write_results(session, tmp_path / "out")
        session.close()
    new = write(tmp_path / "new.csv", {"name": ["x", "y"]})
    status, _, err = call("predict", tmp_path / "out" / "model.preflearn", new)
    assert status == 2 and "cannot score others" in err
