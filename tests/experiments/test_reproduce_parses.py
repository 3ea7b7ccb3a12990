"""The experiment on parses, on small made-up sentences."""

from __future__ import annotations

import json
import lzma
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from preflearn import RankRLS
from preflearn.metrics import disagreement_error
from preflearn_experiments import parse_costs, parses
from preflearn_papers.parses import LinkFeatures, agreement, as_ranking, read_linkages

SMALL: dict[str, Any] = {
    "trials": 2,
    "n_train": 22,
    "per_sentence": 2,
    "more": 3,
    "alphas": (0.01, 1.0),
    "error_alphas": (1e-3, 1e3),
    "time_basis": (1,),
    "timed_folds": 2,
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Sentences whose right links join neighbours, mostly; one whose parses are all as good."""
    random = np.random.default_rng(0)
    lines = []
    for number in range(36):
        n = int(random.integers(4, 8))
        tokens = [[f"w{random.integers(5)}", str(random.choice(["NN", "VB", "IN"]))] for _ in range(n)]
        gold = [[k, k + 1] for k in range(n - 1)]
        found = []
        for _ in range(6):
            every = [[i, j, "A" if j == i + 1 else "B"] for i in range(n) for j in range(i + 1, n)]
            links = [one for one in every if random.random() < (0.7 if one[1] == one[0] + 1 else 0.2)]
            f = agreement(links, gold) if number else 0.5
            found.append({"links": links, "disjunct": random.normal(), "length": len(links), "f": f})
        lines.append(json.dumps({"sentence": f"s{number}", "tokens": tokens, "gold": gold, "parses": found}))
    root = tmp_path_factory.mktemp("data")
    (root / "parse_ranking").mkdir()
    (root / "parse_ranking" / "bioinfer_linkages.jsonl.xz").write_bytes(
        lzma.compress("\n".join(lines).encode())
    )
    return root


def test_the_table_and_its_resumption(folder: Path, tmp_path: Path) -> None:
    report = parses.run(data=folder, **SMALL, resume=tmp_path / "units.json")
    assert [row["method"] for row in report.rows] == [
        "parser, link length", "parser, disjunct cost", "RLS", "sparse RLS", "RankRLS", "sparse RankRLS",
    ]  # fmt: skip
    error = {row["method"]: row["error"] for row in report.rows}
    assert error["sparse RankRLS"] < 0.25 < error["parser, disjunct cost"]
    assert all((row["p"] is None) == (row["method"] == "sparse RankRLS") for row in report.rows)
    features, errors, times = report.more
    assert [row["features"] for row in features.rows] == list(parses.FEATURES)
    assert sum(int(row["chosen"].split()[0]) for row in features.rows) == 2
    assert [row["alpha"] for row in errors.rows] == [1e-3, 1e3]
    assert [(row["folds"], row["basis"]) for row in times.rows] == [("leave-group-out", 22), ("ten-fold", 22)]
    assert all(row["difference"] < 1e-8 for row in times.rows)
    again = parses.run(data=folder, **SMALL, resume=tmp_path / "units.json")
    assert again.rows == report.rows and again.more == report.more
    assert "sparse RankRLS" in str(report)
    assert len(report.plot().axes) == 2


def test_the_rows_are_those_of_the_protocol(folder: Path) -> None:
    """One learner by hand: five parses a sentence, two of them basis vectors, features from training parses alone."""
    options = {
        **SMALL,
        "trials": 1,
        "alphas": (0.1,),
        "features": ("links in context",),
        "error_alphas": (),
        "time_basis": (),
    }
    report = parses.run(data=folder, **options)
    assert len(report.more) == 1 and report.draw is None
    sentences = read_linkages(folder / "parse_ranking" / "bioinfer_linkages.jsonl.xz")
    draw = parses.draw_parses(sentences, 22, 2, 3, [0, 0])
    assert np.bincount(draw.train.qid).tolist() == [5] * 22
    assert np.bincount(draw.train.qid[draw.basis]).tolist() == [2] * 22
    tested = [sentences[number] for number in draw.tested]
    trained = {id(parse.tokens) for parse in draw.train.linkages}
    assert len(tested) == 14 and not trained & {id(sentence.tokens) for sentence in tested}
    features = LinkFeatures("context")
    X = features.fit_transform(draw.train.linkages).toarray()
    model = RankRLS(0.1, weighting="query", basis=draw.basis).fit(X, draw.train.y, qid=draw.train.qid)
    linkages, y, qid = as_ranking(tested)
    expected = disagreement_error(y, model.predict(features.transform(linkages).toarray()), qid)
    error = {row["method"]: row["error"] for row in report.rows}
    assert error["sparse RankRLS"] == pytest.approx(expected, abs=1e-12)
    lengths = [-parse.length for parse in linkages]
    assert error["parser, link length"] == pytest.approx(disagreement_error(y, lengths, qid))


def test_bad_settings_are_refused(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="n_train must be 2 to 35"):
        parses.run(data=folder, n_train=36)
    with pytest.raises(
        ValueError, match="features are some of all paths, label pairs, links in context: found words"
    ):
        parses.run(data=folder, features=("words",))
    with pytest.raises(FileNotFoundError, match="parse_ranking"):
        parses.run(data=tmp_path)


def test_costs_and_pairs_are_those_of_plain_fits(folder: Path, tmp_path: Path) -> None:
    options: dict[str, Any] = {"trials": 2, "n_train": 22, "per_sentence": 3, "alphas": (0.1,)}
    report = parse_costs.run(data=folder, **options, resume=tmp_path / "units.json")
    assert len(report.rows) == 9
    sentences = read_linkages(folder / "parse_ranking" / "bioinfer_linkages.jsonl.xz")
    found: dict[tuple[str, str], list[float]] = {}
    for trial in range(2):
        draw = parses.draw_parses(sentences, 22, 3, 0, [0, trial])
        features = LinkFeatures("context")
        X = features.fit_transform(draw.train.linkages).toarray()
        X_test = features.transform(draw.test.linkages).toarray()
        for pairs, qid in (("relevant", draw.train.qid), ("all", None)):
            for name, cost in (("(20)", "unit"), ("(21)", "magnitude"), ("(22)", "relative")):
                model = RankRLS(0.1, cost=cost).fit(X, draw.train.y, qid=qid)
                error = disagreement_error(draw.test.y, model.predict(X_test), draw.test.qid)
                found.setdefault((f"RankRLS {name}", pairs), []).append(error)
    rows = {(row["method"], row["pairs"]): row for row in report.rows}
    for key, errors in found.items():
        assert rows[key]["error"] == pytest.approx(np.mean(errors), abs=1e-10)
        assert (rows[key]["p"] is None) == (key[1] == "relevant")
    assert parse_costs.run(data=folder, **options, resume=tmp_path / "units.json").rows == report.rows
    with pytest.raises(ValueError, match="n_train must be 10 to 35"):
        parse_costs.run(data=folder, n_train=36)
