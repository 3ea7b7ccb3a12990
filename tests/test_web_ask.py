"""`preflearn ask`: items of every kind, answers that survive anything, and who may talk to the page."""

from __future__ import annotations

import csv
import io
import json
import os
import socket
import threading
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("starlette", reason="the extra 'web' is not installed")
pytest.importorskip("uvicorn", reason="the extra 'web' is not installed")
from hypothesis import given
from hypothesis import strategies as st
from tests.web_server import Running, serving, wait_until

from preflearn.cli.app import run
from preflearn.errors import InputError
from preflearn.io import load_model
from preflearn.web.answers import Answer, Journal, standing_answers
from preflearn.web.app import ask_app
from preflearn.web.consistency import agreement, self_consistency
from preflearn.web.items import from_records, read_items
from preflearn.web.learner import Learner
from preflearn.web.requests import read_json
from preflearn.web.server import Connection
from preflearn.web.session import Session

TOKEN = "0123456789abcdef"
PIXEL = bytes.fromhex(
    "89504e470d0a1a0a0000000d4948445200000001000000010804000000b51c0c020000000b4944415478da6364f80f00010501012718e366"
    "0000000049454e44ae426082"
)


def numbered(n: int) -> list[dict[str, object]]:
    """Items whose feature is their worth."""
    return [{"name": f"item {k:03}", "worth": 1.5 * k + 0.25, "noise": float((7 * k) % 5)} for k in range(n)]


def write_table(path: Path, n: int) -> Path:
    path.write_text("name,worth\n" + "".join(f"item {k:03},{k}.5\n" for k in range(n)))
    return path


@pytest.fixture
def session(tmp_path):
    with Journal(tmp_path / "answers.jsonl") as journal:
        found = Session(from_records(numbered(12), tmp_path, "twelve"), journal, seed=0)
        yield found
        found.close()


@pytest.fixture
def client(session):
    with serving(ask_app(session, TOKEN, judge="ann")) as found:
        found.headers["X-Preflearn-Token"] = TOKEN
        yield found


def better(left: str, right: str) -> str:
    return "left" if left > right else "right"


def say(client, question, verdict=None, judge="ann", **more):
    body = {
        "judge": judge,
        "question": question["question"],
        "left": question["left"]["item"],
        "right": question["right"]["item"],
        "verdict": verdict or better(question["left"]["item"], question["right"]["item"]),
        **more,
    }
    return client.post("/api/answer", json=body)


# Items ----------------------------------------------------------------------------------------------------------------


def test_a_table_becomes_items_with_names_fields_and_features(tmp_path):
    items = read_items(write_table(tmp_path / "a.csv", 3))
    assert items.names == ["item 000", "item 001", "item 002"]
    assert [(one.label, one.value) for one in items.fields[1]] == [("", "item 001"), ("worth", "1.5")]
    assert Learner(items).X.shape[0] == 3 and items.notes == []


@pytest.mark.parametrize("kind", ["csv", "tsv", "jsonl", "parquet", "semicolon"])
def test_the_same_items_from_every_format(tmp_path, kind):
    rows = [{"name": "ä, b", "worth": 1.0}, {"name": 'say "c"', "worth": 2.0}]
    path = tmp_path / f"items.{'csv' if kind == 'semicolon' else kind}"
    if kind == "jsonl":
        path.write_text("\n".join(json.dumps(row) for row in rows))
    elif kind == "parquet":
        pa = pytest.importorskip("pyarrow")
        import pyarrow.parquet as pq

        pq.write_table(pa.Table.from_pylist(rows), path)
    else:
        with open(path, "w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file, delimiter={"csv": ",", "tsv": "\t", "semicolon": ";"}[kind])
            writer.writerow(["name", "worth"])
            writer.writerows(row.values() for row in rows)
    assert read_items(path).names == ["ä, b", 'say "c"']


def test_lines_and_folders(tmp_path):
    (tmp_path / "list.txt").write_text("tea\n\ncoffee \nmilk\n")
    lines = read_items(tmp_path / "list.txt")
    assert lines.names == ["tea", "coffee", "milk"] and Learner(lines).encoder is None
    texts = tmp_path / "texts"
    texts.mkdir()
    (texts / "a.md").write_text("# Title\nwords of the first one")
    (texts / "b.txt").write_text("other words of the second")
    (texts / "c.txt").write_text("a third text of several words")
    found = read_items(texts)
    assert found.names == ["a.md", "b.txt", "c.txt"] and Learner(found).encoder is not None
    assert [item[0].kind for item in found.fields] == ["markdown", "text", "text"]
    pictures = tmp_path / "pictures"
    pictures.mkdir()
    (pictures / "a.png").write_bytes(PIXEL)
    (pictures / "b.png").write_bytes(PIXEL + b" ")
    (pictures / "again.png").write_bytes(PIXEL)
    found = read_items(pictures)
    assert found.names == ["a.png", "b.png"] and "asked about once: 'a.png'" in found.notes[0]


def test_items_without_a_name_are_told_apart_by_content():
    records = [{"text": "long words " * 30 + str(k)} for k in range(3)]
    names = from_records(records, Path("."), "x").names
    assert len(set(names)) == 3
    assert from_records(records[::-1], Path("."), "x").names != names


def test_equal_features_are_still_different_items():
    items = from_records([{"id": str(k), "price": 1.0 + (k > 5)} for k in range(8)], Path("."), "x")
    learner = Learner(items)
    learner.learn([Answer("3", name, "ann", "", name) for name in "01245"])
    scores = learner.standing().scores
    assert scores[3] > scores[[0, 1, 2, 4, 5]].max() + 0.1


def test_pictures_outside_of_the_folder_or_missing_are_told(tmp_path):
    inner = tmp_path / "inner"
    inner.mkdir()
    (tmp_path / "secret.png").write_bytes(PIXEL)
    (inner / "link.png").symlink_to(tmp_path / "secret.png")
    (inner / "ok.png").write_bytes(PIXEL)
    values = [
        "ok.png",
        "../secret.png",
        "link.png",
        "gone.png",
        str(tmp_path / "secret.png"),
        "http://x/y.png",
    ]
    (inner / "a.csv").write_text("name,photo\n" + "".join(f"n{k},{v}\n" for k, v in enumerate(values)))
    items = read_items(inner / "a.csv")
    assert [item[0].kind for item in items.fields] == ["picture"] + 5 * ["missing"]
    assert "5 pictures are not in the items' folder" in items.notes[0]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("empty.csv", "", "holds no items"),
        ("header.csv", "name\n", "there are no rows in it"),
        ("one.txt", "tea\n", "one item, 'tea'"),
        ("same.txt", "tea\ntea\n", "one item, 'tea'"),
        ("ragged.csv", "a,b\n1,2\n3\n", "line 3: found 1 cell, expected 2 as in the header"),
        ("twice.csv", "a,a\n1,2\n", "column 'a' appears twice in the header"),
        ("bad.jsonl", '{"a": 1}\n{"a"\n', "line 2: not JSON"),
        ("damaged.txt", b"caf\xc3\xa9\xc3\xa9 \x81\nb\n", "is not UTF-8 text (byte 8)"),
        ("none.csv", None, "no file or folder"),
    ],
)
def test_items_that_cannot_be_asked_about(tmp_path, capsys, name, content, message):
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    assert run(["ask", str(path), "--no-open"]) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1
    assert list(tmp_path.glob("*.answers.jsonl")) == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--goal", "top:99"], "choose between top:1 and top:11"),
        (["--goal", "best"], "goal must be"),
        (["--goal", "item 001 > nobody"], "there is no item 'nobody'"),
        (["--judge", ""], "needs a name"),
        (["--port", "70000"], "between 0 and 65535"),
        (["--answers", "nowhere/a.jsonl"], "no folder nowhere"),
    ],
)
def test_options_that_cannot_be_met(tmp_path, capsys, monkeypatch, options, message):
    monkeypatch.chdir(tmp_path)
    assert run(["ask", str(write_table(tmp_path / "a.csv", 12)), "--no-open", *options]) == 2
    error = capsys.readouterr().err
    assert message in error and error.strip().count("\n") == 0


