"""LETOR text: equal to the line-by-line oracle on whatever hypothesis makes, and to other readers on real data."""

from __future__ import annotations

import gzip
import re
import tracemalloc

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from scipy import sparse as sp
from sklearn.linear_model import Ridge

import oracles
from preflearn.io import iter_ranking, model_info, read_ranking, save_model, scan_ranking, write_ranking
from preflearn.tables import blocks
from strategies import examples


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("letor")


def read_bytes(folder, data, **options):
    path = folder / "data.txt"
    path.write_bytes(data)
    return read_ranking(path, **options)


def fault_line(error):
    return int(re.search(r"data\.txt, line (\d+):", str(error)).group(1))


def assert_as_oracle(folder, data, **options):
    """The reader and the oracle find the same rows, or the same line at fault."""
    try:
        rows = oracles.letor_rows(data, **options)
    except oracles.LetorError as fault:
        with pytest.raises(ValueError) as error:
            read_bytes(folder, data, sparse=True, **options)
        assert fault_line(error.value) == fault.args[0], str(error.value)
        assert "\n" not in str(error.value)
        return
    if not rows:
        with pytest.raises(ValueError, match="no rows"):
            read_bytes(folder, data, **options)
        return
    found = read_bytes(folder, data, sparse=True, **options)
    np.testing.assert_array_equal(found.y, [row[1] for row in rows])
    if rows[0][2] is None:
        assert found.qid is None
    else:
        np.testing.assert_array_equal(found.qid, [row[2] for row in rows])
    assert found.X.shape == (len(rows), max([1, *(index for row in rows for index in row[3])]))
    expected = sp.dok_array(found.X.shape)
    for place, row in enumerate(rows):
        for index, value in row[3].items():
            if value != 0:
                expected[place, index - 1] = value
    np.testing.assert_array_equal((found.X != expected.tocsr()).sum(), 0)
    names = [row[4] for row in rows]
    assert (found.item_names is None) == (not any(b"#" in line for line in _row_lines(data, rows)))
    if found.item_names is not None:
        assert found.item_names.tolist() == names


def _row_lines(data, rows):
    lines = data.split(b"\n")
    return [lines[row[0] - 1] for row in rows]


numbers = st.one_of(
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.floats(-1e6, 1e6).map(lambda value: f"{value:.6f}"),
    st.integers(-(10**25), 10**25).map(str),
    st.sampled_from(
        ["0", "1", "-0.0", "+3", ".5", "5.", "1e5", "1E-3", "0.1000000000000000055511151231257827"]
    ),
    st.from_regex(r"[+-]?[0-9]{0,22}\.?[0-9]{1,22}(e[+-]?[0-9]{1,3})?", fullmatch=True).filter(
        lambda text: abs(float(text)) < 1e308
    ),
)


@st.composite
def letor_files(draw):
    """Valid files with every liberty that the format allows."""
    with_queries = draw(st.booleans())
    lines = []
    for _ in range(draw(st.integers(1, 6))):
        blank = draw(st.sampled_from([" ", "\t", "  "]))
        indices = sorted(draw(st.sets(st.integers(1, 50), max_size=5)))
        parts = [draw(numbers)]
        if with_queries:
            parts.append(f"qid:{draw(st.integers(-5, 5))}")
        parts += [f"{index}:{draw(numbers)}" for index in indices]
        comment = draw(st.sampled_from(["", " # docid = 7", "#x#y", " #", " # é ü"]))
        lines.append(draw(st.sampled_from(["", " "])) + blank.join(parts) + comment)
        lines += draw(st.sampled_from([[], [], [""], ["# only a comment"], ["   "]]))
    end = draw(st.sampled_from(["\n", "\r\n"]))
    return (end.join(lines) + draw(st.sampled_from(["", end]))).encode()


@given(letor_files())
@examples(150)
def test_valid_files_are_read_as_the_oracle_reads_them(folder, data):
    assert_as_oracle(folder, data)


@st.composite
def damaged_files(draw):
    data = bytearray(draw(letor_files()))
    for _ in range(draw(st.integers(1, 3))):
        place = draw(st.integers(0, len(data)))
        kind = draw(st.sampled_from(["replace", "insert", "delete", "cut"]))
        new = draw(st.sampled_from(list(b"0159.:-+eE qid#\n\r\tNULLnan\x00\xff\xc3")))
        if kind == "cut":
            del data[place:]
        elif kind == "insert" or place == len(data):
            data.insert(place, new)
        elif kind == "delete":
            del data[place]
        else:
            data[place] = new
    return bytes(data)


