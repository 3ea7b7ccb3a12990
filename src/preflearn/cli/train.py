"""``preflearn train``: a ranker from a file, with alpha by cross-validation, a model file and a report."""

from __future__ import annotations

import shlex
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from ..training.options import KernelName, Learner, TrainingOptions
from . import files
from . import preferences as of_pairs
from .leaderboard import print_leaderboard, print_next_steps
from .output import (
    JsonOption,
    QuietOption,
    VerboseOption,
    collected_warnings,
    new_console,
    print_json,
    print_notes,
    progress,
    refuse_both,
)
from .relations import train_relation

if TYPE_CHECKING:
    from rich.console import Console

    from ..preprocessing import TableSummary
    from ..report import TrainingReport
    from ..training.train import Problem

_SHOWN_COLUMNS = 12


def train(
    context: typer.Context,
    data: files.OptionalDataPaths = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            help="File for the model. Default: the name of DATA (of --pairs for a relation) with .preflearn.",
        ),
    ] = None,
    report: Annotated[
        Path | None,
        typer.Option("--report", help="Write an HTML report to this file, or a model card for .md."),
    ] = None,
    target: files.TargetOption = None,
    query: files.QueryOption = None,
    no_query: files.NoQueryOption = False,
    item: files.ItemOption = None,
    weight: files.WeightOption = None,
    features: files.FeaturesOption = None,
    drop: files.DropOption = None,
    encode: files.EncodeOption = None,
    missing: files.MissingOption = None,
    delimiter: files.DelimiterOption = None,
    columns: files.ColumnsOption = None,
    format: files.FormatOption = None,
    preferences: of_pairs.PreferencesOption = None,
    chosen: of_pairs.ChosenOption = None,
    rejected: of_pairs.RejectedOption = None,
    judge: of_pairs.JudgeOption = None,
    embed: of_pairs.EmbedOption = None,
    rows: Annotated[
        Path | None,
        typer.Option(
            "--rows", help="Learn a relation: table of row objects; --columns is that of the column objects."
        ),
    ] = None,
    pairs: Annotated[
        Path | None, typer.Option("--pairs", help="Relation: table of row object, column object, label.")
    ] = None,
    hold_out: Annotated[
        str | None,
        typer.Option("--hold-out", help="Relation: what will be new: entries, rows, columns or both."),
    ] = None,
    learner: Annotated[
        Learner,
        typer.Option(
            "--learner",
            help="auto: candidates of different kinds, combined; RankRLS where a kernel option is given.",
        ),
    ] = Learner.auto,
    time_limit: Annotated[
        float | None, typer.Option("--time-limit", help="Seconds for the candidates of --learner auto.")
    ] = None,
    kernel: Annotated[
        KernelName, typer.Option("--kernel", help="auto: RBF, or linear for sparse and very wide data.")
    ] = KernelName.auto,
    gamma: Annotated[
        float | None, typer.Option("--gamma", help="Kernel width gamma. Default: from the median distance.")
    ] = None,
    degree: Annotated[
        int | None, typer.Option("--degree", min=1, help="Degree of the polynomial kernel. Default: 3.")
    ] = None,
    n_basis: Annotated[
        int | None,
        typer.Option("--n-basis", min=1, help="Number of basis vectors. Default: 500 over 2,000 rows."),
    ] = None,
    alphas: Annotated[
        str, typer.Option("--alphas", help="auto, or positive numbers separated by commas.")
    ] = "auto",
    within_queries: Annotated[
        bool, typer.Option("--within-queries", help="Standardise the features within each query.")
    ] = False,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Random seed for basis vectors and folds.")] = 0,
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
        format=format, target=target, query=query, no_query=no_query, item=item, features=features, drop=drop,
        encode=encode, missing=missing, delimiter=delimiter, columns=columns, weight=weight,
    )  # fmt: skip
    if gamma is not None and not 0 < gamma < float("inf"):
        raise ValueError(f"--gamma must be a positive number: found {gamma:g}.")
    if rows is not None or pairs is not None or hold_out is not None:
        _refuse_with_relation(context)
        train_relation(
            rows, columns, pairs, output, report, hold_out=hold_out, gamma=gamma, alphas=_read_alphas(alphas),
            kernel="rbf" if kernel is KernelName.auto else kernel.value, command=_typed(context),
            as_json=as_json, quiet=quiet, verbose=verbose, force=force,
        )  # fmt: skip
        return
    if not data:
        raise ValueError(
            "Missing argument 'DATA...': a file to learn from (preflearn train --help tells more)."
        )
    options = TrainingOptions(
        learner,
        kernel,
        gamma,
        degree,
        n_basis,
        _read_alphas(alphas),
        within_queries,
        seed,
        verbose,
        time_limit,
    )
    pairs_from = of_pairs.Source.from_options(preferences, chosen, rejected, judge, embed)
    _check_time_limit(options, bool(pairs_from))
    inputs = pairs_from.all_files(data)
    if output is None:
        output = files.default_output(data[0], inputs, force)
    files.check_outputs([output, report], inputs, force)
    if pairs_from:
        pairs_from.check(data, reading)
        _refuse_with_preferences(options, reading)
    if report is not None:
        from ..report.html import require_parts

        require_parts()
    with progress(7, quiet=quiet, verbose=verbose) as tell, collected_warnings() as warned:
        tell("reading " + ", ".join(path.name for path in inputs))
        source = _read(data, pairs_from, reading, options)

        from ..training.train import train as train_model

        model, found = train_model(source.problem, options, tell=tell)
    found = replace(
        found,
        files=files.describe_files(inputs),
        columns=source.columns,
        command=_typed(context),
        model_file=output.name,
        notes=(*source.notes, *found.notes, *warned),
        seconds=time.perf_counter() - start,
    )
    _write(model, found, _metadata(found, source.memory), output, report)
    if as_json:
        written = {"model": str(output), "report": None if report is None else str(report)}
        print_json({**found.to_dict(), **written})
    elif not quiet:
        _show(found, output, report)


