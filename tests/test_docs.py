"""Every example on a page of the documentation runs, and every link between pages leads somewhere."""

from __future__ import annotations

import doctest
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGES = sorted(
    path
    for path in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]
    if not {"_build", "generated", "gallery"} & set(path.parts)
)
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
FENCE = re.compile(r"^(?P<ticks>`{3,}|~{3,})(?P<language>.*)$")


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def code_only(text: str, languages: set[str]) -> str:
    """The text with every line outside of fenced code in one of the languages left blank.

    Line numbers stay true, and a closing fence is not taken for expected output.
    """
    lines, inside, keep = [], None, False
    for line in text.splitlines():
        fence = FENCE.match(line)
        if inside is None and fence:
            inside, keep = fence["ticks"], fence["language"].strip() in languages
            lines.append("")
        elif inside is not None and fence and fence["ticks"] == inside and not fence["language"].strip():
            inside, keep = None, False
            lines.append("")
        else:
            lines.append(line if keep else "")
    return "\n".join(lines) + "\n"


def examples_of(path: Path) -> doctest.DocTest:
    source = code_only(path.read_text(encoding="utf-8"), {"pycon"})
    return doctest.DocTestParser().get_doctest(source, {}, name_of(path), str(path), 0)


PAGES_WITH_EXAMPLES = [path for path in PAGES if examples_of(path).examples]


@pytest.mark.parametrize("path", PAGES_WITH_EXAMPLES, ids=name_of)
def test_examples_run(path: Path) -> None:
    report: list[str] = []
    results = doctest.DocTestRunner(optionflags=FLAGS).run(examples_of(path), out=report.append)
    assert results.attempted
    assert not results.failed, "".join(report)


@pytest.mark.parametrize("path", PAGES, ids=name_of)
def test_python_on_a_page_is_run(path: Path) -> None:
    """Code is written as a session (``pycon``), which the test above runs; ``python`` would not be."""
    text = path.read_text(encoding="utf-8")
    assert not code_only(text, {"python", "py", "python3"}).strip()


@pytest.mark.parametrize("path", PAGES, ids=name_of)
def test_links_between_files_lead_somewhere(path: Path) -> None:
    targets = re.findall(r"\]\(([^)\s#]+)[^)]*\)", path.read_text(encoding="utf-8"))
    local = [target for target in targets if "://" not in target and not target.startswith("mailto:")]
    missing = [target for target in local if not (path.parent / target).exists()]
    assert not missing


def test_readme_and_main_pages_have_examples() -> None:
    """A change of the fences must not silently leave the examples out."""
    names = {name_of(path) for path in PAGES_WITH_EXAMPLES}
    assert {"README.md", "docs/tour.md", "docs/getting_started.md", "docs/derivations.md"} <= names
    assert len(examples_of(ROOT / "README.md").examples) > 5
    assert len(examples_of(ROOT / "docs/tour.md").examples) > 30
