"""Relations: every closed form against the dense system of pairs, every hold-out against refitting."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError

import oracles
from preflearn.io import load_model, save_model
from preflearn.metrics import concordance
from preflearn.relations import (
    KroneckerRLS,
    KroneckerRLSCV,
    RelationPath,
    TwoStepRLS,
    TwoStepRLSCV,
    cross_val_predict,
    incomplete,
)
from preflearn.relations.complete import cauchy_factors
from strategies import examples

KERNELS = ["kronecker", "cartesian", {"kronecker": 0.7, "cartesian": 1.3}]
SETTINGS = ["entries", "rows", "columns", "both"]


@st.composite
def relations(draw, least=3, most=6):
    """Objects of two kinds and complete labels, a few of them equal."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    p, q = draw(st.integers(least, most)), draw(st.integers(least, most))
    rows, columns = (
        rng.normal(size=(p, draw(st.integers(1, 4)))),
        rng.normal(size=(q, draw(st.integers(1, 4)))),
    )
    Y = rng.normal(size=(p, q)) * draw(st.sampled_from([1.0, 1e3])) + draw(st.sampled_from([0.0, 5.0]))
    return rows, columns, np.round(Y, draw(st.integers(0, 3)))


def rbf_model(alpha=0.5, **options):
    sides = {"row_kernel": "rbf", "column_kernel": "rbf"}
    sides |= {"row_params": {"gamma": 0.5}, "column_params": {"gamma": 0.3}}
    return KroneckerRLS(alpha, **sides, **options)


def dense_model(model, rows, columns, Y, new_rows=None, new_columns=None):
    """Predictions from the dense system of the pairs of a model, by the oracle."""
    kernel = oracles.rbf if model.row_kernel == "rbf" else (lambda A, B, gamma: A @ B.T)
    gammas = [(side or {}).get("gamma") for side in (model.row_params, model.column_params)]
    new_rows = rows if new_rows is None else new_rows
    new_columns = columns if new_columns is None else new_columns
    return oracles.relation(
        kernel(rows, rows, gammas[0]),
        kernel(columns, columns, gammas[1]),
        Y,
        model.alpha,
        pairwise=model.pairwise,
        compare=model.compare,
        K_new=kernel(new_rows, rows, gammas[0]),
        G_new=kernel(new_columns, columns, gammas[1]),
        same_rows=(new_rows[:, None] == rows[None]).all(axis=2).astype(float),
        same_columns=(new_columns[:, None] == columns[None]).all(axis=2).astype(float),
    )


@given(
    relations(),
    st.sampled_from([None, "rows", "columns"]),
    st.sampled_from([*KERNELS, "sum", {"kronecker": 1.0, "sum": 0.5}]),
    st.sampled_from([1e-3, 1.0, 100.0]),
    st.booleans(),
)
def test_fit_solves_the_dense_system(data, compare, pairwise, alpha, complete) -> None:
    rows, columns, Y = data
    if not complete:
        Y = Y.copy()
        Y[0, 1] = Y[1, 0] = np.nan
    model = rbf_model(alpha, compare=compare, pairwise=pairwise, tol=1e-13, max_iter=5000)
    new_rows, new_columns = (
        np.vstack([rows[:1], rows[:1] + 0.3]),
        np.vstack([columns[1:2], columns[1:2] - 0.2]),
    )
    expected = dense_model(model, rows, columns, Y, new_rows, new_columns)
    found = model.fit(rows, columns, Y).predict(new_rows, new_columns)
    assert model.solver_ == ("closed" if complete and "sum" not in pairwise else "cg")
    np.testing.assert_allclose(found, expected, atol=1e-6 * np.nanmax(np.abs(Y)))


@given(
    relations(),
    st.sampled_from([None, "rows", "columns"]),
    st.sampled_from(KERNELS),
    st.sampled_from(SETTINGS),
    st.sampled_from([1e-2, 1.0, 30.0]),
    st.integers(0, 3),
)
@examples(100)
def test_hold_out_is_identical_to_refitting(data, compare, pairwise, setting, alpha, seed) -> None:
    rows, columns, Y = data
    model = rbf_model(alpha, compare=compare, pairwise=pairwise)
    rng = np.random.default_rng(seed)
    p, q = Y.shape
    cv = "leave-one-out"
    if seed:
        cv = folds_of(setting, p, q, rng, n_entry_folds=3)
    found = cross_val_predict(model, rows, columns, Y, hold_out=setting, cv=cv)
    for i, j in [(0, 0), (p - 1, 1), (1, q - 1)]:
        left = leaving(i, j, setting, cv, Y.shape)
        expected = oracle_without(model, rows, columns, Y, left, setting, i, j)
        np.testing.assert_allclose(found[i, j], expected, atol=1e-6 * max(1, np.abs(Y).max()))


