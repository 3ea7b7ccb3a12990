"""RLSCV and RankRLSCV: alpha, and kernel parameters, chosen by exact cross-validation without refitting.

A search is a learner with a grid: hold out (`HeldOut`), score, choose, then train on all rows. `AlphaSearch` is what
all of them share; a subclass names its learner and its defaults.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any, Self

import numpy as np
from sklearn.base import MultiOutputMixin, RegressorMixin, is_regressor
from sklearn.model_selection import ParameterGrid

from ..comparisons.inputs import named_cures, read_pairs
from ..kernels.functions import Kernel, n_items
from ..model_selection._choice import choose, read_scoring, warn_at_edge
from ..model_selection._folds import is_pairs
from ..model_selection._held_out import HeldOut, HeldOutPreferences, SearchScores
from ..model_selection._learner import EstimatingLearner, SearchingLearner
from ..model_selection._nested import NestedChoice
from ..numerics.namespace import Home, as_host, is_device_array
from ..plots import on_axes
from .base import KernelModel, RankerMixin, SquaredLossModel
from .rankrls import RankRLS
from .rls import RLS

# What a search sets besides its grid and scores; stale values of another way of fitting are removed.
_OPTIONAL = (
    "best_kernel_",
    "stream_",
    "scoring_",
    "fold_scores_",
    "loss_scores_",
    "cv_predictions_",
    "gamma_",
)


class AlphaSearch(EstimatingLearner, KernelModel, SearchingLearner):
    """What the searches over alpha share; subclasses name their learner."""

    _learner: type[Any]
    alphas: Any
    cv: Any
    scoring: Any
    keep_predictions: bool
    alpha_per_output = False
    alpha_: Any
    alphas_: Any
    cv_scores_: Any

    def _search(
        self, hold_out: Callable[[Any], Any], cv: Any, predict: Callable[[Any], Any]
    ) -> tuple[Any, SearchScores]:
        """Choose alpha (and kernel parameters).

        Parameters
        ----------
        hold_out : callable
            Makes the held-out object of a learner.
        cv : as in HeldOut.score
        predict : callable
            What a fitted model predicts for what is held out.

        Returns
        -------
        held : HeldOut, HeldOutPreferences or None
            Of the chosen setting; None where several kernels were searched.
        found : SearchScores
        """
        cv = list(cv) if isinstance(cv, Iterator) else cv  # it is read once for each kernel
        for name in _OPTIONAL:
            self.__dict__.pop(name, None)
        if is_pairs(self.cv) and self.keep_predictions:
            raise ValueError(
                "keep_predictions=True keeps one prediction per row, and cv='leave-pair-out' makes one for each pair: "
                "use HeldOut(...).pairs(alphas) to get them."
            )
        if is_pairs(self.cv) and self.alpha_per_output:
            raise ValueError(
                "cv='leave-pair-out' scores one output: use alpha_per_output=False, or a number of folds."
            )
        best: tuple[dict[str, Any], SearchScores, np.ndarray, float, Any] | None = None
        options = {"per_output": True} if self.alpha_per_output else {}
        grid = getattr(self, "kernel_grid", None)
        predictions, tried, nested = None, [], None
        for setting in ParameterGrid(grid) if grid else [{}]:
            held = hold_out(self._plain(setting))
            found = held.evaluate(self.scoring, cv, self.alphas, **options)
            columns = found.scores.reshape(len(found.alphas), -1).T
            choice = np.array([choose(column, found.alphas)[0] for column in columns])
            score = float(np.mean([column[at] for column, at in zip(columns, choice, strict=True)]))
            judged = held.in_folds(found, self.scoring)
            nested = nested or NestedChoice(judged.judge, **options)
            nested.see(judged.alphas, judged.scored)
            tried.append({"kernel": setting, "alphas": found.alphas, "cv_scores": found.scores})
            if best is None or score > best[3]:
                best = (setting, found, choice, score, None if grid else held)  # one factorisation at a time
                predictions = held.collect(found) if self.keep_predictions else None
        assert best is not None
        self.best_kernel_, found, choice, self.best_score_, held = best
        self.alphas_, self.cv_scores_ = found.alphas, found.scores
        self.kernel_scores_ = tried if grid else None
        self.alpha_ = self.alphas_[choice] if self.alpha_per_output else float(self.alphas_[choice[0]])
        if self.keep_predictions:
            self.cv_predictions_ = predictions
        assert nested is not None
        self._keep_choice(nested.estimate, predict)
        for at, column in dict(
            zip(choice.tolist(), self.cv_scores_.reshape(len(found.alphas), -1).T)
        ).items():
            warn_at_edge(self.alphas_, column, at)
        return held, found

    def _search_rows(
        self, X: Any, y: Any, qid: Any, groups: Any, sample_weight: Any = None, event: Any = None
    ) -> tuple[HeldOut, SearchScores]:
        options = {"qid": qid, "groups": groups, "sample_weight": sample_weight, "event": event}
        if self.alpha_per_output and (event is not None or getattr(getattr(y, "dtype", None), "names", None)):
            raise ValueError(
                "alpha_per_output=True is for several outputs, and event goes with one: leave one of them out."
            )
        if self.alpha_per_output and is_device_array(X):
            raise ValueError(
                "alpha_per_output=True is for NumPy and SciPy arrays: found an array of a device."
            )

        def hold_out(learner: Any) -> HeldOut:
            return HeldOut(learner, X, y, **options, verbose=self.verbose)

        return self._search(
            hold_out, self._cv(n_items(X), qid, groups), lambda model: KernelModel.predict(model, X)
        )

    def _search_pairs(self, X: Any, pairs: Any, **options: Any) -> None:
        if self.alpha_per_output:
            raise ValueError(
                "Preferences are one output, so alpha_per_output=True would be ignored: leave it out."
            )

        def hold_out(learner: Any) -> HeldOutPreferences:
            return HeldOut.of_pairs(learner, X, pairs, verbose=self.verbose, **options)

        def differences(model: Any) -> Any:
            f, ends = as_host(model.predict(X)), read_pairs(as_host(pairs), n_items(X))
            return f[ends[:, 0]] - f[ends[:, 1]]

        self._search(hold_out, self.cv, differences)

    def _train_chosen(self, held: HeldOut | None, X: Any, y: Any, **options: Any) -> None:
        """Train on all rows at the chosen alpha: on what the search has read, where it tried one kernel."""
        if held is None:
            held = HeldOut(self._plain(self.best_kernel_), X, y, **options)
        problem: Any = held.problem
        problem.release()
        self._adopt(problem.estimator.set_params(alpha=self.alpha_)._fit_problem(problem, self.alpha_))

    def _cv(self, n_rows: int, qid: Any, groups: Any) -> Any:
        """What cv=None stands for; None leaves it to `HeldOut`."""
        return self.cv

    def _plain(self, setting: dict[str, Any], alpha: float = 1.0):
        """The learner that is searched over, with one alpha."""
        names = self._learner().get_params(deep=False)
        params = {name: value for name, value in self.get_params(deep=False).items() if name in names}
        return self._learner(**{**params, **setting, "alpha": alpha})

    def _check_scale(self) -> None:
        default = "r2" if is_regressor(self) else "concordance"
        if read_scoring(self.scoring, default).compares_rows:
            warnings.warn(
                "Standard deviations are those of the chosen alpha, and an alpha that was chosen by the order of rows "
                "may shrink the scores strongly, which does not change their order: use "
                "scoring='neg_mean_squared_error'.",
                UserWarning,
                stacklevel=5,
            )

    def _at_alpha(self, alpha: float) -> Any:
        return self._plain(getattr(self, "best_kernel_", {}), alpha)

    def _read_kernel(self) -> Kernel:
        """The kernel with the parameters that the search chose, once they are known."""
        names = ("kernel", "gamma", "degree", "coef0", "kernel_params")
        chosen = getattr(self, "best_kernel_", {})
        return self._with_width(Kernel(*(chosen.get(name, getattr(self, name)) for name in names)))

    def _adopt(self, model: KernelModel) -> None:
        """Take over what the learner has learned at the chosen alpha."""
        for name, value in vars(model).items():
            if name.endswith("_") and not name.endswith("__"):
                setattr(self, name, value)
        self.__dict__.pop("_posterior", None)
        if hasattr(model, "_trained_on"):
            self._trained_on = model._trained_on
        learned = self.coef_ if hasattr(self, "coef_") else self.dual_coef_
        if is_device_array(learned):
            home = Home.of(learned)
            self.alphas_, self.cv_scores_ = home.put_as_is(self.alphas_), home.put_as_is(self.cv_scores_)

    @on_axes
    def plot_cv_scores(self, ax: Any) -> None:
        """The cross-validated score over alpha, with the chosen one marked."""
        from ..report.displays import AlphaPathDisplay

        AlphaPathDisplay.from_estimator(self, ax=ax)


class RankRLSCV(RankerMixin, AlphaSearch, SquaredLossModel):
    """`RankRLS` with alpha chosen by exact cross-validation, in about the time of one eigendecomposition.

    Parameters
    ----------
    alphas : "auto" or sequence of float, default="auto"
        The grid; "auto" takes 31 powers of two placed by the spectrum of the kernel.
    cv : str, int, splitter, iterable or None, default=None
        As in `preflearn.model_selection.cross_val_predict`, and ``"leave-pair-out"`` for a global ranking. None is
        leave-query-out with qid, else ten folds, of whole groups with groups.
    scoring : str, callable or None, default=None
        A name of `preflearn.metrics.get_scorer` ("ndcg@10"), a scorer, or a function of (y, scores, qid) where
        greater is better; None is the concordance. Rows are compared only where one model predicts them: inside the
        query and the fold.
    keep_predictions : bool, default=False
        Keep the held-out predictions in ``cv_predictions_``.
    kernel_grid : dict or list of dict, optional
        Kernel parameters to search as well, for example ``{"gamma": [0.01, 0.1, 1.0]}``.
    alpha_per_output : bool, default=False
        Choose an alpha for each of several outputs by its own scores, instead of one for all; the factorisation is
        shared. Not for pairs, preferences and streams.
    kernel, gamma, degree, coef0, kernel_params, n_basis, basis, random_state, cost, ties, weighting, solver, \
    tol, max_iter, verbose : as in RankRLS

    Attributes
    ----------
    alpha_ : float, or ndarray of shape (v,) with `alpha_per_output`
        The chosen alpha; ties go to the stronger regularisation.
    alphas_, cv_scores_ : ndarray of shape (n_alphas,)
        With `alpha_per_output` the scores have the shape (n_alphas, v).
    best_score_ : float
        The score of the chosen alpha, the largest of `cv_scores_`: what the choice was made by, and on average too high
        as a figure of the model. With `alpha_per_output` the mean over outputs.
    estimate_ : PerformanceEstimate
        How good the model is on new data, with a 95 % interval. The alpha of each fold is chosen by the other folds;
        nothing is trained again. Computed when it is asked for; not part of a saved model.
    cv_predictions_ : ndarray of shape (n_alphas, m) or (n_alphas, m, v)
        With `keep_predictions`: for each row the prediction of the model trained without its fold. After `fit_pairs`,
        the held-out differences, shape (n_alphas, l).
    best_kernel_ : dict
        The chosen kernel parameters, empty without `kernel_grid`.
    kernel_scores_ : list of dict or None
        For each setting of `kernel_grid` its grid and scores.
    Further attributes as in RankRLS, of the model trained on all rows with the chosen alpha.

    Examples
    --------
    >>> import numpy as np
    >>> from preflearn import RankRLSCV
    >>> rng = np.random.default_rng(0)
    >>> X, qid = rng.normal(size=(100, 4)), np.repeat(np.arange(10), 10)
    >>> y = np.sin(X[:, 0]) + 3 * qid + 0.1 * rng.normal(size=100)
    >>> model = RankRLSCV(kernel="rbf").fit(X, y, qid=qid)
    >>> print(model.estimate_)
    concordance 0.8..., 95 % interval 0.8... to 0.9... (10 queries, 100 rows)
      method    nested cross-validation: 10 folds of whole queries, each predicted by a model that was...
    """

    _learner = RankRLS

    def __init__(
        self, alphas="auto", *, cv=None, scoring=None, keep_predictions=False, kernel_grid=None,
        alpha_per_output=False, kernel="linear", gamma=None, degree=3, coef0=1, kernel_params=None, n_basis=None,
        basis="uniform", random_state=None, cost="magnitude", ties="include", weighting="pair", solver="auto",
        tol=None, max_iter=None, verbose=0,
    ) -> None:  # fmt: skip
        super().__init__(kernel, gamma, degree, coef0, kernel_params, n_basis, basis, random_state, verbose)
        self.alphas, self.cv, self.scoring, self.keep_predictions = alphas, cv, scoring, keep_predictions
        self.kernel_grid, self.alpha_per_output = kernel_grid, alpha_per_output
        self.cost, self.ties, self.weighting = cost, ties, weighting
        self.solver, self.tol, self.max_iter = solver, tol, max_iter

    __metadata_request__fit = {"qid": True, "event": True}

    @named_cures
    def fit(self, X, y, *, qid=None, groups=None, event=None, sample_weight=None) -> Self:
        """Choose alpha by held-out predictions, then train on all rows.

        Parameters
        ----------
        X, y, qid, event : as in RankRLS.fit
        groups : array-like of shape (m,), optional
            Rows that share a group are never split between training and test.
        sample_weight : as in RankRLS.fit
            For training; the held-out scores do not use it.

        Returns
        -------
        self
        """
        held, _ = self._search_rows(X, y, qid, groups, sample_weight, event)
        self._train_chosen(held, X, y, qid=qid, event=event, sample_weight=sample_weight)
        return self

    def fit_pairs(self, X, pairs, *, magnitude=None, weight=None, groups=None) -> Self:
        """Choose alpha by held-out preferences, then learn from all of them.

        Parameters
        ----------
        X, pairs, magnitude, weight : as in RankRLS.fit_pairs
        groups : array-like of shape (l,), optional
            Label of each preference (a judge, a session): all preferences of a group are held out together.

        Returns
        -------
        self

        Notes
        -----
        `cv` None is leave-preference-out, or with groups leave-group-out; a number of folds, a splitter and index
        arrays divide the preferences. `scoring` None is the share of held-out preferences in the right order. All
        alphas come from one factorisation.

        Examples
        --------
        >>> import numpy as np
        >>> from preflearn import RankRLSCV
        >>> rng = np.random.default_rng(0)
        >>> X, pairs = rng.normal(size=(30, 2)), rng.permutation(30).reshape(15, 2)
        >>> pairs = np.where((X[pairs] @ [2.0, 1.0] > 0)[:, [0]], pairs, pairs[:, ::-1])
        >>> RankRLSCV([0.1, 1.0, 10.0]).fit_pairs(X, pairs).cv_scores_.shape
        (3,)
        """
        self._search_pairs(X, pairs, magnitude=magnitude, weight=weight, groups=groups)
        model = self._plain(self.best_kernel_, self.alpha_)
        self._adopt(model.fit_pairs(X, pairs, magnitude=magnitude, weight=weight))
        return self

    def fit_stream(self, chunks, *, checkpoint=None, checkpoint_every=None, verbose=None, **reading) -> Self:
        """Choose alpha by cross-validation and train, in one pass over chunks of whole queries.

        One statistic of fixed width is kept for each fold of queries. The model of a fold is trained on the sum of the
        others and tested on its own: the squared error of held-out pairs is a quadratic form in the statistics, so
        every alpha is scored without reading a row again. The folds are exact, as if each had been trained separately.

        Parameters
        ----------
        chunks, checkpoint, checkpoint_every, verbose, **reading
            As in `RankRLS.fit_stream`.

        Returns
        -------
        self

        Notes
        -----
        `cv` must be a number of folds (None is 5). The fold of a query is a hash of its label, so it does not depend on
        the order of the rows or the size of the chunks; without qid it is a hash of the row number. `scoring` None is
        minus the squared error of held-out pairs, averaged over pairs. A ranking measure ("concordance", "ndcg", ...)
        depends on the predictions themselves and takes a second pass, so `chunks` must be something that can be read
        twice. `scoring_` names the measure; `fold_scores_` of shape (n_alphas, n_folds) and `loss_scores_` hold the
        squared errors in any case. Basis vectors of a reduced set leave the model with the fold of their query.

        Examples
        --------
        >>> import numpy as np
        >>> from preflearn import RankRLSCV
        >>> rng = np.random.default_rng(0)
        >>> X, qid = rng.normal(size=(200, 3)), np.repeat(np.arange(20), 10)
        >>> y = X @ [1.0, -2.0, 0.5] + rng.normal(size=200)
        >>> chunks = [(X[k : k + 50], y[k : k + 50], qid[k : k + 50]) for k in range(0, 200, 50)]
        >>> model = RankRLSCV(alphas=[0.1, 1.0, 10.0, 1e4, 1e6]).fit_stream(chunks)
        >>> model.scoring_, model.fold_scores_.shape
        ('neg_mean_squared_pair_error', (5, 5))
        """
        from .streaming.models import search_stream

        options = {"checkpoint": checkpoint, "checkpoint_every": checkpoint_every, "verbose": verbose}
        search_stream(self, chunks, **options, reading=reading)
        return self


class RLSCV(MultiOutputMixin, RegressorMixin, AlphaSearch, SquaredLossModel):
    """`RLS` with alpha chosen by exact leave-one-out, or any folds, in about the time of one eigendecomposition.

    Parameters
    ----------
    alphas : "auto" or sequence of float, default="auto"
        The grid; "auto" takes 31 powers of two placed by the spectrum of the kernel.
    cv : str, int, splitter, iterable or None, default=None
        As in `preflearn.model_selection.cross_val_predict`; None is leave-one-out, or leave-group-out with groups.
    scoring : str, callable or None, default=None
        As in `RankRLSCV`; None is R² over all held-out predictions. Predictions of a regression are on the scale of y:
        rows are compared inside queries across folds.
    keep_predictions : bool, default=False
        Keep the held-out predictions in ``cv_predictions_``.
    kernel_grid : dict or list of dict, optional
        Kernel parameters to search as well.
    alpha_per_output : bool, default=False
        As in `RankRLSCV`: an alpha for each output, chosen by its own scores.
    kernel, gamma, degree, coef0, kernel_params, n_basis, basis, random_state, fit_intercept, solver, tol, max_iter,
    verbose : as in RLS

    Attributes
    ----------
    alpha_, alphas_, cv_scores_, best_score_, estimate_, cv_predictions_, best_kernel_, kernel_scores_ : as in
        RankRLSCV
    Further attributes as in RLS.

    Examples
    --------
    >>> import numpy as np
    >>> from preflearn import RLSCV
    >>> X = np.linspace(0, 6, 40)[:, None]
    >>> bool(RLSCV(kernel="rbf").fit(X, np.sin(X).ravel()).best_score_ > 0.99)
    True
    """

    _learner = RLS

    def __init__(
        self, alphas="auto", *, cv=None, scoring=None, keep_predictions=False, kernel_grid=None,
        alpha_per_output=False, kernel="linear", gamma=None, degree=3, coef0=1, kernel_params=None, n_basis=None,
        basis="uniform", random_state=None, fit_intercept=True, solver="auto", tol=None, max_iter=None, verbose=0,
    ) -> None:  # fmt: skip
        super().__init__(kernel, gamma, degree, coef0, kernel_params, n_basis, basis, random_state, verbose)
        self.alphas, self.cv, self.scoring, self.keep_predictions = alphas, cv, scoring, keep_predictions
        self.kernel_grid, self.alpha_per_output = kernel_grid, alpha_per_output
        self.fit_intercept, self.solver, self.tol, self.max_iter = fit_intercept, solver, tol, max_iter

    # qid says which rows to hold out and compare together, not what is learned.
    __metadata_request__fit = {"qid": True}

    @named_cures
    def fit(self, X, y, *, qid=None, groups=None, sample_weight=None) -> Self:
        """Choose alpha by held-out predictions, then train on all rows.

        Parameters
        ----------
        X, y : as in RLS.fit
        qid : array-like of shape (m,), optional
            Query labels, for folds of whole queries and ranking measures.
        groups, sample_weight : as in RankRLSCV.fit

        Returns
        -------
        self
        """
        held, _ = self._search_rows(X, y, qid, groups, sample_weight)
        self.__dict__.pop("intercept_", None)
        self._train_chosen(held, X, y, sample_weight=sample_weight)
        return self

    score = RLS.score
