"""Held-out predictions of any estimator: a clone is fitted on the rows that stay, for every fold and alpha."""

from __future__ import annotations

import inspect
import time
import warnings
from collections.abc import Callable, Sequence
from copy import copy
from functools import cached_property
from itertools import count
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn import config_context, get_config
from sklearn.base import clone
from sklearn.utils.metadata_routing import get_routing_for_object

from ..comparisons import Comparisons, Groups, encode_queries
from ..comparisons.inputs import (
    read_alpha,
    read_row_weights,
    read_scores,
    read_times,
    refuse_few_events,
    surv,
)
from ..kernels.functions import Kernel, n_items, take_training_items
from ..kernels.inputs import read_items
from ..losses.pairs import PairSet
from ..metrics.by_query import predict_scores, wants_qid
from ..numerics.memory import require_memory
from ..numerics.namespace import as_host, is_device_array
from ..numerics.threads import n_threads, with_small_matrices
from ..progress import Counter, Stages
from ..squared.base import Inputs
from ..squared.holdout.alike import predict_without_sets_alike
from ..squared.holdout.base import rows_outside
from ..squared.problem import solve_primal_path
from ..squared.representations import FullKernel
from ..squared.routes import callers_level, in_words
from ._basis_rows import basis_among, refuse_folds_of_whole_basis
from ._choice import BLIND_GRID, read_grid
from ._folds import Folds
from ._learner import read_censored, takes
from ._pair_holdout import order_of_rows, pairs_to_order, sets_leaving
from ._tally import PairTally, tally_pairs

if TYPE_CHECKING:
    from ._problem import Problem


# Seconds above which a hold-out by refitting is shared by all threads, and above which it is announced.
_SHARED, LONG = 2.0, 60.0


def refit_each(
    refit: Callable[[int], np.ndarray], size: int, on_done: Callable[[int], None]
) -> list[np.ndarray]:
    """``refit(0) ... refit(size - 1)``; the time of the first says whether all threads share the others."""
    found, seconds, n = [], 0.0, n_threads()
    for number in range(size):
        start = time.perf_counter()
        found.append(refit(number))
        on_done(number + 1)
        seconds = (time.perf_counter() - start) * (size - number - 1)
        if number and seconds > _SHARED:  # the first may have imported or compiled something
            break
    if len(found) == size:
        return found
    if seconds / n > LONG:
        warnings.warn(
            f"Holding out by {size:,} trainings is expected to take {in_words(seconds / n)} on {n} "
            f"{'processor' if n == 1 else 'processors'}. RLS and RankRLS are held out without training, also behind "
            "steps that learn nothing from rows; fewer folds take fewer trainings.",
            UserWarning,
            stacklevel=callers_level(),
        )
    config, first, done = get_config(), len(found), count(len(found) + 1)

    def again(number: int) -> np.ndarray:
        with config_context(**config):  # threads have their own
            values = refit(first + number)
        on_done(next(done))
        return values

    return found + with_small_matrices(again, size - first)


