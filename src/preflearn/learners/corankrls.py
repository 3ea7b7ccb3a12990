r"""Several views of the same items: a ranker for each, which agree on rows that nobody has scored.

    Σ_v [(s - f_v)ᵀ L (s - f_v) + alpha ‖f_v‖²]  +  agreement Σ_{v < w} Σ over unscored x of (f_v(x) - f_w(x))²

With features Φ_v of each view this is one RankRLS on the rows of all views, one below the other: Φ = diag(Φ_1, Φ_2,
...), every view has queries of its own, and that a row agrees with itself in another view is a preference of magnitude
0.
"""

from __future__ import annotations

from itertools import combinations
from numbers import Integral, Real
from typing import Any, Self

import numpy as np
import scipy.sparse as sp
from scipy.linalg import block_diag
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted, validate_data

from ..comparisons import encode_queries
from ..comparisons.inputs import compare_scores, read_alpha
from ..kernels.inputs import KernelParametersMixin, read_items
from ..kernels.maps import EmpiricalKernelMap
from ..model_selection._learner import KernelLearner
from .base import RankerMixin
from .partial_targets import read_partial_targets
from .rankrls import RankRLS


class CoRankRLS(RankerMixin, KernelParametersMixin, KernelLearner, BaseEstimator):
    """Co-regularised RankRLS: a ranker for each view of the items, and their agreement on rows without scores.

    Two descriptions of the same item (text and links, signal and history) should rank it alike. Where scores are few,
    that they agree on the many rows without scores is information too.

    Parameters
    ----------
    alpha : float, default=1.0
        Regularisation λ of every view.
    agreement : float, default=1.0
        ν, the weight of the squared difference between the predictions of two views at a row without a score; 0 trains
        every view by itself.
    views : list of lists of columns
        Two or more lists of column numbers, or of column names for data frames. A column may be in several.
    kernel, gamma, degree, coef0, kernel_params, n_basis, basis, random_state : as in RankRLS
        The same for every view, on its own columns. Not "precomputed".
    cost, ties, weighting, solver, verbose : as in RankRLS

    Attributes
    ----------
    rankers_ : list of RankRLS
        The ranker of each view, which predicts from its columns.
    columns_ : list of ndarray of int
        The columns of each view.
    n_queries_, n_unscored_ : int

    Notes
    -----
    The prediction is the mean over the views. One linear system of the width of all views together: O(k³ + m k²) for
    k features or basis vectors in all, k = m for each view with a full kernel; memory O(V m k) for V views.
    Reference: Tsivtsivadze, Pahikkala, Boberg, Salakoski and Heskes, "Co-regularized least-squares for label ranking",
    in Preference Learning (2011).

    Examples
    --------
    >>> import numpy as np
    >>> from preflearn import CoRankRLS
    >>> rng = np.random.default_rng(0)
    >>> quality, X = rng.normal(size=400), rng.normal(size=(400, 20))
    >>> X[:, [0, 10]] += quality[:, None]
    >>> y = np.where(np.arange(400) < 10, quality, np.nan)
    >>> for agreement in (0.0, 1.0):
    ...     model = CoRankRLS(agreement=agreement, views=[range(10), range(10, 20)]).fit(X, y)
    ...     print(round(model.score(X[10:], quality[10:]), 2))
    0.54
    0.74
    """

    def __init__(
        self, alpha=1.0, *, agreement=1.0, views=None, kernel="linear", gamma=None, degree=3, coef0=1,
        kernel_params=None, n_basis=None, basis="uniform", random_state=None, cost="magnitude", ties="include",
        weighting="pair", solver="auto", verbose=0,
    ) -> None:  # fmt: skip
        self.alpha, self.agreement, self.views = alpha, agreement, views
        self.kernel, self.gamma, self.degree, self.coef0 = kernel, gamma, degree, coef0
        self.kernel_params, self.n_basis, self.basis, self.random_state = (
            kernel_params, n_basis, basis, random_state,
        )  # fmt: skip
        self.cost, self.ties, self.weighting, self.solver, self.verbose = (
            cost,
            ties,
            weighting,
            solver,
            verbose,
        )

    def fit(self, X, y, *, qid=None) -> Self:
        """Learn the rankers of all views together.

        Parameters
        ----------
        X : array-like, sparse or data frame of shape (m, n)
            Scored and unscored rows together.
        y : array-like of shape (m,) or (m, v)
            Scores, higher is better; NaN where unknown. If all are known, the views are trained independently.
        qid : array-like of shape (m,), optional
            Query labels; without them all rows are one query.

        Returns
        -------
        self
        """
        read_alpha(self.alpha)
        agreement = _read_agreement(self.agreement)
        if isinstance(self.kernel, str) and self.kernel == "precomputed":
            raise ValueError(
                "CoRankRLS computes the kernel of each view from its columns: kernel='precomputed' has none. Choose a "
                "named kernel or a function."
            )
        self._read_kernel()
        X = self._read(X, reset=True)
        targets, single = read_partial_targets(self, y, X.shape[0], when_none_known="Score some of the rows.")
        queries = encode_queries(qid, X.shape[0])
        scored = ~np.isnan(targets[:, 0])
        known, unscored = np.flatnonzero(scored), np.flatnonzero(~scored)
        options = {name: getattr(self, name) for name in ("cost", "ties", "weighting")}
        # Refuses unknown options, and scored rows that form no pair.
        for output in targets[known].T:
            compare_scores(output[:, None], encode_queries(queries.codes[known], known.size), **options)
        self.columns_ = read_views(self.views, X.shape[1], getattr(self, "feature_names_in_", None))
        self.rankers_ = [RankRLS(self.alpha, **self._kernel_parameters()) for _ in self.columns_]
        views = zip(self.rankers_, self.columns_, strict=True)
        maps, features = zip(*(_features(ranker, X[:, columns]) for ranker, columns in views), strict=True)
        statements = {}
        if agreement and unscored.size:
            rows, pairs = np.arange(X.shape[0]), _agreements(unscored, X.shape[0], len(maps))
            statements = {"pairs": pairs, "magnitude": 0.0, "weight": agreement}
        else:
            rows = known
        codes = [queries.codes[rows] + view * queries.n_groups for view in range(len(maps))]
        stacked = np.tile(targets[rows], (len(maps), 1))
        whole = RankRLS(self.alpha, **options, solver=self.solver, verbose=self.verbose).fit(
            _block_diagonal([one[rows] for one in features]),
            stacked[:, 0] if single else stacked,
            qid=np.concatenate(codes),
            **statements,
        )
        self._divide(whole, maps, features, single)
        self.n_queries_, self.n_unscored_ = queries.n_groups, unscored.size
        return self

    def _divide(self, whole: RankRLS, maps: Any, features: Any, single: bool) -> None:
        """The weights of all views to the ranker of each."""
        ends = np.cumsum([one.shape[1] for one in features])[:-1]
        for ranker, feature_map, w in zip(
            self.rankers_, maps, np.split(np.atleast_2d(whole.coef_).T, ends), strict=True
        ):
            if feature_map is None:
                ranker._set_function(w, None, None, None, single)
            else:
                beta = feature_map.expand(w)
                ranker._set_function(None, beta, feature_map.basis_indices_, feature_map.basis_, single)
            ranker.n_queries_, ranker.solver_ = whole.n_queries_ // len(maps), whole.solver_

    def predict(self, X) -> np.ndarray:
        """The mean score of the views: higher is better.

        Parameters
        ----------
        X : array-like, sparse or data frame of shape (m, n)

        Returns
        -------
        ndarray of shape (m,) or (m, v)
        """
        check_is_fitted(self)
        X = self._read(X, reset=False)
        scores = [
            ranker.predict(X[:, columns])
            for ranker, columns in zip(self.rankers_, self.columns_, strict=True)
        ]
        return np.mean(scores, axis=0)

    def _kernel_parameters(self) -> dict[str, Any]:
        names = ("kernel", "gamma", "degree", "coef0", "kernel_params", "n_basis", "basis", "random_state")
        return {name: getattr(self, name) for name in names}

    def _read(self, X: Any, *, reset: bool) -> Any:
        if isinstance(X, (list, tuple)) and len(X) and getattr(X[0], "ndim", 0) == 2:
            raise ValueError(
                f"CoRankRLS takes one table, and views=, lists of its columns: found {len(X)} tables. Put them side by "
                "side, X = np.hstack(tables), with views=[range(0, n_0), range(n_0, n_0 + n_1), ...]."
            )
        return validate_data(self, X, accept_sparse="csr", dtype=np.float64, order="C", reset=reset)

    def _fitted_arrays(self) -> dict[str, str]:
        if not hasattr(self, "rankers_"):
            return {}
        if not (isinstance(self.rankers_, list) and isinstance(self.columns_, list)):
            raise ValueError("rankers_ and columns_ must be lists")
        if len(self.rankers_) != len(self.columns_) or not self.rankers_:
            raise ValueError("rankers_ and columns_ differ in length")
        for ranker, columns in zip(self.rankers_, self.columns_, strict=True):
            if not isinstance(ranker, RankRLS) or getattr(ranker, "n_features_in_", None) != np.size(columns):
                raise ValueError("rankers_ holds something else than a RankRLS for each of columns_")
            if not np.isin(columns, np.arange(self.n_features_in_)).all():
                raise ValueError("columns_ names columns that do not exist")
        return {"n_queries_": ""}


