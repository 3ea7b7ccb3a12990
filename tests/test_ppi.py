"""Reading corpora and the graphs of candidate pairs, on made-up sentences."""

from __future__ import annotations

import gzip
import lzma
from xml.sax.saxutils import quoteattr

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import oracles
from preflearn_papers.ppi import CorpusError, candidates, iter_sentences, read_conllu_corpus, read_corpus
from preflearn_papers.ppi.corpus import Entity, Pair, Sentence, Token
from preflearn_papers.ppi.representation import SentenceGraphs


def sentence_xml(identity, words, entities, dependencies, pairs, *, analysis_first=False):
    """XML of a sentence: words are "text/TAG", entities map an id to word numbers, pairs are (e1, e2, interaction)."""
    texts, tags = zip(*(word.rsplit("/", 1) for word in words), strict=True)
    starts = np.concatenate([[0], np.cumsum([len(text) + 1 for text in texts])])
    offset = [f"{start}-{start + len(text) - 1}" for start, text in zip(starts, texts, strict=False)]
    entity_lines = [
        f'<entity id="{identity}.{name}" charOffset="{",".join(offset[w] for w in numbers)}" '
        f"text={quoteattr(' '.join(texts[w] for w in numbers))}/>"
        for name, numbers in entities.items()
    ]
    pair_lines = [
        f'<pair id="{identity}.p{number}" e1="{identity}.{e1}" e2="{identity}.{e2}" interaction="{interaction}"/>'
        for number, (e1, e2, interaction) in enumerate(pairs)
    ]
    tokens = [
        f'<token id="st_{number + 1}" text={quoteattr(text)} POS="{tag}" charOffset="{offset[number]}"/>'
        for number, (text, tag) in enumerate(zip(texts, tags, strict=True))
    ]
    links = [f'<dependency t1="st_{g + 1}" t2="st_{d + 1}" type="{kind}"/>' for g, d, kind in dependencies]
    analysis = [
        "<sentenceanalyses>",
        '<parses><parse parser="other" tokenizer="other"></parse>',
        '<parse parser="split_parse" tokenizer="split">',
        *links,
        "</parse></parses>",
        '<tokenizations><tokenization tokenizer="split">',
        *tokens,
        "</tokenization></tokenizations>",
        "</sentenceanalyses>",
    ]
    parts = (
        [*analysis, *entity_lines, *pair_lines] if analysis_first else [*entity_lines, *pair_lines, *analysis]
    )
    return "\n".join([f'<sentence id="{identity}" text={quoteattr(" ".join(texts))}>', *parts, "</sentence>"])


def corpus_xml(documents, source="made up"):
    body = [
        f'<document id="{name}">\n' + "\n".join(sentences) + "\n</document>"
        for name, sentences in documents.items()
    ]
    return f'<corpus source="{source}">\n' + "\n".join(body) + "\n</corpus>\n"


def example():
    """ "Now alpha beta binds gamma & delta ." with the pairs (alpha beta, gamma) and (delta, gamma)."""
    words = ["Now/RB", "alpha/NN", "beta/NN", "binds/VBZ", "gamma/NN", "&/CC", "delta/NN", "./."]
    entities = {"e0": [4], "e1": [1, 2], "e2": [6]}
    links = [
        (3, 0, "advmod"),
        (2, 1, "nn"),
        (3, 2, "nsubj"),
        (3, 4, "dobj"),
        (4, 6, "conj_and"),
        (3, 7, "punct"),
    ]
    return sentence_xml(
        "d0.s0", words, entities, links, [("e0", "e1", True), ("e2", "e0", False)], analysis_first=True
    )


def learnable_corpus(n_documents=12, seed=0, source="made up"):
    """Pairs interact where the verb between them is "binds"; a little noise and a third name now and then."""
    rng = np.random.default_rng(seed)
    documents = {}
    for number in range(n_documents):
        sentences = []
        for place in range(3):
            verb = rng.choice(["binds/VBZ", "resembles/VBZ", "binds/VBZ", "avoids/VBZ"])
            opening = rng.choice(["Here/RB", "Often/RB", "Now/RB"])
            words = [opening, "alpha/NN", verb, "beta/NN", "near/IN", "gamma/NN", "./."]
            links = [(2, 0, "advmod"), (2, 1, "nsubj"), (2, 3, "dobj"), (3, 5, "prep_near"), (2, 6, "punct")]
            pairs = [("e0", "e1", verb.startswith("binds"))]
            entities = {"e0": [1], "e1": [3]}
            if rng.random() < 0.5:
                entities["e2"] = [5]
                pairs += [("e0", "e2", False), ("e1", "e2", False)]
            sentences.append(sentence_xml(f"d{number}.s{place}", words, entities, links, pairs))
        documents[f"d{number}"] = sentences
    return corpus_xml(documents, source)


