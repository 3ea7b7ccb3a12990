"""GreedySelector: one feature after the other, each time the one that helps held-out predictions most."""

from __future__ import annotations

from numbers import Integral
from typing import Any, Self

import numpy as np
import scipy.sparse as sp
from sklearn.base import BaseEstimator, MetaEstimatorMixin, clone
from sklearn.feature_selection import SelectorMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from ..comparisons import encode_queries
from ..comparisons.inputs import read_alpha
from ..model_selection._choice import compared_within, read_scoring, without_rounding
from ..model_selection._folds import Folds, read_partition
from ..model_selection._problem import Problem
from ..numerics.memory import require_memory
from ..numerics.namespace import refuse_repeated_columns
from ..numerics.onnx_graph import Graph, Value
from ..numerics.threads import blas_at_rest, transposed_product_in_threads
from ..plots import on_axes
from ..progress import Counter
from .rankrls import RankRLS
from .rls import RLS

_SQUARED_ERROR = "neg_mean_squared_error"


class GreedySelector(SelectorMixin, MetaEstimatorMixin, BaseEstimator):
    """Select features for `RLS` or `RankRLS` one by one, by exact held-out predictions.

    In every round each remaining feature is tried together with the chosen ones, its model held out by algebra, and the
    one with the best held-out score is kept: O(kmn) for k of n features and m rows, the same number of operations as k
    passes over the data.

    Parameters
    ----------
    estimator : RLS or RankRLS
        With the linear kernel; its alpha is that of every model tried. Not modified.
    n_features_to_select : int
        k.
    cv : str, int, splitter or iterable of test index arrays, default="leave-query-out"
        As in `preflearn.model_selection.cross_val_predict`; every row is held out once, and for `RankRLS` the
        folds hold whole queries. With groups they hold whole groups as well, those of one fold with
        ``"leave-query-out"`` being all that share queries or groups.
    scoring : str, callable or None, default=None
        A metric's name, or a function of (y, scores, qid) where greater is better. None is the held-out squared
        error (of pairs for `RankRLS`), which is by far the fastest: other measures are evaluated for each
        candidate.
    verbose : int, default=0
        Count the rounds on standard error.

    Attributes
    ----------
    selected_ : ndarray of shape (k,)
        Numbers of the features in the order of their choice.
    support_ : bool ndarray of shape (n,)
    cv_scores_ : ndarray of shape (k,)
        Held-out score after each choice. It is the best of many, so it is optimistic for few rows and many features,
        and there is no ``estimate_``: the features would have to be selected again without each fold, which
        ``estimate_concordance(selector, X, y, qid=qid, groups=groups)`` does.
    scoring_ : str or callable
    estimator_ : RLS or RankRLS
        Trained on the selected features.
    n_features_in_ : int

    Notes
    -----
    Folds of several rows take no copy of the data (a ranking takes one for its differences), single rows take one after
    a few features. Reference: Pahikkala, Airola and Salakoski,
    "Speeding up greedy forward selection for regularized least-squares", ICMLA 2010; Pahikkala, Airola, Naula and
    Salakoski, "Greedy RankRLS: a linear time algorithm for learning sparse ranking models", SIGIR workshop on
    feature generation and selection 2010.

    Examples
    --------
    >>> import numpy as np
    >>> from preflearn import RankRLS
    >>> from preflearn.feature_selection import GreedySelector
    >>> X = np.random.default_rng(0).normal(size=(200, 30))
    >>> y, qid = 2 * X[:, 4] - X[:, 7], np.repeat(np.arange(20), 10)
    >>> selector = GreedySelector(RankRLS(), 2).fit(X, y, qid=qid)
    >>> selector.selected_
    array([4, 7])
    >>> selector.transform(X).shape
    (200, 2)
    """

    __metadata_request__fit = {"qid": True}

    def __init__(
        self, estimator, n_features_to_select, *, cv="leave-query-out", scoring=None, verbose=0
    ) -> None:
        self.estimator, self.n_features_to_select = estimator, n_features_to_select
        self.cv, self.scoring, self.verbose = cv, scoring, verbose

    def fit(self, X, y, *, qid=None, groups=None) -> Self:
        """Select features, and train the estimator on them.

        Parameters
        ----------
        X : array-like of shape (m, n)
        y : array-like of shape (m,)
        qid : array-like of shape (m,), optional
            Query labels.
        groups : array-like of shape (m,), optional
            Labels of dependent rows (patients, documents), which are held out together.

        Returns
        -------
        self
        """
        model = self._read_estimator()
        table = X
        refuse_repeated_columns(X)
        X = validate_data(self, X, dtype=np.float64, order="C", accept_sparse="csr")
        if sp.issparse(X):
            raise TypeError(
                "Greedy selection works on dense columns: found a sparse matrix. Pass X.toarray()."
            )
        n_select = self._read_number(X.shape[1])
        problem = Problem.read(clone(model), X, y, qid)
        if not problem.single:
            raise ValueError("GreedySelector selects for one output: y has several columns.")
        tests = read_partition(self.cv, X, y, X.shape[0], qid=qid, groups=groups)
        folds = Folds(tests, tests)
        scoring = self._read_scoring()
        with blas_at_rest():  # the rounds have their own threads
            search = _Search(problem, folds, read_alpha(model.alpha), scoring, qid)
            self._select(search, n_select)
        self.scoring_ = _SQUARED_ERROR if self.scoring is None else self.scoring
        options = {"qid": qid} if isinstance(model, RankRLS) else {}
        selected = self.transform(table)
        with blas_at_rest():  # few columns are not worth its threads
            self.estimator_ = model.fit(selected, y, **options)
        return self

    def _select(self, search: _Search, n_select: int) -> None:
        """Round after round."""
        counter = Counter(type(self).__name__, n_select, "features", self.verbose)
        chosen: list[int] = []
        scores = []
        for number in range(n_select):
            feature, score = search.best(chosen)
            chosen.append(feature)
            scores.append(score)
            counter(number + 1)
        self.selected_, self.cv_scores_ = np.array(chosen), np.array(scores)

    def _read_estimator(self) -> Any:
        estimator = self.estimator
        if type(estimator) not in (RLS, RankRLS):
            raise TypeError(
                f"GreedySelector selects features for RLS or RankRLS: found {type(estimator).__name__}. "
                "Choose alpha beforehand, with RLSCV or RankRLSCV on all features."
            )
        if estimator.kernel != "linear" or estimator._wants_reduced_set():
            raise ValueError(
                "Features are selected for the linear kernel without basis vectors: found "
                f"kernel={estimator.kernel!r}, n_basis={estimator.n_basis!r}, basis={estimator.basis!r}."
            )
        return clone(estimator)

    def _read_number(self, n_features: int) -> int:
        number = self.n_features_to_select
        if not isinstance(number, Integral) or isinstance(number, bool) or not 1 <= int(number) <= n_features:
            raise ValueError(
                f"n_features_to_select must be a number from 1 to {n_features}, the features of X: found "
                f"{number!r}."
            )
        return int(number)

    def _read_scoring(self) -> Any:
        """None for the squared error, whichever name was given."""
        if self.scoring is None or self.scoring == _SQUARED_ERROR:
            return None
        read_scoring(self.scoring)
        return self.scoring

    def _onnx_nodes(self, graph: Graph, X: Value) -> Value:
        """What `transform` computes, recorded (`numerics.graph`)."""
        return graph.columns(X, np.flatnonzero(self.support_))

    def _get_support_mask(self) -> np.ndarray:
        check_is_fitted(self)
        return self.support_

    @property
    def support_(self) -> np.ndarray:
        """Which features are selected."""
        mask = np.zeros(self.n_features_in_, dtype=bool)
        mask[self.selected_] = True
        return mask

    def _fitted_arrays(self) -> dict[str, str]:
        """The shapes that a loaded selector is checked for (`preflearn.tables.models.fitted`)."""
        if "estimator_" not in vars(self):
            return {}
        return {"selected_": "k < n", "cv_scores_": "k", "estimator_.n_features_in_": "= k"}

    def transform(self, X) -> Any:
        """The selected features.

        Parameters
        ----------
        X : array-like of shape (m, n)

        Returns
        -------
        ndarray of shape (m, n_features_to_select)
        """
        refuse_repeated_columns(X)
        return super().transform(X)

    def predict(self, X) -> np.ndarray:
        """Scores by the model of the selected features.

        Parameters
        ----------
        X : array-like of shape (m, n)
            All features.

        Returns
        -------
        ndarray of shape (m,)
        """
        check_is_fitted(self)
        return self.estimator_.predict(self.transform(X))

    @on_axes
    def plot_scores(self, ax: Any) -> None:
        """The held-out score over the number of features."""
        check_is_fitted(self)
        names = self.get_feature_names_out() if hasattr(self, "feature_names_in_") else None
        numbers = np.arange(1, self.selected_.shape[0] + 1)
        ax.plot(numbers, self.cv_scores_, marker="o")
        if names is not None:
            for number, score, feature in zip(numbers, self.cv_scores_, self.selected_, strict=True):
                ax.annotate(
                    str(self.feature_names_in_[feature]), (number, score), rotation=45, fontsize="small"
                )
        ax.set(xlabel="features selected", ylabel=f"held-out {self.scoring_}")


