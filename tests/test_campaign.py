"""A campaign against exact arithmetic: every answer is right to a stated tolerance, or refused for its true reason.

alpha runs from 2^-30 to 2^30 and the scale of the features from 1e-100 to 1e100. The oracle is `rationals`: the learner
refitted in rational arithmetic on the very floats that the library is given. A short version runs always;
PREFLEARN_LONG_TESTS=1 takes more scales, alphas, shapes and seeds.
"""

from __future__ import annotations

import os
import re
import warnings
from functools import partial

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

from preflearn import (
    RLS,
    RLSCV,
    OrderPreferenceRegressor,
    RankRFM,
    RankRLS,
    RankRLSCV,
    RankSVM,
    TransductiveRankRLS,
    relations,
)
from preflearn.model_selection import HeldOut, cross_val_predict, leave_pair_out, leave_preference_out
from preflearn.relations import KroneckerRLS, KroneckerRLSCV, TwoStepRLS, TwoStepRLSCV
from rationals import (
    ExactLearner,
    ExactRelation,
    column,
    distance_kernel,
    exact_products,
    linear_kernel,
    number,
    preferences,
    rational,
    relative_error,
    solve,
    to_float,
)

LONG = os.environ.get("PREFLEARN_LONG_TESTS") == "1"
# What docs/guarantees.md promises of predictions, relative to the largest of them.
TOLERANCE = 1e-6
ALPHAS = [2.0**k for k in (range(-30, 31, 5) if LONG else (-30, 0, 30))]
# Powers of two next to 1e-100 ... 1e100.
SCALES = [
    2.0**k
    for k in (
        (-332, -200, -100, -50, -30, -15, 0, 15, 30, 50, 100, 200, 332) if LONG else (-332, -30, 0, 30, 332)
    )
]
SEEDS = range(4) if LONG else range(1)
# A refusal must name what is wrong: the numbers, not something else.
TRUE_REASON = re.compile("alpha|rounding|overflow|scale|precision|range of float64", re.IGNORECASE)


def short(values):
    """Numbers of few digits, with which exact arithmetic is quick."""
    return np.round(np.asarray(values) * 32) / 32


QUERIES = np.repeat(np.arange(3), 3)


def make_data(shape: str, seed: int):
    """Features, scores and queries of one kind of problem."""
    rng = np.random.default_rng([seed, len(shape)])
    m, n = 9, {"wide": 12, "tall": 3}.get(shape, 4)
    X = short(rng.normal(size=(m, n)))
    if shape == "equal rows":
        X[4], X[7] = X[0], X[1]
    if shape == "equal columns":
        X[:, 3] = X[:, 0]
    if shape == "offsets":
        X = X + np.array([2.0**30, -(2.0**20), 0.0, 2.0**10])
    return X, short(rng.normal(size=m)), QUERIES


SHAPES = ["wide", "tall", "equal rows", "equal columns", "offsets"]
ROUTES = [("dual", {}), ("primal", {}), ("auto", {"basis": np.array([0, 4, 8])})]
ROUTE_NAMES = ["dual", "primal", "reduced set"]


def problems(shape):
    """Every alpha with every scale, for each seed."""
    for seed in SEEDS:
        X, y, qid = make_data(shape, seed)
        for scale in SCALES:
            for alpha in ALPHAS:
                yield alpha, scale, X * scale, y, qid


def check(cases, answer, exact, *, may_refuse_all: bool = False, tolerance: float = TOLERANCE) -> None:
    """Compare answer(alpha, X, y, qid) with the exact one; report all that are neither right nor refused."""
    wrong, n_right = [], 0
    for alpha, scale, *data in cases:
        label = f"alpha {alpha:.0e} scale {scale:.0e}"
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                found = answer(alpha, *data)
            except ValueError as error:  # LinAlgError is one, and says nothing to a user
                if isinstance(error, np.linalg.LinAlgError) or not TRUE_REASON.search(str(error)):
                    wrong.append(f"{label}: refused for another reason: {error}")
                continue
        error = relative_error(found, exact(alpha, *data))
        n_right += 1
        if not error <= tolerance:
            wrong.append(f"{label}: off by {error:.1e}")
    assert not wrong, f"{len(wrong)} wrong:\n" + "\n".join(wrong[:40])
    assert n_right or may_refuse_all, "everything was refused"


