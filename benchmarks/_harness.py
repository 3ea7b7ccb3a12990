"""What every benchmark shares: timing, memory, a table of ratios, one JSON file of results.

A benchmark asks one question and answers it with a ratio to a peer measured in the same run: seconds depend on
the machine and on its other users, ratios much less. Repeats of all candidates are interleaved and the best of
each is kept, so that a busy moment hits everyone.

    from _harness import best_of, report, write_results

    seconds = best_of({"preflearn": fit, "floor": gram_and_cholesky}, repeats=5)
    result = report("RankRLS, one alpha", seconds, baseline="floor", limits={"preflearn": 1.5})
    write_results("rankrls_dense", result)
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import nullcontext
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from multiprocessing import TimeoutError, get_context
from pathlib import Path
from typing import Any

import numpy as np

from preflearn import __version__
from preflearn.numerics.threads import threads_limited

RESULTS = Path(__file__).resolve().parent / "results"
_PACKAGES = ("preflearn", "numpy", "scipy", "scikit-learn", "numba", "scikit-survival")


def best_of(
    candidates: Mapping[str, Callable[[], Any]], *, repeats: int = 5, warm_up: bool = True
) -> dict[str, float]:
    """Least wall-clock seconds of each candidate over interleaved repeats.

    Parameters
    ----------
    candidates : mapping from name to function without arguments
    repeats : int, default=5
    warm_up : bool, default=True
        Call each candidate once before the clock runs (compilation, caches, thread pools).

    Returns
    -------
    dict from name to seconds
    """
    if warm_up:
        for function in candidates.values():
            function()
    best = dict.fromkeys(candidates, float("inf"))
    for _ in range(repeats):
        for name, function in candidates.items():
            start = time.perf_counter()
            function()
            best[name] = min(best[name], time.perf_counter() - start)
    return best


def peak_memory(prepare: Callable[..., tuple], work: Callable[..., Any], *arguments: Any) -> int:
    """Bytes by which ``work`` raises the peak resident memory of a fresh process.

    The process calls ``inputs = prepare(*arguments)``, notes its memory, calls ``work(*inputs)`` and notes the
    peak: what ``prepare`` made is not counted, everything ``work`` allocates in whatever language is. Both must
    be functions at the top level of a module, and the script must guard its own run with ``__name__``.

    Let ``prepare`` also call ``work`` on something tiny, so that imports and compiled code are not counted.
    """
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(_peak_in_this_process, prepare, work, arguments).result()


def _peak_in_this_process(prepare: Callable[..., tuple], work: Callable[..., Any], arguments: tuple) -> int:
    inputs = prepare(*arguments)
    _forget_peak()
    before = _resident_bytes()
    work(*inputs)
    return _peak_bytes() - before


def _forget_peak() -> None:
    """Set the kernel's high-water mark back to the present size (Linux; elsewhere the mark stays)."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        pass


def _status_bytes(field: str) -> int | None:
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith(field + ":")), None)


def _resident_bytes() -> int:
    resident = _status_bytes("VmRSS")
    return _peak_bytes() if resident is None else resident


def _peak_bytes() -> int:
    peak = _status_bytes("VmHWM")
    if peak is not None:
        return peak
    import resource

    scale = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * scale


def in_processes(
    work: Callable[[Any], Any], cells: Sequence[Any], *, jobs: int = 1, seconds: float = float("inf")
) -> Iterator[tuple[Any, Any]]:
    """Each cell with ``work(cell)``, in the order in which they end, until the time is over; what runs then is ended.

    So many processes, one thread each; with one job in this process. Cells begin in their order: interleave the
    settings, so that what a short run has measured can be compared. A cell that fails is named and left out.
    """
    end, call = time.monotonic() + seconds, partial(_answer, work)
    pool = get_context("fork").Pool(jobs, _one_thread) if jobs > 1 else nullcontext()
    with pool as workers:
        answers = workers.imap_unordered(call, cells) if workers else map(call, cells)
        for _ in cells:
            left = end - time.monotonic()
            if left <= 0:
                return
            try:
                cell, answer, error = answers.next(min(left, 1e6)) if workers else next(answers)
            except TimeoutError:
                return
            if error:
                print(f"{cell}: {error}", flush=True)
            else:
                yield cell, answer


