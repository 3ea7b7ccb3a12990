"""How good is a model of preferences? Accuracy and calibration on held-out ones, unseen judges, length bias.

Every preference is predicted by a model that was fitted without it (and without its group). A tie counts as half for
either side, as does a prediction that favours neither.
"""

from __future__ import annotations

import inspect
from collections.abc import Hashable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.pipeline import Pipeline

from ..comparisons import Groups
from ..comparisons.inputs import read_pairs, read_per_pair
from ..kernels.functions import n_items, take_items
from ..metrics import PreferenceCalibration, calibration_of_preferences
from ..numerics.namespace import refuse_repeated_columns
from ..plots import on_axes
from ..progress import Counter
from ..shown_tables import ShownTable, align_columns, shows_itself
from ..squared.holdout.base import rows_outside
from ._folds import Folds, encode_groups, read_preference_folds, shuffled_folds
from ._held_out import HeldOut
from ._intervals import mean_interval, wilson_interval

# Maximum number of training sets where whole groups or judges are held out.
_N_FOLDS = 10
# Judges that are printed.
_SHOWN_JUDGES = 10


@shows_itself
@dataclass(frozen=True)
class ShareRight:
    """A share of preferences with its 95 % interval.

    Attributes
    ----------
    share : float
    interval : tuple of two float
    n_pairs : int
    """

    share: float
    interval: tuple[float, float]
    n_pairs: int

    def __str__(self) -> str:
        return f"{self.share:.3f} ({self.interval[0]:.3f} to {self.interval[1]:.3f})"


@shows_itself
@dataclass(frozen=True)
class LengthBias:
    """How often the longer of two was preferred.

    Attributes
    ----------
    longer : ShareRight
        Share of the preferences for the longer item, which is the accuracy of always taking the longer one.
    n_equal : int
        Pairs of equal length, which count as half and carry no information.
    median_ratio : float
        Median of longer length / shorter length over the pairs of different length.
    by_model : float or None
        Share of a model's held-out choices that fall on the longer item.
    longer_right, shorter_right : float or None
        The model's accuracy on preferences for the longer and for the shorter item. A model that has learned only
        length is right on the former and wrong on the latter.
    """

    longer: ShareRight
    n_equal: int
    median_ratio: float
    by_model: float | None = None
    longer_right: float | None = None
    shorter_right: float | None = None

    def __str__(self) -> str:
        equal = f", {self.n_equal:,} of equal length" if self.n_equal else ""
        lines = [
            f"The longer one was preferred: {self.longer} of {self.longer.n_pairs:,} preferences{equal}; it is "
            f"{self.median_ratio:.2f} times as long in the median."
        ]
        if self.by_model is not None:
            right = ", ".join(
                f"{share:.3f} of preferences for the {name}"
                for name, share in (("longer", self.longer_right), ("shorter", self.shorter_right))
                if share is not None
            )
            lines.append(
                f"The model favours the longer one in {self.by_model:.3f} of them; right on {right}."
            )
        return "\n".join(lines)


