"""CSV, TSV, JSON lines and Parquet; chunks; preferences; scores."""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import json
import lzma
import re
import sys
import threading

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from preflearn.io import (
    iter_ranking,
    read_preferences,
    read_ranking,
    read_scores,
    read_table,
    scan_ranking,
    write_scores,
)
from preflearn.tables import blocks
from preflearn.tables.streams import detect_encoding
from strategies import examples

TABLE = {
    "item": ["tea", "milk", "salt, fine", 'a "b"'],
    "qid": [1, 1, 2, 2],
    "price": [3.5, 2.0, 1e-3, 0.1],
    "target": [2.0, 0.0, 1.0, 0.5],
    "size": [1, 2, 3, 4],
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("tables")


def csv_bytes(table, delimiter=",", lineterminator="\n"):
    text = io.StringIO()
    writer = csv.writer(text, delimiter=delimiter, lineterminator=lineterminator)
    writer.writerow(table)
    writer.writerows(zip(*table.values()))
    return text.getvalue().encode()


def write_table(folder, kind, table):
    """The same table in every format, by other means than our own."""
    path = folder / f"table.{kind}"
    base, _, compression = kind.partition(".")
    if base == "jsonl":
        data = "".join(json.dumps(dict(zip(table, row))) + "\n" for row in zip(*table.values())).encode()
    elif base == "parquet":
        pa = pytest.importorskip("pyarrow")
        from pyarrow.parquet import write_table

        buffer = io.BytesIO()
        write_table(pa.table(table), buffer)
        data = buffer.getvalue()
    else:
        data = csv_bytes(table, "\t" if base == "tsv" else ",")
    pack = {"gz": gzip.compress, "xz": lzma.compress, "bz2": bz2.compress, "": bytes}
    if compression == "zst":
        pa = pytest.importorskip("pyarrow")
        pack["zst"] = lambda data: pa.compress(data, codec="zstd", asbytes=True)
    path.write_bytes(pack[compression](data))
    return path


KINDS = ["csv", "tsv", "jsonl", "parquet", "csv.gz", "tsv.xz", "jsonl.bz2", "parquet.gz", "csv.zst"]


@pytest.mark.parametrize("kind", KINDS)
def test_every_format_gives_the_same_data(folder, kind):
    path = write_table(folder, kind, TABLE)
    found = read_ranking(path)
    np.testing.assert_array_equal(found.X, np.array([TABLE["price"], TABLE["size"]]).T)
    np.testing.assert_array_equal(found.y, TABLE["target"])
    assert found.qid.dtype == np.int64
    np.testing.assert_array_equal(found.qid, TABLE["qid"])
    assert found.item_names.tolist() == TABLE["item"]
    assert found.feature_names == ["price", "size"]
    assert found.X.flags.c_contiguous
    chunks = list(iter_ranking(path, rows=1))
    assert [len(chunk) for chunk in chunks] == [2, 2]
    np.testing.assert_array_equal(np.vstack([chunk.X for chunk in chunks]), found.X)
    scan = scan_ranking(path)
    assert (scan.n_rows, scan.n_features, scan.n_queries, scan.longest_query) == (4, 2, 2, 2)


@pytest.mark.parametrize("kind", ["csv", "jsonl", "parquet"])
def test_columns_are_chosen_by_name(folder, kind):
    path = write_table(folder, kind, TABLE)
    found = read_ranking(path, target="price", query=None, item=None, features=["size", "target"])
    assert found.qid is None
    assert found.item_names is None
    np.testing.assert_array_equal(found.X, np.array([TABLE["size"], TABLE["target"]]).T)
    np.testing.assert_array_equal(found.y, TABLE["price"])
    many = read_ranking(path, target=["target", "size"], drop=["item"], item=None)
    assert many.y.shape == (4, 2)
    assert many.X.shape == (4, 1)
    texts = read_ranking(path, query="item", item=None)
    assert texts.qid.tolist() == TABLE["item"]


@pytest.mark.parametrize("kind", ["csv", "jsonl", "parquet"])
def test_columns_of_words_are_refused_where_numbers_are_needed(folder, kind):
    path = write_table(folder, kind, {**TABLE, "colour": ["red", "blue", "red", "green"]})
    with pytest.raises(ValueError, match=r"column 'colour': found .*drop=\['colour'\].*read_table"):
        read_ranking(path)


CSV_FAULTS = [
    (b"", "is empty"),
    (b"1,2,3\n4,5,6\n", "line 1: expected a header"),
    (b"target;a\n1;2\n3\n", "delimiter=';'"),
    (b"target,a,a\n1,2,3\n", "'a' appears twice"),
    (b",target,a\n0,1,2\n", "column 1 has no name"),
    (b"score,a\n1,2\n", "which column is the target.*target=... with one of 'score', 'a'"),
    (b"target,a\n", "no rows"),
    (b"target,a\n1,2\n3\n", "line 3: found 1 cell, expected 2"),
    (b"target,a\n1,2\n\n3,4,5\n", "line 4: found 3 cells, expected 2"),
    (b"target,a\n1,x\n", "line 2, column 'a': found 'x', expected a number.*drop="),
    (b"target,a\nx,1\n", "line 2, column 'target': found 'x', expected a number"),
    (b"target,a\n1,\n", "line 2, column 'a': a missing value.*missing=0.0"),
    (b"target,a\n,1\n", "line 2, column 'target': a missing target.*allow_unknown=True"),
    (b"target,a\nnan,1\n", "line 2, column 'target': a missing target"),
    (b"target,a\n1,inf\n", "line 2, column 'a': 'inf' is infinite"),
    (b"target,a\n1,1e999\n", "line 2, column 'a': '1e999' is too large"),
    (b'target,item\n1,"a\nb\n2,c\n', "line 2, column 'item': a quote is opened here and never closed"),
    (b'target,item\n1,"a"b\n', "line 2, column 'item': text after the closing quote"),
    (b'target,item\n1,a"b\n', "line 2, column 'item': a quote inside a cell"),
    (b"target,a\r1,2\r", "line 1: a carriage return"),
    (b"target,a\r1,2\r\n3,4\n", "line 1: a carriage return"),
    (b"target,a\n1,2\r3,4\n", "line 2, column 'a': a carriage return"),
    (b"target,item,a\n1,x\xc3\xa9\xff,3\n", "line 2, column 'item': the cell is not UTF-8"),
    (b"target,item,a\n1,x\x81,3\n", "line 2, column 'item': the cell is not UTF-8"),
    (b"target,qid,a\n1,1,2\n1,x,2\n", "line 3: the query is 'x', but the first one is '1'"),
    (b"target,qid,a\n1,1,2\n1,,2\n", "line 3: the query is missing"),
    (b"target,qid\n1,1\n", "no column is left as a feature"),
]


@pytest.mark.parametrize(("data", "words"), CSV_FAULTS)
def test_faults_of_csv_files_name_the_line_the_column_and_the_remedy(folder, data, words):
    check_refusal(folder / "fault.csv", data, words)


def check_refusal(path, data: bytes, words: str) -> None:
    """Reading a file with this content fails with one line that has these words."""
    path.write_bytes(data)
    with pytest.raises(ValueError, match=words) as error:
        read_ranking(path)
    assert "\n" not in str(error.value)


JSON_FAULTS = [
    ("", "is empty"),
    ('{"target": 1, "a": 2}\n{"target": 1, "a": 2', "line 2: not a JSON object"),
    ('{"target": 1, "a": 2}\n[1, 2]', "line 2: found .*expected a JSON object"),
    ('{"target": 1, "a": 2, "a": 3}', "line 1: not a JSON object .a key appears twice"),
    ('{"target": 1, "a": 2}\n\n{"target": 1, "b": 3}', "line 3: column 'b' is not in the first row"),
    ('{"target": 1, "a": 2}\n{"target": 1}', "line 2, column 'a': a missing value"),
    ('{"target": 1, "a": [2]}', "line 1, column 'a': found"),
    ('{"target": 1, "a": Infinity}', "line 1, column 'a': the value is infinite"),
    ('{"target": 1, "a": 1' + 400 * "0" + "}", "line 1, column 'a': .*too large"),
    ('{"target": NaN, "a": 1}', "line 1, column 'target': a missing target"),
    ('{"target": 1, "a": 1, "qid": 1.5}', "line 1: the query is '1.5'"),
    ('{"target": 1, "a": 1, "qid": 1}\n{"target": 1, "a": 1, "qid": "1"}', "line 2: the query is '1', but"),
]


@pytest.mark.parametrize(("text", "words"), JSON_FAULTS)
def test_faults_of_json_lines_name_the_line(folder, text, words):
    check_refusal(folder / "fault.jsonl", text.encode(), words)


def test_faults_of_parquet_files_name_the_row(folder):
    pytest.importorskip("pyarrow")
    path = write_table(folder, "parquet", {**TABLE, "a": [1.0, None, 2.0, 3.0]})
    with pytest.raises(ValueError, match="row 2, column 'a': a missing value"):
        read_ranking(path)
    np.testing.assert_array_equal(read_ranking(path, missing=7, features=["a"]).X[:, 0], [1, 7, 2, 3])
    path = write_table(folder, "parquet", {**TABLE, "a": [1.0, 2.0, np.inf, 3.0]})
    with pytest.raises(ValueError, match="row 3, column 'a': the value is infinite"):
        read_ranking(path)
    path = write_table(folder, "parquet", {**TABLE, "a": [1e308, 1e308, 1e308, 3.0]})
    assert read_ranking(path).X[0, 2] == 1e308  # the sum overflows, the values do not
    path = write_table(folder, "parquet", {**TABLE, "qid": [1, None, 2, 2]})
    with pytest.raises(ValueError, match="row 2: the query is missing"):
        read_ranking(path)
    whole = path.read_bytes()
    for size in (0, 3, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:size])
        with pytest.raises(ValueError, match="not a whole Parquet file"):
            read_ranking(path)
    packed = folder / "table.parquet.gz"
    packed.write_bytes(gzip.compress(whole)[:-20])
    with pytest.raises(ValueError, match="gzip data are damaged or cut short"):
        read_ranking(packed)


