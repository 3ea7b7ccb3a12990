"""Parses of new text by link-grammar, where its command ``link-parser`` is installed.

The command is run as a separate process with a time limit: one sentence goes in, and its linkages come out in the
order of the parser's own costs, in the PostScript form that names words by number:

    [(LEFT-WALL)(the)(cell.n)(grows.v)(.)(RIGHT-WALL)]
    [[0 2 0 (Wd)][1 2 0 (Ds**c)][2 3 0 (Ss*s)]...]

The parser has its own tokens ("don't" is two). Its words are aligned with the tokens of the text by their spelling, so
that links join tokens; links to the walls, inside one token and at punctuation are left out. Linkages that are then the
same count once.
"""

from __future__ import annotations

import math
import re
import shutil
import subprocess
from collections.abc import Sequence

from .linkages import Link, Linkage, Sentence, Token

COMMAND = "link-parser"
MAX_TEXT = 2_000
MAX_OUTPUT = 64 << 20
_TOKEN = re.compile(r"\w+(?:[-'’./*+]\w+)*%?|[^\w\s]")
_HEAD = re.compile(r"Linkage \d+, cost vector = \(UNUSED=\s*(\d+) DIS=\s*(-?[\d.]+) LEN=\s*(\d+)\)")
_LINK = re.compile(r"\[(\d+) (\d+) \d+ \(([^()]*)\)\]")
_WALLS = ("LEFT-WALL", "RIGHT-WALL")


def is_installed() -> bool:
    """Whether the command ``link-parser`` is installed."""
    return shutil.which(COMMAND) is not None


def split_words(text: str) -> tuple[Token, ...]:
    """Words and marks of a text, without parts of speech.

    Examples
    --------
    >>> [token.text for token in split_words("Beta-catenin binds, doesn't it?")]
    ['Beta-catenin', 'binds', ',', "doesn't", 'it', '?']
    """
    return tuple(Token(word) for word in _TOKEN.findall(text))


def parse_text(text: str, *, limit: int = 200, timeout: float = 20.0, dictionary: str = "en") -> Sentence:
    """The linkages of one sentence, in the parser's own order.

    Parameters
    ----------
    text : str
        One sentence, of at most 2000 characters.
    limit : int, default=200
        Maximum number of linkages.
    timeout : float, default=20.0
        Seconds after which the parser is stopped.
    dictionary : str, default="en"
        A language of link-grammar.

    Returns
    -------
    Sentence
        With no linkage where the parser finds none.

    Raises
    ------
    ImportError
        If link-grammar is not installed; the message says how to get it.
    ValueError
        If the text is empty or too long, has line breaks, or the parser does not know the dictionary.
    TimeoutError
        If the parser takes too long.
    """
    tokens = _check(text, limit, timeout, dictionary)
    command = shutil.which(COMMAND)
    if command is None:
        raise ImportError(
            f"Parsing text needs the command {COMMAND}, which was not found: install link-grammar (Debian and Ubuntu: "
            "apt install link-grammar; macOS: brew install link-grammar), or read parses from a file."
        )
    options = {"graphics": 0, "postscript": 1, "ps-header": 0, "walls": 1, "spell": 0, "verbosity": 1}
    options |= {"limit": max(limit, 1000), "timeout": math.ceil(timeout)}
    arguments = [command, dictionary, *(f"-{name}={value}" for name, value in options.items())]
    # An empty line asks for the next linkage.
    given = " ".join(token.text for token in tokens) + "\n" * (limit + 1)
    try:
        done = subprocess.run(
            arguments, input=given.encode(), capture_output=True, timeout=timeout, check=False
        )
    except subprocess.TimeoutExpired:
        raise TimeoutError(
            f"The parser took more than {timeout:g} s for {len(tokens)} words: allow more time, or shorten the text."
        ) from None
    output = done.stdout[:MAX_OUTPUT].decode("utf-8", errors="replace")
    if "Linkage" not in output and "linkages" not in output:
        said = done.stderr.decode("utf-8", errors="replace").strip().splitlines()
        raise ValueError(
            f"{COMMAND} gave no answer with the dictionary {dictionary!r}: {said[-1] if said else 'it said nothing'}"
        )
    return Sentence(id=text, document="", tokens=tokens, linkages=tuple(read_output(output, tokens)))


