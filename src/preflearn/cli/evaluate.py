"""``preflearn evaluate``: how good a ranking is on rows with known targets."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from . import files, model_files, relate
from . import preferences as of_pairs
from .output import (
    collected_warnings,
    new_console,
    print_json,
    print_notes,
    print_table,
    progress,
    refuse_others,
)
from .settings import EvaluateReadOption, JsonOption

if TYPE_CHECKING:
    from ..model_selection import Evaluation

RankerPath = Annotated[
    Path, typer.Argument(metavar="MODEL", help="A model written by `preflearn train`, or a file of scores.")
]
MetricsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--metric",
        help="concordance, kendall_tau, ndcg@10, map, mrr, precision@5, err, ... (repeat, or separate with commas).",
    ),
]


# Long: most of it declares the options of the command.
def evaluate(
    context: typer.Context,
    model: RankerPath,
    data: Annotated[
        list[Path] | None,
        typer.Argument(metavar="DATA...", help="Rows with known targets; none with --qrels."),
    ] = None,
    metric: MetricsOption = None,
    qrels: Annotated[
        Path | None,
        typer.Option("--qrels", help="TREC judgements; MODEL is then a TREC run, and there is no DATA."),
    ] = None,
    target: files.TargetOption = None,
    query: files.QueryOption = None,
    no_query: files.NoQueryOption = False,
    event: files.EventOption = None,
    group: files.GroupOption = None,
    drop: files.DropOption = None,
    read: EvaluateReadOption = None,
    preferences: of_pairs.PreferencesOption = None,
    chosen: of_pairs.ChosenOption = None,
    rejected: of_pairs.RejectedOption = None,
    judge: of_pairs.JudgeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Measure a model, or a file of scores, on rows with known targets, with 95 % intervals over queries."""
    metrics = files.split_names(metric, "--metric")
    if qrels is not None:
        refuse_others(context, ["qrels", "metric", "as_json"], "--qrels")
        _evaluate_run(model, qrels, data, metrics, as_json)
        return
    if not data:
        raise ValueError("evaluate needs DATA, rows with known targets, or --qrels FILE for a TREC run.")
    if model.is_file() and model_files.is_model(model) and relate.is_relation(model):
        refuse_others(context, ["as_json"], f"{model.name}, a model of pairs")
        relate.evaluate_relation(model, data, as_json)
        return
    unused = ["item", "weight", "prompt"]
    reading = files.Reading.from_options(
        read,
        target=target,
        query=query,
        no_query=no_query,
        drop=drop,
        group=group,
        event=event,
        unused=unused,
    )
    if (preferences, chosen, rejected) == (None, None, None):
        chosen, rejected = of_pairs.texts_of_training(model, data, reading) or (None, None)
    source = of_pairs.Source.from_options(preferences, chosen, rejected, judge)
    if source:
        reading.refuse_labels("what one judge says depends on each other: pass --judge")
        if metrics is not None:
            raise ValueError(
                "--metric would be ignored with preferences, where the share in the right order is reported: leave it "
                "out."
            )
        _evaluate_pairs(model, source, data, reading, as_json)
        return
    with progress(2) as tell, collected_warnings() as warned:
        tell(f"reading {data[0].name}")
        rows = model_files.read_known(model, data, reading)
        tell("scoring and measuring")
        scores, note = model_files.scores_of_ranker(model, data, reading, rows.n_read)

        from ..model_selection import evaluate_scores

        found = evaluate_scores(rows.y, rows.of_kept(scores), rows.qid, metrics=metrics, groups=rows.clusters)
    warned = [one for one in warned if "left out of" not in one]  # which `rows` says
    found = replace(found, notes=(*filter(None, (note, rows.left_out)), *warned, *found.notes))
    if as_json:
        print_json({"model": str(model), **found.to_dict()})
    else:
        _show(model, rows.brief, found)


def _evaluate_run(
    run: Path, qrels: Path, data: list[Path] | None, metrics: tuple[str, ...] | None, as_json: bool
) -> None:
    """A TREC run by TREC judgements."""
    if data:
        raise ValueError("--qrels holds the judgements of a TREC run: leave DATA out.")
    from ..model_selection import evaluate_scores
    from ..tables.writing import judge_run, read_qrels, read_run

    found = read_run(run)
    judged = judge_run(found, read_qrels(qrels))
    result = evaluate_scores(judged.y, judged.scores, judged.qid, metrics=metrics)
    result = replace(result, notes=(*judged.notes, *result.notes))
    if as_json:
        print_json({"model": str(run), **result.to_dict()})
        return
    brief = f"{len(judged.y):,} items of {len({*judged.qid.tolist()}):,} queries ({qrels.name})"
    _show(run, brief, result)


def _evaluate_pairs(
    model: Path, source: of_pairs.Source, data: list[Path], reading: files.Reading, as_json: bool
) -> None:
    from ..model_selection import evaluate_preference_scores

    with progress(2) as tell, collected_warnings() as warned:
        tell(f"reading {data[0].name}")
        pairs, metadata = of_pairs.score_pairs(model, source, data, reading)
        found = evaluate_preference_scores(pairs.scores, pairs.pairs, judge=pairs.judge)
    notes = [*warned]
    note = model_files.same_as_training(metadata, source.all_files(data))
    if note is not None:
        notes.insert(0, note)
    if pairs.lengths is not None:
        longer = evaluate_preference_scores(pairs.lengths, pairs.pairs).metrics[0].value
        notes.append(f"Always preferring the longer text would be right for {100 * longer:.1f} %.")
    found = replace(found, notes=(*notes, *found.notes))
    if as_json:
        print_json({"model": str(model), **found.to_dict()})
    else:
        _show(model, pairs.brief, found)


def _show(model: Path, brief: str, found: Evaluation) -> None:
    from rich.text import Text

    console = new_console()
    console.print(Text(model.name, style="bold").append(f" on {brief}", style="not bold"))
    head, *lines = found.table()
    print_table(console, head, lines)
    if found.interval_methods:
        console.print(f"Intervals: {', '.join(found.interval_methods)}.", markup=False)
    print_notes(console, found.notes)
