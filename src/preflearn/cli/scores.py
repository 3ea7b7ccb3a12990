"""``preflearn rate --table``: from a file of scores to a leaderboard."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from .output import collected_warnings, new_console, print_json, print_notes, progress

if TYPE_CHECKING:
    from ..ratings import Leaderboard

# Settings of scores as arguments of `preflearn.leaderboard`.
_OF_SCORES = {
    "item": "item", "task": "task", "score": "score", "family": "family", "lower_is_better": "higher_is_better",
}  # fmt: skip


def refuse_settings_of_scores(options: dict[str, Any]) -> None:
    """Settings that mean nothing for battles."""
    from ..errors import InputError

    for name in _OF_SCORES:
        if name in options:
            option = f"--{name.replace('_', '-')}"
            raise InputError(f"{option} is about a table of scores: give --table, or leave it out")


def rate_scores(
    paths: list[Path],
    options: dict[str, Any],
    report: Path | None,
    output: Path | None,
    as_json: bool,
    quiet: bool,
    command: str,
) -> None:
    """Rank the items of a table of scores, print the board and write what was asked for."""
    from ..errors import InputError
    from ..report.ratings import page_of_scores
    from ..tables.atomic import write_whole

    given = {_OF_SCORES[name]: options[name] for name in _OF_SCORES if name in options}
    ignored = [name for name, value in options.items() if value and name not in (*_OF_SCORES, "level")]
    if ignored:
        raise InputError(
            "{argument} is about battles, not about a table of scores (--table)", argument=ignored[0]
        )
    if "level" in options:
        given["level"] = options["level"]
    with progress(2, quiet=quiet) as tell, collected_warnings() as warned:
        tell(f"reading {paths[0].name}")
        columns = _read(paths, given)
        tell("comparing")
        from ..ratings import leaderboard

        found = leaderboard(columns, **given)
        texts = []
        if report is not None:
            texts.append((report, page_of_scores(found, report, f"Leaderboard of {paths[0].name}", command)))
        if output is not None:
            texts.append((output, _as_file(found, output.suffix.lower())))
        for path, text in texts:
            write_whole(path, text)
    if as_json:
        print_json({"source": str(paths[0]), **found.to_dict()})
    elif not quiet:
        console = new_console()
        console.print(str(found), markup=False, soft_wrap=True)
        print_notes(console, warned)
        for path, _ in texts:
            console.print(f"wrote {path}", markup=False)


def _read(paths: list[Path], given: dict[str, Any]) -> dict[str, Any]:
    """The columns of the files; names are read as texts even if they look like numbers."""
    from ..ratings.scores import ITEMS
    from ..tables.table import read_table
    from . import files

    names = files.column_names(paths[0], files.Reading())
    asked = [given.get(name) for name in ("item", "task", "family")]
    texts = [name for name in names if name in asked or name.lower() in ITEMS]
    found = read_table([str(path) for path in paths], target=None, query=None, item=None, texts=texts)
    return dict(found.columns)


def _as_file(found: Leaderboard, suffix: str) -> str:
    import csv
    import io
    import json

    from ..report.ratings import rows_of

    if suffix == ".md":
        return found.to_markdown()
    if suffix == ".json":
        return json.dumps(found.to_dict(), indent=2, ensure_ascii=False) + "\n"
    buffer = io.StringIO(newline="")
    writer = csv.writer(buffer, delimiter="\t" if suffix == ".tsv" else ",", lineterminator="\n")
    writer.writerow(found.columns_of_table)
    writer.writerows(row.values() for row in rows_of(found.columns_of_table))
    return buffer.getvalue()
