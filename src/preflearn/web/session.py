"""One session of asking: who is asked what, what was answered, and where the order stands.

An answer is on the disk before it is acknowledged, and acknowledged before the model has learned from it. The model
lives in a thread of its own, which keeps no page waiting, since linear algebra runs outside the interpreter's lock: it
takes all answers that have come in, publishes the next questions, then the panel. Whoever answers waits a moment for
questions that know the answer, and otherwise gets the next of the batch that was prepared before, each of which was
chosen as if the ones before it had been answered.
"""

from __future__ import annotations

import logging
import secrets
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np

from ..numerics.threads import blas_at_rest
from .answers import Answer, Journal, now, standing_answers
from .consistency import agreement, answers_worth_giving, self_consistency
from .items import Items, check_names
from .learner import Learner, Standing
from .requests import RefusedError, described

# Seconds to wait for questions that know the last answer.
_PATIENCE = 0.06
# Seconds after which an unanswered question may be asked of somebody else.
_LEASE = 600.0
LONGEST_NOTE = 2000
# Prepared questions beside one for each window.
_SPARE = 3
# How often a judge is asked a question again, and after how many others at least; with several judges, how often a
# question that another judge has answered.
_REPEAT_EVERY, _REPEAT_AFTER, _SHARE_EVERY = 15, 8, 6
# Points of the curve that are computed again for the answers of before, and for how many items that is worth the wait.
_STOPS, _MOST_ITEMS_TO_REPLAY = 16, 300
VERDICTS = ("left", "right", "equal", "skip")

_log = logging.getLogger("preflearn.ask")


@dataclass
class Question:
    """Two rows shown to somebody.

    Attributes
    ----------
    key : str
    left, right : int
    judge, client : str
        Who is asked, and in which window.
    since : float
        When it was asked, in seconds of a clock that never goes back.
    repeated : bool
        Asked before, to see whether the answer is the same.
    left_open : bool
        The window was closed before an answer: the judge gets the question back.
    """

    key: str
    left: int
    right: int
    judge: str
    client: str
    since: float
    repeated: bool = False
    left_open: bool = False

    @property
    def pair(self) -> tuple[int, int]:
        return _pair(self.left, self.right)