@given(st.data())
@examples(100)
def test_damaged_parquet_is_refused_or_read(folder, data):
    """No damage may crash the process or raise anything but ValueError."""
    pytest.importorskip("pyarrow")
    path = write_table(folder, "parquet", TABLE)
    content = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 3))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    path.write_bytes(bytes(content))
    try:
        read_ranking(path)
    except ValueError as error:
        assert "\n" not in str(error)


# CSV against the csv module.

cells = st.text(st.characters(codec="utf-8", exclude_characters="\x00\r"), max_size=8)
finite = st.floats(allow_nan=False, allow_infinity=False)


@given(
    st.lists(st.tuples(cells, finite, finite), min_size=1, max_size=8),
    st.sampled_from([",", "\t", ";"]),
    st.sampled_from(["\n", "\r\n"]),
    st.integers(1, 60),
)
@examples(150)
def test_csv_round_trips(folder, rows, delimiter, end, block_bytes):
    path = folder / "round.csv"
    texts, targets, values = zip(*rows)
    path.write_bytes(csv_bytes({"text": texts, "target": targets, "value": values}, delimiter, end))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blocks, "BLOCK_BYTES", block_bytes)
        found = read_ranking(path, item="text", delimiter=delimiter)
    assert found.item_names.tolist() == list(texts)
    np.testing.assert_array_equal(found.y, targets)
    np.testing.assert_array_equal(found.X[:, 0], values)


