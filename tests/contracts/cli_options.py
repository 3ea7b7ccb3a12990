"""Every option of a command with every other: what must work, what must be refused, and that nothing is ignored.

A `Command` lists what may be typed for each of its options, "" for nothing. `pairwise.all_pairs` draws combinations in
which every two of them meet. One that meets a `Rule` must be refused in one line that the rule describes, and must
leave no file behind. Any other must succeed, write the files that it was asked for, and do something else as soon as
one of its options is left out.
"""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path

from .pairwise import all_pairs

Chosen = dict[str, str]


@dataclass(frozen=True)
class Rule:
    """What may not be typed together: when that is so, and what the message must say."""

    when: Callable[[Chosen], bool]
    says: str


@dataclass(frozen=True)
class Command:
    """A command, what may be typed for each option, and what is refused.

    Attributes
    ----------
    words : str
        The command with what it always needs.
    options : mapping from name to list of str
        ``{in}`` is the folder of the data, ``{out}`` one of the run.
    rules : mapping from name to Rule
    left_out : int
        How many options of each combination are left out in turn; all where it is quick.
    idle : callable
        Whether leaving an option out rightly changes nothing that could be seen.
    """

    words: str
    options: Mapping[str, Sequence[str]]
    rules: Mapping[str, Rule] = field(default_factory=dict)
    idle: Callable[[Chosen, str], bool] = lambda chosen, option: False
    left_out: int = 99

    def met(self, chosen: Chosen) -> list[str]:
        return [name for name, rule in self.rules.items() if rule.when(chosen)]

    def typed(self, chosen: Chosen, without: str = "") -> str:
        return " ".join([self.words, *(value for name, value in chosen.items() if value and name != without)])


def to_leave_out(command: Command, chosen: Chosen, number: int) -> list[str]:
    """The options that the combination of this number is tried without."""
    typed = [
        name for name, value in chosen.items() if value and name != "data" and not command.idle(chosen, name)
    ]
    first = command.left_out * number % max(len(typed), 1)
    return [*typed[first:], *typed[:first]][: command.left_out]


def working(command: Command) -> list[Chosen]:
    """Combinations that must succeed."""
    return all_pairs(command.options, allowed=lambda chosen: not command.met(chosen))


def refused(command: Command) -> list[tuple[str, Chosen]]:
    """Combinations that meet one rule and no other, at most three for each."""
    found: dict[str, list[Chosen]] = {}
    for chosen in all_pairs(command.options, seed=1):
        met = command.met(chosen)
        if len(met) == 1:
            found.setdefault(met[0], []).append(chosen)
    for name in command.rules:  # rare ones are looked for
        if name not in found:
            found[name] = [_only(command, name)]
    return [(name, chosen) for name, several in found.items() for chosen in several[:3]]


def _only(command: Command, rule: str) -> Chosen:
    """The first combination of two or three options that meets a rule and no other."""
    first = {name: values[0] for name, values in command.options.items()}
    one = [{name: value} for name, values in command.options.items() for value in values]
    for several in (product(one, repeat=k) for k in (1, 2, 3)):
        for parts in several:
            chosen = dict(first)
            for part in parts:
                chosen |= part
            if command.met(chosen) == [rule]:
                return chosen
    raise AssertionError(f"No combination meets {rule!r} alone.")


# ------------------------------------------------------------------------------------------------ data


def make_files(folder: Path) -> None:
    """Tiny files of every format, and models of every kind of data."""
    from preflearn import RankRLS
    from preflearn.cli.app import run
    from preflearn.io import save_model

    _tables(folder)
    _preferences(folder)
    _relation(folder)
    _battles(folder)
    for name, data in _TRAINED.items():
        words = ["train", *data.format(**{"in": folder}).split(), "-o", f"{folder}/{name}.preflearn", "-q"]
        assert run(words) == 0, words
    relation = (
        "--rows {0}/rows.csv --columns {0}/columns.csv --pairs {0}/labels.csv -q -o {0}/relation.preflearn"
    )
    assert run(["relate", *relation.format(folder).split()]) == 0
    plain = RankRLS().fit([[0.0, 1.0], [1.0, 0.5], [2.0, 0.0]], [0.0, 1.0, 2.0])
    save_model(plain, folder / "plain.preflearn")
    assert (
        run(["predict", f"{folder}/table.preflearn", f"{folder}/new.csv", "-o", f"{folder}/scores.csv"]) == 0
    )
    run_of = ["predict", f"{folder}/table.preflearn", f"{folder}/new.csv", "-o", f"{folder}/a.trec", "-q"]
    assert run(run_of) == 0


_TRAINED = {
    "table": "{in}/usual.csv --kernel linear --drop kind,share",
    "other": "{in}/usual.csv --kernel rbf --drop kind,share,colour",
    "letor": "{in}/one.letor --learner rankrls --kernel linear",
    "texts": "{in}/texts.csv",
    "pairs": "{in}/items.csv --preferences {in}/duels.csv",
    "pairs2": "{in}/items.csv --preferences {in}/duels.csv --kernel linear",
    "texts2": "{in}/texts.csv --kernel rbf",
    "many": "{in}/many.csv --drop kind,share",
}
_COLUMNS = ("name", "qid", "target", "price", "size", "colour", "share", "kind")


