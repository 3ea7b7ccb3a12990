"""Figures of the pages, written from the files of results.

    python benchmarks/figures.py            # rewrite them in README.md and docs/
    python benchmarks/figures.py --check    # say which differ from the results, and change nothing

A page says where a figure comes from in a comment that readers do not see. One figure, behind it:

    0.711<!--= peers / rankers on mq2007 / preflearn AutoRanker / concordance:.3f -->

that is the file of results, the question, the row (by one of its texts) where the result has rows, the field, and how
to write it. A table, between two comments,
by a function of this file, or with a row and a column for each value of two fields:

    <!-- table: peers / rankers on mq2007 -->
    <!-- /table -->

    <!-- table: rankrls_vs_ranksvm / data × learner / concordance:.4f -->
    <!-- /table -->

The documentation is not built (``docs/conf.py``), and the tests fail, while a page says something else than its
results.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import sys
from collections.abc import Callable
from functools import cache
from statistics import mean
from typing import Any

from audit import RESULTS, ROOT, pages

ONE = re.compile(r"(?P<figure>[+−-]?[\d.,]*\d)(?P<comment><!--= *(?P<source>[^>]*?) *-->)")
TABLE = re.compile(
    r"(?P<start><!-- table: *(?P<source>[^>]*?) *-->\n)(?P<table>.*?)(?P<end><!-- /table -->)", re.DOTALL
)


@cache
def _results(name: str) -> list[dict[str, Any]]:
    return json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))["results"]


def find(source: str) -> Any:
    """What lies at the place that slashes separate: file, question, then rows by one of their texts, and fields."""
    file, *steps = (step.strip() for step in source.split(" / "))
    found: Any = _results(file)
    for step in steps:
        if isinstance(found, list):
            rows = (row for row in found if isinstance(row, dict) and step in row.values())
            found = found[int(step)] if step.isdigit() else next(rows, None)
        else:
            found = found.get(step)
        if found is None:
            raise LookupError(f"benchmarks/results/{file}.json has nothing at '{source}' ({step})")
        if isinstance(found, dict) and "results" in found:
            found = found["results"]
    return found


def _figure(match: re.Match[str]) -> str:
    source, _, form = match["source"].rpartition(":")
    return format(find(source), form).replace("-", "−") + match["comment"]


def _table(match: re.Match[str]) -> str:
    source = match["source"]
    file = source.split(" / ")[0]
    crossed = re.fullmatch(r"\w+ / (\w+) × (\w+) / ([^:]+):(\S+)", source)
    lines = crossed_table(_results(file), *crossed.groups()) if crossed else TABLES[file](find(source))
    return match["start"] + "\n" + "\n".join(lines) + "\n\n" + match["end"]


def _with_error(row: dict[str, Any], field: str, form: str) -> str:
    if field not in row:
        return ""
    error = row.get(f"{field}_error")
    return f"{row[field]:{form}}".replace("-", "−") + (
        "" if error is None else f" ± {error:{form.lstrip('+')}}"
    )


def crossed_table(rows: list[dict[str, Any]], down: str, across: str, field: str, form: str) -> list[str]:
    """A row for each value of one field, a column for each of another; without rows in which nothing was measured."""
    found = {(row[down], row[across]): row[field] for row in rows if row.get(field) is not None}
    columns = list(dict.fromkeys(column for _, column in found))
    lines = [f"| {down} | " + " | ".join(columns) + " |", "|---" * (len(columns) + 1) + "|"]
    for name in dict.fromkeys(name for name, _ in found):
        cells = [f"{found[name, column]:{form}}" if (name, column) in found else "" for column in columns]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return lines


def peers_table(rows: list[dict[str, Any]]) -> list[str]:
    """Contestants, best first; or on how many sets each is first."""
    if "sets" in rows[0]:
        return _firsts_table(rows)
    lines = [
        "| | folds | concordance | NDCG@10 | `AutoRanker` ahead: concordance | NDCG@10 | CPU s |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        ahead = [_with_error(row, f"{name}_behind", "+.4f") for name in ("concordance", "ndcg_at_10")]
        shown = [_with_error(row, name, ".4f") for name in ("concordance", "ndcg_at_10")]
        name = row["contestant"].replace("preflearn ", "**preflearn** ")
        cells = [name, str(row["folds"]), *shown, *ahead, f"{row['cpu_s']:.1f}"]
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def _firsts_table(rows: list[dict[str, Any]]) -> list[str]:
    lines = [
        "| | sets | concordance: first | first or as good | NDCG@10: first | first or as good |",
        "|---|---|---|---|---|---|",
    ]
    fields = ("concordance_first", "concordance_near", "ndcg_at_10_first", "ndcg_at_10_near")
    for row in rows:
        counts = [str(int(row.get(field, 0))) for field in fields]
        lines.append("| " + " | ".join([row["contestant"], str(row["sets"]), *counts]) + " |")
    return lines


def since_table(rows: list[dict[str, Any]]) -> list[str]:
    """What became of AutoRanker between two measurements."""
    has_more = all("best_score_minus_new" in row for row in rows)
    lines = [
        "| | folds | concordance | NDCG@10 |" + " CPU s before | now | `best_score_` minus new |" * has_more,
        "|---" * (4 + 3 * has_more) + "|",
    ]
    for row in rows:
        cells = [_with_error(row, name, "+.4f") for name in ("concordance", "ndcg_at_10")]
        if has_more:
            cells += [f"{row['cpu_s_before']:.1f}", f"{row['cpu_s']:.1f}"]
            cells.append(f"{row['best_score_minus_new']:+.3f}".replace("-", "−"))
        lines.append("| " + " | ".join([row["data"], str(row["folds"]), *cells]) + " |")
    return lines


def growth_table(cases: list[dict[str, Any]]) -> list[str]:
    """How the time of each call grows with each of its sizes."""
    lines = ["| call | size | documented exponent | measured | at the largest |", "|---|---|---|---|---|"]
    for case in cases:
        for number, (axis, found) in enumerate(case["axes"].items()):
            first, last, seconds = found["values"][0], found["values"][-1], found["seconds"][-1]
            grown = "–" if found["exponent"] is None else f"{found['exponent']:.1f}".replace("-", "−")
            time = f"{seconds:.2g} s" if seconds >= 0.02 else "–"
            name = "" if number else case["question"]
            lines.append(
                f"| {name} | {axis} {first:,} to {last:,} | {found['documented']:g} | {grown} | {time} |"
            )
    return lines


def curves_table(found: dict[str, Any]) -> list[str]:
    """Kendall's tau of each method over the number of answers."""
    curves = found["curves"]
    answers = max((curve["answers"] for curve in curves.values()), key=len)
    lines = ["| answers | " + " | ".join(map(str, answers)) + " |", "|---" * (len(answers) + 1) + "|"]
    for name, curve in sorted(curves.items(), key=lambda one: -one[1]["tau"][0]):
        cells = [f"{tau:.3f}" for tau in curve["tau"]] + [""] * (len(answers) - len(curve["tau"]))
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return lines