def estimator(kind, alpha, solver, options):
    if kind == "rank":
        return RankRLS(alpha, solver=solver, **options)
    return RLS(alpha, solver=solver, fit_intercept=kind == "rls-intercept", **options)


def folds_of(qid):
    return [np.flatnonzero(qid == q) for q in np.unique(qid)]


def independent(shape, options):
    """Basis vectors that are linearly independent, also without a fold: the oracle needs them."""
    return {"basis": np.array([2, 5])} if options and shape in ("equal columns", "equal rows") else options


@pytest.mark.parametrize("kind", ["rank", "rls", "rls-intercept"])
@pytest.mark.parametrize("route", ROUTES, ids=ROUTE_NAMES)
@pytest.mark.parametrize("shape", SHAPES)
def test_fit(kind, route, shape) -> None:
    solver, options = route[0], independent(shape, route[1])

    def answer(alpha, X, y, qid):
        q = {"qid": qid} if kind == "rank" else {}
        return estimator(kind, alpha, solver, options).fit(X, y, **q).predict(X)

    def exact(alpha, X, y, qid):
        return ExactLearner(kind, alpha, options.get("basis")).fitted(X, y, qid)

    check(problems(shape), answer, exact, may_refuse_all=bool(options) and shape == "offsets")


@pytest.mark.parametrize("kind", ["rank", "rls", "rls-intercept"])
@pytest.mark.parametrize("route", ROUTES, ids=ROUTE_NAMES)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("cv", ["queries", "rows"])
def test_cross_val_predict(kind, route, shape, cv) -> None:
    solver, options = route[0], independent(shape, route[1])
    folds = folds_of(QUERIES) if cv == "queries" else [np.array([0, 1]), np.arange(2, 5), np.arange(5, 9)]
    if options:
        folds = [fold for fold in folds if not np.isin(options["basis"], fold).all()]
    rows = np.concatenate(folds)

    def queries(qid):
        return qid if kind == "rank" and cv == "queries" else None

    def answer(alpha, X, y, qid):
        model = estimator(kind, alpha, solver, options)
        return cross_val_predict(model, X, y, qid=queries(qid), cv=folds)[rows]

    def exact(alpha, X, y, qid):
        learner = ExactLearner(kind, alpha, options.get("basis"))
        return [value for fold in folds for value in learner.without(X, y, queries(qid), fold, fold)]

    check(problems(shape), answer, exact, may_refuse_all=bool(options) and shape == "offsets")


@pytest.mark.parametrize("kind", ["rank", "rls", "rls-intercept"])
@pytest.mark.parametrize("route", ROUTES, ids=ROUTE_NAMES)
@pytest.mark.parametrize("shape", SHAPES)
def test_leave_pair_out(kind, route, shape) -> None:
    solver, options = route[0], independent(shape, route[1])
    pairs = np.array([[0, 5], [4, 8], [2, 3], [1, 7]])

    def answer(alpha, X, y, qid):
        return leave_pair_out(estimator(kind, alpha, solver, options), X, y, pairs=pairs)[1]

    def exact(alpha, X, y, qid):
        learner = ExactLearner(kind, alpha, options.get("basis"))
        return [value for pair in pairs for value in learner.without(X, y, None, pair, pair)]

    check(problems(shape), answer, exact, may_refuse_all=bool(options) and shape == "offsets")


@pytest.mark.parametrize("solver", ["dual", "primal"])
@pytest.mark.parametrize("shape", SHAPES)
def test_leave_preference_out(solver, shape) -> None:
    pairs = np.array([[1, 0], [2, 1], [3, 2], [4, 8], [5, 0], [7, 6], [6, 5]])

    def answer(alpha, X, y, qid):
        return leave_preference_out(RankRLS(alpha, solver=solver), X, pairs)

    def exact(alpha, X, y, qid):
        out = []
        for k in range(len(pairs)):
            L, b = preferences(9, np.delete(pairs, k, axis=0))
            f = linear_kernel(X) * solve(linear_kernel(X), L, b, alpha)
            out.append(f[int(pairs[k, 0]), 0] - f[int(pairs[k, 1]), 0])
        return out

    check(problems(shape), answer, exact)


