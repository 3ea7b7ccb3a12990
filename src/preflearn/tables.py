"""Small tables as results show themselves: aligned text in a terminal, HTML in a notebook.

``sides`` says for each column whether it is aligned to the left ("l") or to the right ("r").
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

_STYLE = "border-collapse:collapse;font-variant-numeric:tabular-nums"


def text_table(
    heading: Sequence[str], rows: Sequence[Sequence[str]], sides: str, *, indent: str = "  "
) -> str:
    """Rows of texts in columns.

    Examples
    --------
    >>> print(text_table(("name", "score"), [("linear", "0.71"), ("trees", "0.7")], "lr"))
      name    score
      linear   0.71
      trees     0.7
    """
    lines = [tuple(map(str, one)) for one in (heading, *rows)]
    widths = [max(len(line[k]) for line in lines) for k in range(len(heading))]
    return "\n".join(
        (
            indent + "  ".join(_aligned(cell, width, side) for cell, width, side in zip(line, widths, sides))
        ).rstrip()
        for line in lines
    )


def _aligned(cell: str, width: int, side: str) -> str:
    return cell.rjust(width) if side == "r" else cell.ljust(width)


def html_table(
    heading: Sequence[str],
    rows: Sequence[Sequence[str]],
    sides: str,
    *,
    caption: str = "",
    notes: Sequence[str] = (),
    bold: Sequence[int] = (),
) -> str:
    """Rows of texts as an HTML table in the colours of the page; ``bold`` are the numbers of the rows to stress.

    Examples
    --------
    >>> "<td" in html_table(("name",), [("a < b",)], "l"), "a &lt; b" in html_table(("name",), [("a < b",)], "l")
    (True, True)
    """
    align = [f"text-align:{'right' if side == 'r' else 'left'}" for side in sides]
    head = "".join(f'<th style="{style}">{escape(str(cell))}</th>' for cell, style in zip(heading, align))
    body = []
    for number, row in enumerate(rows):
        weight = ";font-weight:bold" if number in bold else ""
        cells = "".join(
            f'<td style="{style}{weight}">{escape(str(cell))}</td>' for cell, style in zip(row, align)
        )
        body.append(f"<tr>{cells}</tr>")
    said = f'<caption style="text-align:left;caption-side:top">{escape(caption)}</caption>' if caption else ""
    below = "".join(f"<p>{escape(note)}</p>" for note in notes)
    return (
        f'<div class="preflearn-table" style="overflow-x:auto"><table style="{_STYLE}">{said}'
        f"<thead><tr>{head}</tr></thead><tbody>{''.join(body)}</tbody></table>{below}</div>"
    )
