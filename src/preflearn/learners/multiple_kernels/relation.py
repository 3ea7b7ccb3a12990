"""MultipleKernelKroneckerRLS: a relation with a learned sum of kernels on each side."""

from __future__ import annotations

from typing import Self

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from ...relations.inputs import read_labels
from ...relations.search import KroneckerRLSCV
from .weights import KernelSum, aligned_weights, check_method, check_weights, choose_weights


class MultipleKernelKroneckerRLS(BaseEstimator):
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

    def fit(self, rows, columns, Y) -> Self:
        """Learn the weights of both sides, then the relation.

        Parameters
        ----------
        rows, columns : list or dict
            The objects of each kernel.
        Y : array-like of shape (p, q)
            NaN where unknown.

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
            return model.fit(np.tensordot(row_weights, K, 1), np.tensordot(column_weights, G, 1), Y)

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
