"""Transductive RankRLS: rank queries that nobody has judged, using the judged and the unjudged ones together.

The scores ŷ of the rows without one minimise, over folds U of whole queries,

    Σ_U c(f₋U(X_U), y_U) + γ ‖ŷ - f₀‖²        c: squared pairwise error,  f₀: what RankRLS on the scored rows predicts

equation (11) of Pahikkala, Suominen, Boberg and Salakoski, Transductive Ranking via Pairwise Regularized
Least-Squares (2007). The model is then RankRLS trained on all rows with ŷ in place of the missing scores.
"""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any, Self

import numpy as np
import scipy.sparse as sp
from scipy.linalg import null_space, solve_triangular

from ..comparisons import Groups, compare_scores, encode_queries
from ..comparisons.inputs import read_alpha
from ..comparisons.queries import QueryComparisons
from ..kernels.functions import Kernel, n_items, take_items
from ..kernels.inputs import read_items
from ..kernels.maps import NystromMap
from ..model_selection._basis_rows import refuse_folds_of_whole_basis
from ..model_selection._choice import Scoring, choose, read_grid, read_scoring, warn_at_edge
from ..model_selection._folds import Folds, encode_groups, part_of, read_partition, units_of
from ..model_selection._learner import EstimatingLearner
from ..model_selection._nested import NestedChoice, RowJudge
from ..numerics.memory import require_memory
from ..squared.base import Inputs
from ..squared.routes import square_form
from ..squared.transduction import DualTransduction, PrimalTransduction
from .base import KernelModel, RankerMixin
from .partial_targets import read_partial_targets

_AUTO_ALPHAS = 10.0 ** np.arange(-4, 5)
_AUTO_FIDELITIES = 10.0 ** np.arange(-2, 3)
_NO_SCORES = "Judge at least one query: two rows of the same query with a score."


@dataclass(frozen=True)
class _Task:
    """Validated input of fit."""

    X: Any
    kernel: Kernel
    scores: np.ndarray
    single: bool
    queries: Groups
    qid: Any
    groups: Groups | None
    unknown: np.ndarray
    comparisons: QueryComparisons