@pytest.mark.parametrize("solver", ["dual", "primal"])
@pytest.mark.parametrize("held_out", [False, True])
def test_collinear_columns_are_right_or_warned_of(solver, held_out) -> None:
    """Columns that differ by a share of their size, at an alpha that does not decide between them."""
    wrong, n_right, n_warned = [], 0, 0
    for seed in SEEDS:
        X, y, qid = make_data("tall", seed)
        for power in range(-44, 0, 4):
            near = X[:, 0] * (1 + 2.0**power * np.random.default_rng(seed).choice([-1.0, 0.0, 1.0], 9))
            rows = np.column_stack([X, near]) * 2.0**66
            folds = [np.arange(0, 3), np.arange(3, 9)]
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                model, oracle = RankRLS(1.0, solver=solver), ExactLearner("rank", 1.0)
                if held_out:
                    found = cross_val_predict(model, rows, y, qid=qid, cv=[folds[0]])[:3]
                    expected = oracle.without(rows, y, qid, folds[0], folds[0])
                else:
                    found, expected = model.fit(rows, y, qid=qid).predict(rows), oracle.fitted(rows, y, qid)
            warned = any("collinear" in str(one.message) for one in caught)
            error = relative_error(found, expected)
            n_right, n_warned = n_right + (error <= TOLERANCE), n_warned + warned
            if error > TOLERANCE and not warned:
                wrong.append(f"2^{power}: off by {error:.1e}")
    assert not wrong, "\n".join(wrong)
    assert n_right and (n_warned or held_out)


OFFSETS = [0.0, 2.0**10, 2.0**20, 2.0**30] if LONG else [0.0, 2.0**30]
DISTANCE_KERNELS = [("rbf", 0.5), ("laplacian", 0.5), ("matern", 0.5), ("matern", 1.5), ("matern", 2.5)]
# Kernels other than the linear one are as exact as their values: 1e-16 times the largest eigenvalue over alpha.
KERNEL_ALPHAS = [2.0**k for k in (range(-20, 31, 5) if LONG else (-15, 0, 30))]


def shifted_problems(shape):
    """Rows of a spread of 1 that lie up to 1e9 away from 0; an outlier among them."""
    for seed in SEEDS:
        X, y, qid = make_data(shape, seed)
        if shape == "an outlier":
            X[3] += 16.0
        for offset in OFFSETS:
            for alpha in KERNEL_ALPHAS:
                yield alpha, offset, X + offset * np.array([1.0, -1.0, 0.5, 1.0]), y, qid


@pytest.mark.parametrize("reduced", [False, True])
@pytest.mark.parametrize("kernel", DISTANCE_KERNELS, ids=lambda kernel: f"{kernel[0]}-{kernel[1]}")
@pytest.mark.parametrize("shape", ["plain", "an outlier"])
def test_kernels_of_differences_do_not_see_offsets(shape, kernel, reduced) -> None:
    """Training, and held-out queries, rows and pairs."""
    name, nu = kernel
    options = {"kernel": name, "gamma": 0.25, **({"basis": np.array([0, 3, 4, 8])} if reduced else {})}
    if name == "matern":
        options["kernel_params"] = {"nu": nu}
    folds, parts = folds_of(QUERIES), [np.array([0, 1]), np.arange(2, 5), np.arange(5, 9)]
    of_rows = distance_kernel(name, 0.25, nu)

    def answer(what, cost, alpha, X, y, qid):
        model = RankRLS(alpha, cost=cost, **options)
        if what == "fit":
            return model.fit(X, y, qid=qid).predict(X)
        cv, q = (folds, qid) if what == "queries" else (parts, None)
        return cross_val_predict(model, X, y, qid=q, cv=cv)

    def exact(what, cost, alpha, X, y, qid):
        oracle = ExactLearner("rank", alpha, options.get("basis"), kernel=of_rows, cost=cost)
        if what == "fit":
            return oracle.fitted(X, y, qid)
        return oracle.held_out(X, y, *((qid, folds) if what == "queries" else (None, parts)))

    for what, cost in (
        ("fit", "magnitude"),
        ("fit", "relative"),
        ("queries", "magnitude"),
        ("rows", "relative"),
    ):
        check(shifted_problems(shape), partial(answer, what, cost), partial(exact, what, cost))


