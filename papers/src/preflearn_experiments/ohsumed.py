"""Document retrieval on OHSUMED with linear learners: Table 3 of the RankRLS article.

Labels 0 and 1 are joined, features scaled to 0..1 inside each query. In each of the five official folds a learner is
trained on three parts, λ is chosen from 2⁻¹⁵, 2⁻¹⁴, ..., 2¹⁵ on a fourth, and the disagreement error is measured on the
fifth, as the mean over queries that have a preference.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from preflearn import RLS, RankRLS, RankSVM
from preflearn.metrics import disagreement_error
from preflearn.model_selection import signed_rank_test

from .data import RankingPart, official_fold, ohsumed_parts
from .report import ExperimentReport
from .resume import Resume, settings_of
from .tables import count, spread

ALPHAS = tuple(2.0**k for k in range(-15, 16))

# name → (published error, learner of an alpha, whether pairs are formed inside queries only)
_METHODS: dict[str, tuple[float | None, Callable[[float], Any], bool]] = {
    "RankRLS": (0.340, lambda alpha: RankRLS(alpha), True),
    "RankRLS, tied pairs left out": (None, lambda alpha: RankRLS(alpha, ties="exclude"), True),
    "RankRLS, every query the same weight": (None, lambda alpha: RankRLS(alpha, weighting="query"), True),
    "RankRLS, all pairs": (0.346, lambda alpha: RankRLS(alpha), False),
    "RLS": (0.346, lambda alpha: RLS(alpha), False),
    "RLS without intercept": (None, lambda alpha: RLS(alpha, fit_intercept=False), False),
    "RankSVM, squared hinge": (None, lambda alpha: RankSVM(alpha), True),
    "RankSVM, hinge": (0.336, lambda alpha: RankSVM(alpha, loss="hinge"), True),
}


def run(
    *, data: str | Path | None = None, folds: int = 5, alphas: Sequence[float] = ALPHAS, seed: int = 0,
    verbose: int = 0, resume: str | Path | None = None,
) -> ExperimentReport:  # fmt: skip
    """Disagreement errors of linear learners on OHSUMED.

    Parameters
    ----------
    folds : int, default=5
        How many of the five official folds.
    alphas : sequence of float
    seed : int, default=0
        Nothing is drawn at random: kept so that all experiments are called alike.
    data, verbose, resume : as in every experiment (`preflearn_experiments.registry`)
    """
    if not 1 <= folds <= 5:
        raise ValueError(f"OHSUMED has five official folds: found folds={folds}.")
    settings = settings_of(folds=folds, alphas=alphas, seed=seed)
    work = Resume(
        resume, "ohsumed", settings, counts=("folds",), total=folds * len(_METHODS), verbose=verbose
    )
    parts = [
        RankingPart(part.X, (part.y >= 2).astype(float), part.qid) for part in ohsumed_parts(data, "ohsumed")
    ]
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in _METHODS}
    for fold in range(folds):
        rows = official_fold(parts, fold)
        for name in _METHODS:
            unit = work.unit(f"fold {fold + 1} / {name}", partial(_one, name, rows, alphas))
            found[name].append(unit)
    table = [_row(name, found) for name in _METHODS]
    return work.report(
        title="Document retrieval on OHSUMED, linear learners",
        protocol=(
            "LETOR 2.0, 25 features scaled to 0..1 inside each query, labels 0 and 1 joined; three parts for "
            "training, one for the choice of λ from 2^-15 .. 2^15, one for the test; "
            f"{count(folds, 'official fold')}. Disagreement error (a tied prediction counts half), mean over "
            "the queries of a test part that have a preference, then over folds; p: Wilcoxon over all test "
            "queries, against RankRLS, not corrected for their number. The publication does not say whether "
            "tied pairs of a query were counted, whether RLS had an intercept, nor the loss of RankSVM: all "
            "forms are shown, the library's default is named like the published row. RankBoost is not part "
            "of the library."
        ),
        published=(
            "RankRLS 0.340, all pairs 0.346, RLS 0.346, RankSVM 0.336, RankBoost 0.351 (Pahikkala et al., "
            "Machine Learning 75, 2009, Table 3). Its TREC 2003 and 2004 collections are not available."
        ),
        columns=("method", "published", "error", "spread over folds", "p", "log2 λ"),
        rows=table,
        findings=_findings(table),
    )


def _one(
    name: str, rows: tuple[RankingPart, RankingPart, RankingPart], alphas: Sequence[float]
) -> dict[str, Any]:
    """Choose alpha on the validation part; errors of the test part, whole and by query."""
    train, validation, test = rows
    _, learner, inside = _METHODS[name]
    options = {"qid": train.qid} if inside else {}
    best_error, best = np.inf, None
    for alpha in alphas:
        with warnings.catch_warnings():
            # An extreme alpha that is not solved to the last digit is not the one that is chosen.
            warnings.simplefilter("ignore", ConvergenceWarning)
            model = learner(alpha).fit(train.X, train.y, **options)
        error = disagreement_error(validation.y, model.predict(validation.X), validation.qid)
        # Of equally good ones the strongest regularisation.
        if error <= best_error:
            best_error, best = error, model
    assert best is not None
    scores = best.predict(test.X)
    by_query = disagreement_error(test.y, scores, test.qid, per_query=True)
    return {
        "error": disagreement_error(test.y, scores, test.qid),
        "alpha": best.alpha,
        "queries": [float(value) for value in by_query.values if np.isfinite(value)],
    }


def _row(name: str, found: dict[str, list[dict[str, Any]]]) -> dict[str, Any]:
    units = found[name]
    first = next(iter(found))
    errors = [unit["error"] for unit in units]
    pvalue = None if name == first else signed_rank_test(_by_query(found[first]), _by_query(units)).pvalue
    return {
        "method": name,
        "published": _METHODS[name][0],
        "error": float(np.mean(errors)),
        "spread over folds": spread(errors),
        "p": pvalue,
        "log2 λ": ", ".join(f"{np.log2(unit['alpha']):.0f}" for unit in units),
    }


def _by_query(units: list[dict[str, Any]]) -> list[float]:
    return [value for unit in units for value in unit["queries"]]


def _findings(table: list[dict[str, Any]]) -> list[str]:
    said = []
    for row in table:
        if row["published"] is not None:
            difference = row["error"] - row["published"]
            side = "below" if difference < 0 else "above"
            said.append(f"{row['method']}: {abs(difference):.3f} {side} the published error")
    significant = [row["method"] for row in table if row["p"] is not None and row["p"] < 0.05]
    n_tests = len(table) - 1
    said.append(
        f"p < 0.05 against RankRLS in {len(significant)} of {n_tests} tests"
        + (f" ({'; '.join(significant)})" if significant else "")
        + f"; by Bonferroni the limit is {0.05 / n_tests:.3f}"
    )
    return said