# The answers file -----------------------------------------------------------------------------------------------------


def entry(number: int, **more: object) -> dict[str, object]:
    return {"winner": "a", "loser": "b", "judge": "ann", "time": "t", "question": f"q{number}", **more}


def test_what_is_appended_is_read_again(tmp_path):
    path = tmp_path / "a.jsonl"
    with Journal(path) as journal:
        for k in range(3):
            journal.append(entry(k))
        journal.append({"undo": "q1", "judge": "ann", "time": "t"})
    with Journal(path) as journal:
        assert [one.question for one in standing_answers(journal.entries)] == ["q0", "q2"]
        assert journal.notes == []


@given(
    cut=st.integers(1, 60), garbage=st.sampled_from([b"", b"\x00\x00", b"{", b'{"winner": 3}\n', b"\xff\n"])
)
def test_a_damaged_last_line_is_set_aside_and_the_rest_is_used(tmp_path_factory, cut, garbage):
    path = tmp_path_factory.mktemp("damage") / "a.jsonl"
    whole = json.dumps(entry(0)).encode() + b"\n"
    last = garbage or json.dumps(entry(1)).encode()[:-1][:cut]
    path.write_bytes(whole + last)
    with Journal(path) as journal:
        assert [one["question"] for one in journal.entries] == ["q0"]
        assert "cut short" in journal.notes[0]
        journal.append(entry(2))
    assert path.with_name("a.jsonl.damaged").read_bytes().rstrip(b"\n") == last.rstrip(b"\n")
    with Journal(path) as journal:
        assert [one["question"] for one in journal.entries] == ["q0", "q2"] and journal.notes == []


