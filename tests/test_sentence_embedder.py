"""SentenceEmbedder: with a stand-in of the package's interface, and with a real, tiny model where it is installed."""

from __future__ import annotations

import json
import pickle
import sys
import types

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.pipeline import make_pipeline

from preflearn import BradleyTerry
from preflearn.io import load_model, save_model
from preflearn.model_selection import evaluate_preferences
from preflearn.preprocessing import SentenceEmbedder
from preflearn.tables.encoding import sentences

TEXTS = ["a good answer", "a bad answer", "a good one", "nothing", "a good answer", "a bad one"]


class StandIn:
    """Counts letters; remembers what it was given."""

    made: list = []
    dimension = 26

    def __init__(self, name, *, revision=None, device=None, trust_remote_code=True):
        if name == "no such model":
            raise OSError("no such model is not a local folder.")
        assert trust_remote_code is False
        self.name, self.revision, self.device, self.read = name, revision, device, []
        self.made.append(self)

    def encode(self, texts, *, batch_size, show_progress_bar, convert_to_numpy, normalize_embeddings):
        assert convert_to_numpy and not show_progress_bar
        self.read += texts
        counts = np.array(
            [[text.count(chr(97 + k)) for k in range(self.dimension)] for text in texts], dtype=float
        )
        length = np.linalg.norm(counts, axis=1, keepdims=True)
        return counts / np.maximum(length, 1e-12) if normalize_embeddings else counts


@pytest.fixture
def stand_in(monkeypatch):
    module = types.ModuleType("sentence_transformers")
    module.SentenceTransformer = StandIn
    monkeypatch.setitem(sys.modules, "sentence_transformers", module)
    monkeypatch.setattr(StandIn, "made", [])
    sentences._load.cache_clear()
    yield StandIn
    sentences._load.cache_clear()


def test_each_distinct_text_is_read_once(stand_in):
    embedder = SentenceEmbedder("letters", normalise=False)
    first = embedder.fit_transform(TEXTS)
    assert first.shape == (6, 26) and first.dtype == np.float32
    np.testing.assert_array_equal(first[0], first[4])
    assert first[1, 0] == TEXTS[1].count("a")
    np.testing.assert_array_equal(embedder.transform(TEXTS[::-1]), first[::-1])
    (model,) = stand_in.made
    assert model.read == list(dict.fromkeys(TEXTS))
    embedder.transform(["new", "new", "a bad one"])
    assert model.read[5:] == ["new"]
    assert embedder.get_feature_names_out()[25] == "embedding25"


def test_a_model_is_loaded_once_for_each_name_and_device(stand_in):
    for _ in range(3):
        SentenceEmbedder("letters").fit(TEXTS)
    SentenceEmbedder("letters", device="cpu", revision="abc").fit(TEXTS)
    assert [(model.device, model.revision) for model in stand_in.made] == [(None, None), ("cpu", "abc")]


def test_vectors_have_length_one_unless_told(stand_in):
    lengths = np.linalg.norm(SentenceEmbedder("letters").fit_transform(TEXTS), axis=1)
    np.testing.assert_allclose(lengths, 1.0, rtol=1e-6)


@pytest.mark.parametrize(
    "X",
    [
        TEXTS,
        tuple(TEXTS),
        np.array(TEXTS),
        np.array(TEXTS, dtype=object)[:, None],
        [[text] for text in TEXTS],
        pd.Series(TEXTS),
        pd.DataFrame({"text": TEXTS}),
    ],
)
def test_texts_come_in_many_ways(stand_in, X):
    expected = SentenceEmbedder("letters").fit_transform(TEXTS)
    np.testing.assert_array_equal(SentenceEmbedder("letters").fit_transform(X), expected)


def test_missing_texts_are_empty_ones(stand_in):
    found = SentenceEmbedder("letters").fit_transform(["a", None, float("nan"), ""])
    assert found[1:].any() == 0 and found[0].any()


def test_in_a_column_transformer_a_pipeline_and_a_model_file(stand_in, tmp_path):
    table = pd.DataFrame({"text": TEXTS, "price": range(6)})
    columns = ColumnTransformer([("text", SentenceEmbedder("letters"), "text")], remainder="passthrough")
    assert columns.fit_transform(table).shape == (6, 27)
    pairs = [[0, 1], [2, 1], [2, 3], [4, 5]]
    model = make_pipeline(SentenceEmbedder("letters"), BradleyTerry(0.1)).fit(TEXTS, pairs)
    assert model.predict(["a good thing", "a bad thing"]) @ [1, -1] > 0
    save_model(model, tmp_path / "model")
    again = load_model(tmp_path / "model")
    np.testing.assert_array_equal(again.predict(TEXTS), model.predict(TEXTS))
    assert not hasattr(load_model(tmp_path / "model")[0], "_known")
    assert not hasattr(pickle.loads(pickle.dumps(model[0])), "_known")
    assert clone(model[0]).model_name == "letters"