@shows_itself
@dataclass(frozen=True)
class PreferenceEvaluation:
    """What `evaluate_preferences` measured; prints itself.

    Attributes
    ----------
    accuracy : ShareRight
        Held-out preferences in the predicted order.
    calibration : PreferenceCalibration or None
        Of the held-out probabilities, where the model has any.
    probability : ndarray of shape (l,) or None
        The held-out probability of each preference.
    new_judges : ShareRight or None
        Accuracy on judges all of whose answers were held out.
    new_judges_calibration : PreferenceCalibration or None
    by_judge : dict of label to ShareRight
        The same for each judge.
    length_bias : LengthBias or None
    held_out : str
        What was held out, in words.
    """

    accuracy: ShareRight
    calibration: PreferenceCalibration | None
    probability: np.ndarray | None
    new_judges: ShareRight | None
    new_judges_calibration: PreferenceCalibration | None
    by_judge: dict[Hashable, ShareRight]
    length_bias: LengthBias | None
    held_out: str

    def __str__(self) -> str:
        lines = [self.held_out, *(line.rstrip() for line in align_columns(self._table()))]
        if self.by_judge:
            lines.append(self._judges())
        if self.length_bias is not None:
            lines.append(str(self.length_bias))
        return "\n".join(lines)

    def shown_tables(self) -> list[ShownTable]:
        judges = [self._judges()] if self.by_judge else []
        length = [] if self.length_bias is None else [str(self.length_bias)]
        return [ShownTable(self._table(), self.held_out, [*judges, *length])]

    @on_axes
    def plot(self, ax: Any) -> None:
        """Reliability diagram of the held-out probabilities."""
        if self.calibration is None:
            raise ValueError(
                "There are no held-out probabilities to draw: the model has none (BradleyTerry has)."
            )
        self.calibration.plot(ax)

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, text and lists, for JSON; without the probability of each preference."""
        found = asdict(replace(self, probability=None))
        del found["probability"]
        for name in ("calibration", "new_judges_calibration"):
            if found[name] is not None:
                found[name] = {
                    key: value.tolist() if isinstance(value, np.ndarray) else value
                    for key, value in found[name].items()
                }
        found["by_judge"] = {str(label): value for label, value in found["by_judge"].items()}
        return found

    def _table(self) -> list[tuple[str, ...]]:
        rows: list[tuple[str, ...]] = [("", "accuracy", "95 % interval", "log loss", "calibration error")]
        longer = None if self.length_bias is None else self.length_bias.longer
        measured = (
            ("held-out preferences", self.accuracy, self.calibration),
            ("judges not seen before", self.new_judges, self.new_judges_calibration),
            ("the longer one", longer, None),
        )
        for name, share, calibration in measured:
            if share is not None:
                low, high = share.interval
                sure = ("", "")
                if calibration is not None:
                    sure = (f"{calibration.log_loss:.3f}", f"{calibration.expected_calibration_error:.3f}")
                rows.append((name, f"{share.share:.3f}", f"{low:.3f} to {high:.3f}", *sure))
        return rows

    def _judges(self) -> str:
        worst = sorted(self.by_judge.items(), key=lambda item: item[1].share)[:_SHOWN_JUDGES]
        shown = ", ".join(f"{label}: {share.share:.3f} of {share.n_pairs:,}" for label, share in worst)
        which = f"The {_SHOWN_JUDGES} hardest judges" if len(self.by_judge) > len(worst) else "Judges"
        return f"{which}, each predicted from the others: {shown}."


def evaluate_preferences(
    model: Any,
    X: Any,
    pairs: Any,
    *,
    weight: Any = None,
    ties: Any = None,
    judge: Any = None,
    groups: Any = None,
    texts: Any = None,
    cv: Any = None,
    verbose: int = 0,
) -> PreferenceEvaluation:
    """Held-out accuracy, calibration, leave-judge-out and length bias of a model of preferences, in one call.

    Parameters
    ----------
    model : estimator with fit_pairs, or a pipeline that ends in one
        `BradleyTerry` and `BradleyTerryCV` have probabilities and therefore a calibration; others have only an
        accuracy. A search chooses again in each training set. The steps of a pipeline before the learner see the items
        but never the preferences, and are fitted once. Not modified.
    X : as in fit_pairs
    pairs : int array of shape (l, 2)
        Row ``pairs[k, 0]`` is preferred to row ``pairs[k, 1]``.
    weight : array-like of shape (l,), optional
        For the fits; all held-out preferences count equally.
    ties : bool array of shape (l,), optional
        Which pairs were judged equal.
    judge : sequence of l labels, optional
        Who answered: each judge is then also predicted from the others.
    groups : array-like of shape (l,), optional
        Label of each preference (a prompt, a document): all preferences of a group are held out together. Without it
        other preferences about the same items stay in the training set.
    texts : sequence of m texts or numbers, optional
        The items as texts, or their lengths: shows how far always choosing the longer item gets.
    cv : int, splitter, iterable, "leave-preference-out" or None, default=None
        Sets of preferences to hold out. None: ten sets at random, of whole groups where there are groups.
    verbose : int, default=0
        Count the training sets on standard error.

    Returns
    -------
    PreferenceEvaluation

    Notes
    -----
    One fit for each training set: ten, and ten more with judges. The intervals are Wilson's for a share of
    independent trials; with groups, Student's t over the groups.

    Examples
    --------
    >>> import numpy as np
    >>> from preflearn import BradleyTerry
    >>> from preflearn.model_selection import evaluate_preferences
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(50, 3))
    >>> pairs = np.array([rng.choice(50, 2, replace=False) for _ in range(200)])
    >>> won = X[pairs[:, 0], 0] > X[pairs[:, 1], 0]
    >>> pairs = np.where(won[:, None], pairs, pairs[:, ::-1])
    >>> found = evaluate_preferences(BradleyTerry(0.1), X, pairs, judge=np.arange(200) % 4)
    >>> found.accuracy.share > 0.9, found.calibration.n_pairs, len(found.by_judge)
    (True, 200, 4)
    """
    if isinstance(model, Pipeline):
        X = X if len(model) == 1 else clone(model[:-1]).fit_transform(X)
        model = model[-1]
    if not hasattr(model, "fit_pairs"):
        raise TypeError(
            f"Preferences are learned by an estimator with fit_pairs, such as BradleyTerry: found "
            f"{type(model).__name__}."
        )
    refuse_repeated_columns(X)
    X = X.to_numpy() if hasattr(X, "to_numpy") else X
    read = _ReadPreferences.read(model, n_items(X), pairs, weight, ties, judge)
    lengths = None if texts is None else _lengths(texts, n_items(X))
    clusters = None if groups is None else encode_groups(groups, read.n_pairs)
    if cv is None:
        cv = shuffled_folds(read.n_pairs) if clusters is None else min(_N_FOLDS, clusters.n_groups)
    folds = read_preference_folds(cv, read.n_pairs, groups=groups)
    probability = read.predict(model, X, folds, verbose)
    right = _right(probability, read.outcome)
    new = None if judge is None else read.predict_judges(model, X, verbose)
    new_right = None if new is None else _right(new, read.outcome)
    return PreferenceEvaluation(
        accuracy=_share(right, clusters),
        calibration=read.calibration(probability),
        probability=probability if read.has_probabilities else None,
        new_judges=None if new_right is None else _share(new_right, read.judges),
        new_judges_calibration=None if new is None else read.calibration(new),
        by_judge={} if new_right is None else read.by_judge(new_right),
        length_bias=None if lengths is None else _bias(lengths, read.pairs, read.outcome, probability),
        held_out=_in_words(read, folds, clusters),
    )


def length_bias(texts: Any, pairs: Any, *, ties: Any = None) -> LengthBias:
    """How far always choosing the longer item gets: the share of preferences for the longer of two items.

    Answers of language models are often preferred for their length; a model that is not clearly better than this share
    may have learned nothing else.

    Parameters
    ----------
    texts : sequence of m texts or numbers
        The items as texts, whose characters are counted, or their lengths.
    pairs : int array of shape (l, 2)
        Row ``pairs[k, 0]`` is preferred to row ``pairs[k, 1]``.
    ties : bool array of shape (l,), optional
        Which pairs were judged equal: they count as half.

    Returns
    -------
    LengthBias
        Prints itself.

    Examples
    --------
    >>> from preflearn.model_selection import length_bias
    >>> found = length_bias(["short", "a longer one", "the longest of the three"], [[1, 0], [2, 1], [0, 2]])
    >>> round(found.longer.share, 3)
    0.667
    """
    lengths = _lengths(texts, None)
    pairs = read_pairs(pairs, lengths.shape[0])
    return _bias(lengths, pairs, _outcome(ties, pairs.shape[0]), None)


@dataclass(frozen=True)
class _ReadPreferences:
    """The preferences after reading and checking."""

    pairs: np.ndarray
    outcome: np.ndarray
    arguments: dict[str, Any]
    judges: Groups | None
    has_probabilities: bool

    @property
    def n_pairs(self) -> int:
        return self.pairs.shape[0]

    @classmethod
    def read(
        cls, model: Any, n_rows: int, pairs: Any, weight: Any, ties: Any, judge: Any
    ) -> _ReadPreferences:
        pairs = read_pairs(pairs, n_rows)
        n_pairs = pairs.shape[0]
        if n_pairs < 2:
            raise ValueError(
                f"To hold one out and learn from the rest takes at least two preferences: found {n_pairs}."
            )
        weight = read_per_pair(weight, n_pairs, "weight", positive=True)
        outcome = _outcome(ties, n_pairs)
        arguments = {} if weight is None else {"weight": weight}
        taken = inspect.signature(model.fit_pairs).parameters
        if ties is not None:
            if "ties" not in taken:
                raise ValueError(
                    f"{type(model).__name__} does not take ties: leave out the pairs judged equal, or use BradleyTerry."
                )
            arguments["ties"] = np.asarray(ties)
        judges = None
        if judge is not None:
            labels = np.empty(len(judge), dtype=object)
            labels[:] = list(judge)
            if labels.shape[0] != n_pairs:
                raise ValueError(
                    f"judge must name one judge per pair: found {labels.shape[0]} for {n_pairs} pairs."
                )
            judges = encode_groups(labels, n_pairs)
            if judges.n_groups < 2:
                raise ValueError("Leave-judge-out needs at least two judges: found one. Leave judge out.")
            if "judge" in taken:
                arguments["judge"] = labels
        return cls(pairs, outcome, arguments, judges, hasattr(model, "win_probability"))

    def predict(self, model: Any, X: Any, folds: Folds, verbose: int) -> np.ndarray:
        """The probability of each preference by the model without its fold; 0, 1/2 or 1 for a model without any."""
        if not self.has_probabilities:
            held_out = HeldOut.of_pairs(
                model, X, self.pairs, weight=self.arguments.get("weight"), verbose=verbose
            )
            tests = zip(folds.tests, folds.leaving, strict=True)
            sets = [(rows_outside(self.n_pairs, left), test) for test, left in tests]
            return 0.5 + 0.5 * np.sign(held_out.preferences(sets)[0])
        counter = Counter("evaluate_preferences", len(folds.tests), "training sets", verbose)
        probability = np.full(self.n_pairs, np.nan)
        for number, (test, left) in enumerate(zip(folds.tests, folds.leaving, strict=True)):
            stay = np.ones(self.n_pairs, dtype=bool)
            stay[left] = False
            part = {name: values[stay] for name, values in self.arguments.items()}
            fitted = clone(model).fit_pairs(X, self.pairs[stay], **part)
            better, worse = self.pairs[test].T
            probability[test] = fitted.win_probability(take_items(X, better), take_items(X, worse))
            counter(number + 1)
        if np.isnan(probability).any():
            raise ValueError("cv must hold every preference out: some are in no test set.")
        return probability

    def predict_judges(self, model: Any, X: Any, verbose: int) -> np.ndarray:
        """Like `predict`, with whole judges held out."""
        assert self.judges is not None
        codes = self.judges.codes
        cv = min(_N_FOLDS, self.judges.n_groups)
        return self.predict(model, X, read_preference_folds(cv, self.n_pairs, groups=codes), verbose)

    def calibration(self, probability: np.ndarray) -> PreferenceCalibration | None:
        return calibration_of_preferences(probability, self.outcome) if self.has_probabilities else None

    def by_judge(self, right: np.ndarray) -> dict[Hashable, ShareRight]:
        assert self.judges is not None
        return {
            label: _share(right[self.judges.rows(number)])
            for number, label in enumerate(np.asarray(self.judges.labels).tolist())
        }


def _outcome(ties: Any, n_pairs: int) -> np.ndarray:
    if ties is None:
        return np.ones(n_pairs)
    ties = np.asarray(ties)
    if ties.dtype != bool or ties.shape != (n_pairs,):
        raise ValueError(
            "ties must say for each pair whether it was judged equal, as booleans: found "
            f"{ties.dtype} of shape {ties.shape} for {n_pairs} pairs."
        )
    return np.where(ties, 0.5, 1.0)


def _right(probability: np.ndarray, outcome: np.ndarray) -> np.ndarray:
    """1 where the favourite was preferred, 0 where it was not, 1/2 for a tie on either side."""
    return np.where((outcome == 0.5) | (probability == 0.5), 0.5, probability > 0.5)


def _share(right: np.ndarray, clusters: Groups | None = None) -> ShareRight:
    share, n = float(right.mean()), right.shape[0]
    if clusters is not None and clusters.n_groups > 1:
        return ShareRight(share, mean_interval(right, clusters)[1], n)
    return ShareRight(share, wilson_interval(share, share * (1.0 - share) / n, n), n)


def _lengths(texts: Any, n_rows: int | None) -> np.ndarray:
    if isinstance(texts, str):
        raise TypeError("texts must hold one text or length per item: found a single text.")
    listed = list(texts.tolist() if hasattr(texts, "tolist") else texts)
    if n_rows is not None and len(listed) != n_rows:
        raise ValueError(f"texts must hold one text per row of X: found {len(listed)} for {n_rows} rows.")
    if all(isinstance(text, str) for text in listed):
        return np.array([len(text) for text in listed], dtype=np.float64)
    if any(isinstance(text, str) for text in listed):
        raise TypeError("texts must be all texts or all numbers: found both.")
    lengths = np.asarray(listed, dtype=np.float64)
    if lengths.ndim != 1 or not (np.isfinite(lengths) & (lengths >= 0)).all():
        raise ValueError("Lengths must be one finite number of at least 0 for each item.")
    return lengths


def _bias(
    lengths: np.ndarray, pairs: np.ndarray, outcome: np.ndarray, probability: np.ndarray | None
) -> LengthBias:
    sign = np.sign(lengths[pairs[:, 0]] - lengths[pairs[:, 1]])
    # As a prediction: the longer one wins.
    by_length = 0.5 + 0.5 * sign
    longest, shortest = lengths[pairs].max(axis=1), lengths[pairs].min(axis=1)
    differs = (sign != 0) & (shortest > 0)
    found = LengthBias(
        longer=_share(_right(by_length, outcome)),
        n_equal=int((sign == 0).sum()),
        median_ratio=float(np.median(longest[differs] / shortest[differs])) if differs.any() else 1.0,
    )
    if probability is None or not (sign != 0).any():
        return found
    favours_longer = _right(np.where(sign > 0, probability, 1.0 - probability), np.ones(sign.shape[0]))
    right = _right(probability, outcome)
    decided = outcome != 0.5
    return replace(
        found,
        by_model=float(favours_longer[sign != 0].mean()),
        longer_right=_mean(right[decided & (sign > 0)]),
        shorter_right=_mean(right[decided & (sign < 0)]),
    )


def _mean(values: np.ndarray) -> float | None:
    return float(values.mean()) if values.size else None


def _in_words(read: _ReadPreferences, folds: Folds, clusters: Groups | None) -> str:
    what: Sequence[str] = (f"{read.n_pairs:,} preferences",)
    n_ties = int((read.outcome == 0.5).sum())
    if n_ties:
        what = (*what, f"{n_ties:,} of them ties")
    if clusters is not None:
        what = (*what, f"in {clusters.n_groups:,} groups that are held out whole")
    return f"{', '.join(what)}; each predicted by a model fitted without it ({len(folds.tests):,} training sets)."
