"""Bad input gets one clear error, before any work."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

import preflearn as pl
from preflearn import RLS, AutoRanker, RankRFM, RankRLS, RankRLSCV, RankSVM, RankSVMCV
from preflearn.numerics import memory
from preflearn.preprocessing import TableEncoder

X = np.random.default_rng(0).normal(size=(6, 2))
Y = np.arange(6.0)
QID = [0, 0, 0, 1, 1, 1]
BOTH = pytest.mark.parametrize("learner", [RLS, RankRLS])


def with_value(array, value):
    array = array.copy()
    array.flat[3] = value
    return array


@BOTH
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_nan_and_infinity(learner, value):
    with pytest.raises(ValueError, match="X contains (NaN|infinity)"):
        learner().fit(with_value(X, value), Y)
    with pytest.raises(ValueError, match="y contains (NaN|infinity)"):
        learner().fit(X, with_value(Y, value))
    with pytest.raises(ValueError, match="X contains (NaN|infinity)"):
        learner().fit(sp.csr_array(with_value(X, value)), Y)
    with pytest.raises(ValueError, match="X contains (NaN|infinity)"):
        learner().fit(X, Y).predict(with_value(X, value))


@BOTH
def test_wrong_lengths(learner):
    with pytest.raises(ValueError, match="X has 6 rows, y has 5"):
        learner().fit(X, Y[:5])


def test_wrong_length_of_qid():
    with pytest.raises(ValueError, match="found 5 labels for 6 rows"):
        RankRLS().fit(X, Y, qid=QID[:5])


@BOTH
def test_one_dimensional_data(learner):
    with pytest.raises(ValueError, match="Expected 2D array, got 1D array"):
        learner().fit(X[:, 0], Y)


@BOTH
def test_three_dimensional_scores(learner):
    with pytest.raises(ValueError, match="3 dimensions"):
        learner().fit(X, Y.reshape(6, 1, 1))


@BOTH
def test_missing_scores(learner):
    with pytest.raises(ValueError, match="requires y to be passed"):
        learner().fit(X, None)


@BOTH
@pytest.mark.parametrize("alpha", [0, -1.0, np.nan, np.inf, "small", None, True])
def test_alpha_must_be_positive(learner, alpha):
    with pytest.raises(ValueError, match="alpha must be a positive number"):
        learner(alpha=alpha).fit(X, Y)


def test_no_comparable_pair():
    with pytest.raises(ValueError, match="each of the 6 queries has only one row"):
        RankRLS().fit(X, Y, qid=range(6))
    with pytest.raises(ValueError, match="all scores inside each query are equal.*ties='exclude'"):
        RankRLS(ties="exclude").fit(X, np.ones(6))
    with pytest.raises(ValueError, match="all scores inside each query are equal.*cost='unit'"):
        RankRLS(cost="unit").fit(X, np.array(QID, float), qid=QID)
    with pytest.raises(ValueError, match="1 sample"):
        RankRLS().fit(X[:1], Y[:1])


@pytest.mark.parametrize(
    ("pairs", "message"),
    [
        ([[0, 1], [2, 2]], r"pairs\[1\] prefers row 2 to itself"),
        ([[0, 6]], r"pairs\[0\] = \[0, 6\] names a row out of range: X has rows 0 to 5"),
        ([[-1, 2]], "out of range"),
        ([0, 1], "shape"),
        (np.empty((0, 2), int), "l >= 1"),
        ([[0.0, 1.0]], "row numbers of type int"),
    ],
)
def test_bad_preferences(pairs, message):
    with pytest.raises(ValueError, match=message):
        RankRLS().fit_pairs(X, pairs)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"magnitude": [1.0]}, "magnitude must hold one number per preference"),
        ({"magnitude": [1.0, np.nan]}, "magnitude holds NaN"),
        ({"weight": [1.0, -2.0]}, "weight must not be negative: entry 1"),
        ({"weight": 0.0}, "zero for every preference"),
    ],
)
def test_bad_magnitudes_and_weights(arguments, message):
    with pytest.raises(ValueError, match=message):
        RankRLS().fit_pairs(X, [[0, 1], [2, 3]], **arguments)


def test_options_that_preferences_would_ignore():
    with pytest.raises(ValueError, match="cost='unit' would be ignored"):
        RankRLS(cost="unit").fit_pairs(X, [[0, 1]])


@pytest.mark.parametrize("option", ["cost", "ties", "weighting", "solver", "kernel", "basis"])
def test_unknown_option_values(option):
    with pytest.raises(ValueError, match=f"{option} must be .*'nonsense'"):
        RankRLS(**{option: "nonsense"}).fit(X, Y)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"solver": "cg", "kernel": "rbf"}, "'cg' is for the linear kernel"),
        ({"solver": "primal", "kernel": "rbf"}, "needs a reduced set"),
        ({"solver": "dual", "kernel": "rbf", "n_basis": 2}, "does not take a reduced set"),
        ({"solver": "primal", "tol": 1e-3}, "tol and max_iter belong to solver='cg'"),
        ({"solver": "dual", "max_iter": 10}, "tol and max_iter belong to solver='cg'"),
        ({"solver": "cg", "tol": -1.0}, "tol is a relative residual.*found -1.0"),
        ({"solver": "cg", "tol": "tight"}, "tol is a relative residual.*found 'tight'"),
        ({"solver": "cg", "max_iter": 0}, "max_iter must be a positive int: found 0"),
        ({"max_iter": 2.5}, "max_iter must be a positive int: found 2.5"),
        ({"kernel": "rbf", "n_basis": 7}, "n_basis=7 is larger than the number of rows, 6"),
        ({"kernel": "rbf", "kernel_params": {"gama": 1.0}}, "does not take gama"),
    ],
)
@BOTH
def test_options_that_do_not_fit_together(learner, options, message):
    with pytest.raises(ValueError, match=message):
        learner(**options).fit(X, Y)


@BOTH
def test_kernel_matrices_that_are_none(learner):
    model = learner(kernel="precomputed")
    with pytest.raises(ValueError, match="must be square for fit.*6 × 2"):
        model.fit(X, Y)
    with pytest.raises(ValueError, match=r"not symmetric: K\[0, 3\] = .* but K\[3, 0\]"):
        model.fit(with_value(np.eye(6), 0.5), Y)
    with pytest.raises(ValueError, match="not positive semidefinite"):
        model.fit(-np.eye(6) * 10, Y)
    with pytest.raises(TypeError, match="dense array"):
        model.fit(sp.eye_array(6, format="csr"), Y)
    with pytest.raises(ValueError, match="2 features, but .* is expecting 6"):
        model.fit(np.eye(6), Y).predict(np.eye(2))


@pytest.mark.parametrize(
    ("options", "shape"),
    [
        ({"kernel": "rbf"}, (3000, 2)),
        ({"kernel": "rbf", "cost": "relative"}, (3000, 2)),
        ({"solver": "primal"}, (10, 3000)),
    ],
)
def test_data_too_large_for_memory(monkeypatch, options, shape):
    monkeypatch.setattr(memory, "available_bytes", lambda: 30_000_000)
    big = np.random.default_rng(0).normal(size=shape)
    with pytest.raises(MemoryError, match="n_basis=.*solver='cg'"):
        RankRLS(**options).fit(big, np.arange(shape[0], dtype=float), qid=np.arange(shape[0]) // 5)


def test_a_score_with_qid_on_a_regressor():
    with pytest.raises(ValueError, match="takes no qid"):
        RLS().fit(X, Y).score(X, Y, qid=QID)


def test_a_solver_that_cannot_serve_is_refused_before_the_kernel_is_evaluated():
    def never(a, b):
        raise AssertionError("the kernel was evaluated")

    with pytest.raises(ValueError, match="does not take a reduced set"):
        RankRLS(kernel=never, solver="dual", n_basis=3).fit(list("abcdef"), Y)


def test_pairs_of_cost_relative_too_many_for_memory(monkeypatch):
    monkeypatch.setattr(memory, "available_bytes", lambda: 30_000_000)
    with pytest.raises(
        MemoryError, match="3000 × 3000 .*cost='relative' needs.*Use cost='magnitude' or 'unit'"
    ):
        RankRLS(cost="relative").fit(np.zeros((3000, 2)), np.arange(3000.0))


TABLE = pd.DataFrame({"price": np.sqrt(np.arange(12.0)), "colour": ["red", "green", "blue"] * 4})
GRADES, QUERIES = np.arange(12) % 3, np.repeat(["a", "b", "c"], 4)


@pytest.mark.parametrize(
    ("y", "words"),
    [
        (np.where(np.arange(12) == 5, np.nan, GRADES), "contains NaN. Row 5 is the first: leave out rows"),
        ([None, *GRADES[1:]], "contains NaN. Row 0 is the first"),
        (np.where(np.arange(12) == 7, np.inf, GRADES), "Row 7 is the first: replace it by a finite number"),
        (["good", "bad"] * 6, "'good'. y must hold numbers, higher is better: write 0, 1, 2"),
        ([10**400 + k for k in range(12)], "above 1.8e+308, the largest of float64: divide them"),
        (
            [10**30 + k for k in range(12)],
            "12 different numbers near 1e+30, which are all equal in the 16 digits",
        ),
        (np.arange(12) + 2**62, "12 different numbers near 4.61169e+18"),
    ],
)
@pytest.mark.parametrize("learner", [AutoRanker(), RankRLS(), RankRLSCV(), RankSVM()])
def test_targets_that_nothing_can_be_learned_from(learner, y, words):
    """One line: what was found, where, and what to do."""
    X = TABLE[["price"]].to_numpy()
    with pytest.raises(ValueError, match=re.escape(words)) as error:
        learner.fit(X, y, qid=QUERIES)
    assert "\n" not in str(error.value)


def test_large_whole_numbers_that_differ_are_targets():
    found = RankRLS().fit(TABLE[["price"]].to_numpy(), 2**62 + 2**40 * GRADES, qid=QUERIES)
    assert np.isfinite(found.coef_).all()


@pytest.mark.parametrize(
    ("table", "words"),
    [
        (TABLE[:1], "1 sample(s), and a row alone shows no differences: expected two rows or more"),
        (TABLE.assign(price=1.0, colour=None), "'price' has one value, 'colour' has no value. Add a column"),
    ],
)
def test_tables_without_a_feature_are_refused_in_one_line(table, words):
    with pytest.raises(ValueError, match=re.escape(words)) as error:
        AutoRanker().fit(table, GRADES[: len(table)], qid=QUERIES[: len(table)])
    assert "\n" not in str(error.value)


def test_a_renamed_column_is_one_problem():
    model = TableEncoder().fit(TABLE)
    words = "column 'price' of the training data is missing; found instead: 'Price'."
    with pytest.raises(ValueError, match=words) as error:
        model.transform(TABLE.rename(columns={"price": "Price"}))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("learner", [RankRLSCV(), RankSVMCV(), RankRFM()])
def test_one_row_cannot_be_held_out_and_learned_from(learner):
    with pytest.raises(ValueError, match="needs four rows, two in each of two folds: found n_samples=1"):
        learner.fit([[1.0, 2.0]], [1.0])


def test_an_array_for_a_table_is_told_the_columns():
    model = TableEncoder().fit(TABLE)
    with pytest.raises(
        ValueError, match="X has 3 features, .* expecting 2 features as input: 'price', 'colour'"
    ):
        model.transform(np.ones((4, 3)))


def test_two_columns_of_one_name_are_refused_by_name():
    """By every learner and reader: which of them is meant cannot be told."""
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    from preflearn.feature_selection import GreedySelector
    from preflearn.kernels import NystromMap
    from preflearn.model_selection import cross_val_predict, evaluate_preferences, learning_curve
    from preflearn.preprocessing import QueryRelative, TableEncoder
    from preflearn.ratings import rate
    from preflearn.relations import KroneckerRLS
    from preflearn.report.look import look

    rng = np.random.default_rng(0)
    X, y = pandas.DataFrame(rng.normal(size=(20, 3)), columns=["a", "b", "a"]), rng.normal(size=20)
    good = X.iloc[:, :2]
    battles = pandas.DataFrame(
        [["x", "y", "x", "z"]] * 3, columns=["model_a", "model_b", "winner", "model_a"]
    )
    learners = [
        pl.RLS(), pl.RankRLS(), pl.RankRLS(kernel="rbf", n_basis=5), pl.RLSCV(), pl.RankRLSCV(), pl.RankSVM(),
        pl.RankRFM([1.0], max_rounds=1, cv=2), pl.TransductiveRankRLS(), pl.AutoRanker(time_limit=1e-6), NystromMap(),
        QueryRelative(), TableEncoder(), GreedySelector(pl.RankRLS(), 1),
    ]  # fmt: skip
    calls = [lambda one=one: one.fit(X, y) for one in learners]
    calls += [
        lambda: pl.RankRLS().fit(good, y).predict(X.iloc[:, [0, 2]]),
        lambda: cross_val_predict(pl.RankRLS(), X, y, cv=2),
        lambda: pl.BradleyTerry().fit_pairs(X, [[0, 1], [2, 3]]),
        lambda: pl.OrderPreferenceRegressor().fit(X, y, pairs=[[0, 1]]),
        lambda: KroneckerRLS().fit(X, good, rng.normal(size=(20, 20))),
        lambda: look(X),
        lambda: rate(battles),
        lambda: GreedySelector(pl.RLS(), 1, cv="leave-one-out").fit(good, y).transform(X.iloc[:, [0, 2]]),
        lambda: rate({"winner": [0, 1], "loser": [1, 2]}, features=X.assign(item=range(20))),
        lambda: rate({"winner": ["x", "y"], "loser": ["y", "x"]}).predict(battles.drop(columns="winner")),
        lambda: learning_curve(pl.RankRLS(), X, y, qid=np.repeat(range(10), 2)),
        lambda: evaluate_preferences(
            pl.BradleyTerry(), X, np.column_stack([np.arange(19), np.arange(1, 20)])
        ),
    ]
    for call in calls:
        with pytest.raises(ValueError, match=r"'(a|model_a)'.*rename all but one") as error:
            call()
        assert type(error.value).__module__ in ("builtins", "preflearn.errors")


def test_two_columns_of_one_name_of_an_arrow_table_are_refused_by_name():
    pa = pytest.importorskip("pyarrow")
    column = pa.array(np.arange(6.0))
    table = pa.Table.from_arrays([column] * 3, names=["a", "b", "a"])
    for one in (pl.RankRLS(), pl.AutoRanker(time_limit=1e-6), TableEncoder()):
        with pytest.raises(ValueError, match="2 columns with the name 'a': rename all but one"):
            one.fit(table, np.arange(6.0))