# Rows that count up to 1e12 times as much as others: one of them, two in one query, two that are tied, all different.
RATIOS = [1e2, 1e4, 1e6, 1e8, 1e10, 1e12] if LONG else [1e12]
WEIGHTED = {"one": [4], "two": [1, 2], "tied": [3, 4], "graded": []}
# Pairs of two rows with a weight of 1e12 weigh 1e24 times as much as others.
WEIGHTED_TOLERANCE = 1e-5
WEIGHTED_ROUTES = [
    ("primal", {}),
    ("dual", {}),
    ("auto", {"basis": np.array([0, 3, 4, 8])}),
    ("sparse", {}),
]
COMPARED = [
    {},
    {"ties": "exclude"},
    {"cost": "unit"},
    {"cost": "relative"},
    {"weighting": "item"},
    {"weighting": "query"},
    {"weighting": "item", "ties": "exclude"},
]


def weighted_problems(kind):
    for seed in SEEDS:
        X, y, qid = make_data("tied scores", seed)
        y[4], y[1] = y[3], y[0]
        for ratio in RATIOS:
            w = np.ones(len(y))
            w[WEIGHTED[kind]] = ratio
            if kind == "graded":
                w = ratio ** np.random.default_rng(seed).permutation(np.linspace(0, 1, len(y)))
            for alpha in ALPHAS:
                yield alpha, ratio, X, y, qid, w


@pytest.mark.parametrize("learner", ["rank", "rls", "rls-intercept"])
@pytest.mark.parametrize("route", WEIGHTED_ROUTES, ids=["primal", "dual", "reduced", "sparse"])
@pytest.mark.parametrize("kind", WEIGHTED)
def test_weights_of_rows(kind, route, learner) -> None:
    """Training, and held-out queries, rows and pairs, with every cost and weighting."""
    solver, representation = ("primal", {}) if route[0] == "sparse" else route
    folds, parts = folds_of(QUERIES), [np.array([0, 1]), np.arange(2, 5), np.arange(5, 9)]
    pairs = np.array([[0, 5], [4, 8], [1, 7]])

    def answer(options, what, alpha, X, y, qid, w):
        X = sp.csr_array(X) if route[0] == "sparse" else X
        model = estimator(learner, alpha, solver, {**representation, **options})
        if what == "fit":
            q = {"qid": qid} if learner == "rank" else {}
            return model.fit(X, y, **q, sample_weight=w).predict(X)
        if what == "pairs":
            return HeldOut(model, X, y, sample_weight=w).pairs(pairs=pairs)[1]
        cv, q = (folds, qid) if what == "queries" else (parts, None)
        return cross_val_predict(model, X, y, qid=q, cv=cv, sample_weight=w)

    def exact(options, what, alpha, X, y, qid, w):
        oracle = ExactLearner(learner, alpha, representation.get("basis"), w, **options)
        qid = qid if learner == "rank" else None
        if what == "fit":
            return oracle.fitted(X, y, qid)
        if what == "pairs":
            return [value for pair in pairs for value in oracle.without(X, y, None, pair, pair)]
        return oracle.held_out(X, y, *((qid, folds) if what == "queries" else (None, parts)))

    for options in COMPARED if learner == "rank" else [{}]:
        for what in ("fit", "queries", "rows", "pairs"):
            check(
                weighted_problems(kind),
                partial(answer, options, what),
                partial(exact, options, what),
                tolerance=WEIGHTED_TOLERANCE,
            )


@pytest.mark.parametrize("kind", ["rank", "rls-intercept"])
@pytest.mark.parametrize("solver", ["dual", "primal"])
@pytest.mark.parametrize("shape", ["wide", "tall", "offsets"])
def test_searches(kind, solver, shape) -> None:
    """The squared errors of held-out predictions at every alpha of one search."""

    def cases():
        for seed in SEEDS:
            X, y, qid = make_data(shape, seed)
            for scale in SCALES:
                yield 0.0, scale, X * scale, y, qid

    def answer(_, X, y, qid):
        search, q = (RankRLSCV, {"qid": qid}) if kind == "rank" else (RLSCV, {})
        model = search(ALPHAS, cv=folds_of(qid), scoring="neg_mean_squared_error", solver=solver)
        return model.fit(X, y, **q).cv_scores_

    def exact(_, X, y, qid):
        truth = [number(value) for value in y]
        scores = []
        for alpha in ALPHAS:
            f = ExactLearner(kind, alpha).held_out(X, y, qid if kind == "rank" else None, folds_of(qid))
            scores.append(-sum((t - value) ** 2 for t, value in zip(truth, f, strict=True)) / len(y))
        return scores

    check(cases(), answer, exact)