def test_evaluated_as_a_pipeline(stand_in):
    rng = np.random.default_rng(0)
    texts = [" ".join(rng.choice(["good", "bad", "answer", "thing"], 5)) for _ in range(60)]
    worth = np.array([text.count("good") - text.count("bad") for text in texts])
    pairs = np.array([rng.choice(60, 2, replace=False) for _ in range(300)])
    pairs = pairs[worth[pairs[:, 0]] != worth[pairs[:, 1]]]
    won = worth[pairs[:, 0]] > worth[pairs[:, 1]]
    pairs = np.where(won[:, None], pairs, pairs[:, ::-1])
    model = make_pipeline(SentenceEmbedder("letters"), BradleyTerry(0.01))
    found = evaluate_preferences(model, texts, pairs, texts=texts)
    assert found.accuracy.share > 0.85
    (made,) = stand_in.made
    assert sorted(made.read) == sorted(set(texts))


def test_on_the_command_line(stand_in, call, tmp_path):
    rng = np.random.default_rng(0)
    texts = [" ".join(rng.choice(["good", "bad", "answer", "thing"], 5)) for _ in range(80)]
    rows = [{"chosen": one + " good", "rejected": one + " bad"} for one in texts]
    (tmp_path / "prefs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    told = (
        "--chosen",
        "chosen",
        "--rejected",
        "rejected",
        "--set",
        "embed=letters",
        "-o",
        tmp_path / "m.preflearn",
    )
    status, _, err = call("train", tmp_path / "prefs.jsonl", *told, "-q")
    assert status == 0, err
    model = load_model(tmp_path / "m.preflearn")
    assert model[0].model_name == "letters"
    assert model.predict(["a good thing", "a bad thing"]) @ [1, -1] > 0
    # Columns of these names are recognised as answers; under other names they are not.
    other = [{"better": row["chosen"], "worse": row["rejected"]} for row in rows]
    (tmp_path / "other.jsonl").write_text("".join(json.dumps(row) + "\n" for row in other))
    status, _, err = call(
        "train", tmp_path / "other.jsonl", "--set", "embed=letters", "-o", tmp_path / "n.preflearn"
    )
    assert status == 2 and "--set embed makes features of texts: give --chosen" in err
    assert not (tmp_path / "n.preflearn").exists()


def test_another_model_under_the_same_name_is_noticed(stand_in, monkeypatch):
    embedder = SentenceEmbedder("letters").fit(TEXTS)
    monkeypatch.setattr(stand_in, "dimension", 12)
    with pytest.raises(ValueError, match="12 features, and gave 26 in fit"):
        embedder.transform(["new"])


@pytest.mark.parametrize(
    ("options", "X", "error", "message"),
    [
        ({}, "one text", TypeError, "single text"),
        ({}, [], ValueError, "no texts"),
        ({}, ["a", 5], TypeError, "row 1 holds 5"),
        ({}, np.array([["a", "b"]]), ValueError, "one text per row"),
        ({"batch_size": 0}, TEXTS, ValueError, "batch_size"),
        ({"model_name": "no such model"}, TEXTS, OSError, "cannot be loaded"),
    ],
)
def test_what_cannot_be_read_is_refused(stand_in, options, X, error, message):
    with pytest.raises(error, match=message):
        SentenceEmbedder(**{"model_name": "letters", **options}).fit(X)


def test_the_missing_package_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "sentence_transformers", None)
    sentences._load.cache_clear()
    with pytest.raises(ImportError, match=r"pip install 'preflearn\[embeddings\]'"):
        SentenceEmbedder().fit(TEXTS)


@pytest.fixture(scope="module")
def tiny_model(tmp_path_factory):
    """A sentence model of random weights with a vocabulary of ten words, as a folder."""
    package = pytest.importorskip("sentence_transformers")
    transformers = pytest.importorskip("transformers")
    folder = tmp_path_factory.mktemp("tiny")
    words = "[PAD] [UNK] [CLS] [SEP] [MASK] a good bad answer nothing one".split()
    (folder / "vocab.txt").write_text("\n".join(words) + "\n")
    config = transformers.BertConfig(
        vocab_size=len(words),
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        max_position_embeddings=32,
    )
    transformers.set_seed(0)
    transformers.BertModel(config).save_pretrained(folder / "bert")
    transformers.BertTokenizer(str(folder / "vocab.txt")).save_pretrained(folder / "bert")
    # Read as a plain language model, it gets a layer that averages over the words.
    package.SentenceTransformer(str(folder / "bert"), device="cpu").save(str(folder / "model"))
    return str(folder / "model")


def test_a_real_model(tiny_model, tmp_path):
    sentences._load.cache_clear()
    embedder = SentenceEmbedder(tiny_model, device="cpu")
    found = embedder.fit_transform(TEXTS)
    assert found.shape == (6, 16) and embedder.embedding_dim_ == 16
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1.0, rtol=1e-5)
    np.testing.assert_array_equal(found[0], found[4])
    assert np.abs(found[0] - found[1]).max() > 1e-3
    model = make_pipeline(SentenceEmbedder(tiny_model, device="cpu"), BradleyTerry(0.01))
    model.fit(TEXTS, [[0, 1], [2, 5], [2, 3]])
    save_model(model, tmp_path / "model")
    again = load_model(tmp_path / "model")
    np.testing.assert_allclose(again.predict(TEXTS), model.predict(TEXTS), rtol=1e-5)
    assert again.predict(TEXTS)[0] > again.predict(TEXTS)[1]
    with pytest.raises(OSError, match="cannot be loaded"):
        SentenceEmbedder(str(tmp_path / "nothing")).fit(TEXTS)