def auc_table(rows: list[dict[str, Any]]) -> list[str]:
    """Coverage over no, weak and strong signal, 30 rows with two kernels and 200 rows with the linear one."""
    lines = [
        "| estimate | features | 95 % interval holds the truth | DeLong alone | width, 30 rows | width, 200 rows |",
        "|---|---|---|---|---|---|",
    ]
    kinds: dict[tuple, list[dict[str, Any]]] = {}
    for row in rows:
        if row.get("rows") == 200 and row["kernel"] == "rbf" or "measure" not in row:
            continue
        share = "" if row["positive"] is None else f", {row['positive']:.0%} positive".replace("%", " %")
        name = row["measure"] + (share or ", real y")
        kinds.setdefault((name, row["features"]), []).append(row)
    for (name, features), some in sorted(
        kinds.items(), key=lambda one: ("AUC" not in one[0][0], one[0][0][::-1])
    ):
        cells = []
        for field in ("coverage", "coverage_models_as_given"):
            shares = [100 * row[field] for row in some]
            cells.append(f"{mean(shares):.1f} % ({min(shares):.1f} to {max(shares):.1f})")
        cells += [f"{mean(row['mean_width'] for row in some if row['rows'] == m):.2f}" for m in (30, 200)]
        lines.append(f"| {name} | {features} | " + " | ".join(cells) + " |")
    return lines


def size_table(rows: list[dict[str, Any]]) -> list[str]:
    """Processor time and memory of training on many rows."""
    fields = {"cpu_s": ".0f", "peak_gb": ".1f", "predict_us_a_row": ".1f"}
    fields |= {"concordance": ".4f", "ndcg_at_10": ".4f"}
    lines = [
        "| | CPU s | GB beyond the data | µs a row to answer | concordance | NDCG@10 |",
        "|---|---|---|---|---|---|",
    ]
    for row in rows:
        cells = [f"{row[field]:{form}}" for field, form in fields.items()]
        lines.append(f"| {row['contestant']} | " + " | ".join(cells) + " |")
    return lines