def test_a_last_line_without_its_end_is_whole(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text(json.dumps(entry(0)))
    with Journal(path) as journal:
        assert len(journal.entries) == 1
        journal.append(entry(1))
    assert path.read_text().count("\n") == 2


def test_damage_in_the_middle_is_refused_and_left_alone(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text("nonsense\n" + json.dumps(entry(0)) + "\n")
    before = path.read_bytes()
    with pytest.raises(ValueError, match="line 1: found 'nonsense'"):
        Journal(path)
    assert path.read_bytes() == before


def test_a_second_process_is_refused(tmp_path, capsys):
    items = write_table(tmp_path / "a.csv", 5)
    with Running("ask", items, "--no-open", "--port", "0"):
        assert run(["ask", str(items), "--no-open"]) == 2
        assert "Another process is asking with" in capsys.readouterr().err


def test_answers_about_other_items_are_refused_and_named(tmp_path, capsys):
    items = write_table(tmp_path / "a.csv", 5)
    answers = tmp_path / "other.jsonl"
    answers.write_text(json.dumps({"winner": "item 001", "loser": "Rome", "judge": "ann"}) + "\n")
    before = answers.read_bytes()
    assert run(["ask", str(items), "--no-open", "--answers", str(answers)]) == 2
    error = capsys.readouterr().err
    assert "other.jsonl holds answers about other items: 'Rome' is not in" in error
    assert answers.read_bytes() == before


def test_a_full_disk_loses_nothing_and_says_so(session, client, monkeypatch):
    question = client.get("/api/question").json()
    before = session.journal.path.read_bytes()

    def full(descriptor, data):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "write", full)
        response = say(client, question)
    assert response.status_code == 507 and "No space left" in response.json()["error"]
    assert session.journal.path.read_bytes() == before and session.answers() == []
    assert say(client, question).json()["counted"] and len(session.answers()) == 1


# Asking and answering -------------------------------------------------------------------------------------------------


def test_a_session_finds_the_order(session, client):
    question = client.get("/api/question").json()
    for _ in range(45):
        question = say(client, question).json()
    panel = wait_until(lambda: (p := client.get("/api/panel").json())["answers"] == 45 and p)
    found = [one["item"] for one in panel["order"]]
    assert found[:3] == ["item 011", "item 010", "item 009"] and found[-1] == "item 000"
    assert all(one["low"] < one["score"] < one["high"] for one in panel["order"])
    assert panel["share"] > 0.9 and panel["history"][0] == [0, 0.5] and panel["consistency"]["circles"] == 0
    lines = [json.loads(line) for line in session.journal.path.read_text().splitlines()]
    assert len(lines) == 45 and all({"winner", "loser", "judge", "time"} <= set(line) for line in lines)
    assert all(line["winner"] > line["loser"] and line["judge"] == "ann" for line in lines)


def test_every_pair_is_asked_once_and_then_there_is_an_end(tmp_path):
    with Journal(tmp_path / "a.jsonl") as journal:
        session = Session(from_records(numbered(5), tmp_path, "five"), journal, seed=1)
        asked = []
        question = session.question("ann")
        while question["question"]:
            asked.append(frozenset((question["left"]["item"], question["right"]["item"])))
            names = question["left"]["item"], question["right"]["item"]
            question = session.answer("ann", question["question"], *names, better(*names))
        assert len(asked) == len(set(asked)) == 10
        assert wait_until(lambda: (p := session.panel("ann"))["answers"] == 10 and p)["settled"]
        session.close()


def test_an_answer_sent_twice_counts_once(session, client):
    question = client.get("/api/question").json()
    first, second = say(client, question).json(), say(client, question).json()
    assert (first["counted"], second["counted"]) == (True, False)
    assert first["question"] == second["question"] and len(session.answers()) == 1


def test_reloading_shows_the_same_question_and_another_window_another(client):
    one = client.get("/api/question", params={"client": "1"}).json()
    assert client.get("/api/question", params={"client": "1"}).json() == one
    two = client.get("/api/question", params={"client": "2"}).json()
    pairs = [frozenset((q["left"]["item"], q["right"]["item"])) for q in (one, two)]
    assert pairs[0] != pairs[1]


def test_undo_is_an_entry_and_asks_again(session, client):
    question = client.get("/api/question").json()
    say(client, question, "left")
    again = client.post("/api/undo", json={"judge": "ann"}).json()
    assert (again["left"], again["right"]) == (question["left"], question["right"])
    assert again["question"] != question["question"] and session.answers() == []
    lines = session.journal.path.read_text().splitlines()
    assert len(lines) == 2 and json.loads(lines[1])["undo"] == question["question"]
    assert client.post("/api/undo", json={"judge": "ann"}).status_code == 400
    say(client, again, "right")
    assert [one.winner for one in session.answers()] == [again["right"]["item"]]


def test_undo_takes_the_answer_out_of_the_model(tmp_path):
    items = from_records(numbered(6), tmp_path, "six")
    with Journal(tmp_path / "a.jsonl") as journal:
        session = Session(items, journal, seed=0)
        for k in range(3):
            session.answer("ann", f"question{k}", items.names[k], items.names[5], "left")
        session.undo("ann")
        alone = Learner(items)
        alone.learn(session.answers())
        expected = alone.standing().scores
        # The model learns in a thread of its own, and may have seen any number of the three answers by now.
        wait_until(lambda: np.allclose(session.standing.scores, expected, atol=1e-6))
        session.close()


def test_equal_and_skip(session, client):
    question = client.get("/api/question").json()
    skipped = frozenset((question["left"]["item"], question["right"]["item"]))
    question = say(client, question, "skip").json()
    assert session.answers() == []
    seen = set()
    for _ in range(20):
        seen.add(frozenset((question["left"]["item"], question["right"]["item"])))
        question = say(client, question, "equal").json()
    assert skipped not in seen and all(answer.tie for answer in session.answers())
    panel = client.get("/api/panel").json()
    assert "were all “equal”" in panel["consistency"]["remark"]
    wait_until(lambda: client.get("/api/panel").json()["answers"] == 20)
    np.testing.assert_allclose(session.standing.scores, 0.0, atol=1e-6)


def test_now_and_then_a_question_comes_again(session, client):
    question, repeated = client.get("/api/question").json(), 0
    for _ in range(32):
        repeated += question["repeated"]
        question = say(client, question).json()
    assert repeated == 2
    found = client.get("/api/panel").json()["consistency"]
    assert (found["repeated"], found["repeated_same"]) == (2, 2)


def test_judges_share_some_questions_and_are_compared(session, client):
    questions = {
        judge: client.get("/api/question", params={"judge": judge}).json() for judge in ("ann", "ben")
    }
    for _ in range(24):
        for judge in questions:
            pairs = [frozenset((q["left"]["item"], q["right"]["item"])) for q in questions.values()]
            assert pairs[0] != pairs[1]  # nobody is asked what somebody else has before him
            question = questions[judge]
            truth = better(question["left"]["item"], question["right"]["item"])
            verdict = truth if judge == "ann" else {"left": "right", "right": "left"}[truth]
            questions[judge] = say(client, question, verdict, judge).json()
    panel = wait_until(lambda: (p := client.get("/api/panel").json())["answers"] == 48 and p)
    (pair,) = panel["agreement"]["pairs"]
    assert pair["common"] >= 3 and pair["same"] == 0
    assert {one["judge"] for one in panel["agreement"]["judges"]} == {"ann", "ben"}
    judges = panel["agreement"]["judges"]
    assert all(one["reliability"] is not None for one in judges) and any(one["against"] for one in judges)


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5), st.booleans()), max_size=25))
def test_circles_and_repeats_are_counted_as_by_hand(said):
    answers = [Answer(str(a), str(b), "ann", "", str(k), tie) for k, (a, b, tie) in enumerate(said) if a != b]
    found = self_consistency(answers)
    last = {frozenset((a.winner, a.loser)): (a.winner, a.loser) for a in answers if not a.tie}
    beats = set(last.values())
    names = sorted({name for pair in beats for name in pair})
    triples = [(a, b, c) for a in names for b in names for c in names]
    assert found["circles"] == sum({(a, b), (b, c), (c, a)} <= beats for a, b, c in triples) // 3
    linked = beats | {(b, a) for a, b in beats}
    assert found["triangles"] == sum({(a, b), (b, c), (c, a)} <= linked for a, b, c in triples) // 6
    if found["circles"]:
        a, b, c = found["example"]
        assert {(a, b), (b, c), (c, a)} <= beats


