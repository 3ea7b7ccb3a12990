"""The commands that preflearn-papers adds to ``preflearn``, one module each, found by their entry points."""

from __future__ import annotations

import typer


def command_group(name: str, about: str) -> typer.Typer:
    """Commands under one name, such as ``preflearn ppi ...``."""
    return typer.Typer(
        name=name,
        help=about,
        no_args_is_help=True,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
