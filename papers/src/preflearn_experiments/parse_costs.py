"""Three costs, with the pairs inside sentences or with all pairs: Table 2 of the RankRLS article, on other parses.

Relevant pairs are those of parses of the same sentence. Every learner sees the same parses with the same features and
chooses its own λ by ten-fold cross-validation over the training sentences, by the error inside sentences in every case.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from preflearn import RLS, RankRLS, RankSVM
from preflearn.metrics import disagreement_error
from preflearn.model_selection import HeldOut, QueryKFold, signed_rank_test

from .parses import Draw, Rows, draw_parses, errors_by_sentence, known, mean_by_sentence, read_sentences
from .report import ExperimentReport
from .resume import Resume, settings_of
from .tables import count, spread

ALPHAS = tuple(2.0**k for k in range(-10, 11, 4))
FEATURES = "links in context"
_COSTS = {"(20)": "unit", "(21)": "magnitude", "(22)": "relative"}
_LEARNERS: dict[str, Any] = {
    "RLS": RLS(kernel="precomputed"),
    **{f"RankRLS {name}": RankRLS(kernel="precomputed", cost=cost) for name, cost in _COSTS.items()},
    "RankSVM": RankSVM(kernel="precomputed"),
}
_PAIRS = ("relevant", "all")


def run(
    *, data: str | Path | None = None, trials: int = 2, n_train: int = 500, per_sentence: int = 5,
    alphas: Sequence[float] = ALPHAS, seed: int = 0, verbose: int = 0, resume: str | Path | None = None,
) -> ExperimentReport:  # fmt: skip
    """RankRLS with three costs, RankSVM and RLS on relevant pairs and on all.

    Parameters
    ----------
    trials : int, default=2
        Draws of the training sentences.
    n_train : int, default=500
        Sentences to train on and to choose by; the others are tested.
    per_sentence : int, default=5
        Parses of a sentence.
    alphas : sequence of float
        Candidates for λ.
    data, seed, verbose, resume : as in every experiment (`preflearn_experiments.registry`)
    """
    settings = settings_of(
        trials=trials, n_train=n_train, per_sentence=per_sentence, alphas=alphas, seed=seed
    )
    cases = [(name, pairs) for name in _LEARNERS for pairs in (_PAIRS if name != "RLS" else ("none",))]
    work = Resume(
        resume, "parse-costs", settings, counts=("trials",), total=trials * len(cases), verbose=verbose
    )
    sentences = read_sentences(data)
    if not 10 <= n_train < len(sentences):
        raise ValueError(
            f"n_train must be 10 to {len(sentences) - 1}, sentences are left for the test: found {n_train}."
        )
    errors: dict[tuple[str, str], list[list[float | None]]] = {case: [] for case in cases}
    chosen: dict[tuple[str, str], list[float]] = {case: [] for case in cases}
    n_rows, tested = 0, []
    for trial in range(trials):
        draw = draw_parses(sentences, n_train, per_sentence, 0, [seed, trial])
        rows = Rows(draw)
        n_rows += draw.train.y.shape[0]
        tested.append(draw.tested.tolist())
        for case in cases:
            one = partial(_one, *case, draw, rows, alphas, seed)
            found = work.unit(f"draw {trial + 1} / {' / '.join(case)}", one)
            errors[case].append(found["errors"])
            chosen[case].append(found["alpha"])
    table = [_row(case, errors, chosen[case], tested) for case in cases]
    return work.report(
        title="Three costs, relevant and all pairs, on parses",
        protocol=(
            f"{len(sentences)} sentences of BioInfer, {count(trials, 'draw')} of {n_train} to train on, "
            f"{per_sentence} random parses of each, {n_rows / trials:.0f} in all; the others are tested, with all "
            f"their parses. Features: {FEATURES}. λ of each learner by ten-fold cross-validation over sentences, from "
            f"2^{np.log2(min(alphas)):g} to 2^{np.log2(max(alphas)):g}. All learners weigh every pair alike; RankSVM "
            "with squared hinge. Disagreement error inside a sentence, mean over test sentences, then over draws. p: "
            "Wilcoxon over sentences (errors averaged over the draws that tested a sentence), all pairs against "
            "relevant ones, and RLS against RankRLS (21) with relevant pairs. The parses are not those of the article."
        ),
        published=(
            "RLS clearly worse than RankRLS with relevant pairs, all pairs significantly worse than relevant ones, "
            "RankSVM very close to RankRLS (Pahikkala et al., Machine Learning 75, 2009, Table 2; its figures are not "
            "legible in the copy at hand)."
        ),
        columns=("method", "pairs", "error", "spread over draws", "λ", "p"),
        rows=table,
        findings=_findings(table),
    )


def _one(name: str, pairs: str, draw: Draw, rows: Rows, alphas: Sequence[float], seed: int) -> dict[str, Any]:
    """λ by ten folds of sentences, and the errors of the test sentences."""
    X, X_test = rows.features(FEATURES)
    y, qid, K = draw.train.y, draw.train.qid, rows.kernel(FEATURES)
    learner = _LEARNERS[name]
    compared = {"qid": qid} if pairs == "relevant" else {}
    splitter = QueryKFold(10, shuffle=True, random_state=seed)
    folds = [test for _, test in splitter.split(K, y, qid=qid)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # a path that stops within its tolerance
        predictions = HeldOut(learner, K, y, **compared).predict(folds, alphas)
        held_out = [float(disagreement_error(y, one, qid)) for one in predictions]
        best = float(alphas[int(np.argmin(held_out))])
        model = learner.set_params(alpha=best).fit(K, y, **compared)
    weights = X[model.basis_indices_].T @ model.dual_coef_
    return {"alpha": best, "held out": min(held_out), "errors": errors_by_sentence(draw, X_test @ weights)}


def _row(
    case: tuple[str, str],
    errors: dict[tuple[str, str], list[list[float | None]]],
    chosen: list[float],
    tested: list[list[int]],
) -> dict[str, Any]:
    name, pairs = case
    means = [float(np.mean(known(one))) for one in errors[case]]
    other = {"none": ("RankRLS (21)", "relevant"), "all": (name, "relevant")}.get(pairs)
    p = None
    if other is not None:
        p = signed_rank_test(
            *(list(mean_by_sentence(errors[key], tested).values()) for key in (case, other))
        ).pvalue
    return {
        "method": name,
        "pairs": pairs,
        "error": float(np.mean(means)),
        "spread over draws": spread(means),
        "λ": ", ".join(f"{alpha:g}" for alpha in sorted(set(chosen))),
        "p": p,
    }


def _findings(rows: list[dict[str, Any]]) -> list[str]:
    error = {(row["method"], row["pairs"]): row["error"] for row in rows}
    said = []
    for row in rows:
        if row["p"] is not None:
            than = "RankRLS (21) with relevant pairs" if row["pairs"] == "none" else "with relevant pairs"
            key = ("RankRLS (21)", "relevant") if row["pairs"] == "none" else (row["method"], "relevant")
            lead = row["error"] - error[key]
            kind = row["method"] + ("" if row["pairs"] == "none" else " with all pairs")
            said.append(f"{kind}: {lead:+.3f} from {than}, p = {row['p']:.2g}")
    return said
