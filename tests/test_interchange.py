"""Other programs' habits: TREC runs and judgements, tables for papers, pairs for trainers, group sizes, pipelines."""

from __future__ import annotations

import json

import numpy as np
import pytest
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler

from preflearn import RankRLS, RankSVM
from preflearn.datasets import load_demo
from preflearn.io import judge_run, load_model, read_qrels, read_run, save_model, write_qrels, write_run
from preflearn.metrics import ndcg
from preflearn.tables.models.files import RankingPipeline

X, y, qid, NAMES = load_demo()
FEW = np.isin(qid, np.unique(qid)[:8])
X, y, qid = X[FEW], y[FEW], qid[FEW]


# ---------------------------------------------------------------------------------------------------------------- TREC


def test_runs_and_judgements_round_trip(tmp_path):
    items = np.array([f"d{k}" for k in range(len(y))])
    scores = np.random.default_rng(0).normal(size=len(y))
    write_run(tmp_path / "run.trec", scores, qid, items, tag="my model")
    write_qrels(tmp_path / "qrels", y, qid, items)
    run, qrels = read_run(tmp_path / "run.trec"), read_qrels(tmp_path / "qrels")
    assert run.tag == "my_model" and qrels.grades.tolist() == y.tolist()
    assert dict(zip(run.items, run.scores)) == dict(zip(items, scores))
    judged = judge_run(run, qrels)
    assert judged.notes == []
    assert ndcg(judged.y, judged.scores, judged.qid, k=10) == pytest.approx(ndcg(y, scores, qid, k=10))
    ranks = [line.split()[3] for line in (tmp_path / "run.trec").read_text().splitlines()]
    assert ranks.count("1") == len(np.unique(qid))


def test_unjudged_and_missing_items_are_counted(tmp_path):
    (tmp_path / "run").write_text("1 Q0 a 1 9 x\n1 Q0 b 2 8 x\n2 Q0 a 1 1 x\n")
    (tmp_path / "qrels").write_text("1 0 a 1\n1 0 c 2\n3 0 a 1\n")
    judged = judge_run(read_run(tmp_path / "run"), read_qrels(tmp_path / "qrels"))
    assert judged.y.tolist() == [1, 0, 2] and judged.scores[2] < judged.scores[1]
    assert len(judged.notes) == 4


@pytest.mark.parametrize(
    ("text", "says"),
    [("1 Q0 a 1 9\n", "line 1: found 5 fields"), ("", "no rows"), ("1 Q0 a 1 much x\n", "not a finite number"),
     ("1 Q0 a 1 9 x\n1 Q0 a 2 8 x\n", "appears twice")],
)  # fmt: skip
def test_faults_of_runs(tmp_path, text, says):
    (tmp_path / "run").write_text(text)
    with pytest.raises(ValueError, match=says):
        read_run(tmp_path / "run")


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    from preflearn.cli.app import run

    folder = tmp_path_factory.mktemp("trec")
    lines = [",".join(["qid", "item", *NAMES, "target"])]
    lines += [",".join(map(str, [q, f"d{k}", *x, t])) for k, (q, x, t) in enumerate(zip(qid, X, y))]
    (folder / "data.csv").write_text("\n".join(lines) + "\n")
    for name, kernel in (("a", "linear"), ("b", "rbf")):
        command = [
            "train",
            str(folder / "data.csv"),
            "--kernel",
            kernel,
            "-o",
            str(folder / f"{name}.preflearn"),
            "-q",
        ]
        assert run(command) == 0
    return folder


def test_predict_writes_a_run_that_evaluate_reads(trained, call, tmp_path):
    status, out, err = call(
        "predict", trained / "a.preflearn", trained / "data.csv", "-o", tmp_path / "run.trec"
    )
    assert (status, err) == (0, "") and "Wrote a run" in out
    write_qrels(tmp_path / "qrels.txt", y, qid, [f"d{k}" for k in range(len(y))])
    names = np.array([" ".join(str(q).split()).replace(" ", "_") for q in qid])
    assert set(read_run(tmp_path / "run.trec").qid) == set(names)
    found = json.loads(
        call("evaluate", tmp_path / "run.trec", "--qrels", tmp_path / "qrels.txt", "--json")[1]
    )
    direct = json.loads(call("evaluate", trained / "a.preflearn", trained / "data.csv", "--json")[1])
    values = [{one["metric"]: one["value"] for one in each["metrics"]} for each in (found, direct)]
    assert values[0] == pytest.approx(values[1])
    assert call("predict", trained / "a.preflearn", trained / "data.csv", "-o", tmp_path / "run.trec")[0] == 0
    assert call("evaluate", tmp_path / "run.trec")[0] == 2


