"""Bradley-Terry models: preferences with probabilities, and the best next question.

P(h over j) = 1 / (1 + e^{-(f_h - f_j)}),    min  Σ w log(1 + e^{-(f_h - f_j)}) + alpha ‖f‖²

Read as a Gaussian process with prior covariance K / 2 alpha, the Hessian at the minimum gives a posterior: how sure
each score is, and which answer would tell most.
"""

from __future__ import annotations

import warnings
from collections.abc import Hashable
from dataclasses import replace
from numbers import Integral, Real
from typing import Any, Self

import numpy as np
import scipy.sparse as sp
from scipy.linalg import solve_triangular
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.utils import check_random_state

from .._engine.losses.logistic import LogisticLoss, averaged_probability
from .._engine.numerics.memory import require_memory
from .._engine.solvers.judges import estimate_reliability
from .._engine.solvers.labels import MOST_SOLVED, N_DRAWS, LabelPosterior
from .._engine.solvers.laplace import (
    MOST_DENSE_LABELS,
    WORTH_A_WARNING,
    LaplacePosterior,
    LatentSpace,
    Mode,
    find_mode,
    kernel_space,
    posterior_at,
    without_each,
)
from .._engine.solvers.newton import Features, PairLossFit
from .._engine.solvers.questions import (
    MOST_CANDIDATES,
    candidates,
    choose_pairs,
    random_open_pairs,
    read_goal,
)
from ..comparisons.answers import Answers
from ..comparisons.inputs import read_alpha, read_pairs, read_per_pair
from ..kernels.functions import Kernel, n_items, take_items
from ..kernels.inputs import read_items
from ..kernels.items import ItemKernel, item_keys, number_items, read_labels
from .base import KernelModel, RankerMixin

_STRATEGIES = ("information", "random")
# Alternations between scores and reliabilities, and the relative change of r at which they stop.
_MAX_ROUNDS, _RELIABILITY_TOL = 50, 1e-3
# What can be computed again from the items and the answers.
_CACHES = ("_laplace", "_space", "_mode", "_index")
# Rows whose posterior variance is computed at once.
_BLOCK_ROWS = 256


