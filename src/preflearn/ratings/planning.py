"""Which battles to run next, and how many until a question is settled.

The covariance of the strengths says what each battle would tell about the goal (`losses.questions`). Settled
means that every difference the goal is about exceeds the simultaneous threshold: for the top k, those between the k
best and the others; for the order, those between neighbours.
"""

from __future__ import annotations

import re
from collections.abc import Hashable
from typing import Any

import numpy as np
from scipy.special import expit

from ..errors import InputError
from ..losses.questions import choose_pairs
from .ranks import standard_errors_of_differences

_MOST_BATTLES = 1_000_000


def read_goal(goal: Any, items: list[Hashable]) -> int | tuple[int, int] | None:
    """None for the order, k for the top k, numbers of two items for their order."""
    if goal is None or goal == "order":
        return None
    if isinstance(goal, str):
        top = re.fullmatch(r"top[-: ]?(\d+)", goal.strip())
        if top:
            k = int(top[1])
            if not 1 <= k < len(items):
                raise InputError(
                    f"{{argument}} {goal!r}: choose between top-1 and top-{len(items) - 1} for {len(items)} items",
                    argument="goal",
                )
            return k
        names = {str(item): k for k, item in enumerate(items)}
        for match in re.finditer(r" vs\.? ", goal):
            one, other = goal[: match.start()].strip(), goal[match.end() :].strip()
            if one in names and other in names and one != other:
                return names[one], names[other]
    if (
        isinstance(goal, (tuple, list))
        and len(goal) == 2
        and all(one in items for one in goal)
        and goal[0] != goal[1]
    ):
        return items.index(goal[0]), items.index(goal[1])
    raise InputError(
        f"{{argument}} must be 'order', 'top-5' (any number below {len(items)}) or 'A vs B' with the names of two "
        f"items: found {goal!r}",
        argument="goal",
    )


def next_pairs(mean: np.ndarray, C: np.ndarray, n: int, goal: int | tuple[int, int] | None) -> np.ndarray:
    """The n most telling battles, shape (n, 2); a pair comes again once all have been taken."""
    m = mean.shape[0]
    if isinstance(goal, tuple):
        # Others may tell as much in a batch that asks each pair once, but the battle of the two is never useless.
        return np.tile([goal], (n, 1))
    chosen = np.empty((0, 2), dtype=np.int64)
    while chosen.shape[0] < n:
        more = choose_pairs(mean, C, n - chosen.shape[0], closed=np.eye(m, dtype=bool), goal=goal)
        if not more.shape[0]:
            break
        chosen = np.concatenate([chosen, more])
        for a, b in more:
            C = after_battles(mean, C, a, b, 1.0)
    return chosen


def after_battles(mean: np.ndarray, C: np.ndarray, a: int, b: int, n: float) -> np.ndarray:
    """The covariance after n more battles of a and b that go as expected."""
    y = C[a] - C[b]
    p = expit(mean[a] - mean[b])
    information = n * p * (1.0 - p)
    return C - np.multiply.outer(y, y * (information / (1.0 + information * max(float(y[a] - y[b]), 0.0))))


def differences_of_goal(mean: np.ndarray, goal: int | tuple[int, int] | None) -> np.ndarray:
    """Pairs of items whose order the goal is about, the better one first, shape (k, 2)."""
    order = np.argsort(-mean, kind="stable")
    if goal is None:
        return np.stack([order[:-1], order[1:]], axis=1)
    if isinstance(goal, tuple):
        return np.array([goal if mean[goal[0]] >= mean[goal[1]] else goal[::-1]])
    top, rest = order[:goal], order[goal:]
    return np.stack([np.repeat(top, rest.size), np.tile(rest, top.size)], axis=1)


def battles_needed(
    mean: np.ndarray, C: np.ndarray, goal: int | tuple[int, int] | None, threshold: float | np.ndarray
) -> int | None:
    """How many well-chosen battles settle the goal if the strengths are as estimated; None beyond a million.

    The difference furthest from being settled gets the next battles, a fiftieth more at a time.
    """
    a, b = differences_of_goal(mean, goal).T
    gap = mean[a] - mean[b]
    needed = np.broadcast_to(threshold, C.shape)[a, b]
    if (gap <= 0).any() or np.isinf(needed).any():
        return None
    total = 0.0
    while total < _MOST_BATTLES:
        ratio = gap / (needed * np.maximum(standard_errors_of_differences(C)[a, b], 1e-12))
        worst = int(np.argmin(ratio))
        if ratio[worst] >= 1.0:
            return int(np.ceil(total))
        n = max(1.0, np.floor(total / 50.0))
        C = after_battles(mean, C, int(a[worst]), int(b[worst]), n)
        total += n
    return None
