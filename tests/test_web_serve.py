"""`preflearn serve`: scores over HTTP are those of `predict`, and bad requests are answered, not obeyed."""

from __future__ import annotations

import asyncio
import http.client
import json
import shutil
import socket
import subprocess
import time
from contextlib import suppress
from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("msgspec", reason="the extra 'web' is not installed")
pytest.importorskip("starlette", reason="the extra 'web' is not installed")
pytest.importorskip("uvicorn", reason="the extra 'web' is not installed")
pytest.importorskip("httpx")
import httpx
from hypothesis import given
from hypothesis import strategies as st
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, StandardScaler
from tests.web_server import Running, serving

from preflearn import RLS, AutoRanker, BradleyTerry, RankRLS, RankSVM
from preflearn.cli.app import run
from preflearn.cli.serve import _scorer
from preflearn.io import load_model, save_model
from preflearn.preprocessing import QueryRelative, TableEncoder
from preflearn.web import requests
from preflearn.web.requests import RefusedError, parse_object
from preflearn.web.server import Connection
from preflearn.web.serving import feature_names, matrix_scorer, serve_app
from strategies import examples

RNG = np.random.default_rng(0)
X = RNG.normal(size=(40, 3))
Y = X @ [1.0, -2.0, 0.5]


@pytest.fixture
def saved(tmp_path):
    path = tmp_path / "model.preflearn"
    save_model(make_pipeline(StandardScaler(), RankRLS()).fit(X, Y), path)
    return path


@pytest.mark.parametrize(
    "model",
    [
        RankRLS(),
        RLS(fit_intercept=True),
        RankSVM(),
        RankRLS(kernel="rbf"),
        make_pipeline(
            StandardScaler(with_mean=False), StandardScaler(with_std=False), RLS(fit_intercept=True)
        ),
        make_pipeline(MinMaxScaler(), RankRLS()),
        make_pipeline(StandardScaler(), Ridge()),
    ],
)
def test_every_model_scores_as_it_predicts(model):
    shifted = 3.0 * X + [5.0, -100.0, 0.0]
    model.fit(shifted, Y)
    scorer = matrix_scorer(model, feature_names(model))
    columns = scorer.columns(as_items(shifted))
    np.testing.assert_allclose(scorer.score(columns), model.predict(shifted), rtol=1e-9, atol=1e-9)


