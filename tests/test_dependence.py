"""Rows that depend on each other are noticed before a figure is printed that they spoil; teams and queries are not."""

import json
import os
import re
import warnings
from pathlib import Path

import numpy as np
import pytest

from preflearn import AutoRanker
from preflearn.comparisons.inputs import surv
from preflearn.errors import DependenceWarning
from preflearn.model_selection.dependence import _resembles_itself, find_dependence

pd = pytest.importorskip("pandas")
DATA = Path(os.environ.get("PREFLEARN_DATA", "none"))


def visits(seed=0, n_patients=60, effect=0.0):
    """Several visits of each patient, whose outcome is a coin toss with an effect of the first feature, or none."""
    rng = np.random.default_rng(seed)
    patient = np.repeat(np.arange(n_patients), rng.integers(3, 8, size=n_patients))
    profile = rng.normal(size=(n_patients, 4))
    rows = profile[patient] + 0.1 * rng.normal(size=(patient.size, 4))
    outcome = (effect * profile[:, 0] + rng.normal(size=n_patients) > 0)[patient].astype(int)
    table = pd.DataFrame(rows.round(3), columns=["age", "pressure", "weight", "pulse"])
    table.insert(0, "patient", [f"p{one:03}" for one in patient])
    return table.assign(outcome=outcome)


def test_the_two_figures_are_those_of_rows_and_of_patients():
    table = visits()
    found = find_dependence(table.drop(columns="outcome"), table["outcome"])
    assert (found.column, found.n_groups, found.n_rows) == ("patient", 60, len(table))
    assert found.together > 0.95 and found.apart < 0.65
    assert f"whole groups held out: .{100 * found.apart:.0f}" in str(found)
    free = table.drop(columns=["patient", "outcome"])
    assert find_dependence(free, table["outcome"]) is None
    coded = table.assign(patient=table["patient"].str[1:].astype(int))
    assert find_dependence(coded.drop(columns="outcome"), table["outcome"]).column == "patient"
    # Of a column without such a name only the figures speak.
    renamed = table.rename(columns={"patient": "code name"})
    assert find_dependence(renamed.drop(columns="outcome"), table["outcome"]).column == "code name"


def test_of_censored_times_events_are_compared():
    """Times at which patients leave the study, the same for all their rows, are not outcomes; events are."""
    rng = np.random.default_rng(0)
    reported = np.zeros((2, 2), dtype=int)
    for _ in range(10):
        patient, own = np.repeat(np.arange(40), 5), rng.exponential(size=40)
        columns = {"patient": patient, "a": rng.normal(size=40)[patient], "b": rng.normal(size=200)}
        for case, (lived, left) in enumerate(((own[patient], 1), (rng.exponential(size=200), own[patient]))):
            left = 0.3 * left * (rng.exponential(size=200) if case == 0 else 1.0)
            times, died = np.minimum(lived, left), lived <= left
            reported[case] += [find_dependence(columns, y) is not None for y in (surv(times, died), times)]
    assert reported[0, 0] == 10 and reported[1, 0] <= 2
    assert reported[1, 1] == 10  # as plain targets


@pytest.mark.parametrize("outcome", ["independent", "of the town"])
def test_categories_and_independent_outcomes_are_left_alone(outcome):
    rng = np.random.default_rng(0)
    n, fired = 300, 0
    for _ in range(15):
        town = rng.integers(30, size=n)
        a, b = rng.normal(size=(2, n))
        effect = 0.8 * rng.normal(size=30)[town] if outcome == "of the town" else 0.0
        y = a + effect + rng.normal(size=n)
        columns = {"town": np.array([f"t{one}" for one in town], dtype=object), "a": a, "b": b}
        fired += find_dependence(columns, y) is not None
        if outcome == "independent":
            fired += find_dependence({"patient": town, "a": a, "b": b}, y) is not None
    assert fired <= 1


def test_outcomes_resemble_themselves_by_the_analysis_of_variance():
    from scipy.stats import f_oneway

    from preflearn.comparisons import encode_queries

    rng = np.random.default_rng(0)
    for size in np.repeat([0.0, 0.3, 1.0], 20):
        label = rng.integers(12, size=80)
        y = size * rng.normal(size=12)[label] + rng.normal(size=80)
        groups = encode_queries(label, 80)
        parts = [y[label == one] for one in np.unique(label)]
        p = f_oneway(*parts).pvalue
        if p >= 0.02:
            assert not _resembles_itself(y, groups)
        elif p < 1e-3:
            assert _resembles_itself(y, groups)