def _check(text: str, limit: int, timeout: float, dictionary: str) -> tuple[Token, ...]:
    if not isinstance(text, str) or not text.strip():
        raise ValueError(f"Expected the text of one sentence: found {text!r}.")
    if len(text) > MAX_TEXT:
        raise ValueError(f"The text has {len(text)} characters: expected one sentence of at most {MAX_TEXT}.")
    if any(not letter.isprintable() for letter in text):
        raise ValueError(
            "Expected one sentence on one line: found a line break or another control character."
        )
    if not 1 <= limit <= 10_000:
        raise ValueError(f"limit must be 1 to 10000: found {limit!r}.")
    if not 0 < timeout < math.inf:
        raise ValueError(f"timeout must be a positive number of seconds: found {timeout!r}.")
    # The name becomes an argument of a command and a path within the dictionaries.
    if not re.fullmatch(r"[A-Za-z_]+", dictionary):
        raise ValueError(f"A dictionary is the name of a language such as 'en': found {dictionary!r}.")
    tokens = split_words(text)
    if tokens and tokens[0].text == "!":
        raise ValueError(
            "A line that starts with an exclamation mark is a command of the parser: leave it out."
        )
    if not any(is_word(token.text) for token in tokens):
        raise ValueError(f"Expected the text of one sentence: found no word in {text!r}.")
    return tokens


def is_word(text: str) -> bool:
    """Whether the token is more than punctuation."""
    return any(letter.isalnum() for letter in text)


def read_output(output: str, tokens: Sequence[Token]) -> list[Linkage]:
    """Distinct linkages of the parser's output over the tokens of the text; those that do not spell it are left out."""
    shared = tuple(tokens)
    found: dict[frozenset[Link], Linkage] = {}
    pieces = _HEAD.split(output)
    for unused, disjunct, length, body in zip(*(pieces[k::4] for k in (1, 2, 3, 4)), strict=True):
        words, _, rest = body.strip().partition("]\n[")
        owner = align(_words(words), shared)
        if owner is None:
            continue
        links = {
            Link(owner[int(i)], owner[int(j)], label)
            for i, j, label in _LINK.findall(rest)
            if max(int(i), int(j)) < len(owner) and -1 < owner[int(i)] < owner[int(j)]
        }
        links = {link for link in links if all(is_word(shared[end].text) for end in link[:2])}
        linkage = Linkage(shared, tuple(sorted(links)), int(unused), float(disjunct), float(length))
        found.setdefault(frozenset(links), linkage)
    return list(found.values())


def _words(text: str) -> list[str]:
    """(LEFT-WALL)(the)(cell.n) to its words; a word may hold brackets."""
    return re.sub(r"\)\s*\(", "\n", text.strip().removeprefix("[").strip())[1:-1].split("\n")


def align(words: Sequence[str], tokens: Sequence[Token]) -> list[int] | None:
    """The token that each word of the parser is part of, -1 for the walls; None where they do not spell the tokens.

    Examples
    --------
    >>> align(["LEFT-WALL", "it", "'s.v", "fine.a", "RIGHT-WALL"], [Token("It's"), Token("fine")])
    [-1, 0, 0, 1, -1]
    """
    owner: list[int] = []
    at, rest = -1, ""
    for word in words:
        if word in _WALLS:
            owner.append(-1)
            continue
        if not rest:
            at += 1
            if at >= len(tokens):
                return None
            rest = tokens[at].text.lower()
        spelled = next((form for form in _spellings(word.lower()) if form and rest.startswith(form)), None)
        if spelled is None:
            return None
        rest = rest[len(spelled) :]
        owner.append(at)
    return owner if not rest and at == len(tokens) - 1 else None


def _spellings(word: str) -> list[str]:
    """The word without the parser's marks: [word] is not linked, word[!] is unknown, word.n-u is a noun."""
    plain = re.sub(r"\[[!?~&].*$", "", word)
    unlinked = plain[1:-1] if plain.startswith("[") and plain.endswith("]") else plain
    return [unlinked, re.sub(r"(?<=.)\.[^.]*$", "", unlinked)]
