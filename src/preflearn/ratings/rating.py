"""`rate`: from battles to ratings."""

from __future__ import annotations

import re
import warnings
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from numbers import Real
from typing import Any

import numpy as np

from ..errors import InputError, Remedy
from ..kernels.functions import Kernel
from ..tables.encoding.frames import TEXT, read_table, refuse_repeated_columns
from .battles import POSITION, Battles, refuse_hopeless
from .diagnostics import components, describe_components, mutually_beaten
from .held_out import FEW_ALPHAS, choose_alpha, choose_half_life, decayed, predicts_ties_better
from .judges import about_prompts, refuse_with_trusted, split_trusted, worth_of_others
from .rankings import MOST_FACTORED
from .ranks import bonferroni_thresholds
from .reading import JUDGES, PROMPTS, factorised, read_battles, read_numbers, read_ranked
from .result import Ratings
from .strengths import MOST_DENSE, Strengths, TrustedStrengths, fit_strengths
from .tables import MEAN_RATING, POINTS, backend_of

# What `read_battles` takes.
_READ = (
    *("a", "b", "winner", "loser", "judge", "time", "weight", "covariates", "cluster", "margin"),
    *("ties", "first_side", "tie_covariates", "on_bad"),
)
# Fewer judges than this tell too little of how judges differ to be clusters without being asked for.
_FEW_JUDGES = 10