@pytest.mark.parametrize(
    "change",
    [
        {"verdict": "both"},
        {"left": "nobody"},
        {"left": 3},
        {"question": "../../x"},
        {"question": None},
        {"judge": " "},
        {"judge": "x" * 61},
        {"right": "item 000", "left": "item 000"},
    ],
)
def test_malformed_answers_are_refused_and_change_nothing(session, client, change):
    question = client.get("/api/question").json()
    body = {"judge": "ann", "question": question["question"], "verdict": "left"}
    body |= {side: question[side]["item"] for side in ("left", "right")} | change
    response = client.post("/api/answer", json=body)
    assert response.status_code == 400 and response.json()["error"]
    assert session.answers() == [] and session.journal.path.read_bytes() == b""


def test_an_answer_about_other_items_than_asked_is_refused(client):
    question = client.get("/api/question").json()
    shown = {question["left"]["item"], question["right"]["item"]}
    other = next(name for name in (f"item {k:03}" for k in range(12)) if name not in shown)
    assert say(client, question, "left", right=other).status_code == 400


# Who may talk to the page ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/", "/api/question", "/api/panel", "/picture/0/0", "/download/order.csv"])
def test_nothing_without_the_token(client, path):
    del client.headers["X-Preflearn-Token"]
    assert client.get(path).status_code == 403
    assert client.get(path, params={"token": TOKEN[:-1]}).status_code == 403
    assert client.get(path, params={"token": TOKEN}).status_code in (200, 404)


@pytest.mark.parametrize(
    "headers", [{"Origin": "http://evil.example"}, {"Origin": "null"}, {"Host": "evil.example:8765"}]
)
def test_other_sites_are_refused(session, client, headers):
    question = client.get("/api/question").json()
    body = {"question": question["question"], "verdict": "left", "judge": "ann"}
    response = client.post("/api/answer", json=body, headers=headers)
    assert response.status_code == 403 and session.answers() == []


def test_own_origin_is_fine_and_forms_are_not(client):
    question = client.get("/api/question", headers={"Origin": str(client.base_url).rstrip("/")})
    assert question.status_code == 200
    assert client.post("/api/undo", data={"judge": "ann"}).status_code == 415
    assert (
        client.post("/api/undo", content=b"[1]", headers={"Content-Type": "application/json"}).status_code
        == 400
    )
    assert client.get("/api/answer").status_code == 405 and client.get("/elsewhere").status_code == 404


def test_large_requests_are_refused(client):
    large = {"judge": "x" * 100_000}
    assert client.post("/api/answer", json=large).status_code == 413
    pieces = (b"x" * 10_000 for _ in range(20))
    headers = {"Content-Type": "application/json"}
    assert client.post("/api/answer", content=pieces, headers=headers).status_code == 413


def test_only_listed_pictures_are_served(tmp_path):
    (tmp_path / "a.png").write_bytes(PIXEL)
    (tmp_path / "b.png").write_bytes(PIXEL + b" ")
    (tmp_path / "secret.txt").write_text("secret")
    outside = tmp_path.parent / "outside.png"
    outside.write_bytes(b"outside")
    items = from_records([{"name": "a", "p": "a.png"}, {"name": "b", "p": "b.png"}], tmp_path, "two")
    with Journal(tmp_path / "x.jsonl") as journal:
        session = Session(items, journal)
        with serving(ask_app(session, TOKEN, judge="ann")) as client:
            client.headers["X-Preflearn-Token"] = TOKEN
            response = client.get("/picture/0/0")
            assert response.content == PIXEL and response.headers["content-type"] == "image/png"
            assert "sandbox" in response.headers["content-security-policy"]
            paths = (
                "/picture/0/1",
                "/picture/9/0",
                "/picture/../secret.txt",
                "/picture/%2e%2e/secret.txt",
                "/secret.txt",
            )
            assert {client.get(path).status_code for path in paths} == {404}
            (tmp_path / "b.png").unlink()
            (tmp_path / "b.png").symlink_to(outside)
            assert client.get("/picture/1/0").status_code == 404
        session.close()


def test_the_page_holds_no_item_and_nothing_foreign(client):
    response = client.get("/", params={"judge": "</script><script>alert(1)</script>"})
    assert "<script>alert(1)" not in response.text and "//" not in response.headers["content-security-policy"]
    assert "item 0" not in response.text and "https://" not in response.text
    assert "default-src 'none'" in response.headers["content-security-policy"]


# What a session leaves behind -----------------------------------------------------------------------------------------


