"""Training in one pass: the same model as from all rows, whatever the chunks, the interrupts and the faults."""

from __future__ import annotations

import errno
import os
import weakref
from functools import partial

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

import oracles
from interrupts import interrupting_at
from preflearn import RLS, RankRLS, RankRLSCV
from preflearn.comparisons import compare_scores, encode_queries
from preflearn.io import RankingData, iter_ranking, load_model, save_model, write_ranking
from preflearn.learners.streaming import checkpoint as checkpoints
from preflearn.learners.streaming.basis import Reservoir
from preflearn.learners.streaming.checkpoint import CheckpointError
from preflearn.squared.moments import GlobalMoments, QueryMoments
from preflearn.squared.statistics import KeySet, Statistics, folds_of, label_keys
from strategies import ranking_problems

OPTIONS = [
    {},
    {"weighting": "query"},
    {"weighting": "item", "ties": "exclude"},
    {"cost": "unit"},
    {"cost": "relative"},
]


def make_data(m=240, n=4, queries=24, seed=0, *, levels=None):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(m, n))
    y = X @ rng.normal(size=n) + 0.5 * rng.normal(size=m)
    if levels is not None:
        y = np.round(y * levels / 3)
    return X, y, np.sort(rng.integers(0, queries, m))


def in_chunks(X, y, qid, size=50):
    """Whole queries, about ``size`` rows at a time."""
    if qid is None:
        return [(X[k : k + size], y[k : k + size]) for k in range(0, len(y), size)]
    chunks, rows = [], []
    for query in dict.fromkeys(qid):
        rows.extend(np.flatnonzero(np.asarray(qid) == query))
        if len(rows) >= size:
            chunks.append(rows)
            rows = []
    return [(X[r], y[r], np.asarray(qid)[r]) for r in (*chunks, rows) if len(r)]


# ---------------------------------------------------------------------- the statistics


@given(
    ranking_problems(comparable=False),
    st.sampled_from(["pair", "item", "query"]),
    st.sampled_from(
        [("magnitude", "include"), ("magnitude", "exclude"), ("unit", "exclude"), ("relative", "exclude")]
    ),
    st.sampled_from([np.float64, np.float32]),
    st.booleans(),
)
def test_moments_of_folds_add_up_and_give_the_loss(problem, weighting, kind, dtype, sparse):
    X = problem.X.astype(dtype)
    scores = problem.y[:, None]
    queries = encode_queries(problem.qid, len(problem.y))
    comparisons = compare_scores(
        scores, queries, cost=kind[0], ties=kind[1], weighting=weighting, allow_none=True
    )
    L = comparisons.to_dense()
    tolerance = {"rtol": 2e-3 if dtype == np.float32 else 1e-8}
    scale = max(1e-12, np.abs(X.astype(float).T @ L @ X).max(), np.abs(X.T @ comparisons.target).max())
    # The oracle itself is rounded where terms cancel, as with equal rows.
    rounding = 1e-14 * (np.abs(X).astype(float).T @ np.abs(comparisons.target)).max()
    features = sp.csr_array(X) if sparse else X
    folds = QueryMoments.of_folds(features, comparisons, (queries.codes * 7) % 3, 3)
    total = Statistics(folds).total()
    np.testing.assert_allclose(total.gram, X.T.astype(float) @ L @ X, atol=1e-4 * scale, **tolerance)
    np.testing.assert_allclose(
        total.cross, X.T.astype(float) @ comparisons.target, atol=1e-4 * scale + rounding, **tolerance
    )
    whole = QueryMoments.of(features, comparisons)
    assert (total.n_rows, total.n_comparisons) == (whole.n_rows, whole.n_comparisons)
    if dtype == np.float64:
        np.testing.assert_allclose(total.gram, whole.gram, rtol=1e-10, atol=1e-10 * scale)
        w = np.linspace(-1, 1, X.shape[1])[:, None]
        error, _ = oracles_pair_loss(problem, X @ w[:, 0], kind, weighting)
        np.testing.assert_allclose(whole.loss(w[None])[0], error, rtol=1e-8, atol=1e-9 * (1 + scale))


def oracles_pair_loss(problem, f, kind, weighting):
    """The loss over every pair, one by one."""
    total = weight = 0.0
    for query in np.unique(problem.qid):
        rows = np.flatnonzero(problem.qid == query)
        pairs = [(i, j) for k, i in enumerate(rows) for j in rows[k + 1 :]]
        if kind[1] == "exclude":
            pairs = [(i, j) for i, j in pairs if problem.y[i] != problem.y[j]]
        for i, j in pairs:
            w = {"pair": 1.0, "item": 1.0 / len(rows), "query": 1.0 / len(pairs)}[weighting]
            gap = problem.y[i] - problem.y[j]
            target = np.sign(gap) if kind[0] == "unit" else gap
            error = target - (f[i] - f[j])
            error = error / gap if kind[0] == "relative" else error
            total, weight = total + w * error**2, weight + w
    return total, weight


