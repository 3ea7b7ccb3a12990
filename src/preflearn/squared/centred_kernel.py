r"""G = S K S, the kernel as the comparisons see it, at any scale of the kernel.

A power of two is factored out of K where its square would leave the range of float64: f is the same with K / u and
λ / u. What S does not see, the constants of each query, makes G singular; σ N Nᵀ can be added there without changing a
prediction, and a small λ no longer has to compete with rounding.
"""

from __future__ import annotations

from typing import Any, NoReturn

import numpy as np

from ..comparisons import Comparisons, Groups
from ..numerics.linalg import LEAST_CONDITION, unit_of

# A kernel of equal items leaves less than this share of its trace inside queries, which is rounding.
_ROUNDING_SHARE = 1e-12
# Where less than this share of a kernel is left inside queries, fewer than seven of its sixteen digits are correct.
_LEAST_SHARE = 1e-9


def centred_form(K: np.ndarray, comparisons: Comparisons) -> tuple[float, np.ndarray]:
    """A unit u, and S K S / u in the memory of the C-contiguous K.

    Raises
    ------
    ValueError
        If K overflows, or if hardly anything but rounding is left of it inside queries.
    """
    largest = float(np.diagonal(K).max(initial=0.0))
    if not np.isfinite(largest):
        raise ValueError(
            "The kernel matrix overflows: found an infinite or undefined diagonal entry. Scale the features down; the "
            "same model is found with X / s and alpha / s² for a linear kernel."
        )
    unit = unit_of(largest)
    if unit != 1.0:
        K *= 1.0 / unit
    anchors = comparisons.anchors()
    if anchors is None:
        return unit, comparisons.half_both_sides(K)
    before = float(comparisons.diagonal() @ np.diagonal(K))
    constant = K[0, 0] if (K[0] == K[0, 0]).all() and (K == K[0, 0]).all() else None
    G = comparisons.half_both_sides(K)
    if constant is not None or abs(float(np.trace(G))) < _ROUNDING_SHARE * before:
        G[...] = 0.0
    elif abs(float(np.trace(G))) < _LEAST_SHARE * before:
        raise ValueError(
            f"The kernel hardly distinguishes the items of a query: of its size {before * unit:.3g} only "
            f"{np.trace(G) * unit:.3g} is left inside queries, too little for the precision of {K.dtype}. Use a larger "
            "gamma, or centre the features."
        )
    return unit, G


def half_of_means(
    K: np.ndarray, comparisons: Comparisons, means: np.ndarray | None = None
) -> np.ndarray | None:
    """(Means of K over the rows of each query) S, shape (n_anchors, m): what S loses of a prediction.

    ``means`` are those of K where they do not follow from it; None where S loses nothing.
    """
    anchors = comparisons.anchors()
    if anchors is None:
        return None
    return comparisons.half((_group_means(K, anchors) if means is None else means).T).T


def centre_both_sides(R: Any, xp: Any = np) -> None:
    """R ← C R C for a symmetric R, in place; NumPy or device arrays."""
    means = xp.mean(R, axis=0)
    R -= means[None, :]
    R -= (means - xp.mean(means))[:, None]


def fill_null_space(G: np.ndarray, anchors: Groups | None, trace: float) -> None:
    """G ← G + σ N Nᵀ, where N spans what S does not see, the constants of each query, and σ is a typical eigenvalue."""
    if anchors is None or not trace > 0:
        return
    m = G.shape[0]
    if anchors.n_groups == 1:
        G += trace / m**2
        return
    step = max(1, (1 << 20) // m)
    for start in range(0, m, step):
        codes = anchors.codes[start : start + step]
        share = (trace / m) / anchors.counts[codes]
        G[start : start + step] += share[:, None] * (codes[:, None] == anchors.codes)


def refuse_small_alpha(alpha: float, size: float) -> NoReturn:
    """Refuse a λ that is lost in the rounding of the kernel."""
    raise ValueError(
        f"alpha = {alpha:.3g} is lost in the rounding of a kernel of size {size:.3g} that is close to singular: the "
        f"predictions would have fewer than six correct digits. Use alpha >= {size * LEAST_CONDITION:.1g}."
    )


def _group_means(K: np.ndarray, groups) -> np.ndarray:
    from ..comparisons._loops import segment_sums

    return segment_sums(K, groups.codes, groups.n_groups) / groups.counts[:, None]
