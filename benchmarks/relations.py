"""Relations: two decompositions for every alpha, leave-entry-out for all of them, one iteration of a million pairs, and
a search over alphas on a fifth of the labels.

The closed form is measured against two eigen decompositions of its size (LAPACK's dsyevd), an iteration of conjugate
gradients against two dense products of its size and against the memory that the sampled product reads.

    python benchmarks/relations.py [--repeats 3] [--quick] [--only search]
"""

from __future__ import annotations

import time

import numpy as np

from _harness import arguments, best_of, peak_memory, report, write_results
from preflearn.numerics.linalg import eigh_in_place
from preflearn.relations import KroneckerRLS, KroneckerRLSCV, RelationPath
from preflearn.relations.incomplete import KnownPairs
from preflearn.relations.pairwise import PairwiseKernel

ALPHAS = 2.0 ** np.arange(-7, 8)


def kernel(n: int, seed: int) -> np.ndarray:
    """A precomputed kernel of full rank."""
    X = np.random.default_rng(seed).normal(size=(n, n))
    return X @ X.T / n


def complete(n: int, repeats: int) -> list[dict]:
    K, G = kernel(n, 0), kernel(n, 1)
    Y = np.random.default_rng(2).normal(size=(n, n))
    model = KroneckerRLS(row_kernel="precomputed", column_kernel="precomputed")

    def decompositions() -> None:
        for matrix in (K, G):
            eigh_in_place(np.array(matrix, order="F"))

    def fit() -> list[np.ndarray]:
        path = RelationPath(model, K, G, Y)
        return [path.mode_coefficients(alpha) for alpha in ALPHAS]

    def leave_entry_out() -> np.ndarray:
        return RelationPath(model, K, G, Y).held_out("entries", alphas=ALPHAS)

    seconds = best_of(
        {"two dsyevd": decompositions, "fit, 15 alphas": fit, "leave-entry-out, 15 alphas": leave_entry_out},
        repeats=repeats,
        warm_up=False,
    )
    limits = {"fit, 15 alphas": 1.5, "leave-entry-out, 15 alphas": 3.0}
    note = f"p = q = {n}; the solutions in the basis of the modes, which predictions use"
    return [report("Complete relation", seconds, baseline="two dsyevd", limits=limits, note=note)]


def known_pairs(n: int, n_known: int) -> KnownPairs:
    rng = np.random.default_rng(0)
    row, column = np.divmod(np.sort(rng.choice(n * n, n_known, replace=False)), n)
    return KnownPairs(
        kernel_of_features(n, 0),
        kernel_of_features(n, 1),
        row,
        column,
        rng.normal(size=n_known),
        PairwiseKernel.read("kronecker"),
    )


def kernel_of_features(n: int, seed: int) -> np.ndarray:
    X = np.random.default_rng(seed).normal(size=(n, 10))
    return X @ X.T


def features(n: int, n_known: int) -> tuple:
    """Objects and known pairs, after a small fit that compiles the loops."""
    rng = np.random.default_rng(0)
    small = rng.normal(size=(40, 10))
    KroneckerRLS(max_iter=2, tol=1.0).fit_pairs_of(small, small, np.arange(40), np.arange(40), np.ones(40))
    row, column = np.divmod(np.sort(rng.choice(n * n, n_known, replace=False)), n)
    rows, columns = rng.normal(size=(2, n, 10))
    return rows, columns, row, column, rng.normal(size=n_known)


def few_iterations(rows, columns, row, column, y) -> None:
    KroneckerRLS(1.0, max_iter=3, tol=1e-1).fit_pairs_of(rows, columns, row, column, y)


def incomplete(n: int, n_known: int, repeats: int) -> list[dict]:
    problem = known_pairs(n, n_known)
    a = np.random.default_rng(1).normal(size=n_known)
    A = np.random.default_rng(3).normal(size=(n, n))

    def iteration() -> np.ndarray:
        return problem.product(a) + 0.5 * a

    def dense() -> None:
        problem.K @ (A @ problem.G)

    def traffic() -> None:
        """As many bytes as the sampled product reads: a row of G and one of K for each known pair."""
        for _ in range(2 * n_known // n):
            problem.K.sum()

    seconds = best_of({"two dense products": dense, "iteration": iteration}, repeats=repeats)
    start = time.perf_counter()
    traffic()
    seconds["memory traffic"] = time.perf_counter() - start
    note = f"{n_known:,} pairs of {n:,} × {n:,}"
    results = [
        report("One iteration", seconds, baseline="two dense products", limits={"iteration": 1.5}, note=note),
        report("One iteration", seconds, baseline="memory traffic", limits={"iteration": 3.0}, note=note),
    ]
    peak = peak_memory(features, few_iterations, n, n_known)
    values = {"1 GB": 1e9, "fit_pairs_of": float(peak)}
    limits = {"fit_pairs_of": 1.0}
    return [*results, report("Peak memory", values, baseline="1 GB", limits=limits, unit="bytes", note=note)]


def search(p: int, q: int, n_known: int) -> list[dict]:
    """Seconds of a search over seven alphas with three folds of the labels, RBF kernels of 20 features."""
    rng = np.random.default_rng(0)
    rows, columns = rng.normal(size=(p, 20)), rng.normal(size=(q, 20))
    truth = np.tanh(rows @ rng.normal(size=(20, 20)) @ columns.T / 4)
    row, column = np.divmod(np.sort(rng.choice(p * q, n_known, replace=False)), q)
    y = truth[row, column] + 0.3 * rng.normal(size=n_known)
    model = KroneckerRLSCV(
        10.0 ** np.arange(-2, 5), row_kernel="rbf", column_kernel="rbf", hold_out="entries", cv=3
    )
    start, begun = time.perf_counter(), time.process_time()
    model.fit_pairs_of(rows, columns, row, column, y)
    values = {
        "120 s": 120.0,
        "search": time.perf_counter() - start,
        "processor seconds": time.process_time() - begun,
    }
    note = f"{n_known:,} labels of {p:,} × {q}, 7 alphas, 3 folds; alpha {model.alpha_:g}"
    return [
        report("Search on a fifth of the labels", values, baseline="120 s", limits={"search": 1.0}, note=note)
    ]


def main() -> None:
    options = arguments(__doc__, repeats=3, only="all")
    if options.quick:
        complete(200, 1)
        incomplete(300, 2000, 1)
        search(100, 30, 600)
        return
    if options.only == "search":
        write_results("relations_search", *search(2000, 230, 97_987))
        return
    results = complete(2000, options.repeats) + incomplete(5000, 1_000_000, options.repeats)
    write_results("relations", *results)


if __name__ == "__main__":
    main()
