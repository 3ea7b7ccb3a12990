r"""Boards by category that borrow strength from the whole, and boards over time.

In category c item i has the strength f_ic = g_i + δ_ic with independent normal priors of g and δ, which is one kernel
on pairs of item and category: [i = i'] (1 + s² [c = c']). How much categories may differ, s, is chosen by held-out
battles; with s = 0 all boards are the same.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property
from numbers import Real
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp
from scipy.special import expit, ndtr
from scipy.stats import t as student

from ..comparisons.answers import Answers
from ..errors import InputError, Remedy
from ..losses.logistic import LogisticLoss
from ..losses.newton import Features, PairObjective, minimise_logistic
from ..numerics.linalg import inverse_in_place
from ..shown_tables import visible
from .battles import Battles
from .held_out import decayed, log_losses
from .judges import corrected
from .ranks import effective_clusters, information_of, quantile_of
from .strengths import MOST_DENSE, Strengths, cluster_information, dense_covariance, fit_strengths, sandwich
from .tables import POINTS, Columns, frame_like, whole_numbers, with_intervals

if TYPE_CHECKING:
    from .result import Ratings

_RATIOS = (0.0, 0.1, 0.2, 0.4, 0.8)
_FOLDS = 5


@dataclass(frozen=True)
class CategoryBoards:
    """Strengths of items in categories.

    Attributes
    ----------
    scores : ndarray of shape (m, k)
        Strengths in each category, with mean 0 in each.
    errors : ndarray of shape (m, k)
        Their standard errors.
    differences, difference_errors : ndarrays of shape (m, k)
        From the item's strength in all categories, and their standard errors.
    ratio : float
        s.
    freedom, difference_freedom : ndarrays of shape (m, k)
        Degrees of freedom of both kinds of standard errors; infinite without clusters.
    """

    scores: np.ndarray
    errors: np.ndarray
    differences: np.ndarray
    difference_errors: np.ndarray
    ratio: float
    freedom: np.ndarray
    difference_freedom: np.ndarray


def _by_category(battles: Battles, codes: np.ndarray, n_categories: int) -> Answers:
    pairs = battles.pairs * n_categories + codes[:, None]
    ones = np.ones(len(battles))
    return Answers(battles.n_items * n_categories, pairs, battles.weight, battles.share, ones)


def _design(n_items: int, n_categories: int, ratio: float) -> sp.csr_array:
    """Φ with f = Φ (g, δ / s), one row for each item and category."""
    common = sp.kron(sp.eye_array(n_items), np.ones((n_categories, 1)))
    own = ratio * sp.eye_array(n_items * n_categories)
    return sp.csr_array(sp.hstack([common, own]))


def _weights(answers: Answers, design: sp.csr_array, alpha: float) -> np.ndarray:
    return minimise_logistic(PairObjective(Features(design), answers), alpha).weights


def category_scores(
    battles: Battles, codes: np.ndarray, n_categories: int, alpha: float, ratio: float
) -> np.ndarray:
    """Strengths in each category with mean 0, shape (m, k), of any number of items: no covariances."""
    answers = _by_category(battles, codes, n_categories)
    design = _design(battles.n_items, n_categories, ratio)
    f = (design @ _weights(answers, design, alpha)).reshape(battles.n_items, n_categories)
    return f - f.mean(axis=0)


def fits_densely(n_items: int, n_categories: int) -> bool:
    """Whether covariances of all strengths are a matrix of moderate size."""
    return n_items * (n_categories + 1) <= MOST_DENSE


def category_boards(
    battles: Battles,
    codes: np.ndarray,
    n_categories: int,
    alpha: float,
    ratio: float | None = None,
    cluster: np.ndarray | None = None,
) -> CategoryBoards:
    """Fit all boards at once; s is chosen by held-out battles where it is not given.

    With the cluster of each battle, standard errors are those of the sandwich (`strengths`).
    """
    n = battles.n_items
    size = n * (n_categories + 1)
    if not fits_densely(n, n_categories):
        raise ValueError(
            f"Boards of {n:,} items in {n_categories:,} categories need a matrix of {size:,} rows, more than "
            f"{MOST_DENSE:,}: keep the items and categories that matter, or leave intervals out with intervals=False."
        )
    answers = _by_category(battles, codes, n_categories)
    ratio = choose_ratio(battles, codes, n_categories, alpha) if ratio is None else ratio
    design = _design(n, n_categories, ratio)
    w = _weights(answers, design, alpha)
    curvatures = LogisticLoss(answers, design @ w).curvatures
    H = np.asfortranarray((design.T @ answers.hessian(curvatures) @ design).toarray())
    H[np.diag_indices_from(H)] += 2.0 * alpha
    inverse = inverse_in_place(H)
    C = inverse
    if cluster is not None:
        pulls = answers.weight * (answers.share - expit(answers.differences(design @ w)))
        g = _signed_rows(answers, pulls, cluster, int(cluster.max()) + 1) @ design
        C = sandwich(inverse, g, 2.0 * alpha * np.eye(H.shape[0]))
    # Strengths relative to the mean of their category, and to the item's mean over categories.
    strengths = design.toarray().reshape(n, n_categories, -1)
    strengths = strengths - strengths.mean(axis=0)
    own = (strengths - strengths.mean(axis=1, keepdims=True)).reshape(n * n_categories, -1)
    Phi = strengths.reshape(n * n_categories, -1)
    shape, found = (n, n_categories), []
    for contrasts in (Phi, own):
        errors, freedom = _errors_of(contrasts, C), np.array(np.inf)
        if cluster is not None:
            which = np.arange(answers.n_pairs)
            rows = _signed_rows(answers, np.sqrt(curvatures), which, which.size) @ design
            freedom = effective_clusters(information_of(rows, cluster, inverse @ contrasts.T)) - 1.0
            # A single cluster says nothing of how clusters differ.
            errors = np.where(freedom < 1.0, np.maximum(errors, _errors_of(contrasts, inverse)), errors)
        found.append(
            ((contrasts @ w).reshape(shape), errors.reshape(shape), np.broadcast_to(freedom, errors.shape))
        )
    (scores, errors, df), (differences, own_errors, own_df) = found
    return CategoryBoards(
        scores, errors, differences, own_errors, ratio, df.reshape(shape), own_df.reshape(shape)
    )


def _signed_rows(answers: Answers, values: np.ndarray, rows: np.ndarray, n_rows: int) -> sp.csr_array:
    """Sums of values (e_a - e_b) over the answers of each row."""
    at = (np.concatenate([rows, rows]), answers.pairs.T.ravel())
    return sp.csr_array((np.concatenate([values, -values]), at), shape=(n_rows, answers.n_rows))


def _errors_of(contrasts: np.ndarray, C: np.ndarray) -> np.ndarray:
    return np.sqrt(np.einsum("ij,ij->i", contrasts @ C, contrasts))


def choose_ratio(battles: Battles, codes: np.ndarray, n_categories: int, alpha: float) -> float:
    """How much categories may differ, by held-out battles."""
    answers, n_items = _by_category(battles, codes, n_categories), battles.n_items
    fold = np.random.default_rng(0).permutation(answers.n_pairs) % _FOLDS
    losses = []
    for ratio in _RATIOS:
        design, loss = _design(n_items, n_categories, ratio), 0.0
        for k in range(_FOLDS):
            w = _weights(answers.take(np.flatnonzero(fold != k)), design, alpha)
            test = answers.take(np.flatnonzero(fold == k))
            p = expit(test.differences(design @ w))
            loss += float(test.weight @ log_losses(p, test.share))
        losses.append(loss)
    return _RATIOS[int(np.argmin(losses))]


def boards_over_time(
    battles: Battles,
    edges: np.ndarray,
    alpha: float,
    half_life: float | None,
    cluster: np.ndarray | None = None,
) -> list[tuple[float, np.ndarray, np.ndarray, np.ndarray, Any]]:
    """(time, which items have played, strengths, their standard errors, degrees of freedom) at each edge.

    From the battles before it; with clusters by the sandwich, as soon as there are two of them.
    """
    assert battles.time is not None
    found = []
    for edge in edges:
        rows = np.flatnonzero(battles.time < edge)
        past = battles.take(rows)
        if not len(past) or not (past.share != 0.5).any():
            continue
        if half_life is not None:
            past = decayed(past, half_life, float(edge))
        strengths = fit_strengths(past, alpha)
        codes = None
        if cluster is not None and np.ptp(cluster[rows]) > 0:
            codes = np.unique(cluster[rows], return_inverse=True)[1]
        errors, df = _errors_and_freedom(strengths, codes)
        found.append((float(edge), past.battles_of_items() > 0, strengths.scores, errors, df))
    return found


def _errors_and_freedom(strengths: Strengths, cluster: np.ndarray | None) -> tuple[np.ndarray, Any]:
    """Standard errors of strengths, NaN for very many items, and their degrees of freedom."""
    n = strengths.battles.n_items
    if not strengths.is_dense:
        return np.full(n, np.nan), np.inf
    errors, own = (np.sqrt(dense_covariance(strengths, codes).diagonal()[:n]) for codes in (None, cluster))
    if cluster is None:
        return errors, np.inf
    df = effective_clusters(cluster_information(strengths, cluster)[:, :n]) - 1.0
    return np.where(df < 1.0, np.maximum(errors, own), own), df


def month_edges(days: np.ndarray) -> np.ndarray:
    """The first days of the months after the first battle, up to the one after the last, as days since 1970."""
    day, month = np.timedelta64(1, "D"), np.timedelta64(1, "M")
    ends = np.floor([days.min(), days.max()]).astype(np.int64) * day + np.datetime64("1970-01-01")
    first, last = ends.astype("datetime64[M]")
    return np.arange(first + month, last + 2 * month).astype("datetime64[D]").astype(np.int64).astype(float)


def dates_of(days: Any) -> list[str]:
    """ISO dates of days since 1970."""
    return [
        str(np.datetime64("1970-01-01") + np.timedelta64(int(np.floor(day)), "D"))
        for day in np.atleast_1d(days)
    ]


# Boards by category as one result -------------------------------------------------------------------------------------


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
        return frame_like(self.ratings.backend, category_table(self))

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
        labels = read_categories(categories, pairs.shape[0])
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
    labels = read_categories(categories, raw.n_read or len(raw))
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


# Tables --------------------------------------------------------------------------------------------------------------


def read_categories(categories: Any, n: int) -> list[Hashable]:
    """One label for each of n battles."""
    given = list(categories.to_list() if hasattr(categories, "to_list") else categories)
    labels = [label.strip() or None if isinstance(label, str) else label for label in given]
    if len(labels) != n:
        raise ValueError(f"Name one category for each of {n:,} battles: found {len(labels):,}.")
    missing = [row for row, label in enumerate(labels) if label is None or label != label]
    if missing:
        first = f"row {missing[0] + 1:,}"
        if len(missing) == 1:
            raise ValueError(f"1 battle has no category ({first}): leave it out, or fill it in.")
        raise ValueError(
            f"{len(missing):,} battles have no category ({first} first): leave them out, or fill it in."
        )
    return labels


def category_table(boards: CategoryRatings) -> Columns:
    """`CategoryRatings.table`."""
    ratings, scores, names = boards.ratings, boards.strengths, boards.categories
    orders = np.argsort(-scores, axis=0, kind="stable")
    out: Columns = {}
    if not boards.intervals:
        for c, name in enumerate(names):
            order = orders[:, c]
            part = {
                "item": [ratings.items[i] for i in order],
                "rating": ratings.points(scores[order, c]).tolist(),
            }
            _append(out, {"category": [name] * order.size, **part})
        return out
    found = boards.fitted
    width = quantile_of(ratings.level, found.freedom) * found.errors
    p = _pvalues(found.differences, found.difference_errors, found.difference_freedom)
    for c, name in enumerate(names):
        order = orders[:, c]
        played = ratings.raw.take(np.flatnonzero(boards.codes == c)).battles_of_items()
        part = with_intervals(ratings, order, scores[order, c], width[order, c])
        part |= {
            "difference": (POINTS * found.differences[order, c]).tolist(),
            "pvalue": p[order, c].tolist(),
        }
        _append(out, {"category": [name] * order.size, **part, "battles": whole_numbers(played[order])})
    return out


def _pvalues(differences: np.ndarray, errors: np.ndarray, df: Any) -> np.ndarray:
    """Corrected for all of them; without differences between categories (s = 0) there is nothing to test."""
    z = np.divide(differences, errors, out=np.zeros_like(differences), where=errors > 0)
    if np.ndim(df) == 0 and np.isinf(df):
        tails = ndtr(-np.abs(z))
    else:
        # Of what a single cluster knows nothing can be said.
        tails = np.where(df < 1.0, 0.5, student.sf(np.abs(z), np.maximum(df, 1.0)))
    return corrected(2.0 * tails.ravel()).reshape(z.shape)


def by_month(ratings: Ratings) -> Columns:
    """`Ratings.by_month`."""
    if ratings.raw.time is None:
        raise InputError(
            "Boards by month need the time of every battle", Remedy("time", purpose="and its column")
        )
    edges = month_edges(ratings.raw.time)
    out: Columns = {}
    for edge, played, scores, errors, df in boards_over_time(
        ratings.raw, edges, ratings.alpha, ratings.half_life, ratings.cluster
    ):
        order = np.argsort(-scores, kind="stable")
        order = order[played[order]]
        width = quantile_of(ratings.level, np.broadcast_to(df, scores.shape)[order]) * errors[order]
        month = dates_of(edge - 1.0)[0][:7]
        part = with_intervals(ratings, order, scores[order], width)
        _append(out, {"month": [month] * order.size, **part})
    return out


def _append(out: Columns, more: Columns) -> None:
    for name, values in more.items():
        out.setdefault(name, []).extend(values)