def test_lines_are_right_where_the_header_is_read_alone(folder, monkeypatch):
    path = folder / "header.csv"
    path.write_bytes(b'target,item,a\n1,"' + b"long " * 9 + b'",2\n1,y,z\n')
    monkeypatch.setattr(blocks, "BLOCK_BYTES", 20)
    with pytest.raises(ValueError, match="line 3, column 'a': found 'z'"):
        read_ranking(path)


@st.composite
def damaged_csv(draw):
    rows = draw(st.lists(st.tuples(finite, cells, finite), min_size=1, max_size=4))
    data = bytearray(csv_bytes(dict(zip(["target", "item", "a"], zip(*rows)))))
    for _ in range(draw(st.integers(1, 3))):
        place = draw(st.integers(0, len(data)))
        data[place : place + draw(st.integers(0, 1))] = draw(
            st.sampled_from([b"", b'"', b",", b"\n", b"\r", b"1", b"e"])
        )
    return bytes(data)


@given(damaged_csv())
@examples(300)
@example(b'target,item,a\n"1",x,"2"\n')
@example(b'target,item,a\n1,"x\n""y",2\n')
@example(b'target,item,a\n1,"x",2"\n3,y,"4\n')
def test_damaged_csv_is_refused_or_read_as_the_csv_module_reads_it(folder, data):
    path = folder / "damaged.csv"
    path.write_bytes(data)
    try:
        found = read_ranking(path, missing=-1.0)
    except ValueError as error:
        assert "\n" not in str(error)
        return
    text = data.decode(detect_encoding(data))
    header, *rows = [row for row in csv.reader(io.StringIO(text, newline="")) if row]
    columns = dict(zip(header, zip(*rows)))

    def numbers(texts):
        return [-1.0 if text.strip(" \t").lower() in ("", "nan") else float(text) for text in texts]

    np.testing.assert_array_equal(found.y, numbers(columns["target"]))
    if "item" in columns:
        assert found.item_names.tolist() == list(columns["item"])
    for place, name in enumerate(found.feature_names):
        np.testing.assert_array_equal(found.X[:, place], numbers(columns[name]))


