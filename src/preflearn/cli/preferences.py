"""Preferences on the command line: pairs of a table of items, two columns of texts, or answers of `preflearn ask`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from . import files, model_files
from .output import collected_warnings

if TYPE_CHECKING:
    import numpy as np

    from ..tables.data import PreferenceData
    from ..web.answers import Answer
    from ..web.items import Items

# The columns of such files, by the names that they usually have.
_TEXT_COLUMNS, _PROMPT = ("chosen", "rejected"), "prompt"
_WRITTEN = (".csv", ".jsonl", ".ndjson")
PreferencesOption = Annotated[
    Path | None,
    typer.Option(
        "--preferences",
        help="Table of pairs, the preferred item and the other one; DATA is then the table of items.",
    ),
]
ChosenOption = Annotated[
    str | None, typer.Option("--chosen", help="Preferences between texts: column of the preferred text.")
]
RejectedOption = Annotated[
    str | None, typer.Option("--rejected", help="Preferences between texts: column of the other text.")
]
JudgeOption = Annotated[
    str | None, typer.Option("--judge", help="Preferences: column that says who compared.")
]


@dataclass(frozen=True)
class Source:
    """Where preferences come from, as typed."""

    preferences: Path | None = None
    chosen: str | None = None
    rejected: str | None = None
    judge: str | None = None
    embed: str | None = None
    prompt: str | None = None

    @classmethod
    def from_options(
        cls,
        preferences: Path | None,
        chosen: str | None,
        rejected: str | None,
        judge: str | None,
        embed: str | None = None,
        prompt: str | None = None,
    ) -> Source:
        """Check what was typed."""
        if (chosen is None) != (rejected is None):
            raise ValueError("Two columns of texts need both options: --chosen COLUMN --rejected COLUMN.")
        if preferences is not None and chosen is not None:
            raise ValueError(
                "--preferences pairs items of a table and --chosen pairs texts: give one of them."
            )
        if embed is not None and chosen is None:
            raise ValueError(
                "--set embed makes features of texts: give --chosen COLUMN and --rejected COLUMN."
            )
        if prompt is not None and chosen is None:
            raise ValueError("--prompt goes with texts: give --chosen COLUMN and --rejected COLUMN.")
        found = cls(preferences, chosen, rejected, judge, embed, prompt)
        if judge is not None and not found:
            raise ValueError(
                "--judge goes with preferences: --preferences FILE, or --chosen and --rejected COLUMN."
            )
        return found

    def __bool__(self) -> bool:
        return self.preferences is not None or self.chosen is not None

    @property
    def of_texts(self) -> bool:
        return self.chosen is not None

    def all_files(self, data: Sequence[Path]) -> list[Path]:
        """Every file that is read."""
        return [*data, *([] if self.preferences is None else [self.preferences])]

    def _prompt(self, data: Sequence[Path], reading: files.Reading) -> str | None:
        """The column of the prompts: as typed, or the one of that name."""
        if self.prompt is not None:
            return self.prompt
        return _PROMPT if _PROMPT in files.column_names(data[0], reading) else None

    def check(self, data: Sequence[Path], reading: files.Reading) -> None:
        """Refuse what would be ignored."""
        if self.preferences is not None and len(data) != 1:
            raise ValueError(f"--preferences goes with one table of items: found {len(data)} files.")
        of_items = (
            ("--read item", reading.item != "auto"),
            ("--features", reading.features),
            ("--drop", reading.drop),
            ("--encode", reading.kinds),
        )
        ignored = [
            ("--target", reading.target != "auto"),
            ("--query", reading.query not in ("auto", None)),
            ("--no-query", reading.query is None),
            ("--skip-bad", reading.skip_bad),
            ("--read missing", reading.missing is not None),
            ("--read columns", reading.columns is not None),
            ("--read delimiter", reading.delimiter is not None and not self.of_texts),
            ("--read encoding", reading.encoding is not None and not self.of_texts),
            *(of_items if self.of_texts else self._of_answers(reading)),
        ]
        for option, given in ignored:
            if given:
                with_what = "--chosen and --rejected" if self.of_texts else "--preferences"
                raise ValueError(
                    f"{option} would be ignored with {with_what}, which compare directly: leave it out."
                )

    def _of_answers(self, reading: files.Reading) -> list[tuple[str, Any]]:
        """What is known already where the preferences are answers of `preflearn ask`."""
        if self.preferences is None or not is_answers(self.preferences):
            return []
        return [("--judge", self.judge), ("--read format", reading.format)]

    def text_features(self) -> Any:
        """What makes features of texts; None for the default."""
        if self.embed is None:
            return None
        from ..tables.encoding.sentences import SentenceEmbedder

        return SentenceEmbedder(self.embed)

    def read_texts(self, data: Sequence[Path], reading: files.Reading) -> Any:
        """`preflearn.io.TextPreferences` of these columns."""
        from ..tables.preferences import read_text_preferences

        assert self.chosen is not None and self.rejected is not None
        return read_text_preferences(
            [str(path) for path in data], chosen=self.chosen, rejected=self.rejected, judge=self.judge,
            prompt=self._prompt(data, reading), format=reading.format, delimiter=reading.delimiter,
            encoding=reading.encoding,
        )  # fmt: skip


@dataclass(frozen=True, eq=False)
class ScoredPairs:
    """Preferences with a score for each item.

    Attributes
    ----------
    scores : ndarray of shape (m,)
    pairs : ndarray of shape (l, 2)
    judge : ndarray of shape (l,) or None
    names : ndarray of shape (m,)
        Names of the items, or the texts.
    lengths : ndarray of shape (m,) or None
        Of texts.
    prompt : ndarray of shape (l,) or None
        What the texts of each pair answer.
    """

    scores: np.ndarray
    pairs: np.ndarray
    judge: np.ndarray | None
    names: np.ndarray
    lengths: np.ndarray | None
    prompt: np.ndarray | None = None

    @property
    def differences(self) -> np.ndarray:
        """Score of the preferred item minus that of the other."""
        return self.scores[self.pairs[:, 0]] - self.scores[self.pairs[:, 1]]

    @property
    def brief(self) -> str:
        what = "items" if self.lengths is None else "texts"
        return f"{len(self.pairs):,} preferences between {len(self.names):,} {what}"

    def as_queries(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """y, scores and qid with every preference as a query of two rows."""
        import numpy as np

        n = len(self.pairs)
        return np.tile([1.0, 0.0], n), self.scores[self.pairs].ravel(), np.repeat(np.arange(n), 2)


def text_columns(data: Sequence[Path], reading: files.Reading) -> tuple[str, str] | None:
    """The columns of preferred and other texts where a table names them so and nothing else was asked for."""
    if not data[0].is_file() or reading.target != "auto" or not reading.is_table(data[0]):
        return None
    with collected_warnings():  # reported when the rows are read
        names = files.column_names(data[0], reading)
    return _TEXT_COLUMNS if {*_TEXT_COLUMNS} <= {*names} and "target" not in names else None


def texts_of_training(
    model_file: Path, data: Sequence[Path], reading: files.Reading
) -> tuple[str, str] | None:
    """The columns of texts that a model was trained on, where the data have them."""
    if not model_file.is_file() or not model_files.is_model(model_file) or not data[0].is_file():
        return None
    from ..tables.models.files import model_info

    memory = model_info(model_file)["metadata"].get("reading") or {}
    if memory.get("kind") != "texts" or not reading.is_table(data[0]):
        return None
    wanted = (str(memory["chosen"]), str(memory["rejected"]))
    with collected_warnings():
        names = files.column_names(data[0], reading)
    return wanted if {*wanted} <= {*names} else None


def score_pairs(
    model_file: Path, source: Source, data: Sequence[Path], reading: files.Reading
) -> tuple[ScoredPairs, dict[str, Any]]:
    """The preferences of a file with the scores of a model, and what the model remembers."""
    source.check(data, reading)
    if reading.drop:
        raise ValueError(
            f"--drop would be ignored with --preferences: {model_file.name} takes the columns that it was trained on."
        )
    saved = model_files.load(model_file)
    kind = saved.memory["kind"]
    if source.of_texts != (kind == "texts"):
        expected = "--chosen and --rejected" if kind == "texts" else "--preferences and a table of items"
        raise ValueError(f"{model_file.name} was not trained on such data: give it {expected}.")
    if source.of_texts:
        found = source.read_texts(data, reading)
        scores = saved.model.predict(found.texts)
        pairs = ScoredPairs(scores, found.pairs, found.judge, found.texts, found.lengths, found.prompt)
        return pairs, saved.metadata
    from ..tables.preferences import read_preferences

    item = saved.memory.get("item") if reading.item == "auto" else reading.item
    options: dict[str, Any] = {"item": item or "auto", "judge": source.judge, "format": reading.format}
    assert source.preferences is not None
    if saved.encoder is not None:
        names = files.column_names(data[0], reading)
        model_files.require_features(data[0], names, model_file, saved)
        options |= {"encoder": saved.encoder, "features": list(saved.encoder.encoders_)}
        texts = [one for one, how in saved.encoder.kinds_.items() if how in ("category", "text", "words")]
        options["kinds"] = {name: "text" for name in texts if name in names}
    if is_answers(source.preferences) and saved.encoder is not None:
        wanted = replace(reading, features=tuple(saved.encoder.encoders_), item=item or "auto")
        items = read_problem_data(data[0], source.preferences, wanted, saved.encoder)[0]
    else:
        items = read_preferences(data[0], source.preferences, **options)
    rest = saved.model[1:] if saved.encoder is not None else saved.model
    scores = rest.predict(items.X)
    return ScoredPairs(scores, items.pairs, items.judge, items.item_names, None), saved.metadata


def read_problem(
    source: Source, data: Sequence[Path], reading: files.Reading, options: Any
) -> tuple[Any, dict[str, Any], Any, list[str]]:
    """What is to be learned, what the model must remember, the encoder, and notes."""
    from ..auto.training.preference import PreferenceProblem

    source.check(data, reading)
    if source.of_texts:
        found = source.read_texts(data, reading)
        pairs = found.encode(source.text_features())
        notes = _left_out(found)
        problem = PreferenceProblem(pairs, options, data[0].name, lengths=found.lengths, prompt=found.prompt)
        memory = {"kind": "texts", "chosen": source.chosen, "rejected": source.rejected}
        return problem, memory, pairs.encoder, notes
    from ..tables.preferences import read_preferences

    assert source.preferences is not None
    if is_answers(source.preferences):
        pairs, naming, notes = read_problem_data(data[0], source.preferences, reading)
        problem = PreferenceProblem(pairs, options, f"{data[0].name} and {source.preferences.name}")
        memory = {**files.item_memory(data[0], reading, pairs), "item": naming}
        return problem, memory, pairs.encoder, notes
    names = ("format", "item", "features", "drop", "kinds")
    arguments = {name: getattr(reading, name) for name in names}
    pairs = read_preferences(data[0], source.preferences, judge=source.judge, **arguments)
    problem = PreferenceProblem(pairs, options, f"{data[0].name} and {source.preferences.name}")
    return problem, files.item_memory(data[0], reading, pairs), pairs.encoder, []


def _left_out(found: Any) -> list[str]:
    """Notes that count the rows from which nothing can be learned."""
    counts = ((found.n_empty, "an empty text"), (found.n_equal, "the same text twice"))
    return [
        f"{n:,} {'row' if n == 1 else 'rows'} with {what} {'was' if n == 1 else 'were'} left out of "
        f"{len(found) + found.n_empty + found.n_equal:,}."
        for n, what in counts
        if n
    ]


def check_output(output: Path | None) -> None:
    """Refuse a file for differences of pairs whose name asks for another format."""
    if output is not None and output.suffix.lower() not in _WRITTEN:
        raise ValueError(
            f"-o {output}: differences of pairs are written as {', '.join(_WRITTEN)}: give one of these suffixes."
        )


def write_pairs(found: ScoredPairs, columns: tuple[str, str], output: Path | None, as_json: bool) -> None:
    """One line per pair: the prompt if any, the two, the difference of their scores, which the model prefers."""
    from ..tables.atomic import write_whole
    from ..tables.writing import csv_text

    as_json = as_json or (output is not None and output.suffix in (".jsonl", ".ndjson"))
    prompts = [{}] * len(found.pairs) if found.prompt is None else [{_PROMPT: one} for one in found.prompt]
    rows = [
        {**prompt, columns[0]: found.names[one], columns[1]: found.names[other], "score": difference,
         "prefers": columns[0] if difference > 0 else columns[1] if difference < 0 else ""}
        for prompt, (one, other), difference in zip(prompts, found.pairs.tolist(), found.differences.tolist())
    ]  # fmt: skip
    if as_json:
        text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    else:
        text = csv_text(rows[0], (row.values() for row in rows))
    if output is None:
        from .output import write_stdout

        write_stdout(text)
        return
    write_whole(output, text)


# ---------------------------------------------------------------------------------------- answers of preflearn ask


def is_answers(path: Path) -> bool:
    """Whether a file has the lines that `preflearn ask` writes."""
    if path.suffix not in (".jsonl", ".ndjson") or not path.is_file():
        return False
    with open(path, encoding="utf-8-sig", errors="replace") as file:
        first = next((line for line in file if line.strip()), "")
    try:
        entry = json.loads(first)
    except ValueError:
        return False
    return isinstance(entry, dict) and (
        {"winner", "loser", "question"} <= {*entry} or "undo" in entry or "skip" in entry
    )


def read_answers(path: Path) -> tuple[list[Answer], list[str]]:
    """The answers that were not undone and are not ties, and notes about the others."""
    from ..web.answers import standing_answers

    entries = []
    with open(path, encoding="utf-8-sig") as file:
        for number, line in enumerate(file, start=1):
            if line.strip():
                try:
                    entries.append(json.loads(line))
                except ValueError as error:
                    raise ValueError(f"{path}, line {number}: not JSON ({error}).") from None
    standing = list(standing_answers(entries))
    decided = [one for one in standing if not one.tie]
    counts = (
        (len(standing) - len(decided), "tie was", "ties were"),
        (sum("undo" in entry for entry in entries), "undone answer was", "undone answers were"),
        (sum("skip" in entry for entry in entries), "skipped question was", "skipped questions were"),
    )
    notes = [f"{path.name}: {n:,} {one if n == 1 else many} left out." for n, one, many in counts if n]
    if not decided:
        raise ValueError(f"{path}: no answer prefers one item to another: there is nothing to learn from.")
    return decided, notes


def read_problem_data(
    items_path: Path, answers: Path, reading: files.Reading, encoder: Any = None
) -> tuple[PreferenceData, str | None, list[str]]:
    """Items and preferences for ``fit_pairs``, the column that names the items, and notes."""
    import numpy as np

    from ..tables.data import PreferenceData
    from ..tables.encoding.table import TableEncoder
    from ..tables.options import ReadOptions, choose_columns
    from ..web.items import check_names, read_items

    decided, notes = read_answers(answers)
    items = read_items(items_path, None if reading.item == "auto" else reading.item)
    check_names(items, [name for one in decided for name in (one.winner, one.loser)], answers)
    asked = ReadOptions(
        target=None, query=None, item=items.naming, features=reading.features, drop=reading.drop
    )
    columns = {
        name: items.table[name] for name in choose_columns(str(items_path), list(items.table), asked).numbers
    }
    if not columns:
        raise ValueError(f"{items_path}: the items have no columns to learn from besides their names.")
    if encoder is None:
        encoder = TableEncoder(kinds=reading.kinds).fit(columns)
    X = encoder.transform(columns)
    place = {name: row for row, name in enumerate(items.names)}
    pairs = np.array([[place[one.winner], place[one.loser]] for one in decided], dtype=np.int64)
    judges = np.array([one.judge for one in decided], dtype=object)
    names = np.array(items.names, dtype=object)
    found = PreferenceData(
        X, pairs, names, [str(one) for one in encoder.get_feature_names_out()],
        judge=judges if len({*judges.tolist()}) > 1 else None, encoder=encoder,
    )  # fmt: skip
    return found, items.naming, notes


@dataclass(frozen=True)
class Exported:
    """How many preferences were written, and which columns their texts and prompts came from."""

    n: int
    text: str | None
    prompt: str | None

    @property
    def sources(self) -> str:
        if not self.text:
            return "Chosen and rejected are the items as they are named."
        prompt = "" if self.prompt is None else f", the prompt from {self.prompt!r}"
        return f"Chosen and rejected come from column {self.text!r} (--text COLUMN for another one){prompt}."


def export_preferences(
    items_path: Path, answers: Path, output: Path, name: str | None = None, text: str | None = None
) -> Exported:
    """Write answers as chosen and rejected texts, JSON lines, as trainers of language models take them."""
    from ..tables.atomic import write_whole
    from ..web.items import check_names, read_items

    decided, _ = read_answers(answers)
    items = read_items(items_path, name)
    check_names(items, [one for answer in decided for one in (answer.winner, answer.loser)], answers)
    text = _text_column(items, text)
    shown = (
        items.names if text is None else ["" if value is None else str(value) for value in items.table[text]]
    )
    place = {one: row for row, one in enumerate(items.names)}
    prompts = items.table.get(_PROMPT)
    lines = []
    for one in decided:
        winner, loser = place[one.winner], place[one.loser]
        record = {_PROMPT: str(prompts[winner])} if prompts and prompts[winner] == prompts[loser] else {}
        record |= {"chosen": shown[winner], "rejected": shown[loser], "judge": one.judge}
        lines.append(json.dumps(record, ensure_ascii=False) + "\n")
    write_whole(output, "".join(lines))
    return Exported(len(lines), text, _PROMPT if prompts else None)


def _text_column(items: Items, asked: str | None) -> str | None:
    """The column that holds the texts of items: as asked, by its name, or the longest one of several words."""
    if asked is not None:
        if asked not in items.table:
            raise ValueError(
                f"{items.source}: --text asks for column {asked!r}, found {files.listed(list(items.table))}."
            )
        return asked
    usual = next((one for one in model_files.TEXT_NAMES if one in items.table), None)
    if usual is not None:
        return usual
    words = {
        name: sum(len(value.split()) for value in values if isinstance(value, str)) / len(values)
        for name, values in items.table.items()
        if name != _PROMPT
    }
    longest = max(words, key=lambda name: words[name], default=None)
    return longest if longest is not None and words[longest] >= 3 else items.naming
