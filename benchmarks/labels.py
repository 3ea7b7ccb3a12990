"""Bradley-Terry models of very many labels: how long does each question take, and in how much memory?

`BradleyTerry(kernel="items")` on matches whose players meet others of about their strength, most of them few times, as
in sports. Walks 3,000 to 30,000 items with about 30 answers each. Each question has a process of its own, so that its
peak of memory is its own; the fit that comes before it is timed apart. Results: benchmarks/results/labels.json.

    python benchmarks/labels.py [--quick]
"""

from __future__ import annotations

import multiprocessing
import time
import warnings
from typing import Any

import numpy as np

from _harness import _forget_peak, _peak_bytes, arguments, report, write_results
from preflearn import BradleyTerry, BradleyTerryCV

QUESTIONS = (
    "fit",
    "predict",
    "rank",
    "covariance of 50",
    "all variances",
    "win_probability",
    "next_pairs",
    "search",
)


def matches(m: int, n_answers: int) -> np.ndarray:
    """Winner and loser of each match."""
    rng = np.random.default_rng(0)
    strength = np.sort(rng.normal(size=m))
    # A few items are in most of the matches.
    first = rng.permutation(m)[(m * rng.random(n_answers) ** 2.5).astype(int)]
    second = (first + rng.integers(1, max(2, m // 10), size=n_answers)) % m
    won = rng.random(n_answers) < 1 / (1 + np.exp(strength[second] - strength[first]))
    return np.where(won[:, None], np.stack([first, second], 1), np.stack([second, first], 1))


def ask(question: str, m: int, n_answers: int, out: Any) -> None:
    """Seconds and peak of memory of one question, put into a queue."""
    warnings.simplefilter("ignore")
    items, pairs = np.arange(m), matches(m, n_answers)
    model = BradleyTerry(0.25, kernel="items")
    work = {
        "predict": lambda: model.predict(items[::-1]),
        "rank": lambda: model.rank(items[::-1]),
        "covariance of 50": lambda: model.posterior(items[:50]),
        "all variances": lambda: model.posterior(items, variances_only=True),
        "win_probability": lambda: model.win_probability(items[:-1], items[1:]),
        "next_pairs": lambda: model.next_pairs(items, 5),
        "search": lambda: BradleyTerryCV(kernel="items").fit_pairs(items, pairs),
        "fit": lambda: model.fit_pairs(items, pairs),
    }[question]
    if question not in ("fit", "search"):
        model.fit_pairs(items, pairs)
    _forget_peak()
    start = time.perf_counter()
    work()
    out.put((time.perf_counter() - start, _peak_bytes()))


def apart(question: str, m: int, n_answers: int) -> tuple[float, int]:
    """`ask` in a process of its own."""
    context = multiprocessing.get_context("spawn")
    out = context.Queue()
    process = context.Process(target=ask, args=(question, m, n_answers, out))
    process.start()
    found = out.get()
    process.join()
    return found


def main() -> None:
    options = arguments(__doc__, repeats=1)
    sizes = [(4_000, 40_000)] if options.quick else [(3_001, 100_000), (10_000, 330_000), (30_000, 1_000_000)]
    results = []
    for m, n_answers in sizes:
        found = {question: apart(question, m, n_answers) for question in QUESTIONS}
        note = f"{m} items, {n_answers} answers"
        seconds = {question: value[0] for question, value in found.items()}
        memory = {question: float(value[1]) for question, value in found.items()}
        results.append(report("seconds", seconds, baseline="fit", note=note))
        results.append(
            report("peak of memory, Python included", memory, baseline="fit", unit="bytes", note=note)
        )
    if not options.quick:
        write_results("labels", *results)


if __name__ == "__main__":
    main()
