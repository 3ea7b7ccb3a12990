"""How fast is RankSVM, next to what its evaluations cannot avoid and next to its peers?

One question per row, one query of real-valued scores, squared hinge unless said otherwise:

- floor: our time over (number of evaluations) x (``np.argsort`` of m numbers + ``X @ w`` + ``X.T @ g``)
- growth: exponent of time in m from 20,000 to 1,000,000 rows of 50 dense features
- sparse: 100,000 rows, 20,000 features, 60 non-zeros a row
- kernel: rbf with 2,000 basis vectors, next to making their features alone
- memory: peak above X, in multiples of X
- survival: scikit-survival's ``FastSurvivalSVM(rank_ratio=1)``, all events observed, at equal objective
- pairs: ``sklearn.svm.LinearSVC`` on the feature differences of all pairs, at equal objective
- hinge: our hinge next to a bundle method (cutting planes with a small quadratic program), at equal duality gap

    python benchmarks/ranksvm.py            # all rows
    python benchmarks/ranksvm.py --only floor growth    # these; the other results stay as they were written
"""

from __future__ import annotations

import argparse
import time

import numpy as np
import scipy.sparse as sp

from _harness import best_of, kept_results, peak_memory, report, write_results
from preflearn import RankSVM
from preflearn.comparisons.grouping import one_group
from preflearn.kernels import NystromMap
from preflearn.losses.pairs import ScoredPairs

ACCURACY = 1e-3


