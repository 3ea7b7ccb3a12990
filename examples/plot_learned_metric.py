"""
A kernel that learns which features matter
==========================================

Two of twenty features decide, and not in a linear way. An RBF kernel sees all twenty in its distances; `RankRFM` learns
which ones to look at, round by round.
"""

# %%
# Twenty features, two that matter
# --------------------------------

import matplotlib.pyplot as plt
import numpy as np

from preflearn import RankRFM, RankRLSCV

rng = np.random.default_rng(0)


def make_queries(n_queries):
    X, qid = rng.normal(size=(20 * n_queries, 20)), np.repeat(np.arange(n_queries), 20)
    return X, np.sin(2 * X[:, 4]) + X[:, 11] ** 2 + 0.3 * rng.normal(size=len(X)), qid


X, y, qid = make_queries(30)
X_new, y_new, qid_new = make_queries(100)

# %%
# The rounds
# ----------
# Round 0 is the plain kernel. Every fold of the cross-validation learns a metric of its own, so the scores are honest.

model = RankRFM(random_state=0).fit(X, y, qid=qid)
print(model.rounds_)

plain = RankRLSCV(kernel="rbf", gamma="median", cv=5).fit(X, y, qid=qid)
print(f"new queries, plain kernel:   {plain.score(X_new, y_new, qid=qid_new):.3f}")
print(f"new queries, learned metric: {model.score(X_new, y_new, qid=qid_new):.3f}")

# %%
# What was learned
# ----------------

model.plot_importances()
plt.tight_layout()
plt.show()