def folds_of(setting, p, q, rng, *, n_entry_folds):
    """``cv`` of random folds for what is held out."""
    row_folds, column_folds = np.array_split(rng.permutation(p), 2), np.array_split(rng.permutation(q), 2)
    return {
        "entries": np.array_split(rng.permutation(p * q), n_entry_folds),
        "rows": row_folds,
        "columns": column_folds,
        "both": (row_folds, column_folds),
    }[setting]


def leaving(i, j, setting, cv, shape):
    """Mask of the entries that leave with (i, j)."""
    left = np.zeros(shape, dtype=bool)
    if setting == "entries":
        fold = [i * shape[1] + j] if isinstance(cv, str) else next(f for f in cv if i * shape[1] + j in f)
        left.flat[fold] = True
        return left
    if setting in ("rows", "both"):
        folds = None if isinstance(cv, str) else cv[0] if setting == "both" else cv
        left[[i] if folds is None else next(f for f in folds if i in f)] = True
    if setting in ("columns", "both"):
        folds = None if isinstance(cv, str) else cv[1] if setting == "both" else cv
        left[:, [j] if folds is None else next(f for f in folds if j in f)] = True
    return left


def oracle_without(model, rows, columns, Y, left, setting, i, j):
    """The prediction of (i, j) by the dense system of the entries that stay."""
    Y = np.where(left, np.nan, Y)
    return dense_model(model, rows, columns, Y, rows[[i]], columns[[j]])[0, 0]


@given(relations(), st.sampled_from([None, "rows"]), st.sampled_from(SETTINGS))
@examples(30)
def test_hold_out_of_incomplete_labels_is_identical_to_refitting(data, compare, setting) -> None:
    rows, columns, Y = data
    Y = Y.copy()
    Y[0, 1] = Y[2, 0] = np.nan
    model = rbf_model(0.7, compare=compare)
    found = cross_val_predict(model, rows, columns, Y, hold_out=setting)
    assert np.isnan(found[0, 1]) == (setting == "entries")
    left = leaving(1, 2, setting, "leave-one-out", Y.shape)
    expected = oracle_without(model, rows, columns, Y, left, setting, 1, 2)
    np.testing.assert_allclose(found[1, 2], expected, atol=1e-6 * max(1, np.nanmax(np.abs(Y))))


@given(relations(least=4), st.sampled_from([1, -1]), st.sampled_from(SETTINGS), st.sampled_from([0, 1]))
@examples(40)
def test_relations_of_one_kind(data, sign, setting, folded) -> None:
    objects, _, _ = data
    p = objects.shape[0]
    Y = np.random.default_rng(p).normal(size=(p, p))
    Y = Y + sign * Y.T
    name = "symmetric" if sign > 0 else "antisymmetric"
    model = KroneckerRLS(
        0.3,
        pairwise=name,
        row_kernel="rbf",
        column_kernel="rbf",
        row_params={"gamma": 0.5},
        column_params={"gamma": 0.5},
    )
    F = model.fit(objects, objects, Y).predict(objects)
    np.testing.assert_allclose(F, sign * F.T, atol=1e-9)
    np.testing.assert_allclose(F, dense_model(model, objects, objects, Y), atol=1e-7)
    cv = "leave-one-out"
    if folded and setting != "both":
        n = p * p if setting == "entries" else p
        cv = np.array_split(np.random.default_rng(1).permutation(n), 3)
    found = cross_val_predict(model, objects, None, Y, hold_out=setting, cv=cv)
    for i, j in [(0, 1), (2, 0), (1, 1)]:
        left = leaving(i, j, setting, cv, Y.shape)
        left |= left.T
        expected = oracle_without(model, objects, objects, Y, left, setting, i, j)
        np.testing.assert_allclose(found[i, j], expected, atol=1e-6)


