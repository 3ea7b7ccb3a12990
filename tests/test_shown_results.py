"""Every result shows itself: at a prompt, in a notebook, as a plot; displays draw."""

from __future__ import annotations

from html.parser import HTMLParser

import numpy as np
import pytest

from preflearn import AutoRanker, BradleyTerry, RankRLS, RankRLSCV
from preflearn.datasets import load_demo
from preflearn.inspection import explain, feature_influence
from preflearn.metrics import calibration_of_preferences
from preflearn.model_selection import (
    compare_rankers,
    compare_several_rankers,
    estimate_auc,
    estimate_concordance,
    evaluate_preferences,
    evaluate_scores,
    learning_curve,
    permutation_test,
)
from preflearn.preferences import position_propensities
from preflearn.report import (
    AlphaPathDisplay,
    CalibrationDisplay,
    CoefficientsDisplay,
    LearningCurveDisplay,
    QueryRocDisplay,
    QueryScoresDisplay,
)
from preflearn.shown_tables import ShownTable

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("Agg")

X, y, qid, NAMES = load_demo()
FEW = np.isin(qid, np.unique(qid)[:12])
X, y, qid = X[FEW], y[FEW], qid[FEW]


@pytest.fixture(autouse=True)
def closed_figures():
    import matplotlib.pyplot as plt

    yield
    plt.close("all")


class Cells(HTMLParser):
    """Counts the rows of tables, and refuses tags that are not closed."""

    def __init__(self):
        super().__init__()
        self.open: list[str] = []
        self.n_rows = 0

    def handle_starttag(self, tag, attributes):
        self.open.append(tag)
        self.n_rows += tag == "tr"

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def results() -> dict:
    model = RankRLS().fit(X, y, qid=qid)
    scores, other = model.predict(X), X[:, 0]
    rng = np.random.default_rng(0)
    pairs = np.array(
        [(i, j) if y[i] > y[j] else (j, i) for i, j in rng.integers(0, len(y), (40, 2)) if y[i] != y[j]]
    )
    found = {
        "explanation": explain(model, X, qid=qid, row=3, feature_names=NAMES),
        "influence": feature_influence(model, X, y, qid=qid, n_repeats=1, feature_names=NAMES),
        "evaluation": evaluate_scores(y, scores, qid),
        "comparison": compare_rankers(y, scores, other, qid),
        "table": compare_several_rankers(y, {"a": scores, "b": other, "c": X[:, 1]}, qid),
        "estimate": estimate_concordance(RankRLS(), X, y, qid=qid),
        "auc": estimate_auc(RankRLS(), X[:40], y[:40] > 1, method="leave-pair-out"),
        "permutations": permutation_test(RankRLS(), X, y, qid=qid, n_permutations=20, random_state=0),
        "curve": learning_curve(RankRLS(), X, y, qid=qid, random_state=0),
        "calibration": calibration_of_preferences([0.9, 0.8, 0.3, 0.6], n_bins=2),
        "preferences": evaluate_preferences(BradleyTerry(), X, pairs),
        "propensities": position_propensities(
            np.tile([1, 2, 3], 100), rng.random(300) < 0.3, randomised=True
        ),
    }
    found["leaderboard"] = AutoRanker(time_limit=0.1, random_state=0).fit(X, y, qid=qid).leaderboard_
    return found


@pytest.fixture(scope="module")
def shown() -> dict:
    return results()


KINDS = (
    "explanation influence evaluation comparison table estimate auc permutations curve calibration preferences "
    "propensities leaderboard"
).split()  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_results_are_readable_at_a_prompt_and_in_a_notebook(shown, kind):
    result = shown[kind]
    assert "array(" not in repr(result) and "=<" not in repr(result) and len(repr(result)) < 6000
    cells = Cells()
    cells.feed(result._repr_html_())
    assert cells.open == []
    assert cells.n_rows >= 2 or kind == "permutations"


@pytest.mark.parametrize("kind", KINDS)
def test_whatever_has_a_plot_has_plot(shown, kind):
    import matplotlib.pyplot as plt

    _, ax = plt.subplots()
    assert shown[kind].plot(ax) is ax and ax.has_data()
    assert shown[kind].plot() is not ax


def test_text_in_tables_is_escaped():
    page = ShownTable([("<b>", "x"), ("a & b", "1")], "<i>").to_html()
    assert "<b>" not in page and "<i>" not in page and "a &amp; b" in page


def test_numbers_are_aligned_to_the_right():
    assert ShownTable([("a", "b", "c"), ("x", "1.5", ""), ("y", "-3e-05", "")]).sides == "lrl"


def test_displays_draw():
    search = RankRLSCV().fit(X, y, qid=qid)
    drawn = [
        AlphaPathDisplay.from_estimator(search),
        QueryScoresDisplay.from_estimator(search, X, y, qid),
        QueryScoresDisplay.from_predictions(y, X[:, 0], qid, metric="ndcg@10"),
        QueryRocDisplay.from_predictions(y > 1, X[:, 0], qid),
        CoefficientsDisplay.from_estimator(RankRLS().fit(X, y, qid=qid), feature_names=NAMES, n_features=3),
        CalibrationDisplay.from_predictions([0.9, 0.8, 0.3, 0.6], n_bins=2),
        LearningCurveDisplay.from_curve(learning_curve(RankRLS(), X, y, qid=qid, random_state=0)),
    ]
    assert all(display.ax_.has_data() for display in drawn)


def test_displays_draw_where_they_are_told_to():
    import matplotlib.pyplot as plt

    _, ax = plt.subplots()
    assert QueryRocDisplay.from_predictions(y > 1, X[:, 0], qid, ax=ax).ax_ is ax


def test_a_plot_that_is_refused_leaves_no_empty_figure():
    plt = pytest.importorskip("matplotlib.pyplot")
    found = evaluate_preferences(RankRLS(), [[0.0], [1.0], [2.0]], [[1, 0], [2, 1], [2, 0]])
    before = plt.get_fignums()
    with pytest.raises(ValueError, match="no held-out probabilities"):
        found.plot()
    assert plt.get_fignums() == before