@given(st.text('{}[]":,0123456789.eE+-nulltrafsNI\\ \n', max_size=60), st.booleans())
@examples(200)
def test_any_text_as_json_lines_is_refused_or_read(folder, text, complete):
    path = folder / "any.jsonl"
    path.write_text('{"target": 1, "a": 2}\n' + text if complete else text)
    try:
        found = read_ranking(path)
    except ValueError as error:
        assert "\n" not in str(error)
        return
    rows = [json.loads(line) for line in path.read_text().split("\n") if line.strip()]
    np.testing.assert_array_equal(found.y, [row["target"] for row in rows])


# Chunks.


@st.composite
def runs_of_queries(draw):
    labels = draw(st.lists(st.integers(-3, 30), min_size=1, max_size=8, unique=True))
    return [(label, draw(st.integers(1, 5))) for label in labels]


@given(runs_of_queries(), st.integers(1, 9), st.integers(1, 60), st.sampled_from([1, 2]))
@examples(150)
def test_chunks_are_whole_queries_as_many_as_fit(folder, runs, rows, block_bytes, n_jobs):
    path = folder / "runs.txt"
    qid = [label for label, length in runs for _ in range(length)]
    path.write_text("".join(f"{k} qid:{label} 1:{k + 1}\n" for k, label in enumerate(qid)))
    expected, current = [], []
    for label, length in runs:
        if current and len(current) + length > rows:
            expected.append(current)
            current = []
        current = current + [label] * length
    expected.append(current)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blocks, "BLOCK_BYTES", block_bytes)
        chunks = list(iter_ranking(path, rows=rows, n_jobs=n_jobs))
        scan = scan_ranking(path)
    assert [chunk.qid.tolist() for chunk in chunks] == expected
    np.testing.assert_array_equal(np.concatenate([chunk.y for chunk in chunks]), np.arange(len(qid)))
    np.testing.assert_array_equal(np.vstack([chunk.X for chunk in chunks])[:, 0], np.arange(len(qid)) + 1)
    assert (scan.n_rows, scan.n_queries, scan.longest_query) == (len(qid), len(runs), max(n for _, n in runs))


@given(runs_of_queries(), st.data(), st.integers(1, 9), st.booleans())
def test_a_query_that_comes_back_is_refused_with_both_lines(folder, runs, data, rows, as_text):
    path = folder / "back.csv"
    runs = [*runs, (99, 1)]
    again = data.draw(st.integers(0, len(runs) - 2))
    runs.append((runs[again][0], 2))
    prefix = "q" if as_text else ""
    qid = [f"{prefix}{label}" for label, length in runs for _ in range(length)]
    path.write_text("target,qid,a\n" + "".join(f"1,{label},2\n" for label in qid))
    ended = 1 + sum(length for _, length in runs[: again + 1])
    expected = f"line {len(qid)}: query {qid[-1]} comes back after it ended on line {ended}."
    with pytest.raises(ValueError, match=re.escape(expected)):
        list(iter_ranking(path, rows=rows))
    assert len(read_ranking(path)) == len(qid)


def test_chunks_without_queries_are_parts_of_one_ranking(folder):
    path = folder / "flat.csv"
    path.write_text("target,a\n" + "".join(f"{k},{k}\n" for k in range(10)))
    assert [len(chunk) for chunk in iter_ranking(path, rows=4)] == [4, 4, 2]


