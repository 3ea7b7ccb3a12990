"""From ``cv``, ``qid`` and ``groups`` to sets of rows: which are predicted, and which leave the training with them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from numbers import Integral
from typing import Any

import numpy as np
from sklearn.model_selection import KFold

from ..comparisons import Groups, encode_queries
from ..core.holdout import check_folds
from .splitters import LeaveQueryOut, QueryKFold, _QuerySplitter

NAMED = ("leave-one-out", "leave-query-out", "leave-group-out")


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
        predictions : list of ndarray of shape (n_alphas, len(leaving), v)
        """
        n_alphas, _, n_outputs = predictions[0].shape
        rows = np.concatenate(self.tests)
        values = np.concatenate(self._of_tests(predictions, n_rows), axis=1)
        count = np.bincount(rows, minlength=n_rows)
        if rows.shape[0] == n_rows and count.min() == 1:
            out = np.empty_like(values)
            out[:, rows] = values
            return out
        total = np.zeros((n_alphas, n_rows, n_outputs))
        np.add.at(total.transpose(1, 0, 2), rows, values.transpose(1, 0, 2))
        total[:, count > 1] /= count[count > 1, None]
        total[:, count == 0] = np.nan
        return total

    def _of_tests(self, predictions: list[np.ndarray], n_rows: int) -> list[np.ndarray]:
        """The predictions of the test rows, out of those of all rows that leave."""
        kept = []
        place = np.empty(n_rows, dtype=np.int64)
        for test, left, values in zip(self.tests, self.leaving, predictions, strict=True):
            if left is not test:
                place[left] = np.arange(left.shape[0])
                values = values[:, place[test]]
            kept.append(values)
        return kept


def read_folds(cv: Any, X: Any, y: Any, n_rows: int, *, qid: Any = None, groups: Any = None) -> Folds:
    """Read ``cv``.

    Parameters
    ----------
    cv : str, int, splitter, or iterable of test index arrays
        ``"leave-one-out"``, ``"leave-query-out"`` (needs qid), ``"leave-group-out"`` (needs groups); a number
        of folds, of
        whole queries when qid is given, else of whole groups when those are given.
    n_rows : int
        m.
    qid, groups : array-like of shape (m,), optional
        With groups, all rows that share a group with a test row leave the training too.
    """
    owners = None if groups is None else _encode_groups(groups, n_rows)
    tests = check_folds(_tests(cv, X, y, n_rows, qid, owners), n_rows)
    if not tests:
        raise ValueError("cv gave no fold: pass at least one set of test rows.")
    if owners is None:
        return Folds(tests, tests)
    leaving = [np.flatnonzero(np.isin(owners.codes, owners.codes[test])) for test in tests]
    for number, rows in enumerate(leaving):
        if rows.shape[0] == n_rows:
            raise ValueError(
                f"Fold {number} shares a group with every row: nothing is left to train on. Use "
                "smaller folds or check groups."
            )
    return Folds(tests, leaving)


def _encode_groups(groups: Any, n_rows: int) -> Groups:
    try:
        return encode_queries(groups, n_rows)
    except ValueError as error:
        raise ValueError(str(error).replace("qid", "groups").replace("query label", "group label")) from None


def _tests(cv: Any, X: Any, y: Any, n_rows: int, qid: Any, owners: Groups | None) -> list[np.ndarray]:
    if isinstance(cv, str):
        return _named(cv, n_rows, qid, owners)
    if isinstance(cv, Integral) and not isinstance(cv, bool):
        blank = np.empty((n_rows, 0))
        if qid is not None or owners is not None:
            labels = qid if qid is not None else owners.codes  # type: ignore[union-attr]
            return [test for _, test in QueryKFold(int(cv)).split(blank, qid=labels)]
        return [test for _, test in KFold(int(cv)).split(blank)]
    if hasattr(cv, "split"):
        return [test for _, test in _split(cv, X, y, n_rows, qid, owners)]
    if isinstance(cv, Iterable):
        return [_test_rows(fold) for fold in cv]
    raise ValueError(
        f"cv must be one of {NAMED}, an int, a splitter, or an iterable of test index arrays: found {cv!r}."
    )


def _named(cv: str, n_rows: int, qid: Any, owners: Groups | None) -> list[np.ndarray]:
    if cv == "leave-one-out":
        return list(np.arange(n_rows)[:, None])
    if cv == "leave-query-out":
        if qid is None:
            raise ValueError(
                "cv='leave-query-out' holds out one query after the other and needs their labels: pass qid=..., or "
                "cv='leave-one-out' or an int for a global ranking."
            )
        return [test for _, test in LeaveQueryOut().split(np.empty((n_rows, 0)), qid=qid)]
    if cv == "leave-group-out":
        if owners is None:
            raise ValueError("cv='leave-group-out' needs the label of each row's group: pass groups=...")
        return [owners.rows(group) for group in range(owners.n_groups)]
    raise ValueError(
        f"cv must be one of {', '.join(map(repr, NAMED))}, an int, a splitter or test indices: found {cv!r}."
    )


def _split(cv: Any, X: Any, y: Any, n_rows: int, qid: Any, owners: Groups | None):
    rows = X if hasattr(X, "shape") else np.empty((n_rows, 0))
    groups = None if owners is None else owners.codes
    if isinstance(cv, _QuerySplitter):
        return cv.split(rows, y, qid=groups if qid is None else qid)
    labels = groups if groups is not None or qid is None else encode_queries(qid, n_rows).codes
    return cv.split(rows, y, labels)


def _test_rows(fold: Any) -> np.ndarray:
    """A set of test rows; the pair (train, test) of scikit-learn is taken for its second half."""
    if isinstance(fold, tuple) and len(fold) == 2 and all(np.ndim(part) == 1 for part in fold):
        raise ValueError(
            "cv is an iterable of (train, test) pairs: pass the test index arrays alone (training uses all other rows)."
        )
    return np.asarray(fold)
