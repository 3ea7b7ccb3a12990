"""Sets with a guarantee on the command line, in reports and over HTTP."""

from __future__ import annotations

import csv
import json

import numpy as np
import pytest

import oracles
from preflearn import RankRLS
from preflearn.auto.training.ranking import set_sizes
from preflearn.cli.app import run
from preflearn.comparisons import encode_queries
from preflearn.io import load_model, model_info, save_model
from preflearn.model_selection import ConformalRanker
from preflearn.model_selection.conformal import StoredSets


def draw(seed: int, n_queries: int):
    rng = np.random.default_rng(seed)
    qid = np.repeat(np.arange(n_queries), 8)
    X = rng.normal(size=(qid.shape[0], 3))
    return X, X @ [1.0, -0.8, 0.3] + rng.normal(size=qid.shape[0]), qid


def write(path, X, y, qid):
    with path.open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["query", "relevance", "a", "b", "c"])
        rows.writerows([q, label, *row] for q, label, row in zip(qid, y.tolist(), X.tolist(), strict=True))
    return path


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sets")
    data = write(folder / "train.csv", *draw(0, 40))
    model = folder / "model.preflearn"
    options = ["--learner", "rankrls", "--query", "query", "--target", "relevance", "-o", str(model)]
    assert run(["train", str(data), *options, "--report", str(folder / "report.html")]) == 0
    return folder, model


def test_train_says_how_many_items_to_show(trained, capsys):
    folder, model = trained
    page = (folder / "report.html").read_text()
    assert "How many items to show" in page
    assert "To have the best item among those shown for 9 of 10 new queries" in page
    stored = StoredSets.from_dict(model_info(model)["metadata"]["sets"])
    assert stored.needs.shape == (40,)
    options = ["--learner", "rankrls", "--query", "query", "--target", "relevance", "--force"]
    assert run(["train", str(folder / "train.csv"), *options, "-o", str(folder / "again.preflearn")]) == 0
    captured = capsys.readouterr()
    shown = " ".join((captured.out + captured.err).split())
    assert "To have the best item among those shown for 9 of 10 new queries, show" in shown


def test_predict_marks_the_rows_of_the_sets(trained, capsys):
    folder, model = trained
    X, y, qid = draw(1, 60)
    data = write(folder / "new.csv", X, y, qid)
    assert run(["predict", str(model), str(data), "--query", "query", "--set", "0.9", "--json", "-q"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    shown = np.array([row["in_set"] for row in rows])
    covered = [oracles.set_holds(y[qid == q], shown[qid == q], "best", 1) for q in np.unique(qid)]
    assert 0.75 < np.mean(covered) <= 1
    assert 0.1 < shown.mean() < 0.9
    scores = np.array([row["score"] for row in rows])
    for q in np.unique(qid):  # the top of every list
        inside = shown[qid == q]
        assert scores[qid == q][inside].min() > scores[qid == q][~inside].max(initial=-np.inf)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--set", "1.5"], "between 0 and 1"),
        (["--set", "0.99"], "at least 100 queries"),
        (["--set", "0.9", "-o", "scores.txt"], "has scores alone"),
    ],
)
def test_refusals_of_predict(trained, capsys, monkeypatch, options, said):
    folder, model = trained
    monkeypatch.chdir(folder)
    data = write(folder / "few.csv", *draw(1, 3))
    assert run(["predict", str(model), str(data), "--query", "query", *options]) != 0
    assert said in " ".join(capsys.readouterr().err.split())


def test_a_model_without_queries_knows_of_no_sets(tmp_path, capsys):
    data = write(tmp_path / "rows.csv", *draw(0, 10))
    model = tmp_path / "one.preflearn"
    options = [
        "--learner",
        "rankrls",
        "--no-query",
        "--target",
        "relevance",
        "--drop",
        "query",
        "-o",
        str(model),
    ]
    assert run(["train", str(data), *options, "-q"]) == 0
    assert run(["predict", str(model), str(data), "--set", "0.9"]) != 0
    assert "holds no sets" in " ".join(capsys.readouterr().err.split())


