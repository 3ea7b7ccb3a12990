"""Old names of modules that have moved, kept for one release, and what has moved to another distribution.

`MOVED` is the one table of old and new names. Importing an old name gives the module of the new one, with a
DeprecationWarning; without the other distribution the error says what to install.
"""

from __future__ import annotations

import sys
import warnings
from importlib import import_module
from importlib.machinery import ModuleSpec
from types import ModuleType

DISTRIBUTION, PACKAGE = "preflearn-papers", "preflearn_papers"
MOVED = {
    "preflearn.automatic": "preflearn.auto",
    "preflearn.estimators": "preflearn.learners",
    "preflearn.parses": "preflearn_papers.parses",
    "preflearn.ppi": "preflearn_papers.ppi",
}
MOVED_COMMANDS = ("reproduce", "ppi", "parses")


def missing(what: str) -> str:
    """The message where the distribution is not installed.

    Examples
    --------
    >>> missing("preflearn ppi")
    'preflearn ppi is part of preflearn-papers. Install it with: pip install preflearn-papers'
    """
    return f"{what} is part of {DISTRIBUTION}. Install it with: pip install {DISTRIBUTION}"


def moved_module(name: str, stacklevel: int) -> ModuleType:
    """The module that an old name stands for; warns for the names of the table, not again for modules below them.

    Raises
    ------
    ModuleNotFoundError
        If the distribution is not installed.
    """
    old = _listed(name)
    try:
        module = import_module(MOVED[old] + name.removeprefix(old))
    except ModuleNotFoundError as error:
        if error.name != PACKAGE:
            raise
        raise ModuleNotFoundError(missing(name), name=name) from None
    if name == old:
        home = f", of {DISTRIBUTION}" if module.__name__.startswith(PACKAGE) else ""
        warnings.warn(
            f"{name} is now {module.__name__}{home}; the old name is kept for one release.",
            DeprecationWarning,
            stacklevel=stacklevel + 1,
        )
    return module


def _listed(name: str) -> str:
    return ".".join(name.split(".")[:2])


class _OldNames:
    """An import finder and loader: the module of the new name takes the place of the one that was asked for."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        return ModuleSpec(name, self) if _listed(name) in MOVED else None  # type: ignore[arg-type]

    def create_module(self, spec: ModuleSpec) -> None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        sys.modules[module.__name__] = moved_module(module.__name__, stacklevel=2)


# Before the finder of files, which would load the modules below an old name a second time.
sys.meta_path.insert(0, _OldNames())  # type: ignore[arg-type]
