"""What `preflearn.rate` gives: a leaderboard with intervals, and the answers to what one asks of it next."""

from __future__ import annotations

import os
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import expit

from ..errors import InputError, Remedy
from ..shown_tables import ShownTable, in_notebooks
from . import diagnostics, held_out, judges, planning, ranks, tables
from .battles import FIRST_SIDE, Battles
from .ranks import MOST_COMPARED, MOST_RANKED, effective_clusters, effective_clusters_of_differences
from .strengths import Strengths, cluster_information, dense_covariance, many_standard_errors
from .tables import MEAN_RATING, POINTS, frame_like
from .ties import outcome_probabilities

if TYPE_CHECKING:
    from .boards import CategoryRatings
    from .fragility import Fragility
    from .judges import TrustedJudges

_SURPRISES = 10


@in_notebooks
@dataclass(frozen=True, repr=False)
class Ratings:
    """A leaderboard; `preflearn.rate` makes it.

    Attributes
    ----------
    table : data frame
        Best first: ``item``, ``rating``, ``lower``, ``upper``, ``rank``, ``rank_lower``, ``rank_upper``, ``group``,
        ``battles``.
    scores : dict
        From item to natural-log strength; the mean is 0.
    covariates, judges, held_out, surprises : data frame or None
    alpha, half_life, level
        As used; ``half_life`` in days, None for no decay.
    notes : list of str
        What to know before the ratings are believed.
    trusted : TrustedJudges or None
        What judgements of others than the ``trusted`` judges are worth.

    Notes
    -----
    Everything but the strengths is computed when it is asked for, once.
    """

    strengths: Strengths
    raw: Battles
    alpha: float
    half_life: float | None
    level: float
    shift: float
    cluster: np.ndarray | None
    cluster_name: str | None
    backend: Any
    options: dict[str, Any]
    notes: list[str] = field(default_factory=list)
    trusted: TrustedJudges | None = None
    _fragility: dict[int, Fragility] = field(default_factory=dict, init=False, compare=False)

    # Strengths and how certain they are
    # -------------------------------------------------------------------------------

    @property
    def items(self) -> list[Hashable]:
        """Every item, sorted by name."""
        return self.raw.items

    @cached_property
    def scores(self) -> dict[Hashable, float]:
        return dict(zip(self.items, self.strengths.scores.tolist(), strict=True))

    @cached_property
    def cluster_information(self) -> Any:
        """What each cluster tells about each strength and coefficient (`ranks`)."""
        assert self.cluster is not None
        return cluster_information(self.strengths, self.cluster)

    @cached_property
    def degrees_of_freedom(self) -> Any:
        """Of the standard errors of the strengths: one less than their effective clusters; infinite without
        clusters."""
        if self.cluster is None:
            return np.inf
        return effective_clusters(self.cluster_information[:, : len(self.items)]) - 1.0

    @cached_property
    def covariance(self) -> np.ndarray:
        """Of strengths (relative to their mean) and coefficients of scaled covariates; up to 3,000 items."""
        if not self.strengths.is_dense:
            raise ValueError(
                f"The covariance of {len(self.items):,} items is a matrix of as many rows; the table has standard "
                "errors."
            )
        return dense_covariance(self.strengths, self.cluster)

    @cached_property
    def standard_errors(self) -> np.ndarray:
        """Of the strengths, in the order of `items`."""
        n = len(self.items)
        if self.strengths.is_dense:
            errors = np.sqrt(np.maximum(self.covariance.diagonal()[:n], 0.0))
        else:
            best = np.argsort(-self.strengths.scores, kind="stable")
            errors = many_standard_errors(self.strengths, self.cluster, best)
        return self.at_least_those_of_the_model(errors, np.arange(n))

    @cached_property
    def model_standard_errors(self) -> np.ndarray:
        """Of the strengths if all battles were independent."""
        n = len(self.items)
        if self.strengths.is_dense:
            return np.sqrt(np.maximum(dense_covariance(self.strengths, None).diagonal()[:n], 0.0))
        return many_standard_errors(self.strengths, None, np.argsort(-self.strengths.scores, kind="stable"))

    def at_least_those_of_the_model(self, errors: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """A single cluster says nothing of how clusters differ: its scores sum to 0 at the fitted strengths."""
        few = np.broadcast_to(self.degrees_of_freedom, len(self.items))[rows] < 1.0
        if not few.any():
            return errors
        return np.where(few, np.maximum(errors, self.model_standard_errors[rows]), errors)

    @cached_property
    def threshold(self) -> Any:
        """How many standard errors a difference must have for all such signs to be right together.

        One number without clusters; with clusters one for each pair of items, shape (n, n).
        """
        n = len(self.items)
        if self.cluster is None:
            return ranks.simultaneous_threshold(self.covariance[:n, :n], self.level)
        clusters = effective_clusters_of_differences(self.cluster_information[:, :n])
        return ranks.bonferroni_thresholds(clusters - 1.0, n, self.level)

    @cached_property
    def apart(self) -> np.ndarray | None:
        """1 where an item is significantly ahead of another, -1 where behind, else 0; None for very many items."""
        n = len(self.items)
        if n > MOST_COMPARED or not self.strengths.is_dense:
            return None
        return ranks.significant_signs(self.strengths.scores, self.covariance[:n, :n], self.threshold)

    @cached_property
    def columns(self) -> dict[str, list[Any]]:
        """The table as a mapping."""
        return tables.board(self)

    def top(self, n: int = 100, *, ranks: bool = False) -> Any:
        """The first n rows with intervals of ratings: quick even for very many items.

        Parameters
        ----------
        n : int, default=100
        ranks : bool, default=False
            Whether to find intervals of the ranks as well. Those of more than 1,000 items hold together for these n
            rows, at most 100.

        Returns
        -------
        data frame
            ``item``, ``rating``, ``lower``, ``upper``, ``battles``, with ranks also ``rank``, ``rank_lower``,
            ``rank_upper``.
        """
        _check_number(n, "rows")
        if ranks and n > MOST_RANKED and len(self.items) > MOST_COMPARED:
            raise InputError(
                f"Ranks of {len(self.items):,} items are drawn for the best {MOST_RANKED}: found n={n}. Ask for fewer "
                "rows, or for the whole table"
            )
        return self._frame(tables.top(self, n, ranks))

    def points(self, scores: np.ndarray) -> np.ndarray:
        """Strengths as ratings."""
        return MEAN_RATING + self.shift + POINTS * scores

    @cached_property
    def table(self) -> Any:
        return self._frame(self.columns)

    def _frame(self, columns: Mapping[str, list[Any]]) -> Any:
        return frame_like(self.backend, columns)

    def win_probability(self, a: Hashable, b: Hashable, *, first_side: bool = False) -> float:
        """The probability that ``a`` wins against ``b``, all covariates being equal.

        With ``ties="davidson"`` the probabilities that a wins, that b wins and of a tie sum to 1; otherwise a tie is
        half a win each way.

        Parameters
        ----------
        a, b : item
        first_side : bool, default=False
            Whether a has the advantage of the first side; otherwise neither has it.

        Examples
        --------
        >>> from preflearn import rate
        >>> ratings = rate({"winner": ["x", "x", "y"], "loser": ["y", "y", "x"]})
        >>> 0.5 < ratings.win_probability("x", "y") < 0.7
        True
        """
        d = self._difference(a, b, first_side)
        if self.raw.ties == "half":
            return float(expit(d))
        return float(self._outcomes(d)[0])

    def tie_probability(self, a: Hashable, b: Hashable, *, first_side: bool = False) -> float:
        """The probability of a tie between ``a`` and ``b``, all covariates being equal and those of ties average.

        Parameters
        ----------
        a, b : item
        first_side : bool, default=False
            Whether a has the advantage of the first side; otherwise neither has it.

        Examples
        --------
        >>> from preflearn import rate
        >>> battles = {"a": ["x", "x", "y", "x"], "b": ["y", "y", "x", "y"], "winner": ["a", "tie", "a", "tie"]}
        >>> round(rate(battles, ties="davidson").tie_probability("x", "y"), 2)
        0.5
        """
        if self.raw.ties == "half":
            asked = self.options["ties"] == "auto"
            why = (
                "and nothing else predicts held-out battles better" if asked else "which ties='half' asks for"
            )
            raise InputError(f"A tie is half a win each way here, {why}", Remedy("ties", "davidson"))
        return float(self._outcomes(self._difference(a, b, first_side))[1])

    def _difference(self, a: Hashable, b: Hashable, first_side: bool) -> float:
        for item in (a, b):
            if item not in self.scores:
                raise ValueError(
                    f"{item!r} has not played: found {len(self.items):,} items, such as {self.items[0]!r}."
                )
        d = self.scores[a] - self.scores[b]
        if not first_side:
            return d
        if FIRST_SIDE not in self.raw.covariate_names:
            raise InputError(
                "The advantage of the first side was not estimated", Remedy("first_side", True, "to rate")
            )
        return d + float(self.strengths.coefficients[self.raw.covariate_names.index(FIRST_SIDE)])

    def _outcomes(self, d: float) -> np.ndarray:
        weight = self.strengths.battles.weight
        nu = np.average(self.strengths.tie_logits()[weight > 0], weights=weight[weight > 0])
        return outcome_probabilities(np.array([d]), np.array([nu]))[0]

    def predict(self, battles: Any) -> np.ndarray:
        """The probability that the first side wins each battle of a table, such as one of the future.

        Parameters
        ----------
        battles : data frame or mapping
            With the columns of the sides, and those of the covariates where the ratings control for some.

        Returns
        -------
        ndarray of shape (l,)
            An item that has not been seen counts as an average one.

        Examples
        --------
        >>> from preflearn import rate
        >>> ratings = rate({"winner": ["x", "x", "y"], "loser": ["y", "y", "x"]})
        >>> ratings.predict({"a": ["x", "new"], "b": ["y", "x"]}) > 0.5
        array([ True, False])
        """
        d, nu = self._met(battles)
        return expit(d) if nu is None else outcome_probabilities(d, nu)[:, 0]

    def predict_outcomes(self, battles: Any) -> np.ndarray:
        """The probabilities that the first side wins, of a tie, and that the second side wins each battle.

        Parameters
        ----------
        battles : data frame or mapping
            As in `predict`, and with the columns of ``tie_covariates``.

        Returns
        -------
        ndarray of shape (l, 3)
        """
        d, nu = self._met(battles)
        if nu is None:
            raise InputError("Ties have no probability of their own here", Remedy("ties", "davidson"))
        return outcome_probabilities(d, nu)

    def _met(self, battles: Any) -> tuple[np.ndarray, np.ndarray | None]:
        """x · θ of battles, and ν where ties have a probability of their own."""
        from .reading import read_meetings

        davidson = self.raw.ties == "davidson"
        pairs, Z, U = read_meetings(
            battles, self.items, **self.side_columns, covariates=self.raw.covariate_names,
            first_side=self.options["first_side"], tie_covariates=self.options["tie_covariates"] if davidson else (),
        )  # fmt: skip
        scores = np.append(self.strengths.scores, 0.0)
        d = scores[pairs[:, 0]] - scores[pairs[:, 1]] + Z @ self.strengths.coefficients
        if not davidson:
            return d, None
        met = replace(self.raw, pairs=pairs, tie_columns=U)
        return d, replace(self.strengths, battles=met).tie_logits()

    @property
    def side_columns(self) -> dict[str, Any]:
        """The columns of the sides, as they were asked for."""
        return {name: self.options[name] for name in ("a", "b", "winner", "loser")}

    def neighbours(self) -> list[tuple[Hashable, Hashable]]:
        """Neighbours on the board that cannot be told apart."""
        if self.apart is None:
            raise ValueError(f"Groups are found for at most {MOST_COMPARED:,} items.")
        order = np.argsort(-self.strengths.scores, kind="stable")
        pairs = zip(order[:-1], order[1:], strict=True)
        return [(self.items[i], self.items[j]) for i, j in pairs if self.apart[i, j] == 0]

    # What does not count, and who judges
    # ------------------------------------------------------------------------------

    @cached_property
    def covariates(self) -> Any:
        """What covariates are worth, None without any.

        ``coefficient`` with ``lower`` and ``upper`` are log odds per unit of the difference; ``points`` with its
        bounds are the ratings that one standard deviation of the difference is worth.
        """
        return None if not self.raw.covariate_names else self._frame(tables.covariates(self))

    @cached_property
    def judges(self) -> Any:
        """Reliability and biases of each judge; None without judges."""
        return None if self.raw.judge is None else self._frame(judges.judge_table(self.strengths))

    @cached_property
    def agreement(self) -> float:
        """Krippendorff's alpha of the judges on battles of the same pair (and cluster); NaN without shared
        battles."""
        if self.raw.judge is None:
            raise InputError("Agreement needs judges", Remedy("judge", purpose="and their column"))
        return judges.krippendorff_alpha(self.raw)

    def compare_judges(self, one: Any, other: Any) -> dict[str, float]:
        """How far two groups of judges agree, such as language models and people.

        Parameters
        ----------
        one, other : judge or list of judges

        Returns
        -------
        dict
            ``shared``: pairs (of the same cluster) that both have judged; on these ``agreement``, the share of pairs of
            judgements, one of each group, that are the same, and for comparison ``within_one`` and ``within_other``,
            those of two judgements of one group.
        """
        if self.raw.judge is None:
            raise InputError(
                "Judges are compared where they are known", Remedy("judge", purpose="and their column")
            )
        codes, labels = self.raw.judge
        masks = []
        for group in (one, other):
            wanted = set(group) if isinstance(group, (list, tuple, set)) else {group}
            if not wanted or not wanted <= set(labels):
                unknown = sorted(map(str, wanted - set(labels)))
                raise ValueError(f"No judges of these names: {', '.join(unknown) or 'an empty list'}.")
            masks.append(np.isin(codes, [k for k, label in enumerate(labels) if label in wanted]))
        if (masks[0] & masks[1]).any():
            raise ValueError("A judge is in both groups: compare different ones.")
        return judges.compare_groups(self.raw, *masks)

    # Held-out battles and what looks wrong
    # ----------------------------------------------------------------------------

    @cached_property
    def _held_out(self) -> tuple[dict[str, list[Any]], Any]:
        asked = self.options["alpha"], self.options["half_life"]
        return held_out.held_out_table(self.raw, *asked, (self.alpha, self.half_life), self.cluster_name)

    @property
    def held_out(self) -> Any:
        """Log loss, accuracy and calibration error of held-out battles, beside win rates and Elo.

        ``alpha="auto"`` is chosen anew without each fold.
        """
        return self._frame(self._held_out[0])

    @property
    def calibration(self) -> Any:
        """Of held-out battles, as `preflearn.metrics.calibration_of_preferences` gives it."""
        return self._held_out[1]

    @cached_property
    def surprises(self) -> Any:
        """The battles that the model without them found least likely."""
        found = diagnostics.surprises(self.strengths, _SURPRISES)
        if self.raw.rows is not None:
            found["row"] = self.raw.rows[found["row"]].tolist()
        return self._frame(found)

    @cached_property
    def diagnostics(self) -> dict[str, Any]:
        """Components, the test of transitivity, the strongest circle, repeated battles."""
        return {
            "components": diagnostics.components(self.raw),
            "transitivity": diagnostics.transitivity_test(self.strengths),
            "circle": diagnostics.strongest_circle(self.raw),
            "repeated": diagnostics.repeated_battles(self.raw),
        }

    def fragility(self, k: int = 1) -> Fragility:
        """The fewest battles without which others are among the first k, alpha and half-life staying as they are.

        Parameters
        ----------
        k : int, default=1

        Returns
        -------
        Fragility
            ``n_battles`` and ``battles``, their row numbers from 0; prints itself. Found by influence, verified by
            refitting: an upper bound, which a search of all subsets hardly ever lowers.

        Examples
        --------
        >>> from preflearn import rate
        >>> rate({"winner": ["x", "x", "x", "y"], "loser": ["y", "y", "y", "x"]}).fragility()
        Removing 3 battles of 4 would change the first place (y for x): rows 1, 2, 3.
        """
        if isinstance(k, bool) or not isinstance(k, (int, np.integer)) or not 1 <= k < len(self.items):
            raise InputError(
                f"{{argument}} must be a whole number of first places, at least 1 and below {len(self.items):,}, the "
                f"number of items: found {k!r}",
                argument="k",
            )
        if k not in self._fragility:
            from .fragility import find_fragility

            found = find_fragility(self.strengths, int(k))
            rows = self.raw.rows
            if rows is not None:
                found = replace(found, battles=rows[found.battles])
            self._fragility[int(k)] = found
        return self._fragility[int(k)]

    @cached_property
    def findings(self) -> list[tuple[str, str, float]]:
        from .diagnostics import findings

        return findings(self)

    @property
    def audit(self) -> Any:
        """What looks wrong: ``defect``, ``finding`` and ``pvalue``.

        Duplicate votes, copied prompts (labels of ``cluster``), bot judges, position bias, self-preference, one model
        under two names, circles, parts that no battle connects, and times that tell results. Each is reported where
        chance would look like it in one of 200 sound boards; what needs judges, times or clusters is looked for where
        these are known.
        """
        names = ("defect", "finding", "pvalue")
        return self._frame({name: [one[k] for one in self.findings] for k, name in enumerate(names)})

    # Boards of parts
    # --------------------------------------------------------------------------------------------------

    def by(self, categories: Any, *, intervals: bool = True) -> Any:
        """Boards by category that borrow strength from each other.

        Parameters
        ----------
        categories : sequence of l labels
            The category of each battle, in the order of the rows.
        intervals : bool, default=True
            False gives only ratings, for any number of items.

        Returns
        -------
        data frame
            ``category``, ``item``, ``rating``, ``lower``, ``upper``, ``difference`` (points from the item's mean over
            categories), ``pvalue`` (corrected for all of them by Holm's method), ``battles``.
        """
        return self.boards(categories, intervals=intervals).table

    def boards(
        self, categories: Any, *, ratio: float | str = "auto", intervals: bool | None = None
    ) -> CategoryRatings:
        """Boards by category as one result, which predicts battles, too.

        Parameters
        ----------
        categories : sequence of l labels
            The category of each battle, in the order of the rows.
        ratio : float or "auto", default="auto"
            How far categories may differ: the standard deviation of an item's difference between categories, relative
            to that of strengths. "auto" is chosen by held-out battles, 0 is one board for all.
        intervals : bool, optional
            By default, where items times categories allow it.

        Examples
        --------
        >>> from preflearn import rate
        >>> battles = {"winner": ["x", "x", "y", "y"] * 9, "loser": ["y", "y", "x", "x"] * 9}
        >>> boards = rate(battles).boards(["clay", "clay", "grass", "grass"] * 9)
        >>> boards.win_probability("x", "y", "clay") > 0.5 > boards.win_probability("x", "y", "grass")
        True
        """
        from .boards import make_boards

        return make_boards(self, categories, ratio, intervals)

    def by_month(self) -> Any:
        """Boards at the end of each month, from the battles so far: ``month``, ``item``, ``rating``, ``lower``,
        ``upper``."""
        from .boards import by_month

        return self._frame(by_month(self))

    # What to run next
    # -------------------------------------------------------------------------------------------------

    def next_battles(self, n: int = 10, *, goal: Any = None) -> Any:
        """The battles that tell most about a goal.

        Parameters
        ----------
        n : int, default=10
        goal : None, "order", "top-5" (any number), "A vs B" or a pair of items
            None and "order" are about the whole order.

        Returns
        -------
        data frame
            ``item_a``, ``item_b``, ``probability`` that a wins; a pair that should be run more often comes again.
        """
        _check_number(n, "battles")
        self._refuse_many()
        # What one more battle tells is a matter of the model, whatever the clusters.
        C = dense_covariance(self.strengths, None)[: len(self.items), : len(self.items)]
        pairs = planning.next_pairs(self.strengths.scores, C, int(n), planning.read_goal(goal, self.items))
        named = [(self.items[a], self.items[b]) for a, b in pairs]
        return self._frame(
            {
                "item_a": [a for a, _ in named],
                "item_b": [b for _, b in named],
                "probability": [self.win_probability(a, b) for a, b in named],
            }
        )

    def battles_needed(self, goal: Any = None) -> int | None:
        """How many more battles, well chosen, settle a goal if the strengths are as estimated; None if too many to
        say.

        Settled means: every difference that the goal is about is told apart at the ratings' ``level``. Results
        differ from what is expected: after that many battles somewhat more than half of the questions are settled.
        """
        self._refuse_many()
        C = self.covariance[: len(self.items), : len(self.items)]
        what = planning.read_goal(goal, self.items)
        needed = planning.battles_needed(self.strengths.scores, C, what, self.threshold)
        if needed is None or self.raw.ties == "half":
            return needed
        # A tie between equals says nothing of who is stronger.
        return int(np.ceil(needed / (1.0 - self._outcomes(0.0)[1])))

    def _refuse_many(self) -> None:
        if len(self.items) > MOST_COMPARED:
            raise ValueError(
                f"Next battles are planned for at most {MOST_COMPARED:,} items: found {len(self.items):,}."
            )

    # Showing
    # ----------------------------------------------------------------------------------------------------------

    def update(self, battles: Any) -> Ratings:
        """The ratings of these battles and more: those that `preflearn.rate` gives for all of them, found from here.

        Parameters
        ----------
        battles : data frame or mapping
            With the same columns.
        """
        from .rating import rerate

        return rerate(self, battles)

    def to_markdown(self, n: int | None = None) -> str:
        """The leaderboard as a Markdown table, the first n rows."""
        from ..report.ratings import markdown_board

        return markdown_board(self.columns, n)

    def to_dict(self) -> dict[str, Any]:
        """What `preflearn rate --json` prints."""
        from .summary import summary_of

        return summary_of(self)

    def plot(self, kind: str = "ratings", *, ax: Any = None) -> Any:
        """Draw ``"ratings"`` or ``"ranks"`` with intervals, or ``"wins"``, the matrix of win probabilities.

        Returns
        -------
        matplotlib.axes.Axes
        """
        from ..report.ratings import draw_board, draw_wins

        if kind not in ("ratings", "ranks", "wins"):
            raise ValueError(f"kind must be 'ratings', 'ranks' or 'wins': found {kind!r}.")
        if kind == "wins":
            return draw_wins(self.columns, ax)
        return draw_board(self.columns, ax, kind, self.level)

    def report(self, path: str | os.PathLike[str], *, title: str | None = None) -> None:
        """Write the board as one self-contained HTML page, or as Markdown with the suffix ``.md``."""
        from .summary import write_page

        write_page(self, path, title)

    def __repr__(self) -> str:
        from .summary import text_board

        return text_board(self, 20)

    def shown_tables(self) -> list[ShownTable]:
        from .summary import shown_board

        return [shown_board(self, 20)]


def _check_number(n: Any, what: str) -> None:
    if isinstance(n, bool) or not isinstance(n, (int, np.integer)) or n < 1:
        raise ValueError(f"n must be a whole number of {what}, at least 1: found {n!r}.")
