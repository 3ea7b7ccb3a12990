"""A squared-loss learner with its validated data, held out by algebra, or by refitting where only that is exact."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Iterator, Sequence
from copy import copy
from dataclasses import replace
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

from ..comparisons import (
    Comparisons,
    PreferenceComparisons,
    centred,
    encode_queries,
    offset_is_large,
    one_group,
)
from ..comparisons.inputs import read_alpha, read_row_weights, read_scores
from ..core.band import BandForm
from ..core.basis_holdout import FEW_FOLDS, BasisHoldOut
from ..core.conjugate_gradients import largest_eigenvalue
from ..core.dual_holdout import DualHoldOut
from ..core.feature_holdout import FeatureHoldOut
from ..core.holdout import LEAST_CONDITION, HoldOut, features_serve, rows_outside
from ..core.krylov_holdout import KrylovHoldOut
from ..core.preference_holdout import (
    PairsByRows,
    PreferenceHoldOut,
    kernel_of_differences,
    linear_kernel_of_differences,
    regression_over_pairs,
    suits_pair_space,
    weighted_differences,
)
from ..core.problem import solve_primal_path, warn_if_collinear
from ..core.removal import LOST_IN_ROUNDING, refuse_without_basis
from ..core.tridiagonal import TridiagonalForm
from ..kernels.functions import Kernel, n_items, take_items, take_training_items
from ..kernels.inputs import read_items
from ..kernels.maps import NystromMap
from ..numerics.linalg import factor_kernel, first_equal_items, first_equal_rows, in_row_span
from ..numerics.memory import require_memory
from ..numerics.namespace import Home, as_host, is_device_array
from ..solvers.choice import choose_solver
from ..solvers.progress import note
from ..solvers.routes import (
    FEW_SETS,
    HELD_OUT_TOLERANCE,
    RouteMap,
    Workload,
    callers_level,
    choose_route,
    refuse_if_hopeless,
    warn_if_long,
)
from .alphas import BLIND_GRID, auto_grid, count_alphas, spread_of
from .folds import Folds
from .learner import SquaredLossLearner
from .tally import relative_rounding

# So few rows are held out in a moment by any square matrix.
_QUICK_ROWS = 500
# Where a row, or what it is compared with, has a smaller share of the largest weight, rows are held out by refitting.
_GRADED = 1e-6
# Singular values with a smaller share of the largest lose half of their digits, or all, when they are squared.
_HIDDEN = 2.0**-12
# What the last bits of a prediction are beside it.
_LAST_BITS = 2.0**-48
# A task with the routine that holds its rows out, or None where only refitting is exact.
Routine = tuple[Comparisons, HoldOut | None]
# What takes preferences out.
PreferenceRoutine = PreferenceHoldOut | FeatureHoldOut


def has_closed_form(estimator: Any) -> bool:
    """Whether rows can be held out by algebra; a search would choose another alpha without them, so it is refitted."""
    return isinstance(estimator, SquaredLossLearner) and hasattr(estimator, "alpha")


@lru_cache
def _takes_qid(fit: Any) -> bool:
    """Whether fit has an argument qid (asked once: reading a signature takes a while)."""
    return "qid" in inspect.signature(fit).parameters


class LearningProblem:
    """A squared-loss estimator with its validated data: what hold-out, leave-pair-out and searches start from.

    Attributes
    ----------
    estimator : SquaredLossLearner
        A clone that holds ``n_features_in_`` and the like.
    X : validated items
    scores : ndarray of shape (m, v)
    single : bool
    queries : Groups
    kernel : Kernel
    row_weights : ndarray of shape (m,) or None
    to_compare : bool
        Whether only the order of predictions inside a fold is asked for: then they lack an intercept and what rows of a
        query have in common, and are equal where only rounding tells them apart.
    across_folds : bool
        With `to_compare`: whether predictions of different folds are compared too, so that nothing may be left out.

    Notes
    -----
    What is factorised is kept: one factorisation serves all folds, and one that was made for a path of alphas serves
    every alpha.
    """

    to_compare = False
    across_folds = False
    verbose = 0
    # What is going to be asked for: sizes of a `Workload`.
    _expected: dict[str, Any] = {"purpose": "pairs"}
    _alphas: Any = "auto"

    def __init__(
        self, estimator, X, scores, single, queries, kernel: Kernel, row_weights: np.ndarray | None = None
    ) -> None:
        self.estimator, self.X, self.scores, self.single = estimator, X, scores, single
        self.queries, self.kernel, self.row_weights = queries, kernel, row_weights
        self._kept: dict[str, list[Routine]] = {}

    @classmethod
    def read(cls, estimator: Any, X: Any, y: Any, qid: Any, sample_weight: Any = None) -> LearningProblem:
        """Validate once, as fit does."""
        model = clone(estimator)
        kernel = model._read_kernel()
        X = read_items(model, X, kernel, reset=True)
        scores, single = read_scores(y, n_items(X), estimator=model)
        if qid is not None and not _takes_qid(type(model).fit):
            qid = None  # a regressor is held out by query but does not compare inside queries
        weights = read_row_weights(sample_weight, n_items(X), X)
        return cls(model, X, scores, single, encode_queries(qid, n_items(X)), kernel, weights)

    def for_order(self, *, across_folds: bool = False) -> LearningProblem:
        """The same problem, its predictions only to be compared with each other; what is factorised is shared."""
        self.feature_map()  # drawn once for both
        other = copy(self)
        other.to_compare, other.across_folds = True, across_folds
        if not across_folds:
            other._kept = {} if self._has_large_offsets() else _without_intercepts(self._kept)
        elif not self._levels_matter:
            other._kept = {}
        return other

    def _has_large_offsets(self) -> bool:
        """Whether differences of predictions may drown in what the features of all rows have in common."""
        dense = self.kernel.is_linear and not sp.issparse(self.X) and not is_device_array(self.X)
        return bool(dense and offset_is_large(_double(self.X)))

    def expect(self, sets: Sequence[np.ndarray], alphas: Any, *, n_pairs: int = 0) -> None:
        """Say which sets of rows are going to be held out at which alphas; the route is chosen for that.

        ``alphas`` are what the caller gave. With ``n_pairs`` the sets are of so many preferences.
        """
        self._alphas = alphas
        purpose = "folds" if len(sets) <= FEW_SETS else "queries"
        self._expected = {
            "purpose": "preferences" if n_pairs else purpose,
            "n_folds": len(sets),
            "largest_fold": max(rows.shape[0] for rows in sets),
            "n_alphas": count_alphas(alphas),
            "n_pairs": n_pairs,
        }

    def expect_pairs(self, alphas: Any) -> None:
        """The same for pairs of rows."""
        self._alphas = alphas
        self._expected = {"purpose": "pairs", "n_alphas": count_alphas(alphas)}

    def route(self, task: Comparisons) -> RouteMap:
        """The route for what is expected, and the others; for rows on the host and without a reduced set."""
        sizes = {**self._expected, "closed_half": task.has_half, "tol": getattr(self.estimator, "tol", None)}
        linear = self.kernel.is_linear
        if self.kernel.is_precomputed:
            return choose_route(Workload(n_rows=self.n_rows, n_features=0, linear=False, **sizes))
        found = choose_route(Workload.of(self.X, linear=linear, **sizes))
        if found.chosen.solver != "cg":
            return found
        # How many iterations it will be is worth a few passes over the data.
        largest = largest_eigenvalue(self.X, task)
        spread = spread_of(self._alphas, getattr(self.estimator, "alpha", None), largest)
        return choose_route(replace(found.workload, spread=spread))

    @property
    def n_rows(self) -> int:
        return self.scores.shape[0]

    @cached_property
    def twins(self) -> np.ndarray:
        """For each row the first row that equals it, shape (m,)."""
        if self.kernel.takes_objects:
            return first_equal_items(self.kernel.matrix(self.X))
        X = as_host(self.X) if is_device_array(self.X) else self.X
        return first_equal_items(X) if self.kernel.is_precomputed else first_equal_rows(X)

    def of_distinct_rows(self) -> tuple[LearningProblem, np.ndarray]:
        """The problem with one row for all that are equal, for preferences; and the place there of each row.

        Preferences see f(x_i) alone, so equal rows are one. A reduced set is drawn from the rows as they are.
        """
        every = np.arange(self.n_rows)
        merges = not (self.kernel.takes_objects or self.kernel.is_precomputed or is_device_array(self.X))
        if not merges or self.estimator._wants_reduced_set():
            return self, every
        distinct, place = np.unique(self.twins, return_inverse=True)
        if distinct.shape[0] == self.n_rows:
            return self, every
        scores, queries = self.scores[distinct], one_group(distinct.shape[0])
        X = take_items(self.X, distinct)
        return LearningProblem(self.estimator, X, scores, self.single, queries, self.kernel), place

    @property
    def _levels_matter(self) -> bool:
        """Whether what predictions of a fold have in common is asked for."""
        return not self.to_compare or self.across_folds

    @property
    def comparable_across_folds(self) -> bool:
        """Whether predictions are complete, so that those of a regression may be compared across folds."""
        return self._levels_matter

    def at_home(self, values: np.ndarray) -> Any:
        """Results for the caller: on the device of X where X is on one."""
        return Home.of(self.X).put(values) if is_device_array(self.X) else values

    @property
    def intercept(self) -> bool:
        return bool(getattr(self.estimator, "fit_intercept", False)) and self._levels_matter

    def tasks(self) -> list[Comparisons]:
        return self.estimator._compare(self.scores, self.queries, self.row_weights)

    def own_alpha(self) -> float:
        return read_alpha(self.estimator.alpha)

    def automatic_alphas(self) -> np.ndarray:
        """Placed by the spectrum; where only refitting is possible that is not known."""
        routines = list(self.routines(many_alphas=True))
        if any(routine is None for _, routine in routines):
            return BLIND_GRID
        largest = max(routine.largest_eigenvalue for _, routine in routines if routine is not None)
        return auto_grid(largest, iterated=any(isinstance(one, KrylovHoldOut) for _, one in routines))

    def with_targets(self, y: Any) -> LearningProblem:
        """The same rows with other scores; what was factorised serves them where it does not depend on the scores."""
        other = copy(self)
        other.scores, other.single = read_scores(y, self.n_rows, estimator=self.estimator)
        other._kept = {}
        if self.estimator._comparisons_depend_on_scores():
            return other
        (task,) = other.tasks()
        for kind, [(_, routine)] in self._kept.items():
            moved = None if routine is None else routine.with_targets(task)
            if moved is not None:
                other._kept[kind] = [(task, moved)]
        return other

    @property
    def is_factorised(self) -> bool:
        """Whether anything has been factorised."""
        return bool(self._kept)

    @property
    def has_path(self) -> bool:
        """Whether a factorisation for every alpha is at hand."""
        return "path" in self._kept

    def routines(self, *, many_alphas: bool, n_folds: int | None = None) -> Iterator[Routine]:
        """Each task with its routine; one that is at hand is used again.

        Where every output has comparisons of its own, only a path of alphas keeps more than one factorisation.
        """
        few = not many_alphas and n_folds is not None and n_folds <= FEW_FOLDS
        kind = "path" if many_alphas or self.has_path else "few" if few else "one"
        if kind in self._kept and not self._has_better_route(kind):
            yield from self._kept[kind]
            return
        tasks = self.tasks()
        kept: list[Routine] = []
        for task in tasks:
            routine = self.hold_out(task, many_alphas=many_alphas, n_folds=n_folds)
            if kind == "path" or len(tasks) == 1:
                kept.append((task, routine))
            yield task, routine
        if kept:
            self._kept[kind] = kept

    def _has_better_route(self, kind: str) -> bool:
        """Whether iterations are at hand, and what is asked now is done better by a square matrix."""
        task, routine = self._kept[kind][0]
        if not isinstance(routine, KrylovHoldOut) or self.estimator.solver != "auto":
            return False
        return self._solver(task, reduced=False) != "cg"

    def predict_folds(self, folds: Folds, alphas: Sequence[Any], on_fold: Any = None) -> list[np.ndarray]:
        """Predictions of the test rows of each fold, shape (n_alphas, n_test, v)."""
        self._refuse_parts_of_weighted_queries(folds)
        outputs = [
            self.predict_task(task, routine, folds.leaving, alphas, on_fold)
            for task, routine in self.routines(many_alphas=len(alphas) > 1, n_folds=len(folds.leaving))
        ]
        joined = outputs[0] if len(outputs) == 1 else [np.concatenate(one, axis=2) for one in zip(*outputs)]
        found = folds.of_tests(joined, self.n_rows)
        return self.tied(found, folds.tests, alphas) if self.to_compare else found

    def tied(
        self, predictions: list[np.ndarray], tests: list[np.ndarray], alphas: Sequence[float]
    ) -> list[np.ndarray]:
        """Equal rows of a fold get equal predictions; differences that are rounding vanish."""
        rows, f = np.concatenate(tests), np.concatenate(predictions, axis=1)
        steps = _LAST_BITS * np.maximum(f.max(axis=1), -f.min(axis=1))  # (a, v)
        terms = [routine.size for kept in self._kept.values() for _, routine in kept if routine is not None]
        if terms:
            steps += np.outer(
                [relative_rounding(max(terms), alpha) for alpha in alphas], np.ptp(self.scores, axis=0)
            )
        steps = np.where(steps > 0, steps, 1.0)[:, None, :]
        sizes = [test.shape[0] for test in tests]
        if (self.twins != np.arange(self.n_rows)).any():
            fold = np.repeat(np.arange(len(tests)), sizes)
            keys = fold * self.n_rows + self.twins[rows]
            first, twin = np.unique(keys, return_index=True, return_inverse=True)[1:]
            if first.shape[0] < rows.shape[0]:
                f = f[:, first[twin]]
        f = f / steps
        np.rint(f, out=f)
        f *= steps
        return np.split(f, np.cumsum(sizes)[:-1], axis=1)

    def predict_task(
        self, task: Comparisons, routine: HoldOut | None, folds, alphas, on_fold=None
    ) -> list[np.ndarray]:
        """Predictions of each fold by algebra, or by refitting where only that is exact."""
        if routine is None:
            return self._refit(folds, alphas, task, on_fold)
        small = self._to_be_refitted(task, routine, alphas)
        if small.all():
            return self._refit(folds, alphas, task, on_fold)
        if small.any():
            grid = np.asarray(alphas)
            refitted = self._refit(folds, grid[small].tolist(), task)
            others = self.predict_task(task, routine, folds, grid[~small].tolist(), on_fold)
            order = np.argsort(np.concatenate([np.flatnonzero(small), np.flatnonzero(~small)]))
            return [np.concatenate(both)[order] for both in zip(refitted, others, strict=True)]
        if isinstance(routine, KrylovHoldOut):
            found = routine.predict(folds, alphas, on_fold=on_fold)
            warn_unless_converged(routine)
            return found
        if not self._basis_must_be_refitted():
            return routine.predict(folds, alphas, on_fold=on_fold)
        feature_map = self.feature_map()
        assert feature_map is not None
        touched = [bool(np.isin(fold, feature_map.basis_indices_).any()) for fold in folds]
        plain = [fold for fold, touches in zip(folds, touched, strict=True) if not touches]
        easy = iter(routine.predict(plain, alphas) if plain else [])
        predictions = []
        for number, (fold, touches) in enumerate(zip(folds, touched, strict=True)):
            predictions.append(self._refit([fold], alphas, task)[0] if touches else next(easy))
            if on_fold is not None:
                on_fold(number + 1)
        return predictions

    def _to_be_refitted(self, task: Comparisons, routine: HoldOut, alphas: Sequence[float]) -> np.ndarray:
        """The alphas at which rounding decides, though a refit would not let it.

        Zᵀ b has no closed half to vanish with where little is compared, and squares of features hide directions that
        their singular values show.
        """
        none = np.zeros(len(alphas), dtype=bool)
        features = self.kernel.is_linear and self.feature_map() is None and not sp.issparse(self.X)
        if isinstance(routine, KrylovHoldOut) or is_device_array(self.X) or (task.has_half and not features):
            return none
        small = np.asarray(alphas) < LEAST_CONDITION * routine.size
        return small if small.any() and (not task.has_half or self._has_hidden_directions) else none

    @cached_property
    def _has_hidden_directions(self) -> bool:
        """Whether dense features, each in its own unit, are so near to collinear that their squares hide it."""
        X = centred(_double(self.X), one_group(self.n_rows))[0]
        sizes = np.abs(X).max(axis=0, initial=0.0)
        sigma = np.linalg.svd(X[:, sizes > 0] / sizes[sizes > 0], compute_uv=False)
        shares = sigma / sigma.max(initial=np.finfo(float).tiny)
        return bool(((shares > 4 * np.finfo(float).eps) & (shares < _HIDDEN)).any())

    def _basis_must_be_refitted(self) -> bool:
        """Whether K_RR of the independent basis vectors is so near to singular that what leaves is lost in rounding."""
        feature_map = self.feature_map()
        if feature_map is None:
            return False
        if is_device_array(self.X):
            return not feature_map.well_conditioned
        factor = feature_map.factor_
        return bool(factor.condition_of_pivots() < LOST_IN_ROUNDING * np.finfo(factor.C.dtype).eps)

    def _refuse_parts_of_weighted_queries(self, folds: Folds) -> None:
        if getattr(self.estimator, "weighting", None) != "query" or self.queries.n_groups == 1:
            return
        for number, rows in enumerate(folds.leaving):
            touched = np.unique(self.queries.codes[rows])
            if int(self.queries.counts[touched].sum()) != rows.shape[0]:
                raise ValueError(
                    f"Fold {number} holds out part of a query under weighting='query', where every query weighs the "
                    "same: the remaining pairs of that query would change their weight. Hold out whole queries "
                    "together, or use weighting='pair' or 'item'."
                )

    def hold_out(self, task: Comparisons, *, many_alphas: bool, n_folds: int | None = None) -> HoldOut | None:
        """The routine that holds out without refitting, or None where only refitting is exact.

        A few folds (``n_folds``) at one alpha need no eigen decomposition.
        """
        feature_map = self.feature_map()
        if _weights_are_graded(task):
            return None
        if is_device_array(self.X):
            from ..arrays.holdout import device_hold_out

            return device_hold_out(
                self.X,
                self.kernel,
                task,
                feature_map,
                solver=self.estimator.solver,
                intercept=self.intercept,
                many_alphas=many_alphas,
            )
        solver = self._solver(task, reduced=feature_map is not None)
        if solver == "cg":
            return self._iterated(_double(self.X), task) if feature_map is None else None
        if feature_map is not None:
            few = not many_alphas and n_folds is not None and n_folds <= FEW_FOLDS
            return self._few_folds(feature_map, task) if few else self._reduced(feature_map, task)
        if self.in_features(solver):
            return self._linear_hold_out(_double(self.X), task)
        # A tridiagonal form takes the memory of the kernel; a factor, or inverses for two sizes of fold, need two more.
        n_matrices = 1.25 if many_alphas and task.has_half else 3.0
        require_memory(
            int(n_matrices * 8 * self.n_rows**2),
            f"exact cross-validation with the full kernel of {self.n_rows} rows",
        )
        if not task.has_half:
            return self.stable_hold_out(task)
        K, means = self.kernel_and_means(task)
        return DualHoldOut(
            K,
            task,
            intercept=self.intercept,
            many_alphas=many_alphas,
            kernel_means=means,
            fallback=self.stable_hold_out,
        )

    def in_features(self, solver: str | None = None) -> bool:
        """Whether rows are held out in the space of the features; ``solver`` is what "auto" has chosen."""
        asked = self.estimator.solver
        if asked == "auto" and solver == "primal":
            asked = solver
        return features_serve(asked, self.kernel.is_linear, self.X)

    def preference_hold_out(
        self, task: PreferenceComparisons, *, many_alphas: bool
    ) -> PreferenceRoutine | None:
        """The routine that takes preferences out; None where the estimator has to be refitted."""
        in_rows = self.feature_map() is not None or is_device_array(self.X) or not suits_pair_space(task)
        if not in_rows:
            solver, found = self.estimator.solver, self.route(task)
            if solver == "auto":
                refuse_if_hopeless(found)
            chosen = found.chosen.solver if solver == "auto" else solver
            if chosen == "cg" and self.kernel.is_linear:
                return self._iterated_preferences(task)
            if solver in ("auto", "dual") and found.chosen.solver == "pairs":
                self._announce(found)
                return self._in_pair_space(task, many_alphas=many_alphas)
        routine = self.hold_out(task, many_alphas=many_alphas)
        return routine if isinstance(routine, FeatureHoldOut) else None

    def _in_pair_space(self, task: PreferenceComparisons, *, many_alphas: bool) -> PreferenceHoldOut:
        n_pairs = task.pairs.shape[0]
        require_memory(2 * 8 * n_pairs**2, f"held-out preferences of {n_pairs} pairs")
        if self.kernel.is_linear:
            K = linear_kernel_of_differences(self.X, task)
        else:
            K = kernel_of_differences(self.kernel_matrix(), task)
        regression = DualHoldOut(
            K,
            regression_over_pairs(task),
            many_alphas=many_alphas,
            fallback=lambda _: PairsByRows(self._by_rows(task)),
            form=BandForm if self.kernel.is_linear else TridiagonalForm,
        )
        return PreferenceHoldOut(regression, task)

    def _iterated_preferences(self, task: PreferenceComparisons) -> PreferenceHoldOut:
        regression = self._iterated(weighted_differences(self.X, task), regression_over_pairs(task))
        return PreferenceHoldOut(regression, task)

    def _by_rows(self, task: PreferenceComparisons) -> FeatureHoldOut:
        """In the space of the rows or of the features, whichever is smaller."""
        if self.kernel.is_linear and self.X.shape[1] <= self.n_rows:
            return self._linear_hold_out(_double(self.X), task)
        return self.stable_hold_out(task)

    def _solver(self, task: Comparisons, *, reduced: bool) -> str:
        """Read the table for what is expected, and say what it chose."""
        requested = choose_solver(
            self.estimator.solver,
            linear=self.kernel.is_linear,
            reduced=reduced,
            n_rows=self.n_rows,
            n_features=self.X.shape[1] if hasattr(self.X, "shape") else None,
        )
        if reduced or self.estimator.solver != "auto" or self.n_rows <= _QUICK_ROWS:
            return requested
        found = self.route(task)
        refuse_if_hopeless(found)
        self._announce(found)
        return found.chosen.solver if self.kernel.is_linear else requested

    def _announce(self, found: RouteMap) -> None:
        note("HeldOut" if self.verbose else None, str(found.chosen))
        warn_if_long(found)

    def _linear_hold_out(self, X: Any, task: Comparisons) -> FeatureHoldOut:
        """By the features themselves."""
        X, options = self._less_offsets(X, task)
        return FeatureHoldOut(X, task, **options)

    def _iterated(self, X: Any, task: Comparisons) -> KrylovHoldOut:
        """By iterations, to the tolerance of the estimator."""
        X, options = self._less_offsets(X, task)
        tol = self.estimator.tol or HELD_OUT_TOLERANCE
        return KrylovHoldOut(X, task, tol=tol, max_iter=self.estimator.max_iter, **options)

    def _less_offsets(self, X: Any, task: Comparisons) -> tuple[Any, dict[str, Any]]:
        """The features less what all rows have in common, where that is large and nothing sees it, and options."""
        options: dict[str, Any] = {"intercept": self.intercept}
        if task.ignores_constants and not sp.issparse(X):
            level = self._levels_matter and not self.intercept
            if not level or offset_is_large(X):
                X, means = centred(X, one_group(self.n_rows))
                options["offset"] = means[0] if level else None
        return X, options

    def kernel_and_means(self, task: Comparisons) -> tuple[np.ndarray, np.ndarray | None]:
        """K, and its means over the rows of each query where they do not follow from it.

        A linear kernel of dense features is formed from rows less the mean of their query: S K S is the same, and no
        digits are lost to what the rows have in common.
        """
        anchors = task.anchors()
        if not self.kernel.is_linear or sp.issparse(self.X) or anchors is None:
            return self.kernel_matrix(), None
        X, means = centred(_double(self.X), anchors)
        if self.intercept or not self._levels_matter:
            means[...] = 0.0
        return self.kernel.matrix(X), means @ X.T

    def stable_hold_out(self, task: Comparisons) -> FeatureHoldOut:
        """By features of the kernel, which stay accurate at any alpha: slower than the kernel itself."""
        if self.kernel.is_linear and not sp.issparse(self.X):
            X = _double(self.X)
            own = self._alphas is None or isinstance(self._alphas, str)
            least = np.min(self.own_alpha() if own else as_host(self._alphas))
            seen = centred(X, one_group(self.n_rows))[0] if task.ignores_constants else X
            warn_if_collinear(np.linalg.svd(seen, compute_uv=False), np.sqrt(least))
            # A rotation would mix columns that are constant inside queries with others.
            return self._linear_hold_out(X if X.shape[1] <= self.n_rows else in_row_span(X)[0], task)
        F = np.ascontiguousarray(factor_kernel(self.kernel_matrix()).F)
        return FeatureHoldOut(F, task, intercept=self.intercept)

    def kernel_matrix(self) -> np.ndarray:
        """A fresh kernel matrix in double precision."""
        if self.kernel.is_precomputed:
            return np.array(self.X, dtype=np.float64, order="C")
        return self.kernel.matrix(self.X).astype(np.float64, copy=False)

    def feature_map(self) -> Any:
        """The reduced set, drawn once on all rows."""
        if not hasattr(self, "_feature_map"):
            self._feature_map = self.estimator._reduced_set(self.X, self.kernel)
        return self._feature_map

    def _few_folds(self, feature_map: NystromMap, task: Comparisons) -> HoldOut:
        """The reduced set on its kernel values, where their condition leaves enough digits."""
        if not feature_map.factor_.well_conditioned:
            return self._reduced(feature_map, task)
        return BasisHoldOut(
            feature_map.kernel_with_basis(self.X, self.kernel).astype(np.float64, copy=False),
            feature_map.factor_,
            feature_map.basis_indices_,
            task,
            intercept=self.intercept,
            fallback=lambda comparisons: self._reduced(feature_map, comparisons),
        )

    def _reduced(self, feature_map: NystromMap, task: Comparisons) -> HoldOut:
        leaves = not self._basis_must_be_refitted()
        return FeatureHoldOut(
            feature_map.map_items(self.X, self.kernel).astype(np.float64, copy=False),
            task,
            intercept=self.intercept,
            factor=feature_map.factor_ if leaves else None,
            basis_indices=feature_map.basis_indices_ if leaves else None,
        )

    def _refit(self, folds, alphas, task: Comparisons, on_fold=None) -> list[np.ndarray]:
        """Train on the remaining rows, fold by fold and alpha by alpha."""
        predictions = []
        for number, left in enumerate(folds):
            rest = rows_outside(self.n_rows, left)
            if self.feature_map() is not None and len(alphas) > 1:
                predictions.append(self._refit_path(task.take(rest), rest, left, alphas))
            else:
                values = [self._refit_one(task.take(rest), rest, left, alpha) for alpha in alphas]
                predictions.append(np.stack(values))
            if on_fold is not None:
                on_fold(number + 1)
        return predictions

    def _refit_path(
        self, task: Comparisons, rest: np.ndarray, left: np.ndarray, alphas: Sequence[float]
    ) -> np.ndarray:
        """Every alpha of a reduced set trained on the rows that stay, from one pass over them."""
        # All rows are mapped by the basis vectors that stay: the columns of a precomputed kernel keep their numbers.
        feature_map = clone(self.feature_map()).set_params(basis=rest[self._kept_basis(rest)], n_basis=None)
        every = feature_map.fit_items(self.X, self.kernel).map_items(self.X, self.kernel)
        features = every[rest].astype(np.float64, copy=False)
        weights = np.stack(solve_primal_path(features, task, alphas))
        f = every[left] @ weights
        if self.intercept:
            f = f + self._mean_over(rest, self.scores[rest] - features @ weights)[:, None, :]
        return f

    def _mean_over(self, rows: np.ndarray, values: np.ndarray) -> np.ndarray:
        """The mean of values of some rows, shape (..., len(rows), v) to (..., v), by their weights."""
        if self.row_weights is None:
            return values.mean(axis=-2)
        w = self.row_weights[rows]
        return np.einsum("i,...iv->...v", w, values) / w.sum()

    def _kept_basis(self, rest: np.ndarray) -> np.ndarray:
        """Which of the rows that stay are basis vectors."""
        kept = np.flatnonzero(np.isin(rest, self.feature_map().basis_indices_))  # type: ignore[union-attr]
        refuse_without_basis(kept.size)
        return kept

    def _refit_one(self, task: Comparisons, rest: np.ndarray, left: np.ndarray, alpha: float) -> np.ndarray:
        model = clone(self.estimator)
        X = take_training_items(self.X, rest, self.kernel)
        feature_map = self.feature_map()
        if feature_map is not None:
            model.set_params(basis=self._kept_basis(rest), n_basis=None)
        fit = model._fit_tasks(X, self.kernel, [task], alpha, single=False)
        new = take_training_items(self.X, left, self.kernel, among=rest)
        f = as_host(model._evaluate(new, self.kernel))
        if self.intercept and self.row_weights is None:
            f = f + self.scores[rest].mean(axis=0) - fit.mean_prediction
        elif self.intercept:
            f = f + self._mean_over(rest, self.scores[rest] - as_host(model._evaluate(X, self.kernel)))
        return f


def _weights_are_graded(task: Comparisons) -> bool:
    """Whether weights of rows differ so much that what heavy ones take with them hides what light ones leave."""
    if task.row_weights is None:
        return False
    sizes = (values[values > 0] for values in (task.row_weights, task.diagonal()))
    return any(bool(size.size and size.min() < _GRADED * size.max()) for size in sizes)


def warn_unless_converged(routine: KrylovHoldOut) -> None:
    """Warn where iterations ran out before the tolerance was reached."""
    if not routine.converged:
        warnings.warn(
            f"Held-out predictions stopped after {routine.n_iter} iterations before they reached tol={routine.tol:g}: "
            "raise max_iter or tol, scale the features, or use larger alphas.",
            ConvergenceWarning,
            stacklevel=callers_level(),
        )


def _without_intercepts(kept: dict[str, list[Routine]]) -> dict[str, list[Routine]]:
    """The same routines for predictions without an intercept."""

    def without(routine: HoldOut | None) -> HoldOut | None:
        if routine is None or not routine.intercept:
            return routine
        other = copy(routine)
        other.intercept = False
        return other

    return {kind: [(task, without(routine)) for task, routine in routines] for kind, routines in kept.items()}


def _double(X):
    return X.astype(np.float64) if X.dtype != np.float64 else X
