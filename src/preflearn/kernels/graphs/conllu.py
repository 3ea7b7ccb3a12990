"""Sentences of a CoNLL-U file: words with parts of speech, and dependencies between them.

Ten tab-separated columns per word (ID FORM LEMMA UPOS XPOS FEATS HEAD DEPREL DEPS MISC), comment lines that start with
``#``, a blank line after each sentence. Multi-word ranges (``3-4``) and empty nodes (``5.1``) are skipped.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, cast

from ...tables.streams import compression_of, open_plain
from .labeled_graph import LabeledGraph

_N_COLUMNS = 10


@dataclass(frozen=True)
class ParsedSentence:
    """Words and dependencies of one sentence.

    Attributes
    ----------
    name : str
        ``sent_id``, or the file and the sentence's number.
    text : str
        The ``text`` comment, or the forms joined by the spaces that MISC specifies.
    forms, tags : tuple of str
        Form and part of speech of each word.
    spans : tuple of (int, int)
        First character of each word in the text and the one after its last.
    dependencies : tuple of (int, int, str)
        Governor, dependent (word numbers from 0) and relation; the root relation is left out.
    comments : dict
        All ``# key = value`` comments.
    line : int
        Where the sentence starts in the file.
    """

    name: str
    text: str
    forms: tuple[str, ...]
    tags: tuple[str, ...]
    spans: tuple[tuple[int, int], ...]
    dependencies: tuple[tuple[int, int, str], ...]
    comments: dict[str, str]
    line: int

    def graph(self, edge_weight: float) -> LabeledGraph:
        """Words and dependencies as vertices, governor → dependency → dependent."""
        labels = [[form, tag] for form, tag in zip(self.forms, self.tags, strict=True)]
        edges = []
        for governor, dependent, relation in self.dependencies:
            vertex = len(labels)
            labels.append([relation])
            edges += [(governor, vertex, edge_weight), (vertex, dependent, edge_weight)]
        return LabeledGraph(labels, edges, name=self.name)


def read_conllu(path: str | Path, *, enhanced: bool = False) -> Iterator[ParsedSentence]:
    """Yield the sentences of a CoNLL-U file, plain or compressed (gzip, xz).

    Raises
    ------
    ValueError
        With the file and the line, where a line does not follow the format.
    """
    comments: dict[str, str] = {}
    rows: list[tuple[int, list[str]]] = []
    number = 0
    with open_plain(path, compression_of(path)) as (_, file):
        for at, line in enumerate(io.TextIOWrapper(cast(BinaryIO, file), encoding="utf-8"), start=1):
            line = line.rstrip("\r\n")
            if line.startswith("#"):
                key, _, value = line[1:].partition("=")
                comments[key.strip()] = value.strip()
            elif line.strip():
                rows.append((at, _columns(path, at, line)))
            elif rows:
                number += 1
                yield _sentence(path, number, comments, rows, enhanced)
                comments, rows = {}, []
        if rows:
            yield _sentence(path, number + 1, comments, rows, enhanced)


def _columns(path: str | Path, at: int, line: str) -> list[str]:
    columns = line.split("\t")
    if len(columns) != _N_COLUMNS:
        raise ValueError(
            f"{path}, line {at}: a CoNLL-U word has {_N_COLUMNS} tab-separated columns, found {len(columns)}."
        )
    return columns


def _sentence(
    path: str | Path,
    number: int,
    comments: dict[str, str],
    rows: list[tuple[int, list[str]]],
    enhanced: bool,
) -> ParsedSentence:
    words = [(at, columns) for at, columns in rows if columns[0].isdigit()]
    place = {columns[0]: index for index, (_, columns) in enumerate(words)}
    dependencies = []
    for index, (at, columns) in enumerate(words):
        for head, relation in _heads(columns, enhanced):
            if head == "0" or "." in head:
                continue
            if head not in place:
                raise ValueError(
                    f"{path}, line {at}: word {columns[0]} depends on word {head!r}, which does not exist."
                )
            dependencies.append((place[head], index, relation))
    text, spans = _text(path, comments, words)
    return ParsedSentence(
        name=comments.get("sent_id", f"{path}:{number}"),
        text=text,
        forms=tuple(columns[1] for _, columns in words),
        tags=tuple(columns[4] if columns[4] != "_" else columns[3] for _, columns in words),
        spans=spans,
        dependencies=tuple(dependencies),
        comments=comments,
        line=rows[0][0],
    )


def _heads(columns: list[str], enhanced: bool) -> list[tuple[str, str]]:
    if not enhanced:
        return [] if columns[6] == "_" else [(columns[6], columns[7])]
    if columns[8] == "_":
        return []
    parts = [item.partition(":") for item in columns[8].split("|")]
    return [(head, relation) for head, _, relation in parts]


def _text(
    path: str | Path, comments: dict[str, str], words: list[tuple[int, list[str]]]
) -> tuple[str, tuple[tuple[int, int], ...]]:
    """The sentence and the position of each word in it."""
    text = comments.get("text")
    if text is None:
        text = "".join(
            columns[1] + ("" if "SpaceAfter=No" in columns[9].split("|") else " ") for _, columns in words
        ).rstrip()
    spans = []
    start = 0
    for _, columns in words:
        found = text.find(columns[1], start)
        if found < 0:
            # Words inside a contraction ("du" = de + le) are not letters of the text: they share its position.
            found, end = start, start
        else:
            end = found + len(columns[1])
        spans.append((found, end))
        start = end
    return text, tuple(spans)
