"""Held-out battles, predicted by the model, by win rates and by Elo: log loss, accuracy and calibration in one table.

What was chosen by held-out battles is chosen anew without each fold, or the figure would be that of the best of
several candidates on the battles that they were chosen by.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from ..metrics.calibration import PreferenceCalibration, calibration_of_preferences
from .battles import Battles
from .choice import FEW_ALPHAS, choose_alpha, choose_half_life, decayed, future_blocks, log_losses
from .strengths import fit_strengths, variances_of_battles
from .ties import with_share_of_ties

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
