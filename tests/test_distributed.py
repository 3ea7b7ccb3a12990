"""Training on Dask collections: the model of one machine; split queries are refused, dead workers survived."""

from __future__ import annotations

import os
import signal
import threading
import time

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from preflearn import RLS, RLSCV, AutoRanker, RankRLS, RankRLSCV, RankSVM
from preflearn.losses.newton import PairObjective
from strategies import ranking_problems

dask = pytest.importorskip("dask")
da = pytest.importorskip("dask.array")
dd = pytest.importorskip("dask.dataframe")
pd = pytest.importorskip("pandas")
distributed = pytest.importorskip("distributed")

from preflearn.distributed import align_queries, fit  # noqa: E402
from preflearn.distributed.pair_losses import DistributedObjective  # noqa: E402

NAMES = ["a", "b", "c", "d"]


@pytest.fixture(scope="module")
def cluster():
    """Two worker processes."""
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=":0", memory_limit=0
        ) as workers,
        distributed.Client(workers) as client,
    ):
        yield client


@pytest.fixture
def here():
    """One thread of this process."""
    with dask.config.set(scheduler="synchronous"):
        yield


def make_data(m=300, queries=30, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(m, 4))
    y = np.round(2 * (X @ [1.0, -1.0, 0.5, 0.0] + rng.normal(size=m)))
    return X, y, np.sort(rng.integers(0, queries, m))


def whole_queries(qid, about=60):
    """Numbers of rows of partitions that end with a query."""
    ends = [k for k in range(1, len(qid)) if qid[k] != qid[k - 1]] + [len(qid)]
    cuts, last = [], 0
    for end in ends:
        if end - last >= about or end == len(qid):
            cuts.append(end - last)
            last = end
    return tuple(cuts)


def as_arrays(X, y, qid, rows):
    columns = (X.shape[1],) if X.ndim == 2 else ()
    y_rows = (rows, (y.shape[1],)) if y.ndim == 2 else (rows,)
    return (
        da.from_array(X, chunks=(rows, columns)),
        da.from_array(y, chunks=y_rows),
        None if qid is None else da.from_array(qid, chunks=(rows,)),
    )


def as_frame(X, y, qid, n_partitions=4):
    table = pd.DataFrame(X, columns=NAMES).assign(relevance=y, query=qid)
    return dd.from_pandas(table, npartitions=n_partitions, sort=False)


MODELS = {
    "RankRLS": RankRLS(0.5),
    "ties": RankRLS(0.5, ties="exclude", weighting="query"),
    "unit": RankRLS(0.5, cost="unit"),
    "reduced": RankRLS(0.5, kernel="rbf", n_basis=9, random_state=3),
    "fraction": RankRLS(0.5, kernel="rbf", gamma=0.1, n_basis=0.05, random_state=3),
    "given": RankRLS(0.5, kernel="rbf", basis=[200, 7, 8]),
    "RankSVM": RankSVM(0.5, tol=1e-10),
    "hinge": RankSVM(0.5, loss="hinge", weighting="query", tol=1e-6),
    "reduced svm": RankSVM(0.5, kernel="rbf", n_basis=9, random_state=3, tol=1e-10),
}


@pytest.mark.parametrize("name", MODELS)
def test_same_model_as_on_one_machine(here, name):
    X, y, qid = make_data()
    model = MODELS[name]
    rows = whole_queries(qid)
    expected = model.fit(X, y, qid=qid)
    predictions, n_pairs = expected.predict(X), expected.n_comparisons_
    objective = getattr(expected, "objective_", None)
    found = fit(model, *as_arrays(X, y, qid, rows))
    assert found is model
    atol = {"hinge": 2e-2}.get(name, 1e-5 if "SVM" in name or "svm" in name else 1e-8)
    np.testing.assert_allclose(found.predict(X), predictions, atol=atol)
    if objective is not None:
        np.testing.assert_allclose(found.objective_, objective, rtol=2e-6)
    assert (found.n_queries_, found.n_comparisons_, found.n_features_in_) == (len(np.unique(qid)), n_pairs, 4)
    if hasattr(found, "basis_indices_"):
        np.testing.assert_array_equal(found.basis_, X[found.basis_indices_])


