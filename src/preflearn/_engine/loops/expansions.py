r"""Sums of exponentials, the second half of an RBF expansion: f_i = Σ_j β_j exp(t_ij), without storing exp(t_ij).

exp(t) = 2^n exp(u), with n the whole number next to t / log 2 and |u| ≤ log(2) / 2, where exp(u) is a polynomial. There
are no jumps, so that a processor takes several numbers in one instruction: less than half of the time that NumPy needs
for the exponential and the product with β one after the other.
"""

from __future__ import annotations

from math import factorial

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

# Adding this number rounds to a whole one, which the last bits of the sum then are.
_WHOLE = 1.5 * 2.0**52
_PER_LOG2 = 1.4426950408889634
# log 2 in two parts, the first with so few bits that its multiples are exact.
_LOG2, _LOG2_REST = 6.93147180369123816490e-01, 1.90821492927058770002e-10
# Rows whose curves are added up together.
_ROWS = 64
# Nothing is left of exp(t) below this; not far from it the bits of 2^n would run over.
_LEAST = -700.0
# Taylor's series: the relative error is below 1e-14.
_2, _3, _4, _5, _6, _7, _8, _9, _10, _11 = (1.0 / factorial(k) for k in range(2, 12))
# A polynomial through exp at 8 Chebyshev points of |u| ≤ log(2) / 2: the relative error is below 6e-11.
_R0, _R1, _R2, _R3 = 0.999999999959562, 0.9999999999955134, 0.500000010772873, 0.1666666678627284
_R4, _R5, _R6, _R7 = 0.04166621832017286, 0.008333283545073808, 0.0013948578281389146, 0.0001990756616525404


def add_up_exponentials(
    exponents: np.ndarray, rest: np.ndarray | None, beta: np.ndarray, out: np.ndarray
) -> None:
    """out_i = Σ_j β_j exp(min(0, t_ij)), with t the exponents, or the sum of both.

    Parameters
    ----------
    exponents : float64 array of shape (m, r)
    rest : float32 array of shape (m, r) or None
        With it, exponentials are as precise as a sum of which a part is in single precision allows.
    beta : float64 array of shape (r,)
    out : float64 array of shape (m,)

    Notes
    -----
    Releases the GIL.
    """
    if rest is None:
        _add_up(exponents, beta, out)
    else:
        _add_up_both(exponents, rest, beta, out)


def scaled_rows(rows: np.ndarray, used: np.ndarray, middle: np.ndarray, factors: np.ndarray) -> np.ndarray:
    """(x_k - middle_k) · factors_k for the columns k that are used, shape (m, n)."""
    out = np.empty((rows.shape[0], used.shape[0]))
    _scale_rows(rows, used, middle, factors, out)
    return out


