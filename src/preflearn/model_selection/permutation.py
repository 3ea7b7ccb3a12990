"""Is there anything to learn? A permutation test that learns all permutations as outputs of one model."""

from __future__ import annotations

from dataclasses import dataclass, field
from numbers import Integral
from typing import Any

import numpy as np
from sklearn.utils import check_random_state

from ..comparisons import Groups, encode_queries
from ..estimators.validation import read_alpha, read_scores
from ..kernels.functions import n_items
from ..metrics import concordance
from ..solvers.progress import Counter
from .cross_validation import LearningProblem, cross_val_predict, has_closed_form
from .folds import Folds, read_folds
from .scoring import compared_within, settle
from .search import _shuffled_folds


@dataclass(frozen=True)
class PermutationTest:
    """The result of a permutation test.

    Attributes
    ----------
    value : float
        Held-out concordance with the scores as they are.
    p_value : float
        (1 + permutations that reach it) / (1 + permutations).
    permuted : ndarray of shape (n_permutations,)
        Held-out concordance with permuted scores.
    """

    value: float
    p_value: float
    permuted: np.ndarray = field(repr=False)

    def __str__(self) -> str:
        low, high = np.quantile(self.permuted, [0.025, 0.975])
        return (
            f"held-out concordance {self.value:.3f}, p = {self.p_value:.2g} over {self.permuted.shape[0]} permutations "
            f"(permuted scores: mean {self.permuted.mean():.3f}, 95 % between {low:.3f} and {high:.3f})"
        )


def permutation_test(
    estimator, X, y, *, qid=None, n_permutations=1000, cv=None, groups=None, random_state=None, verbose=0
) -> PermutationTest:
    """Test whether held-out concordance is better than with scores permuted (inside queries).

    Parameters
    ----------
    estimator : estimator
        For `RLS` and `RankRLS` all permutations are outputs of one model, held out by algebra; others are refitted for
        every permutation and fold.
    X : as in fit
    y : array-like of shape (m,)
    qid : array-like of shape (m,), optional
        Scores are permuted inside queries, and rows are compared inside queries.
    n_permutations : int, default=1000
    cv : as in cross_val_predict, optional
        Leave-query-out with qid, leave-group-out with groups, else ten folds by default.
    groups : array-like of shape (m,), optional
    random_state : int, RandomState or None
    verbose : int, default=0

    Returns
    -------
    PermutationTest

    Notes
    -----
    The statistic compares rows inside a query and a fold only, where one model predicts them.

    Examples
    --------
    >>> import numpy as np
    >>> from preflearn import RankRLS
    >>> X = np.random.default_rng(0).normal(size=(60, 3))
    >>> permutation_test(RankRLS(), X, X[:, 0], n_permutations=99, random_state=0).p_value
    0.01
    """
    if not isinstance(n_permutations, Integral) or n_permutations < 1:
        raise ValueError(f"n_permutations must be an int of at least 1: found {n_permutations!r}.")
    n_rows = n_items(X)
    scores, _ = read_scores(y, n_rows, estimator=estimator)
    if scores.shape[1] != 1:
        raise ValueError("permutation_test takes one score per row.")
    queries = encode_queries(qid, n_rows)
    folds = read_folds(_default_cv(cv, qid, groups, n_rows), X, scores, n_rows, qid=qid, groups=groups)
    Y = _permuted(scores[:, 0], queries, int(n_permutations), check_random_state(random_state))
    f = settle(_held_out(estimator, X, Y, qid, folds, groups, verbose), scores)
    values = concordance(Y, f, compared_within(folds, queries), per_query=True).values.reshape(-1, Y.shape[1])
    values = np.nanmean(values, axis=0)
    reached = int(np.count_nonzero(values[1:] >= values[0] - 1e-12))
    return PermutationTest(float(values[0]), (1 + reached) / (1 + int(n_permutations)), values[1:])


def _default_cv(cv: Any, qid: Any, groups: Any, n_rows: int) -> Any:
    if cv is not None:
        return cv
    if qid is not None:
        return "leave-query-out"
    return "leave-group-out" if groups is not None else _shuffled_folds(n_rows)


def _permuted(y: np.ndarray, queries: Groups, n_permutations: int, rng) -> np.ndarray:
    """The scores as they are, then permuted inside queries, one column each."""
    generator = np.random.default_rng(rng.randint(np.iinfo(np.int32).max))
    Y = np.repeat(y[None, :], n_permutations + 1, axis=0)
    for query in range(queries.n_groups):
        rows = queries.rows(query)
        Y[1:, rows] = y[rows[_permutations(n_permutations, rows.shape[0], generator)]]
    return np.ascontiguousarray(Y.T)


def _permutations(number: int, size: int, generator: np.random.Generator) -> np.ndarray:
    """Random permutations of 0 ... size - 1, one in a row, by sorting random keys that carry their place."""
    bits = max(1, int(size - 1).bit_length())
    places = (1 << bits) - 1
    keys = generator.integers(0, np.iinfo(np.uint64).max, (number, size), dtype=np.uint64, endpoint=True)
    keys &= np.uint64(np.iinfo(np.uint64).max - places)
    keys |= np.arange(size, dtype=np.uint64)
    keys.sort(axis=1)
    keys &= np.uint64(places)
    return keys.view(np.int64)


def _held_out(estimator, X, Y, qid, folds: Folds, groups, verbose) -> np.ndarray:
    if has_closed_form(estimator):
        problem = LearningProblem.read(estimator, X, Y, qid)
        return problem.held_out(folds, [read_alpha(estimator.alpha)])[0]
    counter = Counter("permutation_test", Y.shape[1], "permutations", verbose)
    f = np.empty_like(Y)
    for k in range(Y.shape[1]):
        f[:, k] = cross_val_predict(estimator, X, Y[:, k], qid=qid, cv=folds.tests, groups=groups)
        counter(k + 1)
    return f