class TransductiveRankRLS(EstimatingLearner, RankerMixin, KernelModel):
    """RankRLS that also learns from queries without scores.

    The missing scores ŷ minimise the cross-validated error of RankRLS on all queries,

        Σ_U c(f₋U(X_U), y_U) + fidelity ‖ŷ - f₀‖²,

    where U runs over folds of whole queries, c is the squared error over the pairs of each query, f₋U is RankRLS
    trained on the other folds (with ŷ in place of missing scores) and f₀ are the predictions of RankRLS trained on
    the scored rows alone. Then RankRLS is trained on all rows.

    Parameters
    ----------
    alpha : float, default=1.0
        Regularisation λ of RankRLS, positive.
    fidelity : float, default=1.0
        γ, positive: how close the missing scores stay to what the scored rows predict. As it grows, the result
        approaches f₀.
    kernel, gamma, degree, coef0, kernel_params, n_basis, random_state : as in RankRLS
    basis : "uniform" or array of int, default="uniform"
        How the basis vectors are chosen, from all rows; row numbers as in `RankRLS`.
    weighting : {"pair", "item", "query"}, default="pair"
        As in `RankRLS`; ``"query"`` is that of the reference.
    cv : "leave-query-out", int, splitter or iterable of test index arrays, default="leave-query-out"
        The folds U: unions of whole queries, and of whole groups where there are groups, that together hold every row
        once.
    solver : {"auto", "dual", "primal"}, default="auto"
        Primal for a reduced set, and for the linear kernel unless there are more features than rows.
    verbose : int, default=0
        Print each stage with its time.

    Attributes
    ----------
    transduction_ : ndarray of shape (m,) or (m, v)
        y with the missing scores filled in.
    coef_, dual_coef_, basis_, basis_indices_
        The model trained on ``transduction_``, as in `RankRLS`.
    alpha_, fidelity_ : float
        The values with which the scores were found.
    n_queries_, n_unscored_ : int
        Number of queries, and of rows without a score.
    estimate_ : PerformanceEstimate
        After `select`: the measure of hidden queries, with a 95 % interval; alpha and fidelity are chosen by the other
        folds, as in `RankRLSCV`.
    solver_ : str

    Notes
    -----
    A query may be scored in part. Its unknown rows are unknowns of the same problem: its folds are still whole
    queries, its scored rows take part in every error, and f₀ is trained on the pairs of scored rows.

    Full kernel: O(m³), one Cholesky factorisation and matrix products. Reduced set of r vectors, or r features: O(m
    r²). Basis vectors leave with their fold; f₀ keeps those among unscored rows, whose inputs are known.

    Reference: T. Pahikkala, H. Suominen, J. Boberg, T. Salakoski, Transductive Ranking via Pairwise Regularized
    Least-Squares, 2007.

    Examples
    --------
    >>> import numpy as np
    >>> from preflearn import TransductiveRankRLS
    >>> rng = np.random.default_rng(0)
    >>> X, qid = rng.normal(size=(60, 3)), np.repeat(np.arange(6), 10)
    >>> y = X @ [1.0, -2.0, 0.5]
    >>> judged = np.where(qid < 2, y, np.nan)
    >>> model = TransductiveRankRLS(alpha=0.1).fit(X, judged, qid=qid)
    >>> model.transduction_.shape, model.n_unscored_
    ((60,), 40)
    >>> model.score(X, y, qid=qid) > 0.95
    True
    """

    def __init__(
        self, alpha=1.0, *, fidelity=1.0, kernel="linear", gamma=None, degree=3, coef0=1, kernel_params=None,
        n_basis=None, basis="uniform", random_state=None, weighting="pair", cv="leave-query-out",
        solver="auto", verbose=0,
    ) -> None:  # fmt: skip
        super().__init__(kernel, gamma, degree, coef0, kernel_params, n_basis, basis, random_state, verbose)
        self.alpha, self.fidelity, self.weighting, self.cv = alpha, fidelity, weighting, cv
        self.solver = solver

    def fit(self, X, y, *, qid=None, groups=None) -> Self:
        """Find the missing scores, then learn from all rows.

        Parameters
        ----------
        X : array-like or sparse of shape (m, n), kernel matrix (m, m), or sequence of objects
            Scored and unscored rows together.
        y : array-like of shape (m,) or (m, v)
            Scores, higher is better; NaN where unknown.
        qid : array-like of shape (m,)
            Query labels; needed where a score is missing.
        groups : array-like of shape (m,), optional
            Labels of dependent rows (patients, documents): the folds U hold whole groups.

        Returns
        -------
        self
        """
        alpha, fidelity = read_alpha(self.alpha), _positive("fidelity", self.fidelity)
        task = self._read(X, y, qid, groups)
        self._forget_choice()
        folds = _read_folds(self.cv, task) if task.unknown.any() else []
        stages = self._more_stages()
        with stages("kernel or features"):
            problem, reduced = self._problem(task, folds, path=False)
        with stages("factorisation and transduction"):
            self._finish(task, problem, reduced, alpha, fidelity)
        for name in ("alphas_", "fidelities_", "cv_scores_", "best_score_"):
            self.__dict__.pop(name, None)
        return self

    def select(
        self, X, y, *, qid, groups=None, alphas="auto", fidelities="auto", hide=5, scoring="concordance"
    ) -> Self:
        """Choose alpha and fidelity on the scored queries alone, then fit with them.

        Scored queries are hidden in turn, in addition to those without scores; their transduced scores are compared
        with the true ones. The parameters ``alpha`` and ``fidelity`` of the estimator are not used and stay unchanged:
        the chosen values are in ``alpha_`` and ``fidelity_``.

        Parameters
        ----------
        X, y, qid, groups
            As in `fit`; at least two queries must be scored.
        alphas : "auto" or array-like, default="auto"
            Values of λ; ``"auto"`` is 10⁻⁴, 10⁻³, ..., 10⁴.
        fidelities : "auto" or array-like, default="auto"
            Values of γ; ``"auto"`` is 10⁻², 10⁻¹, ..., 10².
        hide : "leave-query-out", int, splitter or iterable, default=5
            Folds of the scored rows that are hidden in turn, whole queries and groups; index arrays count only the
            scored rows. An int is lowered to the number of scored queries.
        scoring : str, scorer or callable, default="concordance"
            As in `RankRLSCV`: a name of the registry, a scorer, or a function of (y, scores, qid); greater is better.

        Returns
        -------
        self
            Fitted, with ``alphas_``, ``fidelities_``, ``cv_scores_`` of shape (n_alphas, n_fidelities) and
            ``best_score_`` in addition to the attributes that `fit` sets.

        Notes
        -----
        One eigendecomposition serves every alpha, fidelity and hidden fold: leaving scores out does not change the
        kernel. Each then costs matrix products and a Cholesky factorisation of the size of the unknown rows. Of equally
        good values the largest alpha is chosen, then the largest fidelity.

        Examples
        --------
        >>> import numpy as np
        >>> from preflearn import TransductiveRankRLS
        >>> rng = np.random.default_rng(0)
        >>> X, qid = rng.normal(size=(60, 3)), np.repeat(np.arange(6), 10)
        >>> judged = np.where(qid < 3, X @ [1.0, -2.0, 0.5], np.nan)
        >>> model = TransductiveRankRLS().select(X, judged, qid=qid, alphas=[1e-3, 1e6], fidelities=[0.1, 10.0])
        >>> model.cv_scores_.shape
        (2, 2)
        """
        alphas = read_grid(alphas, _AUTO_ALPHAS)
        fidelities = read_grid(fidelities, _AUTO_FIDELITIES, name="fidelities")
        measure = read_scoring(scoring)
        if qid is None:
            raise ValueError("select hides whole queries in turn and needs their labels: pass qid=....")
        task = self._read(X, y, qid, groups)
        folds, hidden = _read_folds(self.cv, task), _hidden_folds(hide, task)
        known = np.flatnonzero(~task.unknown)
        judge = _judge_of_hidden(task, known, hidden, measure)
        nested = NestedChoice(judge)
        stages = self._more_stages()
        with stages("kernel or features"):
            problem, reduced = self._problem(task, folds, path=True)
        scores = np.empty((alphas.shape[0], fidelities.shape[0]))
        for a, alpha in enumerate(alphas):
            with stages(f"alpha {alpha:g} ({a + 1} of {alphas.shape[0]})"):
                found = _scores_of_hidden(problem.at(float(alpha)), task, hidden, fidelities)
                codes = task.queries.codes[known]
                scores[a] = [measure(task.scores[known], values[known], codes) for values in found]
                nested.see(fidelities, [found[:, rows] for rows in hidden])
        best = choose(scores, alphas, fidelities)
        warn_at_edge(alphas, scores[:, best[1]], best[0])
        self._finish(task, problem, reduced, float(alphas[best[0]]), float(fidelities[best[1]]))
        self.alphas_, self.fidelities_ = alphas, fidelities
        self.cv_scores_, self.best_score_ = scores, float(scores[best])
        self._keep_choice(
            nested.estimate, lambda model: KernelModel.predict(model, take_items(task.X, known))
        )
        return self

    def _read(self, X: Any, y: Any, qid: Any, groups: Any) -> _Task:
        kernel = self._read_kernel()
        X = read_items(self, X, kernel, reset=True)
        scores, single = read_partial_targets(self, y, n_items(X), when_none_known=_NO_SCORES)
        queries = encode_queries(qid, n_items(X))
        unknown = np.isnan(scores).any(axis=1)
        if unknown.any() and qid is None:
            raise ValueError(
                f"y is NaN in {np.count_nonzero(unknown)} rows and qid was not given: the missing scores are found by "
                "holding out whole queries. Pass qid=... with one query label per row."
            )
        # Refuses an unknown weighting, and scored rows that form no pair.
        known = np.flatnonzero(~unknown)
        compare_scores(
            scores[known], encode_queries(queries.codes[known], known.shape[0]), weighting=self.weighting
        )
        filled = np.where(unknown[:, None], 0.0, scores)
        comparisons = QueryComparisons(filled, queries, weighting=self.weighting)
        owners = None
        if groups is not None:
            owners = encode_groups(groups, n_items(X))
            units_of(queries, owners, n_items(X))  # refuses what leaves nothing to train on
        return _Task(X, kernel, scores, single, queries, qid, owners, unknown, comparisons)

    def _problem(
        self, task: _Task, folds: list[np.ndarray], *, path: bool
    ) -> tuple[DualTransduction | PrimalTransduction, NystromMap | None]:
        """The dual problem of the kernel matrix, or the primal one of features."""
        X, kernel, m = task.X, task.kernel, n_items(task.X)
        reduced = self._reduced_set(X, kernel)
        solver = self._choose_solver(task, reduced)
        if solver == "dual":
            require_memory(5 * m * m * 8, f"transduction with the full kernel of {m} rows")
            K = X if kernel.is_precomputed else kernel.matrix(X)
            return DualTransduction(
                K.astype(np.float64, copy=False), task.comparisons, folds, path=path
            ), None
        width = X.shape[1] if reduced is None else reduced.rank_
        require_memory(8 * m * width * 8, f"transduction with {width} features of {m} rows")
        if reduced is None:
            features = X.toarray() if sp.issparse(X) else X
            constraints = None
        else:
            features = reduced.map_items(X, kernel)
            refuse_folds_of_whole_basis(reduced.basis_indices_, folds)
            constraints = [_leaving_basis(reduced, fold) for fold in folds]
        features = features.astype(np.float64, copy=False)
        return PrimalTransduction(features, task.comparisons, folds, constraints), reduced

    def _choose_solver(self, task: _Task, reduced: NystromMap | None) -> str:
        if self.solver == "cg":
            raise ValueError("solver='cg' does not give held-out errors: use 'auto', 'dual' or 'primal'.")
        workload = Inputs(task.X, task.kernel, reduced).workload([task.comparisons], "path")
        return square_form(workload, self.solver)

    def _finish(
        self,
        task: _Task,
        problem: DualTransduction | PrimalTransduction,
        reduced: NystromMap | None,
        alpha: float,
        fidelity: float,
    ) -> None:
        """Find the missing scores at (alpha, fidelity); store them and the function trained on them."""
        at_alpha = problem.at(alpha)
        scores = task.scores.copy()
        if task.unknown.any():
            scores[task.unknown] = at_alpha.transduce(task.scores, task.unknown, [fidelity])[0]
        coefficients = at_alpha.coefficients(scores)
        m = n_items(task.X)
        if isinstance(problem, DualTransduction):
            self.solver_ = "dual"
            basis = None if task.kernel.is_precomputed else task.X
            if task.kernel.is_linear:
                self._set_function(np.asarray(task.X.T @ coefficients), None, None, None, task.single)
            else:
                self._set_function(None, coefficients, np.arange(m), basis, task.single)
        else:
            self.solver_ = "primal"
            if reduced is None:
                self._set_function(coefficients, None, None, None, task.single)
            else:
                expanded = reduced.expand(coefficients)
                self._set_function(None, expanded, reduced.basis_indices_, reduced.basis_, task.single)
        self.transduction_ = scores[:, 0] if task.single else scores
        self.alpha_, self.fidelity_ = alpha, fidelity
        self.n_queries_ = task.queries.n_groups
        self.n_unscored_ = int(np.count_nonzero(task.unknown))


