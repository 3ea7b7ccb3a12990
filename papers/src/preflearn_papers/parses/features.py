"""Sparse features of a parse: what its links join, where, and which links meet at a token.

Each feature is a statement about one link, or about one token with its links, and the value is how often it is true in
the parse. The score of a linear model is then a sum over links and tokens, as F is up to its denominator: a weight says
how much a link of this kind, between such tokens, supports the parse.

=========  ===========================================================================================================
"links"    of a link: its label, its kind, the parts of speech and the words at its ends, its length, and pairs and
           triples of these; of a token without links: part of speech and word
"context"  these, and of a link: the parts of speech beside its ends and those between them; of a token: the kinds of
           all its links, their number, and pairs of links that are neighbours
=========  ===========================================================================================================

Label pairs and walks of any length are features of the graph of a parse (`Linkage.graph`) instead, by
`preflearn.graphs.AllPathsFeatures`: ``max_length=2`` counts the pairs of labels that are at most one link apart.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from numbers import Integral
from typing import Any, Self

import numpy as np
from scipy import sparse
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from preflearn.kernels.graphs.labeled_graph import each_of

from .linkages import Link, Linkage, Token

KINDS = ("links", "context")
TAGS = ("given", "spelling")
_EDGE = "#"  # the part of speech before the first and after the last token


class LinkFeatures(TransformerMixin, BaseEstimator):
    """Parses to sparse rows of counts.

    Parameters
    ----------
    kind : {"context", "links"}
        Which features; they are listed in the table at the top of `preflearn_papers.parses.features`.
    tags : {"given", "spelling"}
        The parts of speech that the tokens carry, or classes of words by their spelling (`spelling_tag`), which need no
        tagger: for text without tags.
    min_count : int, default=2
        Features that occur in fewer training parses get no column.
    normalize : bool, default=True
        Divide each row by the length of the parse's whole row, features without a column included, so that long and
        short sentences have the same weight.

    Attributes
    ----------
    names_ : list of str
        The features in ascending order: one column each.
    n_features_out_ : int

    Notes
    -----
    O(features) for each parse. Adjacent parses of one sentence share the features of the links that they share.

    Examples
    --------
    >>> tokens = (Token("cells", "NNS"), Token("grow", "VBP"))
    >>> parse = Linkage(tokens, (Link(0, 1, "Sp"),))
    >>> features = LinkFeatures("links", min_count=1, normalize=False)
    >>> features.fit_transform([parse]).toarray()
    array([[1., 1., 1., 1., 1., 1., 1., 1., 1., 1., 1., 1.]])
    >>> features.get_feature_names_out()[:3].tolist()
    ['"cells" "grow"', '"cells" VBP', 'NNS "grow"']
    """

    def __init__(
        self, kind: str = "context", *, tags: str = "given", min_count: int = 2, normalize: bool = True
    ) -> None:
        self.kind = kind
        self.tags = tags
        self.min_count = min_count
        self.normalize = normalize

    def fit(self, X: Iterable[Linkage], y: Any = None) -> Self:
        """Learn which features occur."""
        self.fit_transform(X)
        return self

    def fit_transform(self, X: Iterable[Linkage], y: Any = None) -> sparse.csr_array:
        """``fit`` and ``transform`` of the same parses, computing each once."""
        self._check_parameters()
        numbers: dict[str, int] = {}
        rows = list(self._rows(X, lambda name: numbers.setdefault(name, len(numbers))))
        counts = np.zeros(len(numbers), dtype=np.int64)
        for ids, _ in rows:
            counts[ids] += 1
        names = list(numbers)
        kept = sorted(np.flatnonzero(counts >= self.min_count).tolist(), key=names.__getitem__)
        self.names_ = [names[number] for number in kept]
        self.n_features_out_ = len(kept)
        column = np.full(len(numbers), -1)
        column[kept] = np.arange(len(kept))
        return self._stack((column[ids], values) for ids, values in rows)

    def transform(self, X: Iterable[Linkage]) -> sparse.csr_array:
        """Sparse rows, one for each parse, with ``n_features_out_`` columns."""
        self._check_parameters()
        check_is_fitted(self, "names_")
        known = {name: column for column, name in enumerate(self.names_)}
        n_known = len(known)
        # Features without a column get numbers after those with one: they count in the length of the row.
        rows = self._rows(X, lambda name: known.setdefault(name, len(known)))
        return self._stack((np.where(ids < n_known, ids, -1), values) for ids, values in rows)

    def get_feature_names_out(self, input_features: Any = None) -> np.ndarray:
        """The features, one for each column."""
        check_is_fitted(self, "names_")
        return np.array(self.names_, dtype=object)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = False
        return tags

    def _fitted_arrays(self) -> dict[str, str]:
        """The shapes that loaded features are checked for (`preflearn.tables.models.fitted`)."""
        if "names_" not in vars(self):
            return {}
        if isinstance(self.names_, list) and len(self.names_) != self.n_features_out_:
            raise ValueError(f"n_features_out_ is {self.n_features_out_}, expected {len(self.names_)}")
        return {"names_": "texts", "n_features_out_": ""}

    def _check_parameters(self) -> None:
        for name, allowed in (("kind", KINDS), ("tags", TAGS)):
            value = getattr(self, name)
            if value not in allowed:
                raise ValueError(f"{name} must be one of {', '.join(map(repr, allowed))}: found {value!r}.")
        if not isinstance(self.min_count, Integral) or self.min_count < 1:
            raise ValueError(f"min_count must be an integer of at least 1: found {self.min_count!r}.")

    def _rows(
        self, X: Iterable[Linkage], number_of: Callable[[str], int]
    ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Numbers of the features of each parse, ascending, and their values."""
        sentence: _SentenceFeatures | None = None
        for linkage in as_linkages(X):
            if sentence is None or sentence.tokens is not linkage.tokens:
                sentence = _SentenceFeatures(
                    linkage.tokens, self.tags == "spelling", self.kind == "context", number_of
                )
            ids, counts = np.unique(sentence.features(linkage), return_counts=True)
            values = counts.astype(np.float64)
            if self.normalize and values.size:
                values /= np.sqrt(values @ values)
            yield ids, values

    def _stack(self, rows: Iterable[tuple[np.ndarray, np.ndarray]]) -> sparse.csr_array:
        starts, columns, values = [0], [], []
        for ids, row in rows:
            # -1 marks a column that does not exist.
            kept = ids >= 0
            columns.append(ids[kept])
            values.append(row[kept])
            starts.append(starts[-1] + columns[-1].shape[0])
        data = np.concatenate(values) if values else np.empty(0)
        indices = np.concatenate(columns).astype(np.int32) if columns else np.empty(0, np.int32)
        shape = (len(columns), self.n_features_out_)
        features = sparse.csr_array((data, indices, np.asarray(starts, dtype=np.int32)), shape=shape)
        features.sort_indices()
        return features


