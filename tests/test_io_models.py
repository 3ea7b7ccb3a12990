"""Models on disk: what is saved comes back, what is damaged or foreign is refused, and no code runs."""

from __future__ import annotations

import functools
import io
import json
import os
import pickle
import stat
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
import skops.io
from hypothesis import given
from hypothesis import strategies as st
from sklearn.base import BaseEstimator
from sklearn.linear_model import Ridge
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler

from preflearn import RLS, BradleyTerry, RankRLS, RankRLSCV
from preflearn.io import load_model, model_info, save_model
from preflearn.model_selection import QueryKFold
from preflearn.tables.atomic import atomic_write
from preflearn.tables.models.files import VERSION
from strategies import examples

FIXTURES = Path(__file__).parent / "fixtures"


@pytest.fixture(scope="module")
def problem():
    rng = np.random.default_rng(3)
    return rng.normal(size=(24, 3)), rng.normal(size=24), np.repeat(np.arange(6), 4)


@pytest.fixture(scope="module")
def saved(problem, tmp_path_factory):
    """A model, its file and rows that it has not seen."""
    X, y, qid = problem
    model = RankRLS(kernel="rbf", n_basis=5, random_state=0).fit(X, y, qid=qid)
    path = tmp_path_factory.mktemp("models") / "model.preflearn"
    save_model(model, path)
    return model, path, X[:4] + 0.5


def models():
    return [
        RankRLS(),
        RankRLS(kernel="rbf"),
        RankRLS(kernel="poly", n_basis=6, random_state=np.random.RandomState(1)),
        RankRLS(solver="cg"),
        RLS(kernel="rbf", gamma=0.3),
    ]


@pytest.mark.parametrize("model", models(), ids=lambda model: repr(model)[:60])
def test_what_is_saved_comes_back(problem, tmp_path, model):
    X, y, qid = problem
    model.fit(X, y, **({"qid": qid} if isinstance(model, RankRLS) else {}))
    save_model(model, tmp_path / "model")
    found = load_model(tmp_path / "model")
    assert type(found) is type(model)
    assert repr(found).split(" at 0x")[0] == repr(model).split(" at 0x")[0]
    np.testing.assert_array_equal(found.predict(X + 0.5), model.predict(X + 0.5))


def test_a_model_goes_on_learning_after_loading(problem, tmp_path):
    X, y, qid = problem
    model = RankRLS().partial_fit(X[:12], y[:12], qid=qid[:12])
    save_model(model, tmp_path / "model")
    found = load_model(tmp_path / "model").partial_fit(X[12:], y[12:], qid=qid[12:])
    expected = model.partial_fit(X[12:], y[12:], qid=qid[12:])
    np.testing.assert_array_equal(found.coef_, expected.coef_)


def test_sparse_models_and_pipelines_come_back(problem, tmp_path):
    from scipy import sparse as sp

    X, y, qid = problem
    thin = sp.csr_array(np.where(np.abs(X) > 1, X, 0))
    model = RankRLS(kernel="rbf").fit(thin, y, qid=qid)
    save_model(model, tmp_path / "model")
    np.testing.assert_allclose(load_model(tmp_path / "model").predict(thin), model.predict(thin), rtol=1e-12)
    model = make_pipeline(StandardScaler(), FunctionTransformer(np.tanh), RLS()).fit(X, y)
    save_model(model, tmp_path / "model")
    np.testing.assert_array_equal(load_model(tmp_path / "model").predict(X), model.predict(X))


@pytest.mark.parametrize("path", sorted(FIXTURES.glob("*.preflearn")), ids=lambda path: path.stem)
def test_stored_models_stay_loadable(path):
    expected = json.loads(path.with_suffix(".json").read_text())
    model = load_model(path)
    rows = expected["X"] if isinstance(expected["X"], dict) else np.array(expected["X"])
    np.testing.assert_allclose(model.predict(rows), expected["predictions"], rtol=1e-9)
    assert model_info(path)["metadata"] == {"made_for": "tests"}


def test_there_is_a_stored_model_of_this_format_version():
    assert list(FIXTURES.glob(f"*_v{VERSION}.preflearn"))


def test_the_header_tells_what_wrote_the_file(saved, tmp_path):
    model, _, _ = saved
    save_model(model, tmp_path / "model", metadata={"features": ["a", "b"], "chosen": {"alpha": 0.5}})
    info = model_info(tmp_path / "model")
    assert info["format"] == "preflearn model"
    assert info["version"] == VERSION
    assert info["model"] == "RankRLS"
    assert set(info["written_by"]) == {"preflearn", "scikit-learn", "numpy", "scipy"}
    assert info["metadata"] == {"features": ["a", "b"], "chosen": {"alpha": 0.5}}
    with pytest.raises(ValueError, match="plain JSON"):
        save_model(model, tmp_path / "model", metadata={"a": np.nan})
    with pytest.raises(ValueError, match="plain JSON"):
        save_model(model, tmp_path / "model", metadata={"a": object()})


