"""KroneckerRLSCV and TwoStepRLSCV: alpha chosen by exact held-out predictions of what will be new in use."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from sklearn.base import clone

from ..comparisons import Groups, encode_queries
from ..comparisons.inputs import read_alpha
from ..progress import Counter
from .grammar import (
    EstimatingLearner,
    Folds,
    NestedChoice,
    RelationFolds,
    RowJudge,
    choose,
    read_alphas,
    read_hold_out,
    read_scoring,
    without_rounding,
)
from .kronecker import KroneckerProblem, KroneckerRLS, TwoStepProblem, TwoStepRLS
from .model import RelationData, RelationModel


class _RelationSearch(EstimatingLearner, RelationModel):
    """What the two searches share: folds, scores, and the choice."""

    hold_out: Any
    cv: Any
    scoring: Any
    keep_predictions: Any
    verbose: Any

    def _score(self, problem: Any, alphas: list[Any], row_groups: Any, column_groups: Any) -> np.ndarray:
        data: RelationData = problem.data
        known = ~np.isnan(data.labels())
        cv = self._default_cv(data) if self.cv is None else self.cv
        folds = read_hold_out(self.hold_out, cv, known, row_groups=row_groups, column_groups=column_groups)
        name = self._default_scoring() if self.scoring is None else self.scoring
        scoring, within = read_scoring(name), self._within(data, folds, known, name)
        counter = Counter(type(self).__name__, folds.n_folds, "folds", self.verbose)
        options = {"tol": self.tol} if isinstance(self, KroneckerRLS) else {}
        predictions = problem.held_out(folds, alphas, counter, **options)
        self.cv_predictions_ = predictions if self.keep_predictions else None
        scored = known & ~np.isnan(predictions[0])
        y, within = data.labels()[scored][:, None], within[scored]
        tied = without_rounding(predictions[:, scored])
        units = self._new_objects(scored, row_groups, column_groups)
        number = folds.fold_of_entries(data.shape)[scored]
        order = np.argsort(number, kind="stable")
        tests = np.split(order, np.flatnonzero(np.diff(number[order])) + 1)
        queries = encode_queries(data.queries()[scored], y.shape[0])
        pooled = self.compare is None
        judge = RowJudge(scoring, Folds(tests, tests), queries, y, pooled, units=units, noun="labels")
        nested = NestedChoice(judge)
        nested.see(np.arange(len(alphas)), [tied[:, test, None] for test in tests])
        self._keep_choice(nested.estimate, lambda model: model._predict(data.K, data.G)[scored])
        return np.array([scoring(y, f[:, None], within) for f in tied])

    def _new_objects(self, scored: np.ndarray, row_groups: Any, column_groups: Any) -> tuple[Groups, ...]:
        """The objects of the labels that are scored, or their groups, of the kinds that leave as a whole."""
        kinds = {"rows": [0], "columns": [1], "both": [0, 1]}.get(self.hold_out, [])
        places, labels = np.nonzero(scored), (row_groups, column_groups)
        return tuple(
            encode_queries(
                places[k] if labels[k] is None else np.asarray(labels[k])[places[k]], len(places[k])
            )
            for k in kinds
        )

    def _default_scoring(self) -> str:
        return "r2" if self.compare is None else "concordance"

    def _default_cv(self, data: RelationData) -> Any:
        singles_compare = self.compare is None or self.hold_out not in (self.compare, "entries", "both")
        return "leave-one-out" if data.has_closed_form and singles_compare else 5

    def _within(self, data: RelationData, folds: RelationFolds, known: np.ndarray, name: Any) -> np.ndarray:
        """Entries that a measure may compare: of one column (row) and by one model, where these are compared."""
        queries = data.queries()
        if self.compare is None:
            return queries
        fold = folds.fold_of_entries(data.shape)
        within = np.unique(queries * (1 + int(fold.max())) + fold, return_inverse=True)[1].reshape(data.shape)
        if read_scoring(name).compares_rows and np.bincount(within[known]).max() < 2:
            raise ValueError(
                f"scoring={name!r} compares {self.compare} that one model predicts, and with hold_out="
                f"{self.hold_out!r}, cv={self.cv!r} no two are held out together. Use a number of folds, or another "
                "hold_out."
            )
        return within


class KroneckerRLSCV(_RelationSearch, KroneckerRLS):
    """`KroneckerRLS` with alpha chosen by exact held-out predictions.

    Parameters
    ----------
    alphas : "auto" or sequence of float, default="auto"
        The grid; "auto" takes 31 powers of two placed by the spectrum of the pairwise kernel.
    hold_out : {"entries", "rows", "columns", "both"}, default="entries"
        What will be new in use; see `cross_val_predict`.
    cv : str, int, splitter, index arrays or None, default=None
        As in `cross_val_predict`. None holds out one after the other where there is a closed form and the measure can
        compare the predictions, else five folds.
    scoring : str, callable or None, default=None
        A measure's name, or a function of (y, scores, qid) where greater is better. None is R², and with `compare`
        the concordance inside columns (rows).
    row_kernel, column_kernel, row_params, column_params, compare, pairwise, tol, max_iter : as in KroneckerRLS
    keep_predictions : bool, default=False
    verbose : int, default=0

    Attributes
    ----------
    alpha_ : float
        The chosen alpha; ties go to the stronger regularisation.
    alphas_, cv_scores_ : ndarray of shape (n_alphas,)
    best_score_ : float
        The largest of `cv_scores_`.
    estimate_ : PerformanceEstimate
        How good the model is for what `hold_out` says is new, with a 95 % interval; as in `RankRLSCV`.
    cv_predictions_ : ndarray of shape (n_alphas, p, q) or None
        Held-out predictions, with `keep_predictions`.
    Further attributes as in KroneckerRLS.

    Examples
    --------
    >>> import numpy as np
    >>> from preflearn.relations import KroneckerRLSCV
    >>> rng = np.random.default_rng(0)
    >>> U, V = rng.normal(size=(20, 3)), rng.normal(size=(15, 2))
    >>> Y = U @ rng.normal(size=(3, 2)) @ V.T + 0.1 * rng.normal(size=(20, 15))
    >>> model = KroneckerRLSCV(hold_out="rows").fit(U, V, Y)
    >>> bool(model.best_score_ > 0.95)
    True
    """

    def __init__(
        self, alphas="auto", *, hold_out="entries", cv=None, scoring=None, row_kernel="linear",
        column_kernel="linear", row_params=None, column_params=None, compare=None, pairwise="kronecker",
        tol=1e-8, max_iter=None, keep_predictions=False, verbose=0,
    ) -> None:  # fmt: skip
        RelationModel.__init__(self, row_kernel, column_kernel, row_params, column_params, compare)
        self.alphas, self.hold_out, self.cv, self.scoring = alphas, hold_out, cv, scoring
        self.pairwise, self.tol, self.max_iter = pairwise, tol, max_iter
        self.keep_predictions, self.verbose = keep_predictions, verbose

    def fit(self, rows, columns, Y, *, row_groups=None, column_groups=None) -> Self:
        """Choose alpha by held-out predictions, then train on all known labels.

        Parameters
        ----------
        rows, columns, Y : as in KroneckerRLS.fit
        row_groups, column_groups : array-like, optional
            Labels of objects that leave the training together.

        Returns
        -------
        self
        """
        return self._search(self._read(rows, columns, Y), row_groups, column_groups)

    def fit_pairs_of(
        self,
        rows,
        columns,
        row_index,
        column_index,
        y,
        *,
        duplicates="refuse",
        row_groups=None,
        column_groups=None,
    ) -> Self:
        """The same from a list of pairs, as `KroneckerRLS.fit_pairs_of`.

        Parameters
        ----------
        rows, columns, row_index, column_index, y, duplicates : as in KroneckerRLS.fit_pairs_of
        row_groups, column_groups : as in fit

        Returns
        -------
        self
        """
        data = RelationData(self, rows, columns, None, (row_index, column_index, y, duplicates))
        return self._search(data, row_groups, column_groups)

    def _search(self, data: RelationData, row_groups: Any, column_groups: Any) -> KroneckerRLSCV:
        if not isinstance(self.alphas, str):
            read_alphas(self.alphas, 0.0)  # before any work
        problem = KroneckerProblem(self, data)
        self.alphas_ = read_alphas(self.alphas, lambda: problem.largest_eigenvalue)
        self.cv_scores_ = self._score(problem, list(self.alphas_), row_groups, column_groups)
        (choice,) = choose(self.cv_scores_, self.alphas_)
        self.alpha_, self.best_score_ = float(self.alphas_[choice]), float(self.cv_scores_[choice])
        problem.set_solution(self, self.alpha_)
        return self


class TwoStepRLSCV(_RelationSearch, TwoStepRLS):
    """`TwoStepRLS` with both alphas chosen by exact held-out predictions.

    Parameters
    ----------
    alphas_rows, alphas_columns : "auto" or sequence of float, default="auto"
        The grids; every pair of their values is tried. "auto" takes every third of the powers of two of
        `KroneckerRLSCV`, placed by the spectrum of the side.
    hold_out, cv, scoring, keep_predictions, verbose : as in KroneckerRLSCV
    row_kernel, column_kernel, row_params, column_params, compare : as in TwoStepRLS

    Attributes
    ----------
    alpha_ : tuple of float
        The chosen alpha of the rows and of the columns.
    alphas_ : ndarray of shape (n, 2)
        All pairs that were tried.
    cv_scores_ : ndarray of shape (n,)
    best_score_, estimate_ : as in KroneckerRLSCV
    cv_predictions_ : ndarray of shape (n, p, q) or None
    Further attributes as in TwoStepRLS.

    Examples
    --------
    >>> import numpy as np
    >>> from preflearn.relations import TwoStepRLSCV
    >>> rng = np.random.default_rng(0)
    >>> U, V = rng.normal(size=(20, 3)), rng.normal(size=(15, 2))
    >>> Y = U @ rng.normal(size=(3, 2)) @ V.T + 0.1 * rng.normal(size=(20, 15))
    >>> bool(TwoStepRLSCV(hold_out="both").fit(U, V, Y).best_score_ > 0.95)
    True
    """

    def __init__(
        self, alphas_rows="auto", alphas_columns="auto", *, hold_out="entries", cv=None, scoring=None,
        row_kernel="linear", column_kernel="linear", row_params=None, column_params=None, compare=None,
        keep_predictions=False, verbose=0,
    ) -> None:  # fmt: skip
        RelationModel.__init__(self, row_kernel, column_kernel, row_params, column_params, compare)
        self.alphas_rows, self.alphas_columns, self.hold_out = alphas_rows, alphas_columns, hold_out
        self.cv, self.scoring, self.keep_predictions, self.verbose = cv, scoring, keep_predictions, verbose

    def fit(self, rows, columns, Y, *, row_groups=None, column_groups=None) -> Self:
        """Choose the alphas by held-out predictions, then train on all labels.

        Parameters
        ----------
        rows, columns, Y : as in TwoStepRLS.fit
        row_groups, column_groups : array-like, optional
            Labels of objects that leave the training together.

        Returns
        -------
        self
        """
        problem = TwoStepProblem(self, self._read(rows, columns, Y))
        sides = (problem.complete.rows, problem.complete.columns)
        grids = []
        for alphas, side in zip((self.alphas_rows, self.alphas_columns), sides, strict=True):
            grid = read_alphas(alphas, side.largest)
            grids.append(grid[::3] if isinstance(alphas, str) else grid)
        pairs = [(float(a), float(b)) for a in grids[0] for b in grids[1]]
        self.alphas_ = np.array(pairs)
        self.cv_scores_ = self._score(problem, pairs, row_groups, column_groups)
        (choice,) = choose(self.cv_scores_, self.alphas_.prod(axis=1))
        self.alpha_, self.best_score_ = pairs[choice], float(self.cv_scores_[choice])
        self._adopt(problem.data, problem.complete.coefficients(self.alpha_))
        return self


# ----------------------------------------------------------------
# Every alpha of a relation from one factorisation.


class RelationPath:
    """A `KroneckerRLS` at any alpha: the kernels are evaluated and decomposed once.

    Parameters
    ----------
    model : KroneckerRLS
        Its alpha is not used; not modified.
    rows, columns, Y : as in KroneckerRLS.fit

    Attributes
    ----------
    largest_eigenvalue : float
        Of the pairwise kernel of the known pairs: it shows which alphas matter.

    Notes
    -----
    Complete labels: two eigendecompositions, and then O(pq) for the solution at another alpha in their basis.
    Incomplete labels: conjugate gradients, each alpha started at the solution of the next larger one.

    Examples
    --------
    >>> import numpy as np
    >>> from preflearn.relations import KroneckerRLS, RelationPath
    >>> rng = np.random.default_rng(0)
    >>> U, V = rng.normal(size=(9, 2)), rng.normal(size=(8, 3))
    >>> path = RelationPath(KroneckerRLS(), U, V, rng.normal(size=(9, 8)))
    >>> path.predict(U[:2], V, alphas=[0.1, 1.0, 10.0]).shape
    (3, 2, 8)
    >>> path.held_out("rows", alphas=[0.1, 1.0]).shape
    (2, 9, 8)
    """

    def __init__(self, model: KroneckerRLS, rows: Any, columns: Any, Y: Any) -> None:
        self._model = clone(model)
        self._problem = KroneckerProblem(self._model, self._model._read(rows, columns, Y))

    @property
    def largest_eigenvalue(self) -> float:
        return self._problem.largest_eigenvalue

    def model(self, alpha: float) -> KroneckerRLS:
        """The fitted model at one alpha."""
        fitted = clone(self._model).set_params(alpha=alpha)
        self._problem.set_solution(fitted, read_alpha(alpha))
        return fitted

    def mode_coefficients(self, alpha: float) -> np.ndarray:
        """The solution in the basis of the eigenvectors of the kernels, shape (p, q): complete labels only. O(pq)."""
        if self._problem.complete is None:
            raise ValueError("Modes are those of a complete relation: some labels are unknown here.")
        return self._problem.complete.mode_coefficients(read_alpha(alpha))

    def predict(self, rows: Any, columns: Any = None, *, alphas: Sequence[float]) -> np.ndarray:
        """Predictions at each alpha, shape (n_alphas, p', q').

        Parameters
        ----------
        rows, columns : as in KroneckerRLS.predict
        alphas : sequence of float
        """
        grid = [read_alpha(alpha) for alpha in alphas]
        found: list[Any] = [None] * len(grid)
        for number, coefficients in self._problem.solve_path(grid):
            fitted = clone(self._model)
            fitted._adopt(self._problem.data, coefficients)
            found[number] = fitted.predict(rows, columns)
        return np.stack(found)

    def held_out(
        self,
        hold_out: str = "entries",
        cv: Any = "leave-one-out",
        *,
        alphas: Sequence[float],
        row_groups: Any = None,
        column_groups: Any = None,
        verbose: int = 0,
    ) -> np.ndarray:
        """Held-out predictions at each alpha, shape (n_alphas, p, q); the arguments of `cross_val_predict`."""
        folds = self.read_folds(hold_out, cv, row_groups, column_groups)
        counter = Counter("RelationPath", folds.n_folds, "folds", verbose)
        return self._problem.held_out(folds, [read_alpha(alpha) for alpha in alphas], counter)

    def read_folds(
        self, hold_out: str, cv: Any, row_groups: Any = None, column_groups: Any = None
    ) -> RelationFolds:
        """The folds of a setting on these data."""
        known = ~np.isnan(self._problem.data.labels())
        return read_hold_out(hold_out, cv, known, row_groups=row_groups, column_groups=column_groups)


# ----------------------------------------------------------------
# Cross-validated predictions of a relation in four settings.


def cross_val_predict(
    model,
    rows,
    columns,
    Y,
    *,
    hold_out="entries",
    cv="leave-one-out",
    row_groups=None,
    column_groups=None,
    verbose=0,
) -> np.ndarray:
    """For each pair the prediction of the model that was trained without it; identical to refitting.

    Parameters
    ----------
    model : KroneckerRLS or TwoStepRLS
        Not modified.
    rows, columns, Y : as in the model's fit
    hold_out : {"entries", "rows", "columns", "both"}, default="entries"
        What will be new in use: the pair alone, its row object, its column object, or both objects.
    cv : str, int, splitter, iterable of index arrays, or a pair of these, default="leave-one-out"
        One after the other, a number of folds, or the sets themselves: numbers of rows or columns; for entries,
        positions in the row-major matrix, pairs (row, column), or p × q masks. For ``"both"`` a tuple gives the folds
        of the rows and those of the columns. Folds of entries are drawn at random with a fixed seed.
    row_groups, column_groups : array-like of shape (p,) and (q,), optional
        Labels of objects that leave the training together (families of drugs, sessions of a user).
    verbose : int, default=0
        Count the folds on standard error.

    Returns
    -------
    ndarray of shape (p, q)
        NaN where an entry is in no fold: unknown labels with ``hold_out="entries"``.

    Notes
    -----
    In closed form for complete labels: single entries O(pq(p + q)), rows or columns by algebra or one decomposition per
    fold, both with one decomposition for each fold of the smaller side. Folds of several entries, incomplete labels and
    kernels without a closed form are refitted by conjugate gradients, with warm starts from alpha to alpha. For a
    symmetric or antisymmetric relation the mirror image of an entry leaves with it, and a held-out row is a held-out
    object: its column leaves as well. A two-step model has no entry-wise objective; the label left out is replaced by
    what the model then predicts for it, its fixed point.

    Examples
    --------
    >>> import numpy as np
    >>> from preflearn.relations import KroneckerRLS, cross_val_predict
    >>> rng = np.random.default_rng(0)
    >>> U, V = rng.normal(size=(12, 2)), rng.normal(size=(10, 3))
    >>> Y = U @ rng.normal(size=(2, 3)) @ V.T + rng.normal(size=(12, 10))
    >>> errors = {}
    >>> for setting in ("entries", "rows", "columns", "both"):
    ...     F = cross_val_predict(KroneckerRLS(), U, V, Y, hold_out=setting)
    ...     errors[setting] = np.mean((Y - F) ** 2)
    >>> errors["entries"] < errors["both"]
    np.True_
    """
    problem, alpha = read_problem(model, rows, columns, Y)
    known = ~np.isnan(problem.data.labels())
    folds = read_hold_out(hold_out, cv, known, row_groups=row_groups, column_groups=column_groups)
    counter = Counter("cross_val_predict", folds.n_folds, "folds", verbose)
    return problem.held_out(folds, [alpha], counter)[0]


def read_problem(model: Any, rows: Any, columns: Any, Y: Any) -> tuple[Any, Any]:
    """Validated data of a model with its factorisation, and the model's alpha."""
    if not isinstance(model, (KroneckerRLS, TwoStepRLS)):
        raise TypeError(
            f"Held-out predictions of a relation are those of KroneckerRLS or TwoStepRLS: found "
            f"{type(model).__name__}."
        )
    model = clone(model)
    if isinstance(model, TwoStepRLS):
        alphas = (read_alpha(model.alpha_rows), read_alpha(model.alpha_columns))
        return TwoStepProblem(model, model._read(rows, columns, Y)), alphas
    alpha = read_alpha(model.alpha)
    return KroneckerProblem(model, model._read(rows, columns, Y)), alpha
