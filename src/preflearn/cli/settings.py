"""``--set NAME=VALUE`` and ``--read NAME=VALUE``: the options that are rarely needed, by name.

What a name may stand for is a table of readers: a reader turns the text after the equals sign into a value, or raises a
ValueError that says what was expected.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Annotated, Any

import typer

Reader = Callable[[str], Any]


def _number(text: str) -> float:
    try:
        found = float(text)
    except ValueError:
        found = float("nan")
    if found - found != 0:
        raise ValueError("must be a finite number")
    return found


def _positive(text: str) -> float:
    found = _number(text)
    if not found > 0:
        raise ValueError("must be a positive number")
    return found


def _seconds(text: str) -> float:
    try:
        return _positive(text)
    except ValueError:
        raise ValueError("must be a positive number of seconds") from None


def _whole(least: int) -> Reader:
    def read(text: str) -> int:
        if not text.isdecimal() or int(text) < least:
            raise ValueError(f"must be a whole number, {least} or more")
        return int(text)

    return read


def _alphas(text: str) -> Any:
    if text == "auto":
        return text
    try:
        return sorted({_positive(one) for one in text.split(",")})
    except ValueError:
        raise ValueError("must be auto or positive numbers separated by commas, as 0.1,1,10") from None


def _number_or_auto(text: str) -> float | str:
    try:
        return text if text == "auto" else float(text)
    except ValueError:
        raise ValueError("must be auto or a number") from None


def _anchor(text: str) -> dict[str, float]:
    item, equals, rating = text.rpartition("=")
    number = rating.strip().removeprefix("-").replace(".", "", 1)
    if not item or not equals or not number.isdecimal():
        raise ValueError("gives one item its rating, such as gpt-4=1000")
    return {item: float(rating)}


def _yes_or_no(text: str) -> bool:
    if text not in ("yes", "no"):
        raise ValueError("must be yes or no")
    return text == "yes"


def _name(text: str) -> str:
    if not text:
        raise ValueError("must be a name")
    return text


def _names(text: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(","))
    if not all(names):
        raise ValueError("must be names separated by commas, none of them empty")
    return names


def _delimiter(text: str) -> str:
    return "\t" if text == r"\t" else text


LEARNING: Mapping[str, Reader] = {
    "gamma": _positive,
    "degree": _whole(1),
    "n_basis": _whole(1),
    "alphas": _alphas,
    "within_queries": _yes_or_no,
    "time_limit": _seconds,
    "seed": _whole(0),
    "embed": _name,
}
READING: Mapping[str, Reader] = {
    "format": _name,
    "delimiter": _delimiter,
    "encoding": _name,
    "columns": _names,
    "item": _name,
    "weight": _name,
    "missing": _number,
    "prompt": _name,
}
RATING: Mapping[str, Reader] = {
    "half_life": _number_or_auto,
    "alpha": _number_or_auto,
    "level": _number,
    "anchor": _anchor,
}

# The settings of the commands that have any.
OF_COMMANDS: Mapping[str, dict[str, Mapping[str, Reader]]] = {
    "train": {"--set": LEARNING, "--read": READING},
    "rate": {"--set": RATING},
    **{name: {"--read": READING} for name in ("look", "predict", "evaluate", "compare")},
}


def spelled_out(arguments: Sequence[str]) -> list[str]:
    """The same command line with settings that were written as options of their own, such as ``--n-basis 100``.

    Examples
    --------
    >>> spelled_out(["train", "shop.csv", "--n-basis", "100", "--within-queries"])
    ['train', 'shop.csv', '--set', 'n_basis=100', '--set', 'within_queries=yes']
    """
    settings = OF_COMMANDS.get(arguments[0], {}) if arguments else {}
    out, rest = [], iter(arguments)
    for one in rest:
        name, equals, value = one.partition("=")
        key = name.removeprefix("--").replace("-", "_")
        option = next((option for option, readers in settings.items() if key in readers), None)
        if option is None or not name.startswith("--"):
            out.append(one)
            continue
        if key == "within_queries":
            value = value or "yes"
        elif not equals:
            value = next(rest, "")
        out += [option, f"{key}={value}"]
    return out


SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="NAME=VALUE",
        help="How to learn (repeat; `--gamma VALUE` works too): gamma; degree of the poly kernel; n_basis, the number "
        "of basis vectors; alphas, "
        "numbers separated by commas; within_queries=yes to standardise within each query; time_limit, seconds for "
        "--learner auto; seed; embed, a sentence-transformers model for --chosen.",
    ),
]
ReadOption = Annotated[
    list[str] | None,
    typer.Option(
        "--read",
        metavar="NAME=VALUE",
        help="How to read DATA (repeat): format (letor, csv, tsv, jsonl, parquet); delimiter; encoding; columns, the "
        "names for a table without a header; item, the column that names the rows; weight, the column of row weights "
        "(train); missing, the number that stands for a missing feature of a LETOR file; prompt, the column of what "
        "the texts of --chosen answer (train).",
    ),
]

HostOption = Annotated[
    str, typer.Option("--host", help="Address to listen on; 0.0.0.0 makes it reachable from other machines.")
]


def port_option(first: int) -> Any:
    """The option --port of a server that looks for a free port from ``first`` on."""
    return typer.Option("--port", help=f"Port, 0 for any. Default: the first free port from {first}.")


def read_settings(
    option: str, given: Sequence[str] | None, readers: Mapping[str, Reader], only: Iterable[str] | None = None
) -> dict[str, Any]:
    """Read NAME=VALUE settings; ``only`` limits the names to those that a command uses.

    Examples
    --------
    >>> read_settings("--set", ["gamma=0.5", "alphas=1,0.1"], LEARNING)
    {'gamma': 0.5, 'alphas': [0.1, 1.0]}
    >>> read_settings("--set", ["gamma=wide"], LEARNING)
    Traceback (most recent call last):
        ...
    ValueError: --set gamma must be a finite number: found 'wide'.
    """
    names = list(readers if only is None else only)
    found: dict[str, Any] = {}
    for one in given or ():
        name, equals, text = one.partition("=")
        name = name.strip().replace("-", "_")
        if not equals or name not in names:
            raise ValueError(f"{option} takes NAME=VALUE, where NAME is {_any_of(names)}: found {one!r}.")
        if name in found:
            raise ValueError(f"{option} {name} is given twice.")
        try:
            found[name] = readers[name](text)
        except ValueError as error:
            raise ValueError(f"{option} {name} {error}: found {text!r}.") from None
    return found


def _any_of(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} or {names[-1]}"