def test_searches_with_splitters_and_scorers_come_back(problem, tmp_path):
    X, y, qid = problem
    for scoring in (None, "neg_mean_absolute_error"):
        search = GridSearchCV(RLS(), {"alpha": [0.1, 1.0]}, cv=QueryKFold(3), scoring=scoring).fit(
            X, y, groups=qid
        )
        save_model(search, tmp_path / "model")
        found = load_model(tmp_path / "model")
        np.testing.assert_array_equal(found.predict(X), search.predict(X))
        assert found.score(X, y) == search.score(X, y)


def test_a_file_that_names_a_class_elsewhere_is_refused(problem, tmp_path):
    X, y, _ = problem
    model = RankRLSCV(cv=3).fit(X, y)
    path = tmp_path / "model"

    def rename(schema):
        return schema.replace("preflearn.learners.search", "preflearn.model_selection.search")

    path.write_bytes(with_header(with_schema(skops.io.dumps(model), rename)))
    with pytest.raises(ValueError, match="preflearn.model_selection.search.RankRLSCV"):
        load_model(path)


# What cannot be saved.


class Homemade(BaseEstimator):
    """A class of the caller's own."""


@pytest.mark.parametrize(
    "model",
    [
        RankRLS(kernel=lambda a, b: 0.0),
        make_pipeline(FunctionTransformer(os.path.join), Ridge()),
        make_pipeline(FunctionTransformer(functools.partial(print, "x")), Ridge()),
        Homemade(),
    ],
    ids=["lambda", "function", "partial", "class"],
)
def test_what_could_not_be_loaded_again_is_not_saved(tmp_path, model):
    with pytest.raises(ValueError, match="cannot be saved: it holds"):
        save_model(model, tmp_path / "model")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("thing", [7, "model", RankRLS, {"a": 1}, None])
def test_only_estimators_are_saved(tmp_path, thing):
    with pytest.raises(TypeError, match="expects a fitted estimator"):
        save_model(thing, tmp_path / "model")


# What is not loaded.


def refused(path, words):
    with pytest.raises(ValueError, match=words) as error:
        load_model(path)
    assert "\n" not in str(error.value)
    assert str(path) in str(error.value)


def with_header(payload, **changes):
    """Add a header to a skops archive, as an attacker could."""
    buffer = io.BytesIO(payload)
    header = {
        "format": "preflearn model",
        "version": 1,
        "model": "x",
        "written_by": {},
        "metadata": {},
        **changes,
    }
    with zipfile.ZipFile(buffer, "a") as archive:
        archive.writestr("preflearn.json", json.dumps(header))
    return buffer.getvalue()


def with_schema(payload, change):
    """The same archive with an edited schema."""
    source, target = zipfile.ZipFile(io.BytesIO(payload)), io.BytesIO()
    with zipfile.ZipFile(target, "w") as archive:
        for name in source.namelist():
            content = source.read(name)
            archive.writestr(name, change(content.decode()).encode() if name == "schema.json" else content)
    return target.getvalue()


def test_foreign_files_are_refused(saved, tmp_path):
    model, path, _ = saved
    foreign = tmp_path / "foreign"
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("a.txt", "b")
    for content, words in [
        (b"", "is not a preflearn model: it is empty"),
        (b"target,a\n1,2\n", "is not a preflearn model: it is another kind of file"),
        (pickle.dumps(model), "is not a preflearn model: it is another kind of file"),
        (archive.getvalue(), "is not a preflearn model: it is an archive of another kind"),
        (skops.io.dumps(model), "is not a preflearn model: it is an archive of another kind"),
        (with_header(skops.io.dumps(model), version=VERSION + 1), "install a newer preflearn"),
        (with_header(skops.io.dumps(model), version="1"), "damaged preflearn model: its format version"),
        (with_header(skops.io.dumps(model), format="other"), "is not a preflearn model"),
        (with_header(skops.io.dumps({"a": 1})), "it holds a dict"),
        (
            with_header(skops.io.dumps(Homemade())),
            "the file asks for test_io_models.Homemade|tests.test_io_models",
        ),
    ]:
        foreign.write_bytes(content)
        refused(foreign, words)
    with pytest.raises(FileNotFoundError):
        load_model(tmp_path / "nowhere")
    assert load_model(path) is not None


class Bomb:
    """Pickles as a call."""

    def __reduce__(self):
        return (os.mkdir, ("exploded",))


@pytest.mark.parametrize("most", [0, -1, True, "100", 1e6])
def test_a_limit_that_is_no_number_of_bytes_is_refused(saved, most):
    with pytest.raises(ValueError, match="max_bytes must be a positive whole number or None"):
        load_model(saved, max_bytes=most)


