"""The one squared-loss problem: a learner with its validated data, trained, and held out by algebra.

Which representation of f is used is chosen only here, by the rules of `squared.routes` or by the solver that was asked
for; a solver that does not suit the data is refused before any work. Where only refitting is exact, rows are held out
by refitting.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from copy import copy
from functools import cached_property
from typing import Any

import numpy as np
from sklearn.base import clone

from ..comparisons import (
    Comparisons,
    Groups,
    PreferenceComparisons,
    encode_queries,
    offset_is_large,
    one_group,
)
from ..comparisons.inputs import read_alpha, read_row_weights, read_scores
from ..kernels.functions import Kernel, n_items, take_items, take_training_items
from ..kernels.inputs import read_items
from ..numerics.linalg import LEAST_CONDITION, first_equal_items, first_equal_rows
from ..numerics.namespace import Home, as_host, is_device_array
from ..progress import Stages, note
from ..squared.base import Asked, Inputs, PreferenceRoutine, Representation
from ..squared.conjugate_gradients import largest_eigenvalue
from ..squared.holdout.base import HoldOut, cost_of_removal
from ..squared.holdout.pair import suits_pair_space
from ..squared.problem import SquaredLossFit
from ..squared.representations import represent
from ..squared.routes import (
    FEW_SETS,
    Plan,
    Removed,
    Workload,
    one_inverse_is_cheaper,
    plan,
    refitting_is_cheaper,
    square_form,
    warn_if_long,
)
from ._basis_rows import refuse_folds_of_whole_basis, refuse_whole_basis
from ._choice import BLIND_GRID, auto_grid, count_alphas, read_grid, relative_rounding, spread_of
from ._folds import Folds
from ._learner import SquaredLossLearner, read_censored, takes
from ._pair_holdout import predict_pairs, tally_all_pairs
from ._refitting import refit_task
from ._tally import PairTally

# Where a row, or what it is compared with, has a smaller share of the largest weight, rows are held out by refitting.
_GRADED = 1e-6
# The last bits of a prediction, relative to it.
_LAST_BITS = 2.0**-48
# Half of the precision of a prediction, relative to it.
_HALF_PRECISION = 2.0**-26
# A task with the routine that holds its rows out, or None where only refitting is exact.
Routine = tuple[Comparisons, HoldOut | None]


def has_closed_form(estimator: Any) -> bool:
    """Whether rows can be held out by algebra; a search might choose another alpha without them, so it is refitted."""
    return isinstance(estimator, SquaredLossLearner) and hasattr(estimator, "alpha")


class Problem:
    """A squared-loss learner with its validated data: what training, hold-outs and searches start from.

    Parameters
    ----------
    estimator : SquaredLossLearner
    X : validated items
    kernel : Kernel
    tasks : sequence of Comparisons, optional
        One that all outputs share, or one per output where L depends on the scores; by default those of the scores.
    scores : ndarray of shape (m, v), optional
    single : bool
        Whether y came as one column.
    queries : Groups, optional
    row_weights : ndarray of shape (m,), optional
    events : ndarray of bool, shape (m,), optional
        Where the scores are censored times.

    Attributes
    ----------
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
        self,
        estimator: Any,
        X: Any,
        kernel: Kernel,
        tasks: Sequence[Comparisons] | None = None,
        *,
        scores: np.ndarray | None = None,
        single: bool = True,
        queries: Groups | None = None,
        row_weights: np.ndarray | None = None,
        events: np.ndarray | None = None,
    ) -> None:
        self.estimator, self.X, self.kernel, self._tasks = estimator, X, kernel, tasks
        self.scores: np.ndarray = np.empty((n_items(X), 0)) if scores is None else scores
        self.single, self.row_weights, self.events = single, row_weights, events
        self.queries = one_group(n_items(X)) if queries is None else queries
        self._kept: dict[str, list[Routine]] = {}

    @classmethod
    def read(
        cls, estimator: Any, X: Any, y: Any, qid: Any, sample_weight: Any = None, event: Any = None
    ) -> Problem:
        """Validate the data of a training; what is known about the columns is stored in the estimator."""
        kernel = estimator._read_kernel()
        X = read_items(estimator, X, kernel, reset=True)
        m = n_items(X)
        y, events = read_censored(estimator, X, y, event)
        if qid is not None and not takes(type(estimator).fit, "qid"):
            qid = None  # a regressor is held out by query but does not compare inside queries
        queries = encode_queries(qid, m)
        scores, single = read_scores(y, m, estimator=estimator)
        weights = read_row_weights(sample_weight, m, X)
        known: dict[str, Any] = {
            "single": single,
            "queries": queries,
            "row_weights": weights,
            "events": events,
        }
        return cls(estimator, X, kernel, scores=scores, **known)

    @property
    def n_rows(self) -> int:
        return n_items(self.X)

    @property
    def tasks(self) -> Sequence[Comparisons]:
        """The comparisons of each output, or of all."""
        if self._tasks is None and self.events is not None:
            times = (self.scores, self.events, self.queries, self.row_weights)
            self._tasks = [self.estimator._compare_times(*times)]
        elif self._tasks is None:
            self._tasks = self.estimator._compare(self.scores, self.queries, self.row_weights)
        return self._tasks

    @cached_property
    def inputs(self) -> Inputs:
        """The items with their kernel and the reduced set, drawn once on all rows."""
        return Inputs(self.X, self.kernel, self.estimator._reduced_set(self.X, self.kernel))

    @property
    def feature_map(self) -> Any:
        """The reduced set; None without one."""
        return self.inputs.feature_map

    @cached_property
    def twins(self) -> np.ndarray:
        """For each row the first row that equals it, shape (m,)."""
        if self.kernel.takes_objects:
            return first_equal_items(self.kernel.matrix(self.X))
        X = as_host(self.X) if is_device_array(self.X) else self.X
        return first_equal_items(X) if self.kernel.is_precomputed else first_equal_rows(X)

    # Training

    def solve(self, alpha: Any, *, with_mean: bool = True, stages: Stages | None = None) -> SquaredLossFit:
        """The coefficients at one alpha, or of each output at its own; ``with_mean`` asks for `mean_prediction`."""
        stages, tasks, rows = stages or Stages(None), self.tasks, None
        if not is_device_array(self.X):
            tasks = _without_weightless(tasks)
            rows = _compared_rows(tasks)
        if rows is not None and self.feature_map is None and not with_mean:
            return self._solve_compared_rows(tasks[0], rows, alpha, stages)
        # Another kernel may not be positive definite, which a matrix of some differences does not reveal.
        in_pairs = self.kernel.has_blocks and not with_mean and _has_pair_space(tasks)
        chosen = self._plan(
            tasks, np.ravel(alpha), purpose="train", n_pairs=tasks[0].n_comparisons if in_pairs else 0
        )
        if chosen.found is not None:
            stages.note(str(chosen.found.chosen))
            warn_if_long(chosen.found)
        return self._represent(tasks, chosen, stages).solve(alpha, with_mean=with_mean)

    def _solve_compared_rows(
        self, task: Comparisons, rows: np.ndarray, alpha: float, stages: Stages
    ) -> SquaredLossFit:
        """Rows that are not compared have no part in the model: their coefficients are zero."""
        X = take_training_items(self.X, rows, self.kernel)
        part = Problem(self.estimator, X, self.kernel, [task.take(rows)])
        fit = part.solve(alpha, with_mean=False, stages=stages)
        if fit.dual_coef is not None:
            coef = np.zeros((task.n_rows, fit.dual_coef.shape[1]), dtype=fit.dual_coef.dtype)
            coef[rows] = fit.dual_coef
            fit.dual_coef, fit.basis_indices = coef, np.arange(task.n_rows)
        return fit

    def on_rows(self, rows: np.ndarray, task: Comparisons) -> Problem:
        """A training on some of the rows, by a clone of the estimator whose basis vectors are those among them."""
        model = clone(self.estimator)
        if self.feature_map is not None:
            model.set_params(basis=self.basis_among(rows), n_basis=None)
        X = take_training_items(self.X, rows, self.kernel)
        return Problem(model, X, self.kernel, [task], single=False)

    def basis_among(self, rows: np.ndarray) -> np.ndarray:
        """Which of these rows are basis vectors."""
        kept = np.flatnonzero(np.isin(rows, self.feature_map.basis_indices_))
        refuse_whole_basis(kept.size, "A fold")
        return kept

    # The route

    def expect(self, sets: Sequence[np.ndarray], alphas: Any, *, n_pairs: int = 0, verbose: int = 0) -> None:
        """Announce which sets of rows will be held out at which alphas; the route is chosen accordingly.

        ``alphas`` are what the caller gave. With ``n_pairs`` the sets divide that many preferences.
        """
        purpose = "folds" if len(sets) <= FEW_SETS else "queries"
        sizes = {"n_folds": len(sets), "n_pairs": n_pairs}
        self._expect("preferences" if n_pairs else purpose, alphas, verbose, **sizes)

    def expect_pairs(self, alphas: Any, *, verbose: int = 0) -> None:
        """The same for pairs of rows."""
        self._expect("pairs", alphas, verbose)

    def _expect(self, purpose: str, alphas: Any, verbose: int, **sizes: int) -> None:
        self._alphas, self._planned, self.verbose = alphas, None, verbose
        self._expected = {"purpose": purpose, "n_alphas": count_alphas(alphas), **sizes}

    def plan(self, task: Comparisons) -> Plan:
        """The route for what was announced; reported once, before it is taken."""
        if self._planned is None:
            self._planned = self._plan([task], self._alphas, **self._expected)
            if self._planned.found is not None:
                note("HeldOut" if self.verbose else None, str(self._planned.found.chosen))
                warn_if_long(self._planned.found)
        return self._planned

    def _plan(self, tasks: Sequence[Comparisons], alphas: Any, **sizes: Any) -> Plan:
        def spread() -> float:
            largest = max(largest_eigenvalue(self.X, task) for task in tasks)
            return spread_of(alphas, getattr(self.estimator, "alpha", None), largest)

        sizes["pair_space"] = _has_pair_space(tasks)
        return plan(self._workload(tasks, **sizes), self.estimator.solver, spread=spread)

    def _workload(self, tasks: Sequence[Comparisons], **sizes: Any) -> Workload:
        return self.inputs.workload(tasks, tol=getattr(self.estimator, "tol", None), **sizes)

    def representation(self, task: Comparisons) -> Representation:
        """The representation for what was announced."""
        return self._represent([task], self.plan(task), Stages(None))

    def _represent(self, tasks: Sequence[Comparisons], chosen: Plan, stages: Stages) -> Representation:
        options: dict[str, Any] = {
            name: getattr(self.estimator, name, None) for name in ("solver", "tol", "max_iter")
        }
        return represent(self.inputs, tasks, chosen.solver, stages=stages, **options)

    # Hold-outs

    def for_order(self, *, across_folds: bool = False) -> Problem:
        """The same problem, its predictions only to be compared with each other; factorisations are shared."""
        _ = self.inputs  # drawn once for both
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

    def of_distinct_rows(self) -> tuple[Problem, np.ndarray]:
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
        return Problem(self.estimator, take_items(self.X, distinct), self.kernel), place

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
        if not is_device_array(self.X):
            return values
        home = Home.of(self.X)
        return home.put_as_is(values) if values.dtype.kind == "i" else home.put(values)

    @property
    def intercept(self) -> bool:
        return bool(getattr(self.estimator, "fit_intercept", False)) and self._levels_matter

    def read_alphas(self, alphas: Any) -> Any:
        """The grid that ``alphas`` stands for; None is the alpha of the estimator."""
        if alphas is None:
            return [read_alpha(self.estimator.alpha)]
        return read_grid(alphas, self.automatic_alphas)

    def automatic_alphas(self) -> np.ndarray:
        """Placed by the spectrum, which is not known where only refitting is possible."""
        routines = [routine for _, routine in self.routines(many_alphas=True)]
        known = [routine for routine in routines if routine is not None]
        if len(known) < len(routines):
            return BLIND_GRID
        largest = max(routine.largest_eigenvalue for routine in known)
        return auto_grid(largest, iterated=any(routine.iterates for routine in known))

    def with_targets(self, y: Any) -> Problem:
        """The same rows with other scores; factorisations are reused where they do not depend on the scores."""
        other = copy(self)
        y, other.events = read_censored(self.estimator, self.X, y, None)
        other.scores, other.single = read_scores(y, self.n_rows, estimator=self.estimator)
        other._tasks, other._kept, other._planned = None, {}, None
        censored = self.events is not None or other.events is not None
        if censored or self.estimator._comparisons_depend_on_scores():
            return other
        (task,) = other.tasks
        for kind, [(_, routine)] in self._kept.items():
            moved = None if routine is None else routine.with_targets(task)
            if moved is not None:
                other._kept[kind] = [(task, moved)]
        return other

    def release(self) -> None:
        """Give back the memory of the factorisations."""
        self._kept = {}

    @property
    def how(self) -> str:
        """How rows are held out, in words."""
        return "factorised" if self._kept else "not factorised yet"

    @property
    def has_path(self) -> bool:
        """Whether there is a factorisation for every alpha."""
        return "path" in self._kept

    def routines(self, *, many_alphas: bool) -> Iterator[Routine]:
        """Each task with its routine; existing routines are reused.

        Where every output has its own comparisons, only a path of alphas keeps more than one factorisation.
        """
        kind = "path" if many_alphas or self.has_path else "one"
        if kind in self._kept and not self._has_better_route(kind):
            yield from self._kept[kind]
            return
        kept: list[Routine] = []
        for task in self.tasks:
            routine = self.hold_out(task, many_alphas=many_alphas)
            if kind == "path" or len(self.tasks) == 1:
                kept.append((task, routine))
            yield task, routine
        if kept:
            self._kept[kind] = kept

    def _has_better_route(self, kind: str) -> bool:
        """Whether the routine kept iterates, and a square matrix is better for the present request."""
        task, routine = self._kept[kind][0]
        iterates = routine is not None and routine.iterates and self.estimator.solver == "auto"
        return iterates and self.plan(task).solver != "cg"

    def predict_folds(self, folds: Folds, alphas: Sequence[Any], on_fold: Any = None) -> list[np.ndarray]:
        """Predictions of the test rows of each fold, shape (n_alphas, n_test, v)."""
        if getattr(self.estimator, "weighting", None) == "query" and self.queries.n_groups > 1:
            _refuse_parts_of_queries(self.queries, folds)
        if self.feature_map is not None:
            refuse_folds_of_whole_basis(self.feature_map.basis_indices_, folds.leaving)
        routines: Iterable[Routine] = self.routines(many_alphas=len(alphas) > 1)
        if self.is_refitted(folds.leaving, alphas):
            routines = [(task, None) for task in self.tasks]
        outputs = [
            self.predict_task(task, routine, folds.leaving, alphas, on_fold) for task, routine in routines
        ]
        joined = outputs[0] if len(outputs) == 1 else [np.concatenate(one, axis=2) for one in zip(*outputs)]
        found = folds.of_tests(joined, self.n_rows)
        return self._tied(found, folds.tests, alphas) if self.to_compare else self._alike(found, folds.tests)

    def is_refitted(self, sets: Sequence[np.ndarray], alphas: Sequence[Any]) -> bool:
        """Whether training on the rows that stay costs less than algebra: rule 7 of `squared.routes`."""
        if is_device_array(self.X) or self.plan(self.tasks[0]).solver == "cg":
            return False
        few = sets[:: max(1, len(sets) // FEW_SETS)]
        kind = "path" if len(alphas) > 1 or self.has_path else "one"
        sizes = {"purpose": "folds", "n_alphas": len(alphas), "n_folds": len(sets)}
        return all(
            refitting_is_cheaper(
                self._workload([task], **sizes),
                square_form(self._workload([task], **sizes), self.estimator.solver),
                [Removed(one.shape[0], *cost_of_removal(task, one)) for one in few],
                task.n_outputs,
                factorised=kind in self._kept,
            )
            for task in self.tasks
        )

    def shares_inverse(self, task: Comparisons, n_sets: int, n_left: int, n_alphas: int) -> bool:
        """Whether sets of rows that leave one ranking alike are held out from one inverse: rule 7."""
        solver = self.plan(task).solver
        workload = self._workload([task], purpose="folds", n_alphas=n_alphas, n_folds=n_sets)
        return solver != "cg" and one_inverse_is_cheaper(workload, solver, n_sets, n_left)

    def in_order(
        self, predictions: list[np.ndarray], folds: Folds, alphas: Sequence[float], *, pooled: bool
    ) -> list[np.ndarray]:
        """Predictions whose order is right: rows that differ only by rounding are tied.

        Where their differences are tiny relative to what they have in common, they are computed again without it.
        """
        if not pooled and _drowns(predictions):
            return self.for_order().predict_folds(folds, alphas)
        return self._tied(predictions, folds.tests, alphas)

    def _tied(
        self, predictions: list[np.ndarray], tests: list[np.ndarray], alphas: Sequence[float]
    ) -> list[np.ndarray]:
        """Give equal rows of a fold equal predictions, and remove differences that are rounding."""
        found = self._alike(predictions, tests)
        f = np.concatenate(found, axis=1)
        steps = _LAST_BITS * np.maximum(f.max(axis=1), -f.min(axis=1))  # (a, v)
        terms = [routine.size for kept in self._kept.values() for _, routine in kept if routine is not None]
        if terms:
            spread = np.ptp(self.scores, axis=0) if self.events is None else np.ones(1)
            steps += np.outer([relative_rounding(max(terms), alpha) for alpha in alphas], spread)
        steps = np.where(steps > 0, steps, 1.0)[:, None, :]
        return [np.rint(one / steps) * steps for one in found]

    def _alike(self, predictions: list[np.ndarray], tests: list[np.ndarray]) -> list[np.ndarray]:
        """The same predictions for equal rows of a fold, which products of matrices may round differently."""
        if (self.twins == np.arange(self.n_rows)).all():
            return predictions
        return [
            found[:, first[twin]]
            for found, test in zip(predictions, tests, strict=True)
            for _, first, twin in [np.unique(self.twins[test], return_index=True, return_inverse=True)]
        ]

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
        if routine.iterates or not self.inputs.basis_is_refitted:
            found = _predict_by_algebra(task, routine, folds, alphas, on_fold)
            routine.warn_unless_converged()
            return found
        touched = [bool(np.isin(fold, self.feature_map.basis_indices_).any()) for fold in folds]
        plain = [fold for fold, touches in zip(folds, touched, strict=True) if not touches]
        easy = iter(_predict_by_algebra(task, routine, plain, alphas) if plain else [])
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
        if routine.iterates or is_device_array(self.X) or (task.has_half and not features):
            return none
        small = np.asarray(alphas) < LEAST_CONDITION * routine.size
        return small if small.any() and (not task.has_half or self.inputs.has_hidden_directions) else none

    def _refit(self, folds, alphas, task: Comparisons, on_fold=None) -> list[np.ndarray]:
        """Train on the remaining rows, fold by fold and alpha by alpha."""
        return refit_task(self, task, folds, alphas, on_fold)

    def hold_out(self, task: Comparisons, *, many_alphas: bool) -> HoldOut | None:
        """The routine that holds out without refitting, or None where only refitting is exact."""
        _ = self.inputs  # refuses what is not supported
        if _weights_are_graded(task):
            return None
        representation = self.representation(task)
        if not is_device_array(self.X) and self.plan(task).solver != "cg":
            task = task.magnitudes_without(np.empty(0, dtype=np.int64)) or task
        return representation.hold_out(task, self.asked(many_alphas=many_alphas))

    def hold_out_preferences(
        self, task: PreferenceComparisons, *, many_alphas: bool
    ) -> PreferenceRoutine | None:
        """The routine that holds preferences out; None where the estimator has to be refitted."""
        return self.representation(task).hold_out_preferences(task, self.asked(many_alphas=many_alphas))

    def asked(self, *, many_alphas: bool) -> Asked:
        """What is required of held-out predictions."""
        return Asked(self.intercept, self._levels_matter, many_alphas, self._least_alpha)

    def _least_alpha(self) -> float:
        own = self._alphas is None or isinstance(self._alphas, str)
        return float(np.min(read_alpha(self.estimator.alpha) if own else as_host(self._alphas)))

    def predict_pairs(
        self, pairs: np.ndarray, alphas: Sequence[float], groups: Any, verbose: int
    ) -> np.ndarray:
        """Predictions for both rows of each pair by the model trained without the two, shape (n_alphas, p, 2, v)."""
        return predict_pairs(self, pairs, alphas, groups, verbose)

    def tally_pairs(self, alphas: Sequence[float], groups: Any, verbose: int) -> list[PairTally]:
        """For each alpha all pairs with different y, and how many are ordered as y is."""
        return tally_all_pairs(self.for_order(), alphas, groups, verbose)


def _predict_by_algebra(task: Comparisons, routine: HoldOut, folds, alphas, on_fold=None) -> list[np.ndarray]:
    if routine.comparisons is task:
        return routine.predict(folds, alphas, on_fold=on_fold)
    predictions = []
    for number, fold in enumerate(folds):  # ranks among the rows that stay are those of this fold alone
        magnitudes = task.magnitudes_without(fold)
        moved = None if magnitudes is None else routine.with_targets(magnitudes)
        assert moved is not None
        predictions += moved.predict([fold], alphas)
        if on_fold is not None:
            on_fold(number + 1)
    return predictions


def _has_pair_space(tasks: Sequence[Comparisons]) -> bool:
    """Whether these are preferences whose weights suit one matrix."""
    return isinstance(tasks[0], PreferenceComparisons) and suits_pair_space(tasks[0])


def _without_weightless(tasks: Sequence[Comparisons]) -> Sequence[Comparisons]:
    """Drop preferences of weight zero, which carry no information."""
    task = tasks[0]
    if not isinstance(task, PreferenceComparisons) or not 0 < task.n_comparisons < task.pairs.shape[0]:
        return tasks
    return [task.without(np.flatnonzero(task.weight == 0))]


def _compared_rows(tasks: Sequence[Comparisons]) -> np.ndarray | None:
    """The rows that preferences name, ascending; None where these are all of them."""
    task = tasks[0]
    if not isinstance(task, PreferenceComparisons):
        return None
    rows = np.unique(task.pairs)
    return rows if rows.shape[0] < task.n_rows else None


def _refuse_parts_of_queries(queries: Groups, folds: Folds) -> None:
    for number, rows in enumerate(folds.leaving):
        if not queries.are_whole(rows):
            raise ValueError(
                f"Fold {number} holds out part of a query under weighting='query', where all queries have the same "
                "weight: the weights of the remaining pairs of that query would change. Hold out whole queries "
                "together, or use weighting='pair' or 'item'."
            )


def _drowns(predictions: list[np.ndarray]) -> bool:
    """Whether predictions of some alpha differ inside every fold by less than half of their precision."""
    low = np.stack([f.min(axis=1) for f in predictions])  # (f, a, v)
    high = np.stack([f.max(axis=1) for f in predictions])
    spread, size = (high - low).max(axis=(0, 2)), np.maximum(high, -low).max(axis=(0, 2))
    return bool((spread < _HALF_PRECISION * size).any())


def _weights_are_graded(task: Comparisons) -> bool:
    """Whether weights of rows differ so much that removing heavy rows hides what the light ones leave."""
    if task.row_weights is None:
        return False
    sizes = (values[values > 0] for values in (task.row_weights, task.diagonal()))
    return any(bool(size.size and size.min() < _GRADED * size.max()) for size in sizes)


def _without_intercepts(kept: dict[str, list[Routine]]) -> dict[str, list[Routine]]:
    """The same routines for predictions without an intercept."""

    def without(routine: HoldOut | None) -> HoldOut | None:
        if routine is None or not routine.intercept:
            return routine
        other = copy(routine)
        other.intercept = False
        return other

    return {kind: [(task, without(routine)) for task, routine in routines] for kind, routines in kept.items()}
