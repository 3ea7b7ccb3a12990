"""What every kind of comparisons must satisfy, whatever it compares."""

from __future__ import annotations

import numpy as np
import pytest

from preflearn.comparisons import Comparisons


def check_comparisons(comparisons: Comparisons, L: np.ndarray, b: np.ndarray, *, scale: float = 1.0) -> None:
    """Compare every operation with the dense Laplacian and target; ``scale`` is the size of rounding errors."""
    m = L.shape[0]
    tolerance = {"rtol": 1e-9, "atol": 1e-9 * max(scale, abs(L).max(initial=0), abs(b).max(initial=0))}
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
    v = rng.normal(size=m)
    np.testing.assert_allclose(comparisons.laplacian(v), L @ v, **tolerance)
    from_indicators = sum((E * c) @ E.T for E, c in ((E.toarray(), c) for E, c in comparisons.indicators()))
    np.testing.assert_allclose(from_indicators, L, **tolerance)
    check_capabilities(comparisons, L, tolerance)
    if comparisons.has_half:
        check_half(comparisons, L, b, tolerance)
        return
    for missing in (lambda: comparisons.half(v), comparisons.half_levels, comparisons.half_factors):
        with pytest.raises(NotImplementedError):
            missing()


def check_capabilities(comparisons: Comparisons, L: np.ndarray, tolerance: dict[str, float]) -> None:
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
        with pytest.raises(ValueError, match="one scale"):
            _ = comparisons.block_scale
    if comparisons.whole_queries_only:
        assert queries is not None
        for query in np.flatnonzero(queries.counts > 1):
            with pytest.raises(ValueError, match="whole queries"):
                comparisons.drop(queries.rows(query)[:1])


def check_half(comparisons, L, b, tolerance):
    m = L.shape[0]
    S = comparisons.half(np.eye(m))
    np.testing.assert_allclose(S, S.T, **tolerance)
    np.testing.assert_allclose(half_from_levels(comparisons), S, **tolerance)
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


def half_from_levels(comparisons: Comparisons) -> np.ndarray:
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
    """L' and b' of a removal must be those of training on the remaining rows alone."""
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
    size = max(1.0, abs(comparisons.to_dense()).max(), abs(comparisons.target).max())
    np.testing.assert_allclose(L, expected_L, atol=1e-8 * size)
    np.testing.assert_allclose(b, expected_b, atol=1e-8 * size)
    if comparisons.has_half:
        check_half_drop(comparisons, rows, expected_L, expected_b, size)


def check_half_drop(comparisons, rows, expected_L, expected_b, size):
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
