"""preflearn train, predict, evaluate, compare: figures equal those of the library, bad input is one line."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import sklearn
from sklearn.model_selection import KFold
from sklearn.preprocessing import StandardScaler

from demo_rows import shop
from preflearn import RankRLS, RankRLSCV
from preflearn.auto.training import preparation
from preflearn.cli.app import run
from preflearn.datasets import load_demo
from preflearn.io import (
    load_model,
    model_info,
    read_ranking,
    read_scores,
    read_table,
    write_ranking,
    write_scores,
)
from preflearn.kernels import NystromMap
from preflearn.metrics import average_precision, concordance, kendall_tau, ndcg
from preflearn.model_selection import (
    compare_several_rankers,
    cross_val_predict,
    estimate_concordance,
    leave_preference_out,
)


def write_csv(path: Path, columns: dict) -> Path:
    lines = [",".join(columns), *(",".join(map(str, row)) for row in zip(*columns.values()))]
    path.write_text("\n".join(lines) + "\n")
    return path


def shop_columns(n_queries: int = 15) -> dict:
    X, y, qid, names = shop(n_queries)
    return {"grade": y, "session": qid, **dict(zip(names, X.T))}


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("shop")
    write_csv(folder / "shop.csv", shop_columns())
    X, y, qid, names = load_demo()
    rows = np.isin(qid, np.unique(qid)[15:25])
    new = {"grade": y[rows], "session": qid[rows], **dict(zip(names, X[rows].round(4).T))}
    write_csv(folder / "new.csv", new)
    return folder


@pytest.fixture
def ask(call):
    """Run a command that must succeed and print JSON."""

    def ask(*arguments) -> dict:
        status, out, err = call(*arguments, "--json")
        assert (status, err) == (0, ""), err
        return json.loads(out)

    return ask


ROLES = ("--target", "grade", "--query", "session")
# tests/test_training_automatic.py has the default, candidates of different kinds, which takes longer.
RANKRLS = ("--learner", "rankrls")


@pytest.fixture(scope="module")
def trained(folder) -> Path:
    path = folder / "trained.preflearn"
    assert run(["train", str(folder / "shop.csv"), *ROLES, *RANKRLS, "-o", str(path), "--quiet"]) == 0
    return path


# ----------------------------------------------------------------------------------------------- what is learned


def test_the_model_is_named_after_the_data(folder, call, ask, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    command = ("train", folder / "shop.csv", *ROLES, *RANKRLS, "--kernel", "linear")
    assert ask(*command)["model"] == "shop.preflearn"
    assert call(*command, "-q") == (0, "", "")  # the same command replaces what it wrote
    (tmp_path / "other").mkdir()
    write_csv(tmp_path / "other" / "else.csv", shop_columns())
    assert call("train", tmp_path / "other" / "else.csv", *command[2:], "-o", "shop.preflearn", "-q")[0] == 0
    before = (tmp_path / "shop.preflearn").read_bytes()
    status, _, err = call(*command, "-q")
    assert status == 2 and "shop.preflearn already exists" in err and "-o" in err
    assert (tmp_path / "shop.preflearn").read_bytes() == before
    assert call(*command, "--force", "-q")[0] == 0
    assert len(load_model(tmp_path / "shop.preflearn").predict(shop()[0])) == len(shop()[1])


def test_figures_of_rankrls_equal_the_library(folder, ask, tmp_path):
    found = ask("train", folder / "shop.csv", *ROLES, *RANKRLS, "-o", tmp_path / "m.preflearn")
    X, y, qid, _ = shop()
    scaled = StandardScaler().fit_transform(X)
    squared = ((scaled[:, None] - scaled[None]) ** 2).sum(axis=2)[np.triu_indices(len(y), 1)]
    gamma = 1 / np.median(squared[squared > 1e-12])
    search = RankRLSCV(kernel="rbf", gamma=gamma).fit(scaled, y, qid=qid)
    assert found["alpha_path"]["chosen"] == search.alpha_
    np.testing.assert_allclose(found["alpha_path"]["scores"], search.cv_scores_, atol=1e-9)
    estimate = estimate_concordance(RankRLS(search.alpha_, kernel="rbf", gamma=gamma), scaled, y, qid=qid)
    assert found["estimate"]["value"] == pytest.approx(estimate.value)
    assert found["estimate"]["interval"] == pytest.approx(estimate.interval)
    model = load_model(tmp_path / "m.preflearn")
    np.testing.assert_allclose(model.predict(X), search.predict(scaled), atol=1e-8)
    choices = {one["name"]: one for one in found["choices"]}
    assert list(choices) == ["learner", "features", "kernel", "reduced set", "alpha"]
    assert f"{gamma:.4g}" in choices["kernel"]["value"] and choices["reduced set"]["value"].startswith("none")


def test_a_reduced_set_is_the_kernel_model_on_its_basis(folder, ask, tmp_path):
    found = ask(
        "train", folder / "shop.csv", *ROLES, "-o", tmp_path / "m.preflearn", "--set", "n_basis=30",
        "--set", "gamma=0.05", "--set", "alphas=0.1,1,10", "--set", "seed=3",
    )  # fmt: skip
    X, y, qid, _ = shop()
    scaled = StandardScaler().fit_transform(X)
    basis = NystromMap(gamma=0.05, n_basis=30, random_state=3).fit(scaled)
    same = RankRLS(found["alpha_path"]["chosen"], kernel="rbf", gamma=0.05, basis=basis.basis_indices_)
    same.fit(scaled, y, qid=qid)
    np.testing.assert_allclose(
        load_model(tmp_path / "m.preflearn").predict(X), same.predict(scaled), atol=1e-6
    )
    # Held-out basis vectors left the model too.
    held_out = concordance(y, cross_val_predict(same, scaled, y, qid=qid), qid)
    left_in = concordance(y, cross_val_predict(RankRLS(same.alpha), basis.transform(scaled), y, qid=qid), qid)
    assert found["estimate"]["value"] == pytest.approx(held_out) != pytest.approx(left_in)


def test_large_data_get_a_reduced_set_and_the_reason(monkeypatch, folder, ask, tmp_path):
    monkeypatch.setattr(preparation, "FULL_KERNEL_ROWS", 100)
    monkeypatch.setattr(preparation, "BASIS_SIZE", 40)
    found = ask("train", folder / "shop.csv", *ROLES, *RANKRLS, "-o", tmp_path / "m.preflearn")
    choice = next(one for one in found["choices"] if one["name"] == "reduced set")
    assert choice["value"].startswith("40 of") and "cube" in choice["why"]


@pytest.mark.parametrize(("learner", "kind"), [("rls", "RLSCV"), ("ranksvm", "RankSVMCV")])
def test_other_learners(folder, ask, tmp_path, learner, kind):
    path = tmp_path / "m.preflearn"
    found = ask("train", folder / "shop.csv", *ROLES, "-o", path, "--learner", learner, "--kernel", "linear")
    model = load_model(path)
    assert type(model[-1]).__name__ == kind and model[-1].alpha_ == found["alpha_path"]["chosen"]
    assert 0.6 < found["estimate"]["value"] < 0.95
    assert found["influence"]["values"] == pytest.approx(model[-1].coef_.tolist())
    assert any(one["name"].startswith("RankRLS" if learner == "rls" else "RLS") for one in found["baselines"])


def test_a_global_ranking_says_its_folds(folder, ask, tmp_path):
    found = ask(
        "train", folder / "shop.csv", "--target", "grade", "--drop", "session", "-o", tmp_path / "m.preflearn",
        "--kernel", "linear", "--set", "seed=5",
    )  # fmt: skip
    alpha = next(one for one in found["choices"] if one["name"] == "alpha")
    assert "10 random folds of rows" in alpha["why"] and "seed 5" in alpha["why"]
    X, y, _, _ = shop()
    cv = KFold(10, shuffle=True, random_state=5)
    search = RankRLSCV(cv=cv).fit(StandardScaler().fit_transform(X), y)
    np.testing.assert_allclose(found["alpha_path"]["scores"], search.cv_scores_, atol=1e-9)
    assert found["unit"] == "fold" and len(found["values"]) == 10
    assert "leave-pair-out" in found["estimate"]["held_out"]
    assert all(one["pvalue"] is None for one in found["baselines"])


def test_two_classes_get_a_roc_curve(ask, tmp_path):
    columns = shop_columns(8)
    columns["grade"] = (columns["grade"] > 1).astype(int)
    path = write_csv(tmp_path / "two.csv", columns)
    found = ask("train", path, *ROLES, "-o", tmp_path / "m.preflearn", "--kernel", "linear")
    assert found["roc"]["auc"] == pytest.approx(found["estimate"]["value"])
    one = ask(
        "train",
        path,
        "--target",
        "grade",
        "--drop",
        "session",
        "-o",
        tmp_path / "n.preflearn",
        "--kernel",
        "linear",
    )
    assert one["estimate"]["measure"] == "AUC" and one["roc"]["auc"] == pytest.approx(
        one["estimate"]["value"]
    )


def test_sparse_text_gets_a_linear_kernel_without_centring(ask, tmp_path):
    _, y, qid, _ = shop(8)
    words = [f"{'good fine' if grade > 2 else 'bad poor'} thing {k % 5}" for k, grade in enumerate(y)]
    path = write_csv(tmp_path / "text.csv", {"target": y, "qid": qid, "title": words})
    found = ask("train", path, "--encode", "title=words:64", "-o", tmp_path / "m.preflearn")
    choices = {one["name"]: one["value"] for one in found["choices"]}
    assert choices["kernel"] == "linear" and choices["features"] == "scaled, not centred"
    status = run(["predict", str(tmp_path / "m.preflearn"), str(path), "-o", str(tmp_path / "s.txt"), "-q"])
    table = read_table(path)
    data = table.encode({"title": "words:64"})
    assert status == 0 and data.X.shape[1] == 64
    search = RankRLSCV().fit(StandardScaler(with_mean=False).fit_transform(data.X), y, qid=qid)
    assert found["estimate"]["value"] == pytest.approx(search.best_score_)
    np.testing.assert_allclose(
        read_scores(tmp_path / "s.txt"), load_model(tmp_path / "m.preflearn").predict(table.columns)
    )


def test_preferences(ask, call, tmp_path):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(30, 3)).round(3)
    value = X @ [2.0, -1.0, 0.0]
    pairs = rng.integers(0, 30, size=(80, 2))
    pairs = pairs[pairs[:, 0] != pairs[:, 1]]
    swap = value[pairs[:, 0]] < value[pairs[:, 1]]
    pairs[swap] = pairs[swap][:, ::-1]
    names = np.array([f"item{k}" for k in range(30)])
    items = write_csv(tmp_path / "items.csv", {"item": names, "a": X[:, 0], "b": X[:, 1], "c": X[:, 2]})
    table = write_csv(tmp_path / "pairs.csv", {"better": names[pairs[:, 0]], "worse": names[pairs[:, 1]]})
    page = tmp_path / "r.html"
    found = ask(
        "train",
        items,
        "--preferences",
        table,
        "-o",
        tmp_path / "m.preflearn",
        "--kernel",
        "linear",
        "--report",
        page,
    )
    scaled = StandardScaler().fit_transform(X)
    best = leave_preference_out(RankRLS(found["alpha_path"]["chosen"]), scaled, pairs)
    assert found["estimate"]["value"] == pytest.approx(np.mean(best > 0) + 0.5 * np.mean(best == 0))
    assert found["estimate"]["value"] > 0.9 and "preference" in page.read_text()
    status, out, _ = call("predict", tmp_path / "m.preflearn", items)
    assert status == 0 and out.splitlines()[0] == "item,score,rank"
    assert call("train", items, "--preferences", table, "-o", tmp_path / "x", "--target", "a")[0] == 2
    assert call("train", items, "--preferences", table, "-o", tmp_path / "x", "--learner", "rls")[0] == 2


def test_features_standardised_within_queries(folder, ask, tmp_path):
    path = tmp_path / "m.preflearn"
    found = ask(
        "train", folder / "shop.csv", *ROLES, "-o", path, "--kernel", "linear", "--set", "within_queries=yes"
    )
    X, y, qid, _ = shop()
    scaled = np.concatenate([StandardScaler().fit_transform(X[qid == q]) for q in dict.fromkeys(qid)])
    held_out = cross_val_predict(RankRLS(found["alpha_path"]["chosen"]), scaled, y, qid=qid)
    assert found["estimate"]["value"] == pytest.approx(concordance(y, held_out, qid))
    assert run(["predict", str(path), str(folder / "shop.csv"), "-o", str(tmp_path / "s.txt"), "-q"]) == 0
    model = load_model(path)
    np.testing.assert_allclose(read_scores(tmp_path / "s.txt"), model[-1].predict(scaled), atol=1e-9)
    with sklearn.config_context(enable_metadata_routing=True):
        np.testing.assert_allclose(model.predict(X, qid=qid), model[-1].predict(scaled), atol=1e-9)


def test_letor_in_several_files(ask, call, tmp_path):
    X, y, qid, _ = shop(10)
    codes = np.unique(qid, return_inverse=True)[1]
    first = codes < 5
    write_ranking(tmp_path / "a.txt", X[first], y[first], qid=codes[first])
    write_ranking(tmp_path / "b.txt", X[~first], y[~first], qid=codes[~first])
    path = tmp_path / "m.preflearn"
    found = ask("train", tmp_path / "a.txt", tmp_path / "b.txt", "-o", path, "--kernel", "linear")
    assert [one["name"] for one in found["files"]] == ["a.txt", "b.txt"] and len(found["values"]) == 10
    (tmp_path / "wide.txt").write_text("1 qid:1 1:2 9:1\n0 qid:1 1:1\n")
    status, out, err = call("predict", path, tmp_path / "wide.txt")
    assert status == 2 and "feature 9" in err and "expected none above 8" in err
    (tmp_path / "short.txt").write_text("0 qid:1 1:2 2:1\n0 qid:1 1:1\n")
    status, out, _ = call("predict", path, tmp_path / "short.txt", "--json")
    wide = np.zeros((2, 8))
    wide[:, :2] = [[2, 1], [1, 0]]
    scores = [json.loads(line)["score"] for line in out.splitlines()]
    np.testing.assert_allclose(scores, load_model(path).predict(wide))
    table = write_csv(tmp_path / "t.csv", {"a": [1.0], "b": [2.0]})
    assert "other kind" in call("predict", path, table)[2]


# -------------------------------------------------------------------------------------- what is said about it


def test_the_baselines_are_held_out_as_well(folder, ask, tmp_path):
    found = ask("train", folder / "shop.csv", *ROLES, *RANKRLS, "-o", tmp_path / "m.preflearn")
    X, y, qid, _ = shop()
    rows = {one["name"]: one for one in found["baselines"]}
    scores = np.empty(len(y))
    for query in np.unique(qid):
        others, rest = qid != query, qid == query
        candidates = [(k, sign) for k in range(X.shape[1]) for sign in (1, -1)]
        k, sign = max(candidates, key=lambda c: concordance(y[others], c[1] * X[others, c[0]], qid[others]))
        scores[rest] = sign * X[rest, k]
    assert rows["best single feature"]["value"] == pytest.approx(concordance(y, scores, qid))
    linear = RankRLSCV().fit(StandardScaler().fit_transform(X), y, qid=qid)
    assert rows["RankRLS, linear kernel"]["value"] == pytest.approx(linear.best_score_)
    single = rows["best single feature"]
    assert single["wins"] + single["losses"] + single["ties"] == 15 and 0 <= single["pvalue"] <= 1
    values = [one["value"] for one in found["baselines"]]
    assert values == sorted(values, reverse=True) and rows["random order"]["value"] == 0.5


def test_the_command_in_the_report_gives_the_same_figures(folder, ask, tmp_path):
    options = ("--kernel", "linear", "--set", "alphas=1,10", "--drop", "price_ratio", "--set", "seed=2")
    first = ask("train", folder / "shop.csv", *ROLES, *options, "-o", tmp_path / "m.preflearn")
    words = shlex.split(first["command"])
    assert words[:2] == ["preflearn", "train"]
    again = ask(*[word for word in words[1:] if word != "--json"])
    for name in ("seconds", "command"):
        first.pop(name), again.pop(name)
    assert first == again


def test_the_model_remembers_where_it_came_from(trained):
    metadata = model_info(trained)["metadata"]
    assert metadata["reading"]["query"] == "session" and metadata["reading"]["target"] == "grade"
    assert len(metadata["files"][0]["sha256"]) == 64 and metadata["seed"] == 0


def test_tables_at_the_terminal(folder, call, tmp_path):
    status, out, err = call(
        "train", folder / "shop.csv", *ROLES, "-o", tmp_path / "m.preflearn", "--kernel", "linear"
    )
    assert (status, err) == (0, "")
    for text in ("What was chosen, and why", "best of 31 by exact leave-query-out", "Held-out concordance", "95 %",
                 "best single feature", "Wrote"):  # fmt: skip
        assert text in out
    status, out, err = call(
        "train", folder / "shop.csv", *ROLES, "-o", tmp_path / "m.preflearn", "--kernel", "linear", "-v"
    )
    assert "choosing alpha by exact leave-query-out" in err


def test_quiet_in_pipes(folder, tmp_path):
    command = [
        "train",
        folder / "shop.csv",
        *ROLES,
        "-o",
        tmp_path / "m.preflearn",
        "-q",
        "--kernel",
        "linear",
    ]
    done = subprocess.run(
        [sys.executable, "-m", "preflearn", *map(str, command)], capture_output=True, text=True, timeout=300
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


# ----------------------------------------------------------------------------- predict, evaluate, compare


@pytest.mark.parametrize("name", ["s.csv", "s.jsonl", "s.txt", "s.tsv.gz"])
def test_predictions_are_those_of_the_model(folder, trained, call, tmp_path, name):
    status, out, err = call("predict", trained, folder / "new.csv", "-o", tmp_path / name)
    assert (status, err) == (0, "") and name in out
    data = read_ranking(folder / "new.csv", target="grade", query="session")
    np.testing.assert_array_equal(read_scores(tmp_path / name), load_model(trained).predict(data.X))


def test_predict_needs_no_target_and_no_order_of_columns(folder, trained, call, tmp_path):
    data = read_ranking(folder / "new.csv", target="grade", query="session")
    columns = dict(zip(data.feature_names[::-1], data.X.T[::-1]))
    write_csv(tmp_path / "new.csv", columns)
    status, out, err = call("predict", trained, tmp_path / "new.csv", "-o", tmp_path / "s.txt")
    assert (status, err) == (0, "")
    np.testing.assert_array_equal(read_scores(tmp_path / "s.txt"), load_model(trained).predict(data.X))


def test_columns_of_new_data_are_checked(folder, trained, call, tmp_path):
    data = read_ranking(folder / "new.csv", target="grade", query="session")
    columns = dict(zip(data.feature_names, data.X.T))
    less = write_csv(
        tmp_path / "less.csv", {name: value for name, value in columns.items() if name != "rating"}
    )
    status, out, err = call("predict", trained, less)
    assert status == 2 and out == "" and "'rating' is missing" in err and err.count("\n") == 1
    other = write_csv(tmp_path / "other.csv", {f"{name}s": value for name, value in columns.items()})
    err = call("predict", trained, other)[2]
    assert "not the features of trained.preflearn" in err and "Found instead: 'title_matchs'" in err
    more = write_csv(tmp_path / "more.csv", {**columns, "colour": ["red"] * len(data)})
    status, out, err = call("predict", trained, more)
    assert status == 0 and err.startswith("note: ") and "ignored: 'colour'" in err
    assert call("predict", trained, more, "--drop", "colour")[::2] == (0, "")
    assert "--drop" in call("predict", trained, more, "--drop", "rating")[2]
    assert "--drop" in call("predict", trained, more, "--drop", "colour", "--drop", "size")[2]


def test_evaluate_gives_the_metrics(folder, trained, ask, call):
    found = ask("evaluate", trained, folder / "new.csv")
    data = read_ranking(folder / "new.csv", target="grade", query="session")
    scores = load_model(trained).predict(data.X)
    values = {one["metric"]: one["value"] for one in found["metrics"]}
    arguments = (data.y, scores, data.qid)
    assert values["concordance"] == pytest.approx(concordance(*arguments))
    assert values["kendall_tau"] == pytest.approx(kendall_tau(*arguments))
    assert values["ndcg@10"] == pytest.approx(ndcg(*arguments, k=10))
    assert values["average_precision"] == pytest.approx(average_precision(*arguments))
    per_query = kendall_tau(*arguments, per_query=True).values
    tau = next(one for one in found["metrics"] if one["metric"] == "kendall_tau")
    half = 2.2621571628 * per_query.std(ddof=1) / np.sqrt(10)
    assert tau["interval"] == pytest.approx([per_query.mean() - half, min(1, per_query.mean() + half)])
    assert found["notes"] == [] and found["queries"] == 10
    status, out, _ = call(
        "evaluate", trained, folder / "new.csv", "--metric", "precision@3", "--metric", "err"
    )
    assert status == 0 and "precision@3" in out
    short = ask("evaluate", trained, folder / "new.csv", "--metric", "map,MRR", "--metric", "ndcg@10")
    assert [one["metric"] for one in short["metrics"]] == ["average_precision", "reciprocal_rank", "ndcg@10"]
    assert call("evaluate", trained, folder / "new.csv", "--metric", "beauty")[0] == 2


def test_evaluate_warns_of_training_data(folder, trained, ask):
    (note,) = ask("evaluate", trained, folder / "shop.csv")["notes"]
    assert "too optimistic" in note


def test_evaluate_needs_the_queries_of_the_training(folder, trained, call, tmp_path):
    columns = {name: value for name, value in shop_columns(5).items() if name != "session"}
    path = write_csv(tmp_path / "none.csv", columns)
    status, _, err = call("evaluate", trained, path)
    assert status == 2 and "'session'" in err and "--no-query" in err
    assert call("evaluate", trained, path, "--no-query")[0] == 0


def test_metrics_that_do_not_apply_are_named(ask, tmp_path):
    path = write_csv(tmp_path / "d.csv", {"target": [-1.5, 2, 0.5, 3], "x": [1, 2, 3, 4]})
    write_scores(tmp_path / "s.txt", [1.0, 2, 3, 4])
    found = ask("evaluate", tmp_path / "s.txt", path)
    assert [one["metric"] for one in found["metrics"]][:2] == ["concordance", "kendall_tau"]
    assert any("NDCG@10" in note for note in found["notes"])
    low, high = found["metrics"][0]["interval"]
    assert low < found["metrics"][0]["value"] < high and found["metrics"][1]["interval"] is None


def test_compare_models_and_score_files(folder, trained, ask, call, tmp_path):
    data = read_ranking(folder / "new.csv", target="grade", query="session")
    noise = np.random.default_rng(0).normal(size=len(data))
    write_scores(tmp_path / "noise.csv", noise, qid=data.qid)
    write_scores(tmp_path / "truth.txt", data.y)
    rankers = [trained, tmp_path / "noise.csv", tmp_path / "truth.txt"]
    found = ask("compare", folder / "new.csv", *rankers, *ROLES)
    scores = {
        "trained.preflearn": load_model(trained).predict(data.X),
        "noise.csv": noise,
        "truth.txt": data.y,
    }
    table = compare_several_rankers(data.y, scores, data.qid)
    assert found["means"] == pytest.approx(table.means) and found["corrected"] == pytest.approx(
        table.corrected.tolist()
    )
    status, out, _ = call(
        "compare", folder / "new.csv", *rankers, "--baseline", trained, "--metric", "ndcg@10"
    )
    assert status == 0 and "p (Holm)" in out and "truth.txt - trained.preflearn" in out


def test_compare_refuses(folder, trained, call, tmp_path):
    write_scores(tmp_path / "s.txt", [1.0, 2.0])
    for arguments, says in [
        ((trained,), "two rankers"),
        ((trained, trained), "twice"),
        ((trained, tmp_path / "s.txt"), "2 scores for"),
        ((trained, tmp_path / "none.txt"), "no file"),
        ((trained, tmp_path / "s.txt", "--baseline", "x"), "--baseline"),
    ]:
        status, out, err = call("compare", folder / "new.csv", *arguments)
        assert (status, out, err.count("\n")) == (2, "", 1) and says in err


# --------------------------------------------------------------------------------------------- bad input


def bad_tables() -> dict:
    X, y, qid, _ = shop(4)
    n = len(y)
    x = X[:, 0]
    fine = {"target": y, "qid": qid, "x": x}
    return {
        "tied": ({"target": [1] * n, "qid": qid, "x": x}, [], "all targets are 1"),
        "tied in queries": (
            {"target": np.unique(qid, return_inverse=True)[1], "qid": qid, "x": x}, [], "every query are tied",
        ),
        "one query": ({"target": y, "qid": ["a"] * n, "x": x}, [], "--no-query"),
        "one row a query": (
            {"target": y, "qid": range(n), "x": x}, [], "every query has one row: there is no pair to learn from",
        ),
        "constant": ({"target": y, "qid": qid, "x": [3] * n}, [], "No column"),
        "constant in queries": (
            {"target": y, "qid": qid, "x": np.unique(qid, return_inverse=True)[1]}, [], "constant within the queries",
        ),
        "text": ({"target": y, "qid": qid, "colour": ["red"] * n}, [], "'colour' has one value. Add a column"),
        "no target": ({"grade": y, "qid": qid, "x": x}, [], "--target"),
        "no feature": ({"target": y, "qid": qid}, [], "no column is left"),
        "missing target": ({"target": ["", *y[1:]], "qid": qid, "x": x}, [], "1 missing target (line 2)"),
        "missing query": ({"target": y, "qid": ["", *qid[1:]], "x": x}, [], "1 missing query (line 2)"),
        "missing option": (fine, ["--read", "missing=0"], "LETOR"),
        "words as targets": ({"target": ["high", *y[1:]], "qid": qid, "x": x}, [], "(line 2 ('high'))"),
        "three problems": (
            {"grade": y, "qid": qid, "x": x}, ["--query", "a", "--drop", "b"], "3 problems. (1) ",
        ),
        "few": ({"target": [1, 0], "qid": [1, 1], "x": [1, 2]}, [], "too few"),
        "column": (fine, ["--query", "nothing"], "'nothing'"),
        "twice": (fine, ["--query", "qid", "--no-query"], "--no-query"),
        "alphas": (fine, ["--set", "alphas=1,-2"], "--set alphas must be auto or positive"),
        "gamma": (fine, ["--set", "gamma=-1"], "--set gamma must be a positive number"),
        "ignored": (fine, ["--kernel", "linear", "--set", "n_basis=5"], "--set n_basis would be ignored"),
        "basis": (fine, ["--set", "n_basis=5000"], "5000"),
        "no setting": (fine, ["--set", "width=1"], "where NAME is gamma, degree"),
        "no value": (fine, ["--set", "gamma"], "--set takes NAME=VALUE"),
        "set twice": (fine, ["--set", "seed=1", "--set", "seed=2"], "given twice"),
        "seed": (fine, ["--set", "seed=-1"], "--set seed must be a whole number, 0"),
        "time": (fine, ["--set", "time_limit=0"], "positive number of seconds"),
        "within": (fine, ["--set", "within_queries=1"], "must be yes or no"),
        "own option": (fine, ["--gamma", "-1"], "--set gamma must be a positive number"),
        "own option twice": (fine, ["--seed", "1", "--set", "seed=2"], "given twice"),
        "own option without a value": (fine, ["--n-basis"], "--set n_basis must be a whole number"),
        "no option": (fine, ["--width", "1"], "see preflearn train --help"),
        "encode": (fine, ["--encode", "x=magic"], "--encode"),
        "encode nothing": (fine, ["--encode", "z=onehot"], "--encode names 'z'"),
        "encode without kind": (fine, ["--encode", "x=number,y"], "'y'"),
        "quiet": (fine, ["--quiet", "--json"], "--json"),
        "missing number": (fine, ["--read", "missing=nan"], "--read missing must be a finite"),
    }  # fmt: skip


@pytest.mark.parametrize("case", list(bad_tables()))
def test_bad_input_is_one_line_and_leaves_nothing(case, call, tmp_path):
    columns, options, says = bad_tables()[case]
    path = write_csv(tmp_path / "bad.csv", columns)
    status, out, err = call(
        "train", path, "-o", tmp_path / "m.preflearn", "--report", tmp_path / "r.html", *options
    )
    assert (status, out) == (2, ""), err
    assert says in err and err.count("\n") == 1 and "Traceback" not in err
    assert os.listdir(tmp_path) == ["bad.csv"]


def test_outputs_are_checked_before_any_work(folder, call, tmp_path, monkeypatch):
    monkeypatch.setattr("preflearn.auto.training.train.train", lambda *a, **k: pytest.fail("work was done"))
    data = folder / "shop.csv"
    for output, says in [
        (["-o", tmp_path / "none" / "m"], "no folder"),
        (["-o", tmp_path], "folder"),
        (["-o", data], "twice"),
        (["-o", tmp_path / "m", "--report", tmp_path / "m"], "twice"),
    ]:
        status, _, err = call("train", data, *ROLES, *output)
        assert status == 2 and says in err
    assert os.listdir(tmp_path) == []


def test_a_failing_report_leaves_no_model(folder, call, tmp_path, monkeypatch):
    pytest.importorskip("jinja2")

    def fail(path, report):
        raise RuntimeError("broken")

    monkeypatch.setattr("preflearn.report.html.render_for", fail)
    status, _, err = call(
        "train",
        folder / "shop.csv",
        *ROLES,
        *RANKRLS,
        "-o",
        tmp_path / "m.preflearn",
        "--report",
        tmp_path / "r.html",
    )
    assert status == 1 and "internal error" in err
    assert os.listdir(tmp_path) == []


def test_models_of_others_are_refused(folder, call, tmp_path):
    from preflearn.io import save_model

    save_model(RankRLS().fit([[0.0], [1.0]], [0, 1]), tmp_path / "other.preflearn")
    status, _, err = call("predict", tmp_path / "other.preflearn", folder / "new.csv")
    assert status == 2 and "load_model" in err
    (tmp_path / "broken.preflearn").write_bytes(b"PK\x03\x04 nothing")
    status, _, err = call("evaluate", tmp_path / "broken.preflearn", folder / "new.csv")
    assert status == 2 and "damaged" in err and err.count("\n") == 1


def test_shell_completion(tmp_path):
    environment = {
        **os.environ,
        "_PREFLEARN_COMPLETE": "complete_bash",
        "COMP_WORDS": "preflearn tr",
        "COMP_CWORD": "1",
    }
    done = subprocess.run(
        [sys.executable, "-c", "from preflearn.cli import main; main()"],
        env=environment, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert "train" in done.stdout.split() and done.stderr == ""
