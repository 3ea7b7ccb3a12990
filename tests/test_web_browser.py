"""`preflearn ask` as people use it: in a real browser, by mouse and by keys."""

from __future__ import annotations

import json
import time
from functools import partial

import pytest

pytest.importorskip("starlette", reason="the extra 'web' is not installed")
pytest.importorskip("uvicorn", reason="the extra 'web' is not installed")
from tests.browser import Browser, find_browser
from tests.web_server import Running

pytestmark = pytest.mark.skipif(find_browser() is None, reason="no Chromium on this machine")

SHOWN = (
    "JSON.stringify([document.body.dataset.question, document.querySelector('#left-content').innerText, "
    "document.querySelector('#right-content').innerText])"
)
HOSTILE = [
    "<script>window.hurt = 1</script>",
    "<img src=x onerror='window.hurt = 2'>",
    '"><svg onload=window.hurt=3>',
    "</script><script>window.hurt = 4</script>",
    "javascript:window.hurt=5",
    "**bold** <b>not bold</b> `<i>`\n- [link](javascript:window.hurt=6)\n# <u>head</u>",
]


@pytest.fixture
def browser(tmp_path):
    with Browser(tmp_path / "browser") as found:
        yield found


def start(tmp_path, lines, *options):
    items = tmp_path / "items.txt"
    items.write_text("\n".join(lines) + "\n")
    return Running(
        "ask", items, "--answers", tmp_path / "answers.jsonl", "--no-open", "--judge", "ann", *options
    )


def entries(tmp_path):
    return [json.loads(line) for line in (tmp_path / "answers.jsonl").read_text().splitlines()]


def shown(browser):
    """Identifier of the question, and the two texts."""
    return json.loads(browser.evaluate(SHOWN))


def open_page(browser, address, width=1200):
    browser.open(address, width=width, scheme="light")
    browser.wait_for("document.body.dataset.question")


def act(browser, action):
    """Do something and wait for the next question."""
    before = shown(browser)[0]
    time.sleep(0.15)  # the page does not take clicks that came too fast to have been meant
    action()
    browser.wait_for(
        f"document.body.dataset.question !== '{before}' || !document.querySelector('#done').hidden"
    )


def test_a_whole_session_by_clicks(tmp_path, browser):
    names = ["ant", "bee", "cat", "dog"]
    with start(tmp_path, names, "--port", "0") as server:
        open_page(browser, server.address)
        for _ in range(6):
            _, left, right = shown(browser)
            better = "#left .content" if left > right else "#right .content"
            act(browser, partial(browser.click, better))
        assert not browser.evaluate("document.querySelector('#done').hidden")
        browser.wait_for("document.body.dataset.learned === '6'")
        order = browser.evaluate(
            "[...document.querySelectorAll('#order .item')].map(e => e.innerText).join()"
        )
        assert order == "dog,cat,bee,ant"
        assert "settled" in browser.evaluate("document.querySelector('#worth').innerText")
        act_undo = "document.querySelector('#done').hidden"
        browser.click("#undo")
        browser.wait_for(act_undo)
        assert browser.complaints == []
        assert all(url.startswith((server.base, "data:")) for url in browser.requests)
    found = entries(tmp_path)
    assert len(found) == 7 and "undo" in found[-1]
    assert all(one["winner"] > one["loser"] for one in found[:-1])


def test_a_session_by_keys(tmp_path, browser):
    with start(tmp_path, [f"thing {k}" for k in range(8)], "--port", "0") as server:
        open_page(browser, server.address)
        _, left, right = shown(browser)
        act(browser, lambda: browser.press("ArrowLeft"))
        assert (entries(tmp_path)[-1]["winner"], entries(tmp_path)[-1]["loser"]) == (left, right)
        _, left, right = shown(browser)
        act(browser, lambda: browser.press("ArrowRight"))
        assert (entries(tmp_path)[-1]["winner"], entries(tmp_path)[-1]["side"]) == (right, "right")
        question, left, right = shown(browser)
        act(browser, lambda: browser.press("="))
        assert entries(tmp_path)[-1]["tie"] is True
        act(browser, lambda: browser.press("u"))
        assert entries(tmp_path)[-1]["undo"] == question and shown(browser)[1:] == [left, right]
        skipped = shown(browser)[0]
        act(browser, lambda: browser.press("s"))
        assert entries(tmp_path)[-1]["skip"] == skipped
        assert "Question 3" in browser.evaluate("document.querySelector('#live').innerText")
        assert browser.complaints == []


