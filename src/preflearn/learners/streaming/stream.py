"""One pass over chunks: read, check, sum, save.

    for chunk in source:  statistics += recipe(chunk);  at intervals: write the checkpoint

The state is consistent at the end of every iteration of that loop. An interrupt anywhere else leaves the state of the
previous iteration, which is written out where there is a checkpoint file.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn import config_context, get_config

from ...comparisons.inputs import depends_on_scores
from ...errors import SplitQueryError
from ...kernels.functions import Kernel, n_items
from ...kernels.inputs import read_items
from ...kernels.maps import NystromMap
from ...model_selection._learner import why_not_in_parts
from ...squared.statistics import KeySet, Recipe, Statistics, recipe_of
from ...tables.data import RankingData
from ..incremental import FIXED
from .basis import Basis, first_chunks, read_n_basis, sampler
from .checkpoint import Checkpoint, CheckpointError, Progress, extend_digest, fingerprint

# The parameters that the statistics depend on.
_PARAMETERS = (*FIXED, "random_state", "fit_intercept")
_SECONDS_BETWEEN_LINES = 1.0


@dataclass
class StreamFit:
    """The result of a pass.

    Attributes
    ----------
    statistics : Statistics
    recipe : Recipe
    single : bool
        Whether y came as one column.
    info : dict
        Plain numbers and texts for the model's ``stream_`` attribute.
    """

    statistics: Statistics
    recipe: Recipe
    single: bool
    info: dict[str, Any]


class Stream:
    """Chunks on their way into a model.

    Parameters
    ----------
    model : RankRLS or RLS
        Its parameters are read, and it learns the number of features.
    chunks : path, list of paths, iterable or callable
    n_folds : int
        1 without cross-validation.
    checkpoint : path-like or None
    checkpoint_every : int, float or None
    verbose : int
    reading : dict
        Options for reading files.
    needs_queries : str or None
        The reason to give if rows without queries are to be refused.
    """

    def __init__(
        self,
        model: Any,
        chunks: Any,
        *,
        n_folds: int = 1,
        checkpoint: Any = None,
        checkpoint_every: int | float | None = None,
        verbose: int = 0,
        reading: dict[str, Any] | None = None,
        needs_queries: str | None = None,
    ):
        reason = why_not_in_parts(model)
        if reason is not None:
            raise ValueError(f"{type(model).__name__}.fit_stream: {reason}")
        if checkpoint is None and checkpoint_every is not None:
            raise ValueError("checkpoint_every is given without checkpoint=..., and would be ignored.")
        self.model = model
        self.kernel: Kernel = model._read_kernel()
        self.kernel.refuse_without_width()
        self.n_folds = n_folds
        self.needs_queries = needs_queries
        self.wanted_basis = read_n_basis(model) if model._wants_reduced_set() else None
        self.source: Source = as_source(chunks, reading or {}, verbose=bool(verbose))
        parameters = {name: getattr(model, name) for name in _PARAMETERS if hasattr(model, name)}
        self.checkpoint = (
            None
            if checkpoint is None
            else Checkpoint(
                checkpoint, checkpoint_every, fingerprint(type(model).__name__, parameters, n_folds)
            )
        )
        self.reporter = _Reporter(
            type(model).__name__ if verbose and not self.source.shows_progress else None
        )
        self._first = True

    # ------------------------------------------------------------ reading

    def chunks(self) -> Iterator[tuple[Any, np.ndarray, Any, bool]]:
        """Checked chunks: X, scores of shape (m, v), qid, and whether y came as one column."""
        from ...comparisons.inputs import read_scores

        number, row = 0, 0
        for chunk in self.source.open():
            try:
                X, y, qid = unpack(chunk)
                if n_items(X) == 0:
                    continue
                with config_context(assume_finite=self.source.finite or get_config()["assume_finite"]):
                    X = read_items(self.model, X, self.kernel, reset=self._first)
                    scores, single = read_scores(y, n_items(X), estimator=self.model)
            except (TypeError, ValueError) as error:
                raise _located(error, number, row) from error
            self._first = False
            yield X, scores, None if hasattr(self.model, "fit_intercept") else qid, single
            row += n_items(X)
            number += 1

    # ------------------------------------------------------------ one pass

    def run(self) -> StreamFit:
        """Read everything once (twice for a reduced set, where the source allows it)."""
        start = time.perf_counter()
        saved = None if self.checkpoint is None else self.checkpoint.load()
        resumed = 0 if saved is None else saved.statistics.n_rows
        chunks: Iterator[Any] = self.chunks()
        basis = None if saved is None else saved.basis
        if saved is None and self.wanted_basis is not None:
            basis, chunks = self._draw_basis(chunks)
        feature_map = None if basis is None else basis_map(self.model, self.kernel, basis)
        progress = saved
        recipe = None
        if progress is not None:
            recipe = self._recipe(feature_map, progress)
            chunks = self._skip(chunks, progress)
        busy = False  # true while the sums are between two consistent states
        try:
            for X, scores, qid, single in chunks:
                if progress is None or recipe is None:
                    progress = self._begin(scores, single, qid, basis)
                    recipe = self._recipe(feature_map, progress)
                self._check(progress, scores, qid, recipe)
                part = self._statistics(recipe, X, scores, qid, progress.statistics)
                digest = extend_digest(progress.digest, X, scores, qid) if self.checkpoint else b""
                busy = True
                self._add(progress, part, digest)
                busy = False
                self.reporter(progress.statistics)
                if self.checkpoint is not None and self.checkpoint.is_due(progress.statistics.n_chunks):
                    self.checkpoint.save(progress)
        except KeyboardInterrupt:
            if self.checkpoint is not None and progress is not None and progress.digest and not busy:
                self.checkpoint.save(progress)
            raise
        if progress is None or recipe is None:
            raise ValueError("There are no rows to learn from: the source yielded no chunks.")
        if self.checkpoint is not None and progress.statistics.n_rows > resumed:
            self.checkpoint.save(progress)
        self.reporter.end(progress.statistics)
        statistics = progress.statistics
        info = {
            "source": self.source.name,
            "rows": statistics.n_rows,
            "chunks": statistics.n_chunks,
            "queries": len(statistics.queries) if recipe.with_queries else 1,
            "resumed_at_row": resumed,
            "basis": None if progress.basis is None else progress.basis.source,
            "seconds": round(time.perf_counter() - start, 3),
        }
        return StreamFit(statistics, recipe, progress.single, info)

    def _begin(self, scores: np.ndarray, single: bool, qid: Any, basis: Basis | None) -> Progress:
        if scores.shape[1] > 1 and depends_on_scores(
            getattr(self.model, "cost", "magnitude"), getattr(self.model, "ties", "include")
        ):
            raise ValueError(
                "fit_stream with several outputs needs cost='magnitude' and ties='include': the pairs must "
                "not depend on the scores."
            )
        if self.needs_queries is not None and qid is None:
            raise ValueError(self.needs_queries)
        statistics = Statistics([None] * self.n_folds, KeySet())
        return Progress(statistics, b"", b"", scores.shape[1], single, qid is not None, basis)

    def _recipe(self, feature_map: NystromMap | None, progress: Progress) -> Recipe:
        recipe = recipe_of(
            self.model,
            self.kernel,
            feature_map,
            with_queries=progress.with_queries,
            n_folds=self.n_folds,
            basis_keys=None if progress.basis is None else progress.basis.keys,
        )
        if self.n_folds > 1 and recipe.one_chunk_only:
            raise ValueError(
                "Folds of one global ranking need cost='magnitude' and ties='include': pass qid, or use fit."
            )
        return recipe

    def _check(self, progress: Progress, scores: np.ndarray, qid: Any, recipe: Recipe) -> None:
        """Check that a chunk agrees with the first one."""
        if (qid is not None) != progress.with_queries:
            before = "with qid" if progress.with_queries else "without qid"
            error = ValueError(f"earlier chunks came {before}, and all must agree.")
            raise _located(error, progress.statistics.n_chunks, progress.statistics.n_rows)
        if scores.shape[1] != progress.n_outputs:
            error = ValueError(f"earlier chunks had {progress.n_outputs} outputs: found {scores.shape[1]}.")
            raise _located(error, progress.statistics.n_chunks, progress.statistics.n_rows)
        if recipe.one_chunk_only and progress.statistics.n_chunks:
            raise ValueError(
                "A second chunk without qid needs cost='magnitude' and ties='include': which pairs of a "
                "global ranking are tied cannot be known from chunks. Pass qid, or use fit."
            )

    def _statistics(
        self, recipe: Recipe, X: Any, scores: np.ndarray, qid: Any, before: Statistics
    ) -> Statistics:
        try:
            return recipe.statistics(X, scores, qid, before.n_rows)
        except ValueError as error:
            raise _located(error, before.n_chunks, before.n_rows) from error

    def _add(self, progress: Progress, part: Statistics, digest: bytes) -> None:
        try:
            progress.statistics.add(part)
        except SplitQueryError as error:
            raise _located(error, progress.statistics.n_chunks, progress.statistics.n_rows) from error
        progress.digest = digest
        if not progress.first_digest:
            progress.first_digest = digest

    def _skip(self, chunks: Iterator[Any], progress: Progress) -> Iterator[Any]:
        """Skip what the checkpoint has seen, and make sure that it is the same."""
        assert self.checkpoint is not None
        path = self.checkpoint.path
        digest, n_rows, wanted = b"", 0, progress.statistics.n_rows
        for X, scores, qid, _ in chunks:
            digest = extend_digest(digest, X, scores, qid)
            is_first, n_rows = n_rows == 0, n_rows + n_items(X)
            self.reporter.skipped(n_rows, wanted)
            if n_rows > wanted:
                raise CheckpointError(
                    f"{path}: the checkpoint ends at row {wanted}, and no chunk does now. Read in chunks of "
                    "the same size as before, or remove the file to start over."
                )
            if (is_first and digest != progress.first_digest) or (
                n_rows == wanted and digest != progress.digest
            ):
                where = "the first chunk differs" if is_first else f"the rows before row {wanted} differ"
                raise CheckpointError(
                    f"{path}: the checkpoint belongs to other data, or to chunks of another size ({where})",
                    "Give another checkpoint, or remove the file to start over.",
                )
            if n_rows == wanted:
                break
        else:
            raise CheckpointError(
                f"{path}: the checkpoint has seen {wanted} rows, and the source ends after {n_rows}. It "
                "belongs to other data, or the file has been cut short."
            )
        return chunks

    # ------------------------------------------------------------ reduced set

    def _draw_basis(self, chunks: Iterator[Any]) -> tuple[Basis, Iterator[Any]]:
        """Basis vectors from a separate pass, or from the first chunks of the only pass."""
        assert self.wanted_basis is not None
        picker = sampler(self.wanted_basis, self.model.random_state)
        if self.source.again:
            for X, _, qid, _ in chunks:
                picker.add(X, qid)
                self.reporter.sampled(picker.n_seen)
            how = f"reservoir sample of all {picker.n_seen} rows, in a first pass"
            chunks = self.chunks()
        else:
            held, chunks = first_chunks(chunks, self.wanted_basis)
            for X, _, qid, _ in held:
                picker.add(X, qid)
            how = f"uniform sample of the first {picker.n_seen} rows"
        basis = picker.result(how)
        if self.checkpoint is not None and isinstance(basis.items, list):
            raise ValueError(
                "Basis vectors that are objects cannot be kept in a checkpoint: leave checkpoint out, or use arrays."
            )
        return basis, chunks


def _located(error: Exception, n_chunks: int, n_rows: int) -> Exception:
    """The same error with its position in the stream: the chunk, and the rows before it."""
    text = f"Chunk {n_chunks + 1} (from row {n_rows}): {error}"
    return TypeError(text) if isinstance(error, TypeError) else ValueError(text)


def basis_map(model: Any, kernel: Kernel, basis: Basis) -> NystromMap:
    """The features of basis vectors chosen beforehand."""
    found = NystromMap(
        model.kernel,
        gamma=model.gamma,
        degree=model.degree,
        coef0=model.coef0,
        kernel_params=model.kernel_params,
    ).fit_items(basis.items, kernel)
    found.basis_indices_ = basis.indices
    return found


class _Reporter:
    """One line about rows and speed on standard error, at most once a second; silent when ``owner`` is None."""

    def __init__(self, owner: str | None):
        self._owner = owner
        self._start = self._last = time.perf_counter()
        self._first_row: int | None = None

    def __call__(self, statistics: Statistics) -> None:
        if self._first_row is None:
            self._first_row, self._start = statistics.n_rows, time.perf_counter()
        self._tell(self._line(statistics))

    def sampled(self, n_rows: int) -> None:
        self._tell(f"choosing basis vectors: {n_rows:,} rows")

    def skipped(self, n_rows: int, total: int) -> None:
        self._tell(f"skipping rows in the checkpoint: {n_rows:,} of {total:,}")

    def end(self, statistics: Statistics) -> None:
        if self._owner is not None:
            print(f"\r[{self._owner}] {self._line(statistics)}", file=sys.stderr, flush=True)

    def _line(self, statistics: Statistics) -> str:
        seconds = time.perf_counter() - self._start
        rate = (statistics.n_rows - (self._first_row or 0)) / seconds if seconds > 0 else 0.0
        queries = f" in {len(statistics.queries):,} queries" if len(statistics.queries) else ""
        return f"{statistics.n_rows:,} rows{queries}, {statistics.n_chunks:,} chunks, {rate:,.0f} rows/s"

    def _tell(self, text: str) -> None:
        now = time.perf_counter()
        if self._owner is not None and now - self._last >= _SECONDS_BETWEEN_LINES:
            self._last = now
            print(f"\r[{self._owner}] {text}", file=sys.stderr, end="", flush=True)


# ----------------------------------------------------------------
# Where chunks come from: files, lists, iterators, or functions that return a fresh iterator.


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


def refuse_groups(reading: dict[str, Any]) -> None:
    """Which queries share groups is not known before the last part."""
    if "groups" in reading:
        raise ValueError(
            "fit_stream holds out whole queries as they come, which groups across queries would divide: make the "
            "groups the queries, or use fit(X, y, groups=...) on rows in memory."
        )


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
    refuse_groups(reading)
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
