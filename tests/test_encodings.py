"""Tables as spreadsheets write them: other delimiters and encodings are used and said, not refused."""

from __future__ import annotations

import codecs

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from preflearn.io import read_ranking, read_table
from preflearn.preprocessing import TableWarning
from preflearn.tables.streams import Recoded, detect_encoding
from strategies import examples

TEXT = "größe{0}farbe{0}preis{0}target\n1{0}grün{0}3,5{0}1\n2{0}weiß{0}7,25{0}0\n"


@pytest.mark.parametrize(("mark", "name"), [(";", "';'"), ("\t", "tabs"), ("|", r"'\|'")])
def test_a_delimiter_that_is_evident_is_used(tmp_path, mark, name):
    path = tmp_path / "data.csv"
    path.write_text(TEXT.format(mark), encoding="utf-8")
    with pytest.warns(TableWarning, match=f"separated by {name} and are read accordingly"):
        table = read_table(path)
    assert table.columns["farbe"].tolist() == ["grün", "weiß"] and table.y.tolist() == [1, 0]
    assert table.encode().X[:, 0].tolist() == [1, 2]


def test_commas_in_names_do_not_hide_a_semicolon(tmp_path):
    path = tmp_path / "data.csv"
    path.write_text("price (EUR, net);target\n3;1\n4;0\n")
    with pytest.warns(TableWarning, match="';'"):
        assert list(read_ranking(path).feature_names) == ["price (EUR, net)"]


@pytest.mark.parametrize(
    ("encoding", "name"), [("cp1252", "Windows-1252"), ("utf-16", "UTF-16"), ("utf-16-le", "UTF-16-LE")]
)
def test_an_encoding_that_is_evident_is_used(tmp_path, encoding, name):
    path = tmp_path / "data.csv"
    path.write_bytes(TEXT.format(";").encode(encoding))
    with pytest.warns(TableWarning) as told:
        table = read_table(path)
    assert any(f"the text is {name}, not UTF-8" in str(one.message) for one in told)
    assert table.columns["farbe"].tolist() == ["grün", "weiß"]
    assert read_table(path, encoding=encoding, delimiter=";").columns["größe"].tolist() == [1, 2]


def test_an_encoding_can_be_given(tmp_path, recwarn):
    path = tmp_path / "data.csv"
    path.write_bytes("name,target\nЖук,1\nСова,0\n".encode("cp1251"))
    assert read_table(path, encoding="cp1251").columns["name"].tolist() == ["Жук", "Сова"]
    assert not recwarn.list
    with pytest.raises(ValueError, match="encoding 'klingon' is not known"):
        read_table(path, encoding="klingon")
    with pytest.raises(ValueError, match=r"byte 0xf3 .* is not UTF-8"):
        path.write_bytes(b"name,target\n\xf3\x01,1\n")
        read_table(path, encoding="utf-8-sig")


def test_utf8_with_a_stray_byte_far_below_names_the_line(tmp_path, monkeypatch):
    monkeypatch.setattr("preflearn.tables.blocks.BLOCK_BYTES", 200)
    path = tmp_path / "data.csv"
    path.write_bytes(b"name,target\n" + b"good,1\n" * 100 + b"b\xf6se,0\n")
    with pytest.raises(ValueError, match=r"line 102.*not UTF-8.*encoding='cp1252'"):
        read_table(path)


@given(text=st.text(st.characters(blacklist_categories=["Cs"]), max_size=200), size=st.integers(1, 9))
@examples(50)
def test_recoded_text_is_the_same_whatever_the_pieces(text, size):
    import io

    stream = Recoded(io.BytesIO(text.encode("utf-16-le")), "utf-16-le")
    pieces = []
    while piece := stream.read(size):
        pieces.append(piece)
    assert b"".join(pieces).decode() == text


@given(st.text(max_size=100))
@examples(50)
def test_utf8_is_always_recognised(text):
    assert detect_encoding(text.replace("\0", "").encode("utf-8", "ignore")) == "utf-8"
    assert detect_encoding(codecs.BOM_UTF16_LE + text.encode("utf-16-le", "ignore")) == "utf-16"


def test_on_the_command_line(call, tmp_path):
    rng = np.random.default_rng(0)
    rows = "".join(f"{k // 6};{rng.normal():.3f};{'grün' if k % 2 else 'weiß'};{k % 3}\n" for k in range(60))
    path = tmp_path / "liste.csv"
    path.write_bytes(("anfrage;x;größe;target\n" + rows).encode("cp1252"))
    command = ("train", path, "--query", "anfrage", "--learner", "rankrls", "-o", tmp_path / "m.preflearn")
    status, out, err = call(*command)
    assert (status, err) == (0, "")
    assert "is Windows-1252, not UTF-8" in " ".join(out.split()) and "separated by ';'" in " ".join(
        out.split()
    )
    status, out, err = call("predict", tmp_path / "m.preflearn", path)
    assert status == 0 and "separated by ';'" in err
    assert call(*command, "--encoding", "cp1252", "--delimiter", ";", "-q") == (0, "", "")
