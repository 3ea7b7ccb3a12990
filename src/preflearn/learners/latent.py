"""A latent function learned from answers: reads what users pass, finds the function, and says how certain it is."""

from __future__ import annotations

import warnings
from collections.abc import Hashable
from numbers import Real
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.linalg import solve_triangular
from sklearn.exceptions import ConvergenceWarning, NotFittedError

from ..comparisons.answers import Answers
from ..comparisons.inputs import read_pairs, read_per_pair
from ..kernels.functions import Kernel, n_items, take_items
from ..kernels.inputs import read_items
from ..kernels.items import ItemKernel, item_keys, number_items, read_labels
from ..losses.labels import MOST_SOLVED, N_DRAWS, LabelPosterior
from ..losses.laplace import (
    MOST_DENSE_LABELS,
    WORTH_A_WARNING,
    LaplacePosterior,
    LatentSpace,
    Mode,
    find_mode,
    kernel_space,
    posterior_at,
)
from ..losses.logistic import LogisticLoss, averaged_probability
from ..losses.newton import PairLossFit, check_newton_options
from ..numerics.memory import require_memory
from .base import KernelModel, RankerMixin

# Rows whose posterior variance is computed at once.
_BLOCK_ROWS = 256


class LatentModel(RankerMixin, KernelModel):
    """Reading and solving, for models of preferences with probabilities."""

    item_offsets: Any
    tol: Any
    max_iter: Any
    items_: Any
    answers_: Answers
    alpha_: float
    feature_map_: Any
    reliability_: dict[Hashable, float]

    def _read_options(self) -> None:
        check_newton_options(self.tol, self.max_iter)

    def _read_item_offsets(self, item_offsets: Any) -> float:
        """The variance ratio of the offsets; refused where it would be ignored or is not available."""
        number = isinstance(item_offsets, Real) and not isinstance(item_offsets, bool)
        if not number or not 0 <= float(item_offsets) < np.inf:
            raise ValueError(
                f"item_offsets is a variance ratio, 0 for no offsets: found {item_offsets!r}. 1 gives the offset of "
                "every item as much prior variance as its features."
            )
        if not item_offsets:
            return 0.0
        if self.kernel == "items":
            raise ValueError(
                "kernel='items' has only offsets, so item_offsets would be ignored: leave it at 0."
            )
        if self.kernel == "precomputed":
            raise ValueError(
                "A precomputed kernel does not say which items are the same: add the offsets' variance to its "
                "diagonal and leave item_offsets at 0."
            )
        if self._wants_reduced_set():
            raise ValueError(
                "item_offsets needs a coefficient for each item, which a reduced set does not have: use only one."
            )
        return float(item_offsets)

    def _base_kernel(self) -> Kernel | None:
        """The kernel of the features; None for items that are labels."""
        if self.kernel != "items":
            return self._with_width(
                Kernel(self.kernel, self._chosen_gamma(), self.degree, self.coef0, self.kernel_params)
            )
        Kernel("precomputed", self.gamma, self.degree, self.coef0, self.kernel_params)  # takes no parameters
        if self._wants_reduced_set():
            raise ValueError("kernel='items' has no reduced set: leave n_basis and basis at their defaults.")
        return None

    def _read_kernel(self) -> Any:
        """The kernel of a fitted model, offsets included."""
        base = self._base_kernel()
        if base is None:
            return ItemKernel(None, 1.0)
        return ItemKernel(base, self.offset_variance_) if self.offset_variance_ > 0 else base

    def _read_items(self, X: Any, *, reset: bool) -> Any:
        if reset:
            self.__dict__.pop("gamma_", None)
        base = self._base_kernel()
        return read_labels(X) if base is None else read_items(self, X, base, reset=reset)

    def _read_answers(
        self, n_rows: int, pairs: Any, weight: Any, ties: Any, judge: Any, known: dict[Hashable, int]
    ) -> tuple[Answers, dict[Hashable, int]]:
        """Answers about the rows of X, and the number of each judge, those known first."""
        pairs = np.asarray(pairs)
        if pairs.size == 0 and pairs.ndim in (1, 2):
            pairs = np.empty((0, 2), dtype=np.int64)  # nothing is known yet except the prior
        else:
            pairs = read_pairs(pairs, n_rows)
        n_pairs = pairs.shape[0]
        weight = read_per_pair(weight, n_pairs, "weight", positive=n_pairs > 0)
        if ties is not None:
            ties = np.asarray(ties)
            if ties.dtype != bool or ties.shape != (n_pairs,):
                raise ValueError(
                    "ties must say for each pair whether it was judged equal, as booleans: found "
                    f"{ties.dtype} of shape {ties.shape} for {n_pairs} pairs."
                )
        codes, numbers = None, dict(known)
        if judge is not None:
            labels = list(judge.tolist() if hasattr(judge, "tolist") else judge)
            if len(labels) != n_pairs:
                raise ValueError(
                    f"judge must name one judge per pair: found {len(labels)} for {n_pairs} pairs."
                )
            codes = np.array([numbers.setdefault(label, len(numbers)) for label in labels], dtype=np.int64)
        return Answers.read(n_rows, pairs, weight, ties, codes), numbers

    def _check_fitted(self) -> None:
        if not hasattr(self, "answers_"):
            raise NotFittedError(
                f"This {type(self).__name__} has not learned anything yet: call fit_pairs first (without "
                "pairs, to use the prior)."
            )

    def _linear_space(self, items: Any) -> LatentSpace:
        """Features, and an offset of each item."""
        return LatentSpace(n_items(items), items, offset=self.offset_variance_)

    def _chosen_gamma(self) -> Any:
        return self.gamma

    def _chosen_item_offsets(self) -> Any:
        return self.item_offsets

    def _chosen_alpha(self) -> float:
        raise NotImplementedError

    def _solve(self, space: LatentSpace, items: Any, answers: Answers) -> None:
        """Minimise the objective and set the attributes of the solution."""
        alpha = self._chosen_alpha()
        with self._more_stages()(f"{answers.n_pairs} preferences, alpha = {alpha:g}") as stage:
            mode = find_mode(
                space, answers, alpha, tol=self.tol, max_iter=self.max_iter, report=stage.iteration
            )
        self.items_, self.answers_, self.alpha_ = items, answers, alpha
        self._space = space
        self._set_mode(space, mode)
        self._mode = mode

    def _set_mode(self, space: LatentSpace, mode: Mode) -> None:
        """Set the attributes of a solution, and warn where it has not converged."""
        fit = mode.fit
        self.n_iter_, self.objective_ = max(1, fit.n_iter), fit.objective
        self.n_queries_, self.n_comparisons_ = 1, self.answers_.n_pairs
        self._set_solution(space, fit.weights)
        error = max(mode.error, self._expansion_error(space, fit.weights))
        if error > WORTH_A_WARNING:
            warnings.warn(
                f"{type(self).__name__}: alpha={self.alpha_:g} is so small relative to the kernel that rounding may "
                f"change scores by about {error:.0e} of the largest: use a larger alpha, or scale the features.",
                ConvergenceWarning,
                stacklevel=5,
            )
        elif not fit.converged and fit.gap > 1e-6 * fit.objective:
            warnings.warn(
                f"{type(self).__name__} (alpha={self.alpha_:g}) stopped after {fit.n_iter} Newton steps with a duality "
                f"gap of {fit.gap:.2g}: raise max_iter (now {self.max_iter}), scale the features, or use a larger "
                "alpha.",
                ConvergenceWarning,
                stacklevel=5,
            )

    def _set_solution(self, space: LatentSpace, weights: np.ndarray) -> None:
        """The function from the weights of the columns of ``space.matrix()``."""
        self.__dict__.pop("feature_coef_", None)
        if space.offset:
            self._set_dual(weights[space.n_coordinates :] / np.sqrt(space.offset))
            self.feature_coef_ = weights[: space.n_coordinates]
        elif space.design is None:
            self._set_dual(self._dual_of(space, weights))
            if self.offset_variance_ and self.kernel == "linear":
                self.feature_coef_ = np.asarray(self.items_.T @ self.dual_coef_)
        else:
            self._set_weights(weights)

    def _dual_of(self, space: LatentSpace, weights: np.ndarray) -> np.ndarray:
        """Coefficients a of the items with K a = F w.

        At the mode a = -∇ℓ / 2 alpha, which is small where the kernel is nearly singular; C⁻ᵀ w is more accurate where
        alpha is small relative to the kernel.
        """
        if space.factor is None:
            return weights
        F = space.factor.F
        both = (
            -LogisticLoss(self.answers_, F @ weights).gradient / (2.0 * self.alpha_),
            space.factor.expand(weights),
        )
        return min(both, key=lambda a: float(np.abs(F @ (F.T @ a - weights)).max(initial=0.0)))

    def _expansion_error(self, space: LatentSpace, weights: np.ndarray) -> float:
        """How far rounding shifts scores that are sums of coefficients times kernel values."""
        if space.factor is None or hasattr(self, "coef_"):
            return 0.0
        F, a = space.factor.F, self.dual_coef_
        largest = float(space.features(self.answers_).row_lengths().max(initial=0.0)) ** 2
        size = float(np.abs(F @ weights).max(initial=0.0))
        return np.finfo(float).eps * largest * float(np.abs(a).sum()) / size if size > 0 else 0.0

    def _set_weights(self, weights: np.ndarray) -> None:
        """The function from the weights of features."""
        if hasattr(self, "feature_map_"):
            feature_map = self.feature_map_
            expansion = feature_map.expand(weights)[:, None]
            self._set_function(None, expansion, feature_map.basis_indices_, feature_map.basis_, True)
        else:
            self._set_function(weights[:, None], None, None, None, True)

    def _set_dual(self, dual_coef: np.ndarray) -> None:
        """The function from the coefficients of the items."""
        if self._is_linear():
            self._set_function(np.asarray(self.items_.T @ dual_coef)[:, None], None, None, None, True)
            return
        basis = None if self.kernel == "precomputed" else self.items_
        first = getattr(self, "_first_rows", np.arange(dual_coef.shape[0]))
        self._set_function(None, dual_coef[:, None], first, basis, True)

    def _fitted_arrays(self) -> dict[str, str]:
        """The shapes that a loaded model is checked for (`preflearn.tables.models.fitted`)."""
        if "answers_" not in vars(self):
            return {}
        shapes = {"answers_": "a Answers", "items_": "m n", "answers_.n_rows": "= m"}
        shapes |= {"alpha_": "", "offset_variance_": "", "n_iter_": "", "objective_": ""}
        shapes |= {"gamma_": ""} if getattr(self, "gamma_", None) is not None else {}
        if not self.alpha_ > 0 or not self.offset_variance_ >= 0:
            raise ValueError("alpha_ or offset_variance_ is negative")
        if ("feature_coef_" in vars(self)) != bool(self.kernel == "linear" and self.offset_variance_):
            raise ValueError("feature_coef_ does not agree with offset_variance_")
        self._read_kernel()  # refuses parameters that no kernel takes
        if self.kernel == "items":
            shapes |= {"items_": "labels m", "basis_": "labels r", "basis_indices_": "r <", "dual_coef_": "r"}
        else:
            shapes |= super()._fitted_arrays()
            one_output = {"coef_": "n", "dual_coef_": "r"}
            shapes |= {name: shape for name, shape in one_output.items() if name in shapes}
        if self.kernel == "precomputed":
            shapes |= {"items_": "n n", "answers_.n_rows": "= n"}
        if "feature_coef_" in vars(self):
            shapes["feature_coef_"] = "n"
        if "_first_rows" in vars(self):
            shapes["_first_rows"] = "r <"
        if "feature_map_" in vars(self):
            shapes["feature_map_"] = "a NystromMap"
            shapes["feature_map_.basis_indices_"] = shapes["basis_indices_"]
        if self.answers_.judges is not None:
            shapes["answers_.judges"] = f"l < {len(self.reliability_)}"
        return shapes

    def _is_linear(self) -> bool:
        return self.kernel == "linear" and not self.offset_variance_ and not hasattr(self, "feature_map_")


