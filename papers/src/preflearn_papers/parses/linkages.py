"""Sentences with their candidate parses, and the files that hold them.

A parse is a linkage, as a link grammar gives it: labelled links between the tokens of a sentence, without direction.
Where the right links are known, the quality of a parse is its agreement with them,

    F = 2 |links ∩ gold| / (|links| + |gold|),

and the parses of one sentence are to be ordered by F: each sentence is a query.

A file has one sentence per line, as JSON (``.jsonl``, plain or compressed):

    {"sentence": "s1", "document": "d1", "tokens": [["The", "DT"], ["cell", "NN"], ["grows", "VBZ"]],
     "gold": [[0, 1], [1, 2]],
     "parses": [{"links": [[0, 1, "Ds"], [1, 2, "Ss"]], "unused": 0, "disjunct": 0.5, "length": 2, "f": 1.0}]}

``tokens`` and ``parses`` are required. A token is its text and its part of speech ("" where it is unknown); ``f`` is
missing or null where the right parse is unknown. Other keys are ignored.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, NamedTuple, NoReturn

import numpy as np

from preflearn.graphs import LabeledGraph
from preflearn.tables.streams import DAMAGED, compression_of, open_plain

# A longer line, sentence or list of parses means a damaged file, or one made to exhaust memory.
MAX_LINE_BYTES = 16 << 20
MAX_TOKENS = 1_000
MAX_PARSES = 10_000
MAX_FILE_BYTES = 2 << 30


class Token(NamedTuple):
    """A word or a punctuation mark, and its part of speech ("" where it is unknown)."""

    text: str
    tag: str = ""


class Link(NamedTuple):
    """A labelled link between the tokens ``left`` < ``right``."""

    left: int
    right: int
    label: str

    @property
    def kind(self) -> str:
        """The capital letters that the label starts with: "Ds**x" is a D.

        Examples
        --------
        >>> Link(0, 1, "MVp").kind
        'MV'
        """
        label = self.label
        end = next((at for at, letter in enumerate(label) if not letter.isupper()), len(label))
        return label[:end] or label


@dataclass(frozen=True)
class Linkage:
    """One parse of a sentence.

    Attributes
    ----------
    tokens : tuple of Token
        Of the sentence; parses of one sentence share them.
    links : tuple of Link
    unused : int
        Tokens that the parser could not link.
    disjunct : float
        The parser's cost of the words' connectors; smaller is better.
    length : float
        Sum of the lengths of all links; smaller is better.
    score : float or None
        How good the parse is; None where that is unknown.
    """

    tokens: tuple[Token, ...]
    links: tuple[Link, ...]
    unused: int = 0
    disjunct: float = 0.0
    length: float = 0.0
    score: float | None = None

    def graph(self, edge_weight: float = 0.9, *, name: str | None = None) -> LabeledGraph:
        """Tokens and links as vertices, each link between its left and its right token.

        A token is labelled with its text in lower case and its part of speech, a link with its label and its kind.
        Edges go from left to right, so that the sum over walks of every length always exists.

        Parameters
        ----------
        edge_weight : float, default=0.9
        name : str, optional

        Returns
        -------
        LabeledGraph

        Examples
        --------
        >>> linkage = Linkage((Token("Cells", "NNS"), Token("grow", "VBP")), (Link(0, 1, "Sp"),))
        >>> linkage.graph().labels
        (('cells', 'NNS'), ('grow', 'VBP'), ('Sp', 'S'))
        """
        labels: list[list[str]] = [[token.text.lower(), *filter(None, [token.tag])] for token in self.tokens]
        edges = []
        for link in self.links:
            vertex = len(labels)
            labels.append([link.label, link.kind])
            edges += [(link.left, vertex, edge_weight), (vertex, link.right, edge_weight)]
        return LabeledGraph(labels, edges, name=name)

    def __str__(self) -> str:
        words = [token.text for token in self.tokens]
        return ", ".join(f"{words[i]} –{label}– {words[j]}" for i, j, label in self.links)


@dataclass(frozen=True)
class Sentence:
    """A sentence and its candidate parses.

    Attributes
    ----------
    id, document : str
    tokens : tuple of Token
    linkages : tuple of Linkage
    gold : tuple of (int, int), or None
        The right links, without labels, where they are known.
    """

    id: str
    document: str
    tokens: tuple[Token, ...]
    linkages: tuple[Linkage, ...]
    gold: tuple[tuple[int, int], ...] | None = None

    @property
    def text(self) -> str:
        """The tokens, joined by spaces."""
        return " ".join(token.text for token in self.tokens)


class ParseRanking(NamedTuple):
    """Parses of many sentences one after the other, as rows of a ranking."""

    linkages: list[Linkage]
    y: np.ndarray
    qid: np.ndarray


def as_ranking(sentences: Iterable[Sentence]) -> ParseRanking:
    """Parses, their scores and the number of their sentence.

    Parameters
    ----------
    sentences : iterable of Sentence

    Returns
    -------
    ParseRanking
        ``linkages, y, qid = as_ranking(sentences)``; an unknown score is NaN.
    """
    linkages: list[Linkage] = []
    qid: list[int] = []
    for number, sentence in enumerate(sentences):
        linkages += sentence.linkages
        qid += [number] * len(sentence.linkages)
    y = np.array([math.nan if one.score is None else one.score for one in linkages], dtype=np.float64)
    return ParseRanking(linkages, y, np.array(qid, dtype=np.int64))


def agreement(links: Iterable[Sequence[Any]], gold: Iterable[Sequence[Any]]) -> float:
    """F = 2 |links ∩ gold| / (|links| + |gold|) of the linked pairs of tokens; labels and direction do not count.

    Parameters
    ----------
    links, gold : iterable of sequences that start with two token numbers

    Returns
    -------
    float
        1 where neither has any link.

    Examples
    --------
    >>> agreement([(0, 1, "D"), (1, 2, "S")], [(1, 0)])
    0.6666666666666666
    """
    found, right = ({(min(i, j), max(i, j)) for i, j, *_ in pairs} for pairs in (links, gold))
    return 2 * len(found & right) / (len(found) + len(right)) if found or right else 1.0


def read_linkages(path: str | Path) -> list[Sentence]:
    """Read sentences and their parses from a file of JSON lines.

    Parameters
    ----------
    path : str or Path
        Plain, or compressed with gzip, bzip2, xz or zstd. The format is described at the top of this module.

    Returns
    -------
    list of Sentence

    Raises
    ------
    ValueError
        With the file, the line and what is wrong: malformed JSON, links that lead outside the sentence, a sentence that
        occurs twice, a line, a sentence or a file too large to be one of this kind.
    """
    return list(iter_linkages(path))


def iter_linkages(path: str | Path) -> Iterator[Sentence]:
    """Yield the sentences of a file one at a time; see `read_linkages`."""
    seen: set[str] = set()
    with open_plain(path, compression_of(path)) as (_, file):
        for at, line in _lines(path, file):
            sentence = _Reader(path, at).sentence(line)
            if sentence.id in seen:
                raise ValueError(f"{path}, line {at}: the sentence {sentence.id!r} occurs twice.")
            seen.add(sentence.id)
            yield sentence


def _lines(path: str | Path, file: IO[bytes]) -> Iterator[tuple[int, bytes]]:
    """Numbered lines that are not blank; refuses what is too long before reading all of it into memory."""
    total, at = 0, 0
    while True:
        try:
            line = file.readline(MAX_LINE_BYTES + 1)
        except DAMAGED as error:
            raise ValueError(f"{path} is damaged after line {at}: {error}.") from error
        if not line:
            return
        at += 1
        total += len(line)
        if len(line) > MAX_LINE_BYTES:
            raise ValueError(
                f"{path}, line {at} is longer than {MAX_LINE_BYTES >> 20} MiB: expected one sentence."
            )
        if total > MAX_FILE_BYTES:
            raise ValueError(
                f"{path} holds more than {MAX_FILE_BYTES >> 30} GiB: split it and read the parts in turn."
            )
        if line.strip():
            yield at, line


@dataclass(frozen=True)
class _Reader:
    """Reads one line; every refusal names the file and the line."""

    path: str | Path
    at: int

    def refuse(self, what: str) -> NoReturn:
        raise ValueError(f"{self.path}, line {self.at}: {what}")

    def sentence(self, line: bytes) -> Sentence:
        try:
            found = json.loads(line.decode("utf-8"))
        except UnicodeDecodeError:
            self.refuse("found bytes that are not valid UTF-8.")
        except (ValueError, RecursionError) as error:
            self.refuse(f"expected one JSON object per line: {error}.")
        if not isinstance(found, dict):
            self.refuse(f"expected a JSON object, found {type(found).__name__}.")
        tokens = tuple(map(self.token, self.list_of(found, "tokens", MAX_TOKENS)))
        if not tokens:
            self.refuse("the sentence has no tokens.")
        gold = None
        if found.get("gold") is not None:
            pairs = self.list_of(found, "gold", MAX_TOKENS**2)
            gold = tuple(self.ends(pair, len(tokens), 2, "gold link") for pair in pairs)
        parses = self.list_of(found, "parses", MAX_PARSES)
        return Sentence(
            id=self.text(found, "sentence", f"line {self.at}"),
            document=self.text(found, "document", ""),
            tokens=tokens,
            linkages=tuple(self.linkage(parse, tokens) for parse in parses),
            gold=gold,
        )

    def list_of(self, found: dict[str, Any], key: str, limit: int) -> list[Any]:
        value = found.get(key)
        if not isinstance(value, list):
            what = "is missing" if key not in found else f"is a {type(value).__name__}"
            self.refuse(f"{key!r} {what}: expected a list.")
        if len(value) > limit:
            self.refuse(f"{key!r} has {len(value)} entries: expected at most {limit}.")
        return value

    def text(self, found: dict[str, Any], key: str, otherwise: str) -> str:
        value = found.get(key, otherwise)
        if not isinstance(value, str):
            self.refuse(f"{key!r} is {value!r}: expected a text.")
        return value

    def number(self, found: dict[str, Any], key: str) -> float:
        value = found.get(key, 0.0)
        # NaN lies in no range.
        if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < 1e300:
            self.refuse(f"{key!r} of a parse is {value!r}: expected a finite number.")
        return value

    def token(self, value: Any) -> Token:
        if not (isinstance(value, list) and len(value) == 2 and all(isinstance(x, str) for x in value)):
            self.refuse(f"found the token {value!r}: expected [text, part of speech].")
        if not value[0]:
            self.refuse("found a token without text.")
        return Token(*value)

    def ends(self, value: Any, n_tokens: int, length: int, what: str) -> tuple[int, int]:
        if not (isinstance(value, list) and len(value) == length):
            shown = "[i, j]" if length == 2 else "[i, j, label]"
            self.refuse(f"found the {what} {value!r}: expected {shown}.")
        i, j = value[:2]
        whole = all(isinstance(end, int) and not isinstance(end, bool) for end in (i, j))
        if not whole or not 0 <= i < j < n_tokens:
            self.refuse(
                f"the {what} {value!r} does not join two tokens from left to right: they are numbered 0 to "
                f"{n_tokens - 1}."
            )
        return i, j

    def linkage(self, value: Any, tokens: tuple[Token, ...]) -> Linkage:
        if not isinstance(value, dict):
            self.refuse(f"found the parse {value!r}: expected a JSON object.")
        links = []
        for given in self.list_of(value, "links", MAX_TOKENS**2):
            left, right = self.ends(given, len(tokens), 3, "link")
            if not isinstance(given[2], str) or not given[2]:
                self.refuse(f"the link {given!r} has no label: expected [i, j, label].")
            links.append(Link(left, right, given[2]))
        unused = self.number(value, "unused")
        if unused != int(unused) or unused < 0:
            self.refuse(f"'unused' of a parse is {unused!r}: expected a whole number.")
        return Linkage(
            tokens=tokens,
            links=tuple(links),
            unused=int(unused),
            disjunct=float(self.number(value, "disjunct")),
            length=float(self.number(value, "length")),
            score=None if value.get("f") is None else float(self.number(value, "f")),
        )
