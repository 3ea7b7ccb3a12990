"""Errors about input: what was found, and what to do about it as data, so that every interface words it its own way.

A message of Python speaks of arguments (``drop=['colour']``); the command line speaks of options (``--drop colour``).
Both are composed from the same fields.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import Any


class _Open(Enum):
    """A value that is for the caller to say; one object, also in another process."""

    value_ = "..."


_ANY = _Open.value_


@dataclass(frozen=True)
class Remedy:
    """An argument that the caller may pass instead.

    Attributes
    ----------
    argument : str
    value : object
        What to pass; left out where it is for the caller to say.
    purpose : str
        When to pass it, as the end of a sentence.

    Examples
    --------
    >>> str(Remedy("drop", ["colour"], "to leave it out")), str(Remedy("item", purpose="and the column of names"))
    ("drop=['colour'] to leave it out", 'item=... and the column of names')
    """

    argument: str
    value: Any = _ANY
    purpose: str = ""

    @property
    def has_value(self) -> bool:
        return self.value is not _ANY

    def __str__(self) -> str:
        value = repr(self.value) if self.has_value else "..."
        return f"{self.argument}={value} {self.purpose}".rstrip()


class InputError(ValueError):
    """Input that cannot be used.

    Attributes
    ----------
    found : str
        What was found and what was expected; ``{argument}`` in it stands for the name of the argument at fault.
    remedies : tuple of Remedy
        What to pass instead, the usual one first.
    argument : str or None
        The argument at fault, where there is one.
    together : bool
        Whether the remedies are one, to be passed together.
    in_python : str
        What else can be done in Python, added to ``found`` there.

    Examples
    --------
    >>> error = InputError("'red' is not a number", Remedy("missing", 0.0), Remedy("drop", ["colour"]))
    >>> str(error)
    "'red' is not a number. Pass missing=0.0, or drop=['colour']."
    >>> error.worded(lambda remedy: f"--{remedy.argument}")
    "'red' is not a number. Pass --missing, or --drop."
    >>> print(InputError("Sort the file", in_python="or use read_ranking"))
    Sort the file, or use read_ranking.
    """

    def __init__(
        self,
        found: str,
        *remedies: Remedy,
        argument: str | None = None,
        together: bool = False,
        in_python: str = "",
    ) -> None:
        self.found = found.rstrip(".")
        self.remedies = remedies
        self.argument = argument
        self.together = together
        self.in_python = in_python
        super().__init__(self.worded(str))

    def __reduce__(self) -> tuple[Any, ...]:
        named = partial(type(self), argument=self.argument, together=self.together, in_python=self.in_python)
        return named, (self.found, *self.remedies)

    def worded(self, spell: Callable[[Remedy], str | None], spell_name: Callable[[str], str] = str) -> str:
        """The message with each remedy as ``spell`` writes it; one for which it gives None is left out."""
        spelled = [text for text in map(spell, self.remedies) if text is not None]
        found = self.found
        if self.argument is not None:
            found = found.replace("{argument}", spell_name(self.argument))
        if self.in_python and spell is str:
            found = f"{found}, {self.in_python}"
        found = found if found.endswith("?") else f"{found}."
        return f"{found} Pass {_listed(spelled, self.together)}." if spelled else found


class ManyInputError(InputError):
    """Several things that are wrong with one input, told together.

    Attributes
    ----------
    source : str
        The input, which each message may begin with.
    errors : tuple of InputError

    Examples
    --------
    >>> print(ManyInputError("a.csv", [InputError("a.csv: no rows"), InputError("a.csv, line 3: no target")]))
    a.csv: 2 problems. (1) no rows. (2) line 3: no target.
    """

    def __init__(self, source: str, errors: Sequence[InputError]) -> None:
        self.source, self.errors = source, tuple(errors)
        super().__init__(source)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.source, self.errors)

    def worded(self, spell: Callable[[Remedy], str | None], spell_name: Callable[[str], str] = str) -> str:
        """Every message, numbered, with its remedies as ``spell`` writes them."""
        texts = [error.worded(spell, spell_name) for error in self.errors]
        bare = [text.removeprefix(f"{self.source}: ").removeprefix(f"{self.source}, ") for text in texts]
        told = " ".join(f"({number}) {text}" for number, text in enumerate(bare, start=1))
        return f"{self.source}: {len(texts)} problems. {told}"


def missing_extra(what: str, needs: str, extra: str, more: str = "") -> ImportError:
    """The error where an optional part is not installed, with the line that installs it.

    Examples
    --------
    >>> missing_extra("A report", "Jinja2", "plots")
    ImportError("A report needs Jinja2. Install it with: pip install 'preflearn[plots]'")
    """
    return ImportError(f"{what} needs {needs}. Install it with: pip install 'preflearn[{extra}]'{more}")


def refuse_all(source: str, errors: Sequence[InputError]) -> None:
    """Raise what is wrong with an input, if anything, as one error."""
    if len(errors) == 1:
        raise errors[0]
    if errors:
        raise ManyInputError(source, errors)


def shortened(texts: Sequence[object], most: int = 12) -> str:
    """A few texts in one line, and how many there are besides.

    Examples
    --------
    >>> shortened(["a", "b", "c"], 2)
    'a, b and 1 more'
    """
    shown = ", ".join(map(str, texts[:most]))
    return shown if len(texts) <= most else f"{shown} and {len(texts) - most:,} more"


def _listed(texts: Sequence[str], together: bool = False) -> str:
    if len(texts) == 1:
        return texts[0]
    return f"{', '.join(texts[:-1])}{' and' if together else ', or'} {texts[-1]}"


class DependenceWarning(UserWarning):
    """Rows depend on each other (visits of one patient), and held-out figures treat them as independent."""


class SplitQueryError(ValueError):
    """Rows of one query came in two parts, and pairs between the parts would be missing."""

    def __init__(self, key: int) -> None:
        super().__init__(
            f"Rows of one query are in two chunks or partitions (label {key}, or a text with this hash): the pairs "
            "between them would be missing. Sort the rows by query and read them with preflearn.io.iter_ranking, or "
            "use preflearn.distributed.align_queries."
        )
        self.key = key

    def __reduce__(self) -> Any:
        return type(self), (self.key,)
