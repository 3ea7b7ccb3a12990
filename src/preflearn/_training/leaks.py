"""Columns that order the rows so well alone that they may give the target away: asked about, never celebrated."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from scipy import sparse as sp

from ..comparisons import encode_queries
from ..metrics.single_columns import SingleColumn, leak_question, order_alone, suspicious
from ..report.contents import TrainingReport
from ..report.leaderboard import BEST_FEATURE
from ..report.look import columns_alone
from .preference import PreferenceProblem
from .problem import BASELINE_FEATURES, Problem
from .ranking import RankingProblem

# More than a few make a list that nobody reads.
_MOST = 3
_TRIED_ROWS = 50_000


def single_columns(problem: Problem) -> list[SingleColumn]:
    """How well each input column orders the rows, or the preferences, alone; none where there are too many."""
    too_many = problem.X.shape[1] > BASELINE_FEATURES or sp.issparse(problem.X)
    if isinstance(problem, PreferenceProblem):
        return [] if too_many else _of_preferences(problem)
    assert isinstance(problem, RankingProblem)
    data = problem.data
    if data.columns is not None and data.encoder is not None:
        return columns_alone(data.columns, problem.y, data.qid, list(data.encoder.encoders_))
    if too_many:
        return []
    groups = encode_queries(data.qid, len(data))
    rows = groups.sample(_TRIED_ROWS)
    part = encode_queries(groups.codes[rows], rows.size)
    return [
        order_alone(name, data.X[rows, k], problem.y[rows], part) for k, name in enumerate(data.feature_names)
    ]


def _of_preferences(problem: PreferenceProblem) -> list[SingleColumn]:
    """Features of items; those of texts mean nothing alone."""
    if problem.lengths is not None:
        return []
    pairs, X = problem.data.pairs, np.asarray(problem.X)
    up = 0.5 + 0.5 * np.sign(X[pairs[:, 0]] - X[pairs[:, 1]]).mean(axis=0)
    return [
        SingleColumn(name, float(max(share, 1 - share)), bool(share >= 0.5))
        for name, share in zip(problem.feature_names, up)
    ]


def with_findings(report: TrainingReport, columns: Sequence[SingleColumn]) -> TrainingReport:
    """The report with the best single feature named wherever it is shown, and with questions about leaks first."""
    if not columns:
        return report
    best = str(max(columns, key=lambda one: one.share))
    leaks = leak_notes(columns, report.estimate.value)

    def named(rows: Sequence[Any]) -> tuple[Any, ...]:
        return tuple(replace(row, detail=best) if row.name == BEST_FEATURE else row for row in rows)

    board = report.leaderboard
    steps = report.next_steps
    if leaks:
        steps = tuple(step for step in steps if not step.startswith("Look at the queries"))
    return replace(
        report,
        baselines=named(report.baselines),
        leaderboard=None if board is None else replace(board, rows=named(board.rows)),
        leaks=tuple(leaks),
        notes=(*leaks, *report.notes),
        next_steps=steps,
    )


def leak_notes(columns: Sequence[SingleColumn], model_share: float) -> list[str]:
    """A question for each suspicious column, the best first."""
    found = suspicious(columns, model_share)
    notes = [
        leak_question(one, model_share, option=f"--drop {shlex.quote(one.name)} leaves it out.")
        for one in found[:_MOST]
    ]
    if len(found) > _MOST:
        more = ", ".join(f"`{one.name}`" for one in found[_MOST : _MOST + 5])
        notes.append(f"So do {more}{' and others' if len(found) > _MOST + 5 else ''}.")
    return notes
