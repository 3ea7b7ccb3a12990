"""`preflearn ask` as judges meet it: the question, comments, links, phones, links that survive a restart."""

from __future__ import annotations

import json
import os
import stat
import time

import numpy as np
import pytest

pytest.importorskip("starlette", reason="the extra 'web' is not installed")
pytest.importorskip("uvicorn", reason="the extra 'web' is not installed")
from tests.browser import Browser, find_browser
from tests.web_server import Running

from preflearn.cli.app import run
from preflearn.web.consistency import agreement
from preflearn.web.items import from_records, read_items
from preflearn.web.server import kept_token
from preflearn.web.session import settled_top

needs_browser = pytest.mark.skipif(find_browser() is None, reason="no Chromium on this machine")
FIELDS = {
    "rooms": "3",
    "size": "72 m²",
    "rent": "1,240",
    "district": "Nord",
    "balcony": "yes",
    "pets": "no",
    "lift": "yes",
}


def write_flats(tmp_path, n=5):
    pictures = pytest.importorskip("PIL.Image")
    rows = []
    for k in range(n):
        pictures.new("RGB", (900, 700), (40 * k, 120, 160)).save(tmp_path / f"{k}.png")
        link = f"https://example.org/flat/{k}"
        about = "A quiet flat near the park, with a kitchen that was renovated last year. " * 3
        rows.append({"name": f"Flat {k}", "photo": f"{k}.png", "url": link, **FIELDS, "about": about})
    path = tmp_path / "flats.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


# -------------------------------------------------------------------------------------------------------------- names


def test_a_column_of_names_is_kept_with_its_long_and_equal_names(tmp_path):
    rows = [
        {"title": "x" * 200, "url": "http://a/1"},
        {"title": "tea", "url": "http://a/2"},
        {"title": "tea", "url": "http://a/3"},
    ]
    found = from_records(rows, tmp_path, "list")
    assert found.naming == "title"
    assert found.names == ["x" * 119 + "…", "tea", "tea (2)"]
    assert any("1 name was shortened" in note for note in found.notes)
    assert any("1 name was numbered" in note for note in found.notes)


def test_addresses_name_nothing_unless_asked(tmp_path):
    rows = [{"url": f"http://a/{k}", "price": k} for k in range(3)]
    assert from_records(rows, tmp_path, "list").naming is None
    assert from_records(rows, tmp_path, "list", "url").names == ["http://a/0", "http://a/1", "http://a/2"]
    path = tmp_path / "x.csv"
    path.write_text("a,b\n1,x\n2,y\n")
    with pytest.raises(ValueError, match="--name c is not a column: found 'a', 'b'"):
        read_items(path, "c")


def test_tables_of_spreadsheets_are_read_and_said(tmp_path):
    path = tmp_path / "list.csv"
    path.write_bytes("name;größe\ntea;klein\nmilk;groß\n".encode("cp1252"))
    found = read_items(path)
    assert found.names == ["tea", "milk"] and [field.value for field in found.fields[1]] == ["milk", "groß"]
    assert any("Windows-1252" in note for note in found.notes) and any("';'" in note for note in found.notes)


# -------------------------------------------------------------------------------------------------------------- token


def test_the_key_survives_a_restart_and_is_private(tmp_path):
    answers = tmp_path / "answers.jsonl"
    token = kept_token(answers)
    path = tmp_path / "answers.jsonl.token"
    assert kept_token(answers) == token
    if os.name != "nt":
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        path.chmod(0o644)
        assert kept_token(answers) != token and stat.S_IMODE(path.stat().st_mode) == 0o600
    path.write_text("short\n")
    path.chmod(0o600)
    assert kept_token(answers) != "short"


# -------------------------------------------------------------------------------------------------------------- panel


def test_the_top_is_settled_where_intervals_are_apart():
    low, high = np.array([0.0, 5.0, 4.9, -3.0]), np.array([2.0, 6.0, 5.5, 1.0])
    order = np.array([1, 2, 0, 3])
    assert settled_top(low, high, order) == 2
    assert settled_top(low, high + 9, order) == 0


def test_reliability_needs_answers_and_is_between_0_and_1():
    from preflearn.web.answers import Answer

    said = [
        Answer("a", "b", judge, "", f"{judge}{k}")
        for judge, n in (("ann", 30), ("bob", 25), ("cy", 3))
        for k in range(n)
    ]
    found = agreement(said, {"a": 1.0, "b": 0.0}, {"ann": 2.4, "bob": 0.6, "cy": 1.1})
    shown = {one["judge"]: one["reliability"] for one in found["judges"]}
    assert shown == {"ann": 1.0, "bob": pytest.approx(0.25), "cy": None}


# ----------------------------------------------------------------------------------------------------------- the page


