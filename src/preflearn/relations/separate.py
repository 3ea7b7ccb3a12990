r"""1 / (s_l σ_k + t_l) as a short sum of products of a function of k and one of l.

    1 / x = ∫ exp(-x eᶻ) eᶻ dz ≈ h Σ_r exp(z_r - x e^{z_r}),      x = σ_k + t_l / s_l,

the trapezoidal rule, whose relative error falls as exp(-π² / h) for every x between the ends of the sum, and every
term is positive: nothing cancels. The number of terms grows only with the logarithm of the range of x: a few hundred
where the matrix itself has thousands of rows and columns.
"""

from __future__ import annotations

import numpy as np

# Relative error 1e-14 of every entry.
_DIGITS = np.log(1e14)
_STEP = np.pi**2 / _DIGITS
# exp(-x) is negligible compared with 1 from here on.
_NOTHING = 37.0


def cauchy_factors(
    values: np.ndarray, scale: np.ndarray, ridge: np.ndarray, *, most: int | None = None
) -> tuple[np.ndarray, np.ndarray] | None:
    """Factors P and R with 1 / (scale_l values_k + ridge_l) = (P Rᵀ)_kl to 13 digits in every entry.

    Parameters
    ----------
    values : ndarray of shape (k,)
        Not negative.
    scale, ridge : ndarray of shape (l,)
        Not negative, the ridge positive.
    most : int, optional
        Return None where more terms than this would be needed.

    Returns
    -------
    (ndarray of shape (k, r), ndarray of shape (l, r)) or None

    Examples
    --------
    >>> import numpy as np
    >>> P, R = cauchy_factors(np.array([0.0, 1.0]), np.array([1.0, 2.0]), np.array([0.5, 0.5]))
    >>> np.round(P @ R.T, 6)
    array([[2.      , 2.      ],
           [0.666667, 0.4     ]])
    """
    largest = float(values.max(initial=0.0))
    # Problems in which the kernel is lost in the ridge: one separate term.
    flat = scale * largest <= 1e-17 * ridge
    ratio = np.divide(ridge, scale, out=np.full_like(ridge, np.nan), where=~flat)
    if flat.all():
        return np.ones((values.shape[0], 1)), (1 / ridge)[:, None]
    lowest = float(np.nanmin(ratio) + values.min())
    highest = float(np.nanmax(ratio)) + largest
    z = np.arange(-_DIGITS - np.log(highest), np.log(_NOTHING / lowest) + _STEP, _STEP)
    if most is not None and z.shape[0] + 1 > most:
        return None
    t = np.exp(z)
    P = np.exp(-np.multiply.outer(values, t))
    R = np.zeros((ridge.shape[0], z.shape[0]))
    R[~flat] = np.exp(z - np.multiply.outer(ratio[~flat], t)) * (_STEP / scale[~flat])[:, None]
    if flat.any():
        P = np.hstack([P, np.ones((values.shape[0], 1))])
        R = np.hstack([R, np.where(flat, 1 / ridge, 0.0)[:, None]])
    return P, R
