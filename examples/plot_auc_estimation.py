"""
How good is my classifier, really?
==================================

Forty patients, half of them ill, ten measurements each. Cross-validation gives an AUC, but which one? This example
compares the pooled, the averaged and the leave-pair-out estimate where the truth is known, and shows what an interval
tells.
"""

# %%
# Nothing to learn
# ----------------
# A model that knows nothing predicts the mean of its training rows. Leave out a positive row and that mean goes down:
# pooled leave-one-out puts every positive row under every negative one. Leave-pair-out compares the two rows of a pair
# under one model, and sees that they are tied.

import matplotlib.pyplot as plt
import numpy as np
from scipy.stats import norm

from preflearn import RLS
from preflearn.model_selection import estimate_auc

y = np.repeat([0, 1], 20)
nothing = np.ones((40, 1))
for method, options in (("pooled", {"n_splits": 40}), ("leave-pair-out", {})):
    print(f"{method:>15}: {estimate_auc(RLS(), nothing, y, method=method, **options).value:.2f}")

# %%
# Something to learn
# ------------------
# Two of the ten measurements are a little higher for the ill. The result says what was compared with what, where
# the interval comes from, and what pooling would have said.

rng = np.random.default_rng(1)
shift = 0.9 * (np.arange(10) < 2)
X = rng.normal(size=(40, 10)) + np.outer(y, shift)
result = estimate_auc(RLS(), X, y, random_state=0)
print(result)

# %%
# The ROC curve comes from a tournament: every pair of patients is held out once, and patients are ranked by the
# pairs they win.

result.plot()

# %%
# The same for many samples
# -------------------------
# The rows are normal, so the true AUC of each model is known. Dots under the line are estimates that were too low.

figure, axes = plt.subplots(1, 3, figsize=(9, 3.2), sharex=True, sharey=True, layout="constrained")
found = {"pooled": [], "averaged": [], "leave-pair-out": []}
truth = []
for sample in range(40):
    X = rng.normal(size=(40, 10)) + np.outer(y, shift)
    w = RLS().fit(X, y).coef_
    truth.append(norm.cdf(w @ shift / (np.sqrt(2) * np.linalg.norm(w))))
    for method, options in (
        ("pooled", {"n_splits": 40}),
        ("averaged", {"n_splits": 10}),
        ("leave-pair-out", {}),
    ):
        found[method].append(estimate_auc(RLS(), X, y, method=method, random_state=sample, **options).value)
for ax, (method, values) in zip(axes, found.items(), strict=True):
    deviation = np.subtract(values, truth)
    ax.plot([0.3, 1], [0.3, 1], color="0.6", linewidth=0.8)
    ax.plot(truth, values, ".")
    ax.set_title(f"{method}\nbias {deviation.mean():+.3f}, spread {deviation.std():.3f}", fontsize="medium")
    ax.set_xlabel("true AUC")
axes[0].set_ylabel("estimate")
plt.show()