def read_views(views: Any, n_features: int, names: Any = None) -> list[np.ndarray]:
    """The column numbers of each view.

    Examples
    --------
    >>> read_views([[0, 2], ["b"]], 3, ["a", "b", "c"])
    [array([0, 2]), array([1])]
    """
    if not isinstance(views, (list, tuple)) or len(views) < 2:
        raise ValueError(
            "views must be two or more lists of columns, such as [[0, 1], [2, 3, 4]] or lists of column names: found "
            f"{views!r}."
        )
    place = {} if names is None else {str(name): column for column, name in enumerate(names)}
    found = []
    for number, view in enumerate(views):
        given = list(view) if np.ndim(view) == 1 else []
        if not given:
            raise ValueError(
                f"View {number} of views must be a list of columns, at least one: found {view!r}."
            )
        columns = [place.get(one) if isinstance(one, str) else one for one in given]
        for one, column in zip(given, columns, strict=True):
            if (
                not isinstance(column, Integral)
                or isinstance(column, bool)
                or int(column) not in range(n_features)
            ):
                raise ValueError(
                    f"View {number} of views names the column {one!r}, which X does not have: found n_features = "
                    f"{n_features}."
                )
        found.append(np.array(columns, dtype=np.int64))
    return found


def _read_agreement(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, Real) or not 0 <= float(value) < np.inf:
        raise ValueError(f"agreement must be a number, 0 or more: found {value!r}.")
    return float(value)


def _features(ranker: RankRLS, columns: Any) -> tuple[Any, Any]:
    """The feature map of a view, None for its own columns, and the features of its rows."""
    kernel = ranker._read_kernel()
    rows = read_items(ranker, columns, kernel, reset=True)
    feature_map = ranker._reduced_set(rows, kernel)
    if feature_map is None and not kernel.is_linear:
        feature_map = EmpiricalKernelMap().fit_items(rows, kernel)
    return feature_map, rows if feature_map is None else feature_map.map_items(rows, kernel)


def _agreements(unscored: np.ndarray, n_rows: int, n_views: int) -> np.ndarray:
    """Each unscored row in one view and in another, shape (l, 2)."""
    views = combinations(range(n_views), 2)
    return np.concatenate([np.column_stack([v * n_rows + unscored, w * n_rows + unscored]) for v, w in views])


def _block_diagonal(features: Any) -> Any:
    if any(sp.issparse(one) for one in features):
        return sp.block_diag(features, format="csr")
    return block_diag(*features)
