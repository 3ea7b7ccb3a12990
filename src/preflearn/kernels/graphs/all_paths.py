"""All-paths graph features: how strongly each pair of labels is connected by walks of every length.

For a graph with adjacency matrix A and label allocation matrix L,

    W = A + A² + A³ + ... = (I - A)⁻¹ - I                       weights of all walks between two vertices
    sum:  G = L W Lᵀ,        max:  G[a, b] = max over vertices i with a, j with b of W[i, j]

and the row of features is G read as a vector, only its non-zero entries. The inner product of two rows is the
all-paths graph kernel of Airola et al. (2008), k(G', G'') = Σ G'[a, b] G''[a, b]; their published figures used
the maximum (author's errata of 2009). Both are kernels of explicit features, so both are positive semi-definite.
"""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any, Self

import numpy as np
from joblib import Parallel, delayed
from scipy import sparse
from scipy.sparse import linalg as sparse_linalg
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from .labeled_graph import LabeledGraph, as_graphs
from .weisfeiler_lehman import digest

# Up to this many vertices and distinct labels one graph is a small dense problem of the compiled loop; a larger
# one goes through a sparse LU factorisation, a slice of columns at a time.
DENSE_VERTICES = 1024
DENSE_LABELS = 2048
_COLUMNS_AT_ONCE = 256
_LOW_HALF = np.int64(0xFFFFFFFF)