def test_a_stream_that_is_left_early_lets_go_of_its_threads(folder):
    path = folder / "left.txt"
    path.write_text("".join(f"1 qid:{k} 1:1\n" for k in range(3000)))
    before = threading.active_count()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blocks, "BLOCK_BYTES", 100)
        chunks = iter_ranking(path, rows=5, n_jobs=3)
        assert len(next(chunks)) == 5
        assert threading.active_count() > before
        chunks.close()
    assert threading.active_count() == before


def test_the_width_of_chunks_is_held(folder):
    path = folder / "wide.txt"
    path.write_text("1 qid:1 1:1\n1 qid:2 1:1\n1 qid:3 3:1\n")
    with pytest.raises(
        ValueError, match="line 3: feature 3, but the first chunk has none above 1. Pass n_features="
    ):
        list(iter_ranking(path, rows=1))
    assert [chunk.X.shape for chunk in iter_ranking(path, rows=1, n_features=3)] == [(1, 3)] * 3


def test_several_files_are_read_as_one(folder):
    for k in (1, 2):
        (folder / f"part{k}.txt").write_text(f"1 qid:{k} {k}:1\n0 qid:{k} 1:2\n")
    paths = [folder / "part1.txt", folder / "part2.txt"]
    found = read_ranking(paths, sparse=False)
    np.testing.assert_array_equal(found.X, [[1, 0], [2, 0], [0, 1], [2, 0]])
    assert found.qid.tolist() == [1, 1, 2, 2]
    with pytest.raises(
        ValueError, match=r"part1.txt, line 1: query 1 comes back after it ended on line 2 of .*part1.txt\."
    ):
        list(iter_ranking([*paths, paths[0]], rows=2, n_features=2))
    (folder / "part3.txt").write_text("1 1:1\n")
    with pytest.raises(ValueError, match="part3.txt, line 1: no queries, but"):
        read_ranking([*paths, folder / "part3.txt"])


# Options.


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("x.txt", {"features": ["a"]}, "features does not apply to LETOR"),
        ("x.txt", {"target": "a"}, "does not apply"),
        ("x.txt", {"item": "a"}, "does not apply"),
        ("x.csv", {"n_features": 3}, "n_features does not apply to table"),
        ("x.jsonl", {"delimiter": ";"}, "delimiter does not apply"),
        ("x.csv", {"features": ["a"], "drop": ["b"]}, "either features .* or drop"),
        ("x.csv", {"features": ["b"]}, "features asks for column 'b', found 'target', 'a'"),
        ("x.csv", {"drop": ["target"]}, "also the target"),
        ("x.csv", {"query": "target"}, "two roles"),
        ("x.csv", {"format": "excel"}, "expected one of letor, csv"),
        ("x.csv", {"sparse": "yes"}, "sparse must be"),
        ("x.csv", {"dtype": int}, "dtype must be"),
        ("x.csv", {"missing": float("inf")}, "missing must be"),
        ("x.csv", {"delimiter": ";;"}, "one ASCII character"),
        ("x.csv", {"n_jobs": 0}, "n_jobs must be"),
        ("x.weird", {}, "does not determine the format"),
        ("x.csv.gz", {}, "named as gzip data but is not compressed"),
    ],
)
def test_options_that_cannot_be_met_are_refused(folder, name, options, words):
    path = folder / name
    path.write_text('{"target": 1, "a": 2}\n' if name == "x.jsonl" else "target,a\n1,2\n")
    with pytest.raises(ValueError, match=words):
        read_ranking(path, **options)


def test_wrong_kinds_of_arguments_are_refused(folder):
    with pytest.raises(TypeError, match="list of column names"):
        read_ranking(folder / "x.csv", drop="a")
    with pytest.raises(TypeError, match="path of a file"):
        read_ranking(7)
    with pytest.raises(FileNotFoundError, match="There is no file"):
        read_ranking(folder / "nowhere.csv")
    with pytest.raises(IsADirectoryError, match="is a folder"):
        read_ranking(folder)
    with pytest.raises(ValueError, match="rows must be"):
        iter_ranking(folder / "x.csv", rows=0)


