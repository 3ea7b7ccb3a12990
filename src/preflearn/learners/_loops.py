r"""Compiled rounds of greedy feature selection: every candidate scored in one pass over the data.

With the selected features S, G = (X_S X_Sᵀ + λ)⁻¹ (on the centred space where there is an intercept), a = G y, and for
each candidate x its c = G x. Adding x changes the dual by one rank: with s = xᵀc and t = xᵀa,

    a' = a - c t / (1 + s),      G' = G - c cᵀ / (1 + s).

A fold H of rows is predicted by the model without it with the residual e_H = (G'_HH)⁻¹ a'_H. For folds of one row this
is a' / diag(G'). In general, with N = (G_HH)⁻¹ for all folds, r = N a - N c t / (1 + s), and every product over H,

    e_H = N a + κ N c,      ‖e_H‖² = ‖N a‖² + 2 κ c·N² a + κ² c·N² c,      κ = c·r / (1 + s - c·N c) - t / (1 + s).

Single rows keep the c of all candidates. Larger folds do without: c = x / λ - Σ_b u_b p_b, a few vectors u_b (the c of
the features chosen so far, and the constant) times numbers p_b of each candidate. So products of c with a vector follow
from products of x with it, and a round reads X once. c·N c and c·N² c are numbers of a fold and a candidate, kept up to
date: when a feature with c_b is chosen, w = N c_b, N' = N + σ w wᵀ with σ = 1 / (1 + s_b - c_b·w), and only w·c and (N
w)·c are needed besides.
"""

from __future__ import annotations

import numpy as np

from ..numerics.compiling import njit
from ..numerics.threads import n_threads, over_ranges

_compiled = njit(cache=True, nogil=True, error_model="numpy", fastmath={"reassoc", "contract", "nsz", "arcp"})


def score_single_rows(C, vector, share, a, d, step, scale) -> np.ndarray:
    """Leave-one-out squared error of every candidate, shape (n,); brings ``C`` up to date.

    Parameters
    ----------
    C : ndarray of shape (m, n)
        c of every candidate before the last choice; vector times share is subtracted.
    vector : ndarray of shape (m,)
    share : ndarray of shape (n,)
    a, d : ndarray of shape (m,)
        Dual vector and diagonal of G, of the features chosen so far.
    step, scale : ndarray of shape (n,)
        t / (1 + s) and 1 / (1 + s) of every candidate.
    """
    least = 1 + C.shape[0] // n_threads() if C.size < 1 << 15 else 1
    return np.sum(
        over_ranges(_single_rows, C.shape[0], C, vector, share, a, d, step, scale, least=least), axis=0
    )


@_compiled
def _single_rows(C, vector, share, a, d, step, scale, first, last):
    n = C.shape[1]
    errors = np.zeros(n)
    for i in range(first, last):
        row, v_i, a_i, d_i = C[i], vector[i], a[i], d[i]
        for j in range(n):
            c = row[j] - v_i * share[j]
            row[j] = c
            e = (a_i - c * step[j]) / (d_i - c * c * scale[j])
            errors[j] += e * e
    return errors


def squares_of_folds(X, means, rows, starts) -> tuple[np.ndarray, np.ndarray]:
    """Sums of squares and sums of X - means over each fold, both of shape (n_folds, n)."""
    shape = (starts.shape[0] - 1, X.shape[1])
    squares, sums = np.zeros(shape), np.zeros(shape)
    over_ranges(_squares_of_folds, shape[0], X, means, rows, starts, squares, sums)
    return squares, sums


@_compiled
def _squares_of_folds(X, means, rows, starts, squares, sums, first, last):
    for h in range(first, last):
        square, total = squares[h], sums[h]
        for k in range(starts[h], starts[h + 1]):
            x = X[rows[k]]
            for j in range(x.shape[0]):
                value = x[j] - means[j]
                square[j] += value * value
                total[j] += value


def score_folds(X, unit, rows, starts, queue, shares, products, change, own, square, state) -> np.ndarray:
    """The squared error of every candidate for folds, of which number h holds ``rows[starts[h] : starts[h + 1]]``.

    Parameters
    ----------
    X : ndarray of shape (m, n)
        c is ``unit`` times this, minus vectors times shares.
    queue : ndarray of shape (m, 4)
        w = N c_b and N w of the feature chosen last and before that choice, N a and N² a.
    shares : ndarray of shape (n_vectors, n)
        The last row is that of the feature chosen last.
    products : ndarray of shape (n_folds, n_vectors, 4)
        Of the vectors with the queue, over each fold.
    change : ndarray of shape (n_folds, 4)
        c_b·w, w·w, σ, and ‖N a‖²; the first three are zero before any choice.
    own, square : ndarray of shape (n_folds, n)
        c·N c and c·N² c; updated.
    state : ndarray of shape (2, n)
        t / (1 + s) and 1 / (1 + s) of every candidate.
    """
    data = (X, unit, rows, starts, queue, shares, products, change, own, square, state)
    return np.sum(over_ranges(_folds, starts.shape[0] - 1, *data), axis=0)


