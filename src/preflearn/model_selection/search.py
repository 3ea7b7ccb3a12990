"""RLSCV and RankRLSCV: alpha, and kernel parameters, chosen by exact cross-validation without refitting."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.base import MultiOutputMixin, RegressorMixin
from sklearn.model_selection import KFold, ParameterGrid

from ..comparisons import encode_queries
from ..estimators.base import RankerMixin, SquaredLossModel
from ..estimators.rankrls import RankRLS
from ..estimators.rls import RLS
from ..kernels.functions import Kernel
from ..numerics.namespace import Home, is_device_array
from ..solvers.progress import Counter
from .cross_validation import LearningProblem
from .folds import Folds, read_folds
from .pairs import leave_pair_out_tally
from .scoring import compared_within, is_ranking_measure, read_scoring

# The automatic grid: powers of two around the largest eigenvalue of what alpha is added to.
_AUTO_POWERS = np.arange(-27, 4)
# Where only refitting is possible the spectrum is not known.
_BLIND_GRID = 2.0 ** np.arange(-15, 16, 3)


class _AlphaSearch(SquaredLossModel):
    """What the two searches share; subclasses name their learner."""

    _learner: type[SquaredLossModel]
    _default_scoring: str

    def _search(self, X: Any, y: Any, qid: Any, groups: Any) -> None:
        scoring = read_scoring(self._default_scoring if self.scoring is None else self.scoring)
        best = None
        settings = list(ParameterGrid(self.kernel_grid)) if self.kernel_grid else [{}]
        tried = []
        for setting in settings:
            problem = LearningProblem.read(self._plain(setting), X, y, qid)
            problem.to_compare = is_ranking_measure(
                self._default_scoring if self.scoring is None else self.scoring
            )
            folds = None if self.cv == "leave-pair-out" else self._folds(problem, X, y, qid, groups)
            machines = None if folds is None else problem.machines(many_alphas=True)
            alphas = self._grid(problem, machines)
            scores = self._scores(problem, folds, machines, alphas, scoring, (X, y, groups))
            choice = _strongest_of_the_best(alphas, scores)
            tried.append({"kernel": setting, "alphas": alphas, "cv_scores": scores})
            if best is None or scores[choice] > best[2][best[3]]:
                best = (setting, alphas, scores, choice)
        assert best is not None
        self.best_kernel_, self.alphas_, self.cv_scores_, choice = best
        self.kernel_scores_ = tried if self.kernel_grid else None
        self.alpha_, self.best_score_ = float(self.alphas_[choice]), float(self.cv_scores_[choice])
        self._warn_at_the_edge(choice)

    def _plain(self, setting: dict[str, Any], alpha: float = 1.0):
        """The learner that is searched over, with one alpha."""
        names = self._learner().get_params(deep=False)
        params = {name: value for name, value in self.get_params(deep=False).items() if name in names}
        return self._learner(**{**params, **setting, "alpha": alpha})

    def _folds(self, problem: LearningProblem, X, y, qid, groups) -> Folds:
        cv = self.cv
        if cv is None:
            cv = self._default_cv(problem, qid, groups)
        return read_folds(cv, X, problem.scores, problem.n_rows, qid=qid, groups=groups)

    def _default_cv(self, problem: LearningProblem, qid, groups) -> Any:
        raise NotImplementedError

    def _grid(self, problem: LearningProblem, machines) -> np.ndarray:
        if not isinstance(self.alphas, str):
            return _read_alphas(self.alphas)
        if self.alphas != "auto":
            raise ValueError(
                f"alphas must be 'auto' or a sequence of positive numbers: found {self.alphas!r}."
            )
        if machines is None:
            machines = problem.machines(many_alphas=True)
        if any(machine is None for _, machine in machines):
            return _BLIND_GRID
        largest = max(machine.largest_eigenvalue for _, machine in machines)
        return auto_grid(largest)

    def _scores(self, problem, folds, machines, alphas, scoring, data) -> np.ndarray:
        if folds is None:
            return self._pair_scores(problem, alphas, data)
        counter = Counter(type(self).__name__, len(folds.tests), "folds", self.verbose)
        within = self._within(problem, folds)
        self._refuse_single_rows(within)
        predictions = problem.held_out(folds, alphas, counter, machines)
        rows = np.flatnonzero(~np.isnan(predictions[0, :, 0]))
        return np.array([scoring(problem.scores[rows], f[rows], within[rows]) for f in predictions])

    def _refuse_single_rows(self, within: np.ndarray) -> None:
        """A ranking measure has nothing to compare where every row is predicted by a model of its own."""
        scoring = self._default_scoring if self.scoring is None else self.scoring
        if is_ranking_measure(scoring) and np.unique(within).shape[0] == within.shape[0]:
            raise ValueError(
                f"scoring={scoring!r} compares rows of a query that one model predicts, and with "
                f"cv={self.cv!r} no two are held out together. Use cv='leave-query-out' with qid, "
                "cv='leave-pair-out' or a number of folds without, or scoring='neg_mean_squared_error'."
            )

    def _within(self, problem: LearningProblem, folds: Folds) -> np.ndarray:
        return compared_within(folds, problem.queries)

    def _pair_scores(self, problem: LearningProblem, alphas, data) -> np.ndarray:
        """The leave-pair-out concordance of each alpha."""
        X, y, groups = data
        if problem.queries.n_groups > 1:
            raise ValueError(
                "cv='leave-pair-out' is for a global ranking: with qid use cv='leave-query-out'."
            )
        if not problem.single:
            raise ValueError("cv='leave-pair-out' takes one score per row.")
        if self.scoring not in (None, "concordance", "auc"):
            raise ValueError(
                "cv='leave-pair-out' measures the concordance of held-out pairs: leave scoring out."
            )
        y = problem.scores[:, 0]
        tallies = [
            leave_pair_out_tally(problem.estimator.set_params(alpha=alpha), X, y, groups=groups)
            for alpha in alphas
        ]
        return np.array([tally.share for tally in tallies])

    def _warn_at_the_edge(self, choice: int) -> None:
        n = self.alphas_.shape[0]
        order = np.argsort(self.alphas_)
        place = int(np.flatnonzero(order == choice)[0])
        if n < 2 or 0 < place < n - 1 or np.ptp(self.cv_scores_) == 0:
            return
        end, direction = ("smallest", "smaller") if place == 0 else ("largest", "larger")
        warnings.warn(
            f"The best alpha, {self.alpha_:.3g}, is the {end} of the grid: try {direction} ones "
            "(alphas=...) to be sure.",
            UserWarning,
            stacklevel=4,
        )

    def _read_kernel(self) -> Kernel:
        """The kernel with the parameters that the search chose, once there are any."""
        chosen = {**self.get_params(deep=False), **getattr(self, "best_kernel_", {})}
        return Kernel(*(chosen[name] for name in ("kernel", "gamma", "degree", "coef0", "kernel_params")))

    def _adopt(self, model: SquaredLossModel) -> None:
        """Take over what the learner has learned at the chosen alpha."""
        for name, value in vars(model).items():
            if name.endswith("_") and not name.endswith("__"):
                setattr(self, name, value)
        learned = self.coef_ if hasattr(self, "coef_") else self.dual_coef_
        if is_device_array(learned):
            home = Home.of(learned)
            self.alphas_, self.cv_scores_ = home.put_as_is(self.alphas_), home.put_as_is(self.cv_scores_)

    def plot_cv_scores(self, ax=None):
        """The cross-validated score over alpha, with the chosen one marked.

        Parameters
        ----------
        ax : matplotlib axes, optional

        Returns
        -------
        matplotlib axes
        """
        from ..report.displays import AlphaPathDisplay

        return AlphaPathDisplay.from_estimator(self).plot(ax).ax_


class RankRLSCV(RankerMixin, _AlphaSearch):
    """`RankRLS` with alpha chosen by exact cross-validation, in about the time of one eigen decomposition.

    Parameters
    ----------
    alphas : "auto" or sequence of float, default="auto"
        The grid; "auto" takes 31 powers of two placed by the spectrum of the kernel.
    cv : str, int, splitter, iterable or None, default=None
        As in `preflearn.model_selection.cross_val_predict`, and ``"leave-pair-out"`` for a global ranking. None is
        leave-query-out with qid, leave-group-out with groups, else ten folds.
    scoring : str, callable or None, default=None
        A metric's name, or a function of (y, scores, qid) where greater is better; None is the concordance. Rows are
        compared only where one model predicts them: inside the query and the fold.
    kernel_grid : dict or list of dict, optional
        Kernel parameters to search as well, for example ``{"gamma": [0.01, 0.1, 1.0]}``.
    kernel, gamma, degree, coef0, kernel_params, n_basis, basis, random_state, cost, ties, weighting, solver,
    tol, max_iter,
    verbose : as in RankRLS

    Attributes
    ----------
    alpha_ : float
        The chosen alpha; ties go to the stronger regularisation.
    alphas_, cv_scores_ : ndarray of shape (n_alphas,)
    best_score_ : float
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
    >>> bool(model.best_score_ > 0.8)
    True
    """

    _learner = RankRLS
    _default_scoring = "concordance"

    def __init__(
        self,
        alphas="auto",
        *,
        cv=None,
        scoring=None,
        kernel_grid=None,
        kernel="linear",
        gamma=None,
        degree=3,
        coef0=1,
        kernel_params=None,
        n_basis=None,
        basis="uniform",
        random_state=None,
        cost="magnitude",
        ties="include",
        weighting="pair",
        solver="auto",
        tol=None,
        max_iter=None,
        verbose=0,
    ):
        self.alphas = alphas
        self.cv = cv
        self.scoring = scoring
        self.kernel_grid = kernel_grid
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.kernel_params = kernel_params
        self.n_basis = n_basis
        self.basis = basis
        self.random_state = random_state
        self.cost = cost
        self.ties = ties
        self.weighting = weighting
        self.solver = solver
        self.tol = tol
        self.max_iter = max_iter
        self.verbose = verbose

    def fit(self, X, y, *, qid=None, groups=None):
        """Choose alpha by held-out predictions, then train on all rows.

        Parameters
        ----------
        X, y, qid : as in RankRLS.fit
        groups : array-like of shape (m,), optional
            Rows that share a group are never split between training and test.

        Returns
        -------
        self
        """
        for name in ("best_kernel_", "stream_", "scoring_", "fold_scores_", "loss_scores_"):
            self.__dict__.pop(name, None)
        self._search(X, y, qid, groups)
        self._adopt(self._plain(self.best_kernel_, self.alpha_).fit(X, y, qid=qid))
        return self

    def fit_stream(self, chunks, *, checkpoint=None, checkpoint_every=None, verbose=None, **reading):
        """Choose alpha by cross-validation and train, in one pass over chunks of whole queries.

        One statistic of fixed width is kept for each fold of queries. The model of a fold is trained on the sum of the
        others and tested on its own: the squared error of held-out pairs is a quadratic form in the statistics, so
        every alpha is scored without reading a row again. The folds are exact, as if each had been trained by itself.

        Parameters
        ----------
        chunks, checkpoint, checkpoint_every, verbose, **reading
            As in `RankRLS.fit_stream`.

        Returns
        -------
        self

        Notes
        -----
        `cv` must be a number of folds (None is 5). The fold of a query is a hash of its label: the same whatever the
        order of the rows and the size of the chunks; without qid, of the number of a row. `scoring` None is minus the
        squared error of held-out pairs, averaged over pairs. A ranking measure ("concordance", "ndcg", ...) depends on
        the predictions themselves and takes a second pass, so `chunks` must be something that can be read twice.
        `scoring_` names the measure, `fold_scores_` of shape (n_alphas, n_folds) and `loss_scores_` hold the squared
        errors in any case. Basis vectors of a reduced set leave the model with the fold of their query.

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
        from ..streaming.models import search_stream

        options = {"checkpoint": checkpoint, "checkpoint_every": checkpoint_every, "verbose": verbose}
        search_stream(self, chunks, **options, reading=reading)
        return self

    def _default_cv(self, problem, qid, groups):
        if qid is not None and problem.queries.n_groups > 1:
            return "leave-query-out"
        if groups is not None:
            return "leave-group-out"
        return _shuffled_folds(problem.n_rows)


