"""``preflearn reproduce NAME``: run a published experiment and print its figures beside ours.

With ``--output`` the report is written as Markdown, JSON and (where there is a figure) SVG, and finished parts of the
work are kept there until the command ends, so that an interrupted run continues where it stopped.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from preflearn.cli.output import refuse_others

if TYPE_CHECKING:
    from preflearn_experiments.registry import Experiment
    from preflearn_experiments.report import ExperimentReport

# Every experiment in turn.
ALL = "all"


# Long: most of it declares the options of the command.
def reproduce(
    context: typer.Context,
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="An experiment (--list names them), or all.")
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(
            "--data",
            metavar="DIR",
            help="The folder that holds the data folders; by default the one that PREFLEARN_DATA names.",
        ),
    ] = None,
    trials: Annotated[int | None, typer.Option(min=1, help="Number of repetitions.")] = None,
    folds: Annotated[int | None, typer.Option(min=1, help="Fewer folds.")] = None,
    n_basis: Annotated[int | None, typer.Option(min=1, help="Number of basis vectors.")] = None,
    seed: Annotated[
        int | None, typer.Option(min=0, help="Random seed for everything drawn at random.")
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", metavar="DIR", help="Write NAME.md, .json and .svg there.")
    ] = None,
    resume: Annotated[
        Path | None,
        typer.Option(
            "--resume", metavar="FILE", help="Keep finished parts in this file and continue from them."
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of Markdown.")] = False,
    progress: Annotated[
        bool | None, typer.Option("--progress/--quiet", help="Log progress to stderr; default at a terminal.")
    ] = None,
    list_them: Annotated[bool, typer.Option("--list", help="List the experiments and stop.")] = False,
) -> None:
    """Run a published experiment, and print its figures next to ours."""
    from preflearn.tables.atomic import require_writable, require_writable_folder
    from preflearn_experiments import registry

    if list_them:
        if name is not None:
            raise ValueError(f"--list names every experiment, and {name} would be ignored: give one of them.")
        refuse_others(context, ["list_them", "as_json"], "--list")
        _print_list(registry.EXPERIMENTS, as_json)
        return
    if name is None:
        raise ValueError("Name an experiment (preflearn reproduce --list shows them), or all.")
    given = {"trials": trials, "folds": folds, "n_basis": n_basis, "seed": seed}
    given = {option: value for option, value in given.items() if value is not None}
    verbose = int(sys.stderr.isatty() if progress is None else progress)
    chosen = list(registry.EXPERIMENTS.values()) if name == ALL else [registry.get(name)]
    if data is None:
        data = _data_of_environment(chosen)
    if name == ALL:
        if resume is not None:
            raise ValueError(
                "--resume is for one experiment: with all, use --output, which keeps a file for each."
            )
        chosen = _with_data(chosen, data)
    else:
        _refuse(chosen[0], data, given, resume)
    if resume is not None:
        require_writable(resume)
    if output is not None:
        require_writable_folder(output)
        output.mkdir(parents=True, exist_ok=True)

    kept: list[Path] = []
    reports = []
    for experiment in chosen:
        units = resume
        if units is None and output is not None and "resume" in experiment.arguments():
            units = output / f"{experiment.name}.units.json"
            kept.append(units)
        report = _run(experiment, data, given, units, verbose)
        reports.append(report)
        if output is not None:
            _write(report, output)
        if not as_json:
            print(report, end="\n\n" if experiment is not chosen[-1] else "\n", flush=True)
    if as_json:
        found = [report.to_dict() for report in reports]
        print(json.dumps(found if name == ALL else found[0], indent=1))
    # Everything is written: a later run starts over.
    for path in kept:
        path.unlink(missing_ok=True)


def _data_of_environment(experiments: list[Experiment]) -> Path | None:
    """The folder that PREFLEARN_DATA names, unless no experiment needs it or it lacks what they can make."""
    named = os.environ.get("PREFLEARN_DATA")
    if not named or all(not one.folders for one in experiments):
        return None
    folder = Path(named)
    if not folder.is_dir():
        raise FileNotFoundError(f"PREFLEARN_DATA names {named}: there is no such folder.")
    only = experiments[0] if len(experiments) == 1 else None
    return None if only is not None and only.optional_data and only.missing_folders(folder) else folder


def _print_list(experiments: Mapping[str, Experiment], as_json: bool) -> None:
    if as_json:
        table = [
            {"name": e.name, "description": e.description, "folders": list(e.folders)}
            for e in experiments.values()
        ]
        print(json.dumps(table, indent=1))
        return
    width = max(len(name) for name in experiments)
    for experiment in experiments.values():
        folders = ", ".join(experiment.folders) or "makes its data"
        if experiment.optional_data:
            folders += ", or makes its data"
        print(f"{experiment.name:<{width}}  {experiment.description} ({folders})")


def _with_data(experiments: list[Experiment], data: Path | None) -> list[Experiment]:
    """Return the experiments whose data exist; name the others on standard error."""
    _refuse_no_folder(data)
    runnable = []
    for experiment in experiments:
        missing = experiment.missing_folders(data)
        # An experiment that can make its data is run on them where the folder is not there.
        if missing and not experiment.optional_data:
            print(f"preflearn: {experiment.name} left out: no folder {missing[0]}", file=sys.stderr)
        else:
            runnable.append(experiment)
    return runnable


def _refuse(experiment: Experiment, data: Path | None, given: dict[str, Any], resume: Path | None) -> None:
    """Options that the experiment does not have, and data that are not there, before any work."""
    name = experiment.name
    if data is not None and not experiment.folders:
        raise ValueError(f"{name} makes its data and takes no --data.")
    _refuse_no_folder(data)
    missing = experiment.missing_folders(data)
    if missing and data is None:
        raise ValueError(
            f"{name} reads {' and '.join(missing)}: give --data DIR, the folder that holds "
            f"{'them' if len(missing) > 1 else 'it'}. The environment variable PREFLEARN_DATA may name it, too."
        )
    if missing:
        raise FileNotFoundError(f"{name} reads {' and '.join(missing)}, which {data} does not hold.")
    arguments = experiment.arguments()
    for option in (*given, *(["resume"] if resume is not None else [])):
        if option not in arguments:
            raise ValueError(f"{name} has no --{option.replace('_', '-')}: leave it out.")


def _refuse_no_folder(data: Path | None) -> None:
    if data is not None and not data.is_dir():
        raise FileNotFoundError(f"--data {data}: there is no such folder.")


def _run(
    experiment: Experiment, data: Path | None, given: dict[str, Any], units: Path | None, verbose: int
) -> ExperimentReport:
    arguments = experiment.arguments()
    usable = data if not experiment.missing_folders(data) else None
    possible = {"data": usable, "resume": units, "verbose": verbose, **given}
    return experiment.run(**{name: value for name, value in possible.items() if name in arguments})


def _write(report: ExperimentReport, output: Path) -> None:
    from preflearn.tables.atomic import write_whole

    for suffix, text in (("md", f"{report}\n"), ("json", report.to_json() + "\n")):
        write_whole(output / f"{report.name}.{suffix}", text)
    if report.draw is not None:
        report.save_figure(output / f"{report.name}.svg")
