"""`--event`: what someone with a table of patients types, sees, and is told."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from oracles import logrank
from preflearn import AutoRanker, RankRLS
from preflearn.cli.app import run
from preflearn.inspection import explain, feature_influence
from preflearn.io import load_model
from preflearn.metrics import concordance, logrank_test
from preflearn.model_selection import compare_rankers, evaluate_scores
from preflearn.model_selection.significance import holm
from preflearn.report import SurvivalDisplay, look
from test_look import write_csv

pandas = pytest.importorskip("pandas")

TRAIN = ("--target", "time", "--kernel", "linear")
EVENT = (*TRAIN, "--event", "died")


def patients(n: int = 60, seed: int = 0) -> dict[str, np.ndarray]:
    """The older die earlier; about a third of the times are censored."""
    random = np.random.default_rng(seed)
    age, sex = random.normal(60, 10, n).round(1), random.choice(["f", "m"], n)
    lived = random.exponential(100 * np.exp((60 - age) / 10)).round(1) + 1
    left = random.exponential(200, n).round(1) + 1
    table = {"patient": np.arange(n) // 2, "age": age, "sex": sex}
    return table | {"time": np.minimum(lived, left), "died": (lived <= left).astype(int)}


@pytest.fixture(scope="module")
def study(tmp_path_factory) -> Path:
    return write_csv(tmp_path_factory.mktemp("study") / "study.csv", patients())


@pytest.fixture(scope="module")
def model(study) -> Path:
    path = study.parent / "study.preflearn"
    assert run(["train", str(study), *EVENT, "--drop", "patient", "-o", str(path), "-q"]) == 0
    return path


@pytest.fixture
def changed(call, tmp_path):
    """The status and message of a training on the study with other columns."""

    def train(*words, **columns):
        table = {name: one for name, one in (patients() | columns).items() if one is not None}
        path = write_csv(tmp_path / "changed.csv", table)
        status, out, err = call("train", path, *words, "-o", tmp_path / "m.preflearn", "--force")
        return status, " ".join((out + err).split())

    return train


def test_two_groups_are_enough_to_train(changed):
    status, said = changed(*EVENT, "--group", "clinic", patient=None, clinic=np.arange(60) % 2)
    assert status == 0 and "2 groups (clinic)" in said


def test_look_and_train_ask_about_patients_by_their_events(changed, call, tmp_path):
    """With the same figures: the column of events is no feature in either."""
    own = np.random.default_rng(1).exponential(100, 30)[np.arange(60) // 2]
    columns = {"time": np.minimum(own, patients()["time"]), "died": (own < patients()["time"]).astype(int)}
    _, said = changed(*EVENT, **columns)
    told = said[said.index("Rows with the same `patient`") : said.index("--group patient holds out")]
    assert "whole groups held out" in told
    _, out, _ = call("look", tmp_path / "changed.csv", "--target", "time", "--event", "died")
    assert told in " ".join(out.split())


# ------------------------------------------------------------------------------------------------ what is shown


def test_look_proposes_the_command_that_train_takes(study, call, tmp_path):
    found = json.loads(call("look", study, "--json")[1])
    assert (found["target"], found["event"]) == ("time", "died")
    assert "--target time --event died" in found["command"]
    assert "says whether the event was seen" in " ".join(found["notes"])
    words = found["command"].split()[1:]
    assert call(*words, "-o", tmp_path / "m.preflearn", "-q")[0] == 0


@pytest.mark.parametrize(
    ("name", "labels", "event"),
    [
        ("status", ["alive", "dead"], "status=dead"),
        ("status", ["1", "2"], "status=2"),
        ("censored", ["1", "0"], "censored=0"),
        ("death_event", ["no", "yes"], "death_event"),
        ("status", ["open", "closed"], None),
        ("visited", ["0", "1"], None),
    ],
)
def test_look_knows_what_means_that_an_event_was_seen(name, labels, event):
    table = patients()
    table[name] = np.array(labels)[table.pop("died")]
    found = look(table)
    assert found.event == event and (event is None or found[name].role == "event")
    if event is not None:
        times, died = table["time"], patients()["died"]
        share = concordance(times, -table["age"], event=died)
        assert found["age"].alone == pytest.approx(share)


def test_look_leaves_other_targets_alone():
    table = patients() | {"grade": np.arange(60) % 4}
    assert look(table).event == "died"  # a word that says nothing else
    table["status"] = table.pop("died")
    assert look(table).event is None and look(table).target == "grade"
    assert look(table, target="age").event is None
    assert look(table, target="time").event == "status"


def test_training_without_the_event_says_what_is_missing(changed):
    status, text = changed("--target", "time", "--kernel", "linear")
    assert status == 0 and "--event died takes the other times as censored" in text


def test_a_training_is_about_the_c_index(study, call, tmp_path):
    page = tmp_path / "r.html"
    command = ("train", study, *EVENT, "--drop", "patient", "-o", tmp_path / "m.preflearn", "--report", page)
    found = json.loads(call(*command, "--json")[1])
    estimate, survival = found["estimate"], found["survival"]
    assert estimate["measure"] == "C-index" and 0.5 < estimate["value"] < estimate["interval"][1] < 1
    assert "leave-pair-out" in estimate["held_out"]
    assert (sum(survival["counts"]), sum(survival["events"])) == (60, patients()["died"].sum())
    assert survival["medians"][0] < survival["medians"][1]
    assert "pvalue" not in survival and "Calibration is left out" in survival["explanation"]
    assert "RLS, same kernel" not in [one["name"] for one in found["baselines"]]
    assert found["sets"] is found["roc"] is found["ndcg"] is None
    assert f"{patients()['died'].sum()} events seen" in found["summary"]
    text = page.read_text(encoding="utf-8")
    assert "Kaplan-Meier curves of thirds" in text and "Held-out C-index" in text
    assert "of which it is known who lived longer" in text
    status, out, _ = call(*command)
    assert status == 0 and "Held-out C-index" in out and "lowest scores" in out and "Log-rank" not in out


def test_the_estimate_is_that_of_the_library(study, call, tmp_path):
    command = ("train", study, *EVENT, "--drop", "patient,sex", "-o", tmp_path / "m.preflearn", "--json")
    found = json.loads(call(*command, "--set", "alphas=1")[1])
    from preflearn.model_selection import estimate_concordance

    table = patients()
    Z = (table["age"] - table["age"].mean())[:, None] / table["age"].std()
    expected = estimate_concordance(RankRLS(1.0), Z, table["time"], event=table["died"], random_state=0)
    assert found["estimate"]["value"] == pytest.approx(expected.value, abs=1e-9)
    assert found["estimate"]["interval"] == pytest.approx(list(expected.interval), abs=1e-9)


def test_candidates_learn_from_times(study, call, tmp_path):
    command = (
        "train",
        study,
        "--target",
        "time",
        "--event",
        "died",
        "--drop",
        "patient",
        "--time-limit",
        "0.1",
    )
    found = json.loads(call(*command, "-o", tmp_path / "m.preflearn", "--json")[1])
    assert found["leaderboard"]["scoring"] == found["estimate"]["measure"] == "C-index"
    assert sum(found["survival"]["counts"]) == 60
    table = patients()
    X = pandas.DataFrame({"age": table["age"], "sex": table["sex"]})
    model = AutoRanker(preset="fast", random_state=0).fit(X, table["time"], event=table["died"])
    report = model.report()
    assert report.estimate.measure == model.estimate_.measure
    assert report.estimate.value == pytest.approx(model.estimate_.value)
    assert report.estimate.interval == pytest.approx(model.estimate_.interval)
    assert sum(report.survival.events) == table["died"].sum()


def test_strata_are_queries_and_groups_stay_together(study, call, tmp_path):
    strata = patients()["patient"] // 6
    path = write_csv(tmp_path / "strata.csv", patients() | {"centre": strata})
    command = ("train", path, *EVENT, "-o", tmp_path / "m.preflearn", "--json")
    found = json.loads(call(*command, "--query", "centre", "--drop", "patient")[1])
    assert found["unit"] == "query" and found["estimate"]["measure"] == "C-index"
    assert "Each stratum is divided into thirds" in found["survival"]["explanation"]
    found = json.loads(call(*command, "--drop", "centre", "--group", "patient")[1])
    assert "30 groups (patient)" in found["estimate"]["held_out"]


def test_the_same_times_without_censoring_are_a_ranking(study, changed, call, tmp_path):
    # All events seen: who outlived whom is the order of the times.
    status, _ = changed(*EVENT, "--drop", "patient", "--set", "alphas=1", died=np.ones(60, dtype=int))
    table = patients()
    assert status == 0
    saved = load_model(tmp_path / "m.preflearn")
    Z = saved[:-1].transform({name: table[name] for name in ("age", "sex")})
    plain = RankRLS(1.0, cost="unit").fit(Z, table["time"])
    assert saved[-1].predict(Z) == pytest.approx(plain.predict(Z), abs=1e-8)


# ------------------------------------------------------------------------------------------------ what is refused


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"died": np.zeros(60, int)}, "event marks no row: every time is censored"),
        ({"died": (np.arange(60) == 3) * 1}, "event marks a single row"),
        ({"died": np.arange(60) % 3}, "'0', '1', '2', 3 different values: expected two"),
        ({"died": np.where(np.arange(60) < 9, "dead", "alive")}, "Pass --event died=alive if 'alive' means that it"),
        ({"died": np.where(np.arange(60) == 3, "", "1")}, "column 'died' has 1 missing label (line 5)"),
        ({"time": np.where(np.arange(60) == 3, -4, 9.5)}, "line 5: the time is -4"),
        ({"time": np.where(np.arange(60) == 3, "", "9.5")}, "1 missing target (line 5)"),
        ({"time": np.array([f"2024-01-{k % 28 + 1:02}" for k in range(60)])}, "These are dates: write the time since"),
        ({"time": np.r_[np.arange(58) + 1, 99, 99], "died": np.r_[np.zeros(58, int), 1, 1]}, "No row is known to have"),
        ({"died": None}, "--event asks for column 'died', found"),
    ],
)  # fmt: skip
def test_what_holds_no_events_is_refused(changed, columns, words):
    status, text = changed(*EVENT, **columns)
    assert status == 2 and words in text


def test_a_column_that_marks_censored_rows_is_not_taken_for_events(changed, tmp_path):
    censored = 1 - patients()["died"]
    status, text = changed(*TRAIN, "--event", "censored", died=None, censored=censored)
    assert status == 2 and "by its name 1 means censored. Pass --event censored=0 if '0' means" in text
    fixed = ("--drop", "patient", "--set", "alphas=1")
    assert changed(*TRAIN, "--event", "censored=0", *fixed, died=None, censored=censored)[0] == 0
    X = {name: patients()[name] for name in ("age", "sex")}
    scores = load_model(tmp_path / "m.preflearn").predict(X)
    assert changed(*EVENT, *fixed)[0] == 0
    assert (load_model(tmp_path / "m.preflearn").predict(X) == scores).all()


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--learner", "rls"), "Pass --learner rankrls, or --learner ranksvm"),
        (("--event", "time"), "--event time names a column that --target"),
        (("--drop", "died"), "--event died names a column that --target, --query, --group or --drop"),
        (("--event", "died=yes"), "holds '0', '1': expected one of these. Pass --event died=0"),
    ],
)
def test_what_goes_with_no_event_is_refused(changed, words, says):
    status, text = changed("--target", "time", "--event", "died", *words)
    assert status == 2 and says in text


def test_event_is_not_for_preferences_and_letor(call, tmp_path):
    letor = tmp_path / "a.letor"
    letor.write_text("1 qid:1 1:0.5\n0 qid:1 1:0.1\n")
    assert "--event names a column, and LETOR files have none" in call("train", letor, "--event", "e")[2]
    pairs = write_csv(tmp_path / "p.csv", {"chosen": ["a b"] * 9, "rejected": ["c d"] * 9})
    assert "--event is for rows with times" in call("train", pairs, "--event", "e")[2]


@pytest.mark.parametrize("labels", [["alive", "dead"], ["no", "YES"], ["0.0", "1.0"], ["1", "2"]])
def test_two_labels(changed, labels, tmp_path):
    table = patients()
    event = "died" if labels[0] in ("no", "0.0") else f"died={labels[1]}"
    fixed = ("--drop", "patient", "--set", "alphas=1")
    assert changed(*TRAIN, "--event", event, *fixed, died=np.array(labels)[table["died"]])[0] == 0
    X = {name: table[name] for name in ("age", "sex")}
    scores = load_model(tmp_path / "m.preflearn").predict(X)
    assert changed(*EVENT, *fixed)[0] == 0
    assert (load_model(tmp_path / "m.preflearn").predict(X) == scores).all()


# ------------------------------------------------------------------------------------------------ what comes after


def test_a_model_is_evaluated_on_its_event(model, study, call, tmp_path):
    table = patients(40, seed=1)
    new = write_csv(tmp_path / "new.csv", table)
    found = json.loads(call("evaluate", model, new, "--json")[1])
    scores = load_model(model).predict({name: table[name] for name in ("age", "sex")})
    by_name = {one["metric"]: one for one in found["metrics"]}
    assert by_name["C-index"]["value"] == pytest.approx(
        concordance(table["time"], scores, event=table["died"])
    )
    uno = concordance(table["time"], scores, event=table["died"], weights="ipcw")
    assert by_name["Uno's C-index"]["value"] == pytest.approx(uno)
    low, high = by_name["C-index"]["interval"]
    assert low < by_name["C-index"]["value"] < high and by_name["Uno's C-index"]["interval"] is None
    assert "C-index" in call("evaluate", model, new, "--event", "died")[1]
    assert "does not know censored times" in call("evaluate", model, new, "--metric", "ndcg")[2]
    del table["died"]
    assert "--event died, a column that is not there" in call("evaluate", model, write_csv(new, table))[2]
    assert call("predict", model, new)[0] == 0


def test_two_models_are_compared_on_the_same_patients(model, study, call, tmp_path):
    table = patients(50, seed=1)
    new, other, third = (
        write_csv(tmp_path / "new.csv", table),
        tmp_path / "other.preflearn",
        tmp_path / "s.txt",
    )
    assert call("train", study, *EVENT, "--drop", "patient,age", "-o", other, "-q")[0] == 0
    X = {name: table[name] for name in ("age", "sex")}
    scores = load_model(model).predict(X), load_model(other).predict(X)
    expected = compare_rankers(table["time"], *scores, event=table["died"])
    command = ("compare", new, model, other)
    found = json.loads(call(*command, "--json")[1])
    assert found["metric"] == "C-index"
    (one,) = found["comparisons"]
    assert tuple(one["names"]) == ("study.preflearn", "other.preflearn")
    assert one["difference"] == pytest.approx(expected.difference)
    assert one["interval"] == pytest.approx(list(expected.interval)) and one["pvalue"] == pytest.approx(
        expected.pvalue
    )
    assert "DeLong" in call(*command)[1] and "does not know" in call(*command, "--metric", "ndcg")[2]
    third.write_text("".join(f"{-age}\n" for age in table["age"]))
    several = json.loads(call(*command, third, "--event", "died", "-o", tmp_path / "t.md", "--json")[1])
    assert len(several["comparisons"]) == 3 and "C-index of 50 rows" in (tmp_path / "t.md").read_text()
    assert several["corrected"] == pytest.approx(holm([one["pvalue"] for one in several["comparisons"]]))
    against = json.loads(call(*command, third, "--baseline", third, "--json")[1])
    assert {one["names"][1] for one in against["comparisons"]} == {"s.txt"}
    by_patient = json.loads(call(*command, "--group", "patient", "--json")[1])["comparisons"][0]
    assert "25 groups" in by_patient["counted"]
    in_strata = json.loads(call(*command, "--query", "patient", "--json")[1])
    assert in_strata["metric"] == "C-index" and "n_queries" in in_strata["comparisons"][0]


def test_scores_are_evaluated_in_strata():
    table = patients(80)
    strata = np.arange(80) % 8
    found = evaluate_scores(table["time"], -table["age"], strata, event=table["died"])
    values = concordance(table["time"], -table["age"], strata, event=table["died"], per_query=True).values
    assert found.metrics[0].value == pytest.approx(values.mean()) and found.metrics[0].n_queries == 8


def test_a_model_is_explained_exported_and_described(model, call, tmp_path):
    table = patients()
    X = {name: table[name] for name in ("age", "sex")}
    saved = load_model(model)
    assert explain(saved, X, row=0).names[0] == "age"
    known = np.array(list(zip(table["died"] > 0, table["time"])), dtype=[("e", bool), ("t", float)])
    found = feature_influence(saved, X, known, random_state=0)
    assert found.names[found.order[0]] == "age"
    assert found.concordance == pytest.approx(concordance(known, saved.predict(X)))


@pytest.mark.parametrize("words", [EVENT, ("--target", "time", "--event", "died", "--time-limit", "0.1")])
def test_a_served_or_exported_model_scores_patients_as_it_predicts(words, study, call, tmp_path):
    pytest.importorskip("starlette"), pytest.importorskip("onnxruntime"), pytest.importorskip("httpx")
    from tests.web_server import serving

    from preflearn.cli.serve import _scorer
    from preflearn.web.serving import serve_app

    path = tmp_path / "m.preflearn"
    assert call("train", study, *words, "--drop", "patient", "-o", path, "-q")[0] == 0
    table = patients()
    X = {name: table[name] for name in ("age", "sex")}
    scores = load_model(path).predict(X)
    assert concordance(table["time"], scores, event=table["died"]) > 0.6
    items = [{"age": float(age), "sex": str(sex)} for age, sex in zip(X["age"], X["sex"], strict=True)]
    with serving(serve_app(_scorer(path))) as client:
        found = client.post("/rank", json={"items": items}).json()
    assert found["scores"] == pytest.approx(scores, rel=1e-9)
    assert found["order"] == np.argsort(-scores, kind="stable").tolist()  # who lives longest comes first
    onnx = ("export", path, "--to", "onnx", "-o", tmp_path / "m.onnx", "--check", study)
    assert "orders the rows of the check as predict does" in "".join(call(*onnx)[1:])


# ------------------------------------------------------------------------------------------- curves and their test


def test_logrank_by_its_definition():
    random = np.random.default_rng(0)
    for n, k in ((4, 2), (30, 3), (50, 4)):
        times, events = random.integers(1, n // 2 + 1, n), random.random(n) < 0.6
        times[:2], events[:2] = 1, True
        groups = np.arange(n) % k
        found, expected = logrank_test(times, groups, event=events), logrank(times, events, groups)
        assert found.statistic == pytest.approx(expected[0])
        assert found.observed == pytest.approx(expected[1]) and found.expected == pytest.approx(expected[2])


def test_logrank_of_two_groups_is_that_of_scipy_and_of_the_book():
    # Freireich et al. (1963), remission in weeks; Kleinbaum and Klein, Survival Analysis, give 16.793.
    treated = [6, 6, 6, 7, 10, 13, 16, 22, 23], [6, 9, 10, 11, 17, 19, 20, 25, 32, 32, 34, 35]
    placebo = [1, 1, 2, 2, 3, 4, 4, 5, 5, 8, 8, 8, 8, 11, 11, 12, 12, 15, 17, 22, 23]
    times = np.array([*treated[0], *treated[1], *placebo])
    events = np.r_[np.ones(9), np.zeros(12), np.ones(21)]
    found = logrank_test(times, np.repeat(["treated", "placebo"], 21), event=events)
    assert found.statistic == pytest.approx(16.793, abs=5e-4)
    from scipy.stats import CensoredData
    from scipy.stats import logrank as of_two

    expected = of_two(CensoredData(treated[0], right=treated[1]), CensoredData(placebo))
    assert (found.statistic, found.pvalue) == pytest.approx((expected.statistic**2, expected.pvalue))


@pytest.mark.parametrize(
    ("groups", "event", "words"),
    [([1, 1], [1, 1], "found one group"), ([1, 2], [0, 0], "found no event"), ([1, 2], None, "pass event=")],
)
def test_logrank_needs_events_of_two_groups(groups, event, words):
    with pytest.raises(ValueError, match=words):
        logrank_test([1, 2], groups, event=event)


def test_kaplan_meier_curves_of_thirds():
    table = patients(90)
    scores, folds = -table["age"], np.arange(90) % 3
    found = SurvivalDisplay.of_predictions(table["time"], scores, folds, event=table["died"])
    third = np.empty(90, dtype=int)
    for fold in range(3):
        rows = np.flatnonzero(folds == fold)
        third[rows[np.argsort(scores[rows], kind="stable")]] = np.repeat([0, 1, 2], 10)
    for k in range(3):
        times, died = table["time"][third == k], table["died"][third == k]
        at, left = [0.0], [Fraction(1)]
        for t in np.unique(times):
            at.append(t)
            left.append(left[-1] * (1 - Fraction(int(died[times == t].sum()), int((times >= t).sum()))))
        assert found.times[k] == pytest.approx(at) and found.survival[k] == pytest.approx(
            [float(one) for one in left]
        )
        below = [t for t, share in zip(at, left) if share <= Fraction(1, 2)]
        assert found.medians[k] == (below[0] if below else np.inf)
    assert (
        found.counts == [30, 30, 30]
        and found.pvalue == logrank_test(table["time"], third, event=table["died"]).pvalue
    )
    assert SurvivalDisplay.from_predictions(table["time"], scores, event=table["died"]).ax_ is not None
    with pytest.raises(ValueError, match="needs events"):
        SurvivalDisplay.of_predictions(table["time"], scores)


# ------------------------------------------------------------------------------------------------- other libraries


def test_frames_of_lifelines_and_arrays_of_scikit_survival():
    table = patients()
    frame = pandas.DataFrame({"age": table["age"], "T": table["time"], "E": table["died"]})
    known = np.array(list(zip(table["died"] > 0, table["time"])), dtype=[("cens", "?"), ("time", "<f8")])
    expected = RankRLS().fit(frame[["age"]], table["time"], event=table["died"] > 0).predict(frame[["age"]])
    for y, event in ((frame["T"], frame["E"]), (frame["T"], frame["E"].astype(bool)), (known, None)):
        assert (RankRLS().fit(frame[["age"]], y, event=event).predict(frame[["age"]]) == expected).all()
    measured = evaluate_scores(known, expected).metrics[0]
    assert measured.value == concordance(frame["T"], expected, event=frame["E"])