def rate(
    battles: Any,
    *,
    a: str | None = None,
    b: str | None = None,
    winner: str | None = None,
    loser: str | None = None,
    judge: str | None = None,
    time: str | None = None,
    weight: str | None = None,
    covariates: Sequence[str] = (),
    cluster: str | bool | None = None,
    half_life: float | str | None = None,
    anchor: Any = None,
    alpha: float | str = "auto",
    level: float = 0.95,
    features: Any = None,
    kernel: Any = "linear",
    item_offsets: float = 1.0,
    ranking: str | None = None,
    margin: str | None = None,
    ties: str = "half",
    first_side: bool | str = False,
    tie_covariates: Sequence[str] = (),
    trusted: Any = None,
    on_bad: str = "raise",
) -> Ratings:
    """Rate items by battles between them: a leaderboard with intervals of ratings and of ranks.

    The model is Bradley and Terry's, P(a wins) = 1 / (1 + exp(-(f_a - f_b + z · β))), f the strengths and z what else
    differed between the two sides. Ratings are on Elo's scale, 400 / ln 10 times the strength with mean 1000.

    Parameters
    ----------
    battles : data frame, mapping of columns, or list of pairs
        One battle per row: two sides and who won, or winner and loser. Pairs have the winner first.
    a, b : str, optional
        Columns of the two sides; found where they are called ``model_a`` and ``model_b``, ``left`` and ``right``, ...
    winner : str, optional
        Column that says who won: the name of a side's column (or "a", "left", ...), the item's own name, "tie" or
        "both bad" (half a win each way), or the numbers 1, 0 and 0.5. "winner" by default.
    loser : str, optional
        Column of the losers, where ``winner`` holds the winners; found where the two are called ``winner`` and
        ``loser``. A column ``tie`` of booleans marks ties.
    judge : str, optional
        Column that says who judged.
    time : str, optional
        Column of dates, times or days.
    weight : str, optional
        Column of how often a battle counts, such as the counts of `preflearn.ratings.count_battles`.
    covariates : sequence of str
        What should not count, such as the length of an answer: ``"length"`` is the column ``length_a`` minus
        ``length_b`` (``winner_length`` minus ``loser_length``), or a column ``length`` that holds the difference.
        ``"position"`` without such a column is the advantage of side a.
    cluster : str or False, optional
        Column of what battles may have in common, such as a prompt: standard errors are then those of the sandwich
        with these clusters. By default ten judges or more are clusters, and otherwise standard errors are those of
        the model; False asks for the latter.
    half_life : float or "auto", optional
        Days after which a battle counts half; "auto" chooses what predicts the last fifth of the battles best from
        those before.
    anchor : mapping or pair of item and rating, optional
        ``{"gpt-4": 1000}`` moves all ratings so that this item has this one.
    alpha : float or "auto", default="auto"
        Shrinkage: alpha times the squared strengths is added to the log loss. 0 is maximum likelihood. "auto" is the
        least shrinkage whose held-out log loss is within one standard error of the best, at least 1/32, which keeps
        items finite that have won everything.
    level : float, default=0.95
        Of all intervals.
    features : data frame or mapping, optional
        A column ``item`` and columns of numbers: what is known of the items. Similar items then have similar strengths
        before any battle, and items that have not played are rated, too.
    kernel : str or callable, default="linear"
        On the standardised features, as in `preflearn.BradleyTerry`.
    item_offsets : float, default=1.0
        Variance of what features do not say, relative to that of what they say.
    ranking : str, optional
        Column of rankings of two items or more in place of battles, by Plackett and Luce's model: lists with the best
        first, or texts such as "a > b > c"; the last place may hold several without an order ("a > b, c, d" is a
        choice of one among four). The pairs that a ranking implies count as ``battles`` in the table.
    margin : str, optional
        By how much battles were won: ``"score"`` is the column ``score_a`` minus ``score_b``, or a column ``score``
        that holds the difference. Differences of strengths are then fitted to margins by least squares, in units of
        their own noise, so that the probability of winning is that of a margin above 0. Without it only who won counts.
    ties : {"half", "davidson", "auto"}, default="half"
        A tie is half a win each way, or an outcome with a probability of its own by Davidson's model: P(a wins), P(tie)
        and P(b wins) are proportional to e^{d/2}, e^ν and e^{-d/2} with d the difference above. "auto" takes what
        predicts the three outcomes of held-out battles better.
    first_side : bool or str, default=False
        Whether the side named first has an advantage (home, white, shown left), or a column that says in which battles
        (1 or true). It is added to the difference and not shrunk; `Ratings.covariates` has it in points.
    tie_covariates : sequence of str
        Columns of numbers that make ties more or less likely: ν is linear in them.
    trusted : label or list of labels, optional
        Judges whose judgements are believed, such as people. Those of all others, such as language models, then make
        intervals narrower without biasing them, as far as they agree with the trusted ones about the same battles:
        those of the same pair with the same label of ``cluster`` (or of a column ``prompt`` or ``question_id``).
    on_bad : {"raise", "skip"}, default="raise"
        What to do with battles whose label is neither a side, an item of the battle nor a tie: refuse them with their
        counts, or leave them out and say so.

    Returns
    -------
    Ratings

    Notes
    -----
    Battles are counted by distinct pairs first; without covariates the time is that of distinct pairs. Up to 3,000
    items covariances are a dense matrix; above, standard errors of the best 256 are solved for and the others
    estimated from 64 draws.

    References
    ----------
    Bradley and Terry, "Rank analysis of incomplete block designs", Biometrika 39 (1952). Ranks: Mogstad, Romano,
    Shaikh and Wilhelm, "Inference for ranks with applications to mobility across neighbourhoods", Review of Economic
    Studies 91 (2024).

    Examples
    --------
    >>> from preflearn import rate
    >>> battles = {"model_a": ["x", "x", "y", "z"] * 5, "model_b": ["y", "z", "z", "x"] * 5,
    ...            "winner": ["model_a", "model_a", "tie", "model_a"] * 5}
    >>> ratings = rate(battles)
    >>> list(ratings.table["item"])
    ['x', 'z', 'y']
    >>> ratings.win_probability("x", "y") > 0.5
    True
    """
    options: dict[str, Any] = {
        "a": a, "b": b, "winner": winner, "loser": loser, "judge": judge, "time": time, "weight": weight,
        "covariates": covariates, "cluster": cluster if isinstance(cluster, str) else None, "margin": margin,
        "ties": ties, "first_side": first_side, "tie_covariates": tie_covariates,
        "on_bad": on_bad,
    }  # fmt: skip
    _check(half_life, alpha, level, time, cluster)
    _check_ties(options, ranking)
    if trusted is not None:
        refuse_with_trusted(options, alpha, half_life, ranking)
        return _rate_trusted(
            battles, trusted, options, cluster, anchor, (features, kernel, item_offsets), alpha, level
        )
    if ranking is None:
        read = read_battles(battles, **options)
    else:
        read = _read_rankings(battles, ranking, options, features)
    options["ranking"] = ranking
    read = _with_features(read, features, kernel, item_offsets, alpha)
    options |= {"wants_cluster": cluster, "anchor": anchor}
    return _rated(read, options, half_life, alpha, float(level), backend_of(battles))


