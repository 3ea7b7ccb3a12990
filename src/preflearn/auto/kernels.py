r"""The learned kernel among the candidates: quick rounds for the metric, then one careful training for each fold.

A round trains an expansion without each fold, with a metric of its own, and predicts the fold: on a sample of whole
queries, with few basis vectors, from sums of kernel values (`squared.expansion`). Rounds go on as long as the held-out
score rises. Only then is the model trained: more basis vectors, all rows. A fold is predicted with the metric that was
learned without it, of the round that the other folds prefer; the model has the mean of the metrics.

In the second round, the first one with a metric, two things are tried, and stay where they raise the held-out score:

- a curve for each important feature beside the kernel (`Curves`): grades are often nearly a sum of effects of single
  features, which a kernel on distances learns slowly;
- a metric of directions instead of a factor for each feature: features are often several noisy measurements of the
  same thing.

From `RACE_FROM` rows on the views race first, over a few plain rounds in which several folds share a metric that has
seen none of them. Those that are ahead are searched with care.

The number of basis vectors grows with the rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from sklearn.base import BaseEstimator

from ..comparisons import encode_queries
from ..kernels.functions import Kernel
from ..kernels.onnx_nodes import products_nodes
from ..learners.rankrfm import RankRFM, importances_of_gradients, of_expansion
from ..model_selection._choice import choose
from ..numerics.onnx_graph import Graph, Value
from ..numerics.threads import with_small_matrices
from ..squared.expansion import (
    GRADIENT_ROWS,
    Curves,
    Expansion,
    average_gradient_metric,
    kernel_moments,
    solve_expansion,
)
from ..squared.holdout.base import rows_outside
from .combination import clearly_positive, nested
from .tasks import LARGE_TABLE, Member, Task, halves_of

if TYPE_CHECKING:
    from .extension import MoreRows

# Times that a metric may be learned. Another round follows while the last two have raised the score by more than the
# standard error of the difference over folds.
_ROUNDS = 15
_LOOK_BACK = 2
# Rows and basis vectors of a round.
_ROUND_ROWS = 16_000
_ROUND_BASIS = (250, 500)
# With at least this many rows the views race, over this many rounds. Two go on, of a large table one; and none that is
# behind another one by this multiple of the standard error of the difference over folds.
RACE_FROM = 2_000
_RACE_ROUNDS = 2
_BEHIND = 4.0
# Metrics of a race and of a sample, which folds share.
_METRICS = 3
# With more columns than this, directions are not tried: they are as many as the gradients that they are learned from.
_MOST_COLUMNS = GRADIENT_ROWS // 4
# Factors of a metric below this, relative to the largest, become 0: nothing is lost, and the kernel is formed faster.
_LEAST_FACTOR = 0.02
# Basis vectors of the model.
_LEAST_BASIS, _MOST_BASIS = 600, 2000
# The first round tries these alphas, later ones those beside the best so far, and a training on everything those
# around it: it has more basis vectors and many more rows.
_ALPHAS = 4.0 ** np.arange(-4, 8)
_BESIDE = np.array([0.25, 1.0, 4.0])
_AROUND = 4.0 ** np.arange(-4, 4)
_KERNEL = Kernel("rbf", "median")
# For time limits, measured: products that a kernel value takes as long as in a round and in a training, later rounds
# that the first two take as long as (all alphas) and those that try curves and directions, and a late best round.
_OF_ROUND, _OF_TRAINING = 400.0, 600.0
_FIRST_ROUNDS, _TRIALS = 4.0, 2.0
_USUAL_ROUND = 7


@dataclass
class Part:
    """Rows that one metric is learned from.

    Attributes
    ----------
    rows : ndarray of int
        Those of a round: a sample of what is not held out.
    folds : ndarray of int
        The folds that are held out.
    metrics : list of ndarray or None
        Of each round so far, and of the next.
    """

    rows: np.ndarray
    folds: np.ndarray
    metrics: list[np.ndarray | None] = field(default_factory=lambda: [None])


class _Round(NamedTuple):
    """What one training for each metric gives.

    Attributes
    ----------
    models : list of Expansion
    choice : int
        The place of the best alpha.
    scores : ndarray of shape (f,)
        Of each fold at this alpha.
    predictions : ndarray of shape (m,)
        Of held-out rows.
    """

    models: list[Expansion]
    choice: int
    scores: np.ndarray
    predictions: np.ndarray


class Search:
    """The rounds of one view.

    Parameters
    ----------
    task : Task
    view : tuple of str
    n_metrics : int or None
        Metrics that the folds share; None for one of its own for each.

    Attributes
    ----------
    scores : list of ndarray of shape (f,)
        Of each round and fold, at the alpha that is best on the whole.
    alphas : list of float
    predictions : list of ndarray of shape (m,)
        Of held-out rows, in the same way.
    models : list of (Expansion, int)
        The model of each round that has the first metric, and the place of this alpha.
    has_curves : bool
        Whether features have curves of their own.
    has_directions : bool
        Whether metrics have directions instead of a factor for each feature.
    """

    def __init__(self, task: Task, view: tuple[str, ...], n_metrics: int | None = None):
        self.task, self.view, self.X = task, view, task.views[view]
        self.has_curves = self.has_directions = False
        self.scores: list[np.ndarray] = []
        self.alphas: list[float] = []
        self.predictions: list[np.ndarray] = []
        self.models: list[tuple[Expansion, int]] = []
        self.parts = _parts(task, n_metrics or len(task.folds.tests))
        self._ended = False

    def advance(self, n_rounds: int = _ROUNDS + 1, *, is_plain: bool = False) -> None:
        """More rounds, until there are ``n_rounds`` or the held-out score no longer rises; plain ones try nothing."""
        while len(self.scores) < n_rounds and not self._ended:
            found = self._try()
            if len(self.scores) == 1 and not is_plain:
                found = self._with_curves(found)
                if self.X.shape[1] <= _MOST_COLUMNS:
                    found = self._with_directions(found)
            self._last = found
            self.scores.append(found.scores)
            self.alphas.append(float(found.models[0].alphas[found.choice]))
            self.predictions.append(found.predictions)
            self.models.append((found.models[0], found.choice))
            rises = len(self.scores) <= _LOOK_BACK or clearly_positive(
                self.scores[-1] - self.scores[-1 - _LOOK_BACK]
            )
            self._ended = not rises or len(self.scores) > _ROUNDS
            if not self._ended:
                metrics = self._next_metrics()
                self._ended = any(one is None for one in metrics)  # all gradients are zero
                for part, metric in zip(self.parts, metrics, strict=True):
                    part.metrics.append(metric)

    def _with_curves(self, found: _Round) -> _Round:
        """The same round with curves where these help."""
        self.has_curves = True
        other = self._try()
        self.has_curves = clearly_positive(other.scores - found.scores)
        return other if self.has_curves else found

    def _with_directions(self, found: _Round) -> _Round:
        """The same round with directions where these help."""
        factors, self.has_directions = [part.metrics.pop() for part in self.parts], True
        for part, metric in zip(self.parts, self._next_metrics(), strict=True):
            part.metrics.append(metric)
        other = self._try()
        self.has_directions = clearly_positive(other.scores - found.scores)
        if self.has_directions:
            return other
        for part, metric in zip(self.parts, factors, strict=True):
            part.metrics[-1] = metric
        return found

    def _try(self) -> _Round:
        """One training for each metric."""
        alphas = self.alphas[-1] * _BESIDE if self.alphas else _ALPHAS
        size = _round_basis(self.task.n_rows)
        models = self.train([(part.rows, part.metrics[-1]) for part in self.parts], alphas, size)
        predictions = np.empty((alphas.shape[0], self.task.n_rows))
        for part, model in zip(self.parts, models, strict=True):
            held_out = np.concatenate([self.task.folds.tests[fold] for fold in part.folds])
            predictions[:, held_out] = model.predict(self.X[held_out])
        table = self.task.folds.of(predictions)
        choice = choose(self.task.folds.mean(table), alphas)[0]
        return _Round(models, choice, table[choice], predictions[choice])

    def is_behind(self, race: Sequence[Search]) -> bool:
        """Whether too many views are ahead, or one is clearly, after as many rounds."""
        last = min(len(one.scores) for one in race) - 1
        ahead = [one.scores[last] - self.scores[last] for one in race]
        n_ahead = sum(bool(self.task.folds.mean(one) > 0) for one in ahead)
        n_winners = 2 if self.task.n_rows < LARGE_TABLE else 1
        return n_ahead >= n_winners or any(clearly_positive(one, errors=_BEHIND) for one in ahead)

    def round_without(self, part: Part) -> int:
        """The round that the folds outside of a part prefer, whose metric has not seen its folds."""
        return self.task.folds.best(np.array(self.scores), without=part.folds)

    def mean_metric(self, number: int) -> np.ndarray | None:
        """The mean of all metrics of a round."""
        metrics = [metric for part in self.parts if (metric := part.metrics[number]) is not None]
        if not metrics:
            return None
        if metrics[0].ndim == 1:
            return np.mean(metrics, axis=0)
        # Directions of all of them, as long as gradients are, have the mean of S Sᵀ.
        return average_gradient_metric(np.hstack(metrics).T[:, :, None], full=True)

    def train(
        self, sets: Sequence[tuple[np.ndarray, np.ndarray | None]], alphas: np.ndarray, size: int
    ) -> list[Expansion]:
        """Expansions on ``size`` basis vectors at every alpha, one for each set of rows with its metric.

        Few rows go side by side. Of many rows the sums, which take the time, are shared out among all threads: there
        are fewer sets than a machine may have processors.
        """
        device = self.task.device
        if device is not None:
            return [device.take(self._sums(*one, size)(alphas)) for one in sets]
        if self.task.n_rows < LARGE_TABLE:
            return with_small_matrices(lambda k: self._sums(*sets[k], size)(alphas), len(sets))
        solve = [self._sums(*one, size) for one in sets]
        return with_small_matrices(lambda k: solve[k](alphas), len(sets))

    def _sums(
        self, rows: np.ndarray, metric: np.ndarray | None, size: int
    ) -> Callable[[np.ndarray], Expansion]:
        """What solves for the expansion at some alphas, from sums over the rows."""
        task = self.task
        kernel, basis, curves = _functions(self.X, rows, metric, size, self.has_curves, task.seed)
        sum_up = kernel_moments if task.device is None else task.device.kernel_moments
        is_global = task.queries.n_groups == 1
        moments = sum_up(
            kernel, basis, self.X.__getitem__, task.y, task.queries, rows, is_global=is_global, curves=curves
        )
        return lambda alphas: solve_expansion(kernel, basis, moments, alphas, curves)

    def _next_metrics(self) -> list[np.ndarray | None]:
        """What the gradients of the last models give; None where all are zero."""
        models, choice = self._last.models, self._last.choice

        def metric_of(place: int) -> np.ndarray | None:
            return _next_metric(models[place], choice, self.X, self.parts[place].rows, self.has_directions)

        n_threads = None if self.task.device is None else 1  # a device takes one training after the other
        return with_small_matrices(metric_of, len(self.parts), n_threads)


def learned_kernel(task: Task, view: tuple[str, ...]) -> Member | None:
    """A kernel whose metric is learned in rounds; None where other views are ahead."""
    if view in task.rivals:
        race = [task.searches.setdefault(one, Search(task, one, _METRICS)) for one in task.rivals]
        for one in race:
            one.advance(_RACE_ROUNDS, is_plain=True)
        if task.searches[view].is_behind(race):
            return None
    search = Search(task, view, _METRICS if task.is_sample else None)
    search.advance()
    return _member_of_sample(task, search) if task.is_sample else _train_members(task, search)


def _member_of_sample(task: Task, search: Search) -> Member:
    """The best round as it is: its predictions tell what share the view deserves, and more rows will be learned from.

    The model is one of this round, which stands for the one to come.
    """
    table, settings = np.array(search.scores), np.array(search.predictions)
    best = task.folds.best(table)
    learner = as_estimator(*search.models[best], best, task.queries.n_groups)
    unbiased = nested(task.folds, settings, table)
    return _member(task, search, search.alphas[best], learner, settings[best], unbiased)


def _train_members(task: Task, search: Search) -> Member:
    """The trainings that the rounds were for."""
    folds, best = task.folds, task.folds.best(np.array(search.scores))
    alphas = search.alphas[best] * _BESIDE
    sets = [
        (rows_outside(task.n_rows, folds.tests[fold]), part.metrics[search.round_without(part)])
        for part in search.parts
        for fold in part.folds
    ]
    everything = np.arange(task.n_rows), search.mean_metric(best)
    models = search.train([*sets, everything], alphas, n_basis(task.n_rows))
    settings = np.empty((alphas.shape[0], task.n_rows))
    for test, model in zip(folds.tests, models):
        settings[:, test] = model.predict(search.X[test])
    scores = folds.of(settings)
    choice = choose(folds.mean(scores), alphas)[0]
    learner = as_estimator(models[-1], choice, best, task.queries.n_groups)

    unbiased = nested(folds, settings, scores)
    return _member(task, search, alphas[choice], learner, settings[choice], unbiased)


def _member(
    task: Task,
    search: Search,
    alpha: float,
    learner: RankRFM | KernelAndCurves,
    held_out: np.ndarray,
    unbiased: np.ndarray,
) -> Member:
    work = cost(task.n_rows, search.X.shape[1], max(map(search.round_without, search.parts)))
    extend = partial(_train_on_more_rows, task, search, alpha)
    return Member(learner, held_out, unbiased, learner.feature_importances_, described(learner), work, extend)


def _next_metric(
    model: Expansion, place: int, X: np.ndarray, rows: np.ndarray, has_directions: bool
) -> np.ndarray | None:
    """The metric that the gradients of a model at some of its rows give; None where all are zero."""
    gradients = model.gradients(X[_drawn(rows, GRADIENT_ROWS, 0)], place)
    metric = average_gradient_metric(gradients[:, :, None], full=has_directions)
    return metric if metric is None or has_directions else _without_least(metric)


def _without_least(factors: np.ndarray) -> np.ndarray:
    return np.where(factors < _LEAST_FACTOR, 0.0, factors)


def n_basis(n_rows: int) -> int:
    """Basis vectors for this many rows."""
    return min(n_rows, max(_LEAST_BASIS, min(_MOST_BASIS, int(0.9 * n_rows**0.7))))


def cost(m: int, n: int, best_round: int = _USUAL_ROUND) -> float:
    """Operations for rows and columns, after the race where there is one."""
    rounds = _FIRST_ROUNDS + _TRIALS + min(best_round + _LOOK_BACK, _ROUNDS)
    return rounds * _cost_of_round(m, n) + 5.0 * m * n_basis(m) * (_OF_TRAINING + n)


def cost_of_race(m: int, widths: Sequence[int]) -> float:
    """Operations of the first rounds of all rivals, views with these numbers of columns."""
    return _FIRST_ROUNDS * sum(_cost_of_round(m, n, _METRICS) for n in widths)


def _cost_of_round(m: int, n: int, n_metrics: int = 5) -> float:
    rows = min((1 - 1 / n_metrics) * m, _ROUND_ROWS)
    return n_metrics * rows * _round_basis(m) * (_OF_ROUND + n)


def _round_basis(n_rows: int) -> int:
    low, high = _ROUND_BASIS
    return min(n_rows, max(low, min(high, int(0.7 * n_rows**0.7))))


def _parts(task: Task, n_metrics: int) -> list[Part]:
    tests = task.folds.tests
    parts = []
    for folds in np.array_split(np.arange(len(tests)), min(n_metrics, len(tests))):
        rows = rows_outside(task.n_rows, np.concatenate([tests[fold] for fold in folds]))
        taken = encode_queries(task.queries.codes[rows], rows.shape[0]).sample(_ROUND_ROWS)
        parts.append(Part(rows[taken], folds))
    return parts


def _drawn(rows: np.ndarray, size: int, seed: int) -> np.ndarray:
    if rows.shape[0] <= size:
        return rows
    return np.sort(np.random.default_rng(seed).choice(rows, size, replace=False))


def _functions(
    X: np.ndarray, rows: np.ndarray, metric: np.ndarray | None, size: int, has_curves: bool, seed: int
) -> tuple[Kernel, np.ndarray, Curves | None]:
    """The kernel, basis vectors and curves that some rows are given for a metric."""
    basis, some = X[_drawn(rows, size, seed)], X[_drawn(rows, GRADIENT_ROWS, 0)]
    kernel = _KERNEL.with_metric(metric).fitted_to(some)
    if metric is None or not has_curves:
        return kernel, basis, None
    lengths = np.sqrt((metric**2).reshape(metric.shape[0], -1).sum(axis=1))
    return kernel, basis, Curves.along(some, _without_least(lengths / lengths.max()))


def _train_on_more_rows(
    task: Task, search: Search, alpha: float, more: MoreRows
) -> tuple[RankRFM | KernelAndCurves, np.ndarray]:
    """A metric that has not seen the fold that stays out, more basis vectors, all other rows.

    More rows want less regularisation: alpha is chosen anew by the fold. What is predicted for one half of its queries
    is chosen by the other half.
    """
    part = next(one for one in search.parts if more.fold in one.folds)
    number, test = search.round_without(part), task.folds.tests[more.fold]
    rows, size = rows_outside(task.n_rows, test), n_basis(more.n_rows)
    kernel, basis, curves = _functions(
        search.X, rows, part.metrics[number], size, search.has_curves, task.seed
    )
    moments = more.kernel_moments(kernel, basis, curves, search.view)
    model = solve_expansion(kernel, basis, moments, alpha * _AROUND, curves)
    halves, predictions = halves_of(task, test), model.predict(search.X[test])
    scores = halves.of(predictions)
    chosen = as_estimator(model, halves.best(scores), number, task.queries.n_groups)
    return chosen, nested(halves, predictions, scores)


# Fitted models ------------------------------------------------------------------------------------------------------


class KernelAndCurves(BaseEstimator):
    """f(x) = k(x, R) β + Σ_j g_j(x_j), each g_j a sum of bumps (`squared.curves`).

    Attributes
    ----------
    kernel_ : RankRFM
        The part on all features.
    feature_ : ndarray of int of shape (p,)
        The features that have a curve.
    knots_ : ndarray of shape (p, k)
        Where the bumps are.
    widths_ : ndarray of shape (p,)
    coef_ : ndarray of shape (p, k)
        Their heights.
    feature_importances_ : ndarray of shape (n,)
        Root mean square of the gradient along each feature, in standard deviations of it; they sum to 1.
    n_features_in_ : int
    """

    @classmethod
    def of(cls, kernel: RankRFM, curves: Curves, coefficients: np.ndarray) -> KernelAndCurves:
        """From the parts of an expansion."""
        model = cls()
        model.kernel_, model.n_features_in_ = kernel, kernel.n_features_in_
        model.feature_, model.knots_, model.widths_ = curves.features, curves.knots, curves.widths
        model.coef_ = coefficients.reshape(curves.knots.shape) * curves.factors[:, None]
        rows = kernel.basis_
        gradients = kernel.gradient(rows) + curves.gradients(rows, coefficients)
        model.feature_importances_ = importances_of_gradients(gradients[:, :, None], rows)
        return model

    def predict(self, X: np.ndarray) -> np.ndarray:
        """Scores of the rows of X, shape (m,)."""
        return self.kernel_.predict_items(X) + self.curve_scores(X)

    def curve_scores(self, X: np.ndarray) -> np.ndarray:
        """Σ_j g_j of the rows of X, shape (m,)."""
        curves, heights = (
            Curves(self.feature_, self.knots_, self.widths_, np.ones(self.widths_.shape)),
            self.coef_.ravel(),
        )
        size = 512  # rows whose bumps are computed together
        starts = range(0, X.shape[0], size)
        return np.concatenate([curves.values(X[k : k + size]) @ heights for k in starts] or [np.empty(0)])

    def _onnx_nodes(self, graph: Graph, X: Value) -> Value:
        """What `predict` computes, recorded (`numerics.graph`)."""
        p, k = self.knots_.shape
        # Each feature once for each of its knots: a product with zeros and ones takes a fifth of the time of `columns`.
        repeated = graph.columns(X, self.feature_) @ np.repeat(np.eye(p), k, axis=1)
        u = (repeated - self.knots_.ravel()) * np.repeat(1.0 / self.widths_, k)
        bumps = products_nodes((u * u * -0.5).exp(), self.coef_.ravel())
        return self.kernel_._onnx_nodes(graph, X) + bumps

    def _fitted_arrays(self) -> dict[str, str]:
        """The shapes that a loaded model is checked for (`preflearn.tables.models.fitted`)."""
        if not vars(self):
            return {}
        if not isinstance(getattr(self, "kernel_", None), RankRFM):
            raise ValueError("kernel_ is not a RankRFM")
        if self.kernel_.n_features_in_ != self.n_features_in_ or self.kernel_.dual_coef_.ndim != 1:
            raise ValueError("kernel_ was fitted to other features")
        if not (np.asarray(self.widths_) > 0).all():
            raise ValueError("widths_ are not all positive")
        return {
            "kernel_": "a RankRFM",
            "feature_": "p < n",
            "knots_": "p k",
            "widths_": "p",
            "coef_": "p k",
            "feature_importances_": "n",
        }


def as_estimator(model: Expansion, place: int, number: int, n_queries: int) -> RankRFM | KernelAndCurves:
    """An expansion at one of its λ, of some round, as a fitted model that can be saved and exported."""
    of_kernel, of_curves = np.split(model.betas[:, place], [model.basis.shape[0]])
    kernel = of_expansion(
        model.kernel,
        model.basis,
        of_kernel,
        alpha=float(model.alphas[place]),
        best_round=number,
        n_queries=n_queries,
    )
    return kernel if model.curves is None else KernelAndCurves.of(kernel, model.curves, of_curves)


def described(model: RankRFM | KernelAndCurves) -> str:
    """The settings of a fitted kernel, for the leaderboard."""
    kernel = model.kernel_ if isinstance(model, KernelAndCurves) else model
    found = f"alpha {kernel.alpha_:.3g}, round {kernel.best_round_}, {kernel.basis_.shape[0]} basis vectors"
    if kernel.metric_.ndim > 1:
        found += f", {kernel.metric_.shape[1]} directions"
    return f"{found}, {model.feature_.shape[0]} curves" if isinstance(model, KernelAndCurves) else found