def _answer(work: Callable[[Any], Any], cell: Any) -> tuple[Any, Any, str]:
    try:
        return cell, work(cell), ""
    except Exception as error:  # one contestant that fails should not end the others
        return cell, None, repr(error)


def _one_thread() -> None:
    threads_limited(1)


def machine() -> dict[str, Any]:
    """Versions and processor count, to be stored with every result."""
    versions = {"python": platform.python_version()}
    for package in _PACKAGES:
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            continue
    affinity = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return {"versions": versions, "cpus": affinity, "system": f"{platform.system()} {platform.machine()}"}


def this_run() -> dict[str, str]:
    """The command, the date and the commit of a measurement; a tree with uncommitted changes is marked by a plus."""

    def git(*options: str) -> str:
        done = subprocess.run(
            ["git", *options], cwd=RESULTS.parent, capture_output=True, text=True, check=False
        )
        return done.stdout.strip()

    changed = "+" if git("status", "--porcelain", "--untracked-files=no", "--", "../src") else ""
    return {
        "command": " ".join(["python", f"benchmarks/{Path(sys.argv[0]).name}", *sys.argv[1:]]),
        "date": time.strftime("%Y-%m-%d"),
        "commit": git("rev-parse", "--short", "HEAD") + changed,
        "version": __version__,
    }


def ratio_table(
    values: Mapping[str, float],
    baseline: str,
    *,
    limits: Mapping[str, float] | None = None,
    unit: str = "s",
) -> str:
    """Values and their ratios to the baseline as aligned text, with the verdict where a limit is given."""
    limits = limits or {}
    width = max(len(name) for name in values)
    lines = []
    for name, value in values.items():
        ratio = value / values[baseline]
        line = f"{name:<{width}}  {_readable(value, unit):>10}  {ratio:8.2f} x"
        if name in limits:
            line += f"  (at most {limits[name]:g} x: {'met' if ratio <= limits[name] else 'MISSED'})"
        lines.append(line)
    return "\n".join(lines)


def _readable(value: float, unit: str) -> str:
    if unit == "s":
        return f"{value * 1e3:.2f} ms" if value < 1 else f"{value:.2f} s"
    if unit == "bytes":
        return f"{value / 2**20:.1f} MiB"
    return f"{value:.4g} {unit}".strip()


