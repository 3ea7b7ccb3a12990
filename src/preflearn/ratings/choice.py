"""How much shrinkage and how much past: chosen by battles that were held out.

The held-out log loss of every battle is compared with that of the best candidate. Of all candidates that are within
one standard error, the one that shrinks least is taken: ratings are published with intervals, and shrinkage is bias.
Where battles are many this is next to maximum likelihood; where thousands of items have met a few times each it is
not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ..errors import InputError, Remedy
from ..losses.laplace import without_each
from ..losses.logistic import averaged_probability
from .battles import Battles
from .strengths import MOST_DENSE, Strengths, fit_strengths, variances_of_battles
from .ties import outcome_probabilities

# Prior standard deviations of a strength, in natural-log units (1 is 174 points on Elo's scale).
PRIOR_WIDTHS = (4.0, 2.5, 1.6, 1.0, 0.63, 0.4, 0.25)
# In days; the last is "the past counts as much as today".
HALF_LIVES = (30.0, 60.0, 120.0, 240.0, 365.0, 730.0, 1460.0, np.inf)
_BLOCKS, _LAST_PART = 4, 0.2
_MOST_HELD_OUT = 50_000
# Battles that weigh less than this are left out of the fits that choose.
_FORGOTTEN = 1.0 / 256.0
# With more battles of the median item the candidates hardly differ.
_PLENTY = 2000


def alpha_of(width: float) -> float:
    """The alpha that stands for a prior standard deviation."""
    return 0.5 / width**2


# Among which half_life="auto" chooses.
FEW_ALPHAS = [alpha_of(width) for width in PRIOR_WIDTHS[::2]]


def log_losses(probability: np.ndarray, share: np.ndarray) -> np.ndarray:
    """Of each battle, from the probability that side a wins, or from those of the three outcomes."""
    if probability.ndim == 2:
        P = probability[np.arange(share.size), np.rint(2.0 - 2.0 * share).astype(int)]
        return np.asarray(-np.log(np.maximum(P, 1e-15)))
    p = np.clip(probability, 1e-15, 1.0 - 1e-15)
    return -(share * np.log(p) + (1.0 - share) * np.log1p(-p))


def leave_battle_out(strengths: Strengths) -> np.ndarray:
    """The probability that side a wins each battle (or of its three outcomes), by the model without it.

    To second order. Of a row that stands for many battles, one is left out.
    """
    each = strengths.each
    if strengths.battles.tie_design is not None:
        return _leave_outcome_out(strengths)
    if not holds_out_by_formula(strengths.battles):
        raise ValueError("The formula is that of single battles that were won or lost.")
    single = replace(each, weight=np.minimum(each.weight, 1.0))
    mean, variance = without_each(single, strengths.theta, variances_of_battles(strengths))
    return averaged_probability(mean, variance)


def _leave_outcome_out(strengths: Strengths) -> np.ndarray:
    """By one Newton step on the difference; what one battle says of how common ties are is nothing."""
    one = np.minimum(strengths.battles.weight, 1.0)
    one = np.divide(one, strengths.battles.weight, out=np.zeros_like(one), where=one > 0)
    variance = variances_of_battles(strengths)
    variance = variance / np.maximum(1.0 - one * strengths.curvatures_of_battles() * variance, 1e-6)
    d = strengths.differences() - variance * one * strengths.pulls()
    return outcome_probabilities(d, strengths.tie_logits(), variance)


def holds_out_by_formula(battles: Battles) -> bool:
    """Whether single battles leave the model by a formula: not of rankings, nor of margins."""
    return battles.rankings is None and battles.margin is None


def choose_alpha(battles: Battles) -> Strengths:
    """The model with the least shrinkage whose held-out log loss is within one standard error of the best.

    Every battle is held out by a formula where covariances are a matrix, a sample of them by refitting otherwise.
    """
    # Without any battle, as where the only one is held out, there is nothing to choose by.
    if np.median(battles.battles_of_items()) >= _PLENTY or not battles.weight.any():
        return fit_strengths(battles, alpha_of(PRIOR_WIDTHS[0]))
    few = battles.n_items + battles.covariates.shape[1] <= MOST_DENSE
    by_formula = few and holds_out_by_formula(battles)
    widths = PRIOR_WIDTHS[::-1] if few else PRIOR_WIDTHS[::-2]
    training, test = battles, battles
    if not by_formula:
        single = battles.one_by_one()
        units = np.arange(len(single)) if single.rankings is None else single.rankings.of_pair
        n_units = int(units.max()) + 1
        n_test = min(_MOST_HELD_OUT, n_units // (10 if battles.rankings is None else 4) + 1)
        is_test = np.random.default_rng(0).permutation(n_units)[units] < n_test
        test, training = single.take(np.flatnonzero(is_test)), single.take(np.flatnonzero(~is_test))
    losses: list[np.ndarray] = []
    path: list[Strengths] = []
    for width in widths:
        like = path[-1] if path else None
        path.append(fit_strengths(training, alpha_of(width), like=like))
        p = leave_battle_out(path[-1]) if by_formula else _plain_probabilities(path[-1], test)
        losses.append(log_losses(p, test.share))
    chosen = path[_least_shrinkage(np.array(losses), test.weight, test.are_counts)]
    if by_formula:
        return fit_strengths(battles, chosen.alpha, like=chosen)
    return fit_strengths(battles, chosen.alpha, start=chosen.theta)


def _plain_probabilities(strengths: Strengths, test: Battles) -> np.ndarray:
    return replace(strengths, battles=test).probabilities()


def _least_shrinkage(losses: np.ndarray, weight: np.ndarray, are_counts: bool) -> int:
    """The last row whose mean is within one standard error of the best; rows go from much shrinkage to little.

    A weight that is a count stands for that number of battles, any other weight for one battle that counts more.
    """
    means = losses @ weight / weight.sum()
    excess = losses - losses[np.argmin(means)]
    off = excess - (means - means.min())[:, None]
    spread = weight if are_counts else np.square(weight)
    errors = np.sqrt((spread * np.square(off)).sum(axis=1)) / weight.sum()
    return int(np.flatnonzero(means - means.min() <= errors)[-1])


def decayed(battles: Battles, half_life: float, now: float | None = None) -> Battles:
    """The same battles, each weighing half as much for every half-life that has passed since."""
    assert battles.time is not None
    age = (battles.time.max() if now is None else now) - battles.time
    return replace(battles, weight=battles.weight * np.exp2(-np.maximum(age, 0.0) / half_life))


def future_blocks(battles: Battles) -> list[tuple[np.ndarray, np.ndarray]]:
    """(past, block) row numbers of the last battles in time; each block is predicted from all before it."""
    assert battles.time is not None
    edges = np.unique(np.quantile(battles.time, np.linspace(1.0 - _LAST_PART, 1.0, _BLOCKS + 1)))
    edges[-1] = np.inf
    found = []
    for start, stop in zip(edges[:-1], edges[1:], strict=True):
        past = np.flatnonzero(battles.time < start)
        block = np.flatnonzero((battles.time >= start) & (battles.time < stop))
        if past.size and block.size:
            found.append((past, block))
    return found


def future_probabilities(
    battles: Battles, blocks: Sequence[tuple[np.ndarray, np.ndarray]], alpha: float, half_life: float | None
) -> np.ndarray:
    """The probability that side a wins each battle of the blocks, from what was known before, in their order."""
    out = []
    for past, block in blocks:
        training, test = battles.take(past), battles.take(block)
        if half_life is not None and np.isfinite(half_life):
            assert test.time is not None
            training = decayed(training, half_life, float(test.time.min()))
            training = training.take(np.flatnonzero(training.weight > _FORGOTTEN * training.weight.max()))
        strengths = fit_strengths(training, alpha)
        out.append(_plain_probabilities(strengths, test))
    return np.concatenate(out)


def choose_half_life(
    battles: Battles, alphas: Sequence[float], half_lives: Sequence[float] = HALF_LIVES
) -> tuple[float | None, float]:
    """The half-life in days (None for no decay) and the alpha that predict the last battles in time best."""
    if battles.time is None:
        raise InputError(
            "A half-life needs the time of every battle", Remedy("time", purpose="and its column")
        )
    blocks = future_blocks(battles)
    if not blocks:
        raise InputError(
            "A half-life is chosen by predicting later battles from earlier ones, and all have the same time",
            Remedy("half_life", purpose="and a number of days"),
        )
    rows = np.concatenate([block for _, block in blocks])
    share, weight = battles.share[rows], battles.weight[rows]
    best: tuple[float, float | None, float] = (np.inf, None, alphas[0])
    for half_life in half_lives:
        for alpha in alphas:
            p = future_probabilities(battles, blocks, alpha, half_life)
            loss = float(np.average(log_losses(p, share), weights=weight))
            if loss < best[0]:
                best = (loss, half_life if np.isfinite(half_life) else None, alpha)
    return best[1], best[2]
