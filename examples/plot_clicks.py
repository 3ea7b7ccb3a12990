"""
Clicks without the bias of positions
====================================

Clicks are what most people have, and they mislead: what stands first is clicked because it stands first. A ranker
trained on raw clicks learns the old ranker. Here the truth is known, and inverse propensities find it.
"""

# %%
# A search log
# ------------
# Users look at position k with probability 1 / k and click what they like. The old ranker sorts by a feature that
# nobody cares about, with a little noise from day to day: that noise is what tells positions apart.

import matplotlib.pyplot as plt
import numpy as np

from preflearn import RankRLS
from preflearn.metrics import concordance
from preflearn.preferences import click_preferences, position_propensities

rng = np.random.default_rng(0)
n_days, n_queries, n_items, n_shown = 20, 200, 12, 10
taste = np.array([1.0, -1.0, 0.5, 0.0])
looked_at = 1 / np.arange(1, n_shown + 1)


def make_items():
    X = rng.normal(size=(n_queries, n_items, 4))
    return X, X @ taste


X, utility = make_items()
old = 2 * X[None, :, :, 3] + 0.7 * rng.normal(size=(n_days, n_queries, n_items))
shown = np.argsort(-old, axis=2)[:, :, :n_shown]
likes = 1 / (1 + np.exp(2 - 1.5 * np.take_along_axis(np.broadcast_to(utility, old.shape), shown, axis=2)))
clicked = (rng.random(shown.shape) < looked_at) & (rng.random(shown.shape) < likes)

query = np.broadcast_to(np.arange(n_queries)[None, :, None], shown.shape).ravel()
position = np.broadcast_to(np.arange(1, n_shown + 1), shown.shape).ravel()
session = np.repeat(np.arange(n_days * n_queries), n_shown)
item, clicked = shown.ravel(), clicked.ravel()
rows = X[query, item]  # the features of what was shown

# %%
# How often is a position looked at?
# ----------------------------------

propensities = position_propensities(position, clicked, query=query, item=item)
print(propensities)

# %%
# What each way of learning makes of the four features
# ----------------------------------------------------

ways = {
    "raw clicks": click_preferences(session, clicked),
    "weighted, against unclicked": click_preferences(session, clicked, position, propensities=propensities),
    "weighted, against all": click_preferences(
        session, clicked, position, propensities=propensities, against="all"
    ),
}
X_new, utility_new = make_items()
new_query = np.repeat(np.arange(n_queries), n_items)

fig, (left, right) = plt.subplots(1, 2, figsize=(9, 3.8), layout="constrained")
left.loglog(propensities.positions, looked_at, "k:", label="truth")
left.loglog(propensities.positions, propensities.values, "o", label="estimated")
left.set_xlabel("position")
left.set_ylabel("propensity")
left.legend()
for place, (name, preferences) in enumerate(ways.items()):
    model = RankRLS().fit_pairs(rows, preferences.pairs, weight=preferences.weight)
    quality = concordance(utility_new.ravel(), model.predict(X_new.reshape(-1, 4)), new_query)
    print(f"{name:<28} concordance with the truth on new queries {quality:.3f}")
    right.bar(np.arange(4) + 0.27 * (place - 1), model.coef_ / np.abs(model.coef_).max(), 0.25, label=name)
right.plot(np.arange(4), taste, "k_", markersize=30, label="truth")
right.set_xticks(range(4), ["price", "age", "stars", "old ranker's"])
right.set_ylabel("weight, relative")
right.legend(fontsize="small")
plt.show()
