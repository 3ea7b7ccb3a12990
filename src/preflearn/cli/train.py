"""``preflearn train``: a ranker from a file, with alpha by cross-validation, a model file and a report."""

from __future__ import annotations

import shlex
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from preflearn.cli import files
from preflearn.cli.output import (
    JsonOption,
    QuietOption,
    Tell,
    VerboseOption,
    collected_warnings,
    new_console,
    print_json,
    print_notes,
    progress,
    refuse_both,
    speaking_of_options,
)
from preflearn.cli.recipe import KernelName, Learner
from preflearn.cli.relations import train_relation

if TYPE_CHECKING:
    from preflearn.cli.recipe import Recipe
    from preflearn.report import TrainingReport

_NAMES = {Learner.rankrls: "RankRLS", Learner.rls: "RLS", Learner.ranksvm: "RankSVM"}


def train(
    context: typer.Context,
    output: Annotated[Path, typer.Option("--output", "-o", help="File for the model (.preflearn).")],
    data: files.OptionalDataPaths = None,
    report: Annotated[
        Path | None, typer.Option("--report", help="Write an HTML report to this file.")
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
    learner: Annotated[Learner, typer.Option("--learner", help="What is learned.")] = Learner.rankrls,
    kernel: Annotated[
        KernelName, typer.Option("--kernel", help="auto: RBF, or linear for sparse and very wide data.")
    ] = KernelName.auto,
    gamma: Annotated[
        float | None, typer.Option("--gamma", help="Of the kernel. [default: from the median distance]")
    ] = None,
    degree: Annotated[
        int | None, typer.Option("--degree", min=1, help="Of the polynomial kernel. [default: 3]")
    ] = None,
    n_basis: Annotated[
        int | None, typer.Option("--n-basis", min=1, help="Basis vectors. [default: 500 over 2,000 rows]")
    ] = None,
    alphas: Annotated[
        str, typer.Option("--alphas", help="auto, or positive numbers with commas between.")
    ] = "auto",
    within_queries: Annotated[
        bool, typer.Option("--within-queries", help="Standardise the features within each query.")
    ] = False,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Of basis vectors and folds.")] = 0,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
    verbose: VerboseOption = False,
) -> None:
    """Learn to rank from a file: choose alpha by exact cross-validation, save the model, write a report."""
    refuse_both(quiet, as_json, "--json")
    refuse_both(quiet, verbose, "--verbose")
    start = time.perf_counter()
    reading = files.Reading.from_options(
        format=format, target=target, query=query, no_query=no_query, item=item, features=features, drop=drop,
        encode=encode, missing=missing, delimiter=delimiter, columns=columns,
    )  # fmt: skip
    grid = _read_alphas(alphas)
    if gamma is not None and not 0 < gamma < float("inf"):
        raise ValueError(f"--gamma must be a positive number: found {gamma:g}.")
    if rows is not None or pairs is not None or hold_out is not None:
        _refuse_with_relation(context)
        train_relation(
            rows, columns, pairs, output, report, hold_out=hold_out, gamma=gamma, alphas=grid,
            kernel="rbf" if kernel is KernelName.auto else kernel.value, command=_typed(context),
            as_json=as_json, quiet=quiet, verbose=verbose,
        )  # fmt: skip
        return
    if not data:
        raise ValueError(
            "Missing argument 'DATA...': a file to learn from (preflearn train --help tells more)."
        )
    inputs = [*data, *([preferences] if preferences is not None else [])]
    files.check_outputs([output, report], inputs)
    if report is not None:
        from preflearn.report.html import require_parts

        require_parts()
    options = {"kernel": kernel, "gamma": gamma, "degree": degree, "n_basis": n_basis, "seed": seed}
    with progress(7, quiet=quiet, verbose=verbose) as tell, collected_warnings() as warned:
        if preferences is None:
            work: Any = _Training(data, reading, learner, within_queries, options, grid, tell, verbose)
        else:
            if len(data) != 1:
                raise ValueError(f"--preferences goes with one table of items: found {len(data)} files.")
            _refuse_with_preferences(reading, learner, within_queries)
            work = _PreferenceTraining(data[0], preferences, reading, options, grid, tell)
        model, contents, metadata = work()
        contents = replace(
            contents, command=_typed(context), seconds=time.perf_counter() - start, model_file=output.name
        )
        page = None
        if report is not None:
            tell("writing the report")
            from preflearn.report import render_report

            page = render_report(replace(contents, notes=(*contents.notes, *warned)))
    contents = replace(contents, notes=(*contents.notes, *warned), seconds=time.perf_counter() - start)
    if report is not None and warned:
        from preflearn.report import render_report

        page = render_report(contents)
    _write(model, contents, metadata, output, report, page)
    if as_json:
        print_json(
            {**contents.to_dict(), "model": str(output), "report": None if report is None else str(report)}
        )
    elif not quiet:
        _show(contents, output, report)


class _Training:
    """From a file of targets to a model and what is said about it."""

    def __init__(self, paths, reading, learner, within_queries, options, alphas, tell: Tell, verbose: bool):
        self.paths, self.reading, self.learner = paths, reading, learner
        self.within_queries, self.options, self.alphas = within_queries, options, alphas
        self.tell, self.verbose = tell, verbose

    def __call__(self) -> tuple[Any, TrainingReport, dict[str, Any]]:
        from sklearn.pipeline import Pipeline

        from preflearn import __version__
        from preflearn.cli import learning, recipe
        from preflearn.report import Choice, TrainingReport

        self.tell("reading " + ", ".join(path.name for path in self.paths))
        data = files.read(self.paths, self.reading)
        notes = learning.check_data(data)
        X = recipe.standardise_within_queries(data.X, data.qid) if self.within_queries else data.X
        self.tell("scaling, kernel and basis vectors")
        with speaking_of_options():
            how = recipe.choose(X, learner=self.learner, within_queries=self.within_queries, **self.options)
            task = learning.make_task(data, how, self.learner, self.options["seed"])
            self.tell(f"choosing alpha by {task.how}")
            learned = learning.search(self.learner, how.X, how.kernel, self.alphas, task, int(self.verbose))
        path = learned.path
        why = f"best of {len(path.alphas)} by {task.how}" if len(path.alphas) > 1 else "as asked"
        how.choices.append(Choice("alpha", f"{path.chosen:.4g}", why))
        model = Pipeline([*how.steps, ("learn", learned.search)])
        self.tell("estimating the held-out concordance")
        found, roc = learning.estimate(self.learner, how.X, how.kernel, learned, task)
        self.tell("comparing with baselines")
        name = f"{_NAMES[self.learner]}, {_kernel_name(how)} (this model)"
        rows, rows_note = learning.baselines(name, self.learner, how, learned, task, X, data.feature_names)
        self.tell("measuring the influence of the features")
        coef = getattr(learned.search, "coef_", None)
        influence, influence_note = learning.influence(model, how, coef, X, task, data.feature_names)
        described = files.describe_files(self.paths)
        report = TrainingReport(
            title=f"Ranking model from {_together(self.paths)}",
            files=described, data=_describe(data, self.reading, self.paths[0]), choices=tuple(how.choices),
            alpha_path=path, estimate=found, unit=task.unit, labels=task.labels, values=learned.values,
            sizes=task.units.counts, baselines=rows, baselines_note=rows_note, influence=influence,
            influence_note=influence_note, roc=roc, notes=tuple(notes), command="", seed=task.seed,
            version=__version__, seconds=0.0, model_file="",
        )  # fmt: skip
        memory = files.remember(self.paths[0], self.reading, data)
        return model, report, _metadata(report, memory, self.within_queries)


class _PreferenceTraining:
    """From a table of items and one of preferences to a model and what is said about it."""

    def __init__(self, items: Path, pairs: Path, reading: files.Reading, options, alphas, tell: Tell):
        self.items, self.pairs, self.reading = items, pairs, reading
        self.options, self.alphas, self.tell = options, alphas, tell

    def __call__(self) -> tuple[Any, TrainingReport, dict[str, Any]]:
        import numpy as np
        from sklearn.pipeline import Pipeline

        from preflearn import __version__
        from preflearn.cli import learning, recipe
        from preflearn.io import read_preferences
        from preflearn.report import Choice, TrainingReport

        self.tell(f"reading {self.items.name} and {self.pairs.name}")
        names = ("format", "item", "features", "drop", "encode", "missing")
        reading = replace(self.reading, target=None, query=None)
        with speaking_of_options():
            data = read_preferences(
                self.items, self.pairs, **{name: getattr(reading, name) for name in names}
            )
            self.tell("scaling, kernel and basis vectors")
            how = recipe.choose(
                data.X, learner=Learner.rankrls, within_queries=False, rows_leave=False, **self.options
            )
            self.tell("choosing alpha by exact leave-preference-out")
            trained, path, found = learning.learn_preferences(data, how, self.alphas)
        why = (
            f"best of {len(path.alphas)} by exact leave-preference-out"
            if len(path.alphas) > 1
            else "as asked"
        )
        how.choices.append(Choice("alpha", f"{path.chosen:.4g}", why))
        model = Pipeline([*how.steps, ("learn", trained)])
        self.tell("comparing with baselines")
        rows, rows_note = learning.preference_baselines(
            f"RankRLS, {_kernel_name(how)} (this model)", data, found
        )
        coef = getattr(trained, "coef_", None)
        influence, influence_note = learning.influence(model, how, coef, data.X, None, data.feature_names)
        described = {
            "summary": repr(data).removeprefix("PreferenceData: "),
            "preferences": f"{len(data):,}",
            "rows": f"{data.X.shape[0]:,} items",
            "features": f"{data.X.shape[1]:,}",
        }
        empty = np.empty(0)
        report = TrainingReport(
            title=f"Preference model from {self.items.name} and {self.pairs.name}",
            files=files.describe_files([self.items, self.pairs]), data=described, choices=tuple(how.choices),
            alpha_path=path, estimate=found, unit="preference", labels=empty, values=empty, sizes=empty,
            baselines=rows, baselines_note=rows_note, influence=influence, influence_note=influence_note,
            command="", seed=self.options["seed"], version=__version__, seconds=0.0, model_file="",
        )  # fmt: skip
        return model, report, _metadata(report, files.remember(self.items, reading, data), False)


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


def _refuse_with_preferences(reading: files.Reading, learner: Learner, within_queries: bool) -> None:
    ignored = [
        option
        for option, given in (
            ("--target", reading.target != "auto"),
            ("--query", reading.query not in ("auto", None)),
            ("--within-queries", within_queries),
            ("--delimiter", reading.delimiter is not None),
            ("--columns", reading.columns is not None),
        )
        if given
    ]
    if ignored:
        raise ValueError(
            f"{ignored[0]} would be ignored with --preferences, which compare items directly: leave it out."
        )
    if learner is not Learner.rankrls:
        raise ValueError(
            f"--learner {learner.value} does not learn from --preferences here: use --learner rankrls."
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
            f"--alphas must be auto or positive numbers with commas between, as 0.1,1,10: found {text!r}."
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


def _describe(data: Any, reading: files.Reading, path: Path) -> dict[str, str]:
    lines = dict(line.split(None, 1) for line in data.summary().splitlines())
    names = data.feature_names
    shown = ", ".join(names[:12]) + (f" and {len(names) - 12:,} more" if len(names) > 12 else "")
    summary = repr(data).removeprefix("RankingData: ")
    features = lines["features"].replace(",", " (", 1) + ")"
    if "," in lines["features"].split(" ", 1)[0]:
        count, rest = lines["features"].split(", ", 1)
        features = f"{count} ({rest})"
    return {
        "summary": summary,
        "rows": lines["rows"],
        "queries": lines["queries"],
        "features": features,
        "names": shown if not names[0].isdigit() else f"numbered 1 to {len(names):,}",
        "targets": lines["targets"],
    }


def _kernel_name(how: Recipe) -> str:
    return (
        next(choice.value for choice in how.choices if choice.name == "kernel").split(",")[0].split(" of ")[0]
        + " kernel"
    )


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
    model: Any,
    report: TrainingReport,
    metadata: dict[str, Any],
    output: Path,
    report_file: Path | None,
    page: str | None,
) -> None:
    """Everything that can fail has been done: the model appears whole, then the report."""
    from preflearn.io import save_model
    from preflearn.io.atomic import atomic_write

    save_model(model, output, metadata=metadata)
    if report_file is not None and page is not None:
        with atomic_write(report_file) as file:
            file.write(page.encode())


def _show(report: TrainingReport, output: Path, report_file: Path | None) -> None:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    console = new_console()
    console.print(Text(report.title, style="bold").append(f": {report.data['summary']}", style="not bold"))
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
    tested = any(row.pvalue is not None for row in report.baselines)
    table = Table(box=box.SIMPLE, title="Beside simple baselines", title_justify="left", title_style="bold")
    table.add_column("ordered by")
    table.add_column(found.measure, justify="right")
    if tested:
        table.add_column("better / worse / level", justify="right")
        table.add_column("p (Holm)", justify="right")
    for row in report.baselines:
        style = "bold" if row.is_model else ""
        cells: list[Any] = [Text(row.name), f"{row.value:.4f}"]
        if tested:
            counted = "" if row.better is None else f"{row.better} / {row.worse} / {row.level}"
            cells += [counted, "" if row.pvalue is None else f"{row.pvalue:.2g}"]
        table.add_row(*cells, style=style)
    console.print(table)
    print_notes(console, report.notes)
    wrote = f"{output}" + ("" if report_file is None else f" and {report_file}")
    console.print(Text(f"Wrote {wrote} in {report.seconds:.1f} s."))