class _Refitting:
    """What `Problem` offers, where every fold is refitted: nothing is announced, and the order is right already."""

    comparable_across_folds = True
    how = "refitted for each fold"
    estimator: Any
    X: Any
    scores: Any
    single: bool
    row_weights: np.ndarray | None = None
    events: np.ndarray | None = None

    def for_order(self, *, across_folds: bool = False) -> Any:
        return self

    def in_order(
        self, predictions: list[np.ndarray], folds: Folds, alphas: Any, *, pooled: bool
    ) -> list[np.ndarray]:
        return predictions

    def expect(self, sets: Sequence[np.ndarray], alphas: Any, *, verbose: int = 0) -> None:
        """Nothing depends on what is asked for."""

    def expect_pairs(self, alphas: Any, *, verbose: int = 0) -> None:
        """Nothing depends on what is asked for."""

    def at_home(self, values: np.ndarray) -> np.ndarray:
        return values

    def predict_pairs(
        self, pairs: np.ndarray, alphas: Sequence[Any], groups: Any, verbose: int
    ) -> np.ndarray:
        """Predictions for both rows of each pair by a model trained without the two, shape (n_alphas, p, 2, v)."""
        leaving, of_pair = sets_leaving(pairs, self.scores.shape[0], groups)
        what = "pairs" if groups is None else "pairs of groups"
        counter = Counter("leave_pair_out", len(leaving), what, verbose)
        found = self._without(leaving, alphas, counter, "Pair")
        places = [np.searchsorted(leaving[k], pair) for k, pair in zip(of_pair, pairs, strict=True)]
        return np.stack([found[k][:, place] for k, place in zip(of_pair, places, strict=True)], axis=1)

    def _without(
        self, leaving: Sequence[np.ndarray], alphas: Sequence[Any], on_fold: Any, what: str
    ) -> list[np.ndarray]:
        """Predictions for each set of rows by models trained on the others, shape (n_alphas, n_left, v)."""
        raise NotImplementedError

    def tally_pairs(self, alphas: Sequence[Any], groups: Any, verbose: int) -> list[PairTally]:
        """For each alpha all pairs with different y, and how many are ordered as y is."""
        y, pairs = order_of_rows(self), pairs_to_order(self)
        found = self.predict_pairs(pairs, alphas, groups, verbose)
        return [tally_pairs(y, pairs, f[:, :, 0]) for f in found]


class RefittedProblem(_Refitting):
    """Any estimator with its data; the counterpart of `Problem`.

    Attributes
    ----------
    estimator : estimator
    X, qid, groups : as given
    scores : ndarray of shape (m, v)
    single : bool
        Whether y came as one column.
    queries : Groups
    """

    def __init__(
        self, estimator: Any, X: Any, y: Any, qid: Any, groups: Any = None, event: Any = None
    ) -> None:
        self.estimator, self.X, self.qid, self.groups = estimator, X, qid, groups
        self.n_rows = n_items(X)
        times, self.events = read_times(y, event)
        if self.events is not None:
            refuse_few_events(self.events)
            _refuse_censored(estimator)
            y = surv(times, self.events) if event is not None else y
        self._y, self._times = y, times
        self.single = np.ndim(as_host(y)) == 1
        self.queries: Groups = encode_queries(qid, self.n_rows)
        if n_items(as_host(y)) != self.n_rows:
            raise ValueError(
                f"X has {self.n_rows} rows, y has {n_items(as_host(y))}: expected one target per row."
            )

    @cached_property
    def scores(self) -> np.ndarray:
        targets = np.asarray(as_host(self._times), dtype=float)
        return targets[:, None] if self.single else targets

    def read_alphas(self, alphas: Any) -> Any:
        """The grid that ``alphas`` stands for; None leaves the estimator unchanged."""
        if alphas is None:
            return [None]
        with_alpha(self.estimator, 1.0)  # refuses an estimator that has none
        return read_grid(alphas, BLIND_GRID)

    def predict_folds(self, folds: Folds, alphas: Sequence[Any], on_fold: Any = None) -> list[np.ndarray]:
        """Predictions of the test rows of each fold, shape (n_alphas, n_test, v)."""
        return self._refit(folds.tests, folds.leaving, alphas, on_fold, "Fold {}")

    def _without(
        self, leaving: Sequence[np.ndarray], alphas: Sequence[Any], on_fold: Any, what: str
    ) -> list[np.ndarray]:
        return self._refit(leaving, leaving, alphas, on_fold, what + " {}")

    def _refit(
        self,
        tests: Sequence[np.ndarray],
        leaving: Sequence[np.ndarray],
        alphas: Sequence[Any],
        on_fold: Any,
        what: str,
    ) -> list[np.ndarray]:
        def refit(number: int) -> np.ndarray:
            rest = rows_outside(self.n_rows, leaving[number])
            return np.stack([self._at(alpha, rest, tests[number], what.format(number)) for alpha in alphas])

        return refit_each(refit, len(tests), on_fold or (lambda number: None))

    def _at(self, alpha: float | None, rest: np.ndarray, test: np.ndarray, held_out: str) -> np.ndarray:
        model = with_alpha(self.estimator, alpha)
        values = refit_and_predict(
            model, self.X, self._y, self.qid, rest, test, held_out=held_out, groups=self.groups
        )
        return np.asarray(values, dtype=float).reshape(test.shape[0], -1)

    def with_targets(self, y: Any) -> RefittedProblem:
        return RefittedProblem(self.estimator, self.X, y, self.qid, self.groups)


