"""Protein-protein interactions across corpora: Tables 2 to 5 of the article.

Sparse RLS with the all-paths graph kernel is trained on one corpus and tested on each of the others: AUC, and F at the
threshold of training, at the best there is for the test corpus, and at the one that calls as many pairs interactions as
the test corpus has.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from preflearn_papers.ppi import Candidates, Settings, cross_corpus

from .interaction_corpora import CORPORA, read_candidates
from .report import ExperimentReport
from .resume import Resume
from .tables import refuse_unknown

_COLUMNS = {"AUC": "AUC", "training": "F", "optimum": "F, optimal", "ratio": "F, by ratio"}
_ORDER = tuple(CORPORA)
# Rows: trained on; columns: tested on; both in the order of CORPORA, the diagonal left out. Per cent.
_PUBLISHED = {
    "AUC": (
        (67.7, 82.4, 76.1, 77.8),
        (77.8, 75.2, 79.3, 83.3),
        (72.5, 61.8, 74.9, 64.0),
        (70.2, 72.2, 80.0, 82.5),
        (61.8, 61.0, 69.4, 74.8),
    ),
    "training": (
        (24.9, 64.6, 22.9, 17.7),
        (44.2, 63.6, 64.5, 76.4),
        (40.9, 27.2, 56.3, 45.5),
        (38.4, 47.0, 65.6, 77.0),
        (32.6, 42.2, 58.3, 63.9),
    ),
    "optimum": (
        (47.1, 69.0, 67.4, 74.5),
        (47.2, 63.9, 68.0, 78.0),
        (42.2, 42.5, 65.1, 67.9),
        (39.1, 51.7, 67.5, 77.6),
        (33.3, 42.5, 59.8, 64.9),
    ),
    "ratio": (
        (44.7, 65.6, 63.9, 70.1),
        (42.6, 62.0, 66.9, 75.6),
        (39.1, 40.0, 63.3, 58.5),
        (33.5, 48.4, 66.3, 77.4),
        (26.5, 38.7, 54.0, 63.0),
    ),
}


def run(
    *, data: str | Path | None = None, corpora: Sequence[str] = _ORDER, training: Sequence[str] | None = None,
    n_basis: int = 4000, seed: int = 0, verbose: int = 0, resume: str | Path | None = None,
) -> ExperimentReport:  # fmt: skip
    """AUC and F of extractors trained on one corpus and tested on others.

    Parameters
    ----------
    corpora : sequence of str
        Corpora to test on, at least two.
    training : sequence of str, optional
        Those of them to train on; all by default.
    n_basis : int, default=4000
        The most basis vectors; corpora with fewer candidates use all.
    seed : int, default=0
        Of the basis vectors.
    data, verbose, resume : as in every experiment (`preflearn_experiments.registry`)
    """
    trained_on = list(corpora if training is None else training)
    refuse_unknown("corpus", [*corpora, *trained_on], CORPORA)
    shared = {"corpora": list(corpora), "n_basis": n_basis, "seed": seed}
    work = Resume(resume, "ppi-cross", shared, total=len(trained_on), verbose=verbose)
    read = cache(lambda: [read_candidates(data, name, "ppi-cross") for name in corpora])
    rows = []
    for name in trained_on:
        rows += work.unit(f"trained on {name}", partial(_train_on, read, name, n_basis, seed))
    rows = [_beside_published(row) for row in rows]
    return work.report(
        title="Protein-protein interactions across corpora",
        protocol=(
            f"RLS with at most {n_basis} basis vectors (published: 4000) and the all-paths graph kernel, maximum over "
            "vertex pairs; α by the AUC and the threshold by the F of leave-one-document-out on the training corpus. "
            "F at that threshold; optimal: the best threshold for the test corpus; by ratio: as many pairs called as "
            "the test corpus has interactions. Per cent. One training for each corpus, so that there is no spread."
        ),
        published="Airola et al., BMC Bioinformatics 9 (Suppl 11), S2, 2008, Tables 2 to 5.",
        columns=(
            "trained on",
            "tested on",
            *(column for ours in _COLUMNS.values() for column in (f"published {ours}", ours)),
        ),
        rows=rows,
        findings=_findings(rows),
        settings={**shared, "training": trained_on},
    )


def _train_on(read: Any, name: str, n_basis: int, seed: int) -> list[dict[str, Any]]:
    corpora: list[Candidates] = read()
    found = cross_corpus(
        corpora, training=[name], settings=Settings(n_basis=n_basis, random_state=seed), n_jobs=1
    )
    return [
        {
            "trained on": name,
            "tested on": other,
            "AUC": one.auc,
            "training": one.at_training.f,
            "optimum": one.at_optimum.f,
            "ratio": one.at_ratio.f,
        }
        for (_, other), one in found.results.items()
    ]


def _beside_published(row: dict[str, Any]) -> dict[str, Any]:
    first, second = row["trained on"], row["tested on"]
    others = [name for name in _ORDER if name != first]
    told = {"trained on": first, "tested on": second}
    for key, column in _COLUMNS.items():
        told[f"published {column}"] = _PUBLISHED[key][_ORDER.index(first)][others.index(second)]
        told[column] = 100 * row[key]
    return told


def _findings(rows: list[dict[str, Any]]) -> list[str]:
    said = []
    for column in _COLUMNS.values():
        difference = np.array([row[column] - row[f"published {column}"] for row in rows])
        said.append(
            f"{column}: {difference.mean():+.1f} points from the published figures on average, "
            f"{np.abs(difference).mean():.1f} without sign"
        )
    auc = {name: [row["AUC"] for row in rows if row["trained on"] == name] for name in _ORDER}
    means = {name: float(np.mean(values)) for name, values in auc.items() if values}
    said.append(
        "mean AUC on the others, by training corpus: "
        + ", ".join(f"{name} {value:.1f}" for name, value in sorted(means.items(), key=lambda item: -item[1]))
    )
    return said
