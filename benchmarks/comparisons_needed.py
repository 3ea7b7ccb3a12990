"""How good is the order after n comparisons? preflearn against other ways to learn it from the same random answers.

Kendall's τ with the true order of 100 items, mean over trials, after 25 to 400 answers to random questions:

1. choix, regularised Bradley-Terry without features (where installed);
2. TrueSkill's update for two players without draws, one answer after the other (written out below);
3. `PairwiseGP` of BoTorch on the features (where installed; slow, so up to 100 answers);
4. `BradleyTerry(kernel="items")`, and with features and offsets, settings by the evidence.

The worlds are those of `preflearn reproduce elicitation`, 95 % of the scores' variance a linear function of six
features. How many questions are saved by choosing them is measured by benchmarks/elicitation.py. Results:
benchmarks/results/comparisons_needed.json and docs/_static/comparisons_needed.svg.

    python benchmarks/comparisons_needed.py [--quick] [--trials 20]
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import norm

from _harness import arguments, write_results
from preflearn import BradleyTerryCV
from preflearn.metrics import kendall_tau
from preflearn_experiments.elicitation import draw_world

FIGURE = Path(__file__).resolve().parents[1] / "docs" / "_static" / "comparisons_needed.svg"
ANSWERS = (25, 50, 100, 200, 400)
N_ITEMS, SPREAD = 100, 4.0
# BoTorch's model refits its hyperparameters by gradient steps: minutes for the larger numbers.
SLOW_ANSWERS = 100

Scores = Callable[[np.ndarray, np.ndarray], np.ndarray]


def without_features(X: np.ndarray, pairs: np.ndarray) -> np.ndarray:
    items = np.arange(X.shape[0])
    return BradleyTerryCV(scoring="log_evidence", kernel="items").fit_pairs(items, pairs).predict(items)


def with_features(X: np.ndarray, pairs: np.ndarray) -> np.ndarray:
    return BradleyTerryCV(scoring="log_evidence", item_offsets="auto").fit_pairs(X, pairs).predict(X)


def choix_scores(X: np.ndarray, pairs: np.ndarray) -> np.ndarray:
    import choix

    # alpha ‖f‖² is a prior variance of 1 / (2 alpha): choix is told the truth, SPREAD².
    return choix.opt_pairwise(X.shape[0], pairs.tolist(), alpha=0.5 / SPREAD**2)


def trueskill_scores(X: np.ndarray, pairs: np.ndarray) -> np.ndarray:
    """Mean skills: μ ± σ²/c v, σ² (1 - σ²/c² w), in TrueSkill's proportions: σ = 1, β = 1/2."""
    mean, variance = np.zeros(X.shape[0]), np.ones(X.shape[0])
    for winner, loser in pairs:
        total = variance[winner] + variance[loser] + 2 * 0.5**2
        t = (mean[winner] - mean[loser]) / np.sqrt(total)
        v = np.exp(norm.logpdf(t) - norm.logcdf(t))
        w = v * (v + t)
        mean[winner] += variance[winner] / np.sqrt(total) * v
        mean[loser] -= variance[loser] / np.sqrt(total) * v
        variance[[winner, loser]] *= 1.0 - variance[[winner, loser]] / total * w
    return mean


def pairwise_gp_scores(X: np.ndarray, pairs: np.ndarray) -> np.ndarray:
    import torch
    from botorch.fit import fit_gpytorch_mll
    from botorch.models.pairwise_gp import PairwiseGP, PairwiseLaplaceMarginalLogLikelihood

    torch.manual_seed(0)
    points = torch.tensor((X - X.min(axis=0)) / np.ptp(X, axis=0), dtype=torch.float64)
    model = PairwiseGP(points, torch.tensor(pairs))
    fit_gpytorch_mll(PairwiseLaplaceMarginalLogLikelihood(model.likelihood, model))
    return model.posterior(points).mean.detach().numpy().ravel()


def methods() -> dict[str, Scores]:
    found: dict[str, Scores] = {
        "BradleyTerry, features": with_features,
        "BradleyTerry, no features": without_features,
        "TrueSkill": trueskill_scores,
    }
    for package, name, scores in (
        ("choix", "choix", choix_scores),
        ("botorch", "PairwiseGP, features", pairwise_gp_scores),
    ):
        if importlib.util.find_spec(package) is None:
            print(f"{package} is not installed: left out")
        else:
            found[name] = scores
    return found


def random_answers(scores: np.ndarray, n: int, seed: int) -> np.ndarray:
    rng = np.random.default_rng([seed, 2])
    h = rng.integers(scores.shape[0], size=n)
    j = (h + 1 + rng.integers(scores.shape[0] - 1, size=n)) % scores.shape[0]
    won = rng.random(n) < 1 / (1 + np.exp(scores[j] - scores[h]))
    return np.stack([np.where(won, h, j), np.where(won, j, h)], axis=1)


def measure(n_items: int, trials: int, counts: tuple[int, ...]) -> dict[str, Any]:
    curves: dict[str, Any] = {}
    for name, scores in methods().items():
        slow = name.startswith("PairwiseGP")
        asked = [n for n in counts if not slow or n <= SLOW_ANSWERS]
        tau = {n: [] for n in asked}
        for seed in range(trials):
            world = draw_world(n_items, SPREAD, "informative", seed)
            pairs = random_answers(world.scores, max(counts), seed)
            for n in asked:
                tau[n].append(float(kendall_tau(world.scores, scores(world.X, pairs[:n]))))
        curves[name] = {
            "answers": asked,
            "tau": [round(float(np.mean(tau[n])), 3) for n in asked],
            "trials": trials,
        }
        print(name, dict(zip(asked, curves[name]["tau"], strict=True)), flush=True)
    return {
        "question": f"Kendall's τ after random answers: {n_items} items, spread {SPREAD:g}",
        "curves": curves,
    }


def draw(curves: dict[str, Any]) -> None:
    import matplotlib

    matplotlib.use("svg")
    import matplotlib.pyplot as plt

    with plt.rc_context({"svg.hashsalt": "comparisons_needed"}):
        fig, ax = plt.subplots(figsize=(6.5, 4), layout="constrained")
        for name, curve in curves.items():
            ax.plot(curve["answers"], curve["tau"], marker="o", label=name)
        ax.set(xlabel="answers to random questions", ylabel="Kendall's τ with the true order", xscale="log")
        ax.set_xticks(ANSWERS, [str(n) for n in ANSWERS])
        ax.minorticks_off()
        ax.legend()
        fig.savefig(FIGURE, metadata={"Date": None})


def main() -> None:
    options = arguments(__doc__, repeats=1, trials=20)
    if options.quick:
        measure(15, 1, (10, 20))
        return
    result = measure(N_ITEMS, options.trials, ANSWERS)
    draw(result["curves"])
    write_results("comparisons_needed", result)


if __name__ == "__main__":
    main()
