"""Combinations of options such that every two values of two different options meet in at least one of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any

import numpy as np

# Candidates drawn for each combination; the one with most pairs that have not met yet is taken.
_CANDIDATES = 30


def all_pairs(options: Mapping[str, Sequence[Any]], seed: int = 0) -> list[dict[str, Any]]:
    """A small all-pairs design, found greedily; the same for the same options and seed.

    Parameters
    ----------
    options : mapping from the name of an option to its values
        Values may be of any type: they are told apart by their position.

    Returns
    -------
    list of dict
        One value for each option.
    """
    names, sizes = list(options), [len(values) for values in options.values()]
    if not names or min(sizes) == 0:
        raise ValueError(
            f"Every option needs at least one value: found {dict(zip(names, sizes, strict=True))}."
        )
    rng = np.random.default_rng(seed)
    left = {
        pair for i, j in combinations(range(len(names)), 2) for pair in _pairs_of(i, j, sizes[i], sizes[j])
    }
    rows = [] if left else [(k,) for k in range(sizes[0])]
    while left:
        ordered = sorted(left)
        drawn = [_drawn(ordered, left, sizes, rng) for _ in range(_CANDIDATES)]
        rows.append(max(drawn, key=lambda row: len(left & _met(row))))
        left -= _met(rows[-1])
    return [{name: options[name][k] for name, k in zip(names, row, strict=True)} for row in rows]


def _pairs_of(i: int, j: int, n_i: int, n_j: int) -> Iterator[tuple[int, int, int, int]]:
    return ((i, j, a, b) for a in range(n_i) for b in range(n_j))


def _met(row: tuple[int, ...]) -> set[tuple[int, int, int, int]]:
    return {(i, j, row[i], row[j]) for i, j in combinations(range(len(row)), 2)}


def _drawn(ordered: list, left: set, sizes: list[int], rng: np.random.Generator) -> tuple[int, ...]:
    """A combination with one pair that has not met; the other options, in a random order, take what meets most."""
    i, j, a, b = ordered[rng.integers(len(ordered))]
    chosen = {i: a, j: b}
    for k in rng.permutation(len(sizes)).tolist():
        if k not in chosen:
            gains = [
                sum((min(k, o), max(k, o), *((v, u) if k < o else (u, v))) in left for o, u in chosen.items())
                for v in range(sizes[k])
            ]
            best = [v for v, gain in enumerate(gains) if gain == max(gains)]
            chosen[k] = best[rng.integers(len(best))]
    return tuple(chosen[k] for k in range(len(sizes)))
