"""Parsed sentences with protein names and candidate pairs, read from files.

Two kinds of input give the same objects: the unified XML of the five interaction corpora (Pyysalo et al. 2008, with
dependency parses), and CoNLL-U with a table of entities, which any current parser can produce.
"""

from __future__ import annotations

import csv
import io
import itertools
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, cast
from xml.parsers import expat

from preflearn.kernels.graphs.conllu import read_conllu
from preflearn.tables.streams import DAMAGED, compression_of, open_plain

PREFERRED_PARSER = "split_parse"
_CHUNK = 1 << 16
_OFFSET = re.compile(r"(\d+)-(\d+)")


class CorpusError(ValueError):
    """Input that cannot be used; the message names the file, the line and what is wrong."""


@dataclass(frozen=True)
class Token:
    """One token; ``text[start:end]`` of its sentence."""

    text: str
    tag: str
    start: int
    end: int


@dataclass(frozen=True)
class Entity:
    """A protein name: its pieces as (start, end) slices of the sentence, and the tokens that they touch."""

    id: str
    text: str
    spans: tuple[tuple[int, int], ...]
    tokens: tuple[int, ...] = ()


@dataclass(frozen=True)
class Pair:
    """A candidate: two entities of a sentence, and whether they interact (None: unknown)."""

    id: str
    e1: str
    e2: str
    interaction: bool | None


@dataclass(frozen=True)
class Sentence:
    """A parsed sentence; dependencies are (governor, dependent, type) with token numbers."""

    id: str
    document: str
    text: str
    tokens: tuple[Token, ...]
    dependencies: tuple[tuple[int, int, str], ...]
    entities: dict[str, Entity]
    pairs: tuple[Pair, ...]


@dataclass
class Corpus:
    """Sentences in file order; ``skipped`` lists what was left out and why."""

    name: str
    sentences: list[Sentence] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)

    @property
    def documents(self) -> list[str]:
        """Document ids in order of appearance, including those without a candidate pair."""
        return list(dict.fromkeys(sentence.document for sentence in self.sentences))

    @property
    def n_pairs(self) -> int:
        return sum(len(sentence.pairs) for sentence in self.sentences)

    @property
    def n_positive(self) -> int:
        return sum(pair.interaction is True for sentence in self.sentences for pair in sentence.pairs)

    def __repr__(self) -> str:
        return (
            f"Corpus({self.name!r}: {len(self.documents)} documents, {len(self.sentences)} sentences, "
            f"{self.n_pairs} pairs, {self.n_positive} of them interactions)"
        )


def read_corpus(path: str | Path, *, parser: str | None = None, skip_bad: bool = False) -> Corpus:
    """Read a corpus in the unified XML format.

    Parameters
    ----------
    path : str or Path
        XML, plain or compressed with gzip or xz.
    parser : str, optional
        Which analysis to use: the ``parser`` attribute of a ``parse``. None takes ``"split_parse"`` where a sentence
        has it (hyphenated words that contain a name are split, as in the published system), otherwise the only parse.
    skip_bad : bool
        False: the first sentence or pair that cannot be used raises an error. True: it is left out and listed in
        ``skipped``. XML that is not well-formed raises an error in both cases.

    Returns
    -------
    Corpus

    Raises
    ------
    CorpusError
        With the file, the line and what is wrong.

    Notes
    -----
    The file is parsed as a stream: memory is that of the sentences. A document type declaration is refused, so
    that no entity can be expanded and nothing outside the file is read. Offsets in the file are 0-based with both
    ends inclusive; a token belongs to an entity when they share a character. Pairs of an entity with itself are
    left out.
    """
    corpus = Corpus(name=Path(path).name)
    reader = _XMLReader(path, parser, corpus.skipped if skip_bad else None)
    corpus.sentences.extend(reader)
    corpus.name = reader.source or corpus.name
    return corpus


def iter_sentences(
    path: str | Path, *, parser: str | None = None, skip_bad: bool = False
) -> Iterator[Sentence]:
    """The sentences of `read_corpus`, one at a time as the file is read."""
    return iter(_XMLReader(path, parser, [] if skip_bad else None))