def test_too_few_queries_and_damaged_metadata():
    X, y, qid = draw(0, 40)
    scores = X[:, 0]
    sizes = set_sizes(scores, y, encode_queries(qid, len(y)), with_scale=True)
    assert sizes.coverage == 0.9
    few = qid < 6
    assert (
        set_sizes(scores[few], y[few], encode_queries(qid[few], few.sum()), with_scale=True).coverage == 0.8
    )
    one = qid < 1
    assert set_sizes(scores[one], y[one], encode_queries(qid[one], one.sum()), with_scale=True) is None
    good = sizes.stored
    again = StoredSets.from_dict(json.loads(json.dumps(good)))
    np.testing.assert_array_equal(again.needs, StoredSets.from_dict(good).needs)
    for damage in (
        {"distance": "far"},
        {"needs": [None]},
        {"needs": []},
        {"figures": [[1.0]]},
        {"needs": "many"},
    ):
        assert StoredSets.from_dict({**good, **damage}) is None
    assert StoredSets.from_dict(None) is None


def test_a_file_of_many_queries_keeps_cutoffs_that_are_high_enough():
    rng = np.random.default_rng(0)
    qid = np.repeat(np.arange(5000), 2)
    y, scores = np.tile([1.0, 0.0], 5000), rng.normal(size=10_000)
    sure = ConformalRanker(_AsGiven(), cv="prefit", distance="gap").fit(scores[:, None], y, qid=qid)
    stored = StoredSets.of(sure)
    assert stored.needs.shape == (2000,)
    inside = stored.shown(scores, qid, 0.9)
    assert not (sure.predict_set(scores[:, None], qid=qid) & ~inside).any()
    assert inside.mean() < sure.predict_set(scores[:, None], qid=qid).mean() + 0.01


class _AsGiven:
    is_fitted_ = True

    def fit(self, X, y):
        return self

    def predict(self, X):
        return X[:, 0]


def test_serve_returns_sets_and_warns_of_drift(trained, tmp_path):
    pytest.importorskip("starlette", reason="the extra 'web' is not installed")
    from tests.web_server import serving

    from preflearn.cli.serve import _scorer
    from preflearn.web.serving import serve_app

    X, y, qid = draw(0, 60)
    sure = ConformalRanker(RankRLS()).fit(X, y, qid=qid)
    path = tmp_path / "sure.preflearn"
    save_model(sure, path)
    assert load_model(path).threshold_ == sure.threshold_

    def items(rows):
        return [dict(zip(("x0", "x1", "x2"), row, strict=True)) for row in rows.tolist()]

    with serving(serve_app(_scorer(path))) as client:
        found = client.post("/rank", json={"items": items(X[:8]), "set": 0.9}).json()
        assert found["set"] == np.flatnonzero(sure.predict_set(X[:8])).tolist()
        assert "set" not in client.post("/rank", json={"items": items(X[:8])}).json()
        refused = client.post("/rank", json={"items": items(X[:8]), "set": 2})
        assert refused.status_code == 422
        assert "between 0 and 1" in refused.json()["error"]
        assert "preflearn_drift" not in client.get("/metrics").text
        for q in range(40):
            client.post("/rank", json={"items": items(X[qid == q])})
        assert "preflearn_drift 0" in client.get("/metrics").text
        for q in range(40):
            client.post("/rank", json={"items": items(5 * X[qid == q])})
        assert "preflearn_drift 1" in client.get("/metrics").text
    plain = tmp_path / "plain.preflearn"
    save_model(RankRLS().fit(X, y, qid=qid), plain)
    with serving(serve_app(_scorer(plain))) as client:
        refused = client.post("/rank", json={"items": items(X[:8]), "set": 0.9})
        assert "holds no sets" in refused.json()["error"]
    with serving(serve_app(_scorer(trained[1]))) as client:
        names = [dict(zip("abc", row, strict=True)) for row in X[:8].tolist()]
        assert client.post("/rank", json={"items": names, "set": 0.8}).json()["set"]