@_compiled
def _folds(X, unit, rows, starts, queue, shares, products, change, own, square, state, first, last):
    n, n_vectors = X.shape[1], shares.shape[0]
    errors = np.zeros(n)
    step, scale, last_share = state[0], state[1], shares[n_vectors - 1]
    with_w, with_Nw, with_Na, with_NNa = np.empty(n), np.empty(n), np.empty(n), np.empty(n)
    for h in range(first, last):
        with_w[:] = 0
        with_Nw[:] = 0
        with_Na[:] = 0
        with_NNa[:] = 0
        for k in range(starts[h], starts[h + 1]):
            i = rows[k]
            x, q0, q1, q2, q3 = (
                X[i],
                queue[i, 0] * unit,
                queue[i, 1] * unit,
                queue[i, 2] * unit,
                queue[i, 3] * unit,
            )
            for j in range(n):
                with_w[j] += q0 * x[j]
                with_Nw[j] += q1 * x[j]
                with_Na[j] += q2 * x[j]
                with_NNa[j] += q3 * x[j]
        for b in range(n_vectors):
            share, p = shares[b], products[h, b]
            # w and N w meet c as it was before the last choice.
            p0, p1 = (p[0], p[1]) if b < n_vectors - 1 else (0.0, 0.0)
            p2, p3 = p[2], p[3]
            for j in range(n):
                with_w[j] -= p0 * share[j]
                with_Nw[j] -= p1 * share[j]
                with_Na[j] -= p2 * share[j]
                with_NNa[j] -= p3 * share[j]
        own_b, ww, sigma, before = change[h, 0], change[h, 1], change[h, 2], change[h, 3]
        mine, twice = own[h], square[h]
        for j in range(n):
            p = last_share[j]
            wc, Nwc = with_w[j] - p * own_b, with_Nw[j] - p * ww
            new = mine[j] - p * (with_w[j] + wc) + sigma * wc * wc
            again = twice[j] - p * (with_Nw[j] + Nwc) + sigma * wc * (2.0 * Nwc + sigma * wc * ww)
            mine[j], twice[j] = new, again
            kappa = (with_Na[j] - new * step[j]) * scale[j] / (1.0 - new * scale[j]) - step[j]
            errors[j] += before + kappa * (2.0 * with_NNa[j] + kappa * again)
    return errors


def products_of_folds(vectors, queue, rows, starts) -> np.ndarray:
    """Products of each vector with each column of the queue over each fold, shape (n_folds, k, 4).

    Parameters
    ----------
    vectors : ndarray of shape (k, m)
    queue : ndarray of shape (m, 4)
    """
    out = np.zeros((starts.shape[0] - 1, vectors.shape[0], 4))
    over_ranges(_products_of_folds, out.shape[0], vectors, queue, rows, starts, out)
    return out


@_compiled
def _products_of_folds(vectors, queue, rows, starts, out, first, last):
    for h in range(first, last):
        for b in range(vectors.shape[0]):
            p0, p1, p2, p3 = 0.0, 0.0, 0.0, 0.0
            for k in range(starts[h], starts[h + 1]):
                i = rows[k]
                u = vectors[b, i]
                p0 += u * queue[i, 0]
                p1 += u * queue[i, 1]
                p2 += u * queue[i, 2]
                p3 += u * queue[i, 3]
            out[h, b, 0], out[h, b, 1], out[h, b, 2], out[h, b, 3] = p0, p1, p2, p3


def times_folds(alpha, vectors, weights, rows, starts, q) -> np.ndarray:
    """N q for N = alpha + Σ_b weights_b vectors_b vectors_bᵀ over each fold; shape (m,).

    Parameters
    ----------
    vectors : ndarray of shape (k, m)
    weights : ndarray of shape (k, n_folds)
    """
    out = alpha * q
    over_ranges(_times_folds, starts.shape[0] - 1, vectors, weights, rows, starts, q, out)
    return out


@_compiled
def _times_folds(vectors, weights, rows, starts, q, out, first, last):
    for h in range(first, last):
        for b in range(vectors.shape[0]):
            total = 0.0
            for k in range(starts[h], starts[h + 1]):
                total += vectors[b, rows[k]] * q[rows[k]]
            total *= weights[b, h]
            for k in range(starts[h], starts[h + 1]):
                out[rows[k]] += vectors[b, rows[k]] * total
