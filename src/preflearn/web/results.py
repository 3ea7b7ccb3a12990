"""What a session leaves behind: the order as a table, a model for unseen items, a report, the answers."""

from __future__ import annotations

import json
import warnings
from html import escape
from pathlib import Path
from typing import Any

from ..tables.atomic import write_whole
from ..tables.writing import csv_text
from .answers import answers_table
from .session import Session


def order_csv(session: Session) -> bytes:
    """Rank, item, score and its 95 % interval, best first."""
    with session.up_to_date() as (_, standing, _):
        low, high = standing.intervals()
        rows = (
            [rank, session.items.names[row], *(f"{one[row]:.6g}" for one in (standing.scores, low, high))]
            for rank, row in enumerate(standing.order(), start=1)
        )
        return csv_text(["rank", "item", "score", "low", "high"], rows).encode()


def board_page(session: Session) -> bytes:
    """The leaderboard that `preflearn rate` makes of the answers file, with intervals of ratings and ranks.

    Raises
    ------
    ValueError
        Where nobody has won yet.
    """
    from ..ratings import rate
    from ..ratings.summary import page_of
    from ..report.ratings import render_ratings

    with warnings.catch_warnings():
        # What is not connected yet is a note on the page.
        warnings.simplefilter("ignore", UserWarning)
        ratings = rate(answers_table(session.answers()))
        title = f"Leaderboard of {Path(session.items.source).name}"
        return render_ratings(page_of(ratings, title, f"preflearn rate {session.journal.path.name}")).encode()


def board_or_reason(session: Session) -> bytes:
    """The leaderboard, or a page that says why there is none."""
    try:
        return board_page(session)
    except (ValueError, ImportError) as error:
        reason = str(error) if session.answers() else "Nobody has answered yet."
        return _html("No leaderboard yet", f"<h1>No leaderboard yet</h1><p>{escape(reason)}</p>")


def answers_lines(session: Session) -> bytes:
    """The answers that stand, one JSON object per line."""
    lines = [json.dumps(answer.as_entry(), ensure_ascii=False) for answer in session.answers()]
    return "".join(f"{line}\n" for line in lines).encode()


def model_file(session: Session) -> bytes:
    """The model, as `preflearn.io.load_model` reads it."""
    with session.up_to_date() as (learner, standing, _):
        metadata = {
            "command": "ask",
            "items": len(session.items),
            "answers": standing.n_answers,
            "columns": learner.columns or [],
        }
        return learner.saved(metadata)