def test_downloads(session, client, tmp_path):
    question = client.get("/api/question").json()
    for _ in range(20):
        question = say(client, question).json()
    rows = list(csv.DictReader(io.StringIO(client.get("/download/order.csv").text)))
    assert [int(row["rank"]) for row in rows] == list(range(1, 13))
    assert all(float(row["low"]) < float(row["score"]) < float(row["high"]) for row in rows)
    answers = [json.loads(line) for line in client.get("/download/answers.jsonl").text.splitlines()]
    assert len(answers) == 20
    page = client.get("/download/report.html").text
    assert "item 011" in page and "20 answers about 12 items" in page and "http" not in page
    board = client.get("/board").text
    assert board == client.get("/download/board.html").text and "rank" in board and "<script" not in board
    # The leaderboard of the answers file.
    (tmp_path / "saved.jsonl").write_text(client.get("/download/answers.jsonl").text)
    out = tmp_path / "board.csv"
    assert run(["rate", str(tmp_path / "saved.jsonl"), "-q", "-o", str(out)]) == 0
    for row in csv.DictReader(io.StringIO(out.read_text())):
        shown = (row["item"], f">{float(row['rating']):,.0f}<", f"{row['rank_lower']} to {row['rank_upper']}")
        assert all(text in board for text in shown), row
    options = ["--judge", "judge", "--time", "time", "-q"]
    assert run(["rate", str(tmp_path / "saved.jsonl"), *options]) == 0
    (tmp_path / "m.preflearn").write_bytes(client.get("/download/model.preflearn").content)
    model = load_model(tmp_path / "m.preflearn")
    new = model.predict({"name": ["x", "y"], "worth": [-3.0, 20.0], "noise": [1.0, 1.0]})
    assert new[1] > new[0]
    assert client.get("/download/passwd").status_code == 404


def test_there_is_no_leaderboard_before_the_first_answer(client):
    assert "Nobody has answered yet." in client.get("/board").text
    question = client.get("/api/question").json()
    assert say(client, question, "equal").status_code == 200
    assert "No battle was won" in client.get("/board").text


def test_a_list_without_features_leaves_a_model_of_names(tmp_path):
    items = from_records([{"": name} for name in ("tea", "milk", "rum")], tmp_path, "list")
    with Journal(tmp_path / "a.jsonl") as journal:
        session = Session(items, journal)
        session.answer("ann", "question1", "tea", "rum", "left")
        from preflearn.web.results import write_results

        write_results(session, tmp_path / "out")
        session.close()
    scores = load_model(tmp_path / "out" / "model.preflearn").predict(["rum", "tea", "unheard of"])
    assert scores[1] > scores[2] > scores[0]


@pytest.mark.parametrize("goal", ["top:3", "item 002 > item 001", "everything"])
def test_goals_change_what_is_asked(tmp_path, goal):
    items = from_records([{"": f"item {k:03}"} for k in range(8)], tmp_path, "list")
    with Journal(tmp_path / "a.jsonl") as journal:
        session = Session(items, journal, goal=goal, seed=0)
        question = session.question("ann")
        if ">" in goal:
            assert {question["left"]["item"], question["right"]["item"]} == {"item 001", "item 002"}
        assert session.panel("ann")["goal"] == goal and 0 <= session.panel("ann")["share"] <= 1
        session.close()


def test_resuming_goes_on_where_it_stopped(tmp_path):
    items = from_records(numbered(10), tmp_path, "ten")
    path = tmp_path / "a.jsonl"
    with Journal(path) as journal:
        session = Session(items, journal, seed=0)
        question = session.question("ann")
        for _ in range(12):
            names = question["left"]["item"], question["right"]["item"]
            question = session.answer("ann", question["question"], *names, better(*names))
        wait_until(lambda: session.panel("ann")["answers"] == 12)
        before = session.standing
        session.close()
    with Journal(path) as journal:
        session = Session(items, journal)
        np.testing.assert_allclose(session.standing.scores, before.scores, atol=1e-6)
        panel = session.panel("ann")
        assert (
            panel["answers"] == 12
            and [n for n, _ in panel["history"]][-1] == 12
            and len(panel["history"]) > 5
        )
        session.close()
    with Journal(path) as journal, pytest.raises(InputError, match="answers about other items"):
        Session(from_records(numbered(3), tmp_path, "three"), journal)


def test_a_model_that_resumes_is_the_model_of_its_answers(tmp_path):
    items = from_records(numbered(20), tmp_path, "twenty")
    said = [Answer(items.names[19 - k], items.names[k], "ann", "", str(k)) for k in range(8)]
    going = Learner(items, "top:3")
    for answers in (said[:3], said[:5], said[:2], said):
        going.learn(answers)
        fresh = Learner(items, "top:3")
        fresh.learn(answers)
        one, two = going.standing(), fresh.standing()
        np.testing.assert_allclose(one.scores, two.scores, atol=1e-9)
        np.testing.assert_allclose(one.deviations, two.deviations, rtol=1e-6)
        assert one.n_answers == two.n_answers == len(answers)
        closed = np.array([[0, 1]])
        np.testing.assert_array_equal(going.questions(2, closed), fresh.questions(2, closed))
    going.learn([])
    assert going.standing().n_answers == 0
    going.learn(said)
    (tmp_path / "m.preflearn").write_bytes(going.saved({}))
    assert load_model(tmp_path / "m.preflearn").predict(items.table).shape == (20,)
    with pytest.raises(ValueError, match="goal must be"):
        Learner(items, "best")


# The real server ------------------------------------------------------------------------------------------------------


