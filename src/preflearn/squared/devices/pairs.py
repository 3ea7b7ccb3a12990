r"""Every pair of rows held out on device arrays; the formulas are those of `squared.holdout.pair`.

Without the rows H = {i, j}: f_H = f̄ + β_H · v + (t_H + v - Σ v / m) / κ with v = -(R_HH)⁻¹ x_H. All pairs of a block
of rows with all others are solved at once, entry by entry: no loop over pairs, and no array of pairs where only the
order counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...comparisons import Comparisons
from ...kernels.blocks import KernelBlocks
from ...kernels.functions import Kernel
from ...numerics.namespace import Home, as_host
from ..centred_kernel import centre_both_sides
from ..holdout.pair import order_columns, pair_predictions, pair_scale, solve_pairs
from .holdout import FeatureDeviceHoldOut, explicit_inverse, require_device_memory
from .kernels import refuse_unless_served
from .squared_loss import apply_half, centred_kernel, half_blocks


@dataclass(frozen=True)
class DevicePairSystem:
    """What the held-out pairs are computed from; as `squared.holdout.pair.PairSystem`.

    Attributes
    ----------
    R_rows : callable
        Takes row numbers (a slice) to those rows of R.
    R_entries : callable
        Takes two equally long arrays of row numbers to those entries of R.
    diagonal, mean_response : arrays of shape (m,)
    x, t : arrays of shape (m, v)
    mean_f : array of shape (v,)
    kappa, share, size, alpha : float
    home : Home
    width : int
        Temporary numbers for each pair.
    """

    R_rows: Callable[[slice], Any]
    R_entries: Callable[[Any, Any], Any]
    diagonal: Any
    x: Any
    t: Any
    mean_response: Any
    mean_f: Any
    kappa: float
    share: float
    size: float
    alpha: float
    home: Home
    width: int = 0

    def counts(self, y: np.ndarray, rounding: float, twins: np.ndarray, repair: Any = None) -> np.ndarray:
        """For each row its held-out pairs with lower and with higher y: right, tied and all; shape (m, 6)."""
        blocks = self._count_blocks(y, self.kappa * rounding, twins, repair)
        return np.concatenate([as_host(part) for part in blocks])

    def unstable(self, pairs: np.ndarray) -> np.ndarray:
        """As in `squared.holdout.pair.PairSystem`; here only a NaN prediction shows it."""
        return np.zeros(pairs.shape[0], dtype=bool)

    def _count_blocks(self, y: np.ndarray, tolerance: float, twins: np.ndarray, repair: Any) -> Iterator[Any]:
        xp, m, x, t = self.home.xp, y.shape[0], self.x[:, 0], self.t[:, 0]
        scores, same = self.home.put_as_is(y), self.home.put_as_is(twins)
        for rows in self.home.steps(m, 8 * m):
            R, R_ii, x_i = self.R_rows(rows), self.diagonal[rows][:, None], x[rows][:, None]
            v_i, v_j = solve_pairs(R, R_ii, self.diagonal, x_i, x, xp)
            above = t[rows][:, None] + v_i - t - v_j
            lower, higher = scores[rows][:, None] > scores, scores[rows][:, None] < scores
            lost = xp.isnan(above) & (lower | higher)
            if bool(xp.any(lost)):
                above = self._repaired(above, as_host(lost), rows.start, repair)
            tied = (xp.abs(above) <= tolerance) | (same[rows][:, None] == same)
            columns = order_columns(above, lower, higher, tied)
            yield xp.stack([xp.sum(xp.astype(column, xp.int64), axis=1) for column in columns], axis=1)

    def _repaired(self, above: Any, lost: np.ndarray, first: int, repair: Any) -> Any:
        """κ times the differences of held-out predictions; those lost in rounding are held out one by one."""
        i, j = np.nonzero(lost)
        f = repair(np.stack([first + i, j], axis=1))
        differences = np.array(as_host(above))
        differences[i, j] = self.kappa * (f[:, 0] - f[:, 1])
        return self.home.put(differences)

    def predictions(self, pairs: np.ndarray) -> np.ndarray:
        """Predictions for both rows of each pair and the mean over all rows, shape (p, 3, v)."""
        v = self.t.shape[1]
        out = np.empty((pairs.shape[0], 3, v))
        for part in self.home.steps(pairs.shape[0], self.width + 16 * v):
            out[part] = as_host(self._predict(pairs[part]))
        return out

    def _predict(self, pairs: np.ndarray) -> Any:
        xp, home = self.home.xp, self.home
        i, j = home.put_as_is(pairs[:, 0]), home.put_as_is(pairs[:, 1])

        def of(values: Any, rows: Any) -> Any:
            return xp.take(values, rows, axis=0)

        ends = [
            [of(values, rows) for values in (self.diagonal, self.x, self.t, self.mean_response)]
            for rows in (i, j)
        ]
        return pair_predictions(self.R_entries(i, j), ends, self.mean_f, self.kappa, self.share, xp)


def dual_device_pairs(X: Any, kernel: Kernel, task: Comparisons, alpha: float) -> DevicePairSystem:
    """From the full kernel: one Cholesky factorisation and the inverse, m³ operations on the device."""
    refuse_unless_served(kernel, "auto", [task])
    home = Home.of(X)
    m, xp = X.shape[0], home.xp
    require_device_memory(3 * home.itemsize * m * m, home, m)
    alpha, kappa, share = pair_scale(task, float(alpha))
    halves = half_blocks(task, m, home)  # one block or plain regression: the rows keep their order
    total = home.zeros(m)

    def add(block: Any, K: Any) -> None:
        nonlocal total
        total = total + xp.sum(K, axis=0)

    G = centred_kernel(X, KernelBlocks(kernel, X, xp), halves, home, on_block=add)
    size = float(xp.sum(xp.linalg.diagonal(G)))
    if share and 0 < alpha < size:
        # The constant that S does not see would contribute 1 / alpha to R, which would swamp the rest.
        G = G + size / m**2
    R = explicit_inverse(G, alpha, home)
    del G
    t = halves.target
    x = R @ t
    mean_response, mean_f = home.zeros(m), home.zeros(t.shape[1])
    if share:
        mean = apply_half((total / m)[:, None], halves, home)
        centre_both_sides(R, xp)
        mean_response, mean_f = (R @ mean)[:, 0], xp.sum(mean * x, axis=0)
    flat = xp.reshape(R, (-1,))
    return DevicePairSystem(
        R_rows=lambda rows: R[rows, :],
        R_entries=lambda i, j: xp.take(flat, i * m + j, axis=0),
        diagonal=xp.asarray(xp.linalg.diagonal(R), copy=True),
        x=x,
        t=t,
        mean_response=mean_response,
        mean_f=mean_f,
        kappa=kappa,
        share=share,
        size=size,
        alpha=alpha,
        home=home,
    )


def feature_device_pairs(source: FeatureDeviceHoldOut, alpha: float) -> DevicePairSystem:
    """From features: λ R = C - T D Tᵀ, block by block; T, an array of the size of X, is kept."""
    home, xp = source.home, source.home.xp
    alpha, kappa, share = pair_scale(source.comparisons, float(alpha))
    m = source.comparisons.n_rows
    T = xp.concat([source.Z(block.rows) for block in source.halves.blocks], axis=0)
    T = apply_half(T, source.halves, home)
    D = 1.0 / (source.s + alpha)
    w = D[:, None] * source.c
    t = source.halves.target
    x = (t - T @ w) / alpha
    mean_response, mean_f = home.zeros(m), home.zeros(t.shape[1])
    if share:
        mean_response, mean_f = T @ (D * source.mean), source.mean @ w

    def rows_of(rows: slice) -> Any:
        return (_unit_rows(rows, m, home) - (T[rows, :] * D) @ T.T - share) / alpha

    def entries(i: Any, j: Any) -> Any:
        return -(xp.sum(xp.take(T, i, axis=0) * D * xp.take(T, j, axis=0), axis=1) + share) / alpha

    return DevicePairSystem(
        R_rows=rows_of,
        R_entries=entries,
        diagonal=(1.0 - share - (T * T) @ D) / alpha,
        x=x,
        t=t,
        mean_response=mean_response,
        mean_f=mean_f,
        kappa=kappa,
        share=share,
        size=source.size,
        alpha=alpha,
        home=home,
        width=4 * T.shape[1],
    )


def _unit_rows(rows: slice, m: int, home: Home) -> Any:
    """Some rows of the identity."""
    xp = home.xp
    numbers = xp.arange(rows.start, rows.stop, device=home.device)
    return xp.astype(numbers[:, None] == xp.arange(m, device=home.device)[None, :], home.dtype)
