"""A squared-loss learner with its validated data, held out by algebra, or by refitting where only that is exact."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Iterator, Sequence
from copy import copy
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

from ..comparisons import (
    Comparisons,
    Groups,
    PreferenceComparisons,
    encode_queries,
    offset_is_large,
    one_group,
)
from ..comparisons.inputs import read_alpha, read_row_weights, read_scores
from ..kernels.functions import Kernel, n_items, take_items
from ..kernels.inputs import read_items
from ..numerics.linalg import first_equal_items, first_equal_rows
from ..numerics.namespace import Home, as_host, is_device_array
from ..numerics.threads import over_ranges
from ..progress import note
from ..squared.choice import SquaredLossProblem
from ..squared.conjugate_gradients import largest_eigenvalue
from ..squared.holdout.base import LEAST_CONDITION, HoldOut
from ..squared.holdout.basis import FEW_FOLDS
from ..squared.holdout.krylov import KrylovHoldOut
from ..squared.representations import Asked, Inputs, Representation
from ..squared.representations.base import PreferenceRoutine
from ..squared.routes import FEW_SETS, Plan, RouteMap, callers_level, plan, warn_if_long
from ._basis_rows import refuse_folds_of_whole_basis
from ._choice import BLIND_GRID, auto_grid, count_alphas, relative_rounding, spread_of
from ._folds import Folds
from ._learner import SquaredLossLearner
from ._refitting import refit_task

# Where a row, or what it is compared with, has a smaller share of the largest weight, rows are held out by refitting.
_GRADED = 1e-6
# The last bits of a prediction, relative to it.
_LAST_BITS = 2.0**-48
# Predictions whose rounding is worth a thread.
_WORTH_A_THREAD = 1 << 16
# A task with the routine that holds its rows out, or None where only refitting is exact.
Routine = tuple[Comparisons, HoldOut | None]


def has_closed_form(estimator: Any) -> bool:
    """Whether rows can be held out by algebra; a search might choose another alpha without them, so it is refitted."""
    return isinstance(estimator, SquaredLossLearner) and hasattr(estimator, "alpha")


@lru_cache
def _takes_qid(fit: Any) -> bool:
    """Whether fit has an argument qid (cached: inspecting a signature takes a while)."""
    return "qid" in inspect.signature(fit).parameters


class LearningProblem:
    """A squared-loss estimator with its validated data: what hold-out, leave-pair-out and searches start from.

    Attributes
    ----------
    estimator : SquaredLossLearner
        A clone that holds ``n_features_in_`` and similar attributes.
    X : validated items
    scores : ndarray of shape (m, v)
    single : bool
    queries : Groups
    kernel : Kernel
    row_weights : ndarray of shape (m,) or None
    to_compare : bool
        Whether only the order of predictions inside a fold is needed: then they lack an intercept and what rows of a
        query have in common, and are equal where they differ only by rounding.
    across_folds : bool
        With `to_compare`: whether predictions of different folds are compared too, so that nothing may be left out.

    Notes
    -----
    Factorisations are kept: one serves all folds, and one that was made for a path of alphas serves every alpha.
    """

    to_compare = False
    across_folds = False
    verbose = 0
    # What will be asked for: sizes of a `Workload`.
    _expected: dict[str, Any] = {"purpose": "pairs"}
    _alphas: Any = "auto"
    _planned: Plan | None = None

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
        """The same problem, its predictions only to be compared with each other; factorisations are shared."""
        self.feature_map()  # drawn once for both
        other = copy(self)
        other.to_compare, other.across_folds = True, across_folds
        if not across_folds:
            other._kept = {} if self._has_large_offsets() else _without_intercepts(self._kept)
        elif not self._levels_matter:
            other._kept = {}
        return other

    def _has_large_offsets(self) -> bool:
        """Whether differences of predictions may be lost in what the features of all rows have in common."""
        dense = self.inputs.is_dense_linear and not is_device_array(self.X)
        return bool(dense and offset_is_large(self.inputs.double()))

    def expect(self, sets: Sequence[np.ndarray], alphas: Any, *, n_pairs: int = 0) -> None:
        """Announce which sets of rows will be held out at which alphas; the route is chosen accordingly.

        ``alphas`` are what the caller gave. With ``n_pairs`` the sets divide that many preferences.
        """
        self._alphas, self._planned = alphas, None
        purpose = "folds" if len(sets) <= FEW_SETS else "queries"
        self._expected = {
            "purpose": "preferences" if n_pairs else purpose,
            "n_folds": len(sets),
            "n_alphas": count_alphas(alphas),
            "n_pairs": n_pairs,
        }

    def expect_pairs(self, alphas: Any) -> None:
        """The same for pairs of rows."""
        self._alphas, self._planned = alphas, None
        self._expected = {"purpose": "pairs", "n_alphas": count_alphas(alphas)}

    def route(self, task: Comparisons) -> RouteMap:
        """The route for what is expected, and the others; for rows on the host and without a reduced set."""
        workload = self._squared_loss(task).workload(**self._expected)
        found = plan(workload, spread=lambda: self._spread(task)).found
        assert found is not None
        return found

    def _spread(self, task: Comparisons) -> float:
        """The spread of the spectrum: knowing the number of iterations is worth a few passes over the data."""
        largest = largest_eigenvalue(self.X, task)
        return spread_of(self._alphas, getattr(self.estimator, "alpha", None), largest)

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
        """The problem with equal rows merged, for preferences; and the position of each row in it.

        Preferences depend only on f(x_i), so equal rows are one. A reduced set is drawn from the original rows.
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
        """Whether what predictions of a fold have in common matters."""
        return not self.to_compare or self.across_folds

    @property
    def comparable_across_folds(self) -> bool:
        """Whether predictions are complete, so that those of a regression may be compared across folds."""
        return self._levels_matter

    def at_home(self, values: np.ndarray) -> Any:
        """Results for the caller: on the device of X where X is on a device."""
        return Home.of(self.X).put(values) if is_device_array(self.X) else values

    @property
    def intercept(self) -> bool:
        return bool(getattr(self.estimator, "fit_intercept", False)) and self._levels_matter

    def tasks(self) -> list[Comparisons]:
        return self.estimator._compare(self.scores, self.queries, self.row_weights)

    def own_alpha(self) -> float:
        return read_alpha(self.estimator.alpha)

    def automatic_alphas(self) -> np.ndarray:
        """Placed by the spectrum, which is not known where only refitting is possible."""
        routines = list(self.routines(many_alphas=True))
        if any(routine is None for _, routine in routines):
            return BLIND_GRID
        largest = max(routine.largest_eigenvalue for _, routine in routines if routine is not None)
        return auto_grid(largest, iterated=any(isinstance(one, KrylovHoldOut) for _, one in routines))

    def with_targets(self, y: Any) -> LearningProblem:
        """The same rows with other scores; factorisations are reused where they do not depend on the scores."""
        other = copy(self)
        other.scores, other.single = read_scores(y, self.n_rows, estimator=self.estimator)
        other._kept, other._planned = {}, None
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
        """Whether there is a factorisation for every alpha."""
        return "path" in self._kept

    def routines(self, *, many_alphas: bool, n_folds: int | None = None) -> Iterator[Routine]:
        """Each task with its routine; existing routines are reused.

        Where every output has its own comparisons, only a path of alphas keeps more than one factorisation.
        """
        few = _are_few(many_alphas, n_folds)
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
        """Whether the routine kept iterates, and a square matrix is better for the present request."""
        task, routine = self._kept[kind][0]
        if not isinstance(routine, KrylovHoldOut) or self.estimator.solver != "auto":
            return False
        return self._plan(task).solver != "cg"

    def predict_folds(self, folds: Folds, alphas: Sequence[Any], on_fold: Any = None) -> list[np.ndarray]:
        """Predictions of the test rows of each fold, shape (n_alphas, n_test, v)."""
        if getattr(self.estimator, "weighting", None) == "query" and self.queries.n_groups > 1:
            _refuse_parts_of_queries(self.queries, folds)
        feature_map = self.feature_map()
        if feature_map is not None:
            refuse_folds_of_whole_basis(feature_map.basis_indices_, folds.leaving)
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
        """Give equal rows of a fold equal predictions, and remove differences that are rounding."""
        rows, f = np.concatenate(tests), np.concatenate(predictions, axis=1)
        extremes = over_ranges(_extremes, f.shape[0], f, least=1 + _WORTH_A_THREAD // max(1, f[0].size))
        steps = _LAST_BITS * np.concatenate(extremes)  # (a, v)
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
        over_ranges(_round_off, f.shape[0], f, steps, least=1 + _WORTH_A_THREAD // max(1, f[0].size))
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
        if not self.inputs.basis_is_refitted:
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
        """The alphas at which rounding would decide here, but not in a refit.

        Without a closed half, Zᵀ b does not vanish where little is compared, and squares of features hide directions
        that their singular values show.
        """
        none = np.zeros(len(alphas), dtype=bool)
        features = self.inputs.is_dense_linear
        if isinstance(routine, KrylovHoldOut) or is_device_array(self.X) or (task.has_half and not features):
            return none
        small = np.asarray(alphas) < LEAST_CONDITION * routine.size
        return small if small.any() and (not task.has_half or self.inputs.has_hidden_directions) else none

    def hold_out(self, task: Comparisons, *, many_alphas: bool, n_folds: int | None = None) -> HoldOut | None:
        """The routine that holds out without refitting, or None where only refitting is exact.

        A few folds (``n_folds``) at one alpha need no eigendecomposition.
        """
        self.feature_map()  # refuses what is not supported
        if _weights_are_graded(task):
            return None
        return self.representation(task).hold_out(task, self.asked(many_alphas=many_alphas, n_folds=n_folds))

    def preference_hold_out(
        self, task: PreferenceComparisons, *, many_alphas: bool
    ) -> PreferenceRoutine | None:
        """The routine that holds preferences out; None where the estimator has to be refitted."""
        return self.representation(task).hold_out_preferences(task, self.asked(many_alphas=many_alphas))

    def asked(self, *, many_alphas: bool, n_folds: int | None = None) -> Asked:
        """What is required of held-out predictions."""
        few = _are_few(many_alphas, n_folds)
        return Asked(self.intercept, self._levels_matter, many_alphas, few, self._least_alpha)

    def _least_alpha(self) -> float:
        own = self._alphas is None or isinstance(self._alphas, str)
        return float(np.min(self.own_alpha() if own else as_host(self._alphas)))

    def representation(self, task: Comparisons) -> Representation:
        """The representation for what was announced."""
        return self._squared_loss(task).represent(self._plan(task))

    def _squared_loss(self, task: Comparisons) -> SquaredLossProblem:
        options = {name: getattr(self.estimator, name, None) for name in ("tol", "max_iter")}
        return SquaredLossProblem(self.inputs, [task], solver=self.estimator.solver, **options)

    def _plan(self, task: Comparisons) -> Plan:
        """The route for what was announced; reported once, before it is taken."""
        if self._planned is None:
            spread = lambda: self._spread(task)  # noqa: E731
            self._planned = self._squared_loss(task).plan(spread=spread, **self._expected)
            if self._planned.found is not None:
                note("HeldOut" if self.verbose else None, str(self._planned.found.chosen))
                warn_if_long(self._planned.found)
        return self._planned

    @cached_property
    def inputs(self) -> Inputs:
        """The items with their kernel and the reduced set, drawn once on all rows."""
        return Inputs(self.X, self.kernel, self.estimator._reduced_set(self.X, self.kernel))

    def feature_map(self) -> Any:
        """The reduced set; None without one."""
        return self.inputs.feature_map

    def _refit(self, folds, alphas, task: Comparisons, on_fold=None) -> list[np.ndarray]:
        """Train on the remaining rows, fold by fold and alpha by alpha."""
        return refit_task(self, task, folds, alphas, on_fold)


def _are_few(many_alphas: bool, n_folds: int | None) -> bool:
    return not many_alphas and n_folds is not None and n_folds <= FEW_FOLDS


def _refuse_parts_of_queries(queries: Groups, folds: Folds) -> None:
    for number, rows in enumerate(folds.leaving):
        if not queries.are_whole(rows):
            raise ValueError(
                f"Fold {number} holds out part of a query under weighting='query', where all queries have the same "
                "weight: the weights of the remaining pairs of that query would change. Hold out whole queries "
                "together, or use weighting='pair' or 'item'."
            )


def _extremes(f: np.ndarray, first: int, last: int) -> np.ndarray:
    """The largest size of each output at the alphas from first to last, shape (last - first, v)."""
    return np.maximum(f[first:last].max(axis=1), -f[first:last].min(axis=1))


def _round_off(f: np.ndarray, steps: np.ndarray, first: int, last: int) -> None:
    """Round to multiples of the steps, in place."""
    part = f[first:last]
    part /= steps[first:last]
    np.rint(part, out=part)
    part *= steps[first:last]


def _weights_are_graded(task: Comparisons) -> bool:
    """Whether weights of rows differ so much that removing heavy rows hides what the light ones leave."""
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
