"""Options that commands share, among them ``--set NAME=VALUE`` and ``--read NAME=VALUE`` for what is rarely needed.

What a name may stand for is a table of readers: a reader turns the text after the equals sign into a value, or raises a
ValueError that says what was expected.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..auto.training.options import KernelName

if TYPE_CHECKING:
    from ..errors import Remedy

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
        raise ValueError("must be auto or positive numbers separated by commas, such as 0.1,1,10") from None


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


def _yes_or_column(text: str) -> bool | str:
    return text == "yes" if text in ("yes", "no") else text


def _yes_or_names(text: str) -> bool | dict[str, bool]:
    """What ``higher_is_better`` is then."""
    return text != "yes" if text in ("yes", "no") else {name.strip(): False for name in text.split(",")}


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


def _kernel(text: str) -> KernelName:
    try:
        return KernelName(text)
    except ValueError:
        raise ValueError(f"must be {_any_of([one.value for one in KernelName])}") from None


LEARNING: Mapping[str, Reader] = {
    "gamma": _positive,
    "degree": _whole(1),
    "n_basis": _whole(1),
    "alphas": _alphas,
    "within_queries": _yes_or_no,
    "time_limit": _seconds,
    "seed": _whole(0),
    "embed": _name,
    "judge": _name,
    "kernel": _kernel,
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
    "skip_bad": _yes_or_no,
}
RATING: Mapping[str, Reader] = {
    "half_life": _number_or_auto,
    "alpha": _number_or_auto,
    "level": _number,
    "anchor": _anchor,
    "ties": str,
    "first_side": _yes_or_column,
    "tie_covariates": _names,
    "trusted": _names,
    "skip_bad": _yes_or_no,
    "item": _name,
    "task": _name,
    "score": _name,
    "family": _name,
    "lower_is_better": _yes_or_names,
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
        if key in ("within_queries", "first_side", "lower_is_better", "skip_bad"):
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
        help="How to learn (repeat; `--kernel NAME` works too, and so on): kernel, by default RBF, or linear for "
        "sparse and very wide data; gamma; degree of the poly kernel; n_basis, the number "
        "of basis vectors; alphas, "
        "numbers separated by commas; within_queries=yes to standardise within each query; time_limit, seconds for "
        "--learner auto; seed; embed, a sentence-transformers model for --chosen; judge, the column that says who "
        "compared, with preferences.",
    ),
]


_SKIP_BAD = (
    "; skip_bad=yes, or `--skip-bad`, to leave out rows whose target, query, group or event is missing or "
    "unreadable"
)


def _read_option(more: str = "") -> Any:
    return typer.Option(
        "--read",
        metavar="NAME=VALUE",
        help="How to read DATA (repeat): format (letor, csv, tsv, jsonl, parquet); delimiter; encoding; columns, the "
        "names for a table without a header; item, the column that names the rows; missing, the number that stands for "
        f"a missing feature of a LETOR file{more}.",
    )


ReadOption = Annotated[list[str] | None, _read_option()]
EvaluateReadOption = Annotated[list[str] | None, _read_option(_SKIP_BAD)]
TrainReadOption = Annotated[
    list[str] | None,
    _read_option(
        "; weight, the column of row weights; prompt, the column of the prompts that the texts of --chosen answer"
        + _SKIP_BAD
    ),
]

JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of tables.")]
QuietOption = Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors.")]
VerboseOption = Annotated[
    bool, typer.Option("--verbose", "-v", help="Log progress to stderr, even without a terminal.")
]
HostOption = Annotated[
    str, typer.Option("--host", help="Address to listen on; 0.0.0.0 makes it reachable from other machines.")
]


def port_option(first: int) -> Any:
    """The option --port of a server that looks for a free port, starting at ``first``."""
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


def as_option(remedy: Remedy, command: str = "") -> str | None:
    """A remedy as it is typed on the command line; None where there is no option for it.

    Options of a command's own go before those that commands share.

    Examples
    --------
    >>> from preflearn.errors import Remedy
    >>> as_option(Remedy("encode", {"colour": "onehot"}, "for categories"))
    '--encode colour=onehot for categories'
    >>> as_option(Remedy("query", None)), as_option(Remedy("allow_unknown", True))
    ('--no-query', None)
    """
    if remedy.argument == "query" and remedy.has_value and remedy.value is None:
        return f"--no-query {remedy.purpose}".rstrip()
    if remedy.argument == "on_bad":
        return f"--skip-bad {remedy.purpose}" if command in ("train", "evaluate", "rate") else None
    value = remedy.value if remedy.has_value else ""
    own = _OWN_OPTIONS.get(command, {})
    known = own if own else _OPTIONS
    if remedy.argument not in known or value is None or value != value:
        return None
    if isinstance(value, dict):
        value = ",".join(f"{column}={how}" for column, how in value.items())
    elif isinstance(value, (list, tuple)):
        value = ",".join(map(str, value))
    elif isinstance(value, float):
        value = f"{value:g}"
    name, text = option_name(remedy.argument, command), shlex.quote(str(value)) if value != "" else ""
    if not own and remedy.argument in _SETTINGS:
        return f"{name}={text or '...'} {remedy.purpose}".rstrip()
    return " ".join(word for word in (name, text, remedy.purpose) if word)


def option_name(argument: str, command: str = "") -> str:
    """The option for an argument of the library; its name where there is none.

    Examples
    --------
    >>> option_name("target"), option_name("n_basis"), option_name("allow_unknown")
    ('--target', '--set n_basis', 'allow_unknown')
    >>> option_name("weight"), option_name("weight", "rate"), option_name("covariates", "rate")
    ('--read weight', '--weight', '--covariate')
    """
    if command in _OWN_OPTIONS:
        return _OWN_OPTIONS[command].get(argument, argument)
    if argument in _SETTINGS:
        return f"{_SETTINGS[argument]} {argument}"
    return "--" + argument.replace("_", "-") if argument in _OPTIONS else argument


# Arguments of the library that have an option or a setting of the same name.
_SETTINGS = {**dict.fromkeys(LEARNING, "--set"), **dict.fromkeys(READING, "--read")}
for _name_of_option in ("kernel", "judge"):  # options of other commands; `train` takes them as such
    del _SETTINGS[_name_of_option]
# Of commands whose options are not those of `train`.
_RATING = ("a", "b", "winner", "loser", "judge", "time", "weight", "cluster", "category", "margin", "ranking",
           "half_life", "anchor", "alpha", "level", "goal", "ties", "first_side", "tie_covariates",
           "item", "task", "score", "family", "trusted")  # fmt: skip
_OWN_OPTIONS = {
    "rate": {
        **{name: "--" + name.replace("_", "-") for name in _RATING},
        "covariates": "--covariate",
        "higher_is_better": "--lower-is-better",
        "on_bad": "--skip-bad",
    }
}
_OPTIONS = {
    "drop", "duplicates", "encode", "event", "features", "group", "kernel", "learner", "query", "target", *_SETTINGS
}  # fmt: skip
