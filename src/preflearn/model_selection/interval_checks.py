r"""Does Student's interval of a mean over queries hold for these data? Two checks without a normal distribution.

**Bootstrap.** The 2.5 % and 97.5 % quantiles of the means of resampled queries; where they are much wider or narrower
than Student's interval, the values are far from normal.

**Halves.** Two random halves of the queries are independent samples of the same distribution. Their means should differ
by no more than a 95 % interval of the difference in 95 % of all divisions.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy.stats import t as student
from sklearn.utils import check_random_state

from .intervals import mean_interval


class IntervalCheck(NamedTuple):
    """What :func:`check_mean_interval` found.

    Attributes
    ----------
    interval : tuple of two float
        Student's 95 % interval.
    bootstrap : tuple of two float
        The bootstrap's.
    width_ratio : float
        Width of the bootstrap interval divided by that of Student's; 1 is agreement.
    coverage : float
        Share of divisions whose halves agree; 0.95 is right.
    n_draws : int
        Resamples, and divisions.
    """

    interval: tuple[float, float]
    bootstrap: tuple[float, float]
    width_ratio: float
    coverage: float
    n_draws: int


def check_mean_interval(values: Any, *, n_draws: int = 2000, random_state: Any = None) -> IntervalCheck:
    """Compare Student's interval of a mean with the bootstrap, and with random halves of the data.

    Parameters
    ----------
    values : array-like of shape (n,)
        One value in 0..1 per query, at least four.
    n_draws : int, default=2000
    random_state : int, RandomState or None, default=None

    Returns
    -------
    IntervalCheck

    Examples
    --------
    >>> import numpy as np
    >>> values = np.random.default_rng(0).uniform(0.4, 1.0, size=50)
    >>> found = check_mean_interval(values, random_state=0)
    >>> 0.9 < found.width_ratio < 1.1, 0.93 < found.coverage < 0.97
    (True, True)
    """
    values = np.asarray(values, dtype=float)
    n = values.shape[0]
    if values.ndim != 1 or n < 4:
        raise ValueError(f"halves of the values need at least four of them: found shape {values.shape}.")
    random = check_random_state(random_state)
    _, interval = mean_interval(values)
    means = values[random.randint(0, n, size=(n_draws, n))].mean(axis=1)
    low, high = map(float, np.quantile(means, [0.025, 0.975]))
    order = np.argsort(random.random_sample((n_draws, n)), axis=1)
    one, other = values[order[:, : n // 2]], values[order[:, n // 2 :]]
    error = np.sqrt(one.var(axis=1, ddof=1) / one.shape[1] + other.var(axis=1, ddof=1) / other.shape[1])
    covered = np.abs(one.mean(axis=1) - other.mean(axis=1)) <= student.ppf(0.975, n - 2) * error
    ratio = float((high - low) / max(interval[1] - interval[0], 1e-12))
    return IntervalCheck(interval, (low, high), ratio, float(covered.mean()), n_draws)