def test_reload_keeps_the_question_and_the_answers(tmp_path, browser):
    with start(tmp_path, [f"thing {k}" for k in range(8)], "--port", "0") as server:
        open_page(browser, server.address)
        for _ in range(3):
            act(browser, lambda: browser.press("ArrowLeft"))
        before = shown(browser)
        browser.reload()
        browser.wait_for("document.body.dataset.question")
        assert shown(browser) == before
        browser.wait_for("document.querySelector('#consistency').innerText.includes('3 given')")
        assert len(entries(tmp_path)) == 3


def test_two_judges_at_once(tmp_path, browser):
    with start(tmp_path, [f"thing {k}" for k in range(8)], "--port", "0", "--judge", "ben") as server:
        with Browser(tmp_path / "other") as other:
            open_page(browser, server.address)
            open_page(other, server.address + "&judge=ben")
            for _ in range(5):
                assert set(shown(browser)[1:]) != set(shown(other)[1:])
                act(browser, lambda: browser.press("ArrowLeft"))
                act(other, lambda: other.click("#choose-right"))
            assert other.evaluate("document.querySelector('#judge').innerText") == "ben"
            other.reload()
            other.wait_for("document.querySelector('#judges').innerText.includes('ann: 5 answers')")
            assert "ben: 5 answers" in other.evaluate("document.querySelector('#judges').innerText")
    judges = [one["judge"] for one in entries(tmp_path)]
    assert sorted(judges) == ["ann"] * 5 + ["ben"] * 5


def test_kill_and_resume_loses_nothing(tmp_path, browser):
    names = [f"thing {k}" for k in range(8)]
    with start(tmp_path, names, "--port", "0") as server:
        open_page(browser, server.address)
        for _ in range(3):
            act(browser, lambda: browser.press("ArrowLeft"))
        port = server.base.rpartition(":")[2]
        server.kill()
        time.sleep(0.15)
        browser.press("ArrowRight")
        browser.wait_for("!document.querySelector('#banner').hidden")
        assert "does not answer" in browser.evaluate("document.querySelector('#banner').innerText")
        _, _, right = shown(browser)
    assert len(entries(tmp_path)) == 3
    with start(tmp_path, names, "--port", port) as server:
        # The answer that had no reply waits in the browser and is sent by the page that is opened next.
        open_page(browser, server.address)
        browser.wait_for("document.querySelector('#consistency').innerText.includes('4 given')")
    found = entries(tmp_path)
    assert len(found) == 4 and found[-1]["winner"] == right


PENDING = "Object.keys(localStorage).filter((name) => name.startsWith('preflearn-pending')).length"


@pytest.mark.parametrize("replaced", [False, True])
def test_an_answer_that_the_disk_did_not_take_waits_in_the_page(tmp_path, browser, replaced):
    """The answers file is taken away: the page says so, reloading forgets nothing, the next process gets the answer."""
    names = [f"thing {k}" for k in range(8)]
    file, before = tmp_path / "answers.jsonl", tmp_path / "before.jsonl"
    with start(tmp_path, names, "--port", "0") as server:
        open_page(browser, server.address)
        for _ in range(2):
            act(browser, lambda: browser.press("ArrowLeft"))
        port = server.base.rpartition(":")[2]
        before.write_bytes(file.read_bytes())
        if replaced:
            before.replace(file)
        else:
            file.unlink()
        time.sleep(0.15)
        _, _, right = shown(browser)
        browser.press("ArrowRight")
        browser.wait_for("!document.querySelector('#banner').hidden")
        assert "while it was in use" in browser.evaluate("document.querySelector('#banner').innerText")
        browser.reload()  # what is loaded again tries once more, and keeps what is refused once more
        browser.wait_for("document.querySelector('#banner').innerText.includes('while it was in use')")
        assert browser.evaluate(PENDING) == 1
        assert server.stop()[0] == 0
    if not replaced:
        (tmp_path / "answers.jsonl.rescued").replace(file)
    with start(tmp_path, names, "--port", port) as server:
        open_page(browser, server.address)
        browser.wait_for("document.querySelector('#consistency').innerText.includes('3 given')")
        assert browser.evaluate(PENDING) == 0
    found = entries(tmp_path)
    assert len(found) == 3 and found[-1]["winner"] == right


def test_pending_answers_of_several_windows_are_all_sent(tmp_path, browser):
    """And one about items of another list is told, and forgotten; a damaged one as well."""
    with start(tmp_path, [f"thing {k}" for k in range(8)], "--port", "0") as server:
        open_page(browser, server.address)
        for k in range(4):
            body = {"judge": "ann", "question": f"window{k}00", "left": f"thing {k}", "right": "thing 7"}
            body |= {"verdict": "left"} if k < 3 else {"verdict": "left", "left": "Rome"}
            name = f"preflearn-pending {tmp_path / 'items.txt'} {k}"
            browser.evaluate(f"localStorage.setItem({json.dumps(name)}, {json.dumps(json.dumps(body))})")
        browser.evaluate(f"localStorage.setItem({json.dumps(name + '9')}, '{{')")
        browser.reload()
        browser.wait_for("document.querySelector('#consistency').innerText.includes('3 given')")
        browser.wait_for("!document.querySelector('#banner').hidden")
        assert "There is no item 'Rome'" in browser.evaluate("document.querySelector('#banner').innerText")
        assert browser.evaluate(PENDING) == 0
    assert sorted(one["winner"] for one in entries(tmp_path)) == ["thing 0", "thing 1", "thing 2"]


