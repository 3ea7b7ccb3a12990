"""Reduced sets without the kernel block in memory: time, accuracy and memory at a million rows.

    python benchmarks/reduced_set_scale.py            # a million rows: some minutes on one core
    python benchmarks/reduced_set_scale.py --quick    # small sizes, nothing written

m = 1,000,000 rows in 10,000 queries, r = 2000 basis vectors, RBF: is the concordance of conjugate gradients within 1 %
of that of the exact reduced set, and is the peak memory of each under 1 GB?
"""

from __future__ import annotations

import time

import numpy as np

from _harness import arguments, peak_memory, report, write_results

QUERY = 100


def problem(m: int, n: int = 8, seed: int = 0):
    """Queries of 100 rows; scores that a linear function does not order."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(m, n))
    signal = np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2] + 0.5 * np.cos(3 * X[:, 3])
    y = signal + 0.3 * rng.normal(size=m) + 3 * rng.normal(size=-(-m // QUERY)).repeat(QUERY)[:m]
    return X, y, np.arange(m) // QUERY


def model(r: int, solver: str, tol: float | None = None):
    from preflearn import RankRLS

    return RankRLS(
        1.0, kernel="rbf", gamma=0.1, n_basis=r, random_state=0, weighting="item", solver=solver, tol=tol
    )


def prepare(m: int, r: int, solver: str, tol: float | None, path: str):
    X, y, qid = problem(2000)
    model(50, solver, tol).fit(X, y, qid=qid)  # imports and compiled code are not counted
    return (*problem(m), r, solver, tol, path)


def fit_and_save(X, y, qid, r, solver, tol, path):
    start = time.perf_counter()
    fitted = model(r, solver, tol).fit(X, y, qid=qid)
    seconds = time.perf_counter() - start
    np.savez(path, beta=fitted.dual_coef_, basis=fitted.basis_, seconds=seconds, n_iter=fitted.n_iter_)


def concordance_of(saved, X, y, qid) -> float:
    from preflearn.kernels.blocks import KernelBlocks
    from preflearn.kernels.functions import Kernel
    from preflearn.metrics import concordance

    blocks = KernelBlocks(Kernel("rbf", gamma=0.1), saved["basis"])
    f = np.concatenate([blocks(X[i : i + 2000]) @ saved["beta"] for i in range(0, X.shape[0], 2000)])
    return concordance(y, f, qid)


def at_a_million(m: int, r: int) -> dict:
    import tempfile

    new = problem(min(m, 20_000), seed=1)
    values, memory, concordances, passes = {}, {}, {}, {}
    for name, solver, tol in (("one pass", "primal", None), ("iterated", "cg", 1e-2)):
        with tempfile.TemporaryDirectory() as folder:
            path = f"{folder}/fit.npz"
            memory[name] = peak_memory(prepare, fit_and_save, m, r, solver, tol, path)
            saved = np.load(path)
            values[name], passes[name] = float(saved["seconds"]), int(saved["n_iter"])
            concordances[name] = concordance_of(saved, *new)
    block = 8 * m * r
    print(f"\nm = {m:,}, r = {r:,}: the kernel block would take {block / 1e9:.1f} GB")
    for name in values:
        print(
            f"{name:<10} {values[name]:7.1f} s  peak {memory[name] / 1e9:.2f} GB  concordance {concordances[name]:.4f}"
            f"  passes {passes[name]}"
        )
    difference = abs(concordances["iterated"] / concordances["one pass"] - 1)
    met = difference < 0.01 and max(memory.values()) < 1e9
    print(f"relative difference of the concordance {difference:.2e}: {'met' if met else 'MISSED'}")
    return report(
        "iterations and the exact solution in blocks",
        values,
        baseline="one pass",
        note=f"m = {m:,} in queries of {QUERY}, r = {r:,}, tol 1e-2 for the iterations",
        extra={
            "peak_bytes": memory,
            "concordance": concordances,
            "passes": passes,
            "relative_difference": difference,
            "met_within_1_percent_and_1_GB": met,
        },
    )


def main() -> None:
    options = arguments(__doc__, repeats=1)  # two long fits: no repeats
    if options.quick:
        at_a_million(20_000, 200)
        return
    result = at_a_million(1_000_000, 2000)
    write_results("reduced_set_scale", result)


if __name__ == "__main__":
    main()
