r"""Boosted trees among the candidates: grown on the pairs inside queries, as long as held-out rows gain by it.

All folds grow side by side, stage after stage. After each stage the held-out rows are scored; the number of trees is
the one with the best score, and growing ends when the last stage has not helped. Leaves and trees grow with the rows.
With few rows, trees with few and with more leaves are grown and averaged: held-out scores are too noisy there to choose
between them, and the choice would cost more than it gains.

The model is the mean of the trees that were grown without each fold: nothing is grown on all rows, five sets of trees
on four fifths of them are as good, and have been paid for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from ..comparisons import encode_queries
from ..numerics.threads import in_turns, threads_at_hand
from ..squared.holdout.base import rows_outside
from ._loops.boosting import TreeOptions, Trees, grow_trees, in_blocks, refit_leaves
from .combination import centred, clearly_positive, nested
from .tasks import Member, Task, halves_of
from .trees import Bins, TreeSum

if TYPE_CHECKING:
    from .extension import Binned, MoreRows
    from .prediction import WeightedMembers

# Distinct values that a feature is reduced to, below and from a number of rows: many rows tell the ends of a feature
# apart, where the best items often are.
_BINS, _MORE_BINS = 64, 255
_MORE_BINS_FROM = 20_000
# How much longer trees take with more bins.
_COST_OF_BINS = 1.4
# Trees at the end of each stage. Another one follows while the last one has raised the score by more than the standard
# error of the difference over folds.
_STAGES = (40, 60, 90, 130, 190, 280, 400)
# The same for trees whose leaves are fitted again to what a combination leaves.
_REFITTED = (30, 60, 100, 150, 200)
_RATE = 0.1
# Rows without a gradient that every leaf counts with: leaves of few rows are drawn to zero.
_RIDGE = 20.0
# Leaves at these numbers of rows.
_LEAVES = ((20_000, 16), (60_000, 24), (1_000_000, 63))
# Below this number of rows, trees of both numbers of leaves are averaged.
_FEW_ROWS = 10_000
_FEW_LEAVES = (8, 16)
# Below this number of rows, a node looks at half of the features.
_SHARE_BELOW = 20_000
# From this number of blocks of features on, a tree that learns from all rows looks at half of them, which takes half of
# the time, and so does one that shows on a sample what trees are worth.
_HALF_FROM = 4
# Trees on a sample, at most: more are grown on all rows.
_TREES_OF_SAMPLE = 130


@dataclass
class _Grown:
    """Trees on some rows, and what they predict for others, stage by stage.

    Attributes
    ----------
    blocks, n_features, targets, starts
        As in `grow_trees`.
    test_codes : uint8 array of shape (k, n)
    options : TreeOptions
    seed : int
    n_threads : int
        That work on one tree; one where others work on other folds.
    """

    blocks: np.ndarray
    n_features: int
    targets: np.ndarray
    starts: np.ndarray
    test_codes: np.ndarray
    options: TreeOptions
    seed: int
    n_threads: int = 1

    def __post_init__(self) -> None:
        self.trees: list[Trees] = []
        self._scores = np.zeros(self.targets.shape[0])
        self._test_scores = np.zeros(self.test_codes.shape[0])

    def grow(self, n_trees: int) -> np.ndarray:
        """More trees; the predictions of the test rows with all of them."""
        self.trees.append(
            grow_trees(
                self.blocks,
                self.n_features,
                self.targets,
                self.starts,
                self._scores,
                self.test_codes,
                self._test_scores,
                n_trees,
                self.options,
                self.seed + 1000 * len(self.trees),
                self.n_threads,
            )
        )
        return self._test_scores.copy()


def boosted_trees(task: Task, view: tuple[str, ...]) -> Member:
    """Histogram trees on the gradients of the squared error of all pairs inside queries."""
    X = task.views[view]
    bins = Bins(X, n_bins(task.n_rows))
    codes = bins.codes_of(X)
    t = centred(task.y[:, None], task.queries)[:, 0]
    sizes = _FEW_LEAVES if task.n_rows < _FEW_ROWS else (n_leaves(task.n_rows),)
    by_fold = [_without(task, codes, t, fold, sizes) for fold in range(len(task.folds.tests))]
    settings, scores = _grow_in_stages(task, by_fold)
    best = task.folds.best(scores)
    model = TreeSum.mean(
        [TreeSum.of_boosting(one.trees[: best + 1], bins) for fold in by_fold for one in fold]
    )
    leaves = " and ".join(map(str, sizes))
    detail = f"{_STAGES[best]} trees of {leaves} leaves per fold"

    unbiased = nested(task.folds, settings, scores)
    work, extend = cost(task.n_rows, X.shape[1], best), partial(_grow_on_more_rows, task, view, best)
    return Member(model, settings[best], unbiased, model.feature_importances_, detail, work, extend)


def cost(m: int, n: int, best_stage: int = len(_STAGES)) -> float:
    """Operations for rows and columns: of all stages, or up to the one that shows which was best."""
    trees = _STAGES[min(best_stage + 1, len(_STAGES) - 1)] * (len(_FEW_LEAVES) if m < _FEW_ROWS else 1)
    return 5.0 * trees * m * n * (1.0 if m < _MORE_BINS_FROM else _COST_OF_BINS)


def n_bins(n_rows: int) -> int:
    """Bins of a feature for this many rows."""
    return _BINS if n_rows < _MORE_BINS_FROM else _MORE_BINS


def n_leaves(n_rows: int) -> int:
    """Leaves for this many rows: straight lines in the logarithm of the rows."""
    rows, leaves = (np.log([one[k] for one in _LEAVES]) for k in (0, 1))
    return int(np.round(np.exp(np.interp(np.log(n_rows), rows, leaves))))


def _options(n_rows: int, bins: int, leaves: int, n_blocks: int, *, half: bool) -> TreeOptions:
    """What suits this number of rows; ``half`` of the blocks of features for each tree, where there are several."""
    least, share = min(50, max(5, n_rows // 50)), 0.5 if n_rows < _SHARE_BELOW else 1.0
    some = (n_blocks + 1) // 2 if half and n_blocks >= _HALF_FROM else n_blocks
    return TreeOptions(bins, leaves, least, _RATE, _RIDGE, share, some)


def _without(task: Task, codes: np.ndarray, t: np.ndarray, fold: int, sizes: tuple[int, ...]) -> list[_Grown]:
    """What grows without a fold, for each number of leaves."""
    test = task.folds.tests[fold]
    rest = rows_outside(task.n_rows, test)
    queries = encode_queries(task.queries.codes[rest], rest.shape[0])
    rest = rest[queries.order]
    blocks, seed = in_blocks(codes[rest]), task.seed % 2**31 + fold
    rows = (blocks, codes.shape[1], t[rest], queries.starts, codes[test])
    shape = (task.n_rows, n_bins(task.n_rows))
    return [
        _Grown(*rows, _options(*shape, leaves, blocks.shape[0], half=task.is_sample), seed + 100 * k)
        for k, leaves in enumerate(sizes)
    ]


def _grow_in_stages(task: Task, by_fold: list[list[_Grown]]) -> tuple[np.ndarray, np.ndarray]:
    """Held-out predictions (s, m) and scores (s, f) after each stage, until one does not help."""
    settings: list[np.ndarray] = []
    scores: list[np.ndarray] = []
    for before, after in zip((0, *_STAGES), _STAGES):
        if task.is_sample and after > _TREES_OF_SAMPLE:
            break
        calls = [(one, after - before) for fold in by_fold for one in fold]
        grown = iter(in_turns(_Grown.grow, calls, task.n_jobs))
        found = np.empty(task.n_rows)
        for test, fold in zip(task.folds.tests, by_fold, strict=True):
            found[test] = np.mean([next(grown) for _ in fold], axis=0)
        settings.append(found)
        scores.append(task.folds.of(found))
        if len(scores) > 1 and not clearly_positive(scores[-1] - scores[-2]):
            break
    return np.array(settings), np.array(scores)


def _grow_on_more_rows(
    task: Task, view: tuple[str, ...], best: int, more: MoreRows
) -> tuple[TreeSum, np.ndarray]:
    """More trees than those of the best stage, with more leaves, as long as the fold that stays out gains by it.

    Their number is chosen by the fold. What is predicted for one half of its queries is chosen by the other half.
    """
    bins = Bins(task.views[view], n_bins(task.n_rows))
    codes, targets, starts, _ = more.binned(bins, view)
    m, test = targets.shape[0], task.folds.tests[more.fold]
    grown = _Grown(
        codes,
        bins.edges.shape[0],
        targets,
        starts,
        bins.codes_of(task.views[view][test]),
        _options(m, n_bins(task.n_rows), n_leaves(m), codes.shape[0], half=True),
        task.seed % 2**31,
        threads_at_hand(),
    )
    kept, unbiased = _grow_while_it_helps(task, more.fold, grown, _STAGES, best)
    return TreeSum.of_boosting(grown.trees[: kept + 1], bins), unbiased


@dataclass
class _Refitted:
    """Trees whose leaves are given the values that are missing in other scores, stage by stage.

    Attributes
    ----------
    binned : Binned
        Rows with the scores that the trees add to.
    test_codes : uint8 array of shape (k, n)
    test_scores : ndarray of shape (k,)
        Of rows that are predicted.
    trees : TreeSum
    bins : Bins
        What its thresholds are edges of.
    """

    binned: Binned
    test_codes: np.ndarray
    test_scores: np.ndarray
    trees: TreeSum
    bins: Bins

    def __post_init__(self) -> None:
        trees = self.trees
        self.values: list[np.ndarray] = [np.zeros(trees.value_.shape[0])]
        self._n_trees = 0
        self._sizes = np.diff(np.append(trees.roots_, trees.value_.shape[0]))
        codes = self.bins.code_of_edges(trees.feature_, trees.threshold_)
        self._nodes = (trees.feature_, codes, trees.left_, trees.right_)

    def grow(self, n_trees: int) -> np.ndarray:
        """Values for more trees; the scores of the test rows with all of them."""
        some = slice(self._n_trees, self._n_trees + n_trees)
        self.values.append(self.values[-1].copy())
        refit_leaves(
            self.binned.codes,
            self.trees.roots_[some],
            self._sizes[some],
            self._nodes,
            self.binned.targets,
            self.binned.starts,
            self.binned.begun,
            self.test_codes,
            self.test_scores,
            _RATE,
            _RIDGE,
            self.values[-1],
        )
        self._n_trees += n_trees
        return self.test_scores.copy()


def refit_trees(
    task: Task, view: tuple[str, ...], trees: TreeSum, combined: WeightedMembers, slope: float,
    held_out: np.ndarray, more: MoreRows,
) -> tuple[np.ndarray, np.ndarray]:  # fmt: skip
    """What the leaves of the trees of a combination would have to add to it, and what that is for the fold left out.

    Parameters
    ----------
    task : Task
        Of the sample.
    view : tuple of str
    trees : TreeSum
    combined : WeightedMembers
        The combination, as a function of views.
    slope : float
        The factor that takes it to the targets.
    held_out : ndarray
        What it predicts for the fold that stays out.
    more : MoreRows
    """
    bins = Bins(task.views[view], n_bins(task.n_rows))
    binned, begun = more.binned(bins, view, lambda views: slope * combined(views)), slope * held_out
    test_codes = bins.codes_of(task.views[view][task.folds.tests[more.fold]])
    refitted = _Refitted(binned, test_codes, begun.copy(), trees, bins)
    stages = np.unique(np.minimum(_REFITTED, trees.roots_.shape[0])).tolist()
    kept, unbiased = _grow_while_it_helps(task, more.fold, refitted, stages)
    return refitted.values[kept + 1], unbiased - begun


def _grow_while_it_helps(
    task: Task, fold: int, grown: _Grown | _Refitted, stages: Sequence[int], least: int = 0
) -> tuple[int, np.ndarray]:
    """Stages until one no longer helps the fold that is left out, but more than ``least``.

    Returns the best stage, and predictions of the fold in which each half is predicted after the stage that the other
    half prefers.
    """
    halves = halves_of(task, task.folds.tests[fold])
    predictions: list[np.ndarray] = []
    scores: list[np.ndarray] = []
    for stage, (before, after) in enumerate(zip((0, *stages), stages)):
        predictions.append(grown.grow(after - before))
        scores.append(halves.of(predictions[-1]))
        if stage > least and halves.best(np.array(scores)) < stage:
            break
    return halves.best(np.array(scores)), nested(halves, np.array(predictions), np.array(scores))


__all__ = ["boosted_trees", "cost", "n_leaves", "refit_trees"]