def _tables(folder: Path) -> None:
    draw = random.Random(3)
    for name, queries in (("usual", 4), ("many", 14), ("new", 3)):
        rows = []
        for k in range(6 * queries):
            price, size = round(draw.random(), 3), draw.randint(1, 3)
            grade = min(2, max(0, round(2 * price + 0.4 * size - 0.6 + draw.gauss(0, 0.4))))
            colour, share = draw.choice(["red", "blue"]), round(0.2 + draw.random(), 2)
            rows.append((f"é{k}", f"s{k // 6}", grade, price, size, colour, share, "abc"[k % 3]))
        _write_table(folder, name, _COLUMNS, rows)
        if name == "usual":
            _write_table(folder, "gaps", _COLUMNS, [(*rows[0][:2], "", *rows[0][3:]), *rows[1:]])
        letor = [
            f"{row[2]} qid:{int(row[1][1:]) + 1} 1:{row[3]} 2:{row[4]} 3:{row[6]} # {row[0]}\n"
            for row in rows
        ]
        if name == "new":
            _write_table(folder, "more", (*_COLUMNS, "extra"), [(*row, k) for k, row in enumerate(rows)])
        number = {"usual": "one", "many": "many", "new": "two"}[name]
        (folder / f"{number}.letor").write_text("".join(letor), encoding="utf-8")
    judged = ["".join(f"s{k // 6} 0 é{k} {k % 3}\n" for k in range(18))]
    (folder / "judged.qrels").write_text(judged[0], encoding="utf-8")


