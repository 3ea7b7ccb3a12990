"""Held-out pairs and preferences equal refitting."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import example, given
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.linear_model import Ridge

import oracles
from preflearn import RLS, RankRLS
from preflearn.comparisons import PreferenceComparisons
from preflearn.model_selection import HeldOut, leave_pair_out, leave_pair_out_tally, leave_preference_out
from preflearn.model_selection._problem import Problem
from preflearn.squared.base import Asked
from preflearn.squared.holdout import alike
from preflearn.squared.holdout.alike import predict_without_sets_alike
from preflearn.squared.representations import FullKernel
from strategies import examples, ranking_problems

ALPHAS = st.sampled_from([2.0**-15, 1.0, 2.0**15])
REPRESENTATIONS = st.sampled_from(
    [{}, {"solver": "dual"}, {"kernel": "rbf"}, {"kernel": "rbf", "n_basis": 0.5, "random_state": 0}]
)
LEARNERS = st.sampled_from(
    [
        (RLS, {}),
        (RLS, {"fit_intercept": False}),
        (RankRLS, {}),
        (RankRLS, {"weighting": "item"}),
        (RankRLS, {"weighting": "query"}),
        (RankRLS, {"ties": "exclude"}),
        (RankRLS, {"cost": "unit", "weighting": "item"}),
        (RankRLS, {"cost": "relative"}),
    ]
)


@examples(60)
@given(
    st.integers(0, 10**6),
    st.sampled_from(["magnitude", "unit", "relative"]),
    st.sampled_from(["pair", "item", "query"]),
    st.sampled_from([2, 3, 5]),
    st.sampled_from(["rbf", "linear"]),
    st.sampled_from([2.0**-10, 1.0, 2.0**15]),
)
def test_sets_that_leave_a_ranking_alike_equal_refitting(seed, cost, weighting, n_grades, kernel, alpha):
    rng = np.random.default_rng(seed)
    X, y = rng.normal(size=(24, 30)), np.sort(rng.integers(0, n_grades, 24)) * 1.5
    y[:3] = 0.0, 1.5, 1.5 * (n_grades - 1)
    model = RankRLS(alpha, kernel=kernel, cost=cost, ties="exclude", weighting=weighting)
    problem = Problem.read(model, X, y, None)
    (task,) = problem.tasks
    codes = task.alike.codes
    lone = np.flatnonzero(np.bincount(codes)[codes] == 1)  # a group of one row leaves whole
    leaving = [[a, b] for a in np.flatnonzero(y == 0.0) for b in np.flatnonzero(y == y[-1])][:6]
    K = problem.inputs.kernel_matrix()
    for sets in (leaving, [[row] for row in lone[:1]]):
        if sets:
            found = predict_without_sets_alike(K, task.alike, task, np.array(sets), alpha)
            expected = [oracles.refit_without(model, X, y, None, rows, rows) for rows in sets]
            np.testing.assert_allclose(found, expected, rtol=1e-7, atol=1e-8 * np.abs(expected).max())


@pytest.mark.parametrize("options", [{"ties": "exclude"}, {"cost": "unit"}, {"cost": "relative"}])
@pytest.mark.parametrize("representation", [{}, {"kernel": "rbf"}])
def test_pairs_and_rows_of_two_classes_share_an_inverse(monkeypatch, options, representation):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(40, 4)), rng.permutation(np.repeat([0.0, 1.0], [25, 15]))
    model = RankRLS(0.5, **options, **representation)
    made = []
    explicit = alike.explicit_resolvent
    monkeypatch.setattr(
        alike, "explicit_resolvent", lambda *args, **kw: made.append(1) or explicit(*args, **kw)
    )
    pairs, found = leave_pair_out(model, X, y)
    assert len(pairs) == 375
    assert len(made) == 1
    some = pairs[::25]
    expected = np.array([oracles.refit_without(model, X, y, None, pair, pair) for pair in some])
    np.testing.assert_allclose(found[::25], expected, rtol=1e-8, atol=1e-10)
    singles = [[row] for row in range(40)]
    alphas = [2.0**-5, 8.0]
    for k, rows in enumerate(HeldOut(model, X, y).predict(singles, alphas)):
        expected = oracles.refit_folds(clone(model).set_params(alpha=alphas[k]), X, y, None, singles)
        np.testing.assert_allclose(rows, expected, rtol=1e-7, atol=1e-9)
    assert len(made) == 1 + 2 * 2  # two classes, two alphas


def scaled(problem):
    return problem.X / max(1e-12, abs(problem.X).max()), problem.y / max(1.0, abs(problem.y).max())


@examples(60)
@given(ranking_problems(min_rows=6, max_rows=9, max_features=4), LEARNERS, REPRESENTATIONS, ALPHAS)
def test_pairs_equal_refitting(problem, learner, representation, alpha):
    X, y = scaled(problem)
    y[:4] = [0.1, 0.2, 0.3, 0.1]  # whatever pair leaves, something is left to compare
    model = learner[0](alpha, **learner[1], **representation)
    pairs, found = leave_pair_out(model, X, y)
    assert [tuple(pair) for pair in pairs] == [
        (i, j) for i in range(len(y)) for j in range(i + 1, len(y)) if y[i] != y[j]
    ]
    try:
        expected = np.array([oracles.refit_without(model, X, y, None, pair, pair) for pair in pairs])
    except ValueError as error:
        assert "compared" in str(error) or "basis" in str(error)
        return
    size = max(1.0, abs(expected).max())
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6 * size)
    clear = abs(expected[:, 0] - expected[:, 1]) > 1e-7 * size
    if clear.all():
        wins = np.sign(y[pairs[:, 0]] - y[pairs[:, 1]]) == np.sign(expected[:, 0] - expected[:, 1])
        tally = leave_pair_out_tally(model, X, y)
        assert tally.n_pairs == len(pairs)
        np.testing.assert_allclose(tally.share, wins.mean())
        for row in range(len(y)):
            assert tally.wins[row] == wins[(pairs == row).any(axis=1)].sum()


@pytest.mark.parametrize(
    "representation", [{}, {"kernel": "rbf"}, {"kernel": "rbf", "basis": np.arange(0, 20, 3)}]
)
@pytest.mark.parametrize("learner", [RLS, RankRLS])
def test_equal_rows_are_tied_and_not_ordered_by_rounding(learner, representation):
    model = learner(**representation)
    y = np.repeat([0.0, 1.0], 10)
    assert leave_pair_out_tally(model, np.ones((20, 1)), y).share == 0.5
    X = np.repeat(np.random.default_rng(0).normal(size=(10, 3)), 2, axis=0)[np.r_[0:20:2, 1:20:2]]
    # Row k and row k + 10 are equal: each of these pairs counts half, whatever was learned from the others.
    tally = leave_pair_out_tally(model, X, y)
    pairs, predictions = leave_pair_out(model, X, y)
    twins = pairs[:, 1] == pairs[:, 0] + 10
    won = np.where(twins, 0.5, predictions[:, 1] > predictions[:, 0] + 1e-9)
    np.testing.assert_allclose(tally.share, won.mean())


@examples(30)
@given(LEARNERS, REPRESENTATIONS, ALPHAS, st.integers(0, 999))
def test_pairs_of_several_outputs_are_those_of_each(learner, representation, alpha, seed):
    rng = np.random.default_rng(seed)
    X, Y = rng.normal(size=(10, 3)), rng.integers(0, 4, size=(10, 3)) * 1.0
    Y[:4] = np.array([0.0, 1.0, 2.0, 0.0])[:, None]  # whatever pair leaves, something is left to compare
    model = learner[0](alpha, **learner[1], **representation)
    pairs, found = leave_pair_out(model, X, Y)
    assert [tuple(pair) for pair in pairs] == [
        (i, j) for i in range(10) for j in range(i + 1, 10) if (Y[i] != Y[j]).any()
    ]
    for output, y in enumerate(Y.T):
        expected = leave_pair_out(model, X, y, pairs=pairs)[1]
        np.testing.assert_allclose(found[:, :, output], expected, rtol=1e-9, atol=1e-9)
    some, alphas = pairs[::7], [alpha, 2 * alpha]
    expected = np.array([oracles.refit_without(model, X, Y, None, pair, pair) for pair in some])
    np.testing.assert_allclose(
        HeldOut(model, X, Y).pairs(alphas, pairs=some)[1][0], expected, rtol=1e-6, atol=1e-6
    )


def test_outputs_share_the_matrix_of_leave_pair_out(monkeypatch):
    """One inverse for a thousand outputs; pairs are counted for one."""
    from preflearn.squared.holdout import pair as pair_holdout

    inverses = []
    real = pair_holdout.explicit_resolvent
    monkeypatch.setattr(
        pair_holdout, "explicit_resolvent", lambda *args, **more: inverses.append(1) or real(*args, **more)
    )
    rng = np.random.default_rng(0)
    X, Y = rng.normal(size=(20, 3)), rng.normal(size=(20, 1000))
    assert leave_pair_out(RankRLS(kernel="rbf"), X, Y, pairs=[[0, 1], [2, 3]])[1].shape == (2, 2, 1000)
    assert len(inverses) == 1
    with pytest.raises(ValueError, match="found y with 1000 columns.*leave_pair_out"):
        leave_pair_out_tally(RankRLS(kernel="rbf"), X, Y)


def test_given_pairs_and_groups():
    rng = np.random.default_rng(0)
    X, y, groups = rng.normal(size=(12, 3)), rng.normal(size=12), np.arange(12) // 2
    pairs = np.array([[3, 8], [0, 1], [8, 3]])
    for model in (RankRLS(kernel="rbf"), RLS(), RankRLS(kernel="rbf", n_basis=6, random_state=0), Ridge()):
        given_back, found = leave_pair_out(model, X, y, pairs=pairs, groups=groups)
        np.testing.assert_array_equal(given_back, pairs)
        for pair, prediction in zip(pairs, found, strict=True):
            leaving = np.flatnonzero(np.isin(groups, groups[pair]))
            np.testing.assert_allclose(
                prediction, oracles.refit_without(model, X, y, None, leaving, pair), rtol=1e-7
            )


def test_blocks_of_pairs_equal_one_block(monkeypatch):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(30, 3)), rng.integers(0, 2, size=30).astype(float)
    for model in (RankRLS(), RankRLS(kernel="rbf", n_basis=10, random_state=0)):
        whole = leave_pair_out(model, X, y)[1]
        share = leave_pair_out_tally(model, X, y).share
        monkeypatch.setattr("preflearn.squared.holdout.pair._BLOCK_ENTRIES", 64)
        np.testing.assert_allclose(leave_pair_out(model, X, y)[1], whole, rtol=1e-9)
        assert leave_pair_out_tally(model, X, y).share == pytest.approx(share)
        monkeypatch.undo()


@examples(25)
@given(
    st.sampled_from([RLS, RankRLS]),
    st.sampled_from([0.0, 1e-5, 1.0]),
    st.booleans(),
    st.integers(0, 999),
)
def test_pairs_of_several_alphas_are_ordered_as_by_one(learner, gap, tied, seed):
    """Those of nearly equal rows as well."""
    rng = np.random.default_rng(seed)
    X = np.tile(rng.normal(size=(rng.integers(20, 150), 3)), (2, 1))
    X[len(X) // 2 :] += gap * rng.normal(size=(len(X) // 2, 3))
    y = X[:, 0] + rng.normal(size=len(X))
    y = np.round(y) if tied else y
    alphas = [0.01, 1.0, 30.0]
    found = HeldOut(learner(kernel="rbf"), X, y).tally(alphas)
    for alpha, tally in zip(alphas, found, strict=True):
        expected = leave_pair_out_tally(learner(alpha, kernel="rbf"), X, y)  # from a matrix of its own
        np.testing.assert_array_equal(tally.wins, expected.wins)
        np.testing.assert_array_equal(tally.pairs, expected.pairs)


@examples(40)
@given(
    st.sampled_from([{}, {"kernel": "rbf"}, {"kernel": "rbf", "basis": np.array([0, 2, 5])}]),
    ALPHAS,
    st.booleans(),
    st.integers(0, 999),
)
def test_preferences_equal_refitting(representation, alpha, grouped, seed):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(8, 3))
    pairs = np.array([rng.choice(8, size=2, replace=False) for _ in range(10)])
    magnitude, weight = rng.uniform(0.5, 2, 10), rng.uniform(0.1, 2, 10)
    judge = np.arange(10) % 4 if grouped else None
    model = RankRLS(alpha, **representation)
    found = leave_preference_out(model, X, pairs, magnitude=magnitude, weight=weight, groups=judge)
    sets = [np.flatnonzero(judge == j) for j in range(4)] if grouped else [np.array([k]) for k in range(10)]
    expected = oracles.refit_without_preferences(model, X, pairs, magnitude, weight, sets)
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6 * max(1.0, abs(expected).max()))


@examples(30)
@given(
    st.sampled_from(
        [{}, {"solver": "dual"}, {"kernel": "rbf"}, {"kernel": "rbf", "basis": np.array([0, 2, 5])}]
    ),
    st.sampled_from(["dense", "sparse", "float32"]),
    ALPHAS,
    st.integers(2, 8),
    st.integers(0, 999),
)
def test_preferences_between_copies_of_few_rows_equal_refitting(representation, form, alpha, distinct, seed):
    """Two rows a preference, many of them the same: one row of the problem for all that are equal."""
    rng = np.random.default_rng(seed)
    X = rng.integers(-2, 3, size=(distinct, 4))[rng.integers(distinct, size=24)].astype(float)
    pairs, magnitude, weight = (
        rng.permutation(24).reshape(12, 2),
        rng.uniform(0.5, 2, 12),
        rng.uniform(0.1, 2, 12),
    )
    data = {"dense": X, "sparse": sp.csr_array(X), "float32": X.astype(np.float32)}[form]
    model = RankRLS(alpha, **representation)
    if "kernel" in representation:
        data = X
    held_out = HeldOut.of_pairs(model, data, pairs, magnitude=magnitude, weight=weight)
    each = [np.array([k]) for k in range(12)]
    expected = oracles.refit_without_preferences(model, X, pairs, magnitude, weight, each)
    size = max(1.0, abs(expected).max())
    np.testing.assert_allclose(held_out.preferences()[0], expected, rtol=1e-6, atol=1e-6 * size)
    n_rows = 24 if "basis" in representation else len(np.unique(X, axis=0))
    assert held_out._problem.n_rows == n_rows


def test_preferences_that_alone_say_something_are_not_refitted(monkeypatch):
    """Items that are compared once: with little regularisation the preference is all that is known of them."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(12, 12))
    pairs = np.stack([np.arange(11), np.arange(1, 12)], axis=1)
    magnitude, weight = rng.uniform(0.5, 2, 11), rng.uniform(0.1, 50, 11)
    alphas = [1e-5, 1e-3, 0.1]
    each = [np.array([k]) for k in range(11)]
    expected = [
        oracles.refit_without_preferences(RankRLS(alpha), X, pairs, magnitude, weight, each)
        for alpha in alphas
    ]
    monkeypatch.setattr("preflearn.squared.holdout.feature.solve_primal", None)
    problem = Problem.read(RankRLS(), X, np.zeros(12), None)
    task = PreferenceComparisons(12, pairs, magnitude, weight)
    by_rows = FullKernel(problem.inputs, [task], None)
    found = by_rows.by_features(task, Asked()).predict_without_preferences(each, alphas)
    np.testing.assert_allclose(np.concatenate(found, axis=1), expected, rtol=1e-6)


