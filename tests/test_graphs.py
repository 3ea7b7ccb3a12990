"""Labelled graphs and the all-paths features against dense brute force."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse
from sklearn.base import clone
from sklearn.linear_model import Ridge
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline, make_union
from sklearn.utils.estimator_checks import check_estimator

import oracles
from preflearn import RLS, RankRLS
from preflearn.graphs import AllPathsFeatures, LabeledGraph, WeisfeilerLehmanFeatures, gram
from preflearn.kernels import NystromMap
from preflearn.kernels.graphs import all_paths
from preflearn.metrics import concordance

LETTERS = "abcdef"


@st.composite
def graphs(draw, *, max_vertices=7, heaviest=1.0, letters=LETTERS):
    """A graph whose spectral radius is under 1 for heaviest = 1: no row of A sums to more than 0.95."""
    n = draw(st.integers(0, max_vertices))
    labels = [draw(st.lists(st.sampled_from(letters), max_size=3)) for _ in range(n)]
    n_edges = draw(st.integers(0, 2 * n)) if n else 0
    edges = []
    for _ in range(n_edges):
        ends = draw(st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)))
        edges.append((*ends, heaviest * draw(st.sampled_from([0.05, 0.3, 0.6, 0.9]))))
    out = np.zeros(max(n, 1))
    for source, _, weight in edges:
        out[source] += weight
    scale = np.maximum(out / (0.95 * heaviest), 1.0)
    return LabeledGraph(labels, [(s, t, w / scale[s]) for s, t, w in edges])


def as_dict(features, row, column_names):
    row = features[[row]].tocoo()
    return {column_names[column]: value for column, value in zip(row.col, row.data, strict=True)}


def assert_rows_equal(transformer, features, expected):
    labels = transformer.labels_.tolist()
    names = [(labels[a], labels[b]) for a, b in transformer.pairs_.tolist()]
    for row, wanted in enumerate(expected):
        found = as_dict(features, row, names)
        assert found.keys() == wanted.keys()
        for pair, value in wanted.items():
            assert found[pair] == pytest.approx(value, rel=1e-9)


@given(st.lists(graphs(), max_size=5), st.sampled_from(["sum", "max"]), st.sampled_from([None, 1, 2, 5]))
def test_features_equal_brute_force(some, aggregate, max_length):
    transformer = AllPathsFeatures(aggregate, max_length=max_length, block_size=2, n_jobs=2)
    features = transformer.fit_transform(some)
    assert features.shape == (len(some), transformer.n_features_out_)
    assert features.has_sorted_indices
    expected = [oracles.label_pair_weights(graph, aggregate, max_length) for graph in some]
    assert_rows_equal(transformer, features, expected)
    assert transformer.n_features_out_ == len(set().union(*expected))


@given(
    st.lists(graphs(), min_size=1, max_size=4), st.sampled_from(["sum", "max"]), st.sampled_from([None, 3])
)
def test_sparse_factorisation_equals_small_loop(some, aggregate, max_length):
    small = AllPathsFeatures(aggregate, max_length=max_length)
    expected = small.fit_transform(some)
    limits = all_paths.DENSE_VERTICES, all_paths._COLUMNS_AT_ONCE
    try:
        all_paths.DENSE_VERTICES, all_paths._COLUMNS_AT_ONCE = 3, 2
        mixed = AllPathsFeatures(aggregate, max_length=max_length, min_weight=1e-12).fit(some)
        found = mixed.transform(some)
    finally:
        all_paths.DENSE_VERTICES, all_paths._COLUMNS_AT_ONCE = limits
    np.testing.assert_array_equal(mixed.pairs_, small.pairs_)
    np.testing.assert_allclose(found.toarray(), expected.toarray(), rtol=1e-9)


@given(graphs(), st.floats(1e-3, 0.5))
def test_light_walks_are_left_out(graph, min_weight):
    weights = oracles.walk_weights(graph)
    if np.any(np.abs(weights - min_weight) < 1e-9):
        return
    transformer = AllPathsFeatures("max", min_weight=min_weight)
    features = transformer.fit_transform([graph])
    assert_rows_equal(
        transformer, features, [oracles.label_pair_weights(graph, "max", min_weight=min_weight)]
    )


@given(graphs(max_vertices=5))
def test_series_converges_to_the_infinite_sum(graph):
    exact = AllPathsFeatures().fit([graph])
    partial = AllPathsFeatures(max_length=2000).fit([graph])
    np.testing.assert_array_equal(partial.pairs_, exact.pairs_)
    np.testing.assert_allclose(partial.transform([graph]).data, exact.transform([graph]).data, rtol=1e-6)


@given(graphs(heaviest=2.5))
def test_convergence_is_decided_by_the_spectral_radius(graph):
    A = graph.adjacency().toarray()
    radius = np.abs(np.linalg.eigvals(A)).max(initial=0.0)
    # Within rounding of 1 either answer is right; a defective eigenvalue is only accurate to a root of epsilon.
    if abs(radius - 1) < 1e-3:
        return
    assert graph.spectral_radius() == pytest.approx(radius, abs=1e-3)
    large = all_paths._factorise(graph) is not None
    try:
        AllPathsFeatures().fit([graph])
        small = True
    except ValueError:
        small = False
    assert small == large == (radius < 1)


def heavy_cycle(name="loop"):
    return LabeledGraph([["a"], ["b"]], [(0, 1, 2.0), (1, 0, 0.5)], name=name)


@pytest.mark.parametrize("limit", [all_paths.DENSE_VERTICES, 1])
def test_divergent_graph_is_named_or_scaled(monkeypatch, limit):
    monkeypatch.setattr(all_paths, "DENSE_VERTICES", limit)
    fine = LabeledGraph([["a"], ["b"]], [(0, 1, 2.0)])
    with pytest.raises(ValueError, match=r"graph 'loop' \(2 vertices\) does not converge.*radius is 1 "):
        AllPathsFeatures().fit([fine, heavy_cycle()])
    heavier = LabeledGraph(heavy_cycle().labels, [(0, 1, 4.0), (1, 0, 1.0)])
    transformer = AllPathsFeatures(rescale=0.5)
    features = transformer.fit_transform([fine, heavier, fine])
    expected = [oracles.label_pair_weights(graph) for graph in (fine, heavier.scaled(0.25), fine)]
    assert_rows_equal(transformer, features, expected)
    bounded = AllPathsFeatures(max_length=2).fit_transform([heavy_cycle()])
    np.testing.assert_allclose(bounded.toarray(), [[1.0, 2.0, 0.5, 1.0]])


def test_tiny_weights_keep_their_digits():
    chain = LabeledGraph([[str(i)] for i in range(30)], [(i, i + 1, 1e-3) for i in range(29)])
    transformer = AllPathsFeatures()
    features = transformer.fit_transform([chain])
    names = transformer.get_feature_names_out().tolist()
    assert features[0, names.index("0 -> 29")] == pytest.approx(1e-87, rel=1e-12)


@given(st.lists(graphs(letters="abc"), min_size=1, max_size=3), st.lists(graphs(), min_size=1, max_size=3))
def test_unseen_labels_and_pairs_are_ignored_and_counted(seen, new):
    transformer = AllPathsFeatures().fit(seen)
    features = transformer.transform(iter(new))
    columns = set(map(tuple, transformer.labels_[transformer.pairs_].tolist()))
    known = set(transformer.labels_.tolist())
    expected = [oracles.label_pair_weights(graph) for graph in new]
    kept = [{pair: value for pair, value in row.items() if pair in columns} for row in expected]
    assert_rows_equal(transformer, features, kept)
    unseen = sum(label not in known for graph in new for labels in graph.labels for label in labels)
    assert transformer.n_unseen_labels_ == unseen
    dropped = sum(pair not in columns for row in expected for pair in row)
    assert transformer.n_unseen_pairs_ == dropped


@given(st.lists(graphs(), min_size=1, max_size=4), st.sampled_from(["sum", "max"]))
def test_hashing_with_room_keeps_the_kernel(some, aggregate):
    exact = AllPathsFeatures(aggregate).fit_transform(some)
    transformer = AllPathsFeatures(aggregate, n_features=2**20)
    hashed = transformer.transform(graph for graph in some)
    assert hashed.shape == (len(some), 2**20)
    np.testing.assert_allclose((hashed @ hashed.T).toarray(), (exact @ exact.T).toarray(), rtol=1e-12)
    # The same columns whatever came before: what a stream needs.
    alone = transformer.transform(some[-1:])
    assert (alone != hashed[[len(some) - 1]]).nnz == 0
    few = AllPathsFeatures(aggregate, n_features=2).fit_transform(some)
    np.testing.assert_allclose(few.sum(axis=1), exact.sum(axis=1))


@given(st.lists(graphs(), min_size=1, max_size=4), st.sampled_from([np.float32, np.float64]))
def test_normalised_rows(some, dtype):
    features = AllPathsFeatures("max", normalize=True, dtype=dtype).fit_transform(some)
    assert features.dtype == dtype
    plain = AllPathsFeatures("max").fit_transform(some).toarray()
    lengths = np.sqrt((plain**2).sum(axis=1, keepdims=True))
    np.testing.assert_allclose(features.toarray(), plain / np.where(lengths == 0, 1, lengths), rtol=1e-5)


@given(st.lists(graphs(letters="abc"), min_size=1, max_size=3), st.lists(graphs(), min_size=1, max_size=3))
def test_normalised_kernel_does_not_depend_on_the_vocabulary(seen, new):
    together = AllPathsFeatures(normalize=True).fit_transform([*seen, *new])
    transformer = AllPathsFeatures(normalize=True)
    train, test = transformer.fit_transform(seen), transformer.transform(new)
    expected = gram(together)[len(seen) :, : len(seen)]
    np.testing.assert_allclose(gram(test, train), expected, rtol=1e-10, atol=1e-15)


def test_parallel_edges_add_and_repeated_labels_count_once():
    doubled = LabeledGraph([["a", "a"], ["b"]], [(0, 1, 0.25), (0, 1, 0.25)])
    once = LabeledGraph([["a"], ["b"]], [(0, 1, 0.5)])
    transformer = AllPathsFeatures().fit([doubled])
    np.testing.assert_array_equal(transformer.transform([doubled]).data, transformer.transform([once]).data)


def test_no_graphs_and_empty_graphs():
    nothing = AllPathsFeatures().fit_transform([])
    assert nothing.shape == (0, 0)
    empty = LabeledGraph([], [])
    bare = LabeledGraph([[], []], [(0, 1, 0.5)])
    assert AllPathsFeatures().fit_transform([empty, bare]).shape == (2, 0)
    with_edge = AllPathsFeatures().fit([LabeledGraph([["a"]], [(0, 0, 0.5)])])
    np.testing.assert_array_equal(with_edge.transform([empty, bare]).toarray(), [[0.0], [0.0]])


def test_works_in_a_pipeline_and_clones():
    rng = np.random.default_rng(0)
    some = [
        LabeledGraph([["a"], [str(i % 3)], ["b"]], [(0, 1, 0.5), (1, 2, 0.4)], name=str(i))
        for i in rng.permutation(12)
    ]
    y = [int(graph.name) % 3 for graph in some]
    model = make_pipeline(AllPathsFeatures("max", normalize=True), Ridge(1e-8))
    assert clone(model).fit(some, y).score(some, y) == pytest.approx(1.0, abs=1e-6)


@given(st.integers(1, 6), st.integers(1, 5), st.integers(1, 7), st.booleans(), st.integers(0, 10**6))
def test_gram_equals_dense_product(m, k, n, single, seed):
    rng = np.random.default_rng(seed)
    dtype = np.float32 if single else np.float64
    X, Y = (sparse.random_array((size, n), density=0.5, rng=rng, dtype=dtype) for size in (m, k))
    tolerance = 1e-5 if single else 1e-12
    np.testing.assert_allclose(gram(X), (X @ X.T).toarray(), rtol=tolerance, atol=tolerance)
    np.testing.assert_allclose(gram(X, Y), (X @ Y.T).toarray(), rtol=tolerance, atol=tolerance)
    assert gram(X).dtype == dtype


@given(st.lists(graphs(letters="ab"), min_size=1, max_size=4), st.integers(0, 3))
def test_neighbourhood_counts_equal_written_out_names(some, depth):
    transformer = WeisfeilerLehmanFeatures(depth)
    features = transformer.fit_transform(some)
    counts = [oracles.neighbourhood_labels(graph, depth) for graph in some]
    assert features.shape == (len(some), len(set().union(*counts)))
    kernel = [
        [sum(value * other.get(name, 0) for name, value in one.items()) for other in counts] for one in counts
    ]
    np.testing.assert_array_equal((features @ features.T).toarray(), kernel)
    lengths = np.sqrt(np.diag(kernel))
    if lengths[0] == 0:
        return
    transformer = WeisfeilerLehmanFeatures(depth, normalize=True)
    first, rest = transformer.fit_transform(some[:1]), transformer.transform(some)
    expected = np.asarray(kernel, dtype=float)[:, 0] / np.where(lengths == 0, 1, lengths * lengths[0])
    np.testing.assert_allclose((rest @ first.T).toarray()[:, 0], expected, rtol=1e-12)


def test_bad_neighbourhoods_are_refused():
    with pytest.raises(ValueError, match="depth must be an integer of at least 0; found -1"):
        WeisfeilerLehmanFeatures(-1).fit([])
    with pytest.raises(TypeError, match="labels that are strings; the graph has 3"):
        WeisfeilerLehmanFeatures().fit([LabeledGraph([[3]], [])])


def test_gram_refuses_other_features():
    with pytest.raises(ValueError, match="X has 2 columns and Y 3"):
        gram(sparse.csr_array((1, 2)), sparse.csr_array((1, 3)))


@given(graphs())
def test_networkx_and_back(graph):
    pytest.importorskip("networkx")
    assert LabeledGraph.from_networkx(graph.to_networkx()) == graph


def test_from_networkx_takes_undirected_graphs_and_single_labels():
    networkx = pytest.importorskip("networkx")
    given_graph = networkx.Graph(name="ring")
    given_graph.add_node("x", labels="C")
    given_graph.add_node("y", labels=["O", "aromatic"])
    given_graph.add_node("z")
    given_graph.add_edge("x", "y", weight=0.2)
    given_graph.add_edge("z", "z")
    graph = LabeledGraph.from_networkx(given_graph)
    assert graph.name == "ring"
    assert graph.labels == (("C",), ("O", "aromatic"), ())
    assert sorted(graph.edges) == [(0, 1, 0.2), (1, 0, 0.2), (2, 2, 1.0)]


CONLLU = """\
# sent_id = s1
# text = Hedgehogs don't sleep.
1\tHedgehogs\thedgehog\tNOUN\tNNS\t_\t4\tnsubj\t4:nsubj|2:dep\t_
2-3\tdon't\t_\t_\t_\t_\t_\t_\t_\t_
2\tdo\tdo\tAUX\tVBP\t_\t4\taux\t4:aux\t_
3\tn't\tnot\tPART\t_\t_\t4\tadvmod\t4:advmod\t_
4\tsleep\tsleep\tVERB\tVB\t_\t0\troot\t0:root\tSpaceAfter=No
4.1\tgone\tgo\tVERB\t_\t_\t_\t_\t4:conj\t_
5\t.\t.\tPUNCT\t.\t_\t4\tpunct\t4:punct\t_
"""


def test_from_conllu(tmp_path):
    file = tmp_path / "one.conllu"
    file.write_text(CONLLU + "\n" + CONLLU.replace("# sent_id = s1\n", ""))
    first, second = LabeledGraph.from_conllu(file, edge_weight=0.5)
    assert first.name == "s1"
    assert second.name.endswith("one.conllu:2")
    assert first.labels[2] == ("n't", "PART")
    assert first.labels[5:] == (("nsubj",), ("aux",), ("advmod",), ("punct",))
    assert first.edges[:2] == [(3, 5, 0.5), (5, 0, 0.5)]
    (enhanced,) = LabeledGraph.from_conllu(tmp_path / _only_first(tmp_path), enhanced=True)
    assert ("dep",) in enhanced.labels
    assert enhanced.n_vertices == 5 + 5


def _only_first(folder):
    (folder / "first.conllu").write_text(CONLLU)
    return "first.conllu"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (CONLLU.replace("\t4\tnsubj", "\t9\tnsubj"), r"bad.conllu, line 3: word 1 depends on word '9'"),
        (
            CONLLU.replace("\t_\t4\taux\t", "\t_\t4\t"),
            r"bad.conllu, line 5: .* 10 tab-separated columns, found 9",
        ),
    ],
)
def test_bad_conllu_is_refused(tmp_path, text, message):
    file = tmp_path / "bad.conllu"
    file.write_text(text)
    with pytest.raises(ValueError, match=message):
        LabeledGraph.from_conllu(file)


@pytest.mark.parametrize(
    ("labels", "edges", "error", "message"),
    [
        ([["a"]], [(0, 1, 0.5)], ValueError, "ends in vertex 1; it has the vertices 0 to 0"),
        ([["a"]], [(-1, 0, 0.5)], ValueError, "ends in vertex -1"),
        ([["a"]], [(0.5, 0, 0.5)], ValueError, "must be vertex numbers"),
        ([["a"]], [(0, 0, 0.0)], ValueError, "has the weight 0.0; weights must be positive"),
        ([["a"]], [(0, 0, np.nan)], ValueError, "has the weight nan"),
        ([["a"]], [(0, 0, -0.3)], ValueError, "has the weight -0.3"),
        ([["a"]], [(0, 0)], ValueError, r"triples; found \(0, 0\)"),
        ([["a"]], [7], ValueError, "triples; found 7"),
        (["binds"], [], TypeError, r"a vertex has a list of labels: \['binds'\]"),
    ],
)
def test_bad_graphs_are_refused(labels, edges, error, message):
    with pytest.raises(error, match=message):
        LabeledGraph(labels, edges)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"aggregate": "mean"}, "aggregate must be 'sum' or 'max'"),
        ({"max_length": 0}, "max_length must be an integer of at least 1"),
        ({"min_weight": -1}, "min_weight must be a number of at least 0"),
        ({"rescale": 1.0}, "rescale must be None or a number between 0 and 1"),
        ({"rescale": 0.5, "max_length": 3}, "rescale would be ignored"),
        ({"n_features": 0}, "n_features must be an integer"),
        ({"block_size": None}, "block_size must be an integer"),
        ({"dtype": np.int32}, "dtype must be"),
    ],
)
def test_bad_parameters_are_refused(parameters, message):
    with pytest.raises(ValueError, match=message):
        AllPathsFeatures(**parameters).fit([])


def test_bad_input_is_refused():
    graph = LabeledGraph([["a"]], [])
    with pytest.raises(TypeError, match=r"Pass \[graph\]"):
        AllPathsFeatures().fit(graph)
    with pytest.raises(TypeError, match="item 1 is a dict"):
        AllPathsFeatures().fit([graph, {}])
    with pytest.raises(TypeError, match="labels that are strings; found 3"):
        AllPathsFeatures(n_features=8).transform([LabeledGraph([[3]], [])])


def ringed(n_rings, name=None):
    """A chain of eight atoms with some bonds that skip one."""
    bonds = [(i, i + 1, 0.4) for i in range(8)] + [(3 * i, 3 * i + 2, 0.3) for i in range(n_rings)]
    return LabeledGraph([["C"] for _ in range(8)] + [["O"]], bonds, name=name)


def learners():
    features = AllPathsFeatures("sum", normalize=True)
    yield "linear", make_pipeline(features, RankRLS(alpha=1e-3))
    yield "reduced set", make_pipeline(features, RankRLS(alpha=1e-3, n_basis=15, random_state=0))
    yield "rbf", make_pipeline(features, RLS(alpha=1e-3, kernel="rbf", gamma=1.0))
    yield "map", make_pipeline(features, NystromMap(n_basis=15, random_state=0), RLS(alpha=1e-3))
    yield "hashed", make_pipeline(AllPathsFeatures("sum", n_features=64), RankRLS(alpha=1e-3))
    both = make_union(AllPathsFeatures("max", normalize=True), WeisfeilerLehmanFeatures(1, normalize=True))
    yield "sum of kernels", make_pipeline(both, RankRLS(alpha=1e-3))


@pytest.mark.parametrize(("name", "model"), list(learners()), ids=[name for name, _ in learners()])
def test_graphs_go_through_pipelines_with_our_learners(name, model):
    rings = np.random.default_rng(0).integers(0, 3, size=40)
    some = [ringed(n) for n in rings]
    scores = clone(model).fit(some[:30], rings[:30]).predict(some[30:])
    assert concordance(rings[30:], scores) == 1.0


def test_options_of_the_features_can_be_searched():
    rings = np.tile([0, 1, 2], 8)
    some = [ringed(n) for n in rings]
    model = make_pipeline(AllPathsFeatures(), RLS(alpha=1e-3))
    grid = {"allpathsfeatures__aggregate": ["sum", "max"], "allpathsfeatures__max_length": [1, None]}
    search = GridSearchCV(model, grid, cv=3).fit(some, rings)
    assert search.best_score_ > 0.9


@pytest.mark.parametrize("transformer", [AllPathsFeatures(), WeisfeilerLehmanFeatures()])
def test_scikit_learn_knows_that_graphs_are_no_arrays(transformer):
    with pytest.warns(UserWarning, match="Can't test estimator"):
        check_estimator(transformer)
