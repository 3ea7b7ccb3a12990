"""What a report comes to: the verdict, queries with reasons, learning curves, one figure for one model."""

from __future__ import annotations

import json
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.optimize import lsq_linear

from demo_rows import shop
from preflearn import RankRLS
from preflearn.auto.training.conclusions import _what_next
from preflearn.auto.training.options import KernelName, TrainingOptions
from preflearn.auto.training.ranking import RankingProblem
from preflearn.auto.training.train import train
from preflearn.io import RankingData, TableData
from preflearn.metrics import concordance, ndcg
from preflearn.model_selection import LearningCurve, cross_val_predict, learning_curve
from preflearn.report import LearningCurveDisplay
from preflearn.report.contents import Curve

LINEAR = TrainingOptions(kernel=KernelName.linear)


@pytest.fixture(scope="module")
def found():
    X, y, qid, names = shop()
    return train(RankingProblem(RankingData(X, y, qid, names), LINEAR))


def test_the_verdict_has_the_figures(found):
    report = found.report
    value, (low, high) = report.estimate.value, report.estimate.interval
    assert f"{100 * value:.1f} % (95 % interval {100 * low:.1f} to {100 * high:.1f})" in report.verdict
    single = next(one for one in report.baselines if one.name == "best single feature")
    assert f"{100 * single.value:.1f} %" in report.verdict and "what to do next" in report.verdict
    assert report.verdict.count(".\n") == 0 and report.verdict.endswith(".")


def test_noise_is_called_noise():
    rng = np.random.default_rng(0)
    X, y, qid = rng.normal(size=(120, 3)), rng.integers(0, 3, 120), np.repeat(np.arange(12), 10)
    report = train(RankingProblem(RankingData(X, y, qid, ["a", "b", "c"]), LINEAR)).report
    assert "no better than chance" in report.verdict


def test_ndcg_stands_beside_concordance(found):
    X, y, qid, _ = shop()
    from sklearn.preprocessing import StandardScaler

    Z = StandardScaler().fit_transform(X)
    scores = cross_val_predict(RankRLS(found.report.alpha_path.chosen), Z, y, qid=qid)
    assert found.report.ndcg[0] == pytest.approx(ndcg(y, scores, qid, k=10))
    assert found.report.ndcg[1] < found.report.ndcg[0] < found.report.ndcg[2]


def test_queries_are_shown_in_the_order_of_the_model(found):
    X, y, qid, names = shop()
    scores = found.model.predict(X)
    worst = next(one for one in found.report.queries if one.which == "worst")
    assert worst.value == pytest.approx(np.nanmin(found.report.values))
    rows = np.flatnonzero(qid == worst.label)
    best_first = rows[np.argsort(-scores[rows])]
    assert [item.name for item in worst.items] == [f"row {row + 1}" for row in best_first[:4]]
    assert [item.target for item in worst.items] == [float(y[row]) for row in best_first[:4]]
    scaled = found.model[0].transform(X)
    share = found.model[-1].coef_ * (scaled[best_first[0]] - scaled[rows].mean(axis=0))
    largest = int(np.abs(share).argmax())
    assert worst.items[0].reasons[0].startswith(f"{names[largest]} = ")
    assert f"({share[largest]:+.3g})" in worst.items[0].reasons[0]


def test_columns_of_a_table_are_told_together_with_their_values():
    rng = np.random.default_rng(0)
    colour = rng.choice(["red", "blue", "green"], 120).astype(object)
    columns = {"colour": colour, "size": rng.normal(size=120)}
    y = np.round(2.0 * (colour == "red") + columns["size"] + 3).clip(0, None)
    qid = np.repeat(np.arange(12), 10)
    data = TableData(columns, y, qid).encode()
    report = train(RankingProblem(data, LINEAR)).report
    reasons = [reason for query in report.queries for item in query.items for reason in item.reasons]
    assert any(reason.startswith("colour = red (+") for reason in reasons)
    assert not any("colour=red" in reason for reason in reasons)


def test_missing_values_are_told_as_such(call, tmp_path):
    rng = np.random.default_rng(0)
    stars = ["" if k % 3 == 0 else str(rng.integers(1, 6)) for k in range(120)]
    rows = [f"{k // 10},{one},{rng.normal():.3f},{one or 6}" for k, one in enumerate(stars)]
    (tmp_path / "t.csv").write_text("\n".join(["qid,stars,b,target", *rows]))
    options = ("--kernel", "linear", "-o", tmp_path / "m.preflearn", "--json")
    found = json.loads(call("train", tmp_path / "t.csv", *options)[1])
    reasons = [one for query in found["queries"] for item in query["items"] for one in item["reasons"]]
    assert any("stars = (missing)" in one for one in reasons) and not any("nan" in one for one in reasons)


def test_a_learning_curve_refits_on_growing_sets():
    X, y, qid, _ = shop(12)
    curve = learning_curve(RankRLS(5.0), X, y, qid=qid, sizes=[2, 8], random_state=1)
    codes = np.unique(qid, return_inverse=True)[1]
    order = np.random.RandomState(1).permutation(12)
    values = []
    for fold in range(3):
        test = order[fold::3]
        others = [query for query in order if query not in test][:8]
        rows = np.isin(codes, others)
        model = RankRLS(5.0).fit(X[rows], y[rows], qid=codes[rows])
        values += [concordance(y[codes == q], model.predict(X[codes == q])) for q in test]
    assert curve.scores[1] == pytest.approx(np.mean(values)) and curve.n_queries.tolist() == [2, 8]
    assert curve.gain == pytest.approx(curve.scores[1] - curve.scores[0])
    assert "last step" in str(curve)


