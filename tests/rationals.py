"""Exact answers: the learners in rational arithmetic, by refitting, on the very numbers that the library is given.

Every float is a rational number, so (L K + λ I) a = b can be solved without any rounding. What the library returns is
compared with that; its error is computed exactly as well.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np
from flint import fmpq, fmpq_mat


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


def ranking(y, qid=None) -> tuple[fmpq_mat, fmpq_mat]:
    """L and b of every pair inside a query, tied ones included, each counted once."""
    m = len(y)
    qid = np.zeros(m, dtype=int) if qid is None else np.asarray(qid)
    return preferences(m, [(i, j) for i in range(m) for j in range(i) if qid[i] == qid[j]], y=y)


def preferences(m, pairs, magnitude=None, weight=None, y=None) -> tuple[fmpq_mat, fmpq_mat]:
    """L and b of explicit comparisons, with the differences of y as targets where y is given."""
    L, b = fmpq_mat(m, m), fmpq_mat(m, 1)
    for k, (i, j) in enumerate(pairs):
        w = number(1.0 if weight is None else weight[k])
        if y is not None:
            z = number(float(y[i])) - number(float(y[j]))
        else:
            z = number(1.0 if magnitude is None else magnitude[k])
        for row, other, sign in ((i, j, 1), (j, i, -1)):
            L[row, row] += w
            L[row, other] -= w
            b[row, 0] += sign * w * z
    return L, b


def regression(y, intercept: bool) -> tuple[fmpq_mat, fmpq_mat]:
    """L and b of RLS; an intercept that is not regularised takes the means off."""
    m = len(y)
    L = fmpq_mat([[fmpq(int(i == j)) - (fmpq(1, m) if intercept else 0) for j in range(m)] for i in range(m)])
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
    """RankRLS or RLS on a linear kernel, trained and asked in rational arithmetic.

    Parameters
    ----------
    kind : {"rank", "rls", "rls-intercept"}
    alpha : float
    basis : sequence of int, optional
        Rows that are basis vectors.
    """

    def __init__(self, kind, alpha, basis=None):
        self.kind, self.alpha, self.basis = kind, alpha, basis

    def without(self, X, y, qid, leaving, test) -> list[fmpq]:
        """Predictions for the test rows by the model trained without the leaving ones."""
        X, y = np.asarray(X, dtype=float), np.asarray(y, dtype=float)
        rest = [i for i in range(len(y)) if i not in set(np.asarray(leaving).tolist())]
        qid = None if qid is None else np.asarray(qid)[rest]
        if self.kind == "rank":
            L, b = ranking(y[rest], qid)
        else:
            L, b = regression(y[rest], self.kind == "rls-intercept")
        if self.basis is None:
            K, new = linear_kernel(X[rest]), linear_kernel(X[test], X[rest])
        else:
            R = X[[i for i in rest if i in set(np.asarray(self.basis).tolist())]]
            K_RR = linear_kernel(R)
            K = nystrom(linear_kernel(X[rest], R), K_RR)
            new = linear_kernel(X[test], R) * K_RR.solve(linear_kernel(R, X[rest]))
        a = solve(K, L, b, self.alpha)
        f = new * a
        shift = fmpq(0)
        if self.kind == "rls-intercept":
            seen = K * a
            shift = sum((number(y[rest[i]]) - seen[i, 0] for i in range(len(rest))), fmpq(0)) / len(rest)
        return [f[i, 0] + shift for i in range(f.nrows())]

    def held_out(self, X, y, qid, folds) -> list[fmpq]:
        out: list[fmpq] = [fmpq(0)] * len(y)
        for fold in folds:
            for row, value in zip(fold, self.without(X, y, qid, fold, fold), strict=True):
                out[row] = value
        return out

    def fitted(self, X, y, qid) -> list[fmpq]:
        return self.without(X, y, qid, np.empty(0, dtype=int), np.arange(len(y)))


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
