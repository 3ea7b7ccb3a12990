"""``preflearn parses``: put the parses of a sentence in order.

Parses come from a file of JSON lines (`preflearn_papers.parses.read_linkages`), or from link-grammar where its command
``link-parser`` is installed.
"""

from __future__ import annotations

import json
import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from . import command_group

if TYPE_CHECKING:
    from ..parses import RankedParse, Sentence

app = command_group("parses", "Put the parses of a sentence in order.")


class Tags(StrEnum):
    given = "given"
    spelling = "spelling"


class Kind(StrEnum):
    context = "context"
    links = "links"


@app.command()
def train(
    data: Annotated[
        Path, typer.Argument(metavar="DATA", help="Scored parses, JSON lines, plain or compressed.")
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="File for the model.")],
    tags: Annotated[
        Tags,
        typer.Option(
            help="Parts of speech of the file, or classes of words by spelling, as new text needs them."
        ),
    ] = Tags.spelling,
    kind: Annotated[
        Kind, typer.Option(help="Features of links alone, or of links and their surroundings.")
    ] = Kind.context,
    folds: Annotated[
        int, typer.Option(min=2, help="Number of folds of sentences for the choice of alpha.")
    ] = 5,
    seed: Annotated[int, typer.Option(min=0, help="Of the folds.")] = 0,
) -> None:
    """Learn from scored parses; alpha by cross-validation over sentences."""
    from preflearn.io import save_model
    from preflearn.tables.atomic import require_writable

    from ..parses import ParseRanker, read_linkages

    require_writable(output)
    sentences = read_linkages(data)
    n_parses = sum(len(sentence.linkages) for sentence in sentences)
    print(f"learning from {n_parses} parses of {len(sentences)} sentences", file=sys.stderr, flush=True)
    model = ParseRanker(kind.value, tags=tags.value, n_folds=folds, random_state=seed).fit(sentences)
    save_model(model, output, metadata={"data": data.name, "sentences": len(sentences), "parses": n_parses})
    typer.echo(
        f"{output}: {len(sentences)} sentences, {model.coef_.shape[0]} features, alpha {model.alpha_:g}; disagreement "
        f"error inside held-out sentences {model.held_out_error_:.3f} (the value that alpha was chosen by)"
    )


@app.command()
def rank(
    model_file: Annotated[
        Path, typer.Argument(metavar="MODEL", help="A model file written by `parses train`.")
    ],
    text: Annotated[
        str | None, typer.Argument(metavar="[TEXT]", help="One sentence, parsed by link-grammar.")
    ] = None,
    file: Annotated[
        Path | None, typer.Option("--file", help="Sentences with parses instead of a text.")
    ] = None,
    show: Annotated[int, typer.Option(min=1, help="Number of parses to show for each sentence.")] = 3,
    limit: Annotated[
        int | None, typer.Option(min=1, max=10_000, help="Maximum number of linkages (200).")
    ] = None,
    timeout: Annotated[float | None, typer.Option(help="Time limit of the parser in seconds (20).")] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON object per parse instead of text.")
    ] = False,
) -> None:
    """Show the parses of a sentence in the learned order, with their place in the parser's own."""
    from preflearn.io import load_model

    from ..parses import ParseRanker, iter_linkages, parse_text

    if (text is None) == (file is None):
        raise ValueError("Give either a TEXT to parse or a --file of sentences with parses.")
    asked = {"limit": limit, "timeout": timeout}
    given: dict[str, Any] = {name: value for name, value in asked.items() if value is not None}
    if file is not None and given:
        raise ValueError(
            f"--{next(iter(given))} is for the parser of a TEXT and would be ignored with --file."
        )
    model = load_model(model_file)
    if not isinstance(model, ParseRanker):
        raise ValueError(
            f"{model_file} holds a {type(model).__name__}: expected a model written by `preflearn parses train`."
        )
    sentences: Any = iter_linkages(file) if file is not None else [parse_text(str(text), **given)]
    for sentence in sentences:
        ranked = model.rank(sentence)[:show]
        if as_json:
            for parse in ranked:
                typer.echo(json.dumps(_as_object(sentence, parse)))
        else:
            _print(sentence, ranked)


def _as_object(sentence: Sentence, parse: RankedParse) -> dict[str, Any]:
    return {
        "sentence": sentence.id,
        "tokens": [token.text for token in sentence.tokens],
        "place": parse.place,
        "score": parse.score,
        "links": [list(link) for link in parse.linkage.links],
    }


def _print(sentence: Sentence, ranked: list[RankedParse]) -> None:
    n = len(sentence.linkages)
    typer.echo(f"{sentence.text}\n{n} {'parse' if n == 1 else 'parses'}")
    for number, parse in enumerate(ranked, start=1):
        typer.echo(f"{number}. score {parse.score:+.3f}, place {parse.place + 1} of the parser")
        typer.echo(f"   {parse.linkage}")
    typer.echo("")