class Session:
    """The items, the answers so far and the model.

    Parameters
    ----------
    items : Items
    journal : Journal
        Held open; its answers are taken over.
    goal : str or None
        As in `preflearn.web.learner.Learner`.
    seed : int or None
        For sides and repeated questions.

    Raises
    ------
    InputError
        If the journal is about other items.
    """

    def __init__(
        self, items: Items, journal: Journal, *, goal: str | None = None, seed: int | None = None
    ) -> None:
        self.items = items
        self.journal = journal
        self.goal = goal
        self._rng = np.random.default_rng(seed)
        self._row = {name: row for row, name in enumerate(items.names)}
        entries = journal.entries
        named = [entry[key] for entry in entries for key in ("winner", "loser") if key in entry]
        check_names(items, named, journal.path)
        self._answers = {answer.question: answer for answer in standing_answers(entries)}
        self._seen = {str(entry.get("question")) for entry in entries if "winner" in entry}
        self._skipped: set[tuple[int, int]] = set()
        self._times_asked = Counter(self._pair_of(answer) for answer in self._answers.values())
        self._by_judge: dict[str, list[Answer]] = {}
        for answer in self._answers.values():
            self._by_judge.setdefault(answer.judge, []).append(answer)
        self._open: dict[str, Question] = {}
        self._ready: list[tuple[int, int]] = []
        self._version = 0
        self._learned_version = -1
        self._stopped = False
        self._changed = threading.Condition()
        # Held while the model is in use, never while waiting for anything else.
        self._model = threading.Lock()
        self._history: list[tuple[int, float]] = []
        self._panel: dict[str, Any] = {}
        self._consistency: dict[str, tuple[tuple[int, str], dict[str, Any]]] = {}
        self.standing: Standing
        # One thread for linear algebra, here as in the model's thread.
        with self._model, blas_at_rest():
            self.learner = Learner(items, goal)
            self._replay(list(self._answers.values()))
            self._ready = self._next_questions(2 + _SPARE, self._closed())
            self._publish_panel(list(self._answers.values()))
        self._learned_version = 0
        self._worker = threading.Thread(target=self._work, name="preflearn-ask", daemon=True)
        self._worker.start()

    # What pages ask for -----------------------------------------------------------------------------------------------

    def question(self, judge: str, client: str = "") -> dict[str, Any]:
        """What to ask now; the same as before if this window has an open question."""
        judge = read_judge(judge)
        with self._changed:
            mine = [one for one in self._open.values() if one.judge == judge]
            for question in sorted(mine, key=lambda one: one.client != client):
                if question.client == client or question.left_open:
                    question.since, question.client, question.left_open = time.monotonic(), client, False
                    return self._shown(question, judge)
            return self._shown(self._ask(judge, client), judge)

    def leave(self, judge: str, client: str) -> None:
        """A window was closed or left: its question waits for the judge to come back."""
        judge = read_judge(judge)
        with self._changed:
            for question in self._open.values():
                if (question.judge, question.client) == (judge, client):
                    question.left_open = True

    def answer(
        self, judge: Any, key: Any, left: Any, right: Any, verdict: Any, client: str = "", note: Any = ""
    ) -> dict[str, Any]:
        """Keep an answer and give the next question.

        An answer that was received before (sent again after a lost connection) is acknowledged and not counted again.
        """
        judge = read_judge(judge)
        rows = self._rows_of(left, right)
        if not isinstance(verdict, str) or verdict not in VERDICTS:
            raise RefusedError(f"verdict must be one of {', '.join(VERDICTS)}: found {described(verdict)}.")
        if not isinstance(key, str) or not 8 <= len(key) <= 64 or not key.isalnum():
            raise RefusedError("question must be the identifier that came with the question.")
        if not isinstance(note, str) or len(note) > LONGEST_NOTE:
            raise RefusedError(
                f"note must be a text of at most {LONGEST_NOTE} characters: found {described(note)}."
            )
        new = self._keep(judge, key, rows, verdict, note.strip())
        with self._changed:
            if new and verdict != "skip":
                version = self._version
                self._changed.wait_for(lambda: self._learned_version >= version or self._stopped, _PATIENCE)
        return {"counted": new, **self.question(judge, client)}

    def undo(self, judge: str, client: str = "") -> dict[str, Any]:
        """Undo this judge's last answer and ask the question again."""
        judge = read_judge(judge)
        with self._changed:
            given = self._by_judge.get(judge, [])
            if not given:
                raise RefusedError("There is nothing to undo.")
            answer = given[-1]
            self.journal.append({"undo": answer.question, "judge": judge, "time": now()})
            given.pop()
            del self._answers[answer.question]
            self._times_asked[self._pair_of(answer)] -= 1
            self._release(judge, client)
            rows = [self._row[answer.winner], self._row[answer.loser]]
            if answer.left is False:
                rows.reverse()
            question = self._opened(rows[0], rows[1], judge, client)
            self._version += 1
            self._changed.notify_all()
            return self._shown(question, judge)

    def panel(self, judge: str) -> dict[str, Any]:
        """The live panel as it was last computed, with this judge's own consistency."""
        judge = read_judge(judge)
        with self._changed:
            given = list(self._by_judge.get(judge, []))
            panel = {**self._panel, "given": len(self._answers), "yours": len(given)}
        return {**panel, "consistency": self._consistency_of(judge, given)}

    def _consistency_of(self, judge: str, given: list[Answer]) -> dict[str, Any]:
        """Of a judge's answers; computed once for each of them, since pages ask often."""
        key = (len(given), given[-1].question if given else "")
        known = self._consistency.get(judge)
        if known is None or known[0] != key:
            known = self._consistency[judge] = (key, self_consistency(given))
        return known[1]

    def answers(self) -> list[Answer]:
        """The answers that stand."""
        with self._changed:
            return list(self._answers.values())

    @contextmanager
    def up_to_date(self) -> Iterator[tuple[Learner, Standing, dict[str, Any]]]:
        """The model of all answers, its standing and the panel; nothing changes them meanwhile."""
        with self._model, blas_at_rest():
            answers = self.answers()
            self.learner.learn(answers)
            self._publish_panel(answers)
            yield self.learner, self.standing, self._panel

    def close(self) -> None:
        """Stop the thread and release the file."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()
        self._worker.join(timeout=30)
        self.journal.close()

    # Keeping answers --------------------------------------------------------------------------------------------------

    def _keep(self, judge: str, key: str, rows: tuple[int, int], verdict: str, note: str = "") -> bool:
        """Write an answer down; whether it was new."""
        left, right = (self.items.names[row] for row in rows)
        with self._changed:
            if key in self._seen:
                self._open.pop(key, None)
                return False
            question = self._open.get(key)
            if question is not None and question.pair != _pair(*rows):
                raise RefusedError("The answer is about other items than the question.")
            if verdict == "skip":
                entry: dict[str, Any] = {"skip": key, "judge": judge, "time": now(), "items": [left, right]}
                entry |= {"note": note} if note else {}
                self.journal.append(entry)
                self._skipped.add(_pair(*rows))
                self._seen.add(key)
                self._open.pop(key, None)
                return True
            winner, loser = (right, left) if verdict == "right" else (left, right)
            side = None if verdict == "equal" else verdict == "left"
            answer = Answer(winner, loser, judge, now(), key, verdict == "equal", side, note)
            # Under the lock: the order of the file is the order in which answers count.
            self.journal.append({**answer.as_entry()})
            self._seen.add(key)
            self._open.pop(key, None)
            self._answers[key] = answer
            self._by_judge.setdefault(judge, []).append(answer)
            self._times_asked[_pair(*rows)] += 1
            self._version += 1
            self._changed.notify_all()
            return True

    def _rows_of(self, left: Any, right: Any) -> tuple[int, int]:
        unknown = [name for name in (left, right) if not isinstance(name, str) or name not in self._row]
        if unknown:
            raise RefusedError(f"There is no item {described(unknown[0])}.")
        if left == right:
            raise RefusedError("An item cannot be compared with itself.")
        return self._row[left], self._row[right]

    def _pair_of(self, answer: Answer) -> tuple[int, int]:
        return _pair(self._row[answer.winner], self._row[answer.loser])

    # Choosing questions -----------------------------------------------------------------------------------------------

    def _ask(self, judge: str, client: str) -> Question | None:
        """A new question for a window, None when every pair is answered; the lock is held."""
        again = self._pair_to_check(judge)
        pair = again or self._prepared(judge) or self._stopgap() or self._shown_elsewhere()
        if pair is None:
            return None
        h, j = pair if self._rng.random() < 0.5 else pair[::-1]
        return self._opened(h, j, judge, client, repeated=again is not None)

    def _opened(self, left: int, right: int, judge: str, client: str, *, repeated: bool = False) -> Question:
        question = Question(
            secrets.token_hex(8), left, right, judge, client, time.monotonic(), repeated=repeated
        )
        self._open[question.key] = question
        return question

    def _release(self, judge: str, client: str) -> None:
        for key, question in list(self._open.items()):
            if (question.judge, question.client) == (judge, client):
                del self._open[key]

    def _open_pairs(self) -> set[tuple[int, int]]:
        """Pairs that are on somebody's screen."""
        latest = time.monotonic() - _LEASE
        self._open = {key: one for key, one in self._open.items() if one.since >= latest}
        return {question.pair for question in self._open.values()}

    def _prepared(self, judge: str) -> tuple[int, int] | None:
        taken = self._open_pairs()
        while self._ready:
            pair = self._ready.pop(0)
            if not self._times_asked[pair] and pair not in taken and pair not in self._skipped:
                return pair
        return None

    def _stopgap(self) -> tuple[int, int] | None:
        """Neighbours in the present order that nobody has compared: for when the model is not fast enough."""
        taken = self._open_pairs() | self._skipped
        order = self.standing.order().tolist()
        m = len(order)
        start = int(self._rng.integers(m))
        for distance in range(1, m):
            for place in range(m - distance):
                at = (start + place) % (m - distance)
                pair = _pair(order[at], order[at + distance])
                if not self._times_asked[pair] and pair not in taken:
                    return pair
        return None

    def _shown_elsewhere(self) -> tuple[int, int] | None:
        """A pair that waits in another window, the longest waiting one: there is an end when all are answered."""
        waiting = sorted(self._open.values(), key=lambda question: question.since)
        left = (question.pair for question in waiting if question.pair not in self._skipped)
        return next((pair for pair in left if not self._times_asked[pair]), None)

    def _pair_to_check(self, judge: str) -> tuple[int, int] | None:
        """Now and then a question whose answer is known: by this judge, or by another one."""
        given = self._by_judge.get(judge, [])
        taken = self._open_pairs()
        if len(given) % _REPEAT_EVERY == _REPEAT_EVERY - 1:
            once = Counter(map(self._pair_of, given))
            old = [pair for pair in map(self._pair_of, given[:-_REPEAT_AFTER]) if once[pair] == 1]
            return self._random_pair([pair for pair in old if pair not in taken])
        if len(self._by_judge) > 1 and len(given) % _SHARE_EVERY == _SHARE_EVERY - 1:
            mine = set(map(self._pair_of, given))
            latest = islice(reversed(self._answers.values()), 200)
            recent = [self._pair_of(one) for one in latest if one.judge != judge]
            return self._random_pair([pair for pair in recent if pair not in mine and pair not in taken])
        return None

    def _random_pair(self, pairs: list[tuple[int, int]]) -> tuple[int, int] | None:
        return pairs[int(self._rng.integers(len(pairs)))] if pairs else None

    def _closed(self) -> np.ndarray:
        answered = {pair for pair, times in self._times_asked.items() if times > 0}
        return np.array(sorted(answered | self._open_pairs() | self._skipped), dtype=np.int64).reshape(-1, 2)

    def _next_questions(self, n: int, closed: np.ndarray) -> list[tuple[int, int]]:
        return [_pair(int(h), int(j)) for h, j in self.learner.questions(n, closed)]

    # The model's thread -----------------------------------------------------------------------------------------------

    def _work(self) -> None:
        # One thread for linear algebra: matrices this small gain little from more, and pages want to be served.
        with blas_at_rest():
            while self._wait_for_work():
                try:
                    self._learn_once()
                except Exception:
                    # Answers are safe in their file; the page continues with questions between neighbours.
                    _log.exception("the model could not learn from the answers")
                    with self._changed:
                        self._learned_version = self._version
                        self._changed.notify_all()

    def _wait_for_work(self) -> bool:
        with self._changed:
            self._changed.wait_for(lambda: self._stopped or self._version > self._learned_version)
            return not self._stopped

    def _learn_once(self) -> None:
        with self._changed:
            version, answers = self._version, list(self._answers.values())
            windows = len({(one.judge, one.client) for one in self._open.values()})
            closed = self._closed()
        with self._model:
            self.learner.learn(answers)
            ready = self._next_questions(1, closed)
            self._publish(version, ready)
            if ready:
                more = self._next_questions(windows + _SPARE, closed)
                self._publish(version, more)
            self._publish_panel(answers)

    def _publish(self, version: int, ready: list[tuple[int, int]]) -> None:
        with self._changed:
            self._ready = ready
            self._learned_version = version
            self._changed.notify_all()

    def _replay(self, answers: list[Answer]) -> None:
        """Learn from the earlier answers, stopping on the way to recompute the curve."""
        self.learner.learn(answers)  # first, so that every stop has the current settings
        few = len(self.items) <= _MOST_ITEMS_TO_REPLAY
        stops = (
            np.geomspace(1, len(answers), _STOPS).astype(int) if answers and few else np.empty(0, dtype=int)
        )
        for stop in np.unique(stops)[:-1].tolist():
            self.learner.learn(answers[:stop])
            standing = self.learner.standing()
            self._history.append((standing.n_answers, standing.share))
        self.learner.learn(answers)

    def _publish_panel(self, answers: list[Answer]) -> None:
        standing = self.learner.standing()
        if not self._history or self._history[-1][0] != standing.n_answers:
            # Answers that were undone leave the curve too.
            self._history = [one for one in self._history if one[0] < standing.n_answers]
            self._history.append((standing.n_answers, standing.share))
        # Settled: ten answers are expected to put less than 1 in 500 more pairs right.
        worth = answers_worth_giving(self._history, len(self.items), 0.002)
        m = len(self.items)
        with self._changed:  # answers come in meanwhile
            n_left = m * (m - 1) // 2 - sum(times > 0 for times in self._times_asked.values())
        scores = dict(zip(self.items.names, standing.scores.tolist()))
        low, high = standing.intervals()
        order = standing.order()[:200]
        panel = {
            "answers": standing.n_answers,
            "items": m,
            "goal": self.goal or "everything",
            "features": self.learner.encoder is not None,
            "share": standing.share,
            "history": _thinned(self._history),
            "worth": None if worth is None else min(worth, max(n_left, 0)),
            "left": max(n_left, 0),
            "top": settled_top(low, high, standing.order()),
            "settled": worth == 0 or n_left <= 0,
            "order": [
                {
                    "item": self.items.names[row],
                    "score": round(float(standing.scores[row]), 4),
                    "low": round(float(low[row]), 4),
                    "high": round(float(high[row]), 4),
                }
                for row in order
            ],
            "agreement": agreement(answers, scores, standing.reliability),
        }
        with self._changed:
            self.standing, self._panel = standing, panel

    # What a page sees -------------------------------------------------------------------------------------------------

    def _shown(self, question: Question | None, judge: str) -> dict[str, Any]:
        given = len(self._by_judge.get(judge, []))
        if question is None:
            return {"question": None, "yours": given, "given": len(self._answers)}
        return {
            "question": question.key,
            "left": self._item(question.left),
            "right": self._item(question.right),
            "repeated": question.repeated,
            "yours": given,
            "given": len(self._answers),
        }

    def _item(self, row: int) -> dict[str, Any]:
        fields = []
        for number, one in enumerate(self.items.fields[row]):
            shown = {"label": one.label, "kind": one.kind, "value": one.value}
            if one.kind == "picture":
                shown["source"] = f"picture/{row}/{number}"
            fields.append(shown)
        return {"item": self.items.names[row], "fields": fields}


