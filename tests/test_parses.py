"""Parses: reading, graphs and features against brute force, ranking, and link-grammar where it is installed."""

from __future__ import annotations

import json
import lzma
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.base import clone

import oracles
from preflearn.cli.app import run as command
from preflearn.graphs import AllPathsFeatures, gram
from preflearn.metrics import disagreement_error
from preflearn_papers.parses import (
    Link,
    Linkage,
    LinkFeatures,
    ParseRanker,
    Sentence,
    Token,
    agreement,
    as_ranking,
    is_installed,
    iter_linkages,
    link_grammar,
    linkages,
    parse_text,
    read_linkages,
    spelling_tag,
)

WORDS = ("The", "cell", "grows", "Fast", ",", "p53")
TAGS = ("DT", "NN", "VB", ",")
LABELS = ("Ds**c", "Ss", "S", "MVp", "mystery")

LINE: dict[str, Any] = {
    "document": "d1",
    "sentence": "s1",
    "tokens": [["The", "DT"], ["cell", "NN"], ["grows", "VBZ"]],
    "gold": [[0, 1], [1, 2]],
    "parses": [
        {"links": [[0, 1, "Ds"], [1, 2, "Ss"]], "unused": 0, "disjunct": 0.5, "length": 2, "f": 1.0},
        {"links": [[0, 2, "Ds"]], "unused": 1, "disjunct": -1, "length": 2},
    ],
}


@st.composite
def parses(draw: st.DrawFn, tokens: tuple[Token, ...] | None = None) -> Linkage:
    """Any links between any tokens, crossing and repeated pairs with other labels included."""
    if tokens is None:
        tokens = tuple(
            draw(
                st.lists(
                    st.builds(Token, st.sampled_from(WORDS), st.sampled_from(TAGS)), min_size=1, max_size=20
                )
            )
        )
    ends = st.tuples(st.integers(0, len(tokens) - 1), st.integers(0, len(tokens) - 1))
    pairs = (
        draw(st.lists(ends.filter(lambda pair: pair[0] < pair[1]), max_size=12)) if len(tokens) > 1 else []
    )
    return Linkage(tokens, tuple({Link(i, j, draw(st.sampled_from(LABELS))): None for i, j in pairs}))


def write(path: Path, *lines: Any) -> Path:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return path


# -------------------------------------------------------------------------------------------------------- reading


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.xz"])
def test_sentences_are_read(tmp_path: Path, name: str) -> None:
    text = json.dumps(LINE) + "\n\n" + json.dumps({**LINE, "sentence": "s2", "gold": None, "more": 1})
    (tmp_path / name).write_bytes(lzma.compress(text.encode()) if name.endswith("xz") else text.encode())
    first, second = read_linkages(tmp_path / name)
    assert (first.id, first.document, first.text) == ("s1", "d1", "The cell grows")
    assert first.gold == ((0, 1), (1, 2)) and second.gold is None
    assert first.linkages[0].links == (Link(0, 1, "Ds"), Link(1, 2, "Ss"))
    assert (first.linkages[1].score, first.linkages[1].unused, first.linkages[1].disjunct) == (None, 1, -1.0)
    assert first.linkages[0].tokens is first.linkages[1].tokens is first.tokens
    found = as_ranking([first, second])
    assert found.qid.tolist() == [0, 0, 1, 1]
    np.testing.assert_array_equal(found.y, [1.0, math.nan, 1.0, math.nan])


def changed(**values: Any) -> dict[str, Any]:
    return {**LINE, **values}


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ([1], "line 1: expected a JSON object, found list"),
        ({"parses": []}, "'tokens' is missing: expected a list"),
        (changed(tokens="The"), "'tokens' is a str"),
        (changed(tokens=[]), "no tokens"),
        (changed(tokens=[["a"]]), r"token \['a'\]: expected \[text, part of speech\]"),
        (changed(tokens=[["", "DT"]]), "token without text"),
        (changed(tokens=[["a", "DT"]] * 1001), "1001 entries: expected at most 1000"),
        (changed(gold=[[0, 3]]), r"gold link \[0, 3\] does not join two tokens.*0 to 2"),
        (changed(parses=None), "'parses' is a NoneType"),
        (changed(parses=[3]), "parse 3: expected a JSON object"),
        (changed(parses=[{}]), "'links' is missing"),
        (changed(parses=[{"links": [[1, 0, "S"]]}]), r"link \[1, 0, 'S'\] does not join"),
        (changed(parses=[{"links": [[0, True, "S"]]}]), "does not join"),
        (changed(parses=[{"links": [[0, 1]]}]), r"expected \[i, j, label\]"),
        (changed(parses=[{"links": [[0, 1, ""]]}]), "has no label"),
        (changed(parses=[{"links": [], "f": math.nan}]), "'f' of a parse is nan: expected a finite number"),
        (changed(parses=[{"links": [], "length": 10**400}]), "expected a finite number"),
        (changed(parses=[{"links": [], "unused": 1.5}]), "expected a whole number"),
        (changed(sentence=5), "'sentence' is 5: expected a text"),
    ],
)
def test_malformed_lines_are_refused_with_their_place(tmp_path: Path, line: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message) as refusal:
        read_linkages(write(tmp_path / "a.jsonl", line))
    assert "a.jsonl, line 1" in str(refusal.value)


