"""Preferences between texts as files have them: empty and equal answers, prompts, candidates to rerank."""

from __future__ import annotations

import json

import numpy as np
import pytest

from preflearn import RankRLS
from preflearn.io import load_model, read_text_preferences

WORDS = "clear exact kind short vague wrong rude long plain odd".split()


def rows(n_prompts: int = 12, each: int = 3) -> list[dict[str, str]]:
    """Answers with more good words are chosen."""
    rng = np.random.default_rng(0)
    found = []
    for prompt in range(n_prompts):
        for _ in range(each):
            good, bad = rng.choice(WORDS[:4], 3), rng.choice(WORDS[4:8], 3)
            shared = " ".join(rng.choice(WORDS[8:], 2))
            texts = {"chosen": f"{' '.join(good)} {shared}", "rejected": f"{' '.join(bad)} {shared}"}
            found.append({"prompt": f"question {prompt}", **texts})
    return found


def write(path, records):
    path.write_text("".join(json.dumps(one) + "\n" for one in records))
    return path


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    records = rows()
    records.insert(3, {"prompt": "question 0", "chosen": "fine", "rejected": ""})
    records.insert(7, {"prompt": "question 1", "chosen": "same", "rejected": "same"})
    return write(tmp_path_factory.mktemp("texts") / "prefs.jsonl", records)


@pytest.fixture(scope="module")
def model(data):
    from preflearn.cli.app import run

    path = data.with_name("texts.preflearn")
    assert run(["train", str(data), "-o", str(path), "--quiet"]) == 0
    return path


def test_empty_and_equal_answers_are_counted_and_left_out(data):
    found = read_text_preferences(data, prompt="prompt")
    assert (len(found), found.n_empty, found.n_equal) == (36, 1, 1)
    assert found.prompt[[0, 3]].tolist() == ["question 0", "question 1"]
    assert "fine" not in found.texts.tolist() and "same" in found.texts.tolist()


def test_a_file_of_empty_answers_is_refused(tmp_path):
    path = write(tmp_path / "x.jsonl", [{"chosen": "a", "rejected": ""}])
    with pytest.raises(ValueError, match="empty in every row"):
        read_text_preferences(path)


def test_columns_are_recognised_and_prompts_held_out(data, call, tmp_path):
    status, out, err = call("train", data, "-o", tmp_path / "m.preflearn", "--json")
    assert (status, err) == (0, "")
    found = json.loads(out)
    assert any("1 row with an empty text was left out of 38" in note for note in found["notes"])
    assert any("1 row with the same text twice was left out" in note for note in found["notes"])
    assert "12 prompts" in found["estimate"]["held_out"]


def test_held_out_by_prompt_is_refitting_without_the_prompt(data):
    from preflearn.auto.training.preference import PreferenceProblem
    from preflearn.auto.training.preparation import TrainingOptions, prepare

    found = read_text_preferences(data, prompt="prompt")
    problem = PreferenceProblem(
        found.encode(), TrainingOptions(alphas=[1.0]), lengths=found.lengths, prompt=found.prompt
    )
    prepared = prepare(problem.X, problem.options, rows_leave=False, ready=problem.ready)
    held_out = problem.choose_alpha(prepared).held_out
    for prompt in ("question 0", "question 5"):
        out = found.prompt == prompt
        model = RankRLS(1.0, **prepared.kernel).fit_pairs(prepared.X, found.pairs[~out])
        scores = model.predict(prepared.X)
        expected = scores[found.pairs[out, 0]] - scores[found.pairs[out, 1]]
        assert held_out[out] == pytest.approx(expected, abs=1e-8)


def test_evaluate_knows_the_columns_of_the_training(model, data, call):
    status, out, err = call("evaluate", model, data)
    assert (status, err) == (0, "") and "36 preferences" in out


def test_predict_knows_the_columns_of_the_training_and_says_what_each_pair_answers(model, data, call):
    status, out, err = call("predict", model, data, "--json")
    assert (status, err) == (0, "")
    first = json.loads(out.splitlines()[0])
    known = json.loads(data.read_text().splitlines()[0])
    assert {name: first[name] for name in known} == known and list(first)[-2:] == ["score", "prefers"]
    assert call("predict", model, data, "--text", "chosen")[1].startswith("prompt,chosen,score,rank\n")


def test_candidates_are_reranked(model, call, tmp_path):
    path = tmp_path / "candidates.csv"
    path.write_text("prompt,answer\nq,wrong rude odd\nq,clear exact odd\nr,kind odd\nr,vague odd\n")
    status, out, err = call("predict", model, path)
    assert (status, err) == (0, "")
    lines = out.strip().split("\n")
    assert lines[0] == "prompt,answer,score,rank" and [line[-1] for line in lines[1:]] == ["2", "1", "1", "2"]
    texts = np.array(["wrong rude odd", "clear exact odd"], dtype=object)
    assert float(lines[1].split(",")[2]) == pytest.approx(load_model(model).predict(texts)[0])
    assert lines[1].startswith("q,wrong rude odd,")
    path.write_text("id,answer\n7,wrong rude odd\n9,clear exact odd\n")
    assert call("predict", model, path)[1].split("\n")[0] == "id,score,rank"
    assert call("predict", model, path, "-o", tmp_path / "s.trec", "-q")[0] == 0
    assert {line.split()[2] for line in (tmp_path / "s.trec").read_text().splitlines()} == {"7", "9"}
    path.write_text("a,b\nx y,z\n")
    status, _, err = call("predict", model, path)
    assert status == 2 and "--text COLUMN" in err
    assert call("predict", model, path, "--text", "a")[0] == 0


def test_texts_are_served(model):
    pytest.importorskip("starlette")
    from starlette.testclient import TestClient

    from preflearn.cli.serve import _scorer
    from preflearn.web.serving import serve_app

    client = TestClient(serve_app(_scorer(model), hosts=None))
    found = client.post(
        "/rank", json={"items": [{"text": "wrong rude"}, {"text": "clear exact kind"}]}
    ).json()
    assert found["order"] == [1, 0]
    assert client.get("/schema").json()["features"][0]["name"] == "text"
    assert client.post("/rank", json={"items": [{"text": 3}]}).status_code == 422
