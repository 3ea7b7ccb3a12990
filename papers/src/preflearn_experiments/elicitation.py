"""How many comparisons does an order need? Simulated judges, with and without features, asked well or at random.

The latent scores of m items have standard deviation s; a judge prefers h to j with probability σ(f_h - f_j), so that a
smaller s means noisier answers. After every few answers the learned order is compared with the true one by Kendall's τ.
Alpha and the weight of the features against each item's own offset are chosen by the evidence as `preflearn ask` does:
often at first, then whenever there are half as many answers more. No pair is asked twice, and nothing about the
simulation is told to the model.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.special import expit

from preflearn.learners.bradley_terry import BradleyTerry
from preflearn.learners.bradley_terry_cv import BradleyTerryCV
from preflearn.metrics import kendall_tau

from .report import ExperimentReport
from .resume import Resume, settings_of

TARGET = 0.8
N_FEATURES = 6
# The share of the latent scores' variance that the features do not explain, where they are informative.
OWN_SHARE = 0.05
# Before the first choice: prior variance of a score, and the items' own share of it beside their features.
FIRST_VARIANCE, FIRST_OFFSETS = 8.0, 0.3


def _choices(first: int = 6, last: int = 2000) -> Iterator[int]:
    """Numbers of answers at which alpha and the offsets are chosen."""
    n = first
    while n <= last:
        yield n
        n += max(1, n // (5 if n < 40 else 2))


CHOICES = tuple(_choices())

# name → (features: informative, unrelated to the scores, or none; asked by)
METHODS: dict[str, tuple[str | None, str]] = {
    "features, by information": ("informative", "information"),
    "features, at random": ("informative", "random"),
    "unrelated features, by information": ("unrelated", "information"),
    "no features, by information": (None, "information"),
    "no features, at random": (None, "random"),
}


class World(NamedTuple):
    """Items with their features and true scores."""

    X: np.ndarray
    scores: np.ndarray


def draw_world(n_items: int, spread: float, features: str | None, seed: int) -> World:
    """Items whose scores are mostly a linear function of six features, or have nothing to do with them."""
    rng = np.random.default_rng([seed, n_items])
    X = rng.normal(size=(n_items, N_FEATURES))
    scores = X @ rng.normal(size=N_FEATURES)
    own = rng.normal(size=n_items)
    scores = np.sqrt(1.0 - OWN_SHARE) * scores / scores.std() + np.sqrt(OWN_SHARE) * own
    shown = rng.normal(size=X.shape) if features == "unrelated" else X
    return World(np.arange(n_items) if features is None else shown, spread * scores)


class Curve(NamedTuple):
    """Kendall's τ after each number of questions."""

    questions: list[int]
    tau: list[float]

    def needed(self, target: float = TARGET) -> int | None:
        """Questions until τ first reached the target."""
        return next((n for n, tau in zip(self.questions, self.tau, strict=True) if tau >= target), None)


def simulate(
    n_items: int,
    spread: float,
    features: str | None,
    asked_by: str,
    seed: int,
    *,
    at_least: int,
    at_most: int,
) -> Curve:
    """Ask until τ = 0.8, with ``at_least`` and ``at_most`` as bounds on the number of questions."""
    world = draw_world(n_items, spread, features, seed)
    judge = np.random.default_rng([seed, n_items, 1])
    pairs = np.empty((0, 2), dtype=np.int64)
    model = _first_model(world.X, features, seed).fit_pairs(world.X, pairs)
    questions, taus = [], []
    while pairs.shape[0] < at_most:
        asked = model.next_pairs(world.X, 1, answered=pairs, strategy=asked_by)
        if not asked.size:
            break
        better = judge.random(asked.shape[0]) < expit(world.scores[asked] @ [1.0, -1.0])
        answers = np.where(better[:, None], asked, asked[:, ::-1])
        pairs = np.concatenate([pairs, answers])
        model = _learn(model, world.X, pairs, answers, features)
        questions.append(pairs.shape[0])
        taus.append(float(kendall_tau(world.scores, model.predict(world.X))))
        if taus[-1] >= TARGET and pairs.shape[0] >= at_least:
            break
    return Curve(questions, taus)


