"""Rows that depend on each other, divided and held out whole: how much a figure is flattered.

Three demonstrations on the same rows and learners, once with folds of single rows and once with folds of what the rows
belong to: visits of a patient, parses of a sentence, candidate pairs of a document.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.model_selection import KFold

from preflearn import RLS, RLSCV, RankRLS
from preflearn.comparisons import encode_queries
from preflearn.graphs import AllPathsFeatures, gram
from preflearn.io import read_table
from preflearn.metrics import concordance, kendall_tau
from preflearn.model_selection import HeldOut, QueryKFold, cross_val_predict
from preflearn.preprocessing import TableEncoder
from preflearn_papers.parses import LinkFeatures, as_ranking, read_linkages
from preflearn_papers.ppi.measures import best_threshold

from .data import find_file, find_folder
from .interaction_corpora import CORPORA, read_candidates
from .report import ExperimentReport
from .resume import Resume, settings_of
from .tables import refuse_unknown

# name → file, outcome, columns that name the patient, columns that are left out
_PATIENTS = {
    "respiratory": ("geepack_respiratory", "outcome", ("center", "id"), ()),
    "arthritis": ("multgee_arthritis", "y", ("id",), ()),
    "diabetic": ("survival_diabetic", "status", ("id",), ("time",)),
    "rhDNase": ("survival_rhDNase", "fev", ("id",), ("ivstart", "ivstop")),
}
_ALPHAS = tuple(2.0**k for k in range(-10, 11, 2))


def run(
    *, data: str | Path | None = None, patients: Sequence[str] = tuple(_PATIENTS), n_sentences: int = 40,
    corpora: Sequence[str] = ("HPRD50", "IEPA", "LLL"), folds: int = 10, seed: int = 0, verbose: int = 0,
    resume: str | Path | None = None,
) -> ExperimentReport:  # fmt: skip
    """Folds of rows beside folds of patients, sentences and documents.

    Parameters
    ----------
    patients : sequence of str
        Sets of repeated measurements.
    n_sentences : int, default=40
        Sentences, drawn at random, whose parses are ordered; 0 leaves these out.
    corpora : sequence of str
        Of protein-protein interactions.
    folds : int, default=10
    data, seed, verbose, resume : as in every experiment (`preflearn_experiments.registry`)
    """
    refuse_unknown("set of patients", patients, _PATIENTS)
    refuse_unknown("corpus", corpora, CORPORA)
    settings = settings_of(
        patients=patients, n_sentences=n_sentences, corpora=corpora, folds=folds, seed=seed
    )
    shared = {"folds": folds, "seed": seed}  # a part depends on its own rows alone
    total = 2 * len(patients) + bool(n_sentences) + len(corpora)
    work = Resume(resume, "leaks", shared, total=total, verbose=verbose)
    rows: list[dict[str, Any]] = []
    for name in patients:
        for tossed in (False, True):
            what = f"{name}, outcomes of other patients" if tossed else name
            rows.append(work.unit(what, partial(_of_patients, data, name, what, tossed, folds, seed)))
    if n_sentences:
        rows.append(
            work.unit(
                f"parses of {n_sentences} sentences", partial(_of_parses, data, n_sentences, folds, seed)
            )
        )
    rows += [work.unit(name, partial(_of_pairs, data, name, folds, seed)) for name in corpora]
    return work.report(
        title="Dependent rows, divided and held out whole",
        protocol=(
            f"The same rows, learner and number of folds ({folds}, random), once with single rows dealt to the "
            "folds and once with whole patients, sentences or documents; per cent. Patients: concordance inside the "
            "folds of RBF regression, alpha chosen inside the training rows of each fold by folds of the same kind; "
            "then with each patient's outcomes replaced by one of another patient's, drawn at random, so that nothing "
            "can be known about a new patient. Parses: Kendall's tau inside sentences of RankRLS on links in context, "
            "the best of its alphas in each column. Interactions: F of RLS with the all-paths graph kernel, alpha by "
            "the AUC and, for each fold, the threshold by the F of the other folds."
        ),
        published=(
            "Kendall's tau about .7 where parses of a sentence are divided and .3 where they are not, and 18 points of "
            "F for pairs of one document in different folds (Airola, Kernel-based ranking, 2011, section 5.5)."
        ),
        columns=("rows", "measure", "n", "groups", "rows divided", "groups held out", "difference"),
        rows=rows,
        findings=[f"{row['rows']}: {row['difference']:.0f} points" for row in rows if row["difference"] >= 5],
        settings=settings,
        draw=_plot,
    )


def _folds(groups: np.ndarray, n_folds: int, seed: int) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Test rows of folds of single rows, and of folds of whole groups."""
    blank = np.empty((groups.shape[0], 0))
    single = KFold(n_folds, shuffle=True, random_state=seed).split(blank)
    whole = QueryKFold(n_folds, shuffle=True, random_state=seed).split(blank, qid=groups)
    return [test for _, test in single], [test for _, test in whole]