class _Source(NamedTuple):
    """What is to be learned, what the model must remember of how it was read, its columns, and notes."""

    problem: Problem
    memory: dict[str, Any]
    columns: TableSummary | None
    notes: list[str]


def _read(
    paths: list[Path], pairs_from: of_pairs.Source, reading: files.Reading, options: TrainingOptions
) -> _Source:
    if pairs_from:
        problem, memory, encoder, notes = of_pairs.read_problem(pairs_from, paths, reading, options)
        return _Source(problem, memory, _columns(encoder), notes)
    from ..training.ranking import RankingProblem

    found = files.read_training(paths, reading)
    ranking = RankingProblem(found.data, options)
    ranking.title = f"Ranking model from {_together(paths)}"
    return _Source(ranking, found.memory, _columns(found.data.encoder), found.notes)


def _columns(encoder: Any) -> TableSummary | None:
    return getattr(encoder, "summary_", None)


def _refuse_with_relation(context: typer.Context) -> None:
    """Options that a relation would ignore."""
    used = {"output", "report", "rows", "columns", "pairs", "hold_out", "kernel", "gamma", "alphas"}
    used |= {"as_json", "quiet", "verbose", "force"}
    for parameter in context.command.params:
        name = str(parameter.name)
        given = getattr(context.get_parameter_source(name), "name", "") == "COMMANDLINE"
        if given and name not in used:
            what = parameter.opts[0] if parameter.param_type_name == "option" else "DATA"
            raise ValueError(f"{what} would be ignored with --rows and --pairs: leave it out.")


def _refuse_with_preferences(options: TrainingOptions, reading: files.Reading) -> None:
    if reading.weight is not None:
        raise ValueError(
            "--weight weighs rows, and preferences have weights of their own, a column of their file: leave it out."
        )
    if options.within_queries:
        raise ValueError(
            "--within-queries would be ignored with preferences, which compare directly: leave it out."
        )
    if options.learner not in (Learner.auto, Learner.rankrls):
        raise ValueError(
            f"--learner {options.learner.value} does not learn from preferences here: use --learner rankrls."
        )


def _check_time_limit(options: TrainingOptions, of_preferences: bool) -> None:
    if options.time_limit is None:
        return
    if not options.time_limit > 0:
        raise ValueError(f"--time-limit must be a positive number of seconds: found {options.time_limit:g}.")
    if options.learner is not Learner.auto or options.asks_for_a_kernel or of_preferences:
        raise ValueError(
            "--time-limit is for the candidates of --learner auto, and a single learner was asked for: leave it out."
        )


def _read_alphas(text: str) -> Any:
    if text == "auto":
        return text
    try:
        grid = [float(one) for one in text.split(",")]
    except ValueError:
        grid = []
    if not grid or not all(0 < alpha < float("inf") for alpha in grid):
        raise ValueError(
            f"--alphas must be auto or positive numbers separated by commas, as 0.1,1,10: found {text!r}."
        )
    return sorted(set(grid))


def _metadata(report: TrainingReport, memory: dict[str, Any]) -> dict[str, Any]:
    plain = report.to_dict()
    kept = {name: plain[name] for name in ("files", "choices", "seed", "unit")}
    estimate = {name: plain["estimate"][name] for name in ("measure", "value", "interval", "held_out")}
    return {
        "command": "train",
        "reading": memory,
        "estimate": estimate,
        **kept,
    }


def _together(paths: list[Path]) -> str:
    return paths[0].name if len(paths) == 1 else f"{paths[0].name} and {len(paths) - 1} more"


def _typed(context: typer.Context) -> str:
    """The command line that was typed, from what the parser made of it."""
    words = ["preflearn", str(context.info_name)]
    for parameter in context.command.params:
        name = str(parameter.name)
        if getattr(context.get_parameter_source(name), "name", "") != "COMMANDLINE":
            continue
        value = context.params[name]
        values = value if isinstance(value, (list, tuple)) else [value]
        for one in values:
            if parameter.param_type_name == "option":
                words.append(parameter.opts[0])
            if not isinstance(one, bool):
                words.append(str(getattr(one, "value", one)))
    return shlex.join(words)


def _write(
    model: Any, found: TrainingReport, metadata: dict[str, Any], output: Path, report: Path | None
) -> None:
    """The page is made before anything is written, so that a failure leaves nothing behind."""
    from ..io import save_model
    from ..io.atomic import atomic_write
    from ..report.html import render_for

    with collected_warnings():  # of Matplotlib, about letters that its fonts lack
        page = None if report is None else render_for(report, found).encode()
    save_model(model, output, metadata=metadata)
    if report is not None and page is not None:
        with atomic_write(report) as file:
            file.write(page)


def _show(report: TrainingReport, output: Path, report_file: Path | None) -> None:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    console = new_console()
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
    if report.unit == "preference":
        for check in found.checks:
            console.print(Text(f"{check.name.capitalize()} {check.value}: {check.why}."))
    if report.leaderboard is not None:
        print_leaderboard(console, report.leaderboard)
    else:
        _show_baselines(console, report)
    print_notes(console, report.notes)
    print_next_steps(console, report.next_steps)
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
        cells: list[Any] = [Text(row.name), f"{row.value:.4f}"]
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
