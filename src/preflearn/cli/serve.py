"""``preflearn serve``: rank items over HTTP with a saved model."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import missing_extra
from . import relate
from .settings import HostOption, QuietOption, port_option

if TYPE_CHECKING:
    from ..web.serving import Scorer

_FIRST_PORT = 8000
_NO_TEXTS = "--unreadable-as-missing would be ignored: this model takes {}. Leave it out."


def serve(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="A model file.")],
    port: Annotated[int | None, port_option(_FIRST_PORT)] = None,
    host: HostOption = "127.0.0.1",
    allow_host: Annotated[
        list[str] | None,
        typer.Option(
            "--allow-host",
            metavar="NAME",
            help="Also answer requests to this name, such as one that a proxy passes on (repeat). On 127.0.0.1 only "
            "its own names are answered.",
        ),
    ] = None,
    unreadable_as_missing: Annotated[
        bool,
        typer.Option(
            "--unreadable-as-missing",
            help="Treat numbers, dates and booleans that cannot be read as missing values instead of refusing them.",
        ),
    ] = False,
    quiet: QuietOption = False,
) -> None:
    """Rank items over HTTP: POST /rank, GET /schema, /health and /metrics."""
    try:
        from ..web.requests import LOOPBACK
        from ..web.server import addresses, bind, is_loopback
        from ..web.server import serve as serve_until_stopped
        from ..web.serving import serve_app
    except ImportError as error:
        raise missing_extra("`preflearn serve`", str(error.name), "web") from None

    scorer = _scorer(model, unreadable_as_missing)
    listener = bind(host, port, _FIRST_PORT)
    names = frozenset(name.lower() for name in allow_host or ())
    hosts = LOOPBACK | names if is_loopback(host) else names or None

    def ready() -> None:
        address, outside = addresses(listener)
        print(address, flush=True)
        if not is_loopback(host):
            where = f" at {outside}" if outside else ""
            typer.echo(
                f"Warning: every machine that can reach this one can ask for scores{where}, unencrypted and without a "
                "password.",
                err=True,
            )
        if not quiet:
            typer.echo(f"Serving {scorer.name} with {len(scorer.features)} features. Ctrl-C stops.", err=True)

    serve_until_stopped(serve_app(scorer, hosts=hosts), listener, ready)
    if not quiet:
        typer.echo("Stopped.", err=True)


def _scorer(path: Path, unreadable_as_missing: bool = False) -> Scorer:
    """How the model of a file takes items, with the sets that it knows of."""
    from dataclasses import replace

    from ..model_selection import ConformalRanker
    from ..model_selection.conformal import StoredSets
    from ..tables.models.files import load_model, model_info

    found = load_model(path)
    metadata = model_info(path)["metadata"]
    sets = (
        StoredSets.of(found)
        if isinstance(found, ConformalRanker)
        else StoredSets.from_dict(metadata.get("sets"))
    )
    return replace(_plain_scorer(found, metadata, unreadable_as_missing), sets=sets)


def _plain_scorer(found: Any, metadata: dict[str, Any], unreadable_as_missing: bool) -> Scorer:
    """As a table, or as a matrix with the names that are known."""
    from ..tables.encoding.table import table_encoder
    from ..web.serving import feature_names, matrix_scorer, table_scorer

    memory: dict[str, Any] = metadata.get("reading", {}) if metadata.get("command") == "train" else {}
    if metadata.get("command") == relate.COMMAND:
        return _relation_scorer(found, metadata, unreadable_as_missing)
    encoder = table_encoder(found)
    if encoder is not None:
        return table_scorer(
            found, encoder, memory.get("columns", ()), unreadable_as_missing=unreadable_as_missing
        )
    is_of_texts = memory.get("kind") == "texts"
    if unreadable_as_missing:
        raise ValueError(_NO_TEXTS.format("texts" if is_of_texts else "numbers"))
    if is_of_texts:
        from ..web.serving import text_scorer

        return text_scorer(found)
    if memory.get("kind") == "letor":
        # Files of this kind leave zeros out.
        return matrix_scorer(found, list(memory["features"]), absent=0.0)
    return matrix_scorer(found, feature_names(found))


def _relation_scorer(found: Any, metadata: dict[str, Any], unreadable_as_missing: bool) -> Scorer:
    """Of two tables of objects, or of numbers that are standardised as in training."""
    import numpy as np

    from ..tables.encoding.table import table_encoder
    from ..web.serving import Feature, relation_scorer, table_features

    scaling = metadata["rows"], metadata["columns"]
    if "table" in scaling[0]:
        encoders = map(table_encoder, (found.row_steps, found.column_steps))
        sides = [table_features(encoder, unreadable_as_missing) for encoder in encoders]
        return relation_scorer(found, sides, [dict, dict])
    if unreadable_as_missing:
        raise ValueError(_NO_TEXTS.format("numbers"))
    prepare = [
        lambda table, how=how: relate.scaled(np.array([*table.values()], dtype=np.float64).T, how)
        for how in scaling
    ]
    return relation_scorer(found, [[*map(Feature, how["features"])] for how in scaling], prepare)
