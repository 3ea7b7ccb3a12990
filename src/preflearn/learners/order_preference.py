"""Regression with order preferences: few labels, many statements of the kind "this one is worth more than that one".

    min  1/l Σ_i |y_i - f(x_i)|_ε + λ₁ ‖α‖₁ + λ₂/p Σ_q w_q max(d_q - (f(x_iq) - f(x_jq)), 0),   f(x) = k(x, basis) α + β

X. Zhu and A. B. Goldberg, Kernel Regression with Order Preferences, AAAI 2007, equations (6) and (7).
"""

from __future__ import annotations

from numbers import Real
from typing import Any, Self

import numpy as np
from joblib import Parallel, delayed
from sklearn.base import RegressorMixin

from ..comparisons import Groups, one_group
from ..kernels.functions import Kernel, n_items, take_items
from ..kernels.inputs import read_items
from ..kernels.maps import choose_basis
from ..losses.order_program import (
    OrderDesign,
    OrderSolution,
    Statements,
    order_program_path,
    solve_order_program,
)
from ..model_selection._basis_rows import refuse_folds_of_whole_basis
from ..model_selection._choice import choose, read_grid, read_scoring, warn_at_edge
from ..model_selection._folds import Folds, encode_groups, part_of, read_folds
from ..model_selection._learner import EstimatingLearner
from ..model_selection._nested import NestedChoice, RowJudge
from .base import KernelModel
from .partial_targets import read_partial_targets
from .preferences.statements import read_statements

# 9 values for alpha and 9 for gamma, as published.
_PUBLISHED_GRID = np.logspace(-4, 4, 9)

_WITHOUT_LABELS = (
    "Order preferences alone do not determine the level of a regression: label at least one row, or learn a ranking "
    "from the pairs with RankRLS.fit_pairs."
)


class _OrderPreferenceModel(RegressorMixin, KernelModel):
    """Reading the data and the attributes of a solution; shared by the two regressors."""

    def _read(
        self, X: Any, y: Any, pairs: Any, margin: Any, weight: Any, bounds: Any
    ) -> tuple[Kernel, Any, np.ndarray, Statements]:
        for name in ("order_weight", "epsilon"):
            _nonnegative(name, getattr(self, name))
        kernel = self._read_kernel()
        X = read_items(self, X, kernel, reset=True)
        targets, _ = read_partial_targets(self, y, n_items(X), when_none_known=_WITHOUT_LABELS)
        if targets.shape[1] != 1:
            raise ValueError(
                f"y must hold one target per row: found {targets.shape[1]} columns. Fit each output separately."
            )
        y = targets[:, 0]
        return kernel, X, y, read_statements(pairs, margin, weight, bounds, n_items(X))

    def _choose_basis(self, labelled: np.ndarray, n_rows: int) -> np.ndarray:
        """Rows that carry a coefficient: the labelled ones, a draw from them, or those the caller names."""
        if isinstance(self.basis, str):
            chosen = choose_basis(labelled.shape[0], self.n_basis, self.basis, self.random_state)
            return labelled if chosen is None else labelled[chosen]
        given = choose_basis(n_rows, self.n_basis, self.basis, self.random_state)
        assert given is not None
        return given

    def _keep(self, kernel: Kernel, X: Any, design: OrderDesign, solution: OrderSolution) -> None:
        self.dual_coef_ = solution.coef
        self.intercept_ = solution.bias
        self.basis_indices_ = design.basis
        self.basis_ = None if kernel.is_precomputed else take_items(X, design.basis)
        self.support_ = design.basis[solution.coef != 0]
        if kernel.is_linear:
            self.coef_ = np.asarray(self.basis_.T @ self.dual_coef_)
        self.objective_ = solution.objective
        self.objective_parts_ = solution.parts
        self.preference_slack_, self.bound_slack_ = design.statements.split(solution.slack)
        self.n_iter_ = solution.n_iter
        self.n_labelled_ = design.labelled.shape[0]


