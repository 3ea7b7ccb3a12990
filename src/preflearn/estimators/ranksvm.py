"""RankSVM: hinge or squared hinge over the pairs of each query, or over explicit preferences.

min  Σ over pairs, row j better than row i, of  max(1 - (f(x_j) - f(x_i)), 0)^r + alpha ‖f‖²,    r = 1 or 2
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import KFold, check_cv

from ..comparisons import Groups, encode_queries
from ..kernels.functions import Kernel, n_items, take_items
from ..kernels.inputs import read_items
from ..kernels.maps import NystromMap
from ..losses.pairs import ListedPairs, PairSet, ScoredPairs
from ..solvers.newton import MINIMISERS, Features, PairLossFit, PairObjective
from .base import KernelModel, RankerMixin
from .validation import read_alpha, read_pairs, read_per_pair, read_scores

_WEIGHTINGS = ("pair", "item", "query")


@dataclass
class _Representation:
    """Features Φ on which the kernel machine is a linear one, and the way back to the basis vectors."""

    features: Any
    kernel: Kernel
    map: NystromMap | None

    def of(self, X: Any) -> Any:
        """Features of other items."""
        return X if self.map is None else self.map._features(X, self.kernel)


class _PairLossModel(RankerMixin, KernelModel):
    """What RankSVM and RankSVMCV share: options, features, and the attributes of a solution."""

    def _read_options(self) -> None:
        if self.loss not in MINIMISERS:
            raise ValueError(f"loss must be 'hinge' or 'squared_hinge': found {self.loss!r}.")
        if self.weighting not in _WEIGHTINGS:
            raise ValueError(f"weighting must be 'pair', 'item' or 'query': found {self.weighting!r}.")
        if isinstance(self.tol, bool) or not isinstance(self.tol, Real) or not 0 < float(self.tol) < 1:
            raise ValueError(
                f"tol is the relative accuracy of the objective, between 0 and 1: found {self.tol!r}."
            )
        if isinstance(self.max_iter, bool) or not isinstance(self.max_iter, Integral) or self.max_iter < 1:
            raise ValueError(f"max_iter must be an int of at least 1: found {self.max_iter!r}.")

    def _represent(self, X: Any, kernel: Kernel) -> _Representation:
        """X itself for the linear kernel; Nyström features for a reduced set; a factor of K otherwise."""
        reduced = self._reduced_set(X, kernel)
        if reduced is not None:
            return _Representation(reduced._features(X, kernel), kernel, reduced)
        if kernel.is_linear:
            return _Representation(X, kernel, None)
        options = {name: getattr(self, name) for name in ("gamma", "degree", "coef0", "kernel_params")}
        whole = NystromMap(self.kernel, **options)._fit_items(X, kernel)
        return _Representation(np.ascontiguousarray(whole.factor_.F), kernel, whole)

    def _score_pairs(self, scores: np.ndarray, queries: Groups) -> list[PairSet]:
        """The pairs of each output."""
        pairs: list[PairSet] = [
            ScoredPairs(np.ascontiguousarray(column), queries, self.weighting) for column in scores.T
        ]
        if any(task.n_pairs == 0 for task in pairs):
            raise ValueError(
                "No two rows of the same query have different scores, so there is no pair to learn from "
                f"(n_samples={queries.n_rows}, {queries.n_groups} queries): check y and qid."
            )
        return pairs

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
            stacklevel=5,
        )


class RankSVM(_PairLossModel):
    """Support vector machine for ranking: hinge or squared hinge over untied pairs of the same query.

    Minimises Σ max(1 - (f(x_j) - f(x_i)), 0)^r over the pairs with y_j > y_i, plus alpha ‖f‖², with r = 2 for
    ``loss="squared_hinge"`` and r = 1 for ``loss="hinge"``, in O(m log m + nnz(X)) for each evaluation however
    many distinct scores there are: no pair is ever written down.

    Parameters
    ----------
    alpha : float, default=1.0
        Regularisation λ, positive. The loss is a sum over pairs: with weighting "pair" a query of n distinct scores
        counts n (n - 1) / 2.
    kernel : str or callable, default="linear"
        A name of ``sklearn.metrics.pairwise.pairwise_kernels``, ``"precomputed"``, or a function of two items.
    gamma, degree, coef0, kernel_params
        Parameters of the kernel; one that the kernel does not take is refused.
    n_basis : None, int or float, default=None
        Number of basis vectors of the reduced set, or their fraction of the rows; None for the full kernel.
    basis : "uniform" or array of int, default="uniform"
        How the basis vectors are chosen.
    random_state : int, RandomState or None
        For the draw of basis vectors.
    loss : {"squared_hinge", "hinge"}, default="squared_hinge"
        The squared hinge is smooth and takes a handful of Newton steps. The hinge takes two to three times as long.
    weighting : {"pair", "item", "query"}, default="pair"
        Every pair once; the pairs of a query of n_q rows scaled by 1 / n_q; or every query the same total.
    tol : float, default=1e-4
        Relative accuracy of the objective. The hinge stops at this duality gap; the squared hinge also when a Newton
        step promises less than this (the step is taken, and the result is usually far more accurate).
    max_iter : int, default=200
        Newton steps.
    verbose : int, default=0
        Print each stage with its time.

    Attributes
    ----------
    coef_ : ndarray of shape (n,) or (v, n)
        Linear kernel without a reduced set.
    dual_coef_ : ndarray of shape (r,) or (r, v)
        Otherwise: coefficients of the basis vectors.
    basis_, basis_indices_
        The basis vectors (None for a precomputed kernel) and their rows in the training data.
    objective_ : float or ndarray of shape (v,)
        Sum of the losses plus alpha ‖f‖² at the solution.
    duality_gap_ : float or ndarray of shape (v,)
        The objective is at most this much above the minimum.
    gradient_norm_ : float or ndarray of shape (v,)
        Norm of the gradient in feature space, of the rounded-off loss for the hinge.
    n_iter_ : int
        Newton steps (the most of any output).
    n_evaluations_ : int
        Evaluations of loss and gradient and products with the Hessian, of all outputs.
    n_queries_ : int
    n_comparisons_ : int
        Untied pairs inside queries (of all outputs), or preferences.

    Notes
    -----
    Linear: O(m log m + nnz(X)) for each of some 10 to 60 evaluations. Full kernel: m² kernel evaluations and O(m³) for
    the factor of K. Reduced set: O(m r²), then O(m r + m log m) for an evaluation. Preferences: O(l + nnz(X)).

    The order-statistic structure over the scores that makes an evaluation linearithmic for any number of distinct
    scores is described in ``preflearn.loops.pairstats``, the method in ``preflearn.solvers.newton``.

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
        self,
        alpha=1.0,
        *,
        kernel="linear",
        gamma=None,
        degree=3,
        coef0=1,
        kernel_params=None,
        n_basis=None,
        basis="uniform",
        random_state=None,
        loss="squared_hinge",
        weighting="pair",
        tol=1e-4,
        max_iter=200,
        verbose=0,
    ):
        self.alpha = alpha
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.kernel_params = kernel_params
        self.n_basis = n_basis
        self.basis = basis
        self.random_state = random_state
        self.loss = loss
        self.weighting = weighting
        self.tol = tol
        self.max_iter = max_iter
        self.verbose = verbose

    def fit(self, X, y, *, qid=None):
        """Learn from scores inside queries.

        Parameters
        ----------
        X : array-like or sparse of shape (m, n), kernel matrix (m, m), or sequence of objects
        y : array-like of shape (m,) or (m, v)
            Scores, higher is better; tied rows are not compared.
        qid : array-like of shape (m,), optional
            Query labels, any hashable values in any order; one query (a global ranking) without.

        Returns
        -------
        self
        """
        alpha = read_alpha(self.alpha)
        self._read_options()
        kernel = self._read_kernel()
        X = read_items(self, X, kernel, reset=True)
        scores, single = read_scores(y, n_items(X), estimator=self)
        queries = encode_queries(qid, n_items(X))
        return self._fit(X, kernel, self._score_pairs(scores, queries), alpha, single, queries.n_groups)

    def fit_pairs(self, X, pairs, *, weight=None):
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
                f"fit_pairs knows no queries, so weighting={self.weighting!r} would be ignored: leave it at 'pair' and "
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
        fits = [self._solve(representation.features, task, alpha) for task in pairs]
        self._set_solution(X, representation, fits, alpha, single)
        self.n_queries_ = n_queries
        self.n_comparisons_ = sum(task.n_pairs for task in pairs)
        return self