class _Search:
    """The rounds with the measure that decides."""

    def __init__(self, problem: Problem, folds: Folds, alpha: float, scoring: Any, qid: Any) -> None:
        task = problem.tasks[0]
        self._y = problem.scores[:, 0]
        self._half_inverse = None
        X, target = problem.X, self._y
        if isinstance(problem.estimator, RankRLS):
            if not task.has_half:
                raise ValueError(
                    f"Greedy selection has no closed form for cost={problem.estimator.cost!r}: use "
                    "'magnitude' or 'unit'."
                )
            self._refuse_parts_of_queries(problem, folds)
            X, target, self._half_inverse = task.half(X), task.half_target[:, 0], task.half_inverse
        self._rounds = Rounds(X, target, folds.tests, alpha, intercept=problem.intercept)
        self._scoring = scoring
        self._measure = read_scoring(_SQUARED_ERROR if scoring is None else scoring)
        if scoring is None:
            return
        if self._half_inverse is None:
            # A regression's predictions are on the scale of y in every fold.
            self._within = encode_queries(qid, problem.n_rows).codes
        else:
            self._within = compared_within(folds, problem.queries)
        if self._measure.compares_rows and np.unique(self._within).shape[0] == problem.n_rows:
            raise ValueError(
                f"scoring={scoring!r} compares rows of a query, and no two rows share one here: pass qid."
            )

    @staticmethod
    def _refuse_parts_of_queries(problem: Problem, folds: Folds) -> None:
        queries = problem.queries
        for number, rows in enumerate(folds.tests):
            touched = np.unique(queries.codes[rows])
            if int(queries.counts[touched].sum()) != rows.shape[0]:
                raise ValueError(
                    f"Fold {number} holds out part of a query: greedy selection for RankRLS holds out whole "
                    "queries. Pass qid with cv='leave-query-out' or a number of folds."
                )

    def best(self, chosen: list[int]) -> tuple[int, float]:
        """The next feature and its held-out score."""
        m, n = self._rounds.X.shape
        scores = -self._rounds.errors() / m if self._scoring is None else self._by_measure(n)
        scores[chosen] = -np.inf
        feature = int(np.argmax(scores))
        self._rounds.add(feature)
        if self._scoring is None:  # the same, but not as a difference of larger numbers
            return feature, -self._rounds.error() / m
        return feature, float(scores[feature])

    def _by_measure(self, n: int) -> np.ndarray:
        residual = self._rounds.residuals()
        y = self._y[:, None]
        scores = np.empty(n)
        if self._half_inverse is not None:
            residual = self._half_inverse(residual)
        for k in range(n):
            f = without_rounding((y - residual[:, [k]]).T).T
            scores[k] = self._measure(y, f, self._within)
        return scores