@given(damaged_files())
@examples(400)
@example(b"1 qid:1 1:2\r2 qid:1 1:3\r")
@example(b"1 qid:1 1:\n")
@example(b"1 qid:1 1:2\r")
@example(b"\r\n\r1\n")
@example(b"qid:1 1:2\n")
@example(b"1 1:2 qid:3\n")
@example(b"1 qid:1\n1 qid:1 1:1_0\n")
def test_damaged_files_are_refused_or_read_as_the_oracle_reads_them(folder, data):
    assert_as_oracle(folder, data)


@given(st.binary(max_size=60) | st.text("0123456789.:-+eE qid#\n\r\tnaNUL", max_size=60).map(str.encode))
@examples(300)
def test_any_bytes_are_refused_or_read_as_the_oracle_reads_them(folder, data):
    if data.startswith((b"\x1f\x8b", b"\xfd7zXZ\x00", b"\x28\xb5\x2f\xfd")):
        with pytest.raises(ValueError, match="damaged"):
            read_bytes(folder, data)
    else:
        assert_as_oracle(folder, data)


@given(damaged_files())
def test_missing_values_on_request(folder, data):
    assert_as_oracle(folder, data, missing=-1.0, allow_unknown=True)


@given(letor_files(), st.integers(1, 200), st.sampled_from([1, 3]))
def test_blocks_and_threads_change_nothing(folder, data, block_bytes, n_jobs):
    data += b"\n"  # a last row without its line end may be taken for one that was cut short
    whole = read_bytes(folder, data, sparse=False)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blocks, "BLOCK_BYTES", block_bytes)
        cut = read_bytes(folder, data, sparse=False, n_jobs=n_jobs)
    np.testing.assert_array_equal(cut.X, whole.X)
    np.testing.assert_array_equal(cut.y, whole.y)
    np.testing.assert_array_equal(cut.qid, whole.qid)
    np.testing.assert_array_equal(cut.item_names, whole.item_names)


@given(damaged_files(), st.integers(1, 200))
def test_line_numbers_do_not_depend_on_blocks(folder, data, block_bytes):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blocks, "BLOCK_BYTES", block_bytes)
        assert_as_oracle(folder, data)


@given(st.lists(numbers, min_size=1, max_size=20))
@examples(200)
@example([str(k) for k in (2**53 + 1, 2**53 + 3, 2**64 - 1, 2**64, 9007199254740993)])
@example(["9007199254740993e0", "9007199254740992.5", "4503599627370496.5", "4503599627370497.5"])
@example(["1e22", "1e23", "8.5e22", "5e-324", "2.2250738585072011e-308", "1.7976931348623157e308"])
def test_numbers_are_exactly_those_of_float(folder, texts):
    data = "".join(f"{text} 1:{text}\n" for text in texts).encode()
    found = read_bytes(folder, data, sparse=False)
    expected = [float(text) for text in texts]
    np.testing.assert_array_equal(found.y, expected)
    np.testing.assert_array_equal(found.X[:, 0], expected)


FAULTS = [
    (b"1 qid:1 1:2\n2 qid:1 2:1 1:3\n", 2, "must ascend"),
    (b"1 qid:1 1:2 1:3\n", 1, "must ascend"),
    (b"1 qid:1 0:2\n", 1, "numbered from 1"),
    (b"1 qid:1 1:2\n\n# note\n1 1:2\n", 4, "no qid"),
    (b"1 1:2\n1 qid:3 1:2\n", 2, "line 1 has none"),
    (b"1 qid:x 1:2\n", 1, "whole number"),
    (b"1 qid:1234567890123456789 1:2\n", 1, "18 digits"),
    (b"nan qid:1 1:2\n", 1, "missing target"),
    (b"inf qid:1 1:2\n", 1, "infinite"),
    (b"1 qid:1 1:inf\n", 1, "feature 1: 'inf' is infinite"),
    (b"1 qid:1 1:1e999\n", 1, "too large"),
    (b"1 qid:1 1:2\n1 qid:1 7:NULL\n", 2, "feature 7: a missing value"),
    (b"1 qid:1 1:2 price:3\n", 1, "expected <index>:<value>"),
    (b"1 qid:1 1:2 4294967297:3\n", 1, "largest feature number"),
    (20 * b"1 qid:1 1:2 3:1\n" + b"2 qid:1 1:2 ", 21, "middle of a row"),
    (b"1 qid:1 1:2\n2 qid:1 1", 2, "expected <index>:<value>"),
    (b"1 qid:1 1:2\n2 qid:1 1:", 2, "no value"),
    (b"hello world\n", 1, "expected a number"),
]