@given(ranking_problems(min_rows=6), st.sampled_from(["pair", "item", "query"]), st.integers(1, 5))
def test_global_moments_give_the_loss_of_all_pairs(problem, weighting, size):
    total = None
    for k in range(0, len(problem.y), size):
        part = GlobalMoments.of(problem.X[k : k + size], problem.y[k : k + size, None], weighting)
        if total is None:
            total = part
        else:
            total.add(part)
    problem.qid[:] = 0
    w = np.linspace(-1, 1, problem.X.shape[1])
    loss, weight = oracles_pair_loss(problem, problem.X @ w, ("magnitude", "include"), weighting)
    np.testing.assert_allclose(total.loss(w[None, :, None])[0], loss, rtol=1e-7)
    np.testing.assert_allclose(total.weight, weight)


# ---------------------------------------------------------------------- labels


@given(st.lists(st.lists(st.integers(-30, 60), unique=True, max_size=12), max_size=12))
def test_key_set_is_a_set(lists):
    seen, runs, merged = set(), KeySet(), KeySet()
    for keys in lists:
        array = np.array(keys, dtype=np.int64)
        part = KeySet()
        assert part.add(array) is None
        common = seen & set(keys)
        again, again_merged = runs.add(array), merged.merge(part)
        assert (again is None) == (again_merged is None) == (not common)
        if common:
            assert again in common and again_merged in common
        else:
            seen |= set(keys)
        assert len(runs) == len(merged) == len(seen)
        lows, highs = runs.runs()
        assert [k for a, b in zip(lows, highs) for k in range(a, b + 1)] == sorted(seen)
        assert len(KeySet.from_runs(lows, highs)) == len(seen)


def test_consecutive_labels_take_no_memory():
    seen = KeySet()
    for k in range(1000):
        assert seen.add(np.arange(100 * k, 100 * k + 100)) is None
    assert len(seen) == 100_000
    assert [bounds.tolist() for bounds in seen.runs()] == [[0], [99_999]]
    assert seen.add(np.array([5, 200_000])) == 5


def test_folds_depend_on_the_label_alone_and_are_even():
    keys = label_keys(np.arange(20_000))
    counts = np.bincount(folds_of(keys, 5))
    assert counts.min() > 3_800 and counts.max() < 4_200
    texts = np.array([f"query {k}" for k in range(5_000)])
    assert np.bincount(folds_of(label_keys(texts), 5)).min() > 900
    np.testing.assert_array_equal(label_keys(texts[::-1])[::-1], label_keys(texts.astype(object)))
    np.testing.assert_array_equal(
        label_keys(np.array([3, 4], np.int32)), label_keys(np.array([3, 4], object))
    )
    assert len(np.unique(label_keys(texts))) == 5_000
    # The hash is part of the format of checkpoints: it must not change.
    assert label_keys(np.array(["a"], object)).tolist() == [3405396810240292928]
    assert folds_of(np.array([0, 1, 2, -1, 10**18]), 7).tolist() == [2, 2, 4, 0, 1]


# ---------------------------------------------------------------------- one pass is fit


@given(
    ranking_problems(min_rows=6), st.sampled_from(OPTIONS), st.integers(1, 12), st.booleans(), st.booleans()
)
def test_stream_equals_fit(problem, options, size, sparse, text):
    X = sp.csr_array(problem.X) if sparse else problem.X
    qid = np.array([f"q{q}" for q in problem.qid], object) if text else problem.qid
    whole = RankRLS(0.5, **options).fit(X, problem.y, qid=qid)
    model = RankRLS(0.5, **options).fit_stream(in_chunks(X, problem.y, qid, size))
    scale = max(1.0, np.abs(whole.coef_).max())
    np.testing.assert_allclose(model.coef_, whole.coef_, atol=1e-6 * scale, rtol=1e-6)
    assert (model.n_queries_, model.n_comparisons_) == (whole.n_queries_, whole.n_comparisons_)
    assert (model.solver_, model.n_features_in_) == ("primal", X.shape[1])


@given(ranking_problems(min_rows=6), st.sampled_from(["pair", "item", "query"]), st.integers(1, 5))
def test_stream_without_queries_is_one_global_ranking(problem, weighting, size):
    whole = RankRLS(0.5, weighting=weighting).fit(problem.X, problem.y)
    model = RankRLS(0.5, weighting=weighting).fit_stream(in_chunks(problem.X, problem.y, None, size))
    np.testing.assert_allclose(model.coef_, whole.coef_, atol=1e-6 * max(1.0, abs(whole.coef_).max()))


@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("options", [{}, {"kernel": "rbf", "basis": np.arange(7)}])
def test_regression_streams_too(fit_intercept, options):
    X, y, _ = make_data()
    Y = np.stack([y + 3, -y], axis=1)
    whole = RLS(0.3, fit_intercept=fit_intercept, **options).fit(X, Y)
    model = RLS(0.3, fit_intercept=fit_intercept, **options).fit_stream(in_chunks(X, Y, None, 33))
    np.testing.assert_allclose(model.predict(X), whole.predict(X), atol=1e-9)
    assert hasattr(model, "intercept_") == fit_intercept
    assert not hasattr(model.fit(X, Y), "stream_")


def test_many_outputs():
    X, y, qid = make_data()
    Y = np.stack([y, -2 * y], axis=1)
    model = RankRLS().fit_stream(in_chunks(X, Y, qid))
    np.testing.assert_allclose(model.coef_, RankRLS().fit(X, Y, qid=qid).coef_, atol=1e-9)


