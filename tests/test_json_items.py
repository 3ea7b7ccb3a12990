"""The compiled reader of requests: it reads as the standard library does, or leaves the request to it."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from preflearn._engine.loops.json_items import ItemReader
from strategies import examples

NUMBERS = st.one_of(
    st.floats(allow_nan=False, allow_infinity=False),
    st.integers(-(2**70), 2**70),
    st.sampled_from([0, -0.0, 0.1, 1e-5, 1.7976931348623157e308, 5e-324, 0.00012345678901234567]),
)
NAMES = st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), min_size=1, max_size=6)


def by_python(body: bytes, names: list[str]) -> np.ndarray | None:
    """The matrix where every item has just these keys with finite numbers; None otherwise."""
    try:
        found = json.loads(body)
    except ValueError:
        return None
    if not isinstance(found, dict) or set(found) != {"items"} or not isinstance(found["items"], list):
        return None
    rows = []
    for item in found["items"]:
        if not isinstance(item, dict) or set(item) != set(names):
            return None
        if any(type(value) not in (int, float) for value in item.values()):
            return None
        rows.append([float(item[name]) for name in names])
    return np.array(rows) if rows else None


@examples(100)
@given(data=st.data(), names=st.lists(NAMES, min_size=1, max_size=5, unique=True), spaced=st.booleans())
def test_numbers_are_read_as_by_python(data, names, spaced):
    order = data.draw(st.permutations(names))
    rows = data.draw(
        st.lists(st.lists(NUMBERS, min_size=len(names), max_size=len(names)), min_size=1, max_size=5)
    )
    content = {"items": [dict(zip(order, row, strict=True)) for row in rows]}
    body = json.dumps(content, indent=1 if spaced else None, ensure_ascii=False).encode()
    found = ItemReader(names)(body)
    if found is not None:
        np.testing.assert_array_equal(found, by_python(body, names))
    elif all(name.isprintable() and not set(name) & {'"', "\\"} for name in names):
        # Only numbers of more than 19 digits, or at the ends of the range, are left to Python.
        assert any(abs(value) > 1e18 or 0 < abs(value) < 1e-280 for row in rows for value in row)


@examples(300)
@given(data=st.data())
def test_whatever_is_damaged_is_left_to_python(data):
    """Bytes lost, doubled or replaced: what is read is what Python reads; nothing is read that Python refuses."""
    names = ["a", "ab", "b c", "ü"]
    rows = data.draw(st.lists(st.lists(NUMBERS, min_size=4, max_size=4), min_size=1, max_size=3))
    body = bytearray(
        json.dumps({"items": [dict(zip(names, row)) for row in rows]}, ensure_ascii=False).encode()
    )
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(0, len(body) - 1))
        new = data.draw(
            st.sampled_from([b"", b"0", b"-", b"+", b".", b"e", b'"', b",", b"}", b"]", b" ", b"\\", b"\0"])
        )
        body[place : place + data.draw(st.integers(0, 2))] = new
        if not body:
            return
    found = ItemReader(names)(body)
    if found is not None:
        expected = by_python(bytes(body), names)
        assert expected is not None, bytes(body)
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b'{"items": []}',
        b'{"items": [{}]}',
        b'{"items": [{"a": 1}]}',
        b'{"items": [{"a": 1, "b": 2, "c": 3}]}',
        b'{"items": [{"a": 1, "a": 2}]}',
        b'{"items": [{"a": 1, "b": 2}, {"b": 2, "a": 1}]}',
        b'{"items": [{"a": 1, "b": 2}], "set": 0.9}',
        b'{"items": [{"a": 1, "b": 2}]} x',
        b'{"items": [{"a": 1, "b": 2},]}',
        b'{"items": [{"a": 1, "b": null}]}',
        b'{"items": [{"a": 1, "b": "2"}]}',
        b'{"items": [{"a": 01, "b": 2}]}',
        b'{"items": [{"a": 1., "b": 2}]}',
        b'{"items": [{"a": .5, "b": 2}]}',
        b'{"items": [{"a": +1, "b": 2}]}',
        b'{"items": [{"a": 1.e3, "b": 2}]}',
        b'{"items": [{"a": 1e, "b": 2}]}',
        b'{"items": [{"a": -, "b": 2}]}',
        b'{"items": [{"a": NaN, "b": 2}]}',
        b'{"items": [{"a": 1e400, "b": 2}]}',
        b'\xef\xbb\xbf{"items": [{"a": 1, "b": 2}]}',
        b'{"items": [{"\\u0061": 1, "b": 2}]}',
    ],
)
def test_other_requests_are_left_to_python(body):
    assert ItemReader(["a", "b"])(body) is None


def test_names_that_need_escapes_are_left_to_python():
    for name in ('"', "\\", "a\n", ""):
        body = json.dumps({"items": [{name: 1.0}]}).encode()
        found = ItemReader([name])(body)
        assert found is None or found.tolist() == [[1.0]]
    assert ItemReader([])(b'{"items": [{}]}') is None


@examples(100)
@given(data=st.data())
def test_spaces_need_not_be_those_of_the_first_item(data):
    names = ["a", "a longer name", "c"]
    space = st.text(" \t\n\r", max_size=9)

    def spaced(parts: list[str]) -> str:
        return "".join(data.draw(space) + part for part in parts)

    rows = data.draw(st.lists(st.lists(st.floats(-1e9, 1e9), min_size=3, max_size=3), min_size=2, max_size=4))
    items = []
    for row in rows:
        pairs = [spaced([json.dumps(name), ":", repr(value)]) for name, value in zip(names, row, strict=True)]
        items.append(spaced(["{", (data.draw(space) + ",").join(pairs), "}"]))
    body = spaced(["{", '"items"', ":", "[", ",".join(items), "]", "}", ""]).encode()
    found = ItemReader(names)(body)
    if found is not None:
        np.testing.assert_array_equal(found, by_python(body, names))
    else:
        assert any(0 < abs(value) < 1e-280 for row in rows for value in row)
