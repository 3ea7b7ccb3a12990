"""A run of `AutoRanker.fit_stream` that can be killed and resumed: what it has finished, in a checkpoint.

Candidates, members that were trained on everything and the sums of the one in progress are kept as arrays and plain
values. Fitted models are stored as in model files: values and the names of known classes, no code.
"""

from __future__ import annotations

import io
import math
import os
from dataclasses import replace
from typing import Any, Self

import numpy as np

from .. import __version__
from ..learners.streaming.checkpoint import (
    CheckpointError,
    CheckpointFile,
    fingerprint,
    pack_moments,
    unpack_moments,
)
from ..progress import Stage, Stages
from ..squared.expansion import Moments
from ..tables.models.files import model_to_bytes, read_model
from .candidates import EXTENSIONS, Candidate
from .everything import Everything, Sums
from .kernels import learned_kernel
from .streams import Digests, QuerySample, RowsInParts, StreamedRows
from .tasks import Extension, Member, Task
from .trial import Attempt

# The parameters that the model depends on.
_PARAMETERS = ("scoring", "time_limit", "preset", "random_state", "device")
_OF_MEMBER = ("held_out", "unbiased", "importances")


class Run:
    """The steps of a training in order, each announced; nothing is remembered.

    Parameters
    ----------
    stages : Stages
        Where the steps are announced.
    """

    # Of what was resumed.
    seconds = 0.0

    def __init__(self, stages: Stages):
        self.stages = stages

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: Any) -> None:
        pass

    def sample(self, parts: RowsInParts, most: int) -> QuerySample:
        """A sample of whole queries."""
        with self.stages("reading all rows for a sample") as stage:
            return parts.sample(most, lambda n_rows: stage.amount(n_rows, "rows"))

    def seed(self, drawn: int) -> int:
        """The seed of the run."""
        return drawn

    def attempt(self, candidate: Candidate, task: Task) -> Attempt | None:
        """What became of a candidate before the run was interrupted; None if it was not tried."""
        return None

    def keep_attempt(self, attempt: Attempt) -> None:
        """A candidate has been tried."""

    def extended(self, name: str, extend: Extension, everything: Everything) -> tuple[Any, np.ndarray]:
        """A member trained on everything, and what it predicts for the fold that is left out."""
        n_rows = everything.n_learned(is_kernel=extend.is_kernel)
        with self.stages(f"{name} on {n_rows:,} rows") as stage:
            return extend(replace(everything, sums=self._sums(name, n_rows, stage)))

    def _sums(self, name: str, n_rows: int, stage: Stage) -> Sums:
        return _Counted(n_rows, stage)


class _Counted(Sums):
    """Sums whose progress is shown."""

    def __init__(self, n_rows: int, stage: Stage):
        self._n_rows, self._stage = n_rows, stage

    def note(self, total: Moments, n_chunks: int) -> None:
        self._stage.count(total.n_rows, self._n_rows, "rows")


