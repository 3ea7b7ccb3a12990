"""``preflearn predict``: scores of new rows by a trained model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from . import files, model_files, relate
from . import preferences as of_pairs
from .output import collected_warnings, new_console, progress, refuse_others, tell_notes, write_stdout
from .settings import QuietOption, ReadOption

_PLAIN = (".txt", ".scores", ".pred", "")
_RUNS = (".trec", ".run")


# Long: most of it declares the options of the command.
def predict(
    context: typer.Context,
    model: files.ModelPath,
    data: files.DataPaths,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            help="File for the scores: .csv, .tsv, .jsonl, .parquet, .trec (a run), or .txt for scores alone.",
        ),
    ] = None,
    query: files.QueryOption = None,
    no_query: files.NoQueryOption = False,
    drop: files.DropOption = None,
    text: files.TextOption = None,
    read: ReadOption = None,
    preferences: of_pairs.PreferencesOption = None,
    chosen: of_pairs.ChosenOption = None,
    rejected: of_pairs.RejectedOption = None,
    force: files.ForceOption = False,
    coverage: Annotated[
        float | None,
        typer.Option(
            "--set",
            metavar="COVERAGE",
            help="Mark the rows of each query that include the best one with this probability, such as 0.9.",
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="JSON lines on stdout instead of CSV.")] = False,
    quiet: QuietOption = False,
) -> None:
    """Score and rank the rows of a file with the same columns as the training data; higher is better within a query.

    A model of `relate` takes MODEL ROWS COLUMNS, and PAIRS to score only some pairs.
    """
    from ..comparisons.grouping import encode_queries, positions_in_groups
    from ..tables.writing import scores_as_text

    if as_json and output is not None:
        raise ValueError("--json prints to stdout: with -o give a name that ends with .jsonl instead.")
    reading = files.Reading.from_options(
        read, query=query, no_query=no_query, drop=drop, text=text, unused=["weight", "prompt", "skip_bad"]
    )
    files.check_outputs([output], [model, *data, *([preferences] if preferences else [])], force)
    if (preferences, chosen, rejected, text) == (None, None, None, None):
        chosen, rejected = of_pairs.texts_of_training(model, data, reading) or (None, None)
    source = of_pairs.Source.from_options(preferences, chosen, rejected, None)
    is_relation = model.is_file() and model_files.is_model(model) and relate.is_relation(model)
    if is_relation:
        refuse_others(context, ["output", "force", "quiet"], f"{model.name}, a model of pairs")
    if coverage is not None:
        _check_set(coverage, output, preferences=bool(source))
    if source:
        if text is not None:
            raise ValueError(
                "--text names texts to put in order, and --preferences or --chosen compares pairs: leave --text out."
            )
        of_pairs.check_output(output)
        found, _ = of_pairs.score_pairs(model, source, data, reading)
        of_pairs.write_pairs(found, (chosen or "winner", rejected or "loser"), output, as_json)
        if output is not None and not quiet:
            new_console().print(f"Wrote {len(found.pairs):,} differences to {output}.", markup=False)
        return
    with progress(3, quiet=quiet) as tell, collected_warnings() as warned:
        tell(f"loading {model.name}")
        if is_relation:
            relate.predict_relation(model, data, output, quiet)
            return
        saved = model_files.load(model)
        tell(f"reading {data[0].name}")
        if text is not None and saved.memory["kind"] != "texts":
            raise ValueError(f"--text is for a model of texts, which {model.name} is not: leave it out.")
        rows = model_files.read_for(model, saved, data, reading, with_target=False)
        tell(f"scoring {len(rows):,} rows")
        scores = saved.predict(rows)
        in_set = None if coverage is None else _rows_in_set(model, saved, scores, rows.qid, coverage)
    if not quiet:
        tell_notes(warned)
    labels: dict[str, Any] = {
        "qid": rows.qid,
        "item_names": rows.item_names,
        "rank": positions_in_groups(scores, encode_queries(rows.qid, len(scores))),
        "in_set": in_set,
    }
    labels |= {"query_column": rows.query or "qid", "item_column": rows.item or "item"}
    if rows.text is not None and rows.item is None:  # a text is its own name
        labels |= {"item_names": rows.X, "item_column": rows.text}
    if output is None:
        write_stdout(scores_as_text(scores, "jsonl" if as_json else "csv", **labels))
        return
    wrote = _write(output, scores, rows, labels, model.stem)
    if not quiet:
        new_console().print(f"Wrote {wrote} to {output}.", markup=False)


def _write(output: Path, scores: Any, rows: model_files.Rows, labels: dict[str, Any], tag: str) -> str:
    """Write a TREC run, or scores; what was written, in words."""
    from ..tables.streams import split_name
    from ..tables.writing import write_run, write_scores

    if output.suffix in _RUNS:
        write_run(output, scores, *_labels_of(rows, len(scores)), tag=tag)
        return f"a run of {len(scores):,} items"
    write_scores(output, scores, **({} if split_name(output)[0] in _PLAIN else labels))
    return f"{len(scores):,} scores"


def _check_set(coverage: float, output: Path | None, *, preferences: bool) -> None:
    """Refuse what --set cannot be used with, before anything is read."""
    from ..model_selection.calibrated import read_share
    from ..tables.streams import split_name

    read_share(coverage, "--set coverage")
    if preferences:
        raise ValueError("--set is for the rows of queries, and preferences are pairs: leave it out.")
    if output is not None and (split_name(output)[0] in _PLAIN or output.suffix in _RUNS):
        raise ValueError(
            f"--set marks rows, and {output.name} has scores alone: write .csv, .tsv, .jsonl or .parquet."
        )


def _rows_in_set(model: Path, saved: Any, scores: Any, qid: Any, coverage: float) -> Any:
    """Which rows are in the set of their query."""
    from ..model_selection.conformal import StoredSets

    found = StoredSets.from_dict(saved.metadata.get("sets"))
    if found is None:
        raise ValueError(
            f"{model.name} holds no sets: it was trained without queries, with too few of them, or by an earlier "
            "version. Train it again with --query, or leave --set out."
        )
    return found.shown(scores, qid, coverage)


def _labels_of(rows: model_files.Rows, n: int) -> tuple[Any, Any]:
    """Query and item of each row; one query, and the numbers of the rows, where there are none."""
    import numpy as np

    return np.full(n, "1") if rows.qid is None else rows.qid, (
        np.arange(1, n + 1) if rows.item_names is None else rows.item_names
    )