def test_files_without_a_header_and_float32(folder):
    path = folder / "bare.csv"
    path.write_text("1,0.1\n2,0.2\n")
    found = read_ranking(path, columns=["target", "a"], dtype=np.float32)
    assert found.X.dtype == np.float32
    np.testing.assert_array_equal(found.X[:, 0], np.array([0.1, 0.2], dtype=np.float32))
    path.write_text("1,1e300\n")
    with pytest.raises(ValueError, match="too large for float32"):
        read_ranking(path, columns=["target", "a"], dtype=np.float32)


def test_without_pyarrow_tables_still_read_and_parquet_says_what_to_install(folder, monkeypatch):
    table, packed = write_table(folder, "csv", TABLE), write_table(folder, "parquet", TABLE)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    assert len(read_ranking(table)) == 4
    with pytest.raises(ImportError, match=r"pip install 'preflearn\[arrow\]'"):
        read_ranking(packed)


def test_progress_goes_to_stderr_only_when_asked_for(folder, capsys):
    path = write_table(folder, "csv", TABLE)
    read_ranking(path)
    assert capsys.readouterr() == ("", "")
    read_ranking(path, verbose=True)
    out, err = capsys.readouterr()
    assert out == ""
    assert "table.csv" in err


# Preferences.


@pytest.mark.parametrize("kind", ["csv", "jsonl", "parquet"])
def test_preferences_become_rows_of_the_item_table(folder, kind):
    items = write_table(folder, kind, {"item": ["tea", "7", "milk"], "price": [1.0, 2.0, 3.0]})
    items = items.rename(folder / f"items.{kind}")
    table = {"winner": ["7", "milk"], "loser": ["tea", "7"], "by": [0.5, 2.0], "times": [1, 3]}
    pairs = write_table(folder, kind, table)
    found = read_preferences(items, pairs, magnitude="by", weight="times")
    np.testing.assert_array_equal(found.pairs, [[1, 0], [2, 1]])
    np.testing.assert_array_equal(found.X, [[1.0], [2.0], [3.0]])
    np.testing.assert_array_equal(found.magnitude, [0.5, 2.0])
    np.testing.assert_array_equal(found.weight, [1.0, 3.0])
    assert repr(found) == "PreferenceData: 2 preferences between 3 items, 1 feature"
    turned = read_preferences(items, pairs, better="loser", worse="winner")
    np.testing.assert_array_equal(turned.pairs, [[0, 1], [1, 2]])
    assert turned.magnitude is None


def test_judges_are_told_apart_by_what_is_written(folder):
    (folder / "i.csv").write_text("item,a\nx,1\ny,2\n")
    (folder / "p.csv").write_text("b,w,judge\nx,y,7\nx,y,7.0\ny,x,7\n")
    assert read_preferences(folder / "i.csv", folder / "p.csv", judge="judge").judge.tolist() == [
        "7",
        "7.0",
        "7",
    ]
    assert read_preferences(folder / "i.csv", folder / "p.csv").judge is None


@pytest.mark.parametrize(("cells", "line"), [(["1", "", "2", ""], 3), (["1", "2", "3", "inf"], 5)])
def test_the_first_preference_without_a_magnitude_is_named(folder, cells, line):
    (folder / "i.csv").write_text("item,a\nx,1\ny,2\n")
    (folder / "p.csv").write_text("b,w,by\n" + "".join(f"x,y,{cell}\n" for cell in cells))
    with pytest.raises(
        ValueError, match=rf"column 'by' must hold numbers in every row: found .* in line {line}"
    ):
        read_preferences(folder / "i.csv", folder / "p.csv", magnitude="by")


@pytest.mark.parametrize(
    ("items", "pairs", "words"),
    [
        ("item,a\nx,1\nx,2\n", "b,w\nx,y\n", "'x' names two items, 1 and 2"),
        ("item,a\nx,1\n", "b,w\n\nx,z\n", "column 'w': 'z' .line 3. is not an item of"),
        ("item,a\nx,1\ny,2\n", "b,w\nx,y\ny,y\n", "line 3: 'y' is preferred to itself"),
        ("name,a\n1,1\n", "b,w\nx,y\n", "the items have no names"),
        ("item,a\nx,1\n", "b\nx\n", "expected two"),
        ("item,a\nx,1\n", "b,w\n", "no rows"),
    ],
)
def test_faults_of_preferences(folder, items, pairs, words):
    (folder / "i.csv").write_text(items)
    (folder / "p.csv").write_text(pairs)
    with pytest.raises(ValueError, match=words):
        read_preferences(folder / "i.csv", folder / "p.csv")


