"""Exact answers: the learners in rational arithmetic, by refitting, on the very numbers that the library is given.

Every float is a rational number, so (L K + λ I) a = b can be solved without any rounding. What the library returns is
compared with that; its error is computed exactly as well.
"""

from __future__ import annotations

from fractions import Fraction
from functools import cached_property
from math import log2

import numpy as np
import pytest

flint = pytest.importorskip("flint")
arb, arb_mat, ctx, fmpq, fmpq_mat = flint.arb, flint.arb_mat, flint.ctx, flint.fmpq, flint.fmpq_mat


def rational(values) -> fmpq_mat:
    """A matrix of floats as it is."""
    values = np.atleast_2d(np.asarray(values, dtype=float))
    return fmpq_mat([[number(x) for x in row] for row in values.tolist()])


def number(x: float) -> fmpq:
    """One float as it is."""
    return fmpq(*float(x).as_integer_ratio())


def column(values) -> fmpq_mat:
    return rational(np.asarray(values, dtype=float)[:, None])


def linear_kernel(X, Z=None) -> fmpq_mat:
    A = rational(X)
    return A * (A if Z is None else rational(Z)).transpose()


# Far more than the 53 bits of a float, so that a kernel value is as good as exact.
_BITS = 400


def distance_kernel(name: str, gamma: float, nu: float = 0.5):
    """A kernel of differences of rows as a function for `ExactLearner`: values in 400-bit arithmetic."""

    def value(x, z) -> fmpq:
        differences = [a - b for a, b in zip(x, z, strict=True)]
        if name == "laplacian":
            squares, distance = None, _real(sum((abs(d) for d in differences), fmpq(0)))
        else:
            squares = sum((d * d for d in differences), fmpq(0))
            distance = _real(squares).sqrt()
        if name == "rbf":
            return _rational((-number(gamma)) * squares)
        d = distance * _real(number(gamma)) * (1 if name == "laplacian" else _real(number(2 * nu)).sqrt())
        polynomial = 1 + d + d * d / 3 if nu == 2.5 else 1 + d if nu == 1.5 else arb(1)
        return _middle((-d).exp() * (polynomial if name == "matern" else 1))

    def kernel(X, Z=None) -> fmpq_mat:
        rows = [[number(x) for x in row] for row in np.asarray(X, dtype=float).tolist()]
        others = (
            rows if Z is None else [[number(x) for x in row] for row in np.asarray(Z, dtype=float).tolist()]
        )
        kept = ctx.prec
        ctx.prec = _BITS
        try:
            return fmpq_mat([[value(x, z) for z in others] for x in rows])
        finally:
            ctx.prec = kept

    return kernel


def _numbers(X) -> list[list[fmpq]]:
    return [[x if isinstance(x, fmpq) else number(x) for x in row] for row in np.asarray(X).tolist()]


def exact_products(X, factors) -> np.ndarray:
    """Rows times a factor for each column without rounding: an array of rational numbers."""
    scale = [number(value) for value in factors]
    return np.array(
        [[number(x) * s for x, s in zip(row, scale, strict=True)] for row in X.tolist()], dtype=object
    )


def _real(value: fmpq) -> arb:
    return arb(value)


def _rational(exponent: fmpq) -> fmpq:
    return _middle(_real(exponent).exp())


def _middle(value: arb) -> fmpq:
    mantissa, exponent = value.mid().man_exp()
    return fmpq(int(mantissa)) * fmpq(2) ** int(exponent)


def ranking(
    y, qid=None, row_weights=None, *, cost="magnitude", ties="include", weighting="pair"
) -> tuple[fmpq_mat, fmpq_mat]:
    """L and b of the pairs inside each query, each with the product of the weights of its rows."""
    m = len(y)
    qid = np.zeros(m, dtype=int) if qid is None else np.asarray(qid)
    w = [fmpq(1)] * m if row_weights is None else [number(value) for value in row_weights]
    s = [number(float(value)) for value in y]
    L, b = fmpq_mat(m, m), fmpq_mat(m, 1)
    for query in np.unique(qid):
        rows = np.flatnonzero(qid == query).tolist()
        tied_count = cost == "magnitude" and ties == "include"
        pairs = [(i, j) for i in rows for j in rows if j < i and (tied_count or s[i] != s[j])]
        below = fmpq(1)
        if weighting == "item":
            below = sum((w[i] for i in rows), fmpq(0))
        elif weighting == "query":
            below = sum((w[i] * w[j] for i, j in pairs), fmpq(0))
        for i, j in pairs if below != 0 else []:
            difference = s[i] - s[j]
            weight = w[i] * w[j] / below / (difference**2 if cost == "relative" else 1)
            target = fmpq(1 if difference > 0 else -1) if cost == "unit" else difference
            _compare(L, b, i, j, weight, target)
    return L, b


