r"""Judges: how reliable, which way biased, and how far they agree.

For each judge, logit P(a preferred) = d_k + b x_k with d_k the difference that the model without the battle predicts:
x = 1 finds a liking for the side that is shown first, x = z a liking for a covariate beyond that of all judges, x =
±1 where the judge itself is one of the items a liking for itself. Each is shrunk towards 0 by a normal prior of
standard deviation 1, as few battles say little.

**Trusted judgements**, a few, and many cheap ones that help without being believed.

Ratings of the trusted judgements alone are not biased by anybody else. Cheap judgements of the same battles say
whether a trusted one was lucky: with y_k the share of a trusted judgement k of the pair ij, c_k the mean share that
cheap judges gave in the same battle and c̄_ij their mean over all battles of the pair, ratings are fitted to

    y_k - κ (c_k - c̄_ij)

in place of y_k. Its expectation is that of y_k for any κ, whatever the cheap judges think; this is prediction-powered
inference, the sum over pairs of ℓ_trusted + κ (ℓ_cheap,all - ℓ_cheap,paired), whose cheap parts agree in everything but
these shares. With n_ij battles that both have judged, of N_ij that the cheap have, and φ = 1 - n_ij / N_ij, the meat of
the sandwich is

    Σ_k x_k x_kᵀ [p_k (1 - p_k) - φ_k (2 κ κ* - κ²) (c_k - c̄_ij)²],    κ* = Σ φ (c - c̄)(y - p) / Σ φ (c - c̄)²,

smallest at κ = κ*, of which the part in [0, 1] is taken: intervals are never wider than those of the trusted alone.

References
----------
Angelopoulos, Duchi and Zrnic, "PPI++: Efficient prediction-powered inference", arXiv:2311.01453.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.special import expit, ndtr

from ..errors import InputError, Remedy, shortened
from ..losses.laplace import without_each
from ..losses.logistic import averaged_probability, estimate_reliability
from ..model_selection.significance import holm
from ..shown_tables import shows_itself
from .battles import FIRST_SIDE, POSITION, Battles, recoded
from .strengths import Strengths, TrustedStrengths, dense_covariance, root_mean_square, variances_of_battles

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


# Trusted judgements ---------------------------------------------------------------------------------------------------


# A slope below this many standard errors may as well be nothing.
_CLEAR = 1.64


@shows_itself
@dataclass(frozen=True)
class TrustedJudges:
    """What the other judges' judgements are worth.

    Attributes
    ----------
    judges : list
        Those that are trusted.
    n_trusted, n_others : int
        Judgements.
    shared : int
        Trusted judgements of battles that others have judged, too.
    agreement : float
        The share of these in which the others, on average, say the same; NaN without any.
    kappa : float
        How much of what the others say beyond the pair is believed, between 0 and 1.
    worth : float
        As many more trusted judgements would make intervals as narrow.
    """

    judges: list[Hashable]
    n_trusted: int
    n_others: int
    shared: int
    agreement: float
    kappa: float
    worth: float

    def __str__(self) -> str:
        return (
            f"{self.n_others:,} judgements by others, {self.shared:,} of the {self.n_trusted:,} trusted ones about the "
            f"same battles: worth {self.worth:,.0f} more trusted judgements (kappa = {self.kappa:.2f})."
        )


def split_trusted(battles: Battles, trusted: Any) -> Battles:
    """The trusted judgements, with what the others say of the same battles."""
    assert battles.judge is not None
    codes, labels = battles.judge
    is_trusted = _read_trusted(trusted, labels)[codes]
    pair, sign = _pairs(battles)
    units = pair if battles.cluster is None else pair * len(battles.cluster[1]) + battles.cluster[0]
    unit = np.unique(units, return_inverse=True)[1]
    n = int(unit.max()) + 1
    share = np.where(sign > 0, battles.share, 1.0 - battles.share)
    cheap = np.bincount(unit[~is_trusted], minlength=n)
    said = np.bincount(unit[~is_trusted], share[~is_trusted], n) / np.maximum(cheap, 1)
    both = (cheap > 0) & (np.bincount(unit[is_trusted], minlength=n) > 0)
    pair_of = np.zeros(n, dtype=np.int64)
    pair_of[unit] = np.unique(pair, return_inverse=True)[1]
    total, paired = (np.bincount(pair_of, weights) for weights in (cheap > 0, both))
    mean = np.bincount(pair_of, said * (cheap > 0)) / np.maximum(total, 1)
    left = 1.0 - paired / np.maximum(total, 1)
    rows = np.flatnonzero(is_trusted)
    at = unit[rows]
    off = np.where(cheap[at] > 0, said[at] - mean[pair_of[at]], 0.0) * np.where(sign[rows] > 0, 1.0, -1.0)
    kept = battles.take(rows)
    return replace(
        kept,
        judge=recoded(kept.judge),
        cluster=recoded(kept.cluster),
        cheap=off,
        # A pair alone does not say which judgements are about the same battle.
        cheap_left=np.where((cheap[at] > 0) & (battles.cluster is not None), left[pair_of[at]], np.nan),
        rows=rows if battles.rows is None else battles.rows[rows],
        n_read=battles.n_read or len(battles),
        outcomes={
            name: int((kept.share == y).sum()) for name, y in (("a won", 1.0), ("b won", 0.0), ("tie", 0.5))
        },
    )


def _read_trusted(trusted: Any, labels: list[Hashable]) -> np.ndarray:
    """Which judges are trusted."""
    names = [trusted] if isinstance(trusted, (str, int)) else list(trusted)
    place = {str(label): k for k, label in enumerate(labels)}
    unknown = [name for name in names if str(name).strip() not in place]
    if unknown or not names:
        found = f"{unknown[0]!r}, who has judged nothing" if unknown else "nobody"
        raise InputError(
            f"{{argument}} names {found}: the judges are {shortened([repr(label) for label in labels])}",
            argument="trusted",
        )
    chosen = np.isin(np.arange(len(labels)), [place[str(name).strip()] for name in names])
    if chosen.all():
        raise InputError(
            "{argument} names every judge, so that there are no others that could help. Leave it out",
            argument="trusted",
        )
    return chosen


def _pairs(battles: Battles) -> tuple[np.ndarray, np.ndarray]:
    a, b = battles.pairs.T
    return np.minimum(a, b) * battles.n_items + np.maximum(a, b), np.where(a < b, 1.0, -1.0)


def worth_of_others(strengths: TrustedStrengths, n_all: int) -> tuple[TrustedJudges, list[str]]:
    """What the others are worth, and what to know about it."""
    battles = strengths.battles
    assert battles.judge is not None and battles.cheap_left is not None and battles.cheap is not None
    n, m = len(battles), battles.n_items
    with_help = dense_covariance(strengths, None).diagonal()[:m].sum()
    alone = dense_covariance(replace(strengths, gain=0.0), None).diagonal()[:m].sum()
    shared = ~np.isnan(battles.cheap_left)
    decided = shared & (battles.share != 0.5) & (battles.cheap != 0.0)
    same = (np.sign(battles.cheap) == np.sign(battles.share - 0.5))[decided]
    found = TrustedJudges(
        battles.judge[1], n, n_all - n, int(shared.sum()), float(same.mean()) if same.size else float("nan"),
        strengths.kappa, float(n * (alone / with_help - 1.0)),
    )  # fmt: skip
    if not found.shared:
        return found, [
            "No battle was judged by trusted judges as well as by others, so that the others' judgements are worth "
            "nothing: name the column of what was judged, such as a prompt, as the cluster."
        ]
    if strengths.kappa == 0.0 or strengths.clarity < _CLEAR:
        return found, [
            f"On the {found.shared:,} battles that both have judged, the others do not clearly agree with the trusted "
            "judges beyond who is stronger: as far as can be told their judgements are worth nothing here."
        ]
    return found, [f"{found}"]


def about_prompts(name: str) -> str:
    """Which column said what was judged."""
    return f"Judgements with the same {name} and the same pair are taken to be about the same battle."


def refuse_with_trusted(options: dict[str, Any], alpha: Any, half_life: Any, ranking: str | None) -> None:
    """Refuse options with which the cheap parts would not cancel."""
    if options["judge"] is None:
        raise InputError(
            "{argument} names judges", Remedy("judge", purpose="and their column"), argument="trusted"
        )
    asked = {
        **{name: options[name] for name in ("margin", "covariates", "first_side", "weight")},
        "ties": options["ties"] != "half",
        "half_life": half_life is not None,
        "ranking": ranking is not None,
        "alpha=0": not isinstance(alpha, str) and alpha == 0,
    }
    for name, given in asked.items():
        if given:
            why = "Others help (trusted) where battles differ in nothing but who met: leave {argument} out"
            if name == "alpha=0":
                why = "Maximum likelihood ({argument}=0) may have no answer with the help of others (trusted): shrink"
            raise InputError(why, argument=name.removesuffix("=0"))
