"""``preflearn train``: a ranker from a file, with alpha by cross-validation, a model file and a report."""

from __future__ import annotations

import shlex
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..training.options import KernelName, Learner, TrainingOptions
from . import files
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

    from ..report import TrainingReport
    from ..training.train import Problem


def train(
    context: typer.Context,
    output: Annotated[Path, typer.Option("--output", "-o", help="File for the model (.preflearn).")],
    data: files.OptionalDataPaths = None,
    report: Annotated[
        Path | None,
        typer.Option("--report", help="Write an HTML report to this file, or a model card for .md."),
    ] = None,
    target: files.TargetOption = None,
    query: files.QueryOption = None,
    no_query: files.NoQueryOption = False,
    item: files.ItemOption = None,
    features: files.FeaturesOption = None,
    drop: files.DropOption = None,
    encode: files.EncodeOption = None,
    missing: files.MissingOption = None,
    delimiter: files.DelimiterOption = None,
    columns: files.ColumnsOption = None,
    format: files.FormatOption = None,
    preferences: Annotated[
        Path | None,
        typer.Option(
            "--preferences", help="Table of preferred and other item; DATA is then the table of items."
        ),
    ] = None,
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
        float | None, typer.Option("--gamma", help="Kernel width gamma. [default: from the median distance]")
    ] = None,
    degree: Annotated[
        int | None, typer.Option("--degree", min=1, help="Degree of the polynomial kernel. [default: 3]")
    ] = None,
    n_basis: Annotated[
        int | None,
        typer.Option("--n-basis", min=1, help="Number of basis vectors. [default: 500 over 2,000 rows]"),
    ] = None,
    alphas: Annotated[
        str, typer.Option("--alphas", help="auto, or positive numbers separated by commas.")
    ] = "auto",
    within_queries: Annotated[
        bool, typer.Option("--within-queries", help="Standardise the features within each query.")
    ] = False,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Random seed for basis vectors and folds.")] = 0,
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
        encode=encode, missing=missing, delimiter=delimiter, columns=columns,
    )  # fmt: skip
    if gamma is not None and not 0 < gamma < float("inf"):
        raise ValueError(f"--gamma must be a positive number: found {gamma:g}.")
    if rows is not None or pairs is not None or hold_out is not None:
        _refuse_with_relation(context)
        train_relation(
            rows, columns, pairs, output, report, hold_out=hold_out, gamma=gamma, alphas=_read_alphas(alphas),
            kernel="rbf" if kernel is KernelName.auto else kernel.value, command=_typed(context),
            as_json=as_json, quiet=quiet, verbose=verbose,
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
    _check_time_limit(options, preferences)
    inputs = [*data, *([preferences] if preferences is not None else [])]
    files.check_outputs([output, report], inputs)
    if preferences is not None:
        _refuse_with_preferences(data, reading, options)
    if report is not None:
        from ..report.html import require_parts

        require_parts()
    with progress(6, quiet=quiet, verbose=verbose) as tell, collected_warnings() as warned:
        tell("reading " + ", ".join(path.name for path in inputs))
        problem, memory = _read(data, preferences, reading, options)

        from ..training.train import train as train_model

        model, found = train_model(problem, options, tell=tell)
    found = replace(
        found,
        files=files.describe_files(inputs),
        command=_typed(context),
        model_file=output.name,
        notes=(*found.notes, *warned),
        seconds=time.perf_counter() - start,
    )
    _write(model, found, _metadata(found, memory, within_queries), output, report)
    if as_json:
        written = {"model": str(output), "report": None if report is None else str(report)}
        print_json({**found.to_dict(), **written})
    elif not quiet:
        _show(found, output, report)


def _read(
    paths: list[Path], preferences: Path | None, reading: files.Reading, options: TrainingOptions
) -> tuple[Problem, dict[str, Any]]:
    """What is to be learned, and what the model must remember of how it was read."""
    if preferences is None:
        from ..training.ranking import RankingProblem

        data = files.read(paths, reading)
        problem = RankingProblem(data, options)
        problem.title = f"Ranking model from {_together(paths)}"
        return problem, files.remember(paths[0], reading, data)
    from ..io import read_preferences
    from ..training.preference import PreferenceProblem

    reading = replace(reading, target=None, query=None)
    names = ("format", "item", "features", "drop", "encode", "missing")
    pairs = read_preferences(paths[0], preferences, **{name: getattr(reading, name) for name in names})
    source = f"{paths[0].name} and {preferences.name}"
    return PreferenceProblem(pairs, options, source), files.remember(paths[0], reading, pairs)


def _refuse_with_relation(context: typer.Context) -> None:
    """Options that a relation would ignore."""
    used = {"output", "report", "rows", "columns", "pairs", "hold_out", "kernel", "gamma", "alphas"}
    used |= {"as_json", "quiet", "verbose"}
    for parameter in context.command.params:
        name = str(parameter.name)
        given = getattr(context.get_parameter_source(name), "name", "") == "COMMANDLINE"
        if given and name not in used:
            what = parameter.opts[0] if parameter.param_type_name == "option" else "DATA"
            raise ValueError(f"{what} would be ignored with --rows and --pairs: leave it out.")


def _refuse_with_preferences(paths: list[Path], reading: files.Reading, options: TrainingOptions) -> None:
    if len(paths) != 1:
        raise ValueError(f"--preferences goes with one table of items: found {len(paths)} files.")
    ignored = [
        option
        for option, given in (
            ("--target", reading.target != "auto"),
            ("--query", reading.query not in ("auto", None)),
            ("--within-queries", options.within_queries),
            ("--delimiter", reading.delimiter is not None),
            ("--columns", reading.columns is not None),
        )
        if given
    ]
    if ignored:
        raise ValueError(
            f"{ignored[0]} would be ignored with --preferences, which compare items directly: leave it out."
        )
    if options.learner not in (Learner.auto, Learner.rankrls):
        raise ValueError(
            f"--learner {options.learner.value} does not learn from --preferences here: use --learner rankrls."
        )


def _check_time_limit(options: TrainingOptions, preferences: Path | None) -> None:
    if options.time_limit is None:
        return
    if not options.time_limit > 0:
        raise ValueError(f"--time-limit must be a positive number of seconds: found {options.time_limit:g}.")
    if options.learner is not Learner.auto or options.asks_for_a_kernel or preferences is not None:
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


def _metadata(report: TrainingReport, memory: dict[str, Any], within_queries: bool) -> dict[str, Any]:
    plain = report.to_dict()
    kept = {name: plain[name] for name in ("files", "choices", "seed", "unit")}
    estimate = {name: plain["estimate"][name] for name in ("measure", "value", "interval", "held_out")}
    return {
        "command": "train",
        "reading": memory,
        "within_queries": within_queries,
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
