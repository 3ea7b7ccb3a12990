"""The tables of a leaderboard, as mappings from column to values, and as data frames of the kind that was given."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import numpy as np

from ..shown_tables import visible
from . import ranks
from .battles import FIRST_SIDE
from .ranks import effective_clusters
from .strengths import (
    dense_covariance,
    drawn_errors,
    root_mean_square,
    solved_information,
    solved_standard_errors,
)

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
        best, worst = _many_rank_bounds(ratings, order)
        groups = [""] * order.size
    else:
        best, worst = ranks.rank_bounds(apart)
        groups = ranks.group_letters(apart[np.ix_(order, order)])
    columns = with_intervals(ratings, order, scores[order], width[order])
    columns |= _places(scores, order, best[order], worst[order])
    return {**columns, "group": groups, "battles": whole_numbers(ratings.raw.battles_of_items()[order])}


def _places(scores: np.ndarray, rows: np.ndarray, best: np.ndarray, worst: np.ndarray) -> Columns:
    rank = 1 + np.searchsorted(np.sort(-scores), -scores[rows], side="left")
    return {"rank": rank.tolist(), "rank_lower": best.tolist(), "rank_upper": worst.tolist()}


def _many_rank_bounds(ratings: Ratings, order: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """A part of the error that is allowed is for the best, whose ranks are drawn, the rest for all others."""
    level, df = 1.0 - (1.0 - ratings.level) * (1.0 - ranks.DRAWN_SHARE), ratings.degrees_of_freedom
    best, worst = ranks.many_rank_bounds(ratings.strengths.scores, ratings.standard_errors, level, df)
    first = order[: ranks.MOST_RANKED]
    best[first], worst[first] = _best_rank_bounds(ratings, first)
    return best, worst


def _best_rank_bounds(ratings: Ratings, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    strengths, n = ratings.strengths, len(ratings.items)
    if strengths.is_dense:
        errors = iter([ranks.drawn_normal(dense_covariance(strengths, None)[:n, :n], ranks.RANK_DRAWS)])
    else:
        errors = drawn_errors(strengths, ranks.RANK_DRAWS)
    if ratings.cluster is not None:
        # Errors of different items depend on each other as the model says, of which clusters are too few to tell.
        wider = ratings.standard_errors / ratings.model_standard_errors
        errors = (block * wider[:, None] for block in errors)
    drawn = ranks.drawn_ranks(strengths.scores, errors, rows, ratings.degrees_of_freedom)
    return ranks.drawn_rank_bounds(drawn, n, 1.0 - (1.0 - ratings.level) * ranks.DRAWN_SHARE)


def top(ratings: Ratings, n: int, with_ranks: bool) -> Columns:
    """`Ratings.top`."""
    best = np.argsort(-ratings.strengths.scores, kind="stable")[:n]
    if ratings.strengths.is_dense:
        se = ratings.standard_errors[best]
    else:
        se = solved_standard_errors(ratings.strengths, ratings.cluster, best)
        se = ratings.at_least_those_of_the_model(se, best)
    df = np.broadcast_to(ratings.degrees_of_freedom, len(ratings.items))[best]
    width = ranks.quantile_of(ratings.level, df) * se
    columns = with_intervals(ratings, best, ratings.strengths.scores[best], width)
    if with_ranks and ratings.apart is not None:
        columns |= _places(
            ratings.strengths.scores, best, *(bound[best] for bound in ranks.rank_bounds(ratings.apart))
        )
    elif with_ranks:
        columns |= _places(ratings.strengths.scores, best, *_best_rank_bounds(ratings, best))
    return {**columns, "battles": whole_numbers(ratings.raw.battles_of_items()[best])}


def with_intervals(ratings: Ratings, order: Any, scores: np.ndarray, width: np.ndarray) -> Columns:
    """Items in an order, with their ratings and intervals."""
    return {
        "item": [ratings.items[k] for k in order],
        "rating": ratings.points(scores).tolist(),
        "lower": ratings.points(scores - width).tolist(),
        "upper": ratings.points(scores + width).tolist(),
    }


def verdict(board: Columns, n_same: int) -> str:
    """Who leads a board, and how many of the neighbours on it cannot be told apart."""
    best, n = visible(board["item"][0]), len(board["item"])
    # Where every other item is significantly behind some item, none of them can be the best: the first one is.
    others = sum(low == 1 for low in board["rank_lower"]) - 1
    first = f"{best} leads, but {'one other' if others == 1 else f'{others} others'} may be the best"
    first = first if others else f"{best} is clearly the best"
    if not n_same:
        return f"{first}. All neighbours on the board can be told apart."
    return f"{first}. {n_same} of {n - 1} neighbours on the board cannot be told apart."


def covariates(ratings: Ratings) -> Columns:
    """`Ratings.covariates`."""
    n, strengths = len(ratings.items), ratings.strengths
    b = strengths.coefficients
    rows, cluster = np.arange(n, n + b.size), ratings.cluster
    df: Any = np.inf
    if strengths.is_dense:
        se = np.sqrt(ratings.covariance.diagonal()[n:]) * strengths.scale
    else:
        se = solved_standard_errors(strengths, cluster, rows) * strengths.scale
    if cluster is not None:
        exact = strengths.is_dense
        s = ratings.cluster_information[:, n:] if exact else solved_information(strengths, cluster, rows)
        df = effective_clusters(s) - 1.0
    width = ranks.quantile_of(ratings.level, df) * se
    typical = POINTS * root_mean_square(ratings.raw.covariates)
    typical[[name == FIRST_SIDE for name in ratings.raw.covariate_names]] = POINTS
    bounds = {"": b, "_lower": b - width, "_upper": b + width}
    columns = {name.removeprefix("_") or "coefficient": values.tolist() for name, values in bounds.items()}
    columns |= {f"points{name}": (typical * values).tolist() for name, values in bounds.items()}
    return {"covariate": list(ratings.raw.covariate_names), **columns}


def whole_numbers(values: np.ndarray) -> list[Any]:
    """Counts as ints; sums of weights as they are."""
    return values.astype(int).tolist() if (values == np.round(values)).all() else values.tolist()


# ------------------------------------------------------------------------------------------------ data frames


def backend_of(table: Any) -> Any:
    """What makes frames like this one; for a mapping or rows, the first data frame library that is installed."""
    import narwhals as nw

    try:
        return nw.from_native(table, eager_only=True).implementation
    except TypeError:
        return next((name for name in ("pandas", "polars", "pyarrow") if find_spec(name) is not None), None)


def frame_like(backend: Any, columns: Mapping[str, list[Any]]) -> Any:
    """A data frame of these columns; the mapping itself where no data frame library is installed."""
    import narwhals as nw

    if backend is None:
        return dict(columns)
    if isinstance(backend, str):
        import_module(backend)
    return nw.from_dict(dict(columns), backend=backend).to_native()


def columns_of(frame: Any) -> dict[str, list[Any]]:
    """The columns of a frame that `frame_like` made, as lists."""
    import narwhals as nw

    if isinstance(frame, dict):
        return frame
    return {
        name: column.to_list() for name, column in nw.from_native(frame, eager_only=True).to_dict().items()
    }
