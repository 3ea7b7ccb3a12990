"""Data that nothing can be learned from are refused before any work."""

from __future__ import annotations

import numpy as np
from scipy import sparse as sp

from ..comparisons import Groups
from ..errors import InputError, Remedy
from ..io import RankingData


def check_ranking(data: RankingData) -> list[str]:
    """Refuse data that nothing can be learned from; return notes about the rest."""
    y, notes = data.y, []
    assert y is not None
    if len(data) < 4:
        raise InputError(
            f"{data.source}: {len(data)} rows are too few to learn from and hold out: expected 4 or more"
        )
    if (y == y[0]).all():
        raise InputError(f"{data.source}: all targets are {y[0]:g}: there is no order to learn")
    if data.qid is not None and data.n_queries == 1:
        raise InputError(
            f"{data.source}: all rows belong to one query ({data.qid[0]}), and whole queries are held out to "
            "choose alpha",
            Remedy("query", None, "to learn one ranking of all rows"),
            Remedy("query", purpose="and another column"),
        )
    groups = data.groups
    tied = _spread(y[:, None], groups)[:, 0] == 0
    if tied.all():
        alone = bool((groups.counts == 1).all())
        what = "every query has one row" if alone else "the targets of every query are tied"
        raise InputError(
            f"{data.source}: {what}: there is no pair to learn from",
            Remedy("query", None, "to learn one ranking of all rows"),
            Remedy("query", purpose="with a column whose rows are compared")
            if alone
            else Remedy("target", purpose="with another column"),
        )
    if tied.any():
        notes.append(
            f"{int(tied.sum())} of {groups.n_groups} queries without a pair to order: all their targets are tied."
        )
    return notes + _check_features(data, groups)


def check_weights(data: RankingData) -> None:
    """Refuse weights that the estimate of quality would ignore."""
    if data.qid is None:
        raise InputError(
            f"{data.source}: weights of rows are for rows in queries: the estimate of one ranking of all rows would "
            "ignore them",
            Remedy("query", purpose="with the column of the queries"),
        )


def _check_features(data: RankingData, groups: Groups) -> list[str]:
    X = data.X
    if sp.issparse(X):
        varies = np.asarray(X.max(axis=0).toarray() != X.min(axis=0).toarray()).ravel()
        within = varies
    else:
        if not np.isfinite(X).all():
            raise InputError(f"{data.source}: a feature is NaN or infinite: expected finite numbers")
        varies = np.ptp(X, axis=0) > 0
        within = np.asarray((_spread(X, groups) > 0).any(axis=0))
    if not varies.any():
        raise InputError(f"{data.source}: every feature is constant: there is nothing to order the rows by")
    if not within.any():
        raise InputError(
            f"{data.source}: every feature is constant within the queries: it cannot order their rows",
            Remedy("query", purpose="and another column"),
            Remedy("features", purpose="and other columns"),
        )
    notes = []
    hashed = _hashed(data)  # most buckets of a few words are empty
    constant = [name for name, one in zip(data.feature_names, varies) if not one and name not in hashed]
    if constant:
        notes.append(f"{_listed(constant)} constant, and without influence.")
    pairs = zip(data.feature_names, within, varies)
    same = [name for name, one, other in pairs if other and not one and name not in hashed]
    if same:
        notes.append(
            f"{_listed(same)} constant within every query: alone it cannot order the rows of a query."
        )
    return notes


def _hashed(data: RankingData) -> set[str]:
    """Features that are buckets of hashed words."""
    if data.encoder is None:
        return set()
    kinds = data.encoder.kinds_
    return {
        name
        for column, encoder in data.encoder.encoders_.items()
        if kinds[column] in ("text", "words")
        for name in encoder.names(column)
    }


def _listed(names: list[str]) -> str:
    shown = ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
    return f"Feature {shown} is" if len(names) == 1 else f"Features {shown} are"


def _spread(values: np.ndarray, groups: Groups) -> np.ndarray:
    """Largest minus smallest value of each column in each group, shape (n_groups, n)."""
    ordered, starts = values[groups.order], groups.starts[:-1]
    return np.maximum.reduceat(ordered, starts) - np.minimum.reduceat(ordered, starts)