@pytest.mark.parametrize(("data", "line", "words"), FAULTS)
def test_faults_name_the_line_and_the_reason(folder, data, line, words):
    with pytest.raises(ValueError, match=re.escape(words)) as error:
        read_bytes(folder, data)
    assert fault_line(error.value) == line


def test_a_short_last_row_is_taken_for_a_cut_one_only_after_many_equal_rows(folder):
    many = 20 * b"1 qid:1 1:2 3:1\n"
    for data in (
        many[16:] + b"2 qid:1 1:2",
        many + b"2 qid:1 1:2\n",
        many + b"2 qid:1 1:2 9:1",
        b"1 1:1\n" + many[:0],
    ):
        assert_as_oracle(folder, data)
        read_bytes(folder, data)
    assert_as_oracle(folder, many + b"2 qid:1 1:2")


def test_a_query_can_be_insisted_on_or_left_out(folder):
    with pytest.raises(ValueError, match="line 1: no qid"):
        read_bytes(folder, b"1 1:2\n", query="qid")
    assert read_bytes(folder, b"1 qid:1 1:2\n2 1:3\n", query=None).qid is None


def test_targets_can_be_left_out(folder):
    assert read_bytes(folder, b"NULL qid:1 1:2\n", target=None).y is None
    assert np.isnan(read_bytes(folder, b"NULL qid:1 1:2\n", allow_unknown=True).y[0])
    with pytest.raises(ValueError, match="line 1: target: found 'x'"):
        read_bytes(folder, b"x qid:1 1:2\n", target=None)


def test_layout_follows_the_rule_and_the_option(folder):
    dense, thin = b"1 1:1 10:1\n", b"1 11:1\n"
    assert not sp.issparse(read_bytes(folder, dense).X)
    assert sp.issparse(read_bytes(folder, thin).X)
    assert sp.issparse(read_bytes(folder, dense, sparse=True).X)
    assert not sp.issparse(read_bytes(folder, thin, sparse=False).X)
    assert read_bytes(folder, thin, n_features=30).X.shape == (1, 30)
    with pytest.raises(ValueError, match="line 1: feature 11, expected none above 5"):
        read_bytes(folder, thin, n_features=5)


def test_explicit_zeros_count_for_the_width_only(folder):
    found = read_bytes(folder, b"1 1:0 9:0.000\n2 1:5\n", sparse=True)
    assert found.X.shape == (2, 9)
    assert found.X.nnz == 1


@st.composite
def matrices(draw):
    shape = draw(st.tuples(st.integers(1, 6), st.integers(1, 6)))
    cells = st.one_of(st.just(0.0), st.floats(allow_nan=False, allow_infinity=False))
    X = np.array(draw(st.lists(cells, min_size=shape[0] * shape[1], max_size=shape[0] * shape[1]))).reshape(
        shape
    )
    return X + 0.0  # no negative zeros: a sparse file does not hold them


@given(matrices(), st.booleans(), st.data())
def test_what_is_written_comes_back(folder, X, as_sparse, data):
    m = X.shape[0]
    y = data.draw(st.lists(st.floats(allow_infinity=False), min_size=m, max_size=m))
    qid = data.draw(st.none() | st.lists(st.integers(-(10**17), 10**17), min_size=m, max_size=m))
    names = data.draw(
        st.none() | st.lists(st.sampled_from(["a", "docid = 4", "é # x"]), min_size=m, max_size=m)
    )
    path = folder / data.draw(
        st.sampled_from(["back.txt", "back.txt.gz", "back.txt.xz", "back.txt.bz2", "back.txt.zst"])
    )
    write_ranking(path, sp.csr_array(X) if as_sparse else X, y, qid=qid, item_names=names)
    found = read_ranking(path, sparse=as_sparse, allow_unknown=True)
    np.testing.assert_array_equal(found.X.toarray() if as_sparse else found.X, X)
    np.testing.assert_array_equal(found.y, y)
    assert (found.qid is None) if qid is None else found.qid.tolist() == qid
    assert (found.item_names is None) if names is None else found.item_names.tolist() == names


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"X": [[np.nan]]}, "X must be finite"),
        ({"y": [np.inf]}, "finite targets"),
        ({"y": [1.0, 2.0]}, "one target per row"),
        ({"qid": ["a"]}, "whole numbers"),
        ({"qid": [10**18]}, "18 digits"),
        ({"item_names": ["a\nb"]}, "line ends"),
        ({"item_names": ["a", "b"]}, "one value per row"),
    ],
)
def test_what_would_not_come_back_is_not_written(folder, arguments, words):
    path = folder / "never.txt"
    with pytest.raises(ValueError, match=words):
        write_ranking(path, **{"X": [[1.0]], "y": [1.0], **arguments})
    assert not path.exists()


