"""How long candidates will take, for a time limit: from counts of their operations, and from what others have taken."""

from __future__ import annotations

from typing import Any, NamedTuple

from .._engine.loops.threads import n_threads
from .boosting import boosted_trees
from .candidates import Candidate, linear, random_trees, single_feature
from .kernels import cost_of_race, learned_kernel
from .tasks import Task

# Operations in a second of one processor, measured on 2,000 to 30,000 rows of 10 to 40 features: products of matrices
# are many times as fast as what looks up its operands. A machine that is slower shows it by the first candidates.
_RATES: dict[Any, float] = {
    linear: 2e9,
    single_feature: 2e9,
    learned_kernel: 2.5e10,
    boosted_trees: 7e8,
    random_trees: 5e8,
}
# Processors that the folds of a candidate keep busy, at most.
_MOST_THREADS = 5
# Weight of the estimate, in seconds of measured time.
_TRUST = 1.0


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
        task, rate = self._task, _RATES[candidate.train] * self._n_threads
        race = 0.0
        if candidate.train is learned_kernel and candidate.view in task.rivals and not self._has_raced:
            race = cost_of_race(task.n_rows, [self._n_features * len(view) for view in task.rivals])
        return Work(race / rate, candidate.cost(task.n_rows, self._n_features * len(candidate.view)) / rate)

    def seconds(self, work: Work) -> float:
        """About how long this will take."""
        return sum(work) * (self._taken + _TRUST) / (self._expected + _TRUST)

    def note(self, work: Work, seconds: float, *, is_behind: bool) -> None:
        """A candidate has taken this long; one that was behind only the time of the race."""
        self._taken += seconds
        self._has_raced |= work.race > 0
        self._expected += work.race + (0.0 if is_behind else work.rest)
