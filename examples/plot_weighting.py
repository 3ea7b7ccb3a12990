"""
Long queries and short ones
===========================

A query of 200 items has 19,900 pairs, one of 5 items has 10. With ``weighting="pair"`` every pair counts the same, and
the long queries decide; with ``"query"`` every query counts the same; ``"item"`` lies between. The measure decides
which is right: concordance averages over queries.
"""

# %%
# Users of two kinds
# ------------------
# Most queries are short; a few are long and prefer something else.

import matplotlib.pyplot as plt
import numpy as np

from preflearn import RankRLS
from preflearn.metrics import concordance

rng = np.random.default_rng(0)
usual, unusual = rng.standard_normal((2, 5))


def make_queries(n_short, n_long):
    sizes = np.r_[np.full(n_short, 6), np.full(n_long, 200)]
    qid = np.repeat(np.arange(sizes.shape[0]), sizes)
    X = rng.standard_normal((qid.shape[0], 5))
    taste = np.where((qid < n_short)[:, None], usual, unusual)
    return X, np.einsum("ij,ij->i", X, taste) + rng.standard_normal(qid.shape[0]), qid


X, y, qid = make_queries(120, 4)
X_new, y_new, qid_new = make_queries(300, 10)

# %%
# Concordance over all queries, and over the short and the long ones apart
# ------------------------------------------------------------------------

groups = {"all queries": qid_new >= 0, "short": qid_new < 300, "long": qid_new >= 300}
fig, ax = plt.subplots(figsize=(7, 4), layout="constrained")
for place, weighting in enumerate(("pair", "item", "query")):
    scores = RankRLS(1.0, weighting=weighting).fit(X, y, qid=qid).predict(X_new)
    values = [concordance(y_new[rows], scores[rows], qid_new[rows]) for rows in groups.values()]
    ax.bar(np.arange(3) + 0.27 * (place - 1), values, 0.25, label=f'weighting="{weighting}"')
    print(f"{weighting:>6}: " + ", ".join(f"{n} {v:.3f}" for n, v in zip(groups, values, strict=True)))
ax.set_xticks(range(3), list(groups))
ax.axhline(0.5, linestyle=":", color="0.3")
ax.set_ylabel("concordance on new queries")
ax.set_ylim(0.3, 1.0)
ax.legend(loc="upper center", ncols=3)
plt.show()