def test_a_thousand_answers_over_twenty_connections(tmp_path):
    """None lost, none counted twice, nobody asked what another one has before him."""
    answers = tmp_path / "answers.jsonl"
    acknowledged: list[str] = []
    faults: list[str] = []
    with Running(
        "ask", write_table(tmp_path / "a.csv", 60), "--answers", answers, "--no-open", "--port", "0"
    ) as server:

        def judge(number: int) -> None:
            try:
                with server.client() as client:
                    name = f"judge {number}"
                    question = client.get("/api/question", params={"judge": name}).json()
                    for k in range(50):
                        response = say(client, question, judge=name)
                        if k % 10 == 0:  # as after a lost connection
                            assert not say(client, question, judge=name).json()["counted"]
                        assert response.json()["counted"]
                        acknowledged.append(question["question"])
                        question = response.json()
            except Exception as error:
                faults.append(repr(error))

        threads = [threading.Thread(target=judge, args=(number,)) for number in range(20)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert faults == []
        with server.client() as client:
            panel = wait_until(lambda: (p := client.get("/api/panel").json())["answers"] == 1000 and p)
        assert panel["order"][0]["item"] in ("item 059", "item 058", "item 057")
        server.kill()
    kept = [json.loads(line)["question"] for line in answers.read_text().splitlines()]
    assert len(kept) == len(set(kept)) == 1000 and set(kept) == set(acknowledged)


def test_a_kill_at_any_moment_loses_no_acknowledged_answer(tmp_path):
    items, answers = write_table(tmp_path / "a.csv", 30), tmp_path / "answers.jsonl"
    acknowledged: list[str] = []
    for seconds in (0.05, 0.3):
        with Running("ask", items, "--answers", answers, "--no-open", "--port", "0") as server:
            timer = threading.Timer(seconds, server.kill)
            with server.client() as client:
                question = client.get("/api/question").json()
                timer.start()
                try:
                    while True:
                        response = say(client, question).json()
                        acknowledged.append(question["question"])
                        question = response
                except Exception:
                    unsure = question
            timer.join()
        with Running("ask", items, "--answers", answers, "--no-open", "--port", "0") as server:
            with server.client() as client:
                assert client.get("/api/panel").json()["given"] - len(acknowledged) in (0, 1)
                # The page sends the answer it had no reply to again; it counts once, whether it was kept or not.
                say(client, unsure)
                acknowledged.append(unsure["question"])
                assert client.get("/api/panel").json()["given"] == len(acknowledged)
            server.kill()
    kept = [json.loads(line)["question"] for line in answers.read_text().splitlines()]
    assert sorted(kept) == sorted(acknowledged)


def test_ctrl_c_ends_well_and_writes_the_results(tmp_path):
    items = write_table(tmp_path / "a.csv", 6)
    with Running(
        "ask", items, "--no-open", "--port", "0", "-o", tmp_path / "out", "--judge", "ann", "--judge", "ben"
    ) as server:
        with server.client() as client:
            say(client, client.get("/api/question").json())
        status, said = server.stop()
    assert status == 0 and "1 answers are in" in said and "&judge=ben" in said
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "board.html",
        "model.preflearn",
        "order.csv",
        "report.html",
    ]
    assert (tmp_path / "a.csv.answers.jsonl").read_text().count("\n") == 1


def test_a_port_in_use(tmp_path, capsys):
    items = write_table(tmp_path / "a.csv", 5)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert run(["ask", str(items), "--no-open", "--port", str(port)]) == 2
        assert f"Port {port} of 127.0.0.1 is in use" in capsys.readouterr().err
    first, second = (tmp_path / name for name in ("one.jsonl", "two.jsonl"))
    with Running("ask", items, "--no-open", "--answers", first) as one:
        with Running("ask", items, "--no-open", "--answers", second) as two:
            assert one.base != two.base


# A file that is taken away --------------------------------------------------------------------------------------------


def removed(path: Path) -> None:
    path.unlink()


def replaced_by_renaming(path: Path) -> None:
    """As editors save."""
    copy = path.with_name("copy~")
    copy.write_bytes(path.read_bytes())
    os.replace(copy, path)


def moved_away(path: Path) -> None:
    path.rename(path.with_name("elsewhere.jsonl"))


def cut(path: Path) -> None:
    os.truncate(path, 0)


TAKEN_AWAY = [removed, replaced_by_renaming, moved_away, cut]


@pytest.mark.parametrize("take", TAKEN_AWAY)
def test_nothing_is_acknowledged_into_a_file_that_was_taken_away(tmp_path, take):
    path = tmp_path / "a.jsonl"
    with Journal(path) as journal:
        journal.append(entry(0))
        assert journal.is_there
        take(path)
        left = {one.name: one.read_bytes() for one in tmp_path.iterdir()}
        for _ in range(2):
            with pytest.raises(OSError, match="while it was in use.*Stop `preflearn ask` and start it again"):
                journal.append(entry(1))
        assert not journal.is_there
        assert {one.name: one.read_bytes() for one in tmp_path.iterdir()} == left


@given(when=st.integers(0, 5), take=st.sampled_from(TAKEN_AWAY))
def test_a_file_taken_away_at_any_moment(tmp_path_factory, when, take):
    """During the write as well: what `append` has let pass is in the file of that name."""
    path = tmp_path_factory.mktemp("gone") / "a.jsonl"
    calls, kept = {"n": 0}, []
    with Journal(path) as journal, pytest.MonkeyPatch.context() as patched:

        def syncs(descriptor):
            os.fdatasync(descriptor)
            if calls["n"] == when:
                take(path)
            calls["n"] += 1

        patched.setattr(os, "fsync", syncs)
        for k in range(8):
            with suppress(OSError):
                journal.append(entry(k))
                kept.append(f"q{k}")
    if take is cut and when == 0:  # what was cut off had not been acknowledged: nothing is missing
        with Journal(path) as journal:
            assert [one["question"] for one in journal.entries] == kept == [f"q{k}" for k in range(1, 8)]
        return
    assert kept == [f"q{k}" for k in range(when)]
    if take in (replaced_by_renaming, moved_away):
        left = path if path.exists() else path.with_name("elsewhere.jsonl")
        with Journal(left) as journal:
            assert [one["question"] for one in journal.entries][:when] == kept


def test_what_others_add_is_left_alone(tmp_path):
    path = tmp_path / "a.jsonl"
    with Journal(path) as journal:
        journal.append(entry(0))
        with open(path, "a") as file:
            file.write(json.dumps(entry(1)) + "\n")
        journal.append(entry(2))
        with open(path, "a") as file:
            file.write("half a li")
        with pytest.raises(OSError, match="not whole"):
            journal.append(entry(3))
    with Journal(path) as journal:
        assert [one["question"] for one in journal.entries] == ["q0", "q1", "q2"]