class PathProblem(_Refitting):
    """A learner that is trained along a path of alphas, with its validated data.

    Attributes
    ----------
    estimator : PathLearner
    kernel : Kernel
    X, scores, single, queries, row_weights : as in Problem
    """

    def __init__(
        self, estimator: Any, X: Any, y: Any, qid: Any, sample_weight: Any = None, event: Any = None
    ) -> None:
        self.estimator = clone(estimator)
        self.estimator._read_options()
        self.kernel: Kernel = self.estimator._read_kernel()
        self.X = read_items(self.estimator, X, self.kernel, reset=True)
        y, self.events = read_censored(self.estimator, X, y, event)
        self.scores, self.single = read_scores(y, n_items(self.X), estimator=self.estimator)
        self.queries: Groups = encode_queries(qid, n_items(self.X))
        self.row_weights = read_row_weights(sample_weight, n_items(self.X))

    @property
    def n_rows(self) -> int:
        return self.scores.shape[0]

    def read_alphas(self, alphas: Any) -> Any:
        """The grid that ``alphas`` stands for; None is the alpha of the estimator."""
        if alphas is None:
            return [read_alpha(self.estimator.alpha)]
        return read_grid(alphas, self.automatic_alphas)

    @cached_property
    def representation(self) -> Any:
        """The features of all rows, made once for the grid and the final training."""
        return self.estimator._represent(self.X, self.kernel)

    def automatic_alphas(self) -> np.ndarray:
        return self.estimator._automatic_alphas(self.representation, self.pairs())

    def pairs(self, rows: np.ndarray | None = None) -> list[PairSet]:
        """The pairs of all rows, or of some by themselves, of each output."""
        rows = np.arange(self.n_rows) if rows is None else rows
        queries = encode_queries(self.queries.codes[rows], rows.shape[0])
        weights = None if self.row_weights is None else self.row_weights[rows]
        if self.events is not None:
            return [self.estimator._time_pairs(self.scores[rows], self.events[rows], queries, weights)]
        return self.estimator._score_pairs(self.scores[rows], queries, weights)

    def predict_folds(self, folds: Folds, alphas: Sequence[Any], on_fold: Any = None) -> list[np.ndarray]:
        """Predictions of the test rows of each fold, shape (n_alphas, n_test, v)."""
        return folds.of_tests(self._without(folds.leaving, alphas, on_fold, "Fold"), self.n_rows)

    def _without(
        self, leaving: Sequence[np.ndarray], alphas: Sequence[Any], on_fold: Any, what: str
    ) -> list[np.ndarray]:
        """Predictions for each set of rows by models trained on the others, shape (n_alphas, n_left, v)."""
        if self.estimator._wants_reduced_set():
            refuse_folds_of_whole_basis(self.representation.map.basis_indices_, leaving, what)
        predictions = []
        for number, left in enumerate(leaving):
            pairs = self.pairs(rows_outside(self.n_rows, left))
            predictions.append(
                self.estimator._predict_path(self.representation, left, pairs, np.asarray(alphas))
            )
            if on_fold is not None:
                on_fold(number + 1)
        return predictions

    def with_targets(self, y: Any) -> PathProblem:
        other = copy(self)
        y, other.events = read_censored(self.estimator, self.X, y, None)
        other.scores, other.single = read_scores(y, self.n_rows, estimator=self.estimator)
        return other


def _refuse_censored(estimator: Any) -> None:
    """Refuse an estimator of ours, or of scikit-learn, that does not learn from times and events."""
    while hasattr(estimator, "steps") or hasattr(estimator, "estimator"):
        estimator = estimator.steps[-1][1] if hasattr(estimator, "steps") else estimator.estimator
    library = type(estimator).__module__.partition(".")[0]
    if library in ("preflearn", "sklearn") and not takes(type(estimator).fit, "event"):
        raise ValueError(
            f"{type(estimator).__name__} does not learn from censored times: leave event out, or use RankRLS, RankSVM "
            "or their searches."
        )


