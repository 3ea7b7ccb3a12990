"""Files that do not fit into memory: `preflearn train` reads them in parts, says so, and resumes after a stop."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ..auto.training.options import Learner, TrainingOptions
from . import files
from .output import collected_warnings

if TYPE_CHECKING:
    from ..auto.training.conclusions import Problem
    from ..auto.training.parts import Parts
    from ..model_selection.dependence import Dependence
    from ..report import TrainingReport
    from ..tables.ranking import TableSize

# Memory of a training in multiples of the table: as read, encoded, and the views of the features in prediction.
_COPIES = 10
# Upper bound on the memory of a training in multiples of the size of the file, compression included.
_EXPANDED = 1000


class Read(NamedTuple):
    """What is to be learned, what the model must remember of how it was read, what makes numbers of it, and notes.

    Where rows depend on each other, the column that says so.
    """

    problem: Problem
    memory: dict[str, Any]
    encoder: Any
    notes: list[str]
    dependence: Dependence | None = None


def in_parts(
    paths: Sequence[Path], reading: files.Reading, options: TrainingOptions, output: Path
) -> InParts | None:
    """A training in parts, where the files do not fit into memory; what cannot be learned in this way is refused."""
    from ..errors import InputError, Remedy
    from ..numerics.memory import fits_in_memory
    from ..tables.ranking import size_of

    if not all(path.is_file() for path in paths):
        return None  # reported when the files are read
    if fits_in_memory(_EXPANDED * sum(path.stat().st_size for path in paths)):
        return None
    with collected_warnings():  # repeated when the rows are read
        found = size_of([str(path) for path in paths], **{name: getattr(reading, name) for name in _OF_FILES})
    if fits_in_memory(_COPIES * found.n_bytes):
        return None
    about = f"{files.together(paths)}: {_size(found)}"
    if options.learner is not Learner.auto or options.asks_for_a_kernel:
        raise InputError(
            f"{about}; a single learner reads all rows at once",
            Remedy("learner", "auto", "without settings of a kernel, to train from the file in parts"),
        )
    if reading.skip_bad:
        raise InputError(
            f"{about}; --skip-bad leaves no rows out of a file in parts: pass a file without them"
        )
    if reading.group is not None:
        raise InputError(
            f"{about}; whole groups are not drawn from a file in parts: leave --group out, and pass fewer rows"
        )
    if reading.weight is not None:
        raise InputError(f"{about}; rows with weights are not learned in parts: leave --read weight out")
    if reading.query is None:
        raise InputError(
            f"{about}; one ranking of all rows is not learned in parts",
            Remedy("query", purpose="with a column whose rows are compared"),
        )
    return InParts(list(paths), reading, options, found, output.with_name(output.name + ".checkpoint"))


_OF_FILES = ("format", "columns", "delimiter", "encoding")


@dataclass(frozen=True)
class InParts:
    """A training in parts that is about to begin.

    Attributes
    ----------
    paths : list of Path
    reading : Reading
    options : TrainingOptions
    size : TableSize
    checkpoint : Path
    """

    paths: list[Path]
    reading: files.Reading
    options: TrainingOptions
    size: TableSize
    checkpoint: Path

    def train(self, *, quiet: bool, verbose: bool, details: bool) -> tuple[Read, Any, TrainingReport]:
        """Refuse what the first rows show to be wrong, announce, train, and describe."""
        from ..auto.training.train import train
        from ..errors import InputError
        from ..learners.streaming.checkpoint import CheckpointError

        shows = verbose or (sys.stderr.isatty() and not quiet)

        def tell(stage: str) -> None:
            if shows:
                print(f"preflearn: {stage}", file=sys.stderr, flush=True)

        def announce() -> None:
            if not quiet:
                print(self._announcement(), file=sys.stderr, flush=True)

        options = replace(self.options, verbose=shows)
        parts, memory_of = self._open(announce, tell)
        title = f"Ranking model from {files.together(self.paths)}"
        try:
            problem = parts.problem(title, options, self.checkpoint, tell)
        except CheckpointError as error:
            advice = "remove the file to start over, or write the model elsewhere with -o"
            raise InputError(f"{error.found}: {advice}") from error
        except InputError:  # another command will be next
            self.checkpoint.unlink(missing_ok=True)
            raise
        model, report = train(problem, tell=tell, details=details)
        encoder = problem.data.encoder
        return Read(problem, memory_of(encoder), encoder, []), model, report

    def _announcement(self) -> str:
        from ..auto.sample import MOST_ROWS
        from ..auto.training.parts import expected_seconds
        from ..squared.routes import in_words

        seconds = expected_seconds(self.size.n_rows, self.size.n_columns)
        begins = (
            "starts from the rows that were kept there" if self.checkpoint.exists() else "starts from there"
        )
        some = ""
        if self.size.n_rows > MOST_ROWS:
            some = f"About {MOST_ROWS:,} rows are learned from, whole queries drawn from all of them. "
        return (
            f"preflearn: {files.together(self.paths)}: {_size(self.size)}. It is read in parts; with the training that "
            f"takes {in_words(seconds)} on an idle machine. {some}The rows that are learned from are kept in "
            f"{self.checkpoint} once all have been read; the same command {begins}."
        )

    def _open(
        self, announce: Callable[[], None], tell: Callable[[str], None]
    ) -> tuple[Parts, Callable[[Any], dict[str, Any]]]:
        """The rows, and what the model remembers of how they were read, given their encoder.

        The announcement comes after what can be refused at once, and before all rows are read.
        """
        from ..auto.training.parts import Parts

        names = [str(path) for path in self.paths]
        if not self.reading.is_table(self.paths[0]):
            announce()
            return self._open_letor(names, tell)

        from ..errors import InputError, Remedy
        from ..tables.table import TableChunks

        arguments = self.reading.of_table()
        del arguments["weight"]
        chunks = TableChunks(names, **arguments)
        if chunks.query is None:
            raise InputError(
                f"{files.together(self.paths)}: {_size(self.size)}; one ranking of all rows is not learned in parts, "
                "and there is no column of queries",
                Remedy("query", purpose="with a column whose rows are compared"),
            )
        parts = Parts.of_table(chunks, self.reading.kinds)
        parts.rows.check_first()
        announce()
        return parts, lambda encoder: files.table_memory(chunks, encoder, chunks.names)

    def _open_letor(
        self, names: list[str], tell: Callable[[str], None]
    ) -> tuple[Parts, Callable[[Any], dict[str, Any]]]:
        from ..auto.training.parts import Parts
        from ..learners.streaming.stream import as_source
        from ..tables.ranking import scan_ranking

        tell("counting the features")
        given = self.reading.of_letor().items()
        arguments = {name: one for name, one in given if one is not None and one != "auto"}
        n_features = scan_ranking(names, **arguments).n_features
        source = as_source(names, {**arguments, "n_features": n_features}, verbose=False)
        memory = {"kind": "letor", "features": [str(k + 1) for k in range(n_features)]}
        return Parts.of_letor(source, n_features), lambda encoder: memory


def _counted(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def _size(found: TableSize) -> str:
    from ..numerics.memory import available_bytes

    about = "" if found.is_exact else "about "
    needed, there = _COPIES * found.n_bytes / 1e9, (available_bytes() or 0) / 1e9
    return (
        f"{about}{_counted(found.n_rows, 'row')} x {_counted(found.n_columns, 'column')}; training in memory would "
        f"take about {needed:.1f} GB, and {there:.1f} GB are available"
    )
