"""AutoRanker: the most accurate ranker that the data allow, without a single option."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from copy import deepcopy
from dataclasses import replace
from functools import cache, partial
from numbers import Integral, Real
from typing import Any, Self

import numpy as np
from scipy import sparse as sp
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from ..comparisons import Groups, encode_queries
from ..comparisons.inputs import read_scores
from ..learners.base import RankerMixin
from ..metrics import concordance
from ..model_selection._choice import Scoring, read_scoring
from ..model_selection._folds import read_folds, shuffled_folds
from ..model_selection._learner import SelfValidatingLearner
from ..model_selection._row_order import order_by_content
from ..model_selection._splitters import QueryKFold
from ..numerics.namespace import Home, as_host, is_device_array
from ..numerics.onnx_graph import Graph, Value
from ..numerics.threads import threads_limited
from ..progress import Stage, Stages
from ..squared.devices.expansion import DeviceExpansions
from ..squared.holdout.base import rows_outside
from ..tables.encoding.table import TableEncoder
from .candidates import Candidate, candidates, rivals
from .combination import FoldScores, choose_combination, nested
from .correction import correct
from .everything import Everything
from .extension import chunks_without, extend, fold_to_keep
from .features import OF_QUERY, PARTS, Features
from .leaderboard import Leaderboard
from .prediction import WeightedMembers, refuse_misfits, scores_by_query
from .presets import Preset, read_preset
from .resuming import Run, run_of
from .showing import ShowsItself, remember
from .streams import Preparation, QuerySample, RowsInParts, UnitScale, rows_in_chunks
from .tasks import Task
from .timing import Pace
from .trial import Attempt, Trial, name_of_model

_N_FOLDS = 5
# Folds to choose by where the whole procedure is repeated without one of those.
_INNER_FOLDS = 3
# Maximum number of rows that candidates learn from.
_MOST_ROWS = 60_000
# A sparse matrix with more columns than this is not filled in.
_MOST_SPARSE_COLUMNS = 2000
# Up to this number of cells of the table, the whole procedure is repeated without each fold for the reported figure.
_REFITTED_CELLS = 50_000
# Without this repetition, two folds that choose for each other need this number of rows.
_ROWS_FOR_TWO_FOLDS = 50

_LETTERS = dict(zip("xsqrp", PARTS, strict=True))


# Long: the steps of one procedure, from a table to a combination, which share what was fitted.
class AutoRanker(ShowsItself, RankerMixin, SelfValidatingLearner, BaseEstimator):
    """Try rankers of different kinds, combine them by what they predict for unseen queries, and report that honestly.

    Linear rankers, kernels that learn their metric, boosted and random trees, on features that are standardised, turned
    into quantiles, or relative to their query; all held out on the same five folds of queries. Their held-out
    predictions are combined with non-negative weights, or the best one is taken where that is clearly better. Where
    the linear ranker, or a single feature, orders held-out rows better than all this, it is the model.

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
        other folds, without repeating the procedure. "best" averages three runs with other folds and seeds; its figure
        is that of one of them. None is in between.
    device : str or None, default=None
        A device of PyTorch, such as "cuda", on which kernels are evaluated in double precision; rows are sent there in
        blocks. None is the processor, or the device of X where X is a tensor. The fitted model is on the host.

    Attributes
    ----------
    leaderboard_ : Leaderboard
        What was tried, with held-out scores, shares and seconds; prints itself.
    best_score_ : float
        Held-out score of the whole procedure, not flattered by its choices. Up to 50,000 cells of the table (rows times
        features) the procedure is repeated without each fold; beyond, for each fold all choices are made by the other
        folds. NaN, with a warning, where that can be done for fewer than two folds.
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
        Rows that the members were trained on; about 2,000,000 where they were drawn. Kernels learn from up to 500,000
        of them.
    n_queries_, n_features_in_ : int

    Notes
    -----
    Capacity follows the held-out score: another round of a metric, another stage of boosted trees is added while it
    raises the score by more than its standard error over folds; basis vectors and leaves grow with the rows. A
    curve for each important feature is added to a kernel where held-out rows gain by it. From 2,000 rows on, kernels on
    several views of the features race, and at most the best two go on.

    Beyond 60,000 rows the choice is made on a sample of whole queries, and the members with a share are then trained on
    everything: boosted trees on codes of a byte, kernels by one pass of sums. Trees learn from about 2,000,000 rows at
    most, kernels from about 500,000, whole queries drawn from all of them: 2,000 basis vectors gain little from more.
    The leaves of the trees are then fitted again to what the combination leaves. A fifth of the sample stays out; it
    gives the weights and `best_score_`, which is thus the figure of what was trained.

    Without a ``time_limit``, training on 46 features was measured to take 3 to 13 seconds of processor time on 1,000
    rows, 19 to 36 on 10,000, 91 to 163 on 54,000 to 57,000, 86 to 102 on 245,000 and 242 on 1,000,000; several cores
    share it. Beyond 60,000 rows candidates are no longer trained on all rows without each fold, so that twice as many
    rows may take less time there. Data whose metric improves with every round take longer than noisy ones.

    The model is a function of the data and the seed: the order of the rows and the names of the queries do not matter.
    Scores are on a scale of their own, whatever that of y is, in double precision; trees compare features in single
    precision.

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

    __metadata_request__predict = {"qid": True}

    leaderboard_: Leaderboard
    members_: list[Any]
    member_names_: list[str]
    views_: list[tuple[str, ...]]
    weights_: np.ndarray
    feature_importances_: np.ndarray

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

    def fit(self, X, y, *, qid=None) -> Self:
        """Train the candidates, choose, combine.

        Parameters
        ----------
        X : array-like, sparse matrix or data frame of shape (m, n)
            A data frame may hold numbers, booleans, categories, dates, texts and missing values.
        y : array-like of shape (m,)
            Grades or scores, higher is better.
        qid : array-like of shape (m,), optional
            Query labels; one query (a global ranking) without.

        Returns
        -------
        self
        """
        if is_device_array(X):
            return self._fit_tensor(X, y, qid)
        limit, preset = self._read_limit(), read_preset(self.preset)
        self._expansions()  # refuses a device that is not there
        remember(self, X, y, qid)
        if limit < np.inf:
            _compile()
        start = time.perf_counter()
        scoring = self._read_scoring()
        rows = self._encode(X)
        y = self._read_targets(y, rows.shape[0])
        order, queries = order_by_content(rows, y[:, None], encode_queries(qid, rows.shape[0]))
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        taken = queries.sample(_MOST_ROWS)
        sample = order[taken]
        part = encode_queries(queries.codes[taken], sample.shape[0])
        self.n_training_rows_ = sample.shape[0]
        with nullcontext() if self.n_jobs is None else threads_limited(self.n_jobs):
            has_more = sample.shape[0] < rows.shape[0]
            # Under a time limit there may be no time for more rows.
            is_sample = has_more and limit == np.inf
            trial = self._fit_rows(
                rows[sample], y[sample], part, scoring, seed, start, limit, is_sample=is_sample
            )
            spent = time.perf_counter() - start
            extended = False
            if (
                not has_more
                and rows.size <= preset.refitted * _REFITTED_CELLS
                and (1 + len(trial.folds.tests)) * spent <= limit
            ):
                with self._stages()("the same without each fold") as stage:
                    trial = self._refit_without_folds(
                        rows[sample], y[sample], part, scoring, seed, trial, stage
                    )
                trial = self._prefer_simple(trial, is_refitted=True)
            elif has_more and trial.can_extend(rows.shape[0], limit - spent):
                places = taken[trial.folds.tests[fold_to_keep(trial.folds)]]
                targets, sample, extended = UnitScale(y[sample])(y), order[places], True
                chunks = chunks_without(rows, targets, order, queries, places)
                part = encode_queries(queries.codes[places], sample.shape[0])
                held = (rows[sample], y[sample], targets[sample], part)
                run = Run(self._stages())
                over, is_global = (lambda f, _=0: map(f, chunks())), queries.n_groups == 1
                trial = self._extend(
                    trial, over, rows.shape[0], held, scoring, seed, run, is_global=is_global, limit=limit
                )
            # Runs on the sample would only dilute members that have learned from all rows.
            for number in range(1, 1 if extended else preset.n_runs):
                if (1 + 1 / number) * (time.perf_counter() - start) > limit:
                    break
                with self._stages()(f"run {number + 1} of {preset.n_runs}"):
                    self._add_run(rows[sample], y[sample], part, scoring, seed + number, number, trial)
        self._keep_figures(trial, y[sample], part, scoring)
        self.n_queries_ = queries.n_groups
        self._keep_held_out(trial, sample, queries.n_rows)
        return self

    def _fit_rows(
        self,
        rows: np.ndarray,
        y: np.ndarray,
        queries: Groups,
        scoring: Scoring,
        seed: int,
        start: float,
        limit: float,
        n_folds: int = _N_FOLDS,
        run: Run | None = None,
        is_sample: bool = False,
    ) -> Trial:
        """Train the candidates on rows of numbers, combine them, and keep the parts of the model.

        Of a sample they are trained as far as the choice needs it: the members will learn from more rows.
        """
        folds = self._folds(y, queries, scoring, seed, n_folds)
        self.features_ = Features().fit(rows)
        targets = UnitScale(y)(y)
        preset = read_preset(self.preset)
        everyone = candidates(rows.shape[0], queries.n_groups)
        options = [one for one in everyone if preset.allows(one.name)]
        task = Task(
            self.features_.views(rows, queries),
            targets,
            queries,
            folds.by_concordance,
            self.n_jobs,
            seed,
            rivals(options, rows.shape[0]),
            self._expansions(),
            is_sample=is_sample,
        )
        attempts = self._train(options, task, start, limit, run or Run(self._stages()))
        joining = [one for one in attempts if one.member is not None and one.candidate.joins]
        held_out, unbiased = (
            np.column_stack([getattr(one.member, name) for one in joining])
            for name in ("held_out", "unbiased")
        )
        chosen = choose_combination(held_out, unbiased, targets, queries, folds.choosing)
        for one, weight, spread in zip(joining, chosen.weights, chosen.spreads, strict=True):
            one.share, one.factor = weight / chosen.weights.sum(), weight / spread
        # With two folds of few rows, what one of them chooses is what the other would.
        enough = folds.n_scored > (2 if rows.shape[0] < _ROWS_FOR_TWO_FOLDS else 1)
        scored = (folds.sizes > 0) & enough
        trial = Trial(attempts, folds, chosen.nested, name_of_model(joining), scored)
        self._keep(trial)
        return self._prefer_simple(trial)

    def _keep_figures(self, trial: Trial, y: np.ndarray, queries: Groups, scoring: Scoring) -> None:
        self.best_score_ = trial.score
        if np.isnan(self.best_score_):
            _warn_of_no_figure(trial)
        self.leaderboard_ = trial.leaderboard(y, queries, scoring, self._name_of)

    def fit_stream(self, chunks, *, checkpoint=None, **reading) -> Self:
        """Choose on a sample of whole queries, then train the members on all rows, chunk by chunk.

        Of more than 2,000,000 rows (500,000 for kernels) the members learn from about that many, whole queries drawn
        from all of them.

        Parameters
        ----------
        chunks : path, list of paths, iterable of chunks, or callable that returns one
            Files as in `preflearn.io.iter_ranking`, or chunks of whole queries: (X, y, qid) or `RankingData`. They are
            read several times, so an iterator that can be read once is refused. X may be a data frame or a mapping
            from names to columns as in `fit`: how columns are encoded is learned from the sample.
        checkpoint : path, default=None
            A file that remembers what has been done: the sample, every candidate, every member that was trained on all
            rows, and once a minute the sums of the kernel in progress. A second call with the same arguments resumes
            there, and the model is the same. A checkpoint of other parameters or other rows is refused. Up to 60,000
            rows, where everything is the sample, only the rows themselves are remembered.
        **reading
            Options of `iter_ranking`, for files.

        Returns
        -------
        self
            Without ``cv_predictions_`` and ``cv_folds_``. Up to 60,000 rows it is the model of `fit`.

        Notes
        -----
        Memory: the sample (60,000 rows), a chunk, and a byte for each number of up to 2,000,000 rows for boosted trees.
        Passes: one for the sample, one for each member with a share, one to fit the leaves of trees again. The sample
        holds the queries whose labels have the smallest hashes: it depends on the labels, not on the order of the rows
        or the size of the chunks.

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
        self._fit_parts(rows_in_chunks(chunks, reading), checkpoint)
        # Rows in parts have no held-out predictions one by one.
        for name in ("cv_predictions_", "cv_folds_"):
            del self.__dict__[name]
        return self

    def _fit_parts(self, parts: RowsInParts, checkpoint: Any = None) -> QuerySample:
        """Choose on a sample of rows that come in parts, and train on all of them.

        Held-out predictions are those of the sample, which is returned.
        """
        # Before anything is read.
        read_preset(self.preset), self._read_scoring(), self._read_limit(), self._expansions()
        with run_of(checkpoint, self, self._stages(), parts) as run:
            return self._choose_and_train(parts, run)

    def _choose_and_train(self, parts: RowsInParts, run: Run) -> QuerySample:
        sample = run.sample(parts, _MOST_ROWS)
        if sample.n_rows == 0:
            raise ValueError("There are no rows to learn from: the source yielded no chunks.")
        X, y, keys = sample.table()
        if sample.is_everything:
            self.fit(X, y, qid=keys)
        else:
            self._fit_sample(X, y, keys, parts, sample, run)
        self.n_queries_ = sample.n_queries
        return sample

    def _fit_sample(
        self, X: Any, y: np.ndarray, keys: np.ndarray, parts: RowsInParts, sample: QuerySample, run: Run
    ) -> None:
        """`fit` on the sample; then its members on all other rows."""
        limit, start, n_rows = self._read_limit(), time.perf_counter() - run.seconds, sample.n_rows
        scoring, rows = self._read_scoring(), self._encode(X, has_missing=sample.has_missing)
        order, queries = order_by_content(rows, y[:, None], encode_queries(keys, rows.shape[0]))
        seed = run.seed(int(check_random_state(self.random_state).randint(2**31 - 1)))
        rows, y, keys = rows[order], y[order], keys[order]
        self.n_training_rows_ = rows.shape[0]
        with nullcontext() if self.n_jobs is None else threads_limited(self.n_jobs):
            trial = self._fit_rows(
                rows, y, queries, scoring, seed, start, limit, run=run, is_sample=limit == np.inf
            )
            if trial.can_extend(n_rows, limit - (time.perf_counter() - start)):
                taken = trial.folds.tests[fold_to_keep(trial.folds)]
                prepare = Preparation(deepcopy(self.encoder_), np.unique(keys[taken]), UnitScale(y))
                queries = encode_queries(queries.codes[taken], taken.shape[0])
                order, rows, y = order[taken], rows[taken], y[taken]
                held = (rows, y, prepare.scale(y), queries)
                over = partial(parts.over, prepare)
                trial = self._extend(trial, over, n_rows, held, scoring, seed, run, limit=limit)
        self._keep_figures(trial, y, queries, scoring)
        self._keep_held_out(trial, order, keys.shape[0])

    def _keep_held_out(self, trial: Trial, rows: np.ndarray, n_rows: int) -> None:
        """What was predicted for held-out rows; ``rows`` are those of the trial."""
        self.cv_predictions_ = np.full(n_rows, np.nan)
        self.cv_predictions_[rows] = np.where(trial.scored_rows, trial.held_out, np.nan)
        self.cv_folds_ = np.full(n_rows, -1)
        for fold, test in enumerate(trial.folds.tests):
            self.cv_folds_[rows[test]] = fold

    def _extend(
        self,
        trial: Trial,
        over: Callable[..., Iterator[Any]],
        n_rows: int,
        held: tuple[np.ndarray, np.ndarray, np.ndarray, Groups],
        scoring: Scoring,
        seed: int,
        run: Run,
        *,
        is_global: bool = False,
        limit: float = np.inf,
    ) -> Trial:
        """Train the members with a share on all rows; ``held``, a fold of the sample, stays out.

        ``held`` are rows, y, scaled targets and queries. Leaves are fitted again unless there is a time limit.
        """
        rows, y, targets, part = held
        everything = Everything(
            self.features_,
            over,
            n_rows - rows.shape[0],
            fold_to_keep(trial.folds),
            device=self._expansions(),
            is_global=is_global,
        )
        self.n_training_rows_ = everything.n_learned()
        folds = self._folds(y, part, scoring, seed)
        trial = extend(trial, everything, rows, targets, part, folds, run)
        if limit == np.inf:
            trial = correct(trial, everything, targets, part, run)
        self._keep(trial)
        return trial

    def _refit_without_folds(
        self,
        rows: np.ndarray,
        y: np.ndarray,
        queries: Groups,
        scoring: Scoring,
        seed: int,
        trial: Trial,
        stage: Stage,
    ) -> Trial:
        """Predictions of each fold by the whole procedure on the others: what a choice by folds cannot quite give.

        A model that predicts another fold has been trained on this one, so that even a choice by the other folds knows
        a little of its labels. On few rows that is seen, in the candidates as in the whole: both are predicted again.
        Fewer folds are enough to choose by there; if anything, the figure is a little too low for it.
        """
        held_out = trial.held_out.copy()
        by_candidate = {
            one.candidate.name: one.member.unbiased.copy() for one in trial.attempts if one.member is not None
        }
        scored = trial.folds.sizes > 0
        for fold, test in enumerate(trial.folds.tests):
            stage.count(fold, len(trial.folds.tests), "folds")
            rest = rows_outside(rows.shape[0], test)
            model = self._for_repetition(rows, trial)
            try:
                part = encode_queries(queries.codes[rest], rest.shape[0])
                without = model._fit_rows(rows[rest], y[rest], part, scoring, seed, 0.0, np.inf, _INNER_FOLDS)
            except ValueError:  # too little is left to choose by
                scored[fold] = False
                continue
            views = model.features_.views(rows[test], encode_queries(queries.codes[test], test.shape[0]))
            held_out[test] = model._predict_rows(rows[test], queries.codes[test])
            for one in without.attempts:
                if one.member is not None and one.candidate.name in by_candidate:
                    predictions = one.member.model.predict(views[one.candidate.view])
                    by_candidate[one.candidate.name][test] = predictions
        for one in trial.attempts:
            if one.member is not None:
                one.member = replace(one.member, unbiased=by_candidate[one.candidate.name])
        return replace(trial, held_out=held_out, scored=scored)

    def _for_repetition(self, rows: np.ndarray, trial: Trial) -> AutoRanker:
        """A ranker that repeats the procedure: without what there was no time for."""
        left_out = {one.candidate.name for one in trial.attempts if one.was_left_out_for_time}
        return _for_numbers(
            rows,
            scoring=self.scoring,
            n_jobs=self.n_jobs,
            device=self._device_name(),
            preset=Preset(without=frozenset(left_out)),
        )

    def _add_run(
        self,
        rows: np.ndarray,
        y: np.ndarray,
        queries: Groups,
        scoring: Scoring,
        seed: int,
        n_before: int,
        trial: Trial,
    ) -> None:
        """Average the model of ``n_before`` runs with that of another one, with other folds and seeds."""
        other = self._for_repetition(rows, trial)
        other._fit_rows(rows, y, queries, scoring, seed, 0.0, np.inf)
        old, new = n_before / (n_before + 1), 1 / (n_before + 1)
        self.members_, self.views_ = self.members_ + other.members_, self.views_ + other.views_
        self.member_names_ = self.member_names_ + other.member_names_
        self.weights_ = np.r_[old * self.weights_, new * other.weights_]
        shares = self._of_columns(other.feature_importances_)
        self.feature_importances_ = old * self.feature_importances_ + new * shares

    def _name_of(self, feature: int) -> str:
        """The name of a prepared feature, by its place among those that vary."""
        place = int(self.features_.kept_[feature])
        if self.encoder_ is not None:
            return str(self.encoder_.get_feature_names_out()[place])
        return str(self.feature_names_in_[place]) if hasattr(self, "feature_names_in_") else f"x{place}"

    def _stages(self) -> Stages:
        return Stages("AutoRanker" if self.verbose else None)

    def _fit_tensor(self, X: Any, y: Any, qid: Any) -> Self:
        """`fit` on a copy of a tensor on the host, with kernels on the device of the tensor."""
        self._device_of_X = None if self.device is not None or not hasattr(X, "cpu") else str(X.device)
        try:
            return self.fit(as_host(X), as_host(y), qid=as_host(qid))
        finally:
            del self._device_of_X

    def _device_name(self) -> str | None:
        return getattr(self, "_device_of_X", None) if self.device is None else self.device

    def _expansions(self) -> DeviceExpansions | None:
        """What evaluates kernels on a device; None for the processor."""
        name = self._device_name()
        if name is not None and not isinstance(name, str):
            raise ValueError(
                f"device must be the name of a device of PyTorch, such as 'cuda', or None: found {name!r}."
            )
        return None if name is None else DeviceExpansions.on(name)

    def _read_scoring(self) -> Scoring:
        scoring = read_scoring(self.scoring)
        if scoring.scorer is not None and not scoring.compares_rows:
            raise ValueError(
                f"scoring={scoring.name} compares scores with y, and scores of AutoRanker are on a scale of their own. "
                "Use a measure of rankings, such as 'concordance' or 'ndcg@10', or a callable."
            )
        return scoring

    def _read_limit(self) -> float:
        jobs, limit = self.n_jobs, self.time_limit
        if jobs is not None and (isinstance(jobs, bool) or not isinstance(jobs, Integral) or jobs == 0):
            raise ValueError(f"n_jobs must be a number of threads, -1 or None: found {jobs!r}.")
        if limit is None:
            return np.inf
        if isinstance(limit, bool) or not isinstance(limit, Real) or not float(limit) > 0:
            raise ValueError(f"time_limit must be a positive number of seconds or None: found {limit!r}.")
        return float(limit)

    def _read_targets(self, y: Any, n_rows: int) -> np.ndarray:
        scores, single = read_scores(y, n_rows, estimator=self)
        if not single:
            raise ValueError(
                f"AutoRanker learns one ranking: found y with {scores.shape[1]} columns. Fit one for each."
            )
        return scores[:, 0].astype(np.float64)

    def _encode(self, X: Any, *, has_missing: bool = False) -> np.ndarray:
        """The table as numbers; `encoder_` remembers how. Missing values may be in rows that come later alone."""
        self.encoder_ = None
        if has_missing or not _is_plain(X):
            self.encoder_ = TableEncoder(sparse_output=False)
            rows = self.encoder_.fit_transform(X)
            self.n_features_in_ = self.encoder_.n_features_in_
            if hasattr(self.encoder_, "feature_names_in_"):
                self.feature_names_in_ = self.encoder_.feature_names_in_
            elif hasattr(self, "feature_names_in_"):
                del self.feature_names_in_
            return rows
        return self._read_plain(X, reset=True)

    def _read_plain(self, X: Any, *, reset: bool) -> np.ndarray:
        if sp.issparse(X) and X.shape[1] > _MOST_SPARSE_COLUMNS:
            raise ValueError(
                f"AutoRanker works on dense features: found a sparse matrix with {X.shape[1]:,} columns. Use RankRLSCV "
                "(linear) or RankRFM, which take it as it is, or select columns first."
            )
        if not reset and self._is_as_expected(X):
            return X
        X = validate_data(
            self, X, accept_sparse="csr", dtype=np.float64, reset=reset, ensure_min_samples=2 if reset else 1
        )
        return X.toarray() if sp.issparse(X) else X

    def _is_as_expected(self, X: Any) -> bool:
        """Whether X would pass the checks of scikit-learn as it is: they take a tenth of the time of a single query."""
        if type(X) is not np.ndarray or X.dtype != np.float64 or X.ndim != 2 or X.shape[0] == 0:
            return False
        if X.shape[1] != self.n_features_in_ or hasattr(self, "feature_names_in_"):
            return False
        with np.errstate(over="ignore", invalid="ignore"):
            return bool(np.isfinite(X.sum()))

    def _folds(
        self, y: np.ndarray, queries: Groups, scoring: Scoring, seed: int, n_folds: int = _N_FOLDS
    ) -> FoldScores:
        n_rows = y.shape[0]
        if queries.n_groups > 1:
            cv: Any = QueryKFold(min(n_folds, queries.n_groups), shuffle=True, random_state=seed)
            folds = read_folds(cv, np.empty((n_rows, 0)), y, n_rows, qid=queries.codes)
        else:
            folds = read_folds(shuffled_folds(n_rows, n_folds), np.empty((n_rows, 0)), y, n_rows)
        scoring.measure(y[:, None], y[:, None], queries)  # refuses targets without anything to order
        found = FoldScores.of_folds(folds.tests, y, queries, scoring)
        if found.n_scored == 0:
            raise ValueError(
                "AutoRanker compares candidates on held-out rows, but no fold has two rows of a query with different "
                f"y: found {n_rows} rows in {queries.n_groups} {'query' if queries.n_groups == 1 else 'queries'}. Add "
                "rows, or fit RankRLS, which holds nothing out."
            )
        return found

    def _train(
        self, options: list[Candidate], task: Task, start: float, limit: float, run: Run
    ) -> list[Attempt]:
        """Candidate after candidate, as long as time allows."""
        attempts: list[Attempt] = []
        pace, stages = Pace(task, self.features_.kept_.size), self._stages()
        for candidate in options:
            work, known = pace.work(candidate), run.attempt(candidate, task)
            if known is not None:
                attempts.append(known)
                if not known.was_left_out_for_time:
                    pace.note(candidate, work, known.member, known.seconds)
                continue
            begun = time.perf_counter()
            if attempts and begun - start + pace.seconds(work) > limit:
                attempts.append(Attempt(candidate))
                continue
            with stages(candidate.name), warnings.catch_warnings():
                warnings.filterwarnings("ignore", message="All gradients")  # the leaderboard says which round
                member = candidate.train(task, candidate.view)
            seconds = time.perf_counter() - begun
            if member is None:
                attempts.append(Attempt(candidate, seconds=seconds, reason="behind after the first rounds"))
            else:
                attempts.append(Attempt(candidate, member, seconds))
            pace.note(candidate, work, member, seconds)
            run.keep_attempt(attempts[-1])
        return attempts

    def _prefer_simple(self, trial: Trial, *, is_refitted: bool = False) -> Trial:
        """A simple candidate instead, where it orders held-out rows better than the whole procedure does.

        The best of several scores flatters itself: for each fold the choice that the other folds make is reported.
        Where the whole procedure has been repeated without each fold, its score is, whichever model is kept.
        """
        simple = [one for one in trial.attempts if one.member is not None and one.candidate.is_simple]
        options = np.stack(
            [trial.held_out, *(one.member.unbiased for one in simple if one.member is not None)]
        )
        scores = trial.folds.choosing.of(options)
        if not is_refitted:
            trial = replace(trial, held_out=nested(trial.folds.choosing, options, scores))
        place = trial.folds.choosing.best(scores)
        if place == 0:
            return trial
        best = simple[place - 1]
        for one in trial.attempts:
            one.share, one.factor = float(one is best), float(one is best)
        trial = replace(trial, name=best.candidate.name)
        self._keep(trial)
        return trial

    def _keep(self, trial: Trial) -> None:
        """The members that have a share."""
        kept = trial.kept
        self.members_ = [member.model for _, member in kept]
        self.views_ = [one.candidate.view for one, _ in kept]
        self.member_names_ = [one.candidate.name for one, _ in kept]
        self.weights_ = np.array([one.factor for one, _ in kept])
        shares = np.array([one.share for one, _ in kept])
        importances = np.stack([self.features_.to_inputs(member.importances) for _, member in kept])
        self.feature_importances_ = self._of_columns(shares @ importances / shares.sum())

    def _of_columns(self, importances: np.ndarray) -> np.ndarray:
        """Of the columns of the table, where one column became several features."""
        return np.bincount(self._column_of_feature(), weights=importances, minlength=self.n_features_in_)

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
        return self._predict(X, qid)

    def _predict(self, X: Any, qid: Any) -> np.ndarray:
        return self._predict_rows(self._encoded(X), qid)

    def _encoded(self, X: Any) -> np.ndarray:
        return self._read_plain(X, reset=False) if self.encoder_ is None else self.encoder_.transform(X)

    def _predict_rows(self, rows: np.ndarray, qid: Any) -> np.ndarray:
        return scores_by_query(self._scores_of_rows, rows, encode_queries(qid, rows.shape[0]))

    def _scores_of_rows(self, rows: np.ndarray, queries: Groups) -> np.ndarray:
        scores = WeightedMembers(self.members_, self.views_, self.weights_)
        return scores(self.features_.views(rows, queries))

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

    def score(self, X, y, *, qid=None, sample_weight=None) -> float:
        """Concordance: the share of untied pairs inside queries that are ordered as in y, averaged over queries.

        Parameters
        ----------
        X, qid : as in predict
        y : array-like of shape (m,)
        sample_weight : array-like of shape (m,), optional

        Returns
        -------
        float
        """
        return concordance(y, self.predict(X, qid=qid), qid, sample_weight=sample_weight)

    @property
    def _looks_at_query(self) -> bool:
        return any(name in OF_QUERY for view in self.views_ for name in view)

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
        # Models of older versions name a part by one letter.
        self.views_ = [tuple(map(_LETTERS.get, one)) if isinstance(one, str) else one for one in self.views_]
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
        refuse_misfits(self.members_, self.views_, self.features_.kept_.size)
        return {"weights_": "k", "feature_importances_": "n", "n_queries_": ""}

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.allow_nan = True
        tags.target_tags.multi_output = False
        tags.target_tags.two_d_labels = False
        return tags


def _warn_of_no_figure(trial: Trial) -> None:
    n_scored = int(np.count_nonzero(trial.scored))
    warnings.warn(
        f"best_score_ is NaN: {n_scored} of {len(trial.scored)} folds can be scored by a model that was chosen without "
        "them, and an honest figure needs two. Add queries (or rows) with different y, or a longer time_limit.",
        UserWarning,
        stacklevel=3,
    )


@cache
def _compile() -> None:
    """Run every candidate once on next to nothing, so that Numba has compiled what a time limit is not meant for."""
    rng = np.random.default_rng(0)
    X, y, qid = rng.normal(size=(120, 3)), rng.normal(size=120), np.repeat(np.arange(30), 4)
    _for_numbers(X)._fit_rows(X, y, encode_queries(qid, 120), read_scoring(None), 0, 0.0, np.inf)


def _for_numbers(X: np.ndarray, **params: Any) -> AutoRanker:
    """A ranker of rows that need no encoding."""
    model = AutoRanker(**params)
    model.encoder_, model.n_features_in_ = None, X.shape[1]
    return model


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
