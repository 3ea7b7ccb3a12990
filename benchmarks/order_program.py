"""How long does the linear program of order preferences take, against HiGHS on the whole program (7)?

    python benchmarks/order_program.py [--quick]

Five questions: l = 50, p = 1000 (at most 1.2 times HiGHS's own solve of the program handed over ready-made), l = 200,
p = 5000 (at most a third), the published 9 × 9 grid with 5 folds, peak memory against the kernel values, and the linear
kernel with features unmultiplied against multiplied out. The clock of the peer runs in HiGHS alone, ours over the whole
`fit`.
"""

from __future__ import annotations

import time

import numpy as np
import scipy.sparse as sp

from _harness import arguments, best_of, peak_memory, report, write_results
from preflearn.kernels.functions import Kernel
from preflearn.learners.order_preference import OrderPreferenceRegressor, OrderPreferenceRegressorCV
from preflearn.losses import order_program
from preflearn.preferences import pairs_from_targets


def problem(l: int, p: int, u: int = 500, n: int = 8):
    random = np.random.default_rng(0)
    X = random.normal(size=(l + u, n))
    truth = np.sin(X[:, 0]) + X[:, 1] * X[:, 2] + 0.3 * random.normal(size=l + u)
    y = np.where(np.arange(l + u) < l, truth, np.nan)
    return X, y, pairs_from_targets(truth, p, rows=np.arange(l, l + u), random_state=0)


def whole_program(X, y, preferences, alpha):
    """The matrices of (7), ready-made for HiGHS: α and the residuals split into positive parts, a slack per statement.

    HiGHS solves this form three to five times faster than the one with a row for each side of every absolute value.
    """
    known = np.flatnonzero(~np.isnan(y))
    l, p = known.shape[0], len(preferences)
    K = Kernel("rbf", gamma=1 / X.shape[1]).matrix(X, X[known])
    fit, order = sp.csr_array(K[known]), sp.csr_array(K[preferences.pairs[:, 0]] - K[preferences.pairs[:, 1]])
    one, eye = sp.csr_array(np.ones((l, 1))), sp.eye_array(l)
    A = sp.block_array(
        [[fit, -fit, one, eye, -eye, None], [order, -order, None, None, None, sp.eye_array(p)]], format="csc"
    )
    rows = np.concatenate([y[known], preferences.margin]), np.concatenate([y[known], np.full(p, np.inf)])
    cost = np.concatenate([np.full(2 * l, alpha), [0.0], np.full(2 * l, 1 / l), np.full(p, 1 / p)])
    lower = np.concatenate([np.zeros(2 * l), [-np.inf], np.zeros(2 * l + p)])
    return A, *rows, cost, lower


class ReadyMade:
    """The whole program inside HiGHS; `solve` is HiGHS's run and nothing else."""

    def __init__(self, A, row_lower, row_upper, cost, lower):
        import highspy

        model = highspy.HighsLp()
        model.num_row_, model.num_col_ = A.shape
        model.col_cost_, model.col_lower_, model.col_upper_ = cost, lower, np.full(A.shape[1], np.inf)
        model.row_lower_, model.row_upper_ = row_lower, row_upper
        model.a_matrix_.format_ = highspy.MatrixFormat.kColwise
        model.a_matrix_.start_, model.a_matrix_.index_, model.a_matrix_.value_ = A.indptr, A.indices, A.data
        self._highs = highspy.Highs()
        self._highs.setOptionValue("output_flag", False)
        self._highs.passModel(model)

    def solve(self) -> float:
        self._highs.clearSolver()
        self._highs.run()
        return self._highs.getInfo().objective_function_value


def against_whole(l: int, p: int, limit: float, repeats: int, alpha: float):
    X, y, preferences = problem(l, p)
    whole = ReadyMade(*whole_program(X, y, preferences, alpha))
    values = {}

    def ours():
        model = OrderPreferenceRegressor(alpha, gamma=1 / X.shape[1])
        values["preflearn"] = model.fit(X, y, pairs=preferences).objective_

    def theirs():
        values["HiGHS, whole program"] = whole.solve()

    seconds = best_of(
        {"HiGHS, whole program": theirs, "preflearn": ours}, repeats=repeats, warm_up=repeats > 1
    )
    difference = abs(values["preflearn"] - values["HiGHS, whole program"]) / values["preflearn"]
    assert difference < 1e-6, difference
    return report(
        f"order preferences, l = {l}, p = {p}, alpha = {alpha:g}",
        seconds,
        baseline="HiGHS, whole program",
        limits={"preflearn": limit},
        note=f"rbf; objectives differ by {difference:.1e}",
        extra={"objectives": values},
    )


