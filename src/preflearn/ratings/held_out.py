"""Held-out battles: what they choose, and how well they are predicted.

Shrinkage and half-life are chosen by the log loss of battles that were held out. Of all candidates that are within one
standard error of the best, the one that shrinks least is taken: ratings are published with intervals, and shrinkage is
bias. Where battles are many this is next to maximum likelihood; where thousands of items have met a few times each it
is not.

The table of held-out battles compares the model with win rates and Elo: log loss, accuracy and calibration. What was
chosen by held-out battles is chosen anew without each fold, or the figure would be that of the best of several
candidates on the battles that they were chosen by.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ..errors import InputError, Remedy
from ..losses.laplace import without_each
from ..losses.logistic import averaged_probability
from ..metrics.calibration import PreferenceCalibration, calibration_of_preferences
from .battles import Battles
from .strengths import MOST_DENSE, Strengths, fit_strengths, variances_of_battles
from .ties import outcome_probabilities, with_share_of_ties

# Choice ---------------------------------------------------------------------------------------------------------------


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
        p = leave_battle_out(path[-1]) if by_formula else replace(path[-1], battles=test).probabilities()
        losses.append(log_losses(p, test.share))
    chosen = path[_least_shrinkage(np.array(losses), test.weight, test.are_counts)]
    if by_formula:
        return fit_strengths(battles, chosen.alpha, like=chosen)
    return fit_strengths(battles, chosen.alpha, start=chosen.theta)


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
        out.append(replace(strengths, battles=test).probabilities())
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


# The table ------------------------------------------------------------------------------------------------------------


Predict = Callable[[Battles, Battles], np.ndarray]

_FOLDS = 10
_ELO_K = 32.0
OURS, PLACKETT_LUCE, MARGINS, DAVIDSON = "Bradley-Terry", "Plackett-Luce", "margins", "Davidson"
WIN_RATE, ELO = "win rate", f"Elo (K = {_ELO_K:.0f})"


def held_out_folds(battles: Battles, scheme: str) -> list[tuple[np.ndarray, np.ndarray]]:
    """(training, test) row numbers: "battle", "judge", "cluster" or "future"."""
    if scheme == "future":
        return future_blocks(battles)
    rng = np.random.default_rng(0)
    if scheme == "battle":
        codes = np.arange(len(battles)) if battles.rankings is None else battles.rankings.of_pair
    else:
        found = battles.judge if scheme == "judge" else battles.cluster
        assert found is not None
        codes = found[0]
    n = int(codes.max()) + 1
    fold = rng.permutation(n)[codes] % min(_FOLDS, n)
    return [(np.flatnonzero(fold != k), np.flatnonzero(fold == k)) for k in np.unique(fold)]


def by_model(alpha: float | str, half_life: float | str | None) -> Predict:
    """Predictions of the model of the battles, averaged over its posterior where that is a matrix.

    What is "auto" is chosen by the training battles alone.
    """

    def predict(training: Battles, test: Battles) -> np.ndarray:
        shrinkage, life = alpha, half_life
        if life == "auto":
            alphas = FEW_ALPHAS if shrinkage == "auto" else [float(shrinkage)]
            # The past of the first block may be a single day.
            life, shrinkage = (
                choose_half_life(training, alphas) if future_blocks(training) else (None, shrinkage)
            )
        if life is not None:
            assert test.time is not None and training.time is not None
            now = max(float(test.time.min()), float(training.time.max()))
            training = decayed(training, float(life), now)
        strengths = (
            choose_alpha(training) if shrinkage == "auto" else fit_strengths(training, float(shrinkage))
        )
        variance = variances_of_battles(strengths, test) if strengths.is_dense else None
        return replace(strengths, battles=test).probabilities(variance)

    return predict


def with_ties(predict: Predict) -> Predict:
    """The three outcomes from the probability that side a wins, ties being as likely in every battle."""

    def predict_three(training: Battles, test: Battles) -> np.ndarray:
        p = predict(replace(training, ties="half"), replace(test, ties="half"))
        return with_share_of_ties(p, training.share == 0.5, training.weight)

    return predict_three


def predicts_ties_better(
    battles: Battles, alpha: float | str, half_life: float | str | None, n_folds: int = 4
) -> bool:
    """Whether Davidson's model predicts the outcomes of held-out battles better than a constant share of ties."""
    if not (battles.share == 0.5).any():
        return False
    single = replace(battles.one_by_one(), ties="davidson")
    folds = held_out_folds(single, "future" if half_life is not None else "battle")[:n_folds]
    model, losses = by_model(alpha, half_life), []
    for predict in (model, with_ties(model)):
        rows, P = held_out_predictions(single, predict, folds)
        losses.append(float(np.average(log_losses(P, single.share[rows]), weights=single.weight[rows])))
    return losses[0] < losses[1]