def as_linkages(X: Iterable[Any]) -> Iterator[Linkage]:
    """Yield parses, refusing anything else with its position."""
    remedy = "A sentence has them in `linkages`; as_ranking(sentences) joins those of many sentences."
    return each_of(Linkage, X, "linkage", remedy)


class _SentenceFeatures:
    """Features of the parses of one sentence, those of a link computed once."""

    def __init__(
        self, tokens: tuple[Token, ...], by_spelling: bool, context: bool, number_of: Callable[[str], int]
    ) -> None:
        self.tokens = tokens
        self.words = [token.text.lower() for token in tokens]
        self.tags = [spelling_tag(token.text) if by_spelling else token.tag for token in tokens]
        self.context = context
        self.number_of = number_of
        self.of_link: dict[Link, tuple[str, list[int]]] = {}
        self.of_token: dict[tuple[int, tuple[tuple[int, str], ...]], list[int]] = {}

    def features(self, linkage: Linkage) -> np.ndarray:
        found: list[int] = []
        at_token: list[list[tuple[int, str]]] = [[] for _ in self.tokens]
        for link in linkage.links:
            if link not in self.of_link:
                self.of_link[link] = link.kind, [self.number_of(name) for name in self._link(link)]
            kind, numbers = self.of_link[link]
            found += numbers
            at_token[link.left].append((link.right, kind + "+"))
            at_token[link.right].append((link.left, kind + "-"))
        for token, joined in enumerate(at_token):
            key = (token, tuple(sorted(joined)))
            if key not in self.of_token:
                self.of_token[key] = [self.number_of(name) for name in self._token(*key)]
            found += self.of_token[key]
        return np.asarray(found, dtype=np.int64)

    def _link(self, link: Link) -> list[str]:
        i, j, label = link
        kind, length = link.kind, length_class(j - i)
        (w, v), (s, t) = (self.words[i], self.words[j]), (self.tags[i], self.tags[j])
        names = [
            f"label {label}",
            f"kind {kind}",
            f"{s} {t}",
            f"{kind}: {s} {t}",
            f"label {label}: {s} {t}",
            f'{kind}: "{w}" _',
            f'{kind}: _ "{v}"',
            f'"{w}" "{v}"',
            f'"{w}" {t}',
            f'{s} "{v}"',
            f"{kind} at {length}",
            f"{s} {t} at {length}",
        ]
        return names + self._around(i, j, kind, length) if self.context else names

    def _around(self, i: int, j: int, kind: str, length: int) -> list[str]:
        padded = [_EDGE, *self.tags, _EDGE]
        (w, v), (s, t) = (self.words[i], self.words[j]), (self.tags[i], self.tags[j])
        before_s, after_s, before_t, after_t = padded[i], padded[i + 2], padded[j], padded[j + 2]
        between = sorted(set(self.tags[i + 1 : j]))
        return [
            f"[{s}] {after_s} .. {before_t} [{t}]",
            f"{before_s} [{s}] .. [{t}] {after_t}",
            f"[{s}] {after_s} .. [{t}] {after_t}",
            f"{before_s} [{s}] .. {before_t} [{t}]",
            f"[{s}] {after_s} .. [{t}]",
            f"[{s}] .. {before_t} [{t}]",
            f"{before_s} [{s}] .. [{t}]",
            f"[{s}] .. [{t}] {after_t}",
            f'"{w}" {t} at {length}',
            f'{s} "{v}" at {length}',
            f"{kind}: {s} {t} at {length}",
            *(f"{s} ({x}) {t}" for x in between),
            *(f"{kind} ({x})" for x in between),
        ]

    def _token(self, token: int, joined: tuple[tuple[int, str], ...]) -> list[str]:
        word, tag = self.words[token], self.tags[token]
        names = [] if joined else [f"{tag} alone", f'"{word}" alone']
        if not self.context:
            return names
        names += [
            f"{tag} has " + " ".join(kind for _, kind in joined),
            f"{tag} has {len(joined)} links",
            f'"{word}" has {len(joined)} links',
        ]
        for (a, first), (b, second) in zip(joined, joined[1:], strict=False):
            on_left = (a < token) + (b < token)
            names += [
                f"{tag}: {first} then {second}",
                f"{first} then {second}",
                f"{tag} between {self.tags[a]} and {self.tags[b]}, {on_left} left",
            ]
        return names


