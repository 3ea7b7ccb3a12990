"""Where do the figures of the pages come from? Each page, with the scripts and results that it names.

    python benchmarks/audit.py             # the table, and what is wrong
    python benchmarks/audit.py --sections  # also each section that has measured figures and names no source

A page must not name a script or a file of results that is not there, a script that a page names must have results, and
a section with measured figures must name a source (`tests/test_benchmarks.py`). Results say by which command, when, at
which commit and with which version they were measured; a table at the end of each page of the documentation says so,
and names the limits that they miss. A release fails its tests while a page shows results of a version before the last
one; the commands that renew them are printed.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from preflearn import __version__

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results"
SCRIPT = re.compile(r"(?:python )?benchmarks/(?!results)([a-z_]+)\.py")
RESULT = re.compile(r"benchmarks/results/([a-z_0-9]+)\.json")
# Other sources of a figure: an experiment, a test, a program on the page itself, or a comment that names one.
SOURCE = re.compile(
    r"benchmarks/|<!-- (?:source|table): |<!--= |preflearn reproduce|python -m contracts|tests/test_"
    r"|```pycon|```console|>>> "
)
# A figure that somebody measured: a decimal in a table, seconds, a share, or a ratio.
FIGURE = re.compile(r"\|[^|\n]*\d\.\d[^|\n]*\||\d(?:\.\d+)? (?:s|ms|µs|×|GB|%)(?![a-z])")


def pages() -> list[Path]:
    return [
        ROOT / "README.md",
        *sorted((ROOT / "docs").glob("*.md")),
        *sorted((ROOT / "docs/user_guide").glob("*.md")),
    ]


def sections(text: str) -> Iterator[tuple[str, str]]:
    """Headings with what stands below them, code aside from its first line."""
    title, lines = "", []
    for line in text.splitlines():
        if line.startswith("#"):
            yield title, "\n".join(lines)
            title, lines = line.strip("# "), []
        lines.append(line)
    yield title, "\n".join(lines)


def results_of(script: str) -> list[Path]:
    """Files that a script has written: of its own name, or beginning with it."""
    return [path for path in RESULTS.glob("*.json") if re.fullmatch(rf"{script}(_[a-z0-9_]+)?", path.stem)]


def writes_results(script: str) -> bool:
    """Whether it measures; some only define what others use."""
    path = ROOT / f"benchmarks/{script}.py"
    return path.exists() and "write_results(" in path.read_text(encoding="utf-8")


def missing(page: Path) -> list[str]:
    """What the page names and is not there."""
    text = page.read_text(encoding="utf-8")
    scripts = sorted(set(SCRIPT.findall(text)))
    return [
        *(
            f"benchmarks/{name}.py is not there"
            for name in scripts
            if not (ROOT / f"benchmarks/{name}.py").exists()
        ),
        *(
            f"benchmarks/{name}.py has no committed results"
            for name in scripts
            if writes_results(name) and not results_of(name)
        ),
        *(
            f"benchmarks/results/{name}.json is not there"
            for name in sorted(set(RESULT.findall(text)))
            if not (RESULTS / f"{name}.json").exists()
        ),
    ]


def state(path: Path) -> tuple[str, list[str]]:
    """With which version results were measured, and which of their limits they do not keep."""
    content: dict[str, Any] = json.loads(path.read_text())
    results = content.get("results", [])
    if not isinstance(results, list):
        results = [results]
    of_file = content.get("machine", content).get("versions", {}).get("preflearn", "unknown")
    versions = {
        row.get("measured", {}).get("version", of_file) for row in results if isinstance(row, dict)
    } or {of_file}
    unmet = [
        f"{row.get('question', '')}: {name} {row['ratios'][name]:.2f}, limit {limit}"
        for row in results
        if isinstance(row, dict) and "limits" in row and "ratios" in row
        for name, limit in row["limits"].items()
        if row["ratios"].get(name, 0) > limit
    ]
    return ", ".join(sorted(versions)), unmet


def measured(path: Path) -> list[dict[str, str]]:
    """Of each result the command, date, commit and version."""
    rows = json.loads(path.read_text())["results"]
    return [row.get("measured", {}) for row in rows if isinstance(row, dict)]


def commits_since(path: Path) -> int | None:
    """How often the library has changed since the oldest of the results; None where that is not known."""
    counts = []
    for commit in {one.get("commit", "").rstrip("+") for one in measured(path)}:
        command = ["git", "rev-list", "--count", f"{commit}..HEAD", "--", "src/preflearn"]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        if not commit or done.returncode:
            return None
        counts.append(int(done.stdout))
    return max(counts, default=None)


def recent_versions() -> list[str]:
    """The version at the top of the changelog, and the one before."""
    return re.findall(r"^## \[([\d.]+)\]", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)[
        :2
    ]


def results_on(page: Path) -> list[Path]:
    """The files of results that a page names, itself or by their script."""
    text = page.read_text(encoding="utf-8")
    named = {path for script in SCRIPT.findall(text) for path in results_of(script)}
    return sorted(named | {RESULTS / f"{name}.json" for name in RESULT.findall(text)})


def outdated() -> dict[Path, list[Path]]:
    """Results of a version before the last release, with the pages that show them."""
    found: dict[Path, list[Path]] = {}
    for page in pages():
        for path in results_on(page):
            if not set(state(path)[0].split(", ")) <= set(recent_versions()):
                found.setdefault(path, []).append(page)
    return found


def provenance(page: Path) -> str:
    """A table for the end of a page: with which version its results were measured, and which limits they miss."""
    rows = []
    for path in results_on(page):
        version, unmet = state(path)
        old = "" if version == __version__ else f"; the library is at {__version__}"
        missed = "; ".join(line.replace("|", "/") for line in unmet) or "none"
        rows.append(f"| `benchmarks/results/{path.name}` | version {version}{old} | {missed} |")
    if not rows:
        return ""
    head = ["", "", "## Measured with", "", "| results | measured with | limits missed |", "|---|---|---|"]
    return "\n".join([*head, *rows, ""])


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--sections", action="store_true")
    show_sections = parser.parse_args().sections
    wrong, unsourced = 0, 0
    for page in pages():
        for problem in missing(page):
            wrong += 1
            print(f"{page.relative_to(ROOT)}: {problem}")
        for title, text in sections(page.read_text(encoding="utf-8")):
            if FIGURE.search(text) and not SOURCE.search(text):
                unsourced += 1
                if show_sections:
                    print(f"{page.relative_to(ROOT)}: '{title}' has figures and names no source")
    for path in sorted(RESULTS.glob("*.json")):
        version, unmet = state(path)
        ago = commits_since(path)
        print(f"{path.name}: version {version}, {'?' if ago is None else ago} changes of the library since")
        for line in unmet:
            print(f"  limit not met: {line}")
    for path, shown in outdated().items():
        commands = {one.get("command", "no command is known") for one in measured(path)}
        on = ", ".join(page.name for page in shown)
        print(f"before the next release: {path.name} (on {on}): {'; '.join(sorted(commands))}")
    print(f"{wrong} files that pages name are missing, {unsourced} sections have figures and name no source")
    return int(wrong + unsourced > 0)


if __name__ == "__main__":
    sys.exit(main())
