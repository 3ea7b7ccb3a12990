r"""Many sets of rows held out of one ranking without ties, from one inverse for all sets that leave it alike.

Rows with equal scores are not compared with each other, and with all others in the same way. With E naming the tie
group of each row, L' of the rows that stay is therefore D - E Ω Eᵀ, D being one number for each group (two classes are
a complete bipartite graph). Sets that take equally many rows from every group share D, Ω, b' and

    R = (D^½ K D^½ + λ I)⁻¹,    H = K D^½ R.

The dual variables a = D^½ x of the model without the set U are x = R (τ + C σ + v), with τ = D^-½ b', C = D^-½ E and
v zero outside U. The unknown v and σ follow from a system of |U| rows and one row for each group:

    x_U = 0,    σ = Ω s,    s = sums of f = H (τ + C σ + v) over the rows of each group that stay.

The sum of the second equations, each times the rows of its group, says no more than λ 1ᵀ a = 0; that is used without
the factor λ, so that nothing is lost at a small one.
"""

from __future__ import annotations

import numpy as np

from ...comparisons import Comparisons, Groups
from .dual import LARGE_ALPHA, explicit_resolvent

# Entries of the small systems that are solved together.
_BATCH_ENTRIES = 1 << 22


def predict_without_sets_alike(
    K: np.ndarray, alike: Groups, task: Comparisons, sets: np.ndarray, alpha: float
) -> np.ndarray:
    """Predictions for the rows of each set by the model of the full kernel trained without it.

    Parameters
    ----------
    K : ndarray of shape (m, m)
    alike : Groups
        The tie groups of one ranking.
    task : Comparisons
        Of all rows, with one output.
    sets : int array of shape (p, h)
        Rows of each set; every set has the same number of rows of every group.
    alpha : float

    Returns
    -------
    ndarray of shape (p, h)

    Raises
    ------
    numpy.linalg.LinAlgError
        If the inverse is not precise enough at this alpha.

    Notes
    -----
    O(m³) once, then O((h + g)³) for a set and g groups.
    """
    m, g = alike.n_rows, alike.n_groups
    rest = np.setdiff1d(np.arange(m), sets[0])
    groups, first = np.unique(alike.codes[rest], return_index=True)
    place = np.full(g, -1)
    place[groups] = np.arange(groups.shape[0])
    group = place[alike.codes]  # -1 for rows of a group that leaves whole
    E = (group[:, None] == np.arange(groups.shape[0])).astype(float)
    kept = task.take(rest)
    n, degree = E[rest].sum(axis=0), kept.diagonal()[first]
    omega = (np.diag(degree) - kept.laplacian(E[rest])[first]) / n
    np.fill_diagonal(omega, 0.0)
    target = np.append(kept.target[first, 0], 0.0)[group]
    root = np.sqrt(np.append(degree, degree.mean())[group])

    G = root[:, None] * K * root
    trace = float(np.trace(G))
    R = explicit_resolvent(G, alpha, overwrite=True)
    if alpha > LARGE_ALPHA * trace:  # I - λ R would leave nothing but rounding
        H = (K * root) @ R
    else:
        H = (np.eye(m) - alpha * R) / root[:, None]
    tau, C = target / root, E / root[:, None]
    Rt, RC, Ht, HC, EH = R @ tau, R @ C, H @ tau, H @ C, E.T @ H
    CRd = RC @ degree  # Σ d_g (Cᵀ R)_g
    heaviest = int(np.argmax(n))  # the group whose equation is replaced

    def solve(U: np.ndarray) -> np.ndarray:
        h, local = U.shape[1], E[U].transpose(0, 2, 1)  # (b, groups, h)
        H_UU = H[U[:, :, None], U[:, None, :]]
        system = np.empty((U.shape[0], h + n.shape[0], h + n.shape[0]))
        right = np.empty((U.shape[0], h + n.shape[0], 1))
        system[:, :h, :h] = alpha * R[U[:, :, None], U[:, None, :]]
        system[:, :h, h:] = alpha * RC[U]
        right[:, :h, 0] = -alpha * Rt[U]
        system[:, h:, :h] = -omega @ (EH[:, U].transpose(1, 0, 2) - local @ H_UU)
        system[:, h:, h:] = np.eye(n.shape[0]) - omega @ (E.T @ HC - local @ HC[U])
        right[:, h:, 0] = (E.T @ Ht - (local @ Ht[U][:, :, None])[:, :, 0]) @ omega
        system[:, h + heaviest, :h] = alpha * CRd[U]
        system[:, h + heaviest, h:] = alpha * (C.T @ CRd)
        right[:, h + heaviest, 0] = -alpha * (CRd @ tau)
        found = np.linalg.solve(system, right)
        v, sigma = found[:, :h], found[:, h:]
        return (Ht[U][:, :, None] + HC[U] @ sigma + H_UU @ v)[:, :, 0]

    step = max(1, _BATCH_ENTRIES // (sets.shape[1] + g) ** 2)
    return np.concatenate([solve(sets[k : k + step]) for k in range(0, sets.shape[0], step)])