@given(relations(), st.sampled_from([None, "rows", "columns"]), st.sampled_from(SETTINGS), st.booleans())
def test_two_step_hold_out_is_identical_to_refitting(data, compare, setting, folded) -> None:
    rows, columns, Y = data
    rng = np.random.default_rng(0)
    p, q = Y.shape
    model = TwoStepRLS(
        0.4,
        2.0,
        row_kernel="rbf",
        column_kernel="rbf",
        row_params={"gamma": 0.5},
        column_params={"gamma": 0.3},
        compare=compare,
    )
    cv = "leave-one-out"
    if folded:
        cv = folds_of(setting, p, q, rng, n_entry_folds=4)
    found = cross_val_predict(model, rows, columns, Y, hold_out=setting, cv=cv)
    for i, j in [(0, 0), (p - 1, 1)]:
        left = leaving(i, j, setting, cv, Y.shape)
        if setting == "entries":
            # The labels that leave are those that the model then gives them: a fixed point.
            expected = oracles.two_step_without(rows, columns, Y, left, model)[i, j]
        else:
            stay_rows, stay_columns = ~left.all(axis=1), ~left.all(axis=0)
            refit = clone(model).fit(
                rows[stay_rows], columns[stay_columns], Y[np.ix_(stay_rows, stay_columns)]
            )
            expected = refit.predict(rows[[i]], columns[[j]])[0, 0]
        np.testing.assert_allclose(found[i, j], expected, atol=1e-6 * max(1, np.abs(Y).max()))


def some_relation(p=9, q=7, seed=0):
    rng = np.random.default_rng(seed)
    rows, columns = rng.normal(size=(p, 3)), rng.normal(size=(q, 2))
    return rows, columns, rows @ rng.normal(size=(3, 2)) @ columns.T + 0.3 * rng.normal(size=(p, q))


def test_a_list_of_pairs_is_the_matrix_with_unknown_labels() -> None:
    rows, columns, Y = some_relation()
    Y[0, 1] = Y[3, 4] = np.nan
    row, column = np.nonzero(~np.isnan(Y))
    listed = KroneckerRLS(tol=1e-12).fit_pairs_of(rows, columns, row, column, Y[row, column])
    matrix = KroneckerRLS(tol=1e-12).fit(rows, columns, Y)
    np.testing.assert_allclose(listed.predict(rows, columns), matrix.predict(rows, columns), rtol=1e-9)
    pairs = ([2, 0, 2], [1, 1, 1])
    np.testing.assert_allclose(
        listed.predict_pairs_of(rows, columns, *pairs), listed.predict(rows, columns)[pairs], rtol=1e-12
    )


def test_few_known_pairs_through_sampled_products() -> None:
    rng = np.random.default_rng(1)
    rows, columns = rng.normal(size=(40, 3)), rng.normal(size=(150, 2))
    position = np.unique(np.concatenate([np.arange(40) * 151, np.arange(150), rng.choice(6000, 200)]) % 6000)
    row, column = np.divmod(position, 150)
    y = rng.normal(size=row.shape[0])
    Y = np.full((40, 150), np.nan)
    Y[row, column] = y
    for pairwise in ("kronecker", "cartesian", "sum", {"kronecker": 1.0, "cartesian": 0.2}):
        model = rbf_model(0.5, pairwise=pairwise, tol=1e-12).fit_pairs_of(rows, columns, row, column, y)
        assert model.solver_ == "cg" and model.n_iter_ > 1 and model.residual_ <= 1e-12
        if pairwise != "sum":
            assert hasattr(model.dual_coef_, "nnz")
        expected = dense_model(model, rows, columns, Y, rows[:3], columns[:4])
        np.testing.assert_allclose(model.predict(rows[:3], columns[:4]), expected, atol=1e-8)


def test_few_known_pairs_of_one_kind() -> None:
    rng = np.random.default_rng(2)
    objects = rng.normal(size=(60, 3))
    row, column = np.arange(60), (np.arange(60) + rng.integers(1, 30, size=60)) % 60
    y = rng.normal(size=60)
    Y = np.full((60, 60), np.nan)
    Y[row, column] = y
    kernel = {
        "row_kernel": "rbf",
        "column_kernel": "rbf",
        "row_params": {"gamma": 0.2},
        "column_params": {"gamma": 0.2},
    }
    model = KroneckerRLS(0.5, pairwise="antisymmetric", tol=1e-12, **kernel)
    F = model.fit_pairs_of(objects, None, row, column, y).predict(objects[:5], objects[5:10])
    np.testing.assert_allclose(
        F, dense_model(model, objects, objects, Y, objects[:5], objects[5:10]), atol=1e-8
    )
    np.testing.assert_allclose(model.predict(objects[5:10], objects[:5]), -F.T, atol=1e-12)