def test_other_estimators_with_fit_pairs_are_refitted():
    class Mean:
        """Not a squared-loss model of ours: the mean row difference as weights."""

        def get_params(self, deep=True):
            return {}

        def fit_pairs(self, X, pairs, **_):
            self.w = (X[pairs[:, 0]] - X[pairs[:, 1]]).mean(axis=0)
            return self

        def predict(self, X):
            return X @ self.w

    X, pairs = np.random.default_rng(0).normal(size=(5, 2)), np.array([[0, 1], [2, 3], [4, 0]])
    found = leave_preference_out(Mean(), X, pairs)
    w = (X[[2, 4]] - X[[3, 0]]).mean(axis=0)
    np.testing.assert_allclose(found[0], (X[0] - X[1]) @ w)


@pytest.mark.parametrize(
    ("y", "arguments", "message"),
    [
        (np.zeros(6), {}, "All y are equal"),
        (np.arange(3.0), {}, "at least four rows"),
        (np.array([0, 1, np.nan, 2, 3]), {}, "NaN"),
        (np.zeros((6, 2)), {}, "All y are equal"),
        (np.arange(6.0), {"pairs": [[0, 0]]}, "to itself"),
        (np.arange(6.0), {"pairs": [[0, 6]]}, "out of range"),
        (np.arange(6.0), {"groups": [0, 0, 0, 1, 1, 1]}, "contain all rows but one"),
    ],
)
def test_bad_pairs_are_refused(y, arguments, message):
    with pytest.raises(ValueError, match=message):
        leave_pair_out(RankRLS(), np.random.default_rng(0).normal(size=(len(y), 2)), y, **arguments)