class BradleyTerryModel(RankerMixin, KernelModel):
    """What BradleyTerry and BradleyTerryCV share: everything but the choice of alpha."""

    link: Any
    item_offsets: Any
    tol: Any
    max_iter: Any
    items_: Any
    answers_: Answers
    alpha_: float
    feature_map_: Any
    reliability_: dict[Hashable, float]

    # Reading what users pass ------------------------------------------------------------------------------------------

    def _read_options(self) -> None:
        if self.link != "logit":
            raise ValueError(f"link must be 'logit', the Bradley-Terry model: found {self.link!r}.")
        if isinstance(self.tol, bool) or not isinstance(self.tol, Real) or not 0 < float(self.tol) < 1:
            raise ValueError(
                f"tol is the relative accuracy of the objective, between 0 and 1: found {self.tol!r}."
            )
        if isinstance(self.max_iter, bool) or not isinstance(self.max_iter, Integral) or self.max_iter < 1:
            raise ValueError(f"max_iter must be an int of at least 1: found {self.max_iter!r}.")

    def _read_item_offsets(self, item_offsets: Any) -> float:
        """The variance ratio of the offsets; refused where it would be ignored or cannot be had."""
        number = isinstance(item_offsets, Real) and not isinstance(item_offsets, bool)
        if not number or not 0 <= float(item_offsets) < np.inf:
            raise ValueError(
                f"item_offsets is a variance ratio, 0 for no offsets: found {item_offsets!r}. 1 gives every item's own "
                "offset as much prior variance as its features."
            )
        if not item_offsets:
            return 0.0
        if self.kernel == "items":
            raise ValueError(
                "kernel='items' has nothing but offsets, so item_offsets would be ignored: leave it at 0."
            )
        if self.kernel == "precomputed":
            raise ValueError(
                "A precomputed kernel does not tell which items are the same: add the offsets' variance to its "
                "diagonal and leave item_offsets at 0."
            )
        if self._wants_reduced_set():
            raise ValueError(
                "item_offsets needs a coefficient for each item, which a reduced set leaves out: choose one of them."
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
            pairs = np.empty((0, 2), dtype=np.int64)  # nothing is known yet: the prior
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
                "pairs, it holds the prior)."
            )

    # Fitting ----------------------------------------------------------------------------------------------------------

    def fit_pairs(self, X, pairs, *, weight=None, ties=None, judge=None) -> Self:
        """Learn from comparisons.

        Minimises Σ_k weight_k log(1 + exp(-(f(x_h) - f(x_j)))) + alpha ‖f‖² over the pairs k = (h, j).

        Parameters
        ----------
        X : array-like or sparse of shape (m, n), kernel matrix (m, m), sequence of objects, or m labels
            The items. For ``kernel="items"`` their numbers or labels.
        pairs : int array of shape (l, 2)
            Row ``pairs[k, 0]`` is preferred to row ``pairs[k, 1]``. None at all leaves the prior: use it to ask the
            first question.
        weight : array-like of shape (l,) or float, optional
            Factor of the pair's loss; 1 by default.
        ties : bool array of shape (l,), optional
            Which pairs were judged equal: half a win each way.
        judge : sequence of l hashable labels, optional
            Who answered. Each judge's reliability is estimated with the scores.

        Returns
        -------
        self
        """
        self._read_options()
        X = self._read_items(X, reset=True)
        answers, judges = self._read_answers(n_items(X), pairs, weight, ties, judge, {})
        self._fit_answers(X, answers, judges, judge is not None)
        return self

    def fit(self, X, y, *, weight=None, ties=None, judge=None) -> Self:
        """As ``fit_pairs``, with the pairs as y: what a scikit-learn pipeline calls.

        Examples
        --------
        >>> from sklearn.pipeline import make_pipeline
        >>> from sklearn.preprocessing import StandardScaler
        >>> from preflearn import BradleyTerry
        >>> X = [[10.0], [20.0], [30.0]]
        >>> model = make_pipeline(StandardScaler(), BradleyTerry()).fit(X, [[2, 1], [1, 0]])
        >>> model.predict(X).argsort()
        array([0, 1, 2])
        """
        return self.fit_pairs(X, y, weight=weight, ties=ties, judge=judge)

    def partial_fit_pairs(self, X, pairs, *, weight=None, ties=None, judge=None) -> Self:
        """Learn from more comparisons: the result is that of ``fit_pairs`` with all of them.

        Parameters
        ----------
        X : as in fit_pairs
            The items of these pairs: those of ``fit_pairs``, some of them, or new ones. Equal rows are the same item.
        pairs, weight, ties, judge : as in fit_pairs

        Returns
        -------
        self

        Notes
        -----
        O(r²) for an answer about known items, r being the number of features, basis vectors or items, after one O(r³)
        for the first. The scores are those of ``fit_pairs`` to about 1e-8. Covariances are computed with curvatures of
        answers that may be 0.2 % off, so that standard deviations differ by about 0.1 % at most. A new
        item costs O(r³) unless the kernel is linear or has a reduced set.

        Examples
        --------
        >>> from preflearn import BradleyTerry
        >>> model = BradleyTerry(kernel="items").fit_pairs(["a", "b", "c"], [[0, 1]])
        >>> model.partial_fit_pairs(["a", "b", "c"], [[1, 2]]).rank(["a", "b", "c"])
        array([1, 2, 3])
        """
        if not hasattr(self, "answers_"):
            return self.fit_pairs(X, pairs, weight=weight, ties=ties, judge=judge)
        X = self._read_items(X, reset=False)
        if (judge is not None) != (self.answers_.judges is not None) and self.answers_.n_pairs:
            raise ValueError(
                "Name the judge of every answer or of none: fit_pairs and partial_fit_pairs differ."
            )
        known = {label: number for number, label in enumerate(self.reliability_)} if judge is not None else {}
        new, judges = self._read_answers(n_items(X), pairs, weight, ties, judge, known)
        numbers = self._numbers_of(X)
        fresh = np.unique(new.pairs[numbers[new.pairs] < 0]) if new.n_pairs else np.empty(0, dtype=np.int64)
        if fresh.size:
            numbers[fresh] = self._add_items(X, fresh)
        if judge is not None:
            scale = np.array([*self.reliability_.values(), *np.ones(len(judges) - len(known))])
            new = new.scaled(scale)
        n_known = n_items(self.items_)
        old = replace(self.answers_, n_rows=n_known)
        answers = old.followed_by(replace(new, n_rows=n_known, pairs=numbers[new.pairs]))
        self._update(answers, judges)
        return self

    def _fit_answers(self, X: Any, answers: Answers, judges: dict[Hashable, int], with_judges: bool) -> None:
        for name in ("reliability_", "feature_map_", "_first_rows", *_CACHES):
            self.__dict__.pop(name, None)
        space, items, numbers = self._represent(X)
        answers = replace(answers, n_rows=n_items(items), pairs=numbers[answers.pairs])
        self._solve(space, items, answers)
        if with_judges:
            self._weigh_judges(judges)
            # Its covariance is that of nearby reliabilities: made anew when it is asked for.
            self.__dict__.pop("_laplace", None)

    def _represent(self, X: Any) -> tuple[LatentSpace, Any, np.ndarray]:
        """Coordinates of the latent function, the items that answers refer to, and the item of each row of X."""
        self.offset_variance_ = 0.0
        item_offsets = self._read_item_offsets(self._chosen_item_offsets())
        kernel = self._read_kernel()
        every_row = np.arange(n_items(X))
        with self._more_stages()("kernel and its factor"):
            reduced = None if self.kernel == "items" else self._reduced_set(X, kernel)
            if reduced is not None:
                self.feature_map_ = reduced
                return LatentSpace(n_items(X), reduced.map_items(X, kernel)), _copied(X), every_row
            if kernel.is_linear and not item_offsets:
                return LatentSpace(n_items(X), X), _copied(X), every_row
            if kernel.is_precomputed:
                return kernel_space(X), _copied(X), every_row
            first, numbers = np.unique(number_items(X), return_inverse=True)
            self._first_rows = first
            items = take_items(X, first)
            if self.kernel == "items":
                return LatentSpace(n_items(items)), items, numbers
            if kernel.is_linear:
                variance = float(np.mean(Features(items).row_lengths() ** 2))
                self.offset_variance_ = item_offsets * max(variance, 1e-300)
                return self._linear_space(items), items, numbers
            K = np.asarray(kernel.matrix(items), dtype=np.float64)
            if item_offsets:
                self.offset_variance_ = item_offsets * max(float(np.mean(np.diagonal(K))), 1e-300)
                K[np.diag_indices_from(K)] += self.offset_variance_
            return kernel_space(K), items, numbers

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
        """Set the attributes of a solution, and warn of one that is none."""
        fit = mode.fit
        self.n_iter_, self.objective_ = max(1, fit.n_iter), fit.objective
        self.n_queries_, self.n_comparisons_ = 1, self.answers_.n_pairs
        self._set_solution(space, fit.weights)
        error = max(mode.error, self._expansion_error(space, fit.weights))
        if error > WORTH_A_WARNING:
            warnings.warn(
                f"{type(self).__name__}: alpha={self.alpha_:g} is so small beside the kernel that rounding may change "
                f"scores by about {error:.0e} of the largest: use a larger alpha, or scale the features.",
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

        At the mode a = -∇ℓ / 2 alpha, which is small where the kernel is nearly singular; C⁻ᵀ w is the better one where
        alpha is small beside the kernel.
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
        """How far rounding puts scores off that are sums of coefficients times kernel values."""
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
        """The shapes that a loaded model is checked for (`preflearn.io.fitted`)."""
        if "answers_" not in vars(self):
            return {}
        shapes = {"answers_": "a Answers", "items_": "m n", "answers_.n_rows": "= m"}
        shapes |= {"alpha_": "", "offset_variance_": ""}
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

    # The posterior ----------------------------------------------------------------------------------------------------

    def _posterior(self) -> LaplacePosterior | LabelPosterior:
        """Laplace's posterior at the solution, made when it is first needed."""
        self._check_fitted()
        if not hasattr(self, "_laplace"):
            space = getattr(self, "_space", None) or self._space_again()
            mode = getattr(self, "_mode", None) or self._mode_again(space)
            with self._more_stages()(f"posterior in {min(space.shape)} dimensions"):
                self._laplace = posterior_at(space, self.answers_, self.alpha_, mode)
            if isinstance(self._laplace, LaplacePosterior) and self._laplace.rounding > WORTH_A_WARNING:
                warnings.warn(
                    f"{type(self).__name__}: alpha={self.alpha_:g} is so small beside the kernel that rounding may "
                    f"change variances by about {self._laplace.rounding:.0e}: use a larger alpha, or scale the "
                    "features.",
                    ConvergenceWarning,
                    stacklevel=4,
                )
        return self._laplace

    def _has_many_labels(self) -> bool:
        """Whether the posterior is too large for a matrix, and is a `LabelPosterior`."""
        return self.kernel == "items" and n_items(self.items_) > MOST_DENSE_LABELS

    def _space_again(self) -> LatentSpace:
        """The coordinates of the fit, computed from what a saved model holds."""
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
            # Features keep equal rows apart, which does not matter to them.
            if np.array_equal(X, self.items_):
                return np.arange(n_items(X))
        if not hasattr(self, "_index"):
            self._index: dict[Hashable, int] = {}
            for number, key in enumerate(item_keys(self.items_)):
                self._index.setdefault(key, number)
        return np.array([self._index.get(key, -1) for key in item_keys(X)], dtype=np.int64)

    def _update(self, answers: Answers, judges: dict[Hashable, int]) -> None:
        self._move(answers)
        if answers.judges is not None:
            self._weigh_judges(judges)

    def _move(self, answers: Answers) -> None:
        """From the posterior of the answers so far to that of these."""
        posterior = getattr(self, "_laplace", None) if self._has_many_labels() else self._posterior()
        self.__dict__.pop("_mode", None)
        if isinstance(posterior, LaplacePosterior) and posterior.serves(answers):
            mode = posterior.add(answers, tol=self.tol, max_iter=self.max_iter)
            self.answers_ = answers
            self._set_mode(posterior.space, mode)
            return
        space = getattr(self, "_space", None) or self._space_again()
        start = self._mode_again(space).fit.weights
        mode = find_mode(space, answers, self.alpha_, tol=self.tol, max_iter=self.max_iter, start=start)
        self.__dict__.pop("_laplace", None)
        self.answers_, self._space = answers, space
        self._set_mode(space, mode)
        self._mode = mode

    def _add_items(self, X: Any, rows: np.ndarray) -> np.ndarray:
        """Take new items in; their numbers."""
        if self.kernel == "precomputed":
            raise ValueError(
                f"Row {rows[0]} is not a row of the kernel matrix of fit_pairs: with a precomputed kernel, new items "
                "need a new fit_pairs."
            )
        new = take_items(X, rows)
        first, numbers = np.unique(number_items(new), return_inverse=True)
        new = take_items(new, first)
        n_known = n_items(self.items_)
        kernel = self._read_kernel()
        posterior = None if self.kernel == "items" else self._posterior()
        self.items_ = _joined(self.items_, new)
        self.answers_ = replace(self.answers_, n_rows=n_items(self.items_))
        for name in ("_index", "_space", "_mode"):
            self.__dict__.pop(name, None)
        if self._keeps_coordinates(posterior):
            assert isinstance(posterior, LaplacePosterior)
            more = new if self._is_linear() else self.feature_map_.map_items(new, kernel)
            posterior.space = LatentSpace(n_items(self.items_), _joined(posterior.space.design, more))
            posterior.set_mode(posterior.weights)
        else:
            # The same function; new items have no coefficient yet.
            self._first_rows = np.arange(n_items(self.items_))
            if not hasattr(self, "coef_"):
                none = np.zeros(n_items(new))
                self._set_function(
                    None, np.append(self.dual_coef_, none)[:, None], self._first_rows, self.items_, True
                )
            self.__dict__.pop("_laplace", None)
        return n_known + numbers

    @staticmethod
    def _keeps_coordinates(posterior: Any) -> bool:
        """Whether weights of features stay what they are when items are added."""
        if posterior is None or not posterior.by_features:
            return False
        return not posterior.space.offset and posterior.space.factor is None

    def _weigh_judges(self, judges: dict[Hashable, int]) -> None:
        """Scores and reliabilities in turns."""
        for _ in range(_MAX_ROUNDS):
            posterior, answers = self._posterior(), self.answers_
            variances = posterior.variances_of_differences(answers.pairs)
            mean, variance = without_each(answers, posterior.scores, variances)
            reliability = estimate_reliability(answers, mean, variance)
            change = np.abs(np.log(reliability[answers.judges] / answers.scale)).max(initial=0.0)
            if change <= _RELIABILITY_TOL:
                break
            self._move(answers.scaled(reliability))
        self.reliability_ = {label: float(reliability[number]) for label, number in judges.items()}

    # What users ask ---------------------------------------------------------------------------------------------------

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
        w p (1 - p). O(r³) the first time, then O(m r² + m² r). With ``kernel="items"`` and more than 3,000 labels
        nothing of r × r numbers is formed: the covariance of m items takes m solves of some 30 iterations, each
        O(distinct pairs), and variances of more than 256 items are estimated from 64 draws of the posterior, which a
        warning says: their standard error is 18 % at most, and far less for items with few answers.

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

        Averaged over the posterior: σ(μ / √(1 + π v / 8)), with μ and v mean and variance of the difference of the
        latent scores. With judges, for one of reliability 1.

        Parameters
        ----------
        X_a, X_b : as in predict
            As many items in both, or one in either, which is compared with all of the other.

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
                f"X_a has {n_a} items, X_b has {n_b}: pass as many of both, or one to compare with all of the other."
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
        """The features that the posterior's weights belong to, and which rows have more to them; None for none."""
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
        """The prior covariance, at alpha = 1/2, of what the features F of X and G of Y leave out."""
        return (self._read_kernel().matrix(X, Y) - F @ G.T) * np.logical_and.outer(new, other)

    def _known_or_refused(self, X: Any) -> np.ndarray:
        numbers = self._numbers_of(X)
        if self.kernel == "precomputed" and (numbers < 0).any():
            raise ValueError(
                f"Row {int(np.argmax(numbers < 0))} is not a row of the kernel matrix of fit_pairs: how sure the model "
                "is of a new item depends on the kernel of the new items among themselves. Pass features and a named "
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
        """Of known labels by solves; one that is not known has its prior variance, wherever it stands."""
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
                f"of {np.sqrt(2 / N_DRAWS):.0%} at most: ask for {MOST_SOLVED} at a time for exact ones.",
                UserWarning,
                stacklevel=5,
            )

    def _variances_by_features(self, X: Any, other: Any) -> np.ndarray:
        """The same from features; differences are taken of these."""
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

    def next_pairs(self, X, n=1, *, answered=None, goal=None, strategy="information") -> np.ndarray:
        """The pairs to ask about next: those whose answers are expected to tell most.

        Parameters
        ----------
        X : as in predict
            The items to ask about; best those of ``fit_pairs``.
        n : int, default=1
            How many, for several judges at once. Each is chosen as if the ones before were answered.
        answered : int array of shape (k, 2), optional
            Pairs of rows not to be asked, in either order.
        goal : None, "everything", "top:K" or (a, b), default=None
            What is wanted: the whole order, the K best (in any order), or which of rows a and b is better.
        strategy : {"information", "random"}, default="information"

        Returns
        -------
        ndarray of int of shape (n, 2)
            Row numbers; fewer rows when fewer pairs are left.

        Notes
        -----
        O(m²) for each pair: some 0.1 seconds for 2,000 items. Of more than 3,000 items, those 128 are looked at whose
        scores are least certain (for "top:K", whose place above or below the boundary is; for a pair, the two and the
        most uncertain others).

        Examples
        --------
        >>> from preflearn import BradleyTerry
        >>> items = ["a", "b", "c"]
        >>> model = BradleyTerry(kernel="items").fit_pairs(items, [[0, 1]])
        >>> model.next_pairs(items, goal=(1, 2))
        array([[1, 2]])
        """
        self._check_fitted()
        if strategy not in _STRATEGIES:
            raise ValueError(f"strategy must be 'information' or 'random': found {strategy!r}.")
        if isinstance(n, bool) or not isinstance(n, Integral) or n < 1:
            raise ValueError(f"n, the number of pairs, must be an int of at least 1: found {n!r}.")
        X = self._read_items(X, reset=False)
        m = n_items(X)
        if m < 2:
            raise ValueError("There is one item: a question needs two.")
        goal = read_goal(goal, m)
        if strategy == "random" and goal is not None:
            raise ValueError(
                "strategy='random' asks without regard to the goal: leave goal at None, or ask by information."
            )
        asked = np.empty((0, 2), dtype=np.int64)
        if answered is not None and np.size(answered):
            asked = read_pairs(answered, m)
        if self._has_many_labels() or m > MOST_DENSE_LABELS:
            return self._questions_about_many(X, int(n), asked, goal, strategy)
        closed = np.eye(m, dtype=bool)
        closed[asked[:, 0], asked[:, 1]] = closed[asked[:, 1], asked[:, 0]] = True
        if strategy == "random":
            rows, columns = np.nonzero(~(closed | np.tri(m, dtype=bool)))
            rng = check_random_state(self.random_state)
            drawn = rng.choice(rows.shape[0], min(int(n), rows.shape[0]), replace=False)
            return np.stack([rows[drawn], columns[drawn]], axis=1)
        mean, covariance = self._posterior_for_questions(X)
        return choose_pairs(mean, covariance, int(n), closed=closed, goal=goal)

    def _questions_about_many(
        self, X: Any, n: int, asked: np.ndarray, goal: int | tuple[int, int] | None, strategy: str
    ) -> np.ndarray:
        """Questions about some of very many items: those that the model is least sure of."""
        m = n_items(X)
        if strategy == "random":
            return random_open_pairs(m, n, asked, check_random_state(self.random_state))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # which items are looked at need not be exact
            mean, variance = self.posterior(X, variances_only=True)
        rows = candidates(mean, variance, max(MOST_CANDIDATES, int(np.ceil(3.0 * np.sqrt(n)))), goal)
        mean, covariance = self.posterior(take_items(X, rows))
        position = np.full(m, -1)
        position[rows] = np.arange(rows.shape[0])
        among = position[asked]
        among = among[(among >= 0).all(axis=1)]
        closed = np.eye(rows.shape[0], dtype=bool)
        closed[among[:, 0], among[:, 1]] = closed[among[:, 1], among[:, 0]] = True
        if isinstance(goal, tuple):
            goal = int(position[goal[0]]), int(position[goal[1]])
        elif goal is not None:
            # The k best of all are so many of the candidates.
            goal = rows.shape[0] // 2
        return rows[choose_pairs(mean, covariance, n, closed=closed, goal=goal)]

    def _posterior_for_questions(self, X: Any) -> tuple[np.ndarray, np.ndarray]:
        """As `posterior`, without a copy of the covariance where X is the known items."""
        posterior = self._posterior()
        if isinstance(posterior, LaplacePosterior) and not posterior.by_features:
            numbers = self._known_or_refused(X)
            if np.array_equal(numbers, np.arange(posterior.covariance.shape[0])):
                return posterior.mean, posterior.covariance
        return self.posterior(X)

    def __getstate__(self):
        # Neither pickled nor saved: they are larger than the model.
        state = dict(super().__getstate__())
        for name in _CACHES:
            state.pop(name, None)
        return state


class BradleyTerry(BradleyTerryModel):
    """Bradley-Terry model with features: preferences with probabilities.

    P(h over j) = 1 / (1 + exp(-(f(x_h) - f(x_j)))). Minimises Σ w log(1 + exp(-(f(x_h) - f(x_j)))) over the preferences
    plus alpha ‖f‖². Scores of new items, how sure they are, and which question to ask next follow from the same
    solution.

    Parameters
    ----------
    alpha : float, default=1.0
        Regularisation λ, positive: the prior covariance of the latent scores is K / 2 alpha.
    kernel : str or callable, default="linear"
        A name of ``sklearn.metrics.pairwise.pairwise_kernels``, ``"precomputed"``, a function of two items, or
        ``"items"``: every item has a score of its own, the classical Bradley-Terry model; X then holds numbers or
        labels.
    gamma, degree, coef0, kernel_params
        Parameters of the kernel; one that the kernel does not take is refused.
    item_offsets : float, default=0.0
        Variance of a free offset of each item beside its features, relative to the mean variance that the kernel gives.
        With 0 the features say all; 1 means that they explain half. Equal rows are the same item: to tell items of
        equal features apart, add a column of tiny distinct numbers.
    n_basis : None, int or float, default=None
        Number of basis vectors of the reduced set, or their fraction of the rows; None for the full kernel.
    basis : "uniform" or array of int, default="uniform"
        How the basis vectors are chosen.
    random_state : int, RandomState or None
        For the draw of basis vectors and for random questions.
    link : {"logit"}, default="logit"
    tol : float, default=1e-14
        Relative accuracy of the objective.
    max_iter : int, default=100
        Newton steps.
    verbose : int, default=0
        Print each stage with its time.

    Attributes
    ----------
    coef_ : ndarray of shape (n,)
        Linear kernel without offsets and reduced set.
    dual_coef_, basis_, basis_indices_
        Otherwise: coefficients of the basis vectors, the basis vectors (None for a precomputed kernel), and their rows.
    feature_coef_ : ndarray of shape (n,)
        Linear kernel with offsets: the weights of the features; an item scores x · feature_coef_ plus its own offset,
        which is offset_variance_ times its dual_coef_.
    reliability_ : dict
        With judges: the factor of each judge's differences, by label. 1 is average, 0 answers at random.
    alpha_ : float
        The alpha of the fit.
    gamma_ : float
        With ``gamma="median"`` or ``"scale"``: the number that the rule has become.
    offset_variance_ : float
        Of each item's offset, as an addition to the kernel's diagonal.
    objective_ : float
        Sum of the losses plus alpha ‖f‖² at the solution.
    items_, answers_
        What was learned from: the distinct items, and the answers about them.
    n_iter_ : int
    n_comparisons_ : int

    See Also
    --------
    BradleyTerryCV : Chooses alpha, the width of the kernel and the offsets.

    Notes
    -----
    Newton's method with conjugate gradients: O(l + nnz(X)) for each product. The posterior costs O(r³) once, with r the
    smaller of features and items, basis vectors for a reduced set, items for a kernel.

    References
    ----------
    Bradley and Terry, "Rank analysis of incomplete block designs", Biometrika 39 (1952). Chu and Ghahramani,
    "Preference learning with Gaussian processes", ICML 2005.

    Examples
    --------
    >>> import numpy as np
    >>> from preflearn import BradleyTerry
    >>> X = np.array([[0.0, 1.0], [1.0, 0.0], [2.0, 1.0], [3.0, 0.0]])
    >>> model = BradleyTerry(alpha=0.1).fit_pairs(X, [[3, 0], [3, 1], [2, 0], [1, 0]])
    >>> model.rank(X)
    array([4, 3, 2, 1])
    >>> bool(model.win_probability(X[[3]], X[[0]])[0] > 0.8)
    True
    """

    def __init__(
        self, alpha=1.0, *, kernel="linear", gamma=None, degree=3, coef0=1, kernel_params=None,
        item_offsets=0.0, n_basis=None, basis="uniform", random_state=None, link="logit", tol=1e-14,
        max_iter=100, verbose=0,
    ) -> None:  # fmt: skip
        super().__init__(kernel, gamma, degree, coef0, kernel_params, n_basis, basis, random_state, verbose)
        self.alpha, self.item_offsets, self.link, self.tol = alpha, item_offsets, link, tol
        self.max_iter = max_iter

    def _read_options(self) -> None:
        read_alpha(self.alpha)
        super()._read_options()

    def _chosen_alpha(self) -> float:
        return read_alpha(self.alpha)


def _copied(X: Any) -> Any:
    return X.copy() if hasattr(X, "copy") else list(X)


def _joined(X: Any, more: Any) -> Any:
    if sp.issparse(X):
        return sp.vstack([X, more], format="csr")
    return [*X, *more] if isinstance(X, list) else np.concatenate([X, more])


def _dense(X: Any) -> np.ndarray:
    return np.asarray(X.toarray() if sp.issparse(X) else X, dtype=np.float64)