@pytest.mark.parametrize("opener", [open, gzip.open, lzma.open])
def test_read_corpus_plain_and_compressed(tmp_path, opener):
    file = tmp_path / "corpus.data"
    with opener(file, "wb") as out:
        out.write(corpus_xml({"d0": [example()], "d1": []}).encode())
    corpus = read_corpus(file)
    assert repr(corpus) == "Corpus('made up': 1 documents, 1 sentences, 2 pairs, 1 of them interactions)"
    (sentence,) = corpus.sentences
    assert sentence == next(iter_sentences(file))
    assert (sentence.id, sentence.document) == ("d0.s0", "d0")
    assert sentence.text == "Now alpha beta binds gamma & delta ."
    assert [token.text for token in sentence.tokens] == sentence.text.split()
    assert all(sentence.text[token.start : token.end] == token.text for token in sentence.tokens)
    assert sentence.entities["d0.s0.e1"].tokens == (1, 2)
    assert sentence.entities["d0.s0.e1"].text == "alpha beta"
    assert sentence.dependencies[2] == (3, 2, "nsubj")
    assert sentence.pairs[0] == Pair("d0.s0.p0", "d0.s0.e0", "d0.s0.e1", True)


def test_sentences_are_streamed(tmp_path):
    """The first sentence comes before the end of the file is read: what follows it is not XML at all."""
    file = tmp_path / "corpus.xml"
    start = corpus_xml({"d0": [example()]}).replace("</corpus>", "")
    file.write_text(start + " " * 200_000 + "<<<")
    sentences = iter_sentences(file)
    assert next(sentences).id == "d0.s0"
    with pytest.raises(CorpusError, match="not well-formed"):
        next(sentences)


def test_graph_of_a_candidate(tmp_path):
    file = tmp_path / "corpus.xml"
    file.write_text(corpus_xml({"d0": [example()]}))
    graphs, labels, documents = found = candidates(read_corpus(file))
    assert labels.tolist() == [1, 0]
    assert documents.tolist() == ["d0", "d0"]
    assert len(found) == 2
    assert repr(found) == "Candidates('made up': 2 pairs, 1 interactions, 1 documents)"
    graph = graphs[0]
    assert graph.name == "d0.s0.p0"
    # 8 tokens, 5 dependencies (punct is dropped), 8 tokens in linear order.
    assert graph.n_vertices == 21
    dependency_side = [("Now", "RB"), ("PROT1_IP", "NN_IP"), ("PROT1_IP", "NN_IP"), ("binds_IP", "VBZ_IP")]
    dependency_side += [("PROT2_IP", "NN_IP"), ("&", "CC"), ("PROT", "NN"), (".",)]
    assert graph.labels[:8] == tuple(dependency_side)
    # nn is on the path from "alpha", the first token of the name of two.
    assert graph.labels[8:13] == (("advmod",), ("nn_IP",), ("nsubj_IP",), ("dobj_IP",), ("conj_and",))
    order_side = [("Now_B", "RB_B"), ("PROT1_M", "NN_M"), ("PROT1_M", "NN_M"), ("binds_M", "VBZ_M")]
    order_side += [("PROT2_M", "NN_M"), ("&_A", "CC_A"), ("PROT_A", "NN_A"), ("._A",)]
    assert graph.labels[13:] == tuple(order_side)
    edges = {(source, target): weight for source, target, weight in graph.edges}
    assert edges[3, 8] == edges[8, 0] == edges[4, 12] == edges[12, 6] == 0.3
    assert edges[2, 9] == edges[9, 1] == edges[3, 10] == edges[10, 2] == edges[3, 11] == edges[11, 4] == 0.9
    assert all(edges[vertex, vertex + 1] == 0.9 for vertex in range(13, 20))
    assert len(edges) == 2 * 5 + 7
    # The second pair is named back to front: PROT1 is still the name that comes first.
    assert graphs[1].labels[4] == ("PROT1_IP", "NN_IP")
    assert graphs[1].labels[6] == ("PROT2_IP", "NN_IP")
    assert graphs[1].labels[1] == ("PROT", "NN")


