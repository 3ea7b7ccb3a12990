"""What the learners of relations share: reading their data, and predicting from dual coefficients."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from ..kernels.functions import n_items
from ..metrics import concordance
from .inputs import (
    ObjectKernel,
    Side,
    check_one_kind,
    check_symmetry,
    read_index,
    read_labels,
    read_pair_list,
    refuse_unlabelled,
)
from .pairwise import PairwiseKernel, refuse_equal_objects, same_objects

COMPARE = (None, "rows", "columns")
# Products of kernel values outside this range lose precision or overflow.
_RANGE = (1e-290, 1e290)


class RelationData:
    """Validated kernels and labels.

    Attributes
    ----------
    row_kernel, column_kernel : ObjectKernel
    K, G : ndarray of shape (p, p) and (q, q)
    Y : ndarray of shape (p, q) or None
        Labels as a matrix, where they came as one.
    row, column, y : ndarray of shape (e,)
        The known labels as a list.
    n_known : int
        e.
    pairwise : PairwiseKernel
    compare : {None, "rows", "columns"}
    """

    def __init__(self, model: Any, rows: Any, columns: Any, Y: np.ndarray | None, pairs: Any = None) -> None:
        self.pairwise = PairwiseKernel.read(getattr(model, "pairwise", "kronecker"))
        self.compare = model.compare
        if self.compare not in COMPARE:
            raise ValueError(f"compare must be None, 'rows' or 'columns': found {self.compare!r}.")
        if self.pairwise.one_kind:
            columns = check_one_kind(model, self.pairwise, rows, columns)
        p, q = Y.shape if Y is not None else (n_items(rows), n_items(columns))
        self.Y = Y
        if Y is not None and self.pairwise.one_kind and Y.shape[0] != Y.shape[1]:
            check_symmetry(Y, 1)
        if Y is not None and self.pairwise.sign:
            check_symmetry(Y, self.pairwise.sign)
        self.row_kernel, self.K = ObjectKernel.read(rows, model.row_kernel, model.row_params, p, q, "row")
        if self.pairwise.one_kind:
            self.column_kernel, self.G = self.row_kernel, self.K
        else:
            self.column_kernel, self.G = ObjectKernel.read(
                columns, model.column_kernel, model.column_params, q, p, "column"
            )
        self._listed: tuple[np.ndarray, np.ndarray, np.ndarray] | None = None
        if Y is not None:
            known = ~np.isnan(Y)
            of_rows, of_columns = np.count_nonzero(known, axis=1), np.count_nonzero(known, axis=0)
        else:
            self._listed = read_pair_list(*pairs, shape=(p, q))
            if self.pairwise.sign:
                self._check_listed_symmetry(p)
            of_rows, of_columns = (np.bincount(of, minlength=n) for of, n in zip(self._listed, (p, q)))
        self.n_known = int(of_rows.sum())
        if self.pairwise.one_kind:
            of_rows = of_columns = of_rows + of_columns  # in either place of the pair
        refuse_unlabelled(of_rows, "row")
        refuse_unlabelled(of_columns, "column")
        self._refuse_extremes()
        if self.pairwise.by_identity:
            refuse_equal_objects(self.K, "row")
            refuse_equal_objects(self.G, "column")

    def _list(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Rows, columns and labels of the known pairs; made on first use."""
        if self._listed is None:
            assert self.Y is not None
            row, column = np.nonzero(~np.isnan(self.Y))
            self._listed = row, column, self.Y[row, column]
        return self._listed

    @property
    def row(self) -> np.ndarray:
        return self._list()[0]

    @property
    def column(self) -> np.ndarray:
        return self._list()[1]

    @property
    def y(self) -> np.ndarray:
        return self._list()[2]

    def _check_listed_symmetry(self, p: int) -> None:
        listed = sp.csr_array((self.y, (self.row, self.column)), shape=(p, p))
        given = sp.csr_array((np.ones_like(self.y), (self.row, self.column)), shape=(p, p))
        twice = given.multiply(given.T)  # both orders are listed
        difference = np.abs((listed - self.pairwise.sign * listed.T).multiply(twice))
        if difference.nnz and difference.max() > 1e-8 * np.abs(self.y).max():
            raise ValueError(
                f"pairwise={next(iter(self.pairwise.weights))!r}: some pair is listed in both orders with labels that "
                f"are not {'equal' if self.pairwise.sign > 0 else 'opposite'}. List it once, or use "
                "pairwise='kronecker'."
            )

    @property
    def shape(self) -> tuple[int, int]:
        return self.K.shape[0], self.G.shape[0]

    @property
    def is_complete(self) -> bool:
        return self.n_known == self.K.shape[0] * self.G.shape[0]

    @property
    def has_closed_form(self) -> bool:
        if self.pairwise.sign and self.compare is not None:
            return False
        return self.is_complete and self.pairwise.has_closed_form

    def labels(self) -> np.ndarray:
        """p × q, NaN where unknown."""
        if self.Y is not None:
            return self.Y
        Y = np.full(self.shape, np.nan)
        Y[self.row, self.column] = self.y
        return Y

    def sides(self) -> tuple[Side, Side]:
        """The decompositions of the two kernels."""
        rows = Side.decompose(self.K, compared=self.compare == "rows")
        if self.column_kernel is self.row_kernel:
            return rows, rows
        return rows, Side.decompose(self.G, compared=self.compare == "columns")

    def _refuse_extremes(self) -> None:
        """Refuse kernels whose products are outside the range of float64."""
        largest = [float(np.abs(np.diagonal(K)).max(initial=0.0)) for K in (self.K, self.G)]
        product = largest[0] * largest[1] if self.pairwise.product else largest[0] + largest[1]
        if all(largest) and not _RANGE[0] < product < _RANGE[1]:
            raise ValueError(
                "Products of the two kernels are out of the range of float64: their largest values are "
                f"{largest[0]:.3g} and {largest[1]:.3g}. Scale the features; the same model is found with rows / s, "
                "columns / t and alpha / (s t)² for linear kernels."
            )

    def queries(self) -> np.ndarray:
        """A label for each entry: entries with the same one are compared. Shape (p, q)."""
        p, q = self.shape
        if self.compare is None:
            return np.zeros((p, q), dtype=np.int64)
        row, column = np.indices((p, q))
        return column if self.compare == "rows" else row


