"""AutoRanker on rows in parts: samples, tables, and runs that are killed and resumed."""

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

from interrupts import interrupt_after_three_candidates, interrupting_at
from preflearn import AutoRanker
from preflearn.auto import boosting, candidates, ranker, resuming
from preflearn.auto.presets import Preset
from preflearn.auto.streams import QuerySample
from preflearn.learners.streaming import checkpoint as checkpoints
from preflearn.learners.streaming.checkpoint import CheckpointError
from preflearn.squared.query_keys import folds_of


def make_data(m=600, n=5, size=10, seed=0):
    rng = np.random.default_rng(seed)
    X, qid = rng.normal(size=(m, n)), np.repeat(np.arange(m // size), size)
    # Several members have a share, so that all rows are read several times.
    utility = np.sin(2 * X[:, 0]) + 0.5 * (X[:, 1] > 0.3) + 0.5 * X[:, 1] + 0.3 * rng.normal(size=m)
    return X, np.digitize(utility, [0.0, 1.0, 1.5]).astype(float), qid


def in_chunks(X, y, qid, rows=150):
    return [(X[k : k + rows], y[k : k + rows], qid[k : k + rows]) for k in range(0, len(y), rows)]


def make_small(patch):
    """Small samples and few trees; a checkpoint with every chunk."""
    patch.setattr(ranker, "_MOST_ROWS", 200)
    patch.setattr(boosting, "_STAGES", (5, 10))
    patch.setattr(candidates, "_RANDOM", 8)
    patch.setattr(checkpoints, "_DEFAULT_SECONDS", 0.0)


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
    again = QuerySample.from_arrays(sample.arrays())
    expected = slow_sample(X, y, qid, most)
    for found in (sample, again):
        table = found.table()
        assert table[2].tolist() == expected[2].tolist()
        # Rows of a query come in the order in which they were read.
        np.testing.assert_array_equal(np.sort(table[1]), np.sort(expected[1]))
        np.testing.assert_array_equal(np.sort(table[0], axis=0), np.sort(expected[0], axis=0))
        assert found.n_rows == qid.size and found.n_queries == labels.size
        assert found.is_everything == (expected[1].size == qid.size)


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
    assert model.n_training_rows_ > 500 and list(model.feature_names_in_) == list(columns)
    assert model.score(columns, y, qid=qid) > 0.7
    assert set(model.encoder_.unseen_.values()) <= {0, 10}  # training itself counts nothing


@pytest.mark.parametrize("kind", [pd.DataFrame, pl.DataFrame])
def test_data_frames_in_parts(small, of_columns, kind, tmp_path):
    columns, y, qid, model = of_columns
    chunks = table_chunks(kind, columns, y, qid)
    with pytest.raises(RuntimeError):
        AutoRanker(random_state=0).fit_stream(Failing(chunks, 6, RuntimeError), checkpoint=tmp_path / "run")
    found = AutoRanker(random_state=0).fit_stream(chunks, checkpoint=tmp_path / "run")
    np.testing.assert_array_equal(found.predict(columns, qid=qid), model.predict(columns, qid=qid))


def test_files_with_columns_of_any_kind(small, of_columns, tmp_path):
    """By their path; numbers that end late in the file are texts, also for a run that continues."""
    columns, y, qid, model = of_columns
    table = pd.DataFrame({"target": y, "qid": qid, **columns})
    table.to_parquet(tmp_path / "rows.parquet")
    found = AutoRanker(random_state=0).fit_stream(tmp_path / "rows.parquet", rows=150)
    np.testing.assert_array_equal(found.predict(columns, qid=qid), model.predict(columns, qid=qid))
    table["noise"] = table["noise"].astype(object)
    table.loc[len(y) - 1, "noise"] = "unknown"
    table.to_csv(tmp_path / "rows.csv", index=False)
    keep = resuming.ResumableRun.keep_attempt
    with pytest.MonkeyPatch.context() as patch:

        def interrupting(run, attempt):
            keep(run, attempt)
            raise KeyboardInterrupt

        patch.setattr(resuming.ResumableRun, "keep_attempt", interrupting)
        with pytest.raises(KeyboardInterrupt):
            AutoRanker(random_state=0).fit_stream(tmp_path / "rows.csv", checkpoint=tmp_path / "run")
    found = AutoRanker(random_state=0).fit_stream(tmp_path / "rows.csv", checkpoint=tmp_path / "run")
    assert found.encoder_.kinds_ == model.encoder_.kinds_ and found.n_training_rows_ == model.n_training_rows_


# ------------------------------------------------------------------------- killed and resumed


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
        source = Failing(in_chunks(X, y, qid))
        model = AutoRanker(random_state=0).fit_stream(source)
        return model, model.predict(X, qid=qid), source.n_read


def same_model(found, X, qid, uninterrupted):
    model, predictions, _ = uninterrupted
    np.testing.assert_array_equal(found.predict(X, qid=qid), predictions)
    np.testing.assert_array_equal(found.weights_, model.weights_)
    assert found.best_score_ == model.best_score_ and found.n_queries_ == model.n_queries_
    assert [one.name for one in found.leaderboard_] == [one.name for one in model.leaderboard_]


@pytest.mark.parametrize("after", [2, 4, 6, 9, 11])
def test_resumed_wherever_reading_failed(tmp_path, small, uninterrupted, after):
    X, y, qid = make_data()
    chunks, path = in_chunks(X, y, qid), tmp_path / "run"
    assert uninterrupted[2] > 11
    error = RuntimeError if after % 2 else KeyboardInterrupt
    with pytest.raises(error):
        AutoRanker(random_state=0).fit_stream(Failing(chunks, after, error), checkpoint=path)
    assert path.exists() == (after >= 4)  # the sample is the first thing to keep
    source = Failing(chunks)
    found = AutoRanker(random_state=0, verbose=0).fit_stream(source, checkpoint=path)
    same_model(found, X, qid, uninterrupted)
    if after >= 4:  # one chunk to see that they are the same, and what was left
        assert source.n_read < uninterrupted[2] - 2
    assert os.listdir(tmp_path) == ["run"]


def test_resumed_after_some_candidates_and_at_the_end(tmp_path, small, uninterrupted, monkeypatch, capsys):
    X, y, qid = make_data()
    chunks, path = in_chunks(X, y, qid), tmp_path / "run"
    tried = interrupt_after_three_candidates(monkeypatch)
    with pytest.raises(KeyboardInterrupt):
        AutoRanker(random_state=0).fit_stream(chunks, checkpoint=path)
    model = AutoRanker(random_state=0, verbose=1).fit_stream(chunks, checkpoint=path)
    same_model(model, X, qid, uninterrupted)
    assert len(tried) == len(set(tried)) == len(list(model.leaderboard_))
    assert "resuming from" in capsys.readouterr().err
    # Everything is in the checkpoint now: the rows are looked at once, to see that they are the same.
    source = Failing(chunks)
    same_model(AutoRanker(random_state=0).fit_stream(source, checkpoint=path), X, qid, uninterrupted)
    assert source.n_read <= len(chunks) + 1
    with pytest.raises(CheckpointError, match="chunk 5 differs"):
        more = (X[:50], y[:50], qid[:50] + 1000)
        AutoRanker(random_state=0).fit_stream([*chunks, more], checkpoint=path)
    changed = [*chunks[:-1], (chunks[-1][0], chunks[-1][1][::-1], chunks[-1][2])]
    with pytest.raises(CheckpointError, match="chunk 4 differs"):
        AutoRanker(random_state=0).fit_stream(changed, checkpoint=path)


def test_chunks_of_one_query_are_not_one_ranking(small, uninterrupted):
    """However the queries are put into chunks, rows are compared inside of queries alone."""
    X, y, qid = make_data()
    y = y + 100.0 * np.random.default_rng(0).permutation(qid.max() + 1)[qid]  # differs between queries most
    cuts = [[10] * 60, [10, 10, 580], [590, 10]]
    models = []
    for sizes in ([600], *cuts):
        ends = np.cumsum(sizes)
        chunks = [(X[a:b], y[a:b], qid[a:b]) for a, b in zip([0, *ends[:-1]], ends, strict=True)]
        preset = Preset(frozenset({"linear", "learned kernel, quantiles and query"}), 0)
        models.append(AutoRanker(random_state=0, preset=preset).fit_stream(chunks))
    assert models[0].score(X, y, qid=qid) > 0.8
    for one in models[1:]:
        np.testing.assert_allclose(one.predict(X, qid=qid), models[0].predict(X, qid=qid), atol=1e-6)


def test_sparse_whole_numbers_in_chunks(small):
    X, y, qid = make_data()
    whole = np.round(3 * X).astype(np.int64)
    chunks = [(sp.csr_array(one), *rest) for one, *rest in in_chunks(whole, y, qid)]
    found = AutoRanker(random_state=0, preset="fast").fit_stream(chunks)
    expected = AutoRanker(random_state=0, preset="fast").fit_stream(in_chunks(whole, y, qid))
    np.testing.assert_array_equal(found.predict(whole, qid=qid), expected.predict(whole, qid=qid))


def test_killed_and_resumed(tmp_path, small, uninterrupted):
    """SIGKILL in the middle of the sums of a kernel: what the last checkpoint holds is enough."""
    path = tmp_path / "run"
    script = f"""
        import os, signal, sys
        sys.path.insert(0, {os.path.dirname(__file__)!r})
        import pytest, test_automatic_streams as tests
        tests.make_small(pytest.MonkeyPatch())
        chunks = tests.Failing(tests.in_chunks(*tests.make_data()), 10)  # sample, trees, half of a kernel
        class Kill(BaseException):
            def __init__(self):
                os.kill(os.getpid(), signal.SIGKILL)
        chunks.error = Kill
        tests.AutoRanker(random_state=0).fit_stream(chunks, checkpoint={str(path)!r})
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], check=False)
    assert done.returncode == -signal.SIGKILL
    X, y, qid = make_data()
    source = Failing(in_chunks(X, y, qid))
    with np.load(path) as archive:
        assert any(name.startswith("sums_") for name in archive.files)
    same_model(AutoRanker(random_state=0).fit_stream(source, checkpoint=path), X, qid, uninterrupted)
    assert source.n_read < uninterrupted[2] - 2


@pytest.mark.parametrize("moment", [0, 3, 8, 13, 19])
def test_an_interrupt_at_any_write_leaves_a_whole_checkpoint(tmp_path, small, uninterrupted, moment):
    """Before a file is written, after it, and half way through an addition."""
    X, y, qid = make_data()
    chunks, path = in_chunks(X, y, qid), tmp_path / "run"
    interrupting = interrupting_at(moment)
    with pytest.MonkeyPatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(checkpoints.np, "savez", interrupting(np.savez))
        patch.setattr(resuming, "pack_moments", interrupting(resuming.pack_moments))
        AutoRanker(random_state=0).fit_stream(chunks, checkpoint=path)
    same_model(AutoRanker(random_state=0).fit_stream(chunks, checkpoint=path), X, qid, uninterrupted)


def test_a_checkpoint_of_something_else_is_refused(tmp_path, small):
    X, y, qid = make_data()
    path = tmp_path / "run"
    with pytest.raises(RuntimeError):
        AutoRanker(random_state=0).fit_stream(Failing(in_chunks(X, y, qid), 6, RuntimeError), checkpoint=path)
    for options, rows, message in [
        ({"random_state": 1}, 150, "other parameters .random_state was 0 and is 1"),
        ({"random_state": 0, "preset": "fast"}, 150, "preset was None"),
        ({"random_state": 0}, 100, "chunks of another size .chunk 1 differs"),
    ]:
        with pytest.raises(CheckpointError, match=message):
            AutoRanker(**options).fit_stream(in_chunks(X, y, qid, rows), checkpoint=path)
    other = X.copy()
    other[-1, 0] += 1  # in the last chunk
    with pytest.raises(CheckpointError, match="chunk 4 differs"):
        AutoRanker(random_state=0).fit_stream(in_chunks(other, y, qid), checkpoint=path)
    with pytest.raises(CheckpointError, match="there were 4 chunks, and there are 3"):
        AutoRanker(random_state=0).fit_stream(in_chunks(X, y, qid)[:3], checkpoint=path)
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])
    with pytest.raises(CheckpointError, match="not a whole checkpoint"):
        AutoRanker(random_state=0).fit_stream(in_chunks(X, y, qid), checkpoint=path)
    path.write_text("something else")
    with pytest.raises(CheckpointError, match="not a whole checkpoint"):
        AutoRanker(random_state=0).fit_stream(in_chunks(X, y, qid), checkpoint=path)
    with pytest.raises(ValueError, match="Chunk 1 .*not numbers .*pass a data frame"):
        AutoRanker().fit_stream([(np.array([["a"]]), [1.0], [1])])
    with pytest.raises(FileNotFoundError, match="no folder"):
        AutoRanker().fit_stream(in_chunks(X, y, qid), checkpoint=tmp_path / "no" / "run")
    with pytest.raises(ValueError, match="random_state is a generator"):
        AutoRanker(random_state=np.random.RandomState(0)).fit_stream([], checkpoint=tmp_path / "b")