@given(st.integers(2, 6), st.data())
def test_shortest_paths_equal_all_paths_listed(n_tokens, data):
    token = st.integers(0, n_tokens - 1)
    links = data.draw(st.lists(st.tuples(token, token), max_size=8))
    first, second = data.draw(
        st.tuples(st.sets(token, min_size=1, max_size=2), st.sets(token, min_size=1, max_size=2))
    )
    dependencies = tuple((governor, dependent, "x") for governor, dependent in links)
    entities = {
        "a": Entity("a", "a", (), tuple(sorted(first))),
        "b": Entity("b", "b", (), tuple(sorted(second))),
    }
    tokens = tuple(Token(str(number), "NN", 0, 1) for number in range(n_tokens))
    sentence = Sentence("s", "d", "", tokens, dependencies, entities, ())
    on = SentenceGraphs(sentence).on_path(first, second)
    assert set(np.flatnonzero(on)) == oracles.shortest_path_dependencies(
        n_tokens, dependencies, first, second
    )


def test_names_that_share_a_token_and_unconnected_names():
    tokens = tuple(Token(text, "NN", 0, 1) for text in ("x", "y", "z"))
    entities = {
        "a": Entity("a", "x y", (), (0, 1)),
        "b": Entity("b", "y", (), (1,)),
        "c": Entity("c", "z", (), (2,)),
    }
    build = SentenceGraphs(Sentence("s", "d", "", tokens, ((0, 1, "nn"),), entities, ()))
    shared = build(Pair("p", "a", "b", None))
    assert [labels[0] for labels in shared.labels[4:]] == ["PROT1_M", "PROT1_M", "PROT_A"]
    apart = build(Pair("p", "a", "c", None))
    assert apart.labels[:3] == (("PROT1", "NN"), ("PROT1", "NN"), ("PROT2", "NN"))
    assert set(apart.weights.tolist()) == {0.3, 0.9}
    assert apart.weights[:2].tolist() == [0.3, 0.3]


def broken(old, new):
    text = corpus_xml({"d0": [example()]})
    assert old in text
    return text.replace(old, new, 1)


BAD = [
    (broken("</sentence>", ""), r"corpus.xml, line 31: not well-formed XML \(mismatched tag\)"),
    (
        broken('e1="d0.s0.e0"', 'e1="d0.s0.e9"'),
        r"line 28: pair 'd0.s0.p0' names the missing entity 'd0.s0.e9'",
    ),
    (
        broken('id="d0.s0.e2" charOffset="29-33"', 'id="d0.s0.e2" charOffset="90-95"'),
        r"line 29: entity 'd0.s0.e2' of pair 'd0.s0.p1' matches no token",
    ),
    (
        broken('charOffset="29-33"', 'charOffset="29"'),
        r"line \d+: the charOffset '29' of <token> is not of the form",
    ),
    (broken('POS="RB"', ""), r"line \d+: <token> 'st_1' has no attribute 'POS'"),
    (broken('t1="st_4"', 't1="st_99"'), r"line \d+: a dependency names the missing token 'st_99'"),
    (
        broken('interaction="True"', 'interaction="maybe"'),
        r"interaction must be 'True' or 'False'; found 'maybe'",
    ),
    (broken(' text="Now alpha', ' words="Now alpha'), r"line 3: <sentence> 'd0.s0' has no attribute 'text'"),
    (
        broken('parser="split_parse"', 'parser="third"'),
        r"has the parses \['other', 'third'\]; expected one parse",
    ),
    (
        broken('tokenization tokenizer="split"', 'tokenization tokenizer="x"'),
        r"tokenization 'split', which does not exist",
    ),
]


@pytest.mark.parametrize(("text", "message"), BAD)
def test_bad_corpora_are_refused(tmp_path, text, message):
    file = tmp_path / "corpus.xml"
    file.write_text(text)
    with pytest.raises(CorpusError, match=message):
        read_corpus(file)