# Scores.


@pytest.mark.parametrize("suffix", ["txt", "csv", "tsv.gz", "jsonl", "parquet", "txt.xz"])
@given(scores=st.lists(finite, min_size=1, max_size=10))
def test_scores_come_back_exactly(folder, suffix, scores):
    if suffix == "parquet":
        pytest.importorskip("pyarrow")
    path = folder / f"scores.{suffix}"
    write_scores(path, scores)
    np.testing.assert_array_equal(read_scores(path), scores)


@pytest.mark.parametrize("suffix", ["csv", "tsv", "jsonl", "parquet"])
def test_scores_keep_their_queries_and_items(folder, suffix):
    if suffix == "parquet":
        pytest.importorskip("pyarrow")
    path = folder / f"named.{suffix}"
    names = ['say "hi"', "a,b", "é\tü"]
    write_scores(path, [1.0, 2.0, 3.0], qid=["x", "x", "y"], item_names=np.array(names, dtype=object))
    found = read_ranking(path, target=None, features=["score"])
    assert found.item_names.tolist() == names
    assert found.qid.tolist() == ["x", "x", "y"]


def test_scores_that_cannot_be_written_leave_the_old_file(folder):
    path = folder / "keep.csv"
    write_scores(path, [1.0])
    before = path.read_bytes()
    for scores, options, words in [
        ([np.nan], {}, "must be finite"),
        ([[1.0]], {}, "one score per row"),
        ([1.0], {"qid": [1, 2]}, "one query label per row"),
        ([1.0], {"item_names": ["a", "b"]}, "one value per row"),
        ([1.0], {"format": "letor"}, "is not known"),
    ]:
        with pytest.raises(ValueError, match=words):
            write_scores(path, scores, **options)
    with pytest.raises(ValueError, match="no place for qid="):
        write_scores(folder / "keep.txt", [1.0], qid=[1])
    assert path.read_bytes() == before


# ------------------------------------------------------------------------------------------- tables as they come


@examples(150)
@given(
    body=st.one_of(
        st.binary(max_size=200),
        st.text(alphabet='ab7,.;"\n\r\t 0-é\x00', max_size=200).map(str.encode),
    ),
    header=st.sampled_from([b"a,b,target\n", b"target,a\r\n", b"\xef\xbb\xbfa,target\n", b""]),
)
@example(body=b'1,"2\n3,4\n', header=b"a,target\n")
@example(body=b"1\n" * 3 + b"x,2\n", header=b"a,target\n")
@example(body=b"NaN,inf\n-inf,1e999\n", header=b"a,target\n")
def test_any_bytes_are_a_table_or_one_error(tmp_path_factory, body, header):
    path = tmp_path_factory.getbasetemp() / "hostile.csv"
    path.write_bytes(header + body)
    try:
        table = read_table(path)
    except ValueError as error:
        assert str(path) in str(error) or "header" in str(error)
        return
    sizes = {len(column) for column in table.columns.values()}
    assert sizes == {len(table.y)} and np.isfinite(table.y).all()


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b"", "empty"),
        (b"a,target\n", "no rows"),
        (b"a,a,target\n1,2,3\n", "'a' appears twice in the header. Rename one"),
        (b"a,,target\n1,2,3\n", "no name"),
        (b"1,2\n3,4\n", "only numbers"),
        (b"target\n1\n", "no column is left"),
        (b'a,target\n"1,2\n', "never closed"),
        (b"a;b;target\n1;2\n3;4;5\n", "divides unevenly. Pass delimiter=';'"),
        (b"a,target\n1,inf\n2,3\n", "neither a number nor yes/no"),
        (
            b"a,target\n1,good\n2,bad\n3,ok\n4,bad\n",
            r"\(line 2 \('good'\), line 3 .*: targets are numbers, higher is better. Write 0, 1, 2 for 'bad', 'good', "
            "'ok', in their order from worst to best",
        ),
        (b"\x89PNG\r\n\x1a\n\x00\x00", "header cannot be read.*not be a text file"),
    ],
)
def test_faults_of_tables(folder, body, says):
    (folder / "f.csv").write_bytes(body)
    with pytest.raises(ValueError, match=says):
        read_table(folder / "f.csv")