def test_a_sentence_may_be_there_once(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="line 2: the sentence 's1' occurs twice"):
        read_linkages(write(tmp_path / "a.jsonl", LINE, LINE))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'{"tokens": [', "line 1: expected one JSON object per line"),
        (b"[" * 100_000, "line 1: expected one JSON object per line"),
        (b'{"a": "\xff"}', "line 1: found bytes that are not valid UTF-8"),
        (b'{"a": ' + b"9" * 5000 + b"}", "line 1: expected one JSON object per line"),
    ],
)
def test_files_that_are_no_json_are_refused(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "a.jsonl").write_bytes(content)
    with pytest.raises(ValueError, match=message):
        read_linkages(tmp_path / "a.jsonl")


def test_large_and_damaged_files_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "a.jsonl", LINE, {**LINE, "sentence": "s2"})
    size = path.stat().st_size
    monkeypatch.setattr(linkages, "MAX_FILE_BYTES", size - 1)
    with pytest.raises(ValueError, match="split it and read the parts"):
        read_linkages(path)
    monkeypatch.setattr(linkages, "MAX_FILE_BYTES", size)
    assert len(read_linkages(path)) == 2
    monkeypatch.setattr(linkages, "MAX_LINE_BYTES", 100)
    with pytest.raises(ValueError, match="line 1 is longer than"):
        next(iter_linkages(path))
    packed = lzma.compress(path.read_bytes())
    (tmp_path / "b.jsonl.xz").write_bytes(packed[: len(packed) // 2])
    monkeypatch.setattr(linkages, "MAX_LINE_BYTES", 1 << 20)
    with pytest.raises(ValueError, match="damaged"):
        read_linkages(tmp_path / "b.jsonl.xz")


@given(st.data())
def test_agreement_is_the_f_measure_of_pairs(data: st.DataObject) -> None:
    tokens = (Token("a"),) * 6
    one, other = (data.draw(parses(tokens)).links for _ in range(2))
    f = agreement(one, other)
    found, right = ({(i, j) for i, j, _ in links} for links in (one, other))
    if found and right and found & right:
        precision, recall = len(found & right) / len(found), len(found & right) / len(right)
        assert f == pytest.approx(2 / (1 / precision + 1 / recall))
    else:
        assert f == float(not found and not right)
    assert agreement([(j, i) for i, j, _ in one], other) == f


# ------------------------------------------------------------------------------------------- graphs and features


@given(parses())
def test_label_pairs_of_the_graph_are_what_the_links_join(linkage: Linkage) -> None:
    """Walks of at most two edges: a token and its link, a link and its token, two tokens through a link."""
    expected: dict[str, float] = {}

    def add(left: tuple[str, ...], right: tuple[str, ...], weight: float) -> None:
        for a in dict.fromkeys(left):
            for b in dict.fromkeys(right):
                expected[f"{a} -> {b}"] = expected.get(f"{a} -> {b}", 0.0) + weight

    for link in linkage.links:
        left, right = ((token.text.lower(), token.tag) for token in (linkage.tokens[end] for end in link[:2]))
        add(left, (link.label, link.kind), 0.5)
        add((link.label, link.kind), right, 0.5)
        add(left, right, 0.25)
        # A link that starts where this one ends is two edges away as well.
        for other in linkage.links:
            if other.left == link.right:
                add((link.label, link.kind), (other.label, other.kind), 0.25)
    features = AllPathsFeatures("sum", max_length=2)
    row = features.fit_transform([linkage.graph(0.5)]).toarray()[0]
    assert dict(zip(features.get_feature_names_out(), row, strict=True)) == pytest.approx(expected)


@given(st.data())
def test_all_paths_of_parses_are_the_slow_ones(data: st.DataObject) -> None:
    graph = data.draw(parses()).graph(0.9, name="g")
    features = AllPathsFeatures("sum")
    row = features.fit_transform([graph]).toarray()[0]
    named = dict(zip(features.get_feature_names_out(), row, strict=True))
    slow = {f"{a} -> {b}": weight for (a, b), weight in oracles.label_pair_weights(graph).items()}
    assert named == pytest.approx(slow)


@given(st.data(), st.sampled_from(["links", "context"]))
def test_features_are_the_slow_counts(data: st.DataObject, kind: str) -> None:
    first = data.draw(parses())
    rows = [first, data.draw(parses(first.tokens)), data.draw(parses())]
    features = LinkFeatures(kind, min_count=1, normalize=False)
    X = features.fit_transform(rows)
    names = features.get_feature_names_out().tolist()
    assert names == sorted(names)
    for linkage, row in zip(rows, X.toarray(), strict=True):
        counted = {name: value for name, value in zip(names, row, strict=True) if value}
        assert counted == oracles.parse_statements(linkage, kind == "context")
    assert X.has_sorted_indices
    np.testing.assert_array_equal(features.transform(rows).toarray(), X.toarray())


@given(st.data())
def test_unseen_features_count_in_the_length_only(data: st.DataObject) -> None:
    known, new = data.draw(parses()), data.draw(parses())
    features = LinkFeatures("context", min_count=1).fit([known])
    counts = oracles.parse_statements(new, True)
    length = math.sqrt(sum(count**2 for count in counts.values()))
    expected = [counts[name] / length for name in features.get_feature_names_out()]
    np.testing.assert_allclose(features.transform([new]).toarray()[0], expected, atol=1e-15)
    np.testing.assert_allclose(gram(LinkFeatures(min_count=1).fit_transform([known])), [[1.0]])


def test_rare_features_get_no_column() -> None:
    tokens = (Token("cells", "NNS"), Token("grow", "VBP"), Token("fast", "RB"))
    both = [Linkage(tokens, (Link(0, 1, "Sp"),)), Linkage(tokens, (Link(0, 1, "Sp"), Link(1, 2, "MVa")))]
    names = LinkFeatures("links", min_count=2).fit(both).get_feature_names_out()
    assert "kind S" in names and "kind MV" not in names and len(names) == 12
    assert LinkFeatures("links", min_count=3).fit_transform(both).shape == (2, 0)
    assert LinkFeatures().fit_transform([]).shape == (0, 0)


def test_spelling_takes_the_place_of_parts_of_speech() -> None:
    def linkage(tag: str) -> Linkage:
        return Linkage((Token("Cells", tag), Token("growing", tag)), (Link(0, 1, "Sp"),))

    features = LinkFeatures(tags="spelling", min_count=1).fit([linkage("NN")])
    assert "-s -ing" in features.get_feature_names_out() and "NN NN" not in features.get_feature_names_out()
    np.testing.assert_array_equal(
        features.transform([linkage("NN")]).toarray(), features.transform([linkage("")]).toarray()
    )
    assert [spelling_tag(word) for word in ("IL-2", "DNA", "Of", "—", "s")] == ["0", "A", "of", "—", "-"]


def test_bad_parameters_and_items_are_refused() -> None:
    linkage = Linkage((Token("a"),), ())
    with pytest.raises(ValueError, match="kind must be one of 'links', 'context': found 'pairs'"):
        LinkFeatures("pairs").fit([linkage])
    with pytest.raises(ValueError, match="tags must be one of"):
        LinkFeatures(tags="none").fit([linkage])
    with pytest.raises(ValueError, match="min_count must be an integer of at least 1: found 0"):
        LinkFeatures(min_count=0).fit([linkage])
    with pytest.raises(TypeError, match=r"found one Linkage. Pass \[linkage\]"):
        LinkFeatures().fit(linkage)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="item 1 is a Sentence"):
        LinkFeatures().fit([linkage, Sentence("s", "", linkage.tokens, ())])  # type: ignore[list-item]


# ------------------------------------------------------------------------------------------------------- ranking


def made_sentences(n: int, seed: int, tagged: bool = True) -> list[Sentence]:
    """The same words with random links, scored by their agreement with the same right ones."""
    random = np.random.default_rng(seed)
    made = []
    for number in range(n):
        words = [("cells", "NNS"), (",", ","), ("grow", "VBP"), ("very", "RB"), ("slowly", "RB")]
        tokens = tuple(Token(word, tag if tagged else "") for word, tag in words)
        gold = {(0, 2), (2, 4), (3, 4)}
        parses = []
        for _ in range(6):
            links = {pair for pair in gold if random.random() < 0.6}
            links |= {pair for pair in [(0, 3), (0, 4), (2, 3)] if random.random() < 0.4}
            linkage = tuple(Link(*pair, "S" if pair[0] == 0 else "MV") for pair in sorted(links))
            parses.append(Linkage(tokens, linkage, score=agreement(linkage, gold), disjunct=random.normal()))
        made.append(Sentence(f"s{number}", "", tokens, tuple(parses), tuple(sorted(gold))))
    return made


def test_the_ranker_learns_which_links_are_right() -> None:
    ranker = ParseRanker(n_folds=4).fit(made_sentences(40, 0))
    new = made_sentences(20, 1)
    rows, y, qid = as_ranking(new)
    # F has a denominator, so that no sum over links gives its order exactly.
    assert disagreement_error(y, ranker.predict(rows), qid) < 0.1
    assert ranker.held_out_error_ < 0.1
    ranked = ranker.rank(new[0])
    assert [parse.score for parse in ranked] == sorted((parse.score for parse in ranked), reverse=True)
    assert sorted(parse.place for parse in ranked) == list(range(6))
    assert all(new[0].linkages[parse.place] is parse.linkage for parse in ranked)
    assert "coef_" not in vars(clone(ranker))


def test_the_ranker_refuses_what_it_cannot_learn_from() -> None:
    sentences = made_sentences(4, 0)
    unknown = Sentence("new", "", sentences[0].tokens, (Linkage(sentences[0].tokens, ()),))
    with pytest.raises(ValueError, match="parses have scores: 1 of 25 have none"):
        ParseRanker().fit([*sentences, unknown])
    with pytest.raises(ValueError, match="found no parse"):
        ParseRanker().fit([])
    ranker = ParseRanker(n_folds=2).fit(sentences)
    with pytest.raises(ValueError, match="train with tags='spelling'"):
        ranker.rank(made_sentences(1, 0, tagged=False)[0])


def test_the_commands(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = [
        {
            "sentence": sentence.id,
            "tokens": [list(token) for token in sentence.tokens],
            "parses": [
                {"links": [list(link) for link in one.links], "f": one.score} for one in sentence.linkages
            ],
        }
        for sentence in made_sentences(12, 2)
    ]
    data, model = write(tmp_path / "a.jsonl", *lines), tmp_path / "a.preflearn"
    assert command(["parses", "train", str(data), "-o", str(model), "--folds", "3"]) == 0
    assert "12 sentences" in capsys.readouterr().out
    assert command(["parses", "rank", str(model), "--file", str(data), "--show", "2"]) == 0
    shown = capsys.readouterr().out
    assert (
        shown.count("cells , grow very slowly") == 12
        and shown.count("1. score") == shown.count("2. score") == 12
    )
    assert command(["parses", "rank", str(model), "--file", str(data), "--show", "6", "--json"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert len(rows) == 72
    y = np.array([lines[int(row["sentence"][1:])]["parses"][row["place"]]["f"] for row in rows])  # type: ignore[index]
    assert disagreement_error(y, [row["score"] for row in rows], [row["sentence"] for row in rows]) < 0.1
    for arguments, message in (
        ([str(model)], "Give either a TEXT to parse or a --file"),
        ([str(model), "Cells grow.", "--file", str(data)], "Give either"),
        ([str(model), "--file", str(data), "--limit", "5"], "--limit is for the parser of a TEXT"),
    ):
        assert command(["parses", "rank", *arguments]) == 2
        assert message in capsys.readouterr().err


# -------------------------------------------------------------------------------------------------- link-grammar

OUTPUT = """Found 3 linkages (3 had no P.P. violations)
\tLinkage 1, cost vector = (UNUSED=0 DIS=-0.61 LEN=7)
[(LEFT-WALL)(it)('s.v)([(])(fine.a)
(now[!].r)(.)(RIGHT-WALL)]
[[0 1 0 (Wd)][1 2 0 (Ss)][2 4 1 (Pa)]
[4 5 0 (MVp)][0 6 0 (Xp)][6 7 0 (RW)]]
[0]

\tLinkage 2, cost vector = (UNUSED=1 DIS= 2.00 LEN=9)
[(LEFT-WALL)(it)('s.v)([(])(fine.a)(now.n)(.)(RIGHT-WALL)]
[[1 2 0 (Ss)][2 4 1 (Pa)][4 5 0 (MVp)]]
[0]

\tLinkage 3, cost vector = (UNUSED=1 DIS= 2.50 LEN=9)
[(LEFT-WALL)(it)('s.v)([(])(fine.a)([now])(.)(RIGHT-WALL)]
[[2 4 1 (Pp)]]
[0]

\tLinkage 4, cost vector = (UNUSED=1 DIS= 2.50 LEN=9)
[(LEFT-WALL)(it)(is.v)(fine.a)(RIGHT-WALL)]
[[2 3 1 (Pp)]]
[0]
"""


def test_the_output_of_the_parser_is_read() -> None:
    tokens = link_grammar.split_words("It's (fine now.")
    assert [token.text for token in tokens] == ["It's", "(", "fine", "now", "."]
    first, third = link_grammar.read_output(
        OUTPUT, tokens
    )  # the second links as the first, the fourth spells otherwise
    assert first.links == (Link(0, 2, "Pa"), Link(2, 3, "MVp"))
    assert (first.unused, first.disjunct, first.length) == (0, -0.61, 7.0)
    assert third.links == (Link(0, 2, "Pp"),) and third.unused == 1


@pytest.mark.parametrize(
    ("words", "text", "owner"),
    [
        (["mg/ml[!]", "of"], "mg/ml of", [0, 1]),
        (["10", "km.u", "."], "10km .", [0, 0, 1]),
        (["p.r"], "p.r", [0]),
        (["the", "end"], "the", None),
        (["the"], "the end", None),
    ],
)
def test_words_are_spelled_over_tokens(words: list[str], text: str, owner: list[int] | None) -> None:
    assert link_grammar.align(words, [Token(word) for word in text.split()]) == owner


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("  ", {}, "text of one sentence"),
        (" , . ", {}, "found no word"),
        ("a" * 2001, {}, "2001 characters"),
        ("one\ntwo", {}, "line break"),
        ("!quit", {}, "command of the parser"),
        ("Cells grow.", {"limit": 0}, "limit must be 1 to 10000"),
        ("Cells grow.", {"timeout": math.nan}, "timeout must be a positive number"),
        ("Cells grow.", {"dictionary": "../en"}, "name of a language"),
    ],
)
def test_what_cannot_be_parsed_is_refused_before_the_parser_starts(
    text: str, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        parse_text(text, **options)


def test_a_missing_parser_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    assert not is_installed()
    with pytest.raises(ImportError, match="apt install link-grammar"):
        parse_text("Cells grow.")


needs_parser = pytest.mark.skipif(not is_installed(), reason="link-grammar: no command link-parser")


@needs_parser
def test_text_is_parsed_and_its_parses_are_ranked() -> None:
    sentence = parse_text("The cat saw a dog in the park with a telescope.")
    assert len(sentence.linkages) > 1
    for linkage in sentence.linkages:
        joined = {tuple(sentence.tokens[end].text for end in link[:2]) for link in linkage.links}
        assert ("cat", "saw") in joined
        assert linkage.tokens is sentence.tokens
    assert len({linkage.links for linkage in sentence.linkages}) == len(sentence.linkages)
    ranked = ParseRanker(tags="spelling", n_folds=3).fit(made_sentences(12, 3)).rank(sentence)
    assert sorted(parse.place for parse in ranked) == list(range(len(sentence.linkages)))


@needs_parser
def test_the_parser_is_stopped_and_its_refusals_are_passed_on() -> None:
    with pytest.raises(TimeoutError, match="allow more time"):
        parse_text("The cat saw a dog.", timeout=1e-3)
    with pytest.raises(ValueError, match="dictionary 'klingon'"):
        parse_text("The cat saw a dog.", dictionary="klingon")


# ----------------------------------------------------------------------------------------------------- real parses


def test_real_parses(real_data: Any) -> None:
    sentences = read_linkages(real_data("parse_ranking") / "bioinfer_linkages.jsonl.xz")
    assert len(sentences) == 876 and sum(len(sentence.linkages) for sentence in sentences) == 16_966
    for sentence in sentences:
        assert sentence.gold is not None
        for linkage in sentence.linkages:
            assert linkage.score == pytest.approx(agreement(linkage.links, sentence.gold), abs=1e-4)
    some = sentences[:60]
    rows, y, qid = as_ranking(some)
    learned = ParseRanker().fit(sentences[60:260])
    ours = disagreement_error(y, learned.predict(rows), qid)
    assert ours < disagreement_error(y, [-linkage.length for linkage in rows], qid) - 0.1
