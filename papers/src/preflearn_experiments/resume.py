"""Runs that can be interrupted: each finished unit of work (fold, trial, topic) is kept in a file.

The file belongs to one experiment with one set of settings; with others it is refused. It is replaced as a whole
after every unit, so that an interrupt at any time loses no more than the unit under way.
"""

from __future__ import annotations

import hashlib
import json
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from preflearn.tables.atomic import write_whole

from .report import ExperimentReport


class Resume:
    """Finished units of work, kept in a JSON file or in memory only.

    Parameters
    ----------
    path : path or None
        The file; made by the first finished unit. None: nothing is kept, every unit is computed.
    name : str
        Of the experiment.
    settings : dict
        Everything that the results depend on, as JSON can hold it.
    counts : sequence of str, default=()
        Settings that only say how many units there are ("trials", for example), so that a finished file can be
        extended by asking for more of them.
    total : int, optional
        Number of units, for the progress.
    verbose : int, default=0
        Tell on standard error when a unit is finished.

    Raises
    ------
    ValueError
        If the file belongs to another experiment, other settings or another version, or is damaged.

    Examples
    --------
    >>> work = Resume(None, "squares", {"seed": 0})
    >>> [work.unit(f"number {k}", lambda k=k: {"square": k * k}) for k in range(3)]
    [{'square': 0}, {'square': 1}, {'square': 4}]
    """

    def __init__(
        self,
        path: str | Path | None,
        name: str,
        settings: Mapping[str, Any],
        *,
        counts: Sequence[str] = (),
        total: int | None = None,
        verbose: int = 0,
    ) -> None:
        self.path = None if path is None else Path(path)
        self.name = name
        self.settings = dict(settings)
        self.total = total
        self.verbose = verbose
        self.fingerprint = fingerprint(name, {key: settings[key] for key in settings if key not in counts})
        self._start = time.perf_counter()
        self._units: dict[str, dict[str, Any]] = self._read()
        self._earlier = sum(unit["seconds"] for unit in self._units.values())
        self._asked: set[str] = set()

    @property
    def seconds(self) -> float:
        """Time of this run, and of the units that earlier runs finished."""
        return self._earlier + time.perf_counter() - self._start

    def report(self, *, settings: dict[str, Any] | None = None, **fields: Any) -> ExperimentReport:
        """What was found, with the name, the time and the settings of this run.

        Parameters
        ----------
        settings : dict, optional
            To be reported instead of those of the run.
        **fields
            The other attributes of `ExperimentReport`.
        """
        kept = self.settings if settings is None else settings
        return ExperimentReport(name=self.name, seconds=self.seconds, settings=kept, **fields)

    def unit(self, key: str, compute: Callable[[], Any]) -> Any:
        """The result of a unit: from the file, or else computed and kept.

        Parameters
        ----------
        key : str
            What the unit is, in words; asked for once in a run.
        compute : callable
            Returns something that JSON can hold; NumPy numbers and arrays become numbers and lists.

        Returns
        -------
        object
            As it would be read from the file, so that a resumed run and an uninterrupted one are the same.
        """
        if key in self._asked:
            raise ValueError(f"the unit {key!r} of {self.name} was asked for twice.")
        self._asked.add(key)
        known = key in self._units
        if not known:
            start = time.perf_counter()
            value = json.loads(json.dumps(compute(), default=_plain))
            self._units[key] = {"value": value, "seconds": time.perf_counter() - start}
            self._write()
        if self.verbose:
            count = f"{len(self._asked)}" + (f" of {self.total}" if self.total else "")
            took = "kept" if known else f"{self._units[key]['seconds']:.1f} s"
            print(f"[{self.name}] {count}: {key} ({took})", file=sys.stderr, flush=True)
        return self._units[key]["value"]

    def _read(self) -> dict[str, dict[str, Any]]:
        if self.path is None or not self.path.exists():
            return {}
        try:
            content = json.loads(self.path.read_text("utf-8"))
            owner, units = content["fingerprint"], dict(content["units"])
            for unit in units.values():
                float(unit["seconds"]), unit["value"]
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ValueError(
                f"{self.path} holds no finished units of an experiment: remove it or name another file."
            ) from error
        if owner != self.fingerprint:
            raise ValueError(
                f"{self.path} was begun by {content.get('name')!r} with other settings or another version: "
                "finish that run, remove the file, or name another."
            )
        return units

    def _write(self) -> None:
        if self.path is None:
            return
        content = {"name": self.name, "fingerprint": self.fingerprint, "units": self._units}
        write_whole(self.path, json.dumps(content, indent=1))


def settings_of(**given: Any) -> dict[str, Any]:
    """The arguments that the results of a run depend on, as JSON can hold them.

    Examples
    --------
    >>> settings_of(alphas=(0.5, 1.0), seed=0)
    {'alphas': [0.5, 1.0], 'seed': 0}
    """
    return {
        name: value if isinstance(value, str) or not isinstance(value, Iterable) else list(value)
        for name, value in given.items()
    }


def fingerprint(name: str, settings: Mapping[str, Any]) -> str:
    """A short text that tells one experiment, its settings and the version of the library from all others.

    Examples
    --------
    >>> fingerprint("a", {"seed": 0}) == fingerprint("a", {"seed": 1})
    False
    """
    from preflearn import __version__

    text = json.dumps([__version__, name, settings], sort_keys=True, default=_plain)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _plain(value: Any) -> Any:
    """NumPy numbers and arrays as JSON has them."""
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"a unit of work holds a {type(value).__name__}, which JSON cannot keep.")