def test_a_query_column_stays_one():
    from preflearn.datasets import load_demo

    X, y, qid, names = load_demo()
    table = {"session": np.array([f"s{one}" for one in qid], dtype=object), **dict(zip(names, X.T))}
    assert find_dependence(table, y) is None


def test_auto_ranker_warns_of_a_data_frame():
    table = visits()
    X, y = table.drop(columns="outcome"), table["outcome"]
    model = AutoRanker(preset="fast", random_state=0)
    with pytest.warns(DependenceWarning, match=r"groups=X\['patient'\]"):
        model.fit(X, y)
    with warnings.catch_warnings():
        warnings.simplefilter("error", DependenceWarning)
        model.fit(X, y, groups=X["patient"])
        assert model.best_score_ < 0.7
        model.fit(X.drop(columns="patient"), y)
        model.fit(X.drop(columns="patient").to_numpy(), y)


CLINICAL = {
    "geepack_respiratory": "outcome",
    "multgee_arthritis": "y",
    "survival_diabetic": "status",
    "survival_rhDNase": "fev",
}


@pytest.mark.skipif(
    not (DATA / "clinical_repeated").is_dir(), reason="PREFLEARN_DATA has no clinical_repeated"
)
@pytest.mark.parametrize("name", CLINICAL)
def test_repeated_measurements_of_patients_are_noticed(name):
    table = pd.read_csv(DATA / "clinical_repeated" / f"{name}.csv.xz")
    assert find_dependence(table.drop(columns=CLINICAL[name]), table[CLINICAL[name]]).column == "id"


@pytest.mark.skipif(not (DATA / "choices").is_dir(), reason="PREFLEARN_DATA has no choices")
def test_choices_that_do_not_resemble_each_other_and_single_visits_are_left_alone():
    table = pd.read_csv(DATA / "choices" / "Train.csv.xz")
    chosen = table.pop("choice")
    assert find_dependence(table, (chosen == chosen[0]).astype(int)) is None
    for name in ("veteran", "Pbc3"):
        table = pd.read_csv(DATA / "survival" / f"{name}.csv.xz")
        assert find_dependence(table.drop(columns="time"), table["time"]) is None


# The newcomer ---------------------------------------------------------------------------------------------------------


def test_a_biomedical_researcher_is_told_before_she_publishes_noise(tmp_path, call, monkeypatch):
    """patients.csv has several visits of sixty patients, and an outcome that has nothing to do with them."""
    monkeypatch.chdir(tmp_path)
    table = visits(seed=1)
    table.to_csv("patients.csv", index=False)

    status, out, err = call("look", "patients.csv", "--target", "outcome")
    assert status == 0, err
    first = " ".join(out.split())
    assert first.startswith("Rows with the same `patient` depend on each other (60 groups,")
    assert (
        "--group patient" in first
        and "preflearn train patients.csv --target outcome --group patient" in first
    )

    status, out, err = call("train", "patients.csv", "--target", "outcome", "-o", "rows.preflearn")
    assert status == 0, err
    shown = " ".join(out.split())
    apart, together = map(
        float, re.search(r"held out: (\S+); as if rows were independent: (\S+)\. ", shown).groups()
    )
    assert shown.startswith("Rows with the same `patient` depend on each other")
    assert together > 0.9 and apart < 0.7
    assert "looks like the query column" not in shown

    words = ("train", "patients.csv", "--target", "outcome", "--group", "patient", "-o", "patients.preflearn")
    status, out, err = call(*words, "--report", "report.html", "--json")
    assert status == 0, err
    honest = json.loads(out)
    low, high = honest["estimate"]["interval"]
    assert low < 0.5 < high and honest["estimate"]["value"] < 0.7
    assert f"60 groups (patient), {len(table)} rows" in honest["estimate"]["held_out"]
    assert honest["dependence"] == ""
    page = (tmp_path / "report.html").read_text()
    assert f"60 groups (patient), {len(table)} rows" in page and "depend on each other" not in page
    status, out, _ = call("predict", "patients.preflearn", "patients.csv")
    assert status == 0 and len(out.splitlines()) == len(table) + 1
