"""Do all intervals of ranks hold together? And single intervals? Items times judges, equal and unequal.

    equal      equal items, judges without tastes, equally many battles each: every significant difference is an error
    unequal    items with normal strengths
    tastes     equal items, each judge has normal tastes of its own (standard deviation 1)
    skewed     equal items, tastes, and the k-th judge has a share of the battles proportional to 1 / k
    thin       equal items, a tenth as many battles
    single     equal items without clusters: standard errors of the model
    large      the rule of boards of more than 1,000 items, unequal items

A board counts if no item's true rank is outside of its interval (equal items share every rank, so that nobody may be
told apart). ``before`` is the rule that was used before: one chi-square for all differences, G - 1 degrees of freedom.

    python benchmarks/rank_coverage.py [--quick] [--sets 500] [--items 20,50] [--judges 5,10] [--designs equal,tastes]
        [--jobs 2] [--output FILE]
"""

from __future__ import annotations

import argparse
import json
import os
import warnings
from concurrent.futures import ProcessPoolExecutor
from itertools import product
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

from _harness import write_results
from preflearn import rate
from preflearn.ratings import ranks, result

DESIGNS = ("equal", "unequal", "tastes", "skewed", "thin", "single", "large")
ITEMS, JUDGES = (3, 5, 20, 50, 100), (2, 3, 5, 10, 15, 20, 50)
PER_ITEM = 100
ALPHA = 1.0 / 32.0


def drawn(rng: np.random.Generator, n: int, judges: int, design: str) -> tuple[dict[str, Any], np.ndarray]:
    """Battles and the true strengths."""
    battles = n * PER_ITEM // (20 if design == "thin" else 2)
    f = rng.normal(size=n) if design in ("unequal", "large") else np.zeros(n)
    share = 1.0 / np.arange(1, judges + 1) if design == "skewed" else np.ones(judges)
    judge = rng.choice(judges, battles, p=share / share.sum())
    judge[:judges] = np.arange(judges)
    a = rng.integers(n, size=battles)
    b = (a + rng.integers(1, n, battles)) % n
    taste = rng.normal(size=(judges, n)) * float(design in ("tastes", "skewed"))
    d = f[a] - f[b] + taste[judge, a] - taste[judge, b]
    won = rng.random(battles) < 1 / (1 + np.exp(-d))
    return {"model_a": a, "model_b": b, "winner": np.where(won, "model_a", "model_b"), "judge": judge}, f


def before(found: Any, level: float = 0.95) -> tuple[np.ndarray, np.ndarray]:
    """Rank intervals from one chi-square for all differences: the rule that does not hold."""
    n, rng = len(found.items), np.random.default_rng(0)
    C = found.covariance[:n, :n]
    draws = ranks.drawn_normal(C, 2000, rng)
    if found.cluster is not None:
        df = float(found.cluster.max())
        draws /= np.sqrt(rng.chisquare(df, 2000) / df)
    se = ranks.standard_errors_of_differences(C) + np.eye(n)
    largest = np.zeros(2000)
    for i in range(n):
        np.maximum(largest, np.abs((draws - draws[i]) / se[i][:, None]).max(axis=0), out=largest)
    t = float(np.quantile(largest, level))
    return ranks.rank_bounds(ranks.significant_signs(found.strengths.scores, C, t))


def hold(low: np.ndarray, high: np.ndarray, f: np.ndarray) -> bool:
    """Whether every true rank is inside; equal items share theirs."""
    best, worst = 1 + (f > f[:, None]).sum(axis=1), len(f) - (f < f[:, None]).sum(axis=1)
    return bool(((low <= best) & (worst <= high)).all())


def one_set(seed: int, n: int, judges: int, design: str) -> dict[str, float]:
    battles, f = drawn(np.random.default_rng([seed, n, judges]), n, judges, design)
    cluster: Any = False if design == "single" else "judge"
    found = rate(battles, judge="judge", cluster=cluster, alpha=ALPHA)
    f = f[np.array(found.items)]
    board = found.columns
    order = np.array([found.items.index(item) for item in board["item"]])
    low, high = np.array(board["rank_lower"]), np.array(board["rank_upper"])
    truth = found.points(f - f.mean())[order]
    inside = (np.array(board["lower"]) <= truth) & (truth <= np.array(board["upper"]))
    out = {
        "held": hold(low, high, f[order]),
        "width": float(np.mean(high - low + 1) / n),
        "single": float(inside.mean()),
        "points": float(np.mean(np.array(board["upper"]) - np.array(board["lower"]))),
    }
    if n <= 1000 and design != "large":
        out["before"] = hold(*before(found), f)
    return out


def cell(sets: int, start: int, n: int, judges: int, design: str) -> dict[str, float]:
    warnings.simplefilter("ignore")
    result.MOST_COMPARED = 0 if design == "large" else ranks.MOST_COMPARED
    found = [one_set(start + k, n, judges, design) for k in range(sets)]
    return {key: sum(one[key] for one in found) for key in found[0]} | {"sets": sets}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    for name, default in (("items", ITEMS), ("judges", JUDGES)):
        parser.add_argument(f"--{name}", default=",".join(map(str, default)))
    parser.add_argument("--designs", default=",".join(DESIGNS))
    parser.add_argument("--sets", type=int, default=500)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--quick", action="store_true", help="few sets, nothing written")
    parser.add_argument("--output", type=Path, help="a JSON file in place of the folder of results")
    options = parser.parse_args()
    sets = 4 if options.quick else options.sets
    items, judges = ([int(k) for k in text.split(",")] for text in (options.items, options.judges))
    designs = options.designs.split(",")
    cells = [
        (n, g, design) for n, g, design in product(items, judges, designs)
        if (design != "single" or g == judges[-1]) and (design != "large" or n >= 20)
    ]  # fmt: skip
    part = max(1, min(50, sets))
    results = []
    print("items judges design   | ranks hold | before | single interval | width of ranks | sets")
    # One thread for each process: they are started after this.
    os.environ |= dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"), "1")
    with ProcessPoolExecutor(options.jobs, mp_context=get_context("spawn")) as pool:
        started = [
            (one, [pool.submit(cell, min(part, sets - k), k, *one) for k in range(0, sets, part)])
            for one in cells
        ]
        for (n, g, design), parts in started:
            sums = [one.result() for one in parts]
            total = sum(one["sets"] for one in sums)
            mean = {key: sum(one[key] for one in sums) / total for key in sums[0] if key != "sets"}
            results.append({"items": n, "judges": g, "design": design, "sets": total, **mean})
            old = f"{mean['before']:.3f}" if "before" in mean else "     "
            print(
                f"{n:>5} {g:>6} {design:<8} | {mean['held']:>10.3f} | {old:>6} | {mean['single']:>15.3f} | "
                f"{mean['width']:>14.2f} | {total}",
                flush=True,
            )
    if options.output is not None:
        options.output.write_text(json.dumps(results, indent=2) + "\n")
    elif not options.quick:
        write_results("rank_coverage", *results)


if __name__ == "__main__":
    main()