class Rounds:
    """Greedy selection in progress: a state that features are added to, with the held-out error of each candidate.

    The learner is ridge regression on transformed data, (S X, S y) with L = S S for a ranking, X and y themselves for
    a regression (see `squared.problem`); with an unregularised intercept the centring of all rows replaces the
    identity. `_loops` has the algebra of a round and defines the symbols.

    Parameters
    ----------
    X : ndarray of shape (m, n)
        Not modified.
    y : ndarray of shape (m,)
    folds : list of int arrays
        A partition of the rows.
    alpha : float
    intercept : bool
    """

    def __init__(
        self, X: np.ndarray, y: np.ndarray, folds: list[np.ndarray], alpha: float, *, intercept: bool
    ) -> None:
        m, n = X.shape
        self.X, self._alpha = X, alpha
        # No feature yet: G = I / alpha, or C / alpha with an intercept.
        self._means = transposed_product_in_threads(X, np.full(m, 1 / m)) if intercept else np.zeros(n)
        self.a = (y - y.mean() if intercept else y) / alpha
        self._vectors = np.ones((1, m)) if intercept else np.empty((0, m))
        self._shares = self._means[None] / alpha if intercept else np.empty((0, n))
        self._t = transposed_product_in_threads(X, self.a)
        self._form = (_SingleRows if len(folds) == m else _SeveralRows)(self, folds, alpha, intercept)
        self._s = self._form.squares / alpha

    def errors(self) -> np.ndarray:
        """Held-out squared error of every feature as the next one, shape (n,)."""
        scale = 1.0 / (1.0 + self._s)
        return self._form.errors(self, self._t * scale, scale)

    def residuals(self) -> np.ndarray:
        """Held-out residuals of every feature as the next one, shape (m, n)."""
        require_memory(3 * self.X.nbytes, f"held-out residuals of {self.X.shape[1]} candidates")
        C = self.X / self._alpha - self._vectors.T @ self._shares
        scale = 1.0 / (1.0 + self._s)
        return self._form.residuals(self, C, self._t * scale, scale)

    def error(self) -> float:
        """Held-out squared error of the features chosen so far."""
        residual = self._form.residual(self)
        return float(residual @ residual)

    def add(self, feature: int) -> None:
        """Choose a feature; if `errors` is used at all, it must be called once before each choice."""
        c = self.X[:, feature] / self._alpha - self._shares[:, feature] @ self._vectors
        size = 1.0 + float(self._s[feature])
        step = float(self._t[feature]) / size
        products = transposed_product_in_threads(self.X, c)
        self._form.before(self, c, size)
        self.a = self.a - c * step
        self._s = np.maximum(self._s - products * products / size, 0.0)
        self._t = self._t - products * step
        self._vectors = np.vstack([self._vectors, c])
        self._shares = np.vstack([self._shares, products / size])
        self._form.after(self, c, size)


