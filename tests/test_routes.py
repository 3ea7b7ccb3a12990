"""The table of routes: what is taken for what, what it says, and what it refuses."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import scipy.sparse as sp

from preflearn import RankRLS, RankRLSCV
from preflearn.kernels import functions
from preflearn.model_selection import HeldOut, cross_val_predict
from preflearn.model_selection._problem import Problem
from preflearn.numerics import memory
from preflearn.squared import routes
from preflearn.squared.routes import PURPOSES, Workload, choose_route, explain, plan

RNG = np.random.default_rng(7)
GENEROUS = 64e9


def text(m, n, per_row=40, purpose="queries", **sizes):
    return Workload(purpose, m, n, n_stored=m * per_row, **sizes)


def chosen(workload, available=GENEROUS):
    return choose_route(workload, memory=available).chosen.solver


@pytest.mark.parametrize(
    ("workload", "solver"),
    [
        (Workload("train", 500, 20), "primal"),
        (Workload("train", 20, 500), "dual"),
        (Workload("queries", 600, 6, n_alphas=31, n_folds=60), "primal"),
        (Workload("queries", 20_000, 10, n_alphas=31, n_folds=1000), "primal"),
        (Workload("queries", 1_000_000, 46, n_alphas=31, n_folds=50_000), "primal"),
        (Workload("folds", 1_000_000, 46, n_alphas=31, n_folds=5), "primal"),
        (Workload("train", 500, 20, linear=False), "dual"),
        (Workload("queries", 1000, None, linear=False, n_folds=10), "dual"),
        (text(4000, 60_000, n_alphas=15, n_folds=200), "dual"),
        (text(8365, 65_536, n_alphas=31, n_folds=432), "dual"),
        (text(30_000, 2000, n_alphas=31, n_folds=1000), "primal"),
        (text(200_000, 100_000, 50, "folds", n_alphas=15, n_folds=5), "cg"),
        (text(200_000, 100_000, 50, "train"), "cg"),
        (Workload("preferences", 4600, 50_000, n_stored=400_000, n_pairs=2300, n_folds=2300), "pairs"),
        (Workload("preferences", 5000, 50, n_pairs=20_000, n_folds=20_000, closed_half=False), "primal"),
        (
            Workload("preferences", 100, 5000, False, n_pairs=20_000, n_folds=20_000, closed_half=False),
            "dual",
        ),
    ],
)
def test_the_table(workload, solver):
    assert chosen(workload) == solver


def test_a_matrix_of_preferences_is_taken_for_training_where_it_is_the_smallest():
    few, many = 100, 1000
    taken = [
        plan(Workload("train", 500, n_features, n_pairs=n_pairs, pair_space=True), "auto").solver
        for n_features, n_pairs in ((5000, few), (5000, many), (5000, 0), (20, few))
    ]
    assert taken == ["pairs", "dual", "dual", "primal"]


def test_a_square_matrix_that_does_not_fit_is_not_taken():
    workload = text(8000, 60_000, n_alphas=15, n_folds=5, purpose="folds")
    assert chosen(workload, 1e8) == "cg"
    found = choose_route(workload, memory=1e8)
    assert "does not fit in memory" in str(found)
    assert str(found).startswith("5 folds × 15 alphas, 8000 × 60000 (sparse, 320000 values):\n-> cg")


def test_iterations_are_taken_in_place_of_a_long_factorisation_only_where_they_take_a_third():
    """Not for ill-conditioned data, nor for many sets: hold-outs are never far slower than by algebra."""
    few, many = text(25_000, 60_000, purpose="train"), text(20_000, 60_000, n_alphas=15, n_folds=1000)
    assert chosen(few) == "dual"
    assert plan(few, spread=lambda: 1e4).solver == "cg"
    assert plan(few, spread=lambda: 1e12).solver == chosen(few)
    assert plan(many, spread=lambda: 1e6).solver == "dual" == chosen(many)


def test_the_choice_is_the_same_on_every_machine(monkeypatch):
    workload = text(8000, 60_000, n_alphas=15, n_folds=5, purpose="folds")
    here = str(choose_route(workload))
    monkeypatch.setattr(memory, "available_bytes", lambda: 1_000_000)
    assert str(choose_route(workload)) == here


def test_no_purpose_of_the_table_has_a_jump():
    """From one size to the next the expected time of what is taken grows by no more than the square matrices do."""
    sizes = np.unique(np.geomspace(500, 100_000, 60).astype(int))
    for purpose in ("train", "path", "folds", "queries", "pairs"):
        for stored in (None, 40):
            seconds = []
            for m in sizes:
                workload = Workload(
                    purpose,
                    int(m),
                    int(m) * 2,
                    n_stored=None if stored is None else stored * int(m),
                    n_alphas=15,
                    n_folds=int(m) // 20 if purpose == "queries" else 5,
                )
                seconds.append(choose_route(workload, memory=1e15).chosen.seconds)
            growth = np.diff(np.log(seconds))
            cubic = 3 * np.diff(np.log(sizes))
            assert (growth <= cubic + np.log(2.0)).all()


def test_explain_prints_the_map():
    X = sp.random_array((300, 2000), density=0.01, rng=0, format="csr")
    found = explain(X, n_queries=30, n_pairs=100)
    assert list(found.maps) == list(PURPOSES)
    assert [one.chosen.solver for one in found][:4] == ["dual"] * 4
    assert found["preferences"].chosen.solver == "pairs"
    lines = str(found).splitlines()
    assert lines[0] == "training, 300 × 2000 (sparse, 6000 values):"
    assert lines[1] == "-> dual (kernel matrix 300 × 300), under a second, 0.0 GB"
    assert repr(found) == str(found)
    assert list(explain(X).maps) == ["train", "path", "folds", "pairs"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"purpose": "sorting"}, "purpose must be one of 'train', .*: found 'sorting'"),
        ({"purpose": "queries"}, "purpose='queries' needs n_queries"),
        ({"purpose": "preferences"}, "purpose='preferences' needs n_pairs"),
    ],
)
def test_explain_refuses_what_it_does_not_know(options, message):
    with pytest.raises(ValueError, match=message):
        explain((10, 3), **options)


def sparse_ranking(m=600, n=900, n_queries=30):
    X = sp.random_array((m, n), density=0.02, rng=1, format="csr")
    qid = np.repeat(np.arange(n_queries), m // n_queries)
    return X, X @ RNG.normal(size=n) + 0.1 * RNG.normal(size=m), qid


def test_a_long_route_says_so_before_it_starts(monkeypatch):
    X, y, qid = sparse_ranking()
    monkeypatch.setattr(routes, "LONG", 1e-9)
    with pytest.warns(
        UserWarning, match=r"30 sets of rows held out one by one × 3 alphas.*\(dual, kernel"
    ) as told:
        RankRLSCV([0.1, 1.0, 10.0]).fit(X, y, qid=qid)
    long = [one for one in told if "expected to take" in str(one.message)]
    assert {one.filename for one in long} == {__file__}


def test_a_short_route_says_nothing():
    X, y, qid = sparse_ranking()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        HeldOut(RankRLS(), X, y, qid=qid).score(alphas=[1e-3, 1.0, 1e5])


def test_verbose_says_which_route_and_how_long(capsys):
    X, y, qid = sparse_ranking()
    HeldOut(RankRLS(), X, y, qid=qid, verbose=1).predict("leave-query-out", [0.1, 1.0])
    assert "[HeldOut] dual (kernel matrix 600 × 600), under a second" in capsys.readouterr().err
    cross_val_predict(RankRLS(), X, y, qid=qid)
    assert capsys.readouterr().err == ""


def test_advice_names_faster_ways_with_their_times():
    found = choose_route(text(15_000, 60_000, n_alphas=15, n_folds=750), memory=GENEROUS)
    advice = dict(routes.alternatives(found))
    assert advice["n_basis=1000"] < 0.7 * found.chosen.seconds
    iterated = choose_route(text(200_000, 100_000, 50, n_alphas=15, n_folds=2000), memory=GENEROUS)
    assert set(dict(routes.alternatives(iterated))) == {"cv=5", "n_basis=1000", "tol=1e-04"}


def test_hours_of_iterations_for_single_queries_are_refused(monkeypatch):
    X, y, qid = sparse_ranking()
    monkeypatch.setattr(routes, "MEMORY", 1.8e6)
    monkeypatch.setattr(routes, "REFUSED", 1e-3)
    with pytest.raises(
        ValueError, match=r"would have to be refitted by iterations.*kernel matrix 600 × 600.*cv=5"
    ):
        RankRLSCV([0.1, 1.0]).fit(X, y, qid=qid)
    assert RankRLSCV([0.1, 1.0], cv=5).fit(X, y, qid=qid).alpha_ in (0.1, 1.0)


def test_sparse_rows_have_no_cliff():
    """Above 3,000 sparse rows the exact decomposition is still taken for folds, queries and pairs."""
    X = sp.random_array((3300, 9000), density=40 / 9000, rng=0, format="csr")
    problem = Problem.read(RankRLS(), X, np.arange(3300.0), np.arange(3300) // 20)
    (task,) = problem.tasks
    assert problem.plan(task).solver == "dual"
    for sets in (np.split(np.arange(3300), 5), np.split(np.arange(3300), 165)):
        problem.expect(sets, np.logspace(-2, 2, 15))
        assert problem.plan(task).solver == "dual"


@pytest.mark.parametrize(("alphas", "n_passes"), [([1e6], 50), ([1e-6], 5000), ("auto", 2000)])
def test_iterations_are_counted_for_the_alphas_that_are_asked_for(alphas, n_passes, monkeypatch, capsys):
    """Strong regularisation takes few of them: no warning of hours that will be seconds."""
    X, y, qid = sparse_ranking()
    monkeypatch.setattr(routes, "MEMORY", 1.8e6)
    problem = Problem.read(RankRLS(), X, y, qid)
    (task,) = problem.tasks
    problem.expect(np.split(np.arange(600), 5), alphas)
    found = problem.plan(task).found
    assert found.chosen.solver == "cg"
    counted = int(found.chosen.matrix.split()[1])
    assert n_passes / 5 <= counted <= n_passes


def test_hours_of_iterations_for_single_preferences_are_refused(monkeypatch):
    X = sparse_ranking()[0]
    pairs = np.arange(600).reshape(300, 2)
    monkeypatch.setattr(routes, "MEMORY", 4.5e5)
    monkeypatch.setattr(routes, "REFUSED", 1e-3)
    with pytest.raises(
        ValueError, match="300 preferences held out in 300 sets.* would have to be refitted.*cv=5"
    ):
        HeldOut.of_pairs(RankRLS(), X, pairs).preferences()
    assert HeldOut.of_pairs(RankRLS(), X, pairs).preferences(5).shape == (1, 300)


def test_the_route_is_chosen_for_what_is_asked():
    X, y, qid = sparse_ranking()
    problem = Problem.read(RankRLS(), X, y, qid)
    (task,) = problem.tasks
    assert problem.plan(task).found.workload.purpose == "pairs"
    problem.expect([np.arange(20), np.arange(20, 30)], np.logspace(-2, 2, 7))
    found = problem.plan(task).found.workload
    assert (found.purpose, found.n_folds, found.n_alphas) == ("folds", 2, 7)
    assert found.n_stored == X.nnz


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_products_of_sparse_rows_are_those_of_dense_ones(dtype, monkeypatch):
    A = sp.random_array((70, 30), density=0.1, rng=0, format="csr").astype(dtype)
    B = sp.random_array((23, 30), density=0.1, rng=1, format="csr").astype(dtype)
    for block, compiled in ((1 << 22, 1000), (50, 1000), (50, 0)):
        monkeypatch.setattr(functions, "_COMPILED_ROWS", compiled)
        monkeypatch.setattr(functions, "_SPARSE_BLOCK", block)
        for other in (A, B, B.toarray()):
            dense = other.toarray() if sp.issparse(other) else other
            found = functions.sparse_products(A, None if other is A else other)
            assert found.dtype == dtype
            np.testing.assert_allclose(found, A.toarray() @ dense.T, rtol=1e-5, atol=1e-7)
