r"""Which pair to ask about next: the one whose answer is expected to be most informative.

The information that the answer about d = f_h - f_j carries about f is H[E σ(d)] - E H[σ(d)] (Houlsby, Huszár,
Ghahramani and Lengyel, "Bayesian active learning for classification and preference learning", 2011). They approximate σ
by one normal distribution function and its entropy by one bell curve; two of each are far closer, and with d normal of
mean μ and variance v both terms stay closed forms:

    σ(x) ≈ Σ_i a_i Φ(x / s_i)              E σ(d)    ≈ Σ_i a_i Φ(μ / √(s_i² + v))
    H[σ(x)] ≈ Σ_i b_i exp(-x² / 2 c_i²)    E H[σ(d)] ≈ Σ_i b_i c_i / √(c_i² + v) exp(-μ² / 2 (c_i² + v))

Over means up to 8 and variances from 0.01 to 300 the result is at most 0.004 bits off.

A goal names differences z = f_a - f_b whose sign is wanted. The part of an answer's information that concerns them is
its information times the share of d's variance that they explain, Σ_z ω_z cov(d, z)² / (var d · var z).

A batch is chosen one by one. Whatever the answer to a pair will be, it reduces the covariance C by κ (C x)(C x)ᵀ, with
x = e_h - e_j; the next pair is chosen with what is left, so that a batch does not ask the same thing twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Any

import numpy as np
from scipy.special import entr, expit, ndtr

# Least-squares fits over 0 ≤ x ≤ 16: (a_i, s_i²) of the logistic function and (b_i, c_i²) of its entropy.
_LOGISTIC = ((0.565039, 1.695305), (0.434961, 5.278065))
_ENTROPY = ((0.543885, 1.980538), (0.456115, 6.077880))
# Pairs whose information is computed at once.
_BLOCK_PAIRS = 1 << 17
# The maximum number of items on each side of the boundary whose membership of the top k is considered.
_BOUNDARY = 32
# Of very many items, the number that questions are chosen from.
MOST_CANDIDATES = 128


@dataclass(frozen=True)
class Goal:
    """Differences f_a - f_b whose sign is wanted, with their weights."""

    pairs: np.ndarray  # shape (g, 2)
    weight: np.ndarray  # shape (g,), summing to 1


def read_goal(goal: Any, n_items: int) -> int | tuple[int, int] | None:
    """A goal in its internal form: None for the whole order, k for the top k, a pair of rows for their order."""
    if goal is None or (isinstance(goal, str) and goal == "everything"):
        return None
    if isinstance(goal, str) and goal.startswith("top:") and goal[4:].isdigit():
        k = int(goal[4:])
        if not 1 <= k < n_items:
            raise ValueError(
                f"goal={goal!r}: choose between top:1 and top:{n_items - 1} for {n_items} items."
            )
        return k
    if isinstance(goal, Sequence) and not isinstance(goal, str) and len(goal) == 2:
        rows = [int(row) for row in goal if isinstance(row, Integral) and not isinstance(row, bool)]
        if len(rows) == 2 and rows[0] != rows[1] and all(0 <= row < n_items for row in rows):
            return rows[0], rows[1]
    raise ValueError(
        f"goal must be 'everything', 'top:K' for the K best, or a pair (a, b) of different row numbers below {n_items} "
        f"to learn which of the two is better: found {goal!r}."
    )


def choose_pairs(
    mean: np.ndarray,
    covariance: np.ndarray,
    n: int,
    *,
    closed: np.ndarray,
    goal: int | tuple[int, int] | None = None,
) -> np.ndarray:
    """The n most informative pairs, one after the other.

    Parameters
    ----------
    mean : ndarray of shape (m,)
        Of the posterior of the items' latent scores.
    covariance : ndarray of shape (m, m)
    n : int
    closed : bool ndarray of shape (m, m)
        Pairs not to be asked; symmetric.
    goal : as `read_goal` gives it

    Returns
    -------
    ndarray of shape (n, 2)
        Fewer rows when fewer pairs are open.

    Notes
    -----
    O(m²) for each pair; no array of more than m × m numbers.
    """
    closed = closed.copy()
    chosen: list[tuple[int, int]] = []
    n_open = int(np.count_nonzero(~closed[np.triu_indices(mean.shape[0], 1)])) if n > 1 else n
    C = covariance
    for k in range(min(n, n_open)):
        pair = _best_pair(mean, C, closed, goal)
        if pair is None:
            break
        chosen.append(pair)
        h, j = pair
        closed[h, j] = closed[j, h] = True
        if k + 1 < n:
            C = _after_an_answer(mean, C, h, j)
    return np.array(chosen, dtype=np.int64).reshape(-1, 2)


def candidates(
    mean: np.ndarray, variance: np.ndarray, size: int, goal: int | tuple[int, int] | None
) -> np.ndarray:
    """Some of very many items, those whose scores are least certain for a goal, ascending.

    For the top k, equally many just above the boundary and just below it.
    """
    if isinstance(goal, int):
        order = np.argsort(-mean, kind="stable")
        top, rest = order[:goal], order[goal:]
        boundary = 0.5 * (mean[top[-1]] + mean[rest[0]])
        doubt = np.abs(mean - boundary) / np.sqrt(variance)
        size = min(size // 2, top.shape[0], rest.shape[0])
        sides = [side[np.argsort(doubt[side], kind="stable")[:size]] for side in (top, rest)]
        return np.sort(np.concatenate(sides))
    rows = np.argsort(-variance, kind="stable")[:size]
    return np.unique(np.concatenate([rows, [] if goal is None else goal]).astype(np.int64))


def random_open_pairs(m: int, n: int, asked: np.ndarray, rng: Any) -> np.ndarray:
    """Different pairs of m items drawn at random, none of them asked, without a matrix of all pairs."""
    taken = {(min(h, j), max(h, j)) for h, j in asked.tolist()}
    n = min(n, m * (m - 1) // 2 - len(taken))
    drawn: list[tuple[int, int]] = []
    while len(drawn) < n:
        for h, j in rng.randint(m, size=(n, 2)).tolist():
            pair = (min(h, j), max(h, j))
            if h != j and pair not in taken and len(drawn) < n:
                taken.add(pair)
                drawn.append(pair)
    return np.array(drawn, dtype=np.int64).reshape(-1, 2)


def information(mean: np.ndarray, variance: np.ndarray) -> np.ndarray:
    """Bits of information that the answer about a normal difference carries about it.

    Examples
    --------
    >>> information(np.array([0.0, 0.0, 3.0]), np.array([0.0, 4.0, 4.0])).round(2)
    array([0.  , 0.33, 0.18])
    """
    p = sum(a * ndtr(mean / np.sqrt(s + variance)) for a, s in _LOGISTIC)
    expected = sum(
        b * np.sqrt(c / (c + variance)) * np.exp(-0.5 * mean**2 / (c + variance)) for b, c in _ENTROPY
    )
    return (entr(p) + entr(1.0 - p)) / np.log(2.0) - expected


def _best_pair(
    mean: np.ndarray, C: np.ndarray, closed: np.ndarray, goal: int | tuple[int, int] | None
) -> tuple[int, int] | None:
    m = mean.shape[0]
    diagonal = np.diagonal(C)
    explained = None if goal is None else _explained(C, _differences(goal, mean, C))
    best, pair = -np.inf, None
    step = max(1, _BLOCK_PAIRS // m)
    for start in range(0, m - 1, step):
        stop = min(start + step, m - 1)
        # Rows start..stop against the items from start + 1 on: the upper triangle, except for corners that are closed.
        rows, columns = slice(start, stop), slice(start + 1, m)
        variance = np.maximum(diagonal[rows, None] + diagonal[None, columns] - 2.0 * C[rows, columns], 0.0)
        value = information(mean[rows, None] - mean[None, columns], variance)
        if explained is not None:
            D = np.diagonal(explained)
            about = D[rows, None] + D[None, columns] - 2.0 * explained[rows, columns]
            value *= about / np.maximum(variance, np.finfo(float).tiny)
        value[closed[rows, columns]] = -np.inf
        value[np.tri(stop - start, m - start - 1, -1, dtype=bool)] = -np.inf
        at = int(np.argmax(value))
        i, j = divmod(at, m - start - 1)
        if value[i, j] > best:
            best, pair = float(value[i, j]), (start + i, start + 1 + j)
    return pair


def _after_an_answer(mean: np.ndarray, C: np.ndarray, h: int, j: int) -> np.ndarray:
    """The covariance expected after an answer about h and j."""
    y = C[h] - C[j]
    variance = max(float(y[h] - y[j]), 0.0)
    p = expit((mean[h] - mean[j]) / np.sqrt(1.0 + np.pi / 8.0 * variance))
    curvature = p * (1.0 - p)
    return C - np.multiply.outer(y, y * (curvature / (1.0 + curvature * variance)))


def _differences(goal: int | tuple[int, int], mean: np.ndarray, C: np.ndarray) -> Goal:
    """The differences that a goal is about."""
    if isinstance(goal, tuple):
        return Goal(np.array([goal]), np.ones(1))
    order = np.argsort(-mean, kind="stable")
    top, rest = order[:goal], order[goal:]
    boundary = 0.5 * (mean[top[-1]] + mean[rest[0]])
    doubt = -np.abs(mean - boundary) / np.sqrt(np.maximum(np.diagonal(C), np.finfo(float).tiny))
    top = top[np.argsort(-doubt[top], kind="stable")[:_BOUNDARY]]
    rest = rest[np.argsort(-doubt[rest], kind="stable")[:_BOUNDARY]]
    pairs = np.stack([np.repeat(top, rest.shape[0]), np.tile(rest, top.shape[0])], axis=1)
    a, b = pairs.T
    variance = np.diagonal(C)[a] + np.diagonal(C)[b] - 2.0 * C[a, b]
    # How far the order of a pair across the boundary is from being known.
    wrong = ndtr(-np.abs(mean[a] - mean[b]) / np.sqrt(np.maximum(variance, np.finfo(float).tiny)))
    return Goal(pairs, wrong / max(float(wrong.sum()), np.finfo(float).tiny))


def _explained(C: np.ndarray, goal: Goal) -> np.ndarray:
    """C Ω C, Ω the Laplacian of the goal's differences weighted by ω / variance."""
    items, position = np.unique(goal.pairs, return_inverse=True)
    a, b = position.reshape(goal.pairs.shape).T
    inner = C[np.ix_(items, items)]
    variance = np.diagonal(inner)[a] + np.diagonal(inner)[b] - 2.0 * inner[a, b]
    weight = goal.weight / np.maximum(variance, np.finfo(float).tiny)
    size = items.shape[0]
    omega = np.zeros((size, size))
    np.add.at(omega, (a, b), -weight)
    np.add.at(omega, (b, a), -weight)
    omega[np.diag_indices(size)] -= omega.sum(axis=0)
    side = C[:, items]
    return side @ omega @ side.T
