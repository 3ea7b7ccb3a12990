"""Weisfeiler-Lehman subtree features: how often each neighbourhood occurs.

Level 0 counts the labels. At level h every vertex gets a new name composed of its name at level h - 1 and the sorted
names of the vertices that its edges lead to and come from; names are counted. Two graphs are similar insofar as the
same neighbourhoods occur in both. The kernel is the inner product of the counts over all levels.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from numbers import Integral
from typing import Any, Self

import numpy as np
from scipy import sparse
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from .labeled_graph import LabeledGraph, as_graphs


class WeisfeilerLehmanFeatures(TransformerMixin, BaseEstimator):
    """Graphs to sparse rows of neighbourhood counts.

    Parameters
    ----------
    depth : int
        Number of rounds; 0 counts only labels.
    normalize : bool
        Divide each row by the length of the graph's whole row, unseen neighbourhoods included.

    Attributes
    ----------
    names_ : ndarray of uint64
        A 64-bit digest of each neighbourhood seen in ``fit``: one column each.
    n_features_out_ : int
        Number of columns.

    Notes
    -----
    O(edges) for each level and graph. Edge weights are not used. Labels must be strings; a vertex with several
    labels has their set as its name from level 1 on.

    References
    ----------
    Shervashidze, Schweitzer, van Leeuwen, Mehlhorn, Borgwardt (2011), Weisfeiler-Lehman graph kernels, Journal of
    Machine Learning Research 12, 2539-2561.

    Examples
    --------
    >>> path = LabeledGraph([["A"], ["B"], ["B"]], [(0, 1, 1.0), (1, 2, 1.0)])
    >>> sorted(WeisfeilerLehmanFeatures(depth=0).fit_transform([path]).data.tolist())
    [1.0, 2.0]
    >>> WeisfeilerLehmanFeatures(depth=1).fit_transform([path]).shape
    (1, 5)
    """

    def __init__(self, depth: int = 2, *, normalize: bool = False) -> None:
        self.depth = depth
        self.normalize = normalize

    def fit(self, X: Iterable[LabeledGraph], y: Any = None) -> Self:
        """Learn the neighbourhoods of the graphs."""
        self.fit_transform(X)
        return self

    def fit_transform(self, X: Iterable[LabeledGraph], y: Any = None) -> sparse.csr_array:
        """``fit`` and ``transform`` of the same graphs."""
        counted = self._count(X)
        self.names_ = (
            np.unique(np.concatenate([names for names, _ in counted])) if counted else np.empty(0, np.uint64)
        )
        self.n_features_out_ = self.names_.shape[0]
        return self._stack(counted)

    def transform(self, X: Iterable[LabeledGraph]) -> sparse.csr_array:
        """Sparse counts, one row for each graph and ``n_features_out_`` columns."""
        check_is_fitted(self, "names_")
        return self._stack(self._count(X))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = False
        return tags

    def _fitted_arrays(self) -> dict[str, str]:
        """The shapes that loaded features are checked for (`preflearn.tables.models.fitted`)."""
        return {"names_": "k <", "n_features_out_": "= k"} if "names_" in vars(self) else {}

    def _check_parameters(self) -> None:
        if not isinstance(self.depth, Integral) or self.depth < 0:
            raise ValueError(f"depth must be an integer of at least 0; found {self.depth!r}.")

    def _count(self, X: Iterable[LabeledGraph]) -> list[tuple[np.ndarray, np.ndarray]]:
        self._check_parameters()
        digests: dict[str, int] = {}
        return [neighbourhoods(graph, int(self.depth), digests) for graph in as_graphs(X)]

    def _stack(self, counted: list[tuple[np.ndarray, np.ndarray]]) -> sparse.csr_array:
        starts, columns, values = [0], [], []
        for names, counts in counted:
            row = counts / np.sqrt((counts**2).sum()) if self.normalize else counts
            places = np.minimum(np.searchsorted(self.names_, names), max(self.n_features_out_ - 1, 0))
            known = self.names_[places] == names if self.n_features_out_ else np.zeros(names.shape, bool)
            columns.append(places[known])
            values.append(row[known])
            starts.append(starts[-1] + columns[-1].shape[0])
        data = np.concatenate(values) if values else np.empty(0)
        indices = np.concatenate(columns).astype(np.int32) if columns else np.empty(0, np.int32)
        return sparse.csr_array((data, indices, starts), shape=(len(counted), self.n_features_out_))


def neighbourhoods(graph: LabeledGraph, depth: int, digests: dict[str, int]) -> tuple[np.ndarray, np.ndarray]:
    """Digests of the labels and of the neighbourhoods up to a depth, ascending, and their counts."""
    for label in {label for labels in graph.labels for label in labels}:
        if not isinstance(label, str):
            raise TypeError(f"Neighbourhoods need labels that are strings; {graph.title} has {label!r}.")
        if label not in digests:
            digests[label] = digest(label.encode())
    numbered = [[digests[label] for label in labels] for labels in graph.labels]  # type: ignore[index]
    found = [number for labels in numbered for number in labels]
    names = [_combine(0, sorted(labels)) for labels in numbered]
    outward: list[list[int]] = [[] for _ in names]
    inward: list[list[int]] = [[] for _ in names]
    for source, target in zip(graph.sources.tolist(), graph.targets.tolist(), strict=True):
        outward[source].append(target)
        inward[target].append(source)
    for level in range(1, depth + 1):
        names = [
            _combine(
                level,
                [name, len(out), *sorted(names[v] for v in out), *sorted(names[v] for v in come)],
            )
            for name, out, come in zip(names, outward, inward, strict=True)
        ]
        found += names
    unique, counts = np.unique(np.asarray(found, dtype=np.uint64), return_counts=True)
    return unique, counts.astype(np.float64)


def digest(content: bytes) -> int:
    """64 bits that are the same in every process."""
    return int.from_bytes(hashlib.blake2b(content, digest_size=8).digest(), "little")


def _combine(level: int, numbers: list[int]) -> int:
    return digest(np.asarray([level, *numbers], dtype=np.uint64).tobytes())
