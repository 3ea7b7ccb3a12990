"""What the learners share: kernel expansions and linear models that predict, rank and score."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.base import BaseEstimator, clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from ..comparisons import Comparisons, encode_queries, one_group
from ..comparisons.grouping import positions_in_groups
from ..comparisons.inputs import read_pairs
from ..kernels.blocks import KernelBlocks, expansion_gradient, refuse_without_gradient
from ..kernels.functions import Kernel, n_items, take_items
from ..kernels.inputs import KernelParametersMixin, read_items
from ..kernels.maps import EmpiricalKernelMap, NystromMap
from ..kernels.onnx_nodes import kernel_nodes, linear_nodes, products_nodes
from ..model_selection._learner import KernelLearner, SquaredLossLearner
from ..model_selection._problem import Problem
from ..model_selection._tally import share_in_order
from ..numerics.namespace import Home, as_host, check_same_home, is_device_array
from ..numerics.onnx_graph import Graph, Value
from ..progress import Stages
from ..squared.base import Inputs
from ..squared.problem import SquaredLossFit
from ..squared.routes import callers_level, check_solver_options, square_form
from .gaussian_process import FunctionPosterior, noise_of_comparisons, refuse_without_posterior, row_noise

# One block of the kernel between new rows and basis vectors during prediction: it stays in the cache.
_PREDICTION_BLOCK_BYTES = 1 << 21
# Rows that are compared again later, to see that the caller has not changed them.
_WITNESSES = 16


class KernelModel(KernelParametersMixin, KernelLearner, BaseEstimator):
    """A fitted function f(x) = k(x, basis) β + intercept, or x · w + intercept for the linear kernel.

    Subclasses set either ``coef_`` or ``dual_coef_``, ``basis_`` and ``basis_indices_`` in fit.
    """

    coef_: np.ndarray
    dual_coef_: np.ndarray
    basis_indices_: np.ndarray

    def __init__(
        self, kernel, gamma, degree, coef0, kernel_params, n_basis, basis, random_state, verbose
    ) -> None:
        self.kernel, self.gamma, self.degree, self.coef0 = kernel, gamma, degree, coef0
        self.kernel_params, self.n_basis, self.basis = kernel_params, n_basis, basis
        self.random_state, self.verbose = random_state, verbose

    def _reduced_set(self, X: Any, kernel: Kernel) -> Any:
        """The feature map of the reduced set, or None for the full kernel."""
        if not self._wants_reduced_set():
            return None
        if is_device_array(X):
            from ..squared.devices.kernels import DeviceBasis, refuse_unless_served

            refuse_unless_served(kernel, self.solver, [])
            return DeviceBasis.choose(X, kernel, self.n_basis, self.basis, self.random_state)
        return NystromMap(
            self.kernel,
            gamma=self.gamma,
            degree=self.degree,
            coef0=self.coef0,
            kernel_params=self.kernel_params,
            n_basis=self.n_basis,
            basis=self.basis,
            random_state=self.random_state,
        ).fit_items(X, kernel)

    def _wants_reduced_set(self) -> bool:
        return self.n_basis is not None or not (isinstance(self.basis, str) and self.basis == "uniform")

    def _set_function(self, weights, dual_coef, basis_indices, basis, single) -> None:
        for name in ("coef_", "dual_coef_", "basis_", "basis_indices_", "_trained_on", "_posterior"):
            self.__dict__.pop(name, None)
        if weights is not None:
            self.coef_ = weights[:, 0] if single else _transposed(weights)
            return
        assert dual_coef is not None
        assert basis_indices is not None
        self.dual_coef_ = dual_coef[:, 0] if single else dual_coef
        self.basis_indices_ = basis_indices
        self.basis_ = basis

    def predict(self, X) -> np.ndarray:
        """Scores: higher is better.

        Parameters
        ----------
        X : array-like or sparse of shape (m, n), kernel matrix (m, m_train), or sequence of objects

        Returns
        -------
        ndarray of shape (m,) or (m, v)
        """
        check_is_fitted(self)
        kernel = self._read_kernel()
        check_same_home(self, "predict", X, self.coef_ if hasattr(self, "coef_") else self.dual_coef_)
        return self.predict_items(read_items(self, X, kernel, reset=False), kernel)

    def predict_items(self, X: Any, kernel: Kernel | None = None) -> Any:
        """`predict` for items that have been validated."""
        scores = self._evaluate(X, self._read_kernel() if kernel is None else kernel)
        return scores + self.intercept_ if hasattr(self, "intercept_") else scores

    def _evaluate(self, X: Any, kernel: Kernel) -> Any:
        """The learned function on validated items, without an intercept."""
        return self._linear(X) if hasattr(self, "coef_") else self._expand(X, kernel)

    def _linear(self, X: Any) -> Any:
        """X w."""
        weights = self.coef_ if self.coef_.ndim == 1 else self.coef_.T
        return X @ weights if is_device_array(X) else np.asarray(X @ weights)

    def _expand(self, X: Any, kernel: Kernel) -> Any:
        """k(X, basis) β, in blocks of rows so that no large kernel block is formed."""
        if is_device_array(X):
            from ..squared.devices.kernels import expand_on_device

            return expand_on_device(X, kernel, self.basis_, self.dual_coef_)
        if kernel.is_precomputed:
            every_row_in_order = np.array_equal(self.basis_indices_, np.arange(X.shape[1]))
            return (X if every_row_in_order else X[:, self.basis_indices_]) @ self.dual_coef_
        # In single precision one product would lose too much; users' functions are not called from several threads.
        is_fast = (
            isinstance(kernel, Kernel)
            and kernel.has_blocks
            and all(_is_dense_double(rows) for rows in (X, self.basis_))
        )
        block = (
            KernelBlocks(kernel, self.basis_) if is_fast else lambda rows: kernel.matrix(rows, self.basis_)
        )
        step = max(1, _PREDICTION_BLOCK_BYTES // (8 * self.basis_indices_.shape[0]))
        starts = range(0, n_items(X), step)
        return np.concatenate([block(X[start : start + step]) @ self.dual_coef_ for start in starts])

    def _fitted_arrays(self) -> dict[str, str]:
        """The shapes that a loaded model is checked for (`preflearn.tables.models.fitted`)."""
        fitted = vars(self)
        shapes = {}
        if "n_features_in_" in fitted and not {"coef_", "dual_coef_"} & {*fitted}:
            raise ValueError("neither coef_ nor dual_coef_ is there")
        if "coef_" in fitted:
            self._read_kernel()  # refuses parameters that no kernel takes
            shapes["coef_"] = "v? n"
        if "dual_coef_" in fitted:
            precomputed = self._read_kernel().is_precomputed
            shapes |= {"dual_coef_": "r v?", "basis_indices_": "r < n" if precomputed else "r <"}
            shapes |= {} if precomputed else {"basis_": "r n"}
        if "intercept_" in fitted:
            shapes["intercept_"] = "v?"
        return shapes | ({} if fitted.get("gamma_") is None else {"gamma_": ""})

    def gradient(self, X) -> np.ndarray:
        """∇f(x) at every row: how much the score changes with each feature.

        Parameters
        ----------
        X : array-like or sparse of shape (m, n)

        Returns
        -------
        ndarray of shape (m, n) or (m, n, v)

        Raises
        ------
        ValueError
            For a kernel that is not differentiable or has no features: "precomputed", callables, and those that
            `preflearn.kernels.blocks` does not list.

        Notes
        -----
        O(m r n) for each output: one additional product of the shape of the kernel block.

        Examples
        --------
        >>> import numpy as np
        >>> from preflearn import RankRLS
        >>> X = np.linspace(-2, 2, 20)[:, None]
        >>> model = RankRLS(1e-3, kernel="rbf", gamma=1.0).fit(X, np.sin(X).ravel())
        >>> np.allclose(model.gradient(X[5:15]), np.cos(X[5:15]), atol=0.05)
        True
        """
        check_is_fitted(self)
        kernel = self._read_kernel()
        refuse_without_gradient(kernel)
        if is_device_array(X):
            raise TypeError("gradient works on NumPy arrays: pass X.cpu().numpy() for a PyTorch tensor.")
        X = read_items(self, X, kernel, reset=False)
        if hasattr(self, "coef_"):
            weights = as_host(self.coef_)
            return np.repeat(weights.T[None], X.shape[0], axis=0)
        return expansion_gradient(kernel, X, self.basis_, self.dual_coef_)

    def _onnx_nodes(self, graph: Graph, X: Value) -> Value:
        """What `predict` computes, recorded (`numerics.graph`)."""
        if hasattr(self, "coef_"):
            scores = linear_nodes(X, as_host(self.coef_))
        else:
            K = kernel_nodes(graph, self._read_kernel(), X, as_host(self.basis_), self.basis_indices_)
            scores = products_nodes(K, as_host(self.dual_coef_))
        return scores + as_host(self.intercept_) if hasattr(self, "intercept_") else scores

    def _more_stages(self) -> Stages:
        return Stages(type(self).__name__ if self.verbose else None)


@dataclass(frozen=True)
class TrainingRows:
    """What a model was trained on, as long as it stays in memory; not part of a saved or copied model.

    Attributes
    ----------
    X, kernel, feature_map, tasks, alpha : as in training
    witnesses : copies of some rows, or None
    known : tuple of ndarray
        Copies of what is known about these rows: scores, weights, queries.
    """

    X: Any
    kernel: Kernel
    feature_map: NystromMap | None
    tasks: Sequence[Comparisons]
    alpha: Any
    witnesses: Any
    known: tuple[np.ndarray, ...]

    @classmethod
    def keep(cls, X: Any, kernel: Kernel, feature_map: Any, tasks: Sequence[Comparisons], alpha: Any):
        """By reference: only a few rows are copied."""
        is_array = isinstance(X, np.ndarray) or sp.issparse(X)
        rows = cls._witness_rows(X) if is_array else None
        witnesses = None if rows is None else take_items(X, rows).copy()
        known = () if rows is None else tuple(one[rows] for one in cls._arrays_of(tasks))
        return cls(X, kernel, feature_map, tasks, alpha, witnesses, known)

    @staticmethod
    def _arrays_of(tasks: Sequence[Comparisons]) -> list[np.ndarray]:
        """What the caller has given for the rows, and may change; with several tasks nothing is needed later."""
        if len(tasks) != 1:
            return []
        task = tasks[0]
        codes = None if task.queries is None else task.queries.codes
        found = (getattr(task, "scores", None), task.row_weights, codes)
        return [one for one in found if isinstance(one, np.ndarray)]

    @staticmethod
    def _witness_rows(X: Any) -> np.ndarray:
        return np.unique(np.linspace(0, n_items(X) - 1, _WITNESSES).astype(np.int64))

    def are_unchanged(self) -> bool:
        """Whether the rows that were copied are unchanged."""
        if self.witnesses is None:
            return True
        rows = self._witness_rows(self.X)
        if not all(
            np.array_equal(one[rows], then)
            for one, then in zip(self._arrays_of(self.tasks), self.known, strict=True)
        ):
            return False
        now = take_items(self.X, rows)
        differs = now != self.witnesses
        return not (differs.nnz if sp.issparse(differs) else np.any(differs))


class SquaredLossModel(KernelModel, SquaredLossLearner):
    """A learner whose loss is a sum of squares over comparisons."""

    solver: Any
    tol: Any
    max_iter: Any

    def _train(self, problem: Problem, alpha: Any, with_mean: bool = True) -> SquaredLossFit:
        X, kernel = problem.X, problem.kernel
        check_solver_options(
            self.solver,
            linear=kernel.is_linear,
            reduced=self._wants_reduced_set(),
            tol=self.tol,
            max_iter=self.max_iter,
        )
        stages = self._more_stages()
        with stages("choice of basis vectors"):
            feature_map = problem.feature_map
        fit = problem.solve(alpha, with_mean=with_mean, stages=stages)
        basis = None
        if fit.dual_coef is not None and not kernel.is_precomputed:
            # The caller may change X after fit; the model must not change with it.
            basis = _copied(X) if feature_map is None else feature_map.basis_
        indices = fit.basis_indices
        if indices is not None and is_device_array(X):
            indices = Home.of(X).put_as_is(indices)
        self._set_function(fit.weights, fit.dual_coef, indices, basis, problem.single)
        self._trained_on = TrainingRows.keep(
            X if basis is None or feature_map is not None else basis,
            kernel,
            feature_map,
            problem.tasks,
            alpha,
        )
        self.solver_ = fit.solver
        self.n_iter_ = fit.n_iter or 1  # a direct solver is one step
        self.residual_ = fit.residual
        if not fit.converged:
            warnings.warn(
                f"Conjugate gradients stopped after {fit.n_iter} iterations at a relative residual of "
                f"{fit.residual:.1e}: raise max_iter or tol, scale the features, or use a larger alpha.",
                ConvergenceWarning,
                stacklevel=callers_level(),
            )
        return fit

    def predict(self, X, return_std=False):
        """Scores: higher is better.

        Parameters
        ----------
        X : array-like or sparse of shape (m, n), kernel matrix (m, m_train), or sequence of objects
        return_std : bool, default=False
            Also return the standard deviations of the scores, from the posterior of a Gaussian process.

        Returns
        -------
        scores : ndarray of shape (m,) or (m, v)
        std : ndarray of the same shape
            With `return_std`. For the order of two items see `difference_std`: single scores are known no better than
            the constant that all of them share.

        Notes
        -----
        The deviations are those of the function, not of a new y. The first call takes about as long as a fit and
        held-out predictions; it needs the training rows, which a model that was loaded or copied does not have.
        """
        scores = super().predict(X)
        if not return_std:
            return scores
        posterior, noise = self._posterior_and_noise()
        items = read_items(self, X, self._read_kernel(), reset=False)
        return scores, _spread_out(posterior.variances(items), noise, scores)

    def difference_std(self, X_a, X_b) -> np.ndarray:
        """Standard deviation of the difference between the scores of two items, which is what their order depends on.

        Parameters
        ----------
        X_a, X_b : as in predict, with the same number of rows

        Returns
        -------
        ndarray of shape (m,) or (m, v)

        Notes
        -----
        As in `predict` with ``return_std``. The noise is estimated from held-out residuals.

        Examples
        --------
        >>> import numpy as np
        >>> from preflearn import RankRLS
        >>> rng = np.random.default_rng(0)
        >>> X, qid = rng.normal(size=(200, 2)), np.repeat(np.arange(20), 10)
        >>> y = X @ [1.0, -1.0] + rng.normal(size=200)
        >>> RankRLS().fit(X, y, qid=qid).difference_std([[0.0, 0.0]], [[1.0, 0.0]]).round(2)
        array([0.08])
        """
        check_is_fitted(self)
        kernel = self._read_kernel()
        posterior, noise = self._posterior_and_noise()
        a, b = (read_items(self, X, kernel, reset=False) for X in (X_a, X_b))
        if n_items(a) != n_items(b):
            raise ValueError(f"X_a has {n_items(a)} rows and X_b {n_items(b)}: expected the same number.")
        like = np.empty((n_items(a), *self._coefficients().shape[1:]))
        return _spread_out(posterior.variances_of_differences(a, b), noise, like)

    def _coefficients(self) -> np.ndarray:
        """Of all outputs, shape (r,) or (r, v)."""
        return self.dual_coef_ if hasattr(self, "dual_coef_") else _transposed(self.coef_)

    def _posterior_and_noise(self) -> tuple[FunctionPosterior, np.ndarray]:
        """The posterior for σ = 1, and σ² of each output; both are cached."""
        rows = refuse_without_posterior(self, getattr(self, "_trained_on", None))
        if "_posterior" not in self.__dict__:
            self._check_scale()
            feature_map = rows.feature_map
            inputs = Inputs(rows.X, rows.kernel, feature_map)
            if square_form(inputs.workload(rows.tasks, "train")) == "dual":
                feature_map = EmpiricalKernelMap().fit_items(rows.X, rows.kernel)
            posterior = FunctionPosterior(rows, feature_map, hasattr(self, "intercept_"))
            self._posterior = posterior, self._row_noise(rows) * noise_of_comparisons(rows.tasks[0])
        return self._posterior

    def _row_noise(self, rows: TrainingRows) -> np.ndarray:
        """τ² of each output: from held-out queries, or from ten folds of a single one."""
        from ..model_selection._held_out import HeldOut

        task = rows.tasks[0]
        scores = task.scores[:, 0] if task.n_outputs == 1 else task.scores
        queries = None if task.queries is None or task.queries.n_groups < 2 else task.queries
        options = {"qid": None if queries is None else queries.codes, "sample_weight": task.row_weights}
        held_out = HeldOut(self._at_alpha(rows.alpha), rows.X, scores, **options)
        n_folds = min(10, n_items(rows.X))
        predictions = held_out.predict(n_folds if queries is None else "leave-query-out")[0]
        residuals = (scores - predictions).reshape(task.scores.shape)
        return row_noise(residuals, queries or one_group(residuals.shape[0]), task.row_weights)

    def _check_scale(self) -> None:
        """Warn where alpha was chosen by a measure that does not depend on the scale of the scores."""

    def _at_alpha(self, alpha: float) -> Any:
        """The learner without a search, at one alpha."""
        return clone(self).set_params(alpha=alpha)

    def __getstate__(self) -> Any:
        # The training rows, and what is computed from them, are not part of a model on disk.
        state = dict(super().__getstate__())
        for name in ("_trained_on", "_posterior"):
            state.pop(name, None)
        return state

    def __sklearn_tags__(self):
        from ..kernels.inputs import why_not_on_device

        tags = super().__sklearn_tags__()
        reason = why_not_on_device(self.kernel, self.solver, getattr(self, "cost", None))
        tags.array_api_support = reason is None
        return tags


class RankerMixin:
    """Positions and concordance for learners that order items inside queries."""

    predict: Callable[..., Any]
    n_queries_: int

    # qid reaches fit and score through pipelines and searches without a set_fit_request by the user.
    __metadata_request__fit = {"qid": True}
    __metadata_request__score = {"qid": True, "event": True}

    def rank(self, X, *, qid=None) -> np.ndarray:
        """Positions inside the query: 1 is the best, and ties share the best position.

        Parameters
        ----------
        X : as in predict
        qid : array-like of shape (m,), optional
            Query labels; without them all rows are one query.

        Returns
        -------
        ndarray of int of shape (m,) or (m, v)
        """
        return self._positions_of(self._scores_in_queries(X, qid), qid)

    def _scores_in_queries(self, X: Any, qid: Any) -> Any:
        """Predictions, for learners whose scores do not depend on the query."""
        return self.predict(X)

    def _positions_of(self, found: Any, qid: Any) -> Any:
        """Positions from scores that have been predicted."""
        scores = as_host(found)
        queries = encode_queries(qid, scores.shape[0])
        columns = scores[:, None] if scores.ndim == 1 else scores
        positions = np.stack([positions_in_groups(column, queries) for column in columns.T], axis=1)
        positions = positions[:, 0] if scores.ndim == 1 else positions
        return Home.of(found).put_as_is(positions) if is_device_array(found) else positions

    def score(self, X, y, *, qid=None, event=None, sample_weight=None) -> float:
        """Concordance: the share of untied pairs inside queries that are ordered as in y, averaged over queries.

        Parameters
        ----------
        X : as in predict
        y : array-like of shape (m,) or (m, v)
        qid : array-like of shape (m,), optional
        event : array-like of bool, shape (m,), optional
            Where y holds censored times: the C-index (`preflearn.metrics.concordance`).
        sample_weight : array-like of shape (m,), optional
            Weight of each row; the weight of a pair is the product of those of its rows.

        Returns
        -------
        float
        """
        from ..metrics import concordance

        if qid is None and getattr(self, "n_queries_", 1) > 1:
            warnings.warn(
                f"This model was fitted with {self.n_queries_} queries and is scored without qid: rows of different "
                "queries are compared with each other. Pass qid=... (np.zeros(len(y)) if the rows are one query).",
                UserWarning,
                stacklevel=2,
            )
        scores = as_host(self._scores_in_queries(X, qid))
        return concordance(as_host(y), scores, as_host(qid), event=event, sample_weight=sample_weight)

    def score_pairs(self, X, pairs) -> float:
        """The share of pairs in the right order; a tied prediction counts as half.

        Parameters
        ----------
        X : as in predict
        pairs : int array of shape (l, 2)
            Row ``pairs[k, 0]`` is preferred to row ``pairs[k, 1]``.

        Returns
        -------
        float

        Examples
        --------
        >>> from preflearn import RankRLS
        >>> model = RankRLS().fit([[0.0], [1.0], [2.0]], [1, 2, 3])
        >>> model.score_pairs([[0.0], [5.0], [5.0]], [[1, 0], [1, 2]])
        0.75
        """
        scores = as_host(self._scores_in_queries(X, None))
        if scores.ndim != 1:
            raise ValueError(
                f"score_pairs needs one score for each row: this model predicts {scores.shape[1]} outputs."
            )
        pairs = read_pairs(as_host(pairs), scores.shape[0])
        return share_in_order(scores[pairs[:, 0]] - scores[pairs[:, 1]])

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()  # type: ignore[misc]
        tags.target_tags.required = True
        tags.target_tags.multi_output = True
        tags.target_tags.single_output = True
        return tags


def _transposed(weights: Any) -> Any:
    return weights.T if is_device_array(weights) else np.ascontiguousarray(weights.T)


def _spread_out(variances: np.ndarray, noise: np.ndarray, like: np.ndarray) -> np.ndarray:
    """Standard deviations of each output, in the shape of the scores."""
    return np.sqrt(variances[:, None] * noise).reshape(like.shape)


def _copied(X: Any) -> Any:
    return Home.of(X).xp.asarray(X, copy=True) if is_device_array(X) else X.copy()


def _is_dense_double(X: Any) -> bool:
    return isinstance(X, np.ndarray) and X.dtype == np.float64
