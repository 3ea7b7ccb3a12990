"""preflearn train without options: candidates of different kinds, and never a model clearly worse than a simple one."""

from __future__ import annotations

import json
import re
from math import nan

import numpy as np
import pytest

from demo_rows import shop
from preflearn import AutoRanker
from preflearn.auto import Entry, candidates, fitting, kernels, trees
from preflearn.auto.training.options import Learner, TrainingOptions
from preflearn.auto.training.ranking import RankingProblem
from preflearn.auto.training.train import Candidates, describe, train
from preflearn.cli.app import run
from preflearn.comparisons import encode_queries
from preflearn.inspection import feature_influence
from preflearn.io import RankingData, load_model, read_scores
from preflearn.metrics import concordance, concordance_scorer
from preflearn.metrics.by_query import predict_scores, wants_qid
from preflearn.metrics.single_columns import best_feature_scores


@pytest.fixture(autouse=True, scope="module")
def without_refitting():
    """Repeating the procedure for each fold takes six times as long: tests/test_automatic.py has it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fitting, "_REFITTED_CELLS", 0)
        yield


@pytest.fixture(scope="module")
def files(tmp_path_factory, without_refitting):
    """A table, and what training on it wrote and printed."""
    folder = tmp_path_factory.mktemp("auto")
    X, y, qid, names = shop(20)
    lines = [",".join(["target", "qid", *names])] + [
        ",".join(map(str, (t, q, *x))) for t, q, x in zip(y, qid, X)
    ]
    (folder / "shop.csv").write_text("\n".join(lines) + "\n")
    command = ["train", "shop.csv", "-o", "m.preflearn", "--report", "r.html"]
    place = [str(folder / one) if "." in one else one for one in command]
    assert run([*place, "--quiet"]) == 0
    return folder


def ask(capsys, *arguments):
    status = run([str(one) for one in arguments])
    captured = capsys.readouterr()
    assert status == 0, captured.err
    return captured.out


def test_the_model_is_an_automatic_ranker_and_predicts_with_queries(files, capsys):
    model = load_model(files / "m.preflearn")
    assert isinstance(model[-1], AutoRanker) and not hasattr(model[-1], "cv_predictions_")
    X, y, qid, _ = shop(20)
    expected = model.predict(X, qid=qid)
    ask(capsys, "predict", files / "m.preflearn", files / "shop.csv", "-o", files / "s.txt")
    np.testing.assert_allclose(read_scores(files / "s.txt"), expected, rtol=1e-12)
    found = json.loads(ask(capsys, "evaluate", files / "m.preflearn", files / "shop.csv", "--json"))
    value = next(one for one in found["metrics"] if one["metric"] == "concordance")["value"]
    assert value == pytest.approx(concordance(y, expected, qid))
    found = json.loads(
        ask(capsys, "compare", files / "shop.csv", files / "m.preflearn", files / "s.txt", "--json")
    )
    assert len(set(found["means"].values())) == 1


def test_the_page_shows_candidates_importances_and_what_to_do_next(files):
    text = (files / "r.html").read_text(encoding="utf-8")
    for part in ("What was tried", "against linear", "best single feature", "What the model was built on",
                 "share of the importance", "What to do next", "Influence of the features"):  # fmt: skip
        assert part in text
    assert "The choice of alpha" not in text and "Comparison with simple baselines" not in text


def test_the_rule_of_the_combination_is_said_with_its_figures(files):
    text = (files / "r.html").read_text(encoding="utf-8")
    rule = (
        r"unless the best of them is ahead by more than one standard error over the folds \(here by ([^)]*)\)"
    )
    note = re.search(rule, text)
    assert note is not None and re.fullmatch(r"[+-]\d\.\d{4}, standard error \d\.\d{4}", note[1])


def test_the_time_that_is_left_is_said_at_once(monkeypatch):
    monkeypatch.setattr(fitting, "_REFITTED_CELLS", 50_000)
    X, y, qid, names = shop(12)
    said: list[str] = []
    options = TrainingOptions(learner=Learner.auto)
    train(RankingProblem(RankingData(X, y, qid, names), options), tell=said.append, details=False)
    stage = "trying candidates of different kinds"
    assert re.fullmatch(rf"{stage}: linear, about \d+ s left", said[said.index(stage) + 1])
    assert any(f"{stage}: the same without each fold, about" in one for one in said)
    assert len([one for one in said if ": linear, about" in one]) == 1, "stages inside of others are not told"


def test_figures_are_those_of_the_library():
    X, y, qid, names = shop(20)
    options = TrainingOptions(learner=Learner.auto, seed=3)
    problem = RankingProblem(RankingData(X, y, qid, names), options)
    report = train(problem).report
    model = AutoRanker(random_state=3).fit(X, y, qid=qid)
    assert (
        report.estimate.value
        == pytest.approx(model.best_score_)
        == pytest.approx(report.leaderboard.model.score)
    )
    assert report.estimate.value == pytest.approx(concordance(y, model.cv_predictions_, qid))
    assert [row.name for row in report.leaderboard.rows[1:]] == [one.name for one in model.leaderboard_]
    np.testing.assert_allclose(report.importance.values, model.feature_importances_)
    assert report.estimate.interval[0] < report.estimate.value < report.estimate.interval[1]
    assert report.alpha_path is None and report.to_dict()["leaderboard"]["simplest"] == "linear"
    values = [row.value for row in report.baselines]
    assert values == sorted(values, reverse=True) and report.baselines[0].is_model


@pytest.mark.parametrize("seed", range(4))
def test_never_clearly_worse_than_a_simple_model(seed, monkeypatch):
    """Where one feature is all there is to know: what orders held-out rows clearly better and is simple is the model.

    The reported figure is that of choices by other folds, and may be lower than the one that the choice was made by.
    """
    offered, prefer = [], fitting._prefer_simple

    def look(trial, **options):
        own = trial.folds.of(trial.held_out)
        simple = [one for one in trial.attempts if one.candidate.is_simple]
        ahead = {one.candidate.name: trial.folds.of(one.member.unbiased) - own for one in simple}
        chosen = prefer(trial, **options)
        offered.append((ahead, chosen.name))
        return chosen

    monkeypatch.setattr(fitting, "_prefer_simple", look)
    rng = np.random.default_rng(seed)
    X, qid = rng.normal(size=(80, 6)), np.repeat(np.arange(10), 8)
    y = (np.exp(2 * X[:, 2]) > 1.0) + 0.8 * rng.normal(size=80)
    model = AutoRanker(random_state=seed).fit(X, y, qid=qid)
    for ahead, chosen in offered:
        better = {name for name, d in ahead.items() if d.mean() > d.std(ddof=1) / np.sqrt(d.size)}
        assert chosen in better if better else chosen not in ahead
    scores = {one.name: one.score for one in model.leaderboard_}
    single = best_feature_scores(X, y, encode_queries(model.cv_folds_, 80))
    by_fold = [concordance(y[own], single[own], qid[own]) for own in (model.cv_folds_ == k for k in range(5))]
    assert scores["best single feature"] == pytest.approx(np.mean(by_fold), abs=0.03)


def test_a_single_feature_is_the_model_where_it_orders_best():
    rng = np.random.default_rng(0)
    X, qid = rng.normal(size=(60, 3)), np.repeat(np.arange(6), 10)
    y = -np.exp(5 * X[:, 1])  # its order is all that matters, and no straight line has it
    model = AutoRanker(random_state=0, time_limit=1e-9).fit(X, y, qid=qid)
    left = [one.name for one in model.leaderboard_ if "time limit" in one.detail]
    assert "boosted trees" in left and model.leaderboard_.model.name == "linear"
    # With time for all, the feature itself is perfect.
    whole = AutoRanker(random_state=0).fit(X, y, qid=qid)
    assert whole.leaderboard_.model.name == "best single feature" and whole.best_score_ == 1.0
    np.testing.assert_array_equal(np.argsort(whole.predict(X, qid=qid)), np.argsort(-X[:, 1]))
    np.testing.assert_array_equal(whole.feature_importances_, [0.0, 1.0, 0.0])


def test_one_ranking_of_all_rows():
    X, y, _, names = shop(10)
    options = TrainingOptions(learner=Learner.auto)
    report = train(RankingProblem(RankingData(X, y, None, names), options)).report
    assert report.unit == "fold" and report.values.shape == (5,)
    low, high = report.estimate.interval
    assert low < report.estimate.value < high and not report.leaderboard.is_tested
    two = RankingProblem(RankingData(X, (y > 2).astype(float), None, names), options)
    report = train(two).report
    assert report.estimate.measure == "AUC" and report.roc is not None


@pytest.mark.parametrize("with_queries", [True, False])
def test_a_sample_of_many_rows(monkeypatch, with_queries):
    """What was not looked at has no held-out value, and the queries that are shown are those of the table."""
    monkeypatch.setattr(fitting, "_MOST_ROWS", 150)
    X, y, qid, names = shop(20)
    options = TrainingOptions(learner=Learner.auto, time_limit=1e-9)
    problem = RankingProblem(RankingData(X, y, qid if with_queries else None, names), options)
    report = train(problem).report
    assert any("rows" in note and "Learned from" in note for note in report.notes)
    assert np.isnan(report.values).any() and not np.isnan(report.values).all()
    assert report.labels.shape == report.values.shape == report.sizes.shape
    assert report.sizes.sum() == len(y) and 0.5 < report.estimate.value < 1
    if with_queries:
        values = report.values[~np.isnan(report.values)]
        assert report.estimate.value == pytest.approx(values.mean())
        assert report.sizes[np.flatnonzero(~np.isnan(report.values))].sum() <= 150


@pytest.mark.parametrize("with_queries", [True, False])
def test_members_that_were_extended_say_what_was_held_out(monkeypatch, with_queries):
    """One fold of the sample is held out from all members: nothing else may be claimed."""
    monkeypatch.setattr(fitting, "_MOST_ROWS", 300)
    monkeypatch.setattr(trees, "_STAGES", (5, 10))
    monkeypatch.setattr(candidates, "_RANDOM", 8)
    monkeypatch.setattr(kernels, "_ROUNDS", 1)
    X, y, qid, names = shop(40)
    problem = RankingProblem(
        RankingData(X, y, qid if with_queries else None, names), TrainingOptions(learner=Learner.auto)
    )
    search = Candidates(problem)
    model = search.fit(lambda stage: None)
    n_held = len(y) - model.n_training_rows_
    assert search.is_extended and 0 < n_held < 150
    report = describe(problem, search, model, [])
    n, what = (np.unique(qid[search.seen]).size, "queries") if with_queries else (n_held, "rows")
    part = f"A fifth of the sample's {what} ({n}) was held out"
    assert part in report.estimate.held_out and "without its fold" not in report.estimate.held_out
    assert "Every query" not in report.estimate.held_out
    assert report.leaderboard.note.startswith(part) and "same folds" not in report.leaderboard.note
    assert f"the same held-out {what}" in report.baselines_note


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"n_rows": 40}, "40 rows are too few"),
        ({"n_queries": 4}, "4 queries are too few"),
        ({"options": {"n_basis": 20}}, ""),
    ],
)
def test_one_learner_where_candidates_make_no_sense(change, says):
    X, y, qid, names = shop(20)
    rows = slice(change.get("n_rows"))
    if "n_queries" in change:
        rows = np.isin(qid, np.unique(qid)[: change["n_queries"]])
    options = TrainingOptions(learner=Learner.auto, **change.get("options", {}))
    found = train(RankingProblem(RankingData(X[rows], y[rows], qid[rows], names), options))
    learner = next(one for one in found.report.choices if one.name == "learner")
    assert learner.value == "RankRLS" and says in learner.why and found.report.leaderboard is None


def test_a_time_limit_without_candidates_is_refused(files, capsys):
    data = str(files / "shop.csv")
    for options in (["--kernel", "rbf"], ["--learner", "ranksvm"], ["--set", "alphas=1,2"]):
        assert run(["train", data, "-o", str(files / "x.preflearn"), "--set", "time_limit=5", *options]) == 2
        assert "--set time_limit is for the candidates" in capsys.readouterr().err
    assert run(["train", data, "-o", str(files / "x.preflearn"), "--set", "time_limit=-1"]) == 2
    assert "positive number of seconds" in capsys.readouterr().err


def test_a_time_limit_leaves_candidates_out_and_says_so(files, capsys):
    out = ask(capsys, "train", files / "shop.csv", "-o", files / "x.preflearn", "--set", "time_limit=0.001")
    assert "no time" in out and "Allow more time" in out and "What was tried" in out


def test_without_a_problem_of_rows_a_time_limit_is_refused():
    X, y, qid, names = shop(20)
    options = TrainingOptions(learner=Learner.auto, n_basis=5, time_limit=3.0)
    with pytest.raises(ValueError, match="time limit would be ignored"):
        RankingProblem(RankingData(X, y, qid, names), options)


def test_queries_reach_the_model_wherever_it_predicts():
    X, y, qid, _ = shop(20)
    model = AutoRanker(random_state=0, time_limit=1e-9).fit(X, y, qid=qid)
    assert wants_qid(model)
    scores = model.predict(X, qid=qid)
    np.testing.assert_array_equal(predict_scores(model, X, qid), scores)
    assert concordance_scorer(model, X, y, qid=qid) == concordance(y, scores, qid)
    found = feature_influence(model, X, y, qid=qid, n_repeats=2, features=[2, 0], random_state=0)
    assert found.concordance == pytest.approx(concordance(y, scores, qid)) and len(found.names) == 2
    assert found.names == ["x2", "x0"]
    some = feature_influence(model, X, y, qid=qid, n_repeats=1, features=[0], max_rows=60, random_state=0)
    assert 40 < some.n_rows <= 60  # whole queries
    with pytest.raises(ValueError, match="numbers of columns"):
        feature_influence(model, X, y, qid=qid, features=[99])


def test_one_query_to_order_is_left_to_one_learner():
    """Candidates cannot be told apart honestly there: no estimate of the best of them is reported."""
    rng = np.random.default_rng(0)
    X, qid = rng.normal(size=(120, 3)), np.repeat(np.arange(20), 6)
    y = np.where(qid == 3, rng.normal(size=120), 0.0)
    options = TrainingOptions(learner=Learner.auto)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fitting, "_REFITTED_CELLS", 50_000)
        found = train(RankingProblem(RankingData(X, y, qid, ["a", "b", "c"]), options))
    assert found.report.leaderboard is None
    assert any("too few rows can be compared" in one.why for one in found.report.choices)


def test_candidates_that_were_behind_did_not_want_for_time():
    from preflearn.report.contents import LeaderboardRow

    entries = [
        Entry("a", nan, 0.0, 0.0, f"left out: {why}")
        for why in ("time limit", "behind after the first rounds")
    ]
    assert [one.out_of_time for one in entries] == [True, False]
    rows = [
        LeaderboardRow("a", None, None, None, 0.0, 0.0, "", out_of_time=one.out_of_time) for one in entries
    ]
    assert [one.shown_score for one in rows] == ["no time", "behind"]
