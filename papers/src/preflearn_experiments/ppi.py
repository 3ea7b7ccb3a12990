"""Protein-protein interactions with the all-paths graph kernel: Table 1 of the article.

Sparse RLS on the features of each candidate pair, ten folds of whole documents; inside the training folds α and the
threshold are chosen by leave-one-document-out. F and AUC, mean over the folds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from preflearn_papers.ppi import Candidates, Settings, evaluate, learning_curve

from .interaction_corpora import CORPORA, read_candidates
from .report import ExperimentReport, ReportTable
from .resume import Resume
from .tables import count, refuse_unknown

# corpus → F, its spread, AUC, its spread; per cent
_PUBLISHED = {
    "AIMed": (56.4, 5.0, 84.8, 2.3),
    "BioInfer": (61.3, 5.2, 81.9, 4.9),
    "HPRD50": (63.4, 11.4, 79.7, 6.3),
    "IEPA": (75.1, 7.0, 85.1, 5.1),
    "LLL": (76.8, 17.8, 83.4, 12.2),
}
# corpus → precision, recall; precision and F of calling every candidate; per cent
_PUBLISHED_PARTS = {
    "AIMed": (52.9, 61.8, 17.8, 30.1),
    "BioInfer": (56.7, 67.2, 26.6, 41.7),
    "HPRD50": (64.3, 65.8, 38.9, 55.4),
    "IEPA": (69.6, 82.7, 40.8, 57.6),
    "LLL": (72.5, 87.2, 55.9, 70.3),
}
_PARTS = {"P": "precision", "R": "recall", "co-occurrence P": "co_precision", "co-occurrence F": "co_f"}


def run(
    *, data: str | Path | None = None, trials: int = 5, folds: int = 10,
    corpora: Sequence[str] = tuple(CORPORA), summed: Sequence[str] = tuple(CORPORA), summed_trials: int = 2,
    curves: Sequence[str] = tuple(CORPORA), n_basis: int = 4000, seed: int = 0, verbose: int = 0,
    resume: str | Path | None = None,
) -> ExperimentReport:  # fmt: skip
    """Precision, recall, F and AUC of the all-paths graph kernel, cross-validated by document; learning curves.

    Parameters
    ----------
    data : path
        A folder that holds ``ppi_corpora``.
    trials : int, default=5
        Random splits of the documents into folds.
    folds : int, default=10
    corpora : sequence of str
        Which of the five.
    summed : sequence of str
        Those where the sum over vertex pairs is measured beside the maximum.
    summed_trials : int, default=2
        The first splits, this many of them, are those of the sum.
    curves : sequence of str
        Those whose AUC is measured as training documents are added.
    n_basis : int, default=4000
        The most basis vectors; corpora with fewer candidates use all.
    seed : int, default=0
        Split s is drawn with seed + s, basis vectors with seed.
    verbose : int, default=0
    resume : path, optional
        Where finished parts are kept; they serve for any choice of corpora.
    """
    refuse_unknown("corpus", [*corpora, *summed, *curves], CORPORA)
    splits = {"max": trials, "sum": min(trials, summed_trials)}
    chosen = [(name, "max") for name in corpora]
    chosen += [(name, "sum") for name in corpora if name in summed]
    # A part depends on its own corpus alone.
    shared = {"trials": trials, "folds": folds, "n_basis": n_basis, "seed": seed}
    drawn = [name for name in corpora if name in curves]
    total = sum(splits[aggregate] for _, aggregate in chosen) + len(drawn)
    work = Resume(resume, "ppi", shared, counts=("trials",), total=total, verbose=verbose)
    found: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for name, aggregate in chosen:
        # Read when the first part needs it.
        read = cache(partial(read_candidates, data, name, "ppi"))
        found[name, aggregate] = []
        for split in range(splits[aggregate]):
            one = partial(_one_split, read, aggregate, folds, n_basis, seed, split)
            found[name, aggregate] += work.unit(f"{name} / {aggregate} / split {split + 1}", one)
    rows = [_row(name, found) for name in corpora]
    points = {
        name: work.unit(f"{name} / learning curve", partial(_curve, data, name, n_basis, seed))
        for name in drawn
    }
    return work.report(
        title="Protein-protein interactions with the all-paths graph kernel",
        protocol=(
            f"{trials} random splits of the documents into {folds} folds; mean and standard deviation over "
            f"all test folds, per cent. RLS with at most {n_basis} basis vectors (published: 4000; only AIMed "
            "and BioInfer have more candidates than that), α from 2^-4 .. 2^4 by the AUC and the threshold by the F of "
            "leave-one-document-out inside the training folds. Rows of unit length; maximum over vertex "
            "pairs, which the author's errata gives as the form of the published figures, and the printed "
            f"sum beside it (on {count(splits['sum'], 'split')}). The published split of AIMed is not available, "
            "nor are those of the others."
        ),
        published="Airola et al., BMC Bioinformatics 9 (Suppl 11), S2, 2008, Table 1: one split, ten folds.",
        columns=(
            "corpus",
            "interactions",
            "others",
            "published F",
            "F",
            "spread of F",
            "published AUC",
            "AUC",
            "spread of AUC",
            "F of splits",
            "AUC of splits",
            "F, sum",
            "AUC, sum",
        ),
        rows=rows,
        more=[_parts_table(found, corpora), *([_curve_table(points)] if points else [])],
        findings=_findings(rows),
        settings={
            **shared, "corpora": list(corpora), "summed": list(summed), "summed_trials": splits["sum"],
            "curves": drawn,
        },
    )  # fmt: skip


def _parts_table(found: dict[tuple[str, str], list[dict[str, Any]]], corpora: Sequence[str]) -> ReportTable:
    """What F is made of, and what calling every candidate an interaction would earn."""
    rows = []
    for name in corpora:
        row: dict[str, Any] = {"corpus": name}
        for (title, key), published in zip(_PARTS.items(), _PUBLISHED_PARTS[name], strict=True):
            row |= {f"published {title}": published, title: _mean(found[name, "max"], key)}
        rows.append(row)
    columns = ("corpus", *(f"{word}{title}" for title in _PARTS for word in ("published ", "")))
    return ReportTable(
        "Precision and recall, and of calling every candidate, means over test folds, per cent", columns, rows
    )


def _curve(data: str | Path | None, name: str, n_basis: int, seed: int) -> list[dict[str, Any]]:
    """AUC on one half of the documents as those of the other half are added, means over five halves."""
    curve = learning_curve(
        read_candidates(data, name, "ppi"),
        settings=Settings(n_basis=n_basis, random_state=seed),
        n_points=5,
        n_splits=5,
        random_state=seed,
        n_jobs=1,
    )
    splits = sorted({one.split for one in curve.results})
    lines = [[one for one in curve.results if one.split == split][::-1] for split in splits]
    steps = [[line[k] for line in lines if len(line) > k] for k in range(max(map(len, lines)))][::-1]
    return [
        {
            "candidates": float(np.mean([one.n_train for one in step])),
            "auc": float(100 * np.nanmean([one.auc for one in step])),
        }
        for step in steps
    ]


def _curve_table(points: dict[str, list[dict[str, Any]]]) -> ReportTable:
    rows = [
        {"corpus": name, "training candidates": one["candidates"], "AUC": one["auc"]}
        for name, line in points.items()
        for one in line
    ]
    title = "Learning curves: AUC on half of the documents, training documents added, means over five halves"
    return ReportTable(title, ("corpus", "training candidates", "AUC"), rows)


def _one_split(
    read: Callable[[], Candidates], aggregate: str, folds: int, n_basis: int, seed: int, split: int
) -> list[dict[str, Any]]:
    found = evaluate(
        read(),
        aggregate=aggregate,
        settings=Settings(n_basis=n_basis, random_state=seed),
        n_folds=folds,
        random_state=seed + split,
        n_jobs=1,
    )
    return [
        {
            "split": split,
            "f": one.at_training.f,
            "auc": None if np.isnan(one.auc) else one.auc,
            "precision": one.at_training.precision,
            "recall": one.at_training.recall,
            "co_precision": one.at_all.precision,
            "co_f": one.at_all.f,
            "alpha": one.alpha,
            "positive": found.n_positive,
            "negative": found.n_negative,
        }
        for one in found.results
    ]


def _row(name: str, found: dict[tuple[str, str], list[dict[str, Any]]]) -> dict[str, Any]:
    units, summed = found[name, "max"], found.get((name, "sum"))
    f, f_spread, auc, auc_spread = _PUBLISHED[name]
    return {
        "corpus": name,
        "interactions": units[0]["positive"],
        "others": units[0]["negative"],
        "published F": f"{f} ({f_spread})",
        "F": _mean(units, "f"),
        "spread of F": float(100 * np.std(_values(units, "f"))),
        "published AUC": f"{auc} ({auc_spread})",
        "AUC": _mean(units, "auc"),
        "spread of AUC": float(100 * np.std(_values(units, "auc"))),
        "F of splits": _range(units, "f"),
        "AUC of splits": _range(units, "auc"),
        "F, sum": None if summed is None else _mean(summed, "f"),
        "AUC, sum": None if summed is None else _mean(summed, "auc"),
        "ahead of the sum": None if summed is None else _lead(units, summed),
    }


def _lead(units: list[dict[str, Any]], summed: list[dict[str, Any]]) -> tuple[float, float]:
    """F and AUC of the maximum less those of the sum, on the splits that have both."""
    splits = {unit["split"] for unit in summed}
    same = [unit for unit in units if unit["split"] in splits]
    return _mean(same, "f") - _mean(summed, "f"), _mean(same, "auc") - _mean(summed, "auc")


def _values(units: list[dict[str, Any]], key: str) -> list[float]:
    """Of folds that have it: a fold of one class has no AUC."""
    return [unit[key] for unit in units if unit[key] is not None]


def _mean(units: list[dict[str, Any]], key: str) -> float:
    return float(100 * np.mean(_values(units, key)))


def _range(units: list[dict[str, Any]], key: str) -> str:
    """Least and largest mean of a split."""
    splits = sorted({unit["split"] for unit in units})
    means = [_mean([unit for unit in units if unit["split"] == split], key) for split in splits]
    return f"{min(means):.1f}–{max(means):.1f}"


def _findings(rows: list[dict[str, Any]]) -> list[str]:
    said = []
    for row in rows:
        f, _, auc, _ = _PUBLISHED[row["corpus"]]
        text = f"{row['corpus']}: F {row['F'] - f:+.1f} and AUC {row['AUC'] - auc:+.1f} points from the published ones"
        if row["ahead of the sum"] is not None:
            f_lead, auc_lead = row["ahead of the sum"]
            text += f"; the maximum is {f_lead:+.1f} points of F and {auc_lead:+.1f} of AUC from the sum"
        said.append(text)
    return said
