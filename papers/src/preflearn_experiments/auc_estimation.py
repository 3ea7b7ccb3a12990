r"""How far off are cross-validated estimates of the AUC? Pooled, averaged and leave-pair-out, on small data.

Rows are normal with 10 features; with signal the mean of 4 of them is 0.5 higher in the positive class. The AUC on new
rows of a linear model w is then known exactly,

    A(w) = Φ(wᵀδ / (√2 ‖w‖)),      δ the difference of the class means,

and an estimate deviates by (estimate) - A(w of the model trained on all rows). Bias is the mean deviation over data
sets, spread its standard deviation.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import norm

from preflearn import RLS
from preflearn.model_selection import cross_val_predict, estimate_auc, leave_pair_out_tally

from .report import ExperimentReport
from .resume import Resume, settings_of

N_FEATURES, N_INFORMATIVE, SHIFT = 10, 4, 0.5
METHODS = (
    "pooled leave-one-out",
    "pooled ten-fold",
    "averaged ten-fold",
    "averaged five-fold",
    "leave-pair-out",
)
_PUBLISHED = (
    "pooled estimates fall clearly under 0.5 without signal; leave-pair-out is close to unbiased with the "
    "least or an equal variance; averaged ten-fold varies too much on small data (Airola et al., CSDA 55, "
    "2011; no table is given here because the figures are read from plots)."
)


def run(
    *, sizes: Sequence[int] = (30, 60, 120, 240), positives: Sequence[float] = (0.5, 0.1),
    signals: Sequence[bool] = (False, True), trials: int = 200, alpha: float = 1.0, seed: int = 0,
    verbose: int = 0, resume: str | Path | None = None,
) -> ExperimentReport:  # fmt: skip
    """Simulate bias and spread of five estimates.

    Parameters
    ----------
    sizes : sequence of int
        Rows of a data set.
    positives : sequence of float
        Shares of positive rows.
    signals : sequence of bool
        Without signal, with it, or both.
    trials : int, default=200
        Data sets for each setting.
    alpha : float, default=1.0
        Regularisation of the linear RLS.
    seed : int, default=0
    verbose : int, default=0
        Report progress on standard error.
    resume : path, optional
        Where finished settings are kept.
    """
    chosen = settings_of(
        sizes=sizes, positives=positives, signals=signals, trials=trials, alpha=alpha, seed=seed
    )
    cells = [(signal, share, size) for signal in signals for share in positives for size in sizes]
    # A setting draws the same data whatever other settings are run.
    counts = ("sizes", "positives", "signals")
    work = Resume(resume, "auc-estimation", chosen, counts=counts, total=len(cells), verbose=verbose)
    rows: list[dict[str, Any]] = []
    for signal, share, size in cells:
        rng = np.random.default_rng([seed, signal, round(1000 * share), size])
        key = f"{size} rows, {share:.0%} positive, {'with' if signal else 'no'} signal"
        rows += work.unit(key, partial(_one_setting, signal, share, size, trials, alpha, rng))
    return work.report(
        title="Cross-validated estimates of the AUC",
        protocol=(
            f"Linear RLS (alpha = {alpha:g}) on {N_FEATURES} normal features, {N_INFORMATIVE} of them shifted by "
            f"{SHIFT} where there is signal; {trials} data sets for each setting. Bias and spread of (estimate - true "
            "AUC of the model trained on all rows). Averaged folds need a positive row each: – where there are too "
            "few. The data are made as described here and not those of the publication."
        ),
        published=_PUBLISHED,
        columns=(
            "signal",
            "positive",
            "rows",
            "method",
            "estimate",
            "true",
            "bias",
            "95 % of bias",
            "spread",
        ),
        rows=rows,
        findings=list(_findings(rows)),
        draw=_draw,
    )


def _one_setting(
    signal: bool, share: float, size: int, trials: int, alpha: float, rng: np.random.Generator
) -> list[dict[str, Any]]:
    found: dict[str, list[float]] = {method: [] for method in METHODS}
    truth = []
    model = RLS(alpha)
    for _ in range(trials):
        X, y = _draw_data(signal, share, size, rng)
        truth.append(_true_auc(model.fit(X, y).coef_, signal))
        for method, value in _estimates(model, X, y, int(rng.integers(2**31))):
            found[method].append(value)
    true = np.array(truth)
    rows: list[dict[str, Any]] = []
    for method, values in found.items():
        base = {
            "signal": "yes" if signal else "no",
            "positive": f"{share:.0%}",
            "rows": size,
            "method": method,
        }
        if not values:
            absent = ("estimate", "true", "bias", "95 % of bias", "spread")
            rows.append({**base, **dict.fromkeys(absent)})
            continue
        deviation = np.array(values) - true
        bias, spread = float(deviation.mean()), float(deviation.std(ddof=1)) if trials > 1 else 0.0
        half = 1.96 * spread / np.sqrt(trials)
        rows.append(
            {
                **base,
                "estimate": float(np.mean(values)),
                "true": float(true.mean()),
                "bias": bias,
                "95 % of bias": f"{bias - half:+.3f} .. {bias + half:+.3f}",
                "spread": spread,
            }
        )
    return rows


def _draw_data(
    signal: bool, share: float, size: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    y = np.zeros(size)
    y[: max(2, round(share * size))] = 1.0
    return rng.normal(size=(size, N_FEATURES)) + np.outer(y, _difference(signal)), y


def _difference(signal: bool) -> np.ndarray:
    return SHIFT * signal * (np.arange(N_FEATURES) < N_INFORMATIVE)


def _true_auc(w: np.ndarray, signal: bool) -> float:
    return float(norm.cdf(w @ _difference(signal) / (np.sqrt(2) * np.linalg.norm(w))))


def _estimates(model: RLS, X: np.ndarray, y: np.ndarray, seed: int) -> Iterator[tuple[str, float]]:
    from preflearn.metrics import auc

    yield "pooled leave-one-out", auc(y, cross_val_predict(model, X, y, cv="leave-one-out"))
    yield "pooled ten-fold", estimate_auc(model, X, y, method="pooled", random_state=seed).value
    n_least = int(min(y.sum(), (1 - y).sum()))
    for method, n_splits in (("averaged ten-fold", 10), ("averaged five-fold", 5)):
        if n_least >= n_splits:
            yield (
                method,
                estimate_auc(model, X, y, method="averaged", n_splits=n_splits, random_state=seed).value,
            )
    yield "leave-pair-out", leave_pair_out_tally(model, X, y).share


def _findings(rows: list[dict[str, Any]]) -> Iterator[str]:
    def pick(**wanted: Any) -> list[dict[str, Any]]:
        return [
            row
            for row in rows
            if row["bias"] is not None and all(row[key] == value for key, value in wanted.items())
        ]

    for method in METHODS:
        silent = pick(method=method, signal="no")
        if silent:
            low = min(silent, key=lambda row: row["estimate"])
            yield (
                f"{method}: without signal it says {low['estimate']:.3f} at {low['rows']} rows with "
                f"{low['positive']} positive, where the truth is 0.5; largest bias over all settings "
                f"{max(abs(row['bias']) for row in pick(method=method)):.3f}"
            )
    for size in sorted({row["rows"] for row in rows}):
        averaged = pick(method="averaged ten-fold", rows=size)
        pairs = [
            pick(**{key: row[key] for key in ("signal", "positive", "rows")}, method="leave-pair-out")[0]
            for row in averaged
        ]
        if averaged:
            ratio = np.mean([a["spread"] / p["spread"] for a, p in zip(averaged, pairs, strict=True)])
            yield f"{size} rows: averaged ten-fold spreads {ratio:.2f} times as far as leave-pair-out"


def _draw(report: ExperimentReport, axes: Any = None) -> Any:
    import matplotlib.pyplot as plt

    if all(row["signal"] == "yes" for row in report.rows):
        raise ValueError(
            "the figure shows data without signal, whose truth is 0.5: run with signals=(False, True)."
        )
    shares = list(dict.fromkeys(row["positive"] for row in report.rows))
    if axes is None:
        _, axes = plt.subplots(
            2,
            len(shares),
            figsize=(4.2 * len(shares), 5.4),
            sharex=True,
            sharey="row",
            squeeze=False,
            layout="constrained",
        )
    axes = np.asarray(axes, dtype=object).reshape(2, len(shares))
    for column, share in enumerate(shares):
        for method, color in zip(METHODS, ("C3", "C1", "C2", "C4", "C0"), strict=True):
            rows = [
                row
                for row in report.rows
                if (row["method"], row["positive"], row["signal"]) == (method, share, "no")
                and row["bias"] is not None
            ]
            x = [row["rows"] for row in rows]
            axes[0, column].plot(x, [row["estimate"] for row in rows], "o-", ms=3, color=color, label=method)
            axes[1, column].plot(x, [row["spread"] for row in rows], "o-", ms=3, color=color, label=method)
        axes[0, column].axhline(0.5, color="0.5", linewidth=0.8, linestyle="--")
        axes[0, column].set_title(f"no signal, {share} positive")
        axes[1, column].set_xlabel("rows")
        axes[1, column].set_xscale("log", base=2)
        ticks = sorted({row["rows"] for row in report.rows})
        axes[1, column].set_xticks(ticks, [str(tick) for tick in ticks])
    axes[0, 0].set_ylabel("mean estimate (truth: 0.5)")
    axes[1, 0].set_ylabel("spread of the deviation")
    axes[1, 0].legend(fontsize="small")
    return axes[0, 0].figure