RELATION_SCALES = (
    SCALES + [2.0**-66, 2.0**-23, 2.0**23, 2.0**66] if LONG else [2.0**-332, 2.0**-23, 1.0, 2.0**332]
)
RELATION_SHAPES = ["wide", "tall", "equal rows"] if LONG else ["equal rows"]


def relation_problems(shape):
    """Features of four rows and of three columns, and their labels; both sides in other units."""
    for seed in range(1):
        rng = np.random.default_rng([seed, len(shape)])
        U, V = short(rng.normal(size=(4, 2))), short(rng.normal(size=(3, 4 if shape == "wide" else 2)))
        if shape == "equal rows":
            U[2] = U[0]
        Y = short(rng.normal(size=(4, 3)))
        for scale in RELATION_SCALES:
            for alpha in ALPHAS[::3] if LONG else ALPHAS:
                yield alpha, scale, U * scale, V, Y
                yield alpha * scale**2, scale, U * scale, V, Y
                if LONG or scale < 1:
                    yield alpha, scale, U * scale, V * scale, Y


@pytest.mark.parametrize("compare", [None, "rows", "columns"])
@pytest.mark.parametrize("learner", ["kronecker", "two-step"])
@pytest.mark.parametrize("shape", RELATION_SHAPES)
@pytest.mark.parametrize("what", ["fit", "rows", "columns", "both", "entries"])
def test_relations(what, shape, learner, compare) -> None:
    """Complete labels: training, and every setting of hold-outs."""
    if learner == "two-step" and what == "entries":
        pytest.skip("has no entry-wise objective")

    def answer(alpha, U, V, Y):
        if learner == "kronecker":
            model = KroneckerRLS(alpha, compare=compare)
        else:
            model = TwoStepRLS(alpha, 1.0, compare=compare)
        if what == "fit":
            return model.fit(U, V, Y).predict(U, V)
        return relations.cross_val_predict(model, U, V, Y, hold_out=what)

    def exact(alpha, U, V, Y):
        oracle = ExactRelation(alpha if learner == "kronecker" else (alpha, 1.0), compare)
        if what == "fit":
            found = oracle.without(U, V, Y, (), ())
            return [found[i, j] for i in range(4) for j in range(3)]
        left = {
            "rows": lambda i, j: ((i,), ()),
            "columns": lambda i, j: ((), (j,)),
            "both": lambda i, j: ((i,), (j,)),
            "entries": lambda i, j: ((), (), ((i, j),)),
        }[what]
        return [oracle.without(U, V, Y, *left(i, j))[i, j] for i in range(4) for j in range(3)]

    check(relation_problems(shape), answer, exact)


def test_relations_of_almost_nothing() -> None:
    """One row, one column, one entry: the answer where there is one, a refusal where there is none."""
    one, few = np.array([[2.0]]), np.array([[1.0], [2.0], [4.0]])
    for learner in (KroneckerRLS(2.0), TwoStepRLS(2.0, 2.0)):
        exact = ExactRelation(2.0 if isinstance(learner, KroneckerRLS) else (2.0, 2.0))
        for U, V in ((one, one), (one, few), (few, one)):
            Y = np.arange(1.0, 1.0 + len(U) * len(V)).reshape(len(U), len(V))
            expected = exact.without(U, V, Y, (), ())
            cells = [expected[i, j] for i in range(len(U)) for j in range(len(V))]
            assert relative_error(learner.fit(U, V, Y).predict(U, V), cells) <= TOLERANCE
        for what in ("rows", "columns", "both", "entries"):
            with pytest.raises(ValueError, match="nothing is left|fold"):
                relations.cross_val_predict(learner, one, one, one, hold_out=what)
        for compare, U, V in (("rows", one, few), ("columns", few, one), ("rows", one, one)):
            # An object that is compared with nothing: the model without a loss is 0.
            ranker, Y = clone(learner).set_params(compare=compare), np.ones((len(U), len(V)))
            assert not ranker.fit(U, V, Y).predict(U, V).any()
            others = [name for name, side in (("rows", U), ("columns", V)) if len(side) > 1]
            for what in others + ["entries"] * bool(others):
                assert not relations.cross_val_predict(ranker, U, V, Y, hold_out=what).any()
            search = KroneckerRLSCV if isinstance(learner, KroneckerRLS) else TwoStepRLSCV
            for what in others:
                with pytest.raises(ValueError, match="no two are held out together"):
                    search(compare=compare, hold_out=what).fit(U, V, Y)
        ranker = clone(learner).set_params(compare="rows")
        assert not relations.cross_val_predict(ranker, few[:2], few, np.eye(3)[:2], hold_out="rows").any()
        with pytest.raises(ValueError, match="out of the range"):
            learner.fit(few * 1e80, few * 1e80, np.eye(3))