def test_the_items_of_a_request_are_one_query_to_an_automatic_ranker():
    model = AutoRanker(preset="fast", random_state=0).fit(X, Y, qid=np.arange(40) // 10)
    scorer = matrix_scorer(model, feature_names(model))
    expected = model.predict(X[:7], qid=np.zeros(7))
    np.testing.assert_array_equal(scorer.score(scorer.columns(as_items(X[:7]))), expected)


@pytest.fixture
def client(saved):
    with serving(serve_app(_scorer(saved))) as found:
        yield found


def as_items(rows, names=("x0", "x1", "x2")):
    return [dict(zip(names, map(float, row))) for row in rows]


def test_scores_and_order_are_those_of_predict(client, saved):
    expected = load_model(saved).predict(X)
    found = client.post("/rank", json={"items": as_items(X)})
    assert found.status_code == 200
    np.testing.assert_allclose(found.json()["scores"], expected, rtol=1e-9)
    assert found.json()["order"] == np.argsort(-expected, kind="stable").tolist()
    assert client.post("/rank", json={"items": as_items(X[:1])}).json()["order"] == [0]
    many = np.tile(X, (20, 1))
    assert len(client.post("/rank", json={"items": as_items(many)}).json()["scores"]) == 800


def test_schema_health_and_metrics(client):
    features = client.get("/schema").json()["features"]
    assert [(one["name"], one["type"]) for one in features] == [
        ("x0", "number"),
        ("x1", "number"),
        ("x2", "number"),
    ]
    assert client.get("/health").json() == {"status": "ok", "model": "RankRLS", "features": 3}
    client.post("/rank", json={"items": as_items(X[:5])})
    client.post("/rank", json={"items": []})
    text = client.get("/metrics").text
    assert "preflearn_items_total 5\n" in text
    assert 'preflearn_requests_total{path="/rank",status="200"} 1\n' in text
    assert 'preflearn_requests_total{path="/rank",status="422"} 1\n' in text
    assert 'preflearn_rank_seconds_bucket{le="+Inf"} 2\n' in text
    assert client.get("/rank").status_code == 405 and client.get("/nothing").status_code == 404


@pytest.mark.parametrize(
    ("body", "status", "named"),
    [
        (b"{", 400, "is not JSON"),
        (b"[1]", 400, "JSON object"),
        (b'{"items": [{"x0": NaN, "x1": 1, "x2": 1}]}', 400, "NaN"),
        (b"{}", 422, "items"),
        (b'{"items": []}', 422, "items"),
        (b'{"items": 3}', 422, "items"),
        (b'{"items": [3]}', 422, "items[0]"),
        (b'{"items": [{"x0": 1, "x1": 1, "x2": 1}], "top": 3}', 422, "top"),
        (b'{"items": [{"x0": 1, "x1": 1, "x2": 1}, {"x0": 1, "x2": 1}]}', 422, "items[1].x1: missing"),
        (b'{"items": [{"x0": 1, "x1": "a", "x2": 1}]}', 422, "items[0].x1: found 'a'"),
        (b'{"items": [{"x0": 1, "x1": true, "x2": 1}]}', 422, "items[0].x1: found True"),
        (b'{"items": [{"x0": 1, "x1": [1], "x2": 1}]}', 422, "items[0].x1: found a list"),
        (b'{"items": [{"x0": 1, "x1": 1e999, "x2": 1}]}', 422, "items[0].x1"),
        (b'{"items": [{"x0": 1, "x1": 1, "x2": 1, "x3": 1}]}', 422, "items[0].x3"),
        (b"[" * 100_000, 400, "is not readable JSON"),
    ],
)
def test_malformed_requests_are_answered_with_the_field(client, body, status, named):
    found = client.post("/rank", content=body, headers={"Content-Type": "application/json"})
    assert found.status_code == status and named in found.json()["error"]
    assert client.get("/health").status_code == 200


def test_oversized_requests(client):
    headers = {"Content-Type": "application/json"}
    assert client.post("/rank", content=b" " * (17 << 20), headers=headers).status_code == 413
    pieces = (b" " * (1 << 20) for _ in range(18))
    assert client.post("/rank", content=pieces, headers=headers).status_code == 413
    assert client.get("/health").status_code == 200


def test_slow_requests_keep_nobody_waiting(client):
    host, port = client.base_url.host, client.base_url.port
    slow = []
    for _ in range(20):
        connection = socket.create_connection((host, port))
        connection.sendall(
            b"POST /rank HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 99\r\n\r\n{"
        )
        slow.append(connection)
    assert client.post("/rank", json={"items": as_items(X[:2])}).status_code == 200
    for connection in slow:
        connection.close()


def test_many_at_once(client, saved):
    expected = load_model(saved).predict(X)

    async def all_of_them():
        async with httpx.AsyncClient(base_url=client.base_url, timeout=60) as many:
            calls = [many.post("/rank", json={"items": as_items(X[k : k + 5])}) for k in range(30)]
            return await asyncio.gather(*calls)

    for k, found in enumerate(asyncio.run(all_of_them())):
        np.testing.assert_allclose(found.json()["scores"], expected[k : k + 5], rtol=1e-9)


def test_a_model_of_a_table_takes_its_columns(tmp_path):
    table = {
        "price": [1.0, 2.5, 3.0, None, 8.0, 2.0],
        "colour": ["red", "blue", "red", "red", "blue", "red"],
        "note": [
            "a fine long text",
            "short one here",
            "a text again",
            "fine words here",
            "one more text",
            "the last",
        ],
    }
    pairs = [[4, 0], [2, 1], [4, 5], [1, 5]]
    model = make_pipeline(TableEncoder(), StandardScaler(), BradleyTerry()).fit(table, pairs)
    path = tmp_path / "m.preflearn"
    save_model(model, path)
    with serving(serve_app(_scorer(path))) as client:
        types = {one["name"]: one["type"] for one in client.get("/schema").json()["features"]}
        assert types["price"] == "number" and types["colour"] == "category"
        items = [{"price": 2.0, "colour": "red", "note": "a fine text"}, {"price": None, "colour": "green"}]
        found = client.post("/rank", json={"items": items}).json()
        columns = {"price": [2.0, None], "colour": ["red", "green"], "note": ["a fine text", None]}
        np.testing.assert_allclose(found["scores"], model.predict(columns))
        wrong = client.post("/rank", json={"items": [{"price": "dear", "colour": "red"}]})
        assert wrong.status_code == 422 and "items[0].price" in wrong.json()["error"]


def test_a_model_of_the_command_line(tmp_path, capsys):
    rows = [f"{k % 4},{k * 0.37 % 5:.2f},{'red' if k % 3 else 'blue'},{k % 7 + k % 4}" for k in range(60)]
    data = tmp_path / "data.csv"
    data.write_text("query,price,colour,target\n" + "\n".join(rows) + "\n")
    path, scores = tmp_path / "m.preflearn", tmp_path / "s.jsonl"
    assert run(["train", str(data), "--encode", "colour=onehot", "-o", str(path), "--quiet"]) == 0
    assert run(["predict", str(path), str(data), "-o", str(scores), "--quiet"]) == 0
    expected = [json.loads(line)["score"] for line in scores.read_text().splitlines()]
    items = [
        {"price": float(price), "colour": colour} for _, price, colour, _ in (row.split(",") for row in rows)
    ]
    with Running("serve", path, "--port", "0") as server:
        with server.client() as client:
            found = client.post("/rank", json={"items": items})
            assert found.status_code == 200, found.text
            np.testing.assert_allclose(found.json()["scores"], expected, rtol=1e-6, atol=1e-9)
            # A hole is a missing value, as in the table; a word where numbers are is named.
            assert client.post("/rank", json={"items": [{"price": 1.0}]}).status_code == 200
            wrong = client.post("/rank", json={"items": [{"price": [1], "colour": "red"}]})
            assert wrong.status_code == 422 and wrong.json()["error"].startswith("items[0].price")
            assert server.base.startswith("http://127.0.0.1:")
        status, said = server.stop()
    assert status == 0 and "Stopped." in said


def test_models_that_cannot_be_served(tmp_path, capsys):
    path = tmp_path / "m.preflearn"
    save_model(RankRLS(kernel="precomputed").fit(X @ X.T, Y), path)
    assert run(["serve", str(path)]) == 2
    assert "does not predict from features" in capsys.readouterr().err
    assert run(["serve", str(tmp_path / "none.preflearn")]) == 2


def test_numbers_and_names_that_no_float_or_text_can_hold_are_refused(client):
    for body in ('{"items": [{"x0": 1' + "0" * 400 + "}]}", '{"items": [{"\\ud800": 1}]}', '{"\\ud800": 1}'):
        found = client.post("/rank", content=body, headers={"content-type": "application/json"})
        assert found.status_code in (400, 422), body[:40]


# Values that cannot be scored -----------------------------------------------------------------------------------------


def shop_table(n=60):
    """Columns of every kind that a request can bring."""
    rng = np.random.default_rng(0)
    days = np.datetime64("2024-01-01") + rng.integers(0, 300, n)
    return {
        "price": rng.normal(100, 20, n).round(1).tolist(),
        "since": [str(day) for day in days],
        "fresh": np.where(rng.random(n) < 0.5, "yes", "no").tolist(),
        "colour": rng.choice(["red", "blue", "green"], n).tolist(),
        "size": rng.choice(["1", "2", "XL"], n).tolist(),
    }


def test_large_requests_are_answered_whatever_the_order_of_keys(client, saved):
    items = as_items(np.tile(X, (10, 1)))
    quick = client.post("/rank", json={"items": items}).json()
    turned = [items[0], dict(reversed(items[1].items())), *items[2:]]
    slow = client.post("/rank", json={"items": turned})
    assert len(slow.request.content) > 8192 and slow.json() == quick
    np.testing.assert_allclose(quick["scores"], np.tile(load_model(saved).predict(X), 10))
    for wrong in ({"x0": "a"}, {"x0": None}, {"x1": 1e308}, {"strange": 1.0}):
        bodies = [[*one[:-1], {**one[-1], **wrong}] for one in (items, turned)]
        first, second = (client.post("/rank", json={"items": one}) for one in bodies)
        assert first.status_code == second.status_code
        assert first.json() == second.json() or wrong == {"x1": 1e308}
    response = client.post("/rank", json={"items": items, "set": 0.9})
    assert response.status_code == 422 and "holds no sets" in response.json()["error"]
    large = [*items[:-1], {"x0": 1.7e308, "x1": -1.7e308, "x2": 1.7e308}]
    assert (
        "so large that the score is not finite" in client.post("/rank", json={"items": large}).json()["error"]
    )


@examples(200)
@given(data=st.data())
def test_requests_are_read_as_by_the_standard_library(data):
    """Numbers, texts and damaged bytes: what is read is what Python reads, and nothing is that Python refuses."""
    value = st.one_of(
        st.floats(allow_nan=False),
        st.integers(-(2**70), 2**70),
        st.text(max_size=4),
        st.none(),
        st.booleans(),
    )
    item = st.dictionaries(st.sampled_from(["a", "ab", "b c", "ü"]), value)
    body = bytearray(
        json.dumps({"items": data.draw(st.lists(item, max_size=3))}, ensure_ascii=False).encode()
    )
    for _ in range(data.draw(st.integers(0, 3))):
        place = data.draw(st.integers(0, len(body)))
        new = data.draw(
            st.sampled_from([b"", b"0", b"-", b".", b"e9", b'"', b",", b"}", b" ", b"\\", b"\0", b"\xff"])
        )
        body[place : place + data.draw(st.integers(0, 2))] = new
    try:
        expected = json.loads(body, parse_constant=lambda name: 1 / 0)
    except (ValueError, ZeroDivisionError):
        expected = None
    if isinstance(expected, dict):
        assert repr(parse_object(body)) == repr(expected)
    else:
        with pytest.raises(RefusedError, match="The request (is not JSON|must be a JSON object)"):
            parse_object(body)


def test_values_of_a_wrong_type_are_refused_by_their_place(client):
    for wrong in ("a", None, True, [1.0], {}):
        response = client.post("/rank", json={"items": [{**as_items(X[:1])[0], "x1": wrong}]})
        assert response.status_code == 422 and "items[0].x1: " in response.json()["error"]


@pytest.fixture(scope="module")
def shop_model(tmp_path_factory):
    table = shop_table()
    y = np.array(table["price"]) + 20 * (np.array(table["colour"]) == "red")
    encoder = TableEncoder(kinds={"size": "category"})
    model = make_pipeline(encoder, StandardScaler(), RankRLS()).fit(table, y)
    assert set(model[0].kinds_.values()) == {"number", "date", "boolean", "category"}
    path = tmp_path_factory.mktemp("shop") / "m.preflearn"
    save_model(model, path)
    return path


GOOD = {"price": 90.5, "since": "2024-02-03", "fresh": "no", "colour": "red", "size": "2"}
UNREADABLE = [
    ("since", "soonish"), ("since", "2024-13-45"), ("since", 17), ("since", 1.5), ("fresh", "perhaps"), ("fresh", 7),
    ("fresh", -1.5), ("since", "31.31.2024"), ("price", "dear"), ("price", "12,5O"),
]  # fmt: skip
READABLE = [
    ("since", "20240131"), ("since", 20240131), ("since", None), ("since", "N/A"), ("since", ""), ("fresh", True),
    ("fresh", 0), ("fresh", 1.0), ("fresh", "on"), ("fresh", None), ("fresh", "unknown"), ("colour", "puce"),
    ("colour", None), ("colour", "?"), ("price", "90.5"), ("price", "unknown"), ("price", None),
    ("size", 2), ("size", 2.0), ("size", 7), ("since", "2024-02-03T05:06:07"),
]  # fmt: skip


def test_values_that_cannot_be_read_are_refused_by_name(shop_model):
    """And those that say they are missing, or that the encoder has a place for, are scored as `predict` does."""
    model = load_model(shop_model)
    with serving(serve_app(_scorer(shop_model))) as client:
        for name, value in UNREADABLE:
            found = client.post("/rank", json={"items": [GOOD, {**GOOD, name: value}, GOOD]})
            assert found.status_code == 422, (name, value)
            error = found.json()["error"]
            assert error.startswith(f"items[1].{name}: found {value!r}, expected a"), error
        for name, value in READABLE:
            items = [GOOD, {**GOOD, name: value}]
            found = client.post("/rank", json={"items": items})
            assert found.status_code == 200, (name, value, found.text)
            alone = client.post("/rank", json={"items": items[1:]}).json()["scores"]
            assert found.json()["scores"][1] == pytest.approx(alone[0]), (name, value)
            text = {2: "2", 7: "7"}.get(value, value) if name == "size" else value
            columns = {key: [item] for key, item in {**GOOD, name: text}.items()}
            assert alone[0] == pytest.approx(model.predict(columns)[0]), (name, value)


def test_numbers_and_dates_as_text_are_read_as_in_the_training(tmp_path):
    """A table with decimal commas and German dates; /schema says how texts are read."""
    table = shop_table()
    table["price"] = [f"{price:.2f}".replace(".", ",") for price in table["price"]]
    table["since"] = [".".join(reversed(day.split("-"))) for day in table["since"]]
    model = make_pipeline(TableEncoder(), StandardScaler(), RankRLS()).fit(table, np.arange(60.0))
    save_model(model, tmp_path / "m.preflearn")
    good = {name: values[0] for name, values in table.items()}
    readable = (("12,50", 12.5), ("12.5", 12.5), ("1.234,50", 1234.5), ("N/A", None), ("12 €", 12))
    with serving(serve_app(_scorer(tmp_path / "m.preflearn"))) as client:
        features = {one["name"]: one for one in client.get("/schema").json()["features"]}
        assert features["price"]["decimal"] == "comma" and features["since"]["day_first"] is True
        for text, number in readable:
            prices = (text, number, 7.25)
            found = client.post("/rank", json={"items": [{**good, "price": price} for price in prices]})
            assert found.status_code == 200, found.text
            columns = {name: [value] * 3 for name, value in good.items()} | {
                "price": [text, None if number is None else str(number), "7,25"]
            }
            np.testing.assert_allclose(found.json()["scores"], model.predict(columns))
        for wrong in ("dear", "12,5O", True):
            error = client.post("/rank", json={"items": [good, {**good, "price": wrong}]}).json()["error"]
            assert error == (
                f"items[1].price: found {wrong!r}, expected a finite number (a text has a decimal comma)."
            )


def test_unreadable_values_as_missing_ones_where_that_is_asked_for(shop_model, tmp_path, capsys):
    with serving(serve_app(_scorer(shop_model, unreadable_as_missing=True))) as client:
        for name, value in UNREADABLE:
            if name == "fresh" and not isinstance(value, str):
                continue
            found = client.post("/rank", json={"items": [{**GOOD, name: value}, {**GOOD, name: None}]})
            assert found.status_code == 200
            one, other = found.json()["scores"]
            assert one == pytest.approx(other), (name, value)
        wrong = client.post("/rank", json={"items": [{**GOOD, "since": ["x"]}]})
        assert wrong.status_code == 422
    path = tmp_path / "m.preflearn"
    save_model(RankRLS().fit(X, Y), path)
    assert run(["serve", str(path), "--unreadable-as-missing"]) == 2
    assert "would be ignored" in capsys.readouterr().err


@pytest.mark.parametrize(
    "learner", [RankRLS(), RLS(), RankSVM(), RankRLS(kernel="poly"), RankRLS(kernel="rbf")]
)
@pytest.mark.parametrize("steps", [(), (StandardScaler(),), (QueryRelative(),)])
def test_numbers_that_overflow_are_named(learner, steps):
    """Whatever a finite number does to a model: scores are numbers, or the field is named."""
    model = make_pipeline(*steps, learner).fit(X, Y)
    rows = as_items(X[:3])
    with serving(serve_app(matrix_scorer(model, feature_names(model)))) as client:
        for value in (1.7e308, -1.7e308, 1e200, 10**300, 5e-324):
            rows[1]["x1"] = value
            found = client.post("/rank", json={"items": rows})
            if found.status_code == 200:
                assert np.isfinite(found.json()["scores"]).all()
            else:
                assert found.status_code == 422
                assert "items[1].x1" in found.json()["error"] or "items: " in found.json()["error"]
        assert client.get("/health").status_code == 200


def test_half_characters_are_refused_by_name(shop_model):
    with serving(serve_app(_scorer(shop_model))) as client:
        for name in ("since", "fresh", "colour", "size"):
            body = json.dumps({"items": [GOOD, {**GOOD, name: "a\ud800"}]})
            found = client.post("/rank", content=body, headers={"content-type": "application/json"})
            assert found.status_code == 422 and f"items[1].{name}" in found.json()["error"]


@pytest.mark.parametrize("depth", [5, 100, 900, 990, 5000])
def test_nested_values_are_refused_at_any_depth(client, depth):
    for body in (
        '{"items": ' + "[" * depth + "]" * depth + "}",
        '{"items": [{"x0": ' + '{"a":' * depth + "1" + "}" * depth + "}]}",
        '{"items": [{"x0": 1, "x1": ' + "[" * depth + "]" * depth + ', "x2": 1}]}',
    ):
        found = client.post("/rank", content=body, headers={"content-type": "application/json"})
        assert found.status_code in (400, 422), found.text


# Who may ask ----------------------------------------------------------------------------------------------------------


def test_names_of_others_are_refused(client, saved):
    """A page whose own name was made to point to this machine."""
    for path in ("/health", "/schema", "/metrics"):
        assert client.get(path, headers={"Host": "evil.example:8000"}).status_code == 403
    body = {"items": as_items(X[:2])}
    for host in ("evil.example", "127.0.0.1.evil.example:80", "", "2130706433"):
        assert client.post("/rank", json=body, headers={"Host": host}).status_code == 403, host
    for host in ("localhost:1234", "127.0.0.1", "[::1]:80", "LOCALHOST"):
        assert client.post("/rank", json=body, headers={"Host": host}).status_code == 200, host
    with serving(serve_app(_scorer(saved), hosts=None)) as anybody:
        assert anybody.get("/health", headers={"Host": "shop.example"}).status_code == 200


def test_the_command_takes_further_names_and_warns(saved):
    with Running("serve", saved, "--port", "0", "--allow-host", "Shop.example") as server:
        with server.client() as client:
            assert client.get("/health", headers={"Host": "shop.example:8000"}).status_code == 200
            assert client.get("/health", headers={"Host": "other.example"}).status_code == 403
        assert "Warning" not in server.stop()[1]
    with Running("serve", saved, "--port", "0", "--host", "0.0.0.0", "--quiet") as server:
        assert server.base.startswith("http://127.0.0.1:")
        with server.client() as client:
            assert client.get("/health").status_code == 200
        assert "Warning: every machine that can reach this one" in server.stop()[1]


# Connections ----------------------------------------------------------------------------------------------------------


class Impatient(Connection):
    within = 0.5
    most = 40


def is_closed(connection):
    """Nothing more comes; a timeout would be raised."""
    with suppress(ConnectionError):
        while connection.recv(10_000):
            pass
    return True


@pytest.mark.parametrize(
    "begun",
    [b"", b"G", b"GET /health HTTP/1.1\r\nHost: x", b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\nGET"],
)
def test_requests_that_are_only_begun_are_closed(saved, begun):
    """Also the second one of a connection, and however often another byte comes."""
    with serving(serve_app(_scorer(saved)), Impatient) as client:
        with socket.create_connection((client.base_url.host, client.base_url.port)) as connection:
            connection.settimeout(10)
            connection.sendall(begun)
            if begun.endswith(b"GET"):
                assert connection.recv(10_000).startswith(b"HTTP/1.1 200")
            start = time.monotonic()
            with suppress(OSError):
                while time.monotonic() - start < 5:
                    connection.sendall(b"x")
                    time.sleep(0.1)
            assert time.monotonic() - start < 4 and is_closed(connection)
        assert client.get("/health").status_code == 200


@pytest.mark.parametrize(
    "begun",
    [
        b"GET /health HTTP/1.1\r\nHost: localhost\r\nX: ",
        b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\nGET /health HTTP/1.1\r\nX: ",
        b"POST /rank HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        b"Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\n0\r\nX: ",
    ],
)
def test_headers_without_end_are_refused(saved, begun):
    """Those of a second request and those behind a body as well: nobody fills the memory with them."""
    with serving(serve_app(_scorer(saved))) as client:
        with socket.create_connection((client.base_url.host, client.base_url.port)) as connection:
            connection.settimeout(10)
            connection.sendall(begun)
            with suppress(ConnectionError):
                for _ in range(1000):
                    connection.sendall(b"x" * 1000)
                    time.sleep(0.002)  # what is on its way counts as sent
                pytest.fail("a million bytes have been taken")
            assert is_closed(connection)
        assert client.get("/health").status_code == 200


def test_bodies_that_do_not_arrive_are_given_up(saved, monkeypatch):
    monkeypatch.setattr(requests.read_json, "__defaults__", (0.5,))
    with serving(serve_app(_scorer(saved))) as client:
        with socket.create_connection((client.base_url.host, client.base_url.port)) as connection:
            connection.settimeout(10)
            connection.sendall(
                b"POST /rank HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                b"Content-Length: 99\r\n\r\n{"
            )
            said = b""
            while piece := connection.recv(10_000):
                said += piece
        assert b" 408 " in said and b"did not arrive within 0.5 seconds" in said and b"close" in said


def test_many_open_connections_make_room_for_a_new_one(saved):
    with serving(serve_app(_scorer(saved)), Impatient) as client:
        slow = []
        for _ in range(120):
            slow.append(socket.create_connection((client.base_url.host, client.base_url.port)))
            slow[-1].sendall(b"POST /rank HTTP/1.1\r\n")
        with httpx.Client(base_url=client.base_url) as other:
            assert other.post("/rank", json={"items": as_items(X[:2])}).status_code == 200
        for connection in slow:
            connection.close()


def test_an_error_of_ours_is_answered_and_not_explained(saved):
    def fail(columns):
        raise RuntimeError("secret")

    with serving(serve_app(replace(_scorer(saved), score=fail))) as client:
        found = client.post("/rank", json={"items": as_items(X[:2])})
        assert found.status_code == 500 and found.json() == {"error": "internal error: RuntimeError"}
        assert httpx.get(client.base_url.join("/health")).status_code == 200  # the connection has been closed


def test_who_asks_before_sending_a_body_is_told_to_go_on(saved):
    body = json.dumps({"items": as_items(X[:2])}).encode()
    head = (
        "POST /rank HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        f"Expect: 100-continue\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    with serving(serve_app(_scorer(saved))) as client:
        with socket.create_connection((client.base_url.host, client.base_url.port)) as connection:
            connection.settimeout(10)
            connection.sendall(head.encode())
            assert connection.recv(10_000).startswith(b"HTTP/1.1 100 ")
            connection.sendall(body)
            assert connection.recv(10_000).startswith(b"HTTP/1.1 200 ")


def large_request(address, n_bytes, *, chunked=False, expect=False):
    """Status and body of a request that is sent whole before the answer is read, as `http.client` and proxies do."""
    connection = http.client.HTTPConnection(address, timeout=60)
    headers = {"Content-Type": "application/json"}
    headers |= {"Transfer-Encoding": "chunked"} if chunked else {"Content-Length": str(n_bytes)}
    headers |= {"Expect": "100-continue"} if expect else {}
    piece = b" " * (1 << 20)
    pieces = (piece for _ in range(n_bytes >> 20))
    try:
        connection.request("POST", "/rank", pieces, headers, encode_chunked=chunked)
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())
    finally:
        connection.close()


@pytest.mark.parametrize("chunked", [False, True])
@pytest.mark.parametrize("expect", [False, True])
def test_whoever_sends_too_much_is_told_so_and_not_cut_off(client, chunked, expect):
    address = f"{client.base_url.host}:{client.base_url.port}"
    for megabytes in (17, 40, 120):
        status, said = large_request(address, megabytes << 20, chunked=chunked, expect=expect)
        assert status == 413
        assert said == {"error": f"The request is larger than {16 << 20} bytes."}
    assert client.get("/health").status_code == 200


def test_curl_is_told_that_it_sends_too_much(client, tmp_path):
    curl = shutil.which("curl")
    if curl is None:
        pytest.skip("curl is not installed")
    body = tmp_path / "body"
    body.write_bytes(b" " * (40 << 20))
    for more in ([], ["-H", "Expect: 100-continue"], ["-H", "Expect:"], ["-H", "Transfer-Encoding: chunked"]):
        command = [curl, "-sS", "-w", "%{http_code}", "-o", tmp_path / "said", "--data-binary", f"@{body}"]
        command += ["-H", "Content-Type: application/json", *more, str(client.base_url.join("/rank"))]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        assert (done.returncode, done.stdout) == (0, "413"), (more, done.stderr)


def test_a_client_that_goes_on_sending_is_cut_off_in_time(saved):
    limits = type("Limits", (Connection,), {"within": 1.0})
    with serving(serve_app(_scorer(saved)), limits) as client:
        with socket.create_connection((client.base_url.host, client.base_url.port), timeout=60) as sock:
            sock.sendall(
                b"POST /rank HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
                b"Content-Length: 99999999999\r\n\r\n"
            )
            start = time.monotonic()
            with pytest.raises(OSError):
                while time.monotonic() < start + 30:
                    sock.sendall(b" " * 1000)
                    time.sleep(0.01)
            assert time.monotonic() - start < 20
