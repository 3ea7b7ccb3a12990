"""
A leaderboard one can believe
=============================

Twelve language models and three judges who like long answers; one of them also likes the side that is shown first.
From 900 battles: ratings, what can be said about ranks, who judges how, and which battles to run next.
"""

# %%
# Battles
# -------
# Each battle has two sides, a judge, a winner and the lengths of the two answers.

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from preflearn import rate

rng = np.random.default_rng(3)
n, size = 12, 900
strength = np.linspace(1.2, -1.2, n)
names = np.array([f"model-{letter}" for letter in "ABCDEFGHIJKL"])
a = rng.integers(0, n, size)
b = (a + rng.integers(1, n, size)) % n
length = 300 + 60 * rng.normal(size=n)
battles = pd.DataFrame({"model_a": names[a], "model_b": names[b]})
battles["length_a"] = length[a] + 80 * rng.normal(size=size)
battles["length_b"] = length[b] + 80 * rng.normal(size=size)
battles["judge"] = rng.choice(["ann", "ben", "judge-LM"], size)
lm = (battles["judge"] == "judge-LM").to_numpy()
odds = strength[a] - strength[b] + 0.004 * (battles["length_a"] - battles["length_b"]) + 0.9 * lm
won = rng.random(size) < 1 / (1 + np.exp(-odds))
battles["winner"] = np.where(rng.random(size) < 0.1, "tie", np.where(won, "model_a", "model_b"))
battles.head()

# %%
# The board
# ---------
# Length and position should not count: they enter the model, and ratings are those of answers of equal length.
# Two items that share a letter do not differ significantly; the intervals of all ranks hold together.

ratings = rate(battles, covariates=["length", "position"])
print(ratings)

# %%
fig, axes = plt.subplots(1, 2, figsize=(11, 4), layout="constrained")
ratings.plot("ratings", ax=axes[0])
ratings.plot("ranks", ax=axes[1])
plt.show()

# %%
# What length and position are worth, in points of a rating:

ratings.covariates[["covariate", "points", "points_lower", "points_upper"]].round(1)

# %%
# Judges
# ------
# The bias for the side that is shown first is that of one judge. It shows once the effect that all judges have in
# common is not taken off.

rate(battles, covariates=["length"], judge="judge").judges.round(3)

# %%
# Held-out battles
# ----------------
# Log loss, accuracy and calibration of battles that the model has not seen, compared with win rates and Elo.

ratings.held_out.round(3)

# %%
# What to run next
# ----------------

print(ratings.battles_needed("top-3"), "more battles settle who are the best three, starting with")
ratings.next_battles(5, goal="top-3").round(2)