def _row(name: str, measure: str, groups: np.ndarray, divided: float, whole: float) -> dict[str, Any]:
    return {
        "rows": name,
        "measure": measure,
        "n": groups.shape[0],
        "groups": int(np.unique(groups).shape[0]),
        "rows divided": 100 * divided,
        "groups held out": 100 * whole,
        "difference": 100 * (divided - whole),
    }


def _of_patients(
    data: str | Path | None, name: str, what: str, tossed: bool, folds: int, seed: int
) -> dict[str, Any]:
    file, target, owner, left_out = _PATIENTS[name]
    folder = find_folder(data, "clinical_repeated", "leaks")
    path = find_file(folder, f"{file}.csv.xz", "leaks")
    table = read_table(path, target=target, drop=left_out or None, allow_unknown=True)
    assert table.y is not None
    known = np.isfinite(table.y)
    y, columns = table.y[known], {column: values[known] for column, values in table.columns.items()}
    labels = list(zip(*(columns.pop(column).tolist() for column in owner), strict=True))
    patient = encode_queries(labels, len(labels))
    X = TableEncoder(sparse_output=False).fit_transform(columns)
    X = X[:, X.std(axis=0) > 0]
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    if tossed:
        other = np.random.default_rng(seed).permutation(patient.n_groups)
        y = y[patient.order[patient.starts[:-1]]][other][patient.codes]
    found = []
    for tests, groups in zip(_folds(patient.codes, folds, seed), (None, patient.codes), strict=True):
        fold = np.empty(len(y), dtype=np.int64)
        for number, test in enumerate(tests):
            fold[test] = number
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # a choice at the end of the grid
            inner: Any = KFold(5, shuffle=True, random_state=seed) if groups is None else 5
            model = RLSCV(_ALPHAS, kernel="rbf", cv=inner)
            scores = cross_val_predict(model, X, y, cv=tests, groups=groups)
        found.append(float(concordance(y, scores, fold)))
    return _row(what, "concordance", patient.codes, *found)


def _of_parses(data: str | Path | None, n_sentences: int, folds: int, seed: int) -> dict[str, Any]:
    folder = find_folder(data, "parse_ranking", "leaks")
    sentences = read_linkages(find_file(folder, "bioinfer_linkages.jsonl.xz", "leaks"))
    if not folds <= n_sentences <= len(sentences):
        raise ValueError(f"n_sentences must be {folds} to {len(sentences)}: found {n_sentences}.")
    drawn = np.sort(np.random.default_rng(seed).permutation(len(sentences))[:n_sentences])
    parses = as_ranking(sentences[number] for number in drawn)
    K = gram(LinkFeatures("context").fit_transform(parses.linkages))
    held_out = HeldOut(RankRLS(kernel="precomputed"), K, parses.y, qid=parses.qid)
    taus = [
        max(kendall_tau(parses.y, scores, parses.qid) for scores in held_out.predict(tests, _ALPHAS))
        for tests in _folds(parses.qid, folds, seed)
    ]
    return _row("parses of a sentence", "Kendall's tau", parses.qid, *map(float, taus))


def _of_pairs(data: str | Path | None, name: str, folds: int, seed: int) -> dict[str, Any]:
    found = read_candidates(data, name, "leaks")
    y = np.asarray(found.labels, dtype=float)
    document = encode_queries(found.documents, y.shape[0]).codes
    features = AllPathsFeatures("max", min_weight=1e-3, normalize=True)
    held_out = HeldOut(RLS(kernel="precomputed"), gram(features.fit_transform(found.graphs)), y)
    values = []
    for tests in _folds(document, folds, seed):
        predictions = held_out.predict(tests, _ALPHAS)
        scores = predictions[int(np.argmax([concordance(y, one) for one in predictions]))]
        values.append(float(np.mean([_f(y, scores, test) for test in tests])))
    return _row(f"pairs of a document, {name}", "F", document, *values)


def _f(y: np.ndarray, scores: np.ndarray, test: np.ndarray) -> float:
    """F of a fold at the threshold that is best for the others."""
    others = np.delete(np.arange(y.shape[0]), test)
    called = scores[test] > best_threshold(y[others], scores[others])[0]
    hits = float(np.count_nonzero(called & (y[test] > 0)))
    return 2 * hits / max(float(called.sum() + (y[test] > 0).sum()), 1.0)


def _plot(report: ExperimentReport, axes: Any = None) -> Any:
    """Two points for each line of the table, joined."""
    if axes is None:
        import matplotlib.pyplot as plt

        _, axes = plt.subplots(figsize=(6.4, 0.33 * len(report.rows) + 1.1), layout="constrained")
    rows = report.rows[::-1]
    for place, row in enumerate(rows):
        axes.plot([row["groups held out"], row["rows divided"]], [place, place], color="0.7", zorder=1)
    for key, colour in (("groups held out", "C0"), ("rows divided", "C3")):
        axes.scatter([row[key] for row in rows], range(len(rows)), color=colour, label=key, zorder=2)
    axes.set_yticks(range(len(rows)), [f"{row['rows']} ({row['measure']})" for row in rows])
    axes.set_xlabel("per cent")
    axes.legend()
    return axes.figure