@pytest.mark.parametrize("shape", ["wide", "tall", "equal rows"])
def test_ranksvm_keeps_its_duality_gap_or_says_that_it_does_not(shape) -> None:
    """tol is the accuracy of the objective: the gap to a feasible point of the dual is computed exactly."""
    wrong, n_converged = [], 0
    for alpha, scale, X, y, qid in problems(shape):
        if alpha / scale**2 < 2.0**-40:
            continue  # the margin is hard up to rounding: the dual point of a rounded w certifies nothing
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                model = RankSVM(alpha, loss="squared_hinge", tol=1e-4).fit(X, y, qid=qid)
            except ValueError as error:
                assert TRUE_REASON.search(str(error)), error
                continue
        if any(issubclass(w.category, ConvergenceWarning) for w in caught):
            continue
        n_converged += 1
        gap = ranksvm_gap(X, y, qid, model.coef_, alpha)
        if not gap <= 1.001e-4:
            wrong.append(f"alpha {alpha:.0e} scale {scale:.0e}: gap {gap:.1e}")
    assert not wrong, "\n".join(wrong)
    assert n_converged


def ranksvm_gap(X, y, qid, w, alpha) -> float:
    """(J(w) - D(β)) / J(w) for β = 2 slack, the dual point that belongs to w."""
    if not np.isfinite(w).all():
        return float("inf")
    rows, weights, n = rational(X), column(w), X.shape[1]
    f = rows * weights
    norm = sum((weights[k, 0] ** 2 for k in range(n)), number(0.0))
    loss, total, image = number(0.0), number(0.0), [number(0.0)] * n
    for worse in range(len(y)):
        for better in range(len(y)):
            slack = 1 - (f[better, 0] - f[worse, 0])
            if qid[worse] == qid[better] and y[worse] < y[better] and slack > 0:
                loss, total = loss + slack**2, total + 2 * slack
                image = [image[k] + 2 * slack * (rows[better, k] - rows[worse, k]) for k in range(n)]
    # D(β) = Σ β - Σ β² / 4 - ‖Σ β d‖² / (4 alpha)
    dual = total - loss - sum((value**2 for value in image), number(0.0)) / (4 * number(alpha))
    objective = loss + number(alpha) * norm
    return to_float((objective - dual) / objective)


def rfm_data():
    rng = np.random.default_rng(0)
    X, qid = short(rng.normal(size=(24, 3))), np.repeat(np.arange(6), 4)
    return X, short(np.sin(2 * X[:, 0]) + 0.3 * X[:, 1]), qid


@pytest.mark.parametrize("metric", ["diagonal", "full"])
@pytest.mark.parametrize("kernel", ["rbf", "laplacian", "matern"])
@pytest.mark.parametrize("alpha", [2.0**-15, 1.0, 2.0**30])
def test_rankrfm_in_other_units_at_other_places_and_in_another_order(alpha, kernel, metric) -> None:
    """The metric, and so the function, does not see the unit of the features, where 0 lies, or the order of rows."""
    X, y, qid = rfm_data()
    folds = [np.flatnonzero(qid % 3 == k) for k in range(3)]

    def predict(rows, order=None, folds=folds, gamma="median"):
        order = np.arange(len(y)) if order is None else order
        model = RankRFM([alpha], kernel=kernel, gamma=gamma, metric=metric, max_rounds=2, cv=folds)
        out = np.empty(len(y))
        out[order] = model.fit(rows[order], y[order], qid=qid[order]).predict(rows[order])
        return model.best_round_, out

    chosen, expected = predict(X)
    for power in (-332, -20, 20, 332) if LONG else (-332, 332):
        # Units of one power of two; squares of features of 1e100 stay in the range of float64.
        found, out = predict(X * 2.0**power)
        assert found == chosen
        assert np.abs(out - expected).max() <= TOLERANCE * np.abs(expected).max()
    for offset in (2.0**10, 2.0**20, 2.0**30) if LONG else (2.0**30,):
        found, out = predict(X + offset)
        assert found == chosen
        assert np.abs(out - expected).max() <= TOLERANCE * np.abs(expected).max()
    order = np.random.default_rng(1).permutation(len(y))
    place = np.argsort(order)
    # A number as the width: the median distance is that of a fixed sample of pairs, other ones in another order.
    chosen, expected = predict(X, gamma=0.25)
    found, out = predict(X, order, [place[fold] for fold in folds], gamma=0.25)
    assert found == chosen
    assert np.abs(out - expected).max() <= TOLERANCE * np.abs(expected).max()


