"""What do queries without scores add? RankRLS against transductive RankRLS as the number of scored queries shrinks.

A draw takes some queries; a few of them keep their scores, and the others are to be ranked. RankRLS learns from the
scored ones alone. Transductive RankRLS also sees the rows of the others, and fills in the scores that make the
cross-validated error over all queries small.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from preflearn import RankRLSCV, TransductiveRankRLS
from preflearn.metrics import disagreement_error
from preflearn.model_selection import signed_rank_test

from .data import RankingPart, find_file, find_folder, join_parts, ohsumed_parts, read_parts
from .report import ExperimentReport
from .resume import Resume, settings_of
from .tables import count, spread

ALPHAS = tuple(10.0**k for k in range(-4, 5))
FIDELITIES = tuple(10.0**k for k in range(-2, 3))


def run(
    *, data: str | Path | None = None, trials: int = 10, n_queries: int = 30, rows_per_query: int = 20,
    scored: Sequence[int] = (2, 4, 8, 16), alphas: Sequence[float] = ALPHAS,
    fidelities: Sequence[float] = FIDELITIES, seed: int = 0, verbose: int = 0,
    resume: str | Path | None = None,
) -> ExperimentReport:  # fmt: skip
    """RankRLS and transductive RankRLS on queries without scores.

    Parameters
    ----------
    trials : int, default=10
        Draws of queries.
    n_queries, rows_per_query : int
        Queries of a draw, and rows of each at most.
    scored : sequence of int
        How many of the queries keep their scores.
    alphas, fidelities : sequence of float
        Candidates for λ of both, and for γ of the transductive learner.
    data, seed, verbose, resume : as in every experiment (`preflearn_experiments.registry`)
    """
    if not all(2 <= number < n_queries for number in scored):
        raise ValueError(
            f"scored must be numbers from 2 to n_queries - 1 = {n_queries - 1}: found {list(scored)}."
        )
    settings = settings_of(
        trials=trials, n_queries=n_queries, rows_per_query=rows_per_query, scored=scored, alphas=alphas,
        fidelities=fidelities, seed=seed,
    )  # fmt: skip
    sources = {"OHSUMED": _ohsumed(data), "MSLR-WEB10K": _web(data)}
    total = len(sources) * trials * len(scored)
    work = Resume(resume, "transductive", settings, counts=("trials",), total=total, verbose=verbose)
    rows = []
    for name, source in sources.items():
        for n_scored in scored:
            units = []
            for trial in range(trials):
                draw = _draw(source, n_queries, rows_per_query, np.random.default_rng([seed, trial]))
                compute = partial(_one, draw, n_scored, alphas, fidelities)
                units.append(work.unit(f"{name}, {n_scored} scored queries, draw {trial + 1}", compute))
            rows.append(_row(name, n_scored, units))
    return work.report(
        title="Ranking queries that nobody has scored",
        protocol=(
            f"{count(trials, 'draw')} of {n_queries} queries with up to {rows_per_query} rows each, of which "
            "a few keep their scores and the others are ranked; features scaled to 0..1 inside each query, "
            "linear kernel, every query of the same weight. RankRLS: λ by leave-query-out on the scored "
            "queries. Transductive: λ and γ by hiding scored queries in turn (fewer than six: each by "
            "itself, else five folds). Disagreement error on the queries without scores, mean over draws; ±: "
            "standard deviation over draws of the difference; p: Wilcoxon over draws."
        ),
        published="no figures (Pahikkala et al., Transductive ranking, 2007, gives the algorithm): a first.",
        columns=("data", "scored queries", "RankRLS", "transductive", "difference", "±", "better in", "p"),
        rows=rows,
        findings=_findings(rows),
    )


def _ohsumed(data: str | Path | None) -> RankingPart:
    return join_parts(ohsumed_parts(data, "transductive"))


def _web(data: str | Path | None) -> RankingPart:
    folder = find_folder(data, "mslr_sample", "transductive")
    names = ("web10k_fold1_train_5k.txt.xz", "web10k_fold1_test_5k.txt.xz")
    return join_parts(read_parts([find_file(folder, name, "transductive") for name in names]))


def _draw(
    source: RankingPart, n_queries: int, rows_per_query: int, random: np.random.Generator
) -> RankingPart:
    """Queries in random order with some of their rows, every one of them with a preference."""
    chosen: list[np.ndarray] = []
    for query in random.permutation(np.unique(source.qid)):
        rows = random.permutation(np.flatnonzero(source.qid == query))[:rows_per_query]
        if np.unique(source.y[rows]).shape[0] > 1:
            chosen.append(rows)
        if len(chosen) == n_queries:
            break
    else:
        raise ValueError(
            f"{n_queries} queries with a preference were asked for, and there are {len(chosen)}: lower n_queries."
        )
    order = np.concatenate(chosen)
    number = np.repeat(np.arange(n_queries), [rows.shape[0] for rows in chosen])
    return RankingPart(source.X[order], source.y[order], number)


def _one(
    draw: RankingPart, n_scored: int, alphas: Sequence[float], fidelities: Sequence[float]
) -> dict[str, Any]:
    """Errors of both on the queries after the first ``n_scored``."""
    known = draw.qid < n_scored
    rest = ~known
    with warnings.catch_warnings():
        # A choice at the end of this grid.
        warnings.simplefilter("ignore", UserWarning)
        plain = RankRLSCV(alphas, cv="leave-query-out", weighting="query")
        plain.fit(draw.X[known], draw.y[known], qid=draw.qid[known])
        transductive = TransductiveRankRLS(weighting="query")
        transductive.select(
            draw.X,
            np.where(known, draw.y, np.nan),
            qid=draw.qid,
            alphas=alphas,
            fidelities=fidelities,
            hide="leave-query-out" if n_scored < 6 else 5,
        )
    scores = (plain.predict(draw.X[rest]), transductive.transduction_[rest])
    errors = [disagreement_error(draw.y[rest], values, draw.qid[rest]) for values in scores]
    return {
        "RankRLS": errors[0],
        "transductive": errors[1],
        "alphas": [plain.alpha_, transductive.alpha_],
        "fidelity": transductive.fidelity_,
    }


def _row(name: str, n_scored: int, units: list[dict[str, Any]]) -> dict[str, Any]:
    plain, transductive = (np.array([unit[key] for unit in units]) for key in ("RankRLS", "transductive"))
    return {
        "data": name,
        "scored queries": n_scored,
        "RankRLS": float(plain.mean()),
        "transductive": float(transductive.mean()),
        "difference": float((transductive - plain).mean()),
        "±": spread(transductive - plain),
        "better in": f"{int((transductive < plain).sum())} of {len(units)}",
        "p": signed_rank_test(transductive, plain).pvalue,
    }


def _findings(rows: list[dict[str, Any]]) -> list[str]:
    said = []
    for name in dict.fromkeys(row["data"] for row in rows):
        own = [row for row in rows if row["data"] == name]
        better = [
            str(row["scored queries"]) for row in own if row["difference"] < 0 and (row["p"] or 1) < 0.05
        ]
        worse = [
            str(row["scored queries"]) for row in own if row["difference"] > 0 and (row["p"] or 1) < 0.05
        ]
        if not better and not worse:
            said.append(f"{name}: no significant difference with any number of scored queries")
            continue
        said.append(
            f"{name}: significantly better with {', '.join(better) or 'no number of'} scored queries, "
            f"significantly worse with {', '.join(worse) or 'none'}"
        )
    return said
