r"""Ranking the parses of a sentence: Table 1 of the sparse RankRLS article on its own task.

The parses of a sentence are to be ordered by how right they are. Basic learners get r parses, five of each training
sentence; sparse learners expand f in the same r parses and learn from all 20 of each sentence. On the same parses:
what it costs to leave held-out basis vectors in a reduced set (Figure 1 of the article on reduced-set
cross-validation), and the times of fast and plain cross-validation (its Tables 1 and 2).

The features are chosen by ten-fold cross-validation of basic RankRLS over the training sentences of a draw, and are the
same for all learners of that draw; each learner chooses its own λ by ten-fold cross-validation over the same sentences.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from functools import cache, lru_cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from preflearn import RLSCV, RankRLSCV
from preflearn.comparisons import encode_queries
from preflearn.graphs import AllPathsFeatures, gram
from preflearn.metrics import disagreement_error
from preflearn.model_selection import QueryKFold, signed_rank_test
from preflearn_papers.parses import LinkFeatures, ParseRanking, Sentence, as_ranking, read_linkages

from .data import find_file, find_folder
from .nystrom_cv import (
    TIME_COLUMNS,
    TIME_TITLE,
    basis_of_groups,
    draw_errors,
    error_findings,
    error_rows,
    folds_of_groups,
    time_findings,
    time_rows,
)
from .report import ExperimentReport, ReportTable
from .resume import Resume, settings_of
from .tables import count, order_beside_published, spread

ALPHAS = tuple(2.0**k for k in range(-14, -1, 2))
ERROR_ALPHAS = tuple(10.0**k for k in range(-9, 10))
FEATURES = ("all paths", "label pairs", "links in context")
_BEST = "sparse RankRLS"
_PUBLISHED = {"RLS": 0.27, "sparse RLS": 0.24, "RankRLS": 0.23, _BEST: 0.21}
_PARSER = {"parser, link length": "length", "parser, disjunct cost": "disjunct"}
_N_FOLDS = 10


class Draw(NamedTuple):
    """Training parses, which of them are basis vectors, test parses, and the number of each test sentence."""

    train: ParseRanking
    basis: np.ndarray
    test: ParseRanking
    tested: np.ndarray


def run(
    *, data: str | Path | None = None, trials: int = 5, n_train: int = 500, per_sentence: int = 5,
    more: int = 15, features: Sequence[str] = FEATURES, alphas: Sequence[float] = ALPHAS,
    error_alphas: Sequence[float] = ERROR_ALPHAS, time_basis: Sequence[int] = (1, 2), timed_folds: int = 3,
    seed: int = 0, verbose: int = 0, resume: str | Path | None = None,
) -> ExperimentReport:  # fmt: skip
    """RLS and RankRLS on r parses, and with r basis vectors on four times as many.

    Parameters
    ----------
    trials : int, default=5
        Draws of the training sentences and of their basis vectors.
    n_train : int, default=500
        Sentences to train on and to choose by; the others are tested.
    per_sentence : int, default=5
        Parses of a sentence for the basic learners, and basis vectors of a sentence for the sparse ones.
    more : int, default=15
        Further parses of a sentence for the sparse learners.
    features : sequence of {"all paths", "label pairs", "links in context"}
        To choose from.
    alphas : sequence of float
        Candidates for λ.
    error_alphas : sequence of float
        Of the figure; empty to leave it out.
    time_basis : sequence of int, default=(1, 2)
        Basis vectors of a sentence in the comparison of times; empty to leave it out.
    timed_folds : int, default=3
        Folds that are refitted and timed; their mean stands for all.
    data, seed, verbose, resume : as in every experiment (`preflearn_experiments.registry`)
    """
    unknown = [name for name in features if name not in FEATURES]
    if unknown or not features:
        raise ValueError(f"features are some of {', '.join(FEATURES)}: found {', '.join(unknown) or 'none'}.")
    settings = settings_of(
        trials=trials, n_train=n_train, per_sentence=per_sentence, more=more, features=features,
        alphas=alphas, error_alphas=error_alphas, time_basis=time_basis, timed_folds=timed_folds, seed=seed,
    )  # fmt: skip
    n_units = trials * (len(features) + len(_PUBLISHED) - 1) + bool(error_alphas) + len(time_basis)
    counts = ("trials", "time_basis")
    work = Resume(resume, "parses", settings, counts=counts, total=n_units, verbose=verbose)
    sentences = read_sentences(data)
    if not 2 <= n_train < len(sentences):
        raise ValueError(
            f"n_train must be 2 to {len(sentences) - 1}, sentences are left for the test: found {n_train}."
        )
    draws = [draw_parses(sentences, n_train, per_sentence, more, [seed, trial]) for trial in range(trials)]
    tried, found = zip(
        *(_learn(work, number, draw, features, alphas, seed) for number, draw in enumerate(draws)),
        strict=True,
    )
    figure, times = _reduced_sets(work, draws[0], found[0]["chosen"]["features"], settings)
    rows = [_row(method, found, draws) for method in (*_PARSER, *_PUBLISHED)]
    n_basis, n_rows = (np.mean([size(draw) for draw in draws]) for size in (n_basis_of, _n_rows))
    return work.report(
        title="Ranking the parses of a sentence",
        protocol=(
            f"{len(sentences)} sentences of BioInfer with at least two parses each, {count(trials, 'draw')} of "
            f"{n_train} to train on; the others are tested. Basic learners: {per_sentence} random parses of each "
            f"training sentence, {n_basis:.0f} in all; sparse learners: these as basis vectors, and up to {more} more "
            f"parses of each sentence as other inputs, {n_rows:.0f} in all. Features, the same for all learners of a "
            "draw, by ten-fold cross-validation of basic RankRLS over the training sentences; λ of each learner by "
            "its own. Disagreement error inside a sentence, mean over test sentences, then over draws. p: Wilcoxon "
            "over sentences (errors averaged over the draws that tested a sentence) against sparse RankRLS; last "
            "column: draws in which the test on that draw alone gives p < 0.05. The published parses are not "
            "available: these were made anew by link-grammar 5.12 and are scored by agreement with the output of "
            "another parser, not with links made by hand, so that the order of the four can be compared, and the "
            "errors only loosely."
        ),
        published=(
            "RLS 0.27, sparse RLS 0.24, RankRLS 0.23, sparse RankRLS 0.21 with a graph kernel, sparse RankRLS "
            "significantly better than the others, 500 sentences to train on and 600 tested (Tsivtsivadze et al., SCAI "
            "2008, Table 1). Basis vectors left in and taken out, and times: Airola, Pahikkala and Salakoski, Neural "
            "Processing Letters 33, 2011, Figure 1 and Tables 1 and 2, on such parses."
        ),
        columns=("method", "published", "error", "spread over draws", "λ", "p", "draws at 0.05"),
        rows=rows,
        more=[_feature_table(tried, found), *figure, *times],
        findings=[
            *_findings(rows),
            *(line for table in figure for line in error_findings(table.rows)),
            *time_findings(times),
        ],
        draw=_plot if figure else None,
    )


def read_sentences(data: str | Path | None) -> list[Sentence]:
    folder = find_folder(data, "parse_ranking", "parses")
    return read_linkages(find_file(folder, "bioinfer_linkages.jsonl.xz", "parses"))


def draw_parses(
    sentences: list[Sentence], n_train: int, per_sentence: int, more: int, seed: list[int]
) -> Draw:
    random = np.random.default_rng(seed)
    order = random.permutation(len(sentences))
    tested = np.sort(order[n_train:])
    train = as_ranking(sentences[number] for number in np.sort(order[:n_train]))
    rows, in_basis = [], []
    for query in range(n_train):
        kept = random.permutation(np.flatnonzero(train.qid == query))[: per_sentence + more]
        rows.append(kept)
        in_basis.append(np.arange(kept.shape[0]) < per_sentence)
    kept = np.concatenate(rows)
    train = ParseRanking([train.linkages[row] for row in kept], train.y[kept], train.qid[kept])
    test = as_ranking(sentences[number] for number in tested)
    return Draw(train, np.flatnonzero(np.concatenate(in_basis)), test, tested)


def _learn(
    work: Resume, number: int, draw: Draw, features: Sequence[str], alphas: Sequence[float], seed: int
) -> tuple[dict[str, Any], dict[str, Any]]:
    """What was found on one draw: by basic RankRLS with each kind of features, and by every method with the chosen."""
    rows = Rows(draw)
    basic = {}
    for kind in features:
        one = partial(_one, "RankRLS", draw, rows, kind, alphas, seed)
        basic[kind] = work.unit(f"draw {number + 1} / RankRLS, {kind}", one)
    chosen = min(basic, key=lambda kind: basic[kind]["held out"])
    found: dict[str, Any] = {"chosen": {"features": chosen}, "RankRLS": basic[chosen]}
    for method in _PUBLISHED:
        if method != "RankRLS":
            one = partial(_one, method, draw, rows, chosen, alphas, seed)
            found[method] = work.unit(f"draw {number + 1} / {method}", one)
    for method, cost in _PARSER.items():
        scores = np.array([-getattr(parse, cost) for parse in draw.test.linkages])
        found[method] = {"errors": errors_by_sentence(draw, scores)}
    return basic, found


def n_basis_of(draw: Draw) -> int:
    return draw.basis.shape[0]


def _n_rows(draw: Draw) -> int:
    return draw.train.y.shape[0]


def _feature_map(kind: str) -> Any:
    if kind == "all paths":
        return AllPathsFeatures("sum", min_weight=1e-3, normalize=True)
    return AllPathsFeatures("sum", max_length=2, normalize=True)


class Rows:
    """Sparse rows of a draw's parses and their kernel matrix, made when they are asked for; the last kind is kept."""

    def __init__(self, draw: Draw):
        self.draw = draw
        self.features = lru_cache(1)(self._features)
        self.kernel = lru_cache(1)(self._kernel)

    def _features(self, kind: str) -> tuple[Any, Any]:
        """Of the training and of the test parses; what features there are is learned from the former."""
        parts: list[list[Any]] = [self.draw.train.linkages, self.draw.test.linkages]
        if kind == "links in context":
            features: Any = LinkFeatures("context")
        else:
            parts = [[parse.graph() for parse in part] for part in parts]
            features = _feature_map(kind)
        return features.fit_transform(parts[0]), features.transform(parts[1])

    def _kernel(self, kind: str) -> np.ndarray:
        """Of all training parses: one matrix serves every fold of both sparse learners."""
        return gram(self.features(kind)[0])


