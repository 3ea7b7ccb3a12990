"""Where the experiments find their data, and how several of them read the same."""

from __future__ import annotations

import html
import re
import tarfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from preflearn.io import read_ranking


def find_folder(data: str | Path | None, name: str, experiment: str) -> Path:
    """The folder ``name`` in ``data``.

    Raises
    ------
    ValueError
        If no data are given.
    FileNotFoundError
        If there is no such folder.
    """
    if data is None:
        raise ValueError(
            f"{experiment} reads the folder {name}: pass data=..., the folder that holds it (--data DIR)."
        )
    folder = Path(data) / name
    if not folder.is_dir():
        raise FileNotFoundError(f"{experiment} reads the folder {name}, and {data} has none of that name.")
    return folder


def find_file(folder: Path, name: str, experiment: str) -> Path:
    """The file ``name`` in a data folder.

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    """
    path = folder / name
    if not path.is_file():
        raise FileNotFoundError(f"{experiment} reads {folder.name}/{name}, and {folder} has no such file.")
    return path


class RankingPart(NamedTuple):
    """Rows of a ranking: features, labels, queries."""

    X: np.ndarray
    y: np.ndarray
    qid: np.ndarray


def read_parts(paths: Sequence[Path], *, scaled: bool = True) -> list[RankingPart]:
    """LETOR files, each feature scaled to 0..1 inside each query unless ``scaled`` is False."""
    parts = []
    for path in paths:
        found = read_ranking(path)
        assert found.y is not None and found.qid is not None
        X = found.X.toarray() if hasattr(found.X, "toarray") else np.asarray(found.X)
        parts.append(RankingPart(scale_in_queries(X, found.qid) if scaled else X, found.y, found.qid))
    return parts


def ohsumed_parts(
    data: str | Path | None, experiment: str, folder: str = "letor_ohsumed_v2", under: str = ""
) -> list[RankingPart]:
    """The five parts S1 to S5 of OHSUMED."""
    home = find_folder(data, folder, experiment) / under
    return read_parts([find_file(home, f"S{k}.txt.xz", experiment) for k in range(1, 6)])


def official_fold(parts: Sequence[RankingPart], fold: int) -> tuple[RankingPart, RankingPart, RankingPart]:
    """Training, validation and test rows of LETOR's fold 0 to 4: rotations of the five parts."""
    training = [parts[(fold + k) % 5] for k in range(3)]
    return join_parts(training), parts[(fold + 3) % 5], parts[(fold + 4) % 5]


def join_parts(parts: Sequence[RankingPart]) -> RankingPart:
    """Rows of several parts, one after the other."""
    return RankingPart(*(np.concatenate(arrays) for arrays in zip(*parts, strict=True)))


def scale_in_queries(X: np.ndarray, qid: np.ndarray) -> np.ndarray:
    """Each feature scaled to 0..1 inside each query; 0 where it is the same for all rows of the query.

    Examples
    --------
    >>> scale_in_queries(np.array([[1.0], [3.0], [2.0], [8.0]]), np.array([0, 0, 0, 1])).ravel()
    array([0. , 1. , 0.5, 0. ])
    """
    queries, codes = np.unique(qid, return_inverse=True)
    low = np.full((queries.shape[0], X.shape[1]), np.inf)
    high = np.full_like(low, -np.inf)
    np.minimum.at(low, codes, X)
    np.maximum.at(high, codes, X)
    width = high - low
    return (X - low[codes]) / np.where(width > 0, width, 1.0)[codes]


class Newswire(NamedTuple):
    """Documents of Reuters-21578 with their topics."""

    texts: list[str]
    topics: list[frozenset[str]]

    def largest_topics(self, n: int) -> list[str]:
        """The n topics that most documents have, in alphabetical order."""
        counts = Counter(topic for topics in self.topics for topic in topics)
        return sorted(topic for topic, _ in counts.most_common(n))

    def labels(self, names: Sequence[str]) -> np.ndarray:
        """1 where a document has a topic, 0 elsewhere, shape (documents, topics)."""
        return np.array([[float(name in topics) for name in names] for topics in self.topics])


def read_newswire(data: str | Path | None, experiment: str) -> Newswire:
    """The training and test documents of the ModApte split of Reuters-21578, in the order of the collection."""
    path = find_file(find_folder(data, "reuters21578", experiment), "reuters21578.tar.xz", experiment)
    texts, topics = [], []
    with tarfile.open(path) as archive:
        for name in sorted(name for name in archive.getnames() if name.endswith(".sgm")):
            file = archive.extractfile(name)
            assert file is not None
            # One byte of the collection is not UTF-8.
            for attributes, content in _DOCUMENT.findall(file.read().decode("latin-1")):
                if 'TOPICS="YES"' in attributes and _TRAIN_OR_TEST.search(attributes):
                    texts.append(html.unescape(_TAG.sub(" ", _first(_TEXT, content))))
                    topics.append(frozenset(_ITEM.findall(_first(_TOPICS, content))))
    return Newswire(texts, topics)


_DOCUMENT = re.compile(r"<REUTERS([^>]*)>(.*?)</REUTERS>", re.DOTALL)
_TRAIN_OR_TEST = re.compile(r'LEWISSPLIT="(TRAIN|TEST)"')
_TOPICS = re.compile(r"<TOPICS>(.*?)</TOPICS>", re.DOTALL)
_TEXT = re.compile(r"<TEXT[^>]*>(.*?)</TEXT>", re.DOTALL)
_ITEM = re.compile(r"<D>(.*?)</D>")
_TAG = re.compile(r"<[^>]*>")


def _first(pattern: re.Pattern[str], text: str) -> str:
    found = pattern.search(text)
    return found.group(1) if found else ""