def dense_data(m: int, n: int = 50, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((m, n))
    return X, X @ rng.standard_normal(n) + 3.0 * rng.standard_normal(m)


def sparse_data(
    m: int, n: int = 20_000, per_row: int = 60, seed: int = 0
) -> tuple[sp.csr_matrix, np.ndarray]:
    rng = np.random.default_rng(seed)
    columns = np.sort(rng.integers(0, n, (m, per_row)), axis=1).ravel()
    X = sp.csr_matrix(
        (rng.random(m * per_row), columns, np.arange(0, m * per_row + 1, per_row)), shape=(m, n)
    )
    X.sum_duplicates()
    return X, X @ rng.standard_normal(n) + rng.standard_normal(m)


def fit(X, y, alpha: float = 1.0, loss: str = "squared_hinge", tol: float = ACCURACY) -> RankSVM:
    return RankSVM(alpha, loss=loss, tol=tol).fit(X, y)


def floor_seconds(X, y, repeats: int) -> float:
    """One evaluation that nobody can avoid: a sort, a product with X and one with its transpose."""
    w, g, transpose = np.ones(X.shape[1]), y.copy(), X.T
    seconds = best_of(
        {"sort": lambda: np.argsort(y), "X @ w": lambda: X @ w, "X.T @ g": lambda: transpose @ g},
        repeats=repeats,
    )
    return sum(seconds.values())


def next_to_floor(name: str, X, y, repeats: int) -> dict:
    model = fit(X, y)
    seconds = best_of({"RankSVM.fit": lambda: fit(X, y)}, repeats=repeats, warm_up=False)
    values = {**seconds, "floor": model.n_evaluations_ * floor_seconds(X, y, 3 * repeats)}
    objective = fit(X, y, tol=1e-9).objective_
    note = f"{model.n_iter_} steps, {model.n_evaluations_} evaluations"
    return report(
        f"{name}: time over the floor of its evaluations",
        values,
        baseline="floor",
        limits={"RankSVM.fit": 2.0},
        note=note,
        extra={"relative_excess_of_objective": model.objective_ / objective - 1.0},
    )


def floor(repeats: int, quick: bool) -> dict:
    m = 20_000 if quick else 500_000
    return next_to_floor(f"m = {m}, 50 dense features", *dense_data(m), repeats)


def sparse(repeats: int, quick: bool) -> dict:
    m = 5_000 if quick else 100_000
    return next_to_floor(f"m = {m}, 20,000 sparse features", *sparse_data(m), repeats)


def growth(repeats: int, quick: bool) -> dict:
    sizes = [5_000, 20_000] if quick else [20_000, 50_000, 100_000, 200_000, 500_000, 1_000_000]
    data = {m: dense_data(m) for m in sizes}
    models = {m: fit(*data[m]) for m in sizes}
    seconds = best_of({str(m): lambda m=m: fit(*data[m]) for m in sizes}, repeats=repeats, warm_up=False)
    exponent = float(np.polyfit(np.log(sizes), np.log(list(seconds.values())), 1)[0])
    result = report("growth with m, 50 dense features", seconds, baseline=str(sizes[0]))
    evaluations = {str(m): models[m].n_evaluations_ for m in sizes}
    print(
        f"evaluations {evaluations}; time ~ m^{exponent:.2f} (at most 1.15: {'met' if exponent <= 1.15 else 'MISSED'})"
    )
    return {**result, "exponent": exponent, "evaluations": evaluations, "met": {"exponent": exponent <= 1.15}}


def kernel(repeats: int, quick: bool) -> dict:
    """Curved scores of 20 features; one run of each, because the features alone take a while."""
    m, n_basis = (3_000, 200) if quick else (200_000, 2_000)
    X, _ = dense_data(m, 20)
    rng = np.random.default_rng(1)
    y = np.sin(X[:, 0]) * X[:, 1] + X[:, 2] ** 2 + 0.5 * rng.standard_normal(m)
    fit(X[:500], y[:500])
    model = RankSVM(
        1e-4 * m, kernel="rbf", gamma=0.02, n_basis=n_basis, random_state=0, tol=ACCURACY, weighting="item"
    )
    options = {"kernel": "rbf", "gamma": 0.02, "n_basis": n_basis, "random_state": 0}
    seconds = best_of(
        {
            "features alone": lambda: NystromMap(**options).fit_transform(X),
            "RankSVM.fit": lambda: model.fit(X, y),
        },
        repeats=1,
        warm_up=False,
    )
    note = f"{model.n_iter_} steps, {model.n_evaluations_} evaluations, concordance {model.score(X, y):.4f}"
    name = f"rbf, m = {m}, {n_basis} basis vectors, 20 dense features"
    return report(name, seconds, baseline="features alone", note=note)


def prepare_fit(m: int) -> tuple[np.ndarray, np.ndarray]:
    fit(*dense_data(500))
    return dense_data(m)


def memory(repeats: int, quick: bool) -> dict:
    m = 50_000 if quick else 1_000_000
    X_bytes = m * 50 * 8
    rise = peak_memory(prepare_fit, fit, m)
    return report(
        f"peak memory, m = {m}, 50 dense features",
        {"X": X_bytes, "X and training": X_bytes + rise},
        baseline="X",
        limits={"X and training": 3.0},
        unit="bytes",
    )


def survival(repeats: int, quick: bool) -> dict | None:
    try:
        from sksurv.svm import FastSurvivalSVM
    except ImportError:
        print("\nscikit-survival is not installed: its row is left out")
        return None
    m = 2_000 if quick else 20_000
    X, y = dense_data(m)
    pairs = ScoredPairs(y, one_group(m))
    alpha = 1.0
    least = fit(X, y, alpha, tol=1e-9).objective_
    # Its objective is half of ours divided by alpha.
    target = np.array([(True, t) for t in y - y.min() + 1.0], dtype=[("event", bool), ("time", float)])

    def peer(max_iter: int):
        model = FastSurvivalSVM(
            alpha=1.0 / alpha, rank_ratio=1.0, max_iter=max_iter, optimizer="rbtree", tol=1e-9
        )
        return model.fit(X, target)

    import warnings

    from preflearn.losses.pairs import squared_hinge

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for max_iter in range(1, 30):
            weights = peer(max_iter).coef_
            value = squared_hinge(pairs.violations(X @ weights))[0] + alpha * weights @ weights
            if value <= least * (1 + ACCURACY):
                break
        seconds = best_of(
            {"preflearn": lambda: fit(X, y, alpha), "FastSurvivalSVM": lambda: peer(max_iter)},
            repeats=repeats,
        )
    return report(
        f"scikit-survival, m = {m}, 50 dense features",
        seconds,
        baseline="FastSurvivalSVM",
        limits={"preflearn": 1.0},
        note=f"its {max_iter} Newton iterations reach {value / least - 1:.1e} above the minimum",
    )


def pairs(repeats: int, quick: bool) -> dict:
    from sklearn.svm import LinearSVC

    m = 300 if quick else 2_000
    X, y = dense_data(m, 20)
    least = fit(X, y, tol=1e-9).objective_

    def explicit() -> np.ndarray:
        i, j = np.triu_indices(m, 1)
        labels = np.where(y[i] > y[j], 1, -1)
        return LinearSVC(C=0.5, fit_intercept=False, dual=False, tol=1e-2).fit(X[i] - X[j], labels).coef_[0]

    weights = explicit()
    p = X @ weights
    slack = np.maximum(1.0 - (p[None, :] - p[:, None]), 0.0)
    value = float((slack[y[:, None] < y[None, :]] ** 2).sum() + weights @ weights)
    seconds = best_of({"preflearn": lambda: fit(X, y), "LinearSVC": explicit}, repeats=repeats)
    return report(
        f"explicit pairs through LinearSVC, m = {m}, 20 dense features",
        seconds,
        baseline="LinearSVC",
        limits={"preflearn": 0.1},
        note=f"its objective is {value / least - 1:.1e} above the minimum",
    )


def bundle(
    X: np.ndarray, y: np.ndarray, alpha: float, accuracy: float, max_iter: int = 300
) -> tuple[float, int]:
    """Cutting planes for the hinge: the lower bound max_k (a_k·w + b_k) + alpha ‖w‖², minimised by its dual."""
    task = ScoredPairs(y, one_group(y.shape[0]))
    planes, offsets = [], []
    w, beta = np.zeros(X.shape[1]), np.zeros(0)
    best = np.inf
    for _ in range(max_iter):
        p = X @ w
        worse, better = task.counts(p)
        slope, constant = X.T @ (worse - better), worse.sum()
        best = min(best, constant + slope @ w + alpha * w @ w)
        planes.append(slope)
        offsets.append(constant)
        A, b = np.array(planes), np.array(offsets)
        beta = _simplex_qp(A @ A.T / (2 * alpha), b, np.append(beta, 0.0))
        w = -A.T @ beta / (2 * alpha)
        bound = b @ beta - alpha * w @ w
        if best - bound <= accuracy * best:
            break
    return best, len(planes)


def _simplex_qp(Q: np.ndarray, b: np.ndarray, start: np.ndarray) -> np.ndarray:
    """Maximise b·β - βᵀQβ / 2 over the simplex by pairwise coordinate steps."""
    beta = start if start.sum() > 0 else np.ones_like(start) / start.shape[0]
    gradient = b - Q @ beta
    for _ in range(200 * beta.shape[0]):
        up = int(np.argmax(gradient))
        down = int(np.argmin(np.where(beta > 0, gradient, np.inf)))
        gain = gradient[up] - gradient[down]
        if gain <= 1e-9 * abs(b @ beta):
            break
        curvature = Q[up, up] + Q[down, down] - 2 * Q[up, down]
        step = min(beta[down], gain / max(curvature, 1e-300))
        beta[up] += step
        beta[down] -= step
        gradient -= step * (Q[:, up] - Q[:, down])
    return beta


def hinge(repeats: int, quick: bool) -> list[dict]:
    m = 2_000 if quick else 20_000
    X, y = dense_data(m)
    results = []
    # The bundle method needs 1 / (alpha x accuracy) steps: relative to the number of pairs, a mild alpha.
    for share in (1e-2, 1e-3):
        alpha = share * m * (m - 1) / 2
        ours = fit(X, y, alpha, "hinge")
        seconds = best_of({"rounded Newton": lambda a=alpha: fit(X, y, a, "hinge")}, repeats=repeats)
        start = time.perf_counter()
        value, n_iter = bundle(X, y, alpha, ACCURACY)
        seconds["bundle"] = time.perf_counter() - start
        note = (
            f"alpha = {share:g} pairs; {ours.n_evaluations_} and {n_iter} evaluations, "
            f"objectives {ours.objective_:.6g} and {value:.6g}"
        )
        results.append(report(f"hinge to a gap of 1e-3, m = {m}", seconds, baseline="bundle", note=note))
    return results


QUESTIONS = {f.__name__: f for f in (floor, growth, sparse, kernel, memory, survival, pairs, hinge)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", choices=QUESTIONS, default=list(QUESTIONS))
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="small sizes, nothing written")
    options = parser.parse_args()
    results = []
    for name in options.only:
        result = QUESTIONS[name](options.repeats, options.quick)
        results += result if isinstance(result, list) else [result] if result else []
    if not options.quick:
        write_results("ranksvm", *kept_results("ranksvm", results), *results)


if __name__ == "__main__":
    main()
