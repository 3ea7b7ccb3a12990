"""What looks wrong: items that cannot be compared, circles, battles that surprise, rows that repeat; and an audit.

The audit looks for nine things that make boards wrong, each by a test of its own. Every test asks whether what was seen
would happen by chance on a sound board, and speaks where it would once in 200 such boards, so that fewer than one sound
board in 20 is accused of anything.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp
from scipy.sparse.csgraph import connected_components
from scipy.special import expit, ndtr
from scipy.stats import poisson

from ..errors import shortened
from ..shown_tables import visible
from .battles import Battles
from .boards import dates_of
from .held_out import holds_out_by_formula, leave_battle_out, log_losses
from .judges import corrected, judge_table
from .ranks import MOST_COMPARED
from .strengths import Strengths

if TYPE_CHECKING:
    from .result import Ratings

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
    parts = map(_named, found[:_MOST_NAMED])
    more = f"; and {len(found) - _MOST_NAMED:,} more components" if len(found) > _MOST_NAMED else ""
    return "; ".join(parts) + more


def _named(labels: Sequence[Hashable]) -> str:
    return shortened(list(map(visible, labels)), _MOST_NAMED)


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


# The audit ------------------------------------------------------------------------------------------------------------


# What is called significant.
_RARE = 0.005
_PERMUTATIONS = 20
# Battles of one prompt, relative to that of most.
_MUCH = 3.0

Finding = tuple[str, str, float]


def findings(ratings: Ratings) -> list[Finding]:
    """(defect, sentence, p-value) of everything that looks wrong."""
    battles = ratings.raw
    found = [
        *_disconnected(ratings),
        *_cycle(ratings),
        *_duplicates(battles),
        *_copied_prompts(battles),
        *_renamed(ratings),
        *_time_leak(ratings),
        *_positions(ratings),
    ]
    return [*found, *(_judges(ratings) if battles.judge is not None else [])]


def _disconnected(ratings: Ratings) -> list[Finding]:
    parts = ratings.diagnostics["components"]
    if len(parts) < 2:
        return []
    return [("disconnected part", f"No battle connects {_named(parts[1])} with {_named(parts[0])}.", 0.0)]


def _cycle(ratings: Ratings) -> list[Finding]:
    p, circle = ratings.diagnostics["transitivity"]["pvalue"], ratings.diagnostics["circle"]
    # The tail of this test is heavier than it says.
    if not p < _RARE / 5.0:
        return []
    example = ""
    if circle is not None:
        first, *others = map(visible, circle)
        example = f", for example {' over '.join([first, *others, first])}"
    return [
        (
            "cycle",
            f"One strength for each item does not explain all results (p = {p:.1g}){example}: battles depend on more "
            "than strength, or on each other (name a judge or a cluster).",
            p,
        )
    ]


def _duplicates(battles: Battles) -> list[Finding]:
    """Rows that repeat another one in everything, against rows whose judges and times are shuffled."""
    if battles.rankings is not None or (battles.judge is None and battles.time is None):
        return []
    a, b = battles.pairs.T
    share = np.where(a < b, battles.share, 1.0 - battles.share)
    known = np.stack([np.minimum(a, b), np.maximum(a, b), share], axis=1)
    if battles.cluster is not None:
        known = np.column_stack([known, battles.cluster[0]])
    who = [
        one for one in (None if battles.judge is None else battles.judge[0], battles.time) if one is not None
    ]
    seen = np.unique(known, axis=0, return_inverse=True)[1]
    said = np.unique(np.stack(who, axis=1), axis=0, return_inverse=True)[1]
    rng = np.random.default_rng(0)
    observed = _repeats(seen, said)
    usual = np.mean([_repeats(seen, rng.permutation(said)) for _ in range(_PERMUTATIONS)])
    p = float(poisson.sf(observed - 1, usual + 1.0 / _PERMUTATIONS))
    if not p < _RARE:
        return []
    return [
        (
            "duplicate votes",
            f"{observed:,} battles repeat an earlier one in every column that was read; chance would give about "
            f"{usual:.0f}.",
            p,
        )
    ]


def _repeats(one: np.ndarray, other: np.ndarray) -> int:
    return one.size - np.unique(one.astype(np.int64) * (int(other.max()) + 1) + other).size


def _copied_prompts(battles: Battles) -> list[Finding]:
    if battles.cluster is None:
        return []
    codes, labels = battles.cluster
    counts = np.bincount(codes, minlength=len(labels))
    usual = float(np.median(counts))
    p = np.minimum(len(labels) * poisson.sf(counts - 1, max(usual, counts.mean())), 1.0)
    guilty = np.flatnonzero((p < _RARE) & (counts >= _MUCH * usual))
    if not guilty.size:
        return []
    guilty = guilty[np.argsort(-counts[guilty], kind="stable")]
    share = 100.0 * counts[guilty].sum() / counts.sum()
    return [
        (
            "copied prompts",
            f"{share:.0f} % of the battles are about {guilty.size:,} of {len(labels):,} labels of the cluster, many "
            f"times as many as about most: {_named([labels[k] for k in guilty])}.",
            float(p[guilty].min()),
        )
    ]


def _renamed(ratings: Ratings) -> list[Finding]:
    """Items that should have met often, never did, and are about as strong."""
    battles, n = ratings.raw, len(ratings.items)
    if n > MOST_COMPARED or n < 4 or battles.rankings is not None or not ratings.strengths.is_dense:
        return []
    met = np.zeros((n, n))
    np.add.at(met, tuple(battles.pairs.T), 1.0)
    met = met + met.T
    # Each item's tendency to be drawn, so that expected meetings have the right sums without a diagonal.
    total = met.sum(axis=1)
    drawn = total / np.sqrt(max(total.sum(), 1.0))
    for _ in range(50):
        drawn = np.divide(total, np.maximum(drawn.sum() - drawn, 1e-12))
        drawn = np.sqrt(drawn * np.divide(total, np.maximum(drawn.sum() - drawn, 1e-12)))
    expected = np.outer(drawn, drawn)
    i, j = np.triu_indices(n, 1)
    p = np.minimum(i.size * np.exp(-expected[i, j]), 1.0)
    if battles.time is not None:
        first, last = np.full(n, np.inf), np.full(n, -np.inf)
        for side in battles.pairs.T:
            np.minimum.at(first, side, battles.time)
            np.maximum.at(last, side, battles.time)
        # One stopped before the other began: by chance, of two with k battles each, twice in (2k)! / k!² boards.
        apart = (last[i] < first[j]) | (last[j] < first[i])
        p[apart] = np.minimum(p[apart], i.size * np.exp2(1.0 - np.minimum(total[i], total[j])[apart]))
    C = ratings.covariance
    gap = np.abs(ratings.strengths.scores[i] - ratings.strengths.scores[j])
    close = gap < 2.5 * np.sqrt(np.maximum(C[i, i] + C[j, j] - 2.0 * C[i, j], 0.0))
    guilty = np.flatnonzero((met[i, j] == 0) & (p < _RARE) & close)
    # Two groups that were never matched are not one item.
    if not guilty.size or guilty.size > n / 2:
        return []
    pairs = [f"{visible(ratings.items[i[k]])} and {visible(ratings.items[j[k]])}" for k in guilty]
    return [
        (
            "renamed model",
            f"These were in many battles, never met or never at the same time, and are about as strong: "
            f"{_named(list(pairs))}. Are they the same under two names?",
            float(p[guilty].min()),
        )
    ]


def _time_leak(ratings: Ratings) -> list[Finding]:
    """Dates to come, and results that depend on when a battle was recorded."""
    battles = ratings.raw
    if battles.time is None:
        return []
    today = float((np.datetime64("now") - np.datetime64("1970-01-01")) / np.timedelta64(1, "D"))
    # Whole numbers of days since something else are no dates.
    if battles.time.min() > 3650.0 and (late := battles.time > today + 1.0).any():
        return [
            (
                "time leak",
                f"{int(late.sum()):,} battles are dated after today ({dates_of(battles.time[late][0])[0]}).",
                0.0,
            )
        ]
    off, spread = _residuals(ratings)
    when = np.argsort(np.argsort(battles.time, kind="stable")).astype(float)
    when -= np.average(when, weights=spread)
    p = float(2.0 * ndtr(-abs(off @ when) / max(np.sqrt(spread @ np.square(when)), 1e-300)))
    if not p < _RARE:
        return []
    return [
        (
            "time leak",
            f"Side a wins more often at some times than at others (p = {p:.1g}): times tell results.",
            p,
        )
    ]


def _residuals(ratings: Ratings) -> tuple[np.ndarray, np.ndarray]:
    """y - E y of each battle with weight 1, and its variance."""
    strengths = ratings.strengths
    P = strengths.probabilities()
    share = strengths.battles.share
    if P.ndim == 1:
        return share - P, P * (1.0 - P)
    mean = P[:, 0] + 0.5 * P[:, 1]
    return share - mean, P[:, 0] + 0.25 * P[:, 1] - np.square(mean)


def _positions(ratings: Ratings) -> list[Finding]:
    """Of all judges together; those of single judges are in `_judges`."""
    battles = ratings.raw
    if not battles.ordered or battles.rankings is not None or battles.margin is not None:
        return []
    off, spread = _residuals(ratings)
    z = float(off.sum() / np.sqrt(max(spread.sum(), 1e-300)))
    p = float(2.0 * ndtr(-abs(z)))
    if not p < _RARE:
        return []
    side = "first" if z > 0 else "second"
    return [
        (
            "position bias",
            f"The side named {side} wins more often than strengths explain (p = {p:.1g}): control for it with "
            "first_side=True.",
            p,
        )
    ]


def _judges(ratings: Ratings) -> list[Finding]:
    """Judges with a liking for a side or for themselves, and those whose answers say nothing."""
    table, found = judge_table(ratings.strengths), []
    for key, defect, words in (
        ("position", "position bias", "prefer one side"), ("self", "self-preference", "prefer themselves"),
    ):  # fmt: skip
        p = np.array(table.get(f"{key}_p", []), dtype=float)
        guilty = [label for label, one in zip(table["judge"], p, strict=False) if one < _RARE]
        if guilty:
            text = f"Judges that {words} (p < {_RARE:g}, corrected): {_named(guilty)}."
            found.append((defect, text, float(np.nanmin(p))))
    battles, strengths = ratings.raw, ratings.strengths
    assert battles.judge is not None
    codes, labels = battles.judge
    off, spread = _residuals(ratings)
    d, n = strengths.differences(), len(labels)
    # Of judges who see no strengths, stronger items win less often than they should.
    z = np.bincount(codes, d * off, n) / np.sqrt(np.maximum(np.bincount(codes, d**2 * spread, n), 1e-300))
    p = corrected(ndtr(z))
    guilty = [labels[k] for k in np.flatnonzero((p < _RARE) & (np.array(table["reliability"]) < 0.5))]
    if n > 1 and guilty:
        text = f"Judges whose answers hardly depend on who meets, as those of a bot: {_named(guilty)}."
        found.append(("bot judge", text, float(p.min())))
    return found