def _write_table(folder: Path, name: str, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    lines = [columns, *rows]
    for suffix, delimiter in ((".csv", ","), (".tsv", "\t")):
        text = "".join(delimiter.join(map(str, line)) + "\n" for line in lines)
        (folder / f"{name}{suffix}").write_text(text, encoding="utf-8")
    (folder / f"{name}.csv.gz").write_bytes(gzip.compress((folder / f"{name}.csv").read_bytes()))
    odd = "".join(";".join(map(str, line)) + "\n" for line in rows)  # without a header
    (folder / f"{name}.odd").write_text(odd, encoding="latin-1")
    text = "".join(json.dumps(dict(zip(columns, row, strict=True))) + "\n" for row in rows)
    (folder / f"{name}.jsonl").write_text(text, encoding="utf-8")


def _preferences(folder: Path) -> None:
    draw = random.Random(4)
    good, bad = "clear short kind exact".split(), "vague long rude wrong".split()
    for name, sides in (("texts", ("chosen", "rejected")), ("own", ("better", "worse"))):
        lines = [f"{sides[0]},{sides[1]},prompt,task,judge"]
        for k in range(24):
            one, other = (" ".join(draw.choices([*words, "plain", "word"], k=4)) for words in (good, bad))
            one, other = (other, one) if draw.random() < 0.2 else (one, other)
            lines.append(f"{one} {k},{other} {k},p{k // 4},t{k % 5},{'xy'[k % 2]}")
        (folder / f"{name}.csv").write_text("\n".join(lines) + "\n")
    words = [f"{' '.join(draw.choices(good + bad, k=4))} {k},p{k // 4},n{k},{k % 2}" for k in range(12)]
    (folder / "candidates.csv").write_text("\n".join(["text,prompt,note,target", *words]) + "\n")
    items = [f"t{k},t{k},{draw.random():.3f},{draw.randint(1, 3)},{'ab'[k % 2]}" for k in range(12)]
    (folder / "items.csv").write_text("\n".join(["item,name,price,size,colour", *items]) + "\n")
    duels, answers = ["winner,loser,judge"], []
    for k in range(30):
        one, other = draw.sample(range(12), 2)
        one, other = (one, other) if float(items[one].split(",")[2]) > 0.4 else (other, one)
        duels.append(f"t{one},t{other},{'xy'[k % 2]}")
        answers.append({"question": k, "winner": f"t{one}", "loser": f"t{other}", "judge": "xy"[k % 2]})
    (folder / "duels.csv").write_text("\n".join(duels) + "\n")
    (folder / "answers.jsonl").write_text("".join(json.dumps(one) + "\n" for one in answers))


def _relation(folder: Path) -> None:
    draw = random.Random(5)
    for name, size in (("rows", 6), ("columns", 5)):
        lines = [
            f"{name[0]}{k},{draw.random():.3f},{draw.random():.3f},{draw.random():.3f}" for k in range(size)
        ]
        (folder / f"{name}.csv").write_text("\n".join(["name,f1,f2,f3", *lines]) + "\n")
    pairs = [f"r{i},c{j},{draw.random():.3f}" for i in range(6) for j in range(5) if (i + j) % 4]
    (folder / "labels.csv").write_text("\n".join(["row,column,label", *pairs]) + "\n")
    (folder / "twice.csv").write_text("\n".join(["row,column,label", *pairs, "r0,c1,0.9"]) + "\n")


def _battles(folder: Path) -> None:
    draw = random.Random(6)
    lines = ["model_a,model_b,winner,judge,day,count,size_a,size_b,kind,goals,prompt"]
    for k in range(48):
        a, b = draw.sample("vwxyz", 2)
        won = (
            "tie"
            if k % 9 == 0
            else ("model_a" if draw.random() < 0.5 + 0.1 * (ord(b) - ord(a)) else "model_b")
        )
        goals = {"tie": 0, "model_a": 1 + k % 3, "model_b": -1 - k % 2}[won]
        lines.append(
            f"{a},{b},{won},j{k % 4},2024-0{1 + k % 8}-1{k % 7},{1 + k % 3},{draw.random():.2f},{draw.random():.2f},"
            f"{'pq'[k % 2]},{goals},m{k % 11}"
        )
    (folder / "battles.csv").write_text("\n".join(lines) + "\n")
    beaten = ["best,beaten", *(",".join(draw.sample("vwxyz", 2)) for _ in range(40))]
    (folder / "beaten.csv").write_text("\n".join(beaten) + "\n")
    orders = ["order,judge", *(" > ".join(draw.sample("vwxyz", 4)) + f",j{k % 4}" for k in range(30))]
    (folder / "orders.csv").write_text("\n".join(orders) + "\n")


# ------------------------------------------------------------------------------------------------ the commands


def has(chosen: Chosen, option: str, *words: str) -> bool:
    """Whether one of these is in what was typed for an option; without words, whether anything was."""
    value = chosen.get(option, "")
    return any(word in value for word in words) if words else bool(value)


def _talks_too_much(chosen: Chosen) -> bool:
    return has(chosen, "quiet") and has(chosen, "talk")


_TALK = {"quiet": ["", "--quiet"], "talk": ["", "--json", "--verbose"]}
_CONTRADICT = Rule(_talks_too_much, r"--quiet and --(json|verbose) contradict each other")
_ODD = (
    "--read format=csv --delimiter ; --read encoding=latin-1 "
    "--read columns=name,qid,target,price,size,colour,share,kind"
)


def _letor(c: Chosen) -> bool:
    return has(c, "data", ".letor")


def _texts(c: Chosen) -> bool:
    return has(c, "data", "texts.csv", "own.csv")


def _items(c: Chosen) -> bool:
    return has(c, "data", "--preferences")


def _compared(c: Chosen) -> bool:
    return _texts(c) or _items(c)


def _single(c: Chosen) -> bool:
    """Whether a single learner was asked for."""
    return _kernel_asked(c) or has(c, "learner")


def _kernel_asked(c: Chosen) -> bool:
    return any(has(c, name) for name in ("kernel", "gamma", "degree", "basis", "alphas", "within"))


def _idle_in_training(c: Chosen, option: str) -> bool:
    """What rightly changes nothing: where it goes, and what the others say already."""
    if option in ("quiet", "talk", "force", "report", "seed"):  # a seed where nothing is drawn
        return True
    if option == "skip" and not (has(c, "data", "gaps") and not has(c, "target")):  # no target is missing
        return True
    if option == "kernel" and has(c, "kernel", "rbf") and not _texts(c):  # what auto chooses for dense data
        return True
    # RankRLS is what a kernel or preferences mean.
    return option == "learner" and has(c, "learner", "rankrls") and (_kernel_asked(c) or _compared(c))


TRAIN = Command(
    "train -o {out}/m.preflearn",
    {
        "data": [
            *(f"{{in}}/usual.{suffix}" for suffix in ("csv", "tsv", "jsonl", "csv.gz")),
            f"{{in}}/usual.odd {_ODD}",
            "{in}/usual.csv {in}/new.csv",
            "{in}/gaps.csv",
            *("{in}/one.letor", "{in}/texts.csv", "{in}/own.csv --chosen better --rejected worse"),
            "{in}/items.csv --preferences {in}/duels.csv",
            "{in}/items.csv --preferences {in}/answers.jsonl",
        ],
        "target": ["", "--target price", "--target colour=red"],
        "query": ["", "--query kind", "--no-query"],
        "group": ["", "--group name"],
        "event": ["", "--event colour=red"],
        "columns": ["", "--features price,size", "--drop size,colour"],
        "encode": ["", "--encode size=onehot"],
        "skip": ["", "--skip-bad"],
        "weight": ["", "--weight share"],
        "item": ["", "--item name"],
        "missing": ["", "--missing 0"],
        "prompt": ["", "--prompt task"],
        "judge": ["", "--judge judge"],
        "learner": ["", "--learner rankrls", "--learner rls", "--learner ranksvm"],
        "kernel": ["", "--kernel linear", "--kernel rbf", "--kernel poly", "--kernel laplacian"],
        "gamma": ["", "--gamma 0.7"],
        "degree": ["", "--degree 4"],
        "basis": ["", "--n-basis 7"],
        "alphas": ["", "--alphas 0.3,30"],
        "within": ["", "--within-queries"],
        "seed": ["", "--seed 3"],
        "limit": ["", "--time-limit 0.1"],
        "report": ["", "--report {out}/r.md"],
        "force": ["", "--force"],
        **_TALK,
    },
    {
        "quiet and more": _CONTRADICT,
        "a limit of candidates": Rule(
            lambda c: has(c, "limit") and (_single(c) or _compared(c)), r"time_limit .*single learner"
        ),
        "preferences have no targets": Rule(
            lambda c: _compared(c) and has(c, "target"), r"--target would be ignored|--target"
        ),
        "preferences have no queries": Rule(
            lambda c: _compared(c) and has(c, "query"), r"--(no-)?query would be ignored"
        ),
        "LETOR rows have targets": Rule(lambda c: _letor(c) and has(c, "skip"), r"--skip-bad is for tables"),
        "preferences are not skipped": Rule(
            lambda c: _compared(c) and has(c, "skip"), r"--skip-bad would be ignored with"
        ),
        "rows without targets": Rule(
            lambda c: has(c, "data", "gaps") and not has(c, "skip") and not has(c, "target"),
            r"1 missing target .*Pass --skip-bad to leave these rows out",
        ),
        "groups are of rows": Rule(lambda c: _compared(c) and has(c, "group"), r"--group is for rows"),
        "events are of rows": Rule(lambda c: _compared(c) and has(c, "event"), r"--event is for rows"),
        "an event that leaves": Rule(
            lambda c: has(c, "event") and has(c, "columns", "--drop"), r"--event colour names a column that .*--drop"
        ),
        "a label is no time": Rule(
            lambda c: has(c, "event") and has(c, "target", "colour"), r"--event names 'colour', the column of the times"
        ),
        "a target that leaves": Rule(
            lambda c: has(c, "target", "colour") and has(c, "columns", "--drop"), r"'colour' is to be dropped and is"
        ),
        "times are not regressed on": Rule(
            lambda c: has(c, "event") and has(c, "learner", "rls") and "rankrls" not in c["learner"],
            r"RLS is regression .*--learner rankrls",
        ),
        "preferences have weights": Rule(lambda c: _compared(c) and has(c, "weight"), r"--read weight"),
        "preferences are not within queries": Rule(
            lambda c: _compared(c) and has(c, "within"), r"within_queries would be ignored with preferences"
        ),
        "preferences have one learner": Rule(
            lambda c: _compared(c) and has(c, "learner", "rls", "ranksvm") and "rankrls" not in c["learner"],
            r"--learner (rls|ranksvm) .*preferences",
        ),
        "texts have no columns": Rule(
            lambda c: _texts(c) and (has(c, "columns") or has(c, "encode") or has(c, "item")),
            r"--(features|drop|encode|read item) would be ignored with --chosen and --rejected",
        ),
        "judges of preferences": Rule(lambda c: has(c, "judge") and not _compared(c), r"--judge .*preferences"),
        "judges of answers": Rule(
            lambda c: has(c, "judge") and has(c, "data", "answers"), r"--judge would be ignored"
        ),
        "prompts of texts": Rule(lambda c: has(c, "prompt") and not _texts(c), r"--prompt .*texts"),
        "missing in LETOR": Rule(lambda c: has(c, "missing") and not _letor(c), r"missing"),
        "LETOR has no columns": Rule(
            lambda c: _letor(c)
            and any(has(c, name) for name in ("target", "encode", "weight", "item", "columns", "group", "event"))
            or (_letor(c) and has(c, "query", "--query")),
            r"--(target|query|encode|read weight|read item|features|drop|group|event)",
        ),
        "weights and a limit": Rule(lambda c: has(c, "weight") and has(c, "limit") and not _single(c),
            r"time_limit .*--read weight"),
        "a degree is of polynomials": Rule(
            lambda c: has(c, "degree") and not has(c, "kernel", "poly"), r"--set degree would be ignored by the"
        ),
        "a linear kernel has no width": Rule(
            lambda c: has(c, "gamma") and (has(c, "kernel", "linear") or (_texts(c) and not has(c, "kernel"))),
            r"--set gamma would be ignored by the linear",
        ),
        "a linear kernel has no basis": Rule(
            lambda c: has(c, "basis") and (has(c, "kernel", "linear") or (_texts(c) and not has(c, "kernel"))),
            r"--set n_basis would be ignored by the linear",
        ),
        "a kind of a column that stays": Rule(
            lambda c: has(c, "encode") and has(c, "columns", "--drop"), r"--encode .*'size'.*--drop"
        ),
        "queries to be within": Rule(
            lambda c: has(c, "within") and has(c, "query", "--no-query"), r"within queries needs queries.*--query"
        ),
        "weights are of rows in queries": Rule(
            lambda c: has(c, "weight") and has(c, "query", "--no-query"), r"weights of rows.*--query"
        ),
        "a target is no feature": Rule(
            lambda c: has(c, "target", "price") and has(c, "columns", "price"), r"'price' is among the features and is"
        ),
    },
    _idle_in_training,
    left_out=2,
)  # fmt: skip


# ------------------------------------------------------------------------------------------------ trained models


_MODES = {
    "table": "{in}/table.preflearn {in}/new.csv",
    "lines": "{in}/table.preflearn {in}/new.jsonl",
    "two files": "{in}/table.preflearn {in}/new.tsv {in}/usual.tsv",
    "odd": f"{{in}}/table.preflearn {{in}}/new.odd {_ODD}",
    "many": "{in}/many.preflearn {in}/more.csv",
    "letor": "{in}/letor.preflearn {in}/two.letor",
    "texts": "{in}/texts.preflearn {in}/texts.csv",
    "own": "{in}/texts.preflearn {in}/own.csv --chosen better --rejected worse",
    "duels": "{in}/pairs.preflearn {in}/items.csv --preferences {in}/duels.csv",
    "answers": "{in}/pairs.preflearn {in}/items.csv --preferences {in}/answers.jsonl",
}


def _relation_model(c: Chosen) -> bool:
    return has(c, "data", "relation.")


def _candidates(c: Chosen) -> bool:
    """Whether texts of one column are put in order."""
    return has(c, "data", "candidates")


def _paired(c: Chosen) -> bool:
    return has(c, "data", "--chosen", "--preferences", "/texts.csv")


def _of_rows(c: Chosen) -> bool:
    """Whether the data are rows of a table."""
    return not (_paired(c) or _relation_model(c) or _letor(c) or _candidates(c) or has(c, "data", "--qrels"))


_PAIRS_HAVE_NO_ROLES = Rule(
    lambda c: _paired(c) and any(has(c, name) for name in ("target", "query", "drop", "text")),
    r"--(target|query|no-query|drop|text) (would be ignored with --(chosen|preferences)|names texts)",
)
_GROUPS_ARE_OF_ROWS = Rule(lambda c: _paired(c) and has(c, "group"), r"--group is for rows")
_EVENTS_ARE_OF_ROWS = Rule(lambda c: _paired(c) and has(c, "event"), r"--event is for rows")
_TIMES_HAVE_ONE_METRIC = Rule(
    lambda c: has(c, "event") and has(c, "metric") and _of_rows(c), r"does not know censored times"
)
_DROPPED_IS_THERE = Rule(
    lambda c: has(c, "drop") and _of_rows(c) and not has(c, "data", "more.csv"),
    r"--drop asks for column 'extra'",
)
_FORCED = Rule(
    lambda c: has(c, "force") and not has(c, "output") and not has(c, "report"), r"--force replaces a file"
)
_LETOR_HAS_NO_NAMES = Rule(
    lambda c: (
        _letor(c)
        and (
            any(has(c, one) for one in ("drop", "item", "target", "group", "event"))
            or has(c, "query", "--query")
        )
    ),
    r"--(drop|query|read item|target|group|event) ",
)

PREDICT = Command(
    "predict",
    {
        "data": [
            *(_MODES[name] for name in _MODES if name != "texts"),
            "{in}/texts.preflearn {in}/candidates.csv",
            "{in}/relation.preflearn {in}/rows.csv {in}/columns.csv",
        ],
        "output": ["", *(f"-o {{out}}/s.{suffix}" for suffix in ("csv", "tsv", "jsonl", "trec", "txt"))],
        "query": ["", "--query kind", "--no-query"],
        "item": ["", "--item share"],
        "drop": ["", "--drop extra"],
        "text": ["", "--text note"],
        "set": ["", "--set 0.7"],
        "talk": ["", "--json"],
        "quiet": ["", "--quiet"],
        "force": ["", "--force"],
    },
    {
        "force needs a file": _FORCED,
        "two places": Rule(lambda c: has(c, "talk") and has(c, "output"), r"--json prints to stdout: with -o"),
        "pairs have no roles": _PAIRS_HAVE_NO_ROLES,
        "items of texts": Rule(lambda c: _texts(c) and has(c, "item"), r"--read item would be ignored with --chosen"),
        "columns of items": Rule(lambda c: _items(c) and has(c, "item"), r"'t\d+'|item"),
        "pairs have no sets": Rule(lambda c: _paired(c) and has(c, "set"), r"--set is for the rows of queries"),
        "files of pairs": Rule(
            lambda c: (
                (_paired(c) and has(c, "output", "tsv", "trec", "txt"))
                or (_relation_model(c) and has(c, "output") and not has(c, "output", "csv"))
            ),
            r"-o .*(differences|scores) of pairs are written as .*\.csv",
        ),
        "relations have no rows": Rule(
            lambda c: _relation_model(c)
            and any(has(c, one) for one in ("query", "item", "drop", "text", "set", "talk")),
            r"--[a-z-]+ would be ignored with relation.preflearn",
        ),
        "the column is there": _DROPPED_IS_THERE,
        "texts have one column": Rule(
            lambda c: _candidates(c) and has(c, "drop"), r"--drop would be ignored with texts"
        ),
        "columns of texts": Rule(
            lambda c: _candidates(c) and (has(c, "item") or has(c, "query", "--query")), r"(item|query) asks for column"
        ),
        "texts to put in order": Rule(
            lambda c: has(c, "text") and (_of_rows(c) or _letor(c)), r"--text is for a model of texts"
        ),
        "letor has no names": _LETOR_HAS_NO_NAMES,
        "sets need queries": Rule(
            lambda c: has(c, "set") and _candidates(c),
            r"holds no sets",
        ),
        "sets are of rows": Rule(lambda c: has(c, "set") and has(c, "output", "trec", "txt"), r"--set marks rows"),
    },
    # Scores alone tell neither queries nor items, and a score per row hides what is compared.
    lambda c, option: option in ("quiet", "force") or (option in ("query", "item") and has(c, "output", "txt"))
    or (option == "drop" and has(c, "quiet")),
)  # fmt: skip

EVALUATE = Command(
    "evaluate",
    {
        "data": [
            *_MODES.values(),
            "{in}/scores.csv {in}/new.csv",
            "{in}/scores.csv {in}/two.letor",
            "{in}/relation.preflearn {in}/rows.csv {in}/columns.csv {in}/labels.csv",
            "{in}/a.trec --qrels {in}/judged.qrels",
        ],
        "metric": ["", "--metric ndcg@3,map"],
        "target": ["", "--target share"],
        "query": ["", "--query kind", "--no-query"],
        "group": ["", "--group name"],
        "event": ["", "--event colour=red"],
        "drop": ["", "--drop extra"],
        "skip": ["", "--skip-bad"],
        "judge": ["", "--judge judge"],
        "missing": ["", "--missing 0"],
        "talk": ["", "--json"],
    },
    {
        "LETOR rows have targets": Rule(lambda c: _letor(c) and has(c, "skip"), r"--skip-bad is for tables"),
        "pairs are not skipped": Rule(lambda c: _paired(c) and has(c, "skip"), r"--skip-bad would be ignored with"),
        "pairs have no roles": _PAIRS_HAVE_NO_ROLES,
        "groups are of rows": _GROUPS_ARE_OF_ROWS,
        "events are of rows": _EVENTS_ARE_OF_ROWS,
        "times have one metric": _TIMES_HAVE_ONE_METRIC,
        "shares of pairs": Rule(lambda c: _paired(c) and has(c, "metric"), r"--metric would be ignored with pref"),
        "judges of pairs": Rule(
            lambda c: has(c, "judge") and (_of_rows(c) or _letor(c)), r"--judge goes with pref"
        ),
        "judges of answers": Rule(lambda c: has(c, "judge") and has(c, "data", "answers"), r"--judge would be ignored"),
        "relations have no rows": Rule(
            lambda c: _relation_model(c) and any(has(c, one) for one in c if one not in ("data", "talk")),
            r"--[a-z-]+ would be ignored with relation.preflearn",
        ),
        "runs have no rows": Rule(
            lambda c: has(c, "data", "qrels")
            and any(has(c, one) for one in c if one not in ("data", "talk", "metric")),
            r"--[a-z-]+ would be ignored with --qrels",
        ),
        "the column is there": _DROPPED_IS_THERE,
        "letor has no names": _LETOR_HAS_NO_NAMES,
        "missing in LETOR": Rule(lambda c: has(c, "missing") and (_of_rows(c) or _paired(c)), r"missing"),
    },
    lambda c, option: option in ("missing", "skip") or (option == "drop" and has(c, "data", "scores")),
)  # fmt: skip

COMPARE = Command(
    "compare",
    {
        "data": [
            "{in}/new.csv {in}/table.preflearn {in}/other.preflearn",
            "{in}/new.csv {in}/table.preflearn {in}/scores.csv",
            "{in}/two.letor {in}/letor.preflearn {in}/scores.csv",
            f"{{in}}/new.odd {{in}}/table.preflearn {{in}}/other.preflearn {_ODD}",
            "{in}/more.csv {in}/many.preflearn {in}/other.preflearn",
            "{in}/items.csv {in}/pairs.preflearn {in}/pairs2.preflearn --preferences {in}/duels.csv",
            "{in}/own.csv {in}/texts.preflearn {in}/texts2.preflearn --chosen better --rejected worse",
        ],
        "metric": ["", "--metric ndcg@3"],
        "target": ["", "--target share"],
        "query": ["", "--query kind"],
        "group": ["", "--group name"],
        "event": ["", "--event colour=red"],
        "drop": ["", "--drop extra"],
        "output": ["", "-o {out}/t.md", "-o {out}/t.tex"],
        "force": ["", "--force"],
        "talk": ["", "--json"],
    },
    {
        "force needs a file": _FORCED,
        "pairs have no roles": _PAIRS_HAVE_NO_ROLES,
        "groups are of rows": _GROUPS_ARE_OF_ROWS,
        "events are of rows": _EVENTS_ARE_OF_ROWS,
        "times have one metric": _TIMES_HAVE_ONE_METRIC,
        "the column is there": _DROPPED_IS_THERE,
        "letor has no names": _LETOR_HAS_NO_NAMES,
    },
    lambda c, option: option == "force",
)  # fmt: skip

LOOK = Command(
    "look",
    {
        "data": [
            *(f"{{in}}/more.{suffix}" for suffix in ("csv", "tsv", "jsonl", "csv.gz")),
            f"{{in}}/new.odd {_ODD}",
            "{in}/usual.csv {in}/new.csv",
            "{in}/one.letor",
        ],
        "target": ["", "--target share"],
        "query": ["", "--query kind", "--no-query"],
        "item": ["", "--item colour"],
        "event": ["", "--event colour=red"],
        "drop": ["", "--drop size"],
        "missing": ["", "--missing 0"],
        "report": ["", "--report {out}/r.html"],
        "force": ["", "--force"],
        "talk": ["", "--json"],
    },
    {
        "force needs a file": _FORCED,
        "a column has one role": Rule(lambda c: has(c, "item") and has(c, "event"), r"A column has one role"),
        "letor has no names": _LETOR_HAS_NO_NAMES,
        "missing in LETOR": Rule(lambda c: has(c, "missing") and not _letor(c), r"missing"),
    },
    lambda c, option: option in ("force", "missing"),
)  # fmt: skip

RELATE = Command(
    "relate --rows {in}/rows.csv --columns {in}/columns.csv -o {out}/m.preflearn",
    {
        "data": ["--pairs {in}/labels.csv", "--pairs {in}/twice.csv"],
        "duplicates": ["", "--duplicates mean"],
        "drop": ["", "--drop f3"],
        "hold_out": ["", "--hold-out rows", "--hold-out both"],
        "kernel": ["", "--kernel linear", "--kernel poly", "--kernel laplacian"],
        "gamma": ["", "--set gamma=0.6"],
        "alphas": ["", "--set alphas=0.3,30"],
        "other": ["", "--set seed=3"],
        "report": ["", "--report {out}/r.html"],
        "force": ["", "--force"],
        **_TALK,
    },
    {
        "quiet and more": _CONTRADICT,
        "pairs are labelled once": Rule(
            lambda c: has(c, "data", "twice") and not has(c, "duplicates"), r"twice|duplicates"
        ),
        "a linear kernel has no width": Rule(
            lambda c: has(c, "gamma") and has(c, "kernel"), r"--set gamma would be ignored by --kernel"
        ),
        "nothing is drawn": Rule(lambda c: has(c, "other"), r"--set takes NAME=VALUE.*gamma or alphas.*seed=3"),
    },
    lambda c, option: option in ("quiet", "talk", "force", "report")
    or (option == "duplicates" and has(c, "data", "labels")),
    left_out=3,
)  # fmt: skip


def _rankings(c: Chosen) -> bool:
    return has(c, "data", "orders")


def _beaten(c: Chosen) -> bool:
    return has(c, "data", "beaten")


def _answered(c: Chosen) -> bool:
    return has(c, "data", "answers")


RATE = Command(
    "rate",
    {
        "data": [
            "{in}/battles.csv",
            "{in}/battles.csv --a model_b --b model_a",
            "{in}/beaten.csv --winner best --loser beaten",
            "{in}/orders.csv --ranking order",
            "{in}/answers.jsonl",
        ],
        "judge": ["", "--judge judge"],
        "time": ["", "--time day"],
        "half": ["", "--half-life 40"],
        "weight": ["", "--weight count"],
        "covariate": ["", "--covariate size,position"],
        "cluster": ["", "--cluster prompt"],
        "margin": ["", "--margin goals"],
        "category": ["", "--category kind"],
        "alpha": ["", "--alpha 0.4"],
        "level": ["", "--level 0.8"],
        "anchor": ["", "--set anchor=v=1200"],
        "ties": ["", "--ties davidson", "--set ties=auto"],
        "first": ["", "--first-side"],
        "skip": ["", "--skip-bad"],
        "goal": ["", "--goal top-2"],
        "report": ["", "--report {out}/r.html"],
        "output": ["", *(f"-o {{out}}/b.{suffix}" for suffix in ("csv", "tsv", "json", "md"))],
        "force": ["", "--force"],
        "quiet": ["", "--quiet"],
        "talk": ["", "--json"],
    },
    {
        "force needs a file": _FORCED,
        "quiet and more": _CONTRADICT,
        "a half-life of days": Rule(lambda c: has(c, "half") and not has(c, "time"), r"half-life.*--time"),
        "columns that are there": Rule(
            lambda c: not has(c, "data", "battles")
            and any(has(c, name) for name in ("time", "weight", "covariate", "cluster", "margin", "category"))
            or (_beaten(c) and has(c, "judge")),
            r"--|column",
        ),
        "a margin of the right side": Rule(
            lambda c: has(c, "margin") and has(c, "data", "--a"), r"--margin is side a minus"
        ),
        "boards do not know by how much": Rule(
            lambda c: has(c, "category") and has(c, "margin") and not has(c, "data", "--a"),
            r"[Bb]oards by category.*--margin",
        ),
        "boards do not control": Rule(
            lambda c: has(c, "category") and has(c, "covariate") and not has(c, "margin"),
            r"Boards by category.*--covariate",
        ),
        "ties of battles": Rule(
            lambda c: has(c, "ties") and (has(c, "data", "order") or has(c, "margin")),
            r"(--margin|--ranking|margin|ranking).*--ties|--ties.*(margin|ranking)",
        ),
        "rankings have no labels": Rule(
            lambda c: has(c, "skip") and has(c, "data", "order") and not has(c, "first"), r"--skip-bad"
        ),
        "one first side": Rule(
            lambda c: has(c, "first") and not has(c, "data", "battles") or has(c, "first") and has(c, "covariate"),
            r"--first-side",
        ),
        "boards do not model sides": Rule(
            lambda c: has(c, "category") and has(c, "first") and not has(c, "margin"),
            r"Boards by category.*--first-side",
        ),
        "boards do not model ties": Rule(
            lambda c: has(c, "category") and has(c, "ties") and not has(c, "margin"),
            r"Boards by category.*--ties",
        ),
        "items that played": Rule(lambda c: has(c, "anchor") and _answered(c), r"--?anchor.*v|'v'"),
    },
    lambda c, option: option in ("force", "quiet", "report", "judge", "skip")
    or (has(c, "quiet") and not has(c, "output"))
    or (option in ("goal", "time") and has(c, "quiet"))  # what is not printed then
    or (option == "ties" and (has(c, "ties", "auto") or not has(c, "data", "battles"))),  # few or no ties
    left_out=1,
)  # fmt: skip


def _engine(c: Chosen) -> bool:
    return not has(c, "to", "onnx")


EXPORT = Command(
    "export",
    {
        "data": [
            f"{{in}}/{name}.preflearn"
            for name in ("table", "other", "letor", "plain", "texts", "pairs", "relation")
        ],
        "to": [
            "--to onnx -o {out}/m.onnx",
            "--to solr -o {out}/m.json",
            "--to elasticsearch -o {out}/m.json",
        ],
        "name": ["", "--name shop"],
        "one_query": ["", "--one-query"],
        "dtype": ["", "--dtype float32"],
        "check": ["", "--check {in}/new.csv", "--check {in}/two.letor"],
        "force": ["", "--force"],
        "quiet": ["", "--quiet"],
    },
    {
        "engines name models": Rule(
            lambda c: has(c, "name") and not _engine(c), r"--name would be ignored by --to onnx"
        ),
        "options of ONNX": Rule(
            lambda c: _engine(c) and any(has(c, one) for one in ("one_query", "dtype", "check")),
            r"--(one-query|dtype|check) would be ignored by --to (solr|elasticsearch)",
        ),
        "engines take linear models of numbers": Rule(
            lambda c: _engine(c) and not has(c, "data", "letor", "plain"),
            r"linear|numbers|TableEncoder|model",
        ),
        "texts need examples": Rule(
            lambda c: not _engine(c) and has(c, "data", "texts"),
            r"texts.*--to onnx.*example",
        ),
        "relations stay": Rule(
            lambda c: not _engine(c) and has(c, "data", "relation"), r"Kronecker|relation"
        ),
        "nothing is relative to its query": Rule(
            lambda c: has(c, "one_query") and not _engine(c) and not has(c, "data", "relation", "texts"),
            r"--one-query.* would be ignored",
        ),
        "rows like those of the training": Rule(
            lambda c: (
                has(c, "check")
                and not _engine(c)
                and not has(c, "data", "relation")
                and not (has(c, "check", "csv") and has(c, "data", "table", "other"))
                and not (has(c, "check", "letor") and has(c, "data", "letor"))
            ),
            r"--check|trained on|texts|features|did not write",
        ),
    },
    lambda c, option: option in ("force", "quiet", "to", "check"),  # a check that succeeds changes nothing
)


# ------------------------------------------------------------------------------------------------ the rest

ASK = Command(
    "ask {in}/items.csv --answers {in}/answers.jsonl --export {out}/pairs.jsonl",
    {
        "name": ["", "--name item"],
        "text": ["", "--text colour"],
        "goal": ["", "--goal top:2"],
        "question": ["", "--question Which?"],
        "note": ["", "--note"],
        "judge": ["", "--judge x"],
        "port": ["", "--port 0"],
        "host": ["", "--host 0.0.0.0"],
        "output": ["", "-o {out}/results"],
        "open": ["", "--no-open"],
        "quiet": ["", "--quiet"],
    },
    {
        "nothing is asked": Rule(
            lambda c: any(
                has(c, one) for one in ("goal", "question", "note", "judge", "port", "host", "output")
            ),
            r"--(goal|question|note|judge|port|host|output) would be ignored with --export",
        )
    },
    lambda c, option: (
        option in ("name", "quiet", "open")
    ),  # the name that is found anyway, and what a page needs
)
DEMO = Command(
    "demo --write {out}/shop.csv",
    {"seed": ["", "--seed 1"], "force": ["", "--force"], "talk": ["", "--json"]},
    {"a table or figures": Rule(lambda c: has(c, "talk"), r"--write .*--json")},
    lambda c, option: option == "force",
)
REPRODUCE = Command(
    "reproduce --list",
    {
        "name": ["", "all"],
        "talk": ["", "--json"],
        "data": ["", "--data {in}"],
        "trials": ["", "--trials 2"],
        "output": ["", "--output {out}"],
        "resume": ["", "--resume {out}/r.json"],
        "progress": ["", "--progress"],
    },
    {
        "a list runs nothing": Rule(
            lambda c: any(has(c, one) for one in c if one != "talk"), r"--list.* all |--[a-z]+ .*with --list"
        )
    },
)
SERVE = Command(  # what is refused before it starts
    "serve --unreadable-as-missing",
    {
        "data": [f"{{in}}/{name}.preflearn" for name in ("texts", "letor", "plain", "relation")],
        "quiet": ["", "--quiet"],
    },
    {"nothing to read": Rule(lambda c: True, r"--unreadable-as-missing would be ignored: this model takes")},
)
PPI = Command(  # the corpus is not there: it is read last
    "ppi evaluate {in}/none.xml",
    {
        "kernel": ["", "--kernel weisfeiler-lehman", "--kernel sum"],
        "aggregate": ["", "--aggregate sum"],
        "curve": ["", "--curve"],
        "folds": ["", "--folds 3"],
    },
    {
        "kernels without paths": Rule(
            lambda c: has(c, "aggregate") and has(c, "kernel", "weisfeiler"),
            r"--aggregate .*--kernel weisfeiler-lehman",
        ),
        "a curve has no folds": Rule(lambda c: has(c, "curve") and has(c, "folds"), r"--folds .*--curve"),
        "a file that is not there": Rule(
            lambda c: (
                not (has(c, "aggregate") and has(c, "kernel", "weisfeiler"))
                and not (has(c, "curve") and has(c, "folds"))
            ),
            r"none.xml",
        ),
    },
)
PARSES = Command(
    "parses rank {in}/plain.preflearn --file {in}/none.jsonl",
    {
        "text": ["", "words"],
        "limit": ["", "--limit 5"],
        "timeout": ["", "--timeout 3"],
        "show": ["", "--show 2"],
    },
    {
        "one source": Rule(lambda c: has(c, "text"), r"TEXT .*--file"),
        "a file is parsed": Rule(
            lambda c: not has(c, "text") and (has(c, "limit") or has(c, "timeout")),
            r"--(limit|timeout) .*with --file",
        ),
        "a model of parses": Rule(
            lambda c: not (has(c, "text") or has(c, "limit") or has(c, "timeout")), r"parses train"
        ),
    },
)

COMMANDS: dict[str, Command] = {
    "train": TRAIN,
    "predict": PREDICT,
    "evaluate": EVALUATE,
    "compare": COMPARE,
    "look": LOOK,
    "relate": RELATE,
    "rate": RATE,
    "export": EXPORT,
    "ask": ASK,
    "demo": DEMO,
    "reproduce": REPRODUCE,
    "serve": SERVE,
    "ppi": PPI,
    "parses": PARSES,
}