def test_antisymmetric_relations_express_cycles() -> None:
    """Rock, paper, scissors: each beats the next, which no ranking can say."""
    Y = np.array([[0.0, 1.0, -1.0], [-1.0, 0.0, 1.0], [1.0, -1.0, 0.0]])
    model = KroneckerRLS(0.01, pairwise="antisymmetric").fit(np.eye(3), np.eye(3), Y)
    np.testing.assert_array_equal(np.sign(np.round(model.predict(np.eye(3)), 6)), Y)


@pytest.mark.parametrize("pairwise", ["kronecker", "cartesian"])
def test_linear_kernels_of_fewer_features_than_objects(pairwise) -> None:
    rng = np.random.default_rng(0)
    rows, columns, Y = rng.normal(size=(9, 2)), rng.normal(size=(8, 3)), rng.normal(size=(9, 8))
    model = KroneckerRLS(0.1, pairwise=pairwise)
    found = model.fit(rows, columns, Y).predict(rows, columns)
    np.testing.assert_allclose(found, dense_model(model, rows, columns, Y), rtol=1e-9)


def test_a_tiny_alpha_is_least_squares_to_most_digits() -> None:
    rng = np.random.default_rng(0)
    rows, columns, Y = rng.normal(size=(9, 2)), rng.normal(size=(8, 3)), rng.normal(size=(9, 8))
    new = rng.normal(size=(4, 2))
    expected = new @ np.linalg.pinv(rows) @ Y @ np.linalg.pinv(columns).T @ columns.T
    found = KroneckerRLS(1e-11).fit(rows, columns, Y).predict(new, columns)
    np.testing.assert_allclose(found, expected, rtol=1e-9)


@pytest.mark.parametrize("n_rows", [1, 6])
@pytest.mark.parametrize("pairwise", KERNELS, ids=str)
def test_the_largest_eigenvalue_is_that_of_the_matrix_of_pairs(pairwise, n_rows) -> None:
    rng = np.random.default_rng(0)
    rows, columns = rng.normal(size=(n_rows, 3)), rng.normal(size=(5, 2))
    path = RelationPath(KroneckerRLS(pairwise=pairwise), rows, columns, rng.normal(size=(n_rows, 5)))
    K, G = rows @ rows.T, columns @ columns.T
    weights = {pairwise: 1.0} if isinstance(pairwise, str) else pairwise
    dense = weights.get("kronecker", 0.0) * np.kron(K, G)
    dense += weights.get("cartesian", 0.0) * (np.kron(K, np.eye(5)) + np.kron(np.eye(n_rows), G))
    assert path.largest_eigenvalue == pytest.approx(np.linalg.eigvalsh(dense)[-1])


def test_path_is_identical_to_single_fits() -> None:
    rows, columns, Y = some_relation()
    alphas = [0.01, 10.0, 0.5]
    for labels in (Y, np.where(np.arange(63).reshape(9, 7) % 10 == 3, np.nan, Y)):
        path = RelationPath(rbf_model(tol=1e-12), rows, columns, labels)
        found = path.predict(rows, columns, alphas=alphas)
        for alpha, F in zip(alphas, found, strict=True):
            single = rbf_model(alpha, tol=1e-12).fit(rows, columns, labels).predict(rows, columns)
            np.testing.assert_allclose(F, single, atol=1e-8)
            np.testing.assert_allclose(path.model(alpha).predict(rows, columns), single, atol=1e-8)
        held = path.held_out("rows", cv=3, alphas=alphas)
        single = cross_val_predict(rbf_model(10.0), rows, columns, labels, hold_out="rows", cv=3)
        np.testing.assert_allclose(held[1], single, atol=1e-7)


