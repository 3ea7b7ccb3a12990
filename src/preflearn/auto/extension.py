"""From members that were chosen on a sample to members that have learned from all rows.

One fold of the sample stays out. The members with a share are trained on all other rows; what they predict for this
fold gives their weights, and the figure that is reported: it is that of what was trained.

The leaves of boosted trees are then fitted again to the residuals of the combination. Members that have learned from
many more rows than they can memorise have the same residuals on training rows as on new ones, and these can be learned:
a smooth kernel leaves jumps, and weights that are shrunk towards equal ones leave a little of everything. The trees
stay as they are, only the values of their leaves change. Trees that were grown on residuals would follow their noise.
With few rows, residuals on training rows are noise, and those on held-out rows reveal the targets of the rows that were
held out beside them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from ..comparisons import Groups, encode_queries
from ..kernels.functions import Kernel
from ..progress import Stages
from ..squared.devices.expansion import DeviceExpansions
from ..squared.expansion import Curves, Moments, kernel_moments
from ._loops import in_blocks
from .combination import FoldScores, centred, choose_combination, clearly_positive
from .features import Features, Views
from .kernels import described, learned_kernel
from .leaderboard import Attempt, Trial, name_of_model
from .prediction import WeightedMembers
from .tasks import Task
from .trees import Bins, TreeSum, boosted_trees, refit_trees

# Rows that kernels learn from at most: their basis vectors limit what more rows could teach
# (benchmarks/rows_needed.py).
MOST_KERNEL_ROWS = 500_000
# Rows whose features are prepared together, about.
CHUNK_ROWS = 50_000


class Binned(NamedTuple):
    """What boosted trees learn from, the rows of a query side by side.

    Attributes
    ----------
    codes : uint8 array of shape (blocks, m, 16)
        Of the features (`in_blocks`).
    targets : ndarray of shape (m,)
    starts : ndarray of int of shape (q + 1,)
        The first row of each query.
    begun : ndarray of shape (m,)
        Scores that the trees add to.
    """

    codes: np.ndarray
    targets: np.ndarray
    starts: np.ndarray
    begun: np.ndarray


@dataclass(frozen=True)
class MoreRows:
    """The rows outside of one fold of the sample.

    Attributes
    ----------
    features : Features
    X : ndarray of shape (m, n)
    y : ndarray of shape (m,)
        Targets on the scale of the sample.
    order : ndarray of int of shape (k,)
        The rows that are learned from, query after query.
    queries : Groups
        Of the rows in this order.
    fold : int
        The fold of the sample that stays out.
    device : DeviceExpansions or None
        Where kernels are evaluated; None for the processor.
    """

    features: Features
    X: np.ndarray
    y: np.ndarray
    order: np.ndarray
    queries: Groups
    fold: int
    device: DeviceExpansions | None = None

    @classmethod
    def without(
        cls, places: np.ndarray, features: Features, X: np.ndarray, y: np.ndarray, order: np.ndarray,
        queries: Groups, fold: int, device: DeviceExpansions | None = None,
    ) -> MoreRows:  # fmt: skip
        """All rows but those at some places of the order."""
        kept = np.ones(order.shape[0], dtype=bool)
        kept[places] = False
        part = encode_queries(queries.codes[kept], int(kept.sum()))
        return cls(features, X, y, order[kept], part, fold, device)

    @property
    def n_rows(self) -> int:
        return self.order.shape[0]

    def kernel_moments(
        self, kernel: Kernel, basis: np.ndarray, curves: Curves | None, view: tuple[str, ...]
    ) -> Moments:
        """Sums of kernel values and curves (`squared.expansion`) over about `MOST_KERNEL_ROWS` rows at most."""
        taken = self.queries.sample(MOST_KERNEL_ROWS)
        order, queries = self.order[taken], encode_queries(self.queries.codes[taken], taken.shape[0])

        def read(block: np.ndarray) -> np.ndarray:
            within = encode_queries(queries.codes[block], block.shape[0])
            return self.features.views(self.X[order[block]], within)[view]

        sum_up = kernel_moments if self.device is None else self.device.kernel_moments
        rows, is_global = np.arange(order.shape[0]), self.queries.n_groups == 1
        return sum_up(kernel, basis, read, self.y[order], queries, rows, is_global=is_global, curves=curves)

    def binned(
        self, bins: Bins, view: tuple[str, ...], scores: Callable[[Views], np.ndarray] | None = None
    ) -> Binned:
        """What trees learn from, a byte for each number.

        Parameters
        ----------
        bins : Bins
        view : tuple of str
        scores : callable, optional
            What trees are to correct, from views of some rows; nothing by default.
        """
        codes, begun = [], np.zeros(self.n_rows)
        for chunk in self.chunks():
            within = encode_queries(self.queries.codes[chunk], chunk.stop - chunk.start)
            views = self.features.views(self.X[self.order[chunk]], within)
            codes.append(in_blocks(bins.codes_of(views[view])))
            if scores is not None:
                begun[chunk] = scores(views)
        return Binned(np.concatenate(codes, axis=1), self.y[self.order], self.queries.starts, begun)

    def chunks(self) -> Iterator[slice]:
        """Whole queries, or rows of a single one, about `CHUNK_ROWS` at a time."""
        is_global = self.queries.n_groups == 1
        starts = np.arange(self.n_rows) if is_global else self.queries.starts[:-1]
        # A chunk ends with the first query that ends beyond its size.
        number = (np.append(starts[1:], self.n_rows) - 1) // CHUNK_ROWS
        bounds = np.append(starts[np.r_[True, np.diff(number) != 0]], self.n_rows)
        return map(slice, bounds[:-1].tolist(), bounds[1:].tolist())


def fold_to_keep(folds: FoldScores) -> int:
    """The fold with the most queries to compare."""
    return int(np.argmax(folds.sizes))


def can_extend(trial: Trial, n_rows: int, seconds: float) -> bool:
    """Whether a member with a share could learn from this number of rows in about this number of seconds.

    Held out on five folds, a candidate has been trained six times: a third of its time is a generous guess for one
    training with more basis vectors and trees.
    """
    growing = [one for one, member in trial.with_share if member.extend is not None]
    expected = 0.0
    for one in growing:
        is_kernel = one.candidate.train is learned_kernel
        taken = min(n_rows, MOST_KERNEL_ROWS) if is_kernel else n_rows
        expected += taken / trial.held_out.shape[0] / 3 * one.seconds
    return bool(growing) and expected < seconds


def extend(
    trial: Trial,
    more: MoreRows,
    X: np.ndarray,
    y: np.ndarray,
    queries: Groups,
    folds: FoldScores,
    stages: Stages,
) -> Trial:
    """The members with a share, trained on more rows, and their weights by the fold that stays out.

    Parameters
    ----------
    trial : Trial
        On the sample.
    more : MoreRows
    X : ndarray of shape (k, n)
        Of the fold that stays out.
    y : ndarray of shape (k,)
        Their targets.
    queries : Groups
    folds : FoldScores
        Of these rows: parts of the fold.
    stages : Stages
        Where the steps are announced.
    """
    test = trial.folds.tests[more.fold]
    views = more.features.views(X, queries)
    attempts = [_restricted(one, test) for one in trial.attempts]
    for one in attempts:
        member = one.member
        if one.share <= 0 or member is None or member.extend is None:
            continue
        is_kernel = one.candidate.train is learned_kernel
        n_learned = min(more.n_rows, MOST_KERNEL_ROWS) if is_kernel else more.n_rows
        with stages(f"{one.candidate.name} on {n_learned:,} rows"):
            model, unbiased = member.extend(more)
        one.member = replace(
            member,
            model=model,
            held_out=model.predict(views[one.candidate.view]),
            unbiased=unbiased,
            importances=model.feature_importances_,
            detail=f"{_settings(model)}; on {n_learned:,} rows",
        )
    joining = [(one, one.member) for one in attempts if one.share > 0 and one.member is not None]
    held_out, unbiased = (
        np.column_stack([getattr(member, name) for _, member in joining]) for name in ("held_out", "unbiased")
    )
    chosen = choose_combination(held_out, unbiased, y, queries, folds.choosing)
    for (one, _), weight, spread in zip(joining, chosen.weights, chosen.spreads, strict=True):
        one.share, one.factor = weight / chosen.weights.sum(), weight / spread
    scored = (folds.sizes > 0) & (folds.n_scored > 1)
    return Trial(attempts, folds, chosen.nested, name_of_model([one for one, _ in joining]), scored)


def _settings(model: Any) -> str:
    """The settings of a member, for the leaderboard."""
    if not isinstance(model, TreeSum):
        return described(model)
    n_nodes = np.diff(np.append(model.roots_, model.left_.shape[0]))
    return f"{n_nodes.shape[0]} trees of {(int(n_nodes.max()) + 1) // 2} leaves"


def _restricted(attempt: Attempt, rows: np.ndarray) -> Attempt:
    """The same with the held-out predictions of some rows."""
    member = attempt.member
    if member is None:
        return replace(attempt)
    return replace(
        attempt, member=replace(member, held_out=member.held_out[rows], unbiased=member.unbiased[rows])
    )


def correct(
    trial: Trial, task: Task, more: MoreRows, y: np.ndarray, queries: Groups, stages: Stages
) -> Trial:
    """The trial with corrected trees, unless the fold that stays out clearly loses by it.

    Parameters
    ----------
    trial : Trial
        Of members that were trained on more rows.
    task : Task
        Of the sample.
    more : MoreRows
    y : ndarray of shape (k,)
        Targets of the fold that stays out.
    queries : Groups
    stages : Stages
    """
    by_kind = {one.candidate.train: (one, member) for one, member in trial.kept}
    if boosted_trees not in by_kind or learned_kernel not in by_kind or np.count_nonzero(trial.scored) < 2:
        return trial
    trees, member = by_kind[boosted_trees]
    combined = WeightedMembers(
        [other.model for _, other in trial.kept],
        [one.candidate.view for one, _ in trial.kept],
        np.array([one.factor for one, _ in trial.kept]),
    )
    # Not those of `combined`: members that were not trained on more rows have learned from this fold as well.
    held_out = np.sum([one.factor * other.held_out for one, other in trial.kept], axis=0)
    slope = _slope(held_out, y, queries)
    if not slope > 0:
        return trial
    with stages(f"boosted trees, corrected on {more.n_rows:,} rows"):
        values, added = refit_trees(task, trees.candidate.view, member.model, combined, slope, held_out, more)
    corrected, by = trial.held_out + added / slope, trial.folds.choosing
    if clearly_positive(by.of(trial.held_out) - by.of(corrected)):
        return trial
    # What is added has the factor of the trees, and comes to 1 / slope of it.
    model = member.model.with_values(member.model.value_ + values / (slope * trees.factor))
    better = replace(trees, member=replace(member, model=model, detail=f"{member.detail}; then corrected"))
    attempts = [better if one is trees else one for one in trial.attempts]
    return replace(trial, attempts=attempts, held_out=corrected)


def _slope(scores: np.ndarray, y: np.ndarray, queries: Groups) -> float:
    """The factor that takes scores to the targets inside queries, by least squares; 0 where scores are all equal."""
    f, t = centred(np.column_stack([scores, y]), queries).T
    size = float(f @ f)
    return float(f @ t) / size if size > 0 else 0.0
