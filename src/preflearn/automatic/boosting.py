r"""Boosted trees among the candidates: grown on the pairs inside queries, as long as held-out rows gain by it.

All folds grow side by side, stage after stage. After each stage the held-out rows are scored; the number of trees is
the one with the best score, and growing ends when the last stage has not helped. Leaves and trees grow with the rows.

The model is the mean of the trees that were grown without each fold: nothing is grown on all rows, five sets of trees
on four fifths of them are as good, and have been paid for.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from .._engine.core.holdout import rows_outside
from .._engine.loops.boosting import grow_trees
from .._engine.loops.threads import in_turns
from ..comparisons import encode_queries
from ..metrics import concordance
from .combination import centred, clearly_positive, nested
from .everything import Everything
from .tasks import Extension, Member, Task
from .trees import Bins, TreeSum

# Values that are told apart in a feature.
_BINS = 64
# Trees at the end of each stage. Another one follows while the last one has raised the score by more than the standard
# error of the difference over folds.
_STAGES = (40, 60, 90, 130, 190, 280, 400)
_RATE = 0.1
_RIDGE = 1.0
# Leaves at these numbers of rows.
_LEAVES = ((1_000, 8), (10_000, 16), (60_000, 24), (1_000_000, 63))
# Below so many rows a node looks at half of the features, and trees with the fewest leaves are tried as well.
_FEW_ROWS = 20_000
_FEWEST_LEAVES = 8
# Rows that trees learn from at most: a byte for each number is kept in memory.
_MOST_ROWS = 2_000_000


@dataclass
class _Grown:
    """Trees on some rows, and what they predict for others, stage by stage.

    Attributes
    ----------
    codes, targets, starts
        As in `grow_trees`.
    test_codes : uint8 array of shape (k, n)
    least, leaves : int
    share : float
    seed : int
    """

    codes: np.ndarray
    targets: np.ndarray
    starts: np.ndarray
    test_codes: np.ndarray
    least: int
    leaves: int
    share: float
    seed: int

    def __post_init__(self) -> None:
        self.trees: list[tuple] = []
        self._scores = np.zeros(self.targets.shape[0])
        self._test_scores = np.zeros(self.test_codes.shape[0])

    def grow(self, n_trees: int) -> np.ndarray:
        """More trees; the predictions of the test rows with all of them."""
        self.trees.append(
            grow_trees(
                self.codes,
                self.targets,
                self.starts,
                self._scores,
                self.test_codes,
                self._test_scores,
                n_trees,
                _BINS,
                self.leaves,
                _RATE,
                self.least,
                _RIDGE,
                self.share,
                self.seed + 1000 * len(self.trees),
            )
        )
        return self._test_scores.copy()


def boosted_trees(task: Task, view: tuple[str, ...]) -> Member:
    """Histogram trees on the gradients of the squared error of all pairs inside queries."""
    X = task.views[view]
    bins = Bins(X, _BINS)
    codes = bins.codes_of(X)
    t = centred(task.y[:, None], task.queries)[:, 0]
    sizes = (
        sorted({_FEWEST_LEAVES, n_leaves(task.n_rows)})
        if task.n_rows < _FEW_ROWS
        else [n_leaves(task.n_rows)]
    )
    grown = [
        [_without(task, codes, t, fold, size) for fold in range(len(task.folds.tests))] for size in sizes
    ]
    found = [_grow_in_stages(task, folds) for folds in grown]
    settings, scores = (np.concatenate(one) for one in zip(*found, strict=True))
    place = task.folds.best(scores)
    firsts = np.cumsum([0, *(len(one[1]) for one in found[:-1])])
    which = int(np.searchsorted(firsts, place, side="right")) - 1
    best = place - int(firsts[which])
    folds = grown[which]
    model = TreeSum.mean([TreeSum.of_boosting(one.trees[: best + 1], bins) for one in folds])
    detail = f"{_STAGES[best]} trees of {folds[0].leaves} leaves without each fold"

    extend = Extension(grow_on_everything, task, view, {"stage": best})
    unbiased = nested(task.folds, settings, scores)
    return Member(model, settings[place], unbiased, model.feature_importances_, detail, extend)


def cost(m: int, n: int) -> float:
    """Operations for rows and columns."""
    return 5 * _STAGES[len(_STAGES) // 2] * 8.0 * m * n


def n_leaves(n_rows: int) -> int:
    """Leaves for this many rows: straight lines in the logarithm of the rows."""
    rows, leaves = (np.log([one[k] for one in _LEAVES]) for k in (0, 1))
    return int(np.round(np.exp(np.interp(np.log(n_rows), rows, leaves))))


def _settings(n_rows: int) -> tuple[int, int, float]:
    """Least rows of a leaf, leaves, and the share of the features that a node looks at."""
    return min(50, max(5, n_rows // 50)), n_leaves(n_rows), 0.5 if n_rows < _FEW_ROWS else 1.0


def _without(task: Task, codes: np.ndarray, t: np.ndarray, fold: int, leaves: int) -> _Grown:
    test = task.folds.tests[fold]
    rest = rows_outside(task.n_rows, test)
    queries = encode_queries(task.queries.codes[rest], rest.shape[0])
    rest = rest[queries.order]
    least, _, share = _settings(task.n_rows)
    return _Grown(
        codes[rest], t[rest], queries.starts, codes[test], least, leaves, share, task.seed % 2**31 + fold
    )


def _grow_in_stages(task: Task, folds: list[_Grown]) -> tuple[np.ndarray, np.ndarray]:
    """Held-out predictions (s, m) and scores (s, f) after each stage, until one does not help."""
    settings: list[np.ndarray] = []
    scores: list[np.ndarray] = []
    for before, after in zip((0, *_STAGES), _STAGES):
        calls = [(one, after - before) for one in folds]
        grown = in_turns(_Grown.grow, calls, task.n_jobs)
        found = np.empty(task.n_rows)
        for test, values in zip(task.folds.tests, grown, strict=True):
            found[test] = values
        settings.append(found)
        scores.append(task.folds.of(found))
        if len(scores) > 1 and not clearly_positive(scores[-1] - scores[-2]):
            break
    return np.array(settings), np.array(scores)


def grow_on_everything(
    task: Task, view: tuple[str, ...], settings: Mapping[str, Any], everything: Everything
) -> TreeSum:
    """At least as many trees on all rows, with more leaves; more while the fold that is left out gains by it."""
    bins = Bins(task.views[view], _BINS)
    codes, targets, starts = everything.binned(bins, view, _MOST_ROWS)
    test = task.folds.tests[everything.fold]
    least, leaves, share = _settings(targets.shape[0])
    grown = _Grown(
        codes, targets, starts, bins.codes_of(task.views[view][test]), least, leaves, share, task.seed % 2**31
    )
    queries = encode_queries(task.queries.codes[test], test.shape[0])
    best_score, kept = -np.inf, 0
    for stage, (before, after) in enumerate(zip((0, *_STAGES), _STAGES)):
        predictions = grown.grow(after - before)
        score = concordance(task.y[test], predictions, queries)
        if score > best_score:
            best_score, kept = score, stage
        elif stage > settings["stage"]:
            break
    return TreeSum.of_boosting(grown.trees[: kept + 1], bins)


__all__ = ["boosted_trees", "cost", "grow_on_everything", "n_leaves"]