class RankSVMCV(_PairLossModel):
    """RankSVM with alpha chosen by cross-validation over whole queries.

    Each fold is trained along the path from the largest to the smallest alpha, every solution the start of the next,
    so that a path costs little more than its hardest problem.

    Parameters
    ----------
    alphas : "auto" or array-like, default="auto"
        Candidates. "auto": nine powers of ten scaled to the data, from 1e-7 to 10 times the trace of the Hessian at 0.
    cv : int, splitter or iterable of (train, test), optional
        An int (5 by default): folds of whole queries (`preflearn.model_selection.QueryKFold`) when qid is
        given, of rows without.
    scoring : str or callable, optional
        Concordance by default; a name for `preflearn.metrics.get_scorer`, "ndcg@10" for example, or a function
        ``score(y, predictions, qid)`` where more is better.
    kernel, gamma, degree, coef0, kernel_params, n_basis, basis, random_state, loss, weighting, tol, max_iter, verbose
        As in `RankSVM`. In each fold the basis vectors are drawn from the training rows.

    Attributes
    ----------
    alpha_ : float
        The chosen alpha; the largest of equally good ones.
    alphas_ : ndarray of shape (a,)
        The candidates, as given.
    cv_scores_ : ndarray of shape (a,)
        Mean score over the folds.
    fold_scores_ : ndarray of shape (a, k)
    best_score_ : float
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
        self,
        alphas="auto",
        *,
        cv=None,
        scoring=None,
        kernel="linear",
        gamma=None,
        degree=3,
        coef0=1,
        kernel_params=None,
        n_basis=None,
        basis="uniform",
        random_state=None,
        loss="squared_hinge",
        weighting="pair",
        tol=1e-4,
        max_iter=200,
        verbose=0,
    ):
        self.alphas = alphas
        self.cv = cv
        self.scoring = scoring
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.kernel_params = kernel_params
        self.n_basis = n_basis
        self.basis = basis
        self.random_state = random_state
        self.loss = loss
        self.weighting = weighting
        self.tol = tol
        self.max_iter = max_iter
        self.verbose = verbose

    def fit(self, X, y, *, qid=None):
        """Choose alpha by cross-validation, then learn from all rows.

        Parameters
        ----------
        X, y, qid : as in RankSVM.fit; y of shape (m,)

        Returns
        -------
        self
        """
        self._read_options()
        measure = self._read_scoring()
        kernel = self._read_kernel()
        X = read_items(self, X, kernel, reset=True)
        scores, single = read_scores(y, n_items(X), estimator=self)
        if not single:
            raise ValueError(
                f"RankSVMCV chooses alpha for one output: found y with {scores.shape[1]} columns. Fit each by itself."
            )
        queries = encode_queries(qid, n_items(X))
        folds = self._split(X, scores[:, 0], queries, qid)
        (pairs,) = self._score_pairs(scores, queries)
        representation = self._represent(X, kernel)
        self.alphas_ = self._read_alphas(representation.features, pairs)
        self.fold_scores_ = np.stack(
            [self._score_fold(X, scores, queries, kernel, train, test, measure) for train, test in folds],
            axis=1,
        )
        self.cv_scores_ = self.fold_scores_.mean(axis=1)
        # The largest of equally good candidates: the simplest model.
        best = max(np.flatnonzero(self.cv_scores_ == self.cv_scores_.max()), key=lambda k: self.alphas_[k])
        self.alpha_, self.best_score_ = float(self.alphas_[best]), float(self.cv_scores_[best])
        fit = self._solve(representation.features, pairs, self.alpha_)
        self._set_solution(X, representation, [fit], self.alpha_, single)
        self.n_queries_, self.n_comparisons_ = queries.n_groups, pairs.n_pairs
        return self

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = False
        return tags

    def _score_fold(
        self,
        X: Any,
        scores: np.ndarray,
        queries: Groups,
        kernel: Kernel,
        train: np.ndarray,
        test: np.ndarray,
        measure: Any,
    ) -> np.ndarray:
        """Score of each alpha on one fold, along the path from the largest alpha down."""
        if kernel.is_precomputed:
            training, held_out = X[np.ix_(train, train)], X[np.ix_(test, train)]
        else:
            training, held_out = take_items(X, train), take_items(X, test)
        representation = self._represent(training, kernel)
        (pairs,) = self._score_pairs(scores[train], encode_queries(queries.codes[train], train.shape[0]))
        features = representation.of(held_out)
        values = np.empty(self.alphas_.shape[0])
        weights = None
        for k in np.argsort(-self.alphas_):
            fit = self._solve(representation.features, pairs, float(self.alphas_[k]), weights)
            if not fit.converged:
                self._warn_not_converged(fit, float(self.alphas_[k]))
            weights = fit.weights
            values[k] = measure(scores[test, 0], np.asarray(features @ weights), queries.codes[test])
        return values

    def _split(self, X: Any, y: np.ndarray, queries: Groups, qid: Any) -> list[tuple[np.ndarray, np.ndarray]]:
        from ..model_selection import QueryKFold

        rows = np.empty((n_items(X), 0))
        if self.cv is None or isinstance(self.cv, Integral):
            n_splits = 5 if self.cv is None else int(self.cv)
            if qid is not None:
                return list(QueryKFold(n_splits).split(rows, qid=queries.codes))
            return list(KFold(n_splits, shuffle=True, random_state=0).split(rows))
        if isinstance(self.cv, str):
            raise ValueError(
                f"cv must be a number of folds, a splitter or an iterable of (train, test): found {self.cv!r}."
            )
        splitter = check_cv(self.cv, y)
        groups = queries.codes if qid is not None else None
        return [(np.asarray(train), np.asarray(test)) for train, test in splitter.split(rows, y, groups)]

    def _read_scoring(self) -> Any:
        from ..metrics.scorers import RankingScorer, get_scorer

        if isinstance(self.scoring, RankingScorer):
            return self.scoring.measure
        if callable(self.scoring):
            return self.scoring
        return get_scorer("concordance" if self.scoring is None else self.scoring).measure

    def _read_alphas(self, features: Any, pairs: PairSet) -> np.ndarray:
        if isinstance(self.alphas, str):
            if self.alphas != "auto":
                raise ValueError(f"alphas must be 'auto' or positive numbers: found {self.alphas!r}.")
            at_zero = pairs.violations(np.zeros(pairs.n_rows))
            squares = Features(features).squared_sums(at_zero.worse + at_zero.better)
            return max(float(squares.sum()), np.finfo(float).tiny) * np.logspace(-7, 1, 9)
        alphas = np.atleast_1d(np.asarray(self.alphas, dtype=float))
        if alphas.ndim != 1 or alphas.size == 0:
            raise ValueError(
                f"alphas must be 'auto' or a list of positive numbers: found shape {alphas.shape}."
            )
        return np.array([read_alpha(float(alpha)) for alpha in alphas])


def _one_or_all(values: Sequence[float], single: bool) -> Any:
    return values[0] if single else np.array(values)