def with_alpha(estimator: Any, alpha: float | None) -> Any:
    """The estimator with another alpha; None leaves it unchanged."""
    if alpha is None:
        return estimator
    if "alpha" not in estimator.get_params(deep=False):
        raise ValueError(
            f"{type(estimator).__name__} has no parameter alpha: leave alphas out, or search over its parameters with "
            "GridSearchCV."
        )
    return clone(estimator).set_params(alpha=alpha)


def refit_and_predict(
    estimator,
    X,
    y,
    qid,
    train: np.ndarray,
    test: np.ndarray,
    row_weights: np.ndarray | None = None,
    held_out: str = "A fold",
    groups: Any = None,
) -> np.ndarray:
    """Predictions for test rows by a clone of any estimator fitted on the training rows, with their weights if any.

    An estimator that holds rows out itself is given their groups. Scores come from ``decision_function`` or the second
    column of ``predict_proba`` for classifiers, else ``predict``. Basis rows that were given are row numbers of X;
    ``held_out`` names what leaves the training in messages.
    """
    model = clone(estimator)
    new = _rows(X, test)
    kept = fit_on_rows(model, X, y, qid, train, row_weights, held_out, groups)
    new = _kept_columns(model, new, kept)
    if qid is not None and wants_qid(model):
        return np.asarray(predict_scores(model, new, _rows(qid, test)))
    return scores_of(model, new)


def fit_on_rows(
    model,
    X,
    y,
    qid,
    train: np.ndarray | None,
    row_weights: np.ndarray | None = None,
    held_out: str = "A fold",
    groups: Any = None,
) -> np.ndarray | None:
    """Fit any estimator on some rows (None for all), with their queries in the form that it takes.

    That is the label of each row (``qid``, ``group_id``) or the number of rows of each query (``group``), for which the
    rows of a query are put together, as other libraries require. Estimators that hold rows out themselves (searches,
    `AutoRanker`) are given their groups. Basis rows that were given, row numbers of X, are
    set to their places among the rows of this training.

    Returns
    -------
    ndarray of int or None
        The rows in the order in which the estimator saw them; None for all in their original order.
    """
    name = None if qid is None else _qid_argument(model)
    of_groups = None if groups is None else _groups_argument(model)
    takes_any_order = type(model).__module__.startswith(("preflearn.", "sklearn."))
    if train is None and takes_any_order:
        labels = {name: qid, of_groups: groups}
        model.fit(X, y, **{key: value for key, value in labels.items() if key is not None})
        return None
    train = np.arange(n_items(X)) if train is None else train
    if name is not None and not takes_any_order:
        codes = encode_queries(_rows(qid, train), train.shape[0]).codes
        train = train[np.argsort(codes, kind="stable")]
    model.set_params(**basis_among(model, n_items(X), train, held_out))
    rows = _rows(X, train)
    extra = {}
    if name is not None:
        labels = _rows(qid, train)
        extra[name] = encode_queries(labels, train.shape[0]).counts if name == "group" else labels
    if of_groups is not None:
        extra[of_groups] = _rows(groups, train)
    if row_weights is not None:
        extra["sample_weight"] = row_weights[train]
    model.fit(_kept_columns(model, rows, train), _rows(y, train), **extra)
    return train


def _is_pairwise(model) -> bool:
    """Whether the estimator takes a kernel or distance matrix."""
    tags = getattr(model, "__sklearn_tags__", lambda: None)()
    return bool(getattr(getattr(tags, "input_tags", None), "pairwise", False))


def _kept_columns(model, values: Any, train: np.ndarray | None) -> Any:
    """The columns of the rows that stay, of a kernel or distance matrix in any form; anything else as it is."""
    if train is None or not _is_pairwise(model):
        return values
    return (values if hasattr(values, "dtype") else np.asarray(values))[:, train]


