"""Where chunks come from: files, lists, iterators, or functions that return a fresh iterator."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from ...tables.data import RankingData

_WHAT = "a path or list of paths, an iterable of chunks, or a function that returns one"


@dataclass(frozen=True)
class Source:
    """Chunks that can be read, once or as often as needed.

    Attributes
    ----------
    open : callable
        Starts reading.
    again : bool
        Whether it can be read more than once.
    name : str
        What it is, for messages.
    shows_progress : bool
        Whether reading shows its own progress bar.
    finite : bool
        Whether reading has made sure that every number is finite.
    """

    open: Callable[[], Iterator[Any]]
    again: bool
    name: str
    shows_progress: bool = False
    finite: bool = False


def as_source(chunks: Any, reading: dict[str, Any], *, verbose: bool) -> Source:
    """Recognise a source of chunks.

    Parameters
    ----------
    chunks : path, list of paths, iterable of chunks, or callable
    reading : dict
        Options of `iter_ranking`, for paths only.
    verbose : bool
        Whether reading files shows a progress bar.
    """
    if are_paths(chunks):
        return _files(chunks, reading, verbose)
    if reading:
        raise TypeError(
            f"fit_stream got {', '.join(sorted(reading))}, which only applies to reading files by their path: "
            f"found {type(chunks).__name__}. Pass it to iter_ranking instead."
        )
    if callable(chunks):
        return Source(lambda: iter(chunks()), True, "a function")
    if isinstance(chunks, RankingData) or not isinstance(chunks, Iterable):
        raise TypeError(f"fit_stream expects {_WHAT}: found {type(chunks).__name__}.")
    if isinstance(chunks, Iterator):
        return Source(lambda: chunks, False, "an iterator, which can be read once")
    return Source(lambda: iter(chunks), True, f"a {type(chunks).__name__}")


def _files(paths: Any, reading: dict[str, Any], verbose: bool) -> Source:
    from ...tables.ranking import iter_ranking

    options = {"verbose": verbose, **reading}
    iter_ranking(paths, **options)  # refuses wrong options and files before any work
    name = str(paths) if _is_path(paths) else f"{paths[0]} and {len(paths) - 1} more"
    # The reader refuses values that are not finite, unless it is told to let them pass.
    finite = reading.get("missing") is None and not reading.get("allow_unknown")
    return Source(lambda: read_ahead(iter_ranking(paths, **options)), True, name, verbose, finite)


def are_paths(chunks: Any) -> bool:
    """Whether these are files: a path, or a list of paths."""
    return _is_path(chunks) or _is_list_of_paths(chunks)


def _is_path(value: Any) -> bool:
    return isinstance(value, (str, os.PathLike))


def _is_list_of_paths(value: Any) -> bool:
    return isinstance(value, (list, tuple)) and bool(value) and all(_is_path(item) for item in value)


def read_ahead(chunks: Iterator[Any]) -> Iterator[Any]:
    """The same chunks, with the next one read by another thread while the current one is processed."""
    end = object()
    with ThreadPoolExecutor(1, thread_name_prefix="preflearn-read") as pool:
        following = pool.submit(next, chunks, end)
        try:
            while (chunk := following.result()) is not end:
                following = pool.submit(next, chunks, end)
                yield chunk
        finally:
            following.cancel()


def unpack(chunk: Any) -> tuple[Any, Any, Any]:
    """X, y and qid of one chunk."""
    if isinstance(chunk, RankingData):
        if chunk.y is None:
            raise ValueError("there are no targets to learn from (y is None)")
        return chunk.X, chunk.y, chunk.qid
    if isinstance(chunk, tuple) and len(chunk) in (2, 3):
        X, y, qid = (*chunk, None)[:3]
        return X, y, qid
    found = f"a tuple of {len(chunk)}" if isinstance(chunk, tuple) else type(chunk).__name__
    raise TypeError(f"a chunk must be a RankingData, (X, y) or (X, y, qid): found {found}")
