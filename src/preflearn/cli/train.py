"""``preflearn train``: a ranker from a file, with alpha by cross-validation, a model file and a report.

Files that do not fit into memory are read in parts; the command says so, and resumes after a stop.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from ..auto.training.options import Learner, TrainingOptions
from . import files
from . import preferences as of_pairs
from .output import (
    collected_warnings,
    new_console,
    print_json,
    print_notes,
    print_table,
    progress,
    refuse_both,
    typed,
)
from .settings import (
    LEARNING,
    JsonOption,
    QuietOption,
    SetOption,
    TrainReadOption,
    VerboseOption,
    read_settings,
)

if TYPE_CHECKING:
    from rich.console import Console

    from ..auto.training.conclusions import Problem
    from ..auto.training.parts import Parts
    from ..model_selection.dependence import Dependence
    from ..report import TrainingReport
    from ..report.contents import LeaderboardTable
    from ..tables.encoding.kinds import TableSummary
    from ..tables.ranking import TableSize

OutputOption = Annotated[
    Path | None,
    typer.Option("--output", "-o", help="File for the model. Default: the name of DATA with .preflearn."),
]
ReportOption = Annotated[
    Path | None,
    typer.Option("--report", help="Write an HTML report to this file, or a model card if it ends with .md."),
]
LearnerOption = Annotated[
    Learner,
    typer.Option(
        "--learner",
        help="auto: candidates of different kinds, combined; RankRLS where a kernel or its settings are given.",
    ),
]

# Memory of a training in multiples of the table: as read, encoded, and the views of the features in prediction.
_COPIES = 10
# Upper bound on the memory of a training in multiples of the size of the file, compression included.
_EXPANDED = 1000


class Task(NamedTuple):
    """What is to be learned, what the model must remember of how it was read, what makes numbers of it, and notes.

    Where rows depend on each other, the column that says so.
    """

    problem: Problem
    memory: dict[str, Any]
    encoder: Any
    notes: list[str]
    dependence: Dependence | None = None


# Long: a parameter for each option.
def train(
    context: typer.Context,
    data: files.DataPaths,
    output: OutputOption = None,
    report: ReportOption = None,
    target: files.TargetOption = None,
    query: files.QueryOption = None,
    no_query: files.NoQueryOption = False,
    group: files.GroupOption = None,
    event: files.EventOption = None,
    features: files.FeaturesOption = None,
    drop: files.DropOption = None,
    encode: files.EncodeOption = None,
    read: TrainReadOption = None,
    preferences: of_pairs.PreferencesOption = None,
    chosen: of_pairs.ChosenOption = None,
    rejected: of_pairs.RejectedOption = None,
    learner: LearnerOption = Learner.auto,
    settings: SetOption = None,
    force: files.ForceOption = False,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
    verbose: VerboseOption = False,
) -> None:
    """Learn to rank from a file: choose alpha by exact cross-validation, save the model, write a report."""
    start = time.perf_counter()
    refuse_both(quiet, as_json, "--json")
    refuse_both(quiet, verbose, "--verbose")
    reading = files.Reading.from_options(
        read, target=target, query=query, no_query=no_query, features=features, drop=drop, encode=encode,
        group=group, event=event,
    )  # fmt: skip
    given = read_settings("--set", settings, LEARNING)
    embed, judge = given.pop("embed", None), given.pop("judge", None)
    if (preferences, chosen, rejected) == (None, None, None):
        chosen, rejected = of_pairs.text_columns(data, reading) or (None, None)
    pairs_from = of_pairs.Source.from_options(preferences, chosen, rejected, judge, embed, reading.prompt)
    options = TrainingOptions(learner, verbose=verbose, **given)
    inputs = pairs_from.all_files(data)
    try:
        output = output or files.default_output(data[0], inputs, force)
        files.check_outputs([output, report], inputs, force)
    except FileExistsError:
        if not pairs_from:  # a misspelt column is reported first
            with collected_warnings():
                files.check_columns(data, reading)
        raise
    _refuse_unused(options, reading, pairs_from, data)
    files.check_report(report)
    parts = None if pairs_from else _in_parts(data, reading, options, output)
    details = report is not None or as_json
    if parts is not None:
        with collected_warnings() as warned:
            source, model, found = parts.train(quiet=quiet, verbose=verbose, details=details)
    else:
        with progress(6 + details, quiet=quiet, verbose=verbose) as tell, collected_warnings() as warned:
            tell("reading " + ", ".join(path.name for path in inputs))
            source = _read(data, pairs_from, reading, options)

            from ..auto.training.train import train as train_model

            model, found = train_model(source.problem, tell=tell, details=details)
    found = replace(
        found,
        files=files.describe_files(inputs),
        columns=_columns(source),
        dependence=files.say_dependence(source.dependence),
        command=typed(context),
        model_file=output.name,
        notes=(*source.notes, *found.notes, *warned),
        seconds=time.perf_counter() - start,
    )
    _write(model, found, _metadata(found, source.memory), output, report)
    if parts is not None:
        parts.checkpoint.unlink(missing_ok=True)
    if as_json:
        written = {"model": str(output), "report": None if report is None else str(report)}
        print_json({**found.to_dict(), **written})
    elif not quiet:
        _show(found, output, report)


def _read(
    paths: list[Path], pairs_from: of_pairs.Source, reading: files.Reading, options: TrainingOptions
) -> Task:
    if pairs_from:
        return Task(*of_pairs.read_problem(pairs_from, paths, reading, options))
    from ..auto.training.ranking import RankingProblem

    found = files.read_training(paths, reading)
    ranking = RankingProblem(found.data, options)
    ranking.title = f"Ranking model from {files.together(paths)}"
    return Task(ranking, found.memory, found.data.encoder, found.notes, found.dependence)


def _columns(source: Task) -> TableSummary | None:
    """What was found of the columns; one whose rows depend on each other does not look like a query column."""
    summary: TableSummary | None = getattr(source.encoder, "summary_", None)
    if summary is None or source.dependence is None or summary.query != source.dependence.column:
        return summary
    note = f"{source.dependence.n_groups:,} labels, rows depend on each other"
    columns = [replace(one, notes=[note]) if one.name == summary.query else one for one in summary]
    return replace(summary, columns=columns, query=None)


def _refuse_unused(
    options: TrainingOptions, reading: files.Reading, pairs_from: of_pairs.Source, data: list[Path]
) -> None:
    """Raise ValueError for options that would be ignored."""
    single = options.learner is not Learner.auto or options.asks_for_a_kernel or bool(pairs_from)
    if options.time_limit is not None and single:
        raise ValueError(
            "--set time_limit is for the candidates of --learner auto, and a single learner was asked for: leave it "
            "out."
        )
    if options.time_limit is not None and reading.weight is not None:
        raise ValueError(
            "--set time_limit is for the candidates of --learner auto, which take no --read weight: leave one of them "
            "out."
        )
    if not pairs_from:
        return
    pairs_from.check(data, reading)
    if reading.weight is not None:
        raise ValueError(
            "--read weight is for rows, and preferences have weights of their own, a column of their file: leave it "
            "out."
        )
    reading.refuse_labels("preferences of one judge are held out together by --judge: leave it out")
    if options.within_queries:
        raise ValueError(
            "--set within_queries would be ignored with preferences, which compare directly: leave it out."
        )
    if options.learner not in (Learner.auto, Learner.rankrls):
        raise ValueError(
            f"--learner {options.learner.value} does not learn from preferences here: use --learner rankrls."
        )


def _metadata(report: TrainingReport, memory: dict[str, Any]) -> dict[str, Any]:
    """What the model file says about the training."""
    from ..report.contents import plain

    kept = ("measure", "value", "interval", "held_out")
    return {
        "command": "train",
        "reading": memory,
        "estimate": plain({name: getattr(report.estimate, name) for name in kept}),
        **({} if report.sets is None else {"sets": report.sets.stored}),
        "files": [asdict(file) for file in report.files],
        "choices": [asdict(choice) for choice in report.choices],
        "seed": report.seed,
        "unit": report.unit,
    }


def _write(
    model: Any, found: TrainingReport, metadata: dict[str, Any], output: Path, report: Path | None
) -> None:
    """The page is made before anything is written, so that a failure leaves nothing behind."""
    from ..report.html import render_for
    from ..tables.atomic import write_whole
    from ..tables.models.files import model_to_bytes

    with collected_warnings():  # from Matplotlib, about characters that its fonts lack
        page = None if report is None else render_for(report, found)
    write_whole(output, model_to_bytes(model, metadata, check=False))  # of parts that are known to load
    if report is not None and page is not None:
        write_whole(report, page)


def _show(report: TrainingReport, output: Path, report_file: Path | None) -> None:
    from rich.text import Text

    console = new_console()
    if report.dependence:
        console.print(Text(report.dependence, style="bold red"))
    console.print(Text(report.title, style="bold").append(f": {report.summary}", style="not bold"))
    console.print(Text(report.verdict))
    if report.columns is not None:
        _show_columns(console, report.columns)
    choices = [(choice.name, choice.value, choice.why) for choice in report.choices]
    print_table(
        console, ("part", "choice", "reason"), choices, title="What was chosen, and why", left=3, cyan=1
    )
    found = report.estimate
    low, high = found.interval
    console.print(
        Text(f"Held-out {found.measure} {found.value:.4f}", style="bold").append(
            f", 95 % interval {low:.4f} to {high:.4f}", style="not bold"
        )
    )
    console.print(Text(found.held_out))
    if report.survival is not None:
        head = ("third", "rows", "events", "median time")
        print_table(
            console, head, report.survival.rows(), title="How long rows with such held-out scores lived"
        )
        console.print(Text(report.survival.explanation))
    if report.sets is not None:
        console.print(Text(report.sets.sentence))
    if report.unit == "preference":
        for check in found.checks:
            console.print(Text(f"{check.name.capitalize()} {check.value}: {check.why}."))
    if report.leaderboard is not None:
        _show_leaderboard(console, report.leaderboard)
    else:
        _show_baselines(console, report)
    print_notes(console, report.notes)
    if report.next_steps:
        console.print(Text("What to do next", style="bold"))
    for step in report.next_steps:
        console.print(Text(f"  - {step}"))
    wrote = f"{output}" + ("" if report_file is None else f" and {report_file}")
    console.print(Text(f"Wrote {wrote} in {report.seconds:.1f} s."))


def _show_baselines(console: Console, report: TrainingReport) -> None:
    tested = any(row.pvalue is not None for row in report.baselines)
    head = ["ordered by", report.estimate.measure, *(["wins / losses / ties", "p (Holm)"] if tested else [])]
    rows = []
    for row in report.baselines:
        cells = [row.label, f"{row.value:.4f}"]
        if tested:
            counted = "" if row.wins is None else f"{row.wins} / {row.losses} / {row.ties}"
            cells += [counted, "" if row.pvalue is None else f"{row.pvalue:.2g}"]
        rows.append(cells)
    of_model = [k for k, row in enumerate(report.baselines) if row.is_model]
    print_table(console, head, rows, title="Comparison with simple baselines", bold=of_model)


def _show_columns(console: Console, columns: TableSummary, most: int = 12) -> None:
    """The kinds that were found, the columns of each on one line."""
    rows = []
    for kind, names, n_features, notes in columns.by_kind():
        shown = ", ".join(names[:most])
        if len(names) > most:
            shown += f" and {len(names) - most} more"
        shown += f" ({'; '.join(notes)})" if notes else ""
        rows.append((kind, shown, str(n_features) if n_features else "set aside"))
    print_table(console, ("kind", "columns", "features"), rows, title="Columns", left=2, cyan=0)


def _show_leaderboard(console: Console, board: LeaderboardTable) -> None:
    """The candidates, best first, with the model above them."""
    head = [
        "candidate",
        board.scoring,
        f"against {board.simplest}",
        *(["p (Holm)"] if board.is_tested else []),
        "share",
    ]
    rows = [
        (
            f"{row.name} (this model)" if row.is_model else row.label,
            row.shown_score,
            "" if row.difference is None else f"{row.difference:+.4f}",
            *(["" if row.pvalue is None else f"{row.pvalue:.2g}"] if board.is_tested else []),
            "" if row.is_model or row.share == 0 else f"{100 * row.share:.0f} %",
        )
        for row in board.rows
    ]
    of_model = [k for k, row in enumerate(board.rows) if row.is_model]
    print_table(console, head, rows, title="What was tried", bold=of_model)
    console.print(board.note, markup=False)


# ----------------------------------------------------------------------------- files that do not fit into memory


def _in_parts(
    paths: Sequence[Path], reading: files.Reading, options: TrainingOptions, output: Path
) -> _InParts | None:
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
    if reading.event is not None:
        raise InputError(
            f"{about}; censored times are not learned in parts: pass fewer rows, or fewer columns"
        )
    if reading.weight is not None:
        raise InputError(f"{about}; rows with weights are not learned in parts: leave --read weight out")
    if reading.query is None:
        raise InputError(
            f"{about}; one ranking of all rows is not learned in parts",
            Remedy("query", purpose="with a column whose rows are compared"),
        )
    return _InParts(list(paths), reading, options, found, output.with_name(output.name + ".checkpoint"))


_OF_FILES = ("format", "columns", "delimiter", "encoding")


@dataclass(frozen=True)
class _InParts:
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

    def train(self, *, quiet: bool, verbose: bool, details: bool) -> tuple[Task, Any, TrainingReport]:
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
        return Task(problem, memory_of(encoder), encoder, []), model, report

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
        del arguments["weight"], arguments["labels"]
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