class OrderPreferenceRegressor(_OrderPreferenceModel):
    """Regression from a few labels and many order preferences, by a linear program.

    Minimises over α and the bias β, for l labelled rows and p statements,

        1/l Σ_i |y_i - f(x_i)|_ε + λ₁ ‖α‖₁ + λ₂/p Σ_q w_q max(d_q - (f(x_iq) - f(x_jq)), 0),   f(x) = k(x, basis) α + β.

    Parameters
    ----------
    alpha : float, default=1.0
        λ₁, the weight of the 1-norm of the coefficients. 0 is allowed; for a nearly singular kernel the solver's
        tolerance (1e-9 of the largest kernel value) then takes over.
    order_weight : float, default=1.0
        λ₂, the weight of the statements.
    epsilon : float, default=0.0
        Residuals up to this size cost nothing.
    kernel : str or callable, default="rbf"
        As in ``sklearn.metrics.pairwise.pairwise_kernels``, or ``"precomputed"``.
    gamma, degree, coef0, kernel_params
        Parameters of the kernel; one that the kernel does not take is refused.
    n_basis : None, int or float, default=None
        Number of labelled rows that carry a coefficient (None: all, as in the reference).
    basis : "uniform" or array of int, default="uniform"
        How they are drawn, or which rows carry one (row numbers as in `RankRLS`); given rows may be unlabelled.
    random_state : int, RandomState or None
        For the draw.
    verbose : bool, default=False
        Print the log of HiGHS.

    Attributes
    ----------
    dual_coef_ : ndarray of shape (r,)
        α, exact zeros outside the support.
    coef_ : ndarray of shape (n,)
        Weights of the features; linear kernel only. (The 1-norm is still that of ``dual_coef_``.)
    intercept_ : float
        β, not regularised.
    basis_, basis_indices_ :
        The rows that may carry a coefficient, and their numbers in the data of `fit`.
    support_ : ndarray of int
        Row numbers with a coefficient that is not zero.
    objective_ : float
        The minimum.
    objective_parts_ : dict
        Its three weighted parts, ``loss``, ``norm`` and ``preferences``.
    preference_slack_ : ndarray of shape (n_pairs,)
        By how much each preference is violated; 0 where the model agrees.
    bound_slack_ : ndarray of shape (n_bounds,)
        The same for the bounded rows.
    n_labelled_ : int
        l.
    n_iter_ : int
        Simplex iterations.

    Notes
    -----
    The dual of the program is solved by HiGHS: r + 1 rows, l + p bounded columns, O((l + p) r) memory. For the linear
    kernel the product of the features is not formed where they are far fewer numbers (O(nnz) memory). Preferences are
    soft: a solution always exists, and contradictory preferences show in ``preference_slack_``.

    Reference: X. Zhu and A. B. Goldberg, Kernel Regression with Order Preferences, AAAI 2007.

    Examples
    --------
    Two labels, and the statement that the third point lies highest:

    >>> import numpy as np
    >>> from preflearn import OrderPreferenceRegressor
    >>> X = np.array([[0.0], [1.0], [2.0]])
    >>> y = np.array([0.0, 1.0, np.nan])
    >>> model = OrderPreferenceRegressor(alpha=0.01, kernel="linear").fit(X, y, pairs=[[2, 1]], margin=0.5)
    >>> model.predict(X).round(3)
    array([0., 1., 2.])
    >>> model.preference_slack_
    array([0.])
    """

    def __init__(
        self, alpha=1.0, *, order_weight=1.0, epsilon=0.0, kernel="rbf", gamma=None, degree=3, coef0=1,
        kernel_params=None, n_basis=None, basis="uniform", random_state=None, verbose=False,
    ) -> None:  # fmt: skip
        super().__init__(kernel, gamma, degree, coef0, kernel_params, n_basis, basis, random_state, verbose)
        self.alpha, self.order_weight, self.epsilon = alpha, order_weight, epsilon

    def fit(self, X, y, *, pairs=None, margin=None, weight=None, bounds=None) -> Self:
        """Fit to labelled rows and statements about any rows.

        Parameters
        ----------
        X : array-like or sparse of shape (m, n), kernel matrix (m, m), or sequence of objects
            Labelled and unlabelled rows together.
        y : array-like of shape (m,)
            Targets; NaN where unknown.
        pairs : array-like of int (p, 2), or Preferences
            f(x_i) - f(x_j) >= margin for rows i = pairs[q, 0], j = pairs[q, 1].
        margin : float or array-like of shape (p,), default 0
            d; negative margins state closeness.
        weight : float or array-like of shape (p,), default 1
            w, nonnegative.
        bounds : tuple (rows, lower, upper) or (rows, lower, upper, weight)
            lower <= f(x) <= upper for these rows; numbers or arrays, None (alone or in a list) or infinite for an
            open side, equal for f(x) = g. Each finite side is one statement and counts in p.

        Returns
        -------
        self
        """
        _nonnegative("alpha", self.alpha)
        kernel, X, y, statements = self._read(X, y, pairs, margin, weight, bounds)
        labelled = np.flatnonzero(~np.isnan(y))
        basis = self._choose_basis(labelled, y.shape[0])
        design = OrderDesign.of(kernel, X, y[labelled], labelled, basis, statements)
        program = design.program(float(self.order_weight), float(self.epsilon))
        self._keep(kernel, X, design, solve_order_program(program, float(self.alpha), verbose=self.verbose))
        return self