def test_reduced_set_from_a_source_read_twice_or_once():
    X, y, qid = make_data()
    chunks = in_chunks(X, y, qid)
    twice = RankRLS(kernel="rbf", n_basis=12, random_state=0).fit_stream(chunks)
    assert twice.stream_["basis"] == "reservoir sample of all 240 rows, in a first pass"
    assert twice.basis_indices_[-1] > 120 and (np.diff(twice.basis_indices_) > 0).all()
    once = RankRLS(kernel="rbf", n_basis=4, random_state=0).fit_stream(iter(chunks))
    n_first = len(chunks[0][1])
    assert once.stream_["basis"] == f"uniform sample of the first {n_first} rows"
    assert once.basis_indices_.max() < n_first
    order = np.concatenate([np.flatnonzero(np.isin(qid, chunk[2])) for chunk in chunks])
    for model in (twice, once):
        np.testing.assert_array_equal(model.basis_, X[order][model.basis_indices_])
        same = RankRLS(kernel="rbf", basis=order[model.basis_indices_]).fit(X, y, qid=qid)
        np.testing.assert_allclose(model.predict(X), same.predict(X), atol=1e-8)
    given_rows = RankRLS(kernel="rbf", basis=[200, 3]).fit_stream(chunks)
    np.testing.assert_array_equal(given_rows.basis_, X[order][[200, 3]])
    sparse = RankRLS(n_basis=5, random_state=1).fit_stream([(sp.csr_array(X), y, qid)])
    dense = RankRLS(n_basis=5, random_state=1).fit_stream([(X, y, qid)])
    np.testing.assert_allclose(sparse.predict(X), dense.predict(X), atol=1e-9)


@pytest.mark.parametrize("options", OPTIONS)
def test_features_of_a_reduced_set_are_made_in_pieces(monkeypatch, options):
    monkeypatch.setattr("preflearn.squared.statistics._LEAST_ROWS", 16)
    monkeypatch.setattr("preflearn.squared.statistics._FEATURE_BYTES", 1)
    X, y, qid = make_data(levels=4)
    qid[40:90] = qid[40]  # longer than a piece
    order = np.random.default_rng(0).permutation(len(y))
    X, y, qid = X[order], y[order], qid[order]
    model = RankRLS(kernel="rbf", basis=[3, 40, 99, 200, 10, 20, 150, 220], **options)
    whole = model.fit(X, y, qid=qid).predict(X)
    np.testing.assert_allclose(model.fit_stream([(X, y, qid)]).predict(X), whole, atol=1e-8)
    assert model.stream_["chunks"] == 1 and model.stream_["queries"] == len(np.unique(qid))
    if not options:
        whole = model.fit(X, y).predict(X)
        np.testing.assert_allclose(model.fit_stream([(X, y)]).predict(X), whole, atol=1e-8)
        search = RankRLSCV(
            [0.1, 1.0, 5.0],
            kernel="rbf",
            basis=[3, 40, 99, 200, 10, 20, 150, 220],
            scoring="concordance",
            cv=3,
        )
        in_pieces = search.fit_stream([(X, y, qid)]).cv_scores_
        monkeypatch.undo()
        np.testing.assert_allclose(in_pieces, search.fit_stream([(X, y, qid)]).cv_scores_, rtol=1e-9)


def test_reservoir_is_uniform_and_blind_to_chunks():
    X = np.arange(40.0)[:, None]
    hits = np.zeros(40)
    for seed in range(600):
        whole, parts = Reservoir(5, seed), Reservoir(5, seed)
        whole.add(X, None)
        for k in (0, 3, 4, 17, 40):
            parts.add(X[parts.n_seen : k], None)
        found = whole.result("").indices
        np.testing.assert_array_equal(found, parts.result("").indices)
        np.testing.assert_array_equal(whole.result("").items[:, 0], found)
        hits[found] += 1
    # 600 draws of 5 in 40: 75 expected, standard deviation 8.1.
    assert np.abs(hits - 75).max() < 4 * 8.1


# ---------------------------------------------------------------------- cross-validation in the same pass


@pytest.mark.parametrize("options", OPTIONS[:4])
@pytest.mark.parametrize("basis", [None, [3, 40, 41, 99, 150, 151, 200, 230]])
def test_scores_from_statistics_are_those_of_refitting(options, basis):
    X, y, qid = make_data(levels=4 if options else None)
    alphas = [0.1, 3.0, 100.0]
    kernel = {} if basis is None else {"kernel": "rbf", "gamma": 0.2}
    fold_of_row = folds_of(label_keys(qid), 5)

    def fit_predict(train, test, alpha):
        chosen = {} if basis is None else {"basis": np.flatnonzero(np.isin(train, basis))}
        model = RankRLS(alpha, **options, **kernel, **chosen).fit(X[train], y[train], qid=qid[train])
        return model.predict(X[test])

    given_basis = {} if basis is None else {"basis": basis}
    model = RankRLSCV(alphas, **options, **kernel, **given_basis).fit_stream(in_chunks(X, y, qid))
    untied = options.get("ties") == "exclude" or options.get("cost") == "unit"
    expected = [
        -oracles.held_out_pair_error(
            partial(fit_predict, alpha=alpha),
            y,
            qid,
            fold_of_row,
            untied=untied,
            unit=options.get("cost") == "unit",
            weighting=options.get("weighting", "pair"),
        )
        for alpha in alphas
    ]
    np.testing.assert_allclose(model.cv_scores_, expected, rtol=1e-6)
    assert model.scoring_ == "neg_mean_squared_pair_error"
    best = int(np.argmax(expected))
    assert (model.alpha_, model.best_score_) == (alphas[best], model.cv_scores_[best])
    whole = RankRLS(model.alpha_, **options, **kernel, **given_basis).fit(X, y, qid=qid)
    np.testing.assert_allclose(model.predict(X), whole.predict(X), atol=1e-7)