def _scores_of_hidden(
    at_alpha: Any,
    task: _Task,
    hidden: list[np.ndarray],
    fidelities: np.ndarray,
) -> np.ndarray:
    """For each fidelity the transduced scores, with every scored row hidden once; NaN where none is known."""
    found = np.full((fidelities.shape[0], *task.scores.shape), np.nan)
    for rows in hidden:
        unknown = task.unknown.copy()
        unknown[rows] = True
        found[:, unknown] = np.where(
            np.isin(np.flatnonzero(unknown), rows)[:, None],
            at_alpha.transduce(task.scores, unknown, fidelities),
            found[:, unknown],
        )
    return found


def _judge_of_hidden(task: _Task, known: np.ndarray, hidden: list[np.ndarray], scoring: Scoring) -> RowJudge:
    """How transduced scores of hidden rows are scored, whose numbers count only scored rows."""
    tests = [np.searchsorted(known, rows) for rows in hidden]
    queries, groups = part_of(task.queries, known), part_of(task.groups, known)
    assert queries is not None
    judge = RowJudge(scoring, Folds(tests, tests), queries, task.scores[known], groups=groups)
    _ = judge.comparable  # refuses before any work
    return judge


def _read_folds(cv: Any, task: _Task) -> list[np.ndarray]:
    """Folds of whole queries that hold every row once.

    Raises
    ------
    ValueError
        If there is only one query, or the folds are not of that kind.
    """
    m, queries = n_items(task.X), task.queries
    if queries.n_groups < 2:
        raise ValueError(
            "Missing scores are found by holding out whole queries, and there is only one query. "
            "Check qid; to rank rows of one query use RankRLS on the scored ones."
        )
    _refuse_single_rows("cv", cv)
    folds = read_partition(cv, task.X, task.scores[:, 0], m, qid=queries.codes, groups=task.groups)
    for fold in folds:
        inside = np.bincount(queries.codes[fold], minlength=queries.n_groups)
        if ((inside > 0) & (inside < queries.counts)).any():
            raise ValueError(
                "A fold of cv holds part of a query: its pairs would be trained on and tested at once. "
                "Use folds of whole queries, for example QueryKFold."
            )
    return folds


