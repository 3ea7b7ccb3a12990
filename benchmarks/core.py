"""How far is training from the machine's own BLAS and LAPACK?

One question per row: the full kernel, a path of alphas, the reduced set, a million rows of a linear model, and an
iteration of conjugate gradients, each as a ratio to the kernel evaluation and the one factorisation or product that
cannot be avoided.

    python benchmarks/core.py            # all rows
    python benchmarks/core.py --only path
"""

from __future__ import annotations

import numpy as np
import scipy.linalg as la
import scipy.sparse as sp
from sklearn.metrics.pairwise import rbf_kernel

from _harness import best_of, peak_memory, report, run_questions
from preflearn import RankRLS
from preflearn.comparisons import compare_scores, encode_queries, one_group
from preflearn.squared.conjugate_gradients import solve_conjugate_gradients
from preflearn.squared.problem import dual_problem


def random_data(m: int, n: int, n_queries: int, seed: int = 0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(m, n))
    y = X @ rng.normal(size=n) + rng.normal(size=m)
    return X, y, rng.integers(0, n_queries, size=m)


def lower_triangle_cholesky(K: np.ndarray) -> None:
    np.fill_diagonal(K, K.diagonal() + 1.0)
    la.lapack.dpotrf(K.T, lower=1, overwrite_a=1, clean=0)


def fit_full_kernel(X, y, qid):
    RankRLS(1.0, kernel="rbf").fit(X, y, qid=qid)


def prepare_full_kernel(m: int, n: int):
    data = random_data(m, n, 200)
    fit_full_kernel(data[0][:50], data[1][:50], None)
    return data


def one_alpha(repeats: int) -> dict:
    m, n = 4000, 50
    data = random_data(m, n, 200)
    seconds = best_of(
        {
            "preflearn": lambda: fit_full_kernel(*data),
            "kernel + dpotrf": lambda: lower_triangle_cholesky(rbf_kernel(data[0])),
        },
        repeats=repeats,
    )
    result = report(
        "RBF, m = 4000, one alpha", seconds, baseline="kernel + dpotrf", limits={"preflearn": 1.5}
    )
    arrays = peak_memory(prepare_full_kernel, fit_full_kernel, m, n) / (8 * m * m)
    print(f"  peak memory: {arrays:.2f} m × m arrays (at most 2.2)\n")
    return result | {"peak_square_arrays": arrays}


def path(repeats: int) -> dict:
    m, alphas = 2000, 2.0 ** np.arange(-15, 16)
    X, y, _ = random_data(m, 50, 1)
    K = rbf_kernel(X)

    def ours():
        comparisons = compare_scores(y[:, None], one_group(m))
        dual_problem(K.copy(), comparisons).spectrum().path(alphas)

    seconds = best_of(
        {"31 alphas": ours, "dsyevd": lambda: la.lapack.dsyevd(K.copy().T, lower=1, overwrite_a=1)},
        repeats=repeats,
    )
    return report("a path of 31 alphas, m = 2000", seconds, baseline="dsyevd", limits={"31 alphas": 1.4})


def reduced_set(repeats: int) -> dict:
    return time_reduced_set("reduced set, m = 10,000, r = 2500", 50, None, repeats)


def ill_conditioned_reduced_set(repeats: int) -> dict:
    """A wide kernel: the system on the basis vectors keeps less than half of the precision."""
    return time_reduced_set(
        "reduced set, m = 10,000, r = 2500, ill-conditioned (20 features, gamma = 0.05)", 20, 0.05, repeats
    )


def time_reduced_set(name: str, n: int, gamma: float | None, repeats: int) -> dict:
    m, r = 10_000, 2500
    X, y, qid = random_data(m, n, 500)
    basis = np.arange(r)

    def floor():
        K = rbf_kernel(X, X[:r], gamma=gamma)
        la.blas.dsyrk(1.0, K.T, lower=1)

    seconds = best_of(
        {
            "preflearn": lambda: RankRLS(kernel="rbf", gamma=gamma, basis=basis).fit(X, y, qid=qid),
            "kernel block + dsyrk": floor,
        },
        repeats=repeats,
    )
    return report(name, seconds, baseline="kernel block + dsyrk", limits={"preflearn": 2.0})


def fit_linear(X, y, qid):
    RankRLS().fit(X, y, qid=qid)


def prepare_linear(m: int, n: int):
    data = random_data(m, n, 10_000)
    fit_linear(data[0][:50], data[1][:50], None)
    return data


def million_rows(repeats: int) -> dict:
    m, n = 1_000_000, 50
    X, y, qid = random_data(m, n, 10_000)
    seconds = best_of(
        {"preflearn": lambda: fit_linear(X, y, qid), "X.T @ X": lambda: X.T @ X}, repeats=repeats
    )
    result = report(
        "linear, m = 1,000,000, n = 50, 10,000 queries in random order",
        seconds,
        baseline="X.T @ X",
        limits={"preflearn": 6.0},
    )
    copies = peak_memory(prepare_linear, fit_linear, m, n) / X.nbytes
    print(f"  peak memory: {copies:.2f} copies of X (at most 1)\n")
    return result | {"peak_copies_of_X": copies}


def iteration(repeats: int) -> dict:
    m, n, row = 100_000, 50_000, 50
    rng = np.random.default_rng(0)
    X = sp.csr_array(
        (rng.normal(size=m * row), rng.integers(0, n, size=m * row), np.arange(0, m * row + 1, row)),
        shape=(m, n),
    )
    X.sum_duplicates()
    comparisons = compare_scores(rng.normal(size=(m, 1)), encode_queries(rng.integers(0, 1000, size=m), m))
    v, u, steps = rng.normal(size=(n, 1)), rng.normal(size=(m, 1)), 20

    def iterate(n_steps):
        solve_conjugate_gradients(X, comparisons, 1.0, tol=1e-300, max_iter=n_steps)

    def products():
        for _ in range(steps):
            X @ v
            X.T @ u

    seconds = best_of(
        {
            "1 iteration": lambda: iterate(1),
            f"{steps + 1} iterations": lambda: iterate(steps + 1),
            f"{steps} products": products,
        },
        repeats=repeats,
    )
    # The difference leaves out what is paid once: the right-hand side and the preconditioner.
    each = {
        "an iteration": (seconds[f"{steps + 1} iterations"] - seconds["1 iteration"]) / steps,
        "X @ v and X.T @ u": seconds[f"{steps} products"] / steps,
    }
    return report(
        "conjugate gradients, 100,000 × 50,000, 50 non-zeros a row",
        each,
        baseline="X @ v and X.T @ u",
        limits={"an iteration": 2.0},
    )


_ASKED = (one_alpha, path, reduced_set, ill_conditioned_reduced_set, million_rows, iteration)
QUESTIONS = {question.__name__: question for question in _ASKED}

if __name__ == "__main__":
    run_questions("core", __doc__, QUESTIONS, repeats=5)
