r"""Do rows with the same label resemble each other more than chance? Asked before a figure is printed that they spoil.

Rows of one patient have nearly the same features and the same outcome: a model that has seen one visit knows the
outcome of the others, and held-out figures that treat rows as independent say how well patients are recognised. Two
figures of one quick model tell, side by side: folds of rows, and folds of whole labels.

A column named like an owner of rows ("patient", "subject_id") is reported where the outcome resembles itself inside of
the labels: then intervals that count rows are wrong, whatever the two figures are. Any other column of texts is
reported only where the two figures are far apart: teams and towns have an effect on the outcome that is to be learned,
and the difference that this makes is small. One named like a query column, whose rows have different targets, is taken
for it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.stats import f as fisher

from ..comparisons import CensoredComparisons, Groups, encode_queries, one_group
from ..comparisons.censored import lived_longer
from ..learners.rls import RLS
from ..tables.encoding.frames import NUMBER, TEXT, Column, read_table
from ..tables.encoding.kinds import QUERY_WORDS, name_words
from ..tables.encoding.table import TableEncoder
from ._folds import shuffled_folds
from ._held_out import HeldOut
from ._splitters import QueryKFold
from ._tally import tally_scores

# Names of columns that may say to whom a row belongs.
_OWNERS = {
    "id", "ids", "patient", "patients", "subject", "person", "participant", "case", "animal", "child", "pupil",
    "student", "individual", "respondent", "family", "household", "litter", "user", "customer", "document",
    "doc", "sample", "patientid", "userid", "customerid", "docid", "subjectid", "name", "nr", "number",
}  # fmt: skip
_ALPHAS = 10.0 ** np.arange(-3, 4)
_LEAST_LABELS, _MOST_ROWS, _N_FOLDS = 8, 1000, 5
# Figures are far apart where they differ by more than this, and by this many standard errors over labels.
_LEAST_GAP, _ERRORS = 0.15, 3.0
# An outcome resembles itself inside of labels from this intraclass correlation on, where that of chance is rarer.
_LEAST_CORRELATION, _LEVEL = 0.1, 0.02


@dataclass(frozen=True)
class Dependence:
    """A column whose rows depend on each other; prints itself as a sentence.

    Attributes
    ----------
    column : str
    n_groups, n_rows : int
    apart : float
        Held-out concordance of a quick model with whole groups held out.
    together : float
        The same as if rows were independent.
    """

    column: str
    n_groups: int
    n_rows: int
    apart: float
    together: float

    def __str__(self) -> str:
        return (
            f"Rows with the same `{self.column}` depend on each other ({self.n_groups:,} groups, {self.n_rows:,} "
            f"rows). Held-out concordance of a quick model, whole groups held out: {_short(self.apart)}; as if rows "
            f"were independent: {_short(self.together)}."
        )


def find_dependence(columns: Any, y: Any) -> Dependence | None:
    """The column of a table that divides its rows into clusters of repeated measurements, if one does.

    Parameters
    ----------
    columns : data frame, or mapping from names to columns
        Without the target.
    y : array-like of shape (m,)
        Numbers, or censored times with the fields "time" and "event"; rows where it is not known are left out.

    Returns
    -------
    Dependence or None
        The column whose two figures differ most.

    Notes
    -----
    Columns are looked at if at least eight labels are there, and a fifth of the rows shares one; columns of numbers
    only with a name such as "id" or "patient". The outcome resembles itself inside of labels where its intraclass
    correlation is above .1 and Fisher's test of a one-way analysis of variance has p < .02. The quick model is kernel
    ridge regression on the other columns, on up to 1,000 rows of whole labels, each with its best alpha. Of censored
    times the outcome is how many rows a row is known to have outlived, minus those that outlived it (Gehan's score).
    O(1000³) for each column.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> patient = np.repeat(np.arange(40), 5)
    >>> columns = {"patient": patient, "a": rng.normal(size=40)[patient], "b": rng.normal(size=40)[patient]}
    >>> ill = rng.integers(2, size=40)[patient]  # tossed for each patient
    >>> found = find_dependence(columns, ill)
    >>> found.column, found.n_groups, found.together > 0.9, found.apart < 0.7
    ('patient', 40, True, True)
    >>> find_dependence(columns, rng.integers(2, size=200)) is None
    True
    """
    targets, events = np.asarray(y), None
    if targets.dtype.names:
        targets, events = targets["time"], targets["event"]
    targets = targets.astype(float)
    table = read_table(columns)
    candidates = {one.name: _groups_of(one) for one in table.columns if not one.problem}
    found = []
    for name, groups in candidates.items():
        if groups is not None:
            found += _compare(columns, [one.name for one in table.columns], name, groups, targets, events)
    return max(found, key=lambda one: one.together - one.apart, default=None)


def _groups_of(column: Column) -> Groups | None:
    """The rows by label; None where these cannot be clusters."""
    if column.form == TEXT:
        assert column.texts is not None
        codes = column.texts.factorised[0]
    elif column.form == NUMBER and name_words(column.name) & _OWNERS and np.isfinite(column.array).all():
        if not (np.floor(column.array) == column.array).all():
            return None
        codes = np.unique(column.array, return_inverse=True)[1]
    else:
        return None
    if codes.size == 0 or codes.min() < 0:
        return None
    groups = encode_queries(codes, codes.shape[0])
    in_company = groups.counts[groups.counts > 1].sum()
    few = groups.n_groups < _LEAST_LABELS or groups.counts.max() > groups.n_rows / 4
    return None if few or in_company < groups.n_rows / 5 else groups


def _compare(
    columns: Any, names: Sequence[str], name: str, groups: Groups, y: np.ndarray, events: np.ndarray | None
) -> list[Dependence]:
    rows = np.flatnonzero(np.isfinite(y))
    rows = rows[encode_queries(groups.codes[rows], rows.shape[0]).sample(_MOST_ROWS)]
    part, t = encode_queries(groups.codes[rows], rows.shape[0]), y[rows]
    order = t
    if events is not None:
        events = events[rows]
        order = 1.0 * lived_longer(t, events)
        t = CensoredComparisons(t[:, None], events, one_group(t.shape[0])).target[:, 0]
    if rows.shape[0] < 4 * _N_FOLDS or part.n_groups < _LEAST_LABELS or np.ptp(t) == 0:
        return []
    ordered, labels = t[part.order], part.codes[part.order]
    differing = labels[1:][(ordered[1:] != ordered[:-1]) & (labels[1:] == labels[:-1])]
    if name_words(name) & QUERY_WORDS and np.unique(differing).size > part.n_groups / 2:
        return []
    X = _features(columns, [one for one in names if one != name], rows)
    if X is None:
        return []
    held = HeldOut(RLS(kernel="rbf", gamma=1.0 / X.shape[1]), X, (t - t.mean()) / t.std())
    blank = np.empty((rows.shape[0], 0))
    whole = [
        test for _, test in QueryKFold(_N_FOLDS, shuffle=True, random_state=0).split(blank, qid=part.codes)
    ]
    together, apart = (
        _tally(held, tests, order, events) for tests in (shuffled_folds(rows.shape[0], _N_FOLDS), whole)
    )
    if together is None or apart is None:
        return []
    gap = together.share - apart.share
    influence = [(one.wins - one.share * one.pairs) / one.n_pairs for one in (together, apart)]
    by_group = np.bincount(part.codes, weights=influence[0] - influence[1])
    error = np.sqrt(part.n_groups / (part.n_groups - 1) * float(by_group @ by_group))
    owns = name_words(name) & _OWNERS and _resembles_itself(t, part)
    if not owns and not (gap > _LEAST_GAP and gap > _ERRORS * error):
        return []
    return [Dependence(name, groups.n_groups, groups.n_rows, apart.share, together.share)]


def _resembles_itself(y: np.ndarray, groups: Groups) -> bool:
    """Whether rows of a label have more similar outcomes than rows of different labels."""
    m, n_groups, counts = y.shape[0], groups.n_groups, groups.counts
    means = np.bincount(groups.codes, weights=y) / counts
    between = float(counts @ (means - y.mean()) ** 2) / (n_groups - 1)
    within = float(((y - means[groups.codes]) ** 2).sum()) / (m - n_groups)
    size = (m - float(counts @ counts) / m) / (n_groups - 1)  # of a label, on average
    correlation = (between - within) / (between + (size - 1) * within)
    pvalue = fisher.sf(between / within, n_groups - 1, m - n_groups) if within > 0 else 0.0
    return bool(correlation > _LEAST_CORRELATION and pvalue < _LEVEL)


def _features(columns: Any, names: Sequence[str], rows: np.ndarray) -> np.ndarray | None:
    """Some rows of these columns as standardised numbers."""
    if isinstance(columns, Mapping):
        taken: Any = {name: np.asarray(columns[name])[rows] for name in names}
    else:
        import narwhals as nw

        taken = nw.from_native(columns, eager_only=True)[rows].select(names).to_native()
    try:
        X = TableEncoder(sparse_output=False).fit_transform(taken)
    except ValueError:  # nothing is left
        return None
    X = X[:, X.std(axis=0) > 0]
    return (X - X.mean(axis=0)) / X.std(axis=0) if X.shape[1] else None


def _tally(held: HeldOut, tests: list[np.ndarray], y: np.ndarray, events: np.ndarray | None) -> Any:
    """Pairs in the right order within folds, at the best alpha; None where no pair is compared."""
    codes = np.empty(y.shape[0], dtype=np.int64)
    for fold, test in enumerate(tests):
        codes[test] = fold
    folds = Groups(codes, len(tests))
    found = [tally_scores(y, scores, folds, events=events) for scores in held.predict(tests, _ALPHAS)]
    return max(found, key=lambda one: one.share) if found[0].n_pairs else None


def _short(share: float) -> str:
    return f"{share:.2f}".removeprefix("0")