@settings(max_examples=10)
@given(ranking_problems(min_rows=6), st.integers(1, 12), st.sampled_from(["pair", "item", "query"]))
def test_any_partitions_of_whole_queries(problem, about, weighting):
    order = np.argsort(problem.qid, kind="stable")
    X, y, qid = problem.X[order], problem.y[order], problem.qid[order]
    arrays = as_arrays(X, y, qid, whole_queries(qid, about))
    with dask.config.set(scheduler="synchronous"):
        ranked = fit(RankRLS(0.5, weighting=weighting), *arrays, split_every=2)
        machine = fit(RankSVM(0.5, weighting=weighting, tol=1e-12), *arrays, split_every=2)
    expected = RankRLS(0.5, weighting=weighting).fit(X, y, qid=qid).coef_
    np.testing.assert_allclose(ranked.coef_, expected, atol=1e-6 * max(1.0, abs(expected).max()))
    expected = RankSVM(0.5, weighting=weighting, tol=1e-12).fit(X, y, qid=qid)
    np.testing.assert_allclose(machine.objective_, expected.objective_, rtol=1e-7)


def test_rows_without_queries(here):
    X, y, _ = make_data()
    arrays = as_arrays(X, y, None, (100, 50, 150))
    for model in (RankRLS(0.5), RankRLS(0.5, weighting="item"), RLS(0.5), RLS(0.5, fit_intercept=False)):
        expected = model.fit(X, y).predict(X)
        np.testing.assert_allclose(fit(model, *arrays[:2]).predict(X), expected, atol=1e-9)
    Y = np.stack([y, -y + X[:, 0]], axis=1)
    expected = RLS(0.5, kernel="rbf", n_basis=8, random_state=0).fit(X, Y)
    found = fit(RLS(0.5, kernel="rbf", n_basis=8, random_state=0), *as_arrays(X, Y, None, (100, 200))[:2])
    np.testing.assert_allclose(found.predict(X), expected.predict(X), atol=1e-8)
    np.testing.assert_allclose(found.intercept_, expected.intercept_)


def test_search_equals_the_stream(here):
    X, y, qid = make_data()
    rows = whole_queries(qid)
    ends = np.cumsum((0, *rows))
    chunks = [(X[a:b], y[a:b], qid[a:b]) for a, b in zip(ends, ends[1:])]
    for options in ({}, {"scoring": "concordance"}, {"kernel": "rbf", "basis": [3, 50, 120, 200, 280]}):
        streamed = RankRLSCV(cv=4, **options).fit_stream(chunks)
        found = fit(RankRLSCV(cv=4, **options), *as_arrays(X, y, qid, rows))
        np.testing.assert_allclose(found.cv_scores_, streamed.cv_scores_, rtol=1e-9)
        np.testing.assert_allclose(found.predict(X), streamed.predict(X), atol=1e-9)
        assert (found.alpha_, found.scoring_) == (streamed.alpha_, streamed.scoring_)
    global_found = fit(RankRLSCV(cv=4), *as_arrays(X, y, None, rows)[:2])
    global_streamed = RankRLSCV(cv=4).fit_stream([chunk[:2] for chunk in chunks])
    np.testing.assert_allclose(global_found.cv_scores_, global_streamed.cv_scores_, rtol=1e-9)