@pytest.mark.parametrize("scoring", ["concordance", "disagreement_error"])
@pytest.mark.parametrize("basis", [None, [3, 40, 41, 99, 150, 151, 200, 230]])
def test_second_pass_scores_like_the_search_in_memory(scoring, basis):
    X, y, qid = make_data(levels=3)
    options = {"scoring": scoring}
    if basis is not None:
        options |= {"kernel": "rbf", "gamma": 0.2, "basis": basis}
    fold_of_row = folds_of(label_keys(qid), 4)
    tests = [np.flatnonzero(fold_of_row == k) for k in range(4)]
    memory = RankRLSCV(cv=tests, **options).fit(X, y, qid=qid)
    streamed = RankRLSCV(memory.alphas_, cv=4, **options).fit_stream(in_chunks(X, y, qid))
    np.testing.assert_allclose(streamed.cv_scores_, memory.cv_scores_, atol=1e-9)
    assert streamed.alpha_ == memory.alpha_
    np.testing.assert_allclose(streamed.predict(X), memory.predict(X), atol=1e-7)


def test_automatic_alphas_are_those_of_fit():
    X, y, qid = make_data()
    streamed = RankRLSCV().fit_stream(in_chunks(X, y, qid))
    np.testing.assert_array_equal(streamed.alphas_, RankRLSCV().fit(X, y, qid=qid).alphas_)
    assert streamed.fold_scores_.shape == (31, 5)
    refitted = streamed.fit(X, y, qid=qid)
    assert not hasattr(refitted, "scoring_") and not hasattr(refitted, "stream_")


def test_folds_of_a_global_ranking():
    X, y, _ = make_data(60)
    fold_of_row = folds_of(np.arange(60), 3)

    def fit_predict(train, test):
        return RankRLS(2.0).fit(X[train], y[train]).predict(X[test])

    expected = -oracles.held_out_pair_error(fit_predict, y, np.zeros(60), fold_of_row)
    model = RankRLSCV([2.0], cv=3).fit_stream(in_chunks(X, y, None, 17))
    np.testing.assert_allclose(model.cv_scores_, [expected], rtol=1e-9)


# ---------------------------------------------------------------------- sources


def write_file(path, queries_from=0):
    X, y, qid = make_data(levels=4)
    qid = qid + queries_from
    if ".txt" in path.name:
        write_ranking(path, X, y, qid=qid)
        return X, y, qid
    table = pd.DataFrame(X, columns=["a", "b", "c", "d"]).assign(target=y, qid=qid)
    if path.suffix == ".csv":
        table.to_csv(path, index=False)
    else:
        pytest.importorskip("pyarrow")
        table.to_parquet(path)
    return X, y, qid


@pytest.mark.parametrize("name", ["a.txt", "a.txt.gz", "a.csv", "a.parquet"])
def test_files_functions_and_iterators_are_the_same_stream(tmp_path, name):
    path = tmp_path / name
    X, y, qid = write_file(path)
    expected = RankRLS().fit(X, y, qid=qid).coef_
    sources = {
        "path": path,
        "text": str(path),
        "list": [path],
        "function": lambda: iter_ranking(path, rows=64),
        "iterator": iter_ranking(path, rows=64),
        "chunks": list(iter_ranking(path, rows=64)),
    }
    for kind, source in sources.items():
        options = {"rows": 64} if kind in ("path", "text", "list") else {}
        model = RankRLS().fit_stream(source, **options)
        np.testing.assert_allclose(model.coef_, expected, atol=1e-9)
        assert model.stream_["rows"] == 240 and model.stream_["chunks"] > 2
        assert model.stream_["queries"] == len(np.unique(qid))


def test_only_a_few_chunks_are_in_memory():
    X, y, qid = make_data(1000, queries=100)
    parts = in_chunks(X, y, qid, 50)
    alive, most = set(), 0

    def chunks():
        nonlocal most
        for part in parts:
            fresh = np.array(part[0])
            key = id(fresh)
            alive.add(key)
            weakref.finalize(fresh, alive.discard, key)
            most = max(most, len(alive))
            yield fresh, part[1], part[2]
            del fresh

    RankRLSCV().fit_stream(chunks())
    assert most <= 3


def test_progress_is_told(tmp_path, capfd, monkeypatch):
    monkeypatch.setattr("preflearn.learners.streaming.stream._SECONDS_BETWEEN_LINES", 0.0)
    X, y, qid = make_data()
    RankRLS(verbose=1).fit_stream(in_chunks(X, y, qid))
    text = capfd.readouterr().err
    assert "240 rows in 24 queries" in text and "rows/s" in text
    RankRLS().fit_stream(in_chunks(X, y, qid))
    assert capfd.readouterr().err == ""
    write_file(tmp_path / "a.txt")
    RankRLS(verbose=1).fit_stream(tmp_path / "a.txt")
    assert "reading a.txt" in capfd.readouterr().err


