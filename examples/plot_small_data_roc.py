"""
A ROC curve from forty patients
===============================

With few examples, a test set wastes data and pooled cross-validation is biased: its folds come from different models
whose levels are not comparable. Leave-pair-out compares only predictions of one model. This example draws the ROC curve
that belongs to it and sets the usual estimate beside it.
"""

# %%
# Forty patients, half of them ill
# --------------------------------

import matplotlib.pyplot as plt
import numpy as np

from preflearn import RLS
from preflearn.model_selection import estimate_auc

rng = np.random.default_rng(3)
ill = np.repeat([0, 1], 20)
markers = rng.standard_normal((40, 8)) + 0.7 * np.outer(ill, np.arange(8) < 2)

estimate = estimate_auc(RLS(), markers, ill, random_state=0)
print(estimate)

# %%
# The estimate draws its ROC curve: each patient is placed by how many of the held-out comparisons it wins.

estimate.plot()
plt.show()

# %%
# With nothing to learn
# ---------------------
# The same protocol on pure noise, many times over. An honest estimate is 0.5 on average; pooled ten-fold
# cross-validation falls short of it, because leaving a patient out shifts the level of the model the other way.

found = {"leave-pair-out": [], "pooled": []}
for seed in range(60):
    noise = np.random.default_rng(seed).standard_normal((30, 8))
    labels = np.repeat([0, 1], 15)
    for method, values in found.items():
        values.append(estimate_auc(RLS(), noise, labels, method=method, random_state=seed).value)

fig, ax = plt.subplots(figsize=(6, 4), layout="constrained")
ax.boxplot(list(found.values()), tick_labels=list(found), showmeans=True)
ax.axhline(0.5, linestyle=":", color="0.3")
ax.set_ylabel("estimated AUC, nothing to learn")
plt.show()
for method, values in found.items():
    print(f"{method}: mean {np.mean(values):.3f}")
