r"""Judges: how reliable, which way biased, and how far they agree.

For each judge, logit P(a preferred) = d_k + b x_k with d_k the difference that the model without the battle predicts:
x = 1 finds a liking for the side that is shown first, x = z a liking for a covariate beyond that of all judges, x =
±1 where the judge itself is one of the items a liking for itself. Each is shrunk towards 0 by a normal prior of
standard deviation 1, as few battles say little.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from scipy.special import expit, ndtr

from ..losses.laplace import without_each
from ..losses.logistic import averaged_probability, estimate_reliability
from ..model_selection.significance import holm
from .battles import FIRST_SIDE, POSITION, Battles
from .strengths import Strengths, root_mean_square, variances_of_battles

_STEPS = 30


def slopes_by_judge(
    judge: np.ndarray, x: np.ndarray, offset: np.ndarray, share: np.ndarray, weight: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """b of each judge and its standard error, by Newton's method for all at once; NaN where x is 0 throughout."""
    n = int(judge.max()) + 1
    b = np.zeros(n)
    for _ in range(_STEPS):
        p = expit(offset + b[judge] * x)
        gradient = np.bincount(judge, weight * x * (share - p), n) - b
        curvature = np.bincount(judge, weight * x**2 * p * (1.0 - p), n) + 1.0
        step = np.clip(gradient / curvature, -1.0, 1.0)
        b += step
        if np.abs(step).max(initial=0.0) < 1e-10:
            break
    seen = np.bincount(judge, weight * np.abs(x), n) > 0
    return np.where(seen, b, np.nan), np.where(seen, 1.0 / np.sqrt(curvature), np.nan)


def judge_table(strengths: Strengths) -> dict[str, list[Any]]:
    """One row for each judge: battles, agreement, reliability, biases with p-values corrected by Holm's method."""
    battles = strengths.battles
    assert battles.judge is not None
    codes, labels = battles.judge
    n = len(labels)
    each = strengths.each
    variance = variances_of_battles(strengths)
    if battles.rankings is None and battles.margin is None and battles.ties == "half":
        mean, variance = without_each(each, strengths.theta, variance)
    else:
        mean = strengths.differences()
    # Where ties have a probability of their own, the model of who wins is that of decided battles.
    share = battles.share
    weight = np.where((share == 0.5) & (battles.ties == "davidson"), 0.0, each.weight)
    each = replace(each, share=share)
    reliability = estimate_reliability(replace(each, judges=codes, weight=weight), mean, variance)
    p = averaged_probability(mean, variance)
    right = np.where(p == 0.5, 0.5, np.where(p > 0.5, each.share, 1.0 - each.share))
    total = np.bincount(codes, each.weight, n)
    table: dict[str, list[Any]] = {
        "judge": list(labels),
        "battles": np.bincount(codes, minlength=n).tolist(),
        "ties": (np.bincount(codes, each.weight * (each.share == 0.5), n) / total).tolist(),
        "agreement": (np.bincount(codes, each.weight * right, n) / total).tolist(),
        "reliability": reliability.tolist(),
    }
    offset = mean / np.sqrt(1.0 + np.pi / 8.0 * variance)
    for name, x in _suspicions(battles).items():
        b, se = slopes_by_judge(codes, x, offset, each.share, weight)
        table[f"{name}_bias"] = b.tolist()
        table[f"{name}_p"] = corrected(2.0 * ndtr(-np.abs(b / se))).tolist()
    return table


def _suspicions(battles: Battles) -> dict[str, np.ndarray]:
    assert battles.judge is not None
    codes, labels = battles.judge
    found: dict[str, np.ndarray] = {}
    if battles.ordered:
        found["position"] = np.ones(len(battles))
    for name, z in zip(battles.covariate_names, battles.covariates.T, strict=True):
        if name not in (POSITION, FIRST_SIDE):
            found[name] = z / root_mean_square(z[:, None])[0]
    place = {str(item): k for k, item in enumerate(battles.items)}
    itself = np.array([place.get(str(label), -1) for label in labels])[codes]
    x = (battles.pairs[:, 0] == itself).astype(float) - (battles.pairs[:, 1] == itself)
    if (itself >= 0).any():
        found["self"] = x
    return found


def corrected(p: np.ndarray) -> np.ndarray:
    """P-values corrected for their number by Holm's method; NaN stays."""
    out = np.full(p.shape, np.nan)
    known = ~np.isnan(p)
    out[known] = holm(p[known].tolist())
    return out


def _judgements(battles: Battles, kept: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Units that may be judged several times, and how often each was lost, tied and won by its first item.

    A unit is a pair of items, about the same prompt where battles are clustered by prompts. Units are numbered alike
    for every choice of battles. Shapes (u,) and (u, 3).
    """
    low = battles.pairs.min(axis=1)
    code = low * battles.n_items + battles.pairs.max(axis=1)
    if battles.cluster is not None:
        code = code * len(battles.cluster[1]) + battles.cluster[0]
    units, which = np.unique(code, return_inverse=True)
    won = np.where(battles.pairs[:, 0] == low, battles.share, 1.0 - battles.share)
    counts = np.zeros((units.size, 3))
    some = slice(None) if kept is None else kept
    np.add.at(counts, (which.ravel()[some], np.rint(2 * won).astype(int)[some]), 1.0)
    return units, counts


def krippendorff_alpha(battles: Battles) -> float:
    """Krippendorff's alpha of who won, over units that several judgements are about; NaN where there are none.

    Which item comes first in a unit means nothing, so each unit counts in both orders.
    """
    _, counts = _judgements(battles)
    seen = counts.sum(axis=1)
    counts, seen = counts[seen > 1], seen[seen > 1]
    if not seen.size:
        return float("nan")
    counts, seen = np.concatenate([counts, counts[:, ::-1]]), np.concatenate([seen, seen])
    total = seen.sum()
    differ = (np.square(seen) - np.square(counts).sum(axis=1)) / (seen - 1.0)
    expected = (total**2 - np.square(counts.sum(axis=0)).sum()) / (total - 1.0)
    return float(1.0 - differ.sum() / expected) if expected > 0 else float("nan")


def compare_groups(battles: Battles, one: np.ndarray, other: np.ndarray) -> dict[str, float]:
    """How often judgements of two groups of judges on the same unit agree, and those inside of each group.

    Parameters
    ----------
    battles : Battles
    one, other : bool ndarrays of shape (l,)
        The battles of each group.
    """
    (_, first), (_, second) = _judgements(battles, one), _judgements(battles, other)
    shared = (first.sum(axis=1) > 0) & (second.sum(axis=1) > 0)
    a, b = first[shared], second[shared]
    return {
        "shared": int(shared.sum()),
        "agreement": _share((a * b).sum(), (a.sum(axis=1) * b.sum(axis=1)).sum()),
        "within_one": _share((a * (a - 1)).sum(), (a.sum(axis=1) * (a.sum(axis=1) - 1)).sum()),
        "within_other": _share((b * (b - 1)).sum(), (b.sum(axis=1) * (b.sum(axis=1) - 1)).sum()),
    }


def _share(part: float, whole: float) -> float:
    return float(part / whole) if whole else float("nan")