def _rate_trusted(
    table: Any, trusted: Any, options: dict[str, Any], cluster: Any, anchor: Any, features: tuple[Any, Any, Any],
    alpha: Any, level: Any,
) -> Ratings:  # fmt: skip
    """The ratings of the trusted judgements, with the help of the others."""
    read = read_battles(table, **options)
    prompt = next((name for name in read.unused if name in PROMPTS), None)
    notes = []
    if read.cluster is None and prompt is not None:
        read = read_battles(table, **{**options, "cluster": prompt})
        notes.append(about_prompts(prompt))
    kept = split_trusted(read, trusted)
    if options["cluster"] is None:
        kept = replace(kept, cluster=None, unused=())
    if kept.n_items > MOST_DENSE:
        raise InputError(
            f"{{argument}} is for at most {MOST_DENSE:,} items: found {kept.n_items:,}", argument="trusted"
        )
    kept = _with_features(kept, *features, alpha)
    asked = {**options, "ranking": None, "wants_cluster": cluster, "anchor": anchor}
    found = _rated(kept, asked, None, alpha, float(level), backend_of(table))
    assert isinstance(found.strengths, TrustedStrengths)
    worth, about = worth_of_others(found.strengths, len(read))
    if about[0] != str(worth):
        warnings.warn(about[0], UserWarning, stacklevel=3)
    return replace(found, trusted=worth, notes=[*found.notes, *notes, *about])


def _with_features(read: Battles, features: Any, kernel: Any, item_offsets: Any, alpha: Any) -> Battles:
    if features is not None:
        if alpha == 0:
            raise InputError(
                "features are a prior, which maximum likelihood ignores",
                Remedy("alpha", "auto"),
                Remedy("alpha", purpose="and a positive number"),
            )
        return _join_features(read, features, kernel, item_offsets)
    if kernel != "linear" or item_offsets != 1.0:
        raise InputError(
            "kernel and item_offsets are about features of the items, and there are none",
            Remedy("features", purpose="and their table"),
        )
    return read


def _read_rankings(table: Any, ranking: str, options: dict[str, Any], features: Any) -> Battles:
    names = ("a", "b", "winner", "loser", "covariates", "cluster", "margin", "first_side")
    ignored = [name for name in names if options[name]]
    if options["on_bad"] == "skip":
        ignored.append("on_bad")
    if features is not None:
        ignored.append("features")
    if ignored:
        raise InputError(
            "{argument} would be ignored where a column holds rankings: leave it out", argument=ignored[0]
        )
    return read_ranked(table, ranking, **{name: options[name] for name in ("judge", "time", "weight")})


