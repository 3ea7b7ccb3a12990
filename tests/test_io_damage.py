"""Compressed and columnar files with damage: what is returned is whole, or there is an error."""

from __future__ import annotations

import bz2
import gzip
import lzma
import os

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from preflearn.io import iter_ranking, read_ranking

LONG = os.environ.get("PREFLEARN_LONG_TESTS") == "1"
ROWS = 200
LINES = "".join(f"{k % 3} qid:{k // 10} 1:{k}.5 2:{k * 7 % 11}\n" for k in range(ROWS)).encode()


def zstd(data):
    arrow = pytest.importorskip("pyarrow")
    return arrow.Codec("zstd").compress(data, asbytes=True)


COMPRESSORS = {"gz": gzip.compress, "bz2": bz2.compress, "xz": lzma.compress, "zst": zstd}
KINDS = sorted(COMPRESSORS)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("damage")


def in_streams(kind, cuts):
    """The rows in several streams, each cut behind a row."""
    lines = LINES.splitlines(keepends=True)
    ends = [0, *sorted(cuts), len(lines)]
    return [COMPRESSORS[kind](b"".join(lines[a:b])) for a, b in zip(ends, ends[1:])]


def n_rows(path):
    return read_ranking(path).X.shape[0]


@pytest.mark.parametrize("kind", KINDS)
def test_several_streams_are_read_as_one_file(folder, kind):
    path = folder / f"several.txt.{kind}"
    path.write_bytes(b"".join(in_streams(kind, [3, 50, 100])))
    np.testing.assert_array_equal(read_ranking(path).X[:, 0], np.arange(ROWS) + 0.5)
    assert sum(len(chunk.y) for chunk in iter_ranking(path, rows=30)) == ROWS


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("place", [0, 1, 3, 5, 12, "middle", -9, -5, -1])
def test_a_damaged_second_stream_is_an_error(folder, kind, place):
    first, second = in_streams(kind, [100])
    damaged = bytearray(second)
    damaged[len(damaged) // 2 if place == "middle" else place] ^= 0x55
    path = folder / f"damaged.txt.{kind}"
    path.write_bytes(first + bytes(damaged))
    # A stream may hold bits that nothing depends on: the time in gzip, the last bits in bzip2. All rows are there then.
    try:
        found = n_rows(path)
    except ValueError as error:
        assert "damaged or cut short after line" in str(error)
    else:
        assert found == ROWS
        assert kind in ("gz", "bz2")


@pytest.mark.parametrize("kind", KINDS)
def test_a_second_stream_that_is_cut_short_is_an_error(folder, kind):
    first, second = in_streams(kind, [100])
    path = folder / f"short.txt.{kind}"
    for length in {1, 2, 4, 6, len(second) // 2, len(second) - 4, len(second) - 1}:
        path.write_bytes(first + second[:length])
        with pytest.raises(ValueError, match="damaged or cut short"):
            n_rows(path)


@pytest.mark.parametrize("kind", KINDS)
def test_text_behind_the_last_stream_is_an_error(folder, kind):
    path = folder / f"behind.txt.{kind}"
    path.write_bytes(COMPRESSORS[kind](LINES) + b"1 qid:99 1:1\n")
    with pytest.raises(ValueError, match="damaged or cut short"):
        n_rows(path)


def test_xz_streams_may_be_padded_with_zeros(folder):
    path = folder / "padded.txt.xz"
    for behind in (4, 8, 1 << 16):
        path.write_bytes(bytes(behind).join([*in_streams("xz", [100]), b""]))
        assert n_rows(path) == ROWS
    for behind in (1, 3, 6):
        path.write_bytes(COMPRESSORS["xz"](LINES) + bytes(behind))
        with pytest.raises(ValueError, match="damaged or cut short"):
            n_rows(path)


@given(st.data())
@settings(max_examples=2000 if LONG else 100)
def test_damage_anywhere_loses_no_row_silently(folder, data):
    kind = data.draw(st.sampled_from(KINDS))
    cuts = data.draw(st.sets(st.integers(1, ROWS - 1), max_size=3))
    content = bytearray(b"".join(in_streams(kind, cuts)))
    # zstd data of pyarrow carry no checksum, so that a changed byte may go unnoticed; lost bytes never do.
    changes = [] if kind == "zst" else ["flip", "zeros", "remove"]
    how = data.draw(st.sampled_from(["cut", "append", *changes]))
    place = data.draw(st.integers(0, len(content) - 1))
    if how == "flip":
        content[place] ^= data.draw(st.integers(1, 255))
    elif how == "zeros":
        content[place : place + 8] = bytes(len(content[place : place + 8]))
    elif how == "cut":
        del content[place:]
    elif how == "remove":
        del content[place : place + data.draw(st.integers(1, 30))]
    else:
        content += data.draw(st.binary(min_size=1, max_size=20))
    path = folder / f"any.txt.{kind}"
    path.write_bytes(bytes(content))
    try:
        found = read_ranking(path).X
    except ValueError as error:
        assert "\n" not in str(error)
        return
    # A cut between two streams leaves a whole file of fewer rows, and no reader can know better.
    streams = in_streams(kind, cuts)
    ends = {sum(map(len, streams[:k])): k for k in range(1, len(streams) + 1)}
    if how == "cut" and place in ends:
        assert found.shape[0] == sorted({*cuts, ROWS})[ends[place] - 1]
        return
    if how == "remove" and found.shape[0] < ROWS:
        pytest.fail("rows are missing")
    np.testing.assert_array_equal(found[:, 0], np.arange(ROWS) + 0.5)


def test_page_checksums_of_parquet_files_are_verified(folder):
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    values = np.arange(1000) + 0.25
    table = pyarrow.table({"target": values, "a": values, "qid": np.arange(1000) // 10})
    path = folder / "checked.parquet"
    parquet.write_table(
        table,
        path,
        write_page_checksum=True,
        compression="none",
        use_dictionary=False,
        write_statistics=False,
    )
    whole = path.read_bytes()
    np.testing.assert_array_equal(read_ranking(path).X[:, 0], values)
    # A number in the middle of a page changes into another number.
    place = whole.index(np.float64(500.25).tobytes())
    damaged = bytearray(whole)
    damaged[place] ^= 1
    path.write_bytes(bytes(damaged))
    with pytest.raises(ValueError, match="not a whole Parquet file .*CRC"):
        read_ranking(path)
    with pytest.raises(ValueError, match="not a whole Parquet file .*CRC"):
        list(iter_ranking(path, rows=100))