def test_sparse_blocks_and_empty_partitions(here):
    X, y, qid = make_data()
    X[np.abs(X) < 0.5] = 0
    parts = [dask.delayed(sp.csr_matrix)(X[:0]), dask.delayed(sp.csr_matrix)(X)]
    blocks = [da.from_delayed(part, (np.nan, 4), meta=sp.csr_matrix((0, 4), dtype=float)) for part in parts]
    arrays = (
        da.concatenate(blocks),
        *(
            da.concatenate([da.from_delayed(dask.delayed(v[:k]), (np.nan,), dtype=v.dtype) for k in (0, 300)])
            for v in (y, qid)
        ),
    )
    for model in (RankRLS(), RankSVM(tol=1e-10), RankRLS(n_basis=4, random_state=0)):
        expected = model.fit(X, y, qid=qid).predict(X)
        np.testing.assert_allclose(fit(model, *arrays).predict(X), expected, atol=1e-5)


# ---------------------------------------------------------------------- queries that are split


def split_arrays():
    X, y, qid = make_data()
    assert qid[99] == qid[100] and qid[199] == qid[200]
    return X, y, qid, as_arrays(X, y, qid, (100, 100, 100))


@pytest.mark.parametrize("model", [RankRLS(), RankRLSCV(), RankSVM()])
@pytest.mark.parametrize("text", [False, True])
def test_a_query_in_two_partitions_is_refused(here, model, text):
    _, _, qid, arrays = split_arrays()
    if text:
        labels = np.array([f"query {q}" for q in qid])
        arrays = (*arrays[:2], da.from_array(labels, chunks=((100, 100, 100),)))
    with pytest.raises(ValueError, match="one query are in two chunks or partitions.*align_queries"):
        fit(model, *arrays)


def test_aligned_arrays_hold_whole_queries(here):
    X, y, qid, arrays = split_arrays()
    aligned = align_queries(*arrays)
    parts = [part.compute() for part in aligned[2].blocks]
    assert [set(a) & set(b) for k, a in enumerate(parts) for b in parts[k + 1 :]] == [set()] * 3
    np.testing.assert_array_equal(np.concatenate(parts), qid)  # sorted rows only move over the borders
    np.testing.assert_array_equal(aligned[0].compute(), X)
    expected = RankRLS().fit(X, y, qid=qid).coef_
    np.testing.assert_allclose(fit(RankRLS(), *aligned).coef_, expected, atol=1e-9)


