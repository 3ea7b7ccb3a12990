"""AutoRanker: the most accurate ranker that the data allow, without a single option."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import replace
from numbers import Integral, Real
from typing import Any, Self

import numpy as np
from scipy import sparse as sp
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from ..comparisons import Groups, encode_queries
from ..comparisons.inputs import named_cures, read_scores, read_times, surv
from ..errors import DependenceWarning
from ..learners.base import KernelModel, RankerMixin
from ..model_selection._choice import Scoring, read_scoring
from ..model_selection._folds import units_of
from ..model_selection._learner import EstimatingLearner, SelfValidatingLearner, read_censored
from ..model_selection.dependence import find_dependence
from ..numerics.namespace import Home, as_host, is_device_array
from ..numerics.onnx_graph import Graph, Value
from ..progress import Stages
from ..squared.devices.expansion import DeviceExpansions
from ..squared.routes import callers_level
from ..tables.encoding.table import TableEncoder
from . import showing
from .candidates import read_preset
from .features import OF_QUERY, PARTS, Features, weighted_scores
from .fitting import Learned, Settings, learn
from .kernels import KernelAndCurves
from .leaderboard import Leaderboard, Trial
from .sample import Kept, keep_rows, n_rows, rows_in_parts, rows_to_keep, take
from .trees import TreeSum

# A sparse matrix with more columns than this is not filled in.
_MOST_SPARSE_COLUMNS = 2000


class AutoRanker(RankerMixin, EstimatingLearner, SelfValidatingLearner, BaseEstimator):
    """Try rankers of different kinds, combine them by what they predict for unseen queries, and report that honestly.

    Linear rankers, kernels that learn their metric, boosted and random trees, on features that are standardised, turned
    into quantiles, or relative to their query; all held out on the same five folds of queries. Their held-out
    predictions are combined with non-negative weights, or the best one is taken where that is clearly better. Where
    the linear ranker or a single feature orders held-out rows better than all this, by more than a standard error, it
    is the model. Of up to 1,000 rows the mean of three runs with other folds is the model.

    Parameters
    ----------
    scoring : str, callable or None, default="concordance"
        What is reported: "concordance", "ndcg", "ndcg@10" or another name of `preflearn.metrics.get_scorer`, or a
        callable. Known measures of rankings are all served by choices that the concordance makes: it varies less from
        query to query, so that these choices are the better ones for NDCG as well. By a callable the members are
        combined. Settings inside of a member are always chosen by the concordance. Measures that do not compare rows
        ("r2") are refused.
    time_limit : float or None, default=None
        Seconds; candidates that would exceed it are left out. The first one is always trained. What Numba compiles on
        first use does not count.
    n_jobs : int or None, default=None
        Threads; None uses all processors.
    random_state : int, RandomState or None, default=None
        For folds, basis vectors and trees.
    verbose : int, default=0
        Show candidates and their time: a progress bar in a terminal and in a notebook, lines elsewhere.
    preset : {"fast", "best"} or None, default=None
        "fast" tries a linear ranker, a single feature and boosted trees; its figure comes from choices made by the
        other folds, without repeating the procedure. "best" averages three runs with other folds and seeds also where
        there are more rows. The figure of several runs is that of one of them.
    device : str or None, default=None
        A device of PyTorch, such as "cuda", on which kernels are evaluated in double precision; rows are sent there in
        blocks. None is the processor, or the device of X where X is a tensor. The fitted model is on the host.

    Attributes
    ----------
    leaderboard_ : Leaderboard
        What was tried, with held-out scores, shares and seconds; prints itself.
    best_score_ : float
        Held-out score of the whole procedure, not flattered by its choices. Up to 1,000 rows, or 50,000 cells of the
        table (rows times features), the procedure is repeated without each fold; beyond, for each fold all choices are
        made by the other folds. NaN, with a warning, where that can be done for fewer than two folds.
    estimate_ : PerformanceEstimate
        That score with a 95 % interval for new queries (new rows of a single ranking); prints itself. Not there where
        ``best_score_`` is NaN, and not part of a saved model.
    cv_predictions_ : ndarray of shape (m,)
        The predictions that it is the score of; NaN for rows that were not looked at or whose fold is not scored.
    cv_folds_ : ndarray of int of shape (m,)
        The fold in which each row was held out; -1 for rows that were not looked at.
    feature_importances_ : ndarray of shape (n,)
        Shares of the input columns, weighted by the shares of the members; they sum to 1.
    members_ : list of fitted models
    member_names_ : list of str
        The candidates that they are.
    views_ : list of tuple of str
        The features that each of them sees: "plain", "standardised", "quantiles", "relative" (to their query) and
        "relative quantiles", side by side.
    weights_ : ndarray of shape (k,)
        Factors of their predictions.
    features_ : Features
        The fitted preparation.
    encoder_ : TableEncoder or None
        For data frames and arrays with missing values.
    n_training_rows_ : int
        Rows that the members were trained on, at most 2,000,000. Kernels learn from up to 500,000 of them.
    n_queries_, n_features_in_ : int

    Notes
    -----
    Capacity follows the held-out score: another round of a metric, another stage of boosted trees is added while it
    raises the score by more than its standard error over folds; basis vectors and leaves grow with the rows. A curve
    for each important feature is added to a kernel, and mixtures of features take the place of single ones in its
    metric, where held-out rows gain by it. From 2,000 rows on, kernels on several views of the features race, and two
    go on, from 10,000 rows on one.

    Beyond 60,000 rows the choice is made on a sample of whole queries, and the members with a share are then trained on
    everything: boosted trees on codes of a byte, kernels by one pass of sums over about 500,000 rows, since 2,000 basis
    vectors gain little from more. A fifth of the sample stays out; it gives the weights and `best_score_`, which is
    thus the figure of what was trained. Of more than 2,000,000 rows that many are kept, whole queries with the smallest
    hashes of their labels.

    Without a ``time_limit``, training on 46 features was measured to take 4 to 24 seconds of processor time on 1,000
    rows, 17 to 26 on 10,000, 70 to 89 on 54,000, and with an earlier version 86 to 102 on 245,000 and 242 on
    1,000,000; several cores share it. Beyond 60,000 rows candidates are no longer trained on all rows without each
    fold, so that twice as many rows may take less time there. Data whose metric improves with every round take longer
    than noisy ones.

    The model is a function of the data and the seed: the order of the rows does not matter, nor do the names of the
    queries and groups unless rows are left out. Scores are on a scale of their own, whatever that of y is, in double
    precision; trees compare features in single precision.

    Features relative to their query need ``qid`` in ``predict``, and all items of a query together.

    Examples
    --------
    >>> from preflearn import AutoRanker
    >>> from preflearn.datasets import load_demo
    >>> X, y, qid, names = load_demo()
    >>> few = slice(150)  # to see it work
    >>> model = AutoRanker(random_state=0).fit(X[few], y[few], qid=qid[few])
    >>> 0.5 < model.best_score_ < 1.0
    True
    >>> model.predict(X[:3], qid=qid[:3]).shape
    (3,)
    >>> print(model.leaderboard_)  # doctest: +ELLIPSIS
    held-out concordance, all choices made on the other folds
      candidate  ...
    """

    __metadata_request__fit = {"qid": True, "event": True}
    __metadata_request__predict = {"qid": True}

    leaderboard_: Leaderboard
    members_: list[Any]
    member_names_: list[str]
    views_: list[tuple[str, ...]]
    weights_: np.ndarray
    feature_importances_: np.ndarray
    cv_predictions_: np.ndarray
    cv_folds_: np.ndarray

    def __init__(
        self,
        *,
        scoring="concordance",
        time_limit=None,
        n_jobs=None,
        random_state=None,
        verbose=0,
        preset=None,
        device=None,
    ) -> None:
        self.scoring = scoring
        self.time_limit = time_limit
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose
        self.preset = preset
        self.device = device

    # Fitting --------------------------------------------------------------------------------------------------------

    @named_cures
    def fit(self, X, y, *, qid=None, groups=None, event=None) -> Self:
        """Train the candidates, choose, combine.

        Parameters
        ----------
        X : array-like, sparse matrix or data frame of shape (m, n)
            A data frame may hold numbers, booleans, categories, dates, texts and missing values.
        y : array-like of shape (m,)
            Grades or scores, higher is better; with ``event`` times. A structured array of a boolean and a numeric
            field, such as scikit-survival's ``Surv``, holds events and times.
        qid : array-like of shape (m,), optional
            Query labels; one query (a global ranking) without.
        groups : array-like of shape (m,), optional
            Labels of dependent rows (patients, documents): no split has rows of a group on both sides, those by which
            candidates and their settings are chosen included. With ``qid`` whole queries stay together as well.
        event : array-like of bool, shape (m,), optional
            True where the event was seen at the time y, False where it was still to come. Higher scores live longer,
            scores are held-out C-indices (Harrell's), and queries are strata: whole ones are held out.

        Returns
        -------
        self
        """
        device = self.device
        if is_device_array(X):
            if device is None and hasattr(X, "cpu"):
                device = str(X.device)
            X, y, qid, groups, event = (as_host(one) for one in (X, y, qid, groups, event))
        y, events = read_censored(self, X, y, event)
        if events is not None:
            y = surv(y, events)
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        settings = replace(read_settings(self, device), seed=seed)
        if events is not None:
            settings.scoring.of_times()  # refuses measures that do not know them
        showing.remember(self, X, y, qid, groups)
        m = n_rows(X)
        units = None if groups is None else units_of(qid, groups, m)
        kept = None if qid is None or groups is not None else rows_to_keep(qid, m)
        if kept is not None:
            X, y, qid = (take(one, kept) for one in (X, np.asarray(y), np.asarray(qid)))
        rows = self._encode(X)
        targets, queries = read_targets(self, y, rows.shape[0]), encode_queries(qid, rows.shape[0])
        if self.encoder_ is not None and hasattr(self, "feature_names_in_"):
            _warn_of_target(rows, self.encoder_.get_feature_names_out(), targets)
            if qid is None and groups is None:
                _warn_of_dependence(X, targets)
        found = learn(rows, targets, queries, settings, units)
        self._keep(found, targets, queries, settings.scoring)
        self._forget_choice()
        if not np.isnan(self.best_score_):
            self._estimate = found.estimate(rows, targets, settings.scoring)
        if kept is not None:
            predictions, folds = self.cv_predictions_, self.cv_folds_
            self.cv_predictions_, self.cv_folds_ = np.full(m, np.nan), np.full(m, -1)
            self.cv_predictions_[kept], self.cv_folds_[kept] = predictions, folds
        return self

    def fit_stream(self, chunks, *, checkpoint=None, **reading) -> Self:
        """Keep up to 2,000,000 rows of whole queries in one pass over rows that come in parts, then `fit` on them.

        Parameters
        ----------
        chunks : path, list of paths, iterable of chunks, or callable that returns one
            Files as in `preflearn.io.iter_ranking`, or chunks of whole queries: (X, y, qid) or `RankingData`. X may be
            a data frame or a mapping from names to columns as in `fit`.
        checkpoint : path, default=None
            A file that holds the rows that were kept, once the pass has ended. A second call with the same arguments
            starts from them, and the model is the same. A checkpoint of other parameters is refused. Data frames are
            not written to it, and read again.
        **reading
            Options of `iter_ranking`, for files.

        Returns
        -------
        self
            Without ``cv_predictions_`` and ``cv_folds_``. It is the model of `fit` on the rows that were kept.

        Notes
        -----
        Memory: what `fit` takes for the rows that are kept, and a chunk. Those of the queries whose labels have the
        smallest hashes are: they depend on the labels, not on the order of the rows or the size of the chunks.

        Examples
        --------
        >>> import numpy as np
        >>> from preflearn import AutoRanker
        >>> from preflearn.datasets import load_demo
        >>> X, y, qid, names = load_demo()
        >>> first = qid <= np.sort(np.unique(qid))[10]
        >>> parts = [(X[first], y[first], qid[first])]
        >>> AutoRanker(random_state=0).fit_stream(parts).predict(X[:3], qid=qid[:3]).shape
        (3,)
        """
        settings = read_settings(self, self.device)  # refuses parameters before anything is read
        with settings.stages("reading the rows") as stage:
            parts = rows_in_parts(chunks, reading)
            kept = keep_rows(parts, self, checkpoint, lambda number: stage.amount(number, "rows"))
        return self._fit_kept(kept)

    def _fit_kept(self, kept: Kept) -> Self:
        """`fit` on rows that one pass has kept."""
        self.fit(kept.X, kept.y, qid=kept.keys)
        self.n_queries_ = kept.n_queries
        # Rows in parts have no held-out predictions one by one.
        del self.cv_predictions_, self.cv_folds_
        return self

    def _keep(self, found: Learned, y: np.ndarray, queries: Groups, scoring: Scoring) -> None:
        """What was learned, as attributes."""
        kept = found.combination
        self.features_, self.members_, self.member_names_ = kept.features, kept.members, kept.names
        self.views_, self.weights_ = kept.views, kept.weights
        # Of the columns of the table, where one column became several features.
        self.feature_importances_ = np.bincount(
            self._column_of_feature(), weights=kept.importances, minlength=self.n_features_in_
        )
        self.best_score_ = found.trial.score
        if np.isnan(self.best_score_):
            _warn_of_no_figure(found.trial)
        self.leaderboard_ = found.trial.leaderboard(
            y[found.rows], found.queries, scoring, self._name_of, found.units
        )
        self.n_training_rows_, self.n_queries_ = found.n_training_rows, queries.n_groups
        self.cv_predictions_, self.cv_folds_ = found.in_order(queries.n_rows)

    def _name_of(self, feature: int) -> str:
        """The name of a prepared feature, by its place among those that vary."""
        place = int(self.features_.kept_[feature])
        if self.encoder_ is not None:
            return str(self.encoder_.get_feature_names_out()[place])
        return str(self.feature_names_in_[place]) if hasattr(self, "feature_names_in_") else f"x{place}"

    def _encode(self, X: Any) -> np.ndarray:
        """The table as numbers; `encoder_` remembers how."""
        self.encoder_ = None
        if _is_plain(X):
            return self._read_plain(X, reset=True)
        self.encoder_ = TableEncoder(sparse_output=False)
        rows = self.encoder_.fit_transform(X)
        self.n_features_in_ = self.encoder_.n_features_in_
        if hasattr(self.encoder_, "feature_names_in_"):
            self.feature_names_in_ = self.encoder_.feature_names_in_
        elif hasattr(self, "feature_names_in_"):
            del self.feature_names_in_
        return rows

    def _read_plain(self, X: Any, *, reset: bool) -> np.ndarray:
        if sp.issparse(X) and X.shape[1] > _MOST_SPARSE_COLUMNS:
            raise ValueError(
                f"AutoRanker works on dense features: found a sparse matrix with {X.shape[1]:,} columns. Use RankRLSCV "
                "(linear) or RankRFM, which take it as it is, or select columns first."
            )
        least = 2 if reset else 1
        X = validate_data(
            self, X, accept_sparse="csr", dtype=np.float64, reset=reset, ensure_min_samples=least
        )
        return X.toarray() if sp.issparse(X) else X

    def _column_of_feature(self) -> np.ndarray:
        """The number of the input column that each feature is made from."""
        if self.encoder_ is None:
            return np.arange(self.n_features_in_)
        place = {column: number for number, column in enumerate(self.encoder_.kinds_)}
        return np.concatenate(
            [np.full(len(one.names(name)), place[name]) for name, one in self.encoder_.encoders_.items()]
        )

    # Using ----------------------------------------------------------------------------------------------------------

    def predict(self, X, *, qid=None) -> np.ndarray:
        """Scores: higher is better, to be compared inside a query.

        Parameters
        ----------
        X : as in fit
            All items of each query.
        qid : array-like of shape (m,), optional
            Query labels; without them the rows are taken as one query.

        Returns
        -------
        ndarray of shape (m,)
        """
        check_is_fitted(self)
        if is_device_array(X):
            return Home.of(X).put(self.predict(as_host(X), qid=as_host(qid)))
        if (
            qid is None
            and self.n_queries_ > 1
            and len(X if not hasattr(X, "shape") else range(X.shape[0])) > 1
        ):
            warnings.warn(
                f"This model was fitted with {self.n_queries_} queries and predicts without qid: all rows are taken as "
                "one query. Pass qid=... (np.zeros(len(X)) if they are).",
                UserWarning,
                stacklevel=2,
            )
        rows = self._encoded(X)
        return self._scores(rows, encode_queries(qid, rows.shape[0]))

    def _encoded(self, X: Any) -> np.ndarray:
        return self._read_plain(X, reset=False) if self.encoder_ is None else self.encoder_.transform(X)

    def _scores(self, rows: np.ndarray, queries: Groups) -> np.ndarray:
        """Scores of rows that have been encoded."""
        return weighted_scores(self.features_, self.members_, self.views_, self.weights_, rows, queries)

    def _after_encoder(self) -> Self:
        """The same for rows that have been through its encoder."""
        found = copy(self)
        found.encoder_, found.n_features_in_ = None, self.features_.n_features_in_
        if hasattr(found, "feature_names_in_"):
            del found.feature_names_in_
        return found

    def _in_query(
        self, X: Any
    ) -> tuple[np.ndarray, Callable[[np.ndarray], np.ndarray], np.ndarray, list[str]]:
        """The prepared rows of one query, the score as a function of such rows, which column each comes from, names.

        Every prepared column is made from one input column, given the query: mixtures of the rows of a query column by
        column are items that the query might hold, and the score of a row itself is that of `predict`.
        """
        check_is_fitted(self)
        rows = self._encoded(X)
        views = self.features_.views(rows, encode_queries(None, rows.shape[0]))
        parts = sorted({name for view in self.views_ for name in view})
        width = self.features_.kept_.size
        spans = {
            view: np.concatenate([parts.index(name) * width + np.arange(width) for name in view])
            for view in self.views_
        }

        def score(Z: np.ndarray) -> np.ndarray:
            members = zip(self.members_, self.views_, self.weights_, strict=True)
            return sum(
                (w * model.predict(Z[:, spans[view]]) for model, view, w in members), np.zeros(Z.shape[0])
            )

        owners = np.tile(self._column_of_feature()[self.features_.kept_], len(parts))
        names = getattr(self, "feature_names_in_", [f"x{k}" for k in range(self.n_features_in_)])
        return views[parts], score, owners, list(map(str, names))

    def _scores_in_queries(self, X: Any, qid: Any) -> Any:
        return self.predict(X, qid=qid)

    @property
    def _looks_at_query(self) -> bool:
        return any(name in OF_QUERY for view in self.views_ for name in view)

    def leaderboard(self, X, y, *, qid=None, event=None) -> Leaderboard:
        """Score the model and its members on new data, best first.

        Parameters
        ----------
        X, qid : as in predict
        y, event : as in fit
            What is known about the rows, which must not be those of the training.

        Returns
        -------
        Leaderboard
            Candidates that have no part in the model were not kept, and have no score here.
        """
        check_is_fitted(self)
        rows = self._encoded(as_host(X))
        queries = encode_queries(as_host(qid), rows.shape[0])
        return showing.leaderboard_on(self, rows, read_targets(self, y, rows.shape[0], event), queries)

    def explain(self, X, rows: Sequence[int] | int | None = None, *, qid=None, n_orders: int = 2) -> Any:
        """What put items where they are: a row of the result for each item, a column for each feature.

        Parameters
        ----------
        X, qid : as in predict
        rows : int or sequence of int, optional
            The items, by their row numbers; all by default.
        n_orders : int, default=2
            Orders of the features that contributions are averaged over.

        Returns
        -------
        data frame
            Of the kind of X; of pandas, or a mapping where that is not installed, for other X. ``row``, ``rank`` and
            ``score`` of each item, the mean score of its query (``query_mean``), and the contribution of each feature:
            they add up to ``score - query_mean``.
        """
        from ..report.inspection.explanation import explain_rows  # a room that few models need

        check_is_fitted(self)
        return explain_rows(self, X, rows, qid=qid, n_orders=n_orders)

    def learning_curve(self, X=None, y=None, *, qid=None, groups=None, event=None, n_splits: int = 3) -> Any:
        """Train the kinds of members that the model has on more and more queries, and extend the curve.

        Parameters
        ----------
        X, y, qid, groups, event : optional
            The training data, as for `report`.
        n_splits : int, default=3
            Folds of queries that are held out.

        Returns
        -------
        LearningCurve
            An eighth, a quarter, half and all of the queries that a fold leaves. It prints itself, ``plot`` draws it,
            and ``extend`` says what more queries would bring.

        Notes
        -----
        Everything that these candidates choose is chosen anew for each training. With three folds this takes about four
        times as long as trying them once.

        Examples
        --------
        >>> from preflearn import AutoRanker
        >>> from preflearn.datasets import load_demo
        >>> X, y, qid, names = load_demo()
        >>> model = AutoRanker(time_limit=0.1, random_state=0).fit(X, y, qid=qid)
        >>> model.learning_curve().n_queries
        array([ 5, 10, 20, 40])
        """
        check_is_fitted(self)
        X, y, qid, groups = showing.seen_or_given(self, "learning_curve", X, y, qid, groups)
        rows = self._encoded(X)
        targets = read_targets(self, y, rows.shape[0], event)
        return showing.curve_of(self, rows, targets, qid, groups, n_splits)

    def report(
        self,
        path: str | os.PathLike[str] | None = None,
        X=None,
        y=None,
        *,
        qid=None,
        groups=None,
        event=None,
        title: str = "Ranking model",
    ) -> Any:
        """Write the report that ``preflearn train --report`` writes: one HTML page, or a model card (``.md``).

        Parameters
        ----------
        path : path, optional
            None writes nothing.
        X, y, qid, groups, event : optional
            The training data. They need not be given in the process that trained the model, for up to five million
            cells.
        title : str, default="Ranking model"

        Returns
        -------
        TrainingReport
            What the page says.

        Examples
        --------
        >>> from preflearn import AutoRanker
        >>> from preflearn.datasets import load_demo
        >>> X, y, qid, names = load_demo()
        >>> model = AutoRanker(time_limit=0.1, random_state=0).fit(X[:150], y[:150], qid=qid[:150])
        >>> model.report().counts  # model.report("report.html") writes the page
        {'rows': 150, 'queries': 13, 'features': 8}
        """
        check_is_fitted(self)
        X, y, qid, groups = showing.seen_or_given(self, "report", X, y, qid, groups)
        y, events = read_times(y, event)
        y = y if events is None else surv(y, events)
        return showing.write_report_of(self, path, X, y, qid, groups, title)

    def _onnx_inputs(self) -> dict[str, str] | None:
        """The columns that an exported model takes; None for a matrix."""
        return None if self.encoder_ is None else self.encoder_._onnx_inputs()

    def _onnx_nodes(self, graph: Graph, X: Any) -> Value:
        """What `predict` computes, recorded (`numerics.graph`)."""
        rows = X if self.encoder_ is None else self.encoder_._onnx_nodes(graph, X)
        views = self.features_.record(graph, rows, self.views_)
        parts = zip(self.members_, self.views_, self.weights_, strict=True)
        first, *more = [
            model._onnx_nodes(graph, views[view]) * float(weight) for model, view, weight in parts
        ]
        return sum(more, first)

    def _fitted_arrays(self) -> dict[str, str]:
        """The shapes that a loaded model is checked for (`preflearn.tables.models.fitted`)."""
        if "weights_" not in vars(self):
            return {}
        if not len(self.members_) == len(self.views_) == len(self.weights_):
            raise ValueError("members_, views_ and weights_ differ in length")
        if not all(isinstance(view, tuple) and view and set(view) <= set(PARTS) for view in self.views_):
            raise ValueError("views_ names features that are not known")
        if not isinstance(self.features_, Features) or not self.features_._fitted_arrays():
            raise ValueError("features_ is not a fitted preparation")
        if self.encoder_ is not None and not isinstance(self.encoder_, TableEncoder):
            raise ValueError("encoder_ is neither None nor a TableEncoder")
        if self.encoder_ is not None and self.encoder_.sparse_output:
            raise ValueError("encoder_ returns sparse rows, expected dense ones")
        width = self.n_features_in_ if self.encoder_ is None else len(self.encoder_.get_feature_names_out())
        if self.features_.n_features_in_ != width:
            raise ValueError(f"features_ takes {self.features_.n_features_in_} features, expected {width}")
        _refuse_misfits(self.members_, self.views_, self.features_.kept_.size)
        return {"weights_": "k", "feature_importances_": "n", "n_queries_": ""}

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.allow_nan = True
        tags.target_tags.multi_output = False
        tags.target_tags.two_d_labels = False
        return tags


def read_settings(model: AutoRanker, device: Any) -> Settings:
    """The parameters of a ranker, without a seed.

    Raises
    ------
    ValueError
        For parameters that are not understood.
    """
    scoring = read_scoring(model.scoring)
    if scoring.scorer is not None and not scoring.compares_rows:
        raise ValueError(
            f"scoring={scoring.name} compares scores with y, and scores of AutoRanker are on a scale of their own. "
            "Use a measure of rankings, such as 'concordance' or 'ndcg@10', or a callable."
        )
    jobs, limit = model.n_jobs, model.time_limit
    if jobs is not None and (isinstance(jobs, bool) or not isinstance(jobs, Integral) or jobs == 0):
        raise ValueError(f"n_jobs must be a number of threads, -1 or None: found {jobs!r}.")
    if limit is not None and (isinstance(limit, bool) or not isinstance(limit, Real) or not float(limit) > 0):
        raise ValueError(f"time_limit must be a positive number of seconds or None: found {limit!r}.")
    if device is not None and not isinstance(device, str):
        raise ValueError(
            f"device must be the name of a device of PyTorch, such as 'cuda', or None: found {device!r}."
        )
    return Settings(
        scoring,
        np.inf if limit is None else float(limit),
        read_preset(model.preset),
        None if jobs is None else int(jobs),
        device=None if device is None else DeviceExpansions.on(device),
        stages=Stages("AutoRanker" if model.verbose else None),
    )


def read_targets(model: AutoRanker, y: Any, n_rows: int, event: Any = None) -> np.ndarray:
    """Targets of one ranking, shape (m,); censored times as of `comparisons.inputs.surv`."""
    y, events = read_times(y, event)
    scores, single = read_scores(y, n_rows, estimator=model)
    if not single:
        raise ValueError(
            f"AutoRanker learns one ranking: found y with {scores.shape[1]} columns. Fit one for each."
        )
    times = scores[:, 0].astype(np.float64)
    return times if events is None else surv(times, events)


def _warn_of_dependence(X: Any, y: np.ndarray) -> None:
    found = find_dependence(X, y)
    if found is not None:
        warnings.warn(
            f"{found} Pass groups=X[{found.column!r}], or qid where the rows of a label are to be ordered.",
            DependenceWarning,
            stacklevel=callers_level(),
        )


def _warn_of_target(rows: np.ndarray, names: Any, y: np.ndarray) -> None:
    """A feature that is the target itself, as where a whole frame was passed; times have events besides."""
    likely: Any = [] if y.dtype.names else np.flatnonzero((rows[:1000] == y[:1000, None]).all(axis=0))
    same = next((names[place] for place in likely if np.array_equal(rows[:, place], y)), None)
    if same is not None:
        warnings.warn(
            f"Column {same!r} of X equals y: a model that sees the target orders nothing that is new. Leave it out.",
            UserWarning,
            stacklevel=callers_level(),
        )


def _warn_of_no_figure(trial: Trial) -> None:
    n_scored = int(np.count_nonzero(trial.scored))
    warnings.warn(
        f"best_score_ is NaN: {n_scored} of {len(trial.scored)} folds can be scored by a model that was chosen without "
        "them, and an honest figure needs two. Add queries (or rows) with different y, or a longer time_limit.",
        UserWarning,
        stacklevel=callers_level(),
    )


def _is_plain(X: Any) -> bool:
    """Numbers without missing values, which need no `TableEncoder`."""
    if sp.issparse(X):
        return True
    if isinstance(X, Mapping) or hasattr(X, "columns"):
        return False
    try:
        values = np.asarray(X)
    except (TypeError, ValueError):
        return True  # told by validation
    if values.dtype == object:
        try:
            values = values.astype(np.float64)
        except (TypeError, ValueError):
            return False
    return values.dtype.kind not in "fc" or not np.isnan(values).any()


def _refuse_misfits(members: Sequence[Any], views: Sequence[Sequence[str]], n_columns: int) -> None:
    """Refuse members that are not fitted models with one output, or whose number of features is not that of their view.

    Raises
    ------
    ValueError
    """
    for place, (member, view) in enumerate(zip(members, views, strict=True)):
        name = f"members_[{place}]"
        if not isinstance(member, (TreeSum, KernelAndCurves, KernelModel)):
            raise ValueError(f"{name} is a {type(member).__name__}, expected a model that scores rows")
        if not member._fitted_arrays():
            raise ValueError(f"{name} is a {type(member).__name__} that is not fitted")
        coefficients = [getattr(member, one) for one in ("dual_coef_", "coef_") if hasattr(member, one)]
        if isinstance(member, KernelModel) and not any(np.ndim(one) == 1 for one in coefficients):
            raise ValueError(f"{name} gives several scores to a row, expected one")
        if member.n_features_in_ != len(view) * n_columns:
            raise ValueError(
                f"{name} takes {member.n_features_in_} features, and its view has {len(view) * n_columns}"
            )
