"""
Choosing alpha without refitting
================================

How strong should the regularisation be? Hold out each query in turn, for every alpha of a grid, and see which alpha
orders the held-out queries best. Done by refitting, that is one training for each query and alpha; here it is one
factorisation, and the answer is the same.
"""

# %%
# Data
# ----
# Search results of a fictitious shop, graded by judges. The features are on different scales: standardise them.

import time

import matplotlib.pyplot as plt
import numpy as np
from sklearn.preprocessing import StandardScaler

from preflearn import RankRLS, RankRLSCV
from preflearn.datasets import load_demo
from preflearn.metrics import concordance
from preflearn.model_selection import cross_val_predict

X, y, qid, _ = load_demo()
X = StandardScaler().fit_transform(X)

# %%
# One call
# --------
# 31 alphas, 60 queries: 1,860 held-out models.

start = time.perf_counter()
model = RankRLSCV(kernel="rbf", gamma=0.1).fit(X, y, qid=qid)
seconds = time.perf_counter() - start
print(f"alpha {model.alpha_:.3g}, held-out concordance {model.best_score_:.3f}, {seconds:.2f} s")

model.plot_cv_scores()
plt.show()

# %%
# The same by refitting
# ---------------------
# For one alpha, every query left out by hand. Both ways agree to rounding.

learner = RankRLS(model.alpha_, kernel="rbf", gamma=0.1)
by_algebra = cross_val_predict(learner, X, y, qid=qid)
by_refitting = np.empty(len(y))
start = time.perf_counter()
for query in np.unique(qid):
    out = qid == query
    learner.fit(X[~out], y[~out], qid=qid[~out])
    by_refitting[out] = learner.predict(X[out])
seconds = time.perf_counter() - start
print(f"refitting 60 times for one alpha: {seconds:.2f} s")
print(f"largest difference: {np.abs(by_algebra - by_refitting).max():.1e}")

# %%
# The kernel's width can be searched as well
# ------------------------------------------
# ``kernel_grid`` tries each setting with a grid of alphas of its own.

search = RankRLSCV(kernel="rbf", kernel_grid={"gamma": [0.01, 0.03, 0.1, 0.3]}).fit(X, y, qid=qid)
fig, ax = plt.subplots(figsize=(7, 4), layout="constrained")
for tried in search.kernel_scores_:
    ax.semilogx(tried["alphas"], tried["cv_scores"], label=f"gamma = {tried['kernel']['gamma']}")
ax.set_xlabel("alpha")
ax.set_ylabel("held-out concordance")
ax.legend()
plt.show()
print(f"chosen: {search.best_kernel_}, alpha {search.alpha_:.3g}, concordance {search.best_score_:.3f}")

# %%
# Is the chosen model better than its parts?
# ------------------------------------------
# Concordance of the best single feature, for comparison.

single = [max(c, 1 - c) for c in (concordance(y, column, qid) for column in X.T)]
print(f"best single feature: {max(single):.3f}")
