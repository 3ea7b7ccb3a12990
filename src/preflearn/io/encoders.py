"""Columns of words turned into numbers, on request.

An encoder is a plain value: what it found in one file can be passed back to read the next file in the same way
(``encode=data.encoding``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from scipy import sparse as sp

from ..errors import InputError
from .cells import CellError, clip


class Encoder(Protocol):
    """What every encoder can do."""

    @property
    def ready(self) -> bool:
        """Whether it can encode without seeing the whole file first."""

    def learn(self, values: np.ndarray) -> Encoder:
        """The encoder that is ready for these values."""

    def names(self, column: str) -> list[str]:
        """Feature names of an encoded column."""

    def encode(self, values: np.ndarray) -> sp.csr_array:
        """Encode texts, shape (rows, features)."""


class UnknownCategoryError(CellError):
    """A category that the encoder was not made for."""

    def __init__(self, row: int, message: str):
        super().__init__(message)
        self.row = row

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.row, self.found)


@dataclass(frozen=True)
class OneHot:
    """One feature per category: 1 where the row has it, else 0.

    Parameters
    ----------
    categories : sequence of str, default=None
        The categories, in the order of their features; None takes every value of the column, sorted. A value that
        is not among given categories is refused.

    Examples
    --------
    >>> OneHot(["red", "blue"]).encode(np.array(["blue", "red", "red"], dtype=object)).toarray()
    array([[0., 1.],
           [1., 0.],
           [1., 0.]])
    """

    categories: Sequence[str] | None = None

    def __post_init__(self) -> None:
        if self.categories is None:
            return
        if isinstance(self.categories, str) or not all(isinstance(name, str) for name in self.categories):
            raise TypeError(f"OneHot expects a sequence of texts as categories: found {self.categories!r}.")
        if len(set(self.categories)) < len(self.categories):
            raise ValueError("OneHot expects each category once.")
        object.__setattr__(self, "categories", tuple(self.categories))

    @property
    def ready(self) -> bool:
        return self.categories is not None

    def learn(self, values: np.ndarray) -> OneHot:
        return self if self.ready else OneHot(tuple(sorted(set(values.tolist()))))

    def names(self, column: str) -> list[str]:
        return [f"{column}={category}" for category in self.categories or ()]

    def encode(self, values: np.ndarray) -> sp.csr_array:
        places = {category: place for place, category in enumerate(self.categories or ())}
        columns = np.empty(values.shape[0], dtype=np.int32)
        for row, value in enumerate(values.tolist()):
            place = places.get(value)
            if place is None:
                raise UnknownCategoryError(
                    row, f"{clip(value)} is not one of the {len(places)} categories of its encoder"
                )
            columns[row] = place
        ones = np.ones(values.shape[0])
        return sp.csr_array(
            (ones, columns, np.arange(values.shape[0] + 1)), shape=(values.shape[0], len(places))
        )


@dataclass(frozen=True)
class HashedWords:
    """Words of a text hashed into a fixed number of features, rows of length 1.

    Needs no vocabulary, so it also works in chunks; different words may share a feature. The hashing is that of
    :class:`sklearn.feature_extraction.text.HashingVectorizer`.

    Parameters
    ----------
    n_features : int, default=1024
        How many features.

    Examples
    --------
    >>> HashedWords(16).encode(np.array(["a good good book"], dtype=object)).shape
    (1, 16)
    """

    n_features: int = 1024

    def __post_init__(self) -> None:
        if isinstance(self.n_features, bool) or not isinstance(self.n_features, int) or self.n_features < 1:
            raise ValueError(
                f"HashedWords expects a positive whole number of features: found {self.n_features!r}."
            )

    @property
    def ready(self) -> bool:
        return True

    def learn(self, values: np.ndarray) -> HashedWords:
        return self

    def names(self, column: str) -> list[str]:
        return [f"{column}#{k}" for k in range(self.n_features)]

    def encode(self, values: np.ndarray) -> sp.csr_array:
        from sklearn.feature_extraction.text import HashingVectorizer

        return sp.csr_array(HashingVectorizer(n_features=self.n_features).transform(values.tolist()))


def as_encoder(column: str, wanted: Any) -> Encoder:
    """An encoder from what a caller may write: ``"onehot"``, ``"words"``, a list of categories, or an encoder."""
    if wanted == "onehot":
        return OneHot()
    if wanted == "words":
        return HashedWords()
    if isinstance(wanted, (OneHot, HashedWords)):
        return wanted
    if isinstance(wanted, Sequence) and not isinstance(wanted, str):
        return OneHot(wanted)
    raise InputError(
        f"the encoding {wanted!r} of column {column!r} is not known: expected 'onehot', 'words', a list of categories, "
        "OneHot(...) or HashedWords(...)"
    )


def as_encoders(encode: Mapping[str, Any] | None) -> dict[str, Encoder]:
    """Check the ``encode`` argument."""
    if encode is None:
        return {}
    if not isinstance(encode, Mapping):
        raise TypeError(
            f"encode must map column names to encoders, as in {{'colour': 'onehot'}}: found {type(encode).__name__}."
        )
    return {column: as_encoder(column, wanted) for column, wanted in encode.items()}