def length_class(length: int) -> int:
    """1 to 5 as they are, then the smallest of 6 to 7, 8 to 10, 11 to 15, 16 and more."""
    return length if length <= 5 else next(low for low in (16, 11, 8, 6) if length >= low)


_FUNCTION_WORDS = frozenset(
    "a an the this that these those it its they their we our he she i you of in on at by for from with without to into "
    "onto over under between among through during after before against via as than but and or nor not no if whether "
    "while when where which who whose what how because although is are was were be been being am has have had do does "
    "did can could may might must shall should will would both either neither each all some any only also such more "
    "most there then thus however".split()
)
_ENDINGS = (
    "ing",
    "tion",
    "ment",
    "ness",
    "ity",
    "ase",
    "in",
    "ly",
    "ed",
    "al",
    "ic",
    "ive",
    "ous",
    "ble",
    "s",
)


def spelling_tag(text: str) -> str:
    """A class of words by their spelling, used in place of a part of speech.

    Every function word is its own class; others are classified by digits, capitals and their ending.

    Examples
    --------
    >>> [spelling_tag(word) for word in ("The", "profilin", "binds", "p53", "slowly", ",")]
    ['the', '-in', '-s', '0', '-ly', ',']
    """
    word = text.lower()
    if word in _FUNCTION_WORDS or not re.search(r"\w", word):
        return word
    if re.search(r"\d", word):
        return "0"
    if sum(letter.isupper() for letter in text) > 1:
        return "A"
    ending = next((end for end in _ENDINGS if len(word) > len(end) + 2 and word.endswith(end)), "")
    return f"-{ending}"