@needs_browser
def test_a_judge_with_a_question_a_note_links_and_a_phone(tmp_path):
    items = write_flats(tmp_path)
    answers = tmp_path / "answers.jsonl"
    options = ("--answers", answers, "--no-open", "--judge", "ann", "--port", "0", "--note")
    with (
        Running("ask", items, *options, "--question", "Which flat would you rent?") as server,
        Browser(tmp_path / "b") as page,
    ):
        page.open(server.address, width=390, scheme="light")
        page.wait_for(
            "document.body.dataset.question && document.querySelectorAll('#left-content img').length"
        )
        page.wait_for("document.querySelector('#left-content img').complete")
        assert page.evaluate("document.querySelector('h1').textContent") == "Which flat would you rent?"
        assert page.evaluate("document.title") == "Which flat would you rent?"
        link = "document.querySelector('#left-content a')"
        assert (
            page.evaluate(f"{link}.rel") == "noopener noreferrer"
            and page.evaluate(f"{link}.target") == "_blank"
        )
        # Everything can be reached: what does not fit is announced, and unfolds.
        assert page.evaluate("document.querySelector('#left-content img').clientHeight") <= 200
        page.wait_for("!document.querySelector('#unfold-left').hidden")
        assert page.evaluate("document.querySelector('#left-content').classList.contains('clipped')")
        before = page.evaluate("document.body.dataset.question")
        page.click("#unfold-left")
        page.wait_for("document.querySelector('#left-content').classList.contains('unfolded')")
        box = "document.querySelector('#left-content')"
        fits = f"{box}.scrollHeight <= {box}.clientHeight + 4"
        assert page.evaluate(fits) and page.evaluate("document.body.dataset.question") == before
        assert page.evaluate("document.documentElement.scrollWidth") <= 390 and page.complaints == []
        # A comment goes with the answer; keys typed into it answer nothing.
        page.evaluate("document.querySelector('#note').focus()")
        page.press("s")
        page.evaluate("document.querySelector('#note').value = 'more light'")
        time.sleep(0.15)
        page.click("#choose-left")
        page.wait_for(f"document.body.dataset.question !== '{before}'")
        assert page.evaluate("document.querySelector('#note').value") == ""
        said = [json.loads(line) for line in answers.read_text().splitlines()]
        assert [one.get("note") for one in said] == ["more light"]
        # Closing the page and opening it again brings the same pair back, and the link works after a restart.
        shown = page.evaluate("document.body.dataset.question")
        page.open("about:blank", width=390, scheme="light")
        page.evaluate("1")
        with Browser(tmp_path / "other") as other:
            other.open(server.address, width=1280, scheme="light")
            other.wait_for("document.body.dataset.question")
            assert other.evaluate("document.body.dataset.question") == shown
        address = server.address
        port = address.split(":")[2].split("/")[0]
        server.stop()
    with Running("ask", items, *options[:-3], "--port", port) as server:
        assert server.address == address


@needs_browser
def test_low_windows_show_every_field(tmp_path):
    items = write_flats(tmp_path)
    options = ("--answers", tmp_path / "a.jsonl", "--no-open", "--port", "0")
    with Running("ask", items, *options) as server, Browser(tmp_path / "b") as page:
        page.open(server.address, width=1280, scheme="dark")
        page.call(
            "Emulation.setDeviceMetricsOverride", width=1280, height=560, deviceScaleFactor=1, mobile=False
        )
        page.wait_for("document.body.dataset.question && document.querySelector('#left-content img')")
        page.wait_for("!document.querySelector('#unfold-left').hidden")
        assert page.evaluate("document.querySelector('#left-content img').clientHeight") <= 0.25 * 560


def test_answers_are_exported_without_asking(tmp_path, capsys):
    items = tmp_path / "answers_to_rank.csv"
    items.write_text("item,prompt,text\na,p,one\nb,p,two\n")
    entry = {"winner": "b", "loser": "a", "judge": "ann", "question": "12345678", "time": ""}
    (tmp_path / "said.jsonl").write_text(json.dumps(entry) + "\n")
    command = [
        "ask",
        str(items),
        "--answers",
        str(tmp_path / "said.jsonl"),
        "--export",
        str(tmp_path / "dpo.jsonl"),
    ]
    assert run(command) == 0 and run(command) == 0
    assert json.loads((tmp_path / "dpo.jsonl").read_text()) == {
        "prompt": "p", "chosen": "two", "rejected": "one", "judge": "ann",
    }  # fmt: skip
    assert "come from column 'text'" in capsys.readouterr().err
    assert run([*command[:3], str(tmp_path / "none.jsonl"), *command[4:]]) == 2


@pytest.mark.parametrize(
    ("table", "options", "text"),
    [
        ("name,story,place\na,once upon a time,by a lake\nb,it was night,in a wood\n", [], "story"),
        (
            "name,story,place\na,once upon a time,by a lake\nb,it was night,in a wood\n",
            ["--text", "place"],
            "place",
        ),
        ("name,price\na,3\nb,4\n", [], "name"),
    ],
)
def test_exported_answers_have_texts_and_not_names(tmp_path, capsys, table, options, text):
    """From the column of most words where none is named as texts usually are, and the command says which."""
    items, answers, written = (tmp_path / name for name in ("items.csv", "said.jsonl", "dpo.jsonl"))
    items.write_text(table)
    answers.write_text(json.dumps({"winner": "b", "loser": "a", "judge": "ann", "question": "1", "time": ""}))
    command = ["ask", str(items), "--answers", str(answers)]
    assert run([*command, "--export", str(written), *options]) == 0
    assert f"come from column {text!r}" in capsys.readouterr().err
    names, first, second = (line.split(",") for line in table.splitlines())
    place = names.index(text)
    assert json.loads(written.read_text()) == {
        "chosen": second[place],
        "rejected": first[place],
        "judge": "ann",
    }
    assert run([*command, "--text", "story"]) == 2 and "--export" in capsys.readouterr().err
    assert run([*command, "--export", str(written), "--text", "tale"]) == 2
    assert "--text asks for column 'tale'" in capsys.readouterr().err
