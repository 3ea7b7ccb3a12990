"""OrderPreferenceRegressor against the whole program (7), its refusals, and its attributes."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from sklearn.metrics.pairwise import pairwise_kernels
from sklearn.utils.estimator_checks import check_estimator
from tests.oracles import order_objective, order_program_whole

from preflearn.learners.order_preference import OrderPreferenceRegressor
from preflearn.losses import order_program
from preflearn.losses.order_program import features_are_smaller
from preflearn.preferences import Preferences

ENGINES = [order_program._PlainEngine, pytest.param(order_program._WarmEngine, id="highspy")]


@st.composite
def problems(draw):
    """Small problems with duplicated rows, repeated and contradictory pairs, zero weights and open bounds."""
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    m, n = draw(st.integers(2, 14)), draw(st.integers(1, 4))
    X = random.normal(size=(m, n))
    if draw(st.booleans()):
        X[random.integers(m, size=m // 2)] = X[0]
    y = draw(st.sampled_from([1.0, 1e-3, 1e5])) * random.normal(size=m)
    y[random.permutation(m)[: draw(st.integers(0, m - 1))]] = np.nan
    scale = np.nanmax(np.abs(y))
    p = draw(st.integers(0, 12))
    first = random.integers(m, size=p)
    pairs = np.column_stack([first, (first + random.integers(1, m, size=p)) % m])
    margin = scale * random.normal(size=p)
    weight = random.choice([0.0, 0.5, 1.0, 3.0], size=p)
    if p:
        weight[0] = 1.0
    k = draw(st.integers(0, 3))
    lower = scale * random.normal(size=k)
    upper = lower + scale * random.choice([0.0, 1.0, np.inf], size=k)
    lower[random.random(k) < 0.3] = -np.inf
    bounds = (random.integers(m, size=k), lower, upper, random.uniform(0.1, 2.0, size=k)) if k else None
    return X, y, pairs, margin, weight, bounds


def stated(K, pairs, margin, weight, bounds):
    """The statements one by one, for the oracle; K: all rows × basis."""
    out = [(K[i] - K[j], 0.0, d, w) for (i, j), d, w in zip(pairs, margin, weight)]
    for row, low, high, w in zip(*bounds) if bounds is not None else ():
        if np.isfinite(low):
            out.append((K[row], 1.0, low, w))
        if np.isfinite(high):
            out.append((-K[row], -1.0, -high, w))
    return out


@pytest.mark.parametrize("engine", ENGINES)
@given(
    problem=problems(),
    alpha=st.sampled_from([0.0, 1e-7, 1e-3, 0.1, 10.0]),
    order_weight=st.sampled_from([0.0, 0.3, 5.0]),
    epsilon=st.sampled_from([0.0, 0.2]),
    kernel=st.sampled_from(["linear", "rbf", "poly"]),
    container=st.sampled_from([np.asarray, sp.csr_array, sp.csc_matrix]),
)
def test_equals_whole_program(engine, problem, alpha, order_weight, epsilon, kernel, container):
    if engine is order_program._WarmEngine:
        pytest.importorskip("highspy")
    X, y, pairs, margin, weight, bounds = problem
    known = np.flatnonzero(~np.isnan(y))
    K = pairwise_kernels(X, X[known], metric=kernel)
    statements = stated(K, pairs, margin, weight, bounds)
    model = OrderPreferenceRegressor(alpha, order_weight=order_weight, epsilon=epsilon, kernel=kernel)
    original = order_program._engine
    order_program._engine = lambda scaled, verbose: engine(scaled, verbose)
    try:
        model.fit(container(X), y, pairs=pairs, margin=margin, weight=weight, bounds=bounds)
    finally:
        order_program._engine = original
    scale = np.nanmax(np.abs(y))
    # Without a norm an ill-conditioned kernel asks for coefficients of any size; the solver's tolerance limits them.
    penalty = alpha if alpha > 0 else 1e-8 * np.abs(K).max()
    truth = order_program_whole(K[known], y[known], penalty, order_weight, epsilon, statements)
    if alpha > 0:
        assert_allclose(model.objective_, truth, rtol=1e-6, atol=1e-7 * scale)
    else:
        assert model.objective_ <= truth * (1 + 1e-6) + 1e-7 * scale
    reached = order_objective(
        K[known], y[known], model.dual_coef_, model.intercept_, alpha, order_weight, epsilon, statements
    )
    # Without a norm the coefficients may be large and cancel: rounding is relative to them.
    size = scale + np.abs(K).max() * np.abs(model.dual_coef_).sum()
    assert_allclose(model.objective_, reached, rtol=1e-9, atol=1e-13 * size)
    assert_allclose(sum(model.objective_parts_.values()), model.objective_, rtol=1e-12)
    f = model.predict(container(X))
    assert_allclose(f, K @ model.dual_coef_ + model.intercept_, rtol=1e-9, atol=1e-13 * size)
    slack = np.maximum(margin - (f[pairs[:, 0]] - f[pairs[:, 1]]), 0.0)
    assert_allclose(model.preference_slack_, slack, rtol=1e-9, atol=1e-13 * size)
    if bounds is not None:
        rows, lower, upper, _ = bounds
        outside = np.maximum(lower - f[rows], 0.0) + np.maximum(f[rows] - upper, 0.0)
        assert_allclose(model.bound_slack_, outside, rtol=1e-9, atol=1e-13 * size)


def data(seed=0, l=15, u=30, p=60, n=3):
    random = np.random.default_rng(seed)
    X = random.normal(size=(l + u, n))
    truth = np.sin(X[:, 0]) + X[:, 1]
    y = np.where(np.arange(l + u) < l, truth, np.nan)
    pairs = random.integers(l + u, size=(p, 2))
    pairs = pairs[pairs[:, 0] != pairs[:, 1]]
    worse_first = truth[pairs[:, 0]] < truth[pairs[:, 1]]
    pairs[worse_first] = pairs[worse_first][:, ::-1]
    return X, y, pairs, truth


@pytest.mark.parametrize("container", [np.asarray, sp.csr_array])
@pytest.mark.parametrize("epsilon", [0.0, 0.05])
def test_features_unmultiplied_give_the_same_minimum(container, epsilon):
    X, y, pairs, _ = data(l=60, u=60, p=200)
    bounds = (np.array([3, 70, 71]), np.array([-np.inf, 0.1, 0.0]), np.array([0.5, 0.1, np.inf]))
    known = np.flatnonzero(~np.isnan(y))
    K = X @ X[known].T
    truth = order_program_whole(
        K[known],
        y[known],
        1e-3,
        1.0,
        epsilon,
        stated(K, pairs, np.full(len(pairs), 0.2), np.ones(len(pairs)), (*bounds, np.ones(3))),
    )
    model = OrderPreferenceRegressor(1e-3, kernel="linear", epsilon=epsilon)
    model.fit(container(X), y, pairs=pairs, margin=0.2, bounds=bounds)
    assert features_are_smaller(container(X), known, known, _statements(pairs, len(y)))
    assert_allclose(model.objective_, truth, rtol=1e-7)
    assert_allclose(model.predict(X), K @ model.dual_coef_ + model.intercept_, atol=1e-8)


def _statements(pairs, n_rows):
    from preflearn.preferences import read_statements

    return read_statements(pairs, None, None, None, n_rows)


def test_precomputed_and_callable_kernels_equal_the_named_one():
    X, y, pairs, _ = data()
    K = pairwise_kernels(X, metric="rbf", gamma=0.3)
    named = OrderPreferenceRegressor(0.01, gamma=0.3).fit(X, y, pairs=pairs)
    given_matrix = OrderPreferenceRegressor(0.01, kernel="precomputed").fit(K, y, pairs=pairs)

    def rbf(a, b, width):
        return np.exp(-width * np.sum((a - b) ** 2))

    function = OrderPreferenceRegressor(0.01, kernel=rbf, kernel_params={"width": 0.3}).fit(
        list(X), y, pairs=pairs
    )
    assert_allclose(given_matrix.objective_, named.objective_, rtol=1e-8)
    assert_allclose(function.objective_, named.objective_, rtol=1e-8)
    assert_allclose(given_matrix.predict(K), named.predict(X), atol=1e-6)
    assert_allclose(function.predict(list(X)), named.predict(X), atol=1e-6)


def test_preferences_improve_the_order_and_reversed_ones_spoil_it():
    errors = {"without": 0.0, "with": 0.0, "reversed": 0.0}
    for seed in range(5):
        X, y, pairs, truth = data(seed, l=8, u=100, p=400)
        right = Preferences(pairs, 0.5 * (truth[pairs[:, 0]] - truth[pairs[:, 1]]))
        for name, preferences in (("without", None), ("with", right), ("reversed", right.reversed())):
            model = OrderPreferenceRegressor(1e-3).fit(X, y, pairs=preferences)
            errors[name] += np.abs(model.predict(X) - truth).mean()
    assert errors["with"] < 0.9 * errors["without"] < 0.8 * errors["reversed"], errors


def test_contradictory_preferences_pay_slack():
    X, y, _, _ = data()
    model = OrderPreferenceRegressor(1e-3).fit(X, y, pairs=[[20, 21], [21, 20]], margin=1.0)
    assert_allclose(model.preference_slack_.sum(), 2.0, rtol=1e-6)
    assert_allclose(model.objective_parts_["preferences"], 1.0, rtol=1e-6)


def test_equality_closeness_and_interval():
    X, y, _, _ = data()
    pairs = np.array([[20, 21], [30, 31], [40, 5]])
    for preferences, lower, upper in (
        (Preferences.close(pairs), 0.0, 0.0),
        (Preferences.close(pairs, 0.1), -0.1, 0.1),
        (Preferences.between(pairs, 0.2, 0.3), 0.2, 0.3),
        (Preferences.between(pairs, 0.2, np.inf), 0.2, np.inf),
    ):
        f = OrderPreferenceRegressor(1e-4, order_weight=100.0).fit(X, y, pairs=preferences).predict(X)
        differences = f[pairs[:, 0]] - f[pairs[:, 1]]
        assert (differences >= lower - 1e-6).all() and (differences <= upper + 1e-6).all()


def test_unary_bounds():
    X, y, _, _ = data()
    rows = np.array([20, 21, 22])
    bounds = (rows, [1.5, -np.inf, 0.7], [np.inf, -1.0, 0.7])
    f = OrderPreferenceRegressor(1e-4, order_weight=100.0).fit(X, y, bounds=bounds).predict(X)
    assert f[20] >= 1.5 - 1e-6 and f[21] <= -1.0 + 1e-6
    assert_allclose(f[22], 0.7, atol=1e-6)


def test_shift_and_scale_of_the_targets():
    """The bias is not regularised, and the whole objective is homogeneous in (y, margin, epsilon)."""
    X, y, pairs, _ = data()
    base = OrderPreferenceRegressor(0.01, epsilon=0.01).fit(X, y, pairs=pairs, margin=0.1)
    shifted = OrderPreferenceRegressor(0.01, epsilon=0.01).fit(X, y + 1e4, pairs=pairs, margin=0.1)
    scaled = OrderPreferenceRegressor(0.01, epsilon=1e3).fit(X, 1e5 * y, pairs=pairs, margin=1e4)
    assert_allclose(shifted.objective_, base.objective_, rtol=1e-6)
    assert_allclose(shifted.predict(X) - 1e4, base.predict(X), atol=1e-6)
    assert_allclose(scaled.objective_, 1e5 * base.objective_, rtol=1e-6)


def test_basis_may_be_drawn_or_named():
    X, y, pairs, _ = data()
    drawn = OrderPreferenceRegressor(0.01, n_basis=5, random_state=0).fit(X, y, pairs=pairs)
    assert drawn.basis_indices_.shape == (5,) and (drawn.basis_indices_ < 15).all()
    wide = OrderPreferenceRegressor(0.01, basis=np.arange(45)).fit(X, y, pairs=pairs)
    full = OrderPreferenceRegressor(0.01).fit(X, y, pairs=pairs)
    assert wide.objective_ <= full.objective_ + 1e-9 <= drawn.objective_ + 2e-9
    K = pairwise_kernels(X, metric="rbf")
    statements = [(K[i] - K[j], 0.0, 0.0, 1.0) for i, j in pairs]
    assert_allclose(
        wide.objective_, order_program_whole(K[:15], y[:15], 0.01, 1.0, 0.0, statements), rtol=1e-7
    )
    assert set(wide.support_) == set(np.flatnonzero(wide.dual_coef_))


def test_path_equals_single_solves():
    X, y, pairs, _ = data(l=25, p=200)
    K = pairwise_kernels(X, X[:25], metric="rbf")
    program = order_program.OrderProgram(
        K[:25],
        y[:25],
        K[pairs[:, 0]] - K[pairs[:, 1]],
        np.zeros(len(pairs)),
        np.full(len(pairs), 1 / len(pairs)),
        np.zeros(len(pairs)),
    )
    alphas = [10.0, 1e-1, 1e-2, 1e-3, 0.0, 1e-2]
    for alpha, solution in zip(alphas, order_program.order_program_path(program, alphas), strict=True):
        alone = order_program.solve_order_program(program, alpha)
        assert_allclose(solution.objective, alone.objective, rtol=1e-8, atol=1e-10)
        assert_allclose(solution.objective, solution.lower_bound, rtol=1e-7, atol=1e-9)


def test_inputs_are_left_alone_and_fit_is_deterministic():
    X, y, pairs, _ = data()
    copies = X.copy(), y.copy(), pairs.copy()
    first = OrderPreferenceRegressor(0.01).fit(X, y, pairs=pairs)
    second = OrderPreferenceRegressor(0.01).fit(X, y, pairs=pairs)
    for before, after in zip(copies, (X, y, pairs)):
        np.testing.assert_array_equal(before, after)
    np.testing.assert_array_equal(first.dual_coef_, second.dual_coef_)


X0, Y0 = np.arange(8.0).reshape(4, 2), np.array([0.0, 1.0, np.nan, 2.0])


@pytest.mark.parametrize(
    "parameters, arguments, y, message",
    [
        ({}, {}, np.full(4, np.nan), "All targets are NaN"),
        ({}, {}, None, "requires y"),
        ({}, {}, [1.0, np.inf, 0.0, 0.0], "infinity"),
        ({}, {}, [1.0, 2.0], "inconsistent numbers of samples"),
        ({}, {"pairs": [[1, 1]]}, Y0, "to itself"),
        ({}, {"pairs": [[1, 4]]}, Y0, "out of range"),
        ({}, {"pairs": [[-1, 0]]}, Y0, "out of range"),
        ({}, {"pairs": [[0.5, 1.0]]}, Y0, "int"),
        ({}, {"pairs": [0, 1]}, Y0, "shape"),
        ({}, {"pairs": [[0, 1]], "weight": [-1.0]}, Y0, "negative"),
        ({}, {"pairs": [[0, 1]], "weight": [np.nan]}, Y0, "NaN"),
        ({}, {"pairs": [[0, 1]], "margin": [np.inf]}, Y0, "infinity"),
        ({}, {"pairs": [[0, 1]], "margin": [1.0, 2.0]}, Y0, "shape"),
        ({}, {"margin": 1.0}, Y0, "no pairs were given"),
        ({}, {"pairs": Preferences([[0, 1]]), "weight": 2.0}, Y0, "would be ignored"),
        ({}, {"bounds": ([0], 1.0)}, Y0, "tuple"),
        ({}, {"bounds": ([9], 0.0, 1.0)}, Y0, "row 9"),
        ({}, {"bounds": ([0], 2.0, 1.0)}, Y0, "empty"),
        ({}, {"bounds": ([0], np.nan, 1.0)}, Y0, "NaN"),
        ({}, {"bounds": ([0], np.inf, np.inf)}, Y0, "cannot be met"),
        ({}, {"bounds": ([0], 0.0, 1.0, -1.0)}, Y0, "negative"),
        ({"alpha": -1.0}, {}, Y0, "alpha"),
        ({"alpha": np.inf}, {}, Y0, "alpha"),
        ({"alpha": "1"}, {}, Y0, "alpha"),
        ({"order_weight": -1.0}, {}, Y0, "order_weight"),
        ({"epsilon": np.nan}, {}, Y0, "epsilon"),
        ({"kernel": "linear", "gamma": 1.0}, {}, Y0, "gamma"),
        ({"n_basis": 4}, {}, Y0, "n_basis"),
        ({"basis": [4]}, {}, Y0, "basis"),
    ],
)
def test_refusals(parameters, arguments, y, message):
    with pytest.raises(ValueError, match=message):
        OrderPreferenceRegressor(**parameters).fit(X0, y, **arguments)


def test_failure_of_the_solver_is_told_in_plain_words(monkeypatch):
    from scipy import optimize

    class Result:
        status, message = 4, "numerical trouble"

    monkeypatch.setattr(optimize, "linprog", lambda *args, **kwargs: Result())
    monkeypatch.setattr(order_program, "_engine", order_program._PlainEngine)
    with pytest.raises(
        RuntimeError, match="numerical difficulties .numerical trouble.*always has a solution"
    ):
        OrderPreferenceRegressor().fit(X0, Y0)


def test_wrong_multipliers_are_noticed(monkeypatch):
    """The duality gap is checked: a solver that returns something else is not believed."""
    original = order_program._PlainEngine.solve

    def spoiled(self, row_bound):
        found = original(self, row_bound)
        return order_program._Multipliers(found.rows + 0.5, found.objective, found.n_iter)

    monkeypatch.setattr(order_program._PlainEngine, "solve", spoiled)
    monkeypatch.setattr(order_program, "_engine", order_program._PlainEngine)
    with pytest.raises(RuntimeError, match="lower bound"):
        OrderPreferenceRegressor(0.1).fit(X0, Y0)


@pytest.mark.parametrize("kernel", ["rbf", "linear"])
def test_scikit_learn_conventions(kernel):
    check_estimator(OrderPreferenceRegressor(kernel=kernel))


def test_frames():
    pandas = pytest.importorskip("pandas")
    X, y, pairs, _ = data()
    frame = pandas.DataFrame(X, columns=["a", "b", "c"])
    model = OrderPreferenceRegressor(0.01).fit(frame, pandas.Series(y), pairs=pairs)
    assert_allclose(model.predict(frame), OrderPreferenceRegressor(0.01).fit(X, y, pairs=pairs).predict(X))
    assert list(model.feature_names_in_) == ["a", "b", "c"]


@pytest.mark.parametrize("form", [list, tuple, lambda values: np.array(values, dtype=object)])
def test_an_open_side_may_be_none_inside_a_list(form):
    X = np.arange(6.0)[:, None]
    y = np.array([0.0, 1.0, np.nan, np.nan, np.nan, np.nan])
    rows, lower, upper = [2, 3, 4], [5.0, None, None], [None, 2.0, None]
    model = OrderPreferenceRegressor(0.01).fit(X, y, bounds=(rows, form(lower), form(upper)))
    infinite = OrderPreferenceRegressor(0.01).fit(
        X, y, bounds=(rows, [5.0, -np.inf, -np.inf], [np.inf, 2.0, np.inf])
    )
    np.testing.assert_array_equal(model.predict(X), infinite.predict(X))
    with pytest.raises(ValueError, match=r"lower holds NaN \(entry 1\)"):
        OrderPreferenceRegressor().fit(X, y, bounds=(rows, [5.0, np.nan, None], None))