def _check(half_life: Any, alpha: Any, level: Any, time: str | None, cluster: Any) -> None:
    if alpha != "auto" and not _is_number(alpha, 0.0):
        raise InputError(
            f"{{argument}} must be 'auto' or a number, at least 0: found {alpha!r}", argument="alpha"
        )
    if isinstance(level, bool) or not isinstance(level, Real) or not 0.5 <= float(level) < 1:
        raise InputError(
            f"{{argument}} is the probability of the intervals, at least 0.5 and below 1: found {level!r}",
            argument="level",
        )
    if half_life is not None and half_life != "auto" and not (_is_number(half_life, 0.0) and half_life > 0):
        raise InputError(
            f"{{argument}} must be a positive number of days, or 'auto': found {half_life!r}",
            argument="half_life",
        )
    if half_life is not None and time is None:
        raise InputError(
            "A half-life needs the time of every battle", Remedy("time", purpose="and its column")
        )
    if cluster is True:
        raise InputError("{argument} must be a column, None or False: found True", argument="cluster")


def _check_ties(options: dict[str, Any], ranking: str | None) -> None:
    ties, first_side = options["ties"], options["first_side"]
    if ties not in ("half", "davidson", "auto"):
        raise InputError(
            f"{{argument}} must be 'half', 'davidson' or 'auto': found {ties!r}", argument="ties"
        )
    if options["on_bad"] not in ("raise", "skip"):
        raise InputError(
            f"{{argument}} must be 'raise' or 'skip': found {options['on_bad']!r}", argument="on_bad"
        )
    if not isinstance(first_side, (bool, str)):
        raise InputError(
            f"{{argument}} must be True, False or a column: found {first_side!r}", argument="first_side"
        )
    if ties == "half":
        if options["tie_covariates"]:
            raise InputError(
                "{argument} would be ignored where ties are half a win each way (ties='half')",
                Remedy("ties", "davidson"),
                argument="tie_covariates",
            )
    elif ranking is not None or options["margin"] is not None:
        name, why = ("ranking", "rankings") if ranking is not None else ("margin", "margins")
        raise InputError(
            f"Ties have no probability of their own in the model of {why} ({name}): rate without {{argument}}",
            argument="ties",
        )
    if first_side and POSITION in options["covariates"]:
        raise InputError(
            "{argument} and the covariate 'position' (covariates) are the same effect: ask for one of them",
            argument="first_side",
        )


def _is_number(value: Any, least: float) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool) and least <= float(value) < np.inf


def _rated(
    battles: Battles, options: dict[str, Any], half_life: Any, alpha: Any, level: float, backend: Any,
    start: np.ndarray | None = None,
) -> Ratings:  # fmt: skip
    refuse_hopeless(battles)
    shift = _read_anchor(options["anchor"], battles.items)
    cluster, cluster_name = _read_cluster(battles, options)
    notes = _notes(battles, alpha, cluster is not None or options["wants_cluster"] is False)
    if cluster is not None:
        notes += _about_few_clusters(battles, cluster, level)
    asked = {"half_life": half_life, "alpha": alpha, **options}
    if options["ties"] == "auto":
        better = predicts_ties_better(battles, alpha, half_life)
        battles = replace(battles, ties="davidson" if better else "half")
    if half_life == "auto":
        alphas = FEW_ALPHAS if alpha == "auto" else [float(alpha)]
        half_life, alpha = choose_half_life(battles, alphas)
    used = battles if half_life is None else decayed(battles, float(half_life))
    strengths = choose_alpha(used) if alpha == "auto" else fit_strengths(used, float(alpha), start=start)
    _refuse_separation(strengths)
    where = strengths.scores[battles.items.index(shift[0])] if shift else 0.0
    offset = shift[1] - MEAN_RATING - POINTS * where if shift else 0.0
    return Ratings(
        strengths,
        battles,
        strengths.alpha,
        half_life,
        level,
        float(offset),
        cluster,
        cluster_name,
        backend,
        asked,
        notes,
    )


