"""AutoRanker on rows in parts: what is kept of them, tables, and runs that are killed and started again."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap

import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse as sp
from hypothesis import example, given, settings
from hypothesis import strategies as st

from preflearn import AutoRanker
from preflearn.auto import candidates, fitting, trees
from preflearn.auto import sample as sample_module
from preflearn.auto.sample import QuerySample, rows_to_keep
from preflearn.learners.streaming.checkpoint import CheckpointError
from preflearn.squared.statistics import folds_of


def make_data(m=600, n=5, size=10, seed=0):
    rng = np.random.default_rng(seed)
    X, qid = rng.normal(size=(m, n)), np.repeat(np.arange(m // size), size)
    # Several members have a share, so that all rows are read several times.
    utility = np.sin(2 * X[:, 0]) + 0.5 * (X[:, 1] > 0.3) + 0.5 * X[:, 1] + 0.3 * rng.normal(size=m)
    return X, np.digitize(utility, [0.0, 1.0, 1.5]).astype(float), qid


def in_chunks(X, y, qid, rows=150):
    return [(X[k : k + rows], y[k : k + rows], qid[k : k + rows]) for k in range(0, len(y), rows)]


def make_small(patch):
    """400 rows are kept, candidates see 200 of them, and trees are few."""
    patch.setattr(sample_module, "MOST_ROWS", 400)
    patch.setattr(fitting, "MOST_ROWS", 400)
    patch.setattr(fitting, "_MOST_ROWS", 200)
    patch.setattr(trees, "_STAGES", (5, 10))
    patch.setattr(candidates, "_RANDOM", 8)


@pytest.fixture
def small(monkeypatch):
    make_small(monkeypatch)


# ------------------------------------------------------------------------- samples


def slow_sample(X, y, qid, most):
    """Queries in the order of their hashes, as many as fit, two at least."""
    places = {int(key): int(folds_of(np.array([key]), 2**62)[0]) for key in np.unique(qid)}
    kept, n_rows = [], 0
    for key in sorted(places, key=lambda one: places[one]):
        size = int((qid == key).sum())
        if n_rows + size > most and len(kept) >= 2:
            break
        kept.append(key)
        n_rows += size
    rows = np.concatenate([np.flatnonzero(qid == key) for key in kept])
    return X[rows], y[rows], qid[rows]


@settings(max_examples=60)
@given(seed=st.integers(0, 10_000), most=st.integers(1, 60), n_chunks=st.integers(1, 6), merged=st.booleans())
@example(seed=252, most=6, n_chunks=2, merged=True)  # a query that does not fit into a part
def test_the_sample_is_that_of_the_hashes_however_the_rows_come(seed, most, n_chunks, merged):
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, rng.choice([6, 40]), rng.integers(1, 30))
    labels = rng.choice(1000, sizes.size, replace=False)
    qid = np.repeat(labels, sizes)
    X, y = rng.normal(size=(qid.size, 2)), rng.normal(size=qid.size)
    sample = QuerySample(most)
    for part in np.array_split(labels, n_chunks):
        rows = rng.permutation(np.flatnonzero(np.isin(qid, part)))
        if not rows.size:
            continue
        if merged:
            other = QuerySample(most)
            other.add(X[rows], y[rows], qid[rows])
            other.shrink()  # as workers do
            sample.merge(other)
        else:
            sample.add(X[rows], y[rows], qid[rows])
    expected = slow_sample(X, y, qid, most)
    table = sample.table()
    assert table[2].tolist() == expected[2].tolist()
    # Rows of a query come in the order in which they were read.
    np.testing.assert_array_equal(np.sort(table[1]), np.sort(expected[1]))
    np.testing.assert_array_equal(np.sort(table[0], axis=0), np.sort(expected[0], axis=0))
    assert sample.n_rows == qid.size and sample.n_queries == labels.size
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sample_module, "MOST_ROWS", most)
        kept = rows_to_keep(qid, qid.size)
        assert (kept is None) == (qid.size <= most)
        np.testing.assert_array_equal(np.sort(y if kept is None else y[kept]), np.sort(expected[1]))


# ------------------------------------------------------------------------- tables


def as_table(X, y, qid):
    rng = np.random.default_rng(1)
    brand = np.array(["ash", "birch", "cedar"], dtype=object)[np.digitize(X[:, 1], [-0.3, 0.3])]
    price = np.where(rng.random(len(y)) < 0.05, np.nan, X[:, 0])
    return {"price": price, "brand": brand, "noise": X[:, 2]}


@pytest.fixture(scope="module")
def of_columns():
    """The table, and the model of chunks that are mappings from names to columns."""
    X, y, qid = make_data()
    columns = as_table(X, y, qid)
    columns["brand"][qid == qid[-1]] = "a brand that few have seen"
    with pytest.MonkeyPatch.context() as patch:
        make_small(patch)
        return columns, y, qid, AutoRanker(random_state=0).fit_stream(table_chunks(dict, columns, y, qid))


def table_chunks(kind, columns, y, qid):
    parts = [slice(k, k + 150) for k in range(0, len(y), 150)]
    return [
        (kind({name: values[part] for name, values in columns.items()}), y[part], qid[part]) for part in parts
    ]


def test_a_table_in_parts_is_encoded_as_its_sample_is(of_columns):
    columns, y, qid, model = of_columns
    assert model.encoder_.kinds_ == {"price": "number", "brand": "category", "noise": "number"}
    assert 300 < model.n_training_rows_ <= 400 and list(model.feature_names_in_) == list(columns)
    assert model.score(columns, y, qid=qid) > 0.7
    assert set(model.encoder_.unseen_.values()) <= {0, 10, 20}  # training itself counts nothing


@pytest.mark.parametrize("kind", [pd.DataFrame, pl.DataFrame])
def test_data_frames_in_parts(small, of_columns, kind, tmp_path):
    columns, y, qid, model = of_columns
    chunks = table_chunks(kind, columns, y, qid)
    found = AutoRanker(random_state=0).fit_stream(chunks, checkpoint=tmp_path / "run")
    np.testing.assert_array_equal(found.predict(columns, qid=qid), model.predict(columns, qid=qid))
    assert not (tmp_path / "run").exists()  # they are read again


def test_files_with_columns_of_any_kind(small, of_columns, tmp_path, monkeypatch):
    """By their path; numbers that end late in the file are texts, also for a run that starts again."""
    columns, y, qid, model = of_columns
    table = pd.DataFrame({"target": y, "qid": qid, **columns})
    table.to_parquet(tmp_path / "rows.parquet")
    found = AutoRanker(random_state=0).fit_stream(tmp_path / "rows.parquet", rows=150)
    np.testing.assert_array_equal(found.predict(columns, qid=qid), model.predict(columns, qid=qid))
    table["noise"] = table["noise"].astype(object)
    table.loc[len(y) - 1, "noise"] = "unknown"
    table.to_csv(tmp_path / "rows.csv", index=False)
    whole = AutoRanker(random_state=0).fit_stream(tmp_path / "rows.csv", checkpoint=tmp_path / "run")
    monkeypatch.setattr(sample_module.RowsInParts, "keep", None)  # the rows are not read again
    found = AutoRanker(random_state=0).fit_stream(tmp_path / "rows.csv", checkpoint=tmp_path / "run")
    assert found.encoder_.kinds_ == whole.encoder_.kinds_
    np.testing.assert_array_equal(found.predict(columns, qid=qid), whole.predict(columns, qid=qid))


# ------------------------------------------------------------------------- killed and started again


class Failing:
    """Chunks that fail once, after this many have been read in all passes together."""

    def __init__(self, chunks, after=10**9, error=KeyboardInterrupt):
        self.chunks, self.left, self.error, self.n_read = chunks, after, error, 0

    def __call__(self):
        for chunk in self.chunks:
            if self.left == 0:
                self.left = -1
                raise self.error
            self.left -= 1
            self.n_read += 1
            yield chunk


@pytest.fixture(scope="module")
def uninterrupted():
    with pytest.MonkeyPatch.context() as patch:
        make_small(patch)
        X, y, qid = make_data()
        return AutoRanker(random_state=0).fit_stream(iter(in_chunks(X, y, qid)))  # which can be read once


def same_model(found, X, qid, model):
    np.testing.assert_array_equal(found.predict(X, qid=qid), model.predict(X, qid=qid))
    np.testing.assert_array_equal(found.weights_, model.weights_)
    assert found.best_score_ == model.best_score_ and found.n_queries_ == model.n_queries_ == 60
    assert [one.name for one in found.leaderboard_] == [one.name for one in model.leaderboard_]


@pytest.mark.parametrize("size", [20, 600])
def test_the_size_of_chunks_does_not_matter(small, uninterrupted, size):
    X, y, qid = make_data()
    found = AutoRanker(random_state=0).fit_stream(in_chunks(X, y, qid, size))
    same_model(found, X, qid, uninterrupted)
    assert not hasattr(found, "cv_predictions_") and 300 < found.n_training_rows_ <= 400
    new = make_data(seed=1)
    assert found.score(new[0], new[1], qid=new[2]) == pytest.approx(found.best_score_, abs=0.1)


def test_the_model_is_that_of_fit_on_the_rows_that_are_kept(small, uninterrupted):
    """`fit` keeps the same rows of a table that is larger."""
    X, y, qid = make_data()
    whole = AutoRanker(random_state=0).fit(X, y, qid=qid)
    np.testing.assert_array_equal(whole.predict(X, qid=qid), uninterrupted.predict(X, qid=qid))
    kept = rows_to_keep(qid, 600)
    some = AutoRanker(random_state=0).fit(X[kept], y[kept], qid=qid[kept])
    np.testing.assert_array_equal(some.predict(X, qid=qid), whole.predict(X, qid=qid))
    assert whole.cv_predictions_.shape == whole.cv_folds_.shape == (600,)
    np.testing.assert_array_equal(whole.cv_folds_[kept], some.cv_folds_)
    assert (np.delete(whole.cv_folds_, kept) == -1).all()
    of_frame = AutoRanker(random_state=0).fit(pd.DataFrame(X).to_numpy().tolist(), y, qid=list(qid))
    np.testing.assert_array_equal(of_frame.predict(X, qid=qid), whole.predict(X, qid=qid))


def test_of_a_larger_ranking_rows_are_kept(small):
    X, y, _ = make_data()
    order = np.random.default_rng(0).permutation(600)
    first, second = (AutoRanker(random_state=0).fit(X[rows], y[rows]) for rows in (np.arange(600), order))
    assert 300 < first.n_training_rows_ < 400
    np.testing.assert_allclose(first.predict(X), second.predict(X), atol=1e-6)


@pytest.mark.parametrize("after", [2, 4])
@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_a_failure_while_reading_leaves_no_checkpoint(tmp_path, small, uninterrupted, after, error):
    X, y, qid = make_data()
    chunks, path = Failing(in_chunks(X, y, qid, 100), after, error), tmp_path / "run"
    with pytest.raises(error):
        AutoRanker(random_state=0).fit_stream(chunks, checkpoint=path)
    assert not path.exists()
    same_model(AutoRanker(random_state=0).fit_stream(chunks, checkpoint=path), X, qid, uninterrupted)
    assert os.listdir(tmp_path) == ["run"]


def test_started_again_from_the_rows_that_were_kept(tmp_path, small, uninterrupted, monkeypatch):
    X, y, qid = make_data()
    source, path = Failing(in_chunks(X, y, qid)), tmp_path / "run"
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):

        def interrupted(*_, **__):
            raise KeyboardInterrupt

        patch.setattr(fitting, "choose", interrupted)
        AutoRanker(random_state=0).fit_stream(source, checkpoint=path)
    assert source.n_read == 4
    for _ in range(2):
        found = AutoRanker(random_state=0, n_jobs=1).fit_stream(source, checkpoint=path)
        same_model(found, X, qid, uninterrupted)
    assert source.n_read == 4


def test_killed_and_started_again(tmp_path, small, uninterrupted):
    """SIGKILL while candidates are tried."""
    path = tmp_path / "run"
    script = f"""
        import os, signal, sys
        sys.path.insert(0, {os.path.dirname(__file__)!r})
        import pytest, test_automatic_streams as tests
        patch = pytest.MonkeyPatch()
        tests.make_small(patch)
        patch.setattr(tests.fitting, "choose", lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL))
        chunks = tests.in_chunks(*tests.make_data())
        tests.AutoRanker(random_state=0).fit_stream(chunks, checkpoint={str(path)!r})
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], check=False)
    assert done.returncode == -signal.SIGKILL
    X, y, qid = make_data()
    source = Failing(in_chunks(X, y, qid))
    same_model(AutoRanker(random_state=0).fit_stream(source, checkpoint=path), X, qid, uninterrupted)
    assert source.n_read == 0


