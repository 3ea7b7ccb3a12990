"""
Which parse is right?
=====================

"She saw the man with the telescope": a parser finds two parses and cannot say which is right. From sentences where the
right one is known, RankRLS learns which links to trust. Each sentence is a query, its parses are the rows. Sentences,
links and their features are of the distribution preflearn-papers (``pip install preflearn-papers``).
"""

# %%
# Sentences with two parses
# -------------------------
# The phrase at the end belongs to the verb or to its object, and the words tell which. A parse that has the link right
# agrees with the right parse in full; the other one misses a link and has a wrong one instead.

import itertools

import matplotlib.pyplot as plt
import numpy as np

from preflearn import RankRLS
from preflearn.graphs import AllPathsFeatures
from preflearn.metrics import disagreement_error
from preflearn_papers.parses import Link, Linkage, LinkFeatures, Sentence, Token, agreement, as_ranking

with_the_verb = [("saw", "telescope"), ("ate", "fork"), ("hit", "hammer"), ("cut", "knife")]
with_the_object = [("man", "beard"), ("cake", "cream"), ("nail", "head"), ("rope", "knot")]
TAGS = ["PRP", "VBD", "DT", "NN", "IN", "DT", "NN"]


def sentence(verb, noun, last, belongs_to_verb):
    words = ["she", verb, "the", noun, "with", "the", last]
    tokens = tuple(Token(word, tag) for word, tag in zip(words, TAGS, strict=True))
    common = (Link(0, 1, "Ss"), Link(1, 3, "Os"), Link(2, 3, "Ds"), Link(4, 6, "Js"), Link(5, 6, "Ds"))
    candidates = [(*common, Link(1, 4, "MVp")), (*common, Link(3, 4, "Mp"))]
    right = candidates[0 if belongs_to_verb else 1]
    parses = tuple(Linkage(tokens, links, score=agreement(links, right)) for links in candidates)
    return Sentence(" ".join(words), "", tokens, parses)


sentences = []
for (verb, tool), (noun, part) in itertools.product(with_the_verb, with_the_object):
    sentences += [sentence(verb, noun, tool, True), sentence(verb, noun, part, False)]
print(sentences[0].text)
for parse in sentences[0].linkages:
    print(f"  {parse.score:.2f}  {parse}")

# %%
# What a parse says
# -----------------
# Features are counts of statements about links and tokens. A link alone cannot tell which noun the phrase ends with:
# the two parses of a sentence differ in one link, and that ends at "with" in all of them.

features = LinkFeatures("links", min_count=1, normalize=False)
rows = features.fit_transform(sentences[0].linkages).toarray()
names = features.get_feature_names_out()
print("only in the first:", ", ".join(names[rows[0] > rows[1]][:6]), "...")

# %%
# The graph of a parse sees further
# ---------------------------------
# Walks lead from the verb through the preposition to the noun, so that all-paths features hold the pair "saw →
# telescope" for one parse and "man → telescope" for the other. All learn from half of the sentences. (What
# cannot tell is even worse than chance here: the sentences are balanced, so that what happens to be frequent among
# those trained on is rare among the others.)

order = np.random.default_rng(0).permutation(len(sentences))
train = as_ranking(sentences[k] for k in order[:16])
test = as_ranking(sentences[k] for k in order[16:])
errors = {}
maps = {
    "links": (LinkFeatures("links"), lambda parse: parse),
    "label pairs": (AllPathsFeatures("sum", max_length=2), lambda parse: parse.graph()),
    "all paths": (AllPathsFeatures("sum"), lambda parse: parse.graph()),
}
for name, (feature_map, read) in maps.items():
    X = feature_map.fit_transform([read(parse) for parse in train.linkages])
    model = RankRLS(alpha=0.1).fit(X, train.y, qid=train.qid)
    scores = model.predict(feature_map.transform([read(parse) for parse in test.linkages]))
    errors[name] = disagreement_error(test.y, scores, test.qid)
    print(f"{name:12} {errors[name]:.2f}")

figure, ax = plt.subplots(figsize=(5, 2.5), layout="constrained")
ax.barh(list(errors), list(errors.values()), color=["C3", "C1", "C0"])
ax.axvline(0.5, linestyle="--", color="grey")
ax.set_xlabel("disagreement error on new sentences (dashed: chance)")
ax.set_xlim(0, 1)
plt.show()

# %%
# Real parses are another matter
# ------------------------------
# These sentences were made so that only a walk of several links tells their parses apart. The parses of real sentences
# differ in many links, and there what stands around a link says most: `preflearn_papers.parses.ParseRanker` uses such
# features, and the published experiments in this documentation compare both on sentences of biomedical articles.