class _SingleRows:
    """Folds of one row each: e = a / diag(G)."""

    def __init__(self, rounds: Rounds, folds: list[np.ndarray], alpha: float, intercept: bool):
        m, n = rounds.X.shape
        require_memory(8 * m * n, f"greedy selection from {n} features of {m} rows")
        self._d = np.full(m, (1 - 1 / m if intercept else 1.0) / alpha)
        self._C = (rounds.X - rounds._means) / alpha
        self.squares = alpha**2 * np.einsum("ij,ij->j", self._C, self._C)
        # The choice that C lacks: a vector and what each candidate has of it.
        self._vector, self._share = np.zeros(m), np.zeros(n)

    def errors(self, rounds: Rounds, step: np.ndarray, scale: np.ndarray) -> np.ndarray:
        from ._loops import score_single_rows

        return score_single_rows(self._C, self._vector, self._share, rounds.a, self._d, step, scale)

    def residuals(self, rounds: Rounds, C: np.ndarray, step: np.ndarray, scale: np.ndarray) -> np.ndarray:
        below = self._d[:, None] - C * C * scale
        C *= -step
        C += rounds.a[:, None]
        C /= below
        return C

    def residual(self, rounds: Rounds) -> np.ndarray:
        return rounds.a / self._d

    def before(self, rounds: Rounds, c: np.ndarray, size: float) -> None:
        pass

    def after(self, rounds: Rounds, c: np.ndarray, size: float) -> None:
        self._d = self._d - c * c / size
        self._vector, self._share = c, rounds._shares[-1]


