"""
How many basis vectors?
=======================

A full kernel matrix of m rows takes m² numbers and m³ operations. A reduced set learns from all rows but writes the
function with r of them only: m r numbers, m r² operations. How large must r be?
"""

# %%
# Data
# ----
# 4,000 rows in 200 queries; what makes an item good is smooth but not linear.

import time

import matplotlib.pyplot as plt
import numpy as np

from preflearn import RankRLS

rng = np.random.default_rng(0)


def make_queries(n_queries):
    qid = np.repeat(np.arange(n_queries), 20)
    X = rng.standard_normal((qid.shape[0], 6))
    y = np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2] + 0.5 * X[:, 3] + 0.3 * rng.standard_normal(qid.shape[0])
    return X, y + rng.standard_normal(n_queries)[qid], qid


X, y, qid = make_queries(200)
X_new, y_new, qid_new = make_queries(100)

# %%
# Quality and time over r
# -----------------------

sizes = [10, 30, 100, 300, 1000]
quality, seconds = [], []
for r in sizes:
    model = RankRLS(1.0, kernel="rbf", gamma=0.1, n_basis=r, random_state=0)
    start = time.perf_counter()
    model.fit(X, y, qid=qid)
    seconds.append(time.perf_counter() - start)
    quality.append(model.score(X_new, y_new, qid=qid_new))
full = RankRLS(1.0, kernel="rbf", gamma=0.1)
start = time.perf_counter()
full.fit(X, y, qid=qid)
full_seconds = time.perf_counter() - start
full_quality = full.score(X_new, y_new, qid=qid_new)

fig, (left, right) = plt.subplots(1, 2, figsize=(9, 4), layout="constrained")
left.semilogx(sizes, quality, marker="o", label="reduced set")
left.axhline(full_quality, linestyle=":", color="0.3", label="all 4,000 rows")
left.set_xlabel("basis vectors")
left.set_ylabel("concordance on new queries")
left.legend()
right.loglog(sizes, seconds, marker="o", label="reduced set")
right.axhline(full_seconds, linestyle=":", color="0.3", label="all 4,000 rows")
right.set_xlabel("basis vectors")
right.set_ylabel("training time, seconds")
right.legend()
plt.show()

# %%
# The basis is part of the model
# ------------------------------
# Prediction costs r kernel values for each new row, whatever the number of training rows.

print(f"{model.basis_indices_.shape[0]} basis vectors: concordance {quality[-1]:.3f}")
print(f"all rows:           concordance {full_quality:.3f}")