def rate_counts(
    table: dict[str, list[Any]],
    before: Ratings | None,
    about_names: tuple[str, ...] = (),
    *,
    anchor: Any = None,
    alpha: float | str = "auto",
    level: float = 0.95,
    features: Any = None,
    kernel: Any = "linear",
    item_offsets: float = 1.0,
    ties: str = "half",
) -> Ratings:
    """The ratings of counts, found from those before where there are some."""
    _check(None, alpha, level, None, None)
    about_ties: dict[str, Any] = {"ties": ties, "first_side": False, "tie_covariates": (), "on_bad": "raise"}
    _check_ties({**about_ties, "margin": None, "covariates": ()}, None)
    counted = replace(read_battles(table, weight="count", ties=ties), about_names=about_names)
    read = _with_features(counted, features, kernel, item_offsets, alpha)
    names = ("a", "b", "winner", "loser", "judge", "time", "covariates", "cluster", "margin", "ranking")
    options = {
        **dict.fromkeys(names),
        **about_ties,
        "weight": "count",
        "covariates": (),
        "wants_cluster": None,
        "anchor": anchor,
    }
    start = None
    if before is not None:
        start = np.array([before.scores.get(item, 0.0) for item in read.items])
    return _rated(read, options, None, alpha, float(level), backend_of(table), start)


def rerate(ratings: Ratings, battles: Any) -> Ratings:
    """The ratings of old and new battles."""
    if ratings.raw.similarity is not None or ratings.raw.rankings is not None:
        raise ValueError("Ratings with features, or of rankings, are not updated: rate everything together.")
    if ratings.trusted is not None:
        raise InputError(
            "Ratings with {argument} are not updated: rate everything together", argument="trusted"
        )
    asked = dict(ratings.options)
    new = read_battles(battles, **{name: asked[name] for name in _READ})
    both = ratings.raw.followed_by(new)
    start = None
    if both.items == ratings.raw.items and not both.covariate_names:
        start = ratings.strengths.theta
    half_life, alpha = asked.pop("half_life"), asked.pop("alpha")
    return _rated(both, asked, half_life, alpha, ratings.level, ratings.backend, start)


def _read_anchor(anchor: Any, items: list[Hashable]) -> tuple[Hashable, float] | None:
    if anchor is None:
        return None
    pairs = (
        list(anchor.items())
        if isinstance(anchor, Mapping)
        else [tuple(anchor)]
        if isinstance(anchor, (tuple, list))
        else []
    )
    if (
        len(pairs) != 1
        or len(pairs[0]) != 2
        or isinstance(pairs[0][1], bool)
        or not isinstance(pairs[0][1], Real)
        or not np.isfinite(float(pairs[0][1]))
    ):
        raise InputError(
            f"{{argument}} gives one item its rating, such as 1000 for 'gpt-4': found {anchor!r}",
            argument="anchor",
        )
    item, rating = pairs[0]
    item = item.strip() if isinstance(item, str) else item
    if item not in items:
        raise InputError(
            f"{{argument}} names {item!r}, which has not played: the items are {describe_components([items])}",
            argument="anchor",
        )
    return item, float(rating)


def _read_cluster(battles: Battles, options: dict[str, Any]) -> tuple[np.ndarray | None, str | None]:
    """The cluster of each battle for the sandwich, and the name of the column that was asked for."""
    if options["wants_cluster"] is False:
        return None, None
    found, name = battles.cluster, options["cluster"]
    if found is None:
        if battles.judge is None or len(battles.judge[1]) < _FEW_JUDGES:
            return None, None
        return battles.judge[0], None
    if len(found[1]) < 2:
        raise InputError(
            f"{{argument}}: the column {name!r} has one value only, {found[1][0]!r}, and clusters need at least two",
            argument="cluster",
        )
    return found[0], name


