"""``preflearn serve``: rank items over HTTP with a saved model."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from . import files
from .output import QuietOption

if TYPE_CHECKING:
    from ..web.serving import Scorer

_FIRST_PORT = 8000


def serve(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="A model file.")],
    port: Annotated[
        int | None,
        typer.Option("--port", help=f"Port, 0 for any. [default: the first free from {_FIRST_PORT} on]"),
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
    """How the model of a file takes items: by what `preflearn train` remembers, by its own table, or as a matrix."""
    import numpy as np

    from ..io import load_model, model_info
    from ..preprocessing import TableEncoder
    from ..web.serving import feature_names, matrix_scorer, table_scorer

    found = load_model(path)
    metadata = model_info(path)["metadata"]
    first = found[0] if hasattr(found, "steps") else found
    if isinstance(first, TableEncoder):
        return table_scorer(found, first)
    if getattr(found, "encoder_", None) is not None:  # an AutoRanker of a data frame
        return table_scorer(found, found.encoder_)
    memory: dict[str, Any] = metadata.get("reading", {}) if metadata.get("command") == "train" else {}
    if not memory:
        return matrix_scorer(found, feature_names(found))
    missing = ... if memory.get("missing") is None else memory["missing"]

    def within_request(X: np.ndarray) -> Any:
        return files.prepared(X, np.zeros(X.shape[0], dtype=np.int64), dict(metadata))

    prepare = within_request if metadata.get("within_queries") else None

    if memory["kind"] == "letor":
        # Files of this kind leave zeros out.
        return matrix_scorer(found, list(memory["features"]), absent=0.0, prepare=prepare)
    aside = [memory.get(role) for role in ("target", "query", "item")]
    return matrix_scorer(
        found,
        memory["numbers"],
        absent=missing,
        encoders=files.encoders_of(memory),
        prepare=prepare,
        ignored=frozenset([*(one for one in aside if one), *memory["others"]]),
    )