def _one(
    method: str, draw: Draw, rows: Rows, kind: str, alphas: Sequence[float], seed: int
) -> dict[str, Any]:
    """Train with λ chosen by ten folds of sentences, and test."""
    X, X_test = rows.features(kind)
    y, qid = draw.train.y, draw.train.qid
    options: dict[str, Any] = {
        "kernel": "precomputed",
        "cv": QueryKFold(_N_FOLDS, shuffle=True, random_state=seed),
        "scoring": "concordance",
    }
    if method.startswith("sparse"):
        K = rows.kernel(kind)
        options["basis"] = draw.basis
    else:
        X, y, qid = X[draw.basis], y[draw.basis], qid[draw.basis]
        K = gram(X)
    if method.endswith("RankRLS"):
        model: Any = RankRLSCV(alphas, weighting="query", **options)
    else:
        model = RLSCV(alphas, **options)
    with warnings.catch_warnings():
        # A choice at the end of this grid.
        warnings.simplefilter("ignore", UserWarning)
        model.fit(K, y, qid=qid)
    # f(x) = Σ a_i <x, x_i> is one linear function; a constant does not change an order.
    weights = X[model.basis_indices_].T @ model.dual_coef_
    return {
        "alpha": model.alpha_,
        "held out": 1 - model.best_score_,
        "errors": errors_by_sentence(draw, X_test @ weights),
    }


