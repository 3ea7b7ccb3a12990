"""What a fitted `AutoRanker` tells: presets, a leaderboard on new data, reasons as a frame, the report."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from preflearn import AutoRanker, progress
from preflearn.auto import fitting
from preflearn.comparisons import encode_queries
from preflearn.datasets import load_demo
from preflearn.inspection import explain
from preflearn.io import load_model, save_model
from preflearn.metrics import concordance

X, y, qid, NAMES = load_demo()
TRAIN = np.isin(qid, np.unique(qid)[:14])
NEW = np.isin(qid, np.unique(qid)[14:24])
DATA = (X[TRAIN], y[TRAIN])


@pytest.fixture(scope="module")
def fast() -> AutoRanker:
    return AutoRanker(preset="fast", random_state=0).fit(*DATA, qid=qid[TRAIN])


def test_fast_tries_little(fast):
    assert {one.name for one in fast.leaderboard_} == {"linear", "best single feature", "boosted trees"}
    with pytest.raises(ValueError, match="preset must be None, 'fast' or 'best': found 'slow'"):
        AutoRanker(preset="slow").fit(*DATA, qid=qid[TRAIN])


def test_best_averages_runs(monkeypatch):
    from preflearn.auto import candidates

    small = candidates.Preset(frozenset({"linear", "boosted trees"}), 0, 3)
    monkeypatch.setitem(candidates.PRESETS, "best", small)
    few = TRAIN & np.isin(qid, np.unique(qid)[:8])
    model = AutoRanker(preset="best", random_state=0).fit(X[few], y[few], qid=qid[few])
    assert model.feature_importances_.sum() == pytest.approx(1)
    assert len(model.members_) == len(model.member_names_) == len(model.weights_) >= 3
    views = model.features_.views(X[few], encode_queries(qid[few], few.sum()))
    parts = zip(model.members_, model.views_, model.weights_)
    assert model.predict(X[few], qid=qid[few]) == pytest.approx(
        sum(w * m.predict(views[v]) for m, v, w in parts)
    )


def test_small_tables_have_the_mean_of_three_runs_with_other_folds(monkeypatch):
    runs, choose = [], fitting.choose

    def remember(*arguments, **options):
        trial, features = choose(*arguments, **options)
        if len(trial.held_out) == 60:
            runs.append((trial, fitting.Combination.of(trial, features)))
        return trial, features

    monkeypatch.setattr(fitting, "choose", remember)
    random = np.random.default_rng(0)
    Z = random.normal(size=(60, 4))
    model = AutoRanker(random_state=0).fit(Z, np.sin(2 * Z[:, 0]) + 0.3 * random.normal(size=60))
    tests = [set(map(frozenset, trial.folds.tests)) for trial, _ in runs]
    assert len(runs) == 3 and tests[0] != tests[1] != tests[2] != tests[0]
    queries = encode_queries(None, 60)
    mean = np.mean([one.scores(Z, queries) for _, one in runs], axis=0)
    np.testing.assert_allclose(model.predict(Z), mean)


def test_a_simple_model_stays_simple(monkeypatch):
    """A linear ranker that is clearly better than the whole is not averaged with anything."""
    monkeypatch.setattr(fitting, "_simple_enough", lambda *_: 1)
    random = np.random.default_rng(0)
    Z = random.normal(size=(60, 4))
    model = AutoRanker(random_state=0).fit(Z, Z[:, 0] + random.normal(size=60))
    assert (model.member_names_, model.leaderboard_.model.name) == (["linear"], "linear")


def test_the_best_single_feature_is_named(fast):
    (one,) = [one for one in fast.leaderboard_ if one.name == "best single feature"]
    assert one.detail.split(",")[0] in {f"x{k}" for k in range(X.shape[1])}


def test_a_leaderboard_on_new_data(fast):
    board = fast.leaderboard(X[NEW], y[NEW], qid=qid[NEW])
    assert board.model.score == pytest.approx(
        concordance(y[NEW], fast.predict(X[NEW], qid=qid[NEW]), qid[NEW])
    )
    members = {one.name: one.score for one in board if one.score == one.score}
    assert members.keys() == {*fast.member_names_}
    assert "on new data" in str(board) and "has no part in the model" in str(board)


def test_a_leaderboard_on_new_data_tells_what_is_gained_over_the_simplest_member(fast, monkeypatch):
    simplest = fast.member_names_[0]
    monkeypatch.setattr(fast, "leaderboard_", replace(fast.leaderboard_, simplest=simplest))
    board = fast.leaderboard(X[NEW], y[NEW], qid=qid[NEW])
    (least,) = (one.score for one in board if one.name == simplest)
    assert board.model.difference == pytest.approx(board.model.score - least)
    assert all(
        one.name == simplest for one in board if one.score == one.score and one.difference != one.difference
    )
    assert board.model.weight == fast.leaderboard_.model.weight == 1.0


def test_reasons_are_a_frame(fast):
    found = fast.explain(X[NEW], [3, 5], qid=qid[NEW])
    one = explain(fast, X[NEW], qid=qid[NEW], row=5)
    assert found["row"].tolist() == [3, 5] and found["rank"].tolist()[1] == one.rank
    assert found.iloc[1][one.names].tolist() == pytest.approx(one.contributions.tolist())
    sums = found[one.names].sum(axis=1) - (found["score"] - found["query_mean"])
    assert np.abs(sums).max() < 1e-9
    assert len(fast.explain(X[:3], qid=qid[:3])) == 3


def test_reasons_are_a_frame_of_the_kind_of_the_input(fast):
    polars = pytest.importorskip("polars")
    table = polars.DataFrame(dict(zip(NAMES, X[TRAIN].T)))
    model = AutoRanker(preset="fast", random_state=0).fit(table, y[TRAIN], qid=qid[TRAIN])
    assert isinstance(model.explain(table, 0, qid=qid[TRAIN]), polars.DataFrame)


def test_the_report_of_a_table(tmp_path):
    pytest.importorskip("matplotlib")
    pandas = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    n = int(TRAIN.sum())
    table = pandas.DataFrame(dict(zip(NAMES, X[TRAIN].T)))
    table["brand"] = rng.choice(["Acme", "Bolt", None], n)
    table["day"] = pandas.date_range("2024-01-01", periods=n)
    model = AutoRanker(preset="fast", random_state=0).fit(table, y[TRAIN], qid=qid[TRAIN])
    report = model.report(tmp_path / "report.html", title="Shop")
    page = (tmp_path / "report.html").read_text()
    assert "<h1>Shop</h1>" in page and "What was tried" in page
    assert report.leaderboard.model.score == model.best_score_
    assert "brand" in report.importance.names and not any("=" in name for name in report.influence.names)
    save_model(model, tmp_path / "model.preflearn")
    loaded = load_model(tmp_path / "model.preflearn")
    with pytest.raises(ValueError, match=r"pass report\(path, X, y, qid=qid\)"):
        loaded.report()
    again = loaded.report(X=table, y=y[TRAIN], qid=qid[TRAIN])
    assert again.estimate == report.estimate
    with pytest.raises(ValueError, match="needs the data that the model was trained on"):
        loaded.report(X=table[:60], y=y[TRAIN][:60], qid=qid[TRAIN][:60])


def test_progress_is_lines_in_a_log_and_a_bar_at_a_terminal(capsys, monkeypatch):
    with progress.Stages("Learner")("work") as stage:
        stage.count(1, 3, "folds")
    assert capsys.readouterr().err.startswith("[Learner] work ... ")
    from rich.console import Console

    console = Console(force_terminal=True, width=60)
    monkeypatch.setattr(progress, "_console", lambda: console)
    with progress.Stages("Learner")("work") as stage:
        stage.count(1, 3, "folds")
        with progress.Stages("Inner")("part"):
            pass
    out = capsys.readouterr()
    assert "[Learner] work: 0.0" in out.out and "Inner" not in out.out + out.err


def test_the_folds_of_the_honest_figure_are_counted(monkeypatch):
    counted = []
    monkeypatch.setattr(
        progress.Stage, "count", lambda self, done, total, what: counted.append((done, total))
    )
    few = TRAIN & np.isin(qid, np.unique(qid)[:6])
    AutoRanker(random_state=0, time_limit=60).fit(X[few][:, :3], y[few], qid=qid[few])
    assert counted == [(k, 5) for k in range(5)]
