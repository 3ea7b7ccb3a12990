"""What a fitted `AutoRanker` tells besides its scores: a leaderboard on new data, a learning curve, a report.

These functions use rooms above the learners (`report`, `auto.training`), which are imported when they are called.
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

from ..comparisons import Groups
from ..model_selection._choice import read_scoring
from .candidates import Preset
from .features import combined_scores
from .leaderboard import Entry, Leaderboard

# The training data of the rankers of this process, for their reports; larger tables (in cells) are not kept alive.
_SEEN: WeakKeyDictionary[Any, tuple[Any, Any, Any, Any]] = WeakKeyDictionary()
_MOST_CELLS = 5_000_000


def remember(model: Any, X: Any, y: Any, qid: Any, groups: Any) -> None:
    """Keep what a model is fitted on, while the model lives, so that it can report on it."""
    _SEEN.pop(model, None)
    shape = getattr(X, "shape", None)
    if shape is None or (len(shape) == 2 and shape[0] * shape[1] <= _MOST_CELLS):
        _SEEN[model] = (X, y, qid, groups)


def candidates_of_curve(members: Sequence[str]) -> frozenset[str]:
    """The kinds of these members, also where few rows have fewer candidates; the linear one is always among them."""
    found = {"linear", *members}
    if any(one.startswith("learned kernel") for one in members):
        # Some views are tried from a number of rows on, these always.
        found |= {"learned kernel, quantiles", "learned kernel, quantiles and query"}
    return frozenset(found)


def seen_or_given(
    model: Any, method: str, X: Any, y: Any, qid: Any, groups: Any
) -> tuple[Any, Any, Any, Any]:
    """The training data: what was given, or what this process has trained the model on."""
    if (X is None) != (y is None):
        raise ValueError(f"{method} needs both X and y, or neither of them: found only one.")
    if X is not None:
        return X, y, qid, groups
    if model not in _SEEN:
        raise ValueError(
            f"{method} needs the training data, which loaded models and models of large tables do not keep: "
            f"pass {method}({'path, ' if method == 'report' else ''}X, y, qid=qid), and groups if there were any."
        )
    return _SEEN[model]


def leaderboard_on(model: Any, rows: np.ndarray, y: np.ndarray, queries: Groups) -> Leaderboard:
    """The leaderboard of a model with the scores of its members, and of the whole, for encoded rows."""
    views, scoring = model.features_.views(rows, queries), read_scoring(model.scoring)

    def measure(members: list[Any], seen: list[Any], weights: Any) -> float:
        scores = combined_scores(members, [views[view] for view in seen], weights)
        return float(np.ravel(scoring.measure(y[:, None], scores[:, None], queries))[0])

    members = zip(model.member_names_, model.members_, model.views_, strict=True)
    scores = {name: measure([member], [view], np.ones(1)) for name, member, view in members}
    whole = measure(model.members_, model.views_, model.weights_)
    board = model.leaderboard_
    least = scores.get(board.simplest, nan)

    def on_new(one: Entry, score: float) -> Entry:
        detail = one.detail if score == score else "has no part in the model"
        detail = "the model" if one is board.model else detail
        simplest = one is not board.model and one.name == board.simplest
        return replace(
            one, score=score, difference=nan if simplest else score - least, pvalue=nan, detail=detail
        )

    entries = [on_new(one, scores.get(one.name, nan)) for one in board]
    entries.sort(key=lambda one: -one.score if one.score == one.score else np.inf)
    title = f"{'C-index' if 'C-index' in board.title else board.scoring} on new data"
    return replace(board, entries=entries, model=on_new(board.model, whole), title=title)


def curve_of(model: Any, rows: np.ndarray, y: np.ndarray, qid: Any, groups: Any, n_splits: int) -> Any:
    """The `LearningCurve` of a model on encoded rows."""
    from ..model_selection.learning_curves import curve_folds, learning_curve

    if qid is None:
        raise ValueError(
            "learning_curve needs queries: this model was fitted without qid, as one global ranking."
        )
    if isinstance(n_splits, bool) or not isinstance(n_splits, Integral) or n_splits < 2:
        raise ValueError(f"n_splits must be an int of at least 2: found {n_splits!r}.")
    if not isinstance(model.scoring, str | None):
        raise ValueError(
            "A learning curve needs a value for each query: found a function as scoring. Use the name of a "
            "measure, such as 'concordance' or 'ndcg@10'."
        )
    preset = Preset(candidates_of_curve(model.member_names_), refitted=0)
    learner = clone(model).set_params(preset=preset, time_limit=None, verbose=0)
    order, folds = curve_folds(qid, groups, y.shape[0], n_splits)
    most = order.shape[0] - max(map(len, folds))
    sizes = sorted({max(2, round(share * most)) for share in (0.125, 0.25, 0.5, 1.0)})
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="best_score_ is NaN")
        options = {"sizes": sizes, "n_splits": n_splits, "scoring": model.leaderboard_.scoring}
        return learning_curve(learner, rows, y, qid=qid, groups=groups, **options)


def write_report_of(
    model: Any, path: str | os.PathLike[str] | None, X: Any, y: Any, qid: Any, groups: Any, title: str
) -> Any:
    """The report about a model, written to a file where there is a path."""
    from .training.train import report_of

    found = report_of(model, X, y, qid, groups, title)
    if path is not None:
        from ..report import write_report

        write_report(found, path)
    return found
