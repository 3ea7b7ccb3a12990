"""From members that were chosen on a sample to members that have learned from all rows.

One fold of the sample stays out. The members with a share are trained on all other rows; what they predict for this
fold gives their weights, and the figure that is reported: it is that of what was trained.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..comparisons import Groups, encode_queries
from ..kernels.functions import Kernel
from ..progress import Stages
from ..squared.devices.expansion import DeviceExpansions
from ..squared.expansion import Curves, Moments, kernel_moments
from ._loops import in_blocks
from .combination import FoldScores
from .features import Features
from .kernels import described, learned_kernel
from .leaderboard import Attempt, Trial, weigh
from .trees import Bins, TreeSum

# Rows that kernels learn from at most: their basis vectors limit what more rows could teach
# (benchmarks/rows_needed.py).
MOST_KERNEL_ROWS = 500_000
# Rows whose features are prepared together, about.
CHUNK_ROWS = 50_000


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

    @property
    def targets(self) -> np.ndarray:
        """Targets in the order of the rows, shape (k,)."""
        return self.y[self.order]

    def binned(self, bins: Bins, view: tuple[str, ...]) -> np.ndarray:
        """What trees learn from, a byte for each number: `in_blocks` of the codes of a view."""
        codes = []
        for chunk in self.chunks():
            within = encode_queries(self.queries.codes[chunk], chunk.stop - chunk.start)
            views = self.features.views(self.X[self.order[chunk]], within)
            codes.append(in_blocks(bins.codes_of(views[view])))
        return np.concatenate(codes, axis=1)

    def chunks(self) -> Iterator[slice]:
        """Whole queries, or rows of a single one, about `CHUNK_ROWS` at a time."""
        is_global = self.queries.n_groups == 1
        starts = np.arange(self.n_rows) if is_global else self.queries.starts[:-1]
        # A chunk ends with the first query that ends beyond its size.
        number = (np.append(starts[1:], self.n_rows) - 1) // CHUNK_ROWS
        bounds = np.append(starts[np.r_[True, np.diff(number) != 0]], self.n_rows)
        return map(slice, bounds[:-1].tolist(), bounds[1:].tolist())


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
    joining = [one for one in attempts if one.share > 0 and one.member is not None]
    return weigh(attempts, joining, y, queries, folds)


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
