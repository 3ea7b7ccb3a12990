"""``preflearn compare``: several models or score files on the same queries, with significance."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from . import files, model_files
from . import preferences as of_pairs
from .output import Tell, collected_warnings, new_console, print_json, print_notes, print_table, progress
from .settings import JsonOption, ReadOption

if TYPE_CHECKING:
    from ..model_selection import CIndexComparison, RankerTable
    from ..shown_tables import ShownTable


# Long: most of it declares the options of the command.
def compare(
    data: Annotated[Path, typer.Argument(metavar="DATA", help="Rows with known targets, in queries.")],
    rankers: Annotated[
        list[Path],
        typer.Argument(metavar="A B...", help="Models written by `preflearn train`, or files of scores."),
    ],
    more: Annotated[
        list[Path] | None, typer.Option("--data", help="More rows, read as one file with DATA (repeat).")
    ] = None,
    metric: Annotated[
        str, typer.Option("--metric", help="concordance, kendall_tau, ndcg@10, map, mrr, err, ...")
    ] = "concordance",
    baseline: Annotated[
        Path | None, typer.Option("--baseline", help="Compare the others with this one only.")
    ] = None,
    target: files.TargetOption = None,
    query: files.QueryOption = None,
    group: files.GroupOption = None,
    event: files.EventOption = None,
    drop: files.DropOption = None,
    read: ReadOption = None,
    preferences: of_pairs.PreferencesOption = None,
    chosen: of_pairs.ChosenOption = None,
    rejected: of_pairs.RejectedOption = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="File for the tables: .md for Markdown, .tex for LaTeX."),
    ] = None,
    force: files.ForceOption = False,
    as_json: JsonOption = False,
) -> None:
    """Compare rankers on the same queries: Wilcoxon's signed ranks, corrected by Holm's method.

    With --event and without --query two C-indices of the same rows are compared: DeLong's test.
    """
    data, rankers = _data_first(data, rankers)
    if len(rankers) < 2:
        raise ValueError(
            f"compare needs two rankers or more: found {len(rankers)}. Usage: preflearn compare DATA A B [C...]"
        )
    _check_output(output, [data, *rankers], force)
    names = _names(rankers)
    if baseline is not None and baseline not in names:
        raise ValueError(
            f"--baseline must be one of the rankers ({', '.join(map(str, rankers))}): found {baseline}."
        )
    unused = ["item", "weight", "prompt", "skip_bad"]
    reading = files.Reading.from_options(
        read, target=target, query=query, drop=drop, group=group, event=event, unused=unused
    )
    from ..model_selection import compare_several_rankers

    paths = [data, *(more or [])]
    source = of_pairs.Source.from_options(preferences, chosen, rejected, None)
    with progress(1 + len(rankers)) as tell, collected_warnings() as warned:
        tell(f"reading {data.name}")
        score = _scores_of_pairs if source else _scores_of_rows
        found = score(paths, names, reading, source, tell)
        against = None if baseline is None else names[baseline]
        options = {"groups": found.groups, "baseline": against}
        if metric != "concordance" and found.y.dtype.names is not None:
            raise ValueError(
                f"--metric {metric} does not know censored times: leave it out to compare C-indices."
            )
        of_times = found.qid is None
        if of_times:
            table: Any = _compare_times(found.y, found.scores, **options)
        else:
            table = compare_several_rankers(found.y, found.scores, found.qid, metric=metric, **options)
    notes = [*found.notes, *warned]
    if output is not None:
        _write(output, table)
    if as_json:
        print_json({"data": [str(path) for path in paths], **table.to_dict(), "notes": notes})
    elif of_times:
        _show_times(table, notes)
    else:
        _show(table, notes)


@dataclass(frozen=True)
class _TimesTable:
    """C-indices of the same rows, best first, and their differences."""

    means: dict[str, float]
    comparisons: list[CIndexComparison]
    corrected: Any

    def shown_tables(self) -> list[ShownTable]:
        from ..shown_tables import ShownTable

        rows = [
            (f"{one.names[0]} - {one.names[1]}", f"{one.difference:+.4f}",
             "{:+.4f} to {:+.4f}".format(*one.interval), f"{one.pvalue:.2g}", f"{p:.2g}")
            for one, p in zip(self.comparisons, self.corrected, strict=True)
        ]  # fmt: skip
        means = [("ranker", "C-index"), *((name, f"{value:.4f}") for name, value in self.means.items())]
        head = ("first - second", "difference", "95 % interval", "p", "p (Holm)")
        return [ShownTable(means, f"C-index of {self.comparisons[0].counted}"), ShownTable([head, *rows])]

    def to_markdown(self) -> str:
        tables = self.shown_tables()
        return "\n\n".join([tables[0].caption, *(one.to_markdown() for one in tables)]) + "\n"

    def to_latex(self) -> str:
        tables = self.shown_tables()
        return "\n".join([f"% {tables[0].caption}", *(one.to_latex() for one in tables)]) + "\n"

    def to_dict(self) -> dict[str, Any]:
        found = [one.to_dict() for one in self.comparisons]
        return {
            "metric": "C-index",
            "means": self.means,
            "comparisons": found,
            "corrected": list(self.corrected),
        }


def _compare_times(y: Any, scores: dict[str, Any], *, groups: Any, baseline: str | None) -> _TimesTable:
    from ..metrics import concordance
    from ..model_selection import compare_rankers
    from ..model_selection.significance import holm

    means = {name: float(concordance(y, one)) for name, one in scores.items()}
    means = dict(sorted(means.items(), key=lambda item: -item[1]))
    pairs = combinations(means, 2) if baseline is None else ((a, baseline) for a in means if a != baseline)
    tests: list[Any] = [
        compare_rankers(y, scores[a], scores[b], groups=groups, names=(a, b)) for a, b in pairs
    ]
    return _TimesTable(means, tests, holm([one.pvalue for one in tests]))


def _show_times(table: _TimesTable, notes: list[Any]) -> None:
    console = new_console()
    for shown in table.shown_tables():
        print_table(console, shown.rows[0], shown.rows[1:], title=shown.caption)
    console.print("DeLong's test over the placement values of the rows, two-sided.", markup=False)
    print_notes(console, notes)


def _check_output(output: Path | None, inputs: list[Path], force: bool) -> None:
    if output is not None and output.suffix not in (".md", ".tex"):
        raise ValueError(f"-o {output}: the tables are written as .md (Markdown) or .tex (LaTeX).")
    files.check_outputs([output], inputs, force)


def _write(output: Path, table: RankerTable | _TimesTable) -> None:
    from ..tables.atomic import write_whole

    text = table.to_latex() if output.suffix == ".tex" else table.to_markdown()
    write_whole(output, text)


def _data_first(first: Path, others: list[Path]) -> tuple[Path, list[Path]]:
    """The data and the rankers, whichever came first: a model in front of them is not data."""
    if not first.is_file() or not model_files.is_model(first):
        return first, others
    data = [
        path
        for path in others
        if path.is_file() and not model_files.is_model(path) and not _has_scores_alone(path)
    ]
    if len(data) != 1:
        return first, others
    return data[0], [first, *(path for path in others if path != data[0])]


def _has_scores_alone(path: Path) -> bool:
    """Whether a file looks like scores that preflearn, or another library, wrote, rather than rows with targets."""
    from ..tables.streams import split_name

    if split_name(path)[0] not in (".csv", ".tsv", ".jsonl", ".ndjson", ".parquet", ".pq"):
        return path.suffix not in (".letor", ".svm", ".svmlight", ".libsvm", ".dat")
    names = files.column_names(path, files.Reading())
    return {*names} <= {"score", "rank", "qid", "query", "item"} or {"score", "rank"} <= {*names}


class _Scored(NamedTuple):
    """Targets, queries, the scores of each ranker, notes, and groups of dependent rows."""

    y: Any
    qid: Any
    scores: dict[str, Any]
    notes: list[str]
    groups: Any = None


def _scores_of_rows(
    paths: list[Path], names: dict[Path, str], reading: files.Reading, source: of_pairs.Source, tell: Tell
) -> _Scored:
    models = [path for path in names if model_files.is_model(path)]
    rows = model_files.read_known((models or list(names))[0], paths, reading)
    assert rows.y is not None
    if rows.qid is None and rows.y.dtype.names is None:
        raise ValueError(
            f"{paths[0]}: comparing rankers needs queries, which are the independent trials of the test: pass "
            "--query and a column. For one ranking of all rows compare the intervals of `preflearn evaluate`."
        )
    notes, scores = [], {}
    for path, name in names.items():
        tell(f"scoring with {path.name}")
        scores[name], note = model_files.scores_of_ranker(path, paths, reading, len(rows))
        if note:
            notes.append(f"{name}: {note}")
    return _Scored(rows.y, rows.qid, scores, notes, rows.clusters)


def _scores_of_pairs(
    paths: list[Path], names: dict[Path, str], reading: files.Reading, source: of_pairs.Source, tell: Tell
) -> _Scored:
    """The same for preferences, each of which is a query of two rows."""
    reading.refuse_labels("every preference counts as a query here: leave it out")
    notes, scores = ["Every preference counts as a query: concordance is the share in the right order."], {}
    for path, name in names.items():
        tell(f"scoring with {path.name}")
        found, metadata = of_pairs.score_pairs(path, source, paths, reading)
        y, scores[name], qid = found.as_queries()
        note = model_files.same_as_training(metadata, source.all_files(paths))
        if note is not None:
            notes.append(f"{name}: {note}")
    return _Scored(y, qid, scores, notes)


def _names(paths: list[Path]) -> dict[Path, str]:
    """Short names where they differ, whole paths otherwise."""
    if len(set(paths)) < len(paths):
        twice = next(path for path in paths if paths.count(path) > 1)
        raise ValueError(f"{twice} is given twice: compare different rankers.")
    short = [path.name for path in paths]
    return {path: path.name if short.count(path.name) == 1 else str(path) for path in paths}


def _show(table: RankerTable, notes: list[Any]) -> None:
    console = new_console()
    first = table.comparisons[0]
    print_table(
        console,
        ("ranker", table.metric),
        [(name, f"{mean:.4f}") for name, mean in table.means.items()],
        title=f"{table.metric}, mean over {first.n_queries} {first.counted}",
    )
    print_table(
        console,
        ("first - second", "difference", "wins", "losses", "ties", "effect", "p", "p (Holm)"),
        [
            (f"{one.names[0]} - {one.names[1]}", f"{one.mean_difference:+.4f}", str(one.n_wins), str(one.n_losses),
             str(one.n_ties), f"{one.effect_size:+.2f}", f"{one.pvalue:.2g}", f"{p:.2g}")
            for one, p in zip(table.comparisons, table.corrected)
        ],
        title=f"{first.counted.capitalize()} where the first wins, loses, ties",
    )  # fmt: skip
    console.print(
        f"Wilcoxon signed ranks over {first.counted}, two-sided; effect: rank-biserial correlation, -1 to 1.",
        markup=False,
    )
    print_notes(console, notes)
