"""The model behind the page: features plus a free offset for each item, scores relative to the average item.

Each column of the items' table is encoded and scaled to a total variance of 1, so that a text of many features weighs
as much as a number. The model is a `BradleyTerry` with a linear kernel and item offsets; without features it is the
classical one (``kernel="items"``). One more answer is an update; alpha and the size of the offsets are chosen by the
evidence, often while there are few answers and a choice is cheap, then whenever there are half as many more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import ndtr, ndtri
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler

from ..learners.bradley_terry import BradleyTerry
from ..learners.bradley_terry_cv import BradleyTerryCV
from ..losses.questions import read_goal
from ..tables.encoding.table import TableEncoder
from ..tables.models.files import model_to_bytes
from .answers import Answer
from .items import Items

# Before the first choice: prior variance of a latent score (differences of about three in log odds are usual), and the
# share of an item's own beside its features.
_FIRST_VARIANCE, _FIRST_OFFSETS = 8.0, 0.3
# The number of answers at the first choice, and the most items that may have been asked about, since a choice takes
# a factorisation of that size for each candidate.
_FIRST_CHOICE, _MOST_ITEMS_TO_CHOOSE = 6, 300


@dataclass(frozen=True)
class Standing:
    """Where the order stands.

    Attributes
    ----------
    n_answers : int
        That the model has learned from.
    scores, deviations : ndarrays of shape (m,)
        Latent scores relative to their mean, and their posterior standard deviations.
    share : float
        Expected share in the right place: of all pairs; of the top k; or of the one pair that is asked for.
    reliability : dict of str to float
        Of each judge, where there are several.
    """

    n_answers: int
    scores: np.ndarray
    deviations: np.ndarray
    share: float
    reliability: dict[str, float]

    def order(self) -> np.ndarray:
        """Rows, best first."""
        return np.argsort(-self.scores, kind="stable")

    def intervals(self) -> tuple[np.ndarray, np.ndarray]:
        """95 % intervals of the scores."""
        half = ndtri(0.975) * self.deviations
        return self.scores - half, self.scores + half


class Learner:
    """What the answers say about the items.

    Parameters
    ----------
    items : Items
    goal : str or None
        "everything", "top:K" or "A > B" with the names of two items.

    Raises
    ------
    ValueError
        If the goal is none of these.
    """

    def __init__(self, items: Items, goal: str | None = None) -> None:
        self.items = items
        self._wanted = _named_goal(goal, items.names)
        self.goal = read_goal(self._wanted, len(items))
        self.encoder, self.scaler, self.X = _features(items)
        self._settings = self._first_settings()
        self._next_choice = _FIRST_CHOICE
        self._learned: list[Answer] = []
        self._row = {name: row for row, name in enumerate(items.names)}
        self._sample = _pairs_to_average(len(items))
        self.model = BradleyTerry(**self._settings)
        self.learn([])

    @property
    def columns(self) -> list[str] | None:
        """Columns of the table, None where there is nothing to learn from."""
        return None if self.encoder is None else list(self.encoder.kinds_)

    def learn(self, answers: Sequence[Answer]) -> None:
        """Learn from these answers alone; cheap where they are the previous ones and a few more."""
        n_known = len(self._learned)
        judged = len({answer.judge for answer in answers}) > 1
        continues = (
            0 < n_known <= len(answers)
            and list(answers[:n_known]) == self._learned
            and judged == (len({answer.judge for answer in self._learned}) > 1)
        )
        if len(answers) >= self._next_choice and self._choose(answers):
            continues = False
        if not continues:
            self.model = BradleyTerry(**self._settings).fit_pairs(self.X, **self._arguments(answers, judged))
        elif len(answers) > n_known:
            self.model.partial_fit_pairs(self.X, **self._arguments(answers[n_known:], judged))
        self._learned = list(answers)

    def questions(self, n: int, closed: np.ndarray) -> np.ndarray:
        """Up to n pairs of rows to ask next, none of the closed ones."""
        return self.model.next_pairs(self.X, n, answered=closed, goal=self._wanted)

    def standing(self) -> Standing:
        """Scores, how sure they are, and the expected share in the right order."""
        mean, covariance = self.model.posterior(self.X)
        # Relative to the average item: a constant added to all scores does not change their order.
        deviations = np.sqrt(
            np.maximum(np.diagonal(covariance) - 2.0 * covariance.mean(axis=0) + covariance.mean(), 0.0)
        )
        scores = mean - mean.mean()
        reliability = getattr(self.model, "reliability_", {})
        return Standing(
            len(self._learned), scores, deviations, self._share(scores, deviations, covariance), reliability
        )

    def saved(self, metadata: Mapping[str, Any]) -> bytes:
        """A model file for unseen items: it takes tables like that of the items; without features, names."""
        model: Any = self.model
        if self.encoder is not None:
            model = Pipeline([("table", self.encoder), ("scale", self.scaler), ("learn", model)])
        return bytes(model_to_bytes(model, metadata))

    def _share(self, scores: np.ndarray, deviations: np.ndarray, covariance: np.ndarray) -> float:
        tiny = np.finfo(float).tiny
        if isinstance(self.goal, int):
            order = np.argsort(-scores, kind="stable")
            boundary = 0.5 * (scores[order[self.goal - 1]] + scores[order[self.goal]])
            top = order[: self.goal]
            return float(np.mean(ndtr((scores[top] - boundary) / np.maximum(deviations[top], tiny))))
        h, j = self._sample.T if self.goal is None else np.array([self.goal]).T
        diagonal = np.diagonal(covariance)
        variance = np.maximum(diagonal[h] + diagonal[j] - 2.0 * covariance[h, j], tiny)
        return float(np.mean(ndtr(np.abs(scores[h] - scores[j]) / np.sqrt(variance))))

    def _first_settings(self) -> dict[str, Any]:
        if self.encoder is None:
            return {"alpha": 0.5 / _FIRST_VARIANCE, "kernel": "items"}
        variance = max(float(np.mean(np.sum(self.X**2, axis=1))), np.finfo(float).tiny)
        alpha = 0.5 * variance * (1.0 + _FIRST_OFFSETS) / _FIRST_VARIANCE
        return {"alpha": alpha, "kernel": "linear", "item_offsets": _FIRST_OFFSETS}

    def _choose(self, answers: Sequence[Answer]) -> bool:
        """alpha and offsets by the evidence, which stays fair when questions depend on the answers before.

        Chosen from the answers up to the last number at which a choice is due, so that a session that is resumed, or
        that learns several answers at once, has the settings of one that was never interrupted.
        """
        due = []
        while self._next_choice <= len(answers):
            due.append(self._next_choice)
            self._next_choice += max(1, due[-1] // (5 if due[-1] < 40 else 2))
        for n in reversed(due):
            judged = len({answer.judge for answer in answers[:n]}) > 1
            arguments = self._arguments(answers[:n], judged)
            # Items that nobody was asked about say nothing about the settings.
            rows, pairs = np.unique(arguments["pairs"], return_inverse=True)
            if rows.size <= _MOST_ITEMS_TO_CHOOSE:
                break
        else:
            return False
        arguments["pairs"] = pairs.reshape(-1, 2)
        options = {"kernel": "items"} if self.encoder is None else {"item_offsets": "auto"}
        search = BradleyTerryCV(scoring="log_evidence", **options).fit_pairs(self.X[rows], **arguments)
        self._settings = {**self._settings, "alpha": search.alpha_}
        if self.encoder is not None:
            self._settings["item_offsets"] = search.item_offsets_
        return True

    def _arguments(self, answers: Sequence[Answer], judged: bool) -> dict[str, Any]:
        pairs = [[self._row[answer.winner], self._row[answer.loser]] for answer in answers]
        return {
            "pairs": np.array(pairs, dtype=np.int64).reshape(-1, 2),
            "ties": np.array([answer.tie for answer in answers], dtype=bool),
            "judge": [answer.judge for answer in answers] if judged else None,
        }


def _features(items: Items) -> tuple[TableEncoder | None, StandardScaler | None, np.ndarray]:
    """Encoded and scaled columns, all rows different; names of the items where there is nothing to encode."""
    names = np.array(items.names)
    if not items.table:
        return None, None, names
    table = {name or "text": values for name, values in items.table.items()}
    try:
        found = TableEncoder().fit(table).kinds_
        encoder = TableEncoder(kinds=_kinds_of_names(table, found), sparse_output=False)
        X = encoder.fit_transform(table)
    except ValueError:  # no column that a model could learn from
        return None, None, names
    scaler = StandardScaler().fit(X)
    start = 0
    for column in encoder.encoders_.values():
        block = slice(start, start + len(column.names("")))
        total = float(np.sum(scaler.var_[block]))
        scaler.scale_[block] = np.sqrt(total) if total > 0 else 1.0
        start = block.stop
    X = scaler.transform(X)
    if not X.any():
        return None, None, names
    return encoder, scaler, _with_distinct_rows(X)


def _kinds_of_names(table: dict[str, list[Any]], found: dict[str, str]) -> dict[str, str] | None:
    """A category for each item would say no more than its offset: texts are read as words, names are left out."""
    kinds = {}
    for name, values in table.items():
        if found[name] == "category" and len(set(values)) == len(values):
            n_words = sum(len(str(value).split()) for value in values) / len(values)
            kinds[name] = "text" if n_words >= 3 else "drop"
    return kinds or None


def _with_distinct_rows(X: np.ndarray) -> np.ndarray:
    """Equal rows, moved apart by a negligible amount: the model takes equal rows for one item."""
    X = X.copy()
    _, first, group = np.unique(X, axis=0, return_index=True, return_inverse=True)
    again = np.flatnonzero(first[group.ravel()] != np.arange(X.shape[0]))
    X[again, 0] += 1e-9 * (1.0 + np.arange(again.size))
    return X


def _pairs_to_average(m: int, most: int = 100_000) -> np.ndarray:
    """All pairs of rows, or many of them at random."""
    if m * (m - 1) // 2 <= most:
        return np.stack(np.triu_indices(m, 1), axis=1)
    rng = np.random.default_rng(0)
    h = rng.integers(m, size=most)
    return np.stack([h, (h + 1 + rng.integers(m - 1, size=most)) % m], axis=1)


def _named_goal(goal: str | None, names: Sequence[str]) -> Any:
    """ "A > B" as a pair of rows; "everything" and "top:K" as they are."""
    if goal is None or goal == "everything" or goal.startswith("top:"):
        return goal
    if ">" not in goal:
        raise ValueError(
            f"--goal must be everything, top:K or 'A > B' for two items by name: found {goal!r}."
        )
    rows = []
    for name in (part.strip() for part in goal.split(">", 1)):
        if name not in names:
            raise ValueError(f"--goal {goal!r}: there is no item {name!r}.")
        rows.append(names.index(name))
    return tuple(rows)
