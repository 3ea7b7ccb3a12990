r"""Compiled rounds of greedy feature selection: every candidate scored in one pass over the data.

With the selected features S, G = (X_S X_Sᵀ + λ)⁻¹ (on the centred space where there is an intercept), a = G y, and
for each candidate x its c = G x. Adding x changes the dual by one rank: with s = xᵀc and t = xᵀa,

    a' = a - c t / (1 + s),      G' = G - c cᵀ / (1 + s).

A fold H of rows is predicted by the model without it with the residual e_H = (G'_HH)⁻¹ a'_H. With N_H = (G_HH)⁻¹,
and E = N c and r = N a - E t / (1 + s) kept for all folds,

    e_H = r_H + E_H (c_Hᵀ r_H) / (1 + s - c_Hᵀ E_H),

which costs O(m) for a candidate. For folds of one row this is a' / diag(G').

Arrays are one row per feature. A round first brings c (and E) up to date with the feature chosen last: reading and
writing them is the memory traffic of the round.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from .threads import in_turns

_compiled = njit(cache=True, nogil=True, error_model="numpy", fastmath={"reassoc", "contract", "nsz", "arcp"})

# Candidates that a thread takes in one turn.
_TURN = 16


def score_single_rows(X, C, chosen, change, a, d, errors, residual=None) -> None:
    """Leave-one-out squared error of every candidate; C is brought up to date first.

    Parameters
    ----------
    X, C : ndarray of shape (n, m)
    chosen, change : ndarray of shape (m,)
        c and c / (1 + s) of the feature chosen last, before the update; zeros at the start.
    a, d : ndarray of shape (m,)
        Dual vector and diagonal of G, of the features chosen so far.
    errors : ndarray of shape (n,)
        Receives the squared errors.
    residual : ndarray of shape (n, m), optional
        Receives the held-out residuals.
    """
    keep = residual is not None
    out = residual if keep else np.empty((1, 1))
    _in_turns(_single_rows, X.shape[0], X, C, chosen, change, a, d, errors, out, keep)


def score_folds(X, C, E, chosen, change, weighted, shares, starts, a, Na, errors, residual=None) -> None:
    """The same for folds of adjacent rows, ``starts`` being their first rows and the number of rows.

    Parameters
    ----------
    E : ndarray of shape (n, m)
        N c of every candidate.
    weighted : ndarray of shape (m,)
        E of the feature chosen last, before the update.
    shares : ndarray of shape (n_folds + 1,)
        1 / (1 + s - c_Hᵀ E_H) of that feature for each fold, and 1 / (1 + s) at the end.
    Na : ndarray of shape (m,)
        N a.
    """
    keep = residual is not None
    out = residual if keep else np.empty((1, 1))
    arguments = (X, C, E, chosen, change, weighted, shares, starts, a, Na, errors, out, keep)
    _in_turns(_folds, X.shape[0], *arguments)


def _in_turns(loop, n: int, *arguments) -> None:
    in_turns(
        lambda first: loop(*arguments, first, min(first + _TURN, n)),
        [(first,) for first in range(0, n, _TURN)],
    )


@_compiled
def _single_rows(X, C, chosen, change, a, d, errors, residual, keep, first, last):
    m = X.shape[1]
    for j in range(first, last):
        x, c = X[j], C[j]
        w = 0.0
        for i in range(m):
            w += chosen[i] * x[i]
        s = 0.0
        t = 0.0
        for i in range(m):
            c[i] -= change[i] * w
            s += x[i] * c[i]
            t += x[i] * a[i]
        scale = 1.0 / (1.0 + s)
        step = t * scale
        total = 0.0
        for i in range(m):
            e = (a[i] - c[i] * step) / (d[i] - c[i] * c[i] * scale)
            total += e * e
        errors[j] = total
        if keep:
            for i in range(m):
                residual[j, i] = (a[i] - c[i] * step) / (d[i] - c[i] * c[i] * scale)


@_compiled
def _folds(X, C, E, chosen, change, weighted, shares, starts, a, Na, errors, residual, keep, first, last):
    m = X.shape[1]
    n_folds = starts.shape[0] - 1
    for j in range(first, last):
        x, c, v = X[j], C[j], E[j]
        w = 0.0
        for i in range(m):
            w += chosen[i] * x[i]
        s = 0.0
        t = 0.0
        for i in range(m):
            c[i] -= change[i] * w
            s += x[i] * c[i]
            t += x[i] * a[i]
        # N' c' = N c' + E_b (E_bᵀ c') share, fold by fold; N c' = E - E_b w / (1 + s_b).
        ratio = w * shares[n_folds]
        for h in range(n_folds):
            inner = 0.0
            for i in range(starts[h], starts[h + 1]):
                inner += weighted[i] * c[i]
            step_b = inner * shares[h] - ratio
            for i in range(starts[h], starts[h + 1]):
                v[i] += weighted[i] * step_b
        scale = 1.0 / (1.0 + s)
        step = t * scale
        total = 0.0
        for h in range(n_folds):
            inner = 0.0
            own = 0.0
            for i in range(starts[h], starts[h + 1]):
                inner += c[i] * (Na[i] - v[i] * step)
                own += c[i] * v[i]
            factor = inner / (1.0 + s - own) - step
            for i in range(starts[h], starts[h + 1]):
                e = Na[i] + v[i] * factor
                total += e * e
                if keep:
                    residual[j, i] = e
        errors[j] = total
