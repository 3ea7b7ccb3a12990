r"""From the held-out predictions of candidates to one model, and to a figure that the choice does not flatter.

With H the held-out predictions of the members, centred inside queries and scaled to unit spread, and t the centred
targets, the weights are

    w = argmin over w >= 0 of ‖t - H w‖² + λ m ‖w - w̄ 1‖²,      w̄ the best common weight,

non-negative, and drawn towards equal ones: the mean of good members is hard to beat. λ is chosen by folds.

Every choice is nested: for the rows of fold f the setting, λ and whether to combine at all are chosen by the other
folds, and the score of these predictions is what is reported.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from scipy.optimize import nnls

from ..comparisons import Groups, encode_queries
from ..comparisons._loops import centre_rows, segment_sums
from ..comparisons.censored import lived_longer
from ..metrics import concordance
from ..model_selection._choice import Scoring, read_scoring

# Standard errors that the best member has to be ahead of the combination to replace it.
_ERRORS = 2.0
SHRINKAGES = (0.001, 0.01, 0.1, 1.0, 10.0)
# Predictions of targets of unit size that differ by no more than this differ by rounding.
_NO_SPREAD = 1e-12


@dataclass(frozen=True)
class FoldScores:
    """Scores of predictions fold by fold, and choices by them.

    Attributes
    ----------
    tests : list of int arrays
        The rows of each fold; together all rows.
    y : ndarray of shape (m,)
        Grades or scores, or censored times as of `comparisons.inputs.surv`.
    scoring : Scoring
    within : Groups
        Which rows may be compared: those of a query in a fold.
    owner : int array of shape (within.n_groups,)
        The fold of each of these groups.
    sizes : ndarray of shape (f,)
        The weight of each fold: its queries with two rows to compare, so that the mean over folds is that over queries.
    """

    tests: list[np.ndarray]
    y: np.ndarray
    scoring: Scoring
    within: Groups
    owner: np.ndarray
    sizes: np.ndarray

    @classmethod
    def of_folds(
        cls, tests: list[np.ndarray], y: np.ndarray, queries: Groups, scoring: Scoring
    ) -> FoldScores:
        """Find what may be compared in each fold, once for all scores."""
        fold_of = np.empty(y.shape[0], dtype=np.int64)
        for fold, test in enumerate(tests):
            fold_of[test] = fold
        within = encode_queries(fold_of * queries.n_groups + queries.codes, y.shape[0])
        owner = fold_of[within.order[within.starts[:-1]]]
        sizes = np.bincount(owner, weights=_has_pair(y, within), minlength=len(tests))
        return cls(tests, y, scoring, within, owner, sizes)

    @cached_property
    def by_concordance(self) -> FoldScores:
        """The same folds, scored by the concordance."""
        return replace(self, scoring=read_scoring("concordance"))

    @property
    def choosing(self) -> FoldScores:
        """The same folds, scored by what choices are made by.

        That is the concordance for every known measure of rankings: it varies less from query to query than what looks
        at the top of a list, and its choices are better also by those measures (docs/user_guide/automatic.md).
        """
        return self if self.scoring.scorer is None else self.by_concordance

    @cached_property
    def _parts(self) -> list[Groups]:
        """What may be compared in each fold."""
        return [encode_queries(self.within.codes[test], test.shape[0]) for test in self.tests]

    def of(self, predictions: np.ndarray) -> np.ndarray:
        """The score of each fold for predictions of shape (m,) or (s, m): (f,) or (s, f), NaN where a fold has none."""
        settings = np.atleast_2d(predictions)
        scorer = self.scoring.scorer
        if scorer is not None and scorer.metric_name == "concordance" and not scorer.options:
            scores = self._concordances(settings)
        else:
            scores = np.array(
                [[self._measure(fold, one) for fold in range(len(self.tests))] for one in settings]
            )
        return scores if predictions.ndim == 2 else scores[0]

    def _concordances(self, settings: np.ndarray) -> np.ndarray:
        """All settings in one pass over the rows, where these are not censored."""
        if self.y.dtype.names is None:
            y = np.broadcast_to(self.y[:, None], settings.T.shape)
            values = concordance(y, settings.T, self.within, per_query=True).values
            values = values.reshape(self.within.n_groups, -1)
        else:
            columns = [concordance(self.y, one, self.within, per_query=True).values for one in settings]
            values = np.column_stack(columns)
        defined = ~np.isnan(values)
        sums, counts = (
            segment_sums(one.astype(float), self.owner, len(self.tests))
            for one in (np.where(defined, values, 0.0), defined)
        )
        return np.divide(sums, counts, out=np.full(sums.shape, np.nan), where=counts > 0).T

    def _measure(self, fold: int, predictions: np.ndarray) -> float:
        rows = self.tests[fold]
        try:
            return float(self.scoring.measure(self.y[rows, None], predictions[rows, None], self._parts[fold]))
        except ValueError:  # the measure is not defined for this fold
            return float("nan")

    @property
    def n_scored(self) -> int:
        """Folds with something to compare."""
        return int(np.count_nonzero(self.sizes))

    def mean(self, scores: np.ndarray, without: int | np.ndarray | None = None) -> np.ndarray:
        """The mean over folds of scores of shape (..., f), one or some of them left out."""
        weights = np.where(np.isnan(scores), 0.0, self.sizes)
        if without is not None:
            weights[..., without] = 0.0
        total = weights.sum(axis=-1)
        return np.where(total > 0, (np.nan_to_num(scores) * weights).sum(axis=-1), np.nan) / np.maximum(
            total, 1e-300
        )

    def best(self, scores: np.ndarray, without: int | np.ndarray | None = None) -> int:
        """The place of the best of several settings, scores of shape (settings, f)."""
        found = self.mean(scores, without)
        return int(np.nanargmax(found)) if not np.isnan(found).all() else 0


def nested(folds: FoldScores, settings: np.ndarray, scores: np.ndarray) -> np.ndarray:
    """For each row the prediction of the setting that the other folds prefer.

    Parameters
    ----------
    settings : ndarray of shape (s, m)
        Held-out predictions of each setting.
    scores : ndarray of shape (s, f)
    """
    out = np.empty(settings.shape[1])
    for fold, test in enumerate(folds.tests):
        out[test] = settings[folds.best(scores, without=fold), test]
    return out


def centred(values: np.ndarray, queries: Groups) -> np.ndarray:
    """Columns minus their mean in each query, shape (m, v)."""
    means = segment_sums(values, queries.codes, queries.n_groups) / queries.counts[:, None]
    out = np.empty(values.shape)
    centre_rows(values, queries.codes, means, np.ones(values.shape[0]), out)
    return out


def combine(H: np.ndarray, t: np.ndarray, shrinkage: float) -> np.ndarray:
    """Non-negative weights of the columns of H, drawn towards a common one; shape (k,).

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> t = rng.normal(size=500)
    >>> H = t[:, None] + np.array([0.5, 0.5, 5.0]) * rng.normal(size=(500, 3))
    >>> weights = combine(H / H.std(axis=0), t, 0.01)
    >>> bool(weights[:2].min() > 10 * weights[2])
    True
    """
    m, k = H.shape
    A, b = H.T @ H, H.T @ t
    # Members that cancel each other have no common weight: their sum is rounding.
    total = float(A.sum())
    common = max(float(b.sum()), 0.0) / total if total > k * np.finfo(float).eps * np.trace(A) else 0.0
    ridge = shrinkage * m
    values, vectors = np.linalg.eigh(A + ridge * np.eye(k))
    roots = np.sqrt(np.maximum(values, ridge))  # none is smaller, but for rounding
    weights = nnls(roots[:, None] * vectors.T, vectors.T @ (b + ridge * common) / roots)[0]
    return weights if weights.any() else np.full(k, 1.0 / k)


@dataclass(frozen=True)
class Weighting:
    """How members are combined.

    Attributes
    ----------
    weights : ndarray of shape (k,)
        Of the members' predictions divided by their spread; one of them alone where that is better.
    spreads : ndarray of shape (k,)
    nested : ndarray of shape (m,)
        Held-out predictions in which all choices were made by the other folds.
    ahead, ahead_error : float
        How far the best member alone is ahead of all together, mean over folds, and its standard error.
    """

    weights: np.ndarray
    spreads: np.ndarray
    nested: np.ndarray
    ahead: float
    ahead_error: float


def choose_combination(
    held_out: np.ndarray, unbiased: np.ndarray, y: np.ndarray, queries: Groups, folds: FoldScores
) -> Weighting:
    """Weights for the members, or the best of them alone where it is better by more than two standard errors.

    Parameters
    ----------
    held_out : ndarray of shape (m, k)
        Held-out predictions of the members at their chosen settings.
    unbiased : ndarray of shape (m, k)
        The same with each setting chosen by the other folds.
    y : ndarray of shape (m,)
    queries : Groups
    folds : FoldScores
    """
    t = centred(y[:, None], queries)[:, 0]
    t = t / max(float(t.std()), np.finfo(float).tiny)
    H, spreads = _scaled(held_out, queries)
    U = centred(unbiased, queries) / spreads
    by_member = folds.of(held_out.T)
    combined, tables = _nested_combination(U, t, folds)
    # As wide as the combination: what is predicted for a fold is on the same scale, whichever is chosen for it.
    alone = float(combined.std() or 1.0) * nested(folds, U.T, by_member)
    gain = folds.of(alone) - folds.of(combined)
    out = np.empty_like(combined)
    for fold, test in enumerate(folds.tests):
        out[test] = (alone if clearly_positive(gain, without=fold, errors=_ERRORS) else combined)[test]
    if clearly_positive(gain, errors=_ERRORS):
        weights = np.zeros(H.shape[1])
        weights[folds.best(by_member)] = 1.0
    else:
        weights = combine(H, t, SHRINKAGES[folds.best(tables)])
    return Weighting(weights, spreads, out, *mean_and_error(gain))


def _scaled(predictions: np.ndarray, queries: Groups) -> tuple[np.ndarray, np.ndarray]:
    H = centred(predictions, queries)
    spreads = H.std(axis=0)
    spreads[spreads <= _NO_SPREAD] = 1.0
    return H / spreads, spreads


def _nested_combination(H: np.ndarray, t: np.ndarray, folds: FoldScores) -> tuple[np.ndarray, np.ndarray]:
    """Predictions of fold f with weights and λ from the other folds; and the score of each λ by fold."""
    fold_of = np.empty(H.shape[0], dtype=np.int64)
    for fold, test in enumerate(folds.tests):
        fold_of[test] = fold
    n_folds = len(folds.tests)
    settings = np.empty((len(SHRINKAGES), H.shape[0]))
    for place, shrinkage in enumerate(SHRINKAGES):
        for fold in range(n_folds):
            rows = fold_of != fold
            settings[place, ~rows] = H[~rows] @ combine(H[rows], t[rows], shrinkage)
    scores = folds.of(settings)
    return nested(folds, settings, scores), scores


def clearly_positive(differences: np.ndarray, without: int | None = None, *, errors: float = 1.0) -> bool:
    """Whether the mean over folds is above zero by more than this multiple of its standard error."""
    mean, error = mean_and_error(np.delete(differences, without) if without is not None else differences)
    return bool(mean > errors * error)


def mean_and_error(differences: np.ndarray) -> tuple[float, float]:
    """The mean of what is known and its standard error; NaN where fewer than two are known."""
    d = differences[~np.isnan(differences)]
    return (float(d.mean()), float(d.std(ddof=1) / np.sqrt(d.size))) if d.size > 1 else (np.nan, np.nan)


def _has_pair(y: np.ndarray, groups: Groups) -> np.ndarray:
    """Whether a group has two rows to compare, shape (n_groups,): different targets, or one outlived another."""
    if y.dtype.names is None:
        longest = earliest = y
    else:
        longest = lived_longer(y["time"], y["event"])
        earliest = np.where(y["event"], longest, longest.max())
    starts = groups.starts[:-1]
    return np.asarray(
        np.maximum.reduceat(longest[groups.order], starts)
        > np.minimum.reduceat(earliest[groups.order], starts)
    )