class OrderPreferenceRegressorCV(EstimatingLearner, _OrderPreferenceModel):
    """`OrderPreferenceRegressor` with alpha and gamma chosen by cross-validation on the labelled rows.

    Parameters
    ----------
    alphas : "auto" or array-like, default="auto"
        Values of λ₁; ``"auto"`` is 10⁻⁴, 10⁻³, ..., 10⁴.
    gammas : "auto" or array-like, default="auto"
        Values of the kernel parameter gamma; ``"auto"`` is the same nine values for the kernels rbf, laplacian and
        chi2, and the kernel's own default for the others.
    cv : str, int, splitter or iterable, default=5
        Folds of the labelled rows, as in `RLSCV`; index arrays count only the labelled rows. An int gives unshuffled
        folds, as in scikit-learn; with groups, folds of whole groups.
    scoring : str, scorer or callable, default="neg_mean_absolute_error"
        As in `RLSCV`: the measure of all held-out predictions; greater is better.
    keep_predictions : bool, default=False
        Keep the held-out predictions at the chosen gamma in ``cv_predictions_``.
    preferences_in_cv : bool, default=True
        Whether the statements are used in the choice. False tunes the regression without them, as in the reference.
        Statements derived from the targets themselves must not be used.
    order_weight, epsilon, kernel, degree, coef0, kernel_params, n_basis, basis, random_state
        As in `OrderPreferenceRegressor`.
    n_jobs : int, optional
        Values of gamma in parallel.
    verbose : bool or int, default=False
        Report progress.

    Attributes
    ----------
    alpha_, gamma_ : float
        The chosen values (gamma_ is None where the kernel's default was used).
    alphas_, gammas_ : ndarray
        The grid.
    cv_scores_ : ndarray of shape (n_alphas, n_gammas)
        The score of all held-out predictions.
    best_score_ : float
        The best of `cv_scores_`.
    estimate_ : PerformanceEstimate
        That measure on new rows, with a 95 % interval, alpha and gamma chosen by the other folds; as in `RankRLSCV`.
    cv_predictions_ : ndarray of shape (n_alphas, m)
        With `keep_predictions`: for each labelled row the prediction of the model fitted without its fold, NaN for the
        others.
    dual_coef_, intercept_, ... :
        As in `OrderPreferenceRegressor`, of the model fitted with the chosen values on all labelled rows.

    Notes
    -----
    Between values of alpha only the bounds of r rows of the dual change: with the optional package ``highspy`` each
    solution starts the next. The kernel is evaluated once for each gamma; folds take rows and columns of it. A held-out
    row leaves the basis too. Of equally good values the largest alpha is taken (the sparsest model).

    Examples
    --------
    >>> import numpy as np
    >>> from preflearn import OrderPreferenceRegressorCV
    >>> X = np.linspace(-1, 1, 30)[:, None]
    >>> model = OrderPreferenceRegressorCV(alphas=[1e-3, 1e-1], gammas=[1.0, 100.0]).fit(X, X[:, 0] ** 3)
    >>> model.alpha_, model.gamma_
    (0.001, 1.0)
    """

    def __init__(
        self, alphas="auto", *, gammas="auto", cv=5, scoring="neg_mean_absolute_error",
        keep_predictions=False, preferences_in_cv=True, order_weight=1.0, epsilon=0.0, kernel="rbf", degree=3,
        coef0=1, kernel_params=None, n_basis=None, basis="uniform", random_state=None, n_jobs=None,
        verbose=False,
    ) -> None:  # fmt: skip
        self.kernel, self.degree, self.coef0, self.kernel_params = kernel, degree, coef0, kernel_params
        self.n_basis, self.basis, self.random_state, self.verbose = n_basis, basis, random_state, verbose
        self.alphas, self.gammas, self.cv, self.scoring = alphas, gammas, cv, scoring
        self.keep_predictions, self.preferences_in_cv = keep_predictions, preferences_in_cv
        self.order_weight, self.epsilon, self.n_jobs = order_weight, epsilon, n_jobs

    # The mixin reads one gamma; here it is a grid until one is chosen.
    gamma = None

    def fit(self, X, y, *, pairs=None, margin=None, weight=None, bounds=None, groups=None) -> Self:
        """Choose alpha and gamma on the labelled rows, then fit with all of them.

        Parameters
        ----------
        X, y, pairs, margin, weight, bounds
            As in `OrderPreferenceRegressor.fit`.
        groups : array-like of shape (m,), optional
            Labels of dependent rows (patients, documents): the labelled rows of a group are held out together.
            Statements stay, as those about single rows do; with statements about rows of the held-out groups the
            scores are those of new rows about which something is stated.

        Returns
        -------
        self
        """
        for name in ("gamma_", "cv_predictions_"):
            self.__dict__.pop(name, None)
        kernel, X, y, statements = self._read(X, y, pairs, margin, weight, bounds)
        labelled = np.flatnonzero(~np.isnan(y))
        scoring = read_scoring(self.scoring, "neg_mean_absolute_error")
        owners = None if groups is None else part_of(encode_groups(groups, n_items(X)), labelled)
        folds = self._read_folds(y[labelled], owners)
        everything = one_group(labelled.shape[0])
        judge = RowJudge(scoring, folds, everything, y[labelled, None], pooled=True, groups=owners)
        _ = judge.comparable  # refuses before any work
        self.alphas_ = read_grid(self.alphas, _PUBLISHED_GRID, zero=True)
        gammas = self._read_gammas(kernel)
        basis = self._choose_basis(labelled, y.shape[0])
        refuse_folds_of_whole_basis(basis, [labelled[left] for left in folds.leaving])
        tuned = statements if self.preferences_in_cv else read_statements(None, None, None, None, y.shape[0])
        order_weight, epsilon = float(self.order_weight), float(self.epsilon)

        def hold_out(gamma: float | None) -> list[np.ndarray]:
            design = OrderDesign.of(self._kernel_with(gamma), X, y[labelled], labelled, basis, tuned)
            return _predict_folds(design, folds, self.alphas_, order_weight, epsilon)

        held_out = Parallel(n_jobs=self.n_jobs, verbose=10 * int(self.verbose))(
            delayed(hold_out)(gamma) for gamma in gammas
        )
        self.gammas_ = np.array(gammas, dtype=float if gammas[0] is not None else object)
        self.cv_scores_ = np.stack([judge.score(predictions) for predictions in held_out], axis=1)
        best, which = choose(self.cv_scores_, self.alphas_)
        self.best_score_ = float(self.cv_scores_[best, which])
        self.alpha_, self.gamma_ = float(self.alphas_[best]), gammas[which]
        if self.keep_predictions:
            self.cv_predictions_ = np.full((self.alphas_.shape[0], y.shape[0]), np.nan)
            self.cv_predictions_[:, labelled] = folds.collect(held_out[which], labelled.shape[0])[:, :, 0]
        nested = NestedChoice(judge)
        for predictions in held_out:
            nested.see(self.alphas_, predictions)
        rows = take_items(X, labelled)
        self._keep_choice(nested.estimate, lambda model: model.predict(rows))
        warn_at_edge(self.alphas_, self.cv_scores_[:, which], best)
        kernel = self._kernel_with(self.gamma_)
        design = OrderDesign.of(kernel, X, y[labelled], labelled, basis, statements)
        self._keep(kernel, X, design, solve_order_program(design.program(order_weight, epsilon), self.alpha_))
        return self

    def _read_folds(self, y: np.ndarray, groups: Groups | None) -> Folds:
        """Sets of labelled rows."""
        if y.shape[0] < 2:
            raise ValueError(
                f"Cross-validation needs at least 2 labelled rows: found n_samples = {y.shape[0]}."
            )
        if isinstance(self.cv, str) and self.cv in ("leave-query-out", "leave-pair-out"):
            raise ValueError(
                f"cv={self.cv!r} needs queries or a score of pairs, and a regression with order preferences has "
                "labelled rows: use 'leave-one-out', 'leave-group-out', a number of folds, a splitter or index arrays."
            )
        return read_folds(5 if self.cv is None else self.cv, None, y, y.shape[0], groups=groups)

    def _read_gammas(self, kernel: Kernel) -> list[float | None]:
        if (
            isinstance(self.gammas, str)
            and self.gammas == "auto"
            and kernel.kernel not in ("rbf", "laplacian", "chi2")
        ):
            return [None]
        grid = read_grid(self.gammas, _PUBLISHED_GRID, name="gammas", zero=True)
        return [float(value) for value in grid]

    def _kernel_with(self, gamma: float | None) -> Kernel:
        return Kernel(self.kernel, gamma, self.degree, self.coef0, self.kernel_params)

    def _read_kernel(self) -> Kernel:
        return self._kernel_with(getattr(self, "gamma_", None))


def _predict_folds(
    design: OrderDesign, folds: Folds, alphas: np.ndarray, order_weight: float, epsilon: float
) -> list[np.ndarray]:
    """Predictions of each fold at every alpha, shape (n_alphas, n_test, 1)."""
    # From large to small alpha the support grows step by step, which suits warm starts.
    descending = np.argsort(alphas)[::-1]
    predictions = []
    for held_out, left in zip(folds.tests, folds.leaving, strict=True):
        smaller, basis_kept = design.without(left)
        path = order_program_path(smaller.program(order_weight, epsilon), alphas[descending])
        found = np.empty((alphas.shape[0], held_out.shape[0], 1))
        for position, solution in zip(descending, path, strict=True):
            found[position, :, 0] = design.values(held_out, basis_kept, solution.coef) + solution.bias
        predictions.append(found)
    return predictions


def _nonnegative(name: str, value: Any) -> None:
    if not isinstance(value, Real) or isinstance(value, bool) or not 0 <= float(value) < np.inf:
        raise ValueError(f"{name} must be a finite number >= 0: found {value!r}.")
