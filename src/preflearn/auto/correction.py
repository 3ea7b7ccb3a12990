"""Boosted trees of a combination, corrected: their leaves are fitted again to the residuals of the combination.

Members that have learned from many more rows than they can memorise have the same residuals on training rows as on new
ones, and these can be learned: a smooth kernel leaves jumps, and weights that are shrunk towards equal ones leave a
little of everything. The trees stay as they are, only the values of their leaves change. Trees that were grown on
residuals would follow their noise, and where they split would depend on how the kernels were rounded, so that the same
rows in other chunks could give another model.

With few rows, residuals on training rows are noise, and those on held-out rows reveal the targets of the rows that were
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


def correct(trial: Trial, everything: Everything, y: np.ndarray, queries: Groups, run: Run) -> Trial:
    """The trial with corrected trees, unless the fold that stays out clearly loses by it.

    Parameters
    ----------
    trial : Trial
        Of members that were trained on everything.
    everything : Everything
    y : ndarray of shape (k,)
        Targets of the fold that stays out.
    queries : Groups
    run : Run
        Remembers what has been trained.
    """
    by_kind = {one.candidate.train: (one, member) for one, member in trial.kept}
    if boosted_trees not in by_kind or learned_kernel not in by_kind or np.count_nonzero(trial.scored) < 2:
        return trial
    trees, member = by_kind[boosted_trees]
    scores = WeightedMembers(
        [other.model for _, other in trial.kept],
        [one.candidate.view for one, _ in trial.kept],
        np.array([one.factor for one, _ in trial.kept]),
    )
    # Not those of `scores`: members that were not trained on everything have learned from this fold as well.
    held_out = np.sum([one.factor * other.held_out for one, other in trial.kept], axis=0)
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
    better = replace(trees, member=replace(member, model=model, detail=f"{member.detail}; then corrected"))
    attempts = [better if one is trees else one for one in trial.attempts]
    return replace(trial, attempts=attempts, held_out=corrected)


def _slope(scores: np.ndarray, y: np.ndarray, queries: Groups) -> float:
    """The factor that takes scores to the targets inside queries, by least squares; 0 where scores are all equal."""
    f, t = centred(np.column_stack([scores, y]), queries).T
    size = float(f @ f)
    return float(f @ t) / size if size > 0 else 0.0


__all__ = ["NAME", "correct"]
