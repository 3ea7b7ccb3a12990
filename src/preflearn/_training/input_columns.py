"""Influence by input column: one bar for `brand`, however many features it became, and the words of a text by name."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse as sp

from ..comparisons import encode_queries
from .problem import Problem
from .ranking import RankingProblem

# Words that are named for each direction, and the rows that a word must be in.
_WORDS, _LEAST_ROWS = 5, 5
# Standard errors from which on a word is more than chance, the many words considered.
_CLEAR = 3.5
_MOST_TEXTS = 20_000


@dataclass(frozen=True, eq=False)
class InputColumns:
    """The columns of the table that features were made from.

    Attributes
    ----------
    names : list of str
    owners : ndarray of int of shape (n,)
        The column of each feature.
    table : dict of str to ndarray
        The columns as they were read.
    """

    names: list[str]
    owners: np.ndarray
    table: dict[str, np.ndarray]

    @classmethod
    def of(cls, problem: Problem) -> InputColumns | None:
        """None where features are columns, one by one."""
        if not isinstance(problem, RankingProblem) or problem.data.columns is None:
            return None
        encoder = problem.data.encoder
        widths = (
            [len(one.names(name)) for name, one in encoder.encoders_.items()] if encoder is not None else []
        )
        if not widths or sum(widths) != problem.X.shape[1] or max(widths) == 1:
            return None
        return cls(list(encoder.encoders_), np.repeat(np.arange(len(widths)), widths), problem.data.columns)

    def sums(self, values: np.ndarray) -> np.ndarray:
        """The sum of the values of each column's features."""
        return np.bincount(self.owners, weights=values, minlength=len(self.names))

    def spreads(self, Z: Any, coef: np.ndarray) -> np.ndarray:
        """The standard deviation of what each column contributes to a weighted sum; of one feature with its sign."""
        out = np.empty(len(self.names))
        for k in range(len(self.names)):
            own = np.flatnonzero(self.owners == k)
            part = np.asarray(Z[:, own] @ coef[own]).ravel()
            sign = np.sign(coef[own[0]]) if own.size == 1 else 1.0
            out[k] = sign * part.std()
        return out


def words_of_texts(problem: Problem, scores: np.ndarray) -> list[str]:
    """A sentence for each column of texts: the words that go with high and with low scores inside a query."""
    if (
        not isinstance(problem, RankingProblem)
        or problem.data.columns is None
        or problem.data.encoder is None
    ):
        return []
    groups = encode_queries(problem.data.qid, scores.shape[0])
    means = np.bincount(groups.codes, weights=scores, minlength=groups.n_groups) / np.maximum(
        groups.counts, 1
    )
    centred = scores - means[groups.codes]
    found = []
    for name, kind in problem.data.encoder.kinds_.items():
        if kind in ("text", "words") and name in problem.data.columns:
            high, low = telling_words(problem.data.columns[name][:_MOST_TEXTS], centred[:_MOST_TEXTS])
            parts = [f"high: {', '.join(high)}"] * bool(high) + [f"low: {', '.join(low)}"] * bool(low)
            if parts:
                found.append(f"Words of `{name}` that go with scores that are {'; '.join(parts)}.")
    return found


def telling_words(texts: np.ndarray, scores: np.ndarray) -> tuple[list[str], list[str]]:
    """The words whose rows have the highest and the lowest scores, by a statistically clear margin.

    Examples
    --------
    >>> texts = np.array(["red lamp", "blue lamp"] * 20, dtype=object)
    >>> telling_words(texts, np.tile([1.0, -1.0], 20) + 0.1 * np.sin(np.arange(40)))
    (['red'], ['blue'])
    """
    words = [set(re.findall(r"\w+", str(text).lower())) for text in texts.tolist()]
    counts = Counter(word for one in words for word in one)
    known = sorted(word for word, n in counts.items() if _LEAST_ROWS <= n <= len(words) - _LEAST_ROWS)
    if not known:
        return [], []
    place = {word: k for k, word in enumerate(known)}
    rows, columns = zip(
        *((row, place[word]) for row, one in enumerate(words) for word in one if word in place)
    )
    seen = sp.csr_array((np.ones(len(rows)), (rows, columns)), shape=(len(words), len(known)))
    n = np.asarray(seen.sum(axis=0)).ravel()
    spread = scores.std()
    if spread == 0:
        return [], []
    # The difference of the means of rows with and without the word, in standard errors.
    m, total = scores.shape[0], scores.sum()
    sums = seen.T @ scores
    z = (sums / n - (total - sums) / (m - n)) / (spread * np.sqrt(1 / n + 1 / (m - n)))
    order = np.argsort(-z, kind="stable")
    high = [known[k] for k in order[:_WORDS] if z[k] > _CLEAR]
    low = [known[k] for k in order[::-1][:_WORDS] if z[k] < -_CLEAR]
    return high, low
