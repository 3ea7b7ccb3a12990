"""Boosted trees among the candidates, and sums of trees as plain arrays: f(x) = Σ of the leaves that x ends in.

Boosted trees are grown by `_loops` on the pairs inside queries, as long as held-out rows gain by it; random ones by
scikit-learn on targets that are centred inside queries,

    t_i = y_i - mean of y over the query of i,

so that they spend no leaf on what only tells queries apart. Once grown, they are arrays of numbers: features,
thresholds, children, values. These can be checked when a model is loaded, which scikit-learn's own trees cannot.

All folds grow side by side, stage after stage. After each stage the held-out rows are scored; the number of trees is
the one with the best score, and growing ends when the last stage has not helped. Leaves and trees grow with the rows.
With few rows, trees with few and with more leaves are grown and averaged: held-out scores are too noisy there to choose
between them, and the choice would cost more than it gains. The model is the mean of the trees that were grown without
each fold: nothing is grown on all rows, five sets of trees on four fifths of them are as good, and have been paid for.

Why they are grown here: with the trees of a library in their place, on the same bins and with the same settings,
AutoRanker as a whole takes this many times the processor time (`benchmarks/trees.py`; one seed, OHSUMED to MQ2007 the
first fold):

=============================  ============  ==============
rows                           scikit-learn  LightGBM 4.7
=============================  ============  ==============
900, three kinds of data       1.50 to 1.59  1.28 to 1.39
8,700, three kinds of data     1.27 to 1.76  1.21 to 1.40
57,000, with interactions      1.20          1.09
LightGBM's example, 3,000      1.64          1.34
MSLR, 5,000 and 7,200          1.47, 1.39    1.42, 1.28
OHSUMED 2 and 3, 12,800        1.02, 1.15    0.98, 1.11
MQ2007, 47,600                 not run       1.01
preset "fast", 900 and 8,700   3.6 to 5.0    1.9 to 2.6
=============================  ============  ==============

Concordance of test queries differs by less than .001 or two standard errors, but for heavy tails at 900 rows (LightGBM
.0019 ± .0002 ahead) and the preset "fast" at 900 rows (behind by up to .0055 ± .0005 and .0029 ± .0005). LightGBM would
be one more package to install, on macOS with an OpenMP library beside it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.base import BaseEstimator

from ..comparisons import encode_queries
from ..numerics.onnx_graph import Graph, Value
from ..numerics.threads import in_turns, threads_at_hand
from ..squared.holdout.base import rows_outside
from ._loops import TreeOptions, Trees, add_up_trees, grow_trees, in_blocks
from .combination import centred, clearly_positive, nested
from .onnx_nodes import tree_nodes
from .tasks import LARGE_TABLE, Member, Task, halves_of

if TYPE_CHECKING:
    from .extension import MoreRows

# Values whose relative difference is no more than this may be one value in float32, whose rounding is a quarter of it;
# and the same for differences that cancelled, relative to the largest value.
_ROUNDED, _CANCELLED = 2.0**-22, 2.0**-46
# Files may hold shorter numbers; the loop is compiled for one kind.
_NODE_ARRAYS = {
    "roots_": np.int64,
    "feature_": np.int64,
    "threshold_": np.float64,
    "left_": np.int64,
    "right_": np.int64,
    "value_": np.float64,
}


class Bins:
    """Features as small whole numbers, the same for every fold.

    The code of x is the number of edges below it: x <= edge k means code <= k.

    Parameters
    ----------
    X : ndarray of shape (m, n)
    n_bins : int
        Number of distinct values that a feature is reduced to; at most 256.

    Attributes
    ----------
    edges : ndarray of shape (n, n_bins - 1)

    Examples
    --------
    >>> import numpy as np
    >>> X = np.array([[1.0], [2.0], [8.0], [9.0]])
    >>> Bins(X, 2).codes_of(X).ravel()
    array([0, 0, 1, 1], dtype=uint8)
    """

    def __init__(self, X: np.ndarray, n_bins: int) -> None:
        rows = X[:: max(1, X.shape[0] // 20_000)].astype(np.float64)  # at least that many, or all
        rows.sort(axis=0)
        self.edges = np.ascontiguousarray(
            np.quantile(rows, np.arange(1, n_bins) / n_bins, axis=0, method="midpoint").T
        )
        for k in range(X.shape[1]):
            if (np.diff(self.edges[k]) == 0).any():  # values that many rows share
                values = np.unique(X[:, k]).astype(np.float64)
                if 1 < values.shape[0] <= n_bins:
                    self.edges[k] = values[np.minimum(np.arange(n_bins - 1), values.shape[0] - 2)]
                    self.edges[k] = _between(self.edges[k], values)
                    continue
            self.edges[k] = _between(self.edges[k], rows[:, k])

    def codes_of(self, X: np.ndarray) -> np.ndarray:
        """The codes of rows, uint8 of shape (m, n)."""
        codes = np.empty(X.shape, dtype=np.uint8)

        def fill(k: int) -> None:
            codes[:, k] = np.searchsorted(self.edges[k], X[:, k])

        in_turns(fill, [(k,) for k in range(X.shape[1])])
        return codes


def _between(edges: np.ndarray, ordered: np.ndarray) -> np.ndarray:
    """The edges moved between the values: half-way from the last value below to the first above that differs from it.

    An edge on a value, or between two that differ by rounding, would tell rows apart by their last digit, which another
    program, float32 numbers or another order of summation do not share.

    Parameters
    ----------
    edges : ndarray of shape (k,)
        None below the smallest value.
    ordered : ndarray of shape (m,)
        Values of the feature, ascending.
    """
    low, high = ordered[0], ordered[-1]
    # Values near 0 of a feature with both signs are what is left of larger ones.
    floor = _CANCELLED * max(-low, high) if low < 0 < high else 0.0
    below = ordered[np.searchsorted(ordered, edges, side="right") - 1]
    last = np.searchsorted(ordered, below + np.maximum(_ROUNDED * np.abs(below), floor), side="right") - 1
    following = ordered[np.minimum(last + 1, ordered.shape[0] - 1)]
    edges = np.maximum(ordered[last] / 2 + following / 2, ordered[last])
    # No value follows the largest one: an edge there stands clear of its rounding.
    beyond = high + max(_ROUNDED * abs(high), floor)
    return np.where(last == ordered.shape[0] - 1, beyond, edges)


def _below_each_other(parts: Iterable[tuple]) -> tuple[tuple[np.ndarray, ...], np.ndarray]:
    """The arrays of all parts, and the number of nodes of each."""
    arrays = list(zip(*parts, strict=True))
    return tuple(map(np.concatenate, arrays)), np.array([one.shape[0] for one in arrays[0]])


class TreeSum(BaseEstimator):
    """A sum of regression trees in plain arrays.

    Attributes
    ----------
    roots_ : ndarray of int of shape (t,)
        The first node of each tree.
    feature_, threshold_ : ndarray of shape (k,)
        Of each node: rows with x[feature] <= threshold go left. Compared in float32.
    left_, right_ : ndarray of int of shape (k,)
        The children; 0 for a leaf.
    value_ : ndarray of shape (k,)
        What a leaf adds to the score.
    feature_importances_ : ndarray of shape (n,)
        Share of the gain of all splits; they sum to 1.
    n_features_in_ : int
    """

    @classmethod
    def of_boosting(cls, grown: Sequence[tuple], bins: Bins) -> TreeSum:
        """Trees of `_loops.boosting.grow_trees`, which were grown on codes of bins; for the features themselves.

        Parameters
        ----------
        grown : sequence of tuples
            What one call after the other has returned.
        bins : Bins
        """
        feature, code, left, right, value, gain, sizes = (
            np.concatenate(one) for one in zip(*grown, strict=True)
        )
        kept = np.arange(feature.shape[1]) < sizes[:, None]
        inner = kept & (left > 0)
        gains = np.bincount(feature[inner], weights=gain[inner], minlength=bins.edges.shape[0])
        nodes = tuple(one[kept] for one in (feature, bins.edges[feature, code], left, right, value))
        return cls()._join(nodes, sizes, gains)

    @classmethod
    def of_mean(cls, models: Sequence[Any]) -> TreeSum:
        """The mean of fitted regression trees."""
        trees = [one.tree_ for one in models]
        values = [one.value[:, 0, 0] / len(trees) for one in trees]
        nodes, sizes = _below_each_other(
            (one.feature, one.threshold, one.children_left, one.children_right, value)
            for one, value in zip(trees, values, strict=True)
        )
        gains = np.sum([one.compute_feature_importances(normalize=True) for one in trees], axis=0)
        return cls()._join(nodes, sizes, gains)

    @classmethod
    def mean(cls, sums: Sequence[TreeSum]) -> TreeSum:
        """The mean of several sums of trees."""
        nodes, sizes = _below_each_other(
            (one.feature_, one.threshold_, one.left_, one.right_, one.value_ / len(sums)) for one in sums
        )
        gains = np.sum([one.feature_importances_ for one in sums], axis=0)
        found = cls()._join(nodes, sizes, gains)
        # Every part is a sum of trees itself, which begin where its own roots are.
        starts = zip(found.roots_, sums, strict=True)
        found.roots_ = np.concatenate([start + one.roots_ for start, one in starts])
        return found

    def _join(self, nodes: tuple[np.ndarray, ...], sizes: np.ndarray, gains: np.ndarray) -> TreeSum:
        """Nodes of one part after the other, whose children are counted from the beginning of their part.

        A leaf has no left child: 0 here, -1 in scikit-learn.
        """
        self.roots_ = np.concatenate([[0], np.cumsum(sizes)[:-1]]).astype(np.int64)
        offset = np.repeat(self.roots_, sizes)
        feature, threshold, left, right, value = nodes
        is_leaf = left <= 0
        self.feature_ = np.where(is_leaf, 0, feature).astype(np.int64)
        self.threshold_ = _down_to_float32(np.where(is_leaf, 0.0, threshold))
        self.left_ = np.where(is_leaf, 0, left.astype(np.int64) + offset)
        self.right_ = np.where(is_leaf, 0, right.astype(np.int64) + offset)
        self.value_ = value.astype(np.float64)
        n = self.n_features_in_ = gains.shape[0]
        total = float(gains.sum())
        self.feature_importances_ = gains / total if total > 0 else np.full(n, 1.0 / n)
        return self

    def predict(self, X: np.ndarray) -> np.ndarray:
        """Scores of the rows of X, shape (m,)."""
        X = np.ascontiguousarray(X, dtype=np.float32)
        arrays = (getattr(self, name).astype(kind, copy=False) for name, kind in _NODE_ARRAYS.items())
        return add_up_trees(X, *arrays)

    def _onnx_nodes(self, graph: Graph, X: Value) -> Value:
        """What `predict` computes, recorded (`numerics.graph`)."""
        return tree_nodes(graph, X, self)

    def _fitted_arrays(self) -> dict[str, str]:
        """The shapes that loaded trees are checked for, and whether each walk stays inside and ends."""
        if "roots_" not in vars(self):
            return {}
        _refuse_tangles(*(np.asarray(getattr(self, name)) for name in ("roots_", "left_", "right_")))
        return {
            "roots_": "t < k",
            "feature_": "k < n",
            "threshold_": "k",
            "left_": "k <",
            "right_": "k <",
            "value_": "k",
            "feature_importances_": "n",
        }


def _down_to_float32(thresholds: np.ndarray) -> np.ndarray:
    """The largest float32 numbers up to these: features are compared in float32, so comparisons stay what they are."""
    found = thresholds.astype(np.float32)
    above = found > thresholds
    found[above] = np.nextafter(found[above], np.float32(-np.inf))
    return found.astype(np.float64)


def _refuse_tangles(roots: np.ndarray, left: np.ndarray, right: np.ndarray) -> None:
    """Refuse nodes that are not trees one after the other: walks would leave the arrays, not end, or end elsewhere.

    Raises
    ------
    ValueError
    """
    n_nodes = left.shape[0]
    if roots.size == 0 or roots[0] != 0 or (roots[1:] <= roots[:-1]).any() or roots[-1] >= n_nodes:
        raise ValueError("roots_ does not name the first node of each tree, in ascending order from 0")
    inner = np.flatnonzero(left != 0)
    last = np.append(roots[1:], n_nodes)[np.searchsorted(roots, inner, side="right") - 1]
    n_parents = np.bincount(roots.astype(np.int64), minlength=n_nodes)
    for name, children in (("left_", left), ("right_", right)):
        if children.shape != (n_nodes,):
            raise ValueError(f"{name} has shape {children.shape}, expected ({n_nodes},)")
        if (children[inner] <= inner).any():
            raise ValueError(f"{name} names a child that does not come after its parent")
        if (children[inner] >= last).any():
            raise ValueError(f"{name} names a child outside of its tree")
        n_parents += np.bincount(children[inner].astype(np.int64), minlength=n_nodes)
    if (n_parents != 1).any() or right[left == 0].any():
        raise ValueError("left_ and right_ do not name every node but the roots exactly once")


# Growing -------------------------------------------------------------------------------------------------------------

# From this number of rows on, trees see more values of a feature and every node looks at all features.
_MANY_ROWS = 20_000
# Trees at the end of each stage. Another one follows while the last one has raised the score by more than the standard
# error of the difference over folds.
_STAGES = (40, 60, 90, 130, 190, 280, 400)
# Of tables that are not large, trees of both numbers of leaves are averaged.
_FEW_LEAVES = (8, 16)


@dataclass
class _Grown:
    """Trees on some rows, and what they predict for others, stage by stage.

    Attributes
    ----------
    blocks, n_features, targets, starts, test_codes
        As in `grow_trees`.
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
        self._test_scores = np.zeros(self.test_codes.shape[1])

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
    sizes = _FEW_LEAVES if task.n_rows < LARGE_TABLE else (n_leaves(task.n_rows),)
    by_fold = [_without(task, codes, t, fold, sizes) for fold in range(len(task.folds.tests))]
    settings, scores = _grow_in_stages(task, by_fold)
    best = task.folds.best(scores)
    model = TreeSum.mean(
        [TreeSum.of_boosting(one.trees[: best + 1], bins) for fold in by_fold for one in fold]
    )
    leaves = " and ".join(map(str, sizes))
    detail = f"{_STAGES[best]} trees of {leaves} leaves per fold"

    unbiased = nested(task.folds, settings, scores)
    work, extend = cost_of_trees(task.n_rows, X.shape[1], best), partial(_grow_on_more_rows, task, view, best)
    return Member(model, settings[best], unbiased, model.feature_importances_, detail, work, extend)