def read_judge(judge: Any, longest: int = 60) -> str:
    """The name of a judge as it is kept.

    Raises
    ------
    RefusedError
        If it is not text, empty, or too long.
    """
    name = " ".join(judge.split()) if isinstance(judge, str) else ""
    if not name or len(name) > longest or not name.isprintable():
        raise RefusedError(f"A judge needs a name of 1 to {longest} characters.")
    return name


def settled_top(low: np.ndarray, high: np.ndarray, order: np.ndarray) -> int:
    """How many items at the top are certain to be there: every one of them is above all others, intervals apart.

    Examples
    --------
    >>> settled_top(np.array([2.0, 1.8, -1.0, -1.2]), np.array([3.0, 2.8, 0.5, 0.2]), np.arange(4))
    2
    """
    lowest = np.minimum.accumulate(low[order])[:-1]
    highest = np.maximum.accumulate(high[order][::-1])[::-1][1:]
    apart = np.flatnonzero(lowest > highest)
    return int(apart[-1]) + 1 if apart.size else 0


def _pair(h: int, j: int) -> tuple[int, int]:
    return (h, j) if h < j else (j, h)


def _thinned(history: list[tuple[int, float]], most: int = 200) -> list[tuple[int, float]]:
    """At most ``most`` points of a curve, the last one among them."""
    step = -(-len(history) // most)
    return [(n, round(share, 5)) for n, share in history[::-1][::step][::-1]]