def write_results(session: Session, folder: Path) -> list[Path]:
    """All of these into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    made = {"order.csv": order_csv, "model.preflearn": model_file, "report.html": report_page}
    paths = []
    for name, make in {**made, "board.html": board_page}.items():
        try:
            content = make(session)
        except (ValueError, ImportError):
            # Without any winner, or without the package that makes pages, there is no board.
            if make is not board_page:
                raise
            continue
        paths.append(folder / name)
        write_whole(paths[-1], content)
    return paths


_STYLE = """
:root { --page: #f6f7f9; --surface: #fff; --text: #1b2430; --soft: #4b5765; --line: #d5dae1; --main: #1f5fa8; }
@media (prefers-color-scheme: dark) {
  :root { --page: #12161c; --surface: #1a2029; --text: #e6eaf0; --soft: #a9b4c2; --line: #465061; --main: #7fb5f5; } }
body { margin: 0 auto; max-width: 60rem; padding: 1.5rem 1rem 3rem; background: var(--page); color: var(--text);
  font: 1rem/1.5 system-ui, sans-serif; overflow-wrap: anywhere; }
section { background: var(--surface); border: 1px solid var(--line); border-radius: .6rem; padding: 1rem 1.2rem;
  margin: 1rem 0; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.1rem; margin-top: 0; } p.soft, caption, th { color: var(--soft); }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
td, th { text-align: left; padding: .3rem .6rem .3rem 0; border-bottom: 1px solid var(--line); font-weight: 400; }
td.n, th.n { text-align: right; } svg { display: block; width: 100%; } svg.bar { height: 1rem; min-width: 8rem; }
line { stroke: var(--main); } circle { fill: var(--main); }
polyline { fill: none; stroke: var(--main); stroke-width: 2; }
text { fill: var(--soft); font-size: 11px; }
"""


def report_page(session: Session) -> bytes:
    """One self-contained HTML page: the order with intervals, how it grew, the judges."""
    with session.up_to_date() as (_, standing, panel):
        low, high = standing.intervals()
        span = (float(low.min()), float(high.max()))
        rows = "".join(
            f"<tr><td class=n>{rank}</td><td>{escape(_clip(session.items.names[row]))}</td>"
            f"<td class=n>{standing.scores[row]:.2f}</td>"
            f"<td>{_bar(low[row], standing.scores[row], high[row], span)}</td></tr>"
            for rank, row in enumerate(standing.order().tolist(), start=1)
        )
        sentence = (
            f"{standing.n_answers:,} answers about {len(session.items):,} items. "
            f"{_share_words(panel['goal'])} {100 * standing.share:.1f} %."
        )
        body = (
            f"<h1>{escape(Path(session.items.source).name)}</h1><p>{escape(sentence)}</p>"
            f"<section><h2>How it grew</h2>{_curve(panel['history'])}</section>"
            f"<section><h2>Judges</h2>{_judges(panel['agreement'])}</section>"
            "<section><h2>Order</h2><p class=soft>Scores relative to the average item; a difference of 1 is odds of "
            f"e to 1. Bars are 95 % intervals. This order, that of order.csv, is by the columns of the items "
            "and the answers, the leaderboard by the answers alone, model.preflearn by the columns alone, which is all "
            "that is known of a new item: the three may differ.</p>"
            "<table><thead><tr><th class=n>rank<th>item<th class=n>score"
            f"<th>interval</tr></thead><tbody>{rows}</tbody></table></section>"
        )
    return _html(f"Order of {Path(session.items.source).name}", body)


def _html(title: str, body: str) -> bytes:
    return (
        '<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" '
        'content="width=device-width, initial-scale=1"><meta name="color-scheme" content="light dark">'
        f'<link rel="icon" href="data:,"><title>{escape(title)}</title>'
        f"<style>{_STYLE}</style></head><body>{body}</body></html>"
    ).encode()


def _share_words(goal: str) -> str:
    if goal.startswith("top:"):
        return f"Expected share of the {goal[4:]} shown first that belong there:"
    if ">" in goal:
        return "Probability that the order of the two is right:"
    return "Expected share of pairs in the right order:"


def _bar(low: float, middle: float, high: float, span: tuple[float, float]) -> str:
    width = max(span[1] - span[0], 1e-12)
    at = [200 * (value - span[0]) / width for value in (low, middle, high)]
    return (
        f'<svg class=bar viewBox="-4 0 208 10" preserveAspectRatio="none" role="img" '
        f'aria-label="from {low:.2f} to {high:.2f}"><line x1="{at[0]:.1f}" x2="{at[2]:.1f}" y1="5" y2="5" '
        f'stroke-width="2"/><circle cx="{at[1]:.1f}" cy="5" r="3"/></svg>'
    )


def _curve(history: list[tuple[int, float]]) -> str:
    last = max(history[-1][0], 1)
    points = " ".join(f"{40 + 540 * n / last:.1f},{150 - 260 * (share - 0.5):.1f}" for n, share in history)
    labels = "".join(
        f'<text x="0" y="{154 - 260 * (level - 0.5):.0f}">{100 * level:.0f} %</text>'
        for level in (0.5, 0.75, 1.0)
    )
    return (
        f'<svg viewBox="0 0 600 180" role="img" aria-label="expected share against answers, now '
        f'{100 * history[-1][1]:.1f} %"><polyline points="{points}"/>{labels}'
        f'<text x="40" y="174">0</text><text x="580" y="174" text-anchor="end">{last} answers</text></svg>'
    )


def _judges(found: dict[str, Any]) -> str:
    if not found["judges"]:
        return "<p class=soft>Nobody has answered yet.</p>"
    several = len(found["judges"]) > 1
    rows = ""
    for one in found["judges"]:
        agrees = "" if one["agrees"] is None else f"{100 * one['agrees']:.0f} %"
        reliability = "" if one["reliability"] is None else f"{one['reliability']:.2f}"
        against = "; ".join(
            f"{_clip(case['winner'], 40)} over {_clip(case['loser'], 40)}" for case in one["against"][:3]
        )
        rows += (
            f"<tr><td>{escape(one['judge'])}<td class=n>{one['answers']}<td class=n>{agrees}<td class=n>{reliability}"
            f"<td>{escape(against)}</tr>"
        )
    table = (
        "<table><thead><tr><th>judge<th class=n>answers<th class=n>agree with the order<th class=n>reliability"
        f"<th>most against it</tr></thead><tbody>{rows}</tbody></table>"
    )
    common = "".join(
        f"<p>{escape(' and '.join(pair['judges']))}: the same answer to {pair['same']} of {pair['common']} common "
        "questions.</p>"
        for pair in found["pairs"]
    )
    rest = found["n_judges"] - len(found["judges"])
    more = f"<p class=soft>and {rest:,} more judges.</p>" if rest else ""
    return table + more + (common if several else "")


def _clip(text: str, most: int = 120) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"
