r"""`leaderboard`: ranks from a table of scores, items × tasks, with intervals that hold together.

Tasks are a sample of those that might have been asked. Items i and j are compared over the N tasks both have (families
of tasks count once each, by the mean of their tasks):

    d̄_ij = mean_u (s_iu - s_ju),    se_ij = sd_u (s_iu - s_ju) / √N,    T_ij = d̄_ij / se_ij

and they differ significantly where |T_ij| exceeds the quantile of Student's distribution with N - 1 degrees of freedom
at (1 - level) / n (n - 1) to either side. All such signs, and with them all rank intervals (`ranks`), hold together
with the stated probability. With fewer tasks than items the correlations of all differences cannot be estimated, so
that Bonferroni's correction is used for any number of tasks; it costs little (up to 14 % of width).

Means are those of s_iu = a_i + b_u by least squares over what is known, so that an item without a score on a hard task
does not gain by it; in a complete table they are the plain means.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from scipy.stats import rankdata

from ..errors import InputError
from ..shown_tables import ShownTable, in_notebooks, visible
from . import ranks
from .ranks import MOST_COMPARED
from .scores import Scores, dominant_task, read_scores
from .tables import backend_of, frame_like, verdict

_MOST_TASKS = 10_000
# By which other libraries read a data frame.
_INTERCHANGE = ("__array__", "__arrow_c_stream__", "__dataframe__")


def leaderboard(
    scores: Any,
    *,
    item: str | None = None,
    task: str | None = None,
    score: str | None = None,
    family: Any = None,
    higher_is_better: Any = True,
    level: float = 0.95,
) -> Leaderboard:
    """Rank items by a table of scores on tasks: means and ranks with intervals, and what cannot be told apart.

    Parameters
    ----------
    scores : data frame or mapping of columns
        Wide, a row for each item and a column for each task, or long, a score in each row. Missing scores are empty.
    item : str, optional
        Column of the items; found where it is called ``item``, ``model``, ..., otherwise the first column of texts, or
        the index of a pandas frame.
    task, score : str, optional
        Columns of a long table; found by their usual names. Several scores of an item on a task, such as those of
        seeds, are averaged.
    family : mapping from task to family, or column of a long table, optional
        Tasks that depend on each other; each family counts once.
    higher_is_better : bool or mapping from task to bool, default=True
        Scores of tasks with False change their sign.
    level : float, default=0.95
        Of all intervals.

    Returns
    -------
    Leaderboard
        Prints itself, and can be used as its ``table``.

    Notes
    -----
    O(n² t) for n items and t tasks.

    References
    ----------
    Mogstad, Romano, Shaikh and Wilhelm, "Inference for ranks with applications to mobility across neighbourhoods",
    Review of Economic Studies 91 (2024).

    Examples
    --------
    >>> from preflearn import leaderboard
    >>> scores = {"model": ["x", "y", "z"], "a": [9.0, 7.0, 3.0], "b": [8.0, 7.5, 2.0], "c": [9.5, 8.0, 3.5],
    ...           "d": [7.5, 7.0, 1.5], "e": [8.0, 6.0, 2.0]}
    >>> board = leaderboard(scores)
    >>> list(board["item"]), list(board["rank_upper"])
    (['x', 'y', 'z'], [2, 2, 3])
    """
    if isinstance(level, bool) or not isinstance(level, (int, float)) or not 0.5 <= level < 1:
        raise InputError(
            f"{{argument}} is the probability of the intervals, at least 0.5 and below 1: found {level!r}",
            argument="level",
        )
    read = read_scores(scores, item, task, score, family, higher_is_better)
    if len(read.items) > MOST_COMPARED or len(read.tasks) > _MOST_TASKS:
        raise InputError(
            f"All pairs of items are compared over all tasks, for at most {MOST_COMPARED:,} items and "
            f"{_MOST_TASKS:,} tasks: found {len(read.items):,} and {len(read.tasks):,}"
        )
    return Leaderboard(read, float(level), backend_of(scores))


@in_notebooks
@dataclass(frozen=True, repr=False)
class Leaderboard:
    """Items ranked by their scores on tasks; `preflearn.leaderboard` makes it.

    Attributes
    ----------
    table : data frame
        Best first: ``item``, ``mean``, ``lower``, ``upper``, ``rank``, ``rank_lower``, ``rank_upper``, ``group``,
        ``tasks`` (how many the item has). An interval of a mean is about tasks such as these, and wide where tasks
        differ in difficulty; ranks, groups and ``differences`` compare items on the same tasks. Where the board itself
        is used as a data frame (``board["item"]``), it is this one.
    differences, neighbours, without_tasks, borda : data frame
    """

    scores: Scores
    level: float
    backend: Any = field(repr=False)

    def __getattr__(self, name: str) -> Any:
        if name in ("scores", "level", "backend") or (name.startswith("_") and name not in _INTERCHANGE):
            raise AttributeError(name)
        return getattr(self.table, name)

    def __getitem__(self, name: Any) -> Any:
        return self.table[name]

    def __len__(self) -> int:
        return len(self.scores.items)

    # What the scores say
    # -------------------------------------------------------------------------------

    @cached_property
    def fitted(self) -> tuple[np.ndarray, np.ndarray]:
        """The mean of each item, and its score on each family as far as it is known, shape (n, u)."""
        values, family = self.scores.values, self.scores.family
        means = _item_means(values, 1.0 / np.bincount(family)[family])
        known = ~np.isnan(values)
        F = np.eye(len(self.scores.families))[family]
        counts = known @ F
        centre = np.nanmean(values - means[:, None], axis=0)
        # Of a family some tasks of which are missing, relative to those that are there.
        off = np.where(known, values - centre, 0.0) @ F
        level = (centre @ F) / F.sum(axis=0)
        with np.errstate(invalid="ignore", divide="ignore"):
            return means, off / counts + level

    @cached_property
    def compared(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """d̄, se and N of all pairs, each of shape (n, n)."""
        values, n = self.scores.values, len(self.scores.items)
        F = np.eye(len(self.scores.families))[self.scores.family]
        difference, spread, shared = np.zeros((n, n)), np.zeros((n, n)), np.zeros((n, n))
        for i in range(n):
            D = values[i] - values
            both = ~np.isnan(D)
            counts = both @ F
            in_family = np.divide(
                np.where(both, D, 0.0) @ F, counts, out=np.zeros_like(counts), where=counts > 0
            )
            seen = counts > 0
            N = seen.sum(axis=1)
            mean = in_family.sum(axis=1) / np.maximum(N, 1)
            squares = np.where(seen, np.square(in_family - mean[:, None]), 0.0).sum(axis=1)
            difference[i], spread[i], shared[i] = mean, np.sqrt(squares / np.maximum(N - 1, 1)), N
        # Differences that happen to be the same on every task say nothing of how far they vary.
        upper = np.triu(np.ones((n, n), dtype=bool), 1) & (shared > 1)
        rounding = 1e-12 * np.nanmax(np.abs(values))
        some = spread[upper & (spread > rounding)]
        same = (spread <= rounding) & ~np.eye(n, dtype=bool)
        spread[same] = np.median(some) if some.size else 0.0
        return difference, spread / np.sqrt(np.maximum(shared, 1)), shared

    @cached_property
    def threshold(self) -> np.ndarray:
        """How many standard errors each difference must have, shape (n, n)."""
        n = len(self.scores.items)
        return np.asarray(ranks.bonferroni_thresholds(self.compared[2] - 1.0, n, self.level))

    @cached_property
    def apart(self) -> np.ndarray:
        """1 where an item is significantly ahead of another, -1 where behind, else 0."""
        difference, se, _ = self.compared
        with np.errstate(invalid="ignore"):  # 0 times an infinite threshold
            width = np.where(np.isfinite(self.threshold), self.threshold * se, np.inf)
        return np.where(np.abs(difference) > width, np.sign(difference), 0.0)

    @cached_property
    def order(self) -> np.ndarray:
        """Items, the best first."""
        return np.argsort(-self.fitted[0], kind="stable")

    @cached_property
    def columns_of_table(self) -> dict[str, list[Any]]:
        """The table as a mapping."""
        (means, units), order, scores = self.fitted, self.order, self.scores
        known = (~np.isnan(units)).sum(axis=1)
        se = _standard_errors(means, units)
        width = ranks.quantile_of(self.level, known - 1.0) * se
        width[known < 2] = np.inf
        rank = 1 + np.searchsorted(np.sort(-means), -means, side="left")
        best, worst = ranks.rank_bounds(self.apart)
        # Of items on different tasks, those they share may say another order than the means.
        best, worst = np.minimum(best, rank), np.maximum(worst, rank)
        lower, upper = means - width, means + width
        if scores.turned:
            means, lower, upper = -means, -upper, -lower
        return {
            "item": [scores.items[k] for k in order],
            "mean": means[order].tolist(),
            "lower": lower[order].tolist(),
            "upper": upper[order].tolist(),
            "rank": rank[order].tolist(),
            "rank_lower": best[order].tolist(),
            "rank_upper": worst[order].tolist(),
            "group": ranks.group_letters(self.apart[np.ix_(order, order)]),
            "tasks": (~np.isnan(scores.values)).sum(axis=1)[order].tolist(),
        }

    @cached_property
    def table(self) -> Any:
        return frame_like(self.backend, self.columns_of_table)

    @cached_property
    def differences(self) -> Any:
        """All pairs, by the places of the better and of the other one: ``item_a``, ``item_b``, ``difference``,
        ``lower``, ``upper`` (together for all pairs), ``significant``, ``tasks`` (or families) that both have, and
        ``tasks_needed``, how many would tell them apart if they differ as they seem to."""
        i, j = (self.order[k] for k in np.triu_indices(len(self), 1))
        return frame_like(self.backend, self._pairs(i, j))

    def _pairs(self, i: np.ndarray, j: np.ndarray) -> dict[str, list[Any]]:
        difference, se, shared = (one[i, j] for one in self.compared)
        t = self.threshold[i, j]
        with np.errstate(invalid="ignore"):
            width = np.where(np.isfinite(t), t * se, np.inf)
        needed = [
            _units_needed(abs(d), s * np.sqrt(N), len(self), self.level)
            for d, s, N in zip(difference, se, shared, strict=True)
        ]
        return {
            "item_a": [self.scores.items[k] for k in i],
            "item_b": [self.scores.items[k] for k in j],
            "difference": difference.tolist(),
            "lower": (difference - width).tolist(),
            "upper": (difference + width).tolist(),
            "significant": (self.apart[i, j] != 0).tolist(),
            "tasks": shared.astype(int).tolist(),
            "tasks_needed": needed,
        }

    @cached_property
    def neighbours(self) -> Any:
        """`differences` of neighbours on the board."""
        return frame_like(self.backend, self.parts["neighbours"])

    @cached_property
    def parts(self) -> dict[str, dict[str, list[Any]]]:
        """`neighbours`, `without_tasks` and `borda` as mappings."""
        return {
            "neighbours": self._pairs(self.order[:-1], self.order[1:]),
            "without_tasks": self._without_tasks(),
            "borda": self._borda(),
        }

    @cached_property
    def without_tasks(self) -> Any:
        """The board without each task: ``task``, ``family``, ``leader``, and ``moved``, the most places that an item
        moves; those that matter most come first."""
        return frame_like(self.backend, self.parts["without_tasks"])

    def _without_tasks(self) -> dict[str, list[Any]]:
        scores, rank = self.scores, np.argsort(self.order)
        weight = 1.0 / np.bincount(scores.family)[scores.family]
        rows = []
        for task in range(len(scores.tasks)):
            left = np.arange(len(scores.tasks)) != task
            values = scores.values[:, left]
            seen = ~np.isnan(values).all(axis=1)
            means = np.full(len(self), -np.inf)
            means[seen] = _item_means(values[seen], weight[left])
            order = np.argsort(-means, kind="stable")
            moved = np.abs(np.argsort(order) - rank)[seen].max()
            rows.append(
                (scores.tasks[task], scores.families[scores.family[task]], scores.items[order[0]], int(moved))
            )
        leader = scores.items[self.order[0]]
        rows.sort(key=lambda row: (row[2] == leader, -row[3]))
        names = ("task", "family", "leader", "moved")
        return dict(zip(names, map(list, zip(*rows, strict=True)), strict=True))

    @cached_property
    def borda(self) -> Any:
        """Mean and Borda's count side by side: ``item``, ``mean``, ``rank``, ``borda`` (the mean share of other items
        that it beats on a task) and ``borda_rank``."""
        return frame_like(self.backend, self.parts["borda"])

    def _borda(self) -> dict[str, list[Any]]:
        units, (board, order) = self.fitted[1], (self.columns_of_table, self.order)
        shares = np.full(units.shape, np.nan)
        for u in range(units.shape[1]):
            there = ~np.isnan(units[:, u])
            if there.sum() > 1:
                shares[there, u] = (rankdata(units[there, u].round(12)) - 1) / (there.sum() - 1)
        mean = np.nanmean(shares, axis=1)
        place = 1 + np.searchsorted(np.sort(-mean), -mean, side="left")
        return {
            **{name: board[name] for name in ("item", "mean", "rank")},
            "borda": mean[order].tolist(),
            "borda_rank": place[order].tolist(),
        }

    # Showing
    # ----------------------------------------------------------------------------------------------------------

    @property
    def verdict(self) -> str:
        """Which neighbours can be told apart."""
        i, j = self.order[:-1], self.order[1:]
        same = int((self.apart[i, j] == 0).sum())
        text = verdict(self.columns_of_table, same)
        needed = [one for one in self.parts["neighbours"]["tasks_needed"][:1] if one is not None]
        if same and needed and not self.apart[i[0], j[0]]:
            text += f" About {needed[0]:,} {self._unit} would tell the first two apart, if they differ as they seem to."
        return text

    @property
    def _unit(self) -> str:
        return "tasks" if len(self.scores.families) == len(self.scores.tasks) else "families of tasks"

    @property
    def notes(self) -> list[str]:
        """What to know before the ranks are believed."""
        scores, notes = self.scores, []
        n_units = len(scores.families)
        if n_units < 6:
            notes.append(f"{n_units} {self._unit} tell only very large differences from chance.")
        missing = int(np.isnan(scores.values).sum())
        if missing:
            notes.append(
                f"{missing:,} of {scores.values.size:,} scores are missing: items are compared on the tasks both have, "
                "and means allow for which tasks an item has."
            )
        task = dominant_task(scores)
        if task is not None:
            notes.append(
                f"Items are so much further apart on {visible(task)} than on most tasks that it decides the means: is "
                "it on another scale?"
            )
        if scores.repeats > 1:
            notes.append(f"Up to {scores.repeats:,} scores of an item on a task were averaged.")
        borda = self.parts["borda"]
        if borda["borda_rank"][0] != 1:
            other = visible(borda["item"][borda["borda_rank"].index(1)])
            notes.append(
                f"By Borda's count, which looks only at who is better on each task, {other} is first: a few tasks with "
                "large differences decide the mean."
            )
        without = self.parts["without_tasks"]
        leader = self.columns_of_table["item"][0]
        turns = [
            visible(task)
            for task, first in zip(without["task"], without["leader"], strict=True)
            if first != leader
        ]
        if turns:
            more = f" and {len(turns) - 3:,} more" if len(turns) > 3 else ""
            notes.append(f"Without one task another item leads: {', '.join(turns[:3])}{more}.")
        return notes

    def to_dict(self) -> dict[str, Any]:
        """What `preflearn rate --table --json` prints."""
        from ..report.ratings import rows_of

        return {
            "items": len(self),
            "tasks": len(self.scores.tasks),
            "families": len(self.scores.families),
            "level": self.level,
            "verdict": self.verdict,
            "notes": self.notes,
            "table": rows_of(self.columns_of_table),
            **{name: rows_of(columns) for name, columns in self.parts.items()},
        }

    def to_markdown(self) -> str:
        """The leaderboard as a Markdown table."""
        from ..report.ratings import markdown_scores

        return markdown_scores(self)

    def report(self, path: str | os.PathLike[str], *, title: str | None = None) -> None:
        """Write the board as one self-contained HTML page, or as Markdown with the suffix ``.md``."""
        from ..report.ratings import page_of_scores
        from ..tables.atomic import write_whole

        write_whole(path, page_of_scores(self, path, title))

    def __repr__(self) -> str:
        table = self.shown_tables()[0]
        width = min(40, max(len(row[1]) for row in table.rows))
        lines = [
            f"{rank:>5}  {name[:width]:<{width}} {mean:>9} {interval:>19} {places:>12}  {group}"
            for rank, name, mean, interval, places, group in table.rows
        ]
        return "\n".join([table.caption, *(line.rstrip() for line in lines), *table.notes])

    def shown_tables(self) -> list[ShownTable]:
        from ..report.ratings import shown_rows

        rows = [("rank", "item", "mean", "interval", "ranks", "group"), *shown_rows(self)[:20]]
        left = len(self) - 20
        families = "" if self._unit == "tasks" else f" in {len(self.scores.families):,} families"
        caption = f"Scores of {len(self):,} items on {len(self.scores.tasks):,} tasks{families}"
        notes = [*([f"... and {left:,} more"] if left > 0 else []), self.verdict, *self.notes]
        return [ShownTable(rows, caption, notes)]


def _item_means(values: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """a_i, with the weighted mean of b added, of the least-squares fit s_it = a_i + b_t over what is known."""
    known = ~np.isnan(values)
    W, S = known * weight, np.where(known, values, 0.0)
    if known.all():
        return S @ weight / weight.sum()
    n, size = values.shape[0], sum(values.shape)
    H = np.zeros((size, size))
    H[:n, :n], H[n:, n:] = np.diag(W.sum(axis=1)), np.diag(W.sum(axis=0))
    H[:n, n:], H[n:, :n] = W, W.T
    fit = np.linalg.lstsq(H, np.concatenate([(W * S).sum(axis=1), (W * S).sum(axis=0)]), rcond=None)[0]
    return fit[:n] + fit[n:] @ weight / weight.sum()


def _standard_errors(means: np.ndarray, units: np.ndarray) -> np.ndarray:
    """Of the means, over families: those of an item and how hard they were for all."""
    known = ~np.isnan(units)
    N = np.maximum(known.sum(axis=1), 1)
    hard = np.nanmean(units - means[:, None], axis=0)
    off = np.where(known, units - means[:, None] - hard, 0.0)
    off -= np.where(known, (off.sum(axis=1) / N)[:, None], 0.0)
    hard = hard - hard.mean()
    free = np.maximum(N - 1, 1)
    both = off @ hard / free + np.square(off).sum(axis=1) / (2.0 * free)
    variance = np.square(hard).sum() / (hard.size - 1) / hard.size + 2.0 * both / N
    return np.sqrt(np.maximum(variance, 0.0))


def _units_needed(difference: float, spread: float, n: int, level: float) -> int | None:
    """How many tasks make a difference significant among n items; None above a million."""
    low, high = 2, 1_000_000
    if difference <= 0 or not _is_enough(high, difference, spread, n, level):
        return None
    while low < high:
        middle = (low + high) // 2
        if _is_enough(middle, difference, spread, n, level):
            high = middle
        else:
            low = middle + 1
    return low


def _is_enough(N: int, difference: float, spread: float, n: int, level: float) -> bool:
    return bool(difference > ranks.bonferroni_thresholds(N - 1.0, n, level) * spread / np.sqrt(N))