def published_grid(quick: bool):
    """81 points × 5 folds, with the statements in every fold and without."""
    X, y, preferences = problem(20 if quick else 50, 100 if quick else 1000)
    seconds = {}
    for name, chosen in (("without preferences", None), ("with 1000 preferences", preferences)):
        start = time.perf_counter()
        OrderPreferenceRegressorCV().fit(X, y, pairs=chosen)
        seconds[name] = time.perf_counter() - start
    return report("9 × 9 grid, 5 folds, one process", seconds, baseline="without preferences", note="l = 50")


def prepare(l, p, n, kernel):
    """Data, and one small fit so that imports are not counted."""
    fit(*problem(10, 10), kernel)
    return *problem(l, p, n=n), kernel


def fit(X, y, preferences, kernel):
    OrderPreferenceRegressor(0.01, kernel=kernel).fit(X, y, pairs=preferences)


def memory():
    """Peak memory as p doubles (kernel form, O(p l)), and with the features unmultiplied (O(nnz))."""
    values = {}
    for kernel, l, p, n in (("rbf", 200, 5000, 8), ("rbf", 200, 10000, 8), ("linear", 1000, 10000, 8)):
        values[f"{kernel}, l = {l}, p = {p}, n = {n}"] = float(peak_memory(prepare, fit, l, p, n, kernel))
    sizes = {"kernel values of the first": 8.0 * 5200 * 200, "kernel values of the last": 8.0 * 11000 * 1000}
    return report(
        "peak memory of fit", {**sizes, **values}, baseline="kernel values of the first", unit="bytes"
    )


def unmultiplied(l: int, p: int, n: int, density: float, repeats: int):
    random = np.random.default_rng(1)
    X = sp.random_array((l + 500, n), density=density, format="csr", rng=random)
    truth = X @ random.normal(size=n)
    truth = truth / truth.std() + 0.1 * random.normal(size=l + 500)
    y = np.where(np.arange(l + 500) < l, truth, np.nan)
    preferences = pairs_from_targets(truth, p, rows=np.arange(l, l + 500), random_state=0)
    rule = order_program.features_are_smaller
    chosen = []

    def run(answer):
        def go():
            order_program.features_are_smaller = (lambda *args: answer) if answer is not None else rule
            OrderPreferenceRegressor(1e-3, kernel="linear").fit(X, y, pairs=preferences)
            order_program.features_are_smaller = rule

        return go

    known = np.arange(l)
    from preflearn.preferences import read_statements

    statements = read_statements(preferences, None, None, None, l + 500)
    chosen = "features" if rule(X, known, known, statements) else "kernel"
    seconds = best_of({"multiplied out": run(False), "features": run(True)}, repeats=repeats)
    return report(
        "linear kernel",
        seconds,
        baseline="multiplied out",
        note=f"l = {l}, p = {p}, n = {n}, {X.nnz / X.shape[0]:.0f} entries a row; chosen: {chosen}",
        extra={"chosen": chosen},
    )


def main() -> None:
    options = arguments(__doc__, repeats=5)
    if options.quick:
        results = [
            against_whole(20, 200, 1.2, 1, 0.01),
            published_grid(True),
            unmultiplied(60, 100, 5, 1.0, 1),
        ]
        return
    results = [against_whole(50, 1000, 1.2, options.repeats, alpha) for alpha in (0.1, 0.01, 0.001)]
    results += [against_whole(200, 5000, 1 / 3, 2, alpha) for alpha in (0.01, 0.001)]
    results += [published_grid(False), memory()]
    sizes = [
        (120, 500, 10000, 0.005),
        (300, 2000, 5000, 0.01),
        (600, 2000, 3000, 0.003),
        (1000, 1000, 20, 1.0),
    ]
    results += [unmultiplied(*size, repeats=2) for size in sizes]
    write_results("order_program", *results)


if __name__ == "__main__":
    main()
