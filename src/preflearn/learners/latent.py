"""A latent function learned from answers: reads what users pass, finds the function and stores it."""

from __future__ import annotations

import warnings
from collections.abc import Hashable
from numbers import Real
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning, NotFittedError

from ..comparisons.answers import Answers
from ..comparisons.inputs import read_pairs, read_per_pair
from ..kernels.functions import Kernel, n_items
from ..kernels.inputs import read_items
from ..kernels.items import ItemKernel, read_labels
from ..losses.laplace import WORTH_A_WARNING, LatentSpace, Mode, find_mode
from ..losses.logistic import LogisticLoss
from ..losses.newton import check_newton_options
from .base import KernelModel, RankerMixin


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
