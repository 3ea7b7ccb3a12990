"""The experiment on dependent rows, on stand-ins that say nothing about a new patient or document."""

from __future__ import annotations

import lzma
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from sklearn.metrics import f1_score

from preflearn.graphs import LabeledGraph
from preflearn_experiments import leaks
from preflearn_papers.ppi.measures import best_threshold

GROUPS = np.repeat(np.arange(40), 4)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Ten visits of sixteen patients in two centres; the outcome is tossed for each patient."""
    rng = np.random.default_rng(0)
    age, baseline = rng.permutation(16) * 1.0, rng.permutation(16) * 1.0
    outcome = rng.permutation(16) % 2
    lines = ["center,id,treat,sex,age,baseline,visit,outcome"]
    for k in range(16):
        for visit in range(10):
            lines.append(
                f"{1 + k // 8},{k % 8},{'AP'[k % 2]},F,{age[k]:.3f},{baseline[k]:.3f},{visit},{outcome[k]}"
            )
    path = tmp_path / "clinical_repeated" / "geepack_respiratory.csv.xz"
    path.parent.mkdir()
    path.write_bytes(lzma.compress(("\n".join(lines) + "\n").encode()))
    return tmp_path


def test_patients_are_recognised_and_nothing_else(folder: Path) -> None:
    found = leaks.run(data=folder, patients=("respiratory",), n_sentences=0, corpora=(), folds=5)
    assert [row["rows"] for row in found.rows] == ["respiratory", "respiratory, outcomes of other patients"]
    for row in found.rows:
        assert (row["n"], row["groups"]) == (160, 16)
        assert row["rows divided"] > 90 and row["groups held out"] < 75
    assert len(found.findings) == 2 and "reproduce leaks" in str(found)
    assert found.plot().axes[0].get_xlabel() == "per cent"


def test_pairs_of_a_document_are_recognised_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    graphs = [
        LabeledGraph([[f"word {document}"], ["PROT1"], ["PROT2"]], [(0, 1, 0.9), (0, 2, 0.9)])
        for document in GROUPS
    ]
    corpus = SimpleNamespace(graphs=graphs, labels=rng.permutation(40)[GROUPS] % 2, documents=GROUPS)
    monkeypatch.setattr(leaks, "read_candidates", lambda *_: corpus)
    found: dict[str, Any] = leaks._of_pairs(None, "LLL", 5, 0)
    assert found["rows divided"] > 95 and found["groups held out"] < 80 and found["groups"] == 40


def test_folds_of_groups_are_whole_and_those_of_rows_are_not() -> None:
    single, whole = leaks._folds(GROUPS, 5, 0)
    for tests in (single, whole):
        assert sorted(np.concatenate(tests)) == list(range(160))
    divided = [np.isin(np.delete(GROUPS, test), GROUPS[test]).any() for test in (*single, *whole)]
    assert divided == 5 * [True] + 5 * [False]


def test_f_has_the_threshold_of_the_other_folds() -> None:
    rng = np.random.default_rng(0)
    y = rng.integers(2, size=60) * 1.0
    scores = y + rng.normal(size=60)
    test, others = np.arange(20), np.arange(20, 60)
    threshold = best_threshold(y[others], scores[others])[0]
    assert leaks._f(y, scores, test) == pytest.approx(f1_score(y[test], scores[test] > threshold))


def test_what_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="corp"):
        leaks.run(data=tmp_path, corpora=("nothing",))
    with pytest.raises(FileNotFoundError, match="clinical_repeated"):
        leaks.run(data=tmp_path, n_sentences=0, corpora=())