class RLSCV(MultiOutputMixin, RegressorMixin, _AlphaSearch):
    """`RLS` with alpha chosen by exact leave-one-out, or any folds, in about the time of one eigen decomposition.

    Parameters
    ----------
    alphas : "auto" or sequence of float, default="auto"
        The grid; "auto" takes 31 powers of two placed by the spectrum of the kernel.
    cv : str, int, splitter, iterable or None, default=None
        As in `preflearn.model_selection.cross_val_predict`; None is leave-one-out, or leave-group-out with groups.
    scoring : str, callable or None, default=None
        As in `RankRLSCV`; None is R² over all held-out predictions.
    kernel_grid : dict or list of dict, optional
        Kernel parameters to search as well.
    kernel, gamma, degree, coef0, kernel_params, n_basis, basis, random_state, fit_intercept, solver, tol, max_iter,
    verbose : as in RLS

    Attributes
    ----------
    alpha_, alphas_, cv_scores_, best_score_, best_kernel_, kernel_scores_ : as in RankRLSCV
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
    _default_scoring = "r2"

    def __init__(
        self,
        alphas="auto",
        *,
        cv=None,
        scoring=None,
        kernel_grid=None,
        kernel="linear",
        gamma=None,
        degree=3,
        coef0=1,
        kernel_params=None,
        n_basis=None,
        basis="uniform",
        random_state=None,
        fit_intercept=True,
        solver="auto",
        tol=None,
        max_iter=None,
        verbose=0,
    ):
        self.alphas = alphas
        self.cv = cv
        self.scoring = scoring
        self.kernel_grid = kernel_grid
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.kernel_params = kernel_params
        self.n_basis = n_basis
        self.basis = basis
        self.random_state = random_state
        self.fit_intercept = fit_intercept
        self.solver = solver
        self.tol = tol
        self.max_iter = max_iter
        self.verbose = verbose

    # qid says which rows to hold out and to compare together, not what is learned.
    __metadata_request__fit = {"qid": True}

    def fit(self, X, y, *, qid=None, groups=None):
        """Choose alpha by held-out predictions, then train on all rows.

        Parameters
        ----------
        X, y : as in RLS.fit
        qid : array-like of shape (m,), optional
            Query labels, for folds of whole queries and ranking measures.
        groups : array-like of shape (m,), optional
            Rows that share a group are never split between training and test.

        Returns
        -------
        self
        """
        self.__dict__.pop("best_kernel_", None)
        self._qid = qid
        self._search(X, y, qid, groups)
        del self._qid
        self.__dict__.pop("intercept_", None)
        self._adopt(self._plain(self.best_kernel_, self.alpha_).fit(X, y))
        return self

    score = RLS.score

    def _within(self, problem: LearningProblem, folds: Folds) -> np.ndarray:
        """A regression's predictions are on the scale of y: rows are compared inside queries whatever the fold."""
        return encode_queries(self._qid, problem.n_rows).codes

    def _default_cv(self, problem, qid, groups):
        return "leave-group-out" if groups is not None else "leave-one-out"