def _compare(L: fmpq_mat, b: fmpq_mat, i: int, j: int, weight: fmpq, target: fmpq) -> None:
    """Add the pair f_i - f_j = target."""
    for row, other, sign in ((i, j, 1), (j, i, -1)):
        L[row, row] += weight
        L[row, other] -= weight
        b[row, 0] += sign * weight * target


def preferences(m, pairs, magnitude=None, weight=None) -> tuple[fmpq_mat, fmpq_mat]:
    """L and b of explicit comparisons."""
    L, b = fmpq_mat(m, m), fmpq_mat(m, 1)
    for k, (i, j) in enumerate(pairs):
        w = number(1.0 if weight is None else weight[k])
        z = number(1.0 if magnitude is None else magnitude[k])
        _compare(L, b, int(i), int(j), w, z)
    return L, b


def regression(y, intercept: bool, row_weights=None) -> tuple[fmpq_mat, fmpq_mat]:
    """L and b of RLS; an intercept that is not regularised takes the means off."""
    if intercept:
        return ranking(y, None, row_weights, weighting="item")
    w = [fmpq(1)] * len(y) if row_weights is None else [number(value) for value in row_weights]
    L = fmpq_mat(len(y), len(y))
    for i, value in enumerate(w):
        L[i, i] = value
    return L, L * column(y)


def solve(K: fmpq_mat, L: fmpq_mat, b: fmpq_mat, alpha: float) -> fmpq_mat:
    """a with (L K + λ I) a = b."""
    A = L * K
    for i in range(A.nrows()):
        A[i, i] += number(float(alpha))
    return A.solve(b)


def nystrom(K_MR: fmpq_mat, K_RR: fmpq_mat) -> fmpq_mat:
    """K_MR K_RR⁻¹ K_RM for linearly independent basis vectors."""
    return K_MR * K_RR.solve(K_MR.transpose())


class ExactLearner:
    """RankRLS or RLS, trained and asked in rational arithmetic.

    Parameters
    ----------
    kind : {"rank", "rls", "rls-intercept"}
    alpha : float
    basis : sequence of int, optional
        Rows that are basis vectors.
    row_weights : sequence of float, optional
    kernel : callable, default=linear_kernel
        Takes one or two arrays of rows to the matrix of their kernel.
    **options
        Of `ranking`.
    """

    def __init__(self, kind, alpha, basis=None, row_weights=None, kernel=linear_kernel, **options):
        self.kind, self.alpha, self.basis, self.kernel = kind, alpha, basis, kernel
        self.row_weights, self.options = row_weights, options

    def without(self, X, y, qid, leaving, test) -> list[fmpq]:
        """Predictions for the test rows by the model trained without the leaving ones."""
        X, y = np.asarray(X), np.asarray(y, dtype=float)
        rest = [i for i in range(len(y)) if i not in set(np.asarray(leaving).tolist())]
        qid = None if qid is None else np.asarray(qid)[rest]
        w = None if self.row_weights is None else np.asarray(self.row_weights, dtype=float)[rest]
        if self.kind == "rank":
            L, b = ranking(y[rest], qid, w, **self.options)
        else:
            L, b = regression(y[rest], self.kind == "rls-intercept", w)
        if self.basis is None:
            K, new = self.kernel(X[rest]), self.kernel(X[test], X[rest])
        else:
            R = X[[i for i in rest if i in set(np.asarray(self.basis).tolist())]]
            K_RR = self.kernel(R)
            K = nystrom(self.kernel(X[rest], R), K_RR)
            new = self.kernel(X[test], R) * K_RR.solve(self.kernel(R, X[rest]))
        a = solve(K, L, b, self.alpha)
        f = new * a
        shift = fmpq(0)
        if self.kind == "rls-intercept":
            seen, of_rows = K * a, [fmpq(1)] * len(rest) if w is None else [number(value) for value in w]
            errors = [
                weight * (number(y[row]) - seen[i, 0]) for i, (row, weight) in enumerate(zip(rest, of_rows))
            ]
            shift = sum(errors, fmpq(0)) / sum(of_rows, fmpq(0))
        return [f[i, 0] + shift for i in range(f.nrows())]

    def held_out(self, X, y, qid, folds) -> list[fmpq]:
        out: list[fmpq] = [fmpq(0)] * len(y)
        for fold in folds:
            for row, value in zip(fold, self.without(X, y, qid, fold, fold), strict=True):
                out[row] = value
        return out

    def fitted(self, X, y, qid) -> list[fmpq]:
        return self.without(X, y, qid, np.empty(0, dtype=int), np.arange(len(y)))