def ranks_table(rows: list[dict[str, Any]]) -> list[str]:
    """How often all rank intervals of a board held, before and now, and single ratings."""
    designs = {
        "equal": "alike: ranks (before), one rating",
        "tastes": "with tastes: ranks (before), one rating",
        "skewed": "tastes, k-th judge 1/k of the battles",
    }
    found = {(row["items"], row["judges"], row["design"]): row for row in rows}
    lines = ["| items, judges | " + " | ".join(designs.values()) + " |", "|---" * (len(designs) + 1) + "|"]
    for items, judges in sorted({key[:2] for key in found if key[2] in designs}):
        some = [found.get((items, judges, design)) for design in designs]
        cells = [
            f"{one['held']:.3f} ({one['before']:.3f}), {one['single']:.3f}" if one else "" for one in some
        ]
        lines.append(f"| {items}, {judges} | " + " | ".join(cells) + " |")
    return lines


def sets_table(rows: list[dict[str, Any]]) -> list[str]:
    """Coverage and mean size of four ways to cut off, on real data."""
    methods = {
        "sets": "sets", "first k": "first k, k chosen on training queries", "fixed score": "fixed score",
        "share of exp": "fixed share of Σ exp f",
    }  # fmt: skip
    lines = [
        "| data, target | requested | " + " | ".join(methods.values()) + " |",
        "|---" * (len(methods) + 2) + "|",
    ]
    found = {row["question"]: row for row in rows}
    for name, targets in (
        ("OHSUMED (LETOR 2)", ("best", "any-relevant")),
        ("MQ2007 (85 % of rows)", ("best", "top-k", "any-relevant", "all-relevant")),
    ):
        for target in targets:
            for asked in (0.8, 0.9, 0.95) if target == "best" else (0.9,):
                some = [found[f"{name}, target {target}, asked {asked}, {method}"] for method in methods]
                cells = [f"{one['coverage']:.3f}, {one['size']:.1f}" for one in some]
                lines.append(f"| {name}, {target} | {asked} | " + " | ".join(cells) + " |")
    return lines


def sizes_table(rows: list[dict[str, Any]]) -> list[str]:
    """Contestants on generated data of several kinds and sizes; means over seeds."""
    lines = ["| data | rows, about | | concordance | NDCG@10 | CPU s |", "|---|---|---|---|---|---|"]
    cells: dict[tuple, list[dict[str, Any]]] = {}
    for row in rows:  # sizes are drawn: those of a thousand, of ten thousand, ...
        size = 10 ** round(math.log10(row["rows"])) if row["rows"] < 20_000 else round(row["rows"], -3)
        cells.setdefault((size, row["kind"], row["contestant"]), []).append(row)
    before = None
    for (size, kind, contestant), some in sorted(cells.items(), key=lambda one: one[0][:2]):
        shown = [kind, f"{size:,}"] if (size, kind) != before else ["", ""]
        for name in ("concordance", "ndcg_at_10"):
            error = math.hypot(*(row[f"{name}_error"] for row in some)) / len(some)
            shown.append(f"{mean(row[name] for row in some):.4f} ± {error:.4f}")
        shown.insert(2, f"`{contestant}`" if contestant == "AutoRanker" else contestant)
        lines.append("| " + " | ".join([*shown, f"{mean(row['cpu_s'] for row in some):.1f}"]) + " |")
        before = size, kind
    return lines


TABLES: dict[str, Callable[[Any], list[str]]] = {
    "auc_intervals": auc_table,
    "comparisons_needed": curves_table,
    "growth": growth_table,
    "peers": peers_table,
    "peers_since": since_table,
    "public_size": size_table,
    "rank_coverage": ranks_table,
    "sets": sets_table,
    "sizes": sizes_table,
    "sizes_automatic": sizes_table,
    "development": since_table,
}


def written(text: str) -> str:
    """A page with its figures as the results have them."""
    return TABLE.sub(_table, ONE.sub(_figure, text))


def differences() -> list[str]:
    """Lines of pages that say something else than the results."""
    found = []
    for page in pages():
        text = page.read_text(encoding="utf-8")
        old, new = text.splitlines(), written(text).splitlines()
        if old != new:
            lines = [
                f"{a.strip()[:100]} -> {b.strip()[:100]}" for a, b in zip(old, new, strict=False) if a != b
            ]
            found.append(f"{page.relative_to(ROOT)}: {(lines or ['lines are missing'])[0]}")
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="change nothing")
    if parser.parse_args().check:
        print("\n".join(found := differences()) or "all figures are those of the results")
        return int(bool(found))
    for page in pages():
        text = page.read_text(encoding="utf-8")
        if written(text) != text:
            page.write_text(written(text), encoding="utf-8")
            print(f"written: {page.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