class _XMLReader:
    """Stream of sentences from one XML file, on Expat events.

    Children of a sentence are collected by tag, in any order, and checked when it ends.
    """

    def __init__(self, path: str | Path, parser: str | None, skipped: list[str] | None) -> None:
        self.path = path
        self.parser = parser
        self.skipped = skipped
        self.source: str | None = None
        self._document: str | None = None
        self._sentence: dict[str, Any] | None = None
        self._finished: list[Sentence] = []
        self._expat = expat.ParserCreate()
        self._expat.StartElementHandler = self._start
        self._expat.EndElementHandler = self._end
        self._expat.StartDoctypeDeclHandler = self._refuse_doctype
        self._depth = 0

    def __iter__(self) -> Iterator[Sentence]:
        try:
            with open_plain(self.path, compression_of(self.path)) as (_, file):
                while chunk := file.read(_CHUNK):
                    self._feed(chunk, False)
                    yield from self._take()
            self._feed(b"", True)
            yield from self._take()
        except DAMAGED as error:
            if isinstance(error, (FileNotFoundError, PermissionError, IsADirectoryError)):
                raise
            raise CorpusError(
                f"{self.path}: the compressed data are damaged or cut short ({error})."
            ) from error

    def _take(self) -> list[Sentence]:
        finished, self._finished = self._finished, []
        return finished

    def _feed(self, chunk: bytes, final: bool) -> None:
        try:
            self._expat.Parse(chunk, final)
        except expat.ExpatError as error:
            what = expat.ErrorString(error.code)
            raise CorpusError(
                f"{self.path}, line {error.lineno}: not well-formed XML ({what}). Expected corpus > document "
                "> sentence elements."
            ) from error

    def _refuse_doctype(self, *_: Any) -> None:
        raise CorpusError(
            f"{self.path}, line {self._line}: a document type declaration is not accepted, since its entities "
            "could expand without bound or read other files. Remove the <!DOCTYPE ...> part."
        )

    @property
    def _line(self) -> int:
        return self._expat.CurrentLineNumber

    def _start(self, tag: str, attributes: dict[str, str]) -> None:
        if self._depth == 0 and tag != "corpus":
            raise CorpusError(f"{self.path}, line {self._line}: expected a <corpus> element, found <{tag}>.")
        self._depth += 1
        if tag == "corpus":
            self.source = attributes.get("source")
        elif tag == "document":
            self._document = self._attribute(tag, attributes, "id")
        elif tag == "sentence":
            if self._document is None:
                raise CorpusError(f"{self.path}, line {self._line}: a <sentence> outside a <document>.")
            self._sentence = {"line": self._line, "attributes": attributes, "parses": {}, "tokenizations": {}}
            for child in ("entity", "pair"):
                self._sentence[child] = []
        elif self._sentence is not None:
            self._start_inside(tag, attributes)

    def _start_inside(self, tag: str, attributes: dict[str, str]) -> None:
        record = self._sentence
        assert record is not None
        if tag in ("entity", "pair"):
            record[tag].append((self._line, attributes))
        elif tag == "parse":
            name = attributes.get("parser", "")
            record["parses"][name] = record["parse"] = (attributes.get("tokenizer", ""), [])
        elif tag == "tokenization":
            record["tokenizations"][attributes.get("tokenizer", "")] = record["tokens"] = []
        elif tag == "dependency" and "parse" in record:
            record["parse"][1].append((self._line, attributes))
        elif tag == "token" and "tokens" in record:
            record["tokens"].append((self._line, attributes))

    def _end(self, tag: str) -> None:
        self._depth -= 1
        if tag == "document":
            self._document = None
        elif tag == "sentence" and self._sentence is not None:
            record, self._sentence = self._sentence, None
            try:
                self._finished.append(self._build(record))
            except CorpusError as error:
                if self.skipped is None:
                    raise
                self.skipped.append(str(error))

    def _attribute(self, tag: str, attributes: dict[str, str], name: str, line: int | None = None) -> str:
        if name not in attributes:
            known = attributes.get("id")
            which = f" {known!r}" if known else ""
            raise CorpusError(
                f"{self.path}, line {line or self._line}: <{tag}>{which} has no attribute {name!r}."
            )
        return attributes[name]

    def _build(self, record: dict[str, Any]) -> Sentence:
        line = record["line"]
        sentence_id = self._attribute("sentence", record["attributes"], "id", line)
        text = self._attribute("sentence", record["attributes"], "text", line)
        entities = {}
        for at, attributes in record["entity"]:
            entity_id = self._attribute("entity", attributes, "id", at)
            spans = self._spans("entity", attributes, at)
            entities[entity_id] = Entity(entity_id, attributes.get("text", ""), spans)
        tokens, dependencies = self._analysis(sentence_id, record)
        pairs = [(at, self._pair(at, attributes)) for at, attributes in record["pair"]]

        def problem(at: int, message: str) -> None:
            error = CorpusError(f"{self.path}, line {at}: {message}")
            if self.skipped is None:
                raise error
            self.skipped.append(str(error))

        assert self._document is not None
        return assemble(
            sentence_id,
            self._document,
            text,
            tokens,
            dependencies,
            entities,
            pairs,
            line=line,
            problem=problem,
        )

    def _spans(self, tag: str, attributes: dict[str, str], at: int) -> tuple[tuple[int, int], ...]:
        offsets = self._attribute(tag, attributes, "charOffset", at)
        spans = []
        for piece in offsets.split(","):
            match = _OFFSET.fullmatch(piece.strip())
            if match is None:
                raise CorpusError(
                    f"{self.path}, line {at}: the charOffset {offsets!r} of <{tag}> is not of the form first-last."
                )
            spans.append((int(match[1]), int(match[2]) + 1))
        return tuple(spans)

    def _pair(self, at: int, attributes: dict[str, str]) -> Pair:
        e1, e2 = (self._attribute("pair", attributes, name, at) for name in ("e1", "e2"))
        value = attributes.get("interaction")
        if value not in ("True", "False", None):
            raise CorpusError(
                f"{self.path}, line {at}: interaction must be 'True' or 'False'; found {value!r}."
            )
        return Pair(attributes.get("id", f"{e1}/{e2}"), e1, e2, None if value is None else value == "True")

    def _analysis(
        self, sentence_id: str, record: dict[str, Any]
    ) -> tuple[tuple[Token, ...], tuple[tuple[int, int, str], ...]]:
        """Tokens and dependencies of the chosen parse; a sentence without pairs may have none."""
        parses = record["parses"]
        name = self.parser if self.parser is not None else _preferred(parses)
        if name is None or name not in parses:
            if not record["pair"]:
                return (), ()
            wanted = (
                f"the parse {self.parser!r}"
                if self.parser is not None
                else "one parse, or one named split_parse"
            )
            raise CorpusError(
                f"{self.path}, line {record['line']}: sentence {sentence_id!r} has the parses "
                f"{sorted(parses)}; expected {wanted}."
            )
        tokenizer, rows = parses[name]
        if tokenizer not in record["tokenizations"]:
            raise CorpusError(
                f"{self.path}, line {record['line']}: the parse {name!r} of sentence {sentence_id!r} is over "
                f"the tokenization {tokenizer!r}, which does not exist."
            )
        place: dict[str, int] = {}
        tokens: list[Token] = []
        for at, attributes in record["tokenizations"][tokenizer]:
            place[self._attribute("token", attributes, "id", at)] = len(tokens)
            spans = self._spans("token", attributes, at)
            word, tag = (self._attribute("token", attributes, key, at) for key in ("text", "POS"))
            tokens.append(Token(word, tag, spans[0][0], spans[-1][1]))
        dependencies = []
        for at, attributes in rows:
            ends = [self._attribute("dependency", attributes, key, at) for key in ("t1", "t2")]
            for end in ends:
                if end not in place:
                    raise CorpusError(
                        f"{self.path}, line {at}: a dependency names the missing token {end!r}."
                    )
            kind = self._attribute("dependency", attributes, "type", at)
            dependencies.append((place[ends[0]], place[ends[1]], kind))
        return tuple(tokens), tuple(dependencies)