def test_a_streamed_model_is_saved_and_loaded(tmp_path):
    X, y, qid = make_data()
    model = RankRLSCV().fit_stream(in_chunks(X, y, qid))
    save_model(model, tmp_path / "model")
    loaded = load_model(tmp_path / "model")
    np.testing.assert_array_equal(loaded.coef_, model.coef_)
    assert loaded.stream_ == model.stream_


# ---------------------------------------------------------------------- checkpoints


def interrupted(chunks, after, error=KeyboardInterrupt):
    yield from chunks[:after]
    raise error


MODELS = {
    "linear": RankRLS(0.5),
    "ties": RankRLS(0.5, ties="exclude", weighting="query"),
    "reduced": RankRLS(0.5, kernel="rbf", n_basis=5, random_state=3),
    "search": RankRLSCV([0.1, 1.0, 10.0], cv=3),
    "regression": RLS(0.5),
}


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("after", [1, 3])
def test_resumed_is_the_same_to_the_last_bit(tmp_path, name, after):
    model = MODELS[name]
    X, y, qid = make_data(levels=5)
    chunks, path = in_chunks(X, y, qid), tmp_path / "stream.npz"
    expected = model.fit_stream(iter(chunks)).predict(X)
    with pytest.raises(KeyboardInterrupt):
        model.fit_stream(interrupted(chunks, after), checkpoint=path, checkpoint_every=1)
    found = model.fit_stream(iter(chunks), checkpoint=path)
    assert found.stream_["resumed_at_row"] == sum(len(chunk[1]) for chunk in chunks[:after])
    np.testing.assert_array_equal(found.predict(X), expected)
    # Everything is in the checkpoint now: once more, and another alpha, compute nothing again.
    again = model.fit_stream(iter(chunks), checkpoint=path)
    assert again.stream_["resumed_at_row"] == len(y)
    np.testing.assert_array_equal(again.predict(X), expected)
    assert os.listdir(tmp_path) == ["stream.npz"]


def test_checkpoint_of_sparse_chunks_and_basis(tmp_path):
    X, y, qid = make_data()
    chunks = [(sp.csr_array(part[0]), *part[1:]) for part in in_chunks(X, y, qid)]
    model = RankRLS(kernel="rbf", n_basis=6, random_state=0)
    expected = model.fit_stream(chunks).predict(X)
    with pytest.raises(RuntimeError):
        model.fit_stream(
            partial(interrupted, chunks, 9, RuntimeError), checkpoint=tmp_path / "c", checkpoint_every=2
        )
    assert not (tmp_path / "c").exists()  # the first pass failed
    with pytest.raises(RuntimeError):
        model.fit_stream(iter_failing_in_second_pass(chunks), checkpoint=tmp_path / "c", checkpoint_every=2)
    found = model.fit_stream(chunks, checkpoint=tmp_path / "c")
    assert found.stream_["resumed_at_row"] > 0
    np.testing.assert_array_equal(found.predict(X), expected)


def iter_failing_in_second_pass(chunks):
    passes = iter([chunks, interrupted(chunks, 3, RuntimeError)])
    return lambda: next(passes)


@settings(max_examples=25)
@given(st.integers(0, 60))
def test_an_interrupt_at_any_moment_loses_nothing(moment):
    """Whatever step it hits, the file holds a whole state, and resuming gives the uninterrupted model."""
    import tempfile

    X, y, qid = make_data(levels=5)
    chunks = in_chunks(X, y, qid)
    expected = RankRLS(0.5).fit_stream(iter(chunks)).coef_
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        path = os.path.join(folder, "stream.npz")
        interrupting = interrupting_at(moment)
        patch.setattr(Statistics, "add", interrupting(Statistics.add))
        patch.setattr(QueryMoments, "add", interrupting(QueryMoments.add))
        patch.setattr(QueryMoments, "of", interrupting(QueryMoments.of))
        patch.setattr(checkpoints.np, "savez", interrupting(np.savez))
        patch.setattr(os, "replace", interrupting(os.replace))
        patch.setattr(os, "fsync", interrupting(os.fsync))
        try:
            model = RankRLS(0.5).fit_stream(iter(chunks), checkpoint=path, checkpoint_every=1)
        except KeyboardInterrupt:
            patch.undo()
            model = RankRLS(0.5).fit_stream(iter(chunks), checkpoint=path, checkpoint_every=1)
        assert os.listdir(folder) == ["stream.npz"]
    np.testing.assert_array_equal(model.coef_, expected)


