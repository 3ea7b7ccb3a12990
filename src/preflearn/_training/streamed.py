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

from .. import AutoRanker
from .._engine.loops.threads import n_threads
from .._engine.streaming.sources import Source, read_ahead
from ..automatic.everything import Chunk
from ..automatic.kernels import n_basis
from ..automatic.streams import Preparation, QuerySample, StreamedRows
from ..errors import InputError
from ..io.cells import FileFaultError
from ..io.data import NumberedNames, RankingData, TableData
from ..io.table import TableChunks
from .automatic import Candidates
from .options import Learner, TrainingOptions
from .ranking import RankingProblem
from .train import Tell, Trained, after_steps, describe

# Labels travel with the columns of a table, under names that no file has.
_QUERY, _ITEM = "\0query", "\0item"
# Processor seconds of the choice among candidates on a full sample, and of a multiplication of the sums of kernel
# values (benchmarks/out_of_core.py).
_CHOICE_SECONDS = 150.0
_SECONDS_A_PRODUCT = 2.6e-11
_SECONDS_A_TREE_ROW = 5e-5
_TREE_ROWS = 2_000_000
# Kernels with a share, usually.
_KERNELS = 2


class SampledRows(StreamedRows):
    """Chunks of a file, encoded as the sample is; what is to be learned becomes known with the sample.

    Parameters
    ----------
    source : Source
    problem_of : callable
        From the rows of the sample, their targets and the keys of their queries to a `RankingProblem`.
    parameters : dict of str
        How the rows are read and encoded: a checkpoint of another way is refused.

    Attributes
    ----------
    problem : RankingProblem
        Of the sample.
    notes : list of str
        About the sample.
    """

    keeps_sample = False

    def __init__(
        self,
        source: Source,
        problem_of: Callable[[Any, np.ndarray, np.ndarray], RankingProblem],
        parameters: dict[str, str],
    ):
        super().__init__(source)
        self._problem_of, self.parameters = problem_of, parameters

    def sample(self, most: int, tell: Callable[[int], None] = lambda n_rows: None) -> QuerySample:
        found = super().sample(most, tell)
        self.problem = self._problem_of(*found.table())
        if self.problem.options.learner is not Learner.auto:
            raise InputError(
                f"{self.problem.data.source}: the table does not fit into memory, and AutoRanker, which could learn "
                f"from it in parts, does not suit it: {self.problem.why_single}. RankRLSCV.fit_stream of Python learns "
                "from files of any size"
            )
        self.notes = self.problem.check()
        found.encoded(lambda rows: np.asarray(self.problem.X))
        return found

    def over(self, prepare: Preparation, function: Callable[[Chunk], Any], skip: int = 0) -> Iterator[Any]:
        return super().over(replace(prepare, encoder=self.problem.data.encoder), function, skip)


def rows_of_table(chunks: TableChunks, kinds: Any, options: TrainingOptions, source: str) -> SampledRows:
    """A table with columns of any kind."""

    def opened() -> Iterator[Any]:
        for table in chunks:
            columns = {**table.columns, _QUERY: table.qid}
            yield (
                columns | ({} if table.item_names is None else {_ITEM: table.item_names}),
                table.y,
                table.qid,
            )

    def problem_of(rows: dict[str, np.ndarray], y: np.ndarray, keys: np.ndarray) -> RankingProblem:
        columns = {name: values for name, values in rows.items() if name not in (_QUERY, _ITEM)}
        table = TableData(
            columns, y, rows[_QUERY], rows.get(_ITEM), None, chunks.target, chunks.query, chunks.item, source
        )
        try:
            data = table.encode(kinds)
        except ValueError as error:
            raise InputError(f"{source}: {str(error).rstrip('.')}") from error
        return RankingProblem(data, options)

    parameters = {"features": repr(chunks.features), "kinds": repr(sorted((kinds or {}).items()))}
    return SampledRows(Source(lambda: read_ahead(opened()), True, source), problem_of, parameters)


def rows_of_letor(source: Source, n_features: int, options: TrainingOptions, name: str) -> SampledRows:
    """Numbered features."""

    def problem_of(rows: np.ndarray, y: np.ndarray, keys: np.ndarray) -> RankingProblem:
        return RankingProblem(RankingData(rows, y, keys, NumberedNames(n_features), source=name), options)

    return SampledRows(source, problem_of, {"features": str(n_features)})


def train_in_parts(
    rows: SampledRows,
    options: TrainingOptions,
    checkpoint: str | os.PathLike[str],
    read_as_text: Callable[[str], None],
    *,
    tell: Tell = lambda stage: None,
) -> Trained:
    """Fit an AutoRanker on chunks, and describe it by the held-out part of its sample.

    Parameters
    ----------
    rows : SampledRows
    options : TrainingOptions
    checkpoint : path
        To resume from.
    read_as_text : callable
        Told the name of a column that is not one of numbers, as its first rows looked; reading begins again.
    tell : callable, optional
        Called with the name of each stage as it begins.
    """
    tell("trying candidates of different kinds on a sample, then training on all rows")
    model: Any = AutoRanker(
        time_limit=options.time_limit, random_state=options.seed, verbose=int(options.verbose)
    )
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="best_score_ is NaN")
        sample = _fit(model, rows, checkpoint, read_as_text)
    model.set_params(verbose=0)
    if np.isnan(model.best_score_):
        raise InputError(
            f"{rows.problem.data.source}: too few queries of the sample have rows with different targets to tell "
            "candidates apart"
        )
    search = SampledCandidates(rows.problem, sample)
    search.take(model)
    for name in ("cv_predictions_", "cv_folds_"):
        delattr(model, name)
    report = describe(rows.problem, search, model, rows.notes, tell)
    return Trained(after_steps(rows.problem.steps, model), report)


def _fit(
    model: Any, rows: SampledRows, checkpoint: str | os.PathLike[str], read_as_text: Callable[[str], None]
) -> QuerySample:
    while True:
        try:
            return model._fit_parts(rows, checkpoint)
        except FileFaultError as fault:
            if fault.column is None:
                raise
            try:
                read_as_text(fault.column)
            except ValueError:
                raise fault from None


class SampledCandidates(Candidates):
    """Candidates that were chosen on a sample of a file.

    Parameters
    ----------
    problem : RankingProblem
        Of the sample.
    sample : QuerySample
    """

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
        if self.model.n_training_rows_ > len(self.problem.data):
            found.append(
                f"The members of the model were then trained on {self.model.n_training_rows_:,} rows: all but "
                f"{n_held:,} of the sample, which every figure comes from."
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
    kernels = _KERNELS * n_rows * (r**2 + 4.0 * r * n) * _SECONDS_A_PRODUCT
    trees = min(n_rows, _TREE_ROWS) * _SECONDS_A_TREE_ROW * n / 92
    return (_CHOICE_SECONDS + kernels + trees) / n_threads()