def test_bad_preferences_are_refused():
    X = np.eye(4)
    with pytest.raises(TypeError, match="fit_pairs"):
        leave_preference_out(Ridge(), X, [[0, 1], [1, 2]])
    with pytest.raises(ValueError, match="at least two preferences"):
        leave_preference_out(RankRLS(), X, [[0, 1]])
    with pytest.raises(ValueError, match="one group"):
        leave_preference_out(RankRLS(), X, [[0, 1], [1, 2]], groups=["a", "a"])
    with pytest.raises(ValueError, match="would be ignored"):
        leave_preference_out(RankRLS(weighting="query"), X, [[0, 1], [1, 2]])


@examples(40)
@given(st.integers(0, 10**6), ALPHAS, st.sampled_from(["linear", "rbf"]))
@example(275, 2.0**-15, "linear")  # without one pair, all basis vectors are copies of one
def test_copies_of_basis_vectors_leave_only_together(seed, alpha, kernel):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(6, 7))[rng.integers(0, 6, 12)]
    y, basis = rng.normal(size=12), rng.choice(12, 7, replace=False)
    model = RankRLS(alpha, kernel=kernel, basis=basis)
    pairs, found = leave_pair_out(model, X, y)
    expected = [oracles.refit_reduced(model, X, y, np.zeros(12), basis, pair) for pair in pairs]
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6 * max(1.0, np.abs(expected).max()))
