"""What names from data do to what is shown, and covariates of every size."""

from __future__ import annotations

import re
import warnings

import numpy as np
import pytest

from preflearn import rate
from preflearn.errors import InputError
from preflearn.ratings.boards import dates_of, month_edges
from preflearn.shown_tables import ShownTable, markdown_text, visible

ODD = "a|b\n<script>x</script> *c*"
HEBREW = "\u05d0\u05d1\u05d2 1"
OVERRIDE = "gpt\u202e4\x1b[31m"


def odd_ratings():
    names = [ODD, HEBREW, OVERRIDE]
    rows = [(0, 1), (1, 2), (0, 2), (2, 1), (1, 0)] * 6
    table = {"winner": [names[a] for a, _ in rows], "loser": [names[b] for _, b in rows]}
    return rate(table, alpha=0.1), names


def test_names_do_not_break_the_table_in_markdown():
    found, names = odd_ratings()
    lines = found.to_markdown().splitlines()
    assert len(lines) == 2 + len(names)
    # As many cells in each row, however a name is written.
    assert {len(re.findall(r"(?<!\\)\|", line)) for line in lines} == {lines[0].count("|")}
    text = "\n".join(lines)
    assert "<script>" not in text and r"a\|b &lt;script&gt;x&lt;/script&gt; \*c\*" in text
    assert f"\u2068{HEBREW}\u2069" in text and "\u202e" not in text and "\\\\u202e" in text


def test_pages_isolate_names(tmp_path):
    pytest.importorskip("jinja2")
    pytest.importorskip("matplotlib")
    found, _ = odd_ratings()
    found.report(tmp_path / "b.html")
    page = (tmp_path / "b.html").read_text(encoding="utf-8")
    assert "<script>x" not in page and f"<bdi>{HEBREW}</bdi>" in page
    # In sentences and drawings there is no element around a name.
    outside = re.sub(r"<bdi>.*?</bdi>", "", page, flags=re.S)
    assert "\u202e" not in outside and "\x1b" not in outside
    found.report(tmp_path / "b.md")
    written = (tmp_path / "b.md").read_text(encoding="utf-8")
    assert "<script>" not in written and "\u202e" not in written


def test_text_has_one_line_for_each_item_and_no_control_characters():
    found, names = odd_ratings()
    text = str(found)
    assert len(text.splitlines()) == 2 + len(names) + 2
    assert "\x1b" not in text and "\u202e" not in text and "gpt\\u202e4\\u001b[31m" in text
    boards = found.boards(["c\u202ed", "e\nf"] * 15)
    assert "\u202e" not in str(boards) and "\n" not in str(boards)


@pytest.mark.parametrize(("n", "more"), [(20, ""), (21, "... and 1 more")])
def test_text_says_how_many_items_it_leaves_out(n, more):
    text = str(rate({"winner": range(n - 1), "loser": range(1, n)}, alpha=1.0))
    assert [line for line in text.splitlines() if line.startswith("...")] == [more] * bool(more)


@pytest.mark.parametrize("name", ["gpt-4", "claude_3.5 (new)", "naïve café", "模型", "a" * 50])
def test_ordinary_names_are_shown_as_they_are(name):
    assert visible(name) == name and markdown_text(name) == name


def test_comparisons_escape_names_in_markdown_and_latex():
    table = ShownTable([("ranker", "mean"), (ODD, "0.7"), ("a\\b^~{}", "0.6"), (HEBREW, "0.5")])
    lines = table.to_markdown().splitlines()
    assert len(lines) == 5 and {len(re.findall(r"(?<!\\)\|", line)) for line in lines} == {3}
    assert "<script>" not in "".join(lines)
    latex = table.to_latex()
    assert r"a\textbackslash{}b\textasciicircum{}\textasciitilde{}\{\}" in latex
    assert len(latex.splitlines()) == 9 and "\u2068" not in latex


@pytest.mark.parametrize("size", [1e-95, 1e-20, 1e20, 1e95])
def test_covariates_of_any_unit_have_the_same_effect(size):
    rng = np.random.default_rng(0)
    a = rng.integers(6, size=300)
    b, z = (a + rng.integers(1, 6, 300)) % 6, rng.normal(size=300)
    won = (rng.random(300) < 1 / (1 + np.exp(-z))).astype(float)
    table = {"a": a, "b": b, "winner": won, "judge": a % 4}
    options = {"covariates": ["z"], "judge": "judge", "alpha": 0.1}
    plain, scaled = rate({**table, "z": z}, **options), rate({**table, "z": z * size}, **options)
    for name in ("points", "points_lower", "points_upper"):
        assert scaled.covariates[name][0] == pytest.approx(plain.covariates[name][0], rel=1e-6)
    assert scaled.covariates["lower"][0] * size == pytest.approx(plain.covariates["lower"][0], rel=1e-6)
    assert scaled.judges["z_bias"].tolist() == pytest.approx(plain.judges["z_bias"].tolist(), rel=1e-6)


@pytest.mark.parametrize("size", [1e160, 1e-170, 1e-310])
@pytest.mark.parametrize("argument", ["covariates", "margin"])
def test_covariates_and_margins_beyond_what_is_computed_with_are_refused(size, argument):
    z = np.array([1.0, -2.0, 3.0, 1.5]) * size
    table = {"a": list("xyzx"), "b": list("yzxz"), "winner": ["a", "b", "a", "a"], "z": z}
    with pytest.raises(InputError, match=f"{argument} 'z' has differences of up to .*another unit"):
        rate(table, **{argument: ["z"] if argument == "covariates" else "z"})
    table |= {"z_a": [1.7e308] * 4, "z_b": [-1.7e308, 0.0, 1.0, 2.0]}
    with pytest.raises(InputError, match="up to inf"):
        rate(table, **{argument: ["z"] if argument == "covariates" else "z"})


def test_months_are_found_without_adding_numbers_to_dates():
    """NumPy 2.5 refuses to add a whole number to a date."""
    days = np.array([0.5, 40.0, 365.0])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        edges = month_edges(days)
    assert dates_of(edges)[:2] == ["1970-02-01", "1970-03-01"] and dates_of(edges)[-1] == "1971-02-01"
