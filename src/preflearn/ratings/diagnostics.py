"""What looks wrong: items that cannot be compared, circles, battles that surprise, rows that repeat."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.sparse.csgraph import connected_components
from scipy.special import expit, ndtr

from ..shown_tables import visible
from .battles import Battles
from .choice import holds_out_by_formula, leave_battle_out, log_losses
from .strengths import Strengths

_MOST_NAMED = 5
# Items among which circles are looked for one by one.
_MOST_ITEMS = 400


def components(battles: Battles) -> list[list[Hashable]]:
    """Items that battles connect, the largest component first."""
    a, b = battles.pairs[battles.weight > 0].T
    n = battles.n_items
    _, labels = connected_components(sp.coo_array((np.ones(a.size), (a, b)), shape=(n, n)), directed=False)
    found = _by_label(battles.items, labels)
    if battles.similarity is None:
        return found
    # Features connect the items that have not played.
    played = {battles.items[k] for k in np.unique(battles.pairs)}
    return [component for component in found if component[0] in played]


def mutually_beaten(battles: Battles) -> list[list[Hashable]]:
    """Items among which everybody has, through others, beaten everybody: maximum likelihood needs one such set."""
    a, b = battles.pairs.T
    n, w = battles.n_items, battles.weight
    wins, losses = (w > 0) & (battles.share > 0), (w > 0) & (battles.share < 1)
    rows, columns = np.concatenate([a[wins], b[losses]]), np.concatenate([b[wins], a[losses]])
    graph = sp.coo_array((np.ones(rows.size), (rows, columns)), shape=(n, n))
    return _by_label(battles.items, connected_components(graph, directed=True, connection="strong")[1])


def _by_label(items: list[Hashable], labels: np.ndarray) -> list[list[Hashable]]:
    found: dict[int, list[Hashable]] = {}
    for item, label in zip(items, labels.tolist(), strict=True):
        found.setdefault(label, []).append(item)
    return sorted(found.values(), key=len, reverse=True)


def describe_components(found: list[list[Hashable]]) -> str:
    """Their items in a few words, the largest without its names where there are many."""
    parts = []
    for component in found[:_MOST_NAMED]:
        names = ", ".join(map(visible, component[:_MOST_NAMED]))
        rest = len(component) - _MOST_NAMED
        parts.append(f"{names} and {rest:,} more" if rest > 0 else names)
    more = f"; and {len(found) - _MOST_NAMED:,} more components" if len(found) > _MOST_NAMED else ""
    return "; ".join(parts) + more


def transitivity_test(strengths: Strengths) -> dict[str, Any]:
    """Does one strength for each item explain the results of all pairs? Pearson's statistic over decided battles.

    Its mean and variance under the model hold for any number of battles of a pair, so that no pairs need to be
    pooled.
    """
    battles = strengths.battles
    if battles.covariates.shape[1] or not holds_out_by_formula(battles):
        return {"pvalue": float("nan"), "pairs": 0}
    from ..losses.logistic import LogisticLoss

    decided = battles.take(np.flatnonzero(np.isin(battles.share, (0.0, 1.0)) & (battles.weight > 0)))
    counted = decided.counted()
    p = expit(counted.differences(strengths.scores))
    n, variance = counted.weight, p * (1.0 - p)
    terms = n * (counted.share - p) ** 2 / variance
    # What the fit has taken off: each pair's share of the parameters.
    curvature = LogisticLoss(counted, strengths.scores).curvatures
    if not strengths.is_dense:
        return {"pvalue": float("nan"), "pairs": int(n.size)}
    C, (a, b) = strengths.inverse_hessian, counted.pairs.T
    leverage = np.clip(curvature * (C[a, a] + C[b, b] - 2.0 * C[a, b]), 0.0, 1.0)
    free = 1.0 - leverage
    spread = float(np.sum(free**2 * (2.0 + (1.0 / variance - 6.0) / n)))
    if free.sum() < 1.0 or spread <= 0:
        return {"pvalue": float("nan"), "pairs": int(n.size)}
    z = (float(terms.sum()) - float(free.sum())) / np.sqrt(spread)
    return {"statistic": float(terms.sum()), "expected": float(free.sum()), "z": float(z),
            "pvalue": float(ndtr(-z)), "pairs": int(n.size)}  # fmt: skip


def strongest_circle(battles: Battles) -> list[Hashable] | None:
    """Three items of which each has beaten the next, the one whose weakest link is most significant; None without
    any."""
    if battles.n_items > _MOST_ITEMS or battles.n_items < 3:
        return None
    counted = battles.counted() if not battles.covariates.shape[1] else _without_covariates(battles).counted()
    n = battles.n_items
    Z = np.zeros((n, n))
    a, b = counted.pairs.T
    z = (2.0 * counted.share - 1.0) * np.sqrt(counted.weight)
    Z[a, b], Z[b, a] = z, -z
    best, found = 0.0, None
    for i in range(n):
        # min over the three links of the circle i → j → k → i.
        links = np.minimum(np.minimum(Z[i][:, None], Z), Z[:, i][None, :])
        at = int(np.argmax(links))
        if links.flat[at] > best:
            best, found = float(links.flat[at]), (i, *divmod(at, n))
    return None if found is None else [battles.items[k] for k in found]


def _without_covariates(battles: Battles) -> Battles:
    from dataclasses import replace

    return replace(battles, covariates=np.empty((len(battles), 0)), covariate_names=())


def surprises(strengths: Strengths, n: int) -> dict[str, list[Any]]:
    """The battles that the model without them found least likely."""
    battles = strengths.battles
    by_formula = holds_out_by_formula(battles)
    p = leave_battle_out(strengths) if by_formula else expit(strengths.differences())
    loss = np.where(battles.share == 0.5, 0.0, log_losses(p, battles.share))
    rows = np.argsort(-loss, kind="stable")[:n]
    rows = rows[loss[rows] > 0]
    items = battles.items
    won = np.where(battles.share[rows] == 1.0, battles.pairs[rows, 0], battles.pairs[rows, 1])
    lost = np.where(battles.share[rows] == 1.0, battles.pairs[rows, 1], battles.pairs[rows, 0])
    table: dict[str, list[Any]] = {
        "row": rows.tolist(),
        "winner": [items[k] for k in won],
        "loser": [items[k] for k in lost],
        "probability": np.exp(-loss[rows]).tolist(),
    }
    if battles.judge is not None:
        table["judge"] = [battles.judge[1][k] for k in battles.judge[0][rows]]
    return table


def repeated_battles(battles: Battles) -> int:
    """Battles that repeat an earlier one in everything that is known, where judges or times are."""
    keys = [battles.pairs[:, 0], battles.pairs[:, 1], battles.share, *battles.covariates.T]
    if battles.judge is None and battles.time is None:
        return 0
    keys += [one[0] for one in (battles.judge, battles.cluster) if one is not None]
    if battles.time is not None:
        keys.append(battles.time)
    distinct = np.unique(np.stack([np.asarray(key, dtype=float) for key in keys], axis=1), axis=0)
    return len(battles) - distinct.shape[0]
