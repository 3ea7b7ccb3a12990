"""Battles read from data frames and mappings: which columns hold the sides, who won, and what else is known.

Columns are found by their usual names where they are not given. What cannot be read is refused with its row and count.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..errors import InputError, Remedy, shortened
from ..numerics.namespace import refuse_repeated_columns
from ..tables.cells import DAY, day_comes_first, parse_times, times_of_digits
from ..tables.encoding.frames import BOOLEAN, MOST_EXACT, NUMBER, TEXT, TIME, Column, read_table
from ..tables.options import SIDES
from .battles import FIRST_SIDE, POSITION, Battles, are_counts, sorted_labels
from .rankings import read_rankings

_FIRST = {"a", "model_a", "left", "first", "1", "home", "win", "win_a"}
_SECOND = {"b", "model_b", "right", "second", "2", "away", "loss", "win_b"}
_TIES = {
    "tie",
    "draw",
    "tied",
    "equal",
    "both",
    "both good",
    "both_good",
    "tie (both good)",
    "tie (bothgood)",
}
# What a column that marks ties may hold.
_TIED, _NOT_TIED = {"true", "yes", "1", "tie", "draw"}, {"false", "no", "0"}
_BOTH_BAD = {"bothbad", "both bad", "both_bad", "tie (bothbad)", "tie (both bad)", "neither"}
_SCORES = ("score_a", "score_b")
# Usual names of columns that say more about a battle.
JUDGES = ("judge", "worker", "annotator", "rater")
PROMPTS = ("prompt", "question_id")
_TELLING = (*JUDGES, *PROMPTS, "time", "date", "timestamp", "tstamp")
# Differences of covariates, and of margins, may be as large, and one over it.
_MOST_MEASURED = 1e100
# Columns that hold names, even if these look like numbers.
NAME_COLUMNS = tuple(name for pair in SIDES for name in pair) + ("loser",)
_OUTCOMES = {"a won": 1.0, "b won": 0.0, "tie": 0.5}


class RowError(ValueError):
    """A row that cannot be used.

    Attributes
    ----------
    text : str
        The message; ``{row}`` in it stands for the place of the row.
    row : int
        In the table that was read, from 0.
    source : str
        What the row is of, where that is not clear.
    """

    def __init__(self, text: str, row: int, source: str = "") -> None:
        self.text, self.row, self.source = text, row, source
        of = f" of {source}" if source else ""
        super().__init__(text.replace("{row}", f"row {row + 1:,}{of}"))

    def moved(self, before: int, source: str) -> RowError:
        """The same where the table is a part of a source and has rows before it."""
        return RowError(self.text, before + self.row, source)

    def __reduce__(self) -> tuple[Any, ...]:
        return RowError, (self.text, self.row, self.source)


def read_battles(
    table: Any,
    *,
    a: str | None = None,
    b: str | None = None,
    winner: str | None = None,
    loser: str | None = None,
    judge: str | None = None,
    time: str | None = None,
    weight: str | None = None,
    covariates: Sequence[str] = (),
    cluster: str | None = None,
    margin: str | None = None,
    ties: str = "half",
    first_side: bool | str = False,
    tie_covariates: Sequence[str] = (),
    on_bad: str = "raise",
) -> Battles:
    """Read a data frame or a mapping of columns; see `preflearn.rate` for the arguments."""
    if isinstance(covariates, str):
        covariates = (covariates,)
    if len({*covariates}) < len(covariates):
        raise InputError(
            f"{{argument}} names a column twice: found {shortened(list(covariates))}", argument="covariates"
        )
    refuse_repeated_columns(table)
    found = read_table(table, "The table of battles")
    columns = {column.name: column for column in found.columns}
    if not found.named and len(columns) == 2 and (a, b, winner, loser) == (None, None, None, None):
        # A list of pairs without names, as choix takes it: the winner first.
        columns = {name: replace(one, name=name) for name, one in zip(("winner", "loser"), found.columns)}
    sides = _find_sides(columns, a, b, winner, loser, margin=margin)
    items, pairs = _read_items(columns, sides.a, sides.b)
    difference = None if margin is None else _read_margin(columns, margin, sides)
    values = _read_weights(columns, weight) if weight else np.ones(len(pairs))
    share, outcomes, skipped = _read_outcomes(columns, sides, items, pairs, values, difference, on_bad)
    Z = [_read_covariate(columns, str(name), sides, len(share)) for name in covariates]
    if first_side is not False:
        Z = [_read_first_side(columns, first_side, sides, len(share)), *Z]
    read = Battles(
        items,
        pairs,
        share,
        values,
        _read_labels(columns, judge, "judge"),
        _read_labels(columns, cluster, "cluster"),
        None if time is None else read_days(columns[_known(columns, time, "time")]),
        np.stack(Z, axis=1) if Z else np.empty((len(share), 0)),
        tuple(map(str, covariates if first_side is False else (FIRST_SIDE, *covariates))),
        not sides.winner_first,
        outcomes,
        unused=tuple(
            name for name in _TELLING if name in columns and name not in (judge, time, cluster, weight)
        ),
        margin=difference,
        about_names=(*_about_spaces(columns, (sides.a, sides.b, judge, cluster)), *skipped),
        only_margin=margin is not None and sides.by_score and _pair_of(columns, margin, sides) is None,
        ties="half" if ties == "half" else "davidson",
        tie_columns=None if ties == "half" else _read_tie_columns(columns, tie_covariates, len(share)),
    )
    return read.of_rows(np.flatnonzero(~np.isnan(share))) if skipped else read


def columns_of_sides(
    names: Sequence[str],
    *,
    a: str | None = None,
    b: str | None = None,
    winner: str | None = None,
    loser: str | None = None,
    weight: str | None = None,
) -> tuple[list[str], list[str]]:
    """Which columns hold who met and who won, texts and numbers: what counts of pairs are made of."""
    columns: Any = dict.fromkeys(names)
    sides = _find_sides(columns, a, b, winner, loser)
    texts = [name for name in (sides.a, sides.b, sides.winner, sides.tie) if name is not None]
    numbers = list(_SCORES) if sides.by_score else []
    return texts, [*numbers, *([] if weight is None else [_known(columns, weight, "weight")])]


@dataclass(frozen=True)
class _Sides:
    """The columns of the two sides and of the outcome."""

    a: str
    b: str
    winner: str | None
    tie: str | None = None
    by_score: bool = False
    winner_first: bool = False


def _find_sides(
    columns: dict[str, Column],
    a: str | None,
    b: str | None,
    winner: str | None,
    loser: str | None,
    needs_winner: bool = True,
    margin: str | None = None,
) -> _Sides:
    if (a is None) != (b is None):
        given, missing = ("a", "b") if b is None else ("b", "a")
        raise InputError(
            "Columns of both sides are needed, or of neither: found {argument} alone",
            Remedy(missing),
            argument=given,
        )
    if loser is not None or (a is None and {"winner", "loser"} <= {*columns} and winner in (None, "winner")):
        if a is not None:
            raise InputError(
                "A column of losers says who met, so that {argument} would be ignored: leave one of them out",
                argument="a",
            )
        first = _known(columns, winner or "winner", "winner")
        return _Sides(
            first,
            _known(columns, loser or "loser", "loser"),
            None,
            "tie" if "tie" in columns else None,
            winner_first=True,
        )
    if a is None or b is None:
        a, b = _usual_sides(columns)
    _known(columns, a, "a"), _known(columns, b, "b")
    if not needs_winner:
        return _Sides(a, b, None)
    if winner is None and "winner" not in columns and (margin is not None or {*_SCORES} <= {*columns}):
        return _Sides(a, b, None, None, by_score=True)
    if winner is None and "winner" not in columns:
        raise InputError(
            f"The columns {a!r} and {b!r} say who met, and none says who won: found {shortened(list(columns))}",
            Remedy("winner", purpose="and the column that does"),
        )
    return _Sides(a, b, _known(columns, winner or "winner", "winner"))


def _usual_sides(columns: dict[str, Column]) -> tuple[str, str]:
    """The two sides by the names that they usually have."""
    usual = [pair for pair in SIDES if {*pair} <= {*columns}]
    if not usual:
        raise InputError(
            f"No columns of two sides were found among {shortened(list(columns))}: expected model_a and model_b "
            "with winner, or winner and loser",
            Remedy("a"),
            Remedy("b"),
            Remedy("winner", purpose="to name the columns that you have"),
            together=True,
        )
    if len(usual) > 1:
        raise InputError(
            "Several pairs of columns could be the two sides: "
            f"{shortened([' and '.join(pair) for pair in usual])}",
            Remedy("a"),
            Remedy("b", purpose="to say which"),
            together=True,
        )
    return usual[0]


def _known(columns: dict[str, Column], name: str, argument: str) -> str:
    if name not in columns:
        raise InputError(
            f"{{argument}} asks for the column {name!r}, found {shortened(list(columns))}", argument=argument
        )
    return name


def factorised(column: Column) -> tuple[np.ndarray, list[Hashable]]:
    """(codes, -1 where missing; labels) of a column; whole numbers are labels as they are, texts without spaces around
    them."""
    if column.problem:
        raise ValueError(f"{column.problem}.")
    if column.form == TEXT and column.texts is not None:
        codes, labels = column.texts.factorised
        trimmed = [label.strip() for label in labels]
        places = {label: k for k, label in enumerate(dict.fromkeys(label for label in trimmed if label))}
        return np.array([places.get(label, -1) for label in trimmed] + [-1], dtype=np.int64)[codes], [*places]
    values, missing = (column.array, np.isnan(column.array)) if column.whole is None else column.whole
    distinct, found = np.unique(values[~missing], return_inverse=True)
    codes = np.full(values.shape[0], -1, dtype=np.int64)
    codes[~missing] = found.ravel()
    if column.form == BOOLEAN:
        return codes, [bool(value) for value in distinct]
    if column.whole is not None:
        return codes, [*distinct.tolist()]
    _refuse_rounded(column.name, distinct)
    return codes, [int(value) if value == round(value) else float(value) for value in distinct]


def _about_spaces(columns: dict[str, Column], names: Sequence[str | None]) -> tuple[str, ...]:
    """What to know about names that had spaces around them."""
    read = [columns[name].texts for name in dict.fromkeys(names) if name is not None]
    found = dict.fromkeys(
        label
        for texts in read
        if texts is not None
        for label in texts.factorised[1]
        if label.strip() and label != label.strip()
    )
    if not found:
        return ()
    shown = ", ".join(repr(label) for label in list(found)[:3])
    return (f"Spaces around names were removed, such as in {shown} ({len(found):,} in all).",)


def _refuse_rounded(name: str, numbers: np.ndarray) -> None:
    """Labels that have been through floating-point numbers may have been different ones before."""
    long = numbers[np.abs(numbers) > MOST_EXACT]
    if long.size:
        raise InputError(
            f"Column {name!r} names things by floating-point numbers such as {long[0]:.0f}, which have 53 bits: "
            "different ones may have become one (pandas does this where a value is missing). Read the column as whole "
            "numbers or as texts"
        )


def _read_labels(
    columns: dict[str, Column], name: str | None, argument: str
) -> tuple[np.ndarray, list[Hashable]] | None:
    if name is None:
        return None
    codes, labels = factorised(columns[_known(columns, name, argument)])
    _refuse_missing(codes < 0, name, f"a {argument}")
    return codes, labels


def _refuse_missing(missing: np.ndarray, name: str, what: str) -> None:
    rows = np.flatnonzero(missing)
    if rows.size:
        raise RowError(
            f"Column {name!r} names {what} for every battle, and {rows.size:,} values are missing ({{row}} first): "
            "leave these battles out, or fill the values in.",
            int(rows[0]),
        )


def _read_items(columns: dict[str, Column], a: str, b: str) -> tuple[list[Hashable], np.ndarray]:
    if a == b:
        raise InputError(f"The two sides are the same column, {a!r}", Remedy("b", purpose="and another one"))
    read = []
    for name in (a, b):
        codes, labels = factorised(columns[name])
        _refuse_missing(codes < 0, name, "an item")
        read.append((codes, labels))
    if len({isinstance(label, str) for _, labels in read for label in labels}) > 1:
        read = [(codes, [str(label) for label in labels]) for codes, labels in read]
    used = {labels[k] for codes, labels in read for k in np.unique(codes)}
    items = sorted_labels(used)
    place = {item: k for k, item in enumerate(items)}
    sides = [
        np.array([place.get(label, -1) for label in labels], dtype=np.int64)[codes] for codes, labels in read
    ]
    same = np.flatnonzero(sides[0] == sides[1])
    if same.size:
        raise RowError(
            f"{same.size:,} of {sides[0].shape[0]:,} battles are of an item against itself ({{row}}: "
            f"{items[sides[0][same[0]]]!r}): leave them out.",
            int(same[0]),
        )
    if len(items) < 2:
        raise ValueError(f"Ratings compare items: found only {items[0]!r}.")
    return items, np.stack(sides, axis=1)


def _read_margin(columns: dict[str, Column], name: str, sides: _Sides) -> np.ndarray:
    """By how much side a won; it must agree with who won where a column says that, too."""
    margin = _read_difference(columns, name, sides, "margin")
    if np.ptp(margin) == 0:
        raise InputError(
            f"{{argument}}: every battle has the margin {margin[0]:g}, which says nothing. Leave it out",
            argument="margin",
        )
    return margin


def _refuse_contradiction(share: np.ndarray, margin: np.ndarray | None) -> None:
    if margin is None:
        return
    against = np.flatnonzero(np.sign(margin) * (share - 0.5) < 0)
    if against.size:
        raise InputError(
            f"{against.size:,} of {share.size:,} battles were won by one side and have a margin in favour of the other "
            f"(row {against[0] + 1:,} first): {{argument}} is side a minus side b, or winner minus loser",
            argument="margin",
        )


def _read_outcomes(
    columns: dict[str, Column],
    sides: _Sides,
    items: list[Hashable],
    pairs: np.ndarray,
    weight: np.ndarray,
    margin: np.ndarray | None = None,
    on_bad: str = "raise",
) -> tuple[np.ndarray, dict[str, int], tuple[str, ...]]:
    """The share of side a, how many battles had each outcome, and what was said of those that are skipped."""
    if not sides.by_score:
        share, outcomes, skipped = _read_winners(columns, sides, items, pairs, weight, on_bad)
        _refuse_contradiction(share, margin)
        return share, outcomes, skipped
    if margin is None:
        margin = np.subtract(*(read_numbers(columns[name], "score") for name in _SCORES))
    share = 0.5 + 0.5 * np.sign(margin)
    return share, {name: _number_of(share == y, weight) for name, y in _OUTCOMES.items()}, ()


def _number_of(which: np.ndarray, weight: np.ndarray) -> int:
    """How many battles some rows stand for."""
    return int(weight[which].sum()) if are_counts(weight) else int(which.sum())


def _read_winners(
    columns: dict[str, Column], sides: _Sides, items: list[Hashable], pairs: np.ndarray, weight: np.ndarray,
    on_bad: str,
) -> tuple[np.ndarray, dict[str, int], tuple[str, ...]]:  # fmt: skip
    n = pairs.shape[0]
    if sides.winner is None:
        tie = np.zeros(n, dtype=bool) if sides.tie is None else _read_ties(columns[sides.tie])
        share = np.where(tie, 0.5, 1.0)
        return share, {"won": _number_of(~tie, weight), "tie": _number_of(tie, weight)}, ()
    codes, labels = factorised(columns[sides.winner])
    labels = _as_shares(labels)
    place = {item: k for k, item in enumerate(items)}
    are_shares = set(labels) <= {0, 0.5, 1}
    if are_shares:
        _refuse_ambiguous(sides, codes, labels, place, pairs)
    share = _shares_of(labels, codes, sides, place, pairs, are_shares)
    skipped: tuple[str, ...] = ()
    unknown = np.isnan(share)
    if unknown.any():
        skipped = _about_bad_labels(sides, codes[unknown], labels, n, on_bad)
    bad = [
        k for k, label in enumerate(labels) if isinstance(label, str) and label.strip().lower() in _BOTH_BAD
    ]
    both_bad = _number_of(np.isin(codes, bad) & (share == 0.5), weight)
    counts = {name: _number_of(share == y, weight) for name, y in _OUTCOMES.items()}
    return share, {**counts, "tie": counts["tie"] - both_bad, "both bad": both_bad}, skipped


def _as_shares(labels: list[Hashable]) -> list[Hashable]:
    """Texts such as "0.5" as numbers, where all are shares: a file may have been read without looking for numbers."""
    if not all(isinstance(label, str) for label in labels):
        return labels
    shares: dict[Hashable, Hashable] = {"0": 0, "0.0": 0, "0.5": 0.5, "1": 1, "1.0": 1}
    found = [shares.get(str(label).strip()) for label in labels]
    return labels if None in found else found


def _read_ties(column: Column) -> np.ndarray:
    """Which battles are marked as ties; a missing mark is none."""
    codes, labels = factorised(column)
    words = [str(label).strip().lower() for label in labels]
    unknown = [
        label for label, word in zip(labels, words, strict=True) if word and word not in _TIED | _NOT_TIED
    ]
    if unknown:
        raise ValueError(
            f"Column {column.name!r} marks ties, and holds {shortened([repr(label) for label in unknown])}: expected "
            "true and false, 1 and 0, or yes and no. Rename it if it is about something else."
        )
    return np.array([word in _TIED for word in words] + [False])[codes]


def _refuse_ambiguous(
    sides: _Sides, codes: np.ndarray, labels: list[Hashable], place: dict[Hashable, int], pairs: np.ndarray
) -> None:
    """Items called 0 and 1 must not be taken for shares, nor shares for items."""
    found = [place.get(label, place.get(str(label), -1)) for label in labels]
    named = np.array([*found, -1])[codes]
    if ((named == pairs[:, 0]) | (named == pairs[:, 1])).all() and not {type(x) for x in labels} <= {bool}:
        raise ValueError(
            f"Column {sides.winner!r} holds {shortened(labels)}, which are items as well as shares (1 for "
            f"{sides.a!r}, 0 for "
            f"{sides.b!r}): write the names of the columns, or other names of the items."
        )


def _shares_of(
    labels: list[Hashable],
    codes: np.ndarray,
    sides: _Sides,
    items: dict[Hashable, int],
    pairs: np.ndarray,
    are_shares: bool,
) -> np.ndarray:
    """The share of side a of each battle; NaN where its label is neither a side, an item of the battle nor a tie.

    A label may be the name of an item as well as a word for a side or a tie. It is a name if the column names winners,
    a word if it names sides; where neither is certain and the two disagree, it is refused.
    """
    # A column with ties beside numbers is one of texts.
    written = {str(item): number for item, number in items.items()}
    words = [None if are_shares else _word(label, sides) for label in labels]
    names = [None if are_shares or isinstance(label, bool) else written.get(str(label)) for label in labels]
    pure_names = any(name is not None and word is None for name, word in zip(names, words, strict=True))
    pure_sides = any(word in (0.0, 1.0) and name is None for name, word in zip(names, words, strict=True))
    share = np.full(codes.size, np.nan)
    for k, (label, word, name) in enumerate(zip(labels, words, names, strict=True)):
        rows = np.flatnonzero(codes == k)
        if are_shares:
            share[rows] = float(label)  # type: ignore[arg-type]
            continue
        said = np.full(rows.size, np.nan if word is None else word)
        if name is not None:
            first, second = (pairs[rows] == name).T
            named = np.where(first, 1.0, np.where(second, 0.0, np.nan))
            if word is None or _is_name(label, word, named, pure_names, pure_sides, sides):
                said = named
        share[rows] = said
    return share


def _is_name(
    label: Hashable, word: float, named: np.ndarray, pure_names: bool, pure_sides: bool, sides: _Sides
) -> bool:
    """Whether a label that is an item as well as a word for a side or a tie means the item.

    ``named`` has the shares that the item's name would mean, NaN where it does not take part in the battle.
    """
    plays = ~np.isnan(named)
    if not plays.any() or (pure_sides and not pure_names):
        return False
    if plays.all() and ((named == word).all() or (not pure_sides and (pure_names or word == 0.5))):
        return True
    if not plays.all() and not pure_names:
        return False
    if (named[plays] == word).all():
        return False
    what = "a tie" if word == 0.5 else f"side {'a' if word else 'b'}"
    raise InputError(
        f"Column {sides.winner!r}: {label!r} is the name of an item and a word for {what}, and it is not clear which "
        f"is meant. Write {sides.a!r} and {sides.b!r} (the columns of the two sides) or 1, 0 and 0.5 for who won, or "
        "give the item another name",
        Remedy("loser", purpose="and a column of losers, where the winners are items"),
    )


def _word(label: Hashable, sides: _Sides) -> float | None:
    """The share of side a that a word for a side or a tie stands for."""
    if isinstance(label, bool):
        return float(label)
    if not isinstance(label, str):
        return None
    word = label.strip().lower()
    columns = {sides.a.strip().lower(): 1.0, sides.b.strip().lower(): 0.0}
    if word in columns:
        return columns[word]
    if word in _FIRST | _SECOND:
        return float(word in _FIRST)
    return 0.5 if word in _TIES | _BOTH_BAD else None


def _about_bad_labels(
    sides: _Sides, codes: np.ndarray, labels: list[Hashable], n: int, on_bad: str
) -> tuple[str, ...]:
    """Refuse labels that say nothing, or say that their battles are skipped."""
    counts = Counter("missing" if code < 0 else repr(labels[code]) for code in codes.tolist())
    found = shortened([f"{label} ({count:,})" for label, count in counts.most_common()])
    what = (
        f"Column {sides.winner!r}: {codes.size:,} of {n:,} battles have a label that is neither a side, an item of the "
        f"battle nor a tie: {found}"
    )
    if on_bad == "skip" and codes.size < n:
        return (f"{what}. They were skipped.",)
    raise InputError(
        f"{what}. Expected {sides.a!r} or {sides.b!r}, 'tie', 'both bad', the name of the item that won, or 1, 0 and "
        "0.5: leave the other battles out",
        *([] if codes.size == n else [Remedy("on_bad", "skip", "to do so")]),
    )


def read_numbers(column: Column, what: str) -> np.ndarray:
    """The numbers of a column that must have one in every row."""
    if column.form not in (NUMBER, BOOLEAN):
        raise ValueError(f"Column {column.name!r} must hold numbers to be a {what}: found {column.form}s.")
    bad = np.flatnonzero(~np.isfinite(column.array))
    if bad.size:
        raise RowError(
            f"Column {column.name!r}: {bad.size:,} values are missing or infinite ({{row}} first), and a {what} is "
            "needed for every battle.",
            int(bad[0]),
        )
    return column.array


def read_days(column: Column) -> np.ndarray:
    """Days since 1970 of a column of dates; numbers that are not dates as 20240131 are taken as days."""
    days = column.array
    if column.form == TIME:
        days = column.array / DAY
    elif column.form == TEXT and column.texts is not None:
        codes, labels = column.texts.factorised
        times = parse_times(labels, day_comes_first(labels)[0])
        days = np.append(times, np.nan)[codes] / DAY
    elif days.size and ((days >= 18000101) & (days <= 21001231) & (days % 1 == 0)).all():
        days = times_of_digits(days) / DAY
    bad = np.flatnonzero(~np.isfinite(days))
    if bad.size:
        raise ValueError(
            f"Column {column.name!r}: {bad.size:,} of {days.shape[0]:,} dates are missing or cannot be read (row "
            f"{bad[0] + 1:,} first). Dates such as "
            "2024-01-31 or 20240131, times or numbers of days are understood: leave these battles out, or fill "
            "them in."
        )
    return days


def _read_weights(columns: dict[str, Column], name: str) -> np.ndarray:
    values = read_numbers(columns[_known(columns, name, "weight")], "weight")
    if not (values >= 0).all():
        raise ValueError(
            f"Column {name!r} holds weights, which must not be negative: found {values.min():g}."
        )
    return values


def _read_covariate(columns: dict[str, Column], name: str, sides: _Sides, n: int) -> np.ndarray:
    """What side a has more of than side b."""
    if name == POSITION and name not in columns:
        if sides.winner_first:
            raise InputError(
                "The position of winners and losers is not known, only who won: to control for it, give the battles as "
                "two sides with a column that says who won",
                Remedy("a"),
                Remedy("b"),
                Remedy("winner", purpose="to name them"),
                together=True,
            )
        return np.ones(n)
    return _read_difference(columns, name, sides, "covariates")


def _read_first_side(columns: dict[str, Column], first_side: bool | str, sides: _Sides, n: int) -> np.ndarray:
    """1 where the side named first has its advantage, 0 where it has none."""
    if sides.winner_first:
        raise InputError(
            "{argument} needs to know which side was named first, and columns of winners and losers (loser) do not "
            "say: give the battles as two sides with a column that says who won",
            argument="first_side",
        )
    if first_side is True:
        return np.ones(n)
    values = read_numbers(columns[_known(columns, str(first_side), "first_side")], "first_side")
    if not np.isin(values, (0.0, 1.0)).all():
        raise InputError(
            f"{{argument}}: the column {first_side!r} must say where the first side has its advantage, with 1 (true) "
            f"and 0 (false): found {shortened([f'{value:g}' for value in np.unique(values)])}",
            argument="first_side",
        )
    return values


def _read_tie_columns(columns: dict[str, Column], names: Sequence[str], n: int) -> np.ndarray:
    """A constant, and columns of what makes ties likely."""
    read = [read_numbers(columns[_known(columns, name, "tie_covariates")], "tie_covariate") for name in names]
    return np.stack([np.ones(n), *read], axis=1)


def _read_difference(columns: dict[str, Column], name: str, sides: _Sides, argument: str) -> np.ndarray:
    """Of two columns, one for each side, or a column that holds it."""
    what, pair = argument.removesuffix("s"), _pair_of(columns, name, sides)
    if pair is None and name not in columns:
        raise InputError(
            f"{{argument}} asks for {name!r}, and neither {name}_a and {name}_b nor {name} (the difference, a minus b) "
            f"is a column: found {shortened(list(columns))}",
            argument=argument,
        )
    parts = [read_numbers(columns[one], what) for one in pair or (name,)]
    with np.errstate(over="ignore"):
        difference = parts[0] - parts[1] if pair else parts[0]
    largest = float(np.abs(difference).max(initial=0.0))
    if largest > 0 and not 1.0 / _MOST_MEASURED <= largest <= _MOST_MEASURED:
        raise InputError(
            f"{{argument}} {name!r} has differences of up to {largest:g}, beyond the range that is computed with: "
            f"expected at most a number between {1 / _MOST_MEASURED:g} and {_MOST_MEASURED:g}. Give it in another unit",
            argument=argument,
        )
    return difference


def _pair_of(columns: dict[str, Column], name: str, sides: _Sides) -> tuple[str, str] | None:
    """Two columns, one for each side."""
    written = [
        (name + "_a", name + "_b"),
        (f"{name}_{sides.a}", f"{name}_{sides.b}"),
        (f"{sides.a}_{name}", f"{sides.b}_{name}"),
    ]
    return next((pair for pair in written if {*pair} <= {*columns}), None)


def read_meetings(
    table: Any,
    items: list[Hashable],
    *,
    a: str | None,
    b: str | None,
    winner: str | None,
    loser: str | None,
    covariates: Sequence[str] = (),
    first_side: bool | str = False,
    tie_covariates: Sequence[str] = (),
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Numbers of the sides of battles whose winner need not be known, -1 for other items, and their covariates.

    The last are those of ties (`Battles.tie_columns`).
    """
    refuse_repeated_columns(table)
    columns = {column.name: column for column in read_table(table, "The table of battles").columns}
    if loser is not None and loser not in columns:
        winner = loser = None
    sides = _find_sides(columns, a, b, winner, loser, needs_winner=False)
    place = {item: k for k, item in enumerate(items)}
    texts = any(isinstance(item, str) for item in items)
    pairs = []
    for name in (sides.a, sides.b):
        codes, labels = factorised(columns[name])
        _refuse_missing(codes < 0, name, "an item")
        if not texts and any(isinstance(label, str) for label in labels):
            raise ValueError(
                "The items of these battles are texts and those that were rated numbers, so that none of them would be "
                "the same: write them alike."
            )
        numbers = [place.get(str(label) if texts else label, -1) for label in labels]
        pairs.append(np.array(numbers, dtype=np.int64)[codes])
    n = pairs[0].shape[0]
    if n and max(one.max() for one in pairs) < 0:
        warnings.warn(
            "None of the items of these battles was rated: all of them count as average ones. The ratings are of items "
            f"such as {items[0]!r}.",
            UserWarning,
            stacklevel=3,
        )
    Z = [
        _read_first_side(columns, first_side, sides, n)
        if name == FIRST_SIDE and first_side is not False
        else _read_covariate(columns, name, sides, n)
        for name in covariates
    ]
    U = _read_tie_columns(columns, tie_covariates, n)
    return np.stack(pairs, axis=1), np.stack(Z, axis=1) if Z else np.empty((n, 0)), U