def report(
    name: str,
    values: Mapping[str, float],
    *,
    baseline: str,
    limits: Mapping[str, float] | None = None,
    unit: str = "s",
    note: str = "",
    extra: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Print the table of ratios to ``baseline`` and return what belongs in the JSON file.

    Parameters
    ----------
    name : str
        The question, printed above the table.
    values : mapping from name to number
        As :func:`best_of` gives them; ``baseline`` is one of the names.
    limits : mapping from name to number, optional
        Largest ratio allowed; the verdict is printed beside the ratio.
    unit : {"s", "bytes"} or any text, default="s"
    note : str, optional
        Sizes, options: what a reader must know to understand the numbers.
    extra : mapping, optional
        More to store, not to print.
    """
    print(f"\n{name}" + (f" ({note})" if note else ""))
    print(ratio_table(values, baseline, limits=limits, unit=unit))
    ratios = {key: value / values[baseline] for key, value in values.items()}
    result: dict[str, Any] = {
        "question": name,
        "unit": unit,
        "values": dict(values),
        "baseline": baseline,
        "ratios": ratios,
    }
    if note:
        result["note"] = note
    if limits:
        result["limits"] = dict(limits)
        result["met"] = {key: ratios[key] <= limit for key, limit in limits.items()}
    return {**result, **(extra or {})}


def write_results(name: str, *results: Mapping[str, Any]) -> Path:
    """Write results beside versions and processor count to ``benchmarks/results/<name>.json``.

    Each result says when, by which command and at which commit it was measured, so that a file put together from
    several runs says so; results that are kept from an earlier run keep what they say.
    """
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{name}.json"
    run = this_run()
    content = {
        "benchmark": name,
        "machine": machine(),
        "results": [{**result, "measured": result.get("measured", run)} for result in results],
    }
    path.write_text(json.dumps(content, indent=2) + "\n")
    print(f"\nwritten: {path.relative_to(RESULTS.parents[1])}")
    return path


def kept_results(name: str, new: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """What ``benchmarks/results/<name>.json`` holds on questions that ``new`` does not answer."""
    path = RESULTS / f"{name}.json"
    earlier = json.loads(path.read_text())["results"] if path.exists() else []
    replaced = {result["question"] for result in new}
    return [result for result in earlier if result["question"] not in replaced]


def arguments(description: str | None, *, repeats: int = 5, **sizes: int | str) -> argparse.Namespace:
    """The options all benchmarks have: ``--repeats``, and ``--quick`` for a small run that proves it works.

    Further numbers and texts become options of their own: ``arguments(__doc__, rows=1000)`` adds ``--rows``.
    """
    parser = argparse.ArgumentParser(description=(description or "").splitlines()[0] if description else None)
    parser.add_argument("--repeats", type=int, default=repeats, help=f"best of this many (default {repeats})")
    for name, default in sizes.items():
        parser.add_argument(f"--{name}", type=type(default), default=default, help=f"default {default}")
    parser.add_argument("--quick", action="store_true", help="small sizes, nothing written")
    return parser.parse_args()


def data_folder(name: str) -> Path | None:
    """A folder of real data, below the one that PREFLEARN_DATA names or ``../shared/data``; None where it is not."""
    roots = [os.environ.get("PREFLEARN_DATA"), Path(__file__).resolve().parents[2] / "shared" / "data"]
    folders = [Path(root) / name for root in roots if root]
    return next((folder for folder in folders if folder.is_dir()), None)


def run_questions(
    name: str, description: str | None, questions: Mapping[str, Callable[[int], Any]], *, repeats: int
) -> None:
    """Answer the questions that ``--only`` names; all of them are written to the results of this name."""
    parser = argparse.ArgumentParser(description=(description or "").partition("\n")[0])
    parser.add_argument("--only", choices=questions, action="append")
    parser.add_argument("--repeats", type=int, default=repeats)
    options = parser.parse_args()
    found: list[Mapping[str, Any]] = []
    for question in options.only or questions:
        answer = questions[question](options.repeats)
        found += answer if isinstance(answer, list) else [answer]
    if not options.only:
        write_results(name, *found)


def coverage_of(found: Sequence[Sequence[float]], other: str) -> dict[str, float]:
    """How often two kinds of intervals hold the truth, and how wide they are.

    Parameters
    ----------
    found : rows of (estimate, truth, low, high, low of the other kind, high of the other kind)
    other : str
        What the other kind is called in the results.
    """
    columns = list(zip(*found, strict=True))
    estimate, truth = columns[:2]

    def mean(values: Any) -> float:
        values = list(values)
        return float(sum(values) / len(values))

    results = {"data_sets": len(found), "true_value": mean(truth), "mean_estimate": mean(estimate)}
    for name, (low, high) in (("", columns[2:4]), (f"_{other}", columns[4:6])):
        results[f"coverage{name}"] = mean(a <= x <= b for a, x, b in zip(low, truth, high, strict=True))
        results[f"mean_width{name}"] = mean(b - a for a, b in zip(low, high, strict=True))
    return results


def write_blocks(path: Any, blocks: Iterable[tuple[np.ndarray, np.ndarray, np.ndarray]]) -> None:
    """A Parquet file with the columns target, qid, f0, f1, ..., written block by block."""
    import pyarrow as pa
    from pyarrow.parquet import ParquetWriter

    writer = None
    for X, y, qid in blocks:
        table = pa.table({"target": y, "qid": qid, **{f"f{k}": X[:, k] for k in range(X.shape[1])}})
        if writer is None:
            writer = ParquetWriter(path, table.schema)
        writer.write_table(table)
    assert writer is not None
    writer.close()
