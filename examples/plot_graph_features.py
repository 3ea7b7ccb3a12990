"""
Walks in labelled graphs
========================

The all-paths features weigh every ordered pair of labels by the walks that lead from one to the other. This example
shows where the weights come from, what bounding the walks leaves out, and ranks small graphs with them.
"""

# %%
# A sentence as a graph
# ---------------------
# "Alpha binds beta and gamma", with words and dependencies as vertices. Edges lead from a governor through its
# dependency to the dependent.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.pipeline import make_pipeline

from preflearn import RankRLS
from preflearn.graphs import AllPathsFeatures, LabeledGraph

words = ["alpha", "binds", "beta", "gamma"]
dependencies = [("binds", "nsubj", "alpha"), ("binds", "dobj", "beta"), ("beta", "conj_and", "gamma")]


def sentence(verb, weight=0.7):
    forms = [verb if word == "binds" else word for word in words]
    labels = [[form] for form in forms] + [[kind] for _, kind, _ in dependencies]
    edges = []
    for number, (governor, _, dependent) in enumerate(dependencies):
        vertex = len(words) + number
        edges += [(words.index(governor), vertex, weight), (vertex, words.index(dependent), weight)]
    return LabeledGraph(labels, edges, name=verb)


graph = sentence("binds")
print(graph)

# %%
# The features
# ------------
# Rows are the labels where walks start, columns where they end. A direct dependency is two edges, so "binds → beta"
# weighs 0.7² and "binds → gamma" 0.7⁴.

features = AllPathsFeatures("sum").fit([graph])
values = np.zeros((features.labels_.shape[0], features.labels_.shape[0]))
values[features.pairs_[:, 0], features.pairs_[:, 1]] = features.transform([graph]).toarray()[0]

figure, ax = plt.subplots(figsize=(5, 4))
ax.imshow(values, cmap="Blues")
for (row, column), value in np.ndenumerate(values):
    if value:
        ax.text(column, row, f"{value:.2f}", ha="center", va="center", fontsize=8)
ax.set_xticks(range(len(features.labels_)), features.labels_, rotation=60)
ax.set_yticks(range(len(features.labels_)), features.labels_)
ax.set_title("weight of all walks between labels")
figure.tight_layout()

# %%
# Short walks
# -----------
# With ``max_length`` the sum stops early; it approaches the sum over all walks.

cycle = LabeledGraph([["a"], ["b"], ["c"]], [(0, 1, 0.9), (1, 2, 0.9), (2, 0, 0.9)])
everything = AllPathsFeatures().fit_transform([cycle]).sum()
lengths = [1, 2, 4, 8, 16, 32, 64]
partial = [AllPathsFeatures(max_length=length).fit_transform([cycle]).sum() for length in lengths]

figure, ax = plt.subplots(figsize=(5, 3))
ax.plot(lengths, partial, "o-")
ax.axhline(everything, linestyle="--", color="grey", label="walks of every length")
ax.set_xscale("log", base=2)
ax.set_xlabel("longest walk counted")
ax.set_ylabel("total weight")
ax.legend()
figure.tight_layout()

# %%
# Ranking graphs
# --------------
# Chains of steps with a shortcut here and there; the score to learn is the number of shortcuts. Graphs go straight
# into a pipeline.

rng = np.random.default_rng(0)


def chain(n_shortcuts, length=12):
    steps = [[rng.choice(["load", "work", "store"])] for _ in range(length)]
    edges = [(i, i + 1, 0.5) for i in range(length - 1)]
    edges += [(int(i), int(i) + 2, 0.5) for i in rng.choice(length - 2, n_shortcuts, replace=False)]
    return LabeledGraph(steps, edges)


scores = rng.integers(0, 8, size=300)
graphs = [chain(score) for score in scores]
model = make_pipeline(AllPathsFeatures("sum"), RankRLS(alpha=1.0))
model.fit(graphs[:200], scores[:200])
print(f"concordance on new graphs: {model.score(graphs[200:], scores[200:]):.3f}")

figure, ax = plt.subplots(figsize=(5, 3))
ax.plot(scores[200:] + rng.uniform(-0.2, 0.2, size=100), model.predict(graphs[200:]), ".")
ax.set_xlabel("shortcuts")
ax.set_ylabel("predicted score")
figure.tight_layout()
plt.show()
