"""A relation between objects of two tables: each side's columns are turned into numbers before the model."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler

from ..tables.encoding.table import TableEncoder, table_encoder


class TableRelation(BaseEstimator):
    """A fitted relation model with a fitted preparation of each side, as `preflearn relate` saves it.

    Parameters
    ----------
    model : fitted relation model
        Of numbers.
    row_steps, column_steps : fitted Pipeline
        From a table of objects to numbers.

    Examples
    --------
    >>> from preflearn.relations import KroneckerRLS
    >>> drugs, targets = {"kind": ["a", "b", "a"], "size": [1.0, 2.0, 4.0]}, {"length": [3.0, 5.0]}
    >>> row_steps, column_steps = prepared(drugs), prepared(targets)
    >>> numbers = row_steps.transform(drugs), column_steps.transform(targets)
    >>> model = KroneckerRLS().fit(*numbers, [[1, 0], [0, 1], [1, 0]])
    >>> TableRelation(model, row_steps, column_steps).predict(drugs, targets).shape
    (3, 2)
    """

    def __init__(self, model: Any, row_steps: Any, column_steps: Any) -> None:
        self.model = model
        self.row_steps = row_steps
        self.column_steps = column_steps

    def predict(self, rows: Any, columns: Any) -> np.ndarray:
        """Labels of all pairs of two tables of objects.

        Parameters
        ----------
        rows, columns : data frames, or mappings from names to columns

        Returns
        -------
        ndarray of shape (p, q)
        """
        return self.model.predict(self.row_steps.transform(rows), self.column_steps.transform(columns))

    def predict_pairs_of(self, rows: Any, columns: Any, row_index: Any, column_index: Any) -> np.ndarray:
        """Labels of a list of pairs.

        Parameters
        ----------
        rows, columns : as in predict
        row_index, column_index : int array-like of shape (h,)
            The pairs, as positions in the tables.

        Returns
        -------
        ndarray of shape (h,)
        """
        objects = self.row_steps.transform(rows), self.column_steps.transform(columns)
        return self.model.predict_pairs_of(*objects, row_index, column_index)

    def __sklearn_is_fitted__(self) -> bool:
        return True

    def _fitted_arrays(self) -> dict[str, str]:
        """What a loaded model is checked for (`preflearn.tables.models.fitted`); the parts check their own arrays."""
        for steps in (self.row_steps, self.column_steps):
            if getattr(table_encoder(steps), "sparse_output", True):
                raise ValueError("a table is to be turned into dense numbers")
        return {"model": "a RelationModel", "row_steps": "a Pipeline", "column_steps": "a Pipeline"}


def prepared(table: Any) -> Pipeline:
    """A preparation that turns a table of objects into standardised numbers, fitted to it."""
    return Pipeline([("table", TableEncoder(sparse_output=False)), ("scale", StandardScaler())]).fit(table)