@pytest.mark.parametrize("kernel", ["rbf", "laplacian", "matern"])
@pytest.mark.parametrize("alpha", [2.0**k for k in (range(-20, 31, 5) if LONG else (-15, 0, 30))])
def test_the_last_round_of_rankrfm_is_exact(alpha, kernel) -> None:
    """With the metric and the width of the chosen round as they are, the scores are those of RankRLS."""
    X, y, qid = rfm_data()
    for offset in (0.0, 2.0**30):
        model = RankRFM([alpha], kernel=kernel, max_rounds=1, cv=3, weighting="pair").fit(
            X + offset, y, qid=qid
        )
        # The metric is a float for each feature: rows times it are exact numbers.
        seen = exact_products(X + offset, model.metric_)
        oracle = ExactLearner("rank", alpha, kernel=distance_kernel(kernel, model.gamma_))
        expected = oracle.fitted(seen, y, qid)
        assert relative_error(model.predict(X + offset), expected) <= TOLERANCE


@pytest.mark.parametrize("power", [-332, -100, -20, 20, 100, 332] if LONG else [-332, -20, 20, 332])
@pytest.mark.parametrize("learner", ["transductive", "order preferences", "ranksvm"])
def test_the_same_problem_in_other_units(power, learner) -> None:
    """With features times a power of two s and alpha times s² the function is the same: no number is rounded by it."""
    X, y, qid = make_data("tall", 0)
    scale = 2.0**power

    def answer(factor):
        if learner == "transductive":
            known = np.where(qid == 2, np.nan, y)
            return TransductiveRankRLS(alpha=factor**2).fit(X * factor, known, qid=qid).transduction_
        if learner == "ranksvm":
            return RankSVM(0.1 * factor**2).fit(X * factor, y, qid=qid).predict(X * factor)
        model = OrderPreferenceRegressor(alpha=0.01 * factor**2, kernel="linear")
        return model.fit(X * factor, y, pairs=[[1, 0], [3, 2]]).predict(X * factor)

    expected = np.asarray(answer(1.0))
    try:
        found = np.asarray(answer(scale))
    except ValueError as error:
        assert TRUE_REASON.search(str(error)) and not isinstance(error, np.linalg.LinAlgError), error
        return
    seen = np.isfinite(expected)
    assert seen.any()
    np.testing.assert_allclose(
        found[seen], expected[seen], rtol=0, atol=TOLERANCE * np.abs(expected[seen]).max()
    )


@pytest.mark.parametrize(
    "options", [{}, {"cost": "unit"}, {"cost": "relative", "ties": "exclude"}, {"ties": "exclude"}]
)
@pytest.mark.parametrize("targets", ["grades", "numbers"])
@pytest.mark.parametrize("column", ["constant inside queries", "time stamps"])
@pytest.mark.parametrize("alpha", [1.0, 2.0**-15, 2.0**-30])
def test_large_numbers_that_a_query_shares(options, column, targets, alpha) -> None:
    """A column that comparisons hardly see, or not at all, among others; every cost and way to treat ties."""
    rng = np.random.default_rng(1)
    qid = np.repeat(np.arange(4), 12)
    within = 86400.1 * qid if column == "constant inside queries" else rng.normal(size=48)
    X = np.column_stack([1.7e9 + within, rng.normal(size=(48, 2))])
    y = rng.normal(size=48) if targets == "numbers" else rng.integers(0, 3, size=48).astype(float)
    found = RankRLS(alpha, **options).fit(X, y, qid=qid).predict(X)
    exact = ExactLearner("rank", alpha, **options).fitted(X, y, qid)
    assert relative_error(found, exact) <= TOLERANCE