def _preferred(parses: dict[str, Any]) -> str | None:
    if PREFERRED_PARSER in parses:
        return PREFERRED_PARSER
    return next(iter(parses)) if len(parses) == 1 else None


def assemble(
    sentence_id: str,
    document: str,
    text: str,
    tokens: tuple[Token, ...],
    dependencies: tuple[tuple[int, int, str], ...],
    entities: dict[str, Entity],
    pairs: list[tuple[int, Pair]],
    *,
    line: int,
    problem: Callable[[int, str], None],
) -> Sentence:
    """Match entities with tokens and keep the pairs that can be used; `problem(line, message)` receives the others."""
    located = {}
    for entity in entities.values():
        touched = tuple(
            number
            for number, token in enumerate(tokens)
            if any(token.start < end and start < token.end for start, end in entity.spans)
        )
        located[entity.id] = Entity(entity.id, entity.text, entity.spans, touched)
    kept = []
    if pairs and not dependencies:
        problem(line, f"sentence {sentence_id!r} has candidate pairs but an empty parse.")
        pairs = []
    for at, pair in pairs:
        absent = [name for name in (pair.e1, pair.e2) if name not in located]
        homeless = [name for name in (pair.e1, pair.e2) if name in located and not located[name].tokens]
        if absent:
            problem(at, f"pair {pair.id!r} names the missing entity {absent[0]!r}.")
        elif homeless:
            problem(at, f"entity {homeless[0]!r} of pair {pair.id!r} matches no token of its sentence.")
        elif pair.e1 != pair.e2:
            kept.append(pair)
    return Sentence(sentence_id, document, text, tokens, dependencies, located, tuple(kept))