def scores_of(model, X) -> np.ndarray:
    """A number per row that orders the rows: decision values, probabilities of the second class, or predictions."""
    if hasattr(model, "decision_function"):
        return np.asarray(model.decision_function(X))
    if hasattr(model, "predict_proba"):
        probabilities = np.asarray(model.predict_proba(X))
        if probabilities.ndim == 2 and probabilities.shape[1] == 2:
            return probabilities[:, 1]
    return np.asarray(model.predict(X))


def _qid_argument(model) -> str | None:
    """The name under which fit takes queries; None where it does not."""
    return _argument(model, ("qid", "group_id", "group"))


def _groups_argument(model) -> str | None:
    """The name under which fit takes the rows that no split divides; None where it does not split."""
    return _argument(model, ("groups",))


def _argument(model, names: tuple[str, ...]) -> str | None:
    """The name that fit takes: by its signature, by metadata routing (the first), as an inner learner's; or None."""
    from sklearn.model_selection import check_cv
    from sklearn.model_selection._search import BaseSearchCV
    from sklearn.pipeline import Pipeline

    taken = inspect.signature(model.fit).parameters
    for name in names:
        if name in taken:
            return name
    if get_config()["enable_metadata_routing"]:
        routed = hasattr(model, "get_metadata_routing") and get_routing_for_object(model).consumes(
            "fit", [names[0]]
        )
        return names[0] if routed else None
    if isinstance(model, Pipeline):
        step, learner = model.steps[-1]
        inner = _argument(learner, names) if hasattr(learner, "fit") else None
        return None if inner is None else f"{step}__{inner}"
    if not isinstance(model, BaseSearchCV):
        return None
    if names == ("groups",):  # scikit-learn's searches give groups to their splitter alone
        consumes = get_routing_for_object(check_cv(model.cv)).consumes("split", ["groups"])
        return "groups" if consumes else None
    return _argument(model.estimator, names)


def _rows(values: Any, rows: np.ndarray) -> Any:
    """Some rows of an array, a data frame, a sparse matrix or a list."""
    from sklearn.utils import _safe_indexing

    return _safe_indexing(values, rows)


def refit_task(
    problem: Problem,
    task: Comparisons,
    folds: Sequence[np.ndarray],
    alphas: Sequence[float],
    on_fold: Any,
) -> list[np.ndarray]:
    """Predictions of each fold by a squared-loss learner trained on the other rows, fold by fold and alpha by alpha.

    Returns
    -------
    list of ndarray of shape (n_alphas, n_fold, v)
    """
    predictions: list[np.ndarray] = []
    shared = _from_shared_inverses(problem, task, folds, alphas)
    K = _kernel_of_all(problem, task, n_trainings=(len(folds) - len(shared)) * len(alphas))
    for number, left in enumerate(folds):
        rest = rows_outside(problem.n_rows, left)
        if number in shared:
            values = shared[number]
        elif K is not None:
            values = _refit_kernel(problem, K, task.take(rest), rest, left, alphas)
        elif len(alphas) > 1 and (problem.feature_map is not None or _has_columns(problem, task)):
            values = _refit_path(problem, task.take(rest), rest, left, alphas)
        else:
            kept = task.take(rest)
            values = np.stack([_refit_one(problem, kept, rest, left, alpha) for alpha in alphas])
        predictions.append(values)
        if on_fold is not None:
            on_fold(number + 1)
    return predictions


def _from_shared_inverses(
    problem: Problem, task: Comparisons, folds: Sequence[np.ndarray], alphas: Sequence[float]
) -> dict[int, np.ndarray]:
    """Predictions of the folds that leave one ranking without ties alike, where one inverse for them costs less."""
    alike = task.alike
    if alike is None or problem.feature_map is not None or is_device_array(problem.X):
        return {}
    kinds: dict[bytes, list[int]] = {}
    for number, left in enumerate(folds):
        kinds.setdefault(np.sort(alike.codes[left]).tobytes(), []).append(number)
    found: dict[int, np.ndarray] = {}
    for numbers in kinds.values():
        sets = np.stack([folds[number] for number in numbers])
        if not problem.shares_inverse(task, sets.shape[0], sets.shape[1], len(alphas)):
            continue
        require_memory(5 * 8 * problem.n_rows**2, f"hold-outs from the full kernel of {problem.n_rows} rows")
        K = problem.inputs.kernel_matrix()
        try:
            values = np.stack([predict_without_sets_alike(K, alike, task, sets, alpha) for alpha in alphas])
        except np.linalg.LinAlgError:
            continue  # each by itself, which has ways of its own with an ill-conditioned kernel
        found.update(zip(numbers, values.transpose(1, 0, 2)[..., None], strict=True))
    return found