@pytest.mark.parametrize("setting", SETTINGS)
def test_search_scores_are_those_of_cross_val_predict(setting) -> None:
    rows, columns, Y = some_relation()
    alphas = [0.1, 1.0, 10.0]
    search = KroneckerRLSCV(alphas, hold_out=setting, scoring="neg_mean_squared_error", keep_predictions=True)
    search.fit(rows, columns, Y)
    for alpha, score, F in zip(alphas, search.cv_scores_, search.cv_predictions_, strict=True):
        expected = cross_val_predict(KroneckerRLS(alpha), rows, columns, Y, hold_out=setting)
        np.testing.assert_allclose(F, expected, atol=1e-9)
        assert score == pytest.approx(-np.mean((Y - expected) ** 2))
    assert search.alpha_ == alphas[int(np.argmax(search.cv_scores_))] and search.best_score_ == max(
        search.cv_scores_
    )
    np.testing.assert_allclose(
        search.predict(rows, columns),
        KroneckerRLS(search.alpha_).fit(rows, columns, Y).predict(rows, columns),
    )


def test_two_step_search() -> None:
    rows, columns, Y = some_relation()
    search = TwoStepRLSCV([0.1, 10.0], [1.0, 100.0], hold_out="both").fit(rows, columns, Y)
    assert search.alphas_.tolist() == [[0.1, 1.0], [0.1, 100.0], [10.0, 1.0], [10.0, 100.0]]
    F = cross_val_predict(TwoStepRLS(*search.alpha_), rows, columns, Y, hold_out="both")
    assert search.best_score_ == pytest.approx(1 - np.sum((Y - F) ** 2) / np.sum((Y - Y.mean()) ** 2))


def test_conditional_ranking_is_chosen_by_the_concordance_inside_columns() -> None:
    rows, columns, Y = some_relation(p=20)
    search = KroneckerRLSCV([0.1, 10.0], hold_out="rows", cv=4, compare="rows", keep_predictions=True)
    search.fit(rows, columns, Y + 100 * np.arange(7))
    fold = np.repeat(np.arange(4), 5)
    label = np.arange(7) * 4 + fold[:, None]
    for score, F in zip(search.cv_scores_, search.cv_predictions_, strict=True):
        assert score == pytest.approx(concordance(Y.ravel(), F.ravel(), label.ravel()))
    with pytest.raises(ValueError, match="no two are held out together"):
        KroneckerRLSCV(hold_out="rows", cv="leave-one-out", compare="rows").fit(rows, columns, Y)


def test_groups_leave_together() -> None:
    rows, columns, Y = some_relation()
    groups = np.array([0, 0, 1, 1, 1, 2, 2, 3, 3])
    found = cross_val_predict(KroneckerRLS(), rows, columns, Y, hold_out="rows", row_groups=groups)
    folds = [np.flatnonzero(groups == g) for g in range(4)]
    expected = cross_val_predict(KroneckerRLS(), rows, columns, Y, hold_out="rows", cv=folds)
    np.testing.assert_allclose(found, expected)
    both = cross_val_predict(
        KroneckerRLS(), rows, columns, Y, hold_out="both", row_groups=groups, cv=("leave-one-out", 3)
    )
    assert np.isfinite(both).all()
    with pytest.raises(ValueError, match="row_groups would be ignored"):
        cross_val_predict(KroneckerRLS(), rows, columns, Y, hold_out="columns", row_groups=groups)


def test_large_sums_of_separated_terms() -> None:
    """The leverages of many entries go through a short sum: the same held-out predictions."""
    rng = np.random.default_rng(0)
    rows, columns = rng.normal(size=(900, 2)), rng.normal(size=(1000, 3))
    Y = rng.normal(size=(900, 1000))
    model = KroneckerRLS(3.0)
    found = cross_val_predict(model, rows, columns, Y)
    K, G = rows @ rows.T, columns @ columns.T
    values, vectors = [], []
    for side in (K, G):
        sigma, V = np.linalg.eigh(side)
        values.append(np.maximum(sigma, 0))
        vectors.append(V)
    D = 1 / (np.multiply.outer(*values) + 3.0)
    A = vectors[0] @ ((vectors[0].T @ Y @ vectors[1]) * D) @ vectors[1].T
    M = (vectors[0] ** 2) @ D @ (vectors[1] ** 2).T
    np.testing.assert_allclose(found, Y - A / M, atol=1e-9)