def test_more_data_help_where_they_do():
    rng = np.random.default_rng(0)
    X, qid = rng.normal(size=(600, 20)), np.repeat(np.arange(60), 10)
    y = X @ rng.normal(size=20) + rng.normal(size=600)
    assert learning_curve(RankRLS(1.0), X, y, qid=qid, sizes=[2, 40]).still_rises
    flat = learning_curve(RankRLS(1e-3), X[:, :1], X[:, 0], qid=qid, sizes=[20, 40])
    assert flat.is_level and not flat.still_rises and "levelled off" in str(flat)


def test_what_is_not_significant_is_not_level():
    """A step of +0.0009 (-0.02 to 0.025) was called a flat learning curve, and more queries advised against."""
    n = np.array([10, 20])
    for interval, says in (
        ((0.001, 0.05), "collect more queries"),
        ((-0.023, 0.025), "leaves open whether more queries would help"),
        ((-0.004, 0.006), "since the learning curve is flat"),
    ):
        found = LearningCurve(n, np.array([0.7, 0.7009]), 0 * n, 0.0009, interval, "concordance")
        curve = Curve(n, found.scores, found.errors, found.still_rises, "", None, found.is_level)
        report = SimpleNamespace(
            leaks=(), curve=curve, unit="query", estimate=SimpleNamespace(interval=(0.7, 0.8))
        )
        assert says in _what_next(report)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"qid": None}, "needs qid"),
        ({"sizes": [99]}, "sizes must lie"),
        ({"sizes": [0, 4]}, "sizes must lie"),
        ({"sizes": []}, "sizes"),
    ],
)
def test_learning_curves_refuse(options, says):
    X, y, qid, _ = shop(12)
    with pytest.raises(ValueError, match=says):
        learning_curve(RankRLS(), X, y, **{"qid": qid, **options})


@pytest.mark.parametrize("power", [0.2, 0.5, 1.0])
def test_learning_curves_are_extended_by_a_power_law(power):
    n, rng = np.array([20, 40, 80, 160, 320]), np.random.default_rng(3)
    truth, noise = 0.9 - 0.6 * n**-power, 0.1 * rng.normal(size=80)
    curve = LearningCurve(
        n, truth, 0 * n, 0.0, (0.0, 0.0), "concordance", truth[:, None] + noise - noise.mean()
    )
    found = curve.extend([640, 3200])
    # The power is one of a grid.
    np.testing.assert_allclose(found.scores, 0.9 - 0.6 * np.array([640.0, 3200.0]) ** -power, atol=0.004)
    assert (found.low < found.scores).all() and (found.scores < found.high).all()
    assert curve.extend().n_queries.tolist() == [3200]
    assert "3,200 queries: " in str(curve)
    assert curve.extend([1]).n_queries.tolist() == [1]
    with pytest.raises(ValueError, match="at least 1: found 0"):
        curve.extend([0])
    drawn = curve.extended_to_ten_times
    assert drawn.n_queries[0] == 20 and drawn.n_queries[-1] == 3200


@pytest.mark.parametrize("scores", [[0.4, 0.6, 0.9], [0.5, 0.7, 0.8, 0.95], [0.7, 0.75, 0.77, 0.78]])
def test_an_extended_curve_is_the_best_power_law_that_ends_at_1_or_below(scores):
    n = 10.0 * 2.0 ** np.arange(len(scores))
    found = []
    for power in np.geomspace(0.1, 2.0, 16):
        fit = lsq_linear(
            np.column_stack([np.ones(n.size), -(n**-power)]), scores, ([-9, 0], [1, 99]), tol=1e-14
        )
        found.append((fit.cost, fit.x[0] - fit.x[1] * 1000.0**-power))
    values = np.array(scores)[:, None] + np.zeros(5)
    curve = LearningCurve(n.astype(int), np.array(scores), 0 * n, 0.0, (0.0, 0.0), "concordance", values)
    assert curve.extend(1000).scores[0] == pytest.approx(min(found)[1], abs=1e-5)


def test_an_extended_curve_neither_falls_nor_passes_the_best_score():
    n, noise = np.array([10, 20, 40]), 0.01 * np.random.default_rng(0).normal(size=(3, 50))
    falls = LearningCurve(
        n, 0 * n, 0 * n, 0.0, (0.0, 0.0), "concordance", np.array([[0.8], [0.7], [0.6]]) + noise
    )
    assert falls.extend().scores[0] == pytest.approx(0.7, abs=0.01)
    steep = LearningCurve(
        n, 0 * n, 0 * n, 0.0, (0.0, 0.0), "concordance", np.array([[0.6], [0.8], [0.99]]) + noise
    )
    assert steep.extend().scores[0] <= 1.0
    with pytest.raises(ValueError, match="3 points or more"):
        LearningCurve(n[:2], n[:2], n[:2], 0.0, (0.0, 0.0), "concordance", noise[:2]).extend()


def test_a_learning_curve_is_drawn():
    pytest.importorskip("matplotlib")
    curve = LearningCurve(
        np.array([2, 4]), np.array([0.6, 0.7]), np.array([0.1, 0.1]), 0.1, (0.0, 0.2), "concordance"
    )
    display = LearningCurveDisplay.from_curve(curve).plot()
    assert display.ax_.get_ylabel() == "held-out concordance"


@pytest.mark.parametrize("two_classes", [False, True])
def test_one_figure_for_one_model_without_queries(two_classes):
    X, y, _, names = shop(8)
    y = (y > 1).astype(float) if two_classes else y
    report = train(RankingProblem(RankingData(X, y, None, names), LINEAR)).report
    (model,) = [one for one in report.baselines if one.is_model]
    assert model.value == report.estimate.value
