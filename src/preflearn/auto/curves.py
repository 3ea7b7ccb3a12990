"""A learned kernel with a curve for each of some features beside it, as one fitted model in plain arrays."""

from __future__ import annotations

import numpy as np
from sklearn.base import BaseEstimator

from ..kernels.onnx_nodes import products_nodes
from ..learners.rankrfm import RankRFM, importances_of_gradients, of_expansion
from ..numerics.onnx_graph import Graph, Value
from ..squared.curves import Curves
from ..squared.expansion import Expansion

# Rows whose bumps are computed together.
_BLOCK = 512


class KernelAndCurves(BaseEstimator):
    """f(x) = k(x, R) β + Σ_j g_j(x_j), each g_j a sum of bumps (`squared.curves`).

    Attributes
    ----------
    kernel_ : RankRFM
        The part on all features.
    feature_ : ndarray of int of shape (p,)
        The features that have a curve.
    knots_ : ndarray of shape (p, k)
        Where the bumps are.
    widths_ : ndarray of shape (p,)
    coef_ : ndarray of shape (p, k)
        Their heights.
    feature_importances_ : ndarray of shape (n,)
        Root mean square of the gradient along each feature, in standard deviations of it; they sum to 1.
    n_features_in_ : int
    """

    @classmethod
    def of(cls, kernel: RankRFM, curves: Curves, coefficients: np.ndarray) -> KernelAndCurves:
        """From the parts of an expansion."""
        model = cls()
        model.kernel_, model.n_features_in_ = kernel, kernel.n_features_in_
        model.feature_, model.knots_, model.widths_ = curves.features, curves.knots, curves.widths
        model.coef_ = coefficients.reshape(curves.knots.shape) * curves.factors[:, None]
        rows = kernel.basis_
        gradients = kernel.gradient(rows) + curves.gradients(rows, coefficients)
        model.feature_importances_ = importances_of_gradients(gradients[:, :, None], rows)
        return model

    def predict(self, X: np.ndarray) -> np.ndarray:
        """Scores of the rows of X, shape (m,)."""
        return self.kernel_.predict_items(X) + self.curve_scores(X)

    def curve_scores(self, X: np.ndarray) -> np.ndarray:
        """Σ_j g_j of the rows of X, shape (m,)."""
        curves, heights = (
            Curves(self.feature_, self.knots_, self.widths_, np.ones(self.widths_.shape)),
            self.coef_.ravel(),
        )
        starts = range(0, X.shape[0], _BLOCK)
        return np.concatenate([curves.values(X[k : k + _BLOCK]) @ heights for k in starts] or [np.empty(0)])

    def _onnx_nodes(self, graph: Graph, X: Value) -> Value:
        """What `predict` computes, recorded (`numerics.graph`)."""
        p, k = self.knots_.shape
        # Each feature once for each of its knots: a product with zeros and ones takes a fifth of the time of `columns`.
        repeated = graph.columns(X, self.feature_) @ np.repeat(np.eye(p), k, axis=1)
        u = (repeated - self.knots_.ravel()) * np.repeat(1.0 / self.widths_, k)
        bumps = products_nodes((u * u * -0.5).exp(), self.coef_.ravel())
        return self.kernel_._onnx_nodes(graph, X) + bumps

    def _fitted_arrays(self) -> dict[str, str]:
        """The shapes that a loaded model is checked for (`preflearn.tables.models.fitted`)."""
        if not vars(self):
            return {}
        if not isinstance(getattr(self, "kernel_", None), RankRFM):
            raise ValueError("kernel_ is not a RankRFM")
        if self.kernel_.n_features_in_ != self.n_features_in_ or self.kernel_.dual_coef_.ndim != 1:
            raise ValueError("kernel_ was fitted to other features")
        if not (np.asarray(self.widths_) > 0).all():
            raise ValueError("widths_ are not all positive")
        return {
            "kernel_": "a RankRFM",
            "feature_": "p < n",
            "knots_": "p k",
            "widths_": "p",
            "coef_": "p k",
            "feature_importances_": "n",
        }


def as_estimator(model: Expansion, place: int, number: int, n_queries: int) -> RankRFM | KernelAndCurves:
    """An expansion at one of its λ, of some round, as a fitted model that can be saved and exported."""
    of_kernel, of_curves = np.split(model.betas[:, place], [model.basis.shape[0]])
    kernel = of_expansion(
        model.kernel,
        model.basis,
        of_kernel,
        alpha=float(model.alphas[place]),
        best_round=number,
        n_queries=n_queries,
    )
    return kernel if model.curves is None else KernelAndCurves.of(kernel, model.curves, of_curves)


def described(model: RankRFM | KernelAndCurves) -> str:
    """The settings of a fitted kernel, for the leaderboard."""
    kernel = model.kernel_ if isinstance(model, KernelAndCurves) else model
    found = f"alpha {kernel.alpha_:.3g}, round {kernel.best_round_}, {kernel.basis_.shape[0]} basis vectors"
    return f"{found}, {model.feature_.shape[0]} curves" if isinstance(model, KernelAndCurves) else found


__all__ = ["KernelAndCurves", "as_estimator", "described"]
