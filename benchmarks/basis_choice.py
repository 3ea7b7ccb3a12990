"""When does the choice of basis vectors pay off? "diverse" against "uniform" at the same number of them.

    python benchmarks/basis_choice.py [--quick]

Held-out concordance, averaged over draws, and the share of the kernel's trace that the basis vectors do not span:
- spread: rows from one normal distribution, where every row is as good as any other;
- crowded: nine rows in ten come from one small cluster, and the order is decided among the rare ones;
- digits: scikit-learn's handwritten digits, ranked by the digit, most rows being near copies of one of them.
"""

from __future__ import annotations

import numpy as np
from sklearn.datasets import load_digits
from sklearn.preprocessing import StandardScaler

from _harness import arguments, best_of, report, write_results
from preflearn import RankRLS
from preflearn.metrics import concordance


def spread(rng, m):
    X = rng.normal(size=(m, 5))
    return X, np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2], 0.1


def crowded(rng, m):
    rare = rng.random(m) < 0.1
    X = np.where(rare[:, None], 3 * rng.normal(size=(m, 3)), 0.05 * rng.normal(size=(m, 3)))
    return X, np.sin(X[:, 0]) + np.cos(X[:, 1]) + 0.3 * X[:, 2], 0.2


def digits(rng, m):
    X, y = load_digits(return_X_y=True)
    X = StandardScaler().fit_transform(X)
    copies = np.flatnonzero(y == 1)
    rows = np.concatenate([rng.permutation(X.shape[0]), rng.choice(copies, size=4 * X.shape[0])])
    return X[rows] + 0.01 * rng.normal(size=(rows.shape[0], X.shape[1])), y[rows].astype(float), 0.01


def compare(name, make, sizes, n_draws, m) -> dict:
    table = {}
    for r in sizes:
        found = {"uniform": [], "diverse": []}
        for seed in range(n_draws):
            rng = np.random.default_rng(seed)
            X, y, gamma = make(rng, m)
            order = rng.permutation(X.shape[0])
            train, test = order[: X.shape[0] // 2], order[X.shape[0] // 2 :]
            for basis in found:
                model = RankRLS(
                    1e-3,
                    kernel="rbf",
                    gamma=gamma,
                    n_basis=r,
                    basis=basis,
                    weighting="item",
                    random_state=seed,
                ).fit(X[train], y[train])
                found[basis].append(concordance(y[test], model.predict(X[test])))
        table[r] = {basis: float(np.mean(values)) for basis, values in found.items()}
        print(f"{name:<8} r = {r:5d}  uniform {table[r]['uniform']:.4f}  diverse {table[r]['diverse']:.4f}")
    X, y, gamma = make(np.random.default_rng(0), m)
    seconds = best_of(
        {
            basis: lambda basis=basis: RankRLS(
                kernel="rbf", gamma=gamma, n_basis=sizes[-1], basis=basis, random_state=0
            ).fit(X, y)
            for basis in ("uniform", "diverse")
        },
        repeats=2,
    )
    return report(
        f"time of a fit, {name}",
        seconds,
        baseline="uniform",
        note=f"r = {sizes[-1]}",
        extra={"concordance": table},
    )


def main() -> None:
    options = arguments(__doc__)
    sizes, n_draws, m = ([20, 50], 2, 1000) if options.quick else ([25, 50, 100, 200, 400], 5, 6000)
    results = [compare(name, make, sizes, n_draws, m) for name, make in CASES.items()]
    if not options.quick:
        write_results("basis_choice", *results)


CASES = {"spread": spread, "crowded": crowded, "digits": digits}

if __name__ == "__main__":
    main()
