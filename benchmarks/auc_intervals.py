"""How often does the 95 % interval of a leave-pair-out AUC hold the true AUC of the model?

Normal rows, linear RLS, so that the true AUC of the model trained on all rows is known exactly. The interval from
halves is the default of ``estimate_auc``; the one from placement values (``n_halvings=0``, DeLong's variance) takes the
trained models as given. Results: benchmarks/results/auc_intervals.json.

    python benchmarks/auc_intervals.py [--quick] [--repeats DATA_SETS]
"""

from __future__ import annotations

import numpy as np
from scipy.stats import norm

from _harness import arguments, write_results
from preflearn import RLS
from preflearn.model_selection import estimate_auc

# rows, share of positives, features, shift of the first feature
SETTINGS = [
    (40, 0.5, 10, 0.0),
    (40, 0.5, 10, 1.0),
    (40, 0.5, 10, 2.0),
    (40, 0.5, 1, 0.0),
    (40, 0.2, 10, 0.0),
    (40, 0.2, 10, 2.0),
    (100, 0.5, 10, 0.0),
    (100, 0.5, 10, 1.0),
]
HALVINGS = {"halves (10)": 10, "halves (4)": 4, "placement values": 0}


def coverage(rows: int, share: float, features: int, shift: float, data_sets: int, seed: int) -> dict:
    rng = np.random.default_rng(seed)
    y = (np.arange(rows) < round(share * rows)).astype(float)
    delta = shift * (np.arange(features) == 0)
    held = dict.fromkeys(HALVINGS, 0)
    width = dict.fromkeys(HALVINGS, 0.0)
    estimates, truths = [], []
    model = RLS()
    for number in range(data_sets):
        X = rng.normal(size=(rows, features)) + np.outer(y, delta)
        w = model.fit(X, y).coef_
        truth = norm.cdf(w @ delta / (np.sqrt(2) * np.linalg.norm(w)))
        for name, n_halvings in HALVINGS.items():
            result = estimate_auc(model, X, y, n_halvings=n_halvings, random_state=number)
            held[name] += result.interval[0] <= truth <= result.interval[1]
            width[name] += result.interval[1] - result.interval[0]
        estimates.append(result.value)
        truths.append(truth)
    return {
        "rows": rows,
        "positive": share,
        "features": features,
        "shift": shift,
        "data_sets": data_sets,
        "true_auc": float(np.mean(truths)),
        "mean_estimate": float(np.mean(estimates)),
        "coverage": {name: float(held[name] / data_sets) for name in HALVINGS},
        "mean_width": {name: float(width[name] / data_sets) for name in HALVINGS},
    }


def main() -> None:
    options = arguments(__doc__, repeats=100)
    data_sets = 3 if options.quick else options.repeats
    results = []
    print("rows  positive  features  true AUC   " + "   ".join(f"{name:>20}" for name in HALVINGS))
    for number, setting in enumerate(SETTINGS):
        found = coverage(*setting, data_sets, seed=number)
        results.append(found)
        cells = [
            f"{found['coverage'][name]:.2f} (width {found['mean_width'][name]:.2f})" for name in HALVINGS
        ]
        print(
            f"{found['rows']:4d}  {found['positive']:8.0%}  {found['features']:8d}  {found['true_auc']:8.3f}   "
            + "   ".join(f"{cell:>20}" for cell in cells),
            flush=True,
        )
    if not options.quick:
        write_results("auc_intervals", *results)


if __name__ == "__main__":
    main()
