"""What learners provide to the parts of the library that train, hold out and search on their behalf.

The learners of `preflearn.learners` inherit from these classes; `model_selection`, `streaming` and `distributed`
require nothing else of them. The names are private because users do not call them.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from ..comparisons import Comparisons, Groups
from ..comparisons.inputs import read_times, refuse_few_events
from ..kernels.functions import Kernel
from ..kernels.maps import NystromMap
from ..numerics.namespace import as_host, is_device_array
from ..progress import Stages
from ..squared.problem import SquaredLossFit

if TYPE_CHECKING:  # learners without pairwise losses, or without a choice, do not import them
    from ..losses.newton import PairLossFit
    from ..losses.pairs import PairSet
    from ._performance import PerformanceEstimate
    from ._problem import Problem


class KernelLearner:
    """A learner of functions of a kernel, on all rows or on a reduced set: what training in parts sets in it."""

    def _read_kernel(self) -> Kernel:
        """The kernel with its parameters, checked."""
        raise NotImplementedError

    def _wants_reduced_set(self) -> bool:
        """Whether n_basis or basis asks for a reduced set."""
        raise NotImplementedError

    def _set_function(
        self,
        weights: np.ndarray | None,
        dual_coef: np.ndarray | None,
        basis_indices: np.ndarray | None,
        basis: Any,
        single: bool,
    ) -> None:
        """Store the learned function; ``single`` says that y came as one column."""
        raise NotImplementedError

    def _more_stages(self) -> Stages:
        """The progress of a fit, shown if the learner is verbose."""
        raise NotImplementedError


class SquaredLossLearner(KernelLearner):
    """A learner whose loss is a sum of squares over comparisons: held out by algebra."""

    solver: Any

    def _reduced_set(self, X: Any, kernel: Kernel) -> Any:
        """The feature map of the reduced set, or None for the full kernel."""
        raise NotImplementedError

    def _compare(
        self, scores: np.ndarray, queries: Groups, row_weights: np.ndarray | None = None
    ) -> list[Comparisons]:
        """One set of comparisons for all outputs, or one per output where they depend on the scores."""
        raise NotImplementedError

    def _compare_times(
        self,
        times: np.ndarray,
        events: np.ndarray,
        queries: Groups,
        row_weights: np.ndarray | None = None,
    ) -> Comparisons:
        """The comparisons of censored times; for learners whose fit takes ``event``."""
        raise NotImplementedError

    def _comparisons_depend_on_scores(self) -> bool:
        """Whether other scores of the same rows imply other comparisons, and not only other targets."""
        return False

    def _train(self, problem: Problem, alpha: float, with_mean: bool = True) -> SquaredLossFit:
        """Train on validated items and comparisons, and keep the function that was learned."""
        raise NotImplementedError

    def _fit_problem(self, problem: Problem, alpha: float) -> Any:
        """`fit` on validated data of this learner."""
        raise NotImplementedError

    def _evaluate(self, X: Any, kernel: Kernel) -> Any:
        """The learned function on validated items, without an intercept."""
        raise NotImplementedError

    def _refuse_score_options(self) -> None:
        """Refuse options that learning from preferences alone would ignore."""
        raise NotImplementedError

    def _set_intercept(self, intercept: np.ndarray | None) -> None:
        """Store the intercept of a regression; None for none."""
        raise NotImplementedError


class PathLearner(KernelLearner):
    """A learner that trains faster along a path of alphas, each solution being the start of the next."""

    def _read_options(self) -> None:
        """Refuse invalid options."""
        raise NotImplementedError

    def _represent(self, X: Any, kernel: Kernel) -> Any:
        """Features of validated items, made once for all alphas."""
        raise NotImplementedError

    def _score_pairs(
        self, scores: np.ndarray, queries: Groups, row_weights: np.ndarray | None = None
    ) -> list[PairSet]:
        """The pairs of each output."""
        raise NotImplementedError

    def _time_pairs(
        self,
        times: np.ndarray,
        events: np.ndarray,
        queries: Groups,
        row_weights: np.ndarray | None = None,
    ) -> PairSet:
        """The pairs of censored times."""
        raise NotImplementedError

    def _automatic_alphas(self, representation: Any, pairs: Sequence[PairSet]) -> np.ndarray:
        """The grid that "auto" stands for."""
        raise NotImplementedError

    def _predict_path(
        self, representation: Any, left: np.ndarray, pairs: Sequence[PairSet], alphas: np.ndarray
    ) -> np.ndarray:
        """Predictions for rows that leave, by models trained on the others at every alpha, (n_alphas, n_left, v)."""
        raise NotImplementedError

    def _function_path(self, representation: Any, pairs: PairSet, alphas: np.ndarray) -> np.ndarray:
        """Predictions for the represented items by models trained on pairs of them, shape (n_alphas, m)."""
        raise NotImplementedError

    def _set_fits(
        self, fits: Sequence[PairLossFit], feature_map: NystromMap | None, alpha: float, single: bool
    ) -> None:
        """The attributes of a solution, one fit per output."""
        raise NotImplementedError


class SearchingLearner:
    """A learner that chooses its alpha: one pass over a stream or a cluster searches in its place."""

    def _plain(self, setting: dict[str, Any], alpha: float = 1.0) -> Any:
        """The learner that is searched over, with one alpha."""
        raise NotImplementedError

    def _adopt(self, model: Any) -> None:
        """Take over what the learner has learned at the chosen alpha."""
        raise NotImplementedError


_OF_ESTIMATES = ("_chosen", "_estimate", "_no_estimate")


class EstimatingLearner:
    """A learner that chooses its settings by held-out predictions, and keeps them until it is asked how good it is."""

    _chosen: tuple[Callable[[np.ndarray], PerformanceEstimate], Callable[[Any], Any]] | None

    @property
    def estimate_(self) -> PerformanceEstimate:
        """How good the model is on new data, with a 95 % interval; the choice does not flatter it.

        The settings of each fold are chosen by the other folds, from the held-out predictions of the search: nothing is
        trained again. It is computed when it is first asked for. ``best_score_`` is the largest of ``cv_scores_``, the
        score that the choice was made by, and on average too high.
        """
        if "_estimate" not in vars(self):
            chosen = vars(self).get("_chosen")
            if chosen is None:
                why = vars(self).get("_no_estimate") or (
                    "it is there after fit, and neither loaded models nor those trained on parts of the data keep the "
                    "held-out predictions that it is computed from."
                )
                raise AttributeError(f"{type(self).__name__} has no estimate_: {why}")
            estimate, predict = chosen
            self._estimate = estimate(np.asarray(as_host(predict(self)), dtype=float))
            del self._chosen
        return self._estimate

    def _keep_choice(
        self, estimate: Callable[[np.ndarray], PerformanceEstimate], predict: Callable[[Any], Any]
    ) -> None:
        """Keep what `estimate_` is computed by: ``predict`` gives what the fitted model predicts for its own data."""
        self._forget_choice()
        self._chosen = estimate, predict

    def _forget_choice(self, why: str = "") -> None:
        """There is no estimate, or not yet; ``why`` is for the reader who asks for it."""
        for name in _OF_ESTIMATES:
            self.__dict__.pop(name, None)
        if why:
            self._no_estimate = why

    def __getstate__(self) -> Any:
        # Predictions and references to the training data are not part of a model on disk.
        state: Any = super().__getstate__()
        return {name: value for name, value in dict(state).items() if name not in _OF_ESTIMATES}


class SelfValidatingLearner:
    """A learner whose fit holds out whole queries and keeps what its procedure predicts for them, row by row."""

    cv_predictions_: np.ndarray


@lru_cache
def takes(fit: Any, name: str) -> bool:
    """Whether fit has an argument of this name (cached: inspecting a signature takes a while)."""
    return name in inspect.signature(fit).parameters


def read_censored(estimator: Any, X: Any, y: Any, event: Any) -> tuple[Any, np.ndarray | None]:
    """`read_times` for a training by this estimator; refused where it, or two of a kind, cannot be learned from."""
    y, events = read_times(y, event)
    if events is None:
        return y, None
    if not takes(type(estimator).fit, "event"):
        raise ValueError(
            f"{type(estimator).__name__} does not learn from censored times: leave event out, or use RankRLS, RankSVM "
            "or their searches."
        )
    if is_device_array(X):
        raise TypeError("event is for NumPy arrays and sparse matrices: X is on a device.")
    refuse_few_events(events)
    return y, events


def why_not_in_parts(model: Any) -> str | None:
    """The reason why a model cannot be trained by statistics of fixed width, or None."""
    if model.solver not in ("auto", "primal"):
        return f"training in parts uses the primal form: solver={model.solver!r} would be ignored. Use solver='auto'."
    if model.tol is not None or model.max_iter is not None:
        return "tol and max_iter belong to solver='cg' and would be ignored here: leave them out."
    if isinstance(model.kernel, str) and model.kernel == "precomputed":
        return "a precomputed kernel cannot be read in parts: new rows need the kernel function."
    if not model._wants_reduced_set() and not (isinstance(model.kernel, str) and model.kernel == "linear"):
        return (
            "training in parts needs a model of fixed width: the linear kernel, or n_basis=... (or "
            f"basis=...) for kernel={model.kernel!r}."
        )
    return None