@given(
    columns=st.lists(
        st.lists(
            st.sampled_from(["1", "2.5", "", "red", "yes", "2024-01-31", "a b c d", "-", "1e3"]),
            min_size=4,
            max_size=4,
        ),
        min_size=1,
        max_size=4,
    )
)
def test_cells_come_back_as_they_are(tmp_path_factory, columns):
    """A column is numbers or the very texts of the file, whatever the other columns are."""
    path = tmp_path_factory.getbasetemp() / "cells.csv"
    names = [f"c{k}" for k in range(len(columns))]
    rows = [",".join([*cells, "1"]) for cells in zip(*columns)]
    path.write_text("\n".join([",".join([*names, "target"]), *rows]) + "\n")
    table = read_table(path)
    for name, cells in zip(names, columns):
        found = table.columns[name]
        if found.dtype == object:
            assert found.tolist() == cells
        else:
            expected = [np.nan if cell in ("", "-") else float(cell) for cell in cells]
            np.testing.assert_array_equal(found, expected)


# Rows whose target is missing or unreadable ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("targets", "bad", "y"),
    [
        (["1", "", "2", "n.b.", "0"], [1, 3], [1, 2, 0]),
        (["yes", "no", "maybe", "no", "NA"], [2, 4], [1, 0, 0]),
        (["1,5", "0,5", "2,5", "?", "1"], [3], [1.5, 0.5, 2.5, 1]),
        (["1", "2", "0", "1", "2"], [], [1, 2, 0, 1, 2]),
    ],
)
def test_bad_rows_are_left_out_where_that_is_asked_for(tmp_path, targets, bad, y):
    """As from the file without these rows, with their number and their lines in a warning."""
    rows = [f"s{k // 2}\ti{k}\t{k}\tx{k % 2}\t{target}" for k, target in enumerate(targets)]
    path, clean = tmp_path / "bad.tsv", tmp_path / "clean.tsv"
    head = "qid\titem\tprice\tkind\ttarget"
    path.write_text("\n".join([head, *rows]) + "\n")
    clean.write_text("\n".join([head, *(row for k, row in enumerate(rows) if k not in bad)]) + "\n")
    if not bad:
        assert read_table(path, on_bad="skip").kept is None
        return
    with pytest.raises(ValueError, match=r"on_bad='skip' to leave these rows out") as refused:
        read_table(path)
    with pytest.warns(UserWarning, match=rf"{len(bad)} rows? (was|were) left out of 5") as told:
        found = read_table(path, on_bad="skip")
    for k in bad:
        assert f"line {k + 2}" in str(told[0].message) and f"line {k + 2}" in str(refused.value)
    expected = read_table(clean)
    assert found.y.tolist() == expected.y.tolist() == y
    assert found.qid.tolist() == expected.qid.tolist()
    assert found.item_names.tolist() == expected.item_names.tolist()
    assert {name: values.tolist() for name, values in found.columns.items()} == {
        name: values.tolist() for name, values in expected.columns.items()
    }
    kept = [k for k in range(5) if k not in bad]
    assert np.flatnonzero(found.kept).tolist() == kept
    assert found.place(len(found) - 1) == f"line {kept[-1] + 2}"


def test_what_is_not_a_few_bad_rows_is_refused(tmp_path):
    path = tmp_path / "words.csv"
    path.write_text("price,target\n1,good\n2,bad\n3,1\n")
    with pytest.raises(ValueError, match="2 values that are neither numbers nor yes/no") as refused:
        read_table(path, on_bad="skip")
    assert "on_bad" not in str(refused.value)
    path.write_text("price,target\n1,\n2,\n")
    with pytest.raises(ValueError, match="2 missing targets"):
        read_table(path, on_bad="skip")
    for options, named in (
        ({"allow_unknown": True}, "allow_unknown=True"),
        ({"target": None}, "target=None"),
    ):
        with pytest.raises(ValueError, match=f"on_bad='skip'.*{named}"):
            read_table(path, on_bad="skip", **options)
    with pytest.raises(ValueError, match="'raise' or 'skip'"):
        read_table(path, on_bad="drop")