def by_win_rate(training: Battles, test: Battles) -> np.ndarray:
    """Odds of a's win rate over those of b's; half a win and half a loss are added to each."""
    played = training.battles_of_items()
    rate = (training.wins_of_items() + 0.5) / (played + 1.0)
    odds = (rate / (1.0 - rate))[test.pairs]
    return odds[:, 0] / odds.sum(axis=1)


def by_elo(training: Battles, test: Battles) -> np.ndarray:
    """Elo's ratings after the training battles, in their order (that of time, where there is one)."""
    from ._loops import elo_pass

    order = np.arange(len(training)) if training.time is None else np.argsort(training.time, kind="stable")
    pairs = np.concatenate([training.pairs[order], test.pairs])
    share = np.concatenate([training.share[order], test.share])
    learn = np.arange(pairs.shape[0]) < len(training)
    return elo_pass(np.ascontiguousarray(pairs), share, learn, training.n_items, _ELO_K)[len(training) :]


def held_out_predictions(
    battles: Battles,
    predict: Predict,
    folds: list[tuple[np.ndarray, np.ndarray]],
) -> tuple[np.ndarray, np.ndarray]:
    """Row numbers that were held out, and the probability that side a wins (or of the three outcomes)."""
    rows = np.concatenate([test for _, test in folds])
    p = [predict(battles.take(training), battles.take(test)) for training, test in folds]
    return rows, np.concatenate(p)


def held_out_table(
    battles: Battles,
    alpha: float | str,
    half_life: float | str | None,
    chosen: tuple[float, float | None],
    cluster_name: str | None,
) -> tuple[dict[str, list[Any]], PreferenceCalibration]:
    """The table, and the calibration of this model on held-out battles.

    Parameters
    ----------
    battles : Battles
    alpha, half_life
        As asked for: what is "auto" is chosen without each fold.
    chosen : tuple
        Both as chosen by all battles. A half-life is chosen by predicting later battles, so that it is chosen anew
        where these are held out, and taken from here where others are.
    cluster_name : str or None
    """
    battles = battles.one_by_one()
    schemes = [("battle" if battles.rankings is None else "ranking", "battle")]
    if battles.judge is not None and len(battles.judge[1]) > 1:
        schemes.append(("judge", "judge"))
    if cluster_name is not None and battles.cluster is not None and len(battles.cluster[1]) > 1:
        schemes.append((cluster_name, "cluster"))
    if battles.time is not None and future_blocks(battles):
        schemes.append(("future", "future"))
    ours = OURS if battles.rankings is None else PLACKETT_LUCE
    ours = ours if battles.margin is None else MARGINS
    others = by_model(*(chosen if half_life == "auto" else (alpha, half_life)))
    table: dict[str, list[Any]] = {
        name: [] for name in ("held_out", "method", "log_loss", "accuracy", "calibration_error", "battles")
    }
    calibration: PreferenceCalibration | None = None
    for name, scheme in schemes:
        folds = held_out_folds(battles, scheme)
        model = by_model(alpha, half_life) if scheme == "future" else others
        methods = {ours: model, WIN_RATE: by_win_rate, ELO: by_elo}
        if battles.ties == "davidson":
            # All of them predict three outcomes.
            methods = {OURS: model, WIN_RATE: by_win_rate, ELO: by_elo}
            methods = {DAVIDSON: model, **{name: with_ties(one) for name, one in methods.items()}}
        for method, predict in methods.items():
            rows, p = held_out_predictions(battles, predict, folds)
            found = _calibration(p, battles.share[rows], battles.weight[rows])
            calibration = calibration or found
            values = (
                name,
                method,
                found.log_loss,
                found.accuracy,
                found.expected_calibration_error,
                rows.size,
            )
            for column, value in zip(table, values, strict=True):
                table[column].append(value)
    assert calibration is not None
    return table, calibration


def _calibration(p: np.ndarray, share: np.ndarray, weight: np.ndarray) -> PreferenceCalibration:
    """Of who wins, or of the predictions of all three outcomes together."""
    if p.ndim == 1:
        return calibration_of_preferences(p, share, weight=weight)
    came = np.stack([share == 1.0, share == 0.5, share == 0.0], axis=1).astype(float)
    found = calibration_of_preferences(p.ravel(), came.ravel(), weight=np.repeat(weight, 3))
    return replace(
        found,
        log_loss=float(np.average(log_losses(p, share), weights=weight)),
        brier_score=float(np.average(np.square(p - came).sum(axis=1), weights=weight)),
        accuracy=float(np.average(came[np.arange(share.size), p.argmax(axis=1)], weights=weight)),
        n_pairs=share.size,
    )
