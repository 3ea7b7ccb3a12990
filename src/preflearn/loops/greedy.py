r"""Compiled rounds of greedy feature selection: every candidate scored in one pass over the data.

With the selected features S, G = (X_S X_Sᵀ + λ)⁻¹ (on the centred space where there is an intercept), a = G y, and for
each candidate x its c = G x. Adding x changes the dual by one rank: with s = xᵀc and t = xᵀa,

    a' = a - c t / (1 + s),      G' = G - c cᵀ / (1 + s).

A fold H of rows is predicted by the model without it with the residual e_H = (G'_HH)⁻¹ a'_H. With N_H = (G_HH)⁻¹, and
E = N c and N a kept for all folds,

    e_H = r_H + E_H (c_Hᵀ r_H) / (1 + s - c_Hᵀ E_H),      r = N a - E t / (1 + s),

which costs O(m) for a candidate. For folds of one row this is a' / diag(G').

C holds c of every candidate as its columns, and E likewise. A round first brings both up to date with the feature b
chosen last, c ← c - c_b (c_bᵀ x) / (1 + s_b), so that they are read and written once.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from .threads import n_threads, over_ranges

_compiled = njit(cache=True, nogil=True, error_model="numpy", fastmath={"reassoc", "contract", "nsz", "arcp"})


def score_single_rows(C, change, products, a, d, step, scale, residual=None) -> np.ndarray:
    """Leave-one-out squared error of every candidate, shape (n,); C is brought up to date first.

    Parameters
    ----------
    C : ndarray of shape (m, n)
    change : ndarray of shape (m,)
        c_b / (1 + s_b) of the feature chosen last; zeros at the start.
    products : ndarray of shape (n,)
        c_bᵀ x of every candidate.
    a, d : ndarray of shape (m,)
        Dual vector and diagonal of G, of the features chosen so far.
    step, scale : ndarray of shape (n,)
        t / (1 + s) and 1 / (1 + s) of every candidate.
    residual : ndarray of shape (m, n), optional
        Receives the held-out residuals.
    """
    keep = residual is not None
    out = residual if keep else np.empty((1, 1))
    least = 1 + C.shape[0] // n_threads() if C.size < 1 << 15 else 1
    parts = over_ranges(
        _single_rows, C.shape[0], C, change, products, a, d, step, scale, out, keep, least=least
    )
    return np.sum(parts, axis=0)


def score_folds(
    C, E, change, weighted, shares, products, rows, starts, Na, step, scale, residual=None
) -> np.ndarray:
    """The same for folds, of which number h holds ``rows[starts[h] : starts[h + 1]]``.

    Parameters
    ----------
    E : ndarray of shape (m, n)
        N c of every candidate.
    weighted : ndarray of shape (m,)
        E of the feature chosen last, before the update.
    shares : ndarray of shape (n_folds + 1,)
        1 / (1 + s_b - c_Hᵀ E_H) of that feature for each fold, and 1 / (1 + s_b) at the end.
    Na : ndarray of shape (m,)
        N a.
    """
    keep = residual is not None
    out = residual if keep else np.empty((1, 1))
    arguments = (C, E, change, weighted, shares, products, rows, starts, Na, step, scale, out, keep)
    return np.sum(over_ranges(_folds, starts.shape[0] - 1, *arguments), axis=0)


@_compiled
def _single_rows(C, change, products, a, d, step, scale, residual, keep, first, last):
    n = C.shape[1]
    errors = np.zeros(n)
    for i in range(first, last):
        c = C[i]
        change_i, a_i, d_i = change[i], a[i], d[i]
        for j in range(n):
            c_j = c[j] - change_i * products[j]
            c[j] = c_j
            e = (a_i - c_j * step[j]) / (d_i - c_j * c_j * scale[j])
            errors[j] += e * e
        if keep:
            for j in range(n):
                residual[i, j] = (a_i - c[j] * step[j]) / (d_i - c[j] * c[j] * scale[j])
    return errors


@_compiled
def _folds(
    C, E, change, weighted, shares, products, rows, starts, Na, step, scale, residual, keep, first, last
):
    n = C.shape[1]
    n_folds = starts.shape[0] - 1
    errors, shift, inner, own = np.zeros(n), np.empty(n), np.empty(n), np.empty(n)
    for h in range(first, last):
        shift[:] = 0
        for k in range(starts[h], starts[h + 1]):
            i = rows[k]
            c, change_i, weighted_i = C[i], change[i], weighted[i]
            for j in range(n):
                c_j = c[j] - change_i * products[j]
                c[j] = c_j
                shift[j] += weighted_i * c_j
        # N' c' = N c' + E_b (E_bᵀ c') share, and N c' = N c - E_b (c_bᵀ x) / (1 + s_b).
        for j in range(n):
            shift[j] = shift[j] * shares[h] - products[j] * shares[n_folds]
            inner[j] = 0
            own[j] = 0
        for k in range(starts[h], starts[h + 1]):
            i = rows[k]
            c, v, weighted_i, Na_i = C[i], E[i], weighted[i], Na[i]
            for j in range(n):
                v_j = v[j] + weighted_i * shift[j]
                v[j] = v_j
                inner[j] += c[j] * (Na_i - v_j * step[j])
                own[j] += c[j] * v_j
        for j in range(n):
            inner[j] = inner[j] * scale[j] / (1.0 - own[j] * scale[j]) - step[j]
        for k in range(starts[h], starts[h + 1]):
            i = rows[k]
            v, Na_i = E[i], Na[i]
            for j in range(n):
                e = Na_i + v[j] * inner[j]
                errors[j] += e * e
            if keep:
                for j in range(n):
                    residual[i, j] = Na_i + v[j] * inner[j]
    return errors