def _notes(battles: Battles, alpha: Any, clustered: bool) -> list[str]:
    notes = []
    apart = components(battles)
    if len(apart) > 1:
        text = (
            f"The items fall into {len(apart):,} components that no battle connects: {describe_components(apart)}. "
            "Differences between components rest "
            "on shrinkage alone"
        )
        if alpha == 0:
            raise InputError(
                f"{text}, and maximum likelihood has none: rate each component for itself, or shrink",
                Remedy("alpha", "auto"),
            )
        notes.append(f"{text}.")
        warnings.warn(notes[-1], UserWarning, stacklevel=4)
    elif alpha == 0 and battles.margin is None:
        found = mutually_beaten(battles)
        if len(found) > 1:
            raise InputError(
                f"Maximum likelihood has no finite answer: {describe_components(found[1:])} won or lost everything "
                "against the others",
                Remedy("alpha", "auto"),
            )
    if battles.only_margin and battles.margin is not None and battles.margin.min() >= 0:
        notes.append(
            "No margin is negative, so that side a won or tied every battle: margins are side a's score minus side "
            "b's. If they are the winner's minus the loser's, name the columns winner and loser, or a column that says "
            "who won and change the sign where side b did."
        )
        warnings.warn(notes[-1], UserWarning, stacklevel=4)
    about_names = [
        *battles.about_names,
        *_about_case("items", battles.items),
        *_about_case("judges", [] if battles.judge is None else battles.judge[1]),
    ]
    for text in about_names:
        warnings.warn(text, UserWarning, stacklevel=4)
    notes += about_names
    notes += [_about_unused(column) for column in battles.unused]
    if battles.judge is not None and 1 < len(battles.judge[1]) < _FEW_JUDGES and not clustered:
        notes.append(
            f"{len(battles.judge[1])} judges are too few for standard errors that allow for differences between "
            "judges: they are those of the model."
        )
    bad = battles.outcomes.get("both bad")
    if bad:
        notes.append(
            f"{bad:,} battles ended with both bad and count as ties."
            if bad > 1
            else "1 battle ended with both bad and counts as a tie."
        )
    return notes


def _about_case(what: str, labels: Sequence[Hashable]) -> list[str]:
    """Names that differ in case, spaces or hyphens alone are taken as they are, which may not be what was meant."""
    folded: dict[str, list[Hashable]] = {}
    for label in labels:
        if isinstance(label, str):
            folded.setdefault(re.sub(r"[\s_-]+", "", label.casefold()) or label, []).append(label)
    alike = [same for same in folded.values() if len(same) > 1]
    if not alike:
        return []
    shown = "; ".join(" and ".join(map(repr, same)) for same in alike[:3])
    more = f" and {len(alike) - 3:,} more" if len(alike) > 3 else ""
    return [
        f"Names of {what} differ by case, spaces or hyphens alone and count as different {what}: {shown}{more}. Are "
        "they the same? Write them alike."
    ]


def _about_few_clusters(battles: Battles, cluster: np.ndarray, level: float) -> list[str]:
    """How far items must be apart, where clusters are so few that it is more than twice what it would be of many."""
    n, sizes = battles.n_items, np.bincount(cluster, battles.weight)
    found = int((sizes > 0).sum())
    worth = float(sizes.sum() ** 2 / np.square(sizes).sum())
    least, needed = bonferroni_thresholds(np.inf, n, level), 3
    far = bonferroni_thresholds(worth - 1.0, n, level)
    if far <= 2.0 * least:
        return []
    while bonferroni_thresholds(needed - 1.0, n, level) > 2.0 * least:
        needed += 1
    as_equal = "" if found - worth < 1.0 else f", which differ in size and are worth {worth:.1f} equal ones"
    effect = "no two items can be told apart"
    if np.isfinite(far):
        effect = f"two items differ significantly only beyond {far:.3g} standard errors"
    return [
        f"Ranks of {n:,} items rest on {found:,} clusters{as_equal}: {effect} (with very many clusters beyond "
        f"{least:.2f}). At least {needed} clusters of equal size are needed for not more than twice that."
    ]