@given(st.integers(0, 100), st.sampled_from([1e-12, 1e-3, 1.0]))
def test_separated_inverse(seed, ridge) -> None:
    rng = np.random.default_rng(seed)
    values, scale = np.abs(rng.normal(size=12)) ** 5, np.abs(rng.normal(size=9)) ** 5
    values[:2], scale[:2], scale[3] = 0, 0, 1e-30
    P, R = cauchy_factors(values, scale, np.full(9, ridge))
    np.testing.assert_allclose(P @ R.T, 1 / (np.multiply.outer(values, scale) + ridge), rtol=1e-11)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"Y": np.full((9, 7), np.nan)}, "NaN everywhere"),
        ({"Y": np.full((9, 7), np.inf)}, "infinity"),
        ({"Y": np.zeros((7, 9))}, "rows and columns exchanged"),
        ({"Y": np.zeros((8, 7))}, "9 row objects but the labels have 8 rows"),
        ({"compare": "both"}, "compare must be None"),
        ({"pairwise": "tensor"}, "pairwise must be one of"),
        ({"pairwise": {"kronecker": -1.0}}, "must be a positive number"),
        ({"alpha": 0.0}, "alpha must be a positive number"),
        ({"row_params": {"gama": 1.0}}, "does not take gama"),
        ({"pairwise": "symmetric"}, "the same objects"),
    ],
)
def test_bad_input(change, message) -> None:
    rows, columns, Y = some_relation()
    Y = change.pop("Y", Y)
    with pytest.raises(ValueError, match=message):
        KroneckerRLS(**change).fit(rows, columns, Y)


@pytest.mark.parametrize("size", [1e-80, 1e80])
def test_products_of_kernels_out_of_range_are_refused(size) -> None:
    rows, columns, Y = some_relation()
    with pytest.raises(ValueError, match="out of the range of float64"):
        KroneckerRLS().fit(rows * size, columns * size, Y)
    KroneckerRLS(alpha=size**2).fit(rows * size, columns, Y)


def test_more_bad_input() -> None:
    rows, columns, Y = some_relation()
    unlabelled = Y.copy()
    unlabelled[2] = np.nan
    with pytest.raises(ValueError, match="Row 2 has no known label"):
        KroneckerRLS().fit(rows, columns, unlabelled)
    with pytest.raises(ValueError, match="Column 0 .and 1 more. has no known label"):
        KroneckerRLS().fit(rows, columns, np.where(np.arange(7) < 2, np.nan, Y))
    with pytest.raises(ValueError, match="needs equal labels for both orders"):
        KroneckerRLS(pairwise="symmetric").fit(rows, None, np.arange(81.0).reshape(9, 9))
    with pytest.raises(ValueError, match="must be the same, found 'rbf'"):
        KroneckerRLS(pairwise="symmetric", row_kernel="rbf").fit(rows, None, np.eye(9))
    with pytest.raises(ValueError, match="equal kernel values"):
        KroneckerRLS(pairwise="cartesian").fit(np.ones((9, 1)), columns, Y)
    with pytest.raises(ValueError, match="row_kernel='precomputed': The precomputed kernel is not symmetric"):
        KroneckerRLS(row_kernel="precomputed").fit(np.arange(81.0).reshape(9, 9), columns, Y)
    with pytest.raises(ValueError, match="2 features, the training rows had 3"):
        KroneckerRLS().fit(rows, columns, Y).predict(columns, rows)
    with pytest.raises(ValueError, match="TwoStepRLS needs the labels of all pairs: 1 are NaN"):
        TwoStepRLS().fit(rows, columns, np.where(np.arange(63).reshape(9, 7) == 5, np.nan, Y))
    with pytest.raises(NotFittedError):
        KroneckerRLS().predict(rows, columns)
    with pytest.raises(ValueError, match="hold_out must be one of"):
        cross_val_predict(KroneckerRLS(), rows, columns, Y, hold_out="cells")
    with pytest.raises(ValueError, match="cv=.rows, columns."):
        cross_val_predict(KroneckerRLS(), rows, columns, Y, hold_out="both", cv=[np.arange(2), np.arange(3)])
    with pytest.raises(ValueError, match="whose label is unknown"):
        cross_val_predict(
            KroneckerRLS(), rows, columns, np.where(np.arange(63).reshape(9, 7) == 5, np.nan, Y), cv=[[4, 5]]
        )


