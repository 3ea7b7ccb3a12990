r"""Learners with several kernels: a sum K = Σ_k w_k K_k with w_k >= 0 and Σ_k w_k = 1, whose weights are learned.

Every kernel first gets the same size, trace(C K C) / m = 1 with the centring C, so that weights can be compared.

* *Alignment*: the weights whose sum has the largest cosine with the kernel F Fᵀ of the labels,
  max ⟨K, F Fᵀ⟩ / ‖K‖, which is a small problem of nonnegative least squares: min wᵀ M w - 2 wᵀ b with
  M_kl = ⟨K_k, K_l⟩ and b_k = ⟨K_k, F Fᵀ⟩.
* *Cross-validation*: the weights with the best held-out score, by steps along one weight at a time from the best of
  the aligned weights, equal weights and single kernels.

Reference: Cortes, Mohri and Rostamizadeh, "Algorithms for learning kernels based on centered alignment", JMLR 13
(2012).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from scipy.optimize import nnls
from sklearn.base import BaseEstimator, clone
from sklearn.utils.validation import check_is_fitted

from ..comparisons import encode_queries
from ..comparisons.inputs import read_scores
from ..kernels.functions import n_items
from ..model_selection._choice import read_scoring
from ..model_selection._folds import encode_groups, few_folds, part_of, read_folds
from ..model_selection._learner import EstimatingLearner
from ..model_selection._nested import RowJudge
from ..model_selection._performance import PerformanceEstimate
from ..relations.inputs import ObjectKernel, read_labels
from ..relations.search import KroneckerRLSCV
from .base import RankerMixin
from .rankrls import RankRLS
from .search import RankRLSCV


class MultipleKernelRankRLS(EstimatingLearner, RankerMixin, BaseEstimator):
    r"""Rank by several kernels at once: f = Σ_k w_k f_k, weights and alpha by exact cross-validation.

    Parameters
    ----------
    kernels : list or dict
        One kernel for each view of the items: a name, a function of two items, ``"precomputed"``, a `Kernel`, or a
        tuple (kernel, parameters). The keys of a dict name them.
    alphas : "auto" or sequence of float, default="auto"
    weights : {"cv", "alignment", "equal"}, default="cv"
        By the best held-out score; by alignment with the labels, which needs no training; or all equal.
    cv, scoring : as in RankRLSCV
    cost, ties, weighting : as in RankRLS
    max_rounds : int, default=10
        Passes over the weights with ``weights="cv"``.

    Attributes
    ----------
    weights_ : dict from name to float
        They sum to 1; each kernel has been scaled to the same size, trace(C K C) = m.
    shares_ : dict from name to float
        The part of ‖f‖² that each kernel contributes to the learned function; they sum to 1. A kernel with a large
        weight may contribute little, where the function does not vary along it.
    dual_coef_ : ndarray of shape (m,)
        Coefficients of the training items with the weighted sum of the kernels.
    alpha_, alphas_, cv_scores_, best_score_ : as in RankRLSCV
        At the chosen weights. Where the weights were chosen by the same score, it is slightly optimistic.
    estimate_ : PerformanceEstimate
        How good the model is on new data, with a 95 % interval. Learned weights, and alpha with them, are learned again
        without each of five folds when it is first asked for, five times the work of `fit`. Not part of a saved model.

    Examples
    --------
    >>> import numpy as np
    >>> from preflearn.multiple_kernels import MultipleKernelRankRLS
    >>> rng = np.random.default_rng(0)
    >>> table, text, qid = rng.normal(size=(60, 3)), rng.normal(size=(60, 4)), np.repeat(np.arange(6), 10)
    >>> y = table @ [1.0, -1.0, 0.5] + 0.1 * rng.normal(size=60)
    >>> model = MultipleKernelRankRLS({"table": "linear", "text": "linear"}, alphas=[0.1, 1.0, 10.0])
    >>> model = model.fit({"table": table, "text": text}, y, qid=qid)
    >>> model.weights_["table"] > model.weights_["text"]
    True
    """

    def __init__(
        self, kernels, alphas="auto", *, weights="cv", cv=None, scoring=None, cost="magnitude",
        ties="include", weighting="pair", max_rounds=10,
    ) -> None:  # fmt: skip
        self.kernels, self.alphas, self.weights, self.cv, self.scoring = kernels, alphas, weights, cv, scoring
        self.cost, self.ties, self.weighting, self.max_rounds = cost, ties, weighting, max_rounds

    def fit(self, X, y, *, qid=None, groups=None) -> Self:
        """Learn the weights, then the ranking.

        Parameters
        ----------
        X : list or dict
            The items of each kernel, in the order (or with the names) of `kernels`.
        y : array-like of shape (m,)
        qid : array-like of shape (m,), optional
        groups : array-like of shape (m,), optional
            Labels of dependent rows (patients, documents), as in `RankRLSCV.fit`.

        Returns
        -------
        self
        """
        check_method(self.weights)
        m = np.shape(y)[0] if np.ndim(y) else n_items(next(iter(X)))
        scores, single = read_scores(y, m, estimator=self)
        if not single:
            raise ValueError("MultipleKernelRankRLS learns one output: y has several columns.")
        self._kernels, matrices = KernelSum.read(X, self.kernels, m, -1, "item")

        def search(weights: np.ndarray) -> RankRLSCV:
            options = {"cost": self.cost, "ties": self.ties, "weighting": self.weighting}
            model = RankRLSCV(self.alphas, cv=self.cv, scoring=self.scoring, kernel="precomputed", **options)
            return model.fit(np.tensordot(weights, matrices, 1), scores[:, 0], qid=qid, groups=groups)

        weights = choose_weights(
            self.weights,
            lambda: self._aligned(matrices, scores, qid),
            matrices.shape[0],
            lambda w: search(w).best_score_,
            self.max_rounds,
        )
        model = search(weights)
        self.dual_coef_ = a = model.dual_coef_
        energy = np.array([w * a @ K @ a for w, K in zip(weights, matrices, strict=True)])
        names = self._kernels.names
        self.weights_ = dict(zip(names, weights.tolist(), strict=True))
        self.shares_ = dict(zip(names, (energy / energy.sum()).tolist(), strict=True))
        for name in ("alpha_", "alphas_", "cv_scores_", "best_score_"):
            setattr(self, name, getattr(model, name))

        def estimate(fitted: np.ndarray) -> PerformanceEstimate:
            if self.weights == "equal":
                return model.estimate_
            return self._estimate_again(matrices, scores, qid, groups, fitted)

        self._keep_choice(estimate, lambda found: np.tensordot(weights, matrices, 1) @ found.dual_coef_)
        return self

    def _estimate_again(
        self, matrices: np.ndarray, scores: np.ndarray, qid: Any, groups: Any, fitted: np.ndarray
    ) -> PerformanceEstimate:
        """Everything is learned again without each fold."""
        if isinstance(self.cv, Iterable) and not isinstance(self.cv, str):
            raise ValueError(
                "estimate_ learns the weights again without each of five folds, and cv lists row numbers of the whole: "
                "use a number of folds or a splitter."
            )
        m = scores.shape[0]
        queries, owners = encode_queries(qid, m), None if groups is None else encode_groups(groups, m)
        labels = None if qid is None else queries.codes
        folds = read_folds(few_folds(m, queries, owners), None, scores, m, qid=labels, groups=owners)
        choices = "weights and alpha chosen without it as well"
        judge = RowJudge(read_scoring(self.scoring), folds, queries, scores, groups=owners, choices=choices)
        model, held_out = clone(self).set_params(kernels=["precomputed"] * len(matrices)), []
        for test, left in zip(folds.tests, folds.leaving, strict=True):
            rest = np.setdiff1d(np.arange(m), left)
            of_rest = {
                "qid": None if qid is None else part_of(queries, rest),
                "groups": part_of(owners, rest),
            }
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)
                model.fit(list(matrices[:, rest][:, :, rest]), scores[rest, 0], **of_rest)
            held_out.append(model.predict(list(matrices[:, test][:, :, rest]))[None, :, None])
        return judge.estimate(held_out, fitted)

    def _aligned(self, matrices: np.ndarray, scores: np.ndarray, qid) -> np.ndarray:
        """Alignment of what RankRLS compares: S K S with S y."""
        learner = RankRLS(cost=self.cost, ties=self.ties, weighting=self.weighting)
        task = learner._compare(scores, encode_queries(qid, scores.shape[0]))[0]
        if not task.has_half:
            raise ValueError(f"There is no alignment for cost={self.cost!r}: use weights='equal'.")
        centred = np.stack([task.half_both_sides(K.copy()) for K in matrices])
        return aligned_weights(centred, task.half_target)

    def predict(self, X) -> np.ndarray:
        """Scores of new items.

        Parameters
        ----------
        X : as in fit

        Returns
        -------
        ndarray of shape (m',)
        """
        check_is_fitted(self, "weights_")
        return self._kernels.between(X, np.array(list(self.weights_.values()))) @ self.dual_coef_

    def _fitted_arrays(self) -> dict[str, str]:
        """The shapes that a loaded model is checked for (`preflearn.tables.models.fitted`)."""
        if "dual_coef_" not in vars(self):
            return {}
        check_weights(self._kernels, self.weights_)
        return {"dual_coef_": "m", "_kernels.n": "= m"}


class MultipleKernelKroneckerRLS(EstimatingLearner, BaseEstimator):
    """`KroneckerRLSCV` with a weighted sum of kernels for the rows and one for the columns.

    Parameters
    ----------
    row_kernels, column_kernels : list or dict
        As `kernels` of `MultipleKernelRankRLS`.
    alphas, hold_out, cv, scoring, compare : as in KroneckerRLSCV
    weights : {"cv", "alignment", "equal"}, default="cv"
        By the best held-out score of the setting, first of the rows, then of the columns; by alignment of each
        side with the labels; or all equal.
    max_rounds : int, default=5
        Passes over the weights of a side with ``weights="cv"``.

    Attributes
    ----------
    row_weights_, column_weights_ : dict from name to float
        Each sums to 1; the kernels have been scaled to the same size.
    dual_coef_ : ndarray or sparse array of shape (p, q)
        Coefficients of the training pairs with the weighted sums of the kernels.
    alpha_, alphas_, cv_scores_, best_score_ : as in KroneckerRLSCV
        At the chosen weights. Where the weights were chosen by the same score, it is slightly optimistic.
    estimate_ : PerformanceEstimate
        With ``weights="equal"``, as in KroneckerRLSCV. Learned weights have seen every label, and are not learned again
        without each fold.

    Examples
    --------
    >>> import numpy as np
    >>> from preflearn.multiple_kernels import MultipleKernelKroneckerRLS
    >>> rng = np.random.default_rng(0)
    >>> shape, noise, targets = rng.normal(size=(20, 2)), rng.normal(size=(20, 2)), rng.normal(size=(15, 2))
    >>> Y = shape @ rng.normal(size=(2, 2)) @ targets.T + 0.1 * rng.normal(size=(20, 15))
    >>> model = MultipleKernelKroneckerRLS({"shape": "linear", "noise": "linear"}, ["linear"], hold_out="rows")
    >>> model = model.fit({"shape": shape, "noise": noise}, [targets], Y)
    >>> model.row_weights_["shape"] > 0.9
    True
    """

    def __init__(
        self, row_kernels, column_kernels, alphas="auto", *, weights="cv", hold_out="entries", cv=None,
        scoring=None, compare=None, max_rounds=5,
    ) -> None:  # fmt: skip
        self.row_kernels, self.column_kernels, self.alphas = row_kernels, column_kernels, alphas
        self.weights, self.hold_out, self.cv, self.scoring = weights, hold_out, cv, scoring
        self.compare, self.max_rounds = compare, max_rounds

    def fit(self, rows, columns, Y, *, row_groups=None, column_groups=None) -> Self:
        """Learn the weights of both sides, then the relation.

        Parameters
        ----------
        rows, columns : list or dict
            The objects of each kernel.
        Y : array-like of shape (p, q)
            NaN where unknown.
        row_groups, column_groups : array-like, optional
            As in `KroneckerRLSCV.fit`.

        Returns
        -------
        self
        """
        check_method(self.weights)
        Y = read_labels(Y)
        p, q = Y.shape
        self._rows, K = KernelSum.read(rows, self.row_kernels, p, q, "row")
        self._columns, G = KernelSum.read(columns, self.column_kernels, q, p, "column")

        def search(row_weights: np.ndarray, column_weights: np.ndarray) -> KroneckerRLSCV:
            options = {
                "hold_out": self.hold_out,
                "cv": self.cv,
                "scoring": self.scoring,
                "compare": self.compare,
            }
            model = KroneckerRLSCV(
                self.alphas, row_kernel="precomputed", column_kernel="precomputed", **options
            )
            return model.fit(
                np.tensordot(row_weights, K, 1),
                np.tensordot(column_weights, G, 1),
                Y,
                row_groups=row_groups,
                column_groups=column_groups,
            )

        F = _centred(np.where(np.isnan(Y), np.nanmean(Y), Y))
        equal = np.full(G.shape[0], 1 / G.shape[0])
        v = aligned_weights(_centred_kernels(G), F.T) if self.weights != "equal" and G.shape[0] > 1 else equal
        w = choose_weights(
            self.weights,
            lambda: aligned_weights(_centred_kernels(K), F),
            K.shape[0],
            lambda weights: search(weights, v).best_score_,
            self.max_rounds,
        )
        v = choose_weights(
            self.weights,
            lambda: v,
            G.shape[0],
            lambda weights: search(w, weights).best_score_,
            self.max_rounds,
        )
        model = search(w, v)
        self.dual_coef_ = model.dual_coef_
        self.row_weights_ = dict(zip(self._rows.names, w.tolist(), strict=True))
        self.column_weights_ = dict(zip(self._columns.names, v.tolist(), strict=True))
        for name in ("alpha_", "alphas_", "cv_scores_", "best_score_"):
            setattr(self, name, getattr(model, name))
        if self.weights == "equal" or K.shape[0] == G.shape[0] == 1:
            self._keep_choice(lambda fitted: model.estimate_, lambda found: 0.0)
        else:
            self._forget_choice(
                "the weights were learned from all labels. Use weights='equal', or leave objects out, fit, and compare "
                "predict with what is known about them."
            )
        return self

    def predict(self, rows, columns) -> np.ndarray:
        """f for every pair of a row object and a column object.

        Parameters
        ----------
        rows, columns : as in fit

        Returns
        -------
        ndarray of shape (p', q')
        """
        check_is_fitted(self, "row_weights_")
        K = self._rows.between(rows, np.array(list(self.row_weights_.values())))
        G = self._columns.between(columns, np.array(list(self.column_weights_.values())))
        return K @ self.dual_coef_ @ G.T

    def _fitted_arrays(self) -> dict[str, str]:
        """The shapes that a loaded model is checked for (`preflearn.tables.models.fitted`)."""
        if "dual_coef_" not in vars(self):
            return {}
        check_weights(self._rows, self.row_weights_)
        check_weights(self._columns, self.column_weights_)
        return {"dual_coef_": "p q", "_rows.n": "= p", "_columns.n": "= q"}


def _centred(F: np.ndarray) -> np.ndarray:
    """Rows and columns of mean zero."""
    F = F - F.mean(axis=0)
    return F - F.mean(axis=1, keepdims=True)


def _centred_kernels(kernels: np.ndarray) -> np.ndarray:
    return np.stack([_centred(K) for K in kernels])


# A step multiplies or divides a weight; steps shrink until they change little.
_FIRST_STEP, _LAST_STEP = 4.0, 1.3
METHODS = ("cv", "alignment", "equal")


@dataclass
class KernelSum:
    """Kernels of one kind of object with their training matrices, all of one size.

    Attributes
    ----------
    names : list of str
    kernels : list of ObjectKernel
    scales : list of float
        What each kernel is divided by.
    """

    names: list[str]
    kernels: list[ObjectKernel]
    scales: list[float]

    @property
    def n(self) -> int:
        """Number of training objects."""
        return self.kernels[0].n

    def _fitted_arrays(self) -> dict[str, str]:
        """The values that a loaded model is checked for (`preflearn.tables.models.fitted`)."""
        if not len(self.names) == len(self.kernels) == len(self.scales) > 0:
            raise ValueError("names, kernels and scales differ in number")
        if not all(isinstance(kernel, ObjectKernel) and kernel.n == self.n for kernel in self.kernels):
            raise ValueError("the kernels are not all of the same objects")
        if not all(isinstance(scale, float) and 0 < scale < np.inf for scale in self.scales):
            raise ValueError("scales are not positive numbers")
        return {}

    @classmethod
    def read(
        cls, objects: Any, kernels: Any, n: int, n_other: int, side: str
    ) -> tuple[KernelSum, np.ndarray]:
        """Validate kernels and their objects; the matrices of the training objects, shape (n_kernels, n, n)."""
        named = _named(kernels, "kernels")
        given = _named(objects, "objects")
        if list(given) != list(named):
            raise ValueError(
                f"Each kernel needs objects of its own: found kernels {list(named)} and objects {list(given)}."
            )
        read, matrices, scales = [], [], []
        for name, kernel in named.items():
            function, params = kernel if isinstance(kernel, tuple) else (kernel, None)
            reader, K = ObjectKernel.read(given[name], function, params, n, n_other, side)
            scale = float(np.trace(K) - K.sum() / n) / n
            if not scale > 0:
                raise ValueError(f"Kernel {name!r} is the same for all objects: leave it out.")
            read.append(reader)
            matrices.append(K / scale)
            scales.append(scale)
        return cls(list(named), read, scales), np.stack(matrices)

    def between(self, objects: Any, weights: np.ndarray) -> np.ndarray:
        """The weighted sum for new objects, shape (n', n)."""
        given = _named(objects, "objects")
        if list(given) != self.names:
            raise ValueError(f"Expected objects for the kernels {self.names}: found {list(given)}.")
        parts = zip(self.names, self.kernels, self.scales, weights, strict=True)
        return np.sum([w / scale * kernel.between(given[name]) for name, kernel, scale, w in parts], axis=0)


def _named(values: Any, what: str) -> dict[str, Any]:
    if isinstance(values, Mapping):
        named = {str(name): value for name, value in values.items()}
    elif isinstance(values, (list, tuple)):
        named = {str(number): value for number, value in enumerate(values)}
    else:
        raise TypeError(
            f"{what} must be a list or a dict, one entry per kernel: found {type(values).__name__}."
        )
    if not named:
        raise ValueError(f"{what} is empty: give at least one kernel.")
    return named


def aligned_weights(kernels: np.ndarray, F: np.ndarray) -> np.ndarray:
    """Weights of the best alignment with F Fᵀ; kernels and F have been centred.

    Parameters
    ----------
    kernels : ndarray of shape (n_kernels, m, m)
    F : ndarray of shape (m, v)

    Examples
    --------
    >>> import numpy as np
    >>> x, noise = np.array([[-1.0], [0.0], [1.0]]), np.array([[1.0], [-2.0], [1.0]])
    >>> aligned_weights(np.stack([x @ x.T, noise @ noise.T]), 3 * x)
    array([1., 0.])
    """
    flat = kernels.reshape(kernels.shape[0], -1)
    M = flat @ flat.T
    b = np.einsum("kij,iv,jv->k", kernels, F, F, optimize=True)
    values, vectors = np.linalg.eigh(M)
    kept = values > 1e-12 * values[-1]
    half = vectors[:, kept] * np.sqrt(values[kept])
    weights, _ = nnls(half.T, (vectors[:, kept] / np.sqrt(values[kept])).T @ b)
    return normalised(weights)


def normalised(weights: np.ndarray) -> np.ndarray:
    """Weights that sum to one; equal ones where all are zero."""
    total = float(weights.sum())
    return weights / total if total > 0 else np.full(weights.shape, 1 / weights.size)


def search_weights(
    score: Callable[[np.ndarray], float], starts: Sequence[np.ndarray], max_rounds: int
) -> tuple[np.ndarray, float]:
    """The weights with the best score, by steps along one weight at a time.

    Parameters
    ----------
    score : callable
        Greater is better.
    starts : sequence of ndarray of shape (n_kernels,)
    max_rounds : int
        Passes over the weights.
    """
    known: dict[tuple[float, ...], float] = {}

    def value(weights: np.ndarray) -> float:
        key = tuple(np.round(weights, 9))
        if key not in known:
            with warnings.catch_warnings():
                # The position of the best alpha in a trial does not matter.
                warnings.simplefilter("ignore", UserWarning)
                known[key] = score(weights)
        return known[key]

    best = max(starts, key=value)
    step = _FIRST_STEP
    for _ in range(max_rounds):
        before = value(best)
        for k in range(best.shape[0]):
            best = max([best, *_moved(best, k, step)], key=value)
        if value(best) <= before:
            step = np.sqrt(step)
            if step < _LAST_STEP:
                break
    return best, value(best)


def _moved(weights: np.ndarray, k: int, step: float) -> list[np.ndarray]:
    """The weights with one of them smaller, larger, and left out."""
    moved = []
    for value in (weights[k] / step, weights[k] * step if weights[k] > 0 else 0.1, 0.0):
        changed = weights.copy()
        changed[k] = value
        if changed.any():
            moved.append(normalised(changed))
    return moved


def starting_weights(aligned: np.ndarray) -> list[np.ndarray]:
    """Aligned, equal, and single kernels."""
    n = aligned.shape[0]
    return [aligned, np.full(n, 1 / n), *np.eye(n)]


def check_method(weights: Any) -> None:
    """Refuse an unknown way to choose the weights."""
    if not isinstance(weights, str) or weights not in METHODS:
        raise ValueError(f"weights must be one of {', '.join(map(repr, METHODS))}: found {weights!r}.")


def check_weights(kernels: Any, weights: Any) -> None:
    """Refuse a loaded sum of kernels whose weights are not those of its kernels."""
    if not isinstance(kernels, KernelSum) or not isinstance(weights, dict) or list(weights) != kernels.names:
        raise ValueError("the weights are not those of the kernels")
    if not all(isinstance(weight, float) and np.isfinite(weight) for weight in weights.values()):
        raise ValueError("the weights of the kernels are not finite")


def choose_weights(
    method: str,
    aligned: Callable[[], np.ndarray],
    n: int,
    score: Callable[[np.ndarray], float],
    max_rounds: int,
) -> np.ndarray:
    """The weights by one of the methods."""
    if method == "equal" or n == 1:
        return np.full(n, 1 / n)
    if method == "alignment":
        return aligned()
    return search_weights(score, starting_weights(aligned()), max_rounds)[0]
