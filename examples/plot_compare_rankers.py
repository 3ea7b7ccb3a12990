"""
Is one ranker better than another?
==================================

Two rankers on the same queries differ; would they differ on other queries too? Queries, not rows, are the independent
units: compare the rankers query by query.
"""

# %%
# Four rankers, held-out scores
# -----------------------------
# Every score below is that of a model that has not seen the query.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.preprocessing import StandardScaler

from preflearn import RLS, RankRLS, RankSVM
from preflearn.datasets import load_demo
from preflearn.metrics import ndcg
from preflearn.model_selection import compare_rankers, compare_several_rankers, cross_val_predict

X, y, qid, names = load_demo()
X = StandardScaler().fit_transform(X)
scores = {
    "RankRLS, RBF": cross_val_predict(RankRLS(3.0, kernel="rbf", gamma=0.1), X, y, qid=qid),
    "RankRLS, linear": cross_val_predict(RankRLS(10.0), X, y, qid=qid),
    "RankSVM, linear": cross_val_predict(RankSVM(10.0), X, y, qid=qid, cv=10),
    "RLS, RBF": cross_val_predict(RLS(1.0, kernel="rbf", gamma=0.1), X, y, qid=qid),
    "rating alone": X[:, names.index("rating")],
}

# %%
# NDCG@10 of every query
# ----------------------

values = [ndcg(y, score, qid, k=10, per_query=True).values for score in scores.values()]
fig, ax = plt.subplots(figsize=(8, 4), layout="constrained")
ax.boxplot([one[~np.isnan(one)] for one in values], tick_labels=list(scores), showmeans=True)
ax.set_ylabel("NDCG@10 of a query, held out")
ax.tick_params(axis="x", rotation=15)
plt.show()

# %%
# Two rankers
# -----------
# The Wilcoxon signed-ranks test over queries.

print(compare_rankers(y, scores["RankRLS, RBF"], scores["RankRLS, linear"], qid))

# %%
# All of them
# -----------
# Every pair of rankers; the p-values are corrected for their number (Holm).

print(compare_several_rankers(y, scores, qid))