def test_empty_parse_and_wrong_root(tmp_path):
    file = tmp_path / "corpus.xml"
    file.write_text(
        corpus_xml(
            {"d0": [sentence_xml("s", ["a/NN", "b/NN"], {"x": [0], "y": [1]}, [], [("x", "y", True)])]}
        )
    )
    with pytest.raises(CorpusError, match="line 3: sentence 's' has candidate pairs but an empty parse"):
        read_corpus(file)
    file.write_text("<html/>")
    with pytest.raises(CorpusError, match="line 1: expected a <corpus> element, found <html>"):
        read_corpus(file)
    file.write_text("")
    with pytest.raises(CorpusError, match="no element found"):
        read_corpus(file)
    with pytest.raises(FileNotFoundError):
        read_corpus(tmp_path / "nowhere.xml")


def test_damaged_compression(tmp_path):
    file = tmp_path / "corpus.xml.xz"
    file.write_bytes(lzma.compress(corpus_xml({"d0": [example()]}).encode())[:-40])
    with pytest.raises(CorpusError, match="damaged or cut short"):
        read_corpus(file)


LAUGHS = """<?xml version="1.0"?>
<!DOCTYPE corpus [<!ENTITY a "ha"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;">]>
<corpus source="&b;"></corpus>"""
OUTSIDE = """<!DOCTYPE corpus [<!ENTITY secret SYSTEM "file:///etc/hostname">]><corpus source="x">&secret;</corpus>"""


@pytest.mark.parametrize(
    "text", [LAUGHS, OUTSIDE, '<!DOCTYPE corpus SYSTEM "http://localhost/x.dtd"><corpus/>']
)
def test_entities_are_never_expanded(tmp_path, text):
    file = tmp_path / "corpus.xml"
    file.write_text(text)
    with pytest.raises(CorpusError, match="a document type declaration is not accepted"):
        read_corpus(file)


def test_skip_bad_counts_and_lists(tmp_path):
    text = broken('e1="d0.s0.e0"', 'e1="d0.s0.e9"')
    second = example().replace("d0.s0", "d1.s0").replace('POS="RB"', "")
    file = tmp_path / "corpus.xml"
    file.write_text(text.replace("</document>", f'</document><document id="d1">{second}</document>'))
    corpus = read_corpus(file, skip_bad=True)
    assert corpus.n_pairs == 1
    assert [message.split(": ", 1)[1] for message in corpus.skipped] == [
        "pair 'd0.s0.p0' names the missing entity 'd0.s0.e9'.",
        "<token> 'st_1' has no attribute 'POS'.",
    ]
    assert candidates(corpus).skipped == corpus.skipped


def test_skip_bad_leaves_out_heavy_cycles():
    """Every token governs every other, all on the shortest path: the walks have no finite sum."""
    tokens = tuple(Token(str(number), "NN", 0, 1) for number in range(4))
    links = tuple((a, b, "x") for a in (0, 3) for b in (1, 2)) + tuple(
        (b, a, "x") for a in (0, 3) for b in (1, 2)
    )
    entities = {"a": Entity("a", "0", (), (0,)), "b": Entity("b", "3", (), (3,))}
    sentence = Sentence("s", "d", "", tokens, links, entities, (Pair("p", "a", "b", True),))
    assert len(candidates([sentence])) == 1
    left = candidates([sentence], skip_bad=True)
    assert len(left) == 0
    assert left.skipped[0].startswith("pair 'p': cycles too heavy, spectral radius 1.273")


CONLLU = """\
# newdoc id = paper1
# sent_id = s1
# text = Alpha binds beta-2.
1\tAlpha\talpha\tPROPN\tNN\t_\t2\tnsubj\t_\t_
2\tbinds\tbind\tVERB\tVBZ\t_\t0\troot\t_\t_
3\tbeta-2\tbeta-2\tPROPN\tNN\t_\t2\tobj\t_\tSpaceAfter=No
4\t.\t.\tPUNCT\t.\t_\t2\tpunct\t_\t_

# sent_id = s2
# text = Gamma binds delta and eps.
1\tGamma\tgamma\tPROPN\tNN\t_\t2\tnsubj\t_\t_
2\tbinds\tbind\tVERB\tVBZ\t_\t0\troot\t_\t_
3\tdelta\tdelta\tPROPN\tNN\t_\t2\tobj\t_\t_
4\tand\tand\tCCONJ\tCC\t_\t5\tcc\t_\t_
5\teps\teps\tPROPN\tNN\t_\t3\tconj\t_\tSpaceAfter=No
6\t.\t.\tPUNCT\t.\t_\t2\tpunct\t_\t_
"""
ENTITIES = """sentence\tentity\tstart\tend\ttext
s1\tA\t0\t5\tAlpha
s1\tB\t12\t18\tbeta-2
s2\tC\t0\t5\tGamma
s2\tD\t12\t17\tdelta
s2\tE\t22\t25\teps
"""