def auto_grid(largest: float) -> np.ndarray:
    """The automatic alphas for this largest eigenvalue of what alpha is added to."""
    if not largest > 0:
        return _BLIND_GRID
    return 2.0 ** (np.round(np.log2(largest)) + _AUTO_POWERS)


def _shuffled_folds(n_rows: int) -> list[np.ndarray]:
    """Ten folds in random order, each of at least two rows so that something can be compared."""
    n_folds = max(2, min(10, n_rows // 2))
    return [test for _, test in KFold(n_folds, shuffle=True, random_state=0).split(np.empty((n_rows, 0)))]


def _read_alphas(alphas: Sequence[float]) -> np.ndarray:
    grid = np.asarray(alphas, dtype=float)
    if grid.ndim != 1 or grid.size == 0 or not np.isfinite(grid).all() or (grid <= 0).any():
        raise ValueError(
            f"alphas must be 'auto' or a non-empty sequence of positive numbers: found {alphas!r}."
        )
    return grid


def _strongest_of_the_best(alphas: np.ndarray, scores: np.ndarray) -> int:
    """The largest alpha among those with the best score."""
    if np.isnan(scores).all():
        raise ValueError(
            "No alpha could be scored: every held-out measure is undefined. Check qid, y and cv."
        )
    best = np.flatnonzero(scores >= np.nanmax(scores) - 1e-12)
    return int(best[np.argmax(alphas[best])])
