"""The graph of a candidate pair of proteins, as Airola et al. (2008) describe it.

Two subgraphs without an edge between them:

- dependencies: a vertex for each token (labels: text, part of speech) and for each dependency (label: its type);
  edges governor → dependency → dependent. Vertices on the shortest undirected paths between the two proteins have
  ``_IP`` after each label; edges of those dependencies weigh 0.9, all others 0.3;
- linear order: a second vertex for each token, labels as above with ``_B``, ``_M`` or ``_A`` after them (before,
  between, after the pair); an edge of weight 0.9 from each token to the next.

The text of protein names is replaced by PROT1, PROT2 (the pair) or PROT (any other).

What the paper leaves open, and the choices made here:

1. The published figures used the maximum over vertex pairs, and the original program leaves out dependencies of type
   ``punct`` and walk weights up to 1e-5: all three are the defaults of `preflearn_papers.ppi`.
2. Shortest paths: for every token of one name and every token of the other, all shortest paths count, the direction
   of dependencies is ignored and the length of a path is its number of dependencies.
3. A name keeps the parts of speech of its tokens; only the text is replaced. Each token of a name of several
   words is replaced. A token that two names share belongs to PROT1, then PROT2, then PROT.
4. A candidate is an unordered pair: PROT1 is the name that comes first in the sentence (by first token, then by
   last), whichever the corpus calls ``e1``. That order is arbitrary in BioInfer and distinguishes agents from targets
   in LLL, which a reader of new text cannot know.
5. The tokens of the two names carry the tag of the middle; "before" ends at the first token of the pair, "after"
   starts after the last.
6. Case is kept. Equal strings are equal labels: the part of speech ``,`` and the text ``,`` are one label.
7. A parse with overlapping cycles on the shortest paths can have a spectral radius of 1 or more (4 of the 17,080
   candidates of the five corpora): the weights of such a graph are scaled down to a radius of 0.95.
8. Where the parse does not connect the two names, no vertex is on a path and all dependencies weigh 0.3.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np
from scipy import sparse
from scipy.sparse.csgraph import shortest_path

from preflearn.graphs import LabeledGraph

from .corpus import Corpus, Entity, Pair, Sentence

PATH_WEIGHT = 0.9
OTHER_WEIGHT = 0.3
ORDER_WEIGHT = 0.9
ON_PATH, BEFORE, MIDDLE, AFTER = "_IP", "_B", "_M", "_A"
DROPPED_DEPENDENCIES = frozenset({"punct"})


@dataclass(frozen=True)
class Candidate:
    """One candidate pair in its sentence."""

    sentence: Sentence
    pair: Pair

    @property
    def names(self) -> tuple[Entity, Entity]:
        """The two entities, the one that comes first in the sentence first: PROT1 and PROT2."""
        entities = (self.sentence.entities[name] for name in (self.pair.e1, self.pair.e2))
        first, second = sorted(entities, key=lambda entity: (entity.tokens[0], entity.tokens[-1]))
        return first, second

    @property
    def first(self) -> str:
        """Text of the name that comes first."""
        return self._text(self.names[0])

    @property
    def second(self) -> str:
        """Text of the name that comes second."""
        return self._text(self.names[1])

    def _text(self, entity: Entity) -> str:
        return entity.text or " ".join(self.sentence.text[start:end] for start, end in entity.spans)


@dataclass
class Candidates:
    """Graphs, labels and documents of candidate pairs; unpacks as those three.

    Attributes
    ----------
    graphs : list of LabeledGraph
        Named by the pair's id.
    labels : ndarray of shape (m,)
        1 for an interaction, 0 for none; floats with NaN when some are unknown.
    documents : ndarray of shape (m,)
        Document id of each candidate: what folds must keep together.
    items : list of Candidate
        The sentence and the pair of each row.
    name : str
        Of the corpus.
    skipped : list of str
        What was left out and why.
    """

    graphs: list[LabeledGraph]
    labels: np.ndarray
    documents: np.ndarray
    items: list[Candidate]
    name: str = ""
    skipped: list[str] = field(default_factory=list)

    def __iter__(self) -> Iterator:
        return iter((self.graphs, self.labels, self.documents))

    def __len__(self) -> int:
        return len(self.graphs)

    def __repr__(self) -> str:
        positive = int(np.count_nonzero(self.labels == 1))
        n_documents = np.unique(self.documents).shape[0]
        return (
            f"Candidates({self.name!r}: {len(self)} pairs, {positive} interactions, {n_documents} documents)"
        )


def candidates(corpus: Corpus | Iterable[Sentence], *, skip_bad: bool = False) -> Candidates:
    """Graph, label and document of every candidate pair.

    Parameters
    ----------
    corpus : Corpus or iterable of Sentence
        As returned by `read_corpus` or `read_conllu_corpus`.
    skip_bad : bool
        Leave out (and list) pairs whose graph has cycles too heavy for its walks to be summed, which otherwise
        are an error of `AllPathsFeatures`.

    Returns
    -------
    Candidates
        ``graphs, labels, documents = candidates(corpus)`` unpacks it.

    Examples
    --------
    >>> graphs, labels, documents = candidates(read_corpus("LLL.xml"))  # doctest: +SKIP
    """
    sentences = corpus.sentences if isinstance(corpus, Corpus) else corpus
    name, skipped = (corpus.name, list(corpus.skipped)) if isinstance(corpus, Corpus) else ("", [])
    graphs, items, documents, labels = [], [], [], []
    for sentence in sentences:
        if not sentence.pairs:
            continue
        build = SentenceGraphs(sentence)
        for pair in sentence.pairs:
            graph = build(pair)
            if skip_bad and (radius := graph.spectral_radius()) >= 1:
                skipped.append(
                    f"pair {pair.id!r}: cycles too heavy, spectral radius {radius:.4g} is not below 1."
                )
                continue
            graphs.append(graph)
            items.append(Candidate(sentence, pair))
            documents.append(sentence.document)
            labels.append(np.nan if pair.interaction is None else float(pair.interaction))
    y = np.asarray(labels, dtype=np.float64)
    return Candidates(
        graphs=graphs,
        labels=y if np.isnan(y).any() else y.astype(np.int64),
        documents=np.asarray(documents, dtype=np.str_ if documents else "U1"),
        items=items,
        name=name,
        skipped=skipped,
    )


class SentenceGraphs:
    """Builds the graphs of one sentence's pairs; what does not depend on the pair is made once."""

    def __init__(self, sentence: Sentence) -> None:
        self.sentence = sentence
        kept = [item for item in sentence.dependencies if item[2] not in DROPPED_DEPENDENCIES]
        n_tokens = len(sentence.tokens)
        self.kinds = [kind for _, _, kind in kept]
        self.governors = np.asarray([governor for governor, _, _ in kept], dtype=np.int32)
        self.dependents = np.asarray([dependent for _, dependent, _ in kept], dtype=np.int32)
        self.in_name = {token for entity in sentence.entities.values() for token in entity.tokens}
        self._distance = self._distances(n_tokens)
        dependency = np.arange(n_tokens, n_tokens + len(kept), dtype=np.int32)
        order = np.arange(n_tokens + len(kept), 2 * n_tokens + len(kept), dtype=np.int32)
        self.sources = np.concatenate([self.governors, dependency, order[:-1]])
        self.targets = np.concatenate([dependency, self.dependents, order[1:]])

    def _distances(self, n_tokens: int) -> dict[int, np.ndarray]:
        """Undirected distance, in dependencies, from each token of a name to every token."""
        if not self.in_name:
            return {}
        sources = sorted(self.in_name)
        links = sparse.csr_array(
            (np.ones(len(self.kinds)), (self.governors, self.dependents)), shape=(n_tokens, n_tokens)
        )
        table = shortest_path(links, method="D", directed=False, unweighted=True, indices=sources)
        return dict(zip(sources, table, strict=True))

    def on_path(self, first: Iterable[int], second: Iterable[int]) -> np.ndarray:
        """Which dependencies lie on a shortest path between a token of one name and a token of the other."""
        on = np.zeros(len(self.kinds), dtype=bool)
        for start, end in itertools.product(first, second):
            from_start, from_end = self._distance[start], self._distance[end]
            length = from_start[end]
            if not np.isfinite(length):
                continue
            on |= from_start[self.governors] + 1 + from_end[self.dependents] == length
            on |= from_start[self.dependents] + 1 + from_end[self.governors] == length
        return on

    def __call__(self, pair: Pair) -> LabeledGraph:
        first, second = (entity.tokens for entity in Candidate(self.sentence, pair).names)
        on = self.on_path(first, second)
        path_tokens = set(self.governors[on].tolist()) | set(self.dependents[on].tolist())
        pair_starts, pair_ends = min(*first, *second), max(*first, *second)
        text = (
            dict.fromkeys(self.in_name, "PROT")
            | dict.fromkeys(second, "PROT2")
            | dict.fromkeys(first, "PROT1")
        )

        dependency_side: list[tuple[str, ...]] = []
        order_side: list[tuple[str, ...]] = []
        for number, token in enumerate(self.sentence.tokens):
            word = text.get(number, token.text)
            tag = ON_PATH if number in path_tokens else ""
            place = BEFORE if number < pair_starts else AFTER if number > pair_ends else MIDDLE
            dependency_side.append((word + tag, token.tag + tag))
            order_side.append((word + place, token.tag + place))
        kinds: list[tuple[str, ...]] = [
            (kind + ON_PATH,) if tagged else (kind,) for kind, tagged in zip(self.kinds, on, strict=True)
        ]
        weights = np.where(on, PATH_WEIGHT, OTHER_WEIGHT)
        n_order = max(len(order_side) - 1, 0)
        return LabeledGraph.from_arrays(
            dependency_side + kinds + order_side,
            self.sources,
            self.targets,
            np.concatenate([weights, weights, np.full(n_order, ORDER_WEIGHT)]),
            name=pair.id,
        )
