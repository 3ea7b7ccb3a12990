"""scikit-learn splitters that keep queries whole, or hold out pairs."""

from __future__ import annotations

from numbers import Integral
from typing import Any

import numpy as np
from sklearn.utils import check_random_state
from sklearn.utils.metadata_routing import _MetadataRequester
from sklearn.utils.validation import _num_samples

from ..comparisons import Groups, encode_queries


class _QuerySplitter(_MetadataRequester):
    """A splitter that receives ``qid`` by metadata routing, or as ``groups``."""

    __metadata_request__split = {"qid": True, "groups": True}

    def __repr__(self) -> str:
        arguments = ", ".join(f"{name}={value!r}" for name, value in sorted(vars(self).items()))
        return f"{type(self).__name__}({arguments})"

    def _read_queries(self, X: Any, groups: Any, qid: Any) -> Groups:
        if qid is not None and groups is not None:
            raise ValueError(
                f"{type(self).__name__} received both qid and groups: pass the query labels once, as qid."
            )
        labels = groups if qid is None else qid
        if labels is None:
            raise ValueError(
                f"{type(self).__name__} keeps queries whole and needs their labels: pass qid=... "
                "(through scikit-learn's searches: set_config(enable_metadata_routing=True) and fit(X, y, qid=qid))."
            )
        return encode_queries(labels, _num_samples(X))


class QueryKFold(_QuerySplitter):
    """K folds of whole queries, of nearly equal numbers of rows.

    Parameters
    ----------
    n_splits : int, default=5
    shuffle : bool, default=False
        Draw the order of the queries before they are dealt out; without, larger queries are dealt first (ties by first
        appearance), which evens out the folds.
    random_state : int, RandomState or None
        For the shuffle.

    Examples
    --------
    >>> import numpy as np
    >>> qid = np.array(["a", "a", "b", "b", "c", "c"])
    >>> for train, test in QueryKFold(3).split(np.zeros((6, 1)), qid=qid):
    ...     print(qid[test])
    ['a' 'a']
    ['b' 'b']
    ['c' 'c']
    """

    def __init__(self, n_splits: int = 5, *, shuffle: bool = False, random_state: Any = None):
        if not isinstance(n_splits, Integral) or n_splits < 2:
            raise ValueError(f"n_splits must be an int of at least 2: found {n_splits!r}.")
        if not shuffle and random_state is not None:
            raise ValueError(
                "random_state would be ignored without shuffle=True: set shuffle=True or leave random_state out."
            )
        self.n_splits = int(n_splits)
        self.shuffle = shuffle
        self.random_state = random_state

    def get_n_splits(self, X: Any = None, y: Any = None, groups: Any = None, qid: Any = None) -> int:
        """The number of folds."""
        return self.n_splits

    def split(self, X: Any, y: Any = None, groups: Any = None, qid: Any = None):
        """Yield (train, test) row numbers.

        Parameters
        ----------
        X : array-like of m rows
        y : ignored
        groups, qid : array-like of shape (m,)
            Query labels; one of the two.
        """
        queries = self._read_queries(X, groups, qid)
        if queries.n_groups < self.n_splits:
            raise ValueError(
                f"{self.n_splits} folds of whole queries need at least {self.n_splits} queries: found {queries.n_groups}. "
                "Use a smaller n_splits."
            )
        fold_of_row = self._deal(queries)[queries.codes]
        for fold in range(self.n_splits):
            test = fold_of_row == fold
            yield np.flatnonzero(~test), np.flatnonzero(test)

    def _deal(self, queries: Groups) -> np.ndarray:
        """The fold of each query: each goes to the fold with the fewest rows so far."""
        if self.shuffle:
            order = check_random_state(self.random_state).permutation(queries.n_groups)
            return _round_robin(order, self.n_splits)
        first_row = np.full(queries.n_groups, queries.n_rows)
        np.minimum.at(first_row, queries.codes, np.arange(queries.n_rows))
        order = np.lexsort((first_row, -queries.counts))
        fold = np.empty(queries.n_groups, dtype=np.int64)
        load = np.zeros(self.n_splits, dtype=np.int64)
        for query in order:
            lightest = int(np.argmin(load))
            fold[query] = lightest
            load[lightest] += queries.counts[query]
        return fold


class LeaveQueryOut(_QuerySplitter):
    """Each query held out once.

    Examples
    --------
    >>> import numpy as np
    >>> [test.tolist() for _, test in LeaveQueryOut().split(np.zeros((4, 1)), qid=[1, 2, 1, 2])]
    [[0, 2], [1, 3]]
    """

    def get_n_splits(self, X: Any = None, y: Any = None, groups: Any = None, qid: Any = None) -> int:
        """The number of queries."""
        labels = groups if qid is None else qid
        if labels is None:
            raise ValueError("LeaveQueryOut counts queries and needs their labels: pass qid=...")
        return encode_queries(labels, _num_samples(labels)).n_groups

    def split(self, X: Any, y: Any = None, groups: Any = None, qid: Any = None):
        """Yield (train, test) row numbers, one pair per query in order of first appearance of sorted labels."""
        queries = self._read_queries(X, groups, qid)
        if queries.n_groups < 2:
            raise ValueError(
                "LeaveQueryOut needs at least two queries: found one. Use LeavePairOut for a global ranking."
            )
        for query in range(queries.n_groups):
            test = queries.rows(query)
            yield np.setdiff1d(np.arange(queries.n_rows), test, assume_unique=True), test


class LeavePairOut(_MetadataRequester):
    """Each pair of rows with different scores held out once; inside queries when qid is given.

    There are O(m²) splits: with a learner of this library `leave_pair_out` gives the same without refitting.

    Examples
    --------
    >>> import numpy as np
    >>> [test.tolist() for _, test in LeavePairOut().split(np.zeros((3, 1)), y=[0, 1, 1])]
    [[0, 1], [0, 2]]
    """

    __metadata_request__split = {"qid": True}

    def __repr__(self) -> str:
        return "LeavePairOut()"

    def get_n_splits(self, X: Any = None, y: Any = None, groups: Any = None, qid: Any = None) -> int:
        """The number of pairs with different scores."""
        return sum(1 for _ in self._pairs(y, qid))

    def split(self, X: Any, y: Any = None, groups: Any = None, qid: Any = None):
        """Yield (train, test) row numbers; the test set is a pair i < j."""
        everything = np.arange(_num_samples(X))
        for i, j in self._pairs(y, qid):
            yield np.delete(everything, [i, j]), np.array([i, j])

    def _pairs(self, y: Any, qid: Any):
        if y is None:
            raise ValueError("LeavePairOut holds out pairs with different scores and needs y.")
        y = np.asarray(y)
        queries = encode_queries(qid, y.shape[0])
        for i in range(y.shape[0]):
            partners = np.flatnonzero((queries.codes == queries.codes[i]) & (y != y[i]))
            for j in partners[partners > i]:
                yield i, int(j)


def _round_robin(order: np.ndarray, n_folds: int) -> np.ndarray:
    fold = np.empty(order.shape[0], dtype=np.int64)
    fold[order] = np.arange(order.shape[0]) % n_folds
    return fold
