"""Results that show themselves: aligned text when printed or typed at a prompt, an HTML table in a notebook."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Any, TypeVar

_STYLE = "border-collapse:collapse;font-variant-numeric:tabular-nums;margin:.4em 0"
_NUMBER = re.compile(r"[-+<]?[\d.,]+(e[-+]?\d+)?( ?%)?|nan|-|<1 %|[-+]?[\d.]+ to [-+]?[\d.]+|")

# Embeddings, overrides and isolates of Unicode's bidirectional algorithm, and the marks without a width.
_DIRECTIONS = {"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"}
_MARKS = "\u200e\u200f\u061c"
_LATEX = {one: f"\\{one}" for one in "&%$#_{}"} | {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "\u2068": "",
    "\u2069": "",
}

Row = Sequence[str]
T = TypeVar("T")


@dataclass(frozen=True)
class ShownTable:
    """A table of texts.

    Attributes
    ----------
    rows : list of rows
        The heading first; one of empty texts is not shown in HTML.
    caption : str
    notes : sequence of str
        Below it.
    bold : sequence of int
        Rows to stress, counted without the heading.
    """

    rows: Sequence[Row]
    caption: str = ""
    notes: Sequence[str] = ()
    bold: Sequence[int] = ()

    @property
    def sides(self) -> str:
        """For each column "r" where it holds numbers, else "l"."""
        columns = list(zip(*self.rows[1:])) or [()] * len(self.rows[0])
        return "".join("r" if any(c) and all(_NUMBER.fullmatch(one) for one in c) else "l" for c in columns)

    def to_html(self) -> str:
        """The table in HTML, in the colours of the page.

        Examples
        --------
        >>> "a &lt; b" in ShownTable([("name",), ("a < b",)]).to_html()
        True
        """
        styles = [
            f"text-align:{'right' if side == 'r' else 'left'};padding:.15em .8em" for side in self.sides
        ]
        head = "".join(
            f'<th style="{style}">{escape(cell)}</th>' for cell, style in zip(self.rows[0], styles)
        )
        body = []
        for number, row in enumerate(self.rows[1:]):
            weight = ";font-weight:bold" if number in self.bold else ""
            cells = "".join(
                f'<td style="{style}{weight}">{escape(cell)}</td>' for cell, style in zip(row, styles)
            )
            body.append(f"<tr>{cells}</tr>")
        caption = ""
        if self.caption:
            caption = f'<caption style="text-align:left;caption-side:top">{escape(self.caption)}</caption>'
        below = "".join(f"<p>{escape(note)}</p>" for note in self.notes)
        heading = f"<thead><tr>{head}</tr></thead>" if any(self.rows[0]) else ""
        return (
            f'<div class="preflearn-table" style="overflow-x:auto"><table style="{_STYLE}">{caption}'
            f"{heading}<tbody>{''.join(body)}</tbody></table>{below}</div>"
        )

    def to_markdown(self) -> str:
        """The table in Markdown.

        Examples
        --------
        >>> print(ShownTable([("ranker", "mean"), ("a|b", "0.75")]).to_markdown())
        | ranker | mean |
        |---|--:|
        | a\\|b | 0.75 |
        """
        marks = "|".join("--:" if side == "r" else "---" for side in self.sides)
        lines = [" | ".join(map(markdown_text, row)) for row in self.rows]
        return "\n".join([f"| {lines[0]} |", f"|{marks}|", *(f"| {line} |" for line in lines[1:])])

    def to_latex(self) -> str:
        r"""The table in LaTeX, for the package booktabs.

        Examples
        --------
        >>> print(ShownTable([("ranker", "mean"), ("a_b", "0.75")]).to_latex())
        \begin{tabular}{lr}
        \toprule
        ranker & mean \\
        \midrule
        a\_b & 0.75 \\
        \bottomrule
        \end{tabular}
        """
        lines = [" & ".join(map(_latex, row)) + r" \\" for row in self.rows]
        body = [rf"\begin{{tabular}}{{{self.sides}}}", r"\toprule", lines[0], r"\midrule", *lines[1:]]
        return "\n".join([*body, r"\bottomrule", r"\end{tabular}"])


def visible(text: Any) -> str:
    """A name from data as part of a line: on one line, without marks that reorder or hide what is around it.

    Line breaks become spaces, and control characters and marks of the direction of writing are spelled out. Text
    that is written from right to left is isolated, so that what follows keeps its place.

    Examples
    --------
    >>> visible("gpt\\n4"), visible("a\\u202eb")
    ('gpt 4', 'a\\\\u202eb')
    """
    line = " ".join(str(text).split())
    kinds = {unicodedata.bidirectional(one) for one in line if not one.isascii()}
    line = "".join(_spelled(one) for one in line)
    return f"\u2068{line}\u2069" if kinds & {"R", "AL", "AN"} else line


def clipped(text: str, most: int) -> str:
    """A text of at most so many characters.

    Examples
    --------
    >>> clipped("abc", 3), clipped("abcd", 3)
    ('abc', 'ab…')
    """
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _spelled(one: str) -> str:
    if unicodedata.category(one) == "Cc" or unicodedata.bidirectional(one) in _DIRECTIONS or one in _MARKS:
        return f"\\u{ord(one):04x}"
    return one


def markdown_text(text: Any) -> str:
    """A name from data as plain text inside of a Markdown table.

    Examples
    --------
    >>> print(markdown_text("<b>a|b</b>\\n*c_d*"))
    &lt;b&gt;a\\|b&lt;/b&gt; \\*c_d\\*
    """
    line = visible(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return re.sub(r"([\\|`*\[\]~$]|(?<!\w)_|_(?!\w))", r"\\\1", line)


def _latex(text: str) -> str:
    return "".join(_LATEX.get(one, one) for one in visible(text))


def align_columns(rows: Sequence[Row], sides: str | None = None) -> list[str]:
    """Rows of a table as lines of text: the first column to the left, the others to the right, or as ``sides`` says.

    Examples
    --------
    >>> print(*align_columns([("ranker", "mean"), ("A", "0.75"), ("B", "0.6125")]), sep="\\n")
      ranker    mean
      A         0.75
      B       0.6125
    """
    widths = [max(len(row[k]) for row in rows) for k in range(len(rows[0]))]
    sides = sides or "l" + "r" * (len(widths) - 1)
    return [
        "  "
        + "  ".join(
            f"{cell:<{w}}" if side == "l" else f"{cell:>{w}}" for cell, w, side in zip(row, widths, sides)
        )
        for row in rows
    ]


def in_notebooks(kind: type[T]) -> type[T]:
    """Show the tables of ``shown_tables()`` in a notebook, or what ``print`` shows where there are none."""

    def as_html(self: Any) -> str:
        if not hasattr(self, "shown_tables"):
            return f"<pre>{escape(str(self))}</pre>"
        return "".join(table.to_html() for table in self.shown_tables())

    kind._repr_html_ = as_html  # type: ignore[attr-defined]
    return kind


def shows_itself(kind: type[T]) -> type[T]:
    """The same, and ``repr`` is what ``print`` shows.

    Examples
    --------
    >>> @shows_itself
    ... class Score:
    ...     def __str__(self):
    ...         return "score 0.7"
    >>> Score(), Score()._repr_html_()
    (score 0.7, '<pre>score 0.7</pre>')
    """

    def as_text(self: Any) -> str:
        return str(self)

    kind.__repr__ = as_text  # type: ignore[method-assign, assignment]
    return in_notebooks(kind)
