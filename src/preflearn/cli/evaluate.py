"""``preflearn evaluate``: how good a ranking is on rows with known targets."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from . import files
from .output import (
    JsonOption,
    new_console,
    print_json,
    print_notes,
    progress,
)

if TYPE_CHECKING:
    from ..io import RankingData
    from ..model_selection import Evaluation

RankerPath = Annotated[
    Path, typer.Argument(metavar="MODEL", help="A model of `preflearn train`, or a file of scores.")
]
MetricsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--metric", help="concordance, kendall_tau, ndcg@10, average_precision, precision@5, err, ..."
    ),
]


def evaluate(
    model: RankerPath,
    data: files.DataPaths,
    metric: MetricsOption = None,
    target: files.TargetOption = None,
    query: files.QueryOption = None,
    no_query: files.NoQueryOption = False,
    drop: files.DropOption = None,
    missing: files.MissingOption = None,
    delimiter: files.DelimiterOption = None,
    columns: files.ColumnsOption = None,
    format: files.FormatOption = None,
    as_json: JsonOption = False,
) -> None:
    """Measure a model, or a file of scores, on rows with known targets, with 95 % intervals over queries."""
    reading = files.Reading.from_options(
        format=format,
        target=target,
        query=query,
        no_query=no_query,
        drop=drop,
        missing=missing,
        delimiter=delimiter,
        columns=columns,
    )
    with progress(2) as tell:
        tell(f"reading {data[0].name}")
        rows = read_known(model, data, reading)
        tell("scoring and measuring")
        scores, note = files.scores_of_ranker(model, data, reading, len(rows))

        from ..model_selection import evaluate_scores

        found = evaluate_scores(rows.y, scores, rows.qid, metrics=metric)
    found = replace(found, notes=((note,) if note else ()) + found.notes)
    if as_json:
        print_json({"model": str(model), **found.to_dict()})
    else:
        _show(model, rows, found)


def read_known(ranker: Path, paths: list[Path], reading: files.Reading) -> RankingData:
    """The targets and queries of a file, read as the model's training data were where there is a model."""
    if files.is_model(ranker):
        _, metadata = files.load(ranker)
        return files.read_for(ranker, metadata["reading"], paths, reading, with_target=True)
    return files.read(paths, reading)


def _show(model: Path, rows: RankingData, found: Evaluation) -> None:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    console = new_console()
    console.print(Text(model.name, style="bold").append(f" on {rows.in_brief()}", style="not bold"))
    head, *lines = found.table()
    table = Table(box=box.SIMPLE)
    for k, title in enumerate(head):
        table.add_column(title, justify="right" if k else "left")
    for line in lines:
        table.add_row(*map(Text, line))
    console.print(table)
    if found.interval_methods:
        console.print(f"Intervals: {', '.join(found.interval_methods)}.", markup=False)
    print_notes(console, found.notes)
