"""Boosted trees of a combination, corrected: their leaves are fitted again to what the combination leaves.

Members that have learned from many more rows than they can fit by heart leave on the training rows what they leave on
others, and this can be learned: a smooth kernel leaves jumps, and weights that are drawn towards equal ones leave a
little of everything. The trees stay as they are and only the values of their leaves change. Trees that were grown on
what is left would follow its noise; and where they divide would depend on how the kernels were rounded, so that the
same rows in other chunks could give another model.

With few rows what is left on training rows is noise, and what is left on held-out rows tells about the rows that were
held out beside them.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ..comparisons import Groups
from .boosting import boosted_trees, refit_on_everything
from .combination import centred, clearly_positive
from .everything import Everything
from .kernels import learned_kernel
from .prediction import WeightedMembers
from .resuming import Run
from .tasks import Extension
from .trial import Trial

NAME = "boosted trees, corrected"


def correct(
    trial: Trial, everything: Everything, rows: np.ndarray, y: np.ndarray, queries: Groups, run: Run
) -> Trial:
    """The trial with corrected trees, unless the fold that stays out clearly loses by it.

    Parameters
    ----------
    trial : Trial
        Of members that were trained on everything.
    everything : Everything
    rows : ndarray of shape (k, n)
        Of the fold that stays out.
    y : ndarray of shape (k,)
        Their targets.
    queries : Groups
    run : Run
        Remembers what has been trained.
    """
    by_kind = {one.candidate.train: (one, member) for one, member in trial.kept}
    if boosted_trees not in by_kind or learned_kernel not in by_kind:
        return trial
    trees, member = by_kind[boosted_trees]
    scores = WeightedMembers(
        [member.model for _, member in trial.kept],
        [one.candidate.view for one, _ in trial.kept],
        np.array([one.factor for one, _ in trial.kept]),
    )
    held_out = scores(everything.features.views(rows, queries))
    slope = _slope(held_out, y, queries)
    if member.extend is None or not slope > 0:
        return trial
    settings = {"trees": member.model, "scores": scores, "held_out": held_out, "slope": slope}
    refit = Extension(refit_on_everything, member.extend.task, trees.candidate.view, settings)
    found, added = run.extended(NAME, refit, everything)
    corrected, by = trial.held_out + added / slope, trial.folds.choosing
    if clearly_positive(by.of(trial.held_out) - by.of(corrected)):
        return trial
    # What is added has the factor of the trees, and comes to 1 / slope of it.
    model = member.model.with_values(member.model.value_ + found.value_ / (slope * trees.factor))
    better = replace(trees, member=replace(member, model=model, detail=f"{member.detail}, corrected"))
    attempts = [better if one is trees else one for one in trial.attempts]
    return replace(trial, attempts=attempts, held_out=corrected)


def _slope(scores: np.ndarray, y: np.ndarray, queries: Groups) -> float:
    """The factor that takes scores to the targets inside queries, by least squares; 0 where scores are all equal."""
    f, t = centred(np.column_stack([scores, y]), queries).T
    size = float(f @ f)
    return float(f @ t) / size if size > 0 else 0.0


__all__ = ["NAME", "correct"]
