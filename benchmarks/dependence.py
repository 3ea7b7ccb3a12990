"""How often are dependent rows reported, where they are and where they are not?

    python benchmarks/dependence.py

Simulated patients with several visits and five features. The outcome is 1 where the sum of an effect of the patient
(its intraclass correlation), noise of the visit and perhaps the first feature is positive.
"""

from __future__ import annotations

import numpy as np

from _harness import arguments, write_results
from preflearn.model_selection.dependence import find_dependence


def is_reported(
    rng: np.random.Generator, n_patients: int, visits: int, alike: float, outcome: float, effect: float
) -> bool:
    """One set: intraclass correlations of the features and of the outcome, and the effect of the first feature."""
    patient = np.repeat(np.arange(n_patients), visits)

    def values(correlation: float) -> np.ndarray:
        own, noise = rng.normal(size=n_patients)[patient], rng.normal(size=patient.size)
        return np.sqrt(correlation) * own + np.sqrt(1 - correlation) * noise

    features = {f"x{k}": values(alike) for k in range(5)}
    y = values(outcome) + effect * features["x0"] > 0
    return find_dependence({"patient": patient, **features}, y * 1.0) is not None


def main() -> None:
    options = arguments(__doc__, sets=30)
    rng, n_sets, results = np.random.default_rng(1), 2 if options.quick else options.sets, []
    settings = ((0, 0, 0), (0.9, 0, 0), (0, 0, 1), (0, 0.5, 0), (0.9, 0.5, 0), (0.9, 0.9, 0), (0.9, 0, 1))
    for n_patients, visits in ((20, 5), (60, 3), (200, 2), (60, 10)):
        for alike, outcome, effect in settings:
            share = np.mean(
                [is_reported(rng, n_patients, visits, alike, outcome, effect) for _ in range(n_sets)]
            )
            name = (
                f"{n_patients} patients, {visits} visits, correlation of features {alike:g}, of the outcome "
            )
            name += f"{outcome:g}, effect {effect:g}"
            print(f"{name}: reported in {share:.0%} of {n_sets}", flush=True)
            results.append({"name": name, "reported": float(share), "sets": n_sets})
    if not options.quick:
        write_results("dependence", *results)


if __name__ == "__main__":
    main()
