"""How consistent a judge is with themselves and with others: repeated answers, circles, disagreement.

A circle is three items of which a judge prefers the first to the second, the second to the third and the third to the
first. With A the 0/1 matrix of preferences, there are trace(A³) / 3 of them, among the triangles of the undirected
graph of comparisons.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.special import expit

from .answers import Answer

# Answers in a row after which "always equal" and "always the same side" are remarked on.
_RUN = 15
# Judges, and pairs of them, that are shown.
_MOST_JUDGES = 50


def self_consistency(answers: Sequence[Answer]) -> dict[str, Any]:
    """Of one judge's answers: repeated questions answered the same way, and circles among triangles.

    Examples
    --------
    >>> said = [Answer(*pair, "ann", "", str(k)) for k, pair in enumerate(["ab", "bc", "ca", "ab"])]
    >>> found = self_consistency(said)
    >>> found["repeated"], found["repeated_same"], found["triangles"], found["circles"], found["example"]
    (1, 1, 1, 1, ['a', 'b', 'c'])
    """
    said: dict[frozenset[str], list[str | None]] = defaultdict(list)
    for answer in answers:
        said[frozenset((answer.winner, answer.loser))].append(None if answer.tie else answer.winner)
    repeated = [(one, two) for verdicts in said.values() for one, two in zip(verdicts, verdicts[1:])]
    triangles, circles, example = _circles(answers)
    return {
        "answers": len(answers),
        "equal": sum(answer.tie for answer in answers),
        "repeated": len(repeated),
        "repeated_same": sum(one == two for one, two in repeated),
        "triangles": triangles,
        "circles": circles,
        "example": example,
        "remark": _remark(answers),
    }


def _circles(answers: Sequence[Answer]) -> tuple[int, int, list[str]]:
    """Triangles, how many of them are circles, and one circle by the names of its items."""
    last = {
        frozenset((answer.winner, answer.loser)): (answer.winner, answer.loser)
        for answer in answers
        if not answer.tie
    }
    names = sorted({name for pair in last.values() for name in pair})
    if len(names) < 3:
        return 0, 0, []
    number = {name: k for k, name in enumerate(names)}
    rows, columns = np.array([(number[a], number[b]) for a, b in last.values()]).T
    shape = (len(names), len(names))
    A = sp.csr_array((np.ones(rows.size), (rows, columns)), shape=shape)
    U = A + A.T
    triangles = round(float((U @ U).multiply(U).sum()) / 6)
    # Entry (j, h) of A² counts the paths from j to h; an edge from h to j closes them.
    closing = sp.coo_array((A @ A).multiply(A.T))
    circles = round(float(closing.sum()) / 3)
    if not circles:
        return triangles, 0, []
    start, end = int(closing.row[0]), int(closing.col[0])
    middle = next(k for k in A[[start]].indices if A[int(k), end])
    circle = [int(start), int(middle), int(end)]
    turn = circle.index(min(circle))
    return triangles, circles, [names[k] for k in circle[turn:] + circle[:turn]]


def _remark(answers: Sequence[Answer]) -> str:
    """What to say to a judge whose answers cannot tell much."""
    run = answers[-_RUN:]
    if len(run) < _RUN:
        return ""
    if all(answer.tie for answer in run):
        return (
            f"The last {_RUN} answers were all “equal”. Equal answers say that items are close but not which is "
            "better: choose the slightly better one where you can, or stop if the items really are alike."
        )
    sides = [answer.left for answer in run]
    if all(side is True for side in sides) or all(side is False for side in sides):
        where = "left" if sides[0] else "right"
        return (
            f"The last {_RUN} answers were all the {where} one. The sides are drawn by lot, so this is unlikely to be "
            "what you think of the items."
        )
    return ""


def agreement(
    answers: Sequence[Answer], scores: Mapping[str, float], reliability: Mapping[str, float]
) -> dict[str, Any]:
    """Judges compared: with each other on common questions, and each with the order of all.

    Parameters
    ----------
    answers : sequence of Answer
    scores : mapping of item names to latent scores
    reliability : mapping of judges to their reliability

    Returns
    -------
    dict
        ``judges``: for each the number of answers, the share that agrees with the common order and the answers that
        contradict it most; those with most answers first, up to 50 of ``n_judges``. ``pairs``: for each two judges
        with common questions how many, and on how many they agree; those with most first, up to 50.
    """
    by_judge: dict[str, list[Answer]] = defaultdict(list)
    for answer in answers:
        by_judge[answer.judge].append(answer)
    judges: list[dict[str, Any]] = []
    for judge, given in by_judge.items():
        clear = [answer for answer in given if not answer.tie]
        margins = np.array([scores[answer.winner] - scores[answer.loser] for answer in clear])
        against = sorted(range(len(clear)), key=lambda k: margins[k])[:5]
        judges.append(
            {
                "judge": judge,
                "answers": len(given),
                "agrees": float(np.mean(margins > 0)) if clear else None,
                "reliability": _shown_reliability(judge, len(given), reliability),
                "against": [
                    {
                        "winner": clear[k].winner,
                        "loser": clear[k].loser,
                        "probability": float(expit(margins[k])),
                    }
                    for k in against
                    if margins[k] < 0
                ],
            }
        )
    judges.sort(key=lambda one: -len(by_judge[one["judge"]]))
    return {"judges": judges[:_MOST_JUDGES], "n_judges": len(judges), "pairs": _common(by_judge)}


def _shown_reliability(judge: str, n_answers: int, reliability: Mapping[str, float]) -> float | None:
    """From 0 to 1, the most reliable judge; None where there are too few answers, or judges, to tell."""
    largest = max(reliability.values(), default=0.0)
    if n_answers < 20 or len(reliability) < 2 or judge not in reliability or largest <= 0:
        return None
    return float(np.clip(reliability[judge] / largest, 0.0, 1.0))


def _common(by_judge: Mapping[str, Sequence[Answer]]) -> list[dict[str, Any]]:
    """Judges who answered the same questions, those with most of them first; questions are looked up, not judges."""
    said: dict[frozenset[str], dict[str, str | None]] = defaultdict(dict)
    for judge, given in by_judge.items():
        for answer in given:
            said[frozenset((answer.winner, answer.loser))][judge] = None if answer.tie else answer.winner
    common: Counter[tuple[str, str]] = Counter()
    same: Counter[tuple[str, str]] = Counter()
    place = {judge: number for number, judge in enumerate(by_judge)}
    for verdicts in said.values():
        few = sorted(verdicts, key=place.__getitem__)[:_MOST_JUDGES]
        for one, two in combinations(few, 2):
            common[one, two] += 1
            same[one, two] += verdicts[one] == verdicts[two]
    return [
        {"judges": list(pair), "common": count, "same": same[pair]}
        for pair, count in common.most_common(_MOST_JUDGES)
    ]


def answers_worth_giving(history: Sequence[tuple[int, float]], n_items: int, gain: float) -> int | None:
    """How many more answers until ten of them add less than ``gain`` to the expected share; None if it is too early.

    The share that is still expected to be wrong is extrapolated as c n^-b, fitted to the second half of what was seen.

    Examples
    --------
    >>> answers_worth_giving([(n, 1 - 2.0 / n) for n in range(10, 101)], 50, gain=0.002)
    0
    >>> answers_worth_giving([(n, 1 - 2.0 / n) for n in range(10, 51)], 50, gain=0.002)
    50
    """
    least = max(8, n_items // 4)
    seen = [(n, 1.0 - share) for n, share in history if n >= least and share < 1.0 - 1e-9]
    if len(seen) < 5:
        settled = history and history[-1][0] >= least and history[-1][1] >= 1.0 - 1e-9
        return 0 if settled else None
    seen = seen[len(seen) // 2 :]
    n, wrong = np.array(seen, dtype=float).T
    slope, level = np.polyfit(np.log(n), np.log(wrong), 1)
    power = float(np.clip(-slope, 0.05, 5.0))
    # -10 d/dn c n^-b = gain, with the curve through the last point: c = wrong n^b.
    last = float(n[-1])
    scale = float(np.exp(level + slope * np.log(last))) * last**power
    target = (10.0 * scale * power / gain) ** (1.0 / (power + 1.0))
    return max(0, round(target - last))
