"""Trees that correct a combination whose members have learned from many rows.

Members that have learned from many more rows than they can fit by heart leave on the training rows what they leave on
others, and trees can learn from that: a smooth kernel leaves jumps, and weights that are drawn towards equal ones leave
a little of everything. With few rows it is not so. There what is left on training rows is noise, and what is left on
held-out rows tells about the rows that the others were held out with.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ..comparisons import Groups
from .boosting import boosted_trees, correct_on_everything
from .combination import centred, clearly_positive
from .everything import Everything
from .extension import described_on
from .kernels import learned_kernel
from .prediction import WeightedMembers
from .resuming import Run
from .tasks import Extension, Member
from .trial import LEAST_SHARE, Attempt, Trial

NAME = "trees that correct the others"


def correct(
    trial: Trial, everything: Everything, rows: np.ndarray, y: np.ndarray, queries: Groups, run: Run
) -> Trial:
    """The trial with such trees, unless the fold that stays out clearly loses by them.

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
    trees = next((one for one in trial.attempts if one.candidate.train is boosted_trees), None)
    has_kernel = any(one.candidate.train is learned_kernel for one, _ in trial.kept)
    if trees is None or trees.member is None or trees.member.extend is None or not has_kernel:
        return trial
    scores = WeightedMembers(
        [member.model for _, member in trial.kept],
        [one.candidate.view for one, _ in trial.kept],
        np.array([one.factor for one, _ in trial.kept]),
    )
    views, view = everything.features.views(rows, queries), trees.candidate.view
    held_out = scores(views)
    slope = _slope(held_out, y, queries)
    if not slope > 0:
        return trial
    settings = {"scores": scores, "held_out": held_out, "slope": slope}
    extension = Extension(correct_on_everything, trees.member.extend.task, view, settings)
    model, added = run.extended(NAME, extension, everything)
    share = _share(model.predict(views[view]), slope * held_out, queries)
    corrected, by = trial.held_out + added / slope, trial.folds.choosing
    if clearly_positive(by.of(trial.held_out) - by.of(corrected)) or share < LEAST_SHARE:
        return trial
    detail = described_on(model, everything.n_learned())
    member = Member(model, corrected, corrected, model.feature_importances_, detail)
    attempts = [replace(one, share=(1 - share) * one.share) for one in trial.attempts]
    attempts.append(Attempt(replace(trees.candidate, name=NAME), member, share=share, factor=1 / slope))
    return replace(trial, attempts=attempts, held_out=corrected)


def _slope(scores: np.ndarray, y: np.ndarray, queries: Groups) -> float:
    """The factor that takes scores to the targets inside queries, by least squares; 0 where scores are all equal."""
    f, t = centred(np.column_stack([scores, y]), queries).T
    size = float(f @ f)
    return float(f @ t) / size if size > 0 else 0.0


def _share(added: np.ndarray, others: np.ndarray, queries: Groups) -> float:
    """The spread of what is added, relative to that of all parts."""
    first, second = centred(np.column_stack([added, others]), queries).std(axis=0)
    return float(first / (first + second)) if first > 0 else 0.0


__all__ = ["NAME", "correct"]