def test_cut_compressed_files_are_refused(folder):
    data = b"".join(b"%d qid:%d 1:%d 2:0.5\n" % (k % 3, k // 10, k * k) for k in range(20000))
    path = folder / "data.txt.gz"
    whole = gzip.compress(data)
    for size in (15, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:size])
        with pytest.raises(
            ValueError, match=r"data.txt.gz: the gzip data are damaged or cut short after line \d+"
        ):
            read_ranking(path)
    broken = bytearray(whole)
    broken[len(broken) // 2] ^= 0xFF
    path.write_bytes(bytes(broken))
    with pytest.raises(ValueError, match="damaged|line"):
        read_ranking(path)


# Real data, against other readers.


def test_ohsumed_equals_scikit_learn(real_data):
    import lzma

    from sklearn.datasets import load_svmlight_file

    paths = [real_data("letor_ohsumed_v2") / f"S{k}.txt.xz" for k in range(1, 6)]
    found = read_ranking(paths)
    assert repr(found).startswith("RankingData: 16,140 rows in 106 queries, 25 features (dense float64)")
    row = 0
    for path in paths:
        with lzma.open(path) as file:
            X, y, qid = load_svmlight_file(file, query_id=True, n_features=25)
        part = slice(row, row + X.shape[0])
        np.testing.assert_array_equal(found.X[part], X.toarray())
        np.testing.assert_array_equal(found.y[part], y)
        np.testing.assert_array_equal(found.qid[part], qid)
        row += X.shape[0]
    assert found.item_names[0] == "docid = 40626"


def test_mslr_equals_the_oracle_and_its_own_chunks(real_data):
    import lzma

    path = real_data("mslr_sample") / "web10k_fold1_train_5k.txt.xz"
    found = read_ranking(path)
    rows = oracles.letor_rows(lzma.open(path).read())
    assert found.X.shape == (5000, 136)
    np.testing.assert_array_equal(found.X, [[row[3][k] for k in range(1, 137)] for row in rows])
    chunks = list(iter_ranking(path, rows=700))
    np.testing.assert_array_equal(np.vstack([chunk.X for chunk in chunks]), found.X)
    assert max(map(len, chunks)) <= 700
    assert all(not set(a.qid) & set(b.qid) for a, b in zip(chunks, chunks[1:]))
    scan = scan_ranking(path)
    assert (scan.n_rows, scan.n_features, scan.n_queries) == (5000, 136, 43)


def test_missing_ranks_of_mq2007_are_refused_or_filled(real_data):
    path = real_data("letor_mq2007") / "agg_S1.txt.xz"
    with pytest.raises(ValueError, match="line 1: feature 1: a missing value. Pass missing=0.0"):
        read_ranking(path)
    found = read_ranking(path, missing=float("nan"))
    assert found.X.shape == (14013, 21)
    assert np.isnan(found.X[0]).all()
    assert found.X[1, 0] == 107


def test_names_of_numbered_features_take_no_memory(tmp_path):
    """One large feature number must not cost a text for each number below it."""
    path = tmp_path / "wide.txt"
    path.write_text("1 qid:1 1:1 30000000:1\n0 qid:1 2:1\n")
    read_ranking(path)  # whatever is compiled or imported on first use
    tracemalloc.start()
    data = read_ranking(path)
    (chunk,) = iter_ranking(path, rows=10)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 50e6
    for found in (data, chunk):
        assert found.X.shape == (2, 30_000_000)
        names = found.feature_names
        assert (len(names), names[0], names[-1], names[1:3]) == (30_000_000, "1", "30000000", ["2", "3"])
        assert repr(names) == "['1', '2', ..., '30000000']"


def test_numbered_names_are_a_list_to_whoever_reads_them(tmp_path):
    path = tmp_path / "narrow.txt"
    path.write_text("1 qid:1 1:1 3:2\n")
    names = read_ranking(path).feature_names
    assert names == ["1", "2", "3"] == list(names)
    assert names == read_ranking(path).feature_names
    assert all(names != other for other in (["1", "2"], ["1", "2", "4"], 3))
    assert "3" in names
    assert names.index("2") == 1
    assert repr(names) == "['1', '2', '3']"
    with pytest.raises(IndexError):
        names[3]
    model = Ridge().fit([[0.0], [1.0]], [0.0, 1.0])
    save_model(model, tmp_path / "model", metadata={"features": names})
    assert model_info(tmp_path / "model")["metadata"] == {"features": ["1", "2", "3"]}