def test_every_so_many_chunks_or_seconds(tmp_path, monkeypatch):
    X, y, qid = make_data()
    chunks = in_chunks(X, y, qid, 20)
    saved = []
    save = checkpoints.Checkpoint.save
    monkeypatch.setattr(
        checkpoints.Checkpoint,
        "save",
        lambda self, progress: (saved.append(progress.statistics.n_chunks), save(self, progress)),
    )
    RankRLS().fit_stream(chunks, checkpoint=tmp_path / "a", checkpoint_every=3)
    assert saved[:-1] == list(range(3, len(chunks), 3)) and saved[-1] == len(chunks)
    saved.clear()
    RankRLS().fit_stream(chunks, checkpoint=tmp_path / "b", checkpoint_every=1e-9)
    assert saved[: len(chunks)] == list(range(1, len(chunks) + 1))
    saved.clear()
    RankRLS().fit_stream(chunks, checkpoint=tmp_path / "c")
    assert saved == [len(chunks)]


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
def test_a_full_disk_leaves_the_last_checkpoint_and_the_training(tmp_path, monkeypatch, code):
    X, y, qid = make_data()
    chunks, path = in_chunks(X, y, qid), tmp_path / "stream.npz"
    with pytest.raises(RuntimeError):
        RankRLS().fit_stream(interrupted(chunks, 2, RuntimeError), checkpoint=path, checkpoint_every=1)
    before = path.read_bytes()

    def full(*arguments, **options):
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.warns(RuntimeWarning, match="could not be written.*the previous one stays") as caught:
        model = RankRLS().fit_stream(chunks, checkpoint=path, checkpoint_every=1)
    assert len(caught) == 1
    monkeypatch.undo()
    np.testing.assert_array_equal(model.coef_, RankRLS().fit_stream(chunks).coef_)
    assert path.read_bytes() == before and os.listdir(tmp_path) == ["stream.npz"]
    resumed = RankRLS().fit_stream(chunks, checkpoint=path)
    np.testing.assert_array_equal(resumed.coef_, model.coef_)


def finished_checkpoint(path, chunks, model=None):
    (RankRLS() if model is None else model).fit_stream(chunks, checkpoint=path)
    return path


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (RankRLS(weighting="item"), "weighting was 'pair' and is 'item'"),
        (RankRLS(ties="exclude"), "ties was 'include' and is 'exclude'"),
        (RankRLS(n_basis=3), "n_basis was None and is 3"),
        (RankRLSCV(), "folds was 1 and is 5"),
        (RLS(), "learner was 'RankRLS'|learner was RankRLS and is RLS"),
    ],
)
def test_a_checkpoint_of_other_parameters_is_refused(tmp_path, model, message):
    X, y, qid = make_data()
    path = finished_checkpoint(tmp_path / "c", in_chunks(X, y, qid))
    before = path.read_bytes()
    with pytest.raises(CheckpointError, match=message):
        model.fit_stream(in_chunks(X, y, qid), checkpoint=path)
    assert path.read_bytes() == before
    RankRLS(alpha=7.0).fit_stream(in_chunks(X, y, qid), checkpoint=path)  # alpha may change


def test_a_checkpoint_of_other_data_is_refused(tmp_path):
    X, y, qid = make_data()
    chunks = in_chunks(X, y, qid)
    path = finished_checkpoint(tmp_path / "c", chunks[:3])
    before = path.read_bytes()
    others = {
        "the first chunk differs": [(chunks[0][0] + 1, *chunks[0][1:]), *chunks[1:]],
        "the first chunk differs|chunks of another size": in_chunks(X, y, qid, 60),
        "the rows before row": [chunks[0], (chunks[1][0], chunks[1][1] + 1, chunks[1][2]), *chunks[2:]],
        "no chunk does now": [*chunks[:2], tuple(np.concatenate(p) for p in zip(chunks[2], chunks[3]))],
        "the source ends after": chunks[:2],
    }
    for message, other in others.items():
        with pytest.raises(CheckpointError, match=message):
            RankRLS().fit_stream(other, checkpoint=path)
    assert path.read_bytes() == before
    # Training resumes with rows that were appended to the same ones.
    grown = RankRLS().fit_stream(chunks, checkpoint=path)
    np.testing.assert_array_equal(grown.coef_, RankRLS().fit_stream(chunks).coef_)


@pytest.mark.parametrize("row", [1, 63, 64, 65, 99, 149])
def test_a_checkpoint_notices_any_row_of_features_that_changed(tmp_path, row):
    X, y, qid = make_data()
    path = finished_checkpoint(tmp_path / "c", in_chunks(X, y, qid)[:3])
    other = X.copy()
    other[row, 2] = np.nextafter(other[row, 2], 2)
    with pytest.raises(CheckpointError, match="the first chunk differs|the rows before row"):
        RankRLS().fit_stream(in_chunks(other, y, qid), checkpoint=path)


@given(st.data())
def test_the_digest_depends_on_every_value_and_not_on_its_layout(data):
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    m, n = data.draw(st.integers(1, 200)), data.draw(st.integers(1, 4))
    dtype = data.draw(st.sampled_from([np.float64, np.float32, np.int32]))
    X, y, qid = (
        (9 * rng.normal(size=(m, n))).astype(dtype),
        rng.normal(size=m),
        np.sort(rng.integers(0, 9, m)),
    )
    digest = partial(checkpoints.extend_digest, b"before")
    expected = digest(X, y, qid)
    assert (
        digest(np.asfortranarray(X), y.copy(), qid)
        == digest(np.repeat(X, 2, axis=0)[::2], y, qid)
        == expected
    )
    others = [np.array(X), np.array(y), np.array(qid)]
    which = data.draw(st.integers(0, 2))
    flat = others[which].reshape(-1)
    place = data.draw(st.integers(0, flat.size - 1))
    flat[place : place + 1].view(np.uint8)[data.draw(st.integers(0, flat.itemsize - 1))] ^= data.draw(
        st.integers(1, 255)
    )
    assert digest(*others) != expected
    assert checkpoints.extend_digest(b"other", X, y, qid) != expected
    if m > 1 and (X[0] != X[-1]).any():
        assert digest(X[::-1], y, qid) != expected