class AllPathsFeatures(TransformerMixin, BaseEstimator):
    """Graphs to sparse rows of label-pair weights.

    Each column is an ordered pair of labels (a, b); its value is the sum (``aggregate="sum"``,
    L((I - A)⁻¹ - I)Lᵀ) or the largest (``"max"``) walk weight over the pairs of vertices that carry a and b.

    Parameters
    ----------
    aggregate : {"sum", "max"}
        How the vertex pairs with the same two labels are combined.
    max_length : int, optional
        Count only walks of at most this many edges; None counts walks of every length.
    min_weight : float
        Weights of a vertex pair up to this value are left out (the original program: 1e-5).
    normalize : bool
        Divide each row by the length of the graph's whole row, label pairs that ``fit`` has not seen included, so
        that inner products are k(G, H) / √(k(G, G) k(H, H)) and long and short graphs have the same weight.
    rescale : float, optional
        What to do with a graph whose series does not converge (spectral radius 1 or more). None: an error that
        names the graph. A number in (0, 1): scale that graph's weights until its spectral radius is this number.
    n_features : int, optional
        None learns the label pairs in ``fit`` and leaves out those that were not seen there. A number hashes the pairs
        into that many columns instead: no vocabulary, and ``fit`` need not have seen the data (for streams). Labels
        must then be strings; pairs that fall on the same column are added.
    dtype : {np.float64, np.float32}
        Type of the stored values; the walks are always summed in double precision.
    n_jobs : int, optional
        Threads over blocks of graphs, with joblib's meaning.
    block_size : int
        Graphs computed at a time.
    verbose : int
        1 prints the number of graphs done.

    Attributes
    ----------
    labels_ : ndarray of strings or objects
        The labels seen in ``fit``. (Vocabulary only.)
    pairs_ : ndarray of shape (n_columns, 2)
        The label numbers of each column. (Vocabulary only.)
    n_features_out_ : int
        Number of columns.
    n_unseen_labels_, n_unseen_pairs_ : int
        Number of label occurrences and of non-zero label pairs that the last ``transform`` left out because ``fit`` had
        not seen them. (Vocabulary only.)

    Notes
    -----
    One small dense elimination for each graph and one pass over its connected vertex pairs: linear in the number
    of graphs; memory is that of the non-zero entries. No array of the size of the square of the vocabulary is made.

    References
    ----------
    Airola, Pyysalo, Björne, Pahikkala, Ginter, Salakoski (2008), All-paths graph kernel for protein-protein
    interaction extraction with evaluation of cross-corpus learning, BMC Bioinformatics 9(Suppl 11):S2, and the
    author's errata of 27 February 2009. Gärtner, Flach, Wrobel (2003), On graph kernels.

    Examples
    --------
    >>> graph = LabeledGraph([["A"], ["B"], ["B"]], [(0, 1, 0.5), (1, 2, 0.5)])
    >>> features = AllPathsFeatures("sum")
    >>> features.fit_transform([graph]).toarray()
    array([[0.75, 0.5 ]])
    >>> features.get_feature_names_out().tolist()
    ['A -> B', 'B -> B']
    """

    def __init__(
        self, aggregate: str = "sum", *, max_length: int | None = None, min_weight: float = 0.0,
        normalize: bool = False, rescale: float | None = None, n_features: int | None = None,
        dtype: Any = np.float64, n_jobs: int | None = None, block_size: int = 256, verbose: int = 0,
    ) -> None:  # fmt: skip
        self.aggregate, self.max_length, self.min_weight = aggregate, max_length, min_weight
        self.normalize, self.rescale, self.n_features, self.dtype = normalize, rescale, n_features, dtype
        self.n_jobs, self.block_size, self.verbose = n_jobs, block_size, verbose

    def fit(self, X: Iterable[LabeledGraph], y: Any = None) -> Self:
        """Learn the label pairs of the graphs (with ``n_features``: only check the parameters and the graphs)."""
        self._check_parameters()
        if self.n_features is not None:
            for _ in as_graphs(X):
                pass
            self.n_features_out_ = int(self.n_features)
            return self
        ids: dict[Hashable, int] = {}
        seen = [block.pairs for block in self._blocks(X, lambda label: ids.setdefault(label, len(ids)))]
        self._set_vocabulary(ids, seen)
        return self

    def fit_transform(self, X: Iterable[LabeledGraph], y: Any = None) -> sparse.csr_array:
        """``fit`` and ``transform`` of the same graphs, computing each graph once."""
        self._check_parameters()
        if self.n_features is not None:
            self.n_features_out_ = int(self.n_features)
            return self.transform(X)
        ids: dict[Hashable, int] = {}
        blocks = list(self._blocks(X, lambda label: ids.setdefault(label, len(ids))))
        self._set_vocabulary(ids, [block.pairs for block in blocks])
        return self._stack(self._known_columns(block) for block in _drain(blocks))

    def transform(self, X: Iterable[LabeledGraph]) -> sparse.csr_array:
        """Sparse features, one row for each graph and ``n_features_out_`` columns.

        ``X`` may be any iterable, including a generator: only one block of graphs for each thread is held at a time.
        """
        self._check_parameters()
        if self.n_features is not None:
            self.n_features_out_ = int(self.n_features)
            return self._stack(self._hashed_blocks(X))
        check_is_fitted(self, "pairs_")
        known = {label: number for number, label in enumerate(self.labels_.tolist())}
        # An unseen label is treated like any other, since it counts in the length of the row.
        beyond: dict[Hashable, int] = {}
        n_unseen = 0

        def encode(label: Hashable) -> int:
            nonlocal n_unseen
            number = known.get(label)
            if number is not None:
                return number
            n_unseen += 1
            return beyond.setdefault(label, len(known) + len(beyond))

        self.n_unseen_pairs_ = 0
        result = self._stack(self._known_columns(block) for block in self._blocks(X, encode))
        self.n_unseen_labels_ = n_unseen
        return result

    def get_feature_names_out(self, input_features: Any = None) -> np.ndarray:
        """The names of the columns, "a -> b"."""
        if self.n_features is not None:
            return np.asarray([f"hash_{column}" for column in range(int(self.n_features))], dtype=object)
        check_is_fitted(self, "pairs_")
        names = [str(label) for label in self.labels_.tolist()]
        return np.asarray([f"{names[a]} -> {names[b]}" for a, b in self.pairs_.tolist()], dtype=object)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = False
        tags.requires_fit = self.n_features is None
        return tags

    def _check_parameters(self) -> None:
        if self.aggregate not in ("sum", "max"):
            raise ValueError(f"aggregate must be 'sum' or 'max'; found {self.aggregate!r}.")
        for name, lowest in (("max_length", 1), ("n_features", 1), ("block_size", 1)):
            value = getattr(self, name)
            if value is None and name != "block_size":
                continue
            if not isinstance(value, Integral) or value < lowest:
                raise ValueError(f"{name} must be an integer of at least {lowest}; found {value!r}.")
        if not isinstance(self.min_weight, Real) or not 0 <= self.min_weight < np.inf:
            raise ValueError(f"min_weight must be a number of at least 0; found {self.min_weight!r}.")
        if self.rescale is not None and not (isinstance(self.rescale, Real) and 0 < self.rescale < 1):
            raise ValueError(f"rescale must be None or a number between 0 and 1; found {self.rescale!r}.")
        if self.rescale is not None and self.max_length is not None:
            raise ValueError(
                "rescale would be ignored: a sum over walks of bounded length (max_length) always exists."
            )
        if np.dtype(self.dtype) not in (np.dtype(np.float64), np.dtype(np.float32)):
            raise ValueError(f"dtype must be numpy.float64 or numpy.float32; found {self.dtype!r}.")

    def _blocks(self, X: Iterable[LabeledGraph], encode: Any) -> Iterator[_Block]:
        """Label-pair weights of X, block by block in order; the labels are encoded in this thread."""
        graphs = as_graphs(X)
        pieces = iter(lambda: list(itertools.islice(graphs, int(self.block_size))), [])
        jobs = (delayed(self._block)(piece, _encode(piece, encode)) for piece in pieces)
        done = 0
        for block in Parallel(n_jobs=self.n_jobs, prefer="threads", return_as="generator")(jobs):
            done += block.n_rows
            if self.verbose:
                print(f"\rgraphs: {done}", end="", flush=True)
            yield block
        if self.verbose:
            print()

    def _block(self, graphs: list[LabeledGraph], encoded: list[np.ndarray]) -> _Block:
        """Rows of one block: the compiled loop for runs of small graphs, a sparse factorisation for large ones."""
        large = [_is_large(graph, labels) for graph, labels in zip(graphs, encoded, strict=True)]
        parts = []
        for is_large, run in itertools.groupby(range(len(graphs)), key=large.__getitem__):
            numbers = list(run)
            chosen = [graphs[number] for number in numbers]
            labels = [encoded[number] for number in numbers]
            if is_large:
                parts += [self._large_row(graph, ids) for graph, ids in zip(chosen, labels, strict=True)]
            else:
                parts.append(self._small_rows(chosen, labels))
        lengths = np.concatenate([np.diff(starts) for starts, _, _ in parts])
        keys = np.concatenate([keys for _, keys, _ in parts])
        pairs, places = np.unique(keys, return_inverse=True)
        values = np.concatenate([values for _, _, values in parts])
        if self.normalize:
            rows = np.repeat(np.arange(lengths.shape[0]), lengths)
            values /= np.sqrt(np.bincount(rows, weights=values**2, minlength=lengths.shape[0]))[rows]
        starts = np.concatenate([[0], np.cumsum(lengths)])
        return _Block(starts, pairs, places.astype(np.int32), values.astype(self.dtype, copy=False))

    def _small_rows(self, graphs: list[LabeledGraph], encoded: list[np.ndarray]) -> _Rows:
        from ._loops import label_pairs

        while True:
            converged, *rows = label_pairs(  # type: ignore[call-arg]
                *_concatenate(graphs, encoded),  # type: ignore[arg-type]
                self.max_length or 0,
                float(self.min_weight),
                self.aggregate == "max",
            )
            if converged.all():
                return tuple(rows)  # type: ignore[return-value]
            graphs = [
                graph if fine else self._rescaled(graph)
                for graph, fine in zip(graphs, converged, strict=True)
            ]

    def _rescaled(self, graph: LabeledGraph) -> LabeledGraph:
        """The graph with smaller weights, or an error that names it."""
        radius = graph.spectral_radius()
        if self.rescale is None:
            raise ValueError(
                f"The sum over walks of {graph.title} ({graph.n_vertices} vertices) does not converge: its "
                f"spectral radius is {radius:.6g} and must be under 1. Use smaller edge weights on its "
                "cycles, rescale=0.95 to scale such graphs, or max_length to bound the walks."
            )
        return graph.scaled(float(self.rescale) / radius)

    def _large_row(self, graph: LabeledGraph, encoded: np.ndarray) -> _Rows:
        """One row through a sparse LU factorisation of I - A (or sparse powers), columns of W by slices."""
        n = graph.n_vertices
        if self.max_length is None:
            solve = _factorise(graph)
            if solve is None:
                return self._large_row(self._rescaled(graph), encoded)
        else:
            adjacency, length = graph.adjacency(), int(self.max_length)

            def solve(columns: np.ndarray) -> np.ndarray:
                powers = total = columns
                for _ in range(length):
                    powers = adjacency @ powers
                    total = total + powers
                return total

        vertices, ids = encoded
        allocation = sparse.csr_array(
            (np.ones(ids.shape[0], np.int8), (vertices, ids)), shape=(n, _width(ids))
        )
        merged: tuple[np.ndarray, np.ndarray] = (np.empty(0, np.int64), np.empty(0))
        for first in range(0, n, _COLUMNS_AT_ONCE):
            last = min(first + _COLUMNS_AT_ONCE, n)
            columns = np.zeros((n, last - first))
            columns[np.arange(first, last), np.arange(last - first)] = 1.0
            walks = solve(columns) - columns
            sources, targets = np.nonzero(walks > self.min_weight)
            weights = walks[sources, targets]
            merged = self._merge(merged, _expand(allocation, sources, targets + first, weights))
        keys, values = merged
        return np.asarray([0, keys.shape[0]]), keys, values

    def _merge(self, *parts: tuple[np.ndarray, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        """Combine label pairs that occur several times, by sum or maximum; keys are returned in ascending order."""
        keys = np.concatenate([keys for keys, _ in parts])
        values = np.concatenate([values for _, values in parts])
        if not keys.size:
            return keys, values
        order = np.argsort(keys, kind="stable")
        keys, values = keys[order], values[order]
        starts = np.flatnonzero(np.concatenate([[True], keys[1:] != keys[:-1]]))
        join = np.maximum if self.aggregate == "max" else np.add
        return keys[starts], join.reduceat(values, starts)

    def _set_vocabulary(self, ids: dict[Hashable, int], seen: list[np.ndarray]) -> None:
        self.labels_ = _label_array(list(ids))
        self._keys = np.unique(np.concatenate(seen)) if seen else np.empty(0, np.int64)
        self.pairs_ = np.column_stack([self._keys >> 32, self._keys & _LOW_HALF]).astype(np.int32)
        self.n_features_out_ = self._keys.shape[0]
        self.n_unseen_labels_ = self.n_unseen_pairs_ = 0

    def _fitted_arrays(self) -> dict[str, str]:
        """The shapes that loaded features are checked for (`preflearn.tables.models.fitted`)."""
        if "pairs_" not in vars(self):
            return {}
        if np.ndim(self.labels_) == 1 and len(set(self.labels_)) < len(self.labels_):
            raise ValueError("labels_ holds a label twice")
        return {"_keys": "k <", "pairs_": "k 2 < l", "labels_": "labels l", "n_features_out_": "= k"}

    def _known_columns(self, block: _Block) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Replace pairs by columns of the vocabulary; pairs that are not in it are dropped and counted."""
        columns = np.searchsorted(self._keys, block.pairs)
        columns[columns == self._keys.shape[0]] = 0
        known = self._keys[columns] == block.pairs if self._keys.size else np.zeros(block.pairs.shape, bool)
        columns = columns.astype(np.int32)
        if known.all():
            return block.starts, columns[block.places], block.values
        kept = known[block.places]
        self.n_unseen_pairs_ += int(kept.size - np.count_nonzero(kept))
        starts = np.concatenate([[0], np.cumsum(kept)])[block.starts]
        return starts, columns[block.places[kept]], block.values[kept]

    def _hashed_blocks(
        self, X: Iterable[LabeledGraph]
    ) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        # Labels are numbered as they come, for all blocks together; only their 64-bit digests enter the columns.
        ids: dict[Hashable, int] = {}
        digests: list[int] = []

        def encode(label: Hashable) -> int:
            number = ids.setdefault(label, len(ids))
            if number == len(digests):
                digests.append(_digest(label))
            return number

        for block in self._blocks(X, encode):
            known = np.asarray(digests, dtype=np.uint64)
            mixed = _mix(known[block.pairs >> 32], known[block.pairs & _LOW_HALF])
            columns = (mixed % np.asarray(self.n_features, dtype=np.uint64)).astype(np.int64)
            yield block.starts, columns[block.places], block.values

    def _stack(self, blocks: Iterable[tuple[np.ndarray, np.ndarray, np.ndarray]]) -> sparse.csr_array:
        lengths, columns, values = [], [], []
        for block_starts, block_columns, block_values in blocks:
            lengths.append(np.diff(block_starts))
            columns.append(block_columns)
            values.append(block_values)
        starts = np.concatenate([[0], *(np.cumsum(np.concatenate(lengths)) for _ in lengths[:1])]).astype(
            np.int64
        )
        data = np.concatenate(values) if values else np.empty(0, self.dtype)
        values.clear()
        indices = np.concatenate(columns) if columns else np.empty(0, np.int32)
        columns.clear()
        if starts[-1] <= np.iinfo(np.int32).max and self.n_features_out_ <= np.iinfo(np.int32).max:
            starts, indices = starts.astype(np.int32), indices.astype(np.int32, copy=False)
        shape = (starts.shape[0] - 1, self.n_features_out_)
        features = sparse.csr_array((data, indices, starts), shape=shape)
        if self.n_features is not None:
            features.sum_duplicates()
        return features


_Rows = tuple[np.ndarray, np.ndarray, np.ndarray]


@dataclass(frozen=True)
class _Block:
    """Rows of a few graphs: row g holds ``pairs[places[starts[g]:starts[g + 1]]]`` with the corresponding values."""

    starts: np.ndarray
    pairs: np.ndarray
    places: np.ndarray
    values: np.ndarray

    @property
    def n_rows(self) -> int:
        return self.starts.shape[0] - 1


def _drain(blocks: list[_Block]) -> Iterator[_Block]:
    """The blocks in order, each released once it has been used."""
    blocks.reverse()
    while blocks:
        yield blocks.pop()


def _encode(graphs: list[LabeledGraph], encode: Any) -> list[np.ndarray]:
    """For each graph a (2, number of labels) array: vertex and label number."""
    encoded = []
    for graph in graphs:
        ids = [encode(label) for labels in graph.labels for label in labels]
        vertices = np.repeat(np.arange(graph.n_vertices), [len(labels) for labels in graph.labels])
        encoded.append(np.vstack([vertices, np.asarray(ids, dtype=np.int64)]))
    return encoded


def _label_array(labels: list[Hashable]) -> np.ndarray:
    """Labels as an array: of strings where all are (NumPy would cut off a trailing NUL), else of objects."""
    if all(isinstance(label, str) and not label.endswith("\0") for label in labels):
        return np.asarray(labels, dtype=np.str_)
    array = np.empty(len(labels), dtype=object)
    array[:] = labels
    return array


def _is_large(graph: LabeledGraph, encoded: np.ndarray) -> bool:
    if graph.n_vertices > DENSE_VERTICES:
        return True
    return encoded.shape[1] > DENSE_LABELS and np.unique(encoded[1]).shape[0] > DENSE_LABELS


def _concatenate(graphs: list[LabeledGraph], encoded: list[np.ndarray]) -> tuple[np.ndarray, ...]:
    """The arrays that the compiled loop takes."""
    n_vertices = [graph.n_vertices for graph in graphs]
    n_labels = [np.bincount(both[0], minlength=n) for both, n in zip(encoded, n_vertices, strict=True)]
    own = [np.unique(both[1], return_inverse=True) for both in encoded]
    return (
        np.concatenate([[0], np.cumsum(n_vertices)]).astype(np.int64),
        np.concatenate([[0], np.cumsum(np.concatenate(n_labels))]).astype(np.int64),
        np.concatenate([local for _, local in own]),
        np.concatenate([[0], np.cumsum([labels.shape[0] for labels, _ in own])]).astype(np.int64),
        np.concatenate([labels for labels, _ in own]),
        np.concatenate([[0], np.cumsum([graph.n_edges for graph in graphs])]).astype(np.int64),
        np.concatenate([graph.sources for graph in graphs]),
        np.concatenate([graph.targets for graph in graphs]),
        np.concatenate([graph.weights for graph in graphs]),
    )


def _factorise(graph: LabeledGraph) -> Any:
    """A function that solves (I - A) x = b, or None where the series has no limit.

    For A >= 0 the spectral radius is under 1 exactly when x = (I - A)⁻¹ 1 exists and is positive
    (I - A is then a non-singular M-matrix).
    """
    n = graph.n_vertices
    try:
        solve = sparse_linalg.splu(sparse.csc_array(sparse.eye_array(n) - graph.adjacency())).solve
    except RuntimeError:  # exactly singular
        return None
    totals = solve(np.ones(n))
    return solve if np.isfinite(totals).all() and totals.min(initial=1.0) > 0 else None


def _width(ids: np.ndarray) -> int:
    return int(ids.max()) + 1 if ids.size else 0


def _expand(
    allocation: sparse.csr_array, sources: np.ndarray, targets: np.ndarray, weights: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Every pair of labels of the two ends of each connected vertex pair, with the pair's weight."""
    counts = np.diff(allocation.indptr)
    repeats = counts[sources] * counts[targets]
    pair = np.repeat(np.arange(weights.shape[0]), repeats)
    within = np.arange(pair.shape[0]) - np.repeat(np.cumsum(repeats) - repeats, repeats)
    n_second = counts[targets][pair]
    first = allocation.indices[allocation.indptr[sources[pair]] + within // np.maximum(n_second, 1)]
    second = allocation.indices[allocation.indptr[targets[pair]] + within % np.maximum(n_second, 1)]
    return (first.astype(np.int64) << 32) | second.astype(np.int64), weights[pair]


def _digest(label: Hashable) -> int:
    """64 bits of a label that are the same in every process."""
    if not isinstance(label, str):
        raise TypeError(f"Hashed features (n_features) need labels that are strings; found {label!r}.")
    return digest(label.encode())


def _mix(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """One hash of an ordered pair of 64-bit hashes (multiply and shift, wrapping around)."""
    with np.errstate(over="ignore"):
        mixed = first * np.uint64(0x9E3779B97F4A7C15) + (second ^ (second >> np.uint64(29)))
        mixed = (mixed ^ (mixed >> np.uint64(32))) * np.uint64(0xD6E8FEB86659FD93)
        return mixed ^ (mixed >> np.uint64(32))
