"""RankRFM: a RankRLS whose kernel learns which directions matter."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any, Self

import numpy as np

from ..comparisons import Comparisons, Groups, PreferenceComparisons, compare_scores, encode_queries
from ..comparisons.inputs import compare_times, named_cures, read_pairs, read_per_pair, read_scores
from ..kernels.blocks import expansion_gradient
from ..kernels.functions import Kernel, n_items, take_items
from ..kernels.inputs import read_items, why_not_on_device
from ..kernels.maps import choose_basis
from ..kernels.registry import kernel_names
from ..model_selection._basis_rows import refuse_folds_of_whole_basis
from ..model_selection._choice import auto_grid, choose, read_grid, read_scoring, warn_at_edge
from ..model_selection._folds import (
    encode_groups,
    few_folds,
    order_by_content,
    read_folds,
    read_preference_folds,
    shuffled_folds,
)
from ..model_selection._learner import EstimatingLearner, read_censored
from ..model_selection._nested import NestedChoice, PreferenceJudge, RowJudge
from ..numerics.namespace import as_host, is_device_array
from ..numerics.threads import with_small_matrices
from ..squared.devices.expansion import DeviceTrainingSet, gradients_on_device, in_double
from ..squared.expansion import MetricModel, TrainingSet
from ..squared.holdout.base import rows_outside
from ..squared.routes import callers_level
from .base import KernelModel, RankerMixin
from .rankrls import RankRLS

METRICS = ("diagonal", "full")
# Basis vectors that n_basis=None stands for.
_DEFAULT_BASIS = 1000
# Maximum number of rows that round and alpha are chosen on; the final training uses all rows.
_SEARCH_ROWS = 25_000
_N_FOLDS = 5


@dataclass(frozen=True)
class Round:
    """One round of the recursion.

    Attributes
    ----------
    round : int
        0 is the training on the original features.
    alpha : float
        With the best held-out score of this round.
    score : float
    seconds : float
    """

    round: int
    alpha: float
    score: float
    seconds: float


@dataclass(frozen=True)
class Rounds(Sequence):
    """The rounds of a `RankRFM`, a sequence of `Round`; prints itself as a table.

    Attributes
    ----------
    table : list of Round
    """

    table: list[Round]

    def __len__(self) -> int:
        return len(self.table)

    def __getitem__(self, place: Any) -> Any:
        return self.table[place]

    def __str__(self) -> str:
        lines = [f"{'round':>5}  {'alpha':>9}  {'held out':>8}  {'seconds':>7}"]
        lines += [f"{one.round:5}  {one.alpha:9.3g}  {one.score:8.4f}  {one.seconds:7.2f}" for one in self]
        return "\n".join(lines)


@dataclass
class _Search:
    """The training sets of all folds and of all rows, and how their held-out predictions are scored.

    Attributes
    ----------
    X : validated items
    sets : list of TrainingSet
        One for each fold, and last that of all rows.
    predict : callable
        From a fold's number, its model and the alphas to what is scored, shape (a, n_test, v).
    judge : RowJudge or PreferenceJudge
        How the predictions of folds are scored.
    """

    X: Any
    sets: list[TrainingSet]
    predict: Callable[[int, MetricModel, np.ndarray], np.ndarray]
    judge: RowJudge | PreferenceJudge

    @property
    def tests(self) -> list[np.ndarray]:
        return self.judge.tests

    def for_each(self, work: Callable[[int], Any], size: int) -> list[Any]:
        """``work(0) ... work(size - 1)``: one after the other on a device, which each of them keeps busy.

        Otherwise side by side, each on one processor, without waiting for the threads of BLAS.
        """
        if is_device_array(self.X):
            return [work(number) for number in range(size)]
        return with_small_matrices(work, size)


@dataclass(frozen=True)
class TrainedRound:
    """The result of one round.

    Attributes
    ----------
    number : int
    models : list of MetricModel
        Of each fold, and last that of all rows.
    alphas, scores : ndarray of shape (a,)
    held_out : list of ndarray of shape (a, n_test, v)
        What each fold predicts.
    choice : int
        The position of the best alpha.
    """

    number: int
    models: list[MetricModel]
    alphas: np.ndarray
    scores: np.ndarray
    held_out: list[np.ndarray]
    choice: int

    @property
    def alpha(self) -> float:
        return float(self.alphas[self.choice])

    @property
    def score(self) -> float:
        return float(self.scores[self.choice])


class RankRFM(RankerMixin, EstimatingLearner, KernelModel):
    """Recursive feature machine for ranking: a RankRLS whose kernel learns its metric.

    Trains a `RankRLS`, measures by the gradients of its scores how much each direction of the features matters,
    stretches and shrinks them accordingly, and trains again. The round at which to stop, and alpha, are chosen by
    cross-validation in which every fold learns its own metric: the held-out score is not biased by a metric that has
    seen the held-out labels.

    Parameters
    ----------
    alphas : "auto" or sequence of float, default="auto"
        The grid; "auto" places it by the spectrum of each round's kernel.
    kernel : {"rbf", "laplacian", "matern"}, default="rbf"
        A kernel on distances.
    gamma : float, "median", "scale" or None, default="median"
        The width of the kernel, computed again for the metric of each round unless it is a number.
    metric : {"diagonal", "full"}, default="diagonal"
        One factor per feature, or directions that mix features.
    n_basis : None, int or float, default=None
        Number of basis vectors, or their fraction of the rows; None takes every row up to 1,000, and 1,000 of more.
    basis : "uniform" or array of int, default="uniform"
        How they are chosen: at random, or given as row numbers (as in `RankRLS`). In each fold those in it leave.
    max_rounds : int, default=5
        Largest number of times that the metric is learned. Two rounds in a row without a better held-out score end
        the recursion earlier.
    cv : str, int, splitter, iterable or None, default=None
        As in `RankRLSCV`; None is five folds, of whole queries with qid.
    scoring : str, callable or None, default=None
        As in `RankRLSCV`; None is the concordance.
    weighting : {"pair", "item", "query"}, default="item"
        As in `RankRLS`.
    keep_predictions : bool, default=False
        Keep the held-out predictions of the chosen round and alpha in ``cv_predictions_``.
    random_state : int, RandomState or None
        For the draw of basis vectors.
    verbose : int, default=0
        Print each round with its time.

    Attributes
    ----------
    metric_ : ndarray of shape (n,) or (n, k)
        S: the kernel sees X S. All ones where no round was better than the original features.
    feature_importances_ : ndarray of shape (n,)
        Root mean square of the gradient along each feature times the feature's standard deviation; they sum to 1.
    rounds_ : list of Round
        Round, alpha, held-out score and seconds; prints itself as a table.
    best_round_, alpha_
        What was chosen. Ties go to the earlier round and the stronger regularisation.
    best_score_ : float
        Held-out score with round and alpha chosen by the other folds (at most ten parts of them), so that the choice
        hardly biases it: 0.50 to 0.53 on noise. NaN, with a warning, where no two folds have rows to compare.
    alphas_, cv_scores_ : ndarray of shape (n_alphas,)
        Of the chosen round; the choice was made by the largest score.
    cv_predictions_ : ndarray of shape (m,) or (m, v)
        With `keep_predictions`; NaN for rows that were not used in the choice.
    gamma_ : float
    dual_coef_, basis_, basis_indices_ : as in RankRLS

    Notes
    -----
    A round costs one training of O(m r²) for each fold and one for all rows, and one more product of the kernel's shape
    for the gradients. Beyond 25,000 rows the choice is made on a sample of whole queries and the chosen model is
    trained on all rows. Features should be on similar scales.

    `fit` depends only on the data and the seed: basis vectors, the folds of ``cv=None`` or an int, and samples do not
    depend on the order of the rows or the names of the queries.

    Examples
    --------
    >>> import numpy as np
    >>> from preflearn import RankRFM
    >>> rng = np.random.default_rng(0)
    >>> X, qid = rng.normal(size=(300, 10)), np.repeat(np.arange(30), 10)
    >>> y = np.sin(2 * X[:, 0]) + X[:, 1] ** 2 + 5 * qid
    >>> model = RankRFM(random_state=0).fit(X, y, qid=qid)
    >>> sorted(np.argsort(model.feature_importances_)[-2:].tolist())
    [0, 1]
    >>> model.best_score_ > model.rounds_[0].score
    True
    """

    __metadata_request__fit = {"qid": True, "event": True}

    # The kernel takes neither: `Kernel` refuses them if they are given.
    degree = 3
    coef0 = 1
    kernel_params = None

    def __init__(
        self,
        alphas="auto",
        *,
        kernel="rbf",
        gamma="median",
        metric="diagonal",
        n_basis=None,
        basis="uniform",
        max_rounds=5,
        cv=None,
        scoring=None,
        weighting="item",
        keep_predictions=False,
        random_state=None,
        verbose=0,
    ) -> None:
        self.alphas = alphas
        self.kernel = kernel
        self.gamma = gamma
        self.metric = metric
        self.n_basis = n_basis
        self.basis = basis
        self.max_rounds = max_rounds
        self.cv = cv
        self.scoring = scoring
        self.weighting = weighting
        self.keep_predictions = keep_predictions
        self.random_state = random_state
        self.verbose = verbose

    @named_cures
    def fit(self, X, y, *, qid=None, groups=None, event=None) -> Self:
        """Learn the metric, choose round and alpha, and train on all rows.

        Parameters
        ----------
        X : array-like or sparse of shape (m, n)
            A PyTorch tensor (``sklearn.config_context(array_api_dispatch=True)``) stays on its device: kernel values,
            trainings, held-out predictions and gradients are computed there, in double precision. RBF kernel only.
            Folds and basis vectors then depend on the order of the rows, unlike those of NumPy arrays.
        y : array-like of shape (m,) or (m, v)
            Scores, higher is better.
        qid : array-like of shape (m,), optional
            Query labels; one query (a global ranking) without.
        groups : array-like of shape (m,), optional
            Rows that share a group are never split between training and test.
        event : array-like of bool, shape (m,), optional
            As in `RankRLS.fit`: y holds times, and the score is the C-index.

        Returns
        -------
        self
        """
        kernel, X = self._read(X)
        times, events = read_censored(self, X, y, event)
        scores, single = read_scores(times, n_items(X), estimator=self)
        if events is not None:
            scores = np.column_stack([scores, events])
        order, queries = self._in_order(X, scores, encode_queries(qid, n_items(X)))
        taken = queries.sample(_SEARCH_ROWS) if isinstance(self.basis, str) else np.arange(n_items(X))
        rows = order[taken]
        has_queries = qid is not None and queries.n_groups > 1
        on_device = is_device_array(X)
        search = self._search_rows(
            in_double(X, rows) if on_device else take_items(X, rows),
            scores[rows],
            queries.codes[taken],
            None if groups is None else encode_groups(groups, n_items(X)).codes[rows],
            has_queries=has_queries,
            censored=events is not None,
        )
        model, held_out = self._recurse(search, kernel, lambda model: model.predict_items(search.X))
        self._keep(model, rows[search.sets[-1].basis], single)
        if self.keep_predictions:
            self.cv_predictions_ = np.full((scores.shape[0], held_out.shape[1]), np.nan)
            self.cv_predictions_[rows] = held_out
            if single:
                self.cv_predictions_ = self.cv_predictions_[:, 0]
        if on_device or rows.shape[0] < n_items(X):
            model_of_all = self.to_rankrls().fit(X, y, qid=qid, event=event)
            for name in ("dual_coef_", "basis_", "basis_indices_"):
                setattr(self, name, getattr(model_of_all, name))
        self.n_queries_ = queries.n_groups
        return self

    def fit_pairs(self, X, pairs, *, magnitude=None, weight=None, groups=None) -> Self:
        """Learn the metric from comparisons without scores; round and alpha by held-out preferences.

        Parameters
        ----------
        X, pairs, magnitude, weight, groups : as in RankRLSCV.fit_pairs

        Returns
        -------
        self
        """
        if self.scoring is not None:
            raise ValueError(
                "fit_pairs chooses by the share of held-out preferences in the right order: leave scoring out."
            )
        if is_device_array(X):
            raise ValueError(
                "Preferences (pairs) are computed on NumPy arrays: pass X.cpu().numpy() for a PyTorch tensor, or fit "
                "scores with qid."
            )
        kernel, X = self._read(X)
        pairs = read_pairs(pairs, n_items(X))
        magnitude = read_per_pair(magnitude, pairs.shape[0], "magnitude")
        weight = read_per_pair(weight, pairs.shape[0], "weight", positive=True)
        search = self._search_pairs(X, pairs, magnitude, weight, groups)

        def differences(model: Any) -> Any:
            f = model.predict_items(X)
            return f[pairs[:, 0]] - f[pairs[:, 1]]

        model, held_out = self._recurse(search, kernel, differences)
        self._keep(model, search.sets[-1].basis, single=True)
        if self.keep_predictions:
            self.cv_predictions_ = held_out[:, 0]
        self.n_queries_ = 1
        return self

    def to_rankrls(self, **parameters) -> RankRLS:
        """An unfitted `RankRLS` with the learned kernel, the chosen alpha and the same basis vectors.

        For what this class does not do itself: training out of core (`RankRLS.fit_stream`), on a Dask cluster
        (`preflearn.distributed.fit`), on PyTorch tensors, or exact cross-validation with the metric fixed.

        Parameters
        ----------
        **parameters
            Parameters of `RankRLS` to change, such as ``n_basis`` for other rows.

        Returns
        -------
        RankRLS
        """
        settings: dict[str, Any] = {
            "kernel": self.kernel,
            "gamma": self.gamma_,
            "kernel_params": {"metric": self.metric_},
            "basis": as_host(self.basis_indices_),
            "weighting": self.weighting,
        }
        if "n_basis" in parameters:
            settings["basis"] = "uniform"
        return RankRLS(self.alpha_, **{**settings, **parameters})

    def plot_importances(self, ax=None, *, names: Sequence[str] | None = None, n_features: int = 20):
        """Bars of the most important features.

        Parameters
        ----------
        ax : matplotlib axes, optional
        names : sequence of str, optional
            Of all features; ``feature_names_in_`` by default.
        n_features : int, default=20

        Returns
        -------
        matplotlib axes
        """
        import matplotlib.pyplot as plt

        importances = self.feature_importances_
        most = np.argsort(importances)[-n_features:]
        ax = ax or plt.subplots(figsize=(5, 0.3 * len(most) + 1))[1]
        ax.barh(self._names_of(most, names), importances[most])
        ax.set_xlabel("share of the gradient")
        return ax

    def plot_directions(
        self,
        ax=None,
        *,
        names: Sequence[str] | None = None,
        n_directions: int = 3,
        n_features: int = 10,
    ):
        """The longest directions of a full metric, each scaled to length 1: the share of each feature in them.

        Parameters
        ----------
        ax : matplotlib axes, optional
        names : sequence of str, optional
            Of all features; ``feature_names_in_`` by default.
        n_directions : int, default=3
        n_features : int, default=10
            Those with the largest entries in these directions.

        Returns
        -------
        matplotlib axes
        """
        import matplotlib.pyplot as plt

        if self.metric_.ndim == 1:
            raise ValueError(
                'Only a full metric has directions: this one has a factor for each feature. Fit with metric="full" and '
                "at least one round, or call plot_importances."
            )
        lengths = np.linalg.norm(self.metric_, axis=0)
        longest = np.argsort(-lengths)[:n_directions]
        columns = self.metric_[:, longest] / lengths[longest]
        most = np.argsort(-np.abs(columns).max(axis=1))[:n_features]
        ax = ax or plt.subplots(figsize=(1.5 * len(longest) + 3, 0.3 * len(most) + 1))[1]
        image = ax.imshow(columns[most], aspect="auto", cmap="RdBu_r", vmin=-1.0, vmax=1.0)
        ax.figure.colorbar(image, ax=ax)
        shares = lengths[longest] ** 2 / (lengths**2).sum()
        ax.set_xticks(
            range(len(longest)), [f"{number + 1}\n{share:.0%}" for number, share in enumerate(shares)]
        )
        ax.set_yticks(range(len(most)), self._names_of(most, names))
        ax.set_xlabel("direction, and its share of the squared gradient")
        return ax

    def _names_of(self, features: np.ndarray, names: Sequence[str] | None) -> list[str]:
        if names is None:
            names = getattr(self, "feature_names_in_", [f"x{j}" for j in range(self.n_features_in_)])
        return [str(names[j]) for j in features]

    def _read(self, X: Any) -> tuple[Kernel, Any]:
        """Check the parameters, then the items."""
        names = kernel_names(lambda entry: entry.distance and entry.gradient)
        if self.kernel not in names:
            raise ValueError(
                f"RankRFM learns the metric of a kernel on distances, one of {', '.join(map(repr, names))}: "
                f"found {self.kernel!r}."
            )
        if self.metric not in METRICS:
            raise ValueError(f"metric must be 'diagonal' or 'full': found {self.metric!r}.")
        if (
            isinstance(self.max_rounds, bool)
            or not isinstance(self.max_rounds, Integral)
            or self.max_rounds < 0
        ):
            raise ValueError(f"max_rounds must be an int of at least 0: found {self.max_rounds!r}.")
        kernel = Kernel(self.kernel, self.gamma)
        reason = why_not_on_device(self.kernel, None, None) if is_device_array(X) else None
        if reason is not None:
            raise ValueError(reason)
        return kernel, read_items(self, X, kernel, reset=True)

    def _basis_rows(self, n_rows: int) -> np.ndarray:
        n_basis = self.n_basis
        if n_basis is None and isinstance(self.basis, str):
            n_basis = min(n_rows, _DEFAULT_BASIS)
        chosen = choose_basis(n_rows, n_basis, self.basis, self.random_state)
        return np.arange(n_rows) if chosen is None else chosen

    def _in_order(self, X: Any, scores: np.ndarray, queries: Groups) -> tuple[np.ndarray, Groups]:
        """By content, unless basis or cv refer to rows by their numbers, or the rows are on a device."""
        by_content = isinstance(self.basis, str) and not is_device_array(X)
        if by_content and (self.cv is None or isinstance(self.cv, (str, Integral))):
            return order_by_content(X, scores, queries)
        return np.arange(n_items(X)), queries

    def _search_rows(
        self,
        X: Any,
        scores: np.ndarray,
        codes: np.ndarray,
        groups: Any,
        *,
        has_queries: bool,
        censored: bool = False,
    ) -> _Search:
        """``scores`` of censored times are times and events."""
        n_rows = n_items(X)
        queries = encode_queries(codes, n_rows)
        scoring = read_scoring(self.scoring)
        cv = few_folds(n_rows, queries, groups) if self.cv is None else self.cv
        on_device = is_device_array(X)
        split_by = np.empty((n_rows, 0)) if on_device else X
        folds = read_folds(cv, split_by, scores, n_rows, qid=codes if has_queries else None, groups=groups)
        if censored:
            scoring, times = scoring.of_times(), scores[:, :1]
            task: Comparisons = compare_times(times, scores[:, 1] > 0, queries, weighting=self.weighting)
        else:
            task = compare_scores(scores, queries, weighting=self.weighting)
        basis = self._basis_rows(n_rows)
        kind = DeviceTrainingSet if on_device else TrainingSet
        refuse_folds_of_whole_basis(basis, folds.leaving)
        sets = [_without(left, n_rows, basis, task, kind) for left in folds.leaving]
        sets.append(kind(np.arange(n_rows), basis, task))
        owners = None if groups is None else encode_groups(groups, n_rows)
        judge = RowJudge(scoring, folds, queries, scores, groups=owners)
        _ = judge.comparable  # refuses before any work
        return _Search(
            X,
            sets,
            lambda fold, model, alphas: model.predict(take_items(X, folds.tests[fold]), alphas),
            judge,
        )

    def _search_pairs(self, X: Any, pairs: np.ndarray, magnitude: Any, weight: Any, groups: Any) -> _Search:
        n_rows, n_pairs = n_items(X), pairs.shape[0]
        cv = self.cv
        if cv is None:
            cv = "leave-group-out" if groups is not None else shuffled_folds(n_pairs, _N_FOLDS)
        folds = read_preference_folds(cv, n_pairs, groups=groups)
        everything, basis = np.arange(n_rows), self._basis_rows(n_rows)

        def training_set(kept: np.ndarray) -> TrainingSet:
            taken = [None if values is None else values[kept] for values in (magnitude, weight)]
            return TrainingSet(everything, basis, PreferenceComparisons(n_rows, pairs[kept], *taken))

        sets = [training_set(rows_outside(n_pairs, left)) for left in folds.leaving]
        sets.append(training_set(np.arange(n_pairs)))

        def predict(fold: int, model: MetricModel, alphas: np.ndarray) -> np.ndarray:
            ends = pairs[folds.tests[fold]]
            rows, place = np.unique(ends, return_inverse=True)
            f = model.predict(take_items(X, rows), alphas)
            place = place.reshape(ends.shape)
            return f[:, place[:, 0]] - f[:, place[:, 1]]

        owners = None if groups is None else encode_groups(groups, n_pairs)
        truth = np.ones(n_pairs) if magnitude is None else magnitude
        judge = PreferenceJudge(read_scoring(None), folds, truth, owners, off=0.0)
        return _Search(X, sets, predict, judge)

    def _recurse(
        self, search: _Search, kernel: Kernel, predict: Callable[[Any], Any]
    ) -> tuple[MetricModel, np.ndarray]:
        """The model of the best round, and its held-out predictions.

        ``predict`` is what the fitted model predicts for the rows or preferences of the search.
        """
        best, nested = None, NestedChoice(search.judge)
        rounds, start = [], time.perf_counter()
        for one in self._walk(search, kernel):
            nested.see(one.alphas, one.held_out)
            if best is None or one.score > best.score:
                best = one
            rounds.append(Round(one.number, one.alpha, one.score, time.perf_counter() - start))
            start = time.perf_counter()
        assert best is not None
        self.rounds_ = Rounds(rounds)
        self.best_round_, self.alpha_ = best.number, best.alpha
        kept = nested.predictions()
        self.best_score_ = float("nan") if kept is None else float(search.judge.score(kept)[0])
        if kept is None:
            warnings.warn(
                "best_score_ is NaN: fewer than two folds have rows to compare, and an unbiased score needs one to "
                "choose by and one to score. cv_scores_ holds the scores that the choice was based on.",
                UserWarning,
                stacklevel=callers_level(),
            )
        self._keep_choice(nested.estimate, predict)
        self.alphas_, self.cv_scores_ = best.alphas, best.scores
        warn_at_edge(best.alphas, best.scores, best.choice)
        chosen = [values[[best.choice]] for values in best.held_out]
        n = 1 + max(int(test.max()) for test in search.tests)
        return best.models[-1], search.judge.folds.collect(chosen, n)[0]

    def _walk(self, search: _Search, kernel: Kernel, patience: int = 2) -> Iterator[TrainedRound]:
        """Round after round: train, score, and learn the next metrics, until it no longer helps."""
        stages = self._more_stages()
        best_number, best_score = 0, -np.inf
        for number in range(self.max_rounds + 1):
            with stages(f"round {number}: {len(search.sets)} trainings"):
                found = self._round(number, search, kernel)
            yield found
            if found.score > best_score:
                best_number, best_score = number, found.score
            if number == self.max_rounds or number - best_number >= patience:
                return
            with stages(f"round {number}: gradients"):
                if not self._update_metrics(search, found.models, found.alpha):
                    return

    def _round(self, number: int, search: _Search, kernel: Kernel) -> TrainedRound:
        sets = search.sets
        models = search.for_each(lambda place: sets[place].train(search.X, kernel), len(sets))
        alphas = read_grid(self.alphas, lambda: auto_grid(models[-1].largest_eigenvalue))
        held_out = search.for_each(lambda fold: search.predict(fold, models[fold], alphas), len(search.tests))
        scores = search.judge.score(held_out)
        return TrainedRound(number, models, alphas, scores, held_out, choose(scores, alphas)[0])

    def _update_metrics(self, search: _Search, models: list[MetricModel], alpha: float) -> bool:
        """The next metric of every training set; False where the gradients of one are all zero."""
        full = self.metric == "full"
        updated = search.for_each(
            lambda place: search.sets[place].update_metric(search.X, models[place], alpha, full=full),
            len(models),
        )
        if not all(updated):
            warnings.warn(
                "All gradients of the model are zero, so no metric can be learned from them: the previous one is kept. "
                "Check that y differs inside queries, or try smaller alphas.",
                UserWarning,
                stacklevel=callers_level(),
            )
        return all(updated)

    def _keep(self, model: MetricModel, basis_indices: np.ndarray, single: bool) -> None:
        """The attributes of the chosen model."""
        coefficients = model.coefficients(self.alpha_)
        self._keep_function(model.kernel, model.basis, basis_indices, coefficients, single)

    def _keep_function(
        self, kernel: Kernel, basis: Any, basis_indices: np.ndarray, coefficients: np.ndarray, single: bool
    ) -> None:
        """The attributes of a function on these basis vectors, coefficients of shape (r, v)."""
        self.metric_ = np.ones(self.n_features_in_) if kernel.metric is None else kernel.metric
        self.gamma_ = kernel.width(self.metric_.shape[-1])
        self._set_function(None, coefficients, basis_indices, basis, single)
        self.feature_importances_ = _importances(kernel, basis, coefficients)

    def _read_kernel(self) -> Kernel:
        """The learned kernel."""
        return Kernel(self.kernel, self.gamma_, kernel_params={"metric": self.metric_})

    def _fitted_arrays(self) -> dict[str, str]:
        shapes = super()._fitted_arrays()
        if "metric_" not in vars(self):
            return shapes
        # Compiled loops go over the basis vectors and the factors without looking at the ends of the arrays.
        if np.shape(self.dual_coef_)[:1] == (0,):
            raise ValueError("there are no basis vectors")
        if not isinstance(self.gamma_, Real) or not self.gamma_ > 0:
            raise ValueError(f"gamma_ is {self.gamma_!r}, expected a positive number")
        return {**shapes, "gamma_": "", "metric_": "n" if np.ndim(self.metric_) == 1 else "n k"}


def of_expansion(
    kernel: Kernel,
    basis: np.ndarray,
    coefficients: np.ndarray,
    *,
    alpha: float,
    best_round: int,
    n_queries: int,
) -> RankRFM:
    """The function Σ_j β_j k(x, z_j) as a fitted `RankRFM`, which can be saved and exported and has gradients.

    Parameters
    ----------
    kernel : Kernel
        With its metric and its width as a number.
    basis : ndarray of shape (r, n)
    coefficients : ndarray of shape (r,)
    """
    is_full = kernel.metric is not None and kernel.metric.ndim > 1
    model = RankRFM(n_basis=basis.shape[0], metric="full" if is_full else "diagonal")
    model.n_features_in_, model.n_queries_ = basis.shape[1], n_queries
    model.alpha_, model.best_round_ = alpha, best_round
    model._keep_function(kernel, basis, np.arange(basis.shape[0]), coefficients[:, None], single=True)
    return model


def _without(
    left: np.ndarray, n_rows: int, basis: np.ndarray, task: Comparisons, kind: type[TrainingSet]
) -> TrainingSet:
    """The training set that remains when rows, and basis vectors among them, leave."""
    rest = rows_outside(n_rows, left)
    return kind(rest, basis[~np.isin(basis, left)], task.take(rest))


def _importances(kernel: Kernel, rows: Any, coefficients: np.ndarray) -> np.ndarray:
    """Those of an expansion; ``rows`` are the basis vectors, a sample of the training rows."""
    of_rows = gradients_on_device if is_device_array(rows) else expansion_gradient
    return importances_of_gradients(of_rows(kernel, rows, rows, coefficients), rows)


def importances_of_gradients(gradients: np.ndarray, rows: Any) -> np.ndarray:
    """Root mean square of the gradient along each feature, in standard deviations of it; they sum to 1.

    Parameters
    ----------
    gradients : ndarray of shape (m, n, v)
    rows : array or sparse matrix of shape (m, n)
        Where they were taken.
    """
    size = np.sqrt((gradients**2).mean(axis=(0, 2))) * np.sqrt(_column_variances(rows))
    total = float(size.sum())
    return size / total if total > 0 else np.full(size.shape, 1.0 / size.shape[0])


def _column_variances(X: Any) -> np.ndarray:
    from sklearn.utils.sparsefuncs import mean_variance_axis

    X = as_host(X)
    return X.var(axis=0) if isinstance(X, np.ndarray) else mean_variance_axis(X, axis=0)[1]