def read_conllu_corpus(
    conllu: str | Path,
    entities: str | Path,
    pairs: str | Path | None = None,
    *,
    enhanced: bool = False,
    skip_bad: bool = False,
) -> Corpus:
    """Read parses from CoNLL-U, protein names from a table and, where known, interactions from another.

    Parameters
    ----------
    conllu : str or Path
        Parsed sentences with ``# sent_id`` comments; ``# newdoc id = ...`` starts a document (without any, each
        sentence is a document of its own). Plain, gzip or xz.
    entities : str or Path
        Tab-separated with a header: ``sentence``, ``entity``, ``start``, ``end`` and optionally ``text``.
        Characters of the sentence's ``# text`` count from 0, ``end`` is the first character after the name. An
        entity in several pieces has several rows.
    pairs : str or Path, optional
        Tab-separated with a header: ``e1``, ``e2`` and optionally ``interaction`` (True or False). Without the
        file every two entities of a sentence are a candidate with unknown label.
    enhanced : bool
        Use the enhanced dependencies of the DEPS column.
    skip_bad : bool
        As in `read_corpus`.
    """
    corpus = Corpus(name=Path(conllu).name)
    names = _entity_table(entities)
    given = _pair_table(pairs, names) if pairs is not None else None
    seen: set[str] = set()
    document: str | None = None
    for parsed in read_conllu(conllu, enhanced=enhanced):
        document = parsed.comments.get("newdoc id", document)
        seen.add(parsed.name)

        def problem(at: int, message: str, file: str | Path = conllu) -> None:
            error = CorpusError(f"{file}, line {at}: {message}")
            if not skip_bad:
                raise error
            corpus.skipped.append(str(error))

        here = names.get(parsed.name, {})
        tokens = tuple(
            Token(form, tag, start, end)
            for form, tag, (start, end) in zip(parsed.forms, parsed.tags, parsed.spans, strict=True)
        )
        if given is None:
            candidates = [
                (parsed.line, Pair(f"{e1}/{e2}", e1, e2, None)) for e1, e2 in itertools.combinations(here, 2)
            ]
        else:
            candidates = given.get(parsed.name, [])
        corpus.sentences.append(
            assemble(
                parsed.name,
                document if document is not None else parsed.name,
                parsed.text,
                tokens,
                parsed.dependencies,
                here,
                candidates,
                line=parsed.line,
                problem=problem,
            )
        )
    absent = [name for name in names if name not in seen]
    if absent:
        message = f"{entities}: the sentence {absent[0]!r} is not in {conllu}."
        if not skip_bad:
            raise CorpusError(message)
        corpus.skipped += [f"{entities}: the sentence {name!r} is not in {conllu}." for name in absent]
    return corpus


def _rows(path: str | Path, needed: tuple[str, ...]) -> Iterator[tuple[int, dict[str, str]]]:
    with open_plain(path, compression_of(path)) as (_, file):
        lines = io.TextIOWrapper(cast(BinaryIO, file), encoding="utf-8")
        reader = csv.DictReader(lines, delimiter="\t", quoting=csv.QUOTE_NONE)
        missing = [name for name in needed if name not in (reader.fieldnames or ())]
        if missing:
            raise CorpusError(
                f"{path}, line 1: the header has no column {missing[0]!r}; expected tab-separated {', '.join(needed)}."
            )
        for row in reader:
            if any(row[name] is None for name in needed):
                raise CorpusError(f"{path}, line {reader.line_num}: fewer columns than the header.")
            yield reader.line_num, row


def _entity_table(path: str | Path) -> dict[str, dict[str, Entity]]:
    names: dict[str, dict[str, Entity]] = {}
    for at, row in _rows(path, ("sentence", "entity", "start", "end")):
        try:
            span = (int(row["start"]), int(row["end"]))
        except ValueError:
            raise CorpusError(
                f"{path}, line {at}: start and end must be numbers; found {row['start']!r}, {row['end']!r}."
            ) from None
        if not 0 <= span[0] < span[1]:
            raise CorpusError(
                f"{path}, line {at}: start must be less than end; found {span[0]} and {span[1]}."
            )
        here = names.setdefault(row["sentence"], {})
        before = here.get(row["entity"])
        spans = (*before.spans, span) if before else (span,)
        here[row["entity"]] = Entity(row["entity"], row.get("text") or "", spans)
    return names


def _pair_table(path: str | Path, names: dict[str, dict[str, Entity]]) -> dict[str, list[tuple[int, Pair]]]:
    home = {entity: sentence for sentence, here in names.items() for entity in here}
    pairs: dict[str, list[tuple[int, Pair]]] = {}
    for at, row in _rows(path, ("e1", "e2")):
        sentence = home.get(row["e1"])
        if sentence is None or home.get(row["e2"]) != sentence:
            raise CorpusError(
                f"{path}, line {at}: {row['e1']!r} and {row['e2']!r} are not entities of one sentence."
            )
        value = row.get("interaction") or None
        if value not in ("True", "False", None):
            raise CorpusError(f"{path}, line {at}: interaction must be True or False; found {value!r}.")
        pair = Pair(
            f"{row['e1']}/{row['e2']}", row["e1"], row["e2"], None if value is None else value == "True"
        )
        pairs.setdefault(sentence, []).append((at, pair))
    return pairs