@pytest.mark.parametrize("take", [removed, replaced_by_renaming])
def test_a_running_session_keeps_no_answer_that_it_could_not_write(tmp_path, take):
    """507, nothing counted; the same answer is taken by the next process, and what was kept before is rescued."""
    items = write_table(tmp_path / "a.csv", 6)
    path = tmp_path / "a.csv.answers.jsonl"
    with Running("ask", items, "--no-open", "--port", "0") as server:
        with server.client() as client:
            question = say(client, client.get("/api/question").json(), judge="me").json()
            take(path)
            refused = say(client, question, judge="me")
            assert refused.status_code == 507 and "while it was in use" in refused.json()["error"]
            assert say(client, question, "skip", judge="me").status_code == 507
            assert client.post("/api/undo", json={"judge": "me"}).status_code == 507
            assert client.get("/api/panel").json()["given"] == 1
        status, said = server.stop()
    rescued = path.with_name(path.name + ".rescued")
    assert status == 0 and str(rescued) in said
    with Running("ask", items, "--no-open", "--port", "0", "--answers", rescued) as server:
        with server.client() as client:
            assert say(client, question, judge="me").json()["counted"]
            assert client.get("/api/panel").json()["given"] == 2
    assert len(rescued.read_text().splitlines()) == 2


# Odd input ------------------------------------------------------------------------------------------------------------


def test_more_windows_than_pairs(tmp_path):
    """Nobody is told that everything is answered while something is not."""
    with Journal(tmp_path / "a.jsonl") as journal:
        session = Session(from_records(numbered(3), tmp_path, "three"), journal, seed=1)
        open_questions = {f"tab {k}": session.question("ann", f"tab {k}") for k in range(5)}
        assert all(question["question"] for question in open_questions.values())
        pairs = {frozenset((q["left"]["item"], q["right"]["item"])) for q in open_questions.values()}
        assert len(pairs) == 3
        for tab, question in open_questions.items():
            while question["question"]:
                names = question["left"]["item"], question["right"]["item"]
                question = session.answer("ann", question["question"], *names, better(*names), tab)
        assert {frozenset((a.winner, a.loser)) for a in session.answers()} == pairs
        session.close()


def test_skipping_what_another_window_shows_comes_to_an_end(tmp_path):
    with Journal(tmp_path / "a.jsonl") as journal:
        session = Session(from_records(numbered(2), tmp_path, "two"), journal, seed=1)
        one, two = session.question("ann", "1"), session.question("ann", "2")
        names = one["left"]["item"], one["right"]["item"]
        assert session.answer("ann", one["question"], *names, "skip", "1")["question"] is None
        assert session.answer("ann", two["question"], *names, "left", "2")["question"] is None
        session.close()


@pytest.mark.parametrize("field", ["judge", "client", "question", "left", "right", "verdict"])
@pytest.mark.parametrize(
    "value", ["[" * 900 + "]" * 900, '{"a":' * 900 + "1" + "}" * 900, '"\\ud800abcdefgh"', "[1]"]
)
def test_odd_values_of_an_answer_are_refused_and_change_nothing(session, client, field, value):
    question = client.get("/api/question").json()
    body = {"judge": "ann", "question": question["question"], "left": question["left"]["item"]}
    body |= {"right": question["right"]["item"], "verdict": "left", "client": "", field: "@"}
    content = json.dumps(body).replace('"@"', value)
    found = client.post("/api/answer", content=content, headers={"content-type": "application/json"})
    assert found.status_code == (200 if field == "client" else 400), found.text
    assert len(session.answers()) == (field == "client")
    assert client.get("/api/panel", params={"judge": "ann"}).status_code == 200


@pytest.mark.parametrize("depth", [900, 990, 5000, 30_000])
def test_deep_requests_are_refused(session, client, depth):
    for content in ("[" * depth + "]" * depth, '{"a":' * depth + "1" + "}" * depth):
        found = client.post("/api/answer", content=content, headers={"content-type": "application/json"})
        assert found.status_code in (400, 413)
    assert client.get("/api/question").status_code == 200 and session.answers() == []


@pytest.mark.parametrize("depth", [60, 990, 20_000])
def test_deep_items_are_refused_with_their_line(tmp_path, capsys, depth):
    path = tmp_path / "items.jsonl"
    path.write_text('{"name": "a"}\n{"name": "b", "more": ' + "[" * depth + "]" * depth + "}\n")
    assert run(["ask", str(path), "--no-open"]) == 2
    assert "line 2: values are nested more than 50 levels deep" in capsys.readouterr().err


@pytest.mark.parametrize(
    "line",
    [
        '{"winner": "a", "loser": "b", "judge": "\\ud800"}',
        '{"winner": "a", "loser": "b", "judge": "ann", "question": "\\udfff"}',
        '{"winner": "a", "loser": "b", "judge": "ann", "more": ' + "[" * 20_000 + "]" * 20_000 + "}",
    ],
)
def test_lines_that_could_not_be_shown_are_refused(tmp_path, line):
    path = tmp_path / "a.jsonl"
    path.write_text(line + "\n" + json.dumps(entry(1)) + "\n")
    before = path.read_bytes()
    with pytest.raises(ValueError, match="line 1: found"):
        Journal(path)
    assert path.read_bytes() == before


@pytest.mark.parametrize("n_lines", [1, 2])
@pytest.mark.parametrize("end", ["", "\n"])
def test_a_mark_before_the_first_line_is_no_damage(tmp_path, n_lines, end):
    path = tmp_path / "a.jsonl"
    text = "\n".join(json.dumps(entry(k)) for k in range(n_lines)) + end
    path.write_text(text, encoding="utf-8-sig")
    with Journal(path) as journal:
        assert len(journal.entries) == n_lines and journal.notes == []
        journal.append(entry(5))
    with Journal(path) as journal:
        assert len(journal.entries) == n_lines + 1
    assert not path.with_name("a.jsonl.damaged").exists()