def read_ranked(
    table: Any, ranking: str, *, judge: str | None = None, time: str | None = None, weight: str | None = None
) -> Battles:
    """Read rankings as the battles that they imply."""
    items, pairs, rankings = read_rankings(table, ranking)
    asked = {"judge": judge, "time": time, "weight": weight}
    given = {argument: name for argument, name in asked.items() if name is not None}
    of_row: Any = {"n": np.zeros(rankings.n_rankings)}
    if given:
        of_row = _other_columns(table, given)
    columns = {column.name: column for column in read_table(of_row, "The table of rankings").columns}
    judges = _read_labels(columns, judge, "judge")
    days = None if time is None else read_days(columns[_known(columns, time, "time")])
    w = np.ones(rankings.n_rankings) if weight is None else _read_weights(columns, weight)
    each = rankings.of_pair
    return Battles(
        items,
        pairs,
        np.ones(len(pairs)),
        w[each],
        None if judges is None else (judges[0][each], judges[1]),
        time=None if days is None else days[each],
        covariates=np.empty((len(pairs), 0)),
        ordered=False,
        outcomes={"rankings": _number_of(np.ones(rankings.n_rankings, dtype=bool), w)},
        rankings=rankings,
    )


def _other_columns(table: Any, asked: dict[str, str]) -> Any:
    """Some columns of a table: that of the rankings may hold lists, which are not a column of a table."""
    import narwhals as nw

    frame: Any = table if isinstance(table, Mapping) else nw.from_native(table, eager_only=True)
    known = list(frame) if isinstance(table, Mapping) else frame.columns
    for argument, name in asked.items():
        if name not in known:
            raise InputError(
                f"{{argument}} asks for the column {name!r}, found {shortened(known)}", argument=argument
            )
    names = list(asked.values())
    return {name: table[name] for name in names} if frame is table else frame.select(names).to_native()