class ExactRelation:
    """KroneckerRLS or TwoStepRLS on linear kernels, trained on the known entries and asked in rational arithmetic.

    Parameters
    ----------
    alpha : float, or a pair of them for two steps
    compare : {None, "rows", "columns"}
    """

    def __init__(self, alpha, compare=None):
        self.alpha, self.compare = alpha, compare

    def without(self, U, V, Y, rows_left, columns_left, entries_left=()) -> fmpq_mat:
        """Predictions for all pairs by the model trained without some rows, columns and entries."""
        rows = [i for i in range(len(U)) if i not in rows_left]
        columns = [j for j in range(len(V)) if j not in columns_left]
        K, G = linear_kernel(U), linear_kernel(V)
        if isinstance(self.alpha, tuple):
            left = self._smoother(K, rows, self.alpha[0], self.compare == "rows")
            right = self._smoother(G, columns, self.alpha[1], self.compare == "columns")
            return left * rational(Y[np.ix_(rows, columns)]) * right.transpose()
        known = [(i, j) for i in rows for j in columns if (i, j) not in entries_left]
        of_pairs = fmpq_mat([[K[i, k] * G[j, l] for k, l in known] for i, j in known])
        y = [Y[i, j] for i, j in known]
        if self.compare is None:
            L, b = regression(y, intercept=False)
        else:
            L, b = ranking(y, [j if self.compare == "rows" else i for i, j in known], weighting="item")
        a = solve(of_pairs, L, b, self.alpha)
        A = fmpq_mat(len(U), len(V))
        for number_, (i, j) in enumerate(known):
            A[i, j] = a[number_, 0]
        return K * A * G

    @staticmethod
    def _smoother(K: fmpq_mat, known, alpha, compared) -> fmpq_mat:
        """The map from labels of the known objects to predictions for all of them."""
        inside = fmpq_mat([[K[i, j] for j in known] for i in known])
        L = (
            ranking([0.0] * len(known), weighting="item")[0]
            if compared
            else regression([0.0] * len(known), False)[0]
        )
        to_all = fmpq_mat([[K[i, j] for j in known] for i in range(K.nrows())])
        return to_all * solve(inside, L, L, alpha)


def relative_error(found, exact) -> float:
    """max |found - exact| / max |exact|, computed exactly; infinite for what is not finite."""
    found = np.asarray(found, dtype=float).ravel()
    if not np.isfinite(found).all():
        return float("inf")
    error = max(abs(number(f) - e) for f, e in zip(found.tolist(), exact, strict=True))
    size = max(abs(e) for e in exact)
    if size == 0:
        return 0.0 if error == 0 else float("inf")
    return to_float(error / size)


def to_float(value: fmpq) -> float:
    try:
        return float(Fraction(int(value.p), int(value.q)))
    except OverflowError:
        return float("inf")


# Bradley-Terry models: no rational numbers, so with as many digits as it takes.

PRECISION = 2500  # bits, for kernels