def test_the_digest_of_sparse_rows_and_of_objects_depends_on_each():
    X, y, qid = make_data(m=100)
    thin = sp.csr_array(np.where(X > 0.5, X, 0))
    expected = checkpoints.extend_digest(b"", thin, y, qid)
    for name in ("data", "indices", "indptr"):
        other = thin.copy()
        getattr(other, name)[7] += 1
        assert checkpoints.extend_digest(b"", other, y, qid) != expected, name
    words = [f"word {k}" for k in range(100)]
    items = [("a", k, X[k]) for k in range(100)]
    for objects in (words, items):
        expected = checkpoints.extend_digest(b"", objects, y, qid)
        assert checkpoints.extend_digest(b"", list(objects), y, qid) == expected
        assert checkpoints.extend_digest(b"", [*objects[:70], objects[0], *objects[71:]], y, qid) != expected
    with pytest.raises(ValueError, match="A checkpoint must recognise its rows"):
        checkpoints.extend_digest(b"", [lambda: 0] * 100, y, qid)


def test_a_damaged_or_foreign_checkpoint_is_refused(tmp_path):
    X, y, qid = make_data()
    chunks = in_chunks(X, y, qid)
    path = finished_checkpoint(tmp_path / "c", chunks[:3])
    whole = path.read_bytes()
    cuts = [whole[:k] for k in np.linspace(0, len(whole) - 1, 40).astype(int)]
    flips = []
    for k in np.linspace(200, len(whole) - 200, 25).astype(int):
        flips.append(whole[:k] + bytes([whole[k] ^ 0x40]) + whole[k + 1 :])
    for damaged in (*cuts, b"not a checkpoint", *flips):
        path.write_bytes(damaged)
        try:
            model = RankRLS().fit_stream(chunks, checkpoint=path)
        except CheckpointError as error:
            assert str(path) in str(error)
            continue
        # A flipped bit in a date or a name that nobody reads.
        np.testing.assert_array_equal(model.coef_, RankRLS().fit_stream(chunks).coef_)
    np.savez(path.with_suffix(".npz"), a=np.ones(3))
    with pytest.raises(CheckpointError, match="not a whole checkpoint|not a checkpoint"):
        RankRLS().fit_stream(chunks, checkpoint=path.with_suffix(".npz"))


# ---------------------------------------------------------------------- refusals


def test_a_query_in_two_chunks_is_refused():
    X, y, qid = make_data()
    for labels in (qid, np.array([f"query {q}" for q in qid])):
        parts = [(X[:102], y[:102], labels[:102]), (X[102:], y[102:], labels[102:])]
        assert labels[101] == labels[102]
        with pytest.raises(
            ValueError, match=r"Chunk 2 \(from row 102\): Rows of one query are in two chunks"
        ):
            RankRLS().fit_stream(parts)


def test_a_malformed_file_is_refused_with_its_line_and_the_checkpoint_stays(tmp_path):
    first, second = paths = [tmp_path / "a.txt", tmp_path / "b.txt"]
    write_file(first)
    write_file(second, queries_from=100)
    lines = second.read_text().splitlines()
    second.write_text("\n".join([*lines[:150], "1 qid:x 3:oops", *lines[150:]]))
    with pytest.raises(ValueError, match=r"b\.txt, line 151"):
        RankRLS().fit_stream(paths, rows=40, checkpoint=tmp_path / "c", checkpoint_every=1)
    second.write_text("\n".join(lines))
    model = RankRLS().fit_stream(paths, rows=40, checkpoint=tmp_path / "c")
    assert 0 < model.stream_["resumed_at_row"] <= 390
    np.testing.assert_array_equal(model.coef_, RankRLS().fit_stream(paths, rows=40).coef_)


def test_numbers_that_are_not_finite_are_refused_in_files_too(tmp_path):
    (tmp_path / "a.csv").write_text("target,qid,price\n1,a,3\n0,a,\n1,b,2\n0,b,1\n")
    with pytest.raises(ValueError, match="line 3"):
        RankRLS().fit_stream(tmp_path / "a.csv")
    with pytest.raises(ValueError, match="NaN"):
        RankRLS().fit_stream(tmp_path / "a.csv", missing=np.nan)
    (tmp_path / "b.csv").write_text("target,qid,price\n1,a,3\n,a,2\n1,b,2\n0,b,1\n")
    with pytest.raises(ValueError, match="NaN"):
        RankRLS().fit_stream(tmp_path / "b.csv", allow_unknown=True)
    assert RankRLS().fit_stream(tmp_path / "a.csv", missing=4.0).stream_["rows"] == 4


def test_a_file_cut_short_is_refused(tmp_path):
    path = tmp_path / "a.txt.gz"
    write_file(path)
    path.write_bytes(path.read_bytes()[:-200])
    with pytest.raises(ValueError, match="damaged or cut short after line"):
        RankRLS().fit_stream(path)


def small(**changes):
    X, y, qid = make_data(20, queries=4)
    parts = {"X": X, "y": y, "qid": qid, **changes}
    return [(parts["X"], parts["y"], parts["qid"])]


