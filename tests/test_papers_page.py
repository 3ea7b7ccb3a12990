"""The page about the papers: what it names exists, its counts are right, and the claims that no other test checks."""

from __future__ import annotations

import importlib
import re
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

import oracles
from preflearn import RLS, RankRLS
from preflearn.comparisons import compare_scores, one_group
from preflearn.metrics import disagreement_error
from preflearn.relations import KroneckerRLS
from preflearn_experiments import registry

ROOT = Path(__file__).resolve().parents[1]
PAGE = (ROOT / "docs" / "papers.md").read_text(encoding="utf-8")
LINES = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in PAGE.splitlines()
    if re.match(r"\| \d+ \|", line)
]
# A line that names nothing of these says in words why an item is left out.
TEST = re.compile(r"`(test_\w+\.py)(?:::(test_\w+))?`")
FILE = re.compile(r"`((?:benchmarks|examples)/\w+\.py)`")
EXPERIMENT = re.compile(r"`reproduce ([\w-]+)`")
OBJECT = re.compile(r"`(preflearn\w*(?:\.\w+)+)`")


def test_lines_are_numbered_and_counted():
    assert [int(number) for number, *_ in LINES] == list(range(1, len(LINES) + 1))
    counts = Counter(status for _, _, status, _ in LINES)
    said = re.search(
        r"Of (\d+) items, (\d+) work\s.*?, (\d+) differ\s.*?, and (\d+) are left", PAGE, re.DOTALL
    )
    assert [int(one) for one in said.groups()] == [
        len(LINES), counts["works"], counts["differs"], counts["left out"]
    ]  # fmt: skip
    assert set(counts) == {"works", "differs", "left out"}


@pytest.mark.parametrize("line", LINES, ids=lambda line: line[0])
def test_what_a_line_names_exists(line):
    _, _, status, text = line
    for name, function in TEST.findall(text):
        path = ROOT / "tests" / name
        assert path.is_file(), name
        assert not function or f"def {function}(" in path.read_text(encoding="utf-8"), function
    for name in FILE.findall(text):
        assert (ROOT / name).is_file(), name
    for name in EXPERIMENT.findall(text):
        assert name in registry.EXPERIMENTS, name
    for name in OBJECT.findall(text):
        module, _, attribute = name.rpartition(".")
        assert hasattr(importlib.import_module(module), attribute), name
    checks = any(kind.search(text) for kind in (TEST, FILE, EXPERIMENT))
    assert checks or status == "left out", "nothing checks this line"


# Claims -------------------------------------------------------------------------------------------------------------


def test_three_costs_are_one_for_two_classes():
    rng = np.random.default_rng(0)
    X, y, qid = rng.normal(size=(40, 3)), rng.integers(0, 2, 40), np.repeat(np.arange(4), 10)
    models = [
        RankRLS(cost=cost, ties="exclude").fit(X, y, qid=qid) for cost in ("magnitude", "unit", "relative")
    ]
    for model in models[1:]:
        np.testing.assert_allclose(model.coef_, models[0].coef_, atol=1e-10)


def test_relative_cost_bounds_the_error():
    """Cost (22) is at least the number of wrong pairs, ties counted as wrong; cost (21) may be less."""
    below = False
    for seed in range(50):
        rng = np.random.default_rng(seed)
        y, f = rng.normal(size=(2, 8)) * [[0.3], [1.0]]
        pairs = oracles.counted_pairs(y, np.zeros(8), cost="relative")
        wrong = disagreement_error(y, f, definition="strict") * len(pairs)
        costs = {}
        for cost in ("relative", "magnitude"):
            task = compare_scores(y[:, None], one_group(8), cost=cost, ties="exclude")
            L, b = task.laplacian(np.eye(8)), task.target[:, 0]
            costs[cost] = f @ L @ f - 2 * b @ f + y @ L @ y
        assert costs["relative"] >= wrong - 1e-9
        below |= bool(costs["magnitude"] < wrong - 1e-9)
    assert below


def test_pairs_across_queries_turn_the_toy_example():
    """Section 5.1 of article I: two queries of two rows, whose own order is the opposite of that between them."""
    X, s, qid = np.array([[2.5], [2.0], [0.5], [0.0]]), [2.0, 1.0, 4.0, 3.0], [1, 1, 2, 2]
    relevant, every = RankRLS(0.01).fit(X, s, qid=qid), RankRLS(0.01).fit(X, s)
    assert round(float(relevant.coef_[0]), 2) == 1.96
    assert round(float(every.coef_[0]), 2) == -0.82
    assert relevant.score(X, s, qid=qid) == 1.0
    assert every.score(X, s, qid=qid) == 0.0


def test_polynomial_kernel_of_the_thesis():
    rng = np.random.default_rng(0)
    X, y, new = rng.normal(size=(20, 3)), rng.normal(size=20), rng.normal(size=(5, 3))
    model = RankRLS(kernel="poly", gamma=1, degree=2, coef0=0.5).fit(X, y)
    by_hand = RankRLS(kernel="precomputed").fit((X @ X.T + 0.5) ** 2, y)
    np.testing.assert_allclose(model.predict(new), by_hand.predict((new @ X.T + 0.5) ** 2), atol=1e-8)
    other = RankRLS(kernel="poly", degree=2, coef0=0.5).fit(X, y)
    assert not np.allclose(other.predict(new), model.predict(new))


def test_scale_of_alpha_in_conditional_ranking():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(12, 3)), rng.normal(size=12)
    relation = KroneckerRLS(0.3, compare="rows").fit(X, np.ones((1, 1)), y[:, None])
    f = relation.predict(X, np.ones((1, 1)))[:, 0]
    by_item, by_pair = RankRLS(0.3, weighting="item").fit(X, y), RankRLS(0.3 * 12).fit(X, y)
    for model in (by_item, by_pair):
        np.testing.assert_allclose(np.diff(f), np.diff(model.predict(X)), atol=1e-9)


@pytest.mark.parametrize("learner", [RLS, RankRLS])
def test_manifold_regularisation_is_a_sum_over_pairs(learner):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(30, 2))
    known, y = np.arange(6), np.full(30, np.nan)
    y[known] = rng.normal(size=6)
    i, j = np.triu_indices(30, 1)
    pairs, weight = np.column_stack([i, j]), 0.2 * np.exp(-((X[i] - X[j]) ** 2).sum(axis=1))
    options = {"fit_intercept": False} if learner is RLS else {}
    model = learner(0.1, kernel="rbf", gamma=1.0, **options)
    model.fit(X, y, pairs=pairs, magnitude=0, weight=weight)
    K = oracles.rbf(X, X, 1.0)
    graph, _ = oracles.dense_preferences(30, pairs, np.zeros(len(pairs)), weight)
    L, b = np.zeros((30, 30)), np.zeros(30)
    own, target = (
        (np.eye(6), y[known]) if learner is RLS else oracles.dense_comparisons(y[known], np.zeros(6))
    )
    L[np.ix_(known, known)], b[known] = own, target
    expected = K @ oracles.kernel_solution(K, L + graph, b, 0.1)
    np.testing.assert_allclose(model.predict(X), expected, atol=1e-8)