def errors_by_sentence(draw: Draw, scores: np.ndarray) -> list[float | None]:
    """Of each test sentence; None where all its parses are as good."""
    values = disagreement_error(draw.test.y, scores, draw.test.qid, per_query=True).values
    return [float(value) if np.isfinite(value) else None for value in values]


def _reduced_sets(
    work: Resume, draw: Draw, kind: str, settings: dict[str, Any]
) -> tuple[list[ReportTable], list[ReportTable]]:
    """Basis vectors left in and taken out, and times, on the training parses of one draw."""
    seed, timed_folds = settings["seed"], settings["timed_folds"]
    prepared = cache(lambda: Rows(draw).features(kind)[0])
    y = draw.train.y
    groups = encode_queries(draw.train.qid, y.shape[0])
    kernel = {"kernel": "linear"}
    figure, times = [], []
    if settings["error_alphas"]:
        basis = basis_of_groups(groups, 2, np.random.default_rng([seed, 2]))
        folds = folds_of_groups(groups, _N_FOLDS, seed)

        def errors() -> list[dict[str, Any]]:
            return error_rows(prepared(), y, basis, folds, kernel, settings["error_alphas"])

        title = (
            f"Mean squared error of RLS by ten-fold cross-validation, {basis.shape[0]} basis vectors (2 a sentence), "
            "those of held-out sentences left in or taken out"
        )
        found = work.unit("basis vectors left in and taken out", errors)
        figure = [ReportTable(title, ("alpha", "left in", "taken out", "ratio"), found)]
    rows: list[dict[str, Any]] = []
    for per_group in settings["time_basis"]:

        def timed(per_group: int = per_group) -> list[dict[str, Any]]:
            return time_rows(prepared(), y, groups, per_group, timed_folds, kernel, seed)

        rows += work.unit(f"times, {count(per_group, 'basis vector')} a sentence", timed)
    if rows:
        times = [ReportTable(f"{TIME_TITLE}, processor seconds", TIME_COLUMNS, rows)]
    return figure, times