def test_lists_of_pairs_that_make_no_sense() -> None:
    rows, columns, _ = some_relation(3, 2)
    row, column, y = np.array([0, 1, 2, 0]), np.array([0, 1, 0, 0]), np.array([1.0, 2.0, 3.0, 5.0])
    with pytest.raises(ValueError, match="listed 2 times or more: pass duplicates='mean'"):
        KroneckerRLS().fit_pairs_of(rows, columns, row, column, y)
    mean = KroneckerRLS(tol=1e-12).fit_pairs_of(rows, columns, row, column, y, duplicates="mean")
    joined = KroneckerRLS(tol=1e-12).fit_pairs_of(rows, columns, row[:3], column[:3], [3.0, 2.0, 3.0])
    np.testing.assert_allclose(mean.predict(rows, columns), joined.predict(rows, columns), atol=1e-9)
    with pytest.raises(ValueError, match=r"row_index\[3\] = 3 does not name a row"):
        KroneckerRLS().fit_pairs_of(rows, columns, [0, 1, 2, 3], column, y)
    with pytest.raises(ValueError, match="Translate labels of objects"):
        KroneckerRLS().fit_pairs_of(rows, columns, ["a", "b", "c", "a"], column, y)
    with pytest.raises(ValueError, match="one entry per pair"):
        KroneckerRLS().fit_pairs_of(rows, columns, row, column[:3], y)


@pytest.mark.parametrize("size", [1e-6, 1e6])
@pytest.mark.parametrize(("pairwise", "sign"), [("symmetric", 1.0), ("antisymmetric", -1.0)])
def test_both_orders_of_a_pair_agree_up_to_rounding(pairwise, sign, size) -> None:
    objects = np.random.default_rng(0).normal(size=(4, 2))
    model = KroneckerRLS(pairwise=pairwise)
    for there, back in ((1.0, 1.0 + 1e-12), (1.0, 1.01), (1.0, -1.0)):
        y = size * np.array([there, sign * back, 2.0])
        if back == 1.0 + 1e-12:
            model.fit_pairs_of(objects, None, [0, 1, 2], [1, 0, 3], y)
            continue
        with pytest.raises(ValueError, match="listed in both orders"):
            model.fit_pairs_of(objects, None, [0, 1, 2], [1, 0, 3], y)


def test_inputs_stay_as_they_are_and_models_clone() -> None:
    rows, columns, Y = some_relation()
    Y[0, 0] = np.nan
    before = [array.copy() for array in (rows, columns, Y)]
    model = KroneckerRLS(compare="rows").fit(rows, columns, Y)
    cross_val_predict(model, rows, columns, Y, hold_out="both", cv=3)
    for array, copy in zip((rows, columns, Y), before, strict=True):
        np.testing.assert_array_equal(array, copy)
    assert clone(model).get_params() == model.get_params()


def test_kernels_of_either_side() -> None:
    """Precomputed, callable and sparse sides give what the named kernel gives."""
    import scipy.sparse as sp

    rows, columns, Y = some_relation()
    expected = KroneckerRLS(column_kernel="rbf", column_params={"gamma": 0.3}).fit(rows, columns, Y)
    expected = expected.predict(rows[:2], columns[:3])
    G = oracles.rbf(columns, columns, 0.3)
    precomputed = KroneckerRLS(row_kernel="precomputed", column_kernel="precomputed").fit(rows @ rows.T, G, Y)
    np.testing.assert_allclose(precomputed.predict(rows[:2] @ rows.T, G[:3]), expected)
    objects = [tuple(row) for row in columns]
    function = KroneckerRLS(column_kernel=lambda a, b: np.exp(-0.3 * np.sum((np.array(a) - b) ** 2)))
    function.fit(sp.csr_array(rows), objects, Y)
    np.testing.assert_allclose(function.predict(sp.csr_array(rows[:2]), objects[:3]), expected)


def test_no_convergence_is_said() -> None:
    rows, columns, Y = some_relation()
    Y[0, 0] = np.nan
    with pytest.warns(ConvergenceWarning, match="stopped after 1 iterations"):
        rbf_model(1e-4, max_iter=1, tol=1e-12).fit(rows, columns, Y)


