"""Saved, exported and served models score as `predict` does, or are refused; see `contracts.kept_models`."""

from __future__ import annotations

import json
import re
import warnings
from typing import Any

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from contracts import kept_models as contract
from preflearn.cli.serve import _scorer
from preflearn.io import load_model, save_model, to_onnx
from preflearn.metrics.by_query import predict_scores

pytest.importorskip("pandas")
pytest.importorskip("polars")

# Requests and graphs bring numbers without names to a model that knows some.
pytestmark = pytest.mark.filterwarnings("ignore:X does not have valid feature names:UserWarning")

COMBINATIONS = contract.combinations()
TYPES = {"tensor(float)": np.float32, "tensor(double)": np.float64, "tensor(string)": object}
# Relative to the largest score: what single precision leaves of kernels between float32 rows and basis vectors.
TOLERANCE = {"float64": 1e-8, "float32": 1e-5}


def _id(chosen: contract.Chosen) -> str:
    return " ".join(map(str, chosen.values()))


@pytest.fixture(params=COMBINATIONS, ids=_id)
def chosen(request) -> contract.Chosen:
    return request.param


def fitted(chosen: contract.Chosen) -> contract.Kept:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        warnings.simplefilter("ignore", UserWarning)
        return contract.fitted(chosen)


def scores_of(model: Any, kept: contract.Kept) -> np.ndarray:
    return np.asarray(
        model.predict(kept.rows) if kept.qid is None else predict_scores(model, kept.rows, kept.qid)
    )


def refusal(rules: list[contract.Rule], chosen: contract.Chosen) -> str | None:
    return next((rule.says for rule in rules if rule.when(chosen)), None)


def test_a_model_that_was_saved_predicts_the_same_numbers(chosen, tmp_path):
    kept, path = fitted(chosen), tmp_path / "model.preflearn"
    says = refusal(contract.SAVED, chosen)
    if says is not None:
        with pytest.raises((ValueError, TypeError), match=says):
            save_model(kept.model, path)
        assert not path.exists()
        return
    save_model(kept.model, path)
    found, expected = scores_of(load_model(path), kept), scores_of(kept.model, kept)
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(found, expected)


def test_an_exported_model_gives_the_same_scores_and_order(chosen):
    onnxruntime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    pytest.importorskip("skl2onnx", reason="the extra onnx is not installed")
    kept = fitted(chosen)
    says = refusal(contract.EXPORTED, chosen)
    if says is not None:
        with pytest.raises(ValueError, match=says):
            to_onnx(kept.model, dtype=chosen["inputs"])
        if chosen["kernel"] == "callable":
            return
    more = {"one_query": True} if contract.looks_at_queries(chosen) else {}
    exported = to_onnx(kept.model, dtype=chosen["inputs"], **more)
    session = onnxruntime.InferenceSession(exported.SerializeToString())
    feeds = {}
    for one in session.get_inputs():
        values = np.asarray(kept.plain if one.name == "X" else kept.rows[one.name])
        feeds[one.name] = values.reshape(len(values), -1).astype(TYPES[one.type])
    found, expected = session.run(None, feeds)[0], scores_of(kept.model, kept)
    assert found.shape == expected.shape
    precision = "float32" if "float32" in (chosen["inputs"], chosen["X"]) else "float64"
    atol = TOLERANCE[precision] * max(1.0, np.abs(expected).max())
    np.testing.assert_allclose(found, expected, rtol=0, atol=atol)
    differ = np.abs(expected[:, None] - expected[None]) > 2 * atol
    assert ((found[:, None] > found[None]) == (expected[:, None] > expected[None]))[differ].all()


def test_a_served_model_answers_what_it_predicts(chosen, tmp_path):
    pytest.importorskip("starlette", reason="the extra web is not installed")
    if refusal(contract.SAVED, chosen) is not None:
        pytest.skip("a model that cannot be saved cannot be served")
    kept, path = fitted(chosen), tmp_path / "model.preflearn"
    save_model(kept.model, path)
    says = refusal(contract.SERVED, chosen)
    if says is not None:
        with pytest.raises(ValueError, match=says):
            scorer = _scorer(path)
            scorer.score(scorer.columns(_items(scorer, kept)))
        return
    scorer = _scorer(path)
    found = scorer.score(scorer.columns(_items(scorer, kept)))
    expected = scores_of(kept.model, kept)
    precision = 1e-4 if chosen["X"] == "float32" else 1e-9  # answers are computed in double precision
    np.testing.assert_allclose(found, expected, rtol=0, atol=precision * max(1.0, np.abs(expected).max()))


def _items(scorer: Any, kept: contract.Kept) -> Any:
    """The rows as the items of a request, by way of its text."""
    names = [one.name for one in scorer.features]
    if hasattr(kept.rows, "columns"):
        columns = {name: np.asarray(kept.rows[name]).tolist() for name in names}
    else:
        columns = dict(zip(names, kept.plain.T.tolist(), strict=True))
    return json.loads(json.dumps([dict(zip(columns, row, strict=True)) for row in zip(*columns.values())]))


def test_every_rule_is_met():
    for rules in (contract.SAVED, contract.EXPORTED, contract.SERVED):
        assert all(any(rule.when(chosen) for chosen in COMBINATIONS) for rule in rules)
        assert all(re.compile(rule.says) for rule in rules)