def _about_unused(column: str) -> str:
    """What a column that looks like a judge, a time or a prompt would be good for."""
    if column in JUDGES:
        use = (
            f"Pass judge={column!r} to estimate judges' biases and, with ten judges or more, to get standard errors "
            "that account for them."
        )
    elif column in PROMPTS:
        use = (
            f"Pass cluster={column!r} to get standard errors that account for battles that have it in common."
        )
    else:
        use = f"Pass time={column!r} for boards by month, and for old battles to count less with a half-life."
    return f"The column {column} was not used. {use}"


def _refuse_separation(strengths: Strengths) -> None:
    battles = strengths.battles
    if not battles.covariate_names:
        return
    decided = battles.share != 0.5
    towards = (battles.covariates[decided] @ strengths.coefficients) * (battles.share[decided] - 0.5)
    if towards.size > 1 and (towards > 0).all():
        names = ", ".join(battles.covariate_names)
        raise ValueError(
            f"The covariates ({names}) together predict every one of {towards.size:,} decided battles, so that "
            "nothing is left for the items: leave out "
            "what is another form of the outcome."
        )


def _join_features(battles: Battles, features: Any, kernel: Any, item_offsets: float) -> Battles:
    """The battles with further items that have features, and the similarity of all items.

    Similar items have similar strengths, including those that have not played: the prior covariance of the strengths is
    K + ρ I, K the kernel of the standardised features with a mean of 1 on its diagonal and ρ the variance of what
    features do not say.

    Parameters
    ----------
    battles : Battles
    features : data frame or mapping
        A column ``item`` and columns of numbers.
    kernel : str or callable
        As `preflearn.BradleyTerry` takes it, on standardised features.
    item_offsets : float
        ρ.
    """
    if not isinstance(item_offsets, Real) or not 0 < item_offsets < np.inf:
        raise ValueError(
            "item_offsets is the variance of what features do not say, relative to that of what they say, positive: "
            f"found {item_offsets!r}."
        )
    names, X = _read_features(features)
    if battles.items and isinstance(battles.items[0], str):
        names = [str(name) for name in names]
    place = {name: k for k, name in enumerate(names)}
    if len(place) < len(names):
        raise ValueError("The column 'item' of features names an item twice: expected one row for each item.")
    missing = [item for item in battles.items if item not in place]
    if missing:
        raise ValueError(
            f"{len(missing):,} items have battles and no features, such as {missing[0]!r}: add their rows."
        )
    if len(names) > MOST_FACTORED:
        raise ValueError(f"Features are used for at most {MOST_FACTORED:,} items: found {len(names):,}.")
    items = [*battles.items, *(name for name in names if name not in set(battles.items))]
    X = X[[place[item] for item in items]]
    spread = X.std(axis=0)
    X = (X - X.mean(axis=0)) / np.where(spread > 0, spread, 1.0)
    K = np.array(Kernel(kernel).matrix(X), dtype=np.float64)
    K /= max(float(np.mean(np.diagonal(K))), np.finfo(float).tiny)
    K[np.diag_indices_from(K)] += item_offsets
    return replace(battles, items=items, similarity=K)


def _read_features(features: Any) -> tuple[list[Any], np.ndarray]:
    refuse_repeated_columns(features)
    columns = {column.name: column for column in read_table(features, "The table of features").columns}
    if "item" not in columns or len(columns) < 2:
        raise ValueError(
            f"features needs a column 'item' and at least one column of numbers: found {', '.join(columns)}."
        )
    codes, labels = factorised(columns.pop("item"))
    if (codes < 0).any():
        raise ValueError("The column 'item' of features has missing names.")
    texts = [name for name, column in columns.items() if column.form == TEXT]
    if texts:
        raise ValueError(
            f"features must be numbers, and {texts[0]!r} holds texts: encode it first "
            "(preflearn.preprocessing.TableEncoder)."
        )
    X = np.stack([read_numbers(column, "feature") for column in columns.values()], axis=1)
    return [labels[code] for code in codes], X