class PosteriorModel(LatentModel):
    """A latent function with its posterior, Gaussian around the minimum of the objective."""

    def _posterior(self) -> LaplacePosterior | LabelPosterior:
        """Laplace's posterior at the solution, computed when it is first needed."""
        self._check_fitted()
        if not hasattr(self, "_laplace"):
            space = getattr(self, "_space", None) or self._space_again()
            mode = getattr(self, "_mode", None) or self._mode_again(space)
            with self._more_stages()(f"posterior in {min(space.shape)} dimensions"):
                self._laplace = posterior_at(space, self.answers_, self.alpha_, mode)
            if isinstance(self._laplace, LaplacePosterior) and self._laplace.rounding > WORTH_A_WARNING:
                warnings.warn(
                    f"{type(self).__name__}: alpha={self.alpha_:g} is so small relative to the kernel that rounding "
                    f"may change variances by about {self._laplace.rounding:.0e}: use a larger alpha, or scale the "
                    "features.",
                    ConvergenceWarning,
                    stacklevel=4,
                )
        return self._laplace

    def _has_many_labels(self) -> bool:
        """Whether the posterior is too large for a matrix, and is a `LabelPosterior`."""
        return self.kernel == "items" and n_items(self.items_) > MOST_DENSE_LABELS

    def _space_again(self) -> LatentSpace:
        """The coordinates of the fit, computed from what a saved model contains."""
        n = n_items(self.items_)
        if self.kernel == "items":
            return LatentSpace(n)
        kernel = self._read_kernel()
        if hasattr(self, "feature_map_"):
            return LatentSpace(n, self.feature_map_.map_items(self.items_, kernel))
        if self.kernel == "linear":
            return self._linear_space(self.items_)
        return kernel_space(self.items_ if kernel.is_precomputed else kernel.matrix(self.items_))

    def _mode_again(self, space: LatentSpace) -> Mode:
        """The mode, from the function that was learned."""
        if hasattr(self, "feature_map_"):
            factor = self.feature_map_.factor_
            weights = factor.C.T @ self.dual_coef_[factor.pivots]
        elif hasattr(self, "coef_"):
            weights = self.coef_
        elif space.offset:
            coef = getattr(self, "feature_coef_", None)
            coef = np.asarray(self.items_.T @ self.dual_coef_) if coef is None else coef
            weights = np.concatenate([coef, np.sqrt(space.offset) * self.dual_coef_])
        else:
            weights = self.dual_coef_ if space.factor is None else space.factor.F.T @ self.dual_coef_
        return Mode(PairLossFit(weights, self.objective_, 0.0, 0.0, self.n_iter_, 0, True), 0.0)

    def _numbers_of(self, X: Any) -> np.ndarray:
        """Which known item each row is, -1 for none."""
        if isinstance(X, np.ndarray) and isinstance(self.items_, np.ndarray) and X.shape == self.items_.shape:
            # With features, equal rows are kept as separate items, which makes no difference.
            if np.array_equal(X, self.items_):
                return np.arange(n_items(X))
        if not hasattr(self, "_index"):
            self._index: dict[Hashable, int] = {}
            for number, key in enumerate(item_keys(self.items_)):
                self._index.setdefault(key, number)
        return np.array([self._index.get(key, -1) for key in item_keys(X)], dtype=np.int64)

    def predict(self, X) -> np.ndarray:
        """Latent scores: higher is better.

        Parameters
        ----------
        X : as in fit_pairs
            Known items or new ones; an unknown label of ``kernel="items"`` scores 0, the prior mean.

        Returns
        -------
        ndarray of shape (m,)
        """
        self._check_fitted()
        return self._scores_of(self._read_items(X, reset=False))

    def _scores_of(self, X: Any) -> np.ndarray:
        if hasattr(self, "coef_"):
            return self._linear(X)
        if self.kernel == "items":
            return self._own_scores(X)
        if hasattr(self, "feature_coef_"):
            return np.asarray(X @ self.feature_coef_) + self.offset_variance_ * self._own_scores(X)
        return self._expand(X, self._read_kernel())

    def _own_scores(self, X: Any) -> np.ndarray:
        """The coefficient of each item that is known, 0 for others."""
        numbers = self._numbers_of(X)
        return np.where(numbers >= 0, self.dual_coef_[numbers], 0.0)

    def posterior(self, X, *, variances_only=False) -> tuple[np.ndarray, np.ndarray]:
        """Mean and covariance of the latent scores.

        Parameters
        ----------
        X : as in predict
        variances_only : bool, default=False
            Return the diagonal of the covariance instead, which needs no m × m array.

        Returns
        -------
        mean : ndarray of shape (m,)
        covariance : ndarray of shape (m, m), or variances of shape (m,)

        Notes
        -----
        Laplace's approximation: C = (2 alpha)⁻¹ (I + K L / 2 alpha)⁻¹ K, with L the Laplacian of the pairs weighted by
        w p (1 - p). O(r³) the first time, then O(m r² + m² r). With ``kernel="items"`` and more than 3,000 labels no
        array of r × r numbers is formed: the covariance of m items takes m solves of about 30 iterations, each
        O(distinct pairs), and variances of more than 256 items are estimated from 64 draws of the posterior, with a
        warning: their standard error is at most 18 %, and far less for items with few answers.

        Examples
        --------
        >>> from preflearn import BradleyTerry
        >>> model = BradleyTerry(0.5, kernel="items").fit_pairs(["a", "b"], [[0, 1]])
        >>> mean, covariance = model.posterior(["a", "b", "never seen"])
        >>> mean.round(3), covariance.diagonal().round(3)
        (array([ 0.337, -0.337,  0.   ]), array([0.846, 0.846, 1.   ]))
        """
        self._check_fitted()
        X = self._read_items(X, reset=False)
        if variances_only:
            return self._scores_of(X), self._variances(X)
        require_memory(
            2 * n_items(X) ** 2 * 8,
            f"a covariance of {n_items(X)} × {n_items(X)}",
            "Ask for variances_only=True, or for the covariance of fewer items.",
        )
        posterior = self._posterior()
        if isinstance(posterior, LabelPosterior):
            return self._scores_of(X), self._covariance_of_labels(posterior, X)
        if posterior.by_features:
            F, unknown = self._features_of(X)
            covariance = posterior.covariance_of(F)
            if unknown is not None:
                covariance += self._unseen(X, X, F, F, unknown, unknown) / (2.0 * self.alpha_)
            return self._scores_of(X), covariance
        numbers = self._known_or_refused(X)
        if (numbers >= 0).all():
            S = posterior.covariance
            same = np.array_equal(numbers, np.arange(S.shape[0]))
            return posterior.mean[numbers], S.copy() if same else S[np.ix_(numbers, numbers)]
        kernel = self._read_kernel()
        K = kernel.matrix(X, self.items_) / (2.0 * self.alpha_)
        A = posterior.laplacian_times(K.T).T
        covariance = kernel.matrix(X) / (2.0 * self.alpha_) - A @ K.T + A @ posterior.covariance @ A.T
        return self._scores_of(X), 0.5 * (covariance + covariance.T)

    def win_probability(self, X_a, X_b) -> np.ndarray:
        """Probability that each item of X_a is preferred to the item of X_b in the same row.

        Averaged over the posterior: σ(μ / √(1 + π v / 8)), with μ and v the mean and variance of the difference of the
        latent scores. With judges, for one of reliability 1.

        Parameters
        ----------
        X_a, X_b : as in predict
            The same number of items in both, or a single item in one of them, which is compared with all of the other.

        Returns
        -------
        ndarray of shape (m,)

        Examples
        --------
        >>> from preflearn import BradleyTerry
        >>> model = BradleyTerry().fit_pairs([[0.0], [1.0], [2.0]], [[2, 1], [1, 0]])
        >>> model.win_probability([[2.0]], [[0.0], [2.0]]).round(2)
        array([0.65, 0.5 ])
        """
        self._check_fitted()
        X_a, X_b = self._read_items(X_a, reset=False), self._read_items(X_b, reset=False)
        n_a, n_b = n_items(X_a), n_items(X_b)
        if n_a != n_b and 1 not in (n_a, n_b):
            raise ValueError(
                f"X_a has {n_a} items, X_b has {n_b}: pass the same number, or one item to compare with all others."
            )
        n = max(n_a, n_b)
        X_a, X_b = (take_items(X, np.zeros(n, dtype=np.int64)) if n_items(X) < n else X for X in (X_a, X_b))
        if hasattr(self, "coef_"):
            mean = self._linear(X_a - X_b)
        elif hasattr(self, "feature_coef_"):
            mean = self.offset_variance_ * (self._own_scores(X_a) - self._own_scores(X_b))
            mean += np.asarray((X_a - X_b) @ self.feature_coef_)
        else:
            mean = self._scores_of(X_a) - self._scores_of(X_b)
        return averaged_probability(mean, self._variances(X_a, X_b))

    def _features_of(self, X: Any) -> tuple[Any, np.ndarray | None]:
        """The features that the posterior's weights belong to, and which rows have more than these; None for none."""
        if hasattr(self, "feature_map_"):
            return self.feature_map_.map_items(X, self._read_kernel()), None
        if self._is_linear():
            return X, None
        posterior = self._posterior()
        assert isinstance(posterior, LaplacePosterior)
        space, numbers = posterior.space, self._known_or_refused(X)
        known = np.flatnonzero(numbers >= 0)
        if space.factor is None:
            scale = np.sqrt(space.offset) if space.offset else 1.0
            places = (known, numbers[known])
            own = sp.csr_array((np.full(known.shape[0], scale), places), shape=(n_items(X), space.n_items))
            F = own.toarray() if space.design is None else np.hstack([_dense(X), own.toarray()])
        else:
            new = np.flatnonzero(numbers < 0)
            F = np.empty((n_items(X), space.factor.rank))
            F[known] = space.factor.F[numbers[known]]
            if new.size:
                K = self._read_kernel().matrix(
                    take_items(self.items_, space.factor.pivots), take_items(X, new)
                )
                F[new] = solve_triangular(space.factor.C, K, lower=True, check_finite=False).T
        return F, None if known.shape[0] == n_items(X) else numbers < 0

    def _unseen(self, X: Any, Y: Any, F: np.ndarray, G: np.ndarray, new: Any, other: Any) -> np.ndarray:
        """The prior covariance, at alpha = 1/2, of what the features F of X and G of Y do not cover."""
        return (self._read_kernel().matrix(X, Y) - F @ G.T) * np.logical_and.outer(new, other)

    def _known_or_refused(self, X: Any) -> np.ndarray:
        numbers = self._numbers_of(X)
        if self.kernel == "precomputed" and (numbers < 0).any():
            raise ValueError(
                f"Row {int(np.argmax(numbers < 0))} is not a row of the kernel matrix of fit_pairs: the uncertainty of "
                "a new item depends on the kernel of the new items among themselves. Pass features and a named "
                "or callable kernel instead."
            )
        return numbers

    def _variances(self, X: Any, other: Any = None) -> np.ndarray:
        """Posterior variance of f(x), or of f(x) - f(x') row by row, in blocks of rows."""
        posterior = self._posterior()
        if isinstance(posterior, LabelPosterior):
            return self._variances_of_labels(posterior, X, other)
        if posterior.by_features:
            return self._variances_by_features(X, other)
        S = posterior.covariance
        numbers = self._known_or_refused(X)
        others = None if other is None else self._known_or_refused(other)
        if (numbers >= 0).all() and (others is None or (others >= 0).all()):
            if others is None:
                return np.diagonal(S)[numbers]
            return posterior.variances_of_differences(np.stack([numbers, others], axis=1))
        kernel = self._read_kernel()
        out = np.empty(n_items(X))
        for start in range(0, n_items(X), _BLOCK_ROWS):
            rows = np.arange(start, min(start + _BLOCK_ROWS, n_items(X)))
            x = take_items(X, rows)
            y = None if other is None else take_items(other, rows)
            K = kernel.matrix(x, self.items_)
            prior = np.diagonal(kernel.matrix(x)).copy()
            if y is not None:
                K = K - kernel.matrix(y, self.items_)
                prior += np.diagonal(kernel.matrix(y)) - 2.0 * np.diagonal(kernel.matrix(x, y))
            K = K / (2.0 * self.alpha_)
            A = posterior.laplacian_times(K.T).T
            explained = np.einsum("ij,ij->i", A, K) - np.einsum("ij,ij->i", A @ S, A)
            out[rows] = prior / (2.0 * self.alpha_) - explained
        return np.maximum(out, 0.0)

    def _covariance_of_labels(self, posterior: LabelPosterior, X: Any) -> np.ndarray:
        """Of known labels by solves; an unknown label has its prior variance, in whichever column it is."""
        numbers, codes = self._numbers_of(X), number_items(X)
        C = np.where(codes[:, None] == codes[None, :], 0.5 / self.alpha_, 0.0)
        known = np.flatnonzero(numbers >= 0)
        C[np.ix_(known, known)] = posterior.covariance_of(numbers[known])
        return C

    def _variances_of_labels(self, posterior: LabelPosterior, X: Any, other: Any) -> np.ndarray:
        numbers = self._numbers_of(X)
        if other is None:
            out, known = np.full(numbers.shape[0], 0.5 / self.alpha_), np.flatnonzero(numbers >= 0)
            self._say_estimated(np.unique(numbers[known]).shape[0], "items")
            out[known] = posterior.variances(numbers[known])
            return out
        others = self._numbers_of(other)
        both = np.flatnonzero((numbers >= 0) & (others >= 0))
        out = np.empty(numbers.shape[0])
        rest = np.setdiff1d(np.arange(out.shape[0]), both)
        if rest.size:
            x, y = take_items(X, rest), take_items(other, rest)
            same = np.array([a == b for a, b in zip(item_keys(x), item_keys(y), strict=True)])
            out[rest] = np.where(
                same,
                0.0,
                self._variances_of_labels(posterior, x, None) + self._variances_of_labels(posterior, y, None),
            )
        self._say_estimated(both.shape[0], "differences")
        out[both] = posterior.variances_of_differences(np.stack([numbers[both], others[both]], axis=1))
        return out

    def _say_estimated(self, n: int, what: str) -> None:
        if n > MOST_SOLVED:
            warnings.warn(
                f"Variances of {n} {what} are estimated from {N_DRAWS} draws of the posterior, with a standard error "
                f"of at most {np.sqrt(2 / N_DRAWS):.0%}: ask for {MOST_SOLVED} at a time to get exact ones.",
                UserWarning,
                stacklevel=5,
            )

    def _variances_by_features(self, X: Any, other: Any) -> np.ndarray:
        """The same from features, whose differences are taken."""
        posterior, out = self._posterior(), np.empty(n_items(X))
        assert isinstance(posterior, LaplacePosterior)
        for start in range(0, n_items(X), _BLOCK_ROWS):
            rows = np.arange(start, min(start + _BLOCK_ROWS, n_items(X)))
            x = take_items(X, rows)
            F, new = self._features_of(x)
            F = D = _dense(F)
            left_out = np.zeros(rows.shape[0])
            if new is not None:
                left_out += np.diagonal(self._unseen(x, x, F, F, new, new))
            if other is not None:
                y = take_items(other, rows)
                G, new_too = self._features_of(y)
                G = _dense(G)
                D = F - G
                if new_too is not None:
                    left_out += np.diagonal(self._unseen(y, y, G, G, new_too, new_too))
                if new is not None and new_too is not None:
                    left_out -= 2.0 * np.diagonal(self._unseen(x, y, F, G, new, new_too))
            out[rows] = posterior.variances_of(D) + np.maximum(left_out, 0.0) / (2.0 * self.alpha_)
        return np.maximum(out, 0.0)


def _dense(X: Any) -> np.ndarray:
    return np.asarray(X.toarray() if sp.issparse(X) else X, dtype=np.float64)