def mean_by_sentence(
    errors: Sequence[list[float | None]], tested: Sequence[Sequence[int]]
) -> dict[int, float]:
    """Error of each sentence, mean over the draws that tested it; ``tested`` are the sentences of each draw."""
    values: dict[int, list[float]] = {}
    for of_draw, numbers in zip(errors, tested, strict=True):
        for number, error in zip(numbers, of_draw, strict=True):
            if error is not None:
                values.setdefault(number, []).append(error)
    return {number: float(np.mean(several)) for number, several in values.items()}


def _row(method: str, found: Sequence[dict[str, Any]], draws: list[Draw]) -> dict[str, Any]:
    of_draws = [known(one[method]["errors"]) for one in found]
    p, at_level = None, None
    if method != _BEST:
        tested = [draw.tested.tolist() for draw in draws]
        ours, best = (
            mean_by_sentence([one[name]["errors"] for one in found], tested) for name in (method, _BEST)
        )
        p = signed_rank_test(list(ours.values()), list(best.values())).pvalue
        tests = [signed_rank_test(known(one[method]["errors"]), known(one[_BEST]["errors"])) for one in found]
        at_level = f"{sum(test.pvalue < 0.05 for test in tests)} of {len(tests)}"
    alphas = sorted({one[method]["alpha"] for one in found if "alpha" in one[method]})
    means = [float(np.mean(errors)) for errors in of_draws]
    return {
        "method": method,
        "published": _PUBLISHED.get(method),
        "error": float(np.mean(means)),
        "spread over draws": spread(means),
        "λ": ", ".join(f"{alpha:g}" for alpha in alphas) or None,
        "p": p,
        "draws at 0.05": at_level,
    }


def known(errors: list[float | None]) -> list[float]:
    return [error for error in errors if error is not None]


def _feature_table(tried: Sequence[dict[str, Any]], found: Sequence[dict[str, Any]]) -> ReportTable:
    """Held-out and test error of basic RankRLS with each kind of features."""
    rows = []
    for kind in tried[0]:
        test = [float(np.mean(known(one[kind]["errors"]))) for one in tried]
        chosen = sum(one["chosen"]["features"] == kind for one in found)
        rows.append(
            {
                "features": kind,
                "ten-fold error": float(np.mean([one[kind]["held out"] for one in tried])),
                "test error": float(np.mean(test)),
                "chosen": f"{chosen} of {len(found)}",
            }
        )
    return ReportTable("Features of basic RankRLS, means over draws", tuple(rows[0]), rows)


def _findings(rows: list[dict[str, Any]]) -> list[str]:
    said = order_beside_published((row for row in rows if row["method"] in _PUBLISHED), _PUBLISHED)
    best = next(row for row in rows if row["method"] == _BEST)
    worse = [row for row in rows if row["error"] > best["error"]]
    behind = [row["method"] for row in worse if row["p"] < 0.05]
    said.append(f"significantly behind {_BEST} at 0.05: " + (", ".join(behind) or "none"))
    ahead = [row["method"] for row in rows if row not in worse and row is not best and row["p"] < 0.05]
    said.append(f"significantly ahead of {_BEST} at 0.05: " + (", ".join(ahead) or "none"))
    return said


def _plot(report: ExperimentReport, axes: Any = None) -> Any:
    """Left in and taken out; beside it the times, where they were measured."""
    errors = next(table for table in report.more if "left in" in table.columns)
    times = [table for table in report.more if "fast, s" in table.columns]
    if axes is None:
        import matplotlib.pyplot as plt

        n = 1 + len(times)
        _, axes = plt.subplots(1, n, figsize=(5.2 * n, 3.4), layout="constrained", squeeze=False)
        axes = axes[0]
    draw_errors(errors.rows, axes[0])
    for table, ax in zip(times, axes[1:], strict=True):
        for way, colour in (("leave-group-out", "C0"), ("ten-fold", "C1")):
            of_way = [row for row in table.rows if row["folds"] == way]
            basis = [row["basis"] for row in of_way]
            name = way.replace("group", "sentence")
            for how, key, line in (("refitting", "refitting, s", "o--"), ("fast", "fast, s", "o-")):
                seconds = [row[key] for row in of_way]
                ax.semilogy(basis, seconds, line, ms=3, color=colour, label=f"{name}, {how}")
        ax.set_xlabel("basis vectors")
        ax.set_ylabel("processor seconds")
        ax.legend()
    return axes[0].figure
