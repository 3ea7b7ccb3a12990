r"""How accurate is an estimate? Standard errors and 95 % intervals for a share of pairs.

**Placement values.** With t_i the pairs that row i wins of its n_i and c = Σ t_i / Σ n_i the estimate, the first-order
part of the error of c is a sum over rows, so that

    se² = Σ_i a_i (t_i - c n_i)² / N²,        N = Σ n_i / 2,   a_i = n / (n - 1) for the n rows of i's class

which for two classes is DeLong's variance of an AUC. Rows that share a group enter as one term (Obuchowski). It takes
the scores as given: it covers the randomness of the test rows, not that of the training rows.

**Folds.** Where rows are compared inside of folds, the two rows of a pair meet few others, and what makes the pair
differ from c beyond its two rows is no longer a small part of the error. Write the sum over the pairs of two clusters
g and h (of two rows) as w_gh = n_gh (a_g + a_h) + e_gh, S_g = Σ_h w_gh and D_g = Σ_h n_gh. Then Σ w has the variance
Σ D_g² Var a_g + Σ_{g<h} Var e_gh, while in Σ S_g² each e_gh is counted at both ends, as is n_gh² Var a_g. So

    se² = (Σ_g S_g² - Σ_{g<h} w_gh²) / N² / (1 - κ),      κ = (Σ_g D_g² - Σ_{g<h} n_gh²) / N²

where κ corrects for c being the mean of the same pairs (for variances that grow with n_gh). It is unbiased for all
pairs of one sample or of two, and for folds of two clusters, for which Σ S_g² / N² would be twice as large. Pairs that
share a row do not depend on each other negatively (Hoeffding 1948), hence the first sum is taken to be at least twice
the second. The training is as if all rows were compared: ρ multiplies the variance of the share of all pairs, across
folds.

**Optimism.** Cross-validation has the second kind of randomness as well. Its size can be estimated from the models.
With r the correlation of predicted and true differences over the pairs and z = r / (1 - r²)^½ (for two classes, the
mean margin of a pair in standard deviations), let z₀ be that of the model on its own training rows, z that of the
held-out pairs, and

    ρ = 1 - z / z₀

the share of the separation of the training rows that is fitted noise. Then the variance is 1 + ρ times the one above.
To see why, order rows along d = δ + ε, the difference of the two class means with noise E εεᵀ = s² I in p dimensions.
The rows themselves show the separation |d|, held-out pairs |d| - p s² / |d|, and the truth is δ·d / |d|. Held-out pairs
have the error (ε·ε - p s² + ε·δ) / |d|, of variance s² (2 p s² + |δ|²) / (p s² + |δ|²) = s² (1 + ρ): once s² with a
clear signal, twice without any. Where |d| happens to be small, all models of a cross-validation may have the wrong
sign together, and z falls below zero; ρ is then above one, without bound, and so is the interval. This takes one
training and no refitting.

**The interval** is Wilson's: c is treated as a proportion of n = c (1 - c) / se² independent pairs, divided by 1 + ρ.
It stays inside 0..1, and before the division n is never taken to exceed 4 N k / (m (k + 1)) for two classes, the
smaller of k rows (about m where they are equal), or 6 N / (m + 1) otherwise, so that a perfect score on few rows does
not get an interval of zero width. ``benchmarks/auc_intervals.py`` measures how often it contains the true value.

**Queries.** The mean c of one share c_q for each of Q held-out queries has Student's interval, with two corrections.
The Q models share nearly all of their training rows, so their errors are correlated: the argument above holds with
queries in place of rows, and the variance is again 1 + ρ times that of independent values. (ρ is limited to 3:
otherwise the interval would be too wide with many features and no signal. With a single feature and no signal,
where all models may have the wrong sign together, it covers about 92 to 95 %.) And few queries of few rows may by
chance show no spread at all. A query of p pairs with different y, put in a random order, has a share of variance
1 / (4 n₀) (Kendall), as n₀ independent pairs would have; one in perfect order is worth all p. With

    1 / n_q = 1 / p + 4 c (1 - c) (1 / n₀ - 1 / p),        v₀ = c (1 - c) mean of 1 / n_q,

the sample variance s² of the shares, which has Q - 1 degrees of freedom, is averaged with v₀, which counts as 3:
s² ← ((Q - 1) s² + 3 v₀) / (Q + 2). Its lower bound is what N = Q² / Σ 1 / p pairs would show if all were
independent, by Laplace's rule: the variance of the mean is at least π (1 - π) / (N + 2) with
π = (c N + 1) / (N + 2). ``benchmarks/coverage.py`` measures how often the interval contains the true value.

**Checks.** Is Student's interval of a mean over queries valid for these data? `check_mean_interval` answers in two ways
without a normal distribution. Bootstrap: the 2.5 % and 97.5 % quantiles of the means of resampled queries; where they
are much wider or narrower than Student's interval, the values are far from normal. Halves: two random halves of the
queries are independent samples of the same distribution, and their means should differ by no more than a 95 %
interval of the difference in 95 % of all divisions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import beta
from scipy.stats import t as student
from sklearn.utils import check_random_state

from ..comparisons import CensoredComparisons, Groups, encode_queries, one_group
from ._tally import PairTally, tally_meetings, tally_scores

LEVEL = 0.95
TRAINED_TOGETHER = (
    "widened for the luck of the training rows, which the models share, by the share of the separation on them that is "
    "lost on held-out rows"
)
# Degrees of freedom with which the variance of a query's share, from its number of pairs, counts.
_PRIOR_QUERIES = 3.0
# Models of noise have an optimism of 1 on average; larger values than this are due to chance.
_MOST_OPTIMISM = 3.0


def placement_values(clusters: Groups | None = None, *, inside_folds: bool = False) -> str:
    """Where an interval of one ranking comes from, in words."""
    groups = clusters is not None and clusters.n_groups < clusters.n_rows
    what = f"{clusters.n_groups:,} groups (Obuchowski)" if groups and clusters else "rows (DeLong)"
    once = ", pairs inside of a fold counted once (Aronow)" if inside_folds else ""
    return (
        f"from the placement values of the {what}{once}, which show the luck of the test rows, widened for that of the "
        "training rows by the share of the separation on them that is lost on held-out pairs, in Wilson's form"
    )


def placement_variance(tally: PairTally, strata: np.ndarray, clusters: Groups | None = None) -> float:
    """se² of the share of pairs won, with the scores taken as given.

    Parameters
    ----------
    tally : PairTally
    strata : int array of shape (m,)
        The class of each row where there are two, else zeros.
    clusters : Groups, optional
        Rows of a group depend on each other.

    Notes
    -----
    O(m) after the tally.

    References
    ----------
    E. R. DeLong, D. M. DeLong, D. L. Clarke-Pearson. Comparing the areas under two or more correlated receiver
    operating characteristic curves: a nonparametric approach. Biometrics 44 (1988), 837-845.
    N. A. Obuchowski. Nonparametric analysis of clustered ROC curve data. Biometrics 53 (1997), 567-578.
    """
    influence = tally.wins - tally.share * tally.pairs
    scale = float(tally.n_pairs) ** 2
    if clusters is not None:
        sums = np.bincount(clusters.codes, weights=influence, minlength=clusters.n_groups)
        kinds, weights = _kinds_of_clusters(strata, clusters), _weights_of_clusters(tally, clusters)
        return (
            sum(
                float(sums[kinds == kind] @ sums[kinds == kind]) * _unbias_weighted(weights[kinds == kind])
                for kind in np.unique(kinds)
            )
            / scale
        )
    squares = np.bincount(strata, weights=influence**2)
    sizes = np.bincount(strata)
    return sum(_unbias(int(size)) * float(total) for size, total in zip(sizes, squares, strict=True)) / scale


def optimism(true: np.ndarray, held_out: np.ndarray, fitted: np.ndarray) -> float:
    """ρ, the share of the separation on training rows that is lost on held-out pairs: at least 0, possibly infinite.

    Parameters
    ----------
    true : ndarray of shape (p,)
        y_i - y_j of each pair.
    held_out, fitted : ndarray of shape (p,)
        f_i - f_j by the model trained without the two, and by the one trained on all rows.

    Examples
    --------
    >>> import numpy as np
    >>> true = np.array([1.0, 1.0, 1.0, 1.0])
    >>> round(optimism(true, np.array([3.0, 3.0, 3.0, -1.0]), np.array([3.0, 3.0, 2.0, 2.0])), 2)
    0.77
    >>> optimism(true, np.zeros(4), np.zeros(4))
    1.0
    """
    held_out_separation, separation = _separation(true, held_out), _separation(true, fitted)
    if separation <= 0:
        return 1.0 if held_out_separation >= 0 else float("inf")
    if np.isinf(held_out_separation):
        return 0.0 if held_out_separation > 0 else float("inf")
    return max(0.0, 1.0 - held_out_separation / separation)


def widening(optimism: float) -> float:
    """By what the variance of a mean over queries is multiplied: 1 + ρ, of which more than 3 is due to chance."""
    return 1.0 + min(optimism, _MOST_OPTIMISM)


def _separation(true: np.ndarray, predicted: np.ndarray) -> float:
    """z = r / (1 - r²)^½ for the correlation r about zero; 0 where nothing is distinguished."""
    largest = float(np.abs(predicted).max(initial=0.0))
    if largest == 0:
        return 0.0
    true, predicted = true / np.abs(true).max(), predicted / largest  # squares neither overflow nor underflow
    product = float(true @ predicted)
    rest = float(true @ true) * float(predicted @ predicted) - product**2
    return product / float(np.sqrt(rest)) if rest > 0 else float(np.copysign(np.inf, product))


def _kinds_of_clusters(strata: np.ndarray, clusters: Groups) -> np.ndarray:
    """The stratum that all rows of a group have in common; -1 for groups with rows of several."""
    first = strata[clusters.order[clusters.starts[:-1]]]
    mixed = np.unique(clusters.codes[strata != first[clusters.codes]])
    return np.where(np.isin(np.arange(clusters.n_groups), mixed), -1, first)


def _weights_of_clusters(tally: PairTally, clusters: Groups) -> np.ndarray:
    """The pairs that each group takes part in."""
    return np.bincount(clusters.codes, weights=tally.pairs, minlength=clusters.n_groups)


def _unbias_weighted(w: np.ndarray) -> float:
    """n / (n - 1) for unequal weights: by what the squares of w (x - weighted mean) are too small."""
    total, squares = float(w.sum()), float(w @ w)
    if squares == 0:
        return 0.0
    short = 1.0 - 2.0 * float(np.sum(w**3)) / (total * squares) + squares / total**2
    return 1.0 / short if short > 1e-9 else 0.0


def freedom_of_clusters(tally: PairTally, clusters: Groups, n_folds: int = 1) -> float:
    """Degrees of freedom of `placement_variance` with groups, by Satterthwaite: n - 1 for n groups that weigh the same.

    A sum of squares w² z² has (Σ w²)² / Σ w⁴ of them for independent normal z, of which the mean of each of the folds
    takes its share.
    """
    w = _weights_of_clusters(tally, clusters)
    squares = w**2
    independent = float(squares.sum()) ** 2 / max(float(squares @ squares), np.finfo(float).tiny)
    return max(1.0, independent * (1.0 - n_folds / clusters.n_groups))


def most_effective(y: np.ndarray) -> float:
    """The maximum number of independent pairs that rows with such y are equivalent to, whatever their scores.

    4 N k / (m (k + 1)) for two classes, the smaller of k rows, and 6 N / (m + 1) for more values.
    """
    counts = np.unique(y, return_counts=True)[1].astype(float)
    m = y.shape[0]
    pairs = (m**2 - counts @ counts) / 2
    fewest, factor = (counts.min(), 4.0) if counts.shape[0] == 2 else (m, 6.0)
    return float(factor * pairs / m * fewest / (fewest + 1))


def freedom_of(y: np.ndarray) -> float:
    """Degrees of freedom of the variance of placement values: three times the rows of the smaller of two classes.

    With few rows of a class their spread is poorly known. Three times is by measurement (``benchmarks/coverage.py``):
    once is right for a mean of equally many values, and too wide for pairs, whose spread the other class shows as well.
    """
    counts = np.unique(y, return_counts=True)[1]
    return 3.0 * float(counts.min()) if counts.shape[0] == 2 else float("inf")


def scarce_labels(y: np.ndarray, events: np.ndarray | None) -> np.ndarray:
    """The labels that limit what is known: the events where most times are censored, otherwise y."""
    few = events is not None and 2 * np.count_nonzero(events) < y.shape[0]
    return events * 1.0 if few and events is not None else y


def wilson_interval(
    share: float, variance: float, max_effective: float, *, optimism: float = 0.0, freedom: float = np.inf
) -> tuple[float, float]:
    """95 % interval of a share of pairs, as of a proportion of independent ones.

    Parameters
    ----------
    share : float
        c.
    variance : float
        se².
    max_effective : float
        The maximum number of independent pairs that the rows are equivalent to.
    optimism : float, default=0.0
        ρ: how much that number shrinks because the models were learned from the rows.
    freedom : float, default=inf
        Degrees of freedom of the variance, from `freedom_of`: Student's quantile instead of the normal one.

    References
    ----------
    E. B. Wilson. Probable inference, the law of succession, and statistical inference. Journal of the American
    Statistical Association 22 (1927), 209-212.

    Examples
    --------
    >>> low, high = wilson_interval(1.0, 0.0, max_effective=40)
    >>> round(low, 3), high
    (0.912, 1.0)
    """
    spread = share * (1.0 - share)
    n = min(spread / variance, max_effective) if variance > 0 and spread > 0 else max_effective
    n = max(n / (1.0 + optimism), 1.0)  # no estimate is equivalent to less than one pair
    z = float(student.ppf(0.5 + LEVEL / 2, freedom))
    centre = (share + z * z / (2 * n)) / (1 + z * z / n)
    half = z * np.sqrt(spread / n + (z / (2 * n)) ** 2) / (1 + z * z / n)
    # Rounding may leave a share of 0 or 1 outside by the last bit.
    return max(0.0, min(share, float(centre - half))), min(1.0, max(share, float(centre + half)))


def interval_of_one_ranking(
    tally: PairTally, y: np.ndarray, optimism: float = 0.0, clusters: Groups | None = None
) -> tuple[float, tuple[float, float]]:
    """Variance of the share of pairs of one ranking, and its 95 % interval.

    Parameters
    ----------
    tally : PairTally
        Of the held-out predictions.
    y : ndarray of shape (m,)
        Labels.
    optimism : float, default=0.0
        ρ.
    clusters : Groups, optional
        Rows of a group depend on each other.

    References
    ----------
    N. A. Obuchowski. Nonparametric analysis of clustered ROC curve data. Biometrics 53 (1997), 567-578.
    F. E. Satterthwaite. An approximate distribution of estimates of variance components. Biometrics Bulletin 2 (1946),
    110-114.
    """
    if clusters is not None and clusters.n_groups == y.shape[0]:
        clusters = None
    variance = placement_variance(tally, _strata(y), clusters)
    return _interval_from_variance(tally, y, variance, optimism, clusters)


def _strata(y: np.ndarray) -> np.ndarray:
    """The class of each row where there are two, else zeros."""
    levels, codes = np.unique(y, return_inverse=True)
    return codes if levels.shape[0] == 2 else np.zeros_like(codes)


def _interval_from_variance(
    tally: PairTally,
    y: np.ndarray,
    variance: float,
    optimism: float,
    clusters: Groups | None,
    n_folds: int = 1,
) -> tuple[float, tuple[float, float]]:
    most, freedom = most_effective(y), freedom_of(y)
    if clusters is not None:
        freedom = min(freedom, freedom_of_clusters(tally, clusters, n_folds))
        if tally.share in (0.0, 1.0):  # nothing is known about how much rows of a group resemble each other
            most *= clusters.n_groups / y.shape[0]
    interval = wilson_interval(tally.share, variance, most, optimism=optimism, freedom=freedom)
    return 0.25 if np.isinf(optimism) else float(min(variance * (1.0 + optimism), 0.25)), interval


def variance_inside_folds(
    tally: PairTally, meetings: tuple[np.ndarray, np.ndarray, np.ndarray], clusters: Groups
) -> float:
    """se² of the share of pairs won, where rows are compared inside of folds; infinite where nothing shows it.

    See "Folds" in the text of this module.

    Parameters
    ----------
    tally : PairTally
    meetings : tuple of three ndarray
        As of `tally_meetings`.
    clusters : Groups
        Rows of a group depend on each other.

    References
    ----------
    P. M. Aronow, C. Samii, V. A. Assenova. Cluster-robust variance estimation for dyadic data. Political Analysis 23
    (2015), 564-577.
    """
    influence, n = tally.wins - tally.share * tally.pairs, max(tally.n_pairs, 1)
    sums, weights = (
        np.bincount(clusters.codes, weights=one, minlength=clusters.n_groups) / n
        for one in (influence, tally.pairs)
    )
    wins, pairs, times = meetings
    if not pairs.any():  # all pairs are of two rows of a cluster, which counts each of them twice
        sums, weights = sums / 2, weights / 2
    squares = float(times @ ((wins - tally.share * pairs) / n) ** 2)
    known = 1.0 - float(weights @ weights - times @ (pairs / n) ** 2)
    return max(float(sums @ sums) - squares, squares) / known if known > 1e-9 else float("inf")


def interval_inside_folds(
    y: np.ndarray,
    held_out: np.ndarray,
    fitted: np.ndarray,
    folds: Groups,
    clusters: Groups | None = None,
    events: np.ndarray | None = None,
    *,
    rankings: Groups | None = None,
) -> tuple[PairTally, float, tuple[float, float]]:
    """The pairs of held-out rows inside of folds, the variance of the share that is won, and its 95 % interval.

    Parameters
    ----------
    y, held_out, fitted : ndarray of shape (m,)
        Labels, predictions by models trained without the row's fold, and those of the model trained on all rows.
    folds : Groups
    clusters : Groups, optional
        Rows of a group depend on each other; they are not compared where others are.
    events : ndarray of bool, shape (m,), optional
        Where the labels are `lived_longer` of censored times.
    rankings : Groups, optional
        Rows that would be compared if there were no folds; all by default.
    """
    rows = Groups(np.arange(y.shape[0]), y.shape[0])
    apart = None if clusters is None or clusters.n_groups == y.shape[0] else clusters
    rankings = one_group(y.shape[0]) if rankings is None else rankings
    tally, whole = (tally_scores(y, held_out, of, apart, events) for of in (folds, rankings))
    meetings = tally_meetings(y, held_out, folds, apart or rows, events)
    variance = variance_inside_folds(tally, meetings, apart or rows)
    lost, labels = optimism_inside(y, held_out, fitted, folds.codes), scarce_labels(y, events)
    if variance > 0 and np.isfinite(lost):
        lost *= min(1.0, placement_variance(whole, _strata(labels), apart) / variance)
    n_folds = folds.n_groups // rankings.n_groups
    return tally, *_interval_from_variance(tally, labels, variance, lost, apart, n_folds)


def mean_interval(values: np.ndarray, clusters: Groups | None = None) -> tuple[float, tuple[float, float]]:
    """Variance of the mean of independent values in 0..1, and its 95 % interval by Student's t.

    Where values lie at an end of the range, the interval is at least as wide as `end_if_others_miss` says: thirty
    queries with a perfect score do not show that no query is imperfect.

    Parameters
    ----------
    values : ndarray of shape (n,)
        One per query.
    clusters : Groups, optional
        Values of a group depend on each other and enter as one term.
    """
    deviations = values - values.mean()
    if clusters is not None:
        deviations = np.bincount(clusters.codes, weights=deviations, minlength=clusters.n_groups)
    n = deviations.shape[0]
    variance = _unbias(n) * float(deviations @ deviations) / values.shape[0] ** 2
    if n < 2:
        return float("nan"), (0.0, 1.0)
    half = float(student.ppf(0.5 + LEVEL / 2, n - 1)) * np.sqrt(variance)
    mean = float(values.mean())
    trials = values
    if clusters is not None:
        trials = np.bincount(clusters.codes, weights=values, minlength=n) / clusters.counts
    low = min(mean - half, end_if_others_miss(trials))
    high = max(mean + half, 1.0 - end_if_others_miss(1.0 - trials))
    return variance, (max(0.0, low), min(1.0, high))


def end_if_others_miss(values: np.ndarray) -> float:
    """The lower end of the interval of the mean for values that are nearly all 1, and hence show hardly any spread.

    Of n values k are below 1; the share of such values may be as high as p, the upper end of Clopper and Pearson's
    interval. With their mean deficit, an additional one of 1/2 included, the mean is at least 1 - p times that deficit.
    Infinite where no value is 1: then there is no such end.

    Examples
    --------
    >>> import numpy as np
    >>> round(end_if_others_miss(np.ones(30)), 3)
    0.942
    """
    deficits = 1.0 - values[values < 1.0]
    n, k = values.shape[0], deficits.shape[0]
    if k == n:
        return float("inf")
    most = float(beta.ppf(0.5 + LEVEL / 2, k + 1, n - k))
    return 1.0 - most * (float(deficits.sum()) + 0.5) / (k + 1)


def interval_over_queries(
    values: np.ndarray,
    y: np.ndarray,
    held_out: np.ndarray,
    fitted: np.ndarray,
    queries: Groups,
    *,
    clusters: Groups | None = None,
    events: np.ndarray | None = None,
) -> tuple[float, tuple[float, float]]:
    """Variance of the mean concordance of held-out queries, and its 95 % interval.

    Parameters
    ----------
    values : ndarray of shape (n_groups,)
        The concordance of each query; NaN for queries that do not count.
    y, held_out, fitted : ndarray of shape (m,)
        Labels, predictions by models trained without the query, and those of the model trained on all rows.
    queries : Groups
    clusters : Groups, optional
        Of the queries that count: those of a group depend on each other.
    events : ndarray of bool, shape (m,), optional
        Where the labels are `lived_longer` of censored times.
    """
    counted = np.flatnonzero(~np.isnan(values))
    pairs, at_random = worth_of_queries(y, queries, events)
    rows = np.isin(queries.codes, counted)
    lost = optimism_inside(*(one[rows] for one in (y, held_out, fitted, queries.codes)))
    worth = pairs[counted], at_random[counted]
    return query_interval(values[counted], worth, optimism=lost, clusters=clusters)


def optimism_inside(y: np.ndarray, held_out: np.ndarray, fitted: np.ndarray, codes: np.ndarray) -> float:
    """ρ over the pairs inside queries, with equal weight for all queries.

    A sum of products over the pairs of a query is one over its centred rows: t_i - t_j over all pairs of k rows gives k
    times what t_i - t̄ does.
    """
    y, *predictions = (_centred_in_queries(values, codes) for values in (y, held_out, fitted))
    lengths = np.sqrt(np.maximum(np.bincount(codes, weights=y**2), np.finfo(float).tiny))[codes]
    freedom = np.sqrt(np.maximum(np.bincount(codes)[codes] - 1, 1))
    return optimism(y / lengths, *(values / freedom for values in predictions))


def _centred_in_queries(values: np.ndarray, codes: np.ndarray) -> np.ndarray:
    """Values divided by the largest of them, minus their mean in the query."""
    values = values / max(float(np.abs(values).max(initial=0.0)), np.finfo(float).tiny)
    means = np.bincount(codes, weights=values) / np.maximum(np.bincount(codes), 1)
    return values - means[codes]


def groups_of_queries(owners: Groups | None, queries: Groups, counted: np.ndarray) -> Groups | None:
    """The group of each counted query, where every query lies in one group and some share it."""
    if owners is None:
        return None
    first = owners.codes[queries.order[queries.starts[:-1]]]
    if (owners.codes != first[queries.codes]).any():
        return None
    found = encode_queries(first[counted], counted.size)
    return None if found.n_groups == counted.size else found


def query_interval(
    values: np.ndarray,
    worth: tuple[np.ndarray, np.ndarray],
    *,
    optimism: float,
    clusters: Groups | None = None,
) -> tuple[float, tuple[float, float]]:
    """Variance of the mean share of pairs over held-out queries, and its 95 % interval.

    Parameters
    ----------
    values : ndarray of shape (n,)
        The share of each query.
    worth : tuple of two ndarray of shape (n,)
        As of `worth_of_queries`.
    optimism : float
        ρ; more than 3 counts as 3.
    clusters : Groups, optional
        Values of a group depend on each other and enter as one term.

    Examples
    --------
    >>> import numpy as np
    >>> ten = np.full(10, 3.0), np.full(10, 2.45)  # ten queries of three rows, all in the right order
    >>> low, high = query_interval(np.ones(10), ten, optimism=0.0)[1]
    >>> round(low, 2), high
    (0.93, 1.0)
    """
    n_values = values.shape[0]
    n = n_values if clusters is None else clusters.n_groups
    if n < 2:
        return float("nan"), (0.0, 1.0)
    mean = float(values.mean())
    pairs, at_random = worth
    share = (n_values * mean + 0.5) / (n_values + 1)  # never quite 0 or 1
    spread = share * (1 - share)
    expected = spread * float(np.mean(1 / pairs + 4 * spread * (1 / at_random - 1 / pairs))) / n_values
    found = mean_interval(values, clusters)[0]
    variance = ((n - 1) * found + _PRIOR_QUERIES * expected) / (n - 1 + _PRIOR_QUERIES)
    independent = n_values**2 / float(np.sum(1 / pairs))
    laplace = (mean * independent + 1) / (independent + 2)
    variance = max(variance, laplace * (1 - laplace) / (independent + 2)) * widening(optimism)
    half = float(student.ppf(0.5 + LEVEL / 2, n - 1) * np.sqrt(variance))
    return variance, (max(0.0, mean - half), min(1.0, mean + half))


def worth_of_queries(
    y: np.ndarray, queries: Groups, events: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Pairs with different y in each query, and the number of independent pairs equivalent to them in a random order.

    With S the pairs in order minus those out of order, S has variance (v(k) - Σ v(t)) / 18 in a random order of k rows,
    v(k) = k (k - 1) (2 k + 5), the sum over groups of t rows with equal y; p² over this is that number. For censored
    times, where not all rows with different y are pairs, the variance is (p + Σ u²) / 3, u_i being the rows that row i
    is known to have outlived minus those that outlived it; without censored rows that is the same. O(m log m).

    References
    ----------
    M. G. Kendall. Rank Correlation Methods, 4th edition (1970), chapter 4.

    Examples
    --------
    >>> import numpy as np
    >>> from preflearn.comparisons import encode_queries
    >>> y, queries = np.array([1.0, 2.0, 3.0, 0.0, 0.0, 1.0]), encode_queries([1, 1, 1, 2, 2, 2], 6)
    >>> pairs, at_random = worth_of_queries(y, queries)
    >>> pairs, at_random.round(2)
    (array([3., 2.]), array([2.45, 1.5 ]))
    """
    if events is not None:
        pairs = tally_scores(y, np.zeros(y.shape[0]), queries, events=events).pairs
        outlived = CensoredComparisons(y[:, None], events, queries).target[:, 0]
        p, squares = (np.bincount(queries.codes, one, queries.n_groups) for one in (pairs / 2, outlived**2))
        return p, np.divide(3 * p**2, p + squares, out=np.zeros_like(p), where=p > 0)
    ranks = np.unique(y, return_inverse=True)[1]
    tied = np.unique(queries.codes * (ranks.max() + 1) + ranks, return_index=True, return_counts=True)
    owner, size = queries.codes[tied[1]], tied[2].astype(float)
    k = queries.counts.astype(float)

    def per_query(function: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
        return function(k) - np.bincount(owner, weights=function(size), minlength=queries.n_groups)

    pairs = per_query(lambda t: t * (t - 1) / 2)
    variance = per_query(lambda t: t * (t - 1) * (2 * t + 5) / 18)
    return pairs, np.divide(pairs**2, variance, out=np.zeros_like(pairs), where=variance > 0)


def _unbias(n: int) -> float:
    """n / (n - 1); a single term carries no information on its spread, and adds none."""
    return n / (n - 1) if n > 1 else 0.0


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