class ResumableRun(Run):
    """A run whose finished steps are in a file.

    Parameters
    ----------
    path : path-like
        Of the checkpoint.
    model : AutoRanker
    stages : Stages
    parts : StreamedRows
        Rows that are compared with those of the checkpoint.

    Raises
    ------
    CheckpointError
        If the file is not a complete checkpoint, or belongs to other parameters.
    """

    def __init__(self, path: str | os.PathLike[str], model: Any, stages: Stages, parts: StreamedRows):
        super().__init__(stages)
        self.is_consistent = True
        parameters = {name: getattr(model, name) for name in _PARAMETERS}
        known = fingerprint(type(model).__name__, {**parameters, "version": __version__}, 1)
        known |= parts.parameters
        self._parts = parts
        parts.digests = self.digests = Digests(path)
        self._file = _File(path, None, known)
        found = self._file.read()
        # One dictionary of plain values, one of arrays: what the file holds.
        self._header: dict[str, Any] = {
            "sampled": False,
            "seed": None,
            "attempts": {},
            "models": [],
            "sums": None,
        }
        self._arrays: dict[str, np.ndarray] = {}
        if found is not None:
            self._header, self._arrays = found
            self.digests.known = [bytes(one) for one in self._arrays["digests"]]
            self.digests.is_complete = True
            parts.read_as_texts(self._header["texts"])
            stages.note(f"resuming from {path}: {self._done()}")
        self.seconds = math.fsum(one["seconds"] for one in self._header["attempts"].values())

    def _done(self) -> str:
        parts = [f"{len(self._header['attempts'])} candidates tried"]
        if self._header["models"]:
            parts.append(f"{len(self._header['models'])} members trained on all rows")
        if self._header["sums"] is not None:
            parts.append(f"{self._header['sums']['n_chunks']:,} chunks of {self._header['sums']['name']}")
        return ", ".join(parts)

    def __exit__(self, kind: type[BaseException] | None, *_: Any) -> None:
        """An interrupted run keeps what it has, unless sums are half way between two states."""
        if kind is None:
            # What was finished before has not read the rows again: are they still the same?
            if not self.digests.was_compared:
                self._parts.check_all()
        elif self.is_consistent and not issubclass(kind, CheckpointError):
            self.save()

    def save(self) -> None:
        """Write the file."""
        if not self.digests.is_complete or not (self._header["sampled"] or self._header["attempts"]):
            return  # nothing that could be resumed
        self._arrays["digests"] = np.frombuffer(b"".join(self.digests.known), np.uint8).reshape(-1, 16)
        self._header["texts"] = list(self._parts.texts)
        self._file.written_at(0)
        self._file.write(self._header, self._arrays)

    # The steps --------------------------------------------------------------------------------------------------------

    def sample(self, parts: RowsInParts, most: int) -> QuerySample:
        assert isinstance(parts, StreamedRows)
        if not self._header["sampled"]:
            sample = super().sample(parts, most)
            arrays = sample.arrays() if sample.n_rows and parts.keeps_sample else None
            if arrays is not None:
                self._arrays |= {f"sample_{name}": one for name, one in arrays.items()}
                self._header["sampled"] = True
            self.save()
            return sample
        parts.check_first()
        names = [name for name in self._arrays if name.startswith("sample_")]
        return QuerySample.from_arrays({name.removeprefix("sample_"): self._arrays[name] for name in names})

    def seed(self, drawn: int) -> int:
        if self._header["seed"] is None:
            self._header["seed"] = drawn
        return self._header["seed"]

    def attempt(self, candidate: Candidate, task: Task) -> Attempt | None:
        found = self._header["attempts"].get(candidate.name)
        if found is None:
            return None
        member = None
        if found["detail"] is not None:
            arrays = self._of(found["place"])
            extend = None
            if found["extends"]:
                settings = {name[4:]: one for name, one in arrays.items() if name.startswith("set_")}
                train = EXTENSIONS[candidate.train]
                is_kernel = candidate.train is learned_kernel
                extend = Extension(train, task, candidate.view, settings, is_kernel)
            held_out, unbiased, importances = (arrays[name] for name in _OF_MEMBER)
            model = self._model(arrays["model"])
            member = Member(model, held_out, unbiased, importances, found["detail"], extend)
        return Attempt(candidate, member, found["seconds"], reason=found["reason"])

    def keep_attempt(self, attempt: Attempt) -> None:
        member, place = attempt.member, f"attempt{len(self._header['attempts'])}_"
        # An interrupt between the lines must not leave a candidate without its arrays: they come first.
        if member is not None:
            kept = {"model": _as_array(member.model)} | {name: getattr(member, name) for name in _OF_MEMBER}
            if member.extend is not None:
                kept |= {f"set_{name}": np.asarray(one) for name, one in member.extend.settings.items()}
            self._arrays |= {f"{place}{name}": one for name, one in kept.items()}
        self._header["attempts"][attempt.candidate.name] = {
            "place": place,
            "seconds": attempt.seconds,
            "reason": attempt.reason,
            "detail": None if member is None else member.detail,
            "extends": member is not None and member.extend is not None,
        }
        self.save()

    def extended(self, name: str, extend: Extension, everything: Everything) -> tuple[Any, np.ndarray]:
        names = self._header["models"]
        if name not in names:
            model, predictions = super().extended(name, extend, everything)
            self._forget_sums()
            self._arrays[f"extended{len(names)}"] = _as_array(model)
            self._arrays[f"predicted{len(names)}"] = predictions
            names.append(name)
            self.save()
        place = names.index(name)
        return self._model(self._arrays[f"extended{place}"]), self._arrays[f"predicted{place}"]

    def _sums(self, name: str, n_rows: int, stage: Stage) -> Sums:
        return _Kept(self, name, n_rows, stage)

    # Sums of a member in progress -------------------------------------------------------------------------------------

    def kept_sums(self, name: str) -> tuple[Any, int]:
        """Sums of the first chunks, and how many these are."""
        found = self._header["sums"]
        if found is None or found["name"] != name:
            return None, 0
        return unpack_moments(found["kind"], self._arrays, "sums_"), found["n_chunks"]

    def keep_sums(self, name: str, total: Any, n_chunks: int) -> None:
        """Remember sums, which stay whose they are; the file is written when it is due."""
        self.is_consistent = False
        self._header["sums"] = {"name": name, "kind": type(total).__name__, "n_chunks": n_chunks}
        self._arrays |= pack_moments(total, "sums_")
        self.is_consistent = True
        if self._file.is_due(n_chunks):
            self.save()

    def _forget_sums(self) -> None:
        self._header["sums"] = None
        self._arrays = {name: one for name, one in self._arrays.items() if not name.startswith("sums_")}

    # Parts of the file ------------------------------------------------------------------------------------------------

    def _of(self, place: str) -> dict[str, np.ndarray]:
        return {name.removeprefix(place): one for name, one in self._arrays.items() if name.startswith(place)}

    def _model(self, content: np.ndarray) -> Any:
        return read_model(str(self._file.path), io.BytesIO(content.tobytes()))


class _File(CheckpointFile):
    format, version = "preflearn AutoRanker checkpoint", 1
    may_change = "n_jobs and verbose may change."


class _Kept(_Counted):
    """Sums that a checkpoint remembers."""

    def __init__(self, run: ResumableRun, name: str, n_rows: int, stage: Stage):
        super().__init__(n_rows, stage)
        self._run, self._name = run, name

    def changing(self) -> None:
        self._run.is_consistent = False

    def begin(self) -> tuple[Moments | None, int]:
        return self._run.kept_sums(self._name)

    def note(self, total: Moments, n_chunks: int) -> None:
        super().note(total, n_chunks)
        self._run.keep_sums(self._name, total, n_chunks)


def _as_array(model: Any) -> np.ndarray:
    return np.frombuffer(model_to_bytes(model), np.uint8)


def run_of(checkpoint: Any, model: Any, stages: Stages, parts: RowsInParts) -> Run:
    """A run that remembers what it has done where there is a checkpoint."""
    if checkpoint is None:
        return Run(stages)
    assert isinstance(parts, StreamedRows)  # others are not offered a checkpoint
    return ResumableRun(checkpoint, model, stages, parts)


__all__ = ["CheckpointError", "ResumableRun", "Run", "run_of"]