def test_compare_writes_tables_for_papers(trained, call, tmp_path):
    models = (trained / "a.preflearn", trained / "b.preflearn")
    assert call("compare", trained / "data.csv", *models, "-o", tmp_path / "t.tex")[0] == 0
    latex = (tmp_path / "t.tex").read_text()
    assert latex.count("\\begin{tabular}") == latex.count("\\end{tabular}") == 2 and "a.preflearn" in latex
    assert call("compare", trained / "data.csv", *models, "-o", tmp_path / "t.md")[0] == 0
    assert "| a.preflearn |" in (tmp_path / "t.md").read_text()
    status, _, err = call("compare", trained / "data.csv", *models, "-o", tmp_path / "t.doc")
    assert status == 2 and ".tex (LaTeX)" in err


# ------------------------------------------------------------------------------------------------------- scikit-learn


def test_a_loaded_pipeline_ranks(tmp_path):
    model = make_pipeline(StandardScaler(), RankRLS()).fit(X, y, rankrls__qid=qid)
    save_model(model, tmp_path / "m.preflearn")
    loaded = load_model(tmp_path / "m.preflearn")
    assert isinstance(loaded, Pipeline) and isinstance(loaded, RankingPipeline)
    assert (loaded.rank(X, qid=qid) == model[-1].rank(model[:-1].transform(X), qid=qid)).all()
    save_model(loaded, tmp_path / "again.preflearn")
    assert (load_model(tmp_path / "again.preflearn").rank(X) == loaded.rank(X)).all()


def test_group_sizes_are_recognised():
    sizes = np.unique(qid, return_counts=True)[1]
    with pytest.raises(ValueError, match=r"np.repeat\(np.arange\(len\(group\)\), group\)"):
        RankRLS().fit(X, y, qid=sizes)
    with pytest.raises(ValueError) as error:
        RankRLS().fit(X, y, qid=sizes[:-1])
    assert "np.repeat" not in str(error.value)


def test_equal_targets_are_warned_about_or_refused():
    with pytest.warns(UserWarning, match="All targets are equal"):
        RankRLS().fit(X, np.ones(len(y)), qid=qid)
    with pytest.raises(ValueError, match="no pair to learn from"):
        RankSVM().fit(X, np.ones(len(y)), qid=qid)


@pytest.mark.parametrize("value", [np.nan, "red"])
def test_missing_values_and_texts_point_to_what_takes_them(value):
    bad = X.astype(object)
    bad[3, 2] = value
    with pytest.raises(ValueError, match=r"AutoRanker accepts.*TableEncoder\(\), RankRLS\(\)"):
        RankRLS().fit(bad if isinstance(value, str) else bad.astype(float), y, qid=qid)


# ------------------------------------------------------------------------------------------------------------ answers


def ask_file(path):
    lines = [
        {"winner": "b", "loser": "a", "judge": "ann", "question": "1", "side": "left"},
        {"winner": "c", "loser": "a", "judge": "ann", "question": "2"},
        {"winner": "a", "loser": "c", "judge": "bob", "question": "3"},
        {"undo": "3", "judge": "bob"},
        {"skip": "4", "judge": "bob"},
        {"winner": "a", "loser": "b", "judge": "bob", "question": "5", "tie": True},
        {"winner": "c", "loser": "b", "judge": "bob", "question": "6"},
        {"winner": "d", "loser": "b", "judge": "bob", "question": "7"},
    ]
    path.write_text("".join(json.dumps(one) + "\n" for one in lines))
    return path


@pytest.fixture
def asked(tmp_path):
    items = tmp_path / "flats.csv"
    items.write_text("name,url,size,prompt,text\na,http://x/1,30,p,tiny\nb,http://x/2,50,p,good\nc,http://x/3,90,p,huge\n"
                     "d,http://x/4,70,p,large\n")  # fmt: skip
    return items, ask_file(tmp_path / "answers.jsonl")


def test_train_takes_what_ask_wrote(asked, call, tmp_path):
    items, answers = asked
    command = ("train", items, "--preferences", answers, "--features", "size", "-o", tmp_path / "m.preflearn")
    status, out, err = call(*command, "--json")
    assert (status, err) == (0, "")
    found = json.loads(out)
    assert found["counts"]["preferences"] == 4
    assert [note.split(": ")[1] for note in found["notes"][:3]] == [
        "1 tie was left out.", "1 undone answer was left out.", "1 skipped question was left out.",
    ]  # fmt: skip
    scores = load_model(tmp_path / "m.preflearn").predict({"size": [30.0, 90.0]})
    assert scores[1] > scores[0]
    assert call("evaluate", tmp_path / "m.preflearn", items, "--preferences", answers)[0] == 0


def test_answers_are_exported_for_trainers(asked, tmp_path):
    from preflearn.cli.preferences import export_preferences

    items, answers = asked
    assert export_preferences(items, answers, tmp_path / "dpo.jsonl").n == 4
    first = json.loads((tmp_path / "dpo.jsonl").read_text().splitlines()[0])
    assert first == {"prompt": "p", "chosen": "good", "rejected": "tiny", "judge": "ann"}
