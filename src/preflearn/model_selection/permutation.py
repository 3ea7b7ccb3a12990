"""Is there anything to learn? A permutation test that learns all permutations as outputs of one model."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from numbers import Integral
from typing import Any

import numpy as np
from sklearn.utils import check_random_state

from .._engine.loops.threads import blas_at_rest
from .._engine.solvers.progress import Counter
from ..comparisons import Groups, encode_queries
from ..comparisons.inputs import read_scores
from ..kernels.functions import n_items
from ..metrics import concordance
from ..metrics.pairwise import columns_of
from ..plots import on_axes
from ..shown_tables import shows_itself
from ._choice import compared_within
from ._folds import Folds, default_cv, read_folds
from ._held_out import HeldOut
from ._problem import has_closed_form

# Number of permuted scores that are processed together: enough for the matrix products, within a bound on memory.
_NUMBERS = 1 << 20
_LEAST_OUTPUTS = 64
# Up to this many rows the threads of BLAS cost more than they gain, between loops that need the processors.
_FEW_ROWS = 1536


@shows_itself
@dataclass(frozen=True)
class PermutationTest:
    """The result of a permutation test.

    Attributes
    ----------
    value : float
        Held-out concordance with the original scores.
    pvalue : float
        (1 + permutations that reach it) / (1 + permutations).
    permuted : ndarray of shape (n_permutations,)
        Held-out concordance with permuted scores.
    """

    value: float
    pvalue: float
    permuted: np.ndarray = field(repr=False)

    def __str__(self) -> str:
        low, high = np.quantile(self.permuted, [0.025, 0.975])
        return (
            f"held-out concordance {self.value:.3f}, p = {self.pvalue:.2g} over {self.permuted.shape[0]} permutations "
            f"(permuted scores: mean {self.permuted.mean():.3f}, 95 % between {low:.3f} and {high:.3f})"
        )

    @on_axes
    def plot(self, ax: Any) -> None:
        """The histogram of the permuted scores, and the one found."""
        ax.hist(self.permuted, bins=30, color="C7", label="scores permuted")
        ax.axvline(self.value, color="C1", label=f"original: {self.value:.3f}, p = {self.pvalue:.2g}")
        ax.set(xlabel="held-out concordance", ylabel="permutations")
        ax.legend(frameon=False)


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
    The statistic compares rows only inside a query and a fold, where one model predicts them.

    Examples
    --------
    >>> import numpy as np
    >>> from preflearn import RankRLS
    >>> X = np.random.default_rng(0).normal(size=(60, 3))
    >>> permutation_test(RankRLS(), X, X[:, 0], n_permutations=99, random_state=0).pvalue
    0.01
    """
    if not isinstance(n_permutations, Integral) or n_permutations < 1:
        raise ValueError(f"n_permutations must be an int of at least 1: found {n_permutations!r}.")
    n_rows = n_items(X)
    scores, _ = read_scores(y, n_rows, estimator=estimator)
    if scores.shape[1] != 1:
        raise ValueError("permutation_test takes one score per row.")
    queries = encode_queries(qid, n_rows)
    cv = default_cv(n_rows, qid=qid, groups=groups) if cv is None else cv
    folds = read_folds(cv, X, scores[:, 0], n_rows, qid=qid, groups=groups)
    Y = _permuted(scores[:, 0], queries, int(n_permutations), check_random_state(random_state))
    within = encode_queries(compared_within(folds, queries), n_rows)
    with blas_at_rest(n_rows <= _FEW_ROWS):
        values = np.concatenate(
            [
                concordance(Y[:, outputs], f, within, per_query=True).means
                for outputs, f in _held_out(estimator, X, Y, qid, folds, groups, verbose)
            ]
        )
    reached = int(np.count_nonzero(values[1:] >= values[0] - 1e-12))
    return PermutationTest(float(values[0]), (1 + reached) / (1 + int(n_permutations)), values[1:])


def _permuted(y: np.ndarray, queries: Groups, n_permutations: int, rng) -> np.ndarray:
    """The original scores, then permuted inside queries, one column each."""
    generator = np.random.default_rng(rng.randint(np.iinfo(np.int32).max))
    Y = np.empty((n_permutations + 1, y.shape[0]))
    Y[0] = y
    for query in range(queries.n_groups):
        rows = queries.rows(query)
        size = rows.shape[0]
        together = slice(rows[0], rows[0] + size) if rows[-1] - rows[0] + 1 == size else rows
        Y[1:, together] = y[rows][_permutations(n_permutations, size, generator)]
    return columns_of(Y, np.arange(n_permutations + 1))


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


def _held_out(estimator, X, Y, qid, folds: Folds, groups, verbose) -> Iterator[tuple[slice, np.ndarray]]:
    """Held-out predictions to compare, some outputs at a time, from one factorisation where possible."""
    at_once = max(_LEAST_OUTPUTS, _NUMBERS // Y.shape[0]) if has_closed_form(estimator) else 1
    counter = Counter("permutation_test", Y.shape[1], "permutations", verbose)
    held = HeldOut(estimator, X, Y[:, 0], qid=qid, groups=groups).for_order()
    for start in range(0, Y.shape[1], at_once):
        outputs = slice(start, min(start + at_once, Y.shape[1]))
        targets = np.ascontiguousarray(Y[:, outputs])
        held = held.with_targets(targets if targets.shape[1] > 1 else targets[:, 0])
        yield outputs, held.predict(folds.tests)[0].reshape(targets.shape)
        counter(outputs.stop)