@pytest.mark.parametrize("width", [1200, 380])
def test_hostile_items_are_text(tmp_path, browser, width):
    items = tmp_path / "items.jsonl"
    rows = [{"name": f"{k} {text[:60]}", "body_md": text, "note": text} for k, text in enumerate(HOSTILE)]
    items.write_text("\n".join(map(json.dumps, rows)))
    judge = "<img src=x onerror='window.hurt=7'>"
    with Running("ask", items, "--no-open", "--port", "0", "--judge", judge) as server:
        open_page(browser, server.address, width)
        seen = ""
        for _ in range(15):
            seen += " ".join(shown(browser)[1:])
            act(browser, lambda: browser.press("ArrowLeft"))
        assert browser.evaluate("typeof window.hurt") == "undefined"
        assert "<script>window.hurt = 1</script>" in seen and "<b>not bold</b>" in seen
        assert (
            browser.evaluate("document.querySelectorAll('.content img, .content a, .content script').length")
            == 0
        )
        assert browser.evaluate("document.querySelector('#judge').innerText") == judge
        assert browser.evaluate("document.documentElement.scrollWidth <= innerWidth")
        assert browser.complaints == []
        report = tmp_path / "report.html"
        with server.client() as client:
            report.write_bytes(client.get("/download/report.html").content)
        browser.open(report, width=width, scheme="light")
        assert browser.evaluate("typeof window.hurt") == "undefined" and browser.complaints == []
        assert browser.evaluate("document.scripts.length + document.images.length") == 0


def test_pictures_are_shown_and_missing_ones_named(tmp_path, browser):
    for name, colour in (("a.svg", "red"), ("b.svg", "blue")):
        size = 'width="40" height="40"'
        (tmp_path / name).write_text(
            f'<svg xmlns="http://www.w3.org/2000/svg" {size}><rect {size} fill="{colour}"/></svg>'
        )
    items = tmp_path / "items.csv"
    items.write_text("name,photo\nfirst,a.svg\nsecond,b.svg\nthird,gone.svg\n")
    with Running("ask", items, "--no-open", "--port", "0") as server:
        open_page(browser, server.address)
        text, loaded = "", 0
        for _ in range(3):
            time.sleep(0.3)
            text += " ".join(shown(browser)[1:])
            loaded += browser.evaluate(
                "[...document.images].filter(i => i.complete && i.naturalWidth === 40).length"
            )
            act(browser, lambda: browser.press("ArrowLeft"))
        assert loaded == 4 and "Picture missing: gone.svg" in text and browser.complaints == []


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (1280, "dark"), (380, "dark")])
def test_the_page_fits_and_can_be_used_without_a_mouse(tmp_path, browser, width, scheme):
    with start(tmp_path, [f"thing {k}" for k in range(30)], "--port", "0") as server:
        browser.open(server.address, width=width, scheme=scheme)
        browser.wait_for(
            "document.body.dataset.question && document.querySelectorAll('#order li').length === 30"
        )
        assert browser.evaluate("document.documentElement.scrollWidth <= innerWidth")
        controls = "[...document.querySelectorAll('button, a, input')]"
        unnamed = "filter(e => !e.textContent && !e.ariaLabel && !e.labels?.length)"
        assert browser.evaluate(f"{controls}.{unnamed}.length") == 0
        buttons = "[...document.querySelectorAll('.more button, .choose')]"
        assert browser.evaluate(f"{buttons}.filter(e => e.getBoundingClientRect().height < 40).length") == 0
        assert browser.evaluate("document.querySelector('#live').ariaLive") == "polite"
        dark = "getComputedStyle(document.body).backgroundColor.match(/\\d+/g).every(c => c < 60)"
        assert browser.evaluate(dark) == (scheme == "dark")
        browser.evaluate("document.querySelector('#choose-right').focus()")
        before = shown(browser)
        time.sleep(0.15)
        browser.call("Input.dispatchKeyEvent", type="keyDown", key="Enter", text="\r")
        browser.call("Input.dispatchKeyEvent", type="keyUp", key="Enter")
        browser.wait_for(f"document.body.dataset.question !== '{before[0]}'")
        assert entries(tmp_path)[-1]["winner"] == before[2]
