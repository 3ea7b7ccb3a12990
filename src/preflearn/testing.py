"""What every kernel, metric, kind of comparisons and ranker must satisfy: checks for packages that add their own.

    from preflearn.testing import check_comparisons, check_kernel, check_metric, check_ranker

    def test_my_kernel():
        check_kernel("cauchy")

Each compares what the part offers with the slow, obvious computation on small data and raises an AssertionError where
they differ.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.base import clone

from .comparisons import Comparisons
from .kernels import Kernel

__all__ = ["check_comparisons", "check_drop", "check_kernel", "check_metric", "check_ranker"]


def check_kernel(kernel: str, *, X: np.ndarray | None = None, **parameters: Any) -> None:
    """Check a named kernel: a symmetric matrix, positive semidefinite, the same in blocks, with its gradient.

    Parameters
    ----------
    kernel : str
        A registered name.
    X : ndarray of shape (m, n), optional
        Rows that the kernel accepts; normal ones by default.
    **parameters
        gamma, degree, coef0, kernel_params.

    Examples
    --------
    >>> from preflearn.testing import check_kernel
    >>> check_kernel("rbf", gamma=0.5)
    """
    from .kernels.blocks import KernelBlocks, expansion_gradient

    rows = np.random.default_rng(0).normal(size=(14, 3)) if X is None else X
    one = Kernel(kernel, **parameters)
    K = one.matrix(rows)
    size = abs(K).max()
    np.testing.assert_allclose(K, K.T, atol=1e-12 * size)
    assert np.linalg.eigvalsh(K)[0] >= -1e-9 * size * len(K), "the kernel matrix has a negative eigenvalue"
    Z = rows[:5]
    np.testing.assert_allclose(one.matrix(rows, Z), K[:, :5], atol=1e-9 * size)
    np.testing.assert_allclose(KernelBlocks(one, Z)(rows), K[:, :5], atol=1e-9 * size)
    if one.function is None or one.function.gradient is None:
        return
    beta, step = np.linspace(-1.0, 1.0, 5), 1e-6
    found = expansion_gradient(one, rows[5:], Z, beta)
    for feature in range(rows.shape[1]):
        moved = step * np.eye(rows.shape[1])[feature]
        slope = (one.matrix(rows[5:] + moved, Z) - one.matrix(rows[5:] - moved, Z)) @ beta / (2 * step)
        np.testing.assert_allclose(found[:, feature], slope, atol=1e-5 * max(1.0, abs(slope).max()))


def check_metric(metric: str) -> None:
    """Check a named metric: only the order of scores counts, queries are averaged, the order of rows is irrelevant.

    Examples
    --------
    >>> from preflearn.testing import check_metric
    >>> check_metric("ndcg@3")
    """
    from .metrics import get_scorer
    from .metrics.registry import full_name, named_metric

    scorer, rng = get_scorer(metric), np.random.default_rng(0)
    least, largest = named_metric(full_name(metric)).limits
    qid = np.repeat(np.arange(6), 8)
    y, scores = rng.integers(0, 2, 48).astype(float), rng.normal(size=48)
    within = qid if scorer.has_per_query else None
    value, best = scorer.measure(y, scores, within), scorer.measure(y, y + 1e-3 * scores, within)
    assert least <= value <= best <= largest, (
        f"{value} for random scores, {best} for the best, limits {least}, {largest}"
    )
    np.testing.assert_allclose(scorer.measure(y, np.exp(scores), within), value)
    order = rng.permutation(48)
    moved = None if within is None else within[order]
    np.testing.assert_allclose(scorer.measure(y[order], scores[order], moved), value)
    if within is not None:
        alone = [scorer.measure(y[qid == q], scores[qid == q]) for q in range(6)]
        np.testing.assert_allclose(scorer.per_query(y, scores, qid).values, alone)
        np.testing.assert_allclose(np.mean(alone), value)


def check_ranker(ranker: Any, *, atol: float = 1e-6) -> None:
    """Check a ranker: fitted twice it is the same, rows may be reordered, held-out scores are those of refitting.

    Parameters
    ----------
    ranker : estimator
        Unfitted; ``fit(X, y, qid=qid)`` and ``predict(X)``.
    atol : float, default=1e-6
        For scores, relative to their standard deviation.

    Examples
    --------
    >>> from preflearn import RankRLS
    >>> from preflearn.testing import check_ranker
    >>> check_ranker(RankRLS(kernel="rbf"))
    """
    from .model_selection import cross_val_predict

    rng = np.random.default_rng(0)
    X, qid = rng.normal(size=(40, 4)), np.repeat(np.arange(8), 5)
    y = np.round(X[:, 0] + X[:, 1] * X[:, 2] + 0.3 * rng.normal(size=40), 1)
    before = X.copy()
    scores = clone(ranker).fit(X, y, qid=qid).predict(X)
    np.testing.assert_array_equal(X, before, "fit or predict changed X")
    tolerance: dict[str, Any] = {"rtol": 0.0, "atol": atol * max(float(np.std(scores)), np.finfo(float).tiny)}

    def differences(values: np.ndarray) -> np.ndarray:
        """Inside queries: a constant per query is not defined."""
        return values - np.array([values[qid == q].mean() for q in range(8)])[qid]

    order = rng.permutation(40)
    again = clone(ranker).fit(X[order], y[order], qid=qid[order]).predict(X)
    np.testing.assert_allclose(differences(again), differences(scores), **tolerance)
    held_out = cross_val_predict(clone(ranker), X, y, qid=qid, cv="leave-query-out")
    refitted = np.empty(40)
    for query in range(8):
        rest = qid != query
        refitted[~rest] = clone(ranker).fit(X[rest], y[rest], qid=qid[rest]).predict(X[~rest])
    np.testing.assert_allclose(differences(held_out), differences(refitted), **tolerance)


def check_comparisons(comparisons: Comparisons, L: np.ndarray, b: np.ndarray, *, scale: float = 1.0) -> None:
    """Check a kind of comparisons: every operation against the dense Laplacian and target.

    Parameters
    ----------
    comparisons : Comparisons
    L : ndarray of shape (m, m)
    b : ndarray of shape (m,)
    scale : float, default=1.0
        The size of rounding errors.
    """
    m = L.shape[0]
    largest = max(scale, float(abs(L).max(initial=0)), float(abs(b).max(initial=0)))
    tolerance: dict[str, Any] = {"rtol": 1e-9, "atol": 1e-9 * largest}
    rng = np.random.default_rng(0)
    np.testing.assert_allclose(comparisons.to_dense(), L, **tolerance)
    np.testing.assert_allclose(comparisons.target[:, 0], b, **tolerance)
    np.testing.assert_allclose(comparisons.diagonal(), np.diagonal(L), **tolerance)
    for width in (1, 3, 7):
        V = rng.normal(size=(m, width))
        before = V.copy()
        np.testing.assert_allclose(comparisons.laplacian(V), L @ V, **tolerance)
        summed = sum(left.T @ right for left, right in comparisons.blocks(V, 5))
        np.testing.assert_allclose(summed, V.T @ L @ V, **tolerance)
        np.testing.assert_array_equal(V, before)
    v = rng.normal(size=(m,))
    np.testing.assert_allclose(comparisons.laplacian(v), L @ v, **tolerance)
    from_indicators = sum((E * c) @ E.T for E, c in ((E.toarray(), c) for E, c in comparisons.indicators()))
    np.testing.assert_allclose(from_indicators, L, **tolerance)
    _check_capabilities(comparisons, L, tolerance)
    if comparisons.has_half:
        _check_half(comparisons, L, b, tolerance)
        return
    for missing in (lambda: comparisons.half(v), comparisons.half_levels, comparisons.half_factors):
        _check_refused(missing, NotImplementedError)


def _check_refused(call: Callable[[], Any], kind: type[Exception], words: str = "") -> None:
    try:
        call()
    except kind as error:
        assert words in str(error), f"{words!r} is not in the message: {error}"
    else:
        raise AssertionError(f"expected a {kind.__name__}: nothing was raised")


def _check_capabilities(comparisons: Comparisons, L: np.ndarray, tolerance: dict[str, Any]) -> None:
    """What comparisons declare of themselves is true of L."""
    m, queries = L.shape[0], comparisons.queries
    if comparisons.ignores_constants:
        np.testing.assert_allclose(L.sum(axis=0), 0, **tolerance)
    if queries is not None:
        assert not L[queries.codes[:, None] != queries.codes].any()
    if comparisons.is_one_block:
        centring = np.eye(m) - 1 / m
        np.testing.assert_allclose(comparisons.block_scale**2 * centring, L, **tolerance)
    else:
        _check_refused(lambda: comparisons.block_scale, ValueError, "one scale")
    if comparisons.whole_queries_only:
        assert queries is not None
        for query in np.flatnonzero(queries.counts > 1):
            part = queries.rows(int(query))[:1]
            _check_refused(lambda part=part: comparisons.drop(part), ValueError, "whole queries")  # type: ignore[misc]


def _check_half(comparisons: Any, L: Any, b: Any, tolerance: Any) -> None:
    m = L.shape[0]
    S = comparisons.half(np.eye(m))
    np.testing.assert_allclose(S, S.T, **tolerance)
    np.testing.assert_allclose(_half_from_levels(comparisons), S, **tolerance)
    np.testing.assert_allclose(S @ S, L, **tolerance)
    np.testing.assert_allclose(S @ comparisons.half_target[:, 0], b, **tolerance)
    np.testing.assert_allclose(
        comparisons.half_inverse(np.eye(m)), np.linalg.pinv(S, rcond=1e-10, hermitian=True), atol=1e-7
    )
    f = np.random.default_rng(2).normal(size=(m, 2))
    anchors = comparisons.anchors()
    means = 0 if anchors is None else np.stack([f[anchors.codes == c].mean(axis=0) for c in anchors.codes])
    np.testing.assert_allclose(comparisons.half_inverse(S @ f) + means, f, atol=1e-8)
    F = np.random.default_rng(1).normal(size=(m, m))
    K = F @ F.T
    np.testing.assert_allclose(comparisons.half_both_sides(K.copy()), S @ K @ S, **tolerance)


def _half_from_levels(comparisons: Comparisons) -> np.ndarray:
    """S from the groups that it averages over and the factors of what is left."""
    levels, (outer, inner) = comparisons.half_levels(), comparisons.half_factors()
    identity = np.eye(comparisons.n_rows)
    averages = [
        (level.codes[:, None] == level.codes) / level.counts[level.codes][:, None] for level in levels
    ]
    if not levels:
        return identity
    over_queries, over_ties = averages[0], averages[1] if len(averages) == 2 else identity
    return np.sqrt(inner)[:, None] * (identity - over_ties) + np.sqrt(outer)[:, None] * (
        over_ties - over_queries
    )


def check_drop(comparisons: Comparisons, rows: np.ndarray) -> None:
    """L' and b' of a removal are those of training on the remaining rows alone."""
    m = comparisons.n_rows
    removal = comparisons.drop(rows)
    N = np.zeros((m, removal.columns.shape[1]))
    N[removal.rows] = removal.columns
    d = np.zeros((m, comparisons.n_outputs))
    d[removal.rows] = removal.change
    if removal.centred:
        N, d = N - N.mean(axis=0), d - d.mean(axis=0)
    L = removal.scale * (comparisons.to_dense() - (N * removal.signs) @ N.T)
    b = removal.scale * (comparisons.target - d)
    rest = np.setdiff1d(np.arange(m), rows)
    expected_L, expected_b = np.zeros((m, m)), np.zeros((m, comparisons.n_outputs))
    kept = comparisons.take(rest)
    expected_L[np.ix_(rest, rest)] = kept.to_dense()
    expected_b[rest] = kept.target
    size = max(1.0, float(abs(comparisons.to_dense()).max()), float(abs(comparisons.target).max()))
    np.testing.assert_allclose(L, expected_L, atol=1e-8 * size)
    np.testing.assert_allclose(b, expected_b, atol=1e-8 * size)
    if comparisons.has_half:
        _check_half_drop(comparisons, rows, expected_L, expected_b, size)


def _check_half_drop(comparisons: Any, rows: Any, expected_L: Any, expected_b: Any, size: Any) -> None:
    """The same through the symmetric half."""
    m = comparisons.n_rows
    removal = comparisons.drop_half(rows)
    p = removal.rows.shape[0]
    columns = np.eye(p) if removal.columns is None else removal.columns
    lost = np.ones(columns.shape[1]) if removal.lost is None else removal.lost
    N, change = np.zeros((m, columns.shape[1])), np.zeros((m, comparisons.n_outputs))
    N[removal.rows] = columns
    if removal.centred:
        N = np.linalg.qr(N - N.mean(axis=0))[0]
    np.testing.assert_allclose(N.T @ N, np.eye(N.shape[1]), atol=1e-9)
    if removal.change is None:
        change = N @ (N.T @ comparisons.half_target)
    else:
        change[removal.rows] = removal.change
    S = comparisons.half(np.eye(m))
    L = removal.scale * S @ (np.eye(m) - (N * lost) @ N.T) @ S
    b = removal.scale * S @ (comparisons.half_target - change)
    np.testing.assert_allclose(L, expected_L, atol=1e-7 * size)
    np.testing.assert_allclose(b, expected_b, atol=1e-7 * size)