def test_sparse_whole_numbers_in_chunks(small):
    X, y, qid = make_data()
    whole = np.round(3 * X).astype(np.int64)
    chunks = [(sp.csr_array(one), *rest) for one, *rest in in_chunks(whole, y, qid)]
    found = AutoRanker(random_state=0, preset="fast").fit_stream(chunks)
    expected = AutoRanker(random_state=0, preset="fast").fit_stream(in_chunks(whole, y, qid))
    np.testing.assert_array_equal(found.predict(whole, qid=qid), expected.predict(whole, qid=qid))
    again = AutoRanker(random_state=0, preset="fast").fit(sp.csr_array(whole), y, qid=qid)
    np.testing.assert_array_equal(again.predict(whole, qid=qid), expected.predict(whole, qid=qid))


def test_a_checkpoint_of_something_else_is_refused(tmp_path, small):
    X, y, qid = make_data()
    path = tmp_path / "run"
    AutoRanker(random_state=0, preset="fast").fit_stream(in_chunks(X, y, qid), checkpoint=path)
    for options, message in [
        ({"random_state": 1, "preset": "fast"}, "other parameters .random_state was 0 and is 1"),
        ({"random_state": 0}, "preset was 'fast' and is None"),
    ]:
        with pytest.raises(CheckpointError, match=message):
            AutoRanker(**options).fit_stream(in_chunks(X, y, qid), checkpoint=path)
    content = path.read_bytes()
    for damaged in (content[: len(content) // 2], b"something else"):
        path.write_bytes(damaged)
        with pytest.raises(CheckpointError, match="not a whole checkpoint"):
            AutoRanker(random_state=0, preset="fast").fit_stream(in_chunks(X, y, qid), checkpoint=path)
    with pytest.raises(ValueError, match="Chunk 1 .*not numbers .*pass a data frame"):
        AutoRanker().fit_stream([(np.array([["a"]]), [1.0], [1])])
    with pytest.raises(FileNotFoundError, match="no folder"):
        AutoRanker().fit_stream(in_chunks(X, y, qid), checkpoint=tmp_path / "no" / "run")
    with pytest.raises(ValueError, match="random_state is a generator"):
        AutoRanker(random_state=np.random.RandomState(0)).fit_stream([], checkpoint=tmp_path / "b")