def _kernel_of_all(problem: Problem, task: Comparisons, n_trainings: int) -> np.ndarray | None:
    """The kernel matrix of all rows, where several trainings take parts of it; None for other representations."""
    if problem.feature_map is not None or is_device_array(problem.X) or n_trainings < 2:
        return None
    if problem.kernel.is_linear or problem.plan(task).solver != "dual":
        return None
    require_memory(3 * 8 * problem.n_rows**2, f"refitting with the full kernel of {problem.n_rows} rows")
    return problem.inputs.kernel_matrix()


def _has_columns(problem: Problem, task: Comparisons) -> bool:
    """Whether the columns of a dense X are the features."""
    on_host = not is_device_array(problem.X)
    return on_host and problem.inputs.is_dense_linear and problem.plan(task).solver == "primal"


def _refit_kernel(
    problem: Problem,
    K: np.ndarray,
    task: Comparisons,
    rest: np.ndarray,
    left: np.ndarray,
    alphas: Sequence[float],
) -> np.ndarray:
    """Every alpha of the full kernel trained on the rows that stay."""
    own = np.take(np.take(K, rest, axis=0), rest, axis=1)
    trained = FullKernel(Inputs(own, Kernel("precomputed")), [task], Stages(None))
    coef = trained.coefficients(alphas)
    f = K[np.ix_(left, rest)] @ coef
    if problem.intercept:
        f = f + _mean_over(problem, rest, problem.scores[rest] - own @ coef)[:, None, :]
    return f


def _refit_path(
    problem: Problem, task: Comparisons, rest: np.ndarray, left: np.ndarray, alphas: Sequence[float]
) -> np.ndarray:
    """Every alpha of a linear function of features, trained on the rows that stay from one pass over them."""
    every, kernel = problem.X, problem.kernel
    if problem.feature_map is not None:
        # All rows are mapped by the basis vectors that stay: the columns of a precomputed kernel keep their numbers.
        basis = rest[problem.basis_among(rest)]
        feature_map = clone(problem.feature_map).set_params(basis=basis, n_basis=None)
        every = feature_map.fit_items(problem.X, kernel).map_items(problem.X, kernel)
    features = every[rest].astype(np.float64, copy=False)
    weights = np.stack(solve_primal_path(features, task, alphas))
    f = every[left] @ weights
    if problem.intercept:
        f = f + _mean_over(problem, rest, problem.scores[rest] - features @ weights)[:, None, :]
    return f


def _refit_one(
    problem: Problem, task: Comparisons, rest: np.ndarray, left: np.ndarray, alpha: float
) -> np.ndarray:
    part, kernel, scores = problem.on_rows(rest, task), problem.kernel, problem.scores
    model = part.estimator
    fit = model._train(part, alpha)
    f = as_host(model._evaluate(take_training_items(problem.X, left, kernel, among=rest), kernel))
    if not problem.intercept:
        return f
    if problem.row_weights is None:
        return f + scores[rest].mean(axis=0) - fit.mean_prediction
    return f + _mean_over(problem, rest, scores[rest] - as_host(model._evaluate(part.X, kernel)))


def _mean_over(problem: Problem, rows: np.ndarray, values: np.ndarray) -> np.ndarray:
    """The mean of values of some rows, shape (..., len(rows), v) to (..., v), by their weights."""
    if problem.row_weights is None:
        return values.mean(axis=-2)
    w = problem.row_weights[rows]
    return np.einsum("i,...iv->...v", w, values) / w.sum()
