"""
Learning from comparisons alone
===============================

Nobody gives scores here: judges only say which of two items they prefer, and sometimes they are wrong. This is how a
reward scorer is trained on embeddings, or a league table on matches. RankRLS and RankSVM learn from the pairs directly;
the pairs are never expanded into differences of features.
"""

# %%
# Items and judges
# ----------------
# 300 items with 20 features stand for embeddings. The larger the difference of two items,
# the more reliably a judge prefers the better one.

import matplotlib.pyplot as plt
import numpy as np

from preflearn import RankRLS, RankSVM
from preflearn.metrics import concordance
from preflearn.model_selection import leave_preference_out

rng = np.random.default_rng(0)
items = rng.standard_normal((300, 20))
worth = np.tanh(items[:, 0]) + 0.5 * items[:, 1] - 0.3 * items[:, 2] * items[:, 0]


def ask_judges(n_comparisons):
    pairs = np.array([rng.choice(len(items), 2, replace=False) for _ in range(n_comparisons)])
    first_wins = rng.random(n_comparisons) < 1 / (1 + np.exp(-3 * (worth[pairs[:, 0]] - worth[pairs[:, 1]])))
    pairs[~first_wins] = pairs[~first_wins, ::-1]
    return pairs


# %%
# How many comparisons are needed?
# --------------------------------
# New items, never compared by anybody, are ordered by the learned function. The dotted line is the share of
# comparisons that the judges themselves got right.

new_items = rng.standard_normal((500, 20))
new_worth = np.tanh(new_items[:, 0]) + 0.5 * new_items[:, 1] - 0.3 * new_items[:, 2] * new_items[:, 0]
counts = [30, 100, 300, 1000, 3000]
learners = {
    "RankRLS, linear": RankRLS(10.0),
    "RankSVM, linear": RankSVM(10.0),
    "RankRLS, RBF": RankRLS(1.0, kernel="rbf", gamma=0.02),
}
quality = {name: [] for name in learners}
for count in counts:
    pairs = ask_judges(count)
    for name, learner in learners.items():
        learner.fit_pairs(items, pairs)
        quality[name].append(concordance(new_worth, learner.predict(new_items)))
right = np.mean(worth[pairs[:, 0]] > worth[pairs[:, 1]])

fig, ax = plt.subplots(figsize=(7, 4), layout="constrained")
for name, values in quality.items():
    ax.semilogx(counts, values, marker="o", label=name)
ax.axhline(right, linestyle=":", color="0.4", label="one judge's answer")
ax.set_xlabel("comparisons")
ax.set_ylabel("concordance on new items")
ax.legend()
plt.show()

# %%
# An honest estimate from the comparisons themselves
# --------------------------------------------------
# Each comparison is held out in turn, by algebra; the share that is predicted right needs no scores.

model = RankRLS(1.0, kernel="rbf", gamma=0.02)
difference = leave_preference_out(model, items, pairs)
print(f"held-out comparisons predicted right: {np.mean(difference > 0):.3f} (judges: {right:.3f})")
