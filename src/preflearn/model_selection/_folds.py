"""What ``cv`` may be: from ``cv``, ``qid`` and ``groups`` to sets of rows, those predicted and those that leave.

| cv | meaning |
|---|---|
| int | folds of whole queries with qid, of whole groups with groups, of rows without |
| "leave-one-out", "leave-query-out", "leave-group-out" | each row, query or group by itself |
| "leave-pair-out" | each pair of rows with different y; where a score of pairs is wanted |
| splitter | any object with ``split``, of scikit-learn or of this library |
| arrays | test index arrays (or masks), or (train, test) pairs of them; train must be all rows that do not leave |
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Any

import numpy as np
from scipy import sparse as sp
from scipy.sparse.csgraph import connected_components
from sklearn.model_selection import KFold
from sklearn.utils.metadata_routing import get_routing_for_object

from ..comparisons import Groups, encode_queries
from ..errors import InputError, Remedy
from ._splitters import QueryKFold, QuerySplitter

NAMED = ("leave-one-out", "leave-query-out", "leave-group-out")
PAIRS = "leave-pair-out"
_EXPECTED = (
    f"cv must be one of {', '.join(map(repr, NAMED))}, an int, a splitter, an iterable of test index arrays, or one of "
    "(train, test) pairs that are complements: found {!r}."
)


@dataclass(frozen=True)
class Folds:
    """Sets of rows to predict and to leave out.

    Attributes
    ----------
    tests : list of int arrays
        The rows that each fold predicts.
    leaving : list of int arrays
        The rows that leave the training: the test rows, and with groups every row that shares a group with one of them.
    """

    tests: list[np.ndarray]
    leaving: list[np.ndarray]

    def collect(self, predictions: list[np.ndarray], n_rows: int) -> np.ndarray:
        """One prediction per row, shape (n_alphas, m, v): the mean where a row is in several folds, NaN in none.

        Parameters
        ----------
        predictions : list of ndarray of shape (n_alphas, n_test, v)
        """
        n_alphas, _, n_outputs = predictions[0].shape
        rows = np.concatenate(self.tests)
        count = np.bincount(rows, minlength=n_rows)
        if rows.shape[0] == n_rows and count.min() == 1:
            out = np.empty((n_alphas, n_rows, n_outputs), predictions[0].dtype)
            out[:, rows] = np.concatenate(predictions, axis=1)
            return out
        values = np.concatenate(predictions, axis=1)
        total = np.zeros((n_alphas, n_rows, n_outputs))
        np.add.at(total.transpose(1, 0, 2), rows, values.transpose(1, 0, 2))
        total[:, count > 1] /= count[count > 1, None]
        total[:, count == 0] = np.nan
        return total

    def of_tests(self, predictions: list[np.ndarray], n_rows: int) -> list[np.ndarray]:
        """The predictions of the test rows, (n_alphas, n_test, v), out of those of all rows that leave."""
        kept = []
        place = np.empty(n_rows, dtype=np.int64)
        for test, left, values in zip(self.tests, self.leaving, predictions, strict=True):
            if left is not test:
                place[left] = np.arange(left.shape[0])
                values = values[:, place[test]]
            kept.append(values)
        return kept


def is_pairs(cv: Any) -> bool:
    """Whether cv asks for leave-pair-out."""
    return isinstance(cv, str) and cv == PAIRS


def read_folds(cv: Any, X: Any, y: Any, n_rows: int, *, qid: Any = None, groups: Any = None) -> Folds:
    """Read ``cv``.

    Parameters
    ----------
    cv : str, int, splitter, or iterable of test index arrays or of (train, test) pairs
        As in the table of this module, except ``"leave-pair-out"``, which is not a set of folds.
    X, y : what a splitter is shown
    n_rows : int
        m.
    qid, groups : array-like of shape (m,), optional
        With groups, all rows that share a group with a test row leave the training too.

    Raises
    ------
    ValueError
        If cv is none of these, needs labels that were not given, or trains on fewer rows than those that stay.
    """
    owners = None if groups is None else encode_groups(groups, n_rows)
    tests, trains = _split_sets(cv, X, y, n_rows, qid, owners)
    tests = check_folds(tests, n_rows)
    if not tests:
        raise ValueError("cv gave no folds: pass at least one set of test rows.")
    leaving = tests
    if owners is not None:
        leaving = [np.flatnonzero(np.isin(owners.codes, owners.codes[test])) for test in tests]
    for number, rows in enumerate(leaving):
        if rows.shape[0] == n_rows:
            raise ValueError(
                f"Fold {number} shares a group with every row: nothing is left to train on. Use "
                "smaller folds or check groups."
            )
    for number, (train, left) in enumerate(zip(trains, leaving, strict=False)):
        _refuse_other_training_rows(number, train, left, n_rows)
    return Folds(tests, leaving)


def read_preference_folds(cv: Any, n_pairs: int, *, groups: Any = None) -> Folds:
    """Sets of preferences to hold out together.

    Parameters
    ----------
    cv : as in read_folds, with preferences in place of rows, or None
        None and ``"leave-preference-out"`` hold out each preference separately, or with groups each group.
    n_pairs : int
    groups : array-like of shape (l,), optional
        Label of each preference (a judge, a session): all preferences of a group are held out together.
    """
    if n_pairs < 2:
        raise ValueError(
            "Holding out preferences needs at least two preferences: nothing would be left to train on."
        )
    if groups is not None and encode_groups(groups, n_pairs).n_groups < 2:
        raise ValueError("All preferences are in one group: nothing would be left to train on.")
    if cv is None or (isinstance(cv, str) and cv == "leave-preference-out"):
        cv = "leave-one-out" if groups is None else "leave-group-out"
    if isinstance(cv, str) and cv in ("leave-query-out", PAIRS):
        raise ValueError(
            f"cv={cv!r} holds out rows, and preferences are held out here: use 'leave-preference-out', "
            "'leave-group-out' with groups, or a number of folds."
        )
    return read_folds(cv, None, None, n_pairs, groups=groups)


def default_cv(n_rows: int, *, qid: Any, groups: Any, regression: bool = False) -> Any:
    """The folds of ``cv=None``: whole queries, else ten folds, of whole groups where there are groups.

    For a regression, which compares no rows, single groups or rows.
    """
    if regression:
        return "leave-one-out" if groups is None else "leave-group-out"
    if qid is not None and encode_queries(qid, n_rows).n_groups > 1:
        return "leave-query-out"
    if groups is None:
        return shuffled_folds(n_rows)
    owners = encode_groups(
        groups, n_rows
    )  # rows of one group often have one label: several are held out together
    n_folds = max(2, min(10, owners.n_groups // 2))
    folds = QueryKFold(n_folds, shuffle=True, random_state=0)
    return [test for _, test in folds.split(np.empty((n_rows, 0)), qid=owners.codes)]


def shuffled_folds(n_rows: int, n_folds: int = 10, seed: int = 0) -> list[np.ndarray]:
    """Folds in the random order of a seed, each of at least two rows so that something can be compared."""
    if n_rows < 2:
        raise ValueError(
            f"Cross-validation of a ranking needs four rows, two in each of two folds: found n_samples={n_rows}."
        )
    n_folds = max(2, min(n_folds, n_rows // 2))
    return [test for _, test in KFold(n_folds, shuffle=True, random_state=seed).split(np.empty((n_rows, 0)))]


def few_folds(n_rows: int, queries: Groups, groups: Any, n_folds: int = 5) -> Any:
    """Few folds of whole queries or groups, else of rows, for what is trained again in each."""
    if queries.n_groups > 1:  # the groups of their rows leave with them
        return min(n_folds, queries.n_groups)
    if groups is not None:
        return min(n_folds, encode_groups(groups, n_rows).n_groups)
    return shuffled_folds(n_rows, n_folds)


def encode_groups(groups: Any, n_rows: int) -> Groups:
    """Like `preflearn.comparisons.encode_queries`, with messages about groups."""
    try:
        return encode_queries(groups, n_rows)
    except ValueError as error:
        raise ValueError(str(error).replace("qid", "groups").replace("query label", "group label")) from None


def units_of(qid: Any, groups: Any, n_rows: int) -> Groups:
    """Rows that are held out together: those that share a group or a query, directly or through other rows.

    Parameters
    ----------
    qid : array-like of shape (m,), Groups or None
    groups : array-like of shape (m,) or Groups
    n_rows : int

    Raises
    ------
    ValueError
        If these are all rows.

    Notes
    -----
    Connected components of the graph whose nodes are queries and groups, and whose edges are rows. O(m).

    Examples
    --------
    >>> units_of([1, 1, 2, 3, 3], ["a", "a", "a", "b", "c"], 5).codes
    array([0, 0, 0, 1, 1])
    """
    owners = encode_groups(groups, n_rows)
    if owners.n_groups < 2:
        raise ValueError("All rows are in one group: nothing would be left to train on. Check groups.")
    if qid is None or (queries := encode_queries(qid, n_rows)).n_groups == 1:
        return owners
    edges = (np.ones(n_rows), (queries.codes, queries.n_groups + owners.codes))
    graph = sp.coo_array(edges, shape=2 * (queries.n_groups + owners.n_groups,))
    component = connected_components(graph, directed=False)[1]
    units = encode_queries(component[queries.codes], n_rows)
    if units.n_groups < 2:
        raise ValueError(
            "Every query shares a group with the others, directly or through other queries: no fold of whole queries "
            "and whole groups would leave anything to train on. Leave out qid or groups, or use groups inside queries."
        )
    return units


def read_partition(
    cv: Any, X: Any, y: Any, n_rows: int, *, qid: Any = None, groups: Any = None
) -> list[np.ndarray]:
    """Sets of rows that together hold every row once, and no part of a group.

    Where rows leave a model by algebra, or labels are found for those that left, test rows are all that leaves.

    Parameters
    ----------
    cv : as in read_folds
        ``"leave-query-out"`` and ``"leave-group-out"`` with groups are the units of both.
    X, y, n_rows, qid, groups : as in read_folds
    """
    if groups is not None:
        units = units_of(qid, groups, n_rows)
        if isinstance(cv, str) and cv in ("leave-query-out", "leave-group-out"):
            cv = "leave-group-out"
        folds = read_folds(cv, X, y, n_rows, qid=units.codes, groups=units.codes)
        if any(left.shape[0] > test.shape[0] for test, left in zip(folds.tests, folds.leaving, strict=True)):
            raise ValueError(
                f"cv={cv!r} holds out a part of a group, or of a query that shares a group with others: use "
                "'leave-group-out' or a number of folds."
            )
    else:
        folds = read_folds(cv, X, y, n_rows, qid=qid)
    times = np.bincount(np.concatenate(folds.tests), minlength=n_rows)
    if times.shape[0] > n_rows or (times != 1).any():
        raise ValueError("The folds of cv must cover all rows: every row exactly once.")
    return folds.tests


def part_of(groups: Groups | None, rows: np.ndarray) -> Groups | None:
    """The groups of some rows."""
    return None if groups is None else encode_queries(groups.codes[rows], rows.shape[0])


def _split_sets(
    cv: Any, X: Any, y: Any, n_rows: int, qid: Any, owners: Groups | None
) -> tuple[list[np.ndarray], list[Any]]:
    """Test sets, and the training sets where cv names them (otherwise an empty list)."""
    if isinstance(cv, str):
        return _named(cv, n_rows, qid, owners), []
    if isinstance(cv, Integral) and not isinstance(cv, bool):
        blank = np.empty((n_rows, 0))
        if qid is not None or owners is not None:
            labels = qid if qid is not None else owners.codes  # type: ignore[union-attr]
            return [test for _, test in QueryKFold(int(cv)).split(blank, qid=labels)], []
        return [test for _, test in KFold(int(cv)).split(blank)], []
    if hasattr(cv, "split") and not isinstance(cv, type):
        return _of_splitter(cv, X, y, n_rows, qid, owners)
    if isinstance(cv, Iterable):
        return _of_iterable(list(cv))
    raise ValueError(_EXPECTED.format(cv))


def _named(cv: str, n_rows: int, qid: Any, owners: Groups | None) -> list[np.ndarray]:
    if cv == "leave-one-out":
        return list(np.arange(n_rows)[:, None])
    if cv == "leave-query-out":
        if qid is None:
            raise ValueError(
                "cv='leave-query-out' holds out one query after the other and needs their labels: pass qid=..., or "
                "cv='leave-one-out' or an int for a global ranking."
            )
        queries = encode_queries(qid, n_rows)
        if queries.n_groups < 2:
            raise ValueError(
                "cv='leave-query-out' needs at least two queries: found one. Use an int or 'leave-pair-out' for a "
                "global ranking."
            )
        return [queries.rows(query) for query in range(queries.n_groups)]
    if cv == "leave-group-out":
        if owners is None:
            raise ValueError("cv='leave-group-out' needs the label of each row's group: pass groups=...")
        return [owners.rows(group) for group in range(owners.n_groups)]
    if cv == PAIRS:
        raise ValueError(
            "cv='leave-pair-out' predicts every row once for each pair, which is not a set of folds: it is for "
            "choosing by a score of pairs (RankRLSCV, HeldOut.score). For the predictions use leave_pair_out or "
            "HeldOut.pairs."
        )
    raise ValueError(_EXPECTED.format(cv))


def _of_splitter(
    cv: Any, X: Any, y: Any, n_rows: int, qid: Any, owners: Groups | None
) -> tuple[list[np.ndarray], list[Any]]:
    rows = X if hasattr(X, "shape") else np.empty((n_rows, 0))
    if isinstance(cv, QuerySplitter):
        return [test for _, test in cv.split(rows, y, qid=owners if qid is None else qid)], []
    if owners is None and qid is None:
        if get_routing_for_object(cv).consumes("split", ["groups"]):
            raise InputError(
                f"{type(cv).__name__} makes folds of whole groups and needs the group of each row",
                Remedy("groups", purpose="with the labels of the rows"),
            )
        labels = None
    else:
        labels = _sorted_codes(encode_queries(qid, n_rows) if owners is None else owners)
    with warnings.catch_warnings():  # rows of the groups leave with a fold of any splitter
        warnings.filterwarnings("ignore", "The groups parameter is ignored by")
        sets = list(cv.split(rows, y, labels))
    # Training sets of a splitter that ignores groups are smaller by the rows that leave with a test set.
    return [test for _, test in sets], [train for train, _ in sets] if owners is None else []


def _sorted_codes(groups: Groups) -> np.ndarray:
    """Codes in the order of the labels where they have one: a splitter makes the same folds as from the labels."""
    try:
        return np.unique(np.asarray(groups.labels), return_inverse=True)[1][groups.codes]
    except TypeError:
        return groups.codes


def _of_iterable(folds: list[Any]) -> tuple[list[np.ndarray], list[Any]]:
    """Test index arrays, or (train, test) pairs as scikit-learn gives them."""
    pairs = [_is_train_and_test(fold) for fold in folds]
    if any(pairs) and not all(pairs):
        raise ValueError(
            "cv mixes (train, test) pairs with test index arrays: pass all folds in one of the two forms."
        )
    if folds and all(pairs):
        return [np.asarray(test) for _, test in folds], [np.asarray(train) for train, _ in folds]
    return [np.asarray(fold) for fold in folds], []


def _is_train_and_test(fold: Any) -> bool:
    return isinstance(fold, (tuple, list)) and len(fold) == 2 and all(np.ndim(part) == 1 for part in fold)


def _refuse_other_training_rows(number: int, train: Any, left: np.ndarray, n_rows: int) -> None:
    """Check that a fold is trained on all rows that do not leave; a smaller training set would be another estimate."""
    train = np.asarray(train)
    train = np.flatnonzero(train) if train.dtype == bool and train.shape == (n_rows,) else train
    stays = np.ones(n_rows, dtype=bool)
    stays[left] = False
    inside = train.dtype.kind in "iu" and train.size and train.min() >= 0 and train.max() < n_rows
    if inside and np.array_equal(np.unique(train), np.flatnonzero(stays)):
        return
    raise ValueError(
        f"Fold {number} of cv trains on {train.size} rows, and {int(stays.sum())} of the {n_rows} rows do not leave "
        "with its test set: training always uses all of those. Pass test index arrays, or a splitter whose training "
        "sets are the complements of its test sets."
    )


def check_folds(folds: Sequence[np.ndarray], n_rows: int) -> list[np.ndarray]:
    """Folds as int arrays; refuse empty ones, repeated or unknown rows, and folds that leave nothing to train on."""
    return [_as_rows(fold, number, n_rows) for number, fold in enumerate(folds)]


def _as_rows(fold: Any, number: int, n_rows: int) -> np.ndarray:
    rows = np.asarray(fold)
    if rows.dtype == bool and rows.shape == (n_rows,):
        rows = np.flatnonzero(rows)
    if rows.ndim != 1 or rows.size == 0 or rows.dtype.kind not in "iu":
        raise ValueError(
            f"Fold {number} must be a non-empty one-dimensional array of row numbers: found shape {rows.shape}, "
            f"type {rows.dtype}."
        )
    least, most = rows.min(), rows.max()
    if least < 0 or most >= n_rows:
        raise ValueError(
            f"Fold {number} names row {least if least < 0 else most}: expected rows 0 to {n_rows - 1}."
        )
    if rows.size > 1 and np.unique(rows).size != rows.size:
        raise ValueError(f"Fold {number} names a row twice.")
    if rows.shape[0] == n_rows:
        raise ValueError(
            f"Fold {number} holds out every row (n_samples = {n_rows}): nothing is left to train on."
        )
    return rows.astype(np.int64, copy=False)


# ----------------------------------------------------------------
# An order of the rows that depends on their contents, not on their positions or the names of their queries.
#
# Folds, samples and basis vectors are drawn by row numbers. Drawn from rows in this order, they are the same for the
# same data in any order: the result of a search then depends only on the data and the seed.
#
# Every row gets the rank of (y, x) among all rows, compared column after column until all rows differ; a hash of the
# ranks spreads them out, so that the first row for a value of y is not special, and the sum of the hashes of its rows
# represents a query. Rows that are equal in everything may change places, which changes nothing. Ranks do not change
# when a column is scaled.


# A larger sparse matrix is not made dense: its order is not that of the same rows as an array.
_DENSE_CELLS = 10_000_000


def order_by_content(X: Any, y: np.ndarray | None, queries: Groups) -> tuple[np.ndarray, Groups]:
    """Row numbers in the order of their contents, query after query, and the queries of the rows in this order.

    Parameters
    ----------
    X : ndarray or sparse matrix of shape (m, n)
        Without missing values.
    y : ndarray of shape (m, v), optional
    queries : Groups

    Notes
    -----
    O(m log m) for each column that is needed to distinguish most rows (only y, if that has no ties); after that only
    rows that are still tied are compared.

    Examples
    --------
    >>> import numpy as np
    >>> from preflearn.comparisons import encode_queries
    >>> X, y, qid = np.arange(4.0)[:, None], np.array([[1.0], [2.0], [3.0], [4.0]]), np.array([0, 0, 1, 1])
    >>> order, queries = order_by_content(X, y, encode_queries(qid, 4))
    >>> other = np.array([3, 0, 2, 1])  # the same rows in another order, queries with other names
    >>> again, _ = order_by_content(X[other], y[other], encode_queries(-qid[other], 4))
    >>> bool((other[again] == order).all())
    True
    """
    hashes = _mixed(_ranks(X, y, queries.n_rows))
    with np.errstate(over="ignore"):
        of_query = np.add.reduceat(hashes[queries.order], queries.starts[:-1])
    place = np.empty(queries.n_groups, dtype=np.int64)
    place[np.argsort(of_query, kind="stable")] = np.arange(queries.n_groups)
    order = np.lexsort((hashes, place[queries.codes]))
    return order, Groups(place[queries.codes[order]], queries.n_groups)


def _ranks(X: Any, y: np.ndarray | None, n_rows: int) -> np.ndarray:
    """How many rows come before each one in lexicographic order, shape (m,); the same for equal rows."""
    ranks, tied = np.zeros(n_rows, dtype=np.int64), np.arange(n_rows)
    for column in _columns(X, y):
        if tied.size < 2:
            break
        values = np.unique(column[tied], return_inverse=True)[1]
        n_values = int(values.max()) + 1
        keys, place, counts = np.unique(
            ranks[tied] * n_values + values, return_inverse=True, return_counts=True
        )
        before = np.cumsum(counts) - counts
        _, first, block = np.unique(keys // n_values, return_index=True, return_inverse=True)
        ranks[tied] = (keys // n_values + before - before[first][block])[place]
        tied = tied[counts[place] > 1]
    return ranks


def _columns(X: Any, y: np.ndarray | None) -> Iterator[np.ndarray]:
    if y is not None:
        yield from y.T
    if not sp.issparse(X):
        yield from X.T
    elif X.shape[0] * X.shape[1] <= _DENSE_CELLS:
        yield from X.toarray().T
    else:
        # One number for each row; different rows have different numbers, except with negligible probability.
        yield X.tocsr() @ np.random.default_rng(0).normal(size=X.shape[1])


def _mixed(ranks: np.ndarray) -> np.ndarray:
    """Whole numbers that look random, one for each rank (the mixing steps of splitmix64)."""
    with np.errstate(over="ignore"):
        z = (ranks.astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return z ^ (z >> np.uint64(31))