class RelationModel(BaseEstimator):
    """Base of the learners: f(u, v) from dual coefficients of the training pairs."""

    dual_coef_: Any

    def __init__(self, row_kernel, column_kernel, row_params, column_params, compare) -> None:
        self.row_kernel, self.column_kernel = row_kernel, column_kernel
        self.row_params, self.column_params, self.compare = row_params, column_params, compare

    def _read(self, rows: Any, columns: Any, Y: Any) -> RelationData:
        return RelationData(self, rows, columns, read_labels(Y))

    def _adopt(self, data: RelationData, coefficients: Any) -> None:
        self.dual_coef_ = coefficients
        self.n_pairs_ = data.n_known
        self._row_kernel, self._column_kernel = data.row_kernel, data.column_kernel
        self.__dict__.pop("_training_kernels", None)
        if data.pairwise.by_identity:
            self._training_kernels = data.K, data.G
            for kernel, K in ((self._row_kernel, data.K), (self._column_kernel, data.G)):
                if kernel.kernel.is_precomputed and kernel.objects is None:
                    kernel.objects = K.copy()

    @property
    def shape_(self) -> tuple[int, int]:
        """Numbers of training rows and columns."""
        return self.dual_coef_.shape

    def _fitted_arrays(self) -> dict[str, str]:
        """The shapes that a loaded model is checked for (`preflearn.tables.models.fitted`)."""
        if "dual_coef_" not in vars(self):
            return {}
        sides = (self._row_kernel, self._column_kernel)
        if self._pairwise.by_identity and any(side.objects is None for side in sides):
            raise ValueError("the kernel matrix of the training objects is missing")
        return {
            "dual_coef_": "p q", "_row_kernel": "a ObjectKernel", "_row_kernel.n": "= p",
            "_column_kernel": "a ObjectKernel", "_column_kernel.n": "= q",
        }  # fmt: skip

    def __getstate__(self):
        # Computed again from the objects: neither pickled nor saved.
        state = dict(super().__getstate__())
        state.pop("_training_kernels", None)
        return state

    @property
    def _pairwise(self) -> PairwiseKernel:
        return PairwiseKernel.read(getattr(self, "pairwise", "kronecker"))

    def predict(self, rows, columns=None) -> np.ndarray:
        """f for every pair of a row object and a column object.

        Parameters
        ----------
        rows, columns : as in fit
            New objects, training objects, or both. For precomputed kernels one row per new object and one column per
            training object. `columns` may be left out where both are of one kind: then the rows are used.

        Returns
        -------
        ndarray of shape (p', q')
        """
        K, G = self._kernels(rows, columns)
        return self._predict(K, G)

    def _predict(self, K: np.ndarray, G: np.ndarray) -> np.ndarray:
        if not self._pairwise.by_identity:
            return self._pairwise.predict(self.dual_coef_, K, G)
        if not hasattr(self, "_training_kernels"):
            self._training_kernels = (
                self._row_kernel.training_matrix(),
                self._column_kernel.training_matrix(),
            )
        same = [same_objects(new, old) for new, old in zip((K, G), self._training_kernels, strict=True)]
        return self._pairwise.predict(self.dual_coef_, K, G, *same)

    def predict_pairs_of(self, rows, columns, row_index, column_index) -> np.ndarray:
        """f for a list of pairs.

        Parameters
        ----------
        rows, columns : as in predict
        row_index, column_index : int array-like of shape (h,)
            The pairs, as positions in `rows` and `columns`.

        Returns
        -------
        ndarray of shape (h,)
        """
        K, G = self._kernels(rows, columns)
        row, column = read_index(row_index, K.shape[0], "row"), read_index(column_index, G.shape[0], "column")
        if row.shape != column.shape:
            raise ValueError(f"{row.shape[0]} row numbers but {column.shape[0]} column numbers.")
        out = np.empty(row.shape[0])
        # Pairs share rows: predict blocks of them, so that no matrix of all pairs is formed.
        order = np.argsort(row, kind="stable")
        step = max(1, (1 << 22) // max(1, G.shape[0]))
        for first in range(0, K.shape[0], step):
            inside = order[np.searchsorted(row[order], first) : np.searchsorted(row[order], first + step)]
            if inside.size:
                out[inside] = self._predict(K[first : first + step], G)[row[inside] - first, column[inside]]
        return out

    def _kernels(self, rows: Any, columns: Any) -> tuple[np.ndarray, np.ndarray]:
        check_is_fitted(self, "dual_coef_")
        if columns is None and self._column_kernel is not self._row_kernel:
            raise ValueError("Rows and columns are different kinds of objects here: pass both.")
        K = self._row_kernel.between(rows)
        return K, K if columns is None else self._column_kernel.between(columns)

    def score(self, rows, columns, Y) -> float:
        """Concordance of predictions and labels: over all pairs, or inside the columns (rows) where rows (columns) are
        compared.

        Parameters
        ----------
        rows, columns : as in predict
        Y : array-like of shape (p', q')
            NaN where unknown.

        Returns
        -------
        float
        """
        Y = read_labels(Y)
        F = self.predict(rows, columns)
        if F.shape != Y.shape:
            raise ValueError(f"Y must have the shape of the prediction, {F.shape}: found {Y.shape}.")
        row, column = np.nonzero(~np.isnan(Y))
        queries = None if self.compare is None else column if self.compare == "rows" else row
        return concordance(Y[row, column], F[row, column], queries)