class _SeveralRows:
    """Folds of any size, by numbers of each fold and candidate."""

    def __init__(self, rounds: Rounds, folds: list[np.ndarray], alpha: float, intercept: bool):
        from ._loops import squares_of_folds

        m, n = rounds.X.shape
        require_memory(2 * 8 * len(folds) * n, f"greedy selection from {n} features with {len(folds)} folds")
        self._alpha = alpha
        self._rows = np.concatenate(folds)
        sizes = np.array([fold.shape[0] for fold in folds])
        self._starts = np.append(0, np.cumsum(sizes))
        # N = alpha, or alpha (1 + 1 1ᵀ / (m - h)) with an intercept; then a term for each feature.
        self._terms = np.ones((1, m)) if intercept else np.empty((0, m))
        self._weights = alpha / (m - sizes)[None] if intercept else np.empty((0, len(folds)))
        squares, sums = squares_of_folds(rounds.X, rounds._means, self._rows, self._starts)
        self.squares = squares.sum(axis=0)
        self._own, self._square = squares / alpha, squares
        if intercept:
            along, of_ones = (alpha / (m - sizes))[:, None], (sums / alpha) ** 2
            self._own = self._own + along * of_ones
            self._square = self._square + along * (2 * alpha + along * sizes[:, None]) * of_ones
        self._Na = self._times(rounds.a)
        self._w = self._Nw = np.zeros(m)
        self._change = np.zeros((len(folds), 4))

    def _times(self, q: np.ndarray) -> np.ndarray:
        """N q."""
        from ._loops import times_folds

        return times_folds(self._alpha, self._terms, self._weights, self._rows, self._starts, q)

    def _sums(self, values: np.ndarray) -> np.ndarray:
        """Over each fold; the first axis is that of the rows."""
        return np.add.reduceat(values[self._rows], self._starts[:-1])

    def errors(self, rounds: Rounds, step: np.ndarray, scale: np.ndarray) -> np.ndarray:
        from ._loops import products_of_folds, score_folds

        queue = np.stack([self._w, self._Nw, self._Na, self._times(self._Na)], axis=1)
        vectors, shares = rounds._vectors, rounds._shares
        if not self._change[:, 2].any():  # no choice to catch up with: a dummy one that changes nothing
            vectors, shares = (
                np.vstack([vectors, np.zeros(len(queue))]),
                np.vstack([shares, np.zeros(len(step))]),
            )
        products = products_of_folds(vectors, queue, self._rows, self._starts)
        self._change[:, 3] = self._sums(self._Na**2)
        data = (rounds.X, 1 / self._alpha, self._rows, self._starts, queue, shares, products, self._change)
        found = score_folds(*data, self._own, self._square, np.stack([step, scale]))
        self._change[:, :3] = 0.0
        return found

    def residuals(self, rounds: Rounds, C: np.ndarray, step: np.ndarray, scale: np.ndarray) -> np.ndarray:
        for h in range(self._starts.shape[0] - 1):
            rows = self._rows[self._starts[h] : self._starts[h + 1]]
            c, terms, Na = C[rows], self._terms[:, rows], self._Na[rows]
            E = self._alpha * c + terms.T @ (self._weights[:, h, None] * (terms @ c))
            own = np.einsum("ij,ij->j", c, E)
            kappa = (Na @ c - own * step) * scale / (1.0 - own * scale) - step
            C[rows] = Na[:, None] + E * kappa
        return C

    def residual(self, rounds: Rounds) -> np.ndarray:
        return self._Na

    def before(self, rounds: Rounds, c: np.ndarray, size: float) -> None:
        self._w = self._times(c)
        self._Nw = self._times(self._w)

    def after(self, rounds: Rounds, c: np.ndarray, size: float) -> None:
        own = self._sums(c * self._w)
        weights = 1.0 / (size - own)
        self._change[:, :3] = np.stack([own, self._sums(self._w**2), weights], axis=1)
        self._terms = np.vstack([self._terms, self._w])
        self._weights = np.vstack([self._weights, weights])
        self._Na = self._times(rounds.a)
