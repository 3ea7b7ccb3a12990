"""scikit-learn splitters that keep queries whole, or hold out pairs."""

from __future__ import annotations

from collections.abc import Iterator
from numbers import Integral
from typing import Any

import numpy as np
from sklearn.utils import assert_all_finite, check_random_state, column_or_1d
from sklearn.utils.metadata_routing import _MetadataRequester
from sklearn.utils.validation import _num_samples

from ..comparisons import Groups, compare_scores, encode_queries


class QuerySplitter(_MetadataRequester):
    """A splitter that receives ``qid`` by metadata routing, or as ``groups``."""

    __metadata_request__split = {"qid": True, "groups": True}

    def __repr__(self) -> str:
        given = sorted((name, value) for name, value in vars(self).items() if not name.startswith("_"))
        arguments = ", ".join(f"{name}={value!r}" for name, value in given)
        return f"{type(self).__name__}({arguments})"

    def split(
        self, X: Any, y: Any = None, groups: Any = None, qid: Any = None
    ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield (train, test) row numbers.

        Parameters
        ----------
        X : array-like of m rows
        y : ignored
        groups, qid : array-like of shape (m,)
            Query labels; one of the two.
        """
        yield from self._split(self._read_queries(X, groups, qid))

    def _split(self, queries: Groups) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        raise NotImplementedError

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
        return encode_queries(labels, _num_samples(X))  # X may be the labels themselves


class QueryKFold(QuerySplitter):
    """K folds of whole queries, of nearly equal numbers of rows.

    Parameters
    ----------
    n_splits : int, default=5
    shuffle : bool, default=False
        Assign the queries in random order; otherwise larger queries come first (ties by first appearance), which
        balances the folds best. Each query goes to the fold with the fewest rows so far.
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

    def __init__(self, n_splits: int = 5, *, shuffle: bool = False, random_state: Any = None) -> None:
        if not isinstance(n_splits, Integral) or n_splits < 2:
            raise ValueError(f"n_splits must be an int of at least 2: found {n_splits!r}.")
        if not shuffle and random_state is not None:
            raise ValueError(
                "random_state would be ignored without shuffle=True: set shuffle=True or leave random_state out."
            )
        self.n_splits: int = int(n_splits)
        self.shuffle: bool = shuffle
        self.random_state: Any = random_state

    def get_n_splits(self, X: Any = None, y: Any = None, groups: Any = None, qid: Any = None) -> int:
        """The number of folds."""
        return self.n_splits

    def _split(self, queries: Groups) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        if queries.n_groups < self.n_splits:
            raise ValueError(
                f"{self.n_splits} folds of whole queries need at least {self.n_splits} queries: "
                f"found {queries.n_groups}. Use a smaller n_splits."
            )
        fold_of_row = self._deal(queries)[queries.codes]
        for fold in range(self.n_splits):
            test = fold_of_row == fold
            yield np.flatnonzero(~test), np.flatnonzero(test)

    def _deal(self, queries: Groups) -> np.ndarray:
        """The fold of each query: each goes to the fold with the fewest rows so far."""
        if self.shuffle:
            order = check_random_state(self.random_state).permutation(queries.n_groups)
        else:
            first_row = queries.order[queries.starts[:-1]]
            order = np.lexsort((first_row, -queries.counts))
        fold = np.empty(queries.n_groups, dtype=np.int64)
        load = np.zeros(self.n_splits, dtype=np.int64)
        for query in order:
            lightest = int(np.argmin(load))
            fold[query] = lightest
            load[lightest] += queries.counts[query]
        return fold


class LeaveQueryOut(QuerySplitter):
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
        return self._read_queries(labels, groups, qid).n_groups

    def _split(self, queries: Groups) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        if queries.n_groups < 2:
            raise ValueError(
                "LeaveQueryOut needs at least two queries: found one. Use LeavePairOut for a global ranking."
            )
        for query in range(queries.n_groups):
            yield np.flatnonzero(queries.codes != query), queries.rows(query)


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
        """The number of pairs with different scores. O(m log m)."""
        scores, queries = self._read_scores(y, qid)
        return compare_scores(scores[:, None], queries, ties="exclude").n_comparisons

    def split(
        self, X: Any, y: Any = None, groups: Any = None, qid: Any = None
    ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield (train, test) row numbers; the test set is a pair i < j."""
        everything = np.arange(_num_samples(X))
        scores, queries = self._read_scores(y, qid)
        if scores.shape[0] != everything.shape[0]:
            raise ValueError(f"X has {everything.shape[0]} rows, y has {scores.shape[0]}.")
        compare_scores(scores[:, None], queries, ties="exclude")  # refuses scores without a pair
        for i in everything:
            partners = (
                i
                + 1
                + np.flatnonzero(
                    (queries.codes[i + 1 :] == queries.codes[i]) & (scores[i + 1 :] != scores[i])
                )
            )
            for j in partners:
                yield np.delete(everything, [i, j]), np.array([i, j])

    def _read_scores(self, y: Any, qid: Any) -> tuple[np.ndarray, Groups]:
        if y is None:
            raise ValueError("LeavePairOut holds out pairs with different scores and needs y.")
        scores = column_or_1d(y, dtype=np.float64, input_name="y")
        assert_all_finite(scores, input_name="y")
        return scores, encode_queries(qid, scores.shape[0])
