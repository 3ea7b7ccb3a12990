"""
A tournament that no ranking explains
=====================================

In many games strength is not all: A beats B, B beats C, and C beats A. A ranking gives every player one number and
cannot say so. An antisymmetric relation, f(u, v) = -f(v, u), can, and predicts matches of players it has never
seen.
"""

# %%
# Players and matches
# -------------------
# Each player has a strength and a style, an angle. The style decides as in rock, paper, scissors: an advantage of a
# quarter turn is the largest.

import matplotlib.pyplot as plt
import numpy as np

from preflearn.relations import KroneckerRLS, cross_val_predict

rng = np.random.default_rng(1)
n = 40
strength, style = rng.normal(size=n), rng.uniform(0, 2 * np.pi, size=n)
players = np.c_[strength, np.cos(style), np.sin(style)]
margin = 0.3 * (strength[:, None] - strength) + np.sin(style[:, None] - style)
noise = np.triu(0.3 * rng.normal(size=(n, n)), 1)
results = margin + noise - noise.T

# %%
# Two models
# ----------
# ``"sum"`` with antisymmetric labels learns a(u) - a(v), which is a ranking; ``"antisymmetric"`` learns any relation
# that changes its sign with the order of the players. Held-out players have no match in the training.

kernel = {"row_kernel": "poly", "column_kernel": "poly"}
kernel |= {"row_params": {"degree": 1}, "column_params": {"degree": 1}}
models = {
    "ranking": KroneckerRLS(1.0, pairwise="sum", **kernel),
    "antisymmetric relation": KroneckerRLS(1.0, pairwise="antisymmetric", **kernel),
}
played = np.triu_indices(n, 1)
figure, axes = plt.subplots(1, 3, figsize=(11, 3.6))
order = np.argsort(style)
axes[0].imshow(results[np.ix_(order, order)], cmap="RdBu", vmin=-2, vmax=2)
axes[0].set(title="results", xlabel="player, by style", ylabel="player, by style")
for ax, (name, model) in zip(axes[1:], models.items(), strict=True):
    held_out = cross_val_predict(model, players, players, results, hold_out="both", cv=(4, 4))
    right = np.mean(np.sign(held_out[played]) == np.sign(results[played]))
    ax.imshow(held_out[np.ix_(order, order)], cmap="RdBu", vmin=-2, vmax=2)
    ax.set(title=f"{name}:\n{right:.0%} of the winners", xlabel="player, by style")
    print(f"{name}: {right:.0%} of the winners among players never seen")

# %%
# Cycles
# ------
# How many triples of players beat each other in a circle? A ranking predicts none.

for name, model in models.items():
    beats = model.fit(players, players, results).predict(players, players) > 1e-6
    circles = np.trace(np.linalg.matrix_power(beats.astype(int), 3)) // 3
    print(f"{name}: {circles} cycles of three")
plt.show()
