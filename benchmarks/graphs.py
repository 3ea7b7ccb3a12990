"""What do the all-paths features cost: against dense inverses, as the graphs get more, and in memory?

The graphs are parses made up at random (35 words and 26 dependencies, about as in the interaction corpora). BioInfer
is measured too where the corpora are found (``$PREFLEARN_DATA/ppi_corpora`` or ``../shared/data/ppi_corpora``).

    python benchmarks/graphs.py
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from _harness import arguments, best_of, data_folder, peak_memory, report, write_results
from preflearn.graphs import AllPathsFeatures, LabeledGraph, gram

N_WORDS, N_DEPENDENCIES = 35, 26


def random_parse(rng: np.random.Generator) -> LabeledGraph:
    """Words with labels of a skewed vocabulary, a forest of dependencies, and the chain of the words."""
    words = [f"w{rng.zipf(1.3) % 5000}" for _ in range(N_WORDS)]
    labels = [[word, f"t{rng.integers(40)}"] for word in words]
    labels += [[f"d{rng.integers(50)}"] for _ in range(N_DEPENDENCIES)]
    labels += [[word + "'", tag + "'"] for word, tag in labels[:N_WORDS]]
    edges = []
    for number, dependent in enumerate(rng.choice(np.arange(1, N_WORDS), N_DEPENDENCIES, replace=False)):
        weight = rng.choice([0.3, 0.9], p=[0.8, 0.2])
        vertex = N_WORDS + number
        edges += [(int(rng.integers(dependent)), vertex, weight), (vertex, int(dependent), weight)]
    chain = N_WORDS + N_DEPENDENCIES
    edges += [(chain + i, chain + i + 1, 0.9) for i in range(N_WORDS - 1)]
    return LabeledGraph(labels, edges)


def parses(n_graphs: int) -> list[LabeledGraph]:
    rng = np.random.default_rng(0)
    return [random_parse(rng) for _ in range(n_graphs)]


def plain(graphs: list[LabeledGraph]) -> list[dict]:
    """A dense inverse of the whole graph and a dictionary of label pairs, in plain Python."""
    rows = []
    for graph in graphs:
        identity = np.eye(graph.n_vertices)
        walks = np.linalg.inv(identity - graph.adjacency().toarray()) - identity
        row: dict = {}
        for i, j in zip(*np.nonzero(walks > 1e-5), strict=True):
            for a in graph.labels[i]:
                for b in graph.labels[j]:
                    row[a, b] = max(row.get((a, b), 0.0), walks[i, j])
        rows.append(row)
    return rows


def inverses(graphs: list[LabeledGraph]) -> None:
    """The dense inverses alone: what LAPACK needs before a single label is looked at."""
    for graph in graphs:
        np.linalg.inv(np.eye(graph.n_vertices) - graph.adjacency().toarray())


def ours(graphs: list[LabeledGraph], n_jobs: int = 1):
    return AllPathsFeatures("max", min_weight=1e-5, rescale=0.95, n_jobs=n_jobs).fit_transform(graphs)


def against_plain(n_graphs: int, repeats: int) -> dict:
    graphs = parses(n_graphs)
    seconds = best_of(
        {
            "dense inverses alone": lambda: inverses(graphs),
            "inverses and a dictionary": lambda: plain(graphs),
            "AllPathsFeatures, 1 thread": lambda: ours(graphs),
            "AllPathsFeatures, 2 threads": lambda: ours(graphs, 2),
        },
        repeats=repeats,
    )
    return report(
        "all-paths features", seconds, baseline="dense inverses alone", note=f"{n_graphs} made-up parses"
    )


def growth(n_graphs: int, repeats: int) -> dict:
    sizes = [n_graphs, 2 * n_graphs, 4 * n_graphs]
    graphs = parses(sizes[-1])
    seconds = best_of({f"{size} graphs": _features_of(graphs[:size]) for size in sizes}, repeats=repeats)
    first = f"{n_graphs} graphs"
    return report("cost as the graphs get more", seconds, baseline=first, limits={f"{sizes[-1]} graphs": 5.0})


def _features_of(graphs: list[LabeledGraph]):
    return lambda: ours(graphs)


def products(n_graphs: int, repeats: int) -> dict:
    X = ours(parses(n_graphs))
    seconds = best_of(
        {"X @ X.T of SciPy, made dense": lambda: (X @ X.T).toarray(), "gram(X)": lambda: gram(X)},
        repeats=repeats,
    )
    return report(
        "kernel matrix of sparse rows",
        seconds,
        baseline="X @ X.T of SciPy, made dense",
        note=f"{n_graphs} rows",
    )


def read_bioinfer(folder: str) -> tuple:
    from preflearn_papers.ppi import candidates, read_corpus

    ours(parses(2), 2)
    return (candidates(read_corpus(Path(folder) / "BioInfer-learning-format.xml.xz")).graphs,)


def two_threads(graphs: list[LabeledGraph]) -> None:
    ours(graphs, 2)


def bioinfer(folder: Path, repeats: int) -> list[dict]:
    (graphs,) = read_bioinfer(str(folder))
    sample = graphs[:: max(1, len(graphs) // 500)]
    per_plain = (
        best_of({"plain": lambda: plain(sample)}, repeats=1, warm_up=False)["plain"]
        / len(sample)
        * len(graphs)
    )
    seconds = best_of({"2 threads": lambda: two_threads(graphs)}, repeats=min(repeats, 3))
    values = {"inverses and a dictionary (from 1 in 20)": per_plain, **seconds}
    memory = peak_memory(read_bioinfer, two_threads, str(folder))
    print(f"\nfeatures of BioInfer: {memory / 2**20:.0f} MiB over the graphs at the peak")
    first = next(iter(values))
    note = f"{len(graphs)} candidates"
    return [report("features of BioInfer", values, baseline=first, note=note, extra={"peak_bytes": memory})]


def main() -> None:
    options = arguments(__doc__, repeats=3)
    n_graphs = 20 if options.quick else 500
    results = [
        against_plain(n_graphs, options.repeats),
        growth(n_graphs, options.repeats),
        products(4 * n_graphs, options.repeats),
    ]
    folder = data_folder("ppi_corpora")
    if options.quick:
        return
    if folder is not None:
        results += bioinfer(folder, options.repeats)
    write_results("graphs", *results)


if __name__ == "__main__":
    main()
