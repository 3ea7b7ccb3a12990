"""
Extracting interactions from parsed sentences
=============================================

Parses in CoNLL-U and a table of protein names are all that the interaction extractor needs. The sentences here are made
up; the five public corpora in unified XML are read with :func:`preflearn_papers.ppi.read_corpus` instead. It needs
``pip install preflearn-papers``.
"""

# %%
# Sentences
# ---------
# Three names in each sentence, of which the first and the second interact when the verb says so.

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from preflearn_papers.ppi import (
    InteractionExtractor,
    Settings,
    candidates,
    evaluate,
    learning_curve,
    read_conllu_corpus,
)

rng = np.random.default_rng(0)
binding, other = ["binds", "activates", "inhibits"], ["resembles", "precedes", "lacks"]
openings = ["Here", "Often", "Surprisingly", "Again"]


def parse(document, number):
    """CoNLL-U of one sentence, its rows of the table of names, and its labelled pairs."""
    name = f"d{document}.s{number}"
    interacts = rng.random() < 0.4
    verb = rng.choice(binding if interacts else other)
    if rng.random() < 0.1:  # the odd sentence says it another way
        verb = "meets"
    forms = [rng.choice(openings), "alpha", verb, "beta", "near", "gamma", "."]
    tags, heads = ["RB", "NN", "VBZ", "NN", "IN", "NN", "."], [3, 3, 0, 3, 6, 4, 3]
    kinds = ["advmod", "nsubj", "root", "obj", "case", "nmod", "punct"]
    starts = np.concatenate([[0], np.cumsum([len(form) + 1 for form in forms])])
    rows = [
        f"{i + 1}\t{form}\t_\t_\t{tag}\t_\t{head}\t{kind}\t_\t_"
        for i, (form, tag, head, kind) in enumerate(zip(forms, tags, heads, kinds))
    ]
    opening = [f"# newdoc id = d{document}"] if number == 0 else []
    lines = [*opening, f"# sent_id = {name}", f"# text = {' '.join(forms)}", *rows, ""]
    names = [f"{name}\t{name}.e{i}\t{starts[i]}\t{starts[i] + len(forms[i])}\t{forms[i]}" for i in (1, 3, 5)]
    pairs = [
        f"{name}.e1\t{name}.e3\t{interacts}",
        f"{name}.e1\t{name}.e5\tFalse",
        f"{name}.e3\t{name}.e5\tFalse",
    ]
    return lines, names, pairs


parsed = [parse(document, number) for document in range(25) for number in range(4)]
folder = Path(tempfile.mkdtemp())
(folder / "text.conllu").write_text("\n".join(line for lines, _, _ in parsed for line in lines) + "\n")
header = "sentence\tentity\tstart\tend\ttext"
(folder / "names.tsv").write_text("\n".join([header, *(row for _, rows, _ in parsed for row in rows)]) + "\n")
(folder / "pairs.tsv").write_text(
    "\n".join(["e1\te2\tinteraction", *(row for *_, rows in parsed for row in rows)]) + "\n"
)

corpus = read_conllu_corpus(folder / "text.conllu", folder / "names.tsv", folder / "pairs.tsv")
print(corpus)

# %%
# Candidates
# ----------
# Every pair of names in a sentence is a candidate: a graph of the parse and of the order of the words, with the two
# names blinded.

data = candidates(corpus)
print(data)
print(data.graphs[0].labels[:8])

# %%
# How good is it?
# ---------------
# Folds of whole documents; alpha and threshold are chosen inside the training folds by leave-one-document-out.

few = Settings(alphas=(0.1, 1.0, 10.0))
result = evaluate(data, n_folds=5, settings=few)
print(result)
result.plot()

# %%
# Would more documents help?

learning_curve(data, n_points=5, settings=few).plot()

# %%
# Use it
# ------

model = InteractionExtractor(alphas=few.alphas).fit(data.graphs, data.labels, documents=data.documents)
scores = model.decision_function(data.graphs[:6])
for item, score in zip(data.items[:6], scores):
    mark = "interaction" if score > model.threshold_ else ""
    print(f"{score:+.2f} {item.first:6} {item.second:6} {mark:12} {item.sentence.text}")
plt.show()
