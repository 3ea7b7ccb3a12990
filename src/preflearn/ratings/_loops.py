"""Elo's update, game by game: each game moves the ratings of its two players by K times the surprise.

r_a ← r_a + K (y - p),    r_b ← r_b - K (y - p),    p = 1 / (1 + 10^{(r_b - r_a) / 400})
"""

from __future__ import annotations

import numpy as np

from ..numerics.compiling import njit


@njit(cache=True, nogil=True, error_model="numpy")
def elo_pass(pairs: np.ndarray, share: np.ndarray, learn: np.ndarray, n_items: int, k: float) -> np.ndarray:
    """For each game, the probability just before it that its first player wins; only some games are learned from.

    Games that are not learned from are predicted from those before them. Shape (l,).
    """
    ratings = np.zeros(n_items)
    out = np.empty(pairs.shape[0])
    for game in range(pairs.shape[0]):
        a, b = pairs[game, 0], pairs[game, 1]
        p = 1.0 / (1.0 + 10.0 ** ((ratings[b] - ratings[a]) / 400.0))
        out[game] = p
        if learn[game]:
            change = k * (share[game] - p)
            ratings[a] += change
            ratings[b] -= change
    return out