@pytest.mark.parametrize(
    "model", [KroneckerRLS(0.5), KroneckerRLSCV([0.5]), TwoStepRLS(), rbf_model(pairwise="cartesian")]
)
def test_models_are_saved(model, tmp_path) -> None:
    rows, columns, Y = some_relation()
    if isinstance(model, KroneckerRLS) and not isinstance(model, KroneckerRLSCV):
        Y[1, 1] = np.nan
    model.fit(rows, columns, Y)
    save_model(model, tmp_path / "model")
    again = load_model(tmp_path / "model")
    np.testing.assert_allclose(again.predict(rows, columns), model.predict(rows, columns), rtol=1e-12)


def test_a_rule_for_gamma_is_worked_out_from_the_objects_of_its_side(tmp_path):
    rng = np.random.default_rng(0)
    rows, columns, Y = rng.normal(size=(6, 3)), rng.normal(size=(5, 2)), rng.normal(size=(6, 5))
    model = KroneckerRLS(row_kernel="rbf", column_kernel="rbf", row_params={"gamma": "median"}).fit(
        rows, columns, Y
    )
    distances = ((rows[:, None] - rows) ** 2).sum(axis=2)[np.triu_indices(6, 1)]
    fixed = [
        KroneckerRLS(row_kernel="rbf", column_kernel="rbf", row_params={"gamma": 1 / d}).fit(rows, columns, Y)
        for d in (np.quantile(distances, 0.3), np.quantile(distances, 0.7))
    ]
    assert all(not np.allclose(model.predict(rows, columns), other.predict(rows, columns)) for other in fixed)
    save_model(model, tmp_path / "m.preflearn")
    loaded = load_model(tmp_path / "m.preflearn")
    np.testing.assert_array_equal(loaded.predict(rows, columns), model.predict(rows, columns))


@pytest.mark.parametrize("pairwise", ["kronecker", "cartesian"])
@pytest.mark.parametrize("compare", [None, "rows", "columns"])
@pytest.mark.parametrize("hold_out", ["entries", "rows"])
def test_iterations_in_the_modes_of_the_sides_equal_a_factorisation(pairwise, compare, hold_out, monkeypatch):
    rng = np.random.default_rng(3)
    rows, columns = rng.normal(size=(14, 3)), rng.normal(size=(11, 2))
    Y = np.where(rng.random((14, 11)) < 0.4, np.nan, rows @ rng.normal(size=(3, 2)) @ columns.T)
    Y += 0.3 * rng.normal(size=Y.shape)
    alphas = [1e-3, 0.1, 10.0]
    options = {"row_kernel": "rbf", "compare": compare, "pairwise": pairwise}

    def search():
        model = KroneckerRLSCV(alphas, hold_out=hold_out, cv=3, keep_predictions=True, tol=1e-10, **options)
        return model.fit(rows, columns, Y)

    direct = search()
    monkeypatch.setattr(incomplete, "_FEW_PAIRS", 0)
    counted = []
    real = incomplete.KnownPairs._solve_in_modes
    monkeypatch.setattr(
        incomplete.KnownPairs,
        "_solve_in_modes",
        lambda self, *a, **b: counted.append(1) or real(self, *a, **b),
    )
    found = search()
    assert len(counted) == 3 * len(alphas) + 1
    np.testing.assert_allclose(found.cv_predictions_, direct.cv_predictions_, atol=1e-4)
    assert found.alpha_ == direct.alpha_
    new = rng.normal(size=(5, 3)), rng.normal(size=(4, 2))
    if pairwise == "kronecker":
        np.testing.assert_allclose(found.predict(*new), direct.predict(*new), atol=1e-4)
    np.testing.assert_allclose(found.predict(rows, columns), direct.predict(rows, columns), atol=1e-4)


def test_long_hold_outs_of_known_pairs_say_how_long(monkeypatch):
    rng = np.random.default_rng(3)
    Y = np.where(rng.random((14, 11)) < 0.4, np.nan, rng.normal(size=(14, 11)))
    monkeypatch.setattr(incomplete, "LONG", 0.0)
    with pytest.warns(
        UserWarning, match=r"3 folds × 2 alphas of \d+ known labels are expected to take under"
    ):
        KroneckerRLSCV([0.1, 1.0], cv=3).fit(rng.normal(size=(14, 3)), rng.normal(size=(11, 2)), Y)