def test_a_pickle_in_disguise_does_not_run(saved, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    _, path, _ = saved
    source, target = zipfile.ZipFile(path), tmp_path / "disguised"
    with zipfile.ZipFile(target, "w") as archive:
        for name in source.namelist():
            content = source.read(name)
            if name.endswith(".npy"):
                buffer = io.BytesIO()
                np.save(buffer, np.array([Bomb()], dtype=object), allow_pickle=True)
                content = buffer.getvalue()
            archive.writestr(name, content)
    refused(target, "damaged or truncated")
    assert not (tmp_path / "exploded").exists()


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("os", "system"),
        ("builtins", "eval"),
        ("subprocess", "Popen"),
        ("preflearn.cli.app", "Anything"),
        ("preflearn.tables.atomic", "os"),
        ("preflearn.tables.atomic", "atomic_write"),
        ("preflearn.learners.rankrls", "np"),
        ("preflearn.learners.rankrls", "nothing"),
        ("preflearn.learners.nowhere", "RankRLS"),
        ("preflearn.learners", "RankRLS"),
        ("preflearn.comparisons.grouping", "encode_queries"),
        ("preflearn.learners.rankrls.RankRLS", "fit"),
    ],
)
def test_types_that_are_not_on_the_list_are_refused(saved, tmp_path, module, name):
    model, _, _ = saved
    old = type(model).__module__

    def change(schema):
        assert f'"__module__": "{old}"' in schema
        return schema.replace(f'"__module__": "{old}"', f'"__module__": "{module}"').replace(
            '"RankRLS"', f'"{name}"'
        )

    path = tmp_path / "forged"
    path.write_bytes(with_header(with_schema(skops.io.dumps(model), change)))
    loaded = set(sys.modules)
    refused(path, f"refused, the file asks for {module}.{name}")
    assert "preflearn.cli.app" in loaded or "preflearn.cli.app" not in sys.modules


@given(st.data())
@examples(200)
def test_damaged_models_are_refused_or_unharmed(saved, tmp_path_factory, data):
    model, path, X = saved
    content = bytearray(path.read_bytes())
    kind = data.draw(st.sampled_from(["cut", "flip", "zeros"]))
    place = data.draw(st.integers(0, len(content) - 1))
    if kind == "cut":
        del content[place:]
    elif kind == "flip":
        content[place] ^= data.draw(st.integers(1, 255))
    else:
        content[place : place + 64] = bytes(len(content[place : place + 64]))
    damaged = path.with_name("damaged")
    damaged.write_bytes(bytes(content))
    try:
        found = load_model(damaged)
    except ValueError as error:
        assert "\n" not in str(error)
        return
    # What is left of the format that has no checksum (times, attributes) does not reach the model.
    np.testing.assert_array_equal(found.predict(X), model.predict(X))


# Files that appear whole or not at all.


@pytest.mark.parametrize(
    "error", [OSError(28, "No space left on device"), KeyboardInterrupt(), ValueError("no")]
)
def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path, error):
    path = tmp_path / "file"
    path.write_bytes(b"old")
    with pytest.raises(type(error)), atomic_write(path) as file:
        file.write(b"half")
        raise error
    assert path.read_bytes() == b"old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize("step", ["fsync", "replace", "chmod"])
def test_a_full_disk_at_the_last_moment_leaves_the_old_model(saved, tmp_path, monkeypatch, step):
    model, path, X = saved
    kept = tmp_path / "model"
    kept.write_bytes(path.read_bytes())

    def fail(*_):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, step, fail)
        with pytest.raises(OSError, match="No space left"):
            save_model(Ridge().fit(X, X[:, 0]), kept)
    assert [entry.name for entry in tmp_path.iterdir()] == ["model"]
    assert isinstance(load_model(kept), RankRLS)


def test_permissions_and_links_are_kept(tmp_path):
    path, link = tmp_path / "file", tmp_path / "link"
    with atomic_write(path) as file:
        file.write(b"one")
    mask = os.umask(0o022)
    os.umask(mask)
    assert stat.S_IMODE(path.stat().st_mode) == 0o666 & ~mask
    path.chmod(0o640)
    link.symlink_to(path)
    with atomic_write(link) as file:
        file.write(b"two")
    assert link.is_symlink()
    assert path.read_bytes() == b"two"
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


def test_places_that_cannot_be_written_are_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="There is no folder"), atomic_write(tmp_path / "no" / "file"):
        pass
    with pytest.raises(IsADirectoryError, match="is a folder"), atomic_write(tmp_path):
        pass
    with atomic_write("/dev/null") as file:
        file.write(b"gone")
    assert not Path("/dev/null").is_file()


def test_classes_are_found_by_the_names_that_older_files_have():
    from preflearn.model_selection import QueryKFold
    from preflearn.squared.moments import QueryMoments
    from preflearn.tables.models.types import object_class

    assert object_class("preflearn.core.moments", "QueryMoments") is QueryMoments
    assert object_class("preflearn.selection.splitters", "QueryKFold") is QueryKFold
    assert object_class("preflearn.selection.learner", "os") is None


def test_a_former_parameter_of_an_older_file_is_left_out(tmp_path):
    model = BradleyTerry().fit_pairs([[0.0], [1.0]], [[1, 0]])
    model.link = "logit"
    path = tmp_path / "model"
    path.write_bytes(with_header(skops.io.dumps(model)))
    found = load_model(path)
    assert not hasattr(found, "link") and found.get_params() == BradleyTerry().get_params()
    model.other = "logit"
    path.write_bytes(with_header(skops.io.dumps(model)))
    with pytest.raises(ValueError, match="'other'"):
        load_model(path)