@pytest.mark.parametrize(
    ("model", "chunks", "options", "error", "message"),
    [
        (RankRLS(), 3, {}, TypeError, "expects a path or list of paths"),
        (RankRLS(), [], {}, ValueError, "yielded no chunks"),
        (RankRLS(), [3], {}, TypeError, r"Chunk 1 \(from row 0\): a chunk must be"),
        (RankRLS(), small(y=np.full(20, np.nan)), {}, ValueError, "Chunk 1.*NaN"),
        (
            RankRLS(),
            [*small(), (np.ones((4, 3)), np.ones(4), [9, 9, 9, 9])],
            {},
            ValueError,
            "Chunk 2.*features",
        ),
        (RankRLS(), [*small(), (np.ones((4, 4)), np.ones(4))], {}, ValueError, "Chunk 2.*with qid"),
        (
            RankRLS(),
            [*small(), (np.ones((4, 4)), np.ones((4, 2)), [9] * 4)],
            {},
            ValueError,
            "Chunk 2.*1 outputs",
        ),
        (RankRLS(), small(qid=np.arange(20)), {}, ValueError, "No pair can be compared"),
        (RankRLS(), small(), {"rows": 5}, TypeError, "rows, which only applies to reading files"),
        (RankRLS(), small(), {"checkpoint_every": 3}, ValueError, "without checkpoint"),
        (RankRLS(), small(), {"checkpoint": "/nowhere/at/all"}, FileNotFoundError, "There is no folder"),
        (RankRLS(kernel="rbf"), small(), {}, ValueError, "needs a model of fixed width"),
        (RankRLS(solver="dual"), small(), {}, ValueError, "solver='dual' would be ignored"),
        (RankRLS(alpha=-1), small(), {}, ValueError, "alpha must be"),
        (RankRLS(n_basis=0.5), small(), {}, ValueError, "give the number of basis vectors as an int"),
        (RankRLS(n_basis=5, basis="diverse"), small(), {}, ValueError, "needs all rows in memory"),
        (RankRLS(n_basis=21), small(), {}, ValueError, "larger than the number of rows, 20"),
        (RankRLS(basis=[50]), small(), {}, ValueError, "basis names row 50"),
        (
            RankRLS(cost="unit"),
            2 * [(np.ones((4, 4)), np.arange(4.0))],
            {},
            ValueError,
            "second chunk without qid",
        ),
        (RankRLS(cost="unit"), small(y=np.ones((20, 2))), {}, ValueError, "several outputs"),
        (RankRLSCV(cv="leave-query-out"), small(), {}, ValueError, "number of folds"),
        (RankRLSCV(scoring="r2"), small(), {}, ValueError, "in a second pass by a measure"),
        (RankRLSCV(scoring="concordance"), iter(small()), {}, ValueError, "needs a second pass"),
        (RankRLSCV(scoring="concordance"), small(qid=None), {}, ValueError, "there is no qid"),
        (RankRLSCV(kernel_grid={"gamma": [1]}), small(), {}, ValueError, "kernel_grid"),
        (RankRLSCV(), small(qid=np.zeros(20)), {}, ValueError, "at least two folds"),
        (RankRLSCV(alphas="some"), small(), {}, ValueError, "alphas must be 'auto'"),
        (RankRLSCV(kernel="rbf", basis=[0, 1]), small(), {}, ValueError, "every basis vector"),
    ],
)
def test_bad_input_is_refused(model, chunks, options, error, message):
    with pytest.raises(error, match=message):
        model.fit_stream(chunks, **options)


@pytest.mark.parametrize("every", [0, -1.0, True, "often"])
def test_a_wrong_rhythm_is_refused(tmp_path, every):
    with pytest.raises(ValueError, match="checkpoint_every must be"):
        RankRLS().fit_stream(small(), checkpoint=tmp_path / "c", checkpoint_every=every)


def test_data_without_targets_are_refused():
    data = RankingData(np.eye(3), None, np.zeros(3), ["a", "b", "c"])
    with pytest.raises(ValueError, match="no targets"):
        RankRLS().fit_stream([data])


def test_partial_fit_after_a_stream_is_refused():
    model = RankRLS().fit_stream(small())
    assert not hasattr(model, "partial_fit")
    with pytest.raises(ValueError, match="fit_stream"):
        model.partial_fit(*small()[0][:2])


def test_a_checkpoint_refuses_what_it_could_not_know_again(tmp_path):
    from functools import partial

    rng = np.random.default_rng(0)
    chunk = (rng.normal(size=(20, 3)), rng.normal(size=20), np.arange(20) // 5)

    def plain(a, b):
        return float(a @ b)

    for kernel in (partial(plain), lambda a, b: float(a @ b)):
        with pytest.raises(ValueError, match="top level of a module"):
            RankRLS(kernel=kernel, n_basis=5).fit_stream([chunk], checkpoint=tmp_path / "c")
    model = RankRLS(kernel="rbf", n_basis=5, random_state=np.random.RandomState(0))
    with pytest.raises(ValueError, match="random_state is a generator"):
        model.fit_stream([chunk], checkpoint=tmp_path / "c")
    assert not (tmp_path / "c").exists()


def test_dates_as_labels_can_be_checkpointed(tmp_path):
    rng = np.random.default_rng(0)
    days = np.datetime64("2026-01-01") + np.arange(20) // 5
    chunk = (rng.normal(size=(20, 3)), rng.normal(size=20), days)
    model = RankRLS().fit_stream([chunk], checkpoint=tmp_path / "c")
    np.testing.assert_array_equal(model.coef_, RankRLS().fit_stream([chunk]).coef_)