def exponent_factors(x: np.ndarray, bound: float, left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Write [x', -|x|²/2, 1] to ``left`` and the other coordinates, if any, to ``right``; truth values of far rows.

    Parameters
    ----------
    x : float64 array of shape (m, n)
    bound : float
        Rows are far whose |x|²/2 is larger, or not a number; they count as 0 with this square.
    left : float64 array of shape (m, k + 2)
    right : float32 array of shape (m, n - k)
    """
    far = np.empty(x.shape[0], np.bool_)
    _exponent_factors(x, bound, left, right, far)
    return far


def add_up_bumps(
    X: np.ndarray, features: np.ndarray, knots: np.ndarray, widths: np.ndarray, heights: np.ndarray
) -> np.ndarray:
    """Σ_j Σ_k γ_jk exp(-(x_j - z_jk)² / 2 h_j²) of the rows x, shape (m,). O(m p k).

    Parameters
    ----------
    X : float64 array of shape (m, n)
    features : int array of shape (p,)
        The columns that j are.
    knots, heights : float64 arrays of shape (p, k)
        z and γ.
    widths : float64 array of shape (p,)
        h.
    """
    out = np.empty(X.shape[0])
    _add_up_bumps(X, features, knots, 1.0 / widths, heights, out)
    return out


@intrinsic
def _times_power(typing_context, value, shifted):
    """value · 2^n, where the last bits of ``shifted`` are n: they are added to the exponent of ``value``."""

    def generate(context, builder, signature, arguments):
        whole = ir.IntType(64)
        number, power = (builder.bitcast(one, whole) for one in arguments)
        moved = builder.shl(power, ir.Constant(whole, 52))
        return builder.bitcast(builder.add(number, moved), ir.DoubleType())

    return types.float64(types.float64, types.float64), generate


@njit(cache=True, nogil=True, fastmath={"contract", "reassoc"})
def _plus(total, term):
    """A sum whose terms may be taken in any order, unlike all other ones here."""
    return total + term


@njit(cache=True, nogil=True, fastmath={"contract"})
def _exp(t):
    t = max(min(t, 0.0), _LEAST)
    shifted = t * _PER_LOG2 + _WHOLE
    n = shifted - _WHOLE
    u = (t - n * _LOG2) - n * _LOG2_REST
    tail = _5 + u * (_6 + u * (_7 + u * (_8 + u * (_9 + u * (_10 + u * _11)))))
    return _times_power(1.0 + u * (1.0 + u * (_2 + u * (_3 + u * (_4 + u * tail)))), shifted)


@njit(cache=True, nogil=True, fastmath={"contract"})
def _rough_exp(t):
    t = max(min(t, 0.0), _LEAST)
    shifted = t * _PER_LOG2 + _WHOLE
    u = t - (shifted - _WHOLE) * (_LOG2 + _LOG2_REST)
    value = _R0 + u * (_R1 + u * (_R2 + u * (_R3 + u * (_R4 + u * (_R5 + u * (_R6 + u * _R7))))))
    return _times_power(value, shifted)


@njit(cache=True, nogil=True, fastmath={"contract"})
def _add_up(exponents, beta, out):
    for i in range(exponents.shape[0]):
        t, total = exponents[i], 0.0
        for j in range(beta.shape[0]):
            total = _plus(total, beta[j] * _exp(t[j]))
        out[i] = total


@njit(cache=True, nogil=True, fastmath={"contract"})
def _add_up_both(exponents, rest, beta, out):
    for i in range(exponents.shape[0]):
        t, more, total = exponents[i], rest[i], 0.0
        for j in range(beta.shape[0]):
            total = _plus(total, beta[j] * _rough_exp(t[j] + more[j]))
        out[i] = total


@njit(cache=True, nogil=True, fastmath={"contract"})
def _add_up_bumps(X, features, knots, per_width, heights, out):
    x, total = np.zeros(_ROWS), np.empty(_ROWS)
    for start in range(0, X.shape[0], _ROWS):
        n = min(_ROWS, X.shape[0] - start)
        total[:] = 0.0
        for j in range(features.shape[0]):
            for i in range(n):
                x[i] = X[start + i, features[j]]
            for k in range(knots.shape[1]):
                at, height, scale = knots[j, k], heights[j, k], per_width[j]
                for i in range(_ROWS):
                    u = (x[i] - at) * scale
                    total[i] += height * _exp(-0.5 * u * u)
        out[start : start + n] = total[:n]


@njit(cache=True, nogil=True)
def _scale_rows(rows, used, middle, factors, out):
    for i in range(rows.shape[0]):
        for k in range(used.shape[0]):
            out[i, k] = (rows[i, used[k]] - middle[k]) * factors[k]


@njit(cache=True, nogil=True, fastmath={"contract"})
def _exponent_factors(x, bound, left, right, far):
    k = left.shape[1] - 2
    for i in range(x.shape[0]):
        total = 0.0
        for j in range(x.shape[1]):
            total = _plus(total, x[i, j] * x[i, j])
        far[i] = not 0.5 * total <= bound
        if far[i]:
            left[i, :k] = 0.0
            right[i] = 0.0
        else:
            for j in range(k):
                left[i, j] = x[i, j]
            for j in range(k, x.shape[1]):
                right[i, j - k] = x[i, j]
        left[i, k], left[i, k + 1] = -bound if far[i] else -0.5 * total, 1.0