class ExactBradleyTerry:
    """The mode and Laplace's covariance by Newton's method in arithmetic of 80 digits and more.

    Parameters
    ----------
    K : arb_mat of shape (m, m)
        As `exact_kernel` gives it. Items without answers may be among the m.
    pairs : sequence of (int, int)
    alpha : float
    weight, share, scale : sequences of float, optional
        Of each answer: its weight, 1 for a win and 0.5 for a tie, the reliability of its judge.
    """

    def __init__(self, K, pairs, alpha, weight=None, share=None, scale=None):
        ones = [1.0] * len(pairs)
        # What cancels in L K + 2 alpha I, in K a, in the gradient and in differences of the objective.
        ratio = float(log2(float(_largest(K))) - log2(alpha))
        self.precision = ctx.prec = 300 + 4 * int(abs(ratio))
        self.K, self.pairs, self.alpha = K, [tuple(map(int, pair)) for pair in pairs], arb(float(alpha))
        self.weight = [arb(float(w)) for w in (ones if weight is None else weight)]
        self.share = [arb(float(y)) for y in (ones if share is None else share)]
        self.scale = [arb(float(r)) for r in (ones if scale is None else scale)]
        self.f, self.L = self._mode()
        ctx.prec = 53

    def _answers(self, f):
        """Value, gradient and Laplacian of the loss."""
        m = f.nrows()
        value, gradient, L = arb(0), arb_mat(m, 1), arb_mat(m, m)
        columns = zip(self.pairs, self.weight, self.share, self.scale, strict=True)
        for (h, j), w, y, r in columns:
            d = r * (f[h, 0] - f[j, 0])
            losing = 1 / (1 + d.exp())
            value += w * (y * (1 + (-d).exp()).log() + (1 - y) * (1 + d.exp()).log())
            pull, v = w * r * (y - 1 + losing), w * r * r * losing * (1 - losing)
            for row, other, sign in ((h, j, 1), (j, h, -1)):
                gradient[row, 0] -= sign * pull
                L[row, row] += v
                L[row, other] -= v
        return value, gradient, L

    def _system(self, L):
        """L K + 2 alpha I."""
        A = L * self.K
        for i in range(A.nrows()):
            A[i, i] += 2 * self.alpha
        return A

    def _at(self, a):
        """Coefficients, their scores, the objective, and gradient and Laplacian of the loss."""
        f = self.K * a
        value, gradient, L = self._answers(f)
        return a, f, value + self.alpha * (a.transpose() * f)[0, 0], gradient, L

    def _mode(self):
        at = self._at(arb_mat(self.K.nrows(), 1))
        for _ in range(5000):
            a, f, value, gradient, L = at
            step = _midpoints(self._system(L).solve(_midpoints(-gradient - 2 * self.alpha * a)))
            length, new = arb(1), self._at(_midpoints(a + step))
            while not new[2] <= value and length > arb(2) ** -60:
                length /= 2
                new = self._at(_midpoints(a + length * step))
            # Far out, where the loss is an exponential, a step of Newton's method is far too short.
            while length >= 1 and (longer := self._at(_midpoints(a + 2 * length * step)))[2] < new[2]:
                length, new = 2 * length, longer
            at = new
            if _largest(new[1] - f) <= arb(10) ** -40 * _largest(new[1]):
                return _midpoints(new[1]), _midpoints(new[4])
        raise AssertionError("Newton's method did not converge.")

    @cached_property
    def covariance(self):
        """C = (K L + 2 alpha I)⁻¹ K, as an arb_mat."""
        ctx.prec = self.precision
        C = _midpoints(self._system(self.L).transpose().solve(self.K))
        ctx.prec = 53
        return C

    def scores(self) -> list[fmpq]:
        return [exactly(self.f[i, 0]) for i in range(self.f.nrows())]

    def win_probability(self, a: int, b: int) -> fmpq:
        """Averaged over the posterior."""
        C = self.covariance
        ctx.prec = self.precision
        variance = C[a, a] + C[b, b] - 2 * C[a, b]
        mean = self.f[a, 0] - self.f[b, 0]
        p = 1 / (1 + (-mean / (1 + arb.pi() * variance / 8).sqrt()).exp())
        ctx.prec = 53
        return exactly(p)


def exact_kernel(X, kernel="linear", gamma=1.0, item_offsets=0.0, known=None) -> arb_mat:
    """The kernel matrix of some rows, all of them different; ``known`` of them set the scale of the offsets."""
    ctx.prec = PRECISION
    m = len(X)
    if kernel == "items":
        K = arb_mat(m, m, [int(i == j) for i in range(m) for j in range(m)])
    else:
        rows = arb_mat([[arb(float(x)) for x in row] for row in np.asarray(X, dtype=float)])
        K = rows * rows.transpose()
    if kernel == "rbf":
        square = [K[i, i] for i in range(m)]
        K = arb_mat(
            m,
            m,
            [
                (-arb(float(gamma)) * (square[i] + square[j] - 2 * K[i, j])).exp()
                for i in range(m)
                for j in range(m)
            ],
        )
    n = m if known is None else known
    offset = arb(float(item_offsets)) * sum((K[i, i] for i in range(n)), arb(0)) / n
    for i in range(m):
        K[i, i] += offset
    K = _midpoints(K)
    ctx.prec = 53
    return K


def exactly(value: arb) -> fmpq:
    """The middle of a ball, as it is."""
    mantissa, exponent = value.mid().man_exp()
    return fmpq(mantissa) * fmpq(2) ** int(exponent)


def _midpoints(A: arb_mat) -> arb_mat:
    return arb_mat(A.nrows(), A.ncols(), [A[i, j].mid() for i in range(A.nrows()) for j in range(A.ncols())])


def _largest(A: arb_mat) -> arb:
    return max((abs(A[i, j].mid()) for i in range(A.nrows()) for j in range(A.ncols())), default=arb(0))