@settings(max_examples=10)
@given(ranking_problems(min_rows=4), st.integers(1, 5), st.booleans(), st.booleans())
def test_any_rows_can_be_aligned(problem, size, text, as_data_frame):
    qid = np.array([f"q{q}" for q in problem.qid]) if text else problem.qid
    m = len(problem.y)
    number = np.arange(m)
    with dask.config.set(scheduler="synchronous"):
        if as_data_frame:
            table = pd.DataFrame({"number": number, "query": qid})
            frame = dd.from_pandas(table, npartitions=max(1, m // size), sort=False)
            parts = [part.compute() for part in align_queries(frame, qid="query").partitions]
            labels, rows = (
                [part["query"].tolist() for part in parts],
                [part["number"].tolist() for part in parts],
            )
        else:
            arrays = da.from_array(problem.X, chunks=(size, -1)), da.from_array(number, chunks=size)
            X, y, q = align_queries(*arrays, da.from_array(qid, chunks=size))
            labels, rows = ([p.compute().tolist() for p in v.blocks] for v in (q, y))
            np.testing.assert_array_equal(X.compute(), problem.X[sum(rows, [])])
    assert sorted(sum(rows, [])) == number.tolist()
    assert [qid[k] for k in sum(rows, [])] == sum(labels, [])
    owners = [(label, k) for k, part in enumerate(labels) for label in set(part)]
    assert len(owners) == len({label for label, _ in owners})
    for query in set(qid.tolist()):
        of_query = [k for k in sum(rows, []) if qid[k] == query]
        assert of_query == sorted(of_query)


def test_data_frames_by_column_names_and_by_series(here):
    X, y, qid = make_data()
    frame = align_queries(as_frame(X, y, qid), qid="query")
    expected = RankRLS().fit(X, y, qid=qid).coef_
    model = fit(RankRLS(), frame, "relevance", "query")
    np.testing.assert_allclose(model.coef_, expected, atol=1e-9)
    assert model.feature_names_in_.tolist() == NAMES
    model.predict(pd.DataFrame(X, columns=NAMES))
    series = fit(RankRLS(), frame[NAMES], frame["relevance"], frame["query"])
    np.testing.assert_allclose(series.coef_, expected, atol=1e-9)
    aligned = align_queries(*(as_frame(X, y, qid)[part] for part in (NAMES, "relevance", "query")))
    np.testing.assert_allclose(
        fit(RankSVM(tol=1e-9), *aligned).coef_, RankSVM(tol=1e-9).fit(X, y, qid=qid).coef_, atol=1e-5
    )
    with pytest.raises(ValueError, match="align_queries"):
        fit(RankRLS(), as_frame(X, y, qid), "relevance", "query")


# ---------------------------------------------------------------------- a cluster, and a worker that dies


def test_cluster_gives_the_same_model(cluster):
    X, y, qid = make_data(600, 60)
    arrays = as_arrays(X, y, qid, whole_queries(qid, 150))
    for model in (RankRLS(0.5), RankRLSCV([0.1, 1.0, 10.0], cv=3, scoring="concordance"), RankSVM(0.5)):
        with dask.config.set(scheduler="synchronous"):
            expected = fit(model, *arrays).predict(X)
        np.testing.assert_allclose(fit(model, *arrays).predict(X), expected, atol=1e-12)
    with pytest.raises(ValueError, match="align_queries"):
        fit(RankRLS(), *as_arrays(X, y, qid, (300, 300)))
    with pytest.raises(ValueError, match="Partition 1: .*NaN"):
        bad = X.copy()
        bad[400] = np.nan
        fit(RankRLS(), *as_arrays(bad, y, None, (300, 300))[:2])


def slowly(block, folder, seconds):
    """A partition that takes a while to load, and leaves a trace."""
    if block.shape[0]:
        with open(os.path.join(folder, f"{os.getpid()}-{time.monotonic_ns()}"), "w"):
            time.sleep(seconds)
    return block


def kill_one(client):
    pids = client.run(os.getpid)
    address = sorted(pids)[0]
    os.kill(pids[address], signal.SIGKILL)
    return pids[address]


def test_a_worker_that_dies_is_survived(cluster, tmp_path):
    X, y, qid = make_data(600, 60)
    arrays = as_arrays(X, y, qid, whole_queries(qid, 50))
    expected = RankRLS(0.5).fit(X, y, qid=qid).coef_
    slow = arrays[0].map_blocks(slowly, str(tmp_path), 0.15, dtype=float, meta=np.empty((0, 0)))
    killed = []

    def killer():
        while len(os.listdir(tmp_path)) < 3:
            time.sleep(0.01)
        # One that has loaded something, at once: to ask the cluster may take longer than what is left to load.
        killed.append(int(os.listdir(tmp_path)[0].split("-")[0]))
        os.kill(killed[0], signal.SIGKILL)

    thread = threading.Thread(target=killer)
    thread.start()
    model = fit(RankRLS(0.5), slow, *arrays[1:])
    thread.join()
    np.testing.assert_allclose(model.coef_, expected, atol=1e-10)
    assert killed and len(os.listdir(tmp_path)) > arrays[0].numblocks[0]  # something was loaded again
    cluster.wait_for_workers(2)
    assert killed[0] not in cluster.run(os.getpid).values()


def test_a_worker_that_dies_between_newton_steps_is_survived(cluster, monkeypatch):
    X, y, qid = make_data(600, 60)
    arrays = as_arrays(X, y, qid, whole_queries(qid, 100))
    expected = RankSVM(0.5, tol=1e-10).fit(X, y, qid=qid)
    killed = []
    total = DistributedObjective.total

    def total_with_accident(self, method, *arguments):
        if method == "product" and not killed:
            killed.append(kill_one(cluster))
        return total(self, method, *arguments)

    monkeypatch.setattr(DistributedObjective, "total", total_with_accident)
    cluster.wait_for_workers(2)
    model = fit(RankSVM(0.5, tol=1e-10), *arrays)
    assert killed
    np.testing.assert_allclose(model.coef_, expected.coef_, atol=1e-7)
    np.testing.assert_allclose(model.objective_, expected.objective_, rtol=1e-10)


# ---------------------------------------------------------------------- refusals


def test_the_solver_is_the_one_of_one_machine():
    assert issubclass(DistributedObjective, PairObjective)


@pytest.mark.parametrize(
    ("model", "change", "error", "message"),
    [
        (RLSCV(), {}, TypeError, "trains RankRLS, RankRLSCV, RLS, RankSVM and AutoRanker: found RLSCV"),
        (
            RankRLS(),
            {"X": np.ones((300, 4))},
            TypeError,
            "X must be a Dask array or data frame: found ndarray",
        ),
        (RankRLS(), {"y": None}, ValueError, "requires y"),
        (RankRLS(), {"y": "relevance"}, TypeError, "only be names of columns where X is"),
        (
            RankRLS(),
            {"y": da.ones(299, chunks=100)},
            ValueError,
            "X has 300 rows, and another collection 299",
        ),
        (RankRLS(kernel="rbf"), {}, ValueError, "needs a model of fixed width"),
        (RankRLS(alpha=0), {}, ValueError, "alpha must be"),
        (RankSVM(n_basis=5, basis="diverse"), {}, ValueError, "needs all rows in memory"),
        (RankRLS(solver="cg"), {}, ValueError, "solver='cg' would be ignored"),
        (RankRLS(cost="unit"), {"qid": None}, ValueError, "One global ranking in several partitions"),
        (RankRLS(cost="unit"), {"y": da.ones((300, 2), chunks=(150, 2))}, ValueError, "Several outputs"),
        (RankSVM(kernel="rbf"), {}, ValueError, "needs a model of fixed width"),
        (RankSVM(), {"qid": None}, ValueError, "RankSVM on partitions needs qid"),
        (RankSVM(loss="squared"), {}, ValueError, "loss must be"),
        (RankSVM(), {"y": da.ones(300, chunks=150)}, ValueError, "no pair to learn from"),
        (RankRLS(), {"qid": da.arange(300, chunks=150)}, ValueError, "No pair can be compared"),
        (RLS(), {}, ValueError, "qid would be ignored"),
        (RankRLSCV(scoring="concordance"), {"qid": None}, ValueError, "there is no qid"),
        (RankRLSCV(cv="leave-query-out"), {}, ValueError, "number of folds"),
        (RankRLS(), {"split_every": 1}, ValueError, "split_every must be"),
    ],
)
def test_bad_input_is_refused(here, model, change, error, message):
    X, y, qid = make_data()
    arrays = dict(zip(("X", "y", "qid"), as_arrays(X, y, qid, whole_queries(qid, 100))))
    with pytest.raises(error, match=message):
        fit(model, **{**arrays, **change})


def test_bad_alignments_are_refused(here):
    X, y, qid = make_data()
    frame, arrays = as_frame(X, y, qid), as_arrays(X, y, qid, (300,))
    for arguments, error, message in [
        ((frame,), ValueError, "needs qid"),
        ((frame, None, "nothing"), ValueError, "no column 'nothing'"),
        ((frame, "relevance", "query"), ValueError, "leave y as a column"),
        ((arrays[0], None, "query"), TypeError, "not a Dask data frame"),
        ((arrays[0], None, arrays[2]), ValueError, "needs y"),
    ]:
        with pytest.raises(error, match=message):
            align_queries(*arguments)
    with pytest.raises(ValueError, match="no column 'stars'"):
        fit(RankRLS(), frame, "stars", "query")
    with pytest.raises(ValueError, match="partitioned in the same way"):
        fit(RankRLS(), frame[NAMES], frame["relevance"].repartition(npartitions=2), frame["query"])


def ranked_rows(m=600, seed=0):
    rng = np.random.default_rng(seed)
    X, qid = rng.normal(size=(m, 4)), np.repeat(np.arange(m // 10), 10)
    return X, np.round(np.sin(2 * X[:, 0]) + X[:, 1] + 0.3 * rng.normal(size=m)), qid


@pytest.fixture
def quick_automatic(monkeypatch):
    from preflearn.auto import fitting, trees

    monkeypatch.setattr(fitting, "_MOST_ROWS", 200)
    monkeypatch.setattr(fitting, "_REFITTED_CELLS", 0)
    monkeypatch.setattr(trees, "_STAGES", (5, 10))


@pytest.mark.parametrize("most", [None, 300])
def test_the_automatic_ranker_of_partitions_is_that_of_a_stream(quick_automatic, most, monkeypatch):
    """Trained on the same rows: all, or the queries that are kept."""
    from preflearn.auto import sample

    if most is not None:
        monkeypatch.setattr(sample, "MOST_ROWS", most)
    X, y, qid = ranked_rows()
    found = fit(AutoRanker(random_state=0), *as_arrays(X, y, qid, (200, 0, 250, 150)))
    parts = [(X[a:b], y[a:b], qid[a:b]) for a, b in ((0, 300), (300, 600))]
    expected = AutoRanker(random_state=0).fit_stream(parts)
    np.testing.assert_allclose(found.predict(X, qid=qid), expected.predict(X, qid=qid), atol=1e-6)
    assert found.best_score_ == pytest.approx(expected.best_score_)
    assert found.n_training_rows_ == expected.n_training_rows_ and found.n_queries_ == 60
    assert found.n_training_rows_ > 500 if most is None else 200 < found.n_training_rows_ < most


def test_the_automatic_ranker_survives_a_worker_that_dies(quick_automatic, cluster, monkeypatch):
    """Two workers, one of which dies in the middle of the pass: the model of a stream."""
    from preflearn.auto.sample import QuerySample

    X, y, qid = ranked_rows()
    killed = []
    merge = QuerySample.merge

    def merge_with_accident(self, other):
        merge(self, other)
        if not killed:
            killed.append(kill_one(cluster))

    monkeypatch.setattr(QuerySample, "merge", merge_with_accident)
    cluster.wait_for_workers(2)
    arrays = as_arrays(X, y, qid, (100,) * 6)
    found = fit(AutoRanker(random_state=0), *arrays, split_every=2)
    assert killed
    expected = AutoRanker(random_state=0).fit_stream([(X, y, qid)])
    np.testing.assert_allclose(found.predict(X, qid=qid), expected.predict(X, qid=qid), atol=1e-6)
    assert found.best_score_ == pytest.approx(expected.best_score_, abs=1e-6)


def test_the_automatic_ranker_encodes_tables_as_their_sample(quick_automatic, here):
    X, y, qid = ranked_rows()
    brand = np.array(["ash", "birch"])[(X[:, 2] > 0).astype(int)]
    table = pd.DataFrame({"price": X[:, 0], "brand": brand, "relevance": y, "query": qid})
    frame = align_queries(dd.from_pandas(table, npartitions=4), qid="query")
    found = fit(AutoRanker(random_state=0), frame, y="relevance", qid="query")
    expected = AutoRanker(random_state=0).fit_stream([(table[["price", "brand"]], y, qid)])
    new = table[["price", "brand"]]
    assert found.encoder_.kinds_ == {"price": "number", "brand": "category"}
    np.testing.assert_allclose(found.predict(new, qid=qid), expected.predict(new, qid=qid), atol=1e-6)


def test_the_automatic_ranker_refuses_partitions_that_it_cannot_learn_from(quick_automatic):
    X, y, qid = ranked_rows(60)
    with pytest.raises(ValueError, match="there is no qid"):
        fit(AutoRanker(), *as_arrays(X, y, None, (30, 30))[:2])
    with pytest.raises(ValueError, match="is in two parts"):
        fit(AutoRanker(), *as_arrays(X, y, qid, (25, 35)))
