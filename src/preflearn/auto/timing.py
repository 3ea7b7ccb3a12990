"""How long candidates will take, for a time limit: from counts of their operations, and from what others have taken."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ..numerics.threads import n_threads
from . import boosting, kernels
from .boosting import boosted_trees
from .candidates import Candidate, linear, random_trees, single_feature
from .kernels import cost_of_race, learned_kernel
from .tasks import Member, Task

# Operations in a second of one processor, measured on 2,000 to 30,000 rows of 40 to 100 features: products of matrices
# are many times as fast as what looks up its operands. A machine that is slower shows it by the first candidates.
_RATES: dict[Any, float] = {
    linear: 5e9,
    single_feature: 5e9,
    learned_kernel: 1.8e10,
    boosted_trees: 8e8,
    random_trees: 8e8,
}
# Processors that the folds of a candidate keep busy, at most.
_MOST_THREADS = 5
# Weight of the estimate, in seconds of measured time.
_TRUST = 0.3


class Work(NamedTuple):
    """Seconds that a candidate is expected to take on an idle machine.

    Attributes
    ----------
    race : float
        The rounds of all rivals, where these have not been run.
    rest : float
        What follows unless it is behind in the race.
    """

    race: float
    rest: float


class Pace:
    """How long candidates take, relative to what was expected of those before.

    Parameters
    ----------
    task : Task
    n_features : int
        Columns of one part of a view.
    """

    def __init__(self, task: Task, n_features: int):
        self._task, self._n_features = task, n_features
        jobs = n_threads() if task.n_jobs is None or task.n_jobs < 1 else min(task.n_jobs, n_threads())
        self._n_threads = min(jobs, _MOST_THREADS)
        self._expected = self._taken = 0.0
        self._has_raced = False

    def work(self, candidate: Candidate) -> Work:
        """What lies before a candidate."""
        task, race = self._task, 0.0
        if candidate.train is learned_kernel and candidate.view in task.rivals and not self._has_raced:
            race = cost_of_race(task.n_rows, [self._n_features * len(view) for view in task.rivals])
        rate = _RATES[candidate.train] * self._n_threads
        return Work(race / rate, candidate.cost(task.n_rows, self._columns(candidate)) / rate)

    def seconds(self, work: Work) -> float:
        """About how long this will take."""
        return sum(work) * (self._taken + _TRUST) / (self._expected + _TRUST)

    def note(self, candidate: Candidate, work: Work, member: Member | None, seconds: float) -> None:
        """A candidate has taken this long, or, where it was behind and there is no member, the race has.

        What counts is the work that was done: trees and rounds that end early say nothing about how fast others are.
        """
        self._taken += seconds
        self._has_raced |= work.race > 0
        self._expected += work.race + (0.0 if member is None else self._done(candidate, work, member))

    def _done(self, candidate: Candidate, work: Work, member: Member) -> float:
        """The seconds of `Work.rest` for the rounds or trees that it came to."""
        settings = member.extend.settings if member.extend is not None else {}
        rows, columns = self._task.n_rows, self._columns(candidate)
        if "rounds" in settings:
            operations = kernels.cost(rows, columns, int(np.max(settings["rounds"])))
        elif "stage" in settings:
            operations = boosting.cost(rows, columns, int(settings["stage"]))
        else:
            return work.rest
        return operations / (_RATES[candidate.train] * self._n_threads)

    def _columns(self, candidate: Candidate) -> int:
        return self._n_features * len(candidate.view)
