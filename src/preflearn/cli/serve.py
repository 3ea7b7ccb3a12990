"""``preflearn serve``: rank items over HTTP with a saved model."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .output import QuietOption

if TYPE_CHECKING:
    from ..web.serving import Scorer

_FIRST_PORT = 8000


def serve(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="A model file.")],
    port: Annotated[
        int | None,
        typer.Option("--port", help=f"Port, 0 for any. Default: the first free from {_FIRST_PORT} on."),
    ] = None,
    host: Annotated[
        str, typer.Option("--host", help="Address to listen on; others than this machine can reach 0.0.0.0.")
    ] = "127.0.0.1",
    quiet: QuietOption = False,
) -> None:
    """Rank items over HTTP: POST /rank, GET /schema, /health and /metrics."""
    try:
        from ..web.server import address_of, bind
        from ..web.server import serve as serve_until_stopped
        from ..web.serving import serve_app
    except ImportError as error:
        raise ImportError(
            f"`preflearn serve` needs {error.name}: install preflearn with its extra 'web'."
        ) from None

    scorer = _scorer(model)
    listener = bind(host, port, _FIRST_PORT)

    def ready() -> None:
        print(address_of(listener), flush=True)
        if not quiet:
            typer.echo(f"Serving {scorer.name} with {len(scorer.features)} features. Ctrl-C stops.", err=True)

    serve_until_stopped(serve_app(scorer), listener, ready)
    if not quiet:
        typer.echo("Stopped.", err=True)


def _scorer(path: Path) -> Scorer:
    """How the model of a file takes items: as a table, or as a matrix with the names that are known."""
    from ..io import load_model, model_info
    from ..preprocessing.table import table_encoder
    from ..web.serving import feature_names, matrix_scorer, table_scorer

    found = load_model(path)
    metadata = model_info(path)["metadata"]
    memory: dict[str, Any] = metadata.get("reading", {}) if metadata.get("command") == "train" else {}
    encoder = table_encoder(found)
    if encoder is not None:
        return table_scorer(found, encoder, memory.get("columns", ()))
    if memory.get("kind") == "letor":
        # Files of this kind leave zeros out.
        return matrix_scorer(found, list(memory["features"]), absent=0.0)
    return matrix_scorer(found, feature_names(found))
