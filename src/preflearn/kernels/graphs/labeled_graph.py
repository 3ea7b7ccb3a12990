"""A directed, weighted graph whose vertices carry labels: what the graph features are computed from.

A graph is its adjacency matrix A (A[i, j] > 0 is the weight of the edge from i to j) and its label allocation
matrix L (L[a, i] = 1 when vertex i has label a). Both are stored sparsely.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import sparse

if TYPE_CHECKING:
    import networkx


class LabeledGraph:
    """Directed weighted graph with any number of labels on each vertex.

    Parameters
    ----------
    labels : sequence of sequences of hashable
        ``labels[i]`` holds the labels of vertex i; empty for a vertex that walks only pass through. A repeated label of
        one vertex counts once (L is a 0/1 matrix).
    edges : iterable of (source, target, weight)
        Weights are positive. Parallel edges are added. An undirected edge is two edges.
    name : str, optional
        The name of the graph in error messages.

    Examples
    --------
    >>> graph = LabeledGraph([["binds", "VB"], ["PROT1"], ["PROT2"]], [(0, 1, 0.9), (0, 2, 0.9)])
    >>> graph
    LabeledGraph(3 vertices, 2 edges, 4 labels)
    >>> graph.adjacency().toarray()
    array([[0. , 0.9, 0.9],
           [0. , 0. , 0. ],
           [0. , 0. , 0. ]])
    """

    __slots__ = ("labels", "name", "sources", "targets", "weights")

    def __init__(
        self,
        labels: Sequence[Sequence[Hashable]],
        edges: Iterable[tuple[int, int, float]] = (),
        *,
        name: str | None = None,
    ) -> None:
        self.name = name
        self.labels: tuple[tuple[Hashable, ...], ...] = tuple(
            self._vertex_labels(vertex, given) for vertex, given in enumerate(labels)
        )
        triples = list(edges)
        try:
            sources, targets, weights = zip(*triples, strict=True) if triples else ((), (), ())
        except (TypeError, ValueError):
            raise ValueError(
                f"The edges of {self.title} must be (source, target, weight) triples; found {_first_odd(triples)!r}."
            ) from None
        self._set_edges(np.asarray(sources), np.asarray(targets), np.asarray(weights, dtype=np.float64))

    def _vertex_labels(self, vertex: int, given: Sequence[Hashable]) -> tuple[Hashable, ...]:
        if isinstance(given, str):
            raise TypeError(
                f"labels[{vertex}] of {self.title} is the string {given!r}; a vertex has a list of labels: [{given!r}]."
            )
        return tuple(dict.fromkeys(given))

    def _set_edges(self, sources: np.ndarray, targets: np.ndarray, weights: np.ndarray) -> None:
        for end in (sources, targets):
            if end.size and end.dtype.kind not in "iu":
                raise ValueError(
                    f"The ends of an edge of {self.title} must be vertex numbers; found {end[0]!r}."
                )
            outside = np.flatnonzero((end < 0) | (end >= self.n_vertices)) if end.size else end
            if outside.size:
                raise ValueError(
                    f"An edge of {self.title} ends in vertex {end[outside[0]]}; it has the vertices 0 to "
                    f"{self.n_vertices - 1}."
                )
        bad = np.flatnonzero(~(np.isfinite(weights) & (weights > 0)))
        if bad.size:
            edge = int(bad[0])
            raise ValueError(
                f"The edge ({sources[edge]}, {targets[edge]}) of {self.title} has the weight {weights[edge]}; "
                "weights must be positive and finite. Leave the edge out instead of giving it weight 0."
            )
        self.sources = sources.astype(np.int32)
        self.targets = targets.astype(np.int32)
        self.weights = weights

    @property
    def title(self) -> str:
        """The name for messages."""
        return f"graph {self.name!r}" if self.name is not None else "the graph"

    @property
    def n_vertices(self) -> int:
        return len(self.labels)

    @property
    def n_edges(self) -> int:
        return self.weights.shape[0]

    @property
    def edges(self) -> list[tuple[int, int, float]]:
        """(source, target, weight) of every edge."""
        return list(zip(self.sources.tolist(), self.targets.tolist(), self.weights.tolist(), strict=True))

    def adjacency(self) -> sparse.csr_array:
        """A, shape (n_vertices, n_vertices)."""
        shape = (self.n_vertices, self.n_vertices)
        return sparse.csr_array(sparse.coo_array((self.weights, (self.sources, self.targets)), shape=shape))

    def spectral_radius(self) -> float:
        """Largest absolute eigenvalue of A; the sum over walks of every length converges when it is under 1.

        Computed for each strongly connected component by a dense eigenvalue routine: O(Σ n_c³).
        """
        adjacency = self.adjacency()
        n_components, component = sparse.csgraph.connected_components(adjacency, connection="strong")
        diagonal = adjacency.diagonal()
        sizes = np.bincount(component, minlength=n_components)
        radius = float(diagonal.max(initial=0.0))
        for number in np.flatnonzero(sizes > 1):
            members = np.flatnonzero(component == number)
            block = adjacency[members][:, members].toarray()
            radius = max(radius, float(np.abs(np.linalg.eigvals(block)).max()))
        return radius

    def scaled(self, factor: float) -> LabeledGraph:
        """The same graph with every edge weight multiplied by ``factor``."""
        return self.from_arrays(
            self.labels, self.sources, self.targets, self.weights * factor, name=self.name
        )

    @classmethod
    def from_arrays(
        cls,
        labels: Sequence[Sequence[Hashable]],
        sources: np.ndarray,
        targets: np.ndarray,
        weights: np.ndarray,
        *,
        name: str | None = None,
    ) -> LabeledGraph:
        """The same graph from three arrays instead of a list of edges: faster for many graphs."""
        graph = cls(labels, name=name)
        graph._set_edges(np.asarray(sources), np.asarray(targets), np.asarray(weights, dtype=np.float64))
        return graph

    @classmethod
    def from_networkx(
        cls, graph: networkx.Graph, *, labels: str = "labels", weight: str = "weight", name: str | None = None
    ) -> LabeledGraph:
        """From a networkx graph; vertices are numbered in its order.

        Parameters
        ----------
        graph : networkx graph
            An undirected graph gives an edge each way.
        labels : str
            Node attribute with a label or a list of labels; a node without it has none.
        weight : str
            Edge attribute with the weight; 1 where missing.
        name : str, optional
            Defaults to the networkx graph's own name.
        """
        number = {node: index for index, node in enumerate(graph.nodes)}
        node_labels = [_as_list(data.get(labels, ())) for _, data in graph.nodes(data=True)]
        edges = []
        for source, target, value in graph.edges(data=weight, default=1.0):
            edges.append((number[source], number[target], value))
            if not graph.is_directed() and source != target:
                edges.append((number[target], number[source], value))
        return cls(node_labels, edges, name=name if name is not None else (graph.name or None))

    def to_networkx(self) -> networkx.MultiDiGraph:
        """As a networkx ``MultiDiGraph`` with the attributes ``labels`` and ``weight``."""
        import networkx

        graph = networkx.MultiDiGraph(name=self.name or "")
        graph.add_nodes_from((vertex, {"labels": list(given)}) for vertex, given in enumerate(self.labels))
        graph.add_weighted_edges_from(self.edges)
        return graph

    @classmethod
    def from_conllu(
        cls, source: str | Path, *, edge_weight: float = 0.9, enhanced: bool = False
    ) -> list[LabeledGraph]:
        """One graph for each sentence of a CoNLL-U file: words and dependencies as vertices.

        A word has its form and its part of speech (XPOS, or UPOS where that is missing) as labels; each
        dependency is a vertex labelled with its relation, between its governor and its dependent.

        Parameters
        ----------
        source : str or Path
            A file, plain or compressed with gzip or xz.
        edge_weight : float
            Weight of every edge.
        enhanced : bool
            Use the enhanced dependencies (DEPS column) instead of HEAD and DEPREL.

        Returns
        -------
        list of LabeledGraph
            Named by ``sent_id``, or by the file and the sentence's number.
        """
        from .conllu import read_conllu

        return [sentence.graph(edge_weight) for sentence in read_conllu(source, enhanced=enhanced)]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, LabeledGraph):
            return NotImplemented
        return self.labels == other.labels and sorted(self.edges) == sorted(other.edges)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        name = f"{self.name!r}, " if self.name is not None else ""
        n_labels = len(set().union(*self.labels)) if self.labels else 0
        return f"LabeledGraph({name}{self.n_vertices} vertices, {self.n_edges} edges, {n_labels} labels)"


def as_graphs(X: Iterable[Any]) -> Iterator[LabeledGraph]:
    """Yield graphs, refusing anything else with its position."""
    remedy = "Build it with LabeledGraph(labels, edges) or LabeledGraph.from_networkx(graph)."
    return each_of(LabeledGraph, X, "graph", remedy)


def each_of(kind: type, X: Iterable[Any], noun: str, remedy: str) -> Iterator[Any]:
    """Yield objects of one kind, refusing anything else with its position."""
    if isinstance(X, kind):
        raise TypeError(f"Expected a sequence of {noun}s; found one {kind.__name__}. Pass [{noun}].")
    for position, one in enumerate(X):
        if not isinstance(one, kind):
            found = type(one).__name__
            raise TypeError(f"Expected {kind.__name__} objects; item {position} is a {found}. {remedy}")
        yield one


def _as_list(labels: Any) -> Sequence[Hashable]:
    return list(labels) if isinstance(labels, (list, tuple, set, frozenset)) else [labels]


def _first_odd(triples: list[Any]) -> Any:
    for triple in triples:
        try:
            if len(triple) != 3:
                return triple
        except TypeError:
            return triple
    return triples[0]


# ----------------------------------------------------------------
# Kernel matrices of sparse feature rows: K = X Yᵀ.


def gram(X: sparse.csr_array, Y: sparse.csr_array | None = None) -> np.ndarray:
    """Inner products of sparse rows as a dense array, X Yᵀ; Y defaults to X.

    Parameters
    ----------
    X : sparse array of shape (m, n)
    Y : sparse array of shape (k, n), optional

    Returns
    -------
    ndarray of shape (m, k)
        In the type of X.

    Notes
    -----
    O(Σ_c d_c e_c) multiplications, d_c and e_c being the non-zeros of column c in X and Y; half of them without Y.
    Several threads; the result is the only array of its size, where a product of two sparse matrices would first build
    a sparse matrix without zeros.

    Examples
    --------
    >>> gram(sparse.csr_array([[1.0, 0.0], [2.0, 3.0]]))
    array([[ 1.,  2.],
           [ 2., 13.]])
    """
    from ._loops import sparse_products

    rows = sparse.csr_array(X)
    columns = sparse.csc_array(rows if Y is None else Y)
    if columns.shape[1] != rows.shape[1]:
        raise ValueError(
            f"X has {rows.shape[1]} columns and Y {columns.shape[1]}: they must be the same features."
        )
    columns.sum_duplicates()
    out = np.zeros((rows.shape[0], columns.shape[0]), dtype=rows.dtype)
    sparse_products(
        rows.indptr,
        rows.indices,
        rows.data,
        columns.indptr,
        columns.indices,
        columns.data.astype(rows.dtype, copy=False),
        Y is None,
        out,
    )
    return out
