"""``preflearn evaluate``: how good a ranking is on rows with known targets."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from preflearn.cli import files
from preflearn.cli.output import (
    JsonOption,
    new_console,
    print_json,
    print_notes,
    progress,
    speaking_of_options,
)

if TYPE_CHECKING:
    import numpy as np

    from preflearn.io import RankingData

DEFAULT_METRICS = ("concordance", "kendall_tau", "ndcg@10", "average_precision", "reciprocal_rank")
TITLES = {
    "concordance": "concordance",
    "kendall_tau": "Kendall tau-b",
    "average_precision": "MAP",
    "reciprocal_rank": "MRR",
}
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
        measured, notes = measure(rows, scores, metric)
    notes = ([note] if note else []) + notes
    if as_json:
        print_json(
            {
                "model": str(model),
                "rows": len(rows),
                "queries": _n_queries(rows),
                "metrics": measured,
                "notes": notes,
            }
        )
    else:
        _show(model, rows, measured, notes)


def read_known(ranker: Path, paths: list[Path], reading: files.Reading) -> RankingData:
    """The targets and queries of a file, read as the model's training data were where there is a model."""
    if files.is_model(ranker):
        _, metadata = files.load(ranker)
        return files.read_for(ranker, metadata["reading"], paths, reading, with_target=True)
    return files.read(paths, reading)


def measure(
    rows: RankingData, scores: np.ndarray, metrics: list[str] | None
) -> tuple[list[dict[str, Any]], list[str]]:
    """Each metric with its interval; metrics that were not asked for and are not defined here become notes."""
    from preflearn.metrics import get_scorer

    found, notes = [], []
    with speaking_of_options():
        scorers = {name: get_scorer(name) for name in metrics or DEFAULT_METRICS}
    for name, scorer in scorers.items():
        try:
            per_query = scorer.per_query(rows.y, scores, rows.qid)
            if per_query.mean != per_query.mean:
                raise ValueError(f"{name} is defined in no query: targets or scores are all tied.")
        except ValueError as error:
            if metrics:
                raise
            notes.append(f"{_title(name)} is left out: {error}")
            continue
        interval, method = _interval(name, per_query, rows, scores)
        defined = int((per_query.values == per_query.values).sum())
        found.append(
            {
                "metric": name,
                "value": per_query.mean,
                "interval": interval,
                "queries": defined if rows.qid is not None else None,
                "interval_method": method,
            }
        )
    if not found:
        raise ValueError(
            f"{rows.source}: no metric is defined: {notes[0] if notes else 'none was asked for'}"
        )
    return found, notes


def _interval(
    name: str, per_query: Any, rows: RankingData, scores: Any
) -> tuple[list[float] | None, str | None]:
    import numpy as np

    from preflearn.comparisons import one_group
    from preflearn.model_selection.intervals import mean_interval, placement_variance, wilson_interval
    from preflearn.selection.tally import tally_scores

    values = per_query.values[~np.isnan(per_query.values)]
    if rows.qid is not None:
        if values.size < 2:
            return None, None
        if name == "kendall_tau":  # -1 .. 1 instead of 0 .. 1
            low, high = mean_interval((values + 1) / 2)[1]
            return [2 * low - 1, 2 * high - 1], "Student's t over queries"
        return list(mean_interval(values)[1]), "Student's t over queries"
    if name != "concordance":
        return None, None
    assert rows.y is not None
    m = len(rows)
    tally = tally_scores(rows.y, np.asarray(scores), one_group(m))
    levels, codes = np.unique(rows.y, return_inverse=True)
    strata = codes if levels.size == 2 else np.zeros(m, dtype=np.int64)
    interval = wilson_interval(tally.share, placement_variance(tally, strata), 4 * tally.n_pairs / m)
    return list(interval), "placement values of the rows, in Wilson's form"


def _title(name: str) -> str:
    base, at, k = name.partition("@")
    return TITLES.get(base, base.replace("_", " ") if base != "ndcg" else "NDCG") + at + k


def _n_queries(rows: RankingData) -> int | None:
    return None if rows.qid is None else rows.n_queries


def _show(model: Path, rows: RankingData, measured: list[dict[str, Any]], notes: list[str]) -> None:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    console = new_console()
    console.print(
        Text(model.name, style="bold").append(
            f" on {repr(rows).removeprefix('RankingData: ')}", style="not bold"
        )
    )
    table = Table(box=box.SIMPLE)
    table.add_column("metric")
    for title in ("value", "95 % interval", "queries"):
        table.add_column(title, justify="right")
    for one in measured:
        interval = "" if one["interval"] is None else f"{one['interval'][0]:.4f} to {one['interval'][1]:.4f}"
        table.add_row(
            _title(one["metric"]),
            f"{one['value']:.4f}",
            interval,
            "" if one["queries"] is None else str(one["queries"]),
        )
    console.print(table)
    methods = {one["interval_method"] for one in measured if one["interval_method"]}
    if methods:
        console.print(f"Intervals: {', '.join(sorted(methods))}.", markup=False)
    print_notes(console, notes)
