"""Regularised least squares: Σ (y_i - f(x_i) - intercept)² + alpha ‖f‖²."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from sklearn.base import MultiOutputMixin, RegressorMixin
from sklearn.metrics import r2_score

from ..comparisons import (
    Comparisons,
    Groups,
    PointwiseComparisons,
    QueryComparisons,
    WeightedPairs,
    WeightedRows,
    one_group,
)
from ..comparisons.inputs import (
    read_alpha,
    refuse_weights_of_rows,
    refuse_without_pairs,
)
from ..kernels.functions import n_items, take_items
from ..kernels.inputs import read_items
from ..model_selection._problem import Problem
from ..numerics.namespace import Home, as_host, is_device_array
from .base import SquaredLossModel
from .partial_targets import read_scores_and_pairs


class RLS(MultiOutputMixin, RegressorMixin, SquaredLossModel):
    """Regularised least squares (kernel ridge regression) with an unregularised intercept.

    Minimises Σ_i (y_i - f(x_i) - c)² + alpha ‖f‖² over f in the space of the kernel, and over c when `fit_intercept`.

    Parameters
    ----------
    alpha : float, default=1.0
        Regularisation λ, positive.
    kernel, gamma, degree, coef0, kernel_params, n_basis, basis, random_state, solver, tol, max_iter, verbose
        As in `RankRLS`.
    fit_intercept : bool, default=True
        Whether to add a constant that is not regularised.

    Attributes
    ----------
    coef_, dual_coef_, basis_, basis_indices_, solver_, n_iter_, residual_
        As in `RankRLS`.
    intercept_ : float or ndarray of shape (v,)
        With `fit_intercept`.

    Notes
    -----
    An unregularised intercept is L = I - 1 1ᵀ / m in place of L = I: the same core with another L.
    Reference: Rifkin and Lippert, "Notes on regularized least squares", MIT-CSAIL-TR-2007-025.

    Examples
    --------
    >>> import numpy as np
    >>> from preflearn import RLS
    >>> X = np.arange(6.0).reshape(-1, 1)
    >>> RLS(alpha=1e-6).fit(X, 2 * X.ravel() + 1).predict([[10.0]]).round(3)
    array([21.])
    """

    # A regressor does not compare rows: labels for a splitter or a scorer are not for its own score.
    __metadata_request__score = {"qid": False}

    def __init__(
        self, alpha=1.0, *, kernel="linear", gamma=None, degree=3, coef0=1, kernel_params=None, n_basis=None,
        basis="uniform", random_state=None, fit_intercept=True, solver="auto", tol=None, max_iter=None,
        verbose=0,
    ) -> None:  # fmt: skip
        super().__init__(kernel, gamma, degree, coef0, kernel_params, n_basis, basis, random_state, verbose)
        self.alpha, self.fit_intercept, self.solver, self.tol = alpha, fit_intercept, solver, tol
        self.max_iter = max_iter

    def fit(self, X, y, *, sample_weight=None, pairs=None, magnitude=None, weight=None) -> Self:
        """Learn from one target per row, and optionally from preferences as well.

        Parameters
        ----------
        X : array-like or sparse of shape (m, n), kernel matrix (m, m), or sequence of objects
        y : array-like of shape (m,) or (m, v)
        sample_weight : array-like of shape (m,), optional
            Factor of the squared error of each row, not negative; an integer counts the row that many times.
        pairs : int array of shape (l, 2), optional
            Additional preferences: row ``pairs[k, 0]`` is preferred to row ``pairs[k, 1]``, labelled or not. The term
            Σ_k weight_k (magnitude_k - (f(x_h) - f(x_j)))² is added to the loss, and y may be NaN where unknown.
        magnitude, weight : array-like of shape (l,) or float, optional
            By how much, and the factor of the squared error; 1 by default.

        Returns
        -------
        self
        """
        alpha = read_alpha(self.alpha)
        if pairs is not None:
            refuse_weights_of_rows(sample_weight)
            return self._fit_with_pairs(X, alpha, y, pairs, magnitude, weight)
        refuse_without_pairs(magnitude, weight)
        return self._fit_problem(Problem.read(self, X, y, None, sample_weight), alpha)

    def _fit_problem(self, problem: Problem, alpha: float) -> Self:
        scores: Any = problem.scores
        w: Any = problem.row_weights
        self.__dict__.pop("stream_", None)
        fit = self._train(problem, alpha, with_mean=bool(self.fit_intercept) and w is None)
        intercept = None
        if fit.mean_prediction is not None:
            intercept = scores.mean(axis=0) - fit.mean_prediction
        elif self.fit_intercept:
            f = as_host(self._evaluate(problem.X, problem.kernel)).reshape(scores.shape)
            intercept = w @ (scores - f) / w.sum()
        self._set_intercept(intercept)
        return self

    def fit_stream(self, chunks, *, checkpoint=None, checkpoint_every=None, verbose=None, **reading) -> Self:
        """Learn from more rows than fit in memory, in one pass over chunks of rows.

        Parameters
        ----------
        chunks, checkpoint, checkpoint_every, verbose, **reading
            As in `RankRLS.fit_stream`; a regression ignores the queries of a chunk.

        Returns
        -------
        self

        Examples
        --------
        >>> import numpy as np
        >>> from preflearn import RLS
        >>> X = np.arange(6.0).reshape(-1, 1)
        >>> model = RLS(alpha=1e-6).fit_stream([(X[:4], 2 * X[:4, 0] + 1), (X[4:], 2 * X[4:, 0] + 1)])
        >>> model.predict([[10.0]]).round(3)
        array([21.])
        """
        from .streaming.models import fit_stream

        alpha = read_alpha(self.alpha)
        options = {"checkpoint": checkpoint, "checkpoint_every": checkpoint_every, "verbose": verbose}
        fit_stream(self, chunks, alpha, **options, reading=reading)
        return self

    def _set_intercept(self, intercept: np.ndarray | None) -> None:
        """Store the constant of each output in the type of the coefficients, so that single precision is kept."""
        self.__dict__.pop("intercept_", None)
        if intercept is not None:
            coef = self.coef_ if hasattr(self, "coef_") else self.dual_coef_
            if coef.ndim == 1:
                self.intercept_: Any = float(intercept[0])
            else:
                home = Home.of(coef) if is_device_array(coef) else None
                self.intercept_ = intercept.astype(coef.dtype) if home is None else home.put(intercept)

    def _compare(
        self, scores: np.ndarray, queries: Groups | None = None, row_weights: np.ndarray | None = None
    ) -> list[Comparisons]:
        """L = I, or the centring that belongs to an unregularised intercept; all outputs share it."""
        if row_weights is not None:
            if not self.fit_intercept:
                return [WeightedRows(scores, row_weights)]
            return [WeightedPairs(scores, one_group(scores.shape[0]), row_weights, weighting="item")]
        if not self.fit_intercept:
            return [PointwiseComparisons(scores)]
        return [QueryComparisons(scores, one_group(scores.shape[0]), weighting="item")]

    def _fit_with_pairs(self, X, alpha, y, pairs, magnitude, weight):
        kernel = self._read_kernel()
        X = read_items(self, X, kernel, reset=True)
        data = read_scores_and_pairs(self, y, pairs, magnitude, weight, n_items(X))
        tasks: list[Comparisons] = [data.add_to(task) for task in self._compare(data.scores)]
        self._train(Problem(self, X, kernel, tasks, single=data.single), alpha)
        self._set_intercept(None)
        if self.fit_intercept:
            # The intercept is the mean residual of the labelled rows: preferences do not affect it.
            labelled = take_items(X, data.labelled)
            f = (
                np.asarray(labelled @ self.coef_.T)
                if hasattr(self, "coef_")
                else self._expand(labelled, kernel)
            )
            self._set_intercept((data.scores - f.reshape(data.scores.shape)).mean(axis=0))
        return self

    def score(self, X, y, *, qid=None, sample_weight=None) -> float:
        """R², averaged uniformly over outputs.

        Parameters
        ----------
        X : as in predict
        y : array-like of shape (m,) or (m, v)
        qid : None
            A regressor does not compare rows: a label would be ignored and is refused.
        sample_weight : array-like of shape (m,), optional

        Returns
        -------
        float
        """
        if qid is not None:
            raise ValueError(
                "RLS.score is R² and takes no qid; use preflearn.metrics.concordance(y, model.predict(X), qid)."
            )
        return r2_score(as_host(y), as_host(self.predict(X)), sample_weight=as_host(sample_weight))
