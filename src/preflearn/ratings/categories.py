"""Boards by category as one result: strengths of every item in every category, and what they predict."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property
from numbers import Real
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import expit

from ..errors import InputError
from ..shown_tables import visible
from . import tables
from .boards import CategoryBoards, category_boards, category_scores, choose_ratio, fits_densely
from .tables import frame_like

if TYPE_CHECKING:
    from .result import Ratings


@dataclass(frozen=True, repr=False)
class CategoryRatings:
    """Boards by category that borrow strength from each other; `Ratings.boards` makes them.

    The strength of item i in category c is g_i + δ_ic, with normal priors of g and of δ; ``ratio`` is the standard
    deviation of δ relative to that of g. An item that has hardly played in a category is rated there as elsewhere.

    Attributes
    ----------
    categories : list
        In the order in which they were found.
    ratio : float
        How far categories may differ; 0 is one board for all.
    table : data frame
        ``category``, ``item``, ``rating``, ``lower``, ``upper``, ``difference`` (points from the item's mean over
        categories), ``pvalue`` (corrected for all of them by Holm's method), ``battles``; of very many items
        ``category``, ``item`` and ``rating`` alone.
    """

    ratings: Ratings
    codes: np.ndarray
    categories: list[Hashable]
    ratio: float
    intervals: bool

    @cached_property
    def fitted(self) -> CategoryBoards:
        """Strengths with their standard errors."""
        ratings = self.ratings
        n = len(self.categories)
        return category_boards(
            ratings.strengths.battles, self.codes, n, ratings.alpha, self.ratio, ratings.cluster
        )

    @cached_property
    def strengths(self) -> np.ndarray:
        """Of every item (sorted by name) in every category, mean 0 in each, shape (m, k)."""
        if self.intervals:
            return self.fitted.scores
        battles, alpha = self.ratings.strengths.battles, self.ratings.alpha
        return category_scores(battles, self.codes, len(self.categories), alpha, self.ratio)

    @cached_property
    def table(self) -> Any:
        return frame_like(self.ratings.backend, tables.category_table(self))

    def scores(self, category: Hashable) -> dict[Hashable, float]:
        """From item to natural-log strength in a category."""
        return dict(zip(self.ratings.items, self.strengths[:, self._code(category)].tolist(), strict=True))

    def win_probability(self, a: Hashable, b: Hashable, category: Hashable) -> float:
        """The probability that ``a`` wins against ``b`` in a category."""
        self.ratings.win_probability(a, b)
        column = self.strengths[:, self._code(category)]
        items = self.ratings.items
        return float(expit(column[items.index(a)] - column[items.index(b)]))

    def predict(self, battles: Any, categories: Sequence[Hashable]) -> np.ndarray:
        """The probability that the first side wins each battle of a table, such as one of the future.

        Parameters
        ----------
        battles : data frame or mapping
            With the columns of the sides.
        categories : sequence of l labels
            The category of each battle. In a category that has not been seen an item is as strong as on average.

        Returns
        -------
        ndarray of shape (l,)
            An item that has not been seen counts as an average one.
        """
        from .reading import read_meetings

        pairs, _, _ = read_meetings(battles, self.ratings.items, **self.ratings.side_columns)
        labels = tables.read_categories(categories, pairs.shape[0])
        place = {label: k for k, label in enumerate(self.categories)}
        codes = np.array([place.get(label, len(place)) for label in labels], dtype=np.int64)
        # The last column is that of unseen categories, the last row that of unseen items, which -1 stands for.
        known = np.column_stack([self.strengths, self.strengths.mean(axis=1)])
        known = np.vstack([known, np.zeros(known.shape[1])])
        return expit(known[pairs[:, 0], codes] - known[pairs[:, 1], codes])

    def _code(self, category: Hashable) -> int:
        if category not in self.categories:
            shown = ", ".join(map(repr, self.categories[:10]))
            raise InputError(f"{category!r} is not one of the categories: found {shown}")
        return self.categories.index(category)

    def __repr__(self) -> str:
        names = ", ".join(map(visible, self.categories[:10]))
        return (
            f"Boards of {len(self.ratings.items):,} items in {len(self.categories):,} "
            f"{'category' if len(self.categories) == 1 else 'categories'}: {names}; "
            f"strengths differ between categories {self.ratio:g} times as much as between items"
        )


def make_boards(ratings: Ratings, categories: Any, ratio: Any, intervals: bool | None) -> CategoryRatings:
    """What `Ratings.boards` gives."""
    raw = ratings.raw
    for argument, given, reason in (
        ("ranking", raw.rankings is not None, "are of battles, not of rankings"),
        ("features", raw.similarity is not None, "do not use features of the items"),
        ("margin", raw.margin is not None, "are of who won, not by how much"),
        ("first_side", bool(ratings.options["first_side"]), "do not model the first side"),
        ("trusted", ratings.trusted is not None, "believe every judge"),
        ("covariates", bool(raw.covariate_names), "do not control for covariates"),
        ("ties", ratings.options["ties"] != "half", "take a tie as half a win each way"),
    ):
        if given:
            raise InputError(f"Boards by category {reason}: rate without {{argument}}", argument=argument)
    labels = tables.read_categories(categories, raw.n_read or len(raw))
    labels = labels if raw.rows is None else [labels[row] for row in raw.rows]
    names = list(dict.fromkeys(labels))
    place = {label: k for k, label in enumerate(names)}
    codes = np.array([place[label] for label in labels])
    if ratio == "auto":
        ratio = choose_ratio(ratings.strengths.battles, codes, len(names), ratings.alpha)
    elif isinstance(ratio, bool) or not isinstance(ratio, Real) or not 0 <= float(ratio) < np.inf:
        raise InputError(
            f"{{argument}} must be 'auto' or a number, at least 0: found {ratio!r}", argument="ratio"
        )
    if intervals is None:
        intervals = fits_densely(len(ratings.items), len(names))
    return CategoryRatings(ratings, codes, names, float(ratio), intervals)
