"""Training from files that do not fit into memory: `AutoRanker` on chunks, and what can be said about it honestly.

Candidates are chosen on a sample of whole queries, and the members of the model trained on all rows but a fifth of this
sample, which every figure comes from. The report is thus that of the sample: its columns, its queries, its baselines.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from ... import AutoRanker
from ...errors import InputError
from ...learners.streaming.sources import Source
from ...numerics.threads import n_threads
from ...tables.cells import FileFaultError
from ...tables.data import NumberedNames, RankingData, TableData
from ...tables.table import TableChunks
from ..everything import SECONDS_A_ROW_READ, Chunk, most_rows
from ..kernels import n_basis
from ..streams import Preparation, QuerySample, StreamedRows, TableRows
from .automatic import Candidates
from .options import Learner, TrainingOptions
from .ranking import RankingProblem
from .train import Tell, Trained, after_steps, describe

# Labels travel with the columns of a table, under names that no file has.
_QUERY, _ITEM = "\0query", "\0item"
# Processor seconds of the choice among candidates on a full sample, and of a multiplication of the sums of kernel
# values (benchmarks/out_of_core.py).
_CHOICE_SECONDS = 60.0
_SECONDS_A_PRODUCT = 2.6e-11
_SECONDS_A_TREE_ROW = 1.2e-4
# Kernels with a share, usually.
_KERNELS = 2


class Sampled:
    """Mixed into `StreamedRows`: the problem becomes known with the sample, and all rows are encoded like it.

    Attributes
    ----------
    problem : RankingProblem
        Of the sample.
    notes : list of str
        About the sample.
    """

    # The columns as they were read are needed for the report: a resumed run reads the sample again.
    keeps_sample = False
    problem: RankingProblem
    notes: list[str]

    def sample(self, most: int, tell: Callable[[int], None] = lambda n_rows: None) -> QuerySample:
        found = super().sample(most, tell)  # type: ignore[misc]
        self.problem = problem = self.problem_of(*found.table())
        if problem.options.learner is not Learner.auto:
            raise InputError(
                f"{problem.data.source}: the table does not fit into memory, and AutoRanker, which could learn from it "
                f"in parts, does not suit it: {problem.why_single}. RankRLSCV.fit_stream of Python learns from files "
                "of any size"
            )
        self.notes = problem.check()
        found.encoded(lambda rows: np.asarray(problem.X))
        return found

    def over(self, prepare: Preparation, function: Callable[[Chunk], Any], skip: int = 0) -> Iterator[Any]:
        encoded = replace(prepare, encoder=self.problem.data.encoder)
        return super().over(encoded, function, skip)  # type: ignore[misc]

    def problem_of(self, rows: Any, y: np.ndarray, keys: np.ndarray) -> RankingProblem:
        """The problem of the rows of the sample, their targets and the keys of their queries."""
        raise NotImplementedError


class SampledTable(Sampled, TableRows):
    """A table with columns of any kind.

    Parameters
    ----------
    chunks : TableChunks
    kinds : mapping from column name to kind, or None
    options : TrainingOptions
    """

    def __init__(self, chunks: TableChunks, kinds: Any, options: TrainingOptions):
        super().__init__(chunks, self._opened)
        self._chunks_of_table, self._kinds, self._options = chunks, kinds, options
        self.parameters = {**self.parameters, "kinds": repr(sorted((kinds or {}).items()))}

    def check_beginning(self) -> None:
        """Refuse what the first chunk shows to be wrong, before anything is announced."""
        try:
            self.check_first()
        except FileFaultError as fault:
            if fault.column not in self._chunks_of_table.numbers:
                raise
            # The sample reads such a column as texts.

    def _opened(self) -> Iterator[Any]:
        for table in self._chunks_of_table:
            labels = {_QUERY: table.qid} | ({} if table.item_names is None else {_ITEM: table.item_names})
            yield {**table.columns, **labels}, table.y, table.qid

    def problem_of(self, rows: Any, y: np.ndarray, keys: np.ndarray) -> RankingProblem:
        chunks = self._chunks_of_table
        columns = {name: values for name, values in rows.items() if name not in (_QUERY, _ITEM)}
        roles = (chunks.target, chunks.query, chunks.item, chunks.source)
        table = TableData(columns, y, rows[_QUERY], rows.get(_ITEM), None, *roles)
        try:
            data = table.encode(self._kinds)
        except ValueError as error:
            raise InputError(f"{chunks.source}: {str(error).rstrip('.')}") from error
        return RankingProblem(data, self._options)


class SampledLetor(Sampled, StreamedRows):
    """Numbered features.

    Parameters
    ----------
    source : Source
    n_features : int
    options : TrainingOptions
    """

    def __init__(self, source: Source, n_features: int, options: TrainingOptions):
        super().__init__(source)
        self._name, self._n_features, self._options = source.name, n_features, options

    def problem_of(self, rows: Any, y: np.ndarray, keys: np.ndarray) -> RankingProblem:
        data = RankingData(rows, y, keys, NumberedNames(self._n_features), source=self._name)
        return RankingProblem(data, self._options)


def train_in_parts(
    rows: SampledTable | SampledLetor,
    title: str,
    options: TrainingOptions,
    checkpoint: str | os.PathLike[str],
    *,
    tell: Tell = lambda stage: None,
    details: bool = True,
) -> Trained:
    """Fit an AutoRanker on chunks, and describe it by the held-out part of its sample.

    Parameters
    ----------
    rows : SampledTable or SampledLetor
    title : str
    options : TrainingOptions
    checkpoint : path
        To resume from.
    tell : callable, optional
        Called with the name of each stage as it begins.
    details : bool, default=True
        As in :func:`preflearn.auto.training.train.train`.
    """
    tell("trying candidates of different kinds on a sample, then training on all rows")
    model: Any = AutoRanker(
        time_limit=options.time_limit, random_state=options.seed, verbose=int(options.verbose)
    )
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="best_score_ is NaN")
        sample = model._fit_parts(rows, checkpoint)
    model.set_params(verbose=0)
    if np.isnan(model.best_score_):
        raise InputError(
            f"{rows.problem.data.source}: too few queries of the sample have rows with different targets to tell "
            "candidates apart"
        )
    rows.problem.title = title
    search = SampledCandidates(rows.problem, sample)
    search.take(model)
    for name in ("cv_predictions_", "cv_folds_"):
        delattr(model, name)
    report = describe(rows.problem, search, model, rows.notes, tell, details=details)
    return Trained(after_steps(rows.problem.steps, model), report)


class SampledCandidates(Candidates):
    """Candidates that were chosen on a sample of a file.

    Parameters
    ----------
    problem : RankingProblem
        Of the sample.
    sample : QuerySample
    """

    # A single learner would read all rows at once.
    linear_advice = ""

    def __init__(self, problem: RankingProblem, sample: QuerySample):
        super().__init__(problem)
        self._n_rows, self._n_queries = sample.n_rows, sample.n_queries

    def notes(self) -> list[str]:
        n_held = int(np.count_nonzero(self.seen))
        found = [
            f"The table has {self._n_rows:,} rows and was read in parts. Candidates were chosen on a sample of "
            f"{len(self.problem.data):,} rows (whole queries); columns, example queries and baselines here are those "
            "of the sample."
        ]
        if self.is_extended:
            n_learned = self.model.n_training_rows_
            is_drawn = n_learned < self._n_rows - n_held
            which = "whole queries drawn from all but" if is_drawn else "all but"
            of_kernels = most_rows(is_kernel=True)
            some = f" (kernels on about {of_kernels:,} of them)" if of_kernels < n_learned else ""
            found.append(
                f"Learned kernels and boosted trees were then trained on {'about ' if is_drawn else ''}{n_learned:,} "
                f"rows{some}: {which} {n_held:,} of the sample, which every figure comes from."
            )
        return found

    def describe(self) -> dict[str, Any]:
        found = super().describe()
        counts = {**found["counts"], "rows": self._n_rows, "queries": self._n_queries}
        in_brief = f"{self._n_rows:,} rows in {self._n_queries:,} queries, {counts['features']:,} features"
        data = {
            **found["data"],
            "rows": f"{self._n_rows:,}",
            "queries": f"{self._n_queries:,}; in the sample {found['data']['queries']}",
            "targets": f"in the sample {found['data']['targets']}",
        }
        return {**found, "summary": f"{in_brief}, read in parts", "counts": counts, "data": data}


def expected_seconds(n_rows: int, n_features: int) -> float:
    """About how long training takes on all processors of this machine, if nothing else runs on them."""
    r, n = n_basis(n_rows), 2 * n_features
    of_kernels, of_trees = (min(n_rows, most_rows(is_kernel=one)) for one in (True, False))
    kernels = _KERNELS * of_kernels * (r**2 + 4.0 * r * n) * _SECONDS_A_PRODUCT
    trees = of_trees * _SECONDS_A_TREE_ROW * n / 92
    passes = (3 + _KERNELS) * n_rows * SECONDS_A_ROW_READ * n / 92
    return (_CHOICE_SECONDS + kernels + trees + passes) / n_threads()
