"""Features of the items: similar items have similar strengths, including those that have not played.

The prior covariance of the strengths is K + ρ I, K the kernel of the standardised features with a mean of 1 on its
diagonal and ρ the variance of what features do not say.
"""

from __future__ import annotations

from dataclasses import replace
from numbers import Real
from typing import Any

import numpy as np

from ..kernels.functions import Kernel
from ..tables.encoding.frames import TEXT, read_table, refuse_repeated_columns
from .battles import Battles
from .reading import factorised, read_numbers

_MOST_ITEMS = 1500


def with_features(battles: Battles, features: Any, kernel: Any, item_offsets: float) -> Battles:
    """The battles with further items that have features, and the similarity of all items.

    Parameters
    ----------
    battles : Battles
    features : data frame or mapping
        A column ``item`` and columns of numbers.
    kernel : str or callable
        As `preflearn.BradleyTerry` takes it, on standardised features.
    item_offsets : float
        ρ.
    """
    if not isinstance(item_offsets, Real) or not 0 < item_offsets < np.inf:
        raise ValueError(
            "item_offsets is the variance of what features do not say, relative to that of what they say, positive: "
            f"found {item_offsets!r}."
        )
    names, X = _read_features(features)
    if battles.items and isinstance(battles.items[0], str):
        names = [str(name) for name in names]
    place = {name: k for k, name in enumerate(names)}
    if len(place) < len(names):
        raise ValueError("The column 'item' of features names an item twice: expected one row for each item.")
    missing = [item for item in battles.items if item not in place]
    if missing:
        raise ValueError(
            f"{len(missing):,} items have battles and no features, such as {missing[0]!r}: add their rows."
        )
    if len(names) > _MOST_ITEMS:
        raise ValueError(f"Features are used for at most {_MOST_ITEMS:,} items: found {len(names):,}.")
    items = [*battles.items, *(name for name in names if name not in set(battles.items))]
    X = X[[place[item] for item in items]]
    spread = X.std(axis=0)
    X = (X - X.mean(axis=0)) / np.where(spread > 0, spread, 1.0)
    K = np.array(Kernel(kernel).matrix(X), dtype=np.float64)
    K /= max(float(np.mean(np.diagonal(K))), np.finfo(float).tiny)
    K[np.diag_indices_from(K)] += item_offsets
    return replace(battles, items=items, similarity=K)


def _read_features(features: Any) -> tuple[list[Any], np.ndarray]:
    refuse_repeated_columns(features)
    columns = {column.name: column for column in read_table(features, "The table of features").columns}
    if "item" not in columns or len(columns) < 2:
        raise ValueError(
            f"features needs a column 'item' and at least one column of numbers: found {', '.join(columns)}."
        )
    codes, labels = factorised(columns.pop("item"))
    if (codes < 0).any():
        raise ValueError("The column 'item' of features has missing names.")
    texts = [name for name, column in columns.items() if column.form == TEXT]
    if texts:
        raise ValueError(
            f"features must be numbers, and {texts[0]!r} holds texts: encode it first "
            "(preflearn.preprocessing.TableEncoder)."
        )
    X = np.stack([read_numbers(column, "feature") for column in columns.values()], axis=1)
    return [labels[code] for code in codes], X
