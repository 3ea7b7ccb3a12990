"""The tables of a leaderboard, as mappings from column to values."""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import ndtr
from scipy.stats import t as student

from ..errors import InputError, Remedy
from . import boards, judges, ranks
from .strengths import solved_standard_errors

if TYPE_CHECKING:
    from .result import Ratings

Columns = dict[str, list[Any]]

# Points of a rating for one unit of strength, and the rating of an average item.
POINTS = 400.0 / np.log(10.0)
MEAN_RATING = 1000.0


def board(ratings: Ratings) -> Columns:
    """`Ratings.table`."""
    scores, se = ratings.strengths.scores, ratings.standard_errors
    order = np.argsort(-scores, kind="stable")
    width = ranks.quantile_of(ratings.level, ratings.degrees_of_freedom) * se
    apart = ratings.apart
    if apart is None:
        best, worst = ranks.many_rank_bounds(scores, se, ratings.level, ratings.degrees_of_freedom)
        groups = [""] * order.size
    else:
        best, worst = ranks.rank_bounds(apart)
        groups = ranks.group_letters(apart[np.ix_(order, order)])
    columns = _with_intervals(ratings, order, scores[order], width[order])
    rank = 1 + np.searchsorted(np.sort(-scores), -scores[order], side="left")
    places = {"rank": rank, "rank_lower": best[order], "rank_upper": worst[order]}
    columns |= {name: values.tolist() for name, values in places.items()}
    return {**columns, "group": groups, "battles": _whole(ratings.raw.battles_of_items()[order])}


def top(ratings: Ratings, n: int) -> Columns:
    """`Ratings.top`."""
    best = np.argsort(-ratings.strengths.scores, kind="stable")[:n]
    if ratings.strengths.is_dense:
        se = ratings.standard_errors[best]
    else:
        se = solved_standard_errors(ratings.strengths, ratings.cluster, best)
    width = ranks.quantile_of(ratings.level, ratings.degrees_of_freedom) * se
    columns = _with_intervals(ratings, best, ratings.strengths.scores[best], width)
    return {**columns, "battles": _whole(ratings.raw.battles_of_items()[best])}


def _with_intervals(ratings: Ratings, order: Any, scores: np.ndarray, width: np.ndarray) -> Columns:
    """Items in an order, with their ratings and intervals."""
    return {
        "item": [ratings.items[k] for k in order],
        "rating": ratings.points(scores).tolist(),
        "lower": ratings.points(scores - width).tolist(),
        "upper": ratings.points(scores + width).tolist(),
    }


def covariates(ratings: Ratings) -> Columns:
    """`Ratings.covariates`."""
    n, strengths = len(ratings.items), ratings.strengths
    b = strengths.coefficients
    se = np.sqrt(ratings.covariance.diagonal()[n:]) * strengths.scale
    width = ranks.quantile_of(ratings.level, ratings.degrees_of_freedom) * se
    typical = POINTS * np.sqrt(np.mean(np.square(ratings.raw.covariates), axis=0))
    bounds = {"": b, "_lower": b - width, "_upper": b + width}
    columns = {name.removeprefix("_") or "coefficient": values.tolist() for name, values in bounds.items()}
    columns |= {f"points{name}": (typical * values).tolist() for name, values in bounds.items()}
    return {"covariate": list(ratings.raw.covariate_names), **columns}


def by_category(ratings: Ratings, categories: Any, intervals: bool) -> Columns:
    """`Ratings.by`."""
    labels = list(categories.to_list() if hasattr(categories, "to_list") else categories)
    if len(labels) != len(ratings.raw):
        raise ValueError(
            f"Name one category for each of {len(ratings.raw):,} battles: found {len(labels):,}."
        )
    if ratings.raw.similarity is not None or ratings.raw.rankings is not None:
        raise ValueError("Boards by category are of battles, without features of the items: rate these.")
    if ratings.raw.covariate_names:
        raise ValueError("Boards by category do not control for covariates: rate without them.")
    names = list(dict.fromkeys(labels))
    place = {label: k for k, label in enumerate(names)}
    codes = np.array([place[label] for label in labels])
    return (_categories if intervals else _categories_without_intervals)(ratings, codes, names)


def _categories(ratings: Ratings, codes: np.ndarray, names: list[Hashable]) -> Columns:
    battles, df = ratings.strengths.battles, ratings.degrees_of_freedom
    found = boards.category_boards(battles, codes, len(names), ratings.alpha, cluster=ratings.cluster)
    width = ranks.quantile_of(ratings.level, df) * found.errors
    # Without differences between categories (s = 0) there is nothing to test.
    z = np.divide(
        found.differences,
        found.difference_errors,
        out=np.zeros_like(width),
        where=found.difference_errors > 0,
    )
    tails = student.sf(np.abs(z), df) if np.isfinite(df) else ndtr(-np.abs(z))
    p = judges.corrected(2.0 * tails.ravel()).reshape(z.shape)
    out: Columns = {}
    for c, name in enumerate(names):
        order = np.argsort(-found.scores[:, c], kind="stable")
        played = ratings.raw.take(np.flatnonzero(codes == c)).battles_of_items()
        part = _with_intervals(ratings, order, found.scores[order, c], width[order, c])
        part |= {
            "difference": (POINTS * found.differences[order, c]).tolist(),
            "pvalue": p[order, c].tolist(),
        }
        _append(out, {"category": [name] * order.size, **part, "battles": _whole(played[order])})
    return out


def _categories_without_intervals(ratings: Ratings, codes: np.ndarray, names: list[Hashable]) -> Columns:
    battles, k = ratings.strengths.battles, len(names)
    ratio = boards.choose_ratio(battles, codes, k, ratings.alpha)
    scores = boards.category_scores(battles, codes, k, ratings.alpha, ratio)
    order = np.argsort(-scores, axis=0, kind="stable")
    return {
        "category": [name for name in names for _ in ratings.items],
        "item": [ratings.items[i] for c in range(k) for i in order[:, c]],
        "rating": ratings.points(np.take_along_axis(scores, order, axis=0).T.ravel()).tolist(),
    }


def by_month(ratings: Ratings) -> Columns:
    """`Ratings.by_month`."""
    if ratings.raw.time is None:
        raise InputError(
            "Boards by month need the time of every battle", Remedy("time", purpose="and its column")
        )
    edges = boards.month_edges(ratings.raw.time)
    out: Columns = {}
    for edge, played, scores, errors, df in boards.boards_over_time(
        ratings.raw, edges, ratings.alpha, ratings.half_life, ratings.cluster
    ):
        order = np.argsort(-scores, kind="stable")
        order = order[played[order]]
        width = ranks.quantile_of(ratings.level, df) * errors[order]
        month = boards.dates_of(edge - 1.0)[0][:7]
        part = _with_intervals(ratings, order, scores[order], width)
        _append(out, {"month": [month] * order.size, **part})
    return out


def _append(out: Columns, more: Columns) -> None:
    for name, values in more.items():
        out.setdefault(name, []).extend(values)


def _whole(values: np.ndarray) -> list[Any]:
    """Counts as ints; sums of weights as they are."""
    return values.astype(int).tolist() if (values == np.round(values)).all() else values.tolist()
