r"""RBF expansions in one loop: f_i = Σ_j β_j exp(t_ij), without storing products or exponentials.

exp(t) = 2^n exp(u), with n the whole number next to t / log 2 and |u| ≤ log(2) / 2, where exp(u) is a polynomial. There
are no jumps, so that a processor takes several numbers in one instruction.

Exponents of a few rows and some basis vectors, a tile, are added up in registers; their exponentials and the products
with β follow there. BLAS would write the exponents to memory for another loop to read, prepares the same basis vectors
again for every block of rows, and returns to Python in between: 100 rows and 2,000 basis vectors of 92 features took
a tenth less time than with it (5.7 instead of 6.4 µs a row, with vectors of 512 bits). A row has the same score
whatever other rows are asked and by whichever thread. What is written down as vectors here is what Numba does not keep
in registers. On a processor without vectors of this length several take their place.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import factorial
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.registry import cpu_target
from numba.extending import intrinsic

from ...numerics.compiling import njit
from ...numerics.vectors import in_all_lanes

# Numbers in a vector of float64, and basis vectors and rows of a tile: 24 of 32 registers hold its sums, or 12 of 16.
# By what Numba compiles for, which names its cache: this machine may have other vectors than the one that filled it.
_LANES = 8 if "+avx512f" in cpu_target.target_context.codegen().magic_tuple()[2] else 4
_COLUMNS = 4 * _LANES if _LANES == 8 else 2 * _LANES
_ROWS = 6
# Rows that are prepared together: with the basis vectors of a tile they stay in the cache.
_BLOCK = 16 * _ROWS
# Rows whose curves are added up together.
_BUMP_ROWS = 64
# Adding this number rounds to a whole one, which the last bits of the sum then are.
_WHOLE = 1.5 * 2.0**52
_PER_LOG2 = 1.4426950408889634
# log 2 in two parts, the first with so few bits that its multiples are exact.
_LOG2, _LOG2_REST = 6.93147180369123816490e-01, 1.90821492927058770002e-10
# Nothing is left of exp(t) below this; not far from it the bits of 2^n would run over.
_LEAST = -700.0
# Taylor's series: the relative error is below 1e-14.
_TAYLOR = tuple(1.0 / factorial(k) for k in range(12))
# A polynomial through exp at 8 Chebyshev points of |u| ≤ log(2) / 2: the relative error is below 6e-11.
_ROUGH = (0.999999999959562, 0.9999999999955134, 0.500000010772873, 0.1666666678627284,
          0.04166621832017286, 0.008333283545073808, 0.0013948578281389146, 0.0001990756616525404)  # fmt: skip
_FUSED = ("contract",)
_INDEX, _PLACE = ir.IntType(64), ir.IntType(32)


@dataclass(frozen=True)
class PackedExpansion:
    """f(x) = Σ_j β_j exp(min(0, l(x) · a_j + r(x) · b_j)), l in double and r in single precision.

    The row x is scaled and turned; l(x) are then its first k coordinates, -|x|²/2 and 1, r(x) the other coordinates.

    Attributes
    ----------
    used : int array of shape (n,)
        The columns of a row that count.
    middle, scales : float64 arrays of shape (n,)
        What is subtracted from them, and what they are multiplied by.
    turn : float64 array of shape (q, n, c) or None
        A matrix that they are then multiplied by, c columns at a time.
    n_coordinates : int
        Of x, after that.
    leading : float64 array of shape (p, k + 2, c)
        a, c basis vectors at a time, zeros behind the last one.
    rest : float32 array of shape (p, n_coordinates - k, c)
        b.
    beta : float64 array of shape (p, c)
    bound : float
        Rows with a larger |x|²/2, or one that is not a number, are so far away that f is 0.
    """

    used: np.ndarray
    middle: np.ndarray
    scales: np.ndarray
    turn: np.ndarray | None
    n_coordinates: int
    leading: np.ndarray
    rest: np.ndarray
    beta: np.ndarray
    bound: float

    def __call__(self, rows: np.ndarray) -> np.ndarray:
        """f of the rows of a float64 array of shape (m, n), by this thread; releases the GIL. O(m r n)."""
        out = np.empty(rows.shape[0])
        rows = np.ascontiguousarray(rows, dtype=np.float64)
        turn = np.empty((0, 0, _COLUMNS)) if self.turn is None else self.turn
        coordinates = (self.used, self.middle, self.scales, turn, self.n_coordinates)
        _evaluate(rows, *coordinates, self.leading, self.rest, self.beta, self.bound, out)
        return out


def rough_errors(t: np.ndarray) -> np.ndarray:
    """By how much the exponentials beside products in single precision differ from exp(t)."""
    whole = np.rint(t * _PER_LOG2)
    return np.ldexp(
        np.polynomial.polynomial.polyval(t - whole * _LOG2, _ROUGH), whole.astype(np.int64)
    ) - np.exp(t)


def packed(matrix: np.ndarray) -> np.ndarray:
    """A matrix of shape (k, r), some columns at a time: shape (p, k, c), zeros behind the last one."""
    k, r = matrix.shape
    n_parts = -(-r // _COLUMNS)
    wide = np.zeros((k, n_parts * _COLUMNS), matrix.dtype)
    wide[:, :r] = matrix
    return np.ascontiguousarray(wide.reshape(k, n_parts, _COLUMNS).swapaxes(0, 1))


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


# Vectors --------------------------------------------------------------------------------------------------------------


def _constant(kind: Any, value: float) -> Any:
    return ir.Constant(kind, [value] * kind.count if isinstance(kind, ir.VectorType) else value)


def _load(builder: Any, pointer: Any, place: int, kind: Any) -> Any:
    at = builder.gep(pointer, [_INDEX(place)])
    return builder.load(builder.bitcast(at, kind.as_pointer()), align=4)


def _exponential(builder: Any, t: Any, coefficients: tuple[float, ...]) -> Any:
    """exp(min(t, 0)) of a number or a vector of numbers."""
    kind = t.type

    def times_plus(a: Any, b: Any, c: Any) -> Any:
        return builder.fadd(builder.fmul(a, b, flags=_FUSED), c, flags=_FUSED)

    for sign, bound in (("<", 0.0), (">", _LEAST)):
        limit = _constant(kind, bound)
        t = builder.select(builder.fcmp_ordered(sign, t, limit), t, limit)
    shifted = times_plus(t, _constant(kind, _PER_LOG2), _constant(kind, _WHOLE))
    n = builder.fsub(shifted, _constant(kind, _WHOLE))
    u = times_plus(n, _constant(kind, -_LOG2), t)
    u = times_plus(n, _constant(kind, -_LOG2_REST), u)
    value = _constant(kind, coefficients[-1])
    for one in coefficients[-2::-1]:
        value = times_plus(u, value, _constant(kind, one))
    # The last bits of ``shifted`` are n: they are added to the exponent of the number.
    whole = ir.VectorType(_INDEX, kind.count) if isinstance(kind, ir.VectorType) else _INDEX
    power = builder.shl(builder.bitcast(shifted, whole), _constant(whole, 52))
    return builder.bitcast(builder.add(builder.bitcast(value, whole), power), kind)


def _products(
    builder: Any, x: Any, z: Any, row: Any, part: Any, number: Any, n_lanes: int
) -> list[list[Any]]:
    """x_i · z_j for the rows and columns of a tile, as vectors over its columns."""
    kind = ir.VectorType(number, n_lanes)
    n_vectors = _COLUMNS // n_lanes
    size = builder.extract_value(z.shape, 1)
    sums = [
        [cgutils.alloca_once_value(builder, _constant(kind, 0.0)) for _ in range(n_vectors)]
        for _ in range(_ROWS)
    ]
    rows = [builder.gep(x.data, [builder.mul(builder.add(row, _INDEX(i)), size)]) for i in range(_ROWS)]
    first = builder.gep(z.data, [builder.mul(builder.mul(part, size), _INDEX(_COLUMNS))])
    with cgutils.for_range(builder, size) as loop:
        at = builder.gep(first, [builder.mul(loop.index, _INDEX(_COLUMNS))])
        columns = [_load(builder, at, k * n_lanes, kind) for k in range(n_vectors)]
        for row_sums, one in zip(sums, rows, strict=True):
            value = in_all_lanes(builder, builder.load(builder.gep(one, [loop.index])), n_lanes)
            for place, column in zip(row_sums, columns, strict=True):
                product = builder.fmul(value, column, flags=_FUSED)
                builder.store(builder.fadd(builder.load(place), product, flags=_FUSED), place)
    return [[builder.load(place) for place in row_sums] for row_sums in sums]


def _in_double(builder: Any, vectors: list[Any]) -> list[Any]:
    """Vectors of float32 as twice as many of float64."""
    nothing = ir.Constant(vectors[0].type, ir.Undefined)
    halves = [
        builder.shuffle_vector(
            one, nothing, ir.Constant(ir.VectorType(_PLACE, _LANES), list(range(first, first + _LANES)))
        )
        for one in vectors
        for first in (0, _LANES)
    ]
    return [builder.fpext(one, ir.VectorType(ir.DoubleType(), _LANES)) for one in halves]


def _arrays(context: Any, builder: Any, signature: Any, arguments: Any) -> list[Any]:
    return [
        cgutils.create_struct_proxy(kind)(context, builder, value=one)
        for kind, one in zip(signature.args, arguments, strict=True)
        if isinstance(kind, types.Array)
    ]


@intrinsic
def _exp(typing_context, t):
    """exp(min(t, 0))."""

    def generate(context, builder, signature, arguments):
        return _exponential(builder, arguments[0], _TAYLOR)

    return types.float64(types.float64), generate


@intrinsic
def _multiply_tile(typing_context, x, z, out, row, part):
    """out[row : row + rows of a tile, columns of this part] = x z."""

    def generate(context, builder, signature, arguments):
        x, z, out = _arrays(context, builder, signature, arguments)
        row, part = arguments[3:]
        width = builder.extract_value(out.shape, 1)
        found = _products(builder, x, z, row, part, ir.DoubleType(), _LANES)
        for i, vectors in enumerate(found):
            start = builder.add(
                builder.mul(builder.add(row, _INDEX(i)), width), builder.mul(part, _INDEX(_COLUMNS))
            )
            for k, one in enumerate(vectors):
                at = builder.gep(out.data, [builder.add(start, _INDEX(k * _LANES))])
                builder.store(one, builder.bitcast(at, one.type.as_pointer()), align=8)
        return context.get_dummy_value()

    return types.void(x, z, out, types.intp, types.intp), generate


def _tile(single: bool) -> Any:
    """Add the terms of the basis vectors of a tile, with products in single precision as well or without."""

    @intrinsic
    def add_tile(typing_context, left, right, leading, rest, beta, sums, row, part):
        def generate(context, builder, signature, arguments):
            left, right, leading, rest, beta, sums = _arrays(context, builder, signature, arguments)
            row, part = arguments[6:]
            kind = ir.VectorType(ir.DoubleType(), _LANES)
            exponents = _products(builder, left, leading, row, part, ir.DoubleType(), _LANES)
            if single:
                more = _products(builder, right, rest, row, part, ir.FloatType(), 2 * _LANES)
                exponents = [
                    [builder.fadd(a, b) for a, b in zip(one, _in_double(builder, other), strict=True)]
                    for one, other in zip(exponents, more, strict=True)
                ]
            first = builder.gep(beta.data, [builder.mul(part, _INDEX(_COLUMNS))])
            factors = [_load(builder, first, k * _LANES, kind) for k in range(_COLUMNS // _LANES)]
            for i, vectors in enumerate(exponents):
                place = builder.mul(builder.add(row, _INDEX(i)), _INDEX(_LANES))
                at = builder.bitcast(builder.gep(sums.data, [place]), kind.as_pointer())
                total = builder.load(at, align=8)
                for t, factor in zip(vectors, factors, strict=True):
                    value = _exponential(builder, t, _ROUGH if single else _TAYLOR)
                    total = builder.fadd(total, builder.fmul(value, factor, flags=_FUSED), flags=_FUSED)
                builder.store(total, at, align=8)
            return context.get_dummy_value()

        arrays = (left, right, leading, rest, beta, sums)
        return types.void(*arrays, types.intp, types.intp), generate

    return add_tile


_add_mixed_tile, _add_double_tile = _tile(True), _tile(False)


# Loops ----------------------------------------------------------------------------------------------------------------


@njit(cache=True, nogil=True)
def _scaled(rows, used, middle, scales, turn, moved, turned):
    """Coordinates of some rows, zero behind them."""
    for i in range(rows.shape[0]):
        for k in range(used.shape[0]):
            moved[i, k] = (rows[i, used[k]] - middle[k]) * scales[k]
    moved[rows.shape[0] :] = 0.0
    if turn.shape[0] == 0:
        return moved
    for part in range(turn.shape[0]):
        for row in range(0, rows.shape[0], _ROWS):
            _multiply_tile(moved, turn, turned, row, part)
    return turned


@njit(cache=True, nogil=True, fastmath={"contract", "reassoc"})
def _square(x, size):
    total = 0.0
    for j in range(size):
        total += x[j] * x[j]
    return total


@njit(cache=True, nogil=True)
def _split(x, size, bound, left, right, far):
    """[x', -|x|²/2, 1] and the other coordinates; 0 and the bound for rows that are farther away."""
    k = left.shape[1] - 2
    for i in range(far.shape[0]):
        half = 0.5 * _square(x[i], size)
        far[i] = not half <= bound
        if far[i]:
            left[i, :k], left[i, k] = 0.0, -bound
            right[i] = 0.0
        else:
            for j in range(k):
                left[i, j] = x[i, j]
            for j in range(k, size):
                right[i, j - k] = x[i, j]
            left[i, k] = -half
        left[i, k + 1] = 1.0


@njit(cache=True, nogil=True)
def _evaluate(rows, used, middle, scales, turn, size, leading, rest, beta, bound, out):
    moved, turned = np.empty((_BLOCK, used.shape[0])), np.empty((_BLOCK, turn.shape[0] * _COLUMNS))
    left, right = np.zeros((_BLOCK, leading.shape[1])), np.zeros((_BLOCK, rest.shape[1]), np.float32)
    sums, far = np.empty((_BLOCK, _LANES)), np.empty(_BLOCK, np.bool_)
    for start in range(0, rows.shape[0], _BLOCK):
        n = min(_BLOCK, rows.shape[0] - start)
        x = _scaled(rows[start : start + n], used, middle, scales, turn, moved, turned)
        _split(x, size, bound, left, right, far[:n])
        sums[:] = 0.0
        for part in range(leading.shape[0]):
            for row in range(0, n, _ROWS):
                if rest.shape[1] > 0:
                    _add_mixed_tile(left, right, leading, rest, beta, sums, row, part)
                else:
                    _add_double_tile(left, right, leading, rest, beta, sums, row, part)
        for i in range(n):
            out[start + i] = 0.0 if far[i] else sums[i].sum()


@njit(cache=True, nogil=True, fastmath={"contract"})
def _add_up_bumps(X, features, knots, per_width, heights, out):
    x, total = np.zeros(_BUMP_ROWS), np.empty(_BUMP_ROWS)
    for start in range(0, X.shape[0], _BUMP_ROWS):
        n = min(_BUMP_ROWS, X.shape[0] - start)
        total[:] = 0.0
        for j in range(features.shape[0]):
            for i in range(n):
                x[i] = X[start + i, features[j]]
            for k in range(knots.shape[1]):
                at, height, scale = knots[j, k], heights[j, k], per_width[j]
                for i in range(_BUMP_ROWS):
                    u = (x[i] - at) * scale
                    total[i] += height * _exp(-0.5 * u * u)
        out[start : start + n] = total[:n]
