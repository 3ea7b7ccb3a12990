"""How many comparisons does an order need, how fast is the next question, and do the intervals hold?

1. Questions until Kendall's τ = 0.8 (`preflearn reproduce elicitation`): with informative features by information, at
   most half of random asking with the same model and a quarter of the featureless model at random; with unrelated
   features at most 1.1 times the featureless model. Where choix is installed, its fit of the same random answers.
2. Coverage of the 95 % intervals where the model is right: between 0.92 and 0.97.
3. One more answer and the next question, in seconds: at most 0.1 for 500 items and 2,000 answers, 0.7 for 2,000 items
   and 20,000 answers.
4. BradleyTerry on 100,000 preferences of 5,000 items with 50 features: at most 5 times LogisticRegression on the
   differences.

Results: benchmarks/results/elicitation.json and docs/_static/elicitation.svg. Results of the parts that are left out by
--only stay in the file; finished trials of the simulation are kept in the file given by --resume.

    python benchmarks/elicitation.py [--quick] [--trials 20] [--repeats 3] [--only questions intervals choix speed]
        [--items 50 100] [--spreads 2 4] [--resume FILE]
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.linear_model import LogisticRegression

from _harness import best_of, kept_results, report, write_results
from preflearn import BradleyTerry
from preflearn.metrics import kendall_tau
from preflearn_experiments.elicitation import coverage, draw_world, run
from preflearn_experiments.report import ExperimentReport

FIGURE = Path(__file__).resolve().parents[1] / "docs" / "_static" / "elicitation.svg"


def answered(n_items: int, n_features: int, n_pairs: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Features and the answers of a judge to random questions."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n_items, n_features))
    f = 2.0 * X @ rng.normal(size=n_features) / np.sqrt(n_features)
    h = rng.integers(n_items, size=n_pairs)
    j = (h + 1 + rng.integers(n_items - 1, size=n_pairs)) % n_items
    won = rng.random(n_pairs) < 1 / (1 + np.exp(f[j] - f[h]))
    return X, np.stack([np.where(won, h, j), np.where(won, j, h)], axis=1)


def questions(
    trials: int, sizes: list[int], spreads: list[float], at_most: int, resume: Path | None = None
) -> tuple[ExperimentReport, list[dict[str, Any]]]:
    """The simulation, and its ratios."""
    found = run(sizes=sizes, spreads=spreads, trials=trials, at_most=at_most, verbose=1, resume=resume)
    print(found)
    results = []
    for n_items in sizes:
        for spread in spreads:
            rows = {
                row["method"]: row["questions"]
                for row in found.rows
                if (row["items"], row["spread"]) == (n_items, spread)
            }
            # A median beyond the limit counts as the limit: a ratio to it is an upper bound.
            needed = {
                name: float(at_most) if isinstance(value, str) else float(value)
                for name, value in rows.items()
            }
            best = needed["features, by information"]
            results.append(
                {
                    "question": f"questions until τ = 0.8: {n_items} items, spread {spread:g}",
                    "trials": trials,
                    "values": rows,
                    "to random asking": best / needed["features, at random"],
                    "to no features at random": best / needed["no features, at random"],
                    "unrelated to no features": needed["unrelated features, by information"]
                    / needed["no features, by information"],
                }
            )
            print({key: value for key, value in results[-1].items() if key != "values"})
    return found, results


def against_choix(trials: int, n_items: int = 100, n_answers: int = 400) -> dict[str, Any] | None:
    """τ of choix and of kernel="items" on the same random answers."""
    try:
        import choix
    except ImportError:
        print("choix is not installed: left out")
        return None
    taus: dict[str, list[float]] = {"preflearn, no features": [], "preflearn, features": [], "choix": []}
    for seed in range(trials):
        world = draw_world(n_items, 2.0, "informative", seed)
        rng = np.random.default_rng(seed)
        pairs = np.array([rng.choice(n_items, 2, replace=False) for _ in range(n_answers)])
        won = rng.random(n_answers) < 1 / (1 + np.exp(world.scores[pairs[:, 1]] - world.scores[pairs[:, 0]]))
        pairs = np.where(won[:, None], pairs, pairs[:, ::-1])
        labels = np.arange(n_items)
        fits = {
            "preflearn, no features": BradleyTerry(0.125, kernel="items")
            .fit_pairs(labels, pairs)
            .predict(labels),
            "preflearn, features": BradleyTerry(0.75, item_offsets=0.1)
            .fit_pairs(world.X, pairs)
            .predict(world.X),
            "choix": choix.opt_pairwise(n_items, pairs.tolist(), alpha=0.125),
        }
        for name, scores in fits.items():
            taus[name].append(float(kendall_tau(world.scores, scores)))
    values = {name: float(np.mean(tau)) for name, tau in taus.items()}
    note = f"{n_items} items, {n_answers} random answers, spread 2, {trials} trials"
    return report("Kendall's τ on the same answers", values, baseline="choix", unit="τ", note=note)


def intervals(trials: int) -> list[dict[str, Any]]:
    """Coverage of 95 % intervals."""
    results = []
    for kernel in ("linear", "items"):
        for n_answers in (100, 400, 1600):
            share = float(np.mean([coverage(100, n_answers, seed, kernel=kernel) for seed in range(trials)]))
            print(f"coverage, kernel={kernel!r}, {n_answers} answers: {share:.3f}")
            results.append(
                {
                    "question": f"coverage of 95 % intervals, kernel={kernel!r}, {n_answers} answers",
                    "trials": trials,
                    "value": share,
                }
            )
    return results


def next_question(n_items: int, n_answers: int, limit: float, repeats: int) -> dict[str, Any]:
    """Seconds for one more answer and the next question, features plus offsets."""
    X, pairs = answered(n_items, 10, n_answers + 10 * repeats)
    model = BradleyTerry(0.5, item_offsets=0.3).fit_pairs(X, pairs[:n_answers])
    model.next_pairs(X)
    update, ask = [], []
    for k in range(n_answers, n_answers + 10 * repeats):
        start = time.perf_counter()
        model.partial_fit_pairs(X, pairs[k : k + 1])
        middle = time.perf_counter()
        model.next_pairs(X)
        update.append(middle - start)
        ask.append(time.perf_counter() - middle)
    both = np.add(update, ask)
    values = {
        "limit": limit,
        "one more answer": min(update),
        "next question": min(ask),
        "both": float(both.min()),
    }
    note = f"{n_items} items, {n_answers} answers; median of both {np.median(both):.3f} s"
    return report(
        "From an answer to the next question", values, baseline="limit", limits={"both": 1.0}, note=note
    )


def many_preferences(n_items: int, n_features: int, n_pairs: int, repeats: int) -> dict[str, Any]:
    """Fit time against LogisticRegression on the differences."""
    X, pairs = answered(n_items, n_features, n_pairs)
    sign = np.where(np.arange(n_pairs) % 2, 1.0, -1.0)

    def logistic() -> None:
        D = (X[pairs[:, 0]] - X[pairs[:, 1]]) * sign[:, None]
        LogisticRegression(C=0.5, fit_intercept=False).fit(D, sign > 0)

    seconds = best_of(
        {"LogisticRegression": logistic, "BradleyTerry": lambda: BradleyTerry(1.0).fit_pairs(X, pairs)},
        repeats=repeats,
    )
    note = f"{n_pairs} preferences of {n_items} items, {n_features} features"
    limits = {"BradleyTerry": 5.0}
    return report("Linear fit", seconds, baseline="LogisticRegression", limits=limits, note=note)


PARTS = ("questions", "intervals", "choix", "speed")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--trials", type=int, default=20)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--items", type=int, nargs="+", default=[50, 100])
    parser.add_argument("--spreads", type=float, nargs="+", default=[2.0, 4.0])
    parser.add_argument("--resume", type=Path, help="file of finished trials")
    parser.add_argument("--quick", action="store_true", help="small sizes, nothing written")
    options = parser.parse_args()
    if options.quick:
        questions(2, [20], [4.0], 60)
        intervals(3)
        next_question(50, 100, 0.1, 1)
        many_preferences(200, 10, 2000, 1)
        against_choix(1, 20, 60)
        return
    results: list[Any] = []
    if "speed" in options.only:
        results.append(many_preferences(5000, 50, 100_000, options.repeats))
        results.append(next_question(500, 2000, 0.1, options.repeats))
        results.append(next_question(2000, 20_000, 0.7, options.repeats))
    if "intervals" in options.only:
        results += intervals(5 * options.trials)
    if "choix" in options.only:
        results += [result for result in [against_choix(options.trials)] if result is not None]
    if "questions" in options.only:
        found, ratios = questions(options.trials, options.items, options.spreads, 600, options.resume)
        found.save_figure(FIGURE)
        results += ratios
    write_results("elicitation", *kept_results("elicitation", results), *results)


if __name__ == "__main__":
    main()
