"""Tables that do not fit into memory: the rows that one pass keeps, as a problem like any other."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ... import AutoRanker
from ...errors import InputError
from ...learners.streaming.stream import Source
from ...numerics.threads import n_threads
from ...tables.data import NumberedNames, RankingData, TableData
from ...tables.table import TableChunks
from ..sample import MOST_ROWS, Kept, RowsInParts, TableInParts, keep_rows
from .options import Learner, TrainingOptions
from .ranking import RankingProblem

# Labels travel with the columns of a table, under names that no file has.
_QUERY, _ITEM = "\0query", "\0item"
# Processor seconds of the choice among candidates on a full sample, then for each row that is learned from and that is
# read, with 46 features (benchmarks/out_of_core.py).
_CHOICE_SECONDS, _SECONDS_A_ROW, _SECONDS_A_ROW_READ = 60.0, 1.8e-4, 4e-6


@dataclass(frozen=True)
class Parts:
    """Rows that come in parts, and what makes data of those that are kept.

    Attributes
    ----------
    rows : RowsInParts
    data_of : callable
        From `Kept` to `RankingData`.
    """

    rows: RowsInParts
    data_of: Callable[[Kept], RankingData]

    @classmethod
    def of_table(cls, chunks: TableChunks, kinds: Mapping[str, str] | None) -> Parts:
        """A table with columns of any kind."""

        def opened() -> Iterator[Any]:
            for table in chunks:
                labels = {_QUERY: table.qid} | ({} if table.item_names is None else {_ITEM: table.item_names})
                yield {**table.columns, **labels}, table.y, table.qid

        def data_of(kept: Kept) -> RankingData:
            columns = {name: values for name, values in kept.X.items() if name not in (_QUERY, _ITEM)}
            roles = (chunks.target, chunks.query, chunks.item, chunks.source)
            table = TableData(columns, kept.y, kept.X[_QUERY], kept.X.get(_ITEM), None, *roles)
            try:
                return table.encode(kinds)
            except ValueError as error:
                raise InputError(f"{chunks.source}: {str(error).rstrip('.')}") from error

        parameters = {"kinds": repr(sorted((kinds or {}).items()))}
        return cls(TableInParts(chunks, opened, parameters), data_of)

    @classmethod
    def of_letor(cls, source: Source, n_features: int) -> Parts:
        """Numbered features."""

        def data_of(kept: Kept) -> RankingData:
            return RankingData(kept.X, kept.y, kept.keys, NumberedNames(n_features), source=source.name)

        return cls(RowsInParts(source), data_of)

    def problem(
        self,
        title: str,
        options: TrainingOptions,
        checkpoint: str | os.PathLike[str],
        tell: Callable[[str], None] = lambda stage: None,
    ) -> RankingProblem:
        """What is learned from the rows that are kept.

        Parameters
        ----------
        title : str
        options : TrainingOptions
        checkpoint : path
            Holds the rows that are kept, once all have been read.
        tell : callable, optional
            Called with the name of each stage as it begins.
        """
        tell("reading the rows")
        model: Any = AutoRanker(time_limit=options.time_limit, random_state=options.seed)
        kept = keep_rows(self.rows, model, checkpoint)
        problem = RankingProblem(self.data_of(kept), options)
        if problem.options.learner is not Learner.auto:
            raise InputError(
                f"{problem.data.source}: the table does not fit into memory, and AutoRanker, which could learn from it "
                f"in parts, does not suit it: {problem.why_single}. RankRLSCV.fit_stream of Python learns from files "
                "of any size"
            )
        problem.title = title
        problem.note_on_parts = f"The table has {kept.n_rows:,} rows and was read in parts."
        if len(problem.data) < kept.n_rows:
            problem.note_on_parts += (
                f" {len(problem.data):,} rows were kept, whole queries drawn from all of them; everything here is "
                "about these."
            )
        return problem


def expected_seconds(n_rows: int, n_features: int) -> float:
    """About how long training takes on all processors of this machine, if nothing else runs on them."""
    learned = min(n_rows, MOST_ROWS) * _SECONDS_A_ROW
    width = n_features / 46
    return (_CHOICE_SECONDS + width * (learned + n_rows * _SECONDS_A_ROW_READ)) / n_threads()