def _first_model(X: np.ndarray, features: str | None, seed: int) -> BradleyTerry:
    random_state = np.random.RandomState(seed)
    if features is None:
        return BradleyTerry(0.5 / FIRST_VARIANCE, kernel="items", random_state=random_state)
    variance = float(np.mean(np.sum(X**2, axis=1))) * (1.0 + FIRST_OFFSETS)
    return BradleyTerry(
        0.5 * variance / FIRST_VARIANCE, item_offsets=FIRST_OFFSETS, random_state=random_state
    )


def _learn(
    model: BradleyTerry, X: np.ndarray, pairs: np.ndarray, answers: np.ndarray, features: str | None
) -> BradleyTerry:
    """One answer more; alpha and offsets are chosen anew from time to time."""
    if pairs.shape[0] not in CHOICES:
        return model.partial_fit_pairs(X, answers)
    rows, numbers = np.unique(pairs, return_inverse=True)
    options: dict[str, Any] = {"kernel": "items"} if features is None else {"item_offsets": "auto"}
    search = BradleyTerryCV(scoring="log_evidence", **options).fit_pairs(X[rows], numbers.reshape(-1, 2))
    chosen = {"alpha": search.alpha_}
    if features is not None:
        chosen["item_offsets"] = search.item_offsets_
    return model.set_params(**chosen).fit_pairs(X, pairs)


def coverage(n_items: int, n_answers: int, seed: int, *, kernel: str = "linear") -> float:
    """Share of the items' 95 % intervals that hold the true score, where the scores are drawn from the prior."""
    rng = np.random.default_rng([seed, n_items, n_answers])
    variance = 4.0
    X: np.ndarray
    if kernel == "items":
        X, scores = np.arange(n_items), np.sqrt(variance) * rng.normal(size=n_items)
        model = BradleyTerry(0.5 / variance, kernel="items")
    else:
        X = rng.normal(size=(n_items, N_FEATURES))
        scores = np.sqrt(variance / N_FEATURES) * (X @ rng.normal(size=N_FEATURES))
        model = BradleyTerry(0.5 * N_FEATURES / variance)
    h = rng.integers(n_items, size=n_answers)
    j = (h + 1 + rng.integers(n_items - 1, size=n_answers)) % n_items
    better = rng.random(n_answers) < expit(scores[h] - scores[j])
    pairs = np.stack([np.where(better, h, j), np.where(better, j, h)], axis=1)
    mean, variances = model.fit_pairs(X, pairs).posterior(X, variances_only=True)
    return float(np.mean(np.abs(mean - scores) <= 1.96 * np.sqrt(variances)))