def write_conllu(folder, entities=ENTITIES, pairs=None):
    (folder / "x.conllu").write_text(CONLLU)
    (folder / "x.tsv").write_text(entities)
    if pairs is None:
        return folder / "x.conllu", folder / "x.tsv"
    (folder / "pairs.tsv").write_text(pairs)
    return folder / "x.conllu", folder / "x.tsv", folder / "pairs.tsv"


def test_conllu_with_a_table_of_entities(tmp_path):
    found = candidates(read_conllu_corpus(*write_conllu(tmp_path)))
    assert [item.pair.id for item in found.items] == ["A/B", "C/D", "C/E", "D/E"]
    assert np.isnan(found.labels).all()
    assert found.documents.tolist() == ["paper1"] * 4
    assert found.graphs[0].labels[:3] == (
        ("PROT1_IP", "NN_IP"),
        ("binds_IP", "VBZ_IP"),
        ("PROT2_IP", "NN_IP"),
    )
    assert (found.items[1].first, found.items[1].second) == ("Gamma", "delta")
    labelled = read_conllu_corpus(
        *write_conllu(tmp_path, pairs="e1\te2\tinteraction\nA\tB\tTrue\nD\tE\tFalse\n")
    )
    assert candidates(labelled).labels.tolist() == [1, 0]


@pytest.mark.parametrize(
    ("entities", "pairs", "message"),
    [
        (ENTITIES.replace("start", "begin"), None, "x.tsv, line 1: the header has no column 'start'"),
        (ENTITIES.replace("\t12\t18", "\ttwelve\t18"), None, "x.tsv, line 3: start and end must be numbers"),
        (ENTITIES.replace("\t12\t18", "\t18\t12"), None, "x.tsv, line 3: start must be less than end"),
        (ENTITIES.replace("\t12\t18", "\t80\t90"), None, "entity 'B' of pair 'A/B' matches no token"),
        (ENTITIES.replace("s1\tA", "s9\tA"), None, "x.tsv: the sentence 's9' is not in .*x.conllu"),
        (ENTITIES + "s2\tF\n", None, "x.tsv, line 7: fewer columns than the header"),
        (ENTITIES, "e1\te2\nA\tC\n", "pairs.tsv, line 2: 'A' and 'C' are not entities of one sentence"),
        (ENTITIES, "e1\te2\tinteraction\nA\tB\tyes\n", "interaction must be True or False; found 'yes'"),
    ],
)
def test_bad_tables_are_refused(tmp_path, entities, pairs, message):
    with pytest.raises(CorpusError, match=message):
        read_conllu_corpus(*write_conllu(tmp_path, entities, pairs))


def test_skip_bad_tables(tmp_path):
    entities = ENTITIES.replace("\t12\t18", "\t80\t90").replace("s2\tE", "s9\tE")
    corpus = read_conllu_corpus(*write_conllu(tmp_path, entities), skip_bad=True)
    assert corpus.n_pairs == 1
    assert len(corpus.skipped) == 2


PUBLISHED_COUNTS = {
    "AImed": (1000, 4834),
    "BioInfer": (2534, 7132),
    "HPRD50": (163, 270),
    "IEPA": (335, 482),
    "LLL": (164, 166),
}


@pytest.mark.parametrize("name", ["HPRD50", "IEPA", "LLL"])
def test_real_corpora_have_the_published_counts(real_data, name):
    corpus = read_corpus(real_data("ppi_corpora") / f"{name}-learning-format.xml.xz")
    graphs, labels, documents = candidates(corpus)
    assert (np.sum(labels == 1), np.sum(labels == 0)) == PUBLISHED_COUNTS[name]
    assert len(graphs) == documents.shape[0] == sum(PUBLISHED_COUNTS[name])
