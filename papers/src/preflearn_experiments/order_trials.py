"""What the three experiments on order preferences share: the tables of numbers, the parts of a trial, the comparison.

X. Zhu and A. B. Goldberg, Kernel Regression with Order Preferences, AAAI 2007. In a trial, l labelled rows and u
unlabelled ones are drawn, all other rows test; regression with preferences among the unlabelled rows is compared with
the same regression without.
"""

from __future__ import annotations

import lzma
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.io.arff import loadarff
from scipy.stats import ttest_rel

from preflearn import OrderPreferenceRegressor, OrderPreferenceRegressorCV

from .data import find_file, find_folder
from .tables import spread

FOLDER = "regression_benchmarks"


class Regression(NamedTuple):
    """Numbers of a data set: features, their names, targets."""

    X: np.ndarray
    names: list[str]
    y: np.ndarray

    def standardised(self) -> np.ndarray:
        """Features of mean 0 and variance 1."""
        return (self.X - self.X.mean(axis=0)) / self.X.std(axis=0)


class Trial(NamedTuple):
    """Rows of one trial; of the training rows the first ``n_labelled`` have targets."""

    rows: np.ndarray
    test: np.ndarray
    n_labelled: int

    def known(self, y: np.ndarray) -> np.ndarray:
        """Targets of the training rows, NaN where not given."""
        return np.where(np.arange(self.rows.shape[0]) < self.n_labelled, y[self.rows], np.nan)

    def unlabelled(self) -> np.ndarray:
        """Positions of the unlabelled rows among the training rows."""
        return np.arange(self.n_labelled, self.rows.shape[0])


def read_regression(data: str | Path | None, file: str, experiment: str) -> Regression:
    """A table in ARFF or with tab-separated columns, compressed with xz, the target last.

    A column of categories becomes one column of 0 and 1 for each of them.
    """
    path = find_file(find_folder(data, FOLDER, experiment), file, experiment)
    with lzma.open(path, "rt", encoding="latin-1") as stream:
        if ".tsv" in path.suffixes:
            table = np.genfromtxt(stream, delimiter="\t", names=True, deletechars="")
            categories: dict[str, tuple[str, ...]] = {}
        else:
            table, attributes = loadarff(stream)
            categories = {name: attributes[name][1] for name in attributes if attributes[name][1] is not None}
    columns, names = [], []
    assert table.dtype.names is not None
    *features, target = table.dtype.names
    for name in features:
        for category in categories.get(name, ()):
            columns.append(table[name] == category.encode())
            names.append(f"{name}={category}")
        if name not in categories:
            columns.append(table[name])
            names.append(name)
    return Regression(np.column_stack(columns).astype(float), names, table[target].astype(float))


def draw_trial(n_rows: int, n_labelled: int, n_unlabelled: int, seed: Sequence[int]) -> Trial:
    """Unlabelled rows are drawn first: a trial with other labelled rows keeps them."""
    if n_labelled + n_unlabelled >= n_rows:
        raise ValueError(
            f"{n_labelled} labelled and {n_unlabelled} unlabelled rows leave none of {n_rows} for the test."
        )
    order = np.random.default_rng(list(seed)).permutation(n_rows)
    unlabelled, others = order[:n_unlabelled], order[n_unlabelled:]
    return Trial(np.concatenate([others[:n_labelled], unlabelled]), others[n_labelled:], n_labelled)


class Tuned(NamedTuple):
    """Regression without preferences, penalty and width by five folds of the labelled rows."""

    model: OrderPreferenceRegressorCV

    def with_preferences(self, X: Any, y: np.ndarray, pairs: Any, **options: Any) -> OrderPreferenceRegressor:
        """The same penalty and width, and preferences."""
        model = OrderPreferenceRegressor(self.model.alpha_, gamma=self.model.gamma_)
        return model.fit(X, y, pairs=pairs, **options)


def tune(X: np.ndarray, y: np.ndarray) -> Tuned:
    """On the published grid of 9 × 9 values, preferences left out."""
    return Tuned(OrderPreferenceRegressorCV(preferences_in_cv=False).fit(X, y))


def mean_absolute_error(model: Any, X: Any, y: np.ndarray) -> float:
    return float(np.abs(model.predict(X) - y).mean())


def compare(without: Sequence[float], with_them: Sequence[float]) -> dict[str, Any]:
    """Errors of the same trials without and with preferences: means, spreads, gain in per cent, paired t-test.

    Examples
    --------
    >>> compare([4.0, 5.0, 6.0], [3.0, 4.5, 5.0])["better in"]
    '3 of 3'
    """
    first, second = np.asarray(without, dtype=float), np.asarray(with_them, dtype=float)
    enough = first.shape[0] > 1 and np.any(first != second)
    return {
        "without": number(first.mean()),
        "spread without": rounded_spread(first),
        "with": number(second.mean()),
        "spread with": rounded_spread(second),
        "gain, %": gain(without, with_them),
        "better in": f"{int((second < first).sum())} of {first.shape[0]}",
        "p": float(ttest_rel(first, second).pvalue) if enough else None,
    }


def gain(without: Sequence[float], with_them: Sequence[float]) -> float:
    """How much smaller the mean error with preferences is, in per cent."""
    return float(100 * (1 - np.mean(with_them) / np.mean(without)))


def number(value: float) -> float | int:
    """Dollars without fractions."""
    return round(float(value)) if abs(value) >= 1000 else float(value)


def rounded_spread(values: np.ndarray) -> float | int | None:
    found = spread(values)
    return None if found is None else number(found)


def significant(rows: Sequence[Mapping[str, Any]], level: float) -> list[Mapping[str, Any]]:
    """Rows whose gain is positive and significant at a level."""
    return [row for row in rows if row["p"] is not None and row["p"] < level and row["gain, %"] > 0]