@pytest.mark.parametrize("content", ["dear diary", "dear diary\n", "name,worth\na,1\n"])
def test_a_file_that_never_held_answers_is_left_alone(tmp_path, content):
    for encoding in ("utf-8", "utf-8-sig", "utf-16"):
        path = tmp_path / f"{encoding}.txt"
        path.write_text(content, encoding=encoding)
        before = path.read_bytes()
        with pytest.raises(ValueError, match="expected an answer|is UTF-16"):
            Journal(path)
        assert path.read_bytes() == before and len(list(tmp_path.iterdir())) == 1
        path.unlink()


def test_a_list_of_one_line_with_a_mark_is_told_as_it_is(tmp_path, capsys):
    path = tmp_path / "one.txt"
    path.write_text("tea\n", encoding="utf-8-sig")
    assert run(["ask", str(path), "--no-open"]) == 2
    assert "holds one item, 'tea'" in capsys.readouterr().err


def test_names_that_are_no_text_are_refused(tmp_path, capsys):
    folder = tmp_path / "texts"
    folder.mkdir()
    (folder / "a.txt").write_text("one")
    try:
        Path(os.fsdecode(os.fsencode(folder) + b"/\xff.txt")).write_text("two")
    except OSError:
        pytest.skip("this file system takes UTF-8 alone")
    assert run(["ask", str(folder), "--no-open"]) == 2
    assert "name is not UTF-8" in capsys.readouterr().err


def test_thousands_of_judges(tmp_path):
    """The panel stays small, and comparing judges takes time in proportion to the answers."""
    path, rng = tmp_path / "a.jsonl", np.random.default_rng(0)
    names = [record["name"] for record in numbered(60)]
    lines = []
    for judge in range(3000):
        worse, better_one = sorted(rng.choice(60, 2, replace=False))
        said = {"winner": names[better_one], "loser": names[worse], "judge": f"judge {judge}"}
        lines.append(json.dumps({**said, "question": f"q{judge:08}"}))
    path.write_text("\n".join(lines) + "\n")
    with Journal(path) as journal:
        session = Session(from_records(numbered(60), tmp_path, "sixty"), journal, seed=0)
        with serving(ask_app(session, TOKEN, judge="ann")) as client:
            client.headers["X-Preflearn-Token"] = TOKEN
            assert client.get("/api/question").json()["question"]
            panel = client.get("/api/panel")
            found = panel.json()["agreement"]
            assert found["n_judges"] == 3000 and len(found["judges"]) == 50 and len(found["pairs"]) <= 50
            assert len(panel.content) < 100_000
            assert b"and 2,950 more judges" in client.get("/download/report.html").content
        session.close()


@pytest.mark.parametrize("n_judges", [2, 5])
def test_judges_are_compared_as_by_hand(n_judges):
    rng = np.random.default_rng(n_judges)
    answers = []
    for k in range(60):
        one, two = rng.choice(list("abcd"), 2, replace=False)
        answers.append(Answer(one, two, f"judge {rng.integers(n_judges)}", "", str(k), bool(k % 7 == 0)))
    found = agreement(answers, dict(zip("abcd", range(4))), {})
    last = {(a.judge, frozenset((a.winner, a.loser))): None if a.tie else a.winner for a in answers}
    for pair in found["pairs"]:
        one, two = pair["judges"]
        common = [key for judge, key in last if judge == one and (two, key) in last]
        assert pair["common"] == len(common)
        assert pair["same"] == sum(last[one, key] == last[two, key] for key in common)
    assert found["n_judges"] == n_judges and len(found["pairs"]) == n_judges * (n_judges - 1) // 2


def test_half_open_connections_do_not_keep_pages_waiting(session):
    class Impatient(Connection):
        within, most = 0.5, 40

    with serving(ask_app(session, TOKEN, judge="ann"), Impatient) as client:
        held = []
        for _ in range(150):
            held.append(socket.create_connection((client.base_url.host, client.base_url.port)))
            held[-1].sendall(b"POST /api/answer HTTP/1.1\r\nHost: localhost\r\n")
        client.headers["X-Preflearn-Token"] = TOKEN
        question = client.get("/api/question").json()
        assert say(client, question).json()["counted"]
        for one in held:
            one.settimeout(10)
            with suppress(ConnectionError):
                assert one.recv(100) == b""
            one.close()


def test_an_answer_that_does_not_arrive_is_given_up(session, monkeypatch):
    monkeypatch.setattr(read_json, "__defaults__", (0.3,))
    with serving(ask_app(session, TOKEN, judge="ann")) as client:
        with socket.create_connection((client.base_url.host, client.base_url.port)) as connection:
            connection.settimeout(10)
            connection.sendall(
                b"POST /api/answer HTTP/1.1\r\nHost: localhost\r\nX-Preflearn-Token: " + TOKEN.encode() +
                b"\r\nContent-Type: application/json\r\nContent-Length: 99\r\n\r\n{"
            )  # fmt: skip
            said = b""
            while piece := connection.recv(10_000):
                said += piece
        assert b" 408 " in said


def test_listening_everywhere_prints_an_address_that_works_and_a_warning(tmp_path):
    items = write_table(tmp_path / "a.csv", 4)
    options = ["--no-open", "--port", "0", "--host", "0.0.0.0", "--judge", "ann", "--judge", "bob"]
    with Running("ask", items, *options) as server:
        assert server.base.startswith("http://127.0.0.1:")
        with server.client() as client:
            assert client.get("/api/question").status_code == 200
            assert (
                client.get("/", params={"token": "wrong"}, headers={"X-Preflearn-Token": ""}).status_code
                == 403
            )
        said = server.stop()[1]
    assert "Warning: every machine that can reach this one" in said and "0.0.0.0" not in said
    assert "bob: http://" in said
