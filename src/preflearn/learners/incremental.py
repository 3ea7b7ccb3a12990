"""Training in chunks: the statistics of fixed width, what they have seen, and how chunks are added and removed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from types import MethodType
from typing import Any

import numpy as np

from ..comparisons import encode_queries
from ..comparisons.inputs import depends_on_scores
from ..kernels.functions import Kernel, n_items
from ..kernels.maps import NystromMap
from ..model_selection._learner import why_not_in_parts
from ..squared.statistics import recipe_of

# The parameters that the statistics of a chunk depend on.
FIXED = (
    "kernel", "gamma", "degree", "coef0", "kernel_params", "n_basis", "basis", "cost", "ties", "weighting",
)  # fmt: skip


class PartialFitUnavailableError(AttributeError, ValueError):
    """A model that cannot be trained in chunks has no partial_fit, and says why when it is accessed."""


class AvailableUnless:
    """A method that exists unless ``why_not(model)`` gives a reason; hasattr and scikit-learn then see none."""

    def __init__(self, why_not: Callable[[Any], str | None]) -> None:
        self._why_not = why_not

    def __call__(self, method: Callable[..., Any]) -> AvailableUnless:
        self._method = method
        self.__doc__ = method.__doc__
        return self

    def __get__(self, model: Any, owner: type | None = None) -> Callable[..., Any]:
        if model is None:
            return self._method
        reason = self._why_not(model)
        if reason is not None:
            raise PartialFitUnavailableError(reason)
        return MethodType(self._method, model)


def why_no_partial_fit(model: Any) -> str | None:
    """The reason why a model cannot be trained in chunks, or None."""
    if hasattr(model, "n_queries_") and getattr(model, "_incremental", None) is None:
        return (
            "partial_fit cannot continue from fit, fit_stream or fit_pairs, which keep no statistics: "
            "start with partial_fit, or use clone(model) for a fresh one."
        )
    reason = why_not_in_parts(model)
    return None if reason is None else f"partial_fit is not available: {reason}"


@dataclass
class IncrementalState:
    """The state of a model trained in chunks.

    Attributes
    ----------
    feature_map : NystromMap or None
        The reduced set, fixed by the first chunk; None for the linear kernel.
    n_outputs : int
    single : bool
        Whether y came as one column.
    with_queries : bool
        Whether chunks come with qid.
    rows_of_query : dict
        Rows seen of each query label: a query must be added, and removed, as a whole.
    options : dict
        What the statistics depend on: the parameters of the first chunk, which must not change.
    moments : QueryMoments or GlobalMoments or None
        None before the first chunk.
    """

    feature_map: NystromMap | None
    n_outputs: int
    single: bool
    with_queries: bool
    options: dict[str, Any]
    rows_of_query: dict[Any, int] = field(default_factory=dict)
    moments: Any = None

    @classmethod
    def start(
        cls, model: Any, X: Any, kernel: Kernel, n_outputs: int, single: bool, *, with_queries: bool
    ) -> IncrementalState:
        """Fix the width of the model from the first chunk."""
        if n_outputs > 1 and depends_on_scores(model.cost, model.ties):
            raise ValueError(
                "partial_fit with several outputs needs cost='magnitude' and ties='include': "
                "the pairs must not depend on the scores."
            )
        feature_map = model._reduced_set(X, kernel)
        return cls(feature_map, n_outputs, single, with_queries, _options_of(model))

    @property
    def n_queries(self) -> int:
        return len(self.rows_of_query) if self.with_queries else 1

    def update(
        self, model: Any, X: Any, kernel: Kernel, scores: np.ndarray, qid: Any, *, forget: bool
    ) -> None:
        """Add a chunk, or remove it."""
        self._check_options(model)
        self._check_chunk(scores, qid)
        chunk, counts = self._chunk_moments(model, X, kernel, scores, qid, forget=forget)
        if self.moments is None:
            self.moments = chunk
        elif forget:
            self.moments.subtract(chunk)
        else:
            self.moments.add(chunk)
        for label, count in counts.items():
            if forget:
                del self.rows_of_query[label]
            else:
                self.rows_of_query[label] = count

    def _check_options(self, model: Any) -> None:
        now = _options_of(model)
        changed = [name for name, value in self.options.items() if not _same_option(value, now[name])]
        if changed:
            raise ValueError(
                f"{', '.join(changed)} has changed since the first partial_fit, whose statistics depend on it: "
                "set it back, or start over with clone(model). alpha may change at any time."
            )

    def _check_chunk(self, scores: np.ndarray, qid: Any) -> None:
        if (qid is not None) != self.with_queries:
            before = "with qid" if self.with_queries else "without qid"
            raise ValueError(
                f"Earlier chunks came {before}: all chunks must agree, or a query would be compared with another."
            )
        if scores.shape[1] != self.n_outputs:
            raise ValueError(f"Earlier chunks had {self.n_outputs} outputs: found {scores.shape[1]}.")
        if (
            self.moments is not None
            and not self.with_queries
            and depends_on_scores(self.options["cost"], self.options["ties"])
        ):
            raise ValueError(
                "A second chunk without qid needs cost='magnitude' and ties='include': which pairs of a global ranking "
                "are tied cannot be known from chunks. Pass qid, or use fit."
            )

    def _chunk_moments(self, model, X, kernel, scores, qid, *, forget: bool):
        n_rows = n_items(X)
        recipe = recipe_of(model, kernel, self.feature_map, with_queries=self.with_queries)
        counts = {}
        if self.with_queries:
            queries = encode_queries(qid, n_rows)
            assert queries.labels is not None
            counts = dict(zip(queries.labels.tolist(), queries.counts.tolist(), strict=True))
            self._check_whole_queries(counts, forget=forget)
        elif forget and n_rows >= self.moments.n_rows - 1 and not recipe.one_chunk_only:
            raise ValueError(
                f"forget would leave fewer than two of the {self.moments.n_rows} rows seen: "
                "nothing could be compared."
            )
        return recipe.statistics(X, scores, qid).folds[0], counts

    def _check_whole_queries(self, counts: dict[Any, int], *, forget: bool) -> None:
        for label, count in counts.items():
            seen = self.rows_of_query.get(label)
            if forget and seen is None:
                raise ValueError(f"forget: query {label!r} has not been seen by partial_fit.")
            if forget and seen != count:
                raise ValueError(
                    f"forget: query {label!r} was seen with {seen} rows and is given with {count}: "
                    "pass the whole query as it came."
                )
            if not forget and seen is not None:
                raise ValueError(
                    f"Query {label!r} has been seen in an earlier chunk: pass all rows of a query in one call "
                    "(or give the new query another label)."
                )
        if forget and len(counts) == len(self.rows_of_query):
            raise ValueError("forget would leave no query in the model.")

    def solve(self, alpha: float):
        """Weights of the features, or coefficients of the basis vectors with their rows and values."""
        weights = self.moments.problem().solve(alpha)
        if self.feature_map is None:
            return weights, None, None, None
        return (
            None,
            self.feature_map.expand(weights),
            self.feature_map.basis_indices_,
            self.feature_map.basis_,
        )


def _options_of(model: Any) -> dict[str, Any]:
    return {name: getattr(model, name) for name in FIXED}


def _same_option(before: Any, now: Any) -> bool:
    return before is now or bool(np.array_equal(before, now))
