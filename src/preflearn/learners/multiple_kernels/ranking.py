"""MultipleKernelRankRLS: RankRLS on a sum of kernels whose weights are learned."""

from __future__ import annotations

from typing import Self

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from ...comparisons import encode_queries
from ...comparisons.inputs import read_scores
from ...kernels.functions import n_items
from ..base import RankerMixin
from ..rankrls import RankRLS
from ..search import RankRLSCV
from .weights import KernelSum, aligned_weights, check_method, check_weights, choose_weights


class MultipleKernelRankRLS(RankerMixin, BaseEstimator):
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

    def fit(self, X, y, *, qid=None) -> Self:
        """Learn the weights, then the ranking.

        Parameters
        ----------
        X : list or dict
            The items of each kernel, in the order (or with the names) of `kernels`.
        y : array-like of shape (m,)
        qid : array-like of shape (m,), optional

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
            return model.fit(np.tensordot(weights, matrices, 1), scores[:, 0], qid=qid)

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
        return self

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