def _hidden_folds(hide: Any, task: _Task) -> list[np.ndarray]:
    """Scored rows to hide in turn, whole queries, every scored row once."""
    known = np.flatnonzero(~task.unknown)
    codes = np.unique(task.queries.codes[known], return_inverse=True)[1]
    n_scored = int(codes.max()) + 1
    if n_scored < 2:
        raise ValueError(
            "alpha and fidelity are chosen by hiding scored queries in turn: at least two must be scored, found one. "
            "Use TransductiveRankRLS with a given alpha and fidelity."
        )
    _refuse_single_rows("hide", hide)
    if isinstance(hide, Integral) and not isinstance(hide, bool):
        hide = min(int(hide), n_scored)
    blank = np.empty((known.shape[0], 0))
    groups = part_of(task.groups, known)
    if groups is not None and isinstance(hide, int):
        hide = min(hide, units_of(codes, groups, known.shape[0]).n_groups)
    folds = read_partition(hide, blank, task.scores[known, 0], known.shape[0], qid=codes, groups=groups)
    if not all(np.isin(codes, codes[fold]).sum() == fold.shape[0] for fold in folds):
        raise ValueError("The folds of hide must hold whole queries, and every scored row exactly once.")
    return [known[fold] for fold in folds]


def _refuse_single_rows(name: str, cv: Any) -> None:
    """Refuse rows of a query, groups and pairs, which have no meaning where whole queries leave."""
    if isinstance(cv, str) and cv != "leave-query-out":
        raise ValueError(
            f"{name} holds out whole queries: expected 'leave-query-out', an int, a splitter or test index arrays, "
            f"found {cv!r}."
        )


def _leaving_basis(reduced: NystromMap, fold: np.ndarray) -> np.ndarray:
    """N: a weight vector w on the features uses no basis vector of the fold exactly when Nᵀ w = 0, shape (rank, h)."""
    factor = reduced.factor_
    leaving = np.isin(reduced.basis_indices_, fold)
    if not leaving.any():
        return np.empty((factor.rank, 0))
    if factor.rank == leaving.shape[0]:
        unit = np.zeros((factor.rank, np.count_nonzero(leaving)))
        unit[np.flatnonzero(leaving[factor.pivots]), np.arange(unit.shape[1])] = 1.0
        return solve_triangular(factor.C, unit, lower=True)
    # Dependent basis vectors can replace each other: only the part of the span that no other one covers leaves.
    return null_space(factor.F[~leaving]) if not leaving.all() else np.eye(factor.rank)


def _positive(name: str, value: Any) -> float:
    if not isinstance(value, Real) or isinstance(value, bool) or not 0 < float(value) < np.inf:
        raise ValueError(f"{name} must be a positive number: found {value!r}.")
    return float(value)
