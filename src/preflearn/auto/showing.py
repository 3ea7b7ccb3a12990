"""What a fitted `AutoRanker` tells besides its scores: a leaderboard on new data, reasons, a report.

These methods use rooms above the learners (`report`, `auto.training`), which are imported when they are called.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from dataclasses import replace
from math import nan
from numbers import Integral
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted

from ..numerics.namespace import as_host
from .presets import Preset

# The training data of the rankers of this process, for their reports; larger tables (in cells) are not kept alive.
_SEEN: WeakKeyDictionary[Any, tuple[Any, Any, Any]] = WeakKeyDictionary()
_MOST_CELLS = 5_000_000


def remember(model: Any, X: Any, y: Any, qid: Any) -> None:
    """Keep what a model is fitted on, while the model lives, so that it can report on it."""
    _SEEN.pop(model, None)
    shape = getattr(X, "shape", None)
    if shape is None or (len(shape) == 2 and shape[0] * shape[1] <= _MOST_CELLS):
        _SEEN[model] = (X, y, qid)


def candidates_of_curve(members: Sequence[str]) -> frozenset[str]:
    """The kinds of these members, also where few rows have fewer candidates; the linear one is always among them."""
    found = {"linear", *members}
    if any(one.startswith("learned kernel") for one in members):
        # Some views are tried from a number of rows on, these always.
        found |= {"learned kernel, quantiles", "learned kernel, quantiles and query"}
    return frozenset(found)


class ShowsItself:
    """The part of `AutoRanker` that shows; see there."""

    leaderboard_: Any
    members_: list[Any]
    member_names_: list[str]
    views_: list[tuple[str, ...]]
    features_: Any
    scoring: Any
    _encoded: Any
    _read_targets: Any
    _predict_rows: Any

    def leaderboard(self, X: Any, y: Any, *, qid: Any = None) -> Any:
        """Score the model and its members on new data, best first.

        Parameters
        ----------
        X, qid : as in predict
        y : array-like of shape (m,)
            What is known about the rows, which must not be those of the training.

        Returns
        -------
        Leaderboard
            Candidates that have no part in the model were not kept, and have no score here.
        """
        check_is_fitted(self)
        scores = self._score_members(X, y, qid)
        board = self.leaderboard_
        whole, least = scores.pop(""), scores.get(board.simplest, nan)

        def on_new(one: Any, score: float) -> Any:
            detail = one.detail if score == score else "has no part in the model"
            detail = "the model" if one is board.model else detail
            simplest = one is not board.model and one.name == board.simplest
            return replace(
                one, score=score, difference=nan if simplest else score - least, pvalue=nan, detail=detail
            )

        entries = [on_new(one, scores.get(one.name, nan)) for one in board]
        entries.sort(key=lambda one: -one.score if one.score == one.score else np.inf)
        title = f"{board.scoring} on new data"
        return replace(board, entries=entries, model=on_new(board.model, whole), title=title)

    def _score_members(self, X: Any, y: Any, qid: Any) -> dict[str, float]:
        """Score of each member by its name, and of the whole model under the empty name."""
        from ..comparisons import encode_queries
        from ..model_selection._choice import read_scoring

        rows = self._encoded(as_host(X))
        queries, y = encode_queries(as_host(qid), rows.shape[0]), self._read_targets(y, rows.shape[0])
        views, scoring = self.features_.views(rows, queries), read_scoring(self.scoring)

        def measure(scores: np.ndarray) -> float:
            return float(np.ravel(scoring.measure(y[:, None], scores[:, None], queries))[0])

        members = zip(self.member_names_, self.members_, self.views_, strict=True)
        found = {name: measure(model.predict(views[view])) for name, model, view in members}
        return {**found, "": measure(self._predict_rows(rows, queries.codes))}

    def explain(
        self, X: Any, rows: Sequence[int] | int | None = None, *, qid: Any = None, n_orders: int = 2
    ) -> Any:
        """What put items where they are: a row of the result for each item, a column for each feature.

        Parameters
        ----------
        X, qid : as in predict
        rows : int or sequence of int, optional
            The items, by their row numbers; all by default.
        n_orders : int, default=2
            Orders of the features that contributions are averaged over.

        Returns
        -------
        data frame
            Of the kind of X; of pandas, or a mapping where that is not installed, for other X. ``row``, ``rank`` and
            ``score`` of each item, the mean score of its query (``query_mean``), and the contribution of each feature:
            they add up to ``score - query_mean``.
        """
        from ..report.inspection.explanation import explain_rows

        check_is_fitted(self)
        return explain_rows(self, X, rows, qid=qid, n_orders=n_orders)

    def learning_curve(self, X: Any = None, y: Any = None, *, qid: Any = None, n_splits: int = 3) -> Any:
        """Train the kinds of members that the model has on more and more queries, and extend the curve.

        Parameters
        ----------
        X, y, qid : optional
            The training data, as for `report`.
        n_splits : int, default=3
            Folds of queries that are held out.

        Returns
        -------
        LearningCurve
            An eighth, a quarter, half and all of the queries that a fold leaves. It prints itself, ``plot`` draws it,
            and ``extend`` says what more queries would bring.

        Notes
        -----
        Everything that these candidates choose is chosen anew for each training. With three folds this takes about four
        times as long as trying them once.

        Examples
        --------
        >>> from preflearn import AutoRanker
        >>> from preflearn.datasets import load_demo
        >>> X, y, qid, names = load_demo()
        >>> model = AutoRanker(time_limit=0.1, random_state=0).fit(X, y, qid=qid)
        >>> model.learning_curve().n_queries
        array([ 5, 10, 20, 40])
        """
        from ..model_selection import learning_curve

        check_is_fitted(self)
        X, y, qid = self._seen_or_given("learning_curve", X, y, qid)
        rows, model = self._encoded(X), clone(self)  # type: ignore[type-var]
        if qid is None:
            raise ValueError(
                "learning_curve needs queries: this model was fitted without qid, as one global ranking."
            )
        if isinstance(n_splits, bool) or not isinstance(n_splits, Integral) or n_splits < 2:
            raise ValueError(f"n_splits must be an int of at least 2: found {n_splits!r}.")
        if not isinstance(self.scoring, str | None):
            raise ValueError(
                "A learning curve needs a value for each query: found a function as scoring. Use the name of a "
                "measure, such as 'concordance' or 'ndcg@10'."
            )
        preset = Preset(candidates_of_curve(self.member_names_), refitted=0)
        model.set_params(preset=preset, time_limit=None, verbose=0)
        most = len(np.unique(np.asarray(qid)))
        most -= -(-most // n_splits)
        sizes = sorted({max(2, round(share * most)) for share in (0.125, 0.25, 0.5, 1.0)})
        y = np.asarray(self._read_targets(y, rows.shape[0]))
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="best_score_ is NaN")
            return learning_curve(
                model, rows, y, qid=qid, sizes=sizes, n_splits=n_splits, scoring=self.leaderboard_.scoring
            )

    def _seen_or_given(self, method: str, X: Any, y: Any, qid: Any) -> tuple[Any, Any, Any]:
        """The training data: what was given, or what this process has trained the model on."""
        if (X is None) != (y is None):
            raise ValueError(f"{method} needs both X and y, or neither of them: found only one.")
        if X is not None:
            return X, y, qid
        if self not in _SEEN:
            raise ValueError(
                f"{method} needs the training data, which loaded models and models of large tables do not keep: "
                f"pass {method}({'path, ' if method == 'report' else ''}X, y, qid=qid)."
            )
        return _SEEN[self]

    def report(
        self,
        path: str | os.PathLike[str] | None = None,
        X: Any = None,
        y: Any = None,
        *,
        qid: Any = None,
        title: str = "Ranking model",
    ) -> Any:
        """Write the report that ``preflearn train --report`` writes: one HTML page, or a model card (``.md``).

        Parameters
        ----------
        path : path, optional
            None writes nothing.
        X, y, qid : optional
            The training data. They need not be given in the process that trained the model, for up to five million
            cells.
        title : str, default="Ranking model"

        Returns
        -------
        TrainingReport
            What the page says.

        Examples
        --------
        >>> from preflearn import AutoRanker
        >>> from preflearn.datasets import load_demo
        >>> X, y, qid, names = load_demo()
        >>> model = AutoRanker(time_limit=0.1, random_state=0).fit(X[:150], y[:150], qid=qid[:150])
        >>> model.report().counts  # model.report("report.html") writes the page
        {'rows': 150, 'queries': 13, 'features': 8}
        """
        check_is_fitted(self)
        X, y, qid = self._seen_or_given("report", X, y, qid)
        from .training.automatic import report_of

        model: Any = self
        found = report_of(model, X, y, qid, title)
        if path is not None:
            from ..report import write_report

            write_report(found, path)
        return found
