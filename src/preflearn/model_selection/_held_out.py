r"""The held-out object: an estimator with its data, factorised once, then queried.

    f₋U(x_i) for i in U        U: the fold of row i, f₋U: the model trained without U

for any folds, any alphas, pairs, preferences, measures and other targets. For the squared-loss learners everything
follows from one factorisation; other estimators are refitted.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, field
from functools import cached_property
from inspect import signature
from typing import Any

import numpy as np
from sklearn.base import clone, is_regressor

from ..comparisons import Groups, PreferenceComparisons, encode_queries
from ..comparisons.inputs import read_alpha, read_pairs, read_per_pair
from ..kernels.functions import n_items
from ..kernels.inputs import read_items
from ..losses.pairs import ListedPairs
from ..numerics.namespace import as_host, is_device_array
from ..progress import Counter
from ..squared.base import PreferenceRoutine
from ..squared.holdout.base import rows_outside
from ._choice import BLIND_GRID, Scoring, auto_grid, read_grid, read_scoring, rounding_of
from ._folds import Folds, default_cv, encode_groups, is_pairs, read_folds, read_preference_folds
from ._learner import PathLearner
from ._nested import PreferenceJudge, RowJudge
from ._pair_holdout import pairs_to_order
from ._problem import Problem, has_closed_form
from ._refitting import PathProblem, RefittedProblem, with_alpha
from ._tally import PairTally


def read_problem(
    estimator: Any,
    X: Any,
    y: Any,
    qid: Any,
    sample_weight: Any = None,
    groups: Any = None,
    event: Any = None,
) -> Problem | PathProblem | RefittedProblem:
    """The data of an estimator, validated as in its fit, in the form that allows the fastest hold-out.

    Groups are for estimators that hold rows out themselves.
    """
    estimator, X = after_fixed_steps(estimator, X)
    if has_closed_form(estimator):
        return Problem.read(clone(estimator), X, y, qid, sample_weight, event)
    if isinstance(estimator, PathLearner) and hasattr(estimator, "alpha"):
        return PathProblem(estimator, X, y, qid, sample_weight, event)
    if sample_weight is not None:
        raise ValueError(
            f"sample_weight is for RLS, RankRLS and RankSVM: found {type(estimator).__name__}. Leave it out."
        )
    return RefittedProblem(estimator, X, y, qid, groups, event)


def after_fixed_steps(estimator: Any, X: Any) -> tuple[Any, Any]:
    """The learner at the end of a pipeline and what its steps make of X, where they learn nothing from rows.

    Such steps are normalisers, polynomials and functions of a row: whichever rows leave, the others are transformed as
    before. A function that looks at other rows (their mean, say) transforms a part of the rows differently, which is
    tried; then, and for steps that learn, the estimator and X are returned as they are.
    """
    from sklearn.pipeline import Pipeline
    from sklearn.utils import _safe_indexing

    if not isinstance(estimator, Pipeline) or len(estimator.steps) < 2 or is_device_array(X):
        return estimator, X
    learner = estimator[-1]
    learns_alone = has_closed_form(learner) or (
        isinstance(learner, PathLearner) and hasattr(learner, "alpha")
    )
    if not learns_alone or not all(map(_is_fixed, estimator[:-1])):
        return estimator, X
    steps = clone(estimator[:-1])
    Z, n_rows = steps.fit_transform(X), n_items(X)
    for rows in (np.arange(1, n_rows), np.arange(0, n_rows, 2)):
        part, same = steps.transform(_safe_indexing(X, rows)), _safe_indexing(Z, rows)
        if part.shape != same.shape or (part != same).sum().sum() > 0:
            return estimator, X
    return learner, Z


def _is_fixed(step: Any) -> bool:
    """Whether a transformer learns at most the number of columns from the rows that it is fitted on."""
    from sklearn.preprocessing import PolynomialFeatures
    from sklearn.utils import get_tags

    if isinstance(step, str) or step is None:
        return True
    return isinstance(step, PolynomialFeatures) or not get_tags(step).requires_fit


@dataclass(frozen=True)
class SearchScores:
    """The basis on which a search chooses.

    Attributes
    ----------
    alphas : ndarray of shape (a,)
    scores : ndarray of shape (a,), or (a, v) of each output
    folds : Folds or None
        None for pairs.
    by_fold : list of ndarray of shape (a, n_test, v)
        The predictions of the test rows of each fold.
    judge : RowJudge or PreferenceJudge, or None
        How predictions of folds are scored.
    scored : list of ndarray of shape (a, n_test, v)
        The predictions that were: those that differ by rounding alone are tied where rows are compared.
    """

    alphas: Any
    scores: np.ndarray
    folds: Folds | None = None
    by_fold: list[np.ndarray] = field(default_factory=list)
    judge: RowJudge | PreferenceJudge | None = None
    scored: list[np.ndarray] = field(default_factory=list)


class HeldOut:
    """Held-out predictions of an estimator: factorise once, then get any folds, alphas, pairs and measures.

    Parameters
    ----------
    estimator : estimator
        `RLS` and `RankRLS` by algebra; `RankSVM` along a path of alphas, and anything else, by refitting. Not modified.
    X : as in the estimator's fit
    y : array-like of shape (m,) or (m, v)
    qid : array-like of shape (m,), optional
        Query labels.
    groups : array-like of shape (m,), optional
        Labels of dependent rows (documents, patients): all rows that share a group with a test row leave the training
        with it.
    sample_weight : array-like of shape (m,), optional
        Weights of the rows in training, as in the fit of `RLS`, `RankRLS` and `RankSVM`; scores do not use them.
    event : array-like of bool, shape (m,), optional
        Where y holds censored times, as in the fit of `RankRLS`; the concordance is then the C-index. A structured y
        holds both.
    verbose : int, default=0
        Count the folds on standard error.

    Attributes
    ----------
    n_rows : int
    problem : object
        The validated data with what has been factorised so far.

    Notes
    -----
    The factorisation is made on first use. One alpha takes a Cholesky factorisation; several take one that serves all
    alphas, which is used from then on. Predictions are identical to refitting; with iterations (solver "cg", or "auto"
    where no square matrix fits or would take much longer) they agree to within 1e-4.

    Examples
    --------
    >>> import numpy as np
    >>> from preflearn import RankRLS
    >>> from preflearn.model_selection import HeldOut
    >>> X = np.random.default_rng(0).normal(size=(60, 3))
    >>> y, qid = X @ [1.0, -2.0, 0.5], np.repeat(np.arange(6), 10)
    >>> held_out = HeldOut(RankRLS(kernel="rbf"), X, y, qid=qid)
    >>> held_out
    HeldOut(RankRLS(kernel='rbf'), 60 rows in 6 queries, not factorised yet)
    >>> held_out.predict("leave-query-out", [0.1, 1.0, 10.0]).shape
    (3, 60)
    >>> held_out.score("kendall_tau", cv=3, alphas=[0.1, 1.0]).round(1)
    array([1. , 0.9])
    """

    def __init__(
        self, estimator, X, y, *, qid=None, groups=None, sample_weight=None, event=None, verbose=0
    ) -> None:
        self.estimator = estimator
        self.problem = read_problem(estimator, X, y, qid, sample_weight, groups, event)
        self.verbose = verbose
        self._X, self._qid, self._groups = X, qid, groups

    @property
    def n_rows(self) -> int:
        return self.problem.n_rows

    @cached_property
    def _queries(self) -> Groups:
        return encode_queries(self._qid, self.n_rows)

    def __repr__(self) -> str:
        n_queries = self._queries.n_groups
        rows = f"{self.n_rows} rows" + (f" in {n_queries} queries" if n_queries > 1 else "")
        return f"HeldOut({self.estimator!r}, {rows}, {self.problem.how})"

    @classmethod
    def of_pairs(
        cls, estimator, X, pairs, *, magnitude=None, weight=None, groups=None, verbose=0
    ) -> HeldOutPreferences:
        """Held-out preferences of an estimator with ``fit_pairs``.

        Parameters
        ----------
        estimator : RankRLS, RankSVM or any estimator with fit_pairs
        X, pairs, magnitude, weight : as in fit_pairs
        groups : array-like of shape (l,), optional
            Label of each preference (a judge, a session): all preferences of a group are held out together.
        verbose : int, default=0

        Returns
        -------
        HeldOutPreferences

        Examples
        --------
        >>> from preflearn import RankRLS
        >>> from preflearn.model_selection import HeldOut
        >>> pairs = [[1, 0], [2, 1], [3, 2]]
        >>> held_out = HeldOut.of_pairs(RankRLS(), [[0.0], [1.0], [2.0], [3.0]], pairs)
        >>> held_out.score(alphas=[0.1, 1.0])
        array([1., 1.])
        """
        return HeldOutPreferences(
            estimator, X, pairs, magnitude=magnitude, weight=weight, groups=groups, verbose=verbose
        )

    def predict(self, cv=None, alphas=None) -> np.ndarray:
        """For each row the prediction of the model trained without its fold, at every alpha.

        Parameters
        ----------
        cv : str, int, splitter, iterable or None, default=None
            As in `cross_val_predict`. None is leave-query-out with qid, else ten folds, of whole groups with groups,
            or leave-one-out for a regressor.
        alphas : None, "auto", float or sequence of float
            None is the alpha of the estimator.

        Returns
        -------
        ndarray of shape (n_alphas, m), or (n_alphas, m, v) for v outputs
            The mean where a row is in several folds, NaN where it is in none.
        """
        folds = self._folds(cv)
        grid = self._grid_for(folds, alphas)
        return self.collect(SearchScores(grid, np.empty(0), folds, self._predictions(folds, grid)))

    def score(self, scoring=None, cv=None, alphas=None) -> np.ndarray:
        """The score of the held-out predictions at every alpha; greater is better.

        Parameters
        ----------
        scoring : str, scorer, callable or None, default=None
            As in `RankRLSCV`; None is the concordance, or R² for a regressor.
        cv : as in predict, or "leave-pair-out"
            The share of pairs ordered as y is, each by a model trained without its two rows.
        alphas : as in predict

        Returns
        -------
        ndarray of shape (n_alphas,)
        """
        return self.evaluate(scoring, cv, alphas).scores

    def evaluate(self, scoring=None, cv=None, alphas=None, *, per_output=False) -> SearchScores:
        """Scores and predictions from one pass over the folds.

        Parameters
        ----------
        scoring, cv, alphas : as in score
        per_output : bool, default=False
            Score each output by itself.

        Returns
        -------
        SearchScores
        """
        if is_pairs(cv):
            return self._evaluate_pairs(scoring, alphas)
        measure = self._scoring(scoring)
        folds = self._folds(cv)
        pooled = is_regressor(self.estimator) and self.problem.comparable_across_folds
        groups = None if self._groups is None else encode_groups(self._groups, self.n_rows)
        judge = RowJudge(measure, folds, self._queries, self._truth, pooled, groups)
        _ = judge.comparable  # refuses before any work
        grid = self._grid_for(folds, alphas)
        predictions = self._predictions(folds, grid)
        to_score = predictions
        if measure.compares_rows:
            to_score = self.problem.in_order(predictions, folds, grid, pooled=pooled)
        scores = judge.score(to_score)
        if per_output:
            outputs = range(self.problem.scores.shape[1])
            scores = np.stack(
                [judge.of_output(k).score([f[:, :, [k]] for f in to_score]) for k in outputs], axis=1
            )
        return SearchScores(grid, scores, folds, predictions, judge, to_score)

    def in_folds(self, found: SearchScores, scoring=None) -> SearchScores:
        """An evaluation over folds, whose predictions can be scored part by part: of pairs, ten folds instead."""
        if found.judge is not None:
            return found
        cv = None if self._groups is None else min(10, encode_groups(self._groups, self.n_rows).n_groups)
        return self.evaluate(scoring, cv, found.alphas)

    def collect(self, found: SearchScores) -> Any:
        """The predictions of an evaluation over folds, one for each row as `predict` gives them."""
        assert found.folds is not None
        out = found.folds.collect(found.by_fold, self.n_rows)
        return self.problem.at_home(out[:, :, 0] if self.problem.single else out)

    def pairs(self, alphas=None, *, pairs=None) -> tuple[np.ndarray, np.ndarray]:
        """Predictions for both rows of each pair by the model trained without the two, at every alpha.

        Parameters
        ----------
        alphas : as in predict
        pairs : int array of shape (p, 2), optional
            By default all pairs i < j with different y; of several outputs, those that differ in at least one; with
            censored times, those of which one row outlived the other.

        Returns
        -------
        pairs : ndarray of shape (p, 2)
        predictions : ndarray of shape (n_alphas, p, 2), or (n_alphas, p, 2, v) for v outputs

        Notes
        -----
        All pairs cost O(m² v) for an alpha, besides one factorisation for all of them and, with the full kernel, a
        product of an m × m matrix with itself for each.
        """
        self._scores_of_pairs()
        alphas = self._grid_for_pairs(alphas)
        pairs = pairs_to_order(self.problem) if pairs is None else read_pairs(as_host(pairs), self.n_rows)
        found = self.problem.predict_pairs(pairs, alphas, self._groups, self.verbose)
        found = found[:, :, :, 0] if self.problem.single else found
        return self.problem.at_home(pairs), self.problem.at_home(found)

    def tally(self, alphas=None) -> list[PairTally]:
        """For each alpha all pairs with different y, and how many are ordered as y is, without an array of pairs.

        Parameters
        ----------
        alphas : as in predict

        Returns
        -------
        list of PairTally
        """
        scores = self._scores_of_pairs()
        if scores.shape[1] != 1:
            raise ValueError(
                f"Pairs are counted by one score per row: found y with {scores.shape[1]} columns. Count each column "
                "separately, or use leave_pair_out for the predictions of all."
            )
        return self.problem.tally_pairs(self._grid_for_pairs(alphas), self._groups, self.verbose)

    def for_order(self, *, across_folds=False) -> HeldOut:
        """The same, for predictions that are only compared with each other.

        Rows of one fold that differ only by rounding get equal predictions, and what all predictions of a fold have in
        common (an intercept) may be left out, so that small differences are not lost in it.

        Parameters
        ----------
        across_folds : bool, default=False
            Whether predictions of different folds are compared too; then nothing is left out.

        Returns
        -------
        HeldOut
        """
        other = copy(self)
        other.problem = self.problem.for_order(across_folds=across_folds)
        return other

    def with_targets(self, y) -> HeldOut:
        """The same rows with other targets; the factorisation is used again where it does not depend on them.

        Parameters
        ----------
        y : array-like of shape (m,) or (m, v)

        Returns
        -------
        HeldOut
        """
        other = copy(self)
        other.problem = self.problem.with_targets(y)
        return other

    def alphas(self, alphas="auto") -> Any:
        """The grid that ``alphas`` stands for.

        Parameters
        ----------
        alphas : None, "auto", float or sequence of float
            None is the alpha of the estimator; "auto" places a grid by the data.

        Returns
        -------
        ndarray of shape (n_alphas,), or [None] for an estimator without alpha
        """
        return self.problem.read_alphas(alphas)

    # What the methods share

    def _grid_for(self, folds: Folds, alphas: Any) -> Any:
        """The grid, after announcing what will be held out at its alphas."""
        self.problem.expect(folds.leaving, alphas, verbose=self.verbose)
        return self.alphas(alphas)

    def _grid_for_pairs(self, alphas: Any) -> Any:
        self.problem.expect_pairs(alphas, verbose=self.verbose)
        return self.alphas(alphas)

    def _folds(self, cv: Any) -> Folds:
        queries = None if self._qid is None else self._queries
        if cv is None:
            regression = is_regressor(self.estimator)
            cv = default_cv(self.n_rows, qid=queries, groups=self._groups, regression=regression)
        y = None
        if hasattr(cv, "split"):
            y = self.problem.scores[:, 0] if self.problem.single else self.problem.scores
        # A splitter receives the labels as they were given.
        qid = queries if isinstance(cv, str) else self._qid
        return read_folds(cv, self._X, y, self.n_rows, qid=qid, groups=self._groups)

    def _predictions(self, folds: Folds, alphas: Sequence[float]) -> list[np.ndarray]:
        counter = Counter("HeldOut", len(folds.tests), "folds", self.verbose)
        return self.problem.predict_folds(folds, alphas, counter)  # type: ignore[arg-type]

    def _evaluate_pairs(self, scoring: Any, alphas: Any) -> SearchScores:
        """The leave-pair-out concordance of each alpha."""
        if self._queries.n_groups > 1:
            raise ValueError(
                "cv='leave-pair-out' is for a global ranking: with qid use cv='leave-query-out'."
            )
        off = read_pair_scoring(scoring)
        grid = self._grid_for_pairs(alphas)
        return SearchScores(grid, np.array([tally.share for tally in self.tally(grid)]) - off)

    def fold_scores(self, found: SearchScores, scoring=None) -> np.ndarray:
        """The score of each fold separately.

        Parameters
        ----------
        found : SearchScores
            Of this object, over folds.
        scoring : as in score

        Returns
        -------
        ndarray of shape (n_alphas, n_folds)
            NaN where it is not defined, as a concordance of tied rows.
        """
        assert found.folds is not None
        measure = self._scoring(scoring)
        values = np.full((len(found.alphas), len(found.by_fold)), np.nan)
        for number, (test, predictions) in enumerate(zip(found.folds.tests, found.by_fold, strict=True)):
            within = encode_queries(self._queries.codes[test], test.shape[0])
            for k, f in enumerate(predictions):
                with contextlib.suppress(ValueError):
                    values[k, number] = measure.measure(self._truth[test], f, within)
        return values

    def _scoring(self, scoring: Any) -> Scoring:
        found = read_scoring(scoring, "r2" if is_regressor(self.estimator) else "concordance")
        return found if self.problem.events is None else found.of_times()

    @property
    def _truth(self) -> np.ndarray:
        """What predictions are scored by: y, and where it holds censored times a second column, the events."""
        scores, events = self.problem.scores, self.problem.events
        return scores if events is None else np.column_stack([scores, events])

    def _scores_of_pairs(self) -> np.ndarray:
        scores = self.problem.scores
        if not np.isfinite(scores).all():
            raise ValueError("y contains NaN or infinity.")
        if self.n_rows < 4:
            raise ValueError(
                f"leave_pair_out needs at least four rows, two to hold out and two to train on: found {self.n_rows}."
            )
        return scores


def read_pair_scoring(scoring: Any) -> float:
    """What is subtracted from the share of pairs in the right order: 0 for the concordance, 1 for the negated error."""
    found = read_scoring(scoring).scorer
    name = None if found is None else found.metric_name
    if name in ("concordance", "auc"):
        return 0.0
    if name == "disagreement_error":
        return 1.0
    raise ValueError(
        f"Held-out pairs are scored by the share in the right order, and scoring={scoring!r} is another measure: leave "
        "scoring out, or use 'concordance', 'auc' or 'neg_disagreement_error'."
    )


class HeldOutPreferences:
    """Held-out preferences of an estimator: factorise once, then get any sets of preferences and alphas.

    Made by `HeldOut.of_pairs`, which describes the parameters.

    Attributes
    ----------
    n_pairs : int

    Notes
    -----
    Rows and basis vectors stay in the training; only preferences leave. `RankRLS` by algebra in the cheapest of the
    space of the pairs (l × l), of the distinct rows (m × m) and of the features or basis vectors (n × n), O(k²) times
    that size for a set of k preferences; `RankSVM` along a path of alphas; others by refitting.
    """

    def __init__(self, estimator, X, pairs, *, magnitude=None, weight=None, groups=None, verbose=0) -> None:
        if not hasattr(estimator, "fit_pairs"):
            raise TypeError(
                f"Preferences are held out of an estimator with fit_pairs: found {type(estimator).__name__}."
            )
        self.estimator, self.verbose = estimator, verbose
        self.pairs = read_pairs(as_host(pairs), n_items(X))
        self.n_pairs = self.pairs.shape[0]
        self._magnitude = read_per_pair(magnitude, self.n_pairs, "magnitude")
        self._weight = read_per_pair(weight, self.n_pairs, "weight", positive=True)
        self._X, self._groups = X, groups
        self._problem: Problem | None = None
        self._kept: dict[str, PreferenceRoutine | None] = {}
        if has_closed_form(estimator):
            estimator._refuse_score_options()
            problem = Problem.read(clone(estimator), X, np.zeros(n_items(X)), None)
            self._problem, self._place = problem.of_distinct_rows()

    def __repr__(self) -> str:
        return f"HeldOutPreferences({self.estimator!r}, {self.n_pairs} preferences)"

    def preferences(self, cv=None, alphas=None) -> np.ndarray:
        """For each preference the predicted difference by the model trained without its set, at every alpha.

        Parameters
        ----------
        cv : "leave-preference-out", "leave-group-out", int, splitter, iterable or None, default=None
            Sets of preferences that are held out together. None is each separately, or each group.
        alphas : None, "auto", float or sequence of float
            None is the alpha of the estimator.

        Returns
        -------
        ndarray of shape (n_alphas, l)
            f(better) - f(worse): positive when the held-out preference is predicted correctly. The mean where a
            preference is in several sets, NaN where it is in none.
        """
        folds = read_preference_folds(cv, self.n_pairs, groups=self._groups)
        self._expect(folds, alphas)
        grid = self.alphas(alphas)
        return self.collect(SearchScores(grid, np.empty(0), folds, self._predictions(folds, grid)))

    def score(self, scoring=None, cv=None, alphas=None) -> np.ndarray:
        """The share of held-out preferences in the right order at every alpha, ties counting as half.

        Parameters
        ----------
        scoring : str, scorer, callable or None, default=None
            The concordance, or its negated error; a regression measure or a function compares the predicted
            differences with the magnitudes (1 by default).
        cv, alphas : as in preferences

        Returns
        -------
        ndarray of shape (n_alphas,)
        """
        return self.evaluate(scoring, cv, alphas).scores

    def evaluate(self, scoring=None, cv=None, alphas=None) -> SearchScores:
        """Scores and predicted differences from one pass over the sets; the arguments are those of `score`."""
        measure = read_scoring(scoring)
        off = read_pair_scoring(scoring) if measure.compares_rows else None
        folds = read_preference_folds(cv, self.n_pairs, groups=self._groups)
        self._expect(folds, alphas)
        grid = self.alphas(alphas)
        by_fold = self._predictions(folds, grid)
        truth = np.ones(self.n_pairs) if self._magnitude is None else self._magnitude
        groups = None if self._groups is None else encode_groups(self._groups, self.n_pairs)
        judge = PreferenceJudge(measure, folds, truth, groups, off)
        scored = by_fold
        if off is not None:  # differences that are rounding are ties
            least = np.array([self._rounding(truth, alpha) for alpha in grid])[:, None, None]
            scored = [np.where(np.abs(one) <= least, 0.0, one) for one in by_fold]
        return SearchScores(grid, judge.score(scored), folds, by_fold, judge, scored)

    def in_folds(self, found: SearchScores, scoring=None) -> SearchScores:
        """The evaluation itself, which is always over folds; for `HeldOut` it may not be."""
        return found

    def _rounding(self, truth: np.ndarray, alpha: float) -> float:
        """Differences that are rounding of the algebra; zero where the estimator is refitted."""
        if not any(self._kept.values()):
            return 0.0
        size = max(routine.size for routine in self._kept.values() if routine is not None)
        return rounding_of(np.concatenate([truth, -truth]), size, alpha)

    def collect(self, found: SearchScores) -> np.ndarray:
        """The predicted differences of an evaluation, one for each preference as `preferences` gives them."""
        assert found.folds is not None
        return found.folds.collect(found.by_fold, self.n_pairs)[:, :, 0]

    def alphas(self, alphas="auto") -> Any:
        """The grid that ``alphas`` stands for, as in `HeldOut.alphas`."""
        if alphas is None:
            own = getattr(self.estimator, "alpha", None)
            return [None if own is None else read_alpha(own)]
        with_alpha(self.estimator, 1.0)  # refuses an estimator that has none
        return read_grid(alphas, self._automatic_alphas)

    def _automatic_alphas(self) -> np.ndarray:
        if isinstance(self.estimator, PathLearner):
            model, representation = self._represented
            return model._automatic_alphas(representation, [self._listed(slice(None))])
        routine = self._routine(many_alphas=True)
        if routine is None:
            return BLIND_GRID
        return auto_grid(routine.largest_eigenvalue, iterated=routine.iterates)

    def _routine(self, *, many_alphas: bool) -> PreferenceRoutine | None:
        """The routine that holds preferences out by algebra; None where the estimator has to be refitted."""
        if self._problem is None:
            return None
        kind = "path" if many_alphas or "path" in self._kept else "one"
        # Iterations have nothing to keep, and a square matrix may be better for the present request.
        kept = self._kept.get(kind)
        if kind not in self._kept or (kept is not None and kept.iterates):
            pairs = self._place[self.pairs]
            task = PreferenceComparisons(self._problem.n_rows, pairs, self._magnitude, self._weight)
            self._kept[kind] = self._problem.hold_out_preferences(task, many_alphas=many_alphas)
        return self._kept[kind]

    def _expect(self, folds: Folds, alphas: Any) -> None:
        """Announce what will be held out: the route is chosen for that."""
        if self._problem is not None:
            self._problem.expect(folds.leaving, alphas, n_pairs=self.n_pairs, verbose=self.verbose)

    @cached_property
    def _represented(self) -> tuple[Any, Any]:
        """A learner along a path, and the features of all rows, which stay whichever preferences leave."""
        model = clone(self.estimator)
        model._read_options()
        kernel = model._read_kernel()
        return model, model._represent(read_items(model, self._X, kernel, reset=True), kernel)

    def _listed(self, which: Any) -> ListedPairs:
        weight = None if self._weight is None else self._weight[which]
        return ListedPairs(n_items(self._X), self.pairs[which], weight)

    def _predictions(self, folds: Folds, alphas: Sequence[Any]) -> list[np.ndarray]:
        """The predicted differences of each set, shape (n_alphas, n_set, 1)."""
        counter = Counter("HeldOut", len(folds.tests), "training sets", self.verbose)
        routine = self._routine(many_alphas=len(alphas) > 1)
        if routine is not None:
            found = routine.predict_without_preferences(folds.leaving, alphas, on_fold=counter)
            routine.warn_unless_converged()
        else:
            found = self._refitted(folds, alphas, counter)
        return folds.of_tests([one[:, :, None] for one in found], self.n_pairs)

    def _refitted(self, folds: Folds, alphas: Sequence[Any], counter: Counter) -> list[np.ndarray]:
        along_path = isinstance(self.estimator, PathLearner)
        takes_magnitude = not along_path and "magnitude" in signature(self.estimator.fit_pairs).parameters
        if self._magnitude is not None and not takes_magnitude:
            raise ValueError(
                f"{type(self.estimator).__name__}.fit_pairs does not take magnitude: leave it out, or use RankRLS."
            )
        predict = self._along_path if along_path else self._one_by_one
        found = []
        for number, left in enumerate(folds.leaving):
            f = predict(rows_outside(self.n_pairs, left), alphas)
            found.append(f[:, self.pairs[left, 0]] - f[:, self.pairs[left, 1]])
            counter(number + 1)
        return found

    def _along_path(self, rest: np.ndarray, alphas: Sequence[Any]) -> np.ndarray:
        model, representation = self._represented
        return model._function_path(representation, self._listed(rest), np.asarray(alphas, dtype=float))

    def _one_by_one(self, rest: np.ndarray, alphas: Sequence[Any]) -> np.ndarray:
        extra = {
            name: values[rest]
            for name, values in (("magnitude", self._magnitude), ("weight", self._weight))
            if values is not None
        }
        models = [clone(with_alpha(self.estimator, alpha)) for alpha in alphas]
        return np.stack(
            [model.fit_pairs(self._X, self.pairs[rest], **extra).predict(self._X) for model in models]
        )
