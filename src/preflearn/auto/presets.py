"""How much time `AutoRanker` takes: presets for a first look and for the last bit of accuracy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Preset:
    """What a preset changes.

    Attributes
    ----------
    candidates : frozenset of str or None
        The only ones that are tried; all where None.
    refitted : int
        How many times as large as usual a table may be for the whole procedure to be repeated without each fold, which
        the reported figure then comes from.
    n_runs : int
        Runs with other folds and seeds, whose predictions are averaged.
    without : frozenset of str
        Candidates that are not tried.
    """

    candidates: frozenset[str] | None = None
    refitted: int = 1
    n_runs: int = 1
    without: frozenset[str] = frozenset()

    def allows(self, name: str) -> bool:
        """Whether a candidate of this name may be tried."""
        return (self.candidates is None or name in self.candidates) and name not in self.without


PRESETS = {
    None: Preset(),
    "fast": Preset(frozenset({"linear", "best single feature", "boosted trees"}), 0),
    "best": Preset(refitted=10, n_runs=3),
}


def read_preset(name: Any) -> Preset:
    """The preset of this name; a `Preset` is one itself, for the library's own use.

    Raises
    ------
    ValueError
        For another name.
    """
    if isinstance(name, Preset):
        return name
    if not isinstance(name, str | None) or name not in PRESETS:
        raise ValueError(f"preset must be None, 'fast' or 'best': found {name!r}.")
    return PRESETS[name]
