"""``preflearn train``: a ranker from a file, with alpha by cross-validation, a model file and a report."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..auto.training.options import Learner, TrainingOptions
from . import files, large
from . import preferences as of_pairs
from .output import collected_warnings, new_console, print_json, print_notes, progress, refuse_both, typed
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

    from ..report import TrainingReport
    from ..report.contents import LeaderboardRow, LeaderboardTable
    from ..tables.encoding.summary import TableSummary

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

_SHOWN_COLUMNS = 12


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
    features: files.FeaturesOption = None,
    drop: files.DropOption = None,
    encode: files.EncodeOption = None,
    read: TrainReadOption = None,
    preferences: of_pairs.PreferencesOption = None,
    chosen: of_pairs.ChosenOption = None,
    rejected: of_pairs.RejectedOption = None,
    judge: of_pairs.JudgeOption = None,
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
        group=group,
    )  # fmt: skip
    given = read_settings("--set", settings, LEARNING)
    embed = given.pop("embed", None)
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
    parts = None if pairs_from else large.in_parts(data, reading, options, output)
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
) -> large.Read:
    if pairs_from:
        return large.Read(*of_pairs.read_problem(pairs_from, paths, reading, options))
    from ..auto.training.ranking import RankingProblem

    found = files.read_training(paths, reading)
    ranking = RankingProblem(found.data, options)
    ranking.title = f"Ranking model from {files.together(paths)}"
    return large.Read(ranking, found.memory, found.data.encoder, found.notes, found.dependence)


def _columns(source: large.Read) -> TableSummary | None:
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
    if reading.group is not None:
        raise ValueError(
            "--group is for rows, and preferences of one judge are held out together by --judge: leave it out."
        )
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
    from ..tables.models.files import write_model

    with collected_warnings():  # from Matplotlib, about characters that its fonts lack
        page = None if report is None else render_for(report, found)
    write_model(model, output, metadata)
    if report is not None and page is not None:
        write_whole(report, page)


def _show(report: TrainingReport, output: Path, report_file: Path | None) -> None:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    console = new_console()
    if report.dependence:
        console.print(Text(report.dependence, style="bold red"))
    console.print(Text(report.title, style="bold").append(f": {report.summary}", style="not bold"))
    console.print(Text(report.verdict))
    if report.columns is not None:
        console.print(_columns_table(report.columns))
    table = Table(box=box.SIMPLE, title="What was chosen, and why", title_justify="left", title_style="bold")
    table.add_column("part")
    table.add_column("choice", style="cyan")
    table.add_column("reason")
    for choice in report.choices:
        table.add_row(Text(choice.name), Text(choice.value), Text(choice.why))
    console.print(table)
    found = report.estimate
    low, high = found.interval
    console.print(
        Text(f"Held-out {found.measure} {found.value:.4f}", style="bold").append(
            f", 95 % interval {low:.4f} to {high:.4f}", style="not bold"
        )
    )
    console.print(Text(found.held_out))
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
    _show_next_steps(console, report.next_steps)
    wrote = f"{output}" + ("" if report_file is None else f" and {report_file}")
    console.print(Text(f"Wrote {wrote} in {report.seconds:.1f} s."))


def _show_baselines(console: Console, report: TrainingReport) -> None:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    found = report.estimate
    tested = any(row.pvalue is not None for row in report.baselines)
    table = Table(
        box=box.SIMPLE, title="Comparison with simple baselines", title_justify="left", title_style="bold"
    )
    table.add_column("ordered by")
    table.add_column(found.measure, justify="right")
    if tested:
        table.add_column("wins / losses / ties", justify="right")
        table.add_column("p (Holm)", justify="right")
    for row in report.baselines:
        style = "bold" if row.is_model else ""
        cells: list[Any] = [Text(row.label), f"{row.value:.4f}"]
        if tested:
            counted = "" if row.wins is None else f"{row.wins} / {row.losses} / {row.ties}"
            cells += [counted, "" if row.pvalue is None else f"{row.pvalue:.2g}"]
        table.add_row(*cells, style=style)
    console.print(table)


def _columns_table(columns: TableSummary) -> Any:
    """The kinds that were found, the columns of each on one line."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE, title="Columns", title_justify="left", title_style="bold")
    for heading in ("kind", "columns", "features"):
        table.add_column(heading, justify="right" if heading == "features" else "left")
    for kind, names, n_features, notes in columns.by_kind():
        shown = ", ".join(names[:_SHOWN_COLUMNS])
        if len(names) > _SHOWN_COLUMNS:
            shown += f" and {len(names) - _SHOWN_COLUMNS} more"
        told = f" ({'; '.join(notes)})" if notes else ""
        table.add_row(
            Text(kind, style="cyan"), Text(shown + told), str(n_features) if n_features else "set aside"
        )
    return table


def _show_leaderboard(console: Console, board: LeaderboardTable) -> None:
    """The candidates, best first, with the model above them."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE, title="What was tried", title_justify="left", title_style="bold")
    table.add_column("candidate")
    for title in (
        board.scoring,
        f"against {board.simplest}",
        *(["p (Holm)"] if board.is_tested else []),
        "share",
    ):
        table.add_column(title, justify="right")
    for row in board.rows:
        name, *cells = _leaderboard_cells(row, board.is_tested)
        table.add_row(Text(name), *cells, style="bold" if row.is_model else "")
    console.print(table)
    console.print(Text(board.note))


def _show_next_steps(console: Console, steps: Sequence[str]) -> None:
    """Print what to do next, one line per step."""
    from rich.text import Text

    if steps:
        console.print(Text("What to do next", style="bold"))
    for step in steps:
        console.print(Text(f"  - {step}"))


def _leaderboard_cells(row: LeaderboardRow, tested: bool) -> list[str]:
    share = "" if row.is_model or row.share == 0 else f"{100 * row.share:.0f} %"
    return [
        f"{row.name} (this model)" if row.is_model else row.label,
        row.shown_score,
        "" if row.difference is None else f"{row.difference:+.4f}",
        *(["" if row.pvalue is None else f"{row.pvalue:.2g}"] if tested else []),
        share,
    ]