def run(
    *, sizes: Sequence[int] = (50, 100), spreads: Sequence[float] = (2.0, 4.0), trials: int = 20,
    at_most: int = 600, seed: int = 0, verbose: int = 0, resume: str | Path | None = None,
) -> ExperimentReport:  # fmt: skip
    """Questions until the learned order has a Kendall's τ of 0.8 with the true one.

    Parameters
    ----------
    sizes : sequence of int
        Numbers of items.
    spreads : sequence of float
        Standard deviations of the latent scores; smaller ones mean noisier answers.
    trials : int, default=20
    at_most : int, default=600
        Questions after which a trial is given up.
    seed, verbose, resume : as in every experiment (`preflearn_experiments.registry`)
    """
    settings = settings_of(sizes=sizes, spreads=spreads, trials=trials, at_most=at_most, seed=seed)
    total = len(sizes) * len(spreads) * len(METHODS) * trials
    work = Resume(
        resume, "elicitation", settings, counts=("trials", "sizes", "spreads"), total=total, verbose=verbose
    )
    rows = []
    for n_items in sizes:
        for spread in spreads:
            for name, (features, asked_by) in METHODS.items():
                one = partial(
                    simulate, n_items, spread, features, asked_by, at_least=n_items, at_most=at_most
                )
                found = [
                    work.unit(f"{n_items} / {spread:g} / {name} / {trial}", partial(one, seed + trial))
                    for trial in range(trials)
                ]
                rows.append(_row(n_items, spread, name, [Curve(*curve) for curve in found], at_most))
    return work.report(
        title="How many comparisons an order needs",
        protocol=(
            "Simulated judges who prefer h to j with probability 1 / (1 + exp(f_j - f_h)); scores of the given "
            f"standard deviation, 95 % of their variance a linear function of {N_FEATURES} features. Questions until "
            f"Kendall's τ with the true order is {TARGET}, median over {trials} trials; a trial is given up after "
            f"{at_most} questions. No pair is asked twice. Alpha and the weight of the features against the items' own "
            "offsets are chosen by the evidence after 6, 7, 8, 9, 10, 12, 14, ..., 44, 66, 99, ... answers."
        ),
        published="none; the setting is that of Bradley and Terry (1952) with features.",
        columns=("items", "spread", "method", "questions", "τ after 50", "τ after 100"),
        rows=[{key: row[key] for key in row if key != "curve"} for row in rows],
        findings=_findings(rows),
        settings={**settings, "curves": {_key(row): row["curve"] for row in rows}},
        draw=_draw,
    )


def _row(n_items: int, spread: float, name: str, curves: list[Curve], at_most: int) -> dict[str, Any]:
    needed = [float(curve.needed() or np.inf) for curve in curves]
    shared = min(len(curve.questions) for curve in curves)
    mean = np.mean([curve.tau[:shared] for curve in curves], axis=0)
    questions = curves[0].questions[:shared]

    def after(n: int) -> float | None:
        return float(mean[questions.index(n)]) if n in questions else None

    median = float(np.median(needed))
    return {
        "items": n_items,
        "spread": float(spread),
        "method": name,
        "questions": math.ceil(median) if np.isfinite(median) else f"more than {at_most}",
        "τ after 50": after(50),
        "τ after 100": after(100),
        "curve": {"questions": questions, "tau": [round(float(tau), 4) for tau in mean]},
    }


def _key(row: dict[str, Any]) -> str:
    return f"{row['items']} / {row['spread']:g} / {row['method']}"


def _findings(rows: list[dict[str, Any]]) -> list[str]:
    """Questions by information with features against the other ways, for each setting."""
    found = []
    for row in rows:
        if row["method"] != "features, by information":
            continue
        same = [other for other in rows if (other["items"], other["spread"]) == (row["items"], row["spread"])]
        parts = ", ".join(f"{other['method']}: {other['questions']}" for other in same)
        found.append(f"{row['items']} items, spread {row['spread']:g}: {parts}")
    return found


def _draw(report: ExperimentReport, axes: Any) -> Any:
    """τ over questions, a panel for each spread of the largest size."""
    import matplotlib.pyplot as plt

    curves = report.settings["curves"]
    size, spreads = max(report.settings["sizes"]), report.settings["spreads"]
    if axes is None:
        _, axes = plt.subplots(
            1, len(spreads), figsize=(9, 3.8), sharey=True, squeeze=False, layout="constrained"
        )
    for ax, spread in zip(np.ravel(axes), spreads, strict=True):
        for name in METHODS:
            curve = curves[f"{size} / {spread:g} / {name}"]
            ax.plot(curve["questions"], curve["tau"], label=name)
        ax.axhline(TARGET, linestyle=":", color="C7")
        ax.set(xlabel="answers", title=f"{size} items, spread {spread:g}")
    np.ravel(axes)[0].set(ylabel="Kendall's τ with the true order")
    np.ravel(axes)[0].legend(fontsize="small")
    return np.ravel(axes)[0].figure