def cost_of_trees(m: int, n: int, best_stage: int = len(_STAGES)) -> float:
    """Operations for rows and columns: of all stages, or up to the one that shows which was best."""
    trees = _STAGES[min(best_stage + 1, len(_STAGES) - 1)] * (len(_FEW_LEAVES) if m < LARGE_TABLE else 1)
    return (5.0 if m < _MANY_ROWS else 7.0) * trees * m * n


def n_bins(n_rows: int) -> int:
    """Bins of a feature for this many rows: many rows tell its ends apart, where the best items often are."""
    return 64 if n_rows < _MANY_ROWS else 255


def n_leaves(n_rows: int) -> int:
    """Leaves for this many rows: straight lines in the logarithm of the rows."""
    rows, leaves = np.log([20_000, 60_000, 1_000_000]), np.log([16, 24, 63])
    return int(np.round(np.exp(np.interp(np.log(n_rows), rows, leaves))))


def _options(n_rows: int, bins: int, leaves: int, n_blocks: int, *, half: bool) -> TreeOptions:
    """What suits this number of rows.

    ``half`` is for trees that learn from all rows, or show on a sample what they are worth: each looks at half of the
    blocks of features, where there are several, which takes half of the time.
    """
    least, share = min(50, max(5, n_rows // 50)), 0.5 if n_rows < _MANY_ROWS else 1.0
    some = (n_blocks + 1) // 2 if half and n_blocks >= 4 else n_blocks
    return TreeOptions(bins, leaves, least, share=share, n_blocks=some)


def _without(task: Task, codes: np.ndarray, t: np.ndarray, fold: int, sizes: tuple[int, ...]) -> list[_Grown]:
    """What grows without a fold, for each number of leaves."""
    test = task.folds.tests[fold]
    rest = rows_outside(task.n_rows, test)
    queries = encode_queries(task.queries.codes[rest], rest.shape[0])
    rest = rest[queries.order]
    blocks, seed = in_blocks(codes[rest]), task.seed % 2**31 + fold
    rows = (blocks, codes.shape[1], t[rest], queries.starts, in_blocks(codes[test]))
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
        if task.is_sample and after > 130:  # more are grown on all rows
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
    codes = more.binned(bins, view)
    m, test = more.n_rows, task.folds.tests[more.fold]
    grown = _Grown(
        codes,
        bins.edges.shape[0],
        more.targets,
        more.queries.starts,
        in_blocks(bins.codes_of(task.views[view][test])),
        _options(m, n_bins(task.n_rows), n_leaves(m), codes.shape[0], half=True),
        task.seed % 2**31,
        threads_at_hand(),
    )
    kept, unbiased = _grow_while_it_helps(task, more.fold, grown, best)
    return TreeSum.of_boosting(grown.trees[: kept + 1], bins), unbiased


def _grow_while_it_helps(task: Task, fold: int, grown: _Grown, least: int) -> tuple[int, np.ndarray]:
    """Stages until one no longer helps the fold that is left out, but more than ``least``.

    Returns the best stage, and predictions of the fold in which each half is predicted after the stage that the other
    half prefers.
    """
    halves = halves_of(task, task.folds.tests[fold])
    predictions: list[np.ndarray] = []
    scores: list[np.ndarray] = []
    for stage, (before, after) in enumerate(zip((0, *_STAGES), _STAGES)):
        predictions.append(grown.grow(after - before))
        scores.append(halves.of(predictions[-1]))
        if stage > least and halves.best(np.array(scores)) < stage:
            break
    return halves.best(np.array(scores)), nested(halves, np.array(predictions), np.array(scores))
