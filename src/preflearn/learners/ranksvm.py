"""RankSVM: hinge or squared hinge over the pairs of each query, or over explicit preferences.

min  Σ over pairs, row j better than row i, of  max(1 - (f(x_j) - f(x_i)), 0)^r + alpha ‖f‖²,    r = 1 or 2
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from ..comparisons import Groups, encode_queries
from ..comparisons.inputs import (
    compare_times,
    named_cures,
    read_alpha,
    read_pairs,
    read_per_pair,
    read_row_weights,
    read_scores,
)
from ..kernels.functions import Kernel, n_items
from ..kernels.inputs import read_items
from ..kernels.maps import EmpiricalKernelMap, NystromMap
from ..losses.newton import MINIMISERS, Features, PairLossFit, PairObjective, check_newton_options
from ..losses.pairs import CensoredPairs, ListedPairs, PairSet, ScoredPairs
from ..model_selection._folds import shuffled_folds
from ..model_selection._learner import PathLearner, read_censored
from ..numerics.namespace import as_host
from ..squared.holdout.base import rows_outside
from ..squared.routes import callers_level
from .base import KernelModel, RankerMixin
from .search import AlphaSearch

_WEIGHTINGS = ("pair", "item", "query")
_FOLDS = 5


@dataclass
class _Representation:
    """Features Φ on which the kernel machine is a linear one, and how to get back to the basis vectors."""

    features: Any
    kernel: Kernel
    map: NystromMap | None

    def without(self, rows: np.ndarray) -> Any:
        """Features of all items where rows leave: basis vectors among them leave the map.

        Of the full kernel the features of the rows that stay are those of their own kernel.
        """
        if self.map is None or isinstance(self.map, EmpiricalKernelMap):
            return self.features
        return self.map.without(rows, features=self.features)[1]


class _PairLossModel(RankerMixin, KernelModel, PathLearner):
    """What RankSVM and RankSVMCV share: options, features, and the attributes of a solution."""

    def _read_options(self) -> None:
        if self.loss not in MINIMISERS:
            raise ValueError(f"loss must be 'hinge' or 'squared_hinge': found {self.loss!r}.")
        if self.weighting not in _WEIGHTINGS:
            raise ValueError(f"weighting must be 'pair', 'item' or 'query': found {self.weighting!r}.")
        check_newton_options(self.tol, self.max_iter)

    def _represent(self, X: Any, kernel: Kernel) -> _Representation:
        """X itself for the linear kernel; Nyström features for a reduced set; a factor of K otherwise."""
        reduced = self._reduced_set(X, kernel)
        if reduced is not None:
            return _Representation(reduced.map_items(X, kernel), kernel, reduced)
        if kernel.is_linear:
            return _Representation(X, kernel, None)
        whole = EmpiricalKernelMap().fit_items(X, kernel)
        return _Representation(np.ascontiguousarray(whole.factor_.F), kernel, whole)

    def _score_pairs(
        self, scores: np.ndarray, queries: Groups, row_weights: np.ndarray | None = None
    ) -> list[PairSet]:
        """The pairs of each output."""
        pairs: list[PairSet] = [
            ScoredPairs(np.ascontiguousarray(column), queries, self.weighting, row_weights=row_weights)
            for column in scores.T
        ]
        if any(task.n_pairs == 0 for task in pairs):
            rows = "rows" if row_weights is None else "rows with a weight above 0"
            raise ValueError(
                f"No two {rows} of the same query have different scores, so there is no pair to learn from "
                f"(n_samples={queries.n_rows}, {queries.n_groups} queries): check y and qid."
            )
        return pairs

    def _time_pairs(
        self,
        times: np.ndarray,
        events: np.ndarray,
        queries: Groups,
        row_weights: np.ndarray | None = None,
    ) -> PairSet:
        options = {"weighting": self.weighting, "row_weights": row_weights}
        return CensoredPairs(compare_times(times, events, queries, **options))

    def _solve(
        self, features: Any, pairs: PairSet, alpha: float, start: np.ndarray | None = None
    ) -> PairLossFit:
        with self._more_stages()(f"{self.loss} over {pairs.n_pairs} pairs, alpha = {alpha:g}") as stage:
            return MINIMISERS[self.loss](
                PairObjective(features, pairs),
                alpha,
                tol=self.tol,
                max_iter=self.max_iter,
                start=start,
                report=stage.iteration,
            )

    def _automatic_alphas(self, representation: _Representation, pairs: Sequence[PairSet]) -> np.ndarray:
        """Nine powers of ten, from 1e-7 to 10 times the trace of the Hessian at 0."""
        total = 0.0
        for task in pairs:
            at_zero = task.violations(np.zeros(task.n_rows))
            total += float(
                Features(representation.features).squared_sums(at_zero.worse + at_zero.better).sum()
            )
        return max(total / len(pairs), np.finfo(float).tiny) * np.logspace(-7, 1, 9)

    def _predict_path(
        self, representation: _Representation, left: np.ndarray, pairs: Sequence[PairSet], alphas: np.ndarray
    ) -> np.ndarray:
        features = representation.without(left)
        training, new = features[rows_outside(features.shape[0], left)], features[left]
        outputs = [np.asarray(new @ self._weights_path(training, task, alphas).T).T for task in pairs]
        return np.stack(outputs, axis=2)

    def _function_path(
        self, representation: _Representation, pairs: PairSet, alphas: np.ndarray
    ) -> np.ndarray:
        weights = self._weights_path(representation.features, pairs, alphas)
        return np.asarray(representation.features @ weights.T).T

    def _weights_path(self, features: Any, pairs: PairSet, alphas: np.ndarray) -> np.ndarray:
        """Weights of the features at every alpha, trained from the largest alpha down, shape (n_alphas, n)."""
        found: list[Any] = [None] * alphas.shape[0]
        weights = None
        for k in np.argsort(-alphas):
            fit = self._solve(features, pairs, float(alphas[k]), weights)
            if not fit.converged:
                self._warn_not_converged(fit, float(alphas[k]))
            found[k] = weights = fit.weights
        return np.stack(found)

    def _set_solution(
        self, X: Any, representation: _Representation, fits: Sequence[PairLossFit], alpha: float, single: bool
    ) -> None:
        self._set_fits(fits, representation.map, alpha, single)

    def _set_fits(
        self, fits: Sequence[PairLossFit], feature_map: NystromMap | None, alpha: float, single: bool
    ) -> None:
        """The attributes of a solution, one fit per output."""
        weights = np.stack([fit.weights for fit in fits], axis=1)
        if feature_map is None:
            self._set_function(weights, None, None, None, single)
        else:
            basis = feature_map.basis_
            self._set_function(None, feature_map.expand(weights), feature_map.basis_indices_, basis, single)
        self.objective_ = _one_or_all([fit.objective for fit in fits], single)
        self.duality_gap_ = _one_or_all([fit.gap for fit in fits], single)
        self.gradient_norm_ = _one_or_all([fit.gradient_norm for fit in fits], single)
        self.n_iter_ = max(1, *(fit.n_iter for fit in fits))
        self.n_evaluations_ = sum(fit.n_evaluations for fit in fits)
        for fit in fits:
            if not fit.converged:
                self._warn_not_converged(fit, alpha)

    def _warn_not_converged(self, fit: PairLossFit, alpha: float) -> None:
        warnings.warn(
            f"{type(self).__name__} (loss={self.loss!r}, alpha={alpha:g}) stopped after {fit.n_iter} Newton steps "
            f"at an objective of {fit.objective:.6g} with a duality gap of {fit.gap:.2g}: raise max_iter "
            f"(now {self.max_iter}) or tol (now {self.tol:g}), scale the features, or use a larger alpha.",
            ConvergenceWarning,
            stacklevel=callers_level(),
        )


class RankSVM(_PairLossModel):
    """Support vector machine for ranking: hinge or squared hinge over untied pairs of the same query.

    Minimises Σ max(1 - (f(x_j) - f(x_i)), 0)^r over the pairs with y_j > y_i, plus alpha ‖f‖², with r = 2 for
    ``loss="squared_hinge"`` and r = 1 for ``loss="hinge"``, in O(m log m + nnz(X)) for each evaluation however
    many distinct scores there are: pairs are never enumerated.

    Parameters
    ----------
    alpha : float, default=1.0
        Regularisation λ, positive. The loss is a sum over pairs: with weighting "pair" a query of n distinct scores
        counts n (n - 1) / 2.
    kernel, gamma, degree, coef0, kernel_params, n_basis, random_state : as in RankRLS
    basis : "uniform" or array of int, default="uniform"
        How the basis vectors are chosen; row numbers as in `RankRLS`.
    loss : {"squared_hinge", "hinge"}, default="squared_hinge"
        The squared hinge is smooth and takes a handful of Newton steps. The hinge takes two to three times as long.
    weighting : {"pair", "item", "query"}, default="pair"
        Every pair counts once; the pairs of a query of n_q rows are scaled by 1 / n_q; or every query has the same
        total.
    tol : float, default=1e-4
        Relative accuracy of the objective. The hinge stops at this duality gap; the squared hinge also when a Newton
        step is predicted to gain less than this (the step is taken, and the result is usually far more accurate).
    max_iter : int, default=200
        Newton steps.
    verbose : int, default=0
        Print each stage with its time.

    Attributes
    ----------
    coef_, dual_coef_, basis_, basis_indices_ : as in RankRLS
    objective_ : float or ndarray of shape (v,)
        Sum of the losses plus alpha ‖f‖² at the solution.
    duality_gap_ : float or ndarray of shape (v,)
        The objective is at most this much above the minimum.
    gradient_norm_ : float or ndarray of shape (v,)
        Norm of the gradient in feature space, of the smoothed loss for the hinge.
    n_iter_ : int
        Newton steps (the maximum over outputs).
    n_evaluations_ : int
        Evaluations of loss and gradient and products with the Hessian, of all outputs.
    n_queries_ : int
    n_comparisons_ : int
        Untied pairs inside queries (of all outputs, of rows whose weight is not 0), or preferences.

    Notes
    -----
    Linear: O(m log m + nnz(X)) for each of about 10 to 60 evaluations. Full kernel: m² kernel evaluations and O(m³) for
    the factor of K. Reduced set: O(m r²), then O(m r + m log m) for an evaluation. Preferences: O(l + nnz(X)).
    With weights of rows, losses take two to three times as long to evaluate, and products with their Hessian no longer.

    The order-statistic structure over the scores that makes an evaluation linearithmic for any number of distinct
    scores is described in ``losses._loops``, the method in ``losses.newton``.

    References
    ----------
    Airola, Pahikkala and Salakoski, "Training linear ranking SVMs in linearithmic time using red-black trees", Pattern
    Recognition Letters 32 (2011). Lee and Lin, "Large-scale linear RankSVM", Neural Computation 26 (2014).

    Examples
    --------
    >>> import numpy as np
    >>> from preflearn import RankSVM
    >>> rng = np.random.default_rng(0)
    >>> X, qid = rng.normal(size=(60, 3)), np.repeat(np.arange(6), 10)
    >>> y = X @ [1.0, -2.0, 0.5] + 5 * qid
    >>> model = RankSVM(alpha=0.1).fit(X, y, qid=qid)
    >>> model.score(X, y, qid=qid)
    1.0
    """

    def __init__(
        self, alpha=1.0, *, kernel="linear", gamma=None, degree=3, coef0=1, kernel_params=None, n_basis=None,
        basis="uniform", random_state=None, loss="squared_hinge", weighting="pair", tol=1e-4, max_iter=200,
        verbose=0,
    ) -> None:  # fmt: skip
        super().__init__(kernel, gamma, degree, coef0, kernel_params, n_basis, basis, random_state, verbose)
        self.alpha, self.loss, self.weighting, self.tol, self.max_iter = alpha, loss, weighting, tol, max_iter

    __metadata_request__fit = {"qid": True, "event": True}

    @named_cures
    def fit(self, X, y, *, qid=None, event=None, sample_weight=None) -> Self:
        """Learn from scores inside queries, or from censored times.

        Parameters
        ----------
        X : array-like or sparse of shape (m, n), kernel matrix (m, m), or sequence of objects
        y : array-like of shape (m,) or (m, v)
            Scores, higher is better; tied rows are not compared.
        qid : array-like of shape (m,), optional
            Query labels, any hashable values in any order; without them all rows are one query (a global ranking).
        event : array-like of bool, shape (m,), optional
            As in `RankRLS.fit`: y holds times, and the pairs are those of a row whose event was seen and one that lived
            longer.
        sample_weight : array-like of shape (m,), optional
            Weights of the rows, not negative: a pair counts with the product of those of its rows. Weighting "item"
            then divides by the total weight of a query, "query" by that of its pairs.

        Returns
        -------
        self
        """
        alpha = read_alpha(self.alpha)
        self._read_options()
        kernel = self._read_kernel()
        X = read_items(self, X, kernel, reset=True)
        y, events = read_censored(self, X, y, event)
        scores, single = read_scores(y, n_items(X), estimator=self)
        queries = encode_queries(qid, n_items(X))
        weights = read_row_weights(sample_weight, n_items(X))
        if events is None:
            pairs = self._score_pairs(scores, queries, weights)
        else:
            pairs = [self._time_pairs(scores, events, queries, weights)]
        return self._fit(X, kernel, pairs, alpha, single, queries.n_groups)

    def fit_pairs(self, X, pairs, *, weight=None) -> Self:
        """Learn from comparisons without scores.

        Minimises Σ_k weight_k max(1 - (f(x_h) - f(x_j)), 0)^r + alpha ‖f‖² over the pairs k = (h, j).

        Parameters
        ----------
        X : as in fit
        pairs : int array of shape (l, 2)
            Row ``pairs[k, 0]`` is preferred to row ``pairs[k, 1]``.
        weight : array-like of shape (l,) or float, optional
            Factor of the pair's loss; 1 by default.

        Returns
        -------
        self

        Notes
        -----
        O(l + nnz(X)) for each evaluation.

        Examples
        --------
        >>> from preflearn import RankSVM
        >>> RankSVM().fit_pairs([[0.0], [1.0], [2.0]], [[2, 1], [1, 0]]).rank([[0.0], [3.0]])
        array([2, 1])
        """
        alpha = read_alpha(self.alpha)
        self._read_options()
        if self.weighting != "pair":
            raise ValueError(
                f"fit_pairs has no queries, so weighting={self.weighting!r} would be ignored: leave it at 'pair' and "
                "use weight."
            )
        kernel = self._read_kernel()
        X = read_items(self, X, kernel, reset=True)
        pairs = read_pairs(pairs, n_items(X))
        weight = read_per_pair(weight, pairs.shape[0], "weight", positive=True)
        return self._fit(X, kernel, [ListedPairs(n_items(X), pairs, weight)], alpha, True, 1)

    def _fit(
        self, X: Any, kernel: Kernel, pairs: Sequence[PairSet], alpha: float, single: bool, n_queries: int
    ) -> RankSVM:
        with self._more_stages()("features"):
            representation = self._represent(X, kernel)
        return self._fit_represented(X, representation, pairs, alpha, single, n_queries)

    def _fit_represented(
        self,
        X: Any,
        representation: _Representation,
        pairs: Sequence[PairSet],
        alpha: float,
        single: bool,
        n_queries: int,
    ) -> RankSVM:
        fits = [self._solve(representation.features, task, alpha) for task in pairs]
        self._set_solution(X, representation, fits, alpha, single)
        self.n_queries_ = n_queries
        self.n_comparisons_ = sum(task.n_pairs for task in pairs)
        return self


class RankSVMCV(AlphaSearch, _PairLossModel):
    """RankSVM with alpha chosen by cross-validation.

    Each fold is trained along the path from the largest to the smallest alpha, each solution being the start of the
    next, so that a path costs little more than its hardest problem.

    Parameters
    ----------
    alphas : "auto" or array-like, default="auto"
        Candidates. "auto": nine powers of ten scaled to the data, from 1e-7 to 10 times the trace of the Hessian at 0.
    cv : str, int, splitter, iterable or None, default=None
        As in `RankRLSCV`; None is five folds, of whole queries when qid is given (of whole groups with groups).
    scoring : str, scorer, callable or None, default=None
        As in `RankRLSCV`; None is the concordance.
    keep_predictions : bool, default=False
        Keep the held-out predictions in ``cv_predictions_``.
    kernel, gamma, degree, coef0, kernel_params, n_basis, basis, random_state, loss, weighting, tol, max_iter, verbose
        As in `RankSVM`. Basis vectors are drawn once, from all rows; those in a fold leave the model with it.

    Attributes
    ----------
    alpha_ : float
        The chosen alpha; the largest of equally good ones.
    alphas_ : ndarray of shape (a,)
        The candidates, as given.
    cv_scores_ : ndarray of shape (a,)
        As in `RankRLSCV`: the score of all held-out predictions, rows compared inside their query and fold.
    fold_scores_ : ndarray of shape (a, k)
        The score of each fold separately, NaN where it is not defined.
    best_score_, estimate_ : as in RankRLSCV
    cv_predictions_ : ndarray of shape (a, m)
        With `keep_predictions`; after `fit_pairs` the held-out differences, shape (a, l).
    coef_, dual_coef_, basis_, basis_indices_, objective_, duality_gap_, gradient_norm_, n_iter_, n_evaluations_,
    n_queries_, n_comparisons_
        Of the model fitted on all rows with `alpha_`, as in `RankSVM`.

    Examples
    --------
    >>> import numpy as np
    >>> from preflearn import RankSVMCV
    >>> rng = np.random.default_rng(0)
    >>> X, qid = rng.normal(size=(80, 3)), np.repeat(np.arange(8), 10)
    >>> y = X @ [1.0, -2.0, 0.5] + rng.normal(size=80) + 5 * qid
    >>> model = RankSVMCV(cv=4).fit(X, y, qid=qid)
    >>> model.best_score_ > 0.75
    True
    """

    def __init__(
        self, alphas="auto", *, cv=None, scoring=None, keep_predictions=False, kernel="linear", gamma=None,
        degree=3, coef0=1, kernel_params=None, n_basis=None, basis="uniform", random_state=None,
        loss="squared_hinge", weighting="pair", tol=1e-4, max_iter=200, verbose=0,
    ) -> None:  # fmt: skip
        super().__init__(kernel, gamma, degree, coef0, kernel_params, n_basis, basis, random_state, verbose)
        self.alphas, self.cv, self.scoring, self.keep_predictions = alphas, cv, scoring, keep_predictions
        self.loss, self.weighting, self.tol, self.max_iter = loss, weighting, tol, max_iter

    _learner = RankSVM

    __metadata_request__fit = {"qid": True, "event": True}

    @named_cures
    def fit(self, X, y, *, qid=None, groups=None, event=None, sample_weight=None) -> Self:
        """Choose alpha by cross-validation, then learn from all rows.

        Parameters
        ----------
        X, y, qid, event : as in RankSVM.fit; y of shape (m,)
        groups, sample_weight : as in RankRLSCV.fit

        Returns
        -------
        self
        """
        shape = np.asarray(as_host(y)).shape
        if len(shape) == 2 and shape[1] > 1:
            raise ValueError(
                f"RankSVMCV chooses alpha for one output: found y with {shape[1]} columns. Fit each separately."
            )
        held, found = self._search_rows(X, y, qid, groups, sample_weight, event)
        if found.folds is not None:
            self.fold_scores_ = held.fold_scores(found, self.scoring)
        problem: Any = held.problem
        self._adopt(
            problem.estimator._fit_represented(
                problem.X,
                problem.representation,
                problem.pairs(),
                self.alpha_,
                True,
                problem.queries.n_groups,
            )
        )
        return self

    def fit_pairs(self, X, pairs, *, magnitude=None, weight=None, groups=None) -> Self:
        """Choose alpha by held-out preferences, then learn from all of them.

        Parameters
        ----------
        X, pairs, weight : as in RankSVM.fit_pairs
        magnitude : None
            The margin of a hinge is always 1: magnitudes would be ignored and are refused.
        groups : as in RankRLSCV.fit_pairs

        Returns
        -------
        self

        Notes
        -----
        `cv` and `scoring` as in `RankRLSCV.fit_pairs`; every set of held-out preferences is a path of trainings, so
        ``cv=None`` (each by itself) is for few preferences.

        Examples
        --------
        >>> from preflearn import RankSVMCV
        >>> pairs = [[1, 0], [2, 1], [3, 2], [3, 0]]
        >>> RankSVMCV([0.1, 1.0]).fit_pairs([[0.0], [1.0], [2.0], [3.0]], pairs).best_score_
        1.0
        """
        if magnitude is not None:
            raise ValueError(
                "RankSVM does not use magnitude, which would be ignored: leave it out, or use RankRLSCV."
            )
        self._search_pairs(X, pairs, weight=weight, groups=groups)
        self._adopt(self._plain({}, self.alpha_).fit_pairs(X, pairs, weight=weight))
        return self

    def _cv(self, n_rows: int, qid: Any, groups: Any) -> Any:
        if self.cv is not None:
            return self.cv
        return shuffled_folds(n_rows, _FOLDS) if qid is None and groups is None else _FOLDS

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = False
        return tags


def _one_or_all(values: Sequence[float], single: bool) -> Any:
    return values[0] if single else np.array(values)
