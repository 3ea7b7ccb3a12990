"""``preflearn predict``: scores of new rows by a trained model."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import Annotated, Any

import typer

from . import files, relations
from .output import QuietOption, new_console, progress

_PLAIN = (".txt", ".scores", ".pred", "")


def predict(
    model: files.ModelPath,
    data: files.DataPaths,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            help="File for the scores: .csv, .tsv, .jsonl, .parquet, or .txt for scores alone.",
        ),
    ] = None,
    query: files.QueryOption = None,
    no_query: files.NoQueryOption = False,
    item: files.ItemOption = None,
    drop: files.DropOption = None,
    missing: files.MissingOption = None,
    delimiter: files.DelimiterOption = None,
    columns: files.ColumnsOption = None,
    format: files.FormatOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="JSON lines on stdout instead of CSV.")] = False,
    quiet: QuietOption = False,
) -> None:
    """Score the rows of a file that has the columns of the training; higher is better within a query."""
    if as_json and output is not None:
        raise ValueError("--json prints to stdout: with -o give a name that ends with .jsonl instead.")
    reading = files.Reading.from_options(
        format=format,
        query=query,
        no_query=no_query,
        item=item,
        drop=drop,
        missing=missing,
        delimiter=delimiter,
        columns=columns,
    )
    files.check_outputs([output], [model, *data])
    with progress(3, quiet=quiet) as tell:
        tell(f"loading {model.name}")
        ranker, metadata = files.load(model, ("train", relations.COMMAND))
        if metadata["command"] == relations.COMMAND:
            relations.predict_relation(ranker, metadata, data, output, quiet)
            return
        tell(f"reading {data[0].name}")
        rows = files.read_for(model, metadata["reading"], data, reading, with_target=False)
        tell(f"scoring {len(rows):,} rows")
        scores = files.scores_of(ranker, rows, metadata)
    labels: dict[str, Any] = {"qid": rows.qid, "item_names": rows.item_names}
    if output is None:
        _print(scores, labels, "jsonl" if as_json else "csv")
        return
    from ..io import write_scores
    from ..io.compression import split_name

    write_scores(output, scores, **({} if split_name(output)[0] in _PLAIN else labels))
    if not quiet:
        new_console().print(f"Wrote {len(scores):,} scores to {output}.", markup=False)


def _print(scores: Any, labels: dict[str, Any], kind: str) -> None:
    from ..io import write_scores

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "scores")
        write_scores(path, scores, format=kind, **labels)
        text = path.read_text(encoding="utf-8")
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader, `head` for example, has seen enough. What is still buffered must not be tried again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
